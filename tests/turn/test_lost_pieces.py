"""A response of which a piece was lost on the way: asked for again within its bound, then taken without what may be damaged."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from tables import each
from thoroughness import examples
from turn.playing import ASK, CONFIG, PATH, call, cut, done, results_in, says
from turn.test_retrying import BUSY, RETRIES, STORY, asked, play, waited
from turnwise.rules.advice import asks_for_pieces
from turnwise.rules.arguments import LOST_CALL
from turnwise.rules.limits import MaxRequests
from turnwise.rules.prompt_room import ModelLimits
from turnwise.rules.retries import NO_RETRY, RetryPolicy
from turnwise.turn.config import Fallback, TurnResult
from turnwise.turn.events import (
    Command,
    Event,
    FinishTurn,
    ResponseReceived,
    RunTools,
    SendRequest,
    ToolsFinished,
    TurnStarted,
    WaitOver,
)
from turnwise.turn.machine import Turn, replay
from turnwise.vocab import (
    ArgumentsState,
    File,
    FinishReason,
    Message,
    OutputSchema,
    Part,
    Repair,
    Response,
    Settings,
    StopReason,
    Text,
    ToolCall,
    Usage,
)

SPENT = Usage(input_tokens=7, output_tokens=3)
BEGUN = '{"path":"a rather long path that goes on and on until it'


def broken(id: str, arguments: str = '{"path":"/srv/x"}', name: str = "read") -> ToolCall:
    return call(id, name, arguments, state=ArgumentsState.LOST, reason="an event could not be read")


def loses(*parts: Part | str, finish: FinishReason = FinishReason.STOP) -> Response:
    repairs = (Repair("chunk_skipped", "event 2", "left out"),)
    return replace(says(*parts, finish=finish), lost=True, repairs=repairs, usage=SPENT)


def ran(commands: list[Command]) -> list[str]:
    return [plan.call.id for one in commands if isinstance(one, RunTools) for plan in one.calls]


def ended(turn: Turn) -> TurnResult:
    assert turn.result is not None
    return turn.result


def test_a_response_that_lost_a_piece_is_asked_for_again_and_nothing_of_it_is_kept_but_its_cost() -> None:
    """The very same request, after a wait, as a retry; its tokens were billed. A replay does the same."""
    commands, events, turn = play([loses("Looking.", broken("a")), says(call("b")), says("Done.")])
    sent = [one for one in commands if isinstance(one, SendRequest)]
    assert asked(commands) == [("step", None), ("retry", "step"), ("step", None)]
    assert sent[0].request == sent[1].request and len(waited(commands)) == 1
    result = ended(turn)
    assert (ran(commands), result.text, result.complete) == (["b"], "Done.", True)
    assert (result.usage, result.requests_by_purpose, result.repairs) == (SPENT, {"step": 2, "retry": 1}, ())
    assert replay(events) == commands


def test_where_it_is_lost_again_the_other_calls_run_and_the_turn_goes_on() -> None:
    """The call that may have lost something is told of the connection, not blamed; in history its arguments are `{}`."""
    lossy = loses(call("r"), broken("a"), broken("b", '{"path":"/srv', "wri"), finish=FinishReason.TOOL_CALLS)
    commands, events, turn = play([lossy, lossy, says("Done.")])
    assert asked(commands) == [("step", None), ("retry", "step"), ("step", None)]
    result = ended(turn)
    assert (ran(commands), result.complete) == (["r"], True)
    assert results_in(result.messages) == {"r": "did r", "a": LOST_CALL, "b": LOST_CALL}
    made = [part for part in result.messages[1].parts if isinstance(part, ToolCall)]
    assert [(one.arguments, one.state) for one in made] == [
        ('{"path":"a"}', ArgumentsState.COMPLETE),
        ("{}", ArgumentsState.COMPLETE),
        ("{}", ArgumentsState.COMPLETE),
    ]
    assert result.recovery_usage == SPENT
    assert replay(events) == commands


def test_a_gateway_that_breaks_every_response_costs_two_requests_more_in_a_turn() -> None:
    """Once a step, in two steps; from then on what arrives is taken as it is."""
    steps = [loses(call(f"r{step}"), broken(f"x{step}")) for step in range(1, 5)]
    script = [steps[0], steps[0], steps[1], steps[1], steps[2], steps[3], loses("That is a")]
    commands, _, turn = play([*script])
    assert asked(commands) == [
        ("step", None),
        ("retry", "step"),
        ("step", None),
        ("retry", "step"),
        *[("step", None)] * 3,
    ]
    result = ended(turn)
    assert (result.requests, result.steps, ran(commands)) == (7, 5, ["r1", "r2", "r3", "r4"])
    assert (result.text, result.stop_reason, result.complete) == ("That is a", StopReason.ANSWERED, False)


def test_a_gateway_that_breaks_now_and_then_is_asked_again_in_two_steps_only() -> None:
    """What came whole in between does not begin the count anew."""
    script = [
        loses(broken("x1")),
        says(call("r1")),
        says(call("r2")),
        loses(broken("x2")),
        says(call("r3")),
        loses(broken("x4")),
        says("Done."),
    ]
    commands, _, turn = play([*script])
    assert [purpose for purpose, _ in asked(commands)] == ["step", "retry", "step", "step", "retry", "step", "step"]
    assert (ran(commands), ended(turn).text) == (["r1", "r2", "r3"], "Done.")


@each("end", [FinishReason.STOP, FinishReason.LENGTH, FinishReason.CUT, FinishReason.TOOL_CALLS])
@each("unsaid", [False, True])
def test_a_text_that_lost_a_piece_is_no_complete_answer_and_is_not_gone_on_with(
    end: FinishReason, unsaid: bool
) -> None:
    """Whatever its end: the beginning may be damaged, so nothing is joined to it."""
    lossy = loses(STORY, finish=end)
    if unsaid:
        lossy = replace(lossy, repairs=(Repair("no_finish_reason", "response", "no word"),))
    commands, _, turn = play([lossy, lossy])
    assert asked(commands) == [("step", None), ("retry", "step")]
    assert (ended(turn).text, ended(turn).complete) == (STORY, False)


@pytest.mark.parametrize("limited", [FinishReason.LENGTH, FinishReason.CUT])
def test_a_call_cut_in_a_response_that_lost_a_piece_is_split_and_not_joined(limited: FinishReason) -> None:
    """A lost call is not a cut one, even the last one of a full response; the prefix of a cut one may be damaged."""
    lossy = loses(broken("a"), cut("b", BEGUN), finish=limited)
    commands, _, turn = play([lossy, lossy, says("Done.")])
    assert [purpose for purpose, _ in asked(commands)] == ["step", "retry", "step"]
    results = results_in(ended(turn).messages)
    assert results["a"] == LOST_CALL and "were cut off" in results["b"]
    full = replace(loses(broken("a", "{}")), usage=Usage(output_tokens=1000))
    commands, _, turn = play([full, full, says("Done.")], family="gemini", settings=Settings(max_output_tokens=1000))
    assert results_in(ended(turn).messages) == {"a": LOST_CALL}


def test_a_continuation_that_lost_a_piece_is_never_joined() -> None:
    """It is asked for again within the bound; then the call is split, and a text stays as far as it came."""
    first = says(cut("a", BEGUN), finish=FinishReason.LENGTH)
    lossy = loses(BEGUN[16:] + ' ends"}')
    whole = says(BEGUN[16:] + ' ends"}')
    commands, _, turn = play([first, lossy, whole, says("Done.")])
    assert asked(commands) == [("step", None), ("continue", None), ("retry", "continue"), ("step", None)]
    assert ran(commands) == ["a"]
    commands, _, turn = play([first, lossy, lossy, says("Done.")])
    assert asked(commands) == [("step", None), ("continue", None), ("retry", "continue"), ("step", None)]
    assert ran(commands) == [] and asks_for_pieces(results_in(ended(turn).messages)["a"])
    text = says(STORY, finish=FinishReason.LENGTH)
    more = loses(STORY[40:] + ", and then the end.")
    commands, _, turn = play([text, more, more])
    assert (ended(turn).text, ended(turn).complete, ended(turn).requests) == (STORY, False, 3)


@pytest.mark.parametrize("policy", [NO_RETRY, RetryPolicy(attempts=1)])
def test_without_retries_it_stands_at_once(policy: RetryPolicy) -> None:
    """And no fallback model takes over for a fault of the connection."""
    lossy = loses(call("r"), broken("a"))
    commands, _, turn = play([lossy, says("Done.")], retry=policy, fallbacks=(Fallback(model="other"),))
    assert [purpose for purpose, _ in asked(commands)] == ["step", "step"]
    assert (ran(commands), ended(turn).complete) == (["r"], True)
    assert {one.request.model for one in commands if isinstance(one, SendRequest)} == {"m"}


def test_attempts_count_together_and_a_failing_provider_is_retried_as_ever() -> None:
    """A lost piece is one attempt of the request's four."""
    commands, _, turn = play([BUSY, loses(broken("a")), BUSY, says("Done.")])
    assert [one for _, one in asked(commands)] == [None, "step", "step", "step"]
    assert ended(turn).text == "Done."
    lossy = loses(call("r"), broken("a"))
    commands, _, turn = play([BUSY, lossy, says("Done.")], retry=RetryPolicy(attempts=2))
    assert [one for _, one in asked(commands)] == [None, "step", None]
    assert (ran(commands), ended(turn).complete) == (["r"], True)


