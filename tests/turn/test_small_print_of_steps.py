"""Where a step begins otherwise than most do, and what it must not take with it from what came before (issue 18: mutants that no
test noticed). Events in, commands out."""

from decimal import Decimal

import pytest
from msgspec.structs import replace

from families import of_family
from turn.playing import ASK, CONFIG, call, cut, done, play, says
from turn.test_after_a_summary import LIMIT, TALK
from turn.test_continuing import ON
from turn.test_cost_so_far import RESET, ROW, limited
from turn.test_edges_of_limits import A_MOMENT, TASK, reported
from turn.test_learned_room import SEARCH
from turn.test_room import ROOMY
from turn.test_script_phase import SCRIPTED, script
from turnwise.rules.answer_room import EMPTY_AGAIN, GO_ON, SYNTHESIS
from turnwise.rules.continuation import hold_back
from turnwise.rules.limits import MaxRequests, MaxWallTime
from turnwise.rules.prompt_room import ModelLimits
from turnwise.turn.config import Fallback
from turnwise.turn.events import (
    FinishTurn,
    RequestFailed,
    ResponseReceived,
    RunScript,
    RunTools,
    ScriptCalled,
    ScriptFinished,
    SendRequest,
    StepPrepared,
    ToolsFinished,
    TurnStarted,
)
from turnwise.turn.machine import Turn
from turnwise.turn.outcomes import Wish
from turnwise.turn.step_request import once_fitted
from turnwise.turn.verdicts import whole_parameters
from turnwise.vocab import (
    FinishReason,
    Message,
    Opaque,
    Response,
    Settings,
    StopReason,
    Text,
    ToolCall,
    ToolResult,
    Usage,
    text_of,
)

DEAR = replace(ROW, tokens=(replace(ROW.tokens[0], input=Decimal(100), output=Decimal(100)),))
WIDE = ModelLimits(context_window_tokens=400_000, max_output_tokens=8_000)
SIGNED = Opaque("anthropic_messages", '{"signature":"s"}')

# what the limits leave of a step


@pytest.mark.promise("end:budget", "end:never-empty")
@pytest.mark.parametrize("left_s", [0.0, 0.5])
def test_the_last_moment_of_the_time_is_for_the_answer(left_s: float) -> None:
    """Proves: an answer like the longest request would come too late, but it may be quicker; time that is over ends the turn."""
    for short, is_asked in ((0.0, True), (left_s + A_MOMENT, False)):
        config = replace(CONFIG, limits=MaxWallTime(15.0 + left_s - short))
        turn, _ = Turn.start(TurnStarted(config=config, input=(ASK,)))
        ran = turn.receive(ResponseReceived(number=1, response=says(call("a")), at_s=10.0))
        assert isinstance(ran, RunTools)
        then = turn.receive(ToolsFinished(results=tuple([done(plan) for plan in ran.calls]), at_s=15.0))
        if is_asked:
            assert isinstance(then, SendRequest) and then.request.tool_choice == "none"
        else:
            assert isinstance(then, FinishTurn) and then.result.stop_reason is StopReason.TIME_LIMIT


@pytest.mark.promise("end:budget", "cut:budget")
def test_a_dear_model_of_one_step_answers_to_as_much_as_can_be_paid_for() -> None:
    """Proves: `prepare_step` names it, the limit allows it no answer to the whole history, but one to a part; what else was
    prepared for the step stays. The part was weighed at the price of the model before it, and the whole was sent."""
    config = limited("0.60", ROW, room="compact", model_limits=WIDE, prepares_steps=True)
    prepared = StepPrepared(model="dear", price=DEAR, instruction="Be brief.")
    played = play([says("So.")], config=config, earlier=TALK, prepare=[prepared])
    (sent,) = played.requests
    assert (sent.request.model, sent.request.tool_choice, played.result.stop_reason) == (
        "dear",
        "none",
        StopReason.BUDGET,
    )
    assert sum([len(text_of(one)) for one in sent.request.messages]) < sum([len(text_of(one)) for one in TALK])
    assert sent.request.messages[-1].parts == (Text("Be brief."), Text(SYNTHESIS))
    charged = played.result.charged_usd
    assert charged is not None and charged <= Decimal("0.60")


