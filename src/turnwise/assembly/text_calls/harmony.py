"""Harmony, in which gpt-oss writes: messages, each with a header that says its author, its channel and its recipient.

`<|start|>assistant<|channel|>commentary to=functions.NAME <|constrain|>json<|message|>{..}<|call|>`. The channel `analysis` is
reasoning; `final` and `commentary` are the answer; a message to a tool is a call. Servers take away some of the marks, so a
message may begin at any of them.

Source: OpenAI cookbook, "OpenAI harmony response format" ("Message format", "Receiving tool calls").
"""

import re

import msgspec

from turnwise.assembly.text_calls.block_cursor import Beyond, Cursor, Wrong
from turnwise.assembly.text_calls.json_calls import arguments
from turnwise.assembly.text_calls.tags import Closing

START, CHANNEL, MESSAGE = "<|start|>", "<|channel|>", "<|message|>"
BEGINNINGS = (CHANNEL, START)
ENDS = ("<|end|>", "<|return|>", "<|call|>")
END = re.compile("|".join(map(re.escape, ENDS)))
# What ends a message of reasoning. A call that begins without an end before it is a part of the reasoning.
END_OF_REASONING = Closing(
    ends=("<|end|>", "<|return|>"),
    follows=("<|start|>assistant", "<|channel|>final", "<|channel|>commentary<|message|>"),
)
# How a message begins whose `<|start|>assistant` stands in the prompt.
RECIPIENT = re.compile(r"to=functions\.[A-Za-z0-9_.-]{1,64}\s?<\|channel\|>")
_RECIPIENT_BEGUN = re.compile(r"to=functions\.[A-Za-z0-9_.-]{0,64}\s?(<[^<]*)?")
_CHANNELS = ("analysis", "commentary", "final")
_MOST = 200  # characters of a header
_ROLE_NAME = re.compile(r"[A-Za-z][\w.:/-]*")
_ROLE = re.compile(rf"<\|start\|>\s*({_ROLE_NAME.pattern})")
_CHANNEL = re.compile(r"<\|channel\|>\s*([A-Za-z]+)")
_TO = re.compile(r"(?:^|(?<=[\s>]))to=(?:functions\.)?([A-Za-z0-9_.-]+)")
_CONSTRAIN = re.compile(r"<\|constrain\|>\s*[A-Za-z]*")
_PIECE = re.compile(r"\s*(<\|(?:start|channel|constrain)\|>|[^\s<]+)")
_MARKS = (START, CHANNEL, MESSAGE, "<|constrain|>")


def may_begin_with_recipient(text: str) -> bool:
    """Whether such a message may begin there: more has to come."""
    if len(text) < len("to=functions."):
        return bool(text) and "to=functions.".startswith(text)
    found = _RECIPIENT_BEGUN.fullmatch(text)
    return found is not None and CHANNEL.startswith(found.group(1) or "")


class Header(msgspec.Struct, frozen=True):
    """`end` is behind its last mark. Without a channel it is empty."""

    end: int
    role: str
    channel: str
    to: tuple[str, ...]

    @property
    def is_reasoning(self) -> bool:
        """Whether the message is not part of the answer: the model thinks, or writes what others say."""
        return self.channel == "analysis" or self.role != "assistant"

    @property
    def is_call(self) -> bool:
        return bool(self.to) and not self.is_reasoning


def header_of(text: str) -> Header | None:
    """The header that the text begins with; None if it begins with no header. Raises Beyond where the text ends within it."""
    end = text.find(MESSAGE, 0, _MOST + len(MESSAGE))
    if end < 0:
        if len(text) < _MOST + len(MESSAGE) and _is_header(text, is_whole=False):
            raise Beyond
        return None
    head = text[:end]
    if not _is_header(head, is_whole=True):
        return None
    role, channel = _ROLE.match(head), _CHANNEL.findall(head)
    to = tuple(_TO.findall(head))
    # Beside what is known stands one word at most, the type of what follows; or the arguments, which are wrong there.
    rest = _CONSTRAIN.sub(" ", _TO.sub(" ", _CHANNEL.sub(" ", _ROLE.sub(" ", head)))).strip()
    is_known = len(channel) < 2 and all(one.lower() in _CHANNELS for one in channel)
    is_type = len(rest.split()) < 2 or (bool(to) and "{" in rest)
    if not is_known or not is_type or not (role or channel) or rest.startswith((START, CHANNEL)):
        return None
    return Header(
        end=end + len(MESSAGE),
        role="assistant" if role is None else role.group(1),
        channel=channel[0].lower() if channel else "",
        to=to,
    )


def _is_header(text: str, *, is_whole: bool) -> bool:
    """Whether the text is a header without its last mark, or may be the beginning of one. If it is not a beginning, no further
    text makes it one, so that it does not matter how the text was cut."""
    at, before, words, marks = 0, "", 0, 0
    while (piece := _PIECE.match(text, at)) is not None:
        at, word = piece.end(), piece.group(1)
        is_open = not is_whole and at == len(text)
        if word.startswith("<|"):
            marks += 1
            if before == CHANNEL or (word == START and marks > 1) or text.find(word) < piece.start(1):
                return False
        elif before == CHANNEL:
            name = word.lower()
            if name not in _CHANNELS and not (is_open and any(one.startswith(name) for one in _CHANNELS)):
                return False
        elif word.startswith("to="):
            return True
        elif before == START:
            if _ROLE_NAME.fullmatch(word) is None:
                return False
        elif before != "<|constrain|>":
            words += not (is_open and "to=".startswith(word))
            if words > 1:
                return False
        before = word
    rest = text[at:].lstrip()
    return not rest or (not is_whole and any(mark.startswith(rest) for mark in _MARKS))


def call(cursor: Cursor) -> None:
    """A message to a tool. It ends with `<|call|>`, a stop token, which most servers leave out."""
    header = header_of(cursor.text)
    if header is None or not header.is_call:
        raise Wrong("the message is to no tool")
    cursor.begin_call(header.to[0])
    if len(header.to) > 1:
        raise Wrong("the message is to two tools")
    cursor.at = header.end
    if "{" in cursor.text[: header.end]:
        raise Wrong("there are arguments in the header")
    cursor.space()
    arguments(cursor)
    cursor.space()
    if not cursor.takes_one_of(*ENDS, is_enough=True):
        raise Wrong("`<|call|>` was expected")


def end(cursor: Cursor) -> None:
    """Behind the end of a message: no call, but another message may begin there."""
    cursor.space()
    if not cursor.is_at_end and not any(
        one.startswith(cursor.text[cursor.at : cursor.at + len(one)]) for one in BEGINNINGS
    ):
        raise Wrong("no message begins there")
    if any(cursor.text.startswith(one, cursor.at) for one in BEGINNINGS):
        header_of(cursor.text[cursor.at :])
        raise Wrong("a message ends there")
    raise Beyond


def header_in(text: str, *, marker: str) -> tuple[int, Header | None]:
    """Where the header begins that the text begins with, behind the end of a message or not, and the header. Raises as
    `header_of`."""
    if marker not in ENDS:
        return 0, header_of(text)
    start = len(text) - len(text[len(marker) :].lstrip())
    return start, header_of(text[start:]) if text.startswith(BEGINNINGS, start) else None
