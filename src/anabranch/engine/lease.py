"""Holding the engine's lease while it works: a thread renews it, whatever happens to the catalog meanwhile.

The lease belongs to this engine until another one takes it, which nobody can while it has not run out; and a
lease that has run out and that nobody took can still be renewed. So the keeper tries again after every error,
soon and then less often, and ends only when it is told to, or when another engine has taken over. Whether
the lease still holds is decided by each commit, never here.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

from anabranch.engine.retries import Backoff, Retries
from anabranch.log.leases import Lease, Leases
from anabranch.model.errors import AnabranchError

# A third of a lease is between two renewals, so an outage that ends before the lease does is noticed in time.
_WORK = ("lease", 0)
BACKOFF = Backoff(250_000, 5_000_000)


@contextmanager
def leased(leases: Leases, retries: Retries) -> Iterator[Lease]:
    """The lease, taken now, renewed as long as the block lasts, and given back."""
    lease = leases.acquire()
    stop = threading.Event()
    keeper = threading.Thread(target=keep, args=(leases, retries, lease, stop), name="anabranch-lease", daemon=True)
    keeper.start()
    try:
        yield lease
    finally:
        stop.set()
        keeper.join()
        leases.release(lease)


def keep(leases: Leases, retries: Retries, lease: Lease, stop: threading.Event) -> None:
    """Renew a lease until it is taken over or given back."""
    pause = regular = leases.lease_us // 3
    while not stop.wait(pause / 1_000_000):
        try:
            leases.renew(lease)
        except Exception as error:
            if isinstance(error, AnabranchError) and error.id in ("FENCED", "ENGINE_CLOSED"):
                break  # taken over, or at its end: the next commit fails by itself
            pause = retries.failed(_WORK, "renewing the engine's lease", error, BACKOFF)
        else:
            retries.succeeded(_WORK)
            pause = regular
    retries.forget(lambda work: work == _WORK)
