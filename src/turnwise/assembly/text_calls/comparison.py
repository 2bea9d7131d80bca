"""Whether a block stands in a text, compared by its words and brackets.

A way of showing a file puts something between its lines, and hardly anything within one. So within a line the block's tokens have
to stand directly one behind the other; only tags and the break of a long line may come between. Between two lines anything of
limited length may stand. A gap never reaches over another beginning of such a block, so that the parts of two quoted calls do not
make a third.
"""

import html
import re
import unicodedata
from collections.abc import Sequence
from enum import IntEnum
from typing import NamedTuple

# Words of one kind of character, brackets, and other signs that are no marks of a tool or a terminal. An equals sign that ends a
# line is the soft break of quoted-printable.
_TOKEN = re.compile(
    r"\d+|[^\W\d]+|[<\[({})\]\x1d]|=(?![ \t]{0,8}\n)"
    r"|[^\x00-\x7f\s\xab\xb6\xb7\xbb\u2000-\u206f\u2190-\u21ff\u2400-\u243f\u2500-\u259f\ufe0e\ufe0f\uff5c\ufffd]"
)
_TAG_OR_MARK = r"(?:[^\w<\[({})\]]|<[^<>]{0,200}>)"
_TAGS = re.compile(f"{_TAG_OR_MARK}*")
BARRIER = "\x1d"  # in the text; no block reaches over it
LINE_END = "\n\x1e"  # of the block's own lines; an escape that says a line's end becomes a bare one
_BRACKETS = frozenset("[](){}")
_CLOSING = re.compile(r"[\])}>]")
_NUMBERED = re.compile(r"\d[\"']?[ \t]*:")  # as members of a JSON object
_OPENING = re.compile(r"[\[({<]")
# What touches a line, with at most marks between: `docs/a.md:12:`, but no string's quotation mark and no bracket.
_MARKS_OF_GLUE = 8
_GLUED_BEHIND = re.compile(r"[^\s\w\"'`<>\[\](){}]{0,8}\w")
_GLUED_BEFORE = re.compile(r"\w[^\s\w\"'`<>\[\](){}]{0,8}\Z")
_BARE = re.compile(r"[ \t\r]*\n")  # the line ends without more
_MOST_BETWEEN_LINES = 64  # words: fields of a record, lines of another log
_MOST_LINES = 2  # the next line of the text, or the line that an escape ends there and the next, may begin with more:
_MOST_BETWEEN_NEAR_LINES = 4_096  # a record of `rg --json` names each of its line's matches
_MOST_IN_A_BREAK = 8  # of a long line: a number, a name, the next cell of a table
_MOST_IN_A_RECORD = 16
_MOST_MARKUP = 2_000  # characters of tags between two tokens
_FEW = 7  # tokens: so few stand near each other by chance, so that within their lines nothing may come between
_BEGINNING = 4  # tokens by which another beginning is known


class _Joint(IntEnum):
    """What stands between two tokens of the block."""

    WORD = 0  # nothing: they are one word
    MARKS = 1
    BLANK = 2  # or the edge of a tag or an object; it may have been a line's end before the block was quoted
    LINE = 3


class _Token(NamedTuple):
    text: str
    joint: _Joint  # before it
    is_last: bool  # of its line, and touches the line's end
    is_first: bool
    lines: int  # that end before it, blank ones too; at least 1


class _Place(NamedTuple):
    """How far the block was followed, where in the text that ended, and whether words touched its lines behind or before them."""

    token: int  # the next one
    offset: int  # in it
    end: int
    words: int  # of the text, up to there
    tokens: int
    lines: int
    start: int  # of the block
    behind: bool | None = None  # None: no line has shown it yet
    before: bool | None = None


def is_word(token: str) -> bool:
    return token[0].isalnum() or token[0] == "_"


def tokens_of(text: str) -> list[str]:
    return [found[0] for found in _TOKEN.finditer(text)]


def beginning_of(tokens: Sequence[str]) -> re.Pattern[str]:
    """Finds where a block may begin: its first bracket and the word behind it, of which a line's end may have cut a part off."""
    first, *rest = [_piece(token) if is_word(token) else re.escape(token) for token in tokens[:2]]
    return re.compile(f"{first}(?={_TAG_OR_MARK}{{0,64}}?{rest[0]})" if rest else first)


def _piece(word: str) -> str:
    word = word[:64]
    more = "".join([f"(?:{re.escape(one)}" for one in word[1:]])
    return re.escape(word[0]) + more + ")?" * (len(word) - 1) + (r"(?!\d)" if word[0].isdigit() else r"(?![^\W\d])")


