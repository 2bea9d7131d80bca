"""How many values a JSON text holds, counted without building one of them."""

import re

MAX_VALUES = 65_536
"""JSON values in the arguments of one call. A value costs a model a token or more, and no model's output limit holds so many; one
of two bytes takes Python some sixty."""

# From one comma or opening bracket outside of strings to the next. Possessive: never backtracks.
_NEXT = re.compile(r'[^"\[{,]*+(?:"[^"\\]*+(?:\\.[^"\\]*+)*+"?[^"\[{,]*+)*+[\[{,]', re.DOTALL)


def has_too_many_values(text: str, *, most: int = MAX_VALUES) -> bool:
    """Whether it holds more than `most` values (an empty list or object counts as two). Linear in a text that does not, and no
    memory worth a word; the text need not be whole, nor JSON."""
    if text.count(",") + text.count("[") + text.count("{") < most:
        return False
    count, at = 1, 0
    while count <= most:
        found = _NEXT.match(text, at)
        if found is None:
            return False
        count += 1
        at = found.end()
    return True
