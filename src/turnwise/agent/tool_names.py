"""What a tool may be called: every provider takes such a name."""

import re

from turnwise.errors import BadTool

NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_-]{0,63}")


def check_tool_name(name: str) -> None:
    """Raise BadTool for a name that a provider would refuse."""
    if not NAME.fullmatch(name):
        raise BadTool(
            f"`{name}` is no name for a tool: letters, digits, `_` and `-`, at most 64, no digit first; "
            "give one with @tool(name=...)"
        )
