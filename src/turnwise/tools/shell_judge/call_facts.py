"""A call's arguments -> the facts about it: its paths resolved, its command parsed."""

import hashlib
import os
import re
import stat
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

import msgspec

from turnwise.base.programs import ProgramSearch
from turnwise.rules.permission_facts import IN_SHELL, RESERVED, SETTING, Access, CallFacts, PathFact, ShellFacts
from turnwise.tools.sandbox.environment import PrivateFolder
from turnwise.tools.shell_judge.paths import Paths, readable
from turnwise.tools.shell_judge.repositories import environment_doubt
from turnwise.tools.shell_judge.shell import inspect_script
from turnwise.tools.workspace.previews import paths_of_call
from turnwise.vocab.file_names import given_name, unmarked
from turnwise.vocab.json_values import is_json_array, is_json_object

# What the files hold that a call would write: an approval of a change is for a change of that.
MAX_BYTES = 64 * 1024 * 1024  # read for one call, 0.1 s; of what is larger, size and times have to do
PIECE = 1024 * 1024


def state_of(paths: Iterable[PathFact]) -> str:
    """Stands for what stands at the paths and what it holds. Empty where nothing would be written."""
    whole = hashlib.sha256()
    left = MAX_BYTES
    found = False
    for path in paths:
        if path.access != "write":
            continue
        found = True
        kind, read = _state(unmarked(path.resolved), most_bytes=left)
        left -= read
        whole.update(f"{path.resolved}\0{kind}\0".encode(errors="surrogateescape"))
    return whole.hexdigest() if found else ""


def _state(path: str, *, most_bytes: int) -> tuple[str, int]:
    """And the bytes that were read for it. A link is not followed, a pipe not waited for: the path is resolved already."""
    if not path:
        return "unknown", 0
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC)
    except FileNotFoundError:
        return "missing", 0
    except (OSError, ValueError) as error:
        return f"cannot be opened: {type(error).__name__} {getattr(error, 'errno', '')}", 0
    try:
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode):
            return f"no file: {stat.S_IFMT(status.st_mode):o}", 0
        if status.st_size > most_bytes:
            return (
                f"large: {status.st_dev} {status.st_ino} {status.st_size} {status.st_mtime_ns} {status.st_ctime_ns}",
                0,
            )
        content = hashlib.sha256()
        read = 0
        while piece := os.read(descriptor, PIECE):
            read += len(piece)
            content.update(piece)
            if read > most_bytes:  # it grows while it is read
                return f"growing: {status.st_ino} {read}", read
        return content.hexdigest(), read
    except OSError as error:
        return f"cannot be read: {error.errno}", 0
    finally:
        os.close(descriptor)


# Where a tool is not one of ours (`paths_of_call` knows those): arguments that name paths, by the conventions of tools that
# work on files; also in the items of a list (`edits[].path`).
SHELLS_OWN = (
    RESERVED
    | SETTING
    | IN_SHELL
    | frozenset(
        """alias bg bind break builtin caller command compgen complete compopt continue dirs disown echo enable exec exit false
        fc fg hash help history jobs kill logout pwd return set shift shopt suspend times true type ulimit umask unalias wait :
        time coproc""".split()
    )
)
PATH_KEYS = frozenset(
    """path paths file files filename file_path filepath folder directory dir source destination target src dst from to
    old_path new_path cwd workdir working_directory root""".split()
)
COMMAND_KEYS = ("command", "cmd", "script")
PATCH_KEYS = ("patch", "diff", "input")
MAX_PATHS = 500
_PATCHED = re.compile(
    r"^(?:\*\*\* (?:Add|Update|Delete) File: |\*\*\* Move to: |(?:---|\+\+\+) (?:[ab]/)?|rename (?:from|to) )([^\t\n\r]+)",
    re.M,
)


