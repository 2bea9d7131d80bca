"""An overflow is known by the words of every local server, in every family, as an answer and inside a stream."""

from typing import get_args

import msgspec
import pytest

from tables import each
from turnwise.assembly.response_reading import ResponseReader
from turnwise.rules.prompt_room import ToldLimits, read_told
from turnwise.vocab import Fault, FaultKind
from turnwise.wire.family import MODULES, family
from turnwise.wire.profiles import FamilyName, Profile

FAMILIES: tuple[FamilyName, ...] = get_args(FamilyName)

# Words -> the figures that they name. Each with its server; all from public issues and the servers' own sources.
WORDS: dict[str, ToldLimits | None] = {
    # llama.cpp (HTTP 500, or in the middle of a stream) and LM Studio's MLX engine
    "Context size has been exceeded.": None,
    "Engine protocol predict stream returned an error: {code:500, message:'Context size has been exceeded'}": None,
    # llama.cpp
    "the request exceeds the available context size. try increasing the context size or enable context shift": None,
    "request (2009 tokens) exceeds the available context size (512 tokens), try increasing it": ToldLimits(
        prompt_tokens=2009, context_window_tokens=512
    ),
    # llama-cpp-python
    "Requested tokens (516) exceed context window of 512": None,
    # LM Studio
    "Cannot truncate prompt with n_keep (13575) >= n_ctx (4096)": ToldLimits(
        prompt_tokens=13575, context_window_tokens=4096
    ),
    "Trying to keep the first 15857 tokens when context the overflows. However, the model is loaded with context length of "
    "only 4096 tokens, which is not enough.": ToldLimits(prompt_tokens=15857, context_window_tokens=4096),
    "The number of tokens to keep from the initial prompt is greater than the context length (n_keep: 8485 >= n_ctx: 8192).": (
        ToldLimits(prompt_tokens=8485, context_window_tokens=8192)
    ),
    "Error: Input length 6491 exceeds context length 1500": ToldLimits(prompt_tokens=6491, context_window_tokens=1500),
    # Ollama and its cloud
    "prompt too long; exceeded max context length by 17 tokens": None,
    "the input length exceeds the context length": None,
    "input length exceeds maximum context length": None,
    # vLLM
    "You passed 99073 input tokens and requested 32000 output tokens. However, the model's context length is only 131072 "
    "tokens, resulting in a maximum input length of 99072 tokens.": ToldLimits(
        prompt_tokens=99073, context_window_tokens=131072
    ),
    "The decoder prompt (length 163840) is longer than the maximum model length of 131072.": ToldLimits(
        prompt_tokens=163840, context_window_tokens=131072
    ),
    "Input prompt (35247 tokens) is too long and exceeds limit of 1000": None,
    # SGLang
    "The input (61709 tokens) is longer than the model's context length (40960 tokens).": ToldLimits(
        prompt_tokens=61709, context_window_tokens=40960
    ),
    "Requested token count exceeds the model's maximum context length of 131072 tokens": ToldLimits(
        context_window_tokens=131072
    ),
    # Text Generation Inference
    "Input validation error: `inputs` must have less than 1024 tokens. Given: 1168": ToldLimits(
        max_input_tokens=1024, prompt_tokens=1168
    ),
    "Input validation error: `inputs` tokens + `max_new_tokens` must be <= 2048. Given: 1244 `inputs` tokens": ToldLimits(
        context_window_tokens=2048, prompt_tokens=1244
    ),
    # servers on MLX
    "Prompt too long: 41911 tokens exceeds max context window of 32768 tokens": ToldLimits(
        prompt_tokens=41911, context_window_tokens=32768
    ),
    "prompt_too_long: tokenized VLM text prompt has 20767 tokens, max prompt/context tokens is 8192": None,
    "Prompt exceeds maximum context length": None,
    # TabbyAPI (exllama), Lemonade, TensorRT-LLM, GPT4All, ds4, SiliconFlow
    "Prompt length 9000 is greater than max_seq_len 8192": None,
    "the prompt exceeds the model's maximum allowed prompt length": None,
    "Prompt length (1200) exceeds maximum input length (1024)": None,
    "ERROR: The prompt size exceeds the context window size and cannot be processed.": None,
    "Prompt tokens (5000) exceeds context size (4096)": ToldLimits(prompt_tokens=5000, context_window_tokens=4096),
    "number of input tokens (204703) has exceeded max_prompt_tokens (202752) limit.": None,
}
# Words that speak of contexts, prompts and tokens, and mean something else.
OTHERS = (
    "Rate limit reached: tokens per minute exceeded",
    "the context canceled before the prompt was read",
    "input is too large to process. increase the physical batch size (current batch size: 512)",
    "tool call context is missing",
)


