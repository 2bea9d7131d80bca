"""Commands that run other commands: `sudo`, `xargs`, `bash -c`, `find -exec` and their like, and what they would run."""

import re
import shlex
from collections.abc import Sequence
from itertools import pairwise

import msgspec

from turnwise.base.programs import ProgramSearch
from turnwise.rules.git_commands import alias_of, read_git, setting_doubt
from turnwise.rules.permission_facts import FIND_RUNS, IN_SHELL, RESERVED, SETTING, CommandFact, Word
from turnwise.rules.read_only_commands import READERS, option_takes
from turnwise.tools.shell_judge.word_spelling import Spelled, plain, unknown

CommandWords = tuple[Spelled, ...]


class WrappedCommands(msgspec.Struct, frozen=True, kw_only=True):
    """What a command runs. `commands` and `scripts` surely; `guesses` and `guessed_scripts` perhaps. `carries`: that is all that
    it does. `opaque` says why it cannot be known. `moves`: what it runs may run in another folder. `sets` are variables."""

    commands: tuple[CommandWords, ...] = ()
    scripts: tuple[str, ...] = ()
    guesses: tuple[CommandWords, ...] = ()
    guessed_scripts: tuple[str, ...] = ()
    carries: bool = False
    opaque: str = ""
    moves: bool = False
    sets: CommandWords = ()


NOTHING = WrappedCommands()


class Prefix(msgspec.Struct, frozen=True, kw_only=True):
    """A command before a command: the letters of its options without and with a value, how many operands stand between."""

    flags: str = ""
    valued: str = ""
    long: tuple[str, ...] = ()
    long_valued: tuple[str, ...] = ()
    operands: int = 0
    neutral: bool = True
    assigns: bool = False


