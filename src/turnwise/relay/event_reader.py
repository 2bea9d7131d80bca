"""The reader of the stream that a client reads, too: each event's bytes stay beside its frames, and go on as they came where
nothing has to be mended. Words go on before they are assembled (`EarlyWords`).
"""

import re
from collections import deque
from collections.abc import Callable, Sequence
from typing import NamedTuple

import msgspec

from turnwise.assembly.evidence import LAST_EVENTS, Witness
from turnwise.assembly.response_reading import ResponseReader
from turnwise.relay.breaches import Deviations
from turnwise.relay.client_stream import ClientStream
from turnwise.relay.client_tools import CallFilter
from turnwise.relay.stops import StopCutter, ended_at_stop
from turnwise.vocab import Frame, ReasoningDelta, RefusalDelta, Response, TextDelta, ToolCallDelta
from turnwise.wire.json_fields import UNREADABLE, is_json
from turnwise.wire.profiles import Limits
from turnwise.wire.repeated_chunks import PROBE, Alike, decode_string
from turnwise.wire.sse import BOM

# --- a stream, cut into the bytes of single events

_BLANK_LINE = re.compile(rb"\r\n\r\n|\n\r\n|\r\n\n|\n\n|\r\r")
_LINE_END = re.compile(rb"\r\n|\n|\r")
_FIELDS = (b"data:", b"event:", b"id:", b"retry:", b":")
_SEAM = 3  # bytes of a torn blank line: all but its last


class EventSplitter:
    """Feed bytes in any pieces; each call returns the events that became whole, each with its blank line.

    An event past `limits.line_bytes` is handed out in the pieces in which it came: the decoder refuses it. `has_torn`: there was
    one, so what comes from now on may be no event.
    """

    __slots__ = ("_limit_bytes", "_looked_at", "_tail", "_tail_bytes", "has_torn")

    def __init__(self, limits: Limits) -> None:
        self._tail: list[bytes] = []
        self._tail_bytes = 0
        self._looked_at = b""  # the end of the tail: a blank line may be torn
        self._limit_bytes = limits.line_bytes
        self.has_torn = False

    def feed(self, chunk: bytes) -> list[bytes]:
        if not self._tail:
            return self._cut(chunk)
        if _BLANK_LINE.search(self._looked_at + chunk) is None:
            return self._keep(chunk)
        return self._cut(self.rest() + chunk)

    def rest(self) -> bytes:
        """What came behind the last whole event."""
        rest, self._tail, self._tail_bytes, self._looked_at = b"".join(self._tail), [], 0, b""
        return rest

    def _cut(self, text: bytes) -> list[bytes]:
        if text.endswith(b"\n\n") and text.find(b"\n\n") == len(text) - 2 and b"\r" not in text:
            return [text]  # one event alone, told first because speed counts
        events: list[bytes] = []
        start = 0
        for blank in _BLANK_LINE.finditer(text):
            events.append(text[start : blank.end()])
            start = blank.end()
        return events if start == len(text) else [*events, *self._keep(text[start:])]

    def _keep(self, piece: bytes) -> list[bytes]:
        self._tail.append(piece)
        self._tail_bytes += len(piece)
        if self._tail_bytes > self._limit_bytes:
            self.has_torn = True
            return [self.rest()]
        self._looked_at = (self._looked_at + piece)[-_SEAM:]
        return []


def split_whole(events: bytes) -> list[bytes]:
    """The single events of bytes that end with one."""
    ends = [blank.end() for blank in _BLANK_LINE.finditer(events)]
    return [events[start:end] for start, end in zip([0, *ends], ends, strict=False)]


def completed(rest: bytes) -> bytes | None:
    """What came behind the last whole event with its blank line, where nothing but that is missing: its data is a whole object or
    array, or the end mark, none of which could go on. None for a fragment, which no client may see."""
    lines = _LINE_END.split(rest.removeprefix(BOM))
    fields = [line for line in lines if line]
    values = [line[5:].strip() for line in fields if line.startswith(b"data:")]
    is_cut = lines[-1] and not lines[-1].startswith(b"data:")  # in the middle of a line that nothing shows to be whole
    if is_cut or not values or not all(line.startswith(_FIELDS) for line in fields):
        return None
    data = b"\n".join(values)
    is_whole = data == b"[DONE]" or (data.startswith((b"{", b"[")) and is_json(data))
    return rest.rstrip(b"\r\n") + b"\n\n" if is_whole else None


