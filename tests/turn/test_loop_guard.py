"""A model that goes in circles, in a turn: a word, the remembered result, the forced answer."""

import msgspec
import pytest
from msgspec.structs import replace

from turn.playing import CONFIG, READ, Played, call, cut, play, results_in, says
from turnwise.rules.answer_room import SYNTHESIS
from turnwise.rules.continuation import hold_back
from turnwise.turn.config import Effect, ToolOffer
from turnwise.turn.events import PlannedCall
from turnwise.turn.fault_counts import MISFIT
from turnwise.turn.machine import replay
from turnwise.vocab import FinishReason, OutputSchema, Settings, StopReason, Text, ToolResult, ToolSpec, Usage, text_of

EDIT = ToolOffer(spec=ToolSpec(name="edit", parameters=READ.spec.parameters), effect="write")
STATUS = ToolOffer(spec=ToolSpec(name="status", parameters=READ.spec.parameters), effect="read", repeatable=True)


def same(plan: PlannedCall) -> ToolResult:
    return ToolResult(call_id=plan.call.id, name=plan.call.name, content=(Text("a draft"),))


def ran_in(played: Played) -> list[str]:
    return [plan.call.id for planned in played.ran for plan in planned]


def last_words(played: Played) -> str:
    return text_of(played.requests[-1].request.messages[-1])


@pytest.mark.promise("loop:repeat", "end:reason")
def test_six_equal_steps_are_told_remembered_and_ended() -> None:
    """The word stands behind results 3 and 4; 5 and 6 do not run and give that same result; request 7 is the answer."""
    played = play([*[says(call(f"c{n}")) for n in range(1, 7)], says("A draft.")], run=same)
    assert ran_in(played) == ["c1", "c2", "c3", "c4"]
    told = (
        "(Note: the call of `read` came {} times in a row, with the same result each time. It will not change by being "
        "repeated. Do something else, or answer from what you have.)"
    )
    results = results_in(played.result.messages)
    assert [results["c1"], results["c2"]] == ["a draft", "a draft"]
    assert [results["c3"], results["c4"]] == [f"a draft{told.format(3)}", f"a draft{told.format(4)}"]
    for id in ("c5", "c6"):
        assert results[id].startswith("Not run again: ") and results[id].endswith("The result was:a draft")
    assert played.requests[-1].request.tool_choice == "none"
    assert last_words(played) == (
        "The turn was going in circles: the call of `read` came 6 times in a row, with the same result each time."
        + SYNTHESIS
    )
    result = played.result
    assert (result.text, result.stop_reason, result.complete) == ("A draft.", StopReason.LOOP, False)
    assert (result.requests, result.steps) == (7, 7)


@pytest.mark.promise("loop:repeat")
def test_a_circle_is_rebuilt_from_its_journal() -> None:
    """The same events give the same commands, and half of them the same next one."""
    played = play([*[says(call(f"c{n}")) for n in range(1, 7)], says("A draft.")], run=same)
    commands = replay(played.events)
    assert [command for command in commands if command in played.requests] == played.requests
    assert replay(played.events[:9]) == commands[:9]
    assert msgspec.json.decode(
        msgspec.json.encode(played.turn.known.guarding), type=type(played.turn.known.guarding)
    ) == (played.turn.known.guarding)


@pytest.mark.promise("loop:repeat")
def test_a_call_that_changes_something_is_an_error_where_it_was_not_made_again() -> None:
    """A model must not believe that an edit was made five times."""
    config = replace(CONFIG, tools=(EDIT,))
    played = play([*[says(call(f"c{n}", "edit")) for n in range(1, 7)], says("So be it.")], run=same, config=config)
    assert ran_in(played) == ["c1", "c2", "c3", "c4"]
    found = {
        part.call_id: part.is_error
        for message in played.result.messages
        for part in message.parts
        if isinstance(part, ToolResult)
    }
    assert found == {"c1": False, "c2": False, "c3": False, "c4": False, "c5": True, "c6": True}


@pytest.mark.promise("loop:repeat")
@pytest.mark.parametrize("effect", ["none", "read"])
def test_a_call_that_changes_nothing_is_no_error_where_it_was_not_made_again(effect: Effect) -> None:
    """Proves: its result from memory is as good as another one."""
    config = replace(CONFIG, tools=(replace(READ, effect=effect),))
    played = play([*[says(call(f"c{n}")) for n in range(1, 7)], says("So be it.")], run=same, config=config)
    assert ran_in(played) == ["c1", "c2", "c3", "c4"]
    results = [part for one in played.result.messages for part in one.parts if isinstance(part, ToolResult)]
    assert [result.is_error for result in results] == [False] * 6


@pytest.mark.promise("loop:repeat", "step:every-call-answered")
def test_a_new_call_beside_a_remembered_one_runs() -> None:
    """Only equal steps are a loop: something new in the step runs all of it."""
    script = [says(call(f"c{n}")) for n in range(1, 5)]
    played = play([*script, says(call("c5"), call("n", arguments='{"path":"b"}')), says("Done.")], run=same)
    assert ran_in(played) == ["c1", "c2", "c3", "c4", "c5", "n"]
    assert (played.result.stop_reason, played.result.complete) == (StopReason.ANSWERED, True)


