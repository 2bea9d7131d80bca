"""A cut response and the requests that go on with it, step by step; the rules of the seam have their own tests."""

import pytest
from msgspec.structs import replace

from families import of_family
from tables import each
from turn.playing import CONFIG, Played, call, play, results_in, says, session_messages
from turnwise.rules.advice import asks_for_pieces
from turnwise.rules.answer_room import NOT_RUN_LAST_STEP
from turnwise.rules.arguments import SEND_WHOLE
from turnwise.rules.prompt_room import ATE_ALL, ModelLimits
from turnwise.turn.config import ToolOffer
from turnwise.turn.events import Event, Interrupted, RequestFailed, ResponseReceived, TurnStarted
from turnwise.turn.machine import Turn, replay
from turnwise.turn.outcomes import NOT_RUN_CONTINUING
from turnwise.vocab import (
    TWO_READINGS,
    ArgumentsState,
    Fault,
    FaultKind,
    FinishReason,
    Message,
    Reasoning,
    Response,
    Settings,
    StopReason,
    Text,
    ToolCall,
    ToolSpec,
    Usage,
    calls_of,
    text_of,
)

WRITE = ToolOffer(
    spec=ToolSpec(name="write", parameters='{"type":"object","properties":{"text":{"type":"string"}}}'), effect="write"
)
PREFIX = '{"text":"The quick brown fox jumps over the lazy dog, again and aga'
REST = 'jumps over the lazy dog, again and again, and then it sleeps."}'
WHOLE = PREFIX[: PREFIX.index("jumps")] + REST
STORY = "The quick brown fox jumps over the lazy dog, again and aga"
STORY_REST = "jumps over the lazy dog, again and again, and then it sleeps."
STORY_WHOLE = STORY[: STORY.index("jumps")] + STORY_REST
ON = replace(CONFIG, recover="continue", tools=(*CONFIG.tools[:1], WRITE))


def cut_call(id: str, prefix: str = PREFIX) -> ToolCall:
    return call(id, "write", prefix, state=ArgumentsState.TRUNCATED, reason="cut")


def cut_by_limit(*parts: ToolCall | str) -> Response:
    return says(*parts, finish=FinishReason.LENGTH)


def purposes(played: Played) -> list[str]:
    return [request.purpose for request in played.requests]


def refused(played: Played) -> list[str]:
    return [repair.what for repair in played.result.repairs if repair.kind == "continuation_refused"]


@pytest.mark.promise("cut:continued", "cut:complete-sibling", "step:every-call-answered", "keep:replay")
def test_two_cut_calls_are_continued_one_after_the_other_and_run_beside_a_whole_one() -> None:
    """One message in history, one RunTools, each continue request ends with one cut call's text and the word to go on."""
    first = cut_by_limit(call("r"), cut_call("a"), cut_call("b", PREFIX.replace("fox", "cat")))
    cat = REST.replace("sleeps", "purrs")
    played = play([first, says(REST), says(cat), says("Done.")], config=ON)
    assert purposes(played) == ["step", "continue", "continue", "step"]
    assert [[plan.arguments for plan in ran] for ran in played.ran] == [
        ['{"path":"a"}', WHOLE, PREFIX.replace("fox", "cat")[: PREFIX.index("jumps")] + cat]
    ]
    step, going_on, _, after = [request.request for request in played.requests]
    assert going_on.messages[:-2] == step.messages
    assert [message.role for message in going_on.messages[-2:]] == ["assistant", "user"]
    assert PREFIX.startswith(text_of(going_on.messages[-2])) and len(going_on.messages[-2].parts) == 1
    assert (going_on.tools, going_on.system, going_on.tool_choice) == (step.tools, step.system, "none")
    assert [message.role for message in after.messages] == ["user", "assistant", "tool"]
    assert all(one.state is ArgumentsState.COMPLETE for one in calls_of(after.messages[1]))
    assert (played.result.steps, played.result.prefix_changes) == (
        2,
        ("request 3: last message", "request 4: last message"),
    )
    commands = replay(played.events)
    assert [one for one in commands if one in played.requests] == played.requests


@pytest.mark.promise("cut:never-run", "assembly:cumulative")
def test_a_call_with_two_readings_is_asked_for_again_and_never_continued() -> None:
    """`{"text":` and then the whole object, which a continuation by `}` would close around itself."""
    said = '{"text":{"text":"The quick brown fox jumps over the lazy dog"}'
    doubtful = call("a", "write", said, state=ArgumentsState.TRUNCATED, reason=TWO_READINGS)
    played = play([says(call("r"), doubtful), says("Done.")], config=ON)
    assert purposes(played) == ["step", "step"]
    assert (
        results_in(played.requests[1].request.messages)["a"]
        == f"Not run: {TWO_READINGS}. Nothing was changed. {SEND_WHOLE}"
    )


