"""What the vendors' own clients make of a full budget, and how retries, continuations and fallbacks pay."""

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, NamedTuple, cast

import anthropic
import httpx2
import openai
import pytest
from google import genai
from google.genai import errors, types

from gateway.budgeted import add_key, budgeted, limits, rows_of
from gateway.relayed import FAMILIES, Gathered
from gateway.serving import gateway_of
from gateway.test_budgets import error_of
from gateway.test_further_bodies import CUT_FILE, LIMITED
from gateway.test_service import lab_at
from tables import each
from turnwise import Journal
from turnwise.gateway.client_bounds import KeyRing
from turnwise.gateway.config import GatewayRoute
from turnwise.gateway.service import RelayService
from turnwise.journal.ledger_queries import LedgerSpan
from turnwise.journal.prices import Prices, read_prices
from turnwise.lab import Lab
from turnwise.lab.script import Script
from waits import HANG_S

TOKENS = 100


class ToldRefusal(NamedTuple):
    """What the client's user sees: the exception, its status, code or type, and when to come again, in whole seconds."""

    error: type[Exception]
    status: int
    code: str
    again: str
    retries: str


@asynccontextmanager
async def served(target: Path, *, lab: Lab) -> AsyncIterator[tuple[str, RelayService]]:
    """The address of a whole gateway with keys and budgets."""
    async with budgeted(target, lab=lab) as there:
        ring = KeyRing(Path("/nonexistent/keys.json"), shared=there.shared)
        async with gateway_of(there.service, keys=ring) as url:
            yield url, there.service


async def ask_openai(base: str, key: str, *, stream: bool, responses: bool) -> None:
    async with openai.AsyncOpenAI(base_url=f"{base}/v1", api_key=key, timeout=HANG_S) as client:
        if responses:
            said: Any = client.responses.create(model="m", input="Look.", max_output_tokens=TOKENS, stream=stream)
        else:
            asked: Any = [{"role": "user", "content": "Look."}]
            said = client.chat.completions.create(model="m", messages=asked, max_tokens=TOKENS, stream=stream)
        await read_all(await said, stream=stream)


async def ask_anthropic(base: str, key: str, *, stream: bool) -> None:
    async with anthropic.AsyncAnthropic(base_url=base, api_key=key, timeout=HANG_S) as client:
        asked: Any = [{"role": "user", "content": "Look."}]
        said: Any = client.messages.create(model="m", messages=asked, max_tokens=TOKENS, stream=stream)
        await read_all(await said, stream=stream)


async def ask_gemini(base: str, key: str, *, stream: bool) -> None:
    def ask() -> None:
        with httpx2.Client(timeout=HANG_S) as http:
            options = types.HttpOptions(base_url=base, httpx_client=cast("Any", http))
            models: Any = genai.Client(api_key=key, http_options=options).models
            config = types.GenerateContentConfig(max_output_tokens=TOKENS)
            ways = models.generate_content_stream if stream else models.generate_content
            list(ways(model="m", contents="Look.", config=config))

    await asyncio.to_thread(ask)


async def read_all(said: Any, *, stream: bool) -> None:
    if stream:
        async for _ in said:
            pass


ASKS: dict[str, Callable[..., Awaitable[None]]] = {
    "openai_chat": lambda *to, stream: ask_openai(*to, stream=stream, responses=False),
    "openai_responses": lambda *to, stream: ask_openai(*to, stream=stream, responses=True),
    "anthropic_messages": ask_anthropic,
    "gemini": ask_gemini,
}


async def refused(client: str, base: str, key: str, *, stream: bool) -> ToldRefusal:
    """Of a client with its usual settings, so with its usual retries."""
    try:
        await ASKS[client](base, key, stream=stream)
    except openai.APIStatusError as error:
        code, headers = str(error.code), error.response.headers
        return ToldRefusal(
            type(error), error.status_code, code, headers.get("retry-after", ""), headers["x-should-retry"]
        )
    except anthropic.APIStatusError as error:
        body, headers = cast("Any", error.body), error.response.headers
        said = body["error"]["type"]
        return ToldRefusal(
            type(error), error.status_code, said, headers.get("retry-after", ""), headers["x-should-retry"]
        )
    except errors.APIError as error:
        details = cast("Any", error.details)["error"].get("details", [])
        delay = next((one["retryDelay"] for one in details if "retryDelay" in one), "")
        return ToldRefusal(type(error), error.code, str(error.status), delay.removesuffix("s"), "false")
    raise AssertionError("it was answered")


