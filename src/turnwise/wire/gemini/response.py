"""Whole bodies <-> frames and responses. A body is one chunk, read by the same reader as the chunks of a stream."""

from turnwise.vocab import (
    ArgumentsState,
    Citation,
    Faulted,
    Finished,
    FinishReason,
    Frame,
    Request,
    Response,
    Text,
    ToolCall,
)
from turnwise.wire.faults import no_response, too_large
from turnwise.wire.gemini.chunk_reader import ChunkReader
from turnwise.wire.gemini.faults import encode_error
from turnwise.wire.gemini.parts import encode_part
from turnwise.wire.gemini.stream_encoder import finish_fields, is_sendable
from turnwise.wire.json_fields import quote, write_object
from turnwise.wire.limits import Limits
from turnwise.wire.many_items import told_long_calls, too_much
from turnwise.wire.profiles import Profile


def decode_body(body: bytes, profile: Profile, limits: Limits) -> list[Frame]:
    """The frames of a body of `generateContent`."""
    if len(body) > limits.response_bytes:
        return [Faulted(too_large(limits.response_bytes))]
    body = told_long_calls(body, limits=limits)
    if (fault := too_much(body, call_bytes=limits.call_bytes)) is not None:
        return [Faulted(fault)]
    reader = ChunkReader()
    frames: list[Frame] = []
    reader.read(body.removeprefix(b"\xef\xbb\xbf"), frames)
    if reader.chunks:
        return frames + reader.finish()
    return [Faulted(no_response(body, expected="a response of Gemini's"))]


def encode_body(response: Response, request: Request) -> bytes:
    """The body of `generateContent`. A fault stands beside what had arrived before it."""
    parts: list[bytes] = []
    citations: list[Citation] = []
    for part in response.message.parts:
        if isinstance(part, Text):
            citations += part.citations
        if isinstance(part, ToolCall) and not is_sendable(part):
            continue
        if isinstance(part, ToolCall) and part.state is not ArgumentsState.COMPLETE:
            part = ToolCall(id=part.id, name=part.name, arguments=part.arguments, opaque=part.opaque)
        text = encode_part(part, sends_ids=True)
        if text is not None:
            parts.append(text)
    finished = None
    if response.finish is not FinishReason.CUT:
        finished = Finished(response.finish, response.provider_finish, explanation=response.explanation)
    fields = finish_fields(finished, usage=response.usage, citations=citations, parts=parts, empty=True)
    if response.fault is not None:
        fields["error"] = encode_error(response.fault)[1]
    fields["modelVersion"] = quote(response.model or request.model)
    if response.id is not None:
        fields["responseId"] = quote(response.id)
    return write_object(fields)