@pytest.mark.promise("end:budget", "end:never-empty")
def test_what_would_be_enough_for_a_dear_model_is_told_at_its_own_price() -> None:
    """Proves: with the price of the model before it, $0.0220 would look like enough."""
    config = limited("0.02", ROW, prepares_steps=True)
    result = play([], config=config, prepare=[StepPrepared(model="dear", price=DEAR)]).result
    assert result.text == "The limit of $0.0200 leaves no room for another step ($0.00 spent). $0.360 would."
    assert (result.requests, result.stop_reason) == (0, StopReason.BUDGET)


@pytest.mark.parametrize(("finish", "note"), [(FinishReason.PAUSE, ""), (FinishReason.STOP, "Go on.")])
def test_the_note_about_a_pause_goes_with_the_pause(finish: FinishReason, note: str) -> None:
    """Proves: to make the prompt smaller settles a pause; any other note stays."""
    turn, _ = Turn.start(TurnStarted(config=CONFIG, input=(ASK,)))
    turn.receive(ResponseReceived(number=1, response=says("Looking.", finish=finish)))
    assert once_fitted(Wish(note="Go on.", purpose="answer"), known=turn.known) == Wish(note=note, purpose="answer")


@pytest.mark.promise("end:budget", "cut:budget")
def test_a_prompt_that_a_summary_made_small_is_small_where_the_provider_counts_nothing() -> None:
    """Proves: the count of the summary's own prompt, which held everything, says nothing of what came after it."""
    summary = replace(says("SUMMARY"), usage=Usage(input_tokens=28_000, output_tokens=20))
    config = replace(ROOMY, limits=LIMIT)
    played = play([summary, says(call("a")), says("Done.")], config=config, earlier=TALK)
    assert [sent.request.tool_choice for sent in played.requests] == ["none", "auto", "auto"]
    assert played.result.complete


@pytest.mark.promise("cut:budget")
def test_a_prompt_beyond_a_window_that_is_only_assumed_goes_out_as_it_is() -> None:
    """Proves: nobody knows the window, and the provider's refusal would tell, so the user's settings are not touched."""
    config = replace(CONFIG, room="budget", settings=Settings(max_output_tokens=2_000))
    long = Message("user", (Text("word " * 200_000),))
    played = play([says("Done.")], config=config, input=(long,))
    assert played.requests[0].request == replace(played.requests[0].request, settings=config.settings, messages=(long,))
    assert played.result.text == "Done."


# what goes on from step to step


@pytest.mark.promise("wait:retry")
def test_a_model_that_takes_over_is_sent_a_further_attempt_with_the_note_of_the_first() -> None:
    """Proves: the ledger counts it as a retry of the step, and the word that goes on with a pause is said again."""
    config = replace(CONFIG, fallbacks=(Fallback(model="other"),))
    paused = says("Looking.", finish=FinishReason.PAUSE)
    played = play([paused, RequestFailed(number=2, fault=RESET), says("Found.")], config=config)
    assert [(sent.request.model, sent.purpose, sent.retry_of) for sent in played.requests] == [
        ("m", "step", None),
        ("m", "step", None),
        ("other", "retry", "step"),
    ]
    assert played.requests[2].request.messages == played.requests[1].request.messages
    assert played.requests[2].request.messages[-1] == Message("user", (Text(GO_ON),))


@pytest.mark.promise("wait:retry", "end:never-empty")
def test_a_model_that_takes_over_is_told_that_the_response_before_was_empty() -> None:
    """Proves: the note of the request that failed stands in the one that takes its place."""
    config = replace(CONFIG, fallbacks=(Fallback(model="other"),))
    played = play([says(""), RequestFailed(number=2, fault=RESET), says("Found.")], config=config)
    noted = Message("user", (Text(EMPTY_AGAIN),))
    assert [sent.request.messages for sent in played.requests] == [(ASK,), (ASK, noted), (ASK, noted)]


@pytest.mark.promise("end:reason")
def test_an_answer_that_ended_without_a_word_says_so() -> None:
    """Proves: in these words, which a person reads."""
    result = play([says("Half of it", finish=FinishReason.CUT)]).result
    assert (result.text, result.why_incomplete) == (
        "Half of it",
        "the answer stopped in the middle, and the provider gave no reason",
    )


@pytest.mark.promise("end:budget")
def test_the_answer_behind_a_pause_that_nothing_continues_is_not_told_to_go_on() -> None:
    """Proves: the limits leave the answer alone, so the pause is settled and the word about it is not sent."""
    config = replace(CONFIG, limits=MaxRequests(2))
    played = play([says("Looking.", finish=FinishReason.PAUSE), says("So.")], config=config)
    assert played.requests[1].request.messages == (
        ASK,
        Message("assistant", (Text("Looking."),)),
        Message("user", (Text(SYNTHESIS),)),
    )


