"""A tool loop by hand on each official client: what somebody who never heard of turnwise would write."""

import json
from typing import Any, NamedTuple, Protocol

import anthropic
import cohere
import httpx
import ollama
import openai
from google import genai
from google.genai import types
from openai.lib.streaming.chat import ChatCompletionStreamState

PARAMETERS = {
    "read": {"path": "string"},
    "edit": {"path": "string", "old": "string", "new": "string"},
    "write": {"path": "string", "content": "string", "append": "boolean"},
    "search": {"pattern": "string"},
    "ask_user": {"question": "string"},
}
OUTPUT_SCHEMA = {
    "type": "object",
    "properties": {"city": {"type": "string"}, "people": {"type": "integer"}},
    "required": ["city", "people"],
    "additionalProperties": False,
}


# The lab speaks plain HTTP: a client that loads the certificates of all the world takes 30 ms of CPU time for nothing.
PLAIN = {"verify": False}


def schema_of(name: str) -> dict[str, Any]:
    properties = {key: {"type": type} for key, type in PARAMETERS[name].items()}
    return {"type": "object", "properties": properties, "required": list(properties)[:1]}


class Call(NamedTuple):
    id: str
    name: str
    arguments: dict[str, Any] | None  # None: the client could not parse them


class Said(NamedTuple):
    text: str
    calls: tuple[Call, ...]
    cut: bool
    refused: bool
    paused: bool
    input_tokens: int
    output_tokens: int


class Loop(Protocol):
    """One conversation. `ask` sends it as it stands and keeps the answer; the rest adds to it."""

    async def ask(self, *, forbid: bool = False) -> Said: ...
    def user(self, text: str) -> None: ...
    def results(self, results: list[tuple[Call, str]]) -> None: ...
    async def close(self) -> None: ...


class ChatLoop:
    def __init__(self, url: str, *, model: str, streamed: bool, structured: bool) -> None:
        self.client = openai.AsyncOpenAI(
            base_url=f"{url}/v1", api_key="lab", max_retries=0, http_client=openai.DefaultAsyncHttpxClient(verify=False)
        )
        self.model, self.streamed = model, streamed
        self.messages: list[Any] = [{"role": "system", "content": "You work in a folder."}]
        self.extra: dict[str, Any] = {}
        if structured:
            format = {"name": "answer", "strict": True, "schema": OUTPUT_SCHEMA}
            self.extra = {"response_format": {"type": "json_schema", "json_schema": format}}
        self.tools: list[Any] = [
            {"type": "function", "function": {"name": name, "parameters": schema_of(name)}} for name in PARAMETERS
        ]

    async def ask(self, *, forbid: bool = False) -> Said:
        asked: dict[str, Any] = {"model": self.model, "messages": self.messages, "tools": self.tools, **self.extra}
        if forbid:
            asked["tool_choice"] = "none"
        if self.streamed:
            # `.stream()` raises on a response cut by its limit, so the accumulator is fed by hand
            state = ChatCompletionStreamState()
            async for chunk in await self.client.chat.completions.create(
                **asked, stream=True, stream_options={"include_usage": True}
            ):
                state.handle_chunk(chunk)
            completion = state.current_completion_snapshot
        else:
            completion = await self.client.chat.completions.create(**asked)
        choice = completion.choices[0]
        message = choice.message
        cut = choice.finish_reason == "length"
        calls = tuple(
            Call(call.id, call.function.name, whole_json(call.function.arguments)) for call in message.tool_calls or []
        )
        kept: dict[str, Any] = {"role": "assistant", "content": message.content}
        if calls:
            kept["tool_calls"] = [
                {
                    "id": call.id,
                    "type": "function",
                    "function": {"name": call.name, "arguments": json.dumps(call.arguments or {})},
                }
                for call in calls
            ]
        if message.content or calls:
            self.messages.append(kept)
        usage = completion.usage
        assert usage is not None
        text = message.content or message.refusal or ""
        return Said(text, calls, cut, bool(message.refusal), False, usage.prompt_tokens, usage.completion_tokens)

    def user(self, text: str) -> None:
        self.messages.append({"role": "user", "content": text})

    def results(self, results: list[tuple[Call, str]]) -> None:
        self.messages += [{"role": "tool", "tool_call_id": call.id, "content": content} for call, content in results]

    async def close(self) -> None:
        await self.client.close()


