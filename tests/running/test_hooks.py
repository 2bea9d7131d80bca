"""The user's hooks: what they may change, and what happens when they fail."""

import asyncio
import threading
from typing import get_args

import pytest

from flat_agents import flat_agent
from turnwise import Agent, StopReason, tool
from turnwise.errors import CallerError
from turnwise.journal.journal import Journal
from turnwise.lab import Lab
from turnwise.running.hooks import (
    ANSWERS,
    ChangeArguments,
    ChangeResult,
    Deny,
    Hook,
    Hooks,
    HookStage,
    Looks,
    RequestAboutToLeave,
    Says,
    ToolAboutToRun,
    ToolRan,
    TurnEnded,
)
from turnwise.testing import FakeClock
from turnwise.turn.config import Deadlines
from turnwise.turn.events import HookOutcome, HooksRan, PlannedCall, RunHooks, SendRequest
from turnwise.vocab import Request, Text, ToolCall, ToolResult
from waits import HANG_S

CALL = ToolCall(id="a", name="read", arguments='{"path":"a"}')
PLAN = PlannedCall(call=CALL, arguments=CALL.arguments, timeout_s=1.0)
BEFORE = RunHooks(step=1, point="before_tool", deadlines=Deadlines(), calls=(PLAN,))


def result(text: str) -> ToolResult:
    return ToolResult(call_id="a", name="read", content=(Text(text),))


async def test_hooks_run_one_after_the_other_and_see_what_the_one_before_changed() -> None:
    """The first changes the arguments, the second reads them, a denial ends the row; other tools' hooks do not run."""
    seen: list[str] = []

    async def first(_: Looks) -> Says:
        return ChangeArguments({"path": "b"})

    def second(looks: Looks) -> Says:
        assert isinstance(looks, ToolAboutToRun)
        seen.append(looks.arguments)
        return Deny("not b")

    def never(_: Looks) -> Says:
        raise AssertionError

    hooks = Hooks(
        [
            Hook(point="before_tool", function=never, name="others", tools="wri*"),
            Hook(point="before_tool", function=first, name="first"),
            Hook(point="before_tool", function=second, name="second", tools="re?d"),
            Hook(point="before_tool", function=never, name="third"),
        ],
        clock=FakeClock(),
    )
    assert await hooks.run(BEFORE) == (
        HookOutcome(by="first", call_id="a", arguments='{"path":"b"}'),
        HookOutcome(by="second", call_id="a", denied="not b"),
    )
    assert seen == ['{"path":"b"}']
    assert hooks.points == ("before_tool",)


@pytest.mark.promise("wait:tool")
async def test_a_guard_that_fails_denies() -> None:
    """One that raises, one that answers nonsense, one that is late: the call does not run, and the result names the hook."""
    clock = FakeClock()

    def raises(_: Looks) -> Says:
        raise KeyError("path")

    def nonsense(_: Looks) -> Says:
        return 3  # pyright: ignore[reportReturnType]

    async def late(_: Looks) -> Says:
        await asyncio.Event().wait()
        return None

    for function, words in ((raises, "it raised KeyError"), (nonsense, "it returned `int`"), (late, "within 2 s")):
        hooks = Hooks([Hook(point="before_tool", function=function, name="guard", timeout_s=2.0)], clock=clock)
        task = asyncio.create_task(hooks.run(BEFORE))
        if function is late:
            await clock.advance(3.0)
        (outcome,) = await asyncio.wait_for(task, HANG_S)
        assert outcome.by == "guard" and outcome.denied is not None and words in outcome.denied


REQUEST = RunHooks(
    step=1,
    point="before_request",
    deadlines=Deadlines(),
    request=SendRequest(
        number=1, step=1, purpose="step", request=Request(model="m", messages=()), deadlines=Deadlines()
    ),
)


@pytest.mark.promise("wait:tool")
@pytest.mark.parametrize(
    "said", [ChangeArguments({}), ChangeResult("x"), "deny", True, False, {"deny": "x"}, [Deny("x")], Deny]
)
async def test_a_guard_of_requests_that_answers_nonsense_denies(said: object) -> None:
    """Proves (issue 13, 17): the request does not leave, and the error names the hook and what it may answer."""
    hook = Hook(point="before_request", function=lambda _: said, name="guard")  # type: ignore[arg-type, return-value]
    (outcome,) = await Hooks([hook], clock=FakeClock()).run(REQUEST)
    assert outcome.by == "guard" and outcome.denied is not None
    assert outcome.denied.startswith(f"the hook failed (it returned `{type(said).__name__}`")
    assert "at `before_request` a hook returns Deny or None" in outcome.denied


