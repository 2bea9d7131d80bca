"""Which sandbox is chosen, what a command sees of the environment, and what is covered, in which order."""

import gc
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sandboxes import EVERY, WALLS, sandbox_called
from turnwise.base import keeper
from turnwise.base.programs import compiled_script
from turnwise.tools.sandbox import (
    CannotGuard,
    GitGuard,
    RestoredFiles,
    Scratch,
    command_environment,
    find_sandbox,
    is_secret,
    landlock_rules,
)
from turnwise.tools.sandbox.bubblewrap import Mount, plan_mounts
from turnwise.tools.sandbox.environment import with_git_settings
from turnwise.tools.sandbox.landlock_rules import landlock_version
from turnwise.tools.sandbox.sandbox_choice import secret_paths
from turnwise.tools.sandbox.sandbox_types import SandboxOrder
from turnwise.tools.sandbox.seccomp import command_filter
from turnwise.tools.workspace.shell import BashArguments, Shell
from waits import HANG_S


def test_best_one_is_found_once() -> None:
    """bubblewrap before Landlock before none; the same value for the whole process."""
    assert find_sandbox() is find_sandbox()
    kinds = [name for name in ("bubblewrap", "landlock", "none") if is_there(name)]
    assert find_sandbox().kind == kinds[0]


def is_there(name: str) -> bool:
    try:
        sandbox_called(name)
    except pytest.skip.Exception:
        return False
    return True


@pytest.mark.parametrize("script", ["exit 1", "echo 'bwrap: setting up uid map: Permission denied' >&2; exit 1"])
def test_bubblewrap_that_does_not_work_is_not_chosen(tmp_path: Path, script: str) -> None:
    """Installed says little: where namespaces are forbidden, it fails, and the next kind is taken and said."""
    program = tmp_path / "bwrap"
    program.write_text(f"#!/bin/sh\n{script}\n")
    program.chmod(0o755)
    code = "from turnwise.tools.sandbox import find_sandbox; print(find_sandbox().kind)"
    env = {**os.environ, "PATH": f"{tmp_path}:/usr/bin:/bin"}
    shown = subprocess.run([sys.executable, "-c", code], env=env, capture_output=True, text=True, check=True).stdout
    assert shown.strip() == ("landlock" if landlock_version() else "none")


def test_what_is_said_before_the_first_command() -> None:
    """Every kind in one line with the folder; none of them boasts."""
    folder = Path("/w")
    assert sandbox_called("none").said(workspace=folder) == (
        "commands run WITHOUT a sandbox: they can change every file of yours and use the network"
    )
    unasked = msgspec.structs.replace(sandbox_called("none"), why="nothing else works here")
    assert unasked.said(workspace=folder).endswith("use the network (nothing else works here)")
    if is_there("bubblewrap"):
        sandbox = msgspec.structs.replace(sandbox_called("bubblewrap"), pipes=True, sockets=True)
        assert (
            sandbox.said(workspace=folder) == "commands run in bubblewrap: they can write in /w only, without network"
        )
        assert sandbox.said(workspace=folder, network=True).endswith("with network")
        less = msgspec.structs.replace(sandbox, pipes=False, sockets=False)
        assert less.said(workspace=folder).endswith(
            "without network (named pipes outside and what is mounted later can be written;"
            " sockets of other programs can be reached)"
        )


@pytest.mark.costly
@pytest.mark.parametrize("name", EVERY)
def test_descriptors_are_all_that_is_open_for_a_command(name: str, tmp_path: Path) -> None:
    """What `wrap` opens is named in its answer, and closing it leaves nothing behind."""
    sandbox = sandbox_called(name)
    scratch = Scratch()
    assert scratch.temporary.is_dir()
    gc.collect()  # what an earlier test left may close at any moment
    before = open_descriptors()
    wrapped = sandbox.wrap(["/bin/true"], workspace=tmp_path, scratch=scratch)
    opened = set(wrapped.descriptors)
    assert open_descriptors() - before == opened - before and open_descriptors() >= opened
    for descriptor in wrapped.descriptors:
        os.close(descriptor)
    assert open_descriptors() <= before - opened


def open_descriptors() -> set[int]:
    """Without the one that reads the folder, which is closed by then."""
    return {number for number in [int(path.name) for path in Path("/proc/self/fd").iterdir()] if is_open(number)}


def is_open(descriptor: int) -> bool:
    try:
        os.fstat(descriptor)
    except OSError:
        return False
    return True


