r"""Going on where the output limit fell: what to show the model of its own text, and where its reply belongs (cut:continued).

A reply that goes on "from here" may begin one character early or late, repeat a line, apologise first or start over, and
nothing in it says so; glued on blindly it makes a file with a hole or a doubled line that still parses. So the end of what
was received is held back: of the received text R the model is shown P = R[:-m] only, and T = R[-m:] is kept. Whoever
really goes on from P writes T again, so T in the reply marks the seam to the character, whatever stands around it.

Why that seam cannot lie: T is chosen so long that it occurs once in R. If the reply repeats the end of P and then says T,
all of it is a suffix of R, so T cannot stand in it earlier: the seam is the first T in the reply or there is none. Where no T
of MAX_HELD characters is unique in all of R (a file of equal blocks), it has to be so near the end, and a reply that reads as
a repetition from an earlier place is refused. The price of holding back is m characters a request, about 10 tokens.

P ends inside a word where it can. Then nothing that is said *about* the text can be taken for the text: a reply that goes on
completes the word, an apology does not. A model may also go on from P in other words than T: that is its good right, it
never saw T. It is believed if it completes the word as T does. What shows neither sign is refused, and the caller asks for
smaller pieces instead: losing a request is better than a wrong file.

Where this can fail: a reply that joins rightly and then, inside a JSON string and without a line break, breaks off with a
remark ("... and so on") is the model's own text, and no seam can tell; the same for words after the end of a text, which
unlike JSON does not say where it ends.
"""

import json
import re
from collections.abc import Callable
from typing import Literal

import msgspec

from turnwise.rules.schema import decode_strictly
from turnwise.vocab import Repair

Kind = Literal["json", "text"]

MIN_HELD = 24  # characters; about 8 tokens, which no two places of a file share by chance
MAX_HELD = 2048  # a run of more equal characters than this is for the split: nobody counts them rightly anyway
WORD_REACH = (
    400  # how far back an end inside a word is looked for; past a line of dashes, whose length nobody remembers
)
MIN_SHOWN = 16  # less of the text is no beginning to go on from
MAX_PREAMBLE = 300  # an apology is a line or two; what is longer may be the text itself
WORTH_SHARE = 8  # of a reply that was cut again, this part has to be new: who starts over each time grows by crumbs
MAX_REPEATS = 8  # places that an ambiguous T is looked up at
MIN_AGREED = 6  # characters that a reply in other words shares with the held part, the cut word's rest among them
OVERLAP = 24  # characters of P at a reply's beginning that make it a repetition

_ESCAPE = re.compile(r"\\(?:u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}|u[0-9a-fA-F]{0,4}|.)", re.DOTALL)
_WORD_END = re.compile(r"[a-z]{3,}")
_FENCE = re.compile(r"(?:\A|\n)[ \t]*(`{3,})[\w+.-]*[ \t]*\n?\Z")
_PREAMBLE = re.compile(
    r"(?:i(?:'m| am) )?(?:very |so |really )?(?:sorry|apolog|my apolog|i apolog|sure\b|certainly|of course|ok\b|okay|here\b"
    r"|continu|understood|got it|right\b|absolutely|as requested|the (?:rest|remain|continu)|resum|going on|picking up"
    r"|let me|i will|i'll|no problem|yes\b|entschuldig|hier |natürlich|gern|fortsetzung|weiter)",
    re.IGNORECASE,
)
# Numbers as floats: thousands of digits would raise where the int is made.
_scan: Callable[[str], tuple[object, int]] = json.JSONDecoder(parse_int=float).raw_decode


class Held(msgspec.Struct, frozen=True):
    """The received text in two: `shown` goes to the model, `held` marks the seam in its reply."""

    shown: str
    held: str


class Asked(msgspec.Struct, frozen=True):
    """The end of a continue request: the assistant's message, then the user's (none where the endpoint goes on from an
    assistant's message by itself)."""

    assistant: str
    user: str | None


class Grown(msgspec.Struct, frozen=True, kw_only=True):
    """`text` is all there is now. `whole`: the JSON object is closed, or the text's reply ended by itself."""

    text: str
    whole: bool
    repairs: tuple[Repair, ...] = ()


class NoSeam(msgspec.Struct, frozen=True):
    """The reply cannot be joined without a guess."""

    why: str


class NoGrowth(msgspec.Struct, frozen=True):
    """The reply says nothing that was not there, or so little that going on would not end."""


# what is asked


