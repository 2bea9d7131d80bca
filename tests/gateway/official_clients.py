"""What the vendors' own clients make of an answer: of a server's on loopback, or of bytes that are given to them."""

import json
from collections.abc import Callable
from typing import Any, NamedTuple, cast

import anthropic
import httpx2
import openai
from google import genai
from google.genai import types
from openai.lib.streaming.chat import ChatCompletionStreamState

from turnwise.lab.gateway_check import QUESTION, TOOL_NAMES
from waits import HANG_S

SCHEMA: dict[str, Any] = {"type": "object", "properties": {}}
LIMIT_TOKENS = 6_000
UNREADABLE_ARGUMENTS = "arguments that are no JSON"
HELD = {"SAFETY", "RECITATION", "PROHIBITED_CONTENT", "BLOCKLIST", "SPII", "refusal", "content_filter"}


class HeardCall(NamedTuple):
    name: str
    arguments: object


class Heard(NamedTuple):
    """What the client's user gets. `ids` are empty where the family has none; `finish` is one word for all families: `calls`,
    `stop`, `length`, `refused`, or the family's own."""

    text: str
    calls: tuple[HeardCall, ...]
    finish: str
    ids: tuple[str, ...] = ()
    reasoning: str = ""


class Place(NamedTuple):
    """Where a client sends its requests: `base` without a version; `http` in place of the network, if it is given.
    `google_version`: the one in the paths of google-genai, if it is another than its own choice."""

    base: str
    http: httpx2.BaseTransport | None = None
    google_version: str | None = None


class _At(NamedTuple):
    base: str
    http: httpx2.Client
    google_version: str | None


def given(body: bytes, *, streamed: bool = True) -> Place:
    """A server that answers everything with these bytes."""
    kind = "text/event-stream" if streamed else "application/json"

    def answer(_: httpx2.Request) -> httpx2.Response:
        return httpx2.Response(200, headers={"content-type": kind}, content=body)

    return Place("http://given.invalid", httpx2.MockTransport(answer))


def failed(status: int, body: bytes) -> Place:
    """A server that answers everything with this error."""

    def answer(_: httpx2.Request) -> httpx2.Response:
        return httpx2.Response(status, headers={"content-type": "application/json"}, content=body)

    return Place("http://failed.invalid", httpx2.MockTransport(answer))


def ask(client: str, *, at: Place, model: str, streamed: bool) -> Heard:
    """One question with tools. Raises what the client raises."""
    # The servers speak plain HTTP: loading the certificates of all the world would take 30 ms for nothing.
    with httpx2.Client(transport=at.http or httpx2.HTTPTransport(verify=False), timeout=HANG_S) as http:
        return _ASKS[client](_At(at.base, http, at.google_version), model, streamed)


def _value(arguments: str | None) -> object:
    try:
        return json.loads(arguments or "{}")
    except ValueError:
        return f"{UNREADABLE_ARGUMENTS}: {arguments}"


# -- Chat Completions ------------------------------------------------------------------------------------------------------


def _chat(at: _At, model: str, streamed: bool) -> Heard:
    client = openai.OpenAI(base_url=f"{at.base}/v1", api_key="none", max_retries=0, http_client=at.http)
    asked: dict[str, Any] = {
        "model": model,
        "messages": [{"role": "user", "content": QUESTION}],
        "tools": [{"type": "function", "function": {"name": name, "parameters": SCHEMA}} for name in TOOL_NAMES],
        "max_tokens": LIMIT_TOKENS,
    }
    if not streamed:
        return of_completion(client.chat.completions.create(**asked))
    # `.stream()` raises where the answer was cut by its limit, so its accumulator is fed by hand.
    state = ChatCompletionStreamState()
    for chunk in client.chat.completions.create(**asked, stream=True, stream_options={"include_usage": True}):
        state.handle_chunk(chunk)
    return of_completion(state.current_completion_snapshot)


def of_completion(completion: Any) -> Heard:
    choice = completion.choices[0]
    message = choice.message
    calls = message.tool_calls or ()
    return Heard(
        text=(message.content or "") + (message.refusal or ""),
        calls=tuple([HeardCall(call.function.name, _value(call.function.arguments)) for call in calls]),
        finish=_finish(choice.finish_reason, is_refused=bool(message.refusal)),
        ids=tuple([call.id for call in calls]),
        reasoning=getattr(message, "reasoning_content", None) or "",
    )


def _finish(word: str | None, *, is_refused: bool = False) -> str:
    known = {"tool_calls": "calls", "tool_use": "calls", "end_turn": "stop", "max_tokens": "length", "STOP": "stop"}
    known |= {"MAX_TOKENS": "length", "stop_sequence": "stop", **dict.fromkeys(HELD, "refused")}
    found = known.get(word or "", word or "none")
    return "refused" if is_refused and found == "stop" else found


# -- Responses -------------------------------------------------------------------------------------------------------------


