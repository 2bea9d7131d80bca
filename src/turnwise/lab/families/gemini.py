"""Gemini's generateContent, as the lab plays it and as its clients read it."""

import json
import re
from collections.abc import Iterator, Mapping

import msgspec

from turnwise.lab.caches import PromptPieces
from turnwise.lab.families.family import (
    CallSeen,
    Conversation,
    LabFamily,
    Offered,
    ResultSeen,
    SentMessage,
    StreamReading,
    ToldError,
    canonical,
    error_in,
    events_of,
    join,
    naive_events,
    rule,
    shaped,
    texts_of,
)
from turnwise.lab.raw import Raw, dig, dump, either, parse, rows, table, text
from turnwise.lab.strict.gemini import JUDGE
from turnwise.lab.strict.thinking import sign
from turnwise.vocab import NO_USAGE, ArgumentsState, FinishReason, Opaque, Part, Reasoning, Response, Text, ToolCall


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


def prompt_of_gemini(body: Raw) -> PromptPieces:
    fields = table(body)
    first = [fields.get(name) for name in ("tools", "systemInstruction")]
    found = [dump(one) for one in first]
    for content in rows(fields.get("contents")):
        role = text(table(content).get("role")).encode()
        found += [role + dump(part) for part in rows(table(content).get("parts"))]
    return PromptPieces(found)


# --- a stream with its arguments in pieces, as Vertex AI sends it to those that ask for `streamFunctionCallArguments`
#
# A call begins with its name, then each value comes under its JSON path, a string in several pieces with an empty one at its
# end, and an empty call is the end. Keys have no piece of their own and a number comes whole, so of a call that the limit cut
# what has arrived stops behind the last character of a string or the last whole value; the end does not come.
#
# Source: Google Cloud docs, "Function calling", streaming of arguments (Gemini 3 and later, not the Gemini Developer API);
# recorded streams of gemini-3.1-pro-preview and gemini-3-flash-preview. How a cut call ends is not recorded: as a stream can
# only stop.

FINISH_WORDS = {
    FinishReason.LENGTH: "MAX_TOKENS",
    FinishReason.STOP: "STOP",
    FinishReason.TOOL_CALLS: "STOP",
}
STRING = re.compile(r'"((?:[^"\\]|\\(?:[^u]|u[0-9a-fA-F]{4}))*)')
HALF_PAIR = re.compile(r"\\u[dD][89abAB][0-9a-fA-F]{2}$")
SCALAR = re.compile(r"[^\s,\]}]+")


def stream_in_pieces(response: Response, piece: int) -> str:
    """The events, a line each (as a script writes them). `piece` are the characters of a string that come at a time."""
    events: list[Mapping[str, object]] = []
    for part in response.message.parts:
        events += [{"candidates": [candidate(said)]} for said in parts_in_pieces(part, piece=piece)]
    word = FINISH_WORDS.get(response.finish)
    usage = response.usage or NO_USAGE
    counted = {
        "promptTokenCount": usage.input_tokens,
        "candidatesTokenCount": usage.output_tokens - usage.reasoning_tokens,
        "thoughtsTokenCount": usage.reasoning_tokens,
        "totalTokenCount": usage.input_tokens + usage.output_tokens,
    }
    last = candidate({"text": ""}) | ({} if word is None else {"finishReason": word})
    events.append({"candidates": [last], "usageMetadata": counted})
    about = {"modelVersion": response.model, "responseId": response.id}
    return "\n".join([dump({**event, **about}).decode() for event in events])


def candidate(part: Mapping[str, object]) -> dict[str, object]:
    return {"content": {"role": "model", "parts": [part]}}


