"""What the examples share: an engine in a temporary directory, and how tables and changes are printed."""

import tempfile
from collections.abc import Callable
from typing import Any

from pyspark.sql import DataFrame

import anabranch as ab


def play(main: Callable[[ab.Engine], None]) -> None:
    """Run an example by itself."""
    with tempfile.TemporaryDirectory() as place, ab.connect(place) as engine:
        main(engine)


def show(engine: ab.Engine, name: str) -> None:
    """Print what a query says now, and all that it has said."""
    table, changes = engine.table(name), engine.changes(name)
    print(f"{name}, now")
    for row in rows_of(table.orderBy(*table.columns)):
        print(f"  {text_of(row)}")
    print(f"{name}, change by change")
    for row in rows_of(changes.orderBy("_bucket", "_ordinal")):
        print(f"  bucket {row['_bucket']}  {row['_change_type']:16}  {text_of(row)}")


def rows_of(frame: DataFrame) -> list[dict[str, Any]]:
    """Rows by way of Arrow, so that timestamps stay in UTC."""
    rows: list[dict[str, Any]] = frame.toArrow().to_pylist()
    return rows


def text_of(row: dict[str, Any]) -> str:
    """The columns of a query as `name=value`; what begins with _ is the engine's."""
    shown = {name: f"{value:%H:%M}" if hasattr(value, "hour") else value for name, value in row.items()}
    return "  ".join(f"{name}={value}" for name, value in shown.items() if not name.startswith("_"))
