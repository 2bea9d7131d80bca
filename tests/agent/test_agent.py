"""The library's face against the lab: real sockets, all four families, streamed and not."""

import asyncio
import threading
from pathlib import Path

import pydantic
import pytest

from flat_agents import flat_agent, grouped
from tables import each
from turnwise import (
    Agent,
    CallerError,
    FrameSeen,
    Journal,
    MaxSteps,
    Message,
    OutputMismatch,
    RunFinished,
    RunResult,
    Settings,
    StepChanges,
    StepView,
    StopReason,
    ToolSpec,
    ToolStarted,
    tool,
)
from turnwise.base.clock import SystemClock
from turnwise.lab import Lab
from turnwise.running.tool_output import TOOL_FAILED
from turnwise.testing import ScriptedModel, call
from turnwise.tools.workspace import workspace_tools
from turnwise.vocab import TextDelta, ToolResult, calls_of, text_of
from waits import HANG_S

FAMILIES = ("openai_chat", "openai_responses", "anthropic_messages", "gemini")
each_family = pytest.mark.parametrize("family", FAMILIES)
each_way = each("stream", [True, False], ids=["streamed", "whole"])


@tool(effect="read")
def read(path: str) -> str:
    """Read a file."""
    return {"notes.txt": "status: draft", "todo.txt": "nothing"}[path]


@tool
def search(pattern: str) -> str:
    """Search."""
    return f"no {pattern}"


BASES = {"gemini": "/v1beta", "anthropic_messages": ""}  # Anthropic's base URL has no version


def agent_for(lab: Lab, script: str, *, family: str = "openai_chat", **options: object) -> Agent:
    base = lab.url + BASES.get(family, "/v1")
    return flat_agent(f"{family}:{script}", base_url=base, **options)  # pyright: ignore[reportArgumentType]


def results_of(result: RunResult) -> list[ToolResult]:
    return [part for message in result.history for part in message.parts if isinstance(part, ToolResult)]


@each_family
@each_way
@pytest.mark.promise("step:sequential", "step:one-request")
async def test_read_edit_answer_edits_a_real_file_in_three_requests(family: str, stream: bool, tmp_path: Path) -> None:
    """The model sees each result before its next decision; the lab's own count says three."""
    (tmp_path / "notes.txt").write_text("status: draft\n")
    async with Lab() as lab:
        agent = agent_for(lab, "read-edit-answer", family=family, stream=stream, tools=workspace_tools(tmp_path))
        result = await agent.run("Set the status to done.")
        counted = lab.count()
    assert (tmp_path / "notes.txt").read_text() == "status: done\n"
    assert (result.steps, result.requests, counted) == (3, 3, 3)
    assert (result.text, result.complete) == ("Done: notes.txt now says 'status: done'.", True)


@each_family
@each_way
@pytest.mark.promise("step:parallel-together")
async def test_two_parallel_calls_take_two_requests(family: str, stream: bool) -> None:
    """Both calls run before the one follow-up, which carries both results in call order."""
    async with Lab() as lab:
        result = await agent_for(lab, "parallel-calls", family=family, stream=stream, tools=[read]).run("Read both.")
        assert (result.requests, lab.count()) == (2, 2)
    assert [part.text for found in results_of(result) for part in found.content if hasattr(part, "text")] == [
        "status: draft",
        "nothing",
    ]


@each_family
@pytest.mark.promise("end:cap", "end:forced-answer", "end:reason")
async def test_a_model_that_never_stops_is_made_to_answer_on_its_last_step(family: str) -> None:
    """Exactly `max_steps` requests, a text, `complete: false`."""
    async with Lab() as lab:
        result = await agent_for(lab, "never-stops", family=family, tools=[search], max_steps=4).run("Look for it.")
        assert (result.requests, lab.count()) == (4, 4)
    assert (result.stop_reason, result.complete) == (StopReason.STEP_LIMIT, False)
    assert result.text.strip()


