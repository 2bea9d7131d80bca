"""Where a block stands: in code, behind tags, between quotation marks, in a message of harmony. It is one state for a response:
a text goes on where the one before it ends."""

import re
from collections.abc import Sequence

import msgspec

from turnwise.assembly.text_calls import tags
from turnwise.assembly.text_calls.block_cursor import ReadCall, Unmade
from turnwise.assembly.text_calls.code import CodeTracker
from turnwise.assembly.text_calls.following_text import BEHIND_A_BACKTICK, BEHIND_A_TAG, BEHIND_REASONING
from turnwise.assembly.text_calls.harmony import ENDS, Header
from turnwise.assembly.text_calls.tags import OpenTag

# Who writes of a mark leaves a blank before it, or quotes it.
_BEFORE_A_MENTION = frozenset(" \t\"'(“‘«")
_ENDS_OF_SENTENCES = frozenset(".:!?…。：！？")
# What words about a mark go on with: a blank and no bracket, or the end of a sentence or quotation.
_WORDS_BEHIND = re.compile(r"""(?:[ \t]++[^\s{\[("'<|`]|[.,;:!?…)`*'"”’»])[^{\[<|"']*""")
_QUOTES = {'"': '"', "'": "'", "“": "”", "‘": "’", "«": "»", "„": "“", "「": "」"}


class _Shown(msgspec.Struct, frozen=True, kw_only=True):
    """A whole call behind a tag that only shows something, or behind a backtick, or behind both. `number` is the backtick's."""

    tag: OpenTag | None
    number: int | None
    call: ReadCall
    syntax: str


class BlockSurroundings:
    """`code` is fed with all words. `look` is told where a block begins; what is said of the block holds until the next one."""

    __slots__ = ("_before", "_ends_sentence", "_is_in_span", "_is_next", "_shown", "_within", "code", "speaks_harmony")

    def __init__(self) -> None:
        self.code = CodeTracker()
        self.speaks_harmony = False  # the text is messages between marks
        self._within: tuple[OpenTag, ...] = ()  # tags that are open before the block
        self._before = ""  # the character before it
        self._ends_sentence = False  # the words before it do so
        self._is_next = False
        self._is_in_span = False  # the block stands behind a backtick
        # Whole calls behind tags that only show something, or behind backticks.
        self._shown: list[_Shown] = []

    def follow(self) -> "BlockSurroundings":
        """Those of the next text."""
        other = BlockSurroundings()
        other.code = self.code.follow()
        other.speaks_harmony = self.speaks_harmony
        other._shown = list(self._shown)
        return other

    def give_up(self) -> bool:
        """Nobody looks for a call from here on, so all words count as code; False where messages still have to be parted."""
        if not self.speaks_harmony:
            self.code.give_up()
        return not self.speaks_harmony

    def look(self, *, is_next: bool) -> None:
        """A block begins. `is_next`: it follows another one at once, and stands where that one does."""
        self._is_next = is_next
        if not is_next:
            self.code.is_in_code()
            self._within, self._before = self.code.open_tags, self.code.last
            self._ends_sentence = _ends_sentence(self.code.last_bare)
            self._is_in_span = self.code.is_in_span()

    @property
    def is_shown(self) -> bool:
        """Whether the block stands behind a tag that only shows what follows, or behind a backtick."""
        return self._is_in_span or _showing(self._within) is not None

    @property
    def are_shown(self) -> bool:
        """Whether words that come next are code or shown."""
        return self.code.is_in_code() or _showing(self.code.open_tags) is not None

    @property
    def is_mention(self) -> bool:
        """Whether a mark of harmony there seems to be what the words are about."""
        return not self.speaks_harmony and not self._is_next and self._before in _BEFORE_A_MENTION

    def is_about(self, rest: str) -> bool:
        """Whether a mark there, behind which the response was cut, is what the words are about; `rest` came behind the mark."""
        if not rest.strip():
            return self.is_mention and not self._ends_sentence
        return self.is_mention and _WORDS_BEHIND.fullmatch(rest) is not None

    def is_mentioned(self) -> bool:
        """Whether a token that ends the text here seems to be what the words are about."""
        is_shown = self.code.is_open() or _showing(self.code.open_tags) is not None
        return is_shown or self.code.last in _BEFORE_A_MENTION

    def is_between_quotes(self, behind: str) -> bool:
        """Whether the block stands in quotation marks, if this character follows it."""
        return behind != "" and _QUOTES.get(self._before) == behind

    @property
    def why_not(self) -> str:
        """Why a call there does not run; empty if it may."""
        thought = next((tag for tag in self._within if tag.is_reasoning), None)
        return "" if thought is None else BEHIND_REASONING.format(tag=tags.written(thought.name))

    def is_rest_of_message(self, text: str, *, marker: str, by_itself: bool) -> bool:
        """Whether a text that ends within marks of harmony has nothing of the answer there."""
        if self.is_mention or self.is_shown:
            return False
        if text.startswith("<|call|>"):  # it may belong to a call of a tool that is not on offer
            return self.speaks_harmony
        return by_itself or marker in ENDS or "analysis" in text

    def begins_message(self, header: Header | None) -> bool:
        """Whether a header of harmony there begins a message of words or of reasoning."""
        return header is not None and not header.is_call and (header.is_reasoning or not self.is_mention)

    def begin_message(self) -> None:
        """A message of harmony begins: nothing is open in it."""
        self._shown = [one for one in self._shown if not self._is_quoted(one)]
        self.speaks_harmony, self.code = True, self.code.begin_message()

    def add_shown(self, calls: Sequence[ReadCall], *, syntax: str) -> None:
        """The block is whole, and is only shown."""
        tag = _showing(self._within)
        for call in calls if self.is_shown else ():
            number = self.code.add_call() if self._is_in_span else None
            self._shown.append(_Shown(tag=tag, number=number, call=call, syntax=syntax))

    def say_shown(self, text: str) -> None:
        """The block is shown. What it holds may close a backtick before it, and no tag."""
        is_behind_tag = _showing(self._within) is not None
        self.code.feed("x" if is_behind_tag else text)

    def unclosed(self) -> list[Unmade]:
        """The calls behind a tag that only shows something, if the response ends and the tag is still open."""
        if not self._shown:
            return []
        self.code.is_in_code()
        return [
            Unmade(name=one.call.name, arguments=one.call.arguments, syntax=one.syntax, why=why)
            for one in self._shown
            if (why := self._why_unclosed(one))
        ]

    def _why_unclosed(self, shown: _Shown) -> str:
        if self._is_quoted(shown):
            return ""
        if shown.tag is None:
            return BEHIND_A_BACKTICK
        return BEHIND_A_TAG.format(tag=tags.written(shown.tag.name)) if shown.tag in self.code.open_tags else ""

    def _is_quoted(self, shown: _Shown) -> bool:
        return shown.number is not None and self.code.is_quoted(shown.number)


def _ends_sentence(last: str) -> bool:
    """Whether the words before end a sentence: no number of an item does."""
    return last[-1:] in _ENDS_OF_SENTENCES and not (last[-1:] == "." and last[0].isdigit())


def _showing(within: Sequence[OpenTag]) -> OpenTag | None:
    return next((tag for tag in within if not tag.is_reasoning), None)
