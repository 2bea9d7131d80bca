"""The file of a session: it comes back as it was, is for its owner alone, and a stranger's file is refused in one line."""

import json
import os
import stat
from pathlib import Path

import msgspec
import pytest

from journal.journalled import led_by_lab
from turnwise.errors import CallerError
from turnwise.lab import builtin_scripts
from turnwise.replay import session_file
from turnwise.replay.session_file import MOST_LEVELS, RecordedSession, read_session_file, write_session


@pytest.fixture(scope="module")
def session() -> RecordedSession:
    return led_by_lab(builtin_scripts()["parallel-calls"], family="openai_chat", stream=True)


def with_child(session: RecordedSession, *, levels: int) -> RecordedSession:
    """The session below its own first turn, so many levels deep."""
    for _ in range(levels):
        first, *others = session.turns
        deeper = msgspec.structs.replace(first, children=(("call_1_1", session),))
        session = msgspec.structs.replace(session, turns=(deeper, *others))
    return session


def test_a_session_comes_back_with_its_sub_agents(session: RecordedSession, tmp_path: Path) -> None:
    """Proves: all of it, at every level, in a file that nobody else may read, and nothing beside it."""
    tree = with_child(session, levels=2)
    first, *others = tree.turns
    tree = msgspec.structs.replace(
        tree, turns=(msgspec.structs.replace(first, children=(*first.children, ("call_1_2", session))), *others)
    )
    path = tmp_path / "with ümlaut and blank.jsonl"
    write_session(path, tree, replaced=3)
    assert read_session_file(path) == tree
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert [file.name for file in tmp_path.iterdir()] == [path.name]
    assert json.loads(path.read_text().splitlines()[0])["replaced"] == 3


def test_no_file_is_written_over(session: RecordedSession, tmp_path: Path) -> None:
    """Proves: what is there stays, a link too; a folder that is not there is told."""
    path = tmp_path / "there.jsonl"
    path.write_text("mine")
    (tmp_path / "link").symlink_to(tmp_path / "nowhere")
    for taken in (path, tmp_path / "link"):
        with pytest.raises(CallerError, match="exists already"):
            write_session(taken, session, replaced=0)
    with pytest.raises(CallerError, match="cannot be written: No such file"):
        write_session(tmp_path / "no" / "a.jsonl", session, replaced=0)
    assert path.read_text() == "mine" and sorted([one.name for one in tmp_path.iterdir()]) == ["link", "there.jsonl"]


def damaged(path: Path, *lines: bytes) -> str:
    """What is said of a file with these lines and a hash that fits them."""
    content = b"".join([line + b"\n" for line in lines])
    digest = session_file.hashlib.sha256(content).hexdigest()
    path.write_bytes(content + json.dumps({"line": "end", "sha256": digest}).encode() + b"\n")
    with pytest.raises(CallerError) as refused:
        read_session_file(path)
    return str(refused.value).replace(str(path), "FILE")


def test_what_is_no_such_file_is_refused(session: RecordedSession, tmp_path: Path) -> None:
    """Proves: foreign, newer, cut and changed files each have their line, with what to do."""
    path = tmp_path / "bug.jsonl"
    write_session(path, session, replaced=0)
    whole = path.read_bytes()
    head, first, *_ = whole.splitlines()

    def said(content: bytes) -> str:
        path.write_bytes(content)
        with pytest.raises(CallerError) as refused:
            read_session_file(path)
        return str(refused.value).replace(str(path), "FILE")

    for foreign in (
        b"",
        b"\n",
        b"\x00\xff\xfe",
        b"[1,2]",
        b'{"line":"session"}',
        b"[" * 200_000,
        head.replace(b"session", b"recipe"),
    ):
        assert said(foreign).startswith("`FILE` holds no session")
    assert "newer turnwise" in said(whole.replace(b'"version":1', b'"version":2', 1))
    assert "is not whole" in said(whole[: len(whole) // 2]) and "is not whole" in said(head)
    assert "changed or damaged" in said(whole.replace(b"parallel", b"parallex"))
    assert damaged(path, head, b'{"line":"turn"}').startswith("`FILE`, line 2: Object missing required field")
    assert "line 2: a record stands" in damaged(path, head, whole.splitlines()[3])
    assert "line 3: a session stands" in damaged(path, head, first, first)
    assert "line 3: a head or an end" in damaged(path, head, first, head)
    assert "line 2" in damaged(path, head, b"[" * 100_000)
    assert damaged(path, head).startswith("`FILE` holds no session")
    deep = with_child(session, levels=MOST_LEVELS)
    path.unlink()
    write_session(path, deep, replaced=0)
    with pytest.raises(CallerError, match="a session stands where none may stand"):
        read_session_file(path)


def test_a_file_that_is_too_large_or_no_file_is_not_read(
    session: RecordedSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Proves: a pipe, a device and a folder are refused without waiting; so is more than the limit, before it is in memory."""
    os.mkfifo(tmp_path / "pipe")
    for path in (tmp_path / "pipe", Path("/dev/zero"), tmp_path):
        with pytest.raises(CallerError, match="is no regular file"):
            read_session_file(path)
    with pytest.raises(CallerError, match="does not exist"):
        read_session_file(tmp_path / "nope")
    huge = tmp_path / "huge"
    with huge.open("wb") as file:
        file.truncate(session_file.MOST_FILE_BYTES + 1)
    with pytest.raises(CallerError, match="has more than"):
        read_session_file(huge)


@pytest.mark.parametrize("bad", ["\x1b]0;gone\x07", "a\u202eb", "a b", "", "../x"])
def test_an_id_that_is_none_of_ours_is_refused(session: RecordedSession, tmp_path: Path, bad: str) -> None:
    """Proves: what names a session or a turn can be shown and typed, whoever wrote the file."""
    path = tmp_path / "a.jsonl"
    first, *others = session.turns
    for changed in (
        msgspec.structs.replace(session, row=msgspec.structs.replace(session.row, id=bad)),
        *[
            msgspec.structs.replace(session, turns=(msgspec.structs.replace(first, row=row), *others))
            for row in (msgspec.structs.replace(first.row, id=bad), msgspec.structs.replace(first.row, session=bad))
        ],
    ):
        write_session(path, changed, replaced=0)
        with pytest.raises(CallerError, match=r"line [23]: the id of its .* is none"):
            read_session_file(path)
        path.unlink()
