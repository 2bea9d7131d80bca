"""A walk from inside of each sandbox over all there is: what can be opened for writing is what the page lists."""

import asyncio
import contextlib
import json
import os
import pwd
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Generator, Iterable, Mapping
from pathlib import Path
from typing import Any

import msgspec
import pytest

from sandboxes import WALLS, sandbox_called
from thoroughness import spread
from turnwise.base import keeper
from turnwise.base.programs import OWN_PYTHON
from turnwise.settings.mcp_files import ServerCommand
from turnwise.tools.mcp.transports import ServerProcess
from turnwise.tools.sandbox import Sandbox, SandboxKind, Scratch
from turnwise.tools.sandbox.landlock import allowances
from turnwise.tools.sandbox.landlock_rules import CHANGE, IOCTL_DEV
from turnwise.tools.sandbox.sandbox_types import SandboxOrder
from turnwise.tools.workspace.shell import BashArguments, Shell
from waits import HANG_S

pytestmark = pytest.mark.promise("safe:walked")

PAGE = Path(__file__).resolve().parents[3] / "docs" / "sandbox.md"
WALK = Path(__file__).resolve().parents[2] / "sandbox_walk.py"
KEEPER = Path(keeper.__file__)
PYTHONS = (OWN_PYTHON, "/usr/bin/python3", "/usr/local/bin/python3")
HEADS: Mapping[SandboxKind, str] = {"bubblewrap": "bubblewrap", "landlock": "Landlock"}
# What bubblewrap has made anew or covered: a walk outside leaves it out, so that both see the same.
ANEW = ("/dev", "/proc", "/run", "/tmp", "/var/tmp")
# Of what a walk outside sees: others make and remove files meanwhile; a network of its own has fewer settings.
SHARE, SHARE_OF_SETTINGS, FEW = 0.8, 0.4, 50
LEAST = {"file": 2000, "folder": 1000, "mounts": 3, "device": 5, "processes": 2, "descriptors": 3}


class Found(msgspec.Struct, frozen=True):
    """Of one kind, or skipped for one reason: how many, and the first of them."""

    count: int
    paths: list[str]


class Report(msgspec.Struct, frozen=True):
    """What the walk prints. A descriptor is its number, how it was opened, its kind and where it leads."""

    user: int
    seen: dict[str, int]
    below: dict[str, int]
    opened: dict[str, Found]
    skipped: dict[str, Found]
    descriptors: list[tuple[int, str, str, str]]
    cut: list[str]
    late: bool


class Place(msgspec.Struct, frozen=True):
    """A workspace and scratch that an ordinary user may use as well; neither lies in what a sandbox has made anew. `pipe` has a
    reader, and nobody needs it."""

    root: Path
    scratch: Scratch
    pipe: Path


@pytest.fixture
def place() -> Generator[Place]:
    parent = Path("/var/lib") if os.geteuid() == 0 else Path.home()
    with tempfile.TemporaryDirectory(prefix="turnwise-walk-", dir=parent) as folder, contextlib.ExitStack() as stack:
        top = Path(folder).resolve()
        (root := top / "root").mkdir()
        os.mkfifo(pipe := top / "pipe")
        stack.callback(os.close, os.open(pipe, os.O_RDONLY | os.O_NONBLOCK))
        shutil.copy(WALK, root / "walk.py")
        scratch = Scratch()
        for path, mode in (
            (top, 0o755),
            (root, 0o777),
            (pipe, 0o666),
            (scratch.root, 0o755),
            (scratch.temporary, 0o777),
        ):
            path.chmod(mode)  # for the ordinary user; the pipe is shut by the sandbox or not at all
        yield Place(root, scratch, pipe)


def rows(kind: SandboxKind) -> dict[str, str]:
    """By each path that the page says can be opened, the reason."""
    table = PAGE.read_text().partition("## What can be opened for writing")[2].partition("\n## ")[0]
    cells = [[cell.strip() for cell in line.strip("|").split("|")] for line in table.splitlines() if line[:1] == "|"]
    at = cells[0].index(HEADS[kind])
    return {name.strip(" `"): row[-1] for row in cells[2:] for name in row[0].split(",") if row[at] == "yes"}


