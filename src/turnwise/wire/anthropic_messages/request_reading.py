"""A client's body -> `Request`. What has no word of ours goes to `extra`, so that nothing is lost."""

import re
from urllib.parse import unquote

import msgspec

from turnwise.vocab import (
    Effort,
    Message,
    NamedTool,
    OutputSchema,
    Part,
    Request,
    Role,
    Settings,
    Text,
    ToolCall,
    ToolChoice,
    ToolResult,
    ToolSpec,
)
from turnwise.vocab.json_values import without
from turnwise.wire.anthropic_messages.parts import opaque_from, read_block, read_text, read_tool_result
from turnwise.wire.family import BadRequest
from turnwise.wire.json_fields import (
    UNREADABLE,
    Fields,
    bytes_of,
    is_null,
    read_fields,
    read_items,
    string_of,
    text_of_raw,
    write_object,
)

# Vertex: .../models/NAME:rawPredict; Bedrock: /model/NAME/invoke
_MODEL_IN_PATH = re.compile(
    r"/([^/?]+):(?:stream)?[rR]awPredict(?:\?|$)|/model/([^/?]+)/invoke(?:-with-response-stream)?(?:\?|$)"
)
_STREAMS = re.compile(r":streamRawPredict|/invoke-with-response-stream")
_ROLES: dict[str, Role] = {"user": "user", "assistant": "assistant", "system": "system"}
_READ = frozenset(
    """model messages system tools tool_choice max_tokens temperature top_p stop_sequences stream thinking output_config
    output_format""".split()
)
_TOOL_KEYS = frozenset({"name", "description", "input_schema", "strict"})
_EFFORTS: dict[str, Effort] = {"low": "low", "medium": "medium", "high": "high", "xhigh": "xhigh", "max": "max"}


class _Plain(msgspec.Struct):
    """The fields whose type is all that there is to check."""

    max_tokens: int
    temperature: float | None = None
    top_p: float | None = None
    stop_sequences: list[str] | None = None
    stream: bool | None = None


_plain = msgspec.json.Decoder(_Plain)


def decode_request(body: bytes, path: str) -> Request:
    """Raises BadRequest in the API's own manner: where, then what."""
    try:
        return _decode(body, path)
    except UNREADABLE as error:
        raise BadRequest(f"The request body is not valid: {error}") from None


def _decode(body: bytes, path: str) -> Request:
    fields = read_fields(body)
    for key in ("messages", "max_tokens"):
        if key not in fields:
            raise BadRequest(f"{key}: Field required")
    plain = _plain.decode(body)
    model = string_of(fields, "model")
    if model is None:
        found = _MODEL_IN_PATH.search(path)
        if found is None and "anthropic_version" not in fields:
            raise BadRequest("model: Field required")
        model = unquote(found[1] or found[2]) if found is not None else ""
    extra = without(fields, _READ)
    effort, reasoning_tokens, output = _read_output(fields, extra)
    choice, parallel = _read_tool_choice(fields.get("tool_choice"))
    return Request(
        model=model,
        messages=_read_messages(fields["messages"]),
        system=_read_system(fields.get("system")),
        tools=_read_tools(fields.get("tools")),
        tool_choice=choice,
        parallel_tool_calls=parallel,
        output=output,
        settings=Settings(
            max_output_tokens=plain.max_tokens,
            temperature=plain.temperature,
            top_p=plain.top_p,
            stop=tuple(plain.stop_sequences or ()),
            reasoning_effort=effort,
            reasoning_tokens=reasoning_tokens,
        ),
        stream=bool(plain.stream) or _STREAMS.search(path) is not None,
        extra=opaque_from(extra, frozenset()),
    )


# --- messages


def _read_messages(raw: msgspec.Raw) -> tuple[Message, ...]:
    messages: list[Message] = []
    names: dict[str, str] = {}  # call id -> tool's name, which results do not carry here
    items = read_items(raw)
    for i, item in enumerate(items):
        where = f"messages.{i}"
        fields = read_fields(item)
        word = string_of(fields, "role")
        if word not in _ROLES:
            raise BadRequest(f"{where}.role: Input should be 'user', 'assistant' or 'system'")
        parts = _read_content(fields, where, names)
        if not parts and not (i == len(items) - 1 and word == "assistant"):
            raise BadRequest(
                f"{where}: all messages must have non-empty content except for the optional final assistant message"
            )
        messages += _split(_ROLES[word], parts)
    return tuple(messages)


def _read_content(fields: Fields, where: str, names: dict[str, str]) -> list[Part]:
    raw = fields.get("content")
    if raw is None:
        raise BadRequest(f"{where}.content: Field required")
    text = string_of(fields, "content")
    if text is not None:
        return [Text(text)] if text else []
    parts: list[Part] = []
    for i, item in enumerate(read_items(raw)):
        block = read_fields(item)
        at = f"{where}.content.{i}"
        if string_of(block, "type") == "tool_result":
            call_id = string_of(block, "tool_use_id") or ""
            parts.append(read_tool_result(block, at, name=names.get(call_id, "")))
            continue
        part = read_block(block, at)
        if isinstance(part, ToolCall):
            names[part.id] = part.name
        parts.append(part)
    return parts


