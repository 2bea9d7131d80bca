"""The judges: recorded requests pass, recorded refusals are refused alike, and each check says what the real API says."""

import json
from pathlib import Path
from typing import Any

import pytest

from turnwise.lab.raw import Raw, parse
from turnwise.lab.routes import route
from turnwise.lab.strict import CHECKS, ModelRules, Rejected, check, error_body

FAMILIES = {
    "openai_chat": "openai_chat",
    "openai_responses": "openai_responses",
    "anthropic": "anthropic_messages",
    "gemini": "gemini",
}
# Requests that another server of the family answered and the judged one would not: file's start -> why.
OTHER_SERVERS = {
    "openai_chat/mistral__": "`tool_choice` without tools",
    "openai_chat/huggingface__": "`tools` may be []",
    "openai_chat/openrouter__": "server-side tools of its own type",
    "openai_chat/groq__rig--agent-tool-sessions--parallel": "takes arguments 'null'",
    "openai_responses/openai__rig--streaming-grammar--previous-response-id": "names a stored response; the lab stores none",
    "anthropic/anthropic__dd-trace-py--cassettes--anthropic-completion-tools-call-with-tool-result": (
        "a cassette matched loosely: the result names a call that is not there"
    ),
}
MODEL_IN_PATH = ("openai_chat/azure__", "anthropic/vertex__")


def refusal_of(family: str, body: Any, rules: ModelRules | None = None) -> tuple[str, str | None, str | None] | None:
    try:
        check(family, body=parse(json.dumps(body)), rules=rules or ModelRules())
    except Rejected as rejected:
        return rejected.message, rejected.param, rejected.code
    return None


def test_requests_that_real_providers_answered_pass(corpus: Path) -> None:
    """Proves: no recorded request is refused, save those of other servers that take more, by name."""
    seen = 0
    refused: set[str] = set()
    for line in (corpus / "manifest.jsonl").read_text(encoding="utf-8").splitlines():
        row = json.loads(line)
        if row["family"] not in FAMILIES or not isinstance(row["request"], dict):
            continue
        seen += 1
        body = dict(row["request"])
        if row["file"].startswith(MODEL_IN_PATH):
            body.setdefault("model", "named-in-the-path")
        if refusal_of(FAMILIES[row["family"]], body) is not None:
            named = [start for start in OTHER_SERVERS if row["file"].startswith(start)]
            assert named, (row["file"], refusal_of(FAMILIES[row["family"]], body))
            refused.update(named)
    assert seen > 1200
    assert refused == set(OTHER_SERVERS)


def test_requests_of_recorded_conversations_pass(corpus: Path) -> None:
    """Proves: whole tool conversations of four families are well-formed to the judges."""
    seen = 0
    for path in sorted((corpus / "conversations").glob("*.json")):
        recorded = json.loads(path.read_text(encoding="utf-8"))
        for exchange in recorded["exchanges"] if recorded["family"] in FAMILIES else []:
            body = exchange["request"]["body"]
            if recorded["provider"] == "vertex" and recorded["family"] == "anthropic":
                body = {**body, "model": "named-in-the-path"}
            assert refusal_of(FAMILIES[recorded["family"]], body) is None, path.name
            seen += 1
    assert seen == 45


# Recorded 400s whose cause is in the request's form: the judge's words are the recorded ones.
RECORDED_ALIKE = {
    "anthropic__anthropic__400__004.json",
    "anthropic__anthropic__400__010.json",
    "anthropic__anthropic__400__012.json",
    "anthropic__anthropic__400__116.json",
    "gemini__vertex__400__147.json",
    "gemini__vertex__400__148.json",
    "openai_chat__openai__400__050.json",
    "openai_responses__openai__400__052.json",
}
# Refused as well, in the judged server's words and not in its own.
RECORDED_ELSEWHERE = {"openai_chat__doubleword__400__029.json"}


