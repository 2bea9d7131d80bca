"""Who runs a turn: a name for a process that another one can check for life."""

import functools
import os
import re
import socket
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Protocol

import msgspec

from turnwise.base.activity import Activity
from turnwise.turn.config import Approval, AskOrigin, OneAsk
from turnwise.vocab import Frame

WORKER = "worker@"  # begins the name of an owner whose lease decides
ENDED = frozenset("ZXx")  # states of a process that has ended (proc(5))
_NAME = re.compile(r"(?P<host>.*):(?P<pid>[0-9]{1,9}):(?P<started>[0-9]*):(?P<boot>[^:]*):(?P<spaces>[^:]*)", re.DOTALL)

_presumed_gone = set[tuple[str, str]]()  # with the session whose turn somebody has taken over


def our_name() -> str:
    """`host:pid:start:boot:namespaces`.

    The start time tells a process from a later one with the same number. Boot and namespaces tell it from a process of another
    machine or container that has the same host name: numbers and start times compare only within them.
    """
    return f"{_host()}:{os.getpid()}:{_started()}:{_boot()}:{_namespaces()}"


def is_alive(name: str, *, session: str = "") -> bool:
    """False only if the process was seen to be gone, or a caller has said so of this `session` (`presume_gone`).

    Nothing is known of a process of another boot, machine or pid namespace, nor of a name in another form. A process that has
    ended and that nobody has waited for (in a container without an init, for example) is gone.
    """
    if session and (name, session) in _presumed_gone:
        return False
    found = _NAME.fullmatch(name)
    if found is None or not is_here(name):
        return True
    pid, started = int(found["pid"]), found["started"]
    if not _exists(pid):
        return False
    fields = _status(pid)
    if not fields:
        return _exists(pid)  # here is no /proc, or it hides the processes of other users
    return fields[0] not in ENDED and (not started or fields[19] == started)


def is_frozen(name: str) -> bool:
    """Whether it names a process of this machine that is stopped (SIGSTOP, a debugger): it may go on at any time."""
    found = _NAME.fullmatch(name)
    return found is not None and is_here(name) and _status(int(found["pid"]))[:1] in (["T"], ["t"])


def is_here(name: str) -> bool:
    """Whether it names a process that can be seen from this one: of the same boot, in the same namespaces. A Linux whose `/proc`
    is hidden or foreign does not say in which namespace we are: nobody is here then."""
    found = _NAME.fullmatch(name)
    is_known = bool(_boot()) and (sys.platform != "linux" or bool(_namespace("pid")))
    return found is not None and is_known and (found["boot"], found["spaces"]) == (_boot(), _namespaces())


def is_of_earlier_boot(name: str) -> bool:
    """Whether it names a process of a machine with our host name under another boot than ours."""
    found = _NAME.fullmatch(name)
    return (
        found is not None
        and found["host"] == _host()
        and "" not in (found["boot"], _boot())
        and found["boot"] != _boot()
    )


def presume_gone(name: str, *, session: str) -> None:
    """Treat a process that is not visible from here as gone, because the caller that takes this session over says so. It holds in
    this process only, and for no other session: the caller said nothing about those."""
    _presumed_gone.add((name, session))


def is_presumed_gone(name: str) -> bool:
    """Whether somebody has said so, of whatever session."""
    return any(name == gone for gone, _ in _presumed_gone)


def shown_owner(name: str) -> str:
    """`host:pid`, for a person."""
    found = _NAME.fullmatch(name)
    return name if found is None else f"{found['host']}:{found['pid']}"


def said_to_run(session: str, *, owner: str) -> str:
    """What a caller reads who would continue a session that runs, and what to do."""
    if is_here(owner) or owner.startswith(WORKER):
        return f"session `{session}` is running already ({shown_owner(owner)}): wait for it"
    return (
        f"session `{session}` may be running already ({shown_owner(owner)}): that process started before the last boot, in "
        "another container or on another machine, so this one cannot see whether it lives. If it is gone, take the turn over: "
        f"`turnwise resume {session} --take-over`, or `resume(session, take_over=True)`; else wait for it"
    )


@functools.cache
def _host() -> str:
    return socket.gethostname()


