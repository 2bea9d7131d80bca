"""Requests that the judges of Chat Completions and Responses pass (None) or refuse, each with the words it gets."""

from typing import Any

CALL = {"id": "call_1", "type": "function", "function": {"name": "read", "arguments": "{}"}}
OTHER = {"id": "call_2", "type": "function", "function": {"name": "read", "arguments": "{}"}}
ASKED = {"role": "user", "content": "hi"}
RESULT = {"role": "tool", "tool_call_id": "call_1", "content": "x"}
OTHER_RESULT = {"role": "tool", "tool_call_id": "call_2", "content": "y"}


def chat(*messages: Any, **more: Any) -> dict[str, Any]:
    return {"model": "m", "messages": list(messages), **more}


def called(*calls: Any) -> dict[str, Any]:
    return {"role": "assistant", "content": None, "tool_calls": list(calls)}


TOOL = {"type": "function", "function": {"name": "read", "parameters": {"type": "object"}}}
CLOSED: dict[str, Any] = {"type": "object", "properties": {}, "required": [], "additionalProperties": False}
PICTURE = {"type": "image_url", "image_url": {"url": "https://x.y/z.png"}}


def said(*parts: Any) -> dict[str, Any]:
    return {"role": "user", "content": list(parts)}


def tool(name: str = "read", **more: Any) -> dict[str, Any]:
    return {"type": "function", "function": {"name": name, **more}}


def structured(**described: Any) -> dict[str, Any]:
    return {"type": "json_schema", "json_schema": described}


