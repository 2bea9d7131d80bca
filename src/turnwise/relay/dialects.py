"""A client's request as the upstream takes it: healed as the library writes one, and told (promise heal:dialect).

Between equal families the body goes up in its own bytes, unless the upstream would refuse how the conversation is written, by its
row or by what its refusals have taught. Then only the messages are rewritten; what the client said stays as it was said. Between
two families a request that was right stays right: it is fitted to what the other API insists on.
"""

import hashlib
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import lru_cache
from itertools import pairwise
from typing import NamedTuple

import msgspec
from msgspec.structs import replace

from turnwise.relay.client_tools import callable_tools, fit_names
from turnwise.relay.terms import UpstreamRequest
from turnwise.rules.retries import LESSONS_SAID, lesson_of
from turnwise.vocab import (
    Fault,
    File,
    Message,
    OutputSchema,
    Part,
    Reasoning,
    Repair,
    Request,
    ServerLesson,
    Settings,
    Text,
    ToolCall,
    ToolResult,
    ToolSpec,
)
from turnwise.vocab.json_values import array_or_empty, is_json_array, is_json_object, object_or_empty
from turnwise.wire.family import family
from turnwise.wire.files import takes_file
from turnwise.wire.json_fields import (
    UNREADABLE,
    Fields,
    encode,
    is_null,
    read_fields,
    read_items,
    string_of,
    write_array,
    write_object,
)
from turnwise.wire.offers import FittedTool, fitted_tool
from turnwise.wire.openai_chat.parts import unfit_fields, wire_id
from turnwise.wire.openai_chat.request import asked_in_words
from turnwise.wire.profiles import FamilyName, Profile, RefusedTool, SchemaDialect
from turnwise.wire.relay_facts import PlainTools, RelayFacts, not_carried, relay_facts

# --- what an API insists on where another family's is content with less

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
    if is_json_array(schema):
        return all(_is_closed(one) for one in schema)
    if not is_json_object(schema):
        return True
    properties = schema.get("properties")
    named = list(object_or_empty(properties))
    if schema.get("type") == "object" or named:
        required = schema.get("required")
        listed = array_or_empty(required)
        if schema.get("additionalProperties") is not False or any(name not in listed for name in named):
            return False
    below = [schema.get(key) for key in ("properties", "$defs", "definitions")]
    inner = [one for found in below for one in object_or_empty(found).values()]
    return all(_is_closed(one) for one in (*inner, schema.get("items"), schema.get("anyOf")))


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
    parts = [part for message in request.messages for part in message.parts]
    if most is not None and any(len(id_of(part)) > most for part in parts):
        short = [
            Message(one.role, tuple([_with_short_id(part, most) for part in one.parts])) for one in request.messages
        ]
        request = replace(request, messages=tuple(short))
    if not facts.wants_called_tools or request.tools:
        return request
    names = dict.fromkeys([part.name for part in parts if isinstance(part, ToolCall | ToolResult) and part.name])
    if not names:
        return request
    return replace(request, tools=tuple([ToolSpec(name=name) for name in names]), tool_choice="none")


def id_of(part: Part) -> str:
    return part.id if type(part) is ToolCall else part.call_id if type(part) is ToolResult else ""


def _with_own_ids(request: Request) -> Request:
    """The same where no two calls have one id, as Anthropic's API wants it: Kimi counts from the start in each message. Earlier
    calls keep theirs, so a longer history has the same."""
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


GO_ON = Text("[Go on from there.]")
NONE = msgspec.Raw(b"[]")
BARE = ToolSpec(name="")
KEPT_BODIES = 64  # lists of tools that are fitted already, of so many bytes at most
MOST_KEPT_BYTES = 256 * 1024
Rewrite = Callable[[tuple[ServerLesson, ...]], UpstreamRequest]
"""The client's request, rewritten by the lessons of the upstream's refusals."""


def rewritten(fault: Fault, *, request: Request, rewrite: Rewrite) -> tuple[UpstreamRequest, Repair] | None:
    """What goes up once more where the upstream refused `request` by known words, and what was learned; None elsewhere."""
    lesson = lesson_of(fault, known=request.lessons)
    if lesson is None:
        return None
    told = Repair("dialect", "request", f"the upstream {LESSONS_SAID[lesson]}; sent again")
    return rewrite((*request.lessons, lesson)), told


