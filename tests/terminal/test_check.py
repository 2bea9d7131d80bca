"""`turnwise check` at the command line: it says what it costs and asks, shows what was found, and ends with a code."""

import json
import signal
import socket
import ssl
import subprocess
import threading
import tomllib
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

from terminal.person import CTRL_C, at_terminal
from terminal.running import Cli, Ran, at, begin, end, running_lab, script
from terminal.test_processes import wait_until
from turnwise.lab import Lab
from turnwise.lab.endpoint_check.probes import NAMES, NO_KEY
from turnwise.lab.endpoint_check.shapes import MEANINGS, ORDER
from turnwise.settings.settings import Layer, check_layer
from turnwise.terminal.exit_codes import CHECK_CODES
from turnwise.wire.profiles import parse_profiles
from waits import HANG_S

KEY = "sk-test-1234567890abcdef"
HOSTILE = script("hostile-model", 'obeys = "never"\n[[steps]]\ntext = "a\\u001b]0;pwned\\u0007b\\u202ec"')
HOSTILE_ERROR = script(
    "hostile-error",
    f"""
[[steps]]
fault = {{ kind = "status", status = 418, message = "no\\u001b[2J\\u202e {KEY} here" }}
""",
)


STALLS_LATER = script(
    "stalls-later",
    """
[[steps]]
asked = "Count from 1"
fault = { kind = "stall" }

[[steps]]
text = "ready"
""",
)


def checked(cli: Cli, lab: Lab, name: str, *args: str, family: str = "openai_chat") -> Ran:
    _, model, *address = at(lab, name, family=family)
    return cli("check", model, *address, "--yes", *args)


def told(ran: Ran) -> dict[str, Any]:
    (line,) = ran.out.splitlines()
    return json.loads(line)


def test_it_says_what_works_what_is_healed_and_what_the_profile_should_say(cli: Cli, lab: Lab) -> None:
    ran = checked(cli, lab, "id-churn")
    assert ran.code == 0 and ran.complaints() == []
    assert "14 requests (up to " in ran.err and "tokens in and" in ran.err and "no price is known" in ran.err
    lines = ran.out.splitlines()
    assert lines[0].startswith("✓ a text as a whole body") and lines[-1] == "turnwise can work with this endpoint"
    assert "~ the id of one call changed from piece to piece; the first was kept (call, parallel, cut-call)" in lines
    assert lab.count() == 14


@pytest.mark.parametrize("family", ["openai_chat", "openai_responses", "anthropic_messages", "gemini"])
def test_the_json_object_has_a_version_and_a_row_that_reads_back(cli: Cli, lab: Lab, family: str) -> None:
    """Proves: the documented shape, and that the row is one of `profiles.toml` for the address that was checked."""
    ran = checked(cli, lab, "read-edit-answer", "--json", family=family)
    said = told(ran)
    assert said["version"] == 1 and said["outcome"] == "fine" and said["exit_code"] == ran.code == 0
    assert said["requests"] == lab.count() and said["usage"]["output_tokens"] > 0 and said["cost_usd"] is None
    assert [probe["name"] for probe in said["probes"]] == list(NAMES) and said["not_asked"] == []
    assert all(probe["weight"] in ORDER and set(probe["seen"]) <= MEANINGS.keys() for probe in said["probes"])
    for one in said["seen"]:
        assert (one["weight"], one["words"]) == (MEANINGS[one["name"]].weight, MEANINGS[one["name"]].words)
    ((name, profile),) = parse_profiles(said["profile"]["toml"]).items()
    assert name == said["profile"]["name"] and profile.family == family and profile.base_url == said["base_url"]
    layer = Layer(source="user", table=tomllib.loads(said["settings"]))
    settings = check_layer(layer).settings
    assert (settings.model, settings.base_url) == (f"{family}:read-edit-answer", said["base_url"])


