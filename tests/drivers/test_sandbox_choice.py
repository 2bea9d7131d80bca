"""Which sandbox is chosen, what a command sees of the environment, and what is covered, in which order."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sandboxes import EVERY, sandbox_called
from turnwise.drivers.sandbox import GitGuard, Scratch, command_environment, find_sandbox, is_secret
from turnwise.drivers.sandbox.bubblewrap import Mount, plan_mounts
from turnwise.drivers.sandbox.kinds import Order
from turnwise.drivers.sandbox.landlock import landlock_version
from turnwise.drivers.sandbox.seccomp import command_filter
from turnwise.drivers.sandbox.secrets import secret_paths


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
    code = "from turnwise.drivers.sandbox import find_sandbox; print(find_sandbox().kind)"
    env = {**os.environ, "PATH": f"{tmp_path}:/usr/bin:/bin"}
    shown = subprocess.run([sys.executable, "-c", code], env=env, capture_output=True, text=True, check=True).stdout
    assert shown.strip() == ("landlock" if landlock_version() else "none")


def test_what_is_said_before_the_first_command() -> None:
    """Every kind in one line with the folder; none of them boasts."""
    folder = Path("/w")
    assert sandbox_called("none").said(workspace=folder) == (
        "commands run WITHOUT a sandbox: they can change every file of yours and use the network "
        "(neither bubblewrap nor Landlock works here)"
    )
    if is_there("bubblewrap"):
        sandbox = sandbox_called("bubblewrap")
        assert (
            sandbox.said(workspace=folder) == "commands run in bubblewrap: they can write in /w only, without network"
        )
        assert sandbox.said(workspace=folder, network=True).endswith("with network")


@pytest.mark.parametrize("name", EVERY)
def test_descriptors_are_all_that_is_open_for_a_command(name: str, tmp_path: Path) -> None:
    """What `wrap` opens is named in its answer, and closing it leaves nothing behind."""
    sandbox = sandbox_called(name)
    scratch = Scratch()
    assert scratch.temporary.is_dir()
    before = open_descriptors()
    wrapped = sandbox.wrap(["/bin/true"], workspace=tmp_path, scratch=scratch)
    assert open_descriptors() == before + len(wrapped.descriptors)
    for descriptor in wrapped.descriptors:
        os.close(descriptor)
    assert open_descriptors() == before


def open_descriptors() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


SECRETS = """OPENAI_API_KEY AWS_SECRET_ACCESS_KEY AWS_SESSION_TOKEN GITHUB_TOKEN GH_PAT DB_PASSWORD PGPASSWORD MYSQL_PWD
SSH_AUTH_SOCK SOME_CREDENTIALS GOOGLE_APPLICATION_CREDENTIALS SECRET_SAUCE NPM_TOKEN SENTRY_DSN DATABASE_URL
DBUS_SESSION_BUS_ADDRESS DOCKER_HOST HTTPS_PROXY BASH_ENV LD_PRELOAD PROMPT_COMMAND""".split()


def test_environment_is_an_allow_list(tmp_path: Path) -> None:
    """Secrets are not among the usual names; names of the user's own choice are let through, but never one of a key."""
    outer = dict.fromkeys((*SECRETS, "PATH", "LC_TIME", "MY_SETTING", "MY_TOKEN", "LC_KEY", "HIDDEN"), "value")
    also = frozenset({"MY_SETTING", "MY_TOKEN", "HIDDEN"})
    seen = command_environment({**outer}, temporary=tmp_path, also=also, hidden=frozenset({"HIDDEN"}))
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
        "TERM": "dumb",
    }


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
    order = Order(
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
    assert set(guard.put_back()) == changed
    assert {str(path.relative_to(git)): path.read_bytes() for path in git.rglob("*") if path.is_file()} == before
    assert guard.put_back() == ()


def write_all(git: Path, files: dict[str, bytes]) -> None:
    for name, content in files.items():
        (git / name).write_bytes(content)


def test_guard_leaves_alone_what_is_no_repository(tmp_path: Path) -> None:
    """A folder without `.git`, and one whose `.git` leads elsewhere."""
    assert GitGuard(tmp_path).put_back() == ()
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / ".git").symlink_to("elsewhere")
    guard = GitGuard(tmp_path)
    (tmp_path / "elsewhere" / "config").touch()
    assert guard.put_back() == () and (tmp_path / "elsewhere" / "config").exists()
