"""Tools and history of a request on their way to another family's API: what its encoder leaves out, found and told by name.

What belongs to the family that made it (signatures, encrypted reasoning, items of server-side tools) stays behind. What a person
or a tool said is never left out: where the other family has no form for it, the request is refused.
"""

from collections import Counter
from collections.abc import Iterator, Sequence

import msgspec
from msgspec.structs import replace

from turnwise.relay.foreign_fields import NOTHING_SAID
from turnwise.relay.refusals import RequestRefused
from turnwise.relay.stricter_apis import TITLES, fit_tool
from turnwise.relay.terms import not_carried
from turnwise.vocab import (
    ArgumentsState,
    File,
    Message,
    Opaque,
    Part,
    ProviderItem,
    Reasoning,
    Refusal,
    Repair,
    Request,
    Text,
    ToolCall,
    ToolResult,
    ToolSpec,
)
from turnwise.wire.files import takes_file
from turnwise.wire.json_fields import (
    UNREADABLE,
    Fields,
    encode,
    fields_in,
    is_object,
    read_fields,
    read_items,
    string_of,
    without,
)
from turnwise.wire.profiles import FamilyName, Profile

HISTORY: dict[FamilyName, str] = {
    "openai_chat": "messages",
    "openai_responses": "input",
    "anthropic_messages": "messages",
    "gemini": "contents",
}

SYSTEM: dict[FamilyName, str] = {
    "openai_chat": "messages",
    "openai_responses": "input",
    "anthropic_messages": "system",
    "gemini": "systemInstruction",
}

BOOKKEEPING: dict[FamilyName, frozenset[str]] = {
    "openai_chat": frozenset(),
    # What a response's item was called and whether it was whole; `role` says system or developer.
    "openai_responses": frozenset({"id", "status", "role"}),
    "anthropic_messages": frozenset({"type"}),  # of a client's tool: "custom"
    "gemini": frozenset(),
}
"""Fields of parts and tools that say nothing to another family's model."""

INNER = frozenset({"message", "content_part", "function", "custom", "functionDeclaration"})
"""Keys of opaque data under which the fields of the message, of the content part or of the function stand."""

WHOLE = frozenset({"content", "parts"})
"""Keys of a result's opaque data that hold all of its content, because there is more in it than texts and files."""

MISPLACED: dict[str, tuple[type, ...]] = {
    "user": (ToolCall, Reasoning, Refusal),
    "system": (ToolCall, ToolResult, Reasoning, Refusal),
    "assistant": (ToolResult,),
}
"""Parts that no API takes in a message of that role; the encoders pass over them."""

NAMED: dict[type, str] = {
    ToolCall: "a call",
    ToolResult: "a result",
    Reasoning: "reasoning",
    Refusal: "a refusal",
}

SAYING = frozenset(
    """content refusal tool_calls function_call reasoning_content reasoning reasoning_text reasoning_details""".split()
)
"""Fields of a Chat Completions message that become parts."""

SEALED = frozenset({"agent_message", "compaction", "compaction_trigger", "context_compaction"})
"""Items of the Responses API that stand for what was said before, encrypted, or ask its server to put it so."""

CACHE_MARK = "cache_control"


