"""What the gateway knows of the Messages API. Sources: the API reference, and the request types of the `anthropic` package."""

from collections.abc import Iterator, Sequence

import msgspec
from msgspec.structs import replace

from turnwise.vocab import Message, Opaque, Request, Text, ToolResult
from turnwise.wire.anthropic_messages.fields import NAME, own_fields
from turnwise.wire.json_fields import (
    UNREADABLE,
    Fields,
    encode,
    is_null,
    is_object,
    object_at,
    read_fields,
    read_items,
    string_of,
    without,
)
from turnwise.wire.relay_facts import (
    BEHIND,
    LIMIT,
    NO_CALL,
    NO_SCHEMA,
    OURS,
    REFUSED,
    STORED,
    STORES,
    THOUGHT,
    FieldRule,
    Pairs,
    RelayFacts,
    StoredField,
    StoredNames,
    is_said,
    keys_of,
    values_of,
)

_REFERENCE = "Anthropic API reference, Messages"
_STREAMING = "Anthropic documentation, Streaming messages"
_STORED = ("file_id", "file_ids")


class _Skill(msgspec.Struct):
    type: str


class _NewContainer(msgspec.Struct):
    id: str | None = None
    skills: tuple[_Skill, ...] = ()


def _names_container(raw: msgspec.Raw) -> bool:
    """A container that exists. One without an id is made for this request: it only says which skills it has, and those of type
    `anthropic` are everybody's."""
    if is_null(raw):
        return False
    try:
        new = msgspec.json.decode(raw, type=_NewContainer)
    except UNREADABLE:
        return True
    return new.id is not None or any(skill.type != "anthropic" for skill in new.skills)


def _references(pairs: Pairs) -> Iterator[str]:
    """None in a block that tells of a file which a tool has made."""
    kinds = values_of(pairs, "type")
    if not kinds or not all(isinstance(kind, str) and kind.endswith("_output") for kind in kinds):
        yield from keys_of(pairs, _STORED)


def _in_words(request: Request) -> Request:
    return _with_said_results(_with_budget(request))


def _with_budget(request: Request) -> Request:
    """A request of Anthropic's with the thinking budget that stands beside what the vocabulary has no word for (`display`)."""
    fields = {} if request.extra is None else read_fields(request.extra.json)
    thinking = object_at(fields, "thinking")
    if string_of(thinking, "type") != "enabled" or request.settings.reasoning_tokens is not None:
        return request
    try:
        budget = msgspec.json.decode(thinking.pop("budget_tokens", b"null"), type=int)
    except UNREADABLE:
        return request
    del thinking["type"]
    fields["thinking"] = msgspec.Raw(encode(thinking))
    settings = replace(request.settings, reasoning_tokens=budget)
    return replace(request, settings=settings, extra=Opaque(NAME, encode(fields).decode()))


def _with_said_results(request: Request) -> Request:
    """A request of Anthropic's API with text in the place of result blocks that are nothing else: tools that were found, passages
    of a search, documents of text."""
    if not any(type(part) is ToolResult and part.opaque for one in request.messages for part in one.parts):
        return request
    return replace(request, messages=tuple([_with_said_message(message) for message in request.messages]))


def _with_said_message(message: Message) -> Message:
    return Message(message.role, tuple([_said(part) if type(part) is ToolResult else part for part in message.parts]))


def _said(result: ToolResult) -> ToolResult:
    own = own_fields(result.opaque)
    content = own.pop("content", None)
    if content is None:
        return result
    blocks = [_block_in_words(read_fields(raw)) if is_object(raw) else None for raw in _items(content)]
    said = [one for one in blocks if one is not None]
    if len(said) < len(blocks):
        return result
    return replace(result, content=tuple(said), opaque=_opaque(own))


def _block_in_words(block: Fields) -> Text | None:
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
            source = object_at(block, "source")
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
    blocks = [] if text is not None else [read_fields(raw) if is_object(raw) else {} for raw in _items(block[inner])]
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
    return Opaque(NAME, encode(fields).decode()) if fields else None


def _items(raw: msgspec.Raw) -> list[msgspec.Raw]:
    return read_items(raw) if bytes(raw)[:1] == b"[" else [raw]


RELAY_FACTS = RelayFacts(
    title="Anthropic's Messages API",
    sources={
        "calls": f"{_STREAMING}, `tool_use` blocks and `input_json_delta`",
        "events": f"{_STREAMING}, event types",
        "ends": f"{_REFERENCE}, `stop_reason`",
        "bodies": f"{_REFERENCE}, `stream`",
    },
    count_field="input_tokens",
    setting_names={
        "temperature": "temperature",
        "top_p": "top_p",
        "stop": "stop_sequences",
        "seed": "seed",
        "reasoning": "thinking",
        "tool_choice": "tool_choice",
        "parallel": "tool_choice.disable_parallel_tool_use",
        "output": "output_config.format",
        "limit": "max_tokens",
    },
    history="messages",
    system="system",
    silent=frozenset({"type"}),  # of a client's tool: "custom"
    stored=StoredNames(
        fields={"container": StoredField(_names_container, STORED), "thread": StoredField(is_said, STORES)},
        names=_STORED,
        free=frozenset(["input", "input_schema", "schema", "metadata", "citations"]),
        references=_references,
    ),
    parents=frozenset({"output_config", "thinking"}),
    rules={
        "top_k": FieldRule(means="top_k"),
        "container": REFUSED,
        "thread": REFUSED,
        "mcp_servers": REFUSED,
        "compaction": REFUSED,
        "output_format": REFUSED,
        "output_config.format": REFUSED,
        "anthropic_version": OURS,  # Bedrock and Vertex AI have it in the body
        "cache_control": OURS,
    },
    in_words=_in_words,
    end_mark=b"message_stop",
    last_event=b'event: message_stop\ndata: {"type":"message_stop"}\n\n',
    calls_finish=True,
    changed={
        "messages": BEHIND,
        "tools": NO_CALL,
        "tool_choice": NO_CALL,
        "output_config.format": NO_SCHEMA,
        "max_tokens": LIMIT,
        "output_config.effort": THOUGHT,
        "thinking": THOUGHT,
    },
    takes={"top_k": "top_k"},
    places={
        "temperature": ("temperature",),
        "top_p": ("top_p",),
        "stop": ("stop_sequences",),
        "reasoning": ("thinking", "output_config.effort"),
        "tool_choice": ("tool_choice",),
        "parallel": ("tool_choice.disable_parallel_tool_use",),
        "output": ("output_config.format",),
    },
    most_temperature=1.0,
    least_reasoning_tokens=1024,
    begins="user",
    keeps_system=lambda profile: profile.mid_system,
    tool_schemas="object",
    wants_called_tools=True,
    object_arguments=True,
    hears=False,
    file_names="always",
    error_results="texts",
)
