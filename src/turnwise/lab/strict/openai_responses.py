"""What api.openai.com checks in a Responses request. The lab keeps nothing, so no earlier response can be named."""

from turnwise.lab.raw import Raw, dig, rows, table, text
from turnwise.lab.script import Binding
from turnwise.lab.strict.openai_chat import (
    MODELS,
    NO_JSON,
    WRONG_KEY,
    check_choice,
    check_gpt,
    check_length,
    check_name,
    check_numbers,
    check_output,
    check_parameters,
    check_text,
    check_whole_number,
    error_object,
    missing,
    not_among,
    wrong_type,
)
from turnwise.lab.strict.thinking import Dropped, Judged, PrefixReader, ThinkingJudge, bound_in, is_signature
from turnwise.lab.strict.verdicts import FamilyJudge, JudgedModel, ModelRules, RefusalForm, Rejected

ROLES = ("assistant", "system", "developer", "user")
CHOICES = ("none", "auto", "required")
MIN_OUTPUT_TOKENS = 16  # "Expected a value >= 16"
ID_CHARACTERS = 64
# Reported with "Expected an ID that begins with 'fc'": nodetool#4252, sub2api#3785; with 'rs': cockpit-tools#2090.
ID_BEGINS = {"function_call": "fc", "message": "msg", "reasoning": "rs"}
TOOLS = (
    "function custom namespace file_search web_search web_search_2025_08_26 web_search_preview "
    "web_search_preview_2025_03_11 computer computer_use_preview mcp code_interpreter programmatic_tool_calling "
    "image_generation local_shell shell apply_patch tool_search"
).split()
TEXT_OR_LIST = "one of an array of objects or string"
INSTEAD_OF_INPUT = ("prompt", "conversation")
# call -> the item that answers it
ANSWERS = {
    "function_call": "function_call_output",
    "custom_tool_call": "custom_tool_call_output",
    "local_shell_call": "local_shell_call_output",
    "shell_call": "shell_call_output",
    "apply_patch_call": "apply_patch_call_output",
    "computer_call": "computer_call_output",
}
OUTPUTS = {output: call for call, output in ANSWERS.items()}
CALL_WORDS = {"custom_tool_call": "custom tool call", "function_call": "function call"}
OTHER_ITEMS = (
    "message reasoning web_search_call file_search_call code_interpreter_call image_generation_call mcp_list_tools "
    "mcp_approval_request mcp_approval_response mcp_call item_reference tool_search_call tool_search_output compaction "
    "additional_tools"
).split()
ITEMS = (*OTHER_ITEMS, *ANSWERS, *OUTPUTS)
USER_CONTENT = ("input_text", "input_image", "input_file", "input_audio")
ASSISTANT_CONTENT = ("output_text", "refusal")


def check(body: Raw, rules: ModelRules) -> None:
    if not isinstance(body, dict):
        raise Rejected("We could not parse the JSON body of your request. Expected a JSON object.")
    if not text(body.get("model")):
        raise missing("model")
    earlier = body.get("previous_response_id")
    if isinstance(earlier, str):  # recorded: openai 400 052
        raise Rejected(
            f"Previous response with id '{earlier}' not found.",
            param="previous_response_id",
            code="previous_response_not_found",
        )
    check_numbers(body)
    if "messages" in body:  # chatwise-releases#1023
        raise Rejected(
            "Unsupported parameter: 'messages'. In the Responses API, this parameter has moved to 'input'. Try again with "
            "the new parameter. See the API documentation for more information: "
            "https://platform.openai.com/docs/api-reference/responses/create.",
            code="unsupported_parameter",
        )
    check_whole_number(body.get("max_output_tokens"), where="max_output_tokens", least=MIN_OUTPUT_TOKENS)
    format = table(table(body.get("text")).get("format"))
    if format.get("type") == "json_schema":
        check_output(format, where="text.format", param="text.format.schema")
    check_tools(body)
    items = body.get("input")
    if items is None and any(isinstance(body.get(field), str | dict) for field in INSTEAD_OF_INPUT):
        return
    if items is None or items == [] or items == "":
        raise Rejected(
            "One of \"input\" or \"previous_response_id\" or 'prompt' or 'conversation_id' must be provided.",
            param="input",
            code="missing_required_parameter",
        )
    if isinstance(items, str):
        return
    if not isinstance(items, list):
        raise wrong_type(items, TEXT_OR_LIST, where="input")
    for position, item in enumerate(items):
        check_item(table(item), where=f"input[{position}]")
    check_ids(items)
    check_pairing(items)
    check_reasoning(items)
    if rules.signed:
        check_encrypted(items)


