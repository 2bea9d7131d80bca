"""Gemini's stream with its arguments in pieces, as Vertex AI sends it to whoever asks for `streamFunctionCallArguments`.

A call begins with its name, then each value comes under its JSON path, a string in several pieces with an empty one at its
end, and an empty call is the end. Keys have no piece of their own and a number comes whole, so of a call that the limit cut
what has arrived stops behind the last character of a string or the last whole value; the end does not come.

Source: Google Cloud docs, "Function calling", streaming of arguments (Gemini 3 and later, not the Gemini Developer API);
recorded streams of gemini-3.1-pro-preview and gemini-3-flash-preview. How a cut call ends is not recorded: as a stream can
only stop.
"""

import json
import re
from collections.abc import Iterator, Mapping

from turnwise.lab.raw import dump, parse, table
from turnwise.vocab import (
    NO_USAGE,
    ArgumentsState,
    FinishReason,
    Part,
    Reasoning,
    Response,
    Text,
    ToolCall,
)

FINISH_WORDS = {
    FinishReason.LENGTH: "MAX_TOKENS",
    FinishReason.STOP: "STOP",
    FinishReason.TOOL_CALLS: "STOP",
}
STRING = re.compile(r'"((?:[^"\\]|\\(?:[^u]|u[0-9a-fA-F]{4}))*)')
HALF_PAIR = re.compile(r"\\u[dD][89abAB][0-9a-fA-F]{2}$")
SCALAR = re.compile(r"[^\s,\]}]+")


def stream_in_pieces(response: Response, *, piece: int) -> str:
    """The events, a line each (see `wire.py`). `piece` are the characters of a string that come at a time."""
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
