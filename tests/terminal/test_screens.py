"""The pictures in docs/screens.md are those of the scenes; a person at a real terminal sees the same (issue 15, 6, 7)."""

import runpy
from pathlib import Path

from emulator import Emulator
from terminal.person import at_terminal
from terminal.running import at, running_lab, script

ROOT = Path(__file__).resolve().parents[2]
TABLE = script(
    "table",
    '''
[[steps]]
text = """
Some **words**:

| fruit | how many |
|---|--:|
| apple | 12 |
"""
calls = [{ name = "bash", arguments = { command = "echo begun; until [ -e go.txt ]; do sleep 0.05; done" } }]

[[steps]]
text = "Done **well**."
''',
)
LATER = """Some words:

fruit │ how many
──────┼─────────
apple │       12
"""


def test_each_scene_has_its_picture() -> None:
    """Proves: the page has the scenes in their order, each with a frame; `python scripts/draw_screens.py` draws it anew."""
    drawn = runpy.run_path(str(ROOT / "scripts" / "draw_screens.py"))
    page = (ROOT / "docs" / "screens.md").read_text(encoding="utf-8")
    assert drawn["DRAWN"] in page
    sections = page.split("\n## ")[1:]
    assert [section.partition("\n")[0] for section in sections] == [scene.title for scene in drawn["SCENES"]]
    assert all("````text\n" in section for section in sections)


def test_a_table_and_a_wait_at_a_real_terminal(folder: Path) -> None:
    """Proves: the answer is rendered before the command that follows it; the wait shows the command's last line of output; with
    `--plain` the answer is as it was written."""
    with running_lab([TABLE]) as lab:
        for options, shown in (((), LATER), (("--plain",), TABLE.steps[0].text)):
            (folder / "go.txt").unlink(missing_ok=True)
            with at_terminal("run", "Go.", "--allow", "bash", *options, *at(lab, "table"), cwd=folder) as person:
                person.sees("step 1 of 20: bash runs")
                person.sees("  begun\n")
                person.sees("bash runs, ")
                (folder / "go.txt").touch()
                person.leaves_by(0)
                emulator = Emulator(columns=80, lines=24)
                emulator.write(person.raw.replace("\r\n", "\n"))
            assert emulator.text.startswith(shown), emulator.text
            assert ("Done well." in emulator.text) == (not options)
