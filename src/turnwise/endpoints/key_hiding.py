"""Striking the key out of what a provider says: some quote it back, about a request in any field, and gateways in an answer.

What goes back to the provider unchanged stays as it is: names, ids and arguments of calls (which run as the model wrote them),
opaque data and items, and reasoning that is signed. This is the one place that knows the forms of a key: messages, frames,
answers and the table of `turnwise check` all come here.
"""

import base64
import re
from collections.abc import Callable, Sequence
from functools import lru_cache
from html.entities import html5
from types import MappingProxyType
from typing import TypeVar

import msgspec

from turnwise.vocab import (
    Citation,
    CitationAdded,
    Faulted,
    Finished,
    Frame,
    Lost,
    Mended,
    Message,
    Part,
    PartDone,
    Reasoning,
    ReasoningDelta,
    Refusal,
    RefusalDelta,
    Response,
    Started,
    Text,
    TextDelta,
    UsageReported,
)

# --- escapes of JSON, URLs and HTML, read back: `\/`, `\u002f`, `%2F`, `&#47;`, `&sol;`, and one in another
#
# Nothing is known of the text around them, so each is read wherever it stands. The plain text is for looking things up only.

LAYERS = 4  # of one kind in another; more of the same kind (`%25252F`) are one layer
_BEGINS = re.compile(r"[\\%&]")
_NAMES = MappingProxyType(
    {name[:-1]: said for name, said in html5.items() if name.endswith(";") and len(said) == 1 and said <= "\xff"}
)
_SHORT = MappingProxyType({"b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t"})
# Each alternative takes its whole run at once, so that a long one costs no more than its length.
_ESCAPE = re.compile(
    rf"""
    \\+ (?: u(?P<unicode>[0-9a-fA-F]{{4}}) | x(?P<hex>[0-9a-fA-F]{{2}}) | (?P<short>[bfnrt"/]) )?
    | % (?:25)* (?P<percent>[0-9a-fA-F]{{2}})
    | & (?:amp;)* (?: \#0*(?P<number>[0-9]{{1,5}}) | \#[xX]0*(?P<hex_number>[0-9a-fA-F]{{1,4}}) | (?P<name>{"|".join(_NAMES)}) ) ;
    """,
    re.VERBOSE,
)
# The beginning of an escape, where the text ends.
_HALF = re.compile(
    r"(?:\\+(?:u[0-9a-fA-F]{0,3}|x[0-9a-fA-F]?)?|%(?:25)*[0-9a-fA-F]?|&(?:amp;)*(?:#[0-9a-fA-FxX]{0,12}|[A-Za-z0-9]{0,24}))\Z"
)
_LONGEST_HALF = 64


def may_escape(text: str) -> bool:
    return _BEGINS.search(text) is not None


def plain(text: str) -> str:
    """The text without escapes."""
    for _ in range(LAYERS):
        before, text = text, _ESCAPE.sub(_character, text)
        if text == before:
            break
    return text


def plain_spans(text: str) -> tuple[str, list[int]]:
    """`plain(text)`, and where in `text` each of its characters begins; one more for its end."""
    places = list(range(len(text) + 1))
    for _ in range(LAYERS):
        pieces: list[str] = []
        kept: list[int] = []
        at = 0
        for found in _ESCAPE.finditer(text):
            pieces += (text[at : found.start()], _character(found))
            kept += places[at : found.start() + 1]
            at = found.end()
        before, text = text, "".join([*pieces, text[at:]])
        places = kept + places[at:]
        if text == before:
            break
    return text, places


def half_at_end(text: str) -> int:
    """Where an escape begins that the end of the text cuts off, as `&#4%3` (of `&#47%3B`); its length where there is none."""
    end = len(text)
    for _ in range(LAYERS):
        if (found := _HALF.search(text, max(0, end - _LONGEST_HALF), end)) is None:
            break
        end = found.start()
    return end


def _character(found: re.Match[str]) -> str:
    for group, base in (("unicode", 16), ("hex", 16), ("percent", 16), ("number", 10), ("hex_number", 16)):
        if digits := found[group]:
            return chr(int(digits, base))
    if short := found["short"]:
        return _SHORT.get(short, short)
    if name := found["name"]:
        return _NAMES[name]
    return "\\"


