"""A folder's own git settings can make `git status` run a program; then it is asked about."""

import os
import subprocess
from collections.abc import Mapping
from pathlib import Path

import pytest

from tables import each
from turnwise.rules.permissions import PermissionKind, Policy, judge_permission
from turnwise.tools.sandbox import command_environment
from turnwise.tools.shell_judge import inspect_call
from turnwise.tools.shell_judge.repositories import find_repository
from waits import HANG_S


def verdict(command: str, *, work: Path, environment: Mapping[str, str] | None = None) -> PermissionKind:
    facts = inspect_call(
        "1",
        tool="bash",
        effect="execute",
        arguments={"command": command},
        workspace=work,
        home=work.parent,
        environment=environment or {},
    )
    policy = Policy(workspace=os.path.realpath(work), home=str(work.parent), attended=True)
    return judge_permission(facts, policy=policy).kind


def repository(at: Path, *, config: str = "[core]\n\tbare = false\n") -> Path:
    for name in ("hooks", "objects", "refs"):
        (at / ".git" / name).mkdir(parents=True)
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


@each(
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
        "[core]\n\tnosuch = 1\n",
        "[core]\rfsmonitor = ./x\n",
        "[core]\x0bfsmonitor = ./x\n",
        "[core] # x ]\nfsmonitor = ./x\n",
        "[core]\n\tabbrev = 7 \\\nfsmonitor = ./x\n",
        "[core]\n\tfsmonitor\\\n = ./x\n",
        "[core]abbrev = 7\n[core]fsmonitor = ./x\n",
        '[diff "x"]\n\trenames = true\n',
        "[diff.x]\n\trenames = true\n",
        "fsmonitor = ./x\n",
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
    (bare / "below").mkdir()
    assert verdict("cd hostile && git status", work=work) == "ask"
    assert verdict("cd bare && git status", work=work) == "ask"
    assert verdict("cd bare/below && git status", work=work) == "ask"
    plain = repository(tmp_path / "other")
    (plain / "sub").mkdir()
    assert verdict("cd sub && git status", work=plain) == "allow"
    assert verdict("cd nosuch; git status", work=plain) == "allow"
    outside = tmp_path / "plain"
    outside.mkdir()
    assert verdict("git diff a b", work=outside) == "ask"


def git(script: str, *, at: Path, check: bool = True) -> str:
    """Real repositories: what git itself takes as one, and what it says."""
    alone = {"PATH": os.environ["PATH"], "HOME": str(at), "GIT_CONFIG_NOSYSTEM": "1"}
    identity = "export GIT_AUTHOR_NAME=a GIT_AUTHOR_EMAIL=a@b GIT_COMMITTER_NAME=a GIT_COMMITTER_EMAIL=a@b; "
    ran = subprocess.run(
        ["bash", "-ec", identity + script], cwd=at, env=alone, check=check, capture_output=True, timeout=HANG_S
    )
    return (ran.stdout + ran.stderr).decode()


PLAIN = "git init -q . && echo a > a && git add a && git commit -qm x"
NESTED = (
    PLAIN
    + " && mkdir sub && cd sub && git init -q . && echo '* filter=e' > .gitattributes && git add . && git commit -qm s"
)
SUBMODULE = NESTED + " && cd .. && git add sub && git commit -qm sub && cd sub && "
MODULE = (
    " && cd .. && mkdir .git/modules && mv sub/.git .git/modules/sub && echo 'gitdir: ../.git/modules/sub' > sub/.git"
)
READS = ("git status", "git status -s", "git diff", "git diff --submodule=log", "git describe --always")


@pytest.mark.parametrize("command", READS)
def test_a_repository_as_git_makes_it_is_read_without_asking(command: str, tmp_path: Path) -> None:
    """Unless the command itself goes into submodules; after it has moved to another branch, and to none, too."""
    wanted = "ask" if "--submodule" in command else "allow"
    git(PLAIN, at=tmp_path)
    assert verdict(command, work=tmp_path) == wanted
    git(
        "git checkout -qb other && git config user.name x && git remote add origin https://example.org/x.git",
        at=tmp_path,
    )
    assert verdict(command, work=tmp_path) == wanted
    git("git checkout -q --detach", at=tmp_path)
    assert verdict(command, work=tmp_path) == wanted


@each("command", READS)
@each(
    "made",
    [
        PLAIN + " && git config core.fsmonitor ./x",
        PLAIN
        + " && cp -r .git other && git config -f other/config core.fsmonitor ./x && echo ../other > .git/commondir",
        PLAIN + " && mkdir -p .git/hooks && ln -s ../../x .git/hooks/post-index-change",
        PLAIN + " && mv .git other && ln -s other .git",
        PLAIN + " && mv .git other && echo 'gitdir: other' > .git",
        PLAIN + " && mv .git/objects other && ln -s ../other .git/objects",
        PLAIN + " && mv .git/config other && ln -s ../other .git/config",
        PLAIN + " && mv .git/config other && mkfifo .git/config",
        PLAIN + " && chmod a-x .git/refs",
        PLAIN + " && echo nonsense > .git/HEAD",
        PLAIN + " && git config extensions.worktreeConfig true && git config --worktree core.fsmonitor ./x",
        PLAIN + " && touch .git/config.worktree",
        PLAIN + " && touch .gitmodules",
        NESTED,
        SUBMODULE + "git config core.fsmonitor ./x",
        SUBMODULE + "git config filter.e.clean ./x",
        SUBMODULE + "git config core.fsmonitor ./x" + MODULE,
        SUBMODULE + "git config core.fsmonitor ./x" + MODULE + " && mv sub/.git other",
    ],
    meeting="each",
)
def test_a_repository_that_is_not_plain_is_asked_about(made: str, command: str, tmp_path: Path) -> None:
    """Settings from elsewhere, submodules and repositories below with settings of their own, a `.git` that git may not take."""
    (tmp_path / "work").mkdir()
    git(made, at=tmp_path / "work")
    assert verdict(command, work=tmp_path / "work") == "ask"


@each("command", READS)
@each("place", ["work", "work/sub"])
def test_a_git_folder_that_git_passes_over_is_asked_about(command: str, place: str, tmp_path: Path) -> None:
    """An empty `.git` has no settings; git takes those of the repository above."""
    git(PLAIN + " && git config core.fsmonitor ./x", at=tmp_path)
    (tmp_path / place / ".git").mkdir(parents=True)
    assert verdict(command, work=tmp_path / place) == "ask"


def test_more_files_than_are_looked_through_are_asked_about(tmp_path: Path) -> None:
    """A repository might lie among the rest."""
    work = repository(tmp_path / "work")
    for count in range(20):
        (work / f"{count}.txt").touch()
    assert find_repository(str(work), max_walked=21).doubt == ""
    assert find_repository(str(work), max_walked=20).doubt == (
        "it has more than 20 files, too many to look for other repositories among them"
    )


def test_an_environment_that_steers_git_is_asked_about(tmp_path: Path) -> None:
    """Another repository, other settings; not a name for commits."""
    work = repository(tmp_path / "work")
    assert verdict("git status", work=work, environment={"GIT_AUTHOR_NAME": "x", "GIT_PAGER": "cat"}) == "allow"
    for name in (
        "GIT_DIR",
        "GIT_CONFIG_COUNT",
        "GIT_EXTERNAL_DIFF",
        "GIT_CEILING_DIRECTORIES",
        "GIT_IMPLICIT_WORK_TREE",
    ):
        assert verdict("git status", work=work, environment={name: "x"}) == "ask"


def test_a_worktree_is_asked_about(tmp_path: Path) -> None:
    """Its settings lie in the repository that its `.git` file names, and that file came with the folder."""
    main, work = tmp_path / "main", tmp_path / "work"
    main.mkdir()
    git(PLAIN + " && git worktree add -q ../work", at=main)
    assert verdict("git status", work=work) == "ask"
    assert verdict("git status", work=main) == "allow"


@pytest.mark.parametrize(
    "made",
    [
        "git init -q --bare below",
        "git init -q --bare below/deep.git",
        "git init -q --bare other && mkdir below && mv other/HEAD below/HEAD && echo ../other > below/commondir",
        "git clone -q --mirror . below",
    ],
)
def test_a_bare_repository_below_is_another_repository(made: str, tmp_path: Path) -> None:
    """Issue 13, line 17: its settings lie in the folder itself, and git takes them where it runs there."""
    git(PLAIN, at=tmp_path)
    assert verdict("git status", work=tmp_path) == "allow"
    git(made, at=tmp_path)
    assert verdict("git status", work=tmp_path) == "ask"
    assert verdict("cd below && git status", work=tmp_path) == "ask"


def test_folders_that_look_a_little_like_a_repository_are_none(tmp_path: Path) -> None:
    """Without `HEAD`, or with it alone."""
    git(PLAIN, at=tmp_path)
    for name in ("one/objects/x", "one/refs/x", "two/HEAD", "two/objects/x"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).touch()
    assert verdict("git status", work=tmp_path) == "allow"


CANARY = "canary-of-a-secret"
SECRETS = (
    PLAIN + " && mkdir -p x y ../a ../b && for i in x y ../a ../b; do echo $i >$i/f; done && "
    f"for i in x ../a; do echo {CANARY} >$i/.env; done"
)


@pytest.mark.costly
@pytest.mark.promise("safe:judged")
@each(
    ("made", "command"),
    [
        ("true", "git diff ../a ../b"),
        ("true", "git diff -- ../a ../b"),
        ("true", "git diff --stat -p ../a ../b"),
        ("true", "git diff x ../b"),
        ("true", "git diff ../b x"),
        ("true", "git diff {work}/a {work}/b"),
        ("true", "git diff {work}/a y"),
        ("true", "git diff x ../r/y"),
        ("true", "cd x; git diff ../../a ../y"),
        ("true", "(cd x && git diff . ../../b)"),
        ("true", "bash -c 'git diff ../a ../b'"),
        ("true", "cd ../b && git diff . ../a"),
        ("git config core.repositoryformatversion 99", "git diff x y"),
        ("git config extensions.objectformat sha1", "git diff x y"),
        ("git config core.bare true", "git diff {work}/r/x {work}/r/y"),
        ("[ $(id -u) != 0 ] || chown 1234 .git", "git diff x y"),
        ("[ $(id -u) != 0 ] || chown 1234 .", "git diff x y"),
        ("rm -r .git", "git diff x y"),
        ("ln -s ../x/.env .git/packed-refs", "git log"),
        ("ln -s ../x/.env .git/shallow", "git show"),
        ("mkdir -p .git/info; ln -s ../../x/.env .git/info/grafts", "git log"),
        ("ln -s ../../../x/.env .git/objects/info/alternates", "git log"),
        ("mkdir .git/rebase-merge; ln -s ../../x/.env .git/rebase-merge/head-name", "git status"),
        ("git add -f x/.env; git commit -qm x; echo 2 >x/.env; git add x/.env; echo CANARY >>x/.env", "git diff"),
        ("git add -f x/.env; git commit -qm x; echo CANARY >>x/.env", "git diff -S x"),
        ("git add -f x/.env; git commit -qm x; echo CANARY >>x/.env", "git diff y '*'"),
        ("git add -f x/.env; git commit -qm x; echo CANARY >>x/.env", "git status -vv"),
    ],
)
def test_git_that_shows_what_it_does_not_track_is_asked_about(made: str, command: str, tmp_path: Path) -> None:
    """Issue 39: `git diff` compares any two folders outside of a repository; a file of its own that git does not understand
    it shows. git itself says that it does."""
    work = tmp_path / "work"
    (work / "r").mkdir(parents=True)
    git(f"{SECRETS} && {made}".replace("CANARY", f"{CANARY} x"), at=work / "r")
    command = command.replace("{work}", str(work))
    shown = git(command, at=work / "r", check=False)
    assert CANARY in shown or "usage:" in shown or os.getuid() != 0
    assert verdict(f"cd r; {command}", work=work) == "ask"
    assert verdict(f"cd r && {command}", work=work) == "ask"


MAYBE = (
    "if false; then cd r || exit; fi; {}",
    "case x in y) cd r || exit;; esac; {}",
    "false && {{ cd r || exit; }}; {}",
    "while false; do cd r || exit; done; {}",
)


@pytest.mark.costly
@each(
    "command",
    [
        "git log",
        "git diff x y",
        "git diff HEAD x",
        "git diff {work}/r/x y",
        "git diff -- x y",
        "cd x && git diff ../y .",
        "git diff HEAD~1 HEAD",
        "git diff main..other",
        "git show HEAD x",
        "git status && git log -p -- x",
        "git blame a",
        "git ls-files -o",
    ],
)
def test_git_that_stays_in_its_repository_is_not_asked_about(command: str, tmp_path: Path) -> None:
    """Issue 39: `cd r && git log` and `cd r; git log` both run unasked, where the workspace itself is no repository."""
    work = tmp_path / "work"
    (work / "r").mkdir(parents=True)
    git(SECRETS, at=work / "r")
    command = command.replace("{work}", str(work))
    assert CANARY not in git(command, at=work / "r", check=False)
    for line in (
        "cd r; {}",
        "cd r && {}",
        "(cd r; {})",
        "bash -c 'cd r && {}'",
        "ls && cd r && {}",
        "cd r && cd . && {}",
        "cd r || exit; {}",
        "(cd r || exit 1\n{})",
        "cd r || {{ echo 'no r' >&2; exit 1; }}; {}",
    ):
        assert verdict(line.format(command), work=work) == "allow", line
    asked = ("{}", "cd a && {}", "cd nosuch; {}", "ls && cd r; {}", "cd r & {}", "cd r || {}")
    goes_on = (
        "return",
        "false",
        "exit 1 2",
        "exit --help",
        "exit >no/x",
        "exit | cat",
        "(exit)",
        "{{ break; exit; }}",
    )
    for line in (*asked, *[f"cd r || {what}; {{}}" for what in goes_on], "(cd r || exit); {}", *MAYBE):
        assert verdict(line.format(command), work=work) == "ask", line


def test_git_that_reads_takes_no_lock(tmp_path: Path) -> None:
    """`git describe --dirty` writes the index whatever is said, and `git status` where locks are asked for."""
    git(PLAIN, at=tmp_path)
    assert verdict("GIT_OPTIONAL_LOCKS=0 git status", work=tmp_path) == "allow"
    for command in ("git describe --dirty", "git describe --always --dirty=x", "GIT_OPTIONAL_LOCKS=1 git status"):
        assert verdict(command, work=tmp_path) == "ask"
    assert command_environment({}, temporary=None, hidden=frozenset())["GIT_OPTIONAL_LOCKS"] == "0"


@pytest.mark.promise("safe:judged")
def test_a_tracked_secret_is_asked_about_while_it_holds_something_new(tmp_path: Path) -> None:
    """What was committed or staged, git shows. Templates of variables are often tracked, and then filled in."""
    git(
        PLAIN + " && mkdir x && echo 1 >.env.test && echo 1 >x/f && git add .env.test x && git commit -qm x",
        at=tmp_path,
    )
    content = (tmp_path / ".env.test").stat()
    os.utime(tmp_path / ".env.test", ns=(content.st_atime_ns, content.st_mtime_ns - 10**9))
    git("git update-index --refresh", at=tmp_path)
    (tmp_path / ".env").write_text("KEY=1")
    for command in ("git diff", "git diff HEAD", "git status -vv"):
        assert verdict(command, work=tmp_path) == "allow"
    (tmp_path / ".env.test").write_text("KEY=1")
    for command in ("git diff", "git diff HEAD", "git diff HEAD x .", "git status -vv", "git diff -S x"):
        assert verdict(command, work=tmp_path) == "ask"
    for command in (
        "git diff x",
        "git diff -- x",
        "git diff --cached",
        "git diff HEAD~1..HEAD",
        "git status",
        "git log -p",
    ):
        assert verdict(command, work=tmp_path) == "allow"
    git("git update-index --index-version 4", at=tmp_path)
    assert verdict("git diff", work=tmp_path) == "ask"


@pytest.mark.promise("safe:judged")
def test_a_change_outside_of_the_workspace_is_asked_about(tmp_path: Path) -> None:
    """The workspace is a folder of a repository: `git diff` alone would show the other folders, too."""
    git(PLAIN + " && mkdir part && echo 1 >part/f && git add part && git commit -qm x", at=tmp_path)
    part = tmp_path / "part"
    for command in ("git diff", "git diff HEAD", "git status -vv .", "git diff -S f"):
        assert verdict(command, work=part) == "ask"
    for command in (
        "git diff .",
        "git diff -- f",
        "git diff HEAD -- f",
        "git diff --cached",
        "git status",
        "git log -p",
    ):
        assert verdict(command, work=part) == "allow"


def test_a_repository_beyond_a_mount_is_none() -> None:
    """git stops there (git(1), `GIT_DISCOVERY_ACROSS_FILESYSTEM`)."""
    assert "beyond a mount" in find_repository("/proc/self").doubt