def with_user(request: Request, profile: Profile) -> Request:
    """The request with a word of the user where the server wants one: a client may leave out what an agent always says."""
    _, said = _leading(request)
    lead = request.messages[: len(request.messages) - len(said)]
    if not said:
        parts = (*request.system, *[part for one in lead for part in one.parts])
        lone = profile.needs_user and parts
        return msgspec.structs.replace(request, messages=(Message("user", parts),), system=()) if lone else request
    begin = (Message("user", (ASSISTANT_FIRST,)),) if _lacks_first(said, request, profile) else ()
    end = (Message("user", (GO_ON,)),) if _lacks_last(said, profile) else ()
    return msgspec.structs.replace(request, messages=(*lead, *begin, *said, *end)) if begin or end else request


def reshaped(request: Request, profile: Profile) -> list[Repair]:
    """What the upstream would have refused in the conversation, and how it goes: for Chat Completions, by its row."""
    return [not_carried(where, because=because) for where, because in _unfit(request, profile)]


def heal_messages(fields: Fields, request: Request, *, profile: Profile) -> list[Repair]:
    """Rewrites the messages of a client's body that the upstream would refuse."""
    if "max_completion_tokens" in request.lessons and "max_tokens" in fields:
        fields["max_completion_tokens"] = fields.pop("max_tokens")
    told = reshaped(request, profile)
    told += [not_carried(where, because=because) for where, because in _unfit_as_written(fields, request, profile)]
    if not told:
        return []
    if profile.reasoning_replay is None and (field := _reasoning_field(fields)):
        profile = msgspec.structs.replace(profile, reasoning_replay=field)
    body = read_fields(family(profile.family).encode_request(with_user(request, profile), profile).body)
    fields["messages"] = body["messages"]
    if profile.refuses_answer_schema and request.output is not None:
        fields.pop("response_format", None)
        fields.update({key: body[key] for key in ("response_format",) if key in body})
    if asked_in_words(request, profile):
        fields.pop("tool_choice", None)
    return told


def fit_fields(fields: Fields, *, profile: Profile) -> list[Repair]:
    """Gives the fields of a client's body that the upstream refuses its own name, or takes them away."""
    told: list[Repair] = []
    for name in [name for name in profile.renamed_fields if name in fields]:
        value, own = fields.pop(name), profile.renamed_fields[name]
        if own:
            fields.setdefault(own, value)
        elif not is_null(value):
            told.append(not_carried(name, because="the upstream refuses it"))
    return told


def fit_tools(fields: Fields, request: Request, *, profile: Profile) -> tuple[PlainTools, list[Repair]]:
    """Rewrites those tools of a client's body whose schemas or names the upstream's row would refuse. The others keep their
    bytes."""
    if not request.tools or "tools" not in fields:
        return PlainTools(request), []
    raw = bytes(fields["tools"])
    fit = _fitted_tools if len(raw) <= MOST_KEPT_BYTES else _fitted_tools.__wrapped__
    tools = fit(raw, profile.tool_schemas, profile.refused_tools, profile.tool_names)
    told = list(tools.told)
    if told:
        fields["tools"] = msgspec.Raw(tools.raw)
    if tools.loses_some:
        request, _ = callable_tools(request)
        for key, is_lost in (("tools", not request.tools), ("tool_choice", request.tool_choice == "auto")):
            if is_lost:
                fields.pop(key, None)
    plain = PlainTools(request)
    if not tools.misnames_some:
        return plain, told
    named = fit_names(plain, profile=profile, crosses=False)
    if named is not plain:
        body = read_fields(family(profile.family).encode_request(named.request, profile).body)
        for key in [key for key in ("tools", "tool_choice", "messages") if key in fields]:
            fields.pop(key)
            fields.update({key: body[key]} if key in body else {})
        told.append(not_carried("tools.name", because="the upstream refuses such names; the client gets its own back"))
    return named, told


def fit_functions(fields: Fields, request: Request) -> tuple[Request, list[Repair]]:
    """Rewrites those tools of a Responses client's body whose schemas do not say that arguments are an object, which the API
    refuses. The others keep their bytes."""
    if "tools" not in fields or all(fitted_tool(tool).root == "object" for tool in request.tools):
        return request, []
    items: list[bytes] = []
    told: list[Repair] = []
    for item, tool in zip(read_items(fields["tools"]), request.tools, strict=True):
        found = fitted_tool(tool, "object")
        if found.root == "never":
            told.append(left_out(tool.name))
        elif found.root == "object":
            items.append(item)
        else:
            function = {**read_fields(item), "parameters": msgspec.Raw(found.spec.parameters.encode())}
            if found.lost:
                function |= {
                    "description": msgspec.Raw(encode(found.spec.description)),
                    "strict": msgspec.Raw(b"false"),
                }
            items.append(write_object(function))
            told.append(_other_form(found))
    fields["tools"] = msgspec.Raw(write_array(items))
    fitted, uncallable = callable_tools(request)
    for key, is_lost in (("tools", not items), ("tool_choice", bool(uncallable) and fitted.tool_choice == "auto")):
        if is_lost:
            fields.pop(key, None)
    return fitted, list(dict.fromkeys(told))


