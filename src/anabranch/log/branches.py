"""The register of branches: one for a warehouse, in the catalog of main, also for branches of branches.

A row is there before a branch's catalog is made and until its files are gone, and holds what the branch may
read (see `fork_order`). A branch is *forking* until it can be used, then *live*, and in the end *ended*: nobody
can open it any more, and what it has is removed, first all the rest and then its row. So whatever is killed
when, the next collection finds what is left, and does the rest.

An unnamed branch ends with its process, which renews its lease; one whose process was killed, or was silent for a
whole lease, lapses. So does one that was being made. A named one stays until it is dropped or expires. One that has
ended while it has branches of its own stays held until they are gone, since they may read its files.
"""

from __future__ import annotations

import threading
import uuid
from dataclasses import asdict, dataclass
from typing import Any

import sqlalchemy as sa

from anabranch.log import tables
from anabranch.log.catalog import SQLITE_FILE, Catalog, gone
from anabranch.log.clock import Clock
from anabranch.log.fork_order import order_of, raise_order
from anabranch.log.intents import LEASE_US, is_dead, this_process
from anabranch.log.storage import home_of, remove_home
from anabranch.model.errors import AnabranchError

FORKING, LIVE, ENDED = "forking", "live", "ended"
_TABLE = tables.branches


@dataclass(frozen=True)
class Branch:
    """A branch as the register has it. `parent` is the generation of what it was forked from; None is main."""

    generation: str
    name: str | None
    parent: str | None
    fork_order: int
    schema_name: str | None  # where its catalog is on PostgreSQL; None: a file below its own directory
    state: str
    holder: str
    lease_until: int | None
    expires_at: int | None
    made_at: int

    @property
    def label(self) -> str:
        return label_of(self.name, self.generation)

    def catalog(self, main: Catalog) -> Catalog:
        """Its own catalog, which need not be there yet."""
        if self.schema_name is None:
            place = main.root / home_of(self.generation) / SQLITE_FILE
            url = sa.URL.create("sqlite", database=str(place))
        else:
            options = main.url.query.get("options", "")
            earlier = options if isinstance(options, str) else " ".join(options)
            url = main.url.update_query_dict({"options": f"{earlier} -csearch_path={self.schema_name}".strip()})
        # What ends with its process need not outlive a power cut.
        return Catalog(main.root, url, branch=self.label, durable=self.name is not None)


def label_of(name: str | None, generation: str) -> str:
    return repr(name) if name is not None else f"unnamed, of generation {generation[:8]}"


