"""What the gateway knows of the Interactions API. Sources: Google's reference, and the request types of `google-genai` 3.6."""

from collections.abc import Iterator

from turnwise.wire.gemini.parts import is_own_file
from turnwise.wire.gemini_interactions.parts import NAME
from turnwise.wire.relay_facts import (
    BEHIND,
    LIMIT,
    MAKES_STORED,
    NAMES_STORED,
    NO_CALL,
    NO_SCHEMA,
    REFUSED,
    THOUGHT,
    FieldRule,
    Pairs,
    RelayFacts,
    StoredNames,
)

_REFERENCE = "Gemini API reference, Interactions"
_STORED = ("uri", "file_search_store_names", "environment", "environment_id")


def _references(pairs: Pairs) -> Iterator[str]:
    """Of addresses, Google's alone."""
    for key, value in pairs:
        if key in _STORED and value and (key != "uri" or (isinstance(value, str) and is_own_file(value))):
            yield key


_GENERATION = "generation_config"

RELAY_FACTS = RelayFacts(
    name=NAME,
    title="the Interactions API",
    sources={
        "calls": f"{_REFERENCE}, `FunctionCallStep`",
        "events": f"{_REFERENCE}, streaming events",
        "ends": f"{_REFERENCE}, `status`",
        "bodies": f"{_REFERENCE}, `stream`",
    },
    passes_if_listed=True,
    paths={("POST", "/v1beta/interactions"): "generate", ("POST", "/v1/interactions"): "generate"},
    names_fields=False,
    stores_unasked=True,
    setting_names={
        "temperature": f"{_GENERATION}.temperature",
        "top_p": f"{_GENERATION}.top_p",
        "stop": f"{_GENERATION}.stop_sequences",
        "seed": f"{_GENERATION}.seed",
        "reasoning": f"{_GENERATION}.thinking_level",
        "tool_choice": f"{_GENERATION}.tool_choice",
        "parallel": "parallel_tool_calls",
        "output": "response_format",
        "limit": f"{_GENERATION}.max_output_tokens",
    },
    history="input",
    system="system_instruction",
    beside="system_instruction",
    own_message=lambda message: (
        str(message.get("type", "")) in ("user_input", "model_output", "thought", "function_result")
    ),
    stored=StoredNames(
        fields={
            "previous_interaction_id": NAMES_STORED,
            "cached_content": NAMES_STORED,
            "continuation_token": NAMES_STORED,
            "environment": NAMES_STORED,
            "webhook_config": NAMES_STORED,
            "store": MAKES_STORED,
            "background": MAKES_STORED,
        },
        names=_STORED,
        free=frozenset("arguments result parameters schema labels annotations".split()),
        references=_references,
    ),
    parents=frozenset({_GENERATION}),
    rules={
        "previous_interaction_id": REFUSED,
        "cached_content": REFUSED,
        "continuation_token": REFUSED,
        "environment": REFUSED,
        "system_instruction": REFUSED,
        "store": REFUSED,
        "background": REFUSED,
        "agent": REFUSED,
        "agent_config": REFUSED,
        "webhook_config": REFUSED,
        "response_format": FieldRule(
            refuses=True, harmless=('{"type":"text"}', '{"type":"text","mime_type":"text/plain"}')
        ),
        "response_mime_type": FieldRule(refuses=True, harmless=('"text/plain"',)),
        "response_modalities": FieldRule(refuses=True, harmless=('["text"]',)),
        f"{_GENERATION}.tool_choice": FieldRule(refuses=True, harmless=('"auto"',)),
        f"{_GENERATION}.thinking_summaries": FieldRule(harmless=('"auto"', '"none"')),
    },
    knows_done=True,
    flat_tools=False,
    changed={
        "input": BEHIND,
        "tools": NO_CALL,
        f"{_GENERATION}.tool_choice": NO_CALL,
        "response_format": NO_SCHEMA,
        f"{_GENERATION}.max_output_tokens": LIMIT,
        f"{_GENERATION}.thinking_level": THOUGHT,
        f"{_GENERATION}.thinking_summaries": THOUGHT,
    },
    limits=(f"{_GENERATION}.max_output_tokens",),
    forbid_parallel=lambda fields, profile: None,  # the API has no word for it
    json_mode=("response_format", b'{"type":"text","mime_type":"application/json"}'),
    places={
        "temperature": (f"{_GENERATION}.temperature",),
        "top_p": (f"{_GENERATION}.top_p",),
        "stop": (f"{_GENERATION}.stop_sequences",),
        "seed": (f"{_GENERATION}.seed",),
        "reasoning": (f"{_GENERATION}.thinking_level",),
        "tool_choice": (f"{_GENERATION}.tool_choice",),
        "output": ("response_format.schema",),
    },
    most_stops=5,
    begins="input",
    keeps_system=lambda profile: False,
    strict_tools=False,
    untyped_schemas=True,
    tool_schemas="standard",
    object_arguments=True,
    assistant_files=True,
    file_names="never",
    error_results="always",
)
