"""Runs one command, confined if asked to, within bounds, and ends with everything that the command started.

A script with the arguments SCRIPT RULES FILTER ASKED BOUNDS FOLDER REPORT KEPT INPUT COMMAND...; `-` is none. It imports
nothing of turnwise, and little of Python: each command waits for its start. SCRIPT is the descriptor that it was read from.
RULES is the descriptor of a Landlock ruleset, FILTER a seccomp program in hexadecimal, ASKED is `asked` where the filter leaves
signals to this process. BOUNDS are `MEMORY:PROCESSES:SCRATCH:SHARE:OF_FILES`; the kernel's limits are SHARE times these, OF_FILES
times SCRATCH. FOLDER is a folder whose new files count. REPORT is the descriptor to which it says which bound was reached (`-`:
on standard error), or `near` and the bounds that a command which failed came near. KEPT is `apart` where the command is a
bubblewrap of its own, followed by the descriptors that this is to have (`apart:7`). INPUT is the descriptor of the command's
standard input. It ends the command when its own standard input closes, which happens too when turnwise is killed.

What leaves its parent and its session comes to this process (PR_SET_CHILD_SUBREAPER), so it is found as well.
The rules are set between fork and exec of a process with one thread: in turnwise itself, which has several, that is not safe.
Source: prctl(2), landlock_restrict_self(2), seccomp(2), seccomp_unotify(2), capset(2).
"""

import ctypes
import errno
import fcntl
import os
import resource
import select
import stat
import struct
import sys
import time

_PR_SET_PDEATHSIG, _PR_SET_DUMPABLE, _PR_SET_SECCOMP, _PR_CAPBSET_DROP = 1, 4, 22, 24
_PR_SET_CHILD_SUBREAPER, _PR_SET_NO_NEW_PRIVS, _PR_CAP_AMBIENT, _PR_CAP_AMBIENT_CLEAR_ALL = 36, 38, 47, 4
_SECCOMP_MODE_FILTER = 2
_CAPABILITY_VERSION = 0x20080522
_MOST_CAPABILITIES = 64
_LANDLOCK_RESTRICT_SELF = 446
_CANNOT_RUN = 126  # what shells say of a command that cannot be executed
_ENDING_S = 2.0  # without progress: one in the kernel (a dead network file system) cannot be ended, and is left
LONGEST_END_S = 30.0  # what multiplies is ended in less, and what nobody can end is left then
_PAUSE_S = 0.002
# The same on x86_64 and arm64; to import `signal`, with its enums, takes 5 ms.
_SIGHUP, _SIGINT, _SIGKILL, _SIGPIPE, _SIGTERM, _SIGCHLD, _SIGXFSZ = 1, 2, 9, 13, 15, 17, 25
_SIG_DFL, _SIG_IGN, _SIG_BLOCK, _SIG_UNBLOCK = None, ctypes.c_void_p(1), 0, 1
_BYTES_OF_SIGNALS, _LARGEST_INFO = 128, 4096  # a sigset_t, and what is read of a signalfd at once
# A filter whose listener is asked (SECCOMP_RET_USER_NOTIF): seccomp(2) itself, and the ioctls of its descriptor.
_SET_MODE_FILTER, _NEW_LISTENER = 1, 8
_SECCOMP = {"x86_64": 317, "aarch64": 277}
_RECEIVE, _ANSWER, _GO_ON = 0xC0502100, 0xC0182101, 1
_QUESTION, _REPLY = struct.Struct("=QIIiIQ6Q"), struct.Struct("=QqiI")
_SOCKETS, _RIGHTS = 1, 1  # SOL_SOCKET, SCM_RIGHTS
_ASKED = "asked"
_LOOKS = 3
_APART, _LAYERS = "apart", 2  # bubblewrap's own processes
# How often it is looked. A process fills some 3 GB of memory a second, so 150 MB more than its bound before it is ended. What
# nobody was asked about is looked at often to its end; what was allowed may run for hours, and is far from its bounds.
_LOOK_S, _STRICT_LOOK_S, _QUIET_LOOK_S, _LONGEST_LOOK_S, _SLOWER = 0.02, 0.1, 0.5, 2.0, 1.2
_WRITTEN_A_SECOND = 4 << 30  # by a process into files in memory, at most
_CLOCK_S = 0.1  # the times of files come from a clock that is some milliseconds behind
_LEAST_FILE = 1024  # of the kernel's memory or the disk, for an empty one
_STACK = 8 << 20  # what a thread reserves, which counts as its process's memory for the kernel
_MOUNTS = ("/tmp", "/var/tmp", "/dev/shm")
_MEMORY = (b"Threads", b"RssAnon", b"RssShmem", b"VmSwap")
_SHARES = (b"Pss_Anon", b"Pss_Shmem", b"SwapPss")
_QUIET_SIGNALS = (_SIGTERM, _SIGINT, _SIGHUP)


