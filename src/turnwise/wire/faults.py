"""What faults of all families have in common, as data: what a status or a message says, how long to wait, what to hide.

Gateways pass the texts of other providers through, so every family reads every provider's.
"""

import re
from collections.abc import Callable, Iterable, Mapping

import msgspec

from turnwise.vocab import Fault, FaultKind
from turnwise.wire.json_fields import UNREADABLE, printable

# Whether a status is sent again is decided in `rules/retries.py`.
STATUSES: Mapping[int, FaultKind] = {
    401: FaultKind.AUTH,
    402: FaultKind.QUOTA,
    403: FaultKind.AUTH,
    404: FaultKind.NOT_FOUND,
    429: FaultKind.RATE_LIMITED,
    503: FaultKind.OVERLOADED,
    529: FaultKind.OVERLOADED,
}

# Codes and types that mean an overflow in whatever family's error they stand: gateways and local servers pass them through,
# and one server answers in several families. Sources: OpenAI "Error codes"; llama.cpp `tools/server/server-common.cpp`
# (`exceed_context_size_error`); Z.ai and DeepSeek API references; ds4 (`context_exceeded`).
OVERFLOW_CODES = frozenset(
    {
        "context_exceeded",
        "context_length_exceeded",
        "context_window_exceeded",
        "exceed_context_size_error",
        "model_context_window_exceeded",
        "prompt_too_long",
    }
)

