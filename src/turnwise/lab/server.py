"""The lab: a scripted provider on loopback, with what it received."""

import asyncio
from collections.abc import AsyncGenerator, Iterable, Mapping, Sequence
from contextlib import aclosing, asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Self
from urllib.parse import urlsplit

from turnwise.endpoints.transport import HttpReply, HttpRequest, Transport
from turnwise.errors import CallerError, ProviderFault
from turnwise.lab.families import route
from turnwise.lab.faults import Outgoing
from turnwise.lab.provider import Provider, Received, counted
from turnwise.lab.replay import load_recording
from turnwise.lab.script import Script, ScriptError, builtin_scripts, by_name, load_scripts
from turnwise.lab.strict.dialects import builtin_dialects
from turnwise.vocab import Fault, FaultKind
from turnwise.wire.profiles import builtin_profiles

if TYPE_CHECKING:
    from turnwise.lab.http import Site

# The lab without a network: a transport that hands each request to the provider and its pieces back.


# As much as a socket gives at a time: a stream's small pieces arrive together, and a test is not spent on them.
CHUNK_BYTES = 16 * 1024


class MemoryTransport:
    """Implements `turnwise.endpoints.transport.Transport`. `requests` grows as those of a running lab do.

    A path that the lab has no endpoint for gets a 404. A reset is a disconnect, a stall lasts until it is cancelled.
    """

    def __init__(self, provider: Provider, *, requests: list[Received]) -> None:
        self._provider = provider
        self._requests = requests

    @asynccontextmanager
    async def send(self, request: HttpRequest, /) -> AsyncGenerator[HttpReply]:
        address = urlsplit(request.url)
        found = route(address.path)
        if found is None:
            async with aclosing(_chunks(Outgoing(status=404, content_type="text/plain", pieces=()))) as chunks:
                yield HttpReply(status=404, headers={"content-type": "text/plain"}, chunks=chunks)
            return
        target = f"{address.path}?{address.query}" if address.query else address.path
        number = len(self._requests) + 1
        betas = next((value for name, value in request.headers if name == "anthropic-beta"), "")
        outgoing, kept = self._provider.answer(found, target=target, body=request.body, number=number, betas=betas)
        self._requests.append(kept)
        await asyncio.sleep(0)  # requests that were sent together are all there before the first response begins
        if not outgoing.pieces:
            await _end(outgoing)
        self._provider.began(number, status=outgoing.status)
        headers = {**dict(outgoing.headers), "content-type": outgoing.content_type}
        async with aclosing(_chunks(outgoing)) as chunks:
            yield HttpReply(status=outgoing.status, headers=headers, chunks=chunks)


async def _chunks(outgoing: Outgoing) -> AsyncGenerator[bytes]:
    for chunk in _gathered(outgoing.pieces):
        yield chunk
    while outgoing.ending == "pings":
        yield outgoing.ping
        await asyncio.sleep(0)
    await _end(outgoing)


def _gathered(pieces: Sequence[bytes]) -> list[bytes]:
    chunks: list[bytes] = []
    waiting: list[bytes] = []
    size = 0
    for piece in pieces:
        waiting.append(piece)
        size += len(piece)
        if size >= CHUNK_BYTES:
            chunks.append(b"".join(waiting))
            waiting, size = [], 0
    return [*chunks, b"".join(waiting)] if waiting else chunks


async def _end(outgoing: Outgoing) -> None:
    match outgoing.ending:
        case "close":
            return
        case "stall" | "pings":
            await asyncio.Event().wait()
        case "reset":
            raise ProviderFault(Fault(kind=FaultKind.DISCONNECTED, message="the connection was reset"))


LOOPBACK = "127.0.0.1"


