"""A client's conversation as the upstream takes it: healed as the library writes one, and told (promise heal:dialect).

Between equal families the body goes up in its own bytes, unless the upstream would refuse how the conversation is written, by
its row or by what its refusals have taught. Then the messages alone are written anew; what the client said stays as it was said.
"""

from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise

import msgspec

from turnwise.relay.terms import UpstreamRequest, not_carried
from turnwise.rules.retries import LESSONS_SAID, lesson_of
from turnwise.vocab import Fault, Message, Reasoning, Repair, Request, ServerLesson, Text, ToolCall, ToolResult
from turnwise.wire.json_fields import UNREADABLE, Fields, read_fields, read_items, string_of
from turnwise.wire.openai_chat.request import asked_in_words
from turnwise.wire.profiles import Profile
from turnwise.wire.registry import family

NONE = msgspec.Raw(b"[]")
Rewrite = Callable[[tuple[ServerLesson, ...]], UpstreamRequest]
"""The client's request anew, written by what the upstream's refusals have taught."""


def rewritten(fault: Fault, *, request: Request, rewrite: Rewrite) -> tuple[UpstreamRequest, Repair] | None:
    """What goes up once more where the upstream refused `request` by known words, and what was learned; None elsewhere."""
    lesson = lesson_of(fault, known=request.lessons)
    if lesson is None:
        return None
    told = Repair("dialect", "request", f"the upstream {LESSONS_SAID[lesson]}; sent again")
    return rewrite((*request.lessons, lesson)), told


def reshaped(request: Request, profile: Profile) -> list[Repair]:
    """What the upstream would have refused in the conversation, and how it goes: for Chat Completions, by its row."""
    return [not_carried(where, because=because) for where, because in _unfit(request, profile)]


def heal_messages(fields: Fields, request: Request, *, profile: Profile) -> list[Repair]:
    """Writes the messages of a client's body anew where the upstream would refuse them."""
    if "max_completion_tokens" in request.lessons and "max_tokens" in fields:
        fields["max_completion_tokens"] = fields.pop("max_tokens")
    told = reshaped(request, profile)
    if profile.strict_messages:
        told += [not_carried("messages", because=because) for because in _unfit_bytes(fields, profile)]
    if not told:
        return []
    body = read_fields(family(profile.family).encode_request(request, profile).body)
    fields["messages"] = body["messages"]
    if asked_in_words(request, profile):
        fields.pop("tool_choice", None)
    return told


def _unfit(request: Request, profile: Profile) -> Iterator[tuple[str, str]]:
    system, messages = _leading(request)
    if profile.later_system == "user":
        if system > 1:
            yield "messages.role", "leading system messages go as one"
        if any(message.role == "system" for message in messages):
            yield "messages.role", "a system message in mid-conversation goes as the user's"
    if profile.behind_results == "assistant" and any(_is_behind(*pair) for pair in pairwise(messages)):
        yield "messages", "an assistant's `OK` goes between a tool result and the user, as the upstream wants it"
    if profile.reasoning_stand_in is not None and any(map(_lacks_reasoning, messages)):
        yield "messages.reasoning_content", "calls go with an empty one, as the upstream refuses them without"
    if profile.calls_content is not None and any(map(_has_bare_calls, messages)):
        yield "messages.content", "calls go with an empty text, as the upstream refuses none"
    if profile.joined_models and profile.joins_neighbours(request.model) and any(map(_is_alike, pairwise(messages))):
        yield "messages", "neighbours of one role go as one message, as the upstream wants them by turns"
    if asked_in_words(request, profile):
        yield "tool_choice", "the upstream refuses it; the model is asked in words"


def _leading(request: Request) -> tuple[int, Sequence[Message]]:
    """How many system messages lead, and the messages behind them."""
    messages, at = request.messages, 0
    while at < len(messages) and messages[at].role == "system":
        at += 1
    return len(request.system) + at, messages[at:]


def _is_behind(before: Message, message: Message) -> bool:
    if before.role != "tool":
        return False
    has_files = any(
        type(part) is ToolResult and any(type(one) is not Text for one in part.content) for part in before.parts
    )
    return has_files or message.role in ("user", "system")


def _is_alike(pair: tuple[Message, Message]) -> bool:
    before, message = pair
    return before.role == message.role != "tool" and not (_calls(before) or _calls(message))


def _calls(message: Message) -> bool:
    return any(type(part) is ToolCall for part in message.parts)


def _lacks_reasoning(message: Message) -> bool:
    return _calls(message) and not any(type(part) is Reasoning and part.text for part in message.parts)


def _has_bare_calls(message: Message) -> bool:
    return _calls(message) and not any(type(part) is Text for part in message.parts)


def _unfit_bytes(fields: Fields, profile: Profile) -> Iterator[str]:
    """What the vocabulary does not tell: how a role or a content is written."""
    try:
        messages = [read_fields(raw) for raw in read_items(fields.get("messages", NONE))]
    except UNREADABLE:
        return
    if any(string_of(message, "role") == "developer" for message in messages):
        yield "`developer` goes as `system`, which the upstream takes"
    results = [one.get("content") for one in messages if string_of(one, "role") == "tool"]
    if any(raw is not None and bytes(memoryview(raw)[:1]) == b"[" for raw in results):
        yield "a result's texts go as one string, which the upstream takes"
