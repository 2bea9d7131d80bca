"""Upstreams that fail: who waits for one, who is asked instead, and what a client is told where nobody answers."""

import asyncio
import itertools
from collections import Counter
from collections.abc import Mapping
from urllib.parse import urlsplit

import msgspec
import pytest

from gateway.calling import call_of
from gateway.relayed import Gathered
from lab.failing import DEADLINES, settled
from telemetry.otlp_receiver import receiving
from turnwise import Telemetry
from turnwise.endpoints.transport import HttpRequest
from turnwise.gateway.accounts import AccountMeans
from turnwise.gateway.config import GatewayConfig, GatewayRoute, UpstreamAddress
from turnwise.gateway.doors import ClientCall
from turnwise.gateway.service import RelayService, ServiceMeans
from turnwise.lab import Lab, builtin_scripts
from turnwise.testing import FakeClock
from turnwise.testing.frames import frames_of
from turnwise.testing.scripted_model import STREAM, Reply, ScriptedTransport, Stall
from turnwise.testing.wire_conformance import encode_stream
from turnwise.vocab import Fault, FaultKind, FinishReason, Message, Request, Response, Text
from turnwise.wire.family import family as find_family

SAID = Response(message=Message("assistant", (Text("All good."),)), finish=FinishReason.STOP)
CHAT = find_family("openai_chat")
WHOLE = Reply(
    pieces=(encode_stream(CHAT, frames_of(SAID), request=Request(model="m", messages=(), stream=True)),), headers=STREAM
)
TRACE = ("traceparent", "tracestate", "baggage")
KIND = {"content-type": "application/json"}


def status(number: int, **headers: str) -> Reply:
    named = {key.replace("_", "-"): value for key, value in headers.items()}
    return Reply(status=number, pieces=(b'{"error": {"message": "not now, sk-key-of-a"}}',), headers={**KIND, **named})


OPENING = b'data: {"id": "c", "model": "m", "choices": [{"index": 0, "delta": {"role": "assistant"}}]}\n\n'
ERROR = b'data: {"error": {"message": "not now", "code": 529}}\n\n'
FAILURES: Mapping[str, Reply] = {
    "refused": Reply(before=Fault(kind=FaultKind.UNREACHABLE, message="no connection")),
    "silent": Reply(before=Stall()),
    "500": status(500),
    "429": status(429, retry_after="40"),
    "401": status(401),
    "504": status(504),
    "error": Reply(pieces=(ERROR,), headers=STREAM),
    "opening": Reply(pieces=(OPENING, ERROR), headers=STREAM),
}
COOLED_S = {"429": 40.0, "silent": 30.0, "401": 60.0}
ENV = {"KEY": "sk-key-of-all", "KEY_A": "sk-key-of-a", "KEY_B": "sk-key-of-b"}


def at(host: str, *, weight: float = 1, key_env: str | tuple[str, ...] = "KEY") -> UpstreamAddress:
    return UpstreamAddress(url=f"http://{host}.invalid/v1", family="openai_chat", key_env=key_env, weight=weight)


class Served:
    """A gateway whose upstreams are known by host, or by key where they share one. `ill` answer as it says, others well."""

    def __init__(self, *routes: GatewayRoute, forward_key: bool = False, telemetry: Telemetry | None = None) -> None:
        self.clock = FakeClock()
        self.ill: dict[str, Reply] = {}
        self.asked: list[str] = []
        transport = ScriptedTransport(itertools.repeat(self._answer))
        self.headers: list[dict[str, str]] = []
        accounts = AccountMeans(clock=self.clock, telemetry=telemetry)
        means = ServiceMeans(transport=transport, clock=self.clock, env=ENV, deadlines=DEADLINES, accounts=accounts)
        self.service = RelayService(GatewayConfig(routes=routes), means=means, forward_key=forward_key)
        self._numbers = itertools.count()

    def _answer(self, request: HttpRequest) -> Reply:
        self.headers.append(dict(request.headers))
        key = dict(request.headers).get("authorization", "").rpartition("-")[2]
        host = (urlsplit(request.url).hostname or "").partition(".")[0]
        self.asked.append(f"{host} {key}")
        return next((reply for name, reply in self.ill.items() if name in (host, key)), WHOLE)

    def call(self, said: str = "", *, earlier: int = 0, **more: object) -> ClientCall:
        """A conversation of its own, unless `said` names one; `earlier` answers stand behind its first message."""
        opening = {"role": "user", "content": said or f"conversation {next(self._numbers)}"}
        told = [{"role": "assistant", "content": "Yes."}, {"role": "user", "content": "And?"}] * earlier
        call = call_of("openai_chat", "m", stream=True, messages=[opening, *told])
        return msgspec.structs.replace(call, **more)

    async def ask(self, call: ClientCall | None = None) -> tuple[Gathered, list[str], float]:
        """The answer, who was asked for it, and the seconds that it took."""
        before, began_s, outlet = len(self.asked), self.clock.monotonic(), Gathered()
        await settled(self.service.answer(call or self.call(), outlet), clock=self.clock)
        return outlet, self.asked[before:], self.clock.monotonic() - began_s