class ResponsesLoop:
    def __init__(self, url: str, *, model: str, streamed: bool, structured: bool) -> None:
        self.client = openai.AsyncOpenAI(
            base_url=f"{url}/v1", api_key="lab", max_retries=0, http_client=openai.DefaultAsyncHttpxClient(verify=False)
        )
        self.model, self.streamed = model, streamed
        self.input: list[Any] = []
        self.extra: dict[str, Any] = {}
        if structured:
            format = {"type": "json_schema", "name": "answer", "strict": True, "schema": OUTPUT_SCHEMA}
            self.extra = {"text": {"format": format}}
        self.tools: list[Any] = [
            {"type": "function", "name": name, "parameters": schema_of(name), "strict": False} for name in PARAMETERS
        ]

    async def ask(self, *, forbid: bool = False) -> Said:
        asked: dict[str, Any] = {
            "model": self.model,
            "instructions": "You work in a folder.",
            "input": self.input,
            "tools": self.tools,
            "store": False,
            **self.extra,
        }
        if forbid:
            asked["tool_choice"] = "none"
        if self.streamed:
            done = []
            response = None
            async for event in await self.client.responses.create(**asked, stream=True):
                if event.type == "response.output_item.done":
                    done.append(event.item)
                elif event.type in ("response.completed", "response.incomplete"):
                    response = event.response
            assert response is not None
            assert [item.to_dict() for item in response.output] == [item.to_dict() for item in done]
        else:
            response = await self.client.responses.create(**asked)
        self.input += [item.to_dict(mode="json") for item in response.output]
        calls = []
        for item in response.output:
            if item.type == "function_call":
                calls.append(Call(item.call_id, item.name, whole_json(item.arguments)))
        refused = [
            part.refusal
            for item in response.output
            if item.type == "message"
            for part in item.content
            if part.type == "refusal"
        ]
        usage = response.usage
        assert usage is not None
        text = response.output_text or "".join(refused)
        cut = response.status == "incomplete"
        return Said(text, tuple(calls), cut, bool(refused), False, usage.input_tokens, usage.output_tokens)

    def user(self, text: str) -> None:
        self.input.append({"role": "user", "content": text})

    def results(self, results: list[tuple[Call, str]]) -> None:
        self.input += [
            {"type": "function_call_output", "call_id": call.id, "output": content} for call, content in results
        ]

    async def close(self) -> None:
        await self.client.close()


class AnthropicLoop:
    def __init__(self, url: str, *, model: str, streamed: bool, structured: bool) -> None:
        self.client = anthropic.AsyncAnthropic(
            base_url=url, api_key="lab", max_retries=0, http_client=anthropic.DefaultAsyncHttpxClient(verify=False)
        )
        self.model, self.streamed = model, streamed
        self.messages: list[Any] = []
        self.extra: dict[str, Any] = {}
        if structured:
            self.extra = {"output_config": {"format": {"type": "json_schema", "schema": OUTPUT_SCHEMA}}}
        self.tools: list[Any] = [{"name": name, "input_schema": schema_of(name)} for name in PARAMETERS]

    async def ask(self, *, forbid: bool = False) -> Said:
        asked: dict[str, Any] = {
            "model": self.model,
            "max_tokens": 4096,
            "system": "You work in a folder.",
            "messages": self.messages,
            "tools": self.tools,
            **self.extra,
        }
        if forbid:
            asked["tool_choice"] = {"type": "none"}
        if self.streamed:
            async with self.client.messages.stream(**asked) as stream:
                message = await stream.get_final_message()
        else:
            message = await self.client.messages.create(**asked)
        cut = message.stop_reason == "max_tokens"
        calls = tuple(
            Call(block.id, block.name, dict(block.input)) for block in message.content if block.type == "tool_use"
        )
        text = "".join(block.text for block in message.content if block.type == "text")
        if message.content:
            self.messages.append(
                {"role": "assistant", "content": [block.to_dict(mode="json") for block in message.content]}
            )
        refused, paused = message.stop_reason == "refusal", message.stop_reason == "pause_turn"
        usage = message.usage
        return Said(text, calls, cut, refused, paused, usage.input_tokens, usage.output_tokens)

    def user(self, text: str) -> None:
        self.messages.append({"role": "user", "content": text})

    def results(self, results: list[tuple[Call, str]]) -> None:
        content = [{"type": "tool_result", "tool_use_id": call.id, "content": content} for call, content in results]
        self.messages.append({"role": "user", "content": content})

    async def close(self) -> None:
        await self.client.close()