def streamed(name: FamilyName, error: dict[str, object]) -> Fault | None:
    """What is read out of a stream of status 200 that has nothing but this error."""
    event: dict[str, object] = {"type": "error", "error": error} if name != "gemini" else {"error": error}
    if name == "openai_chat":
        event = {"error": error}
    prefix = b"data: " if name in ("openai_chat", "gemini") else b"event: error\ndata: "
    if name == "ollama_chat":
        prefix = b""
    if name == "cohere_chat":
        event = {"type": "message-end", "delta": {"finish_reason": "ERROR", "error": error}}
    reader = ResponseReader(family(name), profile=Profile(name=name, family=name))
    reader.feed(prefix + msgspec.json.encode(event) + b"\n\n")
    return reader.finish().fault


def test_all_families_are_asked() -> None:
    """Proves: a family that is added is asked, too."""
    assert set(FAMILIES) == set(MODULES)


@pytest.mark.promise("cut:budget")
@each("name", FAMILIES)
@each("said", WORDS)
def test_the_words_of_a_local_server_are_an_overflow_wherever_they_stand(name: FamilyName, said: str) -> None:
    """Proves: under HTTP 400 and 500, with the error as an object and as plain text, and inside a stream of status 200; the
    figures that the words name are read."""
    decode = family(name).decode_fault
    told = WORDS[said]
    for status in (400, 500):
        error: dict[str, object] = {"message": said, "type": "server_error", "code": status}
        for body in ({"error": error}, {"error": said}):
            fault = decode(status, {}, msgspec.json.encode(body))
            assert (fault.kind, read_told(fault.message)) == (FaultKind.CONTEXT_OVERFLOW, told), body
        fault = streamed(name, error)
        assert fault is not None and (fault.kind, read_told(fault.message)) == (FaultKind.CONTEXT_OVERFLOW, told)


@pytest.mark.promise("cut:budget")
@each("name", FAMILIES)
@each("words", ["the prompt does not fit", "try increasing the context size or enable context shift"])
def test_llama_cpps_error_object_is_read_whatever_its_words_say(name: FamilyName, words: str) -> None:
    """Proves: the type alone says that it is an overflow, and the counts beside the words are what the turn learns from.
    Source: llama.cpp pull request 15780."""
    error: dict[str, object] = {
        "code": 400,
        "message": words,
        "type": "exceed_context_size_error",
        "n_prompt_tokens": 14429,
        "n_ctx": 8192,
    }
    expected = (FaultKind.CONTEXT_OVERFLOW, ToldLimits(prompt_tokens=14429, context_window_tokens=8192))
    for status in (400, 500):
        fault = family(name).decode_fault(status, {}, msgspec.json.encode({"error": error}))
        assert (fault.kind, read_told(fault.message)) == expected
    fault = streamed(name, error)
    assert fault is not None and (fault.kind, read_told(fault.message)) == expected


@each("name", FAMILIES)
@each("said", OTHERS)
def test_other_words_of_tokens_and_contexts_are_no_overflow(name: FamilyName, said: str) -> None:
    """Proves: nothing is shortened for an error that has another reason."""
    body = msgspec.json.encode({"error": {"message": said, "type": "server_error", "code": 500}})
    assert family(name).decode_fault(500, {}, body).kind is not FaultKind.CONTEXT_OVERFLOW
