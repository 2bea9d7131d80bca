"""What somebody is typing when something is asked: the ask comes first, the text comes back, and no key of it is an answer."""

import asyncio
import os
import pty
import shlex
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from prompt_toolkit import PromptSession
from prompt_toolkit.key_binding.key_processor import KeyPress
from prompt_toolkit.keys import Keys
from prompt_toolkit.output import DummyOutput

from terminal.person import CTRL_D, at_terminal
from terminal.running import WAIT_S, at, running_lab, script
from terminal.test_processes import wait_until
from turnwise.base.threads import quickest_loop, run_to_end
from turnwise.lab import Lab, Script
from turnwise.lab.script import ScriptedCall, ScriptedStep
from turnwise.terminal.pager import PAUSE_S, TypingPause
from turnwise.terminal.terminal import Terminal
from turnwise.terminal.typed_keys import STOOD_S, KeysUse, OneKey, TypedKeys
from turnwise.testing import FakeClock

CTRL_Z = "\x1a"
ASKS_LATER = script(
    "asks-later",
    """
[[steps]]
calls = [{ name = "bash", arguments = { command = "echo begun > begun.txt; until [ -e go.txt ]; do sleep 0.05; done" } }]

[[steps]]
calls = [{ name = "bash", arguments = { command = "touch made.txt" } }]

[[steps]]
text = "Done."
""",
)
CONFUSABLE = script(
    "confusable",
    """
[[steps]]
calls = [{ name = "bash", arguments = { command = "cаt отчёт.txt データ.txt –rf > made.txt; echo 'Собрание в ср'" } }]

[[steps]]
text = "Done."
""",
)
TWO = script(
    "two",
    """
[[steps]]
calls = [
    { name = "bash", arguments = { command = "touch one.txt" } },
    { name = "bash", arguments = { command = "touch two.txt" } },
]

[[steps]]
text = "Done."
""",
)
ENDLESS = Script(
    name="endless",
    title="endless",
    steps=(
        ScriptedStep(calls=(ScriptedCall(name="bash", arguments={"command": f"touch one.txt; echo {'x' * 100_000}"}),)),
        ScriptedStep(text="Done."),
    ),
)
QUESTION = "".join([f"line {number}\n" for number in range(300)]) + "end"
LONG_QUESTION = Script(
    name="long-question",
    title="long-question",
    steps=(
        ScriptedStep(calls=(ScriptedCall(name="ask_user", arguments={"question": QUESTION}),)),
        ScriptedStep(text="You said: {result}"),
    ),
)


@pytest.fixture(scope="module")
def typing_lab() -> Iterator[Lab]:
    with running_lab([ASKS_LATER, CONFUSABLE, TWO, ENDLESS, LONG_QUESTION]) as lab:
        yield lab


@pytest.fixture
def lab(typing_lab: Lab) -> Lab:
    typing_lab.reset()
    return typing_lab


class Typist:
    """Keys of a real terminal, read by a clock that only a test turns."""

    def __init__(self) -> None:
        self.clock = FakeClock()
        self.kept = ""
        end, theirs = pty.openpty()
        self._end, self._file = end, os.fdopen(theirs, "r")
        self.pause = TypingPause(self.clock)
        self.keys = TypedKeys(self._file, pause=self.pause, keep=self._keep, seen=str)

    def _keep(self, text: str) -> None:
        self.kept += text

    def answers(self, text: str, *, use: KeysUse = "choice", pasted: bool = False) -> str:
        pressed = [KeyPress(Keys.BracketedPaste, text)] if pasted else [KeyPress(char, char) for char in text]
        return "".join([key.data for key in self.keys.sift(pressed)])

    def types(self, text: str) -> None:
        os.write(self._end, text.encode())

    def close(self) -> None:
        self._file.close()
        os.close(self._end)


class Unanswering(DummyOutput):
    """A terminal that is slow to say where its cursor is: the line is put away only when it has."""

    @property
    def responds_to_cpr(self) -> bool:
        return True

    def get_rows_below_cursor_position(self) -> int:
        raise NotImplementedError


