"""The first minute: a prompt that opens a session; a key that is pasted, tried, kept, and sent to its provider alone (issue
46)."""

import json
import os
import shutil
import socket
import stat
import subprocess
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from terminal.person import ENTER, at_terminal
from terminal.running import Cli, Ran, begin, end, running_lab, script
from turnwise.rules.guarded_names import is_secret
from turnwise.settings.kept_keys import KEYRING_S, drop_key, keep_key, kept_keys, keys_file
from waits import HANG_S

KEY = "house-0123456789abcdefWXYZ"
PASTED = f"\x1b[200~{KEY[:12]}\r\n{KEY[12:]}\n\x1b[201~"
ANSWER = script("aardvark", '[[steps]]\ntext = "Good day."')
LOOKED = "found.txt"
LOOKS = script(
    "looks",
    f"""
[[steps]]
calls = [{{ name = "bash", arguments = {{ command = "sh look.sh > {LOOKED} 2>&1" }} }}]

[[steps]]
text = "Looked."
""",
)
LOOK = """
env
cat "$STATE"/keys/credentials.json "$HOME"/.local/state/turnwise/keys/credentials.json
cat /proc/$PPID/environ /proc/*/environ
ps axeww
DBUS_SESSION_BUS_ADDRESS='@AT@' secret-tool search --all service turnwise
echo looked
"""
KEYRING = """
printf pw | gnome-keyring-daemon --unlock --components=secrets >/dev/null 2>&1 && echo "$DBUS_SESSION_BUS_ADDRESS" && exec cat
"""
NEEDED = ("dbus-run-session", "gnome-keyring-daemon", "secret-tool")


