"""One response of the Responses API while its events come: events -> frames.

The final form of an item is the one in `response.output_item.done`; the terminal event's `output` adds what no such event
brought. A whole that the provider says (`.done` events) wins over the pieces that came.
"""

from collections.abc import Callable, Collection, Mapping, Sequence

import msgspec

from turnwise.vocab import (
    BlockData,
    BlockEnded,
    CitationAdded,
    Fault,
    Faulted,
    Finished,
    FinishReason,
    Frame,
    Lost,
    Mended,
    Part,
    PartDone,
    Reasoning,
    ReasoningDelta,
    Refusal,
    RefusalDelta,
    Repair,
    Restated,
    Started,
    Text,
    TextDelta,
    ToolCall,
    ToolCallDelta,
    Untold,
    Usage,
    UsageReported,
)
from turnwise.vocab.json_values import without
from turnwise.vocab.wording import each_counted
from turnwise.wire.endings import (
    AMOUNT,
    AT_ITS_PRICE,
    COUNT,
    OPENROUTER,
    SEARCHES,
    SUM,
    WINDOW,
    MergedUsage,
    TokenCount,
    finish_frames,
    finish_of_word,
    marked,
    read_counts,
    read_told,
    says_nothing,
    says_same,
    usage_table,
    with_missing,
    with_terms,
)
from turnwise.wire.json_fields import Fields, is_error, is_object, object_at, printable, read_fields
from turnwise.wire.openai_responses.faults import fault_of
from turnwise.wire.openai_responses.items import DELTAS, NONE, Delta, Item, Items
from turnwise.wire.openai_responses.parts import citation_of, count_at, kind_of, list_at, opaque_from, parts_of, text_at
from turnwise.wire.profiles import MAX_PARTS

# How a response of the Responses API ends: its status -> our reason, and its usage <-> `Usage`.


USAGE = usage_table(
    {
        "input_tokens": COUNT,
        "output_tokens": COUNT,
        "input_tokens_details.cached_tokens": COUNT,
        "input_tokens_details.cache_write_tokens": COUNT,
        "input_tokens_details.cache_write_tokens_details.ttl_30m_tokens": AT_ITS_PRICE,
        "output_tokens_details.reasoning_tokens": COUNT,
        "total_tokens": SUM,
        "context_details": WINDOW,  # xAI
        **SEARCHES,
        **OPENROUTER,
        "cost_in_usd_ticks": AMOUNT,
    }
)


class InputDetails(msgspec.Struct):
    cached_tokens: TokenCount = None
    cache_write_tokens: TokenCount = None


class OutputDetails(msgspec.Struct):
    reasoning_tokens: TokenCount = None


class Counts(msgspec.Struct):
    input_tokens: TokenCount = None
    input_tokens_details: InputDetails | None = None
    output_tokens: TokenCount = None
    output_tokens_details: OutputDetails | None = None
    total_tokens: object = msgspec.UNSET


_counts = msgspec.json.Decoder(Counts, strict=False)
MISFITS: dict[str, tuple[Untold, ...]] = {
    "input_tokens_details": ("cache_read_tokens", "cache_write_tokens"),
    "output_tokens_details": ("reasoning_tokens",),
}
_NO_INPUT_DETAILS, _NO_OUTPUT_DETAILS = InputDetails(), OutputDetails()


class UsageReader:
    """Merges the usage objects of one response."""

    __slots__ = ("_merged",)

    def __init__(self) -> None:
        self._merged = MergedUsage()

    def read(self, raw: msgspec.Raw, *, tier: str = "") -> Usage | None:
        """The usage so far, or None if this object says nothing new."""
        return usage_of(self._merged.text, tier=tier) if self._merged.add(raw) else None


def usage_of(text: bytes, *, tier: str = "") -> Usage | None:
    """The API counts as we do: input includes cache reads and writes, output includes reasoning. `tier` is how the request was
    served, which the response says beside its usage."""
    counts, misfits = read_told(text, _counts)
    if counts is None:
        return None
    of_input = counts.input_tokens_details or _NO_INPUT_DETAILS
    of_output = counts.output_tokens_details or _NO_OUTPUT_DETAILS
    usage = Usage(
        input_tokens=counts.input_tokens or 0,
        output_tokens=counts.output_tokens or 0,
        reasoning_tokens=of_output.reasoning_tokens or 0,
        cache_read_tokens=of_input.cached_tokens or 0,
        cache_write_tokens=of_input.cache_write_tokens or 0,
        provider=str(text, "utf-8"),
    )
    usage = with_terms(usage, text, table=USAGE, tier=tier)
    return marked(usage, is_output_told=counts.output_tokens is not None, misfits=misfits, counts=MISFITS)