def check_tools(body: dict[str, Raw]) -> None:
    more = {
        f"input[{position}].tools": table(item).get("tools")
        for position, item in enumerate(rows(body.get("input")))
        if table(item).get("type") == "additional_tools"
    }
    for where, tools in {"tools": body.get("tools"), **more}.items():
        _check_tools(rows(tools), where=where)
    tools = [tool for offered in (body.get("tools"), *more.values()) for tool in rows(offered)]
    choice = body.get("tool_choice")
    if choice is not None:
        check_choice(choice, tools=tools, api="responses", words=CHOICES)
    if choice == "required" and not tools:
        raise Rejected("Tool choice 'required' must be specified with 'tools' parameter.", param="tool_choice")


def _check_tools(tools: list[Raw], *, where: str) -> None:
    for position, tool in enumerate(tools):
        fields = table(tool)
        type = text(fields.get("type"))
        if not type:
            raise missing(f"{where}[{position}].type")
        if type not in TOOLS:
            raise not_among(type, TOOLS, where=f"{where}[{position}].type")
        if type in ("function", "custom"):
            if not text(fields.get("name")):  # what a Chat Completions tool gets here: its name stands under `function`
                raise missing(f"{where}[{position}].name")
            check_name(fields["name"], where=f"{where}[{position}].name")
        if type == "function":
            check_parameters(
                fields.get("parameters"),
                name=text(fields["name"]),
                strict=fields.get("strict") is True,
                where=f"{where}[{position}].parameters",
            )


def check_item(item: dict[str, Raw], *, where: str) -> None:
    type = text(item.get("type")) or ("message" if "role" in item else "")
    if type not in ITEMS:
        raise not_among(type, ITEMS, where=where)
    check_item_ids(item, type=type, where=where)
    if type == "message":
        check_message(item, where=where)
    elif type == "additional_tools":  # openai-python 3.57, types/responses/response_input_item_param.py
        if item.get("role") != "developer":
            raise Rejected(
                f"Invalid value: '{text(item.get('role'))}'. Supported values are: 'developer'.", param=f"{where}.role"
            )
        if not isinstance(item.get("tools"), list):
            raise missing(f"{where}.tools")
    elif type in ANSWERS:
        if type != "computer_call" and not text(item.get("call_id")):
            raise missing(f"{where}.call_id")
        if type == "function_call":
            for field in ("name", "arguments"):
                check_text(item.get(field), where=f"{where}.{field}")
    elif type in OUTPUTS:
        if not text(item.get("call_id")):
            raise missing(f"{where}.call_id")
        if type == "function_call_output":
            check_content(item.get("output"), where=f"{where}.output")


def check_item_ids(item: dict[str, Raw], *, type: str, where: str) -> None:
    check_length(text(item.get("call_id")), where=f"{where}.call_id", limit=ID_CHARACTERS)
    id, begin = text(item.get("id")), ID_BEGINS.get(type, "")
    if id and not id.startswith(begin):
        raise Rejected(
            f"Invalid '{where}.id': '{id}'. Expected an ID that begins with '{begin}'.",
            param=f"{where}.id",
            code="invalid_value",
        )
    check_length(id, where=f"{where}.id", limit=ID_CHARACTERS)


def check_message(item: dict[str, Raw], *, where: str) -> None:
    role = text(item.get("role"))
    if role not in ROLES:
        raise not_among(role, ROLES, where=f"{where}.role" if role else where)
    content = item.get("content")
    check_content(content, where=f"{where}.content")
    taken = ASSISTANT_CONTENT if role == "assistant" else USER_CONTENT
    for index, part in enumerate(rows(content)):
        type = text(table(part).get("type"))
        if type not in taken:
            raise not_among(type, taken, where=f"{where}.content[{index}]")
        if type.endswith("_text") and not isinstance(table(part).get("text"), str):
            raise wrong_type(table(part).get("text"), "a string", where=f"{where}.content[{index}].text")


def check_content(content: Raw, *, where: str) -> None:
    """A text or a list that has to be there."""
    if content is None:
        raise missing(where)
    if not isinstance(content, str | list):
        raise wrong_type(content, TEXT_OR_LIST, where=where)


def check_ids(items: list[Raw]) -> None:
    seen: set[str] = set()
    for item in items:
        id = text(table(item).get("id"))
        if id and text(table(item).get("type")) not in OUTPUTS:
            if id in seen:
                raise Rejected(
                    f"Duplicate item found with id {id}. Remove duplicate items from your input and try again.",
                    param="input",
                )
            seen.add(id)


