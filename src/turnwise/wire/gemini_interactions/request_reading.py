"""What clients send: a body of `POST /interactions` -> `Request`. The other direction, and the opaque keys, are in request.py."""

from collections.abc import Mapping
from itertools import groupby

import msgspec

from turnwise.vocab import (
    ArgumentsState,
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
    ToolSpec,
)
from turnwise.wire.family import BadRequest
from turnwise.wire.gemini_interactions.parts import NAME, TOLD, content_of, items_at, opaque_from, parts_of, result_of
from turnwise.wire.gemini_interactions.request import JSON_TYPE, LEVELS, MERGED, asks_for_thoughts
from turnwise.wire.json_fields import (
    UNREADABLE,
    Fields,
    encode,
    first_byte,
    is_null,
    is_object,
    object_at,
    opaque_of,
    read_fields,
    string_of,
    text_of_raw,
    write_array,
    write_object,
)

_CONTENTS = ("text", "image", "audio", "video", "document")
_Read = list[tuple[Role, bool, tuple[Part, ...]]]
"""What was read in order: whose it is, whether it is a message alone, and its parts."""


def decode_request(body: bytes, path: str) -> Request:
    """`path` names nothing that the body does not. Raises BadRequest with what is wrong and where."""
    try:
        body.decode()
        return _decode(read_fields(msgspec.json.format(body, indent=-1)))
    except UNREADABLE as error:
        raise BadRequest(f"the body cannot be read as a request of the Interactions API: {error}") from error


def _decode(fields: Fields) -> Request:
    rest = {key: raw for key, raw in fields.items() if not is_null(raw)}
    model = string_of(rest, "model")
    if model is None:
        if "agent" in rest:
            raise BadRequest("`agent` is not served: an agent runs at its provider alone; name a `model`")
        raise BadRequest("`model` is missing: name the model as a string")
    if "input" not in rest:
        raise BadRequest("`input` is missing: give it as a string, or a list of steps")
    messages = _messages(rest.pop("input"))
    system = string_of(rest, "system_instruction")
    if system is not None:
        del rest["system_instruction"]
    tools = tuple([decode_tool(raw, f"tools[{at}]") for at, raw in enumerate(items_at(rest, "tools"))])
    generation = object_at(rest, MERGED)
    choice = _take_choice(generation, has_tools=bool(tools))
    settings = _take_settings(generation)
    for key in ("model", "tools", "stream", MERGED):
        rest.pop(key, None)
    if generation:
        rest[MERGED] = msgspec.Raw(encode(dict(sorted(generation.items()))))
    if bytes(rest.get("store", b"true")) == b"false":
        del rest["store"]
    else:  # the API stores unasked
        rest["store"] = msgspec.Raw(b"true")
    return Request(
        model=model,
        messages=messages,
        system=() if not system else (Text(system),),
        tools=tools,
        tool_choice=choice,
        output=_take_output(rest),
        settings=settings,
        stream=bytes(fields.get("stream", b"")) == b"true",
        extra=opaque_of({key: rest[key] for key in sorted(rest)}, family=NAME),
    )


# --- input


def _messages(raw: msgspec.Raw) -> tuple[Message, ...]:
    """A text, a content, contents, or steps."""
    whole = {"input": raw}
    if (said := string_of(whole, "input")) is not None:
        return (Message("user", (Text(said),)),) if said else ()
    items = [raw] if is_object(raw) else items_at(whole, "input")
    if first_byte(raw) not in (b"{", b"["):
        raise BadRequest("`input` must be a string, or a list of steps")
    names: dict[str, str] = {}
    read: _Read = []
    for at, item in enumerate(items):
        where = f"input[{at}]"
        if not is_object(item):
            raise BadRequest(f"`{where}` must be an object")
        fields = read_fields(item)
        kind = string_of(fields, "type")
        if kind is None:
            raise BadRequest(f"`{where}.type` is missing")
        read += _step(fields, kind, where, names=names)
    found: list[Message] = []
    for (role, _), run in groupby(_numbered(read), key=lambda one: one[:2]):
        if parts := tuple([part for _, _, some in run for part in some]):
            found.append(Message(role, parts))
    return tuple(found)


def _numbered(read: _Read) -> list[tuple[Role, int, tuple[Part, ...]]]:
    """Steps of the model, results, and bare contents that follow each other are one message; a `user_input` is one alone."""
    number, found = 0, list[tuple[Role, int, tuple[Part, ...]]]()
    for role, is_alone, parts in read:
        number += is_alone
        found.append((role, number, parts))
        number += is_alone
    return found


