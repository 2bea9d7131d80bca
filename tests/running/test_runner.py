"""The loop end to end: a scripted model on the real wire, real tools, the real journal."""

import asyncio
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest

from families import of_family
from turn.playing import session_messages
from turnwise.journal.journal import Journal
from turnwise.journal.turn_writer import RequestSent, ToolsStarted
from turnwise.running.runner import Runner
from turnwise.running.runner_config import Observation, RunnerMeans
from turnwise.running.tool_output import TOOL_FAILED
from turnwise.running.tools import Arguments, Tool
from turnwise.running.watcher_events import (
    CallAnswered,
    FrameSeen,
    RequestFinished,
    RequestStarted,
    StepStarted,
    ToolFinished,
    ToolStarted,
    TurnFinished,
    WatcherEvent,
)
from turnwise.testing import FakeClock, Reply, ScriptedModel, ScriptedTransport, Stall, call
from turnwise.tools.workspace import workspace_tools
from turnwise.turn.config import Deadlines, ToolOffer, TurnConfig
from turnwise.turn.events import Interrupted, PrepareStep, StepPrepared, ToolEnded, ToolsFinished, TurnStarted
from turnwise.vocab import (
    ArgumentsState,
    Fault,
    FaultKind,
    Message,
    StopReason,
    Text,
    TextDelta,
    ToolCall,
    ToolResult,
    ToolSpec,
    text_of,
)
from waits import HANG_S

FAMILIES = ["openai_chat", "openai_responses", "anthropic_messages", "gemini"]
DEADLINES = Deadlines()
ANY_OBJECT = '{"type":"object"}'


def make_tool(
    name: str,
    function: Callable[[Arguments], object] | None,
    *,
    exclusive: bool = False,
    timeout_s: float | None = None,
) -> Tool:
    spec = ToolSpec(name=name, parameters=ANY_OBJECT)
    offer = ToolOffer(spec=spec, client_side=function is None, exclusive=exclusive, timeout_s=timeout_s)
    return Tool(offer=offer, function=function)


def started(
    model: ScriptedModel,
    *tools: Tool,
    prompt: str = "go",
    stream: bool = True,
    deadlines: Deadlines = DEADLINES,
    turn_id: str = "turn-1",
    **more: object,
) -> TurnStarted:
    config = TurnConfig(
        session_id="session-1",
        turn_id=turn_id,
        model="m",
        tools=tuple([tool.offer for tool in tools]),
        stream=stream,
        deadlines=deadlines,
        **of_family(model.endpoint.profile.family),
        profile=model.endpoint.profile.name,
    )
    config = msgspec.structs.replace(config, **more)
    return TurnStarted(config=config, input=(Message("user", (Text(prompt),)),))


def texts(results: tuple[ToolResult, ...]) -> list[str]:
    return [text_of(Message("tool", result.content)) for result in results]


def results_of(message: Message) -> tuple[ToolResult, ...]:
    return tuple([part for part in message.parts if isinstance(part, ToolResult)])


@pytest.mark.promise("step:sequential", "step:one-request")
@pytest.mark.parametrize("stream", [True, False], ids=["streamed", "whole"])
@pytest.mark.parametrize("family", FAMILIES)
async def test_read_edit_answer_takes_three_requests(family: str, stream: bool, tmp_path: Path) -> None:
    """Each result is in the next request, and the file is changed, at one request a step (Chutes)."""
    (tmp_path / "grüße.txt").write_text("Hallo Wlt\n")
    tools = workspace_tools(tmp_path)
    model = ScriptedModel(
        [
            call("read", path="grüße.txt"),
            call("edit", path="grüße.txt", old="Wlt", new="Welt"),
            "Fixed.",
        ],
        family=family,
    )
    runner = Runner(RunnerMeans(endpoint=model.endpoint, transport=model, tools=tools))

    result = await runner.run(started(model, *tools, stream=stream))

    assert (tmp_path / "grüße.txt").read_text() == "Hallo Welt\n"
    assert (result.text, result.stop_reason, result.complete) == ("Fixed.", StopReason.ANSWERED, True)
    assert (result.steps, result.requests, len(model.requests)) == (3, 3, 3)
    shown = [texts(results_of(request.messages[-1])) for request in model.asked[1:]]
    assert shown == [["     1\tHallo Wlt"], ["edited `grüße.txt`: 1 replacement, the first in line 1"]]


