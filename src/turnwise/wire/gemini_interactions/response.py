"""Frames as a stream of the Interactions API, and a response as its body.

A step is one part, and the next one begins where it has ended: what belongs to another call waits."""

from turnwise.vocab import (
    ArgumentsState,
    BlockData,
    BlockEnded,
    CallForming,
    Citation,
    CitationAdded,
    Faulted,
    Finished,
    Frame,
    Lost,
    Mended,
    Part,
    PartDone,
    ProviderItem,
    Reasoning,
    ReasoningDelta,
    RefusalDelta,
    Request,
    Response,
    Restated,
    Started,
    Text,
    TextDelta,
    ToolCall,
    ToolCallDelta,
    Usage,
    UsageReported,
)
from turnwise.vocab.json_values import without
from turnwise.wire.family import UNSTAMPED, AnswerStamp
from turnwise.wire.gemini_interactions.endings import encode_usage, status_of
from turnwise.wire.gemini_interactions.faults import encode_error
from turnwise.wire.gemini_interactions.parts import NAME, content_step, own_fields, steps_of
from turnwise.wire.json_fields import Fields, bytes_of, is_json, quote, write_array, write_object
from turnwise.wire.sse import encode_event

_BlockFrame = (
    TextDelta | ReasoningDelta | RefusalDelta | ToolCallDelta | BlockData | CitationAdded | PartDone | BlockEnded
)


class _Call:
    """The call that is being written. It begins once its name is known."""

    def __init__(self) -> None:
        self.id = ""
        self.name = ""
        self.pieces: list[str] = []  # not written yet
        self.has_arguments = False
        self.free_form = False
        self.own: Fields = {}
        self.is_written = False


class InteractionsStreamEncoder:
    """See `StreamEncoder`."""

    def __init__(self, request: Request, stamp: AnswerStamp = UNSTAMPED) -> None:
        self._stamp = stamp
        self._id = f"v1_{stamp.id or 0}"
        self._model = request.model
        self._begun = False
        self._index = 0
        self._live: str | None = None  # the block whose step is being written
        self._kind = ""  # of that step; empty: it has not begun
        self._call: _Call | None = None
        self._signed = False
        self._written: set[str] = set()
        self._waiting: dict[str, list[_BlockFrame]] = {}
        self._usage: Usage | None = None
        self._finished: Finished | None = None
        self._failed = False
        self._out: list[bytes] = []

    def encode(self, frame: Frame) -> bytes:
        match frame:
            case Started(id=id, model=model):
                if not self._begun:
                    self._id, self._model = id or self._id, model or self._model
                    self._begin()
            case UsageReported(usage=usage):
                self._usage = usage
            case Finished():
                self._finished = frame
            case Faulted(fault=fault):
                self._drain()
                self._failed = True
                self._event("error", error=encode_error(fault)[1])
            case Mended() | Lost() | Restated() | CallForming():
                pass
            case _:
                self._route(frame)
        return self._take()

    def close_ended(self) -> bytes:
        return b""  # nothing wraps steps

    def finish(self, *, ended_s: int | None = None) -> bytes:
        self._drain()
        end = self._finished
        if end is not None and not self._failed:
            self._begin()
            status = status_of(end.reason, end.provider_reason)
            about = {"created": self._stamp.created_s, "updated": ended_s or self._stamp.created_s}
            times = {key: _time(at) for key, at in about.items()}
            usage = {} if self._usage is None else {"usage": encode_usage(self._usage)}
            self._event("interaction.completed", interaction=self._interaction(status, **usage, **times))
            self._out.append(b"event: done\ndata: [DONE]\n\n")
        return self._take()

    def _take(self) -> bytes:
        out, self._out = b"".join(self._out), []
        return out

    def _event(self, name: str, **fields: bytes) -> None:
        self._out.append(encode_event(write_object({**fields, "event_type": quote(name)}), name=name))

    def _interaction(self, status: str, **more: bytes) -> bytes:
        about = {"id": quote(self._id), "status": quote(status), **more, "object": b'"interaction"'}
        return write_object({**about, "model": quote(self._model)})

    def _begin(self) -> None:
        if not self._begun:
            self._begun = True
            self._event("interaction.created", interaction=self._interaction("in_progress"))
            self._event("interaction.status_update", interaction_id=quote(self._id), status=b'"in_progress"')

    # --- whose turn it is

    def _route(self, frame: _BlockFrame) -> None:
        name = frame.block or "call"
        if name in self._written:
            return
        self._begin()
        if self._live not in (None, name):
            if self._call is not None:
                self._waiting.setdefault(name, []).append(frame)
                return
            self._stop()  # texts and thoughts end where something else begins
        self._write(name, frame)
        self._next()

    def _next(self) -> None:
        """What waited, until a call of it has not ended."""
        while self._live is None and self._waiting:
            name = next(iter(self._waiting))
            for frame in self._waiting.pop(name):
                self._write(name, frame)

    def _drain(self) -> None:
        while self._live is not None or self._waiting:
            self._stop()
            self._next()

    def _write(self, name: str, frame: _BlockFrame) -> None:
        if name in self._written:
            return
        if not isinstance(frame, BlockEnded):
            self._live = name
        match frame:
            case TextDelta(text=text) | RefusalDelta(text=text):
                if text:
                    self._text(text)
            case ReasoningDelta(text=text):
                self._thought(text)
            case ToolCallDelta():
                self._piece(frame)
            case BlockData(opaque=opaque):
                self._own(own_fields(opaque))
            case CitationAdded(citation=citation):
                self._cite(citation)
            case PartDone(part=part):
                self._whole(part)
            case BlockEnded():
                if self._live == name:
                    self._stop()

    # --- one step

    def _start(self, kind: str, **fields: bytes) -> None:
        if not self._kind:
            self._kind = kind
            self._event("step.start", index=b"%d" % self._index, step=write_object({"type": quote(kind), **fields}))

    def _delta(self, **delta: bytes) -> None:
        self._event("step.delta", index=b"%d" % self._index, delta=write_object(delta))

    def _stop(self) -> None:
        if (call := self._call) is not None:
            if call.free_form:
                call.pieces.append('"}')
            self._begin_call(call, ended=True)
        if self._kind:
            self._event("step.stop", index=b"%d" % self._index)
            self._index += 1
        if self._live is not None:
            self._written.add(self._live)
        self._live, self._kind, self._call, self._signed = None, "", None, False

    def _text(self, text: str) -> None:
        self._start("model_output")
        self._delta(type=b'"text"', text=quote(text))

    def _cite(self, citation: Citation) -> None:
        if citation.family == NAME:
            self._start("model_output")
            self._delta(type=b'"text_annotation_delta"', annotations=write_array([citation.raw.encode()]))

    def _thought(self, text: str) -> None:
        self._start("thought")
        if text:
            content = write_object({"type": b'"text"', "text": quote(text)})
            self._delta(type=b'"thought_summary"', content=content)

    def _own(self, own: Fields) -> None:
        if self._call is not None:
            self._call.own.update(own)
        elif "signature" in own and self._kind in ("", "thought") and not self._signed:
            self._signed = True
            self._start("thought")
            self._delta(type=b'"thought_signature"', signature=bytes(own["signature"]))

    def _piece(self, delta: ToolCallDelta) -> None:
        call = self._call = self._call or _Call()
        call.id, call.name = call.id or delta.id or "", call.name or delta.name or ""
        call.own.update(own_fields(delta.opaque))
        piece = delta.arguments or ""
        if delta.free_form:
            piece = quote(piece)[1:-1].decode()
            piece = piece if call.free_form else f'{{"input":"{piece}'
            call.free_form = True
        if piece:
            call.has_arguments = True
            call.pieces.append(piece)
        self._begin_call(call)

    def _begin_call(self, call: _Call, *, ended: bool = False) -> None:
        """Without a name it waits for its end; without a piece, for one that may come behind further fields of its own."""
        if not call.is_written and (ended or (call.name and call.pieces)):
            call.is_written = True
            about = {"id": quote(call.id), "name": quote(call.name), "arguments": b"{}"}
            self._start("function_call", **about, **bytes_of(without(call.own, about)))
        if call.is_written and call.pieces:
            self._delta(type=b'"arguments_delta"', arguments=quote("".join(call.pieces)))
            call.pieces.clear()

    def _whole(self, part: Part) -> None:
        """A part that came whole. Of one whose pieces were written only its signature is new."""
        begun = bool(self._kind) or self._call is not None
        match part:
            case ToolCall():
                if self._call is None or not self._call.has_arguments:
                    self._piece(
                        ToolCallDelta(
                            id=part.id,
                            name=part.name,
                            arguments=part.arguments,
                            free_form=part.free_form,
                            opaque=part.opaque,
                        )
                    )
            case Reasoning(text=text, opaque=opaque):
                if not begun and (text or own_fields(opaque)):
                    self._thought(text)
                self._own(own_fields(opaque))
                return
            case Text(text=text, citations=citations):
                if not begun and text:
                    self._text(text)
                    for one in citations:
                        self._cite(one)
            case ProviderItem(family=family, json=json):
                if not begun and family == NAME:
                    self._kind = "item"
                    self._event("step.start", index=b"%d" % self._index, step=json.encode())
            case _:
                content = None if begun else content_step(part)
                if content is not None:
                    self._start("model_output")
                    self._event("step.delta", index=b"%d" % self._index, delta=content)
        self._stop()


