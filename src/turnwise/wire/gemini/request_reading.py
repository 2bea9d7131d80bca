"""The body and path of a `generateContent` call -> `Request`. What has no word of ours is kept in `extra`."""

import re
import urllib.parse
from collections import deque
from collections.abc import Callable
from typing import TypeVar, cast

import msgspec

from turnwise.vocab import (
    File,
    Message,
    NamedTool,
    Opaque,
    OutputSchema,
    Part,
    Reasoning,
    Request,
    Settings,
    Text,
    ToolCall,
    ToolChoice,
    ToolResult,
    ToolSpec,
)
from turnwise.wire.family import BadRequest
from turnwise.wire.gemini.parts import (
    NAME,
    NO_SIGNATURE,
    SIGNATURE,
    camel,
    is_false,
    opaque_from,
    read_fields,
    read_float,
    read_int,
    read_item,
    read_result,
    read_strings,
)
from turnwise.wire.gemini.request import DECLARATION, EFFORT_LEVELS, JSON_TYPE, asks_for_thoughts
from turnwise.wire.json_fields import (
    UNREADABLE,
    Fields,
    quote,
    read_items,
    read_string,
    string_of,
    text_of_raw,
    write_object,
)

# Gemini's own schema language (a part of OpenAPI 3.0, types in capitals) -> JSON Schema.
#
# We send JSON Schema (`parametersJsonSchema`, `responseJsonSchema`); clients may send either. Source: API reference, `Schema`.
Json = None | bool | int | float | str | list["Json"] | dict[str, "Json"]

_TYPES = ("STRING", "NUMBER", "INTEGER", "BOOLEAN", "ARRAY", "OBJECT", "NULL")
"""In the order of the enum, whose numbers ProtoJSON takes too: from 1 on."""
# 64-bit integers, which ProtoJSON writes as strings.
_COUNTS = {"minItems", "maxItems", "minLength", "maxLength", "minProperties", "maxProperties"}
_ONE = {"items", "additionalProperties"}
_MANY = {"anyOf", "oneOf", "allOf", "prefixItems"}
_NAMED = {"properties", "$defs", "defs", "definitions"}


def to_json_schema(schema: bytes | msgspec.Raw) -> str:
    """The schema as JSON Schema text; one that is JSON Schema already stays as it is. Raises one of fields.UNREADABLE."""
    before = cast(Json, msgspec.json.decode(schema))
    after = _convert(before)
    return text_of_raw(schema) if after == before else msgspec.json.encode(after).decode()


def _convert(schema: Json) -> Json:
    if not isinstance(schema, dict):
        return schema
    found: dict[str, Json] = {}
    for given, value in schema.items():
        key = camel(given)
        if key in _NAMED and isinstance(value, dict):
            found[key] = {name: _convert(below) for name, below in value.items()}
        elif key in _MANY and isinstance(value, list):
            found[key] = [_convert(below) for below in value]
        elif key in _ONE:
            found[key] = _convert(value)
        elif key in _COUNTS and isinstance(value, str) and value.isdecimal():
            found[key] = int(value)
        elif key == "type" and isinstance(value, str) and value in _TYPES:
            found[key] = value.lower()
        elif key == "type" and type(value) is int and 0 < value <= len(_TYPES):
            found[key] = _TYPES[value - 1].lower()
        elif key not in ("nullable", "propertyOrdering") and value != "TYPE_UNSPECIFIED":
            found[key] = value
    return _nullable(found) if schema.get("nullable") is True else found


def _nullable(schema: dict[str, Json]) -> dict[str, Json]:
    """OpenAPI's `nullable` in JSON Schema's words."""
    kind = schema.get("type")
    if isinstance(kind, str):
        nullable: dict[str, Json] = {**schema, "type": [kind, "null"]}
        values = schema.get("enum")
        if isinstance(values, list) and None not in values:
            nullable["enum"] = [*values, None]
        return nullable
    options = schema.get("anyOf")
    if isinstance(options, list):
        return {**schema, "anyOf": [*options, {"type": "null"}]}
    return schema


T = TypeVar("T")

# `/v1beta/models/NAME:streamGenerateContent?alt=sse`, with whatever stands before it (Vertex: project and location)
_PATH = re.compile(r"(?:^|/)(models|tunedModels|endpoints)/([^/:?]+):(generateContent|streamGenerateContent)(?:\?|$)")

_MODES = {"1": "AUTO", "2": "ANY", "3": "NONE"}  # the enum's numbers
_EFFORTS = {level: effort for effort, level in EFFORT_LEVELS.items()}


