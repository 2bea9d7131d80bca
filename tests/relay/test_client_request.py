"""What clients send is read, or refused by name in their own family's words."""

import json
from typing import Any

import pytest

from relay.asking_relay import FAMILIES, PLAIN, ask, body_of, path_of, plain, refusal, send
from tables import each
from turnwise.relay.client_request import (
    MAX_DEPTH,
    MAX_VALUES,
    RequestRefused,
    check_size,
    read_client_request,
    refusal_answer,
    refuse_stored,
)
from turnwise.relay.token_counting import read_count_request
from turnwise.vocab import Message, Text
from turnwise.wire.family import MODULES
from turnwise.wire.json_fields import read_fields
from turnwise.wire.relay_facts import relay_facts

STORED: list[tuple[str, dict[str, Any], str]] = [
    ("openai_chat", {"store": True}, "store"),
    ("openai_responses", {"store": True}, "store"),
    ("openai_responses", {"background": True}, "background"),
    ("openai_responses", {"previous_response_id": "resp_1"}, "previous_response_id"),
    ("openai_responses", {"conversation": "conv_1"}, "conversation"),
    ("openai_responses", {"conversation": {"id": "conv_1"}}, "conversation"),
    ("openai_responses", {"input": [{"type": "item_reference", "id": "rs_1"}]}, "input"),
    ("openai_responses", {"input": [{"id": "rs_1"}]}, "input"),
    ("anthropic_messages", {"container": "container_1"}, "container"),
    ("anthropic_messages", {"container": {"id": "container_1"}}, "container"),
    ("anthropic_messages", {"thread": {"type": "create"}}, "thread"),
    ("gemini", {"cachedContent": "cachedContents/1"}, "cachedContent"),
    ("gemini", {"cached_content": "cachedContents/1"}, "cached_content"),
    ("gemini", {"store": True}, "store"),
    ("openai_chat", {"data_sources": [{"type": "azure_search"}]}, "data_sources"),
    ("openai_chat", {"agent_id": "ag_1"}, "agent_id"),
    ("openai_responses", {"prompt": {"id": "pmpt_1"}}, "prompt"),
    ("anthropic_messages", {"container": {"skills": [{"type": "custom", "skill_id": "skill_1"}]}}, "container"),
    ("anthropic_messages", {"container": {"skills": "skill_1"}}, "container"),
]


def said_by_user(family: str, part: dict[str, Any]) -> dict[str, Any]:
    match family:
        case "openai_responses":
            return {"input": [{"role": "user", "content": [part]}]}
        case "gemini":
            return {"contents": [{"role": "user", "parts": [part]}]}
        case _:
            return {"messages": [{"role": "user", "content": [part]}]}


