"""Requests of Cohere's v2 API, both ways. A body is much like one of Chat Completions, so it is read as such.

Source: Cohere API reference, "Chat API (v2)", and the types of the `cohere` package 7.3. `ProviderItem`s of this family are the
model's plan for its calls (`tool_plan`), which goes back beside them.
"""

from collections.abc import Mapping, Sequence

import msgspec
from msgspec.structs import replace

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
    Text,
    ToolCall,
    ToolResult,
    ToolSpec,
)
from turnwise.vocab.json_values import array_or_empty, is_json_array, is_json_object, object_or_empty
from turnwise.wire.encoded_history import MESSAGES, CallFrame, EncodedHistory, around
from turnwise.wire.family import BadRequest, HttpCall, call_of
from turnwise.wire.files import data_url, files_in_words, left_out, takes_file
from turnwise.wire.json_fields import UNREADABLE, encode, is_json
from turnwise.wire.offers import (
    FREE_FORM_SCHEMA,
    fitted_tool,
    free_form_arguments,
    instructions,
    kept_by_tool,
    offered_tools,
)
from turnwise.wire.openai_chat import request_reading
from turnwise.wire.openai_chat.request import asked_in_words
from turnwise.wire.profiles import Profile
from turnwise.wire.tool_names import WireNames, wire_names, with_wire_names

NAME = "cohere_chat"
PATH = "/v2/chat"
PLAN = "tool_plan"
JOINT = "\n\n"
V1 = "this is Cohere's v1 API, which turnwise does not speak: use its v2 API (`/v2/chat`)"

Fields = dict[str, object]


def encode_request(request: Request, profile: Profile, *, history: EncodedHistory | None = None) -> HttpCall:
    history = history or EncodedHistory()
    frame = history.frame(request, profile, make=_frame, also=bool(request.messages))
    return call_of(frame, written=history.write_body(frame, messages=request.messages + frame.behind))


def _frame(request: Request, profile: Profile) -> CallFrame:
    names = wire_names(request.tools, profile)
    request = with_wire_names(request, profile)
    fields: Fields = {"model": request.model}
    tools = [_written_tool(tool) for tool in offered_tools(request, profile, family=NAME)]
    if tools:
        fields["tools"] = tools
        profile = replace(profile, output="none")  # "not supported when used in combinations with ... `tools`"
    fields["messages"] = MESSAGES
    fields["stream"] = request.stream
    if tools and request.tool_choice != "auto":
        fields["tool_choice"] = "NONE" if request.tool_choice == "none" else "REQUIRED"
    if request.output is not None and profile.output != "none":
        is_told = profile.output == "json_schema"
        schema = {"json_schema": msgspec.Raw(request.output.schema.encode())} if is_told else {}
        fields["response_format"] = {"type": "json_object", **schema}
    fields |= _settings(request, profile)
    for more in (profile.body, "" if request.extra is None or request.extra.family != NAME else request.extra.json):
        fields |= msgspec.json.decode(more or "{}", type=dict[str, object])
    head, tail = around(
        {key: MESSAGES if value is MESSAGES else encode(value) for key, value in fields.items()}, name="messages"
    )
    if system := instructions(request, profile):
        head += encode({"role": "system", "content": JOINT.join([text.text for text in system])})
    asked = asked_in_words(request, replace(profile, tool_choices=("auto", "none", "required")))
    return CallFrame(
        path=profile.path or PATH,
        head=head,
        tail=tail,
        items=CohereMessages(profile, names=names),
        rests_on=(profile, names.own),
        behind=(Message("user", (Text(asked),)),) if asked and request.messages else (),
    )


def _settings(request: Request, profile: Profile) -> Fields:
    settings = request.settings
    thinking: Fields | None = None
    if settings.reasoning_effort == "none" or settings.reasoning_tokens == 0:
        thinking = {"type": "disabled"}
    elif settings.reasoning_effort is not None or settings.reasoning_tokens is not None:
        budget = {} if settings.reasoning_tokens is None else {"token_budget": settings.reasoning_tokens}
        thinking = {"type": "enabled", **budget}
    found: Fields = {
        "thinking": thinking,
        "max_tokens": settings.max_output_tokens or profile.default_max_tokens,
        "temperature": settings.temperature,
        "p": settings.top_p,
        "stop_sequences": settings.stop or None,
        "seed": settings.seed,
    }
    return {name: value for name, value in found.items() if value is not None}


@kept_by_tool
def _written_tool(tool: ToolSpec) -> msgspec.Raw:
    if tool.opaque is not None and '"type"' in tool.opaque.json:
        return msgspec.Raw(tool.opaque.json.encode())  # a tool of the server's own, as it came
    spec = fitted_tool(tool, "whole").spec
    parameters = FREE_FORM_SCHEMA if tool.free_form else spec.parameters
    function = {"name": spec.name, "description": spec.description, "parameters": msgspec.Raw(parameters.encode())}
    return msgspec.Raw(encode({"type": "function", "function": function}))


