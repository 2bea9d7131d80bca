"""Git's state of a folder that may come from elsewhere: what git itself says, and nothing of the folder runs.

The judge is git: it made the repositories, and its own `git status` runs what the hostile ones name.
"""

import asyncio
import os
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from tables import each
from turnwise.coding_agent.repository import GitState, git_state
from waits import HANG_S

GIT = shutil.which("git") or ""
pytestmark = pytest.mark.skipif(not GIT, reason="git makes the repositories")
ENV = {
    "PATH": os.environ.get("PATH", os.defpath),
    "HOME": os.devnull,
    "GIT_CONFIG_NOSYSTEM": "1",
    **{f"GIT_{who}_{what}": "a@example.org" for who in ("AUTHOR", "COMMITTER") for what in ("NAME", "EMAIL")},
}


def git(folder: Path, *asks: str, given: str = "") -> str:
    done = subprocess.run(
        [GIT, *asks], cwd=folder, env=ENV, input=given, capture_output=True, text=True, check=False, timeout=HANG_S
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def state_of(folder: Path, *, timeout_s: float = HANG_S) -> GitState | None:
    return asyncio.run(git_state(folder.resolve(), git=GIT, timeout_s=timeout_s))


def make(folder: Path, *, subjects: tuple[str, ...] = ("Begin",)) -> Path:
    """A repository with a tracked file, whose branch is `main`."""
    folder.mkdir(parents=True, exist_ok=True)
    git(folder, "init", "-q", "-b", "main")
    (folder / "a.txt").write_text("a\n")
    git(folder, "add", ".")
    for subject in subjects:
        git(folder, "commit", "-q", "--allow-empty", "-m", subject)
    return folder


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    return make(tmp_path / "repository")


def test_it_says_what_git_says(repository: Path) -> None:
    """Branch, changed and new files, the last three subjects; ignored files are not counted, nor those outside the folder."""
    for number in range(4):
        git(repository, "commit", "-q", "--allow-empty", "-m", f"Change {number}")
    git(repository, "checkout", "-q", "-b", "feature/x")
    (repository / ".git" / "info" / "exclude").write_text("*.log\n")
    (repository / "a.txt").write_text("b\n")
    for name in ("new.txt", "x.log", "sub/one", "sub/two"):
        (repository / name).parent.mkdir(exist_ok=True)
        (repository / name).write_text(name)
    found = state_of(repository)
    commit = git(repository, "rev-parse", "HEAD")
    subjects = ("Change 3", "Change 2", "Change 1")
    assert found == GitState(branch="feature/x", commit=commit, changed=1, untracked=2, subjects=subjects)
    below = state_of(repository / "sub")
    assert below is not None and (below.branch, below.changed, below.untracked) == ("feature/x", 0, 1)


def test_every_ordinary_kind_of_repository_is_known(repository: Path, tmp_path: Path) -> None:
    """Without a commit, without a branch, packed, shallow, a worktree, SHA-256; no repository is none."""
    empty = tmp_path / "empty"
    empty.mkdir()
    assert state_of(empty) is None
    git(empty, "init", "-q", "-b", "first")
    assert state_of(empty) == GitState(branch="first", changed=0, untracked=0)
    git(repository, "commit", "-q", "--allow-empty", "-m", "Second")
    git(repository, "pack-refs", "--all")
    git(repository, "gc", "-q")
    commit = git(repository, "rev-parse", "HEAD")
    whole = GitState(branch="main", commit=commit, changed=0, untracked=0, subjects=("Second", "Begin"))
    assert state_of(repository) == whole
    git(tmp_path, "clone", "-q", "--depth=1", f"file://{repository}", "shallow")
    shallow = state_of(tmp_path / "shallow")
    assert shallow is not None and (shallow.branch, shallow.subjects) == ("main", ("Second",))
    git(repository, "worktree", "add", "-q", "-b", "other", str(tmp_path / "worktree"))
    (tmp_path / "worktree" / "new").write_text("")
    other = state_of(tmp_path / "worktree")
    assert other is not None and (other.branch, other.untracked, other.subjects) == ("other", 1, ("Second", "Begin"))
    git(repository, "checkout", "-q", "--detach")
    alone = state_of(repository)
    assert alone is not None and (alone.branch, alone.commit) == ("", commit)
    git(tmp_path, "init", "-q", "--object-format=sha256", "-b", "main", "long")
    make(tmp_path / "long")
    long = state_of(tmp_path / "long")
    assert long is not None and (long.changed, long.subjects) == (0, ("Begin",))


def test_without_git_the_branch_is_known_all_the_same(repository: Path) -> None:
    """It stands in a file; the rest is left out."""
    found = asyncio.run(git_state(repository.resolve(), git=""))
    assert found is not None
    assert (found.branch, found.changed, found.untracked, found.subjects) == ("main", None, None, None)


def a_filter(folder: Path, runs: str) -> None:
    (folder / ".gitattributes").write_text("* filter=x\n")
    git(folder, "config", "filter.x.clean", runs)


def a_filter_process(folder: Path, runs: str) -> None:
    (folder / ".gitattributes").write_text("* filter=x\n")
    git(folder, "config", "filter.x.process", runs)


def a_file_monitor(folder: Path, runs: str) -> None:
    git(folder, "config", "core.fsmonitor", runs)


def an_included_monitor(folder: Path, runs: str) -> None:
    git(folder, "config", "-f", str(folder / "more"), "core.fsmonitor", runs)
    git(folder, "config", "include.path", "../more")


def a_monitor_of_the_worktree(folder: Path, runs: str) -> None:
    git(folder, "config", "extensions.worktreeConfig", "true")
    git(folder, "config", "--worktree", "core.fsmonitor", runs)


def a_hook(folder: Path, runs: str) -> None:
    hook = folder / ".git" / "hooks" / "post-index-change"
    hook.parent.mkdir(exist_ok=True)
    hook.write_text(f"#!/bin/sh\n{runs}\n")
    hook.chmod(0o755)


def a_folder_of_hooks(folder: Path, runs: str) -> None:
    a_hook(folder, runs)
    (folder / ".git" / "hooks").rename(folder / "hooks")
    git(folder, "config", "core.hooksPath", "hooks")


def a_signature(folder: Path, runs: str) -> None:
    """Shown by `git log`, which asks a program about it."""
    told = git(folder, "cat-file", "commit", "HEAD").split("\n")
    place = told.index("")
    lines = [*told[:place], "gpgsig -----BEGIN PGP SIGNATURE-----", " ", " -----END PGP SIGNATURE-----", *told[place:]]
    commit = git(folder, "hash-object", "-t", "commit", "-w", "--stdin", given="\n".join(lines) + "\n")
    git(folder, "update-ref", "HEAD", commit)
    program = folder / "program"
    program.write_text(f"#!/bin/sh\n{runs}\n")
    program.chmod(0o755)
    git(folder, "config", "gpg.program", str(program))
    git(folder, "config", "log.showSignature", "true")


def a_missing_object(folder: Path, runs: str) -> None:
    """Fetched from where the settings say, by the program that they name."""
    tree = git(folder, "rev-parse", "HEAD^{tree}")
    (folder / "b.txt").write_text("b\n")
    git(folder, "add", "b.txt")  # now the index does not know the tree by heart
    (folder / ".git" / "objects" / tree[:2] / tree[2:]).unlink()
    git(folder, "config", "remote.origin.url", "ssh://nowhere/x")
    git(folder, "config", "remote.origin.promisor", "true")
    git(folder, "config", "extensions.partialClone", "origin")
    git(folder, "config", "core.sshCommand", f"{runs} #")


def a_repository_below(folder: Path, runs: str) -> None:
    """A submodule with settings of its own."""
    make(folder / "sub")
    git(folder, "-c", "advice.addEmbeddedRepo=false", "add", "sub")
    git(folder / "sub", "config", "core.fsmonitor", runs)


HOSTILE: list[Callable[[Path, str], None]] = [
    *[a_filter, a_filter_process, a_file_monitor, an_included_monitor, a_monitor_of_the_worktree, a_hook],
    *[a_folder_of_hooks, a_signature, a_missing_object, a_repository_below],
]


@pytest.mark.promise("safe:inside")
@pytest.mark.parametrize("hostile", HOSTILE, ids=lambda one: one.__name__)
def test_nothing_that_a_repository_names_runs(
    repository: Path, tmp_path: Path, hostile: Callable[[Path, str], None]
) -> None:
    """Issue 15, line 11. Git itself runs each of these, as the last line proves; we are told the branch all the same."""
    marker = tmp_path / "it ran"
    hostile(repository, f"touch '{marker}'")
    os.utime(repository / "a.txt", (1, 1))  # its content has to be looked at
    found = state_of(repository)
    assert found is not None and found.branch == "main"
    assert not marker.exists()
    for asks in (["status"], ["log", "-1"]):
        subprocess.run([GIT, *asks], cwd=repository, env=ENV, capture_output=True, check=False, timeout=HANG_S)
    assert marker.exists()


def test_settings_of_the_environment_steer_nothing(
    repository: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither another repository nor a program: git sees an environment of ours."""
    other = make(tmp_path / "other", subjects=("Private",))
    marker = tmp_path / "it ran"
    settings = {"GIT_DIR": str(other / ".git"), "GIT_CONFIG_COUNT": "1", "GIT_CONFIG_KEY_0": "core.fsmonitor"}
    for name, value in {**settings, "GIT_CONFIG_VALUE_0": f"touch '{marker}'", "GIT_TRACE": str(marker)}.items():
        monkeypatch.setenv(name, value)
    found = state_of(repository)
    assert found is not None and found.subjects == ("Begin",)
    assert not marker.exists()


def a_link_to_it(folder: Path, other: Path) -> None:
    (folder / ".git").symlink_to(other / ".git")


def a_file_that_names_it(folder: Path, other: Path) -> None:
    (folder / ".git").write_text(f"gitdir: {other / '.git'}\n")


def a_file_that_names_its_worktree(folder: Path, other: Path) -> None:
    git(other, "worktree", "add", "-q", "-b", "its", str(folder.parent / "its worktree"))
    (folder / ".git").write_text((folder.parent / "its worktree" / ".git").read_text())


def its_objects(folder: Path, other: Path) -> None:
    copy_of(folder, other)
    shutil.rmtree(folder / ".git" / "objects")
    (folder / ".git" / "objects").symlink_to(other / ".git" / "objects")


def its_packs(folder: Path, other: Path) -> None:
    git(other, "gc", "-q")
    copy_of(folder, other)
    shutil.rmtree(folder / ".git" / "objects" / "pack")
    (folder / ".git" / "objects" / "pack").symlink_to(other / ".git" / "objects" / "pack")


def its_objects_beside(folder: Path, other: Path) -> None:
    copy_of(folder, other)
    shutil.rmtree(folder / ".git" / "objects")
    (folder / ".git" / "objects" / "info").mkdir(parents=True)
    (folder / ".git" / "objects" / "info" / "alternates").write_text(f"{other / '.git' / 'objects'}\n")


def its_shared_folder(folder: Path, other: Path) -> None:
    copy_of(folder, other)
    (folder / ".git" / "commondir").write_text(f"{other / '.git'}\n")


def its_branches(folder: Path, other: Path) -> None:
    """With its objects copied: only the name of the commit is missing."""
    copy_of(folder, other)
    shutil.rmtree(folder / ".git" / "refs" / "heads")
    (folder / ".git" / "refs" / "heads").symlink_to(other / ".git" / "refs" / "heads")


def copy_of(folder: Path, other: Path) -> None:
    shutil.copytree(other / ".git", folder / ".git")


LEADING: list[Callable[[Path, Path], None]] = [
    *[a_link_to_it, a_file_that_names_it, a_file_that_names_its_worktree, its_objects, its_packs, its_objects_beside],
    *[its_shared_folder, its_branches],
]


@pytest.mark.promise("safe:inside")
@each("leads", LEADING, ids=lambda one: one.__name__)
def test_no_folder_leads_to_the_commits_of_another_one(tmp_path: Path, leads: Callable[[Path, Path], None]) -> None:
    """It may come from elsewhere, and the user's other repositories are none of its business. Git itself would show them."""
    other = make(tmp_path / "other", subjects=("Private",))
    folder = tmp_path / "folder"
    folder.mkdir()
    leads(folder, other)
    found = state_of(folder)
    assert found is None or not found.subjects
    assert git(folder, "log", "-1", "--format=%s") == "Private"


@pytest.mark.parametrize("name", [".git/HEAD", ".git/index", ".git/config", ".git/packed-refs", ".gitignore", ".git"])
def test_a_pipe_or_nonsense_is_not_waited_for(repository: Path, name: str) -> None:
    """A pipe that nobody writes to, and bytes that mean nothing: whatever is left out, it ends."""
    path = repository / name
    for make_it in (os.mkfifo, lambda at: at.write_bytes(b"\xff\0nonsense" * 1000)):
        if path.is_dir():
            shutil.rmtree(path)
        path.unlink(missing_ok=True)
        make_it(path)
        found = state_of(repository, timeout_s=0.5)
        assert found is None or found.branch == "main"


def test_a_slow_git_is_given_up(repository: Path, tmp_path: Path) -> None:
    """One that hangs is ended, and said to be slow, so that nobody asks it again."""
    slow = tmp_path / "slow"
    slow.write_text("#!/bin/sh\nexec sleep 600\n")
    slow.chmod(0o755)
    found = asyncio.run(git_state(repository.resolve(), git=str(slow), timeout_s=0.1))
    assert found is not None and (found.branch, found.changed, found.is_slow) == ("main", None, True)


def test_what_it_says_is_bounded(repository: Path, tmp_path: Path) -> None:
    """A program that never stops to speak leaves its answer out."""
    loud = tmp_path / "loud"
    loud.write_text("#!/bin/sh\nhead -c 1000000 /dev/zero\n")
    loud.chmod(0o755)
    found = asyncio.run(git_state(repository.resolve(), git=str(loud), timeout_s=HANG_S))
    assert found is not None and (found.changed, found.subjects) == (None, None)
