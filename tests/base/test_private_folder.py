"""The folder that commands have for themselves is used by its name: `$TMPDIR`, and `/tmp` where that is the same."""

import asyncio
from pathlib import Path

import pytest

from sandboxes import CONFINING, sandbox_called
from turnwise.rules.permissions import PermissionVerdict, Policy, judge_permission
from turnwise.tools.shell_judge import inspect_call
from turnwise.tools.workspace.shell import BashArguments, Shell
from waits import HANG_S


@pytest.fixture(params=CONFINING)
def shell(request: pytest.FixtureRequest, tmp_path: Path) -> Shell:
    root = tmp_path / "root"
    root.mkdir()
    return Shell(root, sandbox=sandbox_called(request.param))


def verdict(shell: Shell, command: str) -> str:
    return judged(shell, command).kind


def judged(shell: Shell, command: str, *, attended: bool = True) -> PermissionVerdict:
    facts = inspect_call(
        "1",
        tool="bash",
        effect="execute",
        arguments={"command": command},
        workspace=shell.root,
        home=shell.root.parent,
        environment={"PATH": "/usr/bin:/bin"},
        private=shell.private_folder(),
    )
    policy = Policy(workspace=str(shell.root), home=str(shell.root.parent), attended=attended)
    return judge_permission(facts, policy=policy)


NAMED = (
    "echo x > $TMPDIR/a; cat $TMPDIR/a",
    'echo x > "$TMPDIR/a"; cat "${TMPDIR}/a"',
    "echo x >> ${TMPDIR}/a && wc -l < $TMPDIR/a && ls -l $TMPDIR",
    "cd $TMPDIR; echo x > a; cat a",
)


@pytest.mark.parametrize("command", NAMED)
async def test_it_is_written_and_read_by_name(command: str, shell: Shell) -> None:
    """The tool's description names `$TMPDIR`: nobody is asked about what goes there, and it arrives (issue 13, line 17)."""
    assert verdict(shell, command) == "allow"
    assert "x" in await asyncio.wait_for(shell.run(BashArguments(command=f"{command}; echo x")), HANG_S)
    assert shell.private_folder() is not None
    assert (Path(shell.private_folder().real) / "a").read_text() == "x\n"  # type: ignore[union-attr]


async def test_tmp_is_the_private_folder_in_bubblewrap_only(shell: Shell) -> None:
    """Under Landlock it is everybody's, and shut."""
    private = shell.sandbox.kind == "bubblewrap"
    for folder in ("/tmp", "/var/tmp"):
        assert verdict(shell, f"echo x > {folder}/a; cat {folder}/a") == ("allow" if private else "ask")


ASKED = (
    "echo x > $TMPDIR/../x",
    "echo x > $TMPDIR/a/../../x",
    "echo x > $TMPDIR/.cache/npm/x",
    "echo x > $TMPDIR/.bashrc",
    "cat $TMPDIR/.env",
    "echo x > $TMPDIR/out",
    "cat $TMPDIR/out",
    "cat $TMPDIR/out/../x",
    "cat $TMPDIRS/a",
    "cat $TMPDIR$X",
    "cat ${TMPDIR:-/etc}/passwd",
    "cat ${TMPDIR%/*}/x",
    "TMPDIR=/etc; cat $TMPDIR/passwd",
    "read TMPDIR <<< /etc; cat $TMPDIR/passwd",
    "for TMPDIR in /etc; do cat $TMPDIR/passwd; done",
    "unset TMPDIR; echo x > $TMPDIR/x",
    "export TMPDIR=/etc; cat $TMPDIR/passwd",
    "printf -v TMPDIR /etc; cat $TMPDIR/passwd",
    "env -i bash -c 'echo x > $TMPDIR/x'",
    "env -u TMPDIR bash -c 'cat $TMPDIR/etc/passwd'",
    "bash $TMPDIR/a",
    "$TMPDIR/a",
)


@pytest.mark.parametrize("command", ASKED)
def test_what_may_lead_out_of_it_is_asked_about(command: str, shell: Shell) -> None:
    """By `..`, by a link that a command made, by another value of the variable; and what runs later from there."""
    private = shell.private_folder()
    assert private is not None
    Path(private.real, "out").symlink_to("/etc/hostname")
    assert verdict(shell, command) == "ask"


def test_a_workspace_below_tmp_is_the_workspace(shell: Shell) -> None:
    """It is mounted over the private folder: its files are those of the user."""
    assert verdict(shell, f"echo x > {shell.root}/a") == "ask"
    assert verdict(shell, f"cat {shell.outputs}/bash-1.txt") == "ask"


def test_without_a_sandbox_there_is_none(tmp_path: Path) -> None:
    """The temporary folder is the user's then."""
    shell = Shell(tmp_path, sandbox=sandbox_called("none"))
    assert shell.private_folder() is None
    assert verdict(shell, "echo x > $TMPDIR/a") == verdict(shell, "echo x > /tmp/a") == "ask"


@pytest.mark.parametrize(
    "command", ["cat {0}/.cache/x", "echo x > $TMPDIR/.cache/x", "cat $TMPDIR/.netrc", "ls {0}/.cache"]
)
def test_a_denial_names_no_folder_of_the_sandbox(command: str, shell: Shell) -> None:
    """Proves: what is told of a path in it is told by the name that the command has for it. Found: the real folder."""
    private = shell.private_folder()
    assert private is not None
    found = judged(shell, command.format(private.names[0]), attended=False)
    assert found.kind == "deny" and private.real not in found.why + found.subject, found
    assert "$TMPDIR" in found.why or "/tmp/" in found.why