OWN_FILE = "https://generativelanguage.googleapis.com/v1beta/files/abc"
IMAGE = {"type": "input_image", "file_id": "file-1", "detail": "auto"}
SOURCE = {"type": "file", "file_id": "file_1"}
NAMED_INSIDE: list[tuple[str, dict[str, Any], str]] = [
    ("openai_chat", said_by_user("openai_chat", {"type": "file", "file": {"file_id": "file-1"}}), "file_id"),
    ("openai_chat", said_by_user("openai_chat", {"type": "file", "file_id": "file-1"}), "file_id"),
    (
        "openai_chat",
        {"messages": [{"role": "assistant", "content": None, "audio": {"id": "audio_1"}}]},
        "audio.id",
    ),
    ("openai_responses", said_by_user("openai_responses", {"type": "input_file", "file_id": "file-1"}), "file_id"),
    ("openai_responses", said_by_user("openai_responses", IMAGE), "file_id"),
    (
        "openai_responses",
        {"input": [{"type": "function_call_output", "call_id": "call_1", "output": [IMAGE]}]},
        "file_id",
    ),
    (
        "openai_responses",
        {"input": [{"type": "computer_call_output", "call_id": "call_1", "output": {"type": "x", "file_id": "f"}}]},
        "file_id",
    ),
    ("openai_responses", {"input": [{"type": "image_generation_call", "id": "ig_1"}]}, "image_generation_call"),
    (
        "openai_responses",
        {"input": [{"type": "code_interpreter_call", "id": "ci_1", "code": "1", "container_id": "cntr_1"}]},
        "container_id",
    ),
    ("openai_responses", {"tools": [{"type": "file_search", "vector_store_ids": ["vs_1"]}]}, "vector_store_ids"),
    ("openai_responses", {"tools": [{"type": "code_interpreter", "container": "cntr_1"}]}, "container"),
    (
        "openai_responses",
        {"tools": [{"type": "code_interpreter", "container": {"type": "auto", "file_ids": ["file-1"]}}]},
        "file_ids",
    ),
    (
        "openai_responses",
        {"tools": [{"type": "shell", "environment": {"type": "container_reference", "container_id": "cntr_1"}}]},
        "container_id",
    ),
    (
        "openai_responses",
        {"tools": [{"type": "image_generation", "input_image_mask": {"file_id": "file-1"}}]},
        "file_id",
    ),
    ("anthropic_messages", said_by_user("anthropic_messages", {"type": "document", "source": SOURCE}), "file_id"),
    ("anthropic_messages", said_by_user("anthropic_messages", {"type": "image", "source": SOURCE}), "file_id"),
    (
        "anthropic_messages",
        said_by_user("anthropic_messages", {"type": "container_upload", "file_id": "file_1"}),
        "file_id",
    ),
    (
        "anthropic_messages",
        said_by_user(
            "anthropic_messages",
            {
                "type": "document",
                "source": {"type": "content", "content": [{"type": "image", "source": SOURCE}]},
            },
        ),
        "file_id",
    ),
    (
        "anthropic_messages",
        said_by_user(
            "anthropic_messages",
            {"type": "tool_result", "tool_use_id": "toolu_1", "content": [{"type": "document", "source": SOURCE}]},
        ),
        "file_id",
    ),
    ("gemini", said_by_user("gemini", {"fileData": {"fileUri": OWN_FILE, "mimeType": "image/png"}}), "fileUri"),
    ("gemini", said_by_user("gemini", {"file_data": {"file_uri": "files/abc"}}), "file_uri"),
    ("gemini", said_by_user("gemini", {"fileData": {"fileUri": "gs://bucket/1"}}), "fileUri"),
    ("gemini", said_by_user("gemini", {"fileData": {"fileUri": OWN_FILE.upper()}}), "fileUri"),
    (
        "gemini",
        said_by_user("gemini", {"fileData": {"fileUri": "https://x@generativelanguage.googleapis.com.:443/files/1"}}),
        "fileUri",
    ),
    ("gemini", {"tools": [{"fileSearch": {"fileSearchStoreNames": ["fileSearchStores/1"]}}]}, "fileSearchStoreNames"),
    (
        "gemini",
        {"tools": [{"file_search": {"file_search_store_names": ["fileSearchStores/1"]}}]},
        "file_search_store_names",
    ),
    ("gemini", {"tools": [{"retrieval": {"vertexAiSearch": {"datastore": "d"}}}]}, "retrieval"),
]


@each("escaped", [False, True])
@each(("family", "fields", "name"), NAMED_INSIDE)
def test_what_content_and_tools_name_of_what_is_stored_is_refused(
    family: str, fields: dict[str, Any], name: str, escaped: bool
) -> None:
    """A file of another client, its vector store or its container: however the key is written."""
    body = json.dumps(plain(family, **fields))
    if escaped:
        key = name.removesuffix(".id")
        body = body.replace(f'"{key}"', f'"\\u{ord(key[0]):04x}{key[1:]}"')
    with pytest.raises(RequestRefused, match=rf"`{name}` in `{next(iter(fields))}` is not served here: .*one_client"):
        ask(family, body.encode())
    ask(family, body.encode(), one_client=True)


