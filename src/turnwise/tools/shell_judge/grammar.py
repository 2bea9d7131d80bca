"""Parsing with tree-sitter's bash grammar, and not trusting it where it and bash may differ.

A permission rests on seeing every command. So whatever the tree does not account for (bytes between its leaves that bash
would not skip, comments where bash has none, here-documents whose end is in doubt) makes the script unparsed.
"""

import re
import time
from functools import cache
from typing import TYPE_CHECKING

from turnwise.rules.shell_words import DECLARING, RESERVED
from turnwise.tools.shell_judge.node_kinds import misfit

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tree_sitter import Language, Node

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
    MAX_PARSE_S."""
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
    """In the order of the text; iterative, as a hostile script nests deep."""
    cursor = root.walk()
    while True:
        if cursor.goto_first_child():
            continue
        if cursor.node is not None:
            yield cursor.node
        while not cursor.goto_next_sibling():
            if not cursor.goto_parent():
                return
