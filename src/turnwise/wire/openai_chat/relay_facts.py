"""What the gateway knows of Chat Completions. Sources: the API reference, and the request types of the `openai` package."""

import re
from collections.abc import Iterator, Mapping
from typing import cast

from turnwise.wire.generations import adapt_gpt, generation_of
from turnwise.wire.openai_chat.parts import NAME
from turnwise.wire.profiles import Profile
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
    Adapter,
    FieldRule,
    Pairs,
    RelayFacts,
    StoredNames,
    keys_of,
    values_of,
)

_REFERENCE = "OpenAI API reference, Chat Completions"
_STORED = ("file_id", "file_ids", "vector_store_ids", "collection_ids", "library_ids", "audio.id")


def _references(pairs: Pairs) -> Iterator[str]:
    """What the model said before is named by its id, in `audio`."""
    inner = [one for audio in values_of(pairs, "audio") if isinstance(audio, tuple) for one in cast("Pairs", audio)]
    if any(key == "id" for key, _ in inner):
        yield "audio.id"
    yield from keys_of(pairs, _STORED)


# Each of these was seen in a recorded stream, and makes the vendor's own client raise or lose something.
# Mistral's reasoning models write parts where a text belongs. The keys have no backslash before them, so they stand in no text.
_CONTENT = b'"content"'
_LISTED_CONTENT = re.compile(rb'"delta"\s*:\s*\{[^{}\[\]]*"content"\s*:\s*\[')
# A client asks what kind of call begins, and forgets it where a later piece says null.
_CALL_BEGINS = re.compile(rb'"tool_calls"\s*:\s*\[.*"name"\s*:\s*"[^"]', re.DOTALL)
_NO_TYPE = re.compile(rb'"tool_calls"\s*:\s*\[.*"type"\s*:\s*null', re.DOTALL)
_IS_FUNCTION = re.compile(rb'"type"\s*:\s*"')
_CHOICES = re.compile(rb'"choices"\s*:\s*\[\s*\{')


def _reads(raw: bytes) -> bool:
    if b'"delta"' not in raw:
        return _CHOICES.search(raw) is None
    if b'"tool_calls"' in raw:
        is_untyped = _CALL_BEGINS.search(raw) is not None and _IS_FUNCTION.search(raw) is None
        if is_untyped or _NO_TYPE.search(raw) is not None:
            return False
    at = raw.find(_CONTENT)
    if at < 0 or (raw.startswith(b':"', at + len(_CONTENT)) and raw.find(_CONTENT, at + 1) < 0):
        return True  # the usual text, told first because speed counts
    return _LISTED_CONTENT.search(raw) is None


def _adapter(model: str, profile: Profile) -> Adapter | None:
    row = generation_of(model, "gpt") if profile.reasoning_request in (None, "reasoning_effort") else None
    return None if row is None else lambda fields: adapt_gpt(fields, row, is_chat=True)


# Of messages, and that no other API has.
_ROLES = ("tool", "function")
_KEYS = frozenset(
    """tool_calls tool_call_id function_call reasoning_content reasoning_details refusal annotations audio name""".split()
)


def _is_own(block: Mapping[str, object]) -> bool:
    """Mistral's `thinking` is a list, Anthropic's a text."""
    if block.get("type") == "thinking":
        return not isinstance(block.get("thinking"), str)
    return block.get("type") == "file" and "file" in block


RELAY_FACTS = RelayFacts(
    name=NAME,
    title="Chat Completions",
    sources={
        "calls": f"{_REFERENCE}, chat completion chunk object, `choices[].delta.tool_calls`",
        "events": f"{_REFERENCE}, chat completion chunk object",
        "ends": f"{_REFERENCE}, `choices[].finish_reason`",
        "bodies": f"{_REFERENCE}, `stream`",
    },
    paths={("POST", "/v1/chat/completions"): "generate"},
    names_fields=True,
    choices_field="n",
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
    own_blocks=frozenset({"image_url", "input_audio", "video_url"}),
    own_message=lambda message: message.get("role") in _ROLES or bool(_KEYS & message.keys()),
    own_block=_is_own,
    bare_messages=True,
    saying=frozenset(
        """content refusal tool_calls function_call reasoning_content reasoning reasoning_text reasoning_details""".split()
    ),
    stored=StoredNames(
        fields={"store": MAKES_STORED, "data_sources": NAMES_STORED, "agent_id": NAMES_STORED},
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
    client_reading=lambda: _reads,
    has_dialects=True,
    limits=("max_completion_tokens", "max_tokens"),
    adapter=_adapter,
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