def is_whole(outlet: Gathered) -> bool:
    return outlet.status == 200 and outlet.pieces[-1].endswith(b"data: [DONE]\n\n")


TWO = GatewayRoute(upstream=(at("a", weight=1000), at("b", weight=0.001)))


@pytest.mark.promise("serve:upstreams")
@pytest.mark.parametrize("failure", FAILURES)
async def test_one_request_waits_for_a_dead_upstream_and_one_a_cool_down(failure: str) -> None:
    """The others go to the next one before their first byte, in no time. Once it is well it is used again."""
    there = Served(TWO)
    there.ill["a"] = FAILURES[failure]
    outlet, asked, took_s = await there.ask()
    assert (is_whole(outlet), asked) == (True, ["a all", "b all"])
    assert took_s == (20.0 if failure == "silent" else 0.0)  # the deadline of the first event
    for _ in range(20):
        outlet, asked, took_s = await there.ask()
        assert (is_whole(outlet), asked, took_s) == (True, ["b all"], 0.0)
    cooled_s = COOLED_S.get(failure, 2.0)
    await there.clock.advance(cooled_s)
    looked = [await there.ask() for _ in range(5)]
    assert [asked for _, asked, _ in looked] == [["a all", "b all"], *[["b all"]] * 4]
    assert all(is_whole(outlet) for outlet, _, _ in looked)
    shown = f'{{upstream="openai_chat at http://a.invalid/v1 (KEY)"}} {failure in ("refused", "silent", "401"):d}\n'
    assert f"turnwise_gateway_upstream_left_alone{shown}".encode() in there.service.metrics()
    for _ in range(3):  # it doubles each time, whatever a stream had begun with
        cooled_s = min(60.0, cooled_s * 2) if failure != "429" else cooled_s
        await there.clock.advance(cooled_s - 0.5)
        assert (await there.ask())[1] == ["b all"]
        await there.clock.advance(0.5)
        assert [(await there.ask())[1] for _ in range(2)] == [["a all", "b all"], ["b all"]]
    there.ill.clear()
    await there.clock.advance(60)
    assert [(await there.ask())[1] for _ in range(3)] == [["a all"]] * 3


async def test_requests_that_were_on_their_way_wait_together_and_begin_one_round() -> None:
    """Twenty at a silent upstream; while one looks whether it is well again, nobody else does."""
    there = Served(TWO)
    there.ill["a"] = FAILURES["silent"]
    outlets = [Gathered() for _ in range(20)]
    together = asyncio.gather(*[there.service.answer(there.call(), outlet) for outlet in outlets])
    await settled(asyncio.wait_for(together, None), clock=there.clock)
    assert all(map(is_whole, outlets)) and there.clock.monotonic() == 20.0
    assert Counter(there.asked) == {"a all": 20, "b all": 20}
    await there.clock.advance(30)
    looking = asyncio.ensure_future(there.service.answer(there.call(), Gathered()))
    for _ in range(10):
        await there.clock.advance(0)
    assert there.asked[40:] == ["a all"]
    assert [(await there.ask())[1:] for _ in range(3)] == [(["b all"], 0.0)] * 3
    looking.cancel()  # its client leaves: the next one looks
    await asyncio.wait([looking])
    assert (await there.ask())[1] == ["a all", "b all"]


