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

    def __init__(self, expression: Expression, error: PySparkException) -> None:
        self.expression = expression
        self.reason = spark_words(error)
        super().__init__(self.reason)


def spark_words(error: BaseException) -> str:
    """The first sentences of what Spark said, without plans and traces."""
    text = str(error).strip()
    text = re.split(r"\n?(?:== SQL|;\s*\n'|\n\nJVM stacktrace|\n\tat )", text)[0]
    text = re.sub(r"\s*SQLSTATE: \w+", "", text)
    text = re.sub(r"(?<=[\[ ])`_\w+`(?:\.`\w+`)*,? ?", "", text)  # columns of ours are no help
    text = re.sub(r"; line \d+ pos \d+|,? \](?=\.)", lambda m: "]" if "]" in m[0] else "", text)
    return " ".join(text.split())[:400].removesuffix(".")


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


# Error classes with which Spark refuses a value, not a plan: the row is at fault.
_ROW_ERRORS = (
    "ARITHMETIC_OVERFLOW", "BINARY_ARITHMETIC_OVERFLOW", "CANNOT_PARSE", "CAST_INVALID_INPUT", "CAST_OVERFLOW",
    "COMPARATOR_RETURNS_NULL", "CONVERSION_INVALID_INPUT", "DATETIME_OVERFLOW", "DELETION_NOT_TAKEN",
    "DIVIDE_BY_ZERO", "DUPLICATED_MAP_KEY", "ELEMENT_AT_BY_INDEX_ZERO", "INTERVAL_", "INVALID_ARRAY_INDEX",
    "INVALID_BITMAP", "INVALID_BOUNDARY", "INVALID_CONVERSION", "INVALID_DATETIME", "INVALID_FRACTION",
    "INVALID_INDEX", "INVALID_PARAMETER_VALUE", "INVALID_URL", "INVALID_UTF8", "MALFORMED_", "MAP_KEY_DOES_NOT_EXIST",
    "NULL_MAP_KEY", "NUMERIC_", "REGEX_", "REMAINDER_BY_ZERO", "SUM_OF", "USER_RAISED_EXCEPTION", "VARIANT_",
)  # fmt: skip


def is_row_error(error: BaseException) -> bool:
    """Whether an expression failed on a value, as opposed to a machine, a disk or a plan."""
    text = str(error)
    return any(f"[{name}" in text or f"[{name.rstrip('_')}_" in text for name in _ROW_ERRORS)


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
