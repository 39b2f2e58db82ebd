"""From text to statements."""

from __future__ import annotations

import pytest

from anabranch.diagram.query import OnError
from anabranch.diagram.sql.parse import parse
from anabranch.diagram.sql.statements import (
    CreateBranch,
    CreateQuery,
    CreateStream,
    Describe,
    Drop,
    Explain,
    ShowStreams,
    Snapshot,
    Statement,
)
from anabranch.model.errors import AnabranchError
from anabranch.model.stream import StreamSpec


def one(text: str) -> Statement:
    (statement,) = parse(text)
    return statement


def stream(text: str) -> CreateStream:
    statement = one(text)
    assert isinstance(statement, CreateStream)
    return statement


def query(text: str) -> CreateQuery:
    statement = one(text)
    assert isinstance(statement, CreateQuery)
    return statement


def refused(text: str) -> tuple[str, str, AnabranchError]:
    """The error's id, the text over its carets, and the error."""
    with pytest.raises(AnabranchError) as caught:
        parse(text, "app.sql")
    _, line, marks = caught.value.place.splitlines()
    return caught.value.id, line[marks.index("^") : marks.rindex("^") + 1], caught.value


def test_a_stream_with_everything() -> None:
    statement = stream(
        """CREATE STREAM IF NOT EXISTS impsns (user INT, campaign INT NOT NULL, price DECIMAL(10, 2),
        tags MAP<STRING, ARRAY<INT>>, `odd name` STRUCT<x: INT, y: STRING>, ts TIMESTAMP)
        EVENT TIME ts SLACK '10 seconds' DRIFT '1 minute' KEY (user, campaign) HISTORY '7 days'"""
    )
    assert statement.name == "impsns"
    assert statement.if_not_exists
    assert statement.columns == (
        ("user", "INT"),
        ("campaign", "INT NOT NULL"),
        ("price", "DECIMAL(10, 2)"),
        ("tags", "MAP<STRING, ARRAY<INT>>"),
        ("odd name", "STRUCT<x: INT, y: STRING>"),
        ("ts", "TIMESTAMP"),
    )
    assert (statement.event_time, statement.key) == ("ts", ("user", "campaign"))
    assert (statement.slack, statement.drift, statement.history) == ("10 seconds", "1 minute", "7 days")
    spec = StreamSpec.declare(
        statement.name, dict(statement.columns), event_time=statement.event_time, slack=statement.slack
    )
    assert spec.slack == 10_000_000


def test_clauses_come_in_any_order_and_case() -> None:
    statement = stream("create stream s(a int,ts timestamp)key a slack '1 s' event /* when */ time TS")
    assert (statement.event_time, statement.key, statement.slack) == ("ts", ("a",), "1 s")
    assert statement.drift is statement.history is None
    assert not statement.if_not_exists


@pytest.mark.parametrize(
    ("said", "meant"),
    [
        ("'10 seconds'", "10 seconds"),
        ('"10 seconds"', "10 seconds"),
        ("INTERVAL '10' SECONDS", "10 SECONDS"),
        ("INTERVAL '10 seconds'", "10 seconds"),
        ("INTERVAL 10 SECONDS", "10 SECONDS"),
        ("10 SECONDS", "10 SECONDS"),
        ("1 HOUR 30 MINUTES", "1 HOUR 30 MINUTES"),
        ("'0 seconds'", "0 seconds"),
    ],
)
def test_durations_have_several_spellings(said: str, meant: str) -> None:
    statement = stream(f"CREATE STREAM s (ts TIMESTAMP) EVENT TIME ts SLACK {said} HISTORY '1 day'")
    assert (statement.slack, statement.history) == (meant, "1 day")


def test_the_papers_marker_names_the_event_time() -> None:
    statement = stream("create stream s (a int, ts timestamp cqtime)")
    assert statement.event_time == "ts"
    assert statement.columns[1] == ("ts", "timestamp")


