"""Summaries that are refused, and prompts that are refused though they seem to fit (issue 18: mutants that no test noticed).

Events in, commands out.
"""

import pytest
from msgspec.structs import replace

from turn.playing import ASK, call, play, results_in, says
from turn.test_after_a_summary import TALK
from turn.test_asked_anew import asked
from turn.test_learned_room import OVERFLOW, PAIR, UNKNOWN
from turn.test_room import LONG, ROOMY, failed, large
from turnwise.rules.answer_room import NOT_RUN_LAST_STEP, SYNTHESIS
from turnwise.rules.compaction import LEFT_OUT, SUMMARY_HEAD
from turnwise.rules.prompt_room import ModelLimits
from turnwise.turn.events import RequestFailed, TurnStarted
from turnwise.turn.machine import Turn
from turnwise.turn.room import summarised
from turnwise.vocab import Effort, Message, Response, Settings, StopReason, Text, calls_of


@pytest.mark.promise("cut:budget", "step:every-call-answered")
@pytest.mark.parametrize(
    "summaries",
    [
        (failed(1, OVERFLOW), failed(2, OVERFLOW)),
        (failed(1, OVERFLOW), says("SUMMARY"), failed(3, OVERFLOW)),
        (failed(1, OVERFLOW), says("SUMMARY"), failed(3, "prompt is too long: 2664 tokens > 2397 maximum")),
    ],
    ids=["at once", "of the second part", "of the second part, with figures"],
)
def test_a_summary_that_no_smaller_part_can_be_had_of_is_left_out_once(
    summaries: tuple[Response | RequestFailed, ...],
) -> None:
    """Proves: a note stands in its place, and the answer is asked for. The call that comes in place of an answer stays in the
    next request, with its result: what was left out is left out of the older messages alone."""
    limits = ModelLimits(context_window_tokens=8_000, max_output_tokens=4_000)
    script = [*summaries, says(call("a")), says("So.")]
    played = play(script, config=replace(UNKNOWN, model_limits=limits), earlier=PAIR * 3)
    asked_for = [(purpose, choice) for purpose, choice, _ in asked(played)]
    assert asked_for == [("compact", "none")] * len(summaries) + [("step", "none"), ("answer", "auto")]
    forced, again = [sent.request.messages for sent in played.requests[-2:]]
    note, words = Message("user", (Text(f"{SUMMARY_HEAD}\n{LEFT_OUT}"),)), Message("user", (Text(SYNTHESIS),))
    assert forced[-3:] == (note, ASK, words)
    assert note in again and ASK in again and again[-1] == words
    assert [one.id for one in calls_of(again[-3])] == ["a"]
    assert results_in(again[-2:-1]) == {"a": NOT_RUN_LAST_STEP}
    assert (played.result.text, played.result.stop_reason) == ("So.", StopReason.BUDGET)


@pytest.mark.promise("cut:budget")
def test_a_prompt_that_is_refused_though_it_seems_to_fit_becomes_smaller() -> None:
    """Proves: the error tells of a window that has room for the prompt by our count. The count is a guess, so the same prompt
    is not sent again."""
    told = "This model's maximum context length is 16000 tokens."
    played = play([failed(1, told), says("SUMMARY"), says("So.")], config=UNKNOWN, earlier=TALK[:60])
    assert [purpose for purpose, _, _ in asked(played)] == ["step", "compact", "retry"]
    smaller = played.requests[2].request.messages
    assert Message("user", (Text(f"{SUMMARY_HEAD}\nSUMMARY"),)) in smaller and smaller[-1] == ASK
    assert (played.result.text, played.result.complete) == ("So.", True)


@pytest.mark.promise("cut:budget")
@pytest.mark.parametrize(("effort", "lower"), [("high", "low"), ("minimal", "minimal"), (None, None)])
def test_a_summary_is_written_with_little_reasoning(effort: Effort | None, lower: Effort | None) -> None:
    """Proves: as little as the model can be asked for, if any was asked for; the step behind it has its own again."""
    config = replace(ROOMY, settings=Settings(reasoning_effort=effort))
    played = play([says("SUMMARY"), says("So.")], config=config, earlier=TALK)
    efforts = [(sent.purpose, sent.request.settings.reasoning_effort) for sent in played.requests]
    assert efforts == [("compact", lower), ("step", effort)]


@pytest.mark.promise("cut:budget")
def test_a_page_of_a_long_result_leaves_256_bytes_for_what_stands_around_it() -> None:
    """Proves: the bound as a number. A result may have 9,000 bytes here, the line that says how to go on included."""
    back = call("b", "read_result", '{"call_id":"a"}')
    played = play([says(call("a")), says(back), says("Done.")], config=ROOMY, run=large)
    page, _, line = results_in(played.requests[2].request.messages)["b"].rpartition("\n")
    assert page == LONG[: 9_000 - 256]
    assert line.startswith("[characters 0 to 8744 of ")


@pytest.mark.promise("cut:budget", "end:reason")
def test_a_summary_that_did_not_come_is_the_reason_of_an_end_for_want_of_room() -> None:
    """Proves: the words that the user reads where nothing else makes room."""
    limits = ModelLimits(context_window_tokens=8_000, max_output_tokens=4_000)
    started = TurnStarted(config=replace(UNKNOWN, model_limits=limits), input=(ASK,))
    turn, _ = Turn.start(started, earlier=PAIR * 3)
    turn.receive(failed(1, OVERFLOW))
    room = turn.known.room
    assert room.planned is not None
    assert summarised(room, planned=room.planned, response=None).room.ends == (
        "The conversation had grown too long, and no summary of its earlier part could be had."
    )
