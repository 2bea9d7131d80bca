"""Rules, people and hooks decide about calls before any of them runs."""

from collections.abc import Callable, Sequence

import msgspec
import pytest
from msgspec.structs import replace

from turn.playing import CONFIG, PATH, READ, WRITE, Played, call, done, play, results_in, says
from turnwise.rules.limits import MaxRequests, MaxTokens, MaxWallTime
from turnwise.rules.permission_facts import CallFacts, PathFact
from turnwise.rules.permissions import Policy
from turnwise.turn.approvals import Approval, OneAsk
from turnwise.turn.commands import Ask, Command, InspectCalls, PlannedCall, RunHooks, SendRequest
from turnwise.turn.config import ChildReport, ToolOffer
from turnwise.turn.events import (
    Asked,
    CallsInspected,
    Event,
    HookOutcome,
    HooksRan,
    Interrupted,
    MessageArrived,
    ResponseReceived,
    ToolsFinished,
    TurnStarted,
)
from turnwise.turn.machine import Turn
from turnwise.turn.snapshot import restore
from turnwise.vocab import Message, StopReason, Text, ToolCall, ToolSpec, Usage

ATTENDED = Policy(attended=True, workspace="/w", home="/h")
QUESTION = ToolOffer(spec=ToolSpec(name="ask_user"), asks_user=True)
TASK = ToolOffer(spec=ToolSpec(name="task"), child=True)
HELD = replace(CONFIG, tools=(READ, WRITE, QUESTION), policy=ATTENDED)


def answers(*approvals: Approval) -> Callable[[Command], Event]:
    """Answer every ask with these."""

    def answer(command: Command) -> Event:
        match command:
            case Ask():
                return Asked(approvals=approvals)
            case InspectCalls(calls=calls):
                return CallsInspected(facts=tuple([facts_of(plan) for plan in calls]))
            case _:
                raise AssertionError(command)

    return answer


def facts_of(plan: PlannedCall) -> CallFacts:
    inside = plan.arguments == PATH
    path = PathFact(given="a", resolved="/w/a" if inside else "/etc/a", lexical="/w/a", inside=inside, access="write")
    return CallFacts(call_id=plan.call.id, tool=plan.call.name, effect="write", paths=(path,))


def texts(played: Played) -> dict[str, str]:
    return results_in(played.result.messages)


@pytest.mark.promise("wait:ask", "step:every-call-answered")
def test_all_asks_of_a_step_come_at_once_before_anything_runs() -> None:
    """One command holds both writes; the read waits for them; the denied one is told why, the others run together."""
    seen: list[Command] = []

    def answer(command: Command) -> Event:
        seen.append(command)
        return Asked(approvals=(Approval(call_id="b", verdict="deny", text="not there"), allow("c")))

    played = play([says(call("a"), call("b", "write"), call("c", "write")), says("Done.")], config=HELD, answer=answer)
    assert [[one.call.id for one in command.asks] for command in seen if isinstance(command, Ask)] == [["b", "c"]]
    assert [[plan.call.id for plan in plans] for plans in played.ran] == [["a", "c"]]
    assert texts(played)["b"].startswith(
        "Denied: `write` was not run, because the user denied it. They said: not there"
    )
    assert len(played.requests) == 2 and played.result.complete


def allow(id: str, **more: object) -> Approval:
    return Approval(call_id=id, verdict="allow", **more)  # type: ignore[arg-type]


@pytest.mark.promise("wait:ask")
def test_an_ask_has_a_deadline_and_its_default_is_no() -> None:
    """Nobody answered: the call does not run, and the model is told that nobody did."""
    seen: list[Ask] = []

    def answer(command: Command) -> Event:
        assert isinstance(command, Ask)
        seen.append(command)
        return Asked()

    played = play([says(call("a", "write")), says("I could not.")], config=HELD, answer=answer)
    assert seen[0].deadline_s == HELD.deadlines.ask_s > 0
    assert played.ran == []
    assert "nobody answered in time" in texts(played)["a"]


@pytest.mark.promise("wait:ask")
def test_an_unattended_run_decides_at_once_and_says_so() -> None:
    """No command waits for a person: an approval is denied by the rules, a question is given back to the model."""
    config = replace(HELD, policy=replace(ATTENDED, attended=False))
    asked = call("q", "ask_user", '{"question":"Which one?"}')
    played = play([says(call("a", "write"), asked), says("So be it.")], config=config)
    assert played.ran == []
    assert texts(played)["a"].startswith("Denied: `write` was not run.")
    assert texts(played)["q"].startswith("There is nobody to ask in this run.")


