"""What a user chooses to have spans and metrics of runs: `observation={"telemetry": Telemetry()}`."""

from collections.abc import Mapping
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING

from turnwise.base.clock import Clock
from turnwise.base.extras import require_extras
from turnwise.errors import CallerError
from turnwise.running.watcher_events import ObservedTurn, TurnObserver

if TYPE_CHECKING:
    from opentelemetry.metrics import MeterProvider
    from opentelemetry.trace import TracerProvider

    from turnwise.telemetry.gateway_spans import GatewayTrace

SWITCH = "TURNWISE_TELEMETRY"
CONTENTS = "OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT"  # as OpenTelemetry's own instrumentations have it


class Telemetry:
    """Spans and metrics of runs, by OpenTelemetry's conventions for generative AI. Needs `turnwise[otel]`.

    - `agent_name` names the runs: their spans are called `invoke_agent NAME`. A sub-agent is named by its tool.
    - `contents=True` adds prompts, answers, and the arguments and results of tools. Keys are removed from them. Without
      it no span holds anything that a user, a model or a tool wrote.
    - `traceparent=True` sends the trace's id with each request to the model's endpoint, for a gateway that joins the trace.
    - `tracer_provider` and `meter_provider` are where spans and metrics go. Without them, OpenTelemetry's global ones.

    Sub-agents without a `telemetry` of their own use their parent's. Raises CallerError if OpenTelemetry's API is not
    installed.
    """

    def __init__(
        self,
        *,
        agent_name: str = "",
        contents: bool = False,
        traceparent: bool = False,
        tracer_provider: "TracerProvider | None" = None,
        meter_provider: "MeterProvider | None" = None,
    ) -> None:
        require_extras("otel")
        from turnwise.telemetry.spans import Instruments

        self._instruments = Instruments(tracer_provider, meter_provider)
        self._agent_name = agent_name
        self._contents = contents
        self._traceparent = traceparent

    def __repr__(self) -> str:
        return f"<Telemetry agent_name={self._agent_name!r} contents={self._contents}>"

    def observe(self, turn: ObservedTurn) -> TurnObserver:
        """What makes the spans of one turn. The runner calls it."""
        from turnwise.telemetry.spans import TurnTrace

        return TurnTrace(
            turn,
            instruments=self._instruments,
            agent_name=self._agent_name,
            has_contents=self._contents,
            sends_traceparent=self._traceparent,
        )

    def gateway_span(self, headers: Mapping[str, str], *, clock: Clock) -> "AbstractContextManager[GatewayTrace]":
        """A span of one request to a gateway, in the trace that its headers name. The gateway calls it."""
        from turnwise.telemetry.gateway_spans import gateway_span

        return gateway_span(headers, instruments=self._instruments, clock=clock)


def telemetry_of(env: Mapping[str, str]) -> Telemetry | None:
    """What the user's environment asks of the command line and the gateway; None: nothing. Raises CallerError."""
    said = env.get(SWITCH, "").strip().lower()
    if said in ("", "0", "off", "false"):
        return None
    if said not in ("1", "on", "true"):
        raise CallerError(f"`{SWITCH}` is `on` or `off`, not `{said}`")
    return Telemetry(contents=env.get(CONTENTS, "").strip().lower() in ("1", "true"))
