"""Text of strangers in all that a session shows of the work: it cannot drive a terminal, and nothing of it hides (issue 46)."""

import re
from pathlib import Path

import msgspec
import pytest

from terminal.person import CTRL_D, ENTER, at_terminal
from terminal.running import at, running_lab, script

# Titles, notices, the clipboard, colours, cursors, 8-bit forms, a bell, bidi controls, characters of no width.
EVIL = (
    r"\u001b]0;pwned\u0007\u001b]9;pwned\u0007\u001b]52;c;cHduZWQ=\u0007\u001b[2J\u001b[31m\u009b2J\u009d0;pwned\u009c\u0007"
    r"\u202e\u2066\u200b\u2028\r\u0008\u001bc"
)
SHOWS = script(
    "shows",
    rf"""
[[steps]]
reasoning = "Think {EVIL} on."
calls = [
    {{ name = "plan", arguments = {{ entries = [{{ content = "Do {EVIL} it", status = "in_progress" }}] }} }},
    {{ name = "write", arguments = {{ path = "n{EVIL}.txt", content = "one{EVIL}\ntwo\n" }} }},
    {{ name = "edit", arguments = {{ path = "old.txt", old = "status", new = "st{EVIL}" }} }},
    {{ name = "read", arguments = {{ path = "latin.txt" }} }},
    {{ name = "edit", arguments = {{ path = "latin.txt", old = "caf", new = "tea" }} }},
    {{ name = "multi{EVIL}", arguments = {{ path = "x{EVIL}" }} }},
]

[[steps]]
calls = [{{ name = "bash", arguments = {{ command = "cat evil.bin; : {EVIL}" }} }}]

[[steps]]
calls = [{{ name = "task", arguments = {{ prompt = "Do {EVIL}", agent = "g{EVIL}" }} }}]

[[steps]]
text = "Done{EVIL}."
""",
)
# What turnwise itself sends: colours, the cursor, the prompt's modes, the title and the notice with its own words.
OURS = re.compile(
    r"\x1b\[[0-9;]*m|\x1b\[[0-9;]*[ABCDGHJK]|\x1b\[\?[0-9;]*[hl]|\x1b\[2[23];2t|\x1b\[6n|\x1b[78=>]|\x1b\[>?[0-9;]*u"
    r"|\x08(?=\x1b)|\x1b\]2;turnwise[^\x00-\x1f\x7f-\x9f]*\x07|\x1b\]9;turnwise [^\x00-\x1f\x7f-\x9f]*\x07|\x07"
)


EVIL_TEXT = str(msgspec.json.decode(f'"{EVIL}"'))


@pytest.mark.parametrize("columns", [60, 200])
def test_no_text_of_a_stranger_drives_the_terminal(folder: Path, columns: int) -> None:
    """In reasoning, plan, names of files, tools and agents, diffs (of a file that is no UTF-8, too), a command and its output,
    the folder's name in the title: each is shown, spelled out, also where it is opened."""
    work = folder / f"w{EVIL_TEXT}\nx"
    work.mkdir()
    (work / "old.txt").write_text("status: old\n")
    (work / "latin.txt").write_bytes(b"caf\xe9 \x1b]0;pwned\x07\x9b2J\n")
    (work / "evil.bin").write_bytes((EVIL_TEXT * 3).encode() + b"\xff\xfe\x9b2J\x1b]0;pwned\n")
    with (
        running_lab([SHOWS]) as lab,
        at_terminal("--mode", "edits", *at(lab, "shows"), cwd=work, columns=columns) as person,
    ):
        person.sees("edits>")
        person.types(f"Go.{ENTER}")
        person.sees("then no)")
        person.types_until(f"y{ENTER}", "Done", pause_s=0.5)
        person.sees("edits>")
        person.types("\x0f")
        person.sees("space: next")
        person.types("nnq")
        person.sees("edits>")
        person.types(CTRL_D)
        person.leaves_by(0)
    assert (work / "latin.txt").read_bytes() == b"tea\xe9 \x1b]0;pwned\x07\x9b2J\n"
    left = OURS.sub("", person.raw)
    assert [char for char in left if (char < " " and char not in "\r\n\t") or "\x7f" <= char <= "\x9f"] == []
    assert not {*"\u202e\u2066\u200b\u2028"} & {*left}
    assert person.raw.count("<U+001B>") > 20
