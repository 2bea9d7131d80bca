"""What api.openai.com checks in a Chat Completions request. `messages[i]` and `messages.[i]` are both its own spelling."""

import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Literal

import msgspec

from turnwise.lab.raw import Raw, dump, kind, parse, rows, table, text
from turnwise.lab.strict.verdicts import (
    ALL_EFFORTS,
    FamilyJudge,
    JudgedModel,
    ModelRules,
    RefusalForm,
    Rejected,
    check_marks,
    marks_of_chat,
)

# Which tool choices OpenAI's two APIs take: a word, a tool that is on offer, or a set of such tools.
#
# Chat Completions names a tool inside of an object of its type (`{"type": "function", "function": {"name": ...}}`), Responses
# beside it. Shapes: `ChatCompletionToolChoiceOptionParam` and `ToolChoice...Param` of the SDK; words for a missing `function`
# and for an unknown type as those of the tools themselves.


def missing(where: str) -> Rejected:
    return Rejected(f"Missing required parameter: '{where}'.", param=where, code="missing_required_parameter")


def wrong_type(value: Raw, expected: str, *, where: str) -> Rejected:
    message = f"Invalid type for '{where}': expected {expected}, but got {article(value)} instead."
    return Rejected(message, param=where, code="invalid_type")


def article(value: Raw) -> str:
    word = kind(value)
    return word if word == "null" else f"{'an' if word[0] in 'aio' else 'a'} {word}"


def check_text(value: Raw, *, where: str) -> None:
    """A text that has to be there."""
    if value is None:
        raise missing(where)
    if not isinstance(value, str):
        raise wrong_type(value, "a string", where=where)


def not_among(word: str, words: Sequence[str], *, where: str) -> Rejected:
    *most, last = [f"'{one}'" for one in words]
    supported = ", ".join(most) + (", and " if len(most) > 1 else " and ") + last
    return Rejected(f"Invalid value: '{word}'. Supported values are: {supported}.", param=where, code="invalid_value")


Api = Literal["chat", "responses"]
NAMED = ("function", "custom")
MODES = ("auto", "required")


def check_choice(choice: Raw, *, tools: Raw, api: Api, words: Collection[str]) -> None:
    """Raises Rejected for a choice that no response could obey; `words` are those that stand for themselves."""
    if isinstance(choice, str):
        if choice not in words:
            raise not_among(choice, ("none", "auto", "required"), where="tool_choice")
        return
    if not isinstance(choice, dict):
        raise wrong_type(choice, "one of a string or object", where="tool_choice")
    if choice.get("type") == "allowed_tools":
        _check_allowed(choice, tools=tools, api=api)
    else:
        _check_tool(choice, tools=tools, api=api, where="tool_choice")


def _check_allowed(choice: dict[str, Raw], *, tools: Raw, api: Api) -> None:
    where = "tool_choice.allowed_tools" if api == "chat" else "tool_choice"
    allowed = table(choice.get("allowed_tools")) if api == "chat" else choice
    mode = allowed.get("mode")
    if mode not in MODES:
        raise not_among(text(mode), MODES, where=f"{where}.mode")
    named = rows(allowed.get("tools"))
    if not named:
        raise missing(f"{where}.tools")
    for position, one in enumerate(named):
        _check_tool(table(one), tools=tools, api=api, where=f"{where}.tools[{position}]")


def _check_tool(choice: dict[str, Raw], *, tools: Raw, api: Api, where: str) -> None:
    type = text(choice.get("type"))
    if not type:
        raise missing(f"{where}.type")
    offered = [table(tool) for tool in rows(tools)]
    if type not in NAMED:
        _check_type(type, offered=offered, api=api, where=where)
        return
    if api == "chat":
        if not isinstance(choice.get(type), dict):
            raise missing(f"{where}.{type}")
        offered = [table(tool.get(type)) for tool in offered if tool.get("type") == type]
        name = text(table(choice[type]).get("name"))
    else:
        offered = [tool for tool in offered if tool.get("type") == type]
        name = text(choice.get("name"))
    if name not in [tool.get("name") for tool in offered]:
        raise Rejected(f"Tool choice '{name}' not found in 'tools' parameter.", param="tool_choice")


def _check_type(type: str, *, offered: list[dict[str, Raw]], api: Api, where: str) -> None:
    """A tool of the provider, by its type alone. Chat Completions has none."""
    if api == "chat":
        raise not_among(type, ("function", "allowed_tools", "custom"), where=f"{where}.type")
    if type not in [tool.get("type") for tool in offered]:
        raise Rejected(f"Tool choice '{type}' not found in 'tools' parameter.", param="tool_choice")


