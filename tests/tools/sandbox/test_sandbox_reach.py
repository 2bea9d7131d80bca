"""Commands that try to reach other programs, in each sandbox of this machine: over the network, by sockets, by signals."""

import asyncio
import contextlib
import os
import socket
import subprocess
import sys
from collections.abc import Generator
from pathlib import Path

import msgspec
import pytest

from sandboxes import CONFINING, PYTHON, sandbox_called, script
from turnwise.errors import ToolFault
from turnwise.tools.workspace.shell import BashArguments, Shell
from waits import HANG_S


@pytest.fixture(params=CONFINING)
def shell(request: pytest.FixtureRequest, tmp_path: Path) -> Shell:
    root = tmp_path / "root"
    root.mkdir(exist_ok=True)
    return Shell(root, sandbox=sandbox_called(request.param))


async def run(shell: Shell, command: str) -> str:
    """What it says, whether it fails or not: here only its effects count."""
    try:
        return await asyncio.wait_for(shell.run(BashArguments(command=command, timeout_s=int(HANG_S))), HANG_S)
    except ToolFault as fault:
        return str(fault)


REACHING = """
import contextlib, socket, sys
tcp, tcp6, udp, path, datagrams, abstract = sys.argv[1:]

def attempt(family, kind, address, pair=False):
    with contextlib.suppress(OSError):
        one = socket.socketpair(socket.AF_UNIX, kind)[0] if pair else socket.socket(family, kind)
        one.settimeout(2)
        if kind == socket.SOCK_DGRAM:
            one.sendto(b"out", address)
        one.connect(address)
        one.send(b"out")

attempt(socket.AF_INET, socket.SOCK_STREAM, ("127.0.0.1", int(tcp)))
attempt(socket.AF_INET6, socket.SOCK_STREAM, ("::1", int(tcp6)))
attempt(socket.AF_INET, socket.SOCK_DGRAM, ("127.0.0.1", int(udp)))
attempt(socket.AF_UNIX, socket.SOCK_STREAM, path)
attempt(socket.AF_UNIX, socket.SOCK_DGRAM, datagrams)
attempt(socket.AF_UNIX, socket.SOCK_DGRAM, datagrams, pair=True)
attempt(socket.AF_UNIX, socket.SOCK_STREAM, path, pair=True)
attempt(socket.AF_UNIX, socket.SOCK_STREAM, chr(0) + abstract)
"""


class Listeners:
    """Real sockets outside, of every kind; `reached` says which of them heard something."""

    def __init__(self, folder: Path) -> None:
        self.sockets: dict[str, socket.socket] = {}
        abstract = f"turnwise-test-{os.getpid()}"
        places = {
            "tcp": (socket.AF_INET, socket.SOCK_STREAM, ("127.0.0.1", 0)),
            "tcp6": (socket.AF_INET6, socket.SOCK_STREAM, ("::1", 0)),
            "udp": (socket.AF_INET, socket.SOCK_DGRAM, ("127.0.0.1", 0)),
            "path": (socket.AF_UNIX, socket.SOCK_STREAM, str(folder / "s")),
            "datagrams": (socket.AF_UNIX, socket.SOCK_DGRAM, str(folder / "d")),
            "abstract": (socket.AF_UNIX, socket.SOCK_STREAM, f"\0{abstract}"),
        }
        for name, (family, kind, address) in places.items():
            one = socket.socket(family, kind)
            try:
                one.bind(address)
            except OSError:  # a machine without IPv6
                one.close()
                continue
            one.setblocking(False)
            if kind is socket.SOCK_STREAM:
                one.listen()
            self.sockets[name] = one
        ports = [
            str(self.sockets[name].getsockname()[1]) if name in self.sockets else "9" for name in ("tcp", "tcp6", "udp")
        ]
        self.arguments = " ".join([*ports, str(folder / "s"), str(folder / "d"), abstract])

    def reached(self) -> set[str]:
        heard: set[str] = set()
        for name, one in self.sockets.items():
            with contextlib.suppress(BlockingIOError):
                if one.type is socket.SOCK_STREAM:
                    one.accept()[0].close()
                else:
                    one.recv(100)
                heard.add(name)
        return heard

    def close(self) -> None:
        for one in self.sockets.values():
            one.close()


@pytest.fixture
def listeners(tmp_path: Path) -> Generator[Listeners]:
    """Their paths lie in the workspace, where a command may do most."""
    (tmp_path / "root").mkdir(exist_ok=True)
    listeners = Listeners(tmp_path / "root")
    yield listeners
    listeners.close()


