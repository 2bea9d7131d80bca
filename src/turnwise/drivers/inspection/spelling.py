"""Words as bash reads them: quotes, escapes and `$'..'` removed; what is known only later said to be so."""

import re
from typing import TYPE_CHECKING

import msgspec

if TYPE_CHECKING:
    from tree_sitter import Node

MAX_SHOWN = 200


class Spelled(msgspec.Struct, frozen=True, kw_only=True):
    """`text` is what the word is, quotes removed. `marks` has one character for each of `text`: `q` quoted, `u` not."""

    text: str
    marks: str
    literal: bool = True

    @property
    def is_glob(self) -> bool:
        return self.literal and any(
            mark == "u" and char in "*?" for char, mark in zip(self.text, self.marks, strict=True)
        )

    @property
    def has_tilde(self) -> bool:
        return self.text.startswith("~") and self.marks.startswith("u")

    def segments(self) -> list[re.Pattern[str] | str]:
        """A glob's segments: patterns where they have wildcards, else names."""
        found: list[re.Pattern[str] | str] = []
        start = 0
        for at, char in enumerate(self.text + "/"):
            if char != "/":
                continue
            pairs = list(zip(self.text[start:at], self.marks[start:at], strict=True))
            start = at + 1
            if any(mark == "u" and char in "*?" for char, mark in pairs):
                wild = {"*": ".*", "?": "."}
                parts = [wild[char] if mark == "u" and char in wild else re.escape(char) for char, mark in pairs]
                found.append(re.compile("".join(parts), re.DOTALL))
            else:
                found.append("".join(char for char, _ in pairs))
        return found


def plain(text: str) -> Spelled:
    return Spelled(text=text, marks="q" * len(text))


def unknown(text: str) -> Spelled:
    """A word that only the run will tell; `text` shows it."""
    return Spelled(text=text[:MAX_SHOWN], marks="q" * len(text[:MAX_SHOWN]), literal=False)


def spell(node: "Node") -> Spelled:
    """The word that `node` stands for."""
    source = (node.text or b"").decode("utf-8", "replace")
    pieces = _pieces(node)
    if pieces is None:
        return unknown(source)
    text = "".join(part for part, _ in pieces)
    marks = "".join(mark * len(part) for part, mark in pieces)
    if _grows(text, marks=marks):
        return unknown(source)
    return Spelled(text=text, marks=marks)


def _grows(text: str, *, marks: str) -> bool:
    """Whether it may become another word, or several: braces, bracket globs, a tilde that is not the home folder."""
    bare = "".join(char if mark == "u" else "q" for char, mark in zip(text, marks, strict=True))
    if "{" in bare and bare not in ("{}", "{"):
        return True
    if "[" in bare and bare != "[":
        return True
    return bare.startswith("~") and bare != "~" and not bare.startswith("~/")


def _pieces(node: "Node") -> list[tuple[str, str]] | None:
    """Texts with `q` or `u`; None where the word is not literal."""
    source = (node.text or b"").decode("utf-8", "replace")
    match node.type:
        case "word" | "number" | "test_operator" | "extglob_pattern" | "regex" | "variable_name" if not node.children:
            return _unquote(source)
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
    if any(child.type not in ('"', "string_content") for child in node.children):
        return None
    source = (node.text or b"").decode("utf-8", "replace")
    if len(source) < 2 or source[0] != '"' or source[-1] != '"':
        return None
    return [(re.sub(r'\\([$`"\\\n])', lambda found: "" if found[1] == "\n" else found[1], source[1:-1]), "q")]


_SIMPLE = {"a": "\a", "b": "\b", "e": "\x1b", "E": "\x1b", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "v": "\v"}


def decode_ansi_c(source: str) -> str | None:
    """The text of `$'source'`; None where it is no text (a NUL, bytes that are no UTF-8, `\\c`)."""
    out = bytearray()
    pattern = r"\\x([0-9a-fA-F]{1,2})|\\([0-7]{1,3})|\\u([0-9a-fA-F]{1,4})|\\U([0-9a-fA-F]{1,8})|\\(.)|([^\\]+)|\\"
    for found in re.finditer(pattern, source, re.DOTALL):
        hexadecimal, octal, short, long, escaped, text = found.groups()
        if hexadecimal or octal:
            out.append(int(hexadecimal, 16) if hexadecimal else int(octal, 8) & 0xFF)
        elif short or long:
            code = int(short or long, 16)
            if code > 0x10FFFF or 0xD800 <= code <= 0xDFFF:
                return None
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
