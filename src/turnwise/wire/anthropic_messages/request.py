"""Requests of the Messages API, both ways.

The body begins with what stays the same over a turn (model, tools, system: the order in which the API reads them), then the
messages, then what a step may change.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Literal, get_args
from urllib.parse import quote as quote_path

import msgspec

from turnwise.vocab import (
    Message,
    NamedTool,
    Request,
    Settings,
    ToolCall,
    ToolResult,
    ToolSpec,
    new_tools_in,
    tells_instructions,
)
from turnwise.wire.anthropic_messages.parts import (
    NAME,
    merged,
    own_fields,
    write_blocks,
    write_tool_result,
    write_tool_use,
)
from turnwise.wire.anthropic_messages.thinking import (
    Way,
    ask_to_drop,
    binds_thinking,
    may_think_by_budget,
    show,
    way_of,
    with_beta,
)
from turnwise.wire.cache_marks import Marking, end_of_content, marking_of
from turnwise.wire.encoded_history import MESSAGES, CallFrame, EncodedHistory, around
from turnwise.wire.family import HttpCall, call_of
from turnwise.wire.files import files_in_words
from turnwise.wire.generations import adapt_claude, generation_of, in_words, tells_behind
from turnwise.wire.json_fields import (
    UNREADABLE,
    Fields,
    bytes_of,
    is_null,
    quote,
    read_fields,
    string_of,
    write_array,
    write_object,
)
from turnwise.wire.offers import FREE_FORM_SCHEMA, fitted_tool, instructions, kept_by_tool, offered_tools
from turnwise.wire.profiles import FALLBACK_MAX_TOKENS, Profile
from turnwise.wire.tool_names import WireNames, wire_names

API_VERSION = "2023-06-01"
"""Sent unless the profile names one. The later 2026-10-21 takes away `temperature` and `top_p`, and Amazon Bedrock and most
compatible servers do not know it (API docs, "Versions" and "Migrating to API version 2026-10-21")."""

MIN_BUDGET_TOKENS = 1024  # the least thinking budget that the API takes

EFFORT_WORDS = {"minimal": "low", "low": "low", "medium": "medium", "high": "high", "xhigh": "xhigh", "max": "max"}
EFFORT_BUDGETS = {"minimal": 1024, "low": 2048, "medium": 8192, "high": 16384, "xhigh": 32768, "max": 32768}
"""Thinking budgets for models and endpoints that know no effort (`reasoning_request = "budget"`)."""


TOOLS_BETA = "inline-tools-2026-09-15"  # a tool is defined in a message

WireRole = Literal["user", "assistant", "system"]


def encode_request(request: Request, profile: Profile, *, history: EncodedHistory | None = None) -> HttpCall:
    history = history or EncodedHistory()
    request, told = in_words(request)
    settings = request.settings
    thinks = settings.reasoning_effort is not None or settings.reasoning_tokens is not None
    may_think = thinks and may_think_by_budget(request.messages)
    frame = history.frame(request, profile, make=_frame, also=may_think)
    call = call_of(frame, written=history.write_body(frame, messages=request.messages))
    return msgspec.structs.replace(call, adapted=(*told, *call.adapted)) if told else call


def _frame(request: Request, profile: Profile) -> CallFrame:
    if request.lessons:
        profile = profile.taught(request.lessons)
    tells = profile.told_behind and tells_behind(request.model)
    fields, added = _fields(request, profile, tells=tells)
    row = generation_of(request.model, "claude")
    adapted = () if row is None else tuple(adapt_claude(fields, row))
    in_body = "anthropic_version" in fields or "anthropic-version" in {key.lower() for key in profile.headers}
    headers = () if in_body else (("anthropic-version", API_VERSION),)
    if request.shows_thinking and row is not None and row.moves_text:
        show(fields)
    if request.drops_stale_thinking and binds_thinking(request.model) and ask_to_drop(fields):
        headers = with_beta(fields, headers)
    if added:
        headers = with_beta(fields, headers, beta=TOOLS_BETA)
    path = _path(request, profile)
    if fields.get("messages") is not MESSAGES:  # `extra` has put its own in their place
        return CallFrame(path=path, headers=headers, head=write_object(fields), adapted=adapted)
    head, tail = around(fields, name="messages")
    marking = _marking(request, profile, fields=fields, head=head)
    names = wire_names(request.tools, profile)
    says_system = tells and request.system_in_input
    return CallFrame(
        path=path,
        headers=headers,
        head=head,
        tail=tail,
        items=BlockItems(profile, names=names, says_system=says_system, added=added),
        rests_on=(profile, names.own, marking is None, says_system, added),
        marking=marking,
        adapted=adapted,
    )


def _marking(request: Request, profile: Profile, *, fields: dict[str, bytes], head: bytes) -> Marking | None:
    """Source: Anthropic docs, "Prompt caching": tools come first, then the system text, then the messages."""
    way = profile.cache_way(request.model)
    if request.cache is None or way not in ("blocks", "top"):
        return None
    marking = marking_of(
        head,
        arrays={name: fields[name] for name in ("tools", "system") if name in fields},
        hour=request.cache.hour and profile.takes_ttl(request.model),
        passing=request.cache.passing,
        place=_end_of_user_message,
        at_top=fields.get("cache_control"),
        at_end=way == "top",
    )
    return msgspec.structs.replace(marking, shared_only=request.cache.shared_only)


def _end_of_user_message(item: bytes) -> int | None:
    return end_of_content(item) if item.startswith(b'{"role":"user"') else None


def _fields(request: Request, profile: Profile, *, tells: bool) -> tuple[dict[str, bytes], dict[str, bytes]]:
    """The fields of a body, and the tools that stand where messages tell of them, by name. One tool at least is in front: without
    any, the first one that a message defines changes the beginning of the prompt (API docs, "Define tools in a message")."""
    fields: dict[str, bytes] = {}
    if profile.model_in_body:
        fields["model"] = quote(request.model)
    offered = offered_tools(request, profile, family=NAME)
    later = frozenset(request.appended_tools) if tells else frozenset[str]()
    if later.issuperset([tool.name for tool in offered]):
        later = frozenset[str]()
    tools = encode_tools([tool for tool in offered if tool.name not in later], request, profile)
    behind = [tool for tool in offered if tool.name in later]
    added = {tool.name: raw for tool, raw in zip(behind, encode_tools(behind, request, profile), strict=True)}
    if tools:
        fields["tools"] = write_array(tools)
    system = write_blocks(Message("system", instructions(request, profile)), profile)
    if system:
        fields["system"] = write_array(system)
    fields["messages"] = MESSAGES
    fields |= _step_fields(request, profile, has_tools=bool(tools))
    if profile.body:
        own = read_fields(profile.body)
        _put_over(fields, own)
        for key in [key for key, value in own.items() if is_null(value)]:
            del fields[key]  # the row takes it away (RFC 7396)
    _put_over(fields, own_fields(request.extra))
    return fields, added


def _path(request: Request, profile: Profile) -> str:
    path = (profile.stream_path if request.stream else None) or profile.path or "/v1/messages"
    # Vertex has `@` and Bedrock `:` in the names of models.
    return path.replace("{model}", quote_path(request.model, safe=":@"))


def _put_over(fields: dict[str, bytes], over: Fields) -> None:
    """Every key replaces; only `output_config` is merged, as effort and format share it."""
    for key, raw in over.items():
        value = bytes(raw)
        if key == "output_config" and key in fields:
            try:
                both = {
                    name: bytes(part) for part_of in (fields[key], value) for name, part in read_fields(part_of).items()
                }
            except UNREADABLE:
                both = None
            value = value if both is None else write_object(both)
        fields[key] = value


# --- messages


def encode_message(message: Message, profile: Profile, names: WireNames) -> tuple[WireRole, list[bytes]]:
    """One message as blocks; no blocks where nothing of it can be sent."""
    if message.role == "assistant":
        parts = files_in_words(names.fitted(message.parts), family=NAME)
        return "assistant", write_blocks(Message("assistant", parts), profile)
    role = "system" if message.role == "system" and profile.mid_system else "user"
    return role, write_blocks(message, profile)


class BlockItems:
    """Neighbours of one role become one message, as the API makes of them anyway; tool results come first in theirs,
    because it refuses anything before them.

    What tells of tools (`added`, encoded, by name) or, if `says_system`, of changed instructions goes behind what the user says:
    such a message "must immediately follow a `user` turn" and be the last one or stand before the assistant's (API docs,
    "Mid-conversation system messages and tool changes", read in November 2026).
    """

    def __init__(
        self,
        profile: Profile,
        *,
        names: WireNames,
        says_system: bool = False,
        added: Mapping[str, bytes] | None = None,
    ) -> None:
        self._profile = profile
        self._names = names
        self._says_system = says_system
        self._added = added or {}
        self._role: WireRole | None = None  # of the message that is not whole yet; None before the first one
        self._blocks: list[bytes] = []
        self._results = 0  # so many of the blocks are results
        self._told: list[bytes] = []  # stand behind the user's message

    def take(self, messages: Sequence[Message]) -> list[bytes]:
        found: list[bytes] = []
        profile, names = self._profile, self._names
        for message in messages:
            if message.role == "system" and self._holds_back(message):
                continue
            role, blocks = _usual(message, profile, names) or encode_message(message, profile, names)
            if not blocks:
                continue
            if role != self._role:
                if self._role is not None:
                    found.append(_message(self._role, self._blocks))
                if self._told and self._role == "user":
                    found.append(_message("system", self._told))
                    self._told = []
                self._role, self._blocks, self._results = role, [], 0
            if message.role == "tool":
                self._blocks[self._results : self._results] = blocks
                self._results += len(blocks)
            else:
                self._blocks += blocks
        return found

    def _holds_back(self, message: Message) -> bool:
        """Whether the message goes behind the user's words. Tools that are no longer offered have no place in it."""
        if self._added and (names := new_tools_in(message)):
            self._told += [_addition(self._added[name]) for name in names if name in self._added]
            return True
        if self._says_system and tells_instructions(message):
            self._told += write_blocks(message, self._profile)
            return True
        return False

    def rest(self) -> list[bytes]:
        if self._role is None:
            return []
        blocks = _trimmed_end(self._blocks) if self._role == "assistant" else self._blocks
        told = [_message("system", self._told)] if self._told and self._role == "user" else []
        return [_message(self._role, blocks), *told] if blocks else []

    def copy(self) -> "BlockItems":
        copied = BlockItems(self._profile, names=self._names, says_system=self._says_system, added=self._added)
        copied._role, copied._blocks, copied._results = self._role, list(self._blocks), self._results
        copied._told = list(self._told)
        return copied