async def test_nothing_is_reached_without_network(shell: Shell, listeners: Listeners) -> None:
    """TCP, UDP, UNIX sockets with a path and without: none of the listeners on this machine hears a thing."""
    await run(shell, f"{script(shell.root / 'reach.py', REACHING)} {listeners.arguments}")
    assert listeners.reached() == set()


async def test_network_lets_ip_through_only(shell: Shell, listeners: Listeners) -> None:
    """Switched on, TCP and UDP work; sockets of other programs, like Docker's, stay out of reach."""
    shell = Shell(shell.root, sandbox=shell.sandbox, network=True)
    await run(shell, f"{script(shell.root / 'reach.py', REACHING)} {listeners.arguments}")
    assert listeners.reached() == listeners.sockets.keys() & {"tcp", "tcp6", "udp"}


async def test_listeners_hear_a_command_without_a_sandbox(tmp_path: Path, listeners: Listeners) -> None:
    """The same attempts get through where nothing is promised: the tests above are able to fail."""
    shell = Shell(tmp_path / "root", sandbox=sandbox_called("none"))
    await run(shell, f"{script(shell.root / 'reach.py', REACHING)} {listeners.arguments}")
    assert listeners.reached() == listeners.sockets.keys()


CALLS = """
import ctypes, socket, sys
libc = ctypes.CDLL(None, use_errno=True)
rings, keys, clone, unshare = {"x86_64": (425, 250, 56, 272), "aarch64": (425, 219, 220, 97)}[sys.argv[1]]
print(libc.syscall(rings, 8, None), libc.syscall(keys, 0, -3, 1))
print(libc.syscall(clone, 0x10000011, None), libc.syscall(unshare, 0x10000000))
for family in (1, 16, 17, 38, 40):
    try:
        socket.socket(family, socket.SOCK_RAW).close()
        print(family, "made")
    except OSError:
        print(family, "refused")
a, b = socket.socketpair()
a.send(b"pair")
print(b.recv(9))
"""


async def test_other_ways_to_a_socket_are_closed(shell: Shell) -> None:
    """Rings, keyrings, namespaces of its own, sockets of other families (packets, crypto, virtual machines); pairs still work."""
    machine = os.uname().machine
    if machine not in {"x86_64", "aarch64"}:
        pytest.skip(f"system calls of {machine} are not filtered: UNIX sockets and other families are open there")
    shown = await run(shell, f"{script(shell.root / 'calls.py', CALLS)} {machine}")
    netlink = "made" if shell.sandbox.kind == "bubblewrap" else "refused"
    assert shown == f"-1 -1\n-1 -1\n1 refused\n16 {netlink}\n17 refused\n38 refused\n40 refused\nb'pair'\n"


@pytest.fixture
def other() -> Generator[subprocess.Popen[bytes]]:
    """A process outside, with a group of its own."""
    with subprocess.Popen(
        [sys.executable, "-c", "input()"], stdin=subprocess.PIPE, stderr=subprocess.DEVNULL, start_new_session=True
    ) as process:
        yield process
        process.kill()


async def test_processes_outside_live_on(shell: Shell, other: subprocess.Popen[bytes]) -> None:
    """Neither by its number nor by its group can another process be signalled, and it cannot be traced."""
    if not shell.sandbox.processes:
        assert "processes outside can be signalled" in shell.said  # Landlock before version 6 does not judge signals
        return
    trace = f"{PYTHON} -c 'import ctypes, sys; print(ctypes.CDLL(None).ptrace(16, int(sys.argv[1]), 0, 0))' {other.pid}"
    assert (await run(shell, f"{trace}; kill -9 {other.pid}; kill -9 -- -{other.pid}")).startswith("-1\n")
    assert other.poll() is None


async def test_its_keeper_cannot_be_ended(shell: Shell) -> None:
    """The process that ends what a command leaves is out of its reach, where the sandbox judges signals."""
    if shell.sandbox.processes:
        assert (await run(shell, "kill -9 $PPID; echo on")).endswith("on\n")


def test_gaps_are_told() -> None:
    """What each kind cannot do stands in the line for people."""
    assert "WITHOUT a sandbox" in sandbox_called("none").said(workspace=Path("/w"))
    unjudged = msgspec.structs.replace(sandbox_called("landlock-1"), processes=False)
    assert "processes outside can be signalled" in unjudged.said(workspace=Path("/w"))
