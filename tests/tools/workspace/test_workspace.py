"""The workspace tools on real files: what they say, what they change, and that nothing outside the folder is touched."""

import inspect
import os
import signal
import stat
import struct
import subprocess
from pathlib import Path

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from thoroughness import examples
from turnwise.base.programs import HELPER
from turnwise.errors import CallerError, ToolFault
from turnwise.rules import guarded_names
from turnwise.rules.schema import fault_of_schema
from turnwise.running.tools import Tool
from turnwise.tools.workspace import workspace_tools
from turnwise.tools.workspace.paths import WorkspacePaths
from turnwise.tools.workspace.read_tool import WORKER, SearchArguments, search
from waits import HANG_S


class Hands:
    """The tools of one folder, called by name."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.tools: dict[str, Tool] = {
            tool.name: tool for tool in workspace_tools(root, hidden_env=frozenset({"HIDDEN_KEY"}))
        }

    async def use(self, name: str, /, **arguments: object) -> str:
        function = self.tools[name].function
        assert function is not None
        value = function(arguments)
        value = await value if inspect.isawaitable(value) else value
        assert isinstance(value, str)
        return value

    async def refused(self, name: str, /, **arguments: object) -> str:
        with pytest.raises(ToolFault) as caught:
            await self.use(name, **arguments)
        return str(caught.value)


@pytest.fixture
def hands(tmp_path: Path) -> Hands:
    root = tmp_path / "root"
    root.mkdir()
    return Hands(root)


def test_offers_say_what_the_tools_do_to_the_world(hands: Hands) -> None:
    """Effects for permissions, exclusiveness for order, and schemas that are schemas."""
    offers = {name: tool.offer for name, tool in hands.tools.items()}
    assert {name: (offer.effect, offer.exclusive) for name, offer in offers.items()} == {
        "read": ("read", False),
        "write": ("write", True),
        "edit": ("write", True),
        "multi_edit": ("write", True),
        "apply_patch": ("write", True),
        "list": ("read", False),
        "search": ("read", False),
        "bash": ("execute", True),
    }
    assert [fault_of_schema(offer.spec.parameters) for offer in offers.values()] == [None] * 8
    assert b"$ref" not in msgspec.json.encode([offer.spec.parameters for offer in offers.values()])


def test_the_page_about_tools_says_what_they_do(hands: Hands) -> None:
    """Proves: the table in docs/tools.md is that of the offers."""
    page = (Path(__file__).parents[3] / "docs" / "tools.md").read_text(encoding="utf-8")
    yes = {True: "yes", False: "no"}
    for name, tool in hands.tools.items():
        offer = tool.offer
        assert f"| `{name}` | {offer.effect} | {yes[offer.exclusive]} | {yes[offer.idempotent]} |" in page


async def test_wrong_arguments_are_told(hands: Hands) -> None:
    """Where the turn's own check did not run, the tool's does."""
    assert "path" in await hands.refused("read")
    assert "offset" in await hands.refused("read", path="x", offset="zero")


@pytest.mark.promise("safe:named")
async def test_paths_outside_are_refused_by_every_tool(hands: Hands, tmp_path: Path) -> None:
    """Up, absolute, through a link to a file, a folder, or a folder to be made: resolved first, judged afterwards."""
    secret = tmp_path / "secret.txt"
    secret.write_text("secret")
    (hands.root / "link.txt").symlink_to(secret)
    (hands.root / "up").symlink_to(tmp_path)
    outside = [
        "../secret.txt",
        str(secret),
        "link.txt",
        "up/secret.txt",
        "a/../../secret.txt",
        "up/new/file",
        f"{hands.root}x",
    ]
    for path in outside:
        for name, more in (
            ("read", {}),
            ("write", {"content": "x"}),
            ("edit", {"old": "s", "new": "x"}),
            ("list", {}),
            ("search", {"pattern": "secret"}),
        ):
            assert "is outside the workspace" in await hands.refused(name, path=path, **more), (name, path)
    assert secret.read_text() == "secret" and sorted(os.listdir(tmp_path)) == ["root", "secret.txt"]  # noqa: PTH208
    assert await hands.use("search", pattern="secret") == "no match"
    (hands.root / "loop").symlink_to(hands.root / "loop")
    for path in ("loop", "nul\0", "x" * 5000):
        assert await hands.refused("read", path=path)


async def test_links_inside_and_absolute_paths_inside_work(hands: Hands) -> None:
    """Only what leads outside is refused; writing through a link changes the file, not the link."""
    (hands.root / "real").mkdir()
    (hands.root / "alias").symlink_to(hands.root / "real")
    await hands.use("write", path="alias/a.txt", content="1\n")
    (hands.root / "file-alias").symlink_to("real/a.txt")
    await hands.use("write", path="file-alias", content="2\n")
    assert await hands.use("read", path=str(hands.root / "real" / "a.txt")) == "     1\t2"
    assert (hands.root / "file-alias").is_symlink()


def test_workspace_must_be_a_folder(tmp_path: Path) -> None:
    """A caller's mistake, told at once."""
    (tmp_path / "file").touch()
    for path in (tmp_path / "file", tmp_path / "missing"):
        with pytest.raises(CallerError):
            WorkspacePaths(path)


