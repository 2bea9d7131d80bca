"""Bytes of one response -> healed frames -> the whole `Response`: wire and assembly put together, no IO.

The runner and the gateway feed it from the network, `turnwise decode` from files, tests from recordings.
"""

from collections.abc import Callable, Collection, Mapping
from operator import attrgetter
from typing import TYPE_CHECKING, Protocol, cast

import msgspec

from turnwise.assembly.response import Assembler
from turnwise.vocab import (
    NO_FINISH_REASON,
    BlockData,
    BlockEnded,
    CallForming,
    CitationAdded,
    Fault,
    Faulted,
    FaultKind,
    Finished,
    FinishReason,
    Frame,
    Lost,
    Mended,
    Message,
    PartDone,
    ReasoningDelta,
    RefusalDelta,
    Response,
    Restated,
    Started,
    TextDelta,
    ToolCallDelta,
    UsageReported,
)
from turnwise.wire.endings import CALL_FAILED, unread_call
from turnwise.wire.family import Family
from turnwise.wire.faults import too_large
from turnwise.wire.profiles import DEFAULT_LIMITS, Limits, Profile, is_wide
from turnwise.wire.sse import BOM
from turnwise.wire.tool_names import frames_with_names, response_with_names

if TYPE_CHECKING:
    from collections.abc import Set as AbstractSet

_ENDS = frozenset([Finished, Mended, Faulted])
"""The frames by which a response may end."""
_WORDS = {TextDelta}


def _names_or_argues(frame: ToolCallDelta) -> bool:
    return bool(frame.arguments or frame.id or frame.name)


def _tells_of_end(frame: Mended) -> bool:
    return frame.repair.kind == NO_FINISH_REASON


def _never(frame: BlockEnded | Lost | Restated | CallForming) -> bool:
    return False


def _always(frame: Frame) -> bool:
    return True


_SAYS: dict[type[Frame], Callable[..., object]] = {
    TextDelta: attrgetter("text"),
    ReasoningDelta: attrgetter("text"),
    RefusalDelta: attrgetter("text"),
    ToolCallDelta: _names_or_argues,
    Mended: _tells_of_end,
    BlockEnded: _never,
    Lost: _never,
    Restated: _never,
    CallForming: _never,
    **dict.fromkeys((Started, BlockData, CitationAdded, PartDone, UsageReported, Finished, Faulted), _always),
}
"""Whether a response went on with a frame. Events without content can be repeated for ever: they are no sign of life."""


class WordTaker(Protocol):
    """Takes bytes that are more of what the provider is saying, and nothing else. They are for the client as they came, and for
    readers whose frames nobody wants at once."""

    @property
    def taken_bytes(self) -> int: ...

    def take(self, event: bytes, /) -> bool:
        """Whether it took them: `feed` the reader where it did not."""
        ...


class StreamReader(Protocol):
    """What reads the bytes of one streamed response, as `ResponseReader` does."""

    @property
    def finished(self) -> bool: ...

    @property
    def failed(self) -> bool: ...

    @property
    def faulted(self) -> bool: ...

    @property
    def heard(self) -> int: ...

    def feed(self, chunk: bytes, /) -> list[Frame]: ...

    @property
    def early_words(self) -> WordTaker | None: ...

    def flush(self) -> list[Frame]: ...

    def finish(self) -> Response: ...

    def is_closed(self, *, open_texts: bool = False) -> bool: ...


class CallSeeker(Protocol):
    """What looks at frames before they are assembled, as `CallFinder` does."""

    @property
    def holds(self) -> bool: ...

    def is_behind_call(self) -> bool: ...

    def passes(self, frame: Frame, /) -> bool: ...

    def passing(self, frames: list[TextDelta], /) -> str | None: ...

    def take(self, frames: list[Frame], /, *, kinds: "AbstractSet[type[Frame]] | None" = None) -> list[Frame]: ...

    def finish(self, *, is_closed: bool = False) -> list[Frame]: ...

    def settled(self, response: Response, /) -> Response:
        """The whole response, with what only its end can tell of its texts."""
        ...


