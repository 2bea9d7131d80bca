"""What read, write and edit make of files of every kind: images, encodings, line ends, links, what was not read."""

import os
import tempfile
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from turnwise.errors import ToolFault
from turnwise.tools.workspace.changes import FileChanges
from turnwise.tools.workspace.edit_tool import (
    EditArguments,
    MultiEditArguments,
    OneEdit,
    WriteArguments,
    edit,
    multi_edit,
    write,
)
from turnwise.tools.workspace.patch_tool import PatchArguments, apply_patch
from turnwise.tools.workspace.paths import WorkspacePaths
from turnwise.tools.workspace.previews import MAX_LINES, paths_of_call, preview, shortly, whole_preview
from turnwise.tools.workspace.read_tool import MAX_IMAGE_BYTES, ReadArguments, read
from turnwise.vocab import File, Text


@pytest.fixture
def workspace(tmp_path: Path) -> WorkspacePaths:
    root = tmp_path / "root"
    root.mkdir()
    return WorkspacePaths(root, changes=FileChanges(tmp_path / "store"))


def put(workspace: WorkspacePaths, name: str, content: bytes) -> Path:
    path = workspace.root / name
    path.write_bytes(content)
    return path


def say(workspace: WorkspacePaths, path: str, content: str, *, append: bool = False, overwrite: bool = False) -> str:
    return write(workspace, WriteArguments(path=path, content=content, append=append, overwrite=overwrite))


@pytest.mark.parametrize(
    ("name", "content", "media_type"),
    [
        ("a.png", b"\x89PNG\r\n\x1a\nrest", "image/png"),
        ("b", b"\xff\xd8\xff\xe0rest", "image/jpeg"),
        ("c.gif", b"GIF89arest", "image/gif"),
        ("d.webp", b"RIFF\x10\0\0\0WEBPrest", "image/webp"),
    ],
)
def test_an_image_is_shown_as_one(name: str, content: bytes, media_type: str, workspace: WorkspacePaths) -> None:
    """Proves: by what is in it, whatever its name; one that is too large for a request is refused."""
    put(workspace, name, content)
    assert read(workspace, ReadArguments(path=name)) == [
        Text(f"`{name}` ({media_type}, {len(content)} bytes)"),
        File(media_type=media_type, data=content, name=name),
    ]
    put(workspace, name, content + bytes(MAX_IMAGE_BYTES))
    with pytest.raises(ToolFault, match="make a smaller copy"):
        read(workspace, ReadArguments(path=name))


def test_other_binaries_are_named(workspace: WorkspacePaths) -> None:
    """Proves: the model hears what it is, not how it looks."""
    for content, kind in (
        (b"%PDF-1.7\n\0", "a PDF document"),
        (b"PK\x03\x04\0", "a ZIP archive"),
        (b"SQLite format 3\0", "an SQLite database"),
        ("a".encode("utf-32"), "text in UTF-32"),
        ("one\r\ntwo é\n".encode("utf-16-le"), "text in UTF-16 without a byte order mark"),
        ("one\ttwo\n".encode("utf-16-be"), "text in UTF-16 without a byte order mark"),
        (b"\x01\0\x02\0", "a binary file"),
        (b"ab\0c", "a binary file"),
    ):
        put(workspace, "f", content)
        with pytest.raises(ToolFault, match=f"`f` is {kind}"):
            read(workspace, ReadArguments(path="f"))
        with pytest.raises(ToolFault, match="no text that can be edited"):
            edit(workspace, EditArguments(path="f", old="a", new="b"))


def test_utf16_is_read_and_kept(workspace: WorkspacePaths) -> None:
    """Proves: reading says so; editing, replacing and adding keep encoding, mark and line ends."""
    path = put(workspace, "f", "\ufeffeins\r\nzwei ü\r\n".encode("utf-16-be"))
    assert read(workspace, ReadArguments(path="f")) == (
        "     1\teins\n     2\tzwei ü\n[the file is UTF-16-BE; `edit` and `write` keep that]"
    )
    edit(workspace, EditArguments(path="f", old="eins\nzwei", new="1\n2"))
    say(workspace, "f", "3\n", append=True)
    assert path.read_bytes() == "\ufeff1\r\n2 ü\r\n3\r\n".encode("utf-16-be")
    assert say(workspace, "f", "neu\n").endswith("kept its Windows line ends and UTF-16-BE with byte order mark)")
    assert path.read_bytes() == "\ufeffneu\r\n".encode("utf-16-be")


