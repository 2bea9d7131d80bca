"""The keys of clients: a file of the user's, in which no key stands.

A key is `tw-` and 256 random bits. Its SHA-256 is enough at rest: slow hashes protect what people think up, and nobody finds 256
random bits by trying. Budgets by key belong to a row of this file, once there are any.
"""

import contextlib
import hashlib
import os
import re
import secrets
from collections.abc import Generator, Iterable, Mapping
from pathlib import Path

import msgspec

from turnwise.base.unasked_files import LeftOut, read_of_user
from turnwise.base.whole_files import in_place_of
from turnwise.errors import CallerError
from turnwise.settings.catalogue import with_near_field
from turnwise.settings.settings import user_folder

FILE = "gateway-keys.json"
PREFIX = "tw-"
RANDOM_BYTES = 32
MAX_FILE_BYTES = 4 * 1024 * 1024  # 20,000 keys, read and written

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}", re.ASCII)


class ClientKey(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One key, without the key. `sha256` is in hex, `added` a date."""

    name: str
    sha256: str
    admin: bool = False
    added: str


class KeyFile(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    keys: tuple[ClientKey, ...] = ()


def key_file(env: Mapping[str, str]) -> Path:
    """Where the keys of this user's gateway lie, whether there are any or not."""
    return user_folder(env) / FILE


def read_keys(path: Path) -> tuple[ClientKey, ...] | None:
    """The keys; None if there is no file: then the gateway asks for none. Raises CallerError."""
    match read_of_user(path, max_bytes=MAX_FILE_BYTES):
        case None:
            return None
        case LeftOut(why=why):
            raise CallerError(f"`{path}` {why}: it has to be a file that you can read")
        case bytes() as content:
            try:
                return msgspec.json.decode(content, type=KeyFile).keys
            except (msgspec.DecodeError, UnicodeDecodeError) as error:
                said = with_near_field(error, rows=(KeyFile, ClientKey))
                raise CallerError(
                    f"`{path}` holds no keys: {said}; correct it, or remove it and add keys anew"
                ) from None


def add_key(path: Path, name: str, *, admin: bool, today: str) -> str:
    """The new key, which stands nowhere else. Raises CallerError for a name that is taken or is none."""
    if not _NAME.fullmatch(name):
        raise CallerError(
            f"`{name}` is no name of a key: 1 to 64 letters, digits, `.`, `_` and `-`, a letter or digit first"
        )
    key = PREFIX + secrets.token_urlsafe(RANDOM_BYTES)
    with _alone(path):
        keys = read_keys(path) or ()
        if any(each.name == name for each in keys):
            raise CallerError(f"there is a key `{name}` already: revoke it first, or choose another name")
        new = ClientKey(name=name, sha256=_digest(key), admin=admin, added=today)
        _write(path, KeyFile(keys=(*keys, new)))
    return key


def revoke_key(path: Path, name: str) -> None:
    """The key opens nothing from now on, in a gateway that runs, too. The file stays: without any key left nobody is let in.
    Raises CallerError if there is no such key."""
    with _alone(path):
        keys = read_keys(path) or ()
        left = tuple([each for each in keys if each.name != name])
        if len(left) == len(keys):
            raise CallerError(f"there is no key `{name}`: `turnwise gateway keys list` shows the names")
        _write(path, KeyFile(keys=left))


def find_client(shown: Iterable[str], *, keys: Mapping[str, ClientKey]) -> ClientKey | None:
    """Whose key one of these is, among keys by digest. The time depends on a digest of 256 bits, which nobody can choose, so it
    tells nothing about a key."""
    return next((found for key in shown if (found := keys.get(_digest(key)))), None)


class KeyRing:
    """The keys as the file has them now. A change counts from the next request on."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._seen: tuple[int, int, int] | None = None
        self._keys: Mapping[str, ClientKey] | None = None
        self._were_any = False

    def current(self) -> Mapping[str, ClientKey] | None:
        """The keys by their digests; None if the gateway asks for no key. If the file vanishes while the gateway runs, no key is
        right until it is back. Raises CallerError."""
        try:
            status = self._path.stat()
            seen = (status.st_mtime_ns, status.st_size, status.st_ino)
        except OSError:
            seen = None
        if seen is None or seen != self._seen:
            read = read_keys(self._path)
            self._keys, self._seen = None if read is None else {key.sha256: key for key in read}, seen
            self._were_any = self._were_any or self._keys is not None
        return {} if self._keys is None and self._were_any else self._keys


def _digest(key: str) -> str:
    return hashlib.sha256(key.encode(errors="surrogatepass")).hexdigest()


def _write(path: Path, content: KeyFile) -> None:
    """Beside the file and then in its place, for its owner alone: whoever reads meanwhile has the old or the new one, whole.
    Raises CallerError, and nothing has changed, for a file that would be too long to be read again."""
    compact = msgspec.json.encode(content)
    written = msgspec.json.format(compact, indent=2) + b"\n"
    if len(written) > MAX_FILE_BYTES:
        written = compact
    if len(written) > MAX_FILE_BYTES:
        raise CallerError(f"`{path}` is full: it may have {MAX_FILE_BYTES:,} bytes; revoke keys that nobody uses")
    with in_place_of(Path(os.path.realpath(path))) as descriptor, os.fdopen(descriptor, "wb") as file:
        file.write(written)
        file.flush()
        os.fsync(file.fileno())


@contextlib.contextmanager
def _alone(path: Path) -> Generator[None]:
    """Of two commands that change the file at once, the second waits. Where the system has no such locks it does not."""
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        with path.with_suffix(".lock").open("a") as lock:
            try:
                import fcntl
            except ImportError:
                pass
            else:
                fcntl.flock(lock, fcntl.LOCK_EX)
            yield
    except OSError as error:
        raise CallerError(f"`{path}` cannot be written: {error.strerror or error}") from None