@each(("family", "name"), [(family, name) for family in MODULES for name in relay_facts(family).stored.names])
def test_each_name_of_the_list_is_found_inside_a_tool(family: Any, name: str) -> None:
    """The list is the only one: what is written there is looked for in bodies, too."""
    known: dict[str, dict[str, Any]] = {
        "audio.id": {"audio": {"id": "x"}},
        "container": {"container": "x"},
        "image_generation_call": {"type": "image_generation_call", "id": "x"},
        "fileUri": {"fileUri": "files/x"},
        "uri": {"uri": "files/x"},
    }
    fields = {"tools": [{"type": "t", **known.get(name, {name: ["x"]})}]}
    with pytest.raises(RequestRefused, match=f"`{name}` in `tools` is not served here"):
        refuse_stored(family, read_fields(json.dumps(fields)))


@pytest.mark.parametrize(
    ("family", "body"),
    [
        (
            "openai_responses",
            '{"model":"m","input":"hi","tools":[{"type":"file_search","vector_store_ids":["v"],"vector_store_ids":null}]}',
        ),
        (
            "openai_responses",
            '{"model":"m","input":[{"type":"image_generation_call","id":"ig","result":"aGk=","result":null}]}',
        ),
        (
            "anthropic_messages",
            '{"model":"m","max_tokens":9,"messages":[{"role":"user","content":[{"type":"document","title":"t","source":'
            '{"type":"file","type":"x_output","file_id":"f","file_id":null}}]}]}',
        ),
        (
            "gemini",
            '{"contents":[{"role":"user","parts":[{"fileData":{"fileUri":"files/1","fileUri":"https://a.invalid/1"}}]}]}',
        ),
    ],
)
def test_a_key_that_stands_twice_hides_nothing(family: str, body: str) -> None:
    """Which of the two counts is the upstream's choice."""
    with pytest.raises(RequestRefused, match="is not served here"):
        ask(family, body.encode())


SCHEMA = {"type": "object", "properties": {"file_id": {"type": "string"}, "container": {"type": "string"}}}
FREE_NAMES: list[tuple[str, dict[str, Any]]] = [
    ("openai_chat", {"tools": [{"type": "function", "function": {"name": "f", "parameters": SCHEMA}}]}),
    ("openai_chat", said_by_user("openai_chat", {"type": "text", "text": '{"file_id": "file-1"}'})),
    ("openai_chat", {"modalities": ["text", "audio"], "audio": {"voice": "alloy", "format": "wav"}}),
    ("openai_responses", {"tools": [{"type": "function", "name": "f", "parameters": SCHEMA, "strict": False}]}),
    ("openai_responses", {"tools": [{"type": "code_interpreter", "container": {"type": "auto"}}]}),
    ("openai_responses", {"text": {"format": {"type": "json_schema", "name": "n", "schema": SCHEMA}}}),
    (
        "openai_responses",
        {"input": [{"type": "file_search_call", "id": "fs_1", "queries": ["q"], "results": [{"file_id": "file-1"}]}]},
    ),
    ("openai_responses", {"input": [{"type": "image_generation_call", "id": "ig_1", "result": "iVBORw0KGgo="}]}),
    ("anthropic_messages", {"tools": [{"name": "f", "input_schema": SCHEMA}]}),
    (
        "anthropic_messages",
        {
            "messages": [
                *({"role": "user", "content": "hi"},),
                {
                    "role": "assistant",
                    "content": [{"type": "tool_use", "id": "t", "name": "f", "input": {"file_id": "1"}}],
                },
                {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "t", "content": "done"}]},
            ]
        },
    ),
    ("anthropic_messages", {"container": {"skills": [{"type": "anthropic", "skill_id": "pptx"}]}}),
    (
        "anthropic_messages",
        said_by_user("anthropic_messages", {"type": "code_execution_output", "file_id": "file_1"}),
    ),
    ("gemini", said_by_user("gemini", {"fileData": {"fileUri": "https://www.youtube.com/watch?v=1"}})),
    ("gemini", said_by_user("gemini", {"fileData": {"fileUri": "https://storage.googleapis.com/public/1.png"}})),
    ("gemini", {"tools": [{"functionDeclarations": [{"name": "f", "parametersJsonSchema": SCHEMA}]}]}),
    (
        "gemini",
        {
            "contents": [
                {"role": "user", "parts": [{"text": "hi"}]},
                {"role": "model", "parts": [{"functionCall": {"name": "f", "args": {"fileUri": "files/1"}}}]},
                {
                    "role": "user",
                    "parts": [{"functionResponse": {"name": "f", "response": {"retrieval": 1, "fileUri": "files/1"}}}],
                },
            ]
        },
    ),
]


