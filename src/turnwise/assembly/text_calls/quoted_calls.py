"""Whole calls that stand in a text as they were written.

Such a call is compared as a whole: it is the call that the model writes now, or it is another one. In the second case no part of
it may complete a quotation together with what stands around it, so only its values stay in the text, each by itself.
"""

import json
import re
from collections.abc import Iterator

import msgspec

from turnwise.assembly.text_calls.block_cursor import BlockReading, ReadCall, read
from turnwise.assembly.text_calls.comparison import BARRIER, tokens_of, without_escapes
from turnwise.assembly.text_calls.syntaxes import BY_MARKER, CLOSING, MARKERS, Syntax
from turnwise.assembly.text_calls.values import OfferedTools

# A call as a tool shows it, with something of the tool's own between its lines, read as it was written.
#
# Text between two marks of the syntax itself, where the syntax has only a line's end, is the tool's. The same text is left out
# between all lines. If any line is shown otherwise, the tool's part cannot be told, and the call is not read.


_NAME = r"(?:[A-Za-z_][\w.:-]*)?"
_TAG = re.compile(
    r"(?P<value><parameter=[^<>\n]{1,128}>|<arg_(?:key|value)>|<(?:｜DSML｜)?parameter name=[^<>\n]{1,160}>)"
    r"|(?P<closed></(?:｜DSML｜)?parameter>|</arg_(?:key|value)>)"
    rf"|(?P<call><tool_call>{_NAME}|</tool_call>|</?function(?:=[^<>\n]{{1,128}})?>|</?(?:｜DSML｜)?invoke(?: [^<>\n]{{1,160}})?>"
    r"|</?minimax:tool_call>|</?｜DSML｜(?:function|tool)_calls>"
    rf"|<｜tool▁call▁begin｜>function<｜tool▁sep｜>{_NAME}|```json|```<｜tool▁call▁end｜>)"
)
_WORDS = re.compile(r"tool.?call|function|parameter|invoke|arg_|DSML|name=")
_MOST_TAGS = 2_000  # of one call
_MOST_BETWEEN = 600  # characters between two lines
_MOST_KINDS = 4  # ways in which one tool parts lines
_PIECES = re.compile(r"\d+|[ \t\r]*\n\s*|[ \t\r]+|[^\d\s]+")
_BLANKS = r"[ \t\r]{0,200}"  # of a row of many blanks no more are read at each of them
_SEEN = "\x1e"
# What line breaks become in JSON: an escape, or the end of a record and the beginning of the next one.
_OF_JSON = re.compile(r'\\n|"[ \t]*[}\]][ \t]*,[ \t]*[{\[]')
_JSON_BEGINS = re.compile(r"[\[{](?=[ \t]*(?:\"|\{|\Z|[\r\n]))")


def as_written(text: str, *, end: int) -> str | None:
    """The call that begins the text and ends at `end`, without what a tool shows between its lines; None where that is not
    known."""
    shown = text[:end]
    if "\n" not in shown:
        return None
    between = _between_lines(shown)
    if not between:
        return None
    parts = re.compile("|".join(sorted(map(_pattern, between), key=len, reverse=True)))
    written = parts.sub(_SEEN, shown.replace(_SEEN, " "))
    return None if "\n" in written else written.replace(_SEEN, "\n")


def _between_lines(shown: str) -> set[str]:
    """What stands between the marks of the call; nothing where a value may hold such marks."""
    kinds: dict[str, str] = {}
    last, is_value = None, False
    for count, tag in enumerate(_TAG.finditer(shown)):
        if count == _MOST_TAGS or (is_value != (tag["closed"] is not None)):
            return set()
        if last is not None and not is_value:
            gap = shown[last : tag.start()]
            pieces = _around_json(gap) if "{" in gap or "[" in gap else [gap]
            for piece in pieces:
                if len(piece) > _MOST_BETWEEN:
                    return set()
                if "\n" in piece:
                    kinds.setdefault(re.sub(r"\d+", "0", "".join(piece.split(" "))), piece)
        last, is_value = tag.end(), tag["value"] is not None
    between = list(kinds.values())
    if len(between) > _MOST_KINDS or any(_WORDS.search(one) is not None for one in between):
        return set()
    # One that holds another has a line in it, such as a tag that a line's end has parted.
    patterns = [re.compile(_pattern(one)) for one in between]
    is_whole = [
        len(parts.findall(one)) <= (one is other)
        for one in between
        for other, parts in zip(between, patterns, strict=True)
    ]
    return set(between) if all(is_whole) else set()


