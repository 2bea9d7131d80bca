"""Changes of files under failures of every kind: each file is as it was or as it should be, never between."""

import errno
import json
import os
import shutil
import subprocess
import sys
import textwrap
import threading
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tables import each
from thoroughness import examples
from turnwise.errors import ToolFault
from turnwise.running.run_context import judged_paths
from turnwise.tools.workspace import workspace_tools
from turnwise.tools.workspace.changes import FileChanges, Undone, recover_changes
from turnwise.tools.workspace.paths import WorkspacePaths
from turnwise.tools.workspace.staged_changes import Disk
from waits import HANG_S

PATCH = """*** Begin Patch
*** Update File: a.txt
@@
-one
+ONE
 two
*** Add File: new/deep/c.txt
+made
*** Update File: b.txt
*** Move to: moved/b.txt
-x
+y
*** Delete File: sub/gone.txt
*** End Patch
"""
FILES = {"a.txt": b"one\ntwo\n", "b.txt": b"x\r\n", "sub/gone.txt": b"bye\n"}


class Case(msgspec.Struct, frozen=True, kw_only=True):
    """A call on FILES, and what it makes of them (None: the file is gone)."""

    tool: str
    arguments: dict[str, object]
    makes: dict[str, bytes | None]


CASES = {
    "new": Case(tool="write", arguments={"path": "p/q/n.txt", "content": "new\n"}, makes={"p/q/n.txt": b"new\n"}),
    "over": Case(
        tool="write",
        arguments={"path": "a.txt", "content": "all new\n", "overwrite": True},
        makes={"a.txt": b"all new\n"},
    ),
    "append": Case(
        tool="write",
        arguments={"path": "a.txt", "content": "three\n", "append": True},
        makes={"a.txt": b"one\ntwo\nthree\n"},
    ),
    "edit": Case(tool="edit", arguments={"path": "b.txt", "old": "x", "new": "y"}, makes={"b.txt": b"y\r\n"}),
    "multi_edit": Case(
        tool="multi_edit",
        arguments={"path": "a.txt", "edits": [{"old": "one", "new": "1"}, {"old": "1\ntwo", "new": "1\n2"}]},
        makes={"a.txt": b"1\n2\n"},
    ),
    "apply_patch": Case(
        tool="apply_patch",
        arguments={"patch": PATCH},
        makes={
            "a.txt": b"ONE\ntwo\n",
            "new/deep/c.txt": b"made\n",
            "b.txt": None,
            "moved/b.txt": b"y\r\n",
            "sub/gone.txt": None,
        },
    ),
}


def lay_out(root: Path) -> None:
    shutil.rmtree(root, ignore_errors=True)
    for name, content in FILES.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_bytes(content)
        (root / name).chmod(0o640)


def tree(root: Path) -> dict[str, tuple[int, bytes]]:
    """Every file with its mode, and every folder."""
    return {
        str(path.relative_to(root)): (0, b"") if path.is_dir() else (path.stat().st_mode, path.read_bytes())
        for path in root.rglob("*")
    }


def contents(root: Path) -> dict[str, bytes]:
    return {str(path.relative_to(root)): path.read_bytes() for path in root.rglob("*") if path.is_file()}


def after(case: Case) -> dict[str, bytes]:
    return {name: content for name, content in (FILES | case.makes).items() if content is not None}


def use(workspace: WorkspacePaths, case: Case) -> str:
    function = next(tool.function for tool in workspace_tools(workspace) if tool.name == case.tool)
    assert function is not None
    return str(function(dict(case.arguments)))


def steps_of(case: Case, folder: Path) -> list[str]:
    """The steps that it takes when nothing fails."""
    steps: list[str] = []
    root = folder / "counted"
    lay_out(root)
    use(WorkspacePaths(root, changes=FileChanges(folder / "counted-store"), disk=Disk(steps.append)), case)
    assert contents(root) == after(case)
    return steps


def failing(step: int, *, times: int) -> Callable[[str], None]:
    """A disk that is full from this step on, for so many steps."""
    steps = 0

    def before(_: str) -> None:
        nonlocal steps
        steps += 1
        if step <= steps < step + times:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    return before


