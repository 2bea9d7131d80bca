"""The output limit in the body of every request: the model's, or what the prompt leaves; reasoning is a part of it."""

import json
from itertools import pairwise

import pytest

from flat_agents import flat_agent
from tables import each
from turnwise import ModelLimits, Settings, tool
from turnwise.lab import Lab
from turnwise.lab.provider import Received
from turnwise.settings.settings import is_table

each_way = each("stream", [True, False], ids=["streamed", "whole"])
each_family = pytest.mark.parametrize("family", ["openai_chat", "openai_responses", "anthropic_messages", "gemini"])
LIMIT_NAMES = (
    "max_tokens",
    "max_completion_tokens",
    "max_output_tokens",
    "maxOutputTokens",
)


@tool(effect="read")
def search(pattern: str) -> str:
    """Search."""
    return f"{pattern}: " + "nothing about it. " * 200


async def bodies(
    family: str,
    *,
    stream: bool,
    limits: ModelLimits,
    prompt: str = "Look.",
    script: str = "plain-answer",
    settings: Settings = Settings(),  # noqa: B008 (frozen)
    **options: object,
) -> list[Received]:
    """What the lab received in one turn; a request that it refused is an error."""
    async with Lab() as lab:
        base = f"{lab.url}/v1beta" if family == "gemini" else f"{lab.url}/v1"
        agent = flat_agent(
            f"{family}:{script}",
            base_url=base,
            stream=stream,
            model_limits=limits,
            settings=settings,
            tools=[search] if script != "plain-answer" else [],
            **options,  # pyright: ignore[reportArgumentType]
        )
        await agent.run(prompt)
        assert [one.refused for one in lab.requests if one.refused] == []
        return list(lab.requests)


def output_limit(received: Received) -> int | None:
    """Wherever the family puts it."""
    fields = fields_of(received)
    return next(
        (value for name in LIMIT_NAMES if isinstance(value := fields.get(name), int)),
        None,
    )


def fields_of(received: Received) -> dict[str, object]:
    body: dict[str, object] = json.loads(received.body)
    config = body.get("generationConfig")
    return {**body, **(config if is_table(config) else {})}


@each_family
@each_way
@pytest.mark.promise("cut:budget")
async def test_the_models_limit_goes_out_and_no_other(family: str, stream: bool) -> None:
    """No fixed 32,000; the user's own ceiling goes before it; of an unknown model nothing is said unless the API insists."""

    async def asked(limits: ModelLimits, **settings: int) -> int | None:
        (one,) = await bodies(family, stream=stream, limits=limits, settings=Settings(**settings))  # pyright: ignore[reportArgumentType]
        return output_limit(one)

    large = ModelLimits(context_window_tokens=400_000, max_output_tokens=128_000)
    assert await asked(large) == 128_000
    assert await asked(large, max_output_tokens=700) == 700
    assert await asked(large, max_output_tokens=900_000) == 128_000
    assert await asked(ModelLimits()) == (8_192 if family == "anthropic_messages" else None)


@each_family
@each_way
@pytest.mark.promise("cut:budget")
async def test_what_the_prompt_leaves_of_the_window_goes_out(family: str, stream: bool) -> None:
    """A long prompt, and one that grows from step to step: prompt and output never exceed the window together, by the
    provider's own count, and all that is left is asked for as far as the count is known."""
    window = 24_000
    limits = ModelLimits(context_window_tokens=window, max_output_tokens=20_000)
    requests = await bodies(
        family,
        stream=stream,
        limits=limits,
        prompt="word " * 6_000,
        script="never-stops",
        max_steps=6,
        room="budget",
    )
    asked = [output_limit(one) for one in requests]
    counted = [one.usage.input_tokens for one in requests if one.usage is not None]
    assert len(asked) == len(counted) == 6
    for limit, prompt in zip(asked, counted, strict=True):
        assert limit is not None and 1_024 <= limit <= window - prompt
        # The first prompt is a guess, a third of its bytes in place of a quarter.
        assert limit >= window - prompt - 3_500
    # From the second on it is counted, but for one result of 3,600 bytes.
    for limit, prompt in zip(asked[1:], counted[1:], strict=True):
        assert limit is not None and limit >= window - prompt - 500
    assert asked[1:] == sorted(asked[1:], key=lambda one: one or 0, reverse=True)


@each_family
@pytest.mark.promise("cut:budget")
async def test_room_is_made_only_where_it_is_wanted(family: str) -> None:
    """`budget` sends an output limit and leaves the history alone, `off` does neither, and the default does both."""
    limits = ModelLimits(context_window_tokens=9_000, max_output_tokens=2_000)
    limited: dict[str, bool] = {}
    shrank: dict[str, bool] = {}
    for room in ("compact", "budget", "off"):
        requests = await bodies(
            family, stream=False, limits=limits, prompt="word " * 500, script="never-stops", max_steps=14, room=room
        )
        limited[room] = all(output_limit(one) is not None for one in requests)
        sizes = [len(one.body) for one in requests]
        shrank[room] = any(later < earlier for earlier, later in pairwise(sizes))
    # Anthropic's API wants a limit in every request
    assert limited == {"compact": True, "budget": True, "off": family == "anthropic_messages"}
    assert shrank == {"compact": True, "budget": False, "off": False}


REASONING = {
    ("openai_chat", "reasoning_effort"): {},
    ("openai_responses", "reasoning"): {},
    ("anthropic_messages", "thinking"): {"type": "enabled", "budget_tokens": 62_976},
    ("gemini", "thinkingConfig"): {"thinkingBudget": 62_976, "includeThoughts": True},
}


@each(("family", "field"), list(REASONING))
@each_way
@pytest.mark.promise("cut:budget")
async def test_reasoning_is_a_part_of_the_limit_and_leaves_the_answer_its_floor(
    family: str, field: str, stream: bool
) -> None:
    """100,000 tokens of reasoning are wanted of 64,000: 1,024 stay for the answer. Where an API has no budget none goes out."""
    (one,) = await bodies(
        family,
        stream=stream,
        limits=ModelLimits(context_window_tokens=200_000, max_output_tokens=64_000),
        settings=Settings(reasoning_tokens=100_000),
    )
    assert output_limit(one) == 64_000
    assert fields_of(one).get(field, {}) == REASONING[family, field]