@pytest.mark.promise("cut:split", "cut:complete-sibling", "cut:not-blamed")
@pytest.mark.parametrize(
    "reply",
    [
        says("I have written it."),
        says(""),
        says(cut_call("x")),
        says("I cannot.", finish=FinishReason.REFUSAL),
        RequestFailed(number=2, fault=Fault(kind=FaultKind.DISCONNECTED, message="gone")),
        says("", fault=Fault(kind=FaultKind.OVERLOADED, message="later")),
    ],
)
def test_what_cannot_be_joined_leads_to_the_split_notice(reply: Response | RequestFailed) -> None:
    """The whole sibling runs all the same, and the cut call does not."""
    played = play([cut_by_limit(call("r"), cut_call("a")), reply, says("Done.")], config=ON)
    assert purposes(played) == ["step", "continue", "step"]
    assert [[plan.call.id for plan in ran] for ran in played.ran] == [["r"]]
    assert asks_for_pieces(results_in(played.result.messages)["a"])
    assert len(refused(played)) == 1


@pytest.mark.promise("cut:split")
@pytest.mark.parametrize(
    ("config", "response"),
    [
        (replace(ON, recover="split"), cut_by_limit(cut_call("a"))),
        (replace(ON, recover="off"), cut_by_limit(cut_call("a"))),
        (ON, cut_by_limit(cut_call("a", '{"text":"short'))),
        (replace(ON, allowed=("none", "read")), cut_by_limit(cut_call("a"))),
    ],
)
def test_what_is_not_worth_it_is_not_gone_on_with(config: object, response: Response) -> None:
    """Chosen otherwise, too short, or of an effect that is not allowed: no request for it, and a result all the same."""
    played = play([response, says("Done.")], config=config)  # type: ignore[arg-type]
    assert (purposes(played), played.ran) == (["step", "step"], [])
    assert results_in(played.result.messages)["a"].startswith(("Not run: ", "Denied: "))


@pytest.mark.promise("end:forced-answer", "cut:never-run")
def test_a_cut_call_in_the_last_step_is_disobedience() -> None:
    """Not gone on with, while a cut answer is."""
    forced = replace(ON, max_steps=1)
    played = play([cut_by_limit("As far as I know.", cut_call("a"))], config=forced)
    assert results_in(played.result.messages) == {"a": NOT_RUN_LAST_STEP}
    played = play([cut_by_limit(STORY), says(STORY_REST)], config=forced)
    assert (purposes(played), played.result.text) == (["step", "continue"], STORY_WHOLE)


@pytest.mark.promise("cut:text-continued")
@pytest.mark.parametrize("reply", ["", " \n", STORY[-30:], STORY, f"{STORY}\n"])
def test_a_continuation_that_adds_nothing_leaves_the_text_incomplete(reply: str) -> None:
    """The response claims `stop` with as many tokens as were asked for, and so does the reply: nothing says that it is whole,
    and no repair does."""
    config = replace(ON, settings=Settings(max_output_tokens=100))
    by_usage = replace(says(STORY), usage=Usage(output_tokens=100))
    for response in (by_usage, cut_by_limit(STORY)):
        played = play([response, says(reply)], config=config)
        assert (played.result.text, played.result.complete) == (STORY, False)
        assert [repair.kind for repair in played.result.repairs] == ["continuation_refused"]
    played = play([by_usage, replace(says(STORY_REST[:-8]), usage=Usage(output_tokens=100)), says("")], config=config)
    assert (played.result.text, played.result.complete) == (STORY_WHOLE[:-8], False)
    assert "continued_text" not in [repair.kind for repair in played.result.repairs]


@pytest.mark.promise("cut:text-continued")
def test_a_text_of_fewer_than_40_characters_is_not_gone_on_with() -> None:
    """As docs/cut-turn.md says: the shown beginning and the held mark take 40 together. The answer is what came, flagged."""
    for length, asks in ((39, ["step"]), (40, ["step", "continue"])):
        short = "Photosynthesis turns light and water into sugar"[:length]
        played = play([cut_by_limit(short), *[says("")] * (len(asks) - 1)], config=ON)
        assert purposes(played) == asks
        assert (played.result.text, played.result.complete) == (short, False)


@pytest.mark.promise("cut:never-run", "cut:split")
@each("free_form", [False, True])
@each("reply", ["", " \n", "{end}", "{end} \n"])
def test_a_continuation_that_adds_nothing_leaves_a_call_cut(reply: str, free_form: bool) -> None:
    """A free-form call, which shows no cut, would run as far as it came."""
    prefix = PREFIX if not free_form else STORY
    made = replace(cut_call("a", prefix), free_form=free_form)
    end = prefix[-30:]
    played = play([cut_by_limit(made), says(reply.format(end=end)), says("Done.")], config=ON)
    assert (purposes(played), played.ran) == (["step", "continue", "step"], [])
    assert asks_for_pieces(results_in(played.result.messages)["a"])
    assert "continued_call" not in [repair.kind for repair in played.result.repairs]


