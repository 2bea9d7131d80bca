"""How long a client waits for an upstream that is silent, stalls or fails: by a clock that jumps."""

import asyncio
from typing import Literal

import pytest

from gateway.calling import call_of, upstream_at
from gateway.relayed import FAMILIES, Gathered
from lab.failing import settled
from tables import each
from turnwise.gateway.config import DEFAULTS, GatewayConfig, GatewayDeadlines, GatewayRoute
from turnwise.gateway.doors import ClientCall
from turnwise.gateway.service import RelayService, ServiceMeans
from turnwise.lab import Lab
from turnwise.testing import FakeClock, ScriptedTransport
from turnwise.testing.scripted_model import Reply, Stall
from turnwise.wire.profiles import FamilyName

NONE = GatewayDeadlines()


def waited(
    model: str,
    *,
    stream: bool = True,
    family: FamilyName = "openai_chat",
    deadlines: GatewayDeadlines = NONE,
    route: GatewayDeadlines = NONE,
    fallbacks: int = 0,
) -> tuple[float, Gathered, int]:
    """Seconds, the answer, and how many requests went up."""

    async def run() -> tuple[float, Gathered, int]:
        async with Lab() as lab:
            clock, outlet = FakeClock(), Gathered()
            more = tuple([upstream_at(family, model=model) for _ in range(fallbacks)])
            config = GatewayConfig(
                routes=(GatewayRoute(upstream=upstream_at(family), deadlines=route, fallbacks=more),),
                deadlines=deadlines,
            )
            means = ServiceMeans(transport=lab.transport(), clock=clock, env={"LAB_KEY": "k"})
            service = RelayService(config, means=means, forward_key=False)
            await settled(service.answer(call_of(family, model, stream=stream), outlet), clock=clock)
            return clock.monotonic(), outlet, len(lab.requests)

    return asyncio.run(run())


@pytest.mark.costly
@pytest.mark.promise("wait:stream")
@each("family", FAMILIES)
@each(("case", "attempts", "most_s"), [("fault-silence", 2, 243), ("fault-stall", 2, 183)])
def test_a_silent_stream_ends_within_the_documented_time(
    case: str, attempts: int, most_s: float, family: FamilyName
) -> None:
    """`gateway check ... --case fault-stall --case fault-silence --timeout 300` gives each answer 300 s."""
    took_s, outlet, requests = waited(case, family=family)
    assert (requests, took_s < most_s) == (attempts, True)
    assert b"error" in b"".join(outlet.pieces)


def test_a_client_without_a_stream_waits_for_one_attempt() -> None:
    """A second one would begin later than `retry_s`."""
    took_s, outlet, requests = waited("fault-silence", stream=False)
    assert (round(took_s), outlet.status, requests) == (600, 504, 1)


def test_the_file_and_a_route_set_the_deadlines() -> None:
    """The route's own counts more; what it does not name is the file's."""
    file = GatewayDeadlines(first_event_s=30, retry_s=1)
    assert waited("fault-silence", deadlines=file)[::2] == (30, 1)
    assert waited("fault-silence", deadlines=file, route=GatewayDeadlines(first_event_s=7))[::2] == (7, 1)
    continued = waited("fault-stall", deadlines=GatewayDeadlines(next_event_s=5, retry_s=1))
    assert continued[::2] == (10, 2), "what had begun is continued once"
    assert round(waited("fault-silence", stream=False, deadlines=GatewayDeadlines(whole_s=20, retry_s=1))[0]) == 20


@each("kind", ["passed", "count"])
@each(
    ("file", "route", "seconds"),
    [
        (NONE, NONE, 600),
        (GatewayDeadlines(whole_s=20), NONE, 20),
        (GatewayDeadlines(whole_s=20), GatewayDeadlines(whole_s=7), 7),
        (GatewayDeadlines(total_s=30), GatewayDeadlines(whole_s=40), 30),
    ],
)
def test_a_passed_path_and_a_count_have_the_deadlines_of_their_route(
    file: GatewayDeadlines, route: GatewayDeadlines, seconds: int, kind: Literal["passed", "count"]
) -> None:
    """Proves: `whole_s` of the route bounds them, then that of the file, and never longer than `total_s`; the client gets 504."""

    async def run() -> tuple[float, Gathered, int]:
        clock, outlet, transport = FakeClock(), Gathered(), ScriptedTransport([Reply(before=Stall())])
        path = "/v1/embeddings" if kind == "passed" else "/v1/messages/count_tokens"
        served = GatewayRoute(upstream=upstream_at("anthropic_messages"), passes=("/v1/embeddings",), deadlines=route)
        means = ServiceMeans(transport=transport, clock=clock, env={"LAB_KEY": "k"})
        service = RelayService(GatewayConfig(routes=(served,), deadlines=file), means=means, forward_key=False)
        body = b'{"model":"m","messages":[{"role":"user","content":"hi"}]}'
        call = ClientCall(id="tw-1", path=path, body=body, family="anthropic_messages", kind=kind)
        await settled(service.answer(call, outlet), clock=clock)
        return clock.monotonic(), outlet, transport.open

    took_s, outlet, still_open = asyncio.run(run())
    assert (round(took_s), outlet.status, still_open) == (seconds, 504, 0)


@pytest.mark.parametrize("stream", [True, False])
def test_all_attempts_and_fallbacks_together_have_one_deadline(stream: bool) -> None:
    """However many upstreams there are."""
    took_s, outlet, _ = waited("fault-silence", stream=stream, fallbacks=4, deadlines=GatewayDeadlines(total_s=500))
    assert round(took_s) == 500
    assert b"error" in b"".join(outlet.pieces)


def test_the_narrower_table_counts_field_by_field() -> None:
    found = GatewayDeadlines(retry_s=3).over(GatewayDeadlines(retry_s=4, total_s=5).over(DEFAULTS))
    assert (found.retry_s, found.total_s, found.whole_s) == (3, 5, DEFAULTS.whole_s)
