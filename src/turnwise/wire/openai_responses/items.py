"""Which output item an event belongs to, and what a piece of one is.

The item's id tells, if `response.output_item.added` announced it: gateways in use send one `output_index` for all items.
Other ids tell nothing, because some gateways change them from event to event. Then the index tells, and of several items on
one index the newest open one that the event fits.
"""

from collections import deque
from collections.abc import Mapping, Sequence

import msgspec

from turnwise.vocab import ToolCall
from turnwise.vocab.json_values import without
from turnwise.wire.json_fields import Fields, write_object
from turnwise.wire.openai_responses.parts import kind_of, text_at

CALLS = ("function_call", "custom_tool_call")
STREAMED = ("message", "reasoning", *CALLS)
"""The kinds of items that come in pieces."""

UNTOLD = "item_reference"
"""The kind of an item that does not say its type: the next event tells."""

MAX_ITEMS = 4096  # of one response, as many as the assembler keeps parts; real ones hold a few dozen

IDS = ("call_id", "id")
"""The ids of an item. `call_id` comes first: it changes less often, because it has to come back with the result."""


class TooManyItems(ValueError):
    """A response grew past `MAX_ITEMS`. The decoder turns it into a `Faulted` frame."""

    def __init__(self) -> None:
        super().__init__(f"the response has more than {MAX_ITEMS} items")


class Item(msgspec.Struct, eq=False):
    """An output item. `block` names its first block; the further contents of a message have blocks of their own."""

    block: str
    index: int
    kind: str
    ids: set[str] = set()
    call_id: str = ""
    name: str = ""  # of a call
    borne: str | None = None  # the id in the event that opened the item, if no `added` announced it
    losses: int = 0  # that there were when it was announced
    done: bool = False  # its final form came
    is_poor: bool = False  # its final form was empty, though pieces had come
    final: ToolCall | None = None
    header: Fields = {}  # fields of `added` that are worth keeping if nothing else comes
    held: str = ""  # arguments that came with `added`: the deltas or the final form repeat them
    reasoning: str = ""  # the event type of this item's thoughts: summary or content, counted once
    thoughts: dict[int, str] = {}  # the parts of the thoughts that the provider has said as a whole
    is_thinking: bool = False  # pieces of thoughts came behind the last whole part
    streamed: dict[int, None] = {}  # the contents that pieces came for, in order
    whole: set[int] = set()  # the contents that the provider has said as a whole
    next_content: int = 0  # behind all of them
    places: dict[int, int] = {}  # `content_index` -> the content that it means, if the index is used again

    def take_piece(self, content: int) -> None:
        self.streamed[content] = None
        self.next_content = max(self.next_content, content + 1)

    def content_at(self, content_index: int) -> int:
        return self.places.get(content_index, content_index)

    def block_of(self, content: int) -> str:
        return f"{self.block}.{content}" if content else self.block

    def fits(self, kind: str) -> bool:
        return self.kind in (kind, UNTOLD)

    def is_said_by(self, item: Fields, *, index: int | None) -> bool:
        """Whether this final form is the item's own, said again. Two calls may share an id."""
        if self.final is None:
            return index in (None, self.index)
        arguments = text_at(item, "arguments") or text_at(item, "input") or ""
        return (text_at(item, "name") or "", arguments) == (self.final.name, self.final.arguments)

    def is_contradicted_by(self, item: Fields, *, is_wary: bool) -> bool:
        """Whether this final form is another call's. Its name tells, because gateways that change ids keep names; after a loss
        its `call_id` does too."""
        name, call_id = text_at(item, "name"), text_at(item, "call_id")
        if self.kind not in CALLS:
            return False
        if self.name and name and name != self.name:
            return True
        return is_wary and bool(self.call_id and call_id) and call_id != self.call_id


