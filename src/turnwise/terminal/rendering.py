"""Markdown for a terminal: it is divided into blocks line by line as it comes; `rich` and `markdown-it-py` turn a finished block
into lines.

No word of it is lost, and its cost is bounded: a block that cannot be rendered within the bounds is shown as it was written. A
link shows its target, and the terminal gets no address that is not on the screen. HTML is text; so is a reference to another
block.
"""

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from functools import lru_cache
from typing import Literal
from urllib.parse import unquote

import msgspec
from markdown_it import MarkdownIt
from markdown_it.tree import SyntaxTreeNode
from pygments.lexer import Lexer
from pygments.lexers import get_lexer_by_name  # pyright: ignore[reportUnknownVariableType]
from rich.cells import cell_len
from rich.color import ColorSystem
from rich.console import Console
from rich.style import Style
from rich.syntax import Syntax
from rich.text import Text

from turnwise.coding_agent.text import clean_answer

# Markdown comes line by line and is divided into blocks: each line is looked at once, and only its beginning.
#
# This decides where blocks end, not what is in them: a parser reads a finished block. If this divides differently from
# CommonMark, one block is rendered as two, and nothing is lost.


MarkdownKind = Literal["blank", "paragraph", "heading", "rule", "fence", "quote", "item", "code", "table"]

LOOKED_AT = 1000  # characters of a line: a longer one is text in any case

_DIGITS = "0123456789"
_OF_ITEMS = "-*+" + _DIGITS
_STARTS = "#`~>_" + _OF_ITEMS
_FENCE = re.compile(r" {0,3}(?:(`{3,})[^`]*|(~{3,}).*)$")
_CLOSING = re.compile(r" {0,3}(`{3,}|~{3,})[ \t]*$")
_INNER_FENCE = re.compile(r"[ \t]*(?:[-*+]|[0-9]{1,9}[.)])?[ \t]*(`{3,}(?=[^`]*$)|~{3,})")
_HEADING_LINE = re.compile(r" {0,3}#{1,6}(?:[ \t]|$)")
_RULE = re.compile(r" {0,3}([-*_])[ \t]*(?:\1[ \t]*){2,}$")
_UNDERLINE = re.compile(r" {0,3}(?:=+|-+)[ \t]*$")
_QUOTE = re.compile(r" {0,3}>")
_ITEM = re.compile(r"( {0,3})([-*+]|[0-9]{1,9}[.)])([ \t]+|$)(.?)")
_DELIMITER = re.compile(r" {0,3}\|?[ \t]*:?-+:?[ \t]*(?:\|[ \t]*:?-+:?[ \t]*)*\|?[ \t]*$")


class MarkdownBlock(msgspec.Struct, frozen=True, kw_only=True):
    """Whole lines that belong together, without their line ends. `head` are the lines that a part of a fence or a table needs
    before it; `open` says that more of the block follows."""

    kind: MarkdownKind
    lines: tuple[str, ...]
    head: tuple[str, ...] = ()
    open: bool = False

    @property
    def text(self) -> str:
        return "\n".join(self.lines)

    @property
    def source(self) -> str:
        """The text for a parser."""
        return "\n".join((*self.head, *self.lines))


