"""Short requests through a gateway, one after another on one connection: what it spends on each."""

import socket
from typing import TypedDict, cast

from gatewaying import GatewayTask, Served, finished, for_port, request, served, task

WARM_REQUESTS = 20
WAIT_S = 30.0


class ShortTask(TypedDict):
    requests: int


def ask(connection: socket.socket, asked: bytes, *, streamed: bool) -> bytes:
    """The whole answer."""
    connection.sendall(asked)
    answer = b""
    while not is_whole(answer, streamed=streamed):
        piece = connection.recv(262_144)
        if not piece:
            raise SystemExit(f"the answer broke off: {answer[:300]!r}")
        answer += piece
    return answer


def is_whole(answer: bytes, *, streamed: bool) -> bool:
    if streamed and b"chunked" in answer:
        return answer.endswith(b"0\r\n\r\n")
    head, blank, body = answer.partition(b"\r\n\r\n")
    if not blank:
        return False
    lines = [line.partition(b":") for line in head.lower().split(b"\r\n")]
    lengths = [int(value) for name, _, value in lines if name == b"content-length"]
    return len(body) == lengths[0] if lengths else body.endswith(b"0\r\n\r\n")


def cpu_us(there: Served, *, streamed: bool, requests: int) -> float:
    asked = for_port(request("streamed" if streamed else "whole", stream=streamed, close=False), there.port)
    with socket.create_connection(("127.0.0.1", there.port), timeout=WAIT_S) as connection:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for _ in range(WARM_REQUESTS):
            answer = ask(connection, asked, streamed=streamed)
            if not answer.startswith(b"HTTP/1.1 200") or b"is the answer" not in answer:
                raise SystemExit(f"the answer was {answer[:300]!r}")
        before = there.cpu_s
        for _ in range(requests):
            ask(connection, asked, streamed=streamed)
        return 1e6 * (there.cpu_s - before) / requests


def main(given: GatewayTask, *, short: ShortTask) -> None:
    with served(given) as there:
        whole = cpu_us(there, streamed=False, requests=short["requests"])
        streamed = cpu_us(there, streamed=True, requests=short["requests"])
    finished(given, {"whole_us": whole, "streamed_us": streamed})


if __name__ == "__main__":
    main(task(), short=cast("ShortTask", task()))
