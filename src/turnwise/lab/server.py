"""The lab: a scripted provider on loopback, with what it received."""

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Self

from turnwise.endpoints.transport import Transport
from turnwise.errors import CallerError
from turnwise.lab.memory import MemoryTransport
from turnwise.lab.provider import Provider
from turnwise.lab.received_requests import Received, counted
from turnwise.lab.replay import load_recording
from turnwise.lab.script import Script, ScriptError, builtin_scripts, by_name, load_scripts
from turnwise.lab.strict.dialects import builtin_dialects
from turnwise.wire.profiles import builtin_profiles

if TYPE_CHECKING:
    from turnwise.lab.http import Site

LOOPBACK = "127.0.0.1"


class Lab:
    """A provider that speaks every API family, strict about what it receives. `async with Lab() as lab: ... lab.url`.

    The model's name chooses the script; `scripts` (values, or a folder of TOML files) come on top of those that ship with
    turnwise. `parameters` changes a script's, by script. `conversation` is a recorded one to play in place of the scripts.
    `chunk_delay_s` is slept between the pieces of a stream. With a `key`, a request without it gets 401. With
    `strict_paths`, one without the API's version in its path gets the 404 that real servers give. With `caches` the prompts
    are kept as each provider documents it, by a clock that only `pass_time` moves. With a `profile`, a row of
    docs/providers.md, Chat Completions requests are judged by that server's own rules first (docs/dialects.md), and refused
    in its words; a row of which no rule is known is judged by its family's API.
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
        """The lab without a network, for `Agent(..., endpoint={"transport": lab.transport()})`.

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
