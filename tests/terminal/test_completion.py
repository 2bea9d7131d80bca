"""Tab completes commands, options, models and sessions in a shell, and `/` commands and `@` paths in a session."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tables import each
from terminal.running import Cli, at
from turnwise.lab import Lab
from turnwise.terminal.words import endings
from waits import HANG_S


def completed(words: str, *, at_word: int, folder: Path) -> list[str]:
    """What click answers a bash that asks for the word at that place."""
    env = {**os.environ, "_TURNWISE_COMPLETE": "bash_complete", "COMP_WORDS": words, "COMP_CWORD": str(at_word)}
    code = "import sys; sys.argv[0] = 'turnwise'; from turnwise.terminal.main import main; main()"
    ran = subprocess.run(
        [sys.executable, "-c", code], cwd=folder, env=env, capture_output=True, text=True, timeout=HANG_S, check=False
    )
    assert ran.stderr == ""
    return [line.partition(",")[2] for line in ran.stdout.splitlines() if line]


@pytest.mark.parametrize(
    ("words", "at_word", "found"),
    [
        ("turnwise se", 1, "sessions"),
        ("turnwise run --no-st", 2, "--no-stream"),
        ("turnwise run -m anthr", 3, "anthropic:"),
        ("turnwise doc", 1, "doctor"),
        ("turnwise models anthr", 2, "anthropic"),
        ("turnwise models anthropic:claude-so", 2, "anthropic:claude-sonnet-4"),
        ("turnwise compare -m anthropic:claude-so", 3, "anthropic:claude-sonnet-4"),
    ],
)
def test_a_shell_completes_words_and_models(folder: Path, words: str, at_word: int, found: str) -> None:
    assert any(word.startswith(found) for word in completed(words, at_word=at_word, folder=folder))


@pytest.mark.costly
def test_a_shell_completes_sessions_and_makes_no_journal(cli: Cli, lab: Lab, folder: Path, tmp_path: Path) -> None:
    assert completed("turnwise run --session ", at_word=3, folder=folder) == []
    assert not (tmp_path / "state").exists()
    session = cli("run", "Hello.", "--json", *at(lab, "plain-answer")).events()[-1]["session"]
    assert completed("turnwise run --session ", at_word=3, folder=folder) == [session[-8:]]
    assert completed("turnwise sessions show ", at_word=3, folder=folder) == [session[-8:]]


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_what_is_printed_asks_turnwise_for_words(cli: Cli, shell: str) -> None:
    ran = cli("completion", shell)
    assert ran.code == 0 and f"_TURNWISE_COMPLETE={shell}_complete" in ran.out


def test_what_is_printed_for_bash_is_a_script_of_bash(cli: Cli) -> None:
    checked = subprocess.run(
        ["bash", "-n"], input=cli("completion", "bash").out, text=True, capture_output=True, timeout=HANG_S, check=False
    )
    assert (checked.returncode, checked.stderr) == (0, "")


def test_the_shell_in_use_is_meant_where_none_is_named(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SHELL", "/usr/bin/fish")
    assert "function _turnwise_completion" in cli("completion").out
    monkeypatch.setenv("SHELL", "/bin/tcsh")
    ran = cli("completion")
    assert ran.code == 2 and "which shell? Give one of bash, zsh, fish" in ran.err


@each(
    ("line", "found"),
    [
        ("/u", ["/usage", "/undo"]),
        ("say /u", []),
        ("look at @s", ["src/", "su b.txt"]),
        ("@src/", ["src/a.py"]),
        ("@src/a", ["src/a.py"]),
        ("@su\\ b", ["su\\ b.txt"]),
        ("@.h", [".hidden"]),
        ("ada@s", []),
        ("@no_such/", []),
        ("@\0", []),
    ],
)
def test_commands_and_paths_are_completed_in_a_session(tmp_path: Path, line: str, found: list[str]) -> None:
    (tmp_path / "src").mkdir()
    for name in ("src/a.py", "su b.txt", ".hidden", "bad\x1bname"):
        (tmp_path / name).write_text("x")
    texts = [text for text, _ in endings(line, commands=["/usage", "/undo", "/help"], folder=tmp_path)]
    assert texts == [name.replace("su b", "su\\ b") if "\\" not in name else name for name in found]
