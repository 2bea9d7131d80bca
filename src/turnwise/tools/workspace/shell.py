"""The tool `bash`: a command in the workspace, in a sandbox where there is one, with a deadline and a bounded output."""

import asyncio
import functools
import os
import re
import shutil
import signal
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Annotated

import msgspec
from msgspec import Meta

from turnwise.base.clock import Clock
from turnwise.base.processes import run_group
from turnwise.base.programs import ProgramSearch, is_program
from turnwise.errors import ToolFault
from turnwise.rules.permission_facts import Keeps
from turnwise.rules.permissions import PLAN_ONLY
from turnwise.running.run_context import Inspector, kept_of_command, programs_at_hand, runs_unasked, seconds_of
from turnwise.running.tools import Tool
from turnwise.running.working_call import telling
from turnwise.tools.sandbox import (
    CannotGuard,
    GitGuard,
    RestoredFiles,
    Sandbox,
    Scratch,
    Wrapped,
    command_environment,
    find_sandbox,
)
from turnwise.tools.sandbox.environment import NOBODY_EDITS, PrivateFolder
from turnwise.tools.sandbox.git import GitFolders, find_git_folders
from turnwise.tools.sandbox.guarded_files import GuardedFiles
from turnwise.tools.sandbox.sandbox_types import CommandBounds, allowed_bounds, unasked_bounds
from turnwise.tools.shell_judge import inspector
from turnwise.tools.workspace.output import MAX_FILES, Tape
from turnwise.turn.outcomes import TURNS_TIME
from turnwise.vocab.file_names import shown_name

DEFAULT_S = 120
MAX_S = 1800
MAX_TOLD = 20  # of the files that were moved aside
KEPT_BYTES = 24 * 1024  # of the head and of the tail each; below the cap on results

# Where PATH has none that is apart: it may name a virtual environment only, or the workspace may be all of the machine.
_SHELLS = ("/bin/bash", "/usr/bin/bash", "/bin/sh")

# A command that names none of its temporary folders finds them empty, if it runs unasked: programs put there what they need
# themselves, and forget it.
_TEMPORARY = re.compile("tmp|temp|cache|/shm", re.IGNORECASE)

_REFUSED = re.compile(rb"^.*: (?:Read-only file system|Permission denied)$", re.MULTILINE)
_OF_GIT = re.compile(rb"^(?:fatal|error): .*\.git\b", re.MULTILINE)
_NO_SETTING = re.compile(rb"^error: could not (?:lock|write) config file ", re.MULTILINE)
_NO_PUSH = b"error: remote unpack failed: unable to create temporary object directory"
_KEPT_OF_GIT = re.compile(rb"\.git/(?:[^\n':]*/)?(?:info|hooks)/")
_NO_EDITOR = re.compile(rb"^error: (?:There was a problem with the|unable to start) editor ", re.MULTILINE)
# Its rules allow folders and files, not the name of a file that is not there yet, such as `packed-refs.lock`.
_UNDER_LANDLOCK = """. Under Landlock git can delete no branch, pack no references, run no `git gc`, and end no cherry-pick, \
revert or bisect in a working tree beside the repository: ask the user to do that, to install bubblewrap, or to start \
turnwise with --no-sandbox"""

_READ_ONLY = b"Read-only file system"
_BUSY = b": Device or resource busy"
_BY_SANDBOX = re.compile(rb"^(?:bwrap|turnwise): ", re.MULTILINE)
NOT_UNASKED = "the command was not run unasked: call it again, and the user is asked"
KEPT_SAID = {
    "folder": "in plan mode a command finds the folder read-only, and has no network: write your plan as your answer",
    "guarded": "A command that nobody was asked about changes no guarded file (secrets, and what runs later by itself, such as"
    " settings, hooks and instructions), and has no network. Change such a file with a file tool, about which the user is asked,"
    " or ask the user to run the command",
}

