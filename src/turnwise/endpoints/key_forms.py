"""The forms in which a key is quoted back: as it is, and in base64, each with any character escaped as JSON, URLs or HTML do.
What is found of them is put out of sight.

This is the one place that knows the forms: messages, frames, answers and the table of `turnwise check` all come here.
"""

import base64
from functools import lru_cache

from turnwise.endpoints.escapes import half_at_end, may_escape, plain, plain_spans

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
