"""One request against a script: what comes back as its event, and what does not."""

import asyncio
import json

import msgspec
import pytest

from tables import each
from turnwise.base.clock import SystemClock
from turnwise.endpoints.endpoints import Endpoint, Secret, build_http_request
from turnwise.endpoints.exchange import AFTER_FINISH_S, ERROR_S, Exchange
from turnwise.running.watcher_events import FrameSeen
from turnwise.testing import FakeClock, Reply, ScriptedTransport, Stall
from turnwise.turn.config import Deadlines
from turnwise.turn.events import RequestFailed, ResponseReceived, SendRequest
from turnwise.vocab import Fault, FaultKind, Frame, Message, Request, Text, calls_of
from turnwise.wire.profiles import builtin_profiles
from waits import HANG_S

KEY = "tw-none-of-the-masked-forms-0123"  # no `sk-`, which the decoders hide by themselves
ESCAPED = "".join([f"\\u{ord(character):04x}" for character in KEY])
FAMILIES = ["openai_chat", "openai_responses", "anthropic_messages", "gemini"]
JSON = {"content-type": "application/json"}

# An error in the middle of a stream, with the key in every field that may hold a text.
IN_STREAM = {
    "openai_chat": '{"error":{"message":"no KEY","code":"KEY","type":"KEY"}}',
    "openai_responses": '{"type":"response.failed","response":{"id":"KEY","model":"KEY","status":"failed","error":{"code":"KEY",'
    '"message":"no KEY"}}}',
    "anthropic_messages": '{"type":"error","error":{"type":"KEY","message":"no KEY"},"request_id":"KEY"}',
    "gemini": '{"error":{"code":503,"message":"no KEY","status":"KEY"}}',
}
BEGINNING = 'data: {"choices":[{"index":0,"delta":{"content":"Hel"}}]}\n\n'


async def exchanged(
    reply: Reply,
    *,
    family: str = "openai_chat",
    stream: bool = True,
    clock: FakeClock | None = None,
    deadlines: Deadlines = Deadlines(),  # noqa: B008 (frozen)
) -> tuple[ResponseReceived | RequestFailed, list[Frame]]:
    endpoint = Endpoint(profile=builtin_profiles()[family], base_url="http://x", key=Secret(KEY))
    request = Request(model="m", messages=(Message("user", (Text("hi"),)),), stream=stream)
    order = SendRequest(number=1, step=1, purpose="step", request=request, deadlines=deadlines)
    call = endpoint.family.encode_request(request, endpoint.profile)
    frames: list[Frame] = []
    exchange = Exchange(
        order,
        endpoint=endpoint,
        transport=ScriptedTransport([reply]),
        clock=clock or SystemClock(),
        on_frames=frames.extend,
    )
    return await exchange.run(build_http_request(endpoint, call, connect_s=1)), frames


def assert_hidden(event: ResponseReceived | RequestFailed, frames: list[Frame]) -> Fault:
    seen = [FrameSeen(1, frame) for frame in frames]
    assert KEY not in msgspec.json.encode((event, seen)).decode()
    assert KEY not in repr((event, seen))
    fault = event.fault if isinstance(event, RequestFailed) else event.response.fault
    assert fault is not None
    return fault


@each("written", [KEY, ESCAPED], ids=["plain", "escaped"])
@each("family", FAMILIES)
async def test_key_in_an_error_of_the_stream_is_hidden_in_every_field(family: str, written: str) -> None:
    """From the event (so from the journal) and from the frames that watchers see."""
    pieces = (f"data: {IN_STREAM[family].replace('KEY', written)}\n\n".encode(),)
    fault = assert_hidden(*await exchanged(Reply(pieces=pieces), family=family))
    assert fault.message == "no ***"


