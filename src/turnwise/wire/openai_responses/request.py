"""Requests of the Responses API (`POST /responses`), both ways. Opaque keys: see parts.py, and for tools below.

Opaque data on a `ToolSpec`: a server-side tool whole (it then has a `type`), or further fields of a function
(`defer_loading`) or custom tool (`format`). `Request.extra`: every body field that has no word in the vocabulary.

We keep no state at the provider: `store` is false and reasoning comes back encrypted, to be sent again. A body that a
client wrote keeps what it says (or leaves unsaid) in `extra`.
"""

from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby

import msgspec

from turnwise.vocab import (
    ArgumentsState,
    File,
    Message,
    NamedTool,
    OutputSchema,
    Part,
    ProviderItem,
    Reasoning,
    Refusal,
    Request,
    Text,
    ToolCall,
    ToolChoice,
    ToolResult,
    ToolSpec,
    new_tools_in,
)
from turnwise.wire.cache_marks import cache_key_fields
from turnwise.wire.encoded_history import CallFrame, EncodedHistory
from turnwise.wire.family import HttpCall, call_of
from turnwise.wire.files import files_in_words, left_out, takes_file
from turnwise.wire.generations import adapt_gpt, generation_of
from turnwise.wire.json_fields import Fields, encode, is_object, read_fields, write_object
from turnwise.wire.offers import (
    FREE_FORM_SCHEMA,
    fitted_tool,
    free_form_arguments,
    instructions,
    kept_by_tool,
    offered_tools,
)
from turnwise.wire.openai_responses.parts import (
    NAME,
    call_item,
    header_of,
    message_item,
    own_fields,
    reasoning_item,
    result_item,
    text_at,
    usual_call,
    usual_result,
)
from turnwise.wire.profiles import Profile
from turnwise.wire.tool_names import WireNames, wire_names

PATH = "/responses"
ENCRYPTED_REASONING = "reasoning.encrypted_content"

# They have no reasoning to encrypt, and asking for it risks a 400. In the recorded requests no client asks these models for it
# (ruby_llm asks gpt-5-nano and not gpt-4.1-nano). Delete this once a recorded request to one of them is answered.
MODELS_WITHOUT_REASONING = ("gpt-3.5", "gpt-4", "chatgpt-4")

# Body fields whose value is an object that several words share: `extra` is merged into them, not put in their place.
MERGED = frozenset(("text", "reasoning"))


def encode_request(request: Request, profile: Profile, *, history: EncodedHistory | None = None) -> HttpCall:
    history = history or EncodedHistory()
    frame = history.frame(request, profile, make=_frame)
    return call_of(frame, written=history.write_body(frame, messages=request.messages))


def _frame(request: Request, profile: Profile) -> CallFrame:
    """What stays the same over a turn, then the input, then what a step may change (promise step:prefix-stable)."""
    extra = {**(read_fields(profile.body) if profile.body else {}), **own_fields(request.extra)}
    before: dict[str, object] = {}
    if profile.model_in_body:
        before["model"] = request.model
    leading = list(instructions(request, profile))
    tools = offered_tools(request, profile, family=NAME)
    takes_more = profile.leads_input(request.model)
    leads = request.system_in_input and takes_more
    if leading and leading[0].opaque is None and not leads:
        before["instructions"] = leading.pop(0).text
    form = profile.free_form_tools, profile.strict_tools
    later = request.appended_tools if takes_more else ()
    written = [_written_tool(tool, *form) for tool in tools if tool.name not in later]
    appended = [(tool.name, _written_tool(tool, *form)) for tool in tools if tool.name in later] if later else []
    if written:
        before["tools"] = written
    if profile.stateless:
        before["store"] = False
        if wants_encrypted_reasoning(request.model, effort=request.settings.reasoning_effort):
            before["include"] = [ENCRYPTED_REASONING]
    after = {
        **cache_key_fields(request, profile, tools=written),
        **dict(_changing_fields(request, tools, profile=profile)),
    }
    for key in [key for key in extra if key in before]:
        before[key] = extra.pop(key)
    for key, value in extra.items():
        own = after.get(key)
        after[key] = (
            {**own, **read_fields(value)} if key in MERGED and isinstance(own, dict) and is_object(value) else value
        )
    written_after = {key: encode(value) for key, value in after.items()}
    row = generation_of(request.model, "gpt")
    adapted = () if row is None else tuple(adapt_gpt(written_after, row, is_chat=False))
    names = wire_names(request.tools, profile)
    keeps_bare_reasoning = _is_true(before.get("store", True))
    role = "developer" if leads else profile.system_role
    items = [encode(message_item((text,), role=role)) for text in leading]
    head = encode(before)[:-1] + (b"," if before else b"")
    tail = b"," + write_object(written_after)[1:] if written_after else b"}"
    return CallFrame(
        path=profile.path or PATH,
        head=head + b'"input":[' + b",".join(items),
        tail=b"]" + tail,
        items=ResponseItems(
            profile,
            names=names,
            keeps_bare_reasoning=keeps_bare_reasoning,
            tools=dict(appended) if takes_more else None,
        ),
        rests_on=(profile, names.own, keeps_bare_reasoning, takes_more, appended),
        adapted=adapted,
    )


