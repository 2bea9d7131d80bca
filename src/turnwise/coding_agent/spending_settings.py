"""What a run may spend and what its model can give, out of the settings that hold for it."""

from turnwise.agent.models import read_model
from turnwise.rules.budget import ModelLimits
from turnwise.rules.limits import AnyOf, Limit
from turnwise.rules.retries import RetryPolicy
from turnwise.settings.catalogue import find_limits, limits_over
from turnwise.settings.options import RunSettings, beside, limits_in, settings_in, settings_over
from turnwise.turn.config import TurnConfig
from turnwise.vocab import Settings


def limits_of(settings: RunSettings, *, last: Limit | None) -> Limit | None:
    """The limits that the settings name, and those of the session's `last` turn for which there is no setting (`&`, output
    tokens alone). Whichever is reached first ends the turn."""
    chosen = limits_in(settings) + [one for one in beside(last) if settings_in(one) == RunSettings()]
    if len(chosen) < 2:
        return chosen[0] if chosen else None
    return AnyOf(tuple(chosen))


def model_limits_of(model: str, *, settings: RunSettings, last: TurnConfig | None) -> ModelLimits:
    """The command line's window, else the user's row, else the catalogue's; what none of them knows, as the session's last
    turn had it, if that was the same model. Raises UnknownModel.

    Limits are facts and not choices: a session does not hold on to what was thought of its model.
    """
    named = read_model(model)
    known = find_limits(named.name, profile=named.profile.name, overrides=settings.model_limits)
    if last is not None and (last.profile, last.model) == (named.profile.name, named.name):
        known = limits_over(last.model_limits, known)
    return limits_over(known, ModelLimits(context_window_tokens=settings.context_window))


def retry_of(retries: int | None, *, last: TurnConfig | None) -> RetryPolicy:
    """That of the session's `last` turn where it has so many further attempts, else our own with so many."""
    usual = RetryPolicy() if last is None else last.retry
    return usual if retries is None or usual.attempts == retries + 1 else RetryPolicy(attempts=retries + 1)


def is_same_model(model: str | None, *, last: TurnConfig | None) -> bool:
    """Whether a run goes on with the session's own model."""
    return model is None or last is None or model == f"{last.profile}:{last.model}"


def request_settings(settings: RunSettings, *, last: TurnConfig | None, model: str | None) -> Settings:
    """What the settings say of requests; the rest is as the session's `last` turn had it, if it goes on with its own model."""
    kept = Settings() if last is None or not is_same_model(model, last=last) else last.settings
    return settings_over(kept, settings)
