"""A run that ended without an answer: what its result says, and what it raises where an answer is read."""

import pickle
from typing import Any

import msgspec
import pytest

from flat_agents import flat_agent
from turnwise import (
    CallerError,
    LimitReached,
    MaxRequests,
    MaxSteps,
    OutputMismatch,
    ProviderFault,
    RetryPolicy,
    RunCancelled,
    RunFailed,
    RunRefused,
    RunResult,
    RunStopped,
    StopReason,
    ToolSpec,
    tool,
)
from turnwise.agent.results import STOPS
from turnwise.testing import ScriptedModel, call
from turnwise.vocab import Fault, FaultKind, Usage

BUSY = Fault(kind=FaultKind.OVERLOADED, message="busy", status=503)


@tool
def look(place: str) -> str:
    """Look at a place."""
    return f"{place}: 3 apples"


def test_errors_can_be_pickled() -> None:
    """Proves: each of turnwise's errors comes back with what it says and carries, as process pools and task queues need it."""
    fault = Fault(kind=FaultKind.OVERLOADED, message="busy", status=503)
    for error in (
        RunFailed("failed", stop_reason=StopReason.TOOL_FAILED, run=None),
        ProviderFault(fault, said="The provider is busy."),
        OutputMismatch("no", text="a", stop_reason=StopReason.ANSWERED, requests=1, usage=Usage(), cost_usd=None),
        CallerError("Give a model."),
    ):
        again = pickle.loads(pickle.dumps(error))
        assert (type(again), str(again), vars(again)) == (type(error), str(error), vars(error))


async def ended(script: list[Any], **options: Any) -> RunResult[Any]:
    model = ScriptedModel(script)
    agent = flat_agent(
        "openai_chat:m", base_url="http://x", transport=model, retry=RetryPolicy(attempts=1), tools=[look], **options
    )
    return await agent.run("How many?")


@pytest.mark.promise("end:reason", "end:never-empty")
async def test_a_failed_provider_is_no_answer_wherever_it_is_read() -> None:
    """Proves: `text`, `output`, `raise_for_stop` and the end of a stream's text raise the provider's fault, with the run; what a
    person is shown says what failed and what was found by then."""
    result = await ended([call("look", place="kitchen"), BUSY])
    assert result.stop_reason is StopReason.PROVIDER_FAILED and not result.has_output
    assert (
        result.shown_text.startswith("The provider failed (503), overloaded: busy") and "3 apples" in result.shown_text
    )
    for read in (lambda: result.text, lambda: result.output, result.raise_for_stop):
        with pytest.raises(ProviderFault, match=r"The provider failed \(503\).*`shown_text`") as caught:
            read()
        assert caught.value.run is result and caught.value.fault.status == 503
    assert "The provider failed" in repr(result) and result.output_or_none is None
    model = ScriptedModel([BUSY])
    agent = flat_agent("openai_chat:m", base_url="http://x", transport=model, retry=RetryPolicy(attempts=1))
    async with agent.stream("How many?") as run:
        with pytest.raises(ProviderFault):
            async for _ in run.text():
                pass
    assert run.result.fault is not None


@pytest.mark.promise("end:reason")
async def test_each_stop_that_is_no_answer_has_its_error() -> None:
    """Proves: `answered` and `waiting` return the result itself; the others raise by name, and carry it."""
    answered = await ended(["3 apples."])
    assert answered.raise_for_stop() is answered and answered.raise_for_stop().text == "3 apples."
    asks = ToolSpec(name="ask", description="Ask.", parameters='{"type":"object"}')
    agent = flat_agent("openai_chat:m", base_url="http://x", transport=ScriptedModel([call("ask")]), tools=[asks])
    waiting = await agent.run("How many?")
    assert waiting.stop_reason is StopReason.WAITING and waiting.raise_for_stop() is waiting and waiting.text == ""
    limited = await ended([call("look", place="a"), "3, I think."], limits=MaxSteps(1) | MaxRequests(2))
    with pytest.raises(LimitReached, match="the run ended as `step_limit`") as caught:
        limited.raise_for_stop()
    assert caught.value.run is limited and caught.value.stop_reason == "step_limit" and limited.text


@pytest.mark.promise("end:reason")
async def test_no_stop_reason_is_forgotten() -> None:
    """Proves: every reason returns, or raises exactly one of the tree."""
    answered = await ended(["3 apples."])
    kinds: dict[str, type[BaseException] | None] = {}
    for reason in StopReason:
        result = msgspec.structs.replace(answered, stop_reason=reason, complete=False, why_incomplete="so", fault=None)
        try:
            result.raise_for_stop()
        except (RunStopped, ProviderFault) as error:
            kinds[reason] = type(error)
            assert error.run is result
        else:
            kinds[reason] = None
    assert kinds.keys() == set(StopReason)
    assert [reason for reason, kind in kinds.items() if kind is None] == ["answered", "waiting"]
    assert kinds["provider_failed"] is ProviderFault and kinds["refused"] is RunRefused
    assert kinds["cancelled"] is RunCancelled and kinds["tool_failed"] is RunFailed
    assert set(STOPS) == set(StopReason) - {StopReason.ANSWERED, StopReason.WAITING, StopReason.PROVIDER_FAILED}


@pytest.mark.promise("bill:wire")
async def test_requests_and_usage_are_those_of_the_whole_tree() -> None:
    """Proves: they are the ledger's, sub-agents at every depth included; `own` is what is left of them, and the two are alike
    without sub-agents."""

    def agent_of(script: list[Any], **options: Any) -> Any:
        return flat_agent("openai_chat:m", base_url="http://x", transport=ScriptedModel(script), **options)

    leaf = agent_of(["3 apples."], description="Counts.")
    middle = agent_of([call("task", agent="leaf", prompt="Count."), "3."], agents={"leaf": leaf}, description="Asks.")
    root = agent_of([call("task", agent="middle", prompt="How many?"), "3 apples."], agents={"middle": middle})
    result = await root.run("How many?")
    assert (result.requests, result.own.requests, len(result.ledger)) == (5, 2, 5)
    told = [one.usage for one in result.ledger if one.usage is not None]
    assert result.usage.input_tokens == sum([one.input_tokens for one in told]) > result.own.usage.input_tokens > 0
    (child,) = result.children
    assert result.usage == result.own.usage + child.usage and result.own.steps == result.steps == 2
    alone = await ended([call("look", place="a"), "3 apples."])
    assert (alone.requests, alone.usage) == (alone.own.requests, alone.own.usage)
