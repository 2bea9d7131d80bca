"""A server that is there while its model is not yet: llama.cpp answers 503 `Loading model` (seen live, docs/live.md).

It loads whether it is asked or not, for longer than the four usual attempts take. So only the time bounds the wait.
"""

import pytest

from flat_agents import flat_agent
from turnwise import RetryPolicy, RunResult, StopReason
from turnwise.lab import Lab
from turnwise.lab.script import Script, parse_script
from turnwise.rules.retries import (
    CLOSED,
    LOADING_CAP_S,
    NO_RETRY,
    CircuitPolicy,
    GiveUp,
    WaitThenRetry,
    after_response,
    judge_retry,
)
from turnwise.vocab import Fault, FaultKind

LOADING = Fault(kind=FaultKind.OVERLOADED, message="Loading model", status=503)
HUGGING_FACE = Fault(kind=FaultKind.OVERLOADED, message="Model gpt2 is currently loading", status=503)
BUSY = Fault(kind=FaultKind.OVERLOADED, message="The server is overloaded or not ready yet.", status=503)
BROKEN = Fault(kind=FaultKind.SERVER, message="error loading the plugin", status=500)
BASES = {"openai_chat": "/v1", "openai_responses": "/v1", "anthropic_messages": ""}


def script(message: str, *, times: int) -> Script:
    fault = f'{{ kind = "status", status = 503, message = "{message}" }}'
    faults = ", ".join([fault] * times)
    return parse_script(f'title = "t"\n[[steps]]\ntext = "Here."\nfaults = [{faults}]\n', name="loads")


async def ask(message: str, *, family: str, times: int, retry: RetryPolicy) -> tuple[RunResult, int]:
    async with Lab([script(message, times=times)]) as lab:
        agent = flat_agent(f"{family}:loads", base_url=f"{lab.url}{BASES[family]}", api_key="k", retry=retry)
        return await agent.run("Hello."), lab.count()


@pytest.mark.promise("wait:retry", "bill:wire")
@pytest.mark.parametrize("family", BASES)
async def test_a_model_that_loads_is_waited_for_past_the_attempts(family: str) -> None:
    """Proves: twelve times `Loading model`, then the answer; no circuit opens, and each request counts. Before, the fourth one
    ended the turn as `provider_failed`."""
    result, count = await ask("Loading model", family=family, times=12, retry=RetryPolicy(base_s=0.001))
    assert (result.text, result.stop_reason, result.requests, count) == ("Here.", StopReason.ANSWERED, 13, 13)


@pytest.mark.promise("wait:retry")
@pytest.mark.parametrize(
    ("message", "retry", "requests"),
    [
        ("Loading model", NO_RETRY, 1),
        ("Loading model", RetryPolicy(base_s=0.001, total_s=0.0), 1),
        (BUSY.message, RetryPolicy(base_s=0.001), 4),
    ],
)
async def test_who_does_not_want_to_wait_does_not(message: str, retry: RetryPolicy, requests: int) -> None:
    """Proves: one attempt stays one, the time still bounds, and a busy server is asked four times as before."""
    result, count = await ask(message, family="openai_chat", times=12, retry=retry)
    assert (result.stop_reason, count) == (StopReason.PROVIDER_FAILED, requests)


@pytest.mark.promise("wait:retry")
def test_the_looks_at_a_loading_model_are_never_far_apart() -> None:
    """Proves: the waits double to five seconds; other failures have their attempts."""
    for fault in (LOADING, HUGGING_FACE):
        waits = [
            judge_retry(fault, policy=RetryPolicy(), attempt=attempt, waited_s=10.0, jitter=1.0)
            for attempt in range(1, 12)
        ]
        assert [wait.seconds for wait in waits if isinstance(wait, WaitThenRetry)] == [
            *(0.5, 1.0, 2.0, 4.0),
            *[LOADING_CAP_S] * 7,
        ]
    for fault in (BUSY, BROKEN):
        assert isinstance(judge_retry(fault, policy=RetryPolicy(), attempt=4, waited_s=3.0, jitter=1.0), GiveUp)


def test_a_loading_model_opens_no_circuit() -> None:
    """Proves: the endpoint is well; leaving it alone for 30 s would only make the wait longer."""
    circuit = CLOSED
    for _ in range(20):
        circuit = after_response(circuit, fault=LOADING, policy=CircuitPolicy(), now_s=0.0)
    assert circuit.opened_at_s is None