class Blocks:
    """Takes line after line and returns the blocks that each line finishes."""

    def __init__(self) -> None:
        self._kind: MarkdownKind | None = None
        self._lines: list[str] = []
        self._head: tuple[str, ...] = ()
        self._fence = ""  # the line that opened the current fence, or the fence inside the current item
        self._offset = 0  # of an item: where its text begins
        self._blank = 0  # blank lines at the end of the current block
        self._size = 0

    @property
    def kind(self) -> MarkdownKind | None:
        return self._kind

    @property
    def size(self) -> int:
        """Characters of the current block."""
        return self._size

    @property
    def lines(self) -> list[str]:
        """The lines of the current block."""
        return self._lines

    def forget(self) -> None:
        """The current part of the block is shown already and not needed any more; the block continues."""
        if self._kind in ("fence", "table"):
            self._head = self._head_of_next()
        self._lines, self._size = ([""] if self._lines else []), 0

    def take(self, line: str) -> list[MarkdownBlock]:
        start = line[:LOOKED_AT]
        if self._kind == "fence":
            self._add(line)
            return self._finish() if _closes(start, fence=self._fence) else []
        if not start.strip() and not line.strip():
            return self._take_blank(line)
        if self._kind == "item" and self._stays_in_item(start):
            self._add(line)
            return []
        if self._kind in ("paragraph", "quote", "code", "table") and self._goes_on(start):
            return self._continue(line, start)
        return [*self._finish(), *self._begin(line, start)]

    def cut(self) -> list[MarkdownBlock]:
        """The current part of a fence or a table; nothing if the current block cannot be divided."""
        if self._kind not in ("fence", "table") or not self._lines:
            return []
        part = MarkdownBlock(kind=self._kind, lines=tuple(self._lines), head=self._head, open=True)
        self._head, self._lines, self._size = self._head_of_next(), [], 0
        return [part]

    def close(self) -> list[MarkdownBlock]:
        """The text has ended, and so has the current block."""
        return self._finish()

    def _take_blank(self, line: str) -> list[MarkdownBlock]:
        if self._kind in ("item", "code"):
            self._add(line)
            if not self._fence:
                self._blank += 1
            return []
        return [*self._finish(), MarkdownBlock(kind="blank", lines=("",))]

    def _begin(self, line: str, start: str) -> list[MarkdownBlock]:
        kind = _kind_of(start)
        self._kind, self._blank, self._fence, self._head = kind, 0, "", ()
        self._add(line)
        if kind in ("heading", "rule"):
            return self._finish()
        if kind == "fence" and (found := _FENCE.match(start)):
            self._fence = found[1] or found[2]
        elif kind == "item":
            self._offset = _offset_of(start)
            self._see_inner_fence(start)
        return []

    def _continue(self, line: str, start: str) -> list[MarkdownBlock]:
        """A further line of a paragraph (which may become a table or a heading), a quote, a table or indented code."""
        if self._kind == "paragraph":
            last = self._lines[-1]
            if "-" in start and len(line) < LOOKED_AT > len(last) and "|" in last and _DELIMITER.match(start):
                before = self._lines[:-1]
                done = [MarkdownBlock(kind="paragraph", lines=tuple(before))] if before else []
                self._kind, self._lines, self._size = "table", [last, line], len(last) + len(line)
                return done
            if _UNDERLINE.match(start):
                self._add(line)
                return self._finish()
        self._blank = 0
        self._add(line)
        return []

    def _goes_on(self, start: str) -> bool:
        """Whether a line that is not blank belongs to the current paragraph, quote, code or table."""
        kind = _kind_of(start)
        if self._kind == "code":
            return kind == "code"
        if self._kind == "quote":
            return kind in ("quote", "paragraph", "code")
        if self._kind == "paragraph" and kind == "rule":
            return _UNDERLINE.match(start) is not None
        if self._kind == "paragraph" and kind == "item":
            return not _interrupts(start)
        return kind in ("paragraph", "code")

    def _stays_in_item(self, start: str) -> bool:
        indent = len(start.expandtabs(4)) - len(start.expandtabs(4).lstrip(" "))
        if indent >= self._offset:
            self._blank = 0
            self._see_inner_fence(start)
            return True
        if self._fence or self._blank:
            return False
        return _kind_of(start) in ("paragraph", "code")

    def _see_inner_fence(self, start: str) -> None:
        if self._fence:
            found = re.match(r"[ \t]*(`{3,}|~{3,})[ \t]*$", start)
            if found and found[1].startswith(self._fence):
                self._fence = ""
        elif found := _INNER_FENCE.match(start):
            self._fence = found[1]

    def _add(self, line: str) -> None:
        self._lines.append(line)
        self._size += len(line) + 1

    def _head_of_next(self) -> tuple[str, ...]:
        """What the next part needs before it: the line that opened the fence, or the names of the columns."""
        return self._head or tuple(self._lines[: 1 if self._kind == "fence" else 2])

    def _finish(self) -> list[MarkdownBlock]:
        if self._kind is None:
            return []
        done = MarkdownBlock(kind=self._kind, lines=tuple(self._lines), head=self._head)
        self._kind, self._lines, self._head, self._fence, self._size = None, [], (), "", 0
        self._blank = 0
        return [done]


