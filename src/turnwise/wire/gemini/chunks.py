"""The chunks of a response as typed values: what a stream sends piece by piece, and a body at once; and arguments that come value
by value.

Three ways in, each taken only when the one before failed: `PLAIN` knows the parts of nearly all chunks; `read_slowly` keeps
each part as raw JSON; `mend` reads what is no valid JSON, or has fields of the wrong type.
"""

import re
from typing import Generic, TypeVar

import msgspec

from turnwise.vocab import Frame, Lost, Mended, Repair
from turnwise.vocab.parts import in_common
from turnwise.wire.gemini.parts import read_fields
from turnwise.wire.json_fields import (
    LINE_END_LOST,
    NOTHING,
    UNREADABLE,
    breaks_strings,
    has_lone_surrogate,
    read_damaged,
    skipped,
    write_object,
    write_value,
)
from turnwise.wire.long_events import read_any

P = TypeVar("P")


class PartialArg(msgspec.Struct, rename="camel", gc=False):
    """One piece of one argument (Vertex AI, `streamFunctionCallArguments`). One of the four values is there."""

    json_path: str = ""
    string_value: str | None = None
    number_value: msgspec.Raw = NOTHING
    bool_value: bool | None = None
    null_value: msgspec.Raw = NOTHING
    will_continue: bool | None = None


class FunctionCall(msgspec.Struct, rename="camel", gc=False, forbid_unknown_fields=True):
    """A call without any field but these. Others go the slow way: one may be its arguments under another name."""

    id: str | None = None
    name: str | None = None
    args: msgspec.Raw = NOTHING
    partial_args: list[PartialArg] | None = None
    will_continue: bool | None = None


class PlainPart(msgspec.Struct, rename="camel", gc=False, forbid_unknown_fields=True):
    """A part without any field but these. Others go the slow way, so that nothing of them is lost."""

    text: str | None = None
    thought: bool | None = None
    thought_signature: str | None = None
    function_call: FunctionCall | None = None


class Content(msgspec.Struct, Generic[P], gc=False):
    parts: list[P] | None = None


class Candidate(msgspec.Struct, Generic[P], rename="camel", gc=False):
    content: Content[P] | None = None
    finish_reason: str | int | None = None
    finish_message: str | None = None
    index: int | None = None
    grounding_metadata: msgspec.Raw = NOTHING
    citation_metadata: msgspec.Raw = NOTHING
    url_context_metadata: msgspec.Raw = NOTHING


class PromptFeedback(msgspec.Struct, rename="camel", gc=False):
    block_reason: str | int | None = None
    block_reason_message: str | None = None


class Chunk(msgspec.Struct, Generic[P], rename="camel", gc=False):
    candidates: list[Candidate[P]] | None = None
    usage_metadata: msgspec.Raw = NOTHING
    model_version: str | None = None
    response_id: str | None = None
    prompt_feedback: PromptFeedback | None = None
    error: msgspec.Raw = NOTHING


CALL_KEYS = frozenset({"id", "name", "args", "partialArgs", "willContinue"})
ARGUMENT_KEYS = frozenset({"args", "partialArgs"})


def call_fields(raw: msgspec.Raw) -> tuple[msgspec.Raw, bool]:
    """The call's known fields, and whether it has others in place of arguments. Raises one of UNREADABLE."""
    fields = read_fields(raw)
    known = {key: value for key, value in fields.items() if key in CALL_KEYS}
    is_strange = len(known) < len(fields) and not known.keys() & ARGUMENT_KEYS
    return msgspec.Raw(write_object(known)), is_strange


PLAIN = msgspec.json.Decoder(Chunk[PlainPart])
PLAIN_PART = msgspec.json.Decoder(PlainPart)
_SLOW = msgspec.json.Decoder(Chunk[msgspec.Raw])
_LIST = msgspec.json.Decoder(list[msgspec.Raw])


def read_slowly(text: bytes) -> list[Chunk[msgspec.Raw]]:
    """The chunk, or the chunks of an array (errors come as arrays of one). Raises one of UNREADABLE."""
    if text.lstrip()[:1] == b"[":
        return [_SLOW.decode(item) for item in _LIST.decode(text)]
    return [read_any(text, _SLOW.decode)]


def lost(kind: str, where: str, what: str) -> Lost:
    """A piece may be missing. Pieces may come late here, so that it may be one of any block."""
    return Lost(Repair(kind, where, what), reaches_ended=True)


