"""Files that are read without being asked for: regular files inside the folder and no secret, opened as they were judged."""

import os
import shutil
import threading
from pathlib import Path

import pytest

from turnwise.base.unasked_files import LeftOut, read_of_user, read_unasked
from turnwise.coding_agent.repository import read_agents_md
from turnwise.errors import CallerError
from turnwise.journal.prices import read_prices_file
from turnwise.settings.settings import read_layers
from turnwise.tools.shell_judge.repositories import find_repository
from turnwise.tools.workspace.paths import WorkspacePaths
from turnwise.tools.workspace.read_tool import SearchArguments, search
from waits import HANG_S

SECRET = "xyzzy"
OUT = "is a link that leads out of the folder"
HIDES = "is a link to a file that may hold keys or passwords"
ODD = "is no regular file"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with secrets and other files, and a secret beside it."""
    folder = tmp_path / "folder"
    for name in (".env", ".aws/credentials", "docs/real.md"):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(SECRET)
    (tmp_path / "outside.txt").write_text(SECRET)
    (tmp_path / "folder-too").mkdir()
    (tmp_path / "folder-too" / "x").write_text(SECRET)
    return folder


LINKS = {
    "../outside.txt": OUT,
    "../folder-too/x": OUT,
    "/etc/hostname": OUT,
    "/dev/zero": OUT,
    "/dev/stdin": OUT,
    "/proc/self/environ": OUT,
    ".env": HIDES,
    "docs/../.aws/credentials": HIDES,
    "nowhere": "is a link that leads nowhere",
    "AGENTS.md": "is a link that leads nowhere",
    "docs": ODD,
    ".": ODD,
    "pipe": ODD,
}


@pytest.mark.promise("safe:inside")
@pytest.mark.parametrize("target", LINKS)
def test_a_link_is_followed_to_a_regular_file_inside_only(target: str, folder: Path) -> None:
    """Issue 13, line 3: it sent any file of the user to the provider."""
    os.mkfifo(folder / "pipe")
    (folder / "AGENTS.md").symlink_to(target)
    assert read_agents_md(folder) == LeftOut(LINKS[target])


@pytest.mark.parametrize("target", ["docs/real.md", "docs/link.md", "up/docs/real.md"])
def test_a_link_inside_the_folder_is_followed(target: str, folder: Path) -> None:
    """`AGENTS.md -> CLAUDE.md` is common; over several links and through a linked folder, too."""
    (folder / "docs" / "link.md").symlink_to("real.md")
    (folder / "up").symlink_to(".")
    (folder / "AGENTS.md").symlink_to(target)
    assert read_agents_md(folder) == SECRET
    assert read_agents_md(folder / "up") == SECRET


@pytest.mark.promise("safe:inside")
def test_what_is_no_regular_file_is_left_out_at_once(folder: Path) -> None:
    """A pipe would be waited for for ever; a folder, a socket and a device are none."""
    os.mkfifo(folder / "AGENTS.md")
    assert read_agents_md(folder) == LeftOut(ODD)
    (folder / "AGENTS.md").unlink()
    (folder / "AGENTS.md").mkdir()
    assert read_agents_md(folder) == LeftOut(ODD)
    assert read_agents_md(folder / "docs") is None


@pytest.mark.skipif(os.geteuid() != 0, reason="devices are made by root")
def test_a_device_is_not_opened(folder: Path) -> None:
    """One without an end, made in the folder itself."""
    try:
        os.mknod(folder / "AGENTS.md", 0o666 | 0o020000, os.makedev(1, 5))
    except OSError:
        pytest.skip("no devices here")
    assert read_agents_md(folder) == LeftOut(ODD)


def test_the_size_is_known_before_anything_is_read(folder: Path) -> None:
    """A sparse file of a terabyte costs nothing."""
    with (folder / "AGENTS.md").open("wb") as file:
        file.truncate(2**40)
    with pytest.raises(CallerError, match=r"AGENTS.md` has 1099511627776 bytes; 65536 at most, or leave it out"):
        read_agents_md(folder)


@pytest.mark.promise("safe:inside")
def test_what_is_put_there_meanwhile_is_not_read(folder: Path) -> None:
    """The opened file is what was judged: another process moves links and files over the name all the time."""
    agents, ends = folder / "AGENTS.md", threading.Event()
    agents.write_text("plain")

    def swap() -> None:
        for count in range(4000):
            coming = folder / "coming"
            if count % 2:
                coming.symlink_to((".env", "../outside.txt", "/dev/zero")[count % 3])
            else:
                coming.write_text("plain")
            coming.rename(agents)
            if ends.is_set():
                return

    other = threading.Thread(target=swap)
    other.start()
    try:
        seen = {read_unasked(agents, within=folder, max_bytes=100) for _ in range(1000)}
    finally:
        ends.set()
        other.join(HANG_S)
    assert {each for each in seen if isinstance(each, bytes)} <= {b"plain", b""}


@pytest.mark.promise("safe:inside")
@pytest.mark.parametrize("name", ["turnwise.toml", "pyproject.toml"])
@pytest.mark.parametrize("target", ["../outside.txt", ".env", "/dev/zero", "/dev/stdin", "nowhere"])
def test_a_projects_settings_are_held_to_the_same(name: str, target: str, folder: Path) -> None:
    """A `turnwise.toml` that cannot be read is an error: what it forbids would be missed. A `pyproject.toml` may be anybody's:
    it is left out, and that is told."""
    (folder / name).symlink_to(target)
    (folder / ".env").write_text("[tool.turnwise]\nmax_steps = 3\n")
    (folder.parent / "own.toml").touch()
    env = {"TURNWISE_CONFIG": str(folder.parent / "own.toml")}
    if name == "turnwise.toml":
        with pytest.raises(
            CallerError, match=r"turnwise.toml` is a link .*: put the settings into a file there, or take it away"
        ):
            read_layers(folder, env=env)
    else:
        _, layer = read_layers(folder, env=env)
        assert layer.table == {} and layer.path == folder / name and layer.left_out.startswith("is a link ")


def test_settings_may_be_a_link_within_the_repository(folder: Path) -> None:
    """One file for all packages of a project; the folders above the repository are somebody else's."""
    (folder / ".git").mkdir()
    (folder / "shared.toml").write_text("max_steps = 3")
    (folder / "docs" / "turnwise.toml").symlink_to("../shared.toml")
    _, layer = read_layers(folder / "docs", env={"TURNWISE_CONFIG": os.devnull})
    assert layer.table == {"max_steps": 3}


