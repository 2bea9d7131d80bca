"""A model that says what a script tells it, in the bytes of any API family: the whole way below the socket is real."""

import asyncio
from collections.abc import AsyncGenerator, Callable, Iterable, Mapping, Sequence
from contextlib import aclosing, asynccontextmanager
from types import MappingProxyType
from typing import cast
from urllib.parse import urlsplit

import msgspec

from turnwise.endpoints.endpoints import Endpoint
from turnwise.endpoints.transport import HttpReply, HttpRequest
from turnwise.errors import CallerError, ProviderFault
from turnwise.testing.frames import frames_of
from turnwise.vocab import Fault, FinishReason, Message, Part, Request, Response, Text, ToolCall, Usage
from turnwise.wire.family import MODULES, Family
from turnwise.wire.family import family as family_named
from turnwise.wire.profiles import Profile, builtin_profiles
from turnwise.wire.relay_facts import relay_facts

# A transport that says what a script tells it, byte by byte, and keeps what it was asked.


STREAM: Mapping[str, str] = MappingProxyType({"content-type": "text/event-stream"})


class Stall(msgspec.Struct, frozen=True):
    """A silence. It ends when `until` is set; without `until` it never ends."""

    until: asyncio.Event | None = None


Piece = bytes | Stall | Fault
"""Of a body: bytes as one chunk, a silence, or the connection breaking off with that fault."""


class Reply(msgspec.Struct, frozen=True, kw_only=True):
    """One HTTP answer of a `ScriptedTransport`.

    `pieces` are the parts of its body: bytes, a silence (`Stall`), or a `Fault` that breaks the connection. `before` is
    a silence or a fault before the head.
    """

    pieces: tuple[Piece, ...] = ()
    status: int = 200
    headers: Mapping[str, str] = STREAM
    before: Stall | Fault | None = None


ReplyMaker = Callable[[HttpRequest], Reply]


class ScriptedTransport:
    """A transport that answers each request with the next reply. A reply may be a function that makes it from the request.

    It implements `turnwise.endpoints.transport.Transport`. `requests` are the requests that were sent; `open`
    counts replies that are not closed yet. A request without a reply raises AssertionError.
    """

    def __init__(self, replies: Iterable[Reply | ReplyMaker]) -> None:
        self.requests: list[HttpRequest] = []
        self.open = 0
        self._replies = iter(replies)

    @asynccontextmanager
    async def send(self, request: HttpRequest, /) -> AsyncGenerator[HttpReply]:
        """Give the next reply. Raises AssertionError if there is none."""
        self.requests.append(request)
        reply = next(self._replies, None)
        if reply is None:
            raise AssertionError(f"the script has no reply to request {len(self.requests)}")
        if not isinstance(reply, Reply):
            reply = reply(request)
        self.open += 1
        try:
            if reply.before is not None:
                await _come(reply.before)
            async with aclosing(_chunks(reply)) as chunks:
                yield HttpReply(status=reply.status, headers=reply.headers, chunks=chunks)
        finally:
            self.open -= 1


async def _chunks(reply: Reply) -> AsyncGenerator[bytes]:
    for piece in reply.pieces:
        if isinstance(piece, bytes):
            yield piece
        else:
            await _come(piece)


async def _come(piece: Stall | Fault) -> None:
    if isinstance(piece, Fault):
        raise ProviderFault(piece)
    await (piece.until or asyncio.Event()).wait()


BASE_URL = "http://scripted.invalid"  # RFC 6761: never resolves, should it ever get near a socket
USAGE = Usage(input_tokens=10, output_tokens=5)

Said = str | Part | Sequence[str | Part] | Response | Fault
Line = Said | Callable[[Request], Said]
"""One line of the script: a text, parts (calls made by `call`), a whole response, an error answer, or a function of the
request."""


