"""Temporary folders go with their process, and at a later start where that was killed. With real processes."""

import os
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import pytest

from sandboxes import sandbox_called
from turnwise.base.private_folders import NEW_S, OWNER, make_private_folder, private_folder, remove_tree, sweep
from turnwise.errors import CallerError
from turnwise.journal.kept_prices import KeptPrices, KeptRow
from turnwise.tools.sandbox import find_sandbox
from turnwise.tools.sandbox.environment import Scratch
from turnwise.tools.workspace.changes import recover_changes
from waits import HANG_S

MAKE = "from turnwise.tools.sandbox.environment import Scratch; scratch = Scratch(); made = scratch.root"
MAKE_CHANGES = (
    "from turnwise.tools.workspace.changes import FileChanges; changes = FileChanges(); made = changes._root()"
)


class Holder:
    """What a folder belongs to."""


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The temporary folder of this process and of those that it starts."""
    place = tmp_path / "temporary"
    place.mkdir()
    monkeypatch.setenv("TMPDIR", str(place))
    monkeypatch.setattr(tempfile, "tempdir", None)  # it is read from the environment anew
    return place


@contextmanager
def living(code: str) -> Iterator[tuple[subprocess.Popen[str], Path]]:
    """A process that has run `code`, with the folder that this has `made`; it waits until it is told to go on."""
    program = f"{code}\nprint(made, flush=True); input()"
    process = subprocess.Popen(
        [sys.executable, "-c", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    try:
        assert process.stdout is not None
        yield process, Path(process.stdout.readline().strip())
    finally:
        process.kill()
        process.communicate(timeout=HANG_S)


def left_by_a_killed_process(code: str = MAKE) -> Path:
    with living(code) as (process, made):
        process.kill()
        assert process.wait(HANG_S) == -signal.SIGKILL
    return made


def make_old(path: Path) -> None:
    path.touch()
    old_s = path.stat().st_mtime - NEW_S - 60
    os.utime(path, (old_s, old_s))


def test_folder_of_a_killed_process_goes_at_the_next_start(place: Path) -> None:
    """`kill -9` leaves it; the next process that needs one removes it, and its own when it ends."""
    left = left_by_a_killed_process()
    assert (left / "tmp").is_dir()
    with living(MAKE) as (process, made):
        assert not left.exists() and made.is_dir()
        process.communicate("\n", timeout=HANG_S)
    assert (process.returncode, list(place.iterdir())) == (0, [])


def test_folder_of_a_living_process_stays(place: Path) -> None:
    """Also while that one is stopped, and whatever its number is elsewhere: the lock tells, not the number."""
    with living(MAKE) as (process, made):
        process.send_signal(signal.SIGSTOP)
        assert sweep(place, kind="run") == 0
        assert made.is_dir()
    assert sweep(place, kind="run") == 1
    assert list(place.iterdir()) == []


def test_a_copy_of_the_process_does_not_take_the_folder_along(place: Path) -> None:
    """A child made by fork ends in good order: the folder is its parent's."""
    code = f"{MAKE}\nimport os, sys\npid = os.fork()\nif pid == 0: sys.exit()\nos.waitpid(pid, 0)"
    with living(code) as (process, made):
        assert made.is_dir()
        process.communicate("\n", timeout=HANG_S)
    assert not made.exists()


def test_a_folder_goes_with_its_holder(place: Path) -> None:
    scratch = Scratch()
    root = scratch.root
    assert root.parent == place and root.stat().st_mode & 0o777 == 0o700
    del scratch
    assert not root.exists()
    with private_folder(kind="demo") as folder:
        (folder / "file").touch()
    assert list(place.iterdir()) == []


def test_what_a_command_left_goes_whatever_its_rights(place: Path) -> None:
    """Folders that nobody may enter, and a chain of folders whose path is too long for the system."""
    code = f"""
{MAKE}
import os
inner = made / "tmp" / "closed" / "inner"
inner.mkdir(parents=True)
(inner / "file").touch()
inner.chmod(0)
inner.parent.chmod(0o500)
os.chdir(made / "tmp")
for _ in range(50):
    os.mkdir("deep" * 50)
    os.chdir("deep" * 50)
"""
    left = left_by_a_killed_process(code)
    assert left.is_dir()
    assert sweep(place, kind="run") == 1
    assert list(place.iterdir()) == []


def test_links_are_not_followed(place: Path, tmp_path: Path) -> None:
    """Neither one in a folder that is removed, nor one in the place of a folder or of its mark."""
    precious = tmp_path / "precious"
    precious.mkdir()
    (precious / OWNER).write_text("kept")
    left = left_by_a_killed_process()
    (left / "tmp" / "link").symlink_to(precious)
    (left / "tmp" / "other").symlink_to(precious / OWNER)
    (place / "turnwise-run-link").symlink_to(precious)
    (place / "turnwise-run-marked").mkdir(mode=0o700)
    (place / "turnwise-run-marked" / OWNER).symlink_to(precious / OWNER)
    assert sweep(place, kind="run") == 1
    assert not left.exists() and (precious / OWNER).read_text() == "kept"
    assert sorted(path.name for path in place.iterdir()) == ["turnwise-run-link", "turnwise-run-marked"]