SECRETS = """OPENAI_API_KEY AWS_SECRET_ACCESS_KEY AWS_SESSION_TOKEN GITHUB_TOKEN GH_PAT DB_PASSWORD PGPASSWORD MYSQL_PWD
SSH_AUTH_SOCK SOME_CREDENTIALS GOOGLE_APPLICATION_CREDENTIALS SECRET_SAUCE NPM_TOKEN SENTRY_DSN DATABASE_URL
DBUS_SESSION_BUS_ADDRESS DOCKER_HOST HTTPS_PROXY BASH_ENV LD_PRELOAD PROMPT_COMMAND""".split()


def test_environment_is_an_allow_list(tmp_path: Path) -> None:
    """Secrets are not among the usual names; names of the user's own choice are let through, but never one of a key."""
    outer = dict.fromkeys((*SECRETS, "PATH", "LC_TIME", "MY_SETTING", "MY_TOKEN", "LC_KEY", "HIDDEN"), "value")
    also = frozenset({"MY_SETTING", "MY_TOKEN", "HIDDEN"})
    seen = command_environment({**outer}, temporary=tmp_path, also=also, hidden=frozenset({"HIDDEN"}))
    assert seen.pop("GIT_EDITOR") == seen.pop("GIT_SEQUENCE_EDITOR")
    assert "turnwise_editor" in seen.pop("TURNWISE_EDITOR") and "turnwise_editor" in seen.pop("VIMINIT")
    assert seen == {
        "PATH": "value",
        "LC_TIME": "value",
        "MY_SETTING": "value",
        "TMPDIR": str(tmp_path),
        "XDG_CACHE_HOME": f"{tmp_path}/.cache",
        "npm_config_cache": f"{tmp_path}/.cache/npm",
        "PAGER": "cat",
        "GIT_PAGER": "cat",
        "GIT_TERMINAL_PROMPT": "0",
        "GIT_OPTIONAL_LOCKS": "0",
        "TERM": "dumb",
    }


def test_settings_for_git_stand_behind_those_of_the_user() -> None:
    """What the user lets through keeps its numbers; without a sandbox, what git may write stays as the user set it."""
    users = {"GIT_CONFIG_COUNT": "1", "GIT_CONFIG_KEY_0": "user.name", "GIT_CONFIG_VALUE_0": "n"}
    seen = with_git_settings(users, confined=False)
    pairs = [(seen[f"GIT_CONFIG_KEY_{n}"], seen[f"GIT_CONFIG_VALUE_{n}"]) for n in range(int(seen["GIT_CONFIG_COUNT"]))]
    assert pairs[0] == ("user.name", "n") and [name for name, _ in pairs[1:3]] == ["core.editor", "sequence.editor"]
    assert pairs[3:] == [("gc.auto", "0"), ("maintenance.auto", "false")] and users["GIT_CONFIG_COUNT"] == "1"
    alone, confined = (int(with_git_settings({}, confined=one)["GIT_CONFIG_COUNT"]) for one in (False, True))
    assert (
        alone == 4 < confined
        and with_git_settings({"GIT_CONFIG_COUNT": "-1"}, confined=False)["GIT_CONFIG_COUNT"] == "4"
    )


@given(word=st.sampled_from(["KEY", "TOKEN", "SECRET", "PASSWORD"]), before=st.text("ABZ_09", min_size=1, max_size=8))
def test_names_of_secrets_are_known(word: str, before: str) -> None:
    """Whatever stands before the word, in either case."""
    assert is_secret(f"{before}_{word}") and is_secret(f"{before}_{word}".lower())


def test_secret_paths_are_real_and_outermost(tmp_path: Path) -> None:
    """Links resolved, absent ones left out, nothing twice."""
    (tmp_path / ".ssh").mkdir()
    (tmp_path / "real").mkdir()
    (tmp_path / ".aws").symlink_to("real")
    (tmp_path / ".ssh" / "journal.db").touch()
    own = [tmp_path / ".ssh" / "journal.db", tmp_path / "absent"]
    found = [path for path in secret_paths(home=tmp_path, own=own) if path.is_relative_to(tmp_path)]
    assert found == [tmp_path / ".ssh", tmp_path / "real"]