# --- the answer as one JSON array, whose elements are the events (Google's reference of `streamGenerateContent`)

_DATA = b"data:"


class ArrayAnswer:
    """Give it whole server-sent events, and hand on what comes back. `end` closes the array: without it no client takes the
    answer for whole."""

    __slots__ = ("_has_begun",)

    def __init__(self) -> None:
        self._has_begun = False

    def take(self, events: bytes) -> bytes:
        """A comment becomes a line end, which means nothing in JSON and keeps the connection alive."""
        return b"".join([self._written(event) for event in split_whole(events)])

    def end(self) -> bytes:
        return b"]\n" if self._has_begun else b"[]\n"

    def _written(self, event: bytes) -> bytes:
        lines = [line.removeprefix(_DATA).strip() for line in event.splitlines() if line.startswith(_DATA)]
        if not lines:
            return b"\n" if event else b""
        before = b",\r\n" if self._has_begun else b"["
        self._has_begun = True
        return before + b"\n".join(lines)


# --- words that go on to the client before they are assembled
#
# Between equal families a stream of text brings event after event that differs from the one before in nothing but its piece
# (`wire/repeated_chunks.py`). What such an event says is known from that one string, and the client gets its bytes as they came.
# So it goes out at once, and decoding, healing and comparing are done later, for many events together: a processor that has just
# served another stream has forgotten where all of that stands.
#
# Nothing is taken on trust. What they said together is written into one more event like them, which is decoded and healed before
# anything else of the response is looked at, and what it says then is compared with what was told here (`EventReader._catch_up`).
# Where a family compares its events with each other, they are kept and decoded themselves.

WordsFrame = TextDelta | ReasoningDelta | RefusalDelta

FEWEST_EVENTS, MOST_EVENTS = 64, 128  # that wait: to catch up takes as long for few as for many
MOST_EVENT_BYTES = 2048  # of one that waits: longer ones are read whole
SHARE = (
    4  # no limit on a response can be met within this part of the smallest one: a text may count four times its bytes
)


class Taken(NamedTuple):
    """What waited: `number` events of `size` bytes, which said `word` together, the `latest` of them, and what to decode in their
    place."""

    number: int
    size: int
    word: WordsFrame
    latest: list[bytes]
    read: bytes


