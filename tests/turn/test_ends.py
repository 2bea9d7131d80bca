"""How turns end: the cap, the forced answer, empty and disobedient responses, refusals, failures, interrupts."""

import pytest
from msgspec.structs import replace

from families import of_family
from tables import each
from turn.playing import ASK, CONFIG, READ, WRITE, call, cut, play, results_in, says
from turnwise.rules.answer_room import EMPTY_AGAIN, GO_ON, NOT_RUN_LAST_STEP, SYNTHESIS
from turnwise.rules.retries import NO_RETRY
from turnwise.turn.config import TurnConfig
from turnwise.turn.events import Interrupted, RequestFailed, StepPrepared, ToolsFinished
from turnwise.turn.outcomes import why_incomplete
from turnwise.vocab import (
    Fault,
    FaultKind,
    File,
    FinishReason,
    Message,
    NamedTool,
    ProviderItem,
    Reasoning,
    Refusal,
    Repair,
    Response,
    StopReason,
    Text,
    ToolChoice,
    ToolResult,
    Usage,
    text_of,
)

LAST = Message("user", (Text(SYNTHESIS),))
DOWN = Fault(kind=FaultKind.OVERLOADED, message="try later", status=529)


def capped(steps: int, **more: object) -> TurnConfig:
    return replace(CONFIG, max_steps=steps, **more)


@pytest.mark.promise("end:cap", "end:forced-answer", "end:early")
@pytest.mark.parametrize("steps", [1, 2, 5, 20])
def test_the_last_allowed_step_forbids_tools_and_asks_for_a_synthesis(steps: int) -> None:
    """A model that never stops calling makes exactly N requests; the first N-1 are untouched (gitmost)."""
    script = [says(call(f"c{number}")) for number in range(1, steps)]
    played = play([*script, says("What I know.")], config=capped(steps))
    assert [sent.request.tool_choice for sent in played.requests] == [*["auto"] * (steps - 1), "none"]
    assert [sent.request.messages[-1] == LAST for sent in played.requests] == [*[False] * (steps - 1), True]
    assert {sent.request.tools for sent in played.requests} == {tuple([offer.spec for offer in CONFIG.tools])}
    assert {sent.request.system for sent in played.requests} == {CONFIG.system}
    result = played.result
    assert (result.text, result.stop_reason, result.complete) == ("What I know.", StopReason.STEP_LIMIT, False)
    assert (result.steps, result.requests, len(result.messages)) == (steps, steps, 2 * steps)


@pytest.mark.promise("end:cap")
def test_the_default_cap_is_20() -> None:
    """8 cut research questions short (gitmost)."""
    assert TurnConfig(session_id="s", turn_id="t", model="m").max_steps == 20


@pytest.mark.promise("end:early")
def test_a_turn_that_ends_earlier_has_no_extra_request_or_instruction() -> None:
    """Two steps of three: the cap leaves no trace."""
    played = play([says(call("a")), says("Done.")], config=capped(3))
    assert [sent.request.messages[-1].role for sent in played.requests] == ["user", "tool"]
    assert [sent.request.tool_choice for sent in played.requests] == ["auto", "auto"]
    assert (played.result.stop_reason, played.result.complete) == (StopReason.ANSWERED, True)
    assert played.result.prefix_changes == ()


@pytest.mark.promise("end:early")
def test_one_step_without_tools_is_an_ordinary_answer() -> None:
    """Where no tool is on offer there is nothing to forbid or to sum up."""
    played = play([says("Hi.")], config=capped(1, tools=()))
    assert played.requests[0].request.messages == (ASK,)
    assert played.requests[0].request.tool_choice == "auto"
    assert (played.result.stop_reason, played.result.complete) == (StopReason.ANSWERED, True)


