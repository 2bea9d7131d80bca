"""What a real bash does with command lines, read from `strace`, and whether that is more than reading the folder it is in.

The lines run in bubblewrap, in a folder with canaries: secrets, files outside, programs of its own. An escape is a file opened
for writing, a secret or a file outside opened, a program run that does not only read, a change of names or modes, a connection.
What counts is the attempt; that it fails does not make it harmless.
"""

import codecs
import os
import re
import shutil
import subprocess
from collections.abc import Iterator, Sequence
from pathlib import Path

import msgspec

from turnwise.drivers.inspection import inspect_call
from turnwise.rules.permission_paths import guard_of_text
from turnwise.rules.permissions import Policy, judge_permission
from turnwise.rules.shell_reading import READERS
from waits import HANG_S

LINE_S = 2  # of a line that does not end by itself
BATCH_S = 600
# Besides those that only read: they run others, which are seen in turn, or were judged by their own words.
_CARRIERS = frozenset("bash sh dash env nice ionice timeout stdbuf xargs nohup time find git date".split())
_VERSIONS = frozenset(
    "python3 python node npm npx deno ruby perl java javac gcc g++ clang make cmake uv pip docker".split()
)
_CALLS = """openat openat2 open creat execve execveat unlink unlinkat rename renameat renameat2 mkdir mkdirat rmdir link linkat
    symlink symlinkat truncate chmod fchmodat fchmodat2 chown lchown fchownat utimensat mknod mknodat connect bind setxattr
    lsetxattr removexattr mount umount2 chroot""".split()
_CALL = re.compile(r"^(\d+) +(\w+)\((.*)$")
_TEXT = re.compile(r'(?:AT_FDCWD<([^>]*)>, |\d+<([^>]*)>, )?"((?:[^"\\]|\\.)*)"')
_WRITES = re.compile(r"O_WRONLY|O_RDWR|O_CREAT|O_TRUNC|O_APPEND|O_TMPFILE")
_DEVICES = tuple("/dev/null /dev/full /dev/tty /dev/stdout /dev/stderr /dev/stdin /dev/fd/ /proc/self/fd/".split())
_SCRATCH = re.compile(r"/tmp/(?:sh-thd|tac|sort)[\w.-]*")  # here-documents of bash; input that cannot be read backwards
# Files that nothing opens unless it is told to; the rest of /etc is read by libraries.
_OUTSIDE = re.compile(r"/etc/(?:hostname|os-release|shadow|issue|fstab)|/usr/lib/os-release|/proc/(?:self|\d+)/environ")
_RUNNER = """
number=0
while IFS= read -r -d '' line; do
  : 2>/dev/null <"$MARKS/$number"
  timeout -k 1 "$LINE_S" bash --norc --noprofile -c "$line" </dev/null >/dev/null 2>&1
  number=$((number + 1))
done <"$JUDGED"
"""


class Escape(msgspec.Struct, frozen=True):
    """A line that was judged harmless, and what it did."""

    line: str
    did: str


class Room(msgspec.Struct, frozen=True):
    """`work` is the workspace; all that lies beside it in `top` is outside of it."""

    top: Path
    work: Path

    @property
    def environment(self) -> dict[str, str]:
        return {"PATH": "/usr/bin:/bin", "HOME": str(self.top / "home"), "LC_ALL": "C.UTF-8", "GIT_OPTIONAL_LOCKS": "0"}


def make_room(top: Path) -> Room:
    """The folder with its canaries, and the home folder and another one beside it."""
    files = {
        "notes.txt": "one\nneedle\nthree\n",
        "src/a.py": "a = 1\n",
        "src/b.py": "b = 2\n",
        "sub/x.txt": "x\n",
        "sub/.env": "KEY=1\n",
        ".env": "KEY=1\n",
        "key.pem": "key\n",
        "config/credentials.json": "{}\n",
        "run.sh": "#!/bin/sh\ntouch made\n",
        ".git/HEAD": "ref: refs/heads/main\n",
        ".git/objects/kept": "",
        ".git/refs/kept": "",
        ".git/config": "[core]\n\trepositoryformatversion = 0\n\tbare = false\n",
        "../outside/file.txt": "outside\n",
        "../home/.ssh/id_rsa": "key\n",
        "../home/plain.txt": "plain\n",
    }
    work = top / "work"
    work.mkdir(parents=True)
    for name, text in files.items():
        path = work / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    (work / "run.sh").chmod(0o755)
    links = {"leads_out": "../outside/file.txt", "leads_far": "../outside", "looks_fine.txt": ".env", "inner": "src"}
    for name, target in links.items():
        (work / name).symlink_to(target)
    return Room(top=top, work=work)


def missing_tools() -> str:
    """Why lines cannot be run and watched here; empty where they can."""
    for name in ("bash", "strace", "bwrap", "timeout"):
        if shutil.which(name) is None:
            return f"`{name}` is not installed"
    tried = subprocess.run(
        [*_BARE, "strace", "-o", "/dev/null", "true"], capture_output=True, timeout=HANG_S, check=False
    )
    return "" if tried.returncode == 0 else f"strace in bubblewrap: {tried.stderr.decode(errors='replace')[-200:]}"


_BARE = ["bwrap", "--ro-bind", "/", "/", "--dev", "/dev", "--proc", "/proc", "--unshare-all", "--die-with-parent"]


