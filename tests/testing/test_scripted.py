"""The scripted model and transport: what they say is what was scripted, in every family."""

import asyncio

import pytest

import turnwise.testing
from tables import each
from turnwise import Agent, Model, tool
from turnwise.assembly.response_reading import read_body
from turnwise.endpoints.endpoints import build_http_request
from turnwise.endpoints.transport import HttpRequest
from turnwise.errors import CallerError, ProviderFault
from turnwise.testing import FakeClock, Reply, ScriptedModel, ScriptedTransport, Stall, call
from turnwise.vocab import (
    Fault,
    FaultKind,
    File,
    FinishReason,
    Message,
    Request,
    Response,
    Text,
    ToolSpec,
    calls_of,
    text_of,
)
from whole_streams import read_stream

FAMILIES = ["openai_chat", "openai_responses", "anthropic_messages", "gemini"]
HTTP = HttpRequest(url="http://x/", headers=(), body=b"")


def question(*, stream: bool) -> Request:
    tools = (ToolSpec(name="read"),)
    return Request(model="m", messages=(Message("user", (Text("hi"),)),), tools=tools, stream=stream)


async def ask(model: ScriptedModel, *, stream: bool = True) -> Response:
    family, profile = model.endpoint.family, model.endpoint.profile
    http = build_http_request(model.endpoint, family.encode_request(question(stream=stream), profile), connect_s=1)
    async with model.send(http) as reply:
        chunks = [chunk async for chunk in reply.chunks]
        assert reply.status == 200
    if stream:
        return read_stream(chunks, family=family, profile=profile)
    return read_body(b"".join(chunks), family=family, profile=profile)[0]


@each("stream", [True, False])
@each("family", FAMILIES)
async def test_lines_are_said_in_order_in_the_familys_bytes(family: str, stream: bool) -> None:
    """A text, parts with numbered calls, and a function of the request; what was asked is kept."""
    model = ScriptedModel(
        ["first", [Text("look: "), call("read", path="ä")], lambda request: f"you asked {request.model}"], family=family
    )
    first, second, third = [await ask(model, stream=stream) for _ in range(3)]
    assert (text_of(first.message), first.finish) == ("first", FinishReason.STOP)
    (made,) = calls_of(second.message)
    assert (made.name, made.arguments, second.finish) == ("read", '{"path":"ä"}', FinishReason.TOOL_CALLS)
    assert text_of(second.message) == "look: " and text_of(third.message) == "you asked m"
    assert [request.model for request in model.asked] == ["m", "m", "m"] and len(model.requests) == 3
    assert model.asked[0].messages == question(stream=stream).messages
    with pytest.raises(AssertionError, match="no reply to request 4"):
        await ask(model, stream=stream)


@each("played", FAMILIES)
@each("asked", FAMILIES)
def test_a_request_of_another_family_is_read_and_answered_in_its_own_form(asked: str, played: str) -> None:
    """Issue 44: one model under the names of two APIs. A file became something that nobody reads, or the run raised."""
    model = ScriptedModel([call("look"), "A pear.", "Still a pear."], family=played)
    picture = File(media_type="image/png", data=b"pear")

    def look() -> str:
        """Look."""
        return "round"

    for name in (asked, played):
        at = Model(f"{name}:m", base_url="http://x.invalid/v1", api_key="k", transport=model)
        assert Agent(at, tools=[look]).run_sync(["What is it?", picture]).text in ("A pear.", "Still a pear.")
    files = [part.data for request in model.asked for part in request.messages[0].parts if isinstance(part, File)]
    assert files == [b"pear"] * 3


@pytest.mark.parametrize("family", FAMILIES)
async def test_fault_is_said_as_the_family_says_it(family: str) -> None:
    """Status and body of the real API, so that our own decoder reads the same fault."""
    model = ScriptedModel([Fault(kind=FaultKind.RATE_LIMITED, message="slow down", status=429)], family=family)
    api, profile = model.endpoint.family, model.endpoint.profile
    http = build_http_request(model.endpoint, api.encode_request(question(stream=True), profile), connect_s=1)
    async with model.send(http) as reply:
        body = b"".join([chunk async for chunk in reply.chunks])
        fault = api.decode_fault(reply.status, reply.headers, body)
    assert (fault.kind, fault.status, fault.message) == (FaultKind.RATE_LIMITED, 429, "slow down")


async def test_transport_stalls_breaks_and_counts_what_is_open() -> None:
    """A silence until an event, a fault in the body, a fault before the head."""
    go, broken = asyncio.Event(), Fault(kind=FaultKind.DISCONNECTED, message="gone")
    transport = ScriptedTransport([Reply(pieces=(b"a", Stall(go), b"b", broken)), Reply(before=broken)])
    got: list[bytes] = []
    with pytest.raises(ProviderFault) as caught:
        async with transport.send(HTTP) as reply:
            async for chunk in reply.chunks:
                got.append(chunk)
                assert transport.open == 1
                go.set()
    assert (got, caught.value.fault, transport.open) == ([b"a", b"b"], broken, 0)
    with pytest.raises(ProviderFault):
        async with transport.send(HTTP):
            pass
    assert (transport.open, transport.requests) == (0, [HTTP, HTTP])


async def test_silence_before_the_head_ends_with_its_event() -> None:
    """And with a cancellation."""
    clock = FakeClock()
    transport = ScriptedTransport([Reply(before=Stall())])

    async def send() -> None:
        async with transport.send(HTTP):
            pass

    sending = asyncio.create_task(send())
    await clock.advance(1)
    assert transport.open == 1 and not sending.done()
    sending.cancel()
    with pytest.raises(asyncio.CancelledError):
        await sending
    assert transport.open == 0


def test_public_names_of_the_room() -> None:
    """The list is short and each name is there."""
    names = turnwise.testing.__all__
    assert names == sorted(names) and all(hasattr(turnwise.testing, name) for name in names)
    with pytest.raises(AttributeError):
        turnwise.testing.nothing  # noqa: B018


async def test_a_line_may_mix_texts_and_calls_and_nothing_else() -> None:
    """Proves: a text in a list is said, in every family; what is no line is refused when the script is made, with its number."""
    for family in ("openai_chat", "openai_responses", "anthropic_messages", "gemini"):
        model = ScriptedModel([["I look. ", call("look")], "Done."], family=family)

        @tool
        def look() -> str:
            """Look."""
            return "nothing"

        result = await Agent(model, tools=[look]).run("Look.")
        texts = [part.text for message in result.messages for part in message.parts if isinstance(part, Text)]
        assert texts == ["Look.", "I look. ", "Done."]
        assert result.text == "Done."
    for strange in ({"a": 1}, 5, None, b"x", [], ["text", 5]):
        with pytest.raises(CallerError, match="line 2 of the script"):
            ScriptedModel(["Fine.", strange])  # type: ignore[list-item]
