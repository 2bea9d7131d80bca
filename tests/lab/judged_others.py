"""Requests that the judges of Messages and generateContent pass (None) or refuse, each with the words it gets."""

from typing import Any

from lab.judged_openai import ASKED

USE = {"type": "tool_use", "id": "toolu_1", "name": "read", "input": {}}
USE_2 = {**USE, "id": "toolu_2"}
DONE = {"type": "tool_result", "tool_use_id": "toolu_1", "content": "x"}
DONE_2 = {**DONE, "tool_use_id": "toolu_2"}
TEXT = {"type": "text", "text": "and?"}
READ = {"name": "read", "input_schema": {"type": "object"}}


def human(*blocks: Any) -> dict[str, Any]:
    return {"role": "user", "content": list(blocks)}


def model(*blocks: Any) -> dict[str, Any]:
    return {"role": "assistant", "content": list(blocks)}


def claude(*messages: Any, **more: Any) -> dict[str, Any]:
    return {"model": "m", "max_tokens": 10, "tools": [READ], "messages": list(messages), **more}


MORE_THAN_THINKING = (
    "`max_tokens` must be greater than `thinking.budget_tokens`. Please consult our documentation at "
    "https://docs.claude.com/en/docs/build-with-claude/extended-thinking#max-tokens-and-context-window-size"
)
THINK = {"type": "enabled", "budget_tokens": 1024}


def unanswered(position: int, ids: str) -> str:
    return (
        f"messages.{position}: `tool_use` ids were found without `tool_result` blocks immediately after: {ids}. "
        "Each `tool_use` block must have a corresponding `tool_result` block in the next message."
    )


