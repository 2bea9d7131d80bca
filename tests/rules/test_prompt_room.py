"""Room: what a request may generate, how it is divided, and how large a prompt may grow."""

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from turnwise.rules.prompt_room import (
    MIN_ANSWER_TOKENS,
    UNKNOWN_LIMITS,
    UNKNOWN_OUTPUT_TOKENS,
    BudgetTooSmall,
    ModelLimits,
    OutputBudget,
    PromptSize,
    answer_floor,
    grown,
    measured,
    message_bytes,
    more_room_for_answer,
    output_reserve,
    prompt_capacity,
    raised_limit,
    request_bytes,
    shrunk,
    split_output,
    window_of,
    with_budget,
    within_ceiling,
    witnessed,
)
from turnwise.vocab import (
    File,
    Message,
    Opaque,
    ProviderItem,
    Reasoning,
    Refusal,
    Settings,
    Text,
    ToolCall,
    ToolResult,
    ToolSpec,
    Usage,
)

CLAUDE = ModelLimits(context_window_tokens=200_000, max_output_tokens=64_000)
GPT_5 = ModelLimits(context_window_tokens=400_000, max_input_tokens=272_000, max_output_tokens=128_000)
GEMINI = ModelLimits(context_window_tokens=1_048_576, max_output_tokens=65_536, max_reasoning_tokens=24_576)
SMALL = ModelLimits(context_window_tokens=32_000, max_output_tokens=8_000)
PLAIN = Settings()

tokens = st.integers(min_value=1, max_value=2_000_000)
maybe_tokens = st.none() | tokens
limits = st.builds(
    ModelLimits,
    context_window_tokens=st.none() | st.integers(min_value=1_000, max_value=2_000_000),
    max_input_tokens=st.none() | st.integers(min_value=1_000, max_value=2_000_000),
    max_output_tokens=maybe_tokens,
    max_reasoning_tokens=maybe_tokens,
)
wishes = st.builds(Settings, max_output_tokens=maybe_tokens, reasoning_tokens=st.none() | st.integers(0, 200_000))


@pytest.mark.promise("cut:budget")
@pytest.mark.parametrize(
    ("model", "prompt", "expected"),
    [
        (CLAUDE, 10_000, 64_000),
        (CLAUDE, 150_000, 50_000),
        (GPT_5, 200_000, 128_000),
        (GEMINI, 900_000, 65_536),
        (SMALL, 1_000, 8_000),
        (SMALL, 30_000, 2_000),
    ],
)
def test_a_response_may_use_the_models_limit_or_what_the_prompt_leaves(
    model: ModelLimits, prompt: int, expected: int
) -> None:
    """`max_tokens = min(model output limit, context window - prompt)`; 32,000 is nobody's cap (opencode)."""
    assert split_output(model, settings=PLAIN, prompt_tokens=prompt) == OutputBudget(
        max_tokens=expected, reasoning_tokens=None, answer_tokens=expected
    )


@pytest.mark.promise("cut:budget")
@given(limits, wishes, tokens)
def test_the_parts_add_up_and_never_exceed_what_there_is(model: ModelLimits, wish: Settings, prompt: int) -> None:
    """Whatever the limits, the wishes and the prompt: the total fits the window, the model and the user's ceiling, and the
    answer has its floor."""
    budget = split_output(model, settings=wish, prompt_tokens=prompt)
    floor = answer_floor(model, settings=wish)
    room = window_of(model) - prompt
    if isinstance(budget, BudgetTooSmall):
        assert room < floor or prompt > (model.max_input_tokens or prompt)
        assert budget == BudgetTooSmall(prompt_tokens=prompt, room_tokens=max(0, room), needed_tokens=floor)
        return
    if budget.max_tokens is None:
        assert (model.max_output_tokens, wish.max_output_tokens) == (None, None)
        assert not wish.reasoning_tokens
        return
    assert budget.max_tokens <= room
    assert budget.max_tokens <= min(model.max_output_tokens or room, wish.max_output_tokens or room)
    assert budget.answer_tokens == budget.max_tokens - (budget.reasoning_tokens or 0)
    assert budget.answer_tokens >= min(floor, budget.max_tokens)
    assert (budget.reasoning_tokens or 0) <= min(wish.reasoning_tokens or 0, model.max_reasoning_tokens or 10**9)


