"""What a submitted turn may have at most, over what a worker's agent has."""

from contextlib import nullcontext
from decimal import Decimal
from typing import Any

import msgspec
import pytest
from click.testing import CliRunner

from flat_agents import flat_agent
from turnwise import MaxCost, MaxRequests, tool
from turnwise.agent.agent import inside
from turnwise.errors import TurnRefused
from turnwise.settings.options import RunSettings, rows_of_limits
from turnwise.terminal.databases import submit_command
from turnwise.turn.config import MAX_STEPS
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


class KeptWishes:
    """In place of a queue: what the last turn may have at most."""

    def submit(self, prompt: str, *, wishes: TurnWishes, **rest: Any) -> str:
        self.wishes = wishes
        return "session"


def test_limits_and_effects_only_narrow() -> None:
    """Proves: limits stand beside the agent's, the lower number of steps counts, and effects are those of both; what is written
    is read again."""
    wishes = TurnWishes(effects=("read",), most=RunSettings(max_steps=20, max_cost=Decimal("0.5"), max_requests=1000))
    assert read_wishes(write_wishes(wishes)) == wishes
    config = narrowed_config(inside(AGENT).config, wishes, allows=WorkerAllows())
    assert config.limits == MaxRequests(9) | MaxRequests(1000) | MaxCost(Decimal("0.5"))
    assert (config.max_steps, config.allowed, config.system) == (8, ("read",), (Text("Help."),))
    assert narrowed_config(inside(AGENT).config, TurnWishes(), allows=WorkerAllows()) == inside(AGENT).config


def test_each_limit_of_the_command_line_reaches_the_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    """Proves: `turnwise submit` takes an option for each limit that a row makes, and none is lost on its way into the turn."""
    queue = KeptWishes()
    monkeypatch.setattr("turnwise.terminal.databases.open_queue", lambda database: nullcontext(queue))
    for row in rows_of_limits():
        words = [row.flags[-1], "3", "--agent", "helper", "Go."]
        assert CliRunner().invoke(submit_command, words).exit_code == 0, row.name
        most = read_wishes(write_wishes(queue.wishes)).most
        assert most == msgspec.convert({row.name: "3"}, type=RunSettings, strict=False)
        config = narrowed_config(
            inside(flat_agent("openai:gpt-5", api_key="k")).config, queue.wishes, allows=WorkerAllows()
        )
        made = None if row.option.limit is None else row.option.limit(getattr(most, row.name))
        assert (config.limits, config.max_steps) == (made, 3 if made is None else MAX_STEPS), row.name


def test_wishes_of_before_are_read_and_none_is_left_out() -> None:
    """Proves: what earlier versions wrote means the same; a name that is unknown, and an amount beyond the bounds of its option,
    are refused."""
    text = '{"effects":["read"],"max_steps":3,"max_tokens":9,"max_cost":"0.5","max_time":1.5,"max_tool_calls":2}'
    wishes = read_wishes(text)
    assert wishes.effects == ("read",)
    assert wishes.most == RunSettings(
        max_steps=3, max_tokens=9, max_cost=Decimal("0.5"), max_time=1.5, max_tool_calls=2
    )
    assert msgspec.json.decode(write_wishes(wishes)) == msgspec.json.decode(text)
    for strange in ('{"max_luck":3}', '{"most":{"max_steps":3}}', '{"recover":"off"}', '{"max_steps":0}', "[]"):
        with pytest.raises(TurnRefused, match="cannot be read"):
            read_wishes(strange)


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
        narrowed_config(inside(AGENT).config, wishes, allows=WorkerAllows())


def test_what_is_on_the_workers_list_is_taken() -> None:
    """Proves: a model of the list, by its name with or without its provider's, and instructions behind the agent's own."""
    allows = WorkerAllows(models=("openai:gpt-5-mini",), instructions=True)
    for name in ("gpt-5-mini", "openai:gpt-5-mini"):
        config = narrowed_config(inside(AGENT).config, TurnWishes(model=name, instructions="Be brief."), allows=allows)
        assert (config.model, config.system) == ("gpt-5-mini", (Text("Help."), Text("Be brief.")))
        kept = inside(inside(AGENT).keeping(None, config=config, effects=("read",))).config
        assert (kept.model, kept.allowed) == ("gpt-5-mini", ("read",))