class Crossing:
    """One request on its way from `source` to the family of `profile`. What is left out is counted by name."""

    def __init__(self, request: Request, *, source: FamilyName, profile: Profile) -> None:
        self._request = request
        self._source: FamilyName = source
        self._profile = profile
        self._target: FamilyName = profile.family
        self._left_out: Counter[tuple[str, str]] = Counter()
        self.cache_marks: list[msgspec.Raw] = []  # as the client wrote them

    def tools(self) -> tuple[ToolSpec, ...]:
        """The tools without what belongs to their family. Raises RequestRefused for one that runs on the provider's server."""
        return tuple([self._tool(tool) for tool in self._request.tools])

    def read_history(self) -> None:
        """Raises RequestRefused for what a person or a tool said and the target has no form for."""
        history = HISTORY[self._source]
        for text in self._request.system:
            self._part(text, where=SYSTEM[self._source], role="system")
        messages = self._request.messages
        for message in messages:
            self._message(message, where=history)
        if messages and messages[-1].role == "assistant" and not self._profile.accepts_prefill:
            self._leave_out(f"{history}[-1]", "the upstream may not go on with a message of the assistant")

    def read_bare_messages(self, messages: msgspec.Raw) -> None:
        """Fields of a Chat Completions message that says nothing else: the vocabulary has no part that could hold them. Raises
        RequestRefused for one that stands for an answer that was spoken."""
        if all(message.parts for message in self._request.messages):
            return
        for raw in read_items(messages):
            fields = {key: value for key, value in read_fields(raw).items() if key != "role" and _is_said(value)}
            if fields.keys() & SAYING:
                continue
            if "audio" in fields:
                self._refuse("messages.audio", because="the answer that it names is stored at its provider")
            for key in fields:
                self._leave_out(f"messages.{key}")

    def told(self) -> list[Repair]:
        return [
            not_carried(field, because=because if count == 1 else f"{because} ({count} times)")
            for (field, because), count in self._left_out.items()
        ]

    def _leave_out(self, field: str, because: str = "") -> None:
        self._left_out[field, because or f"{TITLES[self._target]} does not have it"] += 1

    def _refuse(self, field: str, *, because: str) -> None:
        raise RequestRefused(f"`{field}` cannot be carried to {TITLES[self._target]}: {because}", field=field)

    # --- tools

    def _tool(self, tool: ToolSpec) -> ToolSpec:
        own = fields_in(tool.opaque, family=self._source)
        if self._source == "gemini":
            is_served = bool(own) and "functionDeclaration" not in own
        else:
            is_served = string_of(own, "type") not in (None, "custom")
        if is_served:
            self._refuse(
                "tools",
                because=f"`{tool.name}` runs at the provider that defines it; switch it off in the client",
            )
        self._take_fields(tool.opaque, where="tools")
        tool, is_loosened = fit_tool(tool, source=self._source, target=self._target)
        if is_loosened:
            self._leave_out("tools.strict", "strict mode wants each property required and no others allowed")
        if tool.strict and (self._target == "gemini" or not self._profile.strict_tools):
            self._leave_out("tools.strict")
        return replace(tool, opaque=None)

    # --- messages

    def _message(self, message: Message, *, where: str) -> None:
        if message.role == "system" and not self._keeps_system_role():
            self._leave_out(f"{where}.role", "a system message in mid-conversation goes as the user's")
        for part in message.parts:
            self._part(part, where=where, role=message.role)

    def _keeps_system_role(self) -> bool:
        if self._target == "anthropic_messages":
            return self._profile.mid_system
        return self._target != "gemini"

    def _part(self, part: Part, *, where: str, role: str) -> None:
        if type(part) in MISPLACED.get(role, ()):
            self._refuse(where, because=f"a message of the {role} cannot hold {NAMED[type(part)]}")
        match part:
            case Text(citations=citations):
                self._take_fields(part.opaque, where=where)
                if citations:
                    self._leave_out(f"{where}.citations", "citations belong to the provider that made them")
            case Refusal():
                self._take_fields(part.opaque, where=where)
            case Reasoning():
                self._reasoning(part, where=where)
            case File():
                self._file(part, where=where, role=role)
            case ToolCall():
                self._call(part, where=where)
            case ToolResult():
                self._result(part, where=where)
            case ProviderItem():
                self._item(part, where=where, role=role)

    def _reasoning(self, part: Reasoning, *, where: str) -> None:
        if not (self._replays and part.text):
            self._leave_out(f"{where}.reasoning", "reasoning goes back to the family that had it alone")
        elif part.opaque is not None:
            self._leave_out(f"{where}.reasoning", "its text goes, and what its family signed does not")

    @property
    def _replays(self) -> bool:
        """Whether the endpoint wants the text of reasoning back, which is its own then: DeepSeek and others refuse the results of
        a turn without it."""
        return self._target == "openai_chat" and self._profile.reasoning_replay is not None

    def without_reasoning(self, request: Request) -> Request:
        """The request without what another family's model thought and what its provider's tools did, and without messages that
        held nothing else."""
        left_out = (ProviderItem,) if self._replays else (Reasoning, ProviderItem)
        if not any(isinstance(part, left_out) for one in request.messages for part in one.parts):
            return request
        kept: list[Message] = []
        for message in request.messages:
            parts = tuple([part for part in message.parts if not isinstance(part, left_out)])
            if parts or not message.parts:
                kept.append(Message(message.role, parts))
        return replace(request, messages=tuple(kept))

    def _file(self, file: File, *, where: str, role: str) -> None:
        self._take_fields(file.opaque, where=where)
        if file.file_id is not None:
            self._refuse(f"{where}.file", because="the file id is another provider's: send the file itself")
        if file.url is not None and not file.url.startswith(("https://", "http://", "data:")):
            self._refuse(f"{where}.file", because="the file's address is another provider's: send the file itself")
        if role == "assistant" and self._target != "gemini":
            self._leave_out(f"{where}.file", "the API takes no files from an assistant")
        elif not self._takes(file):
            self._leave_out(f"{where}.file", "the upstream takes no such files; a line of text stands in its place")
        elif file.name is not None and not self._names(file):
            self._leave_out(f"{where}.file.name")

    def _takes(self, file: File) -> bool:
        is_heard = file.media_type.startswith(("audio/", "video/"))
        return takes_file(file, self._profile) and not (is_heard and self._target == "anthropic_messages")

    def _names(self, file: File) -> bool:
        """Whether the file's name goes along: of a document that comes itself."""
        if self._target == "gemini" or file.media_type.startswith(("image/", "audio/", "video/")):
            return False
        return self._target == "anthropic_messages" or file.data is not None or self._profile.document_part != "file"

    def _call(self, call: ToolCall, *, where: str) -> None:
        self._take_fields(call.opaque, where=where)
        if call.state is not ArgumentsState.COMPLETE or not (call.free_form or _is_object(call.arguments)):
            because = "arguments that are no JSON object go as `{}`"
            if self._target in ("anthropic_messages", "gemini") or call.state is not ArgumentsState.COMPLETE:
                self._leave_out(f"{where}.arguments", because)

    def _result(self, result: ToolResult, *, where: str) -> None:
        own = fields_in(result.opaque, family=self._source)
        if any(key in WHOLE for key in own):
            self._refuse(f"{where}.tool_result", because="it holds more than texts and files")
        self._take_fields(result.opaque, where=where)
        for part in result.content:
            self._part(part, where=where, role="tool")
        if result.is_error and not self._says_error(result):
            self._leave_out(f"{where}.is_error", "the text alone says what failed")

    def _says_error(self, result: ToolResult) -> bool:
        if self._target == "gemini":
            return True
        words = [isinstance(part, Text) and bool(part.text.strip()) for part in result.content]
        return self._target == "anthropic_messages" and bool(words) and all(words)

    def _item(self, item: ProviderItem, *, where: str, role: str) -> None:
        if item.kind in SEALED and self._source == "openai_responses":
            self._refuse(f"{where}.{item.kind}", because="what it stands for can be read by its provider alone")
        if role != "assistant" or item.kind == "item_reference":
            self._refuse(f"{where}.{item.kind}", because="it has no such content")
        self._leave_out(f"{where}.{item.kind}", "it belongs to the provider that made it")

    # --- fields without a word of ours

    def _take_fields(self, opaque: Opaque | None, *, where: str) -> None:
        for key, raw in self._own(opaque):
            if key == CACHE_MARK:
                self.cache_marks.append(raw)
            else:
                self._leave_out(f"{where}.{key}")

    def _own(self, opaque: Opaque | None) -> Iterator[tuple[str, msgspec.Raw]]:
        silent = BOOKKEEPING[self._source]
        for key, raw in fields_in(opaque, family=self._source).items():
            if key in INNER and is_object(raw):
                yield from [(below, value) for below, value in read_fields(raw).items() if _is_said(value)]
            elif key not in silent and _is_said(raw):
                yield key, raw