def test_recorded_refusals_are_given_alike(corpus: Path) -> None:
    """Proves: of the recorded errors, those about the request's form get status, message, type, param and code as recorded."""
    alike: set[str] = set()
    elsewhere: set[str] = set()
    for path in sorted((corpus / "errors").glob("*.json")):
        recorded = json.loads(path.read_text(encoding="utf-8"))
        if recorded["family"] not in FAMILIES:
            continue
        family = FAMILIES[recorded["family"]]
        found = route(recorded["request"]["path"].partition("?")[0])
        body = parse(json.dumps(recorded["request"]["body"]))
        assert isinstance(body, dict)
        if found is not None and found.model and family != "gemini":
            body = {**body, "model": found.model}
        try:
            check(family, body=body)
        except Rejected as rejected:
            theirs = json.loads(recorded["response"]["body"])
            ours = json.loads(error_body(family, rejected=rejected))
            theirs_error, ours_error = theirs.get("error", theirs), ours["error"]
            theirs_error.pop("details", None)
            if ours_error == theirs_error and rejected.status == recorded["response"]["status"]:
                alike.add(path.name)
            else:
                elsewhere.add(path.name)
    assert alike == RECORDED_ALIKE
    assert elsewhere == RECORDED_ELSEWHERE


CALL = {"id": "call_1", "type": "function", "function": {"name": "read", "arguments": "{}"}}
OTHER = {"id": "call_2", "type": "function", "function": {"name": "read", "arguments": "{}"}}
ASKED = {"role": "user", "content": "hi"}
RESULT = {"role": "tool", "tool_call_id": "call_1", "content": "x"}
OTHER_RESULT = {"role": "tool", "tool_call_id": "call_2", "content": "y"}


def chat(*messages: Any, **more: Any) -> dict[str, Any]:
    return {"model": "m", "messages": list(messages), **more}


def called(*calls: Any) -> dict[str, Any]:
    return {"role": "assistant", "content": None, "tool_calls": list(calls)}


TOOL = {"type": "function", "function": {"name": "read", "parameters": {}}}
CHAT = [
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


RESPONSES = [
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


def unanswered(position: int, ids: str) -> str:
    return (
        f"messages.{position}: `tool_use` ids were found without `tool_result` blocks immediately after: {ids}. "
        "Each `tool_use` block must have a corresponding `tool_result` block in the next message."
    )


ANTHROPIC: list[tuple[dict[str, Any], str | None]] = [
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
    (
        claude(ASKED, model(USE), human(DONE), tools=[]),
        "Requests which include `tool_use` or `tool_result` blocks must define tools.",
    ),
    (
        claude(ASKED, model(USE), human(DONE), thinking={"type": "enabled", "budget_tokens": 1024}),
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


GEMINI: list[tuple[dict[str, Any], str | None]] = [
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


@pytest.mark.parametrize(("body", "refusal"), CHAT)
def test_chat_completions_are_judged(body: Any, refusal: Any) -> None:
    """Proves: api.openai.com's checks of Chat Completions, in its words (reports in public issue threads)."""
    assert refusal_of("openai_chat", body) == refusal


@pytest.mark.parametrize(("body", "refusal"), RESPONSES)
def test_responses_are_judged(body: Any, refusal: Any) -> None:
    """Proves: api.openai.com's checks of Responses, in its words."""
    assert refusal_of("openai_responses", body) == refusal


@pytest.mark.parametrize(("body", "message"), ANTHROPIC)
def test_messages_are_judged(body: Any, message: str | None) -> None:
    """Proves: api.anthropic.com's checks of Messages, in its words."""
    found = refusal_of("anthropic_messages", body)
    assert (found and found[0]) == message


@pytest.mark.parametrize(("body", "message"), GEMINI)
def test_generate_content_is_judged(body: Any, message: str | None) -> None:
    """Proves: Google's checks of generateContent, in its words."""
    found = refusal_of("gemini", body)
    assert (found and found[0]) == message


def test_a_model_without_prefill_refuses_an_assistant_message_at_the_end() -> None:
    """Proves: a script can stand for the newer models that insist on the user's last word (promise end:no-prefill)."""
    rules = ModelRules(prefill=False)
    assert refusal_of("anthropic_messages", claude(ASKED, model(TEXT)), rules) == (
        "This model does not support assistant message prefill. The conversation must end with a user message.",
        None,
        None,
    )
    assert refusal_of("anthropic_messages", claude(ASKED), rules) is None


@pytest.mark.parametrize("family", CHECKS)
@pytest.mark.parametrize(
    "body", [None, True, 1, "x", [], {}, {"messages": 3}, {"contents": [None]}, {"model": "m", "input": [1]}]
)
def test_no_json_value_breaks_a_judge(family: str, body: Raw) -> None:
    """Proves: whatever comes in, the answer is a refusal in the family's shape, never an exception."""
    with pytest.raises(Rejected) as caught:
        check(family, body=body)
    assert json.loads(error_body(family, rejected=caught.value))["error"]["message"]
