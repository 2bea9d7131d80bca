"""What a run may spend and what its model can give, out of the settings that hold for it."""

import msgspec

from turnwise.drivers.catalogue import find_limits, limits_over
from turnwise.drivers.settings import RunSettings
from turnwise.faces.models import read_model
from turnwise.rules.budget import ModelLimits
from turnwise.rules.limits import AnyOf, Limit, MaxCost, MaxRequests, MaxTokens, MaxWallTime
from turnwise.rules.retries import RetryPolicy
from turnwise.turn.config import TurnConfig


def limits_of(settings: RunSettings, *, last: Limit | None) -> Limit | None:
    """The limits that the settings name, and those of the session's `last` turn for which there is no setting (`&`, output
    tokens alone). Whichever is reached first ends the turn."""
    chosen: list[Limit] = []
    if settings.max_requests is not None:
        chosen.append(MaxRequests(settings.max_requests))
    if settings.max_tokens is not None:
        chosen.append(MaxTokens(settings.max_tokens))
    if settings.max_cost is not None:
        chosen.append(MaxCost(settings.max_cost))
    if settings.max_time is not None:
        chosen.append(MaxWallTime(settings.max_time))
    chosen += [one for one in _members(last) if not _has_setting(one)]
    if len(chosen) < 2:
        return chosen[0] if chosen else None
    return AnyOf(tuple(chosen))


def settings_in(limit: Limit | None) -> RunSettings:
    """What of a limit settings could have named."""
    found = RunSettings()
    for one in _members(limit):
        match one:
            case MaxRequests(requests):
                found = msgspec.structs.replace(found, max_requests=requests)
            case MaxTokens(tokens, counts="all"):
                found = msgspec.structs.replace(found, max_tokens=tokens)
            case MaxCost(usd):
                found = msgspec.structs.replace(found, max_cost=usd)
            case MaxWallTime(seconds):
                found = msgspec.structs.replace(found, max_time=seconds)
            case _:
                pass
    return found


def model_limits_of(
    model: str, *, settings: RunSettings, context_window: int | None, last: TurnConfig | None
) -> ModelLimits:
    """The command line's window, else the user's row, else the catalogue's; what none of them knows, as the session's last
    turn had it, if that was the same model. Raises UnknownModel.

    Limits are facts and not choices: a session does not hold on to what was thought of its model.
    """
    named = read_model(model)
    known = find_limits(named.name, profile=named.profile.name, overrides=settings.model_limits)
    if last is not None and (last.profile, last.model) == (named.profile.name, named.name):
        known = limits_over(last.model_limits, known)
    return limits_over(known, ModelLimits(context_window_tokens=context_window))


def retry_of(retries: int | None, *, last: TurnConfig | None) -> RetryPolicy:
    """The further attempts that were asked for, else those of the session's `last` turn, else our own."""
    if retries is not None:
        return RetryPolicy(attempts=retries + 1)
    return RetryPolicy() if last is None else last.retry


def fallbacks_of(last: TurnConfig | None, *, model: str | None) -> tuple[str, ...]:
    """The other models of the session's `last` turn. They are of its endpoint: with another `--model` none is kept."""
    return () if last is None or model is not None else tuple([one.model for one in last.fallbacks])


def _members(limit: Limit | None) -> tuple[Limit, ...]:
    if limit is None:
        return ()
    return limit.limits if isinstance(limit, AnyOf) else (limit,)


def _has_setting(limit: Limit) -> bool:
    return settings_in(limit) != RunSettings()
