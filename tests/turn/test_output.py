"""Structured output: validated, corrected a bounded number of times."""

from collections.abc import Callable

import pytest
from msgspec.structs import replace

from turn.playing import CONFIG, call, play, says, session_messages
from turnwise.turn.events import CheckOutput, Command, Event, Interrupted, OutputChecked
from turnwise.turn.machine import replay
from turnwise.vocab import FinishReason, OutputSchema, Refusal, StopReason, text_of

OUTPUT = OutputSchema(schema='{"type":"object","properties":{"n":{"type":"integer"}},"required":["n"]}')
TYPED = replace(CONFIG, output=OUTPUT)


def test_an_answer_that_fits_is_the_output() -> None:
    """The very JSON that the model wrote; the schema stands in every request."""
    played = play([says(call("a")), says('{"n": 1}')], config=TYPED)
    assert (played.result.output, played.result.text, played.result.complete) == ('{"n": 1}', '{"n": 1}', True)
    assert [sent.request.output for sent in played.requests] == [OUTPUT, OUTPUT]


def test_one_code_fence_is_taken_off_and_recorded() -> None:
    """Models like to add one whatever they are told."""
    played = play([says('```json\n{"n": 1}\n```')], config=TYPED)
    assert (played.result.output, played.result.complete) == ('{"n": 1}', True)
    assert [repair.kind for repair in played.result.repairs] == ["output_fence"]


def test_an_answer_that_does_not_fit_is_corrected_with_all_errors() -> None:
    """The correction stays in the session, so the next request begins as this one did."""
    played = play([says('{"n": "x"}'), says("not json"), says('{"n": 2}')], config=TYPED)
    assert [(sent.step, sent.purpose) for sent in played.requests] == [(1, "step"), (2, "step"), (3, "step")]
    first, second = [text_of(sent.request.messages[-1]) for sent in played.requests[1:]]
    assert '- `$.n`: expected integer, got "x"' in first
    assert "it is not valid JSON" in second
    assert (played.result.output, played.result.complete) == ('{"n": 2}', True)
    assert played.result.prefix_changes == ()


def test_corrections_are_bounded_and_stay_within_the_cap() -> None:
    """Then the answer is there, but not complete, and there is no output."""
    wrong = says("no")
    played = play([wrong] * 3, config=TYPED)
    assert (played.result.requests, played.result.output, played.result.text) == (3, None, "no")
    assert (played.result.stop_reason, played.result.complete) == (StopReason.ANSWERED, False)
    assert play([wrong] * 2, config=replace(TYPED, max_steps=2)).result.requests == 2


def test_a_correction_in_the_last_step_has_its_own_words_only() -> None:
    """The model had finished; its corrected answer is complete. Tools are forbidden all the same."""
    played = play([says("no"), says('{"n": 1}')], config=replace(TYPED, max_steps=2))
    last = played.requests[1].request
    assert (last.tool_choice, played.requests[0].request.tool_choice) == ("none", "auto")
    assert text_of(last.messages[-1]).startswith("Your answer does not fit the JSON Schema")
    assert (played.result.stop_reason, played.result.complete) == (StopReason.ANSWERED, True)


def test_cut_output_is_told_to_be_shorter_and_a_refusal_is_not_corrected() -> None:
    """A cut answer is no JSON; a refusal is an answer of its own."""
    played = play([says('{"n":', finish=FinishReason.LENGTH), says('{"n":1}')], config=TYPED)
    assert "be shorter" in text_of(played.requests[1].request.messages[-1])
    refused = play([says(Refusal("no"))], config=TYPED).result
    assert (refused.stop_reason, refused.requests) == (StopReason.REFUSED, 1)


def test_a_correction_that_turns_into_more_work_is_forced_to_answer_like_any_other() -> None:
    """Once tools ran again the answer of the last step is one from incomplete data."""
    played = play([says("no"), says(call("a")), says('{"n": 1}')], config=replace(TYPED, max_steps=3))
    assert (played.result.stop_reason, played.result.complete) == (StopReason.STEP_LIMIT, False)
    assert played.result.output == '{"n": 1}'


CHECKED = replace(TYPED, checks_output=True)


def verdicts(*problems: tuple[str, ...]) -> Callable[[Command], Event]:
    """What the type finds wrong with one answer after the other; the last verdict holds from then on."""
    left = list(problems)

    def answer(command: Command) -> Event:
        assert isinstance(command, CheckOutput)
        return OutputChecked(problems=left.pop(0) if len(left) > 1 else left[0])

    return answer


@pytest.mark.promise("keep:replay")
def test_what_the_type_refuses_is_corrected_though_it_fits_the_schema() -> None:
    """Proves: the model hears why, in the type's own words, and a replay asks nobody, as the verdict is in the event."""
    script = [says('{"n": 1}'), says('{"n": 2}')]
    played = play(script, config=CHECKED, answer=verdicts(("`$.n`: must be even",), ()))
    told = text_of(played.requests[1].request.messages[-1])
    assert told.startswith("Your answer fits the JSON Schema, but it was refused.") and "- `$.n`: must be even" in told
    result = played.result
    assert (result.output, result.complete, result.requests, result.repairs) == ('{"n": 2}', True, 2, ())
    assert [one.json for one in replay(played.events) if isinstance(one, CheckOutput)] == ['{"n": 1}', '{"n": 2}']


def test_refused_answers_share_the_bound_of_corrections() -> None:
    """Proves: misfits and refusals together; the last answer stays as text, without output, and a repair says why. In the
    last step there is no correction."""
    script = [says("no"), says('{"n": 1}'), says('{"n": 3}')]
    result = play(script, config=CHECKED, answer=verdicts(("odd", "wide"))).result
    assert (result.text, result.output, result.complete, result.requests) == ('{"n": 3}', None, False, 3)
    assert [(repair.kind, repair.what) for repair in result.repairs] == [("output_refused", "odd; wide")]
    last = play([says('{"n": 1}')], config=replace(CHECKED, max_steps=1), answer=verdicts(("odd",))).result
    assert (last.requests, last.output, last.complete) == (1, None, False)


def test_a_turn_that_ends_while_its_answer_is_looked_at_keeps_the_answer() -> None:
    """Proves: it is in the history and in the text, which is ours."""
    played = play([says('{"n": 1}')], config=CHECKED, answer=lambda _: Interrupted(kind="cancel"))
    assert (played.result.stop_reason, played.result.output) == (StopReason.CANCELLED, None)
    assert '{"n": 1}' in played.result.text
    assert session_messages([played.events]) == played.result.messages
    assert text_of(played.result.messages[-1]) == '{"n": 1}'
