"""Where segment files are, and how they become durable.

Every writer puts its files into a directory of its own, named for its intent; no file is ever written
twice or renamed. A file counts once a header in the catalog refers to it. The order is always: write,
sync the file, sync the directory, then commit the header. A branch writes, and removes, only below a directory
of its own: whatever its catalog says of other files, it leaves them alone.
"""

from __future__ import annotations

import errno
import os
import shutil
from collections.abc import Container, Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import unquote, urlparse

from anabranch.log.catalog import disk_full
from anabranch.model.errors import AnabranchError

DATA = "data"
BRANCHES = "branches"
# So many directories are known to be there.
_REMEMBERED = 1_000
_NO_SPACE = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


def warehouse_root(place: str | Path) -> Path:
    """The absolute directory of a warehouse, from a path or a `file:` URI."""
    text = str(place)
    parsed = urlparse(text)
    if parsed.scheme == "file":
        text = unquote(parsed.path)
    elif parsed.scheme and "://" in text:
        raise AnabranchError(
            "NOT_SUPPORTED",
            place=f"warehouse {text!r}",
            need="a directory, on this machine or on a file system that all machines mount",
            got=f"the scheme {parsed.scheme!r}",
            next_step="Pass a path or a file: URI; object stores are not supported.",
        )
    root = Path(plain_path(text))
    if root.exists() and not root.is_dir():
        raise AnabranchError(
            "BAD_ARGUMENT",
            place=f"warehouse {text!r}",
            need="a directory",
            got="a file",
            next_step="Choose another path.",
        )
    return root


def make_root(root: Path) -> None:
    """Make the directory of a warehouse if it is not there."""
    try:
        with no_space_is_an_error(str(root)):
            root.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise AnabranchError(
            "BAD_ARGUMENT",
            place=f"warehouse {root}",
            need="a directory that can be made or written",
            got=str(error),
            next_step="Choose another path or change its permissions.",
        ) from error


def plain_path(text: str) -> str:
    """An absolute path without '..' or doubled slashes, as Spark spells it."""
    return "/" + os.path.abspath(os.path.expanduser(text)).lstrip("/")


def home_of(generation: str) -> str:
    """The directory of a branch, relative to the warehouse: its segments, and its catalog if that is a file."""
    return f"{BRANCHES}/{generation}"


class Storage:
    """The segment files of one warehouse, or of a branch of it."""

    def __init__(self, root: Path, generation: str | None = None) -> None:
        self.root = root
        self._home = None if generation is None else f"{home_of(generation)}/"
        self._made: set[str] = set()

    def directory(self, stream_id: int, intent_id: str) -> str:
        """The directory of an intent, relative to the warehouse."""
        return f"{self._home or ''}{DATA}/{stream_id}/{intent_id}"

    def owns(self, relative: str) -> bool:
        """Whether a path is ours to remove: a branch's below its own directory, main's outside of all those."""
        if self._home is None:
            return not relative.startswith(f"{BRANCHES}/")
        return relative.startswith(self._home)

    def make_directory(self, relative: str) -> Path:
        """Make a writer's directory so that it survives a power cut."""
        path = self.root / relative
        if relative not in self._made:
            if len(self._made) > _REMEMBERED:
                self._made.clear()  # most are of steps that have ended
            with no_space_is_an_error(str(path)):
                path.mkdir(parents=True, exist_ok=True)
                # Another process may have made a parent just now and not have synced it yet: sync them all.
                for parent in path.parents:
                    sync_directory(parent)
                    if parent == self.root:
                        break
            self._made.add(relative)
        return path

    def files(self, relative: str) -> list[str]:
        """The files of a directory, as paths relative to the warehouse."""
        try:
            return [f"{relative}/{name}" for name in sorted(os.listdir(self.root / relative))]
        except FileNotFoundError:
            return []

    def holds_only(self, stream_id: int, intent_id: str, paths: Container[str]) -> bool:
        """Whether the directory of an intent has no files but these; one without any is removed."""
        directory = self.directory(stream_id, intent_id)
        files = self.files(directory)
        return all(file in paths for file in files) if files else self.remove_directory(directory)

    def remove(self, relative: str) -> bool:
        """Remove a file of ours; False when it was gone already, or is not ours."""
        if not self.owns(relative):
            return False
        try:
            os.unlink(self.root / relative)
        except FileNotFoundError:
            return False
        return True

    def remove_directory(self, relative: str) -> bool:
        """Remove a directory of ours if nothing is left in it; False if something is."""
        if not self.owns(relative):
            return False
        try:
            os.rmdir(self.root / relative)
        except FileNotFoundError:
            return True
        except OSError:
            return False
        return True


def remove_home(root: Path, generation: str) -> None:
    """Remove all that a branch has on disk; another process may be at it as well."""

    def pass_over(_call: object, _path: str, info: tuple[type[BaseException], BaseException, object]) -> None:
        if not isinstance(info[1], FileNotFoundError):
            raise info[1]

    shutil.rmtree(root / home_of(generation), onerror=pass_over)


def sync_file(path: str) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def sync_directory(path: Path | str) -> None:
    sync_file(str(path))


@contextmanager
def no_space_is_an_error(path: str) -> Iterator[None]:
    """A full disk is the user's to mend, not a crash."""
    try:
        yield
    except OSError as error:
        if error.errno in _NO_SPACE:
            raise disk_full(path, "for a segment", str(error)) from error
        raise
