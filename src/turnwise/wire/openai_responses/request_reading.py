"""What clients send: a body of `POST /responses` -> `Request`. The other direction, and the opaque keys, are in request.py."""

from collections.abc import Mapping

import msgspec

from turnwise.vocab import (
    ArgumentsState,
    Effort,
    Message,
    NamedTool,
    Opaque,
    OutputSchema,
    Part,
    Request,
    Role,
    Settings,
    Text,
    ToolCall,
    ToolChoice,
    ToolSpec,
)
from turnwise.vocab.json_values import without
from turnwise.wire.family import BadRequest
from turnwise.wire.json_fields import (
    UNREADABLE,
    Fields,
    encode,
    is_object,
    object_at,
    read_fields,
    text_of_raw,
)
from turnwise.wire.openai_responses.parts import (
    NAME,
    kind_of,
    list_at,
    message_parts,
    opaque_from,
    parts_of,
    result_of,
    text_at,
)
from turnwise.wire.openai_responses.request import ENCRYPTED_REASONING, wants_encrypted_reasoning

# Items that the client writes; every other item of an unknown type is the model's or its server's.
CLIENT_ITEMS = frozenset(
    """computer_call_output local_shell_call_output apply_patch_call_output mcp_approval_response""".split()
)
RESULTS = frozenset(("function_call_output", "custom_tool_call_output"))

# A request says what to answer by at least one of these.
SOURCES = ("input", "prompt", "previous_response_id", "conversation")


def decode_request(body: bytes, path: str) -> Request:
    """`path` names nothing that the body does not. Raises BadRequest with what is wrong and where."""
    try:
        body.decode()
        return _decode(read_fields(msgspec.json.format(body, indent=-1)))  # whitespace of a client's own means nothing
    except UNREADABLE as error:
        raise BadRequest(f"the body cannot be read as a request of the Responses API: {error}") from error


def _decode(fields: Fields) -> Request:
    model = text_at(fields, "model")
    if model is None and "prompt" not in fields:
        raise BadRequest("`model` is missing: name the model as a string")
    if not any(_is_given(fields, key) for key in SOURCES):
        raise BadRequest("`input` is missing: give it as a string or a list of items")
    rest = dict(fields)
    for key in ("model", "instructions", "input", "tools", "stream"):
        rest.pop(key, None)
    instructions = text_at(fields, "instructions")
    if instructions is None and _is_given(fields, "instructions"):
        rest["instructions"] = fields["instructions"]
    leading, messages = _decode_input(fields.get("input"), has_instructions=instructions is not None)
    system = (() if instructions is None else (Text(instructions),)) + leading
    tools = tuple([decode_tool(raw, f"tools[{i}]") for i, raw in enumerate(list_at(fields, "tools"))])
    settings = _take_settings(rest)
    _take_statelessness(rest, model=model or "", effort=settings.reasoning_effort)
    return Request(
        model=model or "",
        messages=messages,
        system=system,
        tools=tools,
        tool_choice=_take_tool_choice(rest),
        parallel_tool_calls=_take_flag(rest, "parallel_tool_calls"),
        output=_take_output(rest),
        settings=settings,
        stream="stream" in fields and bytes(fields["stream"]) == b"true",
        extra=opaque_from({key: rest[key] for key in sorted(rest)}),
    )


def _is_given(fields: Mapping[str, msgspec.Raw], key: str) -> bool:
    return key in fields and bytes(fields[key]) != b"null"


class _Conversation:
    """Messages being put together from items: neighbouring items of one role are one message, users' messages apart."""

    def __init__(self) -> None:
        self.leading: list[Text] = []
        self.messages: list[Message] = []
        self._role: Role | None = None
        self._parts: list[Part] = []

    @property
    def is_empty(self) -> bool:
        return not self.messages and not self._parts

    def add(self, role: Role, parts: tuple[Part, ...]) -> None:
        if role != self._role:
            self.close()
            self._role = role
        self._parts += parts

    def close(self) -> None:
        if self._role is not None and self._parts:
            self.messages.append(Message(self._role, tuple(self._parts)))
        self._role, self._parts = None, []