# What the message says -> kind, first match. Consulted because many endpoints report an overflow and a spent quota under
# `invalid_request_error` or a bare status. Each with the endpoint whose text it is.
# They are compiled when the first fault is read: most runs read none.
MESSAGES: tuple[tuple[str, FaultKind], ...] = (
    # OpenAI, DeepSeek, OpenRouter, vLLM: "(This model's|This endpoint's) maximum context length is N tokens"
    (r"maximum context length", FaultKind.CONTEXT_OVERFLOW),
    # OpenAI (Responses): "Your input exceeds the context window of this model"; llama.cpp: "exceeds the available context
    # size"; Anthropic: "input length and `max_tokens` exceed context limit: 190000 + 20000 > 200000"; Ollama: "prompt too long;
    # exceeded max context length by 17 tokens", "the input length exceeds the context length"; oMLX: "exceeds max context window"
    (
        r"exceed\w* (the |this |your )?(model'?s )?(available |max(imum)? )?context (window|size|length|limit)",
        FaultKind.CONTEXT_OVERFLOW,
    ),
    # llama.cpp and LM Studio (HTTP 500, or in the middle of a stream): "Context size has been exceeded."; others: "context length
    # exceeded", "context window limit exceeded"
    (r"context (size|length|window|limit)( limit)? (has been |was |is )?exceeded", FaultKind.CONTEXT_OVERFLOW),
    # LM Studio: "Cannot truncate prompt with n_keep (13575) >= n_ctx (4096)"; llama.cpp's bindings: "Prompt exceeds n_ctx"
    (r"cannot truncate prompt|exceeds? n_ctx|n_keep\W.{0,20}>= n_ctx", FaultKind.CONTEXT_OVERFLOW),
    # xAI: "This model's maximum prompt length is N but the request contains M tokens"; Lemonade: "exceeds the model's maximum
    # allowed prompt length"; TensorRT-LLM: "Prompt length (N) exceeds maximum input length (M)"
    (r"maximum (allowed )?prompt length|exceeds (the )?maximum input length", FaultKind.CONTEXT_OVERFLOW),
    # Mistral: "Prompt contains N tokens ... too large for model with M maximum context length"
    (r"prompt contains \d+ tokens.{0,200}too large", FaultKind.CONTEXT_OVERFLOW),
    # Anthropic: "prompt is too long: 210000 tokens > 200000 maximum"; Bedrock: "Input is too long for requested model"; Ollama:
    # "prompt too long; ..."; vMLX: "prompt_too_long: ..."; vLLM: "Input prompt (35247 tokens) is too long and exceeds limit"
    (r"(prompt|input)( \(\d+ tokens\))?[ _](is[ _])?too[ _]long", FaultKind.CONTEXT_OVERFLOW),
    # Gemini: "The input token count (N) exceeds the maximum number of tokens"
    (r"input token count .{0,40}exceeds the maximum", FaultKind.CONTEXT_OVERFLOW),
    # vLLM: "The decoder prompt (length N) is longer than the maximum model length of M", "The prompt (total length N) is too
    # long to fit into the model"; SGLang: "The input (N tokens) is longer than the model's context length (M tokens)",
    # "Input length (N tokens) exceeds the maximum allowed length (M tokens)"
    (
        r"longer than the (maximum model|model'?s context) length|too long to fit into the model",
        FaultKind.CONTEXT_OVERFLOW,
    ),
    (r"input length .{0,40}exceeds the maximum allowed length", FaultKind.CONTEXT_OVERFLOW),
    # Z.ai: "Prompt exceeds max length"; MiniMax: "context window exceeds limit"; Moonshot: "Your request exceeded model token
    # limit: N"; GitHub Copilot: "prompt token count of N exceeds the limit of M"
    (
        r"prompt exceeds max length|context window exceeds limit|exceeded model token limit",
        FaultKind.CONTEXT_OVERFLOW,
    ),
    (r"prompt token count of .{0,20}exceeds the limit", FaultKind.CONTEXT_OVERFLOW),
    # LM Studio: "The number of tokens to keep from the initial prompt is greater than the context length", "loaded with context
    # length of only N tokens"; vLLM: "the model's context length is only N tokens"; TabbyAPI: "is greater than max_seq_len"
    (
        r"greater than (the context length|max_seq_len)|context length (of|is) only \d",
        FaultKind.CONTEXT_OVERFLOW,
    ),
    # Hugging Face TGI: "`inputs` tokens + `max_new_tokens` must be <= N", "`inputs` must have less than N tokens"; Cohere: "too
    # many tokens: size limit exceeded"; Alibaba: "Range of input length should be [1, N]"; OpenAI: "Input tokens exceed the
    # configured limit of N tokens"; SiliconFlow: "number of input tokens (N) has exceeded max_prompt_tokens (M) limit"
    (r"inputs`? tokens \+ `?max_new_tokens|too many tokens: size limit", FaultKind.CONTEXT_OVERFLOW),
    (r"`?inputs`? must have less than \d+ tokens|exceeded max_prompt_tokens", FaultKind.CONTEXT_OVERFLOW),
    (r"range of input length should be|input tokens exceed the configured limit", FaultKind.CONTEXT_OVERFLOW),
    # Groq: "Please reduce the length of the messages or completion"
    (r"reduce the length of (the|your) (messages|prompt|input)", FaultKind.CONTEXT_OVERFLOW),
    # DeepSeek 402 "Insufficient Balance"; OpenRouter 402 "Insufficient credits"
    (r"insufficient (balance|credits|funds|quota)|run out of credits", FaultKind.QUOTA),
    # Anthropic: "Your credit balance is too low to access the Anthropic API", under invalid_request_error with HTTP 400
    (
        r"credit balance is too low|spend(ing)? limit|reached your specified api usage limits",
        FaultKind.QUOTA,
    ),
)

# OpenAI: "You exceeded your current quota, please check your plan and billing details". Gemini uses the same words for a
# limit per minute, so its faults leave this one out.
SPENT_QUOTA = (re.compile(r"exceeded your current quota", re.IGNORECASE), FaultKind.QUOTA)

MESSAGE_CHARACTERS = 2000
"""A message is for people and for the model; OpenRouter's carries whole upstream bodies."""

