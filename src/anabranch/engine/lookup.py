"""Lookup on Spark: new rows find what the table holds, rows that go take back what was found for them.

Every row that came has an item in the log of what was found, also if that was nothing. All copies of one row
that came in one bucket found the same, and a table's rows differ by their key; so an item is there as often
as there are copies. Of a row that goes, the copies that came first go first.
"""

from __future__ import annotations

from anabranch.diagram.boxes.lookup import Lookup
from anabranch.diagram.boxes.source import Source
from anabranch.diagram.reach import EVERYTHING
from anabranch.diagram.rewrites.lookup import plain
from anabranch.engine.join import matches
from anabranch.engine.kernel import Feed
from anabranch.engine.netting import present
from anabranch.engine.relation import Leaves, Relation, listed, quoted, told_apart
from anabranch.engine.reread import Rereading, good
from anabranch.log.reading import ReadPlan, ReadRange

_CARRIED = ("_event_time", "_hash", "_bucket", "_many")


class LookingUp(Rereading):
    """A Lookup in a step. Only the stream's rows say something."""

    @property
    def box(self) -> Lookup:
        assert isinstance(self.core, Lookup)
        return self.core

    def idle(self) -> bool:
        return not self.fresh(self.box.parts[0])

    def deltas(self, leaves: Leaves) -> tuple[Relation, list[Relation]]:
        left, right = self.box.parts
        came = self.new(leaves, left)
        table = self.every(leaves, right, EVERYTHING, self.asked(leaves, {0: came})[1])
        failing = [came] if self.guard.aside else []
        if self.guard.aside:
            came, table = good(came), good(table)
        net = self._net(came)
        copies = f"{self._found(net, table)} UNION ALL {self._said(leaves)}"
        return self.guard.begin(self._moved(net, copies)), failing

    @property
    def _names(self) -> tuple[list[str], list[str]]:
        """The names under which the columns of both sides are kept."""
        first = self.box.sides[0].name
        kept = plain(self.box)
        return [name for name, side, _ in kept if side == first], [name for name, side, _ in kept if side != first]

    def _net(self, rows: Relation) -> Relation:
        """What each bucket adds of a row, or takes away; and what tells rows apart."""
        content = listed(["_event_time", *rows.columns])
        summed = f"SELECT {content}, _bucket, SUM(_weight) AS _many FROM {rows.source} GROUP BY {content}, _bucket"
        hashed = f"XXHASH64({told_apart(['_event_time', *rows.columns])}) AS _hash"
        sql = f"SELECT *, {hashed} FROM ({summed}) WHERE _many <> 0"
        return Relation(sql, ("_event_time", "_bucket", "_many", "_hash"), rows.columns)

    def _found(self, came: Relation, table: Relation) -> str:
        """What the table holds for each row that came, at the end of its bucket."""
        l, r = (quoted(side.name) for side in self.box.sides)  # noqa: E741
        mine, its = self._names
        of_left = [f"{l}.{quoted(column)} AS {name}" for column, name in zip(came.columns, mine, strict=True)]
        of_right = [f"{r}.{quoted(column)} AS {name}" for column, name in zip(table.columns, its, strict=True)]
        carried = [f"{l}.{name}" for name in _CARRIED]
        there = f"(SELECT * FROM ({came.sql}) WHERE _many > 0) AS {l}"
        condition = f"{matches(self.box.pairs, self.guard)} AND {r}._bucket <= {l}._bucket"
        pairs = f"SELECT {', '.join([*carried, *of_left, *of_right])}, {r}._weight FROM {there} "
        pairs += f"JOIN ({table.sql}) AS {r} ON {condition}"
        by = listed([*_CARRIED, *mine, *its])
        found = f"SELECT {by}, TRUE AS matched FROM ({pairs}) GROUP BY {by} HAVING SUM(_weight) > 0"
        kinds = self.step.log.stream_by_id(self.query.stored.stream_id).spec.schema
        nothing = [f"CAST(NULL AS {kinds[name].type}) AS {name}" for name in its]
        alone = f"SELECT {', '.join([*carried, *of_left, *nothing])}, FALSE AS matched FROM {there} "
        alone += f"LEFT ANTI JOIN ({found}) AS f ON f._hash = {l}._hash AND f._bucket = {l}._bucket"
        return f"{found} UNION ALL {alone}"

    def _said(self, leaves: Leaves) -> str:
        """What was found before for rows at the event times of new ones, and is still said."""
        stream = self.step.log.stream_by_id(self.query.stored.stream_id)
        segments = tuple(self.step.log.plan_panes(stream, self.fresh(self.box.parts[0])))
        feed = Feed(ReadPlan(stream.spec, ReadRange(), segments), revisions=True, derived=True)
        rows = self.kernel.scan(leaves, Source(stream.name, ()), feed, together=True)
        mine, its = self._names
        net = present(rows.source, ["_event_time", "_of", "came", *mine, *its, "matched"], "_many")
        chosen = listed([*_CARRIED, *mine, *its, "matched"])
        return f"SELECT {chosen} FROM (SELECT *, _of AS _hash, came AS _bucket FROM ({net}))"

    def _moved(self, came: Relation, copies: str) -> Relation:
        """How often each item is there from moment to moment, as differences: copies that came first go first."""
        upto = "SUM(MAX(_many)) OVER (PARTITION BY _hash ORDER BY _bucket) AS _upto"
        places = f"SELECT _hash, _bucket, MAX(_many) AS _here, {upto} FROM ({copies}) GROUP BY _hash, _bucket"
        gone = ", ".join(
            f"SUM(IF(_bucket <= {moment.bucket}L, -_many, 0)) AS _d{n}" for n, moment in enumerate(self.moments)
        )
        went = f"SELECT _hash, {gone} FROM ({came.sql}) WHERE _many < 0 GROUP BY _hash"
        left = [
            f"IF(c._bucket <= {moment.bucket}L, LEAST(p._here, GREATEST(0L, p._upto - COALESCE(d._d{n}, 0L))), 0L)"
            for n, moment in enumerate(self.moments)
        ]
        steps = ", ".join(
            f"NAMED_STRUCT('_bucket', {moment.bucket}L, '_weight', {left[n + 1]} - {left[n]})"
            for n, moment in enumerate(self.moments[1:])
        )
        mine, its = self._names
        kept = ", ".join(f"c.{name}" for name in ["_event_time", "_hash", *mine, *its, "matched"])
        listing = f"INLINE(FILTER(ARRAY({steps}), s -> s._weight <> 0))"
        moved = (
            f"SELECT {kept}, c._bucket AS came, {listing} FROM ({copies}) AS c "
            f"JOIN ({places}) AS p ON c._hash = p._hash AND c._bucket = p._bucket "
            f"LEFT JOIN ({went}) AS d ON c._hash = d._hash"
        )
        carried = "_event_time, _hash AS _of, _bucket, _weight"
        sql = f"SELECT {carried}, {self._columns()}, matched AS _matched, came AS _came FROM ({moved})"
        return Relation(sql, ("_event_time", "_of", "_bucket", "_weight"), self.box.columns)

    def _columns(self) -> str:
        """The columns of a Join, from those that are kept."""
        made = []
        for side in self.box.sides:
            fields = ", ".join(f"{n} AS {quoted(c)}" for n, of, c in plain(self.box) if of == side.name)
            made.append(f"STRUCT({fields}) AS {quoted(side.name)}")
        kept = {(of, column): name for name, of, column in plain(self.box)}
        return ", ".join([*made, *(f"{kept[pair]} AS {quoted(pair[1])}" for pair in self.box.pairs.alone)])
