"""Fields of a request's body that have no word in the shared vocabulary, on their way to another family's API.

One table a family. A field that stands in none is told and left out: a field that came later than this code must neither stop a
client nor vanish in silence. Sources: the API references of the four families, and the request types of their Python packages.
"""

from collections.abc import Iterator, Mapping

import msgspec
from msgspec.structs import replace

from turnwise.relay.refusals import RequestRefused
from turnwise.relay.stricter_apis import TITLES
from turnwise.relay.terms import not_carried
from turnwise.vocab import Opaque, Repair, Request
from turnwise.wire.json_fields import UNREADABLE, Fields, compact_text, encode, is_object, read_fields, string_of
from turnwise.wire.profiles import FamilyName


class FieldRule(msgspec.Struct, frozen=True):
    """What becomes of a field. `refuses`: without it the answer would be another one, so the request is refused. `harmless` are
    the values that ask for what is done anyway. `goes_as` names its place in the families that have it, too. `ours`: the
    gateway does what it says, whatever the upstream's family."""

    refuses: bool = False
    harmless: tuple[str, ...] = ()
    goes_as: Mapping[str, str] = {}
    ours: bool = False


TOLD = FieldRule()
OURS = FieldRule(ours=True)
REFUSED = FieldRule(refuses=True)
TOP_K = FieldRule(goes_as={"anthropic_messages": "top_k", "gemini": "generationConfig.topK"})

PARENTS: Mapping[FamilyName, frozenset[str]] = {
    "openai_chat": frozenset({"stream_options"}),
    "openai_responses": frozenset({"stream_options", "text", "reasoning"}),
    "anthropic_messages": frozenset({"output_config", "thinking"}),
    "gemini": frozenset(
        {"generationConfig", "generationConfig.thinkingConfig", "toolConfig", "toolConfig.functionCallingConfig"}
    ),
}
"""Objects whose fields are judged one by one."""

RULES: Mapping[FamilyName, Mapping[str, FieldRule]] = {
    "openai_chat": {
        "n": FieldRule(refuses=True, harmless=("1",)),
        "logprobs": REFUSED,
        "top_logprobs": FieldRule(refuses=True, harmless=("0",)),
        "logit_bias": FieldRule(refuses=True, harmless=("{}",)),
        "modalities": FieldRule(refuses=True, harmless=('["text"]',)),
        "audio": REFUSED,
        "web_search_options": REFUSED,
        "response_format": REFUSED,
        "tool_choice": REFUSED,
        "store": REFUSED,
        "frequency_penalty": FieldRule(goes_as={"gemini": "generationConfig.frequencyPenalty"}),
        "presence_penalty": FieldRule(goes_as={"gemini": "generationConfig.presencePenalty"}),
        "top_k": TOP_K,
        "verbosity": FieldRule(goes_as={"openai_responses": "text.verbosity"}),
        "stream_options": OURS,  # the gateway writes the stream
        "stream_options.include_usage": OURS,
        "stream_options.include_obfuscation": OURS,
        "prompt_cache_key": OURS,
        "prompt_cache_retention": OURS,
        "cache_control": OURS,
    },
    "openai_responses": {
        "previous_response_id": REFUSED,
        "conversation": REFUSED,
        "prompt": REFUSED,
        "instructions": REFUSED,
        "store": REFUSED,
        "background": REFUSED,
        "top_logprobs": FieldRule(refuses=True, harmless=("0",)),
        "text.format": FieldRule(refuses=True, harmless=('{"type":"text"}',)),
        "text.verbosity": FieldRule(goes_as={"openai_chat": "verbosity"}),
        "tool_choice": REFUSED,
        "truncation": FieldRule(harmless=('"disabled"',)),
        "stream_options.include_obfuscation": OURS,
        "prompt_cache_key": OURS,
        "prompt_cache_retention": OURS,
    },
    "anthropic_messages": {
        "top_k": TOP_K,
        "container": REFUSED,
        "thread": REFUSED,
        "mcp_servers": REFUSED,
        "compaction": REFUSED,
        "output_format": REFUSED,
        "output_config.format": REFUSED,
        "anthropic_version": OURS,  # Bedrock and Vertex AI have it in the body
        "cache_control": OURS,
    },
    "gemini": {
        "cachedContent": REFUSED,
        "continuationToken": REFUSED,
        "store": REFUSED,
        "systemInstruction": REFUSED,
        "model": OURS,  # the path names it
        "generationConfig.candidateCount": FieldRule(refuses=True, harmless=("1",)),
        "generationConfig.responseLogprobs": REFUSED,
        "generationConfig.responseModalities": FieldRule(refuses=True, harmless=('["TEXT"]',)),
        "generationConfig.responseMimeType": FieldRule(refuses=True, harmless=('"text/plain"',)),
        "generationConfig.responseSchema": REFUSED,
        "generationConfig.responseJsonSchema": REFUSED,
        "generationConfig.responseFormat": REFUSED,
        "generationConfig.topK": FieldRule(goes_as={"anthropic_messages": "top_k"}),
        "generationConfig.frequencyPenalty": FieldRule(goes_as={"openai_chat": "frequency_penalty"}),
        "generationConfig.presencePenalty": FieldRule(goes_as={"openai_chat": "presence_penalty"}),
        "toolConfig.functionCallingConfig.allowedFunctionNames": REFUSED,
    },
}

