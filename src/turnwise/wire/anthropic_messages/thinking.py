"""How a model of the Messages API is asked to think: by effort, by a budget, or not at all."""

import re
from collections.abc import Sequence
from typing import Literal

from turnwise.vocab import Message, Reasoning, ToolCall
from turnwise.wire.anthropic_messages.fields import own_fields
from turnwise.wire.profiles import Profile

Way = Literal["adaptive", "budget", "none"]

# Beginnings of the names of models that know no adaptive thinking, first found first. Sources: AWS docs, "Adaptive thinking"
# ("older models (Claude Sonnet 4.5, Claude Opus 4.5, etc.) ... require thinking.type: enabled with budget_tokens"); API docs,
# "Extended thinking", supported models (the first is Claude Sonnet 3.7). Whatever is newer, or unknown, is adaptive.
OLDER_MODELS: tuple[tuple[str, Way], ...] = (
    ("claude-3-7", "budget"),
    ("claude-3", "none"),
    ("claude-2", "none"),
    ("claude-instant", "none"),
    ("claude-opus-4-0", "budget"),
    ("claude-opus-4-1", "budget"),
    ("claude-opus-4-2025", "budget"),
    ("claude-opus-4-5", "budget"),
    ("claude-sonnet-4-0", "budget"),
    ("claude-sonnet-4-2025", "budget"),
    ("claude-sonnet-4-5", "budget"),
    ("claude-haiku-4-5", "budget"),
)
_BARE = re.compile(r"claude-(?:opus|sonnet|haiku)-4")  # what comes later has a number behind it


def way_of(model: str, profile: Profile) -> Way:
    """Names may have a vendor before them, and dots or `@` for dashes (Bedrock, Vertex AI, OpenRouter)."""
    if profile.reasoning_request == "budget":
        return "budget"
    at = model.find("claude-")
    name = re.sub(r"[.@:]", "-", model[max(0, at) :])
    if _BARE.fullmatch(name):
        return "budget"
    for beginning, way in OLDER_MODELS:
        if name.startswith(beginning):
            return way
    return "adaptive"


def may_think_by_budget(messages: Sequence[Message]) -> bool:
    """False where the turn at hand began with calls and no thinking of this API's: another family's model made them, or
    thinking was off. The API answers 400 then ("Expected `thinking` or `redacted_thinking`, but found `tool_use` ... To avoid
    this requirement, disable `thinking`"). With adaptive thinking it asks for none (API docs, "Adaptive thinking")."""
    answer: list[Message] = []
    for at in range(len(messages) - 1, -1, -1):
        message = messages[at]
        # What a user says behind results goes in one message with them, and the turn goes on.
        if message.role == "user" and (at == 0 or messages[at - 1].role != "tool"):
            break
        if message.role == "assistant":
            answer.append(message)
    if not answer or not any(isinstance(part, ToolCall) for message in answer for part in message.parts):
        return True
    return any(_is_signed(part) for part in answer[-1].parts if isinstance(part, Reasoning))


def _is_signed(part: Reasoning) -> bool:
    own = own_fields(part.opaque)
    return "signature" in own or "data" in own
