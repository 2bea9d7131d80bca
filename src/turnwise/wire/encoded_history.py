"""The messages of a turn's requests, each encoded once.

Every request of a turn begins with the messages of the one before it (promise step:prefix-stable), so a request costs what
is new in it, and a copy of the bytes that are known already. What stands around the messages is the same as a rule, too.
"""

from bisect import bisect_left
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import NamedTuple, Protocol, Self

import msgspec

from turnwise.vocab import Message, Request, messages_in_common
from turnwise.wire.cache_marks import MARK_NAME, MARKS, Marking, Placed, chosen, last_block, marks_at, placed_marks
from turnwise.wire.json_fields import write_object
from turnwise.wire.profiles import Profile

MESSAGES = b"[]"
"""Holds the place of the messages among the fields of a body: the very object, which nothing else equals by accident."""


class Items(Protocol):
    """What a family makes of messages, taken in order: the entries of its array of messages."""

    def take(self, messages: Sequence[Message]) -> list[bytes]:
        """Take the next messages. Gives the items that no later message changes any more, in order."""
        ...

    def rest(self) -> list[bytes]:
        """The items behind these, as they are if no message comes. Changes nothing."""
        ...

    def copy(self) -> Self: ...


class Adapted(msgspec.Struct, frozen=True):
    """A setting that was sent in another form than it was asked for. `setting`: our word for it, or the field's name."""

    setting: str
    because: str


class CallFrame(msgspec.Struct, frozen=True, kw_only=True):
    """A call but for its messages. In the body they stand between `head`, which goes up to the array's bracket or to the last
    item that stands before them, and `tail`, which begins with the closing bracket. `items` is one that has taken nothing:
    what it makes of a message rests on the message and on `rests_on`. None: the body has no messages of ours. `adapted`: what the
    model would have refused, and how it goes up."""

    path: str = ""
    headers: tuple[tuple[str, str], ...] = ()
    head: bytes
    tail: bytes = b""
    items: Items | None = None
    rests_on: tuple[object, ...] = ()
    behind: tuple[Message, ...] = ()  # messages that stand behind the request's own
    marking: Marking | None = None  # None: the provider is not asked to keep the prompt
    adapted: tuple[Adapted, ...] = ()


Written = tuple[bytes, int, tuple[tuple[int, int], ...], int | None]
"""A body; how many of its first bytes are those of the body before it; where its cache marks begin and end, which are left out of
the other two counts; and the first byte that differs from the body before it, None where it begins with all messages of that
one."""


class _Mark(msgspec.Struct, frozen=True):
    """So far the history is encoded: so many messages, in so many bytes, and what took them."""

    messages: int
    length: int
    items: Items


