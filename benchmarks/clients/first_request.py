"""Start a command and stop it as soon as the first bytes of its first request arrive; the CPU and wall time that it took.

`python clients/first_request.py TASK`: in the command `{url}` stands for the address. CPU is that of the main process with all
of its threads, by the kernel's count. A command that sends nothing and ends by itself is measured to its end, if that is
wanted (`ends`).
"""

import importlib.metadata
import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
from typing import TypedDict

from process_cpu import cpu_of

PATIENCE_S = 60.0


class Task(TypedDict):
    argv: list[str]
    cwd: str
    distribution: str
    ends: bool


def main() -> None:
    given: Task = json.loads(sys.argv[1])
    with (
        tempfile.TemporaryDirectory() as folder,
        socket.create_server(("127.0.0.1", 0)) as listener,
    ):
        listener.settimeout(PATIENCE_S)
        url = f"http://127.0.0.1:{listener.getsockname()[1]}"
        argv = [word.replace("{url}", url) for word in given["argv"]]
        env = {**os.environ, "HOME": folder, "TURNWISE_STATE_DIR": folder}
        cwd = given["cwd"] or folder
        begin = time.monotonic()
        with subprocess.Popen(
            argv, cwd=cwd, env=env, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
        ) as child:
            try:
                cpu_s, wall_s = ended(child, begin) if given["ends"] else asked(child, listener, begin)
            finally:
                child.kill()
                child.communicate()
    version = importlib.metadata.version(given["distribution"]) if given["distribution"] else ""
    print(json.dumps({"cpu_s": cpu_s, "wall_s": wall_s, "version": version}))


def asked(child: subprocess.Popen[bytes], listener: socket.socket, begin: float) -> tuple[float, float]:
    try:
        connection, _ = listener.accept()
    except TimeoutError:
        raise SystemExit(f"no request within {PATIENCE_S:g} s") from None
    with connection:
        connection.settimeout(PATIENCE_S)
        if not connection.recv(1):
            raise SystemExit("the connection closed without a request")
        child.send_signal(signal.SIGSTOP)
        return cpu_of(child.pid), time.monotonic() - begin


def ended(child: subprocess.Popen[bytes], begin: float) -> tuple[float, float]:
    _, status, usage = os.wait4(child.pid, 0)
    child.returncode = os.waitstatus_to_exitcode(status)
    if child.returncode:
        raise SystemExit(f"it ended with {child.returncode}")
    return usage.ru_utime + usage.ru_stime, time.monotonic() - begin


main()