def _kind_of(start: str) -> MarkdownKind:
    """The kind of block that a line begins on its own."""
    first = start.lstrip(" ")[:1]
    if start.startswith(("    ", "\t")):
        return "code"
    if not first or first not in _STARTS:
        return "paragraph"
    if first == "#" and _HEADING_LINE.match(start):
        return "heading"
    if first in "`~" and len(start) < LOOKED_AT and _FENCE.match(start):
        return "fence"
    if first == ">" and _QUOTE.match(start):
        return "quote"
    if first in "-*_" and len(start) < LOOKED_AT and _RULE.match(start):
        return "rule"
    if first in _OF_ITEMS and _ITEM.match(start):
        return "item"
    return "paragraph"


def _interrupts(start: str) -> bool:
    """Whether an item may begin right below a line of a paragraph: it must have text, and if it is numbered, its number must be
    1."""
    found = _ITEM.match(start)
    return found is not None and bool(found[4]) and (found[2][0] not in _DIGITS or int(found[2][:-1]) == 1)


def _offset_of(start: str) -> int:
    found = _ITEM.match(start)
    assert found is not None, "it is an item"
    spaces = len(found[3].expandtabs(4))
    return len(found[1]) + len(found[2]) + (spaces if found[4] and 1 <= spaces <= 4 else 1)


def _closes(start: str, *, fence: str) -> bool:
    found = _CLOSING.match(start)
    return found is not None and found[1].startswith(fence)


MAX_CHARACTERS = 24 * 1024  # of one block: a page of a book has 3,000
MAX_MARKS = 600  # characters of a block that may have a meaning: the parser compares pairs of them
MAX_DEPTH = 12  # quotes in lists in quotes: the parser gives up beyond 20, and drops what is there
MAX_COLUMNS = 40
MIN_WIDTH = 12  # columns of the terminal: below that, words break anyway
MAX_CODE_LINE = 1000  # characters: a longer line is data, and lexers are slow with it
WIDEST_WORD = 30  # columns of a word in a table's cell that are never divided

# The coloured languages: the usual ones and their short names. Other lexers are not loaded, because their names come from a
# model.
LANGUAGES = frozenset(
    """bash c c++ cmake console cpp cs csharp css csv dart diff docker dockerfile elixir erlang go golang graphql haskell hcl html
    http ini java javascript js json jsonc jsx julia kotlin kt lua make makefile md markdown nginx nix objc ocaml patch perl php
    powershell ps1 protobuf py python python3 r rb rs ruby rust scala scss sh shell sql svelte swift terraform tf toml ts tsx
    typescript vim vue xml yaml yml zig zsh""".split()
)
_LIKE = {"jsonc": "json", "svelte": "html", "console": "console", "csv": "text", "jsx": "jsx", "tf": "terraform"}

_MARKS = re.compile(r"[*_`\[\]<&\\~!]")
_NESTED = re.compile(r"[ \t]*((?:(?:>|[-*+](?=[ \t])|[0-9]{1,9}[.)](?=[ \t]))[ \t]*)*)")
_MARKER = re.compile(r">|[-*+]|[0-9]+[.)]")
_PLAIN = re.compile(r"[*_`\[<&\\~|]|^[ \t]|^ {0,3}(?:=+|-+)[ \t]*$|[ \t]$", re.MULTILINE)
_ENTITY = re.compile(r"&(?:#[0-9]{1,7}|#[xX][0-9a-fA-F]{1,6}|[A-Za-z][A-Za-z0-9]{1,31});")

_STYLES = {
    "strong": Style(bold=True),
    "em": Style(italic=True),
    "s": Style(strike=True),
    "code_inline": Style(color="cyan"),
    "link": Style(underline=True),
}
_HEADINGS = {"h1": Style(bold=True, underline=True), "h2": Style(bold=True)}
_HEADING = Style(bold=True, italic=True)
_DIM = Style(dim=True)
_MARK = Style(color="cyan")


class NotRendered(Exception):
    """The block is shown as it was written."""


class Page(msgspec.Struct, frozen=True, kw_only=True):
    """The target of the lines: `width` columns, and the colours that the terminal has."""

    width: int
    colours: ColorSystem = ColorSystem.STANDARD


class _Widths(msgspec.Struct):
    """The column widths of the current table: its parts look like one table."""

    of: tuple[int, ...] = ()