class EncodedHistory:
    """The messages of the last request of a turn, encoded. Belongs to one turn, and grows no larger than its history.

    Messages that only the last request had are dropped as soon as a request does not have them. If a message of two requests
    changes, or anything else that the encoding depends on, everything is encoded again.
    """

    def __init__(self) -> None:
        self._around: tuple[object, ...] = ()
        self._frame: CallFrame | None = None  # made of that
        self._last: CallFrame | None = None  # that of the last body
        self._messages: Sequence[Message] = ()  # the last body's
        self._encoded = bytearray()  # of them, with commas between them
        self._starts: list[int] = []  # of the items in there, where marks are put in
        self._own: list[Placed] = []  # the user's cache marks among them, where they are looked for
        self._rest = b""  # what stood behind them in the last body
        self._changed_end: int | None = None  # where the last message begins that was shortened, or stands for others
        self._shared: _Mark | None = None  # up to what the last two bodies had in common
        self._whole: _Mark | None = None  # up to the last message

    def frame(
        self,
        request: Request,
        profile: Profile,
        *,
        make: Callable[[Request, Profile], CallFrame],
        also: bool = False,
    ) -> CallFrame:
        """What `make` gives for this request, whose messages it does not look at but for what `also` tells of them; the frame
        before where everything else is as it was."""
        around = (
            request.settings,
            request.tool_choice,
            request.tools,
            request.system,
            request.model,
            request.parallel_tool_calls,
            request.output,
            request.stream,
            request.extra,
            request.cache,
            request.drops_stale_thinking,
            request.system_in_input,
            request.appended_tools,
            request.shows_thinking,
            request.lessons,
            profile,
            also,
        )
        is_known = self._frame is not None and around == self._around
        if is_known and request.settings is not self._around[0]:  # 1 and 1.0 are equal, and written otherwise
            is_known = repr(request.settings) == repr(self._around[0])
        if self._frame is None or not is_known:
            self._frame = make(request, profile)
            self._around = around
        return self._frame

    def write_body(self, frame: CallFrame, *, messages: Sequence[Message]) -> Written:
        if frame.items is None:
            return frame.head + frame.tail, 0, (), None
        encoded, head, marking = self._encoded, frame.head, frame.marking
        kept = len(messages)
        common = messages_in_common(self._messages, messages)
        if marking is not None and marking.passing:
            kept = max(0, kept - marking.passing)
            common = min(common, kept)
        is_changed = common < len(self._messages) or (self._last is not None and self._last.head != head)
        before = self._before(frame, common=common) if is_changed else None
        shared = self._shared_with(frame, items=frame.items, messages=messages, common=common)
        same_bytes = len(head) + shared.length if shared.length and self._last and head == self._last.head else 0
        begun = shared
        stays = None  # where the messages end that the body before has, too, but in its middle
        if marking is not None and is_changed and self._last is not None and self._last.head == head:
            shared = self._take(messages[shared.messages : common], behind=shared, frame=frame)
            stays = shared.length + bool(shared.items.rest()) * len(b",x")
            begun = self._take_changed(messages[:kept], behind=shared, frame=frame)
        until = self._take(messages[begun.messages : kept], behind=begun, frame=frame)
        behind_kept = until.items.rest()
        self._whole = self._take(messages[kept:], behind=until, frame=frame) if kept < len(messages) else until
        self._last, self._messages, self._shared = frame, messages, shared
        rest = behind_kept if self._whole is until else self._whole.items.rest()
        self._rest = b",".join(rest)
        if rest and self._whole.length:
            self._rest = b"," + self._rest
        encoded += self._rest
        comma = b"," if encoded and not head.endswith(b"[") else b""
        begins = len(head) + len(comma)
        body = b"".join((head, comma, encoded, frame.tail))
        changed_at = None if before is None else before.change(body)
        spans: tuple[tuple[int, int], ...] = ()
        if marking is not None:
            marks = self._marks(
                frame, marking=marking, until=until, stays=stays, behind=behind_kept, rest=rest, begins=begins
            )
            body, spans = _with_marks(body, marks=marks)
        del encoded[self._whole.length :]
        return body, same_bytes, spans, changed_at

    def _take_changed(self, messages: Sequence[Message], *, behind: _Mark, frame: CallFrame) -> _Mark:
        """The messages up to the end of a change in their middle, which is noted: the next change begins there as a rule, and
        only what was kept up to there can be read then."""
        changed = _changed_part(self._messages, messages, common=behind.messages)
        if changed:
            behind = self._take(messages[behind.messages : changed], behind=behind, frame=frame)
            self._changed_end = behind.length + bool(behind.length)
        return behind

    def _before(self, frame: CallFrame, *, common: int) -> "_Before | None":
        """The body before up to its last message, from where it may be another one than the next; None if there is no such
        body."""
        last, shared = self._last, self._shared
        if last is None or shared is None:
            return None
        behind_bracket = last.head.endswith(b"[") or not (self._encoded or self._rest)
        comma = b"" if behind_bracket else b","
        is_kept = common >= shared.messages and last.rests_on == frame.rests_on and last.head == frame.head
        if is_kept and shared.length:
            begins = len(last.head) + len(comma) + shared.length
            return _Before(begins, bytes(self._encoded[shared.length :]) + self._rest)
        return _Before(0, last.head + comma + self._encoded + self._rest)

    def _marks(
        self,
        frame: CallFrame,
        *,
        marking: Marking,
        until: _Mark,
        stays: int | None,
        behind: Sequence[bytes],
        rest: Sequence[bytes],
        begins: int,
    ) -> list[tuple[int, bytes]]:
        """Where marks go in the body, and what they say. `until`: what is worth keeping is encoded so far, with `behind` it."""
        own = list(marking.own)
        for at, ttl in self._own:
            own += marks_at(begins + at, ttls=(ttl,))
        for at, item in _at(rest, behind=self._whole_length):
            own += placed_marks(item, at=begins + at)
        end = begins + len(self._encoded) + len(frame.tail)
        own += () if marking.at_top is None else marks_at(end, ttls=(marking.at_top,))
        ends = [begins + at for at in self._ends(marking, until=until, stays=stays, behind=behind)]
        if not marking.passing and (marking.at_end or marking.at_top is not None):
            # the field marks the last block: another mark there is refused if it says another time
            items = self._from_the_end(until, behind=behind)
            found = next(((at, block) for at, item in items if (block := last_block(item)) is not None), None)
            if found is not None:
                at, block = found
                ends = [place for place in ends if place != begins + at + block.place]
                if marking.at_top is None and not block.is_marked:
                    ends.insert(0, end - 1)
        if (kept := self._end_of_change(marking)) is not None and begins + kept not in ends:
            ends.append(begins + kept)
        places = [] if marking.shared_only else [(9 - number, at) for number, at in enumerate(ends)]
        places += list(enumerate(marking.in_head))
        return [(at, MARKS[ttl]) for at, ttl in chosen(places, own=own, ttl=marking.ttl)]

    @property
    def _whole_length(self) -> int:
        return 0 if self._whole is None else self._whole.length

    def _ends(self, marking: Marking, *, until: _Mark, stays: int | None, behind: Sequence[bytes]) -> list[int]:
        """The places for marks at the end of what is worth keeping, and at the end of that in the request before it: what the
        model said in between begins with an assistant's item. Where old messages were shortened, the second goes in front of the
        first of them, where an earlier request may have ended: up to there (`stays`) the cache can still be read."""
        found: list[int] = []
        is_open = True
        for at, item in self._from_the_end(until, behind=behind):
            if item.startswith(ASSISTANT) or (stays is not None and found and at >= stays):
                is_open = True
            elif is_open and (place := marking.place(item)) is not None:
                if not self._encoded.startswith(item[:place], at):  # a later message has changed it
                    continue
                found.append(at + place)
                is_open = False
                if len(found) == 2:
                    break
        return found

    def _end_of_change(self, marking: Marking) -> int | None:
        """The place for a mark at the end of what was shortened last."""
        at = bisect_left(self._starts, self._changed_end) if self._changed_end is not None else len(self._starts)
        if at >= len(self._starts) - 1 or self._starts[at] != self._changed_end:
            return None
        start = self._starts[at]
        place = marking.place(bytes(self._encoded[start : self._starts[at + 1] - 1]))
        return None if place is None else start + place

    def _from_the_end(self, until: _Mark, *, behind: Sequence[bytes]) -> Iterator[tuple[int, bytes]]:
        yield from reversed(list(_at(behind, behind=until.length)))
        end = until.length
        for number in range(bisect_left(self._starts, until.length) - 1, -1, -1):
            start = self._starts[number]
            yield start, bytes(self._encoded[start:end])
            end = start - 1

    def _shared_with(self, frame: CallFrame, *, items: Items, messages: Sequence[Message], common: int) -> _Mark:
        """What these have in common with the messages of the last body; nothing is encoded behind it afterwards."""
        shared, whole, last = self._shared, self._whole, self._last
        self._shared = self._whole = None  # until all is encoded: what cannot be must leave nothing half-kept behind
        rests_on_same = last is frame or (last is not None and last.rests_on == frame.rests_on)
        if shared is None or whole is None or common < shared.messages or not rests_on_same:
            self._cut(0)
            return _Mark(0, 0, items)
        if common == whole.messages:
            return whole
        self._cut(shared.length)
        return self._take(messages[shared.messages : common], behind=shared, frame=frame)

    def _cut(self, length: int) -> None:
        """Keep so many bytes."""
        del self._encoded[length:]
        del self._starts[bisect_left(self._starts, length) :]
        if self._changed_end is not None and self._changed_end >= length:
            self._changed_end = None
        while self._own and self._own[-1][0] >= length:
            self._own.pop()

    def _take(self, messages: Sequence[Message], *, behind: _Mark, frame: CallFrame) -> _Mark:
        items = behind.items.copy()
        encoded = self._encoded
        if found := items.take(messages):
            if encoded:
                encoded += b","
            new = b",".join(found)
            if frame.marking is not None:
                self._note(found, new=new, at=len(encoded))
            encoded += new
        return _Mark(behind.messages + len(messages), len(encoded), items)

    def _note(self, items: Sequence[bytes], *, new: bytes, at: int) -> None:
        """Keep where the items begin, and where the user's marks are in them. `new` is all of them, in the place `at`."""
        begins = at
        for item in items:
            self._starts.append(begins)
            begins += len(item) + 1
        if MARK_NAME in new:
            for start, item in zip(self._starts[-len(items) :], items, strict=True):
                self._own += placed_marks(item, at=start)


