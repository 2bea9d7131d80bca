"""Answers that come in a form that is not the usual one, and what their turn says of them, to the letter (issue 18: mutants that
no test noticed). Events in, commands out."""

import pytest
from msgspec.structs import replace

from families import of_family
from turn.playing import CONFIG, SCHEMA, call, cut, play, says
from turn.test_output import CHECKED
from turnwise.rules.answer_room import GO_ON
from turnwise.turn.config import Effect, ToolOffer
from turnwise.turn.events import CheckOutput, Command, Event, OutputChecked, RequestFailed, StepPrepared
from turnwise.turn.next_phase import CALLED_LAST, EMPTY_TWICE
from turnwise.turn.outcomes import UNFINISHED, why_failed
from turnwise.vocab import (
    Fault,
    FaultKind,
    File,
    FinishReason,
    Message,
    Part,
    ProviderItem,
    Repair,
    Response,
    StopReason,
    Text,
    ToolSpec,
)

SEARCHED = ProviderItem("openai_chat", "server_tool_use", '{"id":"s"}')
PAUSED = says("First ", finish=FinishReason.PAUSE)


# answers that were cut


@pytest.mark.parametrize("finish", [FinishReason.LENGTH, FinishReason.CUT, FinishReason.ERROR])
@pytest.mark.parametrize(("problems", "output"), [((), '{"n": 1}'), (("odd",), None)], ids=["taken", "refused"])
def test_an_answer_that_its_type_has_seen_says_how_it_was_cut(
    problems: tuple[str, ...], output: str | None, finish: FinishReason
) -> None:
    """Proves: the type may take what was cut, and the result still says that it was; where it refuses, the cut is the reason."""
    config = replace(CHECKED, max_steps=1)
    played = play([says('{"n": 1}', finish=finish)], config=config, answer=lambda _: OutputChecked(problems=problems))
    result = played.result
    assert (result.text, result.output, result.complete) == ('{"n": 1}', output, False)
    assert result.why_incomplete == f"the step limit was reached: {UNFINISHED[finish]}"


# the request beyond the cap


@pytest.mark.promise("end:never-empty", "end:cap")
@pytest.mark.parametrize(
    ("extra", "why"),
    [(says(), EMPTY_TWICE), (says(call("b")), CALLED_LAST)],
    ids=["empty again", "a call"],
)
def test_what_comes_of_the_request_beyond_the_cap_is_said(extra: Response, why: str) -> None:
    """Proves: an empty last step counts as the first of two, and there is one such request, whatever comes."""
    played = play([says(call("a")), says(), extra], config=replace(CONFIG, max_steps=2))
    assert played.result.text == f"{why}\n\nWhat the tools had returned:\n- read: did a"
    assert (played.result.requests, played.result.stop_reason) == (3, StopReason.STEP_LIMIT)


def test_what_a_server_did_without_a_word_about_it_stays_in_the_session() -> None:
    """Proves: the work of a tool of the provider's is kept also where the answer is forced and asked for once more."""
    played = play([says(call("a")), says(SEARCHED), says("Late.")], config=replace(CONFIG, max_steps=2))
    silent = Message("assistant", (SEARCHED,))
    assert silent in played.requests[2].request.messages
    assert silent in played.result.messages
    assert played.result.text == "Late."


def test_two_responses_with_a_servers_work_alone_end_the_turn() -> None:
    """Proves: both count as empty, and both stay in the session."""
    played = play([says(SEARCHED), says(SEARCHED)])
    assert played.result.text == EMPTY_TWICE
    assert played.result.messages.count(Message("assistant", (SEARCHED,))) == 2


# pauses


@pytest.mark.promise("end:no-prefill")
@pytest.mark.parametrize(
    ("family", "accepts_prefill", "instruction", "last"),
    [
        ("openai_chat", False, None, (GO_ON,)),
        ("openai_chat", False, "Be brief.", (GO_ON, "Be brief.")),
        ("openai_chat", True, None, ()),
        ("openai_chat", True, "Be brief.", ("Be brief.",)),
        ("anthropic_messages", False, None, ()),
        ("anthropic_messages", False, "Be brief.", ()),
        ("anthropic_messages", True, "Be brief.", ()),
    ],
)
def test_behind_a_pause_stands_what_its_family_may_read(
    family: str, accepts_prefill: bool, instruction: str | None, last: tuple[str, ...]
) -> None:
    """Proves: a word to go on where the last message may not be the model's, the step's instruction behind it; Anthropic's
    content stands last, and the instruction that was left out is told."""
    config = replace(CONFIG, **of_family(family), accepts_prefill=accepts_prefill, prepares_steps=True)
    prepared = [StepPrepared(), StepPrepared(instruction=instruction)]
    played = play([PAUSED, says("second.")], config=config, prepare=prepared)
    behind = played.requests[1].request.messages[2:]
    assert behind == ((Message("user", tuple([Text(text) for text in last])),) if last else ())
    dropped = family == "anthropic_messages" and instruction is not None
    told = (Repair("instruction_dropped", "step 2", "nothing may follow a paused response"),) if dropped else ()
    assert played.result.repairs == told


