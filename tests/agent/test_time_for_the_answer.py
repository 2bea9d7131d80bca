"""A limit of time keeps time for the answer: whatever runs ends before it, is told why, and the answer is the model's."""

import asyncio
import math
import threading
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agent.test_ordered_deadlines import agent_of, both_orders, ended, hands_out, results_of
from flat_agents import flat_agent
from sandboxes import sandbox_called
from tables import each
from thoroughness import examples
from turnwise import MaxRequests, MaxWallTime, RunResult, StopReason, tool
from turnwise.endpoints.transport import HttpReply, HttpRequest
from turnwise.errors import ToolFault
from turnwise.lab import Lab
from turnwise.lab.script import Script, parse_script
from turnwise.running.run_context import CallTerms
from turnwise.running.tools import CallTime
from turnwise.testing import FakeClock, Reply, ScriptedModel, ScriptedTransport, Stall
from turnwise.tools.workspace.shell import BashArguments, Shell
from turnwise.turn.config import Deadlines
from turnwise.turn.outcomes import NO_TIME, TURNS_TIME
from turnwise.vocab import FinishReason, Message, Response, ToolCall
from waits import HANG_S

STOPPED = f"stopped after 54 s: {TURNS_TIME}. It may have run in part"


def calls(*arguments: str, name: str = "work") -> Script:
    """Calls the tool so often in one response, then says what came of it."""
    made = ", ".join([f'{{ name = "{name}", arguments = {{ {one} }} }}' for one in arguments])
    return parse_script(
        f'title = "t"\n[[steps]]\ncalls = [{made}]\n[[steps]]\ntext = "It said: {{results}}"\n', name="calls"
    )


def hanging(clock: FakeClock, *, exclusive: bool = False) -> Callable[..., object]:
    @tool(exclusive=exclusive)
    async def work(text: str) -> str:
        """Work for ever."""
        await clock.sleep(float("inf") if text == "hang" else float(text))
        return f"did {text}"

    return work


def assert_answered(result: RunResult, clock: FakeClock, *, within_s: float) -> None:
    assert (result.stop_reason, result.written_locally) == (StopReason.TIME_LIMIT, False)
    assert result.text.startswith(("It said: ", "They said: ")) and clock.monotonic() <= within_s


@pytest.mark.costly
@pytest.mark.promise("end:budget")
@each("limit_s", [0.5, 1.0, 2.0, 3.0, 6.0, 60.0])
@each("tidies_s", [0.3, 1.5, 60.0])
async def test_a_tool_that_tidies_up_for_long_takes_no_time_from_the_answer(tidies_s: float, limit_s: float) -> None:
    """Proves: behind its cancel it has a part of the answer's time, however small that is, and then it is left behind."""
    clock = FakeClock()

    @tool
    async def work(text: str) -> str:
        """Work for ever, and tidy up."""
        try:
            await clock.sleep(float("inf"))
        finally:
            await clock.sleep(tidies_s)
        return text

    lab = Lab([calls('text = "x"')])
    agent = agent_of(lab, "calls", clock, tools=[work], limits=MaxWallTime(limit_s))
    result = await ended(clock, agent, *[limit_s / 200] * 300)
    assert_answered(result, clock, within_s=2 * limit_s)
    assert len(results_of(result)) == 1


@both_orders
@pytest.mark.promise("end:budget")
@pytest.mark.parametrize("leap_s", [1.0, 54.0, 60.0, 90.0, 5_000.0])
async def test_a_tool_that_takes_all_the_time_is_stopped_before_the_answer(leap_s: float, last_first: bool) -> None:
    """Proves: it has what is left after the answer's share, its result says so, and the model answers (issue 14, line 3); in
    whatever order a late loop finds the two deadlines."""
    clock = FakeClock()
    lab = Lab([calls('text = "hang"')])
    agent = agent_of(lab, "calls", clock, tools=[hanging(clock)], limits=MaxWallTime(60.0))
    result = await ended(clock, agent, leap_s, 0.5, last_first=last_first)
    assert_answered(result, clock, within_s=max(60.0, leap_s + 2))
    assert results_of(result) == [STOPPED]


@pytest.mark.promise("end:budget")
async def test_tools_beside_each_other_end_by_their_own_deadline_or_the_turns() -> None:
    """Proves: a quick one is untouched, one with a deadline of its own ends by that, and the third by the turn's."""
    clock = FakeClock()

    @tool(timeout_s=20.0)
    async def short(text: str) -> str:
        """Work for ever."""
        await clock.sleep(500.0)
        return text

    script = parse_script(
        'title = "t"\n[[steps]]\ncalls = [{ name = "work", arguments = { text = "2" } }, { name = "short", arguments = '
        '{ text = "x" } }, { name = "work", arguments = { text = "hang" } }]\n[[steps]]\ntext = "It said: {results}"\n',
        name="calls",
    )
    agent = agent_of(Lab([script]), "calls", clock, tools=[hanging(clock), short], limits=MaxWallTime(60.0))
    result = await ended(clock, agent, 1.0)
    assert_answered(result, clock, within_s=60.0)
    assert results_of(result) == ["did 2", "timed out after 20 s and was stopped", STOPPED]