def usage_object(usage: Usage) -> object:
    """The provider's own object where it is one of this API, else ours in its words."""
    text = usage.provider.encode()
    counts = read_counts(text, _counts)
    ours = {
        "input_tokens": usage.input_tokens,
        "input_tokens_details": {
            "cached_tokens": usage.cache_read_tokens,
            "cache_write_tokens": usage.cache_write_tokens,
        },
        "output_tokens": usage.output_tokens,
        "output_tokens_details": {"reasoning_tokens": usage.reasoning_tokens},
        "total_tokens": usage.input_tokens + usage.output_tokens,
    }
    # Anthropic's object has fields of the same names with another meaning.
    if counts is None or counts.total_tokens is msgspec.UNSET or not says_same(usage_of(text), usage):
        return ours
    return with_missing(msgspec.Raw(text), ours)


# Why a response of the Responses API ended: its status -> our reason, as data. And what was left out of its input.


# Status, with `:reason` where the response gives one. `completed` covers an answer, calls and a refusal alike: which of
# the three it is, the items say. Source: OpenAI API reference, "The response object".
FINISH_REASONS: Mapping[str, FinishReason] = {
    "completed": FinishReason.STOP,
    "incomplete:max_output_tokens": FinishReason.LENGTH,
    "incomplete:max_tokens": FinishReason.LENGTH,  # gateways that pass Chat's or Anthropic's word through
    "incomplete:length": FinishReason.LENGTH,
    "incomplete:content_filter": FinishReason.CONTENT_FILTER,
    "incomplete": FinishReason.CUT,
    "failed": FinishReason.ERROR,
    "cancelled": FinishReason.CUT,
    "queued": FinishReason.CUT,  # a body asked for in the background and not polled
    "in_progress": FinishReason.CUT,
}

# Event that ends a stream -> the status it stands for where the response object does not say.
TERMINAL_EVENTS: Mapping[str, str] = {
    "response.completed": "completed",
    "response.incomplete": "incomplete",
    "response.failed": "failed",
    "response.cancelled": "cancelled",
    "response.done": "completed",  # the Realtime API's word, seen from gateways
}


def status_word(response: Fields, *, otherwise: str = "completed") -> str:
    """`completed`, `incomplete:max_output_tokens` ..."""
    told = text_at(response, "status")
    status = otherwise if told is None or says_nothing(told) else told
    reason = text_at(object_at(response, "incomplete_details"), "reason")
    return f"{status}:{reason}" if status == "incomplete" and not says_nothing(reason) else status


def input_repairs(response: Fields) -> list[Repair]:
    """What `input_transformations` tell: reasoning that GPT-6.2 and later were not shown, since something before it has changed.
    Source: OpenAI docs, "Keep the prefix unchanged"; openai-python 3.57, types/responses/response.py."""
    entries = [read_fields(raw) for raw in list_at(response, "input_transformations")[:MAX_PARTS] if is_object(raw)]
    removed = [one for one in entries if text_at(one, "action") == "removed"]
    if not removed:
        return []
    counted = each_counted([printable(text_at(one, "reason") or "no reason") for one in removed])
    where = printable(text_at(removed[0], "id") or "input")
    return [Repair("thinking_dropped", where, f"the provider left reasoning out of the prompt: {counted}")]


def finish_reason(word: str, *, has_calls: bool, has_refusal: bool) -> FinishReason:
    """An unknown reason for `incomplete` leaves the response cut, which the status says."""
    is_cut = word not in FINISH_REASONS and word.startswith("incomplete:")
    reason = FinishReason.CUT if is_cut else finish_of_word(word, own=FINISH_REASONS)
    if reason != FinishReason.STOP:
        return reason
    if has_calls:
        return FinishReason.TOOL_CALLS
    return FinishReason.REFUSAL if has_refusal else FinishReason.STOP


REPLACED = "\ufffd"  # stands for bytes that are no UTF-8

