"""The judge of the judge of command lines: what it must see, done on purpose and without asking the judge.

`test_judged_shell.py` counts escapes of lines that were judged harmless; it is worth as much as what is seen here.
"""

import shlex
import sys
from pathlib import Path

import pytest

from judged_shell import Room, doings, make_room, missing_tools

pytestmark = pytest.mark.skipif(bool(missing_tools()), reason=missing_tools() or "all are there")

PYTHON = "/usr/bin/python3"
# Each opens, changes or runs something, in a way that hides it from a watcher that goes by the words of the line.
LINES = {
    # what was written beside the workspace under names that are scratch for programs
    ": >/tmp/sort1": "for writing",
    "set -C; : >/tmp/sh-thd.x": "for writing",
    ": >/dev/shm/x": "for writing",
    ": >/dev/nullx": "for writing",
    ": >/dev/null/../shm/x": "for writing",
    # what is opened again by its descriptor
    "exec 3<notes.txt; : >>/dev/fd/3": "for writing",
    "exec 3<notes.txt; : >>/proc/self/fd/3": "for writing",
    "exec 3<notes.txt; : >>/proc/$BASHPID/fd/3": "for writing",
    "cat </dev/stdin .env": "reads the secret",
    # secrets that are reached by other names
    "cat 'O_DIRECTORY/../.env' looks_fine.txt": "reads the secret",
    "cat .git/../.env": "reads the secret",
    "cat .git/config": "reads the secret",
    "cat /proc/self/cwd/.env": "reads the secret",
    "cat /proc/self/root$PWD/.env": "reads the secret",
    "cd sub; cat .env": "reads the secret",
    "grep -r KEY .": "reads the secret",
    # what lies outside, wherever that is
    "cat /etc/passwd": "reads /etc/passwd outside",
    "cat /etc/hosts": "outside",
    "cat /var/lib/dpkg/status": "outside",
    "cat /proc/1/environ": "environ outside",
    "cat /proc/self/environ": "environ outside",
    "cat leads_far/file.txt": "outside",
    "grep -R needle tree": "reads the secret",
    "grep -r needle tree/key": "reads the secret",
    "ls -LR tree": "outside",
    "echo */*.no": "outside",
    "cat tree/deep/far.txt/": "outside",
    "cat 10": "reads the secret",
    "sleep 1 & kill -PIPE $!": "kill",
    "env -i rg needle /root/.profile": "outside",
    "bash -c 'cat </etc/profile'": "reads /etc/profile outside",
    "bash -lc 'cat /etc/profile'": "reads /etc/profile outside",
    "bash -c 'cat </etc/profile' -lc ls": "reads /etc/profile outside",
    "cat ~/plain.txt": "outside",
    "cat ~/.gitconfig": "outside",
    "ls /var": "outside",
    "sort --files0-from=/etc/hostname": "outside",
    # programs
    "bash -c 'exec ./run.sh'": "runs",
    "python3 -c 'pass' --version": "runs",
    "python3 --version -c 'pass'": "runs",
    "awk 'BEGIN { system(\"id\") }'": "runs",
    "find . -maxdepth 0 -exec ./run.sh ';'": "runs",
    "sort --compress-program=./run.sh -S 1k --parallel=1 notes.txt big.txt": "runs",
    "LD_PRELOAD=./code.so ls": "runs code of",
    "PATH=. run.sh": "runs",
    # names, modes, times
    "rm notes.txt": "unlink",
    "mv notes.txt other": "rename",
    "ln notes.txt other": "link",
    "ln -s notes.txt other": "symlink",
    "mkdir other": "mkdir",
    "rmdir src": "rmdir",
    "mkfifo other": "mknod",
    "chmod 600 notes.txt": "chmod",
    "chown 1 notes.txt": "chown",
    "touch notes.txt": "utimensat",
    "truncate -s 0 notes.txt": "for writing",
    "find . -name notes.txt -delete": "unlink",
    "find . -fprint other": "for writing",
    "git init other": "mkdir",
    # other processes, the network
    "kill -0 1": "kill",
    "sleep 0.01 & kill $!": "kill",
    "cat </dev/tcp/127.0.0.1/9": "connect",
    "cat </dev/udp/127.0.0.1/9": "connect",
    "unshare -r true": "unshare",
    "nice -n -5 true; renice -n 5 -p 1": "setpriority",
}
# System calls that no command above makes, by a program that makes just these. Numbers from 424 on are the same everywhere.
CALLS = {
    "openat2": "call(437, -100, b'notes.txt', how(1), 24)",
    "open_by_handle_at": "libc.open_by_handle_at(-100, handle(), 0)",
    "execveat": "libc.execveat(-100, b'run.sh', args(), args(), 0)",
    "execveat of a descriptor": "libc.execveat(os.open('run.sh', 0), b'', args(), args(), 0x1000)",
    "renameat2": "libc.renameat2(-100, b'notes.txt', -100, b'other', 1)",
    "linkat": "os.link('notes.txt', 'other', src_dir_fd=os.open('.', 0))",
    "symlinkat": "os.symlink('a', 'other', dir_fd=os.open('.', 0))",
    "unlinkat": "os.unlink('notes.txt', dir_fd=os.open('.', 0))",
    "truncate": "os.truncate('notes.txt', 1)",
    "ftruncate": "libc.ftruncate(os.open('notes.txt', 0), 1)",
    "fchmod": "os.fchmod(os.open('notes.txt', 0), 0o600)",
    "fchown": "os.fchown(os.open('notes.txt', 0), 0, 0)",
    "fchmodat2": "call(452, -100, b'notes.txt', 0o600, 0)",
    "utimensat": "os.utime(os.open('notes.txt', 0))",
    "mknod": "os.mknod('other')",
    "setxattr": "os.setxattr('notes.txt', 'user.x', b'')",
    "fsetxattr": "os.setxattr(os.open('notes.txt', 0), 'user.x', b'')",
    "setxattrat": "call(463, -100, b'notes.txt', 0, b'user.x', 0, 0)",
    "removexattr": "os.removexattr('notes.txt', 'user.x')",
    "file_setattr": "call(469, -100, b'notes.txt', 0, 0, 0)",
    "mount": "libc.mount(b'a', b'src', b'tmpfs', 0, 0)",
    "move_mount": "call(429, -100, b'src', -100, b'sub', 0)",
    "open_tree": "call(428, -100, b'src', 1)",
    "fsopen": "call(430, b'tmpfs', 0)",
    "chroot": "os.chroot('src')",
    "pivot_root": "libc.pivot_root(b'src', b'sub')",
    "socket": "socket.socket().connect(('127.0.0.1', 9))",
    "bind": "socket.socket(socket.AF_UNIX).bind('other')",
    "sendto": "socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM).sendto(b'x', 'other')",
    "sendmsg": "socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM).sendmsg([b'x'], [], 0, 'other')",
    "connect": "socket.socket(socket.AF_UNIX).connect('/run/docker.sock')",
    "kill": "os.kill(1, 0)",
    "tgkill": "libc.tgkill(1, 1, 0)",
    "rt_sigqueueinfo": "libc.sigqueue(1, 0, None)",
    "pidfd_open": "os.pidfd_open(1)",
    "pidfd_send_signal": "call(424, 0, 0, 0, 0)",
    "ptrace": "libc.ptrace(16, 999999, 0, 0)",
    "process_vm_writev": "libc.process_vm_writev(1, 0, 0, 0, 0, 0)",
    "prlimit64": "resource.prlimit(1, resource.RLIMIT_CPU, (0, 0))",
    "sched_setaffinity": "os.sched_setaffinity(1, {0})",
    "io_uring_setup": "call(425, 8, 0)",
    "io_uring_enter": "call(426, 0, 0, 0, 0, 0)",
    "bpf": "libc.syscall(call_number('bpf'), 0, 0, 0)",
    "shmget": "libc.shmget(1, 8, 0o1600)",
    "msgget": "libc.msgget(1, 0o1600)",
    "semget": "libc.semget(1, 1, 0o1600)",
    "mq_open": "libc.syscall(call_number('mq_open'), b'x', 0o102, 0o600, 0)",
    "unshare": "libc.unshare(0x10000000)",
    "clone": "libc.syscall(call_number('clone'), 0x10000011, 0, 0, 0, 0)",
    "memfd_create": "os.memfd_create('x')",
    "userfaultfd": "libc.syscall(call_number('userfaultfd'), 0)",
    "landlock_restrict_self": "call(446, 0, 0)",
    "a call of tomorrow": "call(999, 0)",
}
BEGINNING = """
import ctypes, os, platform, resource, socket
libc = ctypes.CDLL(None)
call = libc.syscall
def how(flags):
    return (ctypes.c_uint64 * 3)(flags, 0, 0)
def handle():
    return (ctypes.c_uint32 * 40)(8, 1)
def args():
    return (ctypes.c_char_p * 2)(b"x", None)
def call_number(name):
    x86 = {"bpf": 321, "mq_open": 240, "clone": 56, "userfaultfd": 323}
    arm = {"bpf": 280, "mq_open": 180, "clone": 220, "userfaultfd": 282}
    return (arm if platform.machine() == "aarch64" else x86)[name]
try:
    exec(os.environ["DOES"])
except OSError:
    pass
"""


