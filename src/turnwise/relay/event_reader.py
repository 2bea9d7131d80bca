"""The reader of the stream that a client reads, too: each event's bytes stay beside its frames, and go on as they came where
nothing has to be mended."""

from collections.abc import Sequence

from turnwise.assembly.evidence import LAST_EVENTS, Witness
from turnwise.assembly.response_reading import ResponseReader
from turnwise.relay.call_filters import CallFilter
from turnwise.relay.client_stream import ClientStream
from turnwise.relay.deviations import Deviations
from turnwise.relay.early_words import EarlyWords, say_the_same
from turnwise.relay.event_splitting import EventSplitter, completed
from turnwise.relay.stops import StopCutter, ended_at_stop
from turnwise.vocab import Frame, Response, TextDelta, ToolCallDelta
from turnwise.wire.limits import Limits


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
        """Bytes that are no whole event: the client gets what was read of them, written anew, and never the bytes. Behind them
        nothing could stand: a client would read it as more of the same line."""
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
