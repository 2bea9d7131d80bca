"""What a call of `run` or `decode` gives back: the same once as data, with a schema, and once as text."""

from typing import cast

import msgspec
from mcp_types import CallToolResult, TextContent

from turnwise.agent.formatting import many
from turnwise.coding_agent.run_events import result_fields
from turnwise.coding_agent.text import clean_answer, visible_line
from turnwise.editors.mcp.runs import Served
from turnwise.rules.stop import FAILED, exit_code
from turnwise.vocab import StopReason

MAX_DENIED = 100  # that are listed one by one
MAX_NOTES = 50

_COUNT = {"type": "integer", "minimum": 0}
_TEXT = {"type": "string"}
_TOKENS = ("input_tokens", "output_tokens", "reasoning_tokens", "cache_read_tokens", "cache_write_tokens")


def _object(properties: dict[str, object], *, required: list[str] | None = None) -> dict[str, object]:
    return {"type": "object", "properties": properties, "required": required or list(properties)}


def _list_of(item: dict[str, object]) -> dict[str, object]:
    return {"type": "array", "items": item}


RUN_OUTPUT = _object(
    {
        "answer": {**_TEXT, "description": "The model's answer, or why there is none."},
        "outcome": {**_TEXT, "description": "How the run ended, in words."},
        "stop_reason": {"enum": [reason.value for reason in StopReason]},
        "complete": {
            "type": "boolean",
            "description": "false: the answer rests on less than the model wanted to know.",
        },
        "why_incomplete": _TEXT,
        "fault": {"type": ["object", "null"], "description": "How the provider failed."},
        "exit_code": {**_COUNT, "description": "What `turnwise run` would have ended with."},
        "requests": {**_COUNT, "description": "HTTP requests of the run and its sub-agents."},
        "usage": {
            **_object({name: dict(_COUNT) for name in _TOKENS}),
            "description": "Tokens of the run without its sub-agents; `children` has theirs.",
        },
        "cost_usd": {
            "type": ["string", "null"],
            "description": "US dollars of all requests, sub-agents' and failed ones too. null: a price is not known.",
        },
        "known_cost_usd": {**_TEXT, "description": "The part of it whose prices are known."},
        "session": {**_TEXT, "description": "For `turnwise sessions show` and `turnwise run --session`."},
        "denied": _list_of(
            _object({"path": _list_of(dict(_TEXT)), "name": dict(_TEXT), "why": dict(_TEXT)}),
        ),
        "denied_in_all": _COUNT,
        "children": _list_of({"type": "object"}),
        "notes": _list_of(dict(_TEXT)),
    }
)

DECODE_OUTPUT = _object(
    {
        "text": _TEXT,
        "reasoning": _TEXT,
        "refusal": _TEXT,
        "tool_calls": _list_of(
            _object(
                {
                    "id": dict(_TEXT),
                    "name": dict(_TEXT),
                    "arguments_raw": dict(_TEXT),
                    "arguments": {"description": "null unless `state` is `complete`."},
                    "state": dict(_TEXT),
                }
            )
        ),
        "finish_reason": {"type": ["string", "null"]},
        "provider_finish_reason": {"type": ["string", "null"]},
        "usage": {"type": ["object", "null"]},
        "error": {"type": ["object", "null"]},
        "repairs": _list_of(_object({"kind": dict(_TEXT), "where": dict(_TEXT), "what": dict(_TEXT)})),
        "repairs_in_all": _COUNT,
    },
    required=["text", "reasoning", "tool_calls", "finish_reason", "error", "repairs", "repairs_in_all"],
)


def failed(why: str) -> CallToolResult:
    """A result that says what was wrong and what to do."""
    return CallToolResult(content=[TextContent(type="text", text=why)], is_error=True)


def run_result(served: Served) -> CallToolResult:
    """The run's result; an error where it came to no answer, with its bill all the same."""
    result = served.result
    fields = result_fields(result, denied=served.denied[:MAX_DENIED])
    data = {
        "answer": result.text,
        "outcome": served.said,
        **{
            name: fields[name]
            for name in ("stop_reason", "complete", "why_incomplete", "fault", "usage", "cost_usd", "session")
        },
        "exit_code": exit_code(result.stop_reason, complete=result.complete),
        "requests": result.cost.requests,
        "known_cost_usd": result.cost.usd,
        "denied": fields["denied"],
        "denied_in_all": len(served.denied),
        "children": fields["children"],
        "notes": served.notes[:MAX_NOTES],
    }
    is_error = result.stop_reason in FAILED
    answer = clean_answer(result.text)  # a client may show the text at a terminal; the data have every character
    lines = [f"{served.said}: {answer}" if is_error else answer, f"[turnwise] {_line_of(served)}"]
    if served.denied:
        names = ", ".join(dict.fromkeys([visible_line(" › ".join([*one.path, one.name])) for one in served.denied]))
        lines.append(f"[turnwise] denied, and not run: {names}. {visible_line(served.denied[0].why)}")
    lines += [f"[turnwise] {visible_line(note)}" for note in served.notes[:MAX_NOTES]]
    return _result(data, text="\n\n".join(lines), is_error=is_error)


def decode_result(data: dict[str, object], *, is_stream: bool, family: str) -> CallToolResult:
    """What the stream holds; an error where it is no stream of that family."""
    text = msgspec.json.encode(data).decode()
    if not is_stream:
        text = f"this is no stream of `{visible_line(family)}`, or its beginning is missing: {text}"
    return _result(data, text=text, is_error=not is_stream)


def _line_of(served: Served) -> str:
    result = served.result
    cost = "cost unknown" if result.cost_usd is None else f"{result.cost_usd} US dollars"
    end = result.stop_reason.value if result.complete else f"{result.stop_reason.value}, not complete"
    return f"{end}; {many(result.cost.requests, 'request')}, {cost}; session {result.session}"


def _result(data: dict[str, object], *, text: str, is_error: bool) -> CallToolResult:
    plain = cast("dict[str, object]", msgspec.json.decode(msgspec.json.encode(data)))
    content = TextContent(type="text", text=_readable(text))
    return CallToolResult(content=[content], structured_content=plain, is_error=is_error)


def _readable(text: str) -> str:
    """Half of a surrogate pair cannot be sent."""
    return text.encode(errors="replace").decode()
