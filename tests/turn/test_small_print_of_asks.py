"""What is said and remembered of calls that a person decides, and where words beside results go (issue 18: mutants that no test
noticed). Events in, commands out."""

import pytest
from msgspec.structs import replace

from turn.playing import CONFIG, call, play, results_in, says
from turn.test_pending_calls import PENDING, WORD, YES, handed_in, play_started
from turn.test_verdicts import ATTENDED, HELD, allow, answers, left_for_later, resumed
from turnwise.turn.config import Approval
from turnwise.turn.events import TurnStarted
from turnwise.turn.programs import taken_up
from turnwise.turn.verdicts import ASKED_AGAIN
from turnwise.vocab import Message, Text

UNATTENDED = replace(HELD, policy=replace(ATTENDED, attended=False))


@pytest.mark.promise("wait:ask")
def test_what_was_allowed_before_runs_where_nobody_is_there_to_ask() -> None:
    """Proves: somebody was there when it was asked, so the answer holds in a run without a person."""
    first, ask = left_for_later(call("b", "write"))
    second = resumed(first, approvals=(allow("b", digest=ask.digest),), config=UNATTENDED)
    assert [[plan.call.id for plan in plans] for plans in second.ran] == [["b"]]
    assert results_in(second.result.messages)["b"] == "did b"


@pytest.mark.promise("wait:ask")
def test_a_question_that_was_left_is_answered_where_nobody_is_there_to_ask() -> None:
    """Proves: the model reads the answer that came later, not that there is nobody."""
    question = call("q", "ask_user", '{"question":"Which one?"}')
    first, ask = left_for_later(question)
    yes = allow("q", text="The blue one.", digest=ask.digest)
    started = TurnStarted(
        config=UNATTENDED, input=(), history=first.result.messages, approvals=(yes,), keeps_waiting=True
    )
    second = play_started(started, says("Done."))
    assert results_in(second.result.messages)["q"] == "The blue one."


@pytest.mark.promise("wait:ask")
def test_an_ask_that_is_put_again_says_why_it_is_asked_and_why_again() -> None:
    """Proves: the second reason stands behind the first one."""
    first, ask = left_for_later(call("b", "write"))
    second = resumed(first, approvals=(allow("b", digest="of something else"),), goes_on=False)
    (again,) = second.result.asks
    assert ask.why and again.why == f"{ask.why}; {ASKED_AGAIN}"


@pytest.mark.promise("wait:ask")
@pytest.mark.parametrize(
    "first",
    [None, allow("a"), Approval(call_id="a", verdict="deny", always=True), allow("a", always=True, digest="other")],
    ids=["no answer", "allowed once", "denied", "for something else"],
)
def test_what_is_allowed_always_is_remembered_whatever_was_said_of_the_call_before_it(first: Approval | None) -> None:
    """Proves: an answer that is nothing to remember does not hide the next one."""
    given = (*([] if first is None else [first]), allow("b", always=True))
    script = [says(call("a", "write"), call("b", "write")), says(call("c", "write")), says("Done.")]
    played = play(script, config=HELD, answer=answers(*given))
    ran = [[plan.call.id for plan in plans] for plans in played.ran]
    assert ran[-1] == ["c"]


@pytest.mark.promise("wait:ask", "step:history-healed")
def test_words_in_the_message_of_a_result_that_is_handed_in_are_the_users() -> None:
    """Proves: they stand behind all results, as a user's message."""
    both = Message("tool", (*handed_in("c").parts, Text("and hurry")))
    played = play([says("Done.")], input=(both,), earlier=PENDING, approvals=(YES,))
    request = played.requests[0].request
    assert results_in(request.messages) == {"a": "did a", "c": "from the client"}
    assert request.messages[-1] == WORD
    started = TurnStarted(config=CONFIG, input=(both,), approvals=(YES,))
    assert taken_up(started, earlier=PENDING).words == (WORD,)