def _is_said(raw: msgspec.Raw) -> bool:
    return len(memoryview(raw)) > 5 or bytes(raw).decode() not in NOTHING_SAID


def _is_object(text: str) -> bool:
    try:
        read_fields(text)
    except UNREADABLE:
        return False
    return True


def hours(marks: list[msgspec.Raw]) -> bool:
    """Whether one of the client's cache marks asks for an hour."""
    return any(string_of(_fields(mark), "ttl") == "1h" for mark in marks)


def _fields(raw: msgspec.Raw) -> Fields:
    return read_fields(raw) if is_object(raw) else {}


def with_said_results(request: Request) -> Request:
    """A request of Anthropic's API with text in the place of result blocks that are nothing else: tools that were found, passages
    of a search, documents of text."""
    if not any(type(part) is ToolResult and part.opaque for one in request.messages for part in one.parts):
        return request
    return replace(request, messages=tuple([_with_said_results(message) for message in request.messages]))


def _with_said_results(message: Message) -> Message:
    return Message(message.role, tuple([_said(part) if type(part) is ToolResult else part for part in message.parts]))


def _said(result: ToolResult) -> ToolResult:
    own = fields_in(result.opaque, family="anthropic_messages")
    content = own.pop("content", None)
    if content is None:
        return result
    blocks = [_in_words(read_fields(raw)) if is_object(raw) else None for raw in _items(content)]
    said = [one for one in blocks if one is not None]
    if len(said) < len(blocks):
        return result
    return replace(result, content=tuple(said), opaque=_opaque(own))


