"""Draw docs/pictures/*.svg: what a person sees of the work at a terminal, with its colours. The real command line runs in a
pseudo-terminal, with a scripted provider.

Usage: python scripts/draw_pictures.py [NAME...]     (draws all; tests/terminal/test_pictures.py compares)

A new picture is a row in `PICTURES`: its name, the size, a script of the lab, a command line, and a function that plays
the person up to the moment of the picture. What differs from run to run is evened out, as in `draw_screens.py`.
"""

import argparse
import re
import sys
import tempfile
from collections.abc import Callable
from io import StringIO
from pathlib import Path
from typing import NamedTuple

from rich.console import Console
from rich.text import Text

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT / "tests"), str(ROOT / "scripts")]

from draw_demo import FONT  # noqa: E402
from draw_screens import EVENED  # noqa: E402

from emulator import Emulator  # noqa: E402
from terminal.person import ENTER, Person, at_terminal  # noqa: E402
from terminal.running import at, running_lab, script  # noqa: E402

FOLDER = ROOT / "docs" / "pictures"
MOST = 15  # pictures: more are not looked at
CTRL_O, SHIFT_TAB = "\x0f", "\x1b[Z"
KEY = "house-0123456789abcdefWXYZ"
TIMES = (
    (re.compile(r"\b\d+ s\b"), "4 s"),
    (re.compile(r"/tmp/\S*/(?=project)"), "~/"),
    (re.compile(r"(session(?:\x1b\[[0-9;]*m|\s)+)[0-9a-f]{8}"), r"\g<1>4f70a1c2"),
    (re.compile(r"\b[\d,]+ tokens"), "12,909 tokens"),
    (re.compile(r"\b\d+ % of"), "97 % of"),
    (re.compile(r"127\.0\.0\.1:\d{5}"), "127.0.0.1:18000"),
)
FILE = "".join([f"def price_{number}(amount):\n    return amount * {number}\n\n\n" for number in range(1, 9)])
RUN = (
    "for part in 1 2 3 4 5 6 7; do echo tests/test_$part.py passed; done; "
    "until [ -e go ]; do sleep 0.05; done; echo tests/test_8.py failed; exit 1"
)
CHANGE = """
[[steps]]
reasoning = "The rate of the second price is wrong: it is three since June. One line changes, then the tests run."
calls = [{ name = "plan", arguments = { entries = [
  { content = "Read prices.py", status = "completed" },
  { content = "Mend the second price", status = "in_progress" },
  { content = "Run the tests" } ] } }]

[[steps]]
calls = [{ name = "edit", arguments = { path = "prices.py", old = "amount * 2", new = "amount * 3" } }]

[[steps]]
calls = [{ name = "write", arguments = { path = "rates.py", content = '''NEW''' } }]

[[steps]]
calls = [{ name = "plan", arguments = { entries = [
  { content = "Read prices.py", status = "completed" },
  { content = "Mend the second price", status = "completed" },
  { content = "Run the tests", status = "in_progress" } ] } }]

[[steps]]
calls = [{ name = "bash", arguments = { command = "RUN" } }]

[[steps]]
text = "The second price is mended, and **one test** still fails: `tests/test_8.py`."
""".replace("NEW", "".join([f"RATE_{number} = {number}\n" for number in range(1, 31)])).replace("RUN", RUN)

COMMAND = """
[[steps]]
calls = [{ name = "bash", arguments = { command = "npm test -- --watch=false" } }]

[[steps]]
text = "Done."
"""
PLANNED = r"""
[[steps]]
calls = [{ name = "read", arguments = { path = "prices.py" } }]

[[steps]]
text = "The second price has had the wrong rate since June.\n\n1. Set the rate in `prices.py` to **3**\n2. Run the tests of that file\n3. Say which of them had held the old rate"
"""  # noqa: E501

# What differs between machines is left out: the sandbox, and what the model is told of where it works.
PLAIN = ("--no-sandbox", "--no-environment", "--context-window", "200000")


class Picture(NamedTuple):
    """`play` brings the person to the moment of the picture. `lines` are the rows of the terminal. `is_first`: no model is named,
    and the lab wants a key."""

    name: str
    title: str
    columns: int
    play: Callable[[Person, Path], None]
    lines: int = 30
    script: str = CHANGE
    args: tuple[str, ...] = ("--allow", "write", "--allow", "bash")
    files: tuple[tuple[str, str], ...] = (("prices.py", FILE),)
    is_first: bool = False


def begins(person: Person, _: Path) -> None:
    person.sees("\n>")
    person.types("Mend the second price." + ENTER)


def reads(person: Person, folder: Path) -> None:
    begins(person, folder)
    person.sees("tests/test_7.py passed\n")
    person.sees("bash runs, ")


def ends(person: Person, folder: Path) -> None:
    reads(person, folder)
    (folder / "go").touch()
    person.sees("still fails")
    person.sees("\n>")
    person.sees("openai_chat:")


def opens(person: Person, folder: Path) -> None:
    reads(person, folder)
    person.types(CTRL_O)
    person.sees("q: leave")


def asks(person: Person, folder: Path) -> None:
    begins(person, folder)
    person.sees(", then no):")


