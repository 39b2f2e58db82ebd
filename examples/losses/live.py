"""Live queries over the reports, and the batch beside them.

A report replaces the one before it: the key is company, line and accident year. So the queries always answer from the
latest figures, and their feeds of changes keep what was believed before.
"""

import pandas as pd
from rich.console import Console
from rich.progress import track
from rich.table import Table
from rich.text import Text

import anabranch as ab
from examples.losses.feed import YEARS, reports

STREAM = """CREATE STREAM figures (company INT, line STRING, accident_year INT, incurred BIGINT, paid BIGINT,
    premium BIGINT, ts TIMESTAMP) EVENT TIME ts KEY (company, line, accident_year)"""

# The same text runs as a continuous query over the stream, and as a batch over the last report.
QUERIES = {
    "by_year": """SELECT line, accident_year, sum(incurred) AS incurred, sum(paid) AS paid,
        round(100 * sum(incurred) / sum(premium), 1) AS loss_ratio FROM {figures} GROUP BY line, accident_year""",
    "by_line": """SELECT line, count(*) AS figures, count_if(incurred > premium) AS in_the_red,
        round(100 * sum(paid) / sum(incurred), 1) AS paid_share,
        round(100 * sum(incurred) / sum(premium), 1) AS loss_ratio FROM {figures} GROUP BY line""",
}


def main(engine: ab.Engine, out: Console) -> None:
    engine.sql(STREAM)
    for name, query in QUERIES.items():
        engine.sql(f"CREATE STREAM {name} AS {query.format(figures='figures')}")
    last = replay(engine.stream("figures"), engine, out)
    for line in ("workers' compensation", "medical malpractice"):
        out.print(triangle(engine, line))
    out.print(lines(engine))
    for name, query in QUERIES.items():
        require_equal(engine, name, query, last)
    out.print(f"The live tables are what one batch over the reports of {YEARS[-1]} says.", style="green")


def replay(stream: ab.Stream, engine: ab.Engine, out: Console) -> pd.DataFrame:
    """A bucket for each year; the reports of the last one are given back."""
    for year, rows in track(list(reports()), "Ten years of reports", console=out, transient=True):
        stream.replace(rows, source=str(year))
        engine.advance()
    return rows


def triangle(engine: ab.Engine, line: str) -> Table:
    """What was believed of each accident year, year by year: the changes feed, laid out."""
    said = engine.changes("by_year").where("_change_type IN ('insert', 'update_postimage')")
    rows = said.select("_bucket", "line", "accident_year", "loss_ratio").collect()
    years = dict(zip(sorted({row._bucket for row in rows}), YEARS, strict=True))
    told = {(row.accident_year, years[row._bucket]): row.loss_ratio for row in rows if row.line == line}
    table = Table(*["", *(str(year) for year in YEARS)], title=f"Loss ratio of {line} (%), as told at the end of")
    for accident_year in YEARS:
        table.add_row(str(accident_year), *(_cell(told, accident_year, year) for year in YEARS))
    return table


def _cell(told: dict[tuple[int, int], float], accident_year: int, year: int) -> Text:
    """A ratio: as it was first told, corrected up or down, or dim where nothing changed."""
    known = [told[accident_year, y] for y in YEARS if y <= year and (accident_year, y) in told]
    if not known:
        return Text("")
    if (accident_year, year) not in told:
        return Text(f"{known[-1]}", style="dim")
    before = known[-2] if len(known) > 1 else known[-1]
    return Text(f"{known[-1]}", style="red" if known[-1] > before else "green" if known[-1] < before else "bold")


def lines(engine: ab.Engine) -> Table:
    table = Table("line", "figures", "in the red", "paid (%)", "loss ratio (%)", title="All accident years, now")
    for row in engine.table("by_line").orderBy("line").collect():
        table.add_row(*(str(value) for value in row))
    return table


def require_equal(engine: ab.Engine, name: str, query: str, last: pd.DataFrame) -> None:
    batch = engine.spark.sql(query, figures=engine.spark.createDataFrame(last))
    assert sorted(engine.table(name).collect()) == sorted(batch.collect()), f"{name} is not what the batch says"