@pytest.mark.promise("end:forced-answer")
def test_endpoints_that_do_not_know_tool_choice_none_get_no_tools() -> None:
    """The profile says how tools are forbidden; the change of prefix is counted."""
    played = play(
        [says(call("a")), says("So.")], config=capped(2, tool_choice_none="drop_tools", parallel_tool_calls=True)
    )
    assert [len(sent.request.tools) for sent in played.requests] == [3, 0]
    assert [sent.request.parallel_tool_calls for sent in played.requests] == [True, None]
    assert played.requests[1].request.tool_choice == "auto"
    assert played.result.prefix_changes == ("request 2: tools",)


@pytest.mark.promise("end:forced-answer")
def test_a_disobedient_call_is_not_executed_and_its_text_is_kept() -> None:
    """The text beside the call is the answer; the call has a result that says why it did not run."""
    played = play([says("As far as I see, yes.", call("a"))], config=capped(1))
    assert played.ran == []
    assert played.result.text == "As far as I see, yes."
    assert (played.result.requests, played.result.complete, played.result.origin) == (1, False, "model")
    assert results_in(played.result.messages) == {"a": NOT_RUN_LAST_STEP}


@pytest.mark.promise("end:forced-answer", "end:cap")
@pytest.mark.parametrize(("family", "tools"), [("openai_chat", 0), ("anthropic_messages", 3)])
def test_a_disobedient_call_without_text_leads_to_one_request_without_tools(family: str, tools: int) -> None:
    """One request of purpose `answer` beyond the cap. Anthropic keeps the tools: its history holds calls."""
    played = play([says(call("a")), says(call("b")), says("Well.")], config=capped(2, **of_family(family)))
    assert [(sent.step, sent.purpose) for sent in played.requests] == [(1, "step"), (2, "step"), (2, "answer")]
    assert len(played.requests[2].request.tools) == tools
    assert played.requests[2].request.messages[-1] == LAST
    assert played.result.text == "Well."
    assert (played.result.stop_reason, played.result.complete) == (StopReason.STEP_LIMIT, False)
    assert (played.result.steps, played.result.requests) == (2, 3)


@pytest.mark.promise("end:never-empty", "end:cap")
def test_a_model_that_never_obeys_is_answered_for_from_its_results() -> None:
    """N + 1 requests at most; the answer is ours and says so."""
    played = play([says("Looking.", call("a")), says(call("b")), says(call("c"))], config=capped(2))
    result = played.result
    assert result.text == (
        "The model called a tool in the last step, where none is allowed.\n\nThe model had said:\nLooking.\n\n"
        "What the tools had returned:\n- read: did a"
    )
    assert [results_in(result.messages)[id] for id in ("b", "c")] == [NOT_RUN_LAST_STEP] * 2
    assert (result.stop_reason, result.complete, result.origin) == (StopReason.STEP_LIMIT, False, "local")
    assert (result.requests, len(played.ran)) == (3, 1)


@pytest.mark.promise("end:forced-answer")
def test_a_call_of_a_tool_that_was_never_offered_does_not_run_in_the_last_step() -> None:
    """Without any tools on offer a call is disobedient too."""
    played = play([says(call("a")), says("Fine.")], config=capped(1, tools=()))
    assert [sent.purpose for sent in played.requests] == ["step", "answer"]
    assert (played.result.text, played.result.complete) == ("Fine.", False)


@pytest.mark.promise("end:never-empty")
@pytest.mark.parametrize("empty", [says(), says(" \n"), says(Reasoning("hm")), says(finish=FinishReason.LENGTH)])
def test_an_empty_response_is_asked_once_more(empty: Response) -> None:
    """Nothing, blanks and reasoning alone are all empty; the second request says so and keeps the tools."""
    played = play([empty, says("Here.")])
    assert [(sent.step, sent.purpose) for sent in played.requests] == [(1, "step"), (2, "answer")]
    assert played.requests[1].request.messages[-1] == Message("user", (Text(EMPTY_AGAIN),))
    assert played.requests[1].request.tools == played.requests[0].request.tools
    assert (played.result.text, played.result.complete, played.result.origin) == ("Here.", True, "model")
    assert text_of(played.result.messages[-1]) == "Here."


