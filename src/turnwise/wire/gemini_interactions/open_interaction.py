"""One interaction while its events come: events -> frames. Bodies are read here, too.

A block is a step, by its index; a file within a step is a block of its own. Older streams have contents in place of steps
(`content.start`), and bring calls whole. Source: google-genai 3.6, `_gaos/types/interactions`; recorded streams.
"""

import msgspec

from turnwise.vocab import (
    BlockData,
    BlockEnded,
    CitationAdded,
    Faulted,
    Frame,
    Lost,
    Opaque,
    Part,
    PartDone,
    ProviderItem,
    ReasoningDelta,
    Repair,
    Started,
    Text,
    TextDelta,
    ToolCall,
    ToolCallDelta,
    UsageReported,
)
from turnwise.wire.endings import unsaid_finish
from turnwise.wire.gemini_interactions.endings import FINISH_REASONS, UsageReader, read_finish
from turnwise.wire.gemini_interactions.faults import fault_in_stream
from turnwise.wire.gemini_interactions.parts import (
    FILES,
    NAME,
    TOLD,
    arguments_of,
    call_data,
    citation_of,
    content_of,
    items_at,
    parts_of,
    says_signature,
    thought_of,
)
from turnwise.wire.json_fields import (
    NULL,
    Fields,
    compact_text,
    first_byte,
    is_error,
    is_object,
    object_at,
    quote,
    read_fields,
    read_items,
    string_of,
    write_array,
    write_object,
)
from turnwise.wire.profiles import MAX_CITATIONS, MAX_PARTS

# The events by their names of now. Those that hold a step or a content have it under this key.
EVENTS = {
    "interaction.created": "created",
    "interaction.start": "created",
    "interaction.status_update": "status",
    "step.start": "start",
    "content.start": "start",
    "step.delta": "delta",
    "content.delta": "delta",
    "step.stop": "stop",
    "content.stop": "stop",
    "interaction.completed": "completed",
    "interaction.complete": "completed",
    "error": "error",
}
CONTENT_EVENTS = frozenset(EVENTS) - {"interaction.status_update"}
"""The events that may carry a piece of the response, or say that one is over."""
_FIELD_OF_DELTA = {"text": "text", "arguments_delta": "arguments", "thought_signature": "signature"}
_SEARCH = "search"


class OpenStep:
    """A step that began and has not ended. `held` are arguments that came whole with its start, "" where none did; None once a
    delta brings them. `fields` are those of an item that has no part of its own."""

    __slots__ = ("block", "fields", "files", "held", "kind")

    def __init__(self, kind: str, block: str) -> None:
        self.kind = kind
        self.block = block
        self.fields: Fields = {}
        self.files = 0
        self.held: str | None = ""


