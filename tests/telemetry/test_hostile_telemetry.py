"""Exporters that raise or never return, and endpoints that fill spans with what they like: nothing of it harms the run."""

import asyncio
import json
from collections.abc import Iterator
from threading import Event
from typing import Any

import pytest
from opentelemetry.metrics import MeterProvider, NoOpMeterProvider
from opentelemetry.sdk.trace import ReadableSpan, Span, SpanProcessor, TracerProvider

from telemetry.otlp_receiver import Receiver, receiving
from telemetry.test_spans import KEY, agent_of, look
from terminal.test_processes import wait_until
from turnwise import Agent, Model, Telemetry, tool
from turnwise.running.watcher_events import ObservedTurn
from turnwise.telemetry.attributes import MOST_OF_A_NAME, MOST_OF_A_TEXT, MOST_OF_AN_ATTRIBUTE, Contents
from turnwise.telemetry.spans import Instruments, SpanEndings, TurnTrace
from turnwise.testing import FakeClock, Reply, ScriptedModel, ScriptedTransport, call
from turnwise.vocab import Message, Text, ToolResult
from waits import HANG_S


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    with receiving() as opened:
        yield opened


class Started(SpanProcessor):
    """Knows all spans, and raises for those that begin with `word`, at their `when`."""

    def __init__(self, when: str = "", word: str = "") -> None:
        self._when, self._word = when, word
        self.spans: list[Span] = []

    def on_start(self, span: Span, parent_context: object = None) -> None:
        self._raise("start", span.name)
        self.spans.append(span)

    def on_end(self, span: ReadableSpan) -> None:
        self._raise("end", span.name)

    def _raise(self, when: str, name: str) -> None:
        if when == self._when and name.startswith(self._word):
            raise RuntimeError(f"authorization: {KEY}")


@pytest.mark.parametrize("word", ["invoke_agent", "chat", "execute_tool"])
@pytest.mark.parametrize("when", ["start", "end"])
async def test_a_processor_that_raises_costs_its_own_spans_alone(
    receiver: Receiver, caplog: pytest.LogCaptureFixture, when: str, word: str
) -> None:
    """Issue 22: the run ends as it would have, every span that began has ended, and the log has one line without what was raised:
    exporters quote their headers."""
    processor = Started(when, word)
    receiver.tracers.add_span_processor(processor)
    model = ScriptedModel([[call("look", place="a"), call("look", place="b")], "Done."])
    result = await agent_of(model, receiver, tools=[look]).run("Go.")
    assert result.complete and not [one.name for one in processor.spans if one.is_recording()]
    whole = {"invoke_agent": 1, "chat": 2, "execute_tool": 2}
    left = {} if (when, word) == ("start", "invoke_agent") else whole | ({word: 0} if when == "start" else {})
    assert {name: len(receiver.named(name)) for name in whole} == {name: left.get(name, 0) for name in whole}
    assert len(caplog.records) == 1 and "(RuntimeError)" in caplog.text and KEY not in caplog.text


class Endless(SpanProcessor):
    """Never returns from the end of a span, until it is let go."""

    def __init__(self) -> None:
        self.go = Event()

    def on_end(self, span: ReadableSpan) -> None:
        self.go.wait(HANG_S)


async def test_an_exporter_that_never_returns_holds_up_no_run(caplog: pytest.LogCaptureFixture) -> None:
    """Issue 22: runs end while their spans wait for it, and one line says so. A second one does not wait at all."""
    tracers, endless = TracerProvider(shutdown_on_exit=False), Endless()
    tracers.add_span_processor(endless)
    telemetry = Telemetry(tracer_provider=tracers, meter_provider=NoOpMeterProvider())
    try:
        for _ in range(3):
            model = ScriptedModel([call("look", place="a"), "Done."])
            agent = Agent(
                Model("openai_chat:m", transport=model),
                tools=[look],
                observation={"telemetry": telemetry, "clock": FakeClock()},
            )
            assert (await agent.run("Go.")).complete
    finally:
        endless.go.set()
    assert [one.message for one in caplog.records] == [
        "telemetry: an exporter of spans holds up the end of a run; runs do not wait for it any more"
    ]


