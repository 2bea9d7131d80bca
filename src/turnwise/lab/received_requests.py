"""What the lab received, and what it answered, as data."""

from collections import Counter
from collections.abc import Sequence

import msgspec

from turnwise.lab.raw import dump
from turnwise.lab.script import FaultName, FaultPoint
from turnwise.vocab import Request, Usage


class Received(msgspec.Struct, frozen=True, kw_only=True):
    """One request. `request` is the body as turnwise reads it (None if it cannot), for information only: no reply depends
    on it being right. `refused` is why the lab answered 400 or the like; `step` counts the script's steps from 1, `turn` the
    user's turns in the conversation that was sent; `usage` is what the answer said, `is_summary` that it was one; `fault` is
    what went wrong with the answer on purpose, and `fault_at` where. `betas` is what `anthropic-beta` said, `dropped` are the
    places of thinking that the model was not shown."""

    number: int
    family: str
    path: str
    model: str
    streamed: bool
    status: int
    body: bytes
    request: Request | None = None
    refused: str | None = None
    turn: int | None = None
    step: int | None = None
    usage: Usage | None = None
    is_summary: bool = False
    fault: FaultName | None = None
    fault_at: FaultPoint | None = None
    betas: str = ""
    dropped: tuple[str, ...] = ()


def counted(
    requests: Sequence[Received], *, model: str | None = None, family: str | None = None, status: int | None = None
) -> int:
    """How many of them match."""
    return sum(
        1
        for one in requests
        if (model is None or one.model == model)
        and (family is None or one.family == family)
        and (status is None or one.status == status)
    )


def listing(requests: Sequence[Received]) -> bytes:
    """The answer of `GET /_lab/requests`: how many, by model, and each with its body."""
    each = [
        {
            "number": one.number,
            "family": one.family,
            "path": one.path,
            "model": one.model,
            "streamed": one.streamed,
            "status": one.status,
            "refused": one.refused,
            "turn": one.turn,
            "step": one.step,
            "usage": one.usage,
            "is_summary": one.is_summary,
            "fault": one.fault,
            "fault_at": one.fault_at,
            "body": readable(one.body),
        }
        for one in requests
    ]
    return dump({"count": len(requests), "by_model": Counter(one.model for one in requests), "requests": each})


def readable(body: bytes) -> object:
    """The body as JSON where it is JSON, else as text."""
    try:
        return msgspec.json.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return body.decode("utf-8", "replace")
