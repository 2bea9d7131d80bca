"""Journals that cannot be used as they should: a folder that is read-only, a file system without locks, a newer version, damage.

Each is told in one line with what to do, under `--json` as a result, too; nothing is made worse; what can be read is read.
"""

import errno
import os
import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest

from sandboxes import sandbox_called
from terminal.running import Cli, Ran, at, begin, end
from terminal.test_full_disk import not_begun, within
from turnwise.journal.file import ELSEWHERE
from turnwise.journal.journal import journal_path
from turnwise.lab import Lab
from waits import HANG_S

PAGE = 4096
OTHER_USER = "65534"
# A filter of system calls that refuses locks with the error of its first argument, as a file system without them does: BPF that
# looks at the number of the call and at fcntl's second argument (F_SETLK, F_SETLKW, F_OFD_SETLK, F_OFD_SETLKW).
WITHOUT_LOCKS = """
import ctypes, os, platform, struct, sys
FCNTL = {"x86_64": 72, "aarch64": 25}[platform.machine()]
load = lambda where: struct.pack("HBBI", 0x20, 0, 0, where)
skip = lambda value, equal, other: struct.pack("HBBI", 0x15, equal, other, value)
give = lambda value: struct.pack("HBBI", 0x06, 0, 0, value)
code = b"".join([
    load(0), skip(FCNTL, 0, 6), load(24), skip(6, 3, 0), skip(7, 2, 0), skip(37, 1, 0), skip(38, 0, 1),
    give(0x00050000 | int(sys.argv[1])), give(0x7FFF0000),
])
libc, buffer = ctypes.CDLL(None, use_errno=True), ctypes.create_string_buffer(code)
program = struct.pack("HxxxxxxP", len(code) // 8, ctypes.addressof(buffer))
if libc.prctl(38, 1, 0, 0, 0) or libc.prctl(22, 2, ctypes.c_char_p(program), 0, 0):
    sys.exit(99)
os.execv(sys.argv[2], sys.argv[2:])
"""


@pytest.fixture
def kept(lab: Lab, folder: Path, cli: Cli) -> Path:
    """The journal of two sessions."""
    for prompt in ("first", "second"):
        assert cli("run", prompt, *at(lab, "plain-answer")).code == 0
    lab.reset()
    return journal_path(os.environ)


def files_of(path: Path) -> dict[str, bytes]:
    """The journal and its write-ahead log; the index of that is rebuilt at will."""
    return {
        file.name: file.read_bytes() for file in path.parent.iterdir() if file.name in (path.name, f"{path.name}-wal")
    }


def reads_all(ran: Ran) -> None:
    assert [event["title"] for event in ran.events()] == ["second", "first"]


@pytest.mark.costly
def test_a_read_only_file_system_is_read(lab: Lab, folder: Path, kept: Path) -> None:
    """Proves: list, show and usage need nothing that can be written; a run says before it sends that it does."""
    state = str(kept.parent)
    frozen = [sandbox_called("bubblewrap").program, "--dev-bind", "/", "/", "--ro-bind", state, state, "--"]
    before = files_of(kept)
    listed = within(frozen, "sessions", "list", "--json", cwd=folder)
    reads_all(listed)
    id = listed.events()[0]["id"]
    shown = within(frozen, "sessions", "show", id, cwd=folder)
    used = within(frozen, "usage", "--json", cwd=folder)
    assert (listed.code, shown.code, used.code) == (0, 0, 0) and used.events()[0]["total"]["cost"]["requests"] == 2
    ran = within(frozen, "run", "Go.", "--json", *at(lab, "plain-answer"), cwd=folder)
    assert (ran.code, lab.count()) == (2, 0) and not_begun(ran)
    assert f"make it writable, or {ELSEWHERE}; `turnwise sessions`" in ran.err
    assert files_of(kept) == before


def test_a_log_that_a_kill_left_is_read_in_a_read_only_folder(folder: Path, kept: Path) -> None:
    """Proves: commits that stand in the write-ahead log alone are read from a copy, though no index of the log can be made."""
    keep = sqlite3.connect(kept, isolation_level=None)
    keep.execute("pragma wal_autocheckpoint = 0")
    keep.execute("update session set title = 'renamed'")
    log = kept.with_name(f"{kept.name}-wal").read_bytes()
    content = kept.read_bytes()
    keep.close()
    kept.write_bytes(content)
    kept.with_name(f"{kept.name}-wal").write_bytes(log)
    state = str(kept.parent)
    frozen = [sandbox_called("bubblewrap").program, "--dev-bind", "/", "/", "--ro-bind", state, state, "--"]
    ran = within(frozen, "sessions", "list", "--json", cwd=folder)
    assert [event["title"] for event in ran.events()] == ["renamed", "renamed"]
    assert "`: nothing can be written beside it, so a copy is read\n" in ran.err


