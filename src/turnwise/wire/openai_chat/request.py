"""`Request` -> the body of a Chat Completions request.

Order: what stays the same over a turn (model, tools), the messages, what may change from step to step. So the body of
the next step begins with the bytes of this one up to its last message (promise step:prefix-stable).
"""

from collections.abc import Sequence

import msgspec

from turnwise.vocab import Caching, Message, NamedTool, OutputSchema, Request, Settings, Text, ToolSpec
from turnwise.vocab.json_values import without_nones
from turnwise.wire.cache_marks import (
    Marking,
    cache_key_fields,
    end_of_content,
    end_of_message,
    marking_of,
    marks_at,
    own_marks,
)
from turnwise.wire.encoded_history import MESSAGES, CallFrame, EncodedHistory, around
from turnwise.wire.family import HttpCall, call_of
from turnwise.wire.generations import adapt_gpt, generation_of
from turnwise.wire.json_fields import encode, write_object
from turnwise.wire.offers import FREE_FORM_SCHEMA, fitted_tool, instructions, kept_by_tool, offered_tools
from turnwise.wire.openai_chat.parts import NAME, ChatItems, Fields, encode_instructions, fields_of, merged
from turnwise.wire.profiles import Profile, SchemaDialect
from turnwise.wire.tool_names import wire_names, with_wire_names

PATH = "/chat/completions"
CHOICES_IN_WORDS = {"none": "Answer in text now, without calling a tool.", "required": "Call one of the tools now."}


def encode_request(request: Request, profile: Profile, *, history: EncodedHistory | None = None) -> HttpCall:
    history = history or EncodedHistory()
    if request.messages and request.messages[0].role == "system":
        request = _with_leading_texts(request)
    frame = history.frame(request, profile, make=_frame, also=bool(request.messages))
    return call_of(frame, written=history.write_body(frame, messages=request.messages + frame.behind))


def _with_leading_texts(request: Request) -> Request:
    """The request whose leading system messages are instructions; none of them stands among the messages any more."""
    system, messages = list(request.system), request.messages
    at = 0
    for message in messages:
        texts = [part for part in message.parts if isinstance(part, Text)]
        if message.role != "system" or len(texts) < len(message.parts):
            break
        system += texts
        at += 1
    return msgspec.structs.replace(request, system=tuple(system), messages=messages[at:])


def _frame(request: Request, profile: Profile) -> CallFrame:
    if request.lessons:
        profile = profile.taught(request.lessons)
    profile = profile.for_model(request.model)
    names = wire_names(request.tools, profile)
    request = with_wire_names(request, profile)
    fields = {
        name: MESSAGES if value is MESSAGES else encode(value) for name, value in _fields(request, profile).items()
    }
    row = generation_of(request.model, "gpt") if profile.reasoning_request in (None, "reasoning_effort") else None
    adapted = () if row is None else tuple(adapt_gpt(fields, row, is_chat=True))
    path = (profile.path or PATH).replace("{model}", request.model)
    if fields.get("messages") is not MESSAGES:  # `extra` has put its own in their place
        return CallFrame(path=path, head=write_object(fields), adapted=adapted)
    head, tail = around(fields, name="messages")
    listed = _takes_marks(request, profile)
    texts = instructions(request, profile)
    system = [encode_instructions(texts, profile, listed=listed)] if texts else []
    head += b",".join(system)
    marking = _marking(request, profile, fields=fields, head=head, system=system) if listed else None
    joins = profile.joins_neighbours(request.model)
    behind: tuple[Message, ...] = ()
    if asked := asked_in_words(request, profile):
        if request.messages and (joins or profile.behind_results == "assistant"):
            behind = (Message("user", (Text(asked),)),)  # what may stand last rests on the message before it
        elif request.messages or system:
            tail = b"," + encode({"role": "user", "content": asked}) + tail
    return CallFrame(
        path=path,
        head=head,
        tail=tail,
        items=ChatItems(profile, names=names, listed=listed, joins=joins),
        rests_on=(profile, names.own, listed, joins),
        behind=behind,
        marking=marking,
        adapted=adapted,
    )