def test_nothing_is_sent_where_nobody_can_be_asked(cli: Cli, lab: Lab) -> None:
    _, model, *address = at(lab, "plain-answer")
    ran = cli("check", model, *address)
    assert ran.code == 2 and ran.out == "" and lab.count() == 0
    assert ran.complaints() == ["turnwise: nothing was sent, as nobody can be asked here: add --yes"]
    assert "14 requests" in ran.err


@pytest.mark.parametrize(
    ("typed", "code", "requests"), [("n\r", 130, 0), ("\r", 130, 0), (CTRL_C, 130, 0), ("y\r", 0, 14)]
)
def test_it_asks_at_a_terminal_and_only_yes_is_a_yes(
    lab: Lab, folder: Path, typed: str, code: int, requests: int
) -> None:
    _, model, *address = at(lab, "plain-answer")
    with at_terminal("check", model, *address, cwd=folder) as person:
        person.sees("send them? [y/N]")
        person.types(typed)
        person.leaves_by(code)
    assert lab.count() == requests


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_signal_ends_it_with_what_was_found(folder: Path, number: signal.Signals) -> None:
    """The probe about limits never ends: what came before it is shown, and the exit code says that it was cancelled. The
    request in flight was sent."""
    with running_lab([STALLS_LATER]) as lab:
        _, model, *address = at(lab, "stalls-later")
        pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
        process = begin("check", model, *address, "--yes", "--json", "--timeout", "900", cwd=folder, **pipes)
        wait_until(lambda: lab.count() == NAMES.index("limit") + 1)
        process.send_signal(number)
        ran = end(process)
    said = told(ran)
    assert ran.code == said["exit_code"] == 130 and said["outcome"] == "stopped"
    assert [probe["name"] for probe in said["probes"]] == list(NAMES[: NAMES.index("limit")])
    assert said["not_waited_for"] == ["limit"] and said["requests"] == NAMES.index("limit") + 1
    assert said["not_asked"][0] == "cut-call" and said["profile"] is not None


def test_sigterm_leaves_the_terminal_as_it_was(folder: Path) -> None:
    """The line that says what is asked now hides the cursor."""
    with running_lab([STALLS_LATER]) as lab:
        _, model, *address = at(lab, "stalls-later")
        with at_terminal("check", model, *address, "--yes", "--timeout", "900", cwd=folder) as person:
            wait_until(lambda: lab.count() == NAMES.index("limit") + 1)
            person.process.send_signal(signal.SIGTERM)
            person.sees("sent, and not waited for: limit")
            person.leaves_by(130)
            assert person.raw.rfind("\x1b[?25h") > person.raw.rfind("\x1b[?25l")


def test_only_the_probes_that_are_named_are_sent(cli: Cli, lab: Lab) -> None:
    said = told(checked(cli, lab, "parallel-calls", "--json", "--only", "parallel", "--only", "call"))
    assert [probe["name"] for probe in said["probes"]] == ["call", "parallel"] and said["requests"] == lab.count() == 2
    assert cli("check", "openai_chat:x", "--only", "everything").code == 2


def test_the_money_is_said_before_and_after(cli: Cli, lab: Lab, folder: Path) -> None:
    (folder / "turnwise.toml").write_text('[prices]\n"openai_chat:plain-answer" = { request = 0.01 }\n')
    ran = checked(cli, lab, "plain-answer", "--only", "stream")
    assert "$0.0500 at most" in ran.err  # one, one more in another way, three after a wait
    assert "1 request, " in ran.out


