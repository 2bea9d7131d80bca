"""The structs of the fast paths know every field that means something: derived from the types, so a new field is caught.

A fast struct reads nearly all events. What it has no field for, it passes over without a word, so each field of the whole
struct has to stand in it (and refuse what the fast path does not read), or stand here with the reason why it may be missed.
"""

import json
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, NamedTuple, get_origin

import msgspec
import pytest

from tables import each
from turnwise.testing.wire_conformance import decode_stream
from turnwise.wire import anthropic_messages, openai_responses
from turnwise.wire.anthropic_messages import events as anthropic
from turnwise.wire.anthropic_messages import events as fast_anthropic
from turnwise.wire.family import Family
from turnwise.wire.gemini import chunks as gemini
from turnwise.wire.gemini import stream as fast_gemini
from turnwise.wire.openai_chat import chunks as chat
from turnwise.wire.openai_chat import stream as fast_chat
from turnwise.wire.openai_responses import items as responses
from wire.gemini_streams import PROFILE

# Of every kind that JSON has, and of every kind that a field wants.
SAMPLES: tuple[object, ...] = (
    "x", "", "stop", 0, 1, 7, -1, 1.5, True, False, [], ["x"], [1], [{}], [{"text": "x"}], [{"jsonPath": "$.a"}], {},
    {"a": 1}, {"text": "x"}, {"usage": {"a": 1}}, {"name": "f"}, {"blockReason": "SAFETY"},
)  # fmt: skip


NOTHING: Mapping[str, str] = MappingProxyType({})


class Pair(NamedTuple):
    """A whole struct, the fast one for the same place, a usual value of it, and what the fast one reads otherwise: `inner`
    fields have a pair of their own, `passed_over` ones mean nothing there, for the reason given."""

    whole: type[msgspec.Struct]
    fast: type[msgspec.Struct]
    usual: Mapping[str, object]
    inner: frozenset[str] = frozenset()
    passed_over: Mapping[str, str] = NOTHING


CHAT_CALL = {"index": 0, "function": {"arguments": "{"}}
CHAT_CHOICE = {"index": 0, "delta": {"content": "Hel"}}
HEAD = "the first chunk says it, and that one is never read so"
GEMINI_CALL = {"partialArgs": [{"jsonPath": "$.a", "stringValue": "x"}], "willContinue": True}
GEMINI_CANDIDATE = {"content": {"parts": [{"text": "Hel"}]}}
ITS_OWN_DELTA = "read for the deltas of that kind alone"
ITS_OWN_EVENT = "read for the events of that type alone"
NOT_OF_A_TYPE: dict[str, str] = dict.fromkeys(
    ("citation", "content", "encrypted_content", "stop_details"), ITS_OWN_DELTA
)
NOT_OF_AN_EVENT: dict[str, str] = dict.fromkeys(
    ("content_block", "input_transformations", "message", "usage"), ITS_OWN_EVENT
)


def anthropic_pairs(fast: Any, *, kind: str, key: str) -> list[Pair]:
    more = fast_anthropic.More[fast]
    delta = {"type": kind, key: "Hel"}
    event = {"type": "content_block_delta", "index": 0, "delta": delta}
    return [
        Pair(anthropic.Delta, fast, delta, passed_over=NOT_OF_A_TYPE),
        Pair(anthropic.Event, more, event, inner=frozenset({"delta"}), passed_over=NOT_OF_AN_EVENT),
    ]