def inner_words_of(block: str) -> list[str]:
    """The words of a block each of which a text that holds it has by itself, as a whole or in pieces. A text may have joined the
    last word of a line and the first word of the next, and of the block's first and last words it may hold more."""
    tokens = _read_block(block)
    return [
        token.text
        for before, token, behind in zip(tokens, tokens[1:], tokens[2:], strict=False)
        if is_word(token.text)
        and not (token.joint is _Joint.LINE and is_word(before.text))
        and not (behind.joint is _Joint.LINE and is_word(behind.text))
    ]


def _read_block(text: str) -> list[_Token]:
    tokens: list[_Token] = []
    found = list(_TOKEN.finditer(text))
    for at, token in enumerate(found):
        between = text[found[at - 1].end() : token.start()] if at else ""
        ahead = text[token.end() : token.end() + 1 + len(LINE_END)].removeprefix(">")
        joint = _joint(found[at - 1][0], between, token[0]) if at else _Joint.MARKS
        lines = max(1, between.count("\n"))
        tokens.append(_Token(token[0], joint, ahead[: len(LINE_END)] == LINE_END, between.endswith(LINE_END), lines))
    return tokens


def _later_beginnings(tokens: Sequence[str], *, length: int) -> frozenset[int]:
    """The tokens of a block of several calls at which one of them begins again."""
    first = tokens[:length]
    begun = [at for at in range(1, len(tokens)) if tokens[at] == first[0] and tokens[at : at + length] == first]
    return frozenset([at + offset for at in begun for offset in range(length + 1)])


def _joint(last: str, between: str, token: str) -> _Joint:
    if "\n" in between:
        return _Joint.LINE
    if token in "<}" or last in "{}" or ">" in between or any(map(str.isspace, between)):
        return _Joint.BLANK
    return _Joint.WORD if not between and is_word(last) and is_word(token) else _Joint.MARKS


