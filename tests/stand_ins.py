"""Streams of our own in place of the recorded ones: as many of each family, in files and a manifest of the same shape.

The lab sends them, each for a small script that is drawn from a seed. What is expected stands in that script, in the words of
each API: no decoder of ours is asked. A clone without the recordings runs the same tests on these.
"""

import json
from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import Any, NamedTuple

from turnwise.lab.families import route
from turnwise.lab.provider import Provider
from turnwise.lab.script import Script, ScriptedCall, ScriptedStep
from turnwise.lab.writer import PHRASES
from turnwise.vocab import FinishReason, Usage

COUNTS = {"openai_chat": (598, 566), "openai_responses": (295, 260), "anthropic": (284, 250), "gemini": (185, 175)}
"""Streams of each family as the manifest names it, and how many of them tell their request."""
PROVIDER = "lab"
PATHS = {
    "openai_chat": "/v1/chat/completions",
    "openai_responses": "/v1/responses",
    "anthropic": "/v1/messages",
    "gemini": "/v1beta/models/{model}:{method}",
}
WORDS = {
    "openai_chat": ("stop", "tool_calls", "length"),
    "openai_responses": ("completed", "completed", "incomplete:max_output_tokens"),
    "anthropic": ("end_turn", "tool_use", "max_tokens"),
    "gemini": ("STOP", "STOP", "MAX_TOKENS"),
}
"""What each API says at the end of an answer, of calls, and where its limit cut."""
CUTS = {20: "cut answer", 40: "cut call"}
"""Of 60 streams, those that the limit cut."""
NAMES = ("read", "write", "search_web", "get-weather", "run_1")
SCHEMA = {"type": "object", "properties": {"path": {"type": "string"}, "count": {"type": "integer"}}}


class Exchanged(NamedTuple):
    calls: tuple[ScriptedCall, ...]
    results: tuple[str, ...]


class Asked(NamedTuple):
    """A request before it has a family. `done` are the steps since the user asked."""

    model: str
    user: str
    system: str = ""
    done: tuple[Exchanged, ...] = ()
    stream: bool = True
    has_tools: bool = True
    is_text: bool = False  # where a family takes a mere text


def make_stand_ins(folder: Path) -> Path:
    """Write all of them below `folder`; the same bytes each time."""
    manifest = [row for family in COUNTS for row in _streams_of(folder, family)]
    _write_lines(folder / "manifest.jsonl", manifest)
    _write_lines(folder / "reported" / "manifest.jsonl", list(_reported(folder)))
    for name, family, streamed, steps in _conversations():
        _write(folder / "conversations" / f"{name}.json", json.dumps(_conversation(family, streamed, steps)))
    for name, recorded in _errors():
        _write(folder / "errors" / f"{name}.json", json.dumps(recorded))
    return folder


def are_stand_ins(corpus: Path) -> bool:
    """Whether these are ours."""
    return any((corpus / "openai_chat").glob(f"{PROVIDER}__stand-in-*"))


def _write(path: Path, text: str | bytes) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(text if isinstance(text, bytes) else text.encode())


def _write_lines(path: Path, rows: list[dict[str, Any]]) -> None:
    _write(path, "".join([json.dumps(row) + "\n" for row in rows]))


# Streams


def _streams_of(folder: Path, family: str) -> Iterator[dict[str, Any]]:
    count, asked = COUNTS[family]
    for number in range(count):
        rng = Random(f"{family} {number}")
        name = f"stand-in-{number:03d}"
        step = _drawn_step(family, number=number, rng=rng)
        file = f"{family}/{PROVIDER}__{name}.{'json' if family == 'gemini' and number % 20 == 0 else 'sse'}"
        request = _drawn_request(family, model=name, number=number, rng=rng, thinks=bool(step.reasoning))
        body, usage = _sent(family, step=step, request=request, name=name, is_array=file.endswith(".json"))
        _write(folder / file, body)
        yield {
            "file": file,
            "family": family,
            "provider": PROVIDER,
            "expected": _expected(family, step=step, usage=usage if _tells_usage(family, request) else None),
            "request": request if number < asked else None,
            "quirks": [],
            "sanitised": False,
        }


