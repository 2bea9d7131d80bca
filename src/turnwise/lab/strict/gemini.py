"""What generativelanguage.googleapis.com checks in a generateContent request. It takes camelCase and snake_case alike."""

import re

from turnwise.lab.raw import Raw, dump, either, rows, table, text
from turnwise.lab.strict.thinking import is_signature
from turnwise.lab.strict.verdicts import FamilyJudge, ModelRules, RefusalForm, Rejected

# Which fields Google's API knows where: proto JSON refuses any other, at any depth, and names the place in snake_case.


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


MODES = ("MODE_UNSPECIFIED", "AUTO", "ANY", "NONE", "VALIDATED")
PART_TEXTS = (
    "text",
    "thought",
    "thoughtSignature",
    "thought_signature",
    "videoMetadata",
    "video_metadata",
    "partMetadata",
)


def check(body: Raw, rules: ModelRules) -> None:
    if not isinstance(body, dict):
        raise Rejected("Invalid JSON payload received. Unexpected token.")
    check_fields(body)
    contents = body.get("contents")
    if not isinstance(contents, list) or not contents:
        raise Rejected("* GenerateContentRequest.contents: contents is not specified\n")
    config = table(either(body, "generationConfig", "generation_config"))
    limit = either(config, "maxOutputTokens", "max_output_tokens")
    if isinstance(limit, int) and not isinstance(limit, bool) and limit < 1:
        raise Rejected(
            f"Unable to submit request because it has a maxOutputTokens value of {limit} but it must be at least 1. "
            "Update the value and try again."
        )
    temperature = config.get("temperature")
    if isinstance(temperature, int | float) and not 0 <= temperature < 2.0001:  # recorded: vertex 400 148
        shown = str(temperature) if isinstance(temperature, int) else f"{temperature:g}"
        raise Rejected(
            f"Unable to submit request because it has a temperature value of {shown} but the supported range is "
            "from 0 (inclusive) to 2.0001 (exclusive). Update the value and try again."
        )
    check_tools(body)
    for position, content in enumerate(contents):
        check_content(table(content), position=position)
    check_turns([table(content) for content in contents])
    if rules.signed:
        check_signatures([table(content) for content in contents])
    if not rules.prefill and table(contents[-1]).get("role") == "model":
        raise Rejected("Please ensure that multiturn requests end with a user role or a function response.")


def check_tools(body: dict[str, Raw]) -> None:
    names: list[str] = []
    for index, tool in enumerate(rows(body.get("tools"))):
        for place, declared in enumerate(rows(either(tool, "functionDeclarations", "function_declarations"))):
            name = text(table(declared).get("name"))
            if not name or not (name[0].isalpha() or name[0] == "_"):
                raise Rejected(
                    f"* GenerateContentRequest.tools[{index}].function_declarations[{place}].name: Invalid function name. "
                    "Must start with a letter or an underscore. Must be alphanumeric (a-z, A-Z, 0-9), underscores (_), "
                    "dots (.), colons (:), or dashes (-), with a maximum length of 128.\n"
                )
            if name in names:
                raise Rejected(f"Duplicate function declaration found: {name}")
            names.append(name)
    config = either(body, "toolConfig", "tool_config")
    called = either(config, "functionCallingConfig", "function_calling_config")
    for found, where, type in (
        (config, "", "ToolConfig"),
        (called, ".function_calling_config", "FunctionCallingConfig"),
    ):
        if found is not None and not isinstance(found, dict):
            raise Rejected(
                f"Invalid value at 'tool_config{where}' "
                f"(type.googleapis.com/google.ai.generativelanguage.v1beta.{type}), {dump(found).decode()}"
            )
    calling = table(called)
    mode = calling.get("mode")
    if mode is not None and text(mode).upper() not in MODES:
        raise Rejected(
            "Invalid value at 'tool_config.function_calling_config.mode' "
            f"(type.googleapis.com/google.ai.generativelanguage.v1beta.FunctionCallingConfig.Mode), {dump(mode).decode()}"
        )
    if text(mode).upper() == "ANY" and not names:
        raise Rejected("Function calling config is set without function_declarations.")
    named = either(calling, "allowedFunctionNames", "allowed_function_names")
    allowed = [text(name) for name in (named if isinstance(named, list) else [named]) if name is not None]
    if allowed and text(mode).upper() not in ("ANY", "VALIDATED"):
        raise Rejected("Allowed function names can only be set when the function calling mode is ANY or VALIDATED.")
    unknown = [name for name in allowed if name not in names]
    if unknown:
        raise Rejected(f"Allowed function name `{unknown[0]}` is not in function_declarations.")


def check_content(content: dict[str, Raw], *, position: int) -> None:
    if content.get("role") not in (None, "", "user", "model", "function"):
        raise Rejected("Please use a valid role: user, model.")  # recorded: vertex 400 147
    where = f"* GenerateContentRequest.contents[{position}].parts"
    parts = rows(content.get("parts"))
    if not parts:
        raise Rejected(f"{where}: contents.parts must not be empty.\n")
    for index, part in enumerate(parts):
        fields = table(part)
        if not isinstance(fields.get("text"), str) and not any(name not in PART_TEXTS for name in fields):
            raise Rejected(f"{where}[{index}].data: required oneof field 'data' must have one initialized field\n")
        for name, word in (("functionCall", "function_call"), ("functionResponse", "function_response")):
            piece = either(part, name, word)
            if piece is not None and not text(table(piece).get("name")):
                raise Rejected(f"{where}[{index}].{word}.name: Name cannot be empty.\n")
        response = either(part, "functionResponse", "function_response")
        if response is not None and not isinstance(table(response).get("response"), dict):
            raise Rejected(
                f"Invalid value at 'contents[{position}].parts[{index}].function_response.response' "
                f"(type.googleapis.com/google.protobuf.Struct), {dump(table(response).get('response')).decode()}"
            )


