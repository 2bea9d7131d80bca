"""What a turn learns of its model's room from refusals, and how far a guess at a prompt goes: bounds as numbers.

Mutants that no test noticed (issue 18). Events in, commands out.
"""

import pytest
from msgspec.structs import replace

from families import of_family
from tables import each
from turn.playing import ASK, CONFIG, Played, call, done, play, says
from turn.test_room import ROOMY, SMALL, failed
from turnwise.rules.answer_room import GO_ON, SYNTHESIS
from turnwise.rules.limits import MaxRequests
from turnwise.rules.prompt_room import ModelLimits, message_bytes
from turnwise.turn.events import (
    Command,
    RequestFailed,
    ResponseReceived,
    RunTools,
    SendRequest,
    ToolsFinished,
    TurnStarted,
)
from turnwise.turn.machine import Turn
from turnwise.turn.room import NO_ROOM
from turnwise.vocab import Fault, FaultKind, FinishReason, Message, ProviderItem, Response, StopReason, Text

UNKNOWN = replace(CONFIG, room="compact")
OVERFLOW = "Your input exceeds the context window of this model."
ODD = "Sorry, that is more than I can chew."


def less_output(number: int, tokens: int) -> RequestFailed:
    """A refusal that tells of another limit of output than the last time."""
    told = f"max_tokens: {tokens + 100} > {tokens}, which is the maximum allowed number of output tokens for m"
    return failed(number, told, FaultKind.BAD_REQUEST)


def step(number: int) -> Response:
    return says(call(f"c{number}", arguments=f'{{"path":"{number}"}}'))


def outputs(played: Played) -> list[int | None]:
    return [sent.request.settings.max_output_tokens for sent in played.requests]


def messages_of(size: int, answer: int = 1) -> tuple[Message, ...]:
    """A session of one large message and its answer."""
    return Message("user", (Text("x" * size),)), Message("assistant", (Text("y" * answer),))


@pytest.mark.promise("cut:budget")
def test_six_refusals_that_tell_something_are_heard_and_the_seventh_ends_the_turn() -> None:
    """Proves: the bound is six, as a number; each of them changed the request."""
    heard = [less_output(number, 4_000 - 100 * number) for number in range(1, 7)]
    played = play([*heard, says("Done.")], config=ROOMY)
    assert outputs(played) == [4_000, 3_900, 3_800, 3_700, 3_600, 3_500, 3_400]
    assert (played.result.text, played.result.complete) == ("Done.", True)
    ended = play([*heard, less_output(7, 3_300)], config=ROOMY)
    assert (ended.result.stop_reason, ended.result.requests) == (StopReason.PROVIDER_FAILED, 7)


@pytest.mark.promise("cut:budget")
def test_an_answered_request_begins_the_count_of_refusals_anew() -> None:
    """Proves: eight steps with a refusal each are more than one step may have, and all are answered."""
    script: list[Response | RequestFailed] = []
    for number in range(8):
        script += [less_output(2 * number + 1, 3_900 - 100 * number), step(number)]
    played = play([*script, says("Done.")], config=ROOMY)
    assert (played.result.text, played.result.complete, played.result.requests) == ("Done.", True, 17)


