"""Record one run against a real provider, and replay it in every test: the same bytes, no key, no network."""

import asyncio
import tempfile
from pathlib import Path

from turnwise import Agent, Model
from turnwise.lab import Lab
from turnwise.testing import Recording

path = Path(tempfile.mkdtemp()) / "greeting.json"  # in a project: tests/recordings/greeting.json


async def greet(model: Model | Recording) -> str:
    return (await Agent(model).run("Say hello.")).text


async def record() -> str:
    async with Lab() as lab:  # stands in for the provider
        with Recording(path, mode="once") as recording:
            return await greet(Model("openai_responses:plain-answer", base_url=f"{lab.url}/v1", transport=recording))


def test_the_agent_greets() -> None:
    with Recording(path) as recording:
        text = asyncio.run(greet(recording))
        recording.assert_all_used()
    print("replayed:", text)


print("recorded:", asyncio.run(record()))
test_the_agent_greets()
