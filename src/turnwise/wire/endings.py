"""How a response ends, the same in every family: its finish word, what a count of tokens is, and what the fields of usage mean.

The usage objects of one response become one."""

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Annotated, Literal, NamedTuple, TypeVar, cast

import msgspec
from msgspec.structs import replace

from turnwise.vocab import (
    CALL_NOT_READ,
    NO_FINISH_REASON,
    Finished,
    FinishReason,
    Mended,
    Repair,
    Untold,
    Usage,
    with_untold,
)
from turnwise.vocab.json_values import is_json_object, without
from turnwise.wire.json_fields import (
    NULL,
    UNREADABLE,
    Fields,
    encode,
    is_object,
    is_utf8,
    printable,
    read_fields,
    write_object,
)

# What each field of a provider's usage object means: what turnwise reads, and what is no money. Each family has its own table.
#
# A field that stands in no table, and holds a number or a word, may be money that nobody counted: `unread_fields` names it, and
# the amount of its request is 'at least' (promise bill:served). A table names a field by its path: items of a list stand under
# the list, and counts by modality (`{"modality": "IMAGE", "tokenCount": 3}`) under the word. Sources: the types of the packages
# anthropic 2.14, openai 3.57 and google-genai 3.6, and the recorded streams.


FieldMeaning = Literal["count", "part", "term", "apart", "amount", "no money"]
"""A count of tokens that has a price; one of several samplings; a word by which the price changes; what is billed apart from
tokens; an amount of money itself; or nothing that costs, for the reason given."""


class UsageField(NamedTuple):
    meaning: FieldMeaning
    why: str = ""  # of a field that is no money
    words: frozenset[str] | None = None  # that are known of it: what bears another one may cost otherwise


COUNT, PART, TERM, APART = UsageField("count"), UsageField("part"), UsageField("term"), UsageField("apart")
AMOUNT = UsageField("amount")
SUM = UsageField("no money", "a sum of counts that are read")
REST = UsageField("no money", "the rest of a count that is read")
AT_ITS_PRICE = UsageField("no money", "a part of a count that is read, and costs what the others of it do")
SECONDS = UsageField("no money", "a time or a speed")
WINDOW = UsageField("no money", "the size of the window, which is not billed")
LABEL = UsageField("no money", "the name of what stands beside it")

MODALITIES = ("TEXT", "IMAGE", "VIDEO", "DOCUMENT")
# As some servers write them. Source: google-genai's `MediaModality`, in the order of the API's enum.
_NUMBERED = {1: "TEXT", 2: "IMAGE", 3: "VIDEO", 4: "AUDIO", 5: "DOCUMENT"}
_BY_MODALITY = ({"modality", "tokenCount"}, {"modality", "tokens"})
OPENROUTER = {"cost": AMOUNT, "cost_details": AMOUNT, "is_byok": AMOUNT}
SEARCHES = {
    "num_sources_used": APART,
    "num_server_side_tools_used": APART,
    "num_search_queries": APART,
    "server_tool_use": APART,
    "server_tool_use_details": APART,
    "server_side_tool_usage": APART,
    "server_side_tool_usage_details": APART,
}


class UsageTable(NamedTuple):
    """What the fields of a usage object mean, by path. `closed` are the fields that nobody has to look into: nothing
    that they hold has a meaning of its own or is a word that counts."""

    fields: Mapping[str, UsageField]
    closed: frozenset[str]


def usage_table(fields: Mapping[str, UsageField]) -> UsageTable:
    closed = [
        name
        for name, field in fields.items()
        if field.meaning != "term" and field.words is None and not any(other.startswith(f"{name}.") for other in fields)
    ]
    return UsageTable(fields, frozenset(closed))


MOST_NAMED = 8  # of unread fields; one is enough for 'at least'
_PLAIN_NAME = re.compile(r"[\w.=\- ]{1,100}", re.ASCII)
NAMELESS = "a field whose name cannot be shown"

_details = msgspec.json.Decoder(dict[str, object])


def read_terms(text: bytes | msgspec.Raw, *, table: UsageTable) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """How the provider served the request (`service_tier=priority`), and the fields that nobody reads and that may be money."""
    try:
        details = _details.decode(text)
    except UNREADABLE:
        return (), ()
    if _is_usual(details, closed=table.closed):  # most answers: the walk below costs three times as much
        return (), ()
    known, terms, unread = table.fields, list[str](), list[str]()
    for path, value in _leaves(details, (), closed=table.closed):
        field = _field_at(path, known=known)
        name = ".".join(path)
        if field is not None and field.meaning == "term" and isinstance(value, str):
            terms.append(shown(f"{name}={value}"))
        elif field is None and name not in unread:
            unread.append(name)
        elif field is not None and field.words is not None and name in known and value not in field.words:
            unread.append(f"{name}={value}")
    return tuple(terms), tuple([shown(name) for name in unread[:MOST_NAMED]])