async def test_key_in_an_error_after_content_is_hidden() -> None:
    """What had come before is kept, so the event is another one."""
    pieces = (BEGINNING.encode(), f"data: {IN_STREAM['openai_chat'].replace('KEY', KEY)}\n\n".encode())
    event, frames = await exchanged(Reply(pieces=pieces))
    assert isinstance(event, ResponseReceived) and event.response.message.parts == (Text("Hel"),)
    assert assert_hidden(event, frames).message == "no ***"


async def test_key_in_the_partial_of_a_broken_stream_is_hidden() -> None:
    """The id of the response, and words about its end."""
    beginning = {"id": KEY, "model": KEY, "choices": [{"index": 0, "delta": {"content": "Hel"}}]}
    broken = Fault(kind=FaultKind.DISCONNECTED, message=f"gone {KEY}")
    pieces = (f"data: {json.dumps(beginning)}\n\n".encode(), broken)
    event, frames = await exchanged(Reply(pieces=pieces))
    assert assert_hidden(event, frames) == Fault(kind=FaultKind.DISCONNECTED, message="gone ***")
    assert isinstance(event, RequestFailed) and event.partial is not None
    assert (event.partial.id, event.partial.model) == ("***", "***")


@each("written", [KEY, ESCAPED], ids=["plain", "escaped"])
@each("family", FAMILIES)
async def test_key_in_an_error_response_is_hidden_in_every_field(family: str, written: str) -> None:
    """Body and headers."""
    error = f'{{"error":{{"message":"no {written}","code":"{written}","type":"{written}","status":"{written}"}}}}'
    headers = dict.fromkeys(("x-request-id", "request-id", "x-goog-request-id"), KEY) | JSON
    event, frames = await exchanged(Reply(status=400, headers=headers, pieces=(error.encode(),)), family=family)
    assert_hidden(event, frames)


@pytest.mark.parametrize("family", FAMILIES)
async def test_key_is_hidden_before_an_error_is_cut_short(family: str) -> None:
    """Half a key at the end of 2000 characters would be found by nobody."""
    for length in range(1960, 2001):
        body = json.dumps({"error": {"message": "x" * length + KEY}}).encode()
        event, _ = await exchanged(Reply(status=400, headers=JSON, pieces=(body,)), family=family)
        assert KEY[:8] not in repr(event)


@each("stream", [True, False])
@each("family", FAMILIES)
async def test_key_in_what_is_no_response_is_hidden(family: str, stream: bool) -> None:
    """A 200 with a login page that shows the request."""
    page = f"<html>your header was {KEY}</html>".encode()
    event, frames = await exchanged(
        Reply(headers={"content-type": "text/html"}, pieces=(page,)), family=family, stream=stream
    )
    assert_hidden(event, frames)


async def test_key_in_the_word_for_the_end_is_hidden() -> None:
    """`finish_reason` is free text to some gateways."""
    chunk = {"choices": [{"index": 0, "delta": {"content": "Hel"}, "finish_reason": f"error: {KEY}"}]}
    event, frames = await exchanged(Reply(pieces=(f"data: {json.dumps(chunk)}\n\n".encode(),)))
    assert KEY not in repr((event, frames)) and "error: ***" in repr((event, frames))


@pytest.mark.promise("wait:retry")
@pytest.mark.parametrize("said", [b"", b'{"error":{"message":"come back later"}}'])
async def test_error_whose_body_stalls_keeps_its_status_and_waiting_time(said: bytes) -> None:
    """A status is enough to retry by; it is no timeout of ours."""
    clock = FakeClock()
    reply = Reply(status=503, headers={"retry-after": "7"} | JSON, pieces=(said, Stall()))
    exchanging = asyncio.create_task(exchanged(reply, clock=clock))
    await clock.until_waiting(ERROR_S)
    await clock.advance(ERROR_S)
    event, _ = await asyncio.wait_for(exchanging, HANG_S)
    assert isinstance(event, RequestFailed)
    assert (event.fault.kind, event.fault.status, event.fault.retry_after_s) == (FaultKind.OVERLOADED, 503, 7)
    assert ("come back later" in event.fault.message) == bool(said)


