"""What the gateway knows of a family. Each family's `relay_facts.py` has one value of it, which only the gateway loads."""

import functools
import importlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Literal

import msgspec

from turnwise.vocab import Request
from turnwise.wire.json_fields import Fields, is_null, string_of
from turnwise.wire.profiles import Profile, SchemaDialect
from turnwise.wire.registry import MODULES

Pairs = tuple[tuple[str, object], ...]
"""An object as its keys and values, in order: a key may stand twice, and which one counts is the upstream's choice."""

FALSE = msgspec.Raw(b"false")


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

STORED = "with the gateway's key it could be another client's; the route has to belong to one client (`one_client`)"
STORES = (
    "what a provider stores can be read with the gateway's key; the route has to belong to one client (`one_client`)"
)


# Why a place of the body may be another one in the request for the rest of a cut answer.
BEHIND = "the text so far, and the word to go on, stand behind the history"
NO_CALL = "the rest of an answer calls no tool"
NO_SCHEMA = "the rest of an object is no object"
LIMIT = "as much output as the model may give, and as the route allows"
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


def is_served(own: Fields) -> bool:
    """Whether a tool with these fields runs on the provider's server."""
    return string_of(own, "type") not in (None, "custom")


class RelayFacts(msgspec.Struct, frozen=True, kw_only=True):
    """The family as one side of the gateway: what is told of it, what its clients send, and what its upstreams take."""

    title: str
    sources: Mapping[str, str]  # topic of a repair's rule -> where the API's reference has it
    excused: Mapping[str, str] = {}  # kind of repair that breaks no rule of this API -> what the API says of it

    # a client's request
    names_fields: bool = False  # an error of a request names the field at fault
    count_field: str = ""  # where the count of tokens stands, if the API counts
    setting_names: Mapping[str, str]  # what its clients call the settings that the vocabulary has words for
    history: str  # field of the messages
    system: str  # field of the instructions
    spelling: Callable[[str], str] = lambda key: key  # a field's own name, however it was written
    silent: frozenset[str] = frozenset()  # fields of parts and tools that say nothing to another family's model
    saying: frozenset[str] = frozenset()  # fields of a message that become parts; empty: no message has others
    sealed: frozenset[str] = frozenset()  # items that only the provider can read, though they stand for the history
    is_served: Callable[[Fields], bool] = is_served
    has_client_tools: bool = False  # several kinds of tools that clients run (namespaces, searches, free text)
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

    # what an upstream takes
    changed: Mapping[str, str]  # places that may be others in the request for the rest, the messages first -> why
    has_dialects: bool = False  # an endpoint's row says what it takes of a conversation (docs/dialects.md)
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


@functools.cache
def relay_facts(family: str) -> RelayFacts:
    """What the gateway knows of the family. Raises KeyError for a name that is none of MODULES."""
    found = importlib.import_module(f"{MODULES[family]}.relay_facts").RELAY_FACTS
    assert isinstance(found, RelayFacts)
    return found
