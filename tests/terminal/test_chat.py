"""An interactive session at a real terminal: turns, commands, words in mid-turn, going on later."""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from terminal.person import CTRL_D, ESC_ENTER, Person, at_terminal
from terminal.running import Cli, at, running_lab, script
from terminal.test_processes import wait_until
from turnwise.lab import Lab

WAITS = script(
    "waits",
    """
[[steps]]
calls = [{ name = "bash", arguments = { command = "echo begun > begun.txt; until [ -e go.txt ]; do sleep 0.05; done" } }]

[[steps]]
text = "Done."
""",
)
WRITES = script(
    "writes",
    """
[[steps]]
calls = [{ name = "write", arguments = { path = "new.txt", content = "{n}" } }]

[[steps]]
text = "Written."
""",
)


@pytest.fixture(scope="module")
def chat_lab() -> Iterator[Lab]:
    with running_lab([WAITS, WRITES]) as lab:
        yield lab


@pytest.fixture
def lab(chat_lab: Lab) -> Lab:
    chat_lab.reset()
    return chat_lab


def prompt(person: Person) -> str:
    return person.sees("\n>")


def leave(person: Person) -> str:
    prompt(person)
    person.types(CTRL_D)
    return person.leaves_by(0)


def last_request(lab: Lab) -> str:
    return lab.requests[-1].body.decode()


def test_two_turns_with_usage_and_undo(lab: Lab, folder: Path, cli: Cli) -> None:
    """One session of two turns; /usage sums both, /undo takes back the last turn's change, then that of the one before."""
    with at_terminal("--allow", "write", *at(lab, "read-edit-answer"), cwd=folder) as person:
        prompt(person)
        person.types("Set it.\r")
        person.sees("Done: notes.txt now says 'status: done'.")
        prompt(person)
        (folder / "notes.txt").write_text("status: draft\nmore\n")
        person.types("Set it again.\r")
        person.sees("Done: notes.txt now says 'status: done'.")
        prompt(person)
        assert (folder / "notes.txt").read_text() == "status: done\nmore\n"
        person.types("/usage\r")
        person.sees("2 turns, 6 requests: 6 steps\n")
        person.sees("tokens in")
        person.sees("cost unknown")
        prompt(person)
        person.types("/undo\r")
        person.sees("take 1 file back? [y/N]")
        person.types("y\r")
        person.sees("notes.txt: restored")
        assert (folder / "notes.txt").read_text() == "status: draft\nmore\n"
        prompt(person)
        person.types("/undo\r")
        person.sees("leave it, and let the next undo take the turn before? [y/N]")  # changed since, by somebody else
        person.types("y\r")
        person.sees("notes.txt: kept (")
        prompt(person)
        person.types("/undo\r")
        person.sees("nothing to take back")
        assert "`turnwise --continue` goes on with it" in leave(person)
        assert person.is_cooked()
    (session,) = cli("sessions", "list", "--json").events()
    assert (session["turns"], session["title"]) == (2, "Set it.")


@pytest.mark.promise("wait:ask")
def test_asks_come_in_place_and_always_holds_for_the_session(lab: Lab, folder: Path) -> None:
    """`later` is no choice where somebody is there; the next turn is not asked again for the same path."""
    with at_terminal(*at(lab, "writes"), cwd=folder) as person:
        prompt(person)
        person.types("Write.\r")
        assert "+++ new.txt" in person.sees("[d] no, and say why\n")
        person.sees("then no)")
        person.types("a\r")
        person.sees("Written.")
        prompt(person)
        (folder / "new.txt").unlink()
        person.types("Write.\r")
        assert "then no)" not in person.sees("Written.")
        leave(person)
    assert (folder / "new.txt").exists()


@pytest.mark.parametrize("slowly", [False, True])
def test_a_word_typed_in_mid_turn_is_in_the_next_request(lab: Lab, folder: Path, slowly: bool) -> None:
    """Pasted as a line, or key by key with a prompt of its own, which the screen waits for. A file that it names goes with it."""
    with at_terminal("--allow", "bash", *at(lab, "waits"), cwd=folder) as person:
        prompt(person)
        person.types("Go.\r")
        wait_for_tool(person, folder)
        if slowly:
            person.types("in ")
            person.sees("»")
            person.types("French, see @todo.txt\r")
        else:
            person.types("in French, see @todo.txt\r")
        person.sees("» in French, see @todo.txt\n")
        person.sees("put in: todo.txt")
        (folder / "go.txt").touch()
        person.sees("Done.")
        leave(person)
    sent = last_request(lab)
    assert (
        "in French, see @todo.txt" in sent and "The file `todo.txt`" in sent and "nothing" in sent and lab.count() == 2
    )


def test_what_was_typed_too_late_stands_at_the_next_prompt(lab: Lab, folder: Path) -> None:
    """The turn ended while it was being typed: nothing is lost, and nothing is sent unasked."""
    with at_terminal("--allow", "bash", *at(lab, "waits"), cwd=folder) as person:
        prompt(person)
        person.types("Go.\r")
        wait_for_tool(person, folder)
        person.types("and then")
        person.sees("» and then")
        (folder / "go.txt").touch()
        person.sees("Done.")
        person.sees("\n> and then")
        person.types(" stop\r")
        person.sees("Done.")
        leave(person)
    assert "and then stop" in last_request(lab)


