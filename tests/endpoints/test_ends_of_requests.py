"""What is left of a request that ends before its time: a secret in what had arrived, the server's own clock, an error in the
stream, a command that comes back too late (issue 18: mutants that no test noticed)."""

import asyncio
import gc
import json

import msgspec
import pytest

from endpoints.test_exchange import IN_STREAM, JSON, KEY, exchanged
from running.test_interrupts import started, until
from tables import each
from turnwise.endpoints.endpoints import Secret
from turnwise.endpoints.exchange import AFTER_FINISH_S
from turnwise.journal.journal import Journal
from turnwise.rules.retries import NO_RETRY
from turnwise.running.runner import Runner
from turnwise.running.runner_config import RunnerMeans
from turnwise.testing import FakeClock, Reply, ScriptedModel, ScriptedTransport, Stall
from turnwise.turn.events import Interrupted, MessageArrived, PrepareStep, RequestFailed, ResponseReceived, StepPrepared
from turnwise.vocab import Fault, FaultKind, Message, StopReason, Text, text_of
from turnwise.wire.profiles import Limits
from waits import HANG_S

TUESDAY = 1_700_000_000.0  # 2023-11-14 22:13:20 UTC
AT = "Tue, 14 Nov 2023 22:{minute}:20 GMT"
FAMILIES = sorted(IN_STREAM)
BEGUN = {
    "openai_chat": '{"choices":[{"index":0,"delta":{"content":"Hel"}}]}',
    "openai_responses": '{"type":"response.output_text.delta","output_index":0,"item_id":"i","content_index":0,"delta":"Hel"}',
    "anthropic_messages": '{"type":"content_block_start","index":0,"content_block":{"type":"text","text":"Hel"}}',
    "gemini": '{"candidates":[{"index":0,"content":{"role":"model","parts":[{"text":"Hel"}]}}]}',
}


async def test_a_key_in_what_had_arrived_of_an_interrupted_response_is_hidden() -> None:
    """Proves: neither the journal nor the result of a cancelled turn shows the key that an endpoint quotes in its stream."""
    begun = {"id": KEY, "model": KEY, "choices": [{"index": 0, "delta": {"content": f"Your key is {KEY}, so "}}]}
    transport = ScriptedTransport([Reply(pieces=(f"data: {json.dumps(begun)}\n\n".encode(), Stall()))])
    endpoint = msgspec.structs.replace(ScriptedModel([]).endpoint, key=Secret(KEY))
    clock = FakeClock()
    with Journal(None, clock=clock) as journal:
        pen = journal.begin_turn(turn_id="t", session_id="s", folder="/here", title="go")
        runner = Runner(RunnerMeans(endpoint=endpoint, transport=transport, clock=clock))
        running = asyncio.create_task(runner.run(started(), journal=pen))
        await clock.until_waiting(90)
        runner.interrupt()
        result = await asyncio.wait_for(running, HANG_S)
        last = journal.events("t")[-1]
    assert isinstance(last, Interrupted) and last.partial is not None
    assert (last.partial.id, last.partial.model) == ("***", "***")
    assert text_of(last.partial.message) == "Your key is ***, so "
    assert KEY not in msgspec.json.encode((last, result)).decode()


@pytest.mark.promise("wait:retry")
@pytest.mark.parametrize(
    ("headers", "waits_s"),
    [
        ({"date": AT.format(minute=13)}, 120.0),
        ({}, 0.0),  # by our clock, which is an hour ahead
        ({"date": "soon"}, 0.0),
        ({"date": AT.format(minute=18)}, 0.0),  # never less than nothing
    ],
    ids=["the server's clock", "no clock of the server", "a date that is none", "in the past"],
)
async def test_a_time_to_come_back_at_is_read_by_the_servers_own_clock(headers: dict[str, str], waits_s: float) -> None:
    """Proves: a machine whose clock is an hour ahead waits as long as the server asks for."""
    refused = Reply(status=503, headers={"retry-after": AT.format(minute=15)} | headers | JSON, pieces=(b"{}",))
    event, _ = await exchanged(refused, clock=FakeClock(now=TUESDAY + 3600))
    assert isinstance(event, RequestFailed) and event.fault.retry_after_s == waits_s


@pytest.mark.promise("wait:retry")
async def test_without_a_clock_of_the_server_ours_says_how_long_to_wait() -> None:
    """Proves: the moment is not taken for a number of seconds."""
    refused = Reply(status=503, headers={"retry-after": AT.format(minute=15)} | JSON, pieces=(b"{}",))
    event, _ = await exchanged(refused, clock=FakeClock(now=TUESDAY + 30))
    assert isinstance(event, RequestFailed) and event.fault.retry_after_s == 90.0


