"""One turn in which everything happens that can cost the provider's cache: each miss is counted and explained (promise
bill:cached, issue 17, done-when 3). The judge is the lab's count of what was read, and the bytes that reached it."""

import re
from collections.abc import Sequence
from itertools import pairwise
from typing import Any, NamedTuple

import msgspec
import pytest

from agent.test_cached_runs import read, renamed
from flat_agents import flat_agent
from turnwise import RunResult
from turnwise.journal.ledger import LedgerEntry
from turnwise.lab import Lab
from turnwise.lab.provider import Received
from turnwise.lab.script import Script, ScriptedCall, ScriptedFault, ScriptedStep
from turnwise.rules.prompt_room import ModelLimits
from turnwise.rules.retries import RetryPolicy
from turnwise.testing import FakeClock
from turnwise.turn.config import Deadlines
from turnwise.turn.events import PrepareStep, StepPrepared
from turnwise.turn.request_plan import PREFIX_EXCEPTIONS

INSTRUCTIONS = "Answer from the parts of the document alone. " * 180  # 2,000 tokens
LIMITS = ModelLimits(context_window_tokens=14_000, max_output_tokens=1_500)
STEPS = 24
SLOW, OTHER_TOOLS, CUT, HANDED_OUT, FAILS = 4, 6, 8, 10, 13
MARKS = re.compile(rb',"cache_control":\{"type":"ephemeral"(?:,"ttl":"1h")?\}')
LEAST_LOST, LOST_SHARE = 1024, 0.1
MODELS = {
    "anthropic:lead": "http://lab",
    "openrouter:anthropic/lead": "http://lab/v1",
    "openai:lead": "http://lab/v1",
    "openai-chat:lead": "http://lab/v1",
    "gemini:lead": "http://lab/v1beta",
}


def step_of(number: int) -> ScriptedStep:
    if number == CUT:
        lines = "".join([f"line {line}: the quick brown fox\n" for line in range(60)])
        call = ScriptedCall(name="write", arguments={"path": "x", "content": lines}, cut_after=900)
        return ScriptedStep(reasoning="I write it.", text=f"Step {number}.", calls=(call,))
    if number == HANDED_OUT:
        tasks = [{"agent": "reader", "prompt": f"Read part {place}."} for place in (1, 2)]
        return ScriptedStep(
            reasoning="Two can read.", calls=tuple([ScriptedCall(name="task", arguments={**task}) for task in tasks])
        )
    call = ScriptedCall(name="read", arguments={"path": f"part-{number}"})
    return ScriptedStep(reasoning="The next part may tell.", text=f"Step {number}.", calls=(call,))


def scripts() -> list[Script]:
    steps = [step_of(number) for number in range(1, STEPS + 9)]
    failing = [*steps]
    failing[FAILS - 1] = ScriptedStep(text="x", fault=ScriptedFault(kind="status", status=503, message="busy"))
    more: dict[str, Any] = {"forced": "So far: parts.", "summarises": "Write a summary"}
    child = (ScriptedStep(calls=(ScriptedCall(name="read", arguments={"path": "a"}),)), ScriptedStep(text="Read."))
    return [
        Script(name="lead", title="does everything", steps=tuple(failing), **more),
        Script(name="other", title="goes on", steps=tuple(steps), window_tokens=14_000, **more),
        Script(name="child", title="reads", steps=child),
    ]


async def run_everything(model: str) -> tuple[RunResult, Lab]:
    name, _, called = model.partition(":")
    lab, clock = Lab(scripts()), FakeClock()
    given: dict[str, Any] = {"base_url": MODELS[model], "api_key": "k", "transport": lab.transport(), "clock": clock}
    vendor = called.removesuffix("lead")
    child = flat_agent(f"{name}:{vendor}child", tools=[read], instructions=INSTRUCTIONS, description="reads", **given)

    is_slow = iter((True,))  # after a summary the model begins anew

    async def slow(path: str) -> str:
        """Read a part."""
        if path == f"part-{SLOW}" and next(is_slow, False):
            lab.pass_time(301)
            await clock.advance(301)
        return read(path)

    def write(path: str, content: str) -> str:
        """Write a file."""
        return f"{path}: {len(content)} characters"

    def prepare(view: PrepareStep) -> StepPrepared | None:
        return StepPrepared(tools=("read",)) if view.step == OTHER_TOOLS else None

    agent = flat_agent(
        model,
        tools=[renamed(slow), write],
        agents={"reader": child},
        instructions=INSTRUCTIONS,
        max_steps=STEPS,
        model_limits=LIMITS,
        fallbacks=[f"{vendor}other"],
        retry=RetryPolicy(attempts=1),
        deadlines=Deadlines(tool_s=1_000),
        prepare_step=prepare,
        **given,
    )
    return await agent.run("Read all of it."), lab


class Sent(NamedTuple):
    entry: LedgerEntry
    received: Received

    @property
    def body(self) -> bytes:
        return MARKS.sub(b"", self.received.body)


def by_turn(result: RunResult, lab: Lab) -> list[list[Sent]]:
    """The requests that were answered, in order; each with what reached the lab."""
    assert len(result.ledger) == len(lab.requests)
    turns: dict[str, list[Sent]] = {}
    for entry, received in zip(result.ledger, lab.requests, strict=True):
        assert received.model == entry.model.rpartition("/")[2]
        if entry.outcome == "ok":
            turns.setdefault(entry.turn, []).append(Sent(entry, received))
    return list(turns.values())


