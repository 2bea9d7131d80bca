"""Signatures on the lab's thoughts, as Anthropic, Google and OpenAI put them on theirs: who changes one is found out."""

import hashlib
from base64 import b64decode, b64encode

CHECK_CHARACTERS = 8


def sign(thought: str) -> str:
    """Base64 without `+` and `/`, since Google's own client sends signatures back in the other alphabet."""
    print_of = hashlib.blake2b(thought.encode(), digest_size=16).hexdigest()
    return b64encode((print_of + check_of(print_of)).encode()).decode()


def check_of(print_of: str) -> str:
    return hashlib.blake2b(print_of.encode()).hexdigest()[:CHECK_CHARACTERS]


SIGNED_LENGTH = len(sign(""))
_ALPHABET = frozenset("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789=")


def is_signature(text: str) -> bool:
    """Made by `sign`, for whatever thought."""
    if len(text) != SIGNED_LENGTH or not set(text) <= _ALPHABET:
        return False
    plain = b64decode(text).decode("latin-1")
    return plain[-CHECK_CHARACTERS:] == check_of(plain[:-CHECK_CHARACTERS])
