"""The recorded provider streams: rows of the manifest, decoded by us, compared by the rules in the corpus's README.

What is expected is worked out from the manifest alone, never with our own decoders, so that they cannot agree with
their own mistakes.
"""

import json
from collections.abc import Iterable, Iterator
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

from msgspec.structs import replace

from turnwise.vocab import ArgumentsState, Response, Usage, calls_of, reasoning_of, refusal_of, text_of
from turnwise.wire import family as registry
from turnwise.wire.profiles import Profile, builtin_profiles
from turnwise.wire.relay_facts import relay_facts
from whole_streams import read_stream

FAMILIES = {
    "openai_chat": "openai_chat",
    "openai_responses": "openai_responses",
    "anthropic": "anthropic_messages",
    "gemini": "gemini",
    "ollama": "ollama_chat",
    "cohere": "cohere_chat",
}
"""The corpus's name of a family -> ours."""

# The corpus's README names these: a right decoder differs. Value: the fields that may differ, and why (docs/corpus.md).
EXCEPTIONS: dict[str, frozenset[str]] = {
    "openai_chat/openai__llm--test-tools-streaming--test-tools-streaming-variant-d--0.sse": frozenset(
        ["call 0 arguments"]
    ),
    "openai_chat/snowflake__pydantic-ai--test-snowflake--test-snowflake-thinking-streaming.sse": frozenset(
        ["reasoning"]
    ),
}


class Row(NamedTuple):
    """One recorded stream. `expected` and `sanitised` are the manifest's; `path` is the file."""

    file: str
    path: Path
    family: str
    provider: str
    expected: dict[str, Any]
    sanitised: bool
    request: dict[str, Any] | None
    row: dict[str, Any]


@cache
def rows(corpus: Path) -> tuple[Row, ...]:
    """Every stream of our families, `reported/` included."""
    found: list[Row] = []
    for manifest in (corpus / "manifest.jsonl", corpus / "reported" / "manifest.jsonl"):
        for line in manifest.read_text(encoding="utf-8").splitlines():
            row = json.loads(line)
            if row["family"] in FAMILIES and row.get("expected") is not None:
                found.append(_row_of(row, corpus=corpus, family=FAMILIES[row["family"]]))
    return tuple(found)


def _row_of(row: dict[str, Any], *, corpus: Path, family: str) -> Row:
    return Row(
        file=row["file"],
        path=corpus / row["file"],
        family=family,
        provider=row.get("provider") or "",
        expected=row["expected"],
        sanitised=bool(row.get("sanitised")),
        request=row.get("request") if isinstance(row.get("request"), dict) else None,
        row=row,
    )


def interactions(corpus: Path) -> tuple[Row, ...]:
    """The streams of Gemini's Interactions API, of which the manifest expects nothing; none where there are no recordings."""
    lines = (corpus / "manifest.jsonl").read_text(encoding="utf-8").splitlines()
    found = [row for line in lines if (row := json.loads(line))["family"] == "gemini_interactions"]
    for row in found:
        row["expected"] = _told_by_interactions((corpus / row["file"]).read_text(encoding="utf-8"))
    return tuple([_row_of(row, corpus=corpus, family=row["family"]) for row in found])


def _told_by_interactions(stream: str) -> dict[str, Any]:
    """The manifest says nothing of them: what their own events say, each read alone."""
    texts: dict[str, str] = {"text": "", "reasoning": ""}
    calls: dict[int, dict[str, Any]] = {}
    end: dict[str, Any] = {}
    for line in stream.splitlines():
        event = json.loads(line.removeprefix("data:")) if line.startswith("data: {") else {}
        delta, step = event.get("delta") or {}, event.get("step") or {}
        if step.get("type") == "function_call":
            calls[event["index"]] = {**step, "arguments": "", "complete": True}
        match delta.get("type"):
            case "text":
                texts["text"] += delta["text"]
            case "thought_summary":
                texts["reasoning"] += delta["content"]["text"]
            case "arguments_delta":
                calls[event["index"]]["arguments"] += delta["arguments"]
            case _:
                end = event["interaction"] if event.get("event_type") == "interaction.completed" else end
    for call in calls.values():
        call["arguments"] = json.loads(call["arguments"] or "{}")
    return {**texts, "tool_calls": list(calls.values()), "finish_reason": end["status"], "usage": end["usage"]}