def test_what_is_not_ours_stays(place: Path) -> None:
    """Another name, no mark, a mark that is no file, a folder that others may write, a file."""
    for name in ("turnwise-abc", "turnwise-run-unmarked", "turnwise-run-odd", "turnwise-run-shared", "else"):
        (place / name).mkdir(mode=0o700)
        (place / name / "file").touch()
    (place / "turnwise-run-odd" / OWNER).mkdir()
    (place / "turnwise-run-shared" / OWNER).touch()
    (place / "turnwise-run-shared").chmod(0o777)
    (place / "turnwise-run-file").touch()
    make_old(place / "turnwise-run-unmarked")
    before = sorted(place.iterdir())
    assert sweep(place, kind="run") == 0
    assert sorted(place.iterdir()) == before


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a folder to somebody else")
def test_another_users_folder_stays(place: Path) -> None:
    """Even for root, who could remove it."""
    folder = place / "turnwise-run-theirs"
    folder.mkdir(mode=0o700)
    (folder / OWNER).touch()
    os.chown(folder, 12345, 12345)
    assert sweep(place, kind="run") == 0 and folder.is_dir()


def test_a_folder_that_was_left_before_it_was_marked_goes_after_an_hour(place: Path) -> None:
    """One that is new may be about to get its mark."""
    for name in ("turnwise-run-new", "turnwise-run-old"):
        (place / name).mkdir(mode=0o700)
        (place / name / f"{OWNER}.new").touch()
    make_old(place / "turnwise-run-old")
    assert sweep(place, kind="run") == 1
    assert [path.name for path in place.iterdir()] == ["turnwise-run-new"]


def test_each_kind_is_swept_by_itself(place: Path) -> None:
    """What has to be cleared first is not removed by somebody who does not know how."""
    left = left_by_a_killed_process(MAKE_CHANGES)
    assert (sweep(place, kind="run"), left.is_dir()) == (0, True)
    cleared: list[Path] = []
    assert sweep(place, kind="changes", clear=cleared.append) == 1
    assert (cleared, list(place.iterdir())) == ([left], [])


def test_a_removal_that_was_killed_is_finished_later(place: Path) -> None:
    """The mark goes last: what is left of the folder is still known as ours."""
    left = left_by_a_killed_process()
    for entry in ("tmp", "outputs"):
        (left / entry).rmdir()
    assert (left / OWNER).is_file() and sweep(place, kind="run") == 1
    with pytest.raises(FileNotFoundError):
        above = os.open(place, os.O_RDONLY)
        try:
            remove_tree(left.name, above=above)
        finally:
            os.close(above)


def test_new_contents_of_a_killed_change_go_with_its_store(place: Path, tmp_path: Path) -> None:
    """A library's program that keeps no changes beyond itself was killed before it moved a file into place."""
    work = tmp_path / "work"
    work.mkdir()
    code = f"""
{MAKE_CHANGES}
import os, signal
from pathlib import Path
from turnwise.tools.workspace.staged_changes import Disk
from turnwise.tools.workspace.staged_changes import FileChange, apply

class Killed(Disk):
    def rename(self, old, new, *, folder):
        if new == "a.txt":
            print(made, flush=True)
            os.kill(os.getpid(), signal.SIGKILL)
        super().rename(old, new, folder=folder)

place = Path({str(work)!r})
change = FileChange(path=place / "a.txt", base=place, shown="a.txt", before=None, after=b"new")
apply([change], disk=Killed(), store=changes)
"""
    with living(code) as (process, made):
        assert process.wait(HANG_S) == -signal.SIGKILL
    assert made.is_dir() and [path.suffix for path in work.iterdir()] == [".tmp"]
    with living(MAKE_CHANGES):
        assert not made.exists() and list(work.iterdir()) == []


def test_old_contents_without_a_note_go_after_an_hour(tmp_path: Path) -> None:
    """A kill between the old content and the note that says whose it is; a new one may be somebody's at this moment."""
    for name in ("00000001", "00000002", "other"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "0.before").write_text("old")
    make_old(tmp_path / "00000001")
    make_old(tmp_path / "other")
    assert recover_changes(tmp_path) == ()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["00000002", "other"]


def test_a_half_written_file_of_kept_prices_goes_after_an_hour(tmp_path: Path) -> None:
    """The next one that is kept removes what a kill left."""
    for name in (".prices-old", ".prices-new"):
        (tmp_path / name).touch()
    make_old(tmp_path / ".prices-old")
    KeptPrices(tmp_path / "prices.json").keep("m", KeptRow(), provider="p")
    assert sorted(path.name for path in tmp_path.iterdir()) == [".prices-new", "prices.json"]


def test_without_a_temporary_folder_the_sandbox_is_not_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    """A full disk says nothing of the sandbox: commands do not run without it for that."""
    sandbox_called("bubblewrap")
    monkeypatch.setattr(tempfile, "tempdir", "/dev/null/none")
    with pytest.raises(CallerError, match="no temporary folder can be made"):
        find_sandbox(wanted="bubblewrap")
    with pytest.raises(OSError, match="/dev/null/none"):
        make_private_folder(Holder(), kind="run")


def test_threads_that_want_it_at_once_have_one_whole_folder() -> None:
    """Calls of several sub-agents are looked at in threads. One of them found half a folder, and a call that a person had allowed
    was denied as changed."""
    for _ in range(20):
        scratch = Scratch()
        together = threading.Barrier(8)

        def made(scratch: Scratch = scratch, together: threading.Barrier = together) -> tuple[Path, bool]:
            together.wait(HANG_S)
            return scratch.temporary, scratch.outputs.is_dir() and scratch.empty.is_file()

        with ThreadPoolExecutor(8) as pool:
            found = [one.result(HANG_S) for one in [pool.submit(made) for _ in range(8)]]
        assert {whole for _, whole in found} == {True}
        assert len({folder for folder, _ in found}) == 1
