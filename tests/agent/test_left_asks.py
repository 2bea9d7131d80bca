"""What was asked when a process died: an answer that was given is not lost, the rest has what is left of its time, and whoever
goes on may allow more.

The crash is a copy of the journal's file (`test_resumed_runs.Crash`).
"""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from agent.test_resumed_runs import Crash, agent_of, results_of
from flat_agents import flat_agent
from turnwise import Agent, Approval, Asking, CallerError, Journal, PermissionRule, Policy, RunResult, tool
from turnwise.base.clock import Clock, SystemClock
from turnwise.replay.playback import SessionPlayer
from turnwise.replay.session_file import read_recorded
from turnwise.testing import FakeClock, ScriptedModel
from turnwise.testing.scripted_model import BASE_URL, call
from turnwise.turn.config import OneAsk

ASKS = Policy(rules=(PermissionRule(verdict="ask", tool="do"),), attended=True)
ALLOWS = (PermissionRule(verdict="allow", tool="do", source="command line"),)
THREE = [call("do", name=name) for name in "abc"]
IN_A_PROGRAM = [call("script", program='for name in "abc":\n    do(name=name)\nprint("done")')]
Approves = Callable[[Asking], Sequence[Approval]]


def yes(ask: OneAsk, **more: Any) -> Approval:
    return Approval(call_id=ask.call.id, verdict="allow", digest=ask.digest, **more)


def nobody(asking: Asking) -> list[Approval]:
    raise AssertionError(f"asked about {[ask.call.arguments for ask in asking.asks]}")


class Scene:
    """A turn that asks and whose process dies there, and what goes on with it."""

    def __init__(self, folder: Path, *, calls: Sequence[Any], clock: Clock | None = None, **more: Any) -> None:
        self.clock = clock or SystemClock()
        self.crash = Crash(folder)
        self.ran: list[str] = []
        self.calls = calls

        @tool(effect="write")
        def do(name: str) -> str:
            """Do it."""
            self.ran.append(name)
            return f"did {name}"

        self.do = do
        self.more: dict[str, Any] = {"tools": [do], "policy": ASKS, **more}

    def agent(self, journal: Journal, *, model: Sequence[Any], approver: Approves) -> Agent:
        more = {**self.more, "approver": approver}
        if helper := more.pop("helper", None):
            more["agents"] = {"helper": helper(journal, approver)}
        return agent_of(ScriptedModel([*model]), journal, clock=self.clock, **more)

    async def dies(self, approver: Approves) -> None:
        """The approver lets it die (`crash.now`); what happens afterwards is of another world."""
        with Journal(self.crash.path, clock=self.clock) as journal:
            await self.agent(journal, model=[[*self.calls], "Over."], approver=approver).run("Go.")
        self.ran.clear()

    async def goes_on(
        self,
        approver: Approves = nobody,
        *,
        model: Sequence[Any] = ("Done.",),
        clock: Clock | None = None,
        **options: Any,
    ) -> RunResult:
        self.clock = clock or self.clock
        with self.crash.journal(self.clock) as left:
            agent = self.agent(left, model=model, approver=approver)
            result = await agent.resume(left.sessions()[0].id, **options)
            recorded = read_recorded(left, left.find_session(result.session))
        player = SessionPlayer(recorded)
        for _ in player.turns():
            pass
        assert player.differences == [], "what was recorded leads to the same commands"
        return result


@pytest.mark.promise("keep:crash", "wait:ask")
@pytest.mark.parametrize("thread", [False, True], ids=["async", "in a thread"])
async def test_an_answer_that_was_given_is_not_asked_for_again(tmp_path: Path, thread: bool) -> None:
    """Proves: of three asks of a step two were answered when the process died; the third alone is put again."""
    scene = Scene(tmp_path, calls=THREE)
    asked: list[str] = []

    def first(asking: Asking) -> list[Approval]:
        a, b, _ = asking.asks
        asking.keep(yes(a))
        asking.keep(Approval(call_id=b.call.id, verdict="deny", text="not this"))
        scene.crash.now()
        return []

    async def first_async(asking: Asking) -> list[Approval]:
        return first(asking)

    def again(asking: Asking) -> list[Approval]:
        asked.extend([ask.call.arguments for ask in asking.asks])
        return [yes(ask) for ask in asking.asks]

    await scene.dies(first if thread else first_async)  # type: ignore[arg-type]
    result = await scene.goes_on(again)
    assert asked == ['{"name":"c"}'] and sorted(scene.ran) == ["a", "c"]
    a, b, c = results_of(result)
    assert (a, c) == ("did a", "did c") and "not this" in b