# What api.openai.com checks in the names and schemas of tools and of structured output, in Chat Completions and Responses.


NAME = re.compile(r"[a-zA-Z0-9_-]+")
NAME_CHARACTERS = 64


def check_name(name: Raw, *, where: str) -> None:
    """A tool's or an output's name. Reported: swagger-mcp#13, llama_index#16093, mcp-use#90."""
    if not isinstance(name, str):
        raise missing(where)
    check_length(name, where=where, limit=NAME_CHARACTERS)
    if not NAME.fullmatch(name):
        raise Rejected(
            f"Invalid '{where}': string does not match pattern. Expected a string that matches the pattern '^[a-zA-Z0-9_-]+$'.",
            param=where,
            code="invalid_value",
        )


def check_length(value: str, *, where: str, limit: int) -> None:
    """Reported: opencode#12653 (40 in Chat), fastllm#45 (64 in Responses, with the code)."""
    if len(value) > limit:
        raise Rejected(
            f"Invalid '{where}': string too long. Expected a string with maximum length {limit}, "
            f"but got a string with length {len(value)} instead.",
            param=where,
            code="string_above_max_length",
        )


def check_parameters(parameters: Raw, *, name: str, strict: bool, where: str) -> None:
    """A function's parameters. Reported: composio#1829, trae-agent#173."""
    problem = ""
    if parameters is not None:
        if not isinstance(parameters, dict):
            problem = f"{dump(parameters).decode()} is not of type 'object'."
        elif parameters.get("type") != "object":
            found = text(parameters.get("type")) or "None"
            problem = f"schema must be a JSON Schema of 'type: \"object\"', got 'type: \"{found}\"'."
    if strict and not problem:
        problem = next(not_strict(parameters), "")
    if problem:
        raise Rejected(
            f"Invalid schema for function '{name}': {problem}", param=where, code="invalid_function_parameters"
        )


def check_output(described: dict[str, Raw], *, where: str, param: str) -> None:
    """`json_schema` of a Chat request's `response_format`, or a Responses request's `text.format`."""
    check_name(described.get("name"), where=f"{where}.name")
    schema = described.get("schema")
    if not isinstance(schema, dict):
        raise missing(f"{where}.schema")
    problem = next(not_strict(schema), "") if described.get("strict") is True else ""
    if problem:
        raise Rejected(f"Invalid schema for response_format '{text(described.get('name'))}': {problem}", param=param)


def not_strict(schema: Raw, *, context: tuple[str, ...] = ()) -> Iterator[str]:
    """What strict mode refuses, each as the API words it. Source: OpenAI docs, "Structured outputs", supported schemas."""
    fields = table(schema)
    shown = f"In context={context!r}, "
    if fields.get("type") == "object":
        if fields.get("additionalProperties") is not False:
            yield f"{shown}'additionalProperties' is required to be supplied and to be false."
        required = [name for name in rows(fields.get("required")) if isinstance(name, str)]
        missing = [name for name in table(fields.get("properties")) if name not in required]
        if missing:
            yield (
                f"{shown}'required' is required to be supplied and to be an array including every key in properties. "
                f"Missing '{missing[0]}'."
            )
    for key in ("properties", "$defs"):
        for name, inner in table(fields.get(key)).items():
            yield from not_strict(inner, context=(*context, key, name))
    yield from not_strict(fields["items"], context=(*context, "items")) if "items" in fields else ()
    for place, inner in enumerate(rows(fields.get("anyOf"))):
        yield from not_strict(inner, context=(*context, "anyOf", str(place)))


ROLES = ("system", "assistant", "user", "function", "tool", "developer")
CHOICES = ("none", "auto", "required", "any")  # `any` is Mistral's word for required
PARTS = ("text", "image_url", "input_audio", "refusal", "audio", "file")
CALL_ID_CHARACTERS = 40
MAX_STOPS = 4


def check(body: Raw, rules: ModelRules) -> None:
    """Raises Rejected. The order is the API's own: fields, then messages one by one, then the pairing."""
    if not isinstance(body, dict):
        raise Rejected("We could not parse the JSON body of your request. Expected a JSON object.")
    if not text(body.get("model")):
        raise Rejected("you must provide a model parameter")
    if "messages" not in body:
        raise missing("messages")
    messages = array(body["messages"], where="messages")
    check_numbers(body)
    check_limits(body)
    check_tools(body)
    check_format(body.get("response_format"))
    for position, message in enumerate(messages):
        check_message(message, position=position, more_parts=rules.parts)
    check_pairing(messages)
    check_marks(marks_of_chat(body))