def decode_request(body: bytes, path: str) -> Request:
    """Raises BadRequest with what is wrong and where."""
    found = _PATH.search(path)
    if found is None:
        raise BadRequest(f"the path `{path[:200]}` is not `/models/MODEL:generateContent` or `:streamGenerateContent`")
    if not body.isascii():
        _read(text_of_raw, body, where="the body")  # the decoders leave raw fields unchecked
    kind, name, verb = found.groups()
    model = urllib.parse.unquote(name)
    fields = _read(read_fields, body, where="the body")
    system = _take_system(fields)
    tools = _take_tools(fields)
    choice = _take_choice(fields, declares=any(_is_declared(tool) for tool in tools))
    settings, output = _take_generation(fields)
    if "contents" not in fields:
        raise BadRequest("`contents` is missing")
    messages = _Contents(_read(read_items, fields.pop("contents"), where="`contents`")).messages
    extra = Opaque(NAME, _sorted(fields).decode()) if fields else None
    return Request(
        model=f"{kind}/{model}" if kind == "tunedModels" else model,
        messages=tuple(messages),
        system=system,
        tools=tools,
        tool_choice=choice,
        output=output,
        settings=settings,
        stream=verb == "streamGenerateContent",
        extra=extra,
    )


def _read(read: Callable[[bytes | msgspec.Raw], T], value: bytes | msgspec.Raw, *, where: str) -> T:
    try:
        return read(value)
    except UNREADABLE as error:
        raise BadRequest(f"{where} cannot be read: {error}") from None


def _take(read: Callable[[bytes | msgspec.Raw], T], fields: Fields, key: str, *, where: str) -> T | None:
    """Take a field out of `fields`; None where it is not there."""
    return _read(read, fields.pop(key), where=f"`{where}.{key}`") if key in fields else None


def _sorted(fields: Fields) -> bytes:
    """Equal requests have equal `extra`, whatever the order of their fields."""
    return write_object(dict(sorted(fields.items())))


def _take_system(fields: Fields) -> tuple[Text, ...]:
    """Texts alone; a system instruction with other parts stays in `extra`."""
    raw = fields.get("systemInstruction")
    if raw is None:
        return ()
    where = "`systemInstruction`"
    content = _read(read_fields, raw, where=where)
    found: list[Text] = []
    for item in _read(read_items, content.get("parts", msgspec.Raw(b"[]")), where=where):
        part = _read(read_fields, item, where=where)
        text = string_of(part, "text")
        if text is None:
            return ()
        opaque = opaque_from(_without_false_thought(part), known=frozenset({"text"}))
        if text or opaque:
            found.append(Text(text, opaque=opaque))
    del fields["systemInstruction"]
    return tuple(found)


def _without_false_thought(part: Fields) -> Fields:
    return {key: value for key, value in part.items() if key != "thought" or not is_false(value)}


def _take_tools(fields: Fields) -> tuple[ToolSpec, ...]:
    found: list[ToolSpec] = []
    for i, item in enumerate(_take(read_items, fields, "tools", where="body") or ()):
        where = f"`tools[{i}]`"
        for key, value in _read(read_fields, item, where=where).items():
            if key == "functionDeclarations":
                found += [_declared(declaration, where=where) for declaration in _read(read_items, value, where=where)]
            else:
                found.append(ToolSpec(name=key, opaque=Opaque(NAME, write_object({key: value}).decode())))
    return tuple(found)


def _is_declared(tool: ToolSpec) -> bool:
    return tool.opaque is None or tool.opaque.json.startswith(f'{{"{DECLARATION}":')


def _declared(raw: msgspec.Raw, *, where: str) -> ToolSpec:
    fields = _read(read_fields, raw, where=where)
    name = _take(read_string, fields, "name", where=where)
    if name is None:
        raise BadRequest(f"{where}: a function declaration has no `name`")
    parameters = ToolSpec(name="").parameters
    if "parametersJsonSchema" in fields:
        parameters = text_of_raw(fields.pop("parametersJsonSchema"))
    elif "parameters" in fields:
        parameters = _read(to_json_schema, fields.pop("parameters"), where=f"{where}, parameters of `{name}`")
    description = _take(read_string, fields, "description", where=where) or ""
    opaque = Opaque(NAME, write_object({DECLARATION: write_object(fields)}).decode()) if fields else None
    return ToolSpec(name=name, description=description, parameters=parameters, opaque=opaque)