class Renderer:
    """Renders the blocks of one answer. The widths of a table's first part hold for its next parts."""

    def __init__(self) -> None:
        self._widths = _Widths()

    def __call__(self, block: MarkdownBlock, *, page: Page) -> list[str] | None:
        """The block's lines, with colours; None: show it as it was written."""
        if page.width < MIN_WIDTH or len(block.text) > MAX_CHARACTERS:
            return None
        if not block.head:
            self._widths = _Widths()
        try:
            lines = self._lines_of(block, width=page.width)
        except Exception:  # noqa: BLE001 (a parser or a lexer fell over a stranger's text: it is shown as it was written)
            return None
        return [_escaped(line, colours=page.colours) for line in lines]

    def _lines_of(self, block: MarkdownBlock, *, width: int) -> list[Text]:
        if block.kind == "blank":
            return [Text("")]
        if block.kind == "fence":
            return _fence(block, width=width)
        source = block.source
        if len(_MARKS.findall(source)) > MAX_MARKS or _depth(source) > MAX_DEPTH:
            raise NotRendered
        nodes = SyntaxTreeNode(_parser().parse(source)).children
        if block.head and [node.type for node in nodes] != ["table"]:
            raise NotRendered  # it only looked like one
        lines = _Layout(self._widths, skips_header=bool(block.head)).blocks(nodes, width=width)
        if _lost(block.text, lines):
            raise NotRendered
        return lines + [Text("")] * _blanks_below(block)


def is_plain(block: MarkdownBlock) -> bool:
    """Whether it looks the same when rendered: it has only words."""
    return block.kind == "blank" or (block.kind == "paragraph" and _PLAIN.search(block.text) is None)


class _Layout:
    """Turns the parser's tree of one block into lines of a width."""

    def __init__(self, widths: _Widths, *, skips_header: bool) -> None:
        self._widths = widths
        self._skips_header = skips_header

    def blocks(self, nodes: Iterable[SyntaxTreeNode], *, width: int, tight: bool = True) -> list[Text]:
        if width < MIN_WIDTH:
            raise NotRendered
        lines: list[Text] = []
        for node in nodes:
            if lines and not tight:
                lines.append(Text(""))
            lines += self._block(node, width=width)
        return lines

    def _block(self, node: SyntaxTreeNode, *, width: int) -> list[Text]:
        match node.type:
            case "paragraph":
                return _wrapped(_inline(node), width=width)
            case "heading":
                text = _inline(node)
                text.stylize_before(_HEADINGS.get(node.tag, _HEADING))
                return _wrapped(text, width=width)
            case "bullet_list" | "ordered_list":
                return self._list(node, width=width)
            case "blockquote":
                inner = self.blocks(node.children, width=width - 2, tight=False)
                return [Text.assemble(("▌ ", _DIM), line) for line in inner]
            case "fence":
                code = _code_lines(node.content, language=_language(node.info), width=width)
                return [*_dim(node.markup + node.info, width=width), *code, *_dim(node.markup, width=width)]
            case "code_block":
                return _code_lines(node.content, language="", width=width)
            case "hr":
                return _dim("─" * min(width, 40), width=width)
            case "table":
                return self._table(node, width=width)
            case _:
                raise NotRendered

    def _list(self, node: SyntaxTreeNode, *, width: int) -> list[Text]:
        lines: list[Text] = []
        for item in node.children:
            # a number as it was written: items come one by one, and turnwise does not count for the model
            mark = f"{item.info}{item.markup} " if node.type == "ordered_list" else "• "
            tight = all(child.hidden for child in item.children if child.type == "paragraph")
            if lines and not tight:
                lines.append(Text(""))
            inner = self.blocks(item.children, width=width - len(mark), tight=tight) or [Text("")]
            lines += [
                Text.assemble((mark, _MARK) if number == 0 else " " * len(mark), line)
                for number, line in enumerate(inner)
            ]
        return lines

    def _table(self, node: SyntaxTreeNode, *, width: int) -> list[Text]:
        rows = [[(_inline(cell), str(cell.attrs.get("style", ""))) for cell in row.children]
                for part in node.children for row in part.children]  # fmt: skip
        header, *body = rows
        if len(header) > MAX_COLUMNS:
            raise NotRendered
        columns = [[row[place][0] for row in rows] for place in range(len(header))]
        room = width - 3 * (len(header) - 1)
        if len(self._widths.of) != len(header) or sum(self._widths.of) > room:
            self._widths.of = _column_widths(columns, room=room)
        lines: list[Text] = []
        if not self._skips_header:
            for cell, _ in header:
                cell.stylize_before(Style(bold=True))
            lines += self._row(header)
            lines.append(Text.assemble(("─┼─".join(["─" * one for one in self._widths.of]), _DIM)))
        for row in body:
            lines += self._row(row)
        return lines

    def _row(self, cells: Sequence[tuple[Text, str]]) -> list[Text]:
        wrapped = [
            _wrapped(cell, width=width) or [Text("")] for (cell, _), width in zip(cells, self._widths.of, strict=True)
        ]
        lines: list[Text] = []
        for number in range(max(map(len, wrapped))):
            line = Text()
            for place, ((_, align), width) in enumerate(zip(cells, self._widths.of, strict=True)):
                if place:
                    line.append(" │ ", _DIM)
                cell = wrapped[place][number] if number < len(wrapped[place]) else Text("")
                line.append_text(_aligned(cell, align, width=width))
            line.rstrip()
            lines.append(line)
        return lines


