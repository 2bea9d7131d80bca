"""What a turn's configuration says of its model and endpoint, and the user's `prepare_step`, whose answer is checked."""

import inspect
from collections.abc import Awaitable, Callable, Collection
from typing import cast

import msgspec

from turnwise.agent.models import ModelName
from turnwise.agent.plain import check_plain
from turnwise.endpoints.endpoints import Endpoint
from turnwise.errors import CallerError
from turnwise.running.runner_config import StepPreparer
from turnwise.settings.catalogue import find_limits, limits_over
from turnwise.turn.commands import PrepareStep
from turnwise.turn.config import Effect, Fallback, TurnConfig
from turnwise.turn.events import StepPrepared
from turnwise.wire.generations import moves_text, tells_behind
from turnwise.wire.profiles import MARK_WAYS


def at_endpoint(config: TurnConfig, *, endpoint: Endpoint) -> TurnConfig:
    """With the facts of the endpoint that rules need."""
    profile = endpoint.profile
    told_behind = profile.leads_input(config.model) or (profile.told_behind and tells_behind(config.model))
    return msgspec.structs.replace(
        config,
        family=profile.family,
        profile=profile.name,
        accepts_prefill=profile.accepts_prefill,
        default_max_tokens=profile.sent_max_tokens,
        tool_choice_none=profile.tool_choice_none,
        leaves_calls_in_text=endpoint.leaves_calls_in_text,
        system_in_input=told_behind,
        appends_tools=told_behind,
        shows_thinking=profile.family == "anthropic_messages" and moves_text(config.model),
        marks_cache=profile.cache_way(config.model) in MARK_WAYS,
    )


def with_model(config: TurnConfig, *, model: ModelName, endpoint: Endpoint) -> tuple[ModelName, TurnConfig]:
    """The model that the configuration names, at the same provider, and the configuration with what is known of it."""
    limits = limits_over(find_limits(config.model, profile=model.profile.name), None)
    config = at_endpoint(msgspec.structs.replace(config, model_limits=limits), endpoint=endpoint)
    return ModelName(model.profile, config.model), config


def within(config: TurnConfig, *, effects: Collection[Effect]) -> TurnConfig:
    """With no more effects than these."""
    return msgspec.structs.replace(config, allowed=tuple([one for one in config.allowed if one in effects]))


def checked(prepare_step: StepPreparer) -> Callable[[PrepareStep], Awaitable[StepPrepared | None]]:
    """The user's `prepare_step`, its answer checked: what it got wrong is a CallerError."""

    async def prepare(view: PrepareStep) -> StepPrepared | None:
        given = prepare_step(view)
        answer = cast("object", await given if inspect.isawaitable(given) else given)  # the user's word may not hold
        if answer is None:
            return None
        if not isinstance(answer, StepPrepared):
            raise CallerError(f"`prepare_step` must return StepChanges or None, not {type(answer).__name__}")
        check_plain(answer, what="`prepare_step`: StepChanges")
        return answer

    return prepare


def fallback_of(name: str, *, profile: str) -> Fallback:
    return Fallback(model=name, limits=limits_over(find_limits(name, profile=profile), None))


def asks_hour(config: TurnConfig) -> bool:
    """Whether its requests ask for a cache that is kept for an hour, by the option or by a mark in `extra`."""
    return (config.cache == "1h" and config.marks_cache) or '"1h"' in config.extra
