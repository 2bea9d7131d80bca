"""Thinking that its model refuses because something before it has changed (promise step:bound-thinking).

First the provider is asked to leave such thinking out: it knows best which is stale. Where it does not know the setting, all
thinking from the first stale block on is left out of requests; what is thought afterwards goes back as usual. Nothing is asked
before a refusal: older accounts may keep thinking that newer ones lose. Source: Claude docs, "Fix a thinking block bound to a
different conversation" ("Send this setting on every later request in that conversation").
"""

import hashlib
from collections.abc import Sequence

import msgspec
from msgspec.structs import replace

from turnwise.vocab import Fault, Message, Reasoning, Request

PRINT_BYTES = 9  # of a block; of a million blocks no two have the same, for all practical purposes


class StaleThinking(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What a session has learned. `drops`: its requests ask the provider to leave stale thinking out. `not_taken`: the provider
    does not know that setting. `left_out` are the prints of thinking that turnwise leaves out itself."""

    drops: bool = False
    not_taken: bool = False
    left_out: tuple[str, ...] = ()


NOTHING_STALE = StaleThinking()


def learned(
    known: StaleThinking, *, fault: Fault, request: Request, family: str, refused: int | None
) -> StaleThinking | None:
    """What to send the same request with once more; None where the refusal is about something else, or nothing is left to try.

    `refused`: so many blocks stood before the first stale one, as an earlier refusal of the very same messages told.
    """
    match fault.binding:
        case "stale" if not known.drops and not known.not_taken:
            return replace(known, drops=True)
        case "stale":
            more = _prints_behind(request.messages, valid=fault.valid_thinking or 0, family=family)
        case "not_taken" if known.drops:
            more = () if refused is None else _prints_behind(request.messages, valid=refused, family=family)
        case _:
            return None
    left_out = (*known.left_out, *[one for one in more if one not in known.left_out])
    if known.not_taken and left_out == known.left_out:
        return None
    return StaleThinking(drops=False, not_taken=True, left_out=left_out)


def fitted(request: Request, *, known: StaleThinking, family: str) -> Request:
    """The request as it goes out."""
    if known.drops:
        request = replace(request, drops_stale_thinking=True)
    if not known.left_out:
        return request
    stale = frozenset(known.left_out)
    messages = [_without(message, stale=stale, family=family) for message in request.messages]
    return replace(request, messages=tuple(messages))


def said_of(known: StaleThinking) -> str:
    """What was done about a refusal, for people."""
    if known.drops:
        return "refused thinking behind something that has changed: sent again, the provider leaves stale thinking out"
    return f"refused thinking behind something that has changed: sent again without it ({len(known.left_out)} blocks so far)"


def _without(message: Message, *, stale: frozenset[str], family: str) -> Message:
    if message.role != "assistant":
        return message
    kept = tuple([part for part in message.parts if _print_of(part, family=family) not in stale])
    return message if len(kept) == len(message.parts) else Message(message.role, kept)


def _prints_behind(messages: Sequence[Message], *, valid: int, family: str) -> tuple[str, ...]:
    prints = [_print_of(part, family=family) for message in messages for part in message.parts]
    return tuple([one for one in prints if one][valid:])


def _print_of(part: object, *, family: str) -> str:
    """Of thinking that goes back to its API; empty for any other part."""
    if type(part) is not Reasoning or part.opaque is None or part.opaque.family != family:
        return ""
    return hashlib.blake2b(part.opaque.json.encode(), digest_size=PRINT_BYTES).hexdigest()