@pytest.mark.parametrize("name", CASES)
def test_one_failure_at_any_step_leaves_all_or_nothing(name: str, tmp_path: Path) -> None:
    """Proves: wherever the disk fails once, all files are as they were (modes, folders, nothing left behind) and the
    result says so, or all are as they should be."""
    case = CASES[name]
    steps = steps_of(case, tmp_path)
    outcomes: list[bool] = []
    for step in range(1, len(steps) + 1):
        root, store = tmp_path / "root", tmp_path / "store"
        shutil.rmtree(store, ignore_errors=True)
        lay_out(root)
        before = tree(root)
        try:
            use(WorkspacePaths(root, changes=FileChanges(store), disk=Disk(failing(step, times=1))), case)
        except ToolFault as fault:
            assert tree(root) == before, (step, steps[step - 1])
            assert "No space left" in str(fault)
            assert not list(store.iterdir())
            outcomes.append(False)
        else:
            assert contents(root) == after(case), (step, steps[step - 1])
            outcomes.append(True)
    assert outcomes == sorted(outcomes) and not outcomes[0], "once it has happened, no failure says that it has not"


@pytest.mark.parametrize("name", CASES)
def test_a_disk_that_stays_broken_leaves_whole_files(name: str, tmp_path: Path) -> None:
    """Proves: even where nothing can be tidied up or put back, each file is the old or the new one."""
    case = CASES[name]
    new = after(case)
    for step in range(1, len(steps_of(case, tmp_path)) + 1):
        root = tmp_path / "root"
        lay_out(root)
        workspace = WorkspacePaths(
            root, changes=FileChanges(tmp_path / f"store-{step}"), disk=Disk(failing(step, times=999))
        )
        try:
            use(workspace, case)
        except ToolFault as fault:
            changed = [path for path in {*FILES, *new} if contents(root).get(path) != FILES.get(path)]
            assert all(f"`{path}`" in str(fault) for path in changed), fault
        for path, content in contents(root).items():
            assert content in (FILES.get(path), new.get(path)) or ".turnwise-" in path


@pytest.mark.costly
@pytest.mark.parametrize("name", CASES)
def test_killed_at_any_step_each_file_is_whole_and_the_next_start_finishes(name: str, tmp_path: Path) -> None:
    """Proves: kill -9 before each step in turn, in a real process. Each file is the old or the new one; after
    `recover_changes` all are the old ones or all are the new ones, and nothing else is left."""
    case = CASES[name]
    order = {
        "tool": case.tool,
        "arguments": case.arguments,
        "files": {path: content.decode("latin-1") for path, content in FILES.items()},
    }
    program = Path(__file__).with_name("killed_changes.py")
    done = subprocess.run(
        [sys.executable, program, tmp_path, json.dumps(order)],
        capture_output=True,
        text=True,
        timeout=HANG_S,
        check=True,
    )
    reports = [json.loads(line) for line in done.stdout.splitlines()]
    old, new = ({path: text.decode("latin-1") for path, text in one.items()} for one in (FILES, after(case)))
    sides: list[bool] = []
    for report in reports:
        killed = {path: text for path, text in report["killed"].items() if text != "/" and ".turnwise-" not in path}
        assert all(text in (old.get(path), new.get(path)) for path, text in killed.items()), report
        assert all(path in killed for path in old.keys() & new.keys()), "none is ever missing"
        recovered = {path: text for path, text in report["recovered"].items() if text != "/"}
        assert recovered in (old, new), report
        assert bool(report["told"]) == (killed != recovered)
        sides.append(recovered == new)
    assert len(reports) > 10 and reports[-1]["status"] == 0
    assert sides == sorted(sides) and not sides[0]


