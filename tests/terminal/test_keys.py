"""The keys of a session: Esc, Ctrl-Z, an editor, and text that outlives Ctrl-C."""

import asyncio
import os
import shlex
import sys
from collections.abc import Iterator
from pathlib import Path
from unittest import mock

import pytest
from hypothesis import given
from hypothesis import strategies as st

from terminal.person import CTRL_C, CTRL_D, Person, at_terminal
from terminal.running import at, running_lab, script
from terminal.test_processes import wait_until
from turnwise.lab import Lab
from turnwise.terminal.keys import KEYS, TurnKeys
from waits import HANG_S

WAITS = script(
    "waits",
    """
[[steps]]
calls = [{ name = "bash", arguments = { command = "echo begun > begun.txt; until [ -e go.txt ]; do sleep 0.05; done" } }]

[[steps]]
text = "Done."
""",
)
ESC, UP, CTRL_G, CTRL_X, CTRL_E, CTRL_Z = "\x1b", "\x1b[A", "\x07", "\x18", "\x05", "\x1a"
ALLOWED = ("--allow", "bash(echo *)", "--allow", "bash(sleep *)", "--allow", "bash")


@pytest.fixture(scope="module")
def keys_lab() -> Iterator[Lab]:
    with running_lab([WAITS]) as lab:
        yield lab


@pytest.fixture
def lab(keys_lab: Lab) -> Lab:
    keys_lab.reset()
    return keys_lab


def begin(person: Person, folder: Path) -> None:
    person.sees("\n>")
    person.types("Go.\r")
    person.sees("→ bash")
    wait_until((folder / "begun.txt").exists)


@pytest.mark.parametrize("columns", [60, 80, 200])
@pytest.mark.promise("wait:cancel")
def test_esc_ends_the_turn_and_half_a_text_outlives_it(lab: Lab, folder: Path, columns: int) -> None:
    """An arrow key in mid-turn ends nothing; a second Esc does not end the program. What was begun stands at the next prompt;
    Ctrl-C clears it there, and Up brings it back. At a question, Esc ends the turn too."""
    with at_terminal(*ALLOWED, *at(lab, "waits"), cwd=folder, columns=columns) as person:
        begin(person, folder)
        person.types(UP)
        person.types("half a te")
        person.sees("half a te")
        person.types(ESC)
        person.sees("stopping (")
        person.types(ESC)
        person.sees("cancelled (")
        person.sees("\n> half a te")
        person.types(CTRL_C)
        person.sees("\n>")
        person.types(UP)
        person.sees("half a te")
        person.types(CTRL_C)
        person.sees("\n>")
        person.types(CTRL_D)
        person.leaves_by(0)
        assert person.is_cooked()
    assert "half" not in (folder.parent / "state" / "prompts").read_text()
    (folder / "begun.txt").unlink()
    with at_terminal(*at(lab, "waits"), cwd=folder) as person:
        person.sees("\n>")
        person.types("Go.\r")
        person.sees("then no)")
        person.types(ESC)
        person.sees("cancelled (")
    assert not (folder / "begun.txt").exists()


@pytest.mark.parametrize("keys", [CTRL_G, CTRL_X + CTRL_E], ids=["ctrl-g", "ctrl-x ctrl-e"])
def test_a_text_is_edited_in_an_editor(lab: Lab, folder: Path, keys: str) -> None:
    """It gets the text so far, and what it leaves stands at the prompt, unsent."""
    editor = folder.parent / "my editor"
    editor.write_text('#!/bin/sh\ngrep -q "^begun$" "$1" && printf "first line\\nsecond line\\n" > "$1"\n')
    editor.chmod(0o700)
    env = {"EDITOR": shlex.quote(str(editor)), "VISUAL": ""}
    with at_terminal(*at(lab, "plain-answer"), cwd=folder, env=env) as person:
        person.sees("\n>")
        person.types(f"begun{keys}")
        person.sees("second line")
        assert lab.count() == 0
        person.types("\r")
        person.sees("Hello from the lab.")
        person.sees("\n>")
        person.types(CTRL_D)
        person.leaves_by(0)
    assert "first line\\nsecond line" in lab.requests[-1].body.decode()


