"""See each run, request and tool call as a span of OpenTelemetry, with the tokens and the cost of each."""

# Needs `pip install 'turnwise[otel]' opentelemetry-sdk`. An exporter of yours takes the place of the one in memory.
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from models import says
from turnwise import Agent, Telemetry, tool
from turnwise.testing import call

exporter = InMemorySpanExporter()
tracers = TracerProvider()
tracers.add_span_processor(BatchSpanProcessor(exporter))


@tool
def weather(city: str) -> str:
    """Tell the weather of a city."""
    return f"{city}: sunny"


agent = Agent(
    says([call("weather", city="Oslo"), call("weather", city="Rome")], "It is sunny in both."),
    tools=[weather],
    observation={"telemetry": Telemetry(agent_name="reporter", tracer_provider=tracers)},
)
agent.run_sync("How is the weather in Oslo and Rome?")
tracers.force_flush()
for span in sorted(exporter.get_finished_spans(), key=lambda span: span.start_time or 0):
    tokens = (span.attributes or {}).get("gen_ai.usage.input_tokens", "-")
    print("  " if span.parent else "", span.name, f"({tokens} tokens in)")
