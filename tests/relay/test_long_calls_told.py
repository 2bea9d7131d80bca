"""A call whose arguments are longer than a call may be is a part of its response, for the library: the others are whole, and the
turn goes on (docs/limits.md, "Calls of one response"). A client of the gateway gets an error."""

import json
from collections.abc import Sequence

import pytest

from journal.test_prices_of_nothing import NO_ENTRY, ROWS
from relay.test_early_words import FAMILY_PROFILES, told
from tables import each
from turnwise.assembly.response_reading import ResponseReader, read_body
from turnwise.journal.ledger import ReceivedResponse, ended_entry
from turnwise.relay.client_exchange import RelayEnd
from turnwise.vocab import (
    TOO_LONG,
    ArgumentsState,
    BlockEnded,
    Finished,
    FinishReason,
    Frame,
    Message,
    Request,
    Response,
    Started,
    Text,
    ToolCall,
    ToolCallDelta,
    Usage,
    UsageReported,
    calls_of,
)
from turnwise.wire.family import family
from turnwise.wire.profiles import Limits, builtin_profiles
from whole_streams import read_stream

KiB = 1024
LIMITS = Limits(line_bytes=64 * KiB, call_bytes=64 * KiB, tells_long_calls=True)
LONG, SHORT = json.dumps({"text": "x\n" * 64 * KiB}), '{"path":"a"}'
ASKED = Request(model="m", messages=(Message("user", (Text("go"),)),), stream=True)
USAGE = Usage(input_tokens=1, output_tokens=50_000)
NAMES = frozenset({"put", "look"})


def call_frames(n: int, name: str, pieces: Sequence[str]) -> list[Frame]:
    frames: list[Frame] = [ToolCallDelta(block=f"{n}", index=n, id=f"c{n}", name=name, arguments=pieces[0])]
    frames += [ToolCallDelta(block=f"{n}", index=n, arguments=piece) for piece in pieces[1:]]
    return [*frames, BlockEnded(f"{n}")]


def streamed(name: str, *, in_pieces: bool, long_first: bool) -> bytes:
    size = 16 * KiB if in_pieces else len(LONG)
    pieces = [LONG[at : at + size] for at in range(0, len(LONG), size)]
    calls = [("put", pieces), ("look", [SHORT])]
    frames: list[Frame] = [Started(id="r", model="m")]
    for n, (tool, said) in enumerate(calls if long_first else calls[::-1]):
        frames += call_frames(n, tool, said)
    frames += [UsageReported(USAGE), Finished(FinishReason.TOOL_CALLS, None)]
    encoder = family(name).stream_encoder(ASKED)
    return b"".join([*map(encoder.encode, frames), encoder.finish()])


def body(name: str, *, long_first: bool) -> bytes:
    calls = [ToolCall(id="c0", name="put", arguments=LONG), ToolCall(id="c1", name="look", arguments=SHORT)]
    message = Message("assistant", tuple(calls if long_first else calls[::-1]))
    response = Response(message=message, finish=FinishReason.TOOL_CALLS, usage=USAGE, id="r", model="m")
    return family(name).encode_body(response, ASKED)


def read(name: str, data: bytes, *, way: str, portion: int = 700) -> Response:
    profile = builtin_profiles()[FAMILY_PROFILES[name]]
    if way == "body":
        return read_body(data, family=family(name), profile=profile, limits=LIMITS, tool_names=NAMES)[0]
    reader = ResponseReader(family(name), profile=profile, limits=LIMITS, tool_names=NAMES)
    for at in range(0, len(data), portion):
        reader.feed(data[at : at + portion])
        if reader.faulted:
            break
    return reader.finish()


def states(response: Response) -> dict[str, tuple[str, bool]]:
    """By tool: the arguments, and whether they are complete."""
    return {one.name: (one.arguments, one.state is ArgumentsState.COMPLETE) for one in calls_of(response.message)}


@pytest.mark.promise("assembly:bounded", "cut:never-run")
@each("long_first", [False, True])
@each("way", ["pieces", "one", "body"])
@each("name", FAMILY_PROFILES)
def test_a_call_past_its_limit_is_told_and_the_others_are_whole(name: str, way: str, long_first: bool) -> None:
    """Proves: no fault, the long call invalid and named, and a call before it complete, in four families. A call behind it is
    complete where the stream can be read on: its pieces are dropped one by one. Where one line holds it all, the stream ends."""
    data = (
        body(name, long_first=long_first)
        if way == "body"
        else streamed(name, in_pieces=way == "pieces", long_first=long_first)
    )
    for portion in (700, 7_000, len(data)):
        response = read(name, data, way=way, portion=portion)
        assert (response.fault, response.finish, response.lost) == (None, FinishReason.TOOL_CALLS, False)
        found = states(response)
        assert found.pop("put") == ("{}", False)
        [reason] = [one.reason for one in calls_of(response.message) if one.name == "put"]
        assert reason == f"{TOO_LONG}: {64 * KiB:,} bytes"
        reads_on = way == "body" or (way == "pieces" and name in ("openai_chat", "anthropic_messages"))
        assert found in ([{"look": (SHORT, True)}] if reads_on or not long_first else [{}, {"look": (SHORT, True)}])
        if reads_on:
            assert response.usage is not None and response.usage.output_tokens == 50_000
        else:
            received = ReceivedResponse(response=response)
            entry = ended_entry(NO_ENTRY, received, ended=1.0, row=ROWS["tokens"], billed_in_step=0)
            assert entry.usd is None


@pytest.mark.promise("assembly:bounded")
@pytest.mark.parametrize("name", FAMILY_PROFILES)
def test_a_client_of_the_gateway_gets_an_error_for_a_call_past_its_limit(name: str) -> None:
    """Proves: the stream ends in one error that names the limit, and no client reads the call as complete."""
    data = streamed(name, in_pieces=True, long_first=True)
    events = [data[at : at + 8 * KiB] for at in range(0, len(data), 8 * KiB)]
    found = told(name, events, early=False, bounds=Limits(line_bytes=64 * KiB, call_bytes=64 * KiB))
    assert isinstance(found.end, RelayEnd) and found.end.fault is not None
    assert "longer than 65536 bytes" in found.end.fault.message
    profile = builtin_profiles()[FAMILY_PROFILES[name]]
    client = read_stream([found.out], family=family(name), profile=profile, tool_names=NAMES)
    assert not any(complete for _, complete in states(client).values())
