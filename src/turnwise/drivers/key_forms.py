"""The forms in which a key is quoted back: as it is, and in base64. What is found of them is put out of sight."""

import base64
from functools import lru_cache

HIDDEN = "***"
SHORTEST_KEY = 8  # shorter ones would be found everywhere in harmless text
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
    found = [key]
    for before, cut in ((0, 0), (1, 2), (2, 3)):
        whole = (before + len(key.encode())) // 3 * 4  # what the bytes behind the key change is left out
        for encode in (base64.b64encode, base64.urlsafe_b64encode):
            found.append(encode(b"." * before + key.encode()).decode()[cut:whole])
    return tuple(dict.fromkeys([one for one in found if len(one) >= SHORTEST_KEY]))


def is_sought_in_words(key: str) -> bool:
    """Whether the key is looked for in what the model says, too."""
    return len(key) >= SHORTEST_IN_WORDS and any(map(str.isdigit, key))


def hide_forms(text: str, *, forms: tuple[str, ...]) -> str:
    """The text without them: providers quote a key, and longer texts are cut in its middle."""
    for form in forms:
        while (start := text.find(form[:TELLTALE])) >= 0:
            shown = next(length for length in range(len(form), 0, -1) if text.startswith(form[:length], start))
            text = text[:start] + HIDDEN + text[start + shown :]
    return text
