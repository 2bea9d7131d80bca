"""A whole message as the API answers it without streaming -> the frames that a stream of it would have given."""

import msgspec

from turnwise.vocab import (
    BlockData,
    BlockEnded,
    Faulted,
    Frame,
    Lost,
    Mended,
    PartDone,
    Repair,
    Started,
    ToolCallDelta,
    UsageReported,
)
from turnwise.wire.anthropic_messages.endings import UsageTally, read_finish
from turnwise.wire.anthropic_messages.events import plain_text
from turnwise.wire.anthropic_messages.faults import stream_fault
from turnwise.wire.anthropic_messages.parts import TOOL_USE_KEYS, arguments_of, opaque_from, read_block
from turnwise.wire.anthropic_messages.thinking import input_repairs
from turnwise.wire.endings import unsaid_finish
from turnwise.wire.family import BadRequest
from turnwise.wire.faults import no_response
from turnwise.wire.healing import is_too_long, is_utf8
from turnwise.wire.json_fields import UNREADABLE, Fields, first_byte, read_fields, read_items, string_of, write_object
from turnwise.wire.limits import MAX_PARTS, Limits
from turnwise.wire.long_events import told_long_calls, too_much


def body_frames(body: bytes, *, expected: str, limits: Limits) -> list[Frame]:
    """`expected` says what should have come, for the message when this is no message of the API."""
    fault = Faulted(no_response(body, expected=f"{expected} of the Messages API"))
    if not body.strip():
        return [fault]
    body = told_long_calls(body, limits=limits)
    if (too_large := too_much(body, call_bytes=limits.call_bytes)) is not None:
        return [Faulted(too_large)]
    frames: list[Frame] = []
    is_replaced = not is_utf8(body)
    if is_replaced and is_too_long(body):
        return [fault]
    try:
        fields = read_fields(body.decode("utf-8", "replace") if is_replaced else body)
    except UNREADABLE:
        return [fault]
    if string_of(fields, "type") == "error" or ("error" in fields and "content" not in fields):
        return [*frames, Faulted(stream_fault(fields))]
    if "content" not in fields:
        return [*frames, fault]
    frames.append(Started(id=string_of(fields, "id"), model=string_of(fields, "model")))
    frames += [Mended(repair) for repair in input_repairs(fields)]
    frames += content_frames(fields["content"])
    if is_replaced:
        frames.append(lost("invalid_utf8", "body", "invalid UTF-8 became replacement characters", reaches_ended=True))
    usage = UsageTally().add(fields["usage"]) if "usage" in fields else None
    if usage is not None:
        frames.append(UsageReported(usage))
    end = read_finish(string_of(fields, "stop_reason"), explanation=explanation_of(fields.get("stop_details")))
    return [*frames, *(end or [unsaid_finish("its whole body")])]


def content_frames(content: msgspec.Raw, *, prefix: str = "") -> list[Frame]:
    """The blocks of a `content` array, or one block, or its text, in its place. A block that cannot be read is lost."""
    frames: list[Frame] = []
    try:
        items = _items_of(content)[:MAX_PARTS]
    except UNREADABLE:
        return [lost("unreadable_content", "body", "`content` that is no array left out")]
    for i, item in enumerate(items):
        block = f"{prefix}{i}"
        try:
            fields = read_fields(item)
            frames += _block_frames(fields, block)
        except (BadRequest, *UNREADABLE) as error:
            frames.append(lost("unreadable_block", f"content.{i}", f"left out: {str(error)[:200]}"))
    return frames


def _items_of(content: msgspec.Raw) -> list[msgspec.Raw]:
    match first_byte(content):
        case b"{":
            return [content]
        case b'"':
            return [msgspec.Raw(write_object({"type": b'"text"', "text": bytes(content)}))]
        case _:
            return read_items(content)


def lost(kind: str, where: str, what: str, *, reaches_ended: bool = False) -> Lost:
    """A call is open until its `content_block_stop`, so blocks that have ended miss nothing."""
    return Lost(Repair(kind, where, what), reaches_ended)


def _block_frames(fields: Fields, block: str) -> list[Frame]:
    if string_of(fields, "type") != "tool_use":
        plain = plain_text(fields)
        if plain is None:
            raise BadRequest(f"{block}: its text cannot be read")
        return [PartDone(block, read_block(plain, block)), BlockEnded(block)]
    id, name = string_of(fields, "id"), string_of(fields, "name")
    # Whole, so that the assembler can tell a call that was handed out as an object by a response that hit its limit.
    call = ToolCallDelta(block=block, id=id, name=name, arguments=arguments_of(fields) or "{}", whole=True)
    opaque = opaque_from(fields, TOOL_USE_KEYS)
    return [call, BlockEnded(block)] if opaque is None else [call, BlockData(block, opaque), BlockEnded(block)]


def explanation_of(stop_details: msgspec.Raw | None) -> str | None:
    """Why it stopped, in the provider's words (`stop_details`, sent with a refusal), with the category and the model that the
    provider recommends for such a request."""
    if not stop_details:
        return None
    try:
        fields = read_fields(stop_details)
    except UNREADABLE:
        return None
    said, category, other = [string_of(fields, key) for key in ("explanation", "category", "recommended_model")]
    more = [f"category `{category}`"] if category else []
    more += [f"recommended model `{other}`"] if other else []
    return said if not more else f"{said or ''} ({', '.join(more)})".lstrip()
