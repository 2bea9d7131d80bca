"""Taking changes back: each file is as it was before the group, or left whole as it is and said so; never between."""

import os
import shutil
import sys
import threading
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from thoroughness import examples
from turnwise.errors import ToolFault
from turnwise.running.run_context import working_for
from turnwise.tools.workspace import workspace_tools
from turnwise.tools.workspace.changes import FileChanges, Undone
from turnwise.tools.workspace.paths import WorkspacePaths
from turnwise.tools.workspace.staged_changes import Disk
from waits import HANG_S

NAME = "sub/a.txt"


class Room:
    """A folder with one file, its store, and the tools that change it."""

    def __init__(self, folder: Path) -> None:
        self.root = (folder / "root").resolve()
        self.store = folder / "store"
        self.file = self.root / NAME
        self.file.parent.mkdir(parents=True)
        self.file.write_text("old\n")
        self.file.chmod(0o640)
        self.changes = FileChanges(self.store)
        self.changes.begin("turn")

    def use(self, tool: str, **arguments: object) -> str:
        return use(WorkspacePaths(self.root, changes=self.changes), tool, **arguments)

    def undo(self) -> Undone:
        """By another process: what it did to the one file."""
        (undone,) = FileChanges(self.store).undo_last()
        return undone


def use(workspace: WorkspacePaths, tool: str, **arguments: object) -> str:
    function = next(one.function for one in workspace_tools(workspace) if one.name == tool)
    assert function is not None
    return str(function(dict(arguments)))


@pytest.fixture
def room(tmp_path: Path) -> Room:
    return Room(tmp_path)


def elsewhere(room: Room) -> Path:
    """A folder beside the root, whose file has the content that the change left."""
    other = room.root.parent / "other"
    other.mkdir()
    (other / "a.txt").write_text("new\n")
    return other


def link_file(room: Room) -> None:
    target = elsewhere(room) / "a.txt"
    room.file.unlink()
    room.file.symlink_to(target)


def link_folder(room: Room) -> None:
    other = elsewhere(room)
    shutil.rmtree(room.file.parent)
    room.file.parent.symlink_to(other)


def folder_for_file(room: Room) -> None:
    room.file.unlink()
    room.file.mkdir()


def pipe_for_file(room: Room) -> None:
    room.file.unlink()
    os.mkfifo(room.file)


def write_protect(room: Room) -> None:
    room.file.chmod(0o440)


def huge(room: Room) -> None:
    """It is read in pieces."""
    os.truncate(room.file, 1 << 26)


SINCE: dict[str, tuple[Callable[[Room], object], str]] = {
    "changed": (lambda room: room.file.write_text("mine\n"), "it was changed since"),
    "huge": (huge, "it was changed since"),
    "removed": (lambda room: room.file.unlink(), "it was removed since"),
    "folder removed": (lambda room: shutil.rmtree(room.file.parent), "it was removed since"),
    "root removed": (lambda room: shutil.rmtree(room.root), "it was removed since"),
    "link": (link_file, "a link stands in its place"),
    "linked folder": (link_folder, "a link or a file stands where its folder was"),
    "folder": (folder_for_file, "a folder stands in its place"),
    "pipe": (pipe_for_file, "it is no regular file any more"),
    "write-protected": (write_protect, "it is write-protected"),
}


@pytest.mark.costly
@pytest.mark.parametrize("happened", SINCE)
def test_what_became_of_a_file_since_is_said_and_left(happened: str, room: Room) -> None:
    """Proves: no link is followed, no pipe waited for, nothing of somebody else's is lost; the old content is named."""
    happens, why = SINCE[happened]
    room.use("write", path=NAME, content="new\n", overwrite=True)
    happens(room)
    before = {
        path: path.lstat().st_mtime_ns for path in room.root.parent.rglob("*") if not path.is_relative_to(room.store)
    }
    undone = room.undo()
    assert (undone.outcome, undone.why) == ("kept", why)
    assert undone.saved is not None and undone.saved.read_text() == "old\n"
    assert before == {path: path.lstat().st_mtime_ns for path in before}
    assert FileChanges(room.store).undo_last() == ()  # it was dealt with: the next one is about what came before