WHOLE = b'{"id":"c","choices":[{"index":0,"message":{"role":"assistant","content":"Hi."},"finish_reason":"stop"}]}'


@pytest.mark.promise("wait:stream")
@pytest.mark.parametrize("pieces", [(WHOLE,), (WHOLE[:60], WHOLE[60:], b"\n")], ids=["one", "several"])
async def test_a_whole_body_on_a_connection_left_open_is_taken(pieces: tuple[bytes, ...]) -> None:
    """Proves: five seconds of silence behind the end of its JSON are enough, in place of the deadline for all of it."""
    clock = FakeClock()
    running = asyncio.create_task(
        exchanged(Reply(headers=JSON, pieces=(*pieces, Stall())), stream=False, clock=clock), name="exchange"
    )
    await clock.until_waiting(AFTER_FINISH_S)
    await clock.advance(AFTER_FINISH_S)
    event, _ = await asyncio.wait_for(running, HANG_S)
    assert isinstance(event, ResponseReceived)
    assert event.response.message.parts == (Text("Hi."),)


@pytest.mark.promise("wait:stream")
async def test_a_body_that_pauses_where_it_could_end_is_waited_for() -> None:
    """Proves: a bracket at the end of a piece is no end; what comes after the silence still counts."""
    clock, more = FakeClock(), asyncio.Event()
    place = WHOLE.index(b"}]}") + 1
    reply = Reply(headers=JSON, pieces=(WHOLE[:place], Stall(until=more), WHOLE[place:]))
    running = asyncio.create_task(exchanged(reply, stream=False, clock=clock), name="exchange")
    await clock.until_waiting(AFTER_FINISH_S)
    await clock.advance(AFTER_FINISH_S + 1)
    assert not running.done()
    more.set()
    event, _ = await asyncio.wait_for(running, HANG_S)
    assert isinstance(event, ResponseReceived)
    assert event.response.message.parts == (Text("Hi."),)


async def test_a_connection_that_breaks_behind_a_whole_body_loses_nothing() -> None:
    """Proves: as with a stream whose finish reason has come, it is no failure; before its end it is one."""
    gone = Fault(kind=FaultKind.DISCONNECTED, message="gone")
    event, _ = await exchanged(Reply(headers=JSON, pieces=(WHOLE, gone)), stream=False)
    assert isinstance(event, ResponseReceived)
    event, _ = await exchanged(Reply(headers=JSON, pieces=(WHOLE[:-1], gone)), stream=False)
    assert event == RequestFailed(number=1, fault=gone)


@pytest.mark.promise("wait:stream")
async def test_blanks_behind_a_whole_body_are_no_sign_of_more() -> None:
    """Proves: keep-alives do not put off the end, and a value that was not whole is looked at once."""
    clock, more = FakeClock(), asyncio.Event()
    reply = Reply(headers=JSON, pieces=(WHOLE, Stall(until=more), b" ", Stall()))
    running = asyncio.create_task(exchanged(reply, stream=False, clock=clock), name="exchange")
    await clock.until_waiting(AFTER_FINISH_S)
    await clock.advance(AFTER_FINISH_S - 1)
    more.set()
    await clock.until_waiting(1.0)
    await clock.advance(1.0)
    event, _ = await asyncio.wait_for(running, HANG_S)
    assert isinstance(event, ResponseReceived)
    assert event.response.message.parts == (Text("Hi."),)


