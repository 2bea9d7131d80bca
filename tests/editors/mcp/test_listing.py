"""What is taken of a server's lists: each bound at its edge."""

import msgspec
import pytest
from mcp_types import Prompt, PromptArgument, Tool, ToolAnnotations

from turnwise.settings.mcp_files import ServerEntry, ServerObject
from turnwise.tools.mcp.offered_tools import read_prompts, read_tools
from turnwise.tools.mcp.server_bounds import MAX_ARGUMENTS, MAX_DESCRIPTION, MAX_LISTING, MAX_TOOL_NAME, MAX_TOOLS

ENTRY = ServerEntry(name="s", reached=ServerObject(server=None))


def tool(name: str, *, description: str = "") -> Tool:
    return Tool(name=name, description=description, input_schema={"type": "object"})


def prompt(name: str, *arguments: str) -> Prompt:
    return Prompt(name=name, arguments=[PromptArgument(name=one) for one in arguments])


@pytest.mark.promise("safe:bounded")
def test_a_server_has_so_many_tools_and_the_others_are_told() -> None:
    """The first ones; a name that is there already takes no place."""
    offered, left_out = read_tools([tool("t0"), *[tool(f"t{nth}") for nth in range(MAX_TOOLS + 1)]], entry=ENTRY)
    assert [one.own_name for one in offered] == [f"t{nth}" for nth in range(MAX_TOOLS)]
    assert left_out == ("`t0`: it is there twice", f"`t{MAX_TOOLS}`: a server may have {MAX_TOOLS} tools")


@pytest.mark.promise("safe:bounded")
def test_a_tool_has_a_name_of_some_length() -> None:
    """The longest one is offered, one letter more is not."""
    offered, left_out = read_tools([tool("x" * MAX_TOOL_NAME), tool("x" * (MAX_TOOL_NAME + 1))], entry=ENTRY)
    assert ([len(one.own_name) for one in offered], len(left_out)) == ([MAX_TOOL_NAME], 1)


@pytest.mark.promise("safe:bounded")
def test_all_tools_of_a_server_have_a_size() -> None:
    """Each request carries them."""
    tools = [tool(f"t{nth}", description="x" * MAX_DESCRIPTION) for nth in range(MAX_LISTING // MAX_DESCRIPTION + 1)]
    offered, left_out = read_tools(tools, entry=ENTRY)
    assert sum(len(one.offer.spec.description) for one in offered) <= MAX_LISTING
    assert len(offered) + len(left_out) == len(tools)
    assert left_out[-1].endswith(f"the tools of a server may have {MAX_LISTING:,} characters in all")


@pytest.mark.promise("safe:bounded")
def test_only_prompts_that_a_person_can_type_are_offered() -> None:
    """By name, by the names of their arguments and by how many there are; at most as many as tools."""
    many = [f"a{nth}" for nth in range(MAX_ARGUMENTS + 1)]
    usable = [prompt("x" * MAX_TOOL_NAME), prompt("review", *many[1:])]
    others = [prompt(name) for name in ("", "two words", "a\nb", "\x1b[2J", "x" * (MAX_TOOL_NAME + 1))]
    others += [prompt("p", "two words"), prompt("p", *many)]
    assert [one.own_name for one in read_prompts([*others, *usable])] == [one.name for one in usable]
    assert len(read_prompts([prompt(f"p{nth}") for nth in range(MAX_TOOLS + 1)])) == MAX_TOOLS


@pytest.mark.promise("safe:named")
def test_what_a_server_says_of_its_tools_is_believed_only_where_the_user_does() -> None:
    """A read-only hint makes a tool run unasked. Without `trusts_hints` it says nothing, and the user's own word counts more."""
    hinted = Tool(name="wipe", input_schema={}, annotations=ToolAnnotations(read_only_hint=True))
    effects = [
        read_tools([hinted], entry=msgspec.structs.replace(ENTRY, **more))[0][0].offer.effect
        for more in ({}, {"trusts_hints": True}, {"trusts_hints": True, "effects": {"w*": "write"}})
    ]
    assert effects == ["execute", "read", "write"]