class _FittedTools(NamedTuple):
    """The tools of the body, and what is told of them."""

    raw: bytes
    told: tuple[Repair, ...] = ()
    loses_some: bool = False
    misnames_some: bool = False


@lru_cache(maxsize=KEPT_BODIES)
def _fitted_tools(raw: bytes, dialect: SchemaDialect, refused: tuple[RefusedTool, ...], names: str) -> _FittedTools:
    """A client sends the same tools again and again, so they are read once."""
    items: list[bytes] = []
    told: list[Repair] = []
    misnames_some = False
    for item in read_items(raw):
        fields = read_fields(item)
        own = fields.get("function")
        function = {} if own is None else read_fields(own)
        given = function.get("parameters")
        tool = replace(
            BARE,
            name=string_of(function, "name") or "",
            description=string_of(function, "description") or "",
            parameters=BARE.parameters if given is None or is_null(given) else bytes(given).decode(),
            strict=function.get("strict") == msgspec.Raw(b"true"),
        )
        found = fitted_tool(tool, dialect, folds="union" in refused, fills="required" in refused)
        if found.root == "never":
            told.append(left_out(tool.name))
            continue
        misnames_some = misnames_some or (bool(names) and own is not None and not re.fullmatch(names, tool.name))
        is_needed = found.is_changed and (
            found.root == "untold" or ("schema" in refused and not _adds_nothing(found, tool, refused))
        )
        if own is None or not (is_needed or ("bare" in refused and is_null(given))):
            items.append(item)
            continue
        function["parameters"] = msgspec.Raw(found.spec.parameters.encode())
        if found.spec.description != tool.description:
            function["description"] = msgspec.Raw(encode(found.spec.description))
        if tool.strict and not found.spec.strict:
            del function["strict"]
        items.append(write_object({**fields, "function": msgspec.Raw(write_object(function))}))
        told.append(_other_form(found))
    loses_some = any(one.where == "`tools`" for one in told)
    return _FittedTools(write_array(items), tuple(dict.fromkeys(told)), loses_some, misnames_some)


def _adds_nothing(found: FittedTool, tool: ToolSpec, refused: tuple[RefusedTool, ...]) -> bool:
    """Whether the copy has no more than empty `properties`, which most servers do not ask for."""
    before, after = read_fields(tool.parameters), read_fields(found.spec.parameters)
    if after != {**before, "properties": msgspec.Raw(b"{}")}:
        return False
    return not ("properties" in refused or ("required" in before and "required" in refused))


def _other_form(found: FittedTool) -> Repair:
    takes = f"takes no {found.lost}" if found.lost else "takes such a schema in another form"
    return not_carried("tools.parameters", because=f"the upstream {takes}")


def left_out(name: str) -> Repair:
    """Of a tool whose schema takes no object."""
    return not_carried("tools", because=f"`{name}` is left out: arguments are an object, and its schema takes none")


def _unfit(request: Request, profile: Profile) -> Iterator[tuple[str, str]]:
    system, messages = _leading(request)
    if profile.later_system == "user":
        if system > 1:
            yield "messages.role", "leading system messages go as one"
        if any(message.role == "system" for message in messages):
            yield "messages.role", "a system message in mid-conversation goes as the user's"
    if not messages and profile.needs_user:
        yield "messages.role", "a system message that stands alone goes as the user's"
    if _lacks_first(messages, request, profile):
        yield "messages[0]", "a line of text stands before it, as the upstream wants the user to begin"
    if profile.behind_results == "assistant" and any(_is_behind(*pair) for pair in pairwise(messages)):
        yield "messages", "an assistant's `OK` goes between a tool result and the user, as the upstream wants it"
    if profile.reasoning_stand_in is not None and any(map(_lacks_reasoning, messages)):
        yield "messages.reasoning_content", "calls go with an empty one, as the upstream refuses them without"
    if profile.for_model(request.model).signature_stand_in and any(map(_lacks_signature, messages)):
        yield (
            "messages.tool_calls.extra_content",
            "calls go with a stand-in for the signature, as the upstream refuses them without",
        )
    if profile.calls_content is not None and any(map(_has_bare_calls, messages)):
        yield "messages.content", "calls go with an empty text, as the upstream refuses none"
    if profile.joined_models and profile.joins_neighbours(request.model) and any(map(_is_alike, pairwise(messages))):
        yield "messages", "neighbours of one role go as one message, as the upstream wants them by turns"
    if asked_in_words(request, profile):
        yield "tool_choice", "the upstream refuses it; the model is asked in words"