BEGUN = {
    "openai_chat": BEGINNING,
    "openai_responses": 'data: {"type":"response.created","response":{"id":"r","model":"m"}}\n\n',
    "anthropic_messages": 'data: {"type":"message_start","message":{"id":"a","model":"m"}}\n\n',
    "gemini": 'data: {"candidates":[{"index":0,"content":{"role":"model","parts":[{"text":"Hel"}]}}]}\n\n',
}
SAYS_NOTHING = (
    ": keep-alive",
    "data:",
    "data: ",
    "event: ping",
    "event: content_block_delta\ndata:",
    "event: content_block_stop\ndata: {}",
    "data: {}",
    "data: null",
    "data: 1",
    "data: []",
    "data: ping",
    "data: {broken",
    'data: {"type":"ping"}',
    'data: {"type":"unheard.of"}',
)
EMPTY_PIECES = (  # as the first event each of them begins a response
    'data: {"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":""}}',
    'data: {"type":"response.output_text.delta","output_index":0,"content_index":0,"delta":""}',
    'data: {"choices":[{"index":0,"delta":{"content":""}}]}',
    'data: {"candidates":[{"index":0,"content":{"parts":[{"text":""}]}}]}',
)


@pytest.mark.promise("wait:stream")
@each("begun", [True, False], ids=["begun", "not begun"])
@each("family", FAMILIES)
async def test_events_that_say_nothing_are_no_sign_of_life(family: str, begun: bool) -> None:
    """Proves: keep-alives, empty events and what cannot be read renew no deadline, each API's own empty pieces included."""
    clock, deadlines = FakeClock(), Deadlines()
    within_s = deadlines.idle_s if begun else builtin_profiles()[family].first_event_s
    for nothing in (*SAYS_NOTHING, *EMPTY_PIECES) if begun else SAYS_NOTHING:
        more = asyncio.Event()
        start = (BEGUN[family].encode(),) if begun else ()
        pieces = (*start, Stall(until=more), f"{nothing}\n\n".encode(), f"{nothing}\n\n".encode(), Stall())
        running = asyncio.create_task(exchanged(Reply(pieces=pieces), family=family, clock=clock), name="exchange")
        await clock.until_waiting(within_s)
        await clock.advance(within_s - 1.0)
        more.set()
        await clock.advance(1.0)
        assert running.done(), nothing
        event, _ = await running
        assert isinstance(event, RequestFailed)
        what = "next event" if begun else "first event"
        expected = f"the provider was silent: no {what} within {within_s:g} s"
        assert (event.fault.kind, event.fault.message) == (FaultKind.TIMEOUT, expected), nothing


@pytest.mark.promise("wait:stream")
async def test_endless_blanks_where_a_body_or_a_stream_may_begin_are_bounded() -> None:
    """Proves: they are read as a stream, which has its limits, and not gathered without an end."""
    event, _ = await asyncio.wait_for(exchanged(Reply(headers=JSON, pieces=((b" " * 65_536,) * 2_000))), HANG_S)
    fault = event.fault if isinstance(event, RequestFailed) else event.response.fault
    assert fault is not None and fault.kind is FaultKind.TOO_LARGE


STOPPED = (
    b'data: {"type":"message_start","message":{"id":"a","model":"m"}}\n\n'
    b'data: {"type":"content_block_start","index":0,"content_block":{"type":"tool_use","id":"t","name":"read","input":{}}}\n\n'
    b'data: {"type":"content_block_delta","index":0,"delta":{"type":"input_json_delta","partial_json":"{\\"path\\":"}}\n\n',
    b'data: {"type":"content_block_delta","index":0,"delta":{"type":"input_json_delta","partial_json":"1}"}}\n\n'
    b'data: {"type":"content_block_stop","index":0}\n\n',
)
KEEP_ALIVE = b": keep-alive\n\n"


async def closed_after(
    *pieces: bytes | Stall | Fault,
    advance: tuple[float, ...],
    more: asyncio.Event,
    deadlines: Deadlines = Deadlines(),  # noqa: B008 (frozen)
) -> list[bool]:
    """Whether the exchange had ended after each of these times; `more` is set after the first. The last has to be an end."""
    clock = FakeClock()
    reply = Reply(pieces=pieces)
    running = asyncio.create_task(exchanged(reply, family="anthropic_messages", clock=clock, deadlines=deadlines))
    await asyncio.wait_for(clock.until_waiting(deadlines.left_open_s), HANG_S)
    ends: list[bool] = []
    for seconds in advance:
        await clock.advance(seconds)
        ends.append(running.done())
        more.set()
    event, _ = await asyncio.wait_for(running, HANG_S)
    assert isinstance(event, ResponseReceived), event
    assert [one.kind for one in event.response.repairs] == ["left_open"]
    assert event.response.is_closed and [call.arguments for call in calls_of(event.response.message)] == ['{"path":1}']
    return ends


