"""Where the guard speaks and where it ends a turn, as numbers: who changes a bound has to change this page, too (issue 18)."""

import pytest
from msgspec.structs import replace

from turn.playing import CONFIG, Played, call, cut, play, results_in, says
from turnwise.turn.events import PlannedCall
from turnwise.vocab import FinishReason, Message, Response, StopReason, Text, ToolResult

MANY = replace(CONFIG, max_steps=100)


def same(plan: PlannedCall) -> ToolResult:
    return ToolResult(call_id=plan.call.id, name=plan.call.name, content=(Text("a draft"),))


def noted(played: Played) -> list[str]:
    """The calls whose result has a word of the guard behind it."""
    return [id for id, text in results_in(played.result.messages).items() if "(Note: " in text]


def remembered(played: Played) -> list[str]:
    return [id for id, text in results_in(played.result.messages).items() if text.startswith("Not run again: ")]


def steps_in_turns(period: int, *, steps: int) -> list[Response]:
    """Steps that each repeat what came `period` steps before."""
    return [says(call(f"c{n}", arguments=f'{{"path":"{n % period}"}}')) for n in range(1, steps + 1)]


@pytest.mark.promise("loop:repeat")
@pytest.mark.parametrize(
    ("period", "told", "from_memory", "requests"),
    [
        (1, ["c3", "c4"], ["c5", "c6"], 7),
        (2, ["c6", "c7", "c8"], ["c9", "c10"], 11),
        (3, ["c9", "c10", "c11", "c12"], ["c13", "c14"], 15),
    ],
)
def test_a_circle_of_one_two_or_three_steps_has_its_word_its_memory_and_its_end(
    period: int, told: list[str], from_memory: list[str], requests: int
) -> None:
    """Proves: three rounds until the word, four that run, two steps from memory, then the answer."""
    played = play([*steps_in_turns(period, steps=requests - 1), says("A draft.")], config=MANY, run=same)
    assert (noted(played), remembered(played)) == (told, from_memory)
    assert (played.result.stop_reason, played.result.requests) == (StopReason.LOOP, requests)


def test_a_circle_of_four_steps_is_none() -> None:
    """Proves: the guard looks back three steps, no further."""
    played = play([*steps_in_turns(4, steps=30), says("Done.")], config=MANY, run=same)
    assert (noted(played), remembered(played), played.result.complete) == ([], [], True)


@pytest.mark.promise("loop:polling")
def test_a_call_whose_results_change_is_told_at_40_and_ended_after_50() -> None:
    """Proves: forty rounds without a word, and no request with tools after the fiftieth."""
    count = iter(range(1000))

    def tick(plan: PlannedCall) -> ToolResult:
        return ToolResult(call_id=plan.call.id, name=plan.call.name, content=(Text(f"{next(count)} %"),))

    played = play([*[says(call(f"c{n}")) for n in range(1, 51)], says("So far.")], config=MANY, run=tick)
    assert noted(played)[0] == "c40" and played.requests[-1].request.tool_choice == "none"
    assert (played.result.stop_reason, played.result.requests) == (StopReason.LOOP, 51)


def test_six_cut_attempts_in_a_row_end_the_turn() -> None:
    """Proves: request 7 is the answer, whatever varies in the arguments of the cut calls."""
    attempts = [says(cut(f"c{n}", f'{{"path":"{n}'), finish=FinishReason.LENGTH) for n in range(1, 7)]
    played = play([*attempts, says("I cannot write it.")], config=replace(MANY, recover="off"))
    assert (played.result.stop_reason, played.result.requests) == (StopReason.LOOP, 7)


def test_five_cut_attempts_in_a_row_do_not() -> None:
    """Proves: who halves a call of 32 times the limit is let through."""
    attempts = [says(cut(f"c{n}", f'{{"path":"{n}'), finish=FinishReason.LENGTH) for n in range(1, 6)]
    played = play([*attempts, says(call("c6")), says("Done.")], config=replace(MANY, recover="off"))
    assert (played.result.complete, played.result.requests) == (True, 7)


@pytest.mark.parametrize(("calls", "run"), [(128, 128), (129, 128)])
def test_128_calls_of_a_response_run_at_most(calls: int, run: int) -> None:
    """Proves: the calls behind the 128th do not run."""
    asked = [call(f"c{n}", arguments=f'{{"path":"{n}"}}') for n in range(calls)]
    played = play([says(*asked), says("Done.")])
    assert sum([len(planned) for planned in played.ran]) == run


def contents(messages: tuple[Message, ...]) -> list[ToolResult]:
    return [part for message in messages for part in message.parts if isinstance(part, ToolResult)]


def test_a_remembered_result_is_all_of_the_earlier_one_but_the_guards_own_word() -> None:
    """Proves: of a result in several parts none is lost, and the note is not handed on."""
    parts = (Text("one"), Text("two"), Text("three"))

    def in_parts(plan: PlannedCall) -> ToolResult:
        return ToolResult(call_id=plan.call.id, name=plan.call.name, content=parts)

    played = play([*steps_in_turns(1, steps=6), says("So.")], run=in_parts)
    found = {result.call_id: result.content for result in contents(played.result.messages)}
    assert found["c2"] == parts
    assert found["c4"][:3] == parts and len(found["c4"]) == 4
    assert [found["c5"][1:], found["c6"][1:]] == [parts, parts]
