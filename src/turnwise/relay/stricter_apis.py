"""What an API insists on where another family's is content with less, so that a request that was right stays right."""

import hashlib
from collections.abc import Mapping
from typing import cast

import msgspec
from msgspec.structs import replace

from turnwise.relay.terms import not_carried
from turnwise.vocab import Message, OutputSchema, Part, Repair, Request, Settings, Text, ToolCall, ToolResult, ToolSpec
from turnwise.wire.json_fields import UNREADABLE, read_fields, write_object
from turnwise.wire.profiles import FamilyName
from turnwise.wire.relay_facts import RelayFacts, relay_facts

OBJECT = msgspec.Raw(b'"object"')


def fit_settings(settings: Settings, *, names: Mapping[str, str], target: FamilyName) -> tuple[Settings, list[Repair]]:
    """Within what the target takes; `names` are the client's."""
    facts = relay_facts(target)
    title, warmest = facts.title, facts.most_temperature
    told: list[Repair] = []
    if settings.temperature is not None and settings.temperature > warmest:
        settings = replace(settings, temperature=warmest)
        told.append(not_carried(names["temperature"], because=f"{title} takes {warmest:g} at the most"))
    least = facts.least_output_tokens
    if settings.max_output_tokens is not None and settings.max_output_tokens < least:
        settings = replace(settings, max_output_tokens=least)
        told.append(not_carried(names["limit"], because=f"{title} takes {least} at the least"))
    least = facts.least_reasoning_tokens
    if settings.reasoning_tokens is not None and 0 < settings.reasoning_tokens < least:
        settings = replace(settings, reasoning_tokens=least)
        told.append(not_carried(names["reasoning"], because=f"{title} takes a budget of {least} at the least"))
    return settings, told


def fit_tool(tool: ToolSpec, *, source: RelayFacts, target: RelayFacts) -> tuple[ToolSpec, bool]:
    """The tool with parameters that the target takes, and whether it lost its strictness by that. Gemini alone takes a schema
    without a type; OpenAI refuses a strict tool whose schema leaves anything open."""
    parameters = tool.parameters
    if source.untyped_schemas:
        parameters = with_object_type(parameters)
        tool = tool if parameters is tool.parameters else replace(tool, parameters=parameters)
    if tool.strict and target.strict_is_closed and not is_strict(parameters):
        return replace(tool, strict=False), True
    return tool, False


def fit_output(
    output: OutputSchema | None, *, field: str, target: FamilyName
) -> tuple[OutputSchema | None, list[Repair]]:
    """The schema without strictness where OpenAI would refuse it: it leaves something open that strict mode wants closed."""
    if output is None or not output.strict or not relay_facts(target).strict_is_closed or is_strict(output.schema):
        return output, []
    because = "strict mode wants each property required and no others allowed; the schema goes without it"
    return replace(output, strict=False), [not_carried(field, because=because)]


def with_object_type(schema: str) -> str:
    """The schema of a tool's parameters with the type that it has to have."""
    try:
        fields = read_fields(schema)
    except UNREADABLE:
        return schema
    if "type" in fields or "$ref" in fields:
        return schema
    return write_object({"type": OBJECT, **fields}).decode()


def is_strict(schema: str) -> bool:
    """Whether OpenAI's strict mode takes it (OpenAI docs, "Structured outputs", supported schemas)."""
    try:
        return _is_closed(msgspec.json.decode(schema))
    except UNREADABLE:
        return False


def _is_closed(schema: object) -> bool:
    if isinstance(schema, list):
        return all(_is_closed(one) for one in cast("list[object]", schema))
    if not isinstance(schema, dict):
        return True
    fields = cast("dict[str, object]", schema)
    properties = fields.get("properties")
    named = list(cast("dict[str, object]", properties)) if isinstance(properties, dict) else []
    if fields.get("type") == "object" or named:
        required = fields.get("required")
        listed = cast("list[object]", required) if isinstance(required, list) else []
        if fields.get("additionalProperties") is not False or any(name not in listed for name in named):
            return False
    below = [fields.get(key) for key in ("properties", "$defs", "definitions")]
    inner = [one for found in below if isinstance(found, dict) for one in cast("dict[str, object]", found).values()]
    return all(_is_closed(one) for one in (*inner, fields.get("items"), fields.get("anyOf")))


