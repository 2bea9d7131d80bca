"""What a submitted turn may have at most, over what its agent has: narrower, or from the worker's own list; else refused."""

from collections.abc import Sequence

import msgspec

from turnwise.agent.agent import Agent
from turnwise.agent.agent_setup import ALL_EFFECTS
from turnwise.errors import TurnRefused
from turnwise.journal.claims import Claim
from turnwise.journal.journal import Journal
from turnwise.turn.config import Effect, TurnConfig
from turnwise.vocab import Text
from turnwise.workers.turn_request import NO_WISHES, TurnWishes, read_wishes


class WorkerAllows(msgspec.Struct, frozen=True, kw_only=True):
    """Beside what an agent has: other models of its provider, and whether a turn may bring instructions."""

    models: tuple[str, ...] = ()
    instructions: bool = False


def narrowed(agent: Agent, claim: Claim, *, journal: Journal, allows: WorkerAllows) -> Agent:
    """The agent for a claimed turn. Raises TurnRefused, with the reason, for what goes beyond the agent. A turn that goes on
    keeps what it began with."""
    wishes = read_wishes(claim.wishes) if claim.is_new else NO_WISHES
    config = narrowed_config(agent.config, wishes, allows=allows)
    return agent.keeping(journal, config=config, effects=_effects(wishes))


def narrowed_config(config: TurnConfig, wishes: TurnWishes, *, allows: WorkerAllows) -> TurnConfig:
    """The agent's configuration within these wishes. Raises TurnRefused, with the reason, for what goes beyond the agent."""
    model = _model(wishes.model, config=config, models=allows.models)
    if wishes.instructions and not allows.instructions:
        raise TurnRefused("the turn brings instructions, and this worker takes none (`--allow-instructions`)")
    allowed = config.allowed
    if wishes.effects is not None:
        if more := [f"`{effect}`" for effect in wishes.effects if effect not in allowed]:
            raise TurnRefused(f"the turn asks for {', '.join(more)}, which its agent does not allow")
        allowed = tuple([effect for effect in allowed if effect in _effects(wishes)])
    limits = config.limits
    for one in wishes.limits():
        limits = one if limits is None else limits | one
    return msgspec.structs.replace(
        config,
        model=model,
        system=(*config.system, Text(wishes.instructions)) if wishes.instructions else config.system,
        allowed=allowed,
        limits=limits,
        max_steps=min(config.max_steps, wishes.max_steps or config.max_steps),
    )


def _effects(wishes: TurnWishes) -> Sequence[Effect]:
    """What has none is harmless: a task for a sub-agent, a question."""
    return ALL_EFFECTS if wishes.effects is None else ("none", *wishes.effects)


def _model(wanted: str, *, config: TurnConfig, models: Sequence[str]) -> str:
    """By its name, with or without its provider's in front of it."""
    name = wanted.removeprefix(f"{config.profile}:")
    if not name or name == config.model:
        return config.model
    allowed = [model.removeprefix(f"{config.profile}:") for model in models]
    if name not in allowed:
        known = ", ".join([f"`{model}`" for model in (config.model, *allowed)])
        raise TurnRefused(f"this worker does not allow the model `{name}` (it allows {known}; `--allow-model`)")
    return name
