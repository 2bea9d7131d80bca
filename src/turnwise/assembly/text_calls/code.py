"""Where a text stands in code: a fence, backticks within a line, or lines that are indented (CommonMark, "Fenced code blocks",
"Code spans", "Indented code blocks").

A fence is taken for one where a reader would take it so, in lists and quotations too; it ends at a line that holds nothing else.
Backticks count until their like comes or the paragraph ends. Lines behind a blank one that begin with four blanks or a tab are
code, unless they belong to a list, which only all of the text could tell. Where a text can be read in two ways, both are followed
as long as they differ. In doubt it is code, because code is never run. Tags that are open count too (`tags`), and so do lines
that begin with the mark of a quotation.
"""

import copy
import operator
import re
from collections.abc import Callable

from turnwise.assembly.text_calls import tags
from turnwise.assembly.text_calls.tags import OpenTag, OpenTags, Tag

# Pieces that wait to be looked at together: only a mark asks where it stands.
MOST_UNSEEN = 256
# Readings that are followed at once. Of 1,193 pages and sources none had more than two; a text with more is made to be slow.
MOST_READINGS = 4
_MARKS = re.compile(rf"`+|~+|<tool_call>|{tags.PATTERN}", re.IGNORECASE)
_OUTER = "<tool_call>"  # the block that this begins may have another mark within it
# What may stand before a fence on its line: blanks, marks of quotations and of list items, also those that no Markdown knows.
_BEFORE_FENCE = re.compile(r"(?:[ \t>]|[-*+•‣◦▪▫●○·–—][ \t]|\d{1,9}[.)][ \t])*")
# The same, and what may become such a mark with the next piece.
_MAY_BE_BEFORE = re.compile(rf"{_BEFORE_FENCE.pattern}(?:[-*+•‣◦▪▫●○·–—]|\d{{1,9}}[.)]?)?")
# The mark of a quotation or of a list's item, and more blanks than belong to it.
_CODE_IN_ITEM = re.compile(r"(?:[>*+•‣◦▪▫●○·–—-]|\d[.)])(?: {5}| *\t)")
_BLOCKS = "#>*+-_=•‣◦▪▫●○·–—"  # what a line of another block may begin with
_RULE = (
    " \t>=-*_"  # what a line under a heading and a line between two parts consist of (CommonMark, "Setext headings")
)
_INFO = re.compile(r"[ \t]*[\w+#.-]*[ \t]*")  # what may stand behind a fence
_MOST = 64  # characters before a fence, or behind it
_INDENT = 4  # blanks before a line of code


