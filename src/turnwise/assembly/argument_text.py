"""The argument text of one call, piece by piece: joined as it came, unless that cannot be JSON.

The plain reading (pieces joined) wins wherever it can still become JSON, so arguments that were cut are never taken for
a whole that repeats its beginning, whatever the finish reason claims. Only where it cannot, the readings that providers
are known for are tried: pieces that repeat all so far, the whole once more at the end, `{}` before the real object,
several whole objects. Pieces repeat all so far if three of them grow, or if the call's id comes with each (hermes-agent, pull
request 35718; none of 1,371 recorded streams does it). Two alone are what the same text is in one piece, which is no JSON. A
piece is suspected only if it and the text begin with `{`, so the usual piece costs one comparison; the scanner reads each
character once, so the cost stays linear whatever comes.
"""

import json
import re
from typing import cast

import msgspec

from turnwise.assembly.json_text import Complete, Invalid, JsonScanner, Truncated, byte_length, classify
from turnwise.vocab import TWO_READINGS, ArgumentsState
from turnwise.vocab.schema_bounds import MAX_VALUES, has_too_many_values

SPACE = " \t\n\r"
MAX_WHOLES = 64  # whole objects in one call; real ones show two or three
_EMPTY_OBJECT = re.compile(r"\s*\{\s*\}\s*")
_SPACE_RUN = re.compile(r"[ \t\n\r]*+")
_SAID = {"list": "a list", "number": "a number", "boolean": "true or false", "null": "null"}
TOO_MANY = f"they hold more than {MAX_VALUES:,} JSON values"
_decode_values = json.JSONDecoder().raw_decode


class SettledArguments(msgspec.Struct, frozen=True, gc=False):
    """What the arguments came to. `empty`: they said nothing. `repairs` are the kinds of heal.KINDS that it took."""

    arguments: str
    state: ArgumentsState
    reason: str | None = None
    alternatives: tuple[str, ...] = ()
    empty: bool = False
    repairs: tuple[str, ...] = ()


