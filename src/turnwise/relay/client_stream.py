"""The stream that a client reads: healthy events of its own family as they came, everything else rewritten.

What can still turn out otherwise waits. A finish reason waits for the end of the stream: only then is known whether that word is
true. So does what follows a lost piece: it may come again, or the next response may go on from before it. So does an error of the
provider: what follows it may be the answer to the next request. The end of a text or
call, and a call that comes as a whole, wait for the next word: if the output limit fell there, the rest of it may be on its way
(`relaying`), and a block that has ended cannot grow. The encoder learns every frame that goes out, also those whose event passes
as it came, so that it can take over at any event; but it learns those only when it does, since it seldom has to.
"""

import re
from collections import deque
from collections.abc import Callable, Sequence

import msgspec

from turnwise.relay.agreement import NOISE, WORDS, Agreement, Conflict, Shown
from turnwise.relay.breaches import SAYING
from turnwise.rules.schema import is_whole_json
from turnwise.vocab import (
    ArgumentsState,
    BlockEnded,
    CallForming,
    Fault,
    Faulted,
    FaultKind,
    Finished,
    FinishReason,
    Frame,
    Lost,
    Mended,
    Part,
    PartDone,
    Request,
    Response,
    Restated,
    Started,
    ToolCall,
    ToolCallDelta,
    Usage,
    UsageReported,
    calls_of,
)
from turnwise.wire.family import UNSTAMPED, AnswerStamp, Family
from turnwise.wire.relay_facts import RelayFacts, relay_facts
from turnwise.wire.sse import BOM

LOST_PIECE = Fault(
    kind=FaultKind.DISCONNECTED, message="a piece of the provider's response was lost on the way", status=502
)
BROKE_OFF = Fault(kind=FaultKind.DISCONNECTED, message="the provider's response broke off before its end", status=502)

# Of original events that wait for what the assembler holds of one call, while others go on.
MOST_SILENT_BYTES = 4096
# Frames that passed and that the encoder has not been told. Catching up takes it 50 ms at most, once; from there on it is told
# of one frame for each that passes.
MOST_UNTOLD = 10_000


_DONE = re.compile(rb"^data:[ \t]*\[DONE\]", re.MULTILINE)


def reads_original(raw: bytes, *, reads: Callable[[bytes], bool]) -> bool:
    """Whether the official client reads the event so far as we do. A client that does not strip a byte order mark loses the
    first event behind it."""
    return not raw.startswith(BOM) and reads(raw)


def is_stray(raw: bytes, *, facts: RelayFacts) -> bool:
    """Whether an event is the end mark of another family, which this family's clients try to read as JSON."""
    return not facts.knows_done and _DONE.search(raw) is not None


# In the first bytes of an answer; within a string of JSON its quotes would be escaped.
_CREATED = re.compile(rb'"created(?:_at)?"\s*:\s*(\d{1,12})\b')
_LOOKED_AT = 4096


def stamp_in(raw: bytes, stamp: AnswerStamp, *, passes: bool = False) -> AnswerStamp:
    """The stamp with the upstream's own time, where the beginning of its answer tells one. `passes`: its client reads that as it
    came, so that even 0 is the answer's time."""
    found = _CREATED.search(raw, 0, _LOOKED_AT)
    created_s = stamp.created_s if found is None else int(found[1])
    return msgspec.structs.replace(stamp, created_s=created_s) if created_s or passes else stamp


class _Held(msgspec.Struct, frozen=True):
    """One event that waits: its bytes, and its frames."""

    raw: bytes
    frames: tuple[Frame, ...]
    healed: tuple[Frame, ...]


class _Silent(msgspec.Struct, frozen=True):
    """One event that was not sent yet: its bytes, the part of it that is rewritten, and whether that is closed by its bytes."""

    raw: bytes
    frames: Sequence[Frame] = ()
    closes: bool = False


