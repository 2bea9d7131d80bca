"""Tags that say of what stands between them that it is not the answer: reasoning, and words that are only shown.

HTML shows code between `<pre>`, `<code>` and their like, and hides what stands in a comment; examples and quotations are shown
too. Upper and lower case are the same to all of them.
"""

import re

import msgspec

from turnwise.assembly.text_calls import reasoning_marks as thinking

# HTML standard, "Text-level semantics", "Grouping content" and "Obsolete features"; the last ones are what models write.
_SHOWING = (
    *("pre", "code", "samp", "kbd", "tt", "xmp", "listing", "plaintext", "script", "style", "textarea", "template"),
    *("blockquote", "q", "example", "examples", "sample"),
)
_SHOWING_OTHERS = {"<!--": "-->", "<![cdata[": "]]>", "[code]": "[/code]", "[quote]": "[/quote]"}
# Where these begin a line, nothing but their own end counts in them (CommonMark, "HTML blocks", kinds 1, 2 and 5).
RAW = frozenset({"pre", "script", "style", "textarea", "<!--", "<![cdata["})
_OTHERS = {**thinking.OTHERS, **_SHOWING_OTHERS}
_CLOSED_BY = {close: opens for opens, close in _OTHERS.items()}
_REASONING = frozenset([*thinking.TAGS, *thinking.OTHERS])


def _one_of(marks: "tuple[str, ...]") -> str:
    return "|".join(map(re.escape, sorted(marks, key=len, reverse=True)))


_TAG = rf"<(?P<slash>/?)(?P<name>{_one_of(thinking.TAGS + _SHOWING)})(?=[\s/>])"
# What begins a tag, or may hold one; else no pattern is tried on a text.
BEGIN = ("<", "[", "◁")
_NAMING = r"\[(?:code|quote)(?==)"  # forums name a language or an author behind it
PATTERN = rf"{_TAG}|(?P<other>{_one_of((*_OTHERS, *_CLOSED_BY))}|{_NAMING})"
_FOUND = re.compile(PATTERN, re.IGNORECASE)
# An end of a text that may be cut in the middle of a tag.
_MAY_BE_CUT = re.compile(r"(?:[<\[◁][^\s`~<◁]*|-{1,2}|\]{1,2})\Z")
_LONGEST = 2 + max([len(mark) for mark in (*thinking.TAGS, *_SHOWING, *_OTHERS, *_CLOSED_BY)])


class Tag(msgspec.Struct, frozen=True):
    """`name` is the same for both ends of a pair."""

    name: str
    is_closing: bool

    @property
    def is_reasoning(self) -> bool:
        return self.name in _REASONING


def tag_of(found: re.Match[str]) -> Tag:
    """The tag that `PATTERN` has found."""
    if (name := found.group("name")) is not None:
        return Tag(name.lower(), bool(found.group("slash")))
    mark = found.group("other").lower()
    mark = f"{mark}]" if mark in ("[code", "[quote") else mark
    return Tag(_CLOSED_BY.get(mark, mark), mark in _CLOSED_BY)


def is_of_a_program(found: re.Match[str], *, before: str) -> bool:
    """Whether what `PATTERN` has found, directly behind this character, is no tag but an index or a type: `CODES[code]`,
    `List<Example>`. A closing tag is neither."""
    if not (before.isalnum() or before in ("_", "]", ")")):
        return False
    if (name := found.group("name")) is not None:
        return not found.group("slash") and name == name.capitalize() and before not in "])"
    return found.group()[0] == "[" and found.group()[1] != "/"


def tags_in(text: str) -> list[Tag]:
    return [tag_of(found) for found in _FOUND.finditer(text)]


def may_hold(text: str) -> bool:
    return any(begin in text for begin in BEGIN)


def cut_from(text: str) -> int:
    """Where an end of the text begins that may be the beginning of a tag; its length where there is none."""
    found = _MAY_BE_CUT.search(text, max(0, len(text) - _LONGEST))
    return len(text) if found is None else found.start()


def written(name: str) -> str:
    """The opening tag, as people write it."""
    return name if name in _OTHERS else f"<{name}>"


class OpenTag(msgspec.Struct, frozen=True):
    """A tag that is not closed yet. `number` tells it from others of its name; `is_raw`: only its own end counts in it."""

    name: str
    number: int
    is_raw: bool

    @property
    def is_reasoning(self) -> bool:
        return self.name in _REASONING


_MOST_OPEN = 64  # what is opened in more is opened there already


class OpenTags(msgspec.Struct, frozen=True):
    """The tags that are open at one place of a text. A closing tag closes those within it as well."""

    all: tuple[OpenTag, ...] = ()
    count: int = 0  # of those that were opened so far

    @property
    def is_raw(self) -> bool:
        return bool(self.all) and self.all[-1].is_raw

    def behind(self, tag: Tag, *, begins_line: bool) -> "OpenTags":
        """Those that are open behind the tag."""
        if self.is_raw and not (tag.is_closing and tag.name == self.all[-1].name):
            return self
        if tag.is_closing:
            at = next((at for at in reversed(range(len(self.all))) if self.all[at].name == tag.name), None)
            return self if at is None else OpenTags(self.all[:at], self.count)
        if len(self.all) >= _MOST_OPEN:
            return self
        opened = OpenTag(tag.name, self.count + 1, begins_line and tag.name in RAW)
        return OpenTags((*self.all, opened), self.count + 1)
