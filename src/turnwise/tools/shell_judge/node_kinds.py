"""Every kind of node and every field of the grammar that the judge understands. Anything else cannot be known.

The reading of a script (`shell.py`) goes by this table: a node with a child that is not listed here, or with one more of a field
than the table allows, makes the script unparsed. So does an update of the grammar that brings kinds or fields of its own.
Source: tree-sitter-bash 0.25, `grammar.js`.
"""

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

import msgspec

if TYPE_CHECKING:
    from tree_sitter import Node


class NodeField(msgspec.Struct, frozen=True):
    """The kinds that may stand in a field; not `many`: one node at most."""

    kinds: frozenset[str]
    many: bool


def _one(*kinds: str) -> NodeField:
    return NodeField(frozenset(" ".join(kinds).split()), many=False)


def _many(*kinds: str) -> NodeField:
    return NodeField(frozenset(" ".join(kinds).split()), many=True)


NO_FIELD = ""
_WORDS = """word string raw_string translated_string ansi_c_string number expansion simple_expansion command_substitution
    process_substitution arithmetic_expansion brace_expression concatenation"""
_STATEMENTS = """redirected_statement variable_assignment variable_assignments command declaration_command unset_command
    test_command negated_command for_statement c_style_for_statement while_statement if_statement case_statement pipeline list
    compound_statement function_definition subshell"""
_EXPRESSIONS = f"""{_WORDS} unary_expression ternary_expression binary_expression postfix_expression
    parenthesized_expression subscript variable_name"""
_SIGNS = """= == =~ != + - += -= * / *= /= % %= ** **= < > <= >= || && << >> <<= >>= & | ^ &= |= ^= ++ -- ! ~ -a -o
    test_operator"""