def array(value: Raw, *, where: str) -> list[Raw]:
    if not isinstance(value, list):
        raise wrong_type(value, "an array of objects", where=where)
    if not value:
        raise Rejected(
            f"Invalid '{where}': empty array. Expected an array with minimum length 1, but got an empty array instead.",
            param=where,
            code="empty_array",
        )
    return value


def check_numbers(body: dict[str, Raw]) -> None:
    temperature = body.get("temperature")
    if isinstance(temperature, int | float) and not 0 <= temperature <= 2:  # recorded: openai 400 050
        over = temperature > 2
        side, word, bound = ("above maximum", "<=", 2) if over else ("below minimum", ">=", 0)
        raise Rejected(
            f"Invalid 'temperature': decimal {side} value. Expected a value {word} {bound}, "
            f"but got {dump(temperature).decode()} instead.",
            param="temperature",
            code="decimal_above_max_value" if over else "decimal_below_min_value",
        )


def check_limits(body: dict[str, Raw]) -> None:
    for field in ("max_tokens", "max_completion_tokens"):
        check_whole_number(body.get(field), where=field, least=1)
    if body.get("max_tokens") is not None and body.get("max_completion_tokens") is not None:  # langgraph#5943
        raise Rejected(
            "Setting 'max_tokens' and 'max_completion_tokens' at the same time is not supported.",
            param="max_tokens",
            code="invalid_parameter_combination",
        )
    stops = rows(body.get("stop"))
    if len(stops) > MAX_STOPS:
        raise Rejected(
            f"Invalid 'stop': array too long. Expected an array with maximum length {MAX_STOPS}, "
            f"but got an array with length {len(stops)} instead.",
            param="stop",
            code="array_above_max_length",
        )
    if body.get("stream_options") is not None and body.get("stream") is not True:  # litellm#5803
        raise Rejected(
            "The 'stream_options' parameter is only allowed when 'stream' is enabled.", param="stream_options"
        )


def check_whole_number(value: Raw, *, where: str, least: int) -> None:
    if value is None:
        return
    if not isinstance(value, int) or isinstance(value, bool):
        raise wrong_type(value, "an integer", where=where)
    if value < least:
        raise Rejected(
            f"Invalid '{where}': integer below minimum value. Expected a value >= {least}, but got {value} instead.",
            param=where,
            code="integer_below_min_value",
        )


def check_format(format: Raw) -> None:
    if table(format).get("type") == "json_schema":
        described = table(format).get("json_schema")
        if not isinstance(described, dict):
            raise missing("response_format.json_schema")
        check_output(described, where="response_format.json_schema", param="response_format")


def check_tools(body: dict[str, Raw]) -> None:
    names: set[str] = set()
    if body.get("tools") is not None:
        for position, tool in enumerate(array(body["tools"], where="tools")):
            names.add(check_tool(tool, where=f"tools[{position}]"))
    if body.get("parallel_tool_calls") is not None and not names:
        raise Rejected(
            "Invalid value for 'parallel_tool_calls': 'parallel_tool_calls' is only allowed when 'tools' are specified.",
            param="parallel_tool_calls",
        )
    choice = body.get("tool_choice")
    if choice is None:
        return
    if isinstance(choice, str) or names:
        check_choice(choice, tools=body.get("tools"), api="chat", words=CHOICES)
    if not names:
        raise Rejected(
            "Invalid value for 'tool_choice': 'tool_choice' is only allowed when 'tools' are specified.",
            param="tool_choice",
        )


def check_tool(tool: Raw, *, where: str) -> str:
    type = text(table(tool).get("type"))
    if type not in NAMED:
        raise not_among(type, NAMED, where=f"{where}.type")
    inner = table(table(tool).get(type))
    name = inner.get("name")
    check_name(name, where=f"{where}.{type}.name")
    if type == "function":
        check_parameters(
            inner.get("parameters"),
            name=text(name),
            strict=inner.get("strict") is True,
            where=f"{where}.function.parameters",
        )
    return text(name)


