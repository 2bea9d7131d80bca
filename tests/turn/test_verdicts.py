"""Rules, people and hooks decide about calls before any of them runs."""

from collections.abc import Callable, Sequence

import msgspec
import pytest
from msgspec.structs import replace

from turn.playing import CONFIG, PATH, READ, WRITE, Played, call, done, play, results_in, says
from turnwise.rules.limits import MaxRequests, MaxTokens, MaxWallTime
from turnwise.rules.permission_facts import CallFacts, PathFact
from turnwise.rules.permissions import Policy
from turnwise.turn.config import Approval, ChildReport, OneAsk, ToolOffer, TurnConfig, digest_of
from turnwise.turn.events import (
    Ask,
    Asked,
    CallsInspected,
    Command,
    Event,
    HookOutcome,
    HooksRan,
    InspectCalls,
    Interrupted,
    MessageArrived,
    PlannedCall,
    ResponseReceived,
    RunHooks,
    SendRequest,
    ToolsFinished,
    TurnStarted,
)
from turnwise.turn.machine import Turn, restore
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


NOBODY = answers()


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
    assert "because nobody answered, so the call is denied" in texts(played)["a"]


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
        OneAsk(
            call=asked,
            arguments=asked.arguments,
            subject="Which one?",
            kind="question",
            options=("red", "blue"),
            digest=seen[0][0].digest,
        ),
    )
    assert texts(played)["q"] == "blue"
    assert texts(played)["r"].startswith("The user gave no answer.")
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


def left_for_later(call_: ToolCall, *, config: TurnConfig = HELD) -> tuple[Played, OneAsk]:
    """A turn that was paused at this call, and what was shown of it."""
    later = Approval(call_id=call_.id, verdict="later")
    first = play([says(call_)], config=config, answer=answers(later))
    (ask,) = first.result.asks
    return first, ask


def resumed(
    first: Played,
    *,
    approvals: tuple[Approval, ...],
    answer: Callable[[Command], Event] = NOBODY,
    config: TurnConfig = HELD,
    earlier: tuple[Message, ...] = (),
    goes_on: bool = True,
) -> Played:
    script = [says("Done.")] if goes_on else []
    earlier = earlier or first.result.messages
    return play(script, config=config, earlier=earlier, input=(), approvals=approvals, answer=answer)


def rewriting(arguments: str) -> Callable[[Command], Event]:
    """A hook that changes what is written, and nobody who answers."""

    def answer(command: Command) -> Event:
        match command:
            case RunHooks(calls=calls):
                return HooksRan(
                    outcomes=tuple([HookOutcome(by="h", call_id=plan.call.id, arguments=arguments) for plan in calls])
                )
            case Ask():
                return Asked()
            case _:
                raise AssertionError(command)

    return answer


def test_an_approval_of_a_journal_of_before_holds_for_its_subject_alone() -> None:
    """Such a journal has to replay to the same commands: an answer without a digest is judged as it was."""
    first, _ = left_for_later(call("b", "write"))
    second = resumed(first, approvals=(allow("b", subject="something else"),))
    assert second.ran == []
    assert "would no longer do what the user was shown" in texts(second)["b"]


def test_an_approval_is_for_the_arguments_that_were_shown_and_anything_else_waits_again() -> None:
    """Proves (issue 13, 15): a history that was edited since asks again, though `subject` is the same and no facts are known."""
    first, ask = left_for_later(call("b", "write"))
    yes = allow("b", subject=ask.subject, digest=ask.digest)
    earlier = tuple(
        [
            replace(message, parts=tuple([replace(part, arguments='{"path":"b"}') for part in message.parts]))
            if message.role == "assistant"
            else message
            for message in first.result.messages
        ]
    )
    second = resumed(first, approvals=(yes,), earlier=earlier, goes_on=False)
    assert second.ran == []
    assert second.result.stop_reason is StopReason.WAITING
    (again,) = second.result.asks
    assert again.arguments == '{"path":"b"}' and "something else than the user was shown and allowed" in again.why
    third = resumed(first, approvals=(allow("b", digest=again.digest),), earlier=earlier)
    assert [plan.arguments for (plan,) in third.ran] == ['{"path":"b"}']


def test_a_hook_that_answers_differently_the_second_time_is_asked_about_again() -> None:
    """Proves (issue 13, 15): what runs is what the person saw, not what a hook makes of it later."""
    config = replace(HELD, hooks=("before_tool",))
    shown, other = '{"path":"shown"}', '{"path":"other"}'

    def pause(command: Command) -> Event:
        if isinstance(command, Ask):
            return Asked(approvals=(Approval(call_id="b", verdict="later"),))
        return rewriting(shown)(command)

    first = play([says(call("b", "write"))], config=config, answer=pause)
    (ask,) = first.result.asks
    assert ask.arguments == shown
    yes = (allow("b", subject=ask.subject, digest=ask.digest),)
    second = resumed(first, approvals=yes, config=config, answer=rewriting(other), goes_on=False)
    assert second.ran == [] and second.result.asks[0].arguments == other
    same = resumed(first, approvals=yes, config=config, answer=rewriting(shown))
    assert [(plan.arguments, plan.shown) for (plan,) in same.ran] == [(shown, ask.digest)]