@pytest.fixture
def keyring(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """The address of a session bus with an unlocked gnome-keyring, which is in the environment, too."""
    if missing := [program for program in NEEDED if shutil.which(program) is None]:
        pytest.skip(f"{', '.join(missing)} missing; no keyring is tested (`.ci/run` installs them)")
    home = tmp_path / "keyring"
    home.mkdir()
    env = {**os.environ, "HOME": str(home), "XDG_RUNTIME_DIR": str(home)}
    bus = subprocess.Popen(
        ["dbus-run-session", "--", "sh", "-c", KEYRING],
        env=env,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    with bus:
        assert bus.stdout is not None and bus.stdin is not None
        address = bus.stdout.readline().strip()
        assert address, "gnome-keyring did not start"
        monkeypatch.setenv("DBUS_SESSION_BUS_ADDRESS", address)
        try:
            yield address
        finally:
            bus.stdin.close()
            bus.wait(HANG_S)


def house(folder: Path, url: str) -> None:
    """An endpoint of the user's own, at that address."""
    file = folder / "config" / "turnwise" / "turnwise.toml"
    file.parent.mkdir(parents=True, exist_ok=True)
    row = 'family = "openai_chat"\napi_key_env = ["HOUSE_KEY"]'
    file.write_text(f'[endpoints.house]\n{row}\nbase_url = "{url}/v1"\n')


def add(folder: Path, url: str, *args: str, key: str = KEY) -> Ran:
    """`turnwise auth add house` with the key in a pipe."""
    house(folder, url)
    return given(f"\n {key}\n", "auth", "add", "house", *args)


def given(text: str, *args: str) -> Ran:
    """`turnwise ARGS` with that text as its standard input."""
    reading, writing = os.pipe()
    os.write(writing, text.encode())
    os.close(writing)
    process = begin(*args, cwd=Path.cwd(), stdin=reading, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    os.close(reading)
    return end(process)


def test_a_new_user_pastes_a_key_and_the_first_prompt_is_answered(folder: Path, tmp_path: Path) -> None:
    """Pasted in brackets and broken over two lines; not echoed; a wrong one is not kept; a misspelt provider is asked for again,
    the key is not. The session begins with the prompt that stood on the command line, and the next one needs no question."""
    with running_lab([ANSWER], key=KEY) as lab:
        house(tmp_path, lab.url)
        with at_terminal("Hello there.", cwd=folder) as person:
            person.sees("paste a provider's key below")
            person.sees("key or model:")
            person.types(f"HOUSE_KEY=wrong{KEY}{ENTER}")  # no variable of a provider that turnwise ships
            person.sees("whose key is it?")
            person.types(f"house{ENTER}")
            person.sees("house refused the key: HTTP 401")
            person.sees("key or model:")
            person.types(f"k{ENTER}")
            person.sees("paste the key (it is not shown):")
            person.types(f"{PASTED}{ENTER}")
            person.sees("whose key is it?")
            person.types(f"hosue{ENTER}")
            person.sees("`hosue` is no provider")
            person.sees("whose key is it?")
            person.types(f"house{ENTER}")
            person.sees("house did not refuse the key: it lists")
            person.sees("which only you can read (no keyring answers here); it goes to http://127.0.0.1:")
            person.sees("model [1]:")
            person.types(f"aardvark{ENTER}")
            person.sees("> Hello there.")
            person.sees("Good day.")
            person.types("/quit\r")
            person.leaves_by(0)
            assert KEY not in person.raw and KEY[12:] not in person.raw
        with at_terminal("Again.", "-c", cwd=folder) as person:
            person.sees("> Again.")
            person.sees("Good day.")
            person.types("/quit\r")
            person.leaves_by(0)
    file = keys_file(os.environ)
    modes = [stat.S_IMODE(path.stat().st_mode) for path in (file, file.parent)]
    assert modes == [0o600, 0o700] and list(file.parent.iterdir()) == [file]
    assert KEY.encode() not in (tmp_path / "state" / "journal.db").read_bytes()
    assert is_secret(str(file)) and is_secret("/home/me/.local/state/turnwise/keys/credentials.json", home="/home/me")


@pytest.mark.parametrize("columns", [60, 80, 200])
def test_a_server_of_ones_own_is_given_a_key_at_the_first_start(
    folder: Path, tmp_path: Path, cli: Cli, columns: int
) -> None:
    """Proves (issue 46): who types the URL of a server that wants a key is asked for it. A wrong one is refused and not kept, a
    broken one is put together, and the next start needs neither question nor variable. It goes to that server alone, and
    `turnwise auth` knows it by its URL."""
    with Strangers() as stranger, running_lab([ANSWER], key=KEY) as lab:
        with at_terminal("Hello there.", cwd=folder, columns=columns) as person:
            for key, said in (
                (f"wrong{KEY}", "refused the key: HTTP 401"),
                (PASTED, "did not refuse the key: it lists"),
            ):
                person.sees("key or model:")
                person.types(f"{lab.url}/v1{ENTER}")
                person.sees("it wants a key: paste it (it is not")
                person.types(f"{key}{ENTER}")
                person.sees(f"{lab.url} ")
                assert " ".join(person.sees(said.split()[-1]).split()) == said
            person.sees("model [1]:")
            person.types(f"aardvark{ENTER}")
            person.sees("> Hello there.")
            person.sees("Good day.")
            person.types("/quit\r")
            person.leaves_by(0)
            assert KEY not in person.raw and KEY[12:] not in person.raw
        assert cli("-p", "Again.").out == "Good day.\n"
        told = json.loads(cli("auth", "list", "--json").out)["keys"]
        assert [(one["provider"], one["goes_to"], one["ends_with"]) for one in told] == [(lab.url, lab.url, "WXYZ")]
        cli("-p", "Hi.", "-m", "openai_chat:aardvark", "--base-url", f"{stranger.url}/v1")
        assert stranger.seen and KEY not in "".join(stranger.seen)
        assert cli("auth", "remove", f"{lab.url}/v1").code == 0 and cli("-p", "Hi.").code == 6
        assert given(KEY, "auth", "add", lab.url).code == 0 and cli("-p", "Hi.").code == 0
    far = given(KEY, "auth", "add", "http://llm.invalid/v1", "--untried")
    assert "`http` encrypts nothing: the key can be read on the way to llm.invalid" in far.err
    for url in ("http://user:xyzzy@host/v1", "http://host/v1?key=x"):
        refused = cli("auth", "add", url)
        assert refused.code == 2 and "xyzzy" not in refused.err and "key=x" not in refused.err


def test_keys_are_added_listed_and_removed(
    folder: Path, tmp_path: Path, cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By a pipe. A refused key is not kept, nor one whose provider cannot be asked, unless that is said. What is listed shows
    four characters, and which variable comes first."""
    with running_lab([ANSWER], key=KEY) as lab:
        refused = add(tmp_path, lab.url, "--json", key=f"x{KEY}")
        assert refused.code == 1 and "refused the key: HTTP 401" in refused.err and KEY not in refused.err
        assert json.loads(refused.out)["exit_code"] == 1
        assert cli("auth", "list").out == "no key is stored: `turnwise auth add` stores one\n"
        kept = add(tmp_path, lab.url, "--json")
        assert (kept.code, KEY in kept.out + kept.err) == (0, False)
        told = {"provider": "house", "kept_in": "file", "goes_to": lab.url, "ends_with": "WXYZ", "comes_first": None}
        assert json.loads(kept.out).items() >= told.items()
        assert json.loads(cli("auth", "list", "--json").out)["keys"] == [told]
        assert "a key is stored in turnwise's file: house (`house`)" in cli("doctor", "-m", "house:aardvark").out
        ran = cli("-p", "Hi.", "-m", "house:aardvark")
        assert (ran.code, ran.out) == (0, "Good day.\n")
        monkeypatch.setenv("HOUSE_KEY", "another-key-0123456789")
        assert "HOUSE_KEY is set, and comes before the stored key of `house`" in cli("auth", "list").out
        assert cli("-p", "Hi.", "-m", "house:aardvark").code == 6
        monkeypatch.delenv("HOUSE_KEY")
        assert cli("auth", "remove", "house").code == 0 and KEY not in keys_file(os.environ).read_text()
        assert cli("auth", "remove", "house").code == 2
        url = lab.url
    gone = add(tmp_path, url)
    assert gone.code == 1 and "the key was not tried: no connection" in gone.err
    assert add(tmp_path, url, "--untried").code == 0
    shown = cli("auth", "add", "openai", f"sk-{KEY}")
    assert shown.code == 2 and KEY not in shown.err and "no key is taken from the command line" in shown.err
    swapped = given("sk-ant-0123456789abcdef", "auth", "add", "openai")
    assert swapped.code == 2 and "a key of `anthropic` by its beginning" in swapped.err


def test_the_file_is_refused_where_others_could_have_a_hand_in_it(folder: Path, tmp_path: Path, cli: Cli) -> None:
    file = keys_file(os.environ)
    with running_lab([ANSWER], key=KEY) as lab:
        assert add(tmp_path, lab.url).code == 0
        moved = file.rename(tmp_path / "elsewhere.json")
        for make, mend in (
            (lambda: file.symlink_to(moved), file.unlink),
            (lambda: shutil.copy(moved, file) and file.chmod(0o640), file.unlink),
            (lambda: file.parent.chmod(0o750), lambda: file.parent.chmod(0o700)),
            (lambda: file.write_text("{") and file.chmod(0o600), file.unlink),
            (lambda: os.mkfifo(file, 0o600), file.unlink),
        ):
            make()
            ran = cli("-p", "Hi.", "-m", "house:aardvark")
            assert ran.code == 2 and str(file.parent) in ran.err and KEY not in ran.err
            assert "keys" in ran.err and cli("doctor", "--offline").code == 1
            assert add(tmp_path, lab.url).code == 2  # nor is one written through it
            mend()
        assert lab.count() == 0


def test_keys_that_are_added_at_once_are_all_kept(tmp_path: Path) -> None:
    """Issue 46: one who changes the file waits for another; none is lost, and nothing else is left in the folder."""
    env = {"TURNWISE_STATE_DIR": str(tmp_path / "state")}
    names = [f"house-{number}" for number in range(12)]
    together = threading.Barrier(len(names))

    def keeps(name: str) -> None:
        together.wait(HANG_S)
        keep_key(name, KEY, origin="https://house.example", env=env, in_file=True)

    with ThreadPoolExecutor(len(names)) as pool:
        list(pool.map(keeps, names))
    assert sorted(kept_keys(env)) == sorted(names)
    with ThreadPoolExecutor(len(names)) as pool:
        list(pool.map(lambda name: drop_key(name, env=env), names[1:]))
    assert [*kept_keys(env)] == names[:1] and [*keys_file(env).parent.iterdir()] == [keys_file(env)]


class Stranger(BaseHTTPRequestHandler):
    """Keeps what it is asked, and sends everybody elsewhere, if it knows where."""

    seen: list[str]
    elsewhere = ""

    def _answer(self) -> None:
        self.seen.append(f"{self.path} {self.headers}")
        self.send_response(307 if self.elsewhere else 404)
        self.send_header("location", f"{self.elsewhere}{self.path}")
        self.send_header("content-length", "0")
        self.end_headers()

    do_GET = do_POST = do_CONNECT = _answer  # noqa: N815 (the names of the library)

    def log_message(self, format: str, *args: Any) -> None:
        pass


class Strangers:
    """A server that nobody's key is for; `elsewhere` is where it redirects to."""

    def __init__(self, elsewhere: str = "") -> None:
        self.seen: list[str] = []
        handler = type("Here", (Stranger,), {"seen": self.seen, "elsewhere": elsewhere})
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
        self.url = f"http://127.0.0.1:{self._server.server_port}"
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.01})

    def __enter__(self) -> "Strangers":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()


def test_a_stored_key_goes_to_its_own_address_alone(
    folder: Path, tmp_path: Path, cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever names another address: the command line, a variable, a project's file, a proxy, a redirect, a row that was
    changed later. Neither a run nor a list of models, a check or a comparison sends it there."""
    ways = (["-p", "Hi."], ["models", "house"], ["doctor"], ["check", "-y"], ["compare", "Hi.", "-y"])
    with Strangers() as stranger, running_lab([ANSWER], key=KEY) as lab:
        assert add(tmp_path, lab.url).code == 0
        before = lab.count()
        run = ("-p", "Hi.", "-m", "house:aardvark")
        for port in (stranger.url, lab.url.replace("127.0.0.1", "localhost")):
            ran = cli(*run, "--base-url", f"{port}/v1")
            assert ran.code == 2 and f"goes to {lab.url} alone" in ran.err
        (folder / "turnwise.toml").write_text(f'model = "house:aardvark"\nbase_url = "{stranger.url}/v1"\n')
        monkeypatch.setenv("TURNWISE_MODEL", "house:aardvark")
        for way in ways:
            cli(*way)
        (folder / "turnwise.toml").unlink()
        monkeypatch.setenv("TURNWISE_BASE_URL", f"{stranger.url}/v1")
        for way in ways:
            cli(*way)
        monkeypatch.delenv("TURNWISE_BASE_URL")
        house(tmp_path, stranger.url)  # the row is another one by now
        assert cli(*run).code == 2
        house(tmp_path, lab.url)
        monkeypatch.setenv("HTTP_PROXY", stranger.url)
        proxied = cli(*run)
        assert proxied.code == 2 and "does not go through the proxy" in proxied.err and "NO_PROXY" in proxied.err
        monkeypatch.delenv("HTTP_PROXY")
        assert KEY not in "".join(stranger.seen) and lab.count() == before
        assert cli(*run).code == 0
    with running_lab([ANSWER]) as lab, Strangers(lab.url) as redirects:
        assert add(tmp_path, redirects.url, "--untried").code == 0
        assert cli(*run).code == 6
        assert KEY in "".join(redirects.seen) and lab.count() == 0  # it is that server's own key, and goes no further


def looked(folder: Path, cli: Cli, *args: str, bus: str = "") -> str:
    """What a command of the model found that looks for the key in every place there is."""
    (folder / "look.sh").write_text(LOOK.replace("$STATE", os.environ["TURNWISE_STATE_DIR"]).replace("@AT@", bus))
    ran = cli("-p", "Look.", "-m", "house:looks", "--allow", "bash", *args)
    assert (ran.code, KEY in ran.out + ran.err) == (0, False), ran.err
    said = (folder / LOOKED).read_text(errors="replace")
    assert said.endswith("looked\n")
    return said


def test_a_key_in_the_file_is_hidden_from_commands_and_hooks(folder: Path, tmp_path: Path, cli: Cli) -> None:
    """The environment has no key, nor has a process's command line. A command in the sandbox cannot read the file; without one it
    can, as the pages say: there the question before the command protects. A tool refuses it by its name."""
    reads = script(
        "reads",
        f"""
[[steps]]
calls = [{{ name = "read", arguments = {{ path = "{keys_file(os.environ)}" }} }}]

[[steps]]
text = "It said: {{result}}"
""",
    )
    with running_lab([LOOKS, reads], key=KEY) as lab:
        assert add(tmp_path, lab.url).code == 0
        hook = tmp_path / "hook.sh"
        hook.write_text(f"env > {tmp_path}/hook.txt; ps axeww >> {tmp_path}/hook.txt; echo '{{}}'\n")
        settings = tmp_path / "config" / "turnwise" / "turnwise.toml"
        settings.write_text(f'{settings.read_text()}\n[[hooks]]\npoint = "before_tool"\ncommand = ["sh", "{hook}"]\n')
        assert KEY not in looked(folder, cli)
        assert KEY not in (tmp_path / "hook.txt").read_text(errors="replace")
        assert KEY in looked(folder, cli, "--no-sandbox")
        refused = cli("-p", "Read.", "-m", "house:reads", "--json")
        assert KEY not in refused.out and refused.events()[-1]["denied"]


def test_a_real_keyring_holds_the_key_and_the_sandbox_hides_it(
    folder: Path, tmp_path: Path, cli: Cli, keyring: str
) -> None:
    """gnome-keyring under `dbus-run-session`: the file has no key, a run gets it, a sandboxed command does not reach the bus, and
    it goes with `remove`."""
    with running_lab([ANSWER, LOOKS], key=KEY) as lab:
        kept = add(tmp_path, lab.url)
        assert kept.code == 0 and f"kept in the system's keyring; it goes to {lab.url} alone" in kept.err
        assert KEY not in keys_file(os.environ).read_text()
        assert cli("-p", "Hi.", "-m", "house:aardvark").out == "Good day.\n"
        assert KEY not in looked(folder, cli, bus=keyring)
        assert KEY not in looked(folder, cli, "--network", bus=keyring)
        assert KEY in looked(folder, cli, "--no-sandbox", bus=keyring)
        assert "the keyring" in cli("auth", "list").out
        assert cli("auth", "remove", "house").code == 0
        search = ["secret-tool", "search", "--all", "service", "turnwise"]
        assert KEY not in subprocess.run(search, capture_output=True, text=True, timeout=HANG_S, check=False).stdout


def test_a_keyring_that_does_not_answer_holds_nobody_up(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Something at the address of the bus lets everybody in and says nothing more: the key is in the file, and the program
    ends."""

    def lets_in(server: socket.socket) -> None:
        connection, _ = server.accept()
        with connection:
            connection.settimeout(HANG_S)
            connection.recv(4096)
            connection.sendall(b"OK 0123456789abcdef0123456789abcdef\r\n")
            while connection.recv(4096):
                pass

    with running_lab([ANSWER], key=KEY) as lab, socket.socket(socket.AF_UNIX) as silent:
        silent.bind(str(tmp_path / "bus"))
        silent.listen()
        monkeypatch.setenv("DBUS_SESSION_BUS_ADDRESS", f"unix:path={tmp_path / 'bus'}")
        thread = threading.Thread(target=lets_in, args=(silent,))
        thread.start()
        kept = add(tmp_path, lab.url)
        thread.join(HANG_S)
        assert kept.code == 0 and f"(the keyring did not answer within {KEYRING_S:g} s)" in kept.err
        assert KEY in keys_file(os.environ).read_text()
