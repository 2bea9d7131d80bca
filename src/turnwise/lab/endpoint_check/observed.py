"""What one request showed, as data. Nothing here is judged."""

from typing import Literal

import msgspec

from turnwise.vocab import Fault, Frame, Request, Response

BodyLook = Literal["stream", "json", "html", "other", "nothing"]


class Marks(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What the bytes of the answer show beside its frames. `comments` are comment lines of the stream, `has_done` is the
    end mark `[DONE]`. `is_doubled`: the same bytes came a second time. `reasoning_field` is the field of Chat Completions that
    brought reasoning."""

    status: int | None = None
    content_type: str = ""
    look: BodyLook = "nothing"
    size_bytes: int = 0
    comments: int = 0
    has_done: bool = False
    is_doubled: bool = False
    reasoning_field: str = ""


class Observed(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One probe's answer. `events` are the frames as the decoder read them, before assembly, those of one event together.
    `answered`: a response came, whole or not; else `fault` says why not. `waited` counts the times that the server asked to
    wait before it answered. `is_steady`: pieces came until the time was up. `other_api` is the family whose answer it is, where
    it is none of this one."""

    probe: str
    request: Request
    events: tuple[tuple[Frame, ...], ...] = ()
    response: Response | None = None
    answered: bool = False
    fault: Fault | None = None
    marks: Marks = Marks()
    seconds: float = 0.0
    first_event_s: float | None = None
    taken_ids: frozenset[str] = frozenset()
    waited: int = 0
    is_steady: bool = False
    other_api: str = ""


class LearnedField(msgspec.Struct, frozen=True, kw_only=True):
    """The endpoint refused a request (`why`, in its own words) and took it with another value of the profile."""

    field: str
    value: object
    why: str
