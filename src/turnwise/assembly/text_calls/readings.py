"""What was said to the model, as it is read for a comparison: without escapes, and also with the ends of lines joined.

Each text is read once, whatever is looked for, and each place where a block may begin is found once.
"""

import re
from collections.abc import Iterator, Sequence

from turnwise.assembly.text_calls.comparison import BARRIER, beginning_of, tokens_of
from turnwise.assembly.text_calls.escapes import hidden_parts, without_escapes

_LINE_ENDS = re.compile(r"[\r\n]+")
# Lines may have been broken anywhere, within an escape too. Quoted-printable and `sed -n l` mark such breaks; YAML indents the
# line behind them as well.
BREAKS = (None, _LINE_ENDS, re.compile(r"[=\\]\r?\n"), re.compile(r"\\\r?\n[ \t]+\\?"))
_LONGEST_NAME = 64  # characters by which it is looked for
_NO_LETTERS = re.compile(r"[\W\d]+")
_MARKUP = re.compile(r"\x1b\[[0-9;:]*[A-Za-z]|(?:<|&lt;|\\u003c)[^<>&\\]{0,200}(?:>|&gt;|\\u003e)")
_SHORT = 20_000  # characters that are read whatever stands in them
_MOST_PAGES = 2  # in which a block goes on
_LONGEST_WORD = 128  # that is looked for in pieces


class ReadText:
    """The texts that may hold a name, in one way to read them. `find_beginnings` costs no more where it was asked before."""

    __slots__ = ("_begins", "_words", "text")

    def __init__(self, text: str) -> None:
        self.text = text
        self._begins: dict[tuple[str, ...], tuple[int, ...]] = {}
        self._words: frozenset[str] | None = None

    def knows(self, head: Sequence[str]) -> bool:
        """Whether beginnings of these tokens were looked for before."""
        return tuple(head[:2]) in self._begins

    def find_beginnings(self, head: Sequence[str]) -> tuple[int, ...]:
        """The places where a block with these first tokens may begin."""
        key = tuple(head[:2])
        if (begins := self._begins.get(key)) is None:
            begins = tuple([found.start() for found in beginning_of(head).finditer(self.text)])
            self._begins[key] = begins
        return begins

    def has_pieces_of(self, words: Sequence[str]) -> bool:
        """Whether each of the words stands in the text, as a whole or in pieces."""
        if self._words is None:
            self._words = frozenset(tokens_of(self.text))
        known = self._words
        return all(word in known or _is_made_of(word, known) for word in words)


def _is_made_of(word: str, known: frozenset[str]) -> bool:
    if len(word) > _LONGEST_WORD:
        return True  # too long to find out
    ends = {0}
    for end in range(1, len(word) + 1):
        if any(word[begin:end] in known for begin in ends):
            ends.add(end)
    return len(word) in ends


class _Part:
    """One text, in which names are looked for before it is read."""

    __slots__ = ("_letters", "text")

    def __init__(self, text: str) -> None:
        self.text = text
        self._letters: list[str] | None = None

    def may_hold(self, name: str) -> bool:
        """Whether the name stands in the text. Ends of lines, colours, tags and escapes may have parted or hidden it."""
        name, text = name[:_LONGEST_NAME], self.text
        if name in text:
            return True
        # The longest beginning that stands there has the shortest rest.
        least, most = 0, len(name)
        while most - least > 1:
            middle = (least + most) // 2
            least, most = (middle, most) if name[:middle] in text else (least, middle)
        if least and name[least:] in text:
            return True
        if self._letters is None:
            self._letters = list(_letters_of(text))
        return any(name in one for one in self._letters)


def _letters_of(text: str) -> Iterator[str]:
    yield _NO_LETTERS.sub("", text)
    if "<" in text or "&lt;" in text or "\x1b" in text or "\\u003c" in text:
        yield _NO_LETTERS.sub("", _MARKUP.sub("", text))
    if hidden := hidden_parts(text):
        # A line's end may part an escape.
        for read in (without_escapes(hidden), without_escapes(_LINE_ENDS.sub("", hidden))):
            yield read
            yield _NO_LETTERS.sub("", read)
            yield _NO_LETTERS.sub("", _MARKUP.sub("", read))


class Readings:
    """The texts, and all the ways in which they are read."""

    __slots__ = ("_held", "_parts", "_read", "_readings", "_selected", "_short", "texts")

    def __init__(self, texts: Sequence[str]) -> None:
        self.texts = texts
        self._parts = [_Part(text) for text in texts]
        self._short = _Part("".join([text for text in texts if len(text) <= _SHORT]))
        self._held: dict[str, bool] = {}  # by the name
        self._selected: dict[str, tuple[int, ...]] = {}  # by the name
        self._read: dict[tuple[int, int], str] = {}  # by the number of the text and of the breaks
        self._readings: dict[
            tuple[int, tuple[int, ...]], ReadText
        ] = {}  # by the number of the breaks, and those of the texts

    def knows(self, name: str) -> bool:
        return name in self._held

    def may_hold(self, name: str) -> bool:
        """Whether the name stands in one of the texts, or begins in one page and ends in the next."""
        if (is_held := self._held.get(name)) is None:
            long = [part for part in self._parts if len(part.text) > _SHORT]
            is_held = self._held[name] = any(part.may_hold(name) for part in (self._short, *long))
        return is_held

    def has_read(self, number: int, *, name: str) -> bool:
        return (number, self._selected.get(name)) in self._readings

    def read(self, number: int, *, name: str) -> ReadText:
        """The texts around the name without escapes, and before that without `BREAKS[number]`."""
        if (selected := self._selected.get(name)) is None:
            selected = self._selected[name] = tuple(self._around(name))
        if (reading := self._readings.get((number, selected))) is None:
            reading = self._readings[number, selected] = ReadText(self._join(number, selected))
        return reading

    def _around(self, name: str) -> Iterator[int]:
        """The texts that may hold the name and those behind, in which a block may end that begins there; short ones always."""
        near = 0
        for at, part in enumerate(self._parts):
            near = _MOST_PAGES if part.may_hold(name) else near - 1
            if near >= 0 or len(part.text) <= _SHORT:
                yield at

    def _join(self, number: int, selected: tuple[int, ...]) -> str:
        breaks = BREAKS[number]
        if breaks is None:
            return "\n".join([self._read_part(number, at) for at in selected])
        if not any(breaks.search(self.texts[at]) for at in selected):
            return ""
        return "".join([self._read_part(number, at) for at in selected])

    def _read_part(self, number: int, at: int) -> str:
        if (text := self._read.get((number, at))) is None:
            text, breaks = self.texts[at], BREAKS[number]
            if breaks is not None:
                text = _LINE_ENDS.sub("", breaks.sub("", text))
            text = self._read[number, at] = _without_escapes(text)
        return text


def _without_escapes(text: str) -> str:
    """The same, and no barrier comes from an escape."""
    return BARRIER.join([without_escapes(one).replace(BARRIER, " ") for one in text.split(BARRIER)])