class CohereMessages:
    """The wire's messages for ours: each says itself alone."""

    def __init__(self, profile: Profile, *, names: WireNames) -> None:
        self._profile = profile
        self._names = names

    def take(self, messages: Sequence[Message]) -> list[bytes]:
        found: list[bytes] = []
        for message in messages:
            match message.role:
                case "tool":
                    found += [encode(self._result(part)) for part in message.parts if isinstance(part, ToolResult)]
                case "assistant":
                    parts = files_in_words(message.parts, family=NAME)
                    found.append(encode(assistant_fields(self._names.fitted(parts))))
                case role:
                    found.append(encode({"role": role, "content": self._content(message.parts)}))
        return found

    def rest(self) -> list[bytes]:
        return []

    def copy(self) -> "CohereMessages":
        return self  # nothing that was taken changes it

    def _content(self, parts: Sequence[Part]) -> object:
        items = [self._item(part) for part in parts if isinstance(part, Text | File)]
        texts = [str(item["text"]) for item in items if "text" in item]
        if len(texts) < len(items):
            return items
        return ("" if any(isinstance(part, Text) and part.note for part in parts) else JOINT).join(texts)

    def _item(self, part: Text | File) -> Fields:
        url = data_url(part) if isinstance(part, File) and part.media_type.startswith("image/") else None
        if isinstance(part, File) and url is not None and takes_file(part, self._profile):
            return {"type": "image_url", "image_url": {"url": url}}
        return {"type": "text", "text": part.text if isinstance(part, Text) else left_out(part).text}

    def _result(self, result: ToolResult) -> Fields:
        """An object is a document, whose fields the model can cite; anything else a text."""
        told = [part if isinstance(part, Text) else left_out(part) for part in result.content]
        said = JOINT.join([part.text for part in told])
        content: object = said
        if said.startswith("{") and is_json(said):
            content = [{"type": "document", "document": {"data": msgspec.Raw(said.encode())}}]
        return {"role": "tool", "tool_call_id": result.call_id, "content": content}


def assistant_fields(parts: Sequence[Part]) -> Fields:
    thought = "".join([part.text for part in parts if isinstance(part, Reasoning)])
    texts: list[Fields] = [
        {"type": "text", "text": one.text} for one in parts if isinstance(one, Text | Refusal) and one.text
    ]
    # One thought in front, as the API has it.
    content: list[Fields] = [{"type": "thinking", "thinking": thought}, *texts] if thought else texts
    plans = [plan_of(part) for part in parts if isinstance(part, ProviderItem) and part.family == NAME]
    calls = [call_fields(part) for part in parts if isinstance(part, ToolCall)]
    fields: Fields = {"role": "assistant"}
    if content or not calls:
        fields["content"] = content or ""
    if plans:
        fields[PLAN] = "".join(plans)
    return {**fields, "tool_calls": calls} if calls else fields


def call_fields(call: ToolCall) -> Fields:
    arguments = free_form_arguments(call.arguments) if call.free_form else call.arguments
    if call.state is not ArgumentsState.COMPLETE and not call.free_form:
        arguments = "{}"
    return {"id": call.id, "type": "function", "function": {"name": call.name, "arguments": arguments}}


def plan(text: str) -> ProviderItem:
    return ProviderItem(NAME, PLAN, encode({"type": PLAN, PLAN: text}).decode())


def plan_of(item: ProviderItem) -> str:
    return str(msgspec.json.decode(item.json, type=dict[str, object]).get(PLAN, ""))


# A body of the API -> `Request`, by the reader of Chat Completions.


_CHOICES = {"NONE": "none", "REQUIRED": "required"}
_RENAMED = {"p": "top_p", "stop_sequences": "stop", "k": "top_k"}


def decode_request(body: bytes, path: str) -> Request:
    """Raises BadRequest with what is wrong."""
    try:
        fields = msgspec.json.decode(body, type=dict[str, object])
    except UNREADABLE as error:
        raise BadRequest(f"the body is no JSON object: {error}") from None
    if "message" in fields or "chat_history" in fields:
        raise BadRequest(V1)
    messages = fields.get("messages")
    if is_json_array(messages):
        fields["messages"] = [_chat_message(one) if is_json_object(one) else one for one in messages]
    thinking, form, choice = [fields.pop(key, None) for key in ("thinking", "response_format", "tool_choice")]
    told = object_or_empty(thinking)
    budget = told.get("token_budget")
    if told:
        tokens = {"max_tokens": budget} if budget is not None else {"effort": "medium"}
        fields["reasoning"] = {"effort": "none"} if told.get("type") == "disabled" else tokens
    schema = object_or_empty(form).get("json_schema")
    if choice is not None:
        fields["tool_choice"] = _CHOICES.get(str(choice), choice)
    chat = {_RENAMED.get(key, key): value for key, value in fields.items()}
    request = request_reading.decode_request(encode(chat), path)
    extra = {} if request.extra is None else msgspec.json.decode(request.extra.json, type=dict[str, object])
    extra = {("k" if key == "top_k" else key): value for key, value in extra.items() if key != "stream_options"}
    if form is not None and schema is None:
        extra["response_format"] = form
    return replace(
        request,
        messages=tuple([_with_plans(message) for message in request.messages]),
        output=None if schema is None else OutputSchema(schema=encode(schema).decode()),
        extra=Opaque(NAME, encode(extra).decode()) if extra else None,
        tool_choice=request.tool_choice if not isinstance(request.tool_choice, NamedTool) else "required",
    )


def _chat_message(message: Mapping[str, object]) -> Fields:
    content = message.get("content")
    items = [{"type": "text", "text": content}] if isinstance(content, str) and content else array_or_empty(content)
    items = [_chat_item(item) if is_json_object(item) else item for item in items]
    if said := message.get(PLAN):
        items = [{"type": PLAN, PLAN: said}, *items]
    kept = {key: value for key, value in message.items() if key in ("role", "tool_calls", "tool_call_id")}
    return {**kept, "content": items}


def _chat_item(item: Mapping[str, object]) -> Mapping[str, object]:
    data = object_or_empty(item.get("document")).get("data")
    if item.get("type") != "document":
        return item
    return {"type": "text", "text": data if isinstance(data, str) else encode(data).decode()}


def _with_plans(message: Message) -> Message:
    parts = [replace(part, family=NAME) if isinstance(part, ProviderItem) else part for part in message.parts]
    return Message(message.role, tuple(parts))
