"""Which tool choices OpenAI's two APIs take: a word, a tool that is on offer, or a set of such tools.

Chat Completions names a tool inside of an object of its type (`{"type": "function", "function": {"name": ...}}`), Responses
beside it. Shapes: `ChatCompletionToolChoiceOptionParam` and `ToolChoice...Param` of the SDK; words for a missing `function`
and for an unknown type as those of the tools themselves.
"""

from collections.abc import Collection
from typing import Literal

from turnwise.lab.raw import Raw, kind, rows, table, text
from turnwise.lab.strict.verdicts import Rejected

Api = Literal["chat", "responses"]
NAMED = ("function", "custom")
MODES = ("auto", "required")


def check_choice(choice: Raw, *, tools: Raw, api: Api, words: Collection[str]) -> None:
    """Raises Rejected for a choice that no response could obey; `words` are those that stand for themselves."""
    if isinstance(choice, str):
        if choice not in words:
            raise Rejected(
                f"Invalid value: '{choice}'. Supported values are: 'none', 'auto', and 'required'.",
                param="tool_choice",
                code="invalid_value",
            )
        return
    if not isinstance(choice, dict):
        raise Rejected(
            f"Invalid type for 'tool_choice': expected one of a string or object, but got {_article(choice)} instead.",
            param="tool_choice",
            code="invalid_type",
        )
    if choice.get("type") == "allowed_tools":
        _check_allowed(choice, tools=tools, api=api)
    else:
        _check_tool(choice, tools=tools, api=api, where="tool_choice")


def _check_allowed(choice: dict[str, Raw], *, tools: Raw, api: Api) -> None:
    where = "tool_choice.allowed_tools" if api == "chat" else "tool_choice"
    allowed = table(choice.get("allowed_tools")) if api == "chat" else choice
    mode = allowed.get("mode")
    if mode not in MODES:
        raise Rejected(
            f"Invalid value: '{text(mode)}'. Supported values are: 'auto' and 'required'.",
            param=f"{where}.mode",
            code="invalid_value",
        )
    named = rows(allowed.get("tools"))
    if not named:
        raise _missing(f"{where}.tools")
    for position, one in enumerate(named):
        _check_tool(table(one), tools=tools, api=api, where=f"{where}.tools[{position}]")


def _check_tool(choice: dict[str, Raw], *, tools: Raw, api: Api, where: str) -> None:
    type = text(choice.get("type"))
    if not type:
        raise _missing(f"{where}.type")
    offered = [table(tool) for tool in rows(tools)]
    if type not in NAMED:
        _check_type(type, offered=offered, api=api, where=where)
        return
    if api == "chat":
        if not isinstance(choice.get(type), dict):
            raise _missing(f"{where}.{type}")
        offered = [table(tool.get(type)) for tool in offered if tool.get("type") == type]
        name = text(table(choice[type]).get("name"))
    else:
        offered = [tool for tool in offered if tool.get("type") == type]
        name = text(choice.get("name"))
    if name not in [tool.get("name") for tool in offered]:
        raise Rejected(f"Tool choice '{name}' not found in 'tools' parameter.", param="tool_choice")


def _check_type(type: str, *, offered: list[dict[str, Raw]], api: Api, where: str) -> None:
    """A tool of the provider, by its type alone. Chat Completions has none."""
    if api == "chat":
        raise Rejected(
            f"Invalid value: '{type}'. Supported values are: 'function', 'allowed_tools', and 'custom'.",
            param=f"{where}.type",
            code="invalid_value",
        )
    if type not in [tool.get("type") for tool in offered]:
        raise Rejected(f"Tool choice '{type}' not found in 'tools' parameter.", param="tool_choice")


def _missing(where: str) -> Rejected:
    return Rejected(f"Missing required parameter: '{where}'.", param=where, code="missing_required_parameter")


def _article(value: Raw) -> str:
    return f"{'an' if kind(value)[0] in 'aio' else 'a'} {kind(value)}"