def kept_after(sent: Sent, *, asks: bool) -> int:
    usage = sent.received.usage
    assert usage is not None
    return usage.cache_read_tokens + usage.cache_write_tokens if asks else usage.input_tokens


def common_tokens(before: Sent, now: Sent) -> int:
    """Of the later prompt, what a part of the earlier one that gave way has not made new: by the entries of the bodies."""
    said = [messages_of(one.body) for one in (before, now)]
    same = next((at for at, (one, other) in enumerate(zip(*said, strict=False)) if one != other), min(map(len, said)))
    usage = now.received.usage
    assert usage is not None
    if sum(map(len, said[0][same:])) < len(before.body) * 0.3:  # what was for one request only, or has grown
        return usage.input_tokens
    return usage.input_tokens - sum(map(len, said[1][same:])) // 4


def messages_of(body: bytes) -> list[bytes]:
    fields = msgspec.json.decode(body, type=dict[str, msgspec.Raw])
    name = next(name for name in ("messages", "input", "contents") if name in fields)
    return list(map(bytes, msgspec.json.decode(fields[name], type=list[msgspec.Raw])))


def misses(turn: Sequence[Sent], *, asks: bool) -> dict[int, tuple[int, int]]:
    """By the lab's counts: the requests that read less than was kept of the one before, what that was and what they read."""
    found: dict[int, tuple[int, int]] = {}
    has_hit = False
    for before, now in pairwise(turn):
        usage, earlier = now.received.usage, before.received.usage
        assert usage is not None and earlier is not None
        has_hit = has_hit or earlier.cache_read_tokens > 0
        kept = kept_after(before, asks=asks) if asks or has_hit else 0
        expected = min(kept, common_tokens(before, now)) if before.entry.model == now.entry.model else 0
        lost = expected - usage.cache_read_tokens
        if lost >= max(LEAST_LOST, expected * LOST_SHARE):
            found[now.entry.number] = (expected, usage.cache_read_tokens)
    return found


def tail_of(body: bytes) -> list[tuple[str, bytes]]:
    """The fields behind the messages."""
    fields = msgspec.json.decode(body, type=dict[str, msgspec.Raw])
    name = next(name for name in ("messages", "input", "contents") if name in fields)
    behind = list(fields)[list(fields).index(name) + 1 :]
    return [(key, b'"%b":%b' % (key.encode(), bytes(fields[key]))) for key in behind]


def change_of(before: bytes, after: bytes) -> int:
    """The first byte that is another one. Of a request that goes on where the messages of the one before ended, the tool choice
    that was put in behind them, or the place where it is missing."""
    at = next(at for at, (one, other) in enumerate(zip(before, after, strict=False)) if one != other)
    if at < len(before) - len(b",".join([pair for _, pair in tail_of(before)])) - len(b"],}"):
        return at
    tail = tail_of(after)
    return after.rindex(next((pair for key, pair in tail if key == "tool_choice"), tail[0][1]))


@pytest.mark.promise("bill:cached", "step:prefix-stable")
@pytest.mark.parametrize("model", MODELS)
async def test_each_miss_of_a_turn_in_which_everything_happens_is_counted_and_explained(model: str) -> None:
    """A slow tool, other tools for a step, a cut call, sub-agents, summaries, a fallback and a forced answer."""
    result, lab = await run_everything(model)
    asks = "anthropic" in model
    purposes, changes = result.requests_by_purpose, result.prefix_changes
    assert purposes.get("compact", 0) >= 1
    assert (purposes.get("continue", 0) >= 1) == ("gemini" not in model)
    assert sum([bool(one.path) for one in result.ledger]) >= 4
    assert result.stop_reason == "step_limit"
    costs = {int(change.split()[1].removesuffix(":")) for change in changes if change.endswith(" tokens read anew")}
    assert {change.split(": ")[1] for change in changes} <= PREFIX_EXCEPTIONS.keys()
    told = {change.split(": ")[1] for change in changes}
    assert told >= {"model", "tools", "compaction"} | ({"tool choice"} if asks else set())

    expected = {turn[0].entry.turn: misses(turn, asks=asks) for turn in by_turn(result, lab)}
    found: dict[str, dict[int, tuple[int, int]]] = {turn: {} for turn in expected}
    for one in result.cache_missed:
        found[one.turn][one.number] = (one.expected_tokens, one.read_tokens)
    assert {turn: [*one] for turn, one in found.items()} == {turn: [*one] for turn, one in expected.items()}
    for turn, told_of in found.items():
        for number, counts in told_of.items():
            assert counts == pytest.approx(expected[turn][number], rel=0.05), number
    for turn in by_turn(result, lab):
        sent = {one.entry.number: (before, one) for before, one in pairwise(turn)}
        for one in result.cache_missed:
            if one.turn != turn[0].entry.turn:
                continue
            before, now = sent[one.number]
            assert now.entry.cache_missed_tokens == one.expected_tokens - one.read_tokens
            assert (one.changed_at is None) != (one.since_hit_s is None)
            if one.changed_at is None:
                assert one.since_hit_s == pytest.approx(301)
            else:
                assert one.changed_at == change_of(before.body, now.body)
                assert one.number in costs, "what it cost is told, too"
    assert [one.since_hit_s for one in result.cache_missed if one.since_hit_s is not None] == [pytest.approx(301)]
    assert sum([one.cache_missed_tokens > 0 for one in result.ledger]) == len(result.cache_missed) >= 2
