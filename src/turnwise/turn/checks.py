"""What a caller has to change before a turn can start."""

from turnwise.errors import BadTool, CallerError
from turnwise.rules.limits import counts_cost, fault_of_limit, no_price
from turnwise.rules.projection import can_project
from turnwise.rules.schema import fault_of_schema
from turnwise.turn.config import TurnConfig
from turnwise.vocab import NamedTool


def check_config(config: TurnConfig) -> None:
    """Raise CallerError for a configuration that cannot work, saying what to change."""
    if config.max_steps < 1:
        raise CallerError(f"`max_steps` is {config.max_steps}; a turn needs at least 1")
    if config.retry.attempts < 1:
        raise CallerError(f"`retry`: {config.retry.attempts} attempts make no request; 1 is without a retry")
    if config.limits is not None and (fault := fault_of_limit(config.limits)):
        raise CallerError(f"`limits`: {fault}")
    if counts_cost(config.limits):
        for model in (config.model, *[fallback.model for fallback in config.fallbacks]):
            row = config.prices.get(model)
            if row is None or not can_project(row):
                raise CallerError(no_price(model, profile=config.profile, row=row))
    names = [offer.spec.name for offer in config.tools]
    if isinstance(config.tool_choice, NamedTool) and config.tool_choice.name not in names:
        raise CallerError(f"`tool_choice` names `{config.tool_choice.name}`, which is none of the tools")
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise CallerError(f"two tools are called `{twice[0]}`; give each its own name")
    for offer in config.tools:
        if fault := fault_of_schema(offer.spec.parameters):
            raise BadTool(f"the parameters of tool `{offer.spec.name}` are no usable JSON Schema: {fault}")
    if config.output is not None and (fault := fault_of_schema(config.output.schema)):
        raise CallerError(f"the output schema is no usable JSON Schema: {fault}")
