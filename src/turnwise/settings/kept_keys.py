"""The keys that the user has stored with `turnwise auth add`, and where each one goes.

A file tells which provider has a key, its origin (scheme, host and port), and whether the key is in the system's keyring or in
the file itself. The keyring has the origin in the name of the entry, so what is written into the file cannot turn a key towards
another address. Nothing here reads the environment for keys, or writes one there.
"""

import contextlib
import functools
import importlib
import os
import queue
import stat
import sys
import threading
from collections.abc import Callable, Generator, Mapping
from pathlib import Path
from typing import Any, Literal

import msgspec

from turnwise.base.whole_files import in_place_of
from turnwise.errors import CallerError
from turnwise.settings.settings import state_folder

KeyPlace = Literal["keyring", "file"]
KEYRING_S = 2.0
"""A keyring that is there answers in 20 ms; a locked one waits for its password."""
MOST_KEY_CHARS = 8192  # cloud tokens have up to 2,000
LEAST_KEY_CHARS = 8
_SERVICE = "turnwise"
# Named, and not looked for: `keyring` itself would load what a file of settings or an installed package tells it to.
_BACKENDS = {"darwin": ("macOS", "Keyring"), "win32": ("Windows", "WinVaultKeyring")}
_SECRET_SERVICE = ("SecretService", "Keyring")
_MOST_BYTES = 1024 * 1024
_SAFE = getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_NONBLOCK", 0)


class NoKeyring(CallerError):
    """No keyring answers here. The message says why."""


