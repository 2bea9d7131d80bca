"""Thinking that is bound to what stood before it, as Claude 5.x and GPT-6.2 bind it: each signature tells its own prefix.

A block's prefix is `system`, `tools` and all content before it, from the last compaction block on, without cache marks and in
any order of keys. Each block names the valid thinking block before it, so a block that was left out between two others is
noticed; blocks that were left out at the start are not. Nothing is remembered between requests.

Sources: Claude docs, "Preserved thinking" and "Fix a thinking block bound to a different conversation" (September 2026);
anthropic-python 2.14, types/beta/beta_input_transformation.py; OpenAI docs, "Keep the prefix unchanged" (November 2026);
openai-python 3.57, types/responses/response.py.
"""

import hashlib
from base64 import b64decode, b64encode
from collections.abc import Iterable
from typing import Protocol

import msgspec

from turnwise.lab.raw import Raw, dig, rows, table, text
from turnwise.lab.script import Binding
from turnwise.lab.strict.verdicts import Rejected

# Signatures on the lab's thoughts, as Anthropic, Google and OpenAI put them on theirs: who changes one is found out.


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


BETA = "thinking-binding-controls-2026-08-01"
FAMILIES = ("anthropic_messages", "openai_responses")
DROPS = "drop_block"


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


class _Reader:
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

    def judge(self, bound: Bound | None, *, thought: str | None, path: str, id: str = "") -> None:
        """`thought`: what the block says, where it says it in the open."""
        reason = ""
        if bound is None:
            reason = "model"  # another model signed it: this one may not read it
        elif bound.prefix != self.prefix or (self.before and bound.before != self.before):
            reason = "prefix"
        elif thought is not None and not bound.is_of(thought):
            raise Rejected(f"{path}: Invalid `signature` in `thinking` block")
        else:
            self.before = bound.print
        if reason:
            self.dropped.append(Dropped(path=path, reason=reason, id=id))


def judge(family: str, *, body: Raw, binding: Binding, betas: str) -> Judged | None:
    """None for a model that binds nothing. Raises Rejected where the model refuses what is stale."""
    if not binding or family not in FAMILIES:
        return None
    if family == "openai_responses":
        return _judge_items(table(body))
    return _judge_blocks(table(body), binding=binding, betas=betas)


def _judge_blocks(body: dict[str, Raw], *, binding: Binding, betas: str) -> Judged:
    behaviour = _behaviour(body, binding=binding, betas=betas)
    reader = _Reader(_as_blocks(body.get("system")), body.get("tools"))
    for position, message in enumerate(rows(body.get("messages"))):
        role = text(table(message).get("role"))
        for index, block in enumerate(_as_blocks(table(message).get("content"))):
            fields, path = table(block), f"messages.{position}.content.{index}"
            match fields.get("type"):
                case "thinking":
                    reader.judge(
                        bound_in(text(fields.get("signature"))), thought=text(fields.get("thinking")), path=path
                    )
                case "redacted_thinking":
                    reader.judge(bound_in(text(fields.get("data"))), thought=None, path=path)
                case _:
                    reader.take(role, block)
    stale = next((one for one in reader.dropped if one.reason == "prefix"), None)
    if stale is not None and binding != "drops" and behaviour != DROPS:
        raise Rejected(
            f"{stale.path}: Invalid `signature` in `thinking` block. The block is bound to a different conversation. Remove "
            f'the block, or set `thinking.block_binding.prefix_mismatch_behavior` to "{DROPS}".'
        )
    return _judged(reader, tells=_has_beta(betas))


def _behaviour(body: dict[str, Raw], *, binding: Binding, betas: str) -> Raw:
    """What the request asks for where a block does not match; the field is known only beside its header."""
    thinking = table(body.get("thinking"))
    if "block_binding" not in thinking:
        return "error"
    type = text(thinking.get("type"))
    if binding == "uncontrolled" or type == "disabled" or not _has_beta(betas):
        raise Rejected(f"thinking.{type}.block_binding: Extra inputs are not permitted")
    behaviour = dig(thinking, "block_binding", "prefix_mismatch_behavior") or "error"
    if behaviour not in ("error", DROPS):
        raise Rejected(f"thinking.{type}.block_binding.prefix_mismatch_behavior: Input should be 'error' or '{DROPS}'")
    return behaviour


def _has_beta(betas: str) -> bool:
    return BETA in [one.strip() for one in betas.split(",")]


def _judge_items(body: dict[str, Raw]) -> Judged:
    """`instructions` stand behind the input, so they are no part of any prefix."""
    reader = _Reader(body.get("tools"), dig(body, "text", "format"))
    items = body.get("input")
    for position, item in enumerate(rows(items) if isinstance(items, list) else [items]):
        fields = table(item)
        sealed = fields.get("encrypted_content")
        if fields.get("type") == "reasoning" and isinstance(sealed, str):
            reader.judge(bound_in(sealed), thought=None, path=f"input.{position}", id=text(fields.get("id")))
        else:
            reader.take("", {key: value for key, value in fields.items() if key not in ("id", "status")} or item)
    return _judged(reader, tells=True)


def _judged(reader: _Reader, *, tells: bool) -> Judged:
    return Judged(dropped=tuple(reader.dropped), prefix=reader.prefix, before=reader.before, tells=tells)


def transformations(family: str, dropped: Iterable[Dropped]) -> list[Raw]:
    """The `input_transformations` of a response."""
    if family == "openai_responses":
        return [
            {"type": "reasoning", "id": one.id, "action": "removed", "reason": f"{one.reason}_mismatch"}
            for one in dropped
        ]
    return [
        {"type": "thinking_dropped", "path": one.path, "reason": f"{one.reason}_binding_mismatch"} for one in dropped
    ]


def _as_blocks(content: Raw) -> list[Raw]:
    return [{"type": "text", "text": content}] if isinstance(content, str) else list(rows(content))


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
