"""Calls that a model wrote into its text, through the gateway: a route says whether they count."""

import msgspec
import pytest

from gateway.relayed import FAMILIES, Gathered, profile_of
from gateway.test_service import asked, lab_at
from turnwise.assembly.response_reading import read_body
from turnwise.gateway.config import GatewayRoute
from turnwise.gateway.doors import ClientCall
from turnwise.lab.script import Script, ScriptedStep
from turnwise.vocab import FinishReason, Response, Text, calls_of
from turnwise.wire.family import family as find_family
from turnwise.wire.json_fields import encode
from turnwise.wire.profiles import FamilyName
from whole_streams import read_stream

WRITTEN = '<tool_call>\n{"name": "read", "arguments": {"path": "a.txt"}}\n</tool_call>'
SCRIPT = Script(name="written", title="written", steps=(ScriptedStep(text=f"I look.\n{WRITTEN}"),))
SCHEMA = {"type": "object", "properties": {"path": {"type": "string"}}}
PATHS = {
    "openai_chat": "/v1/chat/completions",
    "openai_responses": "/v1/responses",
    "anthropic_messages": "/v1/messages",
    "gemini": "/v1beta/models/written:generateContent",
}
BODIES: dict[str, dict[str, object]] = {
    "openai_chat": {
        "messages": [{"role": "user", "content": "Look."}],
        "tools": [{"type": "function", "function": {"name": "read", "parameters": SCHEMA}}],
    },
    "openai_responses": {"input": "Look.", "tools": [{"type": "function", "name": "read", "parameters": SCHEMA}]},
    "anthropic_messages": {
        "max_tokens": 1000,
        "messages": [{"role": "user", "content": "Look."}],
        "tools": [{"name": "read", "input_schema": SCHEMA}],
    },
    "gemini": {
        "contents": [{"role": "user", "parts": [{"text": "Look."}]}],
        "tools": [{"functionDeclarations": [{"name": "read", "parameters": SCHEMA}]}],
    },
}


def call_of(client: FamilyName, *, stream: bool) -> ClientCall:
    is_gemini = client == "gemini"
    named = {} if is_gemini else {"model": "written", "stream": stream}
    return ClientCall(
        id="tw-1",
        path=PATHS[client],
        body=encode({**BODIES[client], **named}),
        family=client,
        kind="generate",
        model="written" if is_gemini else None,
        streams=stream and is_gemini,
    )


def read(outlet: Gathered, *, client: FamilyName, stream: bool) -> Response:
    assert outlet.status == 200
    body, here, profile = b"".join(outlet.pieces), find_family(client), profile_of(client)
    return (
        read_stream([body], family=here, profile=profile)
        if stream
        else read_body(body, family=here, profile=profile)[0]
    )


@pytest.mark.promise("heal:every-case")
@pytest.mark.parametrize("stream", [True, False])
@pytest.mark.parametrize("client", FAMILIES)
@pytest.mark.parametrize("upstream", FAMILIES)
def test_a_call_written_as_text_is_a_call(upstream: FamilyName, client: FamilyName, stream: bool) -> None:
    """Streamed and not: the client sees a call of its own family, the words before it, and the finish reason of calls."""
    route = GatewayRoute(upstream=lab_at(upstream), calls_in_text="on")
    outlet, _ = asked(call_of(client, stream=stream), route, scripts=[SCRIPT])
    got = read(outlet, client=client, stream=stream)
    found = [(call.name, msgspec.json.decode(call.arguments)) for call in calls_of(got.message)]
    assert found == [("read", {"path": "a.txt"})]
    assert [part.text.rstrip() for part in got.message.parts if isinstance(part, Text)] == ["I look."]
    assert (got.finish, got.repairs) == (FinishReason.TOOL_CALLS, ())


@pytest.mark.parametrize("stream", [True, False])
@pytest.mark.parametrize("client", FAMILIES)
def test_text_stays_text_where_the_route_says_so(client: FamilyName, stream: bool) -> None:
    """Every character of it."""
    route = GatewayRoute(upstream=lab_at(), calls_in_text="off")
    outlet, _ = asked(call_of(client, stream=stream), route, scripts=[SCRIPT])
    got = read(outlet, client=client, stream=stream)
    assert [part.text for part in got.message.parts if isinstance(part, Text)] == [f"I look.\n{WRITTEN}"]
    assert (calls_of(got.message), got.finish) == ((), FinishReason.STOP)
