"""Limits: what they count, how they compose, and that the last affordable request is kept for the answer."""

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tables import each
from thoroughness import examples
from turnwise.rules.answer_room import EMPTY_AGAIN, SYNTHESIS
from turnwise.rules.limits import (
    ANSWER_WORDS_TOKENS,
    BYTES_A_TOKEN,
    AllOf,
    AnyOf,
    Forecast,
    Limit,
    MaxRequests,
    MaxSteps,
    MaxTokens,
    MaxToolCalls,
    MaxWallTime,
    Spent,
    binding,
    fault_of_limit,
    forecast,
    is_over,
    most_tool_calls,
    output_tokens_left,
    pace,
    prompt_tokens_of,
    said,
    stop_reason,
    wall_time_s,
)
from turnwise.rules.prompt_room import message_bytes
from turnwise.vocab import Message, StopReason, Text, Usage

ONE = Spent(steps=1, requests=1, input_tokens=100, output_tokens=10, elapsed_s=2.0, tool_calls=1)
NEXT = Forecast(step=ONE, answer=ONE, answer_after=ONE)

leaves = st.one_of(
    st.builds(MaxSteps, st.integers(1, 20)),
    st.builds(MaxRequests, st.integers(1, 20)),
    st.builds(MaxTokens, st.integers(1, 5_000), st.sampled_from(["all", "input", "output"])),
    st.builds(MaxWallTime, st.floats(0.5, 60)),
    st.builds(MaxToolCalls, st.integers(1, 20)),
)
limits = st.recursive(
    leaves,
    lambda inner: (
        st.builds(lambda one, other: one | other, inner, inner)
        | st.builds(lambda one, other: one & other, inner, inner)
    ),
    max_leaves=6,
)
amounts = st.builds(
    Spent,
    steps=st.integers(0, 10),
    requests=st.integers(0, 10),
    input_tokens=st.integers(0, 2_000),
    output_tokens=st.integers(0, 500),
    elapsed_s=st.floats(0, 30),
    tool_calls=st.integers(0, 10),
)


def test_each_amount_is_added() -> None:
    """Proves: of what two have spent no field is lost, one that was added later included."""
    for name in Spent.__struct_fields__:
        one, other = (msgspec.convert({name: amount}, Spent) for amount in (2, 3))
        assert one + other == msgspec.convert({name: 5}, Spent), name


@pytest.mark.promise("end:budget")
@pytest.mark.parametrize(
    ("limit", "go", "answer", "reason"),
    [
        (MaxSteps(5), 3, 4, StopReason.STEP_LIMIT),
        (MaxRequests(5), 3, 4, StopReason.BUDGET),
        (MaxTokens(550), 3, 4, StopReason.BUDGET),
        (MaxTokens(599, "input"), 3, 4, StopReason.BUDGET),
        (MaxTokens(50, "output"), 3, 4, StopReason.BUDGET),
        (MaxWallTime(10.0), 3, 4, StopReason.TIME_LIMIT),
        (MaxToolCalls(5), 3, 4, StopReason.BUDGET),
    ],
)
def test_the_last_affordable_request_is_the_answer(limit: Limit, go: int, answer: int, reason: StopReason) -> None:
    """Proves: each kind goes on while the answer still fits behind a step, then asks for it, then stops; and says why."""
    spent = [Spent()]
    for _ in range(10):
        spent.append(spent[-1] + ONE)
    paces = [pace(limit, spent=one, forecast=NEXT) for one in spent]
    assert paces == ["go"] * (go + 1) + ["answer"] * (answer - go) + ["stop"] * (10 - answer)
    assert binding(limit, spent=spent[go], forecast=NEXT) is None
    held = binding(limit, spent=spent[answer], forecast=NEXT)
    assert held == limit
    assert held is not None and stop_reason(held) is reason


@pytest.mark.promise("end:cap")
def test_a_cap_of_one_step_asks_for_the_answer_at_once() -> None:
    """Proves: the forced answer is step N of a cap of N, as `stop.MaxSteps` has it."""
    assert pace(MaxSteps(1), spent=Spent(), forecast=NEXT) == "answer"
    assert pace(MaxSteps(2), spent=Spent(), forecast=NEXT) == "go"


@pytest.mark.promise("end:budget")
@given(one=limits, other=limits, spent=amounts)
def test_either_stops_and_both_must(one: Limit, other: Limit, spent: Spent) -> None:
    """Proves: `|` and `&` mean what they say, however deep they stand."""
    assert is_over(one | other, spent=spent) == (is_over(one, spent=spent) or is_over(other, spent=spent))
    assert is_over(one & other, spent=spent) == (is_over(one, spent=spent) and is_over(other, spent=spent))


@pytest.mark.promise("end:budget")
@given(limit=limits, spent=amounts, more=amounts)
def test_what_is_over_stays_over(limit: Limit, spent: Spent, more: Spent) -> None:
    """Proves: no spending brings a turn back under its limit."""
    assert not is_over(limit, spent=spent) or is_over(limit, spent=spent + more)


