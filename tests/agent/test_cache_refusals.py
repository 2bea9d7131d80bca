"""An endpoint that refuses what turnwise asks of its cache is asked for less, and the turn goes on (promise bill:cached)."""

import json
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest

from agent.test_cached_runs import INSTRUCTIONS, look, read, reading
from flat_agents import flat_agent
from turnwise import Agent, Text
from turnwise.endpoints.transport import HttpReply, HttpRequest, Transport
from turnwise.lab import Lab
from turnwise.rules.retries import RetryPolicy
from turnwise.vocab import Opaque, StopReason

AT_ONCE = RetryPolicy(base_s=0)
NOT_ALLOWED = (
    "You invoked an unsupported model or your request did not allow prompt caching. See the documentation for more "
    "information."
)
EXTRA = "Extra inputs are not permitted"
Refuses = Callable[[dict[str, Any]], tuple[int, str] | None]


class Picky:
    """A lab that refuses some bodies in a provider's own words."""

    def __init__(self, lab: Lab, refuses: Refuses) -> None:
        self._inner: Transport = lab.transport()
        self._refuses = refuses
        self.bodies: list[dict[str, Any]] = []

    @asynccontextmanager
    async def send(self, request: HttpRequest, /) -> AsyncGenerator[HttpReply]:
        self.bodies.append(json.loads(request.body))
        found = self._refuses(self.bodies[-1])
        if found is None:
            async with self._inner.send(request) as reply:
                yield reply
            return
        body = json.dumps({"type": "error", "error": {"type": "invalid_request_error", "message": found[1]}}).encode()

        async def chunks() -> AsyncGenerator[bytes]:
            yield body

        yield HttpReply(status=found[0], headers={"content-type": "application/json"}, chunks=chunks())


def agent_at(transport: Picky, *, model: str = "anthropic:reads", base_url: str = "http://lab", **more: Any) -> Agent:
    given: dict[str, Any] = {"instructions": INSTRUCTIONS, "base_url": base_url, "api_key": "k", **more}
    return flat_agent(model, tools=[read, look], transport=transport, **given)


def says(word: str, *, status: int = 400, message: str = EXTRA) -> Refuses:
    return lambda body: (status, message) if word in json.dumps(body) else None


def at_top(body: dict[str, Any]) -> tuple[int, str] | None:
    return (400, f"cache_control: {EXTRA}") if "cache_control" in body else None


CASES: dict[str, tuple[str, dict[str, Any], Refuses, str]] = {
    "an hour at an older model": (
        "anthropic_messages:reads",
        {"cache": "1h"},
        says('"ttl"', message=f"tools.0.custom.cache_control.ephemeral.ttl: {EXTRA}"),
        '"ttl"',
    ),
    "any mark": (
        "anthropic_messages:reads",
        {},
        says("cache_control", status=403, message=NOT_ALLOWED),
        "cache_control",
    ),
    "any mark of an hour": (
        "anthropic_messages:reads",
        {"cache": "1h"},
        says("cache_control", message=NOT_ALLOWED),
        "cache_control",
    ),
    "the field at the top": ("anthropic:reads", {}, at_top, ""),
    "marks behind a gateway": (
        "litellm:claude/reads",
        {},
        says("cache_control", message=f"messages.0.content.0.text.cache_control: {EXTRA}"),
        "cache_control",
    ),
    "a key": (
        "openai-chat:reads",
        {},
        says("prompt_cache_key", message="Unrecognized request argument supplied: prompt_cache_key"),
        "prompt_cache_key",
    ),
}


@pytest.mark.promise("bill:cached")
@pytest.mark.parametrize("case", CASES)
async def test_a_refused_request_is_sent_again_without_what_was_refused(case: str) -> None:
    """Once: the steps after it and the next turn ask for no more. A repair says so, and every request is in the ledger."""
    model, more, refuses, gone = CASES[case]
    transport = Picky(Lab([reading(2)]), refuses)
    base = "http://lab" if model.startswith("anthropic") else "http://lab/v1"
    agent = agent_at(transport, model=model, base_url=base, retry=AT_ONCE, **more)
    result = await agent.run("Read.")
    assert (result.text, result.stop_reason) == ("Done.", StopReason.ANSWERED)
    assert [one.kind for one in result.repairs] == ["cache_not_taken"]
    assert result.requests_by_purpose == {"step": 3, "retry": 1}
    assert [one.outcome == "ok" for one in result.ledger] == [False, True, True, True]
    assert all(refuses(body) is None for body in transport.bodies[1:])
    assert all(gone not in json.dumps(body) for body in transport.bodies[1:] if gone)
    again = await agent.run("Once more.")
    assert (again.repairs, again.requests_by_purpose) == ((), {"step": 3})


async def test_marks_on_blocks_stay_where_the_top_of_the_body_takes_none() -> None:
    transport = Picky(Lab([reading(2)]), at_top)
    await agent_at(transport, retry=AT_ONCE).run("Read.")
    assert [json.dumps(body).count("cache_control") for body in transport.bodies] == [3, 3, 4, 4]


@pytest.mark.parametrize("message", [NOT_ALLOWED, f"system.0.cache_control: {EXTRA}"])
async def test_without_retries_the_error_says_how_to_ask_for_nothing(message: str) -> None:
    transport = Picky(Lab([reading(2)]), says("cache_control", message=message))
    result = await agent_at(transport, retry=RetryPolicy(attempts=1)).run("Read.")
    assert (result.stop_reason, result.requests) == (StopReason.PROVIDER_FAILED, 1)
    assert result.fault is not None
    assert message in result.fault.message
    assert 'cache="off"' in result.fault.message


async def test_the_users_own_marks_are_not_taken_away() -> None:
    """With `cache="off"` turnwise asks for nothing, so there is nothing to leave out: the error stands."""
    transport = Picky(Lab([reading(2)]), says("cache_control", message=NOT_ALLOWED))
    own = Text("Read.", opaque=Opaque("anthropic_messages", '{"cache_control":{"type":"ephemeral"}}'))
    result = await agent_at(transport, retry=AT_ONCE, cache="off").run([own])
    assert (result.stop_reason, result.requests, result.repairs) == (StopReason.PROVIDER_FAILED, 1, ())


@pytest.mark.parametrize(
    "message",
    [
        "messages.2.content.0.text.cache_control.ttl: a ttl='1h' cache_control block must not come after a ttl='5m' "
        "cache_control block.",
        "A maximum of 4 blocks with cache_control may be provided. Found 5.",
        "temperature: Extra inputs are not permitted",
    ],
)
async def test_other_errors_teach_nothing(message: str) -> None:
    transport = Picky(Lab([reading(2)]), says("cache_control", message=message))
    result = await agent_at(transport, retry=AT_ONCE, room="off").run("Read.")
    assert (result.stop_reason, result.requests) == (StopReason.PROVIDER_FAILED, 1)