def _takes_marks(request: Request, profile: Profile) -> bool:
    return request.cache is not None and profile.cache_way(request.model) in ("parts", "messages")


def _marking(
    request: Request, profile: Profile, *, fields: dict[str, bytes], head: bytes, system: list[bytes]
) -> Marking:
    """Marks stand on content parts (OpenRouter docs, "Prompt caching": on text parts). The end of the system text covers the
    tools, which come before it. A tool message of LiteLLM has them itself: on a part they end up within the result
    (LiteLLM, `convert_to_anthropic_tool_result`)."""
    cache = request.cache or Caching()
    on_messages = profile.cache_way(request.model) == "messages"
    marking = marking_of(
        head,
        arrays={name: fields[name] for name in ("tools",) if name in fields},
        hour=cache.hour and profile.takes_ttl(request.model),
        passing=cache.passing,
        place=_end_on_message if on_messages else _end_on_part,
        at_top=fields.get("cache_control"),
    )
    begins = len(head) - sum([len(text) + 1 for text in system]) + 1  # the head ends with the system messages
    own = [placed for text in system for placed in marks_at(begins, ttls=own_marks(text))]
    in_head = _end_of_system(system, head=head)
    return msgspec.structs.replace(marking, in_head=in_head, own=(*marking.own, *own), shared_only=cache.shared_only)


def _end_of_system(system: Sequence[bytes], *, head: bytes) -> tuple[int, ...]:
    """In the last system message that takes a mark; a blank one takes none."""
    begins = len(head) + 1
    for text in reversed(system):
        begins -= len(text) + 1
        if (place := end_of_content(text)) is not None:
            return (begins + place,)
        if own_marks(text):
            break
    return ()


def _end_on_part(item: bytes) -> int | None:
    return end_of_content(item) if item.startswith((b'{"role":"user"', b'{"role":"tool"')) else None


def _end_on_message(item: bytes) -> int | None:
    return end_of_message(item) if item.startswith(b'{"role":"tool"') else _end_on_part(item)


def _fields(request: Request, profile: Profile) -> Fields:
    body: Fields = {}
    if profile.model_in_body:
        body["model"] = request.model
    form = profile.tool_schemas, profile.free_form_tools, profile.strict_tools
    tools = [_written_tool(tool, *form) for tool in offered_tools(request, profile, family=NAME)]
    if tools:
        body["tools"] = tools
    body["messages"] = MESSAGES
    if tools:
        body.update(_tool_settings(request, profile))
    if request.output is not None:
        body.update(_output(request.output, profile))
    body.update(_settings(request.settings, profile))
    body.update(cache_key_fields(request, profile, tools=tools))
    if request.stream:
        body["stream"] = True
        if profile.stream_usage:
            body["stream_options"] = {"include_usage": True}
    if profile.body:
        merged(body, msgspec.json.decode(profile.body, type=dict[str, object]))
    _lay_over(body, fields_of(request.extra))
    return body


def _lay_over(body: Fields, extra: Fields) -> None:
    """RFC 7396, one level: a null takes the field away."""
    for key, value in extra.items():
        if value is None:
            body.pop(key, None)
        else:
            body[key] = value


@kept_by_tool
def _written_tool(tool: ToolSpec, schemas: SchemaDialect, takes_free_form: bool, takes_strict: bool) -> msgspec.Raw:
    """The tool encoded, once for all requests that offer it."""
    return msgspec.Raw(encode(_tool(tool, schemas, takes_free_form, takes_strict)))


