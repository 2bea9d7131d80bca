"""What the gateway knows of the Gemini API. Sources: the API reference, and the request types of the `google-genai` package."""

from collections.abc import Iterator

import msgspec
from msgspec.structs import replace

from turnwise.vocab import Opaque, Request
from turnwise.wire.gemini.fields import NAME, camel
from turnwise.wire.gemini.parts import is_own_file
from turnwise.wire.json_fields import UNREADABLE, encode, object_at, read_fields
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
    FieldRule,
    Pairs,
    RelayFacts,
    StoredNames,
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
    fields = {} if request.extra is None else read_fields(request.extra.json)
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


RELAY_FACTS = RelayFacts(
    title="the Gemini API",
    sources={
        "calls": f"{_REFERENCE}, `FunctionCall`",
        "events": f"{_REFERENCE}, `GenerateContentResponse`",
        "ends": f"{_REFERENCE}, `FinishReason`",
        "bodies": "Gemini API reference, streamGenerateContent",
    },
    excused={"id_missing": "An id of a call is optional in this API. The gateway made one for its client."},
    count_field="totalTokens",
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