@each_family
@pytest.mark.promise("end:cap", "end:forced-answer", "end:never-empty")
@each("script", ["never-stops-at-all", "disobeys-none", "empty-answer", "never-stops-disobeys"])
async def test_disobedient_and_empty_models_end_with_an_answer_too(family: str, script: str) -> None:
    """One request more at most, no tool run on the last step, never an empty text."""
    ran: list[int] = []
    async with Lab() as lab:
        agent = agent_for(lab, script, family=family, tools=[read, search], max_steps=3)
        result = await agent.run("Go on.", watch=lambda seen: ran.append(1) if isinstance(seen, ToolStarted) else None)
        assert result.requests == lab.count() <= 4
    assert result.text.strip() and not result.complete
    assert len(ran) <= 2, "the calls of the last step were not executed"


@pytest.mark.promise("end:early")
async def test_a_turn_that_ends_early_is_untouched() -> None:
    """No extra request and no instruction where the cap is far away."""
    async with Lab() as lab:
        result = await agent_for(lab, "plain-answer", tools=[read], max_steps=8).run("Hello.")
        (received,) = lab.requests
    assert (result.requests, result.complete) == (1, True)
    assert received.request is not None
    assert [text.text for message in received.request.messages for text in message.parts if hasattr(text, "text")] == [
        "Hello."
    ]


@each_family
@pytest.mark.promise("step:client-tools")
async def test_a_tool_without_implementation_ends_the_run_as_waiting_and_resumes_in_one_request(family: str) -> None:
    """The pending call comes out; its result goes in with the history; one request more."""
    asks = ToolSpec(
        name="ask_user", description="Ask.", parameters='{"type":"object","properties":{"question":{"type":"string"}}}'
    )
    async with Lab() as lab:
        agent = agent_for(lab, "client-tool", family=family, tools=[asks])
        first = await agent.run("Paint it.")
        assert (first.stop_reason, first.complete, lab.count()) == (StopReason.WAITING, False, 1)
        (call,) = first.pending
        assert (call.name, call.arguments) == ("ask_user", '{"question":"Which colour do you want?"}')
        second = await agent.run(results={call.id: "blue"}, history=first.history)
        assert lab.count() == 2
    assert (second.text, second.complete) == ("You said: blue", True)


async def test_results_for_calls_that_do_not_wait_are_refused_before_anything_is_sent() -> None:
    """Unknown ids, missing results and an empty prompt are the caller's mistakes: named, and no request is made."""
    asks = ToolSpec(name="ask_user")
    async with Lab() as lab:
        agent = agent_for(lab, "client-tool", tools=[asks])
        first = await agent.run("Paint it.")
        with pytest.raises(CallerError, match="no pending call has the id `nobody`"):
            await agent.run(results={"nobody": 1}, history=first.history)
        with pytest.raises(CallerError, match="the prompt is empty"):
            await agent.run("  ")
        with pytest.raises(CallerError, match="nothing to send"):
            await agent.run()
        with pytest.raises(CallerError, match="no character, at position 3"):
            await agent.run("hi \udcff there")
        with pytest.raises(CallerError, match="`instructions` holds something that is no character"):
            agent_for(lab, "client-tool", instructions="\ud800")
        assert lab.count() == 1


class Fruit(pydantic.BaseModel):
    name: str
    count: int


@each_family
async def test_an_answer_of_a_wanted_type_is_corrected_and_parsed(family: str) -> None:
    """First wrong JSON, then right: the model is told, and `output` is a value of the type."""
    async with Lab() as lab:
        result = await agent_for(lab, "structured-output", family=family, output_type=Fruit).run("Which fruit?")
        assert result.requests == lab.count() == 2
    assert isinstance(result.output, Fruit) and result.complete


async def test_a_type_that_is_no_object_is_wrapped_for_the_provider_and_unwrapped_again() -> None:
    """`list[int]` goes out as an object with one key; the value is the list."""
    async with Lab() as lab:
        result = await agent_for(lab, "structured-output", output_type=list[int]).run("Which numbers?")
    assert isinstance(result.output, list)


async def test_prepare_step_changes_one_step_only() -> None:
    """Tools on offer, tool choice and an added instruction for step 2; the steps around it are the agent's own."""
    seen: list[int] = []

    def prepare(view: StepView) -> StepChanges | None:
        seen.append(view.step)
        return StepChanges(tools=("read",), tool_choice="required", instruction="Be quick.") if view.step == 2 else None

    async with Lab() as lab:
        agent = agent_for(lab, "never-stops", tools=[search, read], max_steps=3, prepare_step=prepare)
        await agent.run("Look.")
        requests = [received.request for received in lab.requests]
    assert seen == [1, 2, 3]
    offered = [[spec.name for spec in request.tools] for request in requests if request]
    assert offered == [["search", "read", "read_result"], ["read", "read_result"], ["search", "read", "read_result"]]
    assert [request.tool_choice for request in requests if request] == ["auto", "required", "none"]
    assert [b"Be quick." in received.body for received in lab.requests] == [False, True, False]


