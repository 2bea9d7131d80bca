"""What a person sees of the work while it is done: diffs, output, reasoning, the plan, and calls for attention (issue 46)."""

import difflib
import re
from contextlib import redirect_stdout
from pathlib import Path

import pytest

from emulator import Emulator, Tty
from terminal.person import CTRL_C, CTRL_D, ENTER, Person, at_terminal
from terminal.running import Cli, at, running_lab, script
from turnwise.coding_agent.plan import PlanArguments, PlanStep, plan_rows
from turnwise.coding_agent.progress_line import WaitBounds
from turnwise.coding_agent.shown_work import MAX_FOLDED, Folds, diff_lines, ended_command
from turnwise.running.watcher_events import (
    ChildSeen,
    FilesChanged,
    FrameSeen,
    RequestStarted,
    ToolFinished,
    ToolProgress,
    ToolStarted,
)
from turnwise.settings.options import Notify
from turnwise.terminal.attention import UNSEEN_S, Attention
from turnwise.terminal.screen import Screen
from turnwise.testing import FakeClock
from turnwise.vocab import ReasoningDelta, Text, TextDelta, ToolCall, ToolResult

HOSTILE = "\x1b]2;owned\x07\x1b[2J\u202ecba\u200b\r over"
BASH = ToolCall(id="c1", name="bash", arguments='{"command": "make"}')
EDIT = ToolCall(id="c2", name="edit", arguments='{"path": "a.py"}')


def result(text: str, *, is_error: bool = False) -> ToolResult:
    return ToolResult(call_id="c1", name="bash", content=(Text(text),), is_error=is_error)


def unified(before: list[str], after: list[str]) -> str:
    hunks = list(difflib.unified_diff(before, after, lineterm=""))[2:]
    return "\n".join(["--- a.py", "+++ a.py", *hunks])


def test_a_diff_has_the_lines_numbers_and_hides_nothing() -> None:
    """Proves: old numbers at what goes, new ones at what comes; a line that looks like a head is a line; hostile characters are
    spelled out, and a whole new file begins at 1."""
    before = [f"line {number}" for number in range(1, 30)]
    after = [*before[:9], "++ b/evil", HOSTILE, *before[10:28], "-- x"]
    shown = diff_lines(unified(before, after))
    assert shown[0] == "@ a.py"
    assert "-   10 line 10" in shown and "+   10 ++ b/evil" in shown and "+   30 -- x" in shown
    assert " ⋮" in shown and not any("\x1b" in line or "\u202e" in line or "\r" in line for line in shown)
    assert any("<U+001B>]2;owned<U+0007>" in line and "<U+202E>" in line for line in shown)
    assert diff_lines("--- /dev/null\n+++ new.py\n@@ -0,0 +1,2 @@\n+one\n+two") == [
        "@ new.py",
        "+    1 one",
        "+    2 two",
    ]


@pytest.mark.parametrize(
    ("text", "end", "output"),
    [
        ("a\nb\n[exit code 1]", "exit 1: failed", ("a", "b")),
        ("sh: x: not found\n[exit code 127]", "exit 127: no such command", ("sh: x: not found",)),
        ("[exit code 137 (SIGKILL)]", "ended by SIGKILL", ()),
        ("[exit code 137 (SIGKILL); near its memory]", "ended by SIGKILL; near its memory", ()),
        (
            "x\n[exit code 0]\n[timed out after 3 s; it was ended]",
            "timed out after 3 s; it was ended",
            ("x", "[exit code 0]"),
        ),
        ("x\n[exit code 9]\ny\n[exit code 1]\n[the sandbox keeps git]", "exit 1: failed", ("x", "[exit code 9]", "y")),
        ("the command was not run", "failed", ("the command was not run",)),
    ],
)
def test_a_command_ends_in_words(text: str, end: str, output: tuple[str, ...]) -> None:
    """Proves: turnwise's own line says how it ended, and a line that the command has written does not."""
    found = ended_command(result(text, is_error=True))
    assert (found.end, found.output) == (end, output)


def test_a_long_plan_shows_where_it_is() -> None:
    """Proves: at most six rows around the first step that is not done, clean, each step on one line; nothing once all is done."""
    steps = [PlanStep(content=f"step {number}", status="completed") for number in range(20)]
    rest = [PlanStep(content=f"now\n{HOSTILE}", status="in_progress"), *[PlanStep(content="later")] * 9]
    rows = plan_rows(PlanArguments(entries=[*steps, *rest]))
    assert rows[0] == "  … 19 before" and rows[1] == "✓ step 19" and rows[2].startswith("▸ now<U+000A><U+001B>]2;owned")
    assert len(rows) == 6 and rows[-1] == "  … 7 more"
    assert plan_rows(PlanArguments(entries=steps)) == []