@pytest.mark.parametrize(
    ("text", "error", "at"),
    [
        ("CREATE STREAM s (ts TIMESTAMP)", "SYNTAX", ""),
        ("CREATE STREAM s (ts WIDGET) EVENT TIME ts", "BAD_SCHEMA", "WIDGET"),
        ("CREATE STREAM s (ts) EVENT TIME ts", "SYNTAX", ")"),
        ("CREATE STREAM s () EVENT TIME ts", "SYNTAX", ")"),
        ("CREATE STREAM s (a INT, A INT) EVENT TIME a", "SYNTAX", "A"),
        ("CREATE STREAM s (ts TIMESTAMP", "SYNTAX", ""),
        ("CREATE STREAM s (ts TIMESTAMP) EVENT TIME tt", "UNKNOWN_COLUMN", "tt"),
        ("CREATE STREAM s (ts TIMESTAMP) EVENT ts", "SYNTAX", "ts"),
        ("CREATE STREAM s (ts TIMESTAMP) EVENT TIME ts KEY (b)", "UNKNOWN_COLUMN", "b"),
        ("CREATE STREAM s (ts TIMESTAMP) EVENT TIME ts KEY ()", "SYNTAX", ")"),
        ("CREATE STREAM s (ts TIMESTAMP) EVENT TIME ts SLACK '1 month'", "BAD_DURATION", "'1 month'"),
        ("CREATE STREAM s (ts TIMESTAMP) EVENT TIME ts SLACK 1 YEAR", "BAD_DURATION", "1 YEAR"),
        (f"CREATE STREAM s (ts TIMESTAMP) EVENT TIME ts DRIFT '{'9' * 20} days'", "BAD_DURATION", f"'{'9' * 20} days'"),
        ("CREATE STREAM s (ts TIMESTAMP) EVENT TIME ts SLACK soon", "SYNTAX", "soon"),
        ("CREATE STREAM s (ts TIMESTAMP) EVENT TIME ts SLACK", "SYNTAX", ""),
        ("CREATE STREAM s (ts TIMESTAMP) EVENT TIME ts SLACK '1 s' SLACK '2 s'", "SYNTAX", "SLACK"),
        ("CREATE STREAM s (ts TIMESTAMP CQTIME) EVENT TIME ts", "SYNTAX", "ts"),
        ("CREATE STREAM s (ts TIMESTAMP CQTIME, t TIMESTAMP CQTIME)", "SYNTAX", "CQTIME"),
        ("CREATE STREAM s (ts TIMESTAMP) EVENT TIME ts PARTITIONED BY (a)", "SYNTAX", "PARTITIONED"),
        ("CREATE STREAM _s (ts TIMESTAMP) EVENT TIME ts", "BAD_NAME", "_s"),
        ("CREATE STREAM 's' (ts TIMESTAMP) EVENT TIME ts", "SYNTAX", "'s'"),
        ("CREATE STREAM s (SELECT a FROM b)", "SYNTAX", "("),
        ("CREATE STREAM s", "SYNTAX", ""),
        ("CREATE STREAM", "SYNTAX", ""),
    ],
)
def test_a_wrong_declaration_is_pointed_at(text: str, error: str, at: str) -> None:
    found, pointed, _ = refused(text)
    assert (found, pointed) == (error, at)


def test_close_words_are_suggested() -> None:
    _, _, error = refused("CREATE STREAM s (ts TIMESTAMP) EVENT TIME ts SLAK '1 s'")
    assert "Did you mean SLACK?" in error.next_step
    _, _, error = refused("CREATE STREM s AS SELECT 1 FROM b")
    assert "Did you mean STREAM?" in error.next_step
    _, _, error = refused("SELEC 1")
    assert "Did you mean SELECT?" in error.next_step
    _, _, error = refused("CREATE STREAM s AS SELECT a FROM b ON ERROR QUARANTIN")
    assert "Did you mean QUARANTINE?" in error.next_step


