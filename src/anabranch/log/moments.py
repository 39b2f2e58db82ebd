"""Looking things up in a log by when they were: positions, buckets, and whether what was loaded is still there."""

from __future__ import annotations

import sqlalchemy as sa

from anabranch.log import tables
from anabranch.log.catalog import Catalog
from anabranch.log.headers import logged_from
from anabranch.log.references import verify
from anabranch.model.errors import AnabranchError


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
            first = connection.execute(sa.select(runs).where(mine).order_by(runs.c.position).limit(1)).first()
        if last is None and first is not None and first.first_position < first.position:
            return None
        return last or 0

    def bucket_of(self, stream_id: int, position: int) -> int:
        """The bucket of the first run at or after a position of a derived stream."""
        runs = tables.runs
        query = sa.select(runs.c.bucket).where(runs.c.stream_id == stream_id, runs.c.position >= position)
        with self.catalog.read() as connection:
            return int(connection.execute(query.order_by(runs.c.position).limit(1)).scalar() or 1 << 62)

    def first_after(self, stream_id: int, bucket: int) -> int | None:
        """The first position of what a derived stream has said after a bucket; None if it has said nothing since."""
        runs = tables.runs
        query = sa.select(sa.func.min(runs.c.position)).where(runs.c.stream_id == stream_id, runs.c.bucket > bucket)
        with self.catalog.read() as connection:
            return connection.execute(query).scalar()

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