def names_of(content: dict[str, Raw], *keys: str) -> list[str]:
    found = [either(part, *keys) for part in rows(content.get("parts"))]
    return [text(table(piece).get("name")) for piece in found if piece is not None]


def ids_of(content: dict[str, Raw], *keys: str) -> list[str]:
    found = [either(part, *keys) for part in rows(content.get("parts"))]
    return [text(table(piece).get("id")) for piece in found if piece is not None and text(table(piece).get("id"))]


def check_turns(contents: list[dict[str, Raw]]) -> None:
    """A turn of calls follows the user or results; the turn after it answers each call, and results stand nowhere else."""
    open_calls: list[str] = []
    open_ids: list[str] = []
    before = ""
    for content in contents:
        calls = names_of(content, "functionCall", "function_call")
        results = names_of(content, "functionResponse", "function_response")
        if results:
            if not open_calls:
                raise Rejected(
                    "Please ensure that function response turn comes immediately after a function call turn."
                )
            if len(results) != len(open_calls) or sorted(results) != sorted(open_calls):
                raise uneven()
            ids = ids_of(content, "functionResponse", "function_response")
            if len(ids) != len(set(ids)) or (open_ids and ids and set(ids) != set(open_ids)):
                raise uneven()
        elif open_calls:
            raise uneven()
        if calls and before not in ("user", "function"):
            raise Rejected(
                "Please ensure that function call turn comes immediately after a user turn or after a function response turn."
            )
        open_calls, open_ids = calls, ids_of(content, "functionCall", "function_call")
        before = "function" if results else text(content.get("role")) or "user"
    if open_calls:
        raise uneven()


def uneven() -> Rejected:
    return Rejected(
        "Please ensure that the number of function response parts is equal to the number of function call parts of the "
        "function call turn."
    )


STAND_INS = ("skip_thought_signature_validator", "context_engineering_is_the_way_to_go")


def check_signatures(contents: list[dict[str, Raw]]) -> None:
    """The first call of each response of the current turn brings its signature back, or the documented stand-in for calls
    that another model made.

    Source: ai.google.dev/gemini-api/docs/thought-signatures, "Strict function calling validation" and FAQ.
    """
    asked = [
        position
        for position, content in enumerate(contents)
        if text(content.get("role")) != "model"
        and any(either(part, "functionResponse", "function_response") is None for part in rows(content.get("parts")))
    ]
    for position, content in enumerate(contents):
        if asked and position < asked[-1]:
            continue
        calls = [
            part for part in rows(content.get("parts")) if either(part, "functionCall", "function_call") is not None
        ]
        signature = text(either(calls[0], "thoughtSignature", "thought_signature")) if calls else ""
        if calls and signature not in STAND_INS and not is_signature(signature):
            name = text(table(either(calls[0], "functionCall", "function_call")).get("name"))
            raise Rejected(
                "Function call is missing a thought_signature in functionCall parts. This is required for tools to work "
                "correctly, and missing thought_signature may lead to degraded model performance. Additional data, function "
                f"call `default_api:{name}` , position {position + 1}. Please refer to "
                "https://ai.google.dev/gemini-api/docs/thought-signatures for more details."
            )


# google.rpc.Code
ERROR_STATUSES = {
    401: "UNAUTHENTICATED",
    403: "PERMISSION_DENIED",
    404: "NOT_FOUND",
    429: "RESOURCE_EXHAUSTED",
    500: "INTERNAL",
    503: "UNAVAILABLE",
    504: "DEADLINE_EXCEEDED",
}


def error_object(rejected: Rejected) -> Raw:
    word = rejected.type or ERROR_STATUSES.get(rejected.status, "INVALID_ARGUMENT")
    return {"error": {"code": rejected.status, "message": rejected.message, "status": word}}


_CONFIGS = ("generationConfig", "generation_config")  # Google takes both ways of writing
_THINKING = ("thinkingConfig", "thinking_config")

JUDGE = FamilyJudge(
    name="gemini",
    check=check,
    error_object=error_object,
    no_json=RefusalForm("Invalid JSON payload received. {error}"),
    wrong_key=RefusalForm(
        "Request had invalid authentication credentials. Expected OAuth 2 access token, login cookie or other valid "
        "authentication credential.",
        status=401,
    ),
    unknown_model=RefusalForm(
        "models/{model} is not found for API version v1beta, or is not supported for generateContent. Call ListModels to see "
        "the list of available models and their supported methods.",
        status=404,
    ),
    window=RefusalForm("The input token count ({prompt}) exceeds the maximum number of tokens allowed ({window})."),
    output=RefusalForm(  # recorded: Vertex AI
        "Unable to submit request because it has a maxOutputTokens value of {asked} but the supported range is from 1 "
        "(inclusive) to {beyond} (exclusive). Update the value and try again."
    ),
    outputs=tuple([(one, name) for one in _CONFIGS for name in ("maxOutputTokens", "max_output_tokens")]),
    budgets=tuple([(one, name, "thinkingBudget") for one in _CONFIGS for name in _THINKING]),
    efforts=tuple([(one, name, "thinkingLevel") for one in _CONFIGS for name in _THINKING]),
)
