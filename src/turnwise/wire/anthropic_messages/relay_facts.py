"""What the gateway knows of the Messages API. Sources: the API reference, and the request types of the `anthropic` package."""

from collections.abc import Iterator, Mapping, Sequence

import msgspec
from msgspec.structs import replace

from turnwise.vocab import Message, Opaque, Reasoning, Repair, Request, Text, ToolResult
from turnwise.vocab.json_values import without
from turnwise.wire.anthropic_messages.parts import NAME, own_fields
from turnwise.wire.anthropic_messages.thinking import may_think_by_budget
from turnwise.wire.family import HttpCall
from turnwise.wire.generations import adapt_claude, generation_of, say_in_words
from turnwise.wire.json_fields import (
    UNREADABLE,
    Fields,
    encode,
    extra_of,
    is_null,
    is_object,
    object_at,
    read_fields,
    read_items,
    string_of,
    write_array,
    write_object,
)
from turnwise.wire.profiles import Profile
from turnwise.wire.relay_facts import (
    BEHIND,
    FOREIGN_REASONING,
    LIMIT,
    NO_CALL,
    NO_SCHEMA,
    OURS,
    REFUSED,
    STORED,
    STORES,
    THOUGHT,
    TRUE,
    Adapter,
    CountForm,
    FieldRule,
    ListedModel,
    ModelRow,
    Pairs,
    RelayFacts,
    StoredField,
    StoredNames,
    capped,
    is_above,
    is_said,
    keys_of,
    not_carried,
    values_of,
)

_REFERENCE = "Anthropic API reference, Messages"
_STREAMING = "Anthropic documentation, Streaming messages"
_STORED = ("file_id", "file_ids")
LEAST_BUDGET_TOKENS = 1024  # that the API takes
_NO_THINKING = msgspec.Raw(b'{"type":"disabled"}')


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
    fields = extra_of(request)
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


def _settle(fields: Fields, request: Request, profile: Profile, keeps_nothing: bool) -> tuple[Request, list[Repair]]:
    """Takes thinking blocks without a signature out, which the provider refuses."""
    if not any(_is_unsigned(part) for message in request.messages for part in message.parts):
        return request, []
    messages: list[bytes] = []
    for raw in read_items(fields["messages"]):
        message = read_fields(raw)
        content = message.get("content")
        if content is None or bytes(memoryview(content)[:1]) != b"[":
            messages.append(bytes(raw))
        elif kept := [
            bytes(block) for block in read_items(content) if not (is_object(block) and _is_unsigned_block(block))
        ]:
            messages.append(write_object({**message, "content": write_array(kept)}))
    fields["messages"] = msgspec.Raw(write_array(messages))
    told = [not_carried("messages.content.thinking", because=FOREIGN_REASONING)]
    is_budget = string_of(object_at(fields, "thinking"), "type") == "enabled"
    if is_budget and not may_think_by_budget(request.messages):
        fields["thinking"] = _NO_THINKING
        because = "a turn that began without the provider's thinking goes on without"
        told.append(not_carried("thinking", because=because))
    return request, told


def _is_unsigned(part: object) -> bool:
    if type(part) is not Reasoning:
        return False
    own = own_fields(part.opaque)
    return is_null(own.get("signature")) and is_null(own.get("data"))


def _is_unsigned_block(raw: msgspec.Raw) -> bool:
    block = read_fields(raw)
    return string_of(block, "type") == "thinking" and not string_of(block, "signature")


def _adapter(model: str, profile: Profile) -> Adapter | None:
    row = generation_of(model, "claude")
    return None if row is None else lambda fields: [*say_in_words(fields, row), *adapt_claude(fields, row)]


def _forbid_parallel(fields: Fields, profile: Profile) -> None:
    choice = object_at(fields, "tool_choice") or {"type": msgspec.Raw(b'"auto"')}
    if string_of(choice, "type") != "none":
        fields["tool_choice"] = msgspec.Raw(write_object({**choice, "disable_parallel_tool_use": TRUE}))


def _cap_reasoning(fields: Fields, most: int) -> list[Repair]:
    """The API refuses a thinking budget that reaches `max_tokens`."""
    thinking = object_at(fields, "thinking")
    budget = thinking.get("budget_tokens")
    if budget is None or not is_above(budget, most - 1):
        return []
    lowered = msgspec.Raw(write_object({**thinking, "budget_tokens": encode(most - 1)}))
    fields["thinking"] = lowered if most > LEAST_BUDGET_TOKENS else _NO_THINKING
    return [capped("thinking.budget_tokens", most)]


COUNTED_FIELDS = frozenset(
    """model messages system tools tool_choice thinking output_config cache_control context_management mcp_servers""".split()
)
"""What of a message's fields the API takes in a request to count: it refuses others. Source: "Count tokens in a Message"."""


def _count_call(sent: HttpCall, keeps_bytes: bool) -> HttpCall:
    fields = read_fields(sent.body)
    if not keeps_bytes:
        fields = {key: raw for key, raw in fields.items() if key in COUNTED_FIELDS}
    return HttpCall(path="/v1/messages/count_tokens", body=write_object(fields), headers=sent.headers)


def _model(model: ListedModel) -> ModelRow:
    """Source: Anthropic API reference, "Get a Model"."""
    return {"type": "model", "id": model.name, "display_name": model.name, "created_at": model.created_at}


def _models(rows: Sequence[ModelRow]) -> ModelRow:
    """Source: Anthropic API reference, "List models"."""
    ends = {"first_id": rows[0]["id"] if rows else None, "last_id": rows[-1]["id"] if rows else None}
    return {"data": rows, "has_more": False, **ends}


def _is_own(block: Mapping[str, object]) -> bool:
    """Chat Completions of Mistral has a list as `thinking`."""
    if block.get("type") == "thinking":
        return isinstance(block.get("thinking"), str)
    return block.get("type") == "image" and "source" in block


RELAY_FACTS = RelayFacts(
    name=NAME,
    title="Anthropic's Messages API",
    sources={
        "calls": f"{_STREAMING}, `tool_use` blocks and `input_json_delta`",
        "events": f"{_STREAMING}, event types",
        "ends": f"{_REFERENCE}, `stop_reason`",
        "bodies": f"{_REFERENCE}, `stream`",
    },
    paths={("POST", "/v1/messages"): "generate", ("POST", "/v1/messages/count_tokens"): "count"},
    client_headers=frozenset({"anthropic-version"}),  # its clients name the version of the API
    folder="/v1/messages",
    # A message has to have a limit, a count has not.
    count=CountForm(field="input_tokens", needs={"max_tokens": msgspec.Raw(b"1")}, call=_count_call),
    model_row=_model,
    model_list=_models,
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
    beside="system",
    message_fields=frozenset({"role", "content"}),
    own_blocks=frozenset(
        ["tool_use", "tool_result", "server_tool_use", "redacted_thinking", "search_result", "document"]
    ),
    own_message=lambda message: "stop_reason" in message,  # a whole response, as it came
    own_block=_is_own,
    call_blocks=frozenset({"tool_use", "tool_result"}),
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
    limits=("max_tokens",),
    settle=_settle,
    adapter=_adapter,
    forbid_parallel=_forbid_parallel,
    cap_reasoning=_cap_reasoning,
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
    least_reasoning_tokens=LEAST_BUDGET_TOKENS,
    begins="user",
    keeps_system=lambda profile: profile.mid_system,
    tool_schemas="object",
    wants_called_tools=True,
    object_arguments=True,
    hears=False,
    file_names="always",
    error_results="texts",
)