def mend(text: bytes, *, where: str, glues: bool) -> tuple[list[bytes], list[Frame]]:
    """The chunks that can be read out of broken text, as clean JSON, and frames that tell what was done: they come behind what
    the chunks bring, so that a loss reaches it. `glues`: the server's first event has `data:` within a line, too, so it is
    a habit."""
    reading = read_damaged(text)
    found = reading.values
    values = [] if reading.rest else [write_value(value) for value in found]
    if not values or not all(map(_is_readable, values)):
        is_whole = values and not any(isinstance(value, dict | list) for value in found)
        kind = "noise_skipped" if is_whole else skipped("undecodable_chunk", text)
        what = f"passed over {len(text)} bytes that are no chunk of Gemini's"
        return [], [Mended(Repair(kind, where, what)) if kind == "noise_skipped" else lost(kind, where, what)]
    told: list[Frame] = []
    if reading.is_replaced:
        told.append(lost("invalid_utf8", where, "invalid UTF-8 became replacement characters"))
    if any(has_lone_surrogate(value) for value in found):
        told.append(lost("lone_surrogate", where, "half of a surrogate pair became a replacement character"))
    if breaks_strings(reading):
        told.append(lost("control_character", where, "a string holds a line break or another control character"))
    if reading.has_field and not glues:
        told.append(lost("glued_json", where, LINE_END_LOST))
    if len(values) > 1:
        told.append(Mended(Repair("glued_json", where, f"took {len(values)} chunks written as one apart")))
    return values, told


def _is_readable(value: bytes) -> bool:
    try:
        read_slowly(value)
    except UNREADABLE:
        return False
    return True


# Arguments that arrive value by value (`partialArgs`) -> the growing text of one JSON object.
#
# Vertex AI streams a call's arguments as pairs of a JSON path and a value, long strings in several pieces. As long as the
# paths come in document order, which is how they were recorded, the text can be written as they arrive: it stays a proper
# prefix of valid JSON until the provider says that the call is whole, so a call cut off in the middle shows as cut. Paths
# out of order are collected and the whole is written at the end.
#
# Source: Vertex AI reference, `FunctionCall.partialArgs`, `PartialArg`; a later string on the same path continues the
# earlier one, as Google's own Agent Development Kit reads it.


Key = str | int
Path = tuple[Key, ...]

# protobuf's JSON parser stops at this depth too, so nothing deeper can have been sent (ProtoJSON, recursion limit 100).
MAX_DEPTH = 100

# `$.a.b[0]`, `$['a key']`, `$["a key"]` (RFC 9535, normalised and shorthand names)
_STEP = re.compile(r"""\.([^.\[\]'"]+)|\[(\d{1,9})\]|\['((?:[^'\\]|\\.)*)'\]|\["((?:[^"\\]|\\.)*)"\]""")
_NUMBER = re.compile(rb"-?\d")


class _Leaf:
    """One value of the collected tree: the pieces of its JSON text (of a string: without its quotes)."""

    __slots__ = ("is_string", "pieces")

    def __init__(self, pieces: list[str], *, is_string: bool) -> None:
        self.pieces = list(pieces)
        self.is_string = is_string

    def text(self) -> str:
        return '"' + "".join(self.pieces) + '"' if self.is_string else "".join(self.pieces)


BEGIN = "{"
"""The text of a call that has just begun: already cut, should nothing follow."""


class PartialArguments:
    """After BEGIN, `add` returns the text that became known; `end` the rest, or None where the arguments are not whole.

    `broken` says why they never will be. `reordered` is true once a path came out of order: `end` then gives the whole
    text, which replaces what `add` returned.
    """

    def __init__(self) -> None:
        self.broken: str | None = None
        self.reordered = False
        self._path_text = ""
        self._path: Path = ()  # of the value written last
        self._string_open = False
        self._string_path: str | None = None  # of the current string, as long as nearly all pieces are more of it
        self._continues = False  # the provider said that more of the current value follows
        self._announced: dict[Path, None] = {}  # the same of values that were left before it came
        self._seen: list[set[Key]] = [set()]  # keys used so far in each container that is open in the text
        self._values: list[tuple[Path, list[str], bool]] = []  # with the pieces of each

    def add(self, piece: PartialArg) -> str:
        string = piece.string_value
        if string is None or piece.json_path != self._string_path:
            self._string_path = None
            return self._add_other(piece)
        self._continues = bool(piece.will_continue)
        value = _escaped(string)
        self._values[-1][1].append(value)
        return value

    def is_in_string(self, path: str) -> bool:
        """Whether a string for this path is more of the current one."""
        return self._string_path == path

    def add_strings(self, strings: list[str], *, continues: bool) -> list[str]:
        """`add` for pieces of the current string; `continues` is what the last one says."""
        self._continues = continues
        # What `_escaped` does, without a call for each: this is where long arguments come by.
        values = [
            string if string.isprintable() and '"' not in string and "\\" not in string else _escaped(string)
            for string in strings
        ]
        self._values[-1][1].extend(values)
        return values

    def _add_other(self, piece: PartialArg) -> str:
        if self.broken is not None:
            return ""
        path = self._path if piece.json_path == self._path_text else read_path(piece.json_path)
        value = _value_text(piece)
        if not path or not isinstance(path[0], str) or value is None:
            self.broken = f"the piece for `{piece.json_path[:80]}` cannot be read"
            return ""
        self._leave()
        self._announced.pop(path, None)
        self._continues = bool(piece.will_continue)
        is_string = piece.string_value is not None
        self._values.append((path, [value], is_string))
        if self.reordered:
            return ""
        if path == self._path:
            if is_string and self._string_open:
                return value
            self.reordered = True
            return ""
        written = self._go_to(path)
        if written is None:
            self.reordered = True
            return ""
        self._path = path
        self._path_text = piece.json_path
        self._string_open = is_string
        self._string_path = self._path_text if is_string else None
        return written + '"' + value if is_string else written + value

    def _leave(self) -> None:
        """More of the current value may have been announced: it must come later then."""
        if self._continues:
            self._announced[self._values[-1][0]] = None

    def end(self) -> str | None:
        self._leave()
        if self._announced and self.broken is None:
            self.broken = f"more of `{_path_text(next(iter(self._announced)))}` was announced and did not come"
        if self.broken is not None:
            return None
        if self.reordered:
            try:
                return _render(_tree(self._values))
            except ValueError as error:
                self.broken = str(error)
                return None
        return self._close(down_to=0) + "}"

    def _go_to(self, path: Path) -> str | None:
        """The text between the value written last and the one at `path`; None where that is not further on."""
        last = self._path
        if not last:
            return self._open(path, begin=0, prefix="")
        common = in_common(path, last)
        if common == min(len(path), len(last)):
            return None  # a value that would have to be a container too
        step, before = path[common], last[common]
        if isinstance(step, int):
            if not isinstance(before, int) or step != before + 1:
                return None
        elif isinstance(before, int) or step in self._seen[common]:
            return None
        return self._open(path, begin=common, prefix=self._close(down_to=common) + ",")

    def _close(self, *, down_to: int) -> str:
        """The ends of the value written last and of its containers below the level `down_to`."""
        ends = ['"'] if self._string_open else []
        ends += ["}" if isinstance(key, str) else "]" for key in reversed(self._path[down_to + 1 :])]
        del self._seen[down_to + 1 :]
        return "".join(ends)

    def _open(self, path: Path, *, begin: int, prefix: str) -> str | None:
        if any(isinstance(key, int) and key for key in path[begin + 1 :]):
            return None
        pieces = [prefix]
        for level in range(begin, len(path)):
            key = path[level]
            if level > begin:
                pieces.append("{" if isinstance(key, str) else "[")
                self._seen.append(set())
            if isinstance(key, str):
                pieces.append(_quoted(key) + ":")
                self._seen[level].add(key)
        return "".join(pieces)


