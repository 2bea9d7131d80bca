"""Start the provider's process for as long as a stack is open."""

import subprocess
import sys
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path

import msgspec
from harness.declaring import FOLDER


def start_provider(
    stack: ExitStack,
    *,
    folder: Path,
    streams: Mapping[str, bytes] = {},
    bodies: Mapping[str, bytes] = {},
    loops: Mapping[str, Sequence[bytes]] = {},
) -> str:
    """Write the streams and bodies into `folder`, start the process, and return its address (`http://127.0.0.1:PORT`)."""
    for name, stream in streams.items():
        (folder / f"{name}.sse").write_bytes(stream)
    for name, body in bodies.items():
        (folder / f"{name}.body").write_bytes(body)
    for name, replies in loops.items():
        (folder / f"{name}.json").write_bytes(msgspec.json.encode([reply.decode() for reply in replies]))
    process = subprocess.Popen(
        [sys.executable, str(FOLDER / "provider" / "server.py"), str(folder)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    stack.callback(_stop, process)
    assert process.stdout is not None
    port = process.stdout.readline().decode().strip()
    if not port:
        raise RuntimeError("the provider's process did not start; what it said stands above")
    return f"http://127.0.0.1:{port}"


def _stop(process: subprocess.Popen[bytes]) -> None:
    assert process.stdin is not None
    process.stdin.close()
    process.wait(timeout=10)
