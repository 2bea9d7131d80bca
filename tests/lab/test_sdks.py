"""Clients that we did not write read every healthy script, in every family, streamed and not, over real sockets."""

import json
import re
from typing import Any

import pytest

from lab.sdk_loops import LOOPS, OUTPUT_SCHEMA, Call, Loop, Said
from thoroughness import spread
from turnwise.lab import Lab, builtin_scripts, numbered_lines

# google-genai 3.4 subclasses aiohttp's session, which warns; theirs to mend.
pytestmark = pytest.mark.filterwarnings("ignore:Inheritance class AiohttpClientSession:DeprecationWarning")

FAMILIES = tuple(LOOPS)
HEALTHY = [name for name, script in builtin_scripts().items() if script.healthy and script.writer is None]
MAX_STEPS = 6
WITHOUT_REFUSALS = ("ollama_chat", "cohere_chat")  # a refusal is a text there
FILES = {"notes.txt": "title: lab\nstatus: draft\n", "todo.txt": "nothing\n"}


def run_tool(call: Call, files: dict[str, str]) -> str:
    match call.name, call.arguments:
        case "read", {"path": path}:
            return files.get(path, f"no such file: {path}")
        case "edit", {"path": path, "old": old, "new": new}:
            assert old in files[path]
            files[path] = files[path].replace(old, new)
            return "edited"
        case "write", {"path": path, "content": content, **rest}:
            files[path] = files.get(path, "") + content if rest.get("append") else content
            return "written"
        case "ask_user", _:
            return "blue"
        case _:
            return f"found something for {json.dumps(call.arguments)}"


def results_for(said: Said, files: dict[str, str]) -> list[tuple[Call, str]]:
    """A call that the limit cut is not run: on Chat it does not parse, elsewhere it is the last of a cut response."""
    answered = []
    for place, call in enumerate(said.calls):
        cut = said.cut and place == len(said.calls) - 1
        answered.append(
            (call, "Not run: your call was cut by the output limit. Write in pieces." if cut else run_tool(call, files))
        )
    return answered


def fits(text: str) -> bool:
    try:
        value = json.loads(text)
    except json.JSONDecodeError:
        return False
    return isinstance(value, dict) and set(value) == set(OUTPUT_SCHEMA["required"])


async def converse(loop: Loop, files: dict[str, str], *, structured: bool) -> list[Said]:
    """Until there is an answer, or nothing more to try."""
    heard: list[Said] = []
    loop.user("Please do what you are for.")
    while len(heard) <= MAX_STEPS:
        said = await loop.ask(forbid=len(heard) + 1 == MAX_STEPS)
        heard.append(said)
        if said.calls:
            loop.results(results_for(said, files))
        elif said.paused:
            continue
        elif structured and not fits(said.text):
            loop.user("That does not fit the schema. Again, please.")
        elif not said.text and not any(not one.text and not one.calls for one in heard[:-1]):
            loop.user("Your last response was empty. Please answer.")
        else:
            break
    return heard


def outline(heard: list[Said]) -> list[tuple[Any, ...]]:
    """What was said, comparable between families: a cut call holds what that API hands out, so only its name counts."""
    lines: list[tuple[Any, ...]] = []
    for said in heard:
        names = [
            (call.name, None if said.cut and place == len(said.calls) - 1 else call.arguments)
            for place, call in enumerate(said.calls)
        ]
        lines.append((said.text, names, said.cut, said.refused, said.paused))
    return lines


@pytest.mark.parametrize("name", spread(HEALTHY, one_of=3, name="healthy answers to all clients"))
async def test_every_client_hears_the_same_streamed_and_not(name: str) -> None:
    """Proves: each healthy script says the same to each official client, in the requests it names, and its usage adds up."""
    script = builtin_scripts()[name]
    outlines = {}
    async with Lab() as lab:
        for family in FAMILIES:
            if not script.speaks(family) or (name == "refusal" and family in WITHOUT_REFUSALS):
                continue
            for streamed in (True, False):
                lab.reset()
                files = dict(FILES)
                structured = name == "structured-output"
                loop = LOOPS[family](lab.url, model=name, streamed=streamed, structured=structured)
                try:
                    heard = await converse(loop, files, structured=structured)
                finally:
                    await loop.close()
                outlines[family, streamed] = (outline(heard), files)
                kept = lab.requests
                assert [(one.family, one.streamed, one.status, one.refused) for one in kept] == [
                    (family, streamed, 200, None) for _ in heard
                ]
                assert script.requests in (None, len(kept))
                counted = [(one.usage.input_tokens, one.usage.output_tokens) for one in kept if one.usage]
                assert [(said.input_tokens, said.output_tokens) for said in heard] == counted
    first = next(iter(outlines.values()))
    assert outlines == dict.fromkeys(outlines, first)
    said, files = first
    assert said[-1][0] or name in ("empty-answer", "never-stops-at-all")
    match name:
        case "read-edit-answer":
            assert files["notes.txt"] == "title: lab\nstatus: done\n"
        case "cut-call":
            assert files["big.txt"] == numbered_lines(1, 200)
        case "structured-output":
            assert json.loads(said[-1][0]) == {"city": "text", "people": 1}
        case "never-stops" | "research":
            assert len(said) == MAX_STEPS and re.search(r"found something", said[-1][0])
        case _:
            pass


async def test_models_are_listed_to_every_client() -> None:
    """Proves: `GET /v1/models` and `/v1beta/models` name the scripts, readable by each client."""
    import anthropic
    import openai
    from google import genai
    from google.genai import types

    async with Lab() as lab:
        names = list(lab.provider.scripts)
        async with openai.AsyncOpenAI(base_url=f"{lab.url}/v1", api_key="lab") as client:
            assert [model.id async for model in client.models.list()] == names
        async with anthropic.AsyncAnthropic(base_url=lab.url, api_key="lab") as client:
            assert [model.id async for model in client.models.list()] == names
        client = genai.Client(api_key="lab", http_options=types.HttpOptions(base_url=lab.url))
        listed = [model.name async for model in await client.aio.models.list()]
        await client.aio.aclose()
        client.close()
        assert listed == [f"models/{name}" for name in names if lab.provider.scripts[name].speaks("gemini")]
        assert lab.requests == ()
