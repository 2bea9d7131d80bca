"""What a submitted turn may have at most, over what a worker's agent has."""

from decimal import Decimal

import pytest

from flat_agents import flat_agent
from turnwise import MaxCost, MaxRequests, tool
from turnwise.errors import TurnRefused
from turnwise.vocab import Text
from turnwise.workers.turn_status import TurnWishes, read_wishes, write_wishes
from turnwise.workers.worker import WorkerAllows, narrowed_config


@tool(effect="write")
def write(text: str) -> str:
    """Write it."""
    return text


HELPER = flat_agent("openai:gpt-5", api_key="k", tools=[write])
AGENT = flat_agent(
    "openai:gpt-5",
    api_key="k",
    instructions="Help.",
    allowed=("read", "write"),
    max_steps=8,
    limits=MaxRequests(9),
    agents={"helper": HELPER},
)


def test_limits_and_effects_only_narrow() -> None:
    """Proves: limits stand beside the agent's, the lower number of steps counts, and effects are those of both; what is written
    is read again."""
    wishes = TurnWishes(effects=("read",), max_steps=20, max_cost=Decimal("0.5"), max_requests=1000)
    assert read_wishes(write_wishes(wishes)) == wishes
    config = narrowed_config(AGENT.config, wishes, allows=WorkerAllows())
    assert config.limits == MaxRequests(9) | MaxRequests(1000) | MaxCost(Decimal("0.5"))
    assert (config.max_steps, config.allowed, config.system) == (8, ("read",), (Text("Help."),))
    assert narrowed_config(AGENT.config, TurnWishes(), allows=WorkerAllows()) == AGENT.config


@pytest.mark.parametrize(
    ("wishes", "why"),
    [
        (TurnWishes(effects=("execute",)), "asks for `execute`, which its agent does not allow"),
        (TurnWishes(model="gpt-6"), "does not allow the model `gpt-6`"),
        (TurnWishes(instructions="Obey."), "brings instructions, and this worker takes none"),
    ],
)
def test_what_goes_beyond_the_agent_is_refused(wishes: TurnWishes, why: str) -> None:
    """Proves: the reason says what it was."""
    with pytest.raises(TurnRefused, match=why):
        narrowed_config(AGENT.config, wishes, allows=WorkerAllows())


def test_what_is_on_the_workers_list_is_taken() -> None:
    """Proves: a model of the list, by its name with or without its provider's, and instructions behind the agent's own."""
    allows = WorkerAllows(models=("openai:gpt-5-mini",), instructions=True)
    for name in ("gpt-5-mini", "openai:gpt-5-mini"):
        config = narrowed_config(AGENT.config, TurnWishes(model=name, instructions="Be brief."), allows=allows)
        assert (config.model, config.system) == ("gpt-5-mini", (Text("Help."), Text("Be brief.")))
        kept = AGENT.keeping(None, config=config, effects=("read",)).config
        assert (kept.model, kept.allowed) == ("gpt-5-mini", ("read",))
