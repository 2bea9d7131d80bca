"""Record one run against a real provider, and replay it in every test: the same bytes, no key, no network."""

import asyncio
import tempfile
from pathlib import Path

from turnwise import Agent
from turnwise.lab import Lab
from turnwise.testing import Recording

path = Path(tempfile.mkdtemp()) / "greeting.json"  # in a project: tests/recordings/greeting.json


async def greet(recording: Recording, base_url: str) -> str:
    agent = Agent("openai_responses:plain-answer", endpoint={"base_url": base_url, "transport": recording})
    return (await agent.run("Say hello.")).text


async def record() -> str:
    async with Lab() as lab:  # stands in for the provider
        with Recording(path, mode="once") as recording:
            return await greet(recording, f"{lab.url}/v1")


def test_the_agent_greets() -> None:
    with Recording(path) as recording:
        text = asyncio.run(greet(recording, "http://nobody.invalid/v1"))
        recording.assert_all_used()
    print("replayed:", text)


print("recorded:", asyncio.run(record()))
test_the_agent_greets()