def hold_back(received: str, *, kind: Kind) -> Held | None:
    """Divide what was received; None where there is too little of it, or its end is too regular to be found again.

    Half a character at the end, as decoders leave it, is given up: the model writes it again.
    """
    text = received.rstrip("\ufffd")
    while text and "\ud800" <= text[-1] <= "\udfff":
        text = text[:-1]
    length, wanted, tried = len(text), MIN_HELD, 0
    escapes = _escapes(text) if kind == "json" else frozenset[int]()
    while True:
        if length - wanted < MIN_SHOWN:
            return None
        at = _boundary(text, before=length - wanted, escapes=escapes)
        if at not in (0, tried) and text.find(text[at:]) == at:
            return Held(text[:at], text[at:])
        if wanted == MAX_HELD:
            near = text.find(text[at:], max(0, length - 2 * MAX_HELD))
            return Held(text[:at], text[at:]) if at and near == at and length > 2 * MAX_HELD else None
        tried, wanted = at, min(wanted * 2, MAX_HELD)


def ask_to_continue(held: Held, *, kind: Kind, tool: str = "", prefill: bool = False) -> Asked:
    """The messages that ask for the rest. `tool` is the called tool's name, empty for an answer in text."""
    if prefill:
        return Asked(held.shown, None)
    if tool and kind == "json":
        what = f"the beginning of the arguments of your call of `{tool}`, as JSON text"
        until = (
            "up to and including the closing brace. It is JSON text as before: inside a string, write a line break as \\n and a "
            'quotation mark as \\"'
        )
    elif tool:
        what, until = f"the beginning of the input of your call of `{tool}`", "to its end"
    else:
        what, until = "the beginning of your answer", "to its end"
    tail = held.shown[-60:]
    return Asked(
        held.shown,
        f"Your last message is {what}; the output limit cut it off. Go on with it: what you write now is put directly behind its "
        f"last character, in the middle of a word if need be. Write the remaining characters only, {until}. Repeat nothing, "
        f"start with no introduction and no code fence, add no comment, call no tool. It ends with these characters:\n{tail}",
    )


def _escapes(text: str) -> frozenset[int]:
    """The places in the text's last part that lie inside an escape (a pair of surrogates counts as one)."""
    start = max(0, len(text) - MAX_HELD - WORD_REACH - 16)
    while start and text[start - 1] == "\\":
        start -= 1
    return frozenset(
        [place for found in _ESCAPE.finditer(text, start) for place in range(found.start() + 1, found.end())]
    )


def _boundary(text: str, *, before: int, escapes: frozenset[int]) -> int:
    """Where P ends: inside a word at or shortly before `before`, else at the next best place; 0 if there is none.

    Never beside a space: servers trim messages. Never inside an escape.
    """
    fallback = 0
    for at in range(before, max(before - WORD_REACH, MIN_SHOWN - 1), -1):
        if at in escapes or text[at - 1].isspace() or text[at].isspace():
            continue
        if text[at - 1].isalpha() and at - 1 not in escapes and _WORD_END.match(text, at):
            return at
        fallback = fallback or at
    return fallback


# what comes back


def stitch(held: Held, *, reply: str, kind: Kind, cut: bool) -> Grown | NoSeam | NoGrowth:
    """Join the reply to what there was. `cut`: the reply itself met the limit.

    The grown text of kind `json` is a closed object or can still become one; whether it fits its schema is the caller's to
    judge. Linear in the texts.
    """
    shown, mark = held.shown, held.held
    reply = reply.rstrip("\ufffd")
    if kind == "text" and not cut and reply == mark:  # the limit fell behind its last character
        return Grown(text=shown + mark, whole=True)
    if not reply.strip() or mark.startswith(reply) or _is_echo(reply, received=shown + mark):
        return NoGrowth()
    at = reply.find(mark)
    if at >= 0:
        echo = _echo(reply, at=at, shown=shown)
        before = reply[: at - echo]
        fence = _FENCE.search(before)
        if _is_preamble(before[: fence.start()] if fence else before, fenced=fence is not None):
            if kind == "text" and fence is None and echo and reply.lstrip().startswith("```"):
                return NoSeam("the reply begins with a code fence that the text has there too")
            if _reads_as_repetition(reply[at:], shown=shown, mark=mark):
                return NoSeam("the text repeats itself, and the reply fits in two places")
            repairs = _seam_repairs(before, fenced=fence is not None, echo=echo)
            return _join(
                held,
                reply[at:],
                reply_length=len(reply),
                kind=kind,
                cut=cut,
                repairs=repairs,
                fence=fence and fence.group(1),
            )
    if _completes_word(reply, shown=shown, mark=mark):
        repair = Repair(
            "continued_otherwise", "continuation", f"other words after {len(shown):,} characters than before"
        )
        return _join(held, reply, reply_length=len(reply), kind=kind, cut=cut, repairs=(repair,), fence=None)
    return NoSeam("the reply does not go on from where the text was cut")


