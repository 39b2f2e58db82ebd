"""Ablations of the law of revisions: with one part switched off, a part of it that we name must fail."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import anabranch as ab
from anabranch.engine import answers, counting, counts, pairs, reread
from anabranch.engine.relation import Relation
from tests.ablations.registry import Setting, without
from tests.laws.test_law_of_revisions import Chance, Story, at, failures

QUERIES = {
    "most": "SELECT g AS k, max(n) AS v FROM o <SLICES '10 minutes'> GROUP BY g",
    "beside": "SELECT a.id AS k, b.m AS v FROM o AS a LEFT JOIN e AS b ON a.id = b.id WITHIN '5 minutes'",
    "windows": "SELECT id AS k, sum(m) AS v FROM e <VISIBLE 2 ROWS ADVANCE 1 ROWS> GROUP BY id",
}


def tell(engine: ab.Engine, name: str) -> Story:
    """Rows that come late, are replaced, and go; one query looks on."""
    engine.sql("CREATE STREAM o (id INT, g INT, n INT, ts TIMESTAMP) EVENT TIME ts KEY (id)")
    engine.sql("CREATE STREAM e (id INT, m INT, ts TIMESTAMP) EVENT TIME ts")
    engine.sql(f"CREATE STREAM {name} AS {QUERIES[name]}")
    story, orders, events = Story(Chance(1)), engine.stream("o"), engine.stream("e")
    story.order(orders, [(1, 1, 5, at(1)), (2, 1, 9, at(2)), (3, 2, 4, at(25))])
    story.event(events, [(2, 7, at(3)), (2, 8, at(4)), (1, 1, at(30))])
    engine.advance()
    story.event(events, [(2, 3, at(3.5)), (1, 6, at(2))])  # late
    story.order(orders, [(1, 1, 6, at(1)), (4, 1, 1, at(40))], replace=True)
    engine.advance()
    story.delete(orders, [2])
    story.event(events, [(2, 1, at(41))])
    engine.advance()
    return story


def setting(name: str) -> Setting:
    """The story with one of the queries looking on."""

    def broken(place: Path, patch: pytest.MonkeyPatch, off: Any) -> set[str]:
        with ab.connect(place) as engine, patch.context() as part:
            if off is not None:
                off(part)
            return set(failures(engine, tell(engine, name), name))

    return Setting(f"revisions, {name}", broken, spark=True, proof=True)


MOST, BESIDE, WINDOWS = map(setting, QUERIES)


def resets_ignored(patch: pytest.MonkeyPatch) -> None:
    """What a deletion has ended still counts."""
    patch.setattr(answers, "counting", lambda rows, by: rows)


def old_rows_not_paired(patch: pytest.MonkeyPatch) -> None:
    """New rows on the right do not meet rows that were there on the left."""
    added = pairs.added

    def half(box: Any, sides: Any, guard: Any) -> Relation:
        left, right = sides.new
        none = replace(right, sql=f"SELECT * FROM {right.source} WHERE FALSE")
        return added(box, replace(sides, new=(left, none)), guard)

    patch.setattr(pairs, "added", half)


def partners_forgotten(patch: pytest.MonkeyPatch) -> None:
    """Left rows that were said alone are not taken back when a partner comes."""
    without = pairs.without_partner

    def only_new(*arguments: Any) -> Relation:
        rows = without(*arguments)
        return replace(rows, sql=f"SELECT * FROM {rows.source} WHERE _weight > 0")

    patch.setattr(pairs, "without_partner", only_new)


def anchors_miscounted(patch: pytest.MonkeyPatch) -> None:
    """Windows are numbered as if nothing came before what is read."""
    anchored = counts.anchored

    def without_base(*arguments: Any) -> Relation:
        rows = anchored(*arguments)
        names = [name for name in rows.carried if name != "_base"]
        return replace(rows, sql=f"SELECT {', '.join(names)}, 0L AS _base FROM {rows.source}")

    patch.setattr(counting.counts, "anchored", without_base)


def nothing_settled(patch: pytest.MonkeyPatch) -> None:
    """Rows are taken away and said again although they stay the same."""
    settled = reread.settled

    def twice(rows: Relation, *arguments: Any) -> Relation:
        others = [name for name in rows.names if name not in ("_weight", "_of")]
        chosen = ", ".join(f"`{name}`" for name in others)
        more = " ".join(
            f"UNION ALL SELECT {chosen}, {weight} AS _weight, {of}L AS _of FROM {rows.source}"
            for weight, of in ((1, 1), (-1, 2))
        )
        both = f"SELECT {chosen}, _weight, _of FROM {rows.source} {more}"
        return settled(replace(rows, sql=both), *arguments)

    patch.setattr(reread, "settled", twice)


ABLATIONS = (
    without(resets_ignored, MOST, "the table"),
    without(old_rows_not_paired, BESIDE, "the table", "the changes"),
    without(partners_forgotten, BESIDE, "the table"),
    without(anchors_miscounted, WINDOWS, "the table"),
    without(nothing_settled, BESIDE, "nothing taken away and given again"),
)
