"""Where errors point: lines, columns and carets."""

from __future__ import annotations

import pytest

from anabranch.diagram.sql.fragment import Fragment
from anabranch.diagram.sql.parse import parse
from anabranch.diagram.sql.source_text import SourceText, did_you_mean
from anabranch.diagram.sql.tokens import Kind, tokenize
from anabranch.model.errors import AnabranchError


def test_a_place_shows_the_line_and_carets_under_the_span() -> None:
    text = "CREATE STREAM x AS\n    SELECT a\n    GROUP BY ROLLUP (campaign)\n"
    start = text.index("ROLLUP")
    assert SourceText(text, "app.sql").place(start, start + 6) == (
        "app.sql, line 3, column 14:\n"
        "    GROUP BY ROLLUP (campaign)\n"
        "             ^^^^^^"
    )  # fmt: skip


def test_an_error_with_carets_goes_on_below_them() -> None:
    error = SourceText("ab cd", "f").error(3, 5, need="x", got="y", next_step="Do z.")
    assert str(error) == "SYNTAX: f, line 1, column 4:\n    ab cd\n       ^^\nneed x; got y. Do z."


@pytest.mark.parametrize("end", ["\n", "\r\n", "\r"])
def test_line_ends_do_not_shift_carets(end: str) -> None:
    text = end.join(["one", "two", "three x four"])
    start = text.index("x")
    assert SourceText(text).place(start, start + 1) == "sql, line 3, column 7:\n    three x four\n          ^"


@pytest.mark.parametrize(
    ("before", "marks"),
    [("é ", "  "), ("日本 ", "     "), ("e\u0301 ", "  "), ("\ta ", "\t  "), ("😀 ", "   "), ("a\x00b ", "    ")],
)
def test_odd_letters_do_not_shift_carets(before: str, marks: str) -> None:
    text = f"{before.replace(chr(9), 'b' + chr(9))}here"
    start = text.index("here")
    place = SourceText(text).place(start, start + 4)
    lead = " " if "\t" in before else ""
    assert place.splitlines()[-1] == f"    {lead}{marks}^^^^"
    assert place.splitlines()[0] == f"sql, line 1, column {start + 1}:"


def test_a_span_over_lines_is_marked_to_the_end_of_its_first_line() -> None:
    assert SourceText("a bcd\nef").place(2, 8).splitlines()[1:] == ["    a bcd", "      ^^^"]


def test_the_end_of_a_text_has_a_place() -> None:
    assert SourceText("abc").place(3, 4).splitlines() == ["sql, line 1, column 4:", "    abc", "       ^"]
    assert SourceText("").place(0).splitlines() == ["sql, line 1, column 1:", "", "    ^"]


def test_a_long_line_is_cut_around_the_span() -> None:
    text = "a " * 200 + "here" + " b" * 200
    start = text.index("here")
    _, line, marks = SourceText(text).place(start, start + 4).splitlines()
    assert len(line) < 160
    assert line.startswith("    ... ")
    assert line.endswith(" ...")
    assert line[marks.index("^") : marks.rindex("^") + 1] == "here"


def test_a_part_keeps_the_places_of_the_file() -> None:
    part = SourceText("one;\n  two three", "f.sql").part(7, 16)
    assert part.text == "two three"
    assert part.place(4, 9) == "f.sql, line 2, column 7:\n    two three\n        ^^^^^"


def test_an_error_from_elsewhere_can_be_moved_into_the_text() -> None:
    error = AnabranchError("UNKNOWN_STREAM", place="stream 'b'", need="a stream", got="'b'", next_step="Create it.")
    moved = SourceText("a b").moved(error, 2, 3)
    assert moved.parts() == {**error.parts(), "place": "sql, line 1, column 3:\n    a b\n      ^"}


def test_close_words_are_suggested() -> None:
    assert did_you_mean("lices", ("SLICES", "VISIBLE")) == "Did you mean SLICES? "
    assert did_you_mean("zzz", ("SLICES", "VISIBLE")) == ""


def test_tokens_know_what_they_are_and_where() -> None:
    text = "SELECT `a``b`, 'x y' 1.5 1L -- c\n <=> /* d */ x::int"
    tokens = tokenize(SourceText(text))
    assert [(t.kind, t.raw) for t in tokens] == [
        (Kind.WORD, "SELECT"),
        (Kind.QUOTED, "`a``b`"),
        (Kind.SYMBOL, ","),
        (Kind.STRING, "'x y'"),
        (Kind.NUMBER, "1.5"),
        (Kind.NUMBER, "1L"),
        (Kind.SYMBOL, "<=>"),
        (Kind.WORD, "x"),
        (Kind.SYMBOL, "::"),
        (Kind.WORD, "int"),
    ]
    assert [t.value for t in tokens[1:4]] == ["a`b", ",", "x y"]
    assert all(text[t.start : t.end] == t.raw for t in tokens)


def test_words_stay_single_words() -> None:
    words = "GROUP BY ORDER   BY EXPLAIN a SHOW b CALL c user-defined"
    assert [t.raw for t in tokenize(SourceText(words))] == words.replace("-", " - ").split()


@pytest.mark.parametrize(
    ("text", "column", "what"),
    [
        ("SELECT 'abc", 8, "a string"),
        ('SELECT "abc', 8, "a string"),
        ("SELECT `abc", 8, "a quoted name"),
        ("SELECT a /* b", 10, "a comment"),
        ("SELECT 'é', 日本, 'x", 17, "a string"),
    ],
)
def test_what_is_never_closed_is_a_syntax_error(text: str, column: int, what: str) -> None:
    with pytest.raises(AnabranchError) as caught:
        parse(text)
    assert caught.value.id == "SYNTAX"
    assert caught.value.place.startswith(f"sql, line 1, column {column}:")
    assert what in caught.value.need


def test_bad_hexadecimal_bytes_are_a_syntax_error() -> None:
    with pytest.raises(AnabranchError, match="hexadecimal"):
        parse("SELECT X'zz'")


def test_a_fragment_squeezes_gaps_and_drops_comments() -> None:
    assert Fragment.of("count(  * ) -- all\n + 'a  b'", "f").squeezed == "count( * ) + 'a  b'"
