"""Parsing with tree-sitter's bash grammar, and not trusting it where it and bash may differ.

A permission rests on seeing every command. So whatever the tree does not account for (bytes between its leaves that bash
would not skip, comments where bash has none, here-documents whose end is in doubt) makes the script unparsed.
"""

import re
import time
from collections.abc import Iterator, Mapping
from functools import cache
from typing import TYPE_CHECKING

import msgspec

from turnwise.rules.permission_facts import DECLARING, RESERVED

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tree_sitter import Language, Node

# Every kind of node and every field of the grammar that the judge understands. Anything else cannot be known.
#
# The reading of a script (`shell.py`) goes by this table: a node with a child that is not listed here, or with one more of a
# field than the table allows, makes the script unparsed. So does an update of the grammar that brings kinds or fields of its own.
# Source: tree-sitter-bash 0.25, `grammar.js`.


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


# Text that is no script may cost time and memory that grow with its square: 94 s for 64 KiB of one, gigabytes for another.
MAX_PARSE_S = 0.5  # of this thread's CPU; a script of 64 KiB takes some 10 ms
MAX_BACKTICKS = 400
MAX_PIPES = (
    2000  # where a pipe leads nowhere, the parser does not ask whether it is late: 83 s and 9 GB for 64 KiB of `+|`
)
_READ_BYTES = 4096  # the parser copies what it is given each time that it looks back
_LOST_DASH = re.compile(rb"[ \t]+-[ \t]*")
_SKIPPED = re.compile(rb"(?:[ \t\n]|\\\n)*")
_JOINED = re.compile(rb"(?:\\\n)+")  # alone between two leaves, it makes one word of them (`.en\<newline>v`)
_QUOTED_LEAVES = frozenset({"raw_string", "ansi_c_string", "comment", "heredoc_body"})
_LITERAL_BODIES = frozenset({"heredoc_body", "heredoc_content", "string_content", "raw_string", "ansi_c_string"})
_DELIMITER = re.compile(r"""'([\w.-]+)'|"([\w.-]+)"|\\([\w.-]+)|([\w.-]+)""")
_AFTER_DELIMITER = tuple(bytes([code]) for code in b" \t\n;|&)<>")
# What bash takes for a reserved word only where it stands alone; by the kind of node for those that are other things, too.
_KEYWORDS = (RESERVED - frozenset("! { } (( in".split())) | DECLARING
_OPENS = {"test_command": ("[", "[["), "compound_statement": ("{",), "negated_command": ("!",)}
_CLOSES = {"test_command": ("]", "]]"), "compound_statement": ("}",)}
_BLANKS = (b" ", b"\t", b"\n")
_BEFORE_WORD = tuple(bytes([code]) for code in b" \t\n;|&()<>`")
_AFTER_WORD = (*_AFTER_DELIMITER, b"(", b"`")
_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f]")
_STARTS_SUBSTITUTION = re.compile(r"`|\$[({]|[<>]\(")


@cache
def _language() -> "Language":
    # Loaded at the first command: no other run pays for it.
    import tree_sitter_bash
    from tree_sitter import Language

    return Language(tree_sitter_bash.language())


def parse(script: str) -> "tuple[Node | None, str]":
    """The root of the tree, and why it must not be relied upon; empty where it may. No tree where building it takes longer than
    MAX_PARSE_S, or without the packages of the grammar."""
    source = script.encode("utf-8", "surrogatepass")
    if source.count(b"`") > MAX_BACKTICKS:
        return None, f"it has more than {MAX_BACKTICKS} backticks"
    if source.count(b"|") > MAX_PIPES:
        return None, f"it has more than {MAX_PIPES} pipes"
    try:
        root = _tree(source)
        if dashes := _lost_dashes(root, source=source):
            source = _quoted(source, places=dashes)
            root = _tree(source)
    except ModuleNotFoundError:
        return None, "the grammar of bash is not installed (pip install 'turnwise[workspace]')"
    except ValueError:
        return None, "it takes too long to understand"
    return root, _problem(root, script=script, source=source)


def _tree(source: bytes) -> "Node":
    """Raises ValueError when it is late. A parser of its own each time: one that was stopped would go on where it was."""
    from tree_sitter import Parser

    limit = time.thread_time() + MAX_PARSE_S

    def read(offset: int, _point: object) -> bytes:
        return source[offset : offset + _READ_BYTES]

    def is_late(_offset: int, _has_error: bool) -> bool:
        return time.thread_time() > limit

    return Parser(_language()).parse(read, progress_callback=is_late).root_node


def _lost_dashes(root: "Node", *, source: bytes) -> list[int]:
    """Where the grammar (0.25) loses a `-` that stands right before a here-document, as in `python3 - <<E`."""
    if b"- " not in source and b"-\t" not in source and b"-<<" not in source:
        return []
    found: list[int] = []
    end = 0
    for leaf in _leaves(root):
        gap = source[end : leaf.start_byte]
        if leaf.type in ("<<", "<<-") and _LOST_DASH.fullmatch(gap):
            found.append(end + gap.index(b"-"))
        end = max(end, leaf.end_byte)
    return found


def _quoted(source: bytes, *, places: list[int]) -> bytes:
    """The same script with these dashes in quotes, which the grammar does not lose."""
    parts = [
        source[start:end] for start, end in zip([0, *(place + 1 for place in places)], [*places, None], strict=True)
    ]
    return b"'-'".join(parts)


