"""What a real bash does with command lines, read from `strace`, and whether that is more than reading the folder it is in.

The lines run in bubblewrap, in a folder with canaries: secrets, files outside, programs of its own. An escape is a file opened
for writing, a secret or a file outside opened, a program run that does not only read, and every call that is not known to be
harmless (`traced_shell`).
"""

import os
import platform
import shutil
import struct
import subprocess
from collections.abc import Iterator, Sequence
from pathlib import Path

import msgspec

from traced_shell import UNSEEN, Watcher, read_calls
from turnwise.rules.permissions import Policy, judge_permission
from turnwise.tools.shell_judge import inspect_call
from waits import HANG_S

LINE_S = 2  # of a line that does not end by itself
BATCH_S = 600
KEPT_LINES = 25  # that run after one, before what it left behind is ended: about a second
# The watchdog ends a line that does not end by itself; `timeout` would be one more program for each line.
_RUNNER = """
exec 2>/dev/null
export -n MARKS JUDGED LINE_S KEPT_LINES  # no line knows of them
watch() {
  : <"$MARKS/watchdog"
  while read -r group; do
    read -r -t "$LINE_S" || { kill -KILL -- "-$group"; read -r; }
  done
}
exec {watchdog}> >(watch)
set -m  # each line is a group of processes
number=0
while IFS= read -r -d '' line; do
  : <"$MARKS/$number"
  bash --norc --noprofile -c "$line" </dev/null >/dev/null 2>&1 {watchdog}>&- &
  groups[number]=$!
  echo $! >&$watchdog
  wait $!
  echo >&$watchdog
  old=$((number - KEPT_LINES))
  ((old < 0)) || kill -KILL -- "-${groups[old]}"
  number=$((number + 1))
done <"$JUDGED"
: <"$MARKS/$number"
for process in /proc/[0-9]*; do  # what a line left behind; strace would wait for it
  process=${process#/proc/}
  ((process == 1 || process == PPID || process == $$)) || kill -KILL "$process"
done
exit 0
"""


# `strace --seccomp-bpf` stops a process only at the calls that it looks at, which takes half the time, but overlooks calls that
# it has no name for. A filter of our own makes it stop at those as well: calls of 2019 and later, and those of other processors.
_FIRST_OF_2019 = 424
_PROCESSORS = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}  # linux/audit.h
_LOAD, _IS_EQUAL, _IS_AT_LEAST, _RETURN = 0x20, 0x15, 0x35, 0x06  # linux/bpf_common.h
_TRACE, _ALLOW = 0x7FF00000, 0x7FFF0000  # linux/seccomp.h
_STOPS = (
    (_LOAD, 0, 0, 4),
    (_IS_EQUAL, 0, 3, _PROCESSORS.get(platform.machine(), 0)),
    (_LOAD, 0, 0, 0),
    (_IS_AT_LEAST, 1, 0, _FIRST_OF_2019),
    (_RETURN, 0, 0, _ALLOW),
    (_RETURN, 0, 0, _TRACE),
)


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
        return {
            "PATH": "/usr/bin:/bin",
            "HOME": str(self.top / "home"),
            "SHELL": "/bin/bash",  # bash would look it up
            "LC_CTYPE": "C.UTF-8",  # the other parts of `LC_ALL` are those of C, and some 50 calls of each program
            "GIT_OPTIONAL_LOCKS": "0",
        }


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
        "calm/one.txt": "needle\n",
        "calm/deep/two.txt": "two\n",
        "tree/a.txt": "needle\n",
        "tree/deep/b.txt": "b\n",
        "odd/a b.txt": "a b\n",
        "odd/-n": "n\n",
        "odd/[x]": "x\n",
        "odd/\u00e9.txt": "needle\n",
        "lists/names": "notes.txt\n../outside/file.txt\n.env\n",
        "lists/ends": "notes.txt\0../outside/file.txt\0.env\0",
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
    links = {
        "leads_out": "../outside/file.txt",
        "leads_far": "../outside",
        "looks_fine.txt": ".env",
        "inner": "src",
        "tree/out": "../../outside",
        "tree/key": "../.env",
        "tree/back": "..",
        "tree/in": "../calm/deep",
        "calm/in": "../src",
        "down": "calm/deep",
        "tree/deep/far.txt": "../../../outside/file.txt",
        # for dash they are names as they stand, or the number is a word
        "odd/{a,b}": "../../outside/file.txt",
        "odd/$a": "../../outside/file.txt",
        "odd/*.md": "../../outside/file.txt",
        "10": ".env",
        "12": "../outside/file.txt",
    }
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
    found = [lines[number] for number, _ in doings(lines, room=room, log=log)]
    return [
        Escape(line, did) for line in dict.fromkeys(found) for _, did in list(doings([line], room=room, log=log))[:1]
    ]