async def test_read_numbers_lines_and_says_how_to_go_on(hands: Hands) -> None:
    """Ranges, Windows line ends, a BOM, long lines, the end of the file, and an empty one."""
    name = "Straße mit Ü.txt"
    (hands.root / name).write_bytes(b"\xef\xbb\xbfone\r\ntwo\r\n" + b"x" * 2500 + b"\r\nfo\xffur")
    assert await hands.use("read", path=name) == "\n".join(
        [
            "     1\tone",
            "     2\ttwo",
            f"     3\t{'x' * 2000} [... 500 more characters in this line]",
            "     4\tfo\ufffdur",
            "[bytes that are no UTF-8: 1, shown as \ufffd; `edit` leaves them as they are]",
        ]
    )
    assert (await hands.use("read", path=name, offset=2, limit=1)).startswith(
        "     2\ttwo\n[lines 2 to 2 of 4; go on with offset=3]\n[bytes"
    )
    assert await hands.use("read", path=name, offset=9) == f"`{name}` has 4 lines only"
    (hands.root / "empty").touch()
    assert await hands.use("read", path="empty") == "`empty` is empty"
    (hands.root / "long").write_text("y" * 100 + "\n" * 1 + ("z" * 1000 + "\n") * 3000)
    long = await hands.use("read", path="long")
    assert len(long) < 64 * 1024 and long.endswith("of 3001; go on with offset=62]"), long[-60:]


async def test_read_refuses_what_is_no_text_file(hands: Hands) -> None:
    """Binary, folder, pipe, missing (with the name that differs in case), too large."""
    (hands.root / "b").write_bytes(b"\x7fELF\0\0")
    (hands.root / "d").mkdir()
    os.mkfifo(hands.root / "pipe")
    (hands.root / "README.md").touch()
    with (hands.root / "huge").open("wb") as file:
        file.truncate(33 * 1024 * 1024)
    assert await hands.refused("read", path="b") == "`b` is an ELF program or library (6 bytes)"
    assert await hands.refused("read", path="d") == "`d` is a folder: use `list`"
    assert "no regular file" in await hands.refused("read", path="pipe")
    assert await hands.refused("read", path="readme.md") == "`readme.md` does not exist; there is `README.md`"
    assert "more than" in await hands.refused("read", path="huge")


async def test_write_makes_folders_replaces_and_appends(hands: Hands) -> None:
    """And says which of them it did."""
    assert await hands.use("write", path="neu/ä b.txt", content="eins\n") == "wrote `neu/ä b.txt` (5 bytes, 1 lines)"
    assert (await hands.use("write", path="neu/ä b.txt", content="1")).startswith("replaced")
    assert await hands.use("write", path="neu/ä b.txt", content="2\n", append=True) == (
        "added 2 bytes, 1 lines to `neu/ä b.txt`, which has 3 bytes now"
    )
    assert (hands.root / "neu" / "ä b.txt").read_text() == "12\n"
    assert "is a folder" in await hands.refused("write", path="neu", content="")
    assert "a file stands where its folder would be" in await hands.refused("write", path="neu/ä b.txt/x", content="")