class BlockComparison:
    """One block beside one text. Neither has escapes; `LINE_END` ends the block's lines."""

    __slots__ = (
        "_begins",
        "_begun",
        "_block",
        "_bracket",
        "_has_lines",
        "_line",
        "_lines",
        "_near_reach",
        "_own_beginnings",
        "_reach",
        "_text",
        "_tokens",
        "_waiting",
        "_words",
        "steps",
    )

    def __init__(self, block: str, text: str) -> None:
        self._block = _read_block(block)
        self._begins = min(_BEGINNING, len(self._block) - 1)
        self._own_beginnings = _later_beginnings([token.text for token in self._block], length=self._begins)
        self._has_lines = LINE_END in block
        self._text = text
        self._waiting: dict[str, list[_Place]] = {}  # by the character that has to come next
        # The words at which no place can go on, and the words and lines up to which one on a near line can.
        self._reach, self._near_reach = -1, (-1, -1)
        self._begun = -1  # where the last beginning began
        self._words = self._tokens = self._lines = 0  # of the text so far
        self._line = self._bracket = -1  # where the text so far had the last one
        self.steps = 0

    def finds(self, begins: Sequence[int], *, most: int) -> bool:
        """Whether the block stands in the text, or more steps are taken than these. `begins`: the places where it may begin."""
        count, following = len(begins), 0
        while following < count:
            at = begins[following]
            self._waiting = {}
            for token in _TOKEN.finditer(self._text, at):
                if following < count and token.start() >= begins[following]:
                    self._wait(_Place(0, 0, token.start(), self._words, self._tokens, self._lines, token.start()))
                    while following < count and begins[following] < token.end():
                        following += 1
                if self._take(token, came=at) or self.steps > most:
                    return True
                at = token.end()
                if self._words > self._reach and not (
                    self._words <= self._near_reach[0] and self._lines <= self._near_reach[1]
                ):
                    break
        return False

    def _wait(self, place: _Place) -> None:
        token = self._block[place.token]
        self._waiting.setdefault(token.text[place.offset], []).append(place)
        self._reach = max(self._reach, place.words + _MOST_BETWEEN_LINES * token.lines)
        if not place.offset and token.joint >= _Joint.BLANK:
            words, lines = place.words + _MOST_BETWEEN_NEAR_LINES, place.lines + _MOST_LINES * token.lines
            self._near_reach = max(self._near_reach[0], words), max(self._near_reach[1], lines)

    def _is_near(self, place: _Place) -> bool:
        words, token = self._words - place.words, self._block[place.token]
        if words <= _MOST_BETWEEN_LINES * token.lines:
            return True
        is_wide = not place.offset and token.joint >= _Joint.BLANK
        is_next_line = self._lines - place.lines <= _MOST_LINES * token.lines
        return is_wide and is_next_line and words <= _MOST_BETWEEN_NEAR_LINES

    def _take(self, token: re.Match[str], *, came: int) -> bool:
        """Go on with a token of the text from each place that it may follow; whether it was the block's last."""
        self.steps += 1
        if token[0] == BARRIER:
            self._waiting = {}
            return False
        if (lines := self._text.count("\n", came, token.start())) > 0:
            self._lines += lines
            self._line = self._text.rfind("\n", came, token.start())
        first = token[0][0]
        waiting = self._waiting.pop(first, ())
        self.steps += len(waiting)
        kept = [place for place in waiting if self._is_near(place)]
        if kept:
            self._waiting[first] = kept
        after = self._latest([now for place in kept if (now := self._behind(place, token)) is not None])
        self._words += is_word(token[0])
        self._tokens += 1
        if first in _BRACKETS or first == "<":
            self._bracket = token.start()
        for place in after:
            if place.token == len(self._block):
                return True
            self._wait(place)
        if begun := [place.start for place in after if place.token == self._begins and not place.offset]:
            self._forget_those_before(max(begun), kept=token.end())
            self._begun = max(begun)
        return False

    def _latest(self, places: list[_Place]) -> list[_Place]:
        """Of places that differ only in where the block began, the last."""
        latest: dict[tuple[int, int, bool | None, bool | None], _Place] = {}
        for place in places:
            key = place.token, place.offset, place.behind, place.before
            if key not in latest or latest[key].start < place.start:
                latest[key] = place
        return list(latest.values())

    def _behind(self, place: _Place, token: re.Match[str]) -> _Place | None:
        """The place behind the token; None where it is another one, or too much stands before it."""
        now = self._advance(place, token[0])
        if now is None:
            return None
        behind, before = place.behind, place.before
        joint = _Joint.WORD if place.offset else self._block[place.token].joint
        if joint is _Joint.LINE and place.token:
            is_behind, is_before = self._glue(place, token.start())
            if {behind, is_behind} == {True, False} or {before, is_before} == {True, False}:
                return None
            behind, before = is_behind if behind is None else behind, is_before if before is None else before
        elif place.end < token.start() and not self._may_stand_between(place, token.start(), joint=joint):
            return None
        words, tokens = self._words + is_word(token[0]), self._tokens + 1
        return _Place(*now, token.end(), words, tokens, self._lines, place.start, behind, before)

    def _advance(self, place: _Place, token: str) -> tuple[int, int] | None:
        """Where the block goes on behind the token, which may be a part of a word, or two that a line's end had parted."""
        at, offset, block = place.token, place.offset, self._block
        while True:
            rest = block[at].text[offset:]
            if rest == token:
                return at + 1, 0
            if rest.startswith(token):
                return at, offset + len(token)
            if not token.startswith(rest):
                return None
            token, at, offset = token[len(rest) :], at + 1, 0
            if at == len(block):  # only a block that was cut ends within a word
                return at, 0
            if block[at].joint is not _Joint.LINE:
                return None

    def _glue(self, place: _Place, start: int) -> tuple[bool | None, bool | None]:
        """Whether a word touches the line that ended, and the line that begins. None where other marks of the block may stand,
        and where words stand that do not touch it."""
        last, first = self._block[place.token - 1], self._block[place.token]
        if self._words == place.words:
            return (False if last.is_last else None), (False if first.is_first else None)
        ahead = self._text[place.end : place.end + 1 + _MARKS_OF_GLUE + 1].removeprefix(">")
        back = self._text[max(place.end, start - _MARKS_OF_GLUE - 1) : start]
        is_behind = None
        if last.is_last:
            is_behind = True if _GLUED_BEHIND.match(ahead) is not None else False if _BARE.match(ahead) else None
        before = first.is_first and _GLUED_BEFORE.search(back) is not None
        return is_behind, before or None

    def _may_stand_between(self, place: _Place, start: int, *, joint: _Joint) -> bool:
        """Whether a tool may have put what follows the place into a line."""
        words, is_broken = self._words - place.words, self._line >= place.end
        if self._tokens == place.tokens:
            return joint is not _Joint.WORD or is_broken
        if is_broken and words <= _MOST_IN_A_BREAK and self._bracket < place.end:
            return True
        if len(self._block) < _FEW:
            return False
        if is_broken and joint is _Joint.BLANK and not self._is_end_of_a_longer_one(start):
            return True
        if start - place.end > _MOST_MARKUP:
            return False
        gap = self._text[place.end : start]
        self.steps += 1 + len(gap) // 64
        if _TAGS.fullmatch(gap) is not None:
            return joint is not _Joint.WORD or "<" in gap
        if joint is not _Joint.BLANK or words > _MOST_IN_A_RECORD:
            return False
        if _GLUED_BEHIND.match(gap) is not None or _GLUED_BEFORE.search(gap[-_MARKS_OF_GLUE - 1 :]) is not None:
            return False
        closed = _CLOSING.search(gap)
        is_number = _NUMBERED.search(gap) is not None and not any(map(str.isalpha, gap))
        return is_number or (closed is not None and _OPENING.search(gap, closed.end()) is not None)

    def _is_end_of_a_longer_one(self, start: int) -> bool:
        """Whether a word touches the one that begins here although the block has its own lines. Then no block has begun here."""
        if not self._has_lines or self._text[start] in _BRACKETS or self._text[start] == "<":
            return False
        return _GLUED_BEFORE.search(self._text[max(0, start - _MARKS_OF_GLUE - 1) : start]) is not None

    def _forget_those_before(self, start: int, *, kept: int) -> None:
        """A block begins here, so no place of an earlier one reaches over its beginning, unless it has this beginning in it.

        The end mark of a beginning may come again (a bracket in the tags of a page): then a place that contains it may be
        further on.
        """
        since = min(self._own_beginnings) if self._own_beginnings and start == self._begun else len(self._block)
        for first, places in self._waiting.items():
            self.steps += len(places)
            self._waiting[first] = [
                place
                for place in places
                if place.start >= start
                or place.end == kept
                or place.token in self._own_beginnings
                or place.token >= since
            ]


