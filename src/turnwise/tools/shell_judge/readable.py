"""Names that are no UTF-8, as text that a journal, an ask and a provider can carry."""

import re
from typing import TypeVar, cast

import msgspec

T = TypeVar("T")

_BYTE = re.compile("[\udc80-\udcff]")  # how Python holds a byte of a name that it cannot decode (PEP 383)
_UNWRITABLE = re.compile("[\ud800-\udfff]")


def escaped(text: str) -> str:
    """The text with `\\xff` for such a byte; the very same where there is none, as what is a default is not written."""
    if _UNWRITABLE.search(text) is None:
        return text
    told = _BYTE.sub(lambda found: f"\\x{ord(found[0]) - 0xDC00:02x}", text)
    return told.encode("utf-8", "backslashreplace").decode()


def is_marked(path: str) -> bool:
    return "//" in path


def readable(value: T) -> T:
    """The same facts, every text in them escaped."""
    found: object = value
    if isinstance(value, str):
        found = escaped(value)
    elif isinstance(value, tuple):
        found = tuple([readable(one) for one in cast("tuple[object, ...]", value)])
    elif isinstance(value, msgspec.Struct):
        fields = {name: readable(cast("object", getattr(value, name))) for name in value.__struct_fields__}
        found = msgspec.structs.replace(value, **fields)
    return cast("T", found)
