"""The body of a Chat Completions request -> `Request`, for the gateway and the lab.

Nothing is lost: what has no word in our vocabulary stays in the opaque data of its part or in `extra`. Two things are made
the same on the way: a null field is a field that was not sent, and consecutive tool messages are one of ours.
"""

from typing import TypeGuard, get_args

import msgspec

from turnwise.vocab import (
    Effort,
    File,
    Message,
    NamedTool,
    Opaque,
    OutputSchema,
    Part,
    ProviderItem,
    Reasoning,
    Refusal,
    Request,
    Settings,
    Text,
    ToolCall,
    ToolChoice,
    ToolResult,
    ToolSpec,
)
from turnwise.vocab.json_values import array_or_empty, is_json_array, is_json_object, without_nones
from turnwise.wire.family import BadRequest
from turnwise.wire.json_fields import UNREADABLE
from turnwise.wire.openai_chat.parts import NAME, Fields, decode_file

EFFORTS = frozenset(get_args(Effort))

# Fields of a message that say nothing: a client repeats them from the response that it got.
EMPTY: tuple[object, ...] = (None, [], {}, False)


def decode_request(body: bytes, path: str) -> Request:
    """Raises BadRequest with what and where. `path` says nothing in this family."""
    try:
        return _decode(_read(body))
    except RecursionError:
        raise BadRequest("the body is nested too deeply") from None


def _decode(fields: Fields) -> Request:
    messages = fields.pop("messages", None)
    if not is_json_array(messages):
        raise BadRequest("`messages` must be an array")
    system, history = _MessageReader().read(messages)
    tools = _tools(fields)
    stream = fields.pop("stream", False)
    found = Request(
        model=_string(fields.pop("model", ""), "model"),
        messages=history,
        system=system,
        tools=tools,
        tool_choice=_tool_choice(fields),
        parallel_tool_calls=_boolean(fields, "parallel_tool_calls"),
        output=_output(fields),
        settings=_settings(fields),
        stream=stream is True,
    )
    if found.stream:
        _note_usage(fields)
    else:
        fields.pop("stream_options", None)
    return msgspec.structs.replace(found, extra=_opaque(fields))


def _read(body: bytes) -> Fields:
    try:
        value = msgspec.json.decode(body, type=dict[str, object])
    except UNREADABLE as error:
        raise BadRequest(f"the body is no JSON object: {error}") from None
    return without_nones(value)


def _note_usage(fields: Fields) -> None:
    """Our encoder asks for usage by itself; that a client did not ask is kept as null, which takes the field away again."""
    options = fields.pop("stream_options", None)
    if options == {"include_usage": True}:
        return
    fields["stream_options"] = options if is_json_object(options) and options.get("include_usage") is True else None


def _opaque(fields: Fields) -> Opaque | None:
    return Opaque(NAME, msgspec.json.encode(fields).decode()) if fields else None


def _string(value: object, where: str) -> str:
    if not isinstance(value, str):
        raise BadRequest(f"`{where}` must be a string")
    return value


def _boolean(fields: Fields, key: str) -> bool | None:
    value = fields.pop(key, None)
    if value is not None and not isinstance(value, bool):
        raise BadRequest(f"`{key}` must be true or false")
    return value


# Tools


def _tools(fields: Fields) -> tuple[ToolSpec, ...]:
    tools = fields.pop("tools", None)
    functions = fields.pop("functions", None)  # before `tools`
    if functions is not None and tools is None:
        if not is_json_array(functions):
            raise BadRequest("`functions` must be an array")
        tools = [{"type": "function", "function": function} for function in functions]
    if tools is None:
        return ()
    if not is_json_array(tools):
        raise BadRequest("`tools` must be an array")
    return tuple([_tool(tool, f"tools[{i}]") for i, tool in enumerate(tools)])


