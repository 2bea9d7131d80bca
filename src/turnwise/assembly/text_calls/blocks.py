"""A block that is a call, or several."""

import re

import msgspec

from turnwise.assembly.json_text import join_halves
from turnwise.assembly.text_calls import json_calls, pythonic
from turnwise.assembly.text_calls import tags as endings
from turnwise.assembly.text_calls.block_cursor import NAME, Beyond, BlockReading, ReadCall, read
from turnwise.assembly.text_calls.syntaxes import BY_MARKER, CLOSING, LONGEST_END, MARKERS, Syntax
from turnwise.assembly.text_calls.values import OfferedTools

# Where a block ends that is no whole call. What stands behind it is the answer, and none of it is lost.


_WORD = re.compile(r"[^\W\d_]+\Z")
# Brackets behind a mistake that are looked at for the last one of the call. A text of nothing but such blocks would be read as
# often as it has blocks.
MOST_BRACKETS = 4096
_BRACKETS = re.compile(r"[\[({})\]]")
_BLANK_LINE = re.compile(r"\n[ \t]*\n")


def end_mark(text: str, *, syntax: Syntax, behind: int = 0) -> int | None:
    """Behind the first mark that closes such a block, `behind` what was read of it."""
    start = max(len(syntax.marker), behind)
    return min([at + len(one) for one in syntax.ends if (at := text.find(one, start)) >= 0], default=None)


def end_of_wrong(text: str, *, found: BlockReading, syntax: Syntax, is_final: bool = False) -> int | None:
    """The same for a block that cannot become a call; None as long as its end may come yet.

    Where words follow a whole call, it ends with the call. Where no mark closes it, it ends with the bracket that closes its
    first one, or before the word that was wrong if that bracket is far.
    """
    if found.end >= len(text) and not is_final:
        return None  # the next character tells whether a word ends here
    end = len(text[: found.end].rstrip())
    if (word := _WORD.search(text, max(0, end - 16), end)) is not None and text[end : end + 1].isalnum():
        end = word.start()
    if not found.name and not text.startswith("<", found.end):
        return end
    closed = found.end if found.end and text.endswith(syntax.ends, 0, found.end) else None
    if closed is None and (found.syntax or syntax.name) in CLOSING:  # what was read are whole values and tags
        closed = end_mark(text, syntax=syntax, behind=found.end)
    if closed is None and (is_final or (found.syntax or syntax.name) not in CLOSING):
        closed = end_mark(text, syntax=syntax)
    if closed is not None or (syntax.ends and not is_final):
        return closed
    blank = _BLANK_LINE.search(text, found.end)
    last = len(text) if blank is None else blank.start()
    start = len(syntax.marker)
    depth = _count(text, "[({", start, found.end) - _count(text, "])}", start, found.end)
    closing = _count(text, "])}", found.end, last)
    if depth >= 0 and closing < max(1, depth):  # no bracket closes it, so none has to be looked at
        are_many = closing + _count(text, "[({", found.end, last) > MOST_BRACKETS
        return end if is_final or blank is not None or are_many else None
    for count, bracket in enumerate(_BRACKETS.finditer(text, found.end, last)):
        if count == MOST_BRACKETS:
            return end
        depth += 1 if bracket.group() in "[({" else -1
        if depth <= 0:
            return bracket.end()
    return end if is_final or blank is not None else None


def _count(text: str, brackets: str, start: int, end: int) -> int:
    return sum([text.count(one, start, end) for one in brackets])


# What is held of one block until it is decided, and when it pays to read it once more.
#
# A piece that ends nothing changes nothing. Readings without a result are bounded, so that the cost is linear: at most
# READINGS times the length of a block, and FREE_CHARACTERS more.
READINGS = 8
FREE_CHARACTERS = 64 * 1024
MOST_READ_ANYWAY = 256  # characters of a block that is read with every piece


