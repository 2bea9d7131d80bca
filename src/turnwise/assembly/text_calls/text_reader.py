"""One text while it comes: what may be shown, what is reasoning, what is held because it may be a call.

Nothing that is given out is ever taken back. The cost is linear: words without a mark pass at one look, and a block is read again
only while all its readings together stay within a few times its length.
"""

import re
from collections.abc import Sequence
from enum import Enum, auto

import msgspec

from turnwise.assembly.text_calls import harmony, pythonic, tags
from turnwise.assembly.text_calls import tags as endings
from turnwise.assembly.text_calls import tags as thinking
from turnwise.assembly.text_calls.block_cursor import (
    Beyond,
    BlockReading,
    Made,
    Meant,
    ReadCall,
    Say,
    TextEvent,
    Think,
    Unmade,
    read,
    read_wrong,
)
from turnwise.assembly.text_calls.blocks import (
    CallBlock,
    HeldBlock,
    end_mark,
    end_of_wrong,
    is_all,
    is_cut,
    name_of_whole,
    read_whole,
    told_of,
)
from turnwise.assembly.text_calls.code import CodeTracker, is_indented
from turnwise.assembly.text_calls.following_text import BEHIND_A_BACKTICK, BEHIND_A_TAG, BEHIND_REASONING, Aftermath
from turnwise.assembly.text_calls.harmony import ENDS, Header
from turnwise.assembly.text_calls.quotations import Quotations
from turnwise.assembly.text_calls.syntaxes import (
    BEGUN_BY_A_NAME,
    BY_MARK,
    CLOSING,
    FUNCTOOLS,
    MARKS,
    MAX_BLOCKS,
    RECIPIENT,
    Syntax,
    held_from,
)
from turnwise.assembly.text_calls.tags import Closing, OpenTag
from turnwise.assembly.text_calls.values import ANY_TOOLS, OfferedTools

# Where a block stands: in code, behind tags, between quotation marks, in a message of harmony. It is one state for a response:
# a text goes on where the one before it ends.


# Who writes of a mark leaves a blank before it, or quotes it.
_BEFORE_A_MENTION = frozenset(" \t\"'(“‘«")
_ENDS_OF_SENTENCES = frozenset(".:!?…。：！？")
# What words about a mark go on with: a blank and no bracket, or the end of a sentence or quotation.
_WORDS_BEHIND = re.compile(r"""(?:[ \t]++[^\s{\[("'<|`]|[.,;:!?…)`*'"”’»])[^{\[<|"']*""")
_BLANKS = (" ", "\t")
_GOES_ON = ",.;:)…"  # marks with which a sentence goes on or ends
_QUOTES = {'"': '"', "'": "'", "“": "”", "‘": "’", "«": "»", "„": "“", "「": "」"}


class _Shown(msgspec.Struct, frozen=True, kw_only=True):
    """A whole call behind a tag that only shows something, or behind a backtick, or behind both. `number` is the backtick's."""

    tag: OpenTag | None
    number: int | None
    call: ReadCall
    syntax: str


class BlockSurroundings:
    """`code` is fed with all words. `look` is told where a block begins; what is said of the block holds until the next one."""

    __slots__ = (
        "_before",
        "_ends_sentence",
        "_is_in_span",
        "_is_next",
        "_is_within_words",
        "_shown",
        "_spoke_harmony",
        "_within",
        "code",
        "speaks_harmony",
    )

    def __init__(self) -> None:
        self.code = CodeTracker()
        self.speaks_harmony = False  # the text is messages between marks
        self._within: tuple[OpenTag, ...] = ()  # tags that are open before the block
        self._before = ""  # the character before it
        self._ends_sentence = False  # the words before it do so
        self._is_next = False
        self._is_in_span = False  # the block stands behind a backtick
        self._is_within_words = False  # it stands behind words of the same sentence
        self._spoke_harmony = False  # before the block
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
            self._is_in_span, self._spoke_harmony = self.code.is_in_span(), self.speaks_harmony
            self._is_within_words = self._before in _BLANKS and not (self._ends_sentence or self.speaks_harmony)

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

    def is_within_sentence(self, blank: str, behind: str) -> bool:
        """Whether the block stands in the middle of a sentence, if these blanks and this character follow it."""
        goes_on = "\n" not in blank and (behind.islower() or (behind != "" and behind in _GOES_ON))
        return goes_on and self._is_within_words

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

    def say_example(self, text: str) -> None:
        """The block is words of a sentence, or stands in quotation marks: no messages were parted by it."""
        self.speaks_harmony = self._spoke_harmony
        self.code.feed(text)

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