def _tool(tool: object, where: str) -> ToolSpec:
    if not is_json_object(tool):
        raise BadRequest(f"`{where}` must be an object")
    kind = tool.get("type", "function")
    inner = tool.get(str(kind))
    if kind not in ("function", "custom"):
        name = tool.get("name")
        return ToolSpec(name=name if isinstance(name, str) else str(kind), opaque=_opaque(tool))
    if not is_json_object(inner):
        raise BadRequest(f"`{where}.{kind}` must be an object")
    inner = dict(inner)
    name = _string(inner.pop("name", None), f"{where}.{kind}.name")
    description = inner.pop("description", None) or ""
    parameters = inner.pop("parameters", None) if kind == "function" else None
    strict = inner.get("strict") is True
    if inner.get("strict") in (True, False, None):
        inner.pop("strict", None)
    rest: Fields = {key: value for key, value in tool.items() if key not in ("type", kind) and value is not None}
    if inner:
        rest[str(kind)] = inner
    spec = ToolSpec(
        name=name,
        description=_string(description, f"{where}.{kind}.description"),
        strict=strict,
        free_form=kind == "custom",
        opaque=_opaque(rest),
    )
    if parameters is None:
        return spec
    return msgspec.structs.replace(spec, parameters=msgspec.json.encode(parameters).decode())


def _tool_choice(fields: Fields) -> ToolChoice:
    choice = fields.pop("tool_choice", None)
    legacy = fields.pop("function_call", None)
    if choice is None and legacy is not None:
        choice = {"type": "function", "function": legacy} if is_json_object(legacy) else legacy
    match choice:
        case None | "auto":
            return "auto"
        case "none":
            return "none"
        case "required" | "any":  # Mistral's word
            return "required"
        case {"type": "function", "function": {"name": str(name)}} | {"type": "custom", "custom": {"name": str(name)}}:
            return NamedTool(name)
        case _:
            fields["tool_choice"] = choice  # `allowed_tools` and what may come
            return "auto"


# Settings


def _is_effort(value: object) -> TypeGuard[Effort]:
    return isinstance(value, str) and value in EFFORTS


def _output(fields: Fields) -> OutputSchema | None:
    wanted = fields.get("response_format")
    if wanted is None:
        return None
    if not is_json_object(wanted):
        raise BadRequest("`response_format` must be an object")
    if wanted.get("type") == "text" and len(wanted) == 1:
        del fields["response_format"]  # what the API does by itself
        return None
    described = wanted.get("json_schema")
    if (
        wanted.get("type") != "json_schema"
        or not is_json_object(described)
        or not is_json_object(described.get("schema"))
    ):
        return None
    name = described.get("name")
    found = OutputSchema(
        schema=msgspec.json.encode(described["schema"]).decode(),
        name=name if isinstance(name, str) else "answer",
        strict=described.get("strict") is True,
    )
    if not set(described) - {"name", "schema", "strict"}:
        del fields["response_format"]
    return found


def _settings(fields: Fields) -> Settings:
    stop = fields.pop("stop", None)
    if isinstance(stop, str):
        stop = [stop]
    stops = array_or_empty(stop)
    effort = fields.pop("reasoning_effort", None)
    budget: object = None
    reasoning = fields.get("reasoning")
    if effort is None and is_json_object(reasoning) and len(reasoning) == 1:  # OpenRouter
        effort, budget = reasoning.get("effort"), reasoning.get("max_tokens")
        if _is_effort(effort) or isinstance(budget, int):
            del fields["reasoning"]
    elif effort is not None and not _is_effort(effort):
        fields["reasoning_effort"] = effort
    return Settings(
        max_output_tokens=_integer(fields, "max_completion_tokens", "max_tokens"),
        temperature=_number(fields, "temperature"),
        top_p=_number(fields, "top_p"),
        stop=tuple([text for text in stops if isinstance(text, str)]),
        seed=_integer(fields, "seed", "random_seed"),
        reasoning_effort=effort if _is_effort(effort) else None,
        reasoning_tokens=budget if isinstance(budget, int) else None,
    )


def _integer(fields: Fields, *keys: str) -> int | None:
    """The first of these that is there; the others are checked all the same."""
    found: list[int] = []
    for key in keys:
        value = fields.pop(key, None)
        if value is None:
            continue
        if isinstance(value, float) and value.is_integer():
            value = int(value)
        if not isinstance(value, int) or isinstance(value, bool):
            raise BadRequest(f"`{key}` must be an integer")
        found.append(value)
    return found[0] if found else None