def test_the_last_request_of_a_limit_is_left_to_the_answer() -> None:
    """Its other calls run, and the answer has their results; a text alone is asked for again, as that is the answer."""
    commands, _, turn = play([loses(call("r"), broken("a")), says("Done.")], limits=MaxRequests(2))
    assert (asked(commands), ran(commands)) == ([("step", None), ("step", None)], ["r"])
    assert ended(turn).text == "Done."
    commands, _, turn = play([loses("Do"), says("Done.")], limits=MaxRequests(2), tools=())
    assert (ended(turn).text, ended(turn).complete, ended(turn).requests) == ("Done.", True, 2)
    commands, _, turn = play([loses("Do")], limits=MaxRequests(1), tools=())
    assert (ended(turn).text, ended(turn).complete, ended(turn).requests) == ("Do", False, 1)


def test_a_forced_answer_that_lost_a_piece_is_asked_for_once_more() -> None:
    """In the last step, as in any other; then its text is the answer, and incomplete."""
    commands, _, turn = play([loses("It is"), says("It is so.")], max_steps=1)
    assert (ended(turn).text, ended(turn).requests) == ("It is so.", 2)
    lossy = loses("It is", broken("a"))
    commands, _, turn = play([lossy, lossy], max_steps=1)
    assert (ended(turn).text, ended(turn).complete, ran(commands)) == ("It is", False, [])


