r"""Going on where the output limit fell: what to show the model of its own text, and where its reply belongs (cut:continued).

A reply that goes on "from here" may begin one character early or late, repeat a line, apologise first or start over, and
nothing in it says so; glued on blindly it makes a file with a hole or a doubled line that still parses. So the end of what
was received is held back: of the received text R the model is shown P = R[:-m] only, and T = R[-m:] is kept. A model that
really continues from P writes T again, so T in the reply marks the seam to the character, whatever stands around it.

Inside JSON strings T is compared by what it says: é and \u00e9 are the same. Where the reply spells T otherwise, the joined
text gets one spelling.

Why that seam cannot lie: T is chosen so long that it occurs once in R. If the reply repeats the end of P and then says T,
all of it is a suffix of R, so T cannot stand in it earlier: the seam is the first T in the reply or there is none. Nor does T
repeat itself: of a run of equal characters, one left out behind P would not show. Where no T of MAX_HELD characters is like that
(a file of equal lines), nothing is continued. The price of holding back is m characters a request, about 10 tokens.

P ends inside a word where it can. Then nothing that is said *about* the text can be taken for the text, and the rest of the word
is the likeliest thing to be written again. A model may go on from P in other words than T: that is its good right, it never saw
T. But that looks the same as a line that was skipped, so it is refused like everything without T, and the caller asks for smaller
pieces instead: losing a request is better than a wrong file. A reply with the seam may still be the file's own text in place of
JSON text (`raw_replies.py`), or say something behind the end that is more of the file.

Where this can fail: a reply that joins rightly and then leaves something out, or, inside a JSON string and without a line break,
breaks off with a remark ("... and so on"), is the model's own text, and no seam can tell; the same for words after the end of a
text, which unlike JSON does not say where it ends.
"""

import json
import re
from collections import deque
from collections.abc import Callable
from functools import lru_cache
from typing import Literal, cast

import msgspec

from turnwise.rules.schema import decode_strictly
from turnwise.vocab import Repair
from turnwise.vocab.hidden_characters import says_something

# One spelling for JSON text, so that pieces of it can be compared by what they say: `\u00e9` and é, `\/` and / are the same.
#
# Only escapes are rewritten; they occur inside strings alone, so a rewritten text has the value that it had.


_HEX = "[0-9a-fA-F]"
_HIGH, _LOW = f"[dD][89abAB]{_HEX}{{2}}", f"[dD][c-fC-F]{_HEX}{{2}}"
ESCAPE = re.compile(rf"\\(?:u({_HIGH})\\u({_LOW})|u({_HEX}{{4}})|.)", re.DOTALL)
_RESPELT = re.compile(rf"(\\(?:u{_HIGH}\\u{_LOW}|u{_HEX}{{4}}|[\\/]))")  # each other escape stays as it is
_HALF = re.compile(
    rf"\\(?:u{_HIGH}\\u{_LOW}|(?P<half>(?:u{_HIGH}(?:\\(?:u{_HEX}{{0,3}})?)?|u{_HEX}{{0,3}})?\Z)|u{_HEX}{{4}}|.)",
    re.DOTALL,
)
_STRING = re.compile(r'"(?:[^"\\]++|\\.)*+("?)', re.DOTALL)
_SHORT = {"\b": "\\b", "\f": "\\f", "\n": "\\n", "\r": "\\r", "\t": "\\t", '"': '\\"', "\\": "\\\\"}
_ONE_CODE = len("\\u00e9")
_LONGEST_HALF = len("\\ud83d\\ude0")


def plainly(text: str) -> str:
    """The JSON text with every character as itself where JSON allows that, else by its shortest escape."""
    if "\\u" not in text and "\\/" not in text:
        return text
    pieces = _RESPELT.split(text)  # what is between the escapes, and these
    pieces[1::2] = map(_plain_escape, pieces[1::2])
    return "".join(pieces)


def without_half_escape(text: str) -> str:
    """The text without an escape at its end that was cut, half a pair of surrogates included."""
    start = aligned(text, before=len(text) - _LONGEST_HALF)
    half = next((found.start() for found in _HALF.finditer(text, start) if found["half"] is not None), len(text))
    return text[:half]


