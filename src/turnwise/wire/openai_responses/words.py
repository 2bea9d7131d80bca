"""Words of the Responses API in a response: its status, its usage."""

from collections.abc import Mapping

import msgspec

from turnwise.vocab import FinishReason, Usage
from turnwise.wire.openai_responses.fields import Fields, count_at, object_at, text_at

# Status, with `:reason` where the response gives one. `completed` covers an answer, calls and a refusal alike: which of
# the three it is, the items say. Source: OpenAI API reference, "The response object".
FINISH_REASONS: Mapping[str, FinishReason] = {
    "completed": FinishReason.STOP,
    "incomplete:max_output_tokens": FinishReason.LENGTH,
    "incomplete:max_tokens": FinishReason.LENGTH,  # gateways that pass Chat's or Anthropic's word through
    "incomplete:length": FinishReason.LENGTH,
    "incomplete:content_filter": FinishReason.CONTENT_FILTER,
    "incomplete": FinishReason.CUT,
    "failed": FinishReason.ERROR,
    "cancelled": FinishReason.CUT,
    "queued": FinishReason.CUT,  # a body asked for in the background and not polled
    "in_progress": FinishReason.CUT,
}

# Event that ends a stream -> the status it stands for where the response object does not say.
TERMINAL_EVENTS: Mapping[str, str] = {
    "response.completed": "completed",
    "response.incomplete": "incomplete",
    "response.failed": "failed",
    "response.cancelled": "cancelled",
    "response.done": "completed",  # the Realtime API's word, seen from gateways
}


def status_word(response: Fields, *, otherwise: str = "completed") -> str:
    """`completed`, `incomplete:max_output_tokens` ..."""
    status = text_at(response, "status") or otherwise
    reason = text_at(object_at(response, "incomplete_details"), "reason")
    return f"{status}:{reason}" if status == "incomplete" and reason else status


def finish_reason(word: str, *, has_calls: bool, has_refusal: bool) -> FinishReason:
    """An unknown status is a cut one; an unknown reason for `incomplete` too."""
    reason = FINISH_REASONS.get(word, FinishReason.CUT)
    if reason != FinishReason.STOP:
        return reason
    if has_calls:
        return FinishReason.TOOL_CALLS
    return FinishReason.REFUSAL if has_refusal else FinishReason.STOP


def usage_of(fields: Fields, *, raw: msgspec.Raw) -> Usage:
    """The API counts as we do: input includes cache reads and writes, output includes reasoning."""
    read = object_at(fields, "input_tokens_details")
    return Usage(
        input_tokens=count_at(fields, "input_tokens") or 0,
        output_tokens=count_at(fields, "output_tokens") or 0,
        reasoning_tokens=count_at(object_at(fields, "output_tokens_details"), "reasoning_tokens") or 0,
        cache_read_tokens=count_at(read, "cached_tokens") or 0,
        cache_write_tokens=count_at(read, "cache_write_tokens") or 0,
        provider=bytes(raw).decode(),
    )


def usage_object(usage: Usage) -> object:
    """The provider's own object where it is one of this API, else ours in its words."""
    if usage.provider and b'"input_tokens"' in usage.provider.encode():
        return msgspec.Raw(usage.provider.encode())
    return {
        "input_tokens": usage.input_tokens,
        "input_tokens_details": {
            "cached_tokens": usage.cache_read_tokens,
            "cache_write_tokens": usage.cache_write_tokens,
        },
        "output_tokens": usage.output_tokens,
        "output_tokens_details": {"reasoning_tokens": usage.reasoning_tokens},
        "total_tokens": usage.input_tokens + usage.output_tokens,
    }