def test_a_question_of_the_model_is_answered_by_the_person() -> None:
    """The answer is the call's result; what nobody answers is left to the model."""
    asked = call("q", "ask_user", '{"question":"Which one?","options":["red","blue"]}')
    seen: list[tuple[OneAsk, ...]] = []

    def answer(command: Command) -> Event:
        assert isinstance(command, Ask)
        seen.append(command.asks)
        return Asked(approvals=(allow("q", text="blue"),) if len(seen) == 1 else ())

    again = call("r", "ask_user", '{"question":"Sure?"}')
    played = play([says(asked), says(again), says("Blue.")], config=HELD, answer=answer)
    assert seen[0] == (
        OneAsk(call=asked, arguments=asked.arguments, subject="Which one?", kind="question", options=("red", "blue")),
    )
    assert texts(played)["q"] == "blue"
    assert texts(played)["r"].startswith("The user gave no answer in time.")
    assert played.ran == []


def test_what_was_allowed_always_is_not_asked_again() -> None:
    """The rule holds for later steps of the turn, and is no broader than the call that was shown."""
    asked: list[str] = []

    def answer(command: Command) -> Event:
        match command:
            case Ask(asks=asks):
                asked.extend([one.call.id for one in asks])
                return Asked(approvals=tuple([allow(one.call.id, always=True) for one in asks]))
            case InspectCalls(calls=calls):
                return CallsInspected(facts=tuple([facts_of(plan) for plan in calls]))
            case _:
                raise AssertionError(command)

    config = replace(HELD, tools=(READ, replace(WRITE, inspected=True)))
    other = call("c", "write", '{"path":"/etc/a"}')
    script = [says(call("a", "write")), says(call("b", "write")), says(other), says("Done.")]
    played = play(script, config=config, answer=answer)
    assert asked == ["a", "c"]
    assert [[plan.call.id for plan in plans] for plans in played.ran] == [["a"], ["b"], ["c"]]
    assert played.ran[2][0].paths == ("/etc/a",)


@pytest.mark.promise("wait:ask", "keep:replay")
def test_an_ask_left_for_later_ends_the_run_and_the_answer_resumes_it() -> None:
    """The siblings run now; the next run takes the pending call up, runs it once, and goes on in one request."""
    first = play(
        [says(call("a"), call("b", "write"))], config=HELD, answer=answers(Approval(call_id="b", verdict="later"))
    )
    assert first.result.stop_reason is StopReason.WAITING
    assert [one.call.id for one in first.result.asks] == ["b"] == [one.id for one in first.result.pending]
    assert [[plan.call.id for plan in plans] for plans in first.ran] == [["a"]]

    second = play(
        [says("Done.")],
        config=HELD,
        earlier=first.result.messages,
        input=(Message("user", (Text("and hurry"),)),),
        approvals=(allow("b", subject=first.result.asks[0].subject),),
    )
    assert [[plan.call.id for plan in plans] for plans in second.ran] == [["b"]]
    sent = second.requests[0].request.messages
    assert results_in(sent) == {"a": "did a", "b": "did b"}
    assert sent[-1] == Message("user", (Text("and hurry"),))
    assert second.result.complete and len(second.requests) == 1
    assert restore(second.events, earlier=first.result.messages)[1][-1] == restore_last(second)


def restore_last(played: Played) -> Command:
    return msgspec.convert(msgspec.to_builtins(played.turn.at_hand), Command)


def test_a_pending_call_that_leads_elsewhere_by_now_is_denied() -> None:
    """The approval was for what was shown (a link may have been turned round since)."""
    first = play([says(call("b", "write"))], config=HELD, answer=answers(Approval(call_id="b", verdict="later")))
    stale = (allow("b", subject="something else"),)
    second = play([says("Done.")], config=HELD, earlier=first.result.messages, input=(), approvals=stale)
    assert second.ran == []
    assert "no longer what the user was shown" in texts(second)["b"]


# hooks


def test_hooks_change_arguments_and_results_and_deny() -> None:
    """Changed arguments are validated again; a denial and a changed result reach the model with the hook's name."""
    config = replace(CONFIG, hooks=("before_tool", "after_tool"))

    def answer(command: Command) -> Event:
        match command:
            case RunHooks(point="before_tool"):
                return HooksRan(
                    outcomes=(
                        HookOutcome(by="guard", call_id="a", arguments='{"path":"other"}'),
                        HookOutcome(by="guard", call_id="b", denied="not on Sundays"),
                        HookOutcome(by="guard", call_id="c", arguments='{"path":3}'),
                    )
                )
            case RunHooks(point="after_tool", results=results):
                assert [one.call_id for one in results] == ["a"]
                return HooksRan(outcomes=(HookOutcome(by="redact", call_id="a", result=said(call("a"), "[hidden]")),))
            case _:
                raise AssertionError(command)

    played = play([says(call("a"), call("b"), call("c")), says("Done.")], config=config, answer=answer)
    assert [(plan.call.id, plan.arguments) for plan in played.ran[0]] == [("a", '{"path":"other"}')]
    found = texts(played)
    assert found["a"] == "[hidden]"
    assert found["b"].startswith("Denied by the hook `guard`: not on Sundays.")
    assert found["c"].startswith("Not run: the hook `guard` changed the arguments")


def said(of: ToolCall, text: str):
    return replace(done(PlannedCall(call=of, arguments=PATH, timeout_s=1.0)), content=(Text(text),))