def pastes_key(person: Person, folder: Path) -> None:
    person.sees("key or model:")
    person.types(f"{(folder / 'url').read_text()}{ENTER}")
    person.sees("paste it (it is not")
    person.types(f"\x1b[200~{KEY}\x1b[201~{ENTER}")
    person.sees("model [1]:")
    person.types(ENTER)
    person.sees("\n>")
    person.sees("openai_chat:key-")


def plans(person: Person, _: Path) -> None:
    person.sees("plan>")
    person.types("Mend the second price." + ENTER)
    person.sees("keeps it:")


def goes_on(person: Person, folder: Path) -> None:
    begins(person, folder)
    person.sees("[Y/n]")
    person.sees("then")


def explains(person: Person, folder: Path) -> None:
    asks(person, folder)
    person.types(f"?{ENTER}")
    person.sees("asked for the reason")
    person.sees(", then no):")


def takes_back(person: Person, folder: Path) -> None:
    ends(person, folder)
    person.types(f"/undo{ENTER}")
    person.sees("[y/N]")


def changes_mode(person: Person, _: Path) -> None:
    person.sees("openai_chat:")
    for mode in ("edits", "plan"):
        person.types(SHIFT_TAB)
        person.sees(f"{mode} mode:")
        person.sees(f"{mode}>")
        person.sees(f"{mode} mode ·")


PICTURES = (
    Picture("diff", "A diff, folded past 20 lines", 80, reads, lines=52),
    Picture("tail-60", "The end of the output, the plan and the bottom line at 60 columns", 60, reads, lines=16),
    Picture("tail-80", "The same at 80 columns", 80, reads, lines=16),
    Picture("tail-200", "The same at 200 columns", 200, reads, lines=16),
    Picture("end", "A command that failed, and the prompt with the session's figures", 80, ends, lines=18),
    Picture("open", "Ctrl-O opens what was folded", 80, opens, lines=18),
    Picture("ask", "An ask", 80, asks, args=(), lines=24),
    Picture("ask-60", "An ask for a command, its answers explained", 60, explains, lines=34, script=COMMAND, args=()),
    Picture("ask-200", "The same at 200 columns", 200, explains, lines=22, script=COMMAND, args=()),
    Picture("key-60", "The first key, for a server of one's own", 60, pastes_key, lines=48, args=(), is_first=True),
    Picture("key-80", "The same at 80 columns", 80, pastes_key, lines=40, args=(), is_first=True),
    Picture("plan", "Plan mode", 80, plans, lines=18, script=PLANNED, args=("--mode", "plan")),
    Picture("steps", "The step limit asks", 60, goes_on, lines=20, args=("--allow", "write", "--max-steps", "4")),
    Picture("undo", "/undo shows what it takes back, and asks", 80, takes_back, lines=34),
    Picture("modes", "Shift-Tab changes the mode, and says what it means", 60, changes_mode, lines=18, args=()),
)


def screen_of(picture: Picture) -> str:
    """Play it in a folder of its own; the window at its moment, evened out."""
    with (
        tempfile.TemporaryDirectory(prefix="turnwise-pictures-", dir="/tmp") as home,
        running_lab([script(picture.name, picture.script)], key=KEY if picture.is_first else None) as lab,
    ):
        folder = Path(home) / "project"
        folder.mkdir()
        if picture.is_first:  # that script alone stands in the list
            for name in [name for name in lab.provider.scripts if name != picture.name]:
                del lab.provider.scripts[name]
        for name, text in (("url", f"{lab.url}/v1"), *picture.files):
            (folder / name).write_text(text, encoding="utf-8")
        env = {"HOME": home, "TURNWISE_STATE_DIR": f"{home}/state", "XDG_CONFIG_HOME": f"{home}/config"}
        env |= {"TERM": "xterm-256color", "TURNWISE_LOCAL_PORTS": ""}
        size = {"columns": picture.columns, "lines": picture.lines}
        named = () if picture.is_first else at(lab, picture.name)
        with at_terminal(*picture.args, *PLAIN, *named, cwd=folder, env=env, columns=picture.columns) as person:
            person.resizes(**size)
            picture.play(person, folder)
            emulator = Emulator(**size)
            emulator.write(person.raw.replace("\r\n", "\n"))
    screen = emulator.coloured_screen
    for pattern, text in (*EVENED, *TIMES):
        screen = pattern.sub(text, screen)
    return screen


def drawn(picture: Picture, screen: str) -> str:
    console = Console(
        record=True, width=picture.columns, file=StringIO(), color_system="truecolor", force_terminal=True
    )
    console.print(Text.from_ansi(screen))
    svg = console.export_svg(title=picture.title, unique_id=f"turnwise-{picture.name}")
    return FONT.sub("", svg).replace("Fira Code, ", "")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", choices=[[], *[one.name for one in PICTURES]], metavar="NAME")
    names = parser.parse_args().names
    FOLDER.mkdir(exist_ok=True)
    for picture in PICTURES:
        if not names or picture.name in names:
            path = FOLDER / f"{picture.name}.svg"
            path.write_text(drawn(picture, screen_of(picture)), encoding="utf-8")
            print(f"{path.relative_to(ROOT)}: {path.stat().st_size:,} bytes")


if __name__ == "__main__":
    main()