def _number(fields: Fields, key: str) -> float | None:
    value = fields.pop(key, None)
    if value is None:
        return None
    if not isinstance(value, int | float) or isinstance(value, bool):
        raise BadRequest(f"`{key}` must be a number")
    return float(value)


# Messages


class _MessageReader:
    """Messages in order; it knows the calls that came before, because a result names only its call's id."""

    def __init__(self) -> None:
        self._calls: dict[str, ToolCall] = {}

    def read(self, messages: list[object]) -> tuple[tuple[Text, ...], tuple[Message, ...]]:
        """The leading instructions, and the conversation after them."""
        system: list[Text] = []
        history: list[Message] = []
        for i, value in enumerate(messages):
            where = f"messages[{i}]"
            if not is_json_object(value):
                raise BadRequest(f"`{where}` must be an object")
            message = self._message(value, where)
            texts = [part for part in message.parts if isinstance(part, Text)]
            if message.role == "system" and not history and len(texts) == len(message.parts):
                system += texts
            elif message.role == "tool" and history and history[-1].role == "tool":
                history[-1] = Message("tool", history[-1].parts + message.parts)
            else:
                history.append(message)
        return tuple(system), tuple(history)

    def _message(self, value: Fields, where: str) -> Message:
        role, content = value.get("role"), value.get("content")
        match role:
            case "system" | "developer":
                return Message("system", _parts(content, _rest(value, "role", "content"), where))
            case "user":
                return Message("user", _parts(content, _rest(value, "role", "content"), where))
            case "assistant":
                return Message("assistant", self._assistant_parts(value, where))
            case "tool" | "function":
                return Message("tool", (self._result(value, where),))
            case _:
                raise BadRequest(f"`{where}.role` is {role!r}: system, developer, user, assistant or tool")

    def _assistant_parts(self, value: Fields, where: str) -> tuple[Part, ...]:
        content = value.get("content")
        parts: list[Part] = []
        thinking, others = _thinking(content)
        reasoning = _reasoning(value, thinking)
        if reasoning is not None:
            parts.append(reasoning)
        if others not in (None, "", []):
            parts += _parts(others, {}, where)
        refusal = value.get("refusal")
        if isinstance(refusal, str) and refusal:
            parts.append(Refusal(refusal))
        parts += self._calls_of(value, where)
        known = ("role", "content", "refusal", "tool_calls", "function_call", *REASONING_FIELDS)
        return _with_message_fields(tuple(parts), _rest(value, *known))

    def _calls_of(self, value: Fields, where: str) -> list[ToolCall]:
        entries = value.get("tool_calls")
        calls: list[ToolCall] = []
        if entries is not None and not is_json_array(entries):
            raise BadRequest(f"`{where}.tool_calls` must be an array")
        for i, entry in enumerate(entries or ()):
            if not is_json_object(entry):
                raise BadRequest(f"`{where}.tool_calls[{i}]` must be an object")
            calls.append(_call(entry, f"{where}.tool_calls[{i}]"))
        legacy = value.get("function_call")
        if is_json_object(legacy):
            call_id = f"function_call_{len(self._calls)}"
            calls.append(_call({"id": call_id, "function": legacy}, where))
        for call in calls:
            self._calls[call.id] = call
        return calls

    def _result(self, value: Fields, where: str) -> ToolResult:
        call_id = value.get("tool_call_id")
        name = value.get("name")
        if value.get("role") == "function":  # answers the last call of that name
            call_id = next((call.id for call in reversed(self._calls.values()) if call.name == name), "")
        call_id = _string(call_id, f"{where}.tool_call_id")
        call = self._calls.get(call_id)
        parts = _parts(value.get("content") or "", {}, where)
        content = tuple([part for part in parts if isinstance(part, Text | File) and part != Text("")])
        rest = _rest(value, "role", "content", "tool_call_id", "name")
        if len(content) < len(parts) and any(isinstance(part, ProviderItem) for part in parts):
            rest["content"] = value.get("content")
        return ToolResult(
            call_id=call_id,
            name=call.name if call is not None else name if isinstance(name, str) else "",
            content=content,
            free_form=call is not None and call.free_form,
            opaque=_opaque(rest),
        )