def test_a_deleted_file_comes_back_with_its_folder_and_its_mode(room: Room) -> None:
    """Proves: created anew, as it was; the folder that somebody removed since is made."""
    room.use("apply_patch", patch=f"*** Begin Patch\n*** Delete File: {NAME}\n*** End Patch\n")
    room.file.parent.rmdir()
    assert room.undo().outcome == "recreated"
    assert (room.file.read_text(), room.file.stat().st_mode & 0o777) == ("old\n", 0o640)


def test_a_deleted_file_stays_away_where_the_workspace_is_gone(room: Room) -> None:
    """Proves: the folder that a person removed as a whole is not made again."""
    room.use("apply_patch", patch=f"*** Begin Patch\n*** Delete File: {NAME}\n*** End Patch\n")
    shutil.rmtree(room.root)
    assert room.undo().why == "the folder that it was in is gone"
    assert not room.root.exists()


def test_a_deleted_file_that_somebody_made_anew_is_left(room: Room) -> None:
    """Proves: what stands there by now is theirs."""
    room.use("apply_patch", patch=f"*** Begin Patch\n*** Delete File: {NAME}\n*** End Patch\n")
    room.file.write_text("mine\n")
    assert (room.undo().why, room.file.read_text()) == ("it was made anew since", "mine\n")


@pytest.mark.parametrize(("since", "mode"), [(0o640, 0o640), (0o750, 0o750)])
def test_a_mode_that_somebody_changed_since_stays(since: int, mode: int, room: Room) -> None:
    """Proves: content comes back and `chmod +x` of a person is kept; without one the mode is that of before."""
    room.use("write", path=NAME, content="new\n", overwrite=True)
    room.file.chmod(since)
    assert room.undo().outcome == "restored"
    assert (room.file.read_text(), room.file.stat().st_mode & 0o777) == ("old\n", mode)


def test_a_file_that_was_deleted_and_made_anew_has_its_old_mode_again(room: Room) -> None:
    """Proves: both changes are one undoing."""
    room.use("apply_patch", patch=f"*** Begin Patch\n*** Delete File: {NAME}\n*** End Patch\n")
    room.use("write", path=NAME, content="new\n")
    assert room.undo().outcome == "restored"
    assert (room.file.read_text(), room.file.stat().st_mode & 0o777) == ("old\n", 0o640)


def test_binary_content_comes_back_byte_for_byte(room: Room) -> None:
    """Proves: nothing is decoded on the way."""
    content = bytes(range(256)) * 100
    room.file.write_bytes(content)
    room.use("write", path=NAME, content="new\n", overwrite=True)
    assert room.undo().outcome == "restored"
    assert room.file.read_bytes() == content


def test_a_file_that_something_else_changed_in_between_is_left(room: Room) -> None:
    """Proves: it would get neither its content of before nor that of in between: the first would lose what a command or a
    person wrote, the second would be half an undoing. Before, it was set to what stood in between."""
    room.use("edit", path=NAME, old="old", new="new")
    room.file.write_text("new\nby a formatter\n")
    room.use("edit", path=NAME, old="new", new="newer")
    undone = room.undo()
    assert (undone.outcome, undone.why) == ("kept", "something else changed it between two of these changes")
    assert room.file.read_text() == "newer\nby a formatter\n"
    assert undone.saved is not None and undone.saved.read_text() == "old\n"


