"""The tracer and the histograms that all turns of one `Telemetry` share."""

from collections.abc import Mapping

from opentelemetry.context import Context
from opentelemetry.metrics import Histogram, MeterProvider, get_meter
from opentelemetry.trace import TracerProvider, get_tracer
from opentelemetry.util.types import AttributeValue

from turnwise._version import __version__
from turnwise.telemetry.endings import SpanEndings
from turnwise.telemetry.names import (
    FIRST_CHUNK_DURATION,
    OPERATION_DURATION,
    RESPONSE_MODEL,
    TOKEN_TYPE,
    TOKEN_USAGE,
)
from turnwise.vocab import Usage

# Those that the conventions advise for each of these metrics.
SECONDS = (0.01, 0.02, 0.04, 0.08, 0.16, 0.32, 0.64, 1.28, 2.56, 5.12, 10.24, 20.48, 40.96, 81.92)
FIRST_CHUNK_S = (0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0)
TOKENS = (1, 4, 16, 64, 256, 1024, 4096, 16384, 65536, 262144, 1048576, 4194304, 16777216, 67108864)

MAX_MODELS = 100  # of responses: each is a series of its own, and an endpoint may name another one each time

Measured = Mapping[str, AttributeValue]


class Instruments:
    """`tracer` makes the spans, `endings` ends them. None of the providers: OpenTelemetry's global ones, also if they are set
    later. What a meter raises is logged and harms nothing."""

    def __init__(
        self,
        tracer_provider: TracerProvider | None,
        meter_provider: MeterProvider | None,
        *,
        endings: SpanEndings | None = None,
    ) -> None:
        self.tracer = get_tracer("turnwise", __version__, tracer_provider)
        self.endings = endings or SpanEndings()
        self._models: set[AttributeValue] = set()
        meter = get_meter("turnwise", __version__, meter_provider)

        def histogram(name: str, *, unit: str, says: str, buckets: tuple[float, ...]) -> Histogram:
            return meter.create_histogram(
                name, unit=unit, description=says, explicit_bucket_boundaries_advisory=list(buckets)
            )

        self._duration = histogram(
            OPERATION_DURATION, unit="s", says="Duration of runs, requests and tool calls.", buckets=SECONDS
        )
        self._first_chunk = histogram(
            FIRST_CHUNK_DURATION, unit="s", says="Time until a response begins.", buckets=FIRST_CHUNK_S
        )
        self._tokens = histogram(
            TOKEN_USAGE, unit="{token}", says="Input and output tokens of requests.", buckets=TOKENS
        )

    def ended(self, seconds: float, *, attributes: Measured, context: Context) -> None:
        """An operation took so long."""
        self._record(self._duration, max(seconds, 0.0), attributes=attributes, context=context)

    def began(self, seconds: float, *, attributes: Measured, context: Context) -> None:
        """A response began after so long."""
        self._record(self._first_chunk, max(seconds, 0.0), attributes=attributes, context=context)

    def used(self, usage: Usage, *, attributes: Measured, context: Context) -> None:
        """A request used these tokens. A count that the provider did not report is not recorded."""
        for kind, count, name in (
            ("input", usage.input_tokens, "input_tokens"),
            ("output", usage.output_tokens, "output_tokens"),
        ):
            if name not in usage.untold:
                self._record(self._tokens, count, attributes={**attributes, TOKEN_TYPE: kind}, context=context)

    def _record(self, histogram: Histogram, value: float, *, attributes: Measured, context: Context) -> None:
        try:
            histogram.record(value, self._of_few_models(attributes), context)
        except Exception as error:  # noqa: BLE001 (a meter of the user's program is a stranger)
            self.endings.failed("a metric could not be recorded", error=error)

    def _of_few_models(self, attributes: Measured) -> Measured:
        model = attributes.get(RESPONSE_MODEL)
        if model is None or model in self._models:
            return attributes
        if len(self._models) < MAX_MODELS:
            self._models.add(model)
            return attributes
        return {name: value for name, value in attributes.items() if name != RESPONSE_MODEL}
