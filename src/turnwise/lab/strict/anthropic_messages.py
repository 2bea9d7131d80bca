"""What api.anthropic.com checks in a Messages request."""

import re
from collections.abc import Iterator, Mapping

from msgspec.structs import replace

from turnwise.lab.raw import Raw, dig, rows, table, text
from turnwise.lab.script import Binding
from turnwise.lab.strict.thinking import Dropped, Judged, PrefixReader, ThinkingJudge, bound_in, sign
from turnwise.lab.strict.verdicts import (
    FamilyJudge,
    JudgedModel,
    ModelRules,
    RefusalForm,
    Rejected,
    check_marks,
    marks_of_messages,
)

# What api.anthropic.com checks of a message of role `system` among the messages: instructions, and tools that come or go.
#
# Source: Claude docs, "Mid-conversation system messages and tool changes" (a copy of 2026-09-26; the list of models with
# Sonnet 5.5 and Haiku 5.5 is from a later one). The sentences about its place are as public code quotes them from answers of the
# API in October 2026; the others are ours, in the API's manner.


INLINE_BETA, CHANGES_BETA = "inline-tools-2026-09-15", "mid-conversation-tool-changes-2026-07-01"
TAKES_IT = re.compile(r"claude-(?:(?:fable|mythos)-5|opus-4-8|opus-5|sonnet-5-5|haiku-5-5)(?!\d)")
CHANGES = ("tool_addition", "tool_removal")
ANYWHERE = "; the directive-only form (content: [] with output_config) is accepted at any position"


def check_role(model: str) -> None:
    if not TAKES_IT.search(model):
        raise Rejected(
            'messages: Unexpected role "system". The Messages API accepts a top-level `system` parameter, '
            'not "system" as an input message role.'
        )


def check_content(content: Raw, *, where: str) -> None:
    """Texts, and tools that come or go."""
    for index, block in enumerate(rows(content)):
        type = text(table(block).get("type"))
        if type not in ("text", *CHANGES):
            raise Rejected(f"{where}.content.{index}: role 'system' takes 'text', 'tool_addition' and 'tool_removal'")
        if type == "text" and not text(table(block).get("text")).strip():
            raise Rejected(f"{where}.content.{index}: text content blocks must contain non-whitespace text")


def check_places(messages: list[Raw]) -> None:
    """Neighbours are judged together."""
    roles = [text(table(message).get("role")) for message in messages]
    for position, role in enumerate(roles):
        if role != "system":
            continue
        first = next(at for at in range(position, -1, -1) if at == 0 or roles[at - 1] != "system")
        last = next(at for at in range(position, len(roles)) if at + 1 == len(roles) or roles[at + 1] != "system")
        before = messages[first - 1] if first else None
        if before is None or not (roles[first - 1] == "user" or _ends_in_result(before)):
            raise Rejected(
                f"messages.{position}: role 'system' must follow a 'user' message or an 'assistant' message ending in a server "
                f"tool result{ANYWHERE}"
            )
        if last + 1 < len(roles) and roles[last + 1] != "assistant":
            raise Rejected(
                f"messages.{position}: role 'system' must precede an 'assistant' message or end the array{ANYWHERE}"
            )


def _ends_in_result(message: Raw) -> bool:
    blocks = rows(table(message).get("content"))
    return bool(blocks) and text(table(blocks[-1]).get("type")).endswith("_tool_result")


def tools_defined(messages: list[Raw]) -> Iterator[tuple[str, dict[str, Raw]]]:
    """Where, and as what."""
    for where, block in _changes(messages):
        tool = table(block.get("tool"))
        if tool.get("type") == "tool_definition":
            yield f"{where}.tool_addition.tool.definition", table(tool.get("definition"))


def check_changes(messages: list[Raw], *, named: list[str], betas: str) -> None:
    """`named`: the tools in front."""
    sent = [one.strip() for one in betas.split(",")]
    known = list(named)
    for where, block in _changes(messages):
        kind, tool = text(block.get("type")), table(block.get("tool"))
        if tool.get("type") == "tool_definition" and kind == "tool_addition":
            if INLINE_BETA not in sent:
                raise Rejected(
                    f"{where}.{kind}.tool: Input tag 'tool_definition' found using 'type' does not match any of the expected "
                    "tags: 'tool_reference', 'mcp_tool_reference', 'mcp_toolset_reference'"
                )
            known.append(text(table(tool.get("definition")).get("name")))
            continue
        if INLINE_BETA not in sent and CHANGES_BETA not in sent:
            raise Rejected(
                f"{where}: Input tag '{kind}' found using 'type' does not match any of the expected tags: 'text'"
            )
        if text(tool.get("name")) not in known:
            raise Rejected(
                f"{where}.{kind}: no tool `{text(tool.get('name'))}` is declared", code="tool_reference_unresolved"
            )


