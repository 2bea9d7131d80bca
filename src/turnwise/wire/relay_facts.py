"""What the gateway and the readers of messages know of a family. Each family's `relay_facts.py` has one
value of it; a run of the library that does neither loads none."""

import functools
import importlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Literal

import msgspec

from turnwise.vocab import Opaque, ProviderItem, Repair, Request, ToolCall
from turnwise.wire.encoded_history import Adapted
from turnwise.wire.family import MODULES, HttpCall
from turnwise.wire.json_fields import UNREADABLE, Fields, is_null, string_of
from turnwise.wire.profiles import FamilyName, Profile, SchemaDialect, read_path_part

Pairs = tuple[tuple[str, object], ...]
"""An object as its keys and values, in order: a key may stand twice, and which one counts is the upstream's choice."""

FALSE = msgspec.Raw(b"false")
TRUE = msgspec.Raw(b"true")

NOT_CARRIED = "not_carried"
"""The kind of repair that says what of a request did not reach the upstream as the client said it."""


def not_carried(field: str, *, because: str) -> Repair:
    return Repair(NOT_CARRIED, f"`{field}`", because)


def capped(field: str, most: int) -> Repair:
    return Repair("output_capped", f"`{field}`", f"the route allows {most} tokens of output")


_count = msgspec.json.Decoder(int, strict=False)  # 64-bit integers of Gemini may come as strings, others write 1.0


def is_above(raw: msgspec.Raw, most: int) -> bool:
    """What is no whole number is left to the upstream to refuse. Some servers take -1 for no limit at all."""
    try:
        return not 0 <= _count.decode(raw) <= most
    except UNREADABLE:
        return False


AskedKind = Literal["generate", "count", "models", "embed"]


class AskedPath(msgspec.Struct, frozen=True, kw_only=True):
    """What a client's path asks for. `model` is set where the path names it, and `streams` where the path asks for a stream. Of
    requests to generate, Gemini's paths alone do; the bodies of the others say both."""

    family: FamilyName
    kind: AskedKind
    model: str | None = None
    streams: bool = False


class ClientTool(msgspec.Struct, frozen=True):
    """What the client calls the tool, and the family's `own` fields of its calls (`namespace`). `item` writes a whole call in the
    form that the client knows, where that is no call of a function (the client's own search for tools)."""

    name: str
    own: Opaque | None = None
    item: Callable[[ToolCall], ProviderItem] | None = None


class PlainTools(msgspec.Struct, frozen=True):
    """The request with functions alone. `tools` are the client's, by the names that stand in the request."""

    request: Request
    tools: Mapping[str, ClientTool] = {}


class FieldRule(msgspec.Struct, frozen=True):
    """What becomes of a field that the shared vocabulary has no word for. `refuses`: without it the answer would be another one,
    so the request is refused. `harmless` are the values that ask for what is done anyway. `means` names it in the `takes` of
    the families that have it, too. `ours`: the gateway does what it says, whatever the upstream's family."""

    refuses: bool = False
    harmless: tuple[str, ...] = ()
    means: str = ""
    ours: bool = False


TOLD = FieldRule()
OURS = FieldRule(ours=True)
REFUSED = FieldRule(refuses=True)

STORED = (
    "with the gateway's key it could be another client's; the route has to say whose it is (`stored`), or belong to one client "
    "(`one_client`)"
)
STORES = (
    "what a provider stores can be read with the gateway's key; the route has to say whose it is (`stored`), or belong to one "
    "client (`one_client`)"
)


# Why a place of the body may be another one in the request for the rest of a cut answer.
BEHIND = "the text so far, and the word to go on, stand behind the history"
NO_CALL = "the rest of an answer calls no tool"
NO_SCHEMA = "the rest of an object is no object"
LIMIT = "as much output as the model may give, and as the route allows"
FOREIGN_REASONING = "reasoning without the provider's own data is refused"
"""Of a history in which another family's model had it: a route may have answered with one before."""
THOUGHT = "the rest of a text needs little reasoning, and its limit has to hold both"


class StoredField(msgspec.Struct, frozen=True):
    """A field of the body that names or makes what stays at the provider: when it does, and why that is refused."""

    says: Callable[[msgspec.Raw], bool]
    why: str


