"""A client's tools and their calls on their way to an API that takes other names, and back; and the calls that a client is not
given, or in another form than the upstream wrote them.

A name is made of itself alone, so the same history gives the same bytes whatever else stands beside it. The client gets back what
it knows: its own name, its namespace, its kind of item.
"""

import re
from collections.abc import Mapping, Sequence

from msgspec.structs import replace

from turnwise.vocab import (
    ArgumentsState,
    BlockData,
    BlockEnded,
    Frame,
    Message,
    NamedTool,
    Part,
    PartDone,
    ProviderItem,
    Repair,
    Request,
    Response,
    ToolCall,
    ToolCallDelta,
    ToolResult,
    ToolSpec,
    calls_of,
)
from turnwise.wire.family import family
from turnwise.wire.json_fields import (
    UNREADABLE,
    fields_in,
    read_fields,
    string_of,
)
from turnwise.wire.offers import FREE_FORM_PARAMETER, fitted_tool
from turnwise.wire.profiles import Profile
from turnwise.wire.relay_facts import ClientTool, PlainTools
from turnwise.wire.tool_names import fitted_name


def fit_names(plain: PlainTools, *, profile: Profile, crosses: bool = True) -> PlainTools:
    """The same with names that the endpoint takes: those of its row, and where the request `crosses` of its family."""
    request = plain.request
    takes = [family(profile.family).tool_names] if crosses else []
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
            renamed: Frame = replace(frame, name=tool.name)
        else:
            assert isinstance(frame, PartDone) and isinstance(frame.part, ToolCall)
            renamed = replace(frame, part=_as_client_knows(frame.part, tool))
        return (renamed,) if tool.own is None else (BlockData(frame.block or "", tool.own), renamed)

    def _goes_out(self, frame: ToolCallDelta | PartDone | BlockData | BlockEnded) -> bool:
        block = frame.block or ""
        name = _called_by(frame)
        if name is not None and block not in self._kept and block not in self._dropped:
            is_surplus = self._most is not None and len(self._kept) + len(self._dropped) >= self._most
            tool = self._tools.get(name)
            as_whole = (name if tool is None else tool.name) in self._text_tools or (
                tool is not None and tool.item is not None
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
        return replace(response, message=replace(response.message, parts=tuple(parts))), told

    def _as_client_call(self, call: ToolCall) -> ToolCall | ProviderItem | None:
        tool = self._tools.get(call.name)
        if tool is None:
            return self._as_text(call)
        if tool.item is None:
            return self._as_text(_as_client_knows(call, tool))
        return tool.item(call) if call.state is ArgumentsState.COMPLETE else None

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
        return replace(call, arguments=arguments, free_form=True, opaque=None)


def _called_by(frame: Frame) -> str | None:
    """Of a call that the frame names."""
    if isinstance(frame, ToolCallDelta):
        return frame.name
    return frame.part.name if isinstance(frame, PartDone) and isinstance(frame.part, ToolCall) else None


def _as_client_knows(call: ToolCall, tool: ClientTool) -> ToolCall:
    return replace(call, name=tool.name, opaque=tool.own or call.opaque)
