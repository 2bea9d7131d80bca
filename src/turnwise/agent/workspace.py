"""`Workspace`: the tools of one folder, as on the command line, for an agent in Python."""

import os
from collections.abc import Collection, Sequence
from pathlib import Path
from weakref import WeakValueDictionary

import msgspec

from turnwise.agent.tools import OneTool
from turnwise.base.clock import Clock
from turnwise.base.extras import require_extras
from turnwise.running.run_context import turn_at_work
from turnwise.running.tools import CallJudging
from turnwise.settings.permission_files import policy_of
from turnwise.settings.settings import read_layers
from turnwise.tools.sandbox import find_sandbox
from turnwise.tools.workspace import workspace_tools
from turnwise.tools.workspace.changes import FileChanges
from turnwise.tools.workspace.paths import WorkspacePaths
from turnwise.tools.workspace.shell import Shell


class Workspace:
    """A toolset that works in one folder: read, write, edit, multi_edit, apply_patch, list, search and bash.

    A call can use a path outside of `folder` only if it is approved. Commands run in a sandbox if the machine has one, and
    without network unless `network` is set. With `sandbox=False` they run without a sandbox. Commands see the usual
    environment variables and those that `env` names. The tool `search` skips files that match a glob in `withheld`.

    `Workspace` finds the paths and commands of its calls, so that permission rules can judge them. The agent's policy judges
    the calls by the same defaults as at the command line: reading in the folder is allowed, and turnwise asks before a call
    writes or runs a command that may do more than read. Without a policy such calls are denied. With `reads_rules` the rules
    of the settings files hold, too; the policy's own rules come after them.

    `changes` keeps the old contents: `workspace.changes.undo_last()` undoes what the last turn changed, of whichever run.
    Runs share the folder and nothing else: the tools remember for one turn which files the model has read, and commands have
    a temporary folder (`$TMPDIR`) for that turn alone. Raises CallerError if the folder does not
    exist. Needs `turnwise[workspace]`.
    """

    def __init__(
        self,
        folder: Path | str,
        *,
        sandbox: bool = True,
        network: bool = False,
        env: Collection[str] = (),
        withheld: Collection[str] = (),
        reads_rules: bool = False,
        changes: FileChanges | None = None,
        clock: Clock | None = None,
    ) -> None:
        require_extras("workspace")
        self.changes = changes if changes is not None else FileChanges()
        self._withheld, self._clock = tuple(withheld), clock
        self.folder = Path(folder)
        self.folder = self._paths().root
        self._network, self._env = network, frozenset(env)
        self._sandbox = find_sandbox(workspace=self.folder) if sandbox else find_sandbox(wanted="none")
        self._shells: WeakValueDictionary[str, Shell] = WeakValueDictionary()  # by the turn that they work for
        self._judging = CallJudging(
            workspace=os.path.realpath(self.folder),
            without_policy="always",
            rules=policy_of(
                read_layers(self.folder, env=os.environ), workspace=self.folder, home=Path.home(), attended=False
            ).rules
            if reads_rules
            else (),
        )

    @property
    def said(self) -> str:
        """How commands run, in a sentence for a person: in which sandbox, with or without network."""
        return self._shell().said

    async def tools(self) -> Sequence[OneTool]:
        """The tools of the folder, with everything that permission rules need to judge their calls."""
        shell = self._shell()
        tools = workspace_tools(self._paths(), shell=shell)
        judging = msgspec.structs.replace(
            self._judging,
            inspect=shell.inspector(tools, clock=self._clock),
        )
        return [msgspec.structs.replace(one, judging=judging) for one in tools]

    def __repr__(self) -> str:
        return f"Workspace({str(self.folder)!r})"

    def _paths(self) -> WorkspacePaths:
        """The folder with its own memory of what was read; it belongs to one turn."""
        return WorkspacePaths(self.folder, changes=self.changes, withheld=self._withheld)

    def _shell(self) -> Shell:
        """A shell with its own temporary folder and stored outputs; they belong to one run and its sub-agents."""
        turn = turn_at_work()
        shell = self._shells.get(turn)
        if shell is None:
            shell = Shell(self.folder, sandbox=self._sandbox, network=self._network, also_env=self._env)
            if turn:
                self._shells[turn] = shell
        return shell