def _tells_usage(family: str, request: dict[str, Any]) -> bool:
    """Chat Completions counts tokens in a stream only for those who ask."""
    return family != "openai_chat" or "stream_options" in request


def _drawn_step(family: str, *, number: int, rng: Random) -> ScriptedStep:
    text = "".join([rng.choice(PHRASES).translate({123: 40, 125: 41}) for _ in range(rng.randrange(1, 6))]).strip()
    kind = CUTS.get(number % 60) or rng.choice(["answer", "calls", "calls", "both"])
    if kind == "cut call" and family in ("anthropic", "gemini"):
        kind = "calls"  # their streams hand out what is whole: nobody can tell where one was cut
    count = 1 if kind == "cut call" else rng.randrange(1, 4)
    calls = tuple([_drawn_call(number, rng=rng, is_cut=kind == "cut call") for number in range(count)])
    return ScriptedStep(
        text=text if kind != "calls" else "",
        reasoning=f"I think: {text[:80].strip()}." if rng.random() < 0.3 else "",
        calls=calls if kind in ("calls", "both", "cut call") else (),
        finish=FinishReason.LENGTH if kind.startswith("cut") else None,
    )


def _drawn_call(number: int, *, rng: Random, is_cut: bool) -> ScriptedCall:
    words = "".join([rng.choice(PHRASES).translate({123: 40, 125: 41}) for _ in range(rng.randrange(1, 4))])
    some: dict[str, object] = {"path": f"füße/{rng.randrange(1000)}.txt", "count": rng.randrange(10), "content": words}
    arguments = some if is_cut or rng.random() < 0.8 else {}
    return ScriptedCall(
        name=rng.choice(NAMES),
        arguments=arguments,
        id=f"call_{rng.getrandbits(40):010x}_{number}",
        cut_after=rng.randrange(8, 20) if is_cut else None,
    )


def _sent(
    family: str, *, step: ScriptedStep, request: dict[str, Any], name: str, is_array: bool = False
) -> tuple[bytes, Usage | None]:
    """What the lab sends where its script is this one step, and the tokens that it counted."""
    streamed = family == "gemini" or request.get("stream") is True
    provider = Provider(scripts={name: Script(name=name, title=name, steps=(step,), obeys="never")}, caches=False)
    provider.playing = name
    path = PATHS[family].format(model=name, method="streamGenerateContent" if streamed else "generateContent")
    found = route(path)
    assert found is not None
    target = path + ("" if is_array or family != "gemini" else "?alt=sse")
    plain = _as_the_lab_takes_it(family, request)
    sent, received = provider.answer(found, target=target, body=json.dumps(plain).encode(), number=1)
    assert received.refused is None, (family, received.refused)
    return b"".join(sent.pieces), received.usage


def _expected(family: str, *, step: ScriptedStep, usage: Usage | None) -> dict[str, Any]:
    answer, called, cut = WORDS[family]
    word = cut if step.finish is FinishReason.LENGTH else called if step.calls else answer
    return {
        "text": step.text,
        "reasoning": step.reasoning,
        "tool_calls": [
            {
                "id": None if family == "gemini" else call.id,
                "name": call.name,
                "arguments": None if call.cut_after else call.arguments,
                "complete": call.cut_after is None,
            }
            for call in step.calls
        ],
        "finish_reason": word,
        "usage": None if usage is None else _usage_object(family, usage),
    }


def _usage_object(family: str, usage: Usage) -> dict[str, Any]:
    into, out, thought = usage.input_tokens, usage.output_tokens, usage.reasoning_tokens
    match family:
        case "openai_chat":
            details = {"completion_tokens_details": {"reasoning_tokens": thought}}
            return {"prompt_tokens": into, "completion_tokens": out, **details}
        case "openai_responses":
            details = {"output_tokens_details": {"reasoning_tokens": thought}}
            return {"input_tokens": into, "output_tokens": out, **details}
        case "anthropic":
            details = {"output_tokens_details": {"thinking_tokens": thought}}
            return {"input_tokens": into, "output_tokens": out, **details}
        case _:
            return {"promptTokenCount": into, "candidatesTokenCount": out - thought, "thoughtsTokenCount": thought}


