"""Draw what a person sees into docs/screens.md: the real command line in a pseudo-terminal, a scripted provider, text frames.

Usage: python scripts/draw_screens.py [SCENE...]     (draws all; with names it only prints those)

A new picture is a `Scene`: a script of the lab, a command line, and a function that plays the person and takes the frames.
What differs from run to run (times, ids, the folder) is evened out.
"""

import argparse
import os
import re
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "tests"))

from emulator import Emulator  # noqa: E402
from terminal.person import CTRL_C, CTRL_D, ENTER, Person, at_terminal  # noqa: E402
from terminal.running import at, running_lab, script  # noqa: E402
from turnwise.coding_agent.model_names import keys_in  # noqa: E402

PAGE = ROOT / "docs" / "screens.md"
DRAWN = "<!-- drawn by scripts/draw_screens.py from runs; change the scenes, not this file -->"
COLUMNS, LINES = 100, 30
EVENED = (
    (re.compile(r"[⠋⠙⠹⠸⠼⠴⠦⠧⠇⠏] "), "⠋ "),
    (re.compile(r"session [0-9a-f]{8}"), "session 4f70a1c2"),
    (re.compile(r"\b\d+\.\d s\b"), "4.2 s"),
    (re.compile(r"Ollama on port \d+"), "Ollama on port 11434"),
    (re.compile(r"turnwise \d+\.\d+\S*(?=[:,])"), "turnwise 0.1"),
    (re.compile(r"\(\d+ s, then no\)"), "(300 s, then no)"),
    (re.compile(r"just now, \d\d:\d\d"), "just now, 14:07"),
)
Frame = tuple[str, str]  # what it shows, and the screen


class Scene(NamedTuple):
    name: str
    title: str
    script: str  # of the lab
    args: tuple[str, ...]
    play: Callable[[Person], Iterator[Frame]]
    chunk_delay_s: float = 0.0
    files: tuple[tuple[str, str], ...] = ()
    before: tuple[str, ...] = ()  # a command line of an earlier process
    is_first: bool = False  # nobody has named a model; the lab is found in Ollama's place, with this script alone


def screen_of(person: Person) -> str:
    emulator = Emulator(columns=COLUMNS, lines=LINES)
    emulator.write(person.raw.replace("\r\n", "\n"))
    return emulator.screen.rstrip()


TABLE = '''
[[steps]]
text = """
## Two files

`notes.txt` is a **draft**, and [the guide](https://example.org/guide) says how to go on:

| file | what it says | lines |
|---|---|--:|
| `notes.txt` | status: *draft* | 12 |
| `todo.txt` | nothing yet | 1 |

```python
def is_done(status: str) -> bool:
    return status == "done"
```

1. Set the status.
2. Run the tests.
"""
'''


def answer_with_a_table(person: Person) -> Iterator[Frame]:
    person.sees("| `notes.txt` |")
    yield "While it comes: the table is the block at hand, what is above it is rendered.", screen_of(person)
    person.leaves_by(0)
    yield "At the end.", screen_of(person)


WAIT = """
[[steps]]
calls = [{ name = "bash", arguments = { command = "for part in 1 2 3; do echo building part $part of 3; sleep 2; done" } }]

[[steps]]
text = "Three parts are built, and **all of them** are as they should be: nothing is left to do."
fault = { kind = "stall", at = "text" }
"""


def wait(person: Person) -> Iterator[Frame]:
    person.sees("building part 2 of 3")
    yield "A command runs; its last line of output stands beside what was spent so far.", screen_of(person)
    person.sees("nothing for 6 s")
    yield "A stream stalls in mid-answer. A further word would go on in its row.", screen_of(person)
    person.types(CTRL_C)
    person.leaves_by(130)
    yield "After Ctrl-C.", screen_of(person)


FIRST = """
[[steps]]
text = "This folder holds one file, notes.txt."
"""


def first_start(person: Person) -> Iterator[Frame]:
    person.sees("model [1]:")
    yield "A key is set, a server of this machine answers, and no model is chosen.", screen_of(person)
    person.types("2" + ENTER)
    person.sees("\n>")
    person.types("What is in here?" + ENTER)
    person.sees("one file, notes.txt.")
    person.sees("\n>")
    yield "The second is taken and remembered. The next start asks nothing.", screen_of(person)
    person.types(CTRL_D)
    person.leaves_by(0)


