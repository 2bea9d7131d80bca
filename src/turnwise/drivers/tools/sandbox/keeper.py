"""Runs one command, confined if asked to, and ends with everything that the command started.

A script, run as `python -I -S keeper.py RULES FILTER ASKED PROCESSES INPUT COMMAND...`. It imports nothing of turnwise.
RULES is the descriptor of a Landlock ruleset, FILTER a seccomp program in hexadecimal, ASKED is `asked` where the filter leaves
signals to this process, PROCESSES how many processes may be added, INPUT the descriptor of the command's standard input; `-` is
none. It ends the command when its own standard input closes, which happens too when turnwise is killed.

What leaves its parent and its session comes to this process (PR_SET_CHILD_SUBREAPER), so it is found as well.
The rules are set between fork and exec of a process with one thread: in turnwise itself, which has several, that is not safe.
Source: prctl(2), landlock_restrict_self(2), seccomp(2), seccomp_unotify(2), capset(2).
"""

import contextlib
import ctypes
import errno
import fcntl
import os
import resource
import select
import signal
import struct
import sys
import time
from collections import defaultdict
from collections.abc import Iterable

_PR_SET_PDEATHSIG, _PR_SET_DUMPABLE, _PR_SET_SECCOMP, _PR_CAPBSET_DROP = 1, 4, 22, 24
_PR_SET_CHILD_SUBREAPER, _PR_SET_NO_NEW_PRIVS, _PR_CAP_AMBIENT, _PR_CAP_AMBIENT_CLEAR_ALL = 36, 38, 47, 4
_SECCOMP_MODE_FILTER = 2
_CAPABILITY_VERSION = 0x20080522
_MOST_CAPABILITIES = 64
_LANDLOCK_RESTRICT_SELF = 446
_CANNOT_RUN = 126  # what shells say of a command that cannot be executed
_ENDING_S = 2.0  # one in the kernel (a dead network file system) cannot be ended; we do not wait for it for ever
_PAUSE_S = 0.002
# A filter whose listener is asked (SECCOMP_RET_USER_NOTIF): seccomp(2) itself, and the ioctls of its descriptor.
_SET_MODE_FILTER, _NEW_LISTENER = 1, 8
_SECCOMP = {"x86_64": 317, "aarch64": 277}
_RECEIVE, _ANSWER, _GO_ON = 0xC0502100, 0xC0182101, 1
_QUESTION, _REPLY = struct.Struct("=QIIiIQ6Q"), struct.Struct("=QqiI")
_SOCKETS, _RIGHTS = 1, 1  # SOL_SOCKET, SCM_RIGHTS
_ASKED = "asked"
_LOOKS = 3
_QUIET_SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)


class _Program(ctypes.Structure):
    _fields_ = (("length", ctypes.c_ushort), ("steps", ctypes.c_char_p))


def descendants(of: int) -> list[int]:
    """The processes below `of` that live; [] where there is no /proc."""
    children: defaultdict[int, list[int]] = defaultdict(list)
    with contextlib.suppress(OSError):
        for name in os.listdir("/proc"):  # noqa: PTH208
            if name.isdigit():
                with contextlib.suppress(OSError), open(f"/proc/{name}/stat", "rb") as file:  # noqa: PTH123
                    state, parent = file.read().rpartition(b")")[2].split()[:2]
                    if state != b"Z":
                        children[int(parent)].append(int(name))
    found: list[int] = []
    below = children.pop(of, [])
    while below:
        found += below
        below = [child for parent in below for child in children.pop(parent, [])]
    return found


def send(number: signal.Signals, *, to: Iterable[int]) -> None:
    for pid in to:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.kill(pid, number)


def _main(rules: str, filter_hex: str, asked: str, processes: str, given: str, *command: str) -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    libc.prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    libc.prctl(_PR_SET_DUMPABLE, 0, 0, 0, 0)  # the command may not look into this process
    for number in _QUIET_SIGNALS:
        signal.signal(number, signal.SIG_IGN)
    woken, wake = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
    signal.set_wakeup_fd(wake)
    signal.signal(signal.SIGCHLD, lambda _number, _frame: None)
    keeper = os.getpid()
    questions = _Questions() if asked == _ASKED else None
    pid = os.fork()
    if pid == 0:
        try:
            signal.set_wakeup_fd(-1)
            _take_input(given)
            _become(libc, keeper=keeper, rules=rules, filter_hex=filter_hex, processes=processes, questions=questions)
            os.execv(command[0], command)
        except OSError as error:
            os.write(2, f"turnwise: the command could not be started: {error}\n".encode())
        finally:
            os._exit(_CANNOT_RUN)
    if given != "-":
        os.close(int(given))  # else it would stay open when the command closes its own
    if questions is not None:
        questions.take()
    status = _wait(pid, woken=woken, questions=questions)
    _end_all()
    _leave(status)