class ResponseReader:
    """Feed the bytes of a streamed response as they come; `finish()` is the whole.

    Nothing that arrives makes it raise. `finished` turns true once the provider has said that the response ended, `failed`
    once it has reported an error; `faulted` once nothing that may follow can be read (the caller should stop reading
    then). `heard` counts the pieces in which the provider really said something: keep-alives, empty deltas and what could
    not be read leave it as it is.
    """

    def __init__(
        self,
        family: Family,
        *,
        profile: Profile,
        limits: Limits = DEFAULT_LIMITS,
        tool_names: frozenset[str] = frozenset(),
        taken_ids: frozenset[str] = frozenset(),
        id_prefix: str = "call",
        in_text: CallSeeker | None = None,
        own_names: Mapping[str, str] | None = None,
    ) -> None:
        self.finished = False
        self.failed = False
        self._is_deaf = False  # what the decoder said leaves nothing that may follow
        self.heard = 0
        self.early_words: WordTaker | None = None
        self._decoder = family.stream_decoder(profile, limits)
        self._own_names = own_names  # of tools that the server knows by another name
        self._assembler = _assembler(
            limits, tool_names=tool_names.union(own_names or ()), taken_ids=taken_ids, id_prefix=id_prefix
        )
        self._in_text = in_text
        self._bytes_left = limits.stream_bytes
        self._limit_bytes = limits.stream_bytes
        self._flushed = False

    @property
    def faulted(self) -> bool:
        return self._is_deaf or self._assembler.is_full

    def feed(self, chunk: bytes) -> list[Frame]:
        """Take the next bytes; return the healed frames that they completed."""
        frames = self.decode(chunk)
        return self._receive(frames) if frames else frames

    def decode(self, chunk: bytes, *, size: int | None = None) -> list[Frame]:
        """Take the next bytes; return the frames as they stood on the wire. Give each of them to `heal`. `size`: how many bytes
        arrived, if `chunk` is a shorter form of them."""
        if self._is_deaf:
            return []
        self._bytes_left -= len(chunk) if size is None else size
        if self._bytes_left < 0:
            return [Faulted(too_large(self._limit_bytes))]
        frames = self._decoder.feed(chunk)
        return frames_with_names(frames, self._own_names) if self._own_names else frames

    def heal(self, frames: list[Frame]) -> list[Frame]:
        """The healed frames of these, which `decode` gave."""
        return self._receive(frames)

    @property
    def seeks_calls(self) -> bool:
        """Whether a word may turn out to be a call."""
        return self._in_text is not None

    def lets_pass(self, frame: TextDelta | ReasoningDelta | RefusalDelta) -> bool:
        """Whether a word can be no beginning of a call. It counts as read then, and goes to `heal_passed`."""
        return self._in_text is None or self._in_text.passes(frame)

    def heal_passed(self, frames: list[Frame]) -> list[Frame]:
        """As `heal`, for words that were passed one by one."""
        if not _ENDS.isdisjoint(map(type, frames)):
            self._note_ends(frames)
        return self._assembler.receive_all(frames)

    def flush(self) -> list[Frame]:
        """No more bytes will come: the frames that were still held."""
        if self._flushed or self.faulted:
            return []
        self._flushed = True
        frames = self._decoder.finish()
        last = self._receive(frames_with_names(frames, self._own_names) if self._own_names else frames)
        if self._in_text is None:
            return last
        found = self._in_text.finish(is_closed=not self.finished and self.is_closed())
        return [*last, *self._assembler.receive_all(found)]

    def leave(self) -> None:
        """Nothing more is read, though more may come."""
        if self._flushed:
            return
        self._flushed = True
        if self._in_text is not None:
            self._assembler.receive_all(self._in_text.finish())

    def finish(self) -> Response:
        """The whole response; `flush` first if you want to see its last frames."""
        self.flush()
        response = self._assembler.finish()
        if self._in_text is not None:
            response = self._in_text.settled(response)
        if self._own_names:
            response = response_with_names(response, self._own_names)
        if response.is_closed and self._decoder.expects_more():
            return msgspec.structs.replace(response, is_closed=False)
        if self._in_text is not None and self._in_text.is_behind_call():
            return msgspec.structs.replace(response, is_closed=self.is_closed())
        return response

    def is_closed(self, *, open_texts: bool = False) -> bool:
        """Whether nothing but a finish reason is missing: see `Response.is_closed`. Ask after a silence only, not after each
        read. `open_texts`: a text needs no end of its own."""
        if self.faulted or self._decoder.expects_more():
            return False
        if self._in_text is None:
            return self._assembler.is_closed(open_texts=open_texts)
        is_behind_call = self._in_text.is_behind_call()
        if self._in_text.holds and not is_behind_call:
            return False
        return self._assembler.is_closed(is_behind_call=is_behind_call, open_texts=open_texts)

    @property
    def repair_kinds(self) -> Collection[str]:
        """Of the repairs that are known before the end; grows while the response is still coming."""
        return self._assembler.repair_kinds

    def _receive(self, frames: list[Frame]) -> list[Frame]:
        if not frames:
            return frames
        in_text = self._in_text
        if len(frames) == 1:  # the ordinary read, told first because speed counts
            first = frames[0]
            kind = type(first)
            if _SAYS[kind](first):
                self.heard += 1
            if kind in _ENDS:
                self._note_ends(frames)
            if in_text is not None and not in_text.passes(first):
                frames = in_text.take(frames)
            return self._assembler.receive_all(frames)
        for frame in frames:  # the first one tells, nearly always
            if _SAYS[type(frame)](frame):
                self.heard += 1
                break
        kinds = set(map(type, frames))
        if not _ENDS.isdisjoint(kinds):
            self._note_ends(frames)
        if in_text is None:
            return self._assembler.receive_all(frames)
        if kinds == _WORDS:
            words = cast("list[TextDelta]", frames)
            if (text := in_text.passing(words)) is not None:
                return self._assembler.receive_words(words, text=text)
        return self._assembler.receive_all(in_text.take(frames, kinds=kinds))

    def _note_ends(self, frames: list[Frame]) -> None:
        for frame in frames:
            if type(frame) not in _ENDS:
                continue
            if isinstance(frame, Faulted):
                self.failed = True
                self._is_deaf |= frame.fault.kind in (FaultKind.PROTOCOL, FaultKind.TOO_LARGE)
            elif isinstance(frame, Finished) or (isinstance(frame, Mended) and _tells_of_end(frame)):
                self.finished = True