@each(("family", "fields"), FREE_NAMES)
def test_the_same_names_are_free_in_somebodys_own_json(family: str, fields: dict[str, Any]) -> None:
    """A tool of the client's may well have an argument `file_id`."""
    ask(family, plain(family, **fields))


@each(("family", "fields", "name"), [case for case in NAMED_INSIDE if case[0] in ("anthropic_messages", "gemini")])
def test_counting_names_nothing_that_is_stored(family: str, fields: dict[str, Any], name: str) -> None:
    """The upstream that counts reads the file, too."""
    asked = path_of(family)
    with pytest.raises(RequestRefused, match=f"`{name}`"):
        read_count_request(asked, json.dumps(plain(family, **fields)).encode())


@each(("family", "fields", "field"), STORED)
def test_what_is_stored_at_the_provider_is_refused_by_name(family: str, fields: dict[str, Any], field: str) -> None:
    """With the gateway's key it could be another client's; a route that belongs to one client sends it as it came."""
    assert refusal(family, plain(family, **fields)) == field
    sent = body_of(send(family, plain(family, **fields), to=family, one_client=True))
    assert {key: sent[key] for key in fields} == fields


@pytest.mark.parametrize(
    ("family", "fields"),
    [
        ("openai_chat", {"store": False}),
        ("openai_chat", {"store": None}),
        ("openai_responses", {"store": False, "background": False, "previous_response_id": None, "conversation": None}),
        ("anthropic_messages", {"container": None}),
        ("anthropic_messages", {"container": {"skills": []}}),
        ("gemini", {"store": False, "cachedContent": None}),
    ],
)
def test_fields_that_store_nothing_are_served(family: str, fields: dict[str, Any]) -> None:
    """The same fields may say that nothing is stored."""
    assert refusal(family, plain(family, **fields)) == ""


def test_a_body_that_does_not_mention_store_is_served_without_storing() -> None:
    """OpenAI's default is to store; what the client sent stays beside it."""
    asked = ask("openai_responses", plain("openai_responses"))
    assert json.loads(asked.body) == PLAIN["openai_responses"]
    sent = body_of(send("openai_responses", plain("openai_responses"), to="openai_responses"))
    assert sent == {"model": "gpt-5", "input": "hi", "store": False, "include": ["reasoning.encrypted_content"]}


@pytest.mark.parametrize("family", FAMILIES)
def test_a_plain_request_is_read_into_the_vocabulary(family: str) -> None:
    """Each family's smallest request says the same."""
    asked = ask(family, plain(family))
    assert asked.request.messages == (Message("user", (Text("hi"),)),)
    assert asked.request.model == PLAIN[family].get("model", "gemini-2.5-pro")
    assert not asked.streams


def test_a_stream_is_asked_for_by_path_or_body() -> None:
    """Gemini's path says it, the others' bodies do."""
    assert ask("gemini", plain("gemini"), stream=True).streams
    for family in ("openai_chat", "openai_responses", "anthropic_messages"):
        assert ask(family, plain(family, stream=True)).streams