@pytest.mark.promise("cut:budget")
@given(limits, wishes)
def test_compaction_reserves_what_a_request_asks_for(model: ModelLimits, wish: Settings) -> None:
    """As long as the prompt is within its capacity, a response has at least the reserve: one figure for both."""
    reserve = output_reserve(model, settings=wish)
    capacity = prompt_capacity(model, settings=wish)
    assert capacity + reserve <= window_of(model)
    assert 3 * reserve <= window_of(model)
    if capacity < 1:
        return
    budget = split_output(model, settings=wish, prompt_tokens=capacity)
    assert isinstance(budget, OutputBudget) or reserve < MIN_ANSWER_TOKENS
    if isinstance(budget, OutputBudget) and budget.max_tokens is not None:
        assert budget.max_tokens >= reserve


@pytest.mark.promise("cut:budget", "step:prefix-stable")
@given(wishes, st.lists(st.integers(1, 130_000), min_size=2, max_size=8))
def test_the_reasoning_budget_stays_the_same_while_the_prompt_grows(wish: Settings, prompts: list[int]) -> None:
    """A changed thinking budget throws Anthropic's cached messages away."""
    capacity = prompt_capacity(CLAUDE, settings=wish)
    budgets = [split_output(CLAUDE, settings=wish, prompt_tokens=min(prompt, capacity)) for prompt in prompts]
    assert len({budget.reasoning_tokens for budget in budgets if isinstance(budget, OutputBudget)}) == 1


@pytest.mark.promise("cut:budget")
def test_reasoning_leaves_the_answer_its_floor() -> None:
    """Reasoning is a part of the output limit, not beside it."""
    wish = Settings(reasoning_tokens=100_000)
    assert split_output(CLAUDE, settings=wish, prompt_tokens=1_000) == OutputBudget(
        max_tokens=64_000, reasoning_tokens=62_976, answer_tokens=MIN_ANSWER_TOKENS
    )
    assert split_output(GEMINI, settings=wish, prompt_tokens=1_000) == OutputBudget(
        max_tokens=65_536, reasoning_tokens=24_576, answer_tokens=40_960
    )
    off = Settings(reasoning_tokens=0)
    assert split_output(GEMINI, settings=off, prompt_tokens=1_000) == OutputBudget(
        max_tokens=65_536, reasoning_tokens=0, answer_tokens=65_536
    )


@pytest.mark.promise("cut:budget")
def test_the_users_own_limit_is_a_ceiling() -> None:
    """It stands even below the floor of an answer, and less is reserved for it."""
    wish = Settings(max_output_tokens=500, reasoning_tokens=2_000)
    assert split_output(CLAUDE, settings=wish, prompt_tokens=1_000) == OutputBudget(
        max_tokens=500, reasoning_tokens=None, answer_tokens=500
    )
    assert prompt_capacity(CLAUDE, settings=wish) == 199_500
    assert with_budget(wish, budget=OutputBudget(max_tokens=500, answer_tokens=500)) == Settings(max_output_tokens=500)


@pytest.mark.promise("cut:budget")
def test_an_unknown_model_is_asked_for_nothing_it_may_refuse() -> None:
    """Without a limit known the provider's own default holds; room is kept all the same."""
    assert split_output(UNKNOWN_LIMITS, settings=PLAIN, prompt_tokens=1_000) == OutputBudget(max_tokens=None)
    assert output_reserve(UNKNOWN_LIMITS, settings=PLAIN) == UNKNOWN_OUTPUT_TOKENS
    assert prompt_capacity(UNKNOWN_LIMITS, settings=PLAIN) == 128_000 - UNKNOWN_OUTPUT_TOKENS
    thinks = Settings(reasoning_tokens=4_000)
    assert split_output(UNKNOWN_LIMITS, settings=thinks, prompt_tokens=1_000) == OutputBudget(
        max_tokens=4_000 + UNKNOWN_OUTPUT_TOKENS, reasoning_tokens=4_000, answer_tokens=UNKNOWN_OUTPUT_TOKENS
    )
    assert with_budget(PLAIN, budget=OutputBudget(max_tokens=None)) is PLAIN


