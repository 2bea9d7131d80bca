"""Prompts of MCP servers as commands of a session: `/server:prompt name=value`."""

import re
import shlex
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from turnwise.agent.mcp_servers import ServerToolset
from turnwise.coding_agent.text import shortened
from turnwise.errors import CallerError

if TYPE_CHECKING:
    from turnwise.tools.mcp.offered_tools import OfferedPrompt

SUMMARY = 80
_COMMAND = re.compile(r"/(?P<server>[A-Za-z][A-Za-z0-9_-]*):(?P<prompt>\S+)\s*(?P<rest>.*)", re.DOTALL)


def prompt_lines(servers: Sequence[ServerToolset]) -> Iterator[str]:
    """One for each prompt: how it is typed, and what it is for."""
    for server in servers:
        listing = server.listing
        for one in () if listing is None else listing.prompts:
            arguments = "".join([f" {name}=..." for name in one.arguments])
            yield f"  /{server.name}:{one.own_name}{arguments}  {shortened(one.description, limit=SUMMARY)}"


def prompt_names(servers: Sequence[ServerToolset]) -> dict[str, str]:
    """The commands with what each is for, as far as the servers have said them."""
    named: dict[str, str] = {}
    for server in servers:
        for one in () if server.listing is None else server.listing.prompts:
            named[f"/{server.name}:{one.own_name}"] = shortened(one.description, limit=SUMMARY)
    return named


def is_prompt(line: str, *, servers: Sequence[ServerToolset]) -> bool:
    """Whether the line names a prompt of one of the servers, rightly or not."""
    found = _COMMAND.fullmatch(line.strip())
    return found is not None and any(one.name == found["server"] for one in servers)


async def filled_prompt(line: str, *, servers: Sequence[ServerToolset]) -> str | None:
    """The text of the prompt that the line names; None where it names none. Raises CallerError for a prompt that there is not, or
    that lacks an argument, and ToolFault where the server fails."""
    found = _COMMAND.fullmatch(line.strip())
    server = None if found is None else next((one for one in servers if one.name == found["server"]), None)
    if found is None or server is None:
        return None
    listing = server.listing
    prompts = {one.own_name: one for one in (() if listing is None else listing.prompts)}
    prompt = prompts.get(found["prompt"])
    if prompt is None:
        there = ", ".join([f"`/{server.name}:{name}`" for name in prompts]) or "none"
        raise CallerError(f"`{server.name}` has no prompt `{found['prompt']}`; there are {there}")
    return await server.prompt(prompt.own_name, _arguments(found["rest"], prompt=prompt))


def _arguments(text: str, *, prompt: "OfferedPrompt") -> dict[str, str]:
    """`branch=main depth="two words"`; of a prompt with one argument all that follows."""
    try:
        words = shlex.split(text)
    except ValueError:
        words = text.split()
    if len(prompt.arguments) == 1 and words and not words[0].startswith(f"{prompt.arguments[0]}="):
        return {prompt.arguments[0]: text}
    pairs = [word.partition("=") for word in words if "=" in word]
    given = {name: value for name, _, value in pairs}
    strange = [name for name in given if name not in prompt.arguments] or [word for word in words if "=" not in word]
    missing = [name for name in prompt.required if name not in given]
    if strange or missing:
        why = f"`{strange[0]}` is none of its arguments" if strange else f"`{missing[0]}` is missing"
        wanted = " ".join([f"{name}=..." for name in prompt.arguments]) or "nothing more"
        raise CallerError(f"`{prompt.own_name}`: {why}; type {wanted}")
    return given
