"""Attempts at a request as the chair orders them: waits, purposes, counts, and what is left of an attempt given up."""

import msgspec
import pytest

from turn.playing import ASK, CONFIG, call, cut, done, says, session_messages
from turnwise.rules.limits import MaxRequests
from turnwise.rules.retries import RetryPolicy
from turnwise.turn.events import (
    Command,
    Event,
    FinishTurn,
    Interrupted,
    RequestFailed,
    ResponseReceived,
    RunTools,
    SendRequest,
    ToolsFinished,
    TurnStarted,
    Wait,
    WaitOver,
)
from turnwise.turn.machine import Turn, replay
from turnwise.vocab import (
    Fault,
    FaultKind,
    FinishReason,
    Message,
    Reasoning,
    Repair,
    Response,
    Settings,
    StopReason,
    Text,
    Usage,
)

RETRIES = msgspec.structs.replace(CONFIG, retry=RetryPolicy(), recover="continue")
RESET = Fault(kind=FaultKind.DISCONNECTED, message="reset")
BUSY = Fault(kind=FaultKind.OVERLOADED, message="busy", status=503)
STORY = "The quick brown fox jumps over the lazy dog, again and again, until nobody counts any more"


def play(script: list[Response | Fault | Interrupted], **changes: object) -> tuple[list[Command], list[Event], Turn]:
    """Responses and faults answer requests, half a second each; waits take as long as they are ordered."""
    started = TurnStarted(config=msgspec.structs.replace(RETRIES, **changes), input=(ASK,))
    turn, command = Turn.start(started)
    events: list[Event] = [started]
    commands = [command]
    at_s = 0.0
    while not isinstance(command, FinishTurn):
        match command:
            case SendRequest(number=number):
                at_s += 0.5
                coming = script.pop(0)
                match coming:
                    case Response():
                        event: Event = ResponseReceived(number=number, response=coming, at_s=at_s, jitter=0.5)
                    case Fault():
                        event = RequestFailed(number=number, fault=coming, at_s=at_s, jitter=0.5)
                    case Interrupted():
                        event = coming
            case Wait(seconds=seconds):
                at_s += seconds
                stops = script and isinstance(script[0], Interrupted)
                event = script.pop(0) if stops else WaitOver(at_s=at_s)  # type: ignore[assignment]
            case RunTools(calls=planned):
                event = ToolsFinished(results=tuple([done(plan) for plan in planned]), at_s=at_s)
            case _:
                raise AssertionError(command)
        events.append(event)
        command = turn.receive(event)
        commands.append(command)
    assert not script
    return commands, events, turn


def asked(commands: list[Command]) -> list[tuple[str, str | None]]:
    return [(one.purpose, one.retry_of) for one in commands if isinstance(one, SendRequest)]


def waited(commands: list[Command]) -> list[float]:
    return [one.seconds for one in commands if isinstance(one, Wait)]


@pytest.mark.promise("wait:retry", "keep:replay")
def test_the_same_request_goes_out_again_and_a_replay_waits_as_long() -> None:
    """Each attempt is a request of its own; the prefix does not change; jitter and times are in the events."""
    commands, events, turn = play([BUSY, RESET, says("Done.")])
    sent = [one for one in commands if isinstance(one, SendRequest)]
    assert [one.number for one in sent] == [1, 2, 3]
    assert len({msgspec.json.encode(one.request) for one in sent}) == 1
    assert (asked(commands), waited(commands)) == (
        [("step", None), ("retry", "step"), ("retry", "step")],
        [0.375, 0.75],
    )
    assert turn.result is not None
    assert (turn.result.text, turn.result.requests, turn.result.steps, turn.result.prefix_changes) == (
        "Done.",
        3,
        1,
        (),
    )
    assert turn.result.requests_by_purpose == {"step": 1, "retry": 2}
    assert replay(events) == commands


@pytest.mark.promise("wait:retry")
def test_nothing_of_a_given_up_attempt_enters_but_its_cost() -> None:
    """An error object after content: text, reasoning, calls and repairs are gone; its tokens were billed."""
    lost = says(Reasoning("hm"), "Lost words", call("a"), finish=FinishReason.ERROR, fault=BUSY)
    lost = msgspec.structs.replace(
        lost, usage=Usage(input_tokens=7, output_tokens=3), repairs=(Repair("id_missing", "call a", "lost"),)
    )
    kept = msgspec.structs.replace(says("Kept."), usage=Usage(input_tokens=7, output_tokens=1))
    _, _, turn = play([lost, kept])
    result = turn.result
    assert result is not None
    assert (result.text, result.reasoning, result.repairs) == ("Kept.", "", ())
    assert result.messages == (ASK, Message("assistant", (Text("Kept."),)))
    assert (result.usage, result.recovery_usage) == (
        Usage(input_tokens=14, output_tokens=4),
        Usage(input_tokens=7, output_tokens=1),
    )


@pytest.mark.promise("wait:retry", "cut:continued")
def test_a_request_for_more_of_a_cut_text_is_retried_likewise() -> None:
    """Before it is given up; what had been joined by then stays."""
    first = says(STORY, finish=FinishReason.LENGTH)
    commands, _, turn = play([first, RESET, BUSY, says(STORY[40:] + ", and then the end.")])
    assert asked(commands) == [("step", None), ("continue", None), ("retry", "continue"), ("retry", "continue")]
    assert turn.result is not None
    assert (turn.result.text, turn.result.complete) == (STORY + ", and then the end.", True)