def told(place: Place, *, sandbox: Sandbox, temporary: Path) -> str:
    """What the walk is to do."""
    listed = {place.root, temporary, *sandbox.private_folders}
    asked = {"pipe": str(place.pipe)} if sandbox.pipes else {}
    return json.dumps(
        {"listed": sorted(map(str, listed)), "asks_folders": sandbox.kind == "landlock", "seconds": HANG_S / 2, **asked}
    )


def judge(report: Report, *, sandbox: Sandbox, expected: Iterable[str] = ()) -> None:
    """Nothing is open but what the page lists; it was not cut short by the time, and it prints how much it saw."""
    sys.stdout.write(
        f"{sandbox.kind}, Landlock {sandbox.landlock}, user {report.user}: {report.seen}, cut {report.cut}\n"
    )
    allowed = rows(sandbox.kind).keys()
    opened = {path for found in report.opened.values() for path in found.paths}
    gaps = {"pipe"} if not sandbox.pipes else set[str]()
    gaps |= {"socket", "abstract socket"} if not sandbox.sockets else set()
    assert {
        kind: found for kind, found in report.opened.items() if kind not in gaps and not allowed >= {*found.paths}
    } == {}
    assert opened >= set(expected)
    assert not report.late
    assert [(number, kind) for number, _, kind, leads in report.descriptors if leads != "/dev/null"] in (
        [(0, "pipe"), (1, "pipe"), (2, "pipe")],
        [(1, "pipe"), (2, "pipe")],
    )
    assert {kind: count for kind, count in LEAST.items() if report.seen.get(kind, 0) < count} == {}


def compare(inside: Report, outside: Report) -> None:
    """The walk saw what is there: of every mount about as many entries as a walk outside that opens nothing."""
    few = {
        where: (count, inside.below.get(where, 0))
        for where, count in outside.below.items()
        if inside.below.get(where, 0) < count * (SHARE_OF_SETTINGS if where.startswith("/proc/") else SHARE) - FEW
    }
    assert few == {}


def walk_outside(place: Place, *, kind: SandboxKind, user: Mapping[str, int], python: str) -> Report:
    listed = [str(place.root), *(ANEW if kind == "bubblewrap" else ())]
    given = json.dumps({"listed": listed, "looks_only": True})
    argv = [python, "-I", "-S", str(place.root / "walk.py"), given]
    done = subprocess.run(argv, capture_output=True, check=True, timeout=HANG_S, cwd=place.root, **_as(user))
    return msgspec.json.decode(done.stdout, type=Report)


@pytest.mark.costly
@pytest.mark.parametrize("name", spread(WALLS, one_of=2, name="walls"))
async def test_a_command_can_open_nothing_else_for_writing(name: str, place: Place) -> None:
    """As the user of the tests, who is root in containers: through the tool, all of the machine. As root the kernel's settings
    could be opened in bubblewrap: it covers them only where their folder can be written (issue 39, part 2)."""
    sandbox = sandbox_called(name)
    shell = Shell(place.root, sandbox=sandbox)
    folder = shell.private_folder()
    assert folder is not None
    (place.root / "told.json").write_text(told(place, sandbox=sandbox, temporary=Path(folder.real)))
    command = f'{OWN_PYTHON} -I -S walk.py "$(cat told.json)"'
    said = await asyncio.wait_for(shell.run(BashArguments(command=command, timeout_s=int(HANG_S))), HANG_S)
    inside = msgspec.json.decode(said, type=Report)
    judge(inside, sandbox=sandbox, expected=rows(sandbox.kind))
    compare(inside, walk_outside(place, kind=sandbox.kind, user={}, python=OWN_PYTHON))