@pytest.mark.promise("wait:stream")
async def test_a_response_that_only_lacks_its_finish_reason_is_taken_after_five_seconds() -> None:
    """Proves: counted from the last byte, a keep-alive included; other silences are as long as they were."""
    never = asyncio.Event()
    assert await closed_after(*STOPPED, Stall(), advance=(4.9, 0.1), more=never) == [False, True]
    more = asyncio.Event()
    pieces = (*STOPPED, Stall(until=more), KEEP_ALIVE, Stall())
    assert await closed_after(*pieces, advance=(4.0, 4.9, 0.1), more=more) == [False, False, True]
    more = asyncio.Event()
    pieces = (STOPPED[0], Stall(until=more), STOPPED[1], Stall())
    assert await closed_after(*pieces, advance=(60.0, 4.9, 0.1), more=more) == [False, False, True]


@pytest.mark.promise("wait:stream")
async def test_how_long_a_connection_left_open_is_waited_for_can_be_set() -> None:
    """Proves: `left_open_s` counts in place of the five seconds, and `idle_s` ends the wait where it is shorter."""
    never = asyncio.Event()
    patient, hasty = Deadlines(left_open_s=30), Deadlines(left_open_s=30, idle_s=20)
    assert await closed_after(*STOPPED, Stall(), advance=(29.9, 0.1), more=never, deadlines=patient) == [False, True]
    clock = FakeClock()
    reply = Reply(pieces=(*STOPPED, Stall()))
    running = asyncio.create_task(exchanged(reply, family="anthropic_messages", clock=clock, deadlines=hasty))
    await asyncio.wait_for(clock.until_waiting(20), HANG_S)
    await clock.advance(20)
    event, _ = await asyncio.wait_for(running, HANG_S)
    assert isinstance(event, ResponseReceived) and event.response.is_closed


@pytest.mark.promise("wait:stream")
async def test_keep_alives_behind_such_a_response_put_off_its_end_no_longer_than_silence_between_events() -> None:
    """Proves: a server that keeps the connection alive for ever has its calls taken at the idle deadline."""
    clock, idle_s = FakeClock(), Deadlines().idle_s
    gates = [asyncio.Event() for _ in range(40)]
    pieces = (*STOPPED, *[piece for gate in gates for piece in (Stall(until=gate), KEEP_ALIVE)], Stall())
    running = asyncio.create_task(exchanged(Reply(pieces=pieces), family="anthropic_messages", clock=clock))
    await asyncio.wait_for(clock.until_waiting(AFTER_FINISH_S), HANG_S)
    for gate in gates:
        if running.done():
            break
        gate.set()
        await clock.advance(3.0)
    event, _ = await asyncio.wait_for(running, HANG_S)
    assert isinstance(event, ResponseReceived) and event.response.is_closed
    assert clock.monotonic() == idle_s


@pytest.mark.promise("wait:stream", "wait:retry")
@pytest.mark.parametrize("family", FAMILIES)
async def test_a_text_that_only_fell_silent_is_waited_for_as_ever(family: str) -> None:
    """Proves: what has no end of its own is overdue after the silence between events, not before."""
    clock, idle_s = FakeClock(), Deadlines().idle_s
    begun = BEGUN[family].encode()
    running = asyncio.create_task(exchanged(Reply(pieces=(begun, Stall())), family=family, clock=clock))
    await clock.until_waiting(idle_s)
    await clock.advance(idle_s - 0.1)
    assert not running.done()
    await clock.advance(0.1)
    event, _ = await asyncio.wait_for(running, HANG_S)
    assert isinstance(event, RequestFailed) and event.fault.kind is FaultKind.TIMEOUT


