"""How the queue stands, for Prometheus: gauges at `/metrics` of a worker."""

import math
import threading
from collections.abc import Mapping
from http.server import BaseHTTPRequestHandler, HTTPServer
from time import monotonic
from types import TracebackType

from turnwise.base.clock import SystemClock
from turnwise.errors import CallerError, TurnwiseError
from turnwise.workers.queue import TurnQueue
from turnwise.workers.turn_status import QueueTotals

KEPT_S = 5.0  # the database is asked at most once in this time, however many clients ask
SLOWEST_S = 5.0  # a client that sends or takes nothing for so long is dropped: the next one waits for it
MOST_AGENTS = 100  # anybody who submits can invent names of agents
LONGEST_LABEL = 200
OTHER = "(other)"
TEXT_FORMAT = "text/plain; version=0.0.4; charset=utf-8"  # Prometheus, "Exposition formats"
HELP = {
    "turnwise_queue_turns": "Turns that have not ended, by agent and state.",
    "turnwise_queue_oldest_seconds": "Seconds since the oldest of these turns was submitted.",
    "turnwise_queue_depth": "Turns that run, or could run now if a worker were free, by agent.",
    "turnwise_queue_workers": "Workers with a lease.",
}


def metrics_text(totals: QueueTotals) -> str:
    """The gauges in Prometheus' text format. Agents beyond the first MOST_AGENTS share one label; those of workers come first.
    An agent of a worker has a depth even if no turn names it."""
    served = {name for worker in totals.workers for name in worker.agents}
    depth = {**dict.fromkeys(served, 0), **totals.depth}
    named = set(sorted(depth, key=lambda name: (name not in served, -depth[name]))[:MOST_AGENTS])

    def label_of(agent: str) -> str:
        return agent[:LONGEST_LABEL] if agent in named else OTHER

    turns: dict[tuple[str, ...], float] = {}
    oldest: dict[tuple[str, ...], float] = {}
    of_agent: dict[tuple[str, ...], float] = {}
    for one in totals.turns:
        labels = (label_of(one.agent), one.state)
        turns[labels] = turns.get(labels, 0) + one.turns
        oldest[labels] = max(oldest.get(labels, 0.0), one.oldest_s)
    for agent, count in depth.items():
        labels = (label_of(agent),)
        of_agent[labels] = of_agent.get(labels, 0) + count
    lines: list[str] = []
    values: tuple[Mapping[tuple[str, ...], float], ...] = (turns, oldest, of_agent, {(): len(totals.workers)})
    for (name, help), found in zip(HELP.items(), values, strict=True):
        lines += [f"# HELP {name} {help}", f"# TYPE {name} gauge"]
        lines += [f"{name}{_labels(labels)} {value:.12g}" for labels, value in found.items()]
    return "\n".join([*lines, ""])


def _labels(labels: tuple[str, ...]) -> str:
    said = [text.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n") for text in labels]
    pairs = [f'{name}="{text}"' for name, text in zip(("agent", "state"), said, strict=False)]
    return f"{{{','.join(pairs)}}}" if pairs else ""


class QueueMetrics:
    """Serves the gauges at `url` from a thread of its own, with one connection to the database, until it is left. One request at
    a time is answered. Raises CallerError if the address cannot be used."""

    def __init__(self, dsn: str, *, host: str, port: int, kept_s: float = KEPT_S) -> None:
        self._queue = TurnQueue(dsn, clock=SystemClock())
        self._text, self._kept_s, self._read_s = "", kept_s, -math.inf
        metrics = self

        class Handler(BaseHTTPRequestHandler):
            timeout = SLOWEST_S

            def do_GET(self) -> None:
                status, text = metrics.answer() if self.path == "/metrics" else (404, "Ask for `/metrics`.\n")
                body = text.encode("utf-8", "replace")
                self.send_response(status)
                self.send_header("Content-Type", TEXT_FORMAT)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, format: str, *args: object) -> None:
                """The worker's log has its own lines."""

        try:
            self._server = HTTPServer((host, port), Handler)
        except OSError as error:
            raise CallerError(f"`--metrics`: `{host}:{port}` cannot be used ({error.strerror or error})") from None
        self.url = f"http://{host}:{self._server.server_port}/metrics"
        self._thread = threading.Thread(target=self._server.serve_forever, name="turnwise metrics", daemon=True)

    def answer(self) -> tuple[int, str]:
        """The status and the body of an answer. They are kept for a moment, so that clients cost the database little."""
        if monotonic() - self._read_s >= self._kept_s:
            try:
                self._text = metrics_text(self._queue.totals())
            except TurnwiseError as error:
                return 503, f"{error}\n"
            self._read_s = monotonic()
        return 200, self._text

    def __enter__(self) -> "QueueMetrics":
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._queue.close()
