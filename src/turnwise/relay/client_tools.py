"""A client's tools and their calls on their way to an API that has no such form, and back: long names, other characters in names,
namespaces of functions, and the search for tools that the client does itself.

A name is made of itself alone, so the same history gives the same bytes whatever else stands beside it. The client gets back what
it knows: its own name, its namespace, its kind of item.
"""

import re
from collections.abc import Mapping, Sequence, Set

import msgspec
from msgspec.structs import replace

from turnwise.vocab import (
    ArgumentsState,
    BlockData,
    BlockEnded,
    Frame,
    Message,
    NamedTool,
    Opaque,
    Part,
    PartDone,
    ProviderItem,
    Repair,
    Request,
    Response,
    Text,
    ToolCall,
    ToolCallDelta,
    ToolResult,
    ToolSpec,
    calls_of,
)
from turnwise.wire.family import BadRequest
from turnwise.wire.free_form import FREE_FORM_PARAMETER
from turnwise.wire.json_fields import (
    UNREADABLE,
    Fields,
    encode,
    fields_in,
    is_object,
    read_fields,
    read_items,
    string_of,
    without,
)
from turnwise.wire.offers import fitted_tool
from turnwise.wire.openai_responses.fields import NAME as RESPONSES
from turnwise.wire.openai_responses.request_reading import decode_tool
from turnwise.wire.profiles import Profile
from turnwise.wire.tool_names import TAKEN, fitted_name

SEARCH = "tool_search"
"""The name of the function that stands for the client's own search for tools, and the type of the tool."""
SEARCH_CALL = "tool_search_call"
OUTPUT_TEXT = "Found tools. They can be called from now on: "


class ClientTool(msgspec.Struct, frozen=True):
    """What the client calls the tool. `is_search`: a call of it is the client's own search for tools."""

    name: str
    namespace: str = ""
    is_search: bool = False


class PlainTools(msgspec.Struct, frozen=True):
    """The request with functions alone. `tools` are the client's, by the names that stand in the request."""

    request: Request
    tools: Mapping[str, ClientTool] = {}


# --- names


def fit_names(plain: PlainTools, *, profile: Profile, crosses: bool = True) -> PlainTools:
    """The same with names that the endpoint takes: those of its row, and where the request `crosses` of its family."""
    request = plain.request
    takes = [TAKEN[profile.family]] if crosses else []
    takes += [re.compile(profile.tool_names)] if profile.tool_names else []
    called = [
        part.name for message in request.messages for part in message.parts if isinstance(part, ToolCall | ToolResult)
    ]
    names = dict.fromkeys([*[tool.name for tool in request.tools if crosses or not _is_servers(tool)], *called])
    refused = [name for name in names if name and not all(one.fullmatch(name) for one in takes)]
    changed = {name: fitted_name(name, beside=names) for name in refused}
    if not changed:
        return plain
    tools = {changed.get(name, name): tool for name, tool in plain.tools.items()}
    tools.update({new: ClientTool(name) for name, new in changed.items() if new not in tools})
    return PlainTools(_renamed(request, changed), tools)


def _is_servers(tool: ToolSpec) -> bool:
    return tool.opaque is not None and "type" in fields_in(tool.opaque, family=tool.opaque.family)


def callable_tools(request: Request) -> tuple[Request, list[str]]:
    """The request without the tools that no call could fit, and their names."""
    left_out = [tool.name for tool in request.tools if fitted_tool(tool).root == "never"]
    if not left_out:
        return request, left_out
    tools = tuple([tool for tool in request.tools if fitted_tool(tool).root != "never"])
    choice = request.tool_choice
    is_lost = not tools if isinstance(choice, str) else choice.name in left_out
    return replace(request, tools=tools, tool_choice="auto" if is_lost else choice), left_out


def _renamed(request: Request, names: Mapping[str, str]) -> Request:
    choice = request.tool_choice
    return replace(
        request,
        tools=tuple([replace(tool, name=names.get(tool.name, tool.name)) for tool in request.tools]),
        messages=tuple([_message_renamed(message, names) for message in request.messages]),
        tool_choice=NamedTool(names.get(choice.name, choice.name)) if isinstance(choice, NamedTool) else choice,
    )


