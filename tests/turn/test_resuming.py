"""Taking up what an earlier run left pending, and words that come in between."""

import pytest
from msgspec.structs import replace

from turn.playing import ASK, CONFIG, READ, call, done, play, says
from turnwise.errors import CallerError
from turnwise.rules.history import check_input
from turnwise.testing.pairing import pairing_faults
from turnwise.turn.approvals import Approval
from turnwise.turn.commands import RunHooks, SendRequest
from turnwise.turn.events import HooksRan, Interrupted, MessageArrived, ResponseReceived, ToolsFinished, TurnStarted
from turnwise.turn.machine import Turn
from turnwise.vocab import Message, Text, ToolResult

WORD = Message("user", (Text("and hurry"),))
PENDING = (ASK, Message("assistant", (call("a"), call("c", "client"))))
YES = Approval(call_id="a", verdict="allow")


def handed_in(id: str) -> Message:
    return Message("tool", (ToolResult(call_id=id, name="client", content=(Text("from the client"),)),))


@pytest.mark.promise("wait:ask", "step:history-healed")
def test_results_handed_in_beside_an_approval_stand_with_the_others() -> None:
    """Proves: one message with all results, in the order of the calls, and the user's word behind it."""
    played = play([says("Done.")], input=(handed_in("c"), WORD), earlier=PENDING, approvals=(YES,))
    assert [[plan.call.id for plan in plans] for plans in played.ran] == [["a"]]
    *_, asking, results, word = played.requests[0].request.messages
    assert asking == PENDING[1] and word == WORD
    assert [part.call_id for part in results.parts if isinstance(part, ToolResult)] == ["a", "c"]
    assert pairing_faults(played.requests[0].request, family="openai_chat") == ()


@pytest.mark.promise("wait:ask", "step:history-healed")
def test_an_approval_that_comes_after_the_session_went_on_is_void() -> None:
    """Proves: its call has a result by then; it does not run behind later messages, and a caller is told so."""
    earlier = (*PENDING, WORD, Message("assistant", (Text("Without it, then."),)))
    played = play([says("Done.")], input=(ASK,), earlier=earlier, approvals=(YES,))
    assert played.ran == []
    assert pairing_faults(played.requests[0].request, family="openai_chat") == ()
    with pytest.raises(
        CallerError, match=r"`a` any more, as the session has gone on without it; .* waits for: nothing"
    ):
        check_input((ASK,), history=earlier, approved=["a"])
    check_input((ASK,), history=PENDING, approved=["a"])


@pytest.mark.promise("wait:ask")
def test_an_approval_follows_a_call_whose_id_was_mended() -> None:
    """Proves: a session that moves to a family with other ids takes the answer along."""
    earlier = (ASK, Message("assistant", (call("x:1"),)))
    config = replace(CONFIG, family="anthropic_messages")
    yes = replace(YES, call_id="x:1")
    played = play([says("Done.")], config=config, input=(), earlier=earlier, approvals=(yes,))
    ((plan,),) = played.ran
    assert plan.call.id.startswith("x_1_") and plan.call.name == READ.spec.name
    assert pairing_faults(played.requests[0].request, family="anthropic_messages") == ()


def test_a_word_in_mid_request_runs_no_hook_again() -> None:
    """Proves: the request at hand goes on, and the hooks before requests see the next one only."""
    config = replace(CONFIG, hooks=("before_request",))
    turn, command = Turn.start(TurnStarted(config=config, input=(ASK,)))
    assert isinstance(command, RunHooks)
    sent = turn.receive(HooksRan())
    assert isinstance(sent, SendRequest)
    assert turn.receive(MessageArrived(message=WORD)) is sent
    turn.receive(ResponseReceived(number=1, response=says(call("a"))))
    held = turn.receive(ToolsFinished(results=()))
    assert isinstance(held, RunHooks) and held.request is not None
    assert held.request.request.messages[-1] == WORD


def test_words_are_made_fit_for_the_family() -> None:
    """Proves: blank text, which Anthropic refuses, does not come into a request by a word in between."""
    config = replace(CONFIG, family="anthropic_messages")
    turn, _ = Turn.start(TurnStarted(config=config, input=(ASK,)))
    turn.receive(MessageArrived(message=Message("user", (Text(" \n"),))))
    turn.receive(MessageArrived(message=Message("user", (Text(""), *WORD.parts))))
    turn.receive(ResponseReceived(number=1, response=says(call("a"))))
    command = turn.receive(ToolsFinished(results=()))
    assert isinstance(command, SendRequest)
    assert [message for message in command.request.messages if message.role == "user"] == [ASK, WORD]


def test_a_word_of_a_killed_turn_stays_in_its_session() -> None:
    """Proves: nobody was told that it was not taken up, so the session keeps it behind the results."""
    turn, _ = Turn.start(TurnStarted(config=CONFIG, input=(ASK,)))
    turn.receive(ResponseReceived(number=1, response=says(call("a"))))
    turn.receive(MessageArrived(message=WORD))
    assert [message.role for message in turn.left_behind()] == ["user", "assistant", "tool", "user"]
    assert turn.left_behind()[-1] == WORD


def test_a_call_that_ran_is_never_told_as_not_run() -> None:
    """Proves: behind hooks after tools, a call whose result was not reported may have run, also when the turn ends there."""
    config = replace(CONFIG, hooks=("after_tool",))
    turn, _ = Turn.start(TurnStarted(config=config, input=(ASK,)))
    turn.receive(ResponseReceived(number=1, response=says(call("a"), call("b"))))
    assert turn.planned
    held = turn.receive(ToolsFinished(results=(done(turn.planned[0]),)))
    assert isinstance(held, RunHooks)
    turn.receive(Interrupted(kind="cancel"))
    texts = [part.content for message in turn.added for part in message.parts if isinstance(part, ToolResult)]
    assert texts == [
        (Text("did a"),),
        (Text("No result was reported for this call. The tool may or may not have run."),),
    ]