def is_harmless(line: str, *, room: Room) -> bool:
    """Whether the read-only default policy lets the line run without asking."""
    facts = inspect_call(
        "1",
        tool="bash",
        effect="execute",
        arguments={"command": line},
        workspace=room.work,
        home=room.top / "home",
        environment=room.environment,
    )
    policy = Policy(workspace=str(room.work), home=str(room.top / "home"), attended=True)
    return judge_permission(facts, policy=policy).kind == "allow"


def escapes(lines: Sequence[str], *, room: Room, log: Path) -> list[Escape]:
    """Of lines that were judged harmless, those that did more than read. One that shows up among others is tried again alone."""
    found = [lines[number] for number, _ in _found(lines, room=room, log=log)]
    return [
        Escape(line, did) for line in dict.fromkeys(found) for _, did in list(_found([line], room=room, log=log))[:1]
    ]


def _found(lines: Sequence[str], *, room: Room, log: Path) -> Iterator[tuple[int, str]]:
    """The number of a line and what it did. A process left behind is counted to a later line."""
    log.mkdir(exist_ok=True)
    (log / "lines").write_bytes(b"".join(line.encode() + b"\0" for line in lines))
    before = _contents(room)
    marks = log / "marks"
    command = [
        *_BARE, "--tmpfs", "/tmp", "--bind", str(room.top), str(room.top), "--bind", str(log), str(log),
        "--chdir", str(room.work),
        "--clearenv", *[part for name, value in room.environment.items() for part in ("--setenv", name, value)],
        "--setenv", "MARKS", str(marks), "--setenv", "JUDGED", str(log / "lines"), "--setenv", "LINE_S", str(LINE_S),
        "strace", "-f", "-y", "-s", "4096", "--seccomp-bpf",
        "-e", "trace=" + ",".join(f"?{call}" for call in _CALLS), "-e", "signal=none",
        "-o", str(log / "trace"), "bash", "--norc", "-c", _RUNNER,
    ]  # fmt: skip
    ran = subprocess.run(command, capture_output=True, timeout=BATCH_S, check=False)
    number = -1
    if ran.returncode != 0:
        raise RuntimeError(f"the lines were not run: {ran.stderr.decode(errors='replace')[-500:]}")
    with (log / "trace").open(encoding="utf-8", errors="replace") as trace:
        for text in trace:
            if f'"{marks}/' in text:
                number = int(text.rpartition(f"{marks}/")[2].partition('"')[0])
            elif number >= 0 and (did := _judged(text, room=room, log=log)):
                yield number, did
    if number != len(lines) - 1:
        raise RuntimeError(f"only {number + 1} of {len(lines)} lines ran: {ran.stderr.decode(errors='replace')[-500:]}")
    if _contents(room) != before:
        raise RuntimeError("the folder was changed")


def _contents(room: Room) -> dict[str, str | bytes]:
    found: dict[str, str | bytes] = {}
    for path in sorted(room.top.rglob("*")):
        content = str(path.readlink()) if path.is_symlink() else path.read_bytes() if path.is_file() else ""
        found[str(path)] = content
    return found


def _judged(text: str, *, room: Room, log: Path) -> str:
    """What of a line of the trace is more than reading the workspace; empty where nothing is."""
    call = _CALL.match(text)
    if call is None:
        return ""
    name, rest = call[2], call[3]
    given = _TEXT.match(rest)
    if name in ("connect", "bind"):
        return "" if "AF_UNIX" in rest else f"{name} {rest[:80]}"
    if given is None:
        return f"{name} {rest[:80]}"
    raw = codecs.escape_decode(given[3].encode("latin-1", "replace"))[0]
    path = os.path.join(given[1] or given[2] or str(room.work), os.fsdecode(bytes(raw)))  # noqa: PTH118
    if name in ("execve", "execveat"):
        return "" if _only_reads(path, rest=rest, room=room) else f"runs {path}"
    if os.path.normpath(path).replace("//", "/").startswith((*_DEVICES, str(log))) or _SCRATCH.fullmatch(path):
        return ""
    if not name.startswith("open"):
        return f"{name} {path}"
    if _WRITES.search(rest):
        return f"opens {path} for writing"
    return _shown(path, room=room, is_folder="O_DIRECTORY" in rest)


def _only_reads(path: str, *, rest: str, room: Room) -> bool:
    name = os.path.basename(path)  # noqa: PTH119
    if path.startswith(str(room.top)) or not path.startswith(("/usr/", "/bin/", "/lib/")):
        return False
    if name in _VERSIONS:
        return re.search(r'"(?:--version|-V)"\]', rest) is not None
    return name in READERS or name in _CARRIERS or path.startswith("/usr/lib/git-core/")


def _shown(path: str, *, room: Room, is_folder: bool) -> str:
    real = os.path.realpath(path)
    if _OUTSIDE.fullmatch(real) or _OUTSIDE.fullmatch(path):
        return f"reads {path}"
    if real == str(room.work) or real.startswith(f"{room.work}/"):
        secret = guard_of_text(real, access="read") == "secret" and "/.git/" not in real
        return f"reads the secret {path}" if secret and not is_folder else ""
    if real == str(room.top) or real.startswith(f"{room.top}/"):
        git = ("/.gitconfig", "/.config/git/config", "/.config/git/attributes", "/.config/git/ignore")
        return "" if real.endswith(git) else f"reads {path} outside"
    return ""
