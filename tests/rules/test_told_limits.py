"""A provider's error message teaches what its model takes."""

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tables import each
from turnwise.rules.prompt_room import ModelLimits, PromptSize, ToldLimits, corrected, read_told, recounted, refused

# Each as its provider words it; sources stand beside the patterns.
MESSAGES = [
    (
        "input length and `max_tokens` exceed context limit: 199759 + 8192 > 200000, decrease input length or `max_tokens` "
        "and try again",
        ToldLimits(context_window_tokens=200_000, prompt_tokens=199_759),
    ),
    (
        "prompt is too long: 203052 tokens > 200000 maximum",
        ToldLimits(context_window_tokens=200_000, prompt_tokens=203_052),
    ),
    (
        "max_tokens: 65536 > 64000, which is the maximum allowed number of output tokens for claude-sonnet-4-5-20250929",
        ToldLimits(max_output_tokens=64_000),
    ),
    (
        "This model's maximum context length is 128000 tokens. However, your messages resulted in 204308 tokens. Please "
        "reduce the length of the messages.",
        ToldLimits(context_window_tokens=128_000, prompt_tokens=204_308),
    ),
    (
        "This model's maximum context length is 131072 tokens. However, you requested 131134 tokens (122942 in the messages, "
        "8192 in the completion). Please reduce the length of the messages or completion.",
        ToldLimits(context_window_tokens=131_072, prompt_tokens=122_942),
    ),
    (
        "This model's maximum context length is 4097 tokens, however you requested 4322 tokens (4066 in your prompt; 256 for "
        "the completion).",
        ToldLimits(context_window_tokens=4_097, prompt_tokens=4_066),
    ),
    (
        "'max_tokens' or 'max_completion_tokens' is too large: 64000. This model's maximum context length is 64001 tokens and "
        "your request has 24235 input tokens (64000 > 64001 - 24235). None",
        ToldLimits(context_window_tokens=64_001, prompt_tokens=24_235),
    ),
    (
        "This model's maximum context length is 128000 tokens. However, you requested 65535 output tokens and your prompt "
        "contains at least 62466 input tokens, for a total of at least 128001 tokens.",
        ToldLimits(context_window_tokens=128_000, prompt_tokens=62_466),
    ),
    (
        "This endpoint's maximum context length is 200000 tokens. However, you requested about 264437 tokens (262437 of text "
        "input, 2000 in the output). Please reduce the length of either one",
        ToldLimits(context_window_tokens=200_000, prompt_tokens=262_437),
    ),
    (
        "Prompt contains 40123 tokens and 0 draft tokens, too large for model with 32768 maximum context length",
        ToldLimits(context_window_tokens=32_768, prompt_tokens=40_123),
    ),
    (
        "Input tokens exceed the configured limit of 272000 tokens. Your messages resulted in 280001 tokens.",
        ToldLimits(max_input_tokens=272_000, prompt_tokens=280_001),
    ),
    (
        "This model's maximum prompt length is 131072 but the request contains 136973 tokens.",
        ToldLimits(max_input_tokens=131_072, prompt_tokens=136_973),
    ),
    (
        "The input token count (1250074) exceeds the maximum number of tokens allowed (1048576).",
        ToldLimits(max_input_tokens=1_048_576, prompt_tokens=1_250_074),
    ),
    (
        "Unable to submit request because it has a maxOutputTokens value of 655360 but the supported range is from 1 "
        "(inclusive) to 8193 (exclusive). Update the value and try again.",
        ToldLimits(max_output_tokens=8_192),
    ),
    (
        "prompt token count of 93854 exceeds the limit of 90000",
        ToldLimits(max_input_tokens=90_000, prompt_tokens=93_854),
    ),
    (
        "The decoder prompt (length 163840) is longer than the maximum model length of 131072. Make sure that `max_model_len` "
        "is no smaller than the number of text tokens plus multimodal tokens.",
        ToldLimits(context_window_tokens=131_072, prompt_tokens=163_840),
    ),
    (
        "The prompt (total length 25938) is too long to fit into the model (context length 4096).",
        ToldLimits(context_window_tokens=4_096, prompt_tokens=25_938),
    ),
    (
        "The input (61709 tokens) is longer than the model's context length (40960 tokens).",
        ToldLimits(context_window_tokens=40_960, prompt_tokens=61_709),
    ),
    (
        "Input length (160062 tokens) exceeds the maximum allowed length (59862 tokens).",
        ToldLimits(max_input_tokens=59_862, prompt_tokens=160_062),
    ),
    (
        "Invalid request: Your request exceeded model token limit: 262144 (requested: 269030)",
        ToldLimits(context_window_tokens=262_144),
    ),
    (
        "request (2009 tokens) exceeds the available context size (512 tokens), try increasing it",
        ToldLimits(context_window_tokens=512, prompt_tokens=2_009),
    ),
    (
        "Trying to keep the first 111490 tokens when context the overflows. However, the model is loaded with context length "
        "of only 32768 tokens, which is not enough.",
        ToldLimits(context_window_tokens=32_768, prompt_tokens=111_490),
    ),
    (
        "The number of tokens to keep from the initial prompt is greater than the context length (n_keep: 10247 >= n_ctx: "
        "4096).",
        ToldLimits(context_window_tokens=4_096, prompt_tokens=10_247),
    ),
    (
        "<400> InternalError.Algo.InvalidParameter: Range of max_tokens should be [1, 8192]",
        ToldLimits(max_output_tokens=8_192),
    ),
    (
        "<400> InternalError.Algo.InvalidParameter: Range of input length should be [1, 30720]",
        ToldLimits(max_input_tokens=30_720),
    ),
    (
        "Invalid max_tokens value, the valid range of max_tokens is [1, 65536]",
        ToldLimits(max_output_tokens=65_536),
    ),
    (
        "max_tokens is too large: 32000. This model supports at most 16384 completion tokens, whereas you provided 32000.",
        ToldLimits(max_output_tokens=16_384),
    ),
    (
        "`max_completion_tokens` must be less than or equal to `8192`, the maximum value for `max_completion_tokens` is less "
        "than the `context_window` for this model",
        ToldLimits(max_output_tokens=8_192),
    ),
    (
        "The parameter max_tokens specified in the request is not valid: integer above maximum value, expected a value <= "
        "32768, but got 64000 instead.",
        ToldLimits(max_output_tokens=32_768),
    ),
    (
        "The maximum tokens you requested exceeds the model limit of 4096. Try again with a maximum tokens value that is "
        "lower than 4096.",
        ToldLimits(max_output_tokens=4_096),
    ),
    (
        "`inputs` tokens + `max_new_tokens` must be <= 4097. Given: 4000 `inputs` tokens and 512 `max_new_tokens`",
        ToldLimits(context_window_tokens=4_097, prompt_tokens=4_000),
    ),
    (
        "too many tokens: size limit exceeded by 25836 tokens. Try using shorter or fewer inputs. The limit for this model is "
        "288000 tokens.",
        ToldLimits(context_window_tokens=288_000),
    ),
    (
        "This request requires more credits, or fewer max_tokens. You requested up to 65536 tokens, but can only afford "
        "11542. To increase, visit https://openrouter.ai/settings/credits",
        ToldLimits(max_output_tokens=11_542),
    ),
]


