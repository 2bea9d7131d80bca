"""Spans and metrics of runs, as a receiver of OTLP decodes them: the real SDK and exporter stand between."""

import asyncio
import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from opentelemetry.trace import get_current_span

from telemetry.otlp_receiver import Receiver, receiving
from turnwise import (
    Agent,
    Fault,
    FaultKind,
    FrameSeen,
    MaxSteps,
    Model,
    Prices,
    RetryPolicy,
    RunResult,
    Settings,
    StopReason,
    Telemetry,
    read_prices,
    tool,
)
from turnwise.endpoints.transport import Transport
from turnwise.lab import Lab
from turnwise.testing import FakeClock, Reply, ScriptedModel, ScriptedTransport, Stall, call
from waits import HANG_S

A_CENT = Prices(user=read_prices({"*": {"request": "0.01"}}, named="m", source="test"))
OVERLOADED = Fault(kind=FaultKind.OVERLOADED, message="the words of the provider", status=503)
KEY = "sk-secret-0123456789abcdef"


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    with receiving() as opened:
        yield opened


def agent_of(
    transport: Transport,
    receiver: Receiver,
    *,
    model: str = "openai_chat:m",
    clock: FakeClock | None = None,
    contents: bool = False,
    **options: Any,
) -> Agent[Any, Any]:
    telemetry = Telemetry(
        agent_name="tester", contents=contents, tracer_provider=receiver.tracers, meter_provider=receiver.meters
    )
    own = {"telemetry": telemetry, "clock": clock or FakeClock(), "prices": A_CENT}
    observation = {**own, **options.pop("observation", {})}
    return Agent(
        Model(model, base_url="http://127.0.0.1:9/v1", transport=transport, **options.pop("asked", {})),
        observation=observation,
        **options,
    )  # pyright: ignore


@tool
async def look(place: str) -> str:
    """Look."""
    return f"seen: {place}"


async def run_while(clock: FakeClock, agent: Agent[Any, Any], *, step_s: float) -> RunResult[Any]:
    """Run it while time goes on."""
    task = asyncio.create_task(agent.run("Go."))
    for _ in range(400):
        if task.done():
            break
        await clock.advance(step_s)
    return await asyncio.wait_for(task, HANG_S)


async def test_parallel_calls_are_children_of_the_run_and_say_who_asked(receiver: Receiver) -> None:
    """Issue 22: one `invoke_agent`, a `chat` for each request, an `execute_tool` for each call, with the conventions' names."""
    model = ScriptedModel([[call("look", place="a"), call("look", place="b")], "Done."])
    result = await agent_of(model, receiver, tools=[look]).run("Go.")
    run, (asking, answering) = receiver.one("invoke_agent tester"), receiver.named("chat m")
    calls = receiver.named("execute_tool look")
    assert result.complete and run.parent == b"" and not run.failed
    assert {one.parent for one in (asking, answering, *calls)} == {run.id}
    assert {one.span.trace_id for one in receiver.spans} == {run.span.trace_id}
    assert [one.links for one in calls] == [[("asked_by", asking.id)]] * 2
    assert sorted(one["gen_ai.tool.call.id"] for one in calls) == ["call_1_1", "call_1_2"]
    assert asking["gen_ai.response.finish_reasons"] == ["tool_calls"]
    assert (asking["gen_ai.usage.input_tokens"], asking["gen_ai.usage.output_tokens"]) == (10, 5)
    assert (run["gen_ai.usage.input_tokens"], run["turnwise.cost.usd"]) == (20, 0.02)
    assert (run["turnwise.run.stop_reason"], run["turnwise.run.complete"]) == ("answered", True)
    assert run["gen_ai.conversation.id"] == asking["gen_ai.conversation.id"]
    assert [one.span.kind for one in (run, asking, calls[0])] == [1, 3, 1]  # internal, client, internal