def test_a_replaced_file_keeps_its_mark_and_line_ends(workspace: WorkspacePaths) -> None:
    """Proves: a model writes plain lines; the file stays as its editors want it. Mixed ends are told, and left to the model."""
    path = put(workspace, "f", b"\xef\xbb\xbfa\r\nb\r\n")
    say(workspace, "f", "\ufeffc\nd\n", overwrite=True)
    assert path.read_bytes() == b"\xef\xbb\xbfc\r\nd\r\n"
    put(workspace, "f", b"a\r\nb\n")
    assert "[some lines end as Windows ends them, some do not]" in str(read(workspace, ReadArguments(path="f")))
    put(workspace, "f", b"one\rtwo\r")
    assert str(read(workspace, ReadArguments(path="f"))).endswith(
        "\n[its lines end with CR alone, so all of it counts as one line]"
    )
    say(workspace, "f", "x\ny\r\n")
    assert path.read_bytes() == b"x\ny\r\n"


def test_what_was_not_read_is_not_replaced(workspace: WorkspacePaths) -> None:
    """Proves: not before it was read, not after somebody changed it, but when it was read again, written by the model itself,
    is empty, or `overwrite` is set; adding needs no reading."""
    path = put(workspace, "f", b"old\n")
    with pytest.raises(ToolFault, match="exists, and you have not read it"):
        say(workspace, "f", "new\n")
    say(workspace, "f", "more\n", append=True)
    read(workspace, ReadArguments(path="f"))
    path.write_bytes(b"of somebody else\n")
    with pytest.raises(ToolFault, match="changed since you read it"):
        say(workspace, "f", "new\n")
    read(workspace, ReadArguments(path="f"))
    say(workspace, "f", "new\n")
    say(workspace, "f", "newer\n")
    path.write_bytes(b"again\n")
    say(workspace, "f", "told\n", overwrite=True)
    assert path.read_bytes() == b"told\n"
    put(workspace, "empty", b"")
    say(workspace, "empty", "x")


def test_links_are_written_through_and_hard_links_told(workspace: WorkspacePaths) -> None:
    """Proves: a link stays a link; further names of a replaced file are said to hold the old content; a link that leads
    outside, or nowhere inside, is refused."""
    path = put(workspace, "real", b"1\n")
    (workspace.root / "link").symlink_to("real")
    os.link(path, workspace.root / "twin")
    assert "further names (hard links)" in say(workspace, "link", "2\n", overwrite=True)
    assert (workspace.root / "link").is_symlink() and path.read_bytes() == b"2\n"
    assert (workspace.root / "twin").read_bytes() == b"1\n"
    (workspace.root / "dangling").symlink_to("../outside")
    with pytest.raises(ToolFault, match="outside the workspace"):
        say(workspace, "dangling", "x")


def test_a_missing_file_is_told_with_what_may_be_meant(workspace: WorkspacePaths) -> None:
    """Proves: a slip in the name, another case, a slip in a folder on the way."""
    (workspace.root / "source").mkdir()
    put(workspace, "source/settings.py", b"")
    put(workspace, "README.md", b"")
    for wanted, meant in (
        ("source/setings.py", "`source/settings.py`"),
        ("readme.MD", "`README.md`"),
        ("sorce/settings.py", "`source`"),
    ):
        with pytest.raises(ToolFault) as caught:
            read(workspace, ReadArguments(path=wanted))
        assert str(caught.value) == f"`{wanted}` does not exist; there is {meant}"
    with pytest.raises(ToolFault, match=r"`zzz` does not exist$"):
        read(workspace, ReadArguments(path="zzz"))


def test_a_near_miss_is_shown_with_what_differs(workspace: WorkspacePaths) -> None:
    """Proves: white space by kind and count, the nearest lines with their numbers."""
    put(workspace, "f", b"def f():\n\treturn total  \n\nclass A:\n    value = 1\n    other = 2\n")
    for old, hint in (
        ("    return total", "line 2 is indented by 1 tab, `old` by 4 spaces"),
        ("\treturn total\n", "line 2 ends with 2 spaces, `old` with nothing"),
        ("value  = 1", "line 5 is indented by 4 spaces, `old` by nothing"),
        ("    value = 1\n    othre = 2", "The nearest lines are 5 to 6:\n    value = 1\n    other = 2"),
        ("qqqqqqqq", "Nothing in it is like that"),
    ):
        if old == "\treturn total\n":
            old = "\treturn total\n\nclass A:"
        with pytest.raises(ToolFault) as caught:
            edit(workspace, EditArguments(path="f", old=old, new="x"))
        assert hint in str(caught.value)