@pytest.mark.costly
@pytest.mark.parametrize("name", spread(WALLS, one_of=2, name="walls"))
def test_a_command_of_an_ordinary_user_can_open_nothing_else_either(name: str, place: Place) -> None:
    """The same command line, started by a user without rights; where the tests run as such a one, the test above is this."""
    sandbox = sandbox_called(name)
    user, python = _ordinary_user(place.root, sandbox=sandbox)
    words = [python, "-I", "-S", "walk.py", told(place, sandbox=sandbox, temporary=place.scratch.temporary)]
    wrapped = sandbox.wrap(
        words, workspace=place.root, scratch=place.scratch, outer_env={"PATH": os.defpath, "HOME": "/nonexistent"}
    )
    try:
        process = subprocess.Popen(
            [python if word == OWN_PYTHON else word for word in wrapped.argv],
            env=wrapped.env,
            cwd=place.root,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            pass_fds=wrapped.descriptors,
            start_new_session=True,
            **_as(user),
        )
    finally:
        for descriptor in wrapped.descriptors:
            os.close(descriptor)
    with process:
        assert process.stdout is not None and process.stderr is not None
        said = process.stdout.read()
        assert said, process.stderr.read()
    inside = msgspec.json.decode(said, type=Report)
    assert inside.user == user["user"]
    judge(inside, sandbox=sandbox)
    compare(inside, walk_outside(place, kind=sandbox.kind, user=user, python=python))


