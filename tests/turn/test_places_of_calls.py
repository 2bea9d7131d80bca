"""`MaxToolCalls`: a place is given to a call that is about to run, after hooks, rules and the person's answers."""

from collections.abc import Callable, Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from thoroughness import examples
from turn.playing import READ, Played, call, play, results_in, says
from turn.test_script_phase import SCRIPTED, program, script
from turn.test_tool_call_limit import TASK, limited, ran
from turn.test_verdicts import ATTENDED, HELD, QUESTION, allow, answers
from turnwise.rules.limits import MaxRequests, MaxToolCalls, Spent
from turnwise.rules.permissions import PermissionRule
from turnwise.turn.call_sorting import NO_MORE_CALLS, NOT_IN_LINE
from turnwise.turn.config import Approval
from turnwise.turn.events import Ask, Asked, Command, Event, HookOutcome, HooksRan, RunHooks
from turnwise.vocab import Message, StopReason, Text, ToolResult


def paused(*ids: str) -> tuple[Message, ...]:
    """The messages of a run without a limit that was asked about these calls and left all of them for later."""
    later = [Approval(call_id=id, verdict="later") for id in ids]
    first = play([says(*[call(id, "write") for id in ids])], config=HELD, answer=answers(*later))
    assert [one.id for one in first.result.pending] == list(ids)
    return first.result.messages


def deny(id: str) -> Approval:
    return Approval(call_id=id, verdict="deny")


def resumed(earlier: tuple[Message, ...], *, approvals: Sequence[Approval], most: int, goes_on: bool) -> Played:
    return play(
        [says("So.")] if goes_on else [],
        config=replace(HELD, limits=MaxToolCalls(most)),
        earlier=earlier,
        input=(),
        approvals=tuple(approvals),
        keeps_waiting=True,
    )


def waiting(played: Played) -> list[str]:
    return [one.id for one in played.result.pending]


@pytest.mark.promise("end:budget", "wait:ask")
def test_the_approved_call_runs_though_another_stands_before_it() -> None:
    """The call before it has no answer: it waits on and takes no place. `planned[:left]` gave it the place, and the approval was
    lost."""
    played = resumed(paused("a", "b"), approvals=[allow("b")], most=1, goes_on=False)
    assert (ran(played), waiting(played)) == ([["b"]], ["a"])
    assert played.result.also_spent == Spent(tool_calls=1)
    assert results_in(played.result.messages) == {"b": "did b"}


@pytest.mark.promise("end:budget", "wait:ask")
def test_a_denied_call_of_an_earlier_run_takes_no_place() -> None:
    """The approved one behind it runs."""
    played = resumed(paused("a", "b"), approvals=[deny("a"), allow("b")], most=1, goes_on=True)
    assert (ran(played), waiting(played)) == ([["b"]], [])
    assert NO_MORE_CALLS not in results_in(played.result.messages)["a"]


@pytest.mark.promise("end:budget", "wait:ask")
def test_a_call_without_an_answer_waits_on_under_a_limit_that_is_used_up() -> None:
    """It has no result, so a later run can still answer it."""
    played = resumed(paused("a", "b"), approvals=[allow("a")], most=1, goes_on=False)
    assert (ran(played), waiting(played)) == ([["a"]], ["b"])
    assert played.result.stop_reason is StopReason.WAITING


@pytest.mark.promise("end:budget", "wait:ask", "step:every-call-answered")
@settings(max_examples=examples(150), deadline=None)
@given(
    verdicts=st.lists(st.sampled_from(["allow", "deny", "later", ""]), min_size=1, max_size=6), most=st.integers(1, 4)
)
def test_of_what_was_left_the_first_approved_run_the_undecided_wait_and_the_rest_is_told(
    verdicts: list[str], most: int
) -> None:
    """Proves: for any answers and any limit, no call runs beyond it, no place stays empty while an approved call goes without,
    and each call waits or has one result."""
    ids = [f"c{number}" for number in range(len(verdicts))]
    said = dict(zip(ids, verdicts, strict=True))
    approved = [id for id in ids if said[id] == "allow"]
    undecided = [id for id in ids if said[id] in ("", "later")]
    approvals = [Approval(call_id=id, verdict=verdict) for id, verdict in said.items() if verdict]  # type: ignore[arg-type]
    if not approvals:
        return
    played = resumed(paused(*ids), approvals=approvals, most=most, goes_on=not undecided)
    assert [id for batch in ran(played) for id in batch] == approved[:most]
    assert waiting(played) == undecided
    found = results_in(played.result.messages)
    assert sorted(found) == sorted(set(ids) - set(undecided))
    assert [id for id in ids if NO_MORE_CALLS in found.get(id, "")] == approved[most:]
    assert played.result.also_spent == Spent(tool_calls=len(approved[:most]))


def by_hooks(command: Command) -> Event:
    assert isinstance(command, RunHooks)
    outcomes: list[HookOutcome] = []
    for plan in command.calls:
        id = plan.call.id
        if id.startswith("denied"):
            outcomes.append(HookOutcome(by="h", call_id=id, denied="no"))
        elif id.startswith("answered"):
            result = ToolResult(call_id=id, name="read", content=(Text("known"),))
            outcomes.append(HookOutcome(by="h", call_id=id, result=result))
        elif id.startswith("broken"):
            outcomes.append(HookOutcome(by="h", call_id=id, arguments='{"path":1}'))
    return HooksRan(outcomes=tuple(outcomes))


def test_a_call_that_a_hook_denies_leaves_its_place_to_the_next() -> None:
    """The limit was said to be reached with no call made."""
    config = replace(limited(MaxToolCalls(1)), hooks=("before_tool",))
    played = play([says(call("denied"), call("b")), says("So.")], config=config, answer=by_hooks)
    assert (ran(played), played.result.also_spent) == ([["b"]], Spent(tool_calls=1))
    assert "Denied by the hook `h`" in results_in(played.result.messages)["denied"]