def _changes(messages: list[Raw]) -> Iterator[tuple[str, dict[str, Raw]]]:
    for position, message in enumerate(messages):
        for index, block in enumerate(rows(table(message).get("content"))):
            if text(table(block).get("type")) in CHANGES:
                yield f"messages.{position}.content.{index}", table(block)


# The fields of each tool choice beside its type (the SDK's `ToolChoiceParam`).
CHOICES = {
    "auto": ("disable_parallel_tool_use",),
    "any": ("disable_parallel_tool_use",),
    "tool": ("name", "disable_parallel_tool_use"),
    "none": (),
}
CALL_ID = re.compile(r"^[a-zA-Z0-9_-]+$")
TOOL_NAME = re.compile(r"^[a-zA-Z0-9_-]{1,128}$")
BLOCKS = (
    "text image document search_result thinking redacted_thinking tool_use tool_result server_tool_use "
    "web_search_tool_result web_fetch_tool_result code_execution_tool_result bash_code_execution_tool_result "
    "text_editor_code_execution_tool_result tool_search_tool_result mcp_tool_use mcp_tool_result container_upload compaction"
).split()
# The SDK's `MessageCreateParams` (beta), with Vertex's and Bedrock's two.
FIELDS = frozenset(
    "model messages max_tokens system tools tool_choice stop_sequences stream temperature top_k top_p metadata thinking "
    "service_tier cache_control container context_management compaction diagnostics inference_geo mcp_servers "
    "output_config output_format speed betas billing_policy fallbacks fallback_credit_token thread user_profile_id "
    "workspace_id anthropic_version anthropic_beta".split()
)
THINKING = ("thinking", "redacted_thinking")
MIN_THINKING_TOKENS = 1024
BLANK = "text content blocks must contain non-whitespace text"  # reported: claude-code#23440, home-assistant#175637
EMPTY = "text content blocks must be non-empty"


def check(body: Raw, rules: ModelRules) -> None:
    if not isinstance(body, dict):
        raise Rejected("The request body is not valid JSON: expected an object")
    for field in ("model", "messages", "max_tokens"):
        if body.get(field) is None:
            raise Rejected(f"{field}: Field required")
    for field in body:
        if field not in FIELDS:  # reported: claude-relay-service#660
            raise Rejected(f"{field}: Extra inputs are not permitted")
    limit = body["max_tokens"]
    if not isinstance(limit, int) or isinstance(limit, bool):
        raise Rejected("max_tokens: Input should be a valid integer")
    if limit < 1:
        raise Rejected("max_tokens: Input should be greater than or equal to 1")
    temperature = body.get("temperature")
    if isinstance(temperature, int | float) and not 0 <= temperature <= 1:
        raise Rejected("temperature: range: 0..1")  # recorded: anthropic 400 004
    check_system(body.get("system"))
    check_tools(body)
    check_budget(body, limit=limit)
    messages = body["messages"]
    if not isinstance(messages, list):
        raise Rejected("messages: Input should be a valid list")
    if not messages:
        raise Rejected("messages: at least one message is required")
    if any(table(message).get("role") == "system" for message in messages):
        check_role(text(body["model"]))
    for position, message in enumerate(messages):
        check_message(message, position=position, last=position == len(messages) - 1)
    if table(messages[0]).get("role") != "user":
        raise Rejected('messages: first message must use the "user" role')
    check_places(messages)
    check_changes(
        messages, named=[text(table(tool).get("name")) for tool in rows(body.get("tools"))], betas=rules.betas
    )
    check_pairing(messages)
    if not rows(body.get("tools")) and any(uses_tools(message) for message in messages):
        raise Rejected("Requests which include `tool_use` or `tool_result` blocks must define tools.")
    check_thinking(body, messages=messages, rules=rules)
    check_marks(marks_of_messages(body))
    if not rules.prefill and table(messages[-1]).get("role") == "assistant":
        raise Rejected(
            "This model does not support assistant message prefill. The conversation must end with a user message."
        )