def _message_renamed(message: Message, names: Mapping[str, str]) -> Message:
    if not any(isinstance(part, ToolCall | ToolResult) and part.name in names for part in message.parts):
        return message
    parts = [
        replace(part, name=names[part.name]) if isinstance(part, ToolCall | ToolResult) and part.name in names else part
        for part in message.parts
    ]
    return Message(message.role, tuple(parts))


# --- namespaces, and the search for tools


def flat_name(namespace: str, name: str) -> str:
    """The name of a function outside of its namespace."""
    return f"{namespace}{name}" if namespace.endswith("__") else f"{namespace}__{name}"


def plain_tools(request: Request) -> PlainTools:
    """A request of the Responses API with functions in place of namespaces, and of the search that the client does itself."""
    found: dict[str, ClientTool] = {}
    kinds = [(tool.name, string_of(fields_in(tool.opaque, family=RESPONSES), "type")) for tool in request.tools]
    singles = {name for name, kind in kinds if kind not in ("namespace", SEARCH)}
    tools = _plain(request.tools, found, singles)
    messages: list[Message] = []
    names: dict[str, str] = {}  # of calls, by their ids
    for message in request.messages:
        parts: list[Part] = []
        for part in message.parts:
            match part:
                case ToolCall():
                    parts.append(call := _plain_call(part, found, singles))
                    names[call.id] = call.name
                case ToolResult(call_id=id) if names.get(id, part.name) != part.name:
                    parts.append(replace(part, name=names[id]))
                case ProviderItem(family="openai_responses", kind="tool_search_call"):
                    parts.append(_search_call(part, singles) or part)
                case ProviderItem(family="openai_responses", kind="tool_search_output" | "additional_tools"):
                    fields = read_fields(part.json)
                    added = _plain(_tools_of(fields), found, singles)
                    tools += [tool for tool in added if tool.name not in {one.name for one in tools}]
                    if (id := string_of(fields, "call_id")) is not None and part.kind == "tool_search_output":
                        text = OUTPUT_TEXT + (", ".join([f"`{tool.name}`" for tool in added]) or "none")
                        parts.append(ToolResult(call_id=id, name=_search_name(singles), content=(Text(text),)))
                    elif part.kind == "tool_search_output":
                        parts.append(part)
                case ProviderItem(family="openai_responses", kind="agent_message"):
                    parts += _agent_texts(part)
                case _:
                    parts.append(part)
        messages += _in_roles(message, parts)
    if not found and tuple(messages) == request.messages:
        return PlainTools(request)
    choice = request.tool_choice
    if isinstance(choice, NamedTool) and choice.name not in {tool.name for tool in tools}:
        flat = [name for name, tool in found.items() if tool.name == choice.name]
        choice = NamedTool(flat[0]) if len(flat) == 1 else choice
    return PlainTools(replace(request, tools=tuple(tools), messages=tuple(messages), tool_choice=choice), found)


def _in_roles(message: Message, parts: list[Part]) -> list[Message]:
    """The message, and those of another role that its items became."""
    if tuple(parts) == message.parts:
        return [message]
    made: list[Message] = []
    for part in parts:
        role = message.role
        if isinstance(part, ToolResult):
            role = "tool"
        elif isinstance(part, ToolCall):
            role = "assistant"
        elif isinstance(part, Text) and role == "assistant" and part not in message.parts:
            role = "user"
        if made and made[-1].role == role:
            made[-1] = Message(role, (*made[-1].parts, part))
        else:
            made.append(Message(role, (part,)))
    return made


def _search_name(singles: Set[str]) -> str:
    """The name of the client's own search as a function: a marked one where a function of the client has the usual name."""
    return SEARCH if SEARCH not in singles else fitted_name(f"{SEARCH}\nclient")


def _name_of(tool: ClientTool, found: Mapping[str, ClientTool], singles: Set[str]) -> str:
    """The name of a function outside of its namespace. A marked one where another tool has the usual name."""
    usual = flat_name(tool.namespace, tool.name)
    if usual not in singles and found.get(usual, tool) == tool:
        return usual
    return fitted_name(f"{tool.namespace}\n{tool.name}")