def _take_input(given: str) -> None:
    os.dup2(os.open("/dev/null", os.O_RDONLY) if given == "-" else int(given), 0)


def _become(
    libc: ctypes.CDLL, *, keeper: int, rules: str, filter_hex: str, processes: str, questions: "_Questions | None"
) -> None:
    """What the command is, apart from its program. Raises OSError where a rule cannot be set."""
    os.setsid()
    libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != keeper:
        os._exit(_CANNOT_RUN)
    for number in (*_QUIET_SIGNALS, signal.SIGCHLD, signal.SIGPIPE, signal.SIGXFSZ):
        signal.signal(number, signal.SIG_DFL)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    if processes != "-":
        _limit_processes(int(processes))
    if rules != "-":
        _drop_capabilities(libc)
        _check(libc.prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0))
        _check(libc.syscall(_LANDLOCK_RESTRICT_SELF, int(rules), 0))
    if filter_hex != "-":
        steps = bytes.fromhex(filter_hex)
        program = _Program(len(steps) // 8, steps)
        _check(libc.prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0))
        if questions is None:
            _check(libc.prctl(_PR_SET_SECCOMP, _SECCOMP_MODE_FILTER, ctypes.byref(program), 0, 0))
        else:
            number = _SECCOMP[os.uname().machine]
            listener = libc.syscall(number, _SET_MODE_FILTER, _NEW_LISTENER, ctypes.byref(program))
            _check(min(listener, 0))
            questions.give(listener)
    os.closerange(3, os.sysconf("SC_OPEN_MAX"))


def _limit_processes(more: int) -> None:
    """The kernel counts all processes of the user, so what runs already is added. It does not count root's."""
    with open("/proc/loadavg", encoding="ascii") as file:  # noqa: PTH123
        now = int(file.read().split()[3].partition("/")[2])
    hard = resource.getrlimit(resource.RLIMIT_NPROC)[1]
    limit = now + more if hard == resource.RLIM_INFINITY else min(hard, now + more)
    resource.setrlimit(resource.RLIMIT_NPROC, (limit, limit))


def _drop_capabilities(libc: ctypes.CDLL) -> None:
    """Root inside is a user like any other; without the right to drop them there are none to be gained either."""
    for capability in range(_MOST_CAPABILITIES):
        libc.prctl(_PR_CAPBSET_DROP, capability, 0, 0, 0)
    libc.prctl(_PR_CAP_AMBIENT, _PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0)
    _check(libc.capset((ctypes.c_uint32 * 2)(_CAPABILITY_VERSION, 0), (ctypes.c_uint32 * 6)()))


def _check(outcome: int) -> None:
    if outcome != 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))


class _Questions:
    """Signals that the command and what it started want to send, where the kernel does not judge them itself.

    A signal goes through where all whom it would reach were started by the command. Its target is a number in a register, so
    nobody can change it between our answer and the kernel's deed; that the number is given to another process just then
    is not ruled out.
    """

    def __init__(self) -> None:
        import socket  # where signals are asked about only: it takes as long as all other imports

        self._ours, self._theirs = socket.socketpair()
        self.listener = -1

    def give(self, listener: int) -> None:
        """In the command's process, before its program starts."""
        self._theirs.sendmsg([b"."], [(_SOCKETS, _RIGHTS, struct.pack("=i", listener))])

    def take(self) -> None:
        self._theirs.close()
        _, sent, _, _ = self._ours.recvmsg(1, 64)
        self._ours.close()
        if sent:  # else the command could not be started
            (self.listener,) = struct.unpack("=i", sent[0][2])

    def answer(self) -> None:
        buffer = bytearray(_QUESTION.size)
        try:
            fcntl.ioctl(self.listener, _RECEIVE, buffer)
            number, _, _, _, _, _, target, *_ = _QUESTION.unpack(buffer)
            refused = not _is_below(ctypes.c_int32(target & 0xFFFFFFFF).value, keeper=os.getpid())
            reply = (number, 0, -errno.EPERM, 0) if refused else (number, 0, 0, _GO_ON)
            fcntl.ioctl(self.listener, _ANSWER, bytearray(_REPLY.pack(*reply)))
        except OSError:
            return  # the process that asked is gone


