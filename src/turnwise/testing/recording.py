"""A transport that keeps the requests of one live run in a file, and gives the same answers to the same requests in tests."""

import asyncio
import base64
import binascii
import difflib
import json
import os
import re
import stat
from collections.abc import AsyncGenerator, AsyncIterator, Iterable, Mapping, Sequence
from contextlib import AsyncExitStack, aclosing, asynccontextmanager
from itertools import chain
from pathlib import Path
from typing import Literal, Self, get_args
from urllib.parse import parse_qsl, quote, urlsplit

import msgspec

from turnwise.base.unasked_files import LeftOut, read_of_user
from turnwise.base.whole_files import in_place_of
from turnwise.endpoints.key_hiding import HIDDEN, KEYLESS_HEADERS, QUERY_UP, SHORTEST_KEY
from turnwise.endpoints.transport import HttpReply, HttpRequest, Transport
from turnwise.errors import CallerError, NotARecording, NotRecorded, ProviderFault
from turnwise.relay.client_request import asked_path
from turnwise.replay.secret_finder import NewCharacters, SecretFinder, StandIns
from turnwise.vocab import Fault
from turnwise.wire.family import family as find_family
from turnwise.wire.profiles import builtin_profiles
from turnwise.wire.relay_facts import upstream_at

# The file of a recording: HTTP requests and their answers, as JSON.
#
# Its form is that of the recorded conversations that turnwise's own tests read (docs/corpus.md), so `turnwise lab --conversation`
# plays it, too. What only a stream's exact course needs stands beside it: `pieces` and `fault`.


FORMAT, VERSION = "turnwise recording", 1
MOST_BYTES = 64 * 1024 * 1024  # what one recording may have; the largest recorded conversation has 0.2 MB
SHARED = 0o644  # a recording goes into a repository with the tests
HOW = 'record it with `Recording(path, mode="record")`'


