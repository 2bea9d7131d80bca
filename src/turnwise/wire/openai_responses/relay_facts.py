"""What the gateway knows of the Responses API. Sources: the API reference, and the request types of the `openai` package."""

import re
from collections.abc import Callable, Iterator

import msgspec
from msgspec.structs import replace

from turnwise.vocab import Opaque, Reasoning, Repair, Request
from turnwise.vocab.json_values import without
from turnwise.wire.family import HttpCall
from turnwise.wire.generations import adapt_gpt, generation_of
from turnwise.wire.json_fields import (
    UNREADABLE,
    Fields,
    encode,
    extra_of,
    is_null,
    is_object,
    read_fields,
    read_items,
    string_of,
    write_array,
    write_object,
)
from turnwise.wire.openai_responses.client_frames import CLIENT_SOCKET
from turnwise.wire.openai_responses.client_tools import plain_tools
from turnwise.wire.openai_responses.parts import NAME
from turnwise.wire.openai_responses.request import ENCRYPTED_REASONING, wants_encrypted_reasoning
from turnwise.wire.profiles import Profile
from turnwise.wire.relay_facts import (
    BEHIND,
    FOREIGN_REASONING,
    LIMIT,
    MAKES_STORED,
    NAMES_STORED,
    NO_CALL,
    NO_SCHEMA,
    OURS,
    REFUSED,
    THOUGHT,
    Adapter,
    CountForm,
    FieldRule,
    Pairs,
    RelayFacts,
    StoredNames,
    keys_of,
    not_carried,
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


def _settle(fields: Fields, request: Request, profile: Profile, keeps_nothing: bool) -> tuple[Request, list[Repair]]:
    if keeps_nothing and not profile.stateless:  # the endpoint knows neither field, and stores nothing
        fields.pop("store", None)
    elif keeps_nothing:
        request = _asking_for_reasoning(fields, request)
    return request, _without_unstored_reasoning(fields, request)


def _asking_for_reasoning(fields: Fields, request: Request) -> Request:
    """Who says nothing about storing relies on the provider for its reasoning: it comes back encrypted then, so that the client
    can send it again."""
    if not wants_encrypted_reasoning(request.model, effort=request.settings.reasoning_effort):
        return request
    try:
        included = [] if is_null(fields.get("include")) else read_items(fields["include"])
    except UNREADABLE:
        included = []
    wanted = msgspec.Raw(encode(ENCRYPTED_REASONING))
    if wanted in included:
        return request
    fields["include"] = msgspec.Raw(encode([*included, wanted]))
    extra = extra_of(request)
    return replace(request, extra=Opaque(NAME, write_object({**extra, "include": fields["include"]}).decode()))


def _without_unstored_reasoning(fields: Fields, request: Request) -> list[Repair]:
    """Takes out items that neither carry their content nor are stored: OpenAI looks for an item that it never stored."""
    has_any = any(type(part) is Reasoning for message in request.messages for part in message.parts)
    if not has_any or bytes(fields.get("store", b"")) != b"false":
        return []
    items = read_items(fields["input"])
    kept = [bytes(raw) for raw in items if not (is_object(raw) and _is_bare_reasoning(read_fields(raw)))]
    if len(kept) == len(items):
        return []
    fields["input"] = msgspec.Raw(write_array(kept))
    return [not_carried("input.reasoning", because=FOREIGN_REASONING)]


def _is_bare_reasoning(item: Fields) -> bool:
    is_bare = is_null(item.get("encrypted_content")) and is_null(item.get("content"))
    return is_bare and string_of(item, "type") == "reasoning"


def _adapter(model: str, profile: Profile) -> Adapter | None:
    row = generation_of(model, "gpt")
    return None if row is None else lambda fields: adapt_gpt(fields, row, is_chat=False)


COUNTED_FIELDS = frozenset(
    """input instructions model parallel_tool_calls previous_response_id conversation reasoning text tool_choice tools
    truncation""".split()
)
"""What of a request's fields the API takes in one to count. Source: OpenAI API reference, "Get input token counts"."""


def _count_call(sent: HttpCall, keeps_bytes: bool) -> HttpCall:
    fields = read_fields(sent.body)
    if keeps_bytes:  # the API judges the client's own fields; these two are what `settle` adds
        fields = without(fields, ("store", "include"))
    else:
        fields = {key: raw for key, raw in fields.items() if key in COUNTED_FIELDS}
    return HttpCall(path="/responses/input_tokens", body=write_object(fields), headers=sent.headers)


_DATA = re.compile(rb"^data:[ \t]*(.*?)[ \t]*$", re.MULTILINE)
# Events that the client checks against what it has.
_CHECKED = (b"response.created", b"response.in_progress", b"content_part.added")
_LAST = (b"response.completed", b"response.incomplete")


class _NamedResponse(msgspec.Struct):
    id: str = ""
    output: list[msgspec.Raw] = []


class _CheckedEvent(msgspec.Struct):
    type: str = ""
    response: _NamedResponse | None = None
    item_id: str = ""
    content_index: int | None = None


_checked_event = msgspec.json.Decoder(_CheckedEvent)


def _reading() -> Callable[[bytes], bool]:
    """Each of these was seen in a recorded stream, and makes the vendor's own client raise or lose something."""
    known_id = ""
    parts: dict[str, int] = {}  # by item: how many of them have begun

    def reads(raw: bytes) -> bool:
        nonlocal known_id
        if not known_id and b"data:" in raw and b"response.created" not in raw:
            return False  # a client takes nothing before the beginning
        if not any(mark in raw for mark in _CHECKED):
            return True
        event = _read_event(raw)
        if event is None:
            return False
        if event.type == "response.content_part.added":
            expected = parts.get(event.item_id, 0)
            parts[event.item_id] = expected + 1
            return event.content_index in (None, expected)
        if event.response is not None:
            before, known_id = known_id, event.response.id
            return before in ("", known_id)
        return True

    return reads


def _end_tells(raw: bytes) -> bool:
    """Some servers leave the output of the last event empty."""
    event = _read_event(raw) if any(mark in raw for mark in _LAST) else None
    return event is None or event.response is None or bool(event.response.output)


def _read_event(raw: bytes) -> _CheckedEvent | None:
    lines = _DATA.findall(raw.replace(b"\r", b"\n"))
    try:
        return _checked_event.decode(b"\n".join(lines)) if lines else None
    except UNREADABLE:
        return None


RELAY_FACTS = RelayFacts(
    name=NAME,
    title="the Responses API",
    sources={
        "calls": f"{_REFERENCE}, function call output items and their streaming events",
        "events": f"{_REFERENCE}, streaming events",
        "ends": f"{_REFERENCE}, `status` and `incomplete_details` of the response object",
        "bodies": f"{_REFERENCE}, `stream`",
    },
    paths={("POST", "/v1/responses"): "generate", ("POST", "/v1/responses/input_tokens"): "count"},
    count=CountForm(field="input_tokens", beside={"object": "response.input_tokens"}, call=_count_call),
    socket=CLIENT_SOCKET,
    names_fields=True,
    stores_unasked=True,
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
    beside="instructions",
    own_message=lambda message: message.get("type") == "message" or ("type" in message and "role" not in message),
    own_blocks=frozenset({"input_text", "output_text", "input_image", "input_file"}),
    # What a response's item was called and whether it was whole; `role` says system or developer.
    silent=frozenset({"id", "status", "role"}),
    # Items that stand for what was said before, encrypted, or ask its server to put it so.
    sealed=frozenset({"agent_message", "compaction", "compaction_trigger", "context_compaction"}),
    plain_tools=plain_tools,
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
    client_reading=_reading,
    end_tells=_end_tells,
    flat_tools=True,
    limits=("max_output_tokens",),
    settle=_settle,
    adapter=_adapter,
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