def parts_in_pieces(part: Part, *, piece: int) -> Iterator[Mapping[str, object]]:
    match part:
        case Text(text=text):
            yield from [{"text": text[start : start + piece]} for start in range(0, len(text), piece)]
        case Reasoning(text=text):
            yield from [{"text": text[start : start + piece], "thought": True} for start in range(0, len(text), piece)]
        case ToolCall():
            begun = {"functionCall": {"id": part.id, "name": part.name, "willContinue": True}}
            yield begun if part.opaque is None else {**begun, **table(parse(part.opaque.json))}
            for path, value in values_of(part.arguments):
                for arg in args_of(path, value, piece=piece):
                    yield {"functionCall": {"partialArgs": [arg], "willContinue": True}}
            if part.state is ArgumentsState.COMPLETE:
                yield {"functionCall": {}}
        case _:
            return


class OpenString(str):
    """A string whose end has not come."""

    __slots__ = ()


def args_of(path: str, value: object, *, piece: int) -> Iterator[Mapping[str, object]]:
    match value:
        case str():
            for start in range(0, len(value), piece):
                yield {
                    "jsonPath": path,
                    "stringValue": value[start : start + piece],
                    "willContinue": True,
                }
            if not isinstance(value, OpenString):
                yield {"jsonPath": path, "stringValue": ""}
        case bool():
            yield {"jsonPath": path, "boolValue": value}
        case None:
            yield {"jsonPath": path, "nullValue": "NULL_VALUE"}
        case _:
            yield {"jsonPath": path, "numberValue": value}


def values_of(text: str) -> Iterator[tuple[str, object]]:
    """Each value that is no container, by its path, of the beginning of a JSON object that has no white space."""
    at = 0
    path: list[str | int] = []
    awaits_key = False
    while at < len(text):
        match text[at]:
            case "{":
                path.append("")
                awaits_key = True
            case "[":
                path.append(0)
                awaits_key = False
            case "}" | "]":
                path.pop()
            case ",":
                awaits_key = isinstance(path[-1], str)
                if isinstance(path[-1], int):
                    path[-1] += 1
            case ":":
                awaits_key = False
            case '"':
                found = STRING.match(text, at)
                assert found is not None
                at = found.end()
                ended = text.startswith('"', at)
                said: str = json.loads(f'"{found[1] if ended else HALF_PAIR.sub("", found[1])}"')
                if not awaits_key:
                    yield path_of(path), said if ended else OpenString(said)
                elif ended:
                    path[-1] = said
            case _:
                found = SCALAR.match(text, at)
                assert found is not None
                at = found.end() - 1
                if found.end() < len(text):
                    yield path_of(path), json.loads(found[0])
        at += 1


def path_of(path: list[str | int]) -> str:
    return "$" + "".join([f"[{key}]" if isinstance(key, int) else f".{key}" for key in path])


class PlayedCall(msgspec.Struct, frozen=True):
    name: str
    id: str = ""
    args: dict[str, object] = {}


class NaivePart(msgspec.Struct, frozen=True, rename="camel"):
    text: str = ""
    thought: bool = False
    function_call: PlayedCall | None = None


class NaiveContent(msgspec.Struct, frozen=True):
    parts: list[NaivePart] = []


class NaiveCandidate(msgspec.Struct, frozen=True, rename="camel"):
    content: NaiveContent = NaiveContent()
    finish_reason: str | None = None


class NaiveAnswer(msgspec.Struct, frozen=True):
    candidates: list[NaiveCandidate] = []
    error: ToldError | None = None


def read_naively(body: bytes) -> StreamReading:
    text, finish, error = "", "", ""
    calls: list[tuple[str, str, str]] = []
    for answer in naive_events(body, as_type=NaiveAnswer):
        error = error or (answer.error.message if answer.error is not None else "")
        for candidate in answer.candidates:
            finish = candidate.finish_reason or finish
            for part in candidate.content.parts:
                text += "" if part.thought else part.text
                if (call := part.function_call) is not None:
                    calls.append((call.id, call.name, msgspec.json.encode(call.args).decode()))
    word = _FINISH.get(finish, finish)
    return StreamReading(text, calls, "calls" if calls and word == "stop" else word, error)


