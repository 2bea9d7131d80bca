"""Words as bash reads them: quotes, escapes and `$'..'` removed; what is known only later said to be so."""

import os
import re
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import msgspec

from turnwise.tools.shell_judge.grammar import heredoc_delimiter, heredoc_text

if TYPE_CHECKING:
    from tree_sitter import Node

# Which names a glob may match, as bash reads it in any language.
#
# Whether `?` is a character or a byte depends on the locale that the command runs in (`LC_ALL=C; cat ??` finds `é`). So patterns
# are made of bytes, and match what either reading matches. Stars do not go back: time grows with the name alone.


MarkedSegment = Sequence[tuple[str, str]]
"""Characters of a word, each with its mark: `q` quoted, `u` not."""

_CHARACTER = rb"(?>[\xc2-\xdf][\x80-\xbf]|[\xe0-\xef][\x80-\xbf]{2}|[\xf0-\xf4][\x80-\xbf]{3}|.)"
_BYTE = b"."
_STAR = b"*"


class SegmentGlob(msgspec.Struct, frozen=True, kw_only=True):
    """One segment of a path with wildcards. `shows_hidden`: it spells out the dot with which hidden names begin."""

    pattern: re.Pattern[bytes]
    shows_hidden: bool

    def fits(self, name: str) -> bool:
        """Whether bash may put the name in the glob's place."""
        if name.startswith(".") and not self.shows_hidden:
            return False
        return self.pattern.fullmatch(os.fsencode(name)) is not None


def glob(segment: MarkedSegment) -> SegmentGlob:
    """A pattern for all that bash might match, and more where that depends on the language (`[a-z]`)."""
    both = b"|".join(_joined(_tokens(segment, one=one)) for one in (_CHARACTER, _BYTE))
    return SegmentGlob(pattern=re.compile(both, re.DOTALL), shows_hidden=segment[0][0] == ".")


def is_wild(segment: MarkedSegment) -> bool:
    return any(
        mark == "u" and (char in "*?" or (char == "[" and _bracket_end(segment, start=at) is not None))
        for at, (char, mark) in enumerate(segment)
    )


def _tokens(segment: MarkedSegment, *, one: bytes) -> list[bytes]:
    """What stands for each character: `_STAR`, or a pattern. `one` stands for what `?` takes."""
    found: list[bytes] = []
    at = 0
    while at < len(segment):
        char, mark = segment[at]
        end = _bracket_end(segment, start=at) if (char, mark) == ("[", "u") else None
        if end is not None:
            found.append(_bracket(segment[at + 1 : end], one=one))
            at = end
        elif mark == "u" and char == "*":
            found.append(_STAR)
        elif mark == "u" and char == "?":
            found.append(one)
        else:
            found.append(re.escape(char.encode("utf-8", "surrogatepass")))
        at += 1
    return found


def _bracket(inner: MarkedSegment, *, one: bytes) -> bytes:
    if ("[", "u") in inner:
        return _STAR
    chars = "".join(char for char, _ in inner)
    if chars[0] in "!^" or ("-", "u") in inner or not chars.isascii():
        return one
    return b"[" + re.escape(chars.encode()) + b"]"


def _joined(tokens: list[bytes]) -> bytes:
    """Each star but the last takes as little as what follows it allows, once and for all: that leaves the most to the rest."""
    parts: list[list[bytes]] = [[]]
    for token in tokens:
        if token is _STAR:
            parts.append([])
        else:
            parts[-1].append(token)
    first, *rest = [b"".join(part) for part in parts]
    if not rest:
        return first
    *middle, last = rest
    return first + b"".join(b"(?>.*?" + part + b")" for part in middle if part) + b".*" + last


def _bracket_end(segment: MarkedSegment, *, start: int) -> int | None:
    """Where the bracket closes, the latest place that may be meant; None where it stays a bracket."""
    first = start + 2 + (list(segment[start + 1 : start + 2]) in ([("!", "u")], [("^", "u")]))
    ends = [at for at in range(first, len(segment)) if segment[at] == ("]", "u")]
    if not ends:
        return None
    has_classes = any(one == ("[", "u") for one in segment[start + 1 : ends[-1]])
    return ends[-1] if has_classes else ends[0]