def _split(role: Role, parts: list[Part]) -> list[Message]:
    """A user's message with tool results in it becomes a tool message and, for the rest, a user message."""
    results = tuple([part for part in parts if isinstance(part, ToolResult)])
    if not results:
        return [Message(role, tuple(parts))]
    rest = tuple([part for part in parts if not isinstance(part, ToolResult)])
    return [Message("tool", results)] + ([Message(role, rest)] if rest else [])


def _read_system(raw: msgspec.Raw | None) -> tuple[Text, ...]:
    if raw is None or is_null(raw):
        return ()
    text = string_of({"system": raw}, "system")
    if text is not None:
        return (Text(text),) if text else ()
    return tuple([read_text(read_fields(item), f"system.{i}") for i, item in enumerate(read_items(raw))])


# --- tools


def _read_tools(raw: msgspec.Raw | None) -> tuple[ToolSpec, ...]:
    if raw is None or is_null(raw):
        return ()
    return tuple([_read_tool(read_fields(item), f"tools.{i}") for i, item in enumerate(read_items(raw))])


def _read_tool(fields: Fields, where: str) -> ToolSpec:
    kind = string_of(fields, "type")
    name = string_of(fields, "name")
    if kind is None and not is_null(fields.get("type")):
        raise BadRequest(f"{where}.type: Input should be a valid string")
    if kind not in (None, "custom"):
        return ToolSpec(name=name or kind, opaque=opaque_from(fields, frozenset()))
    if name is None:
        raise BadRequest(f"{where}.custom.name: Field required")
    return ToolSpec(
        name=name,
        description=string_of(fields, "description") or "",
        parameters=_read_schema(fields.get("input_schema"), f"{where}.custom.input_schema"),
        strict="strict" in fields and bytes(fields["strict"]) == b"true",
        opaque=opaque_from(fields, _TOOL_KEYS),
    )


def _read_schema(raw: msgspec.Raw | None, where: str) -> str:
    if raw is None:
        raise BadRequest(f"{where}: Field required")
    try:
        schema = read_fields(raw)
    except UNREADABLE:
        raise BadRequest(f"{where}: Input does not match the expected shape.") from None
    if "type" not in schema:
        raise BadRequest(f"{where}.type: Field required")
    return text_of_raw(raw)


def _read_tool_choice(raw: msgspec.Raw | None) -> tuple[ToolChoice, bool | None]:
    if raw is None or is_null(raw):
        return "auto", None
    fields = read_fields(raw)
    disabled = fields.get("disable_parallel_tool_use")
    parallel = None if disabled is None or is_null(disabled) else bytes(disabled) != b"true"
    match string_of(fields, "type"):
        case "auto":
            return "auto", parallel
        case "any":
            return "required", parallel
        case "none":
            return "none", None
        case "tool":
            return NamedTool(string_of(fields, "name") or ""), parallel
        case _:
            raise BadRequest("tool_choice.type: Input should be 'auto', 'any', 'tool' or 'none'")


# --- thinking, effort, format


def _read_output(fields: Fields, extra: Fields) -> tuple[Effort | None, int | None, OutputSchema | None]:
    """Effort, budget and schema; what of `thinking` and `output_config` has no word of ours is put into `extra`."""
    config = read_fields(fields["output_config"]) if not is_null(fields.get("output_config")) else {}
    output = _read_format(config.get("format"))
    if output is not None:
        del config["format"]
    elif not is_null(fields.get("output_format")):
        output = _read_format(fields["output_format"])
        if output is None:
            extra["output_format"] = fields["output_format"]
    effort: Effort | None = None
    budget: int | None = None
    word = string_of(config, "effort")
    thinking = fields.get("thinking")
    plain = _plain_thinking(thinking)
    match plain:
        case _Thinking(type="disabled"):
            effort = "none"
        case _Thinking(type="enabled", budget_tokens=int(tokens)):
            budget = tokens
            effort = _EFFORTS.get(word or "")
        case _Thinking(type="adaptive") if word in _EFFORTS:
            effort = _EFFORTS[word]
        case _:
            if thinking is not None:
                extra["thinking"] = thinking
    if effort is not None and effort != "none":
        del config["effort"]
    if config:
        extra["output_config"] = msgspec.Raw(write_object(bytes_of(config)))
    return effort, budget, output


class _Thinking(msgspec.Struct, forbid_unknown_fields=True):
    type: str
    budget_tokens: int | None = None


_thinking = msgspec.json.Decoder(_Thinking)


def _plain_thinking(raw: msgspec.Raw | None) -> _Thinking | None:
    """None for a `thinking` that says more than we have words for (`display`)."""
    try:
        return None if raw is None else _thinking.decode(raw)
    except msgspec.ValidationError:
        return None


def _read_format(raw: msgspec.Raw | None) -> OutputSchema | None:
    if raw is None or is_null(raw):
        return None
    fields = read_fields(raw)
    if string_of(fields, "type") != "json_schema" or fields.keys() != {"type", "schema"}:
        return None
    return OutputSchema(schema=text_of_raw(fields["schema"]))