# message's beginning, param and code of what the API refuses and a lenient server would take
CHAT_REFUSED: list[tuple[dict[str, Any], str, str | None, str | None]] = [
    (
        chat(ASKED, called({**CALL, "id": "c" * 41}), {**RESULT, "tool_call_id": "c" * 41}),
        "Invalid 'messages[1].tool_calls[0].id': string too long. Expected a string with maximum length 40, "
        "but got a string with length 41 instead.",
        "messages[1].tool_calls[0].id",
        "string_above_max_length",
    ),
    (
        chat(ASKED, {**RESULT, "tool_call_id": "c" * 41}),
        "Invalid 'messages[1].tool_call_id': string too long.",
        "messages[1].tool_call_id",
        "string_above_max_length",
    ),
    (
        chat(ASKED, called({**CALL, "function": {"name": "a b", "arguments": "{}"}}), RESULT),
        "Invalid 'messages[1].tool_calls[0].function.name': string does not match pattern.",
        "messages[1].tool_calls[0].function.name",
        "invalid_value",
    ),
    (
        chat(ASKED, tools=[tool("a.b")]),
        "Invalid 'tools[0].function.name': string does not match pattern. "
        "Expected a string that matches the pattern '^[a-zA-Z0-9_-]+$'.",
        "tools[0].function.name",
        "invalid_value",
    ),
    (
        chat(ASKED, tools=[tool("a" * 65)]),
        "Invalid 'tools[0].function.name': string too long.",
        "tools[0].function.name",
        "string_above_max_length",
    ),
    (
        chat(ASKED, tools=[tool(parameters={})]),
        "Invalid schema for function 'read': schema must be a JSON Schema of 'type: \"object\"', got 'type: \"None\"'.",
        "tools[0].function.parameters",
        "invalid_function_parameters",
    ),
    (
        chat(ASKED, tools=[tool(parameters=[])]),
        "Invalid schema for function 'read': [] is not of type 'object'.",
        "tools[0].function.parameters",
        "invalid_function_parameters",
    ),
    (
        chat(ASKED, tools=[tool(strict=True, parameters={"type": "object", "properties": {}})]),
        "Invalid schema for function 'read': In context=(), 'additionalProperties' is required to be supplied and to be false.",
        "tools[0].function.parameters",
        "invalid_function_parameters",
    ),
    (
        chat(
            ASKED,
            tools=[
                tool(strict=True, parameters={**CLOSED, "properties": {"a": {"type": "object"}}, "required": ["a"]})
            ],
        ),
        "Invalid schema for function 'read': In context=('properties', 'a'), 'additionalProperties' is required",
        "tools[0].function.parameters",
        "invalid_function_parameters",
    ),
    (
        chat(ASKED, tools=[tool(strict=True, parameters={**CLOSED, "properties": {"a": {}}})]),
        "Invalid schema for function 'read': In context=(), 'required' is required to be supplied and to be an array "
        "including every key in properties. Missing 'a'.",
        "tools[0].function.parameters",
        "invalid_function_parameters",
    ),
    (chat(said()), "Invalid 'messages[0].content': empty array.", "messages[0].content", "empty_array"),
    (
        chat(said({"type": "text"})),
        "Missing required parameter: 'messages[0].content[0].text'.",
        "messages[0].content[0].text",
        "missing_required_parameter",
    ),
    (
        chat(said({"type": "text", "text": 3})),
        "Invalid type for 'messages[0].content[0].text': expected a string, but got an integer instead.",
        "messages[0].content[0].text",
        "invalid_type",
    ),
    (
        chat(said({"type": "input_text", "text": "x"})),
        "Invalid value: 'input_text'. Supported values are: 'text', 'image_url', 'input_audio', 'refusal', 'audio', and 'file'.",
        "messages[0].content[0].type",
        "invalid_value",
    ),
    (
        chat(ASKED, called(CALL), {**RESULT, "content": [PICTURE]}),
        "Invalid 'messages[2]'. Image URLs are only allowed for messages with role 'user', but this message with role 'tool' "
        "contains an image URL.",
        "messages[2]",
        "invalid_value",
    ),
    (
        chat(ASKED, max_tokens=0),
        "Invalid 'max_tokens': integer below minimum value. Expected a value >= 1, but got 0 instead.",
        "max_tokens",
        "integer_below_min_value",
    ),
    (
        chat(ASKED, max_completion_tokens="9"),
        "Invalid type for 'max_completion_tokens': expected an integer, but got a string instead.",
        "max_completion_tokens",
        "invalid_type",
    ),
    (
        chat(ASKED, max_tokens=9, max_completion_tokens=9),
        "Setting 'max_tokens' and 'max_completion_tokens' at the same time is not supported.",
        "max_tokens",
        "invalid_parameter_combination",
    ),
    (chat(ASKED, stop=list("abcde")), "Invalid 'stop': array too long.", "stop", "array_above_max_length"),
    (
        chat(ASKED, stream_options={"include_usage": True}),
        "The 'stream_options' parameter is only allowed when 'stream' is enabled.",
        "stream_options",
        None,
    ),
    (
        chat(ASKED, response_format={"type": "json_schema"}),
        "Missing required parameter: 'response_format.json_schema'.",
        "response_format.json_schema",
        "missing_required_parameter",
    ),
    (
        chat(ASKED, response_format=structured(name="n")),
        "Missing required parameter: 'response_format.json_schema.schema'.",
        "response_format.json_schema.schema",
        "missing_required_parameter",
    ),
    (
        chat(ASKED, response_format=structured(name="n", strict=True, schema={"type": "object"})),
        "Invalid schema for response_format 'n': In context=(), 'additionalProperties' is required",
        "response_format",
        None,
    ),
]
CHAT = [
    (chat(ASKED, {"role": "assistant", "content": None, "audio": {"id": "audio_1"}}, ASKED), None),
    (chat(ASKED, called({**CALL, "id": "c" * 40}), {**RESULT, "tool_call_id": "c" * 40}), None),
    (chat(said(PICTURE), stop=list("abcd"), stream=True, stream_options={}, tools=[tool("a" * 64)]), None),
    (chat(ASKED, called(CALL), RESULT), None),
    (chat(ASKED, called(CALL, OTHER), OTHER_RESULT, RESULT, ASKED), None),
    (chat(ASKED, {"role": "assistant", "content": "a"}), None),
    ({"messages": [ASKED]}, ("you must provide a model parameter", None, None)),
    ({"model": "m"}, ("Missing required parameter: 'messages'.", "messages", "missing_required_parameter")),
    (
        chat(),
        (
            "Invalid 'messages': empty array. Expected an array with minimum length 1, but got an empty array instead.",
            "messages",
            "empty_array",
        ),
    ),
    (
        chat(ASKED, called(CALL, OTHER), RESULT),
        (
            "An assistant message with 'tool_calls' must be followed by tool messages responding to each 'tool_call_id'. "
            "The following tool_call_ids did not have response messages: call_2",
            "messages",
            None,
        ),
    ),
    (
        chat(ASKED, called(CALL), ASKED, RESULT),
        (
            "An assistant message with 'tool_calls' must be followed by tool messages responding to each 'tool_call_id'. "
            "The following tool_call_ids did not have response messages: call_1",
            "messages",
            None,
        ),
    ),
    (
        chat(ASKED, RESULT),
        (
            "Invalid parameter: messages with role 'tool' must be a response to a preceeding message with 'tool_calls'.",
            "messages.[1].role",
            None,
        ),
    ),
    (
        chat(ASKED, called(CALL), RESULT, OTHER_RESULT),
        (
            "Invalid parameter: 'tool_call_id' of 'call_2' not found in 'tool_calls' of previous message.",
            "messages.[3].tool_call_id",
            None,
        ),
    ),
    (
        chat(ASKED, called(CALL), RESULT, RESULT),
        (
            "Invalid parameter: Duplicate value for 'tool_call_id' of 'call_1', in messages[2] and messages[3].",
            "messages.[3].tool_call_id",
            None,
        ),
    ),
    (
        chat(ASKED, called(CALL, CALL), RESULT),
        (
            "Invalid parameter: Duplicate value for 'tool_call_id' of 'call_1', in messages[1].",
            "messages.[1].tool_calls",
            None,
        ),
    ),
    (
        chat(ASKED, called({**CALL, "function": {"name": "read", "arguments": {}}}), RESULT),
        (
            "Invalid type for 'messages[1].tool_calls[0].function.arguments': expected a string, but got an object instead.",
            "messages[1].tool_calls[0].function.arguments",
            "invalid_type",
        ),
    ),
    (
        chat(ASKED, called({**CALL, "function": {"name": "read", "arguments": "[]"}}), RESULT),
        (
            "Invalid 'messages[1].tool_calls[0].function.arguments': expected a JSON object in a string, "
            "but got an array instead.",
            "messages[1].tool_calls[0].function.arguments",
            "invalid_value",
        ),
    ),
    (
        chat(ASKED, {"role": "assistant", "content": None}),
        ("Invalid value for 'content': expected a string, got null.", "messages.[1].content", None),
    ),
    (
        chat(ASKED, tool_choice="never", tools=[TOOL]),
        (
            "Invalid value: 'never'. Supported values are: 'none', 'auto', and 'required'.",
            "tool_choice",
            "invalid_value",
        ),
    ),
    (
        chat(ASKED, tool_choice="none"),
        (
            "Invalid value for 'tool_choice': 'tool_choice' is only allowed when 'tools' are specified.",
            "tool_choice",
            None,
        ),
    ),
    (
        chat(ASKED, tools=[TOOL], tool_choice={"type": "function", "function": {"name": "write"}}),
        ("Tool choice 'write' not found in 'tools' parameter.", "tool_choice", None),
    ),
]