# The words that bash makes of one with braces (`a.{py,txt}`), where that is certain; else the word cannot be known.
#
# Characters come with marks (`Spelled.marks`): only those that are not quoted count. Source: bash manual, Brace Expansion.
MarkedWord = tuple[tuple[str, str], ...]
"""Characters, each with its mark: `q` quoted, `u` not."""

MAX_WORDS = 100
_NUMBERS = re.compile(r"(0|-?[1-9]\d{0,8})\.\.(0|-?[1-9]\d{0,8})")


def expand_braces(word: MarkedWord) -> list[MarkedWord] | None:
    """All words in bash's order; None where they are not certain or more than MAX_WORDS."""
    bare = "".join(char if mark == "u" else "q" for char, mark in word)
    if "{" not in bare or not ("," in bare or ".." in bare):
        return [word]  # `HEAD@{1}`, `{}`: nothing to choose from
    return _expand(word)


def _expand(word: MarkedWord) -> list[MarkedWord] | None:
    start = next((at for at, one in enumerate(word) if one == ("{", "u")), None)
    if start is None:
        return None if ("}", "u") in word else [word]
    end = _closing(word, start=start)
    if end is None:
        return None
    choices = _choices(word[start + 1 : end])
    tails = _expand(word[end + 1 :])
    if choices is None or tails is None or len(choices) * len(tails) > MAX_WORDS:
        return None
    return [word[:start] + choice + tail for choice in choices for tail in tails]


def _closing(word: MarkedWord, *, start: int) -> int | None:
    depth = 0
    for at in range(start, len(word)):
        depth += (word[at] == ("{", "u")) - (word[at] == ("}", "u"))
        if depth == 0:
            return at
    return None


def _choices(inner: MarkedWord) -> list[MarkedWord] | None:
    parts = _split(inner)
    if len(parts) > 1:
        found: list[MarkedWord] = []
        for part in parts:
            expanded = _expand(part)
            if expanded is None or len(found) + len(expanded) > MAX_WORDS:
                return None
            found += expanded
        return found
    text = "".join(char for char, _ in inner)
    numbers = _NUMBERS.fullmatch(text) if all(mark == "u" for _, mark in inner) else None
    if numbers is not None:
        first, last = int(numbers[1]), int(numbers[2])
        if abs(last - first) >= MAX_WORDS:
            return None
        step = 1 if last >= first else -1
        return [tuple((char, "u") for char in str(number)) for number in range(first, last + step, step)]
    if text:
        return None  # `{a}`, `{a..c}`: for certain only in words without any choice
    return [(("{", "u"), ("}", "u"))]


def _split(inner: MarkedWord) -> list[MarkedWord]:
    parts: list[MarkedWord] = []
    depth = start = 0
    for at, one in enumerate(inner):
        depth += (one == ("{", "u")) - (one == ("}", "u"))
        if depth == 0 and one == (",", "u"):
            parts.append(inner[start:at])
            start = at + 1
    return [*parts, inner[start:]]


MAX_SHOWN = 200


class Spelled(msgspec.Struct, frozen=True, kw_only=True):
    """`text` is what the word is, quotes removed. `marks` has one character for each of `text`: `q` quoted, `u` not. `veiled`:
    not literal, though the command spells it out (braces, a tilde), so that a path may hide in it."""

    text: str
    marks: str
    literal: bool = True
    veiled: bool = False

    @property
    def is_glob(self) -> bool:
        return self.literal and any(is_wild(segment) for segment in self._segments())

    @property
    def has_brackets(self) -> bool:
        return any(char == "[" and mark == "u" for char, mark in zip(self.text, self.marks, strict=True))

    @property
    def has_tilde(self) -> bool:
        return self.text.startswith("~") and self.marks.startswith("u")

    def segments(self) -> list[SegmentGlob | str]:
        """A glob's segments: patterns where they have wildcards, else names."""
        return [glob(pairs) if is_wild(pairs) else "".join(char for char, _ in pairs) for pairs in self._segments()]

    def _segments(self) -> list[list[tuple[str, str]]]:
        found: list[list[tuple[str, str]]] = [[]]
        for char, mark in zip(self.text, self.marks, strict=True):
            if char == "/":
                found.append([])
            else:
                found[-1].append((char, mark))
        return found


