"""Stand-ins for secrets: as long, in bytes and in characters, and written with the same kinds of characters.

A character gives way to another of its kind (a lower-case letter to one, a digit to one), and which one depends on what stands
before it in the secret, and on a random key that nobody keeps. So a secret has one stand-in wherever it stands, two secrets have
two, and what is cut off a secret's end has the beginning of its stand-in. What JSON escapes, white space and marks stay: text
that could be parsed can be parsed still, and a number stays a number.
"""

import hashlib
import hmac
import re
from functools import lru_cache

BLOCK = 64  # code points: all of them take as many bytes, in UTF-8 and in JSON's escapes
_DIGITS = "123456789"  # 0 stays: a number does not begin with it
# The whole of it: where each character of an escape is escaped again, the last one is a digit of it and not the character.
_UNICODE = re.compile(r"\A(?:\\+u005[cC]|\\)*u([0-9a-fA-F]{4})\Z")
_HEX = re.compile(r"(?:x|%(?:25)*|#[xX]0*)([0-9a-fA-F]{2});?\Z")
FILLER = "x"


class StandIns:
    """`key` is random bytes: who has it can tell which secrets were replaced. Without a key, all letters of a kind have one
    stand-in, and so have all digits: the same in every process, and nothing can be worked out of it."""

    def __init__(self, key: bytes | None) -> None:
        self._key = key

    @lru_cache(maxsize=4096)  # noqa: B019 (lives as long as one export)
    def of(self, secret: str) -> str:
        """The stand-in; the same text if no character of it can be replaced."""
        if self._key is None:
            return "".join([_plainest(_alphabet(character)) for character in secret])
        digest = hmac.new(self._key, digestmod=hashlib.blake2s)
        changed: list[str] = []
        for character in secret:
            alphabet = _alphabet(character)
            if len(alphabet) > 1:
                shift = 1 + int.from_bytes(digest.copy().digest()[:8], "big") % (len(alphabet) - 1)
                changed.append(alphabet[(alphabet.index(character) + shift) % len(alphabet)])
            else:
                changed.append(character)
            digest.update(character.encode("utf-8", "surrogatepass"))
        return "".join(changed)


def _plainest(alphabet: str) -> str:
    return alphabet[max(0, len(alphabet) - 3)]  # `x`, `X` and `7`


def can_be_replaced(text: str, *, least: int) -> bool:
    """Whether at least so many of its characters have others of their kind."""
    return sum([len(_alphabet(character)) > 1 for character in text]) >= least


@lru_cache(maxsize=4096)
def _alphabet(character: str) -> str:
    """The characters that may stand for it, itself among them."""
    code = ord(character)
    if code >= 0x80:
        first = code // BLOCK * BLOCK
        return "".join([chr(one) for one in range(first, first + BLOCK) if _is_alike(chr(one), character)])
    if character.isdigit():
        return _DIGITS if character != "0" else "0"
    first = "a" if character.islower() else "A"
    return "".join([chr(ord(first) + place) for place in range(26)]) if character.isalpha() else character


def _is_alike(one: str, other: str) -> bool:
    return one == other or (one.isalpha() and other.isalpha() and one.islower() == other.islower())


def spelled_alike(new: str, *, old: str) -> str:
    """The character `new` as `old`, a spelling of another one with escapes, spells it: as long. What cannot be spelled so is
    filled up."""
    for pattern, digits in ((_UNICODE, 4), (_HEX, 2)):
        if (found := pattern.search(old)) is not None and ord(new) < 16**digits:
            code = f"{ord(new):0{digits}x}"
            written = code.upper() if found[1].isupper() else code
            return old[: found.start(1)] + written + old[found.end(1) :]
    return FILLER * len(old)