def _problem(root: "Node", *, script: str, source: bytes) -> str:
    if _CONTROL.search(script):
        return "it holds control characters or carriage returns"
    if root.has_error:
        return "it is not complete bash, or not understood"
    unlisted = misfit(root)
    if unlisted:
        return f"`{unlisted}` is not understood"
    end = 0
    for leaf in _leaves(root):
        gap = source[end : leaf.start_byte]
        skipped = _SKIPPED.fullmatch(gap) is not None or (_is_body_text(leaf) and not _substitutes(gap.decode()))
        if leaf.start_byte < end or not skipped or (end and _JOINED.fullmatch(gap) and not _is_body_text(leaf)):
            return f"`{gap[:20].decode('utf-8', 'replace')}` is not understood"
        problem = _leaf_problem(leaf, source=source)
        if problem:
            return problem
        end = max(end, leaf.end_byte)
    if _SKIPPED.fullmatch(source[end:]) is None:
        return "its end is not understood"
    return ""


def _is_body_text(leaf: "Node") -> bool:
    parent = leaf.parent
    return parent is not None and parent.type in ("string", "heredoc_body")


def _leaf_problem(leaf: "Node", *, source: bytes) -> str:
    text = (leaf.text or b"").decode("utf-8", "replace")
    if leaf.is_missing:
        return "something is missing in it"
    if leaf.type == "comment":
        before = source[max(0, leaf.start_byte - 2) : leaf.start_byte]
        if (before and (before[-1:] not in b" \t\n;&|()" or before[-2:-1] == b"\\")) or "\n" in text:
            return "a comment is not understood"
    if not leaf.is_named and not _is_word_of_its_own(leaf, source=source):
        return f"`{leaf.type}` beside another word is not understood"
    if leaf.type == "heredoc_start":
        return _heredoc_problem(leaf, source=source)
    if leaf.type == ";;" and (leaf.parent is None or leaf.parent.type != "case_item"):
        return "`;;` is not understood"
    if (
        leaf.type == "word"
        and text.startswith("#")
        and source[leaf.start_byte - 1 : leaf.start_byte] in (b" ", b"\n", b"\t")
    ):
        return "a comment is not understood"
    if leaf.is_named and (leaf.type not in _QUOTED_LEAVES or _expands(leaf)):
        if _substitutes(text):
            return f"`{text[:40]}` is not understood"
        if leaf.type not in _LITERAL_BODIES and re.search(r"[^\S \t\n]", text):
            return "it holds spaces that bash does not take for spaces"
    return ""


def _is_word_of_its_own(leaf: "Node", *, source: bytes) -> bool:
    """Whether bash takes it for a reserved word too: to it `[[\\'x` and `}x` are names of programs."""
    parent = leaf.parent.type if leaf.parent is not None else ""
    opens, closes = leaf.type in _OPENS.get(parent, ()), leaf.type in _CLOSES.get(parent, ())
    if not (opens or closes or leaf.type in _KEYWORDS):
        return True
    before, after = source[max(0, leaf.start_byte - 1) : leaf.start_byte], source[leaf.end_byte : leaf.end_byte + 1]
    return before in (b"", *_BEFORE_WORD) and after in (_BLANKS if opens else (b"", *_AFTER_WORD))


def _substitutes(text: str) -> bool:
    """Whether bash would run something of it, though the tree has no node for that."""
    return _STARTS_SUBSTITUTION.search(re.sub(r"\\.", "", text, flags=re.DOTALL)) is not None


def _expands(leaf: "Node") -> bool:
    """Whether it is the body of a here-document in which bash expands variables and substitutions."""
    if leaf.type != "heredoc_body" or leaf.parent is None:
        return False
    starts = [child for child in leaf.parent.children if child.type == "heredoc_start"]
    delimiter = heredoc_delimiter(starts[0]) if len(starts) == 1 else None
    return delimiter is None or not delimiter[1]


def _heredoc_problem(start: "Node", *, source: bytes) -> str:
    """Whether bash would end the here-document at the same line."""
    doubtful = "where a here-document ends is not certain"
    redirect = start.parent
    delimiter = heredoc_delimiter(start)
    if redirect is None or delimiter is None:
        return doubtful
    word, quoted = delimiter
    strips = any(child.type == "<<-" for child in redirect.children)
    ends = [child for child in redirect.children if child.type == "heredoc_end"]
    body = heredoc_text(redirect)
    if len(ends) != 1 or body is None or (ends[0].text or b"").decode().strip("\t\n") != word:
        return doubtful
    if source[start.end_byte : start.end_byte + 1] not in (b"", *_AFTER_DELIMITER):
        return doubtful
    if source[ends[0].end_byte : ends[0].end_byte + 1] not in (b"", b"\n") and not (ends[0].text or b"").endswith(
        b"\n"
    ):
        return doubtful
    lines = [line.lstrip("\t") if strips else line for line in body.split("\n")]
    if word in lines or (not quoted and "\\\n" in body) or (not strips and ends[0].start_point.column):
        return doubtful
    return ""


def heredoc_delimiter(start: "Node") -> tuple[str, bool] | None:
    """The word that ends the here-document, and whether it was quoted (then nothing in it is expanded)."""
    found = _DELIMITER.fullmatch((start.text or b"").decode("utf-8", "replace"))
    if found is None:
        return None
    return next(group for group in found.groups() if group is not None), found[4] is None


def heredoc_text(redirect: "Node") -> str | None:
    """The lines of a here-document; None where there is no single body."""
    bodies = [child for child in redirect.children if child.type == "heredoc_body"]
    if not bodies:
        return ""
    return (bodies[0].text or b"").decode("utf-8", "replace") if len(bodies) == 1 else None


def _leaves(root: "Node") -> "Iterator[Node]":
    """In the order of the text."""
    return (node for node in _nodes(root) if not node.child_count)


# Where bash evaluates arithmetic: a variable in it that holds `a[$(rm x)]` runs `rm` (bash manual, Shell Arithmetic).


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
