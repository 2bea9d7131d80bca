"""What each field of a provider's usage object means, family by family: what turnwise reads, and what is no money.

A field that stands in no table, and holds a number or a word, may be money that nobody counted: `unread_fields` names it, and
the amount of its request is 'at least' (promise bill:served). A table names a field by its path: items of a list stand under the
list, and counts by modality (`{"modality": "IMAGE", "tokenCount": 3}`) under the word. Sources: the types of the packages
anthropic 2.14, openai 3.57 and google-genai 3.6, and the recorded streams.
"""

import re
from collections.abc import Iterator, Mapping
from typing import Literal, NamedTuple, cast

import msgspec

from turnwise.wire.json_fields import UNREADABLE
from turnwise.wire.profiles import FamilyName

FieldMeaning = Literal["count", "part", "term", "apart", "amount", "no money"]
"""A count of tokens that has a price; one of several samplings; a word by which the price changes; what is billed apart from
tokens; an amount of money itself; or nothing that costs, for the reason given."""


class UsageField(NamedTuple):
    meaning: FieldMeaning
    why: str = ""  # of a field that is no money


COUNT, PART, TERM, APART = UsageField("count"), UsageField("part"), UsageField("term"), UsageField("apart")
AMOUNT = UsageField("amount")
SUM = UsageField("no money", "a sum of counts that are read")
REST = UsageField("no money", "the rest of a count that is read")
AT_ITS_PRICE = UsageField("no money", "a part of a count that is read, and costs what the others of it do")
SECONDS = UsageField("no money", "a time or a speed")
WINDOW = UsageField("no money", "the size of the window, which is not billed")
NAME = UsageField("no money", "the name of what stands beside it")

_MODALITIES = ("TEXT", "IMAGE", "VIDEO", "DOCUMENT")
# As some servers write them. Source: google-genai's `MediaModality`, in the order of the API's enum.
_NUMBERED = {1: "TEXT", 2: "IMAGE", 3: "VIDEO", 4: "AUDIO", 5: "DOCUMENT"}
_OPENROUTER = {"cost": AMOUNT, "cost_details": AMOUNT, "is_byok": AMOUNT}
_SEARCHES = {
    "num_sources_used": APART,
    "num_server_side_tools_used": APART,
    "num_search_queries": APART,
    "server_tool_use": APART,
    "server_tool_use_details": APART,
    "server_side_tool_usage": APART,
    "server_side_tool_usage_details": APART,
}

