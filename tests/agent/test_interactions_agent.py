"""An agent on Gemini's Interactions API: stateless, each thought's signature given back where it stood."""

import pytest

from turnwise import Agent, Model
from turnwise.lab import Lab


@pytest.mark.parametrize("script", ["read-edit-answer", "reasoning-and-calls", "cut-call"])
async def test_an_agent_works_on_it_as_on_any_other(script: str) -> None:
    """Proves: the strict judge takes every step, and nothing is stored at the provider."""
    files = {"notes.txt": "title: lab\nstatus: draft\n"}

    def read(path: str) -> str:
        """Read a file."""
        return files.get(path, "no such file")

    def edit(path: str, old: str, new: str) -> str:
        """Change a file."""
        files[path] = files[path].replace(old, new)
        return "edited"

    def write(path: str, content: str, append: bool = False) -> str:
        """Write a file."""
        files[path] = (files.get(path, "") if append else "") + content
        return "written"

    async with Lab() as lab:
        model = Model(f"gemini_interactions:{script}", base_url=f"{lab.url}/v1beta", api_key="lab")
        agent = Agent(model, tools=[read, edit, write])
        result = await agent.run("Please do what you are for.")
        kept = lab.requests
    assert result.text and result.complete
    assert all(one.family == "gemini_interactions" and one.refused is None and one.status == 200 for one in kept)
    if script == "read-edit-answer":
        assert files["notes.txt"] == "title: lab\nstatus: done\n"
