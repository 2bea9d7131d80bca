"""The list of the models that an endpoint offers: how it is asked for, and what is read of it. A list may be a stranger's."""

import re

import msgspec

from turnwise.wire.family import HttpCall, family
from turnwise.wire.json_fields import UNREADABLE, read_fields, read_items, string_of
from turnwise.wire.profiles import Profile

MOST_MODELS = 10_000  # OpenRouter lists some 400, Hugging Face's router some thousand
MOST_NAME = 200  # characters
MOST_TOKENS = 10**12
# How servers call the tokens of prompt and answer together: Groq; OpenRouter, Together, Fireworks; vLLM; Mistral.
_WINDOW = ("context_window", "context_length", "max_model_len", "max_context_length")
_INPUT = ("inputTokenLimit", "max_input_tokens")  # Gemini; Anthropic
# Gemini; others; Groq; Anthropic.
_OUTPUT = (
    "outputTokenLimit",
    "max_output_tokens",
    "max_completion_tokens",
    "max_tokens",
)
# When a model ends, as `2026-12-11`, with or without a time: OpenAI; Anthropic; OpenRouter.
_ENDS = ("shutdown_date", "retires_at", "expiration_date")
_DAY = re.compile(r"\d{4}-\d\d-\d\d(?=T|$)")
_count = msgspec.json.Decoder(int)


class OfferedModel(msgspec.Struct, frozen=True, kw_only=True):
    """One model of a list, with the limits (tokens) that its server says of it, since when there is one (seconds of Unix, or a
    time of RFC 3339), and the day on which it `ends`, if it does."""

    name: str
    window: int | None = None
    input: int | None = None
    output: int | None = None
    created: int | str | None = None
    ends: str | None = None


def list_call(profile: Profile) -> HttpCall | None:
    """The request for the list; None where the API has none: the model stands in the path (Bedrock, Vertex AI)."""
    if profile.path is not None:
        return None
    return family(profile.family).models_call


def read_model_list(body: bytes) -> tuple[OfferedModel, ...]:
    """The models of a body in any family's form, each once; entries without a name are passed over. Raises ValueError for what
    is no list."""
    try:
        entries = _entries(body.lstrip())
    except UNREADABLE:
        raise ValueError("no list of models") from None
    found: dict[str, OfferedModel] = {}
    for entry in entries[:MOST_MODELS]:
        model = _model(entry)
        if model is not None:
            found.setdefault(model.name, model)
    return tuple(found.values())


def _entries(body: bytes) -> list[msgspec.Raw]:
    """`{"data": [...]}`, Gemini's `{"models": [...]}`, or the bare array (Together)."""
    if body.startswith(b"["):
        return read_items(body)
    fields = read_fields(body)
    for key in ("data", "models"):
        if key in fields:
            return read_items(fields[key])
    raise ValueError("no list of models")


def _model(entry: msgspec.Raw) -> OfferedModel | None:
    try:
        fields = read_fields(entry)
        name = string_of(fields, "id") or (string_of(fields, "name") or "").removeprefix("models/")
    except UNREADABLE:
        return None
    if not name or len(name) > MOST_NAME:
        return None
    return OfferedModel(
        name=name,
        window=_first(fields, _WINDOW),
        input=_first(fields, _INPUT),
        output=_first(fields, _OUTPUT),
        created=_first(fields, ("created",)) or string_of(fields, "created_at"),
        ends=_day(fields),
    )


def _first(fields: dict[str, msgspec.Raw], keys: tuple[str, ...]) -> int | None:
    for key in keys:
        try:
            count = _count.decode(fields[key]) if key in fields else 0
        except UNREADABLE:
            continue
        if 0 < count <= MOST_TOKENS:
            return count
    return None


def _day(fields: dict[str, msgspec.Raw]) -> str | None:
    for key in _ENDS:
        if found := _DAY.match(string_of(fields, key) or ""):
            return found.group()
    return None
