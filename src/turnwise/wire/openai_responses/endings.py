"""How a response of the Responses API ends: its status -> our reason, and its usage <-> `Usage`."""

from collections.abc import Mapping

import msgspec

from turnwise.vocab import FinishReason, Repair, Untold, Usage
from turnwise.wire.endings import (
    MergedUsage,
    TokenCount,
    finish_of_word,
    marked,
    read_counts,
    read_told,
    says_nothing,
    says_same,
    with_terms,
)
from turnwise.wire.healing import printable
from turnwise.wire.json_fields import Fields, is_object, object_at, read_fields
from turnwise.wire.limits import MAX_PARTS
from turnwise.wire.openai_responses.parts import list_at, text_at


class InputDetails(msgspec.Struct):
    cached_tokens: TokenCount = None
    cache_write_tokens: TokenCount = None


class OutputDetails(msgspec.Struct):
    reasoning_tokens: TokenCount = None


class Counts(msgspec.Struct):
    input_tokens: TokenCount = None
    input_tokens_details: InputDetails | None = None
    output_tokens: TokenCount = None
    output_tokens_details: OutputDetails | None = None
    total_tokens: object = msgspec.UNSET


_counts = msgspec.json.Decoder(Counts, strict=False)
MISFITS: dict[str, tuple[Untold, ...]] = {
    "input_tokens_details": ("cache_read_tokens", "cache_write_tokens"),
    "output_tokens_details": ("reasoning_tokens",),
}
_NO_INPUT_DETAILS, _NO_OUTPUT_DETAILS = InputDetails(), OutputDetails()


class UsageReader:
    """Merges the usage objects of one response."""

    __slots__ = ("_merged",)

    def __init__(self) -> None:
        self._merged = MergedUsage()

    def read(self, raw: msgspec.Raw, *, tier: str = "") -> Usage | None:
        """The usage so far, or None if this object says nothing new."""
        return usage_of(self._merged.text, tier=tier) if self._merged.add(raw) else None


def usage_of(text: bytes, *, tier: str = "") -> Usage | None:
    """The API counts as we do: input includes cache reads and writes, output includes reasoning. `tier` is how the request was
    served, which the response says beside its usage."""
    counts, misfits = read_told(text, _counts)
    if counts is None:
        return None
    of_input = counts.input_tokens_details or _NO_INPUT_DETAILS
    of_output = counts.output_tokens_details or _NO_OUTPUT_DETAILS
    usage = Usage(
        input_tokens=counts.input_tokens or 0,
        output_tokens=counts.output_tokens or 0,
        reasoning_tokens=of_output.reasoning_tokens or 0,
        cache_read_tokens=of_input.cached_tokens or 0,
        cache_write_tokens=of_input.cache_write_tokens or 0,
        provider=str(text, "utf-8"),
    )
    usage = with_terms(usage, text, family="openai_responses", tier=tier)
    return marked(usage, is_output_told=counts.output_tokens is not None, misfits=misfits, counts=MISFITS)


def usage_object(usage: Usage) -> object:
    """The provider's own object where it is one of this API, else ours in its words."""
    text = usage.provider.encode()
    counts = read_counts(text, _counts)
    # Anthropic's object has fields of the same names with another meaning.
    if counts is not None and counts.total_tokens is not msgspec.UNSET and says_same(usage_of(text), usage):
        return msgspec.Raw(text)
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


# Why a response of the Responses API ended: its status -> our reason, as data. And what was left out of its input.


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
    told = text_at(response, "status")
    status = otherwise if told is None or says_nothing(told) else told
    reason = text_at(object_at(response, "incomplete_details"), "reason")
    return f"{status}:{reason}" if status == "incomplete" and not says_nothing(reason) else status


def input_repairs(response: Fields) -> list[Repair]:
    """What `input_transformations` tell: reasoning that GPT-6.2 and later were not shown, since something before it has changed.
    Source: OpenAI docs, "Keep the prefix unchanged"; openai-python 3.57, types/responses/response.py."""
    entries = [read_fields(raw) for raw in list_at(response, "input_transformations")[:MAX_PARTS] if is_object(raw)]
    removed = [one for one in entries if text_at(one, "action") == "removed"]
    if not removed:
        return []
    reasons = [printable(text_at(one, "reason") or "no reason") for one in removed]
    counted = ", ".join([f"{reasons.count(reason)} x {reason}" for reason in dict.fromkeys(reasons)])
    where = printable(text_at(removed[0], "id") or "input")
    return [Repair("thinking_dropped", where, f"the provider left reasoning out of the prompt: {counted}")]


def finish_reason(word: str, *, has_calls: bool, has_refusal: bool) -> FinishReason:
    """An unknown reason for `incomplete` leaves the response cut, which the status says."""
    is_cut = word not in FINISH_REASONS and word.startswith("incomplete:")
    reason = FinishReason.CUT if is_cut else finish_of_word(word, own=FINISH_REASONS)
    if reason != FinishReason.STOP:
        return reason
    if has_calls:
        return FinishReason.TOOL_CALLS
    return FinishReason.REFUSAL if has_refusal else FinishReason.STOP