class Items:
    """The items of one response, in the order in which they began."""

    def __init__(self) -> None:
        self.all: list[Item] = []
        self.announced: dict[
            str | None, Item | None
        ] = {}  # by the ids in `added`; None for an id that several items share
        self.open_blocks: set[str] = set()  # begun, and not yet said as a whole
        self._known: dict[str | None, Item | None] = {}  # the same by all ids, those of final forms included
        self._open: dict[tuple[int | None, str], list[Item]] = {}  # by index and kind, and by kind alone; newest last
        self._underway: set[str] = set()  # the first blocks of items that may still get a piece
        self._ended: set[tuple[int | None, str]] = set()  # indexes and kinds of items whose final form came
        self._on_index: dict[int, int] = {}  # how many items began on it
        self._announcements: set[bytes] = set()
        self._next_index = 0

    @property
    def next_index(self) -> int:
        """The index behind all that were used."""
        return self._next_index

    @property
    def is_any_underway(self) -> bool:
        return bool(self._underway)

    def find(self, kind: str, *, index: int | None, id: str | None) -> Item | None:
        """The item that an event for this kind of item belongs to; None if no such item is open."""
        item = self.announced.get(id) if id is not None else None
        if item is None or not item.fits(kind):
            item = self._newest(index, kind)
        if item is not None and item.kind == UNTOLD:
            item.kind = kind
        return item

    def has_ended(self, kind: str, *, index: int | None) -> bool:
        """Whether an item of this kind on the index has its final form."""
        return (index, kind) in self._ended

    def find_final(self, item: Fields, *, index: int | None, is_wary: bool) -> Item | None:
        """The item that this is the final form of; None if it is another item. `is_wary`: an event is missing, which may have
        announced it."""
        kind = kind_of(item)
        for key in IDS:
            found = self._known.get(text_at(item, key) or "")
            if found is not None and found.fits(kind) and (not found.done or found.is_said_by(item, index=index)):
                return found
        newest = self._newest(index, kind)
        if newest is None or not newest.is_contradicted_by(item, is_wary=is_wary):
            return newest
        others = reversed(self._open.get((index, kind), []))
        return next((one for one in others if _may_end(one, item, kind=kind, is_wary=is_wary)), None)

    def is_final(self, item: Fields) -> bool:
        """Whether the final form of this item came."""
        return any(known.done for id in ids_of(item) if (known := self._known.get(id)) is not None)

    def announce(self, event: Fields, item: Fields, *, index: int | None, losses: int) -> Item | None:
        """The item that begins with an `added`; None if the event repeats an earlier one."""
        said = write_object(
            {**without(event, ("sequence_number", "item")), "item": write_object(without(item, ("status",)))}
        )
        if said in self._announcements:
            return None
        self._announcements.add(said)
        kind, ids = kind_of(item), ids_of(item)
        begun = self._newest(index, kind)
        if begun is None or begun.borne not in ids:  # its first piece came before it
            begun = self.open(kind, index=index)
        begun.borne, begun.losses = None, losses
        self.learn(begun, item)
        for id in ids:
            _name(self.announced, id, begun)
        return begun

    def open(self, kind: str, *, index: int | None, borne: str | None = None) -> Item:
        """Raises TooManyItems past the limit."""
        if len(self.all) >= MAX_ITEMS:
            raise TooManyItems
        if index is None:
            index = self._next_index
        count = self._on_index[index] = self._on_index.get(index, 0) + 1
        block = str(index) if count == 1 else f"{index}#{count}"
        item = Item(block=block, index=index, kind=kind, borne=borne)
        self._next_index = max(self._next_index, index + 1)
        self.all.append(item)
        self._underway.add(block)
        for fitting in STREAMED if kind == UNTOLD else (kind,):
            for key in ((index, fitting), (None, fitting)):
                self._open.setdefault(key, []).append(item)
        return item

    def learn(self, item: Item, fields: Fields) -> None:
        """Know the item by the ids in these fields too."""
        for id in ids_of(fields):
            item.ids.add(id)
            _name(self._known, id, item)
        item.call_id = item.call_id or text_at(fields, "call_id") or ""
        item.name = item.name or text_at(fields, "name") or ""

    def begin(self, item: Item, content: int = 0) -> str:
        """The block of one content, which has begun."""
        block = item.block_of(content)
        if not (item.done or content in item.whole):
            self.open_blocks.add(block)
        return block

    def settle(self, item: Item, content: int = 0) -> None:
        """The provider has said the whole of one content."""
        item.whole.add(content)
        item.next_content = max(item.next_content, content + 1)
        self.open_blocks.discard(item.block_of(content))
        if item.kind in CALLS:
            self._underway.discard(item.block)

    def close(self, item: Item) -> None:
        """The item's final form has come: no more pieces will."""
        item.done = True
        item.thoughts = {}
        self._ended.add((item.index, item.kind))
        self._underway.discard(item.block)
        self.open_blocks.difference_update([item.block, *[item.block_of(content) for content in item.streamed]])

    def pair(self, output: Sequence[Fields]) -> list[tuple[Item | None, Fields]]:
        """Each item that the terminal event lists, with ours: paired by id, and if the ids change by kind and order. None
        stands for an item that is new."""
        waiting = {item.block: item for item in self.all}
        by_id: dict[str, deque[Item]] = {}
        for item in self.all:
            for id in item.ids:
                by_id.setdefault(id, deque()).append(item)
        pairs: list[tuple[Item | None, Fields]] = []
        strange: list[Fields] = []
        for listed in output:
            found = _first_waiting(listed, by_id, waiting)
            if found is None:
                strange.append(listed)
            else:
                del waiting[found.block]
                pairs.append((found, listed))
        by_kind: dict[str, deque[Item]] = {}
        for item in waiting.values():
            by_kind.setdefault(item.kind, deque()).append(item)
        for listed in strange:
            rest = by_kind.get(kind_of(listed))
            pairs.append((rest.popleft() if rest else None, listed))
        return pairs

    def _newest(self, index: int | None, kind: str) -> Item | None:
        """The newest open item of this kind on the index, or on any if there is none."""
        found = self._open.get((index, kind), [])
        while found and (found[-1].done or not found[-1].fits(kind)):
            found.pop()
        return found[-1] if found else None


