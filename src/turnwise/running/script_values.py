"""Values of a program, as they come out of the interpreter: what JSON cannot carry is named, everything can be shown.

They are a stranger's: nested 100,000 deep, holding themselves, or a list of two of a list of two ... sixty times over, which
is small in the interpreter and has no end when it is written out. So each is walked without recursion and within bounds
before anything else touches it.
"""

import datetime
import math
import re
from collections.abc import Iterable, Iterator, Mapping
from itertools import islice
from typing import Protocol, cast, runtime_checkable

import msgspec

MAX_DEPTH = 100
MAX_VALUES = 100_000  # 0.1 s to walk
MAX_SHOWN_BYTES = 4 * 1024 * 1024
SHOWN_DEPTH = 20  # of a value that JSON cannot carry
INT_BITS = 64
# The interpreter hands out what it cannot hand over as the text that Python prints of it. A text that is just this, written
# into a file, is damage; nobody means it.
_PRINTED = re.compile(
    r"<(?:coroutine [\w ().]+|gather\(\d+\)|function '[^']*' at 0x[0-9a-f]+|module '[^']*'|class '[^']*'"
    r"|[\w.]+ object(?:; [^\n]*)?)>"
)
MAX_PRINTED = 500
_WAITED_FOR = ("<coroutine", "<gather")
REST_LEFT_OUT = "\n[... the rest of this value is left out]"


@runtime_checkable
class _Instance(Protocol):
    """An instance of a class of the program's own."""

    @property
    def name(self) -> str: ...
    @property
    def attributes(self) -> Mapping[str, object]: ...


def json_problem(value: object, *, limit_bytes: int) -> str:
    """Why JSON cannot carry this value just as it is, in words; empty where it can. Sets become lists, dates ISO text, keys
    that are whole numbers text."""
    size = count = 0
    todo: list[tuple[object, int]] = [(value, 0)]
    while todo:
        one, depth = todo.pop()
        count += 1
        if count > MAX_VALUES:
            return f"more than {MAX_VALUES:,} values"
        if depth > MAX_DEPTH:
            return f"nested more than {MAX_DEPTH} deep, or holding itself"
        match one:
            case str():
                size += len(one)
                if problem := _text_problem(one):
                    return problem
            case dict():
                items = cast("dict[object, object]", one)
                if problem := _key_problem(items):
                    return problem
                size += sum(len(str(key)) for key in items)
                todo += [(item, depth + 1) for item in items.values()]
            case list() | tuple() | set() | frozenset():
                items = cast("Iterable[object]", one)
                todo += [(item, depth + 1) for item in islice(items, MAX_VALUES + 1)]
            case _ if problem := _leaf_problem(one):
                return problem
            case _:
                size += 1
        if size > limit_bytes:
            return f"more than {limit_bytes:,} bytes"
    return ""


def _text_problem(text: str) -> str:
    if not text.startswith("<") or len(text) > MAX_PRINTED or _PRINTED.fullmatch(text) is None:
        return ""
    if text.startswith(_WAITED_FOR):
        return f"`{text}`, a call whose result is not there yet: `await` it first"
    return f"`{text}`, which is an object of the program and no value"


def _leaf_problem(value: object) -> str:
    match value:
        case None | bool() | datetime.date() | datetime.time():
            return ""
        case int():
            return "" if value.bit_length() <= INT_BITS else f"a whole number of {value.bit_length()} bits"
        case float():
            return "" if math.isfinite(value) else f"{value}, which is no number of JSON"
        case bytes():
            return "bytes: decode them to text, or encode them in base64 yourself"
        case _:
            return f"a value of type `{_kind(value)}`"


def _key_problem(items: dict[object, object]) -> str:
    """JSON has only texts as keys; what would become the same text twice loses a value."""
    others = [key for key in islice(items, MAX_VALUES) if not isinstance(key, str)]
    for key in others:
        if isinstance(key, bool) or not isinstance(key, int) or key.bit_length() > INT_BITS:
            return f"a key of type `{_kind(key)}`: keys are texts"
        if str(key) in items:
            return f"the key {key} twice, as a number and as text"
    return ""


def _kind(value: object) -> str:
    return value.name if isinstance(value, _Instance) else type(value).__name__


def shown(value: object, *, limit: int) -> str:
    """The value for a reader: text as it is, JSON where that can carry it, else as Python writes it. What is too deep is
    `...`, and of what is longer than `limit` characters and no JSON only the beginning is there."""
    if isinstance(value, str):
        return value
    if not json_problem(value, limit_bytes=MAX_SHOWN_BYTES):
        try:
            return msgspec.json.encode(value).decode()
        except (TypeError, ValueError, OverflowError):  # half a surrogate pair
            pass
    pieces: list[str] = []
    length = 0
    for piece in _drawn(value):
        pieces.append(piece)
        length += len(piece)
        if length > limit:
            return "".join(pieces)[:limit] + REST_LEFT_OUT
    return "".join(pieces)


def _drawn(value: object) -> Iterator[str]:
    """Piece by piece, so that nobody waits for what is not read."""
    items: list[Iterator[tuple[str, object]]] = [iter([("", value)])]
    ends = [""]
    comma = ""
    while items:
        item = next(items[-1], None)
        if item is None:
            items.pop()
            comma = ", "
            yield ends.pop()
            continue
        label, one = item
        opened = _opened(one)
        if opened is None or len(items) > SHOWN_DEPTH:
            yield f"{comma}{label}{_leaf(one) if opened is None else f'{opened[0]}...{opened[2]}'}"
            comma = ", "
            continue
        begin, inner, end = opened
        yield f"{comma}{label}{begin}"
        comma = ""
        items.append(iter(inner))
        ends.append(end)


def _opened(value: object) -> tuple[str, Iterable[tuple[str, object]], str] | None:
    """What begins a container, its items with their labels, and what ends it; None where the value is none."""
    match value:
        case dict():
            pairs = cast("dict[object, object]", value).items()
            return "{", ((f"{_leaf(key)}: ", item) for key, item in pairs), "}"
        case list():
            return "[", _unlabelled(cast("list[object]", value)), "]"
        case tuple():
            items = cast("tuple[object, ...]", value)
            return "(", _unlabelled(items), ",)" if len(items) == 1 else ")"
        case set() | frozenset():
            items = cast("frozenset[object]", value)
            return ("{", _unlabelled(items), "}") if items else ("set(", (), ")")
        case _Instance():
            return f"{value.name}(", ((f"{name}=", item) for name, item in value.attributes.items()), ")"
        case _:
            return None


def _unlabelled(items: Iterable[object]) -> Iterator[tuple[str, object]]:
    return (("", item) for item in items)


def _leaf(value: object) -> str:
    if _opened(value) is not None:  # a key
        return f"<{type(value).__name__}>"
    try:
        return repr(value)
    except Exception:  # noqa: BLE001 (an int of more digits than Python writes; nothing of a stranger's may end the run)
        return f"<{_kind(value)}, too long to write>"
