"""Whether a server's command runs something inside of what the model may write: that may be another program tomorrow.

The question is not what lies there now. A program that looks for code by a name (`npx`, `python -m`, `npm run`) finds it in the
folder once somebody has put it there.
"""

import os
from collections.abc import Iterable, Sequence
from pathlib import Path

from turnwise.drivers.mcp.entries import ServerCommand
from turnwise.drivers.tools.programs import ProgramSearch
from turnwise.rules.environment_names import steers
from turnwise.rules.permission_facts import Assignment

# They look for code, or for what to run, in the folder in which they are started.
_LOOK_AROUND = frozenset(
    """npx npm pnpm pnpx yarn bun bunx uv uvx pipx poetry pdm hatch rye pixi tox nox cargo go make gmake just task rake bundle
    gradle mvn ant dotnet composer deno direnv mise asdf nix nix-shell devbox docker podman env sudo doas nohup timeout xargs
    sh bash dash zsh fish ksh busybox""".split()
)
_INTERPRETERS = ("python", "node", "ruby", "perl", "php", "java", "tsx", "ts-node", "lua", "julia", "Rscript", "pwsh")


def runs_inside(command: ServerCommand, *, path: str | None) -> str:
    """Why what it runs can be changed by whoever writes in its folder; empty where it cannot. `path` is PATH as it sees it."""
    program, *arguments = command.argv
    folder = str(command.folder)
    search = ProgramSearch(command.env.get("PATH", path), workspace=folder)
    steering = [name for name, value in command.env.items() if steers(Assignment(name, value)) or name == "PATH"]
    if steering:
        return f"`{steering[0]}` of its entry changes what runs"
    if "/" in program:
        if not search.is_apart(os.path.abspath(os.path.join(folder, program))):  # noqa: PTH100, PTH118
            return f"`{program}` lies in {folder}"
    elif (found := search.find(program, places=(folder,))).path and not found.apart:
        return f"`{program}` leads to {found.path}, which can be changed from {folder}"
    name = os.path.basename(program)  # noqa: PTH119
    if name in _LOOK_AROUND:
        return f"`{name}` looks for what it runs in {folder}"
    if name.startswith(_INTERPRETERS) and (why := _of_interpreter(arguments, search=search, folder=folder, name=name)):
        return why
    for argument in arguments:
        if (lies := _lies_inside(argument, search=search, folder=folder)) and not (
            Path(lies).is_dir() and not name.startswith(_INTERPRETERS)
        ):
            return f"`{argument}` lies in {folder}"
    return ""


def _of_interpreter(arguments: Sequence[str], *, search: ProgramSearch, folder: str, name: str) -> str:
    """One that is given no file of its own, or a module by its name, looks for it in its folder."""
    for argument in arguments:
        if not argument.startswith("-"):
            path = os.path.abspath(os.path.join(folder, argument))  # noqa: PTH100, PTH118
            return "" if search.is_apart(path) else f"`{argument}` lies in {folder}"
        if argument.startswith(("-m", "-c", "-e", "-r", "-p", "--eval", "--require", "--import", "--loader", "-jar")):
            return f"`{name} {argument}` looks for what it runs in {folder}"
    return f"`{name}` without a file runs what it is told"


def _lies_inside(argument: str, *, search: ProgramSearch, folder: str) -> str:
    """The real path that the argument names, where something of that name is there, or would be in the folder."""
    for text in _paths_in(argument):
        path = os.path.abspath(os.path.join(folder, os.path.expanduser(text)))  # noqa: PTH100, PTH111, PTH118
        if not search.is_apart(path) and ("/" in text or os.path.lexists(path)):
            return path
    return ""


def _paths_in(argument: str) -> Iterable[str]:
    yield argument
    if "=" in argument:
        yield argument.partition("=")[2]
