"""Commands that begin like one that a person allowed: which beginning stands for others, and which commands it covers.

A beginning holds for plain words only. An option that is not listed here, a redirection, a pipe, `;`, `&`, a variable, a
substitution or an assignment is asked about again. So is a command that runs code of the folder or of its arguments, where no
sandbox confines it.
"""

import re
from collections.abc import Sequence

import msgspec

from turnwise.rules.permission_facts import CommandFact, ShellFacts
from turnwise.rules.permission_paths import escape_pattern
from turnwise.rules.read_only_commands import ListedOptions, option_takes


class PrefixOptions(msgspec.Struct, frozen=True, kw_only=True):
    """The options of a command that do not change what a person has allowed, as `ReadingCommand` lists them. `runs`: the command
    runs code of the folder (tests, scripts, hooks, settings)."""

    flags: str = ""
    valued: str = ""
    long: frozenset[str] = frozenset()
    long_valued: frozenset[str] = frozenset()
    runs: bool = True


def _begins(flags: str = "", *, valued: str = "", long: str = "", values: str = "", runs: bool = True) -> PrefixOptions:
    return PrefixOptions(
        flags=flags,
        valued=valued,
        long=frozenset(f"--{name}" for name in long.split()),
        long_valued=frozenset(f"--{name}" for name in values.split()),
        runs=runs,
    )


_TESTS = _begins(
    "qvxsl",
    valued="km",
    long="""quiet verbose exitfirst last-failed failed-first new-first lf ff nf stepwise sw no-header collect-only co
    no-summary showlocals""",
    values="tb maxfail durations verbosity",
)
_CARGO = _begins(
    "qvr", valued="pj", long="quiet verbose release workspace all-targets lib bins tests no-run", values="package jobs"
)
_SCRIPTS = _begins("s", long="silent if-present")
_GO = _begins("v")
# By the words of the beginning. Sources: the manual pages of the commands.
BEGINNINGS: dict[str, PrefixOptions] = {
    "mkdir": _begins("pv", long="parents verbose", runs=False),
    "touch": _begins("acm", long="no-create", runs=False),
    "git add": _begins("AnvuN", long="all dry-run verbose update intent-to-add", runs=False),
    "git branch": _begins("avrlq", long="all remotes list verbose quiet show-current", runs=False),
    "ruff check": _begins("qvsn", long="quiet verbose silent no-cache statistics no-fix show-files", runs=False),
    "ruff format": _begins("qvs", long="quiet verbose silent check diff no-cache", runs=False),
    "git commit": _begins(
        "aqvs", valued="m", long="all quiet verbose signoff allow-empty", values="message"
    ),  # hooks of the repository
    "pytest": _TESTS,
    "python -m pytest": _TESTS,
    "python3 -m pytest": _TESTS,
    "make": _begins("kns", valued="j", long="keep-going dry-run silent", values="jobs"),
    "npm test": _SCRIPTS,
    "npm run": _SCRIPTS,
    "cargo build": _CARGO,
    "cargo check": _CARGO,
    "cargo clippy": _CARGO,
    "cargo run": _CARGO,
    "cargo test": _CARGO,
    "go build": _GO,
    "go test": _GO,
    "go vet": _GO,
    "mypy": _begins("v", long="strict pretty no-error-summary ignore-missing-imports"),
    "pyright": _begins(long="stats warnings verbose"),
}
_MOST_WORDS = 3
# They take further commands, other code or other machines, or change whatever their words name: the first two words do not say
# what a second command would do.
_NEVER = frozenset(
    """bash sh dash zsh ksh fish env xargs sudo doas su ssh eval exec source . command builtin nohup setsid timeout nice time
    watch script parallel find git docker podman kubectl perl ruby awk gawk sed vi vim ed emacs busybox
    toybox chroot unshare nsenter setpriv runuser sg newgrp login at batch strace ltrace taskset chrt ionice stdbuf faketime
    fakeroot proot firejail flock socat expect tmux screen xvfb-run
    rm rmdir unlink shred mv cp ln dd tee truncate install rsync chmod chown chgrp kill pkill killall crontab""".split()
)
_RUNNING = frozenset("run exec x dlx".split())  # as second words: the program is the third one
_NO_CODE = _begins()
_PLAIN = re.compile(r"[A-Za-z0-9_][\w./@:+-]*", re.ASCII)