class GeminiLoop:
    def __init__(self, url: str, *, model: str, streamed: bool, structured: bool) -> None:
        self.client = genai.Client(
            api_key="lab", http_options=types.HttpOptions(base_url=url, client_args=PLAIN, async_client_args=PLAIN)
        )
        self.model, self.streamed = model, streamed
        self.contents: list[Any] = []
        self.structured = structured
        declared = [types.FunctionDeclaration(name=name, parameters_json_schema=schema_of(name)) for name in PARAMETERS]
        self.tools: list[Any] = [types.Tool(function_declarations=declared)]

    async def ask(self, *, forbid: bool = False) -> Said:
        config: dict[str, Any] = {
            "system_instruction": "You work in a folder.",
            "tools": self.tools,
            "automatic_function_calling": types.AutomaticFunctionCallingConfig(disable=True),
        }
        if self.structured:
            config |= {"response_mime_type": "application/json", "response_json_schema": OUTPUT_SCHEMA}
        if forbid:
            config["tool_config"] = types.ToolConfig(function_calling_config=types.FunctionCallingConfig(mode="NONE"))
        asked: dict[str, Any] = {
            "model": self.model,
            "contents": self.contents,
            "config": types.GenerateContentConfig(**config),
        }
        answers = (
            [chunk async for chunk in await self.client.aio.models.generate_content_stream(**asked)]
            if self.streamed
            else [await self.client.aio.models.generate_content(**asked)]
        )
        parts: list[Any] = []
        finish = None
        for answer in answers:
            candidate = (answer.candidates or [None])[0]
            if candidate is not None:
                parts += (candidate.content.parts or []) if candidate.content else []
                finish = candidate.finish_reason or finish
        calls = tuple(
            Call(part.function_call.id or "", part.function_call.name, dict(part.function_call.args or {}))
            for part in parts
            if part.function_call
        )
        text = "".join(part.text for part in parts if part.text and not part.thought)
        if text or calls:
            kept = [part for part in parts if part.text or part.function_call]
            self.contents.append(types.Content(role="model", parts=kept))
        usage = answers[-1].usage_metadata
        assert usage is not None
        output = (usage.candidates_token_count or 0) + (usage.thoughts_token_count or 0)
        refused = finish not in (None, types.FinishReason.STOP, types.FinishReason.MAX_TOKENS)
        cut = finish is types.FinishReason.MAX_TOKENS
        return Said(text, calls, cut, refused, False, usage.prompt_token_count or 0, output)

    def user(self, text: str) -> None:
        self.contents.append(types.Content(role="user", parts=[types.Part(text=text)]))

    def results(self, results: list[tuple[Call, str]]) -> None:
        answers = [
            types.Part(
                function_response=types.FunctionResponse(
                    id=call.id or None, name=call.name, response={"output": content}
                )
            )
            for call, content in results
        ]
        self.contents.append(types.Content(role="user", parts=answers))

    async def close(self) -> None:
        await self.client.aio.aclose()
        self.client.close()