def _time(at: int) -> bytes:
    """Seconds since 1970 as a date and time of UTC (H. Hinnant, "chrono-Compatible Low-Level Date Algorithms")."""
    days, seconds = divmod(at, 86_400)
    era, day = divmod(days + 719_468, 146_097)  # days since March 1 of the year 0; 400 years
    year = (day - day // 1_460 + day // 36_524 - day // 146_096) // 365
    day -= 365 * year + year // 4 - year // 100
    month = (5 * day + 2) // 153  # March is 0
    date = f"{400 * era + year + (month > 9):04}-{(month + 2) % 12 + 1:02}-{day - (153 * month + 2) // 5 + 1:02}"
    return quote(f"{date}T{seconds // 3_600:02}:{seconds // 60 % 60:02}:{seconds % 60:02}Z")


def encode_body(response: Response, request: Request, stamp: AnswerStamp = UNSTAMPED) -> bytes:
    """The body of an interaction. A call that is no whole object is left out: the API hands out objects."""
    parts = [part for part in response.message.parts if not isinstance(part, ToolCall) or _is_sendable(part)]
    steps = list(steps_of(parts, role="model_output", keeps_unsigned=True))
    failed = response.fault is not None
    fields = {
        "id": quote(response.id or f"v1_{stamp.id or 0}"),
        "status": b'"failed"' if failed else quote(status_of(response.finish, response.provider_finish)),
        **({"usage": encode_usage(response.usage)} if response.usage is not None else {}),
        "created": _time(stamp.created_s),
        "updated": _time(stamp.ended_s or stamp.created_s),
        "object": b'"interaction"',
        "model": quote(response.model or request.model),
        "steps": write_array(steps),
    }
    if response.fault is not None:
        fields["errors"] = write_array([encode_error(response.fault)[1]])
    return write_object(fields)


def _is_sendable(call: ToolCall) -> bool:
    is_whole = call.state is ArgumentsState.COMPLETE and call.arguments.lstrip()[:1] == "{" and is_json(call.arguments)
    return call.free_form or is_whole