ASTRAY = "the item that it belongs to was not announced"

TORN = 2  # events that a torn one comes as

ADDED, ITEM_DONE, CREATED = "response.output_item.added", "response.output_item.done", "response.created"


class OpenResponse:
    """Give it every event in order, then `close` it. May raise TooManyItems.

    `is_certain` is false for an event that was damaged: what can be read of it is kept as a piece, and settles nothing.
    """

    def __init__(self) -> None:
        self.items = Items()
        self.started: str | None = None  # the response's id, "" if it has none
        self.is_over = False  # the terminal event came: what follows is no part of the response
        self._has_calls = False
        self._has_refusal = False
        self._fault: Fault | None = None
        self._usage = UsageReader()
        self._unplaced: list[Repair] = []  # losses while nothing was open: what comes next tells what they were
        self._losses = 0  # how many there were
        self._newest_loss: Repair | None = None

    # ---- events

    def take(self, fields: Fields, kind: str, frames: list[Frame], *, is_certain: bool = True) -> None:
        if self.is_over:
            return
        if kind in TERMINAL_EVENTS:
            self._tell_losses(frames)
            self._end(object_at(fields, "response"), TERMINAL_EVENTS[kind], frames, is_certain=is_certain)
            return
        count, before = len(self.items.all), len(frames)
        follows = not self.items.is_any_underway and _index_of(fields) == self.items.next_index
        if kind in DELTAS:
            self._take_loose_delta(fields, kind, frames)
        elif kind in WHOLES:
            self._take_whole(fields, kind, frames, is_certain=is_certain)
        elif kind == ITEM_DONE:
            self._finish_item(fields, frames, is_certain=is_certain)
        elif kind in _EVENTS and is_certain:
            _EVENTS[kind](self, fields, frames)
        elif kind == "error" or (not kind and "error" in fields and is_error(fields["error"])):
            self._fail(fields, frames)
        if self._unplaced:
            is_next = follows and kind in (ADDED, ITEM_DONE)
            self._place_losses(frames, before=before, is_new=len(self.items.all) > count, is_next=is_next)

    def take_delta(self, delta: Delta, frames: list[Frame]) -> None:
        """A piece, whose type is one of `DELTAS`."""
        if self.is_over:
            return
        before = len(frames)
        self._take_piece(delta, frames)
        if self._unplaced:
            self._place_losses(frames, before=before, is_new=False, is_next=False)

    def close(self, frames: list[Frame]) -> None:
        """The stream ended without a terminal event. A content that was said as a whole has its own end."""
        self._tell_losses(frames)
        self._keep_unfinished(frames)
        for item in self.items.all:
            if not item.done:
                frames += [BlockEnded(item.block_of(content)) for content in sorted(item.whole)]

    def is_another(self, fields: Fields, kind: str) -> bool:
        """Whether the event begins another response: a gateway fell back. Some change the id in later events."""
        id = text_at(object_at(fields, "response"), "id") if kind == CREATED else None
        return self.started is not None and id is not None and id != self.started and not self.is_over

    def may_come_late(self, fields: Fields, kind: str) -> bool:
        """Whether an event that is not a piece still holds if it comes behind events that belong behind it. Two kinds do not: a
        whole whose item shows only by its place, and the beginning of an item that has ended."""
        if kind == ADDED:
            return not self.items.is_final(object_at(fields, "item"))
        return kind not in WHOLES or self.items.announced.get(text_at(fields, "item_id")) is not None

    # ---- losses

    def lose(self, repair: Repair, frames: list[Frame]) -> None:
        """An event is missing. It may have been a piece of what is open, or of what begins next."""
        self._losses += 1
        self._newest_loss = repair
        if self.items.open_blocks:
            frames.append(Lost(repair))
            return
        if len(self._unplaced) >= TORN:
            self._tell_losses(frames)
        self._unplaced.append(repair)

    def _tell_losses(self, frames: list[Frame]) -> None:
        frames += [Lost(repair) for repair in self._unplaced]
        self._unplaced.clear()

    def _place_losses(self, frames: list[Frame], *, before: int, is_new: bool, is_next: bool) -> None:
        """Tell the losses behind the event that came next: they reach the block that this event began. An item that begins at
        the next index, after all others have ended, shows that no item is missing."""
        if is_new and is_next:
            frames += [Mended(repair) for repair in self._unplaced]
            self._unplaced.clear()
            self.items.all[-1].losses = self._losses
        elif is_new or len(frames) > before:
            self._tell_losses(frames)

    # ---- pieces

    def _take_piece(self, delta: Delta, frames: list[Frame]) -> Item:
        kind = DELTAS[delta.type]
        item = self.items.find(kind, index=delta.index, id=delta.item_id)
        if item is None:
            item = self.items.open(kind, index=delta.index, borne=delta.item_id)
        if kind == "reasoning":
            item.is_thinking = True
            item.reasoning = item.reasoning or delta.type
            if item.reasoning != delta.type:
                return item
        content = item.content_at(delta.content_index) if kind == "message" else 0
        if self._is_astray(item, content, id=delta.item_id):
            self.lose(Repair("event_left_out", delta.type, ASTRAY), frames)
            return item
        self._has_refusal = self._has_refusal or delta.type == "response.refusal.delta"
        has_begun = item.block_of(content) in self.items.open_blocks
        self._add_piece(item, content, delta.type, delta.delta, frames)
        if self._newest_loss is not None and not self._unplaced and not has_begun and item.losses < self._losses:
            frames.append(Lost(self._newest_loss))  # what was lost may have been this block's first piece
        return item

    def _is_astray(self, item: Item, content: int, *, id: str | None) -> bool:
        """Whether more comes of a content that was said as a whole: after a loss it may be another item's, which the loss hid."""
        return self._losses > 0 and content in item.whole and self.items.announced.get(id) is None

    def _add_piece(self, item: Item, content: int, kind: str, text: str, frames: list[Frame]) -> None:
        block = self.items.begin(item, content)
        item.take_piece(content)
        match kind:
            case "response.output_text.delta":
                frames.append(TextDelta(text, block))
            case "response.refusal.delta":
                frames.append(RefusalDelta(text, block))
            case "response.function_call_arguments.delta":
                frames.append(ToolCallDelta(block=block, arguments=text))
            case "response.custom_tool_call_input.delta":
                frames.append(ToolCallDelta(block=block, arguments=text, free_form=True))
            case _:
                frames.append(ReasoningDelta(text, block))

    def _take_loose_delta(self, fields: Fields, kind: str, frames: list[Frame]) -> None:
        """A piece that the fast path did not read: its `output_index` is missing, or odd."""
        text = text_at(fields, "delta")
        if text is None:
            self.lose(Repair("event_left_out", kind, "it brings no piece"), frames)
        else:
            self._take_piece(_delta_of(fields, kind, text=text), frames)

    # ---- wholes

    def _take_whole(self, fields: Fields, kind: str, frames: list[Frame], *, is_certain: bool) -> None:
        """The provider says the whole of one content. An empty whole takes nothing away."""
        source = object_at(fields, "part") if kind in _OF_PARTS else fields
        piece, key = _WHOLES.get((text_at(source, "type") or "") if kind in _OF_PARTS else kind, ("", ""))
        if not piece:
            return
        delta, of = _delta_of(fields, piece), DELTAS[piece]
        item = self.items.find(of, index=delta.index, id=delta.item_id)
        if item.done if item is not None else self.items.has_ended(of, index=delta.index):
            return  # late: the final form came before
        content = delta.content_index if item is None else item.content_at(delta.content_index)
        content = content if of == "message" else 0
        if kind in _OF_PARTS and item is not None and content in item.whole:
            return  # an event of its own has said it
        if item is not None and self._is_astray(item, content, id=delta.item_id):
            self.lose(Repair("event_left_out", kind, ASTRAY), frames)
            return
        text = text_at(source, key)
        if not text:
            return
        if of == "reasoning":
            if item is not None and is_certain:
                _keep_thought(item, fields, piece, text)
            return
        if item is None or content not in item.streamed:
            delta.delta = text
            item = self._take_piece(delta, frames)
        said = _part_of(item, piece, text)
        if said is not None and is_certain:
            frames.append(PartDone(item.block_of(content), said))
            self.items.settle(item, content)

    def _finish_item(self, fields: Fields, frames: list[Frame], *, is_certain: bool) -> None:
        item = object_at(fields, "item")
        if item:
            index = _index_of(fields)
            known = self.items.find_final(item, index=index, is_wary=self._losses > 0)
            self._take_item(known, item, frames, index=index, is_certain=is_certain)

    def _take_item(
        self, known: Item | None, item: Fields, frames: list[Frame], *, index: int | None, is_certain: bool
    ) -> None:
        """The final form of an item, `known` or new."""
        opened = self.items.open(kind_of(item), index=index) if known is None else known
        parts = parts_of(item)
        placed = list(zip(_places(opened.streamed, len(parts)), parts, strict=True))
        if not is_certain:
            for content, part in placed:
                if content not in opened.streamed:
                    self._keep_damaged(opened, content, part, frames)
            return
        self.items.learn(opened, item)
        opened.is_poor = False
        for content, part in placed:
            self._take_part(opened, content, part, frames, is_new=known is None)
        self.items.close(opened)

    def _take_part(self, item: Item, content: int, part: Part, frames: list[Frame], *, is_new: bool) -> None:
        has_pieces, block = content in item.streamed, item.block_of(content)
        is_empty = False
        match part:
            case ToolCall():
                self._has_calls = True
                item.final = part
                is_empty = not part.arguments
                if not has_pieces:  # as the wire has it: text that may end anywhere, not an object handed out whole
                    id, name = (part.id, part.name) if is_new else (None, None)
                    frames.append(
                        ToolCallDelta(block=block, id=id, name=name, arguments=part.arguments, free_form=part.free_form)
                    )
                    item.take_piece(content)
            case Refusal():
                self._has_refusal = True
                is_empty = not part.text
            case Text() | Reasoning():
                is_empty = not part.text
            case _:
                pass
        if is_empty and has_pieces and isinstance(part, Text | Refusal | Reasoning | ToolCall):
            # An empty final form takes nothing away from what was streamed.
            item.is_poor = item.is_poor or content not in item.whole
            frames += [] if part.opaque is None else [BlockData(block, part.opaque)]
        else:
            frames.append(PartDone(block, part))
        self.items.settle(item, content)
        frames.append(BlockEnded(block))

    def _keep_damaged(self, item: Item, content: int, part: Part, frames: list[Frame]) -> None:
        """The content of a damaged event, as a piece: better than nothing for a reader, and never complete."""
        match part:
            case Text(text=text):
                self._add_piece(item, content, "response.output_text.delta", text, frames)
            case Refusal(text=text):
                self._add_piece(item, content, "response.refusal.delta", text, frames)
            case Reasoning(text=text):
                self._add_piece(item, content, "response.reasoning_text.delta", text, frames)
            case ToolCall():
                self._has_calls = True
                frames.append(
                    ToolCallDelta(
                        block=self.items.begin(item, content),
                        id=None if item.call_id or REPLACED in part.id else part.id,
                        name=None if item.name or REPLACED in part.name else part.name,
                        arguments=part.arguments,
                        free_form=part.free_form,
                    )
                )
                item.take_piece(content)
            case _:
                pass

    # ---- beginnings

    def _start(self, fields: Fields, frames: list[Frame]) -> None:
        response = object_at(fields, "response")
        id = text_at(response, "id")
        if self.started is None and not self.items.all:  # resumed in the middle, starting would discard what is there
            frames.append(Started(id=id, model=text_at(response, "model")))
        self.started = self.started if self.started is not None else id or ""

    def _add(self, fields: Fields, frames: list[Frame]) -> None:
        item = object_at(fields, "item")
        opened = self.items.announce(fields, item, index=_index_of(fields), losses=self._losses)
        if opened is None:
            return
        begun: ToolCallDelta | None = None
        match kind_of(item):
            case "function_call" | "custom_tool_call" as kind:
                self._has_calls = True
                opened.held = text_at(item, "arguments") or text_at(item, "input") or ""
                own = without(item, ("type", "call_id", "name", "arguments", "input", "status"))
                begun = ToolCallDelta(
                    block=opened.block,
                    id=text_at(item, "call_id"),
                    name=text_at(item, "name"),
                    free_form=kind == "custom_tool_call",
                )
            case "message":  # its texts will bring these
                opened.header = without(item, ("type", "role", "content", "status"))
                opened.header |= {"status": msgspec.Raw(b'"incomplete"')} if opened.header else {}
                return
            case "reasoning":
                own = opened.header = {"id": item["id"]} if "id" in item else {}
            case _:
                opened.header = item
                own = {"id": item["id"]} if "id" in item else {}
        opaque = opaque_from(own)
        if opaque is not None:  # first, so that an encoder has the item's id; it also keeps the item's place
            frames.append(BlockData(self.items.begin(opened), opaque))
        if begun is not None:
            self.items.begin(opened)
            frames.append(begun)

    def _add_content(self, fields: Fields, frames: list[Frame]) -> None:
        """A content part of a message: it carries the item's own fields. Where its index was used before, it is another."""
        item = self._message_of(fields)
        if item is None or item.done:
            return
        content_index = count_at(fields, "content_index") or 0
        content = item.content_at(content_index)
        if content in item.whole:
            content = item.places[content_index] = item.next_content
        opaque = opaque_from(item.header)
        if opaque is not None:
            frames.append(BlockData(self.items.begin(item, content), opaque))

    def _add_citation(self, fields: Fields, frames: list[Frame]) -> None:
        annotation, item = fields.get("annotation"), self._message_of(fields)
        if annotation is None or not is_object(annotation):
            return
        item = item or self.items.open("message", index=_index_of(fields), borne=text_at(fields, "item_id"))
        content = item.content_at(count_at(fields, "content_index") or 0)
        frames.append(CitationAdded(self.items.begin(item, content), citation_of(annotation)))

    def _message_of(self, fields: Fields) -> Item | None:
        return self.items.find("message", index=_index_of(fields), id=text_at(fields, "item_id"))

    # ---- ends

    def _keep_unfinished(self, frames: list[Frame]) -> None:
        """Items that began and have neither pieces nor a final form: what is known of them is kept."""
        for item in self.items.all:
            if item.done:
                continue
            match item.kind:
                case "function_call" | "custom_tool_call":
                    if item.held and not item.streamed:
                        frames.append(ToolCallDelta(block=item.block, arguments=item.held))
                    if item.streamed and not item.name:
                        frames.append(Lost(Repair("start_missing", f"item {item.block}", "a call without a name")))
                case "message":
                    pass
                case "reasoning" if item.streamed:
                    text = _thoughts_of(item)
                    frames += [PartDone(item.block, Reasoning(text, opaque_from(item.header)))] if text else []
                case "reasoning":  # what is encrypted so far is not whole
                    frames.append(ReasoningDelta(_thoughts_of(item), item.block))
                case _:
                    frames += [PartDone(item.block, part) for part in parts_of(item.header)]

    def _end(self, response: Fields, status: str, frames: list[Frame], *, is_certain: bool) -> None:
        self.take_output(response, frames, is_certain=is_certain)
        self._keep_unfinished(frames)
        self.take_end(response, status, frames)

    def take_output(self, response: Fields, frames: list[Frame], *, is_certain: bool = True) -> None:
        """Take of the items in a whole response object what no `output_item.done` brought."""
        output = [read_fields(raw) for raw in list_at(response, "output")[:MAX_PARTS] if is_object(raw)]
        for known, item in self.items.pair(output):
            if known is None or not known.done or known.is_poor:
                self._take_item(known, item, frames, index=None, is_certain=is_certain)
        if output and is_certain:
            frames.append(Restated())

    def take_end(self, response: Fields, status: str, frames: list[Frame]) -> None:
        """Usage, the error if any, and why it ended."""
        self.is_over = True
        usage = response.get("usage")
        tier = text_at(response, "service_tier") or ""
        if usage is not None and (counted := self._usage.read(usage, tier=tier)) is not None:
            frames.append(UsageReported(counted))
        frames += [Mended(repair) for repair in input_repairs(response)]
        word = status_word(response, otherwise=status)
        error = object_at(response, "error")
        if (error or word == "failed") and self._fault is None:
            self._fault = fault_of(error or response)
            frames.append(Faulted(self._fault))
        reason = finish_reason(word, has_calls=self._has_calls, has_refusal=self._has_refusal)
        frames += finish_frames(Finished(reason, word), own=FINISH_REASONS)

    def _fail(self, fields: Fields, frames: list[Frame]) -> None:
        error = object_at(fields, "error")
        self._fault = fault_of(error or without(fields, ("type", "sequence_number")))
        frames.append(Faulted(self._fault))