def check_system(system: Raw) -> None:
    words = [text(table(block).get("text")) for block in rows(system) if table(block).get("type") == "text"]
    if not all(words):
        raise Rejected(f"system: {EMPTY}")
    if not all(word.strip() for word in words) or (isinstance(system, str) and system and not system.strip()):
        raise Rejected(f"system: {BLANK}")


def check_budget(body: dict[str, Raw], *, limit: int) -> None:
    thinking = table(body.get("thinking"))
    type = text(thinking.get("type"))
    if type in ("enabled", "adaptive") and table(body.get("tool_choice")).get("type") in ("any", "tool"):
        raise Rejected("Thinking may not be enabled when tool_choice forces tool use.")  # reported: mastra#7507
    if type != "enabled":
        return
    budget = thinking.get("budget_tokens")
    if budget is None:
        raise Rejected("thinking.enabled.budget_tokens: Field required")
    if not isinstance(budget, int) or isinstance(budget, bool):
        raise Rejected("thinking.enabled.budget_tokens: Input should be a valid integer")
    if budget < MIN_THINKING_TOKENS:  # reported: llm.js#30
        raise Rejected(
            f"thinking.enabled.budget_tokens: Input should be greater than or equal to {MIN_THINKING_TOKENS}"
        )
    if budget >= limit:  # reported: antigravity2api-nodejs#149
        raise Rejected(
            "`max_tokens` must be greater than `thinking.budget_tokens`. Please consult our documentation at "
            "https://docs.claude.com/en/docs/build-with-claude/extended-thinking#max-tokens-and-context-window-size"
        )


def check_tools(body: dict[str, Raw]) -> None:
    names: list[str] = []
    front = [(f"tools.{position}.custom", table(tool)) for position, tool in enumerate(rows(body.get("tools")))]
    behind = list(tools_defined(rows(body.get("messages"))))
    for where, fields in (*front, *behind):
        name = text(fields.get("name"))
        if text(fields.get("type")) in ("", "custom"):
            if not TOOL_NAME.match(name):
                raise Rejected(f"{where}.name: String should match pattern '{TOOL_NAME.pattern}'")
            schema = fields.get("input_schema")
            if schema is None:
                raise Rejected(f"{where}.input_schema: Field required")
            if not isinstance(schema, dict):  # recorded: anthropic 400 010
                raise Rejected(f"{where}.input_schema: Input does not match the expected shape.")
            if "type" not in schema:  # recorded: anthropic 400 012
                raise Rejected(f"{where}.input_schema.type: Field required")
        names.append(name)
    if len(set(names[: len(front)])) < len(front):
        raise Rejected("tools: Tool names must be unique.")
    choice = body.get("tool_choice")
    if choice is None:
        return
    if not isinstance(choice, dict):
        raise Rejected("tool_choice: Input should be a valid dictionary or object to extract fields from")
    type = text(choice.get("type"))
    if type not in CHOICES:
        raise Rejected(
            f"tool_choice: Input tag '{type}' found using 'type' does not match any of the expected tags: "
            "'auto', 'any', 'tool', 'none'"
        )
    extra = [field for field in choice if field not in ("type", *CHOICES[type])]
    if extra:
        raise Rejected(f"tool_choice.{type}.{extra[0]}: Extra inputs are not permitted")
    if not front and type != "none":
        raise Rejected("tool_choice: tool_choice may only be specified while providing tools")
    if type == "tool" and text(choice.get("name")) not in names:
        raise Rejected(f"Tool '{text(choice.get('name'))}' not found in provided tools")


