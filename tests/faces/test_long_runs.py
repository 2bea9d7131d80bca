"""Long turns under a small window: the library's face against the lab, which counts the bytes that it was sent."""

from pathlib import Path

import pytest

from turnwise import Agent, tool
from turnwise.lab import Lab
from turnwise.lab.script import load_scripts
from turnwise.rules.budget import ModelLimits

SMALL = ModelLimits(context_window_tokens=32_000, max_output_tokens=4_000)
BASES = {"openai_chat": "/v1", "openai_responses": "/v1", "anthropic_messages": "", "gemini": "/v1beta"}


@tool(effect="read")
def read(path: str) -> str:
    """Read a file."""
    part = int(path.removeprefix("part-").removesuffix(".txt"))
    return f"part {part}\n" + "There is little of note here.\n" * 100 + f"the next part is part-{part + 1:03}.txt"


@pytest.mark.promise("cut:budget")
@pytest.mark.parametrize("family", BASES)
async def test_three_hundred_steps_under_a_small_window_never_overflow(family: str) -> None:
    """Done when 6: no request is larger than the window with the output that it asks for; the first message is in the last
    request word for word; every summary is a request of purpose `compact`, and makes the prompt smaller."""
    purposes: list[str] = []

    def watch(seen: object) -> None:
        if (purpose := getattr(seen, "purpose", None)) is not None:
            purposes.append(purpose)

    async with Lab(load_scripts(Path(__file__).parents[1] / "lab" / "room").values()) as lab:
        agent = Agent(
            f"{family}:long-session",
            base_url=lab.url + BASES[family],
            api_key="lab",
            tools=[read],
            model_limits=SMALL,
            max_steps=300,
            stream=False,
        )
        result = await agent.run("My cat is called Maunz. Read the parts.", watch=watch)
        sizes = [one.usage.input_tokens for one in lab.requests if one.usage]
        assert [one.refused for one in lab.requests if one.refused] == []
        for one in lab.requests:
            assert one.usage is not None
            assert one.request is not None
            assert one.usage.input_tokens + (one.request.settings.max_output_tokens or 0) <= 32_000
        assert b"My cat is called Maunz. Read the parts." in lab.requests[-1].body
    assert (result.steps, result.requests) == (300, len(purposes))
    assert result.text.startswith("So far I have read the parts up to this one: part 299\n")
    compactions = [place for place, purpose in enumerate(purposes) if purpose == "compact"]
    assert 0 < len(compactions) < 60
    for place in compactions:
        assert sizes[place + 1] < sizes[place] * 9 // 10