def test_copies_that_are_gone_or_damaged_are_said(room: Room) -> None:
    """Proves: a wrong content is never restored."""
    for number, why in ((1, "the copy of its old content is gone"), (2, "the copy of its old content is damaged")):
        room.use("write", path=NAME, content=f"new {number}\n", overwrite=True)
        (copy,) = room.store.glob(f"{number:08}/0.before")
        copy.unlink() if number == 1 else copy.write_text("something else\n")
        undone = room.undo()
        assert (undone.outcome, undone.why, room.file.read_text()) == ("kept", why, f"new {number}\n")


def test_a_turn_whose_first_copies_gave_way_is_left_whole(room: Room) -> None:
    """Proves: a file is not taken back to what it was in the middle of the turn; that held without a limit only."""
    room.changes = FileChanges(room.store, kept_changes=2)
    room.changes.begin("turn")
    for number in range(3):
        room.use("write", path=NAME, content=f"new {number}\n", overwrite=True)
    undone = room.undo()
    assert (undone.outcome, undone.why) == ("kept", "older changes of it gave way to newer ones")
    assert room.file.read_text() == "new 2\n"


def test_undoing_does_not_push_out_what_it_restores(room: Room) -> None:
    """Proves: a full store is no obstacle. Before, the copies were pruned while they were being restored, and undo failed after
    it had changed the file."""
    room.changes = FileChanges(room.store, kept_bytes=150)
    room.file.write_text("o" * 100)
    room.use("write", path=NAME, content="n" * 120, overwrite=True)
    (undone,) = FileChanges(room.store, kept_bytes=150).undo_last()
    assert (undone.outcome, room.file.read_text()) == ("restored", "o" * 100)


def test_what_changes_between_the_look_and_the_undoing_is_not_lost(room: Room) -> None:
    """Proves: what was shown is what happens, or nothing does; then it can be taken back again."""
    room.use("write", path=NAME, content="new\n", overwrite=True)
    undoing = room.changes.undoing()
    assert undoing is not None and [change.after for change in undoing.changes] == [b"old\n"]
    room.file.write_text("mine\n")
    with pytest.raises(ToolFault, match="was changed by somebody else"):
        room.changes.take_back(undoing)
    assert room.file.read_text() == "mine\n"
    room.file.write_text("new\n")
    assert room.undo().outcome == "restored"


def test_a_look_changes_nothing(room: Room) -> None:
    """Proves: neither the files nor the store."""
    room.use("write", path=NAME, content="new\n", overwrite=True)
    before = {path: path.stat().st_mtime_ns for path in room.root.parent.rglob("*")}
    assert room.changes.undoing() is not None
    assert before == {path: path.stat().st_mtime_ns for path in room.root.parent.rglob("*")}