async def test_every_point_has_its_answers_and_takes_no_others() -> None:
    """Proves: at each point that guards, whatever is none of its answers denies; what only looks at a result leaves it."""
    every = (Deny("no"), ChangeArguments({"path": "b"}), ChangeResult("x"), None)
    after = RunHooks(step=1, point="after_tool", deadlines=Deadlines(), calls=(PLAN,), results=(result("a"),))
    assert set(ANSWERS) == set(get_args(HookStage))
    for order in (BEFORE, REQUEST, after):
        for said in every:
            hook = Hook(point=order.point, function=lambda _, said=said: said, name="guard")
            outcomes = await Hooks([hook], clock=FakeClock()).run(order)
            failed = [one for one in outcomes if one.denied is not None and "the hook failed" in one.denied]
            fits = said is None or isinstance(said, ANSWERS[order.point])
            assert bool(failed) == (not fits and order is not after)
            assert bool(outcomes) == (said is not None and (fits or order is not after))


def test_a_hook_about_no_tool_is_an_error_with_the_nearest_name() -> None:
    """Proves: a guard with a slip in its `tools` would guard nothing; nothing is sent."""
    lab = Lab()

    def agent_with(tools: str) -> Agent:
        hook = Hook(point="before_tool", function=lambda _: Deny("no"), name="guard", tools=tools)
        return flat_agent(
            "openai_chat:plain-answer", base_url="http://127.0.0.1:9/v1", transport=lab.transport(), hooks=[hook]
        )

    with pytest.raises(CallerError, match=r"the hook `guard` is for the tool `bsh`, .* did you mean `bash`\?"):
        agent_with("bsh").run_sync("Go.")
    assert lab.count() == 0
    assert agent_with("ba*").run_sync("Go.").complete


@pytest.mark.promise("wait:tool")
async def test_a_function_that_blocks_is_late_and_holds_nobody_up() -> None:
    """Proves: the deadline of a plain function holds while it blocks, a late guard denies, a cancel ends the wait."""
    clock = FakeClock()
    begun, over = threading.Semaphore(0), threading.Event()

    def blocks(_: Looks) -> Says:
        begun.release()
        over.wait(HANG_S)
        return None

    hooks = Hooks([Hook(point="before_tool", function=blocks, name="guard", timeout_s=2.0)], clock=clock)
    try:
        late = asyncio.create_task(hooks.run(BEFORE))
        assert await asyncio.to_thread(begun.acquire, timeout=HANG_S)
        await clock.advance(2.0)
        (outcome,) = await asyncio.wait_for(late, HANG_S)
        cancelled = asyncio.create_task(hooks.run(BEFORE))
        assert await asyncio.to_thread(begun.acquire, timeout=HANG_S)
        cancelled.cancel()
        with pytest.raises(asyncio.CancelledError):
            await asyncio.wait_for(cancelled, HANG_S)
        assert not over.is_set()
    finally:
        over.set()
    assert outcome == HookOutcome(by="guard", call_id="a", denied="the hook failed (it did not answer within 2 s)")


@pytest.mark.parametrize(
    ("point", "hint"),
    [("before_tol", "did you mean `before_tool`? "), ("turn_end", "did you mean `turn_ended`? "), ("x", ""), (3, "")],
)
def test_a_point_that_does_not_exist_is_refused(point: str, hint: str) -> None:
    """Proves: a guard with a slip in its point fails when it is made, not open; the error names the points and the near one."""
    with pytest.raises(CallerError) as refused:
        Hook(point=point, function=lambda _: None, name="guard")  # pyright: ignore[reportArgumentType]
    assert str(refused.value) == (
        f"the hook `guard` is for the point `{point}`, which does not exist: {hint}"
        "Points are before_tool, after_tool, before_request, turn_ended, turn_cancelled"
    )


async def test_what_looks_at_a_result_and_fails_leaves_it_and_a_change_reaches_the_next_one() -> None:
    """A result is worth more than the hook that stumbled over it."""
    seen: list[str] = []

    def stumbles(_: Looks) -> Says:
        raise ValueError

    def hides(looks: Looks) -> Says:
        assert isinstance(looks, ToolRan)
        return ChangeResult(looks.text.replace("secret", "[hidden]"))

    def sees(looks: Looks) -> Says:
        assert isinstance(looks, ToolRan)
        seen.append(looks.text)
        return None

    order = RunHooks(step=1, point="after_tool", deadlines=Deadlines(), calls=(PLAN,), results=(result("a secret"),))
    given = [
        Hook(point="after_tool", function=function, name=name)
        for name, function in (("stumbles", stumbles), ("hides", hides), ("sees", sees))
    ]
    outcomes = await Hooks(given, clock=FakeClock()).run(order)
    assert outcomes == (HookOutcome(by="hides", call_id="a", result=result("a [hidden]")),)
    assert seen == ["a [hidden]"]


