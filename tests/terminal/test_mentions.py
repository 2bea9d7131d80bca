"""`@file` in what a person typed puts the file in, by the rules of `read` (issue 15, line 9)."""

import base64
import io
import json
import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tables import each
from terminal.running import Cli, at
from turnwise.coding_agent.prompts import MAX_FILES, MAX_MISSING, missing_files, named_files
from turnwise.lab import Lab
from turnwise.tools.workspace.paths import WorkspacePaths

PNG = base64.b64decode(
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
)


def sent(lab: Lab) -> list[Any]:
    content = json.loads(lab.requests[0].body)["messages"][-1]["content"]
    return content if isinstance(content, list) else [{"type": "text", "text": content}]


def test_a_named_file_goes_with_the_prompt_and_is_told(cli: Cli, lab: Lab, folder: Path) -> None:
    ran = cli("run", "What does @notes.txt say?", *at(lab, "plain-answer"))
    texts = "\n".join(part["text"] for part in sent(lab))
    assert "What does @notes.txt say?\n\nThe file `notes.txt`" in texts and "1\tstatus: draft" in texts
    assert ran.code == 0 and "put in: notes.txt" in ran.err


def test_an_image_goes_as_an_image(cli: Cli, lab: Lab, folder: Path) -> None:
    (folder / "shot.png").write_bytes(PNG)
    assert cli("run", "Describe @shot.png.", *at(lab, "plain-answer")).code == 0
    assert [part["type"] for part in sent(lab)][-1] == "image_url"


@pytest.mark.parametrize("name", [".env", "../outside.txt", "leads_out", "~/.ssh/id_rsa", "/etc/hostname"])
def test_what_read_may_not_show_at_once_is_left_out_and_told(
    cli: Cli, lab: Lab, folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    """A pasted prompt cannot bring a secret along."""
    (folder / ".env").write_text("KEY=hidden-value\n")
    (folder.parent / "outside.txt").write_text("hidden-value\n")
    (folder / "leads_out").symlink_to("../outside.txt")
    home = tmp_path / "home"
    monkeypatch.setenv("HOME", str(home))
    (home / ".ssh").mkdir(parents=True)
    (home / ".ssh/id_rsa").write_text("hidden-value\n")
    ran = cli("run", f"Look at @{name}", *at(lab, "plain-answer"))
    assert ran.code == 0 and len(sent(lab)) == 1
    assert f"not put in: {name} (" in ran.err and b"hidden-value" not in lab.requests[0].body


def test_what_was_piped_in_names_no_file(cli: Cli, lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    """Only a person's own words do: the prompt may be a web page or another program's output."""
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"look at @notes.txt")))
    assert cli("run", "-", *at(lab, "plain-answer")).code == 0
    assert b"status: draft" not in lab.requests[0].body


def test_a_folder_and_a_file_that_is_no_text_are_told(cli: Cli, lab: Lab, folder: Path) -> None:
    (folder / "sub").mkdir()
    (folder / "data.bin").write_bytes(b"\0\1\2" * 100)
    ran = cli("run", "See @sub and @data.bin", *at(lab, "plain-answer"))
    assert ran.code == 0 and ran.err.count("not put in: ") == 2 and len(sent(lab)) == 1


@pytest.mark.parametrize(
    ("content", "byte"),
    [(bytes(range(1, 256)) * 3, 127), ("Grün\n".encode("latin-1"), 2), (b"\xef\xbb\xbfgr\xc3\xbc\xff", 7)],
)
def test_a_file_that_is_not_utf_8_is_left_out_as_it_is_on_standard_input(
    cli: Cli, lab: Lab, folder: Path, content: bytes, byte: int
) -> None:
    """Issue 15: bytes without a NUL went in as U+FFFD, and turnwise said `put in`. The place is that of the first such byte."""
    (folder / "bin.dat").write_bytes(content)
    ran = cli("run", "What is in @bin.dat?", *at(lab, "plain-answer"))
    assert f"not put in: `bin.dat` is not UTF-8 (byte {byte} of {len(content)})" in ran.err
    assert ran.code == 0 and len(sent(lab)) == 1 and "\ufffd" not in sent(lab)[0]["text"]


def test_more_files_than_a_prompt_takes_are_told(cli: Cli, lab: Lab, folder: Path) -> None:
    names = [f"f{number}" for number in range(MAX_FILES + 3)]
    for name in names:
        (folder / name).write_text(name)
    ran = cli("run", " ".join(f"@{name}" for name in names), *at(lab, "plain-answer"))
    assert "not put in: 3 more; a prompt takes 20 files" in ran.err