class OpenInteraction:
    """Give it each event. Raises one of UNREADABLE for an event of another shape, before it has emitted anything of it."""

    def __init__(self) -> None:
        self.is_over = False  # `interaction.completed` or an error came
        self.started = False
        self.steps: dict[int, OpenStep] = {}
        self._ended: dict[int, OpenStep] = {}
        self._reused = 0
        self._next = 0  # the index that the next step bears
        self._last = 0
        self._called = False
        self._usage = UsageReader()
        self._tier = ""
        self._status = ""  # the last one that was told on the way

    def take(self, kind: str, fields: Fields, frames: list[Frame]) -> None:
        match kind:
            case "delta":
                self._delta(fields, frames)
            case "start":
                self._start(fields, frames)
            case "stop":
                self._stop(self._index(fields), frames)
            case "created":
                whole = object_at(fields, "interaction")
                frames.append(Started(string_of(whole, "id") or None, string_of(whole, "model") or None))
                self.started = True
            case "status":
                self._status = string_of(fields, "status") or self._status
            case "completed":
                self._complete(object_at(fields, "interaction"), frames)
            case _:
                self.is_over = True
                frames.append(Faulted(fault_in_stream(fields.get("error", NULL))))
        told = object_at(fields, "metadata")
        self._report(told.get("total_usage") or told.get("usage") or NULL, frames)

    def end(self, frames: list[Frame]) -> None:
        """The connection ended. A status on the way may have told the end."""
        for step in self.steps.values():
            if step.kind == "function_call":
                self._release(step, frames)
        if not self.is_over and FINISH_REASONS.get(self._status) is not None:
            frames += read_finish(self._status, called=self._called)

    def take_body(self, whole: Fields, frames: list[Frame]) -> None:
        frames.append(Started(string_of(whole, "id") or None, string_of(whole, "model") or None))
        self._complete(whole, frames)

    # --- steps

    def _index(self, fields: Fields) -> int:
        raw = fields.get("index", NULL)
        return self._last if raw == NULL else msgspec.json.decode(raw, type=int, strict=False)

    def _start(self, fields: Fields, frames: list[Frame]) -> None:
        given = fields.get("step") or fields.get("content") or msgspec.Raw(b"{}")
        step, index = read_fields(given), self._index(fields)
        kind = string_of(step, "type") or ""
        if (running := self.steps.get(index)) is not None and self._says_again(running, kind, step):
            return
        self._stop(index, frames)
        if index > self._next:
            lose(f"step {index}", "the steps before it did not arrive", frames)
        self._next = max(self._next, index + 1)
        self._begin(self._open(index, kind), step, frames)

    def _says_again(self, running: OpenStep, kind: str, step: Fields) -> bool:
        """A start that came twice: the same call before its first piece."""
        return kind == running.kind == "function_call" and running.held is not None and running.fields == step

    def _open(self, index: int, kind: str) -> OpenStep:
        block = str(index)
        if index in self._ended:
            self._reused += 1
            block = f"{index}.r{self._reused}"
        opened = self.steps[index] = OpenStep(kind, block)
        self._last = index
        return opened

    def _begin(self, opened: OpenStep, step: Fields, frames: list[Frame]) -> None:
        block = opened.block
        match opened.kind:
            case "thought":
                part = thought_of(step)
                frames.append(ReasoningDelta(part.text, block))
                if part.opaque is not None:
                    frames.append(BlockData(block, part.opaque))
            case "function_call":
                self._called = True
                opened.fields = {key: raw.copy() for key, raw in step.items()}
                held = arguments_of(step)
                opened.held = "" if held == "{}" else held
                name = string_of(step, "name")
                frames.append(ToolCallDelta(block=block, id=string_of(step, "id"), name=name))
                if (own := call_data(step)) is not None:
                    frames.append(BlockData(block, own))
            case "text":  # an older stream's
                frames.append(TextDelta(string_of(step, "text") or "", block))
                self._cite(opened, step, frames)
            case "model_output" | "user_input":
                for raw in items_at(step, "content"):
                    self._content(opened, read_fields(raw), frames)
            case kind if kind in FILES and len(step) > 1:  # an older stream's whole content
                self._content(opened, step, frames)
            case _:
                opened.fields = {key: raw.copy() for key, raw in step.items()}
                self._usage.has_searched |= _SEARCH in opened.kind

    def _content(self, opened: OpenStep, content: Fields, frames: list[Frame]) -> None:
        part = content_of(content)
        if isinstance(part, Text):
            frames.append(TextDelta(part.text, opened.block))
            frames += [CitationAdded(opened.block, one) for one in part.citations]
            return
        opened.files += 1
        frames += whole_frames(f"{opened.block}.f{opened.files}", part)

    def _delta(self, fields: Fields, frames: list[Frame]) -> None:
        delta, index = read_fields(fields.get("delta", NULL)), self._index(fields)
        kind = string_of(delta, "type") or _kind_of(delta)
        opened = self.steps.get(index)
        if opened is None:
            if kind == "thought_signature" and (ended := self._ended.get(index)) is not None:
                opened = ended
            else:
                opened = self._unannounced(index, kind, frames)
        needed = _FIELD_OF_DELTA.get(kind)
        if needed is not None and string_of(delta, needed) is None and delta.get(needed) != NULL:
            lose(f"step {index}", f"a delta without its `{needed}`", frames)
            return
        block = opened.block
        match kind:
            case "text":
                if text := string_of(delta, "text"):
                    frames.append(TextDelta(text, block))
            case "arguments_delta":
                if piece := string_of(delta, "arguments"):
                    opened.held = None
                    frames.append(ToolCallDelta(block=block, arguments=piece))
            case "thought_summary":
                content = object_at(delta, "content") or delta
                if text := string_of(content, "text"):
                    frames.append(ReasoningDelta(text, block))
            case "thought_signature":
                if says_signature(delta):
                    own = write_object({"signature": bytes(delta["signature"])})
                    frames.append(BlockData(block, Opaque(NAME, own.decode())))
            case "function_call":  # an older stream's: whole
                self._called, opened.held = True, None
                id, name = string_of(delta, "id"), string_of(delta, "name")
                said = arguments_of(delta) or "{}"
                frames.append(ToolCallDelta(block=block, id=id, name=name, arguments=said, whole=True))
                if (own := call_data(delta)) is not None:
                    frames.append(BlockData(block, own))
            case "text_annotation_delta" | "text_annotation":
                self._cite(opened, delta, frames)
            case _ if kind in FILES and opened.kind in ("", *TOLD, *FILES):
                self._content(opened, delta, frames)
                opened.kind = opened.kind or TOLD[0]
            case "":
                lose(f"step {index}", "a delta without a kind and a piece", frames)
            case _:
                opened.kind = opened.kind or kind
                self._usage.has_searched |= _SEARCH in kind
                _grow(opened.fields, delta)

    def _unannounced(self, index: int, kind: str, frames: list[Frame]) -> OpenStep:
        if kind == "arguments_delta":
            lose(
                f"step {index}", "a piece of a call came, and the call's beginning did not", frames, reaches_ended=True
            )
        began = {"text": TOLD[0], "arguments_delta": "function_call"}.get(kind)
        began = began or ("thought" if kind.startswith("thought") else "")
        self._next = max(self._next, index + 1)
        return self._open(index, began)

    def _cite(self, opened: OpenStep, fields: Fields, frames: list[Frame]) -> None:
        for raw in items_at(fields, "annotations")[:MAX_CITATIONS]:
            frames.append(CitationAdded(opened.block, citation_of(raw)))

    def _stop(self, index: int, frames: list[Frame]) -> None:
        opened = self.steps.pop(index, None)
        if opened is None:
            return
        self._ended[index] = opened
        self._release(opened, frames)
        frames.append(BlockEnded(opened.block))

    def _release(self, opened: OpenStep, frames: list[Frame]) -> None:
        """What is told at the end of a step: arguments that came with its start, and an item."""
        if opened.kind == "function_call":
            if opened.held:
                frames.append(ToolCallDelta(block=opened.block, arguments=opened.held, whole=True))
            opened.held = None
        elif opened.fields and opened.kind not in ("thought", "text", *TOLD):
            kind = opened.kind or "step"
            raw = write_object({"type": quote(kind), **opened.fields})
            frames.append(PartDone(opened.block, ProviderItem(NAME, kind, compact_text(raw))))

    # --- the end

    def _complete(self, whole: Fields, frames: list[Frame]) -> None:
        self.is_over = True
        for index in list(self.steps):
            self._stop(index, frames)
        if not self._next:  # nothing came before: all of it stands here
            given = whole.get("steps") or whole.get("outputs") or NULL
            self._take_whole(given, frames)
        self._tier = string_of(whole, "service_tier") or self._tier
        self._report(whole.get("usage", NULL), frames)
        status = string_of(whole, "status")
        errors = [whole.get("error", NULL), *(items_at(whole, "errors") if status == "failed" else ())]
        if (error := next(filter(is_error, errors), None)) is not None:
            frames.append(Faulted(fault_in_stream(error)))
        elif status is None:
            frames.append(unsaid_finish("`interaction.completed`"))
        else:
            frames += read_finish(status, called=self._called)

    def _take_whole(self, given: msgspec.Raw, frames: list[Frame]) -> None:
        steps = read_items(given)[:MAX_PARTS] if first_byte(given) == b"[" else []
        for at, raw in enumerate(steps):
            step = read_fields(raw)
            kind = string_of(step, "type") or ""
            if kind in ("user_input", "function_result"):
                continue  # what was asked, said again
            self._called |= kind == "function_call"
            self._usage.has_searched |= _SEARCH in kind
            for number, part in enumerate(parts_of(step)):
                frames += whole_frames(f"{at}.{number}" if number else str(at), part)

    def _report(self, raw: msgspec.Raw, frames: list[Frame]) -> None:
        if is_object(raw) and (usage := self._usage.read(raw, tier=self._tier)) is not None:
            frames.append(UsageReported(usage))


def whole_frames(block: str, part: Part) -> list[Frame]:
    """A part that came whole."""
    if isinstance(part, ToolCall):
        call: Frame = ToolCallDelta(block=block, id=part.id, name=part.name, arguments=part.arguments, whole=True)
        data: list[Frame] = [] if part.opaque is None else [BlockData(block, part.opaque)]
        return [call, *data, BlockEnded(block)]
    return [PartDone(block, part), BlockEnded(block)]


def lose(where: str, what: str, frames: list[Frame], *, reaches_ended: bool = False) -> None:
    frames.append(Lost(Repair("unreadable_event", where, what), reaches_ended))


def _kind_of(delta: Fields) -> str:
    """The kind of a delta that does not say it (recorded: a signature), by what it brings."""
    return next((kind for kind, field in _FIELD_OF_DELTA.items() if field in delta), "")


def _grow(fields: Fields, delta: Fields) -> None:
    """An item's fields come with one delta as a rule; lists of several follow each other."""
    for key, raw in delta.items():
        known = fields.get(key, NULL)
        if first_byte(raw) == first_byte(known) == b"[":
            fields[key] = msgspec.Raw(write_array([bytes(one) for one in (*read_items(known), *read_items(raw))]))
        else:
            fields[key] = raw.copy()