def _lacks_first(messages: Sequence[Message], request: Request, profile: Profile) -> bool:
    wants = profile.needs_user or profile.joins_neighbours(request.model)
    return wants and bool(messages) and messages[0].role == "assistant"


def _lacks_last(messages: Sequence[Message], profile: Profile) -> bool:
    """Whether the assistant's words stand last where the server refuses that, or the second of two that it refuses."""
    last = [message.role == "assistant" and not _calls(message) for message in messages[-2:]]
    return bool(last) and last[-1] and (profile.user_last or (profile.one_assistant_last and last == [True, True]))


def _leading(request: Request) -> tuple[int, Sequence[Message]]:
    """How many system messages lead, and the messages behind them."""
    messages, at = request.messages, 0
    while at < len(messages) and messages[at].role == "system":
        at += 1
    return len(request.system) + at, messages[at:]


def _is_behind(before: Message, message: Message) -> bool:
    if before.role != "tool":
        return False
    has_files = any(
        type(part) is ToolResult and any(type(one) is not Text for one in part.content) for part in before.parts
    )
    return has_files or message.role in ("user", "system")


def _is_alike(pair: tuple[Message, Message]) -> bool:
    before, message = pair
    return before.role == message.role != "tool" and not (_calls(before) or _calls(message))


def _calls(message: Message) -> bool:
    return any(type(part) is ToolCall for part in message.parts)


def _lacks_reasoning(message: Message) -> bool:
    return _calls(message) and not any(type(part) is Reasoning and part.text for part in message.parts)


def _lacks_signature(message: Message) -> bool:
    first = next((part for part in message.parts if type(part) is ToolCall), None)
    return first is not None and (first.opaque is None or '"extra_content"' not in first.opaque.json)


def _has_bare_calls(message: Message) -> bool:
    return _calls(message) and not any(type(part) is Text for part in message.parts)


def _unfit_as_written(fields: Fields, request: Request, profile: Profile) -> Iterator[tuple[str, str]]:
    """What another family's client does not write, or is told of in its own words."""
    if profile.refuses_answer_schema and request.output is not None:
        yield "response_format", "the upstream takes no schema of an answer; it goes in words"
    length, parts = profile.tool_call_id_length, [part for one in request.messages for part in one.parts]
    if length is not None and any(wire_id(id, profile) != id for part in parts if (id := id_of(part))):
        yield "messages.tool_calls.id", f"ids of calls go with {length} characters, as the upstream wants them"
    for name in unfit_fields(parts, profile):
        yield f"messages.{name}", "the upstream refuses it"
    if profile.files != "all" and any(type(part) is File and not takes_file(part, profile) for part in parts):
        yield "messages.file", "the upstream takes no such files; a line of text stands in its place"
    if _lacks_last(request.messages, profile):
        yield "messages[-1]", "a line of text stands behind it, as the upstream wants the user's word last"
    if profile.empty_text and any(map(_says_nothing, _leading(request)[1])):
        yield "messages.content", f"a message without content goes as `{profile.empty_text}`"
    places = profile.message_fields is not None or profile.reasoning_stand_in is not None
    if not (profile.strict_messages or (places and any(type(part) is Reasoning for part in parts))):
        return
    try:
        messages = [read_fields(raw) for raw in read_items(fields.get("messages", NONE))]
    except UNREADABLE:
        return
    if places and any(_REASONING & one.keys() - {profile.reasoning_replay} for one in messages):
        yield "messages.reasoning", "reasoning goes in the field that the upstream takes"
    if not profile.strict_messages:
        return
    if any(string_of(message, "role") == "developer" for message in messages):
        yield "messages", "`developer` goes as `system`, which the upstream takes"
    results = [one.get("content") for one in messages if string_of(one, "role") == "tool"]
    if any(raw is not None and bytes(memoryview(raw)[:1]) == b"[" for raw in results):
        yield "messages", "a result's texts go as one string, which the upstream takes"


_REASONING = frozenset({"reasoning", "reasoning_content", "reasoning_text", "reasoning_details"})


def _reasoning_field(fields: Fields) -> str:
    """Where the client wrote reasoning; empty if it wrote none. It goes back there if the upstream's field is unknown."""
    messages = [read_fields(raw) for raw in read_items(fields.get("messages", NONE))]
    names = ("reasoning_content", *_REASONING)
    return next((name for one in messages for name in names if not is_null(one.get(name))), "")


def _says_nothing(message: Message) -> bool:
    return message.role in ("user", "assistant") and not any(
        type(part) is not Reasoning and (type(part) is not Text or part.text) for part in message.parts
    )
