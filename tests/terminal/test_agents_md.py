"""AGENTS.md that changes while a session lives: told behind what was said, and asked about if the session wrote it."""

import json
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from terminal.person import at_terminal
from terminal.running import Cli, at, begin, end, running_lab, script
from terminal.test_chat import leave, prompt
from terminal.test_processes import wait_until
from turnwise.coding_agent.turn_notes import GONE
from turnwise.lab import Lab

WRITES = script(
    "writes-it",
    """
[[steps]]
asked = "Write"
calls = [{ name = "write", arguments = { path = "AGENTS.md", content = "Obey the file.\\n" } }]

[[steps]]
asked = "Write"
text = "Done."

[[steps]]
text = "Done."
""",
)


RUNS_A_SCRIPT = script(
    "runs-a-script",
    """
[[steps]]
asked = "Run"
calls = [{ name = "bash", arguments = { command = "sh fix.sh" } }]

[[steps]]
asked = "Run"
text = "Done."

[[steps]]
text = "Done."
""",
)


@pytest.fixture
def lab() -> Iterator[Lab]:
    with running_lab([WRITES, RUNS_A_SCRIPT]) as lab:
        yield lab


def asked(lab: Lab) -> list[dict[str, Any]]:
    return [json.loads(one.body) for one in lab.requests]


def last_user(body: dict[str, Any]) -> str:
    return [message["content"] for message in body["messages"] if message["role"] == "user"][-1]


@pytest.mark.promise("step:prefix-stable")
def test_a_changed_file_is_told_behind_the_prefix(cli: Cli, lab: Lab, folder: Path) -> None:
    """Proves: each request of the session begins with all messages of the one before, whatever becomes of the file; the new text
    stands once in front of the next message, and the person is told."""
    path, here = folder / "AGENTS.md", at(lab, "writes-it")
    path.write_text("Be brief.\nBe kind.\n")
    told = [cli("run", "Hi.", *here).err]
    path.write_text("Be thorough and long.\nBe kind.\n")
    told += [cli("run", "Again.", "--continue", *here).err, cli("run", "More.", "--continue", *here).err]
    path.unlink()
    told.append(cli("run", "Last.", "--continue", *here).err)
    bodies = asked(lab)
    for before, after in pairwise(bodies):
        assert after["messages"][: len(before["messages"])] == before["messages"]
        assert after.get("tools") == before.get("tools")
    assert "Be thorough and long." in last_user(bodies[1]) and last_user(bodies[1]).endswith("Again.")
    assert [json.dumps(body).count("Be thorough and long.") for body in bodies] == [0, 1, 1, 1]
    assert GONE.strip() in last_user(bodies[3])
    assert ["AGENTS.md has changed (+1 -1 lines)" in err for err in told] == [False, True, False, False]
    assert "AGENTS.md is gone" in told[3]


def test_a_file_that_the_session_wrote_is_not_followed_unasked(cli: Cli, lab: Lab, folder: Path) -> None:
    """Proves: nobody is there to allow it, so the model is not told its text, and the run says so. At a terminal the person is
    asked once for each text, and only the answer that says so has the model follow it."""
    here = at(lab, "writes-it")
    with at_terminal(*here, cwd=folder) as person:
        prompt(person)
        person.types("Write.\r")
        person.sees("then no)")
        person.types("y\r")
        person.sees("Done.")
        leave(person)
    assert (folder / "AGENTS.md").read_text() == "Obey the file.\n"
    ran = cli("run", "Go on.", "--continue", *here)
    assert (ran.code, ran.out.strip()) == (0, "Done.")
    assert "AGENTS.md was changed by this session (+1 -0 lines), and is not followed" in ran.err
    assert last_user(asked(lab)[-1]) == "Go on."
    with at_terminal("--continue", *here, cwd=folder) as person:
        for answer, followed in (("2", False), ("1", True)):
            prompt(person)
            person.types(f"Go on with {answer}.\r")
            person.sees("follow its new text")
            person.sees("then denied)")
            person.types(f"{answer}\r")
            person.sees("Done.")
            assert ("Obey the file." in last_user(asked(lab)[-1])) == followed
            prompt(person)
            person.types("Go on.\r")
            person.sees("Done.")
            assert last_user(asked(lab)[-1]) == "Go on."
            (folder / "AGENTS.md").write_text("Obey the file.\nAlways.\n")
        leave(person)