@pytest.mark.parametrize("failure", ["429", "401"])
async def test_each_key_of_an_upstream_is_a_door_of_its_own(failure: str) -> None:
    """What is wrong with a key is not wrong with the other one. Without any that works a client of the gateway gets no 401 for
    its own key, and reads none of them."""
    there = Served(GatewayRoute(upstream=at("x", key_env=("KEY_A", "KEY_B")), retry=0))
    assert {(await there.ask())[1][0] for _ in range(20)} == {"x a", "x b"}, "both share the conversations"
    there.ill["a"] = FAILURES[failure]
    before = len(there.asked)
    for _ in range(20):
        assert is_whole((await there.ask())[0])
    assert Counter(there.asked[before:]) == {"x a": 1, "x b": 20}
    there.ill["b"] = FAILURES[failure]
    outlet, _, _ = await there.ask()
    body = b"".join(outlet.pieces)
    assert outlet.status == {"429": 429, "401": 502}[failure]
    assert (b'"upstream_key_refused"' in body, b"sk-key" in body) == (failure == "401", False)


async def test_a_conversation_stays_where_its_prompt_is_cached() -> None:
    """The upstream is chosen by the client and its first message, in the same way by each process."""
    route = GatewayRoute(upstream=(at("a"), at("b", weight=3)))
    there, other = Served(route), Served(route)
    first = {said: (await there.ask(there.call(said)))[1] for said in map(str, range(80))}
    shares = Counter(asked[0] for asked in first.values())
    assert 10 <= shares["a all"] <= 30, "a quarter"
    for said, asked in list(first.items())[:20]:
        assert (await there.ask(there.call(said, earlier=2)))[1] == asked
        assert (await other.ask(other.call(said)))[1] == asked
    assert len({(await there.ask(there.call("same", client=str(n))))[1][0] for n in range(30)}) == 2


async def test_an_upstream_of_last_resort_is_asked_behind_the_retries_and_then_at_once() -> None:
    """`fallbacks` have groups of their own: the first group is asked again before them."""
    there = Served(GatewayRoute(upstream=at("a"), fallbacks=(at("b"),)))
    there.ill["a"] = FAILURES["500"]
    outlet, asked, took_s = await there.ask()
    assert (is_whole(outlet), asked) == (True, [*["a all"] * 4, "b all"]) and took_s > 0
    outlet, asked, took_s = await there.ask()
    assert (is_whole(outlet), asked, took_s) == (True, ["b all"], 0.0)


@pytest.mark.parametrize(("failure", "is_refused"), [("refused", True), ("500", False), ("429", False)])
async def test_a_route_whose_every_upstream_is_dead_answers_at_once(failure: str, is_refused: bool) -> None:
    """503 with when to come again, and one request a cool-down sees. One that still says something is asked all the same."""
    there = Served(GatewayRoute(upstream=at("a"), retry=3))
    there.ill["a"] = FAILURES[failure]
    while len(there.asked) < 2 * 4:
        await there.ask()
    outlet, asked, took_s = await there.ask()
    assert (asked == [], took_s == 0.0) == (is_refused, is_refused)
    if is_refused:
        assert outlet.status == 503 and 1 <= int(outlet.headers["retry-after"]) <= 60
        assert b'"upstreams_down"' in b"".join(outlet.pieces)
        await there.clock.advance(60)
        there.ill.clear()
        assert is_whole((await there.ask())[0])


async def test_what_one_clients_own_key_meets_is_no_matter_of_others() -> None:
    """With `--forward-key` an upstream that limits one client is well for the next; its 401 is the client's own."""
    there = Served(msgspec.structs.replace(TWO, retry=0), forward_key=True)
    for failure, told in (("429", 429), ("401", 401)):
        there.ill["mine"] = FAILURES[failure]
        outlet, asked, _ = await there.ask(there.call(client_key="sk-mine"))
        assert (outlet.status, asked[0]) == (told, "a mine")
        assert (await there.ask(there.call(client_key="sk-other")))[1] == ["a other"]


