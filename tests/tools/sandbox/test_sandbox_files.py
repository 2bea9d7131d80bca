"""Commands that try to change or read what is not theirs, in each sandbox of this machine."""

import asyncio
import os
import subprocess
import tempfile
from collections.abc import Generator
from pathlib import Path

import pytest

from sandboxes import CONFINING, sandbox_called, script
from turnwise.errors import ToolFault
from turnwise.tools.workspace.shell import BashArguments, Shell
from waits import HANG_S

SECRET = "sk-the-secret-of-this-test"


class Outside:
    """A folder that is neither workspace nor temporary (those are private in a sandbox), with one file in it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.file = folder / "file"
        self.file.write_text("as it was")
        self.file.chmod(0o640)
        (folder / "folder").mkdir()
        self.before = self.look()

    def look(self) -> list[tuple[str, int, str]]:
        return [
            (path.name, path.lstat().st_mode, path.read_text() if path.is_file() else "")
            for path in sorted(self.folder.rglob("*"))
        ]


@pytest.fixture
def outside() -> Generator[Outside]:
    cache = Path.home() / ".cache"
    cache.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="turnwise-test-", dir=cache) as folder:
        yield Outside(Path(folder).resolve())


@pytest.fixture(params=CONFINING)
def shell(request: pytest.FixtureRequest, tmp_path: Path) -> Shell:
    root = tmp_path / "root"
    root.mkdir()
    return Shell(root, sandbox=sandbox_called(request.param))


async def run(shell: Shell, command: str) -> str:
    """What it says, whether it fails or not: here only its effects count."""
    try:
        return await asyncio.wait_for(shell.run(BashArguments(command=command, timeout_s=int(HANG_S))), HANG_S)
    except ToolFault as fault:
        return str(fault)


CHANGES = {
    "write": "echo no > {file}",
    "append": "echo no >> {file}",
    "new file": "echo no > {folder}/new",
    "new folder": "mkdir {folder}/new",
    "dots": "cd {root} && echo no > $(realpath --relative-to=. {file})",
    "link and write": "ln -s {file} link && echo no > link",
    "link to the folder": "ln -s {folder} link && echo no > link/new",
    "link of a link": "ln -s {folder} a && ln -s a/file b && echo no > b",
    "hard link": "ln {file} link && echo no > link",
    "move away": "mv {file} here",
    "move in": "echo no > new && mv new {folder}/new",
    "move over": "echo no > new && mv -f new {file}",
    "remove": "rm -f {file}; rmdir {folder}/folder",
    "rename the folder": "mv {folder}/folder {folder}/other",
    "proc root": "echo no > /proc/self/root{file}",
    "proc folder": "ln -s /proc/self/cwd here; echo no > here/../../../../../../../../../../../..{file}",
    "proc of another": "for p in /proc/[0-9]*; do echo no > $p/root{file}; done",
    "overwrite": "dd if=/dev/zero of={file} bs=1 count=4 conv=notrunc",
    "truncate": "truncate -s 0 {file}",
    "read and write": "exec 5<>{file}; echo no >&5",
    "special file": "mknod {folder}/new p || mkfifo {folder}/new",
    "mount": "mount -t tmpfs none {folder} && echo no > {folder}/new; mount -o remount,rw {folder}; echo no > {file}",
    "unmount": "umount -l {folder}; echo no > {file}",
    "own namespace": "unshare -Urm sh -c 'mount -o remount,rw,bind /; echo no > {file}'; unshare -r sh -c 'echo no > {file}'",
    "other namespace": "nsenter -t 1 -m -- sh -c 'echo no > {file}'",
    "chroot": "chroot / sh -c 'echo no > {file}'",
    "archive": "echo no > y && tar cPf x.tar --transform 's,^y,{file},' y && tar xPf x.tar",
    "sudo": "sudo -n sh -c 'echo no > {file}'",
}


@pytest.mark.parametrize("attempt", CHANGES.values(), ids=CHANGES)
async def test_nothing_outside_is_changed(shell: Shell, outside: Outside, attempt: str) -> None:
    """Whatever the way, the folder is as it was."""
    await run(shell, attempt.format(file=outside.file, folder=outside.folder, root=shell.root))
    assert outside.look() == outside.before


@pytest.mark.parametrize("name", ["write", "new file", "link and write", "hard link", "remove", "proc root", "archive"])
async def test_without_a_sandbox_it_is_changed(tmp_path: Path, outside: Outside, name: str) -> None:
    """The same attempts get through where nothing is promised: the test above is able to fail."""
    (workspace := outside.folder.with_name(f"{outside.folder.name}-root")).mkdir()
    try:  # on the same file system, for the hard link
        shell = Shell(workspace, sandbox=sandbox_called("none"))
        await run(shell, CHANGES[name].format(file=outside.file, folder=outside.folder, root=shell.root))
        assert outside.look() != outside.before
    finally:
        for path in workspace.iterdir():
            path.unlink()
        workspace.rmdir()


TRUNCATIONS = """
import os, sys
for attempt in (
    lambda: os.truncate(sys.argv[1], 0),
    lambda: os.close(os.open(sys.argv[1], os.O_RDONLY | os.O_TRUNC)),
    lambda: os.close(os.open(sys.argv[1], os.O_ACCMODE | os.O_TRUNC)),
    lambda: os.close(os.open(sys.argv[1], os.O_WRONLY | os.O_TRUNC)),
):
    try:
        attempt()
        print("truncated")
    except OSError:
        print("refused")