# Requests


JSON_ONLY = {"type": "json_object"}
# As a recorder may do that keeps no large files.
CUT_SHORT = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "iVBOR..."}}
EXTRAS: dict[str, list[dict[str, Any]]] = {
    "openai_chat": [
        {},
        {"logprobs": True},
        {"n": 2},
        {"n": 2, "stop": ["END"], "model": "gpt-5"},
        {"response_format": JSON_ONLY},
        {"stop": ["END"]},
        {"temperature": 0.5, "max_completion_tokens": 900},
    ],
    "openai_responses": [
        {},
        {"background": True, "store": True},
        {"conversation": "conv_1"},
        {"include": ["message.output_text.logprobs"]},
        {
            "input": [
                {"role": "user", "content": "Please."},
                {"type": "reasoning", "id": "rs_1", "summary": []},
                {"role": "assistant", "content": [{"type": "output_text", "text": "Yes."}]},
                {"role": "user", "content": "And?"},
            ]
        },
        {"store": True},
        {"text": {"format": JSON_ONLY}},
        {"tools": [{"type": "web_search"}], "tool_choice": {"type": "web_search"}},
        {"tools": [{"type": "web_search"}]},
        {"temperature": 0.5, "max_output_tokens": 900, "store": False},
    ],
    "anthropic": [
        {},
        {"mcp_servers": [{"type": "url", "url": "https://mcp.example", "name": "one"}]},
        {"stop_sequences": ["END"]},
        {
            "messages": [
                {"role": "user", "content": [{"type": "document", "source": {"type": "file", "file_id": "file_1"}}]}
            ]
        },
        {"messages": [{"role": "user", "content": [{"type": "text", "text": "This:"}, CUT_SHORT]}]},
        {"tools": [{"type": "web_search_20250305", "name": "web_search"}]},
        {"temperature": 0.5},
    ],
    "gemini": [
        {},
        {"generationConfig": {"responseMimeType": "application/json"}},
        {"generationConfig": {"stopSequences": ["END"]}},
        {
            "contents": [
                {
                    "role": "user",
                    "parts": [{"text": "This:"}, {"inlineData": {"mimeType": "image/png", "data": "iVBOR..."}}],
                }
            ]
        },
        {"tools": [{"googleSearch": {}}]},
        {"generationConfig": {"temperature": 0.5, "maxOutputTokens": 900}},
    ],
}
"""What requests have beside their messages, so that each family's requests have all that another one may lack."""


def _as_the_lab_takes_it(family: str, request: dict[str, Any]) -> dict[str, Any]:
    """Without what only asks for another way of answering."""
    left_out = ("n", "logprobs", "background", "conversation", "tool_choice")
    return {key: value for key, value in request.items() if key not in left_out}


