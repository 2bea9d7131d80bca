"""Which servers of a folder the user trusts, and what those said of their tools then. Beside the journal, for its owner alone."""

import os
import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

import msgspec

from turnwise.base.programs import ProgramSearch
from turnwise.base.unasked_files import read_of_user
from turnwise.base.whole_files import in_place_of
from turnwise.errors import CallerError
from turnwise.rules.permission_facts import Assignment, steers
from turnwise.settings.mcp_files import ServerCommand
from turnwise.settings.settings import state_folder
from turnwise.tools.shell_judge.wrappers import LOOSE, PREFIXES, SHELLS

MAX_BYTES = 64 * 1024 * 1024  # all tools of a server are less than 1 MB, twice


class ChangedTool(msgspec.Struct, frozen=True):
    """What a server says of a tool now: the digest, and in words all that it is of. Files of versions before have no words."""

    digest: str
    said: str = ""


class _Kept(msgspec.Struct, kw_only=True):
    trusted: list[str] = []  # digests of servers that a project names
    told: dict[str, dict[str, str]] = {}  # by the digest of a server: tool -> digest of what was said of it
    said: dict[str, dict[str, str]] = {}  # the same, in words; files of versions before have none
    changed: dict[str, dict[str, ChangedTool]] = {}


class ServerTrust:
    """What is kept, in one file. Raises CallerError where it cannot be read or written.

    The file is read again before each change: another process may have written to it in the meantime.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._kept = self._read()

    @classmethod
    def of_user(cls, env: Mapping[str, str]) -> "ServerTrust":
        return cls(state_folder(env) / "mcp_trust.json")

    def is_trusted(self, digest: str) -> bool:
        """Whether the user has said that this very entry may be started."""
        return digest in self._kept.trusted

    def trust(self, digest: str) -> None:
        self._kept = self._read()
        self._kept.trusted = [*[one for one in self._kept.trusted if one != digest], digest]
        self._write()

    def told_of(self, digest: str) -> Mapping[str, str] | None:
        """What the server said of its tools when it was trusted; None: it has not been started yet."""
        return self._kept.told.get(digest)

    def said_of(self, digest: str) -> Mapping[str, str]:
        """The same in words, as far as they are kept."""
        return self._kept.said.get(digest, {})

    def remember(self, digest: str, tools: Mapping[str, ChangedTool]) -> None:
        """Beside what is known of others of its tools."""
        self._kept = self._read()
        self._kept.told.setdefault(digest, {}).update({name: one.digest for name, one in tools.items()})
        self._kept.said.setdefault(digest, {}).update({name: one.said for name, one in tools.items()})
        self._kept.changed.pop(digest, None)
        self._write()

    def note_changed(self, digest: str, changed: Mapping[str, ChangedTool]) -> None:
        """To be asked about at the next start."""
        self._kept = self._read()
        if self._kept.changed.get(digest) != changed:
            self._kept.changed[digest] = dict(changed)
            self._write()

    def changed_of(self, digest: str) -> Mapping[str, ChangedTool]:
        return self._kept.changed.get(digest, {})

    def accept_changes(self, digest: str) -> None:
        """What it says now is what was trusted."""
        self.remember(digest, self.changed_of(digest))

    def _read(self) -> _Kept:
        content = read_of_user(self._path, max_bytes=MAX_BYTES)
        if content is None:
            return _Kept()
        try:
            return msgspec.json.decode(content if isinstance(content, bytes) else b"", type=_Kept)
        except msgspec.DecodeError:
            raise CallerError(
                f"`{self._path}` cannot be read: delete it, and turnwise asks about MCP servers again"
            ) from None

    def _write(self) -> None:
        try:
            os.makedirs(self._path.parent, mode=0o700, exist_ok=True)  # noqa: PTH103
        except OSError as error:
            raise CallerError(f"`{self._path}` cannot be written: {error.strerror or error}") from None
        with in_place_of(self._path) as file:
            file.write(msgspec.json.encode(self._kept))


# Whether a server's command runs something inside of what the model may write: that may be another program tomorrow.
#
# The question is not what lies there now. A program that looks for code by a name (`npx`, `python -m`, `npm run`) finds it in the
# folder once somebody has put it there. What is not known to stay apart counts as inside: the price is a question.


# They look for code, or for what to run, in the folder in which they are started, or run a command that is among their words.
_LOOK_AROUND = (
    SHELLS
    | LOOSE
    | frozenset(PREFIXES)
    | frozenset(
        """npm pnpm yarn bun deno corepack volta fnm nvm nodemon pm2 vite-node ts-node-dev jiti esr zx electron cargo go
        make gmake cmake ninja just task rake gradle gradlew mvn ant dotnet composer devbox tox nox pytest ipython
        uvicorn gunicorn hypercorn granian daphne flask celery fastmcp mcp streamlit mix iex elixir erl swift dart
        flutter zig stack cabal runghc runhaskell ghci sbt lein clj clojure scala kotlin groovy jbang R awk gawk mawk
        sed git hg find dotenv doppler op chamber mcp-proxy supergateway tsx ts-node Rscript lua luajit julia tclsh
        wish guile sbcl racket ocaml emacs vim nvim""".split()
    )
)
# As words behind another program they are mostly names of its own: `claude mcp serve`, `server --mode start`.
_PLAIN_WORDS = frozenset(
    "mcp start at script watch go find just task time git stack exec command builtin retry screen batch expect R sed".split()
)
_INTERPRETER = re.compile(r"(python|pypy|node|nodejs|ruby|perl|php|java|pwsh)[0-9]*(\.[0-9]+)*[a-z]?")
# They change at most how much is said, or close doors: no other option is known to load nothing from elsewhere.
_HARMLESS = frozenset("-I -S -E -s -u -B -P -OO -O -b -bb -q -v -d --no-warnings --enable-source-maps -w -T -n".split())
_WORDS = re.compile(r"[\s;|&=,()@`$\"']+")
_LOADS = re.compile(
    r"-.*(plugin|extension|module|load|require|import|script)"
)  # a folder behind such an option is code
# Beside those that steer a command of the model's: they name folders with code.
_NAMES_CODE = re.compile(
    r"NODE_\w+|CLASSPATH|LUA_\w*|JULIA_\w+|R_\w+|GEM_\w+|BUNDLE_\w+|(UV|PIP|BUN|DENO|YARN|PNPM)_\w+|VIRTUAL_ENV"
)


def runs_inside(command: ServerCommand, *, path: str | None) -> str:
    """Why a writer in the command's folder can change what it runs; empty if no writer can. `path` is the command's PATH."""
    judge = _Judge(folder=str(command.folder), path=command.env.get("PATH", path))
    for name, value in command.env.items():
        harmless = not steers(Assignment(name, value))
        if name == "PATH" or not harmless or (_NAMES_CODE.fullmatch(name) and name != "NODE_ENV"):
            return f"`{name}` of its entry changes what runs"
        if judge.lies_inside(value):
            return f"`{name}` of its entry leads into {command.folder}"
    return judge.why_of(command.argv)


def path_apart(command: ServerCommand, *, path: str | None) -> str | None:
    """PATH for what the server starts by name, without folders that the model may write in; None where there are none."""
    search = ProgramSearch(command.env.get("PATH", path), workspace=str(command.folder))
    return search.path_apart if search.are_mixed else None


class _Judge:
    """Judges the words of a command that runs in `folder`."""

    def __init__(self, *, folder: str, path: str | None) -> None:
        self._folder = folder
        self._search = ProgramSearch(path, workspace=folder)

    def why_of(self, argv: Sequence[str]) -> str:
        """Empty where the command runs nothing inside."""
        program, *arguments = argv
        if why := self._why_program(program):
            return why
        name = _name_of(program)
        if name in _LOOK_AROUND:
            return f"`{name}` looks for what it runs in {self._folder}"
        if _INTERPRETER.fullmatch(name):
            return self._why_interpreter(arguments, name=name)
        for at, argument in enumerate(arguments):
            if _runs_others(argument):
                return self.why_of(arguments[at:])
            if runs := next((word for word in _words_in(argument) if _runs_others(word)), ""):
                return f"`{argument}` names `{runs}`, which looks for what it runs in {self._folder}"
            loads = any(_LOADS.match(word) for word in arguments[max(at - 1, 0) : at + 1])
            if lies := self.lies_inside(argument, with_folders=loads):
                return f"`{argument}` lies in {self._folder}" if lies == argument else f"`{argument}` leads to {lies}"
        return ""

    def lies_inside(self, text: str, *, with_folders: bool = False) -> str:
        """The path in a word, where something of that name is there, or would be in the folder."""
        for word in (text, *_words_in(text)):
            path = self._absolute(word)
            named = "/" in word or os.path.lexists(path)
            is_code = with_folders or not Path(path).is_dir()
            if "/proc/" in path or (named and is_code and not self._search.is_apart(path)):
                return word
        return ""

    def _why_program(self, program: str) -> str:
        if "/" in program:
            apart = self._search.is_apart(self._absolute(program))
            return "" if apart else f"`{program}` lies in {self._folder}"
        found = self._search.find(program, places=(self._folder,))
        if found.path and not found.apart:
            return f"`{program}` leads to {found.path}, which can be changed from {self._folder}"
        return ""

    def _why_interpreter(self, arguments: Sequence[str], *, name: str) -> str:
        """One that is given anything but a file of its own, or that is told to load more, looks for it in its folder."""
        at = next((at for at, one in enumerate(arguments) if one not in _HARMLESS), len(arguments))
        if at == len(arguments):
            return f"`{name}` without a file runs what it is told"
        script, after = arguments[at], arguments[at + 1 :]
        if script.startswith("-"):
            return f"`{name} {script}` looks for what it runs in {self._folder}"
        path = self._absolute(script)
        if "/proc/" in path or not self._search.is_apart(path):
            return f"`{script}` lies in {self._folder}"
        return self.why_of((script, *after)) if after else ""

    def _absolute(self, path: str) -> str:
        return os.path.abspath(os.path.join(self._folder, os.path.expanduser(path)))  # noqa: PTH100, PTH111, PTH118


def _runs_others(word: str) -> bool:
    name = _name_of(word)
    known = name in _LOOK_AROUND or _INTERPRETER.fullmatch(name) is not None
    return known and word not in _PLAIN_WORDS


def _name_of(word: str) -> str:
    return os.path.basename(word)  # noqa: PTH119


def _words_in(argument: str) -> Iterable[str]:
    """`--config=./a.toml` holds `./a.toml`, and `sh -c "npx x"` holds `npx`."""
    return [word for word in _WORDS.split(argument) if word]