@pytest.mark.promise("end:budget", "step:every-call-answered")
@settings(max_examples=examples(150), deadline=None)
@given(
    fates=st.lists(
        st.sampled_from(["runs", "denied", "answered", "broken", "forbidden", "unfit"]), min_size=1, max_size=8
    ),
    most=st.integers(1, 5),
    more=st.booleans(),
)
def test_the_first_calls_that_nothing_else_holds_back_run(fates: list[str], most: int, more: bool) -> None:
    """Proves: whatever hooks, rules and arguments keep from running takes no place, wherever it stands."""
    calls = [
        call(
            f"{fate}{number}",
            "write" if fate == "forbidden" else "read",
            '{"path":1}' if fate == "unfit" else f'{{"path":"{number}"}}',
        )
        for number, fate in enumerate(fates)
    ]
    limit = MaxToolCalls(most) | MaxRequests(9) if more else MaxToolCalls(most)
    rules = (PermissionRule(verdict="deny", tool="write"), PermissionRule(verdict="allow", tool="read"))
    config = replace(HELD, limits=limit, hooks=("before_tool",), policy=replace(ATTENDED, rules=rules))
    played = play([says(*calls), says("So.")], config=config, answer=by_hooks)
    runs = [one.id for one in calls if one.id.startswith("runs")]
    assert [id for batch in ran(played) for id in batch] == runs[:most]
    found = results_in(played.result.messages)
    assert list(found) == [one.id for one in calls]
    assert [id for id, text in found.items() if NO_MORE_CALLS in text] == runs[most:]


def asked_then(*approvals: Approval, asked: list[list[str]]) -> Callable[[Command], Event]:
    def answer(command: Command) -> Event:
        assert isinstance(command, Ask)
        asked.append([one.call.id for one in command.asks])
        return Asked(approvals=approvals)

    return answer


def test_a_call_that_needs_no_ask_gets_the_place_of_a_denied_one() -> None:
    """Places are given after the answers; nobody is asked about a call that only a denial would make room for."""
    asked: list[list[str]] = []
    script_ = [says(call("a", "write"), call("b"), call("c", "write")), says("So.")]
    config = replace(HELD, limits=MaxToolCalls(1))
    played = play(script_, config=config, answer=asked_then(deny("a"), asked=asked))
    assert (asked, ran(played)) == ([["a"]], [["b"]])
    found = results_in(played.result.messages)
    assert NOT_IN_LINE in found["c"] and NO_MORE_CALLS not in found["c"]


def test_a_question_takes_no_place() -> None:
    """It has no tool: the person's answer is its result."""
    asked: list[list[str]] = []
    question = call("q", "ask_user", '{"question":"Which?"}')
    config = replace(HELD, limits=MaxToolCalls(1), tools=(READ, QUESTION))
    said = asked_then(Approval(call_id="q", verdict="allow", text="That one."), asked=asked)
    played = play([says(question, call("a")), says("So.")], config=config, answer=said)
    assert (asked, ran(played)) == ([["q"]], [["a"]])
    assert results_in(played.result.messages)["q"] == "That one."


def test_a_program_takes_no_place_from_the_calls_beside_it() -> None:
    """Its own calls take what those leave, here nothing."""
    config = replace(SCRIPTED, limits=MaxToolCalls(1))
    played = play([says(script("s"), call("a")), says("So.")], config=config, answer=program((call("s/1"),)))
    assert (ran(played), played.result.also_spent) == ([["a"]], Spent(tool_calls=1))
    assert NO_MORE_CALLS in results_in(played.result.messages)["s"]


@pytest.mark.promise("end:budget", "step:every-call-answered")
def test_the_place_of_a_sub_agent_that_does_not_start_goes_to_the_next_call() -> None:
    """Two tasks would leave nothing for their own calls, so neither starts. The call behind them was told that the limit is
    reached, with no call made."""
    script_ = [says(call("t", "task", "{}"), call("u", "task", "{}"), call("a"), call("v", "task", "{}")), says("So.")]
    played = play(script_, config=limited(MaxToolCalls(2), TASK, READ))
    assert (ran(played), played.result.also_spent) == ([["a"]], Spent(tool_calls=1))
    assert [id for id, text in results_in(played.result.messages).items() if NO_MORE_CALLS in text] == []


@pytest.mark.promise("end:budget", "step:every-call-answered")
@settings(max_examples=examples(150), deadline=None)
@given(kinds=st.lists(st.booleans(), min_size=1, max_size=8), most=st.integers(1, 12), subagents=st.integers(0, 3))
def test_sub_agents_and_the_calls_beside_them_stay_within_the_limit(
    kinds: list[bool], most: int, subagents: int
) -> None:
    """Proves: if each sub-agent makes all the calls that it may, no limit is overshot; and a call is told that the limit is
    reached only if it is."""
    calls = [call(f"t{nth}", "task", "{}") if is_task else call(f"r{nth}") for nth, is_task in enumerate(kinds)]
    config = replace(limited(MaxToolCalls(most), TASK, READ), max_subagents=subagents)
    played = play([says(*calls), says("So.")], config=config)
    plans = [plan for batch in played.ran for plan in batch]
    made = len(plans) + sum([plan.grant.calls for plan in plans if isinstance(plan.grant, MaxToolCalls)])
    assert made <= most and played.result.also_spent == Spent(tool_calls=len(plans))
    found = results_in(played.result.messages)
    assert list(found) == [one.id for one in calls]
    if any(NO_MORE_CALLS in text for text in found.values()):
        assert made == most
