"""`anabranch sql`: statements, and their answers as tables or JSON."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager

import click
from rich.console import Console

from anabranch.api.engine import Engine, connect
from anabranch.cli.show import branch_option, console, count, json_option, table, warehouse_options, warn_of_halted
from anabranch.cli.texts import alone, read_text
from anabranch.cli.values import Answer, fetch, value_json, value_text
from anabranch.diagram.sql.parse import parse
from anabranch.diagram.sql.statements import (
    CreateBranch,
    CreateQuery,
    CreateStream,
    Describe,
    Drop,
    DropBranch,
    Explain,
    Resume,
    Snapshot,
    Statement,
)
from anabranch.model.errors import AnabranchError


@click.command()
@click.argument("text", required=False)
@click.option("-f", "--file", help="Read the statements from this file.")
@click.option(
    "--advance/--no-advance",
    default=False,
    help="Process what is waiting before each SELECT, so that it is part of the answer. By default, a SELECT "
    "tells what has been said so far and changes nothing.",
)
@click.option("-n", "--rows", default=50, show_default=True, type=click.IntRange(1), help="How many rows to show.")
@warehouse_options
@branch_option
@json_option
def sql(
    text: str | None, file: str | None, advance: bool, rows: int, warehouse: str, catalog: str | None,
    branch: str | None, as_json: bool,
) -> None:  # fmt: skip
    """Run SQL statements: TEXT, or those of a file.

    CREATE STREAM makes the warehouse if there is none. With --json, all rows of the last answer are printed as
    one array.
    """
    if (text is None) == (file is None):
        raise click.UsageError("Give the statements, or a file with -f, and not both.")
    statements = parse(read_text(file) if file else text or "", file or "sql")
    make = any(isinstance(s, CreateStream | CreateQuery) for s in statements)
    with connect(warehouse, catalog=catalog, create=make, branch=branch) as engine:
        runner = _Runner(engine, advance, None if as_json else rows)
        answers = [(s, a) for s in statements for a in runner.run(s, quiet=as_json)]
    if as_json:
        click.echo(json.dumps(_objects(answers[-1][1]) if answers else [], indent=2, ensure_ascii=False))


class _Runner:
    """Runs statements one after the other, and shows what each one did."""

    def __init__(self, engine: Engine, advance: bool, most: int | None) -> None:
        self.engine = engine
        self.advance = advance
        self.most = most
        self.out = console()

    def run(self, statement: Statement, *, quiet: bool) -> list[Answer]:
        there = {stream.name for stream in self.engine.streams()}
        with self._working(statement):
            if self.advance and isinstance(statement, Snapshot):
                self.engine.advance()
            name = statement.source.name
            frame = self.engine.sql(alone(statement), name=name)
            most = None if isinstance(statement, Explain) else self.most
            answers = [] if frame is None else [fetch(frame, name, most)]
        if isinstance(statement, Snapshot):
            warn_of_halted(self.engine.halted(), statement.names)
        if not quiet:
            for answer in answers:
                _print(self.out, statement, answer)
            _tell(self.out, statement, there)
        return answers

    @contextmanager
    def _working(self, statement: Statement) -> Iterator[None]:
        if isinstance(
            statement, CreateStream | Drop | Resume | CreateBranch | DropBranch
        ):  # needs no Spark, and no patience
            yield
            return
        with self.out.status("Spark is at work ..."):
            yield


def _tell(out: Console, statement: Statement, there: set[str]) -> None:
    """What a statement without an answer has done."""
    match statement:
        case CreateStream(name=name) | CreateQuery(name=name):
            done = "is there already." if name in there else "was created."
            out.print(f"Stream {name} {done}")
        case Drop(name=name):
            out.print(f"Stream {name} was dropped." if name in there else f"There is no stream {name}.")
        case CreateBranch(name=name):
            out.print(f"Branch {name} is there.")
        case DropBranch(name=name):
            out.print(f"Branch {name} is gone.")
        case Resume(name=name):
            out.print(f"Stream {name} goes on with the next step.")


def _print(out: Console, statement: Statement, answer: Answer) -> None:
    if isinstance(statement, Explain):  # a drawing, which a table would break
        for (line,) in answer.rows:
            out.print(line, markup=False, soft_wrap=True)
        return
    cell = _lines if isinstance(statement, Describe) else value_text
    cells = [[cell(value) for value in row] for row in answer.rows]
    title = f"{count(answer.total)} row{'' if answer.total == 1 else 's'}"
    out.print(table(title, answer.columns, cells, right=answer.numbers))
    more = answer.total - len(cells)
    if more:
        out.print(f"{count(more)} more not shown; --rows shows more, --json all.", style="dim")


def _lines(text: str) -> str:
    """A text as it was written: a query is easier to read on several lines."""
    return "\n".join(value_text(line) for line in text.splitlines())


def _objects(answer: Answer) -> list[dict[str, object]]:
    twice = sorted({name for name in answer.columns if answer.columns.count(name) > 1})
    if twice:
        raise AnabranchError(
            "BAD_ARGUMENT",
            place="--json",
            need="columns with different names, since each row becomes an object",
            got=f"{', '.join(twice)} more than once",
            next_step="Rename them with AS.",
        )
    return [{name: value_json(v) for name, v in zip(answer.columns, row, strict=True)} for row in answer.rows]
