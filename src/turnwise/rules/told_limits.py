"""What a provider's own error message says about its model's limits: patterns as data, each with whose words they are."""

import re

import msgspec

from turnwise.rules.budget import ModelLimits, PromptSize, counted, window_of

READ_CHARACTERS = 2000  # the sentence stands at the beginning; gateways append whole upstream bodies
SANE_TOKENS = range(128, 100_000_000)  # a figure outside is no limit of a model


class ToldLimits(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Figures out of one message, in tokens. `prompt_tokens` is how large the refused prompt really was."""

    context_window_tokens: int | None = None
    max_input_tokens: int | None = None
    max_output_tokens: int | None = None
    prompt_tokens: int | None = None


# A number, with thousands separators or without.
_N = r"[ ]?([0-9][0-9,_]{0,11})"

# Rates and quotas are no limits of the model, although their messages speak of tokens: Groq's "Request too large for model
# ... on tokens per minute (TPM): Limit 6000, Requested 14810", OpenAI's the same.
NO_LIMITS = r"tokens per (min|day|hour)|\bTP[MD]\b|rate limit"

# Pattern -> what its groups are, in order: w(indow), i(nput limit), o(utput limit), x (the same, one too many), p(rompt size), -.
# The first that is found decides; the more exact ones stand first. All seen in public issues unless another source is named.
# They are compiled when the first message is read: most runs read none.
PATTERNS = (
    # Anthropic: "input length and `max_tokens` exceed context limit: 199759 + 8192 > 200000, decrease ..."
    (rf"exceed context limit:\s*{_N}\s*\+\s*{_N}\s*>\s*{_N}", "p-w"),
    # Anthropic: "prompt is too long: 203052 tokens > 200000 maximum"
    (rf"prompt is too long:\s*{_N} tokens\s*>\s*{_N}", "pw"),
    # Anthropic: "max_tokens: 65536 > 64000, which is the maximum allowed number of output tokens for claude-..."
    (rf"max_tokens:\s*{_N}\s*>\s*{_N}, which is the maximum", "-o"),
    # vLLM: "'max_tokens' or 'max_completion_tokens' is too large: 64000. This model's maximum context length is 64001
    # tokens and your request has 24235 input tokens"
    (rf"maximum context length is{_N} tokens and your request has{_N} input tokens", "wp"),
    # vLLM since 0.20: "... is 128000 tokens. However, you requested 65535 output tokens and your prompt contains at least
    # 62466 input tokens"
    (
        rf"maximum context length is{_N} tokens.{{0,40}}requested{_N} output tokens.{{0,60}}?{_N} input tokens",
        "w-p",
    ),
    # OpenAI, DeepSeek, vLLM: "... is 131072 tokens. However, you requested 131134 tokens (122942 in the messages, 8192 in
    # the completion)"; older: "(4066 in your prompt; 256 for the completion)"
    (
        rf"maximum context length is{_N} tokens.{{0,40}}requested{_N} tokens \({_N} in (?:the messages|your prompt)",
        "w-p",
    ),
    # OpenRouter: "This endpoint's maximum context length is 200000 tokens. However, you requested about 264437 tokens
    # (262437 of text input, 2000 in the output)" (recorded, too)
    (rf"maximum context length is{_N} tokens.{{0,40}}requested about{_N} tokens \({_N} of text input", "w-p"),
    # OpenAI: "... is 128000 tokens. However, your messages resulted in 204308 tokens"
    (rf"maximum context length is{_N} tokens.{{0,40}}messages resulted in{_N} tokens", "wp"),
    (rf"maximum context length (?:is|of){_N}", "w"),
    # Mistral: "Prompt contains 40123 tokens and 0 draft tokens, too large for model with 32768 maximum context length"
    (rf"prompt contains{_N} tokens.{{0,60}}too large for model with{_N} maximum context length", "pw"),
    # OpenAI, GPT-5: "Input tokens exceed the configured limit of 272000 tokens. Your messages resulted in 280000 tokens"
    (rf"input tokens exceed the configured limit of{_N} tokens.{{0,40}}resulted in{_N} tokens", "ip"),
    (rf"input tokens exceed the configured limit of{_N}", "i"),
    # xAI: "This model's maximum prompt length is 131072 but the request contains 136973 tokens."
    (rf"maximum prompt length is{_N} but the request contains{_N} tokens", "ip"),
    # Gemini (recorded at Vertex AI): "The input token count (1250074) exceeds the maximum number of tokens allowed
    # (1048576)."
    (rf"input token count \({_N}\) exceeds the maximum number of tokens allowed \({_N}\)", "pi"),
    (r"input token count .{0,20}exceeds the maximum number of tokens allowed.{0,4}?([0-9]{3,9})", "i"),
    # Vertex AI: "... has a maxOutputTokens value of 655360 but the supported range is from 1 (inclusive) to 8193
    # (exclusive)"
    (
        rf"maxOutputTokens value of{_N} but the supported range is from{_N} \(inclusive\) to{_N} \(exclusive\)",
        "--x",
    ),
    # GitHub Copilot: "prompt token count of 93854 exceeds the limit of 90000"
    (rf"prompt token count of{_N} exceeds the limit of{_N}", "pi"),
    # vLLM: "The decoder prompt (length 163840) is longer than the maximum model length of 131072."
    (rf"prompt \(length{_N}\) is longer than the maximum model length of{_N}", "pw"),
    # vLLM: "The prompt (total length 25938) is too long to fit into the model (context length 4096)."
    (rf"total length{_N}\) is too long to fit into the model \(context length{_N}", "pw"),
    # SGLang: "The input (61709 tokens) is longer than the model's context length (40960 tokens)."
    (rf"input \({_N} tokens\) is longer than the model'?s context length \({_N}", "pw"),
    # SGLang: "Input length (160062 tokens) exceeds the maximum allowed length (59862 tokens)."
    (rf"input length \({_N} tokens\) exceeds the maximum allowed length \({_N}", "pi"),
    # Moonshot: "Your request exceeded model token limit: 262144 (requested: 269030)"
    (rf"exceeded model token limit:{_N}", "w"),
    # llama.cpp (recorded): "request (2009 tokens) exceeds the available context size (512 tokens), try increasing it"
    (rf"request \({_N} tokens\) exceeds the available context size \({_N} tokens\)", "pw"),
    # LM Studio: "... keep the first 111490 tokens when context the overflows. However, the model is loaded with context
    # length of only 32768 tokens"; "(n_keep: 10247 >= n_ctx: 4096)"
    (rf"keep the first{_N} tokens.{{0,100}}context length of only{_N} tokens", "pw"),
    (rf"n_keep:{_N} >= n_ctx:{_N}", "pw"),
    # LM Studio: "Cannot truncate prompt with n_keep (13575) >= n_ctx (4096)"
    (rf"n_keep \({_N}\) >= n_ctx \({_N}\)", "pw"),
    # llama.cpp gives the counts beside its words; `wire/faults.py` puts them into the message
    (rf"\(n_prompt_tokens:{_N}, n_ctx:{_N}\)", "pw"),
    # ds4: "Prompt tokens (5000) exceeds context size (4096)"
    (rf"prompt tokens \({_N}\) exceeds context size \({_N}\)", "pw"),
    # oMLX: "Prompt too long: 41911 tokens exceeds max context window of 32768 tokens"
    (rf"prompt too long:{_N} tokens exceeds max context window of{_N}", "pw"),
    # vLLM: "You passed 99073 input tokens and requested 32000 output tokens. However, the model's context length is only 131072
    # tokens, resulting in a maximum input length of 99072 tokens."
    (rf"passed{_N} input tokens and .{{0,60}}context length is only{_N} tokens", "pw"),
    # Alibaba: "Range of max_tokens should be [1, 8192]", "Range of input length should be [1, 30720]"
    (rf"range of max_tokens should be \[1,\s*{_N}\]", "o"),
    (rf"range of input length should be \[1,\s*{_N}\]", "i"),
    # DeepSeek: "Invalid max_tokens value, the valid range of max_tokens is [1, 8192]"
    (rf"valid range of max_tokens is \[1,\s*{_N}\]", "o"),
    # OpenAI: "max_tokens is too large: 32000. This model supports at most 16384 completion tokens, whereas ..."
    (rf"supports at most{_N} completion tokens", "o"),
    # Groq: "`max_completion_tokens` must be less than or equal to `8192`, the maximum value for ..."
    (r"max_(?:completion_)?tokens`? must be less than or equal to `?([0-9,_]{1,12})", "o"),
    # OpenAI's validator, ByteDance Ark: "... max_tokens ... integer above maximum value, expected a value <= 32768, but got"
    (rf"max_(?:output_|completion_)?tokens.{{0,80}}expected a value <={_N}", "o"),
    # Amazon Bedrock: "The maximum tokens you requested exceeds the model limit of 4096."
    (rf"maximum tokens you requested exceeds? the model limit of{_N}", "o"),
    # Hugging Face TGI, Together: "`inputs` tokens + `max_new_tokens` must be <= 4097. Given: 4000 `inputs` tokens and ..."
    (rf"`?inputs`? tokens \+ `?max_new_tokens`? must be <={_N}\. Given:{_N}", "wp"),
    (rf"`?inputs`? must have less than{_N} tokens\. Given:{_N}", "ip"),
    # LM Studio's older servers: "Input length 6491 exceeds context length 1500"
    (rf"input length{_N} exceeds context length{_N}", "pw"),
    # Cohere (recorded): "too many tokens: ... The limit for this model is 288000 tokens."
    (rf"too many tokens.{{0,160}}limit for this model is{_N} tokens", "w"),
)
# OpenRouter's 402: "This request requires more credits, or fewer max_tokens. You requested up to 65536 tokens, but can only
# afford 11542." It binds the purse, not the model; a lower limit goes through all the same.
AFFORDABLE = rf"requested up to{_N} tokens, but can only afford{_N}"


def read_told(message: str) -> ToldLimits | None:
    """The figures in a provider's error message; None where it names none that are a model's limits."""
    said = message[:READ_CHARACTERS]
    if re.search(NO_LIMITS, said, re.IGNORECASE):
        return None
    if found := re.search(AFFORDABLE, said, re.IGNORECASE):
        return _told({"o": _number(found.group(2))})
    for pattern, groups in PATTERNS:
        if found := re.search(pattern, said, re.IGNORECASE | re.DOTALL):
            return _told({kind: _number(text) for kind, text in zip(groups, found.groups(), strict=True)})
    return None


def tells_of_prompt(told: ToldLimits | None) -> bool:
    """Whether the figures are those of a prompt that was too long, whatever the kind of the error."""
    return told is not None and (told.context_window_tokens or told.max_input_tokens or told.prompt_tokens) is not None


def _told(figures: dict[str, int]) -> ToldLimits | None:
    if "x" in figures:
        figures = {"o": figures["x"] - 1}
    sane = {kind: figure for kind, figure in figures.items() if figure in SANE_TOKENS}
    told = ToldLimits(
        context_window_tokens=sane.get("w"),
        max_input_tokens=sane.get("i"),
        max_output_tokens=sane.get("o"),
        prompt_tokens=sane.get("p"),
    )
    return None if told == ToldLimits() else told


def _number(text: str) -> int:
    digits = text.replace(",", "").replace("_", "")
    return int(digits) if digits else 0


def corrected(limits: ModelLimits, *, told: ToldLimits) -> ModelLimits:
    """The limits with what the provider said over what was thought."""
    changes = {
        name: figure
        for name, figure in (
            ("context_window_tokens", told.context_window_tokens),
            ("max_input_tokens", told.max_input_tokens),
            ("max_output_tokens", told.max_output_tokens),
        )
        if figure is not None
    }
    return msgspec.structs.replace(limits, **changes) if changes else limits


def refused(limits: ModelLimits, *, prompt_tokens: int, percent: int = 90) -> ModelLimits:
    """The limits after a prompt of about that size did not fit and nobody said what would: so much of it, at most."""
    most = min(window_of(limits), prompt_tokens) * percent // 100
    known = limits.max_input_tokens
    return msgspec.structs.replace(limits, max_input_tokens=most if known is None else min(known, most))


def with_less_room(limits: ModelLimits, *, prompt_tokens: int, output_tokens: int) -> ModelLimits:
    """The limits after a small prompt was refused together with the output that was asked for, and nobody said what would fit:
    half of that output, at most."""
    return msgspec.structs.replace(limits, context_window_tokens=prompt_tokens + output_tokens // 2)


def recounted(size: PromptSize, *, told: ToldLimits, asked_bytes: int | None = None) -> PromptSize:
    """The prompt's size as the provider counted it when it refused it. `asked_bytes`: what it refused was a part of it, or it
    with more behind it, of so many bytes; the whole is as dense."""
    if told.prompt_tokens is None:
        return size
    if asked_bytes is None or asked_bytes <= 0:
        return counted(size, tokens=told.prompt_tokens)
    tokens = -(-told.prompt_tokens * size.bytes // asked_bytes)
    return msgspec.structs.replace(counted(size, tokens=tokens), learned=size.learned, exact=False)