@pytest.mark.promise("step:parallel-together", "step:one-request")
@pytest.mark.parametrize("family", FAMILIES)
async def test_parallel_calls_run_together_before_the_one_follow_up(family: str) -> None:
    """Three calls wait for each other, so they pass only if all run at once; one follow-up has all results in call order
    (deep-chat, Chutes)."""
    here = asyncio.Barrier(3)
    order: list[str] = []

    async def meet(arguments: Arguments) -> str:
        await here.wait()
        order.append(str(arguments["who"]))
        return f"met {arguments['who']}"

    tool = make_tool("meet", meet)
    model = ScriptedModel([[call("meet", who=who) for who in "abc"], "done"], family=family)
    runner = Runner(RunnerMeans(endpoint=model.endpoint, transport=model, tools=[tool]))

    result = await asyncio.wait_for(runner.run(started(model, tool)), HANG_S)

    assert (result.requests, len(model.requests)) == (2, 2)
    assert sorted(order) == ["a", "b", "c"]
    assert texts(results_of(model.asked[1].messages[-1])) == ["met a", "met b", "met c"]


@pytest.mark.promise("step:parallel-together")
async def test_exclusive_call_runs_alone_in_its_place() -> None:
    """Neighbours that are not exclusive run together; an exclusive one starts after those before it have ended."""
    running: list[str] = []
    seen: dict[str, list[str]] = {}

    async def work(arguments: Arguments) -> str:
        who = str(arguments["who"])
        running.append(who)
        for _ in range(5):
            await asyncio.sleep(0)
        seen[who] = sorted(running)
        running.remove(who)
        return who

    shared, alone = make_tool("shared", work), make_tool("alone", work, exclusive=True)
    calls = [call("shared", who="a"), call("shared", who="b"), call("alone", who="c"), call("shared", who="d")]
    model = ScriptedModel([calls, "done"])

    await Runner(RunnerMeans(endpoint=model.endpoint, transport=model, tools=[shared, alone])).run(
        started(model, shared, alone)
    )

    assert seen["c"] == ["c"] and seen["d"] == ["d"] and seen["a"] == ["a", "b"]


@pytest.mark.promise("step:every-call-answered")
async def test_every_call_has_one_result_whatever_became_of_it() -> None:
    """Succeeded, raised, said no, unserialisable, unknown, cut, timed out: seven calls, seven results, in call order."""
    clock = FakeClock()

    async def sleeper(_: Arguments) -> str:
        await clock.sleep(1000)
        return "never"

    def fail(_: Arguments) -> str:
        raise ValueError("wrong number")

    tools = [
        make_tool("good", lambda _: {"n": 1}),
        make_tool("raises", fail),
        make_tool("object", lambda _: object()),
        make_tool("sleeper", sleeper, timeout_s=3),
    ]
    cut = ToolCall(id="cut", name="good", arguments='{"a": "b', state=ArgumentsState.TRUNCATED)
    model = ScriptedModel(
        [[call("good"), call("raises"), call("object"), call("nosuch"), call("sleeper"), cut], "done"]
    )
    running = asyncio.create_task(
        Runner(RunnerMeans(endpoint=model.endpoint, transport=model, tools=tools, clock=clock)).run(
            started(model, *tools)
        )
    )
    await clock.until_waiting(3)
    await clock.advance(3)
    await running

    results = results_of(model.asked[1].messages[-1])
    assert [result.call_id for result in results] == ["call_1_1", "call_1_2", "call_1_3", "call_1_4", "call_1_5", "cut"]
    said = texts(results)
    assert said[0] == '{"n":1}'
    assert said[1] == f"ValueError: {TOOL_FAILED}"
    assert said[2].startswith("`object` ran, but what it returned (`object`) cannot be turned into JSON")
    assert "nosuch" in said[3]
    assert said[4] == "timed out after 3 s and was stopped"
    assert len(said) == 6