@lru_cache(maxsize=1)
def _parser() -> MarkdownIt:
    return MarkdownIt("commonmark", {"html": False}).enable(["table", "strikethrough"]).disable("reference")


def _depth(source: str) -> int:
    """How deeply its quotes and lists can be nested, at most."""
    deepest = 0
    for line in source.split("\n"):
        indent = len(line) - len(line.lstrip())
        found = _NESTED.match(line)
        deepest = max(deepest, indent // 2 + (len(_MARKER.findall(found[1])) if found else 0))
    return deepest


def _inline(node: SyntaxTreeNode) -> Text:
    text = Text()
    for child in node.children:  # one node `inline`, whose children are the parts
        for part in child.children:
            _add(part, text, style=Style.null())
    return text


def _add(node: SyntaxTreeNode, text: Text, *, style: Style) -> None:
    match node.type:
        case "text" | "text_special":
            _say(node.content, text, style=style)
        case "softbreak" | "hardbreak":
            text.append("\n")
        case "code_inline":
            _say(node.content, text, style=style + _STYLES["code_inline"])
        case "strong" | "em" | "s":
            for child in node.children:
                _add(child, text, style=style + _STYLES[node.type])
        case "link" | "image":
            _add_link(node, text, style=style)
        case _:
            raise NotRendered


def _add_link(node: SyntaxTreeNode, text: Text, *, style: Style) -> None:
    begin = len(text)
    for child in node.children or ():
        _add(child, text, style=style + _STYLES["link"])
    said = text.plain[begin:]
    address, title = (
        str(node.attrs.get("src" if node.type == "image" else "href", "")),
        str(node.attrs.get("title", "")),
    )
    shown = f'{address} "{title}"' if title else address
    if shown not in (said, f"mailto:{said}"):
        _say(f" ({shown})" if said else f"({shown})", text, style=style + _DIM)


def _say(content: str, text: Text, *, style: Style) -> None:
    """The only function that puts words into a line, so that the text of entities is cleaned, too."""
    if content:
        text.append(clean_answer(content), style)


def _dim(mark: str, *, width: int) -> list[Text]:
    return _wrapped(Text.assemble((clean_answer(mark.rstrip()), _DIM)), width=width)


def _wrapped(text: Text, *, width: int) -> list[Text]:
    plain = text.plain
    fits = "\n" not in plain and "\t" not in plain and cell_len(plain) <= width
    lines = [text] if fits else list(text.wrap(_console(), width, overflow="fold"))
    for line in lines:
        line.rstrip()
    return lines


@lru_cache(maxsize=1)
def _console() -> Console:
    """It knows no terminal: code that needs one asks it only for styles."""
    return Console(width=80, color_system=None, force_terminal=False, legacy_windows=False)


def _aligned(cell: Text, align: str, *, width: int) -> Text:
    if (room := max(0, width - cell.cell_len)) == 0:
        return cell
    left = room if "right" in align else room // 2 if "center" in align else 0
    return Text.assemble(" " * left, cell, " " * (room - left))


def _column_widths(columns: Sequence[Sequence[Text]], *, room: int) -> tuple[int, ...]:
    """Each column is as wide as its widest cell, if there is room; otherwise as wide as its longest word, with a share of the
    rest."""
    wanted = [max(1, *(max(map(cell_len, cell.plain.split("\n"))) for cell in column)) for column in columns]
    if sum(wanted) <= room:
        return tuple(wanted)
    least = [
        max(1, *(min(cell_len(word), WIDEST_WORD) for cell in column for word in cell.plain.split() or [""]))
        for column in columns
    ]
    left = room - sum(least)
    if left < 0:
        raise NotRendered
    more = [want - need for want, need in zip(wanted, least, strict=True)]
    return tuple([need + left * one // sum(more) for need, one in zip(least, more, strict=True)])


def _fence(block: MarkdownBlock, *, width: int) -> list[Text]:
    """Its code in colours between its fences; a part in the middle has no fences."""
    lines = list(block.lines)
    opening = (block.head or block.lines)[0]
    mark = opening.strip(" ")
    inner = len(opening) - len(opening.lstrip(" "))
    first = [] if block.head else [lines.pop(0)]
    fence = re.match(r"`+|~+", mark)
    closing = re.compile(rf" {{0,3}}{re.escape(fence[0])}+[ \t]*" if fence else "$^")
    last = [lines.pop()] if lines and not block.open and closing.fullmatch(lines[-1]) else []
    code = "\n".join([line[min(inner, len(line) - len(line.lstrip(" "))) :] for line in lines])
    shown = _code_lines(code, language=_language(mark.lstrip("`~")), width=width) if lines else []
    return [
        *[line for text in first for line in _dim(text, width=width)],
        *shown,
        *[line for text in last for line in _dim(text, width=width)],
    ]


def _code_lines(code: str, *, language: str, width: int) -> list[Text]:
    code = code.removesuffix("\n").expandtabs(4)
    lines = code.split("\n")
    if language and max(map(len, lines)) <= MAX_CODE_LINE:
        text = Syntax("", _lexer(language), theme="ansi_dark").highlight(code)
        coloured = list(text.split("\n", allow_blank=True))
        # a lexer drops and adds empty lines at the ends
        if [line.plain.rstrip() for line in coloured[: len(lines)]] == [line.rstrip() for line in lines]:
            return [row for line in coloured[: len(lines)] for row in _folded(line, width=width)]
    return [row for line in lines for row in _folded(Text.assemble((line, _STYLES["code_inline"])), width=width)]


def _folded(line: Text, *, width: int) -> list[Text]:
    """A line of code in rows that fit, broken at any character: its blanks count."""
    line.rstrip()
    if line.cell_len <= width:
        return [line]
    offsets: list[int] = []
    at = 0
    for place, char in enumerate(line.plain):
        cells = cell_len(char)
        if at + cells > width:
            offsets.append(place)
            at = 0
        at += cells
    return list(line.divide(offsets))


def _language(info: str) -> str:
    name = info.strip().split(" ")[0].split("{")[0].lower()
    return name if name in LANGUAGES else ""


@lru_cache(maxsize=32)
def _lexer(language: str) -> Lexer:
    return get_lexer_by_name(_LIKE.get(language, language), stripnl=False, ensurenl=True, tabsize=4)


def _lost(text: str, lines: Iterable[Text]) -> bool:
    """Whether a letter or a digit of the text is in none of the lines: no parser may silently drop a word."""
    shown = "".join([line.plain for line in lines])
    there = Counter(shown)
    if "%" in shown:  # letters in an address
        there |= Counter(unquote(shown))
    wanted = Counter(_ENTITY.sub("", text))
    return any(there[char] < count for char, count in wanted.items() if char.isalnum())


def _blanks_below(block: MarkdownBlock) -> int:
    count = 0
    for line in reversed(block.lines):
        if line.strip():
            break
        count += 1
    return count


def _escaped(line: Text, *, colours: ColorSystem) -> str:
    if not line.spans:
        return line.plain
    return "".join(
        [
            segment.style.render(segment.text, color_system=colours) if segment.style else segment.text
            for segment in line.render(_console())
        ]
    )
