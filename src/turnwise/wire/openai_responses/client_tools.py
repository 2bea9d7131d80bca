"""A client's tools that are no functions, on their way to an API that has functions alone, and back: namespaces of functions, and
the search for tools that the client does itself.

A name is made of itself alone, so the same history gives the same bytes whatever else stands beside it. The client gets back what
it knows: its own name, its namespace, its kind of item.
"""

from collections.abc import Mapping, Set

import msgspec
from msgspec.structs import replace

from turnwise.vocab import (
    Message,
    NamedTool,
    Opaque,
    Part,
    ProviderItem,
    Request,
    Text,
    ToolCall,
    ToolResult,
    ToolSpec,
)
from turnwise.vocab.json_values import without
from turnwise.vocab.wording import in_ticks
from turnwise.wire.family import BadRequest
from turnwise.wire.json_fields import (
    UNREADABLE,
    Fields,
    encode,
    is_object,
    read_fields,
    read_items,
    string_of,
)
from turnwise.wire.openai_responses.parts import NAME, own_fields
from turnwise.wire.openai_responses.request_reading import decode_tool
from turnwise.wire.relay_facts import ClientTool, PlainTools
from turnwise.wire.tool_names import fitted_name

SEARCH = "tool_search"
"""The name of the function that stands for the client's own search for tools, and the type of the tool."""
SEARCH_CALL = "tool_search_call"
OUTPUT_TEXT = "Found tools. They can be called from now on: "


def plain_tools(request: Request) -> PlainTools:
    """A request of the Responses API with functions in place of namespaces, and of the search that the client does itself."""
    found: dict[str, ClientTool] = {}
    kinds = [(tool.name, string_of(own_fields(tool.opaque), "type")) for tool in request.tools]
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
                        text = OUTPUT_TEXT + (in_ticks([tool.name for tool in added]) or "none")
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


def _in_namespace(name: str, namespace: str) -> ClientTool:
    return ClientTool(name, Opaque(NAME, encode({"namespace": namespace}).decode()))


def _name_of(name: str, namespace: str, found: Mapping[str, ClientTool], singles: Set[str]) -> str:
    """The name of a function outside of its namespace. A marked one where another tool has the usual name."""
    usual = f"{namespace}{name}" if namespace.endswith("__") else f"{namespace}__{name}"
    tool = _in_namespace(name, namespace)
    if usual not in singles and found.get(usual, tool) == tool:
        return usual
    return fitted_name(f"{namespace}\n{name}")


def _plain(tools: tuple[ToolSpec, ...], found: dict[str, ClientTool], singles: Set[str]) -> list[ToolSpec]:
    """These as functions; the client's names of those that were not functions go to `found`. `singles` have no namespace."""
    plain: list[ToolSpec] = []
    for tool in tools:
        own = own_fields(tool.opaque)
        kind = string_of(own, "type")
        if kind == "namespace":
            namespace = string_of(own, "name") or tool.name
            for inner in _tools_of(own):
                name = _name_of(inner.name, namespace, found, singles)
                found[name] = _in_namespace(inner.name, namespace)
                plain.append(replace(inner, name=name))
        elif kind == SEARCH and string_of(own, "execution") == "client":
            found[name := _search_name(singles)] = ClientTool(SEARCH, item=search_item)
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
    own = own_fields(tool.opaque)
    return replace(tool, opaque=_rest(own, "defer_loading")) if "defer_loading" in own else tool


def _plain_call(call: ToolCall, found: Mapping[str, ClientTool], singles: Set[str]) -> ToolCall:
    own = own_fields(call.opaque)
    namespace = string_of(own, "namespace")
    if not namespace:
        return call
    return replace(call, name=_name_of(call.name, namespace, found, singles), opaque=_rest(own, "namespace"))


def _rest(own: Fields, key: str) -> Opaque | None:
    rest = without(own, (key,))
    return Opaque(NAME, encode(rest).decode()) if rest else None


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


def search_item(call: ToolCall) -> ProviderItem:
    """The call of the client's own search as it knows it."""
    try:
        arguments: object = msgspec.Raw(call.arguments.encode())
        read_fields(call.arguments)
    except UNREADABLE:
        arguments = {}
    fields = {"type": SEARCH_CALL, "call_id": call.id, "execution": "client", "arguments": arguments}
    return ProviderItem(NAME, SEARCH_CALL, encode({**fields, "status": "completed"}).decode())