def test_a_response_of_which_all_was_lost_is_bounded_likewise() -> None:
    """Nothing is left of it: the request for another response counts as well, and then the end is told by us."""
    nothing = loses()
    commands, _, turn = play([nothing] * 3)
    assert [purpose for purpose, _ in asked(commands)] == ["step", "retry", "answer"]
    assert (ended(turn).origin, ended(turn).complete, ended(turn).requests) == ("local", False, 3)
    commands, _, turn = play([nothing, says("Done.")])
    assert (ended(turn).text, ended(turn).complete) == ("Done.", True)


def test_structured_output_that_lost_a_piece_is_no_output() -> None:
    """It may still fit the schema; and the model is not asked to correct what the connection did."""
    output = OutputSchema(schema='{"type":"object","properties":{"path":{"type":"string"}}}')
    lossy = loses('{"path":"/srv/x"}')
    _, _, turn = play([lossy, lossy], output=output)
    result = ended(turn)
    assert (result.output, result.complete, result.requests) == (None, False, 2)
    _, _, turn = play([lossy, says('{"path":"/srv/old/x"}')], output=output)
    assert (ended(turn).output, ended(turn).complete) == ('{"path":"/srv/old/x"}', True)


def test_a_pause_that_lost_a_piece_makes_no_answer_complete() -> None:
    """The answer begins with its text; a tool call ends that beginning."""
    paused = loses("First,", finish=FinishReason.PAUSE)
    _, _, turn = play([paused, paused, says(" then.")])
    assert (ended(turn).text, ended(turn).complete) == ("First, then.", False)
    _, _, turn = play([paused, paused, says(call("r")), says("Done.")])
    assert (ended(turn).text, ended(turn).complete) == ("Done.", True)