def is_said(raw: msgspec.Raw) -> bool:
    return not is_null(raw)


def is_on(raw: msgspec.Raw) -> bool:
    return not is_null(raw) and raw != FALSE


NAMES_STORED = StoredField(is_said, STORED)
MAKES_STORED = StoredField(is_on, STORES)


def keys_of(pairs: Iterable[tuple[str, object]], names: Sequence[str]) -> Iterator[str]:
    """The keys among `names` that have a value."""
    return (key for key, value in pairs if key in names and value)


def values_of(pairs: Pairs, key: str) -> list[object]:
    return [value for given, value in pairs if given == key]


class StoredNames(msgspec.Struct, frozen=True, kw_only=True):
    """How a request names what is stored at the provider. `names` are keys of content and tools whose value does; behind the keys
    `free` stands somebody's own JSON (a schema, arguments, a result, what a search found), where every name is free. `references`
    gives the keys of one object that name something stored."""

    fields: Mapping[str, StoredField]
    names: tuple[str, ...]
    free: frozenset[str]
    references: Callable[[Pairs], Iterator[str]]


class CountForm(msgspec.Struct, frozen=True, kw_only=True):
    """How the API counts the tokens of a request. `field` holds them in its answer. `needs` are fields that a request to generate
    must have and one to count has not. `inner` gives the fields of the request that is counted, and raises BadRequest. `call`
    asks the upstream; it is told the call of the request itself, and whether that has the client's own body."""

    field: str
    beside: Mapping[str, object] = {}  # what else stands in its answer
    needs: Mapping[str, msgspec.Raw] = {}
    inner: Callable[[Fields], Fields] = lambda fields: fields
    call: Callable[[HttpCall, bool], HttpCall]


class SocketAsk(msgspec.Struct, frozen=True, kw_only=True):
    """What one frame of a client asks for. `fields` are a body's. `previous` is the response that it goes on from, and `lane`
    stands in each event of its answer. `is_prewarm`: the client wants no answer yet. `answer`, if any, is all that it gets."""

    fields: Fields
    previous: str = ""
    lane: str = ""
    is_prewarm: bool = False
    answer: bytes = b""


class SocketNote(msgspec.Struct, frozen=True, kw_only=True):
    """What an event of an answer says that a later request may go on from: an item, or the end with the response's id, empty if
    nothing goes on from it."""

    item: bytes = b""
    id: str = ""
    is_last: bool = False


class SocketForm(msgspec.Struct, frozen=True, kw_only=True):
    """How the API speaks over a WebSocket. `beta` begins a header's value that says only that. `read` gives None for a frame that
    wants no answer; it and `whole_body` raise BadRequest."""

    beta: str
    read: Callable[[bytes], SocketAsk | None]
    whole_body: Callable[[SocketAsk, tuple[bytes, ...] | None], tuple[bytes, tuple[bytes, ...]]]
    note_of: Callable[[bytes], SocketNote | None]
    error_event: Callable[[int, Mapping[str, str], bytes, SocketAsk | None], bytes]
    not_found: Callable[[SocketAsk], bytes]
    in_lane: Callable[[bytes, str], bytes]


def no_path(path: str) -> AskedPath | None:
    """No path of the family names a model."""
    return None


MAX_MODEL_NAME = 256
"""Characters of a model's name in a path; the longest resource names of Vertex AI have about 150."""


def model_name(encoded: str) -> str | None:
    """The name that stands in a path. None for one that could lead to another path, or that no model has."""
    name = read_path_part(encoded)
    if name is None or len(name) > MAX_MODEL_NAME or not name.isprintable():
        return None
    return None if any(segment in ("", ".", "..") for segment in name.split("/")) else name


class ListedModel(msgspec.Struct, frozen=True, kw_only=True):
    """A model as clients are told of it: since when there is one, in seconds of Unix and as a time of RFC 3339."""

    name: str
    created_s: int = 0
    created_at: str = "1970-01-01T00:00:00Z"


ModelRow = Mapping[str, object]


def openai_model(model: ListedModel) -> ModelRow:
    """Source: OpenAI API reference, "Retrieve model"."""
    return {"id": model.name, "object": "model", "created": model.created_s, "owned_by": "turnwise"}


