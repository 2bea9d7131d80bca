"""What the gateway knows of Chat Completions. Sources: the API reference, and the request types of the `openai` package."""

from collections.abc import Iterator
from typing import cast

from turnwise.wire.relay_facts import (
    BEHIND,
    LIMIT,
    MAKES_STORED,
    NAMES_STORED,
    NO_CALL,
    NO_SCHEMA,
    OURS,
    REFUSED,
    THOUGHT,
    FieldRule,
    Pairs,
    RelayFacts,
    StoredNames,
    keys_of,
    values_of,
)

_REFERENCE = "OpenAI API reference, Chat Completions"
_STORED = ("file_id", "file_ids", "vector_store_ids", "collection_ids", "audio.id")


def _references(pairs: Pairs) -> Iterator[str]:
    """What the model said before is named by its id, in `audio`."""
    inner = [one for audio in values_of(pairs, "audio") if isinstance(audio, tuple) for one in cast("Pairs", audio)]
    if any(key == "id" for key, _ in inner):
        yield "audio.id"
    yield from keys_of(pairs, _STORED)


RELAY_FACTS = RelayFacts(
    title="Chat Completions",
    sources={
        "calls": f"{_REFERENCE}, chat completion chunk object, `choices[].delta.tool_calls`",
        "events": f"{_REFERENCE}, chat completion chunk object",
        "ends": f"{_REFERENCE}, `choices[].finish_reason`",
        "bodies": f"{_REFERENCE}, `stream`",
    },
    names_fields=True,
    setting_names={
        "temperature": "temperature",
        "top_p": "top_p",
        "stop": "stop",
        "seed": "seed",
        "reasoning": "reasoning_effort",
        "tool_choice": "tool_choice",
        "parallel": "parallel_tool_calls",
        "output": "response_format",
        "limit": "max_tokens",
    },
    history="messages",
    system="messages",
    saying=frozenset(
        """content refusal tool_calls function_call reasoning_content reasoning reasoning_text reasoning_details""".split()
    ),
    stored=StoredNames(
        fields={"store": MAKES_STORED, "data_sources": NAMES_STORED},
        names=_STORED,
        free=frozenset(["function", "functions", "function_call", "custom", "metadata", "response_format"]),
        references=_references,
    ),
    parents=frozenset({"stream_options"}),
    rules={
        "n": FieldRule(refuses=True, harmless=("1",)),
        "logprobs": REFUSED,
        "top_logprobs": FieldRule(refuses=True, harmless=("0",)),
        "logit_bias": FieldRule(refuses=True, harmless=("{}",)),
        "modalities": FieldRule(refuses=True, harmless=('["text"]',)),
        "audio": REFUSED,
        "web_search_options": REFUSED,
        "response_format": REFUSED,
        "tool_choice": REFUSED,
        "store": REFUSED,
        "frequency_penalty": FieldRule(means="frequency_penalty"),
        "presence_penalty": FieldRule(means="presence_penalty"),
        "top_k": FieldRule(means="top_k"),
        "verbosity": FieldRule(means="verbosity"),
        "stream_options": OURS,  # the gateway writes the stream
        "stream_options.include_usage": OURS,
        "stream_options.include_obfuscation": OURS,
        "prompt_cache_key": OURS,
        "prompt_cache_retention": OURS,
        "cache_control": OURS,
    },
    changed={
        "messages": BEHIND,
        "tools": NO_CALL,
        "tool_choice": NO_CALL,
        "parallel_tool_calls": NO_CALL,
        "response_format": NO_SCHEMA,
        "max_tokens": LIMIT,
        "max_completion_tokens": LIMIT,
        "reasoning_effort": THOUGHT,
        "reasoning": THOUGHT,
        "thinking_budget": THOUGHT,
    },
    end_mark=b"[DONE]",
    last_event=b"data: [DONE]\n\n",
    knows_done=True,
    indexed_calls=True,
    finish_is_last=True,
    calls_finish=True,
    has_dialects=True,
    takes={
        "frequency_penalty": "frequency_penalty",
        "presence_penalty": "presence_penalty",
        "verbosity": "verbosity",
    },
    json_mode=("response_format", b'{"type":"json_object"}'),
    places={
        "temperature": ("temperature",),
        "top_p": ("top_p",),
        "stop": ("stop",),
        "seed": ("seed", "random_seed"),
        "reasoning": (
            "reasoning_effort",
            "reasoning",
            "thinking",
            "enable_thinking",
            "chat_template_kwargs.enable_thinking",
        ),
        "tool_choice": ("tool_choice",),
        "parallel": ("parallel_tool_calls",),
        "output": ("response_format.json_schema",),
    },
    most_stops=4,
    most_id=40,  # reported: opencode#12653, fastllm#45
    begins="anyone",
    strict_is_closed=True,
)
