"""What Cohere's v2 API checks in a request.

Source: Cohere API reference, "Chat API (v2)", and the types and docstrings of the `cohere` package 7.3 (a schema is not supported
beside tools). The words are ours, but for those of recorded answers (400, 401, 404).
"""

from turnwise.lab.raw import Raw, dig, parse, rows, table, text
from turnwise.lab.strict.verdicts import FamilyJudge, ModelRules, RefusalForm, Rejected

FIELDS = frozenset(
    """model messages tools strict_tools documents citation_options response_format safety_mode max_tokens stop_sequences
    temperature seed frequency_penalty presence_penalty k p logprobs tool_choice thinking priority stream""".split()
)
CONTENTS = {
    "system": ("text",),
    "user": ("text", "image_url"),
    "assistant": ("text", "thinking"),
    "tool": ("text", "document"),
}


def check(body: Raw, rules: ModelRules) -> None:
    fields = table(body)
    if strange := sorted(fields.keys() - FIELDS):
        raise Rejected(f"unknown field: parameter '{strange[0]}' is not a valid field", status=422)
    for name, kind in (("model", str), ("messages", list)):
        if not isinstance(fields.get(name), kind) or not fields[name]:
            raise Rejected(f"invalid request: {name} is required")
    if fields.get("tool_choice") not in (None, "REQUIRED", "NONE"):
        raise Rejected("invalid request: tool_choice must be one of REQUIRED or NONE")
    if fields.get("tool_choice") is not None and not rows(fields.get("tools")):
        raise Rejected("invalid request: tool_choice is only supported with tools")
    if dig(fields.get("response_format"), "type") == "json_object" and rows(fields.get("tools")):
        raise Rejected("invalid request: response_format is not supported with tools")
    for tool in rows(fields.get("tools")):
        if table(tool).get("type") != "function" or not text(dig(tool, "function", "name")):
            raise Rejected("invalid request: all elements in tools must have a function with a name")
    check_messages(rows(fields.get("messages")))


def check_messages(messages: list[Raw]) -> None:
    waiting: list[str] = []
    for position, message in enumerate(map(table, messages)):
        where, role, content = f"messages[{position}]", text(message.get("role")), message.get("content")
        if role not in CONTENTS:
            raise Rejected(f"invalid request: {where}.role must be one of system, user, assistant or tool")
        for part in rows(content):
            if text(table(part).get("type")) not in CONTENTS[role]:
                raise Rejected(f"invalid request: {where} has a content type that role {role} does not take")
        if role == "tool":
            if text(message.get("tool_call_id")) not in waiting:
                raise Rejected(f"invalid request: {where} has a tool_call_id that no call before it has")
            waiting.remove(text(message.get("tool_call_id")))
            continue
        if waiting:
            raise Rejected(f"invalid request: {where} stands before the results of all calls")
        calls = rows(message.get("tool_calls"))
        if not calls and not isinstance(content, str | list):
            raise Rejected(f"invalid request: {where} must have content or tool calls")
        for call in calls:
            check_arguments(text(dig(call, "function", "arguments")), where)
        waiting = [text(table(call).get("id")) for call in calls]


def check_arguments(arguments: str, where: str) -> None:
    try:
        value = parse(arguments or "{}")
    except ValueError:
        value = None
    if not isinstance(value, dict):
        raise Rejected(f"invalid request: {where}.tool_calls has arguments that are no JSON object")


JUDGE = FamilyJudge(
    name="cohere_chat",
    check=check,
    error_object=lambda rejected: {"message": rejected.message},
    no_json=RefusalForm("invalid json syntax: {error}"),
    wrong_key=RefusalForm("Incorrect API key provided. You can find your API key at the dashboard.", status=401),
    unknown_model=RefusalForm(
        "model '{model}' not found, make sure the correct model ID was used and that you have access to the model.",
        status=404,
    ),
    window=RefusalForm(
        "too many tokens: size limit exceeded ({prompt} tokens). Try using shorter or fewer inputs. The limit for this model is "
        "{window} tokens."
    ),
    output=RefusalForm("invalid request: max_tokens must be less than or equal to {limit}"),
    outputs=(("max_tokens",),),
    budgets=(("thinking", "token_budget"),),
    unthinking=("thinking", "type"),
)
