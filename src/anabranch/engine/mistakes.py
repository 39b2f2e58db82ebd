"""Expressions that Spark refuses, said in the user's terms: where, and in Spark's own words why."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager

from pyspark.errors import PySparkException
from pyspark.logger import PySparkLogger

from anabranch.diagram.expression import Expression
from anabranch.model.errors import AnabranchError


class ExpressionRefused(Exception):
    """Spark does not accept an expression; whoever has the statement turns this into an error with a caret."""

    def __init__(self, expression: Expression, why: PySparkException | str) -> None:
        self.expression = expression
        self.reason = why if isinstance(why, str) else spark_words(why)
        super().__init__(self.reason)


def spark_words(error: BaseException) -> str:
    """The first sentences of what Spark said, without plans and traces."""
    text = str(error).strip()
    if "Traceback (most recent call last):" in text:  # of a function of the user's own: its last line says it
        lines = [line.strip() for line in text.splitlines() if line.strip() and not line.startswith("\tat ")]
        text = next((line for line in reversed(lines) if re.match(r"[\w.]+(?:Error|Exception|Warning)\b", line)), text)
    text = re.split(r"\n?(?:== SQL|;\s*\n'|\n\nJVM stacktrace|\n\tat )", text)[0]
    text = re.sub(r"\s*SQLSTATE: \w+", "", text)
    text = re.sub(r"(?<=[\[ ])`_\w+`(?:\.`\w+`)*,? ?", "", text)  # columns of ours are no help
    text = re.sub(r"; line \d+ pos \d+|,? \](?=\.)", lambda m: "]" if "]" in m[0] else "", text)
    text = re.sub(r"Did you mean one of the following\? \[\s*\]\.?", "", text)
    return " ".join(text.split())[:400].strip().removesuffix(".")


@contextmanager
def quietly() -> Iterator[None]:
    """PySpark prints every error of a plan that it reports; those that we expect are said once, by us."""
    # They must be PySpark's own kind of logger, whoever asks for them first.
    loggers = [PySparkLogger.getLogger(name) for name in ("SQLQueryContextLogger", "DataFrameQueryContextLogger")]
    before = [logger.disabled for logger in loggers]
    for logger in loggers:
        logger.disabled = True
    try:
        yield
    finally:
        for logger, was in zip(loggers, before, strict=True):
            logger.disabled = was


# What Spark says when a machine, a disk, a network or a person is at fault, and not the query.
_NOT_THE_QUERY = re.compile(
    r"No space left|OutOfMemory|ExecutorLost|Executor heartbeat|FetchFailed|FAILED_READ_FILE|FileNotFound|IOException"
    r"|Input/output error|Too many open files|Connection re(?:fused|set)|Broken pipe|UNAVAILABLE|shut down|shutdown"
    r"|cancelled|Python worker (?:exited|failed)|stopped SparkContext|no segment is known"
)


def halts(error: BaseException) -> bool:
    """Whether an error concerns one query, which stops, and not all."""
    return is_query_error(error) or (isinstance(error, AnabranchError) and error.id == "HISTORY_GONE")


def is_query_error(error: BaseException) -> bool:
    """Whether it is a query's own expressions that failed: on a value, or on what they make of it."""
    spark = isinstance(error, PySparkException) or type(error).__name__ == "Py4JJavaError"
    return spark and not _NOT_THE_QUERY.search(str(error))


def row_error(place: str, quoted: str | None, error: BaseException) -> AnabranchError:
    """The error at which a query halts, with the row quoted."""
    got = spark_words(error) + (f", on the row {quoted}" if quoted else "")
    return AnabranchError(
        "EXPRESSION_FAILED",
        place=place,
        need="expressions that have a value for every row, or ON ERROR NULL or QUARANTINE",
        got=got,
        next_step="The query has halted here and the others go on. Drop it and create it again with other "
        "expressions or ON ERROR, or resume it if what failed was passing.",
    )