def aligned(text: str, *, before: int) -> int:
    """A place at or before `before` that is inside no escape, or in the digits of one."""
    start = max(0, before)
    while start and text[start - 1] == "\\":
        start -= 1
    return start


def open_string(text: str) -> int | None:
    """Where the string begins that is open at the end of this beginning of a JSON text; None where there is none."""
    strings = deque(_STRING.finditer(text), maxlen=1)
    return strings[0].start() if strings and not strings[0][1] else None


@lru_cache(maxsize=4096)  # a text has few escapes, and has them often
def _plain_escape(escape: str) -> str:
    if len(escape) > _ONE_CODE:
        return chr(0x10000 + ((int(escape[2:6], 16) - 0xD800) << 10) + (int(escape[8:], 16) - 0xDC00))
    if len(escape) < _ONE_CODE:
        return "/" if escape == "\\/" else escape
    character = chr(int(escape[2:], 16))
    if character < " " or "\ud800" <= character <= "\udfff":
        return _SHORT.get(character, escape.lower())
    return _SHORT.get(character, character)


# Does a reply say the value's own text where JSON text was asked for? (cut:continued)
#
# A model that continues with the file's own text writes `"` for `\"` and `\theta` for `\\theta`. Most of that is not JSON and
# fails by itself. The rest is read as something else: `"}` ends the arguments in the middle of a JSON file, `\t` is a tab. The
# sign is in the part of the value that is there already, whose spelling is known. No rule here proves that a reply is right; each
# rule names a sign that it is wrong, and a doubt costs a refusal.


TELLING_CHARACTERS = 200  # of a value; what so much of it does not hold, its rest does not bring up by chance
# What raw text turns into by being read as JSON; line breaks and tabs are in most files, these in next to none.
_RARE = re.compile(r"[bf]|u00[01][0-9a-f]")
_KINDS = re.compile(r"\\(?:([bfnrt]|u00[01][0-9a-f])|.)", re.DOTALL)
_CODES = re.compile(r"\\(?:(u[0-9a-fA-F]{4})|.)", re.DOTALL)
_RUN = re.compile(r"(\\+)(.?)", re.DOTALL)
_BODY = re.compile(r'(?:[^"\\]++|\\.)*+', re.DOTALL)
# A quotation mark, or a line break before anything but a word: commands of LaTeX and folders of Windows begin with a letter.
_OF_JSON = re.compile(r'\\(?:("|n(?!\w|\Z))|.)', re.DOTALL)
_decode: Callable[[str], object] = json.JSONDecoder(strict=False).decode
# Backslashes that the reply should have held, going by the value so far, before their lack says something.
_EXPECTED = 3
_ESCAPED_AGAIN = (("\n", "\\n"), ("\t", "\\t"), ('"', '\\"'), ("/", "\\/"))


def sign_of_own_text(known: str, *, added: str, proven: bool, codes: bool) -> str | None:
    """Why `added` reads as the value's own text, None where nothing says so.

    `known` is the JSON text that is sure, `added` what the reply puts behind it. Of the known part that the reply wrote once
    more, `proven`: it held a backslash, spelt as JSON does; `codes`: it held a `\\u`.
    """
    if (sign := sign_of_translation(known, added=added, quote='\\"')) is not None:
        return sign
    start, place = open_string(known), 0
    if start is None:
        place = added.find('"') + 1
        if not place:
            return None
    shown = "" if start is None else known[start + 1 :]
    while True:
        body = _match(_BODY, added, place)
        place += len(body)
        sign = _sign(
            shown,
            kinds=_kinds(shown or known),
            body=without_half_escape(body),
            closed=added.startswith('"', place),
            proven=proven,
            codes=codes,
        )
        if sign is not None:
            return sign
        after = added.find('"', place + 1)
        if not added.startswith('"', place) or after < 0:
            return None
        shown, place = "", after + 1


def _match(pattern: re.Pattern[str], text: str, place: int) -> str:
    found = pattern.match(text, place)
    return "" if found is None else found[0]