def _plain(tools: tuple[ToolSpec, ...], found: dict[str, ClientTool], singles: Set[str]) -> list[ToolSpec]:
    """These as functions; what the client calls those that were none goes to `found`. `singles` have no namespace."""
    plain: list[ToolSpec] = []
    for tool in tools:
        own = fields_in(tool.opaque, family=RESPONSES)
        kind = string_of(own, "type")
        if kind == "namespace":
            namespace = string_of(own, "name") or tool.name
            for inner in _tools_of(own):
                named = ClientTool(inner.name, namespace)
                found[name := _name_of(named, found, singles)] = named
                plain.append(replace(inner, name=name))
        elif kind == SEARCH and string_of(own, "execution") == "client":
            found[name := _search_name(singles)] = ClientTool(SEARCH, is_search=True)
            search = ToolSpec(name=name, description=string_of(own, "description") or "Find tools.")
            parameters = own.get("parameters")
            is_said = parameters is not None and is_object(parameters)
            plain.append(replace(search, parameters=bytes(parameters or b"").decode()) if is_said else search)
        else:
            plain.append(tool)
    return plain


def _tools_of(fields: Fields) -> tuple[ToolSpec, ...]:
    raw = fields.get("tools")
    try:
        return () if raw is None else tuple([_loaded(decode_tool(one, "tools")) for one in read_items(raw)])
    except (*UNREADABLE, BadRequest):
        return ()


def _loaded(tool: ToolSpec) -> ToolSpec:
    """A tool of a list that was found, or of a namespace, is there to be called: nothing about it waits for a search."""
    own = fields_in(tool.opaque, family=RESPONSES)
    if "defer_loading" not in own:
        return tool
    rest = without(own, ("defer_loading",))
    return replace(tool, opaque=Opaque(RESPONSES, encode(rest).decode()) if rest else None)


def _plain_call(call: ToolCall, found: Mapping[str, ClientTool], singles: Set[str]) -> ToolCall:
    own = fields_in(call.opaque, family=RESPONSES)
    namespace = string_of(own, "namespace")
    if not namespace:
        return call
    rest = without(own, ("namespace",))
    opaque = Opaque(RESPONSES, encode(rest).decode()) if rest else None
    return replace(call, name=_name_of(ClientTool(call.name, namespace), found, singles), opaque=opaque)


def _search_call(item: ProviderItem, singles: Set[str]) -> ToolCall | None:
    fields = read_fields(item.json)
    id, arguments = string_of(fields, "call_id"), fields.get("arguments")
    if id is None or string_of(fields, "execution") != "client":
        return None
    text = "{}" if arguments is None or not is_object(arguments) else bytes(arguments).decode()
    return ToolCall(id=id, name=_search_name(singles), arguments=text)


def _agent_texts(item: ProviderItem) -> list[Part]:
    """What another agent said, as far as it can be read; what is encrypted stays an item of its provider."""
    fields = read_fields(item.json)
    content = fields.get("content")
    texts: list[Part] = []
    for raw in () if content is None else read_items(content):
        text = string_of(read_fields(raw), "text") if is_object(raw) else None
        if text is None:
            return [item]
        author = string_of(fields, "author")
        texts.append(Text(f"[message from the agent `{author}`]\n{text}" if author else text))
    return texts or [item]


# --- back


def search_item(call: ToolCall) -> ProviderItem:
    """The call of the client's own search as it knows it."""
    try:
        arguments: object = msgspec.Raw(call.arguments.encode())
        read_fields(call.arguments)
    except UNREADABLE:
        arguments = {}
    fields = {"type": SEARCH_CALL, "call_id": call.id, "execution": "client", "arguments": arguments}
    return ProviderItem(RESPONSES, SEARCH_CALL, encode({**fields, "status": "completed"}).decode())


# What a client is not given of a response's calls, or in another form than the upstream wrote it.


_OF_BLOCKS = (ToolCallDelta, PartDone, BlockData, BlockEnded)