DESCRIPTION = """Run a command with bash in the workspace folder. Its output (standard output and error together) is \
returned, and its exit code where that is not 0. It has no terminal and no standard input. When it ends or runs out of \
time, everything that it started is ended too."""
_CONFINED = """ It runs in a sandbox: it can write in the workspace and in $TMPDIR only, {network}, and what git executes \
(.git/config, .git/hooks) stays as it is."""


class BashArguments(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    command: Annotated[str, Meta(description="The command")]
    timeout_s: Annotated[int, Meta(ge=1, le=MAX_S, description="Seconds after which it is ended")] = DEFAULT_S


class Shell:
    """The commands of one session in one folder.

    `sandbox` is how they are kept apart (else the best there is here). They may write in `root`, in `writable` and in a private
    temporary folder; they reach the network with `network` only. They see the usual variables, those in `also_env`, and none of
    `hidden_env`: the provider's key must not reach them. `private` are files that they must not read. `unasked` are the bounds of
    those that nobody is asked about (else the usual ones). `lost` is told why commands cannot run unasked any more.
    """

    def __init__(
        self,
        root: Path,
        *,
        sandbox: Sandbox | None = None,
        unasked: CommandBounds | None = None,
        network: bool = False,
        writable: Iterable[Path] = (),
        also_env: frozenset[str] = frozenset(),
        hidden_env: frozenset[str] = frozenset(),
        private: Iterable[Path] = (),
        lost: Callable[[str], object] = str,
    ) -> None:
        self.root = root
        self._lost = lost
        self.sandbox = sandbox or find_sandbox(workspace=root)
        self.network = network
        self._writable = tuple(writable)
        folders = [str(path) for path in (*self._writable, *self.sandbox.private_folders)]
        self.programs = ProgramSearch(os.environ.get("PATH"), workspace=str(root.resolve()), writable=folders)
        self._unasked = unasked
        self._also_env = also_env
        self._hidden_env = hidden_env
        self._private = tuple(private)
        self._scratch = Scratch()
        self._count = 0
        self._can_guard = True
        self._git = find_git_folders(root.resolve()) if self.sandbox.files else GitFolders()

    @property
    def said(self) -> str:
        """One line for people on how commands run here, to be shown before the first."""
        git = self._git.opened[-1].at if self._git.opened else None
        return self.sandbox.said(workspace=self.root, network=self.network, git=git)

    @property
    def has_network(self) -> bool:
        """Whether its commands reach the network."""
        return self.network or not self.sandbox.network

    @property
    def description(self) -> str:
        if not self.sandbox.files:
            return DESCRIPTION
        network = "it can use the network" if self.has_network else "it has no network"
        return DESCRIPTION + _CONFINED.format(network=network)

    @property
    def outputs(self) -> Path:
        """The folder with the outputs that were too long to show."""
        return self._scratch.outputs

    def kept(self) -> Path | None:
        """The same, once there may be one."""
        return self.outputs if self._count else None

    @property
    def is_confined(self) -> bool:
        """Whether a sandbox keeps its commands from other files, guarded ones, secrets, other processes and the network."""
        return self.sandbox.confines and self._can_guard and not self.has_network

    def inspector(self, tools: Iterable[Tool], *, clock: Clock | None = None, foresees: bool = False) -> Inspector:
        """Finds the facts of calls of `tools`, as its commands will see the folder. `foresees`: it also says which would fail."""
        return inspector(
            tools,
            workspace=self.root,
            environment=command_environment(os.environ, temporary=None, also=self._also_env, hidden=self._hidden_env),
            programs=self.programs,
            private=self.private_folder,
            is_confined=lambda: self.is_confined,
            foresees=foresees,
            clock=clock,
        )

    def private_folder(self) -> PrivateFolder | None:
        """What its commands have for themselves alone; None where they share the user's temporary folder. Raises OSError where
        it cannot be made."""
        if not self.sandbox.files:
            return None
        real = str(self._scratch.temporary)
        names = tuple(str(path) for path in self.sandbox.private_folders) or (real,)
        folders = (
            self.root.resolve(),
            self._scratch.root,
            *[path.resolve() for path in self._writable],
            *self._private,
        )
        others = tuple(str(folder) for folder in folders) if names != (real,) else ()
        return PrivateFolder(real=real, names=names, others=others)

    async def run(self, given: BashArguments) -> str:
        """Its output. Raises ToolFault with the output and the reason where it failed or ran out of time."""
        program = self._shell()
        if "\0" in given.command:
            raise ToolFault("a command must not hold a NUL character")
        keeps = kept_of_command()
        if keeps == "folder" and not (self.sandbox.confines or runs_unasked()):
            raise ToolFault(f"no sandbox here keeps the folder as it is, and {PLAN_ONLY}")
        watched = telling()
        listener = None if watched is None else watched.take_output
        tape = Tape(kept_bytes=KEPT_BYTES, spill=self._next_output(), tell=listener)
        git_folders = self._git_folders()
        guards = [] if keeps == "folder" else self._git_guards(git_folders)
        git: list[RestoredFiles] = []
        notes: list[str] = []
        timeout_s, is_turns = seconds_of(given.timeout_s)
        kept = await self._kept()
        bounds = (self._unasked or unasked_bounds()) if runs_unasked() else allowed_bounds()
        try:
            code, report = await self._run(
                [program, "-c", given.command],
                timeout_s=timeout_s,
                tape=tape,
                bounds=bounds,
                git=git_folders,
                keeps=keeps,
                kept=() if kept is None else kept.mounts,
            )
            near = report if report.startswith("near ") else ""
            if report and not near:
                notes.append(f"[{bounds.hit(report)}]")
            elif code and (likely := bounds.likely_hit(tape.ending, near=near)):
                notes.append(f"[exit code {_shown(code)}; {likely}]")
            elif code:
                notes.append(f"[exit code {_shown(code)}]")
        except TimeoutError:
            why = f": {TURNS_TIME}" if is_turns else ""
            notes.append(f"[timed out after {round(timeout_s, 2):g} s{why}; it and what it started were ended]")
        finally:
            git += [guard.put_back() for guard in guards]
            moved = await self._put_back(kept)
        if notes and keeps == "guarded" and _BY_SANDBOX.search(tape.ending):
            await self._look_again()
        failed = bool(notes)
        notes += [f"[{one}]" for one in self._refusal_told(tape, git=git_folders, failed=failed, keeps=keeps)]
        if moved:
            more = [f"and {len(moved) - MAX_TOLD:,} more"] if len(moved) > MAX_TOLD else []
            notes.append(f"[{'; '.join([*moved[:MAX_TOLD], *more])}. {KEPT_SAID['guarded']}]")
        notes += [f"[{one}]" for done in git for one in done.told]
        if changed := [path for done in git for path in done.changed]:
            notes.append(f"[{', '.join(changed)}: put back as before; a command may not change what git executes]")
        if broken := tape.broken:
            notes.append(f"[bytes that are no UTF-8: {broken:,}, shown as \ufffd]")
        text = (_with_break(tape.text()) if notes else tape.text()) + "\n".join(notes)
        if failed:
            raise ToolFault(text)
        return text

    async def _kept(self) -> GuardedFiles | None:
        """What the current command must not change, where it runs because the sandbox keeps it in. Raises ToolFault."""
        if kept_of_command() != "guarded":
            return None
        try:
            if not self.sandbox.confines:
                raise CannotGuard("no sandbox here keeps it in")
            return await asyncio.to_thread(GuardedFiles, self.root.resolve())
        except CannotGuard as error:
            self._can_guard = False
            self._lost(str(error))
            raise ToolFault(f"{NOT_UNASKED}: {error}") from None

    async def _put_back(self, kept: GuardedFiles | None) -> list[str]:
        """What was moved aside. Where that cannot be, the session asks again, and the person is told."""
        try:
            return [] if kept is None else await asyncio.to_thread(kept.put_back)
        except CannotGuard as error:
            self._lost(str(error))
            return [str(error)]

    async def _look_again(self) -> None:
        if not await asyncio.to_thread(self.sandbox.still_works):
            self._lost("the sandbox does not work any more")

    def confined(self, argv: Sequence[str], *, env: Mapping[str, str], given: bytes) -> Wrapped:
        """A program of the user's, to be started with the folder read-only and without network. It reads `given`, and gets the
        variables of `env` that hold no secret. Raises ToolFault where no sandbox can do that."""
        program = shutil.which(argv[0], path=env.get("PATH"))
        if not self.sandbox.confines or program is None:
            raise ToolFault("it was not run: in plan mode it needs a sandbox that keeps the folder as it is")
        descriptor = os.memfd_create("turnwise-given")
        os.write(descriptor, given)
        os.lseek(descriptor, 0, os.SEEK_SET)
        wrapped = self.sandbox.wrap(
            [str(Path(program).absolute()), *argv[1:]],
            workspace=self.root,
            scratch=self._scratch,
            also_env=frozenset(env),
            hidden_env=self._hidden_env,
            own=self._private,
            outer_env=env,
            shown=[path for path in map(Path, (program, *argv)) if path.is_absolute() and path.is_file()],
            given=descriptor,
            reads_only=True,
        )
        return msgspec.structs.replace(wrapped, descriptors=(*wrapped.descriptors, descriptor))

    def _git_folders(self) -> GitFolders:
        """What of the repository lies elsewhere and may be written by the next command."""
        return find_git_folders(self.root.resolve()).since(self._git) if self.sandbox.files else GitFolders()

    def _refusal_told(self, tape: Tape, *, git: GitFolders, failed: bool, keeps: Keeps) -> list[str]:
        """What a command is told that was refused a place to write: programs only know that the file system is read-only."""
        refusals = b"\n".join(_REFUSED.findall(tape.ending)) if self.sandbox.files else b""
        if keeps and (_READ_ONLY in tape.ending or (failed and _BUSY in tape.ending)):
            return [KEPT_SAID[keeps]]
        if git.why and (_OF_GIT.search(refusals) or os.fsencode(git.refused) in refusals):
            return [
                f"the sandbox did not let git write: the repository's folder `{shown_name(git.refused)}` lies outside"
                f" of the workspace and is not opened, as {git.why}. Ask the user to commit, or to start turnwise in"
                " that repository or with --no-sandbox"
            ]
        if (self.sandbox.files and _NO_SETTING.search(tape.ending)) or _KEPT_OF_GIT.search(refusals):
            return [
                "the sandbox keeps what git executes (its configuration, hooks, `info`, `objects/info`) as it is; what else"
                " git says it did is done. If the change is needed, ask the user for it, or to start turnwise with --no-sandbox"
            ]
        near_git = any(os.fsencode(one.at) in refusals for one in git.opened)
        unpacked = failed and _NO_PUSH in tape.ending
        if near_git or unpacked or (failed and b": Read-only file system" in refusals):
            under = self.sandbox.kind == "landlock" and any(one.shared for one in git.opened)
            return [f"the sandbox lets a command write in {self._places(git)} only{_UNDER_LANDLOCK if under else ''}"]
        if _NO_EDITOR.search(tape.ending) and NOBODY_EDITS.encode() not in tape.ending:
            return [f"git opened an editor, and {NOBODY_EDITS}"]
        return []

    def _places(self, git: GitFolders) -> str:
        whole = (*self._writable, *[one.at for one in git.opened if not one.shared])
        named = [f"`{shown_name(str(path))}`" for path in whole]
        parts = "objects, refs and logs" if self.sandbox.kind == "landlock" else "objects, refs, logs and packed-refs"
        shared = [f"{parts} of `{shown_name(str(one.at))}`" for one in git.opened if one.shared]
        return ", ".join(["the workspace", *named, *shared]) + " and $TMPDIR"

    def _git_guards(self, git: GitFolders) -> list[GitGuard]:
        """One for each folder in which the command may write. Raises ToolFault where one cannot be."""
        if not self.sandbox.files:
            return []
        mounted = self.sandbox.kind == "bubblewrap"
        try:
            others = [GitGuard(path, mounted=mounted, named=f"{path}/") for path in self._writable]
            return [GitGuard(self.root, mounted=mounted, opened=git.opened), *others]
        except CannotGuard as error:
            raise ToolFault(str(error)) from None

    def _shell(self) -> str:
        """A bash that no command can have changed. Raises ToolFault where there is none."""
        found = self.programs.first_apart("bash") or next(filter(is_program, _SHELLS), "")
        if not found:
            raise ToolFault("there is no bash on this machine")
        return found

    async def _run(
        self,
        argv: list[str],
        *,
        timeout_s: float,
        tape: Tape,
        bounds: CommandBounds,
        git: GitFolders,
        keeps: Keeps,
        kept: Sequence[Path],
    ) -> tuple[int, str]:
        """Its exit code, and what its keeper said of its bounds."""
        judged = programs_at_hand()
        run = functools.partial(
            self._run_with, argv, timeout_s=timeout_s, tape=tape, bounds=bounds, git=git, keeps=keeps, kept=kept
        )
        if judged is None:
            return await run()
        if judged.only_apart:
            return await run(path=self.programs.path_apart)
        with self._scratch.programs(judged.names) as folder:
            return await run(path=f"{folder}:{self.programs.path}", shown=(folder.parent,))

    async def _run_with(
        self,
        argv: list[str],
        *,
        timeout_s: float,
        tape: Tape,
        bounds: CommandBounds,
        git: GitFolders,
        keeps: Keeps,
        kept: Sequence[Path],
        path: str = "",
        shown: tuple[Path, ...] = (),
    ) -> tuple[int, str]:
        """`path` is what PATH is for it, if not as usual; `shown` are folders that it may read."""
        try:
            wrapped = self.sandbox.wrap(
                argv,
                workspace=self.root,
                scratch=self._scratch,
                writable=self._writable,
                network=self.network and not keeps,
                also_env=self._also_env,
                hidden_env=self._hidden_env,
                own=self._private,
                outer_env={**os.environ, "PATH": path} if path else None,
                shown=(*shown, *self._hidden_top(git)),
                git=git.opened,
                bounds=bounds,
                fresh=_TEMPORARY.search(argv[-1]) is None,
                reports=True,
                reads_only=keeps == "folder",
                kept=kept,
            )
        except OSError as error:  # nothing runs without the sandbox that was promised
            self._lost(f"the sandbox could not be made: {error}")
            raise ToolFault(f"the command was not run, as its sandbox could not be made: {error}") from None
        try:
            code = await run_group(
                wrapped.argv,
                cwd=self.root,
                env=wrapped.env,
                timeout_s=timeout_s,
                on_output=tape.write,
                descriptors=wrapped.descriptors,
                layers=wrapped.layers,
                watches=wrapped.watches,
            )
            report = b"" if wrapped.report is None else os.pread(wrapped.report, 1000, 0)
            return code, report.decode()
        except TimeoutError:  # an OSError too
            raise
        except OSError as error:
            raise ToolFault(f"the command could not be started: {error.strerror}") from None
        finally:
            for descriptor in wrapped.descriptors:
                os.close(descriptor)

    def _hidden_top(self, git: GitFolders) -> tuple[Path, ...]:
        """The working tree around the workspace, where a private folder lies over it: git would take its files for deleted."""
        covers = any(git.top.is_relative_to(one) for one in self.sandbox.private_folders) if git.top else False
        return (git.top,) if git.top and covers else ()

    def _next_output(self) -> Path:
        self._count += 1
        (self.outputs / f"bash-{self._count - MAX_FILES}.txt").unlink(missing_ok=True)
        return self.outputs / f"bash-{self._count}.txt"


def _shown(code: int) -> str:
    """With the signal's name: shells and sandboxes say 128 + its number of a process that a signal ended."""
    number = -code if code < 0 else code - 128
    try:
        return f"{128 + number} ({signal.Signals(number).name})"
    except ValueError:
        return str(code)


def _with_break(text: str) -> str:
    return text if not text or text.endswith("\n") else text + "\n"
