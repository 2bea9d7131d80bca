"""Typed chunks of one Chat Completions response -> frames."""

from typing import Protocol

import msgspec

from turnwise.vocab import (
    BlockData,
    Citation,
    CitationAdded,
    Faulted,
    File,
    Finished,
    Frame,
    Opaque,
    PartDone,
    ProviderItem,
    Reasoning,
    ReasoningDelta,
    Refusal,
    RefusalDelta,
    Restated,
    Started,
    Text,
    TextDelta,
    ToolCallDelta,
    Usage,
    UsageReported,
)
from turnwise.wire.endings import finish_frames, says_nothing, unsaid_finish
from turnwise.wire.json_fields import NOTHING, UNREADABLE, is_error, string_of
from turnwise.wire.openai_chat.chunks import CallPiece, Choice, Chunk, Delta, is_there
from turnwise.wire.openai_chat.endings import FINISH_REASONS, UsageReader, finish_of, says_limit
from turnwise.wire.openai_chat.faults import decode_error_event
from turnwise.wire.openai_chat.parts import NAME, image_of
from turnwise.wire.profiles import MAX_CITATIONS, MAX_PARTS, Profile

# Reasoning in Chat Completions: six places where it may stand, counted once; `reasoning_details` kept for replay.


CONTENT, REASONING_CONTENT, PLAIN_REASONING, REASONING_TEXT, DETAILS = 1, 2, 3, 4, 5

TEXTS = ("text", "summary")
"""The fields of a detail that come in pieces."""


class ReasoningFields(Protocol):
    """A delta, as far as its reasoning goes."""

    @property
    def reasoning_content(self) -> str | None: ...
    @property
    def reasoning(self) -> str | None: ...
    @property
    def reasoning_text(self) -> str | None: ...
    @property
    def reasoning_details(self) -> list[msgspec.Raw] | None: ...


class _Detail:
    """One entry of `reasoning_details` under way. `texts` holds the pieces of the fields that are texts."""

    __slots__ = ("fields", "texts")

    def __init__(self) -> None:
        self.fields: dict[str, object] = {}
        self.texts: dict[str, list[str]] = {}

    def add(self, fields: dict[str, object]) -> list[str]:
        """Returns the texts that it brings."""
        found: list[str] = []
        is_first = not self.fields
        for key, value in fields.items():
            if key in TEXTS and isinstance(value, str):
                found.append(value)
                self.texts.setdefault(key, []).append(value)
            if is_first or value is not None:
                self.fields[key] = value
        return found

    def is_continued_by(self, fields: dict[str, object]) -> bool:
        """Only text comes in fragments; encrypted data comes whole, and another id is another entry."""
        if "data" in fields or "data" in self.fields:
            return False
        ids = (self.fields.get("id"), fields.get("id"))
        return None in ids or ids[0] == ids[1]

    def joined(self) -> dict[str, object]:
        return self.fields | {key: "".join(pieces) for key, pieces in self.texts.items()}


class ReasoningReader:
    """Takes each delta's reasoning from one source: the first that ever said something (several often say the same).

    Within a chunk the order is typed content, `reasoning_content`, `reasoning`, `reasoning_text`, `reasoning_details`.
    """

    __slots__ = ("_details", "_latest", "_said", "_source")

    def __init__(self) -> None:
        self._source = 0
        self._details: list[_Detail] = []
        self._latest: dict[tuple[bytes, bytes], _Detail] = {}
        self._said = True

    def read(self, delta: ReasoningFields, *, thinking: str) -> str:
        """The reasoning that this delta adds; `thinking` is what its typed content holds."""
        details = self._keep(delta.reasoning_details) if delta.reasoning_details else ""
        said = (
            (CONTENT, thinking),
            (REASONING_CONTENT, delta.reasoning_content),
            (PLAIN_REASONING, delta.reasoning),
            (REASONING_TEXT, delta.reasoning_text),
            (DETAILS, details),
        )
        for source, text in said:
            if text and (not self._source or self._source == source):
                self._source = source
                return text
        return ""

    def opaque(self) -> Opaque | None:
        """The details so far in whole entries, or None if there is nothing new to say."""
        if self._said:
            return None
        self._said = True
        details = [detail.joined() for detail in self._details]
        try:
            return Opaque(NAME, msgspec.json.encode({"reasoning_details": details}).decode())
        except UNREADABLE:  # nested so deeply that it could be read, but only just
            return None

    def _keep(self, raws: list[msgspec.Raw]) -> str:
        """Fragments of one entry share its type and index; their texts are joined, later fields (a signature) added.

        Source: OpenRouter docs, "Preserving reasoning": the sequence sent back must be the one that was received.
        """
        texts: list[str] = []
        for raw in raws:
            try:
                fields = msgspec.json.decode(raw, type=dict[str, object])
                place = (msgspec.json.encode(fields.get("type")), msgspec.json.encode(fields.get("index")))
            except UNREADABLE:
                continue
            self._said = False
            detail = self._latest.get(place)
            if detail is None or not detail.is_continued_by(fields):
                detail = self._latest[place] = _Detail()
                self._details.append(detail)
            texts += detail.add(fields)
        return "".join(texts)


