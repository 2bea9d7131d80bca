"""Keys of upstreams that stand in files: what is checked, and that a new one needs no restart."""

import asyncio
import itertools
import re
from pathlib import Path

import pytest

from gateway.calling import call_of
from gateway.relayed import Gathered
from gateway.test_reloading import head_of, held_upstream, served, table
from gateway.test_upstreams import WHOLE, status
from turnwise.endpoints.transport import HttpRequest
from turnwise.errors import CallerError
from turnwise.gateway.accounts import AccountMeans
from turnwise.gateway.config import GatewayConfig, GatewayRoute, UpstreamAddress, key_files_of
from turnwise.gateway.key_files import MOST_BYTES, read_key_file
from turnwise.gateway.service import RelayService, ServiceMeans
from turnwise.testing import FakeClock
from turnwise.testing.scripted_model import Reply, ScriptedTransport
from waits import HANG_S


def test_a_key_is_the_one_line_of_its_file(tmp_path: Path) -> None:
    """Proves: line ends and blanks around it do not count, a link is followed as a cluster mounts its secrets, and everybody may
    read it."""
    secret = tmp_path / "..data"
    secret.write_bytes(b" sk-one\r\n")
    secret.chmod(0o444)
    link = tmp_path / "key"
    link.symlink_to(secret)
    assert read_key_file(str(link)).reveal() == "sk-one"


@pytest.mark.parametrize(
    ("content", "why"),
    [
        (b"", "one line with a key"),
        (b"sk-one\nsk-two", "one line with a key"),
        (b"sk one", "one line with a key"),
        ("sk-ü".encode(), "one line with a key"),
        (b"x" * (MOST_BYTES + 1), "bytes"),
        (None, "does not exist"),
    ],
)
def test_what_is_no_key_is_told_without_it(tmp_path: Path, content: bytes | None, why: str) -> None:
    path = tmp_path / "key"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(CallerError, match=why) as told:
        read_key_file(str(path))
    assert str(path) in str(told.value) and not re.search(r"\bsk\b", str(told.value))


def test_a_key_that_everybody_may_write_is_refused(tmp_path: Path) -> None:
    """Another user would choose whose account the prompts go to. A folder is no file."""
    path = tmp_path / "key"
    path.write_bytes(b"sk-one")
    path.chmod(0o602)
    with pytest.raises(CallerError, match="may be written by everybody"):
        read_key_file(str(path))
    with pytest.raises(CallerError, match="no regular file"):
        read_key_file(str(tmp_path))


@pytest.mark.parametrize(
    ("files", "why"),
    [("keys/one", "must be a whole path"), (("/a", "/a"), "twice")],
)
def test_a_wrong_path_is_an_error_of_the_file(files: str | tuple[str, ...], why: str) -> None:
    with pytest.raises(ValueError, match=why):
        GatewayRoute(upstream=UpstreamAddress(url="http://a.invalid/v1", key_file=files))


async def test_a_renewed_key_is_used_at_once_and_not_blamed_for_the_old_one(tmp_path: Path) -> None:
    """Proves: variables and files share an upstream; one that was left alone because its key was refused is asked again with the
    new key, without a cool-down; a file that is gone changes nothing."""
    path = tmp_path / "key"
    path.write_text("sk-file-old")
    upstream = UpstreamAddress(url="http://a.invalid/v1", key_env="KEY", key_file=str(path))
    config = GatewayConfig(routes=(GatewayRoute(upstream=upstream, retry=0),))
    assert key_files_of(config.routes) == [str(path)]
    asked: list[str] = []

    def answer(request: HttpRequest) -> Reply:
        asked.append(dict(request.headers)["authorization"].removeprefix("Bearer "))
        return status(401) if asked[-1] != "sk-file-new" else WHOLE

    clock = FakeClock()
    means = ServiceMeans(
        transport=ScriptedTransport(itertools.repeat(answer)),
        clock=clock,
        env={"KEY": "sk-env"},
        accounts=AccountMeans(clock=clock),
    )
    service = RelayService(config, means=means, forward_key=False)

    async def ask(there: RelayService) -> tuple[int, set[str]]:
        asked.clear()
        outlet = Gathered()
        await there.answer(call_of("openai_chat", "m", stream=True), outlet)
        return outlet.status, set(asked)

    assert await ask(service) == (502, {"sk-env", "sk-file-old"})
    path.unlink()
    with pytest.raises(CallerError, match="does not exist"):
        service.renewed(config)
    path.write_text("sk-file-new\n")
    assert await ask(service.renewed(config)) == (200, {"sk-file-new"})


async def test_a_running_gateway_takes_a_new_key_without_a_restart(tmp_path: Path) -> None:
    """Proves: nobody sends it a signal, each change is read once, and the log has no key."""
    secret = tmp_path / "secret"
    secret.write_text("sk-first-key")
    async with held_upstream() as (upstream, url):
        upstream.may_go_on.set()
        with served(tmp_path, table("m", url)) as there:
            await head_of(there.port, "m")
            config = f'[[route]]\nupstream = {{ url = "{url}", key_file = "{secret}" }}\n'
            (tmp_path / "gateway.toml").write_text(config)
            async with asyncio.timeout(HANG_S):
                while upstream.keys[-1] != b"sk-first-key":
                    await head_of(there.port, "m")
            new = tmp_path / "new"
            new.write_text("sk-second-key")
            new.replace(secret)
            async with asyncio.timeout(HANG_S):
                while upstream.keys[-1] != b"sk-second-key":
                    await head_of(there.port, "m")
            log = there.end()
    assert set(upstream.keys) == {b"one", b"sk-first-key", b"sk-second-key"}
    assert (log.count("the configuration was read again"), "sk-first-key" in log, "sk-second-key" in log) == (
        2,
        False,
        False,
    )
