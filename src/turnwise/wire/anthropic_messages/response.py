"""A whole response as a body of the Messages API, both ways, and frames as its stream."""

from collections.abc import Mapping

import msgspec

from turnwise.vocab import (
    NO_USAGE,
    BlockData,
    BlockEnded,
    CallForming,
    CitationAdded,
    Faulted,
    File,
    Finished,
    Frame,
    Lost,
    Mended,
    Part,
    PartDone,
    ProviderItem,
    Reasoning,
    ReasoningDelta,
    Refusal,
    RefusalDelta,
    Request,
    Response,
    Restated,
    Started,
    Text,
    TextDelta,
    ToolCall,
    ToolCallDelta,
    UsageReported,
)
from turnwise.vocab.json_values import without
from turnwise.wire.anthropic_messages.endings import stop_word, write_usage
from turnwise.wire.anthropic_messages.events import body_frames
from turnwise.wire.anthropic_messages.faults import error_body
from turnwise.wire.anthropic_messages.parts import NAME, merged, own_fields, tool_use_id, write_block, write_reasoning
from turnwise.wire.anthropic_messages.stream import MessagesStreamDecoder
from turnwise.wire.family import UNSTAMPED, AnswerStamp
from turnwise.wire.faults import too_large
from turnwise.wire.json_fields import UNREADABLE, quote, read_fields, write_array, write_object
from turnwise.wire.profiles import Limits, Profile
from turnwise.wire.sse import encode_event

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


def encode_body(response: Response, request: Request, stamp: AnswerStamp = UNSTAMPED) -> bytes:
    if response.fault is not None:
        return error_body(response.fault)
    sequence = response.stop_sequence
    word = stop_word(response.finish, response.provider_finish if sequence is None else "stop_sequence")
    blocks = [block for part in response.message.parts if (block := write_answer_block(part)) is not None]
    return write_object(
        {
            "id": quote(response.id or own_id(stamp)),
            "type": b'"message"',
            "role": b'"assistant"',
            "model": quote(response.model or request.model),
            "content": write_array(blocks),
            "stop_reason": b"null" if word is None else quote(word),
            "stop_sequence": b"null" if sequence is None else quote(sequence),
            "stop_details": stop_details(word, response.explanation),
            "usage": write_usage(response.usage or NO_USAGE),
            "container": b"null",
        }
    )


def own_id(stamp: AnswerStamp) -> str:
    return f"msg_{stamp.id or 0}"


def write_answer_block(part: Part) -> bytes | None:
    """One block of an answer: as in a request, but unsigned reasoning is shown, files have no place, and each field is said."""
    match part:
        case Reasoning():
            return write_reasoning(part, signed_only=False)
        case File():
            return None
        case Text() | Refusal() | ToolCall():
            block = write_block(part, ANSWERING)
            kind = "tool_use" if type(part) is ToolCall else "text"
            fields = {} if block is None else read_fields(block)
            return write_object({**fields, **without(UNSAID[kind], fields)}) if fields else None
        case _:
            return write_block(part, ANSWERING)


# What a request may leave out of a block, and the API says in every answer (API reference, "Messages").
UNSAID: Mapping[str, Mapping[str, bytes]] = {
    "text": {"citations": b"null"},
    "tool_use": {"caller": b'{"type":"direct"}'},
}


def stop_details(word: str | None, explanation: str | None) -> bytes:
    if word != "refusal" or explanation is None:
        return b"null"
    return msgspec.json.encode({"type": "refusal", "category": None, "explanation": explanation})


# Frames -> the stream as the Messages API sends it: one block after the other, each started, filled and stopped.
#
# The API never has two blocks open at once, and clients rely on it. So the current block goes out as it comes, and pieces of
# another one (parallel calls of Chat Completions may interleave) wait until it ends.


_BlockFrame = (
    TextDelta | ReasoningDelta | RefusalDelta | ToolCallDelta | BlockData | CitationAdded | PartDone | BlockEnded
)


class _Block:
    """A block that is being written. It starts on the wire with the first piece that says something, so that an empty
    one, which the API never sends, does not start at all."""

    __slots__ = ("fields", "free_form", "kind", "pieces", "started")

    def __init__(self, kind: str) -> None:
        self.kind = kind
        self.fields: dict[str, bytes] = {"type": quote(kind)}
        self.pieces: list[str] = []  # arguments that wait for the call's name
        self.started = False
        self.free_form = False  # goes out as the one parameter `input` of the stand-in tool


