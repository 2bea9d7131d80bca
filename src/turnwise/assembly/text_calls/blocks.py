"""A block that is a call, or several."""

import re

import msgspec

from turnwise.assembly.heal import join_halves
from turnwise.assembly.text_calls.block_cursor import NAME, Beyond, BlockReading
from turnwise.assembly.text_calls.broken_blocks import end_mark
from turnwise.assembly.text_calls.syntaxes import LONGEST_END, Syntax
from turnwise.assembly.text_calls.tools import OfferedTools

# What is held of one block until it is decided, and when it pays to read it once more.
#
# A piece that ends nothing changes nothing. What was read in vain is bounded, so that the cost is linear.
# What a block may be read in vain: so many times its length, and these characters besides.
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
_ONLY_CALLS = frozenset({"dsml", "minimax", "kimi", "deepseek", "lfm", "pythonic"})


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
