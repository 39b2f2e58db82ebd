"""Live queries over what is known of the flights, and the batch beside them.

Each fact revises the one before: a plan is inserted, its departure and its arrival replace it by key, a cancellation
deletes it. An hour is answered when it is over, with flights still in the air, and corrected as they land.
"""

import pandas as pd
import pyarrow as pa
from pyspark.sql import DataFrame
from rich.console import Console
from rich.table import Table

import anabranch as ab
from examples.flights.feed import LEAD, Feed, News, airlines

LATE = 15  # minutes
# Plans run ahead of the clock by their lead. With that as slack, progress is about the time of day.
STREAMS = f"""
    CREATE STREAM flights (carrier STRING, flight INT, scheduled TIMESTAMP, origin STRING, dest STRING,
        dep_delay INT, arr_delay INT)
    EVENT TIME scheduled SLACK '{LEAD // pd.Timedelta(hours=1)} hours' KEY (carrier, flight, scheduled);

    CREATE STREAM weather (origin STRING, hour TIMESTAMP, visib DOUBLE, precip DOUBLE) EVENT TIME hour;
"""
QUERIES = {
    "hours": f"""SELECT carrier, cq_open(*) AS hour, count(*) AS flights, count(dep_delay) AS left,
        count(arr_delay) AS landed, count_if(arr_delay > {LATE}) AS late, sum(arr_delay) AS minutes
        FROM {{flights}} <SLICES '1 hour'> GROUP BY carrier""",
    "airports": f"""SELECT origin, count(*) AS flights, count(dep_delay) AS left,
        count_if(dep_delay > {LATE}) AS late, round(avg(dep_delay), 1) AS minutes FROM {{flights}} GROUP BY origin""",
    "skies": f"""SELECT sky, count(*) AS flights, count_if(dep_delay > {LATE}) AS late,
        round(avg(dep_delay), 1) AS minutes
        FROM (
            SELECT f.dep_delay,
                CASE WHEN w.precip > 0 THEN 'rain or snow' WHEN w.visib < 5 THEN 'mist' ELSE 'dry' END AS sky
            FROM {{flights}} f JOIN {{weather}} w
            ON f.origin = w.origin AND date_trunc('HOUR', f.scheduled) = w.hour WITHIN '1 hour'
        ) GROUP BY sky""",
}
# The same in the words of a batch: an hour is a group, and the condition of the join says already what the band says.
BATCH = {
    "cq_open(*)": "date_trunc('HOUR', scheduled)",
    "<SLICES '1 hour'> GROUP BY carrier": "GROUP BY carrier, date_trunc('HOUR', scheduled)",
    "WITHIN '1 hour'": "",
}


def main(engine: ab.Engine, out: Console, feed: Feed, step: pd.Timedelta) -> None:
    engine.sql(STREAMS)
    for name, query in QUERIES.items():
        engine.sql(f"CREATE STREAM {name} AS {query.format(flights='flights', weather='weather')}")
    for news in feed.news(step):
        with out.status(f"{news.until:%b %d %H:%M} ..."):
            tell(engine, news)
            now = known(engine)
        out.print(f"{news.until:%b %d %H:%M}  {now}")
    out.print(one_hour(engine), summary(engine, "airports", "origin"), summary(engine, "skies", "sky"))
    out.print(by_airline(engine))
    for name in QUERIES:
        require_equal(engine, name, feed)
    out.print("The live tables are what one batch over the final rows says.", style="green")


def tell(engine: ab.Engine, news: News) -> None:
    """All that became known in a step of the clock: one unit of work, one bucket."""
    flights, weather = engine.stream("flights"), engine.stream("weather")
    with flights.unit_of_work() as work:
        work.append(news.plans)
        work.replace(news.departures)
        work.replace(news.arrivals)
        work.delete(news.cancelled)
    weather.append(news.weather)
    flights.punctuate(news.until)  # the hours until now are to be answered now
    engine.advance()


def known(engine: ab.Engine) -> str:
    """What the live table says at this moment. Where flights are cancelled, there are fewer than before."""
    asked = engine.sql("SELECT sum(flights) AS flights, sum(left) AS left, sum(late) AS late FROM airports")
    assert asked is not None
    flights, left, late = (value or 0 for value in asked.collect()[0])
    share = f", {late / left:.0%} of them late" if left else ""
    return f"{flights:6,} flights are known, {left:6,} have left{share}"


def one_hour(engine: ab.Engine) -> Table:
    """The answer that was corrected most often, as it changed."""
    said = engine.changes("hours").where("_change_type <> 'update_preimage'").orderBy("_bucket", "_ordinal")
    rows = pd.DataFrame(said.toArrow().to_pylist())
    carrier, hour = rows.groupby(["carrier", "hour"]).size().idxmax()
    title = f"{airlines()[carrier]}, flights scheduled from {hour:%H:%M} UTC of {hour:%B} {hour.day}"
    table = Table("said", "flights", "left", "landed", "late", "average (min)", title=title)
    for row in rows[rows["carrier"].eq(carrier) & rows["hour"].eq(hour)].to_dict("records"):
        average = f"{row['minutes'] / row['landed']:.1f}" if row["landed"] else ""
        counts = (str(row[name]) for name in ("flights", "left", "landed", "late"))
        table.add_row(row["_change_type"], *counts, average)
    return table


def summary(engine: ab.Engine, name: str, column: str) -> Table:
    table = Table(column, "flights", f"late by {LATE} min", "share", "average (min)")
    for row in engine.table(name).orderBy(column).collect():
        table.add_row(row[column], str(row.flights), str(row.late), f"{row.late / row.flights:.0%}", str(row.minutes))
    return table


def by_airline(engine: ab.Engine) -> Table:
    """Another query over the table, as anybody may ask: plain Spark SQL."""
    answer = engine.sql("""SELECT carrier, sum(flights) AS flights, sum(late) AS late,
        sum(minutes) / sum(landed) AS minutes
        FROM hours GROUP BY carrier HAVING sum(landed) > 0 ORDER BY minutes DESC""")
    assert answer is not None
    names = airlines()
    table = Table("airline", "flights", f"late by {LATE} min", "share", "average (min)", title="Arrivals")
    for row in answer.collect():
        share = f"{row.late / row.flights:.0%}"
        table.add_row(names[row.carrier], str(row.flights), str(row.late), share, f"{row.minutes:.1f}")
    return table


def require_equal(engine: ab.Engine, name: str, feed: Feed) -> None:
    query = QUERIES[name]
    for live, batch in BATCH.items():
        query = query.replace(live, batch)
    rows = {"flights": _frame(engine, feed.final()), "weather": _frame(engine, feed.weather)}
    used = {table: frame for table, frame in rows.items() if f"{{{table}}}" in query}
    expected = engine.spark.sql(query, **used).collect()
    assert sorted(map(repr, engine.table(name).collect())) == sorted(map(repr, expected)), f"{name} is not the batch's"


def _frame(engine: ab.Engine, rows: pd.DataFrame) -> DataFrame:
    return engine.spark.createDataFrame(pa.Table.from_pandas(rows, preserve_index=False))