# What may end an answer that is nothing but a call.
_MAY_END = re.compile(r"[\])};`]")
# Of one block that is held: as many as a call may have that comes as one (`wire/profiles.py`, `call_bytes`).
MAX_BLOCK_CHARACTERS = 8 * 1024 * 1024
NOT_CLOSED = "something in it is not closed"
_INDENTED = re.compile(r"\n[ \t\r]*\n(?: {4}| {0,3}\t)[ \t]*\Z")  # a line of code follows


class _At(Enum):
    START = auto()  # nothing but blanks came
    THINKING = auto()
    WORDS = auto()
    BLOCK = auto()  # behind a marker
    WHOLE = auto()  # the whole answer may be a call
    BEHIND = auto()  # behind a block that is a call
    OVER = auto()  # everything is words now


class TextReader:
    """Feed it the pieces of a text; `finish` says how it ended, `release` that none of it is a call.

    `after` is the text before it in the response: what was open there is open here. `is_aside`: it is no answer, so that nothing
    in it is reasoning beside it.
    """

    __slots__ = (
        "_at",
        "_blank",
        "_blocks",
        "_close",
        "_doomed",
        "_drops_blank",
        "_found",
        "_has_thought",
        "_has_words",
        "_held",
        "_is_aside",
        "_is_first",
        "_leading",
        "_quotations",
        "_resumes",
        "_surroundings",
        "_syntax",
        "_tail",
        "_tools",
        "_unmarked",
        "aftermath",
        "began_in",
        "is_touched",
    )

    def __init__(
        self,
        tools: OfferedTools,
        *,
        quotations: Quotations,
        unmarked: bool = False,
        leading: bool = False,
        after: "TextReader | None" = None,
        is_aside: bool = False,
    ) -> None:
        self._tools = tools
        self._quotations = quotations
        self._unmarked = unmarked  # an answer that is only a fence or an object may be a call
        self._leading = leading  # only what begins the text may be one, or no block is looked at any more
        self._is_aside = is_aside
        self._surroundings: BlockSurroundings = BlockSurroundings() if after is None else after._surroundings.follow()
        self._at = _At.START
        self._tail = ""  # came, and may be the beginning of a mark
        self._held = HeldBlock()  # of the block
        self._syntax: Syntax | None = None
        self._doomed: BlockReading | None = None  # the block is no whole call whatever follows; its end has not come
        self._found: list[CallBlock] = []  # blocks that are calls, not given out yet
        self._blocks = 0
        self._close = Closing(ends=())  # of the reasoning
        self._drops_blank = False  # blanks that come next are no part of the answer
        self._resumes = False  # the reasoning goes on where no message begins
        self._is_first = True  # no words came in a text before
        self._has_words = False
        self._blank = ""  # blanks before the block
        self._has_thought = False  # reasoning was given out, or was empty
        self.aftermath = Aftermath(is_watched=after is not None)
        self.is_touched = False  # something was held or taken as reasoning
        self.began_in = None if after is None else self._begin_after(after)

    def _begin_after(self, after: "TextReader") -> "tuple[bool, bool, tuple[OpenTag, ...]]":
        self._is_first = after.is_blank
        if after._at is _At.THINKING:
            self._at, self._close, self.is_touched, self._has_thought = (
                _At.THINKING,
                after._close,
                True,
                after._has_thought,
            )
        elif self._leading and not self._is_first:
            self._at = _At.OVER
        elif self._surroundings.code.is_inside():
            self._at = _At.WORDS
        return after.ends_in

    @property
    def is_blank(self) -> bool:
        """Whether neither this text nor one before it has words."""
        return self._is_first and not self._has_words and self._at in (_At.START, _At.THINKING)

    @property
    def is_thinking(self) -> bool:
        """Whether the text ends in reasoning."""
        return self._at is _At.THINKING

    @property
    def ends_in(self) -> tuple[bool, bool, tuple[OpenTag, ...]]:
        """Where words stand that come next: in reasoning, in code, behind tags."""
        is_in_code = self._surroundings.code.is_in_code()
        return self._at is _At.THINKING, is_in_code, self._surroundings.code.open_tags

    def passes(self, text: str) -> bool:
        """Whether more words go on as they came, because no marker begins in them. They are taken then."""
        if self._at is not _At.WORDS:
            return self._at is _At.OVER and not self.aftermath.is_watched
        if self._tail or self.aftermath.is_watched or (self._surroundings.speaks_harmony and "<" in text):
            return False
        if ("<" in text or "[" in text) and (
            MARKS.search(text) is not None or min(held_from(text), endings.ending_from(text)) < len(text)
        ):
            return False
        self._surroundings.code.feed(text)
        return True

    @property
    def unseen(self) -> list[str] | None:
        """Where words without `<` and `[` may be put, up to `MOST_UNSEEN`, as long as nothing else is fed; None: feed them."""
        is_open = self._at is _At.WORDS and not self._tail and not self.aftermath.is_watched
        return self._surroundings.code.unseen if is_open else None

    @property
    def held(self) -> int:
        """Characters of what may be a call."""
        if self._at not in (_At.BLOCK, _At.WHOLE, _At.BEHIND):
            return 0
        return self._held.size + sum([len(block.text) for block in self._found])

    def is_behind_call(self) -> bool:
        """Whether the text so far ends with a whole call. Costs as much as what is held is long."""
        match self._at:
            case _At.BEHIND:
                return endings.is_end(self._tail)
            case _At.BLOCK if self._doomed is None and self._syntax is not None:
                text = self._held.text()
                found = read(self._syntax.reader, text, at=len(self._syntax.marker), tools=self._tools, is_final=True)
                is_call = found.is_enough or (found.state == "whole" and not text[found.end :].strip())
            case _At.WHOLE:
                text = self._held.text()
                is_call = is_all(self._whole(text, is_final=True), text)
            case _:
                return False
        return is_call and not self._is_quotation(text)

    def feed(self, piece: str) -> list[TextEvent]:
        events: list[TextEvent] = []
        if self._at is _At.BLOCK or self._at is _At.WHOLE:
            self._held.add(piece)
            closing = _MAY_END if self._syntax is None else self._syntax.may_end
            if self._held.is_worth_reading(piece, closing=closing):
                self._take_text(self._read_block(events), events)
            self._let_go_of_much(events)
            return events
        text, self._tail = self._tail + piece, ""
        self._take_text(text, events)
        return events

    def finish(self, *, by_itself: bool, is_alone: bool = True) -> list[TextEvent]:
        """The text is over. `by_itself`: the response ended where the model meant it to. `is_alone`: it has no other text."""
        events: list[TextEvent] = []
        while self._at is _At.BLOCK or self._at is _At.WHOLE:
            self._take_text(self._end_block(events, by_itself=by_itself, is_alone=is_alone), events)
        tail, self._tail = self._tail, ""
        if self._at is _At.BEHIND or (endings.is_token(tail) and not self._surroundings.is_mentioned()):
            tail = "" if endings.is_end(tail) else tail
        is_blank = self._at is _At.BEHIND and not tail.strip()
        self._give_calls(events, words_follow=bool(tail.strip()), behind=tail[:1])
        if self._at is _At.THINKING:
            self._thought(thinking.without_breaks(tail), events)
        elif tail and not is_blank:
            self._say(tail, events)
        self._at = _At.OVER
        return events

    def unclosed(self) -> list[TextEvent]:
        """The calls behind a tag that only shows something, where the response ends and the tag is still open."""
        return list(self._surroundings.unclosed())

    def pass_over(self, text: str) -> None:
        """A text in which nobody has to look for a call."""
        self._surroundings.code.feed(text)
        self.aftermath.add_words(text)
        self._has_words, self._at = not text.isspace(), _At.OVER

    def release(self) -> list[TextEvent]:
        """None of what is held is a call: the words in order."""
        is_end = endings.is_token(self._tail) and not self._surroundings.is_mentioned()
        tail = "" if is_end and self._at in (_At.WORDS, _At.BEHIND) else self._tail
        words = [block.text for block in self._found] + [self._blank, self._held.all(), tail]
        is_thought = self._at is _At.THINKING
        self._found, self._tail, self._blank, self._at = [], "", "", _At.OVER
        self._end_held()
        text = "".join(words)
        self._surroundings.code.feed("" if is_thought else text)
        return [Think(text) if is_thought else Say(text)] if text else []

    # words

    def _take_text(self, text: str, events: list[TextEvent]) -> None:
        """Take text in whatever state, until it is used up or held."""
        while text:
            match self._at:
                case _At.START:
                    text = self._start(text, events)
                case _At.THINKING:
                    text = self._think(text, events)
                case _At.WORDS:
                    text = self._words(text, events)
                case _At.BEHIND:
                    text = self._behind(text, events)
                case _At.OVER:
                    self._show(text, events)
                    text = ""
                case _At.BLOCK | _At.WHOLE:
                    self._held.add(text)
                    text = self._read_block(events)
                    self._let_go_of_much(events)

    def _start(self, text: str, events: list[TextEvent]) -> str:
        bare = thinking.without_blanks(text)
        blank = "" if self._drops_blank else text[: len(text) - len(bare)]
        if len(blank) > thinking.MOST_BLANK:
            self._go_on_in_words()
            return text
        mark = None if self._is_aside and bare else thinking.opening(bare)
        if mark == "" or (self._unmarked and bare in ("`", "``", "~", "~~")):
            self._tail = blank + bare
            return ""
        if mark:
            self._begin_to_think(Closing(ends=(thinking.MARKS[mark],)))
            return bare[len(mark) :]
        if bare and is_indented(text[: len(text) - len(bare)]):  # it may be code
            self._go_on_in_words()
            return text
        if self._may_be_whole(bare):
            self._begin_block(None, blank=blank)
            self._at = _At.WHOLE
            return bare
        if (found := MARKS.match(bare)) is not None:
            self._begin_block(BY_MARK[found.group()], blank=blank)
            return bare
        if self._is_first and (bare.startswith("functools[") or harmony.RECIPIENT.match(bare) is not None):
            self._begin_block(FUNCTOOLS if bare[0] == "f" else RECIPIENT, blank=blank)
            return bare
        begins_first = self._is_first and ("functools[".startswith(bare) or harmony.may_begin_with_recipient(bare))
        if bare and (begins_first or held_from(bare) == 0):
            self._tail = blank + bare
            return ""
        self._go_on_in_words()
        return blank + bare

    def _go_on_in_words(self) -> None:
        self._at = _At.OVER if self._leading else _At.WORDS

    def _may_be_whole(self, bare: str) -> bool:
        """Whether this may be an answer that is nothing but a call without a marker."""
        if self._surroundings.speaks_harmony or not self._is_first or self._has_words:
            return False
        name = pythonic.begins_call(bare)
        if name is not None:
            return self._tools.may_begin(name) or self._tools.has(name)
        return self._unmarked and bare.startswith(("{", "```", "~~~", "[{"))

    def _begin_to_think(self, close: Closing) -> None:
        self.is_touched, self._has_thought, self._drops_blank = True, False, True
        self._at, self._close = _At.THINKING, close

    def _think(self, text: str, events: list[TextEvent]) -> str:
        if not self._has_thought:
            text = text.lstrip("\n")
        ends = self._close.find(text)
        if ends is not None:
            self._thought(thinking.without_breaks(text[: ends[0]]), events)
            self._at, self._resumes = _At.START, ends[0] == ends[1]
            return text[ends[1] :]
        held = self._close.held_from(text)
        held = len(thinking.without_breaks(text[:held]))  # a line break before the closing mark is part of it
        self._thought(text[:held], events)
        self._tail = text[held:]
        return ""

    def _thought(self, text: str, events: list[TextEvent]) -> None:
        if text:
            self._has_thought = True
            events.append(Think(text))

    def _words(self, text: str, events: list[TextEvent]) -> str:
        if not self._surroundings.speaks_harmony:
            return self._marked_words(text, events)
        found = harmony.END.search(text)
        end = min([thinking.held_from(text, close=one) for one in harmony.ENDS]) if found is None else found.start()
        rest = self._marked_words(text[:end], events)
        if self._at is not _At.WORDS:
            return rest + text[end:]
        if found is None:
            self._tail += text[end:]
            return ""
        tail, self._tail = self._tail, ""
        self._say(tail, events)
        if self._surroundings.are_shown:
            self._say(found.group(), events)
        else:
            self._end_message()
        return text[found.end() :]

    def _marked_words(self, text: str, events: list[TextEvent]) -> str:
        at = 0
        while (mark := MARKS.search(text, at)) is not None:
            self._surroundings.code.feed(text[at : mark.start()])
            is_in_code = self._surroundings.code.is_in_code(within_outer=mark.group() == "<function=")
            is_open = not is_in_code or self._surroundings.code.is_in_span()
            if is_open and self._blocks < MAX_BLOCKS:
                self._show(text[: mark.start()], events)
                self._begin_block(BY_MARK[mark.group()])
                return text[mark.start() :]
            self._surroundings.code.feed(mark.group())
            at = mark.end()
        held = max(min(held_from(text), endings.ending_from(text)), at)
        self._surroundings.code.feed(text[at:held])
        self._show(text[:held], events)
        self._tail = text[held:]
        self.is_touched |= endings.is_token(self._tail)
        return ""

    def _say(self, text: str, events: list[TextEvent]) -> None:
        """Words that are shown, whatever stands in them."""
        self._surroundings.code.feed(text)
        self._show(text, events)

    def _show(self, text: str, events: list[TextEvent]) -> None:
        if text:
            self._has_words = self._has_words or not text.isspace()
            events.append(Say(text))
            self.aftermath.add_words(text)

    # messages of harmony

    def _end_message(self) -> None:
        """Another message may begin: nothing is open in it."""
        self._surroundings.begin_message()
        self._at, self._drops_blank = _At.START, True

    def _next_message(self, text: str, events: list[TextEvent]) -> str | None:
        """What stands behind the header that the block turned out to be; None if the block is not a header."""
        assert self._syntax is not None
        if self._syntax.name != "harmony" or self._surroundings.is_shown:
            return None
        try:
            start, header = harmony.header_in(text, marker=self._syntax.marker)
        except Beyond:
            return None
        if header is None or (not start and not self._surroundings.begins_message(header)):
            return None
        self._end_held()
        self._take_blank()
        self._give_calls(events)
        if not self._surroundings.speaks_harmony:
            self.aftermath.add_end_of_reasoning()
        self._end_message()
        if start:
            return text[start:]
        if header.is_reasoning:
            events += [Meant(name) for name in header.to if header.role == "assistant" and self._tools.has(name)]
            if not self._is_aside:
                self._begin_to_think(harmony.END_OF_REASONING)
        return text[header.end :]

    # blocks

    def _begin_block(self, syntax: Syntax | None, *, blank: str = "", is_next: bool = False) -> None:
        self.is_touched = True
        self._surroundings.look(is_next=is_next)
        self._blank = blank
        self._at, self._syntax, self._doomed = _At.BLOCK, syntax, None
        self._held = HeldBlock()
        self._blocks += 1
        self._leading |= self._blocks >= MAX_BLOCKS and self._surroundings.give_up()

    def _read_block(self, events: list[TextEvent], *, is_final: bool = False) -> str:
        """Look at the block once more; return the words that are no part of it, for the state that it leaves."""
        text = self._held.read()
        if self._at is _At.WHOLE:
            return self._read_whole(text)
        assert self._syntax is not None
        if self._syntax.is_frame:
            return self._take_frame(text, events)
        if self._doomed is None:
            at = len(self._syntax.marker)
            found = read(self._syntax.reader, text, at=at, tools=self._tools, is_final=is_final)
            if found.state == "open":
                if found.is_enough:
                    self._held.read_with_next()
                return ""
            if found.end > MAX_BLOCK_CHARACTERS:
                return ""
            if found.state == "whole":
                return self._take_block(text, found, events)
            if not is_final or read(self._syntax.reader, text, at=at, tools=self._tools).state == "wrong":
                found = read_wrong(self._syntax.reader, text, at=at, tools=self._tools, found=found)
            if found.is_other:
                other = read(self._syntax.reader, text, at=at, tools=ANY_TOOLS, is_final=is_final)
                if other.state == "open":
                    is_over = is_final and (found.calls or self._syntax.name != "harmony")
                    return self._end_other(text, found, end=len(text), events=events) if is_over else ""
                if other.state == "wrong":
                    other = read_wrong(self._syntax.reader, text, at=at, tools=ANY_TOOLS, found=other)
                if other.state == "whole" or not (other.is_prose or other.end <= found.end):
                    return self._end_other(text, found, end=other.end, events=events)
            is_prose = found.is_prose and (found.syntax or self._syntax.name) in BEGUN_BY_A_NAME
            if not is_prose and not (found.name or found.calls):
                try:
                    told = told_of(text, found=found, syntax=self._syntax, tools=self._tools)
                except Beyond:
                    told = None
                    if not is_final:
                        return ""
                found = told or found
            if is_prose or not (found.name or found.calls):
                return self._no_block(text, events, found=found)
            self._doomed = found
        end = end_of_wrong(text, found=self._doomed, syntax=self._syntax)
        return "" if end is None else self._fail_block(text, end=end, events=events)

    def _take_frame(self, text: str, events: list[TextEvent]) -> str:
        """A mark between parts of a message, which is not shown unless the words are about it."""
        assert self._syntax is not None
        end = len(self._syntax.marker)
        if self._surroundings.is_mention or self._surroundings.is_shown:
            return self._no_block(text, events, found=BlockReading(state="wrong"))
        rest = text[end:] + self._held.halves
        self._end_held()
        self._take_blank()
        self._give_calls(events)
        self._go_on_in_words()
        if self._is_first and not self._has_words:
            self._at = _At.START
        return rest

    def _end_other(self, text: str, found: BlockReading, *, end: int, events: list[TextEvent]) -> str:
        """A block with a call of a tool that is not on offer: it is one thing up to its end, whatever its values hold."""
        assert self._syntax is not None
        self._doomed = found
        if found.calls:
            return self._fail_block(text, end=end, events=events)
        rest, syntax = text[end:] + self._held.halves, self._syntax
        self._end_held()
        self._give_calls(events, words_follow=True)
        is_markup = self._is_markup(text[:end])
        self._say_block(text[:end], events)
        self._watch_for_ends(found, syntax=syntax)
        if is_markup:
            self.aftermath.add_markup(syntax.ends)
        return rest

    def _take_block(self, text: str, found: BlockReading, events: list[TextEvent]) -> str:
        """A whole block: a call, unless it was said to the model before."""
        assert self._syntax is not None
        block, rest = text[: found.end], text[found.end :] + self._held.halves
        self._end_held()
        if self._surroundings.is_shown or self._is_quotation(block):
            self._give_calls(events, words_follow=True)
            if not CallBlock(block, self._syntax, found).is_mere_name:
                self._surroundings.add_shown(found.calls, syntax=found.syntax or self._syntax.name)
            self._say_quoted(block, events)
        else:
            self._surroundings.speaks_harmony |= self._syntax.name == "harmony"
            self._found.append(CallBlock(self._take_blank() + block, self._syntax, found))
            self._at = _At.BEHIND
        return rest

    def _no_block(self, text: str, events: list[TextEvent], *, found: BlockReading) -> str:
        """The marker was words; what follows it is read again, except for values that were read already."""
        assert self._syntax is not None
        end = max(len(self._syntax.marker), found.values_end)
        marker, rest = text[:end], text[end:] + self._held.halves
        behind = self._next_message(text + self._held.halves, events)
        if behind is not None:
            return behind
        is_thought, syntax = self._resumes, self._syntax
        self._end_held()
        if is_thought:
            self._at = _At.THINKING
            self._thought(self._take_blank() + marker, events)
            return rest
        self._give_calls(events, words_follow=True)
        if marker == "<|end|>" and not self._surroundings.is_mention:
            self.aftermath.add_end_of_reasoning()
        is_markup = syntax.name != "harmony" and not found.is_prose and self._is_markup(marker)
        self._say_block(marker, events)
        if is_markup:
            self.aftermath.add_markup(syntax.ends)
        if found.name or found.is_other or found.values_end:
            self._watch_for_ends(found, syntax=syntax)
        return rest

    def _is_markup(self, block: str) -> bool:
        """Whether a block that is words now was meant as a call, and not written about."""
        is_about = self._surroundings.is_mention or self._surroundings.is_shown
        return not is_about and not self._is_quotation(block)

    def _watch_for_ends(self, found: BlockReading, *, syntax: Syntax) -> None:
        """Where such a block ends is a guess: if its closing marks come later, the calls until then stand in its values."""
        closing = CLOSING.get(found.syntax or syntax.name, ()) + syntax.ends
        self.aftermath.add_calls(0, closing=closing)

    def _fail_block(self, text: str, *, end: int, events: list[TextEvent]) -> str:
        """A block that names a tool on offer, and is no whole call."""
        assert self._syntax is not None and self._doomed is not None
        block, rest, doomed = text[:end], text[end:] + self._held.halves, self._doomed
        is_example = self._is_example(rest)
        self._end_held()
        self._give_calls(events, is_example=is_example)
        self._go_on_in_words()
        if (
            is_example
            or self._surroundings.is_shown
            or self._is_quotation(block)
            or self._is_quotation(text[: doomed.end])
        ):
            self._say_block(block, events)
            return rest
        self._surroundings.speaks_harmony |= self._syntax.name == "harmony"
        self._take_blank()
        syntax = doomed.syntax or self._syntax.name
        # Without a name it is the last call whose end was not where it should be.
        whole = doomed.calls if doomed.name else doomed.calls[:-1]
        if syntax in CLOSING:  # a value of an earlier call may have closed it, so that all behind it was read wrongly
            events += [Unmade(name=one.name, arguments="{}", syntax=syntax, why=doomed.why) for one in whole]
        else:
            self._make(whole, syntax, events)
        self.aftermath.add_failed(block)
        self._watch_for_ends(doomed, syntax=self._syntax)
        name = doomed.name or doomed.calls[-1].name
        events.append(Unmade(name=name, arguments="{}", syntax=syntax, why=doomed.why or "it is not whole"))
        return rest

    def _let_go_of_much(self, events: list[TextEvent]) -> None:
        """What is longer than a block may be is words, and so is everything behind it."""
        if self._held.size <= MAX_BLOCK_CHARACTERS or self._at not in (_At.BLOCK, _At.WHOLE):
            return
        text = self._held.text() + self._held.halves
        self._end_held()
        self._give_calls(events)
        self._say_block(text, events)
        self._at = _At.OVER

    def _say_block(self, text: str, events: list[TextEvent]) -> None:
        """What was held is words."""
        self._say(self._take_blank() + text, events)
        self._go_on_in_words()

    def _say_quoted(self, text: str, events: list[TextEvent]) -> None:
        """A whole block that was said before is words, and none of another call's."""
        text = self._take_blank() + text
        self._surroundings.say_shown(text)
        events.append(Say(text))
        self._go_on_in_words()

    def _is_quotation(self, block: str) -> bool:
        """Whether the block was said before; a message of harmony without what may stand before its channel, too."""
        channel = block.find(harmony.CHANNEL) if block.startswith(harmony.START) else 0
        return self._quotations.hold(block) or (channel > 0 and self._quotations.hold(block[channel:]))

    def _take_blank(self) -> str:
        blank, self._blank = self._blank, ""
        return blank

    def _end_held(self) -> None:
        self._held, self._resumes = HeldBlock(), False

    def _end_block(self, events: list[TextEvent], *, by_itself: bool, is_alone: bool) -> str:
        """The text ends within a block; returns as `_read_block`."""
        if self._at is _At.WHOLE:
            return self._end_whole(events, by_itself=by_itself) if is_alone else self._let_go(self._held.text())
        rest = self._read_block(events, is_final=True)
        if self._at is not _At.BLOCK:
            return rest
        assert self._syntax is not None
        text, syntax = self._held.text(), self._syntax
        if self._doomed is not None:
            end = end_of_wrong(text, found=self._doomed, syntax=syntax, is_final=True)
            return self._fail_block(text, end=len(text) if end is None else end, events=events)
        found = read(syntax.reader, text, at=len(syntax.marker), tools=self._tools, is_final=True)
        if by_itself and found.name and (end := end_mark(text, syntax=syntax)) is not None:
            self._doomed = msgspec.structs.replace(found, state="wrong", why=NOT_CLOSED)
            return self._fail_block(text, end=end, events=events)
        self._end_held()
        is_named = bool(found.name or found.calls)  # what names no tool and was not cut was about a marker
        is_message = syntax.name == "harmony" and not is_named
        if is_message and self._surroundings.is_rest_of_message(text, marker=syntax.marker, by_itself=by_itself):
            self._give_calls(events)
            self._take_blank()
            self._at = _At.WORDS
            return ""
        is_mention = not is_named and self._surroundings.is_about(text[len(syntax.marker) :])
        if (by_itself and not is_named) or is_mention or self._surroundings.is_shown or self._is_quotation(text):
            self._give_calls(events)
            self._say_block(text, events)
            return ""
        self._at = _At.BEHIND
        self._take_blank()
        if found.is_enough and by_itself:
            self._found.append(CallBlock(text, syntax, found))
            return ""
        self._give_calls(events)
        *whole, last = found.calls if found.is_enough else (*found.calls, ReadCall(found.name, found.arguments))
        named = found.syntax or syntax.name
        self._make(whole, named, events)
        self.aftermath.add_failed(text)
        events.append(Unmade(name=last.name, arguments=last.arguments if last.name else text, syntax=named))
        return ""

    # an answer that is nothing but a call

    def _read_whole(self, text: str) -> str:
        """Only its end decides; what cannot be a call is let go of at once."""
        found = self._whole(text)
        if found is None or found.state == "open":
            return ""
        return self._let_go(text) if found.state == "wrong" or not endings.may_end(text[found.end :]) else ""

    def _whole(self, text: str, *, is_final: bool = False) -> BlockReading | None:
        return read_whole(text, tools=self._tools, is_final=is_final)

    def _let_go(self, text: str) -> str:
        rest = self._take_blank() + text + self._held.halves
        self._end_held()
        self._go_on_in_words()
        return rest

    def _end_whole(self, events: list[TextEvent], *, by_itself: bool) -> str:
        text = self._held.text()
        found = self._whole(text, is_final=True)
        is_call = is_all(found, text) or is_cut(found, text, by_itself=by_itself)
        if found is None or not is_call or self._is_quotation(text):
            return self._let_go(text)
        self._end_held()
        self._take_blank()
        self._at = _At.BEHIND
        syntax = name_of_whole(text)
        self._make(found.calls, syntax, events)
        if found.name:
            self.aftermath.add_failed(text)
            events.append(Unmade(name=found.name, arguments=found.arguments, syntax=syntax))
        return ""

    # behind a block

    def _behind(self, text: str, events: list[TextEvent]) -> str:
        bare = text.lstrip()
        blank = text[: len(text) - len(bare)]
        is_near = len(blank) <= thinking.MOST_BLANK and (not bare or _INDENTED.search(blank) is None)
        if is_near and (not bare or (bare[0] in "<[" and (held_from(bare) == 0 or endings.may_end(bare)))):
            self._tail = text
            return ""
        mark = MARKS.match(bare) if is_near else None
        if mark is not None and self._blocks < MAX_BLOCKS:
            self._begin_block(BY_MARK[mark.group()], blank=blank, is_next=True)
            return bare
        self._give_calls(events, words_follow=True, behind=text[:1], is_example=self._is_example(text))
        self._surroundings.code.feed("x")  # the block stood on this line
        self._go_on_in_words()
        return text

    def _is_example(self, behind: str) -> bool:
        """Whether the block stands in the middle of a sentence that goes on behind it."""
        bare = behind.lstrip()
        return self._surroundings.is_within_sentence(behind[: len(behind) - len(bare)], bare[:1])

    def _give_calls(
        self, events: list[TextEvent], *, words_follow: bool = False, behind: str = "", is_example: bool = False
    ) -> None:
        """Give the blocks so far as calls, with three exceptions. A bare name with words behind it is an answer about a syntax.
        Blocks between quotation marks are text; `behind` is the character that follows them. So is an example in a sentence."""
        if self._found and (is_example or self._surroundings.is_between_quotes(behind)):
            for block in self._found:
                self._surroundings.say_example(block.text)
                events.append(Say(block.text))
            self._found = []
        named = self._found.pop() if words_follow and self._found and self._found[-1].is_mere_name else None
        for block in self._found:
            self._make(block.found.calls, block.found.syntax or block.syntax.name, events)
        self._found = []
        if named is not None:
            self._surroundings.code.feed(named.text)
            events.append(Say(named.text))

    def _make(self, calls: Sequence[ReadCall], syntax: str, events: list[TextEvent]) -> None:
        if why := self._surroundings.why_not:
            events += [Unmade(name=call.name, arguments=call.arguments, syntax=syntax, why=why) for call in calls]
        elif calls:
            events += [Made(call, syntax) for call in calls]
            self.aftermath.add_calls(len(calls), closing=CLOSING.get(syntax, ()))