def test_several_edits_say_which_one_failed(workspace: WorkspacePaths) -> None:
    """Proves: the number of the edit, why, and that none was made."""
    path = put(workspace, "f", b"a\nb\n")
    edits = [OneEdit(old="a", new="c"), OneEdit(old="a", new="d")]
    with pytest.raises(ToolFault) as caught:
        multi_edit(workspace, MultiEditArguments(path="f", edits=edits))
    assert str(caught.value).startswith("edit 2 of 2: `old` is not in `f`.")
    assert str(caught.value).endswith("None of the edits was made.") and path.read_bytes() == b"a\nb\n"


def test_a_preview_hides_nothing_of_a_script(workspace: WorkspacePaths) -> None:
    """Proves (issue 13, 9): a NUL makes no binary of what a shell runs, carriage returns at line ends and invisible characters
    are shown, a name stays on its line, and the whole preview has every line, also where nothing is compared."""
    script = "#!/bin/sh\r\nrm -rf x\0\necho \u3164\n"
    assert preview(workspace, "write", {"path": "n.sh", "content": script}) == (
        "--- /dev/null\n+++ n.sh\n@@ -0,0 +1,3 @@\n+#!/bin/sh<U+000D>\n+rm -rf x<U+0000>\n+echo <U+3164>"
    )
    put(workspace, "old.sh", b"echo\0 1\n")
    replaced = preview(workspace, "write", {"path": "old.sh", "content": "echo 2\n", "overwrite": True})
    assert replaced.endswith("-echo<U+0000> 1\n+echo 2")
    put(workspace, "image", b"\x89PNG\r\n\x1a\n\0\xff")
    replaced = preview(workspace, "write", {"path": "image", "content": "echo 2\n", "overwrite": True})
    assert replaced.endswith("-(an image (image/png), 10 bytes)\n+echo 2")
    named = preview(workspace, "write", {"path": "a\n+++ b", "content": "x\n"})
    assert "+++ a\\x0a+++ b\n" in named
    long = "".join([f"line {number} {'y' * 400}\n" for number in range(5000)])
    put(workspace, "long", long.upper().encode())
    lines = whole_preview(workspace, "write", {"path": "long", "content": long, "overwrite": True})
    assert lines[-5000:] == [f"+{line}" for line in long.splitlines()]
    assert lines[-10_000:-5000] == [f"-{line}" for line in long.upper().splitlines()]
    assert len(shortly(lines)) == MAX_LINES + 1 and lines[2] == "(5,000 lines are replaced by 5,000, from line 1 on)"


def test_a_preview_shows_the_change_and_makes_none(workspace: WorkspacePaths) -> None:
    """Proves: a diff with the file's own line numbers for each writing tool, a sentence where the call would fail, nothing
    for other tools; bounded; no control character reaches the terminal."""
    lines = [f"line {number}\n" for number in range(1, 101)]
    path = put(workspace, "f", "".join(lines).encode())
    assert preview(workspace, "edit", {"path": "f", "old": "line 50", "new": "\x1b[31mred\u202e"}) == "\n".join(
        [
            *("--- f", "+++ f", "@@ -47,7 +47,7 @@", " line 47", " line 48", " line 49", "-line 50"),
            *("+<U+001B>[31mred<U+202E>", " line 51", " line 52", " line 53"),
        ]
    )
    assert preview(workspace, "write", {"path": "n", "content": "1\n2"}) == (
        "--- /dev/null\n+++ n\n@@ -0,0 +1,2 @@\n+1\n+2 (no line end)"
    )
    assert preview(workspace, "write", {"path": "f", "content": "x"}).startswith("(the call would fail: `f` exists")
    assert preview(workspace, "write", {"path": "f"}).startswith("(the call would fail: ")
    assert preview(workspace, "bash", {"command": "true"}) == ""
    long = preview(workspace, "write", {"path": "n", "content": "y" * 1000 + "\nx" * 5000}).split("\n")
    assert len(long) == MAX_LINES + 1 and long[-1].endswith("more lines]") and len(long[3]) < 400
    assert path.read_text() == "".join(lines) and not (workspace.root / "n").exists()
    assert not list((workspace.root.parent / "store").glob("*"))