async def test_a_run_may_choose_its_own_tools_choice_and_cap() -> None:
    """Per run: tools, tool choice, parallel calls and the cap, over what the agent has."""
    async with Lab() as lab:
        agent = agent_for(lab, "plain-answer", tools=[search])
        await agent.run(
            "Hi.",
            tools=[read],
            limits=MaxSteps(2),
            steps={"tool_choice": "required", "parallel_tool_calls": False},
        )
        (received,) = lab.requests
    assert received.request is not None
    assert [spec.name for spec in received.request.tools] == ["read", "read_result"]
    assert (received.request.tool_choice, received.request.parallel_tool_calls) == ("required", False)


async def test_the_stream_gives_every_event_and_the_result_last() -> None:
    """Text deltas join to the answer; the last event is RunFinished."""
    async with Lab() as lab:
        events = [event async for event in agent_for(lab, "plain-answer").stream("Hi.")]
    last = events[-1]
    assert isinstance(last, RunFinished)
    deltas = [
        event.frame.text for event in events if isinstance(event, FrameSeen) and isinstance(event.frame, TextDelta)
    ]
    assert "".join(deltas) == last.result.text and len(deltas) > 1


async def test_leaving_the_stream_early_cancels_the_turn() -> None:
    """After the first piece nothing goes on in the background: the stalled request is given up."""
    async with Lab() as lab, asyncio.timeout(HANG_S):
        stream = agent_for(lab, "fault-stall").stream("Hi.")
        async for event in stream:
            if isinstance(event, FrameSeen):
                break
        await stream.aclose()
    assert [task for task in asyncio.all_tasks() if task.get_name() == "turnwise run"] == []


@pytest.mark.promise("end:reason")
async def test_an_interrupted_run_has_a_result_that_says_so() -> None:
    """`interrupt` in the middle of a stalled stream: cancelled, with a text."""
    async with Lab() as lab, asyncio.timeout(HANG_S):
        agent = agent_for(lab, "fault-stall")
        run = agent.start("Hi.", watch=lambda seen: run.interrupt() if isinstance(seen, FrameSeen) else None)
        result = await run
    assert (result.stop_reason, result.complete) == (StopReason.CANCELLED, False)
    assert result.text.strip()


def test_run_sync_works_without_a_loop_and_says_what_to_do_inside_one(tmp_path: Path) -> None:
    """A script needs no asyncio of its own; inside a loop the error names `await agent.run`."""

    async def inside() -> None:
        async with Lab() as lab:
            agent = agent_for(lab, "plain-answer")
            with pytest.raises(CallerError, match=r"await agent\.run"):
                agent.run_sync("Hi.")
            result = await asyncio.to_thread(agent.run_sync, "Hi.")
            assert result.complete

    asyncio.run(inside())


@pytest.mark.promise("wait:tool")
async def test_run_sync_returns_though_a_tool_left_a_task_that_ignores_its_cancellation() -> None:
    """`asyncio.run` would wait for it for ever."""
    left: list[asyncio.Task[None]] = []

    async def stubborn() -> None:
        while True:
            try:
                await asyncio.get_running_loop().create_future()
            except asyncio.CancelledError:
                continue

    @tool(name="read")
    async def read(path: str) -> str:
        """Read a file."""
        left.append(asyncio.create_task(stubborn()))
        return path

    loop = asyncio.get_running_loop()
    returned: asyncio.Future[RunResult] = loop.create_future()
    async with Lab() as lab, asyncio.timeout(HANG_S):
        agent = agent_for(lab, "parallel-calls", tools=[read])
        # not `to_thread`: this test's own loop would wait for a thread that hangs
        threading.Thread(
            target=lambda: loop.call_soon_threadsafe(returned.set_result, agent.run_sync("Read both.")), daemon=True
        ).start()
        result = await returned
    assert result.complete and [task.done() for task in left] == [False, False]