def test_inner_mounts_come_after_outer_ones(tmp_path: Path) -> None:
    """A workspace in a covered folder can be written, a secret in the workspace is covered, git's programs are read-only."""
    home, workspace = tmp_path, tmp_path / ".config" / "work"
    for folder in (workspace / "private", workspace / ".git" / "hooks", tmp_path / "scratch"):
        folder.mkdir(parents=True)
    (workspace / ".git" / "config").touch()
    order = SandboxOrder(
        argv=("/bin/true",),
        env={},
        workspace=workspace,
        temporary=tmp_path / "scratch",
        empty=tmp_path / "empty",
        hidden=(home / ".config", workspace / "private"),
    )
    assert [mount for mount in plan_mounts(order) if mount.at.is_relative_to(home)] == [
        Mount(home / ".config", "cover"),
        Mount(workspace, "write", workspace),
        Mount(workspace / "private", "cover"),
        Mount(workspace / ".git", "write", workspace / ".git"),
        Mount(workspace / ".git" / "config", "read", workspace / ".git" / "config"),
        Mount(workspace / ".git" / "hooks", "read", workspace / ".git" / "hooks"),
    ]


@pytest.mark.parametrize("machine", ["x86_64", "aarch64"])
@pytest.mark.parametrize("truncation", [True, False])
def test_filters_jump_within_themselves(machine: str, truncation: bool) -> None:
    """Every path through the program ends in a return, on both architectures: the kernel would refuse any other."""
    program = command_filter(ip_sockets=True, truncation=truncation, machine=machine)
    steps = [(program[at], program[at + 2], program[at + 3]) for at in range(0, len(program), 8)]
    assert steps[-1][0] == 0x06 and len(steps) < 4096
    for place, (code, if_true, if_false) in enumerate(steps):
        if code & 0x07 == 0x05:
            assert place + 1 + max(if_true, if_false) < len(steps)


NAMES = st.sampled_from(["config", "commondir", "hooks/pre-commit", "hooks/other", "config.worktree"])


@given(before=st.dictionaries(NAMES, st.binary(max_size=9)), after=st.dictionaries(NAMES, st.binary(max_size=2000)))
def test_guard_puts_back_what_git_executes(
    tmp_path_factory: pytest.TempPathFactory, before: dict[str, bytes], after: dict[str, bytes]
) -> None:
    """Whatever was made, changed or removed is named and as before; where nothing was, nothing is done."""
    git = tmp_path_factory.mktemp("root") / ".git"
    (git / "hooks").mkdir(parents=True)
    write_all(git, before)
    guard = GitGuard(git.parent)
    for name in before:
        (git / name).unlink()
    write_all(git, after)
    changed = {f".git/{name}" for name in {*before, *after} if before.get(name) != after.get(name)}
    done = guard.put_back()
    assert (set(done.changed), done.told) == (changed, ())
    assert {str(path.relative_to(git)): path.read_bytes() for path in git.rglob("*") if path.is_file()} == before
    assert guard.put_back() == RestoredFiles()


def write_all(git: Path, files: dict[str, bytes]) -> None:
    for name, content in files.items():
        (git / name).write_bytes(content)


def test_guard_leaves_alone_what_is_no_repository(tmp_path: Path) -> None:
    """A folder without `.git`, and one whose `.git` leads out of it, where no command writes."""
    assert GitGuard(tmp_path).put_back() == RestoredFiles()
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "root").mkdir()
    (tmp_path / "root" / ".git").symlink_to("../elsewhere")
    guard = GitGuard(tmp_path / "root")
    (tmp_path / "elsewhere" / "config").touch()
    assert guard.put_back() == RestoredFiles() and (tmp_path / "elsewhere" / "config").exists()


@pytest.mark.parametrize("lead", ["link", "gitdir: .bare", "gitdir: .bare/worktrees/main"])
def test_guard_goes_where_git_goes_in_the_workspace(tmp_path: Path, lead: str) -> None:
    """A link, a file `gitdir:` and the shared settings of worktrees lead to a repository that a command can write."""
    bare = tmp_path / ".bare"
    (bare / "worktrees" / "main").mkdir(parents=True)
    (bare / "worktrees" / "main" / "commondir").write_text("../..\n")
    (bare / "config").write_text("as before")
    if lead == "link":
        (tmp_path / ".git").symlink_to(".bare")
    else:
        (tmp_path / ".git").write_text(f"{lead}\n")
    guard = GitGuard(tmp_path)
    (bare / "config").write_text("hostile")
    assert guard.put_back() == RestoredFiles((".bare/config",))
    assert (bare / "config").read_text() == "as before"