def _index_of(fields: Fields) -> int | None:
    index = count_at(fields, "output_index")
    return None if index is None or index < 0 else index


def _delta_of(fields: Fields, kind: str, *, text: str = "") -> Delta:
    index = _index_of(fields)
    return Delta(
        type=kind,
        delta=text,
        output_index=NONE if index is None else index,
        content_index=count_at(fields, "content_index") or 0,
        item_id=text_at(fields, "item_id"),
    )


def _part_of(item: Item, piece: str, text: str) -> Part | None:
    """The content as the provider said it. None for a call without a name: its final form will bring it."""
    match piece:
        case "response.output_text.delta":
            return Text(text)
        case "response.refusal.delta":
            return Refusal(text)
        case _ if item.name:
            return ToolCall(id=item.call_id, name=item.name, arguments=text, free_form=item.kind == "custom_tool_call")
        case _:
            return None


def _keep_thought(item: Item, fields: Fields, piece: str, text: str) -> None:
    item.reasoning = item.reasoning or piece
    if item.reasoning == piece:
        place = count_at(fields, "summary_index")
        item.thoughts[place if place is not None else count_at(fields, "content_index") or 0] = text
        item.is_thinking = False


def _thoughts_of(item: Item) -> str:
    """All thoughts, if the provider has said every part of them as a whole."""
    is_all = not item.is_thinking and sorted(item.thoughts) == list(range(len(item.thoughts)))
    return "".join([item.thoughts[place] for place in sorted(item.thoughts)]) if is_all else ""