def test_what_can_be_opened_is_bounded() -> None:
    """Proves: the last texts are kept, and of an output of 100 MB its beginning."""
    folds = Folds()
    for number in range(MAX_FOLDED + 5):
        folds.keep(f"{number}", ["line"])
    folds.keep("long", ["x" * 100_000_000])
    assert len(folds.newest_first) == MAX_FOLDED and folds.newest_first[0].title == "long"
    assert sum(map(len, folds.newest_first[0].lines)) < 300_000


@pytest.mark.parametrize("columns", [60, 80, 200])
async def test_the_rows_below_the_text_come_and_go(columns: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Proves: output and plan stand above the line that waits, whatever the command writes; they are replaced in their place, no
    row is wider than the terminal, and nothing of them is left in the scrollback, also after a change of size."""
    monkeypatch.setenv("NO_COLOR", "1")
    tty, clock = Tty(columns=columns, lines=30), FakeClock()
    with redirect_stdout(tty):
        screen = Screen(notes=tty, size=tty.size, clock=clock)
        screen.begin(WaitBounds(max_steps=20))
        screen.plan = PlanArguments(
            entries=[PlanStep(content="look " * 60, status="in_progress"), PlanStep(content="test")]
        )
        screen(ToolStarted(BASH))
        for number in range(3):
            lines = (f"row {number} \x1b[2J{'漢字' * 100}", f"done {number}")
            screen(ToolProgress(BASH, lines[-1], lines))
            await clock.advance(0.2)
            rows = tty.text.split("\n")
            assert rows[0] == "→ bash make" and rows[1].startswith(f"  row {number} <U+001B>[2J漢") and len(rows) == 6
            assert rows[2] == f"  done {number}" and rows[3].startswith("  ▸ look look") and rows[4] == "  · test"
        tty.emulator.columns += 20
        screen(ToolFinished(result("one\ntwo\n"), 1.0))
        screen.close()
    assert tty.text.rstrip() == "→ bash make\n✓ bash: 2 lines, 8 characters\n  one\n  two"


async def test_edits_and_thoughts_are_folded(monkeypatch: pytest.MonkeyPatch) -> None:
    """Proves: 20 lines of a diff stand on the screen, a sub-agent's indented; reasoning is one line, with its time;
    letters that only look alike are named."""
    monkeypatch.setenv("NO_COLOR", "1")
    tty, clock = Tty(columns=100, lines=80), FakeClock()
    diff = "--- /dev/null\n+++ a.py\n@@ -0,0 +1,25 @@\n" + "\n".join([f"+p\u0430ssword {n}" for n in range(25)])
    changed = FilesChanged(EDIT, diff, added=25, removed=0)
    with redirect_stdout(tty):
        screen = Screen(notes=tty, size=tty.size, clock=clock, opens="Ctrl-O")
        screen(RequestStarted(number=1, step=1, purpose="step", model="m"))
        screen(FrameSeen(1, ReasoningDelta(f"It is wrong {HOSTILE} there.")))
        await clock.advance(12)
        screen(FrameSeen(1, TextDelta("So.")))
        screen(ToolStarted(EDIT))
        screen(changed)
        screen(ChildSeen("c9", ("general",), changed))
        screen.close()
    rows = tty.text.split("\n")
    assert rows[0] == "thought for 12 s · 6 words · Ctrl-O"
    assert (
        rows.count("  … 5 more lines, Ctrl-O shows all") == 1
        and rows.count("    … 5 more lines, Ctrl-O shows all") == 1
    )
    assert any("confusable: " in row for row in rows)
    assert [fold.title for fold in screen.folds.newest_first] == [
        "a.py +25 -0",
        "a.py +25 -0",
        "thought for 12 s · 6 words",
    ]
    assert "\x1b" not in "".join(screen.folds.newest_first[-1].lines)


WORK = script(
    "work",
    """
[[steps]]
reasoning = "First I look."
calls = [{ name = "plan", arguments = { entries = [
  { content = "Look", status = "completed" },
  { content = "Change it", status = "in_progress" } ] } }]

[[steps]]
calls = [{ name = "write", arguments = { path = "new.txt", content = "one\\ntwo\\n" } }]

[[steps]]
text = "Half of it is done."
""",
)


def test_json_lines_have_the_diff_and_the_plan(cli: Cli, folder: Path) -> None:
    """Proves: what was changed and what is planned stand in `--json`, each as an event of its own, as the tools really did it."""
    with running_lab([WORK]) as lab:
        ran = cli("run", "Go.", "--allow", "write", "--json", *at(lab, "work"))
    told = ran.events()
    events = {one["event"]: one for one in told}
    assert [step["status"] for step in events["plan"]["entries"]] == ["completed", "in_progress"]
    changed = events["files_changed"]
    assert (changed["name"], changed["added"], changed["removed"]) == ("write", 2, 0)
    assert changed["diff"] == "--- /dev/null\n+++ new.txt\n@@ -0,0 +1,2 @@\n+one\n+two"


def seen_by(person: Person, *, columns: int = 80) -> Emulator:
    emulator = Emulator(columns=columns, lines=40)
    emulator.write(person.raw.replace("\r\n", "\n"))
    return emulator


@pytest.mark.parametrize("columns", [60, 80, 200])
def test_a_session_shows_its_plan_again_and_calls_who_is_away(folder: Path, columns: int) -> None:
    """Proves: at the prompt the plan stands above and the figures below, also after `--continue`; what is folded opens there, and
    the typed text stays; the title holds our words alone and goes at the end; what the terminal tells of its focus is no text."""
    with running_lab([WORK]) as lab:
        with at_terminal("--allow", "write", *at(lab, "work"), cwd=folder, columns=columns) as person:
            person.sees("\n>")
            person.types("Go." + ENTER)
            person.sees("Half of it is done.")
            person.sees("\n>")
            person.sees("openai_chat:work")
            person.types("half")
            person.sees("half")
            person.types("\x0f")
            person.sees("thought for")
            person.sees("p: newer")
            assert "First I look." in seen_by(person, columns=columns).screen
            person.types("q")
            person.sees("> half")
            screen = seen_by(person, columns=columns).screen
            assert "✓ Look\n▸ Change it\n> half\nask mode · openai_chat:work" in screen, screen
            person.types(CTRL_C)
            person.types(CTRL_D)
            person.leaves_by(0)
        emulator = seen_by(person, columns=columns)
        assert emulator.title == f"turnwise · {folder.name} · is done"
        assert person.raw.count("\x1b[?1004h") == person.raw.count("\x1b[?1004l") > 0
        assert person.raw.rindex("\x1b[23;2t") > person.raw.rindex("\x1b]2;")
        assert "+    1 one\n  +    2 two" in emulator.text
        with at_terminal("--continue", cwd=folder, columns=60) as person:
            person.sees("▸ Change it")
            person.sees("\n>")
            person.types("\x1b[O")  # the window loses the focus
            person.types("more")
            person.sees("more")
            person.types(CTRL_C)
            person.types(CTRL_D)
            person.leaves_by(0)
        assert "\n> more\n" in seen_by(person, columns=60).text


@pytest.mark.parametrize(("notify", "bells", "notices"), [(None, 1, 1), ("bell", 1, 0), ("osc9", 0, 1), ("off", 0, 0)])
async def test_who_looks_elsewhere_is_called_once(
    notify: Notify | None, bells: int, notices: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Proves (issue 46): by a bell and a notice (OSC 9), as the setting says: at once where the terminal has said that it lost
    the focus; where it says nothing, after a while without a key; never while it has the focus. The folder's name is cleaned."""
    tty, clock = Tty(), FakeClock()
    monkeypatch.setattr("sys.stderr", tty)
    monkeypatch.setenv("TERM", "xterm")
    folder = tmp_path / "a\x1b]2;b"
    folder.mkdir()

    async def rings(sent: str, *, after_s: float, looks: bool = False) -> tuple[int, list[str]]:
        attention = Attention(folder, notify=notify, plain=False, clock=clock)
        before = tty.emulator.bells, len(tty.emulator.notices)
        attention.seen(sent)
        attention.call("asks")
        await clock.advance(after_s)
        if looks:
            attention.seen("y")
        await clock.advance(2 * UNSEEN_S)
        return tty.emulator.bells - before[0], tty.emulator.notices[before[1] :]

    said = ["turnwise asks in a<U+001B>]2;b"] * notices
    assert await rings("\x1b[O", after_s=0.0, looks=True) == (bells, said)
    assert await rings("x", after_s=UNSEEN_S + 0.1) == (bells, said)
    assert await rings("x", after_s=UNSEEN_S - 0.1, looks=True) == (0, [])
    assert await rings("\x1b[I", after_s=2 * UNSEEN_S) == (0, [])
    assert tty.emulator.title == "turnwise · a<U+001B>]2;b · asks"


@pytest.mark.parametrize("args", [("--plain",), ()])
def test_nothing_rings_where_it_was_not_asked_for(args: tuple[str, ...], folder: Path) -> None:
    """Proves: neither bell nor notice nor title with `--plain`, and none with TERM=dumb."""
    env = {} if args else {"TERM": "dumb"}
    with (
        running_lab([WORK]) as lab,
        at_terminal(*args, "--allow", "write", *at(lab, "work"), cwd=folder, env=env) as person,
    ):
        person.sees("\n>" if args else ">")
        person.types("Go." + ENTER)
        person.sees("Half of it is done.")
        person.sees("session")
        person.sees(">")
        person.types(CTRL_D)
        person.leaves_by(0)
    assert not re.search(r"\x07|\x1b\]|\x1b\[\?1004", person.raw)