@pytest.fixture
def typist() -> Iterator[Typist]:
    one = Typist()
    yield one
    one.close()


@pytest.mark.promise("wait:ask")
async def test_keys_that_go_on_with_a_text_without_a_pause_are_no_answer(typist: Typist) -> None:
    """Proves: each such key moves the pause; the first key after it answers, and so does all that follows."""
    typist.keys.wants("draft")
    assert typist.answers("hal") == "hal"
    typist.keys.wants("choice")
    assert typist.answers("f y\r") == "" and typist.keys.are_kept
    await typist.clock.advance(PAUSE_S - 0.01)
    assert typist.answers("y") == ""
    assert [key.key for key in typist.keys.sift([KeyPress(Keys.ControlC, "\x03")])] == [Keys.ControlC]
    typist.keys.wants("choice")
    await typist.clock.advance(PAUSE_S)
    assert (typist.answers("y"), typist.answers("\r")) == ("y", "\r")
    assert typist.kept == "f y\ry"


@pytest.mark.promise("wait:ask")
async def test_a_letter_answers_alone_only_if_the_question_was_there_before_it(typist: Typist) -> None:
    """Proves: not as soon as the question comes, nor a word, nor a letter of no answer; and the Enter of a habit right behind the
    letter answers nothing else."""
    one_key = OneKey(lambda: ["y", "n"], input=typist.keys, pause=typist.pause, clock=typist.clock)
    assert not one_key.answers("y")
    one_key.stands()
    await typist.clock.advance(STOOD_S - 0.01)
    assert not one_key.answers("y")
    await typist.clock.advance(0.02)
    assert [text for text in ("", "y", "Y", "n", "yn", "x", "?") if one_key.answers(text)] == ["y", "Y", "n"]
    typist.pause.answered()
    typist.keys.wants("choice")
    enter = KeyPress(Keys.ControlM, "\r")
    assert typist.keys.sift([enter]) == []
    await typist.clock.advance(PAUSE_S)
    assert typist.keys.sift([enter]) == [enter]


@pytest.mark.promise("wait:ask")
async def test_enter_right_behind_the_letter_ends_the_line_once(typist: Typist) -> None:
    """Proves: an Enter that comes before the letter has stood alone for long enough ends the question, and no error is shown
    while the line is put away."""
    errors: list[object] = []
    asyncio.get_running_loop().set_exception_handler(lambda _loop, context: errors.append(context))
    one_key = OneKey(lambda: ["y"], input=typist.keys, pause=typist.pause, clock=typist.clock, alone_s=0)
    session = PromptSession[str](input=typist.keys, output=Unanswering())
    session.default_buffer.on_text_changed += one_key.watch
    typist.keys.wants("choice")
    one_key.stands()
    await typist.clock.advance(max(PAUSE_S, STOOD_S))
    async with asyncio.timeout(WAIT_S):
        assert await session.prompt_async("? ", pre_run=lambda: typist.types("y\r"), set_exception_handler=False) == "y"
    assert errors == []


@pytest.mark.promise("wait:ask")
@pytest.mark.parametrize("columns", [60, 80, 200])
def test_each_ask_is_answered_by_one_key(lab: Lab, folder: Path, columns: int) -> None:
    """Proves (issue 46): `y`, `n` and `?` count without Enter, at every width; `d` opens a line for the reason. After Ctrl-Z and
    `fg` the whole ask stands on the screen again."""
    line = shlex.join([sys.executable, "-m", "turnwise", "run", "Go.", *at(lab, "two")])
    env = {"PS1": "shell$ ", "HISTFILE": os.devnull}
    with at_terminal("--norc", "--noprofile", "-i", cwd=folder, env=env, program=("bash",), columns=columns) as person:
        person.sees("shell$ ")
        person.types(f"{line}\r")
        person.sees("then no)")
        person.types_after("?", pause_s=2 * STOOD_S)
        person.sees("y, yes     run it, this once")
        person.sees("then no)")
        person.types(CTRL_Z)
        person.sees("Stopped")
        person.sees("shell$ ")
        person.types("fg\r")
        assert "  asked because:" in person.sees("? Run `touch one.txt`?") + person.sees("[y] yes, once")
        person.sees("then no)")
        person.types_after("y", pause_s=2 * STOOD_S)
        person.sees("? Run `touch two.txt`?")
        person.sees("then no)")
        person.types_after("d", pause_s=2 * STOOD_S)
        person.sees("why not")
        person.types("not today\r")
        assert "They said: not today" in person.sees("shell$ ").replace("\n", " ")
        person.types("exit\r")
        person.leaves_by(0)
    assert (folder / "one.txt").exists() and not (folder / "two.txt").exists()


