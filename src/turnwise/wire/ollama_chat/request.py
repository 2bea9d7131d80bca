"""Requests of Ollama's own API, both ways.

Order of the body: model, tools, messages, then what may change from step to step; `options` are last, and of them `num_ctx`.

A server loads a model with a window of a few thousand tokens and cuts a longer prompt in silence, the oldest messages first. So
each request says how large the window has to be, and with `truncate` and `shift` false the server refuses what does not fit, in
words that are known (`wire/faults.py`). It takes no more than the model was made for, whatever is asked for (Ollama,
`llm/server.go`: "requested context size too large for model"; `server/prompt.go`: `truncate`).
"""

from collections.abc import Mapping

import msgspec
from msgspec.structs import replace

from turnwise.vocab import Effort, File, Message, Opaque, OutputSchema, Request, Settings, Text, ToolResult, ToolSpec
from turnwise.vocab.json_values import is_json_object
from turnwise.wire.encoded_history import MESSAGES, CallFrame, EncodedHistory, around
from turnwise.wire.family import BadRequest, HttpCall, call_of
from turnwise.wire.json_fields import (
    UNREADABLE,
    encode,
    fields_in,
    is_object,
    opaque_of,
    read_fields,
    string_of,
    text_of_raw,
)
from turnwise.wire.offers import FREE_FORM_SCHEMA, fitted_tool, instructions, kept_by_tool, offered_tools
from turnwise.wire.ollama_chat.messages import JOINT, NAME, Fields, MessageReader, OllamaMessages, WireMessage
from turnwise.wire.openai_chat.request import asked_in_words
from turnwise.wire.profiles import Profile
from turnwise.wire.tool_names import wire_names, with_wire_names

PATH = "/api/chat"
OUTPUT_TOKENS = 4096  # room for the answer, where nothing limits it
LEAST_WINDOW = 8192
BYTES_A_TOKEN = 3  # of a body: text takes about four, and a window that is too large only costs memory
IMAGE_TOKENS = 1024  # Ollama counts 768 for one (`server/prompt.go`)
LEVELS: Mapping[Effort, str] = {"minimal": "low", "low": "low", "medium": "medium", "xhigh": "high", "max": "high"}
WITH_LEVELS = "gpt-oss"  # the models that take a word; others only think or do not (Ollama docs, "Thinking")
_OPEN_WINDOW = b'"num_ctx":0}}'


def encode_request(request: Request, profile: Profile, *, history: EncodedHistory | None = None) -> HttpCall:
    history = history or EncodedHistory()
    frame = history.frame(request, profile, make=_frame, also=bool(request.messages))
    messages = request.messages + frame.behind
    call = call_of(frame, written=history.write_body(frame, messages=messages))
    if not call.body.endswith(_OPEN_WINDOW):
        return call  # the caller's own `num_ctx`, or the row's
    window = window_for(len(call.body), messages=messages, output_tokens=request.settings.max_output_tokens)
    return replace(call, body=b'%b"num_ctx":%d}}' % (call.body[: -len(_OPEN_WINDOW)], window))


