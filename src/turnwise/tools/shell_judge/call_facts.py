"""A call's arguments -> the facts about it: its paths resolved, its command parsed."""

import os
import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import cast

from turnwise.base.programs import ProgramSearch
from turnwise.rules.permission_facts import Access, CallFacts, PathFact, ShellFacts
from turnwise.tools.sandbox.scratch import PrivateFolder
from turnwise.tools.shell_judge.file_states import state_of
from turnwise.tools.shell_judge.paths import Paths
from turnwise.tools.shell_judge.readable import readable
from turnwise.tools.shell_judge.repositories import environment_doubt
from turnwise.tools.shell_judge.shell import inspect_script
from turnwise.tools.workspace.previews import paths_of_call
from turnwise.vocab.file_names import given_name

# Where a tool is not one of ours (`paths_of_call` knows those): arguments that name paths, by the conventions of tools that
# work on files; also in the items of a list (`edits[].path`).
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
) -> CallFacts:
    """What the call would touch and run. Reads the file system (links, globs), runs nothing; never raises for bad arguments.

    `effect` is the tool's (`none, read, write, execute`). `environment` is the one that a command would see (default: this
    process's); `home` what `~` stands for (default: its HOME); `programs` where the names of programs lead for it (default:
    by the environment's PATH, where commands can write in the workspace), `private` the folder that commands have for themselves.
    In the folders `kept` lies what turnwise wrote for the model.
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
        elif command is not None:
            shell = ShellFacts(parsed=False, problem="the command is no text")
    if effect == "none":
        return CallFacts(call_id=call_id, tool=tool, effect=effect)
    access: Access = "read" if effect == "read" else "write"
    facts = _facts(tool, arguments, paths=paths, access=access)
    state = state_of(facts) if effect == "write" else ""
    found = CallFacts(call_id=call_id, tool=tool, effect=effect, paths=facts, shell=shell, state=state)
    return readable(found)


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
        if isinstance(value, list):
            for item in cast("list[object]", value):
                if isinstance(item, str) and named:
                    yield item
                elif isinstance(item, dict):
                    yield from _named_paths(cast("dict[str, object]", item))
        elif isinstance(value, dict):
            yield from _named_paths(cast("dict[str, object]", value))