@pytest.mark.promise("end:never-empty")
def test_two_empty_responses_in_a_row_are_answered_locally() -> None:
    """The result says that the answer is ours."""
    played = play([says(call("a")), says(), says()])
    assert played.result.text == (
        "The model gave two empty responses in a row, so there is no answer of its own.\n\n"
        "What the tools had returned:\n- read: did a"
    )
    assert (played.result.complete, played.result.origin) == (False, "local")
    assert played.result.requests == 3


@pytest.mark.promise("end:never-empty", "end:cap")
def test_an_empty_last_step_is_asked_once_more_beyond_the_cap() -> None:
    """The one extra request; tools stay, tool choice none."""
    played = play([says(call("a")), says(), says("Late.")], config=capped(2))
    assert [(sent.step, sent.purpose) for sent in played.requests] == [(1, "step"), (2, "step"), (2, "answer")]
    assert played.requests[2].request.tool_choice == "none"
    assert played.result.text == "Late."
    assert played.result.stop_reason is StopReason.STEP_LIMIT


@pytest.mark.promise("end:never-empty")
def test_a_finish_reason_of_calls_on_plain_text_is_an_answer() -> None:
    """`finish_reason: tool_calls` without a call must not loop (opencode did, for ever)."""
    assert play([says("Yes.", finish=FinishReason.TOOL_CALLS)]).result.complete is True


def test_an_answer_that_is_a_file_says_so() -> None:
    """An image is an answer; the text is never empty."""
    picture = File(media_type="image/png", data=b"1")
    assert play([says(picture)]).result.text == "(The answer is a file: image/png.)"


@pytest.mark.promise("end:reason")
@pytest.mark.parametrize("finish", [FinishReason.LENGTH, FinishReason.CUT, FinishReason.ERROR])
def test_a_text_that_was_cut_is_an_answer_but_not_a_complete_one(finish: FinishReason) -> None:
    """Taken as final by all but one of the peers."""
    result = play([says("It begins", finish=finish)]).result
    assert (result.text, result.stop_reason, result.complete) == ("It begins", StopReason.ANSWERED, False)


@pytest.mark.promise("end:reason", "end:never-empty")
@pytest.mark.parametrize(
    ("response", "text", "origin"),
    [
        (says(Refusal("I will not.")), "I will not.", "model"),
        (says("No.", finish=FinishReason.REFUSAL), "No.", "model"),
        (says(finish=FinishReason.REFUSAL), "The model refused to answer and gave no reason.", "local"),
        (
            says("How to", finish=FinishReason.CONTENT_FILTER),
            "The provider's content filter stopped the answer.\n\nWhat had arrived: How to",
            "local",
        ),
    ],
)
def test_a_refusal_is_an_answer_of_its_own(response: Response, text: str, origin: str) -> None:
    """It ends `refused`, with its own words or ours, and no further request."""
    result = play([response]).result
    assert (result.text, result.stop_reason, result.complete) == (text, StopReason.REFUSED, False)
    assert (result.origin, result.requests) == (origin, 1)


@pytest.mark.promise("end:reason", "end:never-empty")
@pytest.mark.parametrize(
    ("said", "text"), [((), "The model refused to answer: blocked (category `cyber`)"), (("No.",), "No.")]
)
def test_what_a_provider_says_of_a_refusal_is_told(said: tuple[str, ...], text: str) -> None:
    """Proves: its explanation stands in the result, also where the model has said something before it was stopped."""
    response = replace(says(*said, finish=FinishReason.REFUSAL), explanation="blocked (category `cyber`)")
    result = play([response]).result
    assert result.text == text
    assert result.why_incomplete == "the model or its provider refused: blocked (category `cyber`)"


def test_a_call_beside_a_refusal_does_not_run_and_is_answered() -> None:
    """A refused response is not acted upon."""
    played = play([says("No.", call("a"), finish=FinishReason.REFUSAL)])
    assert played.ran == []
    assert list(results_in(played.result.messages)) == ["a"]