def test_changes_of_two_turns_at_once_are_told_apart(room: Room) -> None:
    """Proves: each change belongs to the turn that makes it, in whatever thread; before, to the one that had begun last."""
    changes = FileChanges(room.store)
    (room.root / "b.txt").write_text("old\n")
    ready = threading.Barrier(2)

    def turn(name: str, file: str) -> None:
        with working_for(name):
            ready.wait(HANG_S)
            use(WorkspacePaths(room.root, changes=changes), "write", path=file, content=f"{name}\n", overwrite=True)

    threads = [threading.Thread(target=turn, args=one) for one in (("one", NAME), ("two", "b.txt"))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(HANG_S)
    assert dict(changes.groups()) == {"one": 1, "two": 1}
    assert changes.undo_last("one") == (Undone(path=room.file, outcome="restored"),)
    assert (room.root / "b.txt").read_text() == "two\n"


@pytest.mark.costly
def test_first_changes_at_once_are_kept_in_one_place(room: Room) -> None:
    """Proves: runs whose calls need the temporary store first, all at once, do not each make one; only the last was found."""
    interval_s = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        for number in range(60):
            changes, ready = FileChanges(), threading.Barrier(4)

            def write(name: str, ready: threading.Barrier = ready, changes: FileChanges = changes) -> None:
                ready.wait(HANG_S)
                use(WorkspacePaths(room.root, changes=changes), "write", path=name, content=name)

            threads = [threading.Thread(target=write, args=(f"{number}-{one}",)) for one in range(4)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join(HANG_S)
            assert sum(changes.groups().values()) == 4
    finally:
        sys.setswitchinterval(interval_s)


class Act(msgspec.Struct, frozen=True):
    """One change of a file, by the turn's tools or by somebody else (None: it is removed)."""

    file: str
    content: str | None
    is_ours: bool


ACTS = st.builds(
    Act,
    file=st.sampled_from(["a", "d/b", "d/e/c"]),
    content=st.one_of(st.none(), st.sampled_from(["1\n", "2\n", "3\n", ""])),
    is_ours=st.integers(0, 3).map(bool),
)


@given(
    first=st.dictionaries(st.sampled_from(["a", "d/b", "d/e/c"]), st.sampled_from(["1\n", "2\n"])),
    acts=st.lists(ACTS, max_size=8),
    since=st.lists(ACTS, max_size=2),
    limit=st.sampled_from([2, 500]),
)
@settings(max_examples=examples(60), deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_any_file_is_as_before_or_as_it_was_found(
    tmp_path: Path, first: dict[str, str], acts: list[Act], since: list[Act], limit: int
) -> None:
    """Proves: for whatever a turn and others do to files, undo gives a file what it held before the turn changed it first, or
    leaves it as it is and says so; it touches no other file."""
    root, store = tmp_path / "root", tmp_path / "store"
    for path in (root, store):
        shutil.rmtree(path, ignore_errors=True)
        path.mkdir()
    for name, content in first.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(content)
    changes = FileChanges(store, kept_changes=limit)
    changes.begin("turn")
    before: dict[str, str | None] = {}  # the turn's first change of each file
    for act in [*acts, *[msgspec.structs.replace(one, is_ours=False) for one in since]]:
        held = contents(root).get(act.file)
        if carried_out(act, root=root, changes=changes) and act.is_ours:
            before.setdefault(act.file, held)
    found = contents(root)
    undone = FileChanges(store).undo_last()
    now = contents(root)
    for one in undone:
        name = str(one.path.relative_to(root.resolve()))
        assert now.get(name) == (found.get(name) if one.outcome == "kept" else before[name])
    told = {str(one.path.relative_to(root.resolve())) for one in undone}
    assert {name: now.get(name) for name in {*now, *found} - told} == {
        name: found.get(name) for name in {*now, *found} - told
    }


def carried_out(act: Act, *, root: Path, changes: FileChanges) -> bool:
    """Whether it changed anything."""
    path = root / act.file
    before = path.read_text() if path.exists() else None
    if before == act.content:
        return False
    if not act.is_ours:
        path.parent.mkdir(parents=True, exist_ok=True)
        if act.content is None:
            path.unlink()
        else:
            path.write_text(act.content)
        return True
    workspace = WorkspacePaths(root, changes=changes)
    if act.content is None:
        use(workspace, "apply_patch", patch=f"*** Begin Patch\n*** Delete File: {act.file}\n*** End Patch\n")
    else:
        use(workspace, "write", path=act.file, content=act.content, overwrite=True)
    return True


def contents(root: Path) -> dict[str, str]:
    return {str(path.relative_to(root)): path.read_text() for path in root.rglob("*") if path.is_file()}


def test_an_undoing_that_is_killed_after_the_move_is_found_done(room: Room) -> None:
    """Proves: the files are as before, though no note says so; the next look says that, and changes nothing."""

    def no_note(step: str) -> None:
        nonlocal moves
        moves += step == "rename"
        if moves > 3:  # the undoing's own notes and the file itself
            raise OSError(28, "no space left on device")

    moves = 0
    room.use("write", path=NAME, content="new\n", overwrite=True)
    FileChanges(room.store).undo_last(disk=Disk(no_note))
    assert room.file.read_text() == "old\n"