def plain(text: str) -> Spelled:
    return Spelled(text=text, marks="q" * len(text))


def unknown(text: str, *, veiled: bool = False) -> Spelled:
    """A word that only the run will tell; `text` shows it."""
    return Spelled(text=text[:MAX_SHOWN], marks="q" * len(text[:MAX_SHOWN]), literal=False, veiled=veiled)


def spell(node: "Node") -> Spelled:
    """The word that `node` stands for."""
    words = spell_words(node)
    return words[0] if len(words) == 1 else unknown(_source(node), veiled=True)


def spell_words(node: "Node") -> tuple[Spelled, ...]:
    """The words that bash makes of it: more than one, or none, where it has braces."""
    pieces = _pieces(node)
    if pieces is None:
        return (unknown(_source(node), veiled=_is_veiled(node)),)
    marked = tuple((char, mark) for part, mark in pieces for char in part)
    expanded = expand_braces(marked)
    if expanded is None or (len(expanded) > 1 and any(not part for part, _ in pieces)):
        return (unknown(_source(node), veiled=True),)
    found: list[Spelled] = []
    for one in expanded:
        word = Spelled(text="".join(char for char, _ in one), marks="".join(mark for _, mark in one))
        if word.has_tilde and word.text != "~" and not word.text.startswith("~/"):
            word = unknown(word.text, veiled=True)
        if word.text or len(expanded) == 1:  # bash drops an empty word without quotes
            found.append(word)
    return tuple(found)


def spell_command(nodes: "Sequence[Node]") -> tuple[Spelled, ...]:
    """The words of a command. A name with braces stays unknown."""
    return tuple(word for at, node in enumerate(nodes) for word in (spell_words(node) if at else (spell(node),)))


def words_below(node: "Node") -> "Iterator[Node]":
    """All words in an expression."""
    for child in node.children:
        if child.type in ("word", "concatenation"):
            yield child
        elif child.type.endswith("_expression"):
            yield from words_below(child)


def is_quoted(node: "Node") -> bool:
    """Whether what a variable or a substitution in it holds stays one word, in which no wildcard counts."""
    if node.type == "concatenation":
        return all(is_quoted(child) for child in node.children)
    return node.type in ("string", "raw_string", "ansi_c_string", "translated_string", "process_substitution")


def _source(node: "Node") -> str:
    return (node.text or b"").decode("utf-8", "replace")


def _is_veiled(node: "Node") -> bool:
    """Whether a word with a variable or a substitution has braces or brackets to choose from besides."""
    bare = "".join(_source(child) for child in node.children if child.type in ("word", "brace_expression", "number"))
    return re.search(r"\{.*(?:,|\.\.).*\}|\[.*\]", bare, re.DOTALL) is not None


def _pieces(node: "Node") -> list[tuple[str, str]] | None:
    """Texts with `q` or `u`; None where the word is not literal."""
    source = (node.text or b"").decode("utf-8", "replace")
    match node.type:
        case "word" | "number" | "test_operator" | "extglob_pattern" | "regex" | "variable_name" if not node.children:
            return _unquote(source)
        case "brace_expression":
            return [(source, "u")]
        case "raw_string":
            return [(source[1:-1], "q")]
        case "ansi_c_string":
            decoded = decode_ansi_c(source[2:-1])
            return None if decoded is None else [(decoded, "q")]
        case "string":
            return _inside_quotes(node)
        case "concatenation" | "command_name":
            pieces: list[tuple[str, str]] = []
            for child in node.children:
                part = _pieces(child)
                if part is None:
                    return None
                pieces += part
            return pieces
        case _:
            return None