@pytest.mark.promise("loop:polling")
def test_a_repeatable_tool_may_say_the_same_and_hears_nothing() -> None:
    """Thirty equal answers of a status."""
    config = replace(CONFIG, tools=(STATUS,), max_steps=40)
    played = play([*[says(call(f"c{n}", "status")) for n in range(30)], says("Over.")], run=same, config=config)
    assert len(ran_in(played)) == 30
    assert set(results_in(played.result.messages).values()) == {"a draft"}
    assert played.result.complete


@pytest.mark.promise("loop:cut-variants", "cut:split")
def test_a_whole_retry_after_three_cut_attempts_runs() -> None:
    """Whatever it repeats of them."""
    attempts = [says(cut(f"c{n}", '{"path":"a' + "b" * n), finish=FinishReason.STOP) for n in range(3)]
    played = play([*attempts, says(call("whole", arguments='{"path":"ab"}')), says("Read.")])
    assert ran_in(played) == ["whole"]
    assert played.result.complete


@pytest.mark.promise("loop:repeat", "end:never-empty")
def test_a_circle_whose_forced_answer_is_disobeyed_ends_with_ours() -> None:
    """One request more, then the answer says what the guard saw."""
    played = play([says(call(f"c{n}")) for n in range(1, 9)], run=same)
    result = played.result
    assert (result.requests, result.stop_reason, result.origin) == (8, StopReason.LOOP, "local")
    assert result.text.startswith("The turn was going in circles: the call of `read` came 6 times in a row")
    assert len(ran_in(played)) == 4


@pytest.mark.promise("loop:repeat", "end:cap")
def test_a_forced_answer_that_pauses_or_does_not_fit_makes_no_more_steps() -> None:
    """What holds in the last step holds in the forced answer of a circle."""
    circle = [says(call(f"c{n}")) for n in range(1, 7)]
    paused = play([*circle, says("So far.", finish=FinishReason.PAUSE)], run=same)
    assert (paused.result.requests, paused.result.text) == (7, "So far.")
    output = OutputSchema(schema='{"type":"object","required":["city"]}')
    unfit = play([*circle, says("{}")], run=same, config=replace(CONFIG, output=output))
    assert (unfit.result.requests, unfit.result.output, unfit.result.stop_reason) == (7, None, StopReason.LOOP)


ON = replace(CONFIG, recover="continue")
BEGUN = '{"edits":[{"path":"big.txt","old":"' + " ".join([f"line {n} of the text." for n in range(40)])


@pytest.mark.promise("cut:continued", "loop:cut-variants")
def test_a_call_that_was_continued_and_did_not_fit_is_not_continued_again() -> None:
    """What it costs once it does not cost in each step: the model is told why, and the answer comes after bounded requests."""
    config = replace(ON, settings=Settings(max_output_tokens=100))
    attempt = replace(says(cut("c", BEGUN), finish=FinishReason.LENGTH), usage=Usage(output_tokens=100))
    asked = hold_back(BEGUN, kind="json")
    assert asked is not None
    rest = says(f'{asked.held} the end"}}]}}')
    played = play([attempt, rest, *[attempt] * 5, says("It does not fit.")], config=config)
    assert [request.purpose for request in played.requests] == ["step", "continue", *["step"] * 6]
    assert played.requests[-1].request.tool_choice == "none"
    results = list(results_in(played.result.messages).values())
    assert results[0].startswith("Not run: the arguments do not fit the parameters of `read`. ")
    assert all(MISFIT.format(tool="read") in result for result in results[1:])
    assert (played.ran, played.result.stop_reason, played.result.text) == ([], StopReason.LOOP, "It does not fit.")
    state = played.turn.known.guarding
    assert msgspec.json.decode(msgspec.json.encode(state), type=type(state)) == state


@pytest.mark.promise("loop:cut-variants")
def test_a_call_that_could_not_be_joined_is_not_continued_again() -> None:
    """A model that says nothing when it is asked for the rest is asked for it once."""
    attempt = says(cut("c", BEGUN), finish=FinishReason.LENGTH)
    other = says(cut("d", BEGUN.replace("line", "word")), finish=FinishReason.LENGTH)
    played = play([attempt, says(""), attempt, attempt, other, says(""), says("Enough.")], config=ON)
    purposes = [request.purpose for request in played.requests]
    assert purposes == ["step", "continue", "step", "step", "step", "continue", "step"]


@pytest.mark.promise("cut:named")
def test_a_cut_call_of_a_tool_that_is_not_allowed_is_denied_at_once() -> None:
    """No advice to work in smaller pieces, which would be denied as well."""
    config = replace(CONFIG, tools=(EDIT,), allowed=("none", "read"))
    played = play([says(cut("c", name="edit"), finish=FinishReason.LENGTH), says("Done.")], config=config)
    assert [request.purpose for request in played.requests] == ["step", "step"]
    assert results_in(played.result.messages)["c"].startswith("Denied: `edit` was not run")
