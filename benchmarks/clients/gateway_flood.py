"""One stream of many tool calls through a gateway: how long another client waits for `/healthz` meanwhile.

The gateway answers `/healthz` in its event loop, so the longest wait is the longest pause of that loop, and a little more.
"""

import socket
import threading
import time

from gateway_short import ask
from gatewaying import finished, for_port, request, served, task

WARM_ASKS = 50
WAIT_S = 120.0
HEALTH = b"GET /healthz HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\n\r\n"


def take_flood(port: int, *, is_over: threading.Event) -> None:
    try:
        with socket.create_connection(("127.0.0.1", port), timeout=WAIT_S) as connection:
            connection.sendall(for_port(request("flood", stream=True, close=True), port))
            while connection.recv(262_144):
                pass
    finally:
        is_over.set()


def health_s(connection: socket.socket, asked: bytes) -> float:
    """The seconds until the answer."""
    began_s = time.monotonic()
    answer = ask(connection, asked, streamed=False)
    if not answer.startswith(b"HTTP/1.1 200"):
        raise SystemExit(f"the answer was {answer[:300]!r}")
    return time.monotonic() - began_s


def main() -> None:
    given = task()
    with served(given) as there:
        asked = for_port(HEALTH, there.port)
        with socket.create_connection(("127.0.0.1", there.port), timeout=WAIT_S) as connection:
            for _ in range(WARM_ASKS):
                health_s(connection, asked)
            # The first request of a process loads modules; that pause is none of the flood's.
            ask(connection, for_port(request("streamed", stream=True, close=False), there.port), streamed=True)
            is_over = threading.Event()
            flood = threading.Thread(target=take_flood, args=(there.port,), kwargs={"is_over": is_over})
            cpu_s = there.cpu_s
            flood.start()
            waits = [health_s(connection, asked)]
            while not is_over.wait(0.001):
                waits.append(health_s(connection, asked))
            flood.join()
            cpu_s = there.cpu_s - cpu_s
    finished(given, {"pause_ms": 1e3 * max(waits), "flood_cpu_ms": 1e3 * cpu_s})


if __name__ == "__main__":
    main()