@pytest.mark.promise("end:no-prefill")
@pytest.mark.parametrize(
    ("last", "kept"), [(Text("Looking. \n"), (Text("Looking."),)), (Text(" \n", opaque=SIGNED), ())]
)
def test_a_pause_goes_back_as_it_came_but_for_white_space_at_its_end(last: Text, kept: tuple[Text, ...]) -> None:
    """Proves: Anthropic refuses a last text that ends in white space, and an empty one; the session keeps what was sent."""
    paused = says(SEARCH, last, finish=FinishReason.PAUSE)
    played = play([paused, says("Found.")], config=replace(CONFIG, **of_family("anthropic_messages")))
    sent = Message("assistant", (SEARCH, *kept))
    assert played.requests[1].request.messages == (ASK, sent)
    assert played.result.messages[1] == sent


def test_a_second_program_has_run_nothing_yet() -> None:
    """Proves: the calls of the program before it are not among its own."""
    turn, _ = Turn.start(TurnStarted(config=SCRIPTED, input=(ASK,)))
    turn.receive(ResponseReceived(number=1, response=says(script("s"), script("t"))))
    turn.receive(ScriptCalled(call_id="s", calls=(call("s/1"),)))
    first = turn.receive(ToolsFinished(results=(ToolResult(call_id="s/1", name="read", content=(Text("text"),)),)))
    assert isinstance(first, RunScript) and (first.call.id, first.ran) == ("s", ("read",))
    second = turn.receive(ScriptFinished(call_id="s", text="ok"))
    assert second == replace(first, call=script("t"), results=(), ran=())


@pytest.mark.promise("safe:bounded")
def test_a_report_of_a_sub_agent_that_nobody_asked_for_is_counted() -> None:
    """Proves: what it says it has spent is spent, whoever started it."""
    stray = reported("gone", requests=7)
    result = ToolResult(call_id="a", name="task", content=(Text("did it"),))
    config = replace(CONFIG, tools=(TASK,), limits=MaxRequests(9))
    ran = ToolsFinished(results=(result,), children=(reported("a", requests=1), stray))
    played = play([says(call("a", "task")), ran], config=config)
    assert [child.call_id for child in played.result.children] == ["a", "gone"]
    assert (played.result.requests, played.result.stop_reason) == (1, StopReason.BUDGET)


# cut calls


def attempt(number: int, *, id: str) -> tuple[ToolCall, str]:
    """The beginning of a call that is unlike all others, and the rest of it, with which it does not fit `read`."""
    begun = f'{{"edits":[{{"place":"{number:03}' + "".join([f", {number:03}-{line:03}" for line in range(60)])
    asked = hold_back(begun, kind="json")
    assert asked is not None
    return cut(id, begun), f'{asked.held} the end"}}]}}'


@pytest.mark.promise("cut:continued", "loop:cut-variants")
@pytest.mark.parametrize(("misfits", "again"), [(16, "step"), (17, "continue")])
def test_the_last_16_calls_that_were_continued_in_vain_are_not_continued_again(misfits: int, again: str) -> None:
    """Proves: the seventeenth makes the guard forget the first."""
    played_out: list[Response] = []
    for number in range(misfits):
        begun, rest = attempt(number, id=f"c{number}")
        played_out += [says(begun, finish=FinishReason.LENGTH), says(rest)]
        played_out.append(says(call(f"r{number}", arguments=f'{{"path":"{number}"}}')))
    begun, rest = attempt(0, id="c")
    last = [says(begun, finish=FinishReason.LENGTH), *([says(rest)] if again == "continue" else []), says("So.")]
    played = play([*played_out, *last], config=replace(ON, max_steps=100))
    purposes = [request.purpose for request in played.requests]
    assert purposes[: 3 * misfits] == ["step", "continue", "step"] * misfits
    assert purposes[3 * misfits :] == ["step", again, "step"][: len(last)]


@pytest.mark.parametrize("between", [",", "X", ":", "", ";"])
def test_a_parameter_behind_anything_but_a_comma_is_none(between: str) -> None:
    """Proves: what stands before it is whole, what stands behind it is not read."""
    found = whole_parameters(f'{{"path":"a"{between}"text":"b","more":"cu')
    assert found == ('{"path": "a", "text": "b"}' if between == "," else '{"path": "a"}')
