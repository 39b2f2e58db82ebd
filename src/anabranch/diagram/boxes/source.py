"""Source: the rows of a stream, base or derived, as its log has them.

Of a stream with a key a Source may also give the *messages*: insertions, replacements and deletions as
they came, with `_gone`, whether the message deletes, and `_stamp`, its version. The version with the
highest stamp is the one that counts, whenever it came.
"""

from __future__ import annotations

from dataclasses import dataclass

from anabranch.diagram.boxes.box import Box

MESSAGE_COLUMNS = ("_gone", "_stamp")


@dataclass(frozen=True)
class Source(Box):
    stream: str
    names: tuple[str, ...]
    messages: bool = False

    @property
    def columns(self) -> tuple[str, ...]:
        return (*self.names, *MESSAGE_COLUMNS) if self.messages else self.names