class Branches:
    """The register of one warehouse, and the branches that this process holds, renewed by one thread."""

    def __init__(self, main: Catalog, clock: Clock, lease_us: int = LEASE_US) -> None:
        self.main = main
        self.clock = clock
        self.lease_us = lease_us
        self._held: set[str] = set()
        self._lock = threading.Lock()
        self._stop = threading.Event()
        self._keeper: threading.Thread | None = None

    # Looking.

    def all(self) -> list[Branch]:
        """The branches that can be opened, in the order in which they were forked."""
        now = self.clock()
        with self.main.read() as connection:
            rows = connection.execute(sa.select(_TABLE).where(_TABLE.c.state == LIVE).order_by(_TABLE.c.fork_order))
            return [branch for branch in map(_branch, rows) if not _is_over(branch, now)]

    def there(self, name: str) -> bool:
        return any(branch.name is not None and branch.name.lower() == name.lower() for branch in self.all())

    def find(self, name: str) -> Branch:
        """A branch by its name, in whatever case, or one without a name by its generation."""
        known = self.all()
        for branch in known:
            if name in (branch.name, branch.generation) or (branch.name or "").lower() == name.lower():
                return branch
        names = ", ".join(branch.name for branch in known if branch.name is not None)
        raise AnabranchError(
            "UNKNOWN_BRANCH",
            place=f"warehouse {self.main.root}",
            need=f"one of {names}" if names else "a branch; there is none with a name",
            got=repr(name),
            next_step="Check the spelling, or create the branch.",
        )

    def held_from(self, own: Catalog, generation: str | None) -> int:
        """The order from which on what main, or a branch, has released is held, by those that were forked from it."""
        # The count first: a fork that it tells of is in the register, and will be seen there.
        with own.read() as connection:
            upto = order_of(connection)
        with self.main.read() as connection:
            mine = _TABLE.c.parent.is_(None) if generation is None else _TABLE.c.parent == generation
            first = connection.execute(sa.select(sa.func.min(_TABLE.c.fork_order)).where(mine)).scalar()
        return upto + 1 if first is None else min(upto + 1, int(first))

    # Making.

    def begin(self, parent: str | None, name: str | None, lifetime_us: int | None, *, schema: bool) -> Branch:
        """Register a branch that is about to be made: from here on it holds what it will refer to."""
        now, generation = self.clock(), uuid.uuid4().hex
        with self.main.write() as connection:
            if name is not None:
                _require_free(connection, name, now)
            if parent is not None:
                _require_live(connection, parent)
            branch = Branch(
                generation, name, parent, raise_order(connection), f"branch_{generation}" if schema else None,
                FORKING, this_process(), now + self.lease_us, None if lifetime_us is None else now + lifetime_us, now,
            )  # fmt: skip
            connection.execute(_TABLE.insert(), asdict(branch))
        with self._lock:
            self._held.add(generation)
            self._start_keeper()
        return branch

    def publish(self, branch: Branch) -> Branch:
        """From here on it can be opened. One with a name needs its process no longer."""
        lease = None if branch.name is not None else self.clock() + self.lease_us
        here = (_TABLE.c.generation == branch.generation) & (_TABLE.c.state == FORKING)
        with self.main.write() as connection:
            found = connection.execute(
                _TABLE.update().where(here).values(state=LIVE, lease_until=lease).returning(_TABLE)
            )
            row = found.first()
        if row is None:
            raise gone(branch.label)
        if branch.name is not None:
            self._let_go(branch.generation)
        return _branch(row)

    # Ending.

    def drop(self, branch: Branch) -> None:
        """End a branch and remove what it has; an error if there are branches of it."""
        with self.main.write() as connection:
            _require_childless(connection, branch)
            _end(connection, branch.generation)
        self._let_go(branch.generation)
        self._remove_ended(branch.generation)

    def require_childless(self, branch: Branch) -> None:
        """An error if there are branches of a branch."""
        with self.main.read() as connection:
            _require_childless(connection, branch)

    def leave(self, branch: Branch) -> None:
        """This process needs an unnamed branch no longer. It goes at once, or with the last branch of it."""
        with self.main.write() as connection:
            _end(connection, branch.generation)
        self._let_go(branch.generation)
        self._remove_ended(branch.generation)

    def collect(self) -> tuple[str, ...]:
        """Remove the branches that have lapsed, expired or ended; their names, or generations."""
        now = self.clock()
        with self.main.write() as connection:
            for row in connection.execute(sa.select(_TABLE).where(_TABLE.c.state != ENDED)).all():
                if _is_over(_branch(row), now):
                    _end(connection, row.generation)
        removed: list[str] = []
        while fresh := self._remove_ended():
            removed += fresh  # what they were forked from may be free now
        return tuple(removed)

    def _remove_ended(self, generation: str | None = None) -> list[str]:
        """Remove what has ended and has no branches: its files and its schema first, its row last."""
        others = _TABLE.alias()
        childless = ~sa.exists().where(others.c.parent == _TABLE.c.generation)
        wanted = sa.select(_TABLE).where(_TABLE.c.state == ENDED, childless)
        if generation is not None:
            wanted = wanted.where(_TABLE.c.generation == generation)
        with self.main.read() as connection:
            ended = connection.execute(wanted.order_by(_TABLE.c.fork_order)).all()
        for row in ended:
            if row.schema_name is not None:
                with self.main.write() as connection:
                    connection.exec_driver_sql(f'DROP SCHEMA IF EXISTS "{row.schema_name}" CASCADE')
            remove_home(self.main.root, row.generation)
            with self.main.write() as connection:
                connection.execute(_TABLE.delete().where(_TABLE.c.generation == row.generation))
        return [row.generation for row in ended]

    # Holding.

    def renew(self) -> None:
        """Extend the leases of what this process holds. The keeper calls this; tests may too."""
        with self._lock:
            held = sorted(self._held)
        if held:
            until = self.clock() + self.lease_us
            here = _TABLE.c.generation.in_(held) & (_TABLE.c.state != ENDED) & _TABLE.c.lease_until.is_not(None)
            with self.main.write() as connection:
                connection.execute(_TABLE.update().where(here).values(lease_until=until))

    def close(self) -> None:
        """End what this process holds still."""
        self._stop.set()
        with self._lock:
            keeper, self._keeper = self._keeper, None
            held, self._held = self._held, set()
        if keeper is not None:
            keeper.join()
        if held:
            with self.main.write() as connection:
                for generation in held:
                    _end(connection, generation)
            while self._remove_ended():
                pass

    def _let_go(self, generation: str) -> None:
        with self._lock:
            self._held.discard(generation)

    def _start_keeper(self) -> None:
        if self._keeper is None:
            self._stop.clear()
            self._keeper = threading.Thread(target=self._keep, name="anabranch-branches", daemon=True)
            self._keeper.start()

    def _keep(self) -> None:
        while not self._stop.wait(self.lease_us / 3_000_000):
            try:
                self.renew()
            except Exception:
                continue  # the catalog is out of reach for now: if it stays so for a whole lease, they lapse