def _in_words(block: Fields) -> Text | None:
    """What a block of a result says, with its other fields beside it; None where it is more than words."""
    match string_of(block, "type"):
        case "text":
            return _worded([block], text=string_of(block, "text"), said=("text",))
        case "tool_reference":
            name = string_of(block, "tool_name")
            text = None if name is None else f"Found the tool `{name}`. It can be called from now on."
            return _worded([block], text=text, said=("tool_name",))
        case "search_result":
            return _joined(block, inner="content", named=("title", "source"))
        case "document":
            source = _fields(block["source"]) if "source" in block else {}
            inner = {"text": "data", "content": "content"}.get(string_of(source, "type") or "")
            rest = without(block, ("source",))
            return None if inner is None else _joined({**source, **rest}, inner=inner, named=("title", "context"))
        case _:
            return None


def _joined(block: Fields, *, inner: str, named: tuple[str, ...]) -> Text | None:
    """The texts of the field `inner`, behind a line for each of the block's own words."""
    if inner not in block:
        return None
    text = string_of(block, inner)
    blocks = [] if text is not None else [_fields(raw) for raw in _items(block[inner])]
    said = [text] if text is not None else [string_of(one, "text") for one in blocks]
    if any(one is None for one in said):
        return None
    heads = [f"{key}: {value}" for key in named if (value := string_of(block, key))]
    text = "\n".join([*heads, *[one for one in said if one is not None]])
    return _worded([block, *blocks], text=text, said=(inner, *named, "text", "media_type"))


def _worded(blocks: Sequence[Fields], *, text: str | None, said: Sequence[str]) -> Text | None:
    rest = {key: raw for block in blocks for key, raw in block.items() if key not in (*said, "type")}
    return None if text is None else Text(text, opaque=_opaque(rest))


def _opaque(fields: Fields) -> Opaque | None:
    return Opaque("anthropic_messages", encode(fields).decode()) if fields else None


def _items(raw: msgspec.Raw) -> list[msgspec.Raw]:
    return read_items(raw) if bytes(raw)[:1] == b"[" else [raw]
