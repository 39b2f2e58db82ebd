"""The log of a warehouse, or of a branch of it: all its connection points, opened by one process.

This is the whole of the durable side, without Spark. Call order: open a `Log`; create or look up
streams; append through units of work, or plan reads; close it. Any number of processes may have the
same warehouse open, and any number of threads may share one `Log`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import sqlalchemy as sa

from anabranch.log import buckets, compaction, gc, overlays, positions, queries, register, retention, tables, views
from anabranch.log.branches import Branch, Branches, belongs_to_main
from anabranch.log.catalog import Catalog
from anabranch.log.clock import Clock, system_clock
from anabranch.log.commit import commit_run
from anabranch.log.copies import Copies
from anabranch.log.follow import Followed, follow
from anabranch.log.fork import fork
from anabranch.log.headers import header_from
from anabranch.log.intents import LEASE_US, Intent, Intents
from anabranch.log.leases import Leases
from anabranch.log.moments import Moments
from anabranch.log.reading import ReadPlan, ReadRange, plan_read, plan_times
from anabranch.log.references import Unchanged, verify
from anabranch.log.segments import SegmentLayout
from anabranch.log.sinks import SinkRegister
from anabranch.log.states import States
from anabranch.log.storage import Storage, make_root, warehouse_root
from anabranch.log.stream_state import STREAMS, require_same, state_from
from anabranch.log.stream_state import StreamState as StreamState
from anabranch.log.units import UnitOfWork
from anabranch.log.upkeep import Upkeep
from anabranch.model.errors import AnabranchError
from anabranch.model.run import LoggedSegment, RunDraft, RunHeader, RunId, RunKind, Segment, check_run_id, check_source
from anabranch.model.stream import StreamSpec, check_branch_name
from anabranch.model.time import instant_text


class Log:
    """An open warehouse."""

    def __init__(
        self,
        warehouse: str | Path,
        catalog: str | None = None,
        *,
        create: bool = True,
        clock: Clock = system_clock,
        lease_us: int = LEASE_US,
        branch: str | Branch | None = None,
        branches: Branches | None = None,
        bucket_us: int | None = None,
    ) -> None:
        self.root = warehouse_root(warehouse)
        self.clock = clock
        if create and branch is None:
            make_root(self.root)
        # The register of branches is in main's catalog; a log that is forked from another shares that one's.
        self._shares = branches is not None
        self.branches = branches or self._open_main(catalog, create and branch is None, lease_us, bucket_us)
        self.branch = self.branches.find(branch) if isinstance(branch, str) else branch
        self.catalog = self.branches.main
        if self.branch is not None:
            self.catalog = self.branch.catalog(self.branches.main)
            self.catalog.prepare(False)
        self.id: str = self.catalog.identity["id"]
        self.entry_point: str = self.catalog.identity["entry_point"]
        self.bucket_us: int | None = self.catalog.identity["bucket_size"]
        self.storage = Storage(self.root, self.generation)
        self.intents = Intents(self.catalog, clock, lease_us)
        self.leases = Leases(self.catalog, clock)
        self.register = register.Register(self.catalog, clock)
        self.overlays = overlays.Overlays(self.catalog, clock)
        self.moments = Moments(self.catalog)
        self.copies = Copies(self.catalog, clock)
        self.sinks = SinkRegister(self.catalog)
        self._references = Unchanged()
        self.upkeep = Upkeep(self.catalog, self.storage, clock, self.branches, self.generation)
        self.states = States(self.catalog, clock)

    def _open_main(self, catalog: str | None, create: bool, lease_us: int, bucket_us: int | None) -> Branches:
        main = Catalog(self.root, catalog, bucket_us=bucket_us)
        main.prepare(create)
        return Branches(main, self.clock, lease_us)

    @property
    def generation(self) -> str | None:
        """Of the branch that this is; None: main."""
        return None if self.branch is None else self.branch.generation

    def fork(self, name: str | None = None, lifetime_us: int | None = None, **options: Any) -> Log:
        """A branch of this, opened; see `fork` for the options. An unnamed one ends when it is closed, or with us."""
        if name is not None:
            check_branch_name(name)
        branch = fork(self.catalog, self.branches, self.generation, name, lifetime_us, **options)
        return self.open_branch(branch)

    def open_branch(self, branch: Branch | None) -> Log:
        """A branch, or main for None, opened beside this; to be closed before."""
        return Log(self.root, clock=self.clock, lease_us=self.intents.lease_us, branch=branch, branches=self.branches)

    def open_parent(self) -> Log:
        """What a branch was forked from, opened beside it."""
        parent = None if self.branch is None else self.branch.parent
        return self.open_branch(None if parent is None else self.branches.find(parent))

    def follow(self) -> Followed:
        """Bring what the base streams of main have got since, by reference, with main's buckets."""
        with self.open_parent() as parent:
            return follow(parent.catalog, self.catalog, "" if self.branch is None else self.branch.label)

    def require_main(self, what: str) -> None:
        """Refuse what never runs on a branch."""
        if self.branch is not None:
            raise belongs_to_main(self.branch, what)

    # Streams.

    def create_stream(self, spec: StreamSpec) -> StreamState:
        """Create a stream; the same declaration again gives the stream that is there."""
        with self.catalog.write() as connection:
            row = connection.execute(sa.select(tables.streams).where(tables.streams.c.name == spec.name)).first()
            if row is None:
                register.require_free(connection, spec.name)
                register.insert_stream(connection, spec, buckets.BASE)
            elif row.role == buckets.BASE:
                require_same(spec, StreamSpec.from_json(row.spec))
            else:
                raise register.name_taken(spec.name, "a query")
        return self.stream(spec.name)

    def stream(self, name: str) -> StreamState:
        with self.catalog.read() as connection:
            return state_from(self._row(connection, name))

    def stream_by_id(self, stream_id: int) -> StreamState:
        with self.catalog.read() as connection:
            row = connection.execute(STREAMS.where(tables.streams.c.id == stream_id)).first()
        if row is None:
            raise AnabranchError(
                "POSITION_CONFLICT",
                place=f"stream number {stream_id}",
                need="a stream that is there",
                got="one that was dropped meanwhile",
                next_step="Try again.",
            )
        return state_from(row)

    def streams_by_id(self, stream_ids: Sequence[int]) -> list[StreamState]:
        """Those of some streams that are still there."""
        with self.catalog.read() as connection:
            found = connection.execute(STREAMS.where(tables.streams.c.id.in_(stream_ids))).all()
        return [state_from(row) for row in found]

    def streams(self) -> list[StreamState]:
        """Base and derived streams; the partial results behind them are nobody's to read."""
        with self.catalog.read() as connection:
            shown = tables.streams.c.role.in_([buckets.BASE, queries.DERIVED])
            rows = connection.execute(STREAMS.where(shown).order_by(tables.streams.c.name)).all()
        return [state_from(row) for row in rows]

    def drop_stream(self, name: str) -> None:
        """Forget a stream and its rows. Refused while a query, subscription or view reads it."""
        with self.catalog.write() as connection:
            row = self._row(connection, name)
            readers = [f"query {name!r}" for name in register.readers_of(connection, name)]
            readers += [f"{p.kind} {p.name!r}" for p in positions.positions_of(connection, row.id) if p.kind != "query"]
            readers += [f"view {v.name!r}" for v in views.views_of(connection, row.id)]
            if readers:
                raise register.in_use(name, readers)
            register.delete_stream(connection, row.id, self.clock())

    def _row(self, connection: sa.Connection, name: str) -> Any:
        row = connection.execute(STREAMS.where(tables.streams.c.name == name)).first()
        if row is None:
            shown = sa.select(tables.streams.c.name).where(tables.streams.c.role.in_([buckets.BASE, queries.DERIVED]))
            known = connection.execute(shown.order_by(tables.streams.c.name)).scalars().all()
            raise AnabranchError(
                "UNKNOWN_STREAM",
                place=f"warehouse {self.root}",
                need=f"one of {', '.join(known)}" if known else "a stream; there is none yet",
                got=repr(name),
                next_step="Check the spelling, or create the stream.",
            )
        return row

    # Writing.

    def unit_of_work(self, stream: StreamState, **options: Any) -> UnitOfWork:
        """Begin a unit of work; see `UnitOfWork` for the options."""
        _require_base(stream)
        check_source(options.get("source"))
        run_id = options.get("run_id")
        if run_id is not None:
            options["run_id"] = check_run_id(run_id)
        return UnitOfWork(self, stream.id, stream.spec, **options)

    def layout(self, stream: StreamState, intent: Intent) -> SegmentLayout:
        """Where, and how, the segments of a stream are written under an intent."""
        directory = self.storage.directory(stream.id, intent.id)
        self.storage.make_directory(directory)
        key = stream.spec.key[0] if stream.spec.key else None
        return SegmentLayout(str(self.root), directory, stream.spec.event_time, key)

    def punctuate(
        self, stream: StreamState, time: int, source: str | None = None, run_id: RunId | None = None
    ) -> RunHeader:
        """Promise that nothing below `time` need be waited for: from a source, or at all."""
        _require_base(stream)
        check_source(source)
        low, high = stream.spec.bounds(self.clock())
        if not low <= time <= high:
            raise AnabranchError(
                "BAD_EVENT_TIME",
                place=f"punctuation of stream {stream.name!r}",
                need=f"a time from {instant_text(low)} to {instant_text(high)}",
                got=instant_text(time),
                next_step="Progress never goes back: check the time, or declare the stream with another ahead=.",
            )
        return self._commit_empty(stream, RunDraft(RunKind.PUNCTUATION, source=source, mark=time, run_id=run_id))

    def boundary(self, stream: StreamState, source: str | None = None) -> RunHeader:
        """Say that every run stamped below this boundary's stamp is in the log."""
        check_source(source)
        return self._commit_empty(stream, RunDraft(RunKind.BOUNDARY, source=source))

    def _commit_empty(self, stream: StreamState, draft: RunDraft) -> RunHeader:
        with self.catalog.write() as connection:
            return commit_run(connection, stream.id, draft, clock=self.clock())

    # Reading.

    def headers(
        self,
        stream: StreamState,
        *,
        first: int | None = None,
        last: int | None = None,
        newest: int | None = None,
        most: int | None = None,
    ) -> list[RunHeader]:
        """Headers in order of position: a range of them, its first few, or the newest few."""
        runs = tables.runs
        query = sa.select(runs).where(runs.c.stream_id == stream.id)
        if first is not None:
            query = query.where(runs.c.position >= first)
        if last is not None:
            query = query.where(runs.c.first_position <= last)
        query = query.order_by(runs.c.position.desc() if newest else runs.c.position)
        with self.catalog.read() as connection:
            rows = connection.execute(query.limit(newest or most) if newest or most else query).all()
        found = [header_from(row, stream.name) for row in (reversed(rows) if newest else rows)]
        if stream.spec.timeless:
            found = [replace(header, mark=None, progress=None, progress_before=None) for header in found]
        return found

    def plan(self, name: str, wanted: ReadRange) -> ReadPlan:
        """The segments that a read must open; references among them are checked."""
        with self.catalog.read() as connection:
            plan = plan_read(connection, self._row(connection, name), wanted, self.clock())
        for logged in plan.segments:
            if logged.segment.reference:
                verify(logged.segment, name)
        return plan

    def plan_panes(self, stream: StreamState, panes: Sequence[tuple[int, int]], **options: Any) -> list[LoggedSegment]:
        """The segments that can hold rows at some event times (`plan_times`); references among them are checked."""
        with self.catalog.read() as connection:
            found = plan_times(connection, self._row(connection, stream.name), panes, now=self.clock(), **options)
        self._references.check(found, stream.name)
        return found

    # Views and positions.

    def create_view(self, view: views.View) -> views.View:
        with self.catalog.write() as connection:
            views.save_view(connection, self._row(connection, view.stream).id, view)
        return view

    def view(self, name: str) -> views.View:
        with self.catalog.read() as connection:
            return views.find_view(connection, name)

    def views_of(self, stream: str) -> list[views.View]:
        with self.catalog.read() as connection:
            return views.views_of(connection, self._row(connection, stream).id)

    def drop_view(self, name: str) -> None:
        with self.catalog.write() as connection:
            views.drop_view(connection, name)

    def view_range(self, view: views.View) -> ReadRange:
        """What a view covers now."""
        stream = self.stream(view.stream)
        newest = stream.last_position if view.axis == views.POSITION else stream.event_max
        start, end = view.start.resolve(newest), view.end.resolve(newest)
        if view.axis == views.POSITION:
            return ReadRange(first_position=None if start is None else max(start, 1), last_position=end)
        return ReadRange(from_time=start, to_time=end)

    def hold(
        self, stream: StreamState, name: str, position: int, kind: str = "hold", ordinal: int | None = None
    ) -> None:
        """Keep what comes after a position from being removed, until it is moved or released."""
        with self.catalog.write() as connection:
            positions.set_position(connection, stream.id, name, position, kind, ordinal)

    def acknowledge(self, stream: StreamState, name: str, position: int, ordinal: int | None) -> None:
        """A subscription needs nothing up to a position any more, nor of the next one up to an ordinal."""
        with self.catalog.write() as connection:
            positions.acknowledge(connection, stream.id, name, position, ordinal)

    def release(self, stream: StreamState, name: str) -> bool:
        with self.catalog.write() as connection:
            return positions.drop_position(connection, stream.id, name)

    def positions_of(self, stream: StreamState) -> Sequence[positions.Position]:
        with self.catalog.read() as connection:
            return positions.positions_of(connection, stream.id)

    # Upkeep.

    def retain(self, stream: StreamState, *given: Any, **options: Any) -> retention.Retained:
        return retention.retain(self.catalog, stream.id, self.clock(), *given, **options)

    def collect_garbage(self, grace_us: int = gc.GRACE_US) -> gc.Collected:
        """Remove what nobody will refer to any more; of main also the branches that have ended."""
        return sum(self.upkeep.collect(grace_us), gc.Collected())

    def plan_compaction(self, stream: StreamState, **options: int) -> compaction.CompactionPlan:
        with self.catalog.read() as connection:
            return compaction.plan_compaction(connection, self._row(connection, stream.name), **options)

    def commit_compaction(
        self, plan: compaction.CompactionPlan, written: Sequence[Segment], intent_id: str | None
    ) -> None:
        now = self.clock()
        with self.catalog.write() as connection:
            compaction.commit_compaction(connection, plan, written, intent_id, now)

    def close(self, *, drop: bool = False) -> None:
        """End this process's intents and let the catalog go. A branch without a name ends, any other by `drop`."""
        if drop and self.branch is not None:
            self.branches.require_childless(self.branch)
        try:
            self._end_intents()
        finally:
            if self.branch is not None:
                self.catalog.close()
                if drop:
                    self.branches.drop(self.branch)
                elif self._shares and self.branch.name is None:
                    self.branches.leave(self.branch)
            if not self._shares:
                self.branches.close()
                self.branches.main.close()

    def _end_intents(self) -> None:
        try:
            self.intents.close()
        except AnabranchError as error:
            if error.id != "BRANCH_GONE":  # with the branch went its intents
                raise

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def _require_base(stream: StreamState) -> None:
    if stream.role != buckets.BASE:
        raise AnabranchError(
            "NOT_SUPPORTED",
            place=f"stream {stream.name!r}",
            need="a base stream, into which rows are appended",
            got="a query, which says its own rows",
            next_step="Append to the streams that the query reads.",
        )
