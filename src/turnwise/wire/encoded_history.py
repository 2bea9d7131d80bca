"""The messages of a turn's requests, each encoded once.

Every request of a turn begins with the messages of the one before it (promise step:prefix-stable), so a request costs what
is new in it, and a copy of the bytes that are known already. What stands around the messages is the same as a rule, too.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Protocol, Self

import msgspec

from turnwise.vocab import Message, Request, messages_in_common
from turnwise.wire.json_fields import write_object
from turnwise.wire.profiles import Profile

MESSAGES = b"[]"
"""Holds the place of the messages among the fields of a body: the very object, which nothing else equals by accident."""


class Items(Protocol):
    """What a family makes of messages, taken one after the other: the entries of its array of messages."""

    def add(self, message: Message) -> list[bytes]:
        """Take the next message. Gives the items that no later message changes any more, in order."""
        ...

    def rest(self) -> list[bytes]:
        """The items behind these, as they are if no message comes. Changes nothing."""
        ...

    def copy(self) -> Self: ...


class Frame(msgspec.Struct, frozen=True, kw_only=True):
    """A call but for its messages. In the body they stand between `head`, which goes up to the array's bracket or to the last
    item that stands before them, and `tail`, which begins with the closing bracket. `items` is one that has taken nothing:
    what it makes of a message rests on the message and on `rests_on`. None: the body has no messages of ours."""

    path: str = ""
    headers: tuple[tuple[str, str], ...] = ()
    head: bytes
    tail: bytes = b""
    items: Items | None = None
    rests_on: tuple[object, ...] = ()


class _Mark(msgspec.Struct, frozen=True):
    """So far the history is encoded: so many messages, in so many bytes, and what took them."""

    messages: int
    length: int
    items: Items


class EncodedHistory:
    """The messages of the last request of a turn, encoded. Belongs to one turn, and grows no larger than its history.

    What only the last request had goes with the next one that does not have it. Where a message changes that two requests
    carried, or anything that the encoding rests on, all of it is made anew.
    """

    def __init__(self) -> None:
        self._around: tuple[object, ...] = ()
        self._frame: Frame | None = None  # made of that
        self._last: Frame | None = None  # that of the last body
        self._messages: Sequence[Message] = ()  # the last body's
        self._encoded = bytearray()  # of them, with commas between them
        self._shared: _Mark | None = None  # up to what the last two bodies had in common
        self._whole: _Mark | None = None  # up to the last message

    def frame(
        self,
        request: Request,
        profile: Profile,
        *,
        make: Callable[[Request, Profile], Frame],
        also: bool = False,
    ) -> Frame:
        """What `make` gives for this request, whose messages it does not look at but for what `also` tells of them; the frame
        before where everything else is as it was."""
        around = (
            request.settings,  # the first: see below
            request.tool_choice,
            request.tools,
            request.system,
            request.model,
            request.parallel_tool_calls,
            request.output,
            request.stream,
            request.extra,
            profile,
            also,
        )
        if self._frame is None or around != self._around or not _writes_alike(request.settings, self._around[0]):
            self._frame = make(request, profile)
            self._around = around
        return self._frame

    def write_body(self, frame: Frame, *, messages: Sequence[Message]) -> tuple[bytes, int]:
        """The body, and how many bytes at its beginning are those of the body before it."""
        if frame.items is None:
            return frame.head + frame.tail, 0
        encoded, head = self._encoded, frame.head
        shared = self._shared_with(frame, items=frame.items, messages=messages)
        same_bytes = len(head) + shared.length if shared.length and self._last and head == self._last.head else 0
        self._whole = self._take(messages[shared.messages :], behind=shared)
        self._last, self._messages, self._shared = frame, messages, shared
        _put(self._whole.items.rest(), behind=encoded)
        comma = b"," if encoded and not head.endswith(b"[") else b""
        body = b"".join((head, comma, encoded, frame.tail))
        del encoded[self._whole.length :]
        return body, same_bytes

    def _shared_with(self, frame: Frame, *, items: Items, messages: Sequence[Message]) -> _Mark:
        """What these have in common with the messages of the last body; nothing is encoded behind it afterwards."""
        shared, whole, last = self._shared, self._whole, self._last
        self._shared = self._whole = None  # until all is encoded: what cannot be must leave nothing half-kept behind
        common = messages_in_common(self._messages, messages)
        rests_on_same = last is frame or (last is not None and last.rests_on == frame.rests_on)
        if shared is None or whole is None or common < shared.messages or not rests_on_same:
            self._encoded.clear()
            return _Mark(0, 0, items)
        if common == whole.messages:
            return whole
        del self._encoded[shared.length :]
        return self._take(messages[shared.messages : common], behind=shared)

    def _take(self, messages: Sequence[Message], *, behind: _Mark) -> _Mark:
        items = behind.items.copy()
        encoded = self._encoded
        for message in messages:
            for item in items.add(message):
                if encoded:
                    encoded += b","
                encoded += item
        return _Mark(behind.messages + len(messages), len(self._encoded), items)


def around(fields: Mapping[str, bytes], *, name: str) -> tuple[bytes, bytes]:
    """What stands in a body before the items of the array `name`, and behind them."""
    names = list(fields)
    at = names.index(name)
    before = write_object({key: fields[key] for key in names[:at]})[:-1]
    behind = write_object({key: fields[key] for key in names[at + 1 :]})[1:]
    comma = b"," if at else b""
    return before + comma + b'"' + name.encode() + b'":[', (b"]," if len(names) > at + 1 else b"]") + behind


def _writes_alike(one: object, other: object) -> bool:
    """Of two that are equal: 1 and 1.0 are, too."""
    return one is other or repr(one) == repr(other)


def _put(items: Iterable[bytes], *, behind: bytearray) -> None:
    for item in items:
        if behind:
            behind += b","
        behind += item