@pytest.mark.promise("step:client-tools")
@pytest.mark.parametrize("family", FAMILIES)
async def test_client_side_call_ends_the_run_waiting_and_resumes_in_one_request(family: str) -> None:
    """The server-side sibling runs; the pending call's result, handed in later, goes out in one request (Chutes, option B)."""
    server, client = make_tool("server", lambda _: "here"), make_tool("client", None)
    model = ScriptedModel([[call("client"), call("server")], "thanks"], family=family)
    runner = Runner(RunnerMeans(endpoint=model.endpoint, transport=model, tools=[server, client]))

    first = await runner.run(started(model, server, client))
    assert (first.stop_reason, len(first.pending), first.requests) == (StopReason.WAITING, 1, 1)

    pending = first.pending[0]
    handed_in = ToolResult(call_id=pending.id, name=pending.name, content=(Text("from the browser"),))
    again = started(model, server, client, turn_id="turn-2")
    again = msgspec.structs.replace(again, input=(Message("tool", (handed_in,)),))
    second = await runner.run(again, earlier=first.messages)

    assert (second.text, second.requests, len(model.requests)) == ("thanks", 1, 2)
    assert [text for message in model.asked[1].messages for text in texts(results_of(message))] == [
        "from the browser",
        "here",
    ]


async def test_journal_holds_what_happened_in_order_and_folds_to_the_messages() -> None:
    """What touches the outside is written before it happens; the events fold to the session's messages."""
    tool = make_tool("echo", lambda given: given["text"])
    model = ScriptedModel([call("echo", text="hi"), "bye"])
    clock = FakeClock()
    with Journal(None, clock=clock) as journal:
        pen = journal.begin_turn(turn_id="turn-1", session_id="session-1", folder="/here", title="go")
        runner = Runner(RunnerMeans(endpoint=model.endpoint, transport=model, tools=[tool], clock=clock))
        result = await runner.run(started(model, tool), journal=pen)

        entries = journal.entries("turn-1")
        assert [type(entry.record).__name__ for entry in entries] == [
            "TurnStarted",
            "RequestSent",
            "ResponseReceived",
            "ToolsStarted",
            "ToolsFinished",
            "RequestSent",
            "ResponseReceived",
        ]
        sent = entries[1].record
        assert isinstance(sent, RequestSent) and (sent.number, sent.purpose) == (1, "step")
        assert sent.body_bytes == len(model.requests[0].body) and sent.url.startswith("http://scripted.invalid/")
        assert entries[3].record == ToolsStarted(step=1, call_ids=("call_1_1",))
        assert session_messages([journal.events("turn-1")]) == result.messages
        assert journal.sessions()[0].stop_reason is StopReason.ANSWERED


async def test_watcher_sees_the_turn_in_order() -> None:
    """Steps, requests, frames, tools and the end, each once; the text frames join to the answer."""
    tool = make_tool("echo", lambda given: given["text"])
    model = ScriptedModel([call("echo", text="hi"), "a longer answer, in several pieces"])
    seen: list[WatcherEvent] = []

    await Runner(
        RunnerMeans(endpoint=model.endpoint, transport=model, tools=[tool], observation=Observation(watch=seen.append))
    ).run(started(model, tool))

    assert [type(one) for one in seen if not isinstance(one, FrameSeen)] == [
        *[StepStarted, RequestStarted, RequestFinished, ToolStarted, ToolFinished],
        *[StepStarted, RequestStarted, RequestFinished, TurnFinished],
    ]
    pieces = [one.frame.text for one in seen if isinstance(one, FrameSeen) and isinstance(one.frame, TextDelta)]
    assert "".join(pieces) == "a longer answer, in several pieces" and len(pieces) > 1


@pytest.mark.promise("step:every-call-answered")
async def test_watcher_sees_a_result_for_every_call() -> None:
    """An unknown tool and one that is denied do not run: their results are told too, once, with the call."""
    tool = make_tool("echo", lambda given: given["text"])
    offer = msgspec.structs.replace(make_tool("shell", lambda given: "never").offer, effect="execute")
    shell = Tool(offer=offer, function=lambda given: "never")
    model = ScriptedModel([(call("echo", text="hi"), call("shell", text="x"), call("nope", text="x")), "bye"])
    seen: list[WatcherEvent] = []

    runner = Runner(
        RunnerMeans(
            endpoint=model.endpoint, transport=model, tools=[tool, shell], observation=Observation(watch=seen.append)
        )
    )
    result = await runner.run(started(model, tool, shell, allowed=("none",)))

    ran = [one.result for one in seen if isinstance(one, ToolFinished)]
    answered = [one for one in seen if isinstance(one, CallAnswered)]
    assert [one.call.name for one in answered] == ["shell", "nope"]
    assert (*ran, *[one.result for one in answered]) == results_of(result.messages[2])
    assert [type(one) for one in seen].count(ToolStarted) == 1


