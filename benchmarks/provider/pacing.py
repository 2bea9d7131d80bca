"""Plays many streams at a fixed pace: `python provider/pacing.py CORE [CERTIFICATE KEY]` prints the port, ends with its input.

A request for the model `paced-N-S` is one of N streams, each of S seconds with a chunk every 20 ms, spread evenly over that
time; they begin together once all N have asked. Each delta says when it was due and when it was sent (nanoseconds of the
machine's monotonic clock), so the reader knows how late it is, and how late this process was itself. Standard library only,
plain sockets, one thread on a core of its own.
"""

import os
import re
import resource
import selectors
import socket
import ssl
import sys
import time

PERIOD_NS = 20_000_000  # 50 chunks a second
LEAD_NS = 500_000_000  # from the last request to the first chunk
PATIENCE_S = 20.0  # for the rest of a run's requests; then those that came are let go
NAP_NS = 200_000  # shorter waits are not slept: waking up takes as long

MODEL = re.compile(rb'"model" *: *"paced-(\d+)-([\d.]+)"')
LENGTH = re.compile(rb"content-length: *(\d+)", re.IGNORECASE)
HEAD = (
    b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream; charset=utf-8\r\nTransfer-Encoding: chunked\r\n"
    b"Connection: close\r\n\r\n"
)
CHUNK = (
    b'data: {"id":"chatcmpl-paced","object":"chat.completion.chunk","created":1800000000,"model":"paced",'
    b'"choices":[{"index":0,"delta":{%s},"logprobs":null,"finish_reason":%s}]}\n\n'
)


def framed(event: bytes) -> bytes:
    return b"%x\r\n%s\r\n" % (len(event), event)


# the two times are always 19 digits, so that the frame's length stays
TIMED = framed(CHUNK % (b'"content":"' + b"#" * 19 + b" " + b"#" * 19 + b' "', b"null")).replace(b"#" * 19, b"%019d")
FIRST = framed(CHUNK % (b'"role":"assistant","content":""', b"null"))
LAST = framed(CHUNK % (b"", b'"stop"')) + framed(b"data: [DONE]\n\n") + b"0\r\n\r\n"


class Gone(Exception):
    """The other side closed the connection, or said something else than a request for a paced stream."""


def ask(listener: socket.socket, *, tls: ssl.SSLContext | None) -> tuple[socket.socket, int, float]:
    """The next request: its connection, and how many streams of how many seconds its run has."""
    connection, _ = listener.accept()
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    connection.settimeout(PATIENCE_S)
    try:
        if tls is not None:
            connection = tls.wrap_socket(connection, server_side=True)
        received = b""
        while True:
            received += connection.recv(65536)
            head, end, body = received.partition(b"\r\n\r\n")
            length = LENGTH.search(head)
            if end and length and len(body) >= int(length[1]):
                break
            if not received:
                raise Gone
        model = MODEL.search(body)
        if model is None:
            raise Gone
        connection.sendall(HEAD + FIRST)
    except (OSError, Gone):
        connection.close()
        raise Gone from None
    connection.setblocking(False)
    return connection, int(model[1]), float(model[2])


def play(streams: list[socket.socket], *, seconds: float) -> None:
    """Send every chunk when it is due, in order; late ones at once. A stream whose reader went away is left out."""
    begin = time.monotonic_ns() + LEAD_NS
    step = PERIOD_NS // len(streams)
    sends = [stream.send for stream in streams]
    now = time.monotonic_ns
    for tick in range(round(seconds * 1e9) // PERIOD_NS):
        due = begin + tick * PERIOD_NS
        for place, send in enumerate(sends):
            left = due - now()
            if left > NAP_NS:
                time.sleep(left / 1e9)
            try:
                send(TIMED % (due, now()))
            except OSError:
                sends[place] = len
            due += step
    for stream in streams:
        try:
            stream.setblocking(True)
            stream.sendall(LAST)
        except OSError:
            pass
        stream.close()


def main() -> None:
    os.sched_setaffinity(0, {int(sys.argv[1])})
    if os.environ.get("TURNWISE_PACED_REALTIME"):
        os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(1))
    most = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    tls = None
    if len(sys.argv) > 2:
        tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        tls.load_cert_chain(sys.argv[2], sys.argv[3])
    listener = socket.create_server(("127.0.0.1", 0), backlog=4096)
    print(listener.getsockname()[1], flush=True)
    ready = selectors.DefaultSelector()
    ready.register(listener, selectors.EVENT_READ)
    ready.register(sys.stdin, selectors.EVENT_READ)
    streams: list[socket.socket] = []
    while True:
        events = [key.fileobj for key, _ in ready.select(PATIENCE_S if streams else None)]
        if sys.stdin in events:
            return
        if listener in events:
            try:
                connection, wanted, seconds = ask(listener, tls=tls)
            except Gone:
                continue
            streams.append(connection)
            if len(streams) < wanted:
                continue
            play(streams, seconds=seconds)
        for stream in streams:
            stream.close()
        streams = []


if __name__ == "__main__":
    main()