def beginning_of(shell: ShellFacts) -> tuple[str, ...]:
    """The pattern of commands that begin like the only one of this script; empty where it has no beginning that a person could
    judge."""
    command = _only_command(shell)
    if command is None:
        return ()
    texts = [word.text for word in command.words]
    count = _length(texts, is_confined=shell.confined)
    if not count:
        return ()
    pattern = (*[escape_pattern(text) for text in texts[:count]], "*")
    return pattern if covers(pattern, shell=shell) else ()


def covers(pattern: tuple[str, ...], *, shell: ShellFacts) -> bool:
    """Whether the script is one plain command that begins with the words of the pattern, and all its options are listed."""
    command = _only_command(shell)
    if command is None:
        return False
    words, texts = pattern[:-1], [word.text for word in command.words]
    if tuple([escape_pattern(text) for text in texts[: len(words)]]) != words:
        return False
    listed = _listed(texts[: len(words)])
    return (shell.confined or not listed.runs) and _are_listed(texts[len(words) :], listed=listed)


def runs_code(pattern: tuple[str, ...]) -> bool:
    """Whether commands that begin like the pattern run code that its words do not show."""
    return _listed(pattern[:-1]).runs


def _listed(words: Sequence[str]) -> PrefixOptions:
    if len(words) > 2 and words[1] in _RUNNING:
        return msgspec.structs.replace(_listed(words[2:]), runs=True)
    return BEGINNINGS.get(" ".join(words), _NO_CODE)


def _only_command(shell: ShellFacts) -> CommandFact | None:
    """The command of a script that is nothing but one command of plain words."""
    commands = [one for one in shell.commands if not one.guessed]
    if not (shell.parsed and shell.plain and len(commands) == 1):
        return None
    (one,) = commands
    is_other = one.carries or one.within or one.opaque or one.doubt or one.assignments or one.redirections or one.fed
    is_plain = all(word.literal and not word.glob and word.text.isprintable() for word in one.words)
    return one if one.words and is_plain and not is_other else None


def _length(texts: Sequence[str], *, is_confined: bool) -> int:
    """How many words begin the command. In a sandbox that is, for an unlisted command, the program with its subcommand or file;
    where that runs another program, the beginning of that follows."""
    listed = next((n for n in range(_MOST_WORDS, 0, -1) if " ".join(texts[:n]) in BEGINNINGS and len(texts) >= n), 0)
    if listed or not is_confined or not texts or not _is_program(texts[0]):
        return listed
    if len(texts) < 2 or not _PLAIN.fullmatch(texts[1]):
        return 0
    if texts[1] not in _RUNNING:
        return 2
    inner = _length(texts[2:], is_confined=True)
    is_file = len(texts) > 2 and _is_program(texts[2]) and re.search("[./]", texts[2]) is not None
    return 2 + (inner or 1) if inner or is_file else 0


def _is_program(text: str) -> bool:
    return text.isascii() and text.rpartition("/")[2] not in _NEVER and _PLAIN.fullmatch(text.lstrip("./")) is not None


def _are_listed(texts: list[str], *, listed: ListedOptions) -> bool:
    at = 0
    while at < len(texts):
        text = texts[at]
        at += 1
        if text.startswith("@"):
            return False  # a file of further words
        if text.startswith("-"):
            taken = None if text == "-" else option_takes(text, listed=listed)
            if taken is None or any(value.startswith("-") for value in texts[at : at + taken]):
                return False
            at += taken
    return at == len(texts)
