"""Google's own client on the Interactions API: it reads what the lab plays, and the strict judge takes what it sends."""

import json
from typing import Any

import pytest
from google import genai
from google.genai import types

from lab.sdk_loops import OUTPUT_SCHEMA, PARAMETERS, PLAIN, Call, Said, schema_of
from lab.test_sdks import FILES, converse
from turnwise.lab import Lab, numbered_lines

pytestmark = pytest.mark.filterwarnings("ignore:Inheritance class AiohttpClientSession:DeprecationWarning")


class InteractionsLoop:
    """A tool loop by hand that keeps all steps itself, as with `store=False`."""

    def __init__(self, url: str, *, model: str, streamed: bool, structured: bool = False) -> None:
        self.client = genai.Client(
            api_key="lab", http_options=types.HttpOptions(base_url=url, client_args=PLAIN, async_client_args=PLAIN)
        )
        self.model, self.streamed, self.structured = model, streamed, structured
        self.steps: list[Any] = []

    async def ask(self, *, forbid: bool = False) -> Said:
        tools = [{"type": "function", "name": name, "parameters": schema_of(name)} for name in PARAMETERS]
        asked: dict[str, Any] = {"model": self.model, "input": self.steps, "store": False, "tools": tools}
        asked["system_instruction"] = "You work in a folder."
        asked["generation_config"] = {"tool_choice": "none"} if forbid else {"thinking_level": "low"}
        if self.structured:
            asked["response_format"] = {"type": "text", "mime_type": "application/json", "schema": OUTPUT_SCHEMA}
        if self.streamed:
            steps, end = await self._streamed(asked)
        else:
            end = await self.client.aio.interactions.create(**asked)
            steps = [step.model_dump(exclude_none=True) for step in end.steps or ()]
        self.steps += steps
        calls = [Call(one["id"], one["name"], one["arguments"]) for one in steps if one["type"] == "function_call"]
        texts = [part["text"] for one in steps if one["type"] == "model_output" for part in one["content"]]
        usage = end.usage
        output = usage.total_output_tokens + usage.total_thought_tokens
        return Said(
            "".join(texts), tuple(calls), end.status == "incomplete", False, False, usage.total_input_tokens, output
        )

    async def _streamed(self, asked: dict[str, Any]) -> tuple[list[Any], Any]:
        steps: list[dict[str, Any]] = []
        async for event in await self.client.aio.interactions.create(**asked, stream=True):
            match event.event_type:
                case "step.start":
                    assert event.index == len(steps)
                    steps.append(event.step.model_dump(exclude_none=True) | {"said": ""})
                case "step.delta":
                    delta, step = event.delta, steps[event.index]
                    if delta.type == "thought_signature":
                        step["signature"] = delta.signature
                    elif delta.type == "thought_summary":
                        step["said"] += delta.content.text
                    else:
                        step["said"] += delta.text if delta.type == "text" else delta.arguments
                case "interaction.completed":
                    return [_whole(step) for step in steps], event.interaction
                case "error":
                    raise AssertionError(event.error.message)
                case _:
                    pass
        raise AssertionError("the stream has no end")

    def user(self, text: str) -> None:
        self.steps.append({"type": "user_input", "content": [{"type": "text", "text": text}]})

    def results(self, results: list[tuple[Call, str]]) -> None:
        self.steps += [
            {"type": "function_result", "call_id": call.id, "name": call.name, "result": said} for call, said in results
        ]

    async def close(self) -> None:
        await self.client.aio.aclose()
        self.client.close()


def _whole(step: dict[str, Any]) -> dict[str, Any]:
    said = step.pop("said")
    match step["type"]:
        case "thought":
            return step | {"summary": [{"type": "text", "text": said}]}
        case "function_call":
            try:
                return step | {"arguments": json.loads(said or "{}")}
            except ValueError:
                return step
        case _:
            return step | {"content": [{"type": "text", "text": said}]}


@pytest.mark.parametrize("name", ["read-edit-answer", "cut-call", "structured-output", "reasoning-and-calls"])
@pytest.mark.parametrize("streamed", [True, False])
async def test_googles_client_has_a_conversation_with_the_lab(name: str, streamed: bool) -> None:
    """Proves: its steps are taken by the strict judge as it sends them, signatures and all, and it reads every answer."""
    async with Lab() as lab:
        files = dict(FILES)
        loop = InteractionsLoop(lab.url, model=name, streamed=streamed, structured=name == "structured-output")
        try:
            heard = await converse(loop, files, structured=name == "structured-output")
        finally:
            await loop.close()
        kept = lab.requests
        assert [(one.family, one.status, one.refused) for one in kept] == [("gemini_interactions", 200, None)] * len(
            heard
        )
        counted = [(one.usage.input_tokens, one.usage.output_tokens) for one in kept if one.usage]
        assert [(said.input_tokens, said.output_tokens) for said in heard] == counted
        assert heard[-1].text
    if name == "read-edit-answer":
        assert files["notes.txt"] == "title: lab\nstatus: done\n"
    if name == "cut-call":
        assert files["big.txt"] == numbered_lines(1, 200)


async def test_the_judge_refuses_what_the_api_would() -> None:
    """Proves: the client raises its own error with the API's word, for a name of what nobody stored, too."""
    from google.genai import _interactions_errors as errors

    async with Lab() as lab:
        client = genai.Client(
            api_key="lab",
            http_options=types.HttpOptions(base_url=lab.url, client_args=PLAIN, async_client_args=PLAIN),
        )
        asked: dict[str, Any] = {"model": "read-edit-answer", "input": "hi"}
        with pytest.raises(errors.APIStatusError) as unknown:
            await client.aio.interactions.create(**asked, previous_interaction_id="v1_gone")
        step = {"type": "function_result", "call_id": "c", "name": "read", "result": "1"}
        with pytest.raises(errors.BadRequestError) as lonely:
            await client.aio.interactions.create(**(asked | {"input": [step]}))
        await client.aio.aclose()
        client.close()
    assert unknown.value.status_code == 404 and "v1_gone" in str(unknown.value)
    assert "function response turn" in str(lonely.value)
