"""Looking things up in a log by when they were: positions, buckets, and whether what was loaded is still there."""

from __future__ import annotations

from collections.abc import Sequence

import sqlalchemy as sa

from anabranch.log import tables
from anabranch.log.catalog import Catalog
from anabranch.log.commit import find_run
from anabranch.log.header_folding import first_stime
from anabranch.log.headers import logged_from
from anabranch.log.references import verify
from anabranch.model.errors import AnabranchError
from anabranch.model.run import RunId


class Moments:
    """Short questions about the runs of a stream, by its number."""

    def __init__(self, catalog: Catalog) -> None:
        self.catalog = catalog

    def position_at(self, stream_id: int, stime: int) -> int | None:
        """The last position stamped at or before a stream time; None if that lies within folded headers."""
        runs = tables.runs
        mine = runs.c.stream_id == stream_id
        with self.catalog.read() as connection:
            last = connection.execute(
                sa.select(sa.func.max(runs.c.position)).where(mine, runs.c.stime <= stime)
            ).scalar()  # fmt: skip
            after = sa.select(runs).where(mine, runs.c.position > (last or 0)).order_by(runs.c.position)
            later = connection.execute(after.limit(1)).first()
        if later is not None and later.first_position < later.position and stime >= first_stime(later):
            return None  # some of its runs were stamped by then, and nobody knows which
        return last or 0

    def bucket_of(self, stream_id: int, position: int) -> int:
        """The bucket of the first run at or after a position of a derived stream; of folded ones, the least one."""
        runs = tables.runs
        mine = runs.c.stream_id == stream_id
        with self.catalog.read() as connection:
            found = connection.execute(
                sa.select(runs).where(mine, runs.c.position >= position).order_by(runs.c.position).limit(1)
            ).first()
            if found is None:
                return 1 << 62
            if found.first_position == found.position:
                return int(found.bucket)
            before = sa.select(sa.func.max(runs.c.bucket)).where(mine, runs.c.position < found.first_position)
            return int(connection.execute(before).scalar() or 0) + 1

    def reached(self, stream_ids: Sequence[int]) -> list[int]:
        """The last positions of some streams, at one moment; of one that was dropped, none at all."""
        streams = tables.streams
        with self.catalog.read() as connection:
            rows = connection.execute(
                sa.select(streams.c.id, streams.c.last_position).where(streams.c.id.in_(stream_ids))
            )
            found = {row.id: row.last_position for row in rows}
        return [found.get(stream_id, -1) for stream_id in stream_ids]

    def before_bucket(self, stream_id: int, bucket: int) -> int:
        """The last position of a derived stream that lies wholly before a bucket; an earlier one where headers were
        folded, whose rows say themselves in which bucket they are.
        """
        runs = tables.runs
        mine = runs.c.stream_id == stream_id
        with self.catalog.read() as connection:
            first = connection.execute(
                sa.select(sa.func.min(runs.c.first_position)).where(mine, runs.c.bucket >= bucket)
            ).scalar()
            last = connection.execute(sa.select(sa.func.max(runs.c.position)).where(mine)).scalar()
        return int(last or 0) if first is None else int(first) - 1

    def first_after(self, stream_id: int, bucket: int) -> int | None:
        """The first position of what a derived stream has said after a bucket; None if it has said nothing since."""
        runs = tables.runs
        query = sa.select(sa.func.min(runs.c.first_position)).where(
            runs.c.stream_id == stream_id, runs.c.bucket > bucket
        )
        with self.catalog.read() as connection:
            return connection.execute(query).scalar()

    def knows(self, stream_id: int, run_id: RunId) -> bool:
        """Whether a run is in the log, also if it was folded since."""
        with self.catalog.read() as connection:
            return find_run(connection, stream_id, run_id) is not None

    def still_refers_to(self, stream_id: int, path: str) -> bool:
        """Whether a file that a stream refers to is still the one that was loaded."""
        table = tables.segments
        mine = sa.select(table).where(table.c.stream_id == stream_id, table.c.path == path)
        with self.catalog.read() as connection:
            segments = [logged_from(row).segment for row in connection.execute(mine)]
        try:
            for segment in segments:
                verify(segment, path)
        except AnabranchError:
            return False
        return True