BLANK = "messages: text content blocks must contain non-whitespace text"
SPACE = {"type": "text", "text": " \n"}
THOUGHTS = {"type": "thinking", "thinking": "hm", "signature": "s"}
TELL = {"role": "system", "content": "From now on be brief."}
AFTER = (
    "role 'system' must follow a 'user' message or an 'assistant' message ending in a server tool result; the directive-only "
    "form (content: [] with output_config) is accepted at any position"
)
BEFORE = (
    "role 'system' must precede an 'assistant' message or end the array; the directive-only form (content: [] with "
    "output_config) is accepted at any position"
)
UNRESOLVED = {"type": "tool_addition", "tool": {"type": "tool_reference", "name": "look"}}
ANTHROPIC: list[tuple[dict[str, Any], str | None]] = [
    (claude(ASKED, model(SPACE, USE), human(DONE)), None),  # recorded
    (claude(human(SPACE, TEXT)), None),
    (claude(human(SPACE)), BLANK),
    (claude(human({"type": "image", "source": {}}, SPACE)), BLANK),
    (claude({"role": "user", "content": " "}), BLANK),
    (claude(ASKED, system=" "), "system: text content blocks must contain non-whitespace text"),
    (claude(ASKED, system=[SPACE]), "system: text content blocks must contain non-whitespace text"),
    (claude(ASKED, max_tokens=0), "max_tokens: Input should be greater than or equal to 1"),
    (claude(ASKED, max_tokens=1), None),
    (
        claude(ASKED, model(USE), human({**DONE, "is_error": True, "content": " "})),
        "messages.2.content.0.tool_result: content cannot be empty if `is_error` is true",
    ),
    (
        claude(ASKED, model(USE), human({"type": "tool_result", "tool_use_id": "toolu_1", "is_error": True})),
        "messages.2.content.0.tool_result: content cannot be empty if `is_error` is true",
    ),
    (
        claude(
            ASKED, model(USE), human({**DONE, "is_error": True, "content": [TEXT, {"type": "image", "source": {}}]})
        ),
        "messages.2.content.0.tool_result: all content must be type `text` if `is_error` is true",
    ),
    (claude(ASKED, model(USE), human({**DONE, "is_error": False, "content": ""})), None),
    (claude(ASKED, model(USE), human({**DONE, "content": [SPACE]})), BLANK),
    (claude(ASKED, thinking=THINK), MORE_THAN_THINKING),
    (claude(ASKED, thinking=THINK, max_tokens=1024), MORE_THAN_THINKING),
    (claude(ASKED, thinking=THINK, max_tokens=1025), None),
    (
        claude(ASKED, thinking={**THINK, "budget_tokens": 1023}, max_tokens=2000),
        "thinking.enabled.budget_tokens: Input should be greater than or equal to 1024",
    ),
    (
        claude(ASKED, thinking=THINK, max_tokens=2000, tool_choice={"type": "any"}),
        "Thinking may not be enabled when tool_choice forces tool use.",
    ),
    (
        claude(ASKED, model(TEXT, THOUGHTS), ASKED),
        "messages.1: The final block in an assistant message cannot be `thinking`.",
    ),
    (claude(human({"type": "image"})), "messages.0.content.0.image.source: Field required"),
    (claude(ASKED, n=2), "n: Extra inputs are not permitted"),
    (claude({**ASKED, "name": "x"}), "messages.0.name: Extra inputs are not permitted"),
    (claude(ASKED, model(TEXT, USE, USE_2), human(DONE_2, DONE, TEXT)), None),
    (claude(ASKED, model(USE, USE_2), human(DONE), human(DONE_2, TEXT)), None),  # neighbours of one role are one turn
    (claude(ASKED, model(TEXT)), None),
    ({"model": "m", "messages": [ASKED]}, "max_tokens: Field required"),
    (claude(), "messages: at least one message is required"),
    (claude(model(TEXT), ASKED), 'messages: first message must use the "user" role'),
    (claude(ASKED, model(USE)), unanswered(1, "toolu_1")),
    (claude(ASKED, model(USE, USE_2), human(DONE)), unanswered(1, "toolu_2")),
    (claude(ASKED, model(USE), human(TEXT, DONE)), unanswered(1, "toolu_1")),  # results have to stand first
    (
        claude(ASKED, model(USE), human(DONE, DONE_2)),
        "messages.2.content.1: unexpected `tool_use_id` found in `tool_result` blocks: toolu_2. Each `tool_result` block "
        "must have a corresponding `tool_use` block in the previous message.",
    ),
    (
        claude(ASKED, model(USE), human(DONE, DONE)),
        "messages.2.content.1: each tool_use must have a single result. Found multiple `tool_result` blocks with id: toolu_1",
    ),
    (
        claude(ASKED, model(USE), human(DONE), model(USE), human(DONE)),
        "messages.3.content.0: `tool_use` ids must be unique",
    ),
    (claude(human({"type": "text", "text": ""})), "messages: text content blocks must be non-empty"),
    (
        claude(ASKED, {"role": "assistant", "content": "so "}),
        "messages: final assistant content cannot end with trailing whitespace",
    ),
    (
        claude(ASKED, model({**USE, "input": "{}"}), human(DONE)),
        "messages.1.content.0.tool_use.input: Input should be a valid dictionary",
    ),
    (
        claude(ASKED, model({**USE, "id": "a b"}), human(DONE)),
        "messages.1.content.0.tool_use.id: String should match pattern '^[a-zA-Z0-9_-]+$'",
    ),
    (
        claude(ASKED, tool_choice={"type": "required"}),
        "tool_choice: Input tag 'required' found using 'type' does not match any of the expected tags: "
        "'auto', 'any', 'tool', 'none'",
    ),
    (claude(ASKED, tool_choice={"type": "tool", "name": "write"}), "Tool 'write' not found in provided tools"),
    (
        claude({"role": "system", "content": "x"}, ASKED),
        'messages: Unexpected role "system". The Messages API accepts a top-level `system` parameter, not "system" as an '
        "input message role.",
    ),
    (claude(ASKED, TELL, model="claude-opus-5-5"), None),
    (claude(ASKED, model(USE), human(DONE), TELL, TELL, model(TEXT), ASKED, model="claude-opus-4-8"), None),
    (claude(ASKED, model(TEXT), TELL, ASKED, model="claude-opus-5"), f"messages.2: {AFTER}"),
    (claude(ASKED, TELL, ASKED, model="claude-haiku-5-5"), f"messages.1: {BEFORE}"),
    (claude(ASKED, model(USE), TELL, human(DONE), model="claude-fable-5-1"), f"messages.2: {AFTER}"),
    (
        claude(human(UNRESOLVED)),
        "messages: 'tool_addition'/'tool_removal' blocks are only permitted within role: \"system\" messages",
    ),
    (
        claude(ASKED, {"role": "system", "content": [UNRESOLVED]}, model="claude-opus-5-5"),
        "messages.1.content.0: Input tag 'tool_addition' found using 'type' does not match any of the expected tags: 'text'",
    ),
    (
        claude(ASKED, model(USE), human(DONE), tools=[]),
        "Requests which include `tool_use` or `tool_result` blocks must define tools.",
    ),
    (
        claude(ASKED, model(USE), human(DONE), max_tokens=2000, thinking=THINK),
        "messages.1.content.0.type: Expected `thinking` or `redacted_thinking`, but found `tool_use`. When `thinking` is "
        "enabled, a final `assistant` message must start with a thinking block (preceeding the lastmost set of `tool_use` "
        "and `tool_result` blocks). We recommend you include thinking blocks from previous turns. To avoid this "
        "requirement, disable `thinking`.",
    ),
]