@pytest.mark.promise("end:never-empty", "end:no-prefill")
def test_a_pause_is_sent_back_to_go_on() -> None:
    """The texts before and after it are one answer. Anthropic wants the content last; others get a user's word."""
    search = ProviderItem("anthropic_messages", "server_tool_use", '{"id":"s"}')
    paused = says("First ", search, finish=FinishReason.PAUSE)
    for family, last in [("anthropic_messages", "assistant"), ("openai_chat", "user")]:
        played = play([paused, says("second.")], config=capped(5, **of_family(family)))
        assert played.requests[1].request.messages[-1].role == last
        assert paused.message in played.requests[1].request.messages
        assert (played.result.text, played.result.complete) == ("First second.", True)


def test_a_pause_before_the_last_step_keeps_its_text_only() -> None:
    """An instruction may not follow a server-side tool without its result. It never went out, so no prefix changes."""
    search = ProviderItem("anthropic_messages", "server_tool_use", "{}")
    paused = says("First ", search, finish=FinishReason.PAUSE)
    played = play([paused, says("second.")], config=capped(2, **of_family("anthropic_messages")))
    assert played.requests[1].request.messages == (ASK, Message("assistant", (Text("First "),)), LAST)
    assert (played.result.text, played.result.complete) == ("First second.", False)
    assert played.result.prefix_changes == ()


def test_a_pause_that_nothing_continues_leaves_its_text_only() -> None:
    """The next turn's user message may not follow a server-side tool without its result."""
    search = ProviderItem("anthropic_messages", "server_tool_use", "{}")
    paused = says("First ", search, finish=FinishReason.PAUSE)
    played = play([paused, RequestFailed(number=2, fault=DOWN)], config=capped(5, **of_family("anthropic_messages")))
    assert played.result.messages == (ASK, Message("assistant", (Text("First "),)))


@pytest.mark.promise("end:never-empty")
def test_an_empty_response_after_progress_is_asked_once_more_again() -> None:
    """Two in a row end the turn, not two in all."""
    played = play([says(), says(call("a")), says(), says("Here.")])
    assert [sent.purpose for sent in played.requests] == ["step", "answer", "step", "answer"]
    assert played.result.complete is True


@pytest.mark.promise("end:no-prefill")
def test_a_request_never_ends_with_an_assistants_message() -> None:
    """Unless the endpoint is known to accept it."""
    begun = (ASK, Message("assistant", (Text("The answer is"),)))
    assert play([says("42")], input=begun).requests[0].request.messages[-1] == Message("user", (Text(GO_ON),))
    accepting = replace(CONFIG, accepts_prefill=True)
    assert play([says("42")], input=begun, config=accepting).requests[0].request.messages == begun


@pytest.mark.promise("end:reason", "end:never-empty")
def test_a_failed_request_ends_the_turn_with_what_it_has() -> None:
    """What arrived in part is billed and shown, but not part of the session."""
    partial = replace(says("half"), usage=Usage(output_tokens=3))
    played = play([says(call("a")), RequestFailed(number=2, fault=DOWN, partial=partial)])
    result = played.result
    assert result.text == (
        "The provider failed (529), overloaded: try later\n\nThe model had said:\nhalf\n\n"
        "What the tools had returned:\n- read: did a"
    )
    assert (result.stop_reason, result.complete, result.fault) == (StopReason.PROVIDER_FAILED, False, DOWN)
    assert result.usage == Usage(output_tokens=3)
    assert [message.role for message in result.messages] == ["user", "assistant", "tool"]


@pytest.mark.promise("step:incomplete-response")
def test_complete_calls_of_a_faulted_response_are_recorded_and_not_run() -> None:
    """An error object inside a 200 stream: nothing is lost silently, nothing runs on a broken response."""
    played = play([says("Looking.", call("a"), finish=FinishReason.ERROR, fault=DOWN)])
    assert played.ran == []
    assert results_in(played.result.messages) == {"a": "Not run: the provider failed before its response was whole."}
    assert played.result.stop_reason is StopReason.PROVIDER_FAILED
    assert "Looking." in played.result.text


