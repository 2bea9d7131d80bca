"""A whole response as a body of the Messages API, both ways."""

import msgspec

from turnwise.vocab import NO_USAGE, Faulted, File, Frame, Part, Reasoning, Request, Response
from turnwise.wire.anthropic_messages.body import body_frames
from turnwise.wire.anthropic_messages.faults import error_body
from turnwise.wire.anthropic_messages.parts import write_block, write_reasoning
from turnwise.wire.anthropic_messages.stream import MessagesStreamDecoder
from turnwise.wire.anthropic_messages.usage import write_usage
from turnwise.wire.anthropic_messages.words import stop_word
from turnwise.wire.faults import too_large
from turnwise.wire.json_fields import quote, write_array, write_object
from turnwise.wire.limits import Limits
from turnwise.wire.profiles import Profile

ANSWERING = Profile(name=__name__, family="anthropic_messages")
"""Blocks are written by the same rules as in a request to the API itself."""

_STREAM_BEGINS = (b"event:", b"data:", b":")


def decode_body(body: bytes, profile: Profile, limits: Limits) -> list[Frame]:
    """An event stream from a server that streams unasked is read as one."""
    if len(body) > limits.response_bytes:
        return [Faulted(too_large(limits.response_bytes))]
    if body.lstrip()[:6].startswith(_STREAM_BEGINS):
        decoder = MessagesStreamDecoder(profile, limits)
        return decoder.feed(body) + decoder.finish()
    return body_frames(body, expected="a message", limits=limits)


def encode_body(response: Response, request: Request) -> bytes:
    if response.fault is not None:
        return error_body(response.fault)
    sequence = response.stop_sequence
    word = stop_word(response.finish, response.provider_finish if sequence is None else "stop_sequence")
    blocks = [block for part in response.message.parts if (block := write_answer_block(part)) is not None]
    return write_object(
        {
            "id": quote(response.id or "msg_0"),
            "type": b'"message"',
            "role": b'"assistant"',
            "model": quote(response.model or request.model),
            "content": write_array(blocks),
            "stop_reason": b"null" if word is None else quote(word),
            "stop_sequence": b"null" if sequence is None else quote(sequence),
            "stop_details": stop_details(word, response.explanation),
            "usage": write_usage(response.usage or NO_USAGE),
        }
    )


def write_answer_block(part: Part) -> bytes | None:
    """One block of an answer: as in a request, but unsigned reasoning is shown and files have no place."""
    match part:
        case Reasoning():
            return write_reasoning(part, signed_only=False)
        case File():
            return None
        case _:
            return write_block(part, ANSWERING)


def stop_details(word: str | None, explanation: str | None) -> bytes:
    if word != "refusal" or explanation is None:
        return b"null"
    return msgspec.json.encode({"type": "refusal", "category": None, "explanation": explanation})