F1 = {"type": "function_call", "id": "fc_1", "call_id": "call_1", "name": "read", "arguments": "{}"}
O1 = {"type": "function_call_output", "call_id": "call_1", "output": "x"}
THOUGHT = {"type": "reasoning", "id": "rs_1", "summary": []}


def responses(*items: Any, **more: Any) -> dict[str, Any]:
    return {"model": "m", "input": list(items), **more}


def flat(**more: Any) -> dict[str, Any]:
    return {"type": "function", "name": "read", **more}


RESPONSES_REFUSED: list[tuple[dict[str, Any], str, str | None, str | None]] = [
    (
        responses(ASKED, {**F1, "call_id": "c" * 65}, {**O1, "call_id": "c" * 65}),
        "Invalid 'input[1].call_id': string too long. Expected a string with maximum length 64, "
        "but got a string with length 65 instead.",
        "input[1].call_id",
        "string_above_max_length",
    ),
    (
        responses(ASKED, {**F1, "id": "call_1"}, O1),
        "Invalid 'input[1].id': 'call_1'. Expected an ID that begins with 'fc'.",
        "input[1].id",
        "invalid_value",
    ),
    (
        responses(ASKED, {**THOUGHT, "id": "item_1"}, F1, O1),
        "Invalid 'input[1].id': 'item_1'. Expected an ID that begins with 'rs'.",
        "input[1].id",
        "invalid_value",
    ),
    (
        responses(ASKED, tools=[{"type": "search"}]),
        "Invalid value: 'search'. Supported",
        "tools[0].type",
        "invalid_value",
    ),
    (
        responses(ASKED, tools=[flat(name="a.b")]),
        "Invalid 'tools[0].name': string does",
        "tools[0].name",
        "invalid_value",
    ),
    (
        responses(ASKED, tools=[flat(parameters={"type": "string"})]),
        "Invalid schema for function 'read': schema must be a JSON Schema of 'type: \"object\"', got 'type: \"string\"'.",
        "tools[0].parameters",
        "invalid_function_parameters",
    ),
    (
        {"model": "m", "messages": [ASKED]},
        "Unsupported parameter: 'messages'. In the Responses API, this parameter has moved to 'input'.",
        None,
        "unsupported_parameter",
    ),
    ({"model": "m"}, 'One of "input" or "previous_response_id"', "input", "missing_required_parameter"),
    (
        responses(ASKED, text={"format": {"type": "json_schema", "name": "n"}}),
        "Missing required parameter: 'text.format.schema'.",
        "text.format.schema",
        "missing_required_parameter",
    ),
]
RESPONSES = [
    ({"model": "m", "prompt": {"id": "pmpt_1"}}, None),
    (responses(ASKED, {**F1, "call_id": "c" * 64}, {**O1, "call_id": "c" * 64}), None),
    ({"model": "m", "input": "hi"}, None),
    (responses(ASKED, THOUGHT, F1, O1, ASKED), None),
    (responses(ASKED, F1), ("No tool output found for function call call_1.", "input", None)),
    (responses(ASKED, O1), ("No tool call found for function call output with call_id call_1.", "input", None)),
    (responses(ASKED, O1, F1), ("No tool call found for function call output with call_id call_1.", "input", None)),
    (responses(ASKED, F1, O1, O1), ("Duplicate call_ids submitted: ['call_1', 'call_1']", "input", None)),
    (
        responses(ASKED, F1, F1, O1),
        ("Duplicate item found with id fc_1. Remove duplicate items from your input and try again.", "input", None),
    ),
    (responses(ASKED, F1, {**F1, "id": "fc_2"}, O1), ("Duplicate 'call_id': call_1", "input", None)),
    (
        responses(ASKED, THOUGHT),
        ("Item 'rs_1' of type 'reasoning' was provided without its required following item.", "input", None),
    ),
    (
        responses(ASKED, {"role": "assistant", "content": [{"type": "input_text", "text": "a"}]}),
        (
            "Invalid value: 'input_text'. Supported values are: 'output_text' and 'refusal'.",
            "input[1].content[0]",
            "invalid_value",
        ),
    ),
    (
        responses(ASKED, tools=[TOOL]),
        ("Missing required parameter: 'tools[0].name'.", "tools[0].name", "missing_required_parameter"),
    ),
    (
        responses(ASKED, max_output_tokens=1),
        (
            "Invalid 'max_output_tokens': integer below minimum value. Expected a value >= 16, but got 1 instead.",
            "max_output_tokens",
            "integer_below_min_value",
        ),
    ),
    (
        responses(ASKED, tool_choice={"type": "function", "name": "read"}),
        ("Tool choice 'read' not found in 'tools' parameter.", "tool_choice", None),
    ),
]