SAY = {"role": "user", "parts": [{"text": "hi"}]}
FC = {"functionCall": {"name": "read", "args": {}}}
FR = {"functionResponse": {"name": "read", "response": {"output": "x"}}}
UNEVEN = (
    "Please ensure that the number of function response parts is equal to the number of function call parts of the "
    "function call turn."
)


def gemini(*contents: Any, **more: Any) -> dict[str, Any]:
    return {"contents": list(contents), **more}


def of(role: str, *parts: Any) -> dict[str, Any]:
    return {"role": role, "parts": list(parts)}


FC_2 = {"functionCall": {"name": "write", "args": {}}}


def unknown(name: str, place: str) -> str:
    return f"Invalid JSON payload received. Unknown name \"{name}\" at '{place}': Cannot find field."


def declared(parameters: Any) -> list[Any]:
    return [{"functionDeclarations": [{"name": "read", "parameters": parameters}]}]


GEMINI: list[tuple[dict[str, Any], str | None]] = [
    (gemini(SAY, of("model", FC, FC_2), of("user", FR, FR)), UNEVEN),  # as many, but not theirs
    (gemini(SAY, generationConfig={"maxTokens": 3}), unknown("maxTokens", "generation_config")),
    (
        gemini(SAY, generation_config={"thinking_config": {"budget": 3}}),
        unknown("budget", "generation_config.thinking_config"),
    ),
    (gemini(SAY, tools=[{"functions": []}]), unknown("functions", "tools[0]")),
    (gemini({**SAY, "content": "x"}), unknown("content", "contents[0]")),
    (gemini(of("user", {"text": "a", "type": "text"})), unknown("type", "contents[0].parts[0]")),
    (
        gemini(SAY, of("model", {"functionCall": {"name": "read", "arguments": "{}"}})),
        unknown("arguments", "contents[1].parts[0].function_call"),
    ),
    (
        gemini(SAY, tools=declared({"type": "OBJECT", "additionalProperties": False})),
        unknown("additionalProperties", "tools[0].function_declarations[0].parameters"),
    ),
    (
        gemini(SAY, tools=declared({"properties": {"b": {}, "a": {"anyOf": [{}, {"const": 1}]}}})),
        unknown("const", "tools[0].function_declarations[0].parameters.properties[1].value.any_of[1]"),
    ),
    (
        gemini(SAY, generationConfig={"maxOutputTokens": 0}),
        "Unable to submit request because it has a maxOutputTokens value of 0 but it must be at least 1. "
        "Update the value and try again.",
    ),
    (gemini(SAY, generationConfig={"maxOutputTokens": 1}), None),
    (gemini(SAY, tools=[{"function_declarations": [{"name": "a", "parametersJsonSchema": {"const": 1}}]}]), None),
    (gemini(SAY, of("model", FC, FC), of("user", FR, FR)), None),
    (gemini(SAY, of("model", {"text": "a"})), None),
    (gemini(SAY, of("model", FC, FC), of("user", FR)), UNEVEN),
    (gemini(SAY, of("model", FC)), UNEVEN),
    (gemini(SAY, of("model", FC), SAY), UNEVEN),
    (
        gemini(SAY, of("user", FR)),
        "Please ensure that function response turn comes immediately after a function call turn.",
    ),
    (
        gemini(of("model", FC), of("user", FR)),
        "Please ensure that function call turn comes immediately after a user turn or after a function response turn.",
    ),
    (gemini(), "* GenerateContentRequest.contents: contents is not specified\n"),
    (gemini(of("user")), "* GenerateContentRequest.contents[0].parts: contents.parts must not be empty.\n"),
    (
        gemini(SAY, toolConfig={"functionCallingConfig": {"mode": "ANY"}}),
        "Function calling config is set without function_declarations.",
    ),
    (gemini(SAY, messages=[]), 'Invalid JSON payload received. Unknown name "messages": Cannot find field.'),
    (
        gemini(SAY, of("model", {"thought": True})),
        "* GenerateContentRequest.contents[1].parts[0].data: required oneof field 'data' must have one initialized field\n",
    ),
]
