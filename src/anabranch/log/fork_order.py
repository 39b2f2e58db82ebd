"""In which order branches are forked and files are released.

A branch is a copy of a catalog, so it refers to the files to which that referred. A file that is released
afterwards may still be read there; one that was released before cannot be. What came first is told by a
count of forks, never by a clock. A fork raises the count in a write transaction of the catalog that it copies,
and copies only then; whatever is released is noted with the count of its own transaction. Both rise in the
order of commits. So a file that was released at order r may be read by the branches forked at r or before, and by
no other: it stays until those are gone.
"""

from __future__ import annotations

import sqlalchemy as sa

from anabranch.log import tables

_COUNT = sa.select(tables.warehouse.c.fork_order)

# Give a file to the collector: with parameters `path` and `released_at`, the order is filled in.
RELEASE = tables.garbage.insert().values(released_order=_COUNT.scalar_subquery())


def raise_order(connection: sa.Connection) -> int:
    """Inside a write transaction of main: the order of a new fork."""
    warehouse = tables.warehouse
    connection.execute(warehouse.update().values(fork_order=warehouse.c.fork_order + 1))
    return order_of(connection)


def follow_order(connection: sa.Connection, order: int) -> None:
    """Inside a write transaction of a branch that is forked itself: what is released from now on comes after."""
    warehouse = tables.warehouse
    connection.execute(warehouse.update().where(warehouse.c.fork_order < order).values(fork_order=order))


def order_of(connection: sa.Connection) -> int:
    """The count of forks of a catalog."""
    return int(connection.execute(_COUNT).scalar_one())