def _is_usual(details: dict[str, object], *, closed: frozenset[str]) -> bool:
    """Whether it holds nothing but `closed` fields, at most two deep."""
    for key, value in details.items():
        if not value or key in closed:
            continue
        if type(value) is not dict:
            return False
        for inner, one in cast("dict[str, object]", value).items():
            if one and f"{key}.{inner}" not in closed:
                return False
    return True


def shown(name: str) -> str:
    """A provider's word that goes into a sentence for people."""
    return name if _PLAIN_NAME.fullmatch(name) else NAMELESS


def _field_at(path: tuple[str, ...], *, known: Mapping[str, UsageField]) -> UsageField | None:
    """What the table says of it, or of an object around it."""
    for end in range(len(path), 0, -1):
        if (field := known.get(".".join(path[:end]))) is not None:
            return field
    return None


def _leaves(
    value: object, path: tuple[str, ...], *, closed: frozenset[str]
) -> Iterator[tuple[tuple[str, ...], object]]:
    """Each number that is not zero, and each word, with its path; nothing of the `closed` fields."""
    match value:
        case bool() | None | 0 | "":
            return
        case dict():
            fields = cast("dict[str, object]", value)
            if fields.keys() in _BY_MODALITY:
                word = fields["modality"]
                modality = _NUMBERED.get(word, str(word)) if isinstance(word, int) else str(word)
                count = fields.get("tokenCount") or fields.get("tokens")
                yield from _leaves(count, (*path, modality), closed=closed)
                return
            for key, one in fields.items():
                if one and (key if not path else ".".join((*path, key))) not in closed:
                    yield from _leaves(one, (*path, key), closed=closed)
        case list():
            for one in cast("list[object]", value):
                yield from _leaves(one, path, closed=closed)
        case _:
            yield path, value


MAX_COUNT = 2**40  # far beyond any window and any bill: what is larger was not counted
# Of one usage object, and of the merged one. Real ones have less than 2 KiB, but for Anthropic's with an entry of 250 bytes for
# each sampling of a loop of its own tools.
MAX_BYTES = 64 * 1024
NO_KEYS: frozenset[str] = frozenset()
MAX_KEYS = 64  # of the merged object; real ones have about 20

TokenCount = Annotated[int, msgspec.Meta(ge=0, le=MAX_COUNT)] | None
"""A count in a usage object. Decode it with `strict=False`: gateways write 1.0 and "1"."""

Counts = TypeVar("Counts")

_count = msgspec.json.Decoder(Annotated[int, msgspec.Meta(ge=0, le=MAX_COUNT)], strict=False)
_number = msgspec.json.Decoder(float, strict=False)


def total_of(*counts: int | None) -> int:
    """The sum of parts that are counted apart, itself a count."""
    return min(sum([count or 0 for count in counts]), MAX_COUNT)


def read_counts(text: bytes | msgspec.Raw, decoder: msgspec.json.Decoder[Counts]) -> Counts | None:
    """The counts of a usage object. What is no count is left out; None where `text` is no object at all."""
    return read_told(text, decoder)[0]


def read_told(text: bytes | msgspec.Raw, decoder: msgspec.json.Decoder[Counts]) -> tuple[Counts | None, frozenset[str]]:
    """The same, and the keys whose values, or values below them, were left out because they are no counts."""
    try:
        return decoder.decode(text), NO_KEYS
    except UNREADABLE:
        pass
    try:
        kept, misfits = _without_misfits(text, decoder)
        return decoder.decode(kept), misfits
    except UNREADABLE:
        return None, NO_KEYS


def marked(
    usage: Usage, *, is_output_told: bool, misfits: frozenset[str], counts: Mapping[str, tuple[Untold, ...]]
) -> Usage:
    """The usage with what nobody told. A prompt has at least one token, so an input of 0 was not counted. `counts` are those
    that a misfit under a key leaves untold."""
    if usage.input_tokens and is_output_told and not misfits:
        return usage
    untold: list[Untold] = [] if usage.input_tokens else ["input_tokens"]
    if not is_output_told:
        untold.append("output_tokens")
    for key in sorted(misfits):
        untold += counts.get(key, ())
    return with_untold(usage, tuple(untold))


def says_same(one: Usage | None, other: Usage) -> bool:
    """Whether both have the same counts, from whatever source."""
    return one is not None and replace(one, untold=(), terms=()) == replace(other, untold=(), terms=())


def with_terms(usage: Usage, text: bytes | msgspec.Raw, *, table: UsageTable, tier: str = "") -> Usage:
    """The usage with how the request was served, and with the fields of `text` that nobody reads. `tier` is what the response
    says of it beside its usage."""
    terms, unread = read_terms(text, table=table)
    if tier and not any(term.startswith("service_tier=") for term in terms):
        terms = (*terms, shown(f"service_tier={tier}"))
    return replace(usage, terms=terms, unread=unread) if terms or unread else usage