@pytest.mark.promise("cut:budget")
def test_a_refusal_without_figures_leaves_nine_tenths_then_three_quarters_of_the_prompt() -> None:
    """Proves: of what the refused prompt was guessed at, also after a step; and what is left has to fit any model."""
    turn, command = Turn.start(TurnStarted(config=ROOMY, input=(ASK,)), earlier=messages_of(20_000, 4_000))
    for percent in (90, 75):
        assert isinstance(command, SendRequest)
        before = turn.known.history.prompt.tokens
        command = turn.receive(failed(command.number, OVERFLOW))
        assert turn.known.config.model_limits == replace(SMALL, max_input_tokens=before * percent // 100)
    assert isinstance(command, SendRequest) and command.request.tool_choice == "none"
    assert 1_024 < turn.known.history.prompt.tokens < 2 * 1_024  # half of it would be too little
    assert not isinstance(turn.receive(failed(command.number, OVERFLOW)), SendRequest)


@pytest.mark.promise("cut:budget")
def test_the_first_refusal_of_a_later_step_leaves_nine_tenths_again() -> None:
    """Proves: what an earlier step was refused is another matter."""
    turn, command = Turn.start(TurnStarted(config=UNKNOWN, input=(ASK,)), earlier=messages_of(60_000, 4_000))
    for number in range(2):
        assert isinstance(command, SendRequest)
        before = turn.known.history.prompt.tokens
        command = turn.receive(failed(command.number, OVERFLOW))
        assert turn.known.config.model_limits.max_input_tokens == before * 90 // 100
        assert isinstance(command, SendRequest) and command.purpose == "retry"
        ran = turn.receive(ResponseReceived(number=command.number, response=step(number)))
        assert isinstance(ran, RunTools)
        long = [replace(done(plan), content=(Text("word " * 700),)) for plan in ran.calls]
        command = turn.receive(ToolsFinished(results=tuple(long)))


SEARCH = ProviderItem("anthropic_messages", "server_tool_use", '{"type":"server_tool_use"}')


@pytest.mark.promise("cut:budget")
@pytest.mark.parametrize("family", ["openai_chat", "anthropic_messages"])
def test_a_refusal_of_what_goes_on_with_a_pause_leaves_the_text_of_the_pause(family: str) -> None:
    """Proves: while a pause stands nothing is made smaller, and the same is not sent again: of the pause its text is kept, and
    what the next request has no room for is left out of it."""
    paused = says("Looking.", SEARCH, finish=FinishReason.PAUSE)
    config = replace(ROOMY, **of_family(family))
    played = play([paused, failed(2, OVERFLOW), says(" Found.")], config=config, earlier=messages_of(6_000, 3_000))
    before, after = [sent.request.messages for sent in played.requests[1:]]
    assert before[3].parts == (Text("Looking."), SEARCH)
    assert after[3].parts == (Text("Looking."),) and after[4] == Message("user", (Text(GO_ON),))
    assert after[1:3] == before[1:3] and message_bytes(after[0]) < message_bytes(before[0]) // 2
    assert (played.result.text, played.result.complete) == ("Looking. Found.", True)


PAIR = (Message("user", (Text("x" * 5_000),)), Message("assistant", (Text("x" * 5_000),)))


@pytest.mark.promise("cut:budget")
def test_after_a_summary_that_is_not_needed_any_more_the_whole_prompt_is_what_is_refused() -> None:
    """Proves: the request for a summary, refused for the output that it asked for, leaves nothing behind once there is room."""
    config = replace(UNKNOWN, model_limits=ModelLimits(context_window_tokens=30_000))
    turn, command = Turn.start(TurnStarted(config=config, input=(ASK,)), earlier=PAIR * 7)
    assert isinstance(command, SendRequest) and command.purpose == "compact"
    command = turn.receive(less_output(1, 512))
    assert isinstance(command, SendRequest) and command.purpose == "step"
    before = turn.known.history.prompt.tokens
    turn.receive(failed(2, OVERFLOW))
    assert turn.known.config.model_limits.max_input_tokens == before * 90 // 100


@pytest.mark.promise("cut:budget", "step:prefix-stable")
def test_a_summary_is_named_once_as_what_changed_the_prefix() -> None:
    """Proves: what a later request lacks of the one before it has its own name, here a pause of which only the text was kept."""
    limits = ModelLimits(context_window_tokens=30_000, max_output_tokens=4_000)
    config = replace(UNKNOWN, model_limits=limits, **of_family("anthropic_messages"))
    script = [says("What was said."), says(SEARCH, finish=FinishReason.PAUSE), says(), says("So.")]
    played = play(script, config=config, earlier=PAIR * 10)
    assert [sent.purpose for sent in played.requests] == ["compact", "step", "step", "answer"]
    assert played.result.prefix_changes == ("request 2: compaction", "request 4: paused content")


def refused(
    earlier: tuple[Message, ...],
    *,
    status: int = 400,
    limits: ModelLimits | None = None,
    kind: FaultKind = FaultKind.BAD_REQUEST,
) -> tuple[int, Command, Turn]:
    """The prompt of a request that is refused in such words, and what follows."""
    config = UNKNOWN if limits is None else replace(UNKNOWN, model_limits=limits)
    turn, _ = Turn.start(TurnStarted(config=config, input=(ASK,)), earlier=earlier)
    tokens = turn.known.history.prompt.tokens
    fault = Fault(kind=kind, message=ODD, status=status)
    return tokens, turn.receive(RequestFailed(number=1, fault=fault)), turn


def size_for(tokens: int) -> int:
    """How long a session has to be so that its prompt is guessed at so many tokens."""
    least, _, _ = refused(messages_of(3))
    return 3 + 3 * (tokens - least)


@pytest.mark.promise("cut:budget")
@pytest.mark.parametrize(
    ("tokens", "status", "window", "again"),
    [
        (4_096, 400, None, True),
        (4_095, 400, None, False),
        (9_000, 413, None, True),
        (9_000, 422, None, True),
        (9_000, 409, None, False),
        (8_000, 400, 16_000, False),
        (8_001, 400, 16_000, True),
    ],
)
def test_words_that_nobody_knows_are_taken_for_an_overflow_where_that_is_likely(
    tokens: int, status: int, window: int | None, again: bool
) -> None:
    """Proves: the prompt is not small, half of a window that is known, and the status one of a refused body; then half of it is
    tried."""
    limits = None if window is None else ModelLimits(context_window_tokens=window)
    found, command, turn = refused(messages_of(size_for(tokens)), status=status, limits=limits)
    assert found == tokens
    assert isinstance(command, SendRequest) is again
    assert turn.known.config.model_limits.max_input_tokens == (tokens // 2 if again else None)


@pytest.mark.promise("cut:budget")
@pytest.mark.parametrize(("tokens", "left"), [(1_138, 1_024), (1_137, None)])
def test_a_prompt_that_any_model_takes_is_not_made_smaller(tokens: int, left: int | None) -> None:
    """Proves: refused for its size, nothing below 1,024 tokens is tried."""
    found, command, turn = refused(messages_of(size_for(tokens)), kind=FaultKind.CONTEXT_OVERFLOW)
    assert found == tokens
    assert isinstance(command, SendRequest) is (left is not None)
    assert turn.known.config.model_limits.max_input_tokens == left


# how far a guess goes


def first_output(prompt_bytes: int, *, is_last: bool = False) -> int | None:
    """What the first request with such a prompt may say; None where it is not made."""
    config = replace(ROOMY, limits=MaxRequests(1)) if is_last else ROOMY
    least, _ = Turn.start(TurnStarted(config=config, input=(Message("user", (Text("x"),)),)))
    ask = Message("user", (Text("x" * (1 + prompt_bytes - least.known.history.prompt.bytes)),))
    turn, command = Turn.start(TurnStarted(config=config, input=(ask,)))
    if not isinstance(command, SendRequest):
        assert turn.result is not None and turn.result.text == NO_ROOM
        return None
    assert turn.known.history.prompt.bytes == prompt_bytes
    return command.request.settings.max_output_tokens


# A window of 16,000 tokens, an output of 4,000 of them, and an answer of 1,024 at the least.
@pytest.mark.promise("cut:budget")
@each(
    ("prompt_bytes", "output"),
    [
        (3 * 12_000, 4_000),
        (3 * 12_000 + 1, 3_999),
        (3 * 14_976, 1_024),
        # too long at three bytes a token: what four would leave
        (3 * 14_976 + 1, 4_000),
        (4 * 12_000 + 4, 3_999),
        (4 * 14_976 + 3, 1_024),
        # too long at four: the least, as no text has more than eight
        (4 * 14_976 + 4, 1_024),
        (8 * 14_976 + 7, 1_024),
        (8 * 14_976 + 8, None),
    ],
)
def test_a_prompt_that_nobody_has_counted_goes_out_as_far_as_any_guess_lets_it(
    prompt_bytes: int, output: int | None
) -> None:
    """Proves: to the byte, by three, four and eight bytes a token."""
    assert first_output(prompt_bytes) == output


@pytest.mark.promise("cut:budget")
def test_the_only_request_keeps_an_eighth_for_what_nobody_has_counted() -> None:
    """Proves: beside 128 tokens, as no refusal would be heard; where the least answer does not fit nothing is sent."""
    words = message_bytes(Message("user", (Text(SYNTHESIS),)))
    for prompt_bytes in (36_000, 36_024, 38_000):
        tokens = -(-(prompt_bytes + words) // 3)
        assert first_output(prompt_bytes, is_last=True) == 16_000 - tokens - (128 + tokens // 8)
    assert first_output(3 * 14_976 - words, is_last=True) == 1_024
    assert first_output(3 * 14_976 - words + 1, is_last=True) is None
