"""`search` and `list` on real folders: what `.gitignore` and links do, and that ripgrep and Python find the same."""

import asyncio
import contextlib
import os
import shutil
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from thoroughness import examples
from turnwise.errors import ToolFault
from turnwise.tools.workspace.paths import WorkspacePaths
from turnwise.tools.workspace.read_tool import ListArguments, SearchArguments, list_folder, search
from waits import HANG_S

needs_ripgrep = pytest.mark.skipif(
    shutil.which("rg") is None, reason="ripgrep is not installed: nothing to compare with"
)

TREE = {
    ".gitignore": "*.log\n/build/\n!keep.log\ndeep/*.tmp\n",
    "a.py": "needle one\nhay\nneedle two",
    "b.log": "needle",
    "keep.log": "needle",
    "build/out.txt": "needle",
    "src/build/x.txt": "needle in src\r\n",
    "src/.gitignore": "x?.txt\n!b.log\n",
    "src/xy.txt": "needle",
    "src/b.log": "needle",
    "src/deep/y.tmp": "needle",
    "deep/y.tmp": "needle",
    "node_modules/m.js": "needle",
    ".env": "needle=1",
    ".hidden/h.txt": "needle",
    "inner/.git/HEAD": "needle",
    "inner/c.log": "needle",
}


def lay_out(root: Path, files: dict[str, str]) -> WorkspacePaths:
    for name, text in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_bytes(text.encode("utf-8", "surrogateescape"))
    return WorkspacePaths(root)


async def both(workspace: WorkspacePaths, **arguments: object) -> str:
    """What both ways find, which is the same."""
    call = SearchArguments(**{"pattern": "needle", **arguments})  # pyright: ignore[reportArgumentType]
    ours = await search(workspace, call, with_ripgrep=False)
    assert await search(workspace, call) == ours
    return ours


@pytest.mark.costly
@pytest.mark.parametrize(
    "pattern",
    [
        "[" + "a" * 4000 + "\\d]",  # a set that no other engine reads alike: told apart without going back
        "(?:" * 1300 + "\\Z",
        "[" + "a-" * 2000,
        "(?i)" + "[\u0001-\ufffe]" * 800,  # minutes to compile
    ],
)
async def test_a_pattern_that_takes_minutes_to_compile_ends_by_the_deadline(pattern: str, tmp_path: Path) -> None:
    """Where others go on meanwhile: nothing of the pattern is compiled or looked at in our own process."""
    workspace = lay_out(tmp_path, {"a.txt": "needle"})
    with contextlib.suppress(ToolFault):
        await asyncio.wait_for(search(workspace, SearchArguments(pattern=pattern), timeout_s=3), HANG_S)


async def test_a_pattern_has_a_length(tmp_path: Path) -> None:
    """Refused at once, with the bound."""
    workspace = lay_out(tmp_path, {"a.txt": "needle"})
    with pytest.raises(ToolFault, match="more than 4,096"):
        await search(workspace, SearchArguments(pattern="[" + "a" * 150_000 + "\\d]"))


async def test_warnings_about_a_pattern_do_not_disturb_the_answer(tmp_path: Path) -> None:
    """Python warns of `[[`, which may mean something else one day."""
    workspace = lay_out(tmp_path, {"a.txt": "[needle"})
    assert await both(workspace, pattern="[[]needle") == "a.txt:1: [needle"


@pytest.mark.costly
@pytest.mark.parametrize("in_git", [True, False], ids=["repository", "no repository"])
async def test_search_passes_over_what_git_ignores(in_git: bool, tmp_path: Path) -> None:
    """Proves: patterns, anchored ones, exceptions, a `.gitignore` further down, skipped folders, secrets;
    a repository further down has its own rules only."""
    workspace = lay_out(tmp_path, TREE | ({".git/HEAD": ""} if in_git else {}))
    found = [line.partition(":")[0] for line in (await both(workspace)).split("\n")]
    expected = [
        ".hidden/h.txt",
        "a.py",
        "a.py",
        "inner/c.log",
        "keep.log",
        "src/b.log",
        "src/build/x.txt",
        "src/deep/y.tmp",
    ]
    assert found == expected
    assert await both(workspace, path="src", glob="*.txt") == "src/build/x.txt:1: needle in src"
    assert await both(workspace, path="src/build/x.txt", pattern="src$") == "src/build/x.txt:1: needle in src"
    assert await both(workspace, path=".env") == ".env:1: needle=1"
    assert await both(workspace, path="build") == "build/out.txt:1: needle"
    assert await both(workspace, path="node_modules") == "node_modules/m.js:1: needle"
    assert await both(workspace, glob="src/*.log") == "src/b.log:1: needle"


async def test_list_leaves_out_what_git_ignores(tmp_path: Path) -> None:
    """Proves: ignored files are not shown, ignored folders are named and not entered."""
    workspace = lay_out(tmp_path, TREE)
    (tmp_path / "up").symlink_to("..")
    assert (await list_folder(workspace, ListArguments())).split("\n") == [
        ".env (8)",
        ".gitignore (35)",
        ".hidden/",
        "a.py (25)",
        "build/ (ignored by git, not looked into)",
        "deep/",
        "inner/",
        "keep.log (6)",
        "node_modules/ (not looked into)",
        "src/",
        "up (a link)",
    ]
    assert await list_folder(workspace, ListArguments(glob="*.log")) == ("inner/c.log (6)\nkeep.log (6)\nsrc/b.log (6)")
    assert await list_folder(workspace, ListArguments(path="src", depth=3)) == (
        ".gitignore (14)\nb.log (6)\nbuild/\nbuild/x.txt (15)\ndeep/\ndeep/y.tmp (6)"
    )