class MessagesStreamEncoder:
    """One streamed response. See wire/family.py, StreamEncoder."""

    def __init__(self, request: Request, stamp: AnswerStamp = UNSTAMPED) -> None:
        self._model = request.model
        self._own_id = own_id(stamp)
        self._usage = NO_USAGE
        self._finished: Finished | None = None
        self._faulted = False
        self._begin(Started())

    def _begin(self, started: Started) -> None:
        self._message = started
        self._message_out = False
        self._index = 0
        self._live: str | None = None
        self._block: _Block | None = None
        self._waiting: dict[str, list[_BlockFrame]] = {}
        self._written: set[str] = set()  # blocks that have ended

    def encode(self, frame: Frame) -> bytes:
        out: list[bytes] = []
        match frame:
            case Started():
                self._begin(frame)
            case UsageReported(usage=usage):
                self._usage = usage
            case Finished():
                self._start_message(out)
                self._finished = frame
                self._drain(out)
            case Faulted(fault=fault):
                self._faulted = True
                out.append(encode_event(error_body(fault), name="error"))
            case Mended() | Lost() | Restated() | CallForming():
                pass  # a repair of ours is nothing that the API would send
            case _:
                self._start_message(out)
                self._route(frame, out)
        return b"".join(out)

    def close_ended(self) -> bytes:
        return b""  # nothing wraps blocks here

    def finish(self, *, ended_s: int | None = None) -> bytes:
        """Without a Finished the stream was cut, and is cut here too: the API would not say why it ended either."""
        if self._faulted:
            return b""
        out: list[bytes] = []
        self._start_message(out)
        self._drain(out)
        if self._finished is not None:
            end = self._finished
            sequence = end.stop_sequence
            said = end.provider_reason if sequence is None else "stop_sequence"
            word = stop_word(end.reason, said, limit_reached=end.limit_reached)
            if word is not None:
                delta = write_object(
                    {
                        "stop_reason": quote(word),
                        "stop_sequence": b"null" if sequence is None else quote(sequence),
                        "stop_details": stop_details(word, end.explanation),
                        "container": b"null",
                    }
                )
                self._event(out, "message_delta", delta=delta, usage=write_usage(self._usage))
                self._event(out, "message_stop")
        return b"".join(out)

    def _start_message(self, out: list[bytes]) -> None:
        """Held back until the first block, because the usage of the prompt stands in it."""
        if self._message_out:
            return
        self._message_out = True
        message = write_object(
            {
                "id": quote(self._message.id or self._own_id),
                "type": b'"message"',
                "role": b'"assistant"',
                "model": quote(self._message.model or self._model),
                "content": b"[]",
                "stop_reason": b"null",
                "stop_sequence": b"null",
                "stop_details": b"null",
                "usage": write_usage(self._usage),
                "container": b"null",
            }
        )
        self._event(out, "message_start", message=message)

    # --- which block's turn it is

    def _route(self, frame: _BlockFrame, out: list[bytes]) -> None:
        name = frame.block or "call"
        while self._live not in (None, name):
            if self._block is not None and self._block.kind == "tool_use":
                self._waiting.setdefault(name, []).append(frame)
                return
            self._stop(out)  # text and reasoning end where something else begins
            self._next(out)
        self._write(name, frame, out)

    def _drain(self, out: list[bytes]) -> None:
        """End the current block and write those that waited."""
        self._stop(out)
        while self._waiting:
            name = next(iter(self._waiting))
            for frame in self._waiting.pop(name):
                self._write(name, frame, out)
            self._stop(out)

    def _write(self, name: str, frame: _BlockFrame, out: list[bytes]) -> None:
        match frame:
            case BlockEnded():
                if self._live == name:
                    self._stop(out)
                    self._next(out)
            case PartDone(part=part):
                self._whole(name, part, out)
            case TextDelta(text=text) | RefusalDelta(text=text):
                self._piece(name, "text", "text_delta", "text", text, out)
            case ReasoningDelta(text=text):
                self._piece(name, "thinking", "thinking_delta", "thinking", text, out)
            case CitationAdded(citation=citation):
                if citation.family == NAME:
                    self._start(self._open(name, "text"), out)
                    self._delta(out, "citations_delta", "citation", citation.raw.encode())
            case BlockData():
                self._extras(name, frame, out)
            case ToolCallDelta():
                self._call(name, frame, out)

    def _next(self, out: list[bytes]) -> None:
        """The first block that waited takes over; those that ended while waiting are written whole."""
        while self._waiting and self._live is None:
            name = next(iter(self._waiting))
            for frame in self._waiting.pop(name):
                if isinstance(frame, BlockEnded):
                    self._stop(out)
                else:
                    self._write(name, frame, out)

    # --- one block

    def _open(self, name: str, kind: str) -> _Block:
        if self._block is None or self._live != name:
            self._live = name
            self._block = _Block(kind)
        return self._block

    def _start(self, block: _Block, out: list[bytes]) -> None:
        if not block.started:
            block.started = True
            if block.kind == "text":
                fields = {"type": b'"text"', "text": b'""', **UNSAID["text"], **block.fields}
            elif block.kind == "thinking":
                fields = {"type": b'"thinking"', "thinking": b'""', "signature": b'""'} | block.fields
            else:
                fields = block.fields
            self._event(out, "content_block_start", index=self._number(), content_block=write_object(fields))

    def _stop(self, out: list[bytes]) -> None:
        block = self._block
        if block is not None:
            if block.kind == "tool_use":
                if block.free_form:
                    block.pieces.append('"}')
                self._start_call(block, out)
            if block.started:
                self._event(out, "content_block_stop", index=self._number())
                self._index += 1
            if self._live is not None:
                self._written.add(self._live)
        self._live = self._block = None

    def _piece(self, name: str, kind: str, delta: str, key: str, text: str, out: list[bytes]) -> None:
        block = self._open(name, kind)
        if text:
            self._start(block, out)
            self._delta(out, delta, key, quote(text))

    def _extras(self, name: str, frame: BlockData, out: list[bytes]) -> None:
        own = own_fields(frame.opaque)
        if not own:
            return
        if "data" in own:
            block = self._open(name, "redacted_thinking")
            block.kind = "redacted_thinking"
            block.fields = merged({"type": b'"redacted_thinking"'}, frame.opaque)
            self._start(block, out)
        elif "signature" in own:
            self._start(self._open(name, "thinking"), out)
            self._delta(out, "signature_delta", "signature", bytes(own["signature"]))
        elif self._block is not None and self._live == name and not self._block.started:
            merged(self._block.fields, frame.opaque)

    def _call(self, name: str, frame: ToolCallDelta, out: list[bytes]) -> None:
        if name in self._written and self._live != name:
            return  # a block that was stopped cannot grow
        block = self._open(name, "tool_use")
        if frame.free_form and not block.free_form and not block.started:
            block.free_form = True
            block.pieces.append('{"input":"')
        if frame.id and "id" not in block.fields:
            block.fields["id"] = quote(tool_use_id(frame.id))
        if frame.name and "name" not in block.fields:
            block.fields["name"] = quote(frame.name)
        if frame.arguments:
            text = frame.arguments
            block.pieces.append(str(quote(text)[1:-1], "utf-8") if block.free_form else text)
            if "name" in block.fields:
                self._start_call(block, out)

    def _start_call(self, block: _Block, out: list[bytes]) -> None:
        if not block.started:
            extras = {key: value for key, value in block.fields.items() if key not in ("type", "id", "name")}
            block.fields = {
                "type": b'"tool_use"',
                "id": block.fields.get("id", quote(f"toolu_{self._index}")),
                "name": block.fields.get("name", b'""'),
                "input": b"{}",
                **UNSAID["tool_use"],
                **extras,
            }
            self._start(block, out)
        for piece in block.pieces:
            self._delta(out, "input_json_delta", "partial_json", quote(piece))
        block.pieces.clear()

    def _whole(self, name: str, part: object, out: list[bytes]) -> None:
        """A part in its final form. What has gone out of it already cannot be taken back, so it is written only if nothing
        has."""
        if name in self._written or (self._live == name and self._block is not None and self._block.started):
            return
        self._live = self._block = None
        match part:
            case Text() if part.text:
                for citation in part.citations:
                    self._write(name, CitationAdded(name, citation), out)
                self._piece(name, "text", "text_delta", "text", part.text, out)
            case ToolCall():
                block = self._open(name, "tool_use")
                merged(block.fields, part.opaque)
                arguments = part.arguments if part.arguments != "{}" else None
                call = ToolCallDelta(id=part.id, name=part.name, arguments=arguments, free_form=part.free_form)
                self._call(name, call, out)
            case Reasoning():
                self._piece(name, "thinking", "thinking_delta", "thinking", part.text, out)
                if part.opaque is not None:
                    self._extras(name, BlockData(name, part.opaque), out)
            case Refusal():
                self._piece(name, "text", "text_delta", "text", part.text, out)
            case ProviderItem():
                self._item(name, part, out)
            case _:
                return  # a file has no place in an answer

    def _item(self, name: str, part: ProviderItem, out: list[bytes]) -> None:
        """An item of this family; its input, where it has one, comes by deltas as with a call."""
        if part.family != NAME:
            return
        try:
            fields = {key: bytes(raw) for key, raw in read_fields(part.json).items()}
        except UNREADABLE:
            return
        block = self._open(name, part.kind)
        input = fields.get("input") if part.kind.endswith("_tool_use") else None
        block.fields = fields if input is None else fields | {"input": b"{}"}
        self._start(block, out)
        if input is not None and input != b"{}":
            self._delta(out, "input_json_delta", "partial_json", quote(str(input, "utf-8")))

    def _number(self) -> bytes:
        return str(self._index).encode()

    def _delta(self, out: list[bytes], type: str, key: str, value: bytes) -> None:
        delta = b'{"type":"' + type.encode() + b'","' + key.encode() + b'":' + value + b"}"
        self._event(out, "content_block_delta", index=self._number(), delta=delta)

    def _event(self, out: list[bytes], type: str, **fields: bytes) -> None:
        body = write_object({"type": quote(type), **fields})
        out.append(encode_event(body, name=type))