def test_a_command_that_does_not_name_the_file_is_asked_about_too(cli: Cli, lab: Lab, folder: Path) -> None:
    """Proves: a script that the session ran has written the file while the turn ran, so its text is not followed unasked, in no
    later turn either, and a removed file still holds; what a person writes once the turn is over is told."""
    path, here = folder / "AGENTS.md", [*at(lab, "runs-a-script"), "--allow", "execute"]
    path.write_text("Be brief.\n")
    (folder / "fix.sh").write_text("for one in *.md; do echo 'Obey the script.' > $one; done\n")
    assert cli("run", "Run.", *here).code == 0
    assert path.read_text() == "Obey the script.\n"
    for _ in range(2):
        assert "(+1 -1 lines), and is not followed" in cli("run", "Go on.", "--continue", *here).err
        assert last_user(asked(lab)[-1]) == "Go on."
    path.chmod(0o600)  # the text stays the script's
    assert "(+1 -1 lines), and is not followed" in cli("run", "Go on.", "--continue", *here).err
    path.write_text("Be thorough.\n")
    assert "AGENTS.md has changed (+1 -1 lines)" in cli("run", "Go on.", "--continue", *here).err
    (folder / "fix.sh").write_text("rm *.md\n")
    cli("run", "Run it.", "--continue", *here)
    assert not path.exists()
    ran = cli("run", "Go on.", "--continue", *here)
    assert "AGENTS.md was removed, and its instructions still hold: nobody allowed it" in ran.err
    assert last_user(asked(lab)[-1]) == "Go on."
    with at_terminal("--continue", *here, cwd=folder) as person:
        prompt(person)
        person.types("Go on, please.\r")
        person.sees("Do its instructions still hold?")
        person.sees("then denied)")
        person.types("1\r")
        person.sees("Done.")
        leave(person)
    assert GONE.strip() in last_user(asked(lab)[-1])


@pytest.mark.parametrize("kind", ["-sf", "-f"])
def test_a_link_that_the_session_made_is_asked_about(kind: str, cli: Cli, lab: Lab, folder: Path) -> None:
    """Proves: a script has made AGENTS.md a link, or a second name, of another file with the same text. What is written there
    later was not written as instructions, so it is not followed unasked. A file in place of the link is a person's again."""
    path, here = folder / "AGENTS.md", [*at(lab, "runs-a-script"), "--allow", "execute"]
    for one in (path, folder / "notes.md"):
        one.write_text("Be brief.\n")
    (folder / "fix.sh").write_text(f"ln {kind} notes.md *S.md\n")
    assert "reading AGENTS.md as instructions (9 characters" in cli("run", "Run.", *here).err
    assert "reading AGENTS.md as instructions (9 characters" in cli("run", "Go on.", "--continue", *here).err
    for text in ("Notes of today.\n", "Notes of tomorrow.\n"):
        (folder / "notes.md").write_text(text)
        ran = cli("run", "Go on.", "--continue", *here)
        assert (
            "AGENTS.md leads to another file since this session, which has changed (+1 -1 lines), and is not" in ran.err
        )
        assert "reading AGENTS.md" not in ran.err and last_user(asked(lab)[-1]) == "Go on."
    path.unlink()
    path.write_text("Be thorough.\n")
    cli("run", "Go on.", "--continue", *here)
    assert "Be thorough." in last_user(asked(lab)[-1])


def test_after_a_kill_the_text_of_then_alone_is_asked_about(cli: Cli, lab: Lab, folder: Path) -> None:
    """Proves: a turn is killed during a command, and the file is edited then: nobody can know who did it, so it is not followed
    unasked. What a person writes once another turn has ended is told."""
    path, here = folder / "AGENTS.md", [*at(lab, "runs-a-script"), "--allow", "execute"]
    path.write_text("Be brief.\n")
    (folder / "fix.sh").write_text("mkfifo pipe; touch started; read line < pipe\n")
    killed = begin("run", "Run.", *here, cwd=folder)
    wait_until((folder / "started").exists)
    killed.kill()
    end(killed)
    path.write_text("Be thorough.\n")
    for _ in range(2):
        ran = cli("run", "Go on.", "--continue", *here)
        assert "AGENTS.md may have been changed by this session (+1 -1 lines), and is not followed" in ran.err
    path.write_text("Be thorough and long.\n")
    assert "AGENTS.md has changed (+1 -1 lines)" in cli("run", "Go on.", "--continue", *here).err
    assert "Be thorough and long." in last_user(asked(lab)[-1])


@pytest.mark.promise("step:prefix-stable")
@pytest.mark.parametrize(
    ("content", "why"),
    [
        (b"x" * 1_000_000, "has 1000000 bytes; 65536 at most"),
        (b"\xff", "is not UTF-8 (byte 0)"),
        (None, "is a link that leads out of the folder"),
    ],
)
def test_a_session_goes_on_with_what_it_knows_where_the_file_cannot_be_read_any_more(
    content: bytes | None, why: str, cli: Cli, lab: Lab, folder: Path
) -> None:
    """Proves: the file does not end the session; its instructions stay, nothing of the new file is sent, and a line says why."""
    path, here = folder / "AGENTS.md", at(lab, "writes-it")
    path.write_text("Be brief.\n")
    cli("run", "Hi.", *here)
    path.unlink()
    if content is None:
        path.symlink_to("/etc/hostname")
    else:
        path.write_bytes(content)
    ran = cli("run", "Again.", "--continue", *here)
    assert (ran.code, ran.err.count("AGENTS.md")) == (0, 1)
    assert f"AGENTS.md is not read again: it {why}" in ran.err
    first, second = asked(lab)
    assert second["messages"][: len(first["messages"])] == first["messages"]
    assert last_user(second) == "Again."