@pytest.fixture(scope="module")
def room(tmp_path_factory: pytest.TempPathFactory) -> Room:
    return make_room(tmp_path_factory.mktemp("watched").resolve() / "room")


@pytest.fixture(scope="module")
def seen(tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[str]]:
    """What is seen of each line and each call, all in one sandbox; its folder may be changed by them."""
    top = tmp_path_factory.mktemp("watching").resolve()
    room = make_room(top / "room")
    (room.work / "code.so").write_bytes(Path(_library()).read_bytes())
    (room.work / "big.txt").write_text("line\n" * 400_000)
    calls = [f"DOES={shlex.quote(does)} {PYTHON} -c {shlex.quote(BEGINNING)}" for does in CALLS.values()]
    names = [*LINES, *CALLS]
    found: dict[str, list[str]] = {name: [] for name in names}
    lines = [f"({line})" for line in LINES] + calls
    for number, did in doings(lines, room=room, log=top / "log", can_write=False):
        found[names[number]].append(did)
    return found


def _library() -> str:
    maps = Path("/proc/self/maps").read_text(encoding="utf-8")
    return next(line.split()[-1] for line in maps.splitlines() if "libc.so" in line or "libc-" in line)


@pytest.mark.promise("safe:judged")
@pytest.mark.parametrize("line", LINES)
def test_what_a_line_does_beyond_reading_is_seen(line: str, seen: dict[str, list[str]]) -> None:
    """Of each line the very thing that it does, whatever else is seen of it."""
    assert [did for did in seen[line] if LINES[line] in did] != []