def _responses(at: _At, model: str, streamed: bool) -> Heard:
    client = openai.OpenAI(base_url=f"{at.base}/v1", api_key="none", max_retries=0, http_client=at.http)
    asked: dict[str, Any] = {
        "model": model,
        "input": [{"role": "user", "content": QUESTION}],
        "tools": [{"type": "function", "name": name, "parameters": SCHEMA, "strict": False} for name in TOOL_NAMES],
        "max_output_tokens": LIMIT_TOKENS,
        "store": False,
    }
    if not streamed:
        return of_response(client.responses.create(**asked))
    final = None
    with client.responses.stream(**asked) as stream:
        for event in stream:
            if event.type in ("response.completed", "response.incomplete", "response.failed"):
                final = cast("Any", event).response
            elif event.type == "error":
                raise openai.OpenAIError(cast("Any", event).message)
    assert final is not None, "the stream has no end"
    return of_response(final)


def of_response(response: Any) -> Heard:
    if response.status == "failed":
        raise openai.OpenAIError(response.error.message)
    items = response.output
    calls = [item for item in items if item.type in ("function_call", "custom_tool_call")]
    parts = [part for item in items if item.type == "message" for part in item.content]
    refusal = "".join([part.refusal for part in parts if part.type == "refusal"])
    text = "".join([part.text for part in parts if part.type == "output_text"])
    if response.status == "incomplete":
        why = response.incomplete_details.reason if response.incomplete_details else None
        finish = "refused" if why == "content_filter" else "length"
    else:
        finish = "calls" if calls else "refused" if refusal else "stop"
    thoughts = [
        text.text for item in items if item.type == "reasoning" for text in (item.summary or item.content or ())
    ]
    return Heard(
        text=text + refusal,
        calls=tuple([HeardCall(call.name, _given_to(call)) for call in calls]),
        finish=finish,
        ids=tuple([call.call_id for call in calls]),
        reasoning="".join(thoughts),
    )


def _given_to(call: Any) -> object:
    return call.input if call.type == "custom_tool_call" else _value(call.arguments)


# -- Messages --------------------------------------------------------------------------------------------------------------


def _messages(at: _At, model: str, streamed: bool) -> Heard:
    client = anthropic.Anthropic(base_url=at.base, api_key="none", max_retries=0, http_client=at.http)
    asked: dict[str, Any] = {
        "model": model,
        "messages": [{"role": "user", "content": QUESTION}],
        "tools": [{"name": name, "input_schema": SCHEMA} for name in TOOL_NAMES],
        "max_tokens": LIMIT_TOKENS,
    }
    if not streamed:
        return of_message(client.messages.create(**asked))
    is_over = False
    with client.messages.stream(**asked) as stream:
        for event in stream:
            is_over = is_over or event.type == "message_stop"
        assert is_over, "the stream has no end"
        return of_message(stream.get_final_message())


def of_message(message: Any) -> Heard:
    calls = [block for block in message.content if block.type == "tool_use"]
    return Heard(
        text="".join([block.text for block in message.content if block.type == "text"]),
        calls=tuple([HeardCall(block.name, block.input) for block in calls]),
        finish=_finish(message.stop_reason),
        ids=tuple([block.id for block in calls]),
        reasoning="".join([block.thinking for block in message.content if block.type == "thinking"]),
    )


# -- Gemini ----------------------------------------------------------------------------------------------------------------


def gemini_config() -> types.GenerateContentConfig:
    """The tools, which the client does not call by itself."""
    declared = [types.FunctionDeclaration(name=name, parameters_json_schema=SCHEMA) for name in TOOL_NAMES]
    return types.GenerateContentConfig(
        tools=[types.Tool(function_declarations=declared)],
        automatic_function_calling=types.AutomaticFunctionCallingConfig(disable=True),
        max_output_tokens=LIMIT_TOKENS,
    )


def _gemini(at: _At, model: str, streamed: bool) -> Heard:
    options = types.HttpOptions(base_url=at.base, api_version=at.google_version, httpx_client=cast("Any", at.http))
    client = genai.Client(api_key="none", http_options=options)
    models: Any = client.models
    asked: dict[str, Any] = {"model": model, "contents": QUESTION, "config": gemini_config()}
    answers = [*models.generate_content_stream(**asked)] if streamed else [models.generate_content(**asked)]
    return of_answers(answers)


def of_answers(answers: list[Any]) -> Heard:
    parts: list[Any] = []
    finish = None
    for answer in answers:
        if answer.prompt_feedback is not None and answer.prompt_feedback.block_reason is not None:
            finish = "SAFETY"
        for candidate in (answer.candidates or ())[:1]:
            parts += (candidate.content.parts or []) if candidate.content else []
            finish = candidate.finish_reason.value if candidate.finish_reason is not None else finish
    calls = [part.function_call for part in parts if part.function_call is not None]
    word = _finish(finish)
    return Heard(
        text="".join([part.text for part in parts if part.text and not part.thought]),
        calls=tuple([HeardCall(call.name, dict(call.args or {})) for call in calls]),
        finish="calls" if calls and word == "stop" else word,
        ids=tuple([call.id for call in calls if call.id]),
        reasoning="".join([part.text for part in parts if part.text and part.thought]),
    )


_ASKS: dict[str, Callable[[_At, str, bool], Heard]] = {
    "openai_chat": _chat,
    "openai_responses": _responses,
    "anthropic_messages": _messages,
    "gemini": _gemini,
}