async def test_raising_watcher_does_not_end_the_turn(caplog: pytest.LogCaptureFixture) -> None:
    """It is told once more nothing, and a warning says so."""
    told: list[WatcherEvent] = []

    def watch(seen: WatcherEvent) -> None:
        told.append(seen)
        raise RuntimeError("broken screen")

    model = ScriptedModel(["fine"])
    result = await Runner(
        RunnerMeans(endpoint=model.endpoint, transport=model, observation=Observation(watch=watch))
    ).run(started(model))
    assert (result.text, len(told)) == ("fine", 1)
    assert "watcher" in caplog.text


@pytest.mark.promise("step:every-call-answered")
async def test_interrupt_cancels_the_tools_and_keeps_the_finished_results() -> None:
    """The finished call's result is in the journal and in history, the other is told as cancelled; nothing runs on."""
    at_work = asyncio.Event()
    stopped: list[str] = []

    async def forever(_: Arguments) -> str:
        at_work.set()
        try:
            await asyncio.Event().wait()
        finally:
            stopped.append("forever")
        return "never"

    tools = [make_tool("quick", lambda _: "quick result"), make_tool("forever", forever)]
    model = ScriptedModel([[call("quick"), call("forever")]])
    with Journal(None, clock=FakeClock()) as journal:
        pen = journal.begin_turn(turn_id="turn-1", session_id="session-1", folder="/here", title="go")
        finished = asyncio.Event()
        runner = Runner(
            RunnerMeans(
                endpoint=model.endpoint,
                transport=model,
                tools=tools,
                observation=Observation(watch=lambda seen: finished.set() if isinstance(seen, ToolFinished) else None),
            )
        )
        running = asyncio.create_task(runner.run(started(model, *tools), journal=pen))
        await at_work.wait()
        await finished.wait()
        runner.interrupt()
        result = await asyncio.wait_for(running, HANG_S)

        ended, last = journal.events("turn-1")[-2:]
    assert isinstance(ended, ToolEnded) and texts([ended.result]) == ["quick result"]
    assert isinstance(last, Interrupted) and last.results == ()
    assert stopped == ["forever"]
    assert result.stop_reason is StopReason.CANCELLED and result.text
    said = texts(results_of(result.messages[-1]))
    assert said[0] == "quick result" and said[1].startswith("Cancelled") and len(said) == 2


async def test_cancelled_task_is_journalled_and_the_cancellation_goes_on() -> None:
    """The stream is closed, the journal's last event is the interrupt, and the session is free for its next turn."""
    model = ScriptedModel([])
    transport = ScriptedTransport([Reply(pieces=(b": hello\n\n", Stall()))])
    with Journal(None, clock=FakeClock()) as journal:
        pen = journal.begin_turn(turn_id="turn-1", session_id="session-1", folder="/here", title="go")
        clock = FakeClock()
        runner = Runner(RunnerMeans(endpoint=model.endpoint, transport=transport, clock=clock))
        running = asyncio.create_task(runner.run(started(model), journal=pen))
        await clock.until_waiting(120)
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running
        assert transport.open == 0
        assert journal.events("turn-1")[-1] == Interrupted(kind="cancel")
        journal.begin_turn(turn_id="turn-2", session_id="session-1", folder="/here", title="go")


KEEP_ALIVE = b": keep-alive\n\n"
FIRST = b'data: {"choices":[{"index":0,"delta":{"role":"assistant","content":"Hel"}}]}\n\n'
LAST = b'data: {"choices":[{"index":0,"delta":{"content":"lo"},"finish_reason":"stop"}]}\n\n'


