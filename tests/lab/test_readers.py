"""The lab's two readers: what a client that believes everything makes of a stream, and one that takes nothing unusual."""

import json

import msgspec
import pytest

from tables import each
from turnwise.lab import Script, builtin_scripts, families
from turnwise.lab.families import Route
from turnwise.lab.families.family import BrokenRule
from turnwise.lab.gateway_check import (
    HEALTHY_CASES,
    HOPELESS_CASES,
    SILENT_CASES,
    all_cases,
    checked_cases,
    difference,
    malformed_cases,
    meaning_of,
    told_error,
)
from turnwise.lab.provider import Provider
from turnwise.testing.frames import frames_of
from turnwise.vocab import FinishReason, Message, Request, Response, Settings, Text, ToolCall, ToolSpec, Usage
from turnwise.wire.family import family
from turnwise.wire.profiles import builtin_profiles

FAMILIES = ("openai_chat", "openai_responses", "anthropic_messages", "gemini")
SCRIPTS = builtin_scripts()
# What the strict reader lets pass of the malformed streams of Chat Completions: the API's own rules allow them.
ALLOWED = {
    "comments",
    "empty-later",
    "id-first-only",
    "id-reused",
    "interleaved",
    "script-read-edit-test",
    "script-step-by-step",
    "script-ten-reads",
    "two-in-one",
    "whole-in-one",
}


def stream_of(script: Script, *, name: str) -> bytes:
    """What the lab sends to a client of this family."""
    profile = next(one for one in builtin_profiles().values() if one.family == name)
    tools = tuple([ToolSpec(name=one, parameters='{"type":"object"}') for one in ("read", "list", "note", "write")])
    request = Request(
        model=script.name,
        messages=(Message("user", (Text("Please. Begin with part-001.txt"),)),),
        tools=tools,
        stream=True,
        settings=Settings(max_output_tokens=6_000),
    )
    call = family(name).encode_request(request, profile)
    route = Route(family=name, model=script.name, streams=True)
    target = f"{call.path}?alt=sse" if name == "gemini" and "alt=sse" not in call.path else call.path
    outgoing, _ = Provider(scripts=SCRIPTS).answer(route, target=target, body=call.body, number=1)
    return b"".join(outgoing.pieces)


def raises(body: bytes, *, name: str) -> str:
    try:
        families.FAMILIES[name].read_strictly(body)
    except BrokenRule as broken:
        return str(broken)
    return ""


@each("name", FAMILIES)
@each("case", HEALTHY_CASES)
def test_both_readers_take_healthy_streams(case: str, name: str) -> None:
    """Text, calls and finish as the script means them."""
    body, meant = stream_of(SCRIPTS[case], name=name), meaning_of(SCRIPTS[case])
    for reading in (families.FAMILIES[name].read_strictly(body), families.FAMILIES[name].read_naively(body)):
        assert difference(reading, meant, has_ids=name != "gemini") == ""


def test_the_strict_reader_notices_what_the_api_would_not_send() -> None:
    """Of the malformed streams it takes only those that Chat Completions allows, and reads them right."""
    taken = [
        case
        for case in malformed_cases()
        if not raises(stream_of(SCRIPTS[case], name="openai_chat"), name="openai_chat")
    ]
    assert set(taken) == ALLOWED
    for case in taken:
        reading = families.FAMILIES["openai_chat"].read_strictly(stream_of(SCRIPTS[case], name="openai_chat"))
        assert difference(reading, meaning_of(SCRIPTS[case]), has_ids=True) == ""


def test_the_naive_reader_falls_for_shared_and_missing_indexes() -> None:
    """One call where two were meant, names that are added up, and a crash where it looks for the index."""

    def of(case: str) -> list[tuple[str, str, str]]:
        return [*families.FAMILIES["openai_chat"].read_naively(stream_of(SCRIPTS[case], name="openai_chat")).calls]

    assert len(of("shared-index")) == 1
    assert [name for _, name, _ in of("whole-again")] == ["readread"]
    with pytest.raises(msgspec.ValidationError, match="index"):
        of("no-index")


def test_every_case_but_the_hopeless_has_a_meaning() -> None:
    """What nothing right can be had of is listed, with its reason."""
    assert {case for case in all_cases() if meaning_of(SCRIPTS[case]) is None} == set(HOPELESS_CASES)


def test_every_failure_of_the_lab_is_a_case() -> None:
    """A script that is added is tried, too."""
    failures = {name for name in SCRIPTS if name.startswith("fault-")}
    assert failures == {name for name in (*checked_cases(), *SILENT_CASES) if name.startswith("fault-")}