@pytest.mark.promise("keep:crash", "wait:ask")
async def test_where_all_were_answered_nobody_is_asked(tmp_path: Path) -> None:
    """Proves: the last answer, too, holds as soon as it is kept; what was allowed always holds behind the crash."""
    scene = Scene(tmp_path, calls=THREE[:2])

    def first(asking: Asking) -> list[Approval]:
        for ask in asking.asks:
            asking.keep(yes(ask, always=True))
        scene.crash.now()
        return []

    await scene.dies(first)
    await scene.goes_on(model=[[call("do", name="d")], "Done."])
    assert sorted(scene.ran) == ["a", "b", "d"]


@pytest.mark.promise("wait:ask")
async def test_kept_answers_stand_whatever_becomes_of_the_approver(tmp_path: Path) -> None:
    """Proves: one that then fails denies only what it had not answered; answers after the end, and of strangers, count for
    nothing."""
    scene = Scene(tmp_path, calls=THREE)
    late: list[Callable[[], None]] = []

    def fails(asking: Asking) -> list[Approval]:
        a, b, _ = asking.asks
        asking.keep(yes(a))
        asking.keep(Approval(call_id="a stranger's", verdict="allow"))
        late.append(lambda: asking.keep(yes(b)))
        raise OSError("the window was closed")

    with Journal(scene.crash.path, clock=scene.clock) as journal:
        result = await scene.agent(journal, model=[[*THREE], "Over."], approver=fails).run("Go.")
        late[0]()
        (turn,) = journal.find_session(result.session).turns
        kinds = [type(entry.record).__name__ for entry in journal.entries(turn.id)]
    assert scene.ran == ["a"] and kinds.count("AskAnswered") == 1
    assert ["it raised OSError" in told for told in results_of(result)] == [False, True, True]


@pytest.mark.promise("keep:crash", "wait:ask")
@pytest.mark.parametrize(("later_s", "left_s"), [(250, 170.0), (419, 1.0), (420, None), (5000, None)])
async def test_an_ask_has_what_is_left_of_its_time(tmp_path: Path, later_s: float, left_s: float | None) -> None:
    """Proves (issue 39, 3): the second ask of a step had what the first one had left of the time of both, though it was shown
    after the first one's answer at 120 s. Where nothing is left the default stands at once, nobody is asked, and the model is
    told."""
    clock = FakeClock()
    scene = Scene(tmp_path, calls=THREE[:2], clock=clock)
    asked: list[float] = []

    async def first(asking: Asking) -> list[Approval]:
        await clock.advance(120)
        asking.keep(yes(asking.asks[0]))
        scene.crash.now()
        return []

    def again(asking: Asking) -> list[Approval]:
        asked.append(asking.deadline_s)
        return [yes(ask) for ask in asking.asks]

    later = FakeClock(now=clock.now() + later_s)
    await scene.dies(first)  # type: ignore[arg-type]
    result = await scene.goes_on(again, clock=later)
    assert asked == ([] if left_s is None else [left_s])
    told = results_of(result)
    assert told[0] == "did a" and (told[1] == "did b") == (left_s is not None)
    assert left_s is not None or "answer" in told[1]