class EarlyWords:
    """`learn` from a healthy word that was read whole; `take` those that are like it. `heard` counts all that it took, and
    `taken_bytes` those of their events."""

    # All that a word needs stands here, and nothing else is looked at for it.
    __slots__ = (
        "_alike",
        "_events",
        "_full_bytes",
        "_given",
        "_given_bytes",
        "_head",
        "_keeps_all",
        "_most",
        "_most_bytes",
        "_most_waiting",
        "_on_full",
        "_passes",
        "_said",
        "_tail",
        "is_open",
        "taken_bytes",
    )

    def __init__(
        self,
        limits: Limits,
        *,
        spread: float,
        passes: Callable[[WordsFrame], bool] | None,
        on_full: Callable[[], object],
        latest: int,
        keeps_all: bool,
    ) -> None:
        """`spread`: a number of [0, 1), so that many streams do not all catch up at once. `passes`: whether a word may go out
        (None: all may). `on_full` is called once enough events wait. So many of the `latest` are kept, or all."""
        self._head = self._tail = b""  # of an event: what stands before and behind its piece
        self._keeps_all = keeps_all
        self._events: list[bytes] | deque[bytes] = [] if keeps_all else deque(maxlen=latest)
        self._said: list[str] = []  # what each says of those that wait
        self._most = FEWEST_EVENTS + round(spread * (MOST_EVENTS - FEWEST_EVENTS))
        # What one event may be long: a word may be written shorter again, and never longer.
        self._most_waiting = max(0, limits.line_bytes - MOST_EVENT_BYTES)
        self._full_bytes = self._most_waiting  # once `taken_bytes` are so many, enough wait
        self._given = self._given_bytes = 0  # events that `give` gave, and their bytes
        self._most_bytes = min(limits.response_bytes, limits.stream_bytes) // SHARE
        self._passes = passes
        self._on_full = on_full
        self._alike: Alike[WordsFrame] = Alike()
        self.taken_bytes = 0
        self.is_open = False  # the event before was such a word, so the next one may be

    @property
    def heard(self) -> int:
        return self._given + len(self._said)

    @property
    def are_waiting(self) -> bool:
        return bool(self._said)

    def close(self) -> None:
        """No more comes. What holds these words is not held by them any more."""
        self.is_open = False
        self._on_full = _nothing

    def learn(self, event: bytes, frame: Frame) -> None:
        """The whole event said this word, and nothing else, to the client, too."""
        assert isinstance(frame, WordsFrame)
        alike = self._alike
        rest = alike.rest
        if rest is not None and type(rest) is type(frame) and rest.block == frame.block:
            self.is_open = alike.string(event) == frame.text
        if not self.is_open and frame.text and alike.may_learn:
            literal = msgspec.json.encode(frame.text)
            # What stands in it once is the piece; the id or the type of an event may be the same word.
            alike.learn(event, frame.text, rest=frame, read=lambda _: PROBE if event.count(literal) == 1 else None)
            self.is_open = alike.rest is not None
        self._head, self._tail = alike.around

    def leave_room_for(self, size: int) -> None:
        """So many bytes of the response were read in the usual way."""
        self._most_bytes -= size

    def take(self, event: bytes, /) -> bool:
        """Keep an event that is like the last one, if its word passes; the client gets it as it came."""
        head, tail = self._head, self._tail
        if not (self.is_open and event.startswith(head) and event.endswith(tail)):
            return False
        size = len(event)
        taken = self.taken_bytes + size
        if taken > self._most_bytes or size > MOST_EVENT_BYTES:
            return False
        try:
            said = decode_string(event[len(head) - 1 : 1 - len(tail)])  # with its quotes, which both have
        except UNREADABLE:
            return False
        if not said or (self._passes is not None and not self._passes(self._word(said))):
            return False
        self._events.append(event)
        words = self._said
        words.append(said)
        self.taken_bytes = taken
        if len(words) >= self._most or taken >= self._full_bytes:
            self._on_full()
        return True

    def _word(self, said: str) -> WordsFrame:
        rest = self._alike.rest
        assert rest is not None, "there are events that are like another"
        return type(rest)(said, rest.block)

    def give(self) -> Taken:
        """The events that wait. None waits any more."""
        text, number = "".join(self._said), len(self._said)
        latest = list(self._events)
        one = b"".join([self._head, msgspec.json.encode(text)[1:-1], self._tail])
        read = b"".join(latest) if self._keeps_all else one
        size = self.taken_bytes - self._given_bytes
        self._events.clear()
        self._said.clear()
        self._given += number
        self._given_bytes = self.taken_bytes
        self._full_bytes = self.taken_bytes + self._most_waiting
        return Taken(number, size, self._word(text), latest, read)


def _nothing() -> None:
    return None


def say_the_same(frames: list[Frame], word: WordsFrame) -> bool:
    """Whether the frames are pieces of that one word."""
    said: list[str] = []
    for frame in frames:
        if not isinstance(frame, WordsFrame) or type(frame) is not type(word) or frame.block != word.block:
            return False
        said.append(frame.text)
    return "".join(said) == word.text