@pytest.mark.parametrize("finish", [FinishReason.REFUSAL, FinishReason.CONTENT_FILTER])
def test_a_refusal_is_not_asked_for_again(finish: FinishReason) -> None:
    """It is an answer, however much of it came."""
    commands, _, turn = play([loses("I can", finish=finish)])
    assert (ended(turn).stop_reason, len(asked(commands))) == (StopReason.REFUSED, 1)


def test_a_lost_summary_is_kept_and_says_so() -> None:
    """It holds what mattered; that a piece is missing stands in it."""
    limits = ModelLimits(context_window_tokens=2000, max_output_tokens=200)
    earlier = tuple([Message(role, (Text("x" * 900),)) for _ in range(8) for role in ("user", "assistant")])
    summary = loses("They talked of x.")
    config = replace(CONFIG, room="compact", model_limits=limits, retry=RetryPolicy(), recover="continue")
    turn, command = Turn.start(TurnStarted(config=config, input=(ASK,)), earlier=earlier)
    purposes: list[str] = []
    script = [summary, summary, says("Done.")]
    while turn.result is None:
        if isinstance(command, SendRequest):
            purposes.append(command.purpose)
            command = turn.receive(ResponseReceived(number=command.number, response=script.pop(0)))
        else:
            command = turn.receive(WaitOver())
    assert purposes == ["compact", "retry", "step"]
    assert turn.result.history is not None and "A piece of this summary was lost" in str(turn.result.history)
    assert turn.result.complete


def test_a_turn_whose_every_call_is_lost_ends_at_its_cap_and_not_as_a_loop() -> None:
    """The model is not taken for one that goes in circles."""
    lossy = loses(broken("a"))
    script = [replace(lossy, message=Message("assistant", (broken(f"a{number}"),))) for number in range(13)]
    commands, _, turn = play([*script, says("I could not.")], max_steps=12)
    assert (ended(turn).stop_reason, ended(turn).steps, ran(commands)) == (StopReason.STEP_LIMIT, 12, [])


parts = st.lists(
    st.sampled_from([Text("Some words."), call("r"), broken("x"), broken("y", "{}"), cut("c", BEGUN)]), max_size=4
)
responses = st.builds(
    lambda parts, lossy, finish: (loses if lossy else says)(*parts, finish=finish),
    parts,
    st.booleans(),
    st.sampled_from([FinishReason.STOP, FinishReason.TOOL_CALLS, FinishReason.LENGTH]),
)


@settings(max_examples=examples(150))
@given(script=st.lists(responses, min_size=30, max_size=30), max_steps=st.integers(1, 6))
def test_no_sequence_of_losses_costs_more_than_two_requests(script: list[Response], max_steps: int) -> None:
    """Proves: whatever is lost when, nothing runs of it, each call has its one result, and a complete answer lost nothing."""
    started = TurnStarted(config=replace(RETRIES, max_steps=max_steps, recover="off"), input=(ASK,))
    turn, command = Turn.start(started)
    commands, given_up, last = [command], 0, script[0]
    while not isinstance(command, FinishTurn):
        match command:
            case SendRequest(number=number):
                last = script[number - 1]
                event: Event = ResponseReceived(number=number, response=last)
            case RunTools(calls=planned):
                event = ToolsFinished(results=tuple([done(plan) for plan in planned]))
            case _:
                given_up += 1
                event = WaitOver()
        command = turn.receive(event)
        commands.append(command)
    assert given_up <= 2
    assert {plan.call.name for one in commands if isinstance(one, RunTools) for plan in one.calls} <= {"read"}
    assert all(plan.arguments == PATH for one in commands if isinstance(one, RunTools) for plan in one.calls)
    made = [part.id for message in turn.added for part in message.parts if isinstance(part, ToolCall)]
    assert list(results_in(turn.added)) == made
    assert not (ended(turn).complete and last.lost)


@pytest.mark.parametrize("part", [Text("Hi"), File(media_type="image/png", data=b"x")])
def test_an_answer_of_any_part_that_lost_something_is_incomplete(part: Part) -> None:
    """A picture, too."""
    lossy = loses(part)
    _, _, turn = play([lossy, lossy])
    assert ended(turn).complete is False
