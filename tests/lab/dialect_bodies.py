"""Bodies that each server of `dialects.toml` takes, and one for each of its rules that it refuses."""

from typing import Any

from lab.judged_openai import ASKED, CALL, PICTURE, RESULT, called, chat, structured, tool

SYSTEM = {"role": "system", "content": "Be short."}
ANSWER = {"role": "assistant", "content": "Hello."}
DEVELOPER = {"role": "developer", "content": "Be short."}
THOUGHT = {**called(CALL), "reasoning_content": "I read."}
SIGNED = called({**CALL, "extra_content": {"google": {"thought_signature": "c2ln"}}})
SHORT = "abcDEF123"
SHORT_CALL, SHORT_RESULT = {**CALL, "id": SHORT}, {**RESULT, "tool_call_id": SHORT}
NO_THINKING = {"thinking": {"type": "disabled"}}
NAMED = {"type": "function", "function": {"name": "read"}}
OBJECT: dict[str, Any] = {"type": "object", "properties": {"path": {"type": "string"}}, "required": ["path"]}
READ = tool(parameters=OBJECT)
UNION = [{"type": "object", "properties": {"a": {"type": "string"}}}, {"type": "object", "properties": {}}]


def takes(**properties: Any) -> dict[str, Any]:
    """A tool whose parameters have these properties."""
    return tool(parameters={"type": "object", "properties": properties})


def asked(**more: Any) -> dict[str, Any]:
    return chat(ASKED, tools=[READ], **more)


def given(parameters: dict[str, Any]) -> dict[str, Any]:
    return chat(ASKED, tools=[tool(parameters=parameters)])


LEADS_ON = {"type": "object", "title": "T", "description": "A task.", "properties": {}}