PAIRS = {
    "Chat, chunk": Pair(
        chat.Chunk,
        fast_chat.UsualChunk,
        {"choices": [CHAT_CHOICE]},
        inner=frozenset({"choices"}),
        passed_over=dict.fromkeys(("id", "model", "object", "service_tier"), HEAD),
    ),
    "Chat, choice": Pair(
        chat.Choice,
        fast_chat.UsualChoice,
        CHAT_CHOICE,
        inner=frozenset({"delta"}),
        passed_over={"native_finish_reason": "it explains a finish reason, and with one the chunk is not usual"},
    ),
    "Chat, delta": Pair(chat.Delta, fast_chat.UsualDelta, {"content": "Hel"}, inner=frozenset({"tool_calls"})),
    "Chat, call": Pair(chat.CallPiece, fast_chat.UsualCallPiece, CHAT_CALL, inner=frozenset({"function"})),
    "Chat, function": Pair(
        chat.FunctionPiece,
        fast_chat.UsualFunction,
        {"arguments": "{"},
        passed_over={"whole": "ours: the tolerant reading alone sets it"},
    ),
    "Gemini, chunk": Pair(
        gemini.Chunk,
        fast_gemini.UsualChunk,
        {"candidates": [GEMINI_CANDIDATE]},
        inner=frozenset({"candidates"}),
        passed_over=dict.fromkeys(("modelVersion", "responseId"), HEAD),
    ),
    "Gemini, candidate": Pair(
        gemini.Candidate,
        fast_gemini.UsualCandidate,
        GEMINI_CANDIDATE,
        inner=frozenset({"content"}),
        passed_over={"finishMessage": "it explains a finish reason, and with one the chunk is not usual"},
    ),
    "Gemini, content": Pair(
        gemini.Content, fast_gemini.UsualContent, {"parts": [{"text": "Hel"}]}, inner=frozenset({"parts"})
    ),
    "Gemini, part": Pair(gemini.PlainPart, fast_gemini.UsualPart, {"text": "Hel"}, inner=frozenset({"functionCall"})),
    "Gemini, call": Pair(gemini.FunctionCall, fast_gemini.UsualCall, GEMINI_CALL),
    **{
        f"Anthropic, {name} of a {key}": pair
        for fast, kind, key in (
            (fast_anthropic.TextPiece, "text_delta", "text"),
            (fast_anthropic.InputPiece, "input_json_delta", "partial_json"),
            (fast_anthropic.ThinkingPiece, "thinking_delta", "thinking"),
        )
        for name, pair in zip(("delta", "event"), anthropic_pairs(fast, kind=kind, key=key), strict=True)
    },
}


def named(struct: type[msgspec.Struct]) -> dict[str, msgspec.structs.FieldInfo]:
    """The fields of a struct by their name on the wire."""
    return {field.encode_name: field for field in msgspec.structs.fields(struct)}


def read(struct: type[msgspec.Struct], value: Mapping[str, object], *, key: str) -> str | None:
    """What the struct makes of the field; None where it refuses the value."""
    try:
        found = msgspec.json.decode(json.dumps(value), type=struct)
    except msgspec.ValidationError:
        return None
    field = getattr(found, named(struct)[key].name)
    return None if field is None else repr(bytes(field) if isinstance(field, msgspec.Raw) else field)


def refuses_others(struct: type[msgspec.Struct]) -> bool:
    """A field that it does not know makes an event one for the whole struct."""
    found: type[msgspec.Struct] = get_origin(struct) or struct
    return found.__struct_config__.forbid_unknown_fields


@pytest.mark.promise("assembly:split-anywhere", "assembly:kinds")
@each("pair", PAIRS.values(), ids=PAIRS.keys())
def test_a_fast_struct_has_every_field_or_says_why_not(pair: Pair) -> None:
    """Each field of the whole struct stands in the fast one, has a pair of its own, or a reason; and no reason is stale."""
    whole, fast = named(pair.whole), named(pair.fast)
    missing = set[str]() if refuses_others(pair.fast) else whole.keys() - fast.keys()
    assert missing == pair.passed_over.keys()
    assert fast.keys() <= whole.keys() and pair.inner <= fast.keys()
    assert read(pair.fast, pair.usual, key=next(iter(pair.usual))) is not None, "the usual value is usual"


@pytest.mark.promise("assembly:split-anywhere", "assembly:kinds")
@each("pair", PAIRS.values(), ids=PAIRS.keys())
def test_a_fast_struct_refuses_what_it_would_read_otherwise(pair: Pair) -> None:
    """Whatever a field holds: the fast struct reads the same as the whole one, or refuses the event."""
    for key in named(pair.whole).keys() - pair.inner - pair.passed_over.keys():
        for sample in SAMPLES:
            value = {**pair.usual, key: sample}
            quick = read(pair.fast, value, key=key)
            assert quick is None or quick == read(pair.whole, value, key=key), (key, sample)


def chunk_of_chat(**fields: object) -> dict[str, object]:
    return {"choices": [CHAT_CHOICE], **fields}