class Lab:
    """A provider that speaks every API family, strict about what it receives. `async with Lab() as lab: ... lab.url`.

    The model's name chooses the script; `scripts` (values, or a folder of TOML files) come on top of those that ship with
    turnwise. `parameters` changes a script's, by script. `conversation` is a recorded one to play in place of the scripts.
    `chunk_delay_s` is slept between the pieces of a stream. With a `key`, a request without it gets 401. With
    `strict_paths`, one without the API's version in its path gets the 404 that real servers give. With `caches` the prompts
    are kept as each provider documents it, by a clock that only `pass_time` moves. With a `profile`, a row of
    docs/providers.md, Chat Completions requests are judged by that server's own rules first (docs/dialects.md), and refused
    in its words; a row of which no rule is known is judged by its family's API. `socket_responses`: a WebSocket gives so many
    responses and is too old then.
    Raises ScriptError or CallerError for what cannot be used.
    """

    def __init__(
        self,
        scripts: Iterable[Script] | Path | None = None,
        *,
        port: int = 0,
        chunk_delay_s: float = 0.0,
        parameters: Mapping[str, Mapping[str, str | int]] | None = None,
        conversation: Path | str | None = None,
        key: str | None = None,
        strict_paths: bool = False,
        caches: bool = True,
        profile: str | None = None,
        socket_responses: int | None = None,
    ) -> None:
        if profile is not None and profile not in builtin_profiles():
            raise CallerError(f"there is no profile `{profile}`: docs/providers.md lists them")
        own = load_scripts(scripts) if isinstance(scripts, Path) else by_name(scripts or ())
        known = {**builtin_scripts(), **own}
        for name, changed in (parameters or {}).items():
            if name not in known:
                raise ScriptError(f"there is no script `{name}`")
            known[name] = known[name].with_parameters(changed)
        recording = None if conversation is None else load_recording(Path(conversation))
        dialect = None if profile is None else builtin_dialects().get(profile)
        self.provider = Provider(scripts=known, recording=recording, caches=caches, dialect=dialect)
        self.chunk_delay_s = chunk_delay_s
        self._key = key
        self._strict_paths = strict_paths
        self._socket_responses = socket_responses
        self._port = port
        self._requests: list[Received] = []
        self._site: Site | None = None

    @property
    def url(self) -> str:
        """Without a slash at its end. OpenAI's clients want `/v1` after it; any prefix is taken."""
        if self._site is None:
            raise CallerError("the lab is not running: use `async with Lab() as lab`")
        return f"http://{LOOPBACK}:{self._site.port}"

    def transport(self) -> Transport:
        """The lab without a network, for `Agent(Model(..., transport=lab.transport()))`.

        No key is asked for, nothing is delayed.
        """
        return MemoryTransport(self.provider, requests=self._requests)

    @property
    def requests(self) -> tuple[Received, ...]:
        """What came in, in order, since the start or the last `reset`."""
        return tuple(self._requests)

    def count(self, *, model: str | None = None, family: str | None = None, status: int | None = None) -> int:
        """How many requests came in that match."""
        return counted(self._requests, model=model, family=family, status=status)

    def pass_time(self, seconds: float) -> None:
        """What is kept of prompts grows older by so much."""
        if self.provider.caches is not None:
            self.provider.caches.now_s += seconds

    def play(self, script: str | None) -> None:
        """Answer every request by this script, whatever model it names; None: the name chooses again. Raises ScriptError."""
        if script is not None and script not in self.provider.scripts:
            raise ScriptError(f"there is no script `{script}`")
        self.provider.playing = script

    def reset(self) -> None:
        """Forget the requests so far, and what is kept of their prompts; steps that fail at first do so again."""
        self._requests.clear()
        self.provider.forget()

    async def __aenter__(self) -> Self:
        from turnwise.lab.http import Site  # aiohttp's server is loaded by those who start one

        site = Site(
            self.provider,
            requests=self._requests,
            chunk_delay_s=self.chunk_delay_s,
            key=self._key,
            strict_paths=self._strict_paths,
            socket_responses=self._socket_responses,
        )
        try:
            await site.open(LOOPBACK, port=self._port)
        except OSError as error:
            await site.close()
            raise CallerError(f"port {self._port} of {LOOPBACK} cannot be used: {error.strerror}") from None
        self._site = site
        return self

    async def __aexit__(self, *_: object) -> None:
        site, self._site = self._site, None
        if site is not None:
            await site.close()
