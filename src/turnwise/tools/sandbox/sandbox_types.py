"""What is asked of a sandbox, and what it makes of it."""

import functools
import os
import re
import sys
from pathlib import Path
from typing import Literal

import msgspec

from turnwise.base import keeper
from turnwise.base.programs import compiled_script
from turnwise.tools.sandbox.git import GitFolder

# What a command may take up of the machine: memory, processes, and files that it throws away.
#
# The keeper sums up the whole tree of a command, ends all of it past a bound, and says which one it was. The kernel's own limits
# stand behind that at twice the figure: they hold at once, but for each process alone, and they say nothing.


KiB, MiB, GiB = 1 << 10, 1 << 20, 1 << 30
KERNELS_SHARE = 2  # the kernel's limits, as a multiple of those that the keeper sums up
FILES_SHARE = 4  # for files: what is refused in the middle of a pipe leaves no trace, so the keeper has to look before

# Readers on 100,000 files took at most 45 MiB (`git log --stat`, `git status`, `git grep`, `rg`, `find`, `ls -R`). What takes
# more reads one large file as a whole: `jq` took 1.6 GiB for a file of 90 MB, `sort` 0.5 GiB for 8 million lines. V8 and Go
# reserve more addresses than they use, and Java commits 1/64 of the machine's memory at its start: room for that is in the
# kernel's limit (RLIMIT_DATA; not RLIMIT_AS, which counts what is only reserved: `node --version` reserves 1 GiB).
UNASKED_MEMORY = 2 * GiB
# `java -version` starts 20 threads and about one for each processor, `rg`, `git` and `sort` at most 20 each.
UNASKED_PROCESSES = 512
# `sort` and `tac` write their input there once: enough for a file of 500 MB.
UNASKED_SCRATCH = 512 * MiB
# A test run with 64 workers whose libraries start a thread for each processor. A fork bomb passes it within a second.
ALLOWED_PROCESSES = 4096
_ALLOWED_OF_MEMORY = 0.9  # beyond that the kernel chooses which process to end: turnwise or the user's editor, too

# What programs say when a limit of the kernel refuses them more, by the word that the keeper has for the bound.
_REFUSED = {
    "memory": re.compile(
        rb"cannot allocate memory|memoryerror|out of memory|memory exhausted|not enough (memory|space)|bad_alloc",
        re.IGNORECASE,
    ),
    "processes": re.compile(rb"resource temporarily unavailable|can't start new thread", re.IGNORECASE),
    "files": re.compile(rb"no space left on device|file too large|file size limit exceeded", re.IGNORECASE),
}
_SMALLER = (
    "Do it in smaller pieces (fewer files, `head` early in the pipe), or ask the user to allow this very command by a rule: it"
    " may have more then"
)


class CommandBounds(msgspec.Struct, frozen=True, kw_only=True):
    """What all processes of one command may have together: bytes of `memory`, `processes` with their threads, and bytes of
    `scratch` (files in temporary folders, in memory, and open ones). None for `scratch` is any number; then the kernel limits
    neither files nor the memory of a single process."""

    memory: int
    processes: int
    scratch: int | None = None

    def likely_hit(self, output: bytes, *, near: str) -> str:
        """What a command that failed is told if its `output` says that it could not have more of something, and it came `near`
        that bound; else nothing. Either alone is usual: a log that it reads, or a program that fails for another reason."""
        if self.scratch is None or not any(name in near.split() and _REFUSED[name].search(output) for name in _REFUSED):
            return ""
        return (
            f"nobody was asked about this command, so it has at most {size_text(self.memory)} of memory,"
            f" {self.processes} processes and threads, and {size_text(self.scratch)} of temporary files, and may have reached one"
            f" of these bounds. {_SMALLER}"
        )

    def hit(self, what: str) -> str:
        """What a command is told that the keeper ended because of `what`."""
        ended = f"ended with all that it started, because {what}"
        if self.scratch is None:
            return f"{ended}: no command may have more"
        return f"{ended}: a command that nobody is asked about may not have more. {_SMALLER}"