# A text without its escapes, so that the same words compare equal however a tool or a server has written them.
#
# Bytes in any notation first become the characters of the same number; where these are UTF-8, they are read as such. Two texts
# that say the same are changed in the same way, so it does no harm if something is read that was no escape.


_ROUNDS = 4  # escapes of different kinds within each other; those of one kind are read at once
_COLOURS = re.compile(r"\x1b(?:\[[0-9;:?]*[A-Za-z]|\][^\x07\x1b]*(?:\x07|\x1b\\?))")
_UNSEEN = re.compile("[\u00ad\u200b-\u200f\u2060\ufeff]+")
_UNSEEN_IN_CODES = re.compile("[\u200b-\u200f\u2060\ufeff]+")  # a soft hyphen may be a byte of UTF-8
_HALVES = re.compile(r"[\ud800-\udfff]")
_UTF8 = re.compile("[\xc2-\xdf][\x80-\xbf]|[\xe0-\xef][\x80-\xbf]{2}|[\xf0-\xf4][\x80-\xbf]{3}")
# `cat -v`: M-^A is byte 0x81, M-b is 0xe2. A backslash may be doubled. One byte alone is no UTF-8.
_META = re.compile(r"M-(?:\^\\{1,16}|\^[@-_?]|\\{1,16}|[ -~])(?:M-(?:\^\\{1,16}|\^[@-_?]|\\{1,16}|[ -~]))+")
_META_BYTE = re.compile(r"M-(\^?)(\\+|.)")
_CARETS = re.compile(r"\^[IJKLM]")
_SLASHES = re.compile(r"\\{2,}")
_CODES = re.compile(
    r"\\(?:u([0-9a-fA-F]{4})|[ux]\{([0-9a-fA-F]{1,6})\}|U([0-9a-fA-F]{8})|x([0-9a-fA-F]{2})"
    r"|([0-3][0-7]{2})|N\{([A-Za-z0-9 -]{1,99})\})"
)
_BREAKS = re.compile(r"\\[nr]|\r\n?")
_BLANKS = re.compile(r"\\[abeftv]")
_LONE_SLASHES = re.compile(r"\\(?![0-9A-Za-z])")
_AMPERSANDS = re.compile(r"&(?:amp;)+")
_PERCENTS = re.compile(r"%(?:25)+")
_PERCENT_CODES = re.compile(r"%(?:u([0-9a-fA-F]{4})|([0-9a-fA-F]{2}))")
# Quoted-printable. `=12` and its like also stand in code, so only what no code has is read.
_EQUALS = re.compile(r"=(?:3D)+")
_BROKEN_BYTES = re.compile(r"=\r?\n(?==[89A-F][0-9A-F])")
_EQUALS_CODES = re.compile(r"=([89A-F][0-9A-F])")
_EQUALS_BLANKS = re.compile(r"=(?:20|09)(?=\r?$)", re.MULTILINE)
# As `less` and R show what they cannot draw.
_POINTED = re.compile(r"<(?:U\+([0-9a-fA-F]{4,6})|([89a-fA-F][0-9a-fA-F]))>")
# Codes of ASCII's letters, digits and lower line, and of the marks that begin or end another escape. Bytes that are no ASCII hide
# no name, and a code of a blank or of a bracket stands in many plain texts.
_HEX = r"(?:2[356]|3[0-9ab]|[46][1-9a-f]|[57][0-9abdf])"
_HIDING = re.compile(
    rf"\\(?:u00|[ux]\{{0{{0,4}}|U000000|x){_HEX}|\\N\{{|\\(?:043|045|046|0[67][0-7]|1[0-7]{{2}})"
    rf"|%(?:25)*(?:u00)?{_HEX}|&(?:amp;)*(?:#|lowbar|UnderBar)|<U\+0{{0,4}}{_HEX}>|[\xad\u200b-\u200f\u2060\ufeff]",
    re.IGNORECASE,
)
_NEAR = 1_000  # characters around an escape in which the rest of a name may stand