def _addition(tool: bytes) -> bytes:
    return b'{"type":"tool_addition","tool":{"type":"tool_definition","definition":' + tool + b"}}"


def _usual(message: Message, profile: Profile, names: WireNames) -> tuple[WireRole, list[bytes]] | None:
    """`encode_message` of one call or one result, which long histories are made of; None for any other message."""
    parts = message.parts
    if len(parts) != 1:
        return None
    part = parts[0]
    if type(part) is ToolCall and message.role == "assistant":
        return "assistant", [write_tool_use(part, names[part.name])]
    if type(part) is ToolResult and message.role == "tool":
        return "user", [write_tool_result(part, profile)]
    return None


def _message(role: WireRole, blocks: Sequence[bytes]) -> bytes:
    return _OPENED[role] + b",".join(blocks) + b"]}"  # sooner than by a format


_OPENED: dict[WireRole, bytes] = {role: f'{{"role":"{role}","content":['.encode() for role in get_args(WireRole)}


def _trimmed_end(blocks: Sequence[bytes]) -> Sequence[bytes]:
    """The API's 400 otherwise: "final assistant content cannot end with trailing whitespace"."""
    fields = bytes_of(read_fields(blocks[-1]))
    if fields["type"] != b'"text"':
        return blocks
    text = msgspec.json.decode(fields["text"], type=str).rstrip()
    fields["text"] = quote(text)
    return [*blocks[:-1], write_object(fields)] if text else blocks[:-1]


