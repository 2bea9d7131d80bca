"""A request's body, of any family, as what was said in it: enough to find the next step of a script or of a recording.

Read from raw JSON and not with the decoders of `wire/`, so that the lab understands a request on its own.
"""

from collections.abc import Callable
from typing import Literal

import msgspec

from turnwise.lab.raw import Raw, dig, dump, either, parse, rows, table, text
from turnwise.lab.strict.anthropic_messages import tools_defined


class CallSeen(msgspec.Struct, frozen=True, kw_only=True):
    id: str
    name: str
    arguments: str  # JSON with its keys sorted, or the text as it came where it is none


class ResultSeen(msgspec.Struct, frozen=True, kw_only=True):
    id: str
    name: str
    content: str


class SentMessage(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One side's words until the other's: an assistant's response, the results of its calls, or the user's texts."""

    role: Literal["system", "user", "assistant", "results"]
    texts: tuple[str, ...] = ()
    calls: tuple[CallSeen, ...] = ()
    results: tuple[ResultSeen, ...] = ()
    files: int = 0


class Offered(msgspec.Struct, frozen=True, kw_only=True):
    name: str
    schema: Raw


class Conversation(msgspec.Struct, frozen=True, kw_only=True):
    """`forbids` is tool choice none. `eager` holds the tools whose arguments a stream gives as they come
    (Anthropic's `eager_input_streaming`; Gemini's `streamFunctionCallArguments` is about all). `sealed`: Responses
    hands out `encrypted_content` only to those who ask for it."""

    said: tuple[SentMessage, ...]
    tools: tuple[Offered, ...] = ()
    forbids: bool = False
    output_schema: Raw = None
    eager: frozenset[str] = frozenset()
    sealed: bool = False


def canonical(arguments: Raw) -> str:
    """Arguments in one spelling: JSON with sorted keys; text that is no JSON as it came; nothing is {}."""
    value = arguments
    if isinstance(arguments, str):
        try:
            value = parse(arguments) if arguments.strip() else None
        except msgspec.DecodeError:
            return arguments
    return msgspec.json.encode({} if value is None else value, order="sorted").decode()


def plain(content: Raw) -> str:
    """Text of a content field: a string, or the texts of its parts joined."""
    if isinstance(content, str):
        return content
    return "".join([text(table(part).get("text")) for part in rows(content)])


def texts_of(content: Raw) -> tuple[str, ...]:
    if isinstance(content, str):
        return (content,)
    return tuple([text(table(part).get("text")) for part in rows(content) if isinstance(table(part).get("text"), str)])


def files_of(content: Raw) -> int:
    """Parts that are neither text nor a family's bookkeeping."""
    return sum(
        1 for part in rows(content) if not isinstance(table(part).get("text"), str) and "refusal" not in table(part)
    )


def join(said: list[SentMessage]) -> tuple[SentMessage, ...]:
    """Neighbours of one role become one."""
    joined: list[SentMessage] = []
    for one in said:
        if joined and joined[-1].role == one.role:
            last = joined[-1]
            joined[-1] = SentMessage(
                role=one.role,
                texts=last.texts + one.texts,
                calls=last.calls + one.calls,
                results=last.results + one.results,
                files=last.files + one.files,
            )
        else:
            joined.append(one)
    return tuple(joined)


def read_chat(body: dict[str, Raw]) -> Conversation:
    said: list[SentMessage] = []
    for message in rows(body.get("messages")):
        fields = table(message)
        content = fields.get("content")
        match text(fields.get("role")):
            case "system" | "developer":
                said.append(SentMessage(role="system", texts=texts_of(content)))
            case "assistant":
                calls = tuple([chat_call(table(call)) for call in rows(fields.get("tool_calls"))])
                said.append(SentMessage(role="assistant", texts=texts_of(content), calls=calls))
            case "tool":
                result = ResultSeen(id=text(fields.get("tool_call_id")), name="", content=plain(content))
                said.append(SentMessage(role="results", results=(result,)))
            case _:
                said.append(SentMessage(role="user", texts=texts_of(content), files=files_of(content)))
    tools = [table(either(tool, "function", "custom")) for tool in rows(body.get("tools"))]
    return Conversation(
        said=join(said),
        tools=tuple([Offered(name=text(tool.get("name")), schema=tool.get("parameters")) for tool in tools]),
        forbids=body.get("tool_choice") == "none",
        output_schema=dig(body.get("response_format"), "json_schema", "schema"),
    )


def chat_call(call: dict[str, Raw]) -> CallSeen:
    if call.get("type") == "custom":
        inner = table(call.get("custom"))
        return CallSeen(id=text(call.get("id")), name=text(inner.get("name")), arguments=text(inner.get("input")))
    inner = table(call.get("function"))
    return CallSeen(id=text(call.get("id")), name=text(inner.get("name")), arguments=canonical(inner.get("arguments")))


def read_responses(body: dict[str, Raw]) -> Conversation:
    given = body.get("input")
    said: list[SentMessage] = []
    if isinstance(body.get("instructions"), str):
        said.append(SentMessage(role="system", texts=(text(body.get("instructions")),)))
    if isinstance(given, str):
        said.append(SentMessage(role="user", texts=(given,)))
    for item in rows(given):
        one = responses_item(table(item))
        if one is not None:
            said.append(one)
    more = [item.get("tools") for item in map(table, rows(given)) if item.get("type") == "additional_tools"]
    tools = [table(tool) for offered in (body.get("tools"), *more) for tool in rows(offered)]
    return Conversation(
        said=join(said),
        tools=tuple([Offered(name=text(tool.get("name")), schema=tool.get("parameters")) for tool in tools]),
        forbids=body.get("tool_choice") == "none",
        output_schema=dig(body.get("text"), "format", "schema"),
        sealed="reasoning.encrypted_content" in rows(body.get("include")),
    )


def responses_item(item: dict[str, Raw]) -> SentMessage | None:
    content, id = item.get("content"), text(item.get("call_id"))
    match text(item.get("type")) or "message":
        case "message":
            match text(item.get("role")):
                case "system" | "developer":
                    return SentMessage(role="system", texts=texts_of(content))
                case "assistant":
                    return SentMessage(role="assistant", texts=texts_of(content))
                case _:
                    return SentMessage(role="user", texts=texts_of(content), files=files_of(content))
        case "function_call":
            call = CallSeen(id=id, name=text(item.get("name")), arguments=canonical(item.get("arguments")))
            return SentMessage(role="assistant", calls=(call,))
        case "custom_tool_call":
            call = CallSeen(id=id, name=text(item.get("name")), arguments=text(item.get("input")))
            return SentMessage(role="assistant", calls=(call,))
        case "function_call_output" | "custom_tool_call_output":
            return SentMessage(role="results", results=(ResultSeen(id=id, name="", content=plain(item.get("output"))),))
        case _:
            return None


def read_anthropic(body: dict[str, Raw]) -> Conversation:
    said: list[SentMessage] = [SentMessage(role="system", texts=texts_of(body["system"]))] if body.get("system") else []
    for message in rows(body.get("messages")):
        content = table(message).get("content")
        if table(message).get("role") == "assistant":
            said.append(SentMessage(role="assistant", texts=texts_of(content), calls=anthropic_calls(content)))
            continue
        if table(message).get("role") == "system":  # stands behind what the user says
            place = len(said) - (said[-1].role == "user") if said else 0
            said.insert(place, SentMessage(role="system", texts=texts_of(content)))
            continue
        blocks = [table(block) for block in rows(content)]
        results = [
            ResultSeen(id=text(block.get("tool_use_id")), name="", content=plain(block.get("content")))
            for block in blocks
            if block.get("type") == "tool_result"
        ]
        if results:
            said.append(SentMessage(role="results", results=tuple(results)))
        files = files_of(content) - len(results)
        if texts_of(content) or files:
            said.append(SentMessage(role="user", texts=texts_of(content), files=files))
    more = [tool for _, tool in tools_defined(rows(body.get("messages")))]
    tools = [*map(table, rows(body.get("tools"))), *more]
    own = [tool for tool in tools if text(tool.get("type")) in ("", "custom")]
    return Conversation(
        said=join(said),
        tools=tuple([Offered(name=text(tool.get("name")), schema=tool.get("input_schema")) for tool in own]),
        forbids=dig(body.get("tool_choice"), "type") == "none",
        output_schema=dig(body.get("output_config"), "format", "schema") or dig(body.get("output_format"), "schema"),
        eager=frozenset({text(tool.get("name")) for tool in own if tool.get("eager_input_streaming") is True}),
    )


def anthropic_calls(content: Raw) -> tuple[CallSeen, ...]:
    blocks = [table(block) for block in rows(content)]
    return tuple(
        [
            CallSeen(id=text(block.get("id")), name=text(block.get("name")), arguments=canonical(block.get("input")))
            for block in blocks
            if block.get("type") == "tool_use"
        ]
    )


def read_gemini(body: dict[str, Raw]) -> Conversation:
    system = either(body, "systemInstruction", "system_instruction")
    said: list[SentMessage] = [SentMessage(role="system", texts=texts_of(dig(system, "parts")))] if system else []
    for content in rows(body.get("contents")):
        parts = [table(part) for part in rows(table(content).get("parts"))]
        spoken = tuple(
            [text(part.get("text")) for part in parts if isinstance(part.get("text"), str) and not part.get("thought")]
        )
        calls = [table(either(part, "functionCall", "function_call")) for part in parts]
        results = [table(either(part, "functionResponse", "function_response")) for part in parts]
        if table(content).get("role") == "model":
            seen = [
                CallSeen(id=text(call.get("id")), name=text(call.get("name")), arguments=canonical(call.get("args")))
                for call in calls
                if call
            ]
            said.append(SentMessage(role="assistant", texts=spoken, calls=tuple(seen)))
            continue
        answered = [
            ResultSeen(id=text(one.get("id")), name=text(one.get("name")), content=gemini_result(one.get("response")))
            for one in results
            if one
        ]
        if answered:
            said.append(SentMessage(role="results", results=tuple(answered)))
        files = sum(1 for part in parts if "text" not in part) - len(answered)
        if spoken or files:
            said.append(SentMessage(role="user", texts=spoken, files=files))
    config = either(body, "toolConfig", "tool_config")
    calling = table(either(config, "functionCallingConfig", "function_calling_config"))
    streamed = either(calling, "streamFunctionCallArguments", "stream_function_call_arguments") is True
    declared = tuple(gemini_tools(body))
    generation = either(body, "generationConfig", "generation_config")
    schemas = ("responseJsonSchema", "response_json_schema", "_responseJsonSchema", "responseSchema", "response_schema")
    return Conversation(
        said=join(said),
        tools=declared,
        forbids=text(calling.get("mode")).upper() == "NONE",
        eager=frozenset([tool.name for tool in declared]) if streamed else frozenset(),
        output_schema=either(generation, *schemas),
    )


def gemini_tools(body: dict[str, Raw]) -> list[Offered]:
    declared = [
        table(one)
        for tool in rows(body.get("tools"))
        for one in rows(either(tool, "functionDeclarations", "function_declarations"))
    ]
    keys = ("parametersJsonSchema", "parameters_json_schema", "parameters")
    return [Offered(name=text(one.get("name")), schema=either(one, *keys)) for one in declared]


def gemini_result(response: Raw) -> str:
    """Google's docs name `output` and `error`; other clients wrap a plain value under another single key."""
    fields = table(response)
    if len(fields) == 1:
        (value,) = fields.values()
        return value if isinstance(value, str) else dump(value).decode()
    return dump(response).decode()


READERS: dict[str, Callable[[dict[str, Raw]], Conversation]] = {
    "openai_chat": read_chat,
    "openai_responses": read_responses,
    "anthropic_messages": read_anthropic,
    "gemini": read_gemini,
}


def read(family: str, *, body: Raw) -> Conversation:
    """What was said in `body`. It reads what the judge has let through, and finds nothing in the rest."""
    return READERS[family](table(body))