class _Program(ctypes.Structure):
    _fields_ = (("length", ctypes.c_ushort), ("steps", ctypes.c_char_p))


class _Suppressed:
    """`contextlib.suppress`, whose import takes 3 ms."""

    def __init__(self, *errors: type[OSError | ValueError]) -> None:
        self._errors = errors

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> bool:
        return kind is not None and issubclass(kind, self._errors)


def descendants(of: int, *, generation: int = 1) -> list[int]:
    """The processes below `of` that live, from its children (1) or their children (2) on; [] where there is no /proc."""
    children: dict[int, list[int]] = {}
    with _Suppressed(OSError):
        for name in os.listdir("/proc"):  # noqa: PTH208
            if name.isdigit():
                with _Suppressed(OSError), open(f"/proc/{name}/stat", "rb") as file:  # noqa: PTH123
                    state, parent = file.read().rpartition(b")")[2].split()[:2]
                    if state != b"Z":
                        children.setdefault(int(parent), []).append(int(name))
    found: list[int] = []
    below = children.pop(of, [])
    while below:
        if generation <= 1:
            found += below
        generation -= 1
        below = [child for parent in below for child in children.pop(parent, [])]
    return found


def send(number: int, *, to: list[int] | tuple[int, ...]) -> None:
    for pid in to:
        with _Suppressed(ProcessLookupError, PermissionError):
            os.kill(pid, number)


def _main(
    script: str,
    rules: str,
    filter_hex: str,
    asked: str,
    bounds: str,
    folder: str,
    report: str,
    kept: str,
    given: str,
    *command: str,
) -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    libc.prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    libc.prctl(_PR_SET_DUMPABLE, 0, 0, 0, 0)  # the command may not look into this process
    for number in _QUIET_SIGNALS:
        libc.signal(number, _SIG_IGN)
    ends = _signal_set(libc, _SIGCHLD)
    libc.sigprocmask(_SIG_BLOCK, ends, None)
    woken = libc.signalfd(-1, ends, os.O_NONBLOCK | os.O_CLOEXEC)
    os.close(int(script))
    keeper = os.getpid()
    questions = _Questions() if asked == _ASKED else None
    limits = _Limits(bounds, folder=folder, apart=kept.startswith(_APART))
    descriptors = [int(one) for one in kept.split(":")[1:]]
    pid = os.fork()
    if pid == 0:
        try:
            libc.sigprocmask(_SIG_UNBLOCK, ends, None)
            _take_input(given)
            limits.set()
            _become(libc, keeper=keeper, rules=rules, filter_hex=filter_hex, questions=questions)
            _close_all(but=descriptors)
            os.execv(command[0], command)
        except OSError as error:
            os.write(2, f"turnwise: the command could not be started: {error}\n".encode())
        finally:
            os._exit(_CANNOT_RUN)
    with _Suppressed(OSError):  # as root only: a thousand busy processes leave a thousandth of a processor to each
        os.sched_setscheduler(0, os.SCHED_RR, os.sched_param(1))
    if given != "-":
        os.close(int(given))  # else it would stay open when the command closes its own
    for descriptor in descriptors:
        os.close(descriptor)
    if questions is not None:
        questions.take()
    status = _wait(pid, woken=woken, questions=questions, limits=limits)
    if status is not None:
        limits.look_last(status)
    _end_all(pid if status is None else 0, apart=limits.apart)
    if limits.reached:
        _say(limits.reached, report=report)
    elif status and report != "-" and (near := limits.near()):
        _say(f"near {near}", report=report)
    _leave(libc, None if limits.reached else status)