@pytest.mark.promise("cut:not-blamed")
def test_a_stream_that_ends_without_a_word_is_asked_for_once_more() -> None:
    """The model hears nothing of it; if the second one ends so too, it continues from what has come."""
    begun = '{"path":"a rather long path that goes on and on until it'
    silent = says(cut("a", begun), finish=FinishReason.CUT)
    commands, _, turn = play([silent, says(call("b")), says("Done.")])
    assert asked(commands) == [("step", None), ("retry", "step"), ("step", None)]
    assert "a rather long" not in str(turn.known.history.messages)
    commands, _, turn = play([silent, silent, says(begun[30:] + ' ends"}'), says("Done.")])
    assert asked(commands) == [("step", None), ("retry", "step"), ("continue", None), ("step", None)]
    assert turn.result is not None and turn.result.complete


@pytest.mark.promise("wait:cancel")
@pytest.mark.parametrize(("kind", "reason"), [("cancel", StopReason.CANCELLED), ("deadline", StopReason.TIME_LIMIT)])
def test_a_turn_can_be_ended_while_it_waits(kind: str, reason: StopReason) -> None:
    """With calls of an earlier step in its history, which is whole."""
    stop = Interrupted(kind=kind)  # type: ignore[arg-type]
    commands, events, turn = play([says("Looking.", call("a")), BUSY, stop])
    assert turn.result is not None
    assert (turn.result.stop_reason, turn.result.requests, len(waited(commands))) == (reason, 2, 1)
    assert session_messages([events]) == turn.result.messages
    assert replay(events) == commands


def test_a_turn_killed_while_it_waits_leaves_what_it_had() -> None:
    """Any prefix of the journal is a session that goes on."""
    _, events, _ = play([says("Looking.", call("a")), BUSY, says("Done.")])
    place = next(place for place, event in enumerate(events) if isinstance(event, WaitOver))
    assert [message.role for message in session_messages([events[:place]])] == ["user", "assistant", "tool"]


@pytest.mark.promise("end:budget")
def test_a_continuation_leaves_the_last_request_to_the_answer() -> None:
    """A retry for more of a cut call would take it."""
    begun = '{"path":"a rather long path that goes on and on until it'
    first = says(cut("a", begun), finish=FinishReason.LENGTH)
    commands, _, turn = play([first, RESET, says("That is all.")], limits=MaxRequests(3))
    assert asked(commands) == [("step", None), ("continue", None), ("step", None)]
    assert turn.result is not None
    assert (turn.result.text, turn.result.requests) == ("That is all.", 3)


@pytest.mark.promise("cut:continued", "cut:text-continued")
def test_a_long_piece_that_ends_without_a_word_is_gone_on_with_at_once() -> None:
    """It fills half of what the limit holds: asking for all of it again would cost more than the rest."""
    begun = '{"path":"' + "".join([f"{n:05}," for n in range(400)])
    long = says(cut("a", begun), finish=FinishReason.CUT)
    commands, _, turn = play(
        [long, says(begun[30:] + ' ends"}'), says("Done.")], settings=Settings(max_output_tokens=1000)
    )
    assert asked(commands) == [("step", None), ("continue", None), ("step", None)]
    assert turn.result is not None and turn.result.complete


UNSAID = (Repair("no_finish_reason", "response", "it ended with `[DONE]`, without a word about why"),)


@pytest.mark.promise("cut:not-blamed", "step:one-request")
def test_an_end_mark_without_a_finish_reason_is_no_broken_connection() -> None:
    """Proves: calls run and a text is the whole answer, without one request more."""
    looks = msgspec.structs.replace(says("Looking.", call("a"), finish=FinishReason.CUT), repairs=UNSAID)
    answers = msgspec.structs.replace(says("Done.", finish=FinishReason.CUT), repairs=UNSAID)
    commands, _, turn = play([looks, answers], settings=Settings(max_output_tokens=1000))
    assert asked(commands) == [("step", None), ("step", None)]
    assert turn.result is not None
    assert (turn.result.text, turn.result.complete) == ("Done.", True)


@pytest.mark.promise("cut:continued", "cut:text-continued")
def test_an_end_mark_does_not_make_a_cut_response_whole() -> None:
    """Proves: arguments that stop in mid-JSON, as many tokens as were asked for, or half of what the limit holds count for
    more than the mark; they are gone on from at once."""
    begun = '{"path":"a rather long path that goes on and on until it'
    silent = msgspec.structs.replace(says(cut("a", begun), finish=FinishReason.CUT), repairs=UNSAID)
    commands, _, turn = play([silent, says(begun[30:] + ' ends"}'), says("Done.")])
    assert asked(commands) == [("step", None), ("continue", None), ("step", None)]
    assert turn.result is not None and turn.result.complete

    at_limit = msgspec.structs.replace(
        says(STORY, finish=FinishReason.CUT), repairs=UNSAID, usage=Usage(output_tokens=1000)
    )
    short = Settings(max_output_tokens=len(STORY) // 2)
    long = msgspec.structs.replace(says(STORY, finish=FinishReason.CUT), repairs=UNSAID)
    for first, settings in ((at_limit, Settings(max_output_tokens=1000)), (long, short)):
        commands, _, turn = play([first, says(STORY[40:] + ", and then the end.")], settings=settings)
        assert asked(commands) == [("step", None), ("continue", None)]
        assert turn.result is not None
        assert (turn.result.text, turn.result.complete) == (STORY + ", and then the end.", True)
    _, _, turn = play([long], settings=short, recover="off")
    assert turn.result is not None and not turn.result.complete