@pytest.mark.promise("wait:ask")
async def test_what_is_pasted_is_no_choice_and_may_be_an_answer_in_words(typist: Typist) -> None:
    """Proves: it goes to the text, with the keys right behind it, as a paste can hold the mark of its own end; a question in
    words takes it."""
    typist.keys.wants("choice")
    assert typist.answers("y", pasted=True) == "" and typist.answers("y\r") == "" and typist.kept == "yy\r"
    await typist.clock.advance(PAUSE_S)
    assert typist.answers("n") == "n"
    assert typist.answers("y", pasted=True) == typist.answers("y\r") == ""
    typist.keys.wants("answer")
    await typist.clock.advance(PAUSE_S)
    assert typist.answers("a long answer", pasted=True) == "a long answer"


@pytest.mark.promise("wait:ask")
def test_a_terminal_whose_keys_are_read_takes_all_that_is_written(
    typist: Typist, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Proves: its output waits for a slow terminal. uvloop made it non-blocking, so a large ask at a slow one was denied with
    `BlockingIOError`, though nobody had answered."""
    monkeypatch.setattr("sys.stdin", typist._file)  # pyright: ignore[reportPrivateUsage]

    async def read_keys() -> list[bool]:
        found = list[bool]()
        with Terminal().heeding(lambda text: None, keep=lambda text: None, draft=str, stop=lambda: None):
            found.append(os.get_blocking(typist.keys.fileno()))
        with typist.keys.attach(lambda: None):
            found.append(os.get_blocking(typist.keys.fileno()))
        return [*found, os.get_blocking(typist.keys.fileno())]

    assert run_to_end(read_keys(), new_loop=quickest_loop) == [True, True, True]


@pytest.mark.promise("wait:ask")
def test_what_was_typed_before_an_ask_is_kept_for_the_text(typist: Typist) -> None:
    """Proves: keys that the terminal holds, a line's end or not, and that nothing is left for the ask."""
    typist.pause.sent()
    os.write(typist._end, b"y\ry")  # pyright: ignore[reportPrivateUsage]
    wait_until(lambda: typist.keys.collect() or typist.kept.count("y") == 2)
    typist.keys.wants("choice")
    assert typist.answers("y\r") == ""


@pytest.mark.promise("wait:ask")
@pytest.mark.parametrize(
    "typed", ["\x1b[200~\ny\r\x1b[201~", "words\ny\r", "\x1b[200~x\x1b[201~y\r", "\x1b[200~x\x1b[201~\ry\r"]
)
def test_what_is_pasted_at_an_ask_allows_nothing(lab: Lab, folder: Path, typed: str) -> None:
    """Proves (issue 39, 3) at a real terminal that says what is pasted, or does not: `y` behind a line of a paste, and behind the
    mark of its end, runs nothing, nor what is asked next. The window changes its size meanwhile."""
    with at_terminal("run", "Go.", *at(lab, "two"), cwd=folder, columns=80) as person:
        person.sees("touch one.txt")
        for _ in ("one", "two"):
            person.sees("then no)")
            person.resizes(columns=3, lines=2)
            person.types(typed)
            person.resizes(columns=80, lines=24)
            person.types_until("n\r", "touch two.txt", pause_s=2 * PAUSE_S)
        person.leaves_by(8)
    assert not (folder / "one.txt").exists() and not (folder / "two.txt").exists()


@pytest.mark.promise("wait:ask")
def test_an_ask_comes_before_a_half_typed_text_which_comes_back(lab: Lab, folder: Path) -> None:
    """Proves (issue 39, 3): the text hid the ask until its time was over. It is shown at once; Enter alone allows nothing, and
    the text is sent after the answer."""
    with at_terminal(
        "--allow", "bash(echo *)", "--allow", "bash(sleep *)", *at(lab, "asks-later"), cwd=folder
    ) as person:
        person.sees("\n>")
        person.types("Go.\r")
        person.sees("then no)")
        person.types("y\r")
        wait_until((folder / "begun.txt").exists)
        person.types("and in Fr")
        person.sees("» and in Fr")
        (folder / "go.txt").touch()
        person.sees("? Run `touch made.txt`?")
        person.sees("then no)")
        person.types_until("\r", "Enter is no answer to this", pause_s=PAUSE_S)  # what comes sooner goes to the text
        assert not (folder / "made.txt").exists()
        person.sees("n or d, then Enter (")
        person.sees("then no)")
        person.types("y\r")
        person.sees("» and in Fr")
        person.types("ench\r")
        assert "and in French" in person.sees("Done.") or "and in French" in lab.requests[-1].body.decode()
        person.sees("\n>")
        person.types(CTRL_D)
        person.leaves_by(0)
    assert (folder / "made.txt").exists()


def test_a_word_that_looks_like_another_is_marked_in_an_ask(lab: Lab, folder: Path) -> None:
    """Proves (issue 39, 3): Cyrillic in a Latin word, a dash that is none; not Russian and Japanese names, nor Russian words."""
    with at_terminal("run", "Go.", *at(lab, "confusable"), cwd=folder) as person:
        shown = person.sees("then no)")
        assert "    c<U+0430>t отчёт.txt データ.txt <U+2013>rf > made.txt; echo 'Собрание в ср'\n" in shown
        assert "confusable: `c<U+0430>t` looks like the command `cat` and mixes Cyrillic and Latin letters\n" in shown
        assert "confusable: `<U+2013>rf` looks like the option `-rf`\n" in shown
        assert shown.count("confusable:") == 2
        person.types("n\r")
        person.leaves_by(8)


@pytest.mark.promise("safe:seen")
def test_a_long_question_is_answered_once_all_of_it_was_on_the_screen(lab: Lab, folder: Path) -> None:
    """Proves (issue 39, 3): 301 lines scrolled by, and whatever was typed below them was the answer. What was typed too soon
    stays at the prompt."""
    with at_terminal(
        "run", "Go.", *at(lab, "long-question"), cwd=folder, env={"LINES": "24", "COLUMNS": "80"}
    ) as person:
        shown = person.sees("then the model decides)")
        assert "    line 0\n" in shown and "    end\n" not in shown and "s shows all of the question" in shown
        person.types("my words\r")
        person.sees("lines have not been on the screen yet")
        person.sees("then the model decides)")
        person.resizes(columns=80, lines=400)
        person.types("\x15s\r")
        person.sees("    end")
        person.types("q")
        person.sees("all of it has been on the screen")
        person.sees("then the model decides)")
        person.types("yes\r")
        person.sees("You said: yes")
        person.leaves_by(0)


@pytest.mark.promise("safe:seen")
def test_a_line_without_an_end_is_allowed_once_all_of_it_was_on_the_screen(lab: Lab, folder: Path) -> None:
    """Proves (issue 39, 3): one line of 100,000 letters scrolled by in 1,250 rows, and `y` ran it. `y` behind the key that leaves
    the pages is no answer, either."""
    env = {"LINES": "24", "COLUMNS": "80"}
    with at_terminal("run", "Go.", *at(lab, "endless"), cwd=folder, env=env) as person:
        person.sees("then no)")
        person.types("y\r")
        person.sees("1 line has not been on the screen yet")
        person.sees("then no)")
        person.resizes(columns=80, lines=2000)
        person.types("s\r")
        person.sees("q: to the question")
        person.types("qy\r")
        person.sees("? Run ")
        person.sees("then no)")
        assert not (folder / "one.txt").exists()
        person.types_until("y\r", "Done.", pause_s=PAUSE_S)
        person.leaves_by(0)
    assert (folder / "one.txt").exists()
