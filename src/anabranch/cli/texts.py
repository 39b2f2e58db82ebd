"""SQL that people keep in files, and the statements in it."""

from __future__ import annotations

from pathlib import Path

from anabranch.diagram.sql.statements import Statement
from anabranch.model.errors import AnabranchError


def read_text(path: str) -> str:
    try:
        return Path(path).read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        raise AnabranchError(
            "FILE_UNREADABLE",
            place=path,
            need="a file with SQL, in UTF-8",
            got=getattr(error, "strerror", None) or str(error),
            next_step="Check the path, or save the file as UTF-8.",
        ) from error


def alone(statement: Statement) -> str:
    """A statement as a text of its own in which errors still point to its line and column in the file."""
    source = statement.source
    return "\n" * (source.line - 1) + " " * (source.column - 1) + source.text