def check_message(message: Raw, *, position: int, last: bool) -> None:
    fields = table(message)
    role = text(fields.get("role"))
    if role not in ("user", "assistant", "system"):
        raise Rejected(f"messages.{position}.role: Input should be 'user' or 'assistant'")
    content = fields.get("content")
    if content is None:
        raise Rejected(f"messages.{position}.content: Field required")
    if not isinstance(content, str | list):
        raise Rejected(f"messages.{position}.content: Input should be a valid list")
    if not content and not (last and role == "assistant"):  # recorded: anthropic 400 116
        raise Rejected(
            f"messages.{position}: all messages must have non-empty content except for the optional final assistant message"
        )
    extra = next((name for name in fields if name not in ("role", "content")), None)
    if extra is not None:  # reported: Roo-Code#11429
        raise Rejected(f"messages.{position}.{extra}: Extra inputs are not permitted")
    if role == "system":
        check_content(content, where=f"messages.{position}")
        return
    for index, block in enumerate(rows(content)):
        check_block(block, role=role, where=f"messages.{position}.content.{index}")
    check_blank(content, role=role)
    final = text(table(rows(content)[-1]).get("type")) if rows(content) else ""
    if role == "assistant" and final in THINKING:  # reported: forgecode#2107
        raise Rejected(f"messages.{position}: The final block in an assistant message cannot be `{final}`.")
    end = text(table(rows(content)[-1]).get("text")) if rows(content) else text(content)
    if last and role == "assistant" and end != end.rstrip():
        raise Rejected("messages: final assistant content cannot end with trailing whitespace")


def check_blank(content: Raw, *, role: str) -> None:
    """White space is taken beside a text that says something, or among an assistant's other blocks, and never alone.

    Source: LibreChat-AI/agents#124, which tried each case; a recorded assistant message has it before its calls.
    """
    blocks = rows(content)
    texts = [text(table(block).get("text")) for block in blocks if is_block(block, "text")]
    if isinstance(content, str):
        texts = [content] if content else []
    beside = len(blocks) > len(texts) and role == "assistant"
    if texts and not beside and not any(words.strip() for words in texts):
        raise Rejected(f"messages: {BLANK}")


def check_block(block: Raw, *, role: str, where: str) -> None:
    fields = table(block)
    type = text(fields.get("type"))
    if type in CHANGES:
        raise Rejected(
            "messages: 'tool_addition'/'tool_removal' blocks are only permitted within role: \"system\" messages"
        )
    if type not in BLOCKS:
        raise Rejected(
            f"{where}: Input tag '{type}' found using 'type' does not match any of the expected tags: "
            + ", ".join(f"'{name}'" for name in BLOCKS)
        )
    match type:
        case "text" if not text(fields.get("text")):
            raise Rejected(f"messages: {EMPTY}")
        case "tool_use":
            check_call(fields, role=role, where=where)
        case "tool_result" if role != "user":
            raise Rejected(f"{where}: `tool_result` blocks can only be in `user` messages")
        case "tool_result":
            check_result(fields, where=f"{where}.tool_result")
        case "image" | "document" if not isinstance(fields.get("source"), dict):
            raise Rejected(f"{where}.{type}.source: Field required")
        case "thinking" | "redacted_thinking" if role != "assistant":
            raise Rejected(f"{where}: `{type}` blocks can only be in `assistant` messages")
        case "thinking" if not isinstance(fields.get("signature"), str):
            raise Rejected(f"{where}.thinking.signature: Field required")
        case _:
            pass


def check_result(result: dict[str, Raw], *, where: str) -> None:
    content = result.get("content")
    if content is not None and not isinstance(content, str | list):
        raise Rejected(f"{where}.content: Input should be a valid list")
    parts = [table(part) for part in rows(content)]
    words = [text(part.get("text")) for part in parts if part.get("type") == "text"]
    if result.get("is_error") is True:
        said = content if isinstance(content, str) else "".join(words)
        if not said.strip() and len(words) == len(parts):  # reported: markform#153, trae-agent#230
            raise Rejected(f"{where}: content cannot be empty if `is_error` is true")
        if len(words) < len(parts):  # reported: vellum-assistant#18387
            raise Rejected(f"{where}: all content must be type `text` if `is_error` is true")
    if not all(words):
        raise Rejected(f"messages: {EMPTY}")
    if not all(word.strip() for word in words):
        raise Rejected(f"messages: {BLANK}")


def check_call(call: dict[str, Raw], *, role: str, where: str) -> None:
    if role != "assistant":
        raise Rejected(f"{where}: `tool_use` blocks can only be in `assistant` messages")
    if not CALL_ID.match(text(call.get("id"))):
        raise Rejected(f"{where}.tool_use.id: String should match pattern '{CALL_ID.pattern}'")
    if not text(call.get("name")):
        raise Rejected(f"{where}.tool_use.name: String should have at least 1 character")
    if not isinstance(call.get("input"), dict):
        raise Rejected(f"{where}.tool_use.input: Input should be a valid dictionary")