@pytest.mark.promise("cut:continued", "wait:cancel")
def test_an_interrupt_while_going_on_keeps_what_had_come_and_answers_its_calls() -> None:
    """Nothing of the cut response runs after it."""
    turn, events = begun(cut_by_limit("I write.", call("r"), cut_call("a")))
    events.append(Interrupted(kind="cancel"))
    turn.receive(events[-1])
    assert turn.result is not None and turn.result.stop_reason is StopReason.CANCELLED
    assert results_in(turn.result.messages) == {"r": NOT_RUN_CONTINUING, "a": NOT_RUN_CONTINUING}
    assert "I write." in turn.result.text


@pytest.mark.promise("step:every-call-answered")
def test_a_turn_that_was_killed_while_going_on_leaves_a_sound_session() -> None:
    """Its journal ends after the cut response."""
    _, events = begun(cut_by_limit(call("r"), cut_call("a")))
    assert results_in(session_messages([events])) == {"r": NOT_RUN_CONTINUING, "a": NOT_RUN_CONTINUING}


def begun(response: Response) -> tuple[Turn, list[Event]]:
    started = TurnStarted(config=ON, input=(Message("user", (Text("go"),)),))
    turn, _ = Turn.start(started)
    received = ResponseReceived(number=1, response=response)
    turn.receive(received)
    return turn, [started, received]


@pytest.mark.promise("cut:split", "cut:budget")
def test_an_object_is_asked_for_once_more_where_the_model_can_give_more() -> None:
    """One retry with the model's own limit; a second cut is for the split, and a refusal of the retry too."""
    limits = ModelLimits(max_output_tokens=8000, context_window_tokens=100_000)
    config = replace(ON, **of_family("gemini"), model_limits=limits, default_max_tokens=1000)
    cut = replace(says(call("a", "write", "{}"), finish=FinishReason.LENGTH), usage=Usage(output_tokens=1000))
    whole = says(call("b", "write", '{"text":"all"}'), finish=FinishReason.TOOL_CALLS)
    played = play([cut, whole, says("Done.")], config=config)
    assert purposes(played) == ["step", "retry", "step"]
    assert played.requests[1].request.settings.max_output_tokens == 8000
    assert [[plan.arguments for plan in ran] for ran in played.ran] == [['{"text":"all"}']]
    refusal = RequestFailed(number=2, fault=Fault(kind=FaultKind.BAD_REQUEST, message="max_tokens: too large"))
    for second in (cut, refusal):
        played = play([cut, second, says("Done.")], config=config)
        assert (purposes(played), played.ran) == (["step", "retry", "step"], [])
        assert [text for text in results_in(played.result.messages).values() if asks_for_pieces(text)]


@pytest.mark.promise("cut:thinking-ate-all", "end:never-empty")
def test_reasoning_that_ate_all_twice_leads_to_the_forced_answer_and_then_to_words_of_ours() -> None:
    """Each time with less reasoning; never a silent end."""
    config = replace(ON, settings=Settings(max_output_tokens=1000, reasoning_effort="high"))
    thought = Response(message=Message("assistant", (Reasoning("hmm"),)), finish=FinishReason.LENGTH)
    played = play([thought, thought, says("Forty-two.")], config=config)
    assert purposes(played) == ["step", "retry", "answer"]
    assert [one.request.settings.reasoning_effort for one in played.requests] == ["high", "low", "low"]
    assert played.requests[1].request.messages[-1] == Message("user", (Text(ATE_ALL),))
    assert played.requests[2].request.tool_choice == "none"
    assert (played.result.text, played.result.stop_reason, played.result.complete) == (
        "Forty-two.",
        StopReason.ANSWERED,
        False,
    )
    played = play([thought, thought, thought], config=config)
    assert (played.result.origin, played.result.complete) == ("local", False)
    assert "reasoning used up the whole output" in played.result.text


@pytest.mark.promise("cut:thinking-ate-all")
def test_the_answer_behind_reasoning_that_ate_all_twice_has_no_budget_for_reasoning() -> None:
    """Proves: the second request has a smaller one, the answer's has none."""
    config = replace(ON, settings=Settings(max_output_tokens=8_000, reasoning_tokens=4_000))
    thought = Response(message=Message("assistant", (Reasoning("hmm"),)), finish=FinishReason.LENGTH)
    played = play([thought, thought, says("Forty-two.")], config=config)
    budgets = [one.request.settings.reasoning_tokens for one in played.requests]
    assert budgets == [4_000, 2_000, None]
