"""Figs 7 and 8: which buckets are stable when, and what a new reader gets. Exact values."""

from __future__ import annotations

from anabranch.model.report import Claim, Report
from anabranch.protocol.dpc.buffers import OutputBuffer
from anabranch.protocol.dpc.items import Boundary, Chunk, Element, Insertion, Item, ItemId, Undo
from anabranch.protocol.dpc.messages import Subscribe
from anabranch.protocol.dpc.subscription import OutputStream
from anabranch.protocol.dpc.sunion import SUnion

BUCKET = 5
# The boundaries of the three streams that have come by t0 .. t3, and below what everything can be ordered then.
FIG_7 = {
    "t0": ((20, 20, 25), 20),
    "t1": ((25, 27, 25), 25),
    "t2": ((30, 27, 30), 27),
    "t3": ((30, 30, 30), 30),
}


def fig_7() -> Report:
    """Stability of buckets of 5 time units at an SUnion with three inputs."""
    report = Report("fig-7", {"bucket": BUCKET, "inputs": 3})
    whole, ordered = (SUnion(("s1", "s2", "s3"), BUCKET, ordered=ordered) for ordered in (False, True))
    for moment, (boundaries, paper) in FIG_7.items():
        for number, stime in enumerate(boundaries, 1):
            for sunion in (whole, ordered):
                sunion.boundary(f"s{number}", stime, 0)
        stable = paper - paper % BUCKET
        report.rows.append({
            "moment": moment, "boundaries": list(boundaries), "can be ordered below": ordered.stable_until,
            "stable buckets below": whole.stable_until,
        })  # fmt: skip
        report.claims += [
            Claim(f"{moment}: tuples below this can be ordered", paper, ordered.stable_until,
                  ordered.stable_until == paper),
            Claim(f"{moment}: buckets below this are stable", stable, whole.stable_until,
                  whole.stable_until == stable),
        ]  # fmt: skip
    return report


# What the readers of Fig. 8 say they have, and what they get, in the figure's letters.
FIG_8 = {
    "Node 2": ((2, False), "S3 S4"),
    "Node 2'": ((2, True), "U2 S3 S4"),
    "Node 2''": ((1, True), "U1 S2 S3 S4"),
}


def stream_of_fig_8() -> OutputStream:
    """Node 1, which has said the stable items 1 to 4."""
    stream = OutputStream("n1", OutputBuffer(()))
    stream.emit([Insertion(Chunk(0, n, (Item(n),))) for n in range(1, 5)])
    return stream


def letters(elements: list[Element]) -> str:
    """As the figure writes what a reader gets."""
    said = []
    for element in elements:
        match element:
            case Insertion(chunk):
                said += [f"S{item.stime}" for item in chunk.items]
            case Undo(last):
                said.append(f"U{last.ordinal}")
            case Boundary():
                pass
            case _:
                said.append(type(element).__name__)
    return " ".join(said)


def fig_8() -> Report:
    """What a stable node sends to new readers, by what they say they have."""
    report = Report("fig-8", {"stable items": 4})
    stream = stream_of_fig_8()
    for reader, ((last, tentative), paper) in FIG_8.items():
        ours = letters(stream.stabilise(Subscribe("n1", 1, ItemId(0, last), tentative, 0)))
        report.rows.append({"reader": reader, "last stable": last, "tentative followed": tentative, "gets": ours})
        report.claims.append(Claim(f"{reader} gets", paper, ours, ours == paper))
    return report
