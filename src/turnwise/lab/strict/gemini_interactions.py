"""What generativelanguage.googleapis.com checks in a request to its Interactions API. The lab keeps nothing, so no earlier
interaction can be named.

Sources: google-genai 3.6, `_gaos/types/interactions` (fields, kinds of steps, words); Google's reference, "Interactions"; public
reports where a comment names one. The words are ours where none is named.
"""

from collections.abc import Sequence

from turnwise.lab.raw import Raw, dump, rows, table, text
from turnwise.lab.strict.thinking import is_signature
from turnwise.lab.strict.verdicts import FamilyJudge, ModelRules, RefusalForm, Rejected

FIELDS = frozenset(
    """model agent agent_config background cached_content continuation_token environment generation_config input labels
    previous_interaction_id response_format response_mime_type response_modalities safety_settings service_tier store stream
    system_instruction tools webhook_config""".split()
)
GENERATION = frozenset(
    """image_config max_output_tokens seed speech_config stop_sequences temperature thinking_level thinking_summaries tool_choice
    top_p transcription_config video_config""".split()
)
CONTENTS = ("text", "image", "audio", "document", "video")
SERVED = (
    "google_search code_execution url_context file_search google_maps mcp_server_tool retrieval tool_search processing"
).split()
STEPS = (
    *("user_input", "model_output", "thought", "function_call", "function_result"),
    *[f"{tool}_{end}" for tool in SERVED for end in ("call", "result")],
)
TOOLS = (
    "function code_execution computer_use file_search google_maps google_search mcp_server retrieval tool_search url_context"
).split()
CHOICES = ("auto", "any", "none", "validated")
LEVELS = ("minimal", "low", "medium", "high", "xhigh")
MUST_SAY = {"function_call": ("id", "name"), "function_result": ("call_id",)}


def check(body: Raw, rules: ModelRules) -> None:
    if not isinstance(body, dict):
        raise Rejected("Invalid JSON payload received. Unexpected token.")
    check_known(body, FIELDS, where="")
    if not text(body.get("model")) and not text(body.get("agent")):
        raise Rejected("Either `model` or `agent` must be specified.")
    earlier = body.get("previous_interaction_id")
    if earlier is not None:
        raise Rejected(f"Interaction '{text(earlier)}' not found.", status=404)
    check_generation(table(body.get("generation_config")))
    check_tools(body)
    given = body.get("input")
    if given is None or given in ("", []):
        raise Rejected("`input` must be specified.")
    if isinstance(given, str):
        return
    items = given if isinstance(given, list) else [given]
    steps = [table(item) for item in items]
    for at, step in enumerate(steps):
        check_step(step, where=f"input[{at}]")
    if len({text(step.get("type")) in CONTENTS for step in steps}) > 1:
        raise Rejected("`input` holds contents or steps, not both.")
    check_pairing(steps)
    if rules.signed:
        check_signatures(steps)
    if not rules.prefill and text(steps[-1].get("type")) not in ("user_input", "function_result", *CONTENTS):
        raise Rejected("Please ensure that the input ends with a user input or a function result.")


def check_known(fields: dict[str, Raw], known: frozenset[str], *, where: str) -> None:
    """As the rest of Google's API words it (zed#44875)."""
    for field in fields:
        if field not in known:
            at = f" at '{where}'" if where else ""
            raise Rejected(f'Invalid JSON payload received. Unknown name "{field}"{at}: Cannot find field.')


def not_among(given: Raw, taken: Sequence[str], *, where: str) -> Rejected:
    return Rejected(f"Invalid value at '{where}': {dump(given).decode()}. Supported values: {', '.join(taken)}.")


def check_generation(config: dict[str, Raw]) -> None:
    check_known(config, GENERATION, where="generation_config")
    limit = config.get("max_output_tokens")
    if isinstance(limit, int) and limit < 1:
        raise Rejected(f"max_output_tokens must be at least 1, got {limit}.")
    for name, words in (("thinking_level", LEVELS), ("thinking_summaries", ("auto", "none"))):
        if name in config and config[name] not in words:
            raise not_among(config[name], words, where=f"generation_config.{name}")


def check_tools(body: dict[str, Raw]) -> None:
    names: list[str] = []
    for at, tool in enumerate(rows(body.get("tools"))):
        fields, where = table(tool), f"tools[{at}]"
        if text(fields.get("type")) not in TOOLS:
            raise not_among(fields.get("type"), TOOLS, where=f"{where}.type")
        if fields.get("type") != "function":
            continue
        name = text(fields.get("name"))
        if not name or not (name[0].isalpha() or name[0] == "_"):
            raise Rejected(
                f"{where}.name: Invalid function name. Must start with a letter or an underscore. Must be alphanumeric (a-z, "
                "A-Z, 0-9), underscores (_), dots (.), colons (:), or dashes (-), with a maximum length of 128."
            )
        if name in names:
            raise Rejected(f"Duplicate function declaration found: {name}")
        names.append(name)
    choice = table(body.get("generation_config")).get("tool_choice")
    allowed = table(table(choice).get("allowed_tools"))
    mode = allowed.get("mode", "auto") if isinstance(choice, dict) else choice
    if choice is not None and mode not in CHOICES:
        raise not_among(mode, CHOICES, where="generation_config.tool_choice")
    if mode == "any" and not names:
        raise Rejected("Function calling config is set without function_declarations.")
    unknown = [text(name) for name in rows(allowed.get("tools")) if text(name) not in names]
    if unknown:
        raise Rejected(f"Allowed function name `{unknown[0]}` is not in function_declarations.")


