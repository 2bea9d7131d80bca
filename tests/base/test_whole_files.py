"""Files that are written whole or not at all: what was there stays until the new one is on the disk."""

import resource
import signal
from pathlib import Path

import pytest

from turnwise.base.whole_files import in_place_of
from turnwise.errors import CallerError

MIB = 1024 * 1024


def open_files() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


def names_beside(path: Path) -> list[str]:
    return [one.name for one in path.parent.iterdir()]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    found = tmp_path / "kept.json"
    found.write_text("before")
    return found


def test_a_new_file_takes_the_place_whole_and_is_closed(path: Path) -> None:
    """Proves: its content and its mode, and that neither a descriptor nor a file beside it is left. Once, each session with an
    AGENTS.md left two descriptors open."""
    before = open_files()
    with in_place_of(path) as file:
        file.write(b"x" * MIB)
        assert path.read_text() == "before"
    assert (path.stat().st_size, path.stat().st_mode & 0o777) == (MIB, 0o600)
    assert (open_files(), names_beside(path)) == (before, ["kept.json"])


@pytest.mark.parametrize("error", [OSError(28, "No space left on device"), ValueError("a bug")])
def test_what_was_there_stays_if_the_block_fails(error: Exception, path: Path) -> None:
    """Proves: the old content, no descriptor, no file beside it; what the system says is an error with the path."""
    before = open_files()
    with pytest.raises(CallerError if isinstance(error, OSError) else ValueError), in_place_of(path) as file:
        file.write(b"half")
        raise error
    assert (path.read_text(), open_files(), names_beside(path)) == ("before", before, ["kept.json"])


def test_a_file_that_takes_only_a_part_is_no_whole_file(path: Path) -> None:
    """Proves: where the system writes less than it was given, the old file stays. Once, `os.write` told it and nobody looked."""
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    ignored = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (8 * MIB, limits[1]))
    try:
        with pytest.raises(CallerError, match="cannot be written"), in_place_of(path) as file:
            file.write(b"x" * (9 * MIB))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
        signal.signal(signal.SIGXFSZ, ignored)
    assert (path.read_text(), names_beside(path)) == ("before", ["kept.json"])