def doings(lines: Sequence[str], *, room: Room, log: Path, can_write: bool = True) -> Iterator[tuple[int, str]]:
    """The number of a line and what it did beyond reading. A process left behind is counted to a later line. Where the room
    cannot be written, lines that try to do not change it for each other."""
    log.mkdir(exist_ok=True)
    (log / "lines").write_bytes(b"".join(line.encode() + b"\0" for line in lines))
    before = _contents(room)
    marks = log / "marks"
    stops = os.memfd_create("stops")
    os.write(stops, b"".join(struct.pack("HBBI", *one) for one in _STOPS))
    os.lseek(stops, 0, os.SEEK_SET)
    command = [
        *_BARE, "--seccomp", str(stops), "--tmpfs", "/tmp", "--bind" if can_write else "--ro-bind", str(room.top), str(room.top),
        "--bind", str(log), str(log),
        "--chdir", str(room.work),
        "--clearenv", *[part for name, value in room.environment.items() for part in ("--setenv", name, value)],
        "--setenv", "MARKS", str(marks), "--setenv", "JUDGED", str(log / "lines"), "--setenv", "LINE_S", str(LINE_S),
        "--setenv", "KEPT_LINES", str(KEPT_LINES),
        "strace", "-f", "--seccomp-bpf", "-y", "-s", "4096",
        "-e", "trace=!" + ",".join(f"?{call}" for call in UNSEEN), "-e", "signal=none",
        "-o", str(log / "trace"), "bash", "--norc", "-c", _RUNNER,
    ]  # fmt: skip
    try:
        ran = subprocess.run(command, capture_output=True, timeout=BATCH_S, check=False, pass_fds=(stops,))
    finally:
        os.close(stops)
    if ran.returncode != 0:
        said = (ran.stdout + ran.stderr).decode(errors="replace")[-500:]
        raise RuntimeError(f"the lines were not run (exit code {ran.returncode}): {said}")
    number = -1
    seen = False
    own: set[int] = set()  # processes of the runner itself
    watcher = Watcher(top=room.top, work=room.work)
    with (log / "trace").open(encoding="utf-8", errors="replace") as trace:
        for call in read_calls(trace):
            did = watcher.judged(call)
            if f'"{marks}/' in call.arguments:
                own.add(call.pid)
                mark = call.arguments.rpartition(f"{marks}/")[2].partition('"')[0]
                number = number if mark == "watchdog" else int(mark)
            elif 0 <= number < len(lines) and did and call.pid not in own:
                seen = True
                yield number, did
    if number != len(lines):
        raise RuntimeError(f"only {number} of {len(lines)} lines ran: {ran.stderr.decode(errors='replace')[-500:]}")
    if _contents(room) != before:
        if not seen:
            raise RuntimeError("the folder was changed, and nothing was seen of it")
        shutil.rmtree(room.top)
        make_room(room.top)


def _contents(room: Room) -> dict[str, str | bytes]:
    found: dict[str, str | bytes] = {}
    for path in sorted(room.top.rglob("*")):
        content = str(path.readlink()) if path.is_symlink() else path.read_bytes() if path.is_file() else ""
        found[str(path)] = content
    return found