class MergedUsage:
    """The usage objects of one response, merged into one. A later value replaces an earlier one unless it takes something
    away: null, 0, and what is no count in place of a count change nothing."""

    __slots__ = ("_fields", "_last", "text")

    def __init__(self) -> None:
        self.text = b""  # of the merged object
        self._fields: Fields = {}
        self._last = b""

    def add(self, raw: bytes | msgspec.Raw) -> bool:
        """Take one more object; returns whether it may say something new."""
        text = bytes(raw)
        if text == self._last or len(text) > MAX_BYTES or not is_utf8(text):
            return False
        self._last = text
        try:
            more = read_fields(text)
            fields = _merged(self._fields, more, is_whole=True) if self._fields else more
        except UNREADABLE:
            return False
        if self._fields:
            text = write_object(fields)
        if not more or len(text) > MAX_BYTES:
            return False
        self._fields, self.text = fields, text
        return True

    def drop(self, keys: Iterable[str]) -> None:
        """Forget these fields, so that even zeros can take their place."""
        self._fields = without(self._fields, keys)
        self.text = write_object(self._fields)
        self._last = b""  # an object equal to the last one brings them back


def with_missing(own: msgspec.Raw, ours: Mapping[str, object]) -> msgspec.Raw:
    """The provider's own object and, where it says nothing under a key of `ours`, what stands there; in objects as well. It keeps
    its bytes if it says all of them."""
    fields = read_fields(own)
    missing: dict[str, object] = {}
    for key, value in ours.items():
        raw = fields.get(key, NULL)
        if raw == NULL:
            missing[key] = value
        elif is_json_object(value) and is_object(raw) and (whole := with_missing(raw, value)) is not raw:
            missing[key] = whole
    return msgspec.Raw(encode({**fields, **missing})) if missing else own


def _merged(before: Fields, more: Fields, *, is_whole: bool) -> Fields:
    fields = dict(before)
    for key, value in more.items():
        if key in fields:
            fields[key] = _later(key, fields[key], value, is_whole=is_whole)
        elif len(fields) < MAX_KEYS:
            fields[key] = value
    return fields


def _later(key: str, before: msgspec.Raw, value: msgspec.Raw, *, is_whole: bool) -> msgspec.Raw:
    """The value that counts of two that stood under one key. Only one level of details has counts in any family."""
    if value in (before, NULL):
        return before
    if before == NULL:
        return value
    if not is_object(before):
        return before if _is_lesser(key, before, value) else value
    if not is_object(value):
        return before
    if not is_whole:
        return value
    return msgspec.Raw(write_object(_merged(read_fields(before), read_fields(value), is_whole=False)))


def _is_lesser(key: str, before: msgspec.Raw, value: msgspec.Raw) -> bool:
    """Zeros come from gateways that count nothing themselves; costs are numbers too."""
    if _number_of(value) == 0:
        return bool(_number_of(before))
    return "token" in key.casefold() and _is_count(before) and not _is_count(value)


def _number_of(raw: msgspec.Raw) -> float | None:
    try:
        return _number.decode(raw)
    except UNREADABLE:
        return None


def _is_count(raw: msgspec.Raw) -> bool:
    try:
        _count.decode(raw)
    except UNREADABLE:
        return False
    return True


def _without_misfits(text: bytes | msgspec.Raw, decoder: msgspec.json.Decoder[Counts]) -> tuple[bytes, frozenset[str]]:
    """The object without the fields that `decoder` refuses; of details, without those of theirs that it refuses. And the keys
    of all these."""

    def fits(key: str, value: bytes | msgspec.Raw) -> bool:
        try:
            decoder.decode(write_object({key: value}))
        except UNREADABLE:
            return False
        return True

    kept: dict[str, bytes | msgspec.Raw] = {}
    misfits: list[str] = []
    for key, value in read_fields(text).items():
        if fits(key, value):
            kept[key] = value
            continue
        misfits.append(key)
        if is_object(value):
            details = {name: raw for name, raw in read_fields(value).items() if fits(key, write_object({name: raw}))}
            if fits(key, write_object(details)):
                kept[key] = write_object(details)
    return write_object(kept), frozenset(misfits)


# Finish words that say nothing, and those that nobody documented: the same in every family.


# `str(None)` of three languages, as gateways were seen to write it where nothing has been said yet.
_SAY_NOTHING = frozenset(["", "null", "none", "undefined"])