@pytest.mark.promise("end:budget")
@settings(max_examples=examples(300))
@given(limit=limits, costs=st.lists(st.tuples(amounts, amounts), min_size=1, max_size=30))
def test_a_turn_that_keeps_its_pace_has_its_answer_within_the_limit(
    limit: Limit, costs: list[tuple[Spent, Spent]]
) -> None:
    """Proves: where requests cost no more than was forecast, the answer is always affordable once a step was."""
    spent, went = Spent(), False
    for step, answer in costs:
        step = msgspec.structs.replace(step, steps=1, requests=max(step.requests, 1))
        # An answer after the step costs no less than one now: its prompt is longer.
        least = Spent(steps=1, requests=1)
        next_ = Forecast(step=step, answer=least, answer_after=least + answer)
        match pace(limit, spent=spent, forecast=next_):
            case "go":
                assert binding(limit, spent=spent, forecast=next_) is None
                spent, went = spent + step, True
                assert not is_over(limit, spent=spent + least + answer)
            case "answer":
                assert binding(limit, spent=spent, forecast=next_) is not None
                assert not is_over(limit, spent=spent + least)
                return
            case "stop":
                assert not went or is_over(limit, spent=spent + least)
                return


@given(limit=limits)
def test_a_limit_is_data(limit: Limit) -> None:
    """Proves: it stands in the journal as JSON and comes back equal."""
    assert msgspec.json.decode(msgspec.json.encode(limit), type=Limit) == limit


def test_a_chain_of_one_kind_is_one_list() -> None:
    """Proves: what is journalled reads as it was written; `&` binds tighter than `|`."""
    a, b, c = MaxSteps(1), MaxRequests(2), MaxTokens(3)
    assert a | b | c == AnyOf((a, b, c))
    assert (a & b) & c == a & (b & c) == AllOf((a, b, c))
    assert a | b & c == AnyOf((a, AllOf((b, c))))


@pytest.mark.parametrize(
    ("limit", "fault"),
    [
        (MaxSteps(0), "`MaxSteps(steps=0)` allows nothing at all"),
        (MaxSteps(1) | MaxTokens(-1), "`MaxTokens(tokens=-1, counts='all')` allows nothing at all"),
        (MaxSteps(1) & MaxToolCalls(0), "`MaxToolCalls(calls=0)` allows nothing at all"),
        (AllOf(()), "`AllOf(limits=())` holds no limit"),
        (MaxSteps(1) & (MaxRequests(1) | MaxWallTime(0.1)), None),
    ],
)
def test_a_limit_that_no_turn_can_keep_is_named(limit: Limit, fault: str | None) -> None:
    """Proves: a caller's mistake is found before anything is sent."""
    assert fault_of_limit(limit) == fault


@pytest.mark.parametrize(
    ("limit", "most"),
    [
        (MaxToolCalls(5), 5),
        (MaxToolCalls(5) | MaxToolCalls(3) | MaxRequests(2), 3),
        (MaxToolCalls(5) & MaxToolCalls(3), 5),
        (MaxToolCalls(5) & MaxRequests(9), None),
        (MaxToolCalls(5) & MaxRequests(3), 5),
        (MaxToolCalls(7) | MaxToolCalls(5) & MaxRequests(9), 7),
        (MaxRequests(9), None),
    ],
)
def test_calls_alone_decide_where_nothing_holds_them_back(limit: Limit, most: int | None) -> None:
    """Proves: with four requests made, and as for time: a limit beside it by `&` holds the stop back until it is over too."""
    assert most_tool_calls(limit, spent=SPENT) == most


SPENT = Spent(steps=3, requests=4, input_tokens=1_000, output_tokens=200, elapsed_s=12.4)


@each(
    ("limit", "left"),
    [
        (MaxTokens(2_000), 500),
        (MaxTokens(1_500), 0),
        (MaxTokens(300, "output"), 100),
        (MaxTokens(1_300, "input"), None),
        (MaxTokens(1_299, "input"), 0),
        (MaxSteps(9), None),
        (MaxSteps(2), 0),
        (MaxSteps(9) | MaxTokens(2_000) | MaxTokens(300, "output"), 100),
        (MaxTokens(2_000) & MaxTokens(300, "output"), 500),
        (MaxSteps(9) & MaxTokens(2_000), None),
    ],
)
def test_what_is_left_for_a_response(limit: Limit, left: int | None) -> None:
    """Proves: `max_tokens` of the answer can be held within the limit."""
    assert output_tokens_left(limit, spent=SPENT, prompt_tokens=300) == left


@pytest.mark.promise("end:budget")
@given(limit=limits, spent=amounts, prompt=st.integers(0, 500))
def test_a_response_as_long_as_what_is_left_breaks_nothing(limit: Limit, spent: Spent, prompt: int) -> None:
    """Proves: what is called left is really left, and no more than it where it bounds."""
    left = output_tokens_left(limit, spent=spent, prompt_tokens=prompt)
    asked = spent + Spent(input_tokens=prompt)
    if left:
        assert not is_over(limit, spent=asked + Spent(output_tokens=left))
    if left is None:
        assert not is_over(limit, spent=asked + Spent(output_tokens=10**9))


