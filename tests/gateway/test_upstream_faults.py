"""A client learns what failed, and never where its upstream is; the log says that."""

import asyncio
import json
import logging
from typing import Literal

import pytest

from gateway.calling import call_of
from gateway.relayed import FAMILIES, Gathered
from turnwise.gateway.config import GatewayConfig, GatewayRoute, UpstreamAddress
from turnwise.gateway.delivery import without_address
from turnwise.gateway.doors import ClientCall
from turnwise.gateway.service import RelayService, ServiceMeans
from turnwise.testing import FakeClock
from turnwise.testing.scripted_model import Reply, ScriptedTransport
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
    "through a proxy": Reply(
        before=Fault(
            kind=FaultKind.UNREACHABLE,
            message="no connection to `10.20.30.40:8701`: refused (through the proxy `gate.example:3128`)",
            should_retry=False,
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
    for secret in ("10.20.30.40", ":8701", ":9000", "elsewhere", "base URL", "``", "gate.example"):
        assert secret not in said, said
    assert ("(through the proxy `gate.example:3128`)" in caplog.text) is (name == "through a proxy")
    if name != "not modified":
        assert "10.20.30.40" in caplog.text and f"[tw-1] upstream {family}: " in caplog.text


@pytest.mark.parametrize("kind", ["passed", "count"])
async def test_the_log_names_the_upstream_of_a_passed_path_and_of_a_count(
    kind: Literal["passed", "count"], caplog: pytest.LogCaptureFixture
) -> None:
    """Proves: its line has the provider, as that of an answer has; for a count it had none."""
    path = "/v1/embeddings" if kind == "passed" else "/v1/messages/count_tokens"
    upstream = UpstreamAddress(url=BASE, family="anthropic_messages", key_env="LAB_KEY")
    means = ServiceMeans(
        transport=ScriptedTransport([REPLIES["no connection"]]), clock=FakeClock(), env={"LAB_KEY": "k"}
    )
    config = GatewayConfig(routes=(GatewayRoute(upstream=upstream, passes=("/v1/embeddings",)),))
    body = b'{"model":"m","messages":[{"role":"user","content":"hi"}]}'
    call = ClientCall(id="tw-1", path=path, body=body, family="anthropic_messages", kind=kind)
    with caplog.at_level(logging.WARNING, "turnwise"):
        service = RelayService(config, means=means, forward_key=False)
        await asyncio.wait_for(service.answer(call, Gathered()), HANG_S)
    assert "gateway: [tw-1] upstream anthropic_messages: no connection to `10.20.30.40:8701`" in caplog.text


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


PAGE = (
    "<html><head><title>502 Bad Gateway</title></head><body><h1>Bad Gateway</h1><script>steal()</script></body></html>"
)
PAGES = {
    "as it is": PAGE,
    "behind words": f"upstream says: <!DOCTYPE html>{PAGE}",
    "a message": json.dumps({"error": {"message": PAGE, "type": "server_error", "code": 500}}),
    "an error": json.dumps({"error": PAGE}),
    "a field of another API": json.dumps({"detail": PAGE}),
}
KINDS = ("text/html", "text/plain", "application/json", "text/event-stream")


@pytest.mark.parametrize("stream", [True, False])
@pytest.mark.parametrize("status", [200, 403, 404, 502])
@pytest.mark.parametrize("family", FAMILIES)
def test_a_web_page_of_the_upstream_never_reaches_a_client(family: FamilyName, status: int, stream: bool) -> None:
    """Issue 40: a client that shows the error would show the page. Whatever the page calls itself, and wherever it stands."""
    for kind in KINDS:
        for where, page in PAGES.items():
            reply = Reply(status=status, headers={"content-type": kind}, pieces=(page.encode(),))
            answer = told(reply, family=family, stream=stream)
            assert "<" not in answer and "u003c" not in answer and "steal" not in answer, (kind, where, answer)


def test_a_passed_path_answers_with_no_web_page() -> None:
    """A portal's page with status 200 went on as JSON; what a model says about HTML in JSON is data."""

    def passed(kind: str, page: str) -> tuple[int, str]:
        async def run() -> tuple[int, str]:
            outlet = Gathered()
            upstream = UpstreamAddress(url=BASE, family="openai_chat", key_env="LAB_KEY")
            reply = Reply(status=200, headers={"content-type": kind}, pieces=(page.encode(),))
            means = ServiceMeans(transport=ScriptedTransport([reply]), clock=FakeClock(), env={"LAB_KEY": "k"})
            config = GatewayConfig(routes=(GatewayRoute(upstream=upstream, passes=("/v1/embeddings",)),))
            body = b'{"model":"m","input":"x"}'
            call = ClientCall(id="tw-1", path="/v1/embeddings", body=body, family="openai_chat", kind="passed")
            service = RelayService(config, means=means, forward_key=False)
            await asyncio.wait_for(service.answer(call, outlet), HANG_S)
            return outlet.status, b"".join(outlet.pieces).decode()

        return asyncio.run(run())

    for kind in KINDS:
        status, answer = passed(kind, PAGE)
        assert status == 502 and "the upstream answered with a web page" in answer and "<" not in answer
    data = json.dumps({"text": "<p>Use a paragraph.</p>"})
    assert passed("application/json", data) == (200, data)


def test_other_tags_of_a_page_and_any_that_does_something_are_a_page() -> None:
    """Proves: a page without any of the usual tags reached a client; so did a tag with a handler."""
    tags = (
        "<font color=red>",
        "<NOSCRIPT>",
        "<marquee>",
        "<frameset rows=1>",
        "<x onclick = 'go()'>",
        "<y/onload=go()>",
    )
    for tag in tags:
        fault = Fault(kind=FaultKind.SERVER, message=f"HTTP 502: {tag}502 Bad Gateway", status=502)
        assert without_address(fault, base_url=BASE).fault.message == "HTTP 502: a web page"


def test_tags_that_models_write_stay_in_a_message() -> None:
    """A message about a chat template is no page."""
    fault = Fault(
        kind=FaultKind.BAD_REQUEST, message="the template has no `<tool_call>` and no <|im_end|>: a < b", status=400
    )
    assert without_address(fault, base_url=BASE).fault == fault