"""


async def test_nothing_outside_is_truncated(shell: Shell, outside: Outside) -> None:
    """Opening for reading with O_TRUNC truncates too, which the first versions of Landlock do not judge."""
    command = script(shell.root / "truncate.py", TRUNCATIONS)
    assert await run(shell, f"{command} {outside.file}") == "refused\n" * 4
    (shell.root / "own").write_text("own")
    assert "truncated" in await run(shell, f"{command} own")
    assert (shell.root / "own").read_text() == "" and outside.look() == outside.before


async def test_mode_outside_is_kept_or_the_gap_is_told(shell: Shell, outside: Outside) -> None:
    """Landlock judges no chmod: there `said` tells people so. In bubblewrap the folder is mounted read-only."""
    await run(shell, f"chmod 777 {outside.file}; touch -d 2001-01-01 {outside.file}")
    if shell.sandbox.metadata:
        assert outside.look() == outside.before and outside.file.stat().st_mtime > 1_000_000_000
    else:
        assert "modes and times of files outside can be changed" in shell.said


async def test_workspace_and_temporary_folder_can_be_written(shell: Shell, outside: Outside) -> None:
    """It is not just that nothing works. The temporary folder is there for the next command too."""
    work = (
        "mkdir -p a/b && echo 1 > a/b/c && ln a/b/c a/b/d && mv a/b/c a/b/e && chmod +x a/b/e && rm a/b/d && cat a/b/e"
    )
    assert await run(shell, work) == "1\n"
    assert await run(shell, "echo kept > $TMPDIR/x && mktemp > /dev/null && cat $TMPDIR/x") == "kept\n"
    assert await run(shell, "cat $TMPDIR/x; echo no > /dev/null; head -c 2 /dev/urandom | wc -c") == "kept\n2\n"
    shell = Shell(shell.root, sandbox=shell.sandbox, writable=[outside.folder])
    assert await run(shell, f"echo yes > {outside.file} && cat {outside.file}") == "yes\n"


def make_repository(root: Path) -> None:
    subprocess.run(["git", "init", "-q", "."], cwd=root, check=True)
    subprocess.run(["git", "config", "user.name", "Test"], cwd=root, check=True)
    subprocess.run(["git", "config", "user.email", "test@localhost"], cwd=root, check=True)
    (root / ".git" / "hooks").mkdir(exist_ok=True)  # there are templates without


async def test_many_hooks_leave_no_part_without_a_guard(shell: Shell) -> None:
    """More than anybody has: `commondir` is put back all the same, or no command runs, and the result says so."""
    git = shell.root / ".git"
    (git / "hooks").mkdir(parents=True)
    for count in range(2100):
        (git / "hooks" / f"{count}.sample").touch()
    told = await run(shell, "mkdir evil; echo ../evil > .git/commondir")
    assert not (git / "commondir").exists()
    assert ("put back as before" if shell.sandbox.kind == "bubblewrap" else "the command was not run") in told


async def test_git_works_and_what_it_executes_stays(shell: Shell) -> None:
    """Commits can be made; hooks and configuration, by which a later git outside would run a program, are as before."""
    make_repository(shell.root)
    git = shell.root / ".git"
    config = (git / "config").read_text()
    hooks = sorted(path.name for path in (git / "hooks").iterdir())
    assert "first" in await run(shell, "echo 1 > a && git add a && git commit -qm first && git log --oneline")
    for attempt in (
        "git config core.fsmonitor ./evil",
        "echo '[core] pager = ./evil' >> .git/config",
        "echo '#!/bin/sh' > .git/hooks/pre-commit; chmod +x .git/hooks/pre-commit",
        "rm -rf .git/hooks; ln -s ../evil .git/hooks",
        "rm -f .git/config; ln -s ../evil .git/config",
        "mkdir evil; echo ../evil > .git/commondir",
        "mv .git/hooks .git/other; mkdir .git/hooks; touch .git/hooks/post-commit",
        "mv .git other; mkdir .git; cp -r other/* .git; echo '[alias]' >> .git/config",
    ):
        await run(shell, attempt)
        assert (git / "config").read_text() == config and not (git / "config").is_symlink(), attempt
        assert sorted(path.name for path in (git / "hooks").iterdir()) == hooks, attempt
        assert not (git / "hooks").is_symlink() and not (git / "commondir").exists(), attempt


@pytest.mark.parametrize(
    "put", ["true", "ln -s other .git", "echo 'gitdir: other' > .git", "git init -q . && echo '[alias]' >> .git/config"]
)
async def test_git_folder_that_was_moved_is_back(shell: Shell, put: str) -> None:
    """A mount cannot be moved; under Landlock it can, and is moved back, which the result says. git works as before."""
    make_repository(shell.root)
    config = (shell.root / ".git" / "config").read_text()
    told = await run(shell, f"mv .git other && echo '[core] fsmonitor = ./evil' >> other/config && {put}")
    git = shell.root / ".git"
    assert git.is_dir() and not git.is_symlink() and (git / "config").read_text() == config
    moved_back = "[.git: the repository had been moved to `other`, and was moved back."
    assert (moved_back in told) is (shell.sandbox.kind == "landlock")
    assert (" is `.git-made-by-a-command-1` now.]" in told) is (shell.sandbox.kind == "landlock" and put != "true")
    assert "No commits yet" in await run(shell, "git status")


async def test_git_folder_that_becomes_a_link_to_elsewhere_is_not_followed(shell: Shell, outside: Outside) -> None:
    """Nothing is put back through the link."""
    make_repository(shell.root)
    await run(shell, f"mv .git other && ln -s {outside.folder} .git")
    assert outside.look() == outside.before and not (shell.root / ".git").is_symlink()


@pytest.fixture
def home(outside: Outside, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A home folder with secrets, the usual and the linked."""
    home = outside.folder / "home"
    for name in (
        ".ssh/id_ed25519",
        ".aws/credentials",
        ".config/gh/hosts.yml",
        ".npmrc",
        "elsewhere/netrc",
        "own/journal.db",
    ):
        (home / name).parent.mkdir(parents=True, exist_ok=True)
        (home / name).write_text(SECRET)
    (home / ".netrc").symlink_to("elsewhere/netrc")
    (home / "notes").write_text("no secret")
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.setenv("TURNWISE_STATE_DIR", str(home / "own"))
    monkeypatch.setenv("OTHER_API_KEY", SECRET)
    return home