def test_guard_keeps_the_rest_where_the_hooks_are_many(tmp_path: Path) -> None:
    """Each part is remembered by itself; where the hooks are too many, and no mount keeps them, no command runs."""
    git = tmp_path / ".git"
    (git / "hooks" / "lib").mkdir(parents=True)
    (git / "hooks" / "lib" / "common.sh").write_text("as before")
    (git / "config").write_text("as before")
    for count in range(300):
        (git / "hooks" / f"{count}.sample").touch()
    guard = GitGuard(tmp_path)
    for path in (git / "commondir", git / "config", git / "hooks" / "lib" / "common.sh", git / "hooks" / "1.sample"):
        path.write_text("hostile")
    put_back = {".git/commondir", ".git/config", ".git/hooks/lib/common.sh", ".git/hooks/1.sample"}
    assert set(guard.put_back().changed) == put_back and not (git / "commondir").exists()
    for count in range(2000):
        (git / "hooks" / f"{count}.sample").touch()
    with pytest.raises(CannotGuard, match="hooks` cannot be put back"):
        GitGuard(tmp_path)
    mounted = GitGuard(tmp_path, mounted=True)
    (git / "commondir").write_text("hostile")
    assert mounted.put_back() == RestoredFiles((".git/commondir",)) and not (git / "commondir").exists()


def test_guard_puts_back_hooks_among_which_a_command_made_too_many(tmp_path: Path) -> None:
    """What nobody can look through is removed; what was there before is there again."""
    guard = a_repository(tmp_path)
    for count in range(4100):
        (tmp_path / ".git" / "hooks" / str(count)).touch()
    assert guard.put_back() == RestoredFiles((".git/hooks",))
    assert list((tmp_path / ".git" / "hooks").iterdir()) == []


@pytest.mark.parametrize("name", ["config", "commondir"])
def test_guard_refuses_what_it_cannot_remember(tmp_path: Path, name: str) -> None:
    """Of a file that is too large nothing is known afterwards."""
    a_repository(tmp_path)
    with (tmp_path / ".git" / name).open("wb") as file:
        file.truncate(17 * 1024 * 1024)
    with pytest.raises(CannotGuard):
        GitGuard(tmp_path)


def a_repository(root: Path) -> GitGuard:
    (root / ".git" / "hooks").mkdir(parents=True)
    (root / ".git" / "config").write_text("as before")
    return GitGuard(root)


def put_nothing(git: Path) -> None:
    assert not git.exists()


def put_link(git: Path) -> None:
    git.symlink_to("moved")


def put_file(git: Path) -> None:
    git.write_text("gitdir: moved")


def put_folder(git: Path) -> None:
    git.mkdir()
    (git / "config").write_text("hostile")


@pytest.mark.parametrize("put", [put_nothing, put_link, put_file, put_folder])
def test_guard_moves_a_repository_back(tmp_path: Path, put: Callable[[Path], None]) -> None:
    """With what it executes as before; what was put in its place is kept under a name that is told."""
    guard = a_repository(tmp_path)
    git, moved, aside = tmp_path / ".git", tmp_path / "below" / "moved", tmp_path / ".git-made-by-a-command-1"
    moved.parent.mkdir()
    git.rename(moved)
    (moved / "config").write_text("hostile")
    put(git)
    told = ".git: the repository had been moved to `below/moved`, and was moved back."
    if put is not put_nothing:
        told += f" What the command had put in its place is `{aside.name}` now."
    assert guard.put_back() == RestoredFiles((".git/config",), (told,))
    assert git.is_dir() and not git.is_symlink() and (git / "config").read_text() == "as before"
    assert os.path.lexists(aside) is (put is not put_nothing) and not moved.exists()
    assert guard.put_back() == RestoredFiles()


def test_guard_moves_a_repository_back_out_of_the_false_one(tmp_path: Path) -> None:
    """Also where the name for what is moved aside is taken."""
    guard = a_repository(tmp_path)
    (tmp_path / ".git").rename(tmp_path / "moved")
    (tmp_path / ".git").mkdir()
    (tmp_path / "moved").rename(tmp_path / ".git" / "moved")
    (tmp_path / ".git-made-by-a-command-1").touch()
    told = (
        ".git: the repository had been moved to `.git-made-by-a-command-2/moved`, and was moved back. "
        "What the command had put in its place is `.git-made-by-a-command-2` now."
    )
    assert guard.put_back() == RestoredFiles(told=(told,))
    assert (tmp_path / ".git" / "config").read_text() == "as before"