def check_step(step: dict[str, Raw], *, where: str) -> None:
    kind = text(step.get("type"))
    if kind not in (*STEPS, *CONTENTS):
        raise not_among(step.get("type"), STEPS, where=f"{where}.type")
    if kind in CONTENTS:
        check_content(step, where=where)
    elif kind in ("user_input", "model_output"):
        contents = step.get("content")
        if not isinstance(contents, list) or not contents:
            raise Rejected(f"{where}.content must not be empty.")
        for at, content in enumerate(contents):
            check_content(table(content), where=f"{where}.content[{at}]")
    elif kind == "thought" and not text(step.get("signature")):  # reported: googleapis/js-genai#1735
        raise Rejected(f"{where}: a thought without a signature is an invalid argument.")
    for field in MUST_SAY.get(kind, ()):
        if not text(step.get(field)):
            raise Rejected(f"{where}.{field} must not be empty.")
    if kind == "function_call" and not isinstance(step.get("arguments"), dict):
        raise Rejected(f"Invalid value at '{where}.arguments': an object is expected.")
    if kind == "function_result":
        if not isinstance(step.get("result"), str | dict | list):
            raise Rejected(f"Invalid value at '{where}.result': a string, an object or contents are expected.")
        for at, content in enumerate(rows(step.get("result"))):
            check_content(table(content), where=f"{where}.result[{at}]")


def check_content(content: dict[str, Raw], *, where: str) -> None:
    kind = text(content.get("type"))
    if kind not in CONTENTS:
        raise not_among(content.get("type"), CONTENTS, where=f"{where}.type")
    if kind == "text" and not isinstance(content.get("text"), str):
        raise Rejected(f"{where}.text must be a string.")
    if kind != "text" and not (text(content.get("data")) or text(content.get("uri"))):
        raise Rejected(f"{where}: one of `data` and `uri` must be set.")


def check_pairing(steps: list[dict[str, Raw]]) -> None:
    """Each call has one result behind it, and each result a call before it."""
    open_calls: list[str] = []
    for step in steps:
        kind = text(step.get("type"))
        if kind == "function_call":
            if step["id"] in open_calls:
                raise Rejected(f"Duplicate function call id: {text(step['id'])}")
            open_calls.append(text(step["id"]))
        elif kind == "function_result":
            if step["call_id"] not in open_calls:
                raise Rejected(
                    "Please ensure that function response turn comes immediately after a function call turn."
                )
            open_calls.remove(text(step["call_id"]))
        elif open_calls and kind == "user_input":
            raise Rejected(UNEVEN)
    if open_calls:
        raise Rejected(UNEVEN)


UNEVEN = (
    "Please ensure that the number of function response parts is equal to the number of function call parts of the "
    "function call turn."
)


def check_signatures(steps: list[dict[str, Raw]]) -> None:
    """A thinking model's calls follow a thought of the same response, with its signature as it came. Of the current turn, as in
    the rest of the API (ai.google.dev/gemini-api/docs/thought-signatures)."""
    asked = max([at for at, step in enumerate(steps) if step.get("type") == "user_input"], default=0)
    signed = False
    for step in steps[asked:]:
        kind = step.get("type")
        signed = (
            is_signature(text(step.get("signature"))) if kind == "thought" else signed and kind != "function_result"
        )
        if kind == "thought" and not signed:
            raise Rejected("Corrupted thought signature.")
        if kind == "function_call" and not signed:
            raise Rejected(
                f"Function call `{text(step.get('name'))}` is missing a thought signature. Please refer to "
                "https://ai.google.dev/gemini-api/docs/thought-signatures for more details."
            )


# google-genai 3.6, `_gaos/types/interactions/error.py`: the code is a word; Google's reference has `not_found`
CODES = {
    400: "invalid_argument",
    401: "unauthenticated",
    403: "permission_denied",
    404: "not_found",
    429: "resource_exhausted",
    503: "unavailable",
    504: "deadline_exceeded",
}


def error_object(rejected: Rejected) -> Raw:
    code = rejected.type or CODES.get(rejected.status) or ("invalid_argument" if rejected.status < 500 else "internal")
    return {"error": {"code": code, "message": rejected.message}}


JUDGE = FamilyJudge(
    name="gemini_interactions",
    check=check,
    error_object=error_object,
    no_json=RefusalForm("Invalid JSON payload received. {error}"),
    wrong_key=RefusalForm(
        "Request had invalid authentication credentials. Expected OAuth 2 access token, login cookie or other valid "
        "authentication credential.",
        status=401,
    ),
    unknown_model=RefusalForm("models/{model} is not found for API version v1beta.", status=404),
    window=RefusalForm("The input token count ({prompt}) exceeds the maximum number of tokens allowed ({window})."),
    output=RefusalForm(
        "max_output_tokens is {asked}, but the supported range is from 1 (inclusive) to {beyond} (exclusive)."
    ),
    outputs=(("generation_config", "max_output_tokens"),),
    efforts=(("generation_config", "thinking_level"),),
)