async def test_write_keeps_the_mode_and_respects_write_protection(hands: Hands) -> None:
    """A script stays executable; a new file follows the umask; nothing temporary is left."""
    script = hands.root / "run.sh"
    script.write_text("#!/bin/sh\n")
    script.chmod(0o751)
    await hands.use("write", path="run.sh", content="#!/bin/bash\n", overwrite=True)
    assert stat.S_IMODE(script.stat().st_mode) == 0o751
    await hands.use("write", path="new", content="")
    reference = hands.root / "reference"
    reference.touch()
    assert (hands.root / "new").stat().st_mode == reference.stat().st_mode
    os.mkfifo(hands.root / "pipe")
    assert "no regular file" in await hands.refused("write", path="pipe", content="x")
    script.chmod(0o444)  # root may write anywhere, and is held to it all the same
    protected = "`run.sh` is write-protected"
    assert await hands.refused("write", path="run.sh", content="", overwrite=True) == protected
    assert await hands.refused("write", path="run.sh", content="x", append=True) == protected
    assert await hands.refused("edit", path="run.sh", old="bash", new="sh") == protected
    assert await hands.refused("multi_edit", path="run.sh", edits=[{"old": "bash", "new": "sh"}]) == protected
    for section in ("*** Delete File: run.sh\n", "*** Update File: run.sh\n@@\n-#!/bin/bash\n+x\n"):
        assert await hands.refused("apply_patch", patch=f"*** Begin Patch\n{section}*** End Patch") == protected
    assert sorted(path.name for path in hands.root.iterdir()) == ["new", "pipe", "reference", "run.sh"]


async def test_a_replaced_file_keeps_its_access_control_list(hands: Hands) -> None:
    """Who else may read it stays as it was: entries are tag, rights and id, `user:1:r--` among them."""
    entries = [(0x01, 6, -1), (0x02, 4, 1), (0x04, 4, -1), (0x10, 4, -1), (0x20, 0, -1)]
    wanted = struct.pack("<I", 2) + b"".join([struct.pack("<HHi", *entry) for entry in entries])
    path = hands.root / "shared.txt"
    path.write_text("one\n")
    try:
        os.setxattr(path, "system.posix_acl_access", wanted)
    except (OSError, AttributeError):
        pytest.skip("this file system has no access control lists")
    await hands.use("read", path="shared.txt")
    await hands.use("write", path="shared.txt", content="two\n")
    await hands.use("edit", path="shared.txt", old="two", new="three")
    assert (path.read_text(), os.getxattr(path, "system.posix_acl_access")) == ("three\n", wanted)


async def test_edit_replaces_one_exact_text(hands: Hands) -> None:
    """Once, everywhere with `all`, with nothing, and over Windows line ends."""
    path = hands.root / "f.txt"
    path.write_bytes(b"a = 1\r\nb = 2\r\nb = 2\r\n\xff\r\n")
    assert await hands.use("edit", path="f.txt", old="a = 1\nb", new="a = 3\nc") == (
        "edited `f.txt`: 1 replacement, the first in line 1"
    )
    assert await hands.use("edit", path="f.txt", old="= 2", new="= ü", replace_all=True) == (
        "edited `f.txt`: 2 replacements, the first in line 2"
    )
    await hands.use("edit", path="f.txt", old="b = ü\n", new="")
    assert path.read_bytes() == "a = 3\r\nc = ü\r\n".encode() + b"\xff\r\n"


async def test_edit_that_does_not_fit_says_why_and_changes_nothing(hands: Hands) -> None:
    """Several places, white space, line numbers, a near line, nothing near; empty and equal texts."""
    path = hands.root / "f.py"
    text = "def f():\n\tif x:\n\t\treturn 1\n\ndef g():\n    return 22\nx = aaa\n"
    path.write_text(text)
    expected = {
        "return": "stands 2 times in `f.py` (lines 3, 6)",
        "aa": "stands 2 times",
        "if x:\n    return 1": "(line 2 is indented by 1 tab, `old` by nothing). They are exactly:\n\tif x:\n\t\treturn 1",
        "     5\tdef g():\n     6\t    return 22": "without the line numbers",
        "    return 23": "The nearest line is 6 (also like it: line 3):\n    return 22",
        "völlig anders": "Read the file again",
        "": "`old` is empty",
        "same": "are equal",
    }
    for old, hint in expected.items():
        assert hint in await hands.refused("edit", path="f.py", old=old, new="same"), old
    assert path.read_text() == text