@pytest.mark.promise("cut:budget")
def test_a_prompt_that_leaves_no_room_is_told_as_data() -> None:
    assert split_output(SMALL, settings=PLAIN, prompt_tokens=31_500) == BudgetTooSmall(
        prompt_tokens=31_500, room_tokens=500, needed_tokens=MIN_ANSWER_TOKENS
    )
    assert split_output(GPT_5, settings=PLAIN, prompt_tokens=272_001) == BudgetTooSmall(
        prompt_tokens=272_001, room_tokens=127_999, needed_tokens=MIN_ANSWER_TOKENS
    )


@pytest.mark.promise("cut:thinking-ate-all")
@pytest.mark.parametrize(
    ("asked", "expected"),
    [
        (Settings(max_output_tokens=4_000), Settings(max_output_tokens=8_000, reasoning_effort="low")),
        (
            Settings(max_output_tokens=4_000, reasoning_effort="high"),
            Settings(max_output_tokens=8_000, reasoning_effort="low"),
        ),
        (Settings(max_output_tokens=8_000, reasoning_effort="low"), None),
        (
            Settings(max_output_tokens=8_000, reasoning_tokens=6_000),
            Settings(max_output_tokens=8_000, reasoning_tokens=2_000),
        ),
        (Settings(max_output_tokens=8_000, reasoning_effort="minimal"), None),
    ],
)
def test_the_retry_has_more_room_for_the_answer(asked: Settings, expected: Settings | None) -> None:
    """A higher limit, a smaller share for reasoning, or less effort; None where there is nothing left to change."""
    found = more_room_for_answer(asked, limits=SMALL, prompt_tokens=1_000, used_tokens=4_000)
    assert found == expected


@pytest.mark.promise("cut:thinking-ate-all")
def test_the_retry_keeps_to_the_users_ceiling() -> None:
    under = within_ceiling(SMALL, ceiling_tokens=3_000)
    asked = Settings(max_output_tokens=3_000, reasoning_tokens=2_900)
    assert more_room_for_answer(asked, limits=under, prompt_tokens=1_000, used_tokens=3_000) == Settings(
        max_output_tokens=3_000
    )
    assert within_ceiling(SMALL, ceiling_tokens=9_000) is SMALL
    assert within_ceiling(SMALL, ceiling_tokens=None) is SMALL


@pytest.mark.promise("cut:budget")
def test_a_cut_response_may_be_asked_again_with_a_higher_limit() -> None:
    """Up to the model's limit; where nobody knows it, twice what the provider's default gave."""
    asked = Settings(max_output_tokens=2_000)
    assert raised_limit(SMALL, settings=asked, prompt_tokens=1_000, used_tokens=2_000) == 8_000
    assert raised_limit(SMALL, settings=asked, prompt_tokens=30_500, used_tokens=2_000) is None
    assert raised_limit(UNKNOWN_LIMITS, settings=PLAIN, prompt_tokens=0, used_tokens=2_048) == UNKNOWN_OUTPUT_TOKENS
    assert raised_limit(UNKNOWN_LIMITS, settings=PLAIN, prompt_tokens=0, used_tokens=16_000) == 32_000
    full = Settings(max_output_tokens=8_000)
    assert raised_limit(SMALL, settings=full, prompt_tokens=0, used_tokens=8_000) is None


def test_what_went_through_proves_larger_limits() -> None:
    """A model that was thought smaller, or not known, is believed its own usage."""
    used = Usage(input_tokens=150_000, output_tokens=9_000)
    assert witnessed(UNKNOWN_LIMITS, usage=used) == ModelLimits(context_window_tokens=159_000)
    assert witnessed(SMALL, usage=used) == ModelLimits(context_window_tokens=159_000, max_output_tokens=9_000)
    assert witnessed(CLAUDE, usage=used) is CLAUDE
    told = ModelLimits(context_window_tokens=400_000, max_input_tokens=100_000)
    assert witnessed(told, usage=used) == ModelLimits(context_window_tokens=400_000, max_input_tokens=150_000)


# the size of a prompt