class ArgumentText:
    """Feed it with `add` (text as it stood on the wire) and `add_whole` (an object that the provider sent). Both return the
    new text to show. `settle` judges and changes nothing, so it may be called before the end is known. `repairs` are the
    kinds of heal.KINDS that the pieces needed. `diverged` holds once the shown text no longer begins the true text."""

    __slots__ = (
        "_begun_with",
        "_careful",
        "_doubt",
        "_first",
        "_grew",
        "_held",
        "_judged",
        "_kinds",
        "_length",
        "_pieces",
        "_repeating",
        "_scanned",
        "_scanner",
        "_shown_before_doubt",
        "_wholes",
        "diverged",
        "handed_out",
        "is_resent",
        "repairs",
        "size",
    )

    def __init__(self, *, kinds: dict[str, None] | None = None) -> None:
        """`kinds` are those of all repairs of the response, which these are added to."""
        self._kinds = {} if kinds is None else kinds
        self._pieces: list[str] = []
        self._length = 0
        self._first = ""  # the first character that is no space
        self._careful = True  # the next piece needs a look
        self._wholes: list[str] = []  # whole values that came before the current one
        self._held = ""  # taken, but not yet shown
        self._doubt = ""  # the last piece, while it may be an addition or a repetition
        self._begun_with = 0  # characters that the first doubtful piece began with
        self._shown_before_doubt: int | None = 0  # None: the doubtful text was shown meanwhile
        self._repeating = False  # pieces were seen to repeat all so far, where joining them could not be JSON
        self._grew = False  # an object came again with more in it
        self._scanner: JsonScanner | None = None
        self._scanned = 0  # pieces that the scanner has read
        self._judged: tuple[str, SettledArguments, bool] | None = (
            None  # the text that was judged last, how, and whether it is `{}`
        )
        self.size = 0  # bytes held
        self.is_resent = (
            False  # its id or name came again with a piece: such pieces are entries of their own, no additions
        )
        self.handed_out = False  # came as an object, so there is no raw text to see a cut in
        self.repairs: dict[str, None] = {}
        self.diverged = False

    @property
    def begun(self) -> bool:
        return bool(self._first)

    @property
    def came_at_once(self) -> bool:
        """Whether all that came was one object, handed out in one piece."""
        return self.handed_out and not self.repairs and not self._wholes

    def _note(self, kind: str) -> None:
        self.repairs[kind] = self._kinds[kind] = None

    def joined(self) -> str:
        """The current text, joined, and kept in that form."""
        if len(self._pieces) != 1:
            if self._scanner is not None:
                self._scan()
            self._pieces = ["".join(self._pieces)]
            self._scanned = 1
        return self._pieces[0]

    def add(self, text: str) -> str:
        """Take one piece."""
        if not text:
            return ""
        if self._careful or (self._first in text and self._begins_anew(text)):
            return self._add_with_care(text)
        self._append(text)
        return text

    def is_plain(self, text: str) -> bool:
        """Whether `add` takes each piece of this text just as it is, however the text is cut."""
        return not self._careful and self._first not in text

    def next_to_suspect(self, texts: list[str], *, start: int) -> int:
        """The place of the first text from `start` on that `add` would change; the number of texts if it would change none."""
        if self._careful:
            return start
        first = self._first
        for at in range(start, len(texts)):
            text = texts[at]
            if first in text and self._begins_anew(text):
                return at
        return len(texts)

    def add_plain(self, text: str) -> None:
        """Take pieces as one that `add` would take just as they are."""
        if text:
            self._append(text)

    def _begins_anew(self, text: str) -> bool:
        """Whether the piece begins an object like the whole text did: nothing else can be a repetition or another value. Texts
        and lists are no arguments, and `"` ends what it began, so that their pieces tell nothing."""
        return self._first == "{" and text.lstrip(SPACE)[:1] == "{"

    def add_whole(self, text: str) -> str:
        """Take a whole object."""
        if not self._first:
            self.handed_out = True
            return self._add_with_care(text)
        if self.is_whole():
            if same_value(text, self.joined()):
                self._note("cumulative")
                return ""
            return self._grow(text) if self.handed_out and self._is_grown(text) else self._begin_another(text)
        self.handed_out = True
        shown = self._length - len(self._held)
        fits = text.startswith(self.joined())
        self._replace(text)
        self._held = ""
        self._note("cumulative")
        if not fits:
            self.diverged = self._careful = True
        return text[shown:] if fits else ""

    def add_free(self, text: str) -> str:
        """Take one piece of free-form text: nothing in it is JSON, nothing is healed."""
        if text:
            self._append(text)
            self._first = self._first or text[0]
        return text

    def is_whole(self) -> bool:
        """Whether the current text is one whole JSON value."""
        return self._scan().whole

    def repeats(self, text: str) -> bool:
        """Whether `text` says what is here already, and perhaps more."""
        here = self.joined()
        return text.startswith(here) or _EMPTY_OBJECT.fullmatch(here) is not None or same_value(text, here)

    def continues(self, text: str) -> bool:
        """Whether `text` must belong to what is here, because it is no beginning of its own."""
        return text.lstrip(SPACE)[:1] != self._first or not JsonScanner().feed(text)

    def release(self) -> str:
        """What was held back from those who watch. Nothing is decided by it: a piece that comes later may still tell that
        what was in doubt was a repetition."""
        if self._doubt:
            self._shown_before_doubt = None
        return self._take_held()

    def _take_held(self) -> str:
        held, self._held = self._held, ""
        return held

    def _is_grown(self, text: str) -> bool:
        """Whether the object in `text` is the current one, continued. `{}` is left to the reading that drops it."""
        here = _value(self.joined())
        return isinstance(here, dict) and here != {} and _extends(_value(text), cast(object, here))

    def _grow(self, text: str) -> str:
        self._note("cumulative")
        self._replace(text)
        self._held = ""
        self._grew = self.diverged = self._careful = True
        return ""

    def _add_with_care(self, text: str) -> str:
        if not self._first:
            self._append(text)
            self._first = text.lstrip(SPACE)[:1]
            if self._first:
                return self._show(text)
            self._held += text  # nothing but space does not make a call
            return ""
        if self._doubt:
            return self._settle_doubt(text)
        if self._begins_anew(text):
            if len(text) >= self._length and text.startswith(self.joined()):
                return self._take_repetition(text)
            if self._may_be_whole() and self.is_whole():
                return self._begin_another(text)
        self._append(text)
        return self._show(text)

    def _may_be_whole(self) -> bool:
        """A look at how the text ends, which spares reading all of an object that is still open."""
        return self._pieces[-1].rstrip(SPACE)[-1:] in ("}", "")

    def _show(self, text: str) -> str:
        """Show the piece, but hold `{}` back: the real object may follow."""
        if self.diverged:
            self._careful = True
            return ""
        self._careful = _EMPTY_OBJECT.fullmatch(text) is not None and self._length == len(text)
        if self._careful:
            self._held = text
            return ""
        return self._take_held() + text

    def _append(self, text: str) -> None:
        length = len(text)
        self._pieces.append(text)
        self._length += length
        self.size += length if text.isascii() else byte_length(text)  # a call fewer for each piece

    def _replace(self, text: str) -> None:
        self.size += byte_length(text) - sum(map(byte_length, self._pieces))
        self._pieces = [text]
        self._length = len(text)
        self._first = text.lstrip(SPACE)[:1]
        self._scanner = None
        self._scanned = 0
        self._doubt = ""
        self._careful = False

    def _take_repetition(self, text: str) -> str:
        """`text` begins with all that is here: it is an addition until something tells that it repeats it."""
        before = self._length
        scanner = self._scan()
        if len(text) == before and scanner.whole:
            self._note("cumulative")
            return ""
        if not self._repeating:
            may_be_more = scanner.feed(text)  # `{"items":[` twice may be a nested object
            if may_be_more or not self.is_resent:
                self._append(text)
                self._scanned = len(self._pieces)
                self._doubt = text
                self._begun_with = before
                self._shown_before_doubt = before - len(self._held)
                self._held += text
                self._careful = True
                return ""
        self._note("cumulative")
        self._repeating = True
        held = self._held
        self._replace(text)
        self._held = ""
        if self._wholes:
            return ""
        return self._show(text) if held and text == held else text[before - len(held) :]

    def _settle_doubt(self, text: str) -> str:
        """The piece before was an addition or a repetition; this one tells, or leaves it open."""
        repeated = self._doubt
        repeats = text.startswith(repeated)
        viable = self._scan().feed(text)
        if not viable and (repeats or self.is_resent):
            whole = text if repeats else repeated + text
            if (self.is_resent or self._has_grown_to(text)) and JsonScanner().feed(whole):
                self._note("cumulative")
                self._repeating = True
                self._held = ""
                self._replace(whole)
                if self._shown_before_doubt is None:
                    self.diverged = self._careful = True
                    return ""
                return whole[self._shown_before_doubt :]
        self._append(text)
        self._scanned = len(self._pieces)
        if repeats and (viable or len(self._pieces) <= MAX_WHOLES):
            self._doubt = text
            self._held += text
            return ""
        self._doubt = ""
        self._careful = False
        return self._take_held() + text

    def _has_grown_to(self, text: str) -> bool:
        """Whether `text` is the third of three that each begin with the one before, and say more or are whole. Two prove nothing:
        `{` and `{"a":1}` may be parts of a wrong `{{"a":1}`."""
        doubt = self._doubt
        return len(doubt) > self._begun_with and (len(text) > len(doubt) or classify(doubt) == Complete("object"))

    def _begin_another(self, text: str) -> str:
        """A whole value is here and another begins."""
        if len(self._wholes) >= MAX_WHOLES:
            self._append(text)
            self.diverged = True
            return ""
        before = self.joined()
        held = self._held
        self._held = ""
        if _EMPTY_OBJECT.fullmatch(before):
            self._note("empty_then_real")
            self._replace(text)
            if held:
                return text
        else:
            self._wholes.append(before)
            self._pieces = []
            self._replace(text)
        self.diverged = True
        self._careful = True  # nothing of it may be shown as it comes
        return ""

    def _scan(self) -> JsonScanner:
        scanner = self._scanner
        if scanner is None:
            scanner = self._scanner = JsonScanner()
            self._scanned = 0
        if self._scanned < len(self._pieces):
            scanner.feed("".join(self._pieces[self._scanned :]))
            self._scanned = len(self._pieces)
        return scanner

    def settle_free(self, *, cut: bool) -> SettledArguments:
        """Judge free-form text: there is no grammar, so only the response's end can say that it was cut."""
        text = self.joined()
        if cut:
            return SettledArguments(text, ArgumentsState.TRUNCATED, f"cut after {len(text)} characters")
        return SettledArguments(text, ArgumentsState.COMPLETE)

    def settle(self, *, cut_if_silent: bool, cut_if_growing: bool, cut_if_handed_out: bool) -> SettledArguments:
        """Judge the arguments. The flags say what the response's end means for a call whose text cannot show a cut:
        one that said nothing, an object to which more may have come, any object (and `{}`, however it came)."""
        text = self.joined()
        judged = self._judged
        if judged is None or judged[0] is not text:
            settled = self._judge(text)
            judged = self._judged = (text, settled, _is_empty_object(settled.arguments))
        # `{}` says no more than nothing: servers put it where the model had not begun, and a limit may fall there.
        _, settled, placeholder = judged
        if settled.state is not ArgumentsState.COMPLETE or not (cut_if_silent or cut_if_growing or cut_if_handed_out):
            return settled
        grows = cut_if_growing and self.handed_out
        if (cut_if_silent and settled.empty) or ((cut_if_handed_out or grows) and placeholder):
            return SettledArguments("", ArgumentsState.TRUNCATED, "cut before its arguments began")
        if self.handed_out and (cut_if_handed_out or (cut_if_growing and self._grew)):
            reason = "the response ended by its limit while this call was being written; keys may be missing"
            if not cut_if_handed_out:
                reason = "the response ended while this call was being written; keys may be missing"
            return msgspec.structs.replace(settled, state=ArgumentsState.TRUNCATED, reason=reason)
        return settled

    def _judge(self, text: str) -> SettledArguments:
        if not self._wholes and (said := text.strip(SPACE)) in ("", "null"):
            return _nothing("null_arguments" if said else None)
        verdict = None if self._wholes else classify(text)
        match verdict:
            case Complete(kind="object"):
                if has_too_many_values(text):
                    return SettledArguments(text, ArgumentsState.INVALID, TOO_MANY)
                return SettledArguments(text, ArgumentsState.COMPLETE)
            case Complete(kind="string"):
                return self._unpack(text, cast(str, msgspec.json.decode(text)))
            case Complete():
                said = _SAID[verdict.kind]
                return SettledArguments(text, ArgumentsState.INVALID, f"arguments must be a JSON object, not {said}")
            case Truncated():
                if self._doubt and classify(self._doubt) == Complete("object"):
                    return SettledArguments(text, ArgumentsState.TRUNCATED, TWO_READINGS)
                return SettledArguments(text, ArgumentsState.TRUNCATED, verdict.reason)
            case Invalid() | None:
                return self._choose(text, None if verdict is None else verdict.reason)

    def _unpack(self, text: str, inner: str) -> SettledArguments:
        """A JSON string that holds a JSON object was encoded once too often."""
        if inner.strip(SPACE) in ("", "null"):
            return _nothing("double_encoded")
        if classify(inner) == Complete("object"):
            if has_too_many_values(inner):
                return SettledArguments(inner, ArgumentsState.INVALID, TOO_MANY)
            return SettledArguments(inner, ArgumentsState.COMPLETE, repairs=("double_encoded",))
        return SettledArguments(text, ArgumentsState.INVALID, "arguments must be a JSON object, not a string")

    def _choose(self, text: str, reason: str | None) -> SettledArguments:
        """Several values in one call: drop what is empty or said twice; more than one left is for the schema to judge."""
        said = "".join((*self._wholes, text))
        if any(map(has_too_many_values, (*self._wholes, text))):
            return SettledArguments(said, ArgumentsState.INVALID, TOO_MANY)
        wholes, rest = _split(text)
        rest_verdict = classify(rest) if rest else None
        values: dict[bytes, str] = {}
        empty_seen = False
        for whole in (*self._wholes, *wholes):
            if classify(whole) not in (Complete("object"), Complete("null")):
                return SettledArguments(
                    said, ArgumentsState.INVALID, reason or "several values stand where one object is due"
                )
            value = _canonical(whole) or b""
            if value in (b"{}", b"null"):
                empty_seen = True
            else:
                values.setdefault(value, whole)
        if rest:
            if not values and isinstance(rest_verdict, Truncated) and rest.startswith("{"):
                return SettledArguments(
                    rest, ArgumentsState.TRUNCATED, rest_verdict.reason, repairs=("empty_then_real",)
                )
            return SettledArguments(
                said, ArgumentsState.INVALID, reason or "an object is followed by a part of another"
            )
        if not values:
            return _nothing(None)
        if len(values) == 1:
            repairs = ("empty_then_real" if empty_seen else "cumulative",)
            return SettledArguments(next(iter(values.values())), ArgumentsState.COMPLETE, repairs=repairs)
        texts = tuple(values.values())
        reason = f"{len(texts)} whole objects stand in one call"
        return SettledArguments("".join(texts), ArgumentsState.INVALID, reason, texts, repairs=("several_objects",))