def _is_true(value: object) -> bool:
    return value is True or (isinstance(value, msgspec.Raw) and bytes(value) == b"true")


def wants_encrypted_reasoning(model: str, *, effort: str | None) -> bool:
    return effort not in (None, "none") or not model.startswith(MODELS_WITHOUT_REASONING)


@kept_by_tool
def _written_tool(tool: ToolSpec, takes_free_form: bool, takes_strict: bool) -> msgspec.Raw:
    """The tool encoded, once for all requests that offer it."""
    return msgspec.Raw(encode(_encode_tool(tool, takes_free_form=takes_free_form, takes_strict=takes_strict)))


def _encode_tool(tool: ToolSpec, *, takes_free_form: bool, takes_strict: bool) -> dict[str, object]:
    own = own_fields(tool.opaque)
    if "type" in own:
        return {**own}
    tool = fitted_tool(tool, "object").spec
    described = {"description": tool.description} if tool.description else {}
    if tool.free_form and takes_free_form:
        return {"type": "custom", "name": tool.name, **described, **own}
    # The API's own default is true.
    strict = {"strict": tool.strict and not tool.free_form} if takes_strict else {}
    if tool.free_form:
        parameters = msgspec.Raw(FREE_FORM_SCHEMA)
        return {"type": "function", "name": tool.name, **described, "parameters": parameters, **strict}
    parameters = msgspec.Raw(tool.parameters)
    return {"type": "function", "name": tool.name, **described, "parameters": parameters, **strict, **own}


def _changing_fields(request: Request, tools: Sequence[ToolSpec], *, profile: Profile) -> Iterator[tuple[str, object]]:
    settings = request.settings
    if tools:
        choice = _encode_tool_choice(request.tool_choice, tools, profile=profile)
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


def _encode_tool_choice(choice: ToolChoice, tools: Sequence[ToolSpec], *, profile: Profile) -> object:
    if isinstance(choice, NamedTool):
        free_form = profile.free_form_tools and any(tool.free_form for tool in tools if tool.name == choice.name)
        return {"type": "custom" if free_form else "function", "name": choice.name}
    return choice


def _output_format(output: OutputSchema, profile: Profile) -> dict[str, object]:
    if profile.output == "json_object":
        return {"type": "json_object"}
    schema = msgspec.Raw(output.schema)
    return {"type": "json_schema", "name": output.name, "schema": schema, "strict": output.strict}


class ResponseItems:
    """The input items of messages; those of one depend on no other. `tools` are those that stand where a message tells of them as
    new, encoded; None: the model takes none there, and reads the message's words."""

    def __init__(
        self,
        profile: Profile,
        *,
        names: WireNames,
        keeps_bare_reasoning: bool,
        tools: Mapping[str, msgspec.Raw] | None = None,
    ) -> None:
        self._profile = profile
        self._names = names
        self._tools = tools
        self._keeps_bare_reasoning = keeps_bare_reasoning

    def take(self, messages: Sequence[Message]) -> list[bytes]:
        found: list[bytes] = []
        for message in messages:
            found += usual_items(message, self._names) or self.items(message)
        return found

    def items(self, message: Message) -> list[bytes]:
        if message.role == "assistant":
            keeps = self._keeps_bare_reasoning
            parts = files_in_words(self._names.fitted(message.parts), family=NAME)
            items = _assistant_items(parts, profile=self._profile, keeps_bare_reasoning=keeps)
        elif self._tools is not None and (names := new_tools_in(message)):
            tools = [self._tools[name] for name in names if name in self._tools]
            items = [{"type": "additional_tools", "role": "developer", "tools": tools}] if tools else []
        else:
            role = self._profile.system_role if message.role == "system" else "user"
            items = _client_items(message.parts, role=role, profile=self._profile)
        return [encode(item) for item in items]

    def rest(self) -> list[bytes]:
        return []

    def copy(self) -> "ResponseItems":
        return self