TAKEN: dict[str, list[dict[str, Any]]] = {
    "vllm": [
        chat(SYSTEM, ASKED),
        chat(SYSTEM, ASKED, called(CALL), RESULT, tools=[READ], tool_choice="none"),
        chat(SYSTEM, ASKED, called(CALL), RESULT, ASKED, ASKED, tools=[READ]),
        {**chat(SYSTEM, ASKED, ANSWER, ASKED), "model": "google/gemma-3-27b-it"},
    ],
    "deepseek": [
        chat(SYSTEM, SYSTEM, ASKED, ANSWER, ASKED),
        chat(ASKED, THOUGHT, RESULT, ASKED, tools=[READ], tool_choice="none"),
        chat(ASKED, {**called(CALL), "reasoning_content": ""}, RESULT, tools=[READ]),
        chat(ASKED, called(CALL), RESULT, tools=[READ], tool_choice=NAMED, **NO_THINKING),
        {**chat(ASKED, called(CALL), RESULT, tools=[READ]), "model": "deepseek-chat"},
        chat({"role": "user", "content": [{"type": "text", "text": "hi"}]}, response_format={"type": "json_object"}),
    ],
    "moonshot": [
        chat(SYSTEM, SYSTEM, ASKED, ANSWER, ASKED),
        chat(ASKED, THOUGHT, RESULT, ASKED, tools=[READ], tool_choice="none"),
        chat(ASKED, {**called(CALL), "reasoning_content": " "}, RESULT, tools=[READ]),
        chat(ASKED, called(CALL), RESULT, tools=[READ], tool_choice="required", **NO_THINKING),
        {**asked(tool_choice="required"), "model": "kimi-k3"},
        chat(
            ASKED,
            tools=[takes(a={"anyOf": [{"type": "string"}, {"type": "null"}]}, b={"enum": ["x"], "type": "string"})],
        ),
        given({"type": "object", "properties": {"a": {"$ref": "#/$defs/T"}}, "$defs": {"T": LEADS_ON}}),
    ],
    "mistral": [
        chat(SYSTEM, SYSTEM, ASKED, ASKED, ANSWER, ASKED),
        chat(SYSTEM, ASKED, called(SHORT_CALL), SHORT_RESULT, ANSWER, ASKED, tools=[READ], tool_choice="any"),
        chat(ASKED, {**ANSWER, "prefix": True}),
        {**chat(ASKED, called(SHORT_CALL), SHORT_RESULT, ASKED), "model": "mistral-small-latest"},
        chat({"role": "user", "content": [{"type": "document_url", "document_url": "https://x.y/z.pdf"}]}),
        chat(ASKED, max_tokens=9, random_seed=1, parallel_tool_calls=True, tools=[READ], stream=True),
    ],
    "groq": [
        chat(SYSTEM, SYSTEM, ASKED, called(CALL), RESULT, ASKED, tools=[READ], tool_choice="none"),
        chat(ASKED, {**called(CALL), "reasoning": "I read."}, RESULT, tools=[READ], stream=True, stream_options={}),
        {**chat(ASKED, reasoning_effort="default"), "model": "qwen/qwen3-32b"},
        chat(ASKED, max_completion_tokens=9, reasoning_effort="high", parallel_tool_calls=True, tools=[READ]),
    ],
    "llamacpp": [
        chat(SYSTEM, ASKED, called(CALL), RESULT, ASKED, ASKED, tools=[READ], tool_choice="none"),
        chat({"role": "user", "content": [PICTURE, {"type": "text", "text": "?"}]}),
        chat(ASKED, ANSWER, chat_template_kwargs={"enable_thinking": False}),
        chat(ASKED, ANSWER, ANSWER, ASKED),
        chat(ASKED, tools=[takes(a={"type": "string", "maxLength": 65_536})]),
    ],
    "ollama": [
        chat(SYSTEM, SYSTEM, ASKED, called(CALL), RESULT, ASKED, tools=[READ]),
        chat({"role": "user", "content": [{"type": "image_url", "image_url": {"url": "data:image/png;base64,AA=="}}]}),
        chat(ASKED, ANSWER, reasoning_effort="high"),
    ],
    "openrouter": [
        chat(SYSTEM, ASKED, called(CALL), RESULT, tools=[READ], reasoning={"effort": "high"}),
        {**asked(tool_choice="auto"), "model": "z-ai/glm-5.3"},
    ],
    "gemini-openai": [
        chat(SYSTEM, ASKED, SIGNED, RESULT, tools=[READ]),
        chat(ASKED, called(CALL), RESULT, ANSWER, ASKED, tools=[READ], tool_choice="none"),
        {**chat(ASKED, called(CALL), RESULT), "model": "gemini-2.5-flash"},
    ],
    "xai": [
        chat(SYSTEM, SYSTEM, ASKED, {**called(CALL), "content": ""}, RESULT, ASKED, tools=[READ], tool_choice="none"),
        chat(ASKED, {"role": "assistant", "tool_calls": [CALL]}, RESULT, tools=[READ]),
        {**chat(ASKED, reasoning_effort="low"), "model": "grok-4.3"},
        {**chat(ASKED, reasoning_effort="low"), "model": "grok-3-mini"},
        chat(ASKED, stop=["x"]),
    ],
    "zai": [
        chat(SYSTEM, SYSTEM, ASKED, called(CALL), RESULT, ASKED, tools=[READ], tool_choice="auto"),
        chat(ASKED, {"role": "assistant", "content": ""}, ASKED),
    ],
    "minimax": [
        chat(SYSTEM, ASKED, called(CALL), RESULT, ASKED, tools=[READ], tool_choice="none"),
        chat(ASKED, ANSWER, ASKED, tools=[tool(parameters={"type": "object", "properties": {}})]),
    ],
    "alibaba": [chat(SYSTEM, SYSTEM, ASKED, called(CALL), RESULT, ASKED, tools=[READ])],
    "lmstudio": [chat(SYSTEM, ASKED, tools=[tool(parameters={"type": "object", "properties": {}}), tool("now")])],
}
REFUSED: dict[str, dict[str, dict[str, Any]]] = {
    "vllm": {
        "developer-role": chat(DEVELOPER, ASKED),
        "system-first": chat(SYSTEM, SYSTEM, ASKED),
        "no-user": chat(SYSTEM),
        "alternation": {**chat(SYSTEM, ASKED, ASKED), "model": "google/gemma-3-27b-it"},
        "empty-tools": chat(ASKED, tools=[]),
    },
    "deepseek": {
        "image-parts": chat({"role": "user", "content": [PICTURE]}),
        "result-list": chat(ASKED, THOUGHT, {**RESULT, "content": [{"type": "text", "text": "x"}]}),
        "reasoning-back": chat(ASKED, called(CALL), RESULT),
        "forced-choice": asked(tool_choice="required"),
        "response-schema": chat(ASKED, response_format=structured(name="n", schema=OBJECT)),
        "schema-root-type": given({"anyOf": UNION}),
        "results-behind-calls": chat(ASKED, THOUGHT, ASKED),
    },
    "moonshot": {
        "empty-assistant": chat(ASKED, {"role": "assistant", "content": ""}, ASKED),
        "reasoning-back": chat(ASKED, {**called(CALL), "reasoning_content": ""}, RESULT),
        "required-choice": asked(tool_choice="required"),
        "named-choice": asked(tool_choice=NAMED),
        "effort-and-thinking": chat(ASKED, reasoning_effort="low", thinking={"type": "enabled"}),
        "tool-name": chat(ASKED, tools=[tool("21st_builder", parameters=OBJECT)]),
        "schema-root-type": given({}),
        "schema-union-type": given({"type": "object", "anyOf": UNION}),
        "schema-reference-type": given(
            {"type": "object", "properties": {"a": {"$ref": "#/$defs/T", "type": "object"}}, "$defs": {"T": OBJECT}}
        ),
        "schema-reference-clash": given(
            {"type": "object", "properties": {"a": {"$ref": "#/$defs/T", "description": "x"}}, "$defs": {"T": LEADS_ON}}
        ),
        "schema-foreign-reference": given(
            {"type": "object", "properties": {"a": {"$ref": "#/definitions/T"}}, "definitions": {"T": OBJECT}}
        ),
        "schema-objects": given({"type": "object", "properties": {"a": True}}),
        "schema-undeclared": given({"type": "object", "properties": {}, "required": ["a"]}),
        "schema-enum-type": chat(ASKED, tools=[takes(a={"enum": ["x"]})]),
    },
    "mistral": {
        "body-fields": chat(ASKED, stream=True, stream_options={"include_usage": True}),
        "assistant-fields": chat(ASKED, {**ANSWER, "reasoning_content": "x"}, ASKED),
        "user-fields": chat({**ASKED, "name": "Ann"}),
        "order": chat(ASKED, ANSWER, SYSTEM, ASKED),
        "user-behind-result": chat(ASKED, called(SHORT_CALL), SHORT_RESULT, ASKED),
        "assistant-last": chat(ASKED, ANSWER),
        "call-id": chat(ASKED, called(CALL), SHORT_RESULT),
        "result-id": chat(ASKED, called(SHORT_CALL), RESULT),
        "results-behind-calls": chat(ASKED, called(SHORT_CALL), {**SHORT_RESULT, "tool_call_id": "abcDEF124"}),
        "empty-assistant": chat(ASKED, {"role": "assistant", "content": ""}, ASKED),
        "call-name": chat(
            ASKED,
            called({**SHORT_CALL, "function": {"name": "calendar.respond", "arguments": "{}"}}),
            SHORT_RESULT,
        ),
        "tool-name": chat(ASKED, tools=[tool("calendar.respond", parameters=OBJECT)]),
    },
    "groq": {
        "body-fields": chat(ASKED, reasoning={"effort": "low"}),
        "assistant-fields": chat(ASKED, {**ANSWER, "reasoning_content": "x"}, ASKED),
        "user-fields": chat({**ASKED, "metadata": {}}),
        "effort-qwen": {**chat(ASKED, reasoning_effort="high"), "model": "qwen/qwen3-32b"},
        "schema-required": given({"type": "object", "required": []}),
        "output-keywords": chat(
            ASKED,
            response_format=structured(
                name="n", schema={"type": "object", "properties": {"a": {"type": "array", "minItems": 1}}}
            ),
        ),
    },
    "llamacpp": {
        "content-there": chat({"role": "tool", "tool_call_id": "call_1"}),
        "part-types": chat({"role": "user", "content": [{"type": "file", "file": {}}]}),
        "assistants-last": chat(ASKED, ANSWER, ANSWER),
        "prefill": chat(ASKED, ANSWER),
        "system-first": chat(SYSTEM, SYSTEM, ASKED),
        "no-user": chat(SYSTEM),
        "tools-size": chat(ASKED, tools=[tool(parameters=OBJECT, description="x" * 98_000)]),
        "schema-repetitions": chat(ASKED, tools=[takes(a={"type": "string", "minLength": 2001})]),
    },
    "ollama": {
        "content-there": chat(ASKED, {"role": "assistant", "content": None}, ASKED),
        "part-types": chat({"role": "user", "content": [{"type": "file", "file": {}}]}),
        "image-address": chat({"role": "user", "content": [PICTURE]}),
        "arguments": chat(ASKED, called({**CALL, "function": {"name": "read", "arguments": ""}}), RESULT),
        "effort": chat(ASKED, reasoning_effort="fast"),
        "no-user": {**chat(SYSTEM), "model": "qwen3.5:9b"},
        "assistants-last": chat(ASKED, ANSWER, ANSWER),
    },
    "openrouter": {
        "effort-and-budget": chat(ASKED, reasoning={"effort": "low", "max_tokens": 2000}),
        "two-ways-of-effort": chat(ASKED, reasoning={"enabled": True}, reasoning_effort="low"),
        "zai-choice": {**asked(tool_choice="required"), "model": "z-ai/glm-5.3"},
    },
    "gemini-openai": {
        "body-fields": chat(ASKED, store=False),
        "signature-back": chat(ASKED, called(CALL), RESULT),
        "tool-name": chat(ASKED, tools=[tool("21st_builder", parameters=OBJECT)]),
    },
    "xai": {
        "content-there": chat(ASKED, {"role": "assistant"}, ASKED),
        "content-of-calls": chat(ASKED, called(CALL), RESULT),
        "arguments": chat(
            ASKED, {**called({**CALL, "function": {"name": "read", "arguments": ""}}), "content": ""}, RESULT
        ),
        "effort": {**chat(ASKED, reasoning_effort="low"), "model": "grok-code-fast-1"},
        "effort-none": {**chat(ASKED, reasoning_effort="none"), "model": "grok-4.6"},
        "stop": {**chat(ASKED, stop=["x"]), "model": "grok-4.6"},
        "schema-bounds": chat(ASKED, tools=[takes(a={"type": "string", "maxLength": 9})]),
    },
    "zai": {
        "developer-role": chat(DEVELOPER, ASKED),
        "no-user": chat(SYSTEM),
        "empty-assistant": chat(ASKED, {"role": "assistant"}, ASKED),
        "tool-choice": asked(tool_choice="none"),
    },
    "minimax": {
        "two-systems": chat(SYSTEM, SYSTEM, ASKED),
        "system-first": chat(ASKED, SYSTEM),
        "developer-role": chat(DEVELOPER, ASKED),
        "result-of-a-call": chat(ASKED, RESULT),
        "arguments": chat(ASKED, called({**CALL, "function": {"name": "read", "arguments": "{"}}), RESULT),
        "parameters-there": chat(ASKED, tools=[tool("now")]),
        "empty-schema": given({}),
    },
    "alibaba": {"developer-role": chat(DEVELOPER, ASKED)},
    "lmstudio": {"schema-properties": given({"type": "object"})},
}
for _same, _as in (("ollama-cloud", "ollama"), ("zai-coding", "zai")):
    TAKEN[_same], REFUSED[_same] = TAKEN[_as], REFUSED[_as]
# What the family's judge refuses, too: the rule is there for the server's words.
ALSO_THE_FAMILYS = {
    ("vllm", "empty-tools"),
    ("deepseek", "schema-root-type"),
    ("deepseek", "results-behind-calls"),
    ("moonshot", "schema-root-type"),
    ("mistral", "call-id"),
    ("mistral", "result-id"),
    ("mistral", "results-behind-calls"),
    ("mistral", "call-name"),
    ("mistral", "tool-name"),
    ("llamacpp", "content-there"),
    ("ollama", "content-there"),
    ("ollama", "arguments"),
    ("xai", "content-there"),
    ("xai", "arguments"),
    ("zai", "empty-assistant"),
    ("minimax", "result-of-a-call"),
    ("minimax", "arguments"),
    ("minimax", "empty-schema"),
}