def test_a_query_with_every_clause_in_any_place() -> None:
    plain = "CREATE STREAM q AS SELECT a FROM s"
    for text in (
        f"{plain} ARCHIVE INTO t REVISE EVERY 3 BUCKETS ON ERROR NULL",
        f"{plain} ON ERROR null revise every 3 buckets archive into t",
        "CREATE STREAM q AS (SELECT a FROM s) ARCHIVE INTO t REVISE EVERY 3 BUCKETS ON ERROR NULL",
        "CREATE STREAM q AS (SELECT a FROM s ARCHIVE INTO t REVISE EVERY 3 BUCKETS) ON ERROR NULL",
        "CREATE STREAM q AS ((SELECT a FROM s) ARCHIVE INTO t REVISE EVERY 3 BUCKETS ON ERROR NULL)",
    ):
        statement = query(text)
        assert (statement.name, statement.archive, statement.revise_every) == ("q", "t", 3)
        assert statement.on_error is OnError.NULL
    assert (query(plain).archive, query(plain).revise_every, query(plain).on_error) == (None, 1, OnError.HALT)
    assert query("CREATE STREAM IF NOT EXISTS q AS SELECT a FROM s").if_not_exists


@pytest.mark.parametrize(
    ("tail", "at"),
    [
        ("ARCHIVE INTO t ARCHIVE INTO u", "ARCHIVE INTO"),
        ("ARCHIVE t", "t"),
        ("ARCHIVE INTO 't'", "'t'"),
        ("REVISE EVERY BUCKETS", "BUCKETS"),
        ("REVISE EVERY 0 BUCKETS", "0"),
        ("REVISE EVERY 1.5 BUCKETS", "1.5"),
        (f"REVISE EVERY {'9' * 5000} BUCKETS", None),
        ("REVISE EVERY 3 MINUTES", "MINUTES"),
        ("ON ERROR SKIP", "SKIP"),
        ("ON ERROR HALT UNION ALL SELECT a FROM s", "UNION"),
        (") ARCHIVE INTO t", ")"),
    ],
)
def test_wrong_clauses_after_a_query_are_pointed_at(tail: str, at: str | None) -> None:
    found, pointed, _ = refused(f"CREATE STREAM q AS SELECT a FROM s {tail}")
    assert found == "SYNTAX"
    assert at is None or pointed == at


def test_the_short_statements() -> None:
    assert isinstance(one("show streams"), ShowStreams)
    drop = one("DROP STREAM IF EXISTS a")
    assert isinstance(drop, Drop)
    assert (drop.name, drop.if_exists) == ("a", True)
    drop = one("drop stream `a`")
    assert isinstance(drop, Drop)
    assert (drop.name, drop.if_exists) == ("a", False)
    for text, name in (("DESCRIBE a", "a"), ("DESC STREAM a", "a"), ("describe stream", "stream")):
        described = one(text)
        assert isinstance(described, Describe)
        assert described.name == name


def test_explain_takes_a_query_or_a_name() -> None:
    named = one("EXPLAIN a")
    assert isinstance(named, Explain)
    assert named.what == "a"
    asked = one("EXPLAIN\nCREATE STREAM q AS SELECT a FROM s")
    assert isinstance(asked, Explain)
    assert isinstance(asked.what, CreateQuery)
    assert asked.what.text == "CREATE STREAM q AS SELECT a FROM s"
    assert asked.what.source.line == 2


def test_questions_are_left_to_spark() -> None:
    for text in (
        "SELECT a, `B c` FROM s WHERE x = 'not_a_name' -- nor_this\n ORDER BY 1 LIMIT 3",
        "WITH t AS (SELECT a FROM s) SELECT * FROM t",
        "VALUES (1)",
        "FROM s |> WHERE a > 1",
        "TABLE s",
        "(SELECT a FROM s)",
    ):
        snapshot = one(f"/* first */ {text} ;")
        assert isinstance(snapshot, Snapshot)
        assert snapshot.text == text
        assert "not_a_name" not in snapshot.names
        assert "nor_this" not in snapshot.names
    snapshot = one('SELECT a, `B c` FROM S JOIN t USING (k) WHERE "str" < v:a.b::int')
    assert isinstance(snapshot, Snapshot)
    assert {"a", "b c", "s", "t", "k"} <= snapshot.names
    assert "str" not in snapshot.names


