"""A lab that is told what to play."""

import asyncio

import aiohttp
import pytest

from turnwise.lab import Lab, ScriptError

ASKED = {"model": "some-name", "messages": [{"role": "user", "content": "Hello."}]}


def test_the_lab_plays_one_script_whatever_model_is_named() -> None:
    """Told by its path or its method; without a script the model's name chooses again."""

    async def run() -> list[int]:
        async with Lab() as lab, aiohttp.ClientSession(lab.url) as client:

            async def play(script: str | None) -> int:
                async with client.put("/_lab/playing", json={"script": script}) as answer:
                    return answer.status

            async def ask() -> int:
                async with client.post("/v1/chat/completions", json=ASKED) as answer:
                    return answer.status

            found = [await ask(), await play("plain-answer"), await ask(), await play("none"), await ask()]
            found += [await play(None), await ask()]
            lab.play("plain-answer")
            return [*found, await ask()]

    assert asyncio.run(run()) == [404, 204, 200, 404, 200, 204, 404, 200]


def test_a_script_that_is_not_there_cannot_be_played() -> None:
    """Said at once."""
    with pytest.raises(ScriptError, match="there is no script `none`"):
        Lab().play("none")