def _nothing(repair: str | None) -> SettledArguments:
    """Arguments that say nothing are an empty object, unless the response's end tells that they were cut."""
    return SettledArguments("{}", ArgumentsState.COMPLETE, empty=True, repairs=() if repair is None else (repair,))


def says_nothing(text: str) -> bool:
    """Whether these arguments are empty: servers send such arguments if the real ones follow, or got lost on the way."""
    return text.strip(SPACE) in ("", "null") or _is_empty_object(text)


def _is_empty_object(text: str) -> bool:
    return '"' not in text and _EMPTY_OBJECT.fullmatch(text) is not None


def same_value(one: str, other: str) -> bool:
    """Whether two texts are the same JSON, whatever their spaces and the order of their keys."""
    return one == other or ((known := _canonical(one)) is not None and known == _canonical(other))


def _value(text: str) -> object:
    """What the JSON says; None where it says nothing that can be read, or more than may run."""
    if has_too_many_values(text):
        return None
    try:
        return msgspec.json.decode(text)
    except (msgspec.MsgspecError, RecursionError, UnicodeEncodeError):
        return None


def _extends(grown: object, known: object) -> bool:
    """Whether `grown` is `known` and perhaps more: keys and elements added, strings longer, nothing else changed."""
    pending = [(grown, known)]
    while pending:
        new, old = pending.pop()
        match old:
            case dict():
                ours = cast(dict[str, object], old)
                if not isinstance(new, dict) or not ours.keys() <= cast(dict[str, object], new).keys():
                    return False
                theirs = cast(dict[str, object], new)
                pending += [(theirs[key], value) for key, value in ours.items()]
            case list():
                items = cast(list[object], old)
                if not isinstance(new, list) or len(cast(list[object], new)) < len(items):
                    return False
                pending += zip(cast(list[object], new), items, strict=False)
            case str():
                if not isinstance(new, str) or not new.startswith(old):
                    return False
            case _:
                if type(new) is not type(old) or new != old:
                    return False
    return True


def _canonical(text: str) -> bytes | None:
    """Equal bytes for equal JSON, whatever its spaces and the order of its keys; None where it is no JSON or too many values."""
    if has_too_many_values(text):
        return None
    try:
        return msgspec.json.encode(msgspec.json.decode(text), order="sorted")
    except (msgspec.MsgspecError, RecursionError, UnicodeEncodeError):
        return None


def _split(text: str) -> tuple[list[str], str]:
    """The whole JSON values that stand one after the other in `text`, and what is left."""
    wholes: list[str] = []
    at = _after_space(text, 0)
    while at < len(text) and len(wholes) <= MAX_WHOLES:
        try:
            _, end = _decode_values(text, at)
        except (ValueError, RecursionError):
            break
        wholes.append(text[at:end])
        at = _after_space(text, end)
    return wholes, text[at:]


def _after_space(text: str, at: int) -> int:
    found = _SPACE_RUN.match(text, at)
    return found.end() if found else at
