"""What a turn counts in a row begins anew with what ends the row, and what it holds back counts nowhere (issue 18: mutants that
no test noticed). Events in, commands out."""

import pytest
from msgspec.structs import replace

from families import of_family
from turn.playing import ASK, CONFIG, READ, call, cut, play, results_in, says
from turnwise.rules.answer_room import EMPTY_AGAIN
from turnwise.rules.prompt_room import ATE_ALL
from turnwise.turn.config import ChildReport, ToolOffer
from turnwise.turn.events import (
    Command,
    FinishTurn,
    HookOutcome,
    HooksRan,
    Interrupted,
    MessageArrived,
    OutputChecked,
    PlannedCall,
    ResponseReceived,
    RunHooks,
    RunTools,
    SendRequest,
    ToolsFinished,
    TurnStarted,
)
from turnwise.turn.machine import Turn
from turnwise.vocab import (
    FinishReason,
    Message,
    OutputSchema,
    ProviderItem,
    Reasoning,
    Response,
    Settings,
    StopReason,
    Text,
    ToolResult,
    ToolSpec,
    Usage,
    text_of,
)

EDIT = ToolOffer(spec=ToolSpec(name="edit", parameters=READ.spec.parameters), effect="write")
TYPED = replace(
    CONFIG, tools=(READ,), output=OutputSchema(schema='{"type":"object","required":["n"]}', name="N", strict=True)
)
EATEN = replace(
    says(Reasoning("Let me see."), finish=FinishReason.LENGTH), usage=Usage(output_tokens=1000, reasoning_tokens=1000)
)
BOUNDED = replace(CONFIG, recover="continue", settings=Settings(max_output_tokens=1000, reasoning_effort="high"))
WORD = Message("user", (Text("In French, please."),))


def last_of(sent: SendRequest) -> str:
    return text_of(sent.request.messages[-1])


# empty responses


def test_an_empty_response_after_calls_is_the_first_again() -> None:
    """Proves: the count of empty responses in a row ends with a response that has calls."""
    played = play([says(), says(call("a")), says(), says("Done.")])
    assert [last_of(sent) for sent in played.requests] == ["change it", EMPTY_AGAIN, "", EMPTY_AGAIN]
    assert (played.result.text, played.result.complete) == ("Done.", True)


def test_an_empty_response_after_a_correction_is_the_first_again() -> None:
    """Proves: the count ends with an answer that does not fit, too."""
    played = play([says(), says("no JSON"), says(), says('{"n": 1}')], config=TYPED)
    assert [last_of(sent) == EMPTY_AGAIN for sent in played.requests] == [False, True, False, True]
    assert (played.result.output, played.result.complete) == ('{"n": 1}', True)


def test_two_empty_responses_in_a_row_end_the_turn() -> None:
    """Proves: the bound is two, as a number."""
    played = play([says(), says()])
    assert (played.result.requests, played.result.origin, played.result.complete) == (2, "local", False)


# responses of which reasoning leaves nothing


def test_reasoning_that_ate_all_after_calls_is_asked_anew_with_its_tools() -> None:
    """Proves: the row ends with a response that has calls, so the next one is asked anew as a step, and no answer is forced."""
    played = play([EATEN, says(call("a")), EATEN, says("Done.")], config=BOUNDED)
    assert [sent.purpose for sent in played.requests] == ["step", "retry", "step", "retry"]
    assert [sent.request.tool_choice for sent in played.requests] == ["auto"] * 4
    assert [last_of(sent) == ATE_ALL for sent in played.requests] == [False, True, False, True]
    assert (played.result.text, played.result.complete) == ("Done.", True)


def test_reasoning_that_ate_all_after_a_correction_is_asked_anew_with_its_tools() -> None:
    """Proves: the row ends with an answer that does not fit, too."""
    config = replace(TYPED, recover="continue", settings=BOUNDED.settings)
    played = play([EATEN, says("no JSON"), EATEN, says('{"n": 1}')], config=config)
    assert [sent.purpose for sent in played.requests] == ["step", "retry", "step", "retry"]
    assert [sent.request.tool_choice for sent in played.requests] == ["auto"] * 4
    assert (played.result.output, played.result.complete) == ('{"n": 1}', True)


# pauses


PAUSED = says("I look it up.", finish=FinishReason.PAUSE)


def test_a_pause_that_was_gone_on_with_is_no_pause_any_more() -> None:
    """Proves: the messages behind it stay whole when the turn is cancelled later: nothing is reduced to its text."""
    turn, _ = Turn.start(TurnStarted(config=replace(CONFIG, **of_family("anthropic_messages")), input=(ASK,)))
    assert isinstance(turn.receive(ResponseReceived(number=1, response=PAUSED)), SendRequest)
    ran = turn.receive(ResponseReceived(number=2, response=says(call("a"))))
    assert isinstance(ran, RunTools)
    read = ToolResult(call_id="a", name="read", content=(Text("was read"),))
    assert isinstance(turn.receive(ToolsFinished(results=(read,))), SendRequest)
    last = turn.receive(Interrupted(kind="cancel"))
    assert isinstance(last, FinishTurn)
    assert [message.role for message in last.result.messages] == ["user", "assistant", "assistant", "tool"]
    assert results_in(last.result.messages) == {"a": "was read"}


