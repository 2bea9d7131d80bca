"""git in worktrees, packages and submodules, and git where it would open an editor: with a real git in each sandbox."""

import asyncio
import os
import shutil
import subprocess
import tempfile
from collections.abc import Generator
from pathlib import Path

import pytest

from sandboxes import CONFINING, sandbox_called
from turnwise.errors import ToolFault
from turnwise.tools.workspace.shell import BashArguments, Shell
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


@pytest.fixture(params=("bubblewrap", "landlock"), name="kind")
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


@pytest.mark.costly
async def test_an_editor_that_a_command_names_never_waits(conflict: Path) -> None:
    """Proves: without our variables, with an editor of the command's own that is not there, and in Vim, git ends at once, keeps
    a message that is there, and names the options; Vim that a script drives goes on. Found: Vim waited to the deadline."""
    shell = shell_in(conflict, kind=CONFINING[0])
    vim = ("vim",) if shutil.which("vim") else ()
    for command in (
        "VISUAL=x EDITOR=y git commit --allow-empty",
        "env -u GIT_EDITOR git commit --allow-empty",
        f'unset GIT_EDITOR; VISUAL="{WAITS}" EDITOR="{WAITS}" git commit --allow-empty',
        "unset GIT_EDITOR GIT_SEQUENCE_EDITOR; git rebase -i HEAD~1",
        "GIT_EDITOR=no-such-editor git commit --allow-empty",
        *[f"GIT_EDITOR={one} git commit --allow-empty" for one in vim],
        *[f"GIT_SEQUENCE_EDITOR='{one} +2' git rebase -i HEAD~1" for one in vim],
    ):
        told = await run(shell, command)
        assert "[exit code " in told and "timed out" not in told, (command, told)
        assert all(word in told for word in ("-m", "-F", "--no-edit", "nobody is there")), (command, told)
        assert not (conflict / ".git" / "rebase-merge").exists(), command
    for command in ("unset GIT_EDITOR; git commit --amend", *[f"GIT_EDITOR={one} git commit --amend" for one in vim]):
        told = await run(shell, f"{command} && git log -1 --format=last:%s")
        assert "last:side\n" in told and "nobody is there" not in told, (command, told)
    for command in [f"{one} -c 'normal ohello' -c wq k" for one in vim] + [
        "ex k <<< $'a\\nhello\\n.\\nwq'" for _ in vim
    ]:
        told = await run(shell, f"{command}; echo; cat k; git checkout -q k")
        assert told.endswith("\nside\nhello\n"), (command, told)


@pytest.mark.costly
async def test_an_editor_of_git_never_waits(conflict: Path) -> None:
    """Proves: a message that is there is kept, also past `core.editor` and `-c`; one that would have to be written, a todo list
    and a patch are an error that names the options, and no rebase is left half done. Found: each waited to the deadline."""
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


CHANGES = (
    "git config core.fsmonitor ./evil; echo '[core] pager = ./evil' >> {git}/config; mv {git}/config {git}/other",
    "echo ./evil > {git}/hooks/pre-commit; mv {git}/hooks {git}/gone; mkdir {git}/hooks; echo ./evil > {git}/hooks/pre-commit",
    "rm -rf {git}/info; mkdir {git}/info; echo '* filter=evil' > {git}/info/attributes",
    "mv {git}/objects/info {git}/objects/gone; mkdir {git}/objects/info; echo /evil > {git}/objects/info/alternates",
    "echo /evil > {git}/commondir; echo '[core]' > {git}/config.worktree",
    "for one in $(find {git}/ -name commondir -o -name gitdir); do rm -f $one; echo /evil > $one; done",
    "for one in $(find {git}/modules -name config -o -name pre-commit); do mv $one $one.old; echo evil > $one; done",
    "mv {git}/modules {git}/moved && cp -r {git}/moved {git}/modules && for one in $(find {git}/modules -name config); do"
    " echo evil > $one; done",
)
LINK = "mv {git}/modules {git}/moved && ln -s {target} {git}/modules"


def executed(git: Path) -> dict[str, str]:
    """What a git of the user's would execute or be led by, in a repository's folder, its submodules and its working trees."""
    names = {"config", "config.worktree", "commondir", "gitdir", "alternates", "attributes", "pre-commit"}
    found = [path for path in git.rglob("*") if path.name in names and not path.is_dir()]
    kept = [path for path in found if not {"moved", "gone", "old"} & set(path.parts)]
    return {str(path.relative_to(git)): path.read_text() for path in kept}