REASONING_FIELDS = ("reasoning_content", "reasoning", "reasoning_text", "reasoning_details")


def _reasoning(value: Fields, thinking: str) -> Reasoning | None:
    details = value.get("reasoning_details")
    text = thinking or next((t for key in REASONING_FIELDS[:3] if isinstance(t := value.get(key), str) and t), "")
    opaque = _opaque({"reasoning_details": details}) if is_json_array(details) and details else None
    if opaque is not None and not text and is_json_array(details):
        pieces = [detail.get("text") or detail.get("summary") for detail in details if is_json_object(detail)]
        text = "".join([piece for piece in pieces if isinstance(piece, str)])
    return Reasoning(text, opaque) if text or opaque is not None else None


def _thinking(content: object) -> tuple[str, object]:
    """Mistral's thinking parts, apart from the other content."""
    if not is_json_array(content):
        return "", content
    texts: list[str] = []
    others: list[object] = []
    for part in content:
        if is_json_object(part) and part.get("type") == "thinking":
            thinking = part.get("thinking")
            pieces = thinking if is_json_array(thinking) else [{"text": thinking}]
            texts += [t for piece in pieces if is_json_object(piece) and isinstance(t := piece.get("text"), str)]
        else:
            others.append(part)
    return "".join(texts), others


def _call(entry: Fields, where: str) -> ToolCall:
    is_custom = is_json_object(entry.get("custom"))
    inner = entry.get("custom" if is_custom else "function")
    if not is_json_object(inner):
        raise BadRequest(f"`{where}.function` must be an object")
    arguments = inner.get("input" if is_custom else "arguments")
    if is_json_object(arguments):
        arguments = msgspec.json.encode(arguments).decode()
    if arguments is None or (arguments == "" and not is_custom):
        arguments = "" if is_custom else "{}"
    rest = _rest(entry, "id", "type", "function", "custom", "index")
    more = _rest(inner, "name", "arguments", "input")
    if more:
        rest["custom" if is_custom else "function"] = more
    return ToolCall(
        id=_string(entry.get("id", ""), f"{where}.id"),
        name=_string(inner.get("name"), f"{where}.function.name"),
        arguments=_string(arguments, f"{where}.function.arguments"),
        free_form=is_custom,
        opaque=_opaque(rest),
    )


def _parts(content: object, message_fields: Fields, where: str) -> tuple[Part, ...]:
    if content is None:
        content = ""
    if isinstance(content, str):
        return _with_message_fields((Text(content),), message_fields)
    if not is_json_array(content):
        raise BadRequest(f"`{where}.content` must be a string or an array")
    parts = tuple([_part(part, f"{where}.content[{i}]") for i, part in enumerate(content)])
    return _with_message_fields(parts, message_fields)


def _part(part: object, where: str) -> Part:
    if isinstance(part, str):
        return Text(part)
    if not is_json_object(part):
        raise BadRequest(f"`{where}` must be an object")
    text = part.get("text")
    if part.get("type") == "text" and isinstance(text, str):
        return Text(text, opaque=_opaque(_rest(part, "type", "text")))
    if part.get("type") == "refusal" and isinstance(refusal := part.get("refusal"), str):
        return Refusal(refusal)
    found = decode_file(part)
    if found is not None:
        return found
    kind = _string(part.get("type"), f"{where}.type")
    return ProviderItem(NAME, kind, msgspec.json.encode(part).decode())


def _rest(value: Fields, *known: str) -> Fields:
    return {key: field for key, field in value.items() if key not in known and field not in EMPTY}


def _with_message_fields(parts: tuple[Part, ...], fields: Fields) -> tuple[Part, ...]:
    """Fields of the message itself hang on its first part that can hold them."""
    if not fields:
        return parts
    for i, part in enumerate(parts):
        if not isinstance(part, ProviderItem):
            there: Fields = {} if part.opaque is None else msgspec.json.decode(part.opaque.json, type=dict[str, object])
            changed = msgspec.structs.replace(part, opaque=_opaque({**there, "message": fields}))
            return (*parts[:i], changed, *parts[i + 1 :])
    return parts