class RecordedRequest(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """`path` has the query. A body that is no JSON stands in `body_base64`."""

    method: str
    path: str
    body: msgspec.Raw = msgspec.Raw(b"null")
    body_base64: str = ""


class RecordedResponse(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """`status` is 0 where no answer came. A body that is no UTF-8 stands in `body_base64`.

    `pieces` are the bytes of each piece in which the body came, as numbers with a space between; without them it came in one.
    `ending` says what came after them: the end, a broken connection (its `fault`), or nothing until the client left.
    `is_delimited` as in `turnwise.endpoints.transport.HttpReply`.
    """

    status: int = 0
    headers: dict[str, str] = {}
    body: str = ""
    body_base64: str = ""
    pieces: str = ""
    ending: str = "end"
    fault: Fault | None = None
    is_delimited: bool = True

    def content(self) -> bytes:
        """The body. Raises ValueError for invalid base64."""
        return base64.b64decode(self.body_base64, validate=True) if self.body_base64 else self.body.encode()

    def chunks(self) -> list[bytes]:
        """The pieces, as they came. Raises ValueError where their lengths are not those of the body."""
        content = self.content()
        lengths = list(map(int, self.pieces.split())) if self.pieces else [len(content)] if content else []
        if sum(lengths) != len(content) or min(lengths, default=1) < 1:
            raise ValueError(f"its `pieces` have {sum(lengths)} bytes together, and its body has {len(content)}")
        chunks, at = list[bytes](), 0
        for length in lengths:
            chunks.append(content[at : at + length])
            at += length
        return chunks


class RecordedExchange(msgspec.Struct, frozen=True):
    request: RecordedRequest
    response: RecordedResponse


class RecordingFile(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """`family` and `streamed` are those of all requests; `family` is empty where they differ or are not known. `model` is
    `PROVIDER:NAME`, where it was said."""

    format: str = ""
    version: int = 0
    model: str = ""
    family: str = ""
    streamed: bool = False
    exchanges: tuple[RecordedExchange, ...]


def file_at(path: str | os.PathLike[str]) -> Path:
    """The path, with `.json` behind a name that has no ending."""
    found = Path(path)
    return found if found.suffix else found.with_name(f"{found.name}.json")


def read_recording(path: Path) -> RecordingFile:
    """What was recorded, in order. Raises NotARecording for a file that is missing, damaged or none of these, and says where."""
    try:
        file = msgspec.json.decode(_content_of(path), type=RecordingFile)
    except (msgspec.MsgspecError, UnicodeError, RecursionError) as error:
        raise NotARecording(f"`{path}` is no recording: {error}; {HOW}") from None
    if file.version > VERSION:
        raise NotARecording(
            f"`{path}` is from a newer turnwise (version {file.version} of the format, this one knows {VERSION}): upgrade"
        )
    for number, exchange in enumerate(file.exchanges):
        try:
            exchange.response.chunks()
            base64.b64decode(exchange.request.body_base64, validate=True)
        except (ValueError, binascii.Error) as error:
            raise NotARecording(f"`{path}` is damaged: {error} - at `$.exchanges[{number}]`; {HOW}") from None
    return file


def _content_of(path: Path) -> bytes:
    match read_of_user(path, max_bytes=MOST_BYTES):
        case None:
            raise NotARecording(
                f'`{path}` does not exist: record it with `Recording(path, mode="once")` in a `with` statement'
            )
        case LeftOut(is_too_long=True):
            raise NotARecording(f"`{path}` has more than {MOST_BYTES:,} bytes: that is no recording")
        case LeftOut(why=why):
            raise NotARecording(f"`{path}` {why}: give a file that `Recording` wrote")
        case bytes() as content:
            return content


def write_recording(path: Path, file: RecordingFile) -> None:
    """Write the file whole or not at all. Raises CallerError where it is too large or cannot be written."""
    content = msgspec.json.format(msgspec.json.encode(file), indent=1) + b"\n"
    if len(content) > MOST_BYTES:
        raise CallerError(f"`{path}` would have more than {MOST_BYTES:,} bytes: record fewer requests in one file")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        mode = stat.S_IMODE(path.stat().st_mode) if path.exists() else SHARED
    except OSError as error:
        raise CallerError(f"`{path}` cannot be written: {error.strerror or error}") from None
    with in_place_of(path, mode=mode) as out:
        out.write(content)


# The texts that a body brings in pieces, as the deltas of a stream do: where each piece stands in the body.
#
# Nothing is known of the API family: a text is what fields of one name hold, one behind the other. The places stay those of the
# body as it is written, with its escapes, so a text can be changed where it stands.


Span = tuple[int, int]
"""Where a piece begins and ends in the body, without its quotes."""

# A string ends with its line at the latest, so a stray quote hides no more than that; the last one may be cut off.
_TOKEN = re.compile(
    r'"(?P<text>[^"\\\r\n]*(?:\\.[^"\\\r\n]*)*)(?:"(?P<is_name>\s*:)?|\\?\Z)'
    r"|(?P<opens>[{\[])|(?P<closes>[}\]])|(?P<number>-?\d+)|(?P<truth>true|false)|(?P<event>(?:\r?\n|\r){2})"
)
# Names, not texts: of one behind the other nobody makes a text, and the same ones come back in later requests.
_NO_TEXTS = re.compile(r"id|\w+_id|\w+Id|type|object|role|model|name|status")
# What tells two texts of one stream apart: numbers as `index` and `output_index`, Gemini's `thought`, and its path in arguments.
_MARKS = re.compile(r"(?:\w+_)?index|thought|jsonPath")
_ITEMS = "output"
_EVENTS = "response."  # of a Responses stream: its last events say whole what the deltas said
_UNSAID = ("0", "false")  # where a mark is left out, it means this

TextMark = tuple[str, str, str]
"""The field that a marked object stands in, the mark's name, and its value."""


class _Level(msgspec.Struct):
    """An object or a list that is open: the name of the field that it is in, and what marks its texts."""

    name: str = ""
    around: "_Level | None" = None
    marks: list[TextMark] = []
    inside: int = 0

    def opened(self, name: str) -> "_Level":
        """A new level in this one. The items of a Responses answer are told apart by their places: they have no `index`."""
        level = _Level(name, self)
        if self.name == _ITEMS:
            level.mark(_ITEMS, str(self.inside))
        self.inside += 1
        return level

    def mark(self, name: str, value: str) -> None:
        if value not in _UNSAID:
            self.marks.append((self.name, name, value))

    def all_marks(self) -> tuple[TextMark, ...]:
        marks = list[TextMark]()
        level: _Level | None = self
        while level is not None:
            marks += level.marks
            level = level.around
        return tuple(marks)


class SplitTexts(msgspec.Struct, frozen=True):
    """The texts of a body that have more than one piece: `streams` are pieces with the same marks, as one block has them, and
    `all_of_name` whatever stands in fields of one name, as a text in several blocks or messages needs it."""

    streams: list[list[Span]]
    all_of_name: list[list[Span]]


def split_texts(body: str) -> SplitTexts:
    """The places of the texts that this body brings in pieces."""
    streams: dict[tuple[str, tuple[TextMark, ...]], list[Span]] = {}
    names: dict[str, list[Span]] = {}
    for name, level, span in _strings(body):
        names.setdefault(name, []).append(span)
        streams.setdefault((name, level.all_marks()), []).append(span)
    return SplitTexts(
        [one for one in streams.values() if len(one) > 1], [one for one in names.values() if len(one) > 1]
    )


def _strings(body: str) -> list[tuple[str, _Level, Span]]:
    """Each string that may be a piece of a text, with the name of its field. Its level is complete at the end only: a mark
    may stand behind the text."""
    found: list[tuple[str, _Level, Span]] = []
    level, name = _Level(), ""
    for token in _TOKEN.finditer(body):
        match token.lastgroup:
            case "is_name":
                name = token["text"]
            case "text":
                if _MARKS.fullmatch(name) or (name == "type" and token["text"].startswith(_EVENTS)):
                    level.mark(name, token["text"])
                elif token["text"] and not _NO_TEXTS.fullmatch(name):
                    found.append((name, level, token.span("text")))
            case "number" | "truth":
                if _MARKS.fullmatch(name):
                    level.mark(name, token[0])
            case "opens":
                level = level.opened(name)
            case "closes":
                level = level.around or _Level()
                name = level.name
            case _:
                level, name = _Level(), ""
    return found


# A recording without keys: what stands for a key is as long, so a body keeps its pieces, and says nothing of it.
#
# One key has the same stand-in in every process: what a test asks later is compared with what was recorded.


# What a turn reads of an answer's head: what came, and when to ask again (wire/faults.py). Cookies and the names of accounts stay
# outside.
KEPT_HEADERS = frozenset({"content-type", "date", "location", "retry-after", "retry-after-ms", "x-should-retry"})
_KEPT_WORDS = ("ratelimit", "request-id")
_STAND_INS = StandIns(None)


class RecordingSecrets:
    """Replaces the keys of one request: those in its own headers and address, `texts` that somebody wants hidden, and whatever
    has the shape of a key."""

    def __init__(self, request: HttpRequest, *, keys: Iterable[str], texts: Iterable[str]) -> None:
        self._keys = tuple(dict.fromkeys([*keys_of(request), *keys]))
        self._texts = tuple(texts)

    def hidden(self, content: bytes, *, is_stream: bool = False) -> bytes:
        """The content with stand-ins, as many bytes long. What it holds of one key is found whole, in pieces, encoded, and
        where a stream brings it word by word. What only has a key's shape is joined in a stream alone: elsewhere a key
        at the end of one text would take in the first word of the next."""
        try:
            return self._hidden(content.decode(), is_stream=is_stream).encode()
        except UnicodeDecodeError:  # each byte counts as a character
            return self._hidden(content.decode("latin-1"), is_stream=is_stream).encode("latin-1")

    def _hidden(self, body: str, *, is_stream: bool) -> str:
        """All is looked for in the body as it came. A stand-in for the piece in one delta would make the rest of the key, in
        the next one, unknown."""
        any_key = SecretFinder(_STAND_INS, keys=self._keys, texts=self._texts)
        known = SecretFinder(_STAND_INS, keys=self._keys, texts=self._texts, shapes=False)
        split = split_texts(body)
        streams = [_Joined(body, spans) for spans in split.streams] if is_stream else []
        for text in streams:
            any_key.learn(text.said)
        hidden = any_key.hidden(body)
        changed: NewCharacters = {}
        for text in streams:
            changed |= text.changed(any_key.hidden(text.said))
        for text in [_Joined(body, spans) for spans in split.all_of_name]:
            changed |= text.changed(known.hidden(text.said))
        if not changed:
            return hidden
        return "".join([changed.get(place, character) for place, character in enumerate(hidden)])


class _Joined:
    """A text whose pieces stand in several fields of a body."""

    def __init__(self, body: str, spans: Sequence[Span]) -> None:
        self._spans = spans
        self.said = "".join([body[start:end] for start, end in spans])

    def changed(self, new: str) -> NewCharacters:
        """The characters in which the text differs from `new`, by their places in the body."""
        if new == self.said:
            return {}
        places = chain.from_iterable([range(*span) for span in self._spans])
        return {place: one for place, one, before in zip(places, new, self.said, strict=True) if one != before}


def keys_of(request: HttpRequest) -> list[str]:
    """The values of all fields of head and address that are not known to carry no key; of `Bearer KEY` the key."""
    values = [
        value.split()[-1] for name, value in request.headers if name.lower() not in KEYLESS_HEADERS and value.strip()
    ]
    values += [value for name, value in parse_qsl(urlsplit(request.url).query) if name not in QUERY_UP]
    return [value for value in values if len(value) >= SHORTEST_KEY]


def shown_path(url: str) -> str:
    """Path and query of an address. Values of fields that may carry a key are left out."""
    parts = urlsplit(url)
    fields = [
        f"{quote(name)}={quote(value) if name in QUERY_UP else HIDDEN}"
        for name, value in parse_qsl(parts.query, keep_blank_values=True)
    ]
    return f"{parts.path}?{'&'.join(fields)}" if fields else parts.path


def kept_headers(headers: Mapping[str, str], *, secrets: RecordingSecrets) -> dict[str, str]:
    """What a recording has of an answer's head."""
    return {
        name: secrets.hidden(value.partition("?")[0].encode()).decode()
        for name, value in headers.items()
        if name in KEPT_HEADERS or any(word in name for word in _KEPT_WORDS)
    }


RecordingMode = Literal["replay", "record", "once"]
MOST_LINES = 60  # of a difference that is shown ...
MOST_CHARACTERS = 300  # ... and of each of its lines


class Recording:
    """The requests of one live run, kept in a file and replayed in tests.

    Give it as the agent's model: `Agent(Recording("recordings/fruit"))`. The file knows which model it was. To record, say
    which one is asked: `Recording("recordings/fruit", "once", model="openai:gpt-6.1-sol")`. For a URL or settings of your own
    give it as the transport: `Model("openai:gpt-6.1-sol", settings=..., transport=recording)`.

    - `mode`: `replay` answers from the file and sends nothing, so the agent needs no key. `record` sends each request
      and replaces the file. `once` records if the file does not exist, and otherwise replays.
    - `model` is the model to record, as `PROVIDER:NAME`.
    - `hide` are texts that are kept out of the file, as keys are.
    - `upstream` sends the requests while recording. Without it each request has a connection of its own.

    Recording needs a `with` statement. The file is written at its end, whole; if the block raises, the file stays as it
    was.

    A replayed request matches a recorded one by method, path and JSON body. Requests that run at once may come in any
    order. Another request raises NotRecorded with the difference. Raises NotARecording if the file is missing or
    damaged.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        mode: RecordingMode = "replay",
        *,
        model: str = "",
        hide: Sequence[str] = (),
        upstream: Transport | None = None,
    ) -> None:
        if mode not in get_args(RecordingMode):
            raise CallerError(f"there is no mode `{mode}` of a recording: {', '.join(get_args(RecordingMode))}")
        self.path = file_at(path)
        records = mode == "record" or (mode == "once" and not self.path.exists())
        self._model = model
        self._recorder = _Recorder(self.path, model=model, hide=tuple(hide), upstream=upstream) if records else None
        self._file = RecordingFile(exchanges=()) if records else read_recording(self.path)
        self._player = None if records else _Player(self.path, self._file.exchanges, hide=tuple(hide))

    @property
    def is_recording(self) -> bool:
        """Whether requests are sent."""
        return self._recorder is not None

    @property
    def needs_key(self) -> bool:
        """Whether an agent needs its provider's key."""
        return self.is_recording

    def played_model(self) -> str:
        """The model as `PROVIDER:NAME`: the one that was given, else the recorded one. Raises CallerError if it is not known."""
        found = self._model or self._file.model or _model_of(self._file)
        if not found:
            why = "is recorded now" if self.is_recording else "does not say of which model it is"
            raise CallerError(f'`{self.path}` {why}: give `Recording(..., model="openai:gpt-6.1-sol")`')
        return found

    def played_at(self) -> str | None:
        """The address for which the agent builds its requests; None for the provider's own."""
        if not self._file.exchanges:
            return None
        found = _VERSIONED.match(self._file.exchanges[0].request.path)
        prefix = "" if found is None else found[0]
        profile = builtin_profiles().get((self._model or self._file.model).partition(":")[0])
        own = None if profile is None else profile.base_url
        if own is not None and (urlsplit(own).path.rstrip("/") or prefix) == prefix:
            return None
        return f"http://recorded.invalid{prefix}"  # RFC 6761: never resolves

    def __enter__(self) -> Self:
        if self._recorder is not None:
            self._recorder.is_open = True
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if self._recorder is not None:
            self._recorder.is_open = False
            if kind is None and self._recorder.has_sent:
                self._recorder.write()
        elif self._player is not None and kind is None:
            self._player.raise_failure()

    @asynccontextmanager
    async def send(self, request: HttpRequest, /) -> AsyncGenerator[HttpReply]:
        """Answer a request from the file, or send and record it. Raises NotRecorded."""
        way = self._recorder.send(request) if self._recorder is not None else None
        if self._player is not None:
            way = _replied(self._player.next_for(request).response)
        assert way is not None
        async with way as reply:
            yield reply

    def assert_all_used(self) -> None:
        """Raise AssertionError if a recorded request was not made.

        Raises NotRecorded if another request was made, even if something caught that error before.
        """
        if self._player is not None:
            self._player.raise_failure()
            unused = [f"request {number} ({one.method} {one.path})" for number, one in self._player.unused()]
            assert not unused, f"`{self.path}` has requests that were not made: {', '.join(unused)}"


class _Player:
    """The recorded exchanges, and which of them are used."""

    def __init__(self, path: Path, exchanges: tuple[RecordedExchange, ...], *, hide: tuple[str, ...]) -> None:
        self._path = path
        self._hide = hide
        self._exchanges = exchanges
        self._lines = [_lines_of(exchange.request) for exchange in exchanges]
        self._left = list(range(len(exchanges)))
        self._failure: NotRecorded | None = None

    def next_for(self, request: HttpRequest) -> RecordedExchange:
        """The first unused exchange with the same request. Raises NotRecorded."""
        asked = _lines_of(_recorded(request, RecordingSecrets(request, keys=(), texts=self._hide)))
        for number in self._left:
            if self._lines[number] == asked:
                self._left.remove(number)
                return self._exchanges[number]
        failure = NotRecorded(self._why_not(asked))
        self._failure = self._failure or failure
        raise failure

    def raise_failure(self) -> None:
        """Raise the first NotRecorded again: a program may have caught it."""
        if self._failure is not None:
            raise self._failure

    def unused(self) -> list[tuple[int, RecordedRequest]]:
        return [(number + 1, self._exchanges[number].request) for number in self._left]

    def _why_not(self, asked: list[str]) -> str:
        anew = f'If the change is meant, record anew: `with Recording("{self._path}", mode="record")`.'
        if not self._left:
            used = len(self._exchanges)
            return f"`{self._path}` has {used} requests, all of them used, and one more was made: {asked[0]}\n{anew}"
        number = self._left[0]
        lines = list(difflib.unified_diff(self._lines[number], asked, "recorded", "asked", lineterm="", n=2))
        shown = [
            line if len(line) <= MOST_CHARACTERS else f"{line[:MOST_CHARACTERS]} ..." for line in lines[:MOST_LINES]
        ]
        if len(lines) > MOST_LINES:
            shown.append(f"... and {len(lines) - MOST_LINES} lines more")
        return "\n".join([f"`{self._path}` has another request {number + 1}:", *shown, anew])


class _Recorder:
    """Sends requests, and holds what came until it is written."""

    def __init__(self, path: Path, *, model: str, hide: tuple[str, ...], upstream: Transport | None) -> None:
        self.is_open = False
        self._path = path
        self._model = model
        self._hide = hide
        self._upstream = upstream
        self._taken: list[_Taken] = []

    @asynccontextmanager
    async def send(self, request: HttpRequest) -> AsyncGenerator[HttpReply]:
        if not self.is_open:
            raise CallerError(
                f'to record, open it: `with Recording("{self._path}", ...) as recording:`, and run the agent in that block'
            )
        taken = _Taken(request, most_bytes=MOST_BYTES - sum([one.size for one in self._taken]))
        self._taken.append(taken)
        async with AsyncExitStack() as stack:
            try:
                upstream = self._upstream or await stack.enter_async_context(_own_transport())
                reply = await stack.enter_async_context(upstream.send(request))
            except ProviderFault as error:
                taken.fault = error.fault
                raise
            taken.reply = reply
            chunks = await stack.enter_async_context(aclosing(taken.chunks(reply.chunks)))
            yield HttpReply(status=reply.status, headers=reply.headers, chunks=chunks, is_delimited=reply.is_delimited)

    @property
    def has_sent(self) -> bool:
        """Whether there is something to write: an empty file would be replayed from then on."""
        return bool(self._taken)

    def write(self) -> None:
        """Write the file whole, without the keys of any request. Raises CallerError where it cannot be written."""
        keys = [key for taken in self._taken for key in keys_of(taken.request)]
        exchanges = tuple([taken.exchange(keys=keys, hide=self._hide) for taken in self._taken])
        kinds = {_kind_of(taken.request) for taken in self._taken}
        family, streamed = kinds.pop() if len(kinds) == 1 else ("", False)
        file = RecordingFile(
            format=FORMAT,
            version=VERSION,
            model=self._model,
            family=family,
            streamed=streamed,
            exchanges=exchanges,
        )
        write_recording(self._path, file)


class _Taken:
    """One request that was sent, and what came of its answer."""

    def __init__(self, request: HttpRequest, *, most_bytes: int) -> None:
        self.request = request
        self.reply: HttpReply | None = None
        self.fault: Fault | None = None
        self._most_bytes = most_bytes
        self._pieces: list[bytes] = []
        self._has_ended = False
        self.size = len(request.body)

    async def chunks(self, chunks: AsyncIterator[bytes]) -> AsyncGenerator[bytes]:
        """The same ones, and they are kept. Raises CallerError where a recording cannot hold them."""
        try:
            async for chunk in chunks:
                self.size += len(chunk)
                if self.size > self._most_bytes:
                    raise CallerError(f"a recording holds {MOST_BYTES:,} bytes, and this answer goes beyond that")
                self._pieces.append(chunk)
                yield chunk
        except ProviderFault as error:
            self.fault = error.fault
            raise
        self._has_ended = True

    def exchange(self, *, keys: Sequence[str], hide: Sequence[str]) -> RecordedExchange:
        """As it is written: without keys."""
        secrets = RecordingSecrets(self.request, keys=keys, texts=hide)
        content = secrets.hidden(b"".join(self._pieces), is_stream=True)
        fault = self.fault
        if fault is not None:
            fault = msgspec.structs.replace(fault, message=secrets.hidden(fault.message.encode()).decode())
        text, encoded = _as_text(content)
        return RecordedExchange(
            request=_recorded(self.request, secrets),
            response=RecordedResponse(
                status=0 if self.reply is None else self.reply.status,
                headers={} if self.reply is None else kept_headers(self.reply.headers, secrets=secrets),
                body=text,
                body_base64=encoded,
                pieces=" ".join([str(len(piece)) for piece in self._pieces]),
                ending="broken" if fault is not None else "end" if self._has_ended else "silence",
                fault=fault,
                is_delimited=self.reply is None or self.reply.is_delimited,
            ),
        )


@asynccontextmanager
async def _own_transport() -> AsyncGenerator[Transport]:
    """One for a single request: the runs of one recording may have event loops of their own."""
    from turnwise.endpoints.aiohttp_transport import AiohttpTransport

    async with AiohttpTransport() as transport:
        yield transport


@asynccontextmanager
async def _replied(response: RecordedResponse) -> AsyncGenerator[HttpReply]:
    if not response.status:
        await _end(response)
    async with aclosing(_chunks(response)) as chunks:
        yield HttpReply(
            status=response.status, headers=response.headers, chunks=chunks, is_delimited=response.is_delimited
        )


async def _chunks(response: RecordedResponse) -> AsyncGenerator[bytes]:
    for chunk in response.chunks():
        yield chunk
    await _end(response)


async def _end(response: RecordedResponse) -> None:
    if response.fault is not None:
        raise ProviderFault(response.fault)
    if response.ending == "silence":
        await asyncio.Event().wait()


def _recorded(request: HttpRequest, secrets: RecordingSecrets) -> RecordedRequest:
    path = secrets.hidden(shown_path(request.url).encode()).decode()
    content = secrets.hidden(request.body)
    try:
        json.loads(content)
    except (ValueError, RecursionError):
        encoded = base64.b64encode(content).decode()
        return RecordedRequest(method=request.method, path=path, body_base64=encoded)
    return RecordedRequest(method=request.method, path=path, body=msgspec.Raw(content))


def _lines_of(request: RecordedRequest) -> list[str]:
    """What is compared, and shown where it differs: the same text for the same JSON, however it is spaced and sorted."""
    head = f"{request.method} {request.path}"
    if request.body_base64:
        return [head, request.body_base64]
    body = json.dumps(json.loads(bytes(request.body)), indent=1, sort_keys=True, ensure_ascii=False)
    return [head, *body.encode(errors="backslashreplace").decode().split("\n")]


def _as_text(content: bytes) -> tuple[str, str]:
    """The body as text, or in base64 where it is no UTF-8."""
    try:
        return content.decode(), ""
    except UnicodeDecodeError:
        return "", base64.b64encode(content).decode()


# The version of an API and what stands before it: the path of its base URL.
_VERSIONED = re.compile(r"(/[^/?]+)*?/v\d\w*(?=/)")


def _model_of(file: RecordingFile) -> str:
    """`FAMILY:NAME` by the first request of a file that does not say its model; empty where it is not known."""
    if not file.exchanges or file.family not in builtin_profiles():
        return ""
    request = file.exchanges[0].request
    try:
        asked = find_family(file.family).decode_request(bytes(request.body), request.path)
    except (ValueError, LookupError):
        return ""
    return f"{file.family}:{asked.model}"


def _kind_of(request: HttpRequest) -> tuple[str, bool]:
    """The API family, empty where its path is not known, and whether a stream was asked for."""
    path = urlsplit(request.url).path
    asked = asked_path(request.method, path[max(0, path.rfind("/v1")) :])
    return (upstream_at(path) if asked is None else asked.family), (
        b'"stream":true' in request.body.replace(b" ", b"") or (asked is not None and asked.streams)
    )