def _say(reached: str, *, report: str) -> None:
    """Standard error may be a pipe that nobody reads any more."""
    text = f"\nturnwise ended it, because {reached}\n" if report == "-" else reached
    with _Suppressed(OSError):
        descriptor = 2 if report == "-" else int(report)
        os.set_blocking(descriptor, False)
        os.write(descriptor, text.encode())


def _signal_set(libc: ctypes.CDLL, number: int) -> ctypes.Array[ctypes.c_char]:
    signals = ctypes.create_string_buffer(_BYTES_OF_SIGNALS)
    libc.sigemptyset(signals)
    libc.sigaddset(signals, number)
    return signals


def _take_input(given: str) -> None:
    os.dup2(os.open("/dev/null", os.O_RDONLY) if given == "-" else int(given), 0)


def _become(libc: ctypes.CDLL, *, keeper: int, rules: str, filter_hex: str, questions: "_Questions | None") -> None:
    """What the command is, apart from its program. Raises OSError where a rule cannot be set."""
    os.setsid()
    libc.prctl(_PR_SET_PDEATHSIG, _SIGKILL, 0, 0, 0)
    if os.getppid() != keeper:
        os._exit(_CANNOT_RUN)
    for number in (*_QUIET_SIGNALS, _SIGCHLD, _SIGPIPE, _SIGXFSZ):
        libc.signal(number, _SIG_DFL)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
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


def _close_all(*, but: list[int]) -> None:
    first = 3
    for descriptor in sorted(but):
        os.closerange(first, descriptor)
        os.set_inheritable(descriptor, True)
        first = descriptor + 1
    os.closerange(first, os.sysconf("SC_OPEN_MAX"))


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

    A signal goes through if the command started every process that the signal would reach. Its target is a number in a register,
    so nobody can change it between our answer and the kernel's deed; that the number is given to another process just then is not
    ruled out.
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
    # Processes begin and end while we look: the targets of the signal are found before the processes below us, and a parent that
    # ends in between hides its children for one look.
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
    with _Suppressed(OSError), open(f"/proc/{name}/stat", "rb") as file:  # noqa: PTH123
        state, _, found = file.read().rpartition(b")")[2].split()[:3]
        return int(found) == group and state != b"Z"
    return False


def _status_of(thread: int) -> tuple[str, int]:
    """The state of a thread, and its process; an empty state where there is none."""
    state, process = "", 0
    with _Suppressed(OSError), open(f"/proc/{thread}/status", encoding="utf-8", errors="replace") as file:  # noqa: PTH123
        for line in file:
            key, _, value = line.partition(":")
            if key == "State":
                state = value.split()[0]
            elif key == "Tgid":
                process = int(value)
    return state, process


