"""A folder, a journal and a lab for every test of the command line."""

import os
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from terminal.forking import ending_the_fork_server
from terminal.running import Cli, end_what_is_left, running_lab, script
from turnwise.lab import Lab
from turnwise.wire.profiles import builtin_profiles

HOSTILE = script(
    "hostile",
    r"""
[[steps]]
text = "a\u001b]0;pwned\u0007b\rOVER\u001b[2Jc\u202eevil\u009b31m\nnext line"
calls = [{ name = "read", arguments = { path = "no\u001b[2J.txt" } }, { name = "re\u001b[31mad", arguments = {} }]

[[steps]]
text = "Done\u001b[5m."
""",
)
SLOW_BASH = script(
    "slow-bash",
    """
[[steps]]
calls = [{ name = "bash", arguments = { command = "echo $$ > begun.txt; exec sleep 60" } }]

[[steps]]
text = "It said: {result}"
""",
)
TELLS_ITS_END = script(
    "tells-its-end",
    """
[[steps]]
calls = [{ name = "bash", arguments = { command = "echo $$ > begun.txt; sleep 60; echo x > ended.txt" } }]

[[steps]]
text = "It said: {result}"
""",
)
STALLS_FIRST = script(
    "stalls-first",
    """
[[steps]]
text = "All of it, in the end."
faults = [{ kind = "stall", at = "text", text = "The beginning of" }]
""",
)
STUBBORN = script(
    "stubborn",
    """
[[steps]]
calls = [{ name = "bash", arguments = { command = "trap '' INT TERM; echo $$ > begun.txt; sleep 60; sleep 60" } }]

[[steps]]
text = "It said: {result}"
""",
)
TELL_ENV = script(
    "tell-env",
    """
[[steps]]
calls = [{ name = "bash", arguments = { command = "env" } }]

[[steps]]
text = "Seen."
""",
)
DELEGATES_BY_PROGRAM = script(
    "delegates-by-program",
    """
[[steps]]
[[steps.calls]]
name = "script"
[steps.calls.arguments]
program = "print(task(agent='general', prompt='The same.'))"
[[steps]]
text = "It printed: {result}"
""",
)
SEARCHES = script(
    "searches",
    """
[[steps]]
text = "Found."

[[steps.items]]
family = "openai_responses"
kind = "web_search_call"
json = '{"type":"web_search_call","id":"ws_1","status":"completed"}'
""",
)
KEY = "sk-test-1234567890abcdef"
LEAKY = script("leaky", f'[[steps]]\nfault = {{ kind = "status", status = 401, message = "wrong key {KEY} for you" }}')


@pytest.fixture(scope="session", autouse=True)
def _fork_server_ends() -> Iterator[None]:
    with ending_the_fork_server():
        yield


@pytest.fixture(scope="session")
def shared_lab() -> Iterator[Lab]:
    with running_lab(
        [HOSTILE, SLOW_BASH, TELLS_ITS_END, STALLS_FIRST, STUBBORN, TELL_ENV, LEAKY, DELEGATES_BY_PROGRAM, SEARCHES]
    ) as lab:
        yield lab


@pytest.fixture
def lab(shared_lab: Lab) -> Lab:
    shared_lab.reset()
    return shared_lab


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The current folder, with a blank in its name; the journal beside it, and no key, setting or certificate from outside."""
    folder = tmp_path / "mäin folder"
    folder.mkdir()
    (folder / "notes.txt").write_text("status: draft\n")
    (folder / "todo.txt").write_text("nothing\n")
    monkeypatch.chdir(folder)
    monkeypatch.setenv("TURNWISE_STATE_DIR", str(tmp_path / "state"))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("TURNWISE_LOCAL_PORTS", "")  # what listens on this machine is no business of a test
    monkeypatch.delenv("DBUS_SESSION_BUS_ADDRESS", raising=False)  # nor is the keyring of whoever runs it
    # The lab speaks plain HTTP: the certificates of all the world take each process 40 ms of CPU time for nothing.
    monkeypatch.setenv("SSL_CERT_FILE", os.devnull)
    # A user has it rarely, and without it what could not be written is still in a buffer at the end.
    monkeypatch.delenv("PYTHONUNBUFFERED", raising=False)
    names = {name for profile in builtin_profiles().values() for name in profile.api_key_env}
    ours = {"TURNWISE_MODEL", "TURNWISE_BASE_URL", "TURNWISE_CONFIG"}
    for name in {*names, *ours, "NO_COLOR", "FORCE_COLOR"} & set(os.environ):
        monkeypatch.delenv(name)
    yield folder
    end_what_is_left()


@pytest.fixture
def noon() -> Iterator[None]:
    """It is noon here, so no day ends between a run and what is said of that day."""
    with pytest.MonkeyPatch.context() as zone:
        zone.setenv("TZ", f"<noon>{time.gmtime().tm_hour - 12:+d}")  # POSIX counts westward
        time.tzset()
        yield
    time.tzset()


@pytest.fixture
def cli(folder: Path, capsys: pytest.CaptureFixture[str]) -> Cli:
    return Cli(capsys)


@pytest.fixture
def own_file(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The user's own file of settings, empty."""
    path = tmp_path_factory.mktemp("own") / "turnwise.toml"
    path.touch()
    monkeypatch.setenv("TURNWISE_CONFIG", str(path))
    return path