def _sign(shown: str, *, kinds: set[str], body: str, closed: bool, proven: bool, codes: bool) -> str | None:
    """The first sign in one string: `shown` is its text so far, `body` what the reply adds to it, both as JSON text.

    `kinds` are the escapes of its text so far; of all text before it where it begins in the reply."""
    value, added = _value(shown), _value(body)
    if new := _kinds(body) - kinds:
        told = ", ".join([f"`\\{kind}`" for kind in sorted(new)])
        # A piece of a short value may be too short for a sign of JSON; the next piece has more of the value to be held against.
        small = not closed and len(body) < TELLING_CHARACTERS
        sure = proven or small or any(_OF_JSON.findall(body + '"' * closed))
        escapes_backslashes = any(
            length > 1 and after not in ("", "other") for length, after in _runs(body) - _runs(value)
        )
        telling = len(value) >= TELLING_CHARACTERS or any(map(_RARE.fullmatch, new))
        if not sure or (telling and not (proven or escapes_backslashes)):
            return f"the reply brings {told} into a text that has none"
    if "\\" in body and not proven and _runs(body) <= _runs(value) and _is_raw_size(body, value=value):
        return "the reply reads as text without JSON's escapes as well"
    if not codes and _has_codes(body) and not _has_codes(shown) and ("\\" in value or not value.isascii()):
        return "the reply spells characters as no text before it does"
    if closed and _ends_quoted(value + added):
        return "the text would end inside a quotation of its own, as if its quotation marks were not escaped"
    for character, escape in _ESCAPED_AGAIN:
        bare = character in added.replace(escape, "")
        if escape in added and escape not in value and character in value and not bare:
            return f"the reply has `{escape}` where the text before it has the character itself"
    return None


def sign_of_translation(known: str, *, added: str, quote: str = '"') -> str | None:
    """Why `added` has quotation marks of print for those of `known`, where a `"` is written as `quote`."""
    for straight, curly in ((quote, "“”„«»"), ("'", "‘’‚")):
        if straight in known and straight not in added and _any(curly, added) and not _any(curly, known):
            return "the reply has other quotation marks than the text before it"
    return None


def _value(body: str) -> str:
    try:
        return cast("str", _decode(f'"{body}"'))
    except ValueError:
        return body


def _kinds(body: str) -> set[str]:
    return set(_KINDS.findall(plainly(body))) - {""}


def _has_codes(body: str) -> bool:
    return any(_CODES.findall(body))


def _runs(text: str) -> set[tuple[int, str]]:
    """Every run of backslashes in it, with what kind of character follows."""
    return {(len(run), _class_of(after)) for run, after in set(_RUN.findall(text))}


def _class_of(character: str) -> str:
    if character in 'bfnrtu"/':
        return character
    return "letter" if character.isalpha() else "other"


def _is_raw_size(body: str, *, value: str) -> bool:
    """Whether text of the value's own can be so long without a line break, or lacks backslashes that it should have."""
    expected = value.count("\\") * len(body) // max(len(value), 1)
    lacks = "\\\\" not in body and expected >= _EXPECTED
    return lacks or "\n" not in value or len(body) <= max(map(len, value.split("\n")))


def _ends_quoted(value: str) -> bool:
    """Whether the value ends inside a quotation of its own, within braces of its own: a JSON file that lost its end."""
    bare = re.sub(r"\\.", "", value, flags=re.DOTALL)
    if bare.count('"') % 2 == 0:
        return False
    outside = re.sub(r'"[^"]*(?:"|\Z)', "", bare)
    return any(text.count("{") != text.count("}") for text in (bare, outside))


def _any(characters: str, text: str) -> bool:
    return any(character in text for character in characters)


PartialKind = Literal["json", "text"]