class CodeTracker:
    """Fed with all the text in order, in any pieces. `is_inside` tells of what comes next."""

    __slots__ = (
        "_calls",
        "_follows_return",
        "_is_escaped",
        "_is_lost",
        "_last",
        "_last_bare",
        "_length",
        "_mark",
        "_readings",
        "_slash",
        "unseen",
    )

    def __init__(self) -> None:
        self._readings = [_Reading()]
        self._is_lost = False  # there are too many ways to read the text: all that comes may be code
        self.unseen: list[str] = []  # pieces that were not looked at yet; who has more may add them here
        self._mark = ""  # what the text ends with, if these are fence marks or backticks ...
        self._length = 0  # ... so many ...
        self._is_escaped = False  # ... behind a backslash
        self._slash = False  # the text ends with a backslash that escapes what follows
        self._follows_return = False  # the text ends with `\r`, which ends a line with `\n` and without
        self._last = ""
        self._last_bare = ""
        self._calls = 0  # that stood behind a backtick, so far

    def follow(self) -> "CodeTracker":
        """Another one, for a text that goes on where this one is."""
        self._see(is_all=True)
        other = copy.copy(self)
        other.unseen = []
        other._readings = [copy.copy(one) for one in self._readings]
        return other

    def is_inside(self) -> bool:
        """Whether a mark that comes next is no part of the answer, or may be none."""
        return self.is_in_code() or bool(self.open_tags)

    def is_in_code(self, *, within_outer: bool = False) -> bool:
        """Whether a mark that comes next stands in code or in a quotation, or may do so. `within_outer`: it may belong to a block
        whose first mark stands there."""
        self._see(is_all=True)
        self._end_run()
        return self._is_lost or any(one.is_inside or (within_outer and one.is_outer_inside) for one in self._readings)

    def is_in_span(self) -> bool:
        """Whether what comes next is code only if the backticks before it have their like in what follows."""
        if not self.is_in_code() or self._is_lost:
            return False
        return not any(one.is_inside_otherwise for one in self._readings)

    def is_open(self) -> bool:
        """Whether code stays open if the text ends here: a fence may end with it, and a quotation is not code."""
        self.is_in_code()
        return self._is_lost or any(one.is_open for one in self._readings)

    def add_call(self) -> int:
        """A call stands there. Returns its number, by which `is_quoted` knows it."""
        self._calls += 1
        for one in self._readings:
            one.add_call(self._calls)
        return self._calls

    def is_quoted(self, call: int) -> bool:
        """Whether the backticks before the call have their like behind it, in one of the ways to read the text."""
        self._see(is_all=True)
        self._end_run()
        return self._is_lost or any(call in one.quoted for one in self._readings)

    def begin_message(self) -> "CodeTracker":
        """Another one, for a text in which nothing is open."""
        other = CodeTracker()
        other._calls = self._calls
        return other

    @property
    def open_tags(self) -> tuple[OpenTag, ...]:
        """The tags that are open where the last question was asked."""
        return next((one.tags.all for one in self._readings if one.tags.all), ())

    @property
    def last(self) -> str:
        """The last character where the last question was asked."""
        return self._last

    @property
    def last_bare(self) -> str:
        """The last character but blanks, where the last question was asked, and the character before it; a line break counts."""
        return self._last_bare

    def give_up(self) -> None:
        """Nobody looks for a call from here on, so all that comes counts as code."""
        self._see(is_all=True)
        self._is_lost = True

    def feed(self, text: str) -> None:
        self.unseen.append(text)
        if len(self.unseen) > MOST_UNSEEN:
            self._see()

    def _see(self, *, is_all: bool = False) -> None:
        """Look at what was fed. `is_all`: what comes next begins with a mark, so that no tag goes on there."""
        text = "".join(self.unseen)
        self.unseen.clear()
        if self._is_lost:
            self._last = text[-1:] or self._last
            return
        if not is_all and (cut := tags.cut_from(text)) < len(text):
            self.unseen.append(text[cut:])
            text = text[:cut]
        before, self._last = self._last, text[-1:] or self._last
        if bare := text.rstrip(" \t"):
            self._last_bare = (before + bare)[-2:]
        if self._follows_return or "\r" in text:
            text = self._plain_breaks(text)
        is_plain = not (
            "`" in text or "~" in text or tags.may_hold(text) or any(one.tags.all for one in self._readings)
        )
        *ended, last = text.split("\n")
        for line in ended:
            if self._is_lost:
                return
            self._see_line(line, is_plain=is_plain, end="\n", before=before)
            self._break_line()
            before = ""
        self._see_line(last, is_plain=is_plain, before=before)

    def _plain_breaks(self, text: str) -> str:
        if not text:
            return text
        rest = text.removeprefix("\n") if self._follows_return else text
        self._follows_return = text[-1] == "\r"
        return rest.replace("\r\n", "\n").replace("\r", "\n")

    def _break_line(self) -> None:
        self._end_run()
        self._slash = False
        if any(one.is_in_span for one in self._readings):
            self._follow(_LATE, lambda one: one.may_open_late)
            self._follow(_BLOCK_ENDS, lambda one: one.may_end_with_heading)
        for one in self._readings:
            one.break_line()
        if len(self._readings) > 1:
            self._join()

    def _see_line(self, line: str, *, is_plain: bool, before: str, end: str = "") -> None:
        """Of a line, or of what came of it; `before` is the character before it."""
        last = 0
        for found in () if is_plain else _MARKS.finditer(line + end):
            if self._is_lost:
                return
            self._words(line[last : found.start()])
            last, mark = found.end(), line[found.start()]
            if mark not in "`~":
                self._see_tag(found, before=line[found.start() - 1] if found.start() else before)
                continue
            if self._mark != mark:
                self._end_run()
                self._mark, self._is_escaped, self._slash = mark, self._slash, False
            self._length += last - found.start()
        self._words(line[last:])

    def _see_tag(self, found: re.Match[str], *, before: str) -> None:
        self._end_run()
        if found.group().lower() == _OUTER:
            are_inside = [one.is_inside for one in self._readings]
            self._words(found.group())
            for one, is_inside in zip(self._readings, are_inside, strict=True):
                one.is_outer_inside = is_inside
            return
        if not tags.is_of_a_program(found, before=before):
            tag = tags.tag_of(found)
            for one in self._readings:
                one.tag(tag)
        self._words(found.group())

    def _words(self, text: str) -> None:
        if not text:
            return
        self._end_run()
        slashes = len(text) - len(text.rstrip("\\"))
        self._slash = (slashes + (self._slash and slashes == len(text))) % 2 == 1
        if (bare := text.lstrip(" \t")[:1]) and _may_begin_block(bare):
            self._follow(_BLOCK_ENDS, lambda one: one.may_end_with_block)
        for one in self._readings:
            one.words(text)

    def _end_run(self) -> None:
        mark, length, self._mark, self._length = self._mark, self._length, "", 0
        if not mark:
            return
        self._follow(_INDENTED, _Reading.is_indented_at_mark)
        if self._is_escaped:
            self._follow(_ESCAPES, _Reading.is_in_words)
        for one in self._readings:
            one.mark(mark, length, is_escaped=self._is_escaped)

    def _follow(self, way: int, is_in_doubt: "Callable[[_Reading], bool]") -> None:
        """Where a reading is in doubt, both ways."""
        for one in [*self._readings]:
            if 0 < (taken := one.ways & way) < one.ways and is_in_doubt(one):
                self._readings.append(one.part(taken))
                self._is_lost = self._is_lost or len(self._readings) > MOST_READINGS

    def _join(self) -> None:
        """Readings that have come to the same are one from here on."""
        joined: dict[object, _Reading] = {}
        for one in self._readings:
            if (like := joined.setdefault(_state(one), one)) is not one:
                like.ways |= one.ways
        self._readings = [*joined.values()]


