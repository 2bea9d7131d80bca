"""What the tests in `test_gemini_requests.py` and `test_gemini_request_trips.py` share."""

import json
from typing import Any

import msgspec

from turnwise.vocab import (
    Message,
    NamedTool,
    Opaque,
    OutputSchema,
    Part,
    Reasoning,
    Request,
    Settings,
    Text,
    ToolCall,
    ToolResult,
    ToolSpec,
)
from turnwise.wire.gemini import FAMILY
from turnwise.wire.profiles import Profile

NAME = "gemini"
PROFILE = Profile(name="test", family="gemini")
NO_IDS = Profile(name="test", family="gemini", sends_call_ids=False)
FOREIGN = Opaque("anthropic_messages", '{"signature":"x"}')
PATH = "/v1beta/models/gemini-3:generateContent"


def own(**fields: Any) -> Opaque:
    return Opaque(NAME, msgspec.json.encode(fields).decode())


def user(*parts: Part | str) -> Message:
    return Message("user", tuple(Text(part) if isinstance(part, str) else part for part in parts))


def assistant(*parts: Part | str) -> Message:
    return Message("assistant", tuple(Text(part) if isinstance(part, str) else part for part in parts))


def ask(*messages: Message, **fields: Any) -> Request:
    return Request(model="gemini-3", messages=messages or (user("hi"),), **fields)


def body_of(request: Request, profile: Profile = PROFILE) -> dict[str, Any]:
    return json.loads(FAMILY.encode_request(request, profile).body)


def decoded(body: dict[str, Any], path: str = PATH) -> Request:
    return FAMILY.decode_request(json.dumps(body).encode(), path)


CALL = ToolCall(id="c1", name="read", arguments='{"path": "a.txt"}', opaque=own(thoughtSignature="c2ln"))
OTHER = ToolCall(id="c2", name="read", arguments='{"path": "b.txt"}')
RESULT = ToolResult(call_id="c1", name="read", content=(Text("text of a"),))
FAILED = ToolResult(call_id="c2", name="read", content=(Text("no such file"),), is_error=True)
FULL = ask(
    user("read a and b"),
    assistant(Reasoning("hm"), "I read them.", CALL, OTHER),
    Message("tool", (RESULT, FAILED)),
    user("and be quick"),
    system=(Text("Be brief."), Text("Be kind.")),
    tools=(
        ToolSpec(name="read", description="Read a file", parameters='{"type":"object"}'),
        ToolSpec(name="googleSearch", opaque=own(googleSearch={})),
    ),
    tool_choice=NamedTool("read"),
    output=OutputSchema(schema='{"type":"object"}'),
    settings=Settings(
        max_output_tokens=2000, temperature=0.5, top_p=0.9, stop=("END",), seed=7, reasoning_effort="high"
    ),
    extra=own(generationConfig={"topK": 3}, safetySettings=[{"category": "C", "threshold": "T"}]),
)
