"""Striking the key out of what a provider says about a request: some quote it back, in any field."""

from collections.abc import Callable, Sequence
from typing import TypeVar

import msgspec

from turnwise.vocab import Faulted, Finished, Frame, Lost, Mended, Response, Started

Quote = TypeVar("Quote", bound=msgspec.Struct)
Scrub = Callable[[str], str]

# The other frames carry the model's words, which never saw the key; looking through every delta would cost what it saves.
_QUOTING = frozenset([Started, Finished, Faulted, Mended, Lost])


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
    if _QUOTING.isdisjoint(map(type, frames)):
        return frames
    return [hide_in(frame, scrub=scrub) if type(frame) in _QUOTING else frame for frame in frames]


def hide_in_response(response: Response, *, scrub: Scrub) -> Response:
    """All but the message and the usage."""

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
