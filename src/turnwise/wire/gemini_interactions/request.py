"""`Request` -> the call of `POST /interactions`. Opaque keys: see parts.py, and for tools below.

We keep no state at the provider: `store` is false, and the steps of the whole conversation go along, with the signature of each
thought as it came. What stays the same over a turn stands before `input`, so the body of a step begins with the bytes of the one
before it (promise step:prefix-stable).

Opaque data on a `ToolSpec`: a tool of the provider's whole (it then has a `type`), or further fields of a function.
`Request.extra`: every body field that has no word in the vocabulary.
"""

from collections.abc import Sequence

import msgspec

from turnwise.vocab import File, Message, NamedTool, Part, Request, Settings, ToolResult, ToolSpec
from turnwise.wire.encoded_history import CallFrame, EncodedHistory
from turnwise.wire.family import HttpCall, call_of
from turnwise.wire.files import left_out, takes_file
from turnwise.wire.gemini_interactions.parts import NAME, own_fields, steps_of
from turnwise.wire.json_fields import encode, is_object, read_fields, write_object
from turnwise.wire.offers import FREE_FORM_SCHEMA, fitted_tool, instructions, kept_by_tool, offered_tools
from turnwise.wire.profiles import Profile
from turnwise.wire.tool_names import WireNames, wire_names

PATH = "/interactions"
JSON_TYPE = "application/json"

# Body fields whose value is an object that several words share: `extra` is merged into it, not put in its place.
MERGED = "generation_config"

# The API has no word for no thinking at all, and none above `xhigh` (google-genai 3.6, `ThinkingLevel`).
LEVELS = {
    "none": "minimal",
    "max": "xhigh",
    "minimal": "minimal",
    "low": "low",
    "medium": "medium",
    "high": "high",
    "xhigh": "xhigh",
}
BEFORE = ("model", "store", "system_instruction", "tools")


def encode_request(request: Request, profile: Profile, *, history: EncodedHistory | None = None) -> HttpCall:
    history = history or EncodedHistory()
    frame = history.frame(request, profile, make=_frame)
    return call_of(frame, written=history.write_body(frame, messages=request.messages))


def _frame(request: Request, profile: Profile) -> CallFrame:
    before: dict[str, object] = {"model": request.model} if profile.model_in_body else {}
    if profile.stateless:
        before["store"] = False
    if system := [text.text for text in instructions(request, profile) if text.text]:
        before["system_instruction"] = "\n\n".join(system)
    if tools := [_written_tool(tool) for tool in offered_tools(request, profile, family=NAME)]:
        before["tools"] = tools
    after: dict[str, object] = {}
    if generation := _generation(request, profile, has_tools=bool(tools)):
        after[MERGED] = generation
    if request.output is not None and profile.output != "none":
        schema = {"schema": msgspec.Raw(request.output.schema)} if profile.output == "json_schema" else {}
        after["response_format"] = {"type": "text", "mime_type": JSON_TYPE, **schema}
    if request.stream:
        after["stream"] = True
    for key, value in {**(read_fields(profile.body) if profile.body else {}), **own_fields(request.extra)}.items():
        if key == MERGED and generation and is_object(value):
            after[key] = {**generation, **read_fields(value)}
        else:
            (before if key in BEFORE else after)[key] = value
    names = wire_names(request.tools, profile)
    head = encode(before)[:-1] + (b"," if before else b"")
    tail = b"," + encode(after)[1:] if after else b"}"
    return CallFrame(
        path=profile.path or PATH,
        head=head + b'"input":[',
        tail=b"]" + tail,
        items=Steps(profile, names=names),
        rests_on=(profile, names.own),
    )


@kept_by_tool
def _written_tool(tool: ToolSpec) -> msgspec.Raw:
    """The tool encoded, once for all requests that offer it."""
    own = own_fields(tool.opaque)
    if "type" in own:
        return msgspec.Raw(write_object(own))
    tool = fitted_tool(tool).spec
    described = {"description": tool.description} if tool.description else {}
    schema = msgspec.Raw(FREE_FORM_SCHEMA if tool.free_form else tool.parameters)
    return msgspec.Raw(encode({"type": "function", "name": tool.name, **described, "parameters": schema, **own}))


def _generation(request: Request, profile: Profile, *, has_tools: bool) -> dict[str, object]:
    settings = request.settings
    effort = settings.reasoning_effort
    said = {
        "max_output_tokens": settings.max_output_tokens or profile.default_max_tokens,
        "temperature": settings.temperature,
        "top_p": settings.top_p,
        "stop_sequences": settings.stop or None,
        "seed": settings.seed,
        "thinking_level": None if effort is None else LEVELS[effort],
        "thinking_summaries": "auto" if asks_for_thoughts(settings) else None,
        "tool_choice": _choice(request) if has_tools else None,
    }
    return {key: value for key, value in said.items() if value is not None}


def asks_for_thoughts(settings: Settings) -> bool:
    """Who asks for reasoning wants to see it; the API leaves it out unasked (google-genai 3.6, `thinking_summaries`)."""
    return settings.reasoning_effort not in (None, "none")


def _choice(request: Request) -> object:
    match request.tool_choice:
        case "auto":
            return None
        case "required":
            return "any"
        case NamedTool(name=name):
            return {"allowed_tools": {"mode": "any", "tools": [name]}}
        case word:
            return word


class Steps:
    """The input steps of messages; those of one depend on no other."""

    def __init__(self, profile: Profile, *, names: WireNames) -> None:
        self._profile = profile
        self._names = names

    def take(self, messages: Sequence[Message]) -> list[bytes]:
        found: list[bytes] = []
        takes_all = self._profile.files == "all"
        for message in messages:
            parts = message.parts if takes_all else tuple([self._allowed(part) for part in message.parts])
            role = "model_output" if message.role == "assistant" else "user_input"
            found += steps_of(parts, role=role, names=self._names)
        return found

    def _allowed(self, part: Part) -> Part:
        """A line of text in place of each file that the endpoint does not take."""
        match part:
            case File() if not takes_file(part, self._profile):
                return left_out(part)
            case ToolResult(content=content):
                kept = [left_out(p) if isinstance(p, File) and not takes_file(p, self._profile) else p for p in content]
                return msgspec.structs.replace(part, content=tuple(kept))
            case _:
                return part

    def rest(self) -> list[bytes]:
        return []

    def copy(self) -> "Steps":
        return self