class ClientStream:
    """Give it each event's bytes with its frames (`take`), then the end (`settle` or `fail`); it returns the client's bytes.

    `passes`: the upstream speaks the client's family, so that a healthy event goes on in its original bytes. `counts`: the client
    has asked for the usage, or its family always tells it. Unless it `heals`, every event goes on as it came; if it `rewrites`,
    none does. `stamp`: what an event that is written here says of the answer.

    All that a client reads of a stream is written here, and whole events alone: what is no event has no `raw` bytes.
    """

    def __init__(
        self,
        family: Family,
        *,
        request: Request,
        passes: bool,
        counts: bool,
        heals: bool = True,
        rewrites: bool = False,
        stamp: AnswerStamp = UNSTAMPED,
    ) -> None:
        self._family = family
        self._facts = relay_facts(family.name)
        self._request = request
        self._stamp = stamp
        self._encoder = family.stream_encoder(request, stamp)
        self._is_same_family = passes
        self._passes = passes and not rewrites
        self._heals = heals or rewrites
        self._reads = self._facts.client_reading()
        # A call without arguments stands for one with `{}`, so a cut in it would not show.
        self.hides_empty = not passes or self._facts.object_arguments
        self._counts = counts
        self._shown = Shown(final_wins=self._facts.final_wins)
        self._agreement = Agreement(
            empty_is_object=self._facts.object_arguments,
            final_wins=self._facts.final_wins,
            takes_objects=family.traits.gives_objects(streamed=True),
        )
        self._silent: list[_Silent] = []
        self._untold: deque[Frame | None] = deque()  # None: the client knows that what has ended is closed
        self._early_ends: list[BlockEnded] = []
        self._held: list[_Held] = []
        self._waits = False  # all that follows waits for the end
        self._has_begun = False
        self._was_usual = False
        self._is_over = False
        self._has_unhealed = False  # an event went out that nobody healed
        self._is_torn = False  # what follows was no event on the wire
        self._misses = False  # something that such events should have said
        self.fault: Fault | None = None  # with which it ended

    @property
    def has_content(self) -> bool:
        """Whether the client has been told a word or a call; of a stream that is not healed, any event."""
        return self._has_unhealed or self._shown.is_anything

    @property
    def goes_on(self) -> bool:
        """Whether the last event passed as it came, and a word that follows it would, too."""
        return self._was_usual and self._passes

    def passed(self, word: Frame, *, is_true: bool) -> None:
        """The client has this word from original events behind one after which it `goes_on`. `is_true`: they said just that."""
        self._shown.note(word)
        self._agreement.read((word,), (word,))
        self._pass(word)
        if not is_true:
            self._passes = False
            self._shown.contradict("an event was read in another form than it was sent in")

    def take(self, raw: bytes, frames: Sequence[Frame], healed: Sequence[Frame]) -> bytes:
        """One event: its `raw` bytes, the frames that stood in it, and the healed ones."""
        if not self._heals and (raw or self._has_unhealed):
            return self._take_unhealed(raw, healed)
        if self._passes:
            if not frames and not healed and is_stray(raw, facts=self._facts):
                return b""
            self._passes = reads_original(raw, reads=self._reads)
            self._was_usual = self._is_usual(frames, healed)
            if self._was_usual:
                return raw
        self._waits = self._waits or not _LAST_WORDS.isdisjoint(map(type, healed))
        if self._waits or _may_be_last(healed, empty_too=self.hides_empty) or (self._held and not frames):
            self._held.append(_Held(raw, tuple(frames), tuple(healed)))
            return b""
        if not self._held:
            return self._take_now(raw, frames, healed)
        held, self._held = self._held, []
        out = [self._take_now(one.raw, one.frames, one.healed) for one in held]
        return b"".join([*out, self._take_now(raw, frames, healed)])

    def _take_unhealed(self, raw: bytes, healed: Sequence[Frame]) -> bytes:
        for frame in healed:
            self._shown.note(frame)
        self._has_unhealed = self._has_unhealed or not raw.startswith(b":")
        self._misses = self._misses or (self._is_torn and not _SAYING_MORE.isdisjoint(map(type, healed)))
        return raw

    def _is_usual(self, frames: Sequence[Frame], healed: Sequence[Frame]) -> bool:
        """Whether an event is one healthy word, and nothing waits before it: told first because speed counts."""
        if not (len(healed) == 1 == len(frames) and healed[0] is frames[0]) or type(healed[0]) not in WORDS:
            return False
        if not self._passes or self._silent or self._held or self._waits or not self._shown.is_anything:
            return False
        if self._agreement.is_ahead or not self._agreement.read(frames, healed):
            return False
        self._shown.note(healed[0])
        self._pass(healed[0])  # a word ends nothing, so nothing is closed
        return True

    def _take_now(self, raw: bytes, frames: Sequence[Frame], healed: Sequence[Frame]) -> bytes:
        if not healed and not frames:
            return self._take_silent(raw)
        if all(map(_is_noise, frames)) and all(map(_is_noise, healed)):
            return b""
        if Started in map(type, healed):
            self._begin(raw)
        self._passes = self._passes and self._agreement.read(frames, healed)
        self._silent.append(_Silent(raw, self._going_out(healed), closes=self._passes))
        if self._passes and self._agreement.is_ahead:
            if sum([len(one.raw) for one in self._silent]) <= MOST_SILENT_BYTES:
                return b""
            self._passes = False  # the client should not wait for more than the assembler still holds
        # Before the first word it can still be asked for once more, and the client is none the wiser.
        return self._flush() if self._shown.is_anything else b""

    def _begin(self, raw: bytes) -> None:
        """A response begins. A second one discards the first: that is possible as long as the client knows nothing of it."""
        if self._shown.is_anything:
            self._shown.contradict("the provider began its response anew")
        elif self._has_begun or self._is_same_family:
            stamp = self._stamp if not self._is_same_family else stamp_in(raw, self._stamp, passes=self._passes)
            self._encoder = self._family.stream_encoder(self._request, stamp)
            if self._has_begun:
                self._silent.clear()
                self._untold.clear()
                self._passes = False
        self._has_begun = True

    def _take_silent(self, raw: bytes) -> bytes:
        """An event without a frame: a comment goes on at once, anything else with the next event, as it may belong to it."""
        if not self._passes:
            return b""
        if self.has_content and not self._silent and raw.lstrip().startswith(b":"):
            return raw
        self._silent.append(_Silent(raw))
        return b""

    def _flush(self) -> bytes:
        """What waited: as it came, or, if something in it was not healthy, rewritten."""
        silent, self._silent = self._silent, []
        if not self._passes:
            return b"".join(map(self._written, silent))
        for one in silent:
            for frame in one.frames:
                self._pass(frame)
            if one.closes:
                self._pass(None)
        return b"".join([one.raw for one in silent])

    def _pass(self, frame: Frame | None) -> None:
        """The client has this from the original bytes."""
        self._untold.append(frame)
        if len(self._untold) > MOST_UNTOLD:
            self._tell(self._untold.popleft())

    def _tell(self, frame: Frame | None) -> bytes:
        return self._encoder.close_ended() if frame is None else self._encoder.encode(frame)

    def _catch_up(self) -> None:
        """The encoder knows all that the client knows."""
        while self._untold:
            self._tell(self._untold.popleft())

    def _written(self, one: _Silent) -> bytes:
        self._catch_up()
        out = b"".join(map(self._encoder.encode, one.frames))
        if one.closes:
            self._encoder.close_ended()  # as its own bytes would have said
        return out

    def write_anew(self) -> None:
        """The client gets none of the following frames in the bytes in which they came."""
        self._passes, self._is_torn = False, True

    def forget_held(self) -> None:
        """What waited belongs to a response that is given up."""
        self._held.clear()
        self._waits = self._passes = False

    def as_known(self, response: Response) -> Response | None:
        """Another response that begins with what the client knows, its calls under the ids that they have there; None where it
        does not."""
        message = self._shown.with_known_ids(response.message)
        if isinstance(self._shown.missing(message), Conflict):
            return None
        return msgspec.structs.replace(response, message=message)

    def settle(self, response: Response, *, is_altered: bool, ended_s: int | None = None) -> bytes:
        """The end of a whole `response`, at that time. `is_altered`: more than its own events belongs to it."""
        if self._is_over:
            return b""
        if self._has_unhealed:
            return self.fail(BROKE_OFF) if self._misses else b""
        held, self._held = self._held, []
        whole = without_hidden_cuts(response, empty_too=self.hides_empty)
        if self._passes and not is_altered and whole is response and self._ends_as_it_came(held, response):
            self._is_over = True
            return self._pass_end(held)
        self._passes = False
        left_out = {call.id for call in calls_of(response.message)} - {call.id for call in calls_of(whole.message)}
        out = [self._flush(), self._write(_still_true(held, left_out=left_out, is_altered=is_altered))]
        missing = self._shown.missing(whole.message)
        if isinstance(missing, Conflict):
            conflict = f"{missing.why}, and what was sent cannot be taken back: ask again"
            return b"".join([*out, self.fail(Fault(kind=FaultKind.SERVER, message=conflict, status=502))])
        self._is_over = True
        self._catch_up()
        out += [self._write(missing.frames), *map(self._encoder.encode, self._early_ends)]
        last: list[Frame] = []
        if response.usage is not None:
            last.append(UsageReported(response.usage))
        last.append(_finished(response, held if self._is_same_family else ()))
        return b"".join([*out, self._write(last), self._encoder.finish(ended_s=ended_s)])

    def fail(self, fault: Fault) -> bytes:
        """The end with an error of the client's own family."""
        if self._is_over:
            return b""
        self._is_over = True
        self.fault = fault
        out = self._flush()
        self._catch_up()
        told = out + self._encoder.encode(Faulted(fault))
        if not (self._facts.end_mark or self._facts.knows_done):
            return told  # the family's streams have no end mark
        last = self._facts.last_event if self._facts.knows_done and self._facts.last_event else self._encoder.finish()
        return told + last

    # -- originals ---------------------------------------------------------------------------------------------------

    def _ends_as_it_came(self, held: Sequence[_Held], response: Response) -> bool:
        """Whether what was held is a true end in the client's own family."""
        said = [frame for one in held for frame in one.healed]
        finished = {frame.reason for frame in said if isinstance(frame, Finished)}
        if finished != {response.finish} or (self._facts.finish_is_last and not _ends_last(held)):
            return False
        for one in held:
            self._agreement.read(one.frames, one.healed)
        if response.message.parts and not all(self._facts.end_tells(one.raw) for one in held):
            return False
        return self._agreement.tells(response.message)

    def _pass_end(self, held: Sequence[_Held]) -> bytes:
        mark, last = self._facts.end_mark, self._facts.last_event
        held = _until_end(held, mark=mark)
        # Events that only count are for clients that asked for it.
        told = [one.raw for one in held if self._counts or {*map(type, one.healed)} != {UsageReported}]
        out = b"".join([self._flush(), *told])
        return out if any(mark in one.raw for one in held) else out + last

    # -- rewritten events ------------------------------------------------------------------------------------------------

    def _write(self, frames: Sequence[Frame]) -> bytes:
        self._catch_up()
        return b"".join(map(self._encoder.encode, self._going_out(frames)))

    def _going_out(self, frames: Sequence[Frame]) -> list[Frame]:
        """Of these what the client is told now."""
        found: list[Frame] = []
        for frame in frames:
            if isinstance(frame, BlockEnded) and not self._shown.knows(frame.block):
                self._early_ends.append(frame)  # of a call that the assembler still holds, or of data without a word
            elif self._shown.note(frame):
                found.append(frame)
        return found