def test_no_editor_is_said(lab: Lab, folder: Path) -> None:
    env = {"EDITOR": "", "VISUAL": "", "PATH": str(folder)}
    with at_terminal(*at(lab, "plain-answer"), cwd=folder, env=env) as person:
        person.sees("\n>")
        person.types(f"begun{CTRL_G}")
        person.sees("there is no editor here: name one in $EDITOR")
        person.sees("> begun")
        person.types(CTRL_C)


@pytest.mark.parametrize("columns", [60, 80, 200])
@pytest.mark.promise("wait:cancel")
def test_ctrl_z_gives_the_terminal_to_the_shell_and_fg_goes_on(lab: Lab, folder: Path, columns: int) -> None:
    """At the prompt and in mid-turn, under a real shell: while turnwise is suspended, the shell echoes and runs commands; then
    the turn goes on, and keys are read as before."""
    line = shlex.join([sys.executable, "-m", "turnwise", *ALLOWED, *at(lab, "waits")])
    env = {"PS1": "shell$ ", "HISTFILE": os.devnull}
    with at_terminal("--norc", "--noprofile", "-i", cwd=folder, env=env, program=("bash",), columns=columns) as person:
        person.sees("shell$ ")
        person.types(f"{line}\r")
        person.sees("\n>")
        person.types(f"half{CTRL_Z}")
        person.sees("Stopped")
        person.sees("shell$ ")
        person.types("echo $((40 + 1))\r")
        person.sees("\n41\n")
        person.types("fg\r")
        person.sees("> half")
        person.types(CTRL_C)
        begin(person, folder)
        person.types(CTRL_Z)
        person.sees("Stopped")
        person.sees("shell$ ")
        person.types("echo $((40 + 2)); touch go.txt\r")
        person.sees("\n42\n")
        person.types("fg\r")
        person.sees("Done.")
        person.sees("\n>")
        person.types(CTRL_D)
        person.sees("shell$ ")
        person.types("exit\r")
        person.leaves_by(0)


SENT = [key.turn for key in KEYS if key.turn]
OTHERS = ["a", "é", " ", "\r", UP, "\x1b[1;5C", "\x1bOP", "\x1bf", "\x1b\r", "\t"]


@given(st.lists(st.sampled_from([*SENT, *OTHERS])), st.data())
def test_keys_of_a_turn_are_found_however_they_come_in_pieces(typed: list[str], data: st.DataObject) -> None:
    """Each key of the table is found once, in order; the rest comes out whole. Esc is one where nothing follows it: before
    another key it would be the beginning of that one, so here it stands at the end."""
    typed = [one for one in typed if one != ESC]
    text = "".join(typed)
    cuts = sorted(data.draw(st.sets(st.integers(0, len(text)))))
    found: list[str] = []
    rest = asyncio.run(_sifted([text[a:b] for a, b in zip([0, *cuts], [*cuts, len(text)], strict=True)], found))
    assert rest == "".join([one for one in typed if one not in SENT])
    assert found == [*[key.does for one in typed for key in KEYS if key.turn == one], "stop"]


async def _sifted(pieces: list[str], found: list[str]) -> str:
    reading, writing = os.pipe()
    try:
        stopped = asyncio.Event()
        keys = TurnKeys(lambda does: (found.append(does), does == "stop" and stopped.set()), descriptor=reading)
        with mock.patch("turnwise.terminal.keys.ESC_S", 0):
            rest = "".join([keys.sift(piece) for piece in [*pieces, ESC]])
        await asyncio.wait_for(stopped.wait(), HANG_S)
        return rest
    finally:
        os.close(reading)
        os.close(writing)
