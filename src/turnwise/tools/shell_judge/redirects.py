"""One redirection of a script: what it opens, which descriptor it sets, and the arguments of the command that stand behind it."""

import re
from itertools import pairwise
from typing import TYPE_CHECKING

import msgspec

from turnwise.rules.permission_facts import PathFact

if TYPE_CHECKING:
    from tree_sitter import Node

# Whether a command of a script has an input: text of the script, a file or a pipe, which the command's words do not show.
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


_OPENING = frozenset({"<", ">", ">>", "&>", "&>>", "<&", ">&", ">|"})
_CLOSING = frozenset({"<&-", ">&-"})
INPUT = frozenset({"<", "<&", "<&-", "<<", "<<-", "<<<", "<>"})
# `{name}>file` sets a variable; `"a"2>file` is the word `a2`, not a descriptor. The grammar takes `{name}`, and a number behind
# `<<<x`, for words.
_NAMED_DESCRIPTOR = re.compile(r"(?:\{[A-Za-z_]\w*(?:\[[^]]*\])?\}|(?<![^ \t\n])\d+)\Z")
_BEFORE_DESCRIPTOR = " \t\n;|&()<>"


class RedirectionFacts(msgspec.Struct, kw_only=True):
    """What redirections come to: files, the literal text of standard input, further arguments, what runs after the command."""

    paths: list[PathFact] = []
    stdin: str | None = None
    words: "list[Node]" = []
    later: "list[Node]" = []


class Redirect(msgspec.Struct, frozen=True, kw_only=True):
    """`target` is what the redirection opens, None where it opens nothing or holds its text itself. In the grammar all words
    behind the operator are its own (`cat <a b`); for bash those after the first (`words`) are arguments of the command."""

    operator: str
    sets_input: bool
    target: "Node | None" = None
    words: "tuple[Node, ...]" = ()


def read_redirect(node: "Node") -> Redirect | None:
    """None where it is not understood."""
    operator = next((child.type for child in node.children if not child.is_named), "")
    descriptor = _text(node.child_by_field_name("descriptor"))
    sets_input = descriptor == "0" or (not descriptor and operator in INPUT)
    if not _stands_alone(node, descriptor=descriptor):
        return None
    if node.type != "file_redirect":
        return Redirect(operator=operator, sets_input=sets_input)
    words = node.children_by_field_name("destination")
    if any(one.end_byte >= after.start_byte for one, after in pairwise(words)):
        return None  # `>a<(b)` is one word for bash
    if operator in _OPENING and words:
        return Redirect(operator=operator, sets_input=sets_input, target=words[0], words=tuple(words[1:]))
    if operator in _CLOSING and not any(one.start_byte == node.start_byte + len(descriptor) + 3 for one in words):
        return Redirect(operator=operator, sets_input=sets_input, words=tuple(words))
    return None


def _stands_alone(node: "Node", *, descriptor: str) -> bool:
    """Whether bash begins a redirection at the same place: the text before it belongs to no descriptor."""
    before = _before(node)
    if descriptor and before and before[-1] not in _BEFORE_DESCRIPTOR:
        return False
    return _NAMED_DESCRIPTOR.search(before) is None


def _before(node: "Node") -> str:
    """The text of the line before the node, as far as its neighbours hold it."""
    previous = node.prev_sibling or (node.parent.prev_sibling if node.parent is not None else None)
    if previous is None or previous.end_byte != node.start_byte:
        return ""
    return _text(previous)


def _text(node: "Node | None") -> str:
    return (node.text or b"").decode("utf-8", "replace") if node is not None else ""