class HeldBlock:
    """One block, or what may be one. Another block is another value."""

    __slots__ = ("_edge", "_is_due", "_pieces", "_read_size", "_spent", "halves", "size")

    def __init__(self) -> None:
        self._pieces: list[str] = []
        self.size = 0
        self.halves = ""  # the half of a character that it ends with
        self._spent = 0  # characters read so far
        self._read_size = 0  # its length when it was read last
        self._is_due = False  # it has to be read again, as soon as the readings so far allow it
        self._edge = ""  # its last characters, in which a mark may have begun

    def add(self, piece: str) -> None:
        self._pieces.append(piece)
        self.size += len(piece)

    def is_worth_reading(self, piece: str, *, closing: re.Pattern[str]) -> bool:
        """Whether to read it, now that this piece was added; `closing` are the marks by which it may end."""
        seen, self._edge = self._edge, (self._edge + piece)[-LONGEST_END:]
        self._is_due = (
            self._is_due
            or self.size <= MOST_READ_ANYWAY
            or self.size >= 2 * self._read_size
            or any(found.end() > len(seen) for found in closing.finditer(seen + piece))
        )
        return self._is_due and self._spent + self.size <= READINGS * self.size + FREE_CHARACTERS

    def text(self) -> str:
        """All of it, with halves of characters joined."""
        text = "".join(self._pieces)
        if not text.isascii():
            whole, self.halves = join_halves(text, pending="")
            self._pieces = [whole, self.halves] if self.halves else [whole]
            text = whole
        else:
            self._pieces = [text]
        return text

    def read(self) -> str:
        """The same, to be read once more."""
        text = self.text()
        self._spent += len(text)
        self._read_size, self._is_due, self._edge = len(text), False, text[-LONGEST_END:]
        return text

    def read_with_next(self) -> None:
        """It ends with whatever follows."""
        self._is_due = True

    def all(self) -> str:
        """Every character that came, as it came."""
        return "".join(self._pieces)


# A whole pair of marks that holds something like a call, in which no reader finds one. The model meant a call, so it is told.
# How what is no words begins: objects, lists, fences, quotation marks, `<function name=..>`.
_LIKE_A_CALL = re.compile(r"""\s*(?:[{\[("'`]|<function(?!\w))""")
# The same between marks that know other tags: also these, and a name with what belongs to it.
_LIKE_CALLS = re.compile(rf"""\s*(?:[{{\[("'`<]|{NAME.pattern}\s*[{{\[("'`<=])""")
# Behind `<function=` the name stands at once.
_NAME_AT_ONCE = re.compile(rf"""\s*["'`]?(?P<name>{NAME.pattern})(?!\w)""")
_NAMED = re.compile(
    rf"""(?:\b(?:name|function|tool)["']?\s*[:=]\s*|<function\s+(?:name\s*=\s*)?)["']?(?P<name>{NAME.pattern})""",
    re.IGNORECASE,
)
_MAY_BE_A_NAME = re.compile(rf"""\s*["'`]?(?:{NAME.pattern})?\s*\Z""")
_BEHIND_NAMES = ".:/-"  # marks that a name may hold, and that end the word there
# Between these marks stands nothing but calls.
_ONLY_CALLS = frozenset(
    [
        *("dsml", "minimax", "kimi", "deepseek", "lfm", "pythonic", "step", "xtml", "gemma", "granite", "nemotron"),
        *("command", "apertus", "internlm", "longcat", "seed"),
    ]
)


def told_of(text: str, *, found: BlockReading, syntax: Syntax, tools: OfferedTools) -> BlockReading | None:
    """The block with the name of the tool that it seems to call; None where it is words, or a call of another tool.

    Raises Beyond as long as the mark that closes it may come.
    """
    start = len(syntax.marker)
    if found.is_other or not _is_like_a_call(text, start, syntax=syntax, tools=tools):
        return None
    end = end_mark(text, syntax=syntax)
    if text.find(syntax.marker, start, len(text) if end is None else end) >= 0:
        return None
    if end is None:
        raise Beyond
    name = _name_in(text[start:end], tools=tools)
    return None if name is None else msgspec.structs.replace(found, name=name, end=end)


def _is_like_a_call(text: str, start: int, *, syntax: Syntax, tools: OfferedTools) -> bool:
    if syntax.name != "tool_call" and _MAY_BE_A_NAME.match(text, start) is not None:
        raise Beyond
    if syntax.name == "qwen3-coder":
        named = _NAME_AT_ONCE.match(text, start)
        return named is not None and tools.has(named.group("name").rstrip(_BEHIND_NAMES))
    if syntax.name in _ONLY_CALLS:
        return _LIKE_CALLS.match(text, start) is not None
    return syntax.name == "tool_call" and _LIKE_A_CALL.match(text, start) is not None


def _name_in(inner: str, *, tools: OfferedTools) -> str | None:
    """The tool on offer that is named there, or whose name stands there as a word if none is."""
    if (named := _NAMED.search(inner)) is not None:
        name = named.group("name")
        return name if tools.has(name) else None
    words = (found.group().rstrip(_BEHIND_NAMES) for found in NAME.finditer(inner))
    return next((word for word in words if tools.has(word)), None)