def read_path(text: str) -> Path:
    """The keys and indices of a JSON path; empty where it cannot be read or is too deep."""
    if not text.startswith("$"):
        return ()
    steps: list[Key] = []
    at = 1
    while at < len(text):
        found = _STEP.match(text, at)
        if found is None or len(steps) == MAX_DEPTH:
            return ()
        name, index, single, double = found.groups()
        if index is not None:
            steps.append(int(index))
        elif name is not None:
            steps.append(name)
        else:
            steps.append(re.sub(r"\\(.)", r"\1", single if single is not None else double))
        at = found.end()
    return tuple(steps)


def _escaped(text: str) -> str:
    """The text as it stands in a JSON string."""
    if text.isprintable() and '"' not in text and "\\" not in text:
        return text
    return _quoted(text)[1:-1]


def _quoted(text: str) -> str:
    return msgspec.json.encode(text).decode()


def _value_text(piece: PartialArg) -> str | None:
    """The value as JSON text, a string without its quotes; None where there is none."""
    if piece.string_value is not None:
        return _escaped(piece.string_value)
    if piece.bool_value is not None:
        return "true" if piece.bool_value else "false"
    number = bytes(piece.number_value)
    if _NUMBER.match(number):
        return number.decode()
    return "null" if bytes(piece.null_value) else None


Node = _Leaf | dict[Key, "Node"]


def _tree(values: list[tuple[Path, list[str], bool]]) -> dict[Key, Node]:
    root: dict[Key, Node] = {}
    for path, pieces, is_string in values:
        node = root
        for i in range(len(path) - 1):
            below = node.setdefault(path[i], {})
            if isinstance(below, _Leaf):
                raise ValueError(f"`{_path_text(path[: i + 1])}` is a value and a container")
            if below and isinstance(next(iter(below)), int) != isinstance(path[i + 1], int):
                raise ValueError(f"`{_path_text(path[: i + 1])}` is an object and an array")
            node = below
        there = node.get(path[-1])
        if isinstance(there, _Leaf) and there.is_string and is_string:
            there.pieces += pieces
        elif isinstance(there, dict):
            raise ValueError(f"`{_path_text(path)}` is a value and a container")
        else:
            node[path[-1]] = _Leaf(pieces, is_string=is_string)
    return root


def _path_text(path: Path) -> str:
    return "$" + "".join([f".{key}" if isinstance(key, str) else f"[{key}]" for key in path])[:80]


def _render(node: Node) -> str:
    """The tree as JSON text. Arrays must have every index from 0 on."""
    if isinstance(node, _Leaf):
        return node.text()
    if not isinstance(next(iter(node), ""), int):
        return "{" + ",".join([_quoted(str(key)) + ":" + _render(below) for key, below in node.items()]) + "}"
    if sorted(node, key=int) != list(range(len(node))):
        raise ValueError("an array has a gap")
    return "[" + ",".join([_render(node[i]) for i in range(len(node))]) + "]"