ASSISTANT = b'{"role":"assistant"'


def _changed_part(before: Sequence[Message], messages: Sequence[Message], *, common: int) -> int:
    """How many messages there are up to the end of a change in their middle: behind that stand messages of before. 0: there is no
    such change, or nothing of before behind it."""
    if len(before) - common < 2:  # at most its last message is another one
        return 0
    known = {id(message) for message in before}
    is_old = [id(message) in known for message in messages[common:]]
    if True not in is_old:
        return 0
    last_old = len(is_old) - 1 - is_old[::-1].index(True)
    return next((common + at + 1 for at in range(last_old, -1, -1) if not is_old[at]), 0)


def _at(items: Sequence[bytes], *, behind: int) -> Iterator[tuple[int, bytes]]:
    """The items with their places, where they follow what has so many bytes."""
    at = behind + 1 if behind else 0
    for item in items:
        yield at, item
        at += len(item) + 1


def _with_marks(body: bytes, *, marks: Sequence[tuple[int, bytes]]) -> tuple[bytes, tuple[tuple[int, int], ...]]:
    """The body with the marks put in at their places, and where they stand then."""
    pieces: list[bytes | memoryview] = []
    spans: list[tuple[int, int]] = []
    whole = memoryview(body)
    end = longer = 0
    for at, mark in marks:
        pieces += (whole[end:at], mark)
        spans.append((at + longer, at + longer + len(mark)))
        end, longer = at, longer + len(mark)
    return b"".join((*pieces, whole[end:])), tuple(spans)


class _Before(NamedTuple):
    """A part of a body, and where it begins."""

    begins: int
    part: bytes

    def change(self, body: bytes) -> int | None:
        """The first byte at which the next body is another one; None where it has all of this."""
        at = _first_difference(self.part, memoryview(body)[self.begins :])
        return None if at == len(self.part) else self.begins + at


def _first_difference(one: bytes, other: memoryview) -> int:
    low, high = 0, min(len(one), len(other))
    first = memoryview(one)
    while low < high:
        middle = (low + high + 1) // 2
        if first[low:middle] == other[low:middle]:
            low = middle
        else:
            high = middle - 1
    return low


def around(fields: Mapping[str, bytes], *, name: str) -> tuple[bytes, bytes]:
    """What stands in a body before the items of the array `name`, and behind them."""
    names = list(fields)
    at = names.index(name)
    before = write_object({key: fields[key] for key in names[:at]})[:-1]
    behind = write_object({key: fields[key] for key in names[at + 1 :]})[1:]
    comma = b"," if at else b""
    return before + comma + b'"' + name.encode() + b'":[', (b"]," if len(names) > at + 1 else b"]") + behind