def hidden_parts(text: str) -> str:
    """The parts of the text where escapes, or characters that nobody sees, may keep a name from being found."""
    parts: list[str] = []
    begin = end = 0
    for found in _HIDING.finditer(text):
        if found.start() - _NEAR > end:
            parts.append(text[begin:end])
            begin = found.start() - _NEAR
        end = found.end() + _NEAR
    parts.append(text[begin:end])
    return "\n".join(parts)


def without_escapes(text: str) -> str:
    for _ in range(_ROUNDS):
        before, text = text, _read_once(text)
        if text == before:
            break
    return text


def _read_once(text: str) -> str:
    if not text.isascii():  # before the rest, because these may stand within an escape
        text = _UNSEEN_IN_CODES.sub("", text)
    if "\x1b" in text:
        text = _COLOURS.sub("", text)
    if "M-" in text:  # before the backslashes, because one may belong to it
        text = _META.sub(_of_meta, text)
    if "\\" in text or "\r" in text:
        text = _LONE_SLASHES.sub("", _without_backslashes(text))
    if "&" in text:
        text = html.unescape(_AMPERSANDS.sub("&", text))
    if "%" in text:
        text = _PERCENT_CODES.sub(_of_code, _PERCENTS.sub("%", text))
    if "=" in text:
        text = _EQUALS_BLANKS.sub("", _BROKEN_BYTES.sub("", _EQUALS.sub("=", text)))
        text = _EQUALS_CODES.sub(_of_code, text)
    if "<" in text:
        text = _POINTED.sub(_of_code, text)
    if "^" in text:
        text = _CARETS.sub(" ", text)
    if text.isascii():
        return text
    if _HALVES.search(text) is not None:
        text = text.encode("utf-16-le", errors="surrogatepass").decode("utf-16-le", errors="replace")
    return _UNSEEN.sub("", _UTF8.sub(_of_bytes, text))


def _without_backslashes(text: str) -> str:
    text = _CODES.sub(_of_backslash, _SLASHES.sub(r"\\", text))
    return _BLANKS.sub(" ", _BREAKS.sub("\n", text))


def _of_backslash(found: re.Match[str]) -> str:
    if (octal := found[5]) is not None:
        return chr(int(octal, 8))
    if (name := found[6]) is not None:
        try:
            return unicodedata.lookup(name)
        except KeyError:
            return found[0]
    return _of_code(found)


def _of_code(found: re.Match[str]) -> str:
    code = int(next(filter(None, found.groups())), 16)
    return chr(code) if code <= 0x10FFFF else ""


def _of_bytes(found: re.Match[str]) -> str:
    return found[0].encode("latin-1").decode(errors="replace")


def _of_meta(found: re.Match[str]) -> str:
    """What the bytes say; the same text where they are no UTF-8, such as the names of keys."""
    codes = [ord(key[0]) ^ (0x40 if caret else 0) for caret, key in _META_BYTE.findall(found[0])]
    try:
        return bytes([0x80 | code for code in codes]).decode()
    except UnicodeDecodeError:
        return found[0]