# failures


@pytest.mark.parametrize(
    ("fault", "words"),
    [
        (Fault(kind=FaultKind.SERVER, message="boom", status=500), "The provider failed (500), server: boom"),
        (Fault(kind=FaultKind.TIMEOUT, message="slow"), "The provider failed, timeout: slow"),
        (
            Fault(kind=FaultKind.AUTH, message="", status=401),
            "The provider failed (401), auth: it did not say why",
        ),
    ],
)
def test_a_failure_is_told_in_the_providers_words(fault: Fault, words: str) -> None:
    """Proves: its status where there is one, its kind, and what it said, if it said something."""
    assert why_failed(fault) == words
    played = play([RequestFailed(number=1, fault=fault)])
    assert (played.result.text, played.result.why_incomplete) == (words, words)
    assert (played.result.stop_reason, played.result.fault) == (StopReason.PROVIDER_FAILED, fault)


@pytest.mark.parametrize("said", ["What I have so far", " \n"])
def test_what_had_arrived_before_a_failure_is_in_the_answer(said: str) -> None:
    """Proves: the text of the partial response, behind that of a pause before it; what shows nothing is left out."""
    fault = Fault(kind=FaultKind.AUTH, message="revoked", status=401)
    failed = RequestFailed(number=2, fault=fault, partial=says(said))
    text = play([PAUSED, failed]).result.text
    heard = f"First {said}" if said.strip() else "First"
    assert text == f"{why_failed(fault)}\n\nThe model had said:\n{heard}"


@pytest.mark.parametrize(
    ("parts", "text"),
    [
        (("Look.", File(media_type="image/png", data="x")), "Look."),
        ((File(media_type="image/png", data="x"),), "(The answer is a file: image/png.)"),
        (
            (File(media_type="image/png", data="x"), File(media_type="audio/wav", data="y")),
            "(The answer is a file: image/png, audio/wav.)",
        ),
    ],
)
def test_an_answer_of_files_names_their_types(parts: tuple[Part | str, ...], text: str) -> None:
    """Proves: a text stands for itself, and without one each file is named."""
    assert play([says(*parts)]).result.text == text


def test_a_type_that_looks_at_an_answer_sees_the_json_in_its_step() -> None:
    """Proves: the order carries the text without its fence, and the number of the step."""
    seen: list[CheckOutput] = []

    def answer(command: Command) -> Event:
        assert isinstance(command, CheckOutput)
        seen.append(command)
        return OutputChecked()

    played = play([says(call("a")), says('```json\n{"n": 1}\n```')], config=CHECKED, answer=answer)
    assert seen == [CheckOutput(step=2, json='{"n": 1}')]
    assert (played.result.output, played.result.complete) == ('{"n": 1}', True)
    assert [repair.kind for repair in played.result.repairs] != []


# the row of cut attempts


@pytest.mark.promise("loop:repeat")
@pytest.mark.parametrize(
    ("effect", "ends"),
    [
        ("none", StopReason.LOOP),
        ("read", StopReason.LOOP),
        ("write", StopReason.ANSWERED),
        ("execute", StopReason.ANSWERED),
    ],
)
def test_a_look_between_cut_attempts_does_not_end_their_row(effect: Effect, ends: StopReason) -> None:
    """Proves: a tool that changes nothing is no progress with what is cut; one that changes something is."""
    look = ToolOffer(spec=ToolSpec(name="look", parameters=SCHEMA), effect=effect)
    config = replace(CONFIG, tools=(*CONFIG.tools, look), recover="off", max_steps=100)
    attempts = [says(cut(f"c{n}", f'{{"path":"{n}', name="write"), finish=FinishReason.LENGTH) for n in range(1, 7)]
    played = play([*attempts[:3], says(call("l", "look")), *attempts[3:], says("I cannot write it.")], config=config)
    assert (played.result.stop_reason, played.result.requests) == (ends, 8)