@both_orders
@pytest.mark.promise("end:budget", "step:every-call-answered")
async def test_calls_that_run_one_after_the_other_share_the_time(last_first: bool) -> None:
    """Proves: each alone would fit; all together have one deadline, and what has not begun by then does not run."""
    clock = FakeClock()
    lab = Lab([calls('text = "30"', 'text = "31"', 'text = "1"')])
    agent = agent_of(lab, "calls", clock, tools=[hanging(clock, exclusive=True)], limits=MaxWallTime(60.0))
    result = await ended(clock, agent, 1.0, last_first=last_first)
    assert_answered(result, clock, within_s=60.0)
    assert results_of(result) == ["did 30", f"stopped after 24 s: {TURNS_TIME}. It may have run in part", NO_TIME]


@pytest.mark.promise("end:budget")
async def test_a_tool_in_a_thread_is_left_behind_and_the_answer_says_so() -> None:
    """Proves: it cannot be stopped, so its result says that it may still be running; the answer does not wait for it."""
    clock, release = FakeClock(), threading.Event()

    @tool
    def work(text: str) -> str:
        """Block."""
        release.wait(HANG_S)
        return text

    agent = agent_of(Lab([calls('text = "x"')]), "calls", clock, tools=[work], limits=MaxWallTime(60.0))
    try:
        result = await ended(clock, agent, 1.0)
    finally:
        release.set()
    assert_answered(result, clock, within_s=60.0)
    assert results_of(result) == [
        f"given up, and may still be running, after 54 s: {TURNS_TIME}. It may have run in part"
    ]


@both_orders
@pytest.mark.promise("end:budget", "wait:child")
@pytest.mark.parametrize("leap_s", [1.0, 60.0, 90.0])
async def test_every_agent_above_a_tool_that_takes_all_the_time_answers(leap_s: float, last_first: bool) -> None:
    """Proves: the tool of a sub-agent ends before the sub-agent does, that one before its parent, each with its own answer."""
    clock = FakeClock()
    lab = Lab([calls('text = "hang"'), hands_out("hands-out")])
    child = agent_of(lab, "calls", clock, tools=[hanging(clock)])
    middle = agent_of(lab, "hands-out", clock, agents={"sub": child})
    root = agent_of(lab, "hands-out", clock, agents={"sub": middle}, limits=MaxWallTime(60.0))
    result = await ended(clock, root, leap_s, 0.5, last_first=last_first)
    assert result.written_locally is False
    assert (result.text.count("They said: "), result.text.count("It said: "), TURNS_TIME in result.text) == (2, 1, True)


PROGRAMS = {
    "sleeps": ("print('began')\\nimport time\\ntime.sleep(55)\\nprint('over')", [55.0], "No call had run"),
    "waits": ("print('began')\\nprint(await work(text='500'))", [500.0], "1 call had run (`work`)"),
    "works": (
        "print('began')\\nfor n in range(9):\\n    print(await work(text='2' + str(n)))",
        [20.0, 21.0, 22.0],
        "3 calls had",
    ),
}


@pytest.mark.promise("end:budget")
@pytest.mark.parametrize("kind", sorted(PROGRAMS))
async def test_a_program_that_takes_all_the_time_is_stopped_before_the_answer(kind: str) -> None:
    """Proves: whether it sleeps, waits for a tool or calls many; its result says what it printed, what ran, and why it ended."""
    clock = FakeClock()
    program, waits_s, ran = PROGRAMS[kind]
    lab = Lab([calls(f'program = "{program}"', name="script")])
    agent = agent_of(lab, "calls", clock, tools=[hanging(clock)], limits=MaxWallTime(60.0), script=True)
    run = asyncio.create_task(agent.run("Go."))
    for seconds in waits_s:
        await asyncio.wait_for(clock.until_waiting(seconds), HANG_S)
        await clock.advance(min(seconds, 54.0 - clock.monotonic()))
    result = await asyncio.wait_for(run, HANG_S)
    assert_answered(result, clock, within_s=60.0)
    (said,) = results_of(result)
    assert TURNS_TIME in said and "began" in said and ran in said, said


