"""Signatures on the lab's thoughts, and thinking that is bound to what stood before it.

Anthropic, Google and OpenAI sign their models' thoughts: who changes one is found out. Claude 5.x and GPT-6.2 bind them, too:
each signature tells its own prefix. A block's prefix is `system`, `tools` and all content before it, from the last compaction
block on, without cache marks and in any order of keys. Each block names the valid thinking block before it, so a block that was
left out between two others is noticed; blocks that were left out at the start are not. Nothing is remembered between requests.

Sources: Claude docs, "Preserved thinking" and "Fix a thinking block bound to a different conversation" (September 2026);
anthropic-python 2.14, types/beta/beta_input_transformation.py; OpenAI docs, "Keep the prefix unchanged" (November 2026);
openai-python 3.57, types/responses/response.py.
"""

import hashlib
from base64 import b64decode, b64encode
from collections.abc import Callable
from typing import Protocol

import msgspec

from turnwise.lab.raw import Raw, table
from turnwise.lab.script import Binding

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


class Dropped(msgspec.Struct, frozen=True, kw_only=True):
    """A thinking block that the model does not get to see. `path` is where it was sent; `id` is that of an OpenAI item."""

    path: str
    reason: str
    id: str = ""


class Judged(msgspec.Struct, frozen=True, kw_only=True):
    """What a request's thinking is worth, and what the thinking of its response is bound to. `tells`: the response reports."""

    dropped: tuple[Dropped, ...] = ()
    prefix: str = ""
    before: str = ""
    tells: bool = True

    def sign(self, thought: str) -> str:
        return sign_bound(thought, prefix=self.prefix, before=self.before)


class _Hash(Protocol):
    def update(self, data: bytes, /) -> None: ...
    def copy(self) -> "_Hash": ...
    def hexdigest(self) -> str: ...


class PrefixReader:
    """Goes over a conversation once. `before` is the print of the last valid thinking block."""

    def __init__(self, *opening: Raw) -> None:
        self._opening = _new_hash(*opening)
        self._hash: _Hash = self._opening.copy()
        self.before = ""
        self.dropped: list[Dropped] = []

    @property
    def prefix(self) -> str:
        return self._hash.hexdigest()

    def take(self, role: str, block: Raw) -> None:
        if table(block).get("type") == "compaction":
            self._hash, self.before = self._opening.copy(), ""
        self._hash.update(_canonical([role, block]))

    def judge(self, bound: Bound | None, *, thought: str | None, path: str, id: str = "") -> bool:
        """Whether the signature may be the block's. `thought`: what the block says, where it says it in the open."""
        reason = ""
        if bound is None:
            reason = "model"  # another model signed it: this one may not read it
        elif bound.prefix != self.prefix or (self.before and bound.before != self.before):
            reason = "prefix"
        elif thought is not None and not bound.is_of(thought):
            return False
        else:
            self.before = bound.print
        if reason:
            self.dropped.append(Dropped(path=path, reason=reason, id=id))
        return True

    def judged(self, *, tells: bool) -> Judged:
        return Judged(dropped=tuple(self.dropped), prefix=self.prefix, before=self.before, tells=tells)


class ThinkingJudge(msgspec.Struct, frozen=True, kw_only=True):
    """How one family binds thinking. `judge` takes a body, what the script binds, and the betas that were asked for, and raises
    Rejected where the model refuses what is stale; `report` is what a response says of a dropped block. The reports begin the
    object behind `told_in`: in a stream, in each event that has one of `told_with`."""

    judge: Callable[[dict[str, Raw], Binding, str], Judged]
    report: Callable[[Dropped], Raw]
    told_in: bytes
    told_with: tuple[bytes, ...]


def _new_hash(*opening: Raw) -> _Hash:
    found: _Hash = hashlib.blake2b(digest_size=16)
    for value in opening:
        found.update(_canonical(value or None))
    return found


def _canonical(value: Raw) -> bytes:
    return msgspec.json.encode(_unmarked(value), order="sorted") + b"\n"


def _unmarked(value: Raw) -> Raw:
    """Without cache marks, on whatever they stand: they change nothing that the model reads."""
    match value:
        case list():
            return [_unmarked(one) for one in value]
        case dict():
            return {key: _unmarked(one) for key, one in value.items() if key != "cache_control"}
        case _:
            return value