async def test_a_passed_path_goes_to_the_next_upstream_and_counts_are_estimated() -> None:
    """Embeddings have no stream to heal, and no conversation."""
    there = Served(msgspec.structs.replace(TWO, passes=("/v1/embeddings",)))
    there.ill["a"] = FAILURES["refused"]
    body = msgspec.json.encode({"model": "m", "input": "x"})
    passed = there.call(path="/v1/embeddings", kind="passed", body=body)
    asked = [(await there.ask(passed))[1] for _ in range(2)]
    assert asked == [["a all", "b all"], ["b all"]]


async def test_each_upstream_request_has_a_span_below_its_clients_and_seconds_are_counted() -> None:
    """`traceparent` comes in; it goes to an upstream only where the file says so, and nothing else of the client's trace does."""
    first, second = at("a", weight=1000), msgspec.structs.replace(at("b", weight=0.001), traceparent=True)
    route = GatewayRoute(name="coding", upstream=(first, second))
    with receiving() as receiver:
        telemetry = Telemetry(tracer_provider=receiver.tracers, meter_provider=receiver.meters)
        there = Served(route, telemetry=telemetry)
        there.ill["a"] = FAILURES["silent"]
        trace = (("traceparent", f"00-{'a' * 32}-{'b' * 16}-01"), ("tracestate", "shop=1"), ("baggage", "user=ada"))
        outlet, asked, _ = await there.ask(there.call(trace=trace))
        assert is_whole(outlet) and asked == ["a all", "b all"]
        receiver.wait_for(spans=3)
        (server,) = [one for one in receiver.spans if one.span.kind == 2]
        below = [one for one in receiver.spans if one.span.kind == 3]
    assert (server.span.trace_id.hex(), server.parent.hex()) == ("a" * 32, "b" * 16)
    assert {(one.parent, one.span.trace_id) for one in below} == {(server.id, server.span.trace_id)}
    found = {one["turnwise.request.number"]: one for one in below}
    assert (found[1].failed, found[1]["error.type"], found[2].failed) == (True, "timeout", False)
    assert (found[1].seconds, server["turnwise.run.requests"]) == (20, 2)
    sent = [{key: value for key, value in headers.items() if key in TRACE} for headers in there.headers]
    assert sent == [{}, {"traceparent": f"00-{'a' * 32}-{found[2].id.hex()}-01"}]
    told = there.service.metrics().decode()
    for name in ("duration", "first_token", "queue"):
        labels = 'provider="openai_chat",model="m",route="coding",team=""'
        assert f"turnwise_gateway_{name}_seconds_count{{{labels}}} 1\n" in told
        low = {"queue": 1}.get(name, 0)
        assert f'turnwise_gateway_{name}_seconds_bucket{{{labels},le="10.0"}} {low}\n' in told


FAULTS = sorted(name for name in builtin_scripts() if name.startswith("fault-"))


@pytest.mark.promise("serve:upstreams")
@pytest.mark.parametrize("stream", [True, False])
@pytest.mark.parametrize("case", FAULTS)
async def test_each_way_to_fail_before_the_first_word_is_made_up_by_the_next_upstream(case: str, stream: bool) -> None:
    """Of all that the lab does to an answer: it is whole, or, once a client has read a word of it, ends with one error."""
    first = UpstreamAddress(url="http://lab.invalid/v1", family="openai_chat", key_env="KEY", model=case, weight=1000)
    second = msgspec.structs.replace(first, model="plain-answer", weight=0.001)
    async with Lab() as lab:
        clock, outlet = FakeClock(), Gathered()
        means = ServiceMeans(transport=lab.transport(), clock=clock, env=ENV, deadlines=DEADLINES)
        config = GatewayConfig(routes=(GatewayRoute(upstream=(first, second)),))
        service = RelayService(config, means=means, forward_key=False)
        await settled(service.answer(call_of("openai_chat", "m", stream=stream), outlet), clock=clock)
        asked = [one.model for one in lab.requests]
    body = b"".join(outlet.pieces)
    assert outlet.status == 200 and asked[0] == case
    is_told = b'"error"' in body
    if "plain-answer" in asked or not stream:
        assert not is_told
    assert asked.count(case) == 1 or "plain-answer" not in asked
