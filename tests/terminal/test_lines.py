"""The lines that turnwise itself writes: at a terminal no word of them is broken, however narrow it is; elsewhere they stay."""

import io
import re
import shlex
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from emulator import Emulator
from terminal.person import CTRL_D, ENTER, Person, at_terminal
from terminal.running import at, running_lab
from turnwise.coding_agent.text import short_id
from turnwise.lab import Lab
from turnwise.terminal.rows import COLOUR, cells_of, columns_of, fitted, say
from turnwise.terminal.status import line_of
from turnwise.workers.turn_status import TurnStatus

RED, OFF = "\x1b[31m", "\x1b[0m"
WORDS = st.sampled_from(
    [
        "a",
        "token",
        "`turnwise",
        "--continue`",
        f"{RED}dim{OFF}",
        RED,
        OFF,
        "ein-langes-wort",
        "日本語",
        "e\u0301",
        "→",
        "9f8e7d6c",
    ]
)
LINES = st.lists(st.tuples(st.sampled_from(["", " ", "  ", "    "]), WORDS), max_size=14).map(
    lambda pairs: "".join([" ".join(pair) for pair in pairs])
)


def seen(person: Person, *, columns: int) -> str:
    """What stands at a terminal of so many columns."""
    emulator = Emulator(columns=columns)
    emulator.write(person.raw.replace("\r\n", "\n"))
    return emulator.text


@given(line=LINES, columns=st.integers(2, 60))
def test_no_word_is_broken_that_a_row_can_hold(line: str, columns: int) -> None:
    """Property, at the tests' own small terminal: each word stands in one row there; wide characters may stand below one another;
    nothing but blanks and line ends is changed."""
    shown = fitted(line, columns=columns)
    assert COLOUR.sub("", shown).split() == COLOUR.sub("", line).split() or "日" in line
    assert re.sub(r"\s", "", shown) == re.sub(r"\s", "", line)
    emulator = Emulator(columns=columns)
    emulator.write(shown)
    rows = emulator.text.split("\n")
    for word in COLOUR.sub("", line).replace("\u0301", "").split():
        if cells_of(word) < columns and word.isascii():
            assert any(word in row.split() or word in row for row in rows), (word, rows)


@given(line=LINES, columns=st.integers(2, 60))
def test_what_is_fitted_fits_and_stays(line: str, columns: int) -> None:
    """Property: a row is only too long where a single word is; to fit it again changes nothing of such rows."""
    for row in fitted(line, columns=columns).split("\n"):
        words = COLOUR.sub("", row).split()
        assert cells_of(COLOUR.sub("", row).rstrip()) < columns or len(words) <= 1 or columns < 4


def test_what_stands_in_two_columns_stays_in_them() -> None:
    """A list of commands, and a line that is indented, go on below their own beginning; several gaps are no columns."""
    assert fitted("  /undo  take back what the last turn changed", columns=30) == (
        "  /undo  take back what the\n         last turn changed"
    )
    assert fitted("  answer: it is done now", columns=14) == "  answer: it\n  is done now"
    wide = "  paste a provider's key below  it is tried"
    assert fitted(wide, columns=36) == "  paste a provider's key below  it\n  is tried"  # two columns have no room
    assert fitted("[y] yes  [a] always  [n] no", columns=16) == "[y] yes  [a]\nalways  [n] no"


def test_a_word_that_no_row_can_hold_stays_whole() -> None:
    """An address is copied as it is: the terminal breaks it, and joins it again."""
    url = "http://127.0.0.1:18321/v1/models"
    assert fitted(f"see {url} there", columns=20) == f"see\n{url}\nthere"


def test_what_is_no_terminal_gets_the_line_as_it_is() -> None:
    line = "word " * 60
    out = io.StringIO()
    say(line, stream=out)
    assert out.getvalue() == f"{line}\n" and fitted(line, columns=None) == line and columns_of(out) is None


@pytest.mark.parametrize("columns", [20, 80])
def test_a_run_says_whole_words_and_a_session_id_that_can_be_copied(folder: Path, lab: Lab, columns: int) -> None:
    """The line below the answer, and the line of an error: rows at a pseudo-terminal hold whole words."""
    with at_terminal("run", "Hello.", *at(lab, "plain-answer"), cwd=folder, columns=columns) as person:
        person.leaves_by(0)
    rows = seen(person, columns=columns).split("\n")
    assert any(re.search(r"(session )?\b[0-9a-f]{8}$", row) for row in rows), rows
    with at_terminal("run", "Hello.", "--model", "openai_chat:x", cwd=folder, columns=columns) as person:
        person.leaves_by(2)
    words = seen(person, columns=columns).split()
    assert words == shlex.split("turnwise: '`openai_chat`' has no address of its own: give --base-url")


def test_the_first_start_and_the_help_have_whole_words(folder: Path) -> None:
    """At 40 columns, the question included; and so has what a session says of itself."""
    with running_lab() as lab, at_terminal(cwd=folder, columns=40) as person:
        person.sees("model:")
        person.types("?" + ENTER)
        person.sees("Ctrl-D")
        person.types(f"plain-answer --base-url {lab.url}/v1" + ENTER)
        person.sees("/help")
        person.sees("\n>")
        person.types("/help" + ENTER)
        person.sees("goes on.")
        person.sees("\n>")
        person.types(CTRL_D)
        person.leaves_by(0)
    rows = seen(person, columns=40).split("\n")
    for words in (
        "PROVIDER:NAME,",
        "TURNWISE_MODEL.",
        "remembered",
        "permissions",
        "completes",
        "command",
        "`turnwise",
    ):
        assert any(words in row for row in rows), words


def test_what_a_database_holds_makes_no_line_of_its_own() -> None:
    """Proves: `status` shows a turn in one line, whatever texts the rows hold: a submitter may
    have put them there. Found: a line end in an agent's name or a problem began a line that looked like another turn's."""
    forged = "x\n019aa1b2  coder  answered\r\u2028y"
    turn = TurnStatus(
        session=forged,
        status=forged,
        agent=forged,
        priority=0,
        needs=(),
        worker=forged,
        created=0.0,
        finished=None,
        stop_reason=forged,
        complete=None,
        cancel=False,
        problem=forged,
        waits_for=forged,
    )
    assert len(line_of(turn).splitlines()) == 1 and "<U+000A>019aa1b2" in line_of(turn)
    assert len(short_id(f"a\n{'b' * 6}").splitlines()) == 1
