"""`apply_patch`: both formats, where hunks are found, and what is refused."""

from pathlib import Path

import pytest

from turnwise.errors import ToolFault
from turnwise.tools.workspace.changes import FileChanges
from turnwise.tools.workspace.patch_tool import PatchArguments, apply_patch
from turnwise.tools.workspace.paths import WorkspacePaths

CLASSES = "class A:\n    def f(self):\n        return 1\n\nclass B:\n    def f(self):\n        return 1\n"


@pytest.fixture
def workspace(tmp_path: Path) -> WorkspacePaths:
    root = tmp_path / "root"
    root.mkdir()
    (root / "c.py").write_text(CLASSES)
    (root / "w.txt").write_bytes(b"one\r\ntwo\r\nthree")
    return WorkspacePaths(root, changes=FileChanges(tmp_path / "store"))


def patched(workspace: WorkspacePaths, body: str) -> str:
    return apply_patch(workspace, PatchArguments(patch=f"*** Begin Patch\n{body}\n*** End Patch"))


def refused(workspace: WorkspacePaths, body: str) -> str:
    before = {path: path.read_bytes() for path in workspace.root.iterdir() if path.is_file()}
    with pytest.raises(ToolFault) as caught:
        patched(workspace, body)
    assert {path: path.read_bytes() for path in workspace.root.iterdir() if path.is_file()} == before
    return str(caught.value)


HUNK = "-        return 1\n+        return 2"


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        (f"*** Update File: c.py\n@@ class B:\n@@     def f(self):\n{HUNK}", CLASSES[:-2] + "2\n"),
        (f"*** Update File: c.py\n@@ class B\n{HUNK}", CLASSES[:-2] + "2\n"),
        (f"*** Update File: c.py\n{HUNK}\n*** End of File", CLASSES[:-2] + "2\n"),
        (f"*** Update File: c.py\n \n class B:\n     def f(self):\n{HUNK}", CLASSES[:-2] + "2\n"),
        ("*** Update File: c.py\n@@ class A:\n+    x = 1", CLASSES.replace("class A:\n", "class A:\n    x = 1\n")),
        ("*** Update File: c.py\n@@\n+# end", CLASSES + "# end\n"),
        ("*** Update File: c.py\n class A:\n+    y = 1\n@@\n class B:\n-    def f(self):\n+    def g(self):\n",
         CLASSES.replace("class A:\n", "class A:\n    y = 1\n").replace("B:\n    def f", "B:\n    def g")),
    ],
    ids=["anchors", "short anchor", "at the end", "context", "insertion", "at the end of the file", "two hunks"],
)  # fmt: skip
def test_a_hunk_is_found_where_it_says(body: str, expected: str, workspace: WorkspacePaths) -> None:
    """Proves: `@@` lines, `*** End of File` and context tell two equal places apart."""
    assert patched(workspace, body) == "applied the patch:\nM c.py"
    assert (workspace.root / "c.py").read_text() == expected


@pytest.mark.costly
def test_thousands_of_hunks_on_a_large_file_end(workspace: WorkspacePaths) -> None:
    """Proves (issue 13, hostile tester, 19): the lines are looked through once for all hunks; what takes too long is refused."""
    lines = [f"line {number}" if number % 2 else "" for number in range(200_000)]
    (workspace.root / "big.txt").write_text("\n".join(lines) + "\n")
    hunks = [f"@@\n \n-line {number}\n+changed {number}\n " for number in range(1, 200_000, 50)]
    assert patched(workspace, "*** Update File: big.txt\n" + "\n".join(hunks)) == "applied the patch:\nM big.txt"
    assert (workspace.root / "big.txt").read_text().count("changed") == 4000
    sections = [f"*** Update File: big.txt\n-line {number}\n+other {number}" for number in range(3, 20_003, 50)]
    assert "too many sections" in refused(workspace, "\n".join(sections))


def test_line_ends_and_the_missing_last_one_are_kept(workspace: WorkspacePaths) -> None:
    """Proves: new lines end as the file's; a file without a last line end stays so; kept lines stay byte for byte."""
    patched(workspace, "*** Update File: w.txt\n one\n-two\n+2\n+2b\n three\n+four")
    assert (workspace.root / "w.txt").read_bytes() == b"one\r\n2\r\n2b\r\nthree\r\nfour"
    (workspace.root / "w.txt").write_bytes(
        b"a\r\nb\nc\r\nd\ne\n"
    )  # each new line as the line that it replaces, or precedes
    patched(workspace, "*** Update File: w.txt\n a\n-b\n-c\n+B\n+C\n+C2\n d\n+d2\n e")
    assert (workspace.root / "w.txt").read_bytes() == b"a\r\nB\nC\r\nC2\r\nd\nd2\ne\n"
    (workspace.root / "w.txt").write_bytes("“quoted” – text  \nnext\n".encode())
    said = patched(workspace, '*** Update File: w.txt\n "quoted" - text\n-next\n+after')
    assert said == "applied the patch:\nM w.txt (hunk 1: fits apart from blanks at line ends or typographic characters)"
    assert (workspace.root / "w.txt").read_bytes() == "“quoted” – text  \nafter\n".encode()