# --- tools


def encode_tools(tools: Iterable[ToolSpec], request: Request, profile: Profile) -> list[bytes]:
    eager = profile.fine_grained_tool_streaming and request.stream
    return [_written_tool(spec, profile.strict_tools, eager) for spec in tools]


@kept_by_tool
def _written_tool(spec: ToolSpec, takes_strict: bool, eager: bool) -> bytes:
    """The tool encoded, once for all requests that offer it. A server-side tool goes as it came. `eager` asks for argument
    pieces as they are generated, instead of whole values (API docs, "Fine-grained tool streaming")."""
    own = own_fields(spec.opaque)
    if "type" in own and string_of(own, "type") != "custom":
        return write_object(bytes_of(own))
    spec = fitted_tool(spec, "object").spec
    fields = {"name": quote(spec.name)}
    if spec.description:
        fields["description"] = quote(spec.description)
    fields["input_schema"] = (FREE_FORM_SCHEMA if spec.free_form else spec.parameters).encode()
    if spec.strict and takes_strict:
        fields["strict"] = b"true"
    if eager:
        fields["eager_input_streaming"] = b"true"
    return write_object(merged(fields, spec.opaque))


# --- what a step may change


def _step_fields(request: Request, profile: Profile, *, has_tools: bool) -> dict[str, bytes]:
    fields: dict[str, bytes] = {}
    choice = _tool_choice(request, profile) if has_tools else None
    if choice is not None:
        fields["tool_choice"] = choice
    settings = request.settings
    way = way_of(request.model, profile)
    thinking, max_tokens = _thinking(settings, profile, way=way)
    knows_budgets = generation_of(request.model, "claude") is None
    if knows_budgets and thinking and b'"enabled"' in thinking and not may_think_by_budget(request.messages):
        thinking = None
    if has_tools and thinking is not None and _is_forced(request):
        thinking = None  # "Thinking may not be enabled when tool_choice forces tool use."
    if thinking is not None:
        fields["thinking"] = thinking
    config = _output_config(request, profile)
    if config:
        fields["output_config"] = write_object(config)
    fields["max_tokens"] = str(max_tokens).encode()
    is_thinking = thinking is not None and thinking != b'{"type":"disabled"}'
    if settings.temperature is not None and (not is_thinking or settings.temperature == 1):  # thinking takes no other
        fields["temperature"] = msgspec.json.encode(settings.temperature)
    if settings.top_p is not None:
        fields["top_p"] = msgspec.json.encode(settings.top_p)
    if settings.stop:
        fields["stop_sequences"] = write_array([quote(stop) for stop in settings.stop])
    if request.stream:
        fields["stream"] = b"true"
    return fields


