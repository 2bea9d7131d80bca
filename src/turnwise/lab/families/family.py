"""What the lab knows of an API family besides its judge: how its requests are read, how its answers are played, what its clients
make of them. Each module of a family has one `LabFamily`, named `FAMILY`.

Requests are read from raw JSON and not with the decoders of `wire/`, so that the lab understands a request on its own: enough
to find the next step of a script or of a recording.
"""

from collections.abc import Callable, Sequence
from typing import Literal, NamedTuple, TypeVar

import msgspec

from turnwise.lab.caches import AnyPrompt
from turnwise.lab.raw import Raw, parse, rows, table, text
from turnwise.lab.strict.verdicts import FamilyJudge, Rejected
from turnwise.vocab import Opaque, Reasoning, Response

# What clients make of a stream: a naive one believes every event, a strict one takes nothing but what the family's API sends.
#
# A strict client reads server-sent events as the standard has them and as the APIs send them: one JSON value an event, nothing
# unknown.


class BrokenRule(Exception):
    """What arrived is nothing that this family's API sends; the text says why."""


class StreamReading(msgspec.Struct, frozen=True):
    """`calls` are id, name and arguments as JSON text. `finish` is one word for all families (`calls`, `stop`, `length`,
    `refused`, or the family's own), empty where the stream has no end. `error` is the server's own, in the family's shape."""

    text: str
    calls: Sequence[tuple[str, str, str]]
    finish: str
    error: str = ""

    @property
    def ended(self) -> bool:
        return bool(self.finish)


class ToldError(msgspec.Struct, frozen=True):
    """An error as the families report it, as much of it as all have."""

    message: str


def counted(number: int, noun: str) -> str:
    return f"{number} {noun}{'' if number == 1 else 's'}"


# --- a strict client

DONE = b"[DONE]"
Shape = TypeVar("Shape")


class StrictEvent(NamedTuple):
    name: str
    data: bytes


class _MaybeError(msgspec.Struct, frozen=True):
    error: ToldError | None = None


def events_of(body: bytes) -> list[StrictEvent]:
    """Raises BrokenRule. Comments are no events."""
    try:
        text = body.decode()
    except UnicodeDecodeError:
        raise BrokenRule("the stream is not UTF-8") from None
    found: list[StrictEvent] = []
    name, data = "", list[str]()
    for line in text.replace("\r\n", "\n").replace("\r", "\n").split("\n"):
        field, _, value = line.partition(":")
        value = value.removeprefix(" ")
        match field:
            case "" if not line:
                if data:
                    found.append(StrictEvent(name, "\n".join(data).encode()))
                name, data = "", []
            case "event":
                name = value
            case "data":
                data.append(value)
            case "" | "id" | "retry":
                pass
            case _:
                raise BrokenRule(f"a line is no field of server-sent events: `{line[:40]}`")
    if data:
        raise BrokenRule("the stream ends in the middle of an event")
    return found


def shaped(data: bytes, *, as_type: type[Shape]) -> Shape:
    """Raises BrokenRule where the JSON does not have the fields of this type."""
    try:
        return msgspec.json.decode(data, type=as_type)
    except msgspec.ValidationError as error:
        raise BrokenRule(str(error)) from None
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        raise BrokenRule(f"an event is no JSON: `{data[:40].decode('utf-8', 'replace')}`") from None


def error_in(data: bytes) -> str:
    """The message of an event `{"error": {...}}`; empty where it is another event. Raises BrokenRule."""
    error = shaped(data, as_type=_MaybeError).error
    return "" if error is None else error.message or "an error without words"


def arguments_object(arguments: str) -> str:
    """The arguments, which are the text of one JSON object. Raises BrokenRule."""
    try:
        value = msgspec.json.decode(arguments)
    except msgspec.DecodeError:
        raise BrokenRule(f"arguments are no JSON: `{arguments[:40]}`") from None
    rule(isinstance(value, dict), f"arguments are no object: `{arguments[:40]}`")
    return arguments


def rule(holds: bool, says: str) -> None:
    """Raises BrokenRule with the words where it does not hold."""
    if not holds:
        raise BrokenRule(says)


# --- a naive client


def naive_events(body: bytes, *, as_type: type[Shape]) -> list[Shape]:
    """Raises ValueError where such a client would crash."""
    lines = body.replace(b"\r\n", b"\n").split(b"\n")
    data = [line[5:] for line in lines if line.startswith(b"data:") and line[5:].strip() != DONE]
    return [msgspec.json.decode(one, type=as_type) for one in data]


class CallSeen(msgspec.Struct, frozen=True, kw_only=True):
    id: str
    name: str
    arguments: str  # JSON with its keys sorted, or the text as it came if it is not JSON


class ResultSeen(msgspec.Struct, frozen=True, kw_only=True):
    id: str
    name: str
    content: str


