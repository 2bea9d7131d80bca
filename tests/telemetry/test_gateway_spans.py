"""Spans of the gateway: in the trace that the client names; and the switch for gateway and command line."""

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from gateway.relayed import Gathered
from telemetry.otlp_receiver import Receiver, receiving
from turnwise import Agent, CallerError, Model, Telemetry
from turnwise.gateway.accounts import Account, AccountMeans
from turnwise.gateway.app import TRACE
from turnwise.gateway.doors import ClientCall, ClientGone
from turnwise.telemetry.telemetry import telemetry_of
from turnwise.testing import FakeClock, ScriptedModel
from waits import HANG_S


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    with receiving() as opened:
        yield opened


async def test_a_gateways_span_is_a_child_of_its_clients_request(receiver: Receiver) -> None:
    """Issue 22: what a run sends as `traceparent` makes the gateway's span a child of the run's `chat`."""
    telemetry = Telemetry(traceparent=True, tracer_provider=receiver.tracers, meter_provider=receiver.meters)
    model = ScriptedModel(["Done."])
    agent = Agent(
        Model("openai_chat:m", transport=model),
        observation={"telemetry": telemetry, "clock": FakeClock()},
    )
    await agent.run("Go.")
    sent = tuple([pair for pair in model.requests[0].headers if pair[0] in TRACE])
    means = AccountMeans(telemetry=telemetry, clock=FakeClock())
    call = ClientCall(
        id="r1", path="/v1/chat/completions", body=b"{}", family="openai_chat", kind="generate", trace=sent
    )
    account = Account(call, means=means)
    with account.open(Gathered()) as outlet:
        await account.sends("step", provider="xai", model="m", sent_bytes=2)
        await outlet.start(200, ())
    receiver.wait_for(spans=3)
    span = next(one for one in receiver.spans if one.span.kind == 2)  # server
    asked = next(one for one in receiver.named("chat m") if one.span.kind == 3)
    assert (span.parent, span.span.trace_id) == (asked.id, asked.span.trace_id)
    assert (span.name, span["gen_ai.provider.name"], span["http.response.status_code"]) == ("chat m", "x_ai", 200)
    assert not span.failed


async def test_a_client_that_leaves_ends_the_gateways_span_with_an_error(receiver: Receiver) -> None:
    """Without `traceparent` the span begins a trace of its own; that its client left is its `error.type`."""
    telemetry = Telemetry(tracer_provider=receiver.tracers, meter_provider=receiver.meters)
    call = ClientCall(id="r1", path="/v1/chat/completions", body=b"{}", family="openai_chat", kind="generate")
    with pytest.raises(ClientGone), Account(call, means=AccountMeans(telemetry=telemetry)).open(Gathered()):
        raise ClientGone
    receiver.wait_for(spans=1)
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


@pytest.mark.costly
@pytest.mark.parametrize(
    "words", ["run -m openai:gpt-5 Hello.", "acp -m openai:gpt-5", "gateway --upstream openai:gpt-5"]
)
def test_a_command_without_opentelemetry_says_what_installs_it(words: str, tmp_path: Path) -> None:
    """With `TURNWISE_TELEMETRY=on`: one line, exit code 2, and nothing has been sent or served."""
    (tmp_path / "sitecustomize.py").write_text("import sys; sys.modules['opentelemetry'] = None")
    env = {**os.environ, "PYTHONPATH": str(tmp_path), "TURNWISE_TELEMETRY": "on", "OPENAI_API_KEY": "none"}
    env |= {"TURNWISE_STATE_DIR": str(tmp_path / "state"), "XDG_CONFIG_HOME": str(tmp_path / "config")}
    argv = [sys.executable, "-m", "turnwise", *words.split()]
    ran = subprocess.run(
        argv, check=False, env=env, cwd=tmp_path, capture_output=True, text=True, timeout=HANG_S, input=""
    )
    assert (ran.returncode, ran.stdout, ran.stderr) == (
        2,
        "",
        "turnwise: support for OpenTelemetry is not installed: pip install 'turnwise[otel]'\n",
    )
