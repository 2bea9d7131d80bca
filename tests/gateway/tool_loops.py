"""The second request of a tool loop, made by the vendors' own clients: the first answer goes back as they have it."""

from collections.abc import Callable
from typing import Any, cast

import anthropic
import httpx2
import openai
from google import genai
from google.genai import types
from openai.lib.streaming.chat import ChatCompletionStreamState

from gateway.official_clients import (
    LIMIT_TOKENS,
    QUESTION,
    SCHEMA,
    TOOL_NAMES,
    Heard,
    gemini_config,
    of_answers,
    of_completion,
    of_message,
    of_response,
)
from waits import HANG_S

RESULT = "two words"
OF_STREAMS = {"parsed", "parsed_arguments", "parsed_output"}  # what the clients' accumulators add


def answer_after_results(client: str, *, at: str, model: str, streamed: bool) -> Heard:
    """What the client makes of the answer to its results. Raises what the client raises."""
    with httpx2.Client(transport=httpx2.HTTPTransport(verify=False), timeout=HANG_S) as http:
        return _LOOPS[client](at, http, model, streamed)


def _plain(part: Any) -> dict[str, Any]:
    found = part.model_dump(exclude_none=True, exclude_unset=True)
    return {key: value for key, value in found.items() if key not in OF_STREAMS}


def _chat(at: str, http: httpx2.Client, model: str, streamed: bool) -> Heard:
    client = openai.OpenAI(base_url=f"{at}/v1", api_key="none", max_retries=0, http_client=http)
    messages: list[Any] = [{"role": "user", "content": QUESTION}]
    tools = [{"type": "function", "function": {"name": name, "parameters": SCHEMA}} for name in TOOL_NAMES]
    asked: dict[str, Any] = {"model": model, "messages": messages, "tools": tools, "max_tokens": LIMIT_TOKENS}

    def ask() -> Any:
        if not streamed:
            return client.chat.completions.create(**asked)
        state = ChatCompletionStreamState()
        for chunk in client.chat.completions.create(**asked, stream=True):
            state.handle_chunk(cast("Any", chunk))
        return state.current_completion_snapshot

    message = ask().choices[0].message
    said = _plain(message)
    said["tool_calls"] = [
        {"id": call.id, "type": "function", "function": _plain(call.function)} for call in message.tool_calls
    ]
    messages.append({**said, "role": "assistant"})
    messages += [{"role": "tool", "tool_call_id": call.id, "content": RESULT} for call in message.tool_calls]
    return of_completion(ask())


def _responses(at: str, http: httpx2.Client, model: str, streamed: bool) -> Heard:
    client = openai.OpenAI(base_url=f"{at}/v1", api_key="none", max_retries=0, http_client=http)
    items: list[Any] = [{"role": "user", "content": QUESTION}]
    tools = [{"type": "function", "name": name, "parameters": SCHEMA, "strict": False} for name in TOOL_NAMES]
    asked: dict[str, Any] = {"model": model, "input": items, "tools": tools, "max_output_tokens": LIMIT_TOKENS}
    asked |= {"store": False, "include": ["reasoning.encrypted_content"]}

    def ask() -> Any:
        if not streamed:
            return client.responses.create(**asked)
        with client.responses.stream(**asked) as stream:
            return stream.get_final_response()

    found = ask().output
    items += [_plain(item) for item in found]
    calls = [item for item in found if item.type == "function_call"]
    items += [{"type": "function_call_output", "call_id": call.call_id, "output": RESULT} for call in calls]
    return of_response(ask())


def _messages(at: str, http: httpx2.Client, model: str, streamed: bool) -> Heard:
    client = anthropic.Anthropic(base_url=at, api_key="none", max_retries=0, http_client=cast("Any", http))
    messages: list[Any] = [{"role": "user", "content": QUESTION}]
    tools = [{"name": name, "input_schema": SCHEMA} for name in TOOL_NAMES]
    asked: dict[str, Any] = {"model": model, "messages": messages, "tools": tools, "max_tokens": LIMIT_TOKENS}

    def ask() -> Any:
        if not streamed:
            return client.messages.create(**asked)
        with client.messages.stream(**asked) as stream:
            return stream.get_final_message()

    content = ask().content
    messages.append({"role": "assistant", "content": [_plain(block) for block in content]})
    calls = [block for block in content if block.type == "tool_use"]
    results = [{"type": "tool_result", "tool_use_id": call.id, "content": RESULT} for call in calls]
    messages.append({"role": "user", "content": results})
    return of_message(ask())


def _gemini(at: str, http: httpx2.Client, model: str, streamed: bool) -> Heard:
    options = types.HttpOptions(base_url=at, httpx_client=cast("Any", http))
    client = genai.Client(api_key="none", http_options=options)
    contents: list[Any] = [types.Content(role="user", parts=[types.Part(text=QUESTION)])]
    models: Any = client.models

    def ask() -> list[Any]:
        asked: dict[str, Any] = {"model": model, "contents": contents, "config": gemini_config()}
        return [*models.generate_content_stream(**asked)] if streamed else [models.generate_content(**asked)]

    parts = [part for answer in ask() for part in (answer.candidates[0].content.parts or ())]
    contents.append(types.Content(role="model", parts=parts))
    calls = [part.function_call for part in parts if part.function_call is not None]
    results = [types.FunctionResponse(id=call.id, name=call.name, response={"output": RESULT}) for call in calls]
    contents.append(types.Content(role="user", parts=[types.Part(function_response=result) for result in results]))
    return of_answers(ask())


_LOOPS: dict[str, Callable[[str, httpx2.Client, str, bool], Heard]] = {
    "openai_chat": _chat,
    "openai_responses": _responses,
    "anthropic_messages": _messages,
    "gemini": _gemini,
}