async def test_a_connection_that_breaks_behind_such_a_response_is_a_failure() -> None:
    """Proves: no finish reason came, so more may have been on its way."""
    gone = Fault(kind=FaultKind.DISCONNECTED, message="gone")
    event, _ = await exchanged(Reply(pieces=(*STOPPED, gone)), family="anthropic_messages")
    assert isinstance(event, RequestFailed) and event.fault == gone


def events(*said: object) -> bytes:
    return b"".join([f"data: {json.dumps(one)}\n\n".encode() for one in said])


def block(index: int, **fields: object) -> dict[str, object]:
    return {"type": "content_block_start", "index": index, "content_block": fields}


SAID = events(
    {"type": "message_start", "message": {"id": "a", "model": "m"}},
    block(0, type="text", text=""),
    {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": "I look it up."}},
    {"type": "content_block_stop", "index": 0},
)
SEARCH = events(block(1, type="server_tool_use", id="srvtoolu_1", name="web_search", input={}))
MESSAGE = {
    "type": "message",
    "id": "m1",
    "role": "assistant",
    "content": [{"type": "output_text", "text": "I look it up."}],
}
SAID_ITEM = events(
    {"type": "response.created", "response": {"id": "r", "status": "in_progress", "output": []}},
    {"type": "response.output_item.added", "output_index": 0, "item": {**MESSAGE, "content": []}},
    {
        "type": "response.output_text.delta",
        "item_id": "m1",
        "output_index": 0,
        "content_index": 0,
        "delta": "I look it up.",
    },
    {"type": "response.output_item.done", "output_index": 0, "item": {**MESSAGE, "status": "completed"}},
)
SEARCHING = {"type": "web_search_call", "id": "ws1", "status": "in_progress"}
GOES_ON = {
    "a search that begins": ("anthropic_messages", SAID + SEARCH),
    "a search that runs": ("anthropic_messages", SAID + SEARCH + events({"type": "content_block_stop", "index": 1})),
    "thinking": ("anthropic_messages", SAID + events(block(1, type="thinking", thinking="", signature=""))),
    "an item that searches": (
        "openai_responses",
        SAID_ITEM + events({"type": "response.output_item.added", "output_index": 1, "item": SEARCHING}),
    ),
    "an item that has searched": (
        "openai_responses",
        SAID_ITEM
        + events(
            {"type": "response.output_item.added", "output_index": 1, "item": SEARCHING},
            {"type": "response.output_item.done", "output_index": 1, "item": {**SEARCHING, "status": "completed"}},
        ),
    ),
    "reasoning": (
        "openai_responses",
        SAID_ITEM
        + events(
            {
                "type": "response.output_item.added",
                "output_index": 1,
                "item": {"type": "reasoning", "id": "rs1", "summary": []},
            }
        ),
    ),
}


@pytest.mark.promise("wait:stream")
@pytest.mark.parametrize("what", GOES_ON)
async def test_a_silence_in_which_the_provider_works_is_no_end(what: str) -> None:
    """Proves: behind a text that has its end, a tool that runs at the provider, or reasoning, may be silent for longer than five
    seconds; and where the stream just ends there, the text is not all of it."""
    family, said = GOES_ON[what]
    clock, idle_s = FakeClock(), Deadlines().idle_s
    running = asyncio.create_task(exchanged(Reply(pieces=(said, Stall())), family=family, clock=clock))
    await asyncio.wait_for(clock.until_waiting(idle_s), HANG_S)
    await clock.advance(idle_s - 0.1)
    assert not running.done()
    await clock.advance(0.1)
    event, _ = await asyncio.wait_for(running, HANG_S)
    assert isinstance(event, RequestFailed) and event.fault.kind is FaultKind.TIMEOUT
    event, _ = await exchanged(Reply(pieces=(said,)), family=family)
    assert isinstance(event, ResponseReceived) and not event.response.is_closed