def _branch(row: Any) -> Branch:
    return Branch(**row._asdict())


def _is_over(branch: Branch, now: int) -> bool:
    """Whether a branch has lapsed with its process, or has expired."""
    if branch.expires_at is not None and branch.expires_at <= now:
        return True
    return branch.lease_until is not None and (branch.lease_until <= now or is_dead(branch.holder))


def _end(connection: sa.Connection, generation: str) -> None:
    here = _TABLE.c.generation == generation
    connection.execute(_TABLE.update().where(here).values(state=ENDED, name=None, lease_until=None, expires_at=None))


def _require_childless(connection: sa.Connection, branch: Branch) -> None:
    there = (_TABLE.c.parent == branch.generation) & (_TABLE.c.state != ENDED)
    rows = connection.execute(sa.select(_TABLE).where(there).order_by(_TABLE.c.fork_order)).all()
    if rows:
        children = ", ".join(label_of(row.name, row.generation) for row in rows)
        raise AnabranchError(
            "BRANCH_IN_USE",
            place=f"branch {branch.label}",
            need="a branch of which there are no others",
            got=f"one with branches of its own: {children}",
            next_step="Drop those first.",
        )


def _require_free(connection: sa.Connection, name: str, now: int) -> None:
    row = connection.execute(sa.select(_TABLE).where(sa.func.lower(_TABLE.c.name) == name.lower())).first()
    if row is None:
        return
    if _is_over(_branch(row), now):
        _end(connection, row.generation)  # the next collection removes what it has
        return
    raise AnabranchError(
        "BRANCH_EXISTS",
        place=f"branch {name!r}",
        need="a name that no other branch has",
        got="the name of one that is there" if row.state == LIVE else f"the name of one that {row.holder} is making",
        next_step="Choose another name, or drop the other one first.",
    )


def _require_live(connection: sa.Connection, generation: str) -> None:
    row = connection.execute(sa.select(_TABLE).where(_TABLE.c.generation == generation)).first()
    if row is None or row.state != LIVE:
        raise gone(label_of(None, generation))


def belongs_to_main(branch: Branch, what: str) -> AnabranchError:
    return AnabranchError(
        "ON_BRANCH",
        place=f"branch {branch.label}",
        need="main",
        got=what,
        next_step="Ask for it on main; on a branch, append rows and read tables and changes.",
    )
