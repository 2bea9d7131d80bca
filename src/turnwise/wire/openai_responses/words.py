"""Why a response of the Responses API ended: its status -> our reason, as data. And what was left out of its input."""

from collections.abc import Mapping

from turnwise.vocab import FinishReason, Repair
from turnwise.wire.finish_words import finish_of_word, says_nothing
from turnwise.wire.healing import printable
from turnwise.wire.json_fields import Fields, is_object, object_at, read_fields
from turnwise.wire.limits import MAX_PARTS
from turnwise.wire.openai_responses.fields import list_at, text_at

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