def written(name: str) -> bytes:
    """A healthy answer with a text and two calls."""
    calls = tuple(
        [
            ToolCall(id=f"call_{number}", name="read", arguments=f'{{"path":"{path}"}}')
            for number, path in ((1, "a"), (2, "b"))
        ]
    )
    response = Response(
        message=Message("assistant", (Text("Both."), *calls)),
        finish=FinishReason.TOOL_CALLS,
        usage=Usage(input_tokens=1, output_tokens=2),
        id="r1",
        model="m",
    )
    encoder = family(name).stream_encoder(Request(model="m", messages=(), stream=True))
    return b"".join([*[encoder.encode(frame) for frame in frames_of(response)], encoder.finish()])


CHAT_END = b"data: [DONE]\n\n"
BROKEN = [
    ("openai_chat", b'"name":"read"', b'"name":""', "a call begins without a name"),
    ("openai_chat", CHAT_END, b"", "the stream ends without `[DONE]`"),
    ("openai_chat", CHAT_END, CHAT_END + CHAT_END, "something follows `[DONE]`"),
    ("openai_chat", b'"finish_reason":"tool_calls"', b'"finish_reason":"stop"', "is `stop`, and the answer has 2 calls"),
    ("openai_chat", b'"finish_reason":"tool_calls"', b'"finish_reason":null', "the stream has no finish reason"),
    ("openai_chat", b'{\\"path\\":\\"b\\"}', b"[]", "arguments are no object: `[]`"),
    ("openai_chat", b'"call_2"', b'"call_1"', "two calls have one id"),
    ("openai_chat", b"data: {", b"dat: {", "a line is no field of server-sent events: `dat: {"),
    ("openai_responses", b'"call_id":"call_2"', b'"call_id":"call_1"', "two calls have one id"),
    ("openai_responses", b'"sequence_number":3', b'"sequence_number":2', "the sequence numbers do not rise"),
    ("openai_responses", b'"type":"response.completed"', b'"type":"response.ended"', "is named"),
    ("openai_responses", b'"delta":"Both."', b'"delta":"Bot"', "the pieces and the whole that ends them differ"),
    ("anthropic_messages", b'"stop_reason":"tool_use"', b'"stop_reason":"end_turn"', "is `end_turn`, and the message has 2"),
    ("anthropic_messages", b'"index":2', b'"index":1', "a block has index 1, and 2 is the next"),
    ("anthropic_messages", b"event: message_stop\n", b"", "an event of type `message_stop` is named ``"),
    ("anthropic_messages", b'"input":{}', b'"input":{"path":"a"}', "a call does not begin with an empty input"),
    ("gemini", b'"finishReason":"STOP"', b'"finishReason":"DONE"', "there is no finish reason `DONE`"),
    ("gemini", b'"id":"call_2"', b'"id":"call_1"', "two calls have one id"),
    ("gemini", b'"args":{"path":"b"}', b'"args":"{}"', "Expected `object`, got `str`"),
]  # fmt: skip


@each(("name", "old", "new", "says"), BROKEN)
def test_the_strict_reader_says_which_rule_is_broken(name: str, old: bytes, new: bytes, says: str) -> None:
    """One change to a healthy answer each."""
    body = written(name)
    assert raises(body, name=name) == ""
    assert old in body
    assert says in raises(body.replace(old, new), name=name)


@pytest.mark.parametrize("name", FAMILIES)
def test_a_stream_that_stops_is_no_answer(name: str) -> None:
    """Cut between two events, at each place: the strict reader raises, the naive one has no end."""
    events = written(name).split(b"\n\n")[:-1]
    for count in range(len(events) - 1 - (name == "openai_chat")):
        body = b"".join([event + b"\n\n" for event in events[:count]])
        assert raises(body, name=name)
        is_told = name in ("openai_chat",) and b'"finish_reason":"tool_calls"' in body
        assert families.FAMILIES[name].read_naively(body).ended is is_told


@pytest.mark.parametrize(
    ("body", "told"),
    [
        ({"error": {"message": "no"}}, "no"),
        ({"type": "error", "error": {"type": "api_error", "message": "no"}}, "no"),
        ([{"error": {"code": 500, "message": "no", "status": "INTERNAL"}}], "no"),
        ([], None),
        ({"detail": "Not Found"}, None),
        ({"error": "no"}, None),
    ],
)
def test_an_error_has_its_familys_shape(body: object, told: str | None) -> None:
    """What another server says of an error is none."""
    assert told_error(json.dumps(body).encode()) == told
