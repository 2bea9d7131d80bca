"""turnwise: CPU of one step of a run with telemetry off, and on with more and more of OpenTelemetry behind it."""

from collections.abc import Sequence

from dispatch import Run, cpu_of, repeats, run
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExporter, SpanExportResult

from turnwise import Agent, MaxSteps, Model, ObservationOptions, Telemetry, tool
from turnwise.testing import ScriptedModel, call


class Nowhere(SpanExporter):
    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        return SpanExportResult.SUCCESS


@tool
async def look(place: int) -> str:
    """Look."""
    return f"nothing at {place}"


def make() -> Run:
    tracers, meters = TracerProvider(), MeterProvider([InMemoryMetricReader()])
    tracers.add_span_processor(BatchSpanProcessor(Nowhere()))
    telemetry = {
        "off": None,
        "api": Telemetry(),
        "sdk": Telemetry(tracer_provider=tracers, meter_provider=meters),
        "contents": Telemetry(tracer_provider=tracers, meter_provider=meters, contents=True),
    }
    steps = repeats()

    async def one(key: str) -> float:
        observation: ObservationOptions = {} if telemetry[key] is None else {"telemetry": telemetry[key]}

        async def work() -> None:
            model = ScriptedModel([*[call("look", place=place) for place in range(steps)], "Done."])
            agent = Agent(
                Model("openai_chat:m", transport=model),
                tools=[look],
                limits=MaxSteps(steps + 2),
                observation=observation,
            )
            assert (await agent.run("Go.")).complete

        return await cpu_of(work, repeat=1) / steps

    return {key: (lambda key=key: one(key)) for key in telemetry}


run(make, distribution="turnwise")