_LAST_WORDS = frozenset([Finished, Lost, Faulted])
_SAYING_MORE = SAYING | {Finished, Lost}
_ENDINGS = frozenset([BlockEnded, PartDone, Restated])


def _may_be_last(healed: Sequence[Frame], *, empty_too: bool) -> bool:
    """Whether an event ends with the end of a part, or with a whole call; `empty_too`: or with one that has only its name."""
    for frame in reversed(healed):
        if isinstance(frame, ToolCallDelta):
            return frame.whole or (empty_too and bool(frame.name) and not frame.arguments)
        if type(frame) is not UsageReported:
            return type(frame) in _ENDINGS
    return False


def without_hidden_cuts(response: Response, *, empty_too: bool) -> Response:
    """The response without cut calls that came as objects: nothing in them shows that they were cut. With `empty_too`, also
    without cut calls whose arguments had not begun: the client's family takes them for `{}`."""
    parts = tuple([part for part in response.message.parts if not _hides_cut(part, empty_too=empty_too)])
    if len(parts) == len(response.message.parts):
        return response
    return msgspec.structs.replace(response, message=msgspec.structs.replace(response.message, parts=parts))


def _hides_cut(part: Part, *, empty_too: bool) -> bool:
    if not isinstance(part, ToolCall) or part.state is not ArgumentsState.TRUNCATED:
        return False
    return is_whole_json(part.arguments) if part.arguments.strip() else empty_too