def check_message(message: Raw, *, position: int, more_parts: tuple[str, ...] = ()) -> None:
    fields = table(message)
    role = text(fields.get("role"))
    if role not in ROLES:
        raise not_among(role, ROLES, where=f"messages[{position}].role")
    content = fields.get("content")
    calls = fields.get("tool_calls")
    instead = ("refusal", "function_call", "audio")
    may_be_empty = role == "assistant" and (calls or any(fields.get(name) for name in instead))
    if content is None and not may_be_empty:
        raise Rejected(
            "Invalid value for 'content': expected a string, got null.", param=f"messages.[{position}].content"
        )
    if content is not None and not isinstance(content, str | list):
        raise wrong_type(content, "one of a string or array of objects", where=f"messages[{position}].content")
    if isinstance(content, list):
        for index, part in enumerate(array(content, where=f"messages[{position}].content")):
            if text(table(part).get("type")) in more_parts:
                continue
            check_part(part, role=role, position=position, where=f"messages[{position}].content[{index}]")
    if calls is not None:
        for index, call in enumerate(array(calls, where=f"messages[{position}].tool_calls")):
            check_call(call, where=f"messages[{position}].tool_calls[{index}]")
    id = text(fields.get("tool_call_id"))
    if role == "tool":
        check_length(id, where=f"messages[{position}].tool_call_id", limit=CALL_ID_CHARACTERS)
    if role == "tool" and not id:
        raise Rejected(
            "Missing parameter 'tool_call_id': messages with role 'tool' must have a 'tool_call_id'.",
            param=f"messages.[{position}].tool_call_id",
        )


def check_part(part: Raw, *, role: str, position: int, where: str) -> None:
    fields = table(part)
    type = text(fields.get("type"))
    if not type:
        raise missing(f"{where}.type")
    if type not in PARTS:  # openai-dotnet#396
        raise not_among(type, PARTS, where=f"{where}.type")
    if type == "image_url" and role != "user":  # OpenHands#7700, openai-node#1030
        raise Rejected(
            f"Invalid 'messages[{position}]'. Image URLs are only allowed for messages with role 'user', "
            f"but this message with role '{role}' contains an image URL.",
            param=f"messages[{position}]",
            code="invalid_value",
        )
    if type == "text":
        check_text(fields.get("text"), where=f"{where}.text")


def check_call(call: Raw, *, where: str) -> None:
    fields = table(call)
    if not text(fields.get("id")):
        raise missing(f"{where}.id")
    check_length(text(fields.get("id")), where=f"{where}.id", limit=CALL_ID_CHARACTERS)
    type = text(fields.get("type"))
    if type not in NAMED:
        raise missing(f"{where}.type")
    if type == "custom":
        return
    function = table(fields.get("function"))
    for field in ("name", "arguments"):
        check_text(function.get(field), where=f"{where}.function.{field}")
    check_name(function["name"], where=f"{where}.function.name")
    # api.openai.com takes any string here; vLLM, llama.cpp, Mistral and Groq parse it to fill the chat template and refuse.
    path = f"{where}.function.arguments"
    try:
        arguments = parse(text(function["arguments"]))
        problem = "" if isinstance(arguments, dict) else f", but got {article(arguments)} instead"
    except (msgspec.DecodeError, RecursionError, UnicodeError) as broken:
        problem = f": {broken}"
    if problem:
        message = f"Invalid '{path}': expected a JSON object in a string{problem}."
        raise Rejected(message, param=path, code="invalid_value")


def check_pairing(messages: list[Raw]) -> None:
    """Each `tool_calls` is followed at once by one tool message for each id; no tool message stands anywhere else."""
    open_ids: list[str] = []
    answered: dict[str, int] = {}
    for position, message in enumerate(messages):
        fields = table(message)
        if fields.get("role") == "tool":
            check_result(text(fields.get("tool_call_id")), position=position, open_ids=open_ids, answered=answered)
            continue
        refuse_unanswered(open_ids, answered=answered)
        answered = {}
        open_ids = [text(table(call).get("id")) for call in rows(fields.get("tool_calls"))]
        twice = next((id for id in open_ids if open_ids.count(id) > 1), None)
        if twice is not None:
            raise Rejected(
                f"Invalid parameter: Duplicate value for 'tool_call_id' of '{twice}', in messages[{position}].",
                param=f"messages.[{position}].tool_calls",
            )
    refuse_unanswered(open_ids, answered=answered)


def check_result(id: str, *, position: int, open_ids: list[str], answered: dict[str, int]) -> None:
    if not open_ids:
        raise Rejected(
            # "preceeding" is the API's own spelling
            "Invalid parameter: messages with role 'tool' must be a response to a preceeding message with 'tool_calls'.",
            param=f"messages.[{position}].role",
        )
    if id not in open_ids:
        raise Rejected(
            f"Invalid parameter: 'tool_call_id' of '{id}' not found in 'tool_calls' of previous message.",
            param=f"messages.[{position}].tool_call_id",
        )
    if id in answered:
        raise Rejected(
            f"Invalid parameter: Duplicate value for 'tool_call_id' of '{id}', "
            f"in messages[{answered[id]}] and messages[{position}].",
            param=f"messages.[{position}].tool_call_id",
        )
    answered[id] = position


