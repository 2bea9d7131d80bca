"""What the gateway knows of Ollama's own API: it is an upstream only, so no client's field of it is ever judged."""

from turnwise.wire.ollama_chat.messages import NAME
from turnwise.wire.relay_facts import BEHIND, LIMIT, NO_CALL, NO_SCHEMA, THOUGHT, RelayFacts, StoredNames

RELAY_FACTS = RelayFacts(
    name=NAME,
    title="Ollama's own API",
    sources=dict.fromkeys(("calls", "events", "ends", "bodies"), "Ollama API reference, Generate a chat message"),
    excused={"id_missing": "An id of a call is optional in this API. The gateway made one for its client."},
    has_door=False,
    paths={("POST", "/api/chat"): "generate"},
    setting_names={
        "temperature": "options.temperature",
        "top_p": "options.top_p",
        "stop": "options.stop",
        "seed": "options.seed",
        "reasoning": "think",
        "tool_choice": "tool_choice",
        "parallel": "parallel_tool_calls",
        "output": "format",
        "limit": "options.num_predict",
    },
    history="messages",
    system="messages",
    own_message=lambda message: bool({"thinking", "tool_name"} & message.keys()),
    stored=StoredNames(fields={}, names=(), free=frozenset(), references=lambda pairs: iter(())),
    parents=frozenset({"options"}),
    rules={},
    changed={
        "messages": BEHIND,
        "tools": NO_CALL,
        "format": NO_SCHEMA,
        "options.num_predict": LIMIT,
        "options.num_ctx": LIMIT,
        "think": THOUGHT,
    },
    limits=("options.num_predict",),
    forbid_parallel=lambda fields, profile: None,  # the API has no word for it
    takes={
        "top_k": "options.top_k",
        "frequency_penalty": "options.frequency_penalty",
        "presence_penalty": "options.presence_penalty",
    },
    json_mode=("format", b'"json"'),
    places={
        "temperature": ("options.temperature",),
        "top_p": ("options.top_p",),
        "stop": ("options.stop",),
        "seed": ("options.seed",),
        "reasoning": ("think",),
        "tool_choice": (),
        "output": ("format",),
    },
    begins="anyone",
    strict_tools=False,
    untyped_schemas=True,
    object_arguments=True,
    hears=False,
    file_names="never",
)
