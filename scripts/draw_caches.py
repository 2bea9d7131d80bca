"""Measure what prompt caches save in a turn of 20 steps, and draw the table in docs/billing.md.

Usage: python scripts/draw_caches.py             prints the figures
       python scripts/draw_caches.py --write     draws them into the page (tests/lab/test_cached_turns.py checks it)

The turn: 4,000 tokens of system text and tools, results of 2 KB; one call a step, with some words beside it. In further rows the
model thinks in each step, makes several calls in steps in the middle, or a prompt is kept from 4,096 tokens on, and the first one
is shorter: these have no bound. It runs against the lab, which keeps prompts as each provider documents it and counts 4 bytes as
one token. Prices are 3 dollars a million tokens in, 15 out; a tenth for what is read from a cache, and 1.25 of it for what is
written there by Anthropic's models and GPT-5.6.
"""

import argparse
import asyncio
from decimal import Decimal
from pathlib import Path
from typing import NamedTuple

from turnwise import Agent, MaxSteps, Model, Prices, RunResult, read_prices
from turnwise.lab import Lab
from turnwise.lab.script import Script, ScriptedCall, ScriptedStep

PAGE = Path(__file__).resolve().parents[1] / "docs" / "billing.md"
BEGIN, END = "<!-- drawn by scripts/draw_caches.py -->", "<!-- end of the drawn table -->"
STEPS = 20
WHOLE_FROM = 6  # each step from here on is shown alone
PROVIDERS = {
    "Anthropic": "anthropic:turn",
    "Claude on Vertex AI": "vertex-anthropic:turn",
    "OpenRouter, Anthropic's models": "openrouter:anthropic/turn",
    "LiteLLM, Anthropic's models": "litellm:anthropic/turn",
    "OpenAI, Responses": "openai:turn",
    "OpenAI, Responses, GPT-5.6": "openai:gpt-5.6-turn",
    "OpenAI, Chat Completions": "openai-chat:turn",
    "OpenAI, Chat Completions, GPT-5.6": "openai-chat:gpt-5.6-turn",
    "Gemini": "gemini:turn",
}
ADDRESSES = {"anthropic": "http://lab", "vertex-anthropic": "http://lab/models", "gemini": "http://lab/v1beta"}
ASKED = tuple(list(PROVIDERS)[:4])
"""Where the cache is asked for with marks; elsewhere the provider keeps prompts by itself."""
LEAST_TOKENS = 4096
SHORTER = 2048  # bytes of system text less, so that the first prompt lies below that
ROW: dict[str, object] = {"input": 3, "output": 15, "cache_read": "0.3"}
WRITES: dict[str, object] = {"cache_write": "3.75", "cache_write_1h": 6}


class Figures(NamedTuple):
    """Shares of the input that came from the cache, over steps 2 to 20 and in the poorest step from the sixth on; and the cost,
    as a share of the same turn's without a cache."""

    provider: str
    kind: str
    read: float
    poorest: float
    cost: float
    most_marks: int


def read(path: str) -> str:
    """Read a part of the document. Give the path of the part as it stands in the list of parts."""
    return (f"{path}: the quick brown fox jumps over the lazy dog. " * 50)[:2048]


SYSTEM = ("Answer from the parts of the document alone, and name the part that each fact comes from. " * 200)[:15_700]


SEVERAL = {7: 2, 9: 3, 12: 2}  # calls in these steps
PLAIN, THINKS, CALLS, SHORT = "plain", "thinks in each step", "several calls in three steps", "kept from 4,096 tokens"
KINDS = (PLAIN, THINKS, CALLS, SHORT)


def script_of(name: str, *, kind: str) -> Script:
    thought = "Part {} may have the date. The parts before it name the year alone, so I have to look further." * 2
    asks = [
        ScriptedStep(
            reasoning=thought.format(step, step) if kind == THINKS else "",
            text=f"I have read {step - 1} of the parts; the next one may tell more." if step % 3 else "",
            calls=tuple(
                [
                    ScriptedCall(name="read", arguments={"path": f"part-{step}-{number}"})
                    for number in range(SEVERAL.get(step, 1) if kind == CALLS else 1)
                ]
            ),
        )
        for step in range(1, STEPS)
    ]
    least_tokens = LEAST_TOKENS if kind == SHORT else None
    return Script(
        name=name, title="reads parts", steps=(*asks, ScriptedStep(text="Done.")), cache_least_tokens=least_tokens
    )


async def play(model: str, *, kind: str, cached: bool, asked: bool) -> tuple[RunResult, int]:
    """The turn, and the most marks in one of its requests. Not `cached`: nobody asks for it, or nobody keeps anything."""
    name, _, called = model.partition(":")
    lab = Lab([script_of(called.rpartition("/")[2], kind=kind)], caches=cached or asked)
    row = {f"{name}:*": {**ROW, **(WRITES if asked or "gpt-5.6" in model else {})}}
    agent = Agent(
        Model(
            model,
            cache="auto" if cached else "off",
            base_url=ADDRESSES.get(name, "http://lab/v1"),
            api_key="k",
            transport=lab.transport(),
        ),
        tools=[read],
        instructions=SYSTEM[:-SHORTER] if kind == SHORT else SYSTEM,
        limits=MaxSteps(2 * STEPS),
        observation={"prices": Prices(user=read_prices(row, named="the table", source="scripts/draw_caches.py"))},
    )
    result = await agent.run("Read all of it.")
    assert [one.status for one in lab.requests] == [200] * STEPS, [one.refused for one in lab.requests]
    return result, max([one.body.count(b'"cache_control"') for one in lab.requests])


def measure(provider: str, *, kind: str = PLAIN) -> Figures:
    model, asked = PROVIDERS[provider], provider in ASKED
    with_cache, marks = asyncio.run(play(model, kind=kind, cached=True, asked=asked))
    without, _ = asyncio.run(play(model, kind=kind, cached=False, asked=asked))
    shares: list[float] = []
    total = cached = 0
    for entry in with_cache.ledger[1:]:
        assert entry.usage is not None
        total, cached = total + entry.usage.input_tokens, cached + entry.usage.cache_read_tokens
        shares.append(entry.usage.cache_read_tokens / entry.usage.input_tokens)
    cost = with_cache.cost.usd / (without.cost.usd or Decimal(1))
    first, second = (entry.usage for entry in with_cache.ledger[:2])
    assert first is not None and second is not None
    assert (first.input_tokens < LEAST_TOKENS, second.cache_read_tokens == 0) == (kind == SHORT, kind == SHORT)
    return Figures(provider, kind, cached / total, min(shares[WHOLE_FROM - 2 :]), float(cost), marks)


def table() -> list[str]:
    lines = [
        BEGIN,
        "| provider | turn | read from the cache, steps 2 to 20 | poorest step from 6 on | cost, of the turn without |",
        "|---|---|---|---|---|",
    ]
    for kind in KINDS:
        for provider in PROVIDERS:
            one = measure(provider, kind=kind)
            lines.append(f"| {one.provider} | {kind} | {one.read:.1%} | {one.poorest:.1%} | {one.cost:.2f} |")
    return [*lines, END]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--write", action="store_true", help="draw the table into docs/billing.md")
    drawn = "\n".join(table())
    if not parser.parse_args().write:
        print(drawn)
        return
    page = PAGE.read_text(encoding="utf-8")
    before, _, rest = page.partition(BEGIN)
    PAGE.write_text(before + drawn + rest.partition(END)[2], encoding="utf-8")


if __name__ == "__main__":
    main()
