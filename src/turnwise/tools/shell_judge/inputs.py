"""Whether a command of a script has an input: text of the script, a file or a pipe, which the command's words do not show."""

import re
from typing import TYPE_CHECKING

from turnwise.tools.shell_judge.redirects import INPUT

if TYPE_CHECKING:
    from tree_sitter import Node

_REDIRECTS = frozenset({"heredoc_redirect", "herestring_redirect", "file_redirect"})


def is_fed(node: "Node") -> bool:
    """Whether the command, or anything around it, gets another standard input. Says so rather once too often."""
    if any(_reads(child) for child in node.children):
        return True
    while node.parent is not None:
        inner, node = node, node.parent
        if node.type == "pipeline" and node.children[0].id != inner.id:
            return True
        if node.type == "heredoc_redirect":  # `cat <<E | python3`
            return True
        if node.type == "redirected_statement" and any(_reads(child) for child in node.children):
            return True
    return False


def lasts(text: str) -> bool:
    """Whether the input may be that of all further commands: `exec <x`."""
    return re.search(r"exec", re.sub(r"['\"\\]", "", text)) is not None


def _reads(redirect: "Node") -> bool:
    if redirect.type not in _REDIRECTS:
        return False
    return any(child.type in INPUT or child.text == b"0" for child in redirect.children)