_METACHARACTERS = re.compile(r"""[|&;()<>\s'"$`\x00-\x1f\x7f]""")


def _unquote(source: str) -> list[tuple[str, str]] | None:
    pieces: list[tuple[str, str]] = []
    for found in re.finditer(r"\\\n|\\(.)|([^\\]+)|\\", source, re.DOTALL):
        if found[1] is not None:
            pieces.append((found[1], "q"))
        elif found[2] is not None:
            if _METACHARACTERS.search(found[2]):
                return None
            pieces.append((found[2], "u"))
        elif found[0] == "\\":
            return None
    return pieces


def _inside_quotes(node: "Node") -> list[tuple[str, str]] | None:
    if [child.type for child in node.children] == ['"', "command_substitution", '"']:
        text = _quoted_document(node.children[1])
        return None if text is None else [(text, "q")]
    if any(child.type not in ('"', "string_content") for child in node.children):
        return None
    source = (node.text or b"").decode("utf-8", "replace")
    if len(source) < 2 or source[0] != '"' or source[-1] != '"':
        return None
    return [(re.sub(r'\\([$`"\\\n])', lambda found: "" if found[1] == "\n" else found[1], source[1:-1]), "q")]


def _quoted_document(node: "Node") -> str | None:
    """The text of `$(cat <<'E' ...)`, which is how models write texts of several lines. The delimiter is quoted, so nothing is
    expanded; `cat` has no operands, and nothing else stands there. None for any other substitution."""
    statement = _only(node.named_children, kind="redirected_statement")
    if statement is None or not _source(node).startswith("$(") or len(statement.named_children) != 2:
        return None
    command, redirect = statement.named_children
    if command.type != "command" or _source(command) != "cat" or redirect.type != "heredoc_redirect":
        return None
    parts = [child.type for child in redirect.named_children]
    start = redirect.named_children[0]
    delimiter = heredoc_delimiter(start) if start.type == "heredoc_start" else None
    if parts not in (["heredoc_start", "heredoc_body", "heredoc_end"], ["heredoc_start", "heredoc_end"]):
        return None
    text = heredoc_text(redirect)
    if delimiter is None or not delimiter[1] or text is None:
        return None
    if any(child.type == "<<-" for child in redirect.children):
        text = "\n".join([line.lstrip("\t") for line in text.split("\n")])
    return text.rstrip("\n")


def _only(nodes: "Sequence[Node]", *, kind: str) -> "Node | None":
    return nodes[0] if len(nodes) == 1 and nodes[0].type == kind else None


_SIMPLE = {"a": "\a", "b": "\b", "e": "\x1b", "E": "\x1b", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "v": "\v"}


def decode_ansi_c(source: str) -> str | None:
    """The text of `$'source'`; None where it is no text (a NUL, bytes that are no UTF-8, `\\c`,
    `\\u` beyond ASCII)."""
    out = bytearray()
    pattern = r"\\x([0-9a-fA-F]{1,2})|\\([0-7]{1,3})|\\u([0-9a-fA-F]{1,4})|\\U([0-9a-fA-F]{1,8})|\\(.)|([^\\]+)|\\"
    for found in re.finditer(pattern, source, re.DOTALL):
        hexadecimal, octal, short, long, escaped, text = found.groups()
        if hexadecimal or octal:
            out.append(int(hexadecimal, 16) if hexadecimal else int(octal, 8) & 0xFF)
        elif short or long:
            code = int(short or long, 16)
            if code > 0x7F:
                return None  # what it comes to depends on the language
            out += chr(code).encode()
        elif escaped:
            if escaped in "cxuU":
                return None
            out += (_SIMPLE.get(escaped) or (escaped if escaped in "\\'\"?" else "\\" + escaped)).encode()
        elif text:
            out += text.encode("utf-8", "surrogatepass")
        else:
            return None
    if 0 in out:
        return None
    try:
        return out.decode()
    except UnicodeDecodeError:
        return None