def test_paths_of_a_call_are_those_that_it_names() -> None:
    """Proves: what is inspected before a call runs is what the call will open."""
    patch = "*** Begin Patch\n*** Update File: a\n*** Move to: b\n-x\n*** Delete File: c\n*** End Patch"
    assert paths_of_call("apply_patch", {"patch": patch}) == ("a", "b", "c")
    assert paths_of_call("apply_patch", {"patch": patch[:-5]}) == ()
    assert paths_of_call("read", {"path": "x"}) == ("x",)
    assert paths_of_call("search", {"pattern": "x"}) == (".",)
    assert paths_of_call("bash", {"path": "x"}) == ()


def test_what_was_read_is_what_may_be_replaced(workspace: WorkspacePaths) -> None:
    """Issue 13, line 16: one line of 5,000 counted as the file. Every line has to be shown whole, in whatever pieces; a cut line
    never is."""
    put(workspace, "f", b"".join(b"%d\n" % number for number in range(1, 5001)))

    def refusal() -> str:
        with pytest.raises(ToolFault) as raised:
            say(workspace, "f", "new\n")
        return str(raised.value)

    for offset, limit, rest in [
        (17, 1, "1 to 16, 18 to 5000"),
        (6000, 1, "1 to 16, 18 to 5000"),
        (10, 20, "1 to 9, 30 to 5000"),
        (4000, 2000, "1 to 9, 30 to 3999"),
        (1, 2000, "2001 to 3999"),
        (2001, 1998, "3999"),
    ]:
        read(workspace, ReadArguments(path="f", offset=offset, limit=limit))
        assert f"`f` was read in part only (not shown whole: line {rest}): `read` it first" in refusal()
    read(workspace, ReadArguments(path="f", offset=3999, limit=1))
    say(workspace, "f", "new\n")
    put(workspace, "f", b"a\n" + b"x" * 2001 + b"\nb\n" + b"y" * 2000 + b"\n")
    read(workspace, ReadArguments(path="f"))
    assert "(not shown whole: line 2)" in refusal()


@given(
    total=st.integers(1, 12),
    reads=st.lists(st.tuples(st.integers(1, 14), st.integers(1, 12)), max_size=8),
    long=st.sets(st.integers(1, 12)),
)
def test_a_file_is_known_when_each_line_was_shown(total: int, reads: list[tuple[int, int]], long: set[int]) -> None:
    """For all orders of pieces: what may be replaced is exactly what the results have shown."""
    with tempfile.TemporaryDirectory() as folder:
        workspace = WorkspacePaths(folder)
        lines = [(f"{at}" + "x" * (3000 if at in long else 3)) for at in range(1, total + 1)]
        path = put(workspace, "f", "".join([f"{line}\n" for line in lines]).encode())
        shown = "".join([str(read(workspace, ReadArguments(path="f", offset=at, limit=count))) for at, count in reads])
        seen = {line.partition("\t")[2] for line in shown.split("\n")} | {
            each for each in lines if f"\t{each}" in shown
        }
        assert (workspace.seen.doubt(path.resolve(), path.read_bytes()) == "") == (set(lines) <= seen)


def test_changing_a_file_is_not_reading_it(workspace: WorkspacePaths) -> None:
    """After adding, editing, patching or moving an unread file, the rest of it is still unread; a read one stays read."""

    def add() -> None:
        say(workspace, "f", "more\n", append=True)

    def change() -> None:
        edit(workspace, EditArguments(path="f", old="one", new="1"))

    def move() -> None:
        patch = "*** Begin Patch\n*** Update File: f\n*** Move to: g\n@@\n-one\n+1\n*** End Patch"
        apply_patch(workspace, PatchArguments(patch=patch))

    for act, name in ((add, "f"), (change, "f"), (move, "g")):
        for first_read in (False, True):
            for path in ("f", "g"):
                (workspace.root / path).unlink(missing_ok=True)
            put(workspace, "f", b"one\ntwo\n")
            workspace.seen.drop(workspace.root / "f")
            if first_read:
                read(workspace, ReadArguments(path="f"))
            act()
            if first_read:
                say(workspace, name, "new\n")
            else:
                with pytest.raises(ToolFault, match="exists, and you have not read it"):
                    say(workspace, name, "new\n")
    apply_patch(workspace, PatchArguments(patch="*** Begin Patch\n*** Add File: h\n+x\n*** End Patch"))
    say(workspace, "h", "new\n")  # all of it stood in the patch