@pytest.mark.parametrize("put", [put_nothing, put_link, put_file, put_folder])
def test_guard_claims_nothing_of_a_repository_that_is_gone(
    tmp_path: Path, tmp_path_factory: pytest.TempPathFactory, put: Callable[[Path], None]
) -> None:
    """It says so; no link or file leads git elsewhere, and another folder at least executes what was executed before."""
    guard = a_repository(tmp_path)
    git, aside = tmp_path / ".git", tmp_path / ".git-made-by-a-command-1"
    git.rename(tmp_path_factory.mktemp("away") / "git")
    put(git)
    done = guard.put_back()
    look = "Tell the user, who should look at it before git is used there again."
    if put is put_folder:
        gone = "it is another folder now, and the repository that was there is nowhere in the workspace."
        assert done == RestoredFiles((".git/config", ".git/hooks"), (f".git: {gone} {look}",))
        assert (git / "config").read_text() == "as before"
    else:
        kept = "" if put is put_nothing else f" What the command had put in its place is `{aside.name}` now."
        assert done == RestoredFiles(
            told=(f".git: the repository is gone, and nowhere in the workspace.{kept} {look}",)
        )
        assert not os.path.lexists(git) and os.path.lexists(aside) is (put is not put_nothing)


def test_guard_puts_back_a_file_that_leads_to_the_repository(tmp_path: Path) -> None:
    """As worktrees have one: it says which settings git takes."""
    (tmp_path / ".git").write_text("gitdir: /r/.git/worktrees/w")
    guard = GitGuard(tmp_path)
    (tmp_path / ".git").write_text("gitdir: hostile")
    told = (
        ".git: put back as before; it says where the repository lies. "
        "What the command had put in its place is `.git-made-by-a-command-1` now."
    )
    assert guard.put_back() == RestoredFiles(told=(told,))
    assert (tmp_path / ".git").read_text() == "gitdir: /r/.git/worktrees/w"


def test_guard_tells_of_a_repository_that_a_command_made(tmp_path: Path) -> None:
    """Its settings are the command's own; it is left as it is."""
    guard = GitGuard(tmp_path)
    put_folder(tmp_path / ".git")
    look = "Tell the user, who should look at it before git is used there again."
    assert guard.put_back() == RestoredFiles(told=(f".git: the command made this repository. {look}",))
    assert (tmp_path / ".git" / "config").read_text() == "hostile"


@pytest.mark.parametrize("path", [keeper.__file__, landlock_rules.__file__], ids=["keeper", "rules in a bubblewrap"])
def test_what_starts_a_command_imports_little_and_cannot_be_changed(path: str) -> None:
    """Each command waits for it: to import what is not needed, and to compile it anew, took half of its start. All commands share
    the compiled text, so whoever holds its descriptor must not write there."""
    words, descriptor = compiled_script(path)
    try:
        argv = [words[0], "-X", "importtime", *words[1:]]
        told = subprocess.run(
            argv, capture_output=True, text=True, timeout=HANG_S, check=False, pass_fds=[descriptor]
        ).stderr
        for change in (lambda: os.write(descriptor, b"x"), lambda: os.truncate(descriptor, 0)):
            with pytest.raises(PermissionError):
                change()
    finally:
        os.close(descriptor)
    lines = told.splitlines()
    imported = {line.rpartition("|")[2].strip() for line in lines if line.startswith("import time:")}
    unneeded = {"collections", "contextlib", "enum", "functools", "signal", "tokenize", "typing"}
    assert "ctypes" in imported and not imported & unneeded
    assert "_main() missing" in lines[-1]  # all of it was read


@pytest.mark.parametrize("name", WALLS)
async def test_a_command_ignores_no_signal_that_our_own_interpreters_do(name: str, tmp_path: Path) -> None:
    """Python ignores two at its start, and what is ignored stays so: `yes | head` would then end with an error."""
    shell = Shell(tmp_path, sandbox=sandbox_called(name))
    told = await shell.run(BashArguments(command="grep SigIgn /proc/self/status"))
    assert int(told.split()[1], 16) == 0, told


def test_the_guard_tells_every_name_in_one_line_of_text(tmp_path: Path) -> None:
    """Proves: a hook's name that is no text, or has a line end, neither forges a line nor breaks the result."""
    guard = a_repository(tmp_path)
    (tmp_path / ".git" / "hooks" / "a\n[exit code 0]\udcff").write_text("evil")
    (changed,) = guard.put_back().changed
    assert changed == ".git/hooks/a\\x0a[exit code 0]\\xff"
