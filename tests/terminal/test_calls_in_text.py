"""`calls_in_text` from the command line, the user's file and a session: one row of the table of options (issue 16, D)."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from terminal.running import Cli, at, running_lab
from turnwise.lab import Lab
from turnwise.lab.script import Script, ScriptedStep

WRITTEN = '<tool_call>\n{"name": "read", "arguments": {"path": "notes.txt"}}\n</tool_call>'
CALLS = '{"name": "read", "arguments": {"path": "notes.txt"}}'


@pytest.fixture
def lab() -> Iterator[Lab]:
    marked = Script(
        name="marked", title="a call as text", steps=(ScriptedStep(text=WRITTEN), ScriptedStep(text="Read."))
    )
    bare = Script(
        name="bare", title="a call as bare JSON", steps=(ScriptedStep(text=CALLS), ScriptedStep(text="Read."))
    )
    with running_lab(scripts=[marked, bare]) as running:
        yield running


def test_each_place_says_whether_a_written_call_counts(cli: Cli, lab: Lab, folder: Path, tmp_path: Path) -> None:
    """Proves: `auto` at an address that the user names; over it the user's file, the session and the option, in this order."""

    def answer(*options: str, script: str = "marked") -> str:
        return cli("run", "Go.", *options, *at(lab, script)).out.strip()

    assert answer() == "Read."
    assert answer("--calls-in-text", "off") == WRITTEN
    assert answer("--continue") == WRITTEN
    assert answer(script="bare") == CALLS
    assert answer("--calls-in-text", "on", script="bare") == "Read."
    own = tmp_path / "config" / "turnwise" / "turnwise.toml"
    own.parent.mkdir(parents=True, exist_ok=True)
    own.write_text('calls_in_text = "off"\n')
    assert answer() == WRITTEN
    assert answer("--calls-in-text", "auto") == "Read."


def test_a_project_cannot_make_calls_of_what_is_quoted(cli: Cli, lab: Lab, folder: Path) -> None:
    """Proves: its file may have come from elsewhere."""
    (folder / "turnwise.toml").write_text('calls_in_text = "on"\n')
    ran = cli("run", "Go.", *at(lab, "bare"))
    assert (ran.code, lab.count()) == (2, 0)
    assert "cannot make calls of what the model quotes: give --calls-in-text" in ran.complaints()[0]