@functools.cache
def unasked_bounds() -> CommandBounds:
    """Those of a command that runs without anybody being asked. On a small machine they are parts of its memory."""
    machine = _memory_of_machine()
    return CommandBounds(
        memory=min(UNASKED_MEMORY, machine // 2),
        processes=UNASKED_PROCESSES,
        scratch=min(UNASKED_SCRATCH, machine // 8 // MiB * MiB),
    )


@functools.cache
def allowed_bounds() -> CommandBounds:
    """Those of a command that a person, a rule or a program allowed."""
    return CommandBounds(memory=int(_memory_of_machine() * _ALLOWED_OF_MEMORY), processes=ALLOWED_PROCESSES)


@functools.cache
def can_bound() -> bool:
    """Whether a keeper can sum up what processes have here: on Linux, with a /proc that shows it."""
    if sys.platform != "linux":
        return False
    try:
        with open("/proc/self/status", "rb") as file:  # noqa: PTH123
            return b"RssAnon:" in file.read()
    except OSError:
        return False


def size_text(size: int) -> str:
    """`2 GiB`, `1.5 GiB`, `512 MiB`."""
    unit, name = (GiB, "GiB") if size >= GiB else (MiB, "MiB")
    return f"{round(size / unit, 1):g} {name}"


def _memory_of_machine() -> int:
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, ValueError):  # no Unix, where nothing is bounded either
        return 2 * UNASKED_MEMORY


_KEEPER = Path(keeper.__file__)

SandboxKind = Literal["bubblewrap", "landlock", "none"]


class SandboxOrder(msgspec.Struct, frozen=True, kw_only=True):
    """A command and what it may do. All paths are absolute and have no link in them.

    It may write in `workspace`, in `writable` and in the temporary folder; `hidden` paths it may not even read.
    `shown` it may read although they lie inside something hidden. `git` are folders of git's elsewhere that it may write in, but
    for what git executes. `given` is the descriptor of its standard input, where a
    keeper has to hand it on. `bounds` are what it may take up, `report` the descriptor to which its keeper says which of them it
    reached. `fresh`: its temporary folders are empty file systems of a fixed size, gone with it. `reads_only`: it may write in
    its temporary folders alone. `kept` are paths in the workspace that it must not change, where there are mounts.
    """

    argv: tuple[str, ...]
    env: dict[str, str]
    workspace: Path
    temporary: Path
    empty: Path
    writable: tuple[Path, ...] = ()
    hidden: tuple[Path, ...] = ()
    shown: tuple[Path, ...] = ()
    git: tuple[GitFolder, ...] = ()
    network: bool = False
    given: int | None = None
    bounds: CommandBounds | None = None
    report: int | None = None
    fresh: bool = False
    reads_only: bool = False
    kept: tuple[Path, ...] = ()


class Wrapped(msgspec.Struct, frozen=True, kw_only=True):
    """What to start instead of the command.

    Pass the `descriptors` on to it, and close them here once it has started. `layers` is how many processes stand around the
    command, the started one among them: they end with it, so a polite signal goes to those below them only. `watches`: it
    ends all that it started when its standard input closes, so no other guard is needed. `report` is the one of the descriptors
    to which it says, in words, which bound the command reached.
    """

    argv: tuple[str, ...]
    env: dict[str, str]
    descriptors: tuple[int, ...] = ()
    layers: int = 0
    watches: bool = False
    report: int | None = None


def in_keeper(
    order: SandboxOrder,
    *,
    argv: tuple[str, ...] = (),
    rules: int | None = None,
    program: str = "-",
    asked: bool = False,
    folder: str = "-",
    handed: tuple[int, ...] = (),
) -> Wrapped:
    """The keeper with the command, which is confined by the Landlock `rules` and the filter `program`, or with the bubblewrap
    `argv` around it, which gets the descriptors `handed`. `asked`: the filter lets the keeper judge signals. New files in
    `folder` count as scratch."""
    bounds = "-"
    if order.bounds is not None:
        one = order.bounds
        bounds = f"{one.memory}:{one.processes}:{one.scratch or '-'}:{KERNELS_SHARE}:{FILES_SHARE}"
    kept = ":".join(["apart", *map(str, handed)]) if argv else "-"
    rules_text, report, given = ("-" if one is None else str(one) for one in (rules, order.report, order.given))
    how = (rules_text, program, "asked" if asked else "-", bounds, folder, report, kept, given)
    words, script = compiled_script(str(_KEEPER))
    return Wrapped(
        argv=(*words, *how, *(argv or order.argv)),
        env=order.env,
        descriptors=tuple([one for one in (script, rules, order.report, *handed) if one is not None]),
        layers=2 if argv else 1,
        watches=True,
        report=order.report,
    )