WORDS = {
    "openai_chat": {402: "budget_exceeded", 429: "rate_limit_exceeded"},
    "openai_responses": {402: "budget_exceeded", 429: "rate_limit_exceeded"},
    "anthropic_messages": {402: "billing_error", 429: "rate_limit_error"},
    "gemini": {402: "RESOURCE_EXHAUSTED", 429: "RESOURCE_EXHAUSTED"},
}
ERRORS: dict[str, dict[int, type[Exception]]] = {
    "openai_chat": {402: openai.APIStatusError, 429: openai.RateLimitError},
    "openai_responses": {402: openai.APIStatusError, 429: openai.RateLimitError},
    "anthropic_messages": {402: anthropic.PaymentRequiredError, 429: anthropic.RateLimitError},
    "gemini": {402: errors.ClientError, 429: errors.ClientError},
}
FULL = {402: limits(usd_month="0.0014"), 429: limits(requests_month=1)}  # room for one request


@pytest.mark.promise("serve:budget")
@each("stream", [True, False])
@each("status", [402, 429])
@each("client", FAMILIES)
def test_official_clients_are_told_of_a_full_budget_and_ask_once(
    client: str, status: int, stream: bool, tmp_path: Path
) -> None:
    """Proves: each vendor's client raises its own error with the status, a word of its API and the seconds until the period ends,
    and none asks again by itself: that would not help before. Nothing reaches the upstream."""
    target = tmp_path / "j.db"
    key = add_key(target, FULL[status])

    async def run() -> None:
        async with Lab() as lab, served(target, lab=lab) as (base, service):
            await ASKS[client](base, key, stream=stream)
            told = await refused(client, base, key, stream=stream)
            assert told[:3] == (ERRORS[client][status], status, WORDS[client][status])
            assert 0 < int(told.again) <= 31 * 86_400
            assert told.retries == ("true" if int(told.again) <= 60 and client != "gemini" else "false")
            assert len(lab.requests) == 1
        counted = service.metrics().decode()  # now that all is closed
        mine = [line for line in counted.splitlines() if line.startswith("turnwise_gateway_requests_total{")]
        assert sorted(line.rpartition(" ")[2] for line in mine) == ["1", "1"]

    asyncio.run(asyncio.wait_for(run(), HANG_S))


@pytest.mark.promise("serve:budget")
def test_a_wait_that_a_client_can_do_itself_is_left_to_it(tmp_path: Path) -> None:
    """Proves: where only requests under way are in the way, clients may ask again; where no wait helps, they do not."""

    async def run() -> list[tuple[int, str, str]]:
        target = tmp_path / "j.db"
        one = add_key(target, limits(streams=1), name="one")
        never = add_key(target, limits(tokens_day=10), name="never")
        async with Lab() as lab, budgeted(target, lab=lab) as there:
            hanging = asyncio.ensure_future(there.ask(one, model="stalls", stream=True))
            while not lab.requests:  # noqa: ASYNC110 (the lab is in this loop, and tells nobody)
                await asyncio.sleep(0)
            found = [await there.ask(key) for key in (one, never)]
            hanging.cancel()
            await asyncio.gather(hanging, return_exceptions=True)
            said = [dict(outlet.headers) for outlet in found]
            return [
                (outlet.status, headers.get("retry-after", ""), headers["x-should-retry"])
                for outlet, headers in zip(found, said, strict=True)
            ]

    assert asyncio.run(asyncio.wait_for(run(), HANG_S)) == [(429, "1", "true"), (429, "", "false")]


def booked(target: Path) -> list[tuple[str, str | None]]:
    """The requests of the ledger, in order: why each left, and how it ended."""
    with Journal(target) as journal:
        return [(entry.purpose, entry.outcome) for entry in journal.ledger.entries(LedgerSpan())]