READINGS = {
    "names": "cat {home}/.ssh/id_ed25519 {home}/.aws/credentials {home}/.config/gh/hosts.yml {home}/.npmrc {home}/.netrc",
    "target of a link": "cat {home}/elsewhere/netrc",
    "own journal": "cat {home}/own/journal.db",
    "links": "ln -s {home} h; cat h/.ssh/id_ed25519; ln -s {home}/.npmrc n; cat n; ln {home}/.npmrc m; cat m",
    "all": "grep -rs . {home}; tar cf - {home}; find {home} -type f -exec cat {{}} +",
    "proc root": "cat /proc/self/root{home}/.npmrc /proc/1/root{home}/.npmrc; cat /proc/[0-9]*/root{home}/.npmrc",
    "environment": "env; cat /proc/self/environ",
    "environments of others": "cat /proc/[0-9]*/environ; cat /proc/{us}/environ; cat /proc/{us}/task/*/environ",
    "memory of others": "dd if=/proc/{us}/mem bs=1 count=1; cat /proc/{us}/maps",
    "move": "mv {home}/.ssh here; cat here/id_ed25519; cp -r {home} there; grep -rs . there",
}


@pytest.mark.parametrize("attempt", READINGS.values(), ids=READINGS)
async def test_secrets_are_not_read(shell: Shell, home: Path, attempt: str) -> None:
    """Keys in the home folder, turnwise's journal and the environment: none of it can be had; other files can."""
    shown = await run(shell, attempt.format(home=home, us=os.getpid()))
    assert SECRET not in shown
    assert await run(shell, f"cat {home}/notes; echo $HOME") == f"no secret{home}\n"


async def test_without_a_sandbox_they_are_read(home: Path, tmp_path: Path) -> None:
    """The same attempts succeed where nothing is promised, but for the environment: that is chosen everywhere."""
    shell = Shell(tmp_path, sandbox=sandbox_called("none"))
    found = [name for name, attempt in READINGS.items() if SECRET in await run(shell, attempt.format(home=home, us=1))]
    assert {"names", "target of a link", "own journal", "all"} <= set(found)
    assert "environment" not in found


async def test_secrets_inside_the_workspace_are_not_read(shell: Shell, home: Path) -> None:
    """Where the workspace is the home folder itself: they are left out of what may be written and read."""
    shell = Shell(home, sandbox=shell.sandbox)
    shown = await run(
        shell, "cat .ssh/id_ed25519 .npmrc own/journal.db; echo x > .ssh/id_ed25519; echo x >> notes; cat notes"
    )
    assert SECRET not in shown and shown.endswith("no secretx\n")
    assert (home / ".ssh" / "id_ed25519").read_text() == SECRET