PREFIXES: dict[str, Prefix] = {
    "time": Prefix(flags="p", assigns=True),
    "nohup": Prefix(),
    "nice": Prefix(flags="0123456789", valued="n", long_valued=("--adjustment",)),
    "ionice": Prefix(flags="t", valued="cn", long_valued=("--class", "--classdata")),
    "timeout": Prefix(
        flags="v",
        valued="ks",
        long=("--foreground", "--preserve-status", "--verbose"),
        long_valued=("--kill-after", "--signal"),
        operands=1,
    ),
    "stdbuf": Prefix(valued="ioe", long_valued=("--input", "--output", "--error")),
    "command": Prefix(flags="p"),
    "builtin": Prefix(),
    "exec": Prefix(flags="cl", valued="a"),
    "env": Prefix(flags="i0v", valued="u", long=("--ignore-environment",), long_valued=("--unset",), assigns=True),
    "setsid": Prefix(flags="cfw", long=("--fork", "--wait"), neutral=False),
    "coproc": Prefix(neutral=False, assigns=True),
    "busybox": Prefix(neutral=False),
    "toybox": Prefix(neutral=False),
    "doas": Prefix(flags="nLs", valued="uC", neutral=False),
    "sudo": Prefix(
        flags="AbEHnPSkKis",
        valued="ugpCcrtThDU",
        long=("--preserve-env", "--non-interactive", "--set-home", "--stdin", "--background", "--login", "--shell"),
        long_valued=("--user", "--group", "--prompt", "--preserve-env", "--chdir", "--host", "--role", "--type"),
        neutral=False,
        assigns=True,
    ),
    "xargs": Prefix(
        flags="0rtx",
        valued="adEILnPs",
        long=("--null", "--no-run-if-empty", "--verbose", "--exit"),
        long_valued=(
            "--max-args",
            "--max-procs",
            "--delimiter",
            "--arg-file",
            "--replace",
            "--max-lines",
            "--max-chars",
        ),
    ),
}
SHELLS = frozenset("bash sh dash zsh ksh ash rbash mksh fish tcsh csh".split())
# Not `-k`, `-f`, `-B`, `-H`, `-i`, `-O`: they change how words are read; `-m` takes over the terminal, `-r` forbids `cd`.
_SHELL_FLAGS = re.compile(r"[-+][euxvnhCpl]*o?")
_PLAIN_SETTINGS = frozenset("pipefail errexit nounset xtrace verbose".split())
# They run a command somewhere among their words, or as one word; where, depends on their many options.
LOOSE = frozenset(
    """watch parallel ssh mosh su runuser pkexec script flock strace ltrace gdb lldb valgrind perf unshare nsenter chroot setarch
    linux32 linux64 taskset chrt numactl entr fakeroot proot bwrap firejail systemd-run dbus-run-session xvfb-run rlwrap unbuffer
    tmux screen docker podman nerdctl kubectl npx bunx pnpx uv uvx pipx poetry pipenv pdm hatch rye conda mamba bundle rbenv pyenv
    nix nix-shell direnv asdf mise at batch crontab fd fdfind expect socat ncat nc dtach cpulimit prlimit catchsegv torsocks
    proxychains faketime chronic retry git-bash start caffeinate""".split()
)
# They evaluate what a word holds, as arithmetic or as the subscript of a variable's name.
EVALUATING = SETTING | frozenset("test [ compgen complete bind fc wait".split())
# The grammar and bash differ in what they make of it (`! ! ls`).
NO_NAMES = RESERVED | {"[[", "]]"}
MAX_GUESSES = 12
# What bash reads differently from a plain `sh` (dash): `[[ a > b ]]` compares there and opens a file here; `uniq a 10>b` has a
# descriptor there, and here the word `10`; `.?` is never `..` there.
_PLAIN_SHELLS = frozenset({"sh", "dash", "ash", "busybox", "toybox"})
_BASH_ONLY = re.compile(
    r"""\[\[|\[[^\s\]]|\(\(|\{(?!\s)|\$['"\[]|&>|>&(?![0-9-])|\d\d[<>]|(?<![\w*?\]}])\.[*?\[]|\+=|<<<|[<>]\(|\|&|;&|=\(|\b(?:function|select|coproc|time|builtin)\b""",
)
_ASSIGNMENT = re.compile(r"[A-Za-z_]\w*(?:\[[^\]]*\])?\+?=")
_ONLY_IN_SHELL = IN_SHELL | EVALUATING | {"command", "builtin", "exec", "coproc", "type"}
_STDIN_FILES = ("-", "/dev/stdin", "/dev/fd/", "/proc/")
_RUNS_FROM = re.compile(
    r"(?:-x|--exec|--upload-pack|--receive-pack|--extcmd|--tree-filter|--index-filter|--msg-filter)(?:=(.*))?", re.S
)


def unwrap(words: CommandWords, *, stdin: str | None) -> WrappedCommands:
    """What `words` would run besides themselves. `stdin` is the literal text of a here-document or here-string, if known."""
    if not words or not words[0].literal:
        return NOTHING
    name = words[0].text.rpartition("/")[2]
    trusted = "/" not in words[0].text or words[0].text in (f"/bin/{name}", f"/usr/bin/{name}")
    if any(word.text in ("--version", "--help") for word in words[1:2]):
        return NOTHING
    carried = _unwrap(name, words=words, stdin=stdin)
    return carried if trusted else msgspec.structs.replace(carried, carries=False)


def is_read_otherwise(script: str, *, within: Sequence[str]) -> bool:
    """Whether a shell among `within` may read the script differently from bash."""
    names = {name.rpartition("/")[2] for name in within}
    return not names.isdisjoint(_PLAIN_SHELLS) and _BASH_ONLY.search(script) is not None


