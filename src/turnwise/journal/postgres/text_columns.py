"""Any Python text in a column of PostgreSQL, and the same text back.

PostgreSQL stores neither the character NUL nor half of a surrogate pair. Both are written as an escape that begins with the
character SUBSTITUTE (U+001A), which is escaped too. Bodies of records never need it: JSON escapes all three.
"""

import re
from typing import TYPE_CHECKING

from psycopg.adapt import Loader
from psycopg.types.numeric import NumericLoader
from psycopg.types.string import StrDumper

if TYPE_CHECKING:
    from psycopg.abc import Buffer

ESCAPE = "\x1a"
_ESCAPE_BYTE = ESCAPE.encode()
_UNSTORABLE = re.compile("[\x00\x1a\ud800-\udfff]")
_ESCAPED = re.compile("\x1a([0-9a-f]{4})")


def storable(text: str) -> str:
    return _UNSTORABLE.sub(lambda found: f"{ESCAPE}{ord(found[0]):04x}", text)


def stored(text: str) -> str:
    """What `storable` was given."""
    return _ESCAPED.sub(lambda found: chr(int(found[1], 16)), text)


class TextDumper(StrDumper):
    """Of parameters. Their type is left to the server, as in text of SQL."""

    oid = 0

    def dump(self, obj: str) -> "Buffer | None":
        if "\x00" not in obj and ESCAPE not in obj:
            try:
                return obj.encode()
            except UnicodeEncodeError:
                pass
        return storable(obj).encode()


class TextLoader(Loader):
    """Of columns."""

    def load(self, data: "Buffer") -> str:
        content = bytes(data)
        text = content.decode()
        return stored(text) if _ESCAPE_BYTE in content else text


class SumLoader(NumericLoader):
    """A sum of integers is an integer. No column is `numeric`: amounts of money are exact text."""

    def load(self, data: "Buffer") -> int:  # pyright: ignore[reportIncompatibleMethodOverride]
        return int(bytes(data))
