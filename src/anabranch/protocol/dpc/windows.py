"""How much a convergent-capable diagram must keep to correct the most recent results (DPC 8.1).

A user says how much of the recent past is to be corrected after a failure. To correct a result, its boxes need the
input that it depends on, which reaches back by their windows and bands; and so does every node upstream. Hence, from
the clients to the sources, each place keeps what its readers need, plus its own reach.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from anabranch.model.errors import AnabranchError


def windows(readers: Mapping[str, Sequence[str]], reach: Mapping[str, int | None], corrected: int) -> dict[str, int]:
    """For each node, how much stream time its input buffers hold, given who reads it and how far its boxes look back.

    A reach of None belongs to a diagram that remembers for ever.

    >>> windows({"a": ["b"], "b": []}, {"a": 5, "b": 10}, 60)
    {'a': 75, 'b': 70}
    """
    for node, back in reach.items():
        if back is None:
            raise AnabranchError(
                "NOT_SUPPORTED",
                place=f"buffers of node {node!r}",
                need="boxes that are convergent-capable, to compute a window",
                got="boxes that never forget",
                next_step="Give the buffers a limit instead: the node blocks when they are full.",
            )
    found: dict[str, int] = {}

    def needed(node: str) -> int:
        if node not in found:
            below = [needed(reader) for reader in readers[node]]
            found[node] = (reach[node] or 0) + max(below, default=corrected)
        return found[node]

    return {node: needed(node) for node in readers}
