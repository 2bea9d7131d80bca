"""Stop sequences that the gateway serves itself, where the upstream has none: the answer ends where the first one is whole.

As in OpenAI's API the text before the sequence is the answer, and nothing of the sequence is in it. The sequence that is whole
first counts; of those that are whole at the same character, the longest. So the text holds no stop sequence at all. Only the
answer's text is searched: no reasoning, and no arguments of calls, though the model may write both as text. Each text of a
response is searched for itself.

What may be the beginning of a sequence waits, so what has gone out is never taken back. Each character is looked at once, however
the text comes (Aho and Corasick, "Efficient string matching", 1975).
"""

import re
from collections import deque
from collections.abc import Iterator, Sequence
from collections.abc import Set as AbstractSet
from functools import lru_cache

import msgspec
from msgspec.structs import replace

from turnwise.assembly.response_reading import CallSeeker
from turnwise.relay.client_request import ClientRequest, RequestRefused
from turnwise.vocab import (
    ArgumentsState,
    BlockEnded,
    Finished,
    FinishReason,
    Frame,
    Part,
    PartDone,
    ReasoningDelta,
    RefusalDelta,
    Repair,
    Response,
    Text,
    TextDelta,
    ToolCall,
    ToolCallDelta,
)
from turnwise.vocab.json_values import without
from turnwise.wire.profiles import Profile
from turnwise.wire.relay_facts import relay_facts

MOST_SEQUENCES, MOST_CHARACTERS = 64, 16 * 1024  # of one request: a table of some 4 MB
KEPT_TABLES = 16

_SPEAKING = (ReasoningDelta, RefusalDelta, ToolCallDelta, Finished)


class StopTable:
    """The sequences as one table of states: a state is the longest beginning of a sequence with which the text ends."""

    def __init__(self, sequences: Sequence[str]) -> None:
        self.following: list[dict[str, int]] = [{}]
        self.shorter = [0]  # the next longest beginning with which the text ends as well
        self.depth = [0]  # characters of the beginning
        self.whole = [0]  # characters of the longest sequence that is whole here
        self.owner = [""]  # a sequence that begins so
        for sequence in sequences:
            self._add(sequence)
        self._link()
        self.first = re.compile(f"[{re.escape(''.join(self.following[0]))}]") if self.following[0] else None

    def _add(self, sequence: str) -> None:
        state = 0
        for number, character in enumerate(sequence, start=1):
            known = self.following[state].get(character)
            if known is None:
                known = self.following[state][character] = len(self.following)
                self.following.append({})
                self.shorter.append(0)
                self.depth.append(number)
                self.whole.append(0)
                self.owner.append(sequence)
            state = known
        self.whole[state] = len(sequence)

    def _link(self) -> None:
        waiting = deque(self.following[0].values())
        while waiting:
            state = waiting.popleft()
            for character, below in self.following[state].items():
                self.shorter[below] = self.step(self.shorter[state], character)
                self.whole[below] = self.whole[below] or self.whole[self.shorter[below]]
                waiting.append(below)

    def step(self, state: int, character: str) -> int:
        """The state one character on."""
        while state and character not in self.following[state]:
            state = self.shorter[state]
        return self.following[state].get(character, 0)


@lru_cache(maxsize=KEPT_TABLES)
def _table(sequences: tuple[str, ...]) -> StopTable:
    return StopTable(sequences)


class StopWatch:
    """Feed a text piece by piece: what may go out comes back. `sequence` is the one that ended it; then nothing more is fed."""

    def __init__(self, sequences: tuple[str, ...]) -> None:
        self._table = _table(sequences)
        self._state = 0
        self.sequence: str | None = None

    def feed(self, text: str) -> str:
        table, state, first = self._table, self._state, self._table.first
        if first is None:
            return text
        before = table.owner[state][: table.depth[state]]  # what waits
        at, end, step, whole = 0, len(text), table.step, table.whole
        while at < end:
            if not state:
                found = first.search(text, at)
                if found is None:
                    break
                at = found.start()
            state = step(state, text[at])
            at += 1
            if length := whole[state]:
                self.sequence = table.owner[state][table.depth[state] - length : table.depth[state]]
                return _passed(before, text, len(before) + at - length)
        self._state = state
        return _passed(before, text, len(before) + end - table.depth[state])

    def rest(self) -> str:
        """What waits: the text ends here."""
        state, self._state = self._state, 0
        return self._table.owner[state][: self._table.depth[state]]


def _passed(before: str, text: str, number: int) -> str:
    """The first characters of both together."""
    return before[:number] if number <= len(before) else before + text[: number - len(before)]


class StopCutter:
    """The frames of a streamed response up to the first stop sequence, which is `sequence` then."""

    def __init__(self, sequences: tuple[str, ...]) -> None:
        self._sequences = sequences
        self._watch = StopWatch(sequences)
        self._block = ""  # the current text
        self._said: set[str] = set()  # texts that came in pieces
        self.sequence: str | None = None

    def take(self, frames: Sequence[Frame]) -> list[Frame]:
        """What of these frames belongs to the answer, behind what waited. Behind the sequence nothing does."""
        found: list[Frame] = []
        for frame in frames:
            if self.sequence is not None:
                break
            found += self._take(frame)
        return found

    def _take(self, frame: Frame) -> Iterator[Frame]:
        if type(frame) is TextDelta:
            if frame.block != self._block:
                yield from self.rest()
                self._block = frame.block
                self._said.add(frame.block)
            if said := self._watch.feed(frame.text):
                yield TextDelta(said, frame.block)
            self.sequence = self._watch.sequence
            return
        if isinstance(frame, (*_SPEAKING, PartDone)) or (isinstance(frame, BlockEnded) and frame.block == self._block):
            yield from self.rest()
        if isinstance(frame, PartDone) and isinstance(frame.part, Text) and frame.block not in self._said:
            part, self.sequence = _before_stop(frame.part, self._sequences)
            frame = replace(frame, part=part)
        yield frame

    def rest(self) -> list[Frame]:
        """What waits: no sequence goes on behind it."""
        said = self._watch.rest()
        return [TextDelta(said, self._block)] if said else []