def test_a_change_that_somebody_overtook_is_not_finished(tmp_path: Path) -> None:
    """Proves: recovering never writes over what was changed after the kill; it names what has the change and what not."""
    case, root, store = CASES["apply_patch"], tmp_path / "root", tmp_path / "store"
    lay_out(root)
    program = f"""
        import os, signal
        from pathlib import Path
        from turnwise.tools.workspace.changes import FileChanges
        from turnwise.tools.workspace.staged_changes import Disk
        from turnwise.tools.workspace.patch_tool import PatchArguments, apply_patch
        from turnwise.tools.workspace.paths import WorkspacePaths
        renames = []
        def before(step):
            renames.extend([step] * (step == "rename"))
            if len(renames) == 4:  # two notes and the first file are in place
                os.kill(os.getpid(), signal.SIGKILL)
        workspace = WorkspacePaths({str(root)!r}, changes=FileChanges(Path({str(store)!r})), disk=Disk(before))
        apply_patch(workspace, PatchArguments(patch={PATCH!r}))
    """
    killed = subprocess.run([sys.executable, "-c", textwrap.dedent(program)], timeout=HANG_S, check=False)
    assert killed.returncode == -9
    (root / "b.txt").write_bytes(b"of somebody else\n")
    (told,) = recover_changes(store)
    assert "cannot be finished" in told and "`b.txt`" in told
    assert contents(root) == FILES | {"a.txt": case.makes["a.txt"], "b.txt": b"of somebody else\n"}
    assert recover_changes(store) == ()


def test_a_real_limit_on_file_size_leaves_the_file_as_it_was(tmp_path: Path) -> None:
    """Proves: a write that the kernel cuts short (RLIMIT_FSIZE, as a full disk would) changes nothing."""
    root = tmp_path / "root"
    lay_out(root)
    program = f"""
        import resource
        from turnwise.tools.workspace.paths import WorkspacePaths
        from turnwise.tools.workspace.edit_tool import WriteArguments, write
        from turnwise.errors import ToolFault
        resource.setrlimit(resource.RLIMIT_FSIZE, (4096, 4096))
        for path in ("a.txt", "new/n.txt"):
            try:
                write(WorkspacePaths({str(root)!r}), WriteArguments(path=path, content="x" * 10_000, overwrite=True))
            except ToolFault as fault:
                print(fault)
    """
    before = tree(root)
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(program)], capture_output=True, text=True, timeout=HANG_S, check=True
    )
    assert done.stdout.splitlines() == [
        "`a.txt` cannot be written: File too large; it is as it was",
        "`new/n.txt` cannot be written: File too large; it is as it was",
    ]
    assert tree(root) == before


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=examples(150))
@given(cut=st.integers(0, len(PATCH.rstrip()) - 1))
def test_a_patch_cut_anywhere_changes_nothing(cut: int, tmp_path: Path) -> None:
    """Proves: whatever is missing of its end, it is refused, and no file is touched."""
    root = tmp_path / "root"
    lay_out(root)
    before = tree(root)
    case = msgspec.structs.replace(CASES["apply_patch"], arguments={"patch": PATCH[:cut]})
    with pytest.raises(ToolFault):
        use(WorkspacePaths(root, changes=FileChanges(tmp_path / "store")), case)
    assert tree(root) == before


LINE = st.sampled_from(["a", "b", "  a", "", "\ta ", "a b"])


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=examples(200))
@given(
    lines=st.lists(LINE, max_size=8),
    end=st.sampled_from(["\n", "\r\n"]),
    last=st.booleans(),
    edits=st.lists(
        st.tuples(st.text("ab \n", max_size=4), st.text("abc\n", max_size=4), st.booleans()), min_size=1, max_size=3
    ),
)
def test_edits_are_all_made_or_none(
    lines: list[str], end: str, last: bool, edits: list[tuple[str, str, bool]], tmp_path: Path
) -> None:
    """Proves: several edits of one file give what replacing in a text with plain line ends gives, with the file's own line
    ends; or one does not fit, and not a byte is changed."""
    path = tmp_path / "f"
    plain = "\n".join(lines) + ("\n" if last else "")
    path.write_bytes(plain.replace("\n", end).encode())
    expected: str | None = plain
    for old, new, everywhere in edits:
        count = sum(expected.startswith(old, at) for at in range(len(expected))) if expected and old else 0
        if expected is None or old == new or not count or (count > 1 and not everywhere):
            expected = None
            break
        expected = expected.replace(old, new)
    call = [{"old": old, "new": new, "replace_all": everywhere} for old, new, everywhere in edits]
    workspace = WorkspacePaths(tmp_path)
    case = Case(tool="multi_edit", arguments={"path": "f", "edits": call}, makes={})
    # a file with one line has no line ends to keep
    told = end if "\n" in plain else "\n"
    if expected is None:
        with pytest.raises(ToolFault):
            use(workspace, case)
        assert path.read_bytes() == plain.replace("\n", end).encode()
    else:
        use(workspace, case)
        assert path.read_bytes() == expected.replace("\n", told).encode()