def inspect_call(
    call_id: str,
    *,
    tool: str,
    effect: str,
    arguments: Mapping[str, object],
    workspace: os.PathLike[str],
    home: Path | None = None,
    environment: Mapping[str, str] | None = None,
    programs: ProgramSearch | None = None,
    private: PrivateFolder | None = None,
    kept: Iterable[Path] = (),
    is_confined: bool = False,
) -> CallFacts:
    """What the call would touch and run. Reads the file system (links, globs), runs nothing; never raises for bad arguments.

    `effect` is the tool's (`none, read, write, execute`). `environment` is the one that a command would see (default: this
    process's); `home` what `~` stands for (default: its HOME); `programs` where the names of programs lead for it (default:
    by the environment's PATH, where commands can write in the workspace), `private` the folder that commands have for themselves.
    In the folders `kept` lies what turnwise wrote for the model. `is_confined`: a sandbox keeps commands from all else.
    """
    environment, kept = os.environ if environment is None else environment, tuple(kept)
    folder = str(home) if home is not None else environment.get("HOME") or str(Path("~").expanduser())
    paths = Paths(workspace, home=os.path.realpath(folder), kept=kept)
    shell: ShellFacts | None = None
    if effect == "execute":
        command = next((arguments[key] for key in COMMAND_KEYS if key in arguments), None)
        if isinstance(command, str):
            shell = inspect_script(
                command,
                paths=Paths(workspace, home=paths.home, private=private, kept=kept),
                programs=programs or ProgramSearch(environment.get("PATH"), workspace=paths.workspace),
                environment=environment.keys(),
                git_doubt=environment_doubt(environment),
            )
            shell = msgspec.structs.replace(shell, confined=is_confined)
        elif command is not None:
            shell = ShellFacts(parsed=False, problem="the command is no text")
    if effect == "none":
        return CallFacts(call_id=call_id, tool=tool, effect=effect)
    access: Access = "read" if effect == "read" else "write"
    facts = _facts(tool, arguments, paths=paths, access=access)
    state = state_of(facts) if effect == "write" else ""
    found = CallFacts(call_id=call_id, tool=tool, effect=effect, paths=facts, shell=shell, state=state)
    return readable(found)


def missing_program(shell: ShellFacts | None, *, programs: ProgramSearch, workspace: str) -> str:
    """Why a script of one plain command cannot run: there is no program of that name. Empty where there is, or may be."""
    commands = () if shell is None or not shell.plain else [one for one in shell.commands if not one.guessed]
    if len(commands) != 1 or not commands[0].words or not commands[0].words[0].literal:
        return ""
    name = commands[0].words[0].text
    if not name or name in SHELLS_OWN or commands[0].words[0].glob:
        return ""
    if "/" in name:
        return "" if Path(workspace, name).expanduser().exists() else f"there is no program `{name}` here"
    return "" if programs.find(name, places=(workspace,)).path else f"there is no program `{name}` on PATH"


def _facts(tool: str, arguments: Mapping[str, object], *, paths: Paths, access: Access) -> tuple[PathFact, ...]:
    own = [given_name(text) for text in paths_of_call(tool, arguments)]
    texts = dict.fromkeys(own or _conventional(arguments, access=access))
    if len(texts) > MAX_PATHS:
        return (PathFact(given=f"({len(texts):,} paths)", access=access),)
    return tuple(paths.fact(text, access=access) for text in texts)


def _conventional(arguments: Mapping[str, object], *, access: Access) -> Iterator[str]:
    yield from _named_paths(arguments)
    for key in PATCH_KEYS if access == "write" else ():
        patch = arguments.get(key)
        if isinstance(patch, str):
            yield from (name for name in _PATCHED.findall(patch) if name != "/dev/null")


def _named_paths(arguments: Mapping[str, object]) -> Iterator[str]:
    for key, value in arguments.items():
        named = key.casefold() in PATH_KEYS
        if isinstance(value, str):
            if named:
                yield value
            continue
        if is_json_array(value):
            for item in value:
                if isinstance(item, str) and named:
                    yield item
                elif is_json_object(item):
                    yield from _named_paths(item)
        elif is_json_object(value):
            yield from _named_paths(value)
