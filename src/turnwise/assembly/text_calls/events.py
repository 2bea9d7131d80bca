"""What a text turns out to hold while it is read, in order."""

from collections.abc import Sequence

import msgspec

from turnwise.assembly.text_calls.block_cursor import ReadCall


class Say(msgspec.Struct, frozen=True, gc=False):
    """Words of the answer."""

    text: str


class Think(msgspec.Struct, frozen=True, gc=False):
    """Words of reasoning."""

    text: str


class Made(msgspec.Struct, frozen=True):
    """A whole call."""

    call: ReadCall
    syntax: str


class Unmade(msgspec.Struct, frozen=True, kw_only=True):
    """A call that cannot run: cut (`arguments` is a beginning of its JSON), or `wrong`, in which case `why` says how."""

    name: str
    arguments: str
    syntax: str
    why: str = ""


class Meant(msgspec.Struct, frozen=True):
    """A call that the model addressed to a tool within its reasoning."""

    name: str


TextEvent = Say | Think | Made | Unmade | Meant


def words_of(events: Sequence[TextEvent]) -> str:
    return "".join([event.text for event in events if isinstance(event, Say)])
