"""Which fields Google's API knows where: proto JSON refuses any other, at any depth, and names the place in snake_case."""

import re

from turnwise.lab.raw import Raw, rows, table
from turnwise.lab.strict.verdicts import Rejected

# message -> field -> the message it holds; "" where what it holds is plain, free (a Struct) or not looked into. `*` marks
# a list and `%` a map. Source: ai.google.dev/api/generate-content and /api/caching, google-genai's `types`.
REQUEST, CONTENT, PART, TOOL, DECLARATION, SCHEMA, CONFIG, TOOL_CONFIG = (
    "request content part tool declaration schema config tool_config".split()
)
PLAIN: dict[str, str] = {
    REQUEST: "safetySettings cachedContent labels model serviceTier store",
    CONTENT: "role",
    PART: "text thought thoughtSignature videoMetadata partMetadata mediaResolution codeExecutionResult executableCode "
    "toolCall toolResponse mediaProcessing",
    "call": "id name args partialArgs willContinue",
    "result": "id name response parts willContinue scheduling",
    "blob": "data mimeType displayName",
    "file": "fileUri mimeType displayName",
    TOOL: "codeExecution computerUse enterpriseWebSearch fileSearch googleMaps googleSearch googleSearchRetrieval "
    "mcpServers retrieval urlContext",
    DECLARATION: "name description parametersJsonSchema responseJsonSchema behavior",
    SCHEMA: "type format title description nullable enum maxItems minItems required minProperties maxProperties minLength "
    "maxLength pattern example propertyOrdering default minimum maximum",
    CONFIG: "stopSequences responseMimeType responseJsonSchema responseModalities candidateCount maxOutputTokens "
    "temperature topP topK seed presencePenalty frequencyPenalty responseLogprobs logprobs enableEnhancedCivicAnswers "
    "speechConfig imageConfig mediaResolution responseFormat audioTimestamp routingConfig modelSelectionConfig "
    "translationConfig enableAffectiveDialog",
    "thinking": "includeThoughts thinkingBudget thinkingLevel",
    TOOL_CONFIG: "retrievalConfig includeServerSideToolInvocations",
    "calling": "mode allowedFunctionNames streamFunctionCallArguments",
}
NESTED: dict[str, dict[str, str]] = {
    REQUEST: {
        "contents": "*content",
        "systemInstruction": CONTENT,
        "tools": "*tool",
        "toolConfig": TOOL_CONFIG,
        "generationConfig": CONFIG,
    },
    CONTENT: {"parts": "*part"},
    PART: {"functionCall": "call", "functionResponse": "result", "inlineData": "blob", "fileData": "file"},
    TOOL: {"functionDeclarations": "*declaration"},
    DECLARATION: {"parameters": SCHEMA, "response": SCHEMA},
    SCHEMA: {"properties": "%schema", "items": SCHEMA, "anyOf": "*schema"},
    CONFIG: {"responseSchema": SCHEMA, "thinkingConfig": "thinking"},
    TOOL_CONFIG: {"functionCallingConfig": "calling"},
}


def snake(name: str) -> str:
    return re.sub(r"(?<!^)(?=[A-Z])", "_", name).lower()


# Both spellings of each field -> what it holds.
KNOWN: dict[str, dict[str, str]] = {
    message: {
        spelling: held
        for name, held in {**dict.fromkeys(plain.split(), ""), **NESTED.get(message, {})}.items()
        for spelling in (name, snake(name))
    }
    for message, plain in PLAIN.items()
}


def check_fields(body: dict[str, Raw]) -> None:
    """Reported: zed#44875 (the path of a list and of a map), openswarm#24. Walks with a list: JSON may be nested deeply."""
    waiting: list[tuple[dict[str, Raw], str, str]] = [(body, REQUEST, "")]
    for fields, message, place in waiting:
        for field, value in fields.items():
            held = KNOWN[message].get(field)
            if held is None:
                at = f" at '{place}'" if place else ""
                raise Rejected(f'Invalid JSON payload received. Unknown name "{field}"{at}: Cannot find field.')
            path = f"{place}.{snake(field)}" if place else snake(field)
            inner = held.lstrip("*%")
            if not inner:
                continue
            if held.startswith("*"):
                values = [(item, f"{path}[{index}]") for index, item in enumerate(rows(value))]
            elif held.startswith("%"):
                values = [(item, f"{path}[{index}].value") for index, item in enumerate(table(value).values())]
            else:
                values = [(value, path)]
            waiting += [(table(item), inner, where) for item, where in values]