_COUNTED = _many(_EXPRESSIONS, "variable_assignment ,")
_BODY = {NO_FIELD: _many(_STATEMENTS)}
PARTS: dict[str, dict[str, NodeField]] = {
    "program": _BODY,
    "redirected_statement": {
        "body": _one(_STATEMENTS),
        "redirect": _many("file_redirect heredoc_redirect herestring_redirect"),
    },
    "for_statement": {"variable": _one("variable_name"), "value": _many(_WORDS), "body": _one("do_group")},
    "c_style_for_statement": {
        "initializer": _COUNTED,
        "condition": _COUNTED,
        "update": _COUNTED,
        "body": _one("do_group compound_statement"),
    },
    "while_statement": {"condition": _many(_STATEMENTS, "; &"), "body": _one("do_group")},
    "do_group": _BODY,
    "if_statement": {"condition": _many(_STATEMENTS, "; &"), NO_FIELD: _many(_STATEMENTS, "elif_clause else_clause")},
    "elif_clause": _BODY,
    "else_clause": _BODY,
    "case_statement": {"value": _one(_WORDS), NO_FIELD: _many("case_item")},
    "case_item": {
        "value": _many(_WORDS, "extglob_pattern"),
        "termination": _one(";;"),
        "fallthrough": _one(";& ;;&"),
        NO_FIELD: _many(_STATEMENTS),
    },
    "function_definition": {
        "name": _one("word"),
        "body": _one("compound_statement subshell test_command"),
        "redirect": _one("file_redirect"),
    },
    "compound_statement": {NO_FIELD: _many(_STATEMENTS, _EXPRESSIONS)},
    "subshell": _BODY,
    "pipeline": _BODY,
    "list": _BODY,
    "negated_command": {NO_FIELD: _one("command variable_assignment test_command subshell")},
    "test_command": {NO_FIELD: _many(_EXPRESSIONS)},
    "declaration_command": {NO_FIELD: _many(_WORDS, "variable_name variable_assignment")},
    "unset_command": {NO_FIELD: _many(_WORDS, "variable_name")},
    "command": {
        NO_FIELD: _many("variable_assignment"),
        "redirect": _many("file_redirect herestring_redirect"),
        "name": _one("command_name"),
        "argument": _many(_WORDS, "regex $ =~ =="),
    },
    "command_name": {NO_FIELD: _one(_WORDS)},
    "variable_assignment": {"name": _one("variable_name subscript"), "value": _one(_EXPRESSIONS, "array")},
    "variable_assignments": {NO_FIELD: _many("variable_assignment")},
    "subscript": {"name": _one("variable_name"), "index": _one(_EXPRESSIONS)},
    "file_redirect": {"descriptor": _one("file_descriptor"), "destination": _many(_WORDS)},
    "heredoc_redirect": {
        "descriptor": _one("file_descriptor"),
        "argument": _many(_WORDS),
        "redirect": _many("file_redirect"),
        "operator": _one("&& ||"),
        "right": _one(_STATEMENTS),
        NO_FIELD: _many("heredoc_start heredoc_body heredoc_end pipeline"),
    },
    "heredoc_body": {NO_FIELD: _many("heredoc_content expansion simple_expansion command_substitution")},
    "herestring_redirect": {"descriptor": _one("file_descriptor"), NO_FIELD: _one(_WORDS)},
    "binary_expression": {
        "left": _one(_EXPRESSIONS),
        "operator": _one(_SIGNS),
        "right": _many(_EXPRESSIONS, "regex extglob_pattern"),
        NO_FIELD: _many(_EXPRESSIONS),
    },
    "ternary_expression": {
        "condition": _one(_EXPRESSIONS),
        "consequence": _one(_EXPRESSIONS),
        "alternative": _one(_EXPRESSIONS),
    },
    "unary_expression": {"operator": _one(_SIGNS), NO_FIELD: _one(_EXPRESSIONS)},
    "postfix_expression": {"operator": _one(_SIGNS), NO_FIELD: _one(_EXPRESSIONS)},
    "parenthesized_expression": {NO_FIELD: _many(_EXPRESSIONS, "variable_assignment")},
    "arithmetic_expansion": {NO_FIELD: _many(_EXPRESSIONS)},
    "brace_expression": {NO_FIELD: _many("number")},
    "concatenation": {NO_FIELD: _many(_WORDS)},
    "string": {NO_FIELD: _many("string_content expansion simple_expansion command_substitution arithmetic_expansion")},
    "translated_string": {NO_FIELD: _one("string")},
    "array": {NO_FIELD: _many(_WORDS)},
    "expansion": {
        "operator": _many("! # ## % %% * + , ,, - / /# /% // : :+ :- := :? = ? @ A E K L P Q U ^ ^^ a k u"),
        NO_FIELD: _many(_EXPRESSIONS, "array regex special_variable_name"),
    },
    "simple_expansion": {NO_FIELD: _one("variable_name special_variable_name")},
    "command_substitution": {"redirect": _one("file_redirect"), NO_FIELD: _many(_STATEMENTS)},
    "process_substitution": _BODY,
}
# They have no parts. A `number` can (`16#$x`), which is not understood.
LEAVES = frozenset(
    """word number raw_string ansi_c_string string_content comment variable_name special_variable_name heredoc_start
    heredoc_content heredoc_end file_descriptor test_operator regex extglob_pattern""".split()
)
# They run nothing themselves: their parts are judged each by itself.
TRANSPARENT = frozenset(
    """program list do_group if_statement elif_clause else_clause case_statement case_item while_statement negated_command
    variable_assignments array concatenation string heredoc_body parenthesized_expression binary_expression unary_expression
    ternary_expression postfix_expression translated_string brace_expression number command_name""".split()
)
# Marks between the parts. What they say follows from the kind of the node, or is read where it is judged.
TOKENS = frozenset(
    r"""for select in (( )) ; , = ++ -- += -= *= /= %= **= <<= >>= &= ^= |= || -o && -a | ^ & == != < > <= >= << >> + - * / % **
    ( ) while until do done if then fi elif else case esac ;; ;& ;;& function { } |& ! [ ] [[ ]] declare typeset export readonly
    local unset =~ &> &>> <& >& >| <&- >&- <<- <<< ? : ~ $(( $[ .. `` $ " # ${ @ := :- :+ :? %% // /# /% ,, ^^ U u L Q E P A K a k
    $( ` <( >( ##""".split()
)
# Where words stand side by side. Two that touch (`a<(b)`) are one word for bash.
_SPACED = frozenset(
    "command for_statement case_item declaration_command unset_command file_redirect heredoc_redirect array".split()
)
_WORD_KINDS = frozenset({*_WORDS.split(), "command_name", "variable_assignment", "variable_name"})


def misfit(root: "Node", *, table: Mapping[str, Mapping[str, NodeField]] = PARTS) -> str:
    """The first thing in the tree that is not in the table; empty where all of it is."""
    return next((found for node in _nodes(root) if (found := _misfit(node, table=table))), "")


def _misfit(node: "Node", *, table: Mapping[str, Mapping[str, NodeField]]) -> str:
    if not node.is_named:
        return "" if node.type in TOKENS else node.type
    if node.type in LEAVES and not node.named_child_count:
        return ""
    parts = table.get(node.type)
    if parts is None:
        return node.type
    seen: set[str] = set()
    end_of_word = -1
    for at, child in enumerate(node.children):
        if child.type in _WORD_KINDS and node.type in _SPACED:
            if child.start_byte == end_of_word:
                return f"{child.type} beside another word"
            end_of_word = child.end_byte
        field = node.field_name_for_child(at) or NO_FIELD
        if child.type == "comment" or (field == NO_FIELD and not child.is_named):
            continue
        part = parts.get(field)
        if part is None or child.type not in part.kinds or (field in seen and not part.many):
            return f"{field or child.type} in {node.type}"
        seen.add(field)
    return ""


def _nodes(root: "Node") -> Iterator["Node"]:
    """In the order of the text; iterative, as a hostile script nests deep."""
    cursor = root.walk()
    while True:
        if cursor.node is not None:
            yield cursor.node
        if cursor.goto_first_child():
            continue
        while not cursor.goto_next_sibling():
            if not cursor.goto_parent():
                return