@each(
    ("typed", "found"),
    [
        ("see @a.txt.", ["a.txt"]),
        ("(@a.txt), '@b c.txt'", ["a.txt"]),
        ('@"b c.txt" and @b\\ c.txt', ["b c.txt"]),
        ("mail ada@a.txt or x/@a.txt", []),
        ("@a.txt @a.txt @./a.txt", ["a.txt", "./a.txt"]),
        ("@decorator @types/node @", []),
        ("line\n@a.txt\n", ["a.txt"]),
        ("@a.txt?!", ["a.txt"]),
        ("@..", [".."]),
    ],
)
def test_a_name_ends_where_a_reader_would_end_it(tmp_path: Path, typed: str, found: list[str]) -> None:
    (tmp_path / "a.txt").write_text("a")
    (tmp_path / "b c.txt").write_text("b")
    assert named_files(typed, workspace=WorkspacePaths(tmp_path)) == found


@each(
    ("typed", "missing"),
    [
        ("look at @nope.py", ["nope.py"]),
        ("see @nope.py, @src/nope.ts! and @./nope", ["nope.py", "src/nope.ts", "./nope"]),
        ('@"no such.txt" and @no\\ such.md?', ["no such.txt", "no such.md"]),
        ("@sub/nope @../nope @~/nope_at_home", ["sub/nope", "../nope", "~/nope_at_home"]),
        ("@a.txt @a.txt. @sub/ @nope.py @nope.py", ["nope.py"]),
        ("@alice @bob.smith @user.name: and ada@nope.py", []),
        ('@decorator\n@app.get("/x.py")\n@pytest.mark.parametrize(\n@property\n@x.setter\n@app.md("x")', []),
        ("@types/node @angular/core/testing @scope/pkg@1.2.3 @types/node@18.0.0.js", []),
        ("@media @example.com @alice@mastodon.social @/components/Button @/components/button.tsx @", []),
        ("@https://example.com/nope.py", []),
    ],
)
def test_a_path_that_leads_nowhere_is_known_from_other_words(tmp_path: Path, typed: str, missing: list[str]) -> None:
    """Proves: people, decorators, packages, addresses and what is there are not complained of."""
    (tmp_path / "a.txt").write_text("a")
    (tmp_path / "sub").mkdir()
    assert missing_files(typed, workspace=WorkspacePaths(tmp_path)) == missing


def test_a_file_that_is_not_there_is_told_and_goes_as_words(cli: Cli, lab: Lab, folder: Path) -> None:
    """Proves: the words go to the model all the same; of many, a few are named."""
    ran = cli("run", "look at @nope.py", *at(lab, "plain-answer"))
    assert ran.code == 0 and "not put in: nope.py: there is no such file\n" in ran.err and len(sent(lab)) == 1
    ran = cli("run", " ".join([f"@n{number}.py" for number in range(9)]), *at(lab, "plain-answer"))
    assert ran.err.count("there is no such file") == MAX_MISSING and "not put in: 4 more that are not there" in ran.err


def test_what_does_not_go_whole_says_how_much_goes(cli: Cli, lab: Lab, folder: Path) -> None:
    """Proves: of a long file its first lines, of a long line its beginning."""
    (folder / "big.txt").write_text("".join([f"{number}\n" for number in range(3_000)]))
    (folder / "wide.json").write_text("x" * 5_000 + "\n[lines 1 to 2 of 9; go on with offset=3]\n")
    ran = cli("run", "See @big.txt, @wide.json and @notes.txt", *at(lab, "plain-answer"))
    assert "put in: big.txt (only lines 1 to 2,000 of 3,000; the model may read more)\n" in ran.err
    assert "put in: wide.json (only 1 long line cut at 2,000 characters; the model may read more)\n" in ran.err
    assert "put in: notes.txt\n" in ran.err


@given(st.text(max_size=300))
def test_whatever_is_typed_is_looked_through(typed: str) -> None:
    """NUL bytes, half surrogates, names that are too long."""
    text = f"@{typed} @\x00.py @~nobody/x @{'x' * 5_000}.py @/{typed}"
    assert named_files(text, workspace=WorkspacePaths("/")) is not None
    assert missing_files(text, workspace=WorkspacePaths("/")) is not None


def test_a_session_is_named_by_the_persons_own_words(
    lab: Lab, folder: Path, cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Proves: neither a file that was put in nor what was piped in stands in the title of the session."""
    (folder / "given").write_text("piped text")
    with (folder / "given").open() as given:
        monkeypatch.setattr(sys, "stdin", given)
        cli("run", "See @notes.txt.", *at(lab, "plain-answer"))
    assert "See @notes.txt.  " in cli("sessions", "list").out
    assert "piped text" not in cli("sessions", "list").out and "status: draft" not in cli("sessions", "list").out
    assert b"piped text" in lab.requests[0].body and b"status: draft" in lab.requests[0].body