@pytest.mark.parametrize("slowly", [False, True])
def test_commands_in_mid_turn_are_no_words_for_the_model(lab: Lab, folder: Path, slowly: bool) -> None:
    """They wait for the end of the turn; `exit` ends it, and leaves. Nothing of them is sent."""
    with at_terminal("--allow", "bash", *at(lab, "waits"), cwd=folder) as person:
        prompt(person)
        person.types("Go.\r")
        wait_for_tool(person, folder)
        person.types("/usage\r")
        person.sees("`/usage` waits for the end of the turn")
        if slowly:
            person.types("ex")
            person.sees("»")
            person.types("it\r")
        else:
            person.types("exit\r")
        person.sees("cancelled (")
        person.sees("1 turn, 1 request: 1 step")
        assert "`turnwise --continue` goes on with it" in person.leaves_by(0)
    assert lab.count() == 1


def wait_for_tool(person: Person, folder: Path) -> None:
    person.sees("bash runs")
    wait_until((folder / "begun.txt").exists)


def test_several_lines_make_one_prompt(lab: Lab, folder: Path) -> None:
    """By Esc-Enter, by a backslash at the end, and pasted."""
    with at_terminal(*at(lab, "plain-answer"), cwd=folder) as person:
        prompt(person)
        person.types(f"one{ESC_ENTER}two\\\r")
        person.types("three \x1b[200~four\rfive\x1b[201~\r")
        person.sees("Hello from the lab.")
        leave(person)
    assert r"one\ntwo\nthree four\nfive" in last_request(lab) and lab.count() == 1


def test_a_session_goes_on_later_with_its_history(lab: Lab, folder: Path) -> None:
    """`turnwise --continue` takes model, address and messages over; the key Up brings what was typed before."""
    with at_terminal(*at(lab, "plain-answer"), cwd=folder) as person:
        prompt(person)
        person.types("Remember the word.\r")
        person.sees("Hello from the lab.")
        leave(person)
    with at_terminal("--continue", cwd=folder) as person:
        prompt(person)
        person.types("\x1b[A")
        person.sees("Remember the word.")
        person.types(" Again.\r")
        person.sees("Hello from the lab.")
        leave(person)
    assert last_request(lab).count("Remember the word.") == 2 and "Remember the word. Again." in last_request(lab)


def test_commands_tell_and_unknown_ones_suggest(lab: Lab, folder: Path) -> None:
    """None of them makes a request."""
    with at_terminal("--allow", "bash(git push *)", *at(lab, "plain-answer"), cwd=folder) as person:
        for typed, said in (
            ("/help", "/permissions"),
            ("/hlep", "did you mean `/help`?"),
            ("/xyzzy", "there are /help, /usage"),
            ("/model", "openai_chat:plain-answer at http://127.0.0.1:"),
            ("/model plain-answer", "going on with openai_chat:plain-answer"),
            (
                "/model plain-anser",
                "did you mean `plain-answer`? To take it all the same, type it again; `/model` alone",
            ),
            ("/model gpt", "offered there; to take it all the same, type it again"),
            ("/model gpt", "going on with openai_chat:gpt; it is not among the "),
            ("/model nobody:gpt", "`nobody` is no provider"),
            ("/sessions", "no sessions of this folder yet"),
            ("/permissions", "allow bash(git push *) [--allow bash(git push *)]"),
            ("/cost", "0 turns, 0 requests"),
            ("/undo", "nothing to take back"),
            ("/clear", "a new session"),
            ("/resume", "`turnwise --continue` goes on"),
            ("?", "Enter sends;"),
            ("help", "Enter sends;"),
        ):
            prompt(person)
            person.types(f"{typed}\r")
            person.sees(said)
        person.types("/\t")
        person.sees("/quit ")  # below the other seven
        person.sees("leave; so do")
        person.types("\x03")
        prompt(person)
        person.types("/quit\r")
        person.leaves_by(0)
    assert lab.count() == 0


def test_new_begins_another_session(lab: Lab, folder: Path, cli: Cli) -> None:
    """The model knows nothing of the one before."""
    with at_terminal(*at(lab, "plain-answer"), cwd=folder) as person:
        for typed, said in (("First.", "Hello from"), ("/new", "a new session"), ("Second.", "Hello from")):
            prompt(person)
            person.types(f"{typed}\r")
            person.sees(said)
        leave(person)
    assert "First." not in last_request(lab)
    assert len(cli("sessions", "list", "--json").events()) == 2


def test_no_color_has_no_colours_in_a_session(lab: Lab, folder: Path) -> None:
    """Source: no-color.org."""
    with at_terminal(*at(lab, "read-edit-answer"), cwd=folder, env={"NO_COLOR": "1"}) as person:
        prompt(person)
        person.types("Set it.\r")
        person.sees("then no)")
        person.types("y\r")
        person.sees("Done:")
        leave(person)
        assert not re.search(r"\x1b\[[0-9;]*[1-9][0-9;]*m", person.raw)


def test_without_a_terminal_a_session_says_what_to_use(cli: Cli) -> None:
    """One line, exit code 2; options without a command are those of a session."""
    for args in (["chat"], ["--model", "openai:gpt-5"]):
        ran = cli(*args)
        assert (ran.code, ran.out) == (2, "") and 'give the prompt to `turnwise -p "..."` instead' in ran.err


def test_a_session_whose_answers_go_elsewhere_says_what_to_use(folder: Path) -> None:
    """`turnwise | cat`: the prompt of the next turn would stand before the answer."""
    with at_terminal("--model", "openai:gpt-5", cwd=folder, stdout=False) as person:
        said = person.leaves_by(2)
    assert said.count("\n") == 1 and 'for its answers too: give the prompt to `turnwise -p "..."` instead' in said
