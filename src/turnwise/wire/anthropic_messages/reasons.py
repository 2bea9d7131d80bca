"""Tables: stop reasons and usage of the Messages API, both ways.

Source: API reference, `stop_reason` of Message and BetaMessage (anthropic-python 2.12, types/stop_reason.py and
types/beta/beta_stop_reason.py); "Handling stop reasons".
"""

from types import MappingProxyType

import msgspec

from turnwise.vocab import Finished, FinishReason, Usage
from turnwise.wire.anthropic_messages.fields import UNREADABLE, Fields, read_fields, write_object

FINISH_REASONS = MappingProxyType(
    {
        "end_turn": FinishReason.STOP,
        "stop_sequence": FinishReason.STOP,
        "tool_use": FinishReason.TOOL_CALLS,
        "max_tokens": FinishReason.LENGTH,
        "model_context_window_exceeded": FinishReason.LENGTH,
        "refusal": FinishReason.REFUSAL,
        "pause_turn": FinishReason.PAUSE,
        "compaction": FinishReason.PAUSE,  # paused after compacting: send the content back and it goes on
    }
)

_WORDS = {
    FinishReason.STOP: "end_turn",
    FinishReason.TOOL_CALLS: "tool_use",
    FinishReason.LENGTH: "max_tokens",
    FinishReason.REFUSAL: "refusal",
    FinishReason.CONTENT_FILTER: "refusal",
    FinishReason.PAUSE: "pause_turn",
}


def finished(word: str, *, explanation: str | None = None) -> Finished:
    """An unknown word ends the response as `stop`, which makes no promise about calls or cuts; the word is kept."""
    return Finished(FINISH_REASONS.get(word, FinishReason.STOP), provider_reason=word, explanation=explanation)


def stop_word(reason: FinishReason, provider_reason: str | None, *, limit_reached: bool = False) -> str | None:
    """The API's word; None for `error` and `cut`, for which it has none."""
    if limit_reached:
        return "max_tokens"
    if provider_reason is not None and FINISH_REASONS.get(provider_reason) == reason:
        return provider_reason
    return _WORDS.get(reason)


class _Details(msgspec.Struct):
    thinking_tokens: int | None = None


class _Counts(msgspec.Struct):
    input_tokens: int | None = None
    output_tokens: int | None = None
    cache_creation_input_tokens: int | None = None
    cache_read_input_tokens: int | None = None
    output_tokens_details: _Details | None = None


_counts = msgspec.json.Decoder(_Counts, strict=False)


class UsageTally:
    """One response's usage, merged from `message_start` and every `message_delta`: later figures are cumulative and
    replace earlier ones; what a later event leaves out or nulls stays."""

    __slots__ = ("_fields",)

    def __init__(self) -> None:
        self._fields: Fields = {}

    def add(self, raw: msgspec.Raw) -> Usage | None:
        """The usage so far; None if `raw` says nothing readable."""
        try:
            fields = read_fields(raw)
            for key, value in fields.items():
                if bytes(value) != b"null" or key not in self._fields:
                    self._fields[key] = value.copy()
            text = write_object({key: bytes(value) for key, value in self._fields.items()})
            counts = _counts.decode(text)
        except UNREADABLE:
            return None
        if not fields:
            return None
        read, write = counts.cache_read_input_tokens or 0, counts.cache_creation_input_tokens or 0
        details = counts.output_tokens_details
        return Usage(
            input_tokens=(counts.input_tokens or 0) + read + write,
            output_tokens=counts.output_tokens or 0,
            reasoning_tokens=(details.thinking_tokens or 0) if details is not None else 0,
            cache_read_tokens=read,
            cache_write_tokens=write,
            provider=str(text, "utf-8"),
        )


def write_usage(usage: Usage) -> bytes:
    """The API's own object from our counts: its input leaves the cached tokens out."""
    plain = max(0, usage.input_tokens - usage.cache_read_tokens - usage.cache_write_tokens)
    counts: dict[str, int | dict[str, int]] = {
        "input_tokens": plain,
        "cache_creation_input_tokens": usage.cache_write_tokens,
        "cache_read_input_tokens": usage.cache_read_tokens,
        "output_tokens": usage.output_tokens,
    }
    if usage.reasoning_tokens:
        counts["output_tokens_details"] = {"thinking_tokens": usage.reasoning_tokens}
    return msgspec.json.encode(counts)