def _still_true(held: Sequence[_Held], *, left_out: set[str], is_altered: bool) -> list[Frame]:
    """What waited, without the calls that are left out, and without the ends of parts if one of them has grown since."""
    gone: set[str | None] = set()
    found: list[Frame] = []
    for frame in [frame for one in held for frame in one.healed]:
        if type(frame) is Lost:
            break  # what follows has a hole before it: the whole response says it
        match frame:
            case ToolCallDelta(id=str(id), block=block) | PartDone(part=ToolCall(id=id), block=block) if id in left_out:
                gone.add(block)
            case _:
                pass
        if type(frame) in (Finished, UsageReported, Faulted) or getattr(frame, "block", "") in gone:
            continue
        if is_altered and type(frame) in (BlockEnded, PartDone):
            continue
        found.append(frame)
    return found


def _ends_last(held: Sequence[_Held]) -> bool:
    """Whether the finish reason stands behind every word. A client of Chat Completions may run its calls there. Some servers
    repeat the reason alone, which misleads nobody."""
    kinds = [type(frame) for one in held for frame in one.frames]
    return SAYING.isdisjoint(kinds[kinds.index(Finished) + 1 :]) if Finished in kinds else True


def _until_end(held: Sequence[_Held], *, mark: bytes) -> list[_Held]:
    """The events up to the end of the response. Behind it our decoders are deaf, and a client reads on: some servers send a
    response twice."""
    kept: list[_Held] = []
    has_finished = False
    for one in held:
        if has_finished and not mark and not one.frames and b"[DONE]" not in one.raw:
            continue
        kept.append(one)
        has_finished = has_finished or Finished in map(type, one.frames)
        if has_finished and mark and mark in one.raw:
            break
    return kept