class VisibleText:
    """Cuts what `calls` leaves of a response's texts: calls that were written there are read first, and reasoning, too."""

    def __init__(self, cutter: StopCutter, *, calls: CallSeeker | None) -> None:
        self._cutter, self._calls = cutter, calls
        self._given: set[str | None] = set()  # calls before the sequence

    @property
    def holds(self) -> bool:
        return self._calls is not None and self._calls.holds

    def is_behind_call(self) -> bool:
        return self._calls is not None and self._calls.is_behind_call()

    def passes(self, frame: Frame) -> bool:
        return False

    def passing(self, frames: list[TextDelta]) -> str | None:
        return None

    def take(self, frames: list[Frame], *, kinds: AbstractSet[type[Frame]] | None = None) -> list[Frame]:
        return self._cut(frames if self._calls is None else self._calls.take(frames, kinds=kinds))

    def finish(self, *, is_closed: bool = False) -> list[Frame]:
        last = [] if self._calls is None else self._calls.finish(is_closed=is_closed)
        found = self._cut(last)
        if self._cutter.sequence is None:
            return [*found, *self._cutter.rest()]
        ends = [one for one in last if isinstance(one, BlockEnded | PartDone) and one.block in self._given]
        return [*found, *ends]

    def settled(self, response: Response) -> Response:
        return response if self._calls is None else self._calls.settled(response)

    def _cut(self, frames: list[Frame]) -> list[Frame]:
        found = self._cutter.take(frames)
        self._given |= {frame.block for frame in found if isinstance(frame, ToolCallDelta)}
        return found


def cut_at_stop(response: Response, sequences: tuple[str, ...]) -> Response:
    """A whole response up to the first stop sequence; itself where it has none."""
    if not sequences:
        return response
    kept: list[Part] = []
    for part in response.message.parts:
        if not isinstance(part, Text):
            kept.append(part)
            continue
        part, sequence = _before_stop(part, sequences)
        if sequence is None or part.text:
            kept.append(part)
        if sequence is not None:
            return ended_at_stop(replace(response, message=replace(response.message, parts=tuple(kept))), sequence)
    return response


def _before_stop(part: Text, sequences: tuple[str, ...]) -> tuple[Text, str | None]:
    watch = StopWatch(sequences)
    said = watch.feed(part.text)
    return (part, None) if watch.sequence is None else (replace(part, text=said, citations=()), watch.sequence)


def ended_at_stop(response: Response, sequence: str) -> Response:
    """The response with the end that the sequence gives it. Whole calls before it stay: a client answers these."""
    parts = tuple([part for part in response.message.parts if not _is_open(part)])
    has_calls = any(isinstance(part, ToolCall) for part in parts)
    return replace(
        response,
        message=replace(response.message, parts=parts),
        finish=FinishReason.TOOL_CALLS if has_calls else FinishReason.STOP,
        provider_finish=None,
        explanation=None,
        may_hide_cut=(),
        stop_sequence=None if has_calls else sequence,
    )


def _is_open(part: Part) -> bool:
    return isinstance(part, ToolCall) and part.state is ArgumentsState.TRUNCATED


class ServedStops(msgspec.Struct, frozen=True, kw_only=True):
    """The client's request as the upstream may read it, and the sequences that the gateway has to watch for."""

    asked: ClientRequest
    sequences: tuple[str, ...] = ()
    told: tuple[Repair, ...] = ()


def serve_stops(asked: ClientRequest, *, model: str, profile: Profile) -> ServedStops:
    """Takes the stop sequences out of the request where the upstream has no place for them. Raises RequestRefused for more than
    the gateway serves, and where several answers come at once."""
    stops = asked.request.settings.stop
    if not stops or not _refuses(asked, model=model, profile=profile, number=len(stops)):
        return ServedStops(asked=asked)
    field = relay_facts(asked.asked.family).setting_names["stop"]
    sequences = tuple(dict.fromkeys([one for one in stops if one]))
    if len(sequences) > MOST_SEQUENCES or sum(map(len, sequences)) > MOST_CHARACTERS:
        most = f"at most {MOST_SEQUENCES} sequences of {MOST_CHARACTERS:,} characters in all"
        raise RequestRefused(f"`{field}` is served by the gateway here, which takes {most}", field=field)
    if asked.has_choices and asked.asked.family == profile.family:  # elsewhere `n` itself is refused
        raise RequestRefused(
            f"`{field}` beside `n`: the model takes no stop sequences, and the gateway serves them for one answer only",
            field=field,
        )
    request = replace(asked.request, settings=replace(asked.request.settings, stop=()))
    fields = without(asked.fields, (field,))
    told = Repair("stop_served", f"`{field}`", "the upstream does not take it here: the gateway ends the answer")
    return ServedStops(asked=replace(asked, request=request, fields=fields), sequences=sequences, told=(told,))


def _refuses(asked: ClientRequest, *, model: str, profile: Profile, number: int) -> bool:
    """Whether the upstream takes so many. Between equal families it judges that itself, but for a model that takes none."""
    facts = relay_facts(profile.family)
    if facts.has_dialects and profile.refuses_stop(model):
        return True
    most = facts.most_stops
    return asked.asked.family != profile.family and most is not None and number > most