def _unwrap(name: str, *, words: CommandWords, stdin: str | None) -> WrappedCommands:
    rest = words[1:]
    if name in PREFIXES:
        return _prefix(name, rest=rest, prefix=PREFIXES[name])
    if name in SHELLS:
        return _shell(rest, stdin=stdin, carries=name in ("bash", "sh", "dash"))
    match name:
        case "eval":
            return _joined(rest, carries=True)
        case "trap":
            return _trap(rest)
        case "source" | ".":
            return _source(rest)
        case "find":
            return _find(rest)
        case "git":
            return _git(rest)
        case "alias":
            scripts = tuple(word.text.partition("=")[2] for word in rest)
            return WrappedCommands(guessed_scripts=scripts, opaque="an alias changes what runs")
        case "hash" | "enable" if any(not word.literal or word.text[:2] in ("-p", "-f", "-n") for word in rest):
            return WrappedCommands(opaque=f"`{name}` changes what runs")
        case "shopt" if any(not word.literal or word.text[:2] not in ("-p", "-q") for word in rest[:1]):
            return WrappedCommands(opaque="`shopt` changes how commands are read")
        case "set" if not _sets_plainly(rest):
            return WrappedCommands(opaque="`set` changes how commands are read")
        case _ if name in EVALUATING:
            return evaluated(rest)
        case _ if name in NO_NAMES:
            return WrappedCommands(guesses=_suffixes(rest), opaque=f"`{name}` where a command should stand")
        case _ if name in LOOSE:
            return _loose(rest, stdin=stdin)
        case _:
            return NOTHING


def _prefix(name: str, *, rest: CommandWords, prefix: Prefix) -> WrappedCommands:
    at = _past_options(rest, prefix=prefix)
    if name == "command" and rest and rest[0].text in ("-v", "-V"):
        return NOTHING
    if at is None:
        return msgspec.structs.replace(_loose(rest, stdin=None), opaque=f"an option of `{name}` is not understood")
    sets: list[Spelled] = [plain(f"{after.text}=") for word, after in pairwise(rest) if word.text == "-u"]
    sets = sets if name == "env" else []
    while prefix.assigns and at < len(rest) and _ASSIGNMENT.match(rest[at].text):
        sets.append(rest[at])
        at += 1
    at += prefix.operands
    inner = rest[at:]
    if name == "xargs":
        return _xargs(rest[:at], inner=inner)
    moves = name == "sudo" and any(word.text in ("-i", "--login", "-D", "--chdir") for word in rest[:at])
    if name == "exec" and any(word.text.startswith("-") and "a" in word.text for word in rest[:at]):
        # programs of many names in one file choose by it what they are (busybox)
        return WrappedCommands(commands=(inner,) if inner else (), opaque="a program is run under another name")
    if not inner:
        # `exec` alone opens files; `env` alone shows the environment; `sudo -s` is a shell.
        return WrappedCommands(
            sets=tuple(sets), carries=name == "exec" and not rest, opaque=_no_command(name, rest=rest)
        )
    # behind `|` it is a program, which finds no builtins
    neutral = prefix.neutral and not (name == "time" and inner[0].text in _ONLY_IN_SHELL)
    return WrappedCommands(commands=(inner,), sets=tuple(sets), carries=neutral, moves=moves)


def _no_command(name: str, *, rest: CommandWords) -> str:
    return f"`{name}` starts a shell" if name in ("sudo", "doas") and rest else ""


def _past_options(rest: CommandWords, *, prefix: Prefix) -> int | None:
    """Where the options end; None where one is not known, or a word that may be one is not literal."""
    at = 0
    while at < len(rest):
        word = rest[at]
        if not word.literal:
            return at if not prefix.operands else None
        if not word.text.startswith("-") or word.text == "-":
            return at
        at += 1
        if word.text == "--":
            return at
        taken = option_takes(word.text, listed=prefix)
        if taken is None or (taken and at < len(rest) and not rest[at].literal):
            return None
        at += taken
    return at