@pytest.mark.parametrize("field", ["state", "resolved"])
def test_an_approval_is_for_what_would_change(field: str) -> None:
    """Proves (issue 13, 15): the same path with other content, or that leads elsewhere, is asked about again."""
    config = replace(HELD, tools=(replace(WRITE, inspected=True),))

    def facts(changed: bool, *approvals: Approval) -> Callable[[Command], Event]:
        def answer(command: Command) -> Event:
            if isinstance(command, Ask):
                return Asked(approvals=approvals)
            assert isinstance(command, InspectCalls)
            (found,) = [facts_of(plan) for plan in command.calls]
            if changed and field == "state":
                found = replace(found, state="other content")
            elif changed:
                found = replace(found, paths=(replace(found.paths[0], resolved="/w/b"),))
            return CallsInspected(facts=(found,))

        return answer

    first = play([says(call("b", "write"))], config=config, answer=facts(False, Approval(call_id="b", verdict="later")))
    (ask,) = first.result.asks
    yes = (allow("b", subject=ask.subject, digest=ask.digest),)
    assert [plan.call.id for (plan,) in resumed(first, approvals=yes, config=config, answer=facts(False)).ran] == ["b"]
    second = resumed(first, approvals=yes, config=config, answer=facts(True), goes_on=False)
    assert second.ran == [] and second.result.stop_reason is StopReason.WAITING


@pytest.mark.parametrize("flip", [False, True])
def test_of_contradicting_answers_a_denial_wins_and_then_later(flip: bool) -> None:
    """Proves (issue 13, 15): whichever comes first, in the turn and when it is taken up again."""
    deny, later = Approval(call_id="b", verdict="deny"), Approval(call_id="b", verdict="later")

    def both(one: Approval, other: Approval) -> tuple[Approval, ...]:
        return (other, one) if flip else (one, other)

    script = [says(call("b", "write")), says("I could not.")]
    yes = allow("b", always=True)
    played = play(script, config=HELD, answer=answers(*both(yes, deny)))
    assert played.ran == [] and "the user denied it" in texts(played)["b"]
    assert played.turn.known.config.policy == ATTENDED, "nothing of it is remembered"
    waits = play(script[:1], config=HELD, answer=answers(*both(yes, later)))
    assert waits.ran == [] and waits.result.stop_reason is StopReason.WAITING
    again = resumed(waits, approvals=both(allow("b", digest=waits.result.asks[0].digest), deny))
    assert again.ran == [] and "the user denied it" in texts(again)["b"]


def test_an_answer_for_something_else_in_mid_turn_runs_and_remembers_nothing() -> None:
    """Proves: an approver that answers with the digest of another ask has not allowed this one."""
    script = [says(call("b", "write")), says("I could not.")]
    played = play(script, config=HELD, answer=answers(allow("b", digest="of another ask", always=True)))
    assert played.ran == [] and "would no longer do what the user was shown" in texts(played)["b"]
    assert played.turn.known.config.policy == ATTENDED


def test_an_approver_that_failed_is_told_as_such() -> None:
    """Proves (issue 13, 15): the model does not read that nobody answered, for a call or a question."""
    failed = [Approval(call_id=id, verdict="deny", by="failed", text="it raised KeyError: 'a'") for id in ("a", "q")]
    asked = call("q", "ask_user", '{"question":"Which one?"}')
    played = play([says(call("a", "write"), asked), says("So be it.")], config=HELD, answer=answers(*failed))
    assert "the program that asks the user failed (it raised KeyError: 'a')" in texts(played)["a"]
    assert texts(played)["q"].startswith("The question did not reach the user")
    assert "nobody answered" not in texts(played)["a"] and "gave no answer" not in texts(played)["q"]


def test_a_digest_is_the_same_out_of_a_journal_and_no_call_has_that_of_another() -> None:
    """Proves: it survives JSON, does not depend on the call's id, and tells every field of what is shown apart."""
    facts = CallFacts(call_id="b", tool="write", effect="write", paths=(PathFact(given="a", resolved="/w/a"),))
    read = msgspec.json.decode(msgspec.json.encode(facts), type=CallFacts)
    digest = digest_of("write", arguments=PATH, facts=facts)
    assert digest == digest_of("write", arguments=PATH, facts=replace(read, call_id="c"))
    others = [
        digest_of("write", arguments='{"path": "a"}', facts=facts),
        digest_of("edit", arguments=PATH, facts=facts),
        *[digest_of("write", arguments=PATH, facts=replace(facts, **{name: "x"})) for name in ("state", "unknown")],  # type: ignore[arg-type]
        digest_of("write", arguments=PATH, facts=replace(facts, paths=())),
    ]
    assert len({digest, *others}) == len(others) + 1


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
    assert texts(played)["a"].startswith("Not run: the turn's limits leave too little for a sub-agent")
    assert played.result.text == "Done."