def check_pairing(messages: list[Raw]) -> None:
    """The message after a `tool_use` begins with one `tool_result` for each of its ids; ids never come twice.

    Consecutive messages of one role count as one turn (docs: "consecutive user or assistant turns will be combined").
    """
    used: set[str] = set()
    open_ids: list[str] = []
    opened_at = 0
    for position, role, blocks in turns(messages):
        results = [answered_id(block) for block in blocks if is_block(block, "tool_result")]
        if role == "user":
            leading = leading_results(blocks)
            missing = [id for id in open_ids if id not in leading]
            if missing:
                refuse_unanswered(missing, position=opened_at)
            for index, block in enumerate(blocks):
                if is_block(block, "tool_result") and answered_id(block) not in open_ids:
                    raise Rejected(
                        f"messages.{position}.content.{index}: unexpected `tool_use_id` found in `tool_result` blocks: "
                        f"{answered_id(block)}. Each `tool_result` block must have a corresponding "
                        "`tool_use` block in the previous message."
                    )
            twice = next((id for id in results if results.count(id) > 1), None)
            if twice is not None:
                index = max(i for i, block in enumerate(blocks) if answered_id(block) == twice)
                raise Rejected(
                    f"messages.{position}.content.{index}: each tool_use must have a single result. "
                    f"Found multiple `tool_result` blocks with id: {twice}"
                )
            open_ids = []
            continue
        opened_at = position
        for index, block in enumerate(blocks):
            if is_block(block, "tool_use"):
                id = text(table(block).get("id"))
                if id in used:
                    raise Rejected(f"messages.{position}.content.{index}: `tool_use` ids must be unique")
                used.add(id)
                open_ids.append(id)
    if open_ids:
        refuse_unanswered(open_ids, position=opened_at)


def answered_id(block: Raw) -> str:
    return text(table(block).get("tool_use_id"))


def is_block(block: Raw, type: str) -> bool:
    return table(block).get("type") == type


def uses_tools(message: Raw) -> bool:
    return any(
        is_block(block, type) for block in rows(table(message).get("content")) for type in ("tool_use", "tool_result")
    )


def leading_results(blocks: list[Raw]) -> set[str]:
    found: set[str] = set()
    for block in blocks:
        if not is_block(block, "tool_result"):
            break
        found.add(answered_id(block))
    return found


def turns(messages: list[Raw]) -> list[tuple[int, str, list[Raw]]]:
    """(position of its first message, role, blocks) of each turn of the user and the assistant."""
    found: list[tuple[int, str, list[Raw]]] = []
    for position, message in enumerate(messages):
        role = text(table(message).get("role"))
        if role == "system":
            continue
        blocks = list(rows(table(message).get("content")))
        if found and found[-1][1] == role:
            found[-1][2].extend(blocks)
        else:
            found.append((position, role, blocks))
    return found


def refuse_unanswered(missing: list[str], *, position: int) -> None:
    raise Rejected(
        f"messages.{position}: `tool_use` ids were found without `tool_result` blocks immediately after: "
        f"{', '.join(missing)}. Each `tool_use` block must have a corresponding `tool_result` block in the next message."
    )


def check_thinking(body: dict[str, Raw], *, messages: list[Raw], rules: ModelRules) -> None:
    """With thinking on, the assistant turn whose calls are being answered begins with its thinking, unchanged. A script that
    thinks asks for it as well where the request says nothing of thinking, once any thinking came back: in a conversation without
    any the calls are another family's.

    Source: docs.anthropic.com, "Extended thinking", preserving thinking blocks during tool use.
    """
    conversation = turns(messages)
    if rules.signed:
        check_signatures(conversation)
    way = text(table(body.get("thinking")).get("type"))
    if way != "enabled" and (way or rules.adaptive or not rules.signed or not has_thought(conversation)):
        return
    if len(conversation) < 2 or not any(is_block(block, "tool_result") for block in conversation[-1][2]):
        return
    position, _, blocks = conversation[-2]
    first = text(table(blocks[0]).get("type")) if blocks else ""
    if first not in THINKING:
        raise Rejected(
            f"messages.{position}.content.0.type: Expected `thinking` or `redacted_thinking`, but found `{first}`. When "
            "`thinking` is enabled, a final `assistant` message must start with a thinking block (preceeding the lastmost "
            "set of `tool_use` and `tool_result` blocks). We recommend you include thinking blocks from previous turns. To "
            "avoid this requirement, disable `thinking`."
        )