def _is_below(target: int, *, keeper: int) -> bool:
    """Whether a signal for `target` (of kill(2): a process, a thread, 0 for the own group, a negative group) reaches only
    what the keeper's command started. What is not there is reached by nothing."""
    if target == 0:
        return True  # its group is in a session that the command began
    if target == -1:
        return False
    # Processes begin and end while we look: whom the signal reaches is found before those that are below us are, and a parent
    # that ends in between hides its children for one look.
    return any(_is_reaching_ours(target, keeper=keeper) for _ in range(_LOOKS))


def _is_reaching_ours(target: int, *, keeper: int) -> bool:
    if target > 0:
        state, process = _status_of(target)
        return state in ("", "Z") or process in descendants(keeper)
    members = [int(pid) for pid in os.listdir("/proc") if pid.isdigit() and _is_in(pid, group=-target)]  # noqa: PTH208
    below = set(descendants(keeper))
    return all(pid in below or not _is_in(str(pid), group=-target) for pid in members)


def _is_in(name: str, *, group: int) -> bool:
    """Whether the process lives and is in the group."""
    with contextlib.suppress(OSError), open(f"/proc/{name}/stat", "rb") as file:  # noqa: PTH123
        state, _, found = file.read().rpartition(b")")[2].split()[:3]
        return int(found) == group and state != b"Z"
    return False


def _status_of(thread: int) -> tuple[str, int]:
    """The state of a thread, and its process; an empty state where there is none."""
    state, process = "", 0
    with contextlib.suppress(OSError), open(f"/proc/{thread}/status", encoding="utf-8", errors="replace") as file:  # noqa: PTH123
        for line in file:
            key, _, value = line.partition(":")
            if key == "State":
                state = value.split()[0]
            elif key == "Tgid":
                process = int(value)
    return state, process


def _wait(pid: int, *, woken: int, questions: _Questions | None) -> int | None:
    """The command's wait status, or None where our standard input closed first."""
    poller = select.poll()
    if questions is not None and questions.listener >= 0:
        poller.register(questions.listener, select.POLLIN)
    poller.register(0, select.POLLIN)
    poller.register(woken, select.POLLIN)
    while True:
        for descriptor, event in poller.poll():
            if questions is not None and descriptor == questions.listener:
                if event & select.POLLIN:
                    questions.answer()
                else:  # no process is left that could ask
                    poller.unregister(descriptor)
            if descriptor == 0 and not os.read(0, 64):
                return None
            if descriptor == woken:
                os.read(woken, 4096)
        ended = _reap()
        if pid in ended:
            return ended[pid]


def _reap() -> dict[int, int]:
    """The wait status of all that have ended since."""
    ended: dict[int, int] = {}
    with contextlib.suppress(ChildProcessError):
        while (found := os.waitpid(-1, os.WNOHANG))[0]:
            ended[found[0]] = found[1]
    return ended


def _end_all() -> None:
    """Stopped first, over and over until there is no new one: what multiplies would else be faster than we are."""
    deadline = time.monotonic() + _ENDING_S
    while time.monotonic() < deadline:
        stopped: set[int] = set()
        while new := set(descendants(os.getpid())) - stopped:
            send(signal.SIGSTOP, to=new)
            stopped |= new
            if time.monotonic() > deadline:
                break
        send(signal.SIGKILL, to=stopped)
        _reap()
        try:
            os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
        except ChildProcessError:
            return
        time.sleep(_PAUSE_S)


def _leave(status: int | None) -> None:
    """End as the command did, by the same signal too."""
    if status is None:
        os._exit(_CANNOT_RUN)
    if os.WIFSIGNALED(status):
        number = os.WTERMSIG(status)
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        with contextlib.suppress(OSError, ValueError):
            signal.signal(number, signal.SIG_DFL)
        os.kill(os.getpid(), number)
        os._exit(128 + number)
    os._exit(os.waitstatus_to_exitcode(status))


if __name__ == "__main__":
    _main(*sys.argv[1:])
