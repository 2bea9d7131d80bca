"""How much one client may use, and all clients together: sizes, counts and seconds. `[bounds]` of gateway.toml."""

import asyncio
import contextlib
import hashlib
import os
import re
import secrets
from collections.abc import Generator, Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Protocol, TypeVar

import msgspec

from turnwise.base.clock import Clock, Timer
from turnwise.base.unasked_files import LeftOut, read_of_user
from turnwise.base.whole_files import in_place_of
from turnwise.errors import CallerError
from turnwise.settings.catalogue import with_near_field
from turnwise.settings.settings import user_folder

if TYPE_CHECKING:
    from turnwise.gateway.client_limits import LimitedClient

K = TypeVar("K")
MIB = 1024 * 1024
LONG_ANSWER_BYTES = 4 * MIB
SILENT_S = 1.0  # a provider is silent after this: at the bound, the next answer is read

_Count = Annotated[int, msgspec.Meta(ge=1)]
_Seconds = Annotated[float, msgspec.Meta(gt=0, le=86_400)]


class Bounds(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Over a bound, a request gets an error in its client's family; over a bound on time or on the head, the connection also
    ends."""

    body_bytes: _Count = 32 * MIB  # Anthropic's Messages API accepts this much (its docs, "Request size limits")
    response_bytes: _Count = 64 * MIB  # of an upstream's answer: the kept part of a stream, or the whole body
    answers_bytes: _Count = 512 * MIB  # of all running answers, as they came from upstream
    head_bytes: _Count = 32 * 1024  # request line and headers, as nginx's large_client_header_buffers
    query_bytes: _Count = 4 * 1024
    depth: _Count = (
        100  # of JSON: schemas of tools are nested, but OpenAI and Google refuse those of more than 10 and 5 levels
    )
    streams: _Count = 1000  # requests at once, from the first byte of the body to the last byte of the answer
    connections: _Count = 2000
    head_s: _Seconds = 10.0  # from the first byte to the end of the headers
    body_s: _Seconds = 120.0  # to send the body
    idle_s: _Seconds = 75.0  # between two requests; longer than clients keep a connection, as nginx
    unread_s: _Seconds = 300.0  # how long a client may leave an answer unread
    socket_idle_s: _Seconds = 3600.0  # between two requests over a WebSocket; OpenAI's own ends after an hour
    contexts_bytes: _Count = 256 * MIB  # of what WebSockets' clients may go on from


class OpenAnswer:
    """How much of its answer one request has read, one portion late. `Exchange` reports it, and waits here before it reads on."""

    def __init__(self, every: "OpenAnswers") -> None:
        self._every = every
        self.size = 0
        self.received_bytes = 0  # in all, once the provider's answers are over; also for an answer without a stream
        self.has_grown = False  # since the other answers were last checked
        self.is_silent = False
        self.is_waiting = False

    @property
    def is_to_wait(self) -> bool:
        return self._every.is_full and self.size > self._every.share_bytes and not self._every.is_next(self)

    def grow(self, size: int) -> None:
        self.size += size
        self._every.size += size
        self.has_grown, self.is_silent = True, False

    def begin_anew(self) -> None:
        """The part that was read is given up."""
        self.grow(-self.size)
        self._every.wake()

    async def wait(self) -> None:
        """Wait until it may read on."""
        self.is_waiting = True
        try:
            while self.is_to_wait:
                await self._every.changed()
        finally:
            self.is_waiting = False


class OpenAnswers:
    """All running answers, and their `size` in bytes. At the bound, two kinds of answers are still read: those within their
    share, and the oldest of the others. That one ends and makes room, so the answers never all wait for each other. If its
    provider is silent meanwhile, it is skipped, as long as the others have read no more than a quarter of the bound."""

    def __init__(self, *, most_bytes: int, clock: Clock, share_bytes: int = 0) -> None:
        self.size = 0
        self.share_bytes = share_bytes
        self._most_bytes = most_bytes
        self._clock = clock
        self._look_at: Timer | None = None
        self._open: dict[OpenAnswer, None] = {}
        self._changed: asyncio.Future[None] | None = None

    def bound(self, *, most_bytes: int, share_bytes: int) -> None:
        """Other bounds from now on."""
        self._most_bytes, self.share_bytes = most_bytes, share_bytes
        self.wake()

    @property
    def is_full(self) -> bool:
        return self.size >= self._most_bytes

    def is_next(self, answer: OpenAnswer) -> bool:
        may_pass = self.size < self._most_bytes + self._most_bytes // 4
        begun = (each for each in self._open if each.size > self.share_bytes and not (may_pass and each.is_silent))
        return next(begun, answer) is answer

    @contextlib.contextmanager
    def open(self) -> Generator[OpenAnswer]:
        answer = OpenAnswer(self)
        self._open[answer] = None
        try:
            yield answer
        finally:
            del self._open[answer]
            answer.begin_anew()

    def wake(self) -> None:
        if self._changed is not None:
            self._changed.set_result(None)
            self._changed = None

    def _look(self) -> None:
        self._look_at = None
        for each in self._open:
            each.is_silent = not (each.has_grown or each.is_waiting)
        self.wake()

    async def changed(self) -> None:
        if self._changed is None:
            self._changed = asyncio.get_running_loop().create_future()
        if self._look_at is None:
            self._look_at = self._clock.call_later(SILENT_S, self._look)
            for each in self._open:
                each.has_grown = False
        await asyncio.shield(self._changed)


def give_memory_back() -> None:
    """Give freed memory back to the system. The C library keeps it otherwise: 110 MB after eight answers of 64 MB."""
    import ctypes  # only needed for long answers

    with contextlib.suppress(
        AttributeError, OSError, TypeError
    ):  # other C libraries lack this function, or do not need it
        ctypes.CDLL(None).malloc_trim(0)


# The keys of clients: a file of the user's that contains no key itself.
#
# A key is `tw-` and 256 random bits. Its SHA-256 is safe to store: slow hashes protect what people think up, and nobody finds 256
# random bits by guessing. Keys with limits, users and teams stand in the journal
# (`shared_clients.py`); those of this file are read on.


FILE = "gateway-keys.json"
PREFIX = "tw-"
RANDOM_BYTES = 32
MAX_FILE_BYTES = 4 * 1024 * 1024  # 20,000 keys, read and written

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}", re.ASCII)


class ClientKey(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One key, without the key itself. `sha256` is in hex, `added` a date."""

    name: str
    sha256: str
    admin: bool = False
    added: str


class KeyFile(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    keys: tuple[ClientKey, ...] = ()


def key_file(env: Mapping[str, str]) -> Path:
    """The path of the key file of this user's gateway, whether or not it exists."""
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
    """The new key, which is stored nowhere else. Raises CallerError for a name that is taken or invalid."""
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
    """From now on the key opens nothing, also in a running gateway. The file stays: if no key is left, nobody is let in. Raises
    CallerError if there is no such key."""
    with _alone(path):
        keys = read_keys(path) or ()
        left = tuple([each for each in keys if each.name != name])
        if len(left) == len(keys):
            raise CallerError(f"there is no key `{name}`: `turnwise gateway keys list` shows the names")
        _write(path, KeyFile(keys=left))


def find_client(shown: Iterable[str], *, keys: Mapping[str, K]) -> K | None:
    """The client whose key is among the `shown` ones, by digest. The time depends on a digest of 256 bits, which nobody can
    choose, so it tells nothing about a key."""
    return next((found for key in shown if (found := keys.get(_digest(key)))), None)


class JournalClients(Protocol):
    """The clients whose keys stand in the journal."""

    def over(self, file: Mapping[str, ClientKey] | None, /) -> "Mapping[str, ClientKey | LimitedClient] | None":
        """Those of the file and of the journal. Raises CallerError."""
        ...

    def uses(self, client: "LimitedClient", /) -> bool:
        """Whether the client's key still holds."""
        ...


class KeyRing:
    """The current keys of the file and of the journal. A change of the file counts from the next request on, one of the journal
    a second later."""

    def __init__(self, path: Path, *, shared: "JournalClients | None" = None) -> None:
        self._path = path
        self._shared = shared
        self._seen: tuple[int, int, int] | None = None
        self._keys: Mapping[str, ClientKey] | None = None
        self._were_any = False

    def current(self) -> "Mapping[str, ClientKey | LimitedClient] | None":
        """The keys by their digests; None if the gateway asks for no key. Raises CallerError."""
        return self._of_file() if self._shared is None else self._shared.over(self._of_file())

    def holds(self, client: "ClientKey | LimitedClient") -> bool:
        """Whether the key holds at this moment; its use is noted."""
        return self._shared is None or isinstance(client, ClientKey) or self._shared.uses(client)

    def _of_file(self) -> Mapping[str, ClientKey] | None:
        """None if there is no file. If it vanishes while the gateway runs, no key is right until the file is back."""
        try:
            status = self._path.stat()
            seen = (status.st_mtime_ns, status.st_size, status.st_ino)
        except OSError:
            seen = None
        if seen is None or seen != self._seen:
            read = read_keys(self._path)
            self._keys, self._seen = None if read is None else {key.sha256: key for key in read}, seen
            self._were_any = self._were_any or self._keys is not None
        return _NO_KEYS if self._keys is None and self._were_any else self._keys


_NO_KEYS: Mapping[str, ClientKey] = {}


def close_doors(path: Path) -> None:
    """From now on every request needs a key: the file is there, with or without keys. Raises CallerError."""
    with _alone(path):
        if read_keys(path) is None:
            _write(path, KeyFile())


def _digest(key: str) -> str:
    return hashlib.sha256(key.encode(errors="surrogatepass")).hexdigest()


def _write(path: Path, content: KeyFile) -> None:
    """Write the file beside the old one, for its owner only, then move it into place: a reader always gets the whole old or the
    whole new file. If it would be too long to be read again, this raises CallerError and changes nothing."""
    compact = msgspec.json.encode(content)
    written = msgspec.json.format(compact, indent=2) + b"\n"
    if len(written) > MAX_FILE_BYTES:
        written = compact
    if len(written) > MAX_FILE_BYTES:
        raise CallerError(f"`{path}` is full: it may have {MAX_FILE_BYTES:,} bytes; revoke keys that nobody uses")
    with in_place_of(Path(os.path.realpath(path))) as file:
        file.write(written)


@contextlib.contextmanager
def _alone(path: Path) -> Generator[None]:
    """If two commands change the file at once, the second waits. On a system without such locks it does not."""
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
