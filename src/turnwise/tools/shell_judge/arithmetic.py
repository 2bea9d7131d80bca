"""Where bash evaluates arithmetic: a variable in it that holds `a[$(rm x)]` runs `rm` (bash manual, Shell Arithmetic)."""

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tree_sitter import Node

_PLAIN_EXPANSION = re.compile(
    r"\$\{#?(?:\w+|[@*#?$!-])(?:(?::?[-+?=]|##?|%%?|//?|\^\^?|,,?).*|\[[@*0-9]+\])?\}", re.DOTALL
)
_COMPARING = frozenset("= == != =~ -a -o".split())
_KINDS = frozenset({"arithmetic_expansion", "c_style_for_statement", "subscript"})


def is_arithmetic(node: "Node") -> bool:
    return node.type in _KINDS or bool(node.children and node.children[0].type == "((")


def calculates(node: "Node") -> bool:
    """Whether the grammar sees an operator of arithmetic in a test. In single brackets that is part of a word (`/{a?}`)."""
    operators = (
        [child.type for child in node.children if not child.is_named] if node.type == "binary_expression" else []
    )
    return not {*operators} <= _COMPARING or any(calculates(child) for child in node.children if child.is_named)


def names_variables(node: "Node") -> bool:
    """Whether arithmetic reads a variable: anything but numbers and operators."""
    text = (node.text or b"").decode("utf-8", "replace")
    return re.search(r"[A-Za-z_$`]", re.sub(r"0[xX][0-9a-fA-F]+", "", text)) is not None


def expands_plainly(text: str) -> bool:
    """Whether `${...}` evaluates nothing: no subscript but a number, no offset."""
    return _PLAIN_EXPANSION.fullmatch(text) is not None


def tests_arithmetic(text: str) -> bool:
    """Whether a test has an operator whose sides are evaluated, or that reads a subscript."""
    return re.search(r"-(?:eq|ne|lt|le|gt|ge|v|R)\b", re.sub(r"['\"\\]", "", text)) is not None