def _drawn_request(family: str, *, model: str, number: int, rng: Random, thinks: bool) -> dict[str, Any]:
    is_text = number % 18 == 0
    steps = 0 if thinks or is_text else rng.randrange(3)
    done = [_drawn_exchange(at, rng=rng) for at in range(steps)]
    usual = {"stream_options": {"include_usage": True}} if family == "openai_chat" else {}
    extra = EXTRAS[family][number // 12 % len(EXTRAS[family])] if number % 12 == 0 else usual
    asked = Asked(
        model=model,
        user=f"Ask {number}: {rng.choice(PHRASES)} please?",
        system="Be short." if rng.random() < 0.5 else "",
        done=tuple(done),
        has_tools=bool(done) or rng.random() < 0.7,
        is_text=is_text,
    )
    return {**body_of(family, asked), **extra}


def _drawn_exchange(at: int, *, rng: Random) -> Exchanged:
    calls = [
        ScriptedCall(name=rng.choice(NAMES), arguments={"path": f"ä/{rng.randrange(99)}"}, id=f"call_{at}_{number}")
        for number in range(rng.randrange(1, 3))
    ]
    return Exchanged(tuple(calls), tuple([f"result {rng.randrange(1000)}" for _ in calls]))


def body_of(family: str, asked: Asked) -> dict[str, Any]:
    return {"openai_chat": _chat, "openai_responses": _responses, "anthropic": _anthropic, "gemini": _gemini}[family](
        asked
    )


def _chat(asked: Asked) -> dict[str, Any]:
    messages: list[dict[str, Any]] = [{"role": "system", "content": asked.system}] if asked.system else []
    messages.append({"role": "user", "content": asked.user})
    for calls, results in asked.done:
        called = [
            {
                "id": call.id,
                "type": "function",
                "function": {"name": call.name, "arguments": json.dumps(call.arguments)},
            }
            for call in calls
        ]
        messages.append({"role": "assistant", "content": None, "tool_calls": called})
        pairs = zip(calls, results, strict=True)
        messages += [{"role": "tool", "tool_call_id": call.id, "content": result} for call, result in pairs]
    tools = [{"type": "function", "function": {"name": name, "parameters": SCHEMA}} for name in NAMES]
    body: dict[str, Any] = {"model": asked.model, "messages": messages, **({"stream": True} if asked.stream else {})}
    return {**body, "tools": tools} if asked.has_tools else body


def _responses(asked: Asked) -> dict[str, Any]:
    items: list[dict[str, Any]] = [{"role": "user", "content": asked.user}]
    for calls, results in asked.done:
        for call in calls:
            named = {"call_id": call.id, "name": call.name, "arguments": json.dumps(call.arguments)}
            items.append({"type": "function_call", **named})
        for call, result in zip(calls, results, strict=True):
            items.append({"type": "function_call_output", "call_id": call.id, "output": result})
    tools = [{"type": "function", "name": name, "parameters": SCHEMA} for name in NAMES]
    body: dict[str, Any] = {"model": asked.model, "input": asked.user if asked.is_text else items}
    body |= {"stream": True} if asked.stream else {}
    body |= {"instructions": asked.system} if asked.system else {}
    return {**body, "tools": tools} if asked.has_tools else body


def _anthropic(asked: Asked) -> dict[str, Any]:
    messages: list[dict[str, Any]] = [{"role": "user", "content": asked.user}]
    for calls, results in asked.done:
        used = [{"type": "tool_use", "id": call.id, "name": call.name, "input": call.arguments} for call in calls]
        pairs = zip(calls, results, strict=True)
        got = [{"type": "tool_result", "tool_use_id": call.id, "content": result} for call, result in pairs]
        messages += [{"role": "assistant", "content": used}, {"role": "user", "content": got}]
    tools = [{"name": name, "input_schema": SCHEMA} for name in NAMES]
    body: dict[str, Any] = {"model": asked.model, "max_tokens": 2000, "messages": messages}
    body |= {"stream": True} if asked.stream else {}
    body |= {"system": asked.system} if asked.system else {}
    return {**body, "tools": tools} if asked.has_tools else body


def _gemini(asked: Asked) -> dict[str, Any]:
    contents: list[dict[str, Any]] = [{"role": "user", "parts": [{"text": asked.user}]}]
    for calls, results in asked.done:
        called = [{"functionCall": {"name": call.name, "args": call.arguments}} for call in calls]
        pairs = zip(calls, results, strict=True)
        got = [{"functionResponse": {"name": call.name, "response": {"output": result}}} for call, result in pairs]
        contents += [{"role": "model", "parts": called}, {"role": "user", "parts": got}]
    declared = [{"name": name, "parametersJsonSchema": SCHEMA} for name in NAMES]
    body: dict[str, Any] = {"contents": contents}
    body |= {"systemInstruction": {"parts": [{"text": asked.system}]}} if asked.system else {}
    return {**body, "tools": [{"functionDeclarations": declared}]} if asked.has_tools else body


# Whole conversations


ADD = ScriptedCall(name="add", arguments={"a": 2, "b": 3}, id="call_add")
MULTIPLY = ScriptedCall(name="multiply", arguments={"a": 2, "b": 3}, id="call_multiply")
READ = ScriptedCall(name="read", arguments={"path": "a.txt"}, id="call_read")
TWO = ((ADD, MULTIPLY), ("5", "6"))
ONE = ((READ,), ("Über uns: \"we\" \\ 'they'",))
NOT_OF_ONE_TURN = (
    "openai-chat-openai-plain-crewAI-TestMaxUsageCountWithNativeToolCalling"
    ".test-max-usage-count-tracked-in-native-tool-calling",
    "gemini-google-plain-pydantic-ai-test-google-instructions-only-with-tool-calls",
    "openai-responses-openai-stream-mirascope-async-stream",
    "openai-responses-bedrock-mantle-plain-pydantic-ai-test-reused-tool-call-ids-gpt-5-5",
)
"""Names of recorded conversations that cannot be played as one turn; here they are ordinary ones."""


def _conversations() -> Iterator[tuple[str, str, bool, list[Exchanged]]]:
    """Name, family, whether it is streamed, and its steps: 17 of them with 45 requests."""
    two, one = Exchanged(*TWO), Exchanged(*ONE)
    yield "openai-chat-xai-plain-fantasy-multi-tool", "openai_chat", False, [two]
    for place, name in enumerate(NOT_OF_ONE_TURN):
        family = next(family for family in COUNTS if name.startswith(family.replace("_", "-")))
        yield name, family, "-stream-" in name, [one] if place else [two, _again(one)]
    for place in range(12):
        family, streamed = list(COUNTS)[place % 4], place % 8 < 4
        word = "stream" if streamed else "plain"
        steps = [two, _again(one)] if place < 10 else [one]
        yield f"{family.replace('_', '-')}-{PROVIDER}-{word}-stand-in-{place}", family, streamed, steps


def _again(step: Exchanged) -> Exchanged:
    """The same under other ids, as another step of one conversation has them."""
    return Exchanged(
        tuple([ScriptedCall(name=c.name, arguments=c.arguments, id=f"{c.id}_2") for c in step.calls]), step.results
    )


def _conversation(family: str, streamed: bool, steps: list[Exchanged]) -> dict[str, Any]:
    exchanges: list[dict[str, Any]] = []
    for done in range(len(steps) + 1):
        body = _body_of_conversation(
            family,
            Asked(model="stand-in", user="Work it out.", system="Be exact.", done=tuple(steps[:done]), stream=streamed),
        )
        step = (
            ScriptedStep(calls=steps[done].calls) if done < len(steps) else ScriptedStep(text="It is 5, 6 and “über”.")
        )
        method = "streamGenerateContent" if streamed else "generateContent"
        path = PATHS[family].format(model="stand-in", method=method) + (
            "?alt=sse" if streamed and family == "gemini" else ""
        )
        answer = _answer(family, path=path, body=body, step=step)
        exchanges.append(
            {
                "request": {"method": "POST", "path": path, "body": body},
                "response": {
                    "status": 200,
                    "headers": {"content-type": "text/event-stream" if streamed else "application/json"},
                    "body": answer,
                },
            }
        )
    return {"family": family, "provider": PROVIDER, "streamed": streamed, "exchanges": exchanges}


def _body_of_conversation(family: str, asked: Asked) -> dict[str, Any]:
    body = body_of(family, asked)
    return json.loads(json.dumps(body).replace('"get-weather"', '"add"').replace('"search_web"', '"multiply"'))


def _answer(family: str, *, path: str, body: dict[str, Any], step: ScriptedStep) -> str:
    provider = Provider(
        scripts={"stand-in": Script(name="stand-in", title="stand-in", steps=(step,), obeys="never")}, caches=False
    )
    provider.playing = "stand-in"
    found = route(path.partition("?")[0])
    assert found is not None
    sent, received = provider.answer(found, target=path, body=json.dumps(body).encode(), number=1)
    assert received.refused is None, (family, received.refused)
    return b"".join(sent.pieces).decode()


# Shapes that users reported, as the bytes that a server would send


def _delta(delta: dict[str, Any], finish: str | None = None) -> dict[str, Any]:
    return {"choices": [{"index": 0, "delta": delta, "finish_reason": finish}]}


def _call(arguments: object = None, **more: Any) -> dict[str, Any]:
    """A piece of a call in a chunk; `name`, `id`, `index` and `type` as given."""
    function = {
        key: value for key, value in (("name", more.pop("name", None)), ("arguments", arguments)) if value is not None
    }
    return _delta({"tool_calls": [{**more, "function": function}]})


FIRST, SECOND = '{"path":', '"a.txt"}'
WHOLE = {"path": "a.txt"}
FUNCTION = {"id": "call_1", "name": "read", "type": "function"}
CALLED, STOPPED = _delta({}, "tool_calls"), _delta({}, "stop")
REPORTED: dict[str, tuple[list[dict[str, Any]], str, list[dict[str, Any] | None]]] = {
    "arguments-object": ([_call(WHOLE, index=0, **FUNCTION), CALLED], "tool_calls", [WHOLE]),
    "cumulative-arguments": (
        [_call(FIRST + '"a', index=0, **FUNCTION), _call(FIRST + SECOND, index=0, id="call_1"), CALLED],
        "tool_calls",
        [WHOLE],
    ),
    "finish-stop-with-tool-calls": (
        [_call(FIRST, index=0, **FUNCTION), _call(SECOND, index=0), STOPPED],
        "stop",
        [WHOLE],
    ),
    "first-index-1": ([_call(FIRST, index=1, **FUNCTION), _call(SECOND, index=1), CALLED], "tool_calls", [WHOLE]),
    "id-in-every-chunk-no-index": (
        [_call(FIRST, **FUNCTION), _call(SECOND, id="call_1"), CALLED],
        "tool_calls",
        [WHOLE],
    ),
    "length-with-two-calls": (
        [
            _call(FIRST + SECOND, index=0, id="call_1", name="read"),
            _call('{"path":"b', index=1, id="call_2", name="read"),
            _delta({}, "length"),
        ],
        "length",
        [WHOLE, None],
    ),
    "name-empty-string-continuation": (
        [_call(FIRST, index=0, id="call_1", name="read"), _call(SECOND, index=0, id="", name=""), CALLED],
        "tool_calls",
        [WHOLE],
    ),
    "no-id-at-all": (
        [_call(FIRST, index=0, name="read", type="function"), _call(SECOND, index=0), CALLED],
        "tool_calls",
        [WHOLE],
    ),
    "no-index-whole-calls": (
        [_call(FIRST + SECOND, **FUNCTION), _call('{"path":"b"}', **{**FUNCTION, "id": "call_2"}), CALLED],
        "tool_calls",
        [WHOLE, {"path": "b"}],
    ),
    "tool-calls-after-stop": (
        [_delta({"content": "I read."}), STOPPED, _call(FIRST + SECOND, index=0, **FUNCTION), CALLED],
        "tool_calls",
        [WHOLE],
    ),
}
"""Name -> chunks, the finish word, and the arguments of each call (None: cut)."""


def _reported(folder: Path) -> Iterator[dict[str, Any]]:
    for name, (chunks, word, calls) in REPORTED.items():
        head = {"id": "chatcmpl-1", "object": "chat.completion.chunk", "created": 1, "model": "m"}
        events = [json.dumps({**head, **chunk}) for chunk in chunks] + ["[DONE]"]
        _write(folder / "reported" / f"{name}.sse", "".join([f"data: {event}\n\n" for event in events]))
        ids = [None] * 2 if name == "no-id-at-all" else ["call_1", "call_2"]
        yield {
            "file": f"reported/{name}.sse",
            "family": "openai_chat",
            "provider": None,
            "expected": {
                "text": "I read." if name == "tool-calls-after-stop" else "",
                "reasoning": "",
                "tool_calls": [
                    {"id": id, "name": "read", "arguments": arguments, "complete": arguments is not None}
                    for id, arguments in zip(ids, calls, strict=False)
                ],
                "finish_reason": word,
                "usage": None,
            },
            "request": None,
            "quirks": [],
            "sanitised": False,
        }


# Errors


ERRORS = """
openai_chat not_found azure__404__142 doubleword__404__030 groq__404__067 openai__404__064 openai__404__141
openai_chat limited azure__429__097 openrouter__429__152
openai_chat wrong deepseek__400__020 deepseek__400__026 llamacpp__400__043 mistral__400__045 openai__400__050
openai_chat wrong openai__400__071 openai__400__080 openai__400__110 openai__400__125 openai__400__154 openrouter__400__055
openai_chat wrong doubleword__400__029
openai_chat key deepseek__401__025 deepseek__401__089 mistral__401__047 ollama-cloud__401__092 openai__401__127
openai_chat key openai__401__128 openai__401__134 openai__401__135 perplexity__401__095
openai_chat full deepseek__400__100 llamacpp__400__036 openrouter__400__104
openai_chat broken llamacpp__500__039 llamacpp__500__042 llamacpp__500__044
openai_responses not_found openai__400__048 openai__400__051 openai__400__053 openai__400__136
openai_responses forgotten openai__400__052
openai_responses wrong openai__400__078
openai_responses full openai__400__103
openai_responses key openai__401__049 openai__401__093 openai__401__107 openai__401__109
openai_responses only_text xai__400__057
anthropic wrong anthropic__400__004 anthropic__400__009 anthropic__400__010 anthropic__400__011 anthropic__400__012
anthropic wrong anthropic__400__065 anthropic__400__116
anthropic key anthropic__401__085 anthropic__401__132
anthropic not_found anthropic__404__003 anthropic__404__060 anthropic__404__111 anthropic__404__120
gemini not_found google__404__062 google__404__121 google__404__139
gemini limited google__429__138
gemini waits google__429__101
gemini full vertex__400__106
gemini wrong vertex__400__147 vertex__400__148
"""
"""Family, what is wrong, and the files that say so. The tests' own tables say what each of them means."""
SAID = {
    "not_found": ("The model `stand-in` does not exist here.", "model_not_found", "NOT_FOUND", "not_found_error"),
    "limited": ("Too many requests: slow down.", "rate_limit_exceeded", "RESOURCE_EXHAUSTED", "rate_limit_error"),
    "waits": ("Too many requests: slow down.", "rate_limit_exceeded", "RESOURCE_EXHAUSTED", "rate_limit_error"),
    "wrong": ("A value of `stand_in` is none of those.", "invalid_value", "INVALID_ARGUMENT", "invalid_request_error"),
    "key": ("This key is not known here.", "invalid_api_key", "UNAUTHENTICATED", "authentication_error"),
    "full": (
        "This model's maximum context length is 1000 tokens, and 2000 were asked for.",
        "context_length_exceeded",
        "INVALID_ARGUMENT",
        "invalid_request_error",
    ),
    "broken": ("The server has failed.", "server_error", "INTERNAL", "api_error"),
    "forgotten": ("Nobody knows this response.", "previous_response_not_found", "", ""),
    "only_text": ("Incorrect API key provided: it is not known here.", "invalid-argument", "", ""),
}
"""The message, and its name in OpenAI's, Google's and Anthropic's words."""


CHAT: dict[str, Any] = {"model": "stand-in", "messages": [{"role": "user", "content": "Please."}]}
CLAUDE: dict[str, Any] = {**CHAT, "max_tokens": 9}
CONTENTS: dict[str, Any] = {"contents": [{"role": "user", "parts": [{"text": "Please."}]}]}
REQUESTS = {
    "openai_chat": CHAT,
    "openai_responses": {"model": "stand-in", "input": "Please."},
    "anthropic": CLAUDE,
    "gemini": CONTENTS,
}
MALFORMED: dict[str, tuple[dict[str, Any], str]] = {
    "anthropic__anthropic__400__004": ({**CLAUDE, "temperature": 7}, "temperature: range: 0..1"),
    "anthropic__anthropic__400__010": (
        {**CLAUDE, "tools": [{"name": "a", "input_schema": []}]},
        "tools.0.custom.input_schema: Input does not match the expected shape.",
    ),
    "anthropic__anthropic__400__012": (
        {**CLAUDE, "tools": [{"name": "a", "input_schema": {}}]},
        "tools.0.custom.input_schema.type: Field required",
    ),
    "anthropic__anthropic__400__116": (
        {**CLAUDE, "messages": [{"role": "user", "content": ""}]},
        "messages.0: all messages must have non-empty content except for the optional final assistant message",
    ),
    "gemini__vertex__400__147": (
        {"contents": [{"role": "invalid_role", "parts": [{"text": "Please."}]}]},
        "Please use a valid role: user, model.",
    ),
    "gemini__vertex__400__148": (
        {**CONTENTS, "generationConfig": {"temperature": 9}},
        "Unable to submit request because it has a temperature value of 9 but the supported range is from 0 (inclusive) to "
        "2.0001 (exclusive). Update the value and try again.",
    ),
    "openai_chat__openai__400__050": (
        {**CHAT, "temperature": 9},
        "Invalid 'temperature': decimal above maximum value. Expected a value <= 2, but got 9 instead.",
    ),
    "openai_responses__openai__400__052": (
        {"model": "stand-in", "input": "Please.", "previous_response_id": "resp_1"},
        "Previous response with id 'resp_1' not found.",
    ),
    "openai_chat__doubleword__400__029": ({**CHAT, "temperature": 100}, "That temperature is too high."),
    "openai_chat__llamacpp__400__043": (
        {**CHAT, "messages": [{"role": "user", "content": [{"type": "odd"}]}]},
        "This type of content is not known.",
    ),
}
"""Requests whose form is wrong, and what their server says of it; the last two are servers with words of their own."""
PARAMETERS = {
    "openai_chat__openai__400__050": {"param": "temperature", "code": "decimal_above_max_value"},
    "openai_responses__openai__400__052": {"param": "previous_response_id"},
}


def _errors() -> Iterator[tuple[str, dict[str, Any]]]:
    for line in ERRORS.strip().splitlines():
        family, wrong, *names = line.split()
        for name in [f"{family}__{name}" for name in names]:
            request, message = MALFORMED.get(name, (REQUESTS[family], SAID[wrong][0]))
            status = int(name.split("__")[2])
            answer = _error(family, wrong=wrong, status=status, message=message, more=PARAMETERS.get(name, {}))
            path = PATHS[family].format(model="stand-in", method="generateContent")
            yield (
                name,
                {
                    "family": family,
                    "provider": name.split("__")[1],
                    "request": {"method": "POST", "path": path, "body": request},
                    "response": {"status": status, "headers": {}, "body": json.dumps(answer)},
                },
            )


def _error(family: str, *, wrong: str, status: int, message: str, more: dict[str, str]) -> dict[str, Any]:
    _, openais, googles, anthropics = SAID[wrong]
    match family:
        case "anthropic":
            return {
                "type": "error",
                "error": {"type": anthropics, "message": message},
                "request_id": "req_stand_in",
            }
        case "gemini":
            info = {"@type": "type.googleapis.com/google.rpc.RetryInfo", "retryDelay": "48s"}
            details = {"details": [info]} if wrong == "waits" else {}
            return {"error": {"code": status, "message": message, "status": googles, **details}}
        case _ if wrong == "only_text":
            return {"code": openais, "error": message}
        case _:
            error = {"message": message, "type": "invalid_request_error", "param": None, "code": openais}
            return {"error": {**error, **more}}