# How a reading takes what may be taken in two ways. Each bit stands for one way to take all four; a reading has the bits of all
# that it stands for.
_ALL_WAYS = 0xFFFF
_INDENTED = 0xAAAA  # marks in a line that is code for its blanks are words of it
_ESCAPES = 0xCCCC  # a backtick behind a backslash is a word
_BLOCK_ENDS = 0xF0F0  # a line that begins as a heading, an item or a quotation ends a span
_LATE = 0xFF00  # a fence may begin behind words, if nothing but its language follows


class _Reading:
    """One way to read the text."""

    __slots__ = (
        "_before",
        "_behind",
        "_closing",
        "_columns",
        "_ends_html",
        "_fence",
        "_info",
        "_is_heading",
        "_is_indented",
        "_is_quoted",
        "_is_rule",
        "_line",
        "_may_indent",
        "_outer",
        "_pending",
        "_span",
        "is_outer_inside",
        "quoted",
        "tags",
        "ways",
    )

    def __init__(self) -> None:
        self.ways = _ALL_WAYS
        self._fence: tuple[str, int] | None = None
        self._before = ""  # what stands before it on its line
        self._info = False  # on the line that opened the fence
        self._closing = False  # the line may close the fence, if nothing else follows on it
        self._span = 0  # backticks that opened a span
        self._outer = 0  # those that had opened one before the fence
        self._pending: frozenset[int] = frozenset()  # calls in the span, which may have no end
        self.quoted: frozenset[int] = frozenset()  # calls in spans that have one
        self._behind: str | None = (
            None  # what stands on the line behind these, if they are three or more and nothing forbids
        )
        self._line: str | None = ""  # the line so far; None where no fence can begin any more
        self._columns: int | None = 0  # blanks that the line begins with; None behind them
        self._is_indented = False  # the line is code for its blanks
        self._may_indent = True  # such a line may begin here: where no paragraph goes on
        self._is_heading = False
        self._is_rule = True  # the line has nothing but a rule
        self._ends_html = False  # the line ends a block of HTML
        self._is_quoted = False  # the line begins with the mark of a quotation
        self.is_outer_inside = False  # a mark stands in code, and nothing but blanks follow it
        self.tags = OpenTags()

    def part(self, ways: int) -> "_Reading":
        """Another reading, which takes these of the ways; this one keeps the others."""
        other = copy.copy(self)
        other.ways = ways
        self.ways &= ~ways
        return other

    @property
    def is_inside(self) -> bool:
        return self._span > 0 or self.is_inside_otherwise

    @property
    def is_inside_otherwise(self) -> bool:
        """Whether what comes next is code or a quotation, whatever backticks stand before it."""
        is_quoted = self._is_quoted or (self._line is not None and ">" in self._line)
        return self._is_in_fence() or is_quoted or self.is_indented_at_mark()

    @property
    def is_open(self) -> bool:
        return self._span > 0 or (self._is_in_fence() and not self._closing) or self.is_indented_at_mark()

    def _is_in_fence(self) -> bool:
        """A quotation that ends takes its fence with it (CommonMark, "Block quotes", examples 237 and 238)."""
        if self._fence is None or self._info or self._line is None:
            return self._fence is not None
        return self._line.count(">") >= self._before.count(">")

    def add_call(self, number: int) -> None:
        if self._span:
            self._pending |= {number}

    def is_indented_at_mark(self) -> bool:
        """Whether what comes next stands in a line that is code for its blanks, if it is no blank."""
        if self._is_in_fence():
            return False
        return self._is_indented or self._begins_code() or self._is_code_in(self._line)

    def is_in_words(self) -> bool:
        return self._fence is None and not self._span

    @property
    def is_in_span(self) -> bool:
        return self._span > 0

    @property
    def may_end_with_heading(self) -> bool:
        return self._span > 0 and self._is_heading

    @property
    def may_end_with_block(self) -> bool:
        """Whether a span ends with what comes next, if that begins another block."""
        return self._span > 0 and self._columns is not None

    @property
    def may_open_late(self) -> bool:
        return self._span > 0 and self._behind is not None

    def tag(self, tag: Tag) -> None:
        """A tag comes next."""
        if self.is_in_words() and not self.is_indented_at_mark():
            begins_line = self._line is not None and not self._line.strip(" ")
            self.tags = self.tags.behind(tag, begins_line=begins_line)
            self._ends_html = self._ends_html or (tag.is_closing and tag.name in tags.RAW)

    def words(self, text: str) -> None:
        self._see_blanks(text)
        self._is_rule = self._is_rule and not text.strip(_RULE)
        if self.is_outer_inside and text.strip():
            self.is_outer_inside = False
        if self._closing and text.strip():
            self._closing = False
        if self._line is not None:
            line = self._line + text[: _MOST + 1]
            before = None
            if len(line) > _MOST or not _MAY_BE_BEFORE.fullmatch(line):
                before = _BEFORE_FENCE.match(line)
                self._is_indented = self._is_indented or self._is_code_in(before and before.group())
                self._is_quoted = before is not None and ">" in before.group()
                line = None
            if line is None and self._fence is not None and not self._info:
                is_over = before is not None and before.group().count(">") < self._before.count(">")
                self._fence = None if is_over else self._fence
            self._line = line
        if self._behind is not None:
            behind = self._behind + text[: _MOST + 1]
            self._behind = behind if len(behind) <= _MOST and _INFO.fullmatch(behind) else None

    def break_line(self) -> None:
        is_blank = self._line is not None and not self._line.strip(" \t>")
        if is_blank and not self._is_in_fence():
            self._fence = None
        is_empty = self._line is not None or self._columns is not None  # but for marks of items
        is_over = self._is_heading or self._closing or self._is_rule or self._ends_html
        self._may_indent = is_empty or is_over or self._is_indented
        if self.ways & _LATE and self.may_open_late:
            self._fence, self._before, self._span = ("`", self._span), "", 0
        if self._closing:
            self._fence, self._closing = None, False
        if is_blank or (self.ways & _BLOCK_ENDS and self._is_heading):
            self._span, self._pending = 0, frozenset()
        self._columns, self._is_indented, self._is_heading, self._is_quoted = 0, False, False, False
        self._is_rule, self._ends_html = True, False
        self._info, self._behind = False, None
        self._line = ""
        if self._fence is None:
            self._before, self._outer = "", 0
        else:
            self._may_indent = True  # nothing asks within a fence

    def mark(self, mark: str, length: int, *, is_escaped: bool) -> None:
        """Fence marks or backticks, all of them."""
        self._see_blanks(mark)
        self._is_rule = False
        self._is_indented = self._is_indented or self._is_code_in(self._line)
        self._is_quoted = self._is_quoted or (self._line is not None and ">" in self._line)
        self.is_outer_inside = False
        if self.tags.is_raw:
            self._line = None
            return
        line = self._line if self._line is not None and _BEFORE_FENCE.fullmatch(self._line) else None
        self._line = self._behind = None
        if self._is_indented and self.ways & _INDENTED:
            return
        if is_escaped and self.ways & _ESCAPES and self.is_in_words():
            length -= 1
        if self._fence is not None:
            if self._info and mark == "`" == self._fence[0]:  # no fence: backticks within a line
                opened, self._fence, self._info, self._span = self._fence[1], None, False, self._outer
                self._mark_in_words(opened)
                self._mark_in_words(length)
                self._behind = None
            elif line is not None and length >= 3 and line.count(">") < self._before.count(">"):
                self._open(mark, length, before=line)  # the quotation is over, and its fence with it
            elif not self._info and line is not None and mark == self._fence[0] and length >= self._fence[1]:
                self._closing = self._may_close(line)
            else:
                self._closing = False
        elif line is not None and length >= 3:
            self._outer, self._span = self._span, 0
            self._open(mark, length, before=line)
        elif mark == "`":
            self._mark_in_words(length)

    def _open(self, mark: str, length: int, *, before: str) -> None:
        self._fence, self._info, self._closing, self._before = (mark, length), True, False, before

    def _may_close(self, before: str) -> bool:
        """Not as an item of a list, in another quotation, or as a line of code."""
        is_same = before.count(">") == self._before.count(">") and not before.strip(" \t>")
        return is_same and _width(before) < _width(self._before) + _INDENT

    def _mark_in_words(self, length: int) -> None:
        if not self._span:
            self._span = length
            self._behind = "" if length >= 3 else None
        elif self._span == length:
            self._span = 0
            self.quoted |= self._pending
            self._pending = frozenset()

    def _see_blanks(self, text: str) -> None:
        if self._columns is None:
            return
        bare = text.lstrip(" \t")
        blank = text[: len(text) - len(bare)]
        self._columns += _width(blank)
        if bare:
            self._is_indented = self._begins_code()
            self._is_heading = bare[0] == "#"
            if self.ways & _BLOCK_ENDS and (_may_begin_block(bare[0])):
                self._span, self._pending = 0, frozenset()
            self._columns = None

    def _begins_code(self) -> bool:
        is_indented = self._columns is not None and self._columns >= _INDENT
        return is_indented and self._may_indent and not self._is_in_fence()

    def _is_code_in(self, before: str | None) -> bool:
        """Whether what stands before the line's words makes them code in an item or a quotation."""
        return bool(before) and self.is_in_words() and _CODE_IN_ITEM.search(before) is not None


# All but the ways: what comes next is read alike by readings of one state, as far as nothing is in doubt.
_state = operator.attrgetter(*[name for name in _Reading.__slots__ if name != "ways"])


def _may_begin_block(character: str) -> bool:
    return character in _BLOCKS or character.isdigit()


def is_indented(blanks: str) -> bool:
    """Whether the last line of these blanks is as wide as that of code."""
    return _width(re.split(r"[\r\n]", blanks)[-1]) >= _INDENT


def _width(blanks: str) -> int:
    return len(blanks) + (_INDENT - 1) * blanks.count("\t")
