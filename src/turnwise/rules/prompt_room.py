"""Room: how many tokens one response may have, how they are split, and how large a prompt may grow before it is compacted.

The only place that computes any of it. Fixed caps, reasoning drawn from an uncounted pool and a compaction that reserves
another figure than the request asks for were three of the five failures of opencode's report (promise cut:budget).
"""

import re
from collections.abc import Iterable

import msgspec

from turnwise.vocab import (
    Effort,
    File,
    HintedFields,
    Message,
    Part,
    ProviderItem,
    Reasoning,
    Settings,
    Text,
    ToolCall,
    ToolResult,
    ToolSpec,
    Usage,
)

# The least that an answer is worth asking for: a small edit, or a page of text.
MIN_ANSWER_TOKENS = 1024
# Anthropic refuses a smaller thinking budget (API docs, "Extended thinking"); elsewhere less is not worth asking for.
MIN_REASONING_TOKENS = 1024
# Of a window, for output. The largest share that a provider gives by itself today is about a third: 64,000 of 200,000
# (Claude 4.5), 128,000 of 400,000 (GPT-5). Where output may fill the whole window it would leave no prompt at all.
OUTPUT_SHARE = 3
# Held back for output where nobody says what the model can: every model of note since 2024 takes it.
UNKNOWN_OUTPUT_TOKENS = 8192
# Assumed where nobody says how large the window is: large enough for all models of note since 2024. Smaller ones tell by
# their error (`told_limits`), larger ones by a request that goes through (`witnessed`).
UNKNOWN_WINDOW_TOKENS = 128_000

BYTES_A_TOKEN = 3  # tokenizers need a network; three bytes are on the safe side for prose, about right for code and CJK
# Tokens in so many bytes: hex digits, base64 and rare scripts have 1.2 to 2.5 bytes a token. More than one and a half tokens
# a byte is no text: something else is in the count (what a provider's own tools have read).
DENSITY_BYTES = 3000
GUESSED_DENSITY = DENSITY_BYTES // BYTES_A_TOKEN
MOST_DENSITY = 4500
# A count of less tells more of framing than of text; of a whole prompt, more of what the provider puts before it.
ADDED_BYTES = 1024
WHOLE_BYTES = 8192
PART_BYTES = 24  # role, separators and call framing that templates put around each part: some eight tokens
FILE_BYTES = 1600 * BYTES_A_TOKEN  # an image of full size at Anthropic; a file that only its provider has is not known

# What a retry asks for after reasoning ate all: no less than "low", the least word that every model with efforts knows. Many
# refuse "none", and OpenAI's o-series, MiniMax and others "minimal" (openai_dart #760; OpenAI docs, "Reasoning models").
LOWER_EFFORT: dict[Effort, Effort] = {
    "max": "low",
    "xhigh": "low",
    "high": "low",
    "medium": "low",
    "low": "low",
    "minimal": "minimal",
    "none": "none",
}
ATE_ALL = (
    "Your reasoning used up all the room of your last response, so nothing of the answer arrived. Think only a little this "
    "time, and answer, or call the next tool, at once."
)


class ModelLimits(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, metaclass=HintedFields):
    """How much a model can read and write, in tokens. None: turnwise's own value stays.

    - `context_window_tokens`: prompt and output together.
    - `max_input_tokens`: the prompt alone (OpenAI: 272,000 of 400,000).
    - `max_output_tokens`: the output, reasoning included.
    - `max_reasoning_tokens`: the reasoning alone.
    """

    context_window_tokens: int | None = None
    max_input_tokens: int | None = None
    max_output_tokens: int | None = None
    max_reasoning_tokens: int | None = None


UNKNOWN_LIMITS = ModelLimits()


class OutputBudget(msgspec.Struct, frozen=True, kw_only=True):
    """`max_tokens` caps all that is generated; None leaves it to the provider, because the model's limit is unknown.
    `reasoning_tokens` is the part of it that reasoning may use, where a budget was asked for; `answer_tokens` what is left
    of it for the answer. None where there is nothing to divide."""

    max_tokens: int | None
    reasoning_tokens: int | None = None
    answer_tokens: int | None = None


class BudgetTooSmall(msgspec.Struct, frozen=True, kw_only=True):
    """The prompt leaves less room than an answer needs: compact, or answer locally."""

    prompt_tokens: int
    room_tokens: int
    needed_tokens: int


def output_reserve(limits: ModelLimits, *, settings: Settings) -> int:
    """The room that is kept for one response: a request asks for at least as much, and compaction starts where the prompt
    would take some of it. One figure for both (promise cut:budget).

    The user's `max_output_tokens` is a ceiling: more than it is never needed.
    """
    return _reserve(window_of(limits), ceiling_tokens=_ceiling(limits, settings=settings))