@settings(deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=examples(60))
@given(
    before=st.binary(max_size=30),
    after=st.binary(max_size=30),
    old=st.text("ab\nü ", min_size=1, max_size=6),
    new=st.text("ab\nü ", max_size=6),
)
def test_edit_changes_the_named_text_and_no_other_byte(
    tmp_path: Path, before: bytes, after: bytes, old: str, new: str
) -> None:
    """For any bytes around it, also such that are no UTF-8: exactly the replacement, or a refusal that changes nothing."""
    content = before + old.encode() + after
    path = tmp_path / "any"
    path.write_bytes(content)
    edit = Hands(tmp_path).tools["edit"].function
    assert edit is not None
    try:
        edit({"path": "any", "old": old, "new": new})
    except ToolFault:
        assert path.read_bytes() == content
    else:
        assert content.count(old.encode()) == 1
        assert path.read_bytes() == content.replace(old.encode(), new.encode())


async def test_list_shows_folders_sizes_and_depth(hands: Hands) -> None:
    """Dependencies are named and not entered, links are shown and not followed."""
    for name in ("src/a.py", "src/deep/b.py", "node_modules/x/y.js", ".git/config", "ü.md"):
        path = hands.root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("12345")
    (hands.root / "up").symlink_to("..")
    assert (await hands.use("list")).split("\n") == [
        *(".git/ (not looked into)", "node_modules/ (not looked into)", "src/", "up (a link)", "ü.md (5)")
    ]
    assert (await hands.use("list", path="src", depth=2)).split("\n") == ["a.py (5)", "deep/", "deep/b.py (5)"]
    assert (await hands.use("list", glob="*.py")).split("\n") == ["src/a.py (5)", "src/deep/b.py (5)"]
    assert await hands.use("list", glob="*.rs") == "no file matches"
    assert "use `read`" in await hands.refused("list", path="ü.md")


async def test_list_is_bounded(hands: Hands) -> None:
    """A thousand entries, and a word about the rest."""
    for number in range(1005):
        (hands.root / f"{number:04}").touch()
    lines = (await hands.use("list")).split("\n")
    assert len(lines) == 1001 and "more than 1000" in lines[-1]


async def test_search_finds_lines_in_text_files(hands: Hands) -> None:
    """Path, line and text; binaries and dependencies are passed over; globs and case."""
    (hands.root / "ä b").mkdir()
    (hands.root / "ä b" / "x.py").write_text("one\nTwo grüße\n")
    (hands.root / "y.md").write_text("two\n" + "w" * 400)
    (hands.root / "bin").write_bytes(b"two\0two")
    (hands.root / ".git").mkdir()
    (hands.root / ".git" / "z").write_text("two")
    assert await hands.use("search", pattern="two") == "y.md:1: two"
    assert await hands.use("search", pattern=r"t\w+ gr.ß", ignore_case=True) == "ä b/x.py:2: Two grüße"
    assert await hands.use("search", pattern="two", ignore_case=True, glob="*.py") == "ä b/x.py:2: Two grüße"
    assert await hands.use("search", pattern="o", path="y.md") == "y.md:1: two"
    assert await hands.use("search", pattern="www") == f"y.md:2: {'w' * 300}"
    assert await hands.use("search", pattern="nowhere") == "no match"
    assert "no regular expression" in await hands.refused("search", pattern="(")


async def test_search_is_bounded_in_matches_and_time(hands: Hands) -> None:
    """A hostile pattern takes a process of its own, which is killed; our own loop never stands still."""
    (hands.root / "many").write_text("x\n" * 500)
    lines = (await hands.use("search", pattern="x")).split("\n")
    assert len(lines) == 201 and "more than 200" in lines[-1]
    (hands.root / "hostile").write_text("a" * 60 + "!")
    with pytest.raises(ToolFault, match=r"longer than 0\.2 s"):
        await search(WorkspacePaths(hands.root), SearchArguments(pattern="(a+)+$", path="hostile"), timeout_s=0.2)


def test_search_worker_ends_by_itself(tmp_path: Path) -> None:
    """In the middle of a hostile match, with nobody there to end it."""
    (tmp_path / "hostile").write_text("a" * 60 + "!")
    order = {
        "task": "search",
        "skipped": [],
        "library": "",
        "alarm_s": 0.05,
        "in_git": False,
        "above": [],
        "pattern": "(a+)+$",
        "max_matches": 1,
        "max_bytes": 1000,
        "names": guarded_names.__file__,
    }
    worker = [*HELPER, str(WORKER)]
    ended = subprocess.run(worker, input=msgspec.json.encode(order), cwd=tmp_path, timeout=HANG_S, check=False)
    assert ended.returncode == -signal.SIGALRM
