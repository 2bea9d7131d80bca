"""A login at a remote MCP server, against an authorization server that keeps to the rules or breaks one of them."""

import asyncio
import datetime
import logging
import os
import signal
import ssl
import stat
import sys
from collections.abc import Mapping
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import httpx2
import msgspec
import pytest
from authorizing import REFRESH, TOKEN, Authorizing, Browser, authorizing, everything_in
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from strangers import agent_of, texts_of
from turnwise.agent.mcp_servers import ServerToolset
from turnwise.base.clock import SystemClock
from turnwise.settings.kept_keys import keys_file
from turnwise.settings.mcp_files import ServerAddress, ServerEntry
from turnwise.testing import FakeClock, call
from turnwise.tools.mcp import logins
from turnwise.tools.mcp.logins import KeptLogin, kept_login, log_in, login_hint
from turnwise.tools.mcp.server_bounds import McpFailure
from waits import HANG_S


@pytest.fixture
def env(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Mapping[str, str]:
    monkeypatch.setenv("TURNWISE_STATE_DIR", str(tmp_path / "state"))
    return {"TURNWISE_STATE_DIR": str(tmp_path / "state")}


async def logged_in(
    server: Authorizing,
    *,
    env: Mapping[str, str],
    browser: Browser | None = None,
    within_s: float = HANG_S,
    scope: str = "",
) -> KeptLogin:
    browser = browser or Browser()
    try:
        found, _ = await log_in(
            server.address,
            clock=SystemClock(),
            env=env,
            show=browser,
            in_file=True,
            within_s=within_s,
            scope=scope,
        )
    finally:
        await asyncio.gather(*browser.left)
    return found


def docs(address: ServerAddress) -> ServerToolset:
    reached = msgspec.structs.replace(address, uses_login=True)
    entry = ServerEntry(name="docs", reached=reached, start_s=HANG_S, effects={"*": "read"})
    return ServerToolset(entry, clock=FakeClock(), one_turn=True)


async def test_a_login_is_kept_and_goes_with_each_request_of_a_turn(
    env: Mapping[str, str], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """The file is the user's alone, the page of the browser says that it can be closed, and no log has a token."""
    caplog.set_level(logging.DEBUG)
    async with authorizing() as server:
        browser = Browser()
        found = await logged_in(server, env=env, browser=browser)
        assert (found.issuer, found.scope) == (server.issuer, "files:read")
        ((status, page),) = browser.pages
        assert status == 200 and "You can close this window" in page
        agent, _ = agent_of([[call("docs__read")], "Done."], [docs(server.address)])
        result = await agent.run("Read.")
        assert texts_of(result) == ["read"] and result.notes == ()
        assert set(server.bearers[1:]) == {f"Bearer {TOKEN}-1"}
    assert stat.S_IMODE(keys_file(env).stat().st_mode) == 0o600
    assert everything_in(tmp_path).count(TOKEN) == 1
    assert TOKEN not in caplog.text and REFRESH not in caplog.text


REFUSED = {
    "answers with another state": ("no answer came from the browser", 0),
    "answers as another issuer": ("Authorization response iss mismatch", 0),
    "answers without an issuer": ("missing iss parameter", 0),
    "has another issuer": ("issuer mismatch", 0),
    "is of another server": ("does not match expected", 0),
    "names the metadata address": ("169.254.169.254/.well-known/oauth-authorization-server/latest/meta-data", 0),
    "names http elsewhere": ("has no https: nothing was sent there", 0),
    "names a number": (
        "169.254.169.254/.well-known/oauth-authorization-server, which the server names, is no public",
        0,
    ),
    "names a private address": ("is no public address", 0),
    "shows a page elsewhere": ("the address for your browser, which the server names, has no https", 0),
    "wants the code elsewhere": ("169.254.169.254/latest/meta-data/token, which the server names, has no https", 0),
    "redirects to the metadata address": ("answers", -1),
    "redirects the code": ("HTTP 307", 1),
    "is huge": ("could not be reached (`StreamError`)", 0),
    "silent": ("did not answer within", 0),
    "knows no S256": ("does not protect the answer", 0),
    "says no": ("refused it (`access_denied`)", 0),
    "takes no code": ("gave no login: HTTP 400 (`invalid_grant`)", 1),
    "answers with broken tokens": ("gave no login", 1),
    "never takes a token": ("does not take the login that it asked for: HTTP 401", 1),
}


@pytest.mark.parametrize("habit", REFUSED)
async def test_what_breaks_a_rule_ends_the_login_with_a_reason(
    env: Mapping[str, str],
    tmp_path: Path,
    habit: str,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """No code goes to another address, nothing is sent to the metadata address (the tests' network watch would end it), nothing
    is kept, and no text has a token. A redirect of the first document counts as its absence: the server's own paths come next."""
    caplog.set_level(logging.DEBUG)
    monkeypatch.setattr(logins, "FETCH_S", 0.2 if habit == "silent" else HANG_S)
    said, codes = REFUSED[habit]
    async with authorizing(habit) as server:
        waits = 0.3 if habit == "answers with another state" else HANG_S
        if codes < 0:
            await logged_in(server, env=env, within_s=waits)
            return
        with pytest.raises(McpFailure, match=said.replace("(", r"\(").replace(")", r"\)")) as failed:
            await logged_in(server, env=env, within_s=waits)
        assert len(server.forms) == codes
    kept = habit == "never takes a token"
    assert (kept_login(server.address, env=env) is not None) == kept
    for text in (str(failed.value), caplog.text, "" if kept else everything_in(tmp_path)):
        assert TOKEN not in text and REFRESH not in text


async def test_only_the_first_right_answer_counts(env: Mapping[str, str]) -> None:
    """Wrong ones before it are refused, and nothing listens after it."""

    def change(url: str) -> list[str]:
        parts = urlsplit(url)
        other = parts._replace(path="/other").geturl()
        twice = parts._replace(query=f"{parts.query}&state=x").geturl()
        without = parts._replace(query="code=mine").geturl()
        return [without, other, twice, url, url]

    async with authorizing() as server:
        browser = Browser(change)
        await logged_in(server, env=env, browser=browser)
        assert [status for status, _ in browser.pages] == [400, 400, 400, 200, 0]
        assert len(server.forms) == 1


async def test_a_server_without_a_login_says_how_to_log_in(env: Mapping[str, str]) -> None:
    """Nothing opens in the middle of a turn: the note names the command."""
    async with authorizing() as server:
        agent, _ = agent_of(["Done."], [docs(server.address)])
        result = await agent.run("Read.")
        assert "it wants a login: `turnwise mcp login docs`" in " ".join(result.notes)
        assert {one.split(" ")[1] for one in server.seen} == {"/mcp"}


async def test_a_call_that_wants_more_rights_names_them(env: Mapping[str, str]) -> None:
    """Words of the server that are none of a scope are left out of the command."""
    async with authorizing("wants more rights") as server:
        await logged_in(server, env=env)
        agent, _ = agent_of([[call("docs__read")], "Done."], [docs(server.address)])
        (said,) = texts_of(await agent.run("Read."))
        assert "`turnwise mcp login docs --scope 'files:write `id`'`" in said
        browser = Browser()
        await logged_in(server, env=env, browser=browser, scope="files:write")
        (asked,) = [parse_qs(urlsplit(url).query)["scope"] for url in browser.shown]
        assert asked == ["files:read files:write"]


@pytest.mark.parametrize("how", ["the server takes it no more", "its time is over"])
async def test_a_login_is_renewed_and_what_was_renewed_is_kept(env: Mapping[str, str], how: str) -> None:
    """The next process has it, too."""
    async with authorizing() as server:
        await logged_in(server, env=env)
        if how == "the server takes it no more":
            server.valid = set()
        else:
            (login, _) = kept_login(server.address, env=env) or (None, None)
            assert login is not None
            _keep(msgspec.structs.replace(login, expires_at=1.0), env=env)
        agent, _ = agent_of([[call("docs__read")], "Done."], [docs(server.address)])
        assert texts_of(await agent.run("Read.")) == ["read"]
        assert [form["grant_type"] for form in server.forms] == ["authorization_code", "refresh_token"]
        assert server.forms[1]["resource"] == f"{server.url}/mcp"
        found = kept_login(server.address, env=env)
        assert found is not None and found[0].access_token == f"{TOKEN}-2" and found[0].refresh_token == REFRESH


async def test_a_login_that_cannot_be_renewed_asks_for_a_new_one(env: Mapping[str, str]) -> None:
    """The authorization server is asked once, not with each request."""
    async with authorizing("refuses to renew") as server:
        await logged_in(server, env=env)
        server.valid = set()
        agent, _ = agent_of(["Done."], [docs(server.address)])
        result = await agent.run("Read.")
        assert "`turnwise mcp login docs`" in " ".join(result.notes)
        assert len(server.forms) <= 1 + 4  # once for each time that the server is started again


async def test_a_login_goes_to_the_server_that_it_was_made_for(env: Mapping[str, str]) -> None:
    """Another server of the same name, at another port or path, gets nothing of it."""
    async with authorizing() as server, authorizing() as other:
        await logged_in(server, env=env)
        agent, _ = agent_of(["Done."], [docs(other.address)])
        await agent.run("Read.")
        assert set(other.bearers) == {""}
        elsewhere = msgspec.structs.replace(server.address, url=f"{server.url}/other")
        assert kept_login(elsewhere, env=env) is None
        turn = logins.TurnLogin(server.address, clock=FakeClock(), env=env)
        async with httpx2.AsyncClient(auth=turn, trust_env=False) as client:
            await client.post(f"{other.url}/mcp", json={"id": 1, "method": "ping"})
            await client.post(f"{server.url}/mcp", json={"id": 1, "method": "ping"})
        assert (other.bearers[-1], server.bearers[-1]) == ("", f"Bearer {TOKEN}-1")


async def test_an_address_without_https_gets_no_login(env: Mapping[str, str]) -> None:
    server = Authorizing()
    server.url = "http://docs.example"
    with pytest.raises(McpFailure, match="no https"):
        await logged_in(server, env=env)


async def test_a_cancelled_login_leaves_nothing_open(env: Mapping[str, str]) -> None:
    """As Ctrl-C does."""
    shown: asyncio.Future[str] = asyncio.get_running_loop().create_future()
    async with authorizing() as server:
        task = asyncio.create_task(
            log_in(server.address, clock=SystemClock(), env=env, show=shown.set_result, in_file=True)
        )
        back = parse_qs(urlsplit(await shown).query)["redirect_uri"][0]
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        async with httpx2.AsyncClient(trust_env=False) as client:
            with pytest.raises(httpx2.ConnectError):
                await client.get(back)


def test_a_hint_holds_no_more_than_words_of_a_scope() -> None:
    for said, hint in (
        ('Bearer error="insufficient_scope", scope="a b"', "--scope 'a b'`"),
        ('Bearer error="insufficient_scope", scope="a\x1b[2J b"', "--scope b`"),
        ('Bearer error="insufficient_scope"', "login docs` asks"),
    ):
        response = httpx2.Response(403, headers={"www-authenticate": said})
        assert hint in login_hint(response, name="docs")
    assert login_hint(httpx2.Response(403), name="docs") == ""


def _keep(login: logins.KeptLogin, *, env: Mapping[str, str]) -> None:
    from turnwise.settings.kept_keys import keep_key
    from turnwise.wire.profiles import origin_of

    address = ServerAddress(url=login.url)
    text = msgspec.json.encode(login).decode()
    keep_key(address.login_name, text, origin=origin_of(login.url), env=env, in_file=True)


async def test_a_name_keeps_its_certificate_and_its_host(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The connection goes to what was resolved; TLS asks for the name, whose certificate counts, and `Host` has it."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "test")])
    now = datetime.datetime.now(datetime.UTC)
    made = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(days=1))
        .not_valid_after(now + datetime.timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([x509.DNSName("as.localhost")]), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )
    pem, plain = serialization.Encoding.PEM, serialization.NoEncryption()
    (tmp_path / "key.pem").write_bytes(key.private_bytes(pem, serialization.PrivateFormat.PKCS8, plain))
    (tmp_path / "cert.pem").write_bytes(made.public_bytes(pem))
    asked: list[str | None] = []
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(tmp_path / "cert.pem", tmp_path / "key.pem")
    context.sni_callback = lambda _, sni, __: asked.append(sni)
    heads: list[bytes] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        heads.append(await reader.readuntil(b"\r\n\r\n"))
        writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\nconnection: close\r\n\r\n{}")
        await writer.drain()
        writer.close()

    looked_up: list[object] = []

    async def look_up(host: object, *_: object, **__: object) -> list[object]:
        looked_up.append(host)
        return [(0, 0, 0, "", ("127.0.0.1", 0))]

    monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "cert.pem"))
    async with await asyncio.start_server(serve, "127.0.0.1", 0, ssl=context) as server:
        port = server.sockets[0].getsockname()[1]
        with monkeypatch.context() as patched:
            patched.setattr(asyncio.get_running_loop(), "getaddrinfo", look_up)
            async with logins._client_of(ServerAddress(url="http://127.0.0.1/mcp")) as client:
                response = await client.send(httpx2.Request("GET", f"https://as.localhost:{port}/x"))
    assert response.status_code == 200 and looked_up == ["as.localhost"] and asked == ["as.localhost"]
    assert f"host: as.localhost:{port}".encode() in heads[0].lower()


async def test_the_command_logs_in_and_out_and_ctrl_c_ends_it(env: Mapping[str, str], tmp_path: Path) -> None:
    """A real process: the address is printed, the login is kept in the file, and no output has a token."""
    work = tmp_path / "work"
    work.mkdir()
    async with authorizing() as server:
        servers = tmp_path / "servers.json"
        servers.write_bytes(msgspec.json.encode({"mcpServers": {"docs": {"url": f"{server.url}/mcp"}}}))
        command = [sys.executable, "-m", "turnwise", "mcp"]
        where = ["docs", "--mcp", str(servers), "--cwd", str(work), "--json"]

        async def begun(*words: str) -> asyncio.subprocess.Process:
            return await asyncio.create_subprocess_exec(
                *(*command, *words), cwd=work, env={**os.environ, **env}, stdout=-1, stderr=-1
            )

        for interrupts in (True, False):
            login = await begun("login", *where, "--no-browser", "--file")
            assert login.stderr is not None and login.stdout is not None
            assert b"log in with your browser" in await login.stderr.readline()
            url = (await login.stderr.readline()).decode().strip()
            if interrupts:
                login.send_signal(signal.SIGINT)
                await login.communicate()
                assert (login.returncode, server.forms) == (130, [])
                continue
            browser = Browser()
            browser(url)
            said, told = await login.communicate()
            await asyncio.gather(*browser.left)
            assert (login.returncode, told) == (0, b"")
            assert msgspec.json.decode(said) == {"name": "docs", "issuer": server.issuer, "scope": "files:read"}
        assert kept_login(server.address, env=env) is not None
        for code in (0, 2):
            logout = await begun("logout", *where)
            _, told = await logout.communicate()
            assert logout.returncode == code
        assert b"there is no login at `docs`" in told
        assert kept_login(server.address, env=env) is None
