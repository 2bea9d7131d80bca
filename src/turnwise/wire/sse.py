"""Server-sent events: bytes in any pieces <-> events, and how a stream begins. Source: WHATWG HTML, "Server-sent events", section
9.2.6."""

import re
from collections.abc import Iterable, Iterator

import msgspec

from turnwise.vocab import Frame, PartDone
from turnwise.wire.json_fields import is_json, one_line
from turnwise.wire.long_events import COUNTED_BYTES, call_that_begins, too_much
from turnwise.wire.profiles import DEFAULT_LIMITS, SLICE_BYTES, Limits

BOM = b"\xef\xbb\xbf"

LINE_OVERHEAD = 40
"""What one more line of an event costs beside its bytes: an object and its place in a list. Counted, so that lines of one
character cannot take many times what the limit says."""

MAX_EARLY = 16
"""Lines before the first one of the format that are kept. More of them are a page, and no torn event."""

ALONE_BYTES = 2048
"""A read of this size is probably one event, as they come from a model that writes while we read."""


class SseRun(msgspec.Struct, frozen=True):
    """Events of one name that follow each other: the values of their `data:`."""

    name: str
    values: list[bytes]


class _Form(msgspec.Struct, frozen=True):
    """How a server writes its events: `head` value `end`, all alike but for the value."""

    name: str
    head: bytes
    end: bytes

    @property
    def between(self) -> bytes:
        return self.end + self.head


_DATA, _EVENT = b"data: ", b"event: "
_EVENT_FIELD = b"event:"
_OTHER_FIELDS = (b":", b"id:", b"retry:")
_PIECES_OF_DATA = frozenset({b"data", b"ata", b"ta", b"a", b"d", b"da", b"dat"})
JSON_MARKS = (b"{", b"}", b"[", b"]", b'"')
_OWN_FIELD = re.compile(rb"[A-Za-z][\w.-]*:")
_REST_OF_FIELD = re.compile(rb"(?:e|ev|eve|even|event|d|da|dat|data)?(?:event|vent|ent|nt|t|data|ata|ta|a):")
_PIECES_OF_FIELD = frozenset({word[:end] for word in (b"event", b"data") for end in range(1, len(word) + 1)})
_WORDS = frozenset({b"ping", b"keepalive", b"keep-alive", b"heartbeat"})
# How a stream whose first bytes are `data: ` writes its events, until they tell otherwise.
_LF_FORM, _CRLF_FORM = _Form("", _DATA, b"\n\n"), _Form("", _DATA, b"\r\n\r\n")


class SseEvent(msgspec.Struct, frozen=True, gc=False):
    """One event: the value of its last `event:` line ("" if none) and its `data:` lines joined by a newline."""

    data: bytes
    name: str = ""


class LineTooLong(ValueError):
    """A line or an event grew past its limit, or holds a call past its limit or too many values. The family's decoder turns it
    into a `Faulted` frame.

    `events` are those that the same chunk completed before it, so that nothing depends on where the network cut.
    """

    def __init__(self, message: str, *, events: "list[SseEvent]", head: bytes = b"") -> None:
        super().__init__(message)
        self.events = events
        self._head = head

    def begun(self) -> list[Frame]:
        """The call whose arguments begin in what is too long, as far as it can be told: its id and its name."""
        call = call_that_begins(self._head)
        return [] if call is None else [PartDone("past the limit", call)]


def too_long(what: str, *, limits: Limits, events: list[SseEvent], held: Iterable[bytes] = ()) -> LineTooLong:
    """`held`: the pieces of it that came."""
    message = f"{what} of the stream is longer than {limits.line_bytes} bytes"
    head = b"".join(head_of(held)) if limits.tells_long_calls else b""
    return LineTooLong(message, events=events, head=head)


def head_of(pieces: Iterable[bytes]) -> Iterator[bytes]:
    """The first bytes of these pieces."""
    left = SLICE_BYTES
    for piece in pieces:
        yield piece[:left]
        if (left := left - len(piece)) <= 0:
            return


