"""What the gateway knows of the Gemini API. Sources: the API reference, and the request types of the `google-genai` package."""

import re
from collections.abc import Iterator, Mapping, Sequence

import msgspec
from msgspec.structs import replace

from turnwise.vocab import Opaque, Request
from turnwise.vocab.json_values import without
from turnwise.wire.family import BadRequest, HttpCall
from turnwise.wire.gemini.parts import NAME, camel, is_own_file
from turnwise.wire.gemini.parts import read_fields as read_camel_fields
from turnwise.wire.json_fields import (
    UNREADABLE,
    Fields,
    encode,
    extra_of,
    is_null,
    is_object,
    object_at,
    read_fields,
    write_object,
)
from turnwise.wire.relay_facts import (
    BEHIND,
    LIMIT,
    MAKES_STORED,
    NAMES_STORED,
    NO_CALL,
    NO_SCHEMA,
    OURS,
    REFUSED,
    THOUGHT,
    AskedKind,
    AskedPath,
    CountForm,
    FieldRule,
    ListedModel,
    ModelRow,
    Pairs,
    RelayFacts,
    StoredNames,
    model_name,
)

_REFERENCE = "Gemini API reference, generateContent"
_STORED = ("fileUri", "fileSearchStoreNames", "retrieval")


def _references(pairs: Pairs) -> Iterator[str]:
    """Of addresses, Google's alone."""
    for given, value in pairs:
        key = camel(given)
        if key in _STORED and value and (key != "fileUri" or (isinstance(value, str) and is_own_file(value))):
            yield given


def _allowed_alone(request: Request) -> Request:
    """A request of Gemini's that allows some of its tools by name offers these alone: the others could not be called."""
    fields = extra_of(request)
    config = object_at(fields, "toolConfig")
    calling = object_at(config, "functionCallingConfig")
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
        extra=Opaque(NAME, encode(fields).decode()),
    )


# Behind the last colon stands the verb: names of local models have colons of their own (`qwen3:8b`), those of gateways slashes.
_PATH = re.compile(r"/v1(?:beta)?/models/(?P<model>[^?#]+):(?P<verb>\w+)", re.ASCII)
_KINDS: dict[str, AskedKind] = {
    "generateContent": "generate",
    "streamGenerateContent": "generate",
    "countTokens": "count",
    "embedContent": "embed",
    "batchEmbedContents": "embed",
}


def _read_path(path: str) -> AskedPath | None:
    found = _PATH.fullmatch(path)
    kind = None if found is None else _KINDS.get(found["verb"])
    model = None if found is None else model_name(found["model"])
    if found is None or kind is None or model is None:
        return None
    return AskedPath(family=NAME, kind=kind, model=model, streams=found["verb"] == "streamGenerateContent")


def _counted(fields: Fields) -> Fields:
    """The API counts bare contents, or a whole request within the field `generateContentRequest`."""
    for key, raw in fields.items():
        if camel(key) == "generateContentRequest" and not is_null(raw):
            if not is_object(raw):
                raise BadRequest(f"`{key}` must be an object")
            return read_fields(raw)
    return fields


def _count_call(sent: HttpCall, keeps_bytes: bool) -> HttpCall:
    """The form with the whole request in it: the bare one counts no tools and no instructions."""
    path = sent.path.removesuffix(":generateContent")
    fields = without(read_camel_fields(sent.body), ("model",))
    inner = write_object({"model": encode(path.removeprefix("/")), **fields})
    return HttpCall(path=f"{path}:countTokens", body=write_object({"generateContentRequest": inner}))


def _model(model: ListedModel) -> ModelRow:
    """Source: Gemini API reference, "Get model"."""
    return {"name": f"models/{model.name}", "supportedGenerationMethods": ["generateContent", "countTokens"]}


def _models(rows: Sequence[ModelRow]) -> ModelRow:
    """Source: Gemini API reference, "List models"."""
    return {"models": rows}


_BLANK = b" \t\r\n\xef\xbb\xbf"


def _reads(raw: bytes) -> bool:
    """A stream that is one JSON array is for those who asked without `alt=sse`."""
    return raw.lstrip(_BLANK)[:1] not in (b"[", b"{", b",", b"]")


def _why_foreign(message: Mapping[str, object]) -> str:
    return "has `content` in place of `parts`" if "content" in message and "parts" not in message else ""


