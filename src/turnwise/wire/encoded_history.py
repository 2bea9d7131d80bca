"""The messages of a turn's requests, each encoded once.

Every request of a turn begins with the messages of the one before it (promise step:prefix-stable), so a request costs what
is new in it, and a copy of the bytes that are known already.
"""

from collections.abc import Mapping, Sequence
from typing import Protocol, Self

from turnwise.vocab import Message, messages_in_common
from turnwise.wire.json_fields import write_object

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


def encode_items(messages: Sequence[Message], *, items: Items) -> list[bytes]:
    """All messages, behind those that `items` has taken."""
    encoded: list[bytes] = []
    for message in messages:
        encoded += items.add(message)
    return encoded + items.rest()


class EncodedHistory:
    """What the last two requests of a turn had in common, encoded. Belongs to one turn, and grows no larger than its history.

    A message is kept once a second request has carried it, so what was for one request only costs nothing to forget. Where
    an earlier message changes, or anything that the encoding rests on, all of it is made anew.
    """

    def __init__(self) -> None:
        self._rests_on: tuple[object, ...] = ()
        self._head = b""
        self._messages: Sequence[Message] = ()
        self._kept = 0  # so many of the messages stand in `_encoded`
        self._encoded = bytearray()  # with commas between them
        self._items: Items | None = None  # has taken these

    def write_body(
        self,
        head: bytes,
        *,
        messages: Sequence[Message],
        tail: bytes,
        items: Items,
        rests_on: tuple[object, ...],
    ) -> tuple[bytes, int]:
        """The body, and how many bytes at its beginning are those of the body before it.

        `head` goes up to the array's bracket, or to the last item that stands before the messages; `tail` begins with the
        closing bracket. `items` is one that has taken nothing, used where there is nothing to go on from; what it makes of a
        message rests on the message and on `rests_on`.
        """
        common = messages_in_common(self._messages, messages)
        taken, self._items = (
            self._items,
            None,
        )  # until all is encoded: what cannot be must leave nothing half-kept behind
        if taken is None or rests_on != self._rests_on or common < self._kept:
            taken, self._kept = items, 0
            self._encoded.clear()
        same_bytes = len(head) + len(self._encoded) if self._encoded and head == self._head else 0
        for message in messages[self._kept : common]:
            for item in taken.add(message):
                if self._encoded:
                    self._encoded += b","
                self._encoded += item
        self._rests_on, self._head, self._messages, self._kept = rests_on, head, messages, common
        pieces: list[bytes | bytearray] = [head]
        if self._encoded:
            pieces += [b"," if _needs_comma(head) else b"", self._encoded]
        for item in encode_items(messages[common:], items=taken.copy()):
            pieces += [b"," if len(pieces) > 1 or _needs_comma(head) else b"", item]
        self._items = taken
        return b"".join([*pieces, tail]), same_bytes


def around(fields: Mapping[str, bytes], *, name: str) -> tuple[bytes, bytes]:
    """What stands in a body before the items of the array `name`, and behind them."""
    names = list(fields)
    at = names.index(name)
    before = write_object({key: fields[key] for key in names[:at]})[:-1]
    behind = write_object({key: fields[key] for key in names[at + 1 :]})[1:]
    comma = b"," if at else b""
    return before + comma + b'"' + name.encode() + b'":[', (b"]," if len(names) > at + 1 else b"]") + behind


def _needs_comma(head: bytes) -> bool:
    return not head.endswith(b"[")