async def test_an_agent_runs_hooks_at_every_point_and_the_journal_tells_what_they_did() -> None:
    """Before the tool, after it, before each request, at the end: typed, in order, journalled."""
    points: list[str] = []
    clock = FakeClock()

    @tool(effect="read")
    def read(path: str) -> str:
        """Read."""
        return f"content of {path}"

    def look(looks: Looks) -> Says:
        points.append(type(looks).__name__)
        if isinstance(looks, ToolAboutToRun):
            return ChangeArguments({"path": "other.txt"})
        return None

    every = ("before_tool", "after_tool", "before_request", "turn_ended", "turn_cancelled")
    hooks = [Hook(point=point, function=look, name="look") for point in every]
    lab = Lab()
    with Journal(None, clock=clock) as journal:
        agent = flat_agent(
            "openai_chat:parallel-calls",
            base_url="http://127.0.0.1:9/v1",
            transport=lab.transport(),
            tools=[read],
            hooks=hooks,
            journal=journal,
        )
        ended = await agent.run("Go.")
        (row,) = journal.sessions()
        events = journal.events(journal.find_session(row.id).turns[0].id)
    assert points == [
        *[RequestAboutToLeave.__name__],
        *[ToolAboutToRun.__name__] * 2,
        *[ToolRan.__name__] * 2,
        *[RequestAboutToLeave.__name__],
        *[TurnEnded.__name__],
    ]
    changed = [event for event in events if isinstance(event, HooksRan) and event.outcomes]
    assert [outcome.arguments for event in changed for outcome in event.outcomes] == ['{"path":"other.txt"}'] * 2
    assert ended.complete and lab.count() == 2


async def test_a_cancelled_turn_is_told_to_the_hooks_that_want_to_know() -> None:
    """`turn_cancelled` comes first, `turn_ended` always."""
    points: list[str] = []
    hooks = [
        Hook(point="turn_ended", function=lambda _: points.append("ended"), name="a"),
        Hook(point="turn_cancelled", function=lambda _: points.append("cancelled"), name="b"),
    ]
    agent = flat_agent(
        "openai_chat:fault-silence", base_url="http://127.0.0.1:9/v1", transport=Lab().transport(), hooks=hooks
    )
    began = asyncio.Event()
    task = agent.start("Go.", watch=lambda _: began.set())
    await asyncio.wait_for(began.wait(), HANG_S)
    task.interrupt()
    result = await asyncio.wait_for(task, HANG_S)
    assert result.stop_reason is StopReason.CANCELLED
    assert points == ["cancelled", "ended"]


@pytest.mark.promise("wait:tool")
async def test_what_a_hook_raises_shows_no_key_and_ends_no_program(caplog: pytest.LogCaptureFixture) -> None:
    """Proves: an exception's text goes through the endpoint's scrub into the log, and the model reads its class alone;
    `sys.exit()` in a hook is a failure like any other; a denial without a text is a denial."""

    class Unsayable(Exception):
        def __str__(self) -> str:
            raise ValueError

    def leaks(_: Looks) -> Says:
        raise OSError("401 for https://x/?key=sk-123456789")

    def leaves(_: Looks) -> Says:
        raise SystemExit(1)

    def unsayable(_: Looks) -> Says:
        raise Unsayable

    def wordless(_: Looks) -> Says:
        return Deny(None)  # type: ignore[arg-type]

    def odd(_: Looks) -> Says:
        return Deny("no \ud800")

    expected = {
        leaks: "the hook failed (it raised OSError)",
        leaves: "the hook failed (it raised SystemExit)",
        unsayable: "the hook failed (it raised Unsayable)",
        wordless: "",
        odd: "no \\ud800",
    }
    for function, denied in expected.items():
        hook = Hook(point="before_tool", function=function, name="guard")
        hooks = Hooks([hook], clock=FakeClock(), scrub=lambda text: text.replace("sk-123456789", "***"))
        assert await hooks.run(BEFORE) == (HookOutcome(by="guard", call_id="a", denied=denied),)
    assert "sk-123456789" not in caplog.text and "401 for https://x/?key=***" in caplog.text
    assert "in leaks" in caplog.text, "the log has the traceback"
