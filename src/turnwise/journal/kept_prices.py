"""FoundRows of the package `genai-prices` that were found before, in a file of the user's cache folder.

Reading the whole table takes 0.3 s of CPU and 50 MB; a run needs one or two of its rows. The file holds for exactly the files
that the package consists of, so an upgrade of it is seen. It is believed only where it is the user's own and nobody else may
write it, as with their `turnwise.toml`; its digest finds damage. What cannot be read or written is as if it were not there.
"""

import contextlib
import hashlib
import importlib.util
import os
import stat
import time
from collections.abc import Callable, Mapping
from pathlib import Path

import msgspec

from turnwise._version import __version__
from turnwise.rules.pricing import PriceRow

FORMAT = 1  # of the file, and of what `price_table` makes of the package's figures: raise it where either changes
MAX_BYTES = 512 * 1024
MAX_ROWS = 500  # of about 300 bytes; the oldest go first
MAX_NAME = 200  # characters of a model; a longer one is not kept
PRIVATE = 0o600
# A file is written in milliseconds; one that is older and not in its place was left by a killed process.
LEFT_S = 3600.0
# Windows knows no owners by number: nothing is kept there.
_USER: Callable[[], int] | None = getattr(os, "geteuid", None)
_READING = os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_CLOEXEC", 0)


class KeptRow(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What the table says of a model; `row` is None where it does not know it. Some prices change on a date, some with the hour:
    it holds from `since_s` until before `until_s` (UTC, seconds since 1970), without an end where that is None."""

    row: PriceRow | None = None
    since_s: float | None = None
    until_s: float | None = None

    def holds_at(self, at_s: float) -> bool:
        return (self.since_s is None or self.since_s <= at_s) and (self.until_s is None or at_s < self.until_s)


class _Content(msgspec.Struct, frozen=True, kw_only=True):
    edition: str
    rows: dict[str, KeptRow]


def kept_prices_path(env: Mapping[str, str]) -> Path:
    """`turnwise/prices.json` in XDG_CACHE_HOME, else in ~/.cache (XDG Base Directory Specification)."""
    base = env.get("XDG_CACHE_HOME")
    folder = Path(base) if base and Path(base).is_absolute() else Path.home() / ".cache"
    return folder / "turnwise" / "prices.json"


def package_edition() -> str:
    """A digest of the package's files, which changes with every figure in them. Its version would take longer to be found out:
    `importlib.metadata` is 17 ms, this is 3 ms. Empty where the package is not made of files: nothing is kept then."""
    found = importlib.util.find_spec("genai_prices")
    digest = hashlib.sha256(f"{FORMAT} {__version__}".encode())
    folders = (found and found.submodule_search_locations) or ()
    files = sorted([file for folder in folders for file in Path(folder).glob("*.py")])
    for file in files:
        content = file.read_bytes()
        digest.update(f"\n{file.name} {len(content)}\n".encode())
        digest.update(content)
    return digest.hexdigest() if files else ""


class KeptPrices:
    """The rows of one file. The file is read when the first row is needed. `edition` says which edition of prices the rows
    come from."""

    def __init__(self, path: Path, *, edition: Callable[[], str] = package_edition) -> None:
        self._path = path
        self._find_edition = edition
        self._edition: str | None = None
        self._rows: dict[str, KeptRow] = {}

    def find(self, model: str, *, provider: str, at_s: float) -> KeptRow | None:
        """What is kept of the provider's model, if it holds at that time."""
        if self._edition is None:
            self._rows = self._read()
        kept = self._rows.get(_name(model, provider=provider))
        return kept if kept is not None and kept.holds_at(at_s) else None

    def keep(self, model: str, kept: KeptRow, *, provider: str) -> None:
        """Write it down beside what other processes have kept meanwhile. Of two that write at once one may be lost: it is found
        again."""
        if len(model) > MAX_NAME:
            return
        name = _name(model, provider=provider)
        rows = {key: row for key, row in self._read().items() if key != name}
        self._rows = {**dict(list(rows.items())[-(MAX_ROWS - 1) :]), name: kept}
        if self._edition:
            with contextlib.suppress(OSError):
                self._write(_Content(edition=self._edition, rows=self._rows))

    def _read(self) -> dict[str, KeptRow]:
        if self._edition is None:
            self._edition = _or_empty(self._find_edition)
        try:
            content = _checked(_read_private(self._path))
        except (OSError, ValueError, RecursionError):  # msgspec's errors are ValueErrors
            return {}
        return content.rows if content.edition == self._edition else {}

    def _write(self, content: _Content) -> None:
        import tempfile

        text = msgspec.json.encode(content)
        folder = self._path.parent
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        _drop_left(folder)
        with tempfile.NamedTemporaryFile(dir=folder, prefix=".prices-", delete=False) as file:  # private
            try:
                file.write(_digest(text) + b"\n" + text)
                file.flush()
                Path(file.name).replace(self._path)
            except OSError:
                Path(file.name).unlink(missing_ok=True)
                raise


def _drop_left(folder: Path) -> None:
    """What a process wrote that was killed before it was done; one that lives takes a moment."""
    for file in folder.glob(".prices-*"):
        with contextlib.suppress(OSError):
            if time.time() - file.lstat().st_mtime > LEFT_S:
                file.unlink()


def _name(model: str, *, provider: str) -> str:
    return f"{provider}:{model}"


def _or_empty(edition: Callable[[], str]) -> str:
    try:
        return edition()
    except (OSError, ImportError, ValueError):
        return ""


def _read_private(path: Path) -> bytes:
    """Raises OSError, and ValueError where it is not the user's own file or too long."""
    with os.fdopen(os.open(path, _READING), "rb") as file:
        status = os.fstat(file.fileno())
        owned = _USER is not None and status.st_uid == _USER() and not stat.S_IMODE(status.st_mode) & ~PRIVATE
        if not stat.S_ISREG(status.st_mode) or not owned:
            raise ValueError("not the user's own")
        content = file.read(MAX_BYTES + 1)
    if len(content) > MAX_BYTES:
        raise ValueError("too long")
    return content


def _checked(content: bytes) -> _Content:
    """Raises ValueError where it is damaged."""
    digest, _, text = content.partition(b"\n")
    if digest != _digest(text):
        raise ValueError("damaged")
    return msgspec.json.decode(text, type=_Content)


def _digest(text: bytes) -> bytes:
    return hashlib.sha256(text).hexdigest().encode()
