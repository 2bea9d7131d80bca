"""The chunks of a response as typed values: what a stream sends piece by piece, and a body at once.

Three ways in, each taken only when the one before failed: `PLAIN` knows the parts of nearly all chunks; `read_slowly` keeps
each part as raw JSON; `mend` reads what is no valid JSON, or has fields of the wrong type.
"""

from typing import Generic, TypeVar

import msgspec

from turnwise.vocab import Frame, Lost, Mended, Repair
from turnwise.wire.gemini.fields import read_fields
from turnwise.wire.healing import LINE_END_LOST, breaks_strings, has_lone_surrogate, read_damaged, skipped, write_value
from turnwise.wire.json_fields import NOTHING, UNREADABLE, write_object
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
