"""What a client is not given of a response's calls, or in another form than the upstream wrote it."""

from collections.abc import Mapping, Sequence

import msgspec

from turnwise.relay.client_tools import ClientTool, search_item
from turnwise.vocab import (
    ArgumentsState,
    BlockData,
    BlockEnded,
    Frame,
    Opaque,
    Part,
    PartDone,
    ProviderItem,
    Repair,
    Response,
    ToolCall,
    ToolCallDelta,
    calls_of,
)
from turnwise.wire.free_form import FREE_FORM_PARAMETER
from turnwise.wire.json_fields import UNREADABLE, read_fields, string_of

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
