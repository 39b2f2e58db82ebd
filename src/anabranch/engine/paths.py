"""File names as Spark wants them, and as it gives them back.

Spark takes a path for a pattern, so its special characters are escaped on the way in. On the way out it
reports a URI in Java's spelling, which quotes fewer characters than Python's: decoded, the two agree.
"""

from __future__ import annotations

import re


def literal_path(path: str) -> str:
    """A path that Spark reads as exactly this file."""
    return re.sub(r"([\\{}\[\]*?])", r"\\\1", path)


# The absolute path of the file from which a row was read.
PATH_OF_ROW = "REGEXP_REPLACE(URL_DECODE(REPLACE(_metadata.file_path, '+', '%2B')), '^file:/+', '/')"