class Calling(SpanProcessor):
    """Returns from the end of a span once the event loop has come to its call."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._is_held_up = False
        self.spans: list[str] = []

    def on_end(self, span: ReadableSpan) -> None:
        answered = Event()
        self._loop.call_soon_threadsafe(answered.set)
        if not self._is_held_up and answered.wait(HANG_S / 10):
            self.spans.append(span.name)
        else:
            self._is_held_up = True


class Patient(Telemetry):
    """Waits for its exporter as long as a test does."""

    def __init__(self, tracers: TracerProvider) -> None:
        super().__init__()
        endings = SpanEndings(settle_s=HANG_S)
        self._patient = Instruments(tracers, NoOpMeterProvider(), endings=endings)

    def observe(self, turn: ObservedTurn) -> TurnTrace:
        return TurnTrace(turn, instruments=self._patient, agent_name="", has_contents=False, sends_traceparent=False)


async def test_the_event_loop_goes_on_while_a_run_waits_for_its_exporter(receiver: Receiver) -> None:
    """Issue 22: the exporter goes on once the loop does; the run, which waits for all of its spans, would hold up both."""
    tracers, calling = TracerProvider(shutdown_on_exit=False), Calling(asyncio.get_running_loop())
    tracers.add_span_processor(calling)
    model = ScriptedModel([call("look", place="a"), "Done."])
    result = await agent_of(model, receiver, tools=[look]).run("Go.", observation={"telemetry": Patient(tracers)})
    assert result.complete and calling.spans == ["chat m", "execute_tool look", "chat m", "invoke_agent"]


async def test_a_run_waits_for_its_exporter_though_the_run_that_began_its_task_has_ended(receiver: Receiver) -> None:
    """Proves: an outer run waits for the spans of a run inside it as long as it lasts; after it nobody would, and a program that
    ends lost them."""
    tracers, calling = TracerProvider(shutdown_on_exit=False), Calling(asyncio.get_running_loop())
    tracers.add_span_processor(calling)
    observed: Any = {"telemetry": Patient(tracers)}
    may_go, tasks = asyncio.Event(), list[asyncio.Task[list[str]]]()

    async def work() -> list[str]:
        await may_go.wait()
        await agent_of(ScriptedModel(["Done."]), receiver).run("Go.", observation=observed)
        return list(calling.spans)

    @tool
    async def begin() -> str:
        """Begin a task."""
        tasks.append(asyncio.create_task(work()))
        return "begun"

    await agent_of(ScriptedModel([call("begin"), "Done."]), receiver, tools=[begin]).run("Go.", observation=observed)
    may_go.set()
    async with asyncio.timeout(HANG_S):
        assert (await tasks[0])[-2:] == ["chat m", "invoke_agent"] and calling.spans.count("invoke_agent") == 2


def waits(endings: SpanEndings) -> bool:
    """Whether a run that ends now would wait."""
    settled = endings.settled()
    try:
        settled.send(None)
    except StopIteration:
        return False
    settled.close()
    return True


async def test_runs_wait_for_a_late_exporter_again_once_it_has_caught_up(caplog: pytest.LogCaptureFixture) -> None:
    """Issue 22: the first wait is in vain; the next run does not wait until all spans have ended."""
    tracers, endless = TracerProvider(shutdown_on_exit=False), Endless()
    tracers.add_span_processor(endless)
    tracer, endings = tracers.get_tracer("test"), SpanEndings(settle_s=0.0)
    for number in range(2):
        endings.end(tracer.start_span(str(number)), at_ns=1)
    assert waits(endings)
    await endings.settled()
    assert len(caplog.records) == 1 and "runs do not wait for it any more" in caplog.text
    assert not waits(endings)
    endless.go.set()
    await asyncio.to_thread(wait_until, lambda: not endings.is_late)
    endless.go.clear()
    endings.end(tracer.start_span("later"), at_ns=1)
    assert waits(endings)
    endless.go.set()


class Hasty(asyncio.SelectorEventLoop):
    """Its time is always later than what anybody waits for."""

    def time(self) -> float:
        self._now = getattr(self, "_now", 0.0) + 10 * HANG_S
        return self._now


def test_the_exit_does_not_wait_for_a_late_exporter() -> None:
    """Issue 22: a run has waited for it in vain, so it has had its time."""
    tracers, endless = TracerProvider(shutdown_on_exit=False), Endless()
    tracers.add_span_processor(endless)
    endings = SpanEndings(settle_s=2 * HANG_S)
    endings.end(tracers.get_tracer("test").start_span("s"), at_ns=1)
    with asyncio.Runner(loop_factory=Hasty) as runner:
        runner.run(endings.settled())
    endings.settle()
    assert endings.is_late
    endless.go.set()


def test_spans_that_wait_for_an_exporter_are_bounded(caplog: pytest.LogCaptureFixture) -> None:
    """Issue 22: memory, too: beyond the bound spans are dropped, and the log says so once."""
    tracers, endless, started = TracerProvider(shutdown_on_exit=False), Endless(), Started()
    tracers.add_span_processor(started)
    tracers.add_span_processor(endless)
    tracer, endings = tracers.get_tracer("test"), SpanEndings(settle_s=HANG_S, most=3)
    for number in range(20):
        endings.end(tracer.start_span(str(number)), at_ns=1)
    endless.go.set()
    endings.settle()
    assert 3 <= len([one for one in started.spans if not one.is_recording()]) <= 4
    assert len(caplog.records) == 1 and "some are dropped" in caplog.text


async def test_a_meter_that_raises_leaves_spans_and_run_alone(receiver: Receiver) -> None:
    """The histogram of a strange provider raises at each record: every span still ends, with its attributes."""

    class Strange(NoOpMeterProvider):
        def get_meter(self, *_: Any, **__: Any) -> Any:
            class Meter:
                def create_histogram(self, *_: Any, **__: Any) -> "Meter":
                    return self

                def record(self, *_: Any, **__: Any) -> None:
                    raise RuntimeError

            return Meter()

    strange: MeterProvider = Strange()
    telemetry = Telemetry(tracer_provider=receiver.tracers, meter_provider=strange)
    model = ScriptedModel([call("look", place="a"), "Done."])
    result = await agent_of(model, receiver, tools=[look]).run("Go.", observation={"telemetry": telemetry})
    assert result.complete and len(receiver.spans) == 4
    assert [one["gen_ai.usage.input_tokens"] for one in receiver.named("chat")] == [10, 10]


def stream_of(*objects: object) -> Reply:
    lines = b"".join([b"data: " + json.dumps(one).encode() + b"\n\n" for one in objects])
    return Reply(pieces=(lines + b"data: [DONE]\n\n",))


@pytest.mark.parametrize("contents", [False, True], ids=["without contents", "with contents"])
async def test_what_an_endpoint_calls_things_is_bounded_and_shows_no_key(receiver: Receiver, contents: bool) -> None:
    """Issue 22: ids, models, finish reasons and names of calls are the endpoint's and the model's texts. They are short, without
    the key, and a name that no tool has is content."""
    huge = "Z" * 100_000
    asked = {"id": f"c-{KEY}-{huge}", "function": {"name": f"PRIVATE-{KEY}-{huge}", "arguments": "{}"}}
    transport = ScriptedTransport(
        [
            stream_of(
                {
                    "id": f"r-{KEY}-{huge}",
                    "model": f"m-{KEY}-{huge}",
                    "choices": [{"index": 0, "delta": {"tool_calls": [{"index": 0, **asked}]}}],
                },
                {"choices": [{"index": 0, "delta": {}, "finish_reason": f"f-{KEY}-{huge}"}]},
            ),
            stream_of({"id": "r2", "choices": [{"index": 0, "delta": {"content": "Done."}, "finish_reason": "stop"}]}),
        ]
    )
    agent = agent_of(transport, receiver, contents=contents, tools=[look], asked={"api_key": KEY})
    await agent.run("Go.")
    receiver.flush()
    sent = b"".join(receiver.bodies)
    assert KEY.encode() not in sent and len(sent) < 50_000
    assert (b"PRIVATE" in sent) is contents
    values = [value for span in receiver.spans for value in span.attributes.values() if isinstance(value, str)]
    assert contents or max(map(len, values)) == MOST_OF_A_NAME


async def test_contents_of_a_turn_have_a_size(receiver: Receiver) -> None:
    """Issue 22: a message of many long results, a system prompt and tools that are long: no attribute is larger than its bound,
    and the newest parts are there."""

    @tool
    def much(number: int) -> str:
        """Much."""
        return f"{number}" + "ä\n" * 40_000

    model = ScriptedModel([[call("much", number=number) for number in range(40)], "Done."])
    instructions = "".join(["\x01" * 300_000])
    agent = agent_of(model, receiver, contents=True, tools=[much], instructions=instructions)
    await agent.run("Go.")
    sizes = [len(str(value).encode()) for span in receiver.spans for value in span.attributes.values()]
    assert max(sizes) <= MOST_OF_AN_ATTRIBUTE
    (last,) = json.loads(receiver.named("chat")[-1]["gen_ai.input.messages"])[-1:]
    assert last["role"] == "tool" and last["parts"][-1]["id"] == "call_1_40"


@pytest.mark.parametrize(
    "at", [0, MOST_OF_A_TEXT - 30, MOST_OF_A_TEXT - 1, MOST_OF_A_TEXT + 4000, MOST_OF_A_TEXT + 4090]
)
def test_a_key_at_a_cut_is_not_shown_by_half(at: int) -> None:
    """The text is cut before it is searched for the key, so that costs no more than what is shown; its half is not shown
    either, also where many keys before it have become shorter."""
    key = "k" * 8 + "0123456789abcdef" * 60

    def scrub(text: str) -> str:
        return text.replace(key, "***")

    beginning = (key * (at // len(key) + 1))[: at // len(key) * len(key)]
    for text in (f"{'.' * at}{key}{'.' * 50_000}", f"{beginning}{key}{'.' * 50_000}"):
        shown = Contents(scrub).messages(
            [Message(role="tool", parts=(ToolResult(call_id="c", name="n", content=(Text(text),)),))]
        )
        assert key[:16] not in shown and key[-16:] not in shown


def test_models_of_responses_are_bounded_in_metrics(receiver: Receiver) -> None:
    """Each is a series of its own: an endpoint that names another model each time does not fill the memory."""
    names = iter(range(1000))

    def answer(_: object) -> Any:
        return stream_of(
            {"model": f"m{next(names)}", "choices": [{"index": 0, "delta": {"content": "x"}, "finish_reason": "stop"}]}
        )

    telemetry = Telemetry(tracer_provider=TracerProvider(shutdown_on_exit=False), meter_provider=receiver.meters)
    agent = agent_of(ScriptedTransport([answer(None) for _ in range(120)]), receiver)
    for _ in range(120):
        agent.run_sync("Go.", observation={"telemetry": telemetry})
    receiver.flush()
    models = {told.get("gen_ai.response.model") for name, told, _ in receiver.points if name.endswith("duration")}
    assert len(models - {None}) == 100