def check_pairing(items: list[Raw]) -> None:
    """Every call has one output after it, every output one call before it. Where between them is free."""
    calls: dict[str, str] = {}
    answered: set[str] = set()
    for item in items:
        fields = table(item)
        type, id = text(fields.get("type")), text(fields.get("call_id"))
        if type in ANSWERS:
            if id in calls:
                raise Rejected(f"Duplicate 'call_id': {id}", param="input")
            calls[id] = type
        elif type in OUTPUTS:
            if calls.get(id) != OUTPUTS[type]:
                word = CALL_WORDS.get(OUTPUTS[type], OUTPUTS[type])
                raise Rejected(f"No tool call found for {word} output with call_id {id}.", param="input")
            if id in answered:
                raise Rejected(f"Duplicate call_ids submitted: ['{id}', '{id}']", param="input")
            answered.add(id)
    for id, type in calls.items():
        if id not in answered:
            word = CALL_WORDS.get(type, type)
            raise Rejected(f"No tool output found for {word} {id}.", param="input")


def check_reasoning(items: list[Raw]) -> None:
    """A reasoning item stands before what came out of it: a message of the assistant, or a call."""
    for position, item in enumerate(items):
        if text(table(item).get("type")) != "reasoning":
            continue
        following = table(items[position + 1]) if position + 1 < len(items) else {}
        type = text(following.get("type")) or "message"
        from_model = following.get("role") == "assistant" if type == "message" else type not in OUTPUTS
        if not following or not from_model:
            raise Rejected(
                f"Item '{text(table(item).get('id'))}' of type 'reasoning' was provided without its required following item.",
                param="input",
            )


def check_encrypted(items: list[Raw]) -> None:
    for item in items:
        sealed = table(item).get("encrypted_content")
        if table(item).get("type") == "reasoning" and isinstance(sealed, str) and not is_signature(sealed):
            shown = f"{sealed[:4]}...{sealed[-4:]}"
            raise Rejected(
                f"The encrypted content {shown} could not be verified. "
                "Reason: Encrypted content could not be decrypted or parsed.",
                code="invalid_encrypted_content",
            )


def check_model(fields: dict[str, Raw], name: str, found: JudgedModel) -> None:
    effort = table(fields.get("reasoning")).get("effort")
    check_gpt(fields, found, name=name, effort=effort, where="reasoning.effort", efforts=found.efforts)


def judge_thinking(body: dict[str, Raw], binding: Binding, betas: str) -> Judged:
    """`instructions` stand behind the input, so they are no part of any prefix."""
    del binding, betas  # stale thinking is always dropped
    reader = PrefixReader(body.get("tools"), dig(body, "text", "format"))
    items = body.get("input")
    for position, item in enumerate(rows(items) if isinstance(items, list) else [items]):
        fields = table(item)
        sealed = fields.get("encrypted_content")
        if fields.get("type") == "reasoning" and isinstance(sealed, str):
            reader.judge(bound_in(sealed), thought=None, path=f"input.{position}", id=text(fields.get("id")))
        else:
            reader.take("", {key: value for key, value in fields.items() if key not in ("id", "status")} or item)
    return reader.judged(tells=True)


def report_dropped(one: Dropped) -> Raw:
    return {"type": "reasoning", "id": one.id, "action": "removed", "reason": f"{one.reason}_mismatch"}


JUDGE = FamilyJudge(
    name="openai_responses",
    check=check,
    models=MODELS,
    check_model=check_model,
    thinking=ThinkingJudge(
        judge=judge_thinking,
        report=report_dropped,
        told_in=b'"response":{',
        told_with=(b'"response.completed"', b'"response.incomplete"'),
    ),
    error_object=error_object,
    no_json=NO_JSON,
    wrong_key=WRONG_KEY,
    unknown_model=RefusalForm(
        "The requested model '{model}' does not exist.", param="model", code="model_not_found"
    ),  # recorded, with 400
    window=RefusalForm(  # recorded
        "Your input exceeds the context window of this model. Please adjust your input and try again.",
        param="input",
        code="context_length_exceeded",
    ),
    output=RefusalForm(
        "Invalid 'max_output_tokens': integer above maximum value. Expected a value <= {limit}, but got {asked} instead.",
        param="max_output_tokens",
        code="integer_above_max_value",
    ),
    outputs=(("max_output_tokens",),),
    efforts=(("reasoning", "effort"),),
)