def project(base: Path) -> Path:
    """A repository with a package, a submodule with one of its own, two working trees and a hook that a commit runs."""
    git(
        "git init -q inner && cd inner && echo 1 > k && git add . && git commit -qm i && cd .."
        " && git init -q sub && cd sub && echo 1 > k && git add . && git submodule -q add ../inner && git commit -qm s && cd .."
        " && git init -q m && cd m && mkdir -p packages/a && echo 1 > packages/a/k && echo 1 > k && git add ."
        " && git submodule -q add ../sub && git submodule -q update --init --recursive && git commit -qm m"
        " && git worktree add -q ../one && git worktree add -q ../two && git worktree add -q trees/three"
        " && echo 'exit 0' > .git/hooks/pre-commit && chmod +x .git/hooks/pre-commit",
        at=base,
    )
    return base / "m"


@pytest.mark.costly
async def test_git_commits_in_every_part_of_a_project(kind: str, base: Path) -> None:
    """Proves: `git add` and `git commit` work in a working tree, a package and a (nested) submodule, and what git executes stays,
    whatever the command tries. Found: all but the first failed with 'Read-only file system' and no word of the sandbox."""
    main = project(base)
    before = executed(main / ".git")
    elsewhere = base / "elsewhere"
    (elsewhere / "sub").mkdir(parents=True)
    (elsewhere / "inner").mkdir()
    for number, place in enumerate(("m", "one", "m/trees/three", "m/packages/a", "m/sub", "m/sub/inner")):
        root = base / place
        common = Path(git("git rev-parse --path-format=absolute --git-common-dir", at=root))
        shell = shell_in(root, kind=kind)
        told = await run(
            shell,
            f"echo two >> k; git add k && git commit -qm two && git checkout -q -b n{number} && echo 3 >> k && git commit -qam 3"
            " && git stash list && git reset -q --hard HEAD~1 && git log --format=%s -1",
        )
        assert told == "two\n" and git("git log --format=%s -1", at=root) == "two", (place, told)
        for change in CHANGES if place in ("m", "one", "m/sub") else CHANGES[:2]:
            told = await run(shell, change.format(git=common) + "; true")
            assert executed(main / ".git") == before, (place, change, told)
            if (common / "moved").exists():
                git(f"rm -rf {common}/modules && mv {common}/moved {common}/modules", at=root)
        told = await run(shell, LINK.format(git=common, target=elsewhere))
        written = [path for path in elsewhere.rglob("*") if path.is_file()]
        assert not (common / "modules").is_symlink() and not written, (place, told)
        if (common / "moved").exists():
            assert "a command had put it where a folder of git's was" in told
            git(f"mv {common}/moved {common}/modules", at=root)


@pytest.mark.costly
async def test_git_collects_garbage_without_what_is_read_only(kind: str, base: Path) -> None:
    """Proves: `git gc`, `git repack` and `git maintenance run` say nothing and write nothing into `info` and `objects/info`, and
    no commit begins one; what cannot be done names the sandbox and the option. Found: they failed in bubblewrap."""
    main = project(base)
    git("git config --global gc.auto 1", at=base)
    for number, place in enumerate(("m", "one", "m/packages/a", "m/sub", "m/sub/inner")):
        root, branch = base / place, f"gone{number}"
        common = Path(git("git rev-parse --path-format=absolute --git-common-dir", at=root))
        kept = {path for name in ("info", "objects/info") for path in (common / name).rglob("*")}
        shell = shell_in(root, kind=kind)
        traced = "GIT_TRACE=1 git commit -qam x 2>&1 | grep -cwE 'gc|maintenance'"
        assert await run(shell, f"echo x >> k; {traced}; git branch -q {branch}") == "0\n", place
        upkeep = f"git repack -ad && git gc && git maintenance run && git pack-refs --all && git branch -qD {branch}"
        told = await run(shell, upkeep)
        branches = git("git branch", at=root)
        if kind == "landlock" and place == "one":
            assert (
                "[the sandbox lets a command write in the workspace, " in told and "Under Landlock git can" in told
            ), told
            assert f"objects, refs and logs of `{common}`" in told and "bubblewrap" in told and "--no-sandbox" in told
            assert "Under Landlock git can" in await run(shell, f"git branch -qD {branch}") and branch in branches
        elif kind == "landlock":
            assert told == "" and branch not in branches, (place, told)
        else:  # a branch's section in `config` stays, and git says so
            assert "the sandbox keeps what git executes" in told and branch not in branches, (place, told)
            assert "what else git says it did is done" in told, told
            refused = await run(shell, "git commit-graph write")
            assert "the sandbox keeps what git executes" in refused and "--no-sandbox" in refused, refused
        assert {path for name in ("info", "objects/info") for path in (common / name).rglob("*")} == kept
        assert git("git fsck", at=root) == "" and git("git log -1 --format=%s", at=root) == "x"
    assert not list((main / ".git").rglob("*.lock")) + list((main / ".git").rglob("gc.*"))
    git("git init -q --bare up.git", at=base)
    told = await run(shell_in(main, kind=kind), "git push -q ../up.git HEAD:refs/heads/x")
    assert "[the sandbox lets a command write in the workspace and $TMPDIR only]" in told, told


