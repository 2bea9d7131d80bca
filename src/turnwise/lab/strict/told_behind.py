"""What api.anthropic.com checks of a message of role `system` among the messages: instructions, and tools that come or go.

Source: Claude docs, "Mid-conversation system messages and tool changes" (a copy of 2026-09-26; the list of models with Sonnet 5.5
and Haiku 5.5 is from a later one). The sentences about its place are as public code quotes them from answers of the API in
October 2026; the others are ours, in the API's manner.
"""

import re
from collections.abc import Iterator

from turnwise.lab.raw import Raw, rows, table, text
from turnwise.lab.strict.verdicts import Rejected

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