# --- the forms in which a key is quoted back: as it is, and in base64, each with any character escaped

HIDDEN = "***"
SHORTEST_KEY = 8  # shorter ones would be found everywhere in harmless text
LONGEST_SPELLING = 32  # of one character that is waited for; a run of escapes may go on for ever
TELLTALE = 12  # characters of a form's beginning that are hidden like the whole; `sk-proj-` alone says nothing
# Of words of a model: local servers take any key, and people give them words (`lm-studio`, `sk-no-key-required`), which an
# honest answer may hold. Keys that providers give out are longer than this, and have digits.
SHORTEST_IN_WORDS = 16


@lru_cache(maxsize=8)
def forms_of(key: str) -> tuple[str, ...]:
    """The key, and what of its base64 is the same whatever stands around it: a byte may be the first, second or third of its
    group. Empty for a key that is too short to be looked for."""
    if len(key) < SHORTEST_KEY:
        return ()
    found = [key, key.encode().decode("latin-1"), *_base64_of(key)]  # the second is what `%C3%A9` says byte by byte
    return tuple(dict.fromkeys([one for one in found if len(one) >= SHORTEST_KEY]))


def _base64_of(key: str) -> list[str]:
    found: list[str] = []
    for before, cut in ((0, 0), (1, 2), (2, 3)):
        whole = (before + len(key.encode())) // 3 * 4  # what the bytes behind the key change is left out
        for encode in (base64.b64encode, base64.urlsafe_b64encode):
            found.append(encode(b"." * before + key.encode()).decode()[cut:whole])
    return found


def paired_forms(key: str, stand_in: str) -> tuple[tuple[str, str], ...]:
    """The encoded forms of a key, in base64 and in hex, each with that of a text of as many bytes that stands for it."""
    pairs = [*zip(_base64_of(key), _base64_of(stand_in), strict=True)]
    plain, other = key.encode().hex(), stand_in.encode().hex()
    pairs += [(plain, other), (plain.upper(), other.upper())]
    return tuple(dict.fromkeys([pair for pair in pairs if len(pair[0]) >= SHORTEST_KEY]))


def is_sought_in_words(key: str) -> bool:
    """Whether the key is looked for in what the model says, too."""
    return len(key) >= SHORTEST_IN_WORDS and any(map(str.isdigit, key))


def hide_forms(text: str, *, forms: tuple[str, ...]) -> str:
    """The text without them: providers quote a key, and longer texts are cut in its middle."""
    if forms and may_escape(text):  # first: what is found as it stands may go on behind an escape
        text = _without_escaped(text, forms=_plain_forms(forms))
    for form in forms:
        while (start := text.find(form[:TELLTALE])) >= 0:
            text = text[:start] + HIDDEN + text[start + _shown(form, text=text, start=start) :]
    return text


def begins_at(text: str, *, forms: tuple[str, ...], least: int) -> int:
    """Where the end of a text begins that may be the beginning of a form, cut short; else its length. Fewer than `least`
    characters do not count, unless an escape is among them or may come."""
    found = len(text)
    for form in forms:
        for start in range(max(0, len(text) - len(form) + 1), len(text) - least + 1):
            if start < found and form.startswith(text[start:]):
                found = start
    return min(found, _escaped_begins_at(text, forms=_plain_forms(forms), least=least)) if may_escape(text) else found


def _escaped_begins_at(text: str, *, forms: tuple[str, ...], least: int) -> int:
    before = max(0, len(text) - LONGEST_SPELLING * max(map(len, forms), default=0))
    shown, places = plain_spans(text[before:])
    end = half_at_end(shown)
    found = places[end]
    for form in forms:
        for start in range(max(0, end - len(form) + 1), end):
            is_enough = end < len(shown) or end - start >= least or places[end] - places[start] > end - start
            if is_enough and form.startswith(shown[start:end]):
                found = min(found, places[start])
                break
    return before + found