class CallFilter:
    """`most`: as many calls a response as the client takes, None: any. `text_tools`: tools whose calls are free text to the
    client and JSON to the upstream; such a call goes out as a whole, since half of its JSON is no text. `tools`: what the client
    calls a tool, by the name that the upstream knows; a search of the client's own goes out as a whole as well."""

    def __init__(
        self,
        *,
        most: int | None = None,
        text_tools: frozenset[str] = frozenset(),
        tools: Mapping[str, ClientTool] | None = None,
    ) -> None:
        self._most = most
        self._text_tools = text_tools
        self._tools = tools or {}
        self._kept: set[str] = set()
        self._dropped: set[str] = set()  # blocks of calls that do not go out by pieces

    @property
    def does_nothing(self) -> bool:
        return self._most is None and not self._text_tools and not self._tools

    def without(self, healed: list[Frame]) -> list[Frame]:
        """The frames that go to the client as they come."""
        kept = [frame for frame in healed if not isinstance(frame, _OF_BLOCKS) or self._goes_out(frame)]
        return [as_known for frame in kept for as_known in self._as_known(frame)] if self._tools else kept

    def _as_known(self, frame: Frame) -> Sequence[Frame]:
        """The frame with the client's own name of the tool; where it is in a namespace, that comes first."""
        name = _called_by(frame)
        tool = None if name is None else self._tools.get(name)
        if tool is None:
            return (frame,)
        if isinstance(frame, ToolCallDelta):
            renamed: Frame = msgspec.structs.replace(frame, name=tool.name)
        else:
            assert isinstance(frame, PartDone) and isinstance(frame.part, ToolCall)
            renamed = msgspec.structs.replace(frame, part=_as_client_knows(frame.part, tool))
        namespace = _namespace_of(tool)
        return (renamed,) if namespace is None else (BlockData(frame.block or "", namespace), renamed)

    def _goes_out(self, frame: ToolCallDelta | PartDone | BlockData | BlockEnded) -> bool:
        block = frame.block or ""
        name = _called_by(frame)
        if name is not None and block not in self._kept and block not in self._dropped:
            is_surplus = self._most is not None and len(self._kept) + len(self._dropped) >= self._most
            tool = self._tools.get(name)
            as_whole = (name if tool is None else tool.name) in self._text_tools or (
                tool is not None and tool.is_search
            )
            (self._dropped if is_surplus or as_whole else self._kept).add(block)
        return block not in self._dropped

    def shape(self, response: Response) -> tuple[Response, Sequence[Repair]]:
        """The response as the client gets it, and what it is told of that."""
        if self.does_nothing:
            return response, ()
        calls = calls_of(response.message)
        surplus = {call.id for call in calls[len(calls) if self._most is None else self._most :]}
        parts: list[Part] = []
        for part in response.message.parts:
            if not isinstance(part, ToolCall):
                parts.append(part)
            elif part.id not in surplus and (shaped := self._as_client_call(part)) is not None:
                parts.append(shaped)
        told = [Repair("calls_left_out", "response", f"the client takes {self._most} at a time")] if surplus else []
        return msgspec.structs.replace(
            response, message=msgspec.structs.replace(response.message, parts=tuple(parts))
        ), told

    def _as_client_call(self, call: ToolCall) -> ToolCall | ProviderItem | None:
        tool = self._tools.get(call.name)
        if tool is None:
            return self._as_text(call)
        if not tool.is_search:
            return self._as_text(_as_client_knows(call, tool))
        return search_item(call) if call.state is ArgumentsState.COMPLETE else None

    def _as_text(self, call: ToolCall) -> ToolCall | None:
        """The call with its text in place of the object around it; None for a cut one, which would look whole."""
        if call.name not in self._text_tools or call.free_form:
            return call
        if call.state is not ArgumentsState.COMPLETE:
            return None
        try:
            text = string_of(read_fields(call.arguments), FREE_FORM_PARAMETER)
        except UNREADABLE:
            text = None
        arguments = call.arguments if text is None else text
        return msgspec.structs.replace(call, arguments=arguments, free_form=True, opaque=None)


def _called_by(frame: Frame) -> str | None:
    """Of a call that the frame names."""
    if isinstance(frame, ToolCallDelta):
        return frame.name
    return frame.part.name if isinstance(frame, PartDone) and isinstance(frame.part, ToolCall) else None


def _as_client_knows(call: ToolCall, tool: ClientTool) -> ToolCall:
    namespace = _namespace_of(tool)
    return msgspec.structs.replace(call, name=tool.name, opaque=call.opaque if namespace is None else namespace)


def _namespace_of(tool: ClientTool) -> Opaque | None:
    return (
        Opaque("openai_responses", msgspec.json.encode({"namespace": tool.namespace}).decode())
        if tool.namespace
        else None
    )