def test_what_a_pause_said_is_part_of_the_next_answer_alone() -> None:
    """Proves: the text of a paused response does not come again in an answer behind calls."""
    played = play([PAUSED, says(call("a")), says("It is blue.")])
    assert (played.result.text, played.result.complete) == ("It is blue.", True)


def test_what_a_pause_said_is_not_said_again_after_a_correction() -> None:
    """Proves: a corrected answer is judged by itself."""
    played = play([PAUSED, says("no JSON"), says('{"n": 1}')], config=TYPED)
    assert (played.result.text, played.result.output) == ('{"n": 1}', '{"n": 1}')


def test_an_unfit_answer_behind_a_pause_leaves_its_text_only() -> None:
    """Proves: what a provider wanted back to go on is not sent once the answer is corrected: a pause, nothing, then no JSON."""
    item = ProviderItem("openai_chat", "search", '{"type":"search"}')
    paused = says(Text("seven"), item, finish=FinishReason.PAUSE)
    played = play([paused, says(), says("no JSON"), says('{"n": 1}')], config=TYPED)
    kinds = [[type(part) for message in sent.request.messages for part in message.parts] for sent in played.requests]
    assert [ProviderItem in parts for parts in kinds] == [False, True, False, False]
    assert (played.result.text, played.result.output) == ('{"n": 1}', '{"n": 1}')


def test_what_a_pause_said_is_not_said_again_after_the_users_next_words() -> None:
    """Proves: an answer that the user's words overtake ends what a pause had begun; the next one is judged by itself."""
    turn, _ = Turn.start(TurnStarted(config=CONFIG, input=(ASK,)))
    turn.receive(ResponseReceived(number=1, response=PAUSED))
    turn.receive(MessageArrived(message=WORD))
    turn.receive(ResponseReceived(number=2, response=says("It is blue.")))
    last = turn.receive(ResponseReceived(number=3, response=says("Bleu.")))
    assert isinstance(last, FinishTurn)
    assert last.result.text == "Bleu."


# requests that were held and did not leave


def hooked(*outcomes: HookOutcome, at: int) -> tuple[Turn, Command]:
    """A turn whose hook lets requests go until it is asked for the `at`-th time, and what it orders after these outcomes."""
    turn, command = Turn.start(TurnStarted(config=replace(CONFIG, hooks=("before_request",)), input=(ASK,)))
    for number in range(1, at):
        assert isinstance(command, RunHooks)
        assert isinstance(turn.receive(HooksRan()), SendRequest)
        turn.receive(ResponseReceived(number=number, response=says(call(f"c{number}"))))
        read = ToolResult(call_id=f"c{number}", name="read", content=(Text("was read"),))
        command = turn.receive(ToolsFinished(results=(read,)))
    assert isinstance(command, RunHooks)
    return turn, turn.receive(HooksRan(outcomes=outcomes)) if outcomes else command


@pytest.mark.promise("bill:wire")
@pytest.mark.parametrize(("at", "counted"), [(1, {}), (2, {"step": 1}), (3, {"step": 2})])
@pytest.mark.parametrize("by", ["the hook", "an interrupt"])
def test_a_request_that_was_held_and_did_not_leave_counts_nowhere(by: str, at: int, counted: dict[str, int]) -> None:
    """Proves: neither a denied request nor one that an interrupt finds before its hook is in any count."""
    if by == "the hook":
        _, last = hooked(HookOutcome(by="guard", denied="enough"), at=at)
    else:
        turn, _ = hooked(at=at)
        last = turn.receive(Interrupted(kind="cancel"))
    assert isinstance(last, FinishTurn)
    assert (last.result.requests, last.result.requests_by_purpose) == (at - 1, counted)
    assert last.result.stop_reason is StopReason.CANCELLED


@pytest.mark.promise("bill:wire")
def test_a_request_that_its_hook_let_go_counts_when_it_is_interrupted() -> None:
    """Proves: what was held before is taken back only while it is held."""
    turn, command = hooked(at=2)
    assert isinstance(command, RunHooks) and isinstance(turn.receive(HooksRan()), SendRequest)
    last = turn.receive(Interrupted(kind="cancel"))
    assert isinstance(last, FinishTurn)
    assert (last.result.requests, last.result.requests_by_purpose) == (2, {"step": 2})


# answers that the model was made to give


@pytest.mark.parametrize("checks", [False, True])
def test_a_forced_answer_is_partial_whoever_accepts_it(checks: bool) -> None:
    """Proves: an answer that fits its type is not complete if the last step asked for it."""
    config = replace(TYPED, max_steps=2, checks_output=checks)
    played = play([says(call("a")), says('{"n": 1}')], config=config, answer=lambda _: OutputChecked(problems=()))
    result = played.result
    assert (result.text, result.output, result.complete) == ('{"n": 1}', '{"n": 1}', False)
    assert result.stop_reason is StopReason.STEP_LIMIT
    assert (
        result.why_incomplete == "the step limit was reached: the model was made to answer before it had done its work"
    )


