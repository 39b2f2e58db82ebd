"""Whatever the text, the front end reads it or says what is wrong with it."""

from __future__ import annotations

from itertools import pairwise

from hypothesis import example, given, settings
from hypothesis import strategies as st

from anabranch.diagram.boxes.source import Source
from anabranch.diagram.fluent import Flow
from anabranch.diagram.sql.compile import compile_query
from anabranch.diagram.sql.parse import parse
from anabranch.diagram.sql.source_text import SourceText
from anabranch.diagram.sql.statements import CreateQuery
from anabranch.diagram.sql.tokens import tokenize
from anabranch.model.errors import AnabranchError

WORDS = """
CREATE STREAM IF NOT EXISTS q AS SELECT FROM s WHERE GROUP BY HAVING UNION ALL DISTINCT ORDER LIMIT JOIN LEFT ON
ERROR NULL HALT ARCHIVE INTO REVISE EVERY BUCKETS EVENT TIME SLACK DRIFT KEY HISTORY ts INT TIMESTAMP CQTIME DROP
WHEN IDLE REVISION IGNORE old new
SHOW STREAMS DESCRIBE EXPLAIN WITH a b c count sum max cq_close cq_open collect_list FILTER OVER CASE WHEN THEN END
INTERVAL DAY SLICES VISIBLE ADVANCE ROWS AND OR NOT IN IS BETWEEN cast ROLLUP GROUPING SETS s.a map array
( ) ( ) [ ] < > , ; . * + - / = :: : -> => 1 2 0 1.5 1L 'x' `a` `b.c` "str" -- /* */ é 日 # $ @ ? {
"""
VOCABULARY = [*WORDS.split(), "'1 minute'", "'1 month'", "<SLICES '1 min'>", "count(*)", "cq_close(*)", "\n"]

texts = st.one_of(
    st.text(),
    st.text(alphabet="'\"`\\/*-;()[]<>.,:x1 \n\r\t\x00é日"),
    st.lists(st.sampled_from(VOCABULARY), max_size=40).map(" ".join),
    st.lists(st.sampled_from(VOCABULARY), max_size=40).map("".join),
)


def attempt(text: str) -> None:
    refused = None
    try:
        for statement in parse(text):
            assert statement.text in text
            if isinstance(statement, CreateQuery):
                assert compile_query(statement, lambda name: ("a", "b", "c", "ts")).box.columns
    except AnabranchError as error:
        refused = error
    assert refused is None or "^" in refused.place.splitlines()[-1]


@settings(max_examples=600, deadline=None)
@given(texts)
@example("(" * 3000)
@example("CREATE STREAM q AS " + "(" * 3000 + "SELECT")
@example("CREATE STREAM q AS SELECT " + "(" * 3000 + ")" * 3000 + " FROM s")
@example("CREATE STREAM q AS SELECT a FROM " + "(SELECT a FROM " * 400)
@example("CREATE STREAM s (ts TIMESTAMP) EVENT TIME ts SLACK '" + "9" * 400 + " s'")
@example("SELECT ${x} \\ '\\")
def test_any_text_is_read_or_refused(text: str) -> None:
    attempt(text)


@settings(max_examples=600, deadline=None)
@given(st.lists(st.sampled_from(VOCABULARY), max_size=25).map(" ".join), st.sampled_from(["GROUP BY a", "HAVING", ""]))
def test_any_query_is_compiled_or_refused(middle: str, tail: str) -> None:
    attempt(f"CREATE STREAM q AS SELECT {middle} FROM s {tail}")
    attempt(f"CREATE STREAM q AS SELECT count(*) c FROM s <SLICES '1 min'> {tail} {middle}")


@settings(max_examples=300, deadline=None)
@given(texts)
def test_any_expression_of_the_fluent_form_is_taken_or_refused(text: str) -> None:
    flow = Flow(Source("s", ("a", "b")), "s")
    for say in (flow.where, flow.select, flow.agg, flow.groupBy, flow.groupBy("a").agg("count(*) c").having):
        try:
            say(text)
        except AnabranchError:
            pass


@settings(max_examples=600, deadline=None)
@given(texts)
def test_tokens_are_in_order_and_cover_all_but_gaps(text: str) -> None:
    try:
        tokens = tokenize(SourceText(text))
    except AnabranchError:
        return
    assert all(text[token.start : token.end] == token.raw != "" for token in tokens)
    assert all(one.end <= two.start for one, two in pairwise(tokens))
