"""How one block is read: a cursor over the text so far, and what a reader found.

A reader is a pure function over all the text that there is by now. It is asked again when more has come, so nothing depends on
how the text was cut. `Beyond` is raised where the text ends in the middle, `Wrong` where nothing that may follow could make it a
call.
"""

import json
import re
from collections.abc import Callable, Sequence
from typing import Literal, NoReturn

import msgspec

from turnwise.assembly.json_text import Complete, JsonScanner, Truncated, check_strictly, classify
from turnwise.assembly.text_calls.values import Members, OfferedTools

_BRACKET = re.compile(r"[\[({]|<parameter=|<arg_key>")
_SPACE = re.compile(r"[ \t\r\n]*+")
_CUT_STRING = "Unterminated string"  # as Python begins what it says of one
# As JSON Schema names of tools go: letters, digits and what providers and MCP servers put between them.
NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_.:/-]{0,127}")


class Beyond(Exception):
    """The text ends in the middle. `is_enough`: only a closing mark is missing, and all that the call says is there."""

    def __init__(self, *, is_enough: bool = False) -> None:
        super().__init__()
        self.is_enough = is_enough


class Wrong(Exception):
    """No continuation makes it a call; `why` is for people and the model."""

    def __init__(self, why: str) -> None:
        super().__init__(why)
        self.why = why


def _refuse(constant: str) -> None:
    raise ValueError(f"{constant} is no JSON")


_decode_json = json.JSONDecoder(parse_constant=_refuse).raw_decode


class ReadCall(msgspec.Struct, frozen=True):
    """A whole call; `arguments` is JSON text."""

    name: str
    arguments: str


class BlockReading(msgspec.Struct, frozen=True, kw_only=True):
    """What a reader makes of a block. `whole`: it ends before character `end` (`wrong`: it
    was a call up to there); `open`: more may make it whole (`is_enough`: it
    counts as it is where the response ended by itself); `wrong`: nothing can. `is_prose`: words follow a tool's name, and
    nothing of a call. `calls` are whole; `name` is the tool on offer of
    the call that is not, and `arguments` are a beginning of its JSON, if there is one."""

    state: Literal["whole", "open", "wrong"]
    calls: tuple[ReadCall, ...] = ()
    end: int = 0
    is_enough: bool = False
    is_prose: bool = False
    name: str = ""
    arguments: str = ""
    why: str = ""
    syntax: str = ""  # where the marker alone does not tell it
    values_end: int = 0  # behind the last JSON value that was read
    is_other: bool = False  # it names a tool, and that is not on offer


class Cursor:
    """A place in the text. `calls`, `name` and `arguments` are what was read by now, whatever happens next."""

    __slots__ = (
        "_members",
        "arguments",
        "at",
        "calls",
        "is_final",
        "is_other",
        "name",
        "reached",
        "syntax",
        "text",
        "tools",
        "values_end",
    )

    def __init__(self, text: str, *, at: int, tools: OfferedTools, is_final: bool = False) -> None:
        self.text = text
        self.at = at
        self.tools = tools
        self.is_final = is_final  # no more text will come
        self.is_other = False
        self.calls: list[ReadCall] = []
        self.name = ""
        self.arguments = ""
        self._members: Members | None = None  # of the call that is being read
        self.syntax = ""
        self.values_end = 0  # behind the last JSON value
        self.reached = at  # how far JSON that is not whole was read

    def space(self) -> None:
        found = _SPACE.match(self.text, self.at)
        self.at = found.end() if found else self.at

    @property
    def is_at_end(self) -> bool:
        return self.at >= len(self.text)

    def peek(self) -> str:
        """The next character."""
        if self.is_at_end:
            raise Beyond
        return self.text[self.at]

    def next(self) -> str:
        """The next character that is no blank. The cursor stands before it."""
        text, at = self.text, self.at
        if at < len(text) and (char := text[at]) not in " \t\r\n":
            return char
        self.space()
        return self.peek()

    def run(self, pattern: re.Pattern[str]) -> str:
        """All characters of a kind; more may come where the text ends with them."""
        found = pattern.match(self.text, self.at)
        start, self.at = self.at, self.at if found is None else found.end()
        if self.is_at_end:
            raise Beyond
        return self.text[start : self.at]

    def tool_name(self) -> str:
        """A tool's name, which ends where no name goes on."""
        found = NAME.match(self.text, self.at)
        if found is None:
            raise Wrong("a tool's name was expected")
        name = found.group()
        if found.end() == len(self.text):
            if not self.tools.may_begin(name):
                self.refuse_name(name)
            raise Beyond
        self.at = found.end()
        return name

    def takes(self, mark: str, *, is_enough: bool = False) -> bool:
        """Whether the mark stands here; the cursor is behind it then."""
        if self.text.startswith(mark, self.at):
            self.at += len(mark)
            return True
        if mark.startswith(self.text[self.at : self.at + len(mark)]):
            raise Beyond(is_enough=is_enough)
        return False

    def takes_one_of(self, *marks: str, is_enough: bool = False) -> bool:
        """The same for several; the text may end in the middle of any."""
        beyond = False
        for mark in marks:
            try:
                if self.takes(mark):
                    return True
            except Beyond:
                beyond = True
        if beyond:
            raise Beyond(is_enough=is_enough)
        return False

    def expects(self, mark: str, *, is_enough: bool = False) -> None:
        if not self.takes(mark, is_enough=is_enough):
            raise Wrong(f"`{mark}` was expected")

    def until(self, mark: str, *, most: int = 200) -> str:
        """The text before the mark, which is short: names and headers."""
        end = self.text.find(mark, self.at, self.at + most + len(mark))
        if end < 0:
            if len(self.text) - self.at >= most + len(mark):
                raise Wrong(f"`{mark}` was expected")
            raise Beyond
        found = self.text[self.at : end]
        self.at = end + len(mark)
        return found

    def begin_call(self, name: str) -> None:
        """The name of the call is read: nothing else is looked at if no such tool is on offer."""
        if not self.tools.has(name):
            self.refuse_name(name)
        self.name, self.arguments, self._members = name, "", None

    def refuse_name(self, name: str) -> NoReturn:
        self.is_other = True
        raise Wrong(f"no tool `{name[:64]}` is on offer")

    def begin_members(self) -> Members:
        """The arguments come one by one."""
        self._members = Members()
        return self._members

    def end_call(self, arguments: str) -> None:
        self.calls.append(ReadCall(self.name, arguments))
        self.name, self.arguments, self._members = "", "", None

    @property
    def beginning(self) -> str:
        """The arguments so far of the unfinished call. Made once, because the cost grows with the length."""
        return self._members.beginning if self._members is not None and not self.arguments else self.arguments

    @property
    def is_at_words(self) -> bool:
        """Whether a tool is named, and what stands here begins no arguments in any syntax."""
        rest = self.text[self.at : self.at + 64].lstrip()
        return bool(self.name and rest) and rest[0] not in "{[(<`\"'"

    def json_value(self) -> str:
        """The JSON value that begins here, strictly: its text."""
        start = self.at
        if self.is_at_end:
            raise Beyond
        try:
            _, end = _decode_json(self.text, start)
        except RecursionError:
            raise Wrong("nested too deeply") from None
        except ValueError as error:
            raise self._refused(start, error) from None
        found = self.text[start:end]
        try:
            check_strictly(found)
        except (msgspec.MsgspecError, RecursionError, UnicodeEncodeError):
            verdict = classify(found)
            why = "no JSON that can be read" if isinstance(verdict, Complete) else verdict.reason
            self.reached = end
            raise Wrong(why) from None
        self.at = self.values_end = end
        return found

    def _refused(self, start: int, error: ValueError) -> Beyond | Wrong:
        """What it means that no whole JSON begins here. Only what Python does not tell is read once more, slowly."""
        is_cut = isinstance(error, json.JSONDecodeError) and (
            error.pos >= len(self.text) or error.msg.startswith(_CUT_STRING)
        )
        if not is_cut:
            scanner = JsonScanner()
            scanner.feed(self.text[start:])
            verdict = scanner.verdict()
            if verdict is not None and not isinstance(verdict, Truncated):
                self.reached = start + verdict.position
                return Wrong(verdict.reason)
        self.reached = len(self.text)
        return Beyond()