def profile_of(row: Row) -> Profile:
    """The provider's own profile where there is one for that family, else the family's plain one."""
    known = builtin_profiles()
    for name in (row.provider, f"{row.provider}-responses", f"{row.provider}-chat", f"{row.provider}-{row.family}"):
        if name in known and known[name].family == row.family:
            return known[name]
    return known[row.family]


def decode(row: Row, chunks: Iterable[bytes] | None = None) -> Response:
    """What we make of the stream, fed whole or in the given pieces."""
    pieces = [row.path.read_bytes()] if chunks is None else chunks
    names = frozenset(call["name"] for call in row.expected["tool_calls"] if call.get("name"))
    return read_stream(pieces, family=registry.family(row.family), profile=profile_of(row), tool_names=names)


def differences(row: Row, response: Response) -> list[str]:
    """Where the response is not what the manifest expects; empty when it is."""
    expected = row.expected
    message = response.message
    found: list[str] = []

    def compare(what: str, got: object, want: object) -> None:
        if got != want and what not in EXCEPTIONS.get(row.file, ()):
            found.append(f"{what}: got {got!r:.300}, expected {want!r:.300}")

    compare("text", text_of(message), expected["text"] or "")
    compare("reasoning", reasoning_of(message), expected["reasoning"] or "")
    compare("refusal", refusal_of(message), expected.get("refusal") or "")
    word = expected["finish_reason"]
    compare("finish_reason", response.provider_finish, None if word is None else str(word))  # one Gemini stream has 1
    calls = calls_of(message)
    compare("calls", [call.name for call in calls], [call["name"] for call in expected["tool_calls"]])
    if len(calls) == len(expected["tool_calls"]):
        for i, (call, want) in enumerate(zip(calls, expected["tool_calls"], strict=True)):
            complete = call.state == ArgumentsState.COMPLETE
            compare(f"call {i} complete", complete, want["complete"])
            if complete and want["complete"]:
                got = call.arguments if call.free_form else json.loads(call.arguments)
                compare(f"call {i} arguments", got, want["arguments"])
            if want["id"] and not row.sanitised:
                compare(f"call {i} id", call.id, want["id"])
    if expected.get("error"):
        compare("error", response.fault is not None, True)
    want_usage = expected_usage(row)
    if want_usage is not None:
        compare("usage", five_counts(response.usage), five_counts(want_usage))
    return found


def five_counts(usage: Usage | None) -> tuple[int, int, int, int, int] | None:
    if usage is None:
        return None
    return (
        usage.input_tokens,
        usage.output_tokens,
        usage.reasoning_tokens,
        usage.cache_read_tokens,
        usage.cache_write_tokens,
    )


