"""Reasoning that a server says in its own field and, between marks, in the text as well (MiniMax; can1357/oh-my-pi#2434)."""

import json

import pytest

from text_calls import TOOLS
from turnwise.assembly.response_reading import ResponseReader, read_body
from turnwise.assembly.text_calls.frames import CallFinder
from turnwise.vocab import ReasoningDelta, reasoning_of, text_of
from turnwise.wire.family import family
from turnwise.wire.profiles import DEFAULT_LIMITS, builtin_profiles

CHAT = family("openai_chat")
PROFILE = builtin_profiles()["vllm"]

# What each chunk says as reasoning and as content.
MINIMAX = [("The user", "<think>The user"), (" says hi.", " says hi."), ("", "</think>\n\nHello")]
LINES = [("The user", "<think>\n"), (" says hi.\n", "The user says"), ("", " hi."), ("", "\n</think>\n\nHello")]
FIRST = [("The user says", ""), (" hi.", ""), ("", "<think>The user says hi.</think>\n\nHello")]
OTHER = [("The user", "<think>The user"), (" says hi.", " asks why."), ("", "</think>\n\nHello")]
BEHIND = [("The user", "<think>The user"), ("", " says hi."), ("", "</think>\n\nHello")]


def stream_of(chunks: list[tuple[str, str]]) -> bytes:
    deltas = [{"content": content, "reasoning_content": reasoning or None} for reasoning, content in chunks]
    events = [json.dumps({"id": "c", "choices": [{"index": 0, "delta": one}]}) for one in deltas]
    events += ['{"id":"c","choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}', "[DONE]"]
    return "".join([f"data: {event}\n\n" for event in events]).encode()


def read(pieces: list[bytes]) -> tuple[str, str, str]:
    """The reasoning that watchers saw, the response's, and its text."""
    reader = ResponseReader(CHAT, profile=PROFILE, in_text=CallFinder(tools=TOOLS))
    frames = [frame for piece in pieces for frame in reader.feed(piece)]
    frames += reader.flush()
    response = reader.finish()
    shown = "".join([frame.text for frame in frames if isinstance(frame, ReasoningDelta)])
    return shown, reasoning_of(response.message), text_of(response.message)


@pytest.mark.parametrize(
    ("chunks", "reasoning"),
    [
        (MINIMAX, "The user says hi."),
        (LINES, "The user says hi.\n"),
        (FIRST, "The user says hi."),
        (OTHER, "The user says hi.The user asks why."),
        (BEHIND, "The userThe user says hi."),
    ],
    ids=["piece by piece", "with line breaks", "one after the other", "other words", "more words"],
)
def test_reasoning_that_is_said_twice_is_one_reasoning(chunks: list[tuple[str, str]], reasoning: str) -> None:
    """Proves: the same words between marks in the text are left out, in what watchers see too, however the bytes are split. One
    word that differs, and both are kept. A body says the same."""
    stream = stream_of(chunks)
    for size in (1, 7, 50, len(stream)):
        pieces = [stream[at : at + size] for at in range(0, len(stream), size)]
        assert read(pieces) == (reasoning, reasoning, "Hello"), size
    said, content = ["".join(words) for words in zip(*chunks, strict=True)]
    message = {"role": "assistant", "content": content, "reasoning_content": said}
    body = json.dumps({"id": "c", "choices": [{"index": 0, "message": message, "finish_reason": "stop"}]}).encode()
    finder = CallFinder(tools=TOOLS)
    response, _ = read_body(body, family=CHAT, profile=PROFILE, limits=DEFAULT_LIMITS, in_text=finder)
    assert (reasoning_of(response.message), text_of(response.message)) == (reasoning, "Hello")