@pytest.mark.parametrize(
    ("before", "old", "new", "after"),
    [
        (b"one\r\ntwo\r\nthree", "\ntwo", "", b"one\r\nthree"),
        (b"one\r\ntwo\r\n", "two\r", "2", None),
        (b"one\r\ntwo\r\n", "\r", "", None),
        (b"one\r\ntwo\r\n", "one\r\n", "one\nand\n", b"one\r\nand\r\ntwo\r\n"),
        (b"one\ntwo\n", "one\r\ntwo", "1\r\n2", b"1\n2\n"),
        (b"one\ntwo\n", "two", "2\r\n3", b"one\n2\n3\n"),
        (b"a\r\nb\r\n", "a\r\nb", "a\nb", b"a\nb\r\n"),
        (b"a\r\nb\r\n", "a\nb", "a\r\nb", None),
        (b"a\r\nb\nc\n", "\n", "\r\n", b"a\r\nb\r\nc\r\n"),
        (b"a\r\nb\r\n", "\r\n", "\n", b"a\nb\n"),
        (b"a\r\nb\nc\r\na\nb", "a\nb", "x\ny", b"x\r\ny\nc\r\nx\ny"),
        (b"a\r\nb\nc", "c", "c\nd", b"a\r\nb\nc\nd"),
        (b"x\r\r\ny\r\n", "x\r\r\n", "x\n", b"x\r\ny\r\n"),
        ("eins\r\nzwei".encode("utf-16"), "\nzwei", "\nzwei\ndrei", "eins\r\nzwei\r\ndrei".encode("utf-16")),
    ],
)
def test_an_edit_keeps_line_ends_whole(
    before: bytes, old: str, new: str, after: bytes | None, workspace: WorkspacePaths
) -> None:
    """Proves: no match begins or ends between CR and LF; both texts are read in the line ends of their place, unless nothing but
    these changes; what would leave the file as it is (None) is refused. Found: `old="\\ntwo"` left `one\\r\\r\\nthree`."""
    path = put(workspace, "f", before)
    given = EditArguments(path="f", old=old, new=new, replace_all=True)
    if after is None:
        with pytest.raises(ToolFault, match=r"is not in `f`|would be as before"):
            edit(workspace, given)
    else:
        edit(workspace, given)
    assert path.read_bytes() == (before if after is None else after)


def test_what_changes_nothing_is_no_success(workspace: WorkspacePaths) -> None:
    """Proves: edits that undo each other, a patch section and a whole file as before are told; a whole file in other line ends
    is written in these."""
    path = put(workspace, "f", b"a\r\nb\r\n")
    there_and_back = [OneEdit(old="a", new="x"), OneEdit(old="x", new="a")]
    with pytest.raises(ToolFault, match="would be as before: the edits undo each other"):
        multi_edit(workspace, MultiEditArguments(path="f", edits=there_and_back))
    read(workspace, ReadArguments(path="f"))
    assert say(workspace, "f", "a\r\nb\r\n") == "`f` has this content already: nothing was changed"
    section = "*** Update File: f\n@@\n-a\n+a\n*** Add File: g\n+new\n"
    assert "M f (it is as before" in apply_patch(
        workspace, PatchArguments(patch=f"*** Begin Patch\n{section}*** End Patch")
    )
    assert "Windows" not in say(workspace, "f", "a\nb\n") and path.read_bytes() == b"a\nb\n"


def test_letters_composed_otherwise_are_told_with_their_place(workspace: WorkspacePaths) -> None:
    """Proves: the refusal names the line and the characters in a form that a model can give back; lines that look the same do
    not help it."""
    put(workspace, "f", "other\ncafe\u0301 menu\n".encode())
    told = r"stands in line 2.* the line is `cafe\\u0301 menu`, and what you gave is `caf\\u00e9 menu`"
    with pytest.raises(ToolFault, match=told):
        edit(workspace, EditArguments(path="f", old="caf\u00e9 menu", new="y"))
    for hunk in ("@@\n-caf\u00e9 menu\n+y", "@@ caf\u00e9 menu\n-x\n+y"):
        with pytest.raises(ToolFault, match=told):
            apply_patch(workspace, PatchArguments(patch=f"*** Begin Patch\n*** Update File: f\n{hunk}\n*** End Patch"))