def _xargs(options: CommandWords, *, inner: CommandWords) -> WrappedCommands:
    replaces = any(word.text.startswith(("-I", "--replace")) for word in options)
    if not inner:
        return WrappedCommands(commands=((plain("echo"), unknown("(input)")),), carries=True)
    # A replaced word may stand anywhere in any word; which mark is replaced need not be known to say so.
    filled = tuple(unknown(word.text) for word in inner) if replaces and not _names_program(inner) else inner
    if replaces and _names_program(inner):
        filled = (inner[0], *(unknown(word.text) for word in inner[1:]))
    return WrappedCommands(commands=((*filled, unknown("(input)")),), carries=True)


def _names_program(words: CommandWords) -> bool:
    return words[0].literal and re.fullmatch(r"[\w.+/-]+", words[0].text) is not None


def _shell(rest: CommandWords, *, stdin: str | None, carries: bool) -> WrappedCommands:
    at = 0
    while at < len(rest):
        word = rest[at]
        if not word.literal:
            return WrappedCommands(opaque="what the shell runs is known only when it runs")
        if not word.text.startswith(("-", "+")) or word.text == "-":
            break
        at += 1
        if word.text in ("--norc", "--noprofile", "--posix"):
            continue
        if word.text == "--":
            break
        if word.text.startswith("--"):
            return WrappedCommands(opaque=f"the shell's option `{word.text}` is not understood")
        if "c" in word.text[1:]:
            return _shell_script(rest[at:], option=word.text, carries=carries)
        if word.text == "-s":
            return _stdin(stdin, carries=carries)
        if _SHELL_FLAGS.fullmatch(word.text) is None:
            return WrappedCommands(opaque=f"the shell's option `{word.text}` is not understood")
        if word.text.endswith("o"):
            if at < len(rest) and not (rest[at].literal and rest[at].text in _PLAIN_SETTINGS):
                return WrappedCommands(opaque=f"the shell's option `{word.text} {rest[at].text}` is not understood")
            at += 1
    if at >= len(rest) or (rest[at].literal and rest[at].text.startswith(_STDIN_FILES)):
        return _stdin(stdin, carries=carries)
    if not rest[at].literal:
        return WrappedCommands(opaque="what the shell runs is known only when it runs")
    return NOTHING


def _shell_script(rest: CommandWords, *, option: str, carries: bool) -> WrappedCommands:
    """`bash -c SCRIPT`; options may stand between, and a login or interactive shell reads its start files first."""
    at = 0
    while at < len(rest) and rest[at].literal and rest[at].text.startswith(("-", "+")):
        if _SHELL_FLAGS.fullmatch(rest[at].text) is None or rest[at].text.endswith("o"):
            return WrappedCommands(opaque=f"the shell's option `{rest[at].text}` is not understood")
        at += 1
    if at >= len(rest) or not rest[at].literal or rest[at].is_glob:
        scripts = tuple(word.text.strip("\"'") for word in rest[at : at + 1])
        return WrappedCommands(opaque="what the shell runs is known only when it runs", guessed_scripts=scripts)
    ordinary = re.fullmatch(r"-[ceuxvnhCpl]+", option) is not None
    opaque = "" if ordinary else f"the shell's option `{option}` is not understood"
    return WrappedCommands(scripts=(rest[at].text,), carries=carries and ordinary, opaque=opaque)


def _stdin(stdin: str | None, *, carries: bool) -> WrappedCommands:
    if stdin is None:
        return WrappedCommands(opaque="what the shell reads from its input is not known")
    return WrappedCommands(scripts=(stdin,), carries=carries)


def _joined(rest: CommandWords, *, carries: bool) -> WrappedCommands:
    script = " ".join(word.text for word in rest)
    if not all(word.literal and not word.is_glob for word in rest):
        return WrappedCommands(opaque="what it evaluates is known only when it runs", guessed_scripts=(script,))
    return WrappedCommands(scripts=(script,), carries=carries)