def _around_json(gap: str) -> list[str]:
    """What stands before and behind the JSON between two marks."""
    begin, end = _JSON_BEGINS.search(gap, gap.find("\n") + 1), max(gap.rfind("}"), gap.rfind("]"))
    return [gap] if begin is None or end <= begin.start() else [gap[: begin.start()], gap[end + 1 :]]


def _pattern(piece: str) -> str:
    """Finds the same with other numbers and other blanks."""
    return "".join([_of(one) for one in _PIECES.findall(piece)])


def _of(piece: str) -> str:
    if "\n" in piece:
        return _BLANKS + rf"\n{_BLANKS}" * piece.count("\n")
    if piece.isspace():
        return _BLANKS
    return r"\d+" if piece[0].isdigit() else re.escape(piece)


_MOST_CALLS = 50_000  # of one text; beyond it the text stays as it is
_MOST_DEPTH = 3  # calls in values of calls, strings in strings
_WORD = re.compile(r"[A-Za-z_]+")
# What a backslash stands before begins no string, so that no row of such marks is read more than once.
_STRING = re.compile(r'\\.|"(?:[^"\\\n]|\\.)*+"')
# What chat templates write behind a message may follow directly.
_LINE_ENDS = re.compile(r"[ \t\r]*(?:\n|\Z)|<[|/]")
# Differences that a tool makes within a value: blanks, the breaks of long lines, the header of a page, bold type,
# quotation marks that CSV and SQL double.
_BREAK = re.compile(r"[=\\]?\r?\n")
_EDGE = r"[-\u2013\u2014 \t]{0,9}"
_BLANK_LINE = r"\n[ \t\r]{0,99}\n"  # one of a row; the rest are blanks
_PAGE = re.compile(
    rf"(?:\A|{_BLANK_LINE}){_EDGE}(?:(?:[^\n]{{0,200}}\b)?[Pp]age\b[^\n]{{0,20}}\d|\d{{1,5}}){_EDGE}(?:{_BLANK_LINE}|\Z)"
)
_BOLD = re.compile(r"""\*\*|(?<=")"|(?<=')'""")


def calls_of(block: str, *, tools: OfferedTools) -> BlockReading | None:
    """The calls that a block consists of; None where it is no whole block."""
    mark = MARKERS.match(block)
    if mark is None:
        return None
    found = _read(block, syntax=BY_MARKER[mark.group()], tools=tools)
    return found if found is not None and not block[found.end :].strip() else None


def _read(text: str, *, syntax: Syntax, tools: OfferedTools) -> BlockReading | None:
    found = read(syntax.reader, text, at=len(syntax.marker), tools=tools, is_final=True)
    if found.is_enough:
        return msgspec.structs.replace(found, state="whole", end=len(text.rstrip()))
    return found if found.state == "whole" else None


