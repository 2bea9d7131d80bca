"""What every API family offers, in both directions, and the families by name. Each family's package exports one `Family` value
named `FAMILY`."""

import functools
import importlib
import re
from collections.abc import Callable, Mapping
from typing import Literal, Protocol

import msgspec

from turnwise.vocab import FamilyTraits, Fault, FinishReason, Frame, Request, Response
from turnwise.wire import encoded_history
from turnwise.wire.encoded_history import Adapted, EncodedHistory, Written
from turnwise.wire.profiles import FamilyName, Limits, Profile

BETA_HEADER = "anthropic-beta"
"""Holds a list: its values are joined, where every other header replaces the one before it."""


class HttpCall(msgspec.Struct, frozen=True, kw_only=True):
    """One encoded request. `path` is appended to the profile's base URL (query included). The key is not in here: the driver adds
    it as `profile.auth` says, so no value of ours can leak it. The first `same_bytes` of the body are those of the call before it
    that was encoded with the same history; 0 where that is not known. `marks` are where the marks for the provider's cache begin
    and end, which no other figure counts. `changed_at` is the first byte at which the body differs from the one before it, if it
    does not begin with all its messages. `adapted` are settings that the model would have refused, so they went up in another
    form or not at all."""

    path: str
    body: bytes
    headers: tuple[tuple[str, str], ...] = ()
    method: str = "POST"
    same_bytes: int = 0
    marks: tuple[tuple[int, int], ...] = ()
    changed_at: int | None = None
    adapted: tuple[Adapted, ...] = ()


def call_of(frame: encoded_history.CallFrame, *, written: Written) -> HttpCall:
    """The call that takes a body there."""
    body, same_bytes, marks, changed_at = written
    return HttpCall(
        path=frame.path,
        body=body,
        headers=frame.headers,
        same_bytes=same_bytes,
        marks=marks,
        changed_at=changed_at,
        adapted=frame.adapted,
    )


class AnswerStamp(msgspec.Struct, frozen=True, kw_only=True):
    """What an answer has of the server that writes it: an `id` without its family's first letters, if the upstream gives none;
    and when it began and ended, in seconds of Unix."""

    id: str = ""
    created_s: int = 0
    ended_s: int | None = None


UNSTAMPED = AnswerStamp()


class RequestEncoder(Protocol):
    def __call__(self, request: Request, profile: Profile, /, *, history: EncodedHistory | None = None) -> HttpCall:
        """The call that makes the request. With a `history` it costs what is new since the call before."""
        ...


class StreamDecoder(Protocol):
    """Bytes of one streamed response, in any pieces -> frames. Never raises on what arrived: what cannot be read becomes
    `Mended` or `Faulted` frames; after a `Faulted` of kind protocol or too_large it stays silent. Emits no frame for
    keep-alives."""

    def feed(self, chunk: bytes) -> list[Frame]: ...

    def finish(self) -> list[Frame]:
        """The connection ended. Emits what was still held. Never invents a Finished: its absence means `cut`."""
        ...

    def expects_more(self) -> bool:
        """Whether what came shows that more was coming: a block has begun of which no frame has come, because it is told once
        it is whole; or a line, an event or an array has begun and not ended. Holds after `finish`, too."""
        ...


class StreamEncoder(Protocol):
    """Frames -> bytes of a stream as this family's API sends it (healthy, well-formed). Used by the lab and the gateway."""

    def encode(self, frame: Frame) -> bytes: ...

    def close_ended(self) -> bytes:
        """End what wraps blocks that have all ended, though a further block could still join it."""
        ...

    def finish(self, *, ended_s: int | None = None) -> bytes:
        """What the API sends last (`[DONE]`, terminal event); closes blocks that are still open. `ended_s`: the time, for an API
        that tells it."""
        ...


class StreamEncoderMaker(Protocol):
    def __call__(self, request: Request, /, stamp: AnswerStamp = UNSTAMPED) -> StreamEncoder: ...


class BodyEncoder(Protocol):
    def __call__(self, response: Response, request: Request, /, stamp: AnswerStamp = UNSTAMPED) -> bytes: ...


class SocketRequest(msgspec.Struct, frozen=True):
    """A request that can go over a WebSocket. `session`: the cache that it asks for, if any; equal ones belong together."""

    fields: Mapping[str, msgspec.Raw]
    session: bytes = b""


class SocketSign(msgspec.Struct, frozen=True):
    """What an event says of its connection. `is_error`: it stands in place of a response, or within one that has begun; more may
    follow. `status`: of an error, as HTTP has it. `asks_anew`: nothing was done, and the same request whole may be answered on
    another connection."""

    is_end: bool = False
    is_error: bool = False
    status: int = 0
    headers: Mapping[str, str] = {}
    asks_anew: bool = False


class SocketContext(Protocol):
    """What the server of one connection knows by now."""

    def message(self, request: SocketRequest, /) -> bytes:
        """The request whole."""
        ...

    def next_message(self, request: SocketRequest, /) -> bytes | None:
        """What of it is new there; None where it does not begin with what is known there."""
        ...

    def begin(self, request: SocketRequest, /) -> None:
        """It was sent."""
        ...

    def saw(self, event: bytes, /) -> SocketSign: ...


class SocketWire(msgspec.Struct, frozen=True):
    """How a family speaks over a WebSocket: requests as messages, and one event of its streams in each text frame."""

    headers: tuple[tuple[str, str], ...]
    read: Callable[[bytes], SocketRequest | None]  # the body of a request; None: it goes over HTTP
    open_context: Callable[[], SocketContext]