FIELDS: Mapping[FamilyName, Mapping[str, UsageField]] = {
    "anthropic_messages": {
        "input_tokens": COUNT,
        "output_tokens": COUNT,
        "cache_creation_input_tokens": COUNT,
        "cache_read_input_tokens": COUNT,
        "cache_creation.ephemeral_5m_input_tokens": COUNT,
        "cache_creation.ephemeral_1h_input_tokens": COUNT,
        "output_tokens_details.thinking_tokens": COUNT,
        "iterations.type": NAME,
        "iterations.model": NAME,
        "iterations.input_tokens": PART,
        "iterations.output_tokens": PART,
        "iterations.cache_creation_input_tokens": PART,
        "iterations.cache_read_input_tokens": PART,
        "iterations.cache_creation.ephemeral_5m_input_tokens": PART,
        "iterations.cache_creation.ephemeral_1h_input_tokens": PART,
        "total_tokens": SUM,  # of gateways
        "service_tier": TERM,
        "speed": TERM,
        "inference_geo": TERM,
        "fallback_credit.status.type": TERM,
        "fallback_credit.status.reason": NAME,
        "server_tool_use": APART,
        **_OPENROUTER,
    },
    "openai_chat": {
        "prompt_tokens": COUNT,
        "completion_tokens": COUNT,
        "prompt_tokens_details.cached_tokens": COUNT,
        "prompt_tokens_details.cache_write_tokens": COUNT,
        "completion_tokens_details.reasoning_tokens": COUNT,
        "reasoning_tokens": COUNT,
        "prompt_cache_hit_tokens": COUNT,
        "cache_read_input_tokens": COUNT,
        "cached_tokens": COUNT,
        "cache_creation_input_tokens": COUNT,
        "cache_creation.ephemeral_5m_input_tokens": COUNT,
        "cache_creation.ephemeral_1h_input_tokens": COUNT,
        "total_tokens": SUM,
        "prompt_cache_miss_tokens": REST,
        "prompt_tokens_details.text_tokens": REST,
        "completion_tokens_details.text_tokens": REST,
        "prompt_tokens_details.image_tokens": AT_ITS_PRICE,
        "completion_tokens_details.accepted_prediction_tokens": AT_ITS_PRICE,
        "completion_tokens_details.rejected_prediction_tokens": AT_ITS_PRICE,
        "service_tier": TERM,
        "prompt_tokens_details.audio_tokens": APART,
        "completion_tokens_details.audio_tokens": APART,
        **_SEARCHES,
        **_OPENROUTER,
        "cost_in_usd_ticks": AMOUNT,
        "market_cost": AMOUNT,
        **dict.fromkeys(("queue_time", "prompt_time", "completion_time", "total_time"), SECONDS),  # Groq
        **dict.fromkeys(
            ("total_time_sec", "total_prompt_time_sec", "total_completion_time_sec"), SECONDS
        ),  # mistral.rs
        **dict.fromkeys(("avg_tok_per_sec", "avg_prompt_tok_per_sec", "avg_compl_tok_per_sec"), SECONDS),
    },
    "openai_responses": {
        "input_tokens": COUNT,
        "output_tokens": COUNT,
        "input_tokens_details.cached_tokens": COUNT,
        "input_tokens_details.cache_write_tokens": COUNT,
        "input_tokens_details.cache_write_tokens_details.ttl_30m_tokens": AT_ITS_PRICE,
        "output_tokens_details.reasoning_tokens": COUNT,
        "total_tokens": SUM,
        "context_details": WINDOW,  # xAI
        **_SEARCHES,
        **_OPENROUTER,
        "cost_in_usd_ticks": AMOUNT,
    },
    "gemini": {
        "promptTokenCount": COUNT,
        "candidatesTokenCount": COUNT,
        "thoughtsTokenCount": COUNT,
        "toolUsePromptTokenCount": COUNT,
        "cachedContentTokenCount": COUNT,
        "totalTokenCount": SUM,
        **{f"promptTokensDetails.{word}": AT_ITS_PRICE for word in _MODALITIES},
        **{f"toolUsePromptTokensDetails.{word}": AT_ITS_PRICE for word in _MODALITIES},
        **{f"cacheTokensDetails.{word}": AT_ITS_PRICE for word in _MODALITIES},
        "candidatesTokensDetails.TEXT": AT_ITS_PRICE,
        "promptTokensDetails.AUDIO": APART,
        "candidatesTokensDetails.AUDIO": APART,
        "serviceTier": TERM,
        "trafficType": TERM,
    },
}

ITERATIONS = frozenset({"message", "compaction", "advisor_message", "fallback_message"})
"""The kinds of Anthropic's iterations that are known; one of another kind may cost otherwise."""

# Fields of which nothing has to be looked at: none of what they hold has a meaning of its own, and neither is a word that counts.
_CLOSED: dict[FamilyName, frozenset[str]] = {
    family: frozenset(
        [
            name
            for name, field in fields.items()
            if field.meaning != "term"
            and name != "iterations.type"
            and not any(other.startswith(f"{name}.") for other in fields)
        ]
    )
    for family, fields in FIELDS.items()
}

MOST_NAMED = 8  # of unread fields; one is enough for 'at least'
_PLAIN_NAME = re.compile(r"[\w.=\- ]{1,100}", re.ASCII)
NAMELESS = "a field whose name cannot be shown"

_details = msgspec.json.Decoder(dict[str, object])


def read_terms(text: bytes | msgspec.Raw, *, family: FamilyName) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """How the provider served the request (`service_tier=priority`), and the fields that nobody reads and that may be money."""
    try:
        details = _details.decode(text)
    except UNREADABLE:
        return (), ()
    if _is_usual(details, closed=_CLOSED[family]):  # most answers: the walk below costs three times as much
        return (), ()
    known, terms, unread = FIELDS[family], list[str](), list[str]()
    for path, value in _leaves(details, (), closed=_CLOSED[family]):
        field = _field_at(path, known=known)
        name = ".".join(path)
        if field is not None and field.meaning == "term" and isinstance(value, str):
            terms.append(shown(f"{name}={value}"))
        elif field is None and name not in unread:
            unread.append(name)
        elif name == "iterations.type" and value not in ITERATIONS:
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
            if fields.keys() == {"modality", "tokenCount"}:
                word = fields["modality"]
                modality = _NUMBERED.get(word, str(word)) if isinstance(word, int) else str(word)
                yield from _leaves(fields["tokenCount"], (*path, modality), closed=closed)
                return
            for key, one in fields.items():
                if one and (key if not path else ".".join((*path, key))) not in closed:
                    yield from _leaves(one, (*path, key), closed=closed)
        case list():
            for one in cast("list[object]", value):
                yield from _leaves(one, path, closed=closed)
        case _:
            yield path, value