def _without_escaped(text: str, *, forms: tuple[str, ...]) -> str:
    """The text without the forms that have escapes in them. Places are counted only where there is one."""
    shown = plain(text)
    if not any(form[:TELLTALE] in shown for form in forms):
        return text
    shown, places = plain_spans(text)
    pieces: list[str] = []
    at = 0
    while starts := [start for form in forms if (start := shown.find(form[:TELLTALE], at)) >= 0]:
        start = min(starts)
        end = start + max([_shown(form, text=shown, start=start) for form in forms])
        pieces += (text[places[at] : places[start]], HIDDEN)
        at = end
    return "".join([*pieces, text[places[at] :]])


def _shown(form: str, *, text: str, start: int) -> int:
    """How many characters of the form's beginning stand there."""
    return next((length for length in range(len(form), 0, -1) if text.startswith(form[:length], start)), 0)


@lru_cache(maxsize=8)
def _plain_forms(forms: tuple[str, ...]) -> tuple[str, ...]:
    """As the text is when its escapes are read: a key may itself hold what looks like one."""
    return tuple(dict.fromkeys([one for form in forms if len(one := plain(form)) >= SHORTEST_KEY]))


Quote = TypeVar("Quote", bound=msgspec.Struct)
Scrub = Callable[[str], str]

_QUOTING = frozenset([Started, Finished, Faulted, Mended, Lost, UsageReported])
_Delta = TextDelta | ReasoningDelta | RefusalDelta
START = 4  # characters of a form that are enough to wait for the rest of it; fewer begin many words


def hide_in(value: Quote, *, scrub: Scrub) -> Quote:
    """The struct with all its texts scrubbed, also those of structs inside it."""
    changed: dict[str, object] = {}
    for name in value.__struct_fields__:
        field: object = getattr(value, name)
        if isinstance(field, msgspec.Struct):
            hidden: object = hide_in(field, scrub=scrub)
        elif isinstance(field, str):
            hidden = scrub(field)
        else:
            continue
        if hidden != field:
            changed[name] = hidden
    return msgspec.structs.replace(value, **changed) if changed else value


def hide_in_frames(frames: Sequence[Frame], *, scrub: Scrub) -> Sequence[Frame]:
    if len(frames) == 1:  # the ordinary read, told first because speed counts
        return frames if type(frames[0]) not in _QUOTING else [hide_in(frames[0], scrub=scrub)]
    if _QUOTING.isdisjoint(map(type, frames)):
        return frames
    return [hide_in(frame, scrub=scrub) if type(frame) in _QUOTING else frame for frame in frames]


class WordsHider:
    """Strikes forms of a key out of the words of one response as they come. A key may come in many deltas, so the end of a
    delta that may be the beginning of one waits for the next; `flush` gives what still waits."""

    def __init__(self, forms: tuple[str, ...]) -> None:
        self._forms = forms
        self._starts = tuple(dict.fromkeys([form[:START] for form in forms]))
        self._last: _Delta | None = None  # the delta that came last; its kind and block are those of the tail
        self._tail: str = ""  # the last characters of that block ...
        self._shown: int = 0  # ... of which so many have been given

    def hide(self, frames: Sequence[Frame]) -> Sequence[Frame]:
        if not self._forms:
            return frames
        hidden: list[Frame] = []
        for frame in frames:
            if isinstance(frame, TextDelta | ReasoningDelta | RefusalDelta):
                hidden += self._delta(frame)
            else:
                hidden += self.flush()
                hidden.append(_without_forms(frame, forms=self._forms))
        return hidden

    def flush(self) -> list[Frame]:
        last, tail, shown = self._last, self._tail, self._shown
        self._last, self._tail, self._shown = None, "", 0
        text = _unshown(hide_forms(tail, forms=self._forms), of=tail, shown=shown)
        return [] if last is None or not text else [msgspec.structs.replace(last, text=text)]

    def _delta(self, frame: _Delta) -> list[Frame]:
        last = self._last
        before = self.flush() if last is None or type(last) is not type(frame) or last.block != frame.block else []
        shown = self._shown
        joined = self._tail + frame.text
        self._last = frame
        if shown == len(self._tail) and not (may_escape(joined) or any(start in joined for start in self._starts)):
            self._tail = joined[-(START - 1) :]
            self._shown = len(self._tail)
            return [*before, frame]
        waits_at = begins_at(joined, forms=self._forms, least=START)
        ready = hide_forms(joined[:waits_at], forms=self._forms)
        text = _unshown(ready, of=joined, shown=min(shown, waits_at))
        self._tail, self._shown = joined[waits_at:], max(shown - waits_at, 0)
        if not self._tail:
            self._tail = ready[-(START - 1) :]
            self._shown = len(self._tail)
        return [*before, msgspec.structs.replace(frame, text=text)] if text else before