@pytest.mark.promise("keep:crash", "wait:ask")
async def test_whoever_goes_on_may_answer_what_was_open_and_give_it_time(tmp_path: Path) -> None:
    """Proves: `approvals` hold though the time is over; `ask_s` is the time of the others."""
    clock = FakeClock()
    scene = Scene(tmp_path, calls=THREE[:2], clock=clock)
    seen: list[OneAsk] = []
    asked: list[tuple[str, float]] = []

    def first(asking: Asking) -> list[Approval]:
        seen.extend(asking.asks)
        scene.crash.now()
        return []

    def again(asking: Asking) -> list[Approval]:
        asked.extend([(ask.call.arguments, asking.deadline_s) for ask in asking.asks])
        return [yes(ask) for ask in asking.asks]

    await scene.dies(first)
    late = FakeClock(now=clock.now() + 5000)
    await scene.goes_on(again, clock=late, approvals=[yes(seen[0])], ask_s=20.0)
    assert asked == [('{"name":"b"}', 20.0)] and sorted(scene.ran) == ["a", "b"]


@pytest.mark.promise("keep:crash")
async def test_an_answer_for_something_else_is_not_taken(tmp_path: Path) -> None:
    """Proves: an approval of another digest allows nothing."""
    scene = Scene(tmp_path, calls=THREE[:1])

    ids: list[str] = []

    def first(asking: Asking) -> list[Approval]:
        ids.append(asking.asks[0].call.id)
        scene.crash.now()
        return []

    await scene.dies(first)
    await scene.goes_on(lambda _: [], approvals=[Approval(call_id=ids[0], verdict="allow", digest="0" * 64)])
    assert scene.ran == []


def helper_of(scene: "Scene", calls: Sequence[Any]) -> Callable[[Journal, Approves], Agent]:
    models: list[ScriptedModel] = []

    def made(journal: Journal, approver: Approves) -> Agent:
        replies = [[*calls], "The helper is done."] if not models else ["The helper is done."]
        models.append(ScriptedModel(replies))
        return flat_agent(
            "openai_chat:m",
            base_url=BASE_URL,
            api_key="k",
            transport=models[-1],
            journal=journal,
            clock=scene.clock,
            tools=[scene.do],
            policy=ASKS,
            approver=approver,
            description="It helps.",
        )

    return made


@pytest.mark.promise("keep:crash")
@pytest.mark.parametrize("of", ["plain calls", "a program", "a sub-agent"])
async def test_rules_of_whoever_goes_on_hold_for_what_was_open_and_for_later_calls(tmp_path: Path, of: str) -> None:
    """Proves: nobody is asked any more: about what was open, about later steps, about the rest of a program, below in a
    sub-agent. The journal leads to the same commands."""
    if of == "a sub-agent":
        scene = Scene(tmp_path, calls=[call("task", agent="helper", prompt="Help.")])
        scene.more["helper"] = helper_of(scene, THREE)
    else:
        scene = Scene(tmp_path, calls=THREE if of == "plain calls" else IN_A_PROGRAM, script=True)

    def first(asking: Asking) -> list[Approval]:
        if scene.crash.left is None:
            scene.crash.now()
        return []

    await scene.dies(first)
    await scene.goes_on(rules=ALLOWS, model=[[call("do", name="later")], "Done."])
    assert sorted(scene.ran) == ["a", "b", "c", "later"]


@pytest.mark.promise("keep:crash")
async def test_rules_that_were_added_are_recorded(tmp_path: Path) -> None:
    """Proves: the next one who goes on with the turn has them, without giving them again."""
    scene = Scene(tmp_path, calls=THREE[:1])

    def first(asking: Asking) -> list[Approval]:
        scene.crash.now()
        return []

    await scene.dies(first)
    assert scene.crash.left is not None
    scene.crash.path = scene.crash.left

    def dies_again(_: object) -> list[Any]:
        scene.crash.now()
        return [call("do", name="lost")]

    await scene.goes_on(rules=ALLOWS, model=[dies_again, "Over."])
    scene.ran.clear()
    await scene.goes_on(model=[[call("do", name="later")], "Done."])
    assert scene.ran == ["later"]


async def test_options_that_are_no_approvals_or_rules_are_refused(tmp_path: Path) -> None:
    """Proves: a mistake is told before anything happens."""
    scene = Scene(tmp_path, calls=THREE[:1])

    def first(asking: Asking) -> list[Approval]:
        scene.crash.now()
        return []

    await scene.dies(first)
    for options in ({"approvals": ["yes"]}, {"rules": ["allow all"]}):
        with pytest.raises(CallerError, match="of `resume` must hold"):
            await scene.goes_on(**options)