# Words of one family that gateways and compatible servers write in the fields of another: read where the family's own table has
# no such word. No encoder writes them. Sources: the four families' tables (`endings.py` of each); LiteLLM
# `litellm_core_utils/core_helpers.py` (`map_finish_reason`); answers of Gemini's OpenAI-compatible endpoint, which names the
# filter before the word of its own API (`function_call_filter: MALFORMED_FUNCTION_CALL`).
FOREIGN_WORDS: Mapping[str, FinishReason] = {
    "stop": FinishReason.STOP,
    "eos": FinishReason.STOP,
    "end_turn": FinishReason.STOP,
    "stop_sequence": FinishReason.STOP,
    "completed": FinishReason.STOP,
    "tool_calls": FinishReason.TOOL_CALLS,
    "tool_use": FinishReason.TOOL_CALLS,
    "function_call": FinishReason.TOOL_CALLS,
    "length": FinishReason.LENGTH,
    "max_tokens": FinishReason.LENGTH,
    "max_output_tokens": FinishReason.LENGTH,
    "model_context_window_exceeded": FinishReason.LENGTH,
    "content_filter": FinishReason.CONTENT_FILTER,
    "safety": FinishReason.CONTENT_FILTER,
    "refusal": FinishReason.REFUSAL,
    "pause_turn": FinishReason.PAUSE,
    "error": FinishReason.ERROR,
    "failed": FinishReason.ERROR,
    "timeout": FinishReason.ERROR,
    "malformed_function_call": FinishReason.ERROR,
    "unexpected_tool_call": FinishReason.ERROR,
    "function_call_filter: malformed_function_call": FinishReason.ERROR,
    "function_call_filter: unexpected_tool_call": FinishReason.ERROR,
    "content_filter: safety": FinishReason.CONTENT_FILTER,
    "content_filter: recitation": FinishReason.CONTENT_FILTER,
    "content_filter: prohibited_content": FinishReason.CONTENT_FILTER,
    "content_filter: blocklist": FinishReason.CONTENT_FILTER,
    "content_filter: spii": FinishReason.CONTENT_FILTER,
}

# The model tried to call a tool, and its server could not read the call: as a finish word, or as the code of an error. Sources:
# Gemini API reference, `FinishReason`; pydantic/pydantic-ai#3095 (the response is empty, and asking again helps); Groq docs,
# "Tool use", and pydantic/pydantic-ai#4350 (`tool_use_failed`). In lower case.
CALL_FAILED = frozenset(
    {
        "malformed_function_call",
        "unexpected_tool_call",
        "function_call_filter: malformed_function_call",
        "function_call_filter: unexpected_tool_call",
        "tool_use_failed",
    }
)


def says_nothing(word: str | None) -> bool:
    """True where the provider has not said (yet) why the response ended; a stream that ends so was cut."""
    return word is None or word.strip().casefold() in _SAY_NOTHING


def read_word(word: str, *, own: Mapping[str, FinishReason]) -> FinishReason | None:
    """The reason for a provider's word: by the family's `own` table, else by that of the other families' words, in any case.
    None: nobody documented it, and no part of it says what it means."""
    folded = word.strip().casefold()
    return own.get(word) or own.get(folded) or FOREIGN_WORDS.get(folded)


def finish_of_word(word: str, *, own: Mapping[str, FinishReason]) -> FinishReason:
    """The same. For an unknown word it is `stop`: what the response holds decides. The assembler makes `tool_calls` of it where
    there are calls, and an empty response is asked for again."""
    return read_word(word, own=own) or FinishReason.STOP


def unknown_finish(word: str, reason: FinishReason) -> Mended:
    """The record of a finish word that no provider documents, so that readers of the answer can be told."""
    return Mended(
        Repair("unknown_finish", "response", f"the finish word `{printable(word)}` is not known: taken for `{reason}`")
    )


def unsaid_finish(mark: str) -> Mended:
    """The record of a response that has the end mark of its API and no finish reason: it did not break off."""
    return Mended(Repair(NO_FINISH_REASON, "response", f"it ended with {mark}, without a word about why"))


def unread_call(word: str) -> Mended:
    """The record of a call that the model made and its server could not read."""
    return Mended(
        Repair(CALL_NOT_READ, "response", f"the provider could not read the model's call: `{printable(word)}`")
    )


def finish_frames(finished: Finished, *, own: Mapping[str, FinishReason]) -> list[Mended | Finished]:
    """The end of a response, behind what has to be told of its word."""
    word = finished.provider_reason
    if word is None or word in own:  # as nearly always
        is_told = word is not None and finished.reason is FinishReason.ERROR and word.casefold() in CALL_FAILED
        return [unread_call(word), finished] if is_told and word is not None else [finished]
    if word.strip().casefold() in CALL_FAILED:
        return [unread_call(word), finished]
    return [finished] if read_word(word, own=own) is not None else [unknown_finish(word, finished.reason), finished]