RELAY_FACTS = RelayFacts(
    name=NAME,
    title="the Gemini API",
    sources={
        "calls": f"{_REFERENCE}, `FunctionCall`",
        "events": f"{_REFERENCE}, `GenerateContentResponse`",
        "ends": f"{_REFERENCE}, `FinishReason`",
        "bodies": "Gemini API reference, streamGenerateContent",
    },
    excused={"id_missing": "An id of a call is optional in this API. The gateway made one for its client."},
    paths={("GET", "/v1beta/models"): "models"},
    reads_path=_read_path,
    client_headers=frozenset({"x-goog-api-key", "x-goog-api-client"}),
    folder="/v1beta/",
    model_in_path=True,
    status_in_body=True,
    count=CountForm(field="totalTokens", inner=_counted, call=_count_call),
    model_row=_model,
    model_list=_models,
    arrays=True,
    client_reading=lambda: _reads,
    setting_names={
        "temperature": "generationConfig.temperature",
        "top_p": "generationConfig.topP",
        "stop": "generationConfig.stopSequences",
        "seed": "generationConfig.seed",
        "reasoning": "generationConfig.thinkingConfig",
        "tool_choice": "toolConfig.functionCallingConfig",
        "parallel": "parallel_tool_calls",
        "output": "generationConfig.responseJsonSchema",
        "limit": "generationConfig.maxOutputTokens",
    },
    history="contents",
    system="systemInstruction",
    beside="systemInstruction",
    message_fields=frozenset({"role", "parts"}),
    own_message=lambda message: "parts" in message or message.get("role") == "model",
    why_foreign=_why_foreign,
    as_beside=lambda given: {"parts": [{"text": given}]} if isinstance(given, str) else given,
    spelling=camel,
    is_served=lambda own: bool(own) and "functionDeclaration" not in own,
    stored=StoredNames(
        fields={"cachedContent": NAMES_STORED, "continuationToken": NAMES_STORED, "store": MAKES_STORED},
        names=_STORED,
        free=frozenset(
            "args response functionDeclarations responseSchema responseJsonSchema labels executableCode".split()
        ),
        references=_references,
    ),
    parents=frozenset(
        {"generationConfig", "generationConfig.thinkingConfig", "toolConfig", "toolConfig.functionCallingConfig"}
    ),
    rules={
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
        "generationConfig.topK": FieldRule(means="top_k"),
        "generationConfig.frequencyPenalty": FieldRule(means="frequency_penalty"),
        "generationConfig.presencePenalty": FieldRule(means="presence_penalty"),
        "toolConfig.functionCallingConfig.allowedFunctionNames": REFUSED,
    },
    in_words=_allowed_alone,
    changed={
        "contents": BEHIND,
        "tools": NO_CALL,
        "toolConfig.functionCallingConfig": NO_CALL,
        "generationConfig.responseMimeType": NO_SCHEMA,
        "generationConfig.responseSchema": NO_SCHEMA,
        "generationConfig.responseJsonSchema": NO_SCHEMA,
        "generationConfig.maxOutputTokens": LIMIT,
        "generationConfig.thinkingConfig": THOUGHT,
    },
    limits=("generationConfig.maxOutputTokens",),
    forbid_parallel=lambda fields, profile: None,  # the API has no word for it
    takes={
        "top_k": "generationConfig.topK",
        "frequency_penalty": "generationConfig.frequencyPenalty",
        "presence_penalty": "generationConfig.presencePenalty",
    },
    json_mode=("generationConfig.responseMimeType", b'"application/json"'),
    places={
        "temperature": ("generationConfig.temperature",),
        "top_p": ("generationConfig.topP",),
        "stop": ("generationConfig.stopSequences",),
        "seed": ("generationConfig.seed",),
        "reasoning": ("generationConfig.thinkingConfig",),
        "tool_choice": ("toolConfig.functionCallingConfig.mode",),
        "output": ("generationConfig.responseJsonSchema",),
    },
    most_stops=5,
    begins="user",
    keeps_system=lambda profile: False,
    strict_tools=False,
    untyped_schemas=True,
    tool_schemas="standard",
    object_arguments=True,
    assistant_files=True,
    file_names="never",
    error_results="always",
)
