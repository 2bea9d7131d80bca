"""The model servers of this machine are found where they listen; strangers, silence and hostile answers cost a moment."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable

import pytest

from turnwise.endpoints.local_servers import (
    LocalServer,
    ServerAnswer,
    find_servers,
    local_servers,
    moved_address,
    usual_servers,
)
from turnwise.errors import CallerError
from turnwise.lab import Lab
from waits import HANG_S

SOON_S = 0.2
Speaker = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


def at_ports(*ports: int) -> tuple[LocalServer, ...]:
    return tuple(
        [LocalServer(profile=one.profile, port=port) for one, port in zip(usual_servers(), ports, strict=False)]
    )


@contextlib.asynccontextmanager
async def listening(speak: Speaker) -> AsyncIterator[int]:
    server = await asyncio.start_server(speak, "127.0.0.1", 0)
    async with server:
        yield int(server.sockets[0].getsockname()[1])


def saying(answer: bytes) -> tuple[Speaker, list[bytes]]:
    """A server that says this to every request, and what it was asked."""
    asked: list[bytes] = []

    async def speak(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        asked.append(await reader.readuntil(b"\r\n\r\n"))
        with contextlib.suppress(ConnectionError):
            writer.write(answer)
            await writer.drain()
        writer.close()

    return speak, asked


def test_the_usual_servers_are_those_of_the_profiles() -> None:
    """One a port: the documented ports of LM Studio, Ollama, vLLM and llama.cpp (issue 15, line 2)."""
    assert {(server.profile.name, server.port) for server in usual_servers()} == {
        ("ollama", 11434),
        ("lmstudio", 1234),
        ("llamacpp", 8080),
        ("vllm", 8000),
    }


def test_the_variable_says_where_to_look() -> None:
    """Those that it names at their ports, others not; empty: none; unset: the usual ones."""
    assert local_servers({}) == usual_servers()
    assert local_servers({"TURNWISE_LOCAL_PORTS": ""}) == ()
    found = local_servers({"TURNWISE_LOCAL_PORTS": "ollama=11435, vllm=8000"})
    assert [(server.profile.name, server.port, server.moved) for server in found] == [
        ("ollama", 11435, True),
        ("vllm", 8000, False),
    ]
    for wrong in ("ollama", "ollama=0", "ollama=70000", "openai=443", "ollama:11434"):
        with pytest.raises(CallerError, match=r"TURNWISE_LOCAL_PORTS: .* write `ollama=11434`"):
            local_servers({"TURNWISE_LOCAL_PORTS": wrong})


def test_a_moved_server_has_its_address_there() -> None:
    env = {"TURNWISE_LOCAL_PORTS": "ollama=11435,vllm=8000"}
    assert moved_address("ollama", env=env) == "http://127.0.0.1:11435/v1"
    assert moved_address("vllm", env=env) is None and moved_address("openai", env=env) is None
    assert moved_address("ollama", env={}) is None


async def test_a_server_that_lists_its_models_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """The lab in its place; a proxy of the environment is passed by, as it would see what is asked of this machine."""
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:1")
    async with Lab() as lab:
        port = int(lab.url.rpartition(":")[2])
        (found,) = await find_servers(at_ports(1, port, 1), within_s=HANG_S)
    assert (found.server.port, found.state) == (port, "lists")
    assert "plain-answer" in [model.name for model in found.models]


async def test_it_is_asked_without_a_key(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever listens there may be a stranger. A server that wants a key says so."""
    monkeypatch.setenv("OLLAMA_API_KEY", "sk-0123456789")
    monkeypatch.setenv("LMSTUDIO_API_KEY", "sk-0123456789")
    refused = b'{"error":{"message":"Unauthorized"}}'
    speak, asked = saying(b"HTTP/1.1 401 Unauthorized\r\ncontent-length: %d\r\n\r\n%b" % (len(refused), refused))
    async with listening(speak) as port:
        (found,) = await find_servers(at_ports(port), within_s=HANG_S)
    assert found == ServerAnswer(server=at_ports(port)[0], state="wants_key")
    (request,) = asked
    assert request.startswith(b"GET /v1/models HTTP/1.1\r\n")
    assert b"authorization" not in request.lower() and b"sk-0123456789" not in request


async def test_a_server_that_says_nothing_is_waited_for_within_a_bound() -> None:
    """Both at once, so two cost what one does; so does one that sends its list a byte at a time."""
    ended = asyncio.Event()

    async def drip(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: 1000\r\n\r\n[")
        await ended.wait()
        writer.close()

    async def silence(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await ended.wait()
        writer.close()

    async with listening(silence) as one, listening(drip) as other:
        found = await find_servers(at_ports(one, other), within_s=SOON_S)
        ended.set()
    assert [answer.state for answer in found] == ["silent", "silent"]


@pytest.mark.parametrize(
    "answer",
    [
        b"HTTP/1.1 200 OK\r\ncontent-length: 15\r\n\r\n<html>Hi</html>",
        b"HTTP/1.1 404 Not Found\r\ncontent-length: 0\r\n\r\n",
        b"HTTP/1.1 302 Found\r\nlocation: http://127.0.0.1:1/\r\ncontent-length: 0\r\n\r\n",
        b"HTTP/1.1 200 OK\r\n\r\n" + b" " * (2 * 1024 * 1024),
        b"SSH-2.0-OpenSSH_9.2\r\n",
        b"",
    ],
    ids=["page", "404", "redirect", "too long", "no HTTP", "nothing"],
)
async def test_what_is_no_list_is_somebody_elses_server(answer: bytes) -> None:
    """Ports 8000 and 8080 are everybody's."""
    speak, _ = saying(answer)
    async with listening(speak) as port:
        assert await find_servers(at_ports(port), within_s=HANG_S) == ()
