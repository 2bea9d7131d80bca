"""Start an editor's agent, and stop it as soon as the first word of its first reply is there; the CPU and wall time that it took.

`python clients/first_reply.py TASK`: in the command `{url}` stands for the address of a provider that says one word. CPU is
that of the main process with all of its threads, by the kernel's count.
"""

import importlib.metadata
import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import Any, TypedDict

from process_cpu import cpu_of

PATIENCE_S = 60.0
CHUNK = {"id": "1", "object": "chat.completion.chunk", "created": 1, "model": "bench"}
WORDS = (
    {"choices": [{"index": 0, "delta": {"role": "assistant", "content": "Hello"}, "finish_reason": None}]},
    {"choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]},
)


class Task(TypedDict):
    argv: list[str]
    distribution: str


def main() -> None:
    given: Task = json.loads(sys.argv[1])
    with (
        tempfile.TemporaryDirectory() as folder,
        socket.create_server(("127.0.0.1", 0)) as listener,
    ):
        threading.Thread(target=answer, args=(listener,), daemon=True).start()
        url = f"http://127.0.0.1:{listener.getsockname()[1]}"
        argv = [word.replace("{url}", url) for word in given["argv"]]
        env = {**os.environ, "HOME": folder, "TURNWISE_STATE_DIR": f"{folder}/state"}
        work = Path(folder, "work")
        work.mkdir()
        begin = time.monotonic()
        with subprocess.Popen(argv, cwd=work, env=env, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as child:
            watchdog = threading.Timer(PATIENCE_S, child.kill)
            watchdog.start()
            try:
                talk(child, str(work))
                wall_s = time.monotonic() - begin
                child.send_signal(signal.SIGSTOP)
                cpu_s = cpu_of(child.pid)
            finally:
                watchdog.cancel()
                child.kill()
    version = importlib.metadata.version(given["distribution"])
    print(json.dumps({"cpu_s": cpu_s, "wall_s": wall_s, "version": version}))


def talk(child: subprocess.Popen[bytes], folder: str) -> None:
    request(child, 1, "initialize", protocolVersion=1)
    reply_of(child, 1)
    request(child, 2, "session/new", cwd=folder, mcpServers=[])
    session = reply_of(child, 2)["result"]["sessionId"]
    request(child, 3, "session/prompt", sessionId=session, prompt=[{"type": "text", "text": "Go on."}])
    while message(child).get("params", {}).get("update", {}).get("sessionUpdate") != "agent_message_chunk":
        pass


def request(child: subprocess.Popen[bytes], id: int, method: str, **params: object) -> None:
    assert child.stdin is not None
    child.stdin.write(json.dumps({"jsonrpc": "2.0", "id": id, "method": method, "params": params}).encode() + b"\n")
    child.stdin.flush()


def reply_of(child: subprocess.Popen[bytes], id: int) -> dict[str, Any]:
    while (found := message(child)).get("id") != id:
        pass
    return found


def message(child: subprocess.Popen[bytes]) -> dict[str, Any]:
    assert child.stdout is not None
    line = child.stdout.readline()
    if not line:
        raise SystemExit(f"it ended, or said nothing within {PATIENCE_S:g} s")
    return json.loads(line)


def answer(listener: socket.socket) -> None:
    """One word for each request."""
    events = [f"data: {json.dumps({**CHUNK, **words})}\n\n" for words in WORDS]
    body = "".join([*events, "data: [DONE]\n\n"]).encode()
    head = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nConnection: close\r\nContent-Length: %d\r\n\r\n"
    while True:
        connection, _ = listener.accept()
        with connection:
            connection.settimeout(PATIENCE_S)
            read_request(connection)
            connection.sendall(head % len(body) + body)


def read_request(connection: socket.socket) -> None:
    got = b""
    while True:
        top, blank, body = got.partition(b"\r\n\r\n")
        lengths = [line for line in top.lower().split(b"\r\n") if line.startswith(b"content-length:")]
        if blank and lengths and len(body) >= int(lengths[0].partition(b":")[2]):
            return
        piece = connection.recv(65536)
        if not piece:
            return
        got += piece


main()