def _places(streamed: Collection[int], count: int) -> Sequence[int]:
    """The content index under which each final content part was streamed: its own, but where an endpoint counts otherwise
    (Bedrock's Mantle streams the only content part as number 1) the order tells."""
    if all(place < count for place in streamed):
        return range(count)
    rest = [place for place in range(count + len(streamed)) if place not in streamed]
    return [*sorted(streamed), *rest][:count]


# Event that says a whole content, or type of the part in such an event -> the piece that the whole sums up, and the field
# that its text stands in.
_WHOLES: Mapping[str, tuple[str, str]] = {
    "response.output_text.done": ("response.output_text.delta", "text"),
    "response.refusal.done": ("response.refusal.delta", "refusal"),
    "response.function_call_arguments.done": ("response.function_call_arguments.delta", "arguments"),
    "response.custom_tool_call_input.done": ("response.custom_tool_call_input.delta", "input"),
    "response.reasoning_summary_text.done": ("response.reasoning_summary_text.delta", "text"),
    "response.reasoning_text.done": ("response.reasoning_text.delta", "text"),
    "response.reasoning.done": ("response.reasoning.delta", "text"),
    "output_text": ("response.output_text.delta", "text"),
    "text": ("response.output_text.delta", "text"),
    "refusal": ("response.refusal.delta", "refusal"),
    "summary_text": ("response.reasoning_summary_text.delta", "text"),
    "reasoning_text": ("response.reasoning_text.delta", "text"),
}