def test_the_size_is_the_providers_count_and_a_third_of_the_bytes_since() -> None:
    """DESIGN: provider usage as the base, UTF-8 bytes / 3 for what was added since."""
    size = grown(PromptSize(), added_bytes=3_000)
    assert (size.tokens, size.bytes) == (1_000, 3_000)
    size = measured(size, usage=Usage(input_tokens=700))
    assert (size.tokens, size.bytes) == (700, 3_000)
    size = grown(size, added_bytes=301)
    assert (size.tokens, size.bytes) == (801, 3_301)
    assert measured(size, usage=None) is size
    assert measured(size, usage=Usage()) is size
    assert shrunk(size, bytes_now=1_000) == PromptSize(measured_tokens=243, measured_bytes=1_000, counted=True)
    assert shrunk(PromptSize(), bytes_now=30).tokens == 10


@pytest.mark.promise("cut:budget")
def test_the_guess_learns_from_what_the_provider_counted() -> None:
    """Hex digits and rare scripts have 1.2 to 2.5 bytes a token: what comes next is guessed to be as dense as what came, at
    once where it is denser and slowly where it is less so, and never less dense than three bytes a token."""

    def seen(size: PromptSize, *, added: int, tokens: int) -> PromptSize:
        return measured(grown(size, added_bytes=added), usage=Usage(input_tokens=tokens))

    small = seen(PromptSize(), added=900, tokens=800)
    assert grown(small, added_bytes=3_000).tokens == 1_800  # more framing than text
    whole = seen(PromptSize(), added=12_000, tokens=8_000)
    assert grown(whole, added_bytes=3_000).tokens == 10_000
    dense = seen(small, added=6_000, tokens=5_800)
    assert grown(dense, added_bytes=3_000).tokens == 8_300
    prose = seen(dense, added=4_000, tokens=6_800)
    assert grown(prose, added_bytes=3_000).tokens == 6_800 + (3 * 2_500 + 1_000) // 4
    assert grown(seen(prose, added=500, tokens=9_000), added_bytes=3_000).tokens == 9_000 + 2_125  # too little to tell
    assert grown(shrunk(prose, bytes_now=5_450), added_bytes=3_000).tokens == 3_400 + 2_125
    again = seen(shrunk(prose, bytes_now=5_450), added=2_000, tokens=50_000)
    assert grown(again, added_bytes=3_000).tokens == 52_125  # what was taken away was never counted
    assert grown(seen(small, added=2_000, tokens=900_000), added_bytes=3_000).tokens == 904_500  # no text is so dense
    assert (small.is_counted, grown(small, added_bytes=900).is_counted, PromptSize().is_counted) == (True, False, False)


@given(st.lists(st.text(max_size=40), max_size=12))
def test_sizes_are_bytes_and_add_up(texts: list[str]) -> None:
    """Each message is measured by itself, once: their sum is the size of all."""
    messages = [Message("user", (Text(text),)) for text in texts]
    size = PromptSize()
    for message in messages:
        size = grown(size, added_bytes=message_bytes(message))
    framing = message_bytes(Message("user", (Text(""),)))
    assert size.bytes == sum(len(text.encode()) for text in texts) + framing * len(texts)


def test_every_part_has_a_size() -> None:
    """Opaque data is sent back, so it counts; a picture costs what a picture costs, not its bytes."""
    empty = message_bytes(Message("assistant", (Text(""),)))
    for part, extra in (
        (Text("é"), 2),
        (Reasoning("abc", Opaque("gemini", "{}")), 5),
        (Refusal("no"), 2),
        (ToolCall(id="a", name="read", arguments='{"a":1}'), 11),
        (ProviderItem("gemini", "x", '{"b":2}'), 7),
        (File(media_type="image/png", data=b"x" * 1_000_000), 4_800),
        (File(media_type="application/pdf", data=b"x" * 9_000), 9_000),
        (File(media_type="application/pdf", url="https://example.com/a.pdf"), 4_800),
    ):
        assert message_bytes(Message("assistant", (part,))) - empty == extra, part
    result = ToolResult(call_id="a", name="read", content=(Text("abc"),))
    assert message_bytes(Message("tool", (result,))) - empty == 4 + 3 + (empty - message_bytes(Message("user", ())))
    spec = ToolSpec(name="ab", description="cd", parameters="{}")
    assert request_bytes(system=(Text("abc"),), tools=(spec,)) == 3 + 6 + 2 * (
        empty - message_bytes(Message("user", ()))
    )


def test_limits_travel_as_data() -> None:
    """They stand in the journal, with a turn's configuration."""
    assert msgspec.json.decode(msgspec.json.encode(GPT_5), type=ModelLimits) == GPT_5
