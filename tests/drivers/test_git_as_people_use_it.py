"""git in worktrees, packages and submodules, and git where it would open an editor: with a real git in each sandbox."""

import asyncio
import subprocess
import tempfile
from collections.abc import Generator
from pathlib import Path

import pytest

from sandboxes import CONFINING, sandbox_called
from turnwise.drivers.tools.workspace.shell import BashArguments, Shell
from turnwise.errors import ToolFault
from waits import HANG_S

WAITS = "sh -c 'sleep 600'"  # an editor that waits for a person


@pytest.fixture(name="base", autouse=True)
def a_base(monkeypatch: pytest.MonkeyPatch) -> Generator[Path]:
    """A folder that no sandbox hides, with a home folder whose editor would wait, and a message's template."""
    cache = Path.home() / ".cache"
    cache.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="turnwise-test-", dir=cache) as folder:
        base = Path(folder).resolve()
        _fill_home(base / "home")
        monkeypatch.setenv("HOME", str(base / "home"))
        yield base


def _fill_home(home: Path) -> None:
    home.mkdir()
    (home / "template").write_text("Why:\n# what for\n")
    (home / ".gitconfig").write_text(
        f'[user]\n\tname = n\n\temail = a@b\n[core]\n\teditor = "{WAITS}"\n[sequence]\n\teditor = "{WAITS}"\n'
        '[init]\n\tdefaultBranch = main\n[protocol "file"]\n\tallow = always\n'
    )


@pytest.fixture(params=CONFINING, name="kind")
def a_kind(request: pytest.FixtureRequest) -> str:
    return request.param


def git(command: str, *, at: Path) -> str:
    """As the user does it, outside of any sandbox."""
    done = subprocess.run(["sh", "-ec", command], cwd=at, check=True, capture_output=True, text=True, timeout=HANG_S)
    return done.stdout.strip()


def shell_in(root: Path, *, kind: str) -> Shell:
    return Shell(root, sandbox=sandbox_called(kind))


async def run(shell: Shell, command: str) -> str:
    try:
        return await asyncio.wait_for(shell.run(BashArguments(command=command, timeout_s=int(HANG_S))), HANG_S)
    except ToolFault as fault:
        return str(fault)


@pytest.fixture(name="conflict")
def a_conflict(base: Path) -> Path:
    """A repository with two branches that changed the same line; `side` is checked out."""
    root = base / "m"
    root.mkdir()
    git(
        "git init -q . && echo one > k && git add . && git commit -qm first && git branch side"
        " && echo main > k && git commit -qam main && git checkout -q side && echo side > k && git commit -qam side",
        at=root,
    )
    return root


async def test_an_editor_of_git_never_waits(conflict: Path) -> None:
    """Proves: a message that is there is kept, also past `core.editor` and `-c`; one that would have to be written, a todo list
    and a patch are an error that names the options, and no rebase is left half done. Found: each waited to the call's deadline."""
    shell = shell_in(conflict, kind=CONFINING[0])
    for command in (
        "git commit --allow-empty",
        "git commit --allow-empty -v",
        "git -c core.editor='sleep 600' commit --allow-empty",
        "git -c commit.template=~/template commit --allow-empty",
        "git -c core.commentChar=';' commit --allow-empty",
        "git tag -a v1",
        "git notes add",
        "git branch --edit-description",
        "git rebase -i HEAD~1",
        "git -c sequence.editor='sleep 600' rebase -i HEAD~1",
        "echo new > k; git add -e",
    ):
        told = await run(shell, command)
        assert "[exit code " in told and "timed out" not in told, command
        assert all(word in told for word in ("-m", "-F", "--no-edit", "nobody is there")), (command, told)
        assert not (conflict / ".git" / "rebase-merge").exists(), command
    git("git checkout -q -- k", at=conflict)
    assert git("git log --format=%s", at=conflict) == "side\nfirst"
    told = await run(shell, "git rebase main; echo both > k; git add k; git rebase --continue && git log --format=%s")
    assert told.endswith("side\nmain\nfirst\n") and not (conflict / ".git" / "rebase-merge").exists(), told
    for command, subject in (
        ("git commit --amend", "side"),
        ("git -c core.editor='sleep 600' commit --amend -v", "side"),
        ("git commit --allow-empty -c main", "main"),
        ("git revert --edit HEAD~1", 'Revert "side"'),
        ("GIT_SEQUENCE_EDITOR='sed -i s/^pick/reword/' git rebase -i HEAD~1", 'Revert "side"'),
    ):
        told = await run(shell, f"{command}; git log -1 --format=last:%s")
        assert f"last:{subject}\n" in told and "nobody is there" not in told, (command, told)