def refuse_unanswered(open_ids: list[str], *, answered: dict[str, int]) -> None:
    missing = [id for id in open_ids if id not in answered]
    if missing:
        raise Rejected(
            "An assistant message with 'tool_calls' must be followed by tool messages responding to each 'tool_call_id'. "
            f"The following tool_call_ids did not have response messages: {', '.join(missing)}",
            param="messages",
        )


# What single models refuse of a request that the API takes from older ones.
#
# Sources, as of November 2026: OpenAI docs, "Using GPT-6", "Models" and "Deployment checklist".

_ASTRA = JudgedModel(chat_efforts=ALL_EFFORTS[:-1])
_LUNA = JudgedModel(efforts=("none", *ALL_EFFORTS), sampling="beside none")
MODELS: Mapping[str, JudgedModel] = {
    "gpt-5.6": _LUNA,
    "gpt-6-luna": _LUNA,
    "gpt-6-astra": _ASTRA,
    "gpt-6.1-sol": _ASTRA,
    "gpt-6.2-sol": _ASTRA,
}


def check_model(fields: dict[str, Raw], name: str, found: JudgedModel) -> None:
    efforts = found.chat_efforts or found.efforts
    check_gpt(
        fields, found, name=name, effort=fields.get("reasoning_effort"), where="reasoning_effort", efforts=efforts
    )


def check_gpt(
    fields: dict[str, Raw], found: JudgedModel, *, name: str, effort: Raw, where: str, efforts: tuple[str, ...]
) -> None:
    """Raises Rejected for what a model of `MODELS` refuses: an effort, named at `where`, or sampling."""
    if effort is not None and effort not in efforts:
        supported = ", ".join(f"'{one}'" for one in efforts[:-1])
        raise Rejected(
            f"Unsupported value: '{effort}' is not supported with the '{name}' model. Supported values are: {supported}, "
            f"and '{efforts[-1]}'.",
            param=where,
            code="unsupported_value",
        )
    if found.sampling == "always" or (found.sampling == "beside none" and effort == "none"):
        return
    for field in ("temperature", "top_p", "top_logprobs"):
        if fields.get(field) is not None and fields[field] != 1:
            raise Rejected(f"Unsupported parameter: '{field}' is not supported with this model.", param=field)


# platform.openai.com/docs/guides/error-codes; recorded: `server_error`, `insufficient_quota`, `requests`
ERROR_TYPES = {429: "requests", 500: "server_error", 502: "server_error", 503: "server_error"}
ERROR_CODES = {401: "invalid_api_key", 404: "model_not_found", 429: "rate_limit_exceeded"}


def error_object(rejected: Rejected) -> Raw:
    return {
        "error": {
            "message": rejected.message,
            "type": rejected.type or ERROR_TYPES.get(rejected.status, "invalid_request_error"),
            "param": rejected.param,
            "code": rejected.code or ERROR_CODES.get(rejected.status),
        }
    }


NO_JSON = RefusalForm("We could not parse the JSON body of your request. ({error})")
WRONG_KEY = RefusalForm("Incorrect API key provided.", status=401)
# Of window and output limit: recorded (DeepSeek), enoch3712/ExtractThinker 346, stackblitz-labs/bolt.diy 955.
_WINDOW = RefusalForm(
    "This model's maximum context length is {window} tokens. However, you requested {total} tokens ({prompt} in the messages, "
    "{asked} in the completion). Please reduce the length of the messages or completion.",
    param="messages",
    code="context_length_exceeded",
)
JUDGE = FamilyJudge(
    name="openai_chat",
    check=check,
    models=MODELS,
    check_model=check_model,
    has_dialects=True,
    error_object=error_object,
    no_json=NO_JSON,
    wrong_key=WRONG_KEY,
    unknown_model=RefusalForm("The model `{model}` does not exist or you do not have access to it.", status=404),
    window=_WINDOW,
    with_output=_WINDOW,
    output=RefusalForm(
        "max_tokens is too large: {asked}. This model supports at most {limit} completion tokens, whereas you provided {asked}.",
        param="max_tokens",
    ),
    outputs=(("max_completion_tokens",), ("max_tokens",)),
    budgets=(("reasoning", "max_tokens"),),  # OpenRouter
    efforts=(("reasoning_effort",), ("reasoning", "effort")),
)
