"""What api.openai.com checks in a Chat Completions request. `messages[i]` and `messages.[i]` are both its own spelling."""

import msgspec

from turnwise.lab.raw import Raw, kind, parse, rows, table, text
from turnwise.lab.strict.verdicts import ModelRules, Rejected

ROLES = ("system", "assistant", "user", "function", "tool", "developer")
CHOICES = ("none", "auto", "required", "any")  # `any` is Mistral's word for required


def check(body: Raw, rules: ModelRules) -> None:
    """Raises Rejected. The order is the API's own: fields, then messages one by one, then the pairing."""
    del rules  # a trailing assistant message is taken by every Chat Completions model
    if not isinstance(body, dict):
        raise Rejected("We could not parse the JSON body of your request. Expected a JSON object.")
    if not text(body.get("model")):
        raise Rejected("you must provide a model parameter")
    if "messages" not in body:
        raise Rejected("Missing required parameter: 'messages'.", param="messages", code="missing_required_parameter")
    messages = array(body["messages"], where="messages")
    check_numbers(body)
    check_tools(body)
    for position, message in enumerate(messages):
        check_message(message, position=position)
    check_pairing(messages)


def array(value: Raw, *, where: str) -> list[Raw]:
    if not isinstance(value, list):
        raise Rejected(
            f"Invalid type for '{where}': expected an array of objects, but got {article(value)} instead.",
            param=where,
            code="invalid_type",
        )
    if not value:
        raise Rejected(
            f"Invalid '{where}': empty array. Expected an array with minimum length 1, but got an empty array instead.",
            param=where,
            code="empty_array",
        )
    return value


def article(value: Raw) -> str:
    word = kind(value)
    return word if word == "null" else f"{'an' if word[0] in 'aio' else 'a'} {word}"


def check_numbers(body: dict[str, Raw]) -> None:
    temperature = body.get("temperature")
    if isinstance(temperature, int | float) and not 0 <= temperature <= 2:  # recorded: openai 400 050
        over = temperature > 2
        side, word, bound = ("above maximum", "<=", 2) if over else ("below minimum", ">=", 0)
        raise Rejected(
            f"Invalid 'temperature': decimal {side} value. Expected a value {word} {bound}, but got {temperature} instead.",
            param="temperature",
            code="decimal_above_max_value" if over else "decimal_below_min_value",
        )


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
    if isinstance(choice, str) and choice not in CHOICES:
        raise Rejected(
            f"Invalid value: '{choice}'. Supported values are: 'none', 'auto', and 'required'.",
            param="tool_choice",
            code="invalid_value",
        )
    if not names:
        raise Rejected(
            "Invalid value for 'tool_choice': 'tool_choice' is only allowed when 'tools' are specified.",
            param="tool_choice",
        )
    if isinstance(choice, dict):
        inner = table(choice.get(text(choice.get("type")) or "function"))
        if text(choice.get("type")) in ("function", "custom") and text(inner.get("name")) not in names:
            raise Rejected(
                f"Tool choice '{text(inner.get('name'))}' not found in 'tools' parameter.", param="tool_choice"
            )


def check_tool(tool: Raw, *, where: str) -> str:
    type = text(table(tool).get("type"))
    if type not in ("function", "custom"):
        raise Rejected(
            f"Invalid value: '{type}'. Supported values are: 'function' and 'custom'.",
            param=f"{where}.type",
            code="invalid_value",
        )
    name = table(table(tool).get(type)).get("name")
    if not isinstance(name, str):
        raise Rejected(
            f"Missing required parameter: '{where}.{type}.name'.",
            param=f"{where}.{type}.name",
            code="missing_required_parameter",
        )
    if not name or not all(letter.isascii() and (letter.isalnum() or letter in "_-") for letter in name):
        raise Rejected(
            f"Invalid '{where}.{type}.name': string does not match pattern. "
            "Expected a string that matches the pattern '^[a-zA-Z0-9_-]+$'.",
            param=f"{where}.{type}.name",
            code="invalid_value",
        )
    return name


def check_message(message: Raw, *, position: int) -> None:
    fields = table(message)
    role = text(fields.get("role"))
    if role not in ROLES:
        raise Rejected(
            f"Invalid value: '{role}'. Supported values are: 'system', 'assistant', 'user', 'function', 'tool', and 'developer'.",
            param=f"messages[{position}].role",
            code="invalid_value",
        )
    content = fields.get("content")
    calls = fields.get("tool_calls")
    may_be_empty = role == "assistant" and (calls or fields.get("refusal") or fields.get("function_call"))
    if content is None and not may_be_empty:
        raise Rejected(
            "Invalid value for 'content': expected a string, got null.", param=f"messages.[{position}].content"
        )
    if content is not None and not isinstance(content, str | list):
        raise Rejected(
            f"Invalid type for 'messages[{position}].content': expected one of a string or array of objects, "
            f"but got {article(content)} instead.",
            param=f"messages[{position}].content",
            code="invalid_type",
        )
    for index, part in enumerate(rows(content)):
        if not text(table(part).get("type")):
            where = f"messages[{position}].content[{index}].type"
            raise Rejected(f"Missing required parameter: '{where}'.", param=where, code="missing_required_parameter")
    if calls is not None:
        for index, call in enumerate(array(calls, where=f"messages[{position}].tool_calls")):
            check_call(call, where=f"messages[{position}].tool_calls[{index}]")
    if role == "tool" and not text(fields.get("tool_call_id")):
        raise Rejected(
            "Missing parameter 'tool_call_id': messages with role 'tool' must have a 'tool_call_id'.",
            param=f"messages.[{position}].tool_call_id",
        )


def check_call(call: Raw, *, where: str) -> None:
    fields = table(call)
    if not text(fields.get("id")):
        raise Rejected(
            f"Missing required parameter: '{where}.id'.", param=f"{where}.id", code="missing_required_parameter"
        )
    type = text(fields.get("type"))
    if type not in ("function", "custom"):
        raise Rejected(
            f"Missing required parameter: '{where}.type'.", param=f"{where}.type", code="missing_required_parameter"
        )
    if type == "custom":
        return
    function = table(fields.get("function"))
    for field in ("name", "arguments"):
        if not isinstance(function.get(field), str):
            wrong = function.get(field)
            path = f"{where}.function.{field}"
            if wrong is None:
                raise Rejected(f"Missing required parameter: '{path}'.", param=path, code="missing_required_parameter")
            raise Rejected(
                f"Invalid type for '{path}': expected a string, but got {article(wrong)} instead.",
                param=path,
                code="invalid_type",
            )
    # api.openai.com takes any string here; vLLM, llama.cpp, Mistral and Groq parse it to fill the chat template and refuse.
    try:
        arguments = parse(text(function["arguments"]))
    except msgspec.DecodeError as broken:
        raise Rejected(
            f"Invalid '{where}.function.arguments': expected a JSON object in a string: {broken}.",
            param=f"{where}.function.arguments",
            code="invalid_value",
        ) from None
    if not isinstance(arguments, dict):
        raise Rejected(
            f"Invalid '{where}.function.arguments': expected a JSON object in a string, but got {article(arguments)} instead.",
            param=f"{where}.function.arguments",
            code="invalid_value",
        )


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