def test_reader_never_sees_half_a_file(tmp_path: Path) -> None:
    """Proves: while one thread replaces the file again and again, every read finds one whole version."""
    versions = [letter * 200_000 for letter in "ABC"]
    (tmp_path / "f").write_text(versions[0])
    workspace = WorkspacePaths(tmp_path)
    stop = threading.Event()

    def replace() -> None:
        while not stop.is_set():
            for version in versions:
                use(workspace, Case(tool="write", arguments={"path": "f", "content": version}, makes={}))

    workspace.seen.keep(tmp_path.resolve() / "f", versions[0].encode())
    thread = threading.Thread(target=replace)
    thread.start()
    try:
        assert all((tmp_path / "f").read_text() in versions for _ in range(200))
    finally:
        stop.set()
        thread.join()
    assert list(tmp_path.iterdir()) == [tmp_path / "f"]


def test_a_turns_changes_are_taken_back_together(tmp_path: Path) -> None:
    """Proves: undo restores content and mode, brings deleted files back, removes made ones and their folders; by another
    process as well; and once only."""
    root, store = tmp_path / "root", tmp_path / "store"
    lay_out(root)
    before = tree(root)
    changes = FileChanges(store)
    workspace = WorkspacePaths(root, changes=changes)
    changes.begin("turn 1")
    use(workspace, CASES["edit"])
    between = tree(root)
    changes.begin("turn 2")
    use(workspace, CASES["new"])
    use(workspace, CASES["append"])
    use(
        workspace,
        Case(tool="edit", arguments={"path": "a.txt", "old": "two", "new": "2"}, makes={}),
    )
    later = FileChanges(store)
    assert sorted(later.undo_last(), key=lambda undone: undone.path) == [
        Undone(path=root / "a.txt", outcome="restored"),
        Undone(path=root / "p/q/n.txt", outcome="removed"),
    ]
    assert tree(root) == between
    assert later.undo_last() == (Undone(path=root / "b.txt", outcome="restored"),)
    assert tree(root) == before
    assert later.undo_last() == ()
    use(workspace, CASES["apply_patch"])
    assert {undone.outcome for undone in changes.undo_last("turn 2")} == {"restored", "recreated", "removed"}
    assert tree(root) == before


def test_undo_leaves_what_was_changed_since(tmp_path: Path) -> None:
    """Proves: what somebody wrote afterwards is never lost, and the rest is taken back all the same."""
    lay_out(tmp_path / "root")
    changes = FileChanges()
    assert changes.undo_last() == ()
    use(WorkspacePaths(tmp_path / "root", changes=changes), CASES["apply_patch"])
    (tmp_path / "root" / "a.txt").write_text("mine\n")
    (kept,) = [undone for undone in changes.undo_last() if undone.outcome == "kept"]
    assert (kept.path, kept.why) == (tmp_path / "root" / "a.txt", "it was changed since")
    assert kept.saved is not None and kept.saved.read_bytes() == FILES["a.txt"]
    assert contents(tmp_path / "root") == FILES | {"a.txt": b"mine\n"}


@pytest.mark.costly
def test_undo_that_fails_or_is_killed_can_be_done_again(tmp_path: Path) -> None:
    """Proves: taking back is all or nothing like any change."""
    root, store = tmp_path / "root", tmp_path / "store"
    for step in range(1, 60):
        shutil.rmtree(store, ignore_errors=True)
        lay_out(root)
        use(WorkspacePaths(root, changes=FileChanges(store)), CASES["apply_patch"])
        changed = contents(root)
        try:
            FileChanges(store).undo_last(disk=Disk(failing(step, times=1)))
        except ToolFault:
            assert contents(root) == changed
        except OSError:
            assert contents(root) == FILES  # only the note was not written
        else:
            if step > 50:
                break
        FileChanges(store).undo_last()
        assert contents(root) == FILES