async def test_a_tool_that_raises_or_returns_what_json_cannot_carry_is_a_result_and_the_turn_goes_on() -> None:
    """Both calls have a result that says what happened; the turn ends with the answer."""

    @tool(name="read")
    def broken(path: str) -> object:
        """Read a file."""
        if path == "notes.txt":
            raise ValueError("the disk is on fire")
        return object()

    async with Lab() as lab:
        result = await agent_for(lab, "parallel-calls", tools=[broken]).run("Read both.")
    texts = ["".join(part.text for part in found.content if hasattr(part, "text")) for found in results_of(result)]
    assert [found.is_error for found in results_of(result)] == [True, True]
    assert texts[0] == f"ValueError: {TOOL_FAILED}" and "cannot be turned into JSON" in texts[1]
    assert (result.complete, result.requests) == (True, 2)


async def test_a_journal_keeps_the_session_and_goes_on_from_it() -> None:
    """The second run names the session and sends what was said before."""
    with Journal(None, clock=SystemClock()) as journal:
        async with Lab() as lab:
            agent = agent_for(lab, "parallel-calls", tools=[read], journal=journal)
            first = await agent.run("Read both.")
            second = await agent.run("Again.", session=first.session)
            assert second.session == first.session
            request = lab.requests[2].request
        assert request is not None
        assert [message.role for message in request.messages] == ["user", "assistant", "tool", "assistant", "user"]
        assert second.history[: len(first.history)] == first.history
        assert [len(calls_of(message)) for message in second.new_messages] == [0, 2, 0, 0]


async def test_a_provider_that_fails_is_a_result_with_what_there_is() -> None:
    """401, HTML and a reset end as provider_failed with a text and the fault as data; nothing is raised."""
    async with Lab() as lab:
        for script, kind in (("fault-401", "auth"), ("fault-html", "protocol"), ("fault-reset", "disconnected")):
            result = await agent_for(lab, script, tools=[read]).run("Hi.")
            assert result.stop_reason == StopReason.PROVIDER_FAILED
            assert result.shown_text.strip() and not result.complete
            assert result.fault is not None and result.fault.kind == kind
            assert kind in result.why_incomplete and result.fault.message in result.why_incomplete


def test_a_wrong_set_up_is_told_with_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    """Unknown provider, missing name, missing key, missing address: one sentence each, before anything is sent."""
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    for model, words in (
        ("opnai:gpt-5", "did you mean `openai`"),
        ("gpt-5", "did you mean `openai:gpt-5`"),
        ("claude-sonnet-4-5", "did you mean `anthropic:claude-sonnet-4-5`"),
        ("claude:sonnet", "did you mean `anthropic:`"),
        ("google/gemini-2.5-pro", "did you mean `google:gemini-2.5-pro`"),
        ("openai-responses:gpt-5", "did you mean `openai:gpt-5`"),
        ("google-gla:gemini-2.5-pro", "did you mean `google:gemini-2.5-pro`"),
        ("my-model", "PROVIDER:NAME"),
        ("openai:gpt-5", "OPENAI_API_KEY"),
        ("openai_chat:x", "base_url"),
    ):
        with pytest.raises(CallerError, match=words):
            Agent(model).run_sync("Go.")


async def test_options_of_the_wrong_type_are_refused_before_anything_is_sent_or_kept() -> None:
    """What the journal could not read again is a CallerError that names the field."""
    async with Lab() as lab:
        with Journal(None, clock=SystemClock()) as journal:
            for options, words in (
                ({"tool_choice": "banana"}, "tool_choice"),
                ({"parallel_tool_calls": "yes"}, "parallel_tool_calls"),
                ({"settings": Settings(stop="END")}, "stop"),  # pyright: ignore[reportArgumentType]
                ({"settings": Settings(reasoning_effort="most")}, "reasoning_effort"),  # pyright: ignore[reportArgumentType]
                ({"limits": MaxSteps(3.5)}, "MaxSteps"),
                ({"history": [{"role": "user"}]}, "."),
            ):
                with pytest.raises(CallerError, match=words):
                    await agent_for(lab, "plain-answer", journal=journal).run("Hi.", **grouped(options))  # pyright: ignore[reportArgumentType]
            for prompt in (["a", 5], Message("user", "abc"), [Path("x")]):  # pyright: ignore[reportArgumentType]
                with pytest.raises(CallerError):
                    await agent_for(lab, "plain-answer", journal=journal).run(prompt)  # pyright: ignore[reportArgumentType]
            assert journal.sessions() == []
        with pytest.raises(CallerError, match="`extra` holds what JSON cannot carry"):
            agent_for(lab, "plain-answer", extra={"x": object()})
        assert lab.count() == 0


