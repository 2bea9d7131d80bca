"""What a program that the judge does not know may run: any of its later words, as a command or as a script.

A list of the programs that run others is never whole (`setpriv`, `choom`, `x86_64`, `ld-linux.so`), so the programs are listed
that are known not to. What is found here is a guess: only prohibitions look at it.
"""

import re
from collections.abc import Sequence

import msgspec

from turnwise.rules.git_commands import read_git
from turnwise.rules.permission_facts import CommandFact, Word
from turnwise.rules.read_only_commands import READERS
from turnwise.rules.shell_words import IN_SHELL
from turnwise.tools.shell_judge.word_spelling import Spelled, plain
from turnwise.tools.shell_judge.wrappers import (
    EVALUATING,
    LOOSE,
    MAX_GUESSES,
    NO_NAMES,
    PREFIXES,
    SHELLS,
    CommandWords,
)

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
        return _git(rest)
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


def _git(rest: CommandWords) -> Supposed | None:
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
