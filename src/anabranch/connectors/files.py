"""Files as a sink: a directory that plain `spark.read.parquet(directory)` reads.

Each bucket has a sub-directory of its own, `_bucket=12`; each run of a base stream, which is in no bucket,
`_position=12`. Spark's tasks write it in a hidden place, and one rename puts it there, whole. The rename fails if
the bucket is there already: the same bucket has the same rows, so there is nothing to do then. A file that is there is
never changed.

What is written can be loaded into a stream of the same columns, by key or without one, and comes to the same table.
So text has every microsecond, null and blank (CSV alone has one spelling for null and for an empty text). Of a bucket,
what goes comes before what comes in: of a key whose row goes and comes in one bucket, the row that came is the last.
Rows of a run stay in their order, which is their meaning.
"""

from __future__ import annotations

import json
import os
import shutil
import uuid
from pathlib import Path
from urllib.parse import unquote, urlparse

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from anabranch.connectors.targets import Goods
from anabranch.engine.kernel import SMALL
from anabranch.log.references import in_order
from anabranch.log.storage import no_space_is_an_error, plain_path, sync_directory, sync_file
from anabranch.model.errors import AnabranchError
from anabranch.model.run import ChangeType

_TIMES = {
    "timestampFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSSXXX", "timestampNTZFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSS"
}  # fmt: skip
_BLANKS = {"ignoreLeadingWhiteSpace": "false", "ignoreTrailingWhiteSpace": "false"}
_WRITE_OPTIONS: dict[str, dict[str, str]] = {
    "parquet": {}, "json": {**_TIMES, "ignoreNullFields": "false"}, "csv": {**_TIMES, **_BLANKS, "header": "true"}
}  # fmt: skip
FORMATS = tuple(_WRITE_OPTIONS)
_GOING = (ChangeType.DELETE.value, ChangeType.UPDATE_PREIMAGE.value)
_MARK = "_anabranch.json"
_HIDDEN = ".anabranch-"


class FileTarget:
    def __init__(self, goods: Goods, to: str, table: str | None, file_format: str | None) -> None:
        self.goods = goods
        self.format = file_format or "parquet"
        self.root = _directory(to, goods.place)
        if table is not None or goods.key:
            raise AnabranchError(
                "BAD_ARGUMENT", place=goods.place, need="a directory of changes",
                got="TABLE or KEY, which belong to a table of a database",
                next_step="Leave them out, or write to 'postgresql://...'.",
            )  # fmt: skip
        if self.format not in FORMATS:
            raise AnabranchError(
                "BAD_ARGUMENT", place=f"{goods.place}, format", need=f"one of {', '.join(FORMATS)}",
                got=repr(file_format), next_step="Choose one.",
            )  # fmt: skip
        nested = [f.name for f in goods.fields if f.type.startswith(("ARRAY", "MAP", "STRUCT", "BINARY"))]
        if self.format == "csv" and nested:
            raise AnabranchError(
                "NOT_SUPPORTED", place=goods.place, need="columns that CSV can hold", got=", ".join(nested),
                next_step="Use FORMAT json or parquet, or a query without these columns.",
            )  # fmt: skip

    def prepare(self) -> None:
        with _answering(self.goods.place, self.root):
            self.root.mkdir(parents=True, exist_ok=True)
            there = sorted(os.listdir(self.root))
            if there:
                raise AnabranchError(
                    "SINK_REFUSED", place=f"{self.goods.place}, {self.root}", need="an empty directory",
                    got=f"one with {there[0]!r} in it", next_step="Choose another directory, or empty this one.",
                )  # fmt: skip
            mark = self.root / _MARK
            mark.write_text(json.dumps({"sink": self.goods.sink_id, "stream": self.goods.stream.name}))
            sync_file(str(mark))
            sync_directory(self.root)

    def forget(self) -> None:
        """The mark stays: a directory that one sink has filled is no place for another."""

    def begin(self, epoch: int, position: int) -> int:
        with _answering(self.goods.place, self.root):
            owner = json.loads((self.root / _MARK).read_text())["sink"]
            if owner != self.goods.sink_id:
                raise AnabranchError(
                    "SINK_REFUSED", place=f"{self.goods.place}, {self.root}", need="the directory of this sink",
                    got="that of another one", next_step="Create the sink again, with another directory.",
                )  # fmt: skip
            for left in self.root.glob(f"{_HIDDEN}*"):
                shutil.rmtree(left, ignore_errors=True)
        return position

    def take(self, changes: DataFrame, came: int, upto: int) -> None:
        hidden = self.root / f"{_HIDDEN}{uuid.uuid4().hex}"
        try:
            self._write(changes, hidden)
            with _answering(self.goods.place, self.root):
                for made in sorted(hidden.glob(f"{self.goods.unit}=*"), key=lambda made: in_order(made.name)):
                    self._put(made)
                sync_directory(self.root)
        finally:
            shutil.rmtree(hidden, ignore_errors=True)

    def _write(self, changes: DataFrame, hidden: Path) -> None:
        unit = self.goods.unit
        about = [] if self.goods.insert_only else ["_change_type", "_ordinal"]
        columns = [*about, *(f"`{field.name}`" for field in self.goods.fields)]
        few = changes.limit(SMALL).count() < SMALL
        order = [F.col(unit), F.col("_ordinal")]
        if unit == "_bucket" and not self.goods.insert_only:
            order.insert(1, ~F.col("_change_type").isin(*_GOING))
        spread = changes.coalesce(1) if few else changes.repartitionByRange(*order)
        ordered = spread.sortWithinPartitions(*order).select(unit, *columns)
        writer = ordered.write.partitionBy(unit).format(self.format).options(**_WRITE_OPTIONS[self.format])
        with no_space_is_an_error(str(hidden)):
            writer.save(str(hidden))

    def _put(self, made: Path) -> None:
        for file in made.iterdir():
            sync_file(str(file))
        sync_directory(made)
        there = self.root / made.name
        try:
            os.rename(made, there)
        except OSError:
            if not there.is_dir():
                raise


class _answering:
    """A directory that cannot be read or written halts its sink, and is tried again."""

    def __init__(self, place: str, root: Path) -> None:
        self.place = place
        self.root = root

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: object) -> None:
        if isinstance(error, OSError | ValueError):
            raise AnabranchError(
                "SINK_UNREACHABLE", place=f"{self.place}, {self.root}", need="a directory that can be written",
                got=str(error), next_step="Mend it; the sink goes on by itself at the next advance.",
            ) from error  # fmt: skip


def _directory(to: str, place: str) -> Path:
    parsed = urlparse(to) if isinstance(to, str) else None
    if parsed is None or not to.strip() or (parsed.scheme not in ("", "file") and "://" in to):
        raise AnabranchError(
            "NOT_SUPPORTED", place=f"{place}, to", need="'postgresql://host/database', or a directory",
            got=repr(to), next_step="Choose one of the two; for other systems write with engine.subscribe().",
        )  # fmt: skip
    return Path(plain_path(unquote(parsed.path) if parsed.scheme == "file" else to))