@pytest.mark.promise("serve:budget")
@pytest.mark.parametrize("stream", [True, False])
@pytest.mark.parametrize("script", [LIMITED, CUT_FILE], ids=["text", "call"])
def test_a_continuation_that_does_not_fit_ends_with_what_there_is(
    script: Script, stream: bool, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Proves: the client reads a true end at the limit, and no cut call that looks whole; the log says whose budget it was;
    nothing more leaves, and nothing stays reserved. With room the same answer is continued, and each part is paid for."""
    target = tmp_path / "j.db"
    route = GatewayRoute(upstream=lab_at(model=script.name), retry=0)
    tools = [{"type": "function", "function": {"name": "write", "parameters": {"type": "object"}}}]

    async def run(requests: int) -> tuple[Gathered, int]:
        name = f"of-{requests}"
        key = add_key(target, limits(requests_month=requests), name=name)
        async with Lab(scripts=[script]) as lab, budgeted(target, lab=lab, routes=(route,)) as there:
            found = await there.ask(key, stream=stream, tools=tools, max_tokens=5_000)
            left = len(lab.requests)
        state = rows_of(target)[f"key/{name}/month"].state
        assert (state.parts, state.used[0]) == ({}, left)
        return found, left

    with caplog.at_level(logging.WARNING, "turnwise"):
        (short, one), (long, many) = [asyncio.run(asyncio.wait_for(run(number), HANG_S)) for number in (1, 50)]
    assert (one, many > one) == (1, True)
    for found in (short, long):
        body = b"".join(found.pieces)
        assert (found.status, b'"finish_reason":"length"' in body, b'"error"' in body) == (200, True, False)
    # A call goes on only as a whole; of a text each part is the client's.
    assert (len(b"".join(long.pieces)) > len(b"".join(short.pieces))) is (script is LIMITED) or not stream
    (line,) = [record.getMessage() for record in caplog.records]
    assert line.startswith(
        "gateway: [tw-1] a request to continue did not leave: the key `of-1` may use 1 requests a month"
    )
    assert stream or short.headers["turnwise-repairs"] == "continuation_refused"
    assert [purpose for purpose, _ in booked(target)] == ["step", "step", *["continue"] * (many - 1)]


DEAR = Prices(
    user=read_prices(
        {"fault-500": {"input": 1, "output": 1}, "plain-answer": {"input": 1, "output": 1000}},
        named="test",
        source="test",
    )
)


@pytest.mark.promise("serve:budget")
def test_each_retry_and_fallback_reserves_its_own_price_anew(tmp_path: Path) -> None:
    """Proves: an attempt that failed without an answer costs what its provider may have billed, the next one needs room beside
    it, and a dearer upstream, or one without a price, is not asked where its own price does not fit."""
    target = tmp_path / "j.db"
    retried = GatewayRoute(models=("again",), upstream=lab_at(model="fault-once-503"), retry=1)
    models = ("plain-answer", "id-missing")
    dear, unpriced = [
        GatewayRoute(
            models=(f"to-{model}",), upstream=lab_at(model="fault-500"), fallbacks=(lab_at(model=model),), retry=0
        )
        for model in models
    ]

    async def run() -> list[tuple[int, str, int]]:
        keys = {
            "one": add_key(target, limits(requests_month=1), name="one"),
            "two": add_key(target, limits(requests_month=2), name="two"),
            "poor": add_key(target, limits(usd_month="0.05"), name="poor"),
            "rich": add_key(target, limits(usd_month=5), name="rich"),
        }
        found: list[tuple[int, str, int]] = []
        asks = [
            ("one", "again"),
            ("two", "again"),
            ("poor", "to-plain-answer"),
            ("rich", "to-plain-answer"),
            ("rich", "to-id-missing"),
        ]
        for name, model in asks:
            async with Lab() as lab:
                routes = (retried, dear, unpriced)
                async with budgeted(target, lab=lab, routes=routes, prices=DEAR) as there:
                    outlet = await there.ask(keys[name], model=model)
                said = "" if outlet.status == 200 else str(error_of(outlet)["code"])
                found.append((outlet.status, said, len(lab.requests)))
        return found

    assert asyncio.run(asyncio.wait_for(run(), HANG_S)) == [
        (429, "rate_limit_exceeded", 1),
        (200, "", 2),
        (402, "budget_exceeded", 1),
        (200, "", 2),
        (402, "price_unknown", 1),
    ]
    assert all(not row.state.parts for row in rows_of(target).values())