def _may_end(open_item: Item, item: Fields, *, kind: str, is_wary: bool) -> bool:
    return not open_item.done and open_item.fits(kind) and not open_item.is_contradicted_by(item, is_wary=is_wary)


def ids_of(item: Fields) -> list[str]:
    return [id for key in IDS if (id := text_at(item, key))]


def _name(names: dict[str | None, Item | None], id: str, item: Item) -> None:
    names[id] = item if names.get(id, item) is item else None


def _first_waiting(listed: Fields, by_id: dict[str, deque[Item]], waiting: dict[str, Item]) -> Item | None:
    kind = kind_of(listed)
    for id in ids_of(listed):
        found = by_id.get(id)
        while found and found[0].block not in waiting:
            found.popleft()
        if found and found[0].fits(kind):
            return found[0]
    return None


NONE = -1  # no `output_index`


class Delta(msgspec.Struct, gc=False):
    """What an event says that brings a piece, and where the piece belongs."""

    type: str
    delta: str
    output_index: int = NONE
    content_index: int = 0
    item_id: str | None = None
    sequence_number: int | None = None

    @property
    def index(self) -> int | None:
        return self.output_index if self.output_index >= 0 else None


# Type of an event that brings a piece -> the kind of item that the piece belongs to.
DELTAS: Mapping[str, str] = {
    "response.output_text.delta": "message",
    "response.refusal.delta": "message",
    "response.reasoning_summary_text.delta": "reasoning",
    "response.reasoning_text.delta": "reasoning",
    "response.reasoning.delta": "reasoning",  # the same in the Open Responses specification
    "response.function_call_arguments.delta": "function_call",
    "response.custom_tool_call_input.delta": "custom_tool_call",
}
