"""Reasoning that another family's model had, in a history for an upstream of the client's own family.

A route may have answered with another family's model before. Its reasoning went to the client as thinking, without the data
that the client's family asks for. The provider refuses a request that has it: Anthropic wants a signature, and OpenAI looks for
an item that it never stored.
"""

from collections.abc import Callable, Iterable

import msgspec

from turnwise.relay.terms import not_carried
from turnwise.vocab import Reasoning, Repair, Request
from turnwise.wire.anthropic_messages.thinking import may_think_by_budget
from turnwise.wire.json_fields import (
    Fields,
    fields_in,
    is_null,
    is_object,
    read_fields,
    read_items,
    string_of,
    write_array,
    write_object,
)

BECAUSE = "reasoning without the provider's own data is refused"


def without_unsigned_thinking(fields: Fields, request: Request) -> list[Repair]:
    """Takes thinking blocks without a signature out of a body of Anthropic's API."""
    if not any(_is_unsigned(part) for message in request.messages for part in message.parts):
        return []
    messages: list[bytes] = []
    for raw in read_items(fields["messages"]):
        message = read_fields(raw)
        content = message.get("content")
        if content is None or bytes(memoryview(content)[:1]) != b"[":
            messages.append(bytes(raw))
        elif kept := _kept(content, is_stale=_is_unsigned_block):
            messages.append(write_object({**message, "content": write_array(kept)}))
    fields["messages"] = msgspec.Raw(write_array(messages))
    told = [not_carried("messages.content.thinking", because=BECAUSE)]
    thinking = fields.get("thinking")
    is_budget = thinking is not None and is_object(thinking) and string_of(read_fields(thinking), "type") == "enabled"
    if is_budget and not may_think_by_budget(request.messages):
        fields["thinking"] = msgspec.Raw(b'{"type":"disabled"}')
        told.append(
            not_carried("thinking", because="a turn that began without the provider's thinking goes on without")
        )
    return told


def without_unstored_reasoning(fields: Fields, request: Request) -> list[Repair]:
    """Takes reasoning items that neither carry their content nor are stored out of a body of the Responses API."""
    has_any = any(type(part) is Reasoning for message in request.messages for part in message.parts)
    if not has_any or bytes(fields.get("store", b"")) != b"false":
        return []
    items = read_items(fields["input"])
    kept = _kept(fields["input"], is_stale=_is_bare_reasoning)
    if len(kept) == len(items):
        return []
    fields["input"] = msgspec.Raw(write_array(kept))
    return [not_carried("input.reasoning", because=BECAUSE)]


def _kept(array: msgspec.Raw, *, is_stale: Callable[[Fields], bool]) -> list[bytes]:
    return [bytes(raw) for raw in read_items(array) if not (is_object(raw) and is_stale(read_fields(raw)))]


def _is_unsigned(part: object) -> bool:
    if type(part) is not Reasoning:
        return False
    return _lacks(fields_in(part.opaque, family="anthropic_messages"), ("signature", "data"))


def _is_unsigned_block(block: Fields) -> bool:
    return string_of(block, "type") == "thinking" and not string_of(block, "signature")


def _is_bare_reasoning(item: Fields) -> bool:
    return string_of(item, "type") == "reasoning" and _lacks(item, ("encrypted_content", "content"))


def _lacks(fields: Fields, keys: Iterable[str]) -> bool:
    return all(is_null(fields.get(key)) for key in keys)