def _step(fields: Fields, kind: str, where: str, *, names: dict[str, str]) -> _Read:
    if kind in _CONTENTS:
        return [("user", False, (content_of(fields),))]
    if kind in TOLD and string_of(fields, "content") is not None:
        fields = {
            **fields,
            "content": msgspec.Raw(write_array([b'{"type":"text","text":%b}' % bytes(fields["content"])])),
        }
    if kind == "user_input":
        return _input(fields, where, names=names)
    if kind == "function_result":
        return [("tool", False, (_result(fields, where, names=names),))]
    if kind == "function_call":
        for key in ("id", "name"):
            if not string_of(fields, key):
                raise BadRequest(f"`{where}.{key}` is missing")
    parts = parts_of(fields)
    for part in parts:
        if isinstance(part, ToolCall):
            names[part.id] = part.name
    return [("assistant", False, tuple([_checked(part) for part in parts]))]


def _input(fields: Fields, where: str, *, names: dict[str, str]) -> _Read:
    """What a person says; some clients put results of calls among it."""
    said: list[Part] = []
    results: list[Part] = []
    for at, raw in enumerate(items_at(fields, "content")):
        if not is_object(raw):
            raise BadRequest(f"`{where}.content[{at}]` must be an object")
        content = read_fields(raw)
        if string_of(content, "type") == "function_result":
            results.append(_result(content, f"{where}.content[{at}]", names=names))
        else:
            said.append(content_of(content))
    told: _Read = [("tool", False, tuple(results))] if results else []
    return [*told, ("user", True, tuple(said))] if said else told


def _checked(part: Part) -> Part:
    if isinstance(part, ToolCall) and part.arguments.lstrip()[:1] != "{":
        return msgspec.structs.replace(part, state=ArgumentsState.INVALID, reason="the arguments are no object")
    return part


def _result(fields: Fields, where: str, *, names: Mapping[str, str]) -> Part:
    id = string_of(fields, "call_id")
    if id is None:
        raise BadRequest(f"`{where}.call_id` is missing: name the call that the result answers")
    return result_of(fields, name=names.get(id, ""))


# --- tools and settings


def decode_tool(raw: msgspec.Raw, where: str) -> ToolSpec:
    if not is_object(raw):
        raise BadRequest(f"`{where}` must be an object")
    fields = read_fields(raw)
    kind, name = string_of(fields, "type"), string_of(fields, "name")
    if kind is None:
        raise BadRequest(f"`{where}.type` is missing")
    if kind != "function":
        return ToolSpec(name=name or kind, opaque=opaque_of(fields, family=NAME))
    if not name:
        raise BadRequest(f"`{where}.name` is missing")
    given = fields.get("parameters")
    has_schema = given is not None and is_object(given)
    known = ["type", "name", "description"] + (["parameters"] if has_schema else [])
    parameters = text_of_raw(given) if given is not None and has_schema else ToolSpec(name="").parameters
    return ToolSpec(
        name=name,
        description=string_of(fields, "description") or "",
        parameters=parameters,
        opaque=opaque_from(fields, known),
    )


_TAKEN = {"stop_sequences": "stop", "thinking_level": "reasoning_effort"}
"""What the vocabulary calls otherwise; the rest of its settings have the API's own names."""


def _take_settings(generation: Fields) -> Settings:
    """Takes what it reads out of `generation`; a level that came later than this code stays there."""
    known = ("max_output_tokens", "temperature", "top_p", "seed", "stop_sequences")
    if string_of(generation, "thinking_level") in LEVELS.values():
        known = (*known, "thinking_level")
    taken = {_TAKEN.get(key, key): generation.pop(key) for key in known if key in generation}
    settings = msgspec.json.decode(write_object(taken), type=Settings)
    shown = string_of(generation, "thinking_summaries")
    if asks_for_thoughts(settings) and shown is None:
        generation["thinking_summaries"] = msgspec.Raw(b'"none"')
    elif asks_for_thoughts(settings) == (shown == "auto"):
        generation.pop("thinking_summaries", None)
    return settings


def _take_choice(generation: Fields, *, has_tools: bool) -> ToolChoice:
    """Choices without a word of ours stay where they are."""
    if not has_tools:
        return "auto"
    words: Mapping[str, ToolChoice] = {"auto": "auto", "any": "required", "none": "none"}
    if (word := words.get(string_of(generation, "tool_choice") or "")) is not None:
        del generation["tool_choice"]
        return word
    choice = object_at(generation, "tool_choice")
    allowed = object_at(choice, "allowed_tools")
    tools = items_at(allowed, "tools")
    if string_of(allowed, "mode") == "any" and len(tools) == 1:
        del generation["tool_choice"]
        return NamedTool(msgspec.json.decode(tools[0], type=str))
    return "auto"


def _take_output(rest: Fields) -> OutputSchema | None:
    """JSON by a schema; other formats stay in `rest`."""
    form = object_at(rest, "response_format")
    schema = form.get("schema")
    is_json = string_of(form, "type") == "text" and string_of(form, "mime_type") == JSON_TYPE and len(form) == 3
    if not is_json or schema is None or not is_object(schema):
        return None
    del rest["response_format"]
    return OutputSchema(schema=text_of_raw(schema))