# A key that the answer repeats: of OpenAI and many others, Google, Groq or xAI. OpenAI masks the middle of long ones by itself,
# with asterisks; short ones come whole.
_KEY = re.compile(
    r"(key provided: )([^\s*]+?)(?=[.,]?(?:\s|$))|\b(?:sk-|AIza|gsk_|xai-)[A-Za-z0-9_-]{8,}", re.IGNORECASE
)

# "Please try again in 1.2s", "in 250ms", "in 2m30s": what OpenAI and Groq write into a 429's message.
_TRY_AGAIN = re.compile(
    r"try again in (?:(\d{1,9})h)?(?:(\d{1,9})m(?!s))?(?:(\d{1,9}(?:\.\d{1,9})?)(ms|s))?", re.IGNORECASE
)
# RFC 9110 has whole seconds only; fractions are common, and a quota that is never filled again shows in any writing (`1e9`).
_NUMBER = re.compile(r"(\d{1,400}(\.\d{0,400})?|\.\d{1,400})([eE][+-]?\d{1,9})?", re.ASCII)
# Longer ones, and what is too large for a float, say no more than this: not in this run.
LONGEST_WAIT_S = 366 * 86_400.0

# When a used-up limit of rates is whole again. OpenAI and Groq send durations ("1s", "6m0s", "2m59.56s", "12ms"; OpenAI docs,
# "Rate limits in headers"), Anthropic dates ("2025-01-01T00:00:00Z"; its docs, "Rate limits: response headers").
_RESETS = tuple(
    (f"{start}-remaining{end}", f"{start}-reset{end}")
    for start, end in (("x-ratelimit", "-requests"), ("x-ratelimit", "-tokens"))
)
_ANTHROPIC_RESETS = tuple(
    (f"anthropic-ratelimit-{what}-remaining", f"anthropic-ratelimit-{what}-reset")
    for what in ("requests", "tokens", "input-tokens", "output-tokens")
)
_DURATION = re.compile(
    r"(?=\d)(?:(\d{1,9})h)?(?:(\d{1,9})m(?!s))?(?:(\d{1,9}(?:\.\d{1,9})?)(ms|s))?", re.IGNORECASE | re.ASCII
)
# RFC 3339.
_INTERNET_DATE = re.compile(
    r"(\d{4})-(\d\d)-(\d\d)[Tt ](\d\d):(\d\d):(\d\d)(\.\d{1,9})?(?:[Zz]|([+-])(\d\d):(\d\d))", re.ASCII
)


def kind_by_message(message: str) -> FaultKind | None:
    return next((kind for pattern, kind in MESSAGES if re.search(pattern, message, re.IGNORECASE)), None)


def is_overflow_code(code: str | None) -> bool:
    return code is not None and code.casefold() in OVERFLOW_CODES


def with_counts(message: str, *, error: Mapping[str, object]) -> str:
    """The message with the counts that llama.cpp gives beside it (`n_prompt_tokens`, `n_ctx`), unless its words name them."""
    prompt, window = [_count(error.get(key)) for key in ("n_prompt_tokens", "n_ctx")]
    if prompt is None or window is None or (str(prompt) in message and str(window) in message):
        return message
    return f"{message.rstrip('. ')} (n_prompt_tokens: {prompt}, n_ctx: {window})"


def _count(value: object) -> int | None:
    try:
        return msgspec.convert(msgspec.json.decode(value) if isinstance(value, msgspec.Raw) else value, int)
    except UNREADABLE:
        return None


def fit_to_show(message: str) -> str:
    """The provider's text without keys, and not a whole page of it."""
    return _KEY.sub(lambda found: f"{found[1] or ''}[redacted]", message[:MESSAGE_CHARACTERS])


def retry_after_s(headers: Mapping[str, str], *, message: str = "") -> float | None:
    """Seconds to wait, at most LONGEST_WAIT_S: milliseconds, then seconds, then the message's own words. For the date form of
    the header, see `timed`."""
    for name, unit in (("retry-after-ms", 0.001), ("retry-after", 1.0)):
        value = headers.get(name, "").strip()
        if _NUMBER.fullmatch(value):
            return min(float(value) * unit, LONGEST_WAIT_S)
    found = _TRY_AGAIN.search(message)
    return None if found is None else _seconds_of(found)


