"""Many paced streams through a gateway: how much later each chunk comes, and what the gateway spends on it.

Bytes are read and kept with their time; they are looked at after the run, so that this side of it costs as little as it can.
"""

import re
import selectors
import socket
import time
from bisect import bisect_left
from typing import TypedDict, cast

from gatewaying import GatewayTask, Served, finished, for_port, request, served, task

STAMP = re.compile(rb"(\d{19}) (\d{19}) ")  # when a delta was due, when it was sent
WARM_NS = 500_000_000  # of each run, not counted: connections and buffers are new
PATIENCE_S = 60.0
CHUNKS_A_SECOND = 50


class PacedTask(TypedDict):
    streams: int
    seconds: float


class Stream:
    """One answer as it came: pieces, when each was here, and how many bytes there were by then."""

    def __init__(self, port: int, asked: bytes) -> None:
        self.socket = socket.create_connection(("127.0.0.1", port))
        self.socket.sendall(asked)
        self.socket.setblocking(False)
        self.pieces: list[bytes] = []
        self.here: list[int] = []

    def stamps(self) -> list[tuple[int, int, int]]:
        """Of each delta: when it was due, sent and here."""
        ends: list[int] = []
        size = 0
        for piece in self.pieces:
            size += len(piece)
            ends.append(size)
        text = b"".join(self.pieces)
        if not text.startswith(b"HTTP/1.1 200"):
            raise SystemExit(f"the answer was {text[:300]!r}")
        return [
            (int(found[1]), int(found[2]), self.here[bisect_left(ends, found.end())]) for found in STAMP.finditer(text)
        ]


class Samples:
    """The gateway's CPU and memory while all streams flow: at the beginning and the end of the window, and within it."""

    def __init__(self, there: Served, *, seconds: float) -> None:
        self._there = there
        self._wanted_ns = [WARM_NS, round(seconds * 5e8), round(seconds * 1e9) - WARM_NS]
        self._begin_ns = 0
        self.taken: list[tuple[int, float, float]] = []

    def begin(self, now_ns: int) -> None:
        self._begin_ns = self._begin_ns or now_ns

    def look(self, now_ns: int) -> None:
        if self._begin_ns and self._wanted_ns and now_ns - self._begin_ns >= self._wanted_ns[0]:
            del self._wanted_ns[0]
            self.taken.append((now_ns, self._there.cpu_s, self._there.kib))


def play(there: Served, *, streams: int, seconds: float) -> tuple[list[Stream], Samples]:
    asked = for_port(request(f"paced-{streams}-{seconds}", stream=True, close=True), there.port)
    samples = Samples(there, seconds=seconds)
    ready = selectors.EpollSelector()
    every = [Stream(there.port, asked) for _ in range(streams)]
    for stream in every:
        ready.register(stream.socket, selectors.EVENT_READ, stream)
    left = streams
    until = time.monotonic() + PATIENCE_S + seconds
    now = time.monotonic_ns
    while left:
        if time.monotonic() > until:
            raise SystemExit(f"{left} of {streams} streams did not end")
        for key, _ in ready.select(0.05):
            stream = cast("Stream", key.data)
            try:
                piece = stream.socket.recv(262_144)
            except BlockingIOError:
                continue
            here = now()
            if not piece:
                ready.unregister(stream.socket)
                stream.socket.close()
                left -= 1
                continue
            stream.pieces.append(piece)
            stream.here.append(here)
            if len(stream.here) < 8 and STAMP.search(piece):
                samples.begin(here)
        samples.look(now())
    return every, samples


def main(given: GatewayTask, *, paced: PacedTask) -> None:
    streams, seconds = paced["streams"], paced["seconds"]
    with served(given) as there:
        play(there, streams=2, seconds=0.5)
        before_kib = there.kib
        every, samples = play(there, streams=streams, seconds=seconds)
        stamps = [stamp for stream in every for stamp in stream.stamps()]
    expected = streams * round(seconds * CHUNKS_A_SECOND)
    if len(stamps) != expected or len(samples.taken) != 3:
        raise SystemExit(f"{len(stamps)} deltas of {expected} came")
    begin = min([due for due, _, _ in stamps]) + WARM_NS
    late = sorted([here - sent for due, sent, here in stamps if due >= begin])
    lag = sorted([sent - due for due, sent, _ in stamps if due >= begin])
    (first_ns, first_s, _), (_, _, kib), (last_ns, last_s, _) = samples.taken
    chunks = sum([first_ns < here <= last_ns for _, _, here in stamps])
    finished(
        given,
        {
            "p50_ms": at_share(late, 0.50) / 1e6,
            "p99_ms": at_share(late, 0.99) / 1e6,
            "provider_p99_ms": at_share(lag, 0.99) / 1e6,
            "cpu_percent": 100 * (last_s - first_s) / ((last_ns - first_ns) / 1e9),
            "cpu_us": 1e6 * (last_s - first_s) / max(chunks, 1),
            "kib": (kib - before_kib) / streams,
        },
    )


def at_share(values: list[int], share: float) -> int:
    return values[min(len(values) - 1, int(len(values) * share))]


if __name__ == "__main__":
    main(task(), paced=cast("PacedTask", task()))