def _is_forced(request: Request) -> bool:
    return request.tool_choice == "required" or isinstance(request.tool_choice, NamedTool)


def _tool_choice(request: Request, profile: Profile) -> bytes | None:
    parallel = request.parallel_tool_calls if profile.sends_parallel_tool_calls else None
    match request.tool_choice:
        case "auto":
            if parallel is None:
                return None
            fields = {"type": b'"auto"'}
        case "none":
            return b'{"type":"none"}'
        case "required":
            fields = {"type": b'"any"'}
        case NamedTool(name=name):
            fields = {"type": b'"tool"', "name": quote(name)}
    if parallel is not None:
        fields["disable_parallel_tool_use"] = b"false" if parallel else b"true"
    return write_object(fields)


def _thinking(settings: Settings, profile: Profile, *, way: Way) -> tuple[bytes | None, int]:
    """The `thinking` field, and `max_tokens`, which has to be larger than its budget: a limit that the user set stands and
    the budget gives way; one that we chose grows."""
    max_tokens = settings.max_output_tokens
    default = profile.sent_max_tokens or FALLBACK_MAX_TOKENS
    effort = settings.reasoning_effort
    budget = settings.reasoning_tokens
    if way == "none":
        return None, max_tokens or default
    if budget is None and way == "budget" and effort is not None:
        budget = EFFORT_BUDGETS.get(effort)
    if effort == "none":
        return b'{"type":"disabled"}', max_tokens or default
    if budget is None:
        adaptive = effort is not None
        return (b'{"type":"adaptive"}' if adaptive else None), max_tokens or default
    if max_tokens is None:
        return _budget(budget), budget + default
    return (_budget(min(budget, max_tokens - 1)) if max_tokens > MIN_BUDGET_TOKENS else None), max_tokens


def _budget(tokens: int) -> bytes:
    return b'{"type":"enabled","budget_tokens":' + str(tokens).encode() + b"}"


def _output_config(request: Request, profile: Profile) -> dict[str, bytes]:
    config: dict[str, bytes] = {}
    effort = request.settings.reasoning_effort
    if effort in EFFORT_WORDS and way_of(request.model, profile) == "adaptive":
        config["effort"] = quote(EFFORT_WORDS[effort])
    if request.output is not None and profile.output == "json_schema":
        config["format"] = b'{"type":"json_schema","schema":' + request.output.schema.encode() + b"}"
    return config