async def _run_with_clock(*replies: Reply, advance: list[tuple[float, float]], deadlines: Deadlines = DEADLINES):
    clock = FakeClock()
    model = ScriptedModel([])
    transport = ScriptedTransport(replies)
    running = asyncio.create_task(
        Runner(RunnerMeans(endpoint=model.endpoint, transport=transport, clock=clock)).run(
            started(model, deadlines=deadlines)
        )
    )
    for until, seconds in advance:
        await clock.until_waiting(until)
        await clock.advance(seconds)
    result = await asyncio.wait_for(running, HANG_S)
    assert transport.open == 0
    return result


async def test_keep_alives_do_not_put_off_the_first_event() -> None:
    """Only frames count: comments came, and the deadline on the first event still ends the request."""
    reply = Reply(pieces=(KEEP_ALIVE, KEEP_ALIVE, Stall()))
    result = await _run_with_clock(reply, advance=[(120, 120)])
    assert result.stop_reason is StopReason.PROVIDER_FAILED and result.text
    assert result.fault == Fault(kind=FaultKind.TIMEOUT, message="the provider was silent: no first event within 120 s")


async def test_idle_stream_is_ended() -> None:
    """After the first event the idle deadline holds."""
    reply = Reply(pieces=(FIRST, KEEP_ALIVE, Stall()))
    result = await _run_with_clock(reply, advance=[(90, 90)])
    assert result.fault == Fault(kind=FaultKind.TIMEOUT, message="the provider was silent: no next event within 90 s")


@pytest.mark.promise("wait:stream")
async def test_keep_alives_do_not_put_off_the_idle_deadline() -> None:
    """A comment a minute after the last event changes nothing: half a minute later the stream is idle."""
    gate = asyncio.Event()
    clock = FakeClock()
    model = ScriptedModel([])
    transport = ScriptedTransport([Reply(pieces=(FIRST, Stall(gate), KEEP_ALIVE, KEEP_ALIVE, Stall()))])
    running = asyncio.create_task(
        Runner(RunnerMeans(endpoint=model.endpoint, transport=transport, clock=clock)).run(started(model))
    )
    await clock.until_waiting(90)
    await clock.advance(60)
    gate.set()
    await clock.advance(29)
    assert not running.done()
    await clock.advance(1)
    result = await asyncio.wait_for(running, HANG_S)
    assert result.fault == Fault(kind=FaultKind.TIMEOUT, message="the provider was silent: no next event within 90 s")


async def test_total_deadline_ends_a_stream_that_drips() -> None:
    """A frame every minute keeps the stream from being idle, not from being too long."""
    gates = [asyncio.Event() for _ in range(3)]
    pieces = [piece for gate in gates for piece in (FIRST, Stall(gate))]
    clock = FakeClock()
    model = ScriptedModel([])
    transport = ScriptedTransport([Reply(pieces=tuple(pieces))])
    deadlines = Deadlines(total_s=150)
    runner = Runner(RunnerMeans(endpoint=model.endpoint, transport=transport, clock=clock))
    running = asyncio.create_task(runner.run(started(model, deadlines=deadlines)))
    await clock.until_waiting(90)
    for gate in gates[:2]:
        await clock.advance(60)
        gate.set()
    await clock.advance(60)
    result = await asyncio.wait_for(running, HANG_S)
    assert result.fault == Fault(kind=FaultKind.TIMEOUT, message="the provider was silent: no end within 150 s")


async def test_connection_left_open_after_the_finish_is_not_waited_for() -> None:
    """The answer is there; five seconds are given to late pieces (opencode waited 309 s)."""
    result = await _run_with_clock(Reply(pieces=(FIRST, LAST, Stall())), advance=[(5, 5)])
    assert (result.text, result.stop_reason) == ("Hello", StopReason.ANSWERED)


async def test_connection_broken_after_the_finish_is_no_fault() -> None:
    """Some servers reset instead of closing."""
    broken = Fault(kind=FaultKind.DISCONNECTED, message="gone")
    result = await _run_with_clock(Reply(pieces=(FIRST, LAST, broken)), advance=[])
    assert (result.text, result.stop_reason) == ("Hello", StopReason.ANSWERED)