@pytest.mark.parametrize(
    "answer",
    [
        {"tools": ["read"]},
        "auto",
        StepChanges(tools="read"),
        StepChanges(tool_choice="banana"),
        StepChanges(tools=(read,)),
    ],  # pyright: ignore[reportArgumentType]
    ids=["dict", "str", "tools as text", "unknown choice", "tools themselves"],
)
async def test_an_answer_of_prepare_step_that_cannot_be_used_is_the_callers_mistake(answer: object) -> None:
    """It is named, and not called a bug of ours."""
    async with Lab() as lab:
        agent = agent_for(lab, "never-stops", tools=[read, search], prepare_step=lambda view: answer)
        with pytest.raises(CallerError, match="`prepare_step`"):
            await agent.run("Hi.")


class Even(pydantic.BaseModel):
    count: int

    @pydantic.field_validator("count")
    @classmethod
    def refuse(cls, value: int) -> int:
        raise KeyError(value)


async def test_a_value_that_the_types_own_validator_refuses_leaves_the_result_incomplete() -> None:
    """Whatever the validator raises: the turn's result is there after two corrections, without output, and says why."""
    model = ScriptedModel(['{"count": 1}'] * 3)
    agent = flat_agent("openai_chat:m", base_url="http://x", transport=model, output_type=Even)
    result = await agent.run("How many?")
    assert (result.output_or_none, result.complete, result.requests) == (None, False, 3)
    with pytest.raises(OutputMismatch, match="does not fit the output type") as caught:
        assert result.output
    assert (caught.value.text, caught.value.requests, caught.value.stop_reason) == (result.text, 3, "answered")
    assert [(one.kind, one.what) for one in result.repairs] == [
        ("output_refused", "the check of the answer failed (KeyError)")
    ]


class Span(pydantic.BaseModel):
    first: int
    last: int

    @pydantic.model_validator(mode="after")
    def in_order(self) -> "Span":
        if self.first > self.last:
            raise ValueError("`first` comes after `last`")
        return self


async def test_what_a_types_own_validator_refuses_is_corrected() -> None:
    """Proves: a rule that no JSON Schema can say reaches the model in the validator's words, in a run and in a sub-agent."""
    lines = ['{"first": 3, "last": 1}', '{"first": 1, "last": 3}']
    model = ScriptedModel(lines)
    agent = flat_agent("openai_chat:m", base_url="http://x", transport=model, output_type=Span)
    result = await agent.run("From where to where?")
    assert (result.output, result.complete, result.requests) == (Span(first=1, last=3), True, 2)
    assert "`first` comes after `last`" in text_of(model.asked[1].messages[-1])
    child = flat_agent("openai_chat:m", base_url="http://x", transport=ScriptedModel(lines), output_type=Span)
    asks = ScriptedModel([call("task", agent="span", prompt="Go."), "So be it."])
    parent = flat_agent("openai_chat:m", base_url="http://x", transport=asks, agents={"span": child})
    assert [one.requests for one in (await parent.run("Go.")).children] == [2]


@each_family
@pytest.mark.promise("step:history-healed")
async def test_a_history_with_calls_goes_on_without_any_tools(family: str) -> None:
    """Also where the API wants the tools of the history declared (Anthropic): by name, with tool choice none."""
    async with Lab() as lab:
        first = await agent_for(lab, "parallel-calls", family=family, tools=[read]).run("Read both.")
        second = await agent_for(lab, "plain-answer", family=family).run("And now?", history=first.history)
        dropping = agent_for(
            lab,
            "read-edit-answer",
            family=family,
            tools=[read],
            prepare_step=lambda view: StepChanges(tools=()) if view.step > 1 else None,
        )
        third = await dropping.run("Set it to done.")
        assert [received.refused for received in lab.requests if received.refused] == []
    assert second.complete and third.complete