def test_a_hook_sees_each_request_before_it_leaves_and_may_stop_it() -> None:
    """A request that a hook stopped was not sent, so it does not count."""
    config = replace(CONFIG, hooks=("before_request",))
    seen: list[SendRequest | None] = []

    def answer(command: Command) -> Event:
        assert isinstance(command, RunHooks)
        seen.append(command.request)
        denied = HookOutcome(by="budget office", denied="enough for today")
        return HooksRan(outcomes=(denied,) if len(seen) == 2 else ())

    played = play([says("I look.", call("a"))], config=config, answer=answer)
    assert [one.number for one in seen if one] == [1, 2]
    assert played.result.requests == 1 == len(played.requests)
    assert played.result.stop_reason is StopReason.CANCELLED
    assert "The hook `budget office` stopped the turn" in played.result.text
    assert texts(played) == {"a": "did a"}


# a word in between


def test_a_word_in_mid_turn_is_carried_by_the_next_request_after_the_results() -> None:
    """Pairs stay pairs, whatever the turn waited for when it came."""
    word = Message("user", (Text("in French, please"),))
    turn, command = Turn.start(TurnStarted(config=CONFIG, input=(Message("user", (Text("go"),)),)))
    assert turn.receive(MessageArrived(message=word)) == command
    command = turn.receive(ResponseReceived(number=1, response=says(call("a"))))
    assert turn.receive(MessageArrived(message=word)) == command
    command = turn.receive(ToolsFinished(results=(said(call("a"), "did a"),)))
    assert isinstance(command, SendRequest)
    assert [message.role for message in command.request.messages[-3:]] == ["tool", "user", "user"]


def test_a_word_that_came_during_the_answer_is_answered_too() -> None:
    """The turn goes on while its cap allows; else the result names what was not read."""
    word = Message("user", (Text("and the tests?"),))
    start = TurnStarted(config=CONFIG, input=(Message("user", (Text("go"),)),))
    turn, _ = Turn.start(start)
    turn.receive(MessageArrived(message=word))
    command = turn.receive(ResponseReceived(number=1, response=says("Done.")))
    assert isinstance(command, SendRequest) and command.request.messages[-1] == word
    turn.receive(ResponseReceived(number=2, response=says("The tests pass.")))
    assert turn.result is not None and turn.result.text == "The tests pass." and turn.result.unread == ()

    turn, _ = Turn.start(replace(start, config=replace(CONFIG, max_steps=1)))
    turn.receive(MessageArrived(message=word))
    turn.receive(ResponseReceived(number=1, response=says("Done.")))
    assert turn.result is not None and turn.result.text == "Done." and turn.result.unread == (word,)


# cancelled in between


@pytest.mark.parametrize("at", ["hooks", "facts", "ask"])
@pytest.mark.promise("wait:cancel", "step:every-call-answered")
def test_a_cancel_before_the_tools_answers_every_call(at: str) -> None:
    """Nothing has run, and the results say so."""
    config = replace(
        HELD,
        tools=(READ, replace(WRITE, inspected=at == "facts")),
        hooks=("before_tool",) if at == "hooks" else (),
    )
    cancelled = play([says(call("a"), call("b", "write"))], config=config, answer=lambda _: Interrupted(kind="cancel"))
    assert cancelled.result.stop_reason is StopReason.CANCELLED
    assert set(texts(cancelled).values()) == {"Not run: cancelled by the user before this call had started."}


# children


@pytest.mark.promise("end:budget")
def test_children_draw_on_the_limits_of_their_parent() -> None:
    """Each gets its share of what is left but for the answer, and what they spent counts."""
    config = replace(CONFIG, tools=(TASK,), limits=MaxRequests(10) | MaxTokens(50_000, "output") | MaxWallTime(60.0))
    reports = tuple(
        [
            ChildReport(
                call_id=id, session_id=id, stop_reason=StopReason.ANSWERED, requests=4, usage=Usage(output_tokens=9)
            )
            for id in ("a", "b")
        ]
    )
    spent = ToolsFinished(results=(said(call("a", "task"), "x"), said(call("b", "task"), "y")), children=reports)
    script: Sequence[object] = [says(call("a", "task", "{}"), call("b", "task", "{}")), spent, says("Done.")]
    played = play(script, config=config)  # type: ignore[arg-type]
    grants = [plan.grant for plan in played.ran[0]]
    assert grants == [MaxRequests(4) | MaxTokens(24_500, "output") | MaxWallTime(60.0)] * 2
    assert played.requests[-1].request.tool_choice == "none"  # 1 + 8 are spent: the tenth is the answer
    assert played.result.children == reports and played.result.requests == 2


def test_a_child_is_not_begun_with_nothing_left_for_it() -> None:
    """The call has a result that says so, and the answer is still affordable."""
    script = [says(call("a", "task", "{}")), says("Done.")]
    played = play(script, config=replace(CONFIG, tools=(TASK,), limits=MaxRequests(2)))
    assert played.ran == []
    assert texts(played)["a"].startswith("Not run: what the turn's limits leave is too little for a sub-agent")
    assert played.result.text == "Done."