def openai_models(rows: Sequence[ModelRow]) -> ModelRow:
    """Source: OpenAI API reference, "List models"."""
    return {"object": "list", "data": rows}


def is_clear(raw: bytes) -> bool:
    """Of a family whose clients read whatever our decoder reads."""
    return True


def settle_nothing(
    fields: Fields, request: Request, profile: Profile, keeps_nothing: bool
) -> tuple[Request, list[Repair]]:
    """Nothing in a body of the family depends on who answered before, or on what the provider stores."""
    return request, []


Adapter = Callable[[dict[str, bytes]], Sequence[Adapted]]
"""Changes the fields of a body to what the model takes."""


def no_adapter(model: str, profile: Profile) -> Adapter | None:
    """No model of the family is known to refuse a setting."""
    return None


def forbid_parallel(fields: Fields, profile: Profile) -> None:
    """By a field of the body, where the endpoint takes it."""
    if profile.sends_parallel_tool_calls:
        fields["parallel_tool_calls"] = FALSE


def cap_no_reasoning(fields: Fields, most: int) -> list[Repair]:
    """The limit of the output says nothing about reasoning."""
    return []


def is_served(own: Fields) -> bool:
    """Whether a tool with these fields runs on the provider's server."""
    return string_of(own, "type") not in (None, "custom")