def has_thought(conversation: list[tuple[int, str, list[Raw]]]) -> bool:
    """Whether any thinking of this API's came back in the conversation."""
    return any(is_block(block, kind) for _, _, blocks in conversation for block in blocks for kind in THINKING)


def check_signatures(conversation: list[tuple[int, str, list[Raw]]]) -> None:
    for position, _, blocks in conversation:
        for index, block in enumerate(blocks):
            fields = table(block)
            if fields.get("type") != "thinking":
                continue
            thought, signature = text(fields.get("thinking")), text(fields.get("signature"))
            bound = bound_in(signature)
            if signature != sign(thought) and (bound is None or not bound.is_of(thought)):
                raise Rejected(f"messages.{position}.content.{index}: Invalid `signature` in `thinking` block")


# What single models refuse of a request that the API takes from older ones.
#
# Sources, as of November 2026: Claude docs, "What's new in" and "Migration guide" of Opus 4.7, Opus 5, Opus 5.5, Sonnet 5,
# Sonnet 5.5, Haiku 5.5, Fable 5, Fable 5.1 and Fable 5.2 (Mythos models are on the pages of Fable). Words that a page does not
# quote are reported: tool choice in can1357/oh-my-pi#12939, sampling in BerriAI/litellm#26444 and #39631, effort in
# UKGovernmentBEIS/inspect_ai#5254; those of `computer` and of `between_tools` are ours.

COMPUTER = "computer_20251124"
_TO_HIGH = ("low", "medium", "high")
_FABLE = JudgedModel(thinking=("adaptive",), forced=False)

MODELS: Mapping[str, JudgedModel] = {
    "claude-opus-4-7": JudgedModel(thinking=("adaptive", "disabled")),
    "claude-opus-5": JudgedModel(thinking=("adaptive", "disabled"), off_efforts=_TO_HIGH),
    "claude-opus-5-5": JudgedModel(thinking=("adaptive",), forced=False, computer=False),
    "claude-sonnet-5": JudgedModel(thinking=("adaptive", "disabled")),
    "claude-sonnet-5-5": JudgedModel(
        thinking=("adaptive", "between_tools"), off_efforts=_TO_HIGH, forced=False, computer=False
    ),
    "claude-haiku-5-5": JudgedModel(thinking=("adaptive", "disabled")),
    "claude-fable-5": JudgedModel(thinking=("adaptive",)),
    "claude-fable-5-1": _FABLE,
    "claude-fable-5-2": replace(_FABLE, computer=False),
}


def check_model(fields: dict[str, Raw], _: str, found: JudgedModel) -> None:
    """Raises Rejected for the first thing in a body that a model of `MODELS` refuses."""
    type = text(table(fields.get("thinking")).get("type"))
    effort = text(table(fields.get("output_config")).get("effort"))
    if type and type not in found.thinking:
        instead = "between_tools" if (type, found.thinking[-1]) == ("disabled", "between_tools") else "adaptive"
        raise Rejected(
            f'"thinking.type.{type}" is not supported for this model. Use "thinking.type.{instead}" and '
            '"output_config.effort" to control thinking behavior.'
        )
    if type in ("disabled", "between_tools") and effort and effort not in found.off_efforts:
        raise Rejected(
            f'"thinking.type.{type}" is not supported with "output_config.effort" "{effort}" for this model.'
        )
    if effort and effort not in found.efforts:
        raise Rejected(f"output_config.effort: Input should be {', '.join(map(repr, found.efforts))}")
    for name in ("temperature", "top_p", "top_k"):
        if fields.get(name) is not None and (name == "top_k" or fields[name] != 1):
            raise Rejected(f"`{name}` is deprecated for this model.")
    if not found.forced and table(fields.get("tool_choice")).get("type") in ("any", "tool"):
        raise Rejected('tool_choice: type "tool" and "any" are not supported for this model.')
    if not found.computer and any(table(tool).get("type") == COMPUTER for tool in rows(fields.get("tools"))):
        raise Rejected(f"tools: `{COMPUTER}` is not supported for this model.")
    messages = rows(fields.get("messages"))
    if messages and table(messages[-1]).get("role") == "assistant":
        raise Rejected(
            "This model does not support assistant message prefill. The conversation must end with a user message."
        )


# Thinking that is bound to what stood before it (`thinking.py` has the sources).

