"""What Ollama's own API checks in a request. It passes over fields that it does not know, and over roles.

Sources: ollama/ollama, `server/routes.go` (`ChatHandler`), `api/types.go` (the types of its fields; Go's JSON decoder words the
refusals), `llm/server.go` (`format`).
"""

from collections.abc import Mapping

from turnwise.lab.raw import Raw, dig, kind, rows, table, text
from turnwise.lab.strict.verdicts import FamilyJudge, ModelRules, RefusalForm, Rejected

# Go's types by the kinds of JSON that they take; null is every type's zero.
STRING, BOOL, OBJECT, LIST, NUMBER = ("string",), ("boolean",), ("object",), ("array",), ("integer", "decimal")
FIELDS: Mapping[str, tuple[str, ...]] = {
    "model": STRING,
    "messages": LIST,
    "tools": LIST,
    "stream": BOOL,
    "options": OBJECT,
    "truncate": BOOL,
    "shift": BOOL,
}
MESSAGE: Mapping[str, tuple[str, ...]] = {
    "role": STRING,
    "content": STRING,
    "thinking": STRING,
    "images": LIST,
    "tool_calls": LIST,
    "tool_name": STRING,
    "tool_call_id": STRING,
}
FUNCTION: Mapping[str, tuple[str, ...]] = {
    "name": STRING,
    "arguments": OBJECT,
    "description": STRING,
    "parameters": OBJECT,
}
OPTIONS: Mapping[str, tuple[str, ...]] = {
    **dict.fromkeys(("num_ctx", "num_predict", "seed", "top_k", "temperature", "top_p"), NUMBER),
    "stop": LIST,
}
LEVELS = ("high", "medium", "low", "max")


def check(body: Raw, rules: ModelRules) -> None:
    fields = check_types(body, FIELDS, "ChatRequest")
    if not text(fields.get("model")):
        raise Rejected("model is required")
    if not rows(fields.get("messages")):  # the server takes it, and only loads the model
        raise Rejected("messages are missing")
    for message in rows(fields.get("messages")):
        told = check_types(message, MESSAGE, "ChatRequest.messages")
        for call in rows(told.get("tool_calls")):
            check_types(dig(call, "function"), FUNCTION, "ChatRequest.messages.tool_calls.function")
    for tool in rows(fields.get("tools")):
        check_types(dig(tool, "function"), FUNCTION, "ChatRequest.tools.function")
    for name, value in table(fields.get("options")).items():
        if name in OPTIONS and kind(value) not in (*OPTIONS[name], "null"):
            raise Rejected(f'option "{name}" must be of type {OPTIONS[name][0]}')
    think, form = fields.get("think"), fields.get("format")
    if not isinstance(think, bool | None) and think not in LEVELS:
        raise Rejected('invalid think value: must be true, false, "high", "medium", "low", or "max"')
    if not isinstance(form, dict | None) and form not in ("", "json"):
        raise Rejected(f'invalid format: {form!r}; expected "json" or a valid JSON Schema object')


def check_types(value: Raw, types: Mapping[str, tuple[str, ...]], where: str) -> dict[str, Raw]:
    if not isinstance(value, dict | None):
        raise Rejected(f"json: cannot unmarshal {kind(value)} into Go value of type api.{where}")
    for name, found in table(value).items():
        if name in types and kind(found) not in (*types[name], "null"):
            raise Rejected(
                f"json: cannot unmarshal {kind(found)} into Go struct field {where}.{name} of type {types[name][0]}"
            )
    return table(value)


JUDGE = FamilyJudge(
    name="ollama_chat",
    check=check,
    error_object=lambda rejected: {"error": rejected.message},
    no_json=RefusalForm("{error}"),
    wrong_key=RefusalForm("unauthorized", status=401),
    unknown_model=RefusalForm("model '{model}' not found", status=404),
    window=RefusalForm("prompt too long; exceeded max context length ({prompt} of {window} tokens)"),
    output=RefusalForm("num_predict {asked} is more than {limit}"),  # no server is known to refuse one
    outputs=(("options", "num_predict"),),
)