def _trap(rest: CommandWords) -> WrappedCommands:
    if rest and rest[0].text == "--":
        rest = rest[1:]
    if len(rest) < 2:
        return NOTHING
    if not rest[0].literal or rest[0].is_glob:
        return WrappedCommands(opaque="what it evaluates is known only when it runs")
    carries = all(word.text.upper() != "DEBUG" for word in rest[1:])  # for that bash takes over the terminal
    return WrappedCommands(
        scripts=(rest[0].text,) if rest[0].text not in ("-", "") else (), carries=carries, moves=True
    )


def _source(rest: CommandWords) -> WrappedCommands:
    if not rest or not rest[0].literal or rest[0].text.startswith(_STDIN_FILES):
        return WrappedCommands(opaque="what it reads in is known only when it runs")
    return NOTHING


def _sets_plainly(rest: CommandWords) -> bool:
    """`set -eu -o pipefail`, `set -- a b`; not what changes how later words are read (`-f`, `-k`, `-a`, `-o posix`)."""
    at = 0
    while at < len(rest) and rest[at].literal:
        text = rest[at].text
        if text in ("--", "-") or not text.startswith(("-", "+")):
            return True
        if re.fullmatch(r"[-+][euxvho]+", text) is None:
            return False
        at += 1
        if text.endswith("o"):
            if at < len(rest) and rest[at].text not in _PLAIN_SETTINGS:
                return False
            at += 1
    return at >= len(rest)


def _find(rest: CommandWords) -> WrappedCommands:
    commands: list[CommandWords] = []
    moves = False
    at = 0
    while at < len(rest):
        word = rest[at]
        at += 1
        if not word.literal or word.text not in FIND_RUNS:
            continue
        moves = moves or word.text.endswith("dir")
        inner: list[Spelled] = []
        while at < len(rest) and not (rest[at].literal and rest[at].text in (";", "+")):
            inner.append(unknown(rest[at].text) if "{}" in rest[at].text else rest[at])
            at += 1
        if inner:
            commands.append(tuple(inner))
    return WrappedCommands(commands=tuple(commands), moves=moves)


def _git(rest: CommandWords) -> WrappedCommands:
    """Aliases and settings of the command line, `git rebase --exec`, `git bisect run`, `git submodule foreach`."""
    line = read_git([word.text for word in rest])
    scripts = [setting.partition("=")[2] for setting in line.settings if setting_doubt(setting)]
    guesses: list[CommandWords] = []
    for at, word in enumerate(rest):
        found = _RUNS_FROM.fullmatch(word.text)
        if "!" in word.text and "=" in word.text:
            scripts.append(word.text.partition("!")[2])
        elif found is not None and found[1]:
            scripts.append(found[1])
        elif found is not None and at + 1 < len(rest):
            scripts.append(rest[at + 1].text)
        elif word.text in ("foreach", "run"):
            guesses.append(rest[at + 1 :])
            scripts += [after.text for after in rest[at + 1 :] if " " in after.text]
    alias = alias_of(line)
    if alias is not None and not alias.startswith("!"):
        try:
            meaning = tuple(plain(text) for text in shlex.split(alias))
        except ValueError:
            return WrappedCommands(opaque="what a git alias stands for is not known")
        guesses.append((plain("git"), *meaning, *rest[line.at + 1 :]))
    elif alias is not None:
        scripts.append(" ".join([alias[1:], *(word.text for word in rest[line.at + 1 :])]))
    return WrappedCommands(
        guesses=tuple(guess for guess in guesses if guess),
        guessed_scripts=tuple(scripts[:MAX_GUESSES]),
        opaque=line.steered,
    )


def _loose(rest: CommandWords, *, stdin: str | None) -> WrappedCommands:
    scripts = [word.text for word in rest if any(char in word.text for char in " ;&|\n")]
    if stdin is not None:
        scripts.append(stdin)
    return WrappedCommands(guesses=_suffixes(rest), guessed_scripts=tuple(scripts[:MAX_GUESSES]))


