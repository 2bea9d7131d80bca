"""Signatures on the lab's thoughts, as Anthropic, Google and OpenAI put them on theirs: who changes one is found out."""

import hashlib
from base64 import b64decode, b64encode

import msgspec

CHECK_CHARACTERS = 8
PRINT_CHARACTERS = 32


class Bound(msgspec.Struct, frozen=True):
    """What a bound signature holds: the prints of its thought, of all that stood before it, and of the valid thought before it
    (empty for the first one)."""

    print: str
    prefix: str
    before: str

    def is_of(self, thought: str) -> bool:
        return self.print == _print_of(self.prefix + thought)


def sign(thought: str) -> str:
    """Base64 without `+` and `/`, since Google's own client sends signatures back in the other alphabet."""
    return _sealed(_print_of(thought))


def sign_bound(thought: str, *, prefix: str, before: str) -> str:
    """A signature that holds behind this prefix alone."""
    return _sealed(_print_of(prefix + thought) + prefix + before)


def check_of(print_of: str) -> str:
    return hashlib.blake2b(print_of.encode()).hexdigest()[:CHECK_CHARACTERS]


def _print_of(thought: str) -> str:
    return hashlib.blake2b(thought.encode(), digest_size=PRINT_CHARACTERS // 2).hexdigest()


def _sealed(prints: str) -> str:
    return b64encode((prints + check_of(prints)).encode()).decode()


_ALPHABET = frozenset("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789=")
SIGNED_LENGTHS = tuple(len(_sealed(_print_of("") * count)) for count in (1, 2, 3))


def is_signature(text: str) -> bool:
    """Made by `sign` or `sign_bound`, for whatever thought."""
    return _prints_in(text) != ""


def bound_in(text: str) -> Bound | None:
    """What a signature of `sign_bound` holds; None for any other text."""
    prints = _prints_in(text)
    if len(prints) <= PRINT_CHARACTERS:
        return None
    return Bound(*(prints[at : at + PRINT_CHARACTERS] for at in (0, PRINT_CHARACTERS, 2 * PRINT_CHARACTERS)))


def _prints_in(text: str) -> str:
    if len(text) not in SIGNED_LENGTHS or not set(text) <= _ALPHABET:
        return ""
    plain = b64decode(text).decode("latin-1")
    prints = plain[:-CHECK_CHARACTERS]
    return prints if plain[-CHECK_CHARACTERS:] == check_of(prints) else ""