class SentMessage(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One side's words until the other's: an assistant's response, the results of its calls, or the user's texts."""

    role: Literal["system", "user", "assistant", "results"]
    texts: tuple[str, ...] = ()
    calls: tuple[CallSeen, ...] = ()
    results: tuple[ResultSeen, ...] = ()
    files: int = 0


class Offered(msgspec.Struct, frozen=True, kw_only=True):
    name: str
    schema: Raw


class Conversation(msgspec.Struct, frozen=True, kw_only=True):
    """`forbids` is tool choice none. `eager` holds the tools whose arguments a stream gives as they come
    (Anthropic's `eager_input_streaming`; Gemini's `streamFunctionCallArguments` is about all). `sealed`: Responses
    hands out `encrypted_content` only to those who ask for it."""

    said: tuple[SentMessage, ...]
    tools: tuple[Offered, ...] = ()
    forbids: bool = False
    output_schema: Raw = None
    eager: frozenset[str] = frozenset()
    sealed: bool = False


def canonical(arguments: Raw) -> str:
    """Arguments in one spelling: JSON with sorted keys; text that is no JSON as it came; nothing is {}."""
    value = arguments
    if isinstance(arguments, str):
        try:
            value = parse(arguments) if arguments.strip() else None
        except msgspec.DecodeError:
            return arguments
    return msgspec.json.encode({} if value is None else value, order="sorted").decode()


def plain(content: Raw) -> str:
    """Text of a content field: a string, or the texts of its parts joined."""
    if isinstance(content, str):
        return content
    return "".join([text(table(part).get("text")) for part in rows(content)])


def texts_of(content: Raw) -> tuple[str, ...]:
    if isinstance(content, str):
        return (content,)
    return tuple([text(table(part).get("text")) for part in rows(content) if isinstance(table(part).get("text"), str)])


def files_of(content: Raw) -> int:
    """Parts that are neither text nor a family's bookkeeping."""
    return sum(
        1 for part in rows(content) if not isinstance(table(part).get("text"), str) and "refusal" not in table(part)
    )


def join(said: list[SentMessage]) -> tuple[SentMessage, ...]:
    """Neighbours of one role become one."""
    joined: list[SentMessage] = []
    for one in said:
        if joined and joined[-1].role == one.role:
            last = joined[-1]
            joined[-1] = SentMessage(
                role=one.role,
                texts=last.texts + one.texts,
                calls=last.calls + one.calls,
                results=last.results + one.results,
                files=last.files + one.files,
            )
        else:
            joined.append(one)
    return tuple(joined)


class LabFamily(msgspec.Struct, frozen=True, kw_only=True):
    """One API family, as the lab plays it and as its clients read it."""

    judge: FamilyJudge
    title: str  # how people call the API
    recorded_as: str = ""  # its name in older recordings

    # its addresses
    routes: tuple[
        tuple[str, bool], ...
    ]  # how paths end, with `MODEL` where they name the model; True: it asks for a stream
    strict_paths: str  # the paths of the API itself
    base_path: str = ""  # what its clients want behind the address of a server
    is_own_list: Callable[[frozenset[str], str], bool] = lambda headers, path: (
        False
    )  # of models, asked with them at that path
    model_in_path: bool = False  # and nowhere else
    has_socket: bool = False  # its requests may come over a WebSocket

    # its requests
    read: Callable[[dict[str, Raw]], Conversation]
    prompt: Callable[[Raw], AnyPrompt]  # as its provider's cache compares it
    least_cached_tokens: int = 1024

    # its answers
    thought: Callable[[str, int, bool], Reasoning] = lambda said, made, sealed: Reasoning(
        said
    )  # signed as the family signs
    call_signature: Callable[[str], Opaque] | None = (
        None  # of the thought before it, on the first call; None: thoughts are signed
    )
    dialect_signature: Callable[[str], Opaque] | None = (
        None  # on a first call, by servers of this API whose own rules ask for one
    )
    # What is handed out of a call that the output limit cut: its raw text; whole parameters, and in a stream no end of the
    # object; or an object of them.
    cut_calls: Literal["text", "held", "object"]
    refuses_by_word: bool = False  # has a finish reason for refusals
    plays_pieces: Callable[[Response, int], str] | None = (
        None  # a stream with arguments in pieces, for requests that ask for it
    )
    array_unless: str = ""  # without this in the path a stream is one JSON array

    # its streams
    usage_first: bool = False  # the tokens of the prompt come at the start
    names_events: bool = False
    line_data: Callable[[str, Response], bytes] = lambda line, response: line.encode()  # of a line of a written stream
    unsaid_end: Callable[[Response], tuple[str, ...]] = (
        lambda response: ()
    )  # the lines of an end without a finish reason
    ping: str = ""  # the event that keeps a stream alive; empty: a comment does
    error_event: Callable[[Rejected], Raw] | None = None  # reports an error in mid-stream; None: as a body does

    # its clients
    read_naively: Callable[[bytes], StreamReading]  # raises ValueError or LookupError where such a client would crash
    read_strictly: Callable[[bytes], StreamReading]  # raises BrokenRule for what the API would not send
    has_ids: bool = True  # each call has one
    has_indexes: bool = False  # an index says to which call a piece belongs, and `[DONE]` ends a stream

    @property
    def name(self) -> str:
        return self.judge.name