@pytest.mark.promise("safe:judged")
@pytest.mark.parametrize("name", CALLS)
def test_no_system_call_is_overlooked(name: str, seen: dict[str, list[str]]) -> None:
    """Also those that come by other doors: a descriptor, a handle, a ring. One that strace does not know has a number only."""
    numbers = {"setxattrat": "0x1cf", "file_setattr": "0x1d5", "a call of tomorrow": "0x3e7", "fchmodat2": "0x1c4"}
    said = (name.split()[0], numbers.get(name, name))
    whole = [did for did in seen[name] if did.startswith(said) or f"syscall_{said[1]}" in did]
    opened = [did for did in seen[name] if name == "openat2" and "for writing" in did]
    ran = [did for did in seen[name] if name.startswith("execveat") and did.startswith("runs") and PYTHON not in did]
    assert whole + opened + ran != [], seen[name]
    assert sys.platform == "linux"


@pytest.mark.parametrize(
    "line",
    [
        "ls -la",
        "cat notes.txt | sort | uniq -c",
        "cat <<E\n$HOME\nE",
        "tac <(cat notes.txt)",
        "git status",
        "rg needle src",
        "find . -name '*.py' | xargs wc -l",
        "timeout 1 sleep 0.01",
        "python3 --version",
        "grep -rn needle src 2>/dev/null",
        "ls no_such 2>&1 >/dev/null",
        "exec 3</dev/null; cat </dev/fd/3",
        "grep -r needle tree",
        "echo tree/deep/*/*; realpath src/*/*",
        "cat none.env",
        "grep -n x notes.txt /no-such/file",
        "env -i rg needle src",
        "sort notes.txt src/*.py | true",
        "timeout 5 cat /dev/zero | true",
        "git diff --stat /dev/null src/a.py",
        "bash -lc ls",
        "bash --norc -e -l -c 'ls'",
        "whoami; date; uname -a; df; du -sh src; nproc",
    ],
)
def test_what_only_reads_is_no_finding(line: str, room: Room, tmp_path: Path) -> None:
    """A watcher that suspects everything would be worth nothing."""
    assert list(doings([line], room=room, log=tmp_path.resolve() / "log")) == []
