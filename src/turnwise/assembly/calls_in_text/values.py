"""Values that stand as bare text (XML-like syntaxes), typed by the tool's schema, and the JSON object that is made of them.

Vendors' parsers do it so too: vLLM's `qwen3coder_tool_parser.py` and `glm4_moe_tool_parser.py`, SGLang's
`glm4_moe_detector.py`: a string stays as it is, everything else is read as JSON. What is no such value stays a string, and the
schema says then what was wrong with it.
"""

import msgspec

from turnwise.assembly.json_text import check_strictly

_LITERALS = {"true": "true", "false": "false", "null": "null", "none": "null"}
_ENCODE = msgspec.json.encode


def as_json(value: str, *, types: frozenset[str]) -> str:
    """The JSON text of a bare value. A parameter without a type takes JSON where the value is an object, list or literal."""
    bare = value.strip()
    if "string" in types:
        # Of a string that may also be something else only what no string would say so: `null`, objects, lists.
        if bare == "null" and "null" in types:
            return "null"
        others = {"object", "array"} & types
        return bare if others and bare[:1] in "{[" and is_json(bare) else quoted(value)
    literal = _LITERALS.get(bare.lower())
    if literal is not None and types & {"boolean", "null"}:
        return literal
    return bare if bare and is_json(bare) else quoted(value)


def quoted(value: str) -> str:
    return _ENCODE(value.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")).decode()


def is_json(text: str) -> bool:
    try:
        check_strictly(text)
    except (msgspec.MsgspecError, RecursionError, UnicodeEncodeError):
        return False
    return True


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