def _tool(tool: ToolSpec, schemas: SchemaDialect, takes_free_form: bool, takes_strict: bool) -> Fields:
    rest = fields_of(tool.opaque)
    if "type" in rest:  # a tool of the server's own, as it came
        return rest
    if tool.free_form and takes_free_form:
        return merged({"type": "custom", "custom": {"name": tool.name, **_described(tool)}}, rest)
    tool = fitted_tool(tool, schemas).spec
    parameters = FREE_FORM_SCHEMA if tool.free_form else tool.parameters
    function: Fields = {"name": tool.name, **_described(tool), "parameters": msgspec.Raw(parameters.encode())}
    if tool.strict and takes_strict and not tool.free_form:
        function["strict"] = True
    return merged({"type": "function", "function": function}, rest)


def _described(tool: ToolSpec) -> Fields:
    return {"description": tool.description} if tool.description else {}


def _tool_settings(request: Request, profile: Profile) -> Fields:
    """`auto` is what the API does by itself."""
    found: Fields = {}
    choice = "auto" if asked_in_words(request, profile) else request.tool_choice
    match choice:
        case "auto":
            pass
        case NamedTool(name=name):
            is_free_form = any(tool.name == name and tool.free_form for tool in request.tools)
            kind = "custom" if is_free_form and profile.free_form_tools else "function"
            found["tool_choice"] = {"type": kind, kind: {"name": name}}
        case word:
            found["tool_choice"] = word
    if request.parallel_tool_calls is not None and profile.sends_parallel_tool_calls:
        found["parallel_tool_calls"] = request.parallel_tool_calls
    return found


def asked_in_words(request: Request, profile: Profile) -> str:
    """The choice of a tool as a sentence behind the messages, where the server refuses it in its field; else nothing."""
    choice = request.tool_choice
    word = "named" if isinstance(choice, NamedTool) else choice
    if word in profile.tool_choices or not request.tools:
        return ""
    settings = request.settings
    thinks = settings.reasoning_effort != "none" and settings.reasoning_tokens != 0
    if profile.takes_every_choice(request.model, thinks=thinks):
        return ""
    return f"Call the tool `{choice.name}` now." if isinstance(choice, NamedTool) else CHOICES_IN_WORDS[word]


def _output(output: OutputSchema, profile: Profile) -> Fields:
    match profile.output:
        case "json_schema":
            schema = {"name": output.name, "strict": output.strict, "schema": msgspec.Raw(output.schema.encode())}
            return {"response_format": {"type": "json_schema", "json_schema": schema}}
        case "json_object":
            return {"response_format": {"type": "json_object"}}
        case "none":
            return {}


def _settings(settings: Settings, profile: Profile) -> Fields:
    limit = settings.max_output_tokens if settings.max_output_tokens is not None else profile.default_max_tokens
    found: Fields = {
        profile.max_tokens_field: limit,
        "temperature": settings.temperature,
        "top_p": settings.top_p,
        "stop": list(settings.stop) or None,
        profile.seed_field: settings.seed,
    }
    found.update(_reasoning(settings, profile))
    return without_nones(found)


def _reasoning(settings: Settings, profile: Profile) -> Fields:
    """How effort or a budget is asked for, by the profile's word."""
    effort, budget = settings.reasoning_effort, settings.reasoning_tokens
    if effort is None and budget is None:
        return {}
    enabled = effort != "none" and budget != 0
    match profile.reasoning_request:
        case "reasoning_effort":
            return {"reasoning_effort": effort}
        case "reasoning":  # OpenRouter takes one of the two
            return {"reasoning": {"effort": effort} if effort is not None else {"max_tokens": budget}}
        case "thinking":
            return {"thinking": {"type": "enabled" if enabled else "disabled"}}
        case "thinking_effort":  # DeepSeek: whether, and how much
            effort = effort if enabled else None
            return {"thinking": {"type": "enabled" if enabled else "disabled"}, "reasoning_effort": effort}
        case "enable_thinking":
            return {"enable_thinking": enabled, "thinking_budget": budget if enabled else None}
        case "chat_template_kwargs":
            return {"chat_template_kwargs": {"enable_thinking": enabled}}
        case _:
            return {}
