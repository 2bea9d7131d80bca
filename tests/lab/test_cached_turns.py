"""What caches save over whole turns, against the lab (promise bill:cached, issue 17, done-when 1 and 3)."""

import runpy
from pathlib import Path
from typing import Any

import pytest

from flat_agents import flat_agent
from tables import each
from turnwise import ModelLimits
from turnwise.lab import Lab
from turnwise.lab.caches import cached_prefixes
from turnwise.lab.families.anthropic_messages import prompt_of_messages
from turnwise.lab.raw import parse
from turnwise.lab.script import Script, ScriptedCall, ScriptedStep

ROOT = Path(__file__).resolve().parents[2]
DRAWN: dict[str, Any] = runpy.run_path(str(ROOT / "scripts" / "draw_caches.py"))


@pytest.mark.costly
@pytest.mark.promise("bill:cached")
@each("provider", DRAWN["PROVIDERS"])
def test_a_turn_of_twenty_steps_pays_for_what_is_new(provider: str) -> None:
    """Done-when 1: at least 90 % of the input of steps 2 to 20 together, and of each step from 6 on, is read from the cache; the
    turn costs at most 0.3 of that without marks, 0.35 of that at a provider that keeps nothing."""
    found = DRAWN["measure"](provider)
    assert found.kind == "plain"
    asked = provider in DRAWN["ASKED"]
    assert found.read >= 0.9
    assert found.poorest >= 0.9
    assert found.cost <= (0.3 if asked else 0.35)
    assert found.most_marks == (0 if not asked else 3 if "models" in provider else 4)


@pytest.mark.costly
def test_the_page_has_the_figures_of_the_command() -> None:
    page = (ROOT / "docs" / "billing.md").read_text(encoding="utf-8")
    assert "\n".join(DRAWN["table"]()) in page, "run python scripts/draw_caches.py --write"


@pytest.mark.costly
@pytest.mark.promise("bill:cached")
@pytest.mark.parametrize(("steps", "parallel"), [(120, 1), (60, 4)])
async def test_after_results_are_shortened_no_more_is_read_anew_than_must_be(steps: int, parallel: int) -> None:
    """Proves: of a long turn whose results are shortened again and again, the cache gives all but 1 % of the input that any
    earlier request began with, as the lab's cache tells blocks apart. Four marks a request are enough for that."""

    def read(path: str) -> str:
        """Read a part."""
        return (f"{path}: the quick brown fox. " * 200)[: 6000 // parallel]

    calls = [
        tuple([ScriptedCall(name="read", arguments={"path": f"part-{step}-{at}"}) for at in range(parallel)])
        for step in range(steps)
    ]
    said = [ScriptedStep(text=f"Step {step}.", calls=made) for step, made in enumerate(calls)]
    script = Script(
        name="claude-sonnet-4-6", title="reads", steps=(*said, ScriptedStep(text="Done.")), summarises="summary"
    )
    lab = Lab([script])
    agent = flat_agent(
        "anthropic:claude-sonnet-4-6",
        tools=[read],
        max_steps=steps + 1,
        model_limits=ModelLimits(context_window_tokens=32_000, max_output_tokens=4_000),
        base_url="http://lab",
        api_key="k",
        transport=lab.transport(),
    )
    result = await agent.run("Read.")
    assert result.text == "Done." and sum("compaction" in change for change in result.prefix_changes) > 4
    seen: set[bytes] = set()
    best = 0
    for one in lab.requests:
        prefixes = cached_prefixes(prompt_of_messages(parse(one.body)), model=one.model)
        best += max([tokens for digest, tokens in prefixes if digest in seen and tokens >= 1024], default=0)
        seen.update([digest for digest, _ in prefixes])
    usages = [entry.usage for entry in result.ledger if entry.usage is not None]
    assert len(usages) == len(lab.requests)
    read_tokens = sum(usage.cache_read_tokens for usage in usages)
    assert best - read_tokens <= 0.01 * sum(usage.input_tokens for usage in usages)
