"""No sequence of what can happen breaks a turn (done-when 4)."""

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pairing import pairing_faults
from thoroughness import examples
from turn.drawn import starts
from turn.drawn_events import next_event
from turn.judged import Judged
from turn.playing import session_messages
from turnwise.rules.history import heal
from turnwise.turn.events import FinishTurn, MessageArrived, SendRequest, TurnStarted
from turnwise.turn.machine import Turn, fold_session
from turnwise.vocab import Message, StopReason, Text, text_of


@pytest.mark.costly
@pytest.mark.promise(
    "step:every-call-answered", "step:history-healed", "end:never-empty", "end:reason", "end:cap", "end:no-prefill"
)
@pytest.mark.promise("cut:never-run", "step:incomplete-response", "keep:replay", "step:prefix-stable", "end:budget")
@settings(max_examples=examples(400), deadline=None, derandomize=True)
@given(started=starts, data=st.data())
def test_every_sequence_ends_with_an_answer_a_reason_and_all_calls_answered(
    started: TurnStarted, data: st.DataObject
) -> None:
    """Always a command, each call exactly one result, text and reason at the end; every request passes a strict server,
    what was denied has not run, no word in between is lost, and the journal leads to the same commands."""
    Judged(started, data=data).play()


@settings(max_examples=examples(200), deadline=None, derandomize=True)
@given(started=starts, data=st.data())
def test_a_turn_killed_anywhere_leaves_a_session_that_goes_on(started: TurnStarted, data: st.DataObject) -> None:
    """The fold of any prefix of a journal needs no result to be invented, whatever was at hand (kill -9), and holds every
    word that had come in between."""
    judged = Judged(started, data=data)
    while not judged.has_ended and data.draw(st.integers(0, 5)):
        judged.step()
    left = session_messages([judged.events])
    command = judged.command
    waiting = isinstance(command, FinishTurn) and command.result.stop_reason is StopReason.WAITING
    own = left[len(started.history) + len(started.input) :]
    if not waiting and not judged.resumed:
        begun = (Message("user", (Text("hello"),)), *own)
        assert heal(begun, family=started.config.family, traits=started.config.traits).repairs == ()
    if not judged.has_ended:
        for number in range(len(judged.words)):
            assert len([one for one in left if text_of(one).startswith(f"word {number}")]) == 1
    again = TurnStarted(config=started.config, input=(Message("user", (Text("go on"),)),))
    _, command = Turn.start(again, earlier=left)
    if isinstance(command, SendRequest):
        may_end = started.config.accepts_prefill
        faults = pairing_faults(command.request, family=started.config.family, may_end_with_assistant=may_end)
        assert faults == ()


@pytest.mark.costly
@settings(max_examples=examples(150), deadline=None, derandomize=True)
@given(first=starts, second=starts, data=st.data())
def test_the_fold_of_two_turns_is_what_they_added(first: TurnStarted, second: TurnStarted, data: st.DataObject) -> None:
    """Each turn starts from what the one before it carries on, and is folded to what it added."""
    judged = Judged(first, data=data).play()
    messages = (*first.history, *judged.turn.added)
    assert session_messages([judged.events]) == messages
    then = Judged(second, data=data, earlier=fold_session([judged.events]).carried).play()
    assert session_messages([judged.events, then.events]) == (*messages, *second.history, *then.turn.added)


@settings(max_examples=examples(150), deadline=None, derandomize=True)
@given(started=starts, data=st.data())
def test_a_turn_is_plain_data(started: TurnStarted, data: st.DataObject) -> None:
    """Encoded and decoded in mid-way it is equal, and gives the same commands."""
    try:
        msgspec.json.encode(started)
    except UnicodeEncodeError:
        return  # half of a surrogate pair stands in the drawn history; no journal can hold it
    turn, command = Turn.start(started)
    while not isinstance(command, FinishTurn):
        event = next_event(data, command)
        try:
            copy = msgspec.json.decode(msgspec.json.encode(turn), type=Turn)
        except UnicodeEncodeError:
            return
        assert copy == turn
        command = turn.receive(event)
        assert copy.receive(event) == command
        if isinstance(event, MessageArrived):
            assert copy == turn
