"""The limits' word on the next request. These functions read `Known`, never a phase."""

import msgspec

from turnwise.rules.budget import kept_below
from turnwise.rules.limits import said, wall_time_s
from turnwise.turn.limit_pace import Pacing
from turnwise.turn.request_plan import limit_of
from turnwise.turn.turn_state import Known
from turnwise.vocab import Request


def left_s(known: Known) -> float | None:
    """Of the turn's time; None where nothing limits it."""
    limits = known.config.limits
    total_s = None if limits is None else wall_time_s(limits)
    return None if total_s is None else total_s - known.spending.pacing.at_s


def paced(known: Known, *, step: int | None = None) -> Pacing:
    """The pace of the step that begins now, or that has to be sent again."""
    config, pacing = known.config, known.spending.pacing
    at = known.step if step is None else step
    if config.limits is None:
        return pacing.begin_plain_step(config.max_steps, steps=at - 1)
    return pacing.begin_step(config, coming=known.coming(step=at))


def affords(known: Known, *, answers: bool, within: bool = False, after_s: float = 0.0, model: str = "") -> bool:
    """Whether the limits allow one request more in this step, so many seconds from now: one that `answers`, or one before the
    answer, which may come `within` the step (after a summary), or in the next one; of the model at hand, or of another
    `model`."""
    limits = known.config.limits
    if limits is None:
        return True
    return known.spending.pacing.affords(
        limits, coming=known.coming(model=model), answers=answers, within=within, after_s=after_s
    )


def affords_step(known: Known) -> bool:
    """Whether the limits allow one more step like any other."""
    config, pacing = known.config, known.spending.pacing
    if config.limits is None:
        return pacing.begin_plain_step(config.max_steps, steps=known.step).pace == "go"
    next_one = msgspec.structs.replace(known.coming(step=known.step + 1), is_billed=False)
    return pacing.begin_step(config, coming=next_one).pace == "go"


def is_last(known: Known) -> bool:
    """Whether the request that comes is the last that the limits allow, whatever becomes of it."""
    limits = known.config.limits
    return limits is not None and known.spending.pacing.is_last(known.config, coming=known.coming())


def why_stopped(known: Known, *, pacing: Pacing) -> str:
    """What the limits say that made `pacing` stop the turn."""
    now = known.coming()
    assert pacing.bound is not None
    return said(pacing.bound, spent=now.spent, wanted=known.spending.pacing.wanted(now))


def below_limits(known: Known, request: Request, *, own: int, answers: bool) -> Request:
    """The request with no more output than the limits leave; its last `own` messages are no part of the history."""
    config = known.config
    if config.limits is None:
        return request
    # what the assistant had said stands in the usage of the response that it is of
    extra = [message for message in request.messages[len(request.messages) - own :] if message.role == "user"]
    left = known.spending.pacing.output_left(config, coming=known.coming(), own=extra, answers=answers)
    if left is None:
        return request
    ceiling = request.settings.max_output_tokens
    if ceiling is None and config.room != "off":
        ceiling = config.model_limits.max_output_tokens
    if ceiling is None:
        ceiling = limit_of(request.settings, config=config)
    settings = kept_below(request.settings, tokens=left, sent_tokens=ceiling)
    return request if settings is request.settings else msgspec.structs.replace(request, settings=settings)