def _take_choice(fields: Fields, *, declares: bool) -> ToolChoice:
    """`toolConfig` as a choice of ours; what is more than that stays in `extra`, which is merged over it again."""
    raw = fields.get("toolConfig")
    if raw is None or not declares:
        return "auto"
    config = _read(read_fields, raw, where="`toolConfig`")
    calling = _take(read_fields, config, "functionCallingConfig", where="toolConfig") or {}
    mode_text = text_of_raw(calling.pop("mode", msgspec.Raw(b"AUTO"))).strip('"').upper()
    mode = _MODES.get(mode_text, mode_text)
    where = "toolConfig.functionCallingConfig"
    names = _take(read_strings, calling, "allowedFunctionNames", where=where) or []
    choice: ToolChoice = "auto"
    match mode:
        case "NONE":
            choice = "none"
        case "ANY" if len(names) == 1:
            choice, names = NamedTool(names[0]), []
        case "ANY":
            choice = "required"
        case "AUTO" | "MODE_UNSPECIFIED":
            pass
        case _:
            calling["mode"] = msgspec.Raw(quote(mode))
    if names:
        calling["allowedFunctionNames"] = msgspec.Raw(msgspec.json.encode(names))
    if calling:
        config["functionCallingConfig"] = msgspec.Raw(_sorted(calling))
    _keep_rest(fields, "toolConfig", config)
    return choice


def _keep_rest(fields: Fields, key: str, rest: Fields) -> None:
    if rest:
        fields[key] = msgspec.Raw(_sorted(rest))
    else:
        fields.pop(key, None)


def _take_generation(fields: Fields) -> tuple[Settings, OutputSchema | None]:
    where = "generationConfig"
    config = _read(read_fields, fields.get(where, msgspec.Raw(b"{}")), where="`generationConfig`")
    thinking = _take(read_fields, config, "thinkingConfig", where=where) or {}
    settings = Settings(
        max_output_tokens=_take(read_int, config, "maxOutputTokens", where=where),
        temperature=_take(read_float, config, "temperature", where=where),
        top_p=_take(read_float, config, "topP", where=where),
        stop=tuple(_take(read_strings, config, "stopSequences", where=where) or ()),
        seed=_take(read_int, config, "seed", where=where),
    )
    settings = _take_thinking(settings, thinking)
    output = _take_output(config)
    if thinking:
        config["thinkingConfig"] = msgspec.Raw(_sorted(thinking))
    _keep_rest(fields, where, config)
    return settings, output


def _take_thinking(settings: Settings, thinking: Fields) -> Settings:
    where = "generationConfig.thinkingConfig"
    budget = _read(read_int, thinking["thinkingBudget"], where=where) if "thinkingBudget" in thinking else None
    level = (string_of(thinking, "thinkingLevel") or "").upper()
    if budget is not None and budget >= 0:
        del thinking["thinkingBudget"]
        settings = (
            msgspec.structs.replace(settings, reasoning_tokens=budget)
            if budget
            else msgspec.structs.replace(settings, reasoning_effort="none")
        )
    elif level in _EFFORTS:
        del thinking["thinkingLevel"]
        settings = msgspec.structs.replace(settings, reasoning_effort=_EFFORTS[level])
    includes = bytes(thinking.pop("includeThoughts", b"false")) == b"true"
    if includes != asks_for_thoughts(settings):
        thinking["includeThoughts"] = msgspec.Raw(b"true" if includes else b"false")
    return settings


def _take_output(config: Fields) -> OutputSchema | None:
    """JSON by a schema; JSON without one, and other types, stay in `extra`."""
    if string_of(config, "responseMimeType") != JSON_TYPE:
        return None
    if "responseJsonSchema" in config:
        schema = text_of_raw(config.pop("responseJsonSchema"))
    elif "responseSchema" in config:
        schema = _read(to_json_schema, config.pop("responseSchema"), where="`generationConfig.responseSchema`")
    else:
        return None
    del config["responseMimeType"]
    return OutputSchema(schema=schema)