class KeptKey(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Where one provider's key is, and where it may go. `end` are its last four characters. `key` is in the file alone."""

    origin: str
    place: KeyPlace
    end: str = ""
    key: str = ""

    def __repr__(self) -> str:
        return f"KeptKey(origin={self.origin!r}, place={self.place!r})"


def keys_file(env: Mapping[str, str]) -> Path:
    """The file, whether it is there or not. By its name it is one of the secrets of `rules/guarded_names`, wherever it lies."""
    return state_folder(env) / "keys" / "credentials.json"


def clean_key(text: str) -> str:
    """The key in a pasted or piped text: without the marks of a bracketed paste, line breaks, blanks and quotes around it. Raises
    CallerError, which shows nothing of it."""
    key = "".join(text.replace("\x1b[200~", "").replace("\x1b[201~", "").split()).strip("\"'")
    if not key:
        raise CallerError("no key was given")
    if not LEAST_KEY_CHARS <= len(key) <= MOST_KEY_CHARS:
        raise CallerError(
            f"that is no key: it has {len(key)} characters ({LEAST_KEY_CHARS} to {MOST_KEY_CHARS} can be one)"
        )
    if not (key.isascii() and key.isprintable()):
        raise CallerError("that is no key: it has characters that no key has")
    return key


def kept_keys(env: Mapping[str, str]) -> dict[str, KeptKey]:
    """By provider. Raises CallerError where the file is a link, others may read it, or it is broken."""
    path = keys_file(env)
    try:
        folder = os.open(path.parent, os.O_RDONLY | getattr(os, "O_DIRECTORY", 0) | _SAFE)
    except FileNotFoundError:
        return {}
    except OSError as error:
        raise _unsafe(path.parent, f"is no folder of its own ({error.strerror})") from None
    try:
        _refuse_shared(folder, path=path.parent)
        descriptor = os.open(path.name, os.O_RDONLY | _SAFE, dir_fd=folder)
    except FileNotFoundError:
        return {}
    except OSError as error:
        raise _unsafe(path, f"is no file of its own ({error.strerror})") from None
    finally:
        os.close(folder)
    with os.fdopen(descriptor, "rb") as file:
        if not stat.S_ISREG(_refuse_shared(descriptor, path=path).st_mode):
            raise _unsafe(path, "is no regular file")
        try:
            return msgspec.json.decode(file.read(_MOST_BYTES), type=dict[str, KeptKey])
        except msgspec.MsgspecError:  # its text could show a key
            raise CallerError(f"`{path}` is broken: remove it, and add your keys again") from None


def _refuse_shared(descriptor: int, *, path: Path) -> os.stat_result:
    found = os.fstat(descriptor)
    if sys.platform != "win32" and (found.st_uid != os.geteuid() or stat.S_IMODE(found.st_mode) & 0o077):
        raise _unsafe(path, "can be read by others, or is not yours")
    return found


def _unsafe(path: Path, why: str) -> CallerError:
    return CallerError(f"`{path}` {why}, so no key is read from it: remove it, and add your keys again")


def keep_key(
    provider: str, key: str, *, origin: str, env: Mapping[str, str], in_file: bool = False, shows_end: bool = True
) -> tuple[KeptKey, str]:
    """Store the provider's key, in place of one that was there; with what was stored comes why it is in the file, where no
    keyring answers. The login of an MCP server is a key, too, under the server's address. Raises CallerError."""
    kept_keys(env)  # nothing is asked for a file that cannot be written
    why, place = "", "file"
    if not in_file:
        try:
            _in_keyring(lambda ring: ring.set_password(_SERVICE, _entry(provider, origin), key))
            place = "keyring"
        except NoKeyring as error:
            why = str(error)
    end = key[-4:] if len(key) >= 20 and shows_end else ""  # of a short key it would be too much
    kept = KeptKey(origin=origin, place=place, end=end, key=key if place == "file" else "")
    with _alone(env) as before:
        _write({**before, provider: kept}, env=env)
    if (old := before.get(provider)) is not None and (old.place, old.origin) != (kept.place, origin):
        _forget(old, provider=provider)
    kept_text_of.cache_clear()
    return kept, why


def drop_key(provider: str, *, env: Mapping[str, str]) -> str:
    """Remove the provider's key; returns why its entry in the keyring is still there, or nothing. Raises CallerError."""
    why = _forget(kept_keys(env)[provider], provider=provider)
    with _alone(env) as before:
        _write({name: kept for name, kept in before.items() if name != provider}, env=env)
    kept_text_of.cache_clear()
    return why


def kept_text(kept: KeptKey, *, provider: str) -> str:
    """The key itself. Raises CallerError if the keyring does not give it."""
    return kept.key or kept_text_of(provider, kept.origin)


@functools.cache  # a session sets itself up again with `/model` and `/new`
def kept_text_of(provider: str, origin: str) -> str:
    try:
        found = _in_keyring(lambda ring: ring.get_password(_SERVICE, _entry(provider, origin)))
    except NoKeyring as error:
        raise CallerError(
            f"the key of `{provider}` is in the system's keyring: {error}. Unlock it, or set the provider's variable"
        ) from None
    if not isinstance(found, str) or not found:
        raise CallerError(f"the system's keyring has no key of `{provider}` any more: `turnwise auth add {provider}`")
    return found


def _forget(kept: KeptKey, *, provider: str) -> str:
    if kept.place == "keyring":
        try:
            _in_keyring(lambda ring: ring.delete_password(_SERVICE, _entry(provider, kept.origin)))
        except NoKeyring as error:
            return str(error)
    return ""


def _entry(provider: str, origin: str) -> str:
    return f"{provider} at {origin}"


@contextlib.contextmanager
def _alone(env: Mapping[str, str]) -> Generator[dict[str, KeptKey]]:
    """The keys there are, for one who changes them: another one waits. On a system without such locks it does not. Raises
    CallerError."""
    path = keys_file(env).parent
    try:
        for folder in (path.parent, path):  # the mode is for the last one alone
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        raise CallerError(f"`{path}` cannot be made: {error.strerror or error}") from None
    kept_keys(env)  # the folder may have been made by somebody else, meanwhile
    if sys.platform == "win32":
        yield kept_keys(env)
        return
    import fcntl

    lock = os.open(path, os.O_RDONLY | os.O_DIRECTORY | _SAFE)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield kept_keys(env)
    finally:
        os.close(lock)


def _write(keys: Mapping[str, KeptKey], *, env: Mapping[str, str]) -> None:
    with in_place_of(keys_file(env)) as file:
        file.write(msgspec.json.format(msgspec.json.encode(keys), indent=1))


def _in_keyring(work: Callable[[Any], object]) -> object:
    """What the system's keyring answers to it. Raises NoKeyring if none is there or does not answer in time: then the thread is
    left behind, and ends with the process."""
    answers: queue.SimpleQueue[object] = queue.SimpleQueue()
    module, name = _BACKENDS.get(sys.platform, _SECRET_SERVICE)
    try:
        import keyring.backends  # 0.1 s, and most runs have no need of it

        backend = getattr(importlib.import_module(f"{keyring.backends.__name__}.{module}"), name)
    except ImportError:
        raise NoKeyring("no keyring: pip install 'turnwise[keyring]'") from None

    def ask() -> None:
        try:
            backend.priority  # noqa: B018 (raises where the keyring cannot be used)
            answers.put(work(backend()))
        except Exception:  # noqa: BLE001 (each backend has errors of its own)
            answers.put(NoKeyring("no keyring answers here"))

    threading.Thread(target=ask, name="keyring", daemon=True).start()
    try:
        answer = answers.get(timeout=KEYRING_S)
    except queue.Empty:
        raise NoKeyring(f"the keyring did not answer within {KEYRING_S:g} s") from None
    if isinstance(answer, NoKeyring):
        raise answer
    return answer