def _unshown(hidden: str, *, of: str, shown: int) -> str:
    """What is left to show of a text of which the first characters were shown as they were."""
    return hidden[shown:] if hidden[:shown] == of[:shown] else hidden


def _without_forms(frame: Frame, *, forms: tuple[str, ...]) -> Frame:
    match frame:
        case PartDone(part=part):
            hidden = _part_without(part, forms=forms)
            return frame if hidden is part else msgspec.structs.replace(frame, part=hidden)
        case CitationAdded(citation=citation):
            return msgspec.structs.replace(frame, citation=_citation_without(citation, forms=forms))
        case _:
            return frame


def _part_without(part: Part, *, forms: tuple[str, ...]) -> Part:
    """The same part where it has none of them."""
    match part:
        case Text(text=text, citations=citations):
            cited = tuple([_citation_without(one, forms=forms) for one in citations])
            hidden = hide_forms(text, forms=forms)
            return part if (hidden, cited) == (text, citations) else Text(hidden, cited, part.opaque)
        case Refusal(text=text) | Reasoning(text=text, opaque=None):
            hidden = hide_forms(text, forms=forms)
            return part if hidden == text else msgspec.structs.replace(part, text=hidden)
        case _:
            return part


def _citation_without(citation: Citation, *, forms: tuple[str, ...]) -> Citation:
    return hide_in(citation, scrub=lambda text: hide_forms(text, forms=forms))


def hide_in_words(message: Message, *, forms: tuple[str, ...]) -> Message:
    """The message without these forms of a key in its words and sources; the very same where it has none."""
    if not forms:
        return message
    parts = tuple([_part_without(part, forms=forms) for part in message.parts])
    same = all(one is other for one, other in zip(parts, message.parts, strict=True))
    return message if same else Message(message.role, parts)


def hide_in_response(response: Response, *, scrub: Scrub, forms: tuple[str, ...]) -> Response:
    """All of it but what goes back unchanged; `forms` of the key are looked for in the model's words."""
    message, usage = hide_in_words(response.message, forms=forms), response.usage
    if usage is not None and scrub(usage.provider) != usage.provider:
        usage = hide_in(usage, scrub=scrub)
    if message is not response.message or usage is not response.usage:
        response = msgspec.structs.replace(response, message=message, usage=usage)

    def hide(text: str | None) -> str | None:
        return None if text is None else scrub(text)

    quoted = [response.provider_finish, response.explanation, response.id, response.model]
    if response.fault is None and not response.repairs and [hide(text) for text in quoted] == quoted:
        return response
    return msgspec.structs.replace(
        response,
        provider_finish=hide(response.provider_finish),
        explanation=hide(response.explanation),
        id=hide(response.id),
        model=hide(response.model),
        repairs=tuple([hide_in(repair, scrub=scrub) for repair in response.repairs]),
        fault=None if response.fault is None else hide_in(response.fault, scrub=scrub),
    )


# --- fields that are known to carry no key: every other one may carry one, today or tomorrow

HEADERS_UP = frozenset({"anthropic-beta", "anthropic-version", "openai-beta"})
"""What the gateway sends upstream. What names an account (`openai-organization`, `openai-project`) does not go: the key is the
gateway's."""
QUERY_UP = frozenset({"alt", "api-version", "beta"})
"""`alt=sse` asks Gemini for a stream, `api-version` is Azure's, `beta=true` comes from Claude Code."""
KEYLESS_HEADERS = HEADERS_UP | {"content-type", "user-agent"}
"""Those, and the headers that turnwise writes itself."""