@pytest.mark.promise("end:budget")
async def test_a_limit_that_time_alone_does_not_decide_takes_nothing_from_tools() -> None:
    """Proves: with `&` the turn goes on after its seconds, so a tool has its own deadline and no less."""
    clock = FakeClock()
    limits = MaxWallTime(60.0) & MaxRequests(9)
    lab = Lab([calls('text = "100"')])
    agent = agent_of(lab, "calls", clock, tools=[hanging(clock)], limits=limits)
    result = await ended(clock, agent, 1.0)
    assert (result.text, result.complete) == ("It said: did 100", True)


@settings(max_examples=examples(40), deadline=None)
@given(
    limit_s=st.floats(1.0, 2_000.0),
    works_s=st.lists(st.floats(0.0, 3_000.0), min_size=1, max_size=4),
    leaps=st.lists(st.floats(0.5, 3_000.0), min_size=1, max_size=8),
    exclusive=st.booleans(),
    last_first=st.booleans(),
)
def test_no_tool_is_so_slow_and_no_machine_so_late_that_the_answer_is_ours(
    limit_s: float, works_s: list[float], leaps: list[float], exclusive: bool, last_first: bool
) -> None:
    """Proves: whatever the tools take and however the loop is held up, each call has one result and the model answers."""

    async def run() -> RunResult:
        clock = FakeClock()
        lab = Lab([calls(*[f'text = "{seconds}"' for seconds in works_s])])
        tools = [hanging(clock, exclusive=exclusive)]
        deadlines = Deadlines(tool_s=5_000.0)
        agent = agent_of(lab, "calls", clock, tools=tools, limits=MaxWallTime(limit_s), deadlines=deadlines)
        return await ended(clock, agent, *leaps, limit_s / 40, last_first=last_first)

    result = asyncio.run(run())
    assert result.written_locally is False and result.text.startswith("It said: ")
    assert len(results_of(result)) == len(works_s)


class Stalls:
    """A model's transport whose second request gets no answer."""

    def __init__(self, model: ScriptedModel) -> None:
        self._model = model
        self._count = 0

    def send(self, request: HttpRequest, /) -> AbstractAsyncContextManager[HttpReply]:
        self._count += 1
        stalled = ScriptedTransport([Reply(before=Stall())])
        return (stalled if self._count == 2 else self._model).send(request)


@pytest.mark.promise("end:budget", "cut:continued")
async def test_a_continuation_without_an_answer_leaves_time_for_the_answer() -> None:
    """Proves: a request that the answer comes after ends before the answer's time, and is not sent again."""
    clock = FakeClock()
    text = "a rather long text that goes on and on until it is cut somewhere"
    cut = Response(
        message=Message("assistant", (ToolCall(id="a", name="work", arguments=f'{{"text":"{text}'),)),
        finish=FinishReason.LENGTH,
    )
    model = ScriptedModel([cut, "It said: nothing."])
    agent = flat_agent(
        "openai_chat:m",
        base_url=model.endpoint.base_url,
        transport=Stalls(model),
        clock=clock,
        tools=[hanging(clock)],
        limits=MaxWallTime(60.0),
    )
    result = await ended(clock, agent, 1.0)
    assert_answered(result, clock, within_s=60.0)
    assert (result.requests, [request.tool_choice for request in model.asked]) == (3, ["auto", "none"])


@pytest.mark.promise("end:budget")
async def test_a_command_is_told_that_the_turns_time_ended_it(tmp_path: Path) -> None:
    """Proves: what ends by a deadline of its own has the time that the turn leaves it, and its result says why."""
    shell = Shell(tmp_path, sandbox=sandbox_called("none"))
    with CallTerms(seconds=1.0, computes=False), pytest.raises(ToolFault) as caught:
        await asyncio.wait_for(shell.run(BashArguments(command="echo begun; exec sleep 1000")), HANG_S)
    assert str(caught.value).endswith(f"[timed out after 1 s: {TURNS_TIME}; it and what it started were ended]")


def test_a_tool_has_its_own_time_or_what_the_turn_leaves_it() -> None:
    """Proves: the grace of a tool that ends by itself comes out of its own time, not out of the answer's."""
    assert CallTime.of(30.0, left_s=math.inf, grace_s=5.0) == CallTime(seconds=30.0, grace_s=5.0)
    assert CallTime.of(30.0, left_s=40.0, grace_s=5.0) == CallTime(seconds=30.0, grace_s=5.0)
    assert CallTime.of(600.0, left_s=54.0, grace_s=5.0) == CallTime(seconds=54.0, told_s=49.0, is_turns=True)
    assert CallTime.of(600.0, left_s=5.0, grace_s=5.0) == CallTime(seconds=5.0, told_s=4.5, is_turns=True)
