"""Turns against a lab without a network, by a clock that jumps to whatever is waited for: no fault costs real time."""

import asyncio
from collections.abc import Callable, Coroutine
from concurrent.futures import Future, ThreadPoolExecutor, wait
from typing import NamedTuple, ParamSpec, TypeVar

import msgspec

from families import of_family
from turnwise.endpoints.endpoints import Endpoint
from turnwise.endpoints.transport import Circuits
from turnwise.journal.ledger import LedgerEntry
from turnwise.journal.turn_writer import PriceFinder
from turnwise.lab import Lab
from turnwise.lab.script import Script
from turnwise.rules.retries import RetryPolicy
from turnwise.running.runner import Runner
from turnwise.running.runner_config import EndpointRecovery, Observation, RunnerMeans
from turnwise.running.tools import Arguments, Tool
from turnwise.running.watcher_events import WatcherEvent
from turnwise.testing import FakeClock
from turnwise.turn.config import Deadlines, ToolOffer, TurnConfig, TurnResult
from turnwise.turn.events import TurnStarted
from turnwise.vocab import Message, Text, ToolSpec
from turnwise.wire.profiles import builtin_profiles
from waits import HANG_S

Value = TypeVar("Value")
Given = ParamSpec("Given")

FAMILIES = ("openai_chat", "openai_responses", "anthropic_messages", "gemini")
WAYS = [(family, stream) for family in FAMILIES for stream in (True, False)]
DEADLINES = Deadlines(first_event_s=20, idle_s=10, total_s=60)
SCHEMA = '{"type":"object","properties":{"text":{"type":"string"}},"required":["text"],"additionalProperties":false}'
# Longer than any turn here may take: four attempts at their whole time, the waits between them, and some steps.
LONGEST_S = 2_000.0
ROUNDS = 4


class Ended(NamedTuple):
    result: TurnResult
    seen: list[WatcherEvent]
    noted: list[str]  # what the tool `note` was given
    took_s: float
    received: int  # requests, by the lab's own count
    ledger: tuple[LedgerEntry, ...]


class AtOnce(ThreadPoolExecutor):
    """Its work is done when `submit` returns. A thread takes its time by the machine's clock: by a clock that jumps a turn that
    waits for one (the prices of a limit of cost) looks as if it waited for nothing, or its timers fire too early."""

    def submit(self, fn: Callable[Given, Value], /, *args: Given.args, **kwargs: Given.kwargs) -> Future[Value]:
        future = super().submit(fn, *args, **kwargs)
        wait([future], timeout=HANG_S)
        return future


async def settled(coroutine: Coroutine[object, object, Value], *, clock: FakeClock) -> Value:
    """The result of `coroutine`; where it waits for the clock, this moves on. Raises AssertionError where it waits for
    anything else, or too long. What `asyncio.to_thread` does takes no time."""
    asyncio.get_running_loop().set_default_executor(AtOnce())
    task = asyncio.ensure_future(coroutine)
    while not task.done():
        for _ in range(ROUNDS):
            await clock.advance(0)
        if not task.done():
            assert clock.delays, "it waits for something without a deadline"
            assert clock.monotonic() < LONGEST_S, "it goes on and on"
            await clock.advance(clock.delays[0])
    return task.result()


async def turn(
    lab: Lab,
    script: Script,
    *,
    family: str,
    stream: bool,
    clock: FakeClock | None = None,
    circuits: Circuits | None = None,
    find_price: PriceFinder | None = None,
    **more: object,
) -> Ended:
    """One turn of `script`, with a tool `note` and the usual retries."""
    clock = clock or FakeClock()
    noted: list[str] = []
    seen: list[WatcherEvent] = []

    async def note(arguments: Arguments) -> str:
        noted.append(str(arguments["text"]))
        return "noted"

    tool = Tool(offer=ToolOffer(spec=ToolSpec(name="note", parameters=SCHEMA)), function=note)
    profile = builtin_profiles()[family]
    config = TurnConfig(
        session_id="s",
        turn_id="t",
        model=script.name,
        tools=(tool.offer,),
        stream=stream,
        deadlines=DEADLINES,
        retry=RetryPolicy(),
        **of_family(family),
        profile=profile.name,
        recover="continue",
    )
    runner = Runner(
        RunnerMeans(
            endpoint=Endpoint(profile=profile, base_url="http://lab.invalid"),
            transport=lab.transport(),
            tools=[tool],
            clock=clock,
            observation=Observation(watch=seen.append, find_price=find_price),
            recovery=EndpointRecovery(circuits=circuits or Circuits(clock=clock), jitter=lambda: 0.5),
        )
    )
    began, before = clock.monotonic(), lab.count()
    started = TurnStarted(config=msgspec.structs.replace(config, **more), input=(Message("user", (Text("Please."),)),))
    result = await settled(runner.run(started), clock=clock)
    assert clock.delays == [], "a timer outlives the turn"
    assert runner.ledger is not None
    return Ended(result, seen, noted, clock.monotonic() - began, lab.count() - before, ledger=runner.ledger.entries)