def _decode_input(raw: msgspec.Raw | None, *, has_instructions: bool) -> tuple[tuple[Text, ...], tuple[Message, ...]]:
    if raw is None or bytes(raw) == b"null":
        return (), ()
    whole = {"input": raw}
    text = text_at(whole, "input")
    if text is not None:
        return (), (Message("user", (Text(text),)),)
    if bytes(raw)[:1] != b"[":
        raise BadRequest("`input` must be a string or a list of items")
    conversation = _Conversation()
    names: dict[str, str] = {}
    for i, item_raw in enumerate(list_at(whole, "input")):
        if not is_object(item_raw):
            raise BadRequest(f"`input[{i}]` must be an object")
        _add_item(conversation, read_fields(item_raw), f"input[{i}]", names=names, has_instructions=has_instructions)
    conversation.close()
    return tuple(conversation.leading), tuple(conversation.messages)


def _add_item(
    conversation: _Conversation, item: Fields, where: str, *, names: dict[str, str], has_instructions: bool
) -> None:
    kind = kind_of(item)
    if kind == "message":
        _add_message(conversation, item, where, has_instructions=has_instructions)
    elif kind in RESULTS:
        if text_at(item, "call_id") is None:
            raise BadRequest(f"`{where}.call_id` is missing: name the call that the output answers")
        if not _is_given(item, "output"):
            raise BadRequest(f"`{where}.output` is missing")
        conversation.add("tool", (result_of(item, name=names.get(text_at(item, "call_id") or "", "")),))
    elif kind in CLIENT_ITEMS or (text_at(item, "execution") == "client" and kind.endswith("_output")):
        conversation.add("user", parts_of(item))
        conversation.close()
    else:
        parts = parts_of(item)
        match parts:
            case (ToolCall() as call,):
                names[call.id] = call.name
                parts = (_checked_call(call, item, where),)
            case _:
                pass
        conversation.add("assistant", parts)


def _checked_call(call: ToolCall, item: Fields, where: str) -> ToolCall:
    for key in ("call_id", "name", "input" if call.free_form else "arguments"):
        if not _is_given(item, key):
            raise BadRequest(f"`{where}.{key}` is missing")
    if call.free_form:
        return call
    if not call.arguments:
        return msgspec.structs.replace(call, arguments="{}")
    try:
        msgspec.json.decode(call.arguments, type=msgspec.Raw)
    except msgspec.DecodeError:
        return msgspec.structs.replace(call, state=ArgumentsState.INVALID, reason="the arguments are not JSON")
    return call


_ROLES: Mapping[str, Role] = {"user": "user", "assistant": "assistant", "system": "system", "developer": "system"}


def _add_message(conversation: _Conversation, item: Fields, where: str, *, has_instructions: bool) -> None:
    role = _ROLES.get(text_at(item, "role") or "")
    if role is None:
        raise BadRequest(f"`{where}.role` must be one of user, assistant, system, developer")
    if not _is_given(item, "content"):
        raise BadRequest(f"`{where}.content` is missing")
    if role == "assistant":
        conversation.add(role, message_parts(item))
        return
    if role != "system" or not conversation.is_empty:
        conversation.close()
        conversation.add(role, message_parts(item, usual_role="system" if role == "system" else "user"))
        conversation.close()
        return
    parts = message_parts(item, usual_role="system" if has_instructions else "")
    if all(isinstance(part, Text) for part in parts):
        conversation.leading += [part for part in parts if isinstance(part, Text)]
    else:
        conversation.add("system", parts)
        conversation.close()


def decode_tool(raw: msgspec.Raw, where: str) -> ToolSpec:
    if not is_object(raw):
        raise BadRequest(f"`{where}` must be an object")
    fields = read_fields(raw)
    kind = text_at(fields, "type")
    name = text_at(fields, "name")
    if kind is None:
        raise BadRequest(f"`{where}.type` is missing")
    if kind not in ("function", "custom"):
        return ToolSpec(name=name or kind, opaque=Opaque(NAME, text_of_raw(raw)))
    if name is None:
        raise BadRequest(f"`{where}.name` is missing")
    description = text_at(fields, "description") or ""
    if kind == "custom":
        rest = without(fields, ("type", "name", "description"))
        return ToolSpec(name=name, description=description, free_form=True, opaque=opaque_from(rest))
    rest = without(fields, ("type", "name", "description", "parameters", "strict"))
    strict = bytes(fields.get("strict", msgspec.Raw(b"null")))
    if strict not in (b"true", b"false"):
        rest["strict"] = msgspec.Raw(b"null")  # left to the API, which then decides by the schema
    if not is_object(fields.get("parameters", msgspec.Raw(b"null"))):
        rest["parameters"] = msgspec.Raw(b"null")
        return ToolSpec(name=name, description=description, strict=strict == b"true", opaque=opaque_from(rest))
    parameters = text_of_raw(fields["parameters"])
    return ToolSpec(
        name=name, description=description, parameters=parameters, strict=strict == b"true", opaque=opaque_from(rest)
    )