@pytest.mark.promise("assembly:bounded")
async def test_nothing_is_read_behind_a_stream_that_is_too_large() -> None:
    """Proves: the first bytes beyond the limit end the request; the clock does not move."""
    clock = FakeClock()
    endless = Reply(pieces=(f"data: {BEGUN['openai_chat']}\n\n".encode(), b": \n" * 100, Stall()))
    transport = ScriptedTransport([endless])
    runner = Runner(
        RunnerMeans(
            endpoint=ScriptedModel([]).endpoint, transport=transport, clock=clock, limits=Limits(stream_bytes=200)
        )
    )
    running = asyncio.create_task(runner.run(started(retry=NO_RETRY)))
    for _ in range(200):
        await asyncio.sleep(0)
    assert running.done(), "it waits for more"
    assert (running.result().stop_reason, transport.open) == (StopReason.PROVIDER_FAILED, 0)


@each("begun", [False, True], ids=["at once", "after some text"])
@each("family", FAMILIES)
async def test_an_error_in_a_stream_that_is_left_open_is_taken_after_five_seconds(family: str, begun: bool) -> None:
    """Proves: who has said its error is waited for as one that has said its end, and its word stands."""
    clock = FakeClock()
    pieces = [f"data: {BEGUN[family]}\n\n".encode()] * begun
    error = f"data: {IN_STREAM[family].replace('KEY', 'x')}\n\n".encode()
    running = asyncio.create_task(
        exchanged(Reply(pieces=(*pieces, error, Stall())), family=family, clock=clock), name="exchange"
    )
    for _ in range(50):
        await asyncio.sleep(0)
    assert AFTER_FINISH_S in clock.delays
    await clock.advance(AFTER_FINISH_S)
    event, _ = await asyncio.wait_for(running, HANG_S)
    fault = event.fault if isinstance(event, RequestFailed) else event.response.fault
    assert fault is not None and fault.message == "no x"
    assert isinstance(event, ResponseReceived) == begun


@pytest.mark.parametrize("family", FAMILIES)
async def test_an_error_in_the_stream_stands_though_the_connection_breaks_behind_it(family: str) -> None:
    """Proves: the provider's own word is the fault, not the broken connection."""
    error = f"data: {IN_STREAM[family].replace('KEY', 'x')}\n\n".encode()
    broken = Fault(kind=FaultKind.DISCONNECTED, message="gone")
    event, _ = await exchanged(Reply(pieces=(f"data: {BEGUN[family]}\n\n".encode(), error, broken)), family=family)
    assert isinstance(event, ResponseReceived) and event.response.fault is not None
    assert event.response.fault.message == "no x"
    assert event.response.message.parts == (Text("Hel"),)


@pytest.mark.promise("wait:cancel")
async def test_what_comes_back_after_the_turns_end_is_no_error_of_the_turns_either() -> None:
    """Proves: the turn that has ended is not given the late event, which it would refuse in a task that nobody looks at."""
    at_work, over, back = asyncio.Event(), asyncio.Event(), asyncio.Event()
    unheard: list[dict[str, object]] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: unheard.append(context))

    async def prepare(_: PrepareStep) -> StepPrepared:
        at_work.set()
        await until(over)
        asyncio.get_running_loop().call_soon(back.set)
        return StepPrepared(instruction="too late")

    model = ScriptedModel([])
    runner = Runner(RunnerMeans(endpoint=model.endpoint, transport=model, prepare_step=prepare, settle_s=0))
    running = asyncio.create_task(runner.run(started(prepares_steps=True)))
    await asyncio.wait_for(at_work.wait(), HANG_S)
    runner.interrupt()
    result = await asyncio.wait_for(running, HANG_S)
    over.set()
    await asyncio.wait_for(back.wait(), HANG_S)
    for _ in range(5):
        await asyncio.sleep(0)
    del running
    gc.collect()
    assert unheard == []
    assert (result.stop_reason, model.requests) == (StopReason.CANCELLED, [])


async def test_a_word_after_an_interrupt_is_not_taken() -> None:
    """Proves: who speaks between the interrupt and the turn's end is told that nobody reads it, and no journal has the word."""
    clock = FakeClock()
    begun = f"data: {BEGUN['openai_chat']}\n\n".encode()
    with Journal(None, clock=clock) as journal:
        pen = journal.begin_turn(turn_id="t", session_id="s", folder="/here", title="go")
        transport = ScriptedTransport([Reply(pieces=(begun, Stall()))])
        runner = Runner(RunnerMeans(endpoint=ScriptedModel([]).endpoint, transport=transport, clock=clock))
        running = asyncio.create_task(runner.run(started(), journal=pen))
        await clock.until_waiting(90)
        assert runner.say(Message("user", (Text("before"),)))
        runner.interrupt()
        assert not runner.say(Message("user", (Text("after"),)))
        result = await asyncio.wait_for(running, HANG_S)
        said = [one.message for one in journal.events("t") if isinstance(one, MessageArrived)]
    before = Message("user", (Text("before"),))
    assert (said, result.unread) == ([before], (before,))
    assert not runner.say(Message("user", (Text("behind its end"),)))