BINDING_BETA = "thinking-binding-controls-2026-08-01"
DROPS = "drop_block"


def judge_thinking(body: dict[str, Raw], binding: Binding, betas: str) -> Judged:
    behaviour = _behaviour(body, binding=binding, betas=betas)
    reader = PrefixReader(_as_blocks(body.get("system")), body.get("tools"))
    for position, message in enumerate(rows(body.get("messages"))):
        role = text(table(message).get("role"))
        for index, block in enumerate(_as_blocks(table(message).get("content"))):
            fields, path = table(block), f"messages.{position}.content.{index}"
            match fields.get("type"):
                case "thinking":
                    bound = bound_in(text(fields.get("signature")))
                    if not reader.judge(bound, thought=text(fields.get("thinking")), path=path):
                        raise Rejected(f"{path}: Invalid `signature` in `thinking` block")
                case "redacted_thinking":
                    reader.judge(bound_in(text(fields.get("data"))), thought=None, path=path)
                case _:
                    reader.take(role, block)
    stale = next((one for one in reader.dropped if one.reason == "prefix"), None)
    if stale is not None and binding != "drops" and behaviour != DROPS:
        raise Rejected(
            f"{stale.path}: Invalid `signature` in `thinking` block. The block is bound to a different conversation. Remove "
            f'the block, or set `thinking.block_binding.prefix_mismatch_behavior` to "{DROPS}".'
        )
    return reader.judged(tells=_has_beta(betas))


def _behaviour(body: dict[str, Raw], *, binding: Binding, betas: str) -> Raw:
    """What the request asks for where a block does not match; the field is known only beside its header."""
    thinking = table(body.get("thinking"))
    if "block_binding" not in thinking:
        return "error"
    type = text(thinking.get("type"))
    if binding == "uncontrolled" or type == "disabled" or not _has_beta(betas):
        raise Rejected(f"thinking.{type}.block_binding: Extra inputs are not permitted")
    behaviour = dig(thinking, "block_binding", "prefix_mismatch_behavior") or "error"
    if behaviour not in ("error", DROPS):
        raise Rejected(f"thinking.{type}.block_binding.prefix_mismatch_behavior: Input should be 'error' or '{DROPS}'")
    return behaviour


def _has_beta(betas: str) -> bool:
    return BINDING_BETA in [one.strip() for one in betas.split(",")]


def report_dropped(one: Dropped) -> Raw:
    return {"type": "thinking_dropped", "path": one.path, "reason": f"{one.reason}_binding_mismatch"}


def _as_blocks(content: Raw) -> list[Raw]:
    return [{"type": "text", "text": content}] if isinstance(content, str) else list(rows(content))


# docs.anthropic.com/en/api/errors
ERROR_TYPES = {
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    413: "request_too_large",
    429: "rate_limit_error",
    500: "api_error",
    504: "timeout_error",
    529: "overloaded_error",
}


def error_object(rejected: Rejected) -> Raw:
    type = rejected.type or ERROR_TYPES.get(rejected.status, "invalid_request_error")
    return {"type": "error", "error": {"type": type, "message": rejected.message}, "request_id": "req_lab"}


# Of window and output limit as in public issues: continuedev/continue 6080 and 11371, evalstate/fast-agent 621,
# BerriAI/litellm 15715.
JUDGE = FamilyJudge(
    name="anthropic_messages",
    check=check,
    models=MODELS,
    check_model=check_model,
    thinking=ThinkingJudge(
        judge=judge_thinking, report=report_dropped, told_in=b'"message":{', told_with=(b'"message_start"',)
    ),
    error_object=error_object,
    no_json=RefusalForm("The request body is not valid JSON: {error}"),
    wrong_key=RefusalForm("invalid x-api-key", status=401),
    unknown_model=RefusalForm("model: {model}", status=404),
    window=RefusalForm("prompt is too long: {prompt} tokens > {window} maximum"),
    with_output=RefusalForm(
        "input length and `max_tokens` exceed context limit: {prompt} + {asked} > {window}, decrease input length or "
        "`max_tokens` and try again"
    ),
    output=RefusalForm(
        "max_tokens: {asked} > {limit}, which is the maximum allowed number of output tokens for {model}"
    ),
    outputs=(("max_tokens",),),
    budgets=(("thinking", "budget_tokens"),),
    efforts=(("output_config", "effort"),),
    unthinking=("thinking", "type"),
)
