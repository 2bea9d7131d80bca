"""A folder's own git settings can make `git status` run a program; then it is asked about."""

import os
from pathlib import Path

import pytest

from turnwise.drivers.inspection import inspect_call
from turnwise.rules.permissions import Kind, Policy, judge_permission


def verdict(command: str, *, work: Path) -> Kind:
    facts = inspect_call(
        "1",
        tool="bash",
        effect="execute",
        arguments={"command": command},
        workspace=work,
        home=work.parent,
        environment={},
    )
    policy = Policy(workspace=os.path.realpath(work), home=str(work.parent), attended=True)
    return judge_permission(facts, policy=policy).kind


def repository(at: Path, *, config: str = "[core]\n\tbare = false\n") -> Path:
    (at / ".git" / "hooks").mkdir(parents=True)
    (at / ".git" / "HEAD").write_text("ref: refs/heads/main\n")
    (at / ".git" / "config").write_text(config)
    return at


@pytest.mark.parametrize(
    "config",
    [
        '[remote "origin"]\n\turl = https://example.org/x.git\n\tfetch = +refs/heads/*:refs/remotes/origin/*\n',
        '[branch "main"]\n\tremote = origin\n\tmerge = refs/heads/main\n[user]\n\tname = fsmonitor\n',
    ],
)
def test_ordinary_settings_leave_git_status_allowed(config: str, tmp_path: Path) -> None:
    """What a clone writes."""
    assert verdict("git status", work=repository(tmp_path / "work", config=config)) == "allow"


@pytest.mark.parametrize(
    "config",
    [
        "[core]\n\tfsmonitor = ./x\n",
        "[core] fsmonitor = ./x\n",
        "[CORE]FSMonitor=./x\n",
        "\ufeff[core]\nfsmonitor = ./x\n",
        "[core]\n\thooksPath = sub\n",
        "[core]\n\tworktree = ..\n",
        '[filter "x"]\n\tclean = ./x\n',
        '[filter "x"] process = ./x\n',
        '[diff "x"]\n\ttextconv = ./x\n',
        "[diff]\n\texternal = ./x\n",
        "[include]\n\tpath = ../x\n",
        '[includeIf "gitdir:/"] path = x\n',
        "[extensions]\n\tworktreeConfig = true\n",
        '[remote "origin"]\n\tpromisor = true\n',
        "[log]\n\tshowSignature = true\n",
        "[gpg]\n\tprogram = ./x\n",
        "[core]\n" + "# x\n" * 100_000,
    ],
)
def test_settings_that_run_a_program_are_asked_about(config: str, tmp_path: Path) -> None:
    """Wherever on a line they stand, in whatever case; also more settings than are read."""
    assert verdict("git status", work=repository(tmp_path / "work", config=config)) == "ask"


def test_a_hook_that_reading_would_run_is_asked_about(tmp_path: Path) -> None:
    """`git status` writes the index."""
    work = repository(tmp_path / "work")
    (work / ".git" / "hooks" / "pre-commit").write_text("x")
    assert verdict("git status", work=work) == "allow"
    (work / ".git" / "hooks" / "post-index-change").write_text("x")
    assert verdict("git status", work=work) == "ask"


def test_the_repository_is_looked_for_where_git_looks(tmp_path: Path) -> None:
    """In the folders above, in the folder that a `cd` leads to, in a bare one; and none at all is asked about."""
    work = repository(tmp_path / "work")
    (work / "sub").mkdir()
    repository(work / "hostile", config="[core]\n\tfsmonitor = ./x\n")
    bare = work / "bare"
    (bare / "objects").mkdir(parents=True)
    (bare / "refs").mkdir()
    (bare / "HEAD").write_text("x")
    assert verdict("cd sub && git status", work=work) == "allow"
    assert verdict("cd hostile && git status", work=work) == "ask"
    assert verdict("cd bare && git status", work=work) == "ask"
    assert verdict("cd nosuch; git status", work=work) == "allow"
    outside = tmp_path / "plain"
    outside.mkdir()
    assert verdict("git diff a b", work=outside) == "ask"


def test_a_worktree_is_judged_by_the_settings_of_its_repository(tmp_path: Path) -> None:
    """A `.git` file that leads anywhere else is asked about."""
    main, work = repository(tmp_path / "main"), tmp_path / "work"
    (main / ".git" / "worktrees" / "work").mkdir(parents=True)
    work.mkdir()
    (work / ".git").write_text(f"gitdir: {main}/.git/worktrees/work\n")
    assert verdict("git status", work=work) == "allow"
    (main / ".git" / "config").write_text("[core]\n\tfsmonitor = ./x\n")
    assert verdict("git status", work=work) == "ask"
    (work / ".git").write_text(f"gitdir: {main}/elsewhere\n")
    assert verdict("git status", work=work) == "ask"