@pytest.mark.parametrize(("kind", "reason"), [("cancel", StopReason.CANCELLED), ("deadline", StopReason.TIME_LIMIT)])
@pytest.mark.promise("end:reason", "step:every-call-answered")
def test_an_interrupt_while_tools_run_answers_every_call(kind: str, reason: StopReason) -> None:
    """Those that had finished keep their result; pending, cut and running ones say what became of them."""
    running = says(call("a"), call("b"), call("c", "client", "{}"), cut("d"))
    interrupt = Interrupted(kind="cancel" if kind == "cancel" else "deadline", results=())
    played = play(
        [running, replace(interrupt, results=(ToolResult(call_id="b", name="read", content=(Text("did b"),)),))]
    )
    texts = results_in(played.result.messages)
    assert list(texts) == ["a", "b", "c", "d"]
    assert texts["b"] == "did b"
    assert texts["a"] == texts["c"] and "may have run in part" in texts["a"]
    assert "were cut off" in texts["d"]
    assert (played.result.stop_reason, played.result.complete) == (reason, False)
    assert played.result.text.strip()


@pytest.mark.parametrize("kind", ["cancel", "deadline"])
@pytest.mark.promise("step:every-call-answered")
def test_a_call_that_had_not_started_is_not_said_to_have_run_in_part(kind: str) -> None:
    """The driver says which had; an answer of ours does not list what never began."""
    interrupt = Interrupted(kind="cancel" if kind == "cancel" else "deadline", started=("a",))
    played = play([says(call("a"), call("b", "write"), call("c", "client", "{}")), interrupt])
    texts = results_in(played.result.messages)
    assert "may have run in part" in texts["a"]
    assert texts["b"] == texts["c"] and texts["b"].startswith("Not run: ")
    assert texts["b"] not in played.result.text and texts["a"] in played.result.text


@pytest.mark.promise("end:never-empty")
def test_what_had_arrived_when_a_turn_was_interrupted_is_in_its_answer() -> None:
    """Its text is shown and its tokens count; nothing of it goes into history."""
    partial = replace(says("The answer is", call("b")), usage=Usage(input_tokens=5, output_tokens=3))
    ran = ToolsFinished(results=(ToolResult(call_id="a", name="read", content=(Text("did a"),)),))
    result = play([says("Looking.", call("a")), ran, Interrupted(kind="cancel", partial=partial)]).result
    assert result.text == (
        "The turn was cancelled before there was an answer.\n\nThe model had said:\nThe answer is\n\n"
        "What the tools had returned:\n- read: did a"
    )
    assert result.usage == Usage(input_tokens=5, output_tokens=3)
    assert [message.role for message in result.messages] == ["user", "assistant", "tool"]
    paused = play([says("First.", finish=FinishReason.PAUSE), Interrupted(kind="cancel", partial=says(" Then"))]).result
    assert "The model had said:\nFirst. Then" in paused.text


def test_an_interrupt_while_waiting_for_the_model_ends_the_turn() -> None:
    """In every waiting state."""
    result = play([Interrupted(kind="cancel")]).result
    assert (result.text, result.stop_reason) == (
        "The turn was cancelled before there was an answer.",
        StopReason.CANCELLED,
    )
    assert result.messages == (ASK,)


@pytest.mark.promise("step:prefix-stable")
def test_a_prepared_step_changes_this_step_only_and_is_counted() -> None:
    """Model, tools, choice, parallel calls, settings and an instruction; the next step is as configured again."""
    change = StepPrepared(
        tools=("read",), tool_choice="required", parallel_tool_calls=False, model="n", instruction="Look."
    )
    played = play(
        [says(call("a")), says(call("b")), says("Done.")],
        config=replace(CONFIG, prepares_steps=True),
        prepare=[StepPrepared(), change],
    )
    first, second, third = [sent.request for sent in played.requests]
    assert (second.model, second.tools, second.tool_choice) == ("n", (READ.spec,), "required")
    assert second.parallel_tool_calls is False
    assert second.messages[-1] == Message("user", (Text("Look."),))
    assert (third.model, third.tools, third.tool_choice) == (first.model, first.tools, first.tool_choice)
    assert third.messages[: len(second.messages) - 1] == second.messages[:-1]
    assert played.result.prefix_changes == (
        "request 2: model",
        "request 2: tools",
        "request 3: model",
        "request 3: tools",
        "request 3: last message",
    )