class _Limits:
    """What the command and all that it started have, looked at now and then, and the kernel's own limits behind that.

    `reached` says which bound was, in words. Memory is what only they have: pages of their own (also swapped ones) and shared
    memory, not the files that they map; pages that they share count once. Files count that were written since the command began
    and lie in `folder`, in the temporary file systems of a bubblewrap, or are held open for writing, with or without a name (a
    memfd has none). Source: proc(5), RLIMIT_DATA of getrlimit(2).
    """

    def __init__(self, bounds: str, *, folder: str, apart: bool) -> None:
        self.apart = apart
        self.reached = ""
        self._is_set = bounds != "-"
        given = bounds.split(":") if self._is_set else ["0", "0", "-", "1", "1"]
        self._memory, self._processes, self._share = int(given[0]), int(given[1]), int(given[3])
        self._scratch = None if given[2] == "-" else int(given[2])
        self._largest = int(given[4]) * (self._scratch or 0)
        self._folder = folder
        self._since = time.time() - _CLOCK_S
        self._longest_s = _QUIET_LOOK_S
        if self._scratch is not None:  # no file may pass from below the bound to the kernel's limit between two looks
            self._longest_s = min(_STRICT_LOOK_S, (self._largest - self._scratch) / _WRITTEN_A_SECOND)
        self._period_s = min(_LOOK_S, self._longest_s)
        self._due = time.monotonic() + self._period_s
        self._mounted: dict[str, int] = {}
        self._most_memory, self._most_written, self._first_pid = 0, 0, _last_pid()
        self._has_children = os.path.exists(f"/proc/self/task/{os.getpid()}/children")  # noqa: PTH110

    def set(self) -> None:
        """The kernel's limits, in the process of the command."""
        if not self._is_set:
            return
        if not self.apart:  # else its own namespace counts, from within
            self._limit_processes()
        if self._scratch is not None:
            _lower(resource.RLIMIT_DATA, self._share * self._memory)
            _lower(resource.RLIMIT_FSIZE, self._largest)

    def _limit_processes(self) -> None:
        """The kernel counts all processes of the user, so what runs already is added. It does not count root's."""
        now = int(_load()[3].partition("/")[2])
        _lower(resource.RLIMIT_NPROC, now + self._share * self._processes)

    def due_ms(self) -> int | None:
        """Until the next look, in milliseconds; None is never."""
        return max(0, int((self._due - time.monotonic()) * 1000 + 1)) if self._is_set else None

    def look(self) -> str:
        began = time.monotonic()
        tree = self._tree()
        self.reached = self._judge(tree)
        now = time.monotonic()
        self._period_s = min(self._period_s * _SLOWER, self._longest_s)
        # A look at many processes takes longer: at most a twentieth of a processor is spent on looking.
        self._due = now + min(max(self._period_s, (now - began) * 20), _LONGEST_LOOK_S)
        return self.reached

    def look_last(self, status: int) -> None:
        """The command has ended: what it left, and whether the kernel ended it for a file that was too large."""
        if not self._is_set or self._scratch is None:
            return
        code = os.waitstatus_to_exitcode(status)
        if code in (-_SIGXFSZ, 128 + _SIGXFSZ):
            self.reached = f"it had more than {_size(self._scratch)} of temporary files"
        else:
            self.reached = self._judge(self._tree())

    def near(self) -> str:
        """Which bounds it may have reached between two looks, once all of it has ended: the kernel refuses more at SHARE times a
        bound, so what stayed below half of it was not refused. A single request for more leaves no trace."""
        if not self._is_set or self._scratch is None:
            return ""
        memory = max(self._most_memory, resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss) * 1024
        pids = (_last_pid() - self._first_pid) % _most_pids()  # of all programs here: no fewer than its own
        many = pids > self._processes or pids * _STACK > self._share * self._memory // 2
        found = (memory > self._memory // 2, many, self._most_written > self._scratch // 2)
        return " ".join(name for name, is_near in zip(("memory", "processes", "files"), found, strict=True) if is_near)

    def _tree(self) -> list[int]:
        """The processes below us. By the kernel's lists of children where it has them, which does not look at all others."""
        if not self._has_children:
            return descendants(os.getpid())
        found: list[int] = []
        below = children_of(os.getpid())
        while below and len(found) <= self._processes + _LAYERS:
            found += below
            below = [child for pid in below for child in children_of(pid)]
        return found

    def _judge(self, tree: list[int]) -> str:
        most = self._processes + (_LAYERS if self.apart else 0)
        too_many = f"it had more than {self._processes} processes and threads at once"
        if len(tree) > most:
            return too_many
        memory, threads = 0, 0
        for pid in tree:
            fields = _numbers(f"/proc/{pid}/status", _MEMORY)
            memory += sum(fields.values()) - fields.get(b"Threads", 0)
            threads += fields.get(b"Threads", 0)
        if threads > most:
            return too_many
        self._most_memory = max(self._most_memory, memory)
        if memory * 1024 > self._memory and sum(map(_own_memory, tree)) * 1024 > self._memory:
            return f"it had more than {_size(self._memory)} of memory"
        if self._scratch is None:
            return ""
        written = self._written(tree)
        self._most_written = max(self._most_written, written)
        if written > self._scratch:
            return f"it had more than {_size(self._scratch)} of temporary files"
        return ""

    def _written(self, tree: list[int]) -> int:
        """Bytes of all that it wrote and that still is there."""
        assert self._scratch is not None, "it is asked only then"
        total = sum(map(self._in_mount, _MOUNTS, [tree] * len(_MOUNTS))) if self.apart else 0
        seen: set[tuple[int, int]] = set()
        found = _open_files(tree)
        if self._folder != "-":
            found += _files_in(self._folder)
        for one in found:
            if (one.st_dev, one.st_ino) not in seen and (one.st_nlink == 0 or one.st_ctime >= self._since):
                seen.add((one.st_dev, one.st_ino))
                total += max(one.st_blocks * 512, _LEAST_FILE)
        return total

    def _in_mount(self, path: str, tree: list[int]) -> int:
        """Bytes in a temporary file system of the bubblewrap, known by its size. It is held open, as the last look comes after
        its end."""
        assert self._scratch is not None, "it is asked only then"
        if path not in self._mounted and len(tree) > _LAYERS:
            with _Suppressed(OSError):
                descriptor = os.open(f"/proc/{tree[-1]}/root{path}", os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
                found = os.fstatvfs(descriptor)
                if found.f_blocks * found.f_frsize == self._largest:
                    self._mounted[path] = descriptor
                else:
                    os.close(descriptor)
        if path not in self._mounted:
            return 0
        found = os.fstatvfs(self._mounted[path])
        used, files = found.f_blocks - found.f_bfree, max(found.f_files - found.f_ffree, 0)
        return used * found.f_frsize + files * _LEAST_FILE


def _lower(limit: int, to: int) -> None:
    hard = resource.getrlimit(limit)[1]
    to = to if hard == resource.RLIM_INFINITY else min(hard, to)
    resource.setrlimit(limit, (to, to))


def _load() -> list[str]:
    """The fields of proc(5), /proc/loadavg. Raises OSError."""
    with open("/proc/loadavg", encoding="ascii") as file:  # noqa: PTH123
        return file.read().split()


def _last_pid() -> int:
    """The last number that a process or thread got here; 0 where that is not told."""
    with _Suppressed(OSError):
        return int(_load()[4])
    return 0


def _most_pids() -> int:
    with _Suppressed(OSError), open("/proc/sys/kernel/pid_max", encoding="ascii") as file:  # noqa: PTH123
        return int(file.read())
    return 1 << 22  # PID_MAX_LIMIT


def _size(size: int) -> str:
    return f"{round(size / (1 << 30), 1):g} GiB" if size >= 1 << 30 else f"{round(size / (1 << 20), 1):g} MiB"


def children_of(pid: int) -> list[int]:
    """Its children, by the lists that its threads have of them."""
    found: list[int] = []
    with _Suppressed(OSError):
        for thread in os.listdir(f"/proc/{pid}/task"):  # noqa: PTH208
            with _Suppressed(OSError), open(f"/proc/{pid}/task/{thread}/children", "rb") as file:  # noqa: PTH123
                found += map(int, file.read().split())
    return found


def _numbers(path: str, names: tuple[bytes, ...]) -> dict[bytes, int]:
    """The numbers behind these names in a file of /proc; empty for a process that has ended."""
    found: dict[bytes, int] = {}
    with _Suppressed(OSError), open(path, "rb") as file:  # noqa: PTH123
        for line in file:
            name, _, value = line.partition(b":")
            if name in names:
                found[name] = int(value.split()[0])
    return found


def _own_memory(pid: int) -> int:
    """Its part of the memory that it shares with others, and all of its own, in KiB. It takes long, so it is asked last; of a
    process that does not show it, what it shares counts whole."""
    shares = _numbers(f"/proc/{pid}/smaps_rollup", _SHARES)
    return sum((shares or _numbers(f"/proc/{pid}/status", _MEMORY[1:])).values())


def _open_files(tree: list[int]) -> list[os.stat_result]:
    """The regular files that they hold open for writing."""
    files: list[os.stat_result] = []
    for pid in tree:
        with _Suppressed(OSError), os.scandir(f"/proc/{pid}/fd") as descriptors:
            for descriptor in descriptors:
                with _Suppressed(OSError):
                    if descriptor.stat(follow_symlinks=False).st_mode & stat.S_IWUSR:
                        found = descriptor.stat()
                        if stat.S_ISREG(found.st_mode):
                            files.append(found)
    return files


def _files_in(folder: str) -> list[os.stat_result]:
    folders, files = [folder], list[os.stat_result]()
    while folders:
        with _Suppressed(OSError), os.scandir(folders.pop()) as entries:
            for entry in entries:
                with _Suppressed(OSError):
                    if entry.is_dir(follow_symlinks=False):
                        folders.append(entry.path)
                    files.append(entry.stat(follow_symlinks=False))
    return files


def _wait(pid: int, *, woken: int, questions: _Questions | None, limits: "_Limits") -> int | None:
    """The command's wait status, or None where our standard input closed first or a bound was reached."""
    poller = select.poll()
    if questions is not None and questions.listener >= 0:
        poller.register(questions.listener, select.POLLIN)
    poller.register(0, select.POLLIN)
    poller.register(woken, select.POLLIN)
    while True:
        for descriptor, event in poller.poll(limits.due_ms()):
            if questions is not None and descriptor == questions.listener:
                if event & select.POLLIN:
                    questions.answer()
                else:  # no process is left that could ask
                    poller.unregister(descriptor)
            if descriptor == 0 and not os.read(0, 64):
                return None
            if descriptor == woken:
                os.read(woken, _LARGEST_INFO)
        ended = _reap()
        if pid in ended:
            return ended[pid]
        if limits.due_ms() == 0 and limits.look():
            return None


def _reap() -> dict[int, int]:
    """The wait status of all that have ended since."""
    ended: dict[int, int] = {}
    with _Suppressed(ChildProcessError):
        while (found := os.waitpid(-1, os.WNOHANG))[0]:
            ended[found[0]] = found[1]
    return ended


def _end_all(first: int, *, apart: bool) -> None:
    """Over and over, until there is nobody left. `first` is the command's process, 0 if it has ended; `apart` is a bubblewrap
    around it.

    A whole group of processes, or a namespace with its first process, is killed by the kernel at once: none of it can start
    another any more. Only what makes a group of its own each time has to be found one by one.
    """
    if first:
        send(_SIGKILL, to=children_of(first) if apart else ())
        with _Suppressed(ProcessLookupError, PermissionError):
            os.killpg(first, _SIGKILL)
    began = progress = time.monotonic()
    while progress - began < LONGEST_END_S and time.monotonic() - progress < _ENDING_S:
        if _reap():
            progress = time.monotonic()
        try:
            os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
        except ChildProcessError:
            return  # and so nobody below, as who loses its parent would come to us
        found = descendants(os.getpid())
        for group in {_group_of(pid) for pid in found} - {0, os.getpgrp()}:
            with _Suppressed(ProcessLookupError, PermissionError):
                os.killpg(group, _SIGKILL)
        send(_SIGKILL, to=found)
        time.sleep(_PAUSE_S)


def _group_of(pid: int) -> int:
    with _Suppressed(ProcessLookupError, PermissionError):
        return os.getpgid(pid)
    return 0


def _leave(libc: ctypes.CDLL, status: int | None) -> None:
    """End as the command did, by the same signal too."""
    if status is None:
        os._exit(_CANNOT_RUN)
    if os.WIFSIGNALED(status):
        number = os.WTERMSIG(status)
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        libc.signal(number, _SIG_DFL)
        os.kill(os.getpid(), number)
        os._exit(128 + number)
    os._exit(os.waitstatus_to_exitcode(status))


if __name__ == "__main__":
    _main(*sys.argv[1:])