class _Strings:
    """Whether JSON that came in lines stops inside a string, where no line break can be. Each line is looked at once."""

    __slots__ = ("_is_json", "_is_open")

    def __init__(self) -> None:
        self._is_json: bool | None = None  # None: not known before the first line that is not blank
        self._is_open = False

    def are_open_after(self, line: bytes) -> bool:
        if self._is_json is None and (begun := line.lstrip()):
            self._is_json = begun.startswith((b"{", b"["))
        if self._is_json:
            quotes = line.replace(b"\\\\", b"").replace(b'\\"', b"").count(b'"')
            self._is_open ^= quotes % 2 == 1
        return self._is_open


class SseParser:
    """Feed bytes in any pieces; each call returns the events that became whole. `finish()` returns an event that the
    stream left without its blank line (some providers do). Comments and unknown fields are passed over.

    A stray line break tears an event, and its rest is no field of the format. No rest is dropped without a word: a line that
    is no field and has a mark of JSON in it counts as a line of data. Between two tokens of JSON that heals the event. Inside
    a string it cannot, so the pieces come as events of their own, which no decoder can read (promise assembly:lost-piece).
    A name whose event has no data comes as an event without any, unless the next event has no name: then a stray blank line
    came between the two.

    Bytes that are lost up to an event's end leave the rest of a line before the next event. A line that is no line of the
    format, a name behind a name and an event behind one that did not end come with such a piece, too. A stream whose first
    event does not end with a blank line is one that writes none.

    Servers write all events alike, so the form of the last one is kept: as long as the next ones have it, one `split` takes
    them all out of a read, and that no line ends are in what is left shows that there was nothing else. The rest goes line by
    line.
    """

    __slots__ = (
        "_after_bare",
        "_after_cr",
        "_alone_bytes",
        "_broke_off",
        "_data",
        "_data_bytes",
        "_early",
        "_ends_events",
        "_form",
        "_has_fields",
        "_limit",
        "_limits",
        "_looked_at",
        "_name",
        "_nameless",
        "_started",
        "_strings",
        "_tail",
        "_tail_bytes",
        "has_long",
    )

    def __init__(self, *, limits: Limits = DEFAULT_LIMITS) -> None:
        self._tail: list[bytes] = []  # pieces of the current line, joined once when it ends
        self._tail_bytes = 0
        self._data: list[bytes] = []
        self._data_bytes = 0
        self._strings = _Strings()  # of the lines of data, where there are several
        self._name = ""
        self._nameless = ""  # the name of the event before, of which no data has come
        self._started = False
        self._has_fields = False  # what arrives has lines of the format; an error page has none
        self._early: list[bytes] = []  # lines that may be the rest of a torn event, while there are none
        self._after_bare = (
            False  # the last line was `data`, or a piece of it: a rest that begins with a colon is no comment
        )
        self._after_cr = False
        self._limits = limits
        self._limit = limits.line_bytes
        self._looked_at = min(limits.call_bytes, COUNTED_BYTES)
        self._alone_bytes = min(ALONE_BYTES, self._limit)
        self._broke_off = False  # at the end of the stream
        self._ends_events: bool | None = None  # with a blank line; None: no event has come to its end
        self._form: _Form | None = None  # of the current events, where they have one
        self.has_long = False  # an event came that is longer than the decoders should read at once

    def feed(self, chunk: bytes) -> list[SseEvent]:
        """Raises LineTooLong past the limit; the parser is of no use afterwards."""
        return _events_of(self.feed_runs(chunk))

    def feed_runs(self, chunk: bytes) -> list[SseRun]:
        """`feed`, with events of one name together."""
        if self._tail and 0 < len(chunk) <= SLICE_BYTES and b"\n" not in chunk and b"\r" not in chunk:
            self._keep(chunk, [])  # a few bytes more of a line
            return []
        form = self._form
        if (
            form is not None
            and len(chunk) <= self._alone_bytes
            and chunk.startswith(form.head)
            and chunk.endswith(form.end)
            and not (self._tail or self._data or self._name or self._nameless or self._after_cr)
        ):
            value = chunk[len(form.head) : -len(form.end)]
            if b"\n" not in value and b"\r" not in value:
                return [SseRun(form.name, [value])]
        runs: list[SseRun] = []
        try:
            if len(chunk) <= SLICE_BYTES:
                self._read_slice(chunk, runs)
            else:
                for start in range(0, len(chunk), SLICE_BYTES):
                    self._read_slice(chunk[start : start + SLICE_BYTES], runs)
        except LineTooLong as error:
            error.events[:0] = _events_of(runs)
            raise
        return runs

    def _is_between_events(self) -> bool:
        return not (self._tail or self._data or self._name or self._nameless or self._after_cr or self._after_bare)

    def _read_slice(self, chunk: bytes, runs: list[SseRun]) -> None:
        form = self._form
        if form is not None and len(chunk) <= self._limit:
            if not self._is_between_events():
                end = chunk.find(form.end) + len(form.end)
                if end < len(form.end):
                    self._read_lines_of(chunk, runs)
                    return
                self._read_lines_of(chunk[:end], runs)
                chunk = chunk[end:]
            if chunk.startswith(form.head) and self._is_between_events():
                self._read_alike(chunk, form, runs)
                return
        elif not self._started and chunk.startswith(_DATA) and len(chunk) <= self._limit and self._is_between_events():
            self._started = self._has_fields = True
            line_end = chunk.find(b"\n")
            self._form = _CRLF_FORM if line_end > 0 and chunk[line_end - 1] == 0x0D else _LF_FORM
            self._read_alike(chunk, self._form, runs)
            return
        if chunk.startswith(_EVENT) and len(chunk) <= self._limit and b"\r" not in chunk and self._is_between_events():
            self._started = True
            if not self._has_fields:
                early: list[SseEvent] = []
                self._begin_fields(early)
                _add_events(runs, early)
            self._read_named(chunk, runs)
            return
        self._learn(chunk, self._read_lines_of(chunk, runs))

    def _read_alike(self, chunk: bytes, form: _Form, runs: list[SseRun]) -> None:
        """A chunk that begins with an event of this form."""
        values = chunk.split(form.between)
        values[0] = values[0][len(form.head) :]
        last = values.pop()
        is_whole = last.endswith(form.end)
        if is_whole:
            values.append(last[: -len(form.end)])
            last = b""
        whole = b"".join(values)
        if b"\n" not in whole and b"\r" not in whole:
            if values:
                self._note_ended()
                _add_run(runs, form.name, values)
        else:
            for value in values:
                if b"\n" in value or b"\r" in value or self._nameless:
                    piece = form.head + value + form.end
                    events = self._read_lines_of(piece, runs)
                    if len(piece) > len(chunk) // 2:
                        self._learn(piece, events)
                else:
                    self._note_ended()
                    _add_run(runs, form.name, [value])
        if not is_whole:
            self._read_lines_of(form.head + last, runs)

    def _read_named(self, chunk: bytes, runs: list[SseRun]) -> None:
        """A chunk without CR that begins with an event's name: nearly all of its events are a name and a value."""
        pieces = chunk.split(b"\n\n")
        rest = pieces.pop()
        for piece in pieces:
            head, between, value = piece.partition(b"\n" + _DATA)
            is_usual = between and head.startswith(_EVENT) and b'"' not in head
            if is_usual and b"\n" not in head and b"\n" not in value and not self._nameless:
                name = head[len(_EVENT) :].strip().decode("utf-8", "replace")
                _add_run(runs, name, [value])
                self._note_ended()
                self._form = _Form(name, head + between, b"\n\n")
            else:
                self._read_lines_of(piece + b"\n\n", runs)
        if rest:
            self._read_lines_of(rest, runs)

    def _learn(self, chunk: bytes, events: list[SseEvent]) -> None:
        """Keep the form of the chunk's last event, if it is written in the usual way."""
        if not events:
            return
        name, value = events[-1].name, events[-1].data
        self._form = None
        for end in (b"\n\n", b"\r\n\r\n"):
            line_end = end[: len(end) // 2]
            head = (b"event: " + name.encode() + line_end if name else b"") + b"data: "
            at = chunk.rfind(head + value + end)
            if at == 0 or (at > 0 and chunk[:at].endswith(end)):
                self._form = _Form(name, head, end)

    def _read_lines_of(self, chunk: bytes, runs: list[SseRun]) -> list[SseEvent]:
        events = self._read_chunk(chunk)
        _add_events(runs, events)
        return events

    def _read_chunk(self, chunk: bytes) -> list[SseEvent]:
        if self._after_cr and chunk:
            self._after_cr = False
            if chunk[:1] == b"\n":
                chunk = chunk[1:]
        if b"\r" in chunk:
            self._after_cr = chunk[-1:] == b"\r"
            chunk = chunk.replace(b"\r\n", b"\n").replace(b"\r", b"\n")
        lines = chunk.split(b"\n")
        rest = lines.pop()
        events: list[SseEvent] = []
        if lines:
            if self._tail:
                self._keep(lines[0], events)
                if self._tail_bytes > SLICE_BYTES:  # alone, so that a long one is let go of before its event is read
                    self._read_lines([self._take_tail()], events)
                    del lines[0]
                else:
                    lines[0] = self._take_tail()
            self._read_lines(lines, events)
        if rest:
            self._keep(rest, events)
        return events

    def finish(self) -> list[SseEvent]:
        """End of the stream: what stands there unfinished is taken as it is."""
        self._broke_off = self.breaks_off()
        events: list[SseEvent] = []
        self._read_lines([self._take_tail()], events)
        self._read_lines([b""], events)
        self._end_nameless(events)
        return events

    def _take_tail(self) -> bytes:
        """The line that its pieces are."""
        line = b"".join(self._tail)
        self._tail.clear()
        self._tail_bytes = 0
        return line

    def breaks_off(self) -> bool:
        """Whether what has come ends within a line or an event, so that more was coming. Data that is whole JSON is no such
        rest: some servers leave the line break behind their last event out."""
        rest, data = b"".join(self._tail), self._data
        self._tail[:] = [rest] if rest else []  # a long one is not held twice
        if rest.startswith(b"data:"):
            if not data:
                return not _is_whole(memoryview(rest)[5:])
            data = [*data, rest[5:]]
        elif rest and not rest.isspace():
            return True
        if not data:
            return self._broke_off or bool(self._name)
        return not _is_whole(memoryview(data[0] if len(data) == 1 else b"\n".join(data)))

    def _keep(self, piece: bytes, events: list[SseEvent]) -> None:
        self._tail.append(piece)
        self._tail_bytes += len(piece)
        if self._tail_bytes > self._limit:
            raise too_long("a line", limits=self._limits, events=events, held=self._tail)

    def _read_lines(self, lines: list[bytes], events: list[SseEvent]) -> None:
        if not self._started:
            self._started = True
            lines[0] = lines[0].removeprefix(BOM)
        limit, data = self._limit, self._data
        for line in lines:
            if not line:
                if data:
                    self._note_ended()
                    self._end_event(events)
                elif self._name:
                    self._end_nameless(events)
                    self._nameless = self._name
                self._name = ""
                continue
            if len(line) > limit:
                raise too_long("a line", limits=self._limits, events=events, held=[line])
            if line.startswith(b"data:"):
                value = line[6:] if line.startswith(b"data: ") else line[5:]
                self._after_bare = False
                if len(data) == 1 and value.startswith(b"{") and (not data[0] or _is_whole(memoryview(data[0]))):
                    self._begin_unended(line, events)
                if not self._has_fields:
                    self._begin_fields(events)
            else:
                odd = self._read_odd_line(line, events)
                if odd is None:
                    continue
                value = odd
            if data and self._breaks_off_in_string():
                self._end_event(events)
            if data:
                self._data_bytes += len(value) + LINE_OVERHEAD
                if self._data_bytes > limit:
                    raise too_long("an event", limits=self._limits, events=events, held=data)
            else:
                self._data_bytes = len(value)
            data.append(value)

    def _end_nameless(self, events: list[SseEvent]) -> None:
        if self._nameless:
            events.append(SseEvent(b"", self._nameless))
            self._nameless = ""

    def _end_event(self, events: list[SseEvent]) -> None:
        if not self._name:
            self._nameless = ""
        self._end_nameless(events)
        data = self._data
        value = data[0] if len(data) == 1 else b"\n".join(data)
        data.clear()
        if self._data_bytes > self._looked_at:
            self.has_long = True
            check_event(value, limits=self._limits, events=events)
        self._data_bytes = 0
        events.append(SseEvent(value, self._name))

    def _read_odd_line(self, line: bytes, events: list[SseEvent]) -> bytes | None:
        """The value of a line that is no usual `data:`; None where it has none."""
        was_bare, self._after_bare = self._after_bare, line in _PIECES_OF_DATA
        if self._after_bare:
            self._form = None
        if line == b"data":
            return b""
        if line.startswith(_EVENT_FIELD):
            if not self._has_fields:
                self._begin_fields(events)
            if b'"' not in line:  # else an event is glued to it
                if self._data and self._name:  # the blank line between two events is lost
                    self._begin_unended(line, events)
                elif self._name:  # so is the data with it
                    self._end_nameless(events)
                    events += [SseEvent(b"", self._name), _torn(line)]
                self._name = line[6:].strip().decode("utf-8", "replace")
                if not self._name:
                    events.append(_torn(line))
                return None
        if not any(mark in line for mark in JSON_MARKS):
            if _is_rest(line):
                if self._has_fields:
                    events.append(_torn(line))
                elif line in _PIECES_OF_FIELD or _REST_OF_FIELD.match(line):
                    self._keep_early(b'"' + line)
            return None  # a comment, an unknown field, or a bare word
        is_glued = b"data: {" in line or b"data:{" in line or (b'{"' in line and line[1:].lstrip()[:1] != b"{")
        if line.startswith(_OTHER_FIELDS) and not is_glued and not (was_bare and line.startswith(b":")):
            return None
        if line.startswith(b"error: {") and not self._data:  # llama.cpp writes errors so
            self._name = "error"
            return line[7:]
        if self._has_fields:
            return line
        self._keep_early(line)
        return None

    def _keep_early(self, line: bytes) -> None:
        if len(self._early) < MAX_EARLY and sum(map(len, self._early)) + len(line) <= self._limit:
            self._early.append(line)

    def _note_ended(self) -> None:
        if self._ends_events is None:
            self._ends_events = True

    def _begin_unended(self, line: bytes, events: list[SseEvent]) -> None:
        """An event begins with `line`, and the one before has no blank line behind it."""
        self._ends_events = bool(self._ends_events)
        if self._ends_events or line.startswith(_EVENT_FIELD):
            self._end_event(events)
        if self._ends_events:
            events.append(_torn(line))

    def _breaks_off_in_string(self) -> bool:
        """Whether the lines of data so far are JSON that stops inside a string."""
        if len(self._data) == 1:
            self._strings = _Strings()
        return self._strings.are_open_after(self._data[-1])

    def _begin_fields(self, events: list[SseEvent]) -> None:
        """The first line of the format: what came before it was no error page."""
        self._has_fields = True
        events += [SseEvent(line) for line in self._early]
        self._early.clear()


def _torn(line: bytes) -> SseEvent:
    """Bytes were lost here: a piece that no decoder can read."""
    return SseEvent(b'"' + line[:ALONE_BYTES])


def _is_rest(line: bytes) -> bool:
    """Whether a line without marks of JSON is what is left of two lines: no comment, no field that is known or may be a server's
    own, and no word that only keeps the connection alive."""
    if line.startswith(_OTHER_FIELDS) or line.isspace() or line in _WORDS:
        return False
    return _OWN_FIELD.match(line) is None or _REST_OF_FIELD.match(line) is not None


def _is_whole(value: memoryview) -> bool:
    """Whether an event's data is whole JSON, or the end mark."""
    if len(value) > ALONE_BYTES:
        return is_json(value)
    text = bytes(value).strip()
    return text == b"[DONE]" or is_json(text)


def check_event(value: bytes, *, limits: Limits, events: list[SseEvent]) -> None:
    """Raises EventTooLarge if the event holds a call past its limit, or too many values."""
    fault = too_much(value, call_bytes=limits.call_bytes)
    if fault is not None:
        raise LineTooLong(fault.message, events=events, head=value[:SLICE_BYTES] if limits.tells_long_calls else b"")


def _add_run(runs: list[SseRun], name: str, values: list[bytes]) -> None:
    if runs and runs[-1].name == name:
        runs[-1].values.extend(values)
    else:
        runs.append(SseRun(name, values))


def _add_events(runs: list[SseRun], events: list[SseEvent]) -> None:
    for event in events:
        _add_run(runs, event.name, [event.data])


def _events_of(runs: list[SseRun]) -> list[SseEvent]:
    return [SseEvent(value, run.name) for run in runs for value in run.values]


def encode_event(data: bytes, *, name: str = "") -> bytes:
    """One event as bytes. `data` is JSON: its line breaks, if any, mean nothing and would end the event's line."""
    data = one_line(data)
    if name:
        return b"event: " + name.encode() + b"\ndata: " + data + b"\n\n"
    return b"data: " + data + b"\n\n"


# How a stream begins, kept until its first event: it may be a body, or no response at all.


HEAD_BYTES = SLICE_BYTES
"""What is kept to say what arrived, if it was neither a stream nor a body."""
_FIELD = re.compile(rb"[\r\n](?:data|event):")
_FIELD_BYTES = len(b"\nevent:")


class StreamBeginning:
    """Give it what arrives and parse what it returns. It holds back what may be a body, which is then not there twice: a text
    that begins with a brace, as long as no line in it is a field of an event stream and none is longer than a line may be."""

    __slots__ = ("_first", "_held", "_line_bytes", "_line_limit", "_size", "_size_limit", "is_held")

    def __init__(self, *, limits: Limits) -> None:
        self.is_held = False
        self._first = b""  # the first byte that is no space
        self._held: list[bytes] = []
        self._size = 0
        self._size_limit = limits.response_bytes
        self._line_bytes = 0  # of the last line
        self._line_limit = limits.line_bytes

    @property
    def is_too_large(self) -> bool:
        return self._size > self._size_limit

    @property
    def breaks_off(self) -> bool:
        """Whether what is held ends within a line."""
        return self.is_held and not self._held[-1].rstrip(b" \t").endswith((b"\n", b"\r"))

    def take(self, chunk: bytes) -> bytes:
        """What the parser should read now."""
        if not self._first and (first := chunk.lstrip()[:1]):
            self._first = first
            self.is_held = first == b"{"
        if not self.is_held:
            if self._size < HEAD_BYTES:
                self._held.append(chunk[: HEAD_BYTES - self._size])
                self._size += len(self._held[-1])
            return chunk
        around = self._held[-1][-_FIELD_BYTES:] + chunk if self._held else chunk
        self._held.append(chunk)
        self._size += len(chunk)
        ended = max(chunk.rfind(b"\n"), chunk.rfind(b"\r"))
        self._line_bytes = len(chunk) - ended - 1 if ended >= 0 else self._line_bytes + len(chunk)
        if self._line_bytes <= self._line_limit and _FIELD.search(around) is None:
            return b""
        self.is_held = False
        return self.whole()

    def whole(self) -> bytes:
        """All that is kept; it is let go of."""
        whole = b"".join(self._held)
        self._held.clear()
        return whole