class CallBlock(msgspec.Struct):
    """`text` is all of it, with the blanks before it."""

    text: str
    syntax: Syntax
    found: BlockReading

    @property
    def is_mere_name(self) -> bool:
        """Whether it is a tool's name between two tags, on one line, and nothing else."""
        is_line = "\n" not in self.text.strip() and (self.found.syntax or self.syntax.name) in ("glm", "qwen3-coder")
        return is_line and all(call.arguments == "{}" for call in self.found.calls)


# An answer that is nothing but a call: a list of Python calls, and with `on` a fence or JSON.


_FENCE = re.compile(r"(`{3,}|~{3,})[ \t]*([^\s`~]*)[ \t]*\r?\n")
# What the sources call such a fence: Gemma's guide (`tool_code`), Llama's and Qwen2.5-Coder's answers (`json`, `python`), and the
# marks of the syntaxes. A fence of another language shows something.
_LANGUAGES = frozenset(
    ["", "json", "python", "py", "xml", "tool_code", "tool_call", "tool_calls", "tool_use", "tool", "function_call"]
)


def read_whole(text: str, *, tools: OfferedTools, is_final: bool) -> BlockReading | None:
    """What the answer is as one call; None where more has to come before it can be looked at."""
    if text[:3] in ("```", "~~~"):
        return _read_fence(text, tools=tools, is_final=is_final)
    reader = pythonic.alone if pythonic.begins_call(text) is not None else json_calls.bare
    return read(reader, text, at=0, tools=tools, is_final=is_final)


def is_all(found: BlockReading | None, text: str) -> bool:
    """Whether the text is calls and nothing else."""
    return found is not None and (found.is_enough or (found.state == "whole" and endings.is_end(text[found.end :])))


def is_cut(found: BlockReading | None, text: str, *, by_itself: bool) -> bool:
    """Whether the text ends within calls. JSON may be an answer, unless the limit cut it; a list of Python calls is not."""
    if found is None or found.state != "open":
        return False
    if by_itself:
        return bool(found.name) and name_of_whole(text) == "pythonic"
    return bool(found.name or found.calls)


def name_of_whole(text: str) -> str:
    """The syntax of such an answer."""
    if text[:1] in "`~":
        return "fenced"
    return "bare JSON" if text[:1] == "{" or text.startswith("[{") else "pythonic"


def _read_fence(text: str, *, tools: OfferedTools, is_final: bool) -> BlockReading | None:
    """A fence that is all of the text: JSON, Python calls, or a block of a marked syntax in it."""
    head = _FENCE.match(text)
    if head is None:
        return None if "\n" not in text else BlockReading(state="wrong")
    if head.group(2).lower() not in _LANGUAGES:
        return BlockReading(state="wrong")
    close = re.compile(rf"\n[ \t]*{re.escape(head.group(1))}[ \t]*(?:\r?\n|$|(?={endings.ANY.pattern}))").search(
        text, head.end() - 1
    )
    if close is None:
        return BlockReading(state="wrong") if is_final else None
    if not (endings.is_end if is_final else endings.may_end)(text[close.end() :]):
        return BlockReading(state="wrong")
    inner = text[head.end() : close.start()].strip()
    calls = _calls_within(inner, tools=tools)
    return BlockReading(state="whole", calls=calls, end=len(text)) if calls else BlockReading(state="wrong")


def _calls_within(inner: str, *, tools: OfferedTools) -> tuple[ReadCall, ...]:
    """The calls that the text consists of; none where there is anything else in it."""
    if inner[:1] in ("{", "["):
        reader = pythonic.alone if pythonic.begins_call(inner) is not None else json_calls.bare
        found = read(reader, inner, at=0, tools=tools, is_final=True)
        return _all_of(found, inner)
    mark = MARKERS.match(inner)
    if mark is not None:
        syntax = BY_MARKER[mark.group()]
        return _all_of(read(syntax.reader, inner, at=mark.end(), tools=tools, is_final=True), inner)
    return _all_of(read(pythonic.code, inner, at=0, tools=tools, is_final=True), inner)


def _all_of(found: BlockReading, text: str) -> tuple[ReadCall, ...]:
    return found.calls if found.state == "whole" and not text[found.end :].strip() else ()
