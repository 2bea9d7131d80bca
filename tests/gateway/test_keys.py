"""Keys of clients: made once, hashed at rest, found by comparison, and gone when revoked."""

import hashlib
import re
import stat
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

import msgspec
import pytest

from turnwise.errors import CallerError
from turnwise.gateway.client_bounds import (
    MAX_FILE_BYTES,
    ClientKey,
    KeyFile,
    KeyRing,
    add_key,
    find_client,
    key_file,
    read_keys,
    revoke_key,
)
from waits import HANG_S

TODAY = "2026-11-23"


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return key_file({"XDG_CONFIG_HOME": str(tmp_path / "config")})


def test_a_key_has_256_random_bits_and_stands_in_no_file(path: Path) -> None:
    """Issue 19, Doors: hashed at rest. The file is its owner's alone, and so is the folder that was made for it."""
    key = add_key(path, "laptop", admin=False, today=TODAY)
    assert re.fullmatch(r"tw-[A-Za-z0-9_-]{43}", key)
    assert msgspec.json.decode(path.read_bytes()) == {
        "keys": [{"name": "laptop", "sha256": hashlib.sha256(key.encode()).hexdigest(), "admin": False, "added": TODAY}]
    }
    assert (stat.S_IMODE(path.stat().st_mode), stat.S_IMODE(path.parent.stat().st_mode)) == (0o600, 0o700)
    assert sorted([each.name for each in path.parent.iterdir()]) == ["gateway-keys.json", "gateway-keys.lock"]


def test_the_owner_of_a_key_is_found_among_all(path: Path) -> None:
    """Whichever of the keys that a client shows is known; a hash is no key."""
    one, two = [add_key(path, name, admin=name == "two", today=TODAY) for name in ("one", "two")]
    keys = KeyRing(path).current() or {}
    found = [find_client(shown, keys=keys) for shown in ([one], ["no", two], [*keys], [two + " "], [""], [])]
    assert [client and (client.name, client.admin) for client in found] == [
        ("one", False),
        ("two", True),
        None,
        None,
        None,
        None,
    ]


def test_a_revoked_key_opens_nothing_and_the_doors_stay_closed(path: Path) -> None:
    """In a gateway that runs. The last key that goes does not let everybody in."""
    ring = KeyRing(path)
    assert ring.current() is None
    key = add_key(path, "laptop", admin=False, today=TODAY)
    assert find_client([key], keys=ring.current() or {}) is not None
    revoke_key(path, "laptop")
    assert ring.current() == {}


def test_a_file_that_vanishes_lets_nobody_in_until_it_is_back(path: Path) -> None:
    """Nor does a damaged one: the gateway says so, and goes on once it can be read."""
    ring = KeyRing(path)
    key = add_key(path, "laptop", admin=False, today=TODAY)
    whole = path.read_bytes()
    assert len(ring.current() or {}) == 1
    path.unlink()
    assert ring.current() == {}
    path.write_bytes(whole[:40])
    with pytest.raises(CallerError, match="holds no keys"):
        ring.current()
    with pytest.raises(CallerError, match="holds no keys"):
        ring.current()
    path.write_bytes(whole)
    assert find_client([key], keys=ring.current() or {}) is not None


@pytest.mark.parametrize("name", ["", "-x", "a b", "a/b", "ü", "a" * 65, "a\n"])
def test_a_name_of_a_key_is_plain(path: Path, name: str) -> None:
    """It stands in tables, logs and configurations. Nothing is written."""
    with pytest.raises(CallerError, match="no name of a key"):
        add_key(path, name, admin=False, today=TODAY)
    assert not path.exists()


def test_a_name_is_given_once_and_revoked_once(path: Path) -> None:
    """The message says what to do; the key of before goes on."""
    key = add_key(path, "laptop", admin=False, today=TODAY)
    with pytest.raises(CallerError, match="there is a key `laptop` already"):
        add_key(path, "laptop", admin=True, today=TODAY)
    with pytest.raises(CallerError, match="there is no key `desk`"):
        revoke_key(path, "desk")
    found = find_client([key], keys=KeyRing(path).current() or {})
    assert found is not None and not found.admin


def test_one_key_is_looked_up_and_none_compared_with_each() -> None:
    """Issue 40: a request without a valid key cost 558 ms with 10,000 keys. The keys are asked once for each that is shown."""
    asked: list[str] = []

    class Asked(Mapping[str, ClientKey]):
        def __getitem__(self, key: str) -> ClientKey:
            asked.append(key)
            raise KeyError(key)

        def __iter__(self) -> Iterator[str]:
            raise AssertionError("every key was looked at")

        def __len__(self) -> int:
            return 2

    assert find_client(["tw-one", "tw-two"], keys=Asked()) is None
    assert asked == [hashlib.sha256(key).hexdigest() for key in (b"tw-one", b"tw-two")]


def test_a_full_file_takes_no_key_and_goes_on_opening_the_doors(path: Path) -> None:
    """Issue 40: the key that crossed the bound of the file (the 24,592nd) shut all clients out. That key is refused, and the file
    stays as it is: it can be read, it loses a key, and then it takes another."""
    row = ClientKey(name="key-000000", sha256="0" * 64, added=TODAY)
    number = MAX_FILE_BYTES // (len(msgspec.json.encode(row)) + 1) - 2  # written compactly, two more find room
    rows = [msgspec.structs.replace(row, name=f"key-{at:06}", sha256=f"{at:064}") for at in range(number)]
    path.parent.mkdir(parents=True)
    path.write_bytes(msgspec.json.encode(KeyFile(keys=tuple(rows))))
    kept: list[str] = []
    with pytest.raises(CallerError, match=r"is full: it may have 4,194,304 bytes; revoke keys"):
        for at in range(9):
            kept.append(add_key(path, f"new-{at:06}", admin=False, today=TODAY))
    assert len(kept) in (1, 2, 3)
    keys = KeyRing(path).current() or {}
    assert (len(keys), all(find_client([key], keys=keys) for key in kept)) == (number + len(kept), True)
    revoke_key(path, "key-000001")
    add_key(path, "new-x", admin=False, today=TODAY)


def test_an_unknown_field_of_the_file_is_told(path: Path) -> None:
    """A file of a later version must not be read as one without its restrictions."""
    add_key(path, "laptop", admin=False, today=TODAY)
    path.write_text(path.read_text().replace('"admin"', '"admins"'))
    with pytest.raises(CallerError, match=r"unknown field `admins` \(did you mean `admin`\?\)"):
        read_keys(path)


@pytest.mark.costly
def test_keys_that_are_added_at_once_all_stay(path: Path) -> None:
    """Eight processes, each with four keys of its own: each waits for the file."""
    code = (
        "import sys; from pathlib import Path; from turnwise.gateway.client_bounds import add_key\n"
        "for at in range(4): add_key(Path(sys.argv[1]), f'{sys.argv[2]}-{at}', admin=False, today='2026-11-23')"
    )
    processes = [subprocess.Popen([sys.executable, "-c", code, str(path), f"p{at}"]) for at in range(8)]
    assert [process.wait(HANG_S) for process in processes] == [0] * 8
    assert {key.name for key in read_keys(path) or ()} == {f"p{one}-{two}" for one in range(8) for two in range(4)}