NOTHING_SAID = frozenset({"null", "false", "[]", "{}", '""'})
"""Values that ask for nothing, in any field; but an empty object may switch a tool on (`web_search_options`)."""

JSON_MODE: Mapping[FamilyName, tuple[str, bytes]] = {
    "openai_chat": ("response_format", b'{"type":"json_object"}'),
    "openai_responses": ("text.format", b'{"type":"json_object"}'),
    "gemini": ("generationConfig.responseMimeType", b'"application/json"'),
}
"""Where a family asks for JSON without a schema. Anthropic's API has no word for it."""


def carry_extra(request: Request, *, source: FamilyName, target: FamilyName) -> tuple[Opaque | None, list[Repair]]:
    """The further fields of a body as `target` says them, and what it cannot say. Raises RequestRefused."""
    carried: dict[str, object] = {}
    told: list[Repair] = []
    fields = {} if request.extra is None else read_fields(request.extra.json)
    for name, raw in walk(fields, parents=PARENTS[source]):
        rule = RULES[source].get(name, TOLD)
        text = compact_text(raw)
        place = rule.goes_as.get(target)
        if rule.ours or text in rule.harmless or (text in NOTHING_SAID and not (rule.refuses and text == "{}")):
            continue
        if _is_json_mode(name, raw, source=source):
            place, raw = _json_mode(name, target=target)
        elif request.output is not None and name in ("response_format", "text.format"):
            rule = TOLD  # the schema itself goes; what else stands beside it (`description`) does not
        elif name == "include":
            _refuse_logprobs(raw)
        if place is not None:
            _put_at(carried, place, raw)
        elif rule.refuses:
            raise RequestRefused(f"`{name}` cannot be carried to {TITLES[target]}, which serves this model", field=name)
        else:
            told.append(not_carried(name, because=f"{TITLES[target]} does not have it"))
    return (Opaque(target, encode(carried).decode()) if carried else None), told


def allowed_alone(request: Request) -> Request:
    """A request of Gemini's that allows some of its tools by name offers these alone: the others could not be called."""
    fields = {} if request.extra is None else read_fields(request.extra.json)
    config = _fields(fields.get("toolConfig"))
    calling = _fields(config.get("functionCallingConfig"))
    raw = calling.pop("allowedFunctionNames", None)
    try:
        names = frozenset(msgspec.json.decode(raw, type=list[str])) if raw is not None else frozenset[str]()
    except UNREADABLE:
        return request
    if not names or not names <= {tool.name for tool in request.tools}:
        return request
    fields["toolConfig"] = msgspec.Raw(encode({**config, "functionCallingConfig": calling}))
    return replace(
        request,
        tools=tuple([tool for tool in request.tools if tool.name in names]),
        extra=Opaque("gemini", encode(fields).decode()),
    )


def budget_alone(request: Request) -> Request:
    """A request of Anthropic's with the thinking budget that stands beside what the vocabulary has no word for (`display`)."""
    fields = {} if request.extra is None else read_fields(request.extra.json)
    thinking = _fields(fields.get("thinking"))
    if string_of(thinking, "type") != "enabled" or request.settings.reasoning_tokens is not None:
        return request
    try:
        budget = msgspec.json.decode(thinking.pop("budget_tokens", b"null"), type=int)
    except UNREADABLE:
        return request
    del thinking["type"]
    fields["thinking"] = msgspec.Raw(encode(thinking))
    settings = replace(request.settings, reasoning_tokens=budget)
    return replace(request, settings=settings, extra=Opaque("anthropic_messages", encode(fields).decode()))


def _fields(raw: msgspec.Raw | None) -> Fields:
    return read_fields(raw) if raw is not None and is_object(raw) else {}


def walk(fields: Fields, *, parents: frozenset[str], above: str = "") -> Iterator[tuple[str, msgspec.Raw]]:
    """The fields by dotted names; the objects named by `parents` are taken apart."""
    for key, raw in fields.items():
        name = above + key
        if name in parents and is_object(raw):
            yield from walk(read_fields(raw), parents=parents, above=f"{name}.")
        else:
            yield name, raw


def _put_at(fields: dict[str, object], place: str, raw: msgspec.Raw) -> None:
    parent, _, key = place.rpartition(".")
    below = fields.setdefault(parent, {}) if parent else fields
    assert isinstance(below, dict)
    below[key] = raw


def _is_json_mode(name: str, raw: msgspec.Raw, *, source: FamilyName) -> bool:
    place, value = JSON_MODE.get(source, ("", b""))
    if name != place:
        return False
    if not is_object(raw):
        return bytes(raw) == value
    return string_of(read_fields(raw), "type") == "json_object"


def _json_mode(name: str, *, target: FamilyName) -> tuple[str, msgspec.Raw]:
    if target not in JSON_MODE:
        raise RequestRefused(
            f"`{name}` asks for JSON without a schema, which {TITLES[target]} does not have: give a schema", field=name
        )
    place, value = JSON_MODE[target]
    return place, msgspec.Raw(value)


def _refuse_logprobs(raw: msgspec.Raw) -> None:
    try:
        words = msgspec.json.decode(raw, type=list[str])
    except UNREADABLE:
        return
    if "message.output_text.logprobs" in words:
        raise RequestRefused("`include` asks for `logprobs`, which cannot be carried", field="include")