def window_for(size_bytes: int, *, messages: tuple[Message, ...], output_tokens: int | None) -> int:
    """Tokens that hold the prompt and its answer: a power of two, because a server loads the model again for another window."""
    parts = [part for message in messages for part in message.parts]
    parts += [part for result in parts if isinstance(result, ToolResult) for part in result.content]
    images = [part.data for part in parts if isinstance(part, File) and part.data is not None]
    said = size_bytes - sum([-(-len(image) // 3) * 4 for image in images])
    tokens = said // BYTES_A_TOKEN + IMAGE_TOKENS * len(images) + (output_tokens or OUTPUT_TOKENS)
    return max(LEAST_WINDOW, 1 << (tokens - 1).bit_length())


def _frame(request: Request, profile: Profile) -> CallFrame:
    profile = replace(profile, tool_choices=("auto",))  # there is no field for a choice
    names = wire_names(request.tools, profile)
    request = with_wire_names(request, profile)
    fields: Fields = {"model": request.model}
    if tools := [_written_tool(tool) for tool in offered_tools(request, profile, family=NAME)]:
        fields["tools"] = tools
    fields["messages"] = MESSAGES
    fields["stream"] = request.stream
    if request.output is not None and profile.output != "none":
        is_told = profile.output == "json_schema"
        fields["format"] = msgspec.Raw(request.output.schema.encode()) if is_told else "json"
    fields |= {"truncate": False, "shift": False, **_thinking(request)}
    options = _options(request.settings, profile)
    for more in (profile.body, "" if request.extra is None or request.extra.family != NAME else request.extra.json):
        given = msgspec.json.decode(more or "{}", type=dict[str, object])
        own = given.pop("options", {})
        options |= own if is_json_object(own) else {}
        fields |= given
    if "num_ctx" not in options:
        options["num_ctx"] = 0  # how much is known once the messages are written
    fields["options"] = options
    head, tail = around(
        {key: MESSAGES if value is MESSAGES else encode(value) for key, value in fields.items()}, name="messages"
    )
    asked = asked_in_words(request, profile)
    system = instructions(request, profile)
    if system:
        joint = JOINT.join([text.text for text in system])
        head += encode({"role": "system", "content": joint})
    return CallFrame(
        path=profile.path or PATH,
        head=head,
        tail=tail,
        items=OllamaMessages(profile, names=names),
        rests_on=(profile, names.own),
        behind=(Message("user", (Text(asked),)),) if asked and request.messages else (),
    )


@kept_by_tool
def _written_tool(tool: ToolSpec) -> msgspec.Raw:
    if tool.opaque is not None and '"type"' in tool.opaque.json:
        return msgspec.Raw(tool.opaque.json.encode())  # a tool of the server's own, as it came
    spec = fitted_tool(tool, "whole").spec
    parameters = FREE_FORM_SCHEMA if tool.free_form else spec.parameters
    function = {"name": spec.name, "description": spec.description, "parameters": msgspec.Raw(parameters.encode())}
    return msgspec.Raw(encode({"type": "function", "function": function}))


def _options(settings: Settings, profile: Profile) -> Fields:
    found: Fields = {
        "num_predict": settings.max_output_tokens or profile.default_max_tokens,
        "temperature": settings.temperature,
        "top_p": settings.top_p,
        "stop": settings.stop or None,
        "seed": settings.seed,
    }
    return {name: value for name, value in found.items() if value is not None}


def _thinking(request: Request) -> Fields:
    effort, tokens = request.settings.reasoning_effort, request.settings.reasoning_tokens
    if effort is None and tokens is None:
        return {}
    thinks = effort != "none" and tokens != 0
    return {"think": LEVELS.get(effort or "high", "high") if thinks and WITH_LEVELS in request.model else thinks}


# A body of the API -> `Request`, for the lab and for messages that a program has.


class WireFunction(msgspec.Struct):
    name: str
    description: str = ""
    parameters: msgspec.Raw = msgspec.Raw(b'{"type":"object","properties":{}}')


class WireOptions(msgspec.Struct, frozen=True):
    num_predict: int | None = None
    temperature: float | None = None
    top_p: float | None = None
    stop: tuple[str, ...] | str = ()
    seed: int | None = None


class WireBody(msgspec.Struct):
    messages: list[WireMessage]
    model: str = ""
    tools: list[dict[str, msgspec.Raw]] | None = None
    stream: bool = True
    format: msgspec.Raw = msgspec.Raw()
    think: bool | str | None = None
    options: WireOptions = WireOptions()


_EFFORTS: Mapping[bool | str, Effort] = {False: "none", "low": "low", "medium": "medium"}
_READ = ("model", "messages", "tools", "stream", "think", "options", "truncate", "shift")
_READ_OPTIONS = ("num_predict", "temperature", "top_p", "stop", "seed")


def decode_request(body: bytes, path: str) -> Request:
    """Raises BadRequest with what is wrong. `path` says nothing in this family. Fields without a word of ours stay in `extra`."""
    reader = MessageReader()
    try:
        told = msgspec.json.decode(body, type=WireBody)
        rest = {key: raw for key, raw in read_fields(body).items() if key not in _READ}
        own = fields_in(Opaque(NAME, body.decode()), family=NAME).get("options")
        for message in told.messages:
            reader.add(message)
        tools = tuple([_tool(tool) for tool in told.tools or ()])
    except (ValueError, *UNREADABLE) as error:
        raise BadRequest(f"the body cannot be read: {error}") from None
    options = {key: raw for key, raw in ({} if own is None else read_fields(own)).items() if key not in _READ_OPTIONS}
    output = OutputSchema(schema=text_of_raw(rest.pop("format"))) if is_object(told.format) else None
    extra: Fields = {**rest, **({"options": options} if options else {})}
    messages, system = reader.messages, ()
    if messages and messages[0].role == "system" and all(isinstance(part, Text) for part in messages[0].parts):
        system = tuple([part for part in messages.pop(0).parts if isinstance(part, Text)])
    stop = told.options.stop
    effort = None if told.think is None else _EFFORTS.get(told.think, "high")
    return Request(
        model=told.model,
        messages=tuple(messages),
        system=system,
        tools=tools,
        output=output,
        settings=Settings(
            max_output_tokens=told.options.num_predict,
            temperature=told.options.temperature,
            top_p=told.options.top_p,
            stop=(stop,) if isinstance(stop, str) else tuple(stop),
            seed=told.options.seed,
            reasoning_effort=effort,
        ),
        stream=told.stream,
        extra=Opaque(NAME, encode(extra).decode()) if extra else None,
    )


def _tool(fields: Mapping[str, msgspec.Raw]) -> ToolSpec:
    """A tool that is no function is one of the server's own."""
    if "function" not in fields:
        return ToolSpec(name=string_of(fields, "type") or "", opaque=opaque_of(fields, family=NAME))
    told = msgspec.json.decode(fields["function"], type=WireFunction)
    return ToolSpec(name=told.name, description=told.description, parameters=text_of_raw(told.parameters))
