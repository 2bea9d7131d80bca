"""What is piped into a run goes with its prompt, and nobody waits for a pipe that stays silent (issue 15, line 3)."""

import json
import os
from pathlib import Path
from typing import Any

import pytest

from terminal.running import Cli, Ran, at, begin, end
from turnwise.coding_agent.prompts import MAX_INPUT_BYTES, PATIENCE_S, read_piped
from turnwise.lab import Lab


def piped(*args: str, given: bytes, folder: Path) -> Ran:
    """`... | turnwise ARGS`, the pipe closed at its end."""
    end_read, end_write = os.pipe()
    process = begin(*args, cwd=folder, stdin=end_read)
    os.close(end_read)
    with open(end_write, "wb") as pipe:  # noqa: PTH123
        pipe.write(given)
    return end(process)


def asked(lab: Lab) -> list[Any]:
    """The texts of the last message that the model was sent."""
    content = json.loads(lab.requests[-1].body)["messages"][-1]["content"]
    return [content] if isinstance(content, str) else [part["text"] for part in content]


def test_piped_text_goes_with_the_prompt_and_its_size_is_said(lab: Lab, folder: Path) -> None:
    ran = piped("run", "Explain.", *at(lab, "plain-answer"), given="grüße\n".encode(), folder=folder)
    assert ran.code == 0 and "standard input goes with the prompt: 8 bytes (-n leaves it alone)" in ran.err
    assert "".join(asked(lab)).endswith("Explain.\n\nFrom standard input (8 bytes):\n\ngrüße\n")


def test_a_file_as_standard_input_goes_with_the_prompt(lab: Lab, folder: Path) -> None:
    with (folder / "notes.txt").open("rb") as notes:
        ran = end(begin("run", "Explain.", *at(lab, "plain-answer"), cwd=folder, stdin=notes))
    assert ran.code == 0 and "status: draft" in asked(lab)[-1]


def test_n_leaves_standard_input_to_others(lab: Lab, folder: Path) -> None:
    """As in a shell's loop over lines: the next command reads on where it was."""
    with (folder / "notes.txt").open("rb") as notes:
        ran = end(begin("run", "-n", "Explain.", *at(lab, "plain-answer"), cwd=folder, stdin=notes))
        assert os.read(notes.fileno(), 6) == b"status"
    assert ran.code == 0 and "".join(asked(lab)).endswith("Explain.") and "standard input" not in ran.err


def test_a_large_pipe_says_its_tokens_and_that_it_may_not_fit(lab: Lab, folder: Path) -> None:
    """Issue 15: 4 MB went out as a million tokens with nothing but their bytes said. Of a small one only the bytes are."""
    window = ["--context-window", "50000"]
    ran = piped("run", "Explain.", *window, *at(lab, "plain-answer"), given=b"word " * 40_000, folder=folder)
    assert "goes with the prompt: 200,000 bytes, about 67,000 tokens at most (-n leaves it alone)" in ran.err
    assert (
        "the prompt has about 67,000 tokens at most, and openai_chat:plain-answer takes 50,000: it may not fit"
        in ran.err
    )
    small = piped("run", "Explain.", *window, *at(lab, "plain-answer"), given=b"word", folder=folder)
    assert "tokens at most" not in small.err


def test_a_pipe_that_stays_silent_is_not_waited_for() -> None:
    said: list[str] = []
    end_read, end_write = os.pipe()
    with open(end_read) as silent, open(end_write, "w"):  # noqa: PTH123
        assert read_piped(silent, patience_s=0.0, tell=said.append) == b""
    assert said == ["nothing came on standard input within 0 seconds: going on without it (`-` waits for it)"]
    assert PATIENCE_S == 3.0


def test_a_dash_beside_the_prompt_waits_for_what_is_piped_in(
    cli: Cli, lab: Lab, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "given").write_text("late")
    with (tmp_path / "given").open() as given:
        monkeypatch.setattr("sys.stdin", given)
        assert cli("run", "Explain.", "-", *at(lab, "plain-answer")).code == 0
    assert "".join(asked(lab)).endswith("(4 bytes):\n\nlate")


def test_a_continued_session_takes_what_is_piped_in_too(lab: Lab, folder: Path) -> None:
    end(begin("run", "Explain.", *at(lab, "plain-answer"), cwd=folder))
    ran = piped("run", "--continue", "And this?", given=b"more of it", folder=folder)
    assert ran.code == 0 and "more of it" in asked(lab)[-1]


@pytest.mark.parametrize(
    ("args", "given", "problem"),
    [
        (["say", "hello", "to", "me"], b"", "the PROMPT has come as 4 words: put it in quotes: 'say hello to me'"),
        (["-n", "-"], b"", "`-` reads standard input, and -n leaves it alone: give one of them"),
        (["-"], b" \n", "the prompt on standard input is empty"),
        ([], b"", "no PROMPT: write what the model shall do, or `-` to read it from standard input"),
        (["x"], b"\xff\xfe", "standard input is not UTF-8 (byte 0)"),
        (["x"], b"x" * (MAX_INPUT_BYTES + 1), "standard input is longer than 4,194,304 bytes"),
        (["-"], b"x" * (MAX_INPUT_BYTES + 1), "standard input is longer than 4,194,304 bytes"),
    ],
    ids=["words", "both", "empty", "none", "not utf-8", "long", "long prompt"],
)
def test_what_cannot_be_asked_is_one_line_and_no_request(
    lab: Lab, folder: Path, tmp_path: Path, args: list[str], given: bytes, problem: str
) -> None:
    (tmp_path / "given").write_bytes(given)
    with (tmp_path / "given").open("rb") as stdin:
        ran = end(begin("run", *args, *at(lab, "plain-answer"), cwd=folder, stdin=stdin))
    assert (ran.code, ran.out, len(ran.err.splitlines())) == (2, "", 1) and problem in ran.err
    assert not lab.requests


def test_a_pipe_that_has_begun_is_read_to_its_end() -> None:
    """Once something has come it is waited for, and the person is told what is waited for."""
    said: list[str] = []
    end_read, end_write = os.pipe()
    with open(end_read) as slow, open(end_write, "wb", buffering=0) as writer:  # noqa: PTH123

        def go_on(line: str) -> None:
            said.append(line)
            writer.write(b"two\n")
            writer.close()

        writer.write(b"one\n")
        assert read_piped(slow, patience_s=0.0, tell=go_on) == b"one\ntwo\n"
    assert said == ["reading standard input to its end: 4 bytes so far (Ctrl-C leaves)"]