Reader = Callable[[Cursor], None]
"""Moves the cursor behind the block's end, and leaves the calls with it."""


def read_wrong(reader: Reader, text: str, *, at: int, tools: OfferedTools, found: BlockReading) -> BlockReading:
    """What the reader says at the first character that shows the mistake: the same however the text is cut.

    `found` is what it said of all the text. Costs a few readings of what is wrong, whatever follows.
    """
    low, high, step = at, min(len(text), max(at, found.end) + 1), 16
    best = found
    while high < len(text) and (now := read(reader, text[:high], at=at, tools=tools)).state != "wrong":
        low, high, step = high, min(len(text), high + step), step * 2
    while low < high:
        middle = (low + high) // 2
        now = read(reader, text[:middle], at=at, tools=tools)
        if now.state == "wrong":
            high, best = middle, now
        else:
            low = middle + 1
    return best if high == len(text) else read(reader, text[:high], at=at, tools=tools)


def read(reader: Reader, text: str, *, at: int, tools: OfferedTools, is_final: bool = False) -> BlockReading:
    """Run a reader over the text from behind its marker."""
    start = at
    cursor = Cursor(text, at=at, tools=tools, is_final=is_final)
    try:
        reader(cursor)
    except Beyond as beyond:
        return BlockReading(
            state="open",
            calls=tuple(cursor.calls),
            is_enough=beyond.is_enough and bool(cursor.calls) and not cursor.name,
            name=cursor.name,
            arguments=cursor.beginning,
            syntax=cursor.syntax,
        )
    except Wrong as wrong:
        calls = tuple(cursor.calls)
        at = min(max(cursor.at, cursor.reached), len(text))
        return BlockReading(
            state="wrong",
            calls=calls,
            end=at,
            is_prose=cursor.is_at_words and _BRACKET.search(text, start, cursor.at) is None,
            name=cursor.name,
            why=wrong.why,
            syntax=cursor.syntax,
            values_end=cursor.values_end,
            is_other=cursor.is_other,
        )
    if not cursor.calls:
        return BlockReading(state="wrong", why="there is no call in it")
    return BlockReading(state="whole", calls=tuple(cursor.calls), end=cursor.at, syntax=cursor.syntax)


# What a text turns out to hold while it is read, in order.


class Say(msgspec.Struct, frozen=True, gc=False):
    """Words of the answer."""

    text: str


class Think(msgspec.Struct, frozen=True, gc=False):
    """Words of reasoning."""

    text: str


class Made(msgspec.Struct, frozen=True):
    """A whole call."""

    call: ReadCall
    syntax: str


class Unmade(msgspec.Struct, frozen=True, kw_only=True):
    """A call that cannot run: cut (`arguments` is a beginning of its JSON), or `wrong`, in which case `why` says how."""

    name: str
    arguments: str
    syntax: str
    why: str = ""


class Meant(msgspec.Struct, frozen=True):
    """A call that the model addressed to a tool within its reasoning."""

    name: str


TextEvent = Say | Think | Made | Unmade | Meant


def words_of(events: Sequence[TextEvent]) -> str:
    return "".join([event.text for event in events if isinstance(event, Say)])