def test_the_users_own_files_may_be_links_to_anywhere(folder: Path, tmp_path: Path) -> None:
    """People keep them in a repository of their own; pipes and endless devices are refused there, too."""
    own = tmp_path / "own.toml"
    own.symlink_to("outside.txt")
    assert read_of_user(own, max_bytes=100) == SECRET.encode()
    assert read_of_user(Path(os.devnull), max_bytes=100) == b""
    assert read_of_user(tmp_path / "gone", max_bytes=100) is None
    os.mkfifo(tmp_path / "pipe")
    for name in ("pipe", "/dev/zero", "folder"):
        assert read_of_user(tmp_path / name, max_bytes=100) == LeftOut("is no regular file")
        with pytest.raises(CallerError, match="is no regular file"):
            read_prices_file({"TURNWISE_PRICES": str(tmp_path / name)})
    assert read_of_user(own, max_bytes=3) == LeftOut("has 5 bytes; 3 at most", is_too_long=True)


@pytest.mark.promise("safe:inside")
@pytest.mark.parametrize(
    "with_ripgrep", [False, pytest.param(True, marks=pytest.mark.skipif(not shutil.which("rg"), reason="no rg"))]
)
@pytest.mark.parametrize("target", ["pipe", "/dev/zero", "../outside.txt", ".env"])
@pytest.mark.parametrize("place", [".", "docs", ".."])
async def test_rules_of_git_are_no_way_to_other_files(
    place: str, target: str, with_ripgrep: bool, folder: Path
) -> None:
    """ripgrep follows a `.gitignore` that is a link, waits for one that is a pipe, and reads one that is a device to no end. One
    that is no regular file does not hold, as for git."""
    (folder / ".git").mkdir()
    (folder / ".env").write_text("real.md\n")
    (folder.parent / "outside.txt").write_text("real.md\n")
    if target == "pipe":
        os.mkfifo(folder / place / ".gitignore")
    else:
        (folder / place / ".gitignore").symlink_to(target)
    workspace = WorkspacePaths(folder)
    found = await search(workspace, SearchArguments(pattern=SECRET), with_ripgrep=with_ripgrep, timeout_s=20)
    assert found == f"docs/real.md:1: {SECRET}"


def test_a_doubt_about_settings_shows_no_password(tmp_path: Path) -> None:
    """`.git/config` is secret; the model reads why a command of git is asked about."""
    for name in ("objects", "refs"):
        (tmp_path / ".git" / name).mkdir(parents=True)
    (tmp_path / ".git" / "HEAD").write_text("ref: refs/heads/main\n")
    for config in ('[url "https://me:xyzzy@host/"]\n\tinsteadOf = x\n', "!xyzzy = =\n [x", '[credential "xyzzy"]\n'):
        (tmp_path / ".git" / "config").write_text(config)
        why = find_repository(str(tmp_path)).doubt
        assert "may run a program" in why and SECRET not in why