async def test_the_callers_span_is_the_parent_and_a_tools_own_spans_are_children_of_its_call(
    receiver: Receiver,
) -> None:
    """Issue 22: the run is a child of the span at hand; what a tool starts, in loop or thread, is inside its call's span."""
    tracer = receiver.tracers.get_tracer("test")

    @tool
    def in_a_thread() -> str:
        """Work."""
        with tracer.start_as_current_span("of the thread"):
            return "x"

    @tool
    async def in_the_loop() -> str:
        """Work."""
        with tracer.start_as_current_span("of the loop"):
            return "y"

    model = ScriptedModel([[call("in_a_thread"), call("in_the_loop")], call("in_the_loop"), "Done."])
    agent = agent_of(model, receiver, tools=[in_a_thread, in_the_loop])
    with tracer.start_as_current_span("the caller's") as mine:
        await agent.run("Go.")
        assert get_current_span() is mine
    outer, run = receiver.one("the caller's"), receiver.one("invoke_agent")
    assert run.parent == outer.id
    assert receiver.one("of the thread").parent == receiver.one("execute_tool in_a_thread").id
    inner, calls = receiver.named("of the loop"), receiver.named("execute_tool in_the_loop")
    assert {one.parent for one in inner} == {one.id for one in calls} and len(inner) == 2


async def test_a_retry_leads_back_to_the_attempt_before(receiver: Receiver) -> None:
    """Issue 22: the failed attempt says what failed, without the provider's words; the next one is linked to it."""
    model, clock = ScriptedModel([OVERLOADED, "Done."]), FakeClock()
    agent = agent_of(model, receiver, clock=clock, recovery={"retry": RetryPolicy(attempts=2)})
    result = await run_while(clock, agent, step_s=5.0)
    failed, good = receiver.named("chat m")
    assert result.complete and failed.failed and not good.failed
    assert (failed["error.type"], failed["http.response.status_code"]) == ("overloaded", 503)
    assert good.links == [("retry_of", failed.id)] and good["turnwise.request.retry_of"] == "step"
    assert not receiver.one("invoke_agent").failed
    assert OVERLOADED.message.encode() not in b"".join(receiver.bodies)


@tool
async def write(path: str, content: str, append: bool = False) -> str:
    """Write a file."""
    return f"{path}: {len(content)} characters, appended: {append}"


async def test_a_continuation_leads_back_to_the_response_that_was_cut(receiver: Receiver) -> None:
    """Issue 22: the request that goes on with a cut call is linked to the one that was cut, and the call to the first."""
    short = {"settings": Settings(max_output_tokens=8000)}
    agent = agent_of(Lab().transport(), receiver, tools=[write], model="openai_chat:writer-file", asked=short)
    result = await agent.run("Go.")
    assert result.complete and [one.purpose for one in result.ledger] == ["step", "continue", "step"]
    first, second, _ = receiver.named("chat writer-file")
    assert first["gen_ai.response.finish_reasons"] == ["length"]
    assert second.links == [("continues", first.id)] and second["turnwise.request.purpose"] == "continue"
    assert receiver.one("execute_tool write").links == [("asked_by", first.id)]
    assert receiver.one("invoke_agent")["turnwise.repairs"] == len(result.repairs)


async def test_a_sub_agents_run_is_inside_of_the_call_that_started_it(receiver: Receiver) -> None:
    """Issue 22: a child without a `telemetry` of its own uses its parent's; its run is linked to the parent's run."""
    below = ScriptedModel([call("look", place="below"), "Found."])
    child = Agent(
        Model("openai_chat:m", transport=below),
        tools=[look],
        observation={"clock": FakeClock()},
    )
    model = ScriptedModel([call("search", prompt="Search."), "Done."])
    result = await agent_of(model, receiver, tools=[child.as_tool("search", "searches")]).run("Go.")
    run, started, inner = (
        receiver.one("invoke_agent tester"),
        receiver.one("execute_tool search"),
        receiver.one("invoke_agent search"),
    )
    assert result.complete and inner.parent == started.id and started.parent == run.id
    assert inner.links == [("subagent_of", run.id)] and inner["turnwise.run.path"] == ["search"]
    assert receiver.one("execute_tool look").parent == inner.id
    assert [one.parent for one in receiver.named("chat")].count(inner.id) == 2
    assert (run["turnwise.run.subagents"], run["turnwise.run.requests"]) == (1, 2)