async def test_search_reads_other_encodings_and_no_binaries(tmp_path: Path) -> None:
    """Proves: byte order marks, UTF-16, bytes that are no UTF-8, a name that is no text, a NUL far from the beginning."""
    workspace = lay_out(tmp_path, {"bom.txt": "\ufeffneedle ü\n", "bad.txt": "needle \udcff\r\n"})
    (tmp_path / "wide.txt").write_bytes("\ufeffhay\r\nneedle ü\r\n".encode("utf-16-le"))
    (tmp_path / "late.bin").write_bytes(b"needle\n" + b"x" * 100_000 + b"\0")
    (tmp_path / os.fsdecode(b"name\xff.txt")).write_text("needle")
    assert await both(workspace, pattern="^needle") == (
        "bad.txt:1: needle \ufffd\nbom.txt:1: needle ü\nname\\xff.txt:1: needle\nwide.txt:2: needle ü"
    )


async def test_search_follows_no_link(tmp_path: Path) -> None:
    """Proves: links to a folder, to a file and to nothing, in the tree and as its `.gitignore`."""
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside" / "secret").write_text("needle")
    root = tmp_path / "root"
    workspace = lay_out(root, {"a": "needle"})
    (root / "folder").symlink_to(tmp_path / "outside")
    (root / "file").symlink_to(tmp_path / "outside" / "secret")
    (root / "nothing").symlink_to("nowhere")
    (root / ".gitignore").symlink_to(tmp_path / "outside" / "secret")
    assert await both(workspace) == "a:1: needle"


async def test_what_is_withheld_is_searched_by_name_only(tmp_path: Path) -> None:
    """Proves: names and paths of one's own choice are passed over, from whatever folder the search begins, also with a glob
    that names them; the file itself as `path` is another call, with a verdict of its own."""
    files = {"a": "needle", "private/b": "needle", "c.secret": "needle", ".git/HEAD": ""}
    lay_out(tmp_path, files)
    workspace = WorkspacePaths(tmp_path, withheld=["private/*", "*.secret"])
    assert await both(workspace) == "a:1: needle"
    assert await both(workspace, path="private") == "no match"
    assert await both(workspace, glob="*.secret") == "no match"
    assert await both(workspace, path="private/b") == "private/b:1: needle"


@needs_ripgrep
async def test_a_ripgrep_in_the_workspace_is_not_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Proves: whoever can write into the folder cannot have us run a program by it."""
    workspace = lay_out(tmp_path, {"a": "needle", "bin/rg": "#!/bin/sh\ntouch ../ran\n"})
    (tmp_path / "bin" / "rg").chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    assert await search(workspace, SearchArguments(pattern="needle")) == "a:1: needle"
    assert not (tmp_path / "ran").exists()


PIECE = st.sampled_from(
    [
        "a",
        "b",
        ".",
        "\\.",
        "a*",
        "b+?",
        "(?:ab|b)",
        "^",
        "$",
        "\\b",
        "\\w+",
        "[ab]",
        "[^a-b]",
        "a{2}",
        " ",
        "ü",
        "(?=a)",
    ]
)
LINE = st.sampled_from(["a", "b", "ab", "aab b", "", "ü a", " b.", "\t", "A"])
RULE = st.sampled_from(["*.a", "/d/", "d/e/", "!x.a", "**/y.b", "d/*", "!/d/x.a", "x.*", "e", "[xy].b", "/x.b"])
NAME = st.sampled_from(["x.a", "x.b", "y.b", "d/x.a", "d/y.b", "d/e/x.b", "d/e/y.a", "e/x.a", "z/d/x.a", "Z"])


@pytest.mark.costly
@needs_ripgrep
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow], max_examples=examples(40))
@given(
    pieces=st.lists(PIECE, min_size=1, max_size=3),
    files=st.dictionaries(NAME, st.tuples(st.lists(LINE, max_size=3), st.sampled_from(["\n", "\r\n"])), max_size=6),
    rules=st.lists(RULE, max_size=3),
    further=st.lists(RULE, max_size=2),
    ignore_case=st.booleans(),
    in_git=st.booleans(),
    start=st.sampled_from([".", "d", "d/e"]),
)
async def test_ripgrep_and_python_find_the_same(
    pieces: list[str],
    files: dict[str, tuple[list[str], str]],
    rules: list[str],
    further: list[str],
    ignore_case: bool,
    in_git: bool,
    start: str,
    tmp_path: Path,
) -> None:
    """Proves: for patterns, files and ignore rules of many shapes, both ways give the same lines in the same order."""
    root = tmp_path / "root"
    shutil.rmtree(root, ignore_errors=True)
    (root / "d" / "e").mkdir(parents=True)
    if in_git:
        (root / ".git").mkdir()
    texts = {name: end.join(lines) for name, (lines, end) in files.items()}
    workspace = lay_out(root, {**texts, ".gitignore": "\n".join(rules), "d/.gitignore": "\n".join(further)})
    await both(workspace, pattern="".join(pieces), ignore_case=ignore_case, path=start)