@pytest.mark.parametrize(
    ("decode", "usual", "more"),
    [
        (fast_chat.decode_usual, chunk_of_chat(), {"x_groq": {"usage": {"prompt_tokens": 1}}}),
        (fast_chat.decode_usual, chunk_of_chat(), {"citations": ["https://a"]}),
        (fast_gemini.decode_usual, {"candidates": [GEMINI_CANDIDATE]}, {"promptFeedback": {"blockReason": "SAFETY"}}),
    ],
)
def test_a_chunk_that_says_more_is_not_usual(
    decode: Callable[[bytes], object], usual: dict[str, object], more: dict[str, object]
) -> None:
    """Examples, as providers send them."""
    decode(json.dumps(usual).encode())
    with pytest.raises(msgspec.ValidationError):
        decode(json.dumps({**usual, **more}).encode())


def anthropic_events(extra: dict[str, object], *, kind: str, key: str) -> tuple[list[object], list[object]]:
    block = {"text": {"type": "text", "text": ""}, "thinking": {"type": "thinking", "thinking": ""}}
    call = {"type": "tool_use", "id": "call_1", "name": "write", "input": {}}
    delta = {"type": kind, key: "Hel"}
    usual = {"type": "content_block_delta", "index": 0, "delta": delta}
    inner = {name: value for name, value in extra.items() if name in named(anthropic.Delta)}
    outer = {name: value for name, value in extra.items() if name not in inner}
    odd = {"type": "content_block_delta", "index": 0, "delta": {**delta, **inner}, **outer}
    begun: list[object] = [
        {"type": "message_start", "message": {"id": "m", "model": "m", "usage": {"input_tokens": 1}}},
        {"type": "content_block_start", "index": 0, "content_block": block.get(key, call)},
    ]
    return begun, [usual, usual, odd, usual, usual]


def responses_events(extra: dict[str, object], *, kind: str, key: str) -> tuple[list[object], list[object]]:
    item = {"type": "function_call", "id": "fc", "call_id": "call_1", "name": "write", "arguments": ""}
    message = {"type": "message", "id": "msg", "role": "assistant", "content": []}
    usual = {"type": kind, "output_index": 0, "content_index": 0, key: "Hel", "item_id": "fc"}
    begun: list[object] = [
        {"type": "response.created", "response": {"id": "r", "model": "m"}},
        {"type": "response.output_item.added", "output_index": 0, "item": item if "arguments" in kind else message},
    ]
    return begun, [usual, usual, {**usual, **extra}, usual, usual]


Events = Callable[..., tuple[list[object], list[object]]]
RUNS: list[tuple[Family, Events, str, str, list[str]]] = [
    *[
        (anthropic_messages.FAMILY, anthropic_events, kind, key, [*named(anthropic.Delta), *NOT_OF_AN_EVENT])
        for kind, key in (("text_delta", "text"), ("input_json_delta", "partial_json"), ("thinking_delta", "thinking"))
    ],
    *[
        (openai_responses.FAMILY, responses_events, kind, "delta", [*named(responses.Delta), "item_id"])
        for kind in ("response.output_text.delta", "response.function_call_arguments.delta")
    ],
]


@pytest.mark.promise("assembly:split-anywhere")
@pytest.mark.parametrize(("family", "events", "kind", "key", "fields"), RUNS, ids=[run[2] for run in RUNS])
def test_a_run_of_deltas_reads_each_field_as_an_event_alone_does(
    family: Family, events: Events, kind: str, key: str, fields: list[str]
) -> None:
    """Every field that the decoder knows, with a value of every kind, in an event in the middle of a run: the frames are
    those of one event at a time, in which the whole struct reads it. Anthropic's `type` and `index` are among them."""
    for field in [*fields, "index", "an_unknown_field"]:
        for sample in (*SAMPLES, None):
            begun, run = events({field: sample}, kind=kind, key=key)
            lines = [b"data: " + json.dumps(event).encode() + b"\n\n" for event in [*begun, *run]]
            at_once = decode_stream(family, [*lines[:2], b"".join(lines[2:])], profile=PROFILE)
            alone = decode_stream(family, lines, profile=PROFILE)
            assert at_once == alone, (field, sample)


def test_every_struct_of_a_fast_path_has_a_pair() -> None:
    """A new one is found by its name, so that it cannot be forgotten here."""
    fast: set[Any] = {
        struct
        for module in (fast_chat, fast_gemini)
        for name, struct in vars(module).items()
        if name.startswith("Usual") and isinstance(struct, type)
    }
    fast |= set(fast_anthropic.PieceKind.__constraints__)
    assert fast <= {pair.fast for pair in PAIRS.values()}