def _content_of(delta: Delta) -> tuple[str | None, str, str | None]:
    """Text, thinking and refusal, which may stand in typed content."""
    if not isinstance(delta.content, list):
        return delta.content, "", delta.refusal
    texts: list[str] = []
    thinking: list[str] = []
    refusals: list[str] = []
    for part in delta.content:
        if part.text and part.type != "thinking":
            texts.append(part.text)
        if part.thinking:
            thinking.append(
                part.thinking if isinstance(part.thinking, str) else "".join([p.text or "" for p in part.thinking])
            )
        if part.refusal:
            refusals.append(part.refusal)
    return "".join(texts), "".join(thinking), "".join(refusals) or delta.refusal


TEXT, REASONING, REFUSAL = "text", "reasoning", "refusal"


class ChunkReader:
    """Chunks of one response, in order -> frames. A body is read as one chunk whose choice has a `message`."""

    __slots__ = (
        "_called",
        "_citations",
        "_cited",
        "_failed",
        "_finish",
        "_has_reasoning",
        "_has_text",
        "_items",
        "_lost",
        "_reasoning",
        "_refused",
        "_said",
        "_told_usage",
        "_usage",
        "goes_on",
        "is_over",
        "started",
    )

    def __init__(self, profile: Profile) -> None:
        self.started = False
        self.goes_on = False  # it has started, and nothing was said about its end
        self.is_over = False  # the server has said that this is all
        self._usage = UsageReader(profile)
        self._told_usage: Usage | None = None
        self._finish: tuple[str, bool] | None = None
        self._failed = False
        self._lost = False  # something may be missing, and the server has not said everything again
        self._begin()

    def _begin(self) -> None:
        """What is known of the content, before there is any."""
        self._said = False  # any text, reasoning or refusal so far, or a call in a message
        self._called = False  # a piece of a call
        self._has_text = False
        self._has_reasoning = False
        self._refused = False
        self._items = 0
        self._cited: set[bytes] = set()
        self._citations: list[Citation] = []  # those that wait for a text to hang on
        self._reasoning = ReasoningReader()

    def note_text(self) -> None:
        """A piece of the text came."""
        self._said = self._has_text = True

    def note_reasoning(self) -> None:
        """A piece of the reasoning came, from the source that is read."""
        self._said = self._has_reasoning = True

    def note_call(self) -> None:
        """A piece of a call came."""
        self._called = True

    def read(self, chunk: Chunk, frames: list[Frame]) -> None:
        choices = chunk.choices
        if not self.started and (chunk.id or choices):
            # Azure's first chunk (`prompt_filter_results`) has neither id nor choices.
            self.started = self.goes_on = True
            frames.append(Started(chunk.id or None, chunk.model or None))
        if choices:
            for choice in choices:
                if not choice.index:
                    self._read_choice(choice, chunk, frames)
        # Identity with the default is the cheapest way to see that a field was not sent.
        if (chunk.usage is not NOTHING and is_there(chunk.usage)) or chunk.x_groq is not None:
            self._read_usage(chunk, frames)
        if chunk.citations or chunk.search_results:
            self._cite(chunk.search_results or chunk.citations, frames)
        if chunk.error is not NOTHING:
            self._read_error(chunk, frames)

    def read_after_end(self, chunk: Chunk, frames: list[Frame]) -> None:
        """What follows the end mark is no part of the response: a proxy may have sent the stream twice. Two things still count:
        usage, if none came before, and an error, if no finish reason did."""
        if self._told_usage is None:
            self._read_usage(chunk, frames)
        if self._finish is None and not self._failed:
            self._read_error(chunk, frames)

    def fail(self) -> None:
        """An error came beside the chunks."""
        self._failed = True

    def lose(self) -> None:
        """A piece of the response may be missing."""
        self._lost = True

    def end(self, mark: str, frames: list[Frame]) -> None:
        """The server says that this is all: where it has not said why, that it did not break off is told."""
        if not self.is_over and not self._failed and self._finish is None:
            frames.append(unsaid_finish(mark))
        self.is_over = True
        self.goes_on = False

    def _read_usage(self, chunk: Chunk, frames: list[Frame]) -> None:
        usage = chunk.usage
        if not is_there(usage) and chunk.x_groq is not None:
            usage = chunk.x_groq.usage
        if chunk.service_tier is not NOTHING:
            self._usage.tier = string_of({"tier": chunk.service_tier}, "tier") or ""
        if is_there(usage) and (counted := self._usage.read(usage)) is not None:
            self._told_usage = counted
            frames.append(UsageReported(counted))

    def _read_error(self, chunk: Chunk, frames: list[Frame]) -> None:
        if chunk.error is not NOTHING and is_error(chunk.error):
            self._failed = True
            frames.append(Faulted(decode_error_event(bytes(chunk.error))))

    def finish(self) -> list[Frame]:
        """What was held back because its block had not begun."""
        frames: list[Frame] = []
        self._flush(frames)
        return frames

    def _read_choice(self, choice: Choice, chunk: Chunk, frames: list[Frame]) -> None:
        delta = choice.delta
        if delta is not None:
            self._read_delta(delta, frames)
        word = choice.finish_reason
        finish = (word, says_limit(choice.native_finish_reason)) if word and not says_nothing(word) else None
        message = choice.message
        if message is not None:
            has_said = self._said or self._called
            if self._lost and self._is_whole(message, finish=finish or self._finish):
                finish = finish or self._finish
                self._restate(message, chunk, frames)
            elif delta is None or not has_said:
                self._read_message(message, frames)
        if finish is not None and finish != self._finish:
            self._take_finish(finish, frames)

    def _is_whole(self, message: Delta, *, finish: tuple[str, bool] | None) -> bool:
        """Whether a message says the whole response: it comes with the end, and has calls if any came before."""
        calls = message.tool_calls or message.function_call
        return finish is not None and bool(calls or (not self._called and (message.content or message.refusal)))

    def _restate(self, message: Delta, chunk: Chunk, frames: list[Frame]) -> None:
        """Begin again with a message that says again what was lost."""
        frames.append(Started(chunk.id or None, chunk.model or None))
        if self._told_usage is not None:
            frames.append(UsageReported(self._told_usage))
        self._begin()
        self._finish = None
        self._lost = False
        self._read_message(message, frames)
        frames.append(Restated())

    def _take_finish(self, finish: tuple[str, bool], frames: list[Frame]) -> None:
        self._finish = finish
        self.goes_on = False
        self._flush(frames)
        word, is_limit = finish
        finished = Finished(finish_of(word, refused=self._refused), word, is_limit)
        frames += finish_frames(finished, own=FINISH_REASONS)

    def _read_delta(self, delta: Delta, frames: list[Frame]) -> None:
        text, thinking, refusal = _content_of(delta)
        if thinking or delta.reasoning_content or delta.reasoning or delta.reasoning_text or delta.reasoning_details:
            self.add_reasoning(delta, frames, thinking=thinking)
        if text:
            self.note_text()
            frames.append(TextDelta(text))
        if refusal:
            self._said = self._refused = True
            frames.append(RefusalDelta(refusal))
        if delta.tool_calls:
            self.note_call()
            for call in delta.tool_calls[:MAX_PARTS]:
                frames.append(_call_frame(call, block=None))
        if delta.function_call is not None and not _is_said_twice(delta):
            self.note_call()
            call = CallPiece(function=delta.function_call)
            frames.append(_call_frame(call, block="function_call"))
        if delta.annotations or delta.executed_tools or delta.images:
            self._read_extras(delta, frames)

    def add_reasoning(self, delta: ReasoningFields, frames: list[Frame], *, thinking: str = "") -> None:
        """Take the reasoning of a delta; `thinking` is what its typed content holds."""
        text = self._reasoning.read(delta, thinking=thinking)
        if text or not self._has_reasoning:
            # Encrypted reasoning has no text; its part begins here all the same.
            self._said = self._said or bool(text)
            self._has_reasoning = True
            frames.append(ReasoningDelta(text))

    def _read_message(self, message: Delta, frames: list[Frame]) -> None:
        """A whole message: its parts replace what deltas made before; calls have their place in its list."""
        text, thinking, refusal = _content_of(message)
        reasoning = self._reasoning.read(message, thinking=thinking)
        if reasoning or message.reasoning_details:
            frames.append(PartDone(REASONING, Reasoning(reasoning)))
        if text:
            self._has_text = True
            frames.append(PartDone(TEXT, Text(text)))
        if refusal:
            self._refused = True
            frames.append(PartDone(REFUSAL, Refusal(refusal)))
        # After deltas the assembler has to see whether these calls are those that it has.
        named = not (self._said or self._called)
        for i, call in enumerate((message.tool_calls or ())[:MAX_PARTS]):
            frames.append(_call_frame(call, block=f"call-{i}" if named else None))
        if message.function_call is not None and not _is_said_twice(message):
            frames.append(_call_frame(CallPiece(function=message.function_call), block="function_call"))
        self._called = self._called or bool(message.tool_calls or message.function_call)
        self._said = self._said or bool(frames)
        self._read_extras(message, frames)

    def _read_extras(self, delta: Delta, frames: list[Frame]) -> None:
        if delta.annotations:
            self._cite(delta.annotations, frames)
        for raw in delta.executed_tools or ():
            # Groq sends the call first and then the same again with its output; the index says which it is.
            item = ProviderItem(NAME, "executed_tools", bytes(raw).decode("utf-8", "replace"))
            frames.append(PartDone(f"executed-{_index_of(raw)}", item))
        for raw in delta.images or ():
            image: File | None = image_of(raw)
            if image is not None:
                self._items += 1
                frames.append(PartDone(f"image-{self._items}", image))

    def _cite(self, raws: list[msgspec.Raw] | None, frames: list[Frame]) -> None:
        """Each source once, though every chunk repeats the list; held until there is a text to hang it on."""
        for raw in raws or ():
            key = bytes(raw)
            if key not in self._cited and len(self._cited) < MAX_CITATIONS:
                self._cited.add(key)
                self._citations.append(citation_of(key))
        if self._has_text:
            self._flush_citations(frames)

    def _flush_citations(self, frames: list[Frame]) -> None:
        frames += [CitationAdded(TEXT, citation) for citation in self._citations]
        self._citations.clear()

    def _flush(self, frames: list[Frame]) -> None:
        if self._citations:
            self._flush_citations(frames)
        opaque = self._reasoning.opaque()
        if opaque is not None:
            frames.append(BlockData(REASONING, opaque))


