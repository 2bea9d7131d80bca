"""A receiver of OTLP over HTTP on loopback: what the real exporters send is decoded with the protocol's own messages."""

import gzip
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.common.v1.common_pb2 import AnyValue, KeyValue
from opentelemetry.proto.trace.v1.trace_pb2 import Span
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import PeriodicExportingMetricReader
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor

from waits import HANG_S

FAILED = 2  # `Status.STATUS_CODE_ERROR`


def value_of(value: AnyValue) -> Any:
    """As Python has it."""
    kind = value.WhichOneof("value")
    if kind == "array_value":
        return [value_of(one) for one in value.array_value.values]
    return getattr(value, kind)


def attributes_of(pairs: Any) -> dict[str, Any]:
    """Name -> value."""
    found: list[KeyValue] = list(pairs)
    return {pair.key: value_of(pair.value) for pair in found}


@dataclass
class SeenSpan:
    """A span as it came over the wire."""

    span: Span

    @property
    def name(self) -> str:
        return self.span.name

    @property
    def id(self) -> bytes:
        return self.span.span_id

    @property
    def parent(self) -> bytes:
        return self.span.parent_span_id

    @property
    def failed(self) -> bool:
        return self.span.status.code == FAILED

    @property
    def seconds(self) -> float:
        return (self.span.end_time_unix_nano - self.span.start_time_unix_nano) / 1e9

    @property
    def links(self) -> list[tuple[str, bytes]]:
        """What each link says, and the id of the span that it leads to."""
        return [(attributes_of(link.attributes)["turnwise.link"], link.span_id) for link in self.span.links]

    def __getitem__(self, name: str) -> Any:
        return attributes_of(self.span.attributes)[name]

    @property
    def attributes(self) -> dict[str, Any]:
        return attributes_of(self.span.attributes)


@dataclass
class Receiver:
    """What came, in order. `tracers` and `meters` are the real SDK, whose exporters send it here."""

    url: str
    bodies: list[bytes] = field(default_factory=list[bytes])
    spans: list[SeenSpan] = field(default_factory=list[SeenSpan])
    changed: threading.Condition = field(default_factory=threading.Condition)
    points: list[tuple[str, dict[str, Any], Any]] = field(default_factory=list[tuple[str, dict[str, Any], Any]])

    def __post_init__(self) -> None:
        resource = Resource({"service.name": "tests"})
        self.tracers = TracerProvider(resource=resource, shutdown_on_exit=False)
        self.tracers.add_span_processor(SimpleSpanProcessor(OTLPSpanExporter(f"{self.url}/v1/traces")))
        exporter = OTLPMetricExporter(f"{self.url}/v1/metrics")
        reader = PeriodicExportingMetricReader(exporter, export_interval_millis=float("inf"))
        self.meters = MeterProvider([reader], resource=resource, shutdown_on_exit=False)

    def wait_for(self, spans: int) -> None:
        """So many spans have come: those of a gateway end beside its requests."""
        with self.changed:
            assert self.changed.wait_for(lambda: len(self.spans) >= spans, HANG_S)

    def flush(self) -> None:
        """All metrics until now are sent."""
        assert self.meters.force_flush(HANG_S * 1000)

    def take(self, path: str, body: bytes) -> None:
        self.bodies.append(body)
        if path == "/v1/traces":
            for of_resource in ExportTraceServiceRequest.FromString(body).resource_spans:
                for scope in of_resource.scope_spans:
                    with self.changed:
                        self.spans += [SeenSpan(span) for span in scope.spans]
                        self.changed.notify_all()
        elif path == "/v1/metrics":
            for of_resource in ExportMetricsServiceRequest.FromString(body).resource_metrics:
                for scope in of_resource.scope_metrics:
                    for metric in scope.metrics:
                        for point in metric.histogram.data_points:
                            self.points.append((metric.name, attributes_of(point.attributes), point))
        else:
            raise AssertionError(f"nothing is sent to {path}")

    def named(self, beginning: str) -> list[SeenSpan]:
        """The spans whose name begins so, in the order in which they started."""
        found = [one for one in self.spans if one.name.startswith(beginning)]
        return sorted(found, key=lambda one: one.span.start_time_unix_nano)

    def one(self, beginning: str) -> SeenSpan:
        (found,) = self.named(beginning)
        return found


@contextmanager
def receiving() -> Iterator[Receiver]:
    """A receiver, and an SDK that sends to it; both have ended behind it."""

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["content-length"]))
            if self.headers.get("content-encoding") == "gzip":
                body = gzip.decompress(body)
            receiver.take(self.path, body)
            self.send_response(200)
            self.send_header("content-length", "0")
            self.end_headers()

        def log_message(self, format: str, *args: object) -> None:
            """Nothing is written to the terminal."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True)
    thread.start()
    receiver = Receiver(f"http://127.0.0.1:{server.server_port}")
    try:
        yield receiver
    finally:
        receiver.tracers.shutdown()
        receiver.meters.shutdown()
        server.shutdown()
        server.server_close()
        thread.join(HANG_S)
