"""Values that stand as bare text (XML-like syntaxes), typed by the tool's schema, and the JSON object that is made of them.

Vendors' parsers do it so too: vLLM's `qwen3coder_tool_parser.py` and `glm4_moe_tool_parser.py`, SGLang's
`glm4_moe_detector.py`: a string stays as it is, everything else is read as JSON. Of the two the schema has to allow the one that
is taken, if it allows any. What is no such value stays a string, and the schema says then what was wrong with it.
"""

import json
from typing import Protocol

import msgspec

from turnwise.assembly.json_text import check_strictly

STRING = frozenset({"string"})
ANY_TYPE = frozenset({"string", "integer", "number", "boolean", "null", "object", "array"})
_LITERALS = {
    "true": ("true", "boolean"),
    "false": ("false", "boolean"),
    "null": ("null", "null"),
    "none": ("null", "null"),
}
_ENCODE = msgspec.json.encode


class ValueCheck(Protocol):
    """Whether a parameter may have this value, which is JSON text."""

    def __call__(self, value: str, /) -> bool: ...


def as_json(value: str, *, types: frozenset[str], fits: ValueCheck) -> str:
    """The JSON text of a bare value. `types` are those that the parameter may have; `fits` is asked where two readings are left.

    If the parameter may be a string or something else, a string comes first, but for what no string would say so: `null`, objects
    and lists. A parameter of any type takes everything that is JSON.
    """
    if types == STRING:
        return quoted(value)
    bare = value.strip()
    other = _without_string(bare, types=types)
    if other is None:
        return quoted(value)
    if "string" not in types:
        return other
    text = quoted(value)
    is_other_first = other == bare and (types == ANY_TYPE or bare == "null" or bare[0] in "{[")
    first, second = (other, text) if is_other_first else (text, other)
    if fits(first):
        return first
    return second if fits(second) else text


def _without_string(bare: str, *, types: frozenset[str]) -> str | None:
    """The value as anything but a string; None where it can be nothing else."""
    literal, kind = _LITERALS.get(bare.lower(), ("", ""))
    if kind in types:
        return literal
    try:
        return bare if is_json(bare) and not ("{" in bare and names_twice(bare)) else None
    except RecursionError:
        return None


def quoted(value: str) -> str:
    return _ENCODE(value.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")).decode()


def is_json(text: str) -> bool:
    try:
        check_strictly(text)
    except (msgspec.MsgspecError, RecursionError, UnicodeEncodeError):
        return False
    return True


def names_twice(text: str) -> bool:
    """Whether a key stands twice in an object of this JSON. If two members have one name, it is unclear which is meant.

    Raises RecursionError for what is nested too deeply.
    """
    try:
        _decode_members(text)
    except _Twice:
        return True
    return False


class _Twice(Exception):
    pass


def _once(members: list[tuple[str, object]]) -> None:
    if len({key for key, _ in members}) < len(members):
        raise _Twice


_decode_members = json.JSONDecoder(object_pairs_hook=_once).decode


class Members:
    """The members of a call's arguments as they are read; `text` is the JSON object, `beginning` what it is so far."""

    __slots__ = ("_members",)

    def __init__(self) -> None:
        self._members: dict[str, str] = {}

    def has(self, key: str) -> bool:
        return key in self._members

    def add(self, key: str, value: str) -> None:
        self._members[key] = value

    @property
    def text(self) -> str:
        return f"{self.beginning}}}" if self._members else "{}"

    @property
    def beginning(self) -> str:
        return "{" + ",".join([f"{quoted(key)}:{value}" for key, value in self._members.items()])

    def with_open(self, key: str, value: str) -> str:
        """A beginning that ends inside this string."""
        before = self.beginning
        return f"{before}{',' if self._members else ''}{quoted(key)}:{quoted(value)[:-1]}"