def test_the_refusal_is_an_error_of_the_clients_own_api() -> None:
    """OpenAI's clients show `param`, Anthropic's the type, Google's the status."""
    refused = RequestRefused("`n` cannot be carried", field="n")
    assert {
        family: (status, json.loads(body)) for family in FAMILIES for status, body in [answer(refused, family)]
    } == {
        "openai_chat": (400, openai_error("n")),
        "openai_responses": (400, openai_error("n")),
        "anthropic_messages": (
            400,
            {"type": "error", "error": {"type": "invalid_request_error", "message": "`n` cannot be carried"}},
        ),
        "gemini": (
            400,
            {"error": {"code": 400, "message": "`n` cannot be carried", "status": "INVALID_ARGUMENT"}},
        ),
    }


def answer(refused: RequestRefused, family: Any) -> tuple[int, bytes]:
    return refusal_answer(refused, client=family)


def openai_error(field: str) -> dict[str, Any]:
    message = "`n` cannot be carried"
    return {"error": {"message": message, "type": "invalid_request_error", "param": field, "code": None}}


@each("family", FAMILIES)
@each("body", [b"", b"{", b"[]", b"null", b'"x"', b"\xff", b'{"a": "\xff"}', b'{"a": 1} x', b"{} {}", b'{"a": NaN}'])
def test_a_body_that_is_no_json_object_is_refused(family: str, body: bytes) -> None:
    """A clear refusal, whatever came in place of a body."""
    with pytest.raises(RequestRefused):
        read_client_request(path_of(family), body)


@each("family", FAMILIES)
@each("half", ["\\ud83d", "\\uD83D and on", "\\udc00", "\\ud83d\\ud83d", "\\\\\\ud83d"])
def test_half_a_character_is_called_that(family: str, half: str) -> None:
    """JavaScript's clients send it where they cut a text inside an emoji: the message says so, and nothing about JSON's end."""
    body = json.dumps(PLAIN[family]).replace("hi", half).encode()
    with pytest.raises(RequestRefused, match="a string holds half of a character"):
        read_client_request(path_of(family), body)


@each("family", FAMILIES)
@each("whole", ["\\ud83d\\ude00", "\\\\ud83d"])
def test_whole_characters_are_served_however_they_are_written(family: str, whole: str) -> None:
    """Two halves side by side, and a backslash that is one."""
    ask(family, json.dumps(PLAIN[family]).replace("hi", whole).encode())


NESTED = [
    b"[" * 100_000,
    b'{"a":' * 100_000 + b"1" + b"}" * 100_000,
    b'{"tools":' + b"[" * (MAX_DEPTH + 1) + b"]" * (MAX_DEPTH + 1) + b"}",
    b'{"messages":[' + b"1," * MAX_VALUES + b"1]}",
    b'{"messages":[' + b"{}," * MAX_VALUES + b"{}]}",
]


@each("body", NESTED, ids=range(len(NESTED)))
@each("family", FAMILIES)
def test_depth_and_number_of_values_are_bounded(family: str, body: bytes) -> None:
    """A body of a megabyte may hold a million values or levels: it is refused before one of them is built."""
    with pytest.raises(RequestRefused, match=r"values|deeper"):
        read_client_request(path_of(family), body)


def test_brackets_and_commas_inside_of_strings_do_not_count() -> None:
    """A long text full of code is one value."""
    check_size(json.dumps({"a": '[{"x", \\' * 300_000, "b": [[1]]}).encode())


def test_a_string_that_never_ends_costs_no_more_than_its_length() -> None:
    """Each byte is looked at once: an open string full of escaped quotes is not tried again from each of them."""
    check_size(b'{"a":' + b"[]" * MAX_DEPTH + b'"' + b'\\"' * 2_000_000)


def test_the_deepest_body_that_is_served_has_the_bound() -> None:
    """One level more is refused."""
    check_size(b"[" * MAX_DEPTH + b"]" * MAX_DEPTH)
    with pytest.raises(RequestRefused):
        check_size(b"[" * (MAX_DEPTH + 1) + b"]" * (MAX_DEPTH + 1))