MIN_HELD = 24  # characters; about 8 tokens, which no two places of a file share by chance
MAX_HELD = 2048  # a run of more equal characters than this is for the split: nobody counts them rightly anyway
WORD_REACH = (
    400  # how far back an end inside a word is looked for; past a line of dashes, whose length nobody remembers
)
MIN_SHOWN = 16  # less of the text is no beginning to go on from
MAX_PREAMBLE = 300  # an apology is a line or two; what is longer may be the text itself
WORTH_SHARE = 8  # of a reply that was cut again, this part has to be new: who starts over each time grows by crumbs
MIN_MARK = 12  # characters that the held part says, in whatever spelling
MAX_AFTER = 400  # characters behind the end of the arguments: a remark, not more of the file
BEGINNING = 120  # characters of a text that, written again behind the seam, are a new start
OVERLAP = 24  # characters of P at a reply's beginning that make it a repetition

_WORD_END = re.compile(r"[a-z]{3,}")
_FENCE = re.compile(r"(?:\A|\n)[ \t]*(`{3,})[\w+.-]*[ \t]*\n?\Z")
_BLANK: dict[PartialKind, re.Pattern[str]] = {"json": re.compile(r"(?:\s|\\[nrt])*"), "text": re.compile(r"\s*")}
_NUMBER_END = re.compile(r"\.|(?:\.\d+)?[eE][+-]?")  # what the decoder leaves of a number that was cut
# Behind the end of the arguments: the closing of a fence, and a remark in lines of its own.
_AFTER = re.compile(r"\s*(?:[`~]{3,}[ \t]*(?=\s|\Z))?(?:\s*\Z|(?<=[`~\n])\s*[^\"}\]\\]*\Z|\s*\n[^\"}\]\\]*\Z)")
_PREAMBLE = re.compile(
    r"(?:i(?:'m| am) )?(?:very |so |really )?(?:sorry|apolog|my apolog|i apolog|sure\b|certainly|of course|ok\b|okay|here\b"
    r"|continu|understood|got it|right\b|absolutely|as requested|the (?:rest|remain|continu)|resum|going on|picking up"
    r"|let me|i will|i'll|no problem|yes\b|entschuldig|hier |natürlich|gern|fortsetzung|weiter)",
    re.IGNORECASE,
)
# Numbers as floats: thousands of digits would raise where the int is made.
_scan: Callable[[str], tuple[object, int]] = json.JSONDecoder(parse_int=float).raw_decode


class SplitText(msgspec.Struct, frozen=True):
    """The received text in two: `shown` goes to the model, `held` marks the seam in its reply."""

    shown: str
    held: str


class _Seam(msgspec.Struct, frozen=True, kw_only=True):
    """`before`, `mark` and `rest` make the joined text, in one spelling; `again` is what the reply repeated of the first two."""

    before: str
    mark: str
    rest: str
    again: str


class ContinueMessages(msgspec.Struct, frozen=True):
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
    """The reply says nothing that was not there, or so little that going on would not end. That it calls itself done proves
    nothing: a server that hides its cut hides the next one too."""


# what is asked


def hold_back(received: str, *, kind: PartialKind) -> SplitText | None:
    """Divide what was received; None where there is too little of it, or its end is too regular to be found again.

    Half a character or escape at the end, as decoders and limits leave it, is given up: the model writes it again.
    """
    text = received.rstrip("\ufffd")
    while text and "\ud800" <= text[-1] <= "\udfff":
        text = text[:-1]
    if kind == "json":
        text = without_half_escape(text)
    plain = _comparable(text, kind=kind)
    escapes = _escapes(text) if kind == "json" else frozenset[int]()
    most = min(MAX_HELD, len(text) - MIN_SHOWN)
    wanted, tried = MIN_HELD, 0
    while wanted <= most:
        at = _boundary(text, before=len(text) - wanted, escapes=escapes)
        if at not in (0, tried) and _is_mark(_comparable(text[at:], kind=kind), received=plain):
            return SplitText(text[:at], text[at:])
        tried, wanted = at, most if wanted < most < wanted * 2 else wanted * 2
    return None


