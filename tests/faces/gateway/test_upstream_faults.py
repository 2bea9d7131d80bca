"""A client learns what failed, and never where its upstream is; the log says that."""

import asyncio
import logging

import pytest

from faces.gateway.calling import call_of
from faces.gateway.relayed import FAMILIES, Gathered
from turnwise.faces.gateway.config import GatewayConfig, GatewayRoute, UpstreamAddress
from turnwise.faces.gateway.service import RelayService, ServiceMeans
from turnwise.faces.gateway.upstream_faults import without_address
from turnwise.testing import FakeClock
from turnwise.testing.scripted_transport import Reply, ScriptedTransport
from turnwise.vocab import Fault, FaultKind
from turnwise.wire.profiles import FamilyName
from waits import HANG_S

JSON = {"content-type": "application/json"}
BASE = "http://10.20.30.40:8701/v1"
REPLIES = {
    "unknown model": Reply(status=404, headers=JSON, pieces=(b'{"error":{"message":"no such model"}}',)),
    "redirect": Reply(status=307, headers={"location": "http://10.20.30.40:9000/elsewhere"}),
    "not modified": Reply(status=304, headers={}),
    "no connection": Reply(
        before=Fault(
            kind=FaultKind.UNREACHABLE, message="no connection to `10.20.30.40:8701`: refused", should_retry=False
        )
    ),
    "broken": Reply(before=Fault(kind=FaultKind.PROTOCOL, message="`10.20.30.40` did not answer in HTTP")),
    "quoted": Reply(status=400, headers=JSON, pieces=(b'{"error":{"message":"see http://10.20.30.40:8701/v1/help"}}',)),
}


def told(reply: Reply, *, family: FamilyName, stream: bool) -> str:
    """The whole answer to the client."""

    async def run() -> str:
        outlet = Gathered()
        upstream = UpstreamAddress(url=BASE, family=family, key_env="LAB_KEY")
        means = ServiceMeans(transport=ScriptedTransport([reply]), clock=FakeClock(), env={"LAB_KEY": "k"})
        config = GatewayConfig(routes=(GatewayRoute(upstream=upstream, retry=0),))
        service = RelayService(config, means=means, forward_key=False)
        await asyncio.wait_for(service.answer(call_of(family, "m", stream=stream), outlet), HANG_S)
        assert outlet.status >= 400
        return b"".join(outlet.pieces).decode()

    return asyncio.run(run())


@pytest.mark.parametrize("stream", [True, False])
@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("name", REPLIES)
def test_no_client_learns_the_address_of_its_upstream(
    name: str, family: FamilyName, stream: bool, caplog: pytest.LogCaptureFixture
) -> None:
    """Nor gets advice that only the operator can follow."""
    caplog.set_level(logging.WARNING, "turnwise")
    said = told(REPLIES[name], family=family, stream=stream)
    for secret in ("10.20.30.40", "8701", "9000", "elsewhere", "base URL", "``"):
        assert secret not in said, said
    if name != "not modified":
        assert "10.20.30.40" in caplog.text and "[tw-1]" in caplog.text


def test_the_words_of_a_provider_stay() -> None:
    """Only its address goes: a link to its documentation helps the client."""
    message = "quota exceeded, see https://platform.example.com/billing (asked for more than you have)"
    fault = Fault(kind=FaultKind.QUOTA, message=message, status=429)
    assert without_address(fault, base_url="https://api.example.com/v1").fault == fault
    local = Fault(kind=FaultKind.BAD_REQUEST, message="ollama cannot do that", status=400)
    assert without_address(local, base_url="http://ollama:11434/v1").fault == local
    assert (
        without_address(
            Fault(kind=FaultKind.UNREACHABLE, message="no connection to `ollama`: refused"),
            base_url="http://ollama:11434/v1",
        ).fault.message
        == "no connection to the upstream: refused"
    )
