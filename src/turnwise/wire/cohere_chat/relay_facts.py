"""What the gateway knows of Cohere's v2 API: it is an upstream only, so no client's field of it is ever judged."""

from turnwise.wire.cohere_chat.request import NAME
from turnwise.wire.relay_facts import BEHIND, LIMIT, NO_CALL, NO_SCHEMA, THOUGHT, RelayFacts, StoredNames

RELAY_FACTS = RelayFacts(
    name=NAME,
    title="Cohere's v2 API",
    sources=dict.fromkeys(("calls", "events", "ends", "bodies"), "Cohere API reference, Chat API (v2) with streaming"),
    has_door=False,
    paths={("POST", "/v2/chat"): "generate"},
    setting_names={
        "temperature": "temperature",
        "top_p": "p",
        "stop": "stop_sequences",
        "seed": "seed",
        "reasoning": "thinking",
        "tool_choice": "tool_choice",
        "parallel": "parallel_tool_calls",
        "output": "response_format",
        "limit": "max_tokens",
    },
    history="messages",
    system="messages",
    own_message=lambda message: "tool_plan" in message,
    own_block=lambda block: block.get("type") == "document" and "document" in block,
    stored=StoredNames(fields={}, names=(), free=frozenset(), references=lambda pairs: iter(())),
    parents=frozenset({"response_format", "thinking"}),
    rules={},
    changed={
        "messages": BEHIND,
        "tools": NO_CALL,
        "tool_choice": NO_CALL,
        "response_format": NO_SCHEMA,
        "max_tokens": LIMIT,
        "thinking": THOUGHT,
    },
    limits=("max_tokens",),
    forbid_parallel=lambda fields, profile: None,  # the API has no word for it
    takes={"top_k": "k", "frequency_penalty": "frequency_penalty", "presence_penalty": "presence_penalty"},
    json_mode=("response_format", b'{"type":"json_object"}'),
    places={
        "temperature": ("temperature",),
        "top_p": ("p",),
        "stop": ("stop_sequences",),
        "seed": ("seed",),
        "reasoning": ("thinking",),
        "tool_choice": ("tool_choice",),
        "output": ("response_format.json_schema",),
    },
    most_stops=5,
    begins="anyone",
    strict_tools=False,
    hears=False,
    file_names="never",
)