@pytest.mark.costly
@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a folder to another user")
async def test_a_repository_of_another_user_is_not_opened(kind: str, base: Path) -> None:
    """Proves: where git's folder, the repository around it, a pointer or a submodule's folder belongs to somebody else, nothing
    of it can be written, and the result says whose it is."""
    main = project(base)
    git("git config --global safe.directory '*'", at=base)
    nested = main / ".git/modules/sub/modules/inner"
    for place, others in (
        ("one", main / ".git"),
        ("one", main / ".git/worktrees/one"),
        ("one", base / "one/.git"),
        ("m/packages/a", main / ".git"),
        ("m/sub", main / ".git/modules/sub"),
        ("m/sub", nested),
        ("m/sub/inner", nested),
    ):
        head = git("git rev-parse HEAD", at=base / place)
        os.chown(others, 65534, 65534)
        told = await run(shell_in(base / place, kind=kind), "echo x >> k; git commit -qam x")
        assert "the sandbox did not let git write" in told and "it is another user's" in told, (place, others, told)
        assert f"`{others}`" in told and "--no-sandbox" in told
        assert git("git rev-parse HEAD", at=base / place) == head and not list((main / ".git").rglob("*.lock"))
        os.chown(others, 0, 0)
        told = await run(shell_in(base / place, kind=kind), "git commit -qam x; echo $?")
        assert told == "0\n", (place, told)


@pytest.mark.costly
async def test_two_working_trees_at_once_leave_each_other_alone(kind: str, base: Path) -> None:
    """Proves: both commit at the same time into one store of objects; neither writes in the other's folder or that of the
    main working tree."""
    main = project(base)
    one, two = (shell_in(base / name, kind=kind) for name in ("one", "two"))
    many = "for n in 1 2 3 4 5; do echo $n >> k; git add k && git commit -qm $n || echo failed; done"
    assert await asyncio.gather(run(one, many), run(two, many)) == ["", ""]
    assert [git(f"git log --format=%s -2 {name}", at=main) for name in ("one", "two")] == ["5\n4", "5\n4"]
    # a submodule that a command makes has no part of its own opened, and the working tree stays as it was
    assert "failed" not in await run(one, "git submodule -q update --init || echo failed")
    assert await run(one, many) == ""
    told = await run(one, "git worktree add -q ../four 2>&1; true")
    assert "the sandbox lets a command write in the workspace" in told, told
    heads = {
        path: path.read_bytes() for path in (main / ".git/HEAD", main / ".git/index", main / ".git/worktrees/two/HEAD")
    }
    for path in heads:
        await run(one, f"echo evil > {path}; rm -f {path}; mv {path} {path}.old; echo evil > {path}")
    assert heads == {path: path.read_bytes() for path in heads}


@pytest.mark.costly
async def test_a_pointer_that_nothing_answers_opens_no_folder(kind: str, base: Path) -> None:
    """Proves: a forged `.git` file, `commondir`, `gitdir` or `core.worktree`, one that is newer than the session, and a folder of
    another user's open nothing; the result names the sandbox, the reason and the option."""
    main = project(base)
    shell = shell_in(base / "one", kind=kind)
    commit = "echo x >> k; git add k; git commit -qm x; echo {0}"

    async def refused(shell: Shell, why: str) -> None:
        head = (main / ".git" / "HEAD").read_bytes()
        told = await run(shell, commit)
        assert "the sandbox did not let git write" in told and "--no-sandbox" in told and why in told, told
        assert not list((main / ".git").rglob("*.lock")) and (main / ".git" / "HEAD").read_bytes() == head

    own = main / ".git" / "worktrees" / "one"
    for name, forged, why in (
        ("commondir", str(base / "sub" / ".git"), "its `commondir` does not name the repository"),
        ("gitdir", str(base / "two" / ".git"), "its `gitdir` does not name"),
    ):
        kept = (own / name).read_text()
        (own / name).write_text(forged + "\n")
        await refused(shell, why)
        (own / name).write_text(kept)
    assert "failed" not in await run(shell, "git commit --allow-empty -qm fine || echo failed")
    (base / "forged").mkdir()
    late = shell_in(base / "forged", kind=kind)
    for target in (own, main / ".git" / "modules" / "sub", main / ".git"):
        (base / "forged" / ".git").write_text(f"gitdir: {target}\n")
        await refused(shell_in(base / "forged", kind=kind), "does not name")
    git("rm .git && git -C ../m worktree add -q --force ../forged new -b new || true", at=base / "forged")
    git("rm -rf forged && cd m && git worktree add -q ../forged", at=base)
    await refused(late, "it was not there when the session began")