async def test_connection_broken_in_mid_stream_ends_the_turn_with_its_fault() -> None:
    """A transport fault ends the turn cleanly, with a text and the fault."""
    broken = Fault(kind=FaultKind.DISCONNECTED, message="gone")
    result = await _run_with_clock(Reply(pieces=(FIRST, broken)), advance=[])
    assert (result.stop_reason, result.fault) == (StopReason.PROVIDER_FAILED, broken)
    assert result.text


async def test_body_in_place_of_a_stream_is_read() -> None:
    """Some servers ignore `stream`."""
    body = b'{"choices":[{"index":0,"message":{"role":"assistant","content":"whole"},"finish_reason":"stop"}]}'
    reply = Reply(pieces=(b" ", body[:10], body[10:]), headers={"content-type": "application/json"})
    result = await _run_with_clock(reply, advance=[])
    assert (result.text, result.complete) == ("whole", True)


async def test_stream_labelled_as_json_is_read() -> None:
    """The first byte tells, not the label."""
    reply = Reply(pieces=(FIRST, LAST), headers={"content-type": "application/json; charset=utf-8"})
    result = await _run_with_clock(reply, advance=[])
    assert result.text == "Hello"


async def test_redirect_is_not_followed() -> None:
    """The key would go to a stranger; the text names the place without its query."""
    reply = Reply(status=307, headers={"location": "https://elsewhere.example/v1?token=abc"})
    result = await _run_with_clock(reply, advance=[])
    assert result.fault is not None and result.fault.status == 307
    assert "https://elsewhere.example/v1`" in result.fault.message and "token" not in result.fault.message


async def test_prepare_step_changes_one_step() -> None:
    """Its instruction is in that request only; a raise of the user's own function reaches the caller."""
    model = ScriptedModel(["yes"])

    async def prepare(order: PrepareStep) -> StepPrepared | None:
        return StepPrepared(instruction=f"step {order.step} of {order.max_steps}: be brief")

    runner = Runner(RunnerMeans(endpoint=model.endpoint, transport=model, prepare_step=prepare))
    await runner.run(started(model, prepares_steps=True))
    assert text_of(model.asked[0].messages[-1]).endswith("step 1 of 20: be brief")

    def fail(_: PrepareStep) -> StepPrepared:
        raise LookupError("mine")

    runner = Runner(RunnerMeans(endpoint=model.endpoint, transport=model, prepare_step=fail))
    with pytest.raises(LookupError, match="mine"):
        await runner.run(started(model, prepares_steps=True))


async def test_interrupt_between_commands_ends_the_turn_at_the_next() -> None:
    """An interrupt that comes with the last result is not lost."""
    tool = make_tool("one", lambda _: "1")
    model = ScriptedModel([call("one")])
    runners: list[Runner] = []

    def watch(seen: WatcherEvent) -> None:
        if isinstance(seen, ToolFinished):
            runners[0].interrupt("deadline")

    runners.append(
        Runner(
            RunnerMeans(endpoint=model.endpoint, transport=model, tools=[tool], observation=Observation(watch=watch))
        )
    )
    result = await runners[0].run(started(model, tool))
    assert (result.stop_reason, result.requests) == (StopReason.TIME_LIMIT, 1)
    assert texts(results_of(result.messages[-1])) == ["1"]


async def test_answer_that_is_there_when_the_interrupt_comes_counts() -> None:
    """Both in the same pass of the loop: a response that was received and paid for is not thrown away."""

    def watch(seen: WatcherEvent) -> None:
        if isinstance(seen, RequestFinished):
            runner.interrupt()

    model = ScriptedModel(["the answer"])
    runner = Runner(RunnerMeans(endpoint=model.endpoint, transport=model, observation=Observation(watch=watch)))
    result = await asyncio.wait_for(runner.run(started(model)), HANG_S)
    assert (result.text, result.stop_reason) == ("the answer", StopReason.ANSWERED)


def test_event_kinds_are_distinct() -> None:
    """The journal tells its records apart by their tag."""
    kinds = [
        kind.__struct_config__.tag for kind in (TurnStarted, ToolsFinished, Interrupted, RequestSent, ToolsStarted)
    ]
    assert len(set(kinds)) == len(kinds)