@pytest.mark.costly
@pytest.mark.skipif(os.geteuid() != 0, reason="only root may become another user")
@pytest.mark.parametrize("mode", [0o444, 0o644])
def test_a_folder_of_another_users_is_told(lab: Lab, folder: Path, kept: Path, mode: int) -> None:
    """The file may be readable or writable: without its folder, SQLite can make nothing beside it. Nothing is sent."""
    kept.chmod(0o666 if mode == 0o644 else mode)
    kept.parent.chmod(0o555)
    for above in kept.parent.parents:
        if above != Path("/tmp") and above.is_relative_to("/tmp"):
            above.chmod(0o755)
    before = files_of(kept)
    other = ["setpriv", f"--reuid={OTHER_USER}", "--clear-groups", "--"]
    if subprocess.run([*other, sys.executable, "-c", ""], check=False, capture_output=True, timeout=HANG_S).returncode:
        pytest.skip("another user cannot run this Python")
    listed = within(other, "sessions", "list", "--json", cwd=folder, env={"HOME": "/tmp"})
    reads_all(listed)
    ran = within(other, "run", "Go.", "--json", *at(lab, "plain-answer"), cwd=folder, env={"HOME": "/tmp"})
    assert (ran.code, lab.count()) == (2, 0) and not_begun(ran)
    assert "writable, or set TURNWISE_STATE_DIR to another folder" in ran.err
    assert files_of(kept) == before


@pytest.mark.costly
@pytest.mark.parametrize("error", [errno.ENOLCK, errno.EINVAL, errno.EOPNOTSUPP, errno.ENOSYS])
def test_a_file_system_without_locks_is_named(lab: Lab, folder: Path, kept: Path, error: int) -> None:
    """Proves: a run says that the file system takes no locks, and not that somebody holds the journal; readers take a copy.
    The kernel refuses the locks by a filter, with what network file systems answer."""
    lockless = [sys.executable, "-c", WITHOUT_LOCKS, str(error)]
    before = files_of(kept)
    ran = within(lockless, "run", "Go.", "--json", *at(lab, "plain-answer"), cwd=folder)
    if ran.code == 99:
        pytest.skip("the kernel takes no filter here")
    assert (ran.code, lab.count()) == (2, 0) and not_begun(ran)
    assert "its file system takes no locks" in ran.err and "a folder on a local disk" in ran.err
    listed = within(lockless, "sessions", "list", "--json", cwd=folder)
    reads_all(listed)
    assert listed.code == 0 and "its file system takes no locks, so a copy is read" in listed.err
    assert files_of(kept) == before


def test_a_newer_journal_is_read_with_a_word_and_not_written(lab: Lab, folder: Path, kept: Path) -> None:
    """Proves: where a newer version has all that is read, it is shown; where it has not, the version is told."""
    change(kept, "pragma user_version = 99; alter table session add column colour text")
    before = files_of(kept)
    listed = end(begin("sessions", "list", "--json", cwd=folder))
    reads_all(listed)
    assert "is from a newer turnwise (version 99, this one knows" in listed.err and "read only" in listed.err
    ran = end(begin("run", "Go.", "--json", *at(lab, "plain-answer"), cwd=folder))
    assert (ran.code, lab.count()) == (2, 0) and not_begun(ran) and "newer turnwise (version 99" in ran.err
    assert files_of(kept) == before
    change(kept, "alter table session rename column title to name")
    for command in (("sessions", "list", "--json"), ("usage", "--json")):
        told = end(begin(*command, cwd=folder))
        assert told.code == 2 and f"turnwise: {told.events()[-1]['error']}" == told.err.rstrip()
        assert "version 99" in told.err and "upgrade" in told.err


def change(path: Path, sql: str) -> None:
    connection = sqlite3.connect(path)
    connection.executescript(sql)
    connection.close()


