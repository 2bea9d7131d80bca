"""Requests of the Responses API (`POST /responses`), both ways. Opaque keys: see items.py, and for tools below.

Opaque data on a `ToolSpec`: a server-side tool whole (it then has a `type`), or further fields of a function
(`defer_loading`) or custom tool (`format`). `Request.extra`: every body field that has no word in the vocabulary.

We keep no state at the provider: `store` is false and reasoning comes back encrypted, to be sent again. A body that a
client wrote keeps what it says (or leaves unsaid) in `extra`.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import groupby
from typing import Literal

import msgspec

from turnwise.vocab import (
    ArgumentsState,
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
    Role,
    Settings,
    Text,
    ToolCall,
    ToolChoice,
    ToolResult,
    ToolSpec,
)
from turnwise.wire.family import BadRequest, HttpCall, Loss
from turnwise.wire.openai_responses.fields import (
    FAMILY_NAME,
    UNREADABLE,
    Fields,
    count_at,
    encode,
    fields_of,
    is_object,
    json_text,
    list_at,
    object_at,
    text_at,
    without,
)
from turnwise.wire.openai_responses.items import (
    call_item,
    header_of,
    kind_of,
    message_item,
    message_parts,
    opaque_of,
    own_fields,
    parts_of,
    reasoning_item,
    result_item,
    result_of,
)
from turnwise.wire.profiles import Profile

PATH = "/responses"
ENCRYPTED_REASONING = "reasoning.encrypted_content"

# They answer `include: ["reasoning.encrypted_content"]` with 400 "Encrypted content is not supported with this model".
MODELS_WITHOUT_REASONING = ("gpt-3.5", "gpt-4", "chatgpt-4")

# Items that the client writes; every other item of an unknown type is the model's or its server's.
CLIENT_ITEMS = frozenset(
    """computer_call_output local_shell_call_output apply_patch_call_output mcp_approval_response""".split()
)
RESULTS = frozenset(("function_call_output", "custom_tool_call_output"))

# Body fields whose value is an object that several words share: `extra` is merged into them, not put in their place.
MERGED = frozenset(("text", "reasoning"))

NO_FILES = "[a file ({}) was left out: this endpoint takes none]"

LOSSES = (
    Loss(what="stop, seed, reasoning_tokens", direction="request", becomes="left out: the API has no such fields"),
    Loss(what="ToolResult.is_error", direction="request", becomes="left out; the text says what failed"),
    Loss(what="name of a ToolResult whose call is not in the request", direction="request", becomes='""'),
    Loss(what="arguments of a call that is not complete", direction="request", becomes="{}"),
    Loss(what="name of an image; name of a file given by URL or id", direction="request", becomes="left out"),
    Loss(what="name of inline data without one", direction="request", becomes="`file` (the API insists on a name)"),
    Loss(
        what="media type of what a URL or id stands for",
        direction="request",
        becomes="image/* or application/octet-stream",
    ),
    Loss(what="files in an assistant's message", direction="request", becomes="left out"),
    Loss(
        what="reasoning without encrypted content or raw content, where nothing is stored",
        direction="request",
        becomes="left out: the API answers 404 to a reference that it did not store",
    ),
    Loss(what="citations of another family, citations on a user's text", direction="both", becomes="left out"),
    Loss(what="border between neighbouring assistant, or tool, messages", direction="request", becomes="one message"),
    Loss(what="system message before all others", direction="request", becomes="an instruction in Request.system"),
    Loss(what="empty messages", direction="request", becomes="left out"),
    Loss(what="parts of an assistant's message without item id", direction="response", becomes="ids are made up"),
    Loss(what="item id that comes after the part's first piece", direction="response", becomes="the id that was sent"),
    Loss(what="order of server-side items that overlap", direction="response", becomes="the order in which they ended"),
    Loss(what="empty text in a tool's result beside nothing else", direction="request", becomes="no content"),
    Loss(
        what="pause, refusal and tool_calls as finish", direction="response", becomes="completed; read from the items"
    ),
    Loss(what="cut as finish", direction="response", becomes="incomplete without a reason"),
    Loss(what="repairs", direction="response", becomes="left out"),
)


# ---- Request -> body


def encode_request(request: Request, profile: Profile) -> HttpCall:
    return HttpCall(path=profile.path or PATH, body=encode_body_of(request, profile))


def encode_body_of(request: Request, profile: Profile) -> bytes:
    """What stays the same over a turn, then the input, then what a step may change (promise step:prefix-stable)."""
    extra = {**(fields_of(profile.body) if profile.body else {}), **own_fields(request.extra)}
    before: dict[str, object] = {}
    if profile.model_in_body:
        before["model"] = request.model
    leading = list(request.system)
    if leading and leading[0].opaque is None:
        before["instructions"] = leading.pop(0).text
    if request.tools:
        before["tools"] = list(map(_tool_encoder(profile), request.tools))
    if profile.stateless:
        before["store"] = False
        if wants_encrypted_reasoning(request.model, effort=request.settings.reasoning_effort):
            before["include"] = [ENCRYPTED_REASONING]
    after = dict(_changing_fields(request, profile))
    for key in [key for key in extra if key in before]:
        before[key] = extra.pop(key)
    for key, value in extra.items():
        own = after.get(key)
        after[key] = (
            {**own, **fields_of(value)} if key in MERGED and isinstance(own, dict) and is_object(value) else value
        )
    keeps_bare_reasoning = _is_true(before.get("store", True))
    items = [encode(message_item((text,), role=profile.system_role)) for text in leading]
    for message in request.messages:
        items += encode_message(message, profile=profile, keeps_bare_reasoning=keeps_bare_reasoning)
    head = encode(before)[:-1] + (b"," if before else b"")
    tail = b"," + encode(after)[1:] if after else b"}"
    return b"".join([head, b'"input":[', b",".join(items), b"]", tail])


def _is_true(value: object) -> bool:
    return value is True or (isinstance(value, msgspec.Raw) and bytes(value) == b"true")


def wants_encrypted_reasoning(model: str, *, effort: str | None) -> bool:
    return effort not in (None, "none") or not model.startswith(MODELS_WITHOUT_REASONING)


def _tool_encoder(profile: Profile) -> Callable[[ToolSpec], dict[str, object]]:
    def encode_tool(tool: ToolSpec) -> dict[str, object]:
        own = own_fields(tool.opaque)
        if "type" in own:
            return {**own}
        described = {"description": tool.description} if tool.description else {}
        if tool.free_form:
            return {"type": "custom", "name": tool.name, **described, **own}
        strict = {"strict": tool.strict} if profile.strict_tools else {}  # the API's own default is true
        parameters = msgspec.Raw(tool.parameters)
        return {"type": "function", "name": tool.name, **described, "parameters": parameters, **strict, **own}

    return encode_tool


def _changing_fields(request: Request, profile: Profile) -> Iterator[tuple[str, object]]:
    settings = request.settings
    if request.tools:
        choice = _encode_tool_choice(request.tool_choice, request.tools)
        if choice != "auto":
            yield "tool_choice", choice
        if request.parallel_tool_calls is not None and profile.sends_parallel_tool_calls:
            yield "parallel_tool_calls", request.parallel_tool_calls
    limit = settings.max_output_tokens or profile.default_max_tokens
    if limit is not None:
        yield "max_output_tokens", limit
    if settings.temperature is not None:
        yield "temperature", settings.temperature
    if settings.top_p is not None:
        yield "top_p", settings.top_p
    if settings.reasoning_effort is not None:
        yield "reasoning", {"effort": settings.reasoning_effort}
    if request.output is not None and profile.output != "none":
        yield "text", {"format": _output_format(request.output, profile)}
    if request.stream:
        yield "stream", True


def _encode_tool_choice(choice: ToolChoice, tools: Sequence[ToolSpec]) -> object:
    if isinstance(choice, NamedTool):
        free_form = any(tool.free_form for tool in tools if tool.name == choice.name)
        return {"type": "custom" if free_form else "function", "name": choice.name}
    return choice


def _output_format(output: OutputSchema, profile: Profile) -> dict[str, object]:
    if profile.output == "json_object":
        return {"type": "json_object"}
    schema = msgspec.Raw(output.schema)
    return {"type": "json_schema", "name": output.name, "schema": schema, "strict": output.strict}


def encode_message(message: Message, *, profile: Profile, keeps_bare_reasoning: bool = False) -> list[bytes]:
    """The input items of one message; they depend on no other message."""
    if message.role == "assistant":
        return [encode(item) for item in _assistant_items(message.parts, keeps_bare_reasoning=keeps_bare_reasoning)]
    role = profile.system_role if message.role == "system" else "user"
    return [encode(item) for item in _client_items(message.parts, role=role, profile=profile)]


def _client_items(parts: Sequence[Part], *, role: str, profile: Profile) -> Iterator[dict[str, object]]:
    """Neighbouring texts and files are one message; results and items of our own family stand for themselves."""
    for is_content, run in groupby(parts, key=lambda part: isinstance(part, Text | File | Refusal)):
        if is_content:
            content = [_allowed(part, profile) for part in run if isinstance(part, Text | File | Refusal)]
            yield message_item(content, role=role)
            continue
        for part in run:
            match part:
                case ToolResult():
                    files = tuple([_allowed_in_result(piece, profile) for piece in part.content])
                    yield result_item(msgspec.structs.replace(part, content=files))
                case ProviderItem(family=family, json=json) if family == FAMILY_NAME:
                    yield {**fields_of(json)}
                case _:
                    pass


def _allowed_in_result(part: Text | File, profile: Profile) -> Text | File:
    allowed = _allowed(part, profile)
    return allowed if isinstance(allowed, Text | File) else part


def _allowed(part: Text | File | Refusal, profile: Profile) -> Text | File | Refusal:
    if not isinstance(part, File) or profile.files == "all":
        return part
    if profile.files == "images" and part.media_type.startswith("image/"):
        return part
    return Text(NO_FILES.format(part.name or part.media_type))


def _assistant_items(parts: Sequence[Part], *, keeps_bare_reasoning: bool) -> Iterator[dict[str, object]]:
    for run in text_runs(parts):
        match run:
            case [Text() | Refusal(), *_]:
                yield message_item([part for part in run if isinstance(part, Text | Refusal)], role="assistant")
            case [Reasoning() as part]:
                own = own_fields(part.opaque)
                if own and (keeps_bare_reasoning or text_at(own, "encrypted_content") or "content" in own):
                    yield reasoning_item(part)
            case [ToolCall() as call]:
                whole = call.free_form or call.state == ArgumentsState.COMPLETE
                yield call_item(call, arguments=call.arguments if whole else "{}")
            case [ProviderItem(family=family, json=json)] if family == FAMILY_NAME:
                yield {**fields_of(json)}
            case _:
                pass


def text_runs(parts: Sequence[Part]) -> Iterator[list[Part]]:
    """Each part alone, but the texts and refusals that came in one message item together."""
    run: list[Part] = []
    header: Fields = {}
    for part in parts:
        own = header_of(part) if isinstance(part, Text | Refusal) else {}
        if run and own and encode(own) == encode(header):
            run.append(part)
            continue
        if run:
            yield run
        run, header = [part], own
    if run:
        yield run


# ---- body -> Request


def decode_request(body: bytes, path: str) -> Request:
    """`path` names nothing that the body does not. Raises BadRequest with what is wrong and where."""
    try:
        body.decode()
        return _decode(fields_of(msgspec.json.format(body, indent=-1)))  # whitespace of a client's own means nothing
    except UNREADABLE as error:
        raise BadRequest(f"the body cannot be read as a request of the Responses API: {error}") from error


_SENTINEL_FREE = ("input", "prompt", "previous_response_id", "conversation")


def _decode(fields: Fields) -> Request:
    model = text_at(fields, "model")
    if model is None and "prompt" not in fields:
        raise BadRequest("`model` is missing: name the model as a string")
    if not any(_is_given(fields, key) for key in _SENTINEL_FREE):
        raise BadRequest("`input` is missing: give it as a string or a list of items")
    rest = dict(fields)
    for key in ("model", "instructions", "input", "tools", "stream"):
        rest.pop(key, None)
    instructions = text_at(fields, "instructions")
    if instructions is None and _is_given(fields, "instructions"):
        rest["instructions"] = fields["instructions"]
    leading, messages = _decode_input(fields.get("input"), has_instructions=instructions is not None)
    system = (() if instructions is None else (Text(instructions),)) + leading
    tools = tuple([_decode_tool(raw, f"tools[{i}]") for i, raw in enumerate(list_at(fields, "tools"))])
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
        extra=opaque_of({key: rest[key] for key in sorted(rest)}),
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
        _add_item(conversation, fields_of(item_raw), f"input[{i}]", names=names, has_instructions=has_instructions)
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
            case (ToolCall(name=name, arguments=arguments, free_form=free_form) as call,):
                for key in ("call_id", "name", "input" if free_form else "arguments"):
                    if not _is_given(item, key):
                        raise BadRequest(f"`{where}.{key}` is missing")
                names[call.id] = name
                if not arguments and not free_form:
                    parts = (msgspec.structs.replace(call, arguments="{}"),)
            case _:
                pass
        conversation.add("assistant", parts)


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
    opens = role == "system" and not conversation.messages and not conversation._parts  # pyright: ignore
    if not opens:
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


def _decode_tool(raw: msgspec.Raw, where: str) -> ToolSpec:
    if not is_object(raw):
        raise BadRequest(f"`{where}` must be an object")
    fields = fields_of(raw)
    kind = text_at(fields, "type")
    name = text_at(fields, "name")
    if kind is None:
        raise BadRequest(f"`{where}.type` is missing")
    if kind not in ("function", "custom"):
        return ToolSpec(name=name or kind, opaque=Opaque(FAMILY_NAME, json_text(raw)))
    if name is None:
        raise BadRequest(f"`{where}.name` is missing")
    description = text_at(fields, "description") or ""
    if kind == "custom":
        rest = without(fields, ("type", "name", "description"))
        return ToolSpec(name=name, description=description, free_form=True, opaque=opaque_of(rest))
    rest = without(fields, ("type", "name", "description", "parameters", "strict"))
    strict = bytes(fields.get("strict", msgspec.Raw(b"null")))
    if strict not in (b"true", b"false"):
        rest["strict"] = msgspec.Raw(b"null")  # left to the API, which then decides by the schema
    if not is_object(fields.get("parameters", msgspec.Raw(b"null"))):
        rest["parameters"] = msgspec.Raw(b"null")
        return ToolSpec(name=name, description=description, strict=strict == b"true", opaque=opaque_of(rest))
    parameters = json_text(fields["parameters"])
    return ToolSpec(
        name=name, description=description, parameters=parameters, strict=strict == b"true", opaque=opaque_of(rest)
    )


Effort = Literal["none", "minimal", "low", "medium", "high", "xhigh"]


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
    schema = json_text(form["schema"])
    further = without(form, ("type", "name", "schema", "strict"))
    others = without(text, ("format",))
    if further:
        others["format"] = text["format"]
    _put_back(rest, "text", others)
    return OutputSchema(schema=schema, name=name, strict=strict)


__all__ = ["LOSSES", "count_at", "decode_request", "encode_message", "encode_request"]