def evaluated(words: CommandWords) -> WrappedCommands:
    """Substitutions within words that are evaluated a second time: `let 'a[$(ls)]=1'`."""
    scripts = tuple(word.text for word in words if word.literal and re.search(r"\$\(|`", word.text))
    callbacks = tuple(after.text for word, after in pairwise(words) if word.text in ("-C", "-x"))
    return WrappedCommands(guessed_scripts=(*scripts, *callbacks)[:MAX_GUESSES])


def _suffixes(words: Sequence[Spelled]) -> tuple[CommandWords, ...]:
    starts = [at for at, word in enumerate(words) if word.literal and re.match(r"[\w./]", word.text)]
    return tuple(tuple(words[at:]) for at in starts[:MAX_GUESSES])


# Which program the name of a command leads to, and what of that is in doubt.
# They run what follows them in the shell itself, where its own commands come before programs.
_IN_SHELL = frozenset("eval command builtin time trap coproc declare (( [[".split())
# Shells have these themselves, bash and dash alike.
_BUILT_IN = (
    NO_NAMES | IN_SHELL | frozenset(": true false type printf pwd echo command builtin time exec coproc".split())
)


class ProgramDoubt(msgspec.Struct, frozen=True, kw_only=True):
    """`doubt`: the name leads to a file that commands can write. `opaque`: and it did not before. `names` are the names and
    files that the run has to keep to, where PATH has folders that commands can write in."""

    doubt: str = ""
    opaque: str = ""
    names: tuple[tuple[str, str], ...] = ()


_NOTHING = ProgramDoubt()


def program_of(
    words: tuple[Spelled, ...], *, programs: ProgramSearch, within: tuple[str, ...], places: tuple[str, ...] | None
) -> ProgramDoubt:
    """What the first of `words` leads to, where it is a name to be looked for."""
    name = words[0].text if words and words[0].literal and not words[0].is_glob else ""
    if not name or "/" in name or "\0" in name or (name in _BUILT_IN and _runs_in_shell(within)):
        return _NOTHING
    found = programs.find(name, places=places)
    if found.apart:
        return ProgramDoubt(names=found.names if programs.are_mixed else ())
    if not found.path:
        return (
            ProgramDoubt(doubt=f"there is no `{name}`, and commands can make one") if programs.are_mixed else _NOTHING
        )
    doubt = f"`{name}` is `{found.path}`: commands can change what runs there"
    return ProgramDoubt(doubt=doubt, opaque=f"{doubt}; it was another program before" if found.newly else "")


def _runs_in_shell(within: tuple[str, ...]) -> bool:
    for outer in reversed(within):
        if outer.rpartition("/")[2] in SHELLS:
            return True
        if outer not in _IN_SHELL:
            return False
    return True


# What a program that the judge does not know may run: any of its later words, as a command or as a script.
#
# A list of the programs that run others is never whole (`setpriv`, `choom`, `x86_64`, `ld-linux.so`), so the programs are listed
# that are known not to. What is found here is a guess: only prohibitions look at it.


# Besides the readers: what they are given is files, text, targets or subcommands of their own.
_INERT = frozenset(
    """rm mv cp mkdir rmdir touch ln chmod chown chgrp tee truncate dd install mktemp less more date ps top kill pkill
    killall logout exit return break continue shift history umask ulimit times jobs bg disown suspend set hash enable shopt
    alias unalias sed awk gawk mawk python python3 node ruby perl php java javac gcc g++ cc clang make cmake ninja cargo
    rustc rustfmt go gofmt pip pip3 pytest ruff mypy pyright black isort eslint prettier tsc jest vitest mvn gradle gh glab
    aws gcloud az terraform tofu helm svn hg dvc apt apt-get brew dnf systemctl curl wget zip unzip gzip gunzip sqlite3 psql
    mysql redis-cli vim vi nano code pre-commit tox coverage flask alembic rails composer swift dotnet xxd base64 openssl
    gpg patch ack ag bat tokei cloc mix just task nx turbo vite webpack rubocop rspec rake deno gem tput clear reset sync
    free uptime hostname groups logger wait shred srm unlink mkfs""".split()
)
_INTERPRETERS = ("python3.", "pip3.")
_UNDERSTOOD = frozenset(PREFIXES) | SHELLS | LOOSE | EVALUATING | NO_NAMES | IN_SHELL | {"find"}
_PAGER = re.compile(r"(?:-O|--open-files-in-pager=)(.+)", re.DOTALL)
_PACKAGERS = frozenset("npm pnpm yarn bun".split())
_PACKAGE_RUNS = frozenset("exec x dlx".split())