class Loss(msgspec.Struct, frozen=True):
    """Something of the vocabulary that this family cannot carry. Tested: encode then decode loses this and nothing else."""

    what: str  # "order of text and calls", "reasoning signature" ...
    direction: str  # "request", "response" or "both"
    becomes: str  # what the encoder makes of it


class Family(msgspec.Struct, frozen=True, kw_only=True):
    name: str
    encode_request: RequestEncoder
    # (body, path) -> Request; the path matters where it names the model (Gemini). Raises BadRequest.
    decode_request: Callable[[bytes, str], Request]
    stream_decoder: Callable[[Profile, Limits], StreamDecoder]
    # A non-streamed body, decoded into the frames that a stream of it would have given. Never raises, like StreamDecoder.
    decode_body: Callable[[bytes, Profile, Limits], list[Frame]]
    stream_encoder: StreamEncoderMaker
    encode_body: BodyEncoder
    # (status, headers with lower-case names, body) -> Fault. Never raises; HTML and empty bodies included.
    decode_fault: Callable[[int, Mapping[str, str], bytes], Fault]
    # Fault -> (HTTP status, body) as this family's API reports it.
    encode_fault: Callable[[Fault], tuple[int, bytes]]
    # Every provider's finish word (Responses: status, incomplete reason) -> ours.
    finish_reasons: Mapping[str, FinishReason]
    losses: tuple[Loss, ...]
    traits: FamilyTraits  # what rules and the turn know of it
    tool_names: re.Pattern[str]  # the API refuses any other name of a tool
    models_call: HttpCall  # for the list of its models
    # Where the version stands: at the end of the base URL; or in each path, and a base URL may have it, too.
    version_in: Literal["base", "paths"] = "base"
    version_unsaid: str = ""  # where the base URL has none; empty: such a base URL is a mistake that a 404 tells of
    # Whether what an event says may depend on those before it that said the same: then each of them has to be decoded.
    compares_events: bool = False
    shows_thinking: bool = False  # a request may ask for thinking that can be read
    # What a refusal of a request says of bound thinking; None: no model of the family refuses it.
    with_binding: "BindingReader | None" = None
    socket: SocketWire | None = None  # None: its API has no WebSocket


class BindingReader(Protocol):
    def __call__(self, fault: Fault, /, *, model: str, body: bytes, asked: bool) -> Fault:
        """The fault with what it says of thinking that is bound to what stood before it. `asked`: turnwise asked for stale
        thinking to be left out."""
        ...


class BadRequest(ValueError):
    """A client's request cannot be read as this family's; the text says what and where. The lab answers it with 400."""


# The families by name. A family's module is imported when it is first asked for, so that a run pays for one of them.


USUAL: FamilyName = "openai_chat"
"""What most servers and clients speak: meant where nothing says which."""

MODULES = {
    "openai_chat": "turnwise.wire.openai_chat",
    "openai_responses": "turnwise.wire.openai_responses",
    "anthropic_messages": "turnwise.wire.anthropic_messages",
    "gemini": "turnwise.wire.gemini",
    "gemini_interactions": "turnwise.wire.gemini_interactions",
    "ollama_chat": "turnwise.wire.ollama_chat",
    "cohere_chat": "turnwise.wire.cohere_chat",
}


@functools.cache
def family(name: str) -> Family:
    """Raises KeyError for a name that is not in MODULES."""
    found = importlib.import_module(MODULES[name]).FAMILY
    assert isinstance(found, Family)
    return found


# Where the version belongs in an address, since people give base URLs with it and without.


_VERSION = re.compile(r"/v\d+(?:(?:alpha|beta)\d*)?(?=/|$)")
_ENDS_WITH_VERSION = re.compile(_VERSION.pattern.removesuffix("(?=/|$)") + r"$")

# What people copy from a provider's docs: the whole URL of a request. We put the path of each call behind the base URL.
_PATHS = ("/chat/completions", "/completions", "/responses", "/messages", "/interactions", "/models")


def where_asked(url: str, *, base_url: str, family: Family) -> str:
    """What a 404 leaves unsaid: the URL that was asked for, and where a base URL of this API usually ends."""
    base = base_url.partition("?")[0].rstrip("/")
    if path := next((path for path in _PATHS if base.endswith(path)), ""):
        return (
            f"asked for `{url.partition('?')[0]}`; the base URL ends before `{path}`: try `{base.removesuffix(path)}`"
        )
    needs = family.version_in == "base" and not family.version_unsaid
    lacks = needs and not _VERSION.search(base.partition("://")[2])
    hint = f"; the base URL usually ends with `/v1`: try `{base}/v1`" if lacks else ""
    return f"asked for `{url.partition('?')[0]}`{hint}"


def path_below(base_url: str, path: str, *, family: Family) -> str:
    """The call's path as it has to follow this base URL.

    Anthropic's clients take the base without `/v1` and have it in the path, others' users write it into the base: it is said
    once. Gemini's path begins at the model, and a base without any version (Google's own host) gets one. A path that a
    client wrote whole (`/v1/embeddings`) has its version from the base where that ends with one.
    """
    base = base_url.partition("?")[0].rstrip("/")
    said = _VERSION.match(path)
    if family.version_in == "paths":
        return path[said.end() :] if said and base.endswith(said.group()) else path
    host_and_path = base.partition("://")[2]
    if family.version_unsaid and not said and not _VERSION.search(host_and_path):
        return family.version_unsaid + path
    return path[said.end() :] if said and _ENDS_WITH_VERSION.search(host_and_path) else path