class ScriptedModel(ScriptedTransport):
    """A model that says what the test wants. Each request gets the next line.

    Give it as the agent's model: `Agent(ScriptedModel(["Hello."]))`, also for one run: `run(..., model=...)`. It needs no key.

    - `lines` are texts, a `call(...)`, lists of parts, a `Response`, a `Fault`, or functions of the decoded request
      that return one of these.
    - `family` is an API family (`openai_chat`), or the name of a provider. The lines are encoded in that API's own
      bytes; a request in another API's form gets them in that form.
    - `name` is the model's name, for prices and known limits.
    - `asked` are the requests that came, decoded.

    A request without a line raises AssertionError.
    """

    needs_key = False

    def __init__(self, lines: Iterable[Line], *, family: str | Profile = "openai_chat", name: str = "scripted") -> None:
        if isinstance(lines, str):
            raise CallerError(f"`ScriptedModel` takes a list of lines, also of one: `ScriptedModel([{lines[:20]!r}])`")
        lines = list(lines)
        for number, line in enumerate(lines, start=1):
            check_line(line, number=number)
        profile = builtin_profiles()[family] if isinstance(family, str) else family
        self.endpoint = Endpoint(profile=profile, base_url=BASE_URL)
        self._name = name
        self.asked: list[Request] = []
        super().__init__([self._reply_maker(line, number) for number, line in enumerate(lines, start=1)])

    def played_model(self) -> str:
        """The model as `PROVIDER:NAME` or `FAMILY:NAME`."""
        return f"{self.endpoint.profile.name}:{self._name}"

    def played_at(self) -> str:
        """The endpoint URL to which requests are addressed."""
        return self.endpoint.base_url

    def _reply_maker(self, line: Line, number: int) -> Callable[[HttpRequest], Reply]:
        def make(http: HttpRequest) -> Reply:
            family = self._family_asked(urlsplit(http.url).path)
            request = family.decode_request(http.body, http.url.removeprefix(BASE_URL))
            self.asked.append(request)
            return _encode(line(request) if callable(line) else line, request, number, family=family)

        return make

    def _family_asked(self, path: str) -> Family:
        """The API in which the request came: an agent may ask under the name of another one, `Model(..., transport=...)`."""
        own = self.endpoint.family
        for name in (own.name, *MODULES):
            facts = relay_facts(name)
            ends = [known.removeprefix("/v1") for (_, known), kind in facts.paths.items() if kind == "generate"]
            if facts.reads_path(path) is not None or path.endswith(tuple(ends)):
                return family_named(name)
        return own


def _encode(said: Said, request: Request, number: int, *, family: Family) -> Reply:
    json = {"content-type": "application/json"}
    if isinstance(said, Fault):
        status, body = family.encode_fault(said)
        return Reply(pieces=(body,), status=status, headers=json)
    response = response_of(said, number=number, model=request.model)
    if not request.stream:
        return Reply(pieces=(family.encode_body(response, request),), headers=json)
    encoder = family.stream_encoder(request)
    pieces = [*[encoder.encode(frame) for frame in frames_of(response)], encoder.finish()]
    return Reply(pieces=tuple([piece for piece in pieces if piece]), headers=STREAM)


def check_line(line: object, *, number: int) -> None:
    """Raise CallerError for what is no line of a script."""
    parts: Sequence[object] = [line] if not isinstance(line, list | tuple) else cast("Sequence[object]", line)
    strange = [one for one in parts if not (callable(one) or isinstance(one, str | msgspec.Struct))]
    if strange or not parts:
        kind = type(strange[0]).__name__ if strange else "empty list"
        raise CallerError(
            f"line {number} of the script is or holds a {kind}: give a text, `call(...)`, a list of both, a `Response`, a "
            "`Fault`, or a function of the request"
        )


def response_of(
    said: str | Part | Sequence[str | Part] | Response, *, number: int = 1, model: str | None = None
) -> Response:
    """A whole response: its finish reason is `tool_calls` where it holds calls, else `stop`. Calls without an id get one
    from `number`."""
    match said:
        case Response():
            return said
        case str():
            parts: tuple[Part, ...] = (Text(said),)
        case Sequence():
            parts = tuple([Text(part) if isinstance(part, str) else part for part in said])
        case _:
            parts = (said,)
    calls = any(isinstance(part, ToolCall) for part in parts)
    return Response(
        message=Message(
            "assistant",
            tuple(
                [
                    msgspec.structs.replace(part, id=f"call_{number}_{place}")
                    if isinstance(part, ToolCall) and not part.id
                    else part
                    for place, part in enumerate(parts, start=1)
                ]
            ),
        ),
        finish=FinishReason.TOOL_CALLS if calls else FinishReason.STOP,
        usage=USAGE,
        id=f"response-{number}",
        model=model,
    )


def call(name: str, /, *, id: str = "", **arguments: object) -> ToolCall:
    """A complete tool call with these arguments, as a line of a `ScriptedModel`. Without an `id` the model numbers it."""
    return ToolCall(id=id, name=name, arguments=msgspec.json.encode(arguments).decode())
