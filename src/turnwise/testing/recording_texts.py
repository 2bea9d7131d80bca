"""The texts that a body brings in pieces, as the deltas of a stream do: where each piece stands in the body.

Nothing is known of the API family: a text is what fields of one name hold, one behind the other. The places stay those of the
body as it is written, with its escapes, so a text can be changed where it stands.
"""

import re

import msgspec

Span = tuple[int, int]
"""Where a piece begins and ends in the body, without its quotes."""

# A string ends with its line at the latest, so a stray quote hides no more than that; the last one may be cut off.
_TOKEN = re.compile(
    r'"(?P<text>[^"\\\r\n]*(?:\\.[^"\\\r\n]*)*)(?:"(?P<is_name>\s*:)?|\\?\Z)'
    r"|(?P<opens>[{\[])|(?P<closes>[}\]])|(?P<number>-?\d+)|(?P<truth>true|false)|(?P<event>(?:\r?\n|\r){2})"
)
# Names, not texts: of one behind the other nobody makes a text, and the same ones come back in later requests.
_NO_TEXTS = re.compile(r"id|\w+_id|\w+Id|type|object|role|model|name|status")
# What tells two texts of one stream apart: numbers as `index` and `output_index`, Gemini's `thought`, and its path in arguments.
_MARKS = re.compile(r"(?:\w+_)?index|thought|jsonPath")
_ITEMS = "output"
_EVENTS = "response."  # of a Responses stream: its last events say whole what the deltas said
_UNSAID = ("0", "false")  # where a mark is left out, it means this

TextMark = tuple[str, str, str]
"""The field that a marked object stands in, the mark's name, and its value."""


class _Level(msgspec.Struct):
    """An object or a list that is open: the name of the field that it is in, and what marks its texts."""

    name: str = ""
    around: "_Level | None" = None
    marks: list[TextMark] = []
    inside: int = 0

    def opened(self, name: str) -> "_Level":
        """A new level in this one. The items of a Responses answer are told apart by their places: they have no `index`."""
        level = _Level(name, self)
        if self.name == _ITEMS:
            level.mark(_ITEMS, str(self.inside))
        self.inside += 1
        return level

    def mark(self, name: str, value: str) -> None:
        if value not in _UNSAID:
            self.marks.append((self.name, name, value))

    def all_marks(self) -> tuple[TextMark, ...]:
        marks = list[TextMark]()
        level: _Level | None = self
        while level is not None:
            marks += level.marks
            level = level.around
        return tuple(marks)


class SplitTexts(msgspec.Struct, frozen=True):
    """The texts of a body that have more than one piece: `streams` are pieces with the same marks, as one block has them, and
    `all_of_name` whatever stands in fields of one name, as a text in several blocks or messages needs it."""

    streams: list[list[Span]]
    all_of_name: list[list[Span]]


def split_texts(body: str) -> SplitTexts:
    """The places of the texts that this body brings in pieces."""
    streams: dict[tuple[str, tuple[TextMark, ...]], list[Span]] = {}
    names: dict[str, list[Span]] = {}
    for name, level, span in _strings(body):
        names.setdefault(name, []).append(span)
        streams.setdefault((name, level.all_marks()), []).append(span)
    return SplitTexts(
        [one for one in streams.values() if len(one) > 1], [one for one in names.values() if len(one) > 1]
    )


def _strings(body: str) -> list[tuple[str, _Level, Span]]:
    """Each string that may be a piece of a text, with the name of its field. Its level is complete at the end only: a mark
    may stand behind the text."""
    found: list[tuple[str, _Level, Span]] = []
    level, name = _Level(), ""
    for token in _TOKEN.finditer(body):
        match token.lastgroup:
            case "is_name":
                name = token["text"]
            case "text":
                if _MARKS.fullmatch(name) or (name == "type" and token["text"].startswith(_EVENTS)):
                    level.mark(name, token["text"])
                elif token["text"] and not _NO_TEXTS.fullmatch(name):
                    found.append((name, level, token.span("text")))
            case "number" | "truth":
                if _MARKS.fullmatch(name):
                    level.mark(name, token[0])
            case "opens":
                level = level.opened(name)
            case "closes":
                level = level.around or _Level()
                name = level.name
            case _:
                level, name = _Level(), ""
    return found