def test_no_key_is_shown_and_the_wrong_one_is_none_of_the_users(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    """A server that wants a key and quotes it back."""
    monkeypatch.setenv("MY_KEY", KEY)
    with running_lab([HOSTILE_ERROR], key=KEY) as lab:
        for name in ("plain-answer", "hostile-error"):
            for flag in ([], ["--json"]):
                ran = checked(cli, lab, name, "--api-key-env", "MY_KEY", *flag)
                assert KEY not in ran.out + ran.err and "\x1b" not in ran.out + ran.err
        said = told(checked(cli, lab, "plain-answer", "--api-key-env", "MY_KEY", "--json"))
    wrong = next(probe for probe in said["probes"] if probe["name"] == "wrong-key")
    assert wrong["weight"] == "usual" and "401" in wrong["found"] and NO_KEY not in wrong["found"]
    profile = parse_profiles(said["profile"]["toml"])[said["profile"]["name"]]
    assert profile.api_key_env == ("MY_KEY",) and profile.key_required


def test_what_an_endpoint_says_cannot_drive_the_terminal(cli: Cli) -> None:
    with running_lab([HOSTILE, HOSTILE_ERROR]) as lab:
        for name in ("hostile-model", "hostile-error"):
            ran = checked(cli, lab, name)
            assert "\x1b" not in ran.out and "\u202e" not in ran.out


def test_a_query_of_the_address_is_not_shown(cli: Cli, lab: Lab) -> None:
    """It may hold a key."""
    ran = cli("check", "openai_chat:plain-answer", "--base-url", f"{lab.url}/v1?code={KEY}", "--yes", "--json")
    assert ran.code == 0 and KEY not in ran.out + ran.err and told(ran)["settings"] is None


Handler = Callable[[socket.socket], None]


@contextmanager
def listening(handler: Handler) -> Iterator[str]:
    """A server of raw bytes; each connection is handled in a thread of its own, and closed at the end."""
    server = socket.create_server(("127.0.0.1", 0))
    open_ones: list[socket.socket] = []

    def serve() -> None:
        while True:
            try:
                connection, _ = server.accept()
            except OSError:
                return
            open_ones.append(connection)
            threading.Thread(target=handled, args=(connection,), daemon=True).start()

    def handled(connection: socket.socket) -> None:
        with suppress(OSError):
            handler(connection)

    threading.Thread(target=serve, daemon=True).start()
    try:
        yield f"127.0.0.1:{server.getsockname()[1]}"
    finally:
        server.shutdown(socket.SHUT_RDWR)
        server.close()
        for connection in open_ones:
            connection.close()


def says_nothing(connection: socket.socket) -> None:
    while connection.recv(4096):
        pass


def answers_a_page(connection: socket.socket) -> None:
    connection.recv(65536)
    page = b"<!doctype html><title>It works</title>"
    head = b"HTTP/1.1 200 OK\r\ncontent-type: text/html\r\nconnection: close\r\n\r\n"
    connection.sendall(head + page)
    connection.close()


def never_ends(connection: socket.socket) -> None:
    connection.recv(65536)
    connection.sendall(b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n\r\n")
    while True:
        connection.sendall(b"x" * 65536)


def is_no_http(connection: socket.socket) -> None:
    connection.sendall(b"220 mail.example.com ESMTP\r\n")
    connection.close()


@pytest.mark.parametrize(
    ("handler", "scheme", "name"),
    [
        (answers_a_page, "http", "html"),
        (says_nothing, "http", "timeout"),
        (never_ends, "http", "too_large"),
        (is_no_http, "http", "protocol"),
        (is_no_http, "https", "unreachable"),
        (says_nothing, "https", "timeout"),
    ],
)
def test_a_server_that_is_none_ends_soon_with_a_code(cli: Cli, handler: Handler, scheme: str, name: str) -> None:
    """Proves: on real sockets, each wait is bounded, the exit code is `6`, and the table says what was met."""
    wait_s = "0.5" if name == "timeout" else str(HANG_S)
    with listening(handler) as place:
        ran = cli(
            "check", "openai_chat:m", "--base-url", f"{scheme}://{place}/v1", "--yes", "--json", "--timeout", wait_s
        )
    said = told(ran)
    assert ran.code == CHECK_CODES["no_server"] == 6 and said["outcome"] == "no_server" and said["profile"] is None
    assert [one["name"] for one in said["seen"]] == [name] and said["requests"] <= 3


def test_tls_in_the_place_of_http_is_told(cli: Cli, tmp_path: Path) -> None:
    """An address that begins with http:// at a server that speaks TLS: it hangs up, or answers an alert."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)

    def speaks_tls(connection: socket.socket) -> None:
        with context.wrap_socket(connection, server_side=True):
            pass

    with listening(speaks_tls) as place:
        ran = cli(
            "check", "openai_chat:m", "--base-url", f"http://{place}/v1", "--yes", "--json", "--timeout", str(HANG_S)
        )
    said = told(ran)
    assert ran.code == 6 and {one["name"] for one in said["seen"]} <= {"protocol", "disconnected", "unreachable"}


def test_a_closed_port_is_asked_once(cli: Cli, closed_port: int) -> None:
    ran = cli("check", "openai_chat:m", "--base-url", f"http://127.0.0.1:{closed_port}/v1", "--yes")
    assert ran.code == 6 and "Connection refused" in ran.out and "not asked: stream, " in ran.out


def test_a_missing_key_or_model_is_one_line(cli: Cli) -> None:
    for args in (("check",), ("check", "openai:gpt-5"), ("check", "nobody:x"), ("check", "openai_chat:x")):
        ran = cli(*args, "--yes")
        assert ran.code == 2 and len(ran.complaints()) == 1 and ran.out == ""


def test_no_model_is_told_in_the_words_of_this_command(cli: Cli) -> None:
    """`check` takes the model as an argument; it has no `--model`."""
    (said,) = cli("check", "--yes").complaints()
    assert "turnwise check PROVIDER:NAME" in said and "--model" not in said


def test_a_timeout_that_is_no_number_is_refused(cli: Cli, lab: Lab) -> None:
    ran = checked(cli, lab, "plain-answer", "--timeout", "nan")
    assert ran.code == 2 and "nan" in ran.err and lab.count() == 0


@pytest.mark.parametrize("slash", [r"\\/", r"\\u002f", "%2F", "&#47;"])
def test_no_part_of_an_escaped_key_is_shown(cli: Cli, monkeypatch: pytest.MonkeyPatch, slash: str) -> None:
    """Proves: a refusal that quotes the key in another spelling shows no tail of it, in the table and in `--json`."""
    key = "sk-verysecret/tail1tail2tail3"
    said = f"Incorrect API key: {key.replace('/', slash)}."
    refusing = script("refusing", f'[[steps]]\nfault = {{ kind = "status", status = 401, message = "{said}" }}\n')
    monkeypatch.setenv("MY_KEY", key)
    with running_lab([refusing]) as lab:
        for flag in ([], ["--json"]):
            ran = checked(cli, lab, "refusing", "--api-key-env", "MY_KEY", *flag)
            assert "Incorrect API key: ***" in ran.out and "tail" not in ran.out + ran.err


def closes_behind_each_stream(connection: socket.socket) -> None:
    """As llama.cpp's server does, with no word of it in the head."""
    told = {"id": "1", "object": "chat.completion.chunk", "created": 1, "model": "m"}
    piece = {**told, "choices": [{"index": 0, "delta": {"content": "ready"}, "finish_reason": "stop"}]}
    usage = {**told, "choices": [], "usage": {"prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2}}
    events = b"".join([b"data: %b\n\n" % json.dumps(one).encode() for one in (piece, usage)]) + b"data: [DONE]\n\n"
    head = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\nkeep-alive: timeout=5\r\ntransfer-encoding: chunked"
    connection.recv(65536)
    connection.sendall(b"%b\r\n\r\n%x\r\n%b\r\n0\r\n\r\n" % (head, len(events), events))
    connection.close()


def test_a_server_that_closes_behind_each_stream_is_not_blamed(cli: Cli) -> None:
    """Seen with llama.cpp: a request that came in that moment was lost, and stood in the table as the endpoint's fault."""
    with listening(closes_behind_each_stream) as place:
        streams = [word for name in ("stream", "call", "limit", "output") for word in ("--only", name)]
        ran = cli("check", "openai_chat:m", "--base-url", f"http://{place}/v1", "--yes", "--json", *streams)
    assert ran.code == 0 and told(ran)["requests"] == 4
