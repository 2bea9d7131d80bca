"""What is said of calls that the rules deny, of answers that are taken up later, and of responses that broke off (issue 18:
mutants that no test noticed). Events in, words out."""

import pytest
from msgspec.structs import replace

from families import of_family
from turn.playing import ASK, CONFIG, PATH, READ, WRITE, call, play, results_in, says
from turn.test_cut_call_check import ON, PEOPLE, by_limit, deny, inspected
from turn.test_cut_call_check import cut as cut_call
from turn.test_pending_calls import YES
from turn.test_retries_under_limits import WIDE
from turn.test_verdicts import ATTENDED, HELD, answers, facts_of
from turnwise.rules.advice import GO_ON_WITHOUT
from turnwise.rules.limits import MaxWallTime
from turnwise.rules.permission_facts import CallFacts
from turnwise.turn.config import Approval, OneAsk, digest_of
from turnwise.turn.events import (
    Command,
    FinishTurn,
    PlannedCall,
    ResponseReceived,
    SendRequest,
    TurnStarted,
    Wait,
    WaitOver,
)
from turnwise.turn.machine import Turn
from turnwise.turn.verdicts import CHANGED_SINCE, changed_since, left_asks
from turnwise.vocab import FinishReason, Message, Response, StopReason


@pytest.mark.promise("cut:continued")
def test_a_cut_call_that_a_rule_denies_says_what_was_not_looked_at() -> None:
    """Proves: to the letter, with the rule, and how far the call had come."""
    begun = '{"text":"The quick brown fox jumps over the lazy dog, and aga'
    config = replace(ON, policy=replace(PEOPLE, rules=(deny("write", where="rules.toml"),)))
    played = play([by_limit(cut_call("a", prefix=begun)), says("So.")], config=config, answer=inspected)
    assert results_in(played.result.messages)["a"] == (
        "Denied: `write` was not run. `write`: it was cut before that could be looked at (rules.toml says `deny`). "
        "Only the user can allow it: add `write` to the allowed effects. "
        f"{GO_ON_WITHOUT} (The output limit had cut the call after {len(begun):,} characters of its arguments. "
        "They decide this, whatever comes after.)"
    )


@pytest.mark.promise("wait:ask")
def test_a_call_that_was_allowed_and_would_do_something_else_by_now_does_not_run() -> None:
    """Proves: by what it touches now; what was shown as it is runs, and so does what nobody was asked about."""
    offers = {"write": WRITE}
    plan = PlannedCall(call=call("a", "write"), arguments=PATH, timeout_s=1.0)
    known = facts_of(plan)
    shown = replace(plan, shown=digest_of("write", arguments=PATH, facts=known))
    elsewhere = replace(known, paths=tuple([replace(path, resolved="/etc/a", inside=False) for path in known.paths]))
    assert changed_since([shown], facts={"a": known}, offers=offers) == {}
    assert changed_since([plan], facts={"a": elsewhere}, offers=offers) == {}
    (denied,) = changed_since([shown], facts={"a": elsewhere}, offers=offers).values()
    assert results_in([Message("tool", (denied,))]) == {"a": CHANGED_SINCE} and denied.is_error
    assert list(changed_since([shown], facts={}, offers=offers)) == ["a"]


@pytest.mark.promise("wait:ask")
def test_a_call_whose_answer_was_for_something_else_runs_once_it_is_allowed_as_it_is() -> None:
    """Proves: the answer of now counts, not that the one of before left the call waiting."""
    old = replace(YES, digest="of something else")
    waiting = (ASK, Message("assistant", (call("a", "write"),)))
    now = answers(Approval(call_id="a", verdict="allow"))
    played = play([says("So.")], config=HELD, input=(), history=waiting, approvals=(old,), answer=now)
    assert [[plan.call.id for plan in ran] for ran in played.ran] == [["a"]]
    assert played.result.text == "So."


@pytest.mark.promise("wait:ask")
def test_a_question_that_was_answered_meanwhile_needs_nobody_who_is_there_now() -> None:
    """Proves: the answer is its result, though nobody attends the run that takes it up."""
    asked = call("q", "ask_user", '{"question":"Which colour?"}')
    config = replace(HELD, policy=replace(ATTENDED, attended=False))
    played = play(
        [says("So.")],
        config=config,
        input=(),
        history=(ASK, Message("assistant", (asked,))),
        approvals=(Approval(call_id="q", verdict="allow", text="blue"),),
        keeps_waiting=True,
    )
    assert results_in(played.result.messages) == {"q": "blue"}


@pytest.mark.promise("keep:replay", "step:every-call-answered")
@pytest.mark.parametrize("keeps_waiting", [False, True])
def test_results_stand_under_the_ids_that_the_session_holds(keeps_waiting: bool) -> None:
    """Proves: healed ones where the turn goes on with healed calls, those of before where the rest may wait on."""
    earlier = (ASK, Message("assistant", (call("x:1"),)))
    config = replace(CONFIG, **of_family("anthropic_messages"))
    yes = replace(YES, call_id="x:1")
    played = play(
        [says("So.")], config=config, input=(), earlier=earlier, approvals=(yes,), keeps_waiting=keeps_waiting
    )
    ((plan,),) = played.ran
    assert list(results_in(played.result.messages)) == ["x:1" if keeps_waiting else plan.call.id]
    assert plan.call.id != "x:1"


@pytest.mark.promise("wait:retry", "end:budget")
@pytest.mark.parametrize(
    ("broken", "why"),
    [
        (says("Half", finish=FinishReason.CUT), "the stream ended in the middle of the response"),
        (replace(says("Half"), lost=True), "a piece of the response could not be read"),
    ],
    ids=["dropped", "lost"],
)
def test_a_response_that_broke_off_before_the_time_was_up_is_named_as_the_failure(broken: Response, why: str) -> None:
    """Proves: to the letter, where the wait before the next attempt took the time that was left."""
    config = replace(WIDE, limits=MaxWallTime(20.0), stream=True)
    turn, command = Turn.start(TurnStarted(config=config, input=(ASK,)))
    told: list[Command] = [command]
    command = turn.receive(ResponseReceived(number=1, response=broken, at_s=1.0))
    told.append(command)
    command = turn.receive(WaitOver(at_s=50.0))
    assert isinstance(told[0], SendRequest) and isinstance(told[1], Wait) and isinstance(command, FinishTurn)
    result = command.result
    assert (result.stop_reason, result.requests) == (StopReason.PROVIDER_FAILED, 1)
    assert result.text.startswith(f"The provider failed, disconnected: {why}")


def test_a_call_that_waits_is_asked_about_again_as_what_it_is() -> None:
    """Proves: where no rule asks about it, the ask says that somebody was asked before, and shows what it would do by now."""
    plan = PlannedCall(call=call("a"), arguments=PATH, timeout_s=1.0)
    facts = CallFacts(call_id="a", tool="read", effect="read")
    found = left_asks(
        [plan, replace(plan, call=call("b"))],
        asks=(),
        approvals=[Approval(call_id="a", verdict="later")],
        facts={},
        offers={"read": READ},
    )
    assert found == (
        OneAsk(
            call=call("a"),
            arguments=PATH,
            subject="read",
            why="it was asked about before, and waits for an answer",
            digest=digest_of("read", arguments=PATH, facts=facts),
        ),
    )