def expected_usage(row: Row) -> Usage | None:
    """Our five counts from the provider's usage object; None where the manifest has none (five streams have one on the
    wire that the manifest misses)."""
    usage: dict[str, Any] | None = row.expected.get("usage")
    if not usage:
        return None
    match row.family:
        case "openai_chat":
            return _chat_usage(usage, excludes_reasoning=row.provider == "xai")
        case "openai_responses":
            return Usage(
                input_tokens=_count(usage, "input_tokens"),
                output_tokens=_count(usage, "output_tokens"),
                reasoning_tokens=_count(usage, "output_tokens_details", "reasoning_tokens"),
                cache_read_tokens=_count(usage, "input_tokens_details", "cached_tokens"),
                cache_write_tokens=_count(usage, "input_tokens_details", "cache_write_tokens"),
            )
        case "anthropic_messages":
            if (parts := _iterations(row)) is not None:
                return replace(parts, reasoning_tokens=_count(usage, "output_tokens_details", "thinking_tokens"))
            read, write = _count(usage, "cache_read_input_tokens"), _count(usage, "cache_creation_input_tokens")
            return Usage(
                input_tokens=_count(usage, "input_tokens") + read + write,
                output_tokens=_count(usage, "output_tokens"),
                reasoning_tokens=_count(usage, "output_tokens_details", "thinking_tokens"),
                cache_read_tokens=read,
                cache_write_tokens=write,
            )
        case "ollama_chat":
            return Usage(input_tokens=_count(usage, "prompt_eval_count"), output_tokens=_count(usage, "eval_count"))
        case "cohere_chat":
            told = json.loads(json.dumps(usage), parse_float=lambda text: int(float(text)))
            return Usage(
                input_tokens=_count(told, "tokens", "input_tokens"),
                output_tokens=_count(told, "tokens", "output_tokens"),
                reasoning_tokens=_count(told, "tokens", "reasoning_tokens"),
                cache_read_tokens=_count(told, "cached_tokens"),
            )
        case "gemini_interactions":
            thoughts = _count(usage, "total_thought_tokens")
            return Usage(
                input_tokens=_count(usage, "total_input_tokens") + _count(usage, "total_tool_use_tokens"),
                output_tokens=_count(usage, "total_output_tokens") + thoughts,
                reasoning_tokens=thoughts,
                cache_read_tokens=_count(usage, "total_cached_tokens"),
            )
        case _:
            thoughts = _count(usage, "thoughtsTokenCount")
            return Usage(
                input_tokens=_count(usage, "promptTokenCount") + _count(usage, "toolUsePromptTokenCount"),
                output_tokens=_count(usage, "candidatesTokenCount") + thoughts,
                reasoning_tokens=thoughts,
                cache_read_tokens=_count(usage, "cachedContentTokenCount"),
            )


def _iterations(row: Row) -> Usage | None:
    """The sum of the samplings that the last event with usage lists, which the manifest leaves out; None for no such list."""
    listed: list[dict[str, Any]] = []
    for line in row.path.read_text(encoding="utf-8").splitlines():
        if line.startswith("data:") and '"iterations":[' in line.replace(" ", ""):
            listed = json.loads(line.removeprefix("data:"))["usage"]["iterations"]
    if not listed:
        return None
    read = sum(one["cache_read_input_tokens"] for one in listed)
    write = sum(one["cache_creation_input_tokens"] for one in listed)
    return Usage(
        input_tokens=sum(one["input_tokens"] for one in listed) + read + write,
        output_tokens=sum(one["output_tokens"] for one in listed),
        cache_read_tokens=read,
        cache_write_tokens=write,
    )


def _chat_usage(usage: dict[str, Any], *, excludes_reasoning: bool) -> Usage:
    reasoning = _count(usage, "completion_tokens_details", "reasoning_tokens") or _count(usage, "reasoning_tokens")
    output = _count(usage, "completion_tokens")
    return Usage(
        input_tokens=_count(usage, "prompt_tokens"),
        output_tokens=output + reasoning if excludes_reasoning else output,
        reasoning_tokens=reasoning,
        cache_read_tokens=_count(usage, "prompt_tokens_details", "cached_tokens")
        or _count(usage, "prompt_cache_hit_tokens")
        or _count(usage, "cache_read_input_tokens")
        or _count(usage, "cached_tokens"),
        cache_write_tokens=_count(usage, "prompt_tokens_details", "cache_write_tokens")
        or _count(usage, "cache_creation_input_tokens"),
    )


def _count(usage: dict[str, Any], *path: str) -> int:
    value: Any = usage
    for key in path:
        value = value.get(key) if isinstance(value, dict) else None
    return value if isinstance(value, int) else 0


def spoken(corpus: Path) -> tuple[Row, ...]:
    """Those of families that clients of the gateway speak."""
    return tuple([row for row in rows(corpus) if relay_facts(row.family).has_door])


def of_family(corpus: Path, family: str) -> Iterator[Row]:
    return (row for row in rows(corpus) if row.family == family)