@pytest.mark.costly
@pytest.mark.parametrize(("kind", "network"), [("bubblewrap", False), ("bubblewrap", True), ("landlock", True)])
async def test_an_mcp_server_can_open_nothing_else_for_writing(
    kind: SandboxKind, network: bool, place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It runs in the best sandbox of the machine, its input and output are pipes, and with `network` it has the machine's
    network, whose settings lie below /proc/sys too."""
    sandbox = sandbox_called(kind)
    if kind == "landlock":
        monkeypatch.setenv("PATH", "/nonexistent")  # no bubblewrap there
    given = told(place, sandbox=sandbox, temporary=place.scratch.temporary)
    command = ServerCommand(argv=(OWN_PYTHON, "-I", "-S", "walk.py", given), folder=place.root, network=network)
    process = ServerProcess.start(command, scratch=place.scratch, inherited={"PATH": os.defpath})
    pieces: list[bytes] = []
    try:
        await process.connect()
        async with asyncio.timeout(HANG_S):
            while piece := await process.read():
                pieces.append(piece)
    finally:
        await process.end()
    assert pieces, process.why_ended()
    inside = msgspec.json.decode(b"".join(pieces), type=Report)
    judge(inside, sandbox=sandbox, expected=rows(kind))
    compare(inside, walk_outside(place, kind=kind, user={}, python=OWN_PYTHON))


def test_without_a_sandbox_the_walk_finds_what_is_open(place: Place) -> None:
    """It is able to find: a file, a folder and a pipe outside, in a mount of its own only, as it opens what it sees."""
    (outside := place.root / "outside").mkdir()
    for path in (outside / "file", outside / "below" / "file"):
        path.parent.mkdir(exist_ok=True)
        path.touch()
    os.mkfifo(outside / "pipe")
    (outside / "link").symlink_to("/dev/null")
    code = (
        "import json, sys; sys.path.insert(0, sys.argv[1]); import walk;"
        "one = walk.Walk({'entries': 1000}); mount = walk.Mount('1 1 0:1 / ' + sys.argv[2] + ' rw - ext4 x rw');"
        "one.walk(mount, mounts={}); print(json.dumps(one.opened))"
    )
    done = subprocess.run(
        [OWN_PYTHON, "-I", "-S", "-c", code, str(place.root), str(outside)], capture_output=True, check=True
    )
    opened = {
        kind: sorted(path.removeprefix(str(outside)) for path in paths)
        for kind, paths in json.loads(done.stdout).items()
    }
    assert opened == {"file": ["/below/file", "/file"], "folder": ["", "/below"], "pipe": ["/pipe"]}


def test_landlock_allows_writing_in_the_listed_places_only(place: Place) -> None:
    """The walk does not open what would act (a watchdog, a tape, a disk): there the rules themselves are looked at."""
    order = SandboxOrder(
        argv=(),
        env={},
        workspace=place.root,
        temporary=place.scratch.temporary,
        empty=place.scratch.empty,
        writable=(place.root.parent,),
    )
    written = {str(path) for path, rights in allowances(order) if rights & (CHANGE | IOCTL_DEV)}
    folders = {str(path) for path in (place.root, place.root.parent, place.scratch.temporary)}
    assert written == folders | rows("landlock").keys()


LATER = """
import os, sys
print("ready", flush=True)
sys.stdin.readline()
try:
    os.close(os.open(sys.argv[1], os.O_WRONLY | os.O_CREAT))
    print("opened")
except OSError:
    print("refused")
"""


@pytest.mark.costly
@pytest.mark.parametrize("name", ["bubblewrap", "landlock"])
def test_what_is_mounted_later_cannot_be_written(name: str, place: Place) -> None:
    """A disk that is plugged in comes into the sandbox of a server that runs, and is writable there but for Landlock."""
    sandbox = sandbox_called(name)
    if not sandbox.pipes:
        pytest.skip("Landlock does not work here, and `said` tells that what is mounted later can be written")
    if os.geteuid() != 0 or not _can_mount():
        pytest.skip("nothing can be mounted here: that needs root with its capabilities")
    (place.root / "later.py").write_text(LATER)
    done = subprocess.run(
        ["unshare", "--mount", "--propagation", "private", sys.executable, __file__, name, str(place.root)],
        check=False,
        capture_output=True,
        text=True,
        timeout=HANG_S,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
    )
    assert (done.stdout, done.stderr) == ("refused\n", "")


def mount_later(name: str, root: Path) -> None:
    """In a mount namespace of its own: start a command, mount something, and let it try to write there."""
    outside = root.parent / "later"
    outside.mkdir()
    for arguments in (["-t", "tmpfs", "none", str(outside)], ["--make-shared", str(outside)]):
        subprocess.run(["mount", *arguments], check=True)
    (outside / "disk").mkdir()
    scratch = Scratch()
    ours, theirs = os.pipe()
    words = [OWN_PYTHON, "-I", "-S", str(root / "later.py"), str(outside / "disk" / "file")]
    wrapped = sandbox_called(name).wrap(words, workspace=root, scratch=scratch, given=ours)
    with subprocess.Popen(
        wrapped.argv,
        env=wrapped.env,
        stdin=subprocess.PIPE if wrapped.watches else ours,
        stdout=subprocess.PIPE,
        pass_fds=(*wrapped.descriptors, ours),
    ) as process:
        assert process.stdout is not None
        process.stdout.readline()
        subprocess.run(["mount", "-t", "tmpfs", "none", str(outside / "disk")], check=True)
        os.write(theirs, b"\n")
        sys.stdout.write(process.stdout.read().decode())
    subprocess.run(["umount", "--recursive", str(outside)], check=True)


def _can_mount() -> bool:
    if shutil.which("unshare") is None or shutil.which("mount") is None:
        return False
    attempt = ["unshare", "--mount", "--propagation", "private", "mount", "-t", "tmpfs", "none", "/mnt"]
    return subprocess.run(attempt, check=False, capture_output=True, timeout=HANG_S).returncode == 0


def _ordinary_user(root: Path, *, sandbox: Sandbox) -> tuple[dict[str, int], str]:
    """Whom to drop to, and a Python that they can run. Skips where there is none."""
    if os.geteuid() != 0:
        pytest.skip("the tests do not run as root, so the test above walks as an ordinary user")
    try:
        nobody = pwd.getpwnam("nobody")
    except KeyError:
        pytest.skip("there is no user `nobody`")
    user = {"user": nobody.pw_uid, "group": nobody.pw_gid}
    if sandbox.kind == "bubblewrap":
        attempt = [sandbox.program, "--unshare-user", "--unshare-net", "--ro-bind", "/", "/", "/bin/sh", "-c", ":"]
        if subprocess.run(attempt, check=False, cwd=root, capture_output=True, **_as(user)).returncode:
            pytest.skip("this machine lets `nobody` make no namespaces, which bubblewrap needs")
    for python in PYTHONS:
        attempt = [python, "-I", "-S", "-c", "import ctypes, sys; open(sys.argv[1])", str(KEEPER)]
        with contextlib.suppress(OSError, subprocess.CalledProcessError):
            subprocess.run(attempt, check=True, cwd=root, capture_output=True, **_as(user))
            return user, python
    pytest.skip(f"`nobody` can run none of {', '.join(PYTHONS)}, or cannot read {KEEPER}")


def _as(user: Mapping[str, int]) -> dict[str, Any]:
    return {**user, "extra_groups": []} if user else {}


if __name__ == "__main__":
    mount_later(sys.argv[1], Path(sys.argv[2]))