class _Sampling(msgspec.Struct):
    max_output_tokens: int | None = None
    temperature: float | None = None
    top_p: float | None = None


class _Reasoning(msgspec.Struct):
    effort: Effort


def _take_settings(rest: Fields) -> Settings:
    """Takes what it reads out of `rest`."""
    fields = {key: rest.pop(key) for key in ("max_output_tokens", "temperature", "top_p") if key in rest}
    sampling = msgspec.json.decode(encode(fields), type=_Sampling)
    effort: Effort | None = None
    if "reasoning" in rest:
        reasoning = object_at(rest, "reasoning")
        try:
            effort = msgspec.json.decode(rest["reasoning"], type=_Reasoning).effort
            _put_back(rest, "reasoning", without(reasoning, ("effort",)))
        except msgspec.ValidationError:
            pass  # no effort, or a word that came later than this code: all of it stays in `extra`
    return Settings(
        max_output_tokens=sampling.max_output_tokens,
        temperature=sampling.temperature,
        top_p=sampling.top_p,
        reasoning_effort=effort,
    )


def _put_back(rest: Fields, key: str, value: Fields) -> None:
    if value:
        rest[key] = msgspec.Raw(encode(value))
    else:
        rest.pop(key, None)


def _take_statelessness(rest: Fields, *, model: str, effort: str | None) -> None:
    """What our encoder would write by itself leaves `rest`; anything else stays, an unsaid value as the API's default."""
    if bytes(rest.get("store", msgspec.Raw(b"true"))) == b"false":
        rest.pop("store")
    else:
        rest["store"] = msgspec.Raw(b"true")
    ours = [ENCRYPTED_REASONING] if wants_encrypted_reasoning(model, effort=effort) else []
    theirs = [bytes(raw) for raw in list_at(rest, "include")]
    if theirs == [encode(word) for word in ours]:
        rest.pop("include", None)
    elif "include" not in rest or bytes(rest["include"]) == b"null":
        rest["include"] = msgspec.Raw(b"[]")


def _take_flag(rest: Fields, key: str) -> bool | None:
    value = bytes(rest.get(key, msgspec.Raw(b"null")))
    if value in (b"true", b"false"):
        del rest[key]
        return value == b"true"
    return None


def _take_tool_choice(rest: Fields) -> ToolChoice:
    """Choices without a word of ours (`allowed_tools`, a hosted tool) stay in `rest`."""
    match text_at(rest, "tool_choice"):
        case ("auto" | "none" | "required") as word:
            del rest["tool_choice"]
            return word
        case _:
            pass
    choice = object_at(rest, "tool_choice")
    name = text_at(choice, "name")
    if name is not None and text_at(choice, "type") in ("function", "custom"):
        del rest["tool_choice"]
        return NamedTool(name)
    return "auto"


def _take_output(rest: Fields) -> OutputSchema | None:
    text = object_at(rest, "text")
    form = object_at(text, "format")
    name = text_at(form, "name")
    if text_at(form, "type") != "json_schema" or name is None or not is_object(form.get("schema", msgspec.Raw(b""))):
        return None
    strict = bytes(form.get("strict", msgspec.Raw(b"false"))) == b"true"
    schema = text_of_raw(form["schema"])
    further = without(form, ("type", "name", "schema", "strict"))
    others = without(text, ("format",))
    if further:
        others["format"] = text["format"]
    _put_back(rest, "text", others)
    return OutputSchema(schema=schema, name=name, strict=strict)