def _reserve(window_tokens: int, *, ceiling_tokens: int | None) -> int:
    return min(window_tokens // OUTPUT_SHARE, UNKNOWN_OUTPUT_TOKENS if ceiling_tokens is None else ceiling_tokens)


def _ceiling(limits: ModelLimits, *, settings: Settings) -> int | None:
    """What the model can give, or the user wants of it, whichever is less."""
    most, own = limits.max_output_tokens, settings.max_output_tokens
    if most is None or own is None:
        return own if most is None else most
    return min(most, own)


def window_of(limits: ModelLimits) -> int:
    """The window, or an assumed one if it is unknown."""
    window = limits.context_window_tokens
    if window is not None:
        return window
    known = (limits.max_input_tokens or 0) + (limits.max_output_tokens or 0)
    return max(UNKNOWN_WINDOW_TOKENS, known)


def prompt_capacity(limits: ModelLimits, *, settings: Settings) -> int:
    """The largest prompt, in tokens, that leaves the reserve; a larger one has to be compacted."""
    window = window_of(limits)
    capacity = window - _reserve(window, ceiling_tokens=_ceiling(limits, settings=settings))
    return capacity if limits.max_input_tokens is None else min(capacity, limits.max_input_tokens)


def answer_floor(limits: ModelLimits, *, settings: Settings) -> int:
    """The least number of tokens that a response has to have; less only where the user, or the model, wants less."""
    return _floor(window_of(limits), ceiling_tokens=_ceiling(limits, settings=settings))


def _floor(window_tokens: int, *, ceiling_tokens: int | None) -> int:
    floor = min(MIN_ANSWER_TOKENS, window_tokens // 4)
    return floor if ceiling_tokens is None else min(floor, ceiling_tokens)


def split_output(
    limits: ModelLimits,
    *,
    settings: Settings,
    prompt_tokens: int,
    usual_tokens: int | None = None,
    spare_tokens: int = 0,
) -> OutputBudget | BudgetTooSmall:
    """Divide what the model can still give between reasoning and answer.

    `max_tokens = min(model output limit, context window - prompt)`, and never more than the user's own
    `max_output_tokens`. The reasoning budget depends on limits and settings alone as long as the prompt leaves the
    reserve: a changed one throws Anthropic's cached messages away (API docs, "Prompt caching", what invalidates it).
    `usual_tokens` go out where nobody names a limit (None: none goes out); a known window may leave less. `spare_tokens` are
    what the prompt may be longer than it is taken for; they take nothing from the least answer.
    """
    window, ceiling = window_of(limits), _ceiling(limits, settings=settings)
    floor = _floor(window, ceiling_tokens=ceiling)
    room = window - prompt_tokens
    if room < floor or (limits.max_input_tokens is not None and prompt_tokens > limits.max_input_tokens):
        return BudgetTooSmall(prompt_tokens=prompt_tokens, room_tokens=max(0, room), needed_tokens=floor)
    if ceiling is None and settings.reasoning_tokens:
        # A budget for reasoning needs a total that it is a part of.
        ceiling = settings.reasoning_tokens + UNKNOWN_OUTPUT_TOKENS
    most = max(room - spare_tokens, floor)
    if (
        ceiling is None
        and usual_tokens is not None
        and limits.context_window_tokens is not None
        and most < usual_tokens
    ):
        ceiling = usual_tokens
    if ceiling is None:
        return OutputBudget(max_tokens=None, reasoning_tokens=settings.reasoning_tokens)
    max_tokens = min(most, ceiling)
    reserve = min(max_tokens, output_reserve(limits, settings=settings))
    reasoning = _reasoning_share(limits, settings=settings, total_tokens=reserve, floor_tokens=floor)
    return OutputBudget(max_tokens=max_tokens, reasoning_tokens=reasoning, answer_tokens=max_tokens - (reasoning or 0))


def _reasoning_share(limits: ModelLimits, *, settings: Settings, total_tokens: int, floor_tokens: int) -> int | None:
    """The budget that was asked for, as far as it fits; None where none was, or none is worth sending."""
    wanted = settings.reasoning_tokens
    if not wanted:
        return wanted
    if limits.max_reasoning_tokens is not None:
        wanted = min(wanted, limits.max_reasoning_tokens)
    share = min(wanted, total_tokens - floor_tokens)
    return share if share >= min(MIN_REASONING_TOKENS, settings.reasoning_tokens or 0) else None


def with_budget(settings: Settings, *, budget: OutputBudget) -> Settings:
    """The settings of one request; how a family writes them down is the family's own."""
    same_most = settings.max_output_tokens == budget.max_tokens
    if same_most and settings.reasoning_tokens == budget.reasoning_tokens:
        return settings
    return msgspec.structs.replace(
        settings, max_output_tokens=budget.max_tokens, reasoning_tokens=budget.reasoning_tokens
    )


def more_room_for_answer(
    settings: Settings, *, limits: ModelLimits, prompt_tokens: int, used_tokens: int
) -> Settings | None:
    """What the one retry asks for after reasoning ate all (`ATE_ALL` is its note): a higher limit where there is one, a
    quarter of it at most for reasoning where it has a budget, less effort where it has not.

    `settings` are those of the request that ended so, `used_tokens` its output. None where nothing could be changed.
    The user's ceiling has to be in `limits`: `within_ceiling`.
    """
    budget = split_output(
        limits, settings=msgspec.structs.replace(settings, max_output_tokens=None), prompt_tokens=prompt_tokens
    )
    if isinstance(budget, BudgetTooSmall):
        return None
    most = budget.max_tokens or raised_limit(
        limits, settings=settings, prompt_tokens=prompt_tokens, used_tokens=used_tokens
    )
    changes: dict[str, object] = {"max_output_tokens": most if most is not None else settings.max_output_tokens}
    if settings.reasoning_tokens:
        share = (most or used_tokens) // 4
        # Anthropic's least; below it the request goes without reasoning.
        changes["reasoning_tokens"] = min(settings.reasoning_tokens, share) if share >= MIN_REASONING_TOKENS else None
        if share < MIN_REASONING_TOKENS:
            changes["reasoning_effort"] = None
    else:
        changes["reasoning_effort"] = LOWER_EFFORT[settings.reasoning_effort] if settings.reasoning_effort else "low"
    changed = msgspec.structs.replace(settings, **changes)
    return None if changed == settings else changed


def raised_limit(limits: ModelLimits, *, settings: Settings, prompt_tokens: int, used_tokens: int) -> int | None:
    """A higher `max_tokens` than the one at which a response was cut after `used_tokens`, or None if there is none.

    Where the model's limit is unknown the provider's own default cut it: twice that, and no less than every model takes;
    if it is too much, the provider's error says so.
    """
    room = window_of(limits) - prompt_tokens
    known = [limit for limit in (limits.max_output_tokens, room) if limit is not None]
    most = min(known)
    if limits.max_output_tokens is None:
        most = min(most, max(2 * used_tokens, UNKNOWN_OUTPUT_TOKENS))
    before = settings.max_output_tokens or used_tokens
    return most if most > before else None


def kept_below(settings: Settings, *, tokens: int, sent_tokens: int | None) -> Settings:
    """The settings of a request whose response may hold `tokens` at most, because a limit of the turn leaves no more.

    `sent_tokens` is the limit of output that would be sent. If none would, because the model's limit is unknown, a high
    limit is not sent: a server refuses more than its model can give. Reasoning that was given a budget leaves the answer its
    floor.
    """
    if tokens >= (UNKNOWN_OUTPUT_TOKENS + 1 if sent_tokens is None else sent_tokens):
        return settings
    changes: dict[str, object] = {"max_output_tokens": tokens}
    if settings.reasoning_tokens:
        share = min(settings.reasoning_tokens, tokens - min(MIN_ANSWER_TOKENS, tokens))
        changes["reasoning_tokens"] = share if share >= min(MIN_REASONING_TOKENS, settings.reasoning_tokens) else None
    return msgspec.structs.replace(settings, **changes)


def within_ceiling(limits: ModelLimits, *, ceiling_tokens: int | None) -> ModelLimits:
    """The limits under a user's own `max_output_tokens`."""
    if ceiling_tokens is None or (limits.max_output_tokens is not None and limits.max_output_tokens <= ceiling_tokens):
        return limits
    return msgspec.structs.replace(limits, max_output_tokens=ceiling_tokens)


def witnessed(limits: ModelLimits, *, usage: Usage) -> ModelLimits:
    """The limits, raised to what a request that went through has proven."""
    usage = usage.last_sampling
    used = usage.input_tokens + usage.output_tokens
    changes: dict[str, object] = {}
    if used > window_of(limits):
        changes["context_window_tokens"] = used
    if limits.max_input_tokens is not None and usage.input_tokens > limits.max_input_tokens:
        changes["max_input_tokens"] = usage.input_tokens
    if limits.max_output_tokens is not None and usage.output_tokens > limits.max_output_tokens:
        changes["max_output_tokens"] = usage.output_tokens
    return msgspec.structs.replace(limits, **changes) if changes else limits


# the size of a prompt


class PromptSize(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """How large the next prompt is: what the provider counted of the last one, and the bytes added since by a guess.

    `measured_bytes` are the bytes that `measured_tokens` were counted of, so that what is taken away can be weighed.
    The guess is three bytes a token, until the provider's counts show that this conversation's are fewer: `learned` is its
    `density`, 0 where nothing is known of it. `counted`: a provider's count is behind `measured_tokens`; `exact`: and nothing
    was taken away since.
    """

    measured_tokens: int = 0
    measured_bytes: int = 0
    added_bytes: int = 0
    learned: int = 0
    counted: bool = False
    exact: bool = False

    @property
    def tokens(self) -> int:
        return self.measured_tokens + tokens_in(self.added_bytes, density=self.density)

    @property
    def bytes(self) -> int:
        return self.measured_bytes + self.added_bytes

    @property
    def density(self) -> int:
        """Tokens in `DENSITY_BYTES` of what is added: as learned, else as the whole prompt has, never less than the guess."""
        if self.learned or not self.counted or self.measured_bytes < WHOLE_BYTES:
            return self.learned or GUESSED_DENSITY
        return _density(self.measured_tokens, size_bytes=self.measured_bytes)

    @property
    def is_counted(self) -> bool:
        """Whether more of it is known by a provider's count than by a guess."""
        return self.counted and self.measured_bytes > self.added_bytes


def tokens_in(size_bytes: int, *, density: int = GUESSED_DENSITY) -> int:
    return -(-size_bytes * density // DENSITY_BYTES)


def grown(size: PromptSize, *, added_bytes: int) -> PromptSize:
    """The size once messages of so many bytes (`message_bytes`) have been added."""
    return msgspec.structs.replace(size, added_bytes=size.added_bytes + added_bytes)


def measured(size: PromptSize, *, usage: Usage | None) -> PromptSize:
    """The size of the prompt that was just answered, as its provider counted it; as estimated where it did not count."""
    tokens = 0 if usage is None else usage.last_sampling.input_tokens
    return counted(size, tokens=tokens) if tokens > 0 else size


def counted(size: PromptSize, *, tokens: int) -> PromptSize:
    """The size once its provider has counted it, and what that tells of the density of what was added: it goes up at once and
    comes down slowly, as a guess that is too low is refused."""
    learned = size.learned
    if size.exact and size.added_bytes >= ADDED_BYTES:
        found = _density(tokens - size.measured_tokens, size_bytes=size.added_bytes)
        learned = max(found, (3 * learned + found) // 4)
    return PromptSize(measured_tokens=tokens, measured_bytes=size.bytes, learned=learned, counted=True, exact=True)


def shrunk(size: PromptSize, *, bytes_now: int) -> PromptSize:
    """The size once only `bytes_now` of its bytes are left: tokens in proportion."""
    if size.bytes <= 0:
        return PromptSize(added_bytes=bytes_now)
    tokens = -(-size.tokens * min(bytes_now, size.bytes) // size.bytes)
    known = size.learned or (size.density if size.density > GUESSED_DENSITY else 0)
    return PromptSize(measured_tokens=tokens, measured_bytes=bytes_now, learned=known, counted=size.is_counted)


def _density(tokens: int, *, size_bytes: int) -> int:
    return max(GUESSED_DENSITY, min(MOST_DENSITY, tokens * DENSITY_BYTES // size_bytes))


def request_bytes(*, system: Iterable[Text], tools: Iterable[ToolSpec]) -> int:
    """The bytes of a prompt that stand before its messages."""
    texts = sum([_size(text.text) + PART_BYTES for text in system])
    return texts + sum([_size(tool.name + tool.description + tool.parameters) + PART_BYTES for tool in tools])


def message_bytes(message: Message) -> int:
    """The UTF-8 bytes of what a message says, framing included; each byte is looked at once."""
    size = PART_BYTES
    for part in message.parts:
        size += part_bytes(part)
    return size


def part_bytes(part: Part) -> int:
    # A long history is made of these: the type tells them sooner than a pattern.
    if type(part) is Text or type(part) is Reasoning:
        text = part.text
        size = PART_BYTES + (len(text) if text.isascii() else _size(text))
        return size if part.opaque is None else size + _size(part.opaque.json)
    if type(part) is ToolCall:
        name, arguments = part.name, part.arguments
        if name.isascii() and arguments.isascii():
            size = PART_BYTES + len(name) + len(arguments)
        else:
            size = PART_BYTES + _size(name) + _size(arguments)
        return size if part.opaque is None else size + _size(part.opaque.json)
    if type(part) is ToolResult:
        size = PART_BYTES + _size(part.name)
        for said in part.content:
            size += part_bytes(said)
        return size
    match part:
        case File(media_type=kind, data=data):
            is_read = data is not None and not kind.startswith(("image/", "audio/", "video/"))
            size = max(FILE_BYTES, len(data or b"")) if is_read else FILE_BYTES
        case ProviderItem(json=json):
            size = _size(json)
        case _:
            size = _size(part.text)
    return size + PART_BYTES


def _size(text: str) -> int:
    return len(text) if text.isascii() else len(text.encode("utf-8", "replace"))


# What a provider's own error message says about its model's limits: patterns as data, each with whose words they are.


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
