"""Words that go on to the client before they are assembled.

Between equal families a stream of text brings event after event that differs from the one before in nothing but its piece
(`wire/repeated_chunks.py`). What such an event says is known from that one string, and the client gets its bytes as they came.
So it goes out at once, and decoding, healing and comparing are done later, for many events together: a processor that has just
served another stream has forgotten where all of that stands.

Nothing is taken on trust. What they said together is written into one more event like them, which is decoded and healed before
anything else of the response is looked at, and what it says then is compared with what was told here (`EventReader._catch_up`).
Where a family compares its events with each other, they are kept and decoded themselves.
"""

from collections import deque
from collections.abc import Callable
from typing import NamedTuple

import msgspec

from turnwise.vocab import Frame, ReasoningDelta, RefusalDelta, TextDelta
from turnwise.wire.json_fields import UNREADABLE
from turnwise.wire.limits import Limits
from turnwise.wire.repeated_chunks import PROBE, Alike, decode_string

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