@each(
    ("limit", "left"),
    [
        (MaxTokens(2_200), 50),  # of 1,000 left: 300 of prompt, twice, and the response, twice, and 300
        (MaxTokens(2_099), 0),
        (MaxTokens(600, "output"), 100),
        (MaxTokens(1_700, "input"), 100),
        (MaxTokens(1_599, "input"), 0),
        (MaxSteps(9), None),
        (MaxSteps(9) | MaxTokens(2_200) | MaxTokens(1_700, "input"), 50),
        (MaxTokens(2_200) & MaxTokens(1_700, "input"), 100),
        (MaxSteps(9) & MaxTokens(2_200), None),
    ],
)
def test_what_is_left_for_a_response_before_the_answer(limit: Limit, left: int | None) -> None:
    """Proves: a step cannot eat what is kept for the answer, whose prompt holds the step."""
    assert output_tokens_left(limit, spent=SPENT, prompt_tokens=300, keep_tokens=300) == left


tokens_limits = st.builds(MaxTokens, st.integers(1, 20_000), st.sampled_from(["all", "input", "output"]))


@pytest.mark.promise("end:budget")
@given(limit=tokens_limits, spent=amounts, prompt=st.integers(0, 2_000), keep=st.integers(0, 2_000))
def test_a_step_as_long_as_what_is_left_still_goes_at_its_pace(
    limit: MaxTokens, spent: Spent, prompt: int, keep: int
) -> None:
    """Proves: what is left for a step is the longest response after which the answer is affordable, and no less."""
    left = output_tokens_left(limit, spent=spent, prompt_tokens=prompt, keep_tokens=keep)
    assert left is not None

    def is_affordable(response: int) -> bool:
        step = Spent(input_tokens=prompt, output_tokens=response)
        return not is_over(limit, spent=spent + step + Spent(input_tokens=prompt + response, output_tokens=keep))

    assert is_affordable(left) or (left == 0 and not is_affordable(0))
    assert not is_affordable(left + 1)


def test_the_forecast_is_made_of_what_was() -> None:
    """Proves: the next prompt is the last one, its response and what was added; the answer after a step reads that step, and
    an answer our own words."""
    assert prompt_tokens_of(Usage(input_tokens=100, output_tokens=20), added_bytes=31) == 131
    next_ = forecast(prompt_tokens=131, longest_output_tokens=50, longest_step_s=4.0, longest_request_s=3.0)
    assert next_ == Forecast(
        step=Spent(steps=1, requests=1, input_tokens=131, output_tokens=50, elapsed_s=4.0, tool_calls=1),
        answer=Spent(steps=1, requests=1, input_tokens=131 + 128, output_tokens=256, elapsed_s=3.0),
        answer_after=Spent(steps=1, requests=1, input_tokens=181 + 128 + 128, output_tokens=1_000, elapsed_s=3.0),
    )
    assert forecast(prompt_tokens=1, longest_output_tokens=0).step.output_tokens == 1_000


@pytest.mark.promise("end:budget")
def test_what_is_kept_for_our_own_words_holds_them() -> None:
    """Proves: the words of the last step, and those for an empty response before them, at three bytes a token; without them a
    turn of 3,000 input tokens took 3,052 (a property test of limits found it)."""
    said = message_bytes(Message("user", (Text(EMPTY_AGAIN), Text(SYNTHESIS))))
    assert said <= ANSWER_WORDS_TOKENS * BYTES_A_TOKEN


@pytest.mark.parametrize(
    ("limit", "text"),
    [
        (MaxSteps(1), "The limit of 1 step was reached."),
        (MaxRequests(4), "The limit of 4 requests was reached (4 made)."),
        (MaxTokens(1_500), "The limit of 1,500 tokens leaves no room for another step (1,200 used)."),
        (MaxTokens(250, "output"), "The limit of 250 output tokens leaves no room for another step (200 used)."),
        (MaxWallTime(15.0), "The limit of 15 s leaves no time for another step (12 s passed)."),
    ],
)
def test_each_limit_has_its_words(limit: MaxSteps | MaxRequests | MaxTokens | MaxWallTime, text: str) -> None:
    """Proves: what people read names the limit and what was spent."""
    assert said(limit, spent=SPENT) == text


@pytest.mark.promise("end:budget")
@pytest.mark.parametrize(
    ("limit", "seconds"),
    [
        (MaxWallTime(9), 9),
        (MaxSteps(9), None),
        (MaxWallTime(9) | MaxWallTime(5) | MaxSteps(1), 5),
        (MaxWallTime(9) & MaxWallTime(5), 9),
        (MaxWallTime(9) & MaxSteps(1), None),
        ((MaxWallTime(9) & MaxSteps(1)) | MaxWallTime(20), 20),
    ],
)
def test_the_time_at_which_a_driver_ends_the_turn(limit: Limit, seconds: float | None) -> None:
    """Only where time alone decides."""
    assert wall_time_s(limit) == seconds