_OF_PARTS = frozenset(
    ("response.content_part.done", "response.reasoning_summary_part.done", "response.reasoning_part.done")
)
"""Events whose whole stands in a part."""

_EVENTS: Mapping[str, Callable[[OpenResponse, Fields, list[Frame]], None]] = {
    CREATED: OpenResponse._start,  # pyright: ignore[reportPrivateUsage]
    "response.queued": OpenResponse._start,  # pyright: ignore[reportPrivateUsage]
    "response.in_progress": OpenResponse._start,  # pyright: ignore[reportPrivateUsage]
    ADDED: OpenResponse._add,  # pyright: ignore[reportPrivateUsage]
    "response.content_part.added": OpenResponse._add_content,  # pyright: ignore[reportPrivateUsage]
    "response.output_text.annotation.added": OpenResponse._add_citation,  # pyright: ignore[reportPrivateUsage]
}

NO_CONTENT = frozenset((CREATED, "response.queued", "response.in_progress"))
WHOLES = frozenset([*_WHOLES, *_OF_PARTS])
"""Types of the events, and of the parts, that say one content as a whole."""
CONTENT = frozenset([*DELTAS, *WHOLES, *_EVENTS, ITEM_DONE, *TERMINAL_EVENTS]) - NO_CONTENT
"""Types of the events that may hold a piece of the response."""
