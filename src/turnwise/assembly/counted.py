"""What a response itself tells of its usage: what the model wrote was not counted where the count is 0."""

from collections.abc import Sequence

from turnwise.vocab import File, Part, Reasoning, Refusal, Text, ToolCall, Usage, with_untold


def as_counted(usage: Usage | None, *, parts: Sequence[Part]) -> Usage | None:
    """The usage, its output untold where it leaves no token for what the model wrote, beside its reasoning or at all."""
    if usage is None or usage.output_tokens > usage.reasoning_tokens:
        return usage
    has_spoken = any(map(_is_answer, parts))
    has_thought = any(isinstance(part, Reasoning) and part.text for part in parts)
    is_silent = usage.output_tokens == usage.reasoning_tokens and has_spoken
    if is_silent or (not usage.output_tokens and has_thought):
        return with_untold(usage, ("output_tokens",))
    return usage


def _is_answer(part: Part) -> bool:
    match part:
        case Text(text=text) | Refusal(text=text):
            return bool(text)
        case _:
            return isinstance(part, ToolCall | File)