def test_words_that_come_while_the_answer_is_forced_are_handed_back_unread() -> None:
    """Proves: a forced answer ends the turn though somebody has spoken: there is no step left for the words."""
    turn, _ = Turn.start(TurnStarted(config=replace(CONFIG, max_steps=2), input=(ASK,)))
    turn.receive(ResponseReceived(number=1, response=says(call("a"))))
    read = ToolResult(call_id="a", name="read", content=(Text("was read"),))
    forced = turn.receive(ToolsFinished(results=(read,)))
    assert isinstance(forced, SendRequest) and forced.request.tool_choice == "none"
    assert turn.receive(MessageArrived(message=WORD)) is forced
    last = turn.receive(ResponseReceived(number=2, response=says("What I know.")))
    assert isinstance(last, FinishTurn)
    assert (last.result.text, last.result.complete, last.result.unread) == ("What I know.", False, (WORD,))


# a server's own limit of output


def ended(tokens: int, *parts: object, finish: FinishReason = FinishReason.STOP) -> Response:
    return replace(says(*parts, finish=finish), usage=Usage(input_tokens=10, output_tokens=tokens))  # type: ignore[arg-type]


def test_a_servers_own_limit_holds_until_a_response_is_longer() -> None:
    """Proves: what ends exactly there counts as cut, whatever the server calls it, until a response was longer."""
    config = replace(CONFIG, settings=Settings(max_output_tokens=4000), recover="split")
    met = ended(1000, cut("a"), finish=FinishReason.LENGTH)
    again = play([met, ended(1000, "It ends in the mid")], config=config)
    assert (again.result.complete, again.result.why_incomplete) == (False, "the output limit cut the answer")
    longer = play([met, ended(1001, call("b")), ended(1000, "It ends here.")], config=config)
    assert (longer.result.text, longer.result.complete) == ("It ends here.", True)


# remembered results


@pytest.mark.promise("loop:repeat")
@pytest.mark.parametrize("failed", [True, False])
@pytest.mark.parametrize("offer", [READ, EDIT], ids=["reads", "changes"])
def test_the_remembered_result_of_an_error_is_an_error(offer: ToolOffer, failed: bool) -> None:
    """Proves: a model that is answered from memory is not told that its failing call works now."""

    def run(plan: PlannedCall) -> ToolResult:
        return ToolResult(call_id=plan.call.id, name=plan.call.name, content=(Text("so"),), is_error=failed)

    name = offer.spec.name
    calls: list[Response] = [says(call(f"c{n}", name)) for n in range(1, 7)]
    played = play([*calls, says("Done.")], config=replace(CONFIG, tools=(offer,)), run=run)
    found = {
        part.call_id: part.is_error
        for one in played.result.messages
        for part in one.parts
        if isinstance(part, ToolResult)
    }
    remembered = failed or offer is EDIT
    assert found == {**dict.fromkeys(["c1", "c2", "c3", "c4"], failed), "c5": remembered, "c6": remembered}


# words and calls beside what is at hand


def test_words_that_come_while_a_circle_is_ended_are_handed_back_unread() -> None:
    """Proves: a forced answer ends the turn also where the limits leave room for more steps."""
    turn, command = Turn.start(TurnStarted(config=CONFIG, input=(ASK,)))
    for number in range(1, 7):
        command = turn.receive(ResponseReceived(number=number, response=says(call(f"c{number}"))))
        if isinstance(command, RunTools):
            result = ToolResult(call_id=f"c{number}", name="read", content=(Text("the same"),))
            command = turn.receive(ToolsFinished(results=(result,)))
    assert isinstance(command, SendRequest) and command.request.tool_choice == "none"
    assert turn.receive(MessageArrived(message=WORD)) is command
    last = turn.receive(ResponseReceived(number=7, response=says("What I know.")))
    assert isinstance(last, FinishTurn)
    assert (last.result.text, last.result.stop_reason, last.result.unread) == (
        "What I know.",
        StopReason.LOOP,
        (WORD,),
    )


def test_what_sub_agents_spent_before_an_interrupt_is_in_the_result() -> None:
    """Proves: a sub-agent that was cut short with its turn is counted as one that ended."""
    turn, _ = Turn.start(TurnStarted(config=CONFIG, input=(ASK,)))
    turn.receive(ResponseReceived(number=1, response=says(call("a"))))
    child = ChildReport(call_id="a", session_id="s/1", usage=Usage(input_tokens=7), requests=3, stop_reason=None)
    last = turn.receive(Interrupted(kind="cancel", started=("a",), children=(child,)))
    assert isinstance(last, FinishTurn) and last.result.children == (child,)


def test_reasoning_of_all_responses_is_kept_with_an_empty_line_between() -> None:
    """Proves: the result says what the model thought, in order."""
    played = play([says(Reasoning("First."), call("a")), says(Reasoning("Second."), "Done.")])
    assert played.result.reasoning == "First.\n\nSecond."