async def test_a_run_whose_provider_fails_has_an_error_on_its_span(receiver: Receiver) -> None:
    """Issue 22, failed: the run's span and the request's have `error.type` and the status `error`."""
    fault = Fault(kind=FaultKind.AUTH, message="no", status=401)
    result = await agent_of(ScriptedModel([fault]), receiver).run("Go.")
    run, chat = receiver.one("invoke_agent"), receiver.one("chat")
    assert result.stop_reason is StopReason.PROVIDER_FAILED
    assert run.failed and chat.failed and run["error.type"] == chat["error.type"] == "auth"
    assert run["turnwise.run.stop_reason"] == "provider_failed"


async def test_a_run_that_raises_ends_its_span_with_the_exceptions_name_alone(receiver: Receiver) -> None:
    """What `prepare_step` raises may quote anything, so the span has its class and no text."""

    def prepare(_: object) -> None:
        raise ValueError("the password is hunter2")

    agent = agent_of(ScriptedModel([]), receiver, steps={"prepare_step": prepare})
    with pytest.raises(ValueError, match="hunter2"):
        await agent.run("Go.")
    run = receiver.one("invoke_agent")
    assert run.failed and run["error.type"] == "ValueError" and b"hunter2" not in b"".join(receiver.bodies)


async def test_a_cancelled_run_ends_all_its_spans_as_cancelled(receiver: Receiver) -> None:
    """Issue 22, cancelled: the call that was running, and the run, end with `error.type` cancelled; none stays open."""
    began = asyncio.Event()

    @tool
    async def wait() -> str:
        """Wait."""
        began.set()
        await asyncio.Event().wait()
        return ""

    agent = agent_of(ScriptedModel([call("wait")]), receiver, tools=[wait])
    task = agent.start("Go.")
    await asyncio.wait_for(began.wait(), HANG_S)
    task.interrupt()
    result = await asyncio.wait_for(task, HANG_S)
    assert result.stop_reason is StopReason.CANCELLED
    run, stopped = receiver.one("invoke_agent"), receiver.one("execute_tool wait")
    assert run.failed and stopped.failed and run["error.type"] == "cancelled"
    assert not receiver.one("chat").failed and len(receiver.spans) == 3


async def test_a_request_that_is_cancelled_on_its_way_has_what_the_ledger_knows(receiver: Receiver) -> None:
    """Issue 22, cancelled in mid-stream: the request's span ends as cancelled, and inside of the run's."""
    seen = asyncio.Event()
    piece = b'data: {"choices":[{"index":0,"delta":{"content":"The "}}]}\n\n'
    model = ScriptedTransport([Reply(pieces=(piece, Stall()))])
    agent = agent_of(model, receiver)
    task = asyncio.create_task(agent.run("Go.", watch=lambda event: isinstance(event, FrameSeen) and seen.set()))
    await asyncio.wait_for(seen.wait(), HANG_S)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    run, chat = receiver.one("invoke_agent"), receiver.one("chat")
    assert run.failed and chat.failed and chat["error.type"] == "cancelled" and chat.parent == run.id


async def test_a_run_that_its_limit_cuts_is_no_error_and_says_so(receiver: Receiver) -> None:
    """Issue 22, cut: a step limit is a way to end, so the span has no error, and `complete` is false."""
    model = ScriptedModel([call("look", place="a"), "So far."])
    result = await agent_of(model, receiver, tools=[look], limits=MaxSteps(2)).run("Go.")
    run = receiver.one("invoke_agent")
    assert result.stop_reason is StopReason.STEP_LIMIT and not run.failed
    assert (run["turnwise.run.stop_reason"], run["turnwise.run.complete"]) == ("step_limit", False)


async def test_a_call_that_does_not_run_is_an_event_of_the_run(receiver: Receiver) -> None:
    """A call that turnwise answers itself has no `execute_tool`: nothing was executed."""
    model = ScriptedModel([call("nothing"), "Done."])
    await agent_of(model, receiver, tools=[look]).run("Go.")
    (event,) = receiver.one("invoke_agent").span.events
    assert event.name == "turnwise.call_not_run" and not receiver.named("execute_tool")