def usual_items(message: Message, names: WireNames) -> list[bytes] | None:
    """`ResponseItems.items` of a message with whole calls alone, or with results of one text, which long histories are made of;
    None for any other."""
    items: list[bytes] = []
    for part in message.parts:
        if type(part) is ToolCall and message.role == "assistant":
            item = usual_call(part, names[part.name])
        elif type(part) is ToolResult and message.role == "tool":
            item = usual_result(part)
        else:
            return None
        if item is None:
            return None
        items.append(item)
    return items


def _client_items(parts: Sequence[Part], *, role: str, profile: Profile) -> Iterator[dict[str, object]]:
    """Neighbouring texts and files are one message; results and items of our own family stand for themselves."""
    for is_content, run in groupby(parts, key=_is_content):
        if is_content:
            content = [_allowed(part, profile) for part in run if isinstance(part, Text | File | Refusal)]
            yield message_item(content, role=role)
            continue
        for part in run:
            match part:
                case ToolResult():
                    yield result_item(_allowed_result(part, profile))
                case ProviderItem(family=family, json=json) if family == NAME:
                    yield {**read_fields(json)}
                case _:
                    pass


def _is_content(part: Part) -> bool:
    return type(part) is not ToolResult and isinstance(part, Text | File | Refusal)


def _allowed_result(result: ToolResult, profile: Profile) -> ToolResult:
    if not result.free_form and File not in map(type, result.content):  # as nearly always
        return result
    content = tuple([_allowed_in_result(piece, profile) for piece in result.content])
    free_form = result.free_form and profile.free_form_tools
    return msgspec.structs.replace(result, content=content, free_form=free_form)


def _allowed_in_result(part: Text | File, profile: Profile) -> Text | File:
    allowed = _allowed(part, profile)
    return allowed if isinstance(allowed, Text | File) else part


def _allowed(part: Text | File | Refusal, profile: Profile) -> Text | File | Refusal:
    return left_out(part) if isinstance(part, File) and not takes_file(part, profile) else part


def _assistant_items(
    parts: Sequence[Part], *, profile: Profile, keeps_bare_reasoning: bool
) -> Iterator[dict[str, object]]:
    for run in text_runs(parts):
        if type(run[0]) is ToolCall:  # the usual one: sooner told than by a pattern
            yield _call(run[0], profile=profile)
            continue
        match run:
            case [Text() | Refusal(), *_]:
                texts = [part for part in run if isinstance(part, Text | Refusal)]
                yield message_item(texts, role="assistant", is_request=True)
            case [Reasoning() as part]:
                own = own_fields(part.opaque)
                if own and (keeps_bare_reasoning or text_at(own, "encrypted_content") or "content" in own):
                    yield reasoning_item(part)
            case [ProviderItem(family=family, json=json)] if family == NAME:
                yield {**read_fields(json)}
            case _:
                pass


def _call(call: ToolCall, *, profile: Profile) -> dict[str, object]:
    if not call.free_form:
        whole = call.state == ArgumentsState.COMPLETE
        return call_item(call, arguments=call.arguments if whole else "{}")
    if profile.free_form_tools:
        return call_item(call, arguments=call.arguments)
    described = msgspec.structs.replace(call, free_form=False)
    return call_item(described, arguments=free_form_arguments(call.arguments))


def text_runs(parts: Sequence[Part]) -> Iterator[list[Part]]:
    """Each part alone, but the texts and refusals that came in one message item together."""
    run: list[Part] = []
    header: Fields = {}
    for part in parts:
        own = header_of(part) if type(part) is Text or type(part) is Refusal else {}
        if run and own and encode(own) == encode(header):
            run.append(part)
            continue
        if run:
            yield run
        run, header = [part], own
    if run:
        yield run