def _is_said_twice(delta: Delta) -> bool:
    """Servers that serve old and new clients say the same call in both fields."""
    return any(call.function == delta.function_call for call in delta.tool_calls or ())


class _Indexed(msgspec.Struct):
    index: int = 0


def _index_of(raw: msgspec.Raw) -> int:
    try:
        return msgspec.json.decode(raw, type=_Indexed).index
    except UNREADABLE:
        return 0


def _opaque_of(extra_content: msgspec.Raw) -> Opaque | None:
    try:
        fields: object = msgspec.json.decode(extra_content)
    except UNREADABLE:
        return None
    return Opaque(NAME, msgspec.json.encode({"extra_content": fields}).decode())


def _call_frame(call: CallPiece, *, block: str | None) -> ToolCallDelta:
    """One fragment as it stood there; what it means is for the assembler to judge."""
    extra = call.extra_content
    opaque = _opaque_of(extra) if extra is not NOTHING and is_there(extra) else None
    custom, function = call.custom, call.function
    if custom is not None:
        return ToolCallDelta(
            block=block,
            index=call.index,
            id=call.id,
            name=custom.name,
            arguments=custom.input,
            free_form=True,
            opaque=opaque,
        )
    if function is None:
        return ToolCallDelta(block=block, index=call.index, id=call.id, opaque=opaque)
    return ToolCallDelta(
        block=block,
        index=call.index,
        id=call.id,
        name=function.name,
        arguments=function.arguments,
        whole=function.whole,
        opaque=opaque,
    )


class UrlCitation(msgspec.Struct):
    url: str | None = None
    title: str | None = None
    content: str | None = None  # OpenRouter: the excerpt


class Source(msgspec.Struct):
    """OpenAI's and OpenRouter's annotation (`url_citation`), or Perplexity's search result (`url`, `title`)."""

    url_citation: UrlCitation | None = None
    url: str | None = None
    title: str | None = None
    snippet: str | None = None


def citation_of(raw: bytes) -> Citation:
    """What can be told of the source; an unknown shape keeps its raw text."""
    text = raw.decode("utf-8", "replace")
    try:
        source = msgspec.json.decode(text, type=Source | str)
    except UNREADABLE:
        return Citation(family=NAME, raw=text)
    if isinstance(source, str):  # Perplexity's `citations`: the address alone
        return Citation(family=NAME, raw=text, url=source)
    inner = source.url_citation
    if inner is not None:
        return Citation(family=NAME, raw=text, url=inner.url, title=inner.title, cited_text=inner.content)
    return Citation(family=NAME, raw=text, url=source.url, title=source.title, cited_text=source.snippet or None)