def test_sections_of_one_file_add_up(workspace: WorkspacePaths) -> None:
    """Proves: two updates of one file, a delete and an add of the same name, a move onto a name that was moved away."""
    patched(
        workspace,
        "*** Update File: c.py\n class A:\n+    x = 1\n*** Update File: c.py\n     x = 1\n+    y = 1\n"
        "*** Delete File: w.txt\n*** Add File: w.txt\n+new",
    )
    assert (workspace.root / "c.py").read_text() == CLASSES.replace("A:\n", "A:\n    x = 1\n    y = 1\n")
    assert (workspace.root / "w.txt").read_text() == "new\n"
    patched(
        workspace, "*** Update File: c.py\n*** Move to: d.py\n*** Update File: w.txt\n*** Move to: c.py\n-new\n+moved"
    )
    assert sorted(path.name for path in workspace.root.iterdir()) == ["c.py", "d.py"]
    assert (workspace.root / "c.py").read_text() == "moved\n"


def test_what_does_not_fit_is_refused_whole(workspace: WorkspacePaths) -> None:
    """Proves: the reason, where, and that nothing was changed, also where an earlier section fitted."""
    good = "*** Update File: w.txt\n-one\n+1\n"
    (workspace.root / "link").symlink_to("c.py")
    for body, reason in (
        (f"{good}*** Update File: c.py\n{HUNK}", "stands in 2 places (lines 3, 7)"),
        (f"{good}*** Update File: c.py\n-        return 3\n+x", "The nearest line is 3"),
        (f"{good}*** Update File: c.py\n@@ class C:\n+x", "`@@ class C:` is no line"),
        (f"{good}*** Update File: missing.py\n+x", "`missing.py` does not exist"),
        (f"{good}*** Add File: c.py\n+x", "`c.py` exists already"),
        (f"{good}*** Delete File: link", "`link` is a link to `c.py`"),
        (f"{good}*** Delete File: ../x", "is outside the workspace"),
        (f"{good}*** Add File: n\nno plus", "must begin with `+`"),
        (f"{good}*** Update File: c.py", "says nothing to change"),
        (f"{good}*** Rename File: c.py", "must begin with ` `, `-` or `+`"),
        ("*** Update File: c.py\n class B:\n+x\n@@\n class A:\n+y", "before the hunk above it"),
        ("*** Update File: w.txt\n-one\n+one", "the patch changes nothing"),
        ("", "the patch is empty"),
    ):
        assert reason in refused(workspace, body), body


DIFF = """diff --git a/c.py b/c.py
index 123..456 100644
--- a/c.py
+++ b/c.py
@@ -5,3 +5,3 @@ class B:
 class B:
     def f(self):
-        return 1
+        return 2
--- a/w.txt\t2026-01-01
+++ b/w.txt\t2026-01-02
@@ -3 +3 @@
-three
\\ No newline at end of file
+three
--- /dev/null
+++ b/new.txt
@@ -0,0 +1 @@
+new
\\ No newline at end of file
"""


def test_a_unified_diff_is_taken_too(workspace: WorkspacePaths) -> None:
    """Proves: git's lines, line numbers that tell equal places apart, new files, the mark of a missing last line end."""
    assert apply_patch(workspace, PatchArguments(patch=DIFF)) == "applied the patch:\nM c.py\nM w.txt\nA new.txt"
    assert (workspace.root / "c.py").read_text() == CLASSES[:-2] + "2\n"
    assert (workspace.root / "w.txt").read_bytes() == b"one\r\ntwo\r\nthree\r\n"
    assert (workspace.root / "new.txt").read_bytes() == b"new"
    moved = "diff --git a/new.txt b/d/n.txt\nsimilarity index 100%\nrename from new.txt\nrename to d/n.txt\n"
    assert apply_patch(workspace, PatchArguments(patch=moved)) == "applied the patch:\nM new.txt -> d/n.txt"
    assert (workspace.root / "d" / "n.txt").read_bytes() == b"new" and not (workspace.root / "new.txt").exists()


@pytest.mark.parametrize("lines", range(3, 9))
def test_a_unified_diff_that_lacks_lines_is_refused(lines: int, workspace: WorkspacePaths) -> None:
    """Proves: its counts say how much is missing."""
    with pytest.raises(ToolFault):
        apply_patch(workspace, PatchArguments(patch="\n".join(DIFF.split("\n")[:lines])))
    assert (workspace.root / "c.py").read_text() == CLASSES