_REFUSED = ("SAFETY", "RECITATION", "BLOCKLIST", "PROHIBITED_CONTENT", "SPII")
_OTHER = ("LANGUAGE", "OTHER", "MALFORMED_FUNCTION_CALL", "UNEXPECTED_TOOL_CALL", "TOO_MANY_TOOL_CALLS")
_FINISH = {"STOP": "stop", "MAX_TOKENS": "length", **dict.fromkeys(_REFUSED, "refused"), **{one: one for one in _OTHER}}


class StrictPart(msgspec.Struct, frozen=True, rename="camel"):
    text: str | None = None
    thought: bool = False
    function_call: PlayedCall | None = None


class StrictParts(msgspec.Struct, frozen=True):
    parts: list[StrictPart] = []
    role: str = "model"


class StrictCandidate(msgspec.Struct, frozen=True, rename="camel"):
    content: StrictParts = StrictParts()
    finish_reason: str | None = None
    index: int = 0


class StrictFeedback(msgspec.Struct, frozen=True, rename="camel"):
    block_reason: str | None = None


class StrictAnswer(msgspec.Struct, frozen=True, rename="camel"):
    candidates: list[StrictCandidate] = []
    prompt_feedback: StrictFeedback = StrictFeedback()


def read_strictly(body: bytes) -> StreamReading:
    """Raises BrokenRule."""
    answer = _GeminiAnswer()
    for event in events_of(body):
        rule(not answer.error, "something follows the error")
        answer.error = error_in(event.data)
        if not answer.error:
            answer.add(shaped(event.data, as_type=StrictAnswer))
    return answer.reading()


class _GeminiAnswer:
    """What has come of one answer."""

    def __init__(self) -> None:
        self.error = ""
        self._text = ""
        self._calls: list[tuple[str, str, str]] = []
        self._finish = ""

    def add(self, answer: StrictAnswer) -> None:
        if answer.prompt_feedback.block_reason:
            self._finish = "SAFETY"
        for candidate in answer.candidates:
            rule(candidate.index == 0, f"there is a candidate {candidate.index}, though one was asked for")
            rule(candidate.content.role == "model", f"the role is `{candidate.content.role}`")
            rule(not (self._finish and candidate.content.parts), "something follows the finish reason")
            for part in candidate.content.parts:
                self._text += "" if part.thought else part.text or ""
                if (call := part.function_call) is not None:
                    rule(bool(call.name), "a call has no name")
                    self._calls.append((call.id, call.name, msgspec.json.encode(call.args).decode()))
            self._finish = candidate.finish_reason or self._finish

    def reading(self) -> StreamReading:
        if not self.error:
            rule(bool(self._finish), "the stream has no finish reason")
            rule(self._finish in _FINISH, f"there is no finish reason `{self._finish}`")
            ids = [one for one, _, _ in self._calls if one]
            rule(len(set(ids)) == len(ids), "two calls have one id")
        word = "" if self.error else _FINISH[self._finish]
        return StreamReading(self._text, self._calls, "calls" if self._calls and word == "stop" else word, self.error)


def sign_thought(said: str) -> Opaque:
    return Opaque(JUDGE.name, dump({"thoughtSignature": sign(said)}).decode())


FAMILY = LabFamily(
    judge=JUDGE,
    title="Gemini",
    routes=(("/models/MODEL:generateContent", False), ("/models/MODEL:streamGenerateContent", True)),
    strict_paths=r"/v1(?:beta|alpha)?/models(?:/[^/]+:\w+)?",
    is_own_list=lambda headers, path: "/v1beta/" in path,
    model_in_path=True,
    read=read_gemini,
    prompt=prompt_of_gemini,
    least_cached_tokens=2048,
    call_signature=sign_thought,
    cut_calls="object",
    refuses_by_word=True,
    plays_pieces=stream_in_pieces,
    array_unless="alt=sse",
    read_naively=read_naively,
    read_strictly=read_strictly,
    has_ids=False,
)