def test_old_contents_are_bounded(tmp_path: Path) -> None:
    """Proves: the oldest give way; what is too large to be kept is changed all the same, and undo says so."""
    (tmp_path / "f").write_text("0" * 100)
    changes = FileChanges(tmp_path / "store", kept_bytes=250)
    workspace = WorkspacePaths(tmp_path, changes=changes)
    for number in range(1, 6):
        use(
            workspace,
            Case(tool="write", arguments={"path": "f", "content": str(number) * 100, "overwrite": True}, makes={}),
        )
    assert len(list((tmp_path / "store").iterdir())) == 2
    (tmp_path / "f").write_text("x" * 300)
    use(workspace, Case(tool="write", arguments={"path": "f", "content": "y", "overwrite": True}, makes={}))
    path = (tmp_path / "f").resolve()
    assert changes.undo_last() == (Undone(path=path, outcome="kept", why="its old content was too large to keep"),)


# the first staged content, the last note before the moves, the first move (the third, after the notes' two)
@each(("at", "count"), [("create", 5), ("create", 8), ("rename", 3)])
@each("overtaken", ["b.txt", "sub/gone.txt", "new/deep/c.txt"])
def test_what_somebody_changes_meanwhile_is_never_lost(overtaken: str, at: str, count: int, tmp_path: Path) -> None:
    """Proves: while a patch is staged, and between two of its moves, another program's change of one of its files is seen:
    the patch is refused whole, and that change stays."""
    root = tmp_path / "root"
    lay_out(root)
    steps: list[str] = []

    def overtake(step: str) -> None:
        steps.append(step)
        if step == at and steps.count(at) == count:
            (root / overtaken).parent.mkdir(parents=True, exist_ok=True)
            (root / overtaken).write_bytes(b"of somebody else\n")

    workspace = WorkspacePaths(root, changes=FileChanges(tmp_path / "store"), disk=Disk(overtake))
    with pytest.raises(ToolFault, match="by somebody else at this moment"):
        use(workspace, CASES["apply_patch"])
    assert contents(root) == FILES | {overtaken: b"of somebody else\n"}


def test_a_link_swapped_in_after_the_verdict_is_not_followed(tmp_path: Path) -> None:
    """Proves: what is decided on a path is checked again by the hand that opens it: a file, a folder on the way, and a
    folder swapped in the middle of a write."""
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "f").write_text("secret")
    root = tmp_path / "root"
    (root / "d").mkdir(parents=True)
    (root / "d" / "f").write_text("mine")
    workspace = WorkspacePaths(root)
    path = workspace.resolve("d/f")
    (root / "d").rename(root / "kept")
    (root / "d").symlink_to(outside)
    with pytest.raises(ToolFault, match="cannot be opened"):
        workspace.look_at(path, name="d/f")
    (root / "d").unlink()
    (root / "kept").rename(root / "d")

    def swap(step: str) -> None:
        if step == "create" and not (root / "kept").exists():
            (root / "d").rename(root / "kept")
            (root / "d").symlink_to(outside)

    swapped = WorkspacePaths(root, changes=FileChanges(tmp_path / "store"), disk=Disk(swap))
    with pytest.raises(ToolFault):
        use(swapped, Case(tool="edit", arguments={"path": "d/f", "old": "mine", "new": "x"}, makes={}))
    assert contents(outside) == {"f": b"secret"}


def test_a_call_touches_what_it_was_judged_on_only(tmp_path: Path) -> None:
    """Proves: leave for one path outside is for that one; and a path that leads elsewhere than when it was judged, though
    still inside, is refused."""
    root, outside = tmp_path / "root", tmp_path / "outside"
    root.mkdir()
    outside.mkdir()
    (outside / "f").write_text("of the house\n")
    (root / ".env").write_text("KEY=1\n")
    (root / "link").symlink_to(".env")
    (root / "a").write_text("a\n")
    workspace = WorkspacePaths(root)
    with judged_paths([outside / "f"]):
        assert workspace.find(str(outside / "f")).content == b"of the house\n"
        with pytest.raises(ToolFault, match="does not lead to what was judged"):
            workspace.find("a")
    with judged_paths([root / "a"]), pytest.raises(ToolFault, match=r"it is `\.env` now"):
        workspace.find("link")
    with pytest.raises(ToolFault, match="is outside the workspace"):
        workspace.find(str(outside / "f"))
    assert WorkspacePaths(root, outside=[outside / "f"]).find(str(outside / "f")).content == b"of the house\n"