@pytest.mark.promise("cut:budget")
@each(("message", "expected"), MESSAGES, ids=[message[:40] for message, _ in MESSAGES])
def test_the_figures_of_a_refusal_are_read(message: str, expected: ToldLimits) -> None:
    """Also where a gateway put its own words around them."""
    assert read_told(message) == expected
    assert read_told(f'litellm.BadRequestError: OpenAIException - {{"error": {{"message": "{message}"}}}}') == expected


@pytest.mark.promise("cut:budget")
@pytest.mark.parametrize(
    "message",
    [
        "Your input exceeds the context window of this model. Please adjust your input and try again.",
        "Please reduce the length of the messages or completion.",
        "Request too large for model `llama-3.3-70b-versatile` in organization `org_x` service tier `on_demand` on tokens per "
        "minute (TPM): Limit 6000, Requested 14810, please reduce your message size and try again.",
        "Rate limit reached: maximum context length is 128000 tokens",
        "Range of max_tokens should be [1, 0]",
        "maximum context length is 99999999999 tokens",
        "",
    ],
)
def test_what_names_no_limit_of_the_model_teaches_none(message: str) -> None:
    """Rates are no limits, and nor are figures that no model has."""
    assert read_told(message) is None


@given(st.text(max_size=400) | st.text(alphabet="0123456789 ,:>+()[]maxtokensis", max_size=3_000))
def test_no_message_can_break_the_reader(message: str) -> None:
    told = read_told(message)
    assert told is None or any(value is not None for value in msgspec.structs.astuple(told))


def test_long_messages_are_read_in_linear_time() -> None:
    """A gateway's error may carry a page; what stands far behind is not looked at."""
    for start in (
        "maximum context length is 1",
        "range of max_tokens should be [1,",
        "too many tokens",
        "prompt contains 9",
    ):
        assert read_told(start + " " * 1_000_000) in (None, read_told(start + " " * 10))


@pytest.mark.promise("cut:budget")
def test_what_was_told_stands_over_what_was_thought() -> None:
    thought = ModelLimits(context_window_tokens=128_000, max_output_tokens=16_384)
    told = ToldLimits(context_window_tokens=32_768, prompt_tokens=40_123)
    assert corrected(thought, told=told) == ModelLimits(context_window_tokens=32_768, max_output_tokens=16_384)
    assert corrected(thought, told=ToldLimits(prompt_tokens=40_123)) is thought
    size = PromptSize(measured_tokens=10, measured_bytes=30, added_bytes=3_000)
    assert recounted(size, told=told) == PromptSize(
        measured_tokens=40_123, measured_bytes=3_030, counted=True, exact=True
    )
    half = recounted(size, told=told, asked_bytes=1_515)  # a request for a summary of a part
    assert half == PromptSize(measured_tokens=80_246, measured_bytes=3_030, counted=True)
    assert recounted(size, told=ToldLimits(max_output_tokens=500)) is size


@pytest.mark.promise("cut:budget")
def test_a_refusal_without_figures_still_teaches_that_it_was_too_much() -> None:
    """OpenAI's Responses API says only that the input exceeds the window (recorded)."""
    thought = ModelLimits(context_window_tokens=400_000, max_input_tokens=272_000)
    assert refused(thought, prompt_tokens=200_000).max_input_tokens == 180_000
    assert refused(refused(thought, prompt_tokens=200_000), prompt_tokens=190_000).max_input_tokens == 171_000
    assert refused(ModelLimits(), prompt_tokens=500_000).max_input_tokens == 115_200
    assert refused(thought, prompt_tokens=200_000, percent=50).max_input_tokens == 100_000
