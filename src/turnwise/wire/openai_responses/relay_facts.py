"""What the gateway knows of the Responses API. Sources: the API reference, and the request types of the `openai` package."""

from collections.abc import Iterator

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

_REFERENCE = "OpenAI API reference, Responses"
_STORED = ("file_id", "file_ids", "vector_store_ids", "collection_ids", "container", "container_id", "skill_id")


def _references(pairs: Pairs) -> Iterator[str]:
    """A container is named by a text, and a picture of the model's by an item without its result."""
    is_image = "image_generation_call" in values_of(pairs, "type")
    if is_image and not ((results := values_of(pairs, "result")) and all(results)):
        yield "image_generation_call"
    yield from keys_of([(key, one) for key, one in pairs if key != "container" or isinstance(one, str)], _STORED)


RELAY_FACTS = RelayFacts(
    title="the Responses API",
    sources={
        "calls": f"{_REFERENCE}, function call output items and their streaming events",
        "events": f"{_REFERENCE}, streaming events",
        "ends": f"{_REFERENCE}, `status` and `incomplete_details` of the response object",
        "bodies": f"{_REFERENCE}, `stream`",
    },
    names_fields=True,
    setting_names={
        "temperature": "temperature",
        "top_p": "top_p",
        "stop": "stop",
        "seed": "seed",
        "reasoning": "reasoning.effort",
        "tool_choice": "tool_choice",
        "parallel": "parallel_tool_calls",
        "output": "text.format",
        "limit": "max_output_tokens",
    },
    history="input",
    system="input",
    # What a response's item was called and whether it was whole; `role` says system or developer.
    silent=frozenset({"id", "status", "role"}),
    # Items that stand for what was said before, encrypted, or ask its server to put it so.
    sealed=frozenset({"agent_message", "compaction", "compaction_trigger", "context_compaction"}),
    has_client_tools=True,
    stored=StoredNames(
        fields={
            "previous_response_id": NAMES_STORED,
            "conversation": NAMES_STORED,
            "prompt": NAMES_STORED,
            "store": MAKES_STORED,
            "background": MAKES_STORED,
        },
        names=(*_STORED, "image_generation_call"),
        free=frozenset(
            "parameters schema input_schema arguments metadata filters attributes headers annotations results".split()
        ),
        references=_references,
    ),
    parents=frozenset({"stream_options", "text", "reasoning"}),
    rules={
        "previous_response_id": REFUSED,
        "conversation": REFUSED,
        "prompt": REFUSED,
        "instructions": REFUSED,
        "store": REFUSED,
        "background": REFUSED,
        "top_logprobs": FieldRule(refuses=True, harmless=("0",)),
        "text.format": FieldRule(refuses=True, harmless=('{"type":"text"}',)),
        "text.verbosity": FieldRule(means="verbosity"),
        "tool_choice": REFUSED,
        "truncation": FieldRule(harmless=('"disabled"',)),
        "stream_options.include_obfuscation": OURS,
        "prompt_cache_key": OURS,
        "prompt_cache_retention": OURS,
    },
    knows_done=True,
    final_wins=True,
    changed={
        "input": BEHIND,
        "tools": NO_CALL,
        "tool_choice": NO_CALL,
        "parallel_tool_calls": NO_CALL,
        "text.format": NO_SCHEMA,
        "max_output_tokens": LIMIT,
        "reasoning.effort": THOUGHT,
    },
    takes={"verbosity": "text.verbosity"},
    json_mode=("text.format", b'{"type":"json_object"}'),
    places={
        "temperature": ("temperature",),
        "top_p": ("top_p",),
        "reasoning": ("reasoning.effort",),
        "tool_choice": ("tool_choice",),
        "parallel": ("parallel_tool_calls",),
        "output": ("text.format.schema",),
    },
    least_output_tokens=16,  # Claude Code asks with a limit of 1 whether it may ask
    most_stops=0,
    most_id=64,  # reported: opencode#12653, fastllm#45
    begins="input",
    strict_is_closed=True,
    tool_schemas="object",
)
