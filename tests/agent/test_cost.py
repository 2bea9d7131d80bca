"""What a run of the library costs, by the table of its provider."""

from decimal import Decimal

import pytest

from flat_agents import flat_agent
from turnwise.lab import Lab, parse_script
from turnwise.rules.pricing import Cost

GPT_5 = parse_script('title = "answers"\n[[steps]]\ntext = "Hello from the lab."\n', name="gpt-5")


@pytest.mark.promise("bill:plans")
async def test_a_known_model_is_priced_by_the_table_of_its_provider() -> None:
    """gpt-5 at 1.25 and 10 US dollars a million tokens (openai.com/api/pricing, 2026-11-22), by the lab's own count of tokens."""
    lab = Lab([GPT_5])
    agent = flat_agent("openai:gpt-5", api_key="lab", base_url="http://127.0.0.1:9/v1", transport=lab.transport())
    result = await agent.run("Hello.")
    (usage,) = [one.usage for one in lab.requests]
    assert usage is not None
    usd = (Decimal("1.25") * usage.input_tokens + 10 * usage.output_tokens) / 1_000_000
    assert usd > 0
    assert (result.cost, result.cost_usd) == (Cost(usd=usd, requests=1), usd)
    (entry,) = result.ledger
    assert entry.price_note.startswith("genai-prices ")


@pytest.mark.promise("bill:plans")
async def test_an_endpoint_that_nobody_knows_has_no_price() -> None:
    """The same model behind another address may cost anything: the cost is None, never 0."""
    lab = Lab([GPT_5])
    agent = flat_agent("openai_responses:gpt-5", base_url="http://127.0.0.1:9/v1", transport=lab.transport())
    result = await agent.run("Hello.")
    assert (result.cost, result.cost_usd) == (Cost(requests=1, unknown=1), None)
    assert result.ledger[0].price_note == "no price is known for this model at this provider"