class QuotedCalls:
    """What was told, and the whole calls of one syntax in it. `others`: the same without them, for other blocks."""

    __slots__ = ("_known", "_left", "_syntax", "_tools", "_word", "others")

    def __init__(self, told: list[str], *, syntax: Syntax, tools: OfferedTools) -> None:
        self._syntax = syntax
        self._word = max(_WORD.findall(syntax.marker), key=len)  # of the marker; no escape changes it
        self._tools = tools
        self._known: set[tuple[object, ...]] = set()
        self._left = _MOST_CALLS
        self.others = [self._without_calls(one, depth=0) for one in told]

    def has(self, call: ReadCall, *, syntax: str) -> bool:
        """Whether the call stands there."""
        values = _values(call)
        forms = [*_forms(values), _words_of(values)]
        return not self._known.isdisjoint([(syntax, call.name, form, said) for form, said in forms])

    def _without_calls(self, text: str, *, depth: int) -> str:
        marker = self._syntax.marker
        if depth > _MOST_DEPTH or self._word not in text:
            return text
        kept: list[str] = []
        end, at = 0, text.find(marker)
        while at >= 0 and self._left:
            following = text.find(marker, at + len(marker))
            block = text[at : following if following >= 0 else len(text)]
            found = _read(block, syntax=self._syntax, tools=self._tools)
            if found is None and (shown := self._read_shown(block)) is not None:
                kept += [self._without_strings(text[end:at], depth=depth), BARRIER]
                found, length = shown
                for call in found.calls:
                    self._known.add((found.syntax or self._syntax.name, call.name, *_words_of(_values(call))))
                kept += self._take(found, depth=depth)
                end = at + length
            elif found is not None and self._is_as_written(text, at, at + found.end, is_next=at == end and at > 0):
                kept += [self._without_strings(text[end:at], depth=depth), BARRIER]
                kept += self._take(found, depth=depth)
                end = at + found.end
            self._left -= 1
            at = following
        kept.append(self._without_strings(text[end:], depth=depth))
        return "".join(kept)

    def _read_shown(self, block: str) -> tuple[BlockReading, int] | None:
        """The call that a tool shows with something between its lines, and how long it is there."""
        ends = [at + len(mark) for mark in self._syntax.ends if (at := block.find(mark)) >= 0]
        written = as_written(block, end=min(ends)) if ends else None
        for said in () if written is None else (written, _of_json(written)):
            found = _read(said, syntax=self._syntax, tools=self._tools)
            if found is not None and found.end >= len(said.rstrip()):
                return found, min(ends)
        return None

    def _is_as_written(self, text: str, start: int, end: int, *, is_next: bool) -> bool:
        """Whether no tool has put anything before, between or behind its lines. One line has nothing between, unless it is a
        piece of JSON: where a syntax escapes nothing, its line breaks are not the value's."""
        if "\n" not in text[start:end]:
            return self._syntax.name not in CLOSING or _OF_JSON.search(text, start, end) is None
        line = text.rfind("\n", 0, start) + 1
        return (is_next or not text[line:start].strip(" \t")) and _LINE_ENDS.match(text, end) is not None

    def _take(self, found: BlockReading, *, depth: int) -> Iterator[str]:
        """Note the calls; the values, each behind a barrier."""
        for call in found.calls:
            values = _values(call)
            for form, said in _forms(values):
                self._known.add((found.syntax or self._syntax.name, call.name, form, said))
            for _, value in values:
                yield self._without_calls(without_barriers(value), depth=depth + 1)
                yield BARRIER

    def _without_strings(self, text: str, *, depth: int) -> str:
        """The text without the calls in its JSON strings: records and transcripts hold them so."""
        if depth == _MOST_DEPTH or self._word not in text or '"' not in text:
            return text
        return _STRING.sub(lambda found: self._of_string(found[0], depth=depth + 1), text)

    def _of_string(self, text: str, *, depth: int) -> str:
        if self._word not in text:
            return text
        try:
            said = without_barriers(json.loads(text))
        except ValueError:
            return text
        kept = self._without_calls(said, depth=depth)
        return text if kept == said else BARRIER.join(map(json.dumps, kept.split(BARRIER)))


def _of_json(text: str) -> str:
    """What pieces of JSON strings say; the same text if they are not JSON strings."""
    try:
        return without_barriers(json.loads(f'"{text}"', strict=False))
    except ValueError:
        return text


def without_barriers(text: str) -> str:
    """The text, in which nobody else has put a barrier."""
    return text.replace(BARRIER, " ")


def _values(call: ReadCall) -> list[tuple[str, str]]:
    """The arguments, each as a text."""
    try:
        members = msgspec.json.decode(call.arguments, type=dict[str, object])
    except msgspec.MsgspecError:
        return [("", call.arguments)]
    return [(key, one if isinstance(one, str) else json.dumps(one, ensure_ascii=False)) for key, one in members.items()]


def _forms(values: list[tuple[str, str]]) -> Iterator[tuple[int, frozenset[tuple[str, str]]]]:
    """What two calls have in common if they differ only as a tool may show one and the same."""
    yield 0, frozenset([(_plain(key), _plain(value)) for key, value in values])
    yield 1, frozenset([(_plain(key), _plain(_BREAK.sub("", value))) for key, value in values])
    if any("\n" in value for _, value in values):
        yield 0, frozenset([(_plain(key), _plain(_without_pages(value))) for key, value in values])


def _words_of(values: list[tuple[str, str]]) -> tuple[int, frozenset[tuple[str, str]]]:
    """Equal for two calls that differ only in marks: those may be the tool's."""
    return 2, frozenset([("".join(tokens_of(_plain(key))), "".join(tokens_of(_plain(value)))) for key, value in values])


def _without_pages(value: str) -> str:
    return _PAGE.sub("\n", value) if "\n" in value else value


def _plain(value: str) -> str:
    return " ".join(_BOLD.sub("", without_escapes(value)).split())
