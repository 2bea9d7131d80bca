"""What a strict server of any family says about a request's messages. Written apart from the rules that heal them, so
that the two cannot agree on a mistake."""

import json
import re

from turnwise.vocab import (
    ArgumentsState,
    Message,
    NamedTool,
    ProviderItem,
    Reasoning,
    Refusal,
    Request,
    Text,
    ToolCall,
    ToolResult,
)


def pairing_faults(request: Request, *, family: str, may_end_with_assistant: bool = False) -> tuple[str, ...]:
    """Everything that a server could refuse in `request`, one text each; empty if it has to accept it.

    `may_end_with_assistant`: the endpoint accepts prefill, or a pause is sent back to a family that wants it so.
    """
    faults: list[str] = []
    messages = request.messages
    if not messages:
        return ("no messages",)
    names = {tool.name for tool in request.tools}
    open_calls: list[ToolCall] = []
    seen: set[str] = set()
    for index, message in enumerate(messages):
        faults += [f"messages[{index}]: {fault}" for fault in _shape(message, family=family)]
        if message.role == "tool":
            results = [part for part in message.parts if isinstance(part, ToolResult)]
            faults += [f"messages[{index}]: {fault}" for fault in _pairs(open_calls, results=results)]
            open_calls = []
            continue
        if open_calls:
            faults.append(f"messages[{index}]: calls {[call.id for call in open_calls]} have no results before it")
        open_calls = [part for part in message.parts if isinstance(part, ToolCall)]
        for call in open_calls:
            if call.id in seen or not call.id:
                faults.append(f"messages[{index}]: call id {call.id!r} is empty or not unique")
            seen.add(call.id)
    if open_calls:
        faults.append(f"calls {[call.id for call in open_calls]} have no results")
    if messages[-1].role == "assistant" and not may_end_with_assistant:
        faults.append("the last message is an assistant's")
    first = next((message for message in messages if message.role != "system"), None)
    if family in {"anthropic_messages", "gemini"} and first is not None and first.role != "user":
        faults.append(f"the first message is a {first.role}'s")
    return (*faults, *_choice(request, names=names))


def _shape(message: Message, *, family: str) -> list[str]:
    """Faults of one message by itself."""
    faults: list[str] = []
    if not message.parts:
        faults.append("empty message")
    for part in message.parts:
        if isinstance(part, ToolResult) != (message.role == "tool"):
            faults.append(f"{type(part).__name__} in a {message.role} message")
        if isinstance(part, ToolCall | Reasoning | Refusal) and message.role != "assistant":
            faults.append(f"{type(part).__name__} in a {message.role} message")
        if isinstance(part, Text | Refusal) and (part.opaque is None or part.opaque.family != family):
            blank = not part.text.strip() if family == "anthropic_messages" else not part.text
            faults += ["blank text"] if blank else []
        if isinstance(part, ToolCall):
            faults += _call(part, family=family)
        if isinstance(part, ToolResult) and not part.content:
            faults.append(f"result of {part.call_id!r} is empty")
    sendable = [part for part in message.parts if not isinstance(part, ProviderItem) or part.family == family]
    if all(isinstance(part, Reasoning) for part in sendable):
        faults.append("nothing but reasoning and items of other families")
    ends_with_reasoning = bool(message.parts) and isinstance(message.parts[-1], Reasoning)
    if message.role == "assistant" and ends_with_reasoning and family in {"anthropic_messages", "openai_responses"}:
        faults.append("reasoning at the end")
    return faults


def _call(call: ToolCall, *, family: str) -> list[str]:
    faults: list[str] = []
    if call.state is not ArgumentsState.COMPLETE or call.alternatives:
        faults.append(f"call {call.id!r} is {call.state}")
    if not call.free_form:
        try:
            if not isinstance(json.loads(call.arguments), dict):
                faults.append(f"arguments of {call.id!r} are no object")
        except (ValueError, RecursionError):
            faults.append(f"arguments of {call.id!r} are not JSON")
    if family == "anthropic_messages" and not re.fullmatch(r"[A-Za-z0-9_-]+", call.id):
        faults.append(f"call id {call.id!r}")
    if not call.name:  # odd names change while a request is written
        faults.append(f"call {call.id!r} has no tool")
    return faults


def _pairs(calls: list[ToolCall], *, results: list[ToolResult]) -> list[str]:
    faults: list[str] = []
    if [call.id for call in calls] != [result.call_id for result in results]:
        faults.append(
            f"results {[result.call_id for result in results]} do not answer calls {[call.id for call in calls]} in order"
        )
    else:
        for call, result in zip(calls, results, strict=True):
            if (call.name, call.free_form) != (result.name, result.free_form):
                faults.append(f"result of {call.id!r} is for {result.name!r}, the call is of {call.name!r}")
    return faults


def _choice(request: Request, *, names: set[str]) -> list[str]:
    """Tool choice and parallel calls are refused without tools."""
    faults: list[str] = []
    if not names and (request.tool_choice != "auto" or request.parallel_tool_calls is not None):
        faults.append("tool choice or parallel calls without tools")
    if isinstance(request.tool_choice, NamedTool) and request.tool_choice.name not in names:
        faults.append(f"tool choice {request.tool_choice.name!r} is not on offer")
    return faults