def test_a_tool_that_is_not_on_offer_in_this_step_does_not_run() -> None:
    """The subset of `prepare_step` holds for the calls too."""
    played = play(
        [says(call("a", "write")), says("ok")],
        config=replace(CONFIG, prepares_steps=True),
        prepare=[StepPrepared(tools=("read", "gone"))],
    )
    assert played.ran == []
    assert results_in(played.result.messages)["a"].startswith("Not run: no tool `write` is on offer in this step.")
    assert [repair.kind for repair in played.result.repairs] == ["unknown_tool_offered"]


@pytest.mark.parametrize(
    ("prepared", "own", "told"),
    [
        (
            StepPrepared(tool_choice=NamedTool("gone")),
            "auto",
            "prepare_step chose `gone`, which is not on offer in this step",
        ),
        (
            StepPrepared(tools=("read",), tool_choice=NamedTool("write")),
            "auto",
            "prepare_step chose `write`, which is not on offer in this step",
        ),
        (
            StepPrepared(tools=(), tool_choice="required"),
            "auto",
            "prepare_step chose `required`, and no tool is on offer in this step",
        ),
        (
            StepPrepared(tools=("read",)),
            NamedTool("write"),
            "the tool choice of the turn is `write`, which is not on offer in this step",
        ),
        (StepPrepared(tools=(), tool_choice="none"), "required", None),
        (StepPrepared(tools=("read",), tool_choice=NamedTool("read")), "auto", None),
    ],
)
def test_a_tool_choice_that_the_step_cannot_meet_is_told(
    prepared: StepPrepared, own: ToolChoice, told: str | None
) -> None:
    """As an unknown tool is; once, and the request goes out with `auto`, which every API takes."""
    config = replace(CONFIG, prepares_steps=True, tool_choice=own)
    played = play([says("ok")], config=config, prepare=[prepared])
    expected = [] if told is None else [Repair("impossible_tool_choice", "step 1", told)]
    assert list(played.result.repairs) == expected
    if told is not None:
        assert played.requests[0].request.tool_choice == "auto"


def test_the_last_step_forbids_tools_whatever_is_prepared() -> None:
    """A cap that `prepare_step` could lift would be none."""
    played = play([says("ok")], config=capped(1, prepares_steps=True), prepare=[StepPrepared(tool_choice="required")])
    assert played.requests[0].request.tool_choice == "none"
    assert WRITE.spec in played.requests[0].request.tools


@pytest.mark.promise("end:reason")
def test_an_answer_that_lost_something_on_the_way_is_not_complete() -> None:
    """Proves: whatever the finish reason says; a repair alone leaves it complete."""
    mended = replace(says("Done."), repairs=(Repair("noise_skipped", "event 2", "left out"),))
    for lost in (True, False):
        played = play([replace(mended, lost=lost)], config=replace(CONFIG, retry=NO_RETRY))
        assert (played.result.text, played.result.complete) == ("Done.", not lost)


@each("stop_reason", list(StopReason))
def test_every_end_without_a_complete_answer_says_why(stop_reason: StopReason) -> None:
    """Issue 15: `why_incomplete` was empty for each but `answered`. What the answer lacks is said beside it."""
    said = why_incomplete(stop_reason, lacks="", fault=None)
    assert said and why_incomplete(stop_reason, lacks="the end", fault=None).endswith("the end")
    assert (DOWN.message in why_incomplete(stop_reason, lacks="", fault=DOWN)) is (
        stop_reason is StopReason.PROVIDER_FAILED
    )
