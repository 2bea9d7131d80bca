"""Whether a rule is about any tool that there is: a misspelt name, or a pattern that its tool cannot match, protects nothing."""

import difflib
from collections.abc import Iterable, Mapping

import msgspec

from turnwise.errors import CallerError
from turnwise.rules.mcp_names import MCP_WORD, server_of
from turnwise.rules.permission_facts import Access
from turnwise.rules.permissions import PermissionRule, names_match

Accesses = tuple[Access, ...]

_ACCESSES: dict[str, Accesses] = {"none": (), "read": ("read",), "write": ("write",), "execute": ("read", "write")}
# A prohibition of these holds for what a command reads and writes, too.
_OF_COMMANDS: dict[str, Accesses] = {"read": ("read",), "write": ("write",), "edit": ("write",)}


class KnownTool(msgspec.Struct, frozen=True, kw_only=True):
    """What rules may say of a tool follows from its effect (`none, read, write, execute`) and from whether its paths and commands
    are looked at. `unjudged` says why no rule holds for its calls at all."""

    effect: str
    inspected: bool = True
    unjudged: str = ""


def check_rules(rules: Iterable[PermissionRule], *, tools: Mapping[str, KnownTool]) -> None:
    """Raise CallerError, with the rule's place, for one that is about none of these tools. What a session remembers was about a
    call that there was."""
    for number, rule in enumerate(rules):
        if rule.source == "session":
            continue
        where = rule.where or f"`policy.rules[{number}]`"
        named = {name: tool for name, tool in tools.items() if names_match(rule.tool, name=name)}
        if not named and server_of(rule.tool):
            continue  # the tools of an MCP server are known while it runs
        if not named:
            raise CallerError(f"{where}: there is no tool `{rule.tool}`; {_near(rule.tool, known=tools)}")
        if rule.tool in named and not any(
            _fits(rule, name=name, tool=tool, tools=tools) for name, tool in named.items()
        ):
            raise CallerError(f"{where}: {_why(rule, tool=named[rule.tool])}")


def _fits(rule: PermissionRule, *, name: str, tool: KnownTool, tools: Mapping[str, KnownTool]) -> bool:
    """Whether some call of the tool could match; for a prohibition, also what a command does as the tool would."""
    if tool.unjudged:
        return False
    if rule.command is not None:
        return tool.effect == "execute" and tool.inspected and rule.effect in (None, "execute")
    accesses = _ACCESSES.get(tool.effect, ()) if tool.inspected else ()
    if rule.effect in (None, tool.effect, *accesses) and (rule.path is None or accesses):
        return True
    runs_commands = any(one.effect == "execute" and one.inspected for one in tools.values())
    also = _OF_COMMANDS.get(name, ()) if rule.verdict != "allow" and rule.path is not None and runs_commands else ()
    return bool(also) and rule.effect in ("execute", *also)


def _why(rule: PermissionRule, *, tool: KnownTool) -> str:
    name = f"`{rule.tool}`"
    if tool.unjudged:
        return f"no rule holds for {name}, as {tool.unjudged}: take the rule out"
    if rule.command is not None and tool.effect != "execute":
        return f"{name} runs no commands, so the rule could never match: leave `command` out, or name the tool that runs them"
    if (rule.command is not None or rule.path is not None) and not tool.inspected:
        key = "command" if rule.command is not None else "path"
        return f"the paths and commands of {name} are not looked at, so the rule could never match: leave `{key}` out"
    if rule.path is not None and tool.effect == "none":
        return f"{name} touches no paths, so the rule could never match: leave `path` out"
    return f"{name} has the effect `{tool.effect}` and never `{rule.effect}`, so the rule could never match: leave `effect` out"


def _near(name: str, *, known: Iterable[str]) -> str:
    names = list(known)
    word = name.partition("(")[0].casefold()  # a word for MCP servers with a slip was not read as one
    near = difflib.get_close_matches(word, [*[one.casefold() for one in names], MCP_WORD], n=1, cutoff=0.5)
    if near == [MCP_WORD]:
        return f"did you mean `{MCP_WORD}(server.tool)`?"
    if near:
        return f"did you mean `{next(one for one in names if one.casefold() == near[0])}`?"
    return f"there are {', '.join([f'`{one}`' for one in names])}"