ASK = """
[[steps]]
calls = [{ name = "read", arguments = { path = "notes.txt" } }]

[[steps]]
calls = [{ name = "edit", arguments = { path = "notes.txt", old = "status: draft", new = "status: done" } }]

[[steps]]
text = "The status is done."
"""


def ask(person: Person) -> Iterator[Frame]:
    person.sees(", then no):")
    yield "The model wants to change a file. The seconds run down; then it is denied.", screen_of(person)
    person.types("y" + ENTER)
    person.leaves_by(0)
    yield "After `y`.", screen_of(person)


CONTINUED = """
[[steps]]
text = "notes.txt says `status: draft`; nothing else is in this folder."
"""


def continued(person: Person) -> Iterator[Frame]:
    person.sees("\n>")
    yield "`turnwise --continue` begins with the last exchange.", screen_of(person)
    person.types(CTRL_D)
    person.leaves_by(0)


NOTES = (("notes.txt", "title: a plan\nstatus: draft\n"),)
SCENES = (
    Scene("qwen3:8b", "The first start", FIRST, (), first_start, files=NOTES, is_first=True),
    Scene("table", "A streamed answer with a table", TABLE, ("run", "What is in here?"), answer_with_a_table, 0.05),
    Scene("ask", "An ask", ASK, ("run", "Set the status to done."), ask, files=NOTES),
    Scene("wait", "A wait", WAIT, ("run", "Build it.", "--allow", "bash"), wait),
    Scene(
        "guide",
        "A continued session",
        CONTINUED,
        ("--continue",),
        continued,
        files=NOTES,
        before=("run", "What do the notes say?", "-n"),
    ),
)


def frames_of(scene: Scene) -> Iterator[Frame]:
    """Play it in a folder of its own."""
    with tempfile.TemporaryDirectory(prefix="turnwise-screens-") as name:
        home = Path(name)
        folder = home / "project"
        folder.mkdir()
        for path, text in scene.files:
            (folder / path).write_text(text, encoding="utf-8")
        env = {"HOME": name, "TURNWISE_STATE_DIR": f"{name}/state", "XDG_CONFIG_HOME": f"{name}/config"}
        for variable in ("TURNWISE_MODEL", *[key.variable for key in keys_in(os.environ)]):
            os.environ.pop(variable, None)
        with running_lab([script(scene.name, scene.script)], chunk_delay_s=scene.chunk_delay_s) as lab:
            if scene.is_first:
                kept = lab.provider.scripts[scene.name]
                lab.provider.scripts.clear()
                lab.provider.scripts[scene.name] = kept
                env |= {"TURNWISE_LOCAL_PORTS": f"ollama={lab.url.rpartition(':')[2]}", "ANTHROPIC_API_KEY": "none"}
            where = [] if scene.is_first or scene.before else at(lab, scene.name)
            if scene.before:
                with at_terminal(*scene.before, *at(lab, scene.name), cwd=folder, env=env) as person:
                    person.leaves_by(0)
            with at_terminal(*scene.args, *where, cwd=folder, env=env) as person:
                person.resizes(columns=COLUMNS, lines=LINES)
                for said, screen in scene.play(person):
                    yield said, evened(screen, home=home)


def evened(screen: str, *, home: Path) -> str:
    screen = screen.replace(str(home), "~")
    for pattern, text in EVENED:
        screen = pattern.sub(text, screen)
    return screen


def section(scene: Scene) -> str:
    lines = [f"## {scene.title}", ""]
    for said, screen in frames_of(scene):
        lines += [said, "", "````text", *screen.split("\n"), "````", ""]
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", choices=[[], *[scene.name for scene in SCENES]], metavar="SCENE")
    names = parser.parse_args().names
    sections = [section(scene) for scene in SCENES if not names or scene.name in names]
    if names:
        print("\n".join(sections))
        return
    head = f"# Screens\n{DRAWN}\nWhat a person sees at a terminal of {COLUMNS} columns, without its colours."
    PAGE.write_text("\n".join([head, "", *sections]).rstrip() + "\n", encoding="utf-8")
    print(PAGE.relative_to(ROOT))


if __name__ == "__main__":
    main()