def _is_echo(reply: str, *, received: str) -> bool:
    """Whether the reply only repeats what was there."""
    return received.startswith(reply) or received.endswith(reply) or (len(reply) >= OVERLAP and reply in received)


def _echo(reply: str, *, at: int, shown: str) -> int:
    """How many characters before the mark are the end of what was shown."""
    low, high = 0, min(at, len(shown))
    while low < high:  # that many fit, and all that fits less fits too
        middle = (low + high + 1) // 2
        if shown.endswith(reply[at - middle : at]):
            low = middle
        else:
            high = middle - 1
    return low


def _is_preamble(before: str, *, fenced: bool) -> bool:
    said = before.strip()
    if not said:
        return True
    ends = fenced or before.endswith("\n") or said[-1] in ":.!…"
    return len(said) <= MAX_PREAMBLE and ends and _PREAMBLE.match(said) is not None


def _reads_as_repetition(reply: str, *, shown: str, mark: str) -> bool:
    """Whether the reply, from the mark on, could as well repeat the text from an earlier place that reads like the mark."""
    received = shown + mark
    place = received.find(mark)
    for _ in range(MAX_REPEATS):
        if place >= len(shown):
            return False
        if reply.startswith(received[place : place + len(reply)]):
            return True
        place = received.find(mark, place + 1)
    return True


def _completes_word(reply: str, *, shown: str, mark: str) -> bool:
    """Whether the reply goes on in the middle of the word in which the shown text ends, as the mark does."""
    word = _WORD_END.match(mark)
    if word is None or not shown[-1].isalpha() or not reply.startswith(mark[: max(word.end() + 1, MIN_AGREED)]):
        return False
    return _PREAMBLE.match(reply) is None and reply[:OVERLAP] not in shown


def _seam_repairs(before: str, *, fenced: bool, echo: int) -> tuple[Repair, ...]:
    found = [
        (before.strip(" \t\n`"), "continued_after_words", "left out what was said before the text went on"),
        (fenced, "continued_in_fence", "took the code fence off"),
        (echo, "continued_with_overlap", f"dropped {echo:,} characters that were there already"),
    ]
    return tuple([Repair(kind, "continuation", what) for holds, kind, what in found if holds])


def _join(
    held: Held, rest: str, *, reply_length: int, kind: Kind, cut: bool, repairs: tuple[Repair, ...], fence: str | None
) -> Grown | NoSeam | NoGrowth:
    if kind == "text" and fence:
        taken = _take_fence_off(rest, fence=fence, cut=cut)
        if taken is None:
            return NoSeam("the reply stands in a code fence whose end is not clear")
        rest = taken
    text = held.shown + rest
    grown = _close(text, repairs=repairs) if kind == "json" else Grown(text=text, whole=not cut, repairs=repairs)
    if isinstance(grown, Grown) and not grown.whole and len(rest) - len(held.held) <= reply_length // WORTH_SHARE:
        return NoGrowth()
    return grown


def _take_fence_off(rest: str, *, fence: str, cut: bool) -> str | None:
    """The text without the fence's closing line; None where it cannot be told from a fence of the text's own."""
    if cut:
        return None if f"\n{fence}" in rest else rest.rstrip("`").removesuffix("\n")
    inner, closing, after = rest.rpartition(f"\n{fence}")
    return inner if closing and not after.strip() else None


def _close(text: str, *, repairs: tuple[Repair, ...]) -> Grown | NoSeam:
    """End the text where its JSON ends; what follows the end is no part of it."""
    try:
        value, end = _scan(text)
    except json.JSONDecodeError as error:
        if _can_go_on(text, error=error):
            return Grown(text=text, whole=False, repairs=repairs)
        return NoSeam(f"joined with the reply it is not valid JSON at character {error.pos:,}")
    except RecursionError:
        return NoSeam("joined with the reply it is nested too deeply")
    if not isinstance(value, dict):
        return NoSeam("joined with the reply it is no JSON object")
    try:
        decode_strictly(text[:end])
    except ValueError as error:
        return NoSeam(f"joined with the reply it is not valid JSON: {error}")
    if text[end:].strip():
        repairs += (Repair("continued_past_end", "continuation", "dropped what followed the end of the arguments"),)
    return Grown(text=text[:end], whole=True, repairs=repairs)


def _can_go_on(text: str, *, error: json.JSONDecodeError) -> bool:
    """Whether the decoder ran into the end of the text, rather than into something that is no JSON.

    It names the beginning of an open string, and of a literal, number or escape that the end cut (11 characters at most, for
    half a pair of surrogates). A control character, and an escape that there is none of, stay wrong.
    """
    if error.msg.startswith(("Invalid control", "Invalid \\escape")):
        return False
    return error.msg.startswith("Unterminated string") or len(text) - error.pos <= len("\\ud83d\\ude")