def test_statements_know_their_own_text_and_place() -> None:
    text = "-- head\n SHOW STREAMS ; ;\n\n  DROP STREAM a /* tail */ ; SELECT ';' ; -- end"
    shown, drop, snapshot = parse(text, "app.sql")
    assert [s.text for s in (shown, drop, snapshot)] == ["SHOW STREAMS", "DROP STREAM a", "SELECT ';'"]
    assert [(s.source.line, s.source.column) for s in (shown, drop, snapshot)] == [(2, 2), (4, 3), (4, 30)]
    assert parse("") == parse(" ; -- nothing\n;") == ()


def test_errors_have_the_lines_of_the_whole_file() -> None:
    _, _, error = refused("SHOW STREAMS;\n\n  SHOW\n    STREETS;")
    assert error.place == "app.sql, line 4, column 5:\n    STREETS\n    ^^^^^^^"


@pytest.mark.parametrize(
    ("text", "at"),
    [
        ("INSERT INTO s VALUES (1)", "INSERT"),
        ("UPDATE s SET a = 1", "UPDATE"),
        ("DELETE FROM s", "DELETE"),
        ("CREATE TABLE t (a INT)", "("),
        ("CREATE OR REPLACE STREAM t (a INT)", "OR"),
        ("DROP VIEW t", "VIEW"),
        ("DROP STREAM a b", "b"),
        ("DROP STREAM a.b", "."),
        ("DROP STREAM", ""),
        ("SHOW TABLES", "TABLES"),
        ("DESCRIBE", ""),
        ("DESCRIBE a b", "b"),
        ("EXPLAIN SELECT 1", "SELECT"),
        ("EXPLAIN CREATE STREAM s (ts TIMESTAMP) EVENT TIME ts", "CREATE"),
        ("EXPLAIN a b", "b"),
        ("'text'", "'text'"),
        ("5", "5"),
        (")", ")"),
        ("SELECT count(*) FROM s <SLICES '1 minute'>", "<"),
        ("SELECT cq_close(*) FROM s", "cq_close"),
    ],
)
def test_other_statements_are_refused(text: str, at: str) -> None:
    found, pointed, error = refused(text)
    assert (found, pointed) == ("SYNTAX", at)
    assert error.next_step


def test_what_is_no_text_is_refused() -> None:
    with pytest.raises(AnabranchError) as caught:
        parse(b"SELECT 1")  # type: ignore[arg-type]
    assert caught.value.id == "BAD_ARGUMENT"


@pytest.mark.parametrize(
    ("text", "past", "expires"),
    [
        ("CREATE BRANCH b", None, None),
        ("CREATE BRANCH b AT 12", 12, None),
        ("CREATE BRANCH b AT '2026-01-01T00:00:00Z' EXPIRES '1 day'", "2026-01-01T00:00:00Z", "1 day"),
        (
            "CREATE BRANCH b EXPIRES '1 day' AT TIMESTAMP '2026-01-01T00:00:00+01:00'",
            "2026-01-01T00:00:00+01:00",
            "1 day",
        ),
    ],
)
def test_branches_of_the_past(text: str, past: int | str | None, expires: str | None) -> None:
    (statement,) = parse(text)
    assert isinstance(statement, CreateBranch)
    assert (statement.past, statement.expires) == (past, expires)


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("CREATE BRANCH b AT", "SYNTAX"),
        ("CREATE BRANCH b AT 1.5", "SYNTAX"),
        ("CREATE BRANCH b AT 'yesterday'", "BAD_TIME"),
        ("CREATE BRANCH b AT '2026-01-01 00:00:00'", "TIME_ZONE"),
        ("CREATE BRANCH b AT 1 AT 2", "SYNTAX"),
    ],
)
def test_no_branches_of_no_past(text: str, error: str) -> None:
    with pytest.raises(AnabranchError) as caught:
        parse(text)
    assert caught.value.id == error
    assert "^" in str(caught.value)