class OllamaLoop:
    """Its calls have no ids, and nothing forbids a call: the tools are left out."""

    def __init__(self, url: str, *, model: str, streamed: bool, structured: bool) -> None:
        self.client: Any = ollama.AsyncClient(host=url, verify=False)
        self.model, self.streamed = model, streamed
        self.messages: list[Any] = [{"role": "system", "content": "You work in a folder."}]
        self.extra: dict[str, Any] = {"format": OUTPUT_SCHEMA} if structured else {}
        self.tools: list[Any] = [
            {"type": "function", "function": {"name": name, "parameters": schema_of(name)}} for name in PARAMETERS
        ]

    async def ask(self, *, forbid: bool = False) -> Said:
        asked: dict[str, Any] = {"model": self.model, "messages": self.messages, **self.extra}
        asked["tools"] = [] if forbid else self.tools
        if self.streamed:
            heard = [part async for part in await self.client.chat(**asked, stream=True)]
        else:
            heard = [await self.client.chat(**asked)]
        text = "".join([part.message.content or "" for part in heard])
        made = [call for part in heard for call in part.message.tool_calls or ()]
        calls = tuple([Call("", call.function.name, dict(call.function.arguments)) for call in made])
        if text or calls:
            self.messages.append(ollama.Message(role="assistant", content=text, tool_calls=made or None))
        last = heard[-1]
        counts = last.prompt_eval_count or 0, last.eval_count or 0
        return Said(text, calls, last.done_reason == "length", False, False, *counts)

    def user(self, text: str) -> None:
        self.messages.append({"role": "user", "content": text})

    def results(self, results: list[tuple[Call, str]]) -> None:
        self.messages += [{"role": "tool", "tool_name": call.name, "content": content} for call, content in results]

    async def close(self) -> None:
        await self.client.close()


class CohereLoop:
    """The answer is put together from the events by hand, as its docs do it."""

    def __init__(self, url: str, *, model: str, streamed: bool, structured: bool) -> None:
        self.http = httpx.AsyncClient(verify=False)
        self.client: Any = cohere.AsyncClientV2("lab", base_url=url, httpx_client=self.http)
        self.model, self.streamed = model, streamed
        self.messages: list[Any] = [{"role": "system", "content": "You work in a folder."}]
        tools = [{"type": "function", "function": {"name": name, "parameters": schema_of(name)}} for name in PARAMETERS]
        form = {"type": "json_object", "json_schema": OUTPUT_SCHEMA}
        self.extra: dict[str, Any] = {"response_format": form} if structured else {"tools": tools}

    async def ask(self, *, forbid: bool = False) -> Said:
        asked: dict[str, Any] = {"model": self.model, "messages": self.messages, **self.extra}
        if forbid:
            asked["tool_choice"] = "NONE"
        text, made = "", dict[int, list[str]]()
        end: Any = None
        if self.streamed:
            async for event in self.client.chat_stream(**asked):
                match event.type:
                    case "content-delta":
                        text += event.delta.message.content.text or ""
                    case "tool-call-start":
                        call = event.delta.message.tool_calls
                        made[event.index] = [call.id, call.function.name, call.function.arguments or ""]
                    case "tool-call-delta":
                        made[event.index][2] += event.delta.message.tool_calls.function.arguments
                    case "message-end":
                        end = event.delta
                    case _:
                        pass
        else:
            end = await self.client.chat(**asked)
            text = "".join([one.text for one in end.message.content or () if one.type == "text"])
            for place, call in enumerate(end.message.tool_calls or ()):
                made[place] = [call.id, call.function.name, call.function.arguments]
        calls = tuple([Call(id, name, whole_json(arguments)) for id, name, arguments in made.values()])
        kept: dict[str, Any] = {"role": "assistant", "content": text}
        if calls:
            kept["tool_calls"] = [
                {
                    "id": call.id,
                    "type": "function",
                    "function": {"name": call.name, "arguments": json.dumps(call.arguments or {})},
                }
                for call in calls
            ]
        if text or calls:
            self.messages.append(kept)
        tokens = end.usage.tokens
        counts = int(tokens.input_tokens), int(tokens.output_tokens)
        return Said(text, calls, end.finish_reason == "MAX_TOKENS", False, False, *counts)

    def user(self, text: str) -> None:
        self.messages.append({"role": "user", "content": text})

    def results(self, results: list[tuple[Call, str]]) -> None:
        self.messages += [{"role": "tool", "tool_call_id": call.id, "content": content} for call, content in results]

    async def close(self) -> None:
        await self.http.aclose()


LOOPS: dict[str, Any] = {
    "openai_chat": ChatLoop,
    "openai_responses": ResponsesLoop,
    "anthropic_messages": AnthropicLoop,
    "gemini": GeminiLoop,
    "ollama_chat": OllamaLoop,
    "cohere_chat": CohereLoop,
}


def whole_json(text: str) -> dict[str, Any] | None:
    try:
        return json.loads(text or "{}")
    except json.JSONDecodeError:
        return None