def untrue_end(response: Response) -> Fault | None:
    """The error in place of an end that would look whole and is not."""
    if response.fault is not None:
        return response.fault
    lost = any(call.state is ArgumentsState.LOST for call in calls_of(response.message))
    if response.lost or lost:
        return LOST_PIECE
    if response.finish is FinishReason.CUT:
        return BROKE_OFF
    return None


def summed(usage: Usage | None, more: Usage | None) -> Usage | None:
    """The usage of a response that took another request: the prompt of the first one, the output of both."""
    if usage is None or more is None:
        return usage
    return msgspec.structs.replace(
        usage,
        output_tokens=usage.output_tokens + more.output_tokens,
        reasoning_tokens=usage.reasoning_tokens + more.reasoning_tokens,
        provider="",
    )


def _finished(response: Response, held: Sequence[_Held]) -> Finished:
    """The provider's own word stands where it means the same."""
    if (sequence := response.stop_sequence) is not None:
        return Finished(response.finish, stop_sequence=sequence)
    for one in held:
        for frame in one.healed:
            if isinstance(frame, Finished) and frame.reason is response.finish and not frame.limit_reached:
                return frame
    return Finished(response.finish, explanation=response.explanation)


def _is_noise(frame: Frame) -> bool:
    return isinstance(frame, CallForming) or (isinstance(frame, Mended) and frame.repair.kind == NOISE)