class EventReader:
    """A `StreamReader` that keeps each event's bytes beside its frames, and writes them for the client as they come. `cutter`,
    which cuts what `reader` reads, ends it at a stop sequence. `has_choices`: several answers come at once, of which the first
    one is read."""

    def __init__(
        self,
        reader: ResponseReader,
        *,
        client: ClientStream,
        bounds: Limits,
        deviations: Deviations,
        filter: CallFilter | None = None,
        cutter: StopCutter | None = None,
        has_choices: bool = False,
        spread: float = 0.0,
        compares_events: bool = False,
    ) -> None:
        self._reader = reader
        self._filter = filter
        self._cutter = cutter
        self._is_stopped = False  # it has come to a stop sequence
        self._has_choices = has_choices
        self._others = 0  # events of other answers
        self._all_ended = not has_choices
        self._client = client
        self._splitter = EventSplitter(bounds)
        passes = reader.lets_pass if reader.seeks_calls else None
        self.early_words = EarlyWords(
            bounds,
            spread=spread,
            passes=passes,
            on_full=self._catch_up,
            latest=LAST_EVENTS,
            keeps_all=compares_events,
        )
        self._out: list[bytes] = []
        self._deviations = deviations
        self._told_kinds = 0  # repairs that the witness has heard of
        self.witness = Witness()

    @property
    def finished(self) -> bool:
        return self._reader.finished and self._all_ended

    @property
    def failed(self) -> bool:
        return self._reader.failed

    @property
    def faulted(self) -> bool:
        return self._reader.faulted or self._is_stopped

    @property
    def heard(self) -> int:
        return self._reader.heard + self.early_words.heard + self._others

    def is_closed(self, *, open_texts: bool = False) -> bool:
        self._catch_up()
        return self._reader.is_closed(open_texts=open_texts)

    def feed(self, chunk: bytes) -> list[Frame]:
        """The healed frames of the events that the chunk completed."""
        if self.early_words.is_open:
            self.early_words.is_open = False
            self._catch_up()
        self.early_words.leave_room_for(len(chunk))
        found: list[Frame] = []
        events = self._splitter.feed(chunk)
        for event in events:
            found += self._take(event) if not self._splitter.has_torn else self._take_torn(event)
        if len(events) == 1 == len(found) and events[0] is chunk and self._filter is None and self._client.goes_on:
            self.early_words.learn(chunk, found[0])
        return found

    def hold_word(self, chunk: bytes) -> None:
        """A word that was taken early waits for the client, behind all that does."""
        self._out.append(chunk)

    def _catch_up(self) -> None:
        """What went out early is decoded and healed as well, and compared with what was told of it."""
        if not self.early_words.are_waiting:
            return
        taken = self.early_words.give()
        self.witness.saw_words(taken.latest, number=taken.number)
        frames = self._reader.decode(taken.read, size=taken.size)
        healed = self._reader.heal_passed(frames)
        is_true = say_the_same(frames, taken.word) and (healed == frames or say_the_same(healed, taken.word))
        self._client.passed(taken.word, is_true=is_true)

    def flush(self) -> list[Frame]:
        self._catch_up()
        if self._is_stopped:
            self._reader.leave()
            return []
        rest = self._splitter.rest()
        event = completed(rest) if rest and not self._splitter.has_torn else None
        found = self._take(event) if event is not None else self._take_torn(rest) if rest else []
        last = self._reader.flush()
        if self._filter is not None:
            last = self._filter.without(last)
        if last:
            if event is None and rest:
                self._client.write_anew()
            self._out.append(self._client.take(b"", (), last))
        return [*found, *last]

    def finish(self) -> Response:
        self.flush()
        response = self._deviations.added_to(self._reader.finish())
        if self._cutter is None or self._cutter.sequence is None:
            return response
        return ended_at_stop(response, self._cutter.sequence)

    def close(self) -> None:
        """No more bytes come: nothing of it holds the reader, so it is freed with the last one who does."""
        self.early_words.close()

    def take_out(self) -> bytes:
        """The bytes that wait for the client."""
        out = b"".join(self._out)
        self._out.clear()
        return out

    def _take(self, event: bytes) -> list[Frame]:
        frames = self._reader.decode(event)
        if self._has_choices:
            self._others += not frames and not event.startswith(b":")
            self._all_ended = self._all_ended or b"[DONE]" in event
        healed = self._reader.heal(frames) if frames else frames
        self._note_stop()
        self._watch(event, frames)
        if self._filter is not None:
            healed = self._filter.without(healed)
        out = self._client.take(event, frames, healed)
        if out:
            self._out.append(out)
        return healed

    def _note_stop(self) -> None:
        self._is_stopped = self._cutter is not None and self._cutter.sequence is not None

    def _take_torn(self, piece: bytes) -> list[Frame]:
        """Bytes that are no whole event: the client gets the readable part, rewritten, and never the bytes. Behind them nothing
        could stand: a client would read it as more of the same line."""
        frames = self._reader.decode(piece)
        healed = self._reader.heal(frames)
        self._note_stop()
        if not frames:
            return healed
        self._watch(piece, frames)
        if self._filter is not None:
            healed = self._filter.without(healed)
        self._client.write_anew()
        if out := self._client.take(b"", frames, healed):
            self._out.append(out)
        return healed

    def _watch(self, event: bytes, frames: Sequence[Frame]) -> None:
        """Keep the events around repairs. Words alone need none that is not told at the end as well, so they cost nothing."""
        if len(frames) == 1 and type(frames[0]) is TextDelta:
            self.witness.saw(event, has_call=False)
            return
        self.witness.saw(event, has_call=ToolCallDelta in map(type, frames))
        self._deviations.take(event, frames)
        kinds, told = self._reader.repair_kinds, self._deviations.told
        if (count := len(kinds) + len(told)) != self._told_kinds:
            self._told_kinds = count
            self.witness.found([*kinds, *[repair.kind for repair in told]])