class _Contents:
    """The contents as messages. Calls without an id get one by their number in the conversation; results without one
    take the oldest unanswered call of that name."""

    def __init__(self, contents: list[msgspec.Raw]) -> None:
        self.messages: list[Message] = []
        self._calls = 0
        self._taken: set[str] = set()
        self._open: dict[str, deque[str]] = {}  # tool name -> ids of its calls that have no result yet
        read: list[tuple[str, list[tuple[Fields, str]]]] = []
        for i, raw in enumerate(contents):
            read.append(self._read_content(raw, where=f"contents[{i}]"))
        for role, parts in read:
            self._add(role, parts)

    def _read_content(self, raw: msgspec.Raw, *, where: str) -> tuple[str, list[tuple[Fields, str]]]:
        content = _read(read_fields, raw, where=f"`{where}`")
        role = _take(read_string, content, "role", where=where) or "user"
        if role not in ("user", "model", "function"):
            raise BadRequest(f"`{where}.role` is `{role[:40]}`: use `user` or `model`")
        parts: list[tuple[Fields, str]] = []
        for i, item in enumerate(_take(read_items, content, "parts", where=where) or ()):
            spot = f"{where}.parts[{i}]"
            part = _without_false_thought(_read(read_fields, item, where=f"`{spot}`"))
            for key in ("functionCall", "functionResponse"):
                if key in part:
                    id = string_of(_read(read_fields, part[key], where=f"`{spot}.{key}`"), "id")
                    self._taken |= {id} if id else set()
            parts.append((part, spot))
        return role, parts

    def _add(self, role: str, parts: list[tuple[Fields, str]]) -> None:
        """One content may be two messages: results first, then what the user says."""
        results: list[Part] = []
        others: list[Part] = []
        for part, spot in parts:
            if "functionResponse" in part and role != "model":
                results.append(self._result(part, spot))
            elif (read := self._part(part, spot, role=role)) is not None:
                others.append(read)
        if results:
            self.messages.append(Message("tool", tuple(results)))
        if others:
            self.messages.append(Message("assistant" if role == "model" else "user", tuple(others)))

    def _part(self, part: Fields, where: str, *, role: str) -> Part | None:
        if "functionCall" in part:
            return self._call(part, where)
        if "text" in part:
            text = _read(read_string, part["text"], where=f"`{where}.text`")
            is_thought = "thought" in part and role == "model"
            opaque = opaque_from(part, known=frozenset({"text", "thought"} if is_thought else {"text"}))
            if not text and opaque is None:
                return None
            return Reasoning(text, opaque) if is_thought else Text(text, opaque=opaque)
        if not part:
            return None
        return read_item(write_object(part), part)

    def _call(self, part: Fields, where: str) -> ToolCall:
        fields = _read(read_fields, part["functionCall"], where=f"`{where}.functionCall`")
        name = string_of(fields, "name")
        if not name:
            raise BadRequest(f"`{where}.functionCall` has no `name`")
        self._calls += 1
        id = string_of(fields, "id") or self._free_id()
        self._open.setdefault(name, deque()).append(id)
        arguments = text_of_raw(fields.get("args", msgspec.Raw(b"{}")))
        return ToolCall(id=id, name=name, arguments=arguments, opaque=opaque_from(part, known=_known_of_call(part)))

    def _result(self, part: Fields, where: str) -> ToolResult:
        where = f"{where}.functionResponse"
        fields = _read(read_fields, part["functionResponse"], where=f"`{where}`")
        name = string_of(fields, "name")
        if not name:
            raise BadRequest(f"`{where}` has no `name`")
        waiting = self._open.get(name, deque())
        id = string_of(fields, "id")
        if id is not None and id in waiting:
            waiting.remove(id)
        elif id is None:
            id = waiting.popleft() if waiting else self._free_id()
        response = bytes(fields.get("response", msgspec.Raw(b"{}")))
        text, is_error = read_result(response)
        content: list[Text | File] = [] if response == b"{}" else [Text(text)]
        files = [
            read_item(item, _read(read_fields, item, where=f"`{where}.parts`")) for item in self._files(fields, where)
        ]
        known = {"id", "name", "response"}
        if all(isinstance(file, File) for file in files):
            content += [file for file in files if isinstance(file, File)]
            known.add("parts")
        return ToolResult(
            call_id=id,
            name=name,
            content=tuple(content),
            is_error=is_error,
            opaque=opaque_from(fields, known=frozenset(known)),
        )

    def _files(self, fields: Fields, where: str) -> list[msgspec.Raw]:
        return _read(read_items, fields["parts"], where=f"`{where}.parts`") if "parts" in fields else []

    def _free_id(self) -> str:
        number = self._calls - 1
        while f"call_{number}" in self._taken:
            number += 1
        self._taken.add(f"call_{number}")
        return f"call_{number}"


def _known_of_call(part: Fields) -> frozenset[str]:
    """The stand-in for a signature is not a signature; it is written again if it is needed."""
    is_stand_in = string_of(part, SIGNATURE) == NO_SIGNATURE
    return frozenset({"functionCall", SIGNATURE} if is_stand_in else {"functionCall"})