@pytest.mark.parametrize("contents", [False, True], ids=["without contents", "with contents"])
async def test_contents_are_there_only_if_asked_for_and_a_key_never(receiver: Receiver, contents: bool) -> None:
    """Issue 22: prompts, answers, arguments and results leave only with `contents=True`; the key in a result never does."""

    @tool
    def reveal(where: str) -> str:
        """Show."""
        return f"RESULT {KEY}"

    model = ScriptedModel([call("reveal", where="ARGUMENT"), "ANSWER"])
    options = {"asked": {"api_key": KEY}, "instructions": "SYSTEM", "tools": [reveal]}
    await agent_of(model, receiver, contents=contents, **options).run("PROMPT")
    sent = b"".join(receiver.bodies)
    found = [word for word in ("RESULT", "ARGUMENT", "ANSWER", "SYSTEM", "PROMPT") if word.encode() in sent]
    assert found == (["RESULT", "ARGUMENT", "ANSWER", "SYSTEM", "PROMPT"] if contents else [])
    assert KEY.encode() not in sent
    if contents:
        asked = json.loads(receiver.named("chat")[1]["gen_ai.input.messages"])
        assert [one["role"] for one in asked] == ["user", "assistant", "tool"]
        assert asked[1]["parts"][0]["arguments"] == '{"where":"ARGUMENT"}'


@pytest.mark.parametrize("sends", [False, True], ids=["not sent", "sent"])
async def test_the_trace_goes_to_the_endpoint_only_if_asked_for(receiver: Receiver, sends: bool) -> None:
    """Issue 22: with `traceparent=True` each request names its own span, so a gateway's span is a child of it."""
    model = ScriptedModel(["Done."])
    telemetry = Telemetry(traceparent=sends, tracer_provider=receiver.tracers, meter_provider=receiver.meters)
    await agent_of(model, receiver).run("Go.", observation={"telemetry": telemetry})
    chat, headers = receiver.one("chat"), dict(model.requests[0].headers)
    trace = f"00-{chat.span.trace_id.hex()}-{chat.id.hex()}"
    assert headers.get("traceparent", "").rpartition("-")[0] == (trace if sends else "")


def test_an_agent_without_telemetry_loads_nothing_of_it(tmp_path: Path) -> None:
    """Nothing is paid where it is off: neither an agent nor its run imports OpenTelemetry."""
    code = """
import sys
from turnwise import Agent, Model
from turnwise.testing import ScriptedModel
model = ScriptedModel(["Done."])
agent = Agent(Model("openai_chat:m", transport=model))
assert agent.run_sync("Go.").complete
print(sorted(name for name in sys.modules if "opentelemetry" in name or name.startswith("turnwise.telemetry.")))
"""
    ran = subprocess.run(
        [sys.executable, "-c", code], check=True, capture_output=True, text=True, timeout=HANG_S, cwd=tmp_path
    )
    assert ran.stdout.strip() == "['turnwise.telemetry.telemetry']", ran.stderr


async def test_metrics_have_the_conventions_names_and_count_what_the_ledger_counts(receiver: Receiver) -> None:
    """Issue 22: tokens by kind, the duration of every operation, and the time to the first chunk of each stream."""
    model = ScriptedModel([call("look", place="a"), "Done."])
    result = await agent_of(model, receiver, tools=[look]).run("Go.")
    receiver.flush()
    tokens = {
        told["gen_ai.token.type"]: point.sum for name, told, point in receiver.points if name.endswith("token.usage")
    }
    assert tokens == {"input": result.usage.input_tokens, "output": result.usage.output_tokens}
    durations = {
        told["gen_ai.operation.name"]: point.count
        for name, told, point in receiver.points
        if name == "gen_ai.client.operation.duration"
    }
    assert durations == {"chat": 2, "execute_tool": 1, "invoke_agent": 1}
    (first,) = [one for one in receiver.points if one[0] == "gen_ai.client.operation.time_to_first_chunk"]
    assert first[2].count == 2 and first[1]["gen_ai.request.model"] == "m"
    assert not [1 for _, told, _ in receiver.points if "gen_ai.conversation.id" in told]