def timed(fault: Fault, headers: Mapping[str, str]) -> Fault:
    """The fault with what only the headers tell of a retry: a date, a used-up limit's end, a plain yes or no.

    `x-should-retry` is what OpenAI's and Anthropic's own clients obey (openai-python `_base_client.py`).
    """
    should = {"true": True, "false": False}.get(headers.get("x-should-retry", "").strip().lower())
    after_s, at_s = fault.retry_after_s, None
    if after_s is None:
        at_s = date_s(headers.get("retry-after", ""))
    if after_s is None and at_s is None and fault.kind is FaultKind.RATE_LIMITED:
        after_s = max(_used_up(headers, _RESETS, read=_duration_s), default=None)
        at_s = max(_used_up(headers, _ANTHROPIC_RESETS, read=date_s), default=None) if after_s is None else None
    return msgspec.structs.replace(fault, retry_after_s=after_s, retry_at_s=at_s, should_retry=should)


def date_s(text: str) -> float | None:
    """Seconds since 1970 of an HTTP date (RFC 9110) or an internet date (RFC 3339); None where it is neither."""
    from email.utils import mktime_tz, parsedate_tz

    found = _INTERNET_DATE.fullmatch(text.strip())
    try:
        if found is not None:
            year, month, day, hour, minute, second = [int(found[place]) for place in range(1, 7)]
            offset = 60 * (60 * int(found[9] or 0) + int(found[10] or 0)) * (-1 if found[8] == "-" else 1)
            whole = mktime_tz((year, month, day, hour, minute, second, 0, 1, -1, offset))
            return whole + float(found[7] or 0)
        parsed = parsedate_tz(text)
        return None if parsed is None or parsed[9] is None else float(mktime_tz(parsed))
    except (ValueError, OverflowError, IndexError):
        return None


def _used_up(
    headers: Mapping[str, str], pairs: Iterable[tuple[str, str]], *, read: Callable[[str], float | None]
) -> list[float]:
    """The ends of those limits of which nothing remains."""
    ends = [read(headers.get(reset, "")) for remaining, reset in pairs if headers.get(remaining, "").strip() == "0"]
    return [end for end in ends if end is not None]


def _duration_s(text: str) -> float | None:
    found = _DURATION.fullmatch(text.strip())
    return None if found is None else _seconds_of(found)


def _seconds_of(found: re.Match[str]) -> float | None:
    """The seconds of hours, minutes, and seconds or milliseconds, as `_TRY_AGAIN` and `_DURATION` find them."""
    if not any(found.groups()):
        return None
    hours, minutes, amount, unit = found.groups()
    seconds = float(amount or 0) * (0.001 if (unit or "").lower() == "ms" else 1.0)
    return float(hours or 0) * 3600 + float(minutes or 0) * 60 + seconds


def too_large(limit_bytes: int) -> Fault:
    return Fault(kind=FaultKind.TOO_LARGE, message=f"the response is longer than our limit of {limit_bytes} bytes")


def past_limit(error: Exception) -> Fault:
    """The limit that was passed is in the error's words."""
    return Fault(kind=FaultKind.TOO_LARGE, message=str(error))


_NO_COMMENT = re.compile(rb"(?:\A|[\r\n])[^:\r\n]")


def no_response(head: bytes, *, expected: str) -> Fault:
    """Something else arrived in place of a response, or nothing but keep-alive comments; `head` is how it began."""
    shown = printable(head)
    if _NO_COMMENT.search(head.strip()) is None:
        return Fault(kind=FaultKind.DISCONNECTED, message="the response was empty")
    return Fault(kind=FaultKind.PROTOCOL, message=f"expected {expected}, but what came begins with: {shown}")