@pytest.mark.promise("keep:crash")
def test_a_broken_page_is_found_named_and_rescued(lab: Lab, folder: Path, kept: Path) -> None:
    """Proves: `doctor` finds it, `list` and `usage` show the rest with exit code 1, a run does not write into the file, and after
    `sessions rescue` it does."""
    connection = sqlite3.connect(kept)
    (page,) = connection.execute("select rootpage from sqlite_schema where name = 'turn'").fetchone()
    connection.close()
    with kept.open("r+b") as file:
        file.seek((page - 1) * PAGE)
        file.write(b"\xa5" * PAGE)
    before = files_of(kept)
    checked = end(begin("doctor", "--offline", "--json", cwd=folder))
    (check,) = [check for check in checked.events()[0]["checks"] if check["name"] == "journal"]
    assert check["status"] == "stops" and "damaged: `turn`; 2 of 2 sessions lost something" in check["found"]
    listed = end(begin("sessions", "list", "--json", cwd=folder))
    reads_all(listed)
    used = end(begin("usage", "--json", cwd=folder))
    assert (listed.code, used.code, used.events()[0]["total"]["cost"]["requests"]) == (1, 0, 2)
    ran = end(begin("run", "Go.", "--continue", "--json", *at(lab, "plain-answer"), cwd=folder))
    assert (ran.code, lab.count()) == (2, 0) and not_begun(ran) and "`turnwise sessions rescue`" in ran.err
    assert files_of(kept) == before
    rescued = end(begin("sessions", "rescue", "--json", cwd=folder))
    told = rescued.events()[-1]
    assert (rescued.code, told["tables"], told["sessions"]) == (0, ["turn"], 2)
    assert Path(told["kept"]).read_bytes() == before[kept.name]
    ran = end(begin("run", "Go.", "--continue", "--json", *at(lab, "plain-answer"), cwd=folder))
    assert ran.code == 0 and ran.events()[-1]["session"] == listed.events()[0]["id"]
    again = end(begin("sessions", "rescue", "--json", cwd=folder))
    assert again.code == 2 and "nothing to rescue" in again.events()[-1]["error"]


def test_nothing_to_read_makes_no_file(folder: Path) -> None:
    """A list of sessions leaves no journal behind."""
    ran = end(begin("sessions", "list", cwd=folder))
    assert ran.code == 0 and "no sessions yet" in ran.err and not journal_path(os.environ).exists()


def test_a_copy_that_finds_no_room_is_not_told_as_a_full_journal(folder: Path, kept: Path, tmp_path: Path) -> None:
    """A full folder for temporary files is named, and so is the way out."""
    small, state = str(tmp_path / "small"), str(kept.parent)
    (tmp_path / "small").mkdir()
    # A log without its index: SQLite cannot read it there.
    kept.with_name(f"{kept.name}-wal").write_bytes(b"\0" * 200_000)
    frozen = [sandbox_called("bubblewrap").program, "--dev-bind", "/", "/", "--ro-bind", state, state]
    full = [*frozen, "--size", "65536", "--tmpfs", small, "--"]
    ran = within(full, "sessions", "list", "--json", cwd=folder, env={"TMPDIR": small})
    assert ran.code == 2 and "cannot be read" in ran.err and "set TMPDIR to another folder" in ran.err
    assert ran.events() == [{"error": ran.err.rstrip().removeprefix("turnwise: "), "exit_code": 2}]


@pytest.mark.parametrize(
    "command", ["run Go. -m openai_chat:x", "resume", "sessions list", "usage", "sessions prune --keep 1"]
)
@pytest.mark.parametrize("kind", ["device", "file", "below a file", "link", "journal is a folder", "journal is a pipe"])
def test_what_stands_in_the_place_of_the_journal_is_named(
    cli: Cli, folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str, command: str
) -> None:
    """Proves: a state folder that is a device, a file or a link to nowhere, and a journal that is no file, are refused with what
    they are and what to do, by commands that only read, too; nothing is made."""
    file, link, place = tmp_path / "some file", tmp_path / "some link", tmp_path / "place"
    file.write_text("text")
    link.symlink_to(tmp_path / "nowhere")
    (place / "journal.db").mkdir(parents=True)
    (tmp_path / "piped").mkdir()
    os.mkfifo(tmp_path / "piped" / "journal.db")
    before = sorted(tmp_path.rglob("*"))
    state, said = {
        "device": (Path("/dev/null"), "`/dev/null` is a device, not a folder; set TURNWISE_STATE_DIR to a folder"),
        "file": (file, f"`{file}` is a file, not a folder; set TURNWISE_STATE_DIR to a folder"),
        "below a file": (file / "below", f"`{file}` is a file, not a folder; set TURNWISE_STATE_DIR to a folder"),
        "link": (link, f"`{link}` is a link that leads nowhere, not a folder; set TURNWISE_STATE_DIR to a folder"),
        "journal is a folder": (place, f"`{place}/journal.db` is a folder, not a file; move it away, or set TURNWISE"),
        "journal is a pipe": (tmp_path / "piped", "/journal.db` is a pipe, not a file; move it away, or set TURNWISE"),
    }[kind]
    monkeypatch.setenv("TURNWISE_STATE_DIR", str(state))
    ran = cli(*command.split(), "--json")
    assert (ran.code, ran.events()[-1]["exit_code"]) == (2, 2) and said in ran.err, ran
    assert sorted(tmp_path.rglob("*")) == before
    doctor = cli("doctor", "--offline")
    assert doctor.code == 1 and said in " ".join(doctor.out.split())
    del folder
