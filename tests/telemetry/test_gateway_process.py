"""`turnwise gateway` as a process of its own: its spans, by the real SDK and exporter, in the trace that a client names."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import msgspec
import pytest

from gateway.served_gateway import served_gateway
from telemetry.otlp_receiver import SeenSpan, receiving
from waits import HANG_S

TRACE, ABOVE = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"
PARENT = f"00-{TRACE}-{ABOVE}-01"
ANSWER = {
    "id": "r1",
    "object": "chat.completion",
    "model": "m-1",
    "choices": [{"index": 0, "message": {"role": "assistant", "content": "Hi."}, "finish_reason": "stop"}],
    "usage": {"prompt_tokens": 3, "completion_tokens": 2},
}
# What a program that uses the SDK does, where this process has no line of its own: Python runs it at its start.
SDK = """
import threading
from opentelemetry import trace
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanProcessor
class Broken(SpanProcessor):
    def on_start(self, span, parent_context=None): raise RuntimeError("start of the exporter")
    def on_end(self, span): raise RuntimeError("end of the exporter")
class Hanging(SpanProcessor):
    def on_end(self, span): threading.Event().wait()
tracers = TracerProvider()
tracers.add_span_processor(PROCESSOR)
trace.set_tracer_provider(tracers)
"""


@contextmanager
def upstream() -> Iterator[tuple[str, list[dict[str, str]]]]:
    """A provider on loopback; its URL, and the headers of each request."""
    seen: list[dict[str, str]] = []

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            self.rfile.read(int(self.headers["content-length"]))
            seen.append({name.lower(): value for name, value in self.headers.items()})
            body = msgspec.json.encode(ANSWER)
            self.send_response(200)
            self.send_header("content-type", "application/json")
            self.send_header("content-length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: object) -> None:
            """Nothing is written to the terminal."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}/v1", seen
    finally:
        server.shutdown()
        server.server_close()
        thread.join(HANG_S)


def env_of(folder: Path, *, processor: str, url: str) -> dict[str, str]:
    place = folder / "at start"
    place.mkdir()
    (place / "sitecustomize.py").write_text(SDK.replace("PROCESSOR", processor))
    return {"PYTHONPATH": str(place), "OTEL_EXPORTER_OTLP_ENDPOINT": url, "TURNWISE_TELEMETRY": "on"}


def asked(model: str) -> dict[str, object]:
    return {"model": model, "messages": [{"role": "user", "content": "the-prompts-own-words"}]}


def by_model(spans: list[SeenSpan]) -> dict[str, SeenSpan]:
    return {span.name: span for span in spans if span.span.kind == 2}  # those of clients' requests


@pytest.mark.costly
def test_the_spans_of_a_gateways_process_join_the_trace_of_its_clients(tmp_path: Path) -> None:
    """Issue 22: by `traceparent`; one that is malformed, or comes twice, begins a trace of its own. Nothing of a client's trace
    or baggage goes upstream, no prompt is in a span, and the last spans are sent though the gateway is told to end."""
    malformed = ("00-0-0-01", "x" * 5000, f"ff-{TRACE}-{ABOVE}-01", f"00-{'0' * 32}-{ABOVE}-01", f"{PARENT}, {PARENT}")
    with receiving() as receiver, upstream() as (url, sent):
        env = env_of(tmp_path, processor="BatchSpanProcessor(OTLPSpanExporter())", url=receiver.url)
        with served_gateway(tmp_path, upstream=url, env=env) as gateway:
            path = "/v1/chat/completions"
            good = {"traceparent": PARENT, "tracestate": "shop=1", "baggage": "user=ada"}
            assert gateway.ask(path, asked("good"), **good).status == 200
            for number, text in enumerate(malformed):
                assert gateway.ask(path, asked(f"bad-{number}"), traceparent=text, baggage="user=ada").status == 200
            gateway.end()
            assert gateway.process.returncode == 0
        spans = by_model(receiver.spans)
        bodies = b"".join(receiver.bodies)
    assert spans.keys() == {"chat good", *[f"chat bad-{number}" for number in range(len(malformed))]}
    joined = spans.pop("chat good")
    assert (joined.span.trace_id.hex(), joined.parent.hex()) == (TRACE, ABOVE) and joined.span.trace_state == "shop=1"
    assert (joined["gen_ai.usage.input_tokens"], joined["http.response.status_code"]) == (3, 200)
    assert {span.parent for span in spans.values()} == {b""}
    assert TRACE not in {span.span.trace_id.hex() for span in spans.values()}
    assert len(sent) == 1 + len(malformed)
    assert not [1 for headers in sent if headers.keys() & {"traceparent", "tracestate", "baggage"}]
    assert b"the-prompts-own-words" not in bodies


@pytest.mark.costly
@pytest.mark.parametrize("processor", ["Broken()", "Hanging()"])
def test_a_broken_exporter_harms_no_request_of_a_gateway(tmp_path: Path, processor: str) -> None:
    """One that raises, at a span's start or end, or never returns: clients get their answers, the log has one line of it without
    its text, and the gateway ends when it is told to."""
    with upstream() as (url, _):
        env = env_of(tmp_path, processor=processor, url="http://127.0.0.1:9")
        with served_gateway(tmp_path, upstream=url, env=env) as gateway:
            answers = [gateway.ask("/v1/chat/completions", asked("m")) for _ in range(2)]
            assert [(answer.status, b"Hi." in answer.read()) for answer in answers] == [(200, True)] * 2
            log = gateway.end()
    assert gateway.process.returncode == 0 and log.count("telemetry: ") == 1 and "of the exporter" not in log