def read_body(
    body: bytes,
    *,
    family: Family,
    profile: Profile,
    limits: Limits = DEFAULT_LIMITS,
    tool_names: frozenset[str] = frozenset(),
    taken_ids: frozenset[str] = frozenset(),
    id_prefix: str = "call",
    in_text: CallSeeker | None = None,
    own_names: Mapping[str, str] | None = None,
) -> tuple[Response, list[Frame]]:
    """Decode one non-streamed body: the response, and the healed frames to show."""
    assembler = _assembler(
        limits, tool_names=tool_names.union(own_names or ()), taken_ids=taken_ids, id_prefix=id_prefix
    )
    if len(body) > (most_bytes := _most_bytes(body, limits=limits)):
        frames: list[Frame] = [Faulted(too_large(most_bytes))]
    else:
        frames = family.decode_body(body.removeprefix(BOM), profile, limits)
    del body  # a long one is not held while its calls are judged
    if in_text is not None:
        frames = [*(in_text.take(frames) if frames else ()), *in_text.finish()]
    if own_names:
        frames = frames_with_names(frames, own_names)
    healed = assembler.receive_all(frames)
    response = assembler.finish()
    return response if in_text is None else in_text.settled(response), healed


def _most_bytes(body: bytes, *, limits: Limits) -> int:
    """How long such a body may be, so that it takes three times the limit at most while it is decoded.

    It takes itself and the text. Python decodes UTF-8 into a text of one byte for each byte first, which it makes a text of two
    or four when it meets a character that needs these.
    """
    most = limits.response_bytes
    if len(body) <= most // 2:
        return most
    if is_wide(body):
        return most // 2
    return most if body.isascii() else most * 3 // 4


def _assembler(limits: Limits, *, tool_names: frozenset[str], taken_ids: frozenset[str], id_prefix: str) -> Assembler:
    return Assembler(
        tool_names=tool_names,
        taken_ids=taken_ids,
        id_prefix=id_prefix,
        call_bytes=limits.call_bytes,
        response_bytes=limits.response_bytes,
        tells_long_calls=limits.tells_long_calls,
    )


NOTHING_CAME = Response(message=Message("assistant", ()), finish=FinishReason.ERROR)


def unread_response(fault: Fault, *, arrived: Response | None) -> Response | None:
    """The response whose call the server could not read, where it reports that as an error of the request: the model wrote it, so
    it is what a finish word is that says the same. None for any other fault."""
    code = fault.code
    if code is None or code.casefold() not in CALL_FAILED:
        return None
    before = NOTHING_CAME if arrived is None else arrived
    repairs = (*before.repairs, unread_call(code).repair)
    return msgspec.structs.replace(before, finish=FinishReason.ERROR, provider_finish=code, fault=None, repairs=repairs)