class Supposed(msgspec.Struct, frozen=True, kw_only=True):
    """Commands and scripts that a program may run. `is_shell`: the scripts may run further ones of that kind."""

    commands: tuple[CommandFact, ...] = ()
    scripts: tuple[str, ...] = ()
    is_shell: bool = False


def may_run(words: CommandWords) -> Supposed | None:
    """None where it is known what the program runs of its words."""
    if len(words) < 1 or not words[0].literal:
        return None
    name, rest = words[0].text.rpartition("/")[2], words[1:]
    if name.startswith("git-"):
        return Supposed(commands=(_command((plain("git"), plain(name[4:]), *rest)),))
    if name == "git":
        return _supposed_git(rest)
    if name in _PACKAGERS:
        at = next((at for at, word in enumerate(rest) if word.text in _PACKAGE_RUNS), None)
        if at is None:
            return None
        rest = rest[at + 1 :]
    elif name in _UNDERSTOOD or name in READERS or name in _INERT or name.startswith(_INTERPRETERS):
        return None
    return _among(rest)


def supposed(facts: Sequence[CommandFact]) -> list[CommandFact]:
    """The commands alone, without the files that they would open."""
    return [_command(fact.words) for fact in facts if fact.words]


def _supposed_git(rest: CommandWords) -> Supposed | None:
    line = read_git([word.text for word in rest])
    after = rest[line.at + 1 :]
    if line.subcommand in ("send-pack", "http-push"):
        return Supposed(commands=(_command((plain("git"), plain("push"), *after)),))
    pagers = [_PAGER.fullmatch(word.text) for word in after] if line.subcommand == "grep" else []
    programs = [found[1] for found in pagers if found is not None]
    return Supposed(scripts=tuple(programs[:MAX_GUESSES])) if programs else None


def _among(rest: CommandWords) -> Supposed:
    commands: list[CommandFact] = []
    scripts: list[str] = []
    for at, word in enumerate(rest):
        for text in _values(word.text) if word.literal else ():
            if " " in text or "\n" in text:
                scripts.append(text)
            commands.append(_command((plain(text), *rest[at + 1 :])))
    is_shell = any(word.text == "-c" or word.text.rpartition("/")[2] in SHELLS for word in rest)
    return Supposed(commands=tuple(commands[:MAX_GUESSES]), scripts=tuple(scripts[:MAX_GUESSES]), is_shell=is_shell)


def _command(words: Sequence[Spelled | Word]) -> CommandFact:
    """A glob comes to words that are not looked for."""
    known = [Word(one.text, literal=one.literal and not (isinstance(one, Spelled) and one.is_glob)) for one in words]
    return CommandFact(words=tuple(known), text="", guessed=True)


def _values(text: str) -> list[str]:
    """The word, what follows `=` in it, and what is joined to a short option."""
    found = [text] if not text.startswith("-") else []
    parts = text.split("=")
    found += ["=".join(parts[at:]) for at in range(1, min(len(parts), 4))]
    if re.match(r"-\w[\w./]", text):
        found.append(text[2:])
    return [one for one in found if re.match(r"[\w./]", one)]
