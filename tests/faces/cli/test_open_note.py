"""What `turnwise run` says of the sandbox before the first command."""

from pathlib import Path

from sandboxes import sandbox_called
from turnwise.drivers.workspace.shell import Shell
from turnwise.faces.cli.run import open_note


def test_missing_sandbox_is_said_where_commands_may_run(tmp_path: Path) -> None:
    """Said with `--allow bash` only: without it no command runs."""
    shell = Shell(tmp_path, sandbox=sandbox_called("none"))
    assert open_note(shell, allow=("bash",)) == open_note(shell, allow=("write", "execute")) == shell.said
    assert "WITHOUT a sandbox" in shell.said
    assert open_note(shell, allow=("write",)) is open_note(shell, allow=()) is None


def test_closed_sandbox_needs_no_word(tmp_path: Path) -> None:
    """Files and network are kept apart, as the documents say."""
    assert open_note(Shell(tmp_path, sandbox=sandbox_called("landlock")), allow=("bash",)) is None