def _is_mark(end: str, *, received: str) -> bool:
    """Whether this end of what was received occurs once in it, and is no repetition in itself."""
    if len(end) < MIN_MARK or received.find(end) != len(received) - len(end):
        return False
    return end.find(end[: len(end) // 2], 1) < 0


def _comparable(text: str, *, kind: PartialKind) -> str:
    return plainly(text) if kind == "json" else text


def ask_to_continue(held: SplitText, *, kind: PartialKind, tool: str = "", prefill: bool = False) -> ContinueMessages:
    """The messages that ask for the rest. `tool` is the called tool's name, empty for an answer in text."""
    if prefill:
        return ContinueMessages(held.shown, None)
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
    return ContinueMessages(
        held.shown,
        f"Your last message is {what}; the output limit cut it off. Go on with it: what you write now is put directly behind its "
        f"last character, in the middle of a word if need be. Write the remaining characters only, {until}. Repeat nothing, "
        f"start with no introduction and no code fence, add no comment, call no tool. It ends with these characters:\n{tail}",
    )


def _escapes(text: str) -> frozenset[int]:
    """The places in the text's last part that lie inside an escape (a pair of surrogates counts as one)."""
    start = aligned(text, before=len(text) - MAX_HELD - WORD_REACH - 16)
    return frozenset(
        [place for found in ESCAPE.finditer(text, start) for place in range(found.start() + 1, found.end())]
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


def stitch(held: SplitText, *, reply: str, kind: PartialKind, cut: bool) -> Grown | NoSeam | NoGrowth:
    """Join the reply to what there was. `cut`: the reply itself met the limit.

    The grown text of kind `json` is a closed object or can still become one; whether it fits its schema is the caller's to
    judge. Linear in the texts.
    """
    reply = reply.rstrip("\ufffd")
    shown, mark, said = [_comparable(text, kind=kind) for text in (held.shown, held.held, reply)]
    if not says_something(said) or mark.startswith(said) or _is_echo(said, received=shown + mark):
        return NoGrowth()
    place = said.find(mark)
    if place < 0:
        return NoSeam("the reply does not go on from where the text was cut")
    at = reply.find(held.held)
    if at < 0 or _comparable(reply[:at], kind=kind) != said[:place]:
        at = place
    # In its own spelling, which may begin to repeat in the middle of an escape, else by what is said.
    ways = [(held.shown, held.held, reply, at)] if reply.startswith(held.held, at) else []
    for before, end, whole, start in (*ways, (shown, mark, said, place)):
        echo = _echo(whole, at=start, shown=before)
        preamble = whole[: start - echo]
        fence = _FENCE.search(preamble)
        if _is_preamble(preamble[: fence.start()] if fence else preamble, fenced=fence is not None):
            if kind == "text" and fence is None and echo and whole.lstrip().startswith("```"):
                return NoSeam("the reply begins with a code fence that the text has there too")
            seam = _Seam(
                before=before, mark=end, rest=whole[start + len(end) :], again=whole[start - echo : start] + end
            )
            repairs = _seam_repairs(preamble, fenced=fence is not None, echo=echo)
            return _join(
                seam, reply_length=len(whole), kind=kind, cut=cut, repairs=repairs, fence=fence and fence.group(1)
            )
    return NoSeam("the reply says something else before it goes on")


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


def _seam_repairs(before: str, *, fenced: bool, echo: int) -> tuple[Repair, ...]:
    found = [
        (before.strip(" \t\n`"), "continued_after_words", "left out what was said before the text went on"),
        (fenced, "continued_in_fence", "took the code fence off"),
        (echo, "continued_with_overlap", f"dropped {echo:,} characters that were there already"),
    ]
    return tuple([Repair(kind, "continuation", what) for holds, kind, what in found if holds])


def _join(
    seam: _Seam, *, reply_length: int, kind: PartialKind, cut: bool, repairs: tuple[Repair, ...], fence: str | None
) -> Grown | NoSeam | NoGrowth:
    known, rest = seam.before + seam.mark, seam.rest
    if kind == "text" and fence:
        taken = _take_fence_off(known + rest, fence=fence, cut=cut)
        if taken is None or not taken.startswith(known):
            return NoSeam("the reply stands in a code fence whose end is not clear")
        rest = taken.removeprefix(known)
    if not cut and _BLANK[kind].fullmatch(rest):
        return NoGrowth()
    if kind == "json":
        grown = _close(known, rest=rest, again=seam.again, cut=cut, repairs=repairs)
    elif _starts_over(known, mark=seam.mark, rest=rest):
        return NoSeam("the reply starts over behind the place where the text was cut")
    elif (sign := sign_of_translation(known, added=rest)) is not None:
        return NoSeam(sign)
    else:
        grown = Grown(text=known + rest, whole=not cut, repairs=repairs)
    if isinstance(grown, Grown) and not grown.whole:
        new = len(without_half_escape(grown.text) if kind == "json" else grown.text) - len(known)
        if new <= reply_length // WORTH_SHARE:
            return NoGrowth()
    return grown


def _starts_over(known: str, *, mark: str, rest: str) -> bool:
    """Whether the rest says again what the text, or the reply itself, began with."""
    began = mark + rest[:BEGINNING]
    return (len(known) > 2 * BEGINNING and known[:BEGINNING] in rest) or began in rest


def _take_fence_off(text: str, *, fence: str, cut: bool) -> str | None:
    """The joined text without the closing line of the reply's fence; None where it cannot be told from one of the text's own."""
    if cut:
        return None if f"\n{fence}" in text else text.rstrip("`").removesuffix("\n")
    inner, closing, after = text.rpartition(f"\n{fence}")
    own = f"\n{inner}".count(f"\n{fence}")
    return inner if closing and not after.strip() and own % 2 == 0 else None


def _close(known: str, *, rest: str, again: str, cut: bool, repairs: tuple[Repair, ...]) -> Grown | NoSeam:
    """End the text where its JSON ends; what follows the end may be no part of it."""
    text = known + rest
    try:
        value, end = _scan(text)
    except json.JSONDecodeError as error:
        if not _ran_into_end(text, error=error):
            return NoSeam(f"joined with the reply it is not valid JSON at character {error.pos:,}")
        value, end = {}, None
    except RecursionError:
        return NoSeam("joined with the reply it is nested too deeply")
    if not isinstance(value, dict):
        return NoSeam("joined with the reply it is no JSON object")
    added = rest if end is None else text[len(known) : end]
    sign = sign_of_own_text(known, added=added, proven="\\\\" in plainly(again), codes="\\u" in again)
    if sign is not None:
        return NoSeam(sign)
    if end is None:
        if not cut and open_string(text) is None:
            return NoSeam("the reply ended by itself, but not where the arguments end")
        return Grown(text=text, whole=False, repairs=repairs)
    try:
        decode_strictly(text[:end])
    except ValueError as error:
        return NoSeam(f"joined with the reply it is not valid JSON: {error}")
    after = text[end:]
    if not _is_remark(after, cut=cut):
        return NoSeam("what follows the end of the arguments may be more of them")
    if after.strip():
        repairs += (Repair("continued_past_end", "continuation", "dropped what followed the end of the arguments"),)
    return Grown(text=text[:end], whole=True, repairs=repairs)


def _is_remark(after: str, *, cut: bool) -> bool:
    """Whether what follows the end of the arguments is nothing of theirs: a closing fence, or a remark that ended by itself."""
    said = after.strip().strip("`~").strip()
    return not said or (not cut and len(said) <= MAX_AFTER and _AFTER.match(after) is not None)


def _ran_into_end(text: str, *, error: json.JSONDecodeError) -> bool:
    """Whether the decoder ran into the end of the text, rather than into something that is no JSON.

    It names the beginning of an open string, and of a literal, number or escape that the end cut (11 characters at most, for
    half a pair of surrogates). A control character, and an escape that there is none of, stay wrong.
    """
    if error.msg.startswith(("Invalid control", "Invalid \\escape")):
        return False
    if error.msg.startswith("Unterminated string"):
        return True
    left = text[error.pos :]
    if error.msg.startswith(("Expecting value", "Invalid \\u")):
        return len(left) <= len("\\ud83d\\ude")
    return not left.strip() or _NUMBER_END.fullmatch(left) is not None