class RelayFacts(msgspec.Struct, frozen=True, kw_only=True):
    """The family as one side of the gateway: what is told of it, what its clients send, and what its upstreams take."""

    name: FamilyName
    title: str
    sources: Mapping[str, str]  # topic of a repair's rule -> where the API's reference has it
    excused: Mapping[str, str] = {}  # kind of repair that breaks no rule of this API -> what the API says of it

    # a client's request
    # A route may list its paths in `pass`: what goes no other way (stored, in the background, an agent) goes on as it is then.
    passes_if_listed: bool = False
    has_door: bool = True  # False: an upstream only, so no client of the gateway speaks it
    paths: Mapping[tuple[str, str], AskedKind]  # method and path, without `GET /v1/models`, which three families have
    reads_path: Callable[[str], AskedPath | None] = no_path  # of POST, where the path names the model
    client_headers: frozenset[str] = frozenset()  # in lower case: only its clients send one of them
    folder: str = ""  # its clients read errors of all paths that begin so
    model_in_path: bool = False
    names_fields: bool = False  # an error of a request names the field at fault
    status_in_body: bool = False  # an error repeats the status in its body
    count: CountForm | None = None  # None: the API does not count
    socket: SocketForm | None = None  # None: the API has no WebSocket
    model_row: Callable[[ListedModel], ModelRow] = openai_model  # a model as its clients read it
    model_list: Callable[[Sequence[ModelRow]], ModelRow] = openai_models  # and all of them
    choices_field: str = ""  # asks for several answers at once
    stores_unasked: bool = False  # keeps the response where `store` says nothing
    setting_names: Mapping[str, str]  # what its clients call the settings that the vocabulary has words for
    history: str  # field of the messages
    system: str  # field of the instructions
    beside: str = ""  # the one beside the messages, where an SDK has one; empty: they are the first messages
    message_fields: frozenset[str] = frozenset()  # all that a message has; empty: further ones are kept with its parts
    # A message of which these are the fields with a value is for this API; where several say so, the one that came last.
    own_message: Callable[[Mapping[str, object]], bool]
    own_blocks: frozenset[str] = frozenset()  # types of content that only this API has
    own_block: Callable[[Mapping[str, object]], bool] = lambda block: False  # so do blocks with these fields
    call_blocks: frozenset[str] = frozenset()  # types of content of which another family's reader would make no call
    why_foreign: Callable[[Mapping[str, object]], str] = lambda message: ""  # of a message that is another API's
    as_beside: Callable[[object], object] = lambda instructions: instructions  # an SDK takes more there than the API
    bare_messages: bool = False  # a message may say nothing but its fields: no part holds them
    spelling: Callable[[str], str] = lambda key: key  # a field's own name, however it was written
    silent: frozenset[str] = frozenset()  # fields of parts and tools that say nothing to another family's model
    saying: frozenset[str] = frozenset()  # fields of a message that become parts; empty: no message has others
    sealed: frozenset[str] = frozenset()  # items that only the provider can read, though they stand for the history
    is_served: Callable[[Fields], bool] = is_served
    plain_tools: Callable[[Request], PlainTools] = PlainTools  # functions in place of other tools that clients run
    stored: StoredNames
    parents: frozenset[str]  # objects of the body whose fields are judged one by one
    rules: Mapping[str, FieldRule]  # further fields of the body; one that stands nowhere is told and left out
    # The request with words of the vocabulary for what it has in fields of its own, where another family has them, too.
    in_words: Callable[[Request], Request] = lambda request: request

    # its streams
    end_mark: bytes = b""  # what stands in the event that ends a stream, if there is one
    last_event: bytes = b""  # that event, where it stands behind the one with the finish reason
    knows_done: bool = False  # its clients know `[DONE]`
    indexed_calls: bool = False  # an index says to which call a piece belongs
    finish_is_last: bool = False  # the finish reason stands behind the last word and the last call
    calls_finish: bool = False  # has a finish reason of its own for calls
    final_wins: bool = False  # its clients take the final form of a text or call, whatever they were told before
    arrays: bool = False  # without `alt=sse` a stream is one JSON array
    # Gives what says of each event of one stream, in order, whether the official client reads it so far as our decoder does.
    client_reading: Callable[[], Callable[[bytes], bool]] = lambda: is_clear
    end_tells: Callable[[bytes], bool] = is_clear  # the event has the output that clients take from the last one

    # what an upstream takes
    changed: Mapping[str, str]  # places that may be others in the request for the rest, the messages first -> why
    has_dialects: bool = False  # an endpoint's row says what it takes of a conversation (docs/dialects.md)
    flat_tools: bool = (
        False  # a function's fields stand in the tool itself; a body's schemas that say no object are refused
    )
    limits: tuple[str, ...]  # fields of the output limit, the usual one first
    settle: Callable[[Fields, Request, Profile, bool], tuple[Request, list[Repair]]] = settle_nothing
    adapter: Callable[[str, Profile], Adapter | None] = no_adapter  # None: the model takes all settings
    forbid_parallel: Callable[[Fields, Profile], None] = forbid_parallel
    cap_reasoning: Callable[[Fields, int], list[Repair]] = cap_no_reasoning
    takes: Mapping[str, str] = {}  # further fields: what they mean -> their place
    json_mode: tuple[str, bytes] | None = None  # place and value that ask for JSON without a schema; None: nothing does
    places: Mapping[str, tuple[str, ...]]  # where a setting may stand in a body; it has not been carried elsewhere
    most_temperature: float = 2.0
    least_output_tokens: int = 0
    least_reasoning_tokens: int = 0
    most_stops: int | None = None  # None: the reference names no figure
    most_id: int | None = None  # characters of a call's id
    begins: Literal["anyone", "input", "user"]  # who has the first word; "input": anyone, but an input there has to be
    keeps_system: Callable[[Profile], bool] = lambda profile: True  # takes a system message in mid-conversation
    strict_tools: bool = True
    strict_is_closed: bool = False  # strict schemas require each property and allow no others
    untyped_schemas: bool = False  # takes parameters without a type
    tool_schemas: SchemaDialect | None = None  # None: as the endpoint's row says
    wants_called_tools: bool = False  # refuses a history with calls of tools that are not offered
    object_arguments: bool = False  # arguments are an object, not its text
    assistant_files: bool = False  # takes files from an assistant
    hears: bool = True  # takes audio and video
    file_names: Literal["never", "sent", "always"] = "sent"  # "sent": of a document whose bytes go along
    error_results: Literal["never", "texts", "always"] = "never"  # which results say by a field that they failed


def upstream_at(path: str) -> str:
    """The family without a door to whose API a path belongs; empty where there is none."""
    every = [facts for facts in map(relay_facts, MODULES) if not facts.has_door]
    return next((facts.name for facts in every if path.endswith(tuple([known for _, known in facts.paths]))), "")


@functools.cache
def relay_facts(family: str) -> RelayFacts:
    """What the gateway knows of the family. Raises KeyError for a name that is not in MODULES."""
    found = importlib.import_module(f"{MODULES[family]}.relay_facts").RELAY_FACTS
    assert isinstance(found, RelayFacts)
    return found
