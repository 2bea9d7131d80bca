"""What the runner does of a retry: the wait by its clock, what watchers hear, what the journal keeps."""

import asyncio

import pytest

from turnwise.endpoints.transport import Circuits
from turnwise.journal.journal import Journal
from turnwise.rules.retries import RetryPolicy
from turnwise.running.runner import Runner
from turnwise.running.runner_config import EndpointRecovery, Observation, RunnerMeans
from turnwise.running.watcher_events import AttemptDiscarded, FrameSeen, RequestStarted, WatcherEvent
from turnwise.testing import FakeClock, Reply, ScriptedModel, ScriptedTransport
from turnwise.turn.config import TurnConfig
from turnwise.turn.events import Interrupted, RequestFailed, TurnStarted, Wait, WaitOver
from turnwise.turn.machine import replay
from turnwise.vocab import Fault, FaultKind, Message, StopReason, Text, TextDelta
from waits import HANG_S

BEGIN = b'data: {"choices":[{"index":0,"delta":{"role":"assistant","content":"Lost"}}]}\n\n'
WHOLE = (
    b'data: {"choices":[{"index":0,"delta":{"role":"assistant","content":"Kept"}}]}\n\n'
    b'data: {"choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}\n\ndata: [DONE]\n\n'
)
RESET = Fault(kind=FaultKind.DISCONNECTED, message="reset")


def started() -> TurnStarted:
    config = TurnConfig(session_id="s", turn_id="t", model="m", profile="openai_chat", retry=RetryPolicy())
    return TurnStarted(config=config, input=(Message("user", (Text("go"),)),))


@pytest.mark.promise("wait:retry", "keep:replay", "bill:wire")
async def test_watchers_hear_which_attempt_was_given_up_and_the_journal_how_long_was_waited() -> None:
    """What was shown of request 1 is marked before request 2 begins; replay draws no new number."""
    clock = FakeClock()
    seen: list[WatcherEvent] = []
    transport = ScriptedTransport([Reply(pieces=(BEGIN, RESET)), Reply(pieces=(WHOLE,))])
    runner = Runner(
        RunnerMeans(
            endpoint=ScriptedModel([]).endpoint,
            transport=transport,
            clock=clock,
            observation=Observation(watch=seen.append),
            recovery=EndpointRecovery(circuits=Circuits(clock=clock), jitter=lambda: 0.25),
        )
    )
    with Journal(None, clock=clock) as journal:
        pen = journal.begin_turn(turn_id="t", session_id="s", folder="/here", title="go")
        running = asyncio.create_task(runner.run(started(), journal=pen))
        await asyncio.wait_for(clock.until_waiting(0.312), HANG_S)
        await clock.advance(0.312)
        result = await asyncio.wait_for(running, HANG_S)
        events = list(journal.events("t"))
    assert (result.text, result.requests, len(transport.requests)) == ("Kept", 2, 2)
    told = [
        one
        for one in seen
        if isinstance(one, RequestStarted | AttemptDiscarded)
        or (isinstance(one, FrameSeen) and isinstance(one.frame, TextDelta))
    ]
    assert told == [
        RequestStarted(1, 1, "step", "m"),
        FrameSeen(1, TextDelta("Lost")),
        AttemptDiscarded(1, RESET, 0.312),
        RequestStarted(2, 1, "retry", "m", "step"),
        FrameSeen(2, TextDelta("Kept")),
    ]
    failed = next(event for event in events if isinstance(event, RequestFailed))
    assert (failed.jitter, next(event for event in events if isinstance(event, WaitOver)).at_s) == (0.25, 0.312)
    assert [one.seconds for one in replay(events) if isinstance(one, Wait)] == [0.312]


@pytest.mark.promise("wait:cancel")
async def test_a_cancelled_wait_ends_at_once() -> None:
    """No timer is left, nothing more is sent."""
    clock = FakeClock()
    slow = Reply(status=429, headers={"retry-after": "100"}, pieces=(b"{}",))
    transport = ScriptedTransport([slow])
    runner = Runner(
        RunnerMeans(
            endpoint=ScriptedModel([]).endpoint,
            transport=transport,
            clock=clock,
            recovery=EndpointRecovery(circuits=Circuits(clock=clock), jitter=lambda: 0.0),
        )
    )
    with Journal(None, clock=clock) as journal:
        pen = journal.begin_turn(turn_id="t", session_id="s", folder="/here", title="go")
        running = asyncio.create_task(runner.run(started(), journal=pen))
        await asyncio.wait_for(clock.until_waiting(100.0), HANG_S)
        runner.interrupt()
        result = await asyncio.wait_for(running, HANG_S)
        last = journal.events("t")[-1]
    assert (result.stop_reason, clock.monotonic(), clock.delays) == (StopReason.CANCELLED, 0, [])
    assert (last, len(transport.requests), transport.open) == (Interrupted(kind="cancel"), 1, 0)
