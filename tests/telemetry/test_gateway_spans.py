"""Spans of the gateway: in the trace that the client names; and the switch for gateway and command line."""

from collections.abc import Iterator

import pytest

from faces.gateway.relayed import Gathered
from telemetry.otlp_receiver import Receiver, receiving
from turnwise import Agent, CallerError, Telemetry
from turnwise.drivers.telemetry.telemetry import telemetry_of
from turnwise.faces.gateway.accounts import Account, AccountMeans
from turnwise.faces.gateway.app import TRACE
from turnwise.faces.gateway.calls import ClientCall, ClientGone
from turnwise.testing import FakeClock, ScriptedModel


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    with receiving() as opened:
        yield opened


async def test_a_gateways_span_is_a_child_of_its_clients_request(receiver: Receiver) -> None:
    """Issue 22: what a run sends as `traceparent` makes the gateway's span a child of the run's `chat`."""
    telemetry = Telemetry(traceparent=True, tracer_provider=receiver.tracers, meter_provider=receiver.meters)
    model = ScriptedModel(["Done."])
    agent = Agent(
        "openai_chat:m",
        endpoint={"base_url": model.endpoint.base_url, "transport": model},
        observation={"telemetry": telemetry, "clock": FakeClock()},
    )
    await agent.run("Go.")
    sent = tuple([pair for pair in model.requests[0].headers if pair[0] in TRACE])
    means = AccountMeans(telemetry=telemetry, clock=FakeClock())
    call = ClientCall(id="r1", path="/v1/chat/completions", body=b"{}", family="openai_chat", kind="main", trace=sent)
    account = Account(call, means=means)
    with account.open(Gathered()) as outlet:
        await account.sends("step", provider="xai", model="m", sent_bytes=2)
        await outlet.start(200, ())
    span = next(one for one in receiver.spans if one.span.kind == 2)  # server
    asked = next(one for one in receiver.named("chat m") if one.span.kind == 3)
    assert (span.parent, span.span.trace_id) == (asked.id, asked.span.trace_id)
    assert (span.name, span["gen_ai.provider.name"], span["http.response.status_code"]) == ("chat m", "x_ai", 200)
    assert not span.failed


async def test_a_client_that_leaves_ends_the_gateways_span_with_an_error(receiver: Receiver) -> None:
    """Without `traceparent` the span begins a trace of its own; that its client left is its `error.type`."""
    telemetry = Telemetry(tracer_provider=receiver.tracers, meter_provider=receiver.meters)
    call = ClientCall(id="r1", path="/v1/chat/completions", body=b"{}", family="openai_chat", kind="main")
    with pytest.raises(ClientGone), Account(call, means=AccountMeans(telemetry=telemetry)).open(Gathered()):
        raise ClientGone
    span = receiver.one("chat")
    assert span.parent == b"" and span.failed and span["error.type"] == "client_left"


def test_the_environment_switches_telemetry_on() -> None:
    """`TURNWISE_TELEMETRY` is off unless it says on; a word that is neither is an error."""
    assert telemetry_of({}) is None and telemetry_of({"TURNWISE_TELEMETRY": "off"}) is None
    assert "contents=False" in repr(telemetry_of({"TURNWISE_TELEMETRY": "on"}))
    asked = {"TURNWISE_TELEMETRY": "1", "OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT": "true"}
    assert "contents=True" in repr(telemetry_of(asked))
    with pytest.raises(CallerError, match="`on` or `off`, not `yes`"):
        telemetry_of({"TURNWISE_TELEMETRY": "yes"})