# --- the history

ASSISTANT_FIRST = Text("[The conversation begins with the assistant.]")


def fit_beginning(request: Request, *, field: str, target: FamilyName) -> tuple[Request, list[Repair]]:
    """The request with somebody to begin. Instructions alone are a whole request in Chat Completions, and an assistant may have
    the first word there; Anthropic's API and Gemini's want a user's."""
    messages, begins = request.messages, relay_facts(target).begins
    if begins == "anyone" or (not messages and not request.system):
        return request, []
    if begins == "input":  # its `instructions` are no input, but its input takes system messages
        alone = () if messages else (Message("system", request.system),)
        return (replace(request, messages=alone, system=()) if alone else request), []
    if not messages:
        told = not_carried(f"{field}.role", because="a system message that stands alone goes as the user's")
        return replace(request, messages=(Message("user", request.system),), system=()), [told]
    if messages[0].role in ("user", "system"):
        return request, []
    told = not_carried(f"{field}[0]", because="a line of text stands before it, as the API wants the user to begin")
    return replace(request, messages=(Message("user", (ASSISTANT_FIRST,)), *messages)), [told]


def fit_calls(request: Request, *, target: FamilyName) -> Request:
    """The request with call ids of one call each, as short as the target wants them, alike in a call and its result; and for
    Anthropic's API with the tools that its history calls: it refuses calls of tools that are not there."""
    request, facts = _with_own_ids(request), relay_facts(target)
    most = facts.most_id
    if most is not None and any(len(id_of(part)) > most for message in request.messages for part in message.parts):
        request = replace(request, messages=tuple([_with_short_ids(message, most) for message in request.messages]))
    if not facts.wants_called_tools or request.tools:
        return request
    parts = [part for message in request.messages for part in message.parts]
    names = dict.fromkeys([part.name for part in parts if isinstance(part, ToolCall | ToolResult) and part.name])
    if not names:
        return request
    return replace(request, tools=tuple([ToolSpec(name=name) for name in names]), tool_choice="none")


def id_of(part: Part) -> str:
    return part.id if type(part) is ToolCall else part.call_id if type(part) is ToolResult else ""


def _with_own_ids(request: Request) -> Request:
    """The same where no two calls have one id, as Anthropic's API wants it: Kimi counts anew in each message. Earlier calls keep
    theirs, so a longer history has the same."""
    ids = [part.id for message in request.messages for part in message.parts if type(part) is ToolCall]
    if len(ids) == len(set(ids)):
        return request
    taken: set[str] = set()
    waiting: dict[str, list[str]] = {}  # by a client's id: those of its calls that have no result yet, the last stays
    messages: list[Message] = []
    for message in request.messages:
        parts: list[Part] = []
        for part in message.parts:
            if type(part) is ToolCall:
                number, own = 2, part.id
                while own in taken:
                    own, number = f"{part.id}_{number}", number + 1
                taken.add(own)
                is_parallel = any(type(one) is ToolCall for one in parts)
                waiting[part.id] = [*(waiting.get(part.id, []) if is_parallel else []), own]
                part = replace(part, id=own)
            elif type(part) is ToolResult and (left := waiting.get(part.call_id)):
                part = replace(part, call_id=left.pop(0) if len(left) > 1 else left[0])
            parts.append(part)
        messages.append(Message(message.role, tuple(parts)))
    return replace(request, messages=tuple(messages))


def _with_short_ids(message: Message, most: int) -> Message:
    return Message(message.role, tuple([_with_short_id(part, most) for part in message.parts]))


def _with_short_id(part: Part, most: int) -> Part:
    if len(id_of(part)) <= most:
        return part
    short = f"call_{hashlib.blake2b(id_of(part).encode(errors='surrogatepass'), digest_size=16).hexdigest()}"
    match part:
        case ToolCall():
            return replace(part, id=short)
        case ToolResult():
            return replace(part, call_id=short)
        case _:
            return part