@functools.cache
def _boot() -> str:
    """An id of the running kernel; "" where there is none to be had. Sources: random(4); xnu, bsd/kern/kern_mib.c."""
    try:
        if sys.platform == "darwin":
            asked = ["/usr/sbin/sysctl", "-n", "kern.bootsessionuuid"]
            text = subprocess.run(asked, capture_output=True, text=True, timeout=10, check=False).stdout
        else:
            text = Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii")
    except (OSError, ValueError, subprocess.TimeoutExpired):
        return ""
    return text.strip().replace(":", "")


def _namespaces() -> str:
    """Those of process numbers and of time: a start time is told in the reader's own (time_namespaces(7))."""
    return f"{_namespace('pid')}.{_namespace('time')}"


def _namespace(kind: str) -> str:
    try:
        return "".join(filter(str.isdigit, os.readlink(f"/proc/self/ns/{kind}")))  # noqa: PTH115 (no path)
    except OSError:
        return ""  # an older kernel, or another system


def _exists(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        pass  # it lives, as another user's
    return True


def _started() -> str:
    """Clock ticks since boot at which this process started (proc(5), field 22); "" where there is no /proc."""
    fields = _status_at(Path("/proc/self/stat"))
    return fields[19] if fields else ""


def _status(pid: int) -> list[str]:
    """What Linux says of it, from its state on (proc(5), field 3). Nothing where there is no /proc, or only that of another pid
    namespace, in which the number names another process."""
    try:
        is_ours = os.readlink("/proc/self") == str(os.getpid())  # noqa: PTH115 (no path)
    except OSError:
        return []
    return _status_at(Path(f"/proc/{pid}/stat")) if is_ours else []


def _status_at(path: Path) -> list[str]:
    try:
        text = path.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return []
    return text.rpartition(")")[2].split()


# A turn that a worker has claimed, and the lease under which its pen writes.


class AsksOfSubAgents(Protocol):
    """What those who run the sub-agents of a claimed turn ask a person."""

    async def put(
        self,
        asks: Sequence[OneAsk],
        *,
        path: tuple[str, ...],
        origin: AskOrigin,
        deadline_s: float,
        keep: Callable[[Approval], object],
    ) -> Sequence[Approval]:
        """What was answered in time; `keep` is told of each answer as soon as it is there."""
        ...

    async def given(self, asks: Sequence[OneAsk], *, origin: AskOrigin) -> Sequence[Approval]:
        """What was answered while no process ran the sub-agent. Raises JournalFailed."""
        ...


class Lease(Protocol):
    """What the pen of a claimed turn asks."""

    @property
    def is_over(self) -> bool:
        """Whether the turn was let go: its pen writes nothing more."""
        ...

    @property
    def ends(self) -> bool:
        """Whether the worker stops, and the turn goes to another one before its next request."""
        ...

    @property
    def activity(self) -> Activity:
        """Of the turn and its sub-agents."""
        ...

    def see_frames(self, turn: str, frames: Sequence[Frame], /, *, number: int) -> None:
        """Takes the frames of the response to the turn's request `number`, for those who follow the turn elsewhere."""
        ...

    def check(self) -> None:
        """Ends the process where the lease may have lapsed."""
        ...

    def let_go(self) -> None:
        """Raises JournalFailed. On return of that the turn is anybody's."""
        ...

    def ask(self, asks: Sequence[OneAsk], *, deadline_s: float, folder: str) -> Sequence[Approval]:
        """The answers of a person, or nothing if the time is over. Raises JournalFailed if the questions are new: the turn then
        has no owner, and continues with the answers."""
        ...

    @property
    def below(self) -> "AsksOfSubAgents":
        """By which the asks of the turn's sub-agents reach a person, while the turn keeps running."""
        ...


class Claim(msgspec.Struct, frozen=True, kw_only=True):
    """Nobody else runs the turn while its `epoch` stands. `is_new`: nothing of it is recorded, so it begins with `prompt`.
    `number` identifies the row; `turn_id` is what the row was called when it was claimed. `since_s`: the lease began then or
    later, by `lease_clock()`. `tried_from`: what was tried up to that epoch does not count. `asked` are the calls that a person
    was asked about last, each with what stands for it, and `answers` what they said. `wishes` is what the turn may have at most,
    as text that nobody has read yet. `cancel`: it was cancelled before, and ends before anything more happens."""

    session: str
    turn_id: str
    number: int
    epoch: int
    agent: str
    prompt: str
    is_new: bool
    since_s: float
    tried_from: int = 0
    asked: tuple[tuple[str, str], ...] = ()
    answers: tuple[Approval, ...] = ()
    wishes: str = ""
    cancel: bool = False
