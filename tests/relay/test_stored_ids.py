"""Where ids of stored objects stand in requests and answers, and what looks like one and is none."""

import json
from typing import Any

import pytest

from turnwise.relay.client_request import RequestRefused, read_client_request
from turnwise.relay.stored_ids import (
    StoredId,
    ids_in_event,
    ids_in_form,
    ids_in_json,
    ids_in_lines,
    ids_in_request,
    ids_made,
    ids_of_files,
    place_of,
)
from turnwise.wire.profiles import FamilyName
from turnwise.wire.relay_facts import AskedPath

RESPONSES: FamilyName = "openai_responses"
GOOGLES = "https://generativelanguage.googleapis.com/v1beta/files/"


def body(**fields: Any) -> bytes:
    return json.dumps({"model": "m", **fields}).encode()


@pytest.mark.parametrize(
    ("family", "fields", "ids"),
    [
        (RESPONSES, {"previous_response_id": "resp_1"}, {("responses", "resp_1")}),
        (RESPONSES, {"conversation": {"id": "conv_1"}}, {("conversations", "conv_1")}),
        (
            RESPONSES,
            {"input": [{"role": "user", "content": [{"type": "input_file", "file_id": "f1"}]}]},
            {("files", "f1")},
        ),
        (
            RESPONSES,
            {"tools": [{"type": "file_search", "vector_store_ids": ["v1", "v2"]}]},
            {("vector_stores", "v1"), ("vector_stores", "v2")},
        ),
        (
            RESPONSES,
            {"tools": [{"type": "code_interpreter", "container": {"type": "auto", "file_ids": ["f1"]}}]},
            {("files", "f1")},
        ),
        (
            RESPONSES,
            {"input": [{"type": "computer_call_output", "output": {"type": "computer_screenshot", "file_id": "f1"}}]},
            {("files", "f1")},
        ),
        (RESPONSES, {"type": "tool_use", "input": [{"content": [{"file_id": "f1"}]}]}, {("files", "f1")}),
        (
            RESPONSES,
            {"tools": [{"type": "function", "name": "f", "parameters": {"properties": {"file_id": "f1"}}}]},
            set(),
        ),
        (RESPONSES, {"metadata": {"file_id": "f1"}}, set()),
        ("openai_chat", {"messages": [{"content": [{"type": "file", "file": {"file_id": "f1"}}]}]}, {("files", "f1")}),
        ("anthropic_messages", {"container": {"id": "c1", "skills": []}}, {("containers", "c1")}),
        ("anthropic_messages", {"container": "c1"}, {("containers", "c1")}),
        (
            "anthropic_messages",
            {"messages": [{"content": [{"type": "tool_use", "input": {"file_id": "my own"}}]}]},
            set(),
        ),
        (
            "anthropic_messages",
            {"messages": [{"content": [{"type": "bash_code_execution_output", "file_id": "f1"}]}]},
            set(),
        ),
        ("gemini", {"cachedContent": "cachedContents/c1"}, {("cached_contents", "c1")}),
        ("gemini", {"contents": [{"parts": [{"file_data": {"file_uri": f"{GOOGLES}f1"}}]}]}, {("files", "f1")}),
        ("gemini", {"contents": [{"parts": [{"fileData": {"fileUri": "https://youtu.be/f1"}}]}]}, set()),
        ("gemini", {"contents": [{"parts": [{"functionResponse": {"response": {"fileUri": f"{GOOGLES}f1"}}}]}]}, set()),
    ],
)
def test_an_id_is_found_wherever_it_stands(
    family: FamilyName, fields: dict[str, Any], ids: set[tuple[str, str]]
) -> None:
    assert ids_in_request(family, body(**fields)) == ids
    assert ids <= ids_in_json(body(**fields))


def test_an_id_is_not_hidden_by_how_it_is_written() -> None:
    """Proves: a key that stands twice, one with escapes, and an address that ends in another id."""
    assert {one.id for one in ids_in_json(b'{"file_id":"f1","file_id":"f2","file\\u005fid":"f3"}')} == {
        "f1",
        "f2",
        "f3",
    }
    assert {one.id for one in ids_in_json(b'{"file\\u005fid":"f1"}')} == {"f1"}
    for text in (f"{GOOGLES}f1#/f2", f"{GOOGLES}f1?x=/f2", "f1/f2", "files/f1/f2", "files/../f2"):
        assert {one.id for one in ids_in_json(json.dumps({"file_uri": text}).encode())} == {text}
    batch = {"input": {"requests": [{"params": json.loads(body(previous_interaction_id="i1"))}]}}
    assert ids_in_json(json.dumps(batch).encode()) == {("interactions", "i1")}
    for word in ("input_file_id", "inputFileId", "training_file", "TRAINING_FILE", "batch_file_ids"):
        assert {one.id for one in ids_in_json(json.dumps({word: "f1"}).encode())} == {"f1"}
    assert ids_in_json(b'{"source":{"type":"file_id","id":"f1"}}') == {("files", "f1")}
    lines = b'{"body":{"file_id":"f1"}}\n\n{"body":{"container":"c1"}}\n'
    assert ids_in_lines(lines) == {("files", "f1"), ("containers", "c1")}


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("file_ids[]", b"f1"),
        ("fileIds[0]", b"f1"),
        ("input_file_id", b"f1"),
        ("items[0][content][1][file_id]", b"f1"),
        ("items.0.content.0.file_id", b"f1"),
        ("container[file_ids][]", b"f1"),
        ("mask[file_id]", b"f1"),
    ],
)
def test_an_id_in_a_form_is_found_however_deep_its_name_is(name: str, value: bytes) -> None:
    assert ids_in_form([(name, value)]) == {("files", "f1")}
    assert ids_in_form([("metadata[file_id]", value), ("container[type]", b"auto")]) == set()


def test_a_form_names_nothing_that_nobody_owns() -> None:
    for name, value in (
        ("input[0][type]", b"item_reference"),
        ("prompt[id]", b"p1"),
        ("assistant_id", b"a1"),
        ("batch[file_name]", b"files/f1"),
    ):
        with pytest.raises(RequestRefused):
            ids_in_form([(name, value)])


def test_each_line_of_what_a_batch_could_be_is_looked_at() -> None:
    """Proves: whatever the file was uploaded for, in UTF-8 alone, and no line goes to an object by its address."""
    line: dict[str, Any] = {"custom_id": "1", "url": "/v1/responses", "body": {"previous_response_id": "r1"}}
    text = json.dumps(line).encode()
    assert ids_in_lines(text, is_batch=False) == ids_in_lines(b"\xef\xbb\xbf" + text) == {("responses", "r1")}
    assert ids_in_lines(text.replace(b"custom_id", rb"custom\u005fid"), is_batch=False) == {("responses", "r1")}
    assert ids_in_lines(b'{"file_id":"my own"}\nno JSON\n', is_batch=False) == set()
    for encoding in ("utf-16-le", "utf-16", "utf-32-be"):
        with pytest.raises(RequestRefused):
            ids_in_lines(text.decode().encode(encoding))
    for url in (
        "/v1/responses/r1",
        "/v1/responses/r1/cancel",
        "https://h/v1/responses",
        "/v1//responses",
        "/v1/%66iles",
        1,
    ):
        for is_batch in (True, False):
            with pytest.raises(RequestRefused, match="`url`"):
                ids_in_lines(json.dumps({"custom_id": "1", "url": url}).encode(), is_batch=is_batch)


@pytest.mark.parametrize(
    "uri",
    [
        f"{GOOGLES}f1/",
        f"{GOOGLES}f1/?x=1",
        "gs://bucket/f1",
        GOOGLES.replace(".", "%2e", 1) + "f1",
        GOOGLES.replace(".", "\uff0e", 1) + "f1",
        GOOGLES.replace(".", "\u00ad.", 1) + "f1",
        GOOGLES.replace(".com", ".com\\.example.org") + "f1",
        GOOGLES.replace("language.", "language.mtls.") + "f1",
    ],
)
def test_no_spelling_of_googles_address_is_somebody_elses(uri: str) -> None:
    for name in ("uri", "fileUri"):
        assert {one.id for one in ids_in_json(json.dumps({name: uri}).encode())} in ({uri}, {"f1"})
    public = {"uri": "https://storage.googleapis.com/b/files/f1", "fileUri": "https://b\u00fccher.example/files/f1"}
    assert ids_in_json(json.dumps(public).encode()) == set()


@pytest.mark.parametrize(
    ("family", "fields", "said"),
    [
        (RESPONSES, {"input": [{"type": "item_reference", "id": "msg_1"}]}, "item_reference"),
        (RESPONSES, {"input": [{"type": "reasoning", "id": "rs_1", "summary": []}]}, "reasoning"),
        (RESPONSES, {"input": [{"type": "image_generation_call", "id": "ig_1"}]}, "image_generation_call"),
        (RESPONSES, {"prompt": {"id": "pmpt_1"}}, "prompt"),
        ("openai_chat", {"messages": [{"audio": {"id": "audio_1"}}]}, "audio.id"),
        ("openai_chat", {"agent_id": "ag_1"}, "agent_id"),
        ("openai_chat", {"tools": [{"type": "document_library", "library_ids": ["l"]}]}, "library_ids"),
        ("anthropic_messages", {"container": {"skills": [{"type": "custom", "skill_id": "s"}]}}, "skill_id"),
        (
            "gemini",
            {"tools": [{"fileSearch": {"fileSearchStoreNames": ["fileSearchStores/s"]}}]},
            "fileSearchStoreNames",
        ),
        ("gemini", {"store": True}, "store"),
    ],
)
def test_what_nobody_owns_is_refused_by_name(family: FamilyName, fields: dict[str, Any], said: str) -> None:
    with pytest.raises(RequestRefused, match=f"`{said}`"):
        ids_in_request(family, body(**fields))


def test_an_answer_gives_ids_only_where_the_provider_writes_them() -> None:
    """Proves: the words of a model and what is repeated from a request give no client another's id."""
    batches = place_of("/v1/batches", "openai_responses")
    assert batches is not None
    answer = body(id="b1", output_file_id="f1", metadata={"output_file_id": "f2"}, text='{"output_file_id":"f3"}')
    assert ids_made(batches, answer, is_new=True) == {("batches", "b1"), ("files", "f1")}
    assert ids_made(batches, answer, is_new=False) == {("files", "f1")}
    talks = place_of("/v1beta/interactions", "gemini")
    assert talks is not None
    streamed = (
        b'event: interaction.start\ndata: {"interaction":{"id":"i1"}}\n\ndata: {"id":"i2","delta":{"id":"i3"}}\n\n'
    )
    assert ids_made(talks, streamed, is_new=True) == {("interactions", "i1")}
    call = {"type": "code_interpreter_call", "id": "ci", "container_id": "c1"}
    said = [{"type": "output_text", "text": '{"type":"code_interpreter_call","container_id":"c2"}', "annotations": []}]
    tools = [{"type": "code_interpreter_call", "container_id": "c3"}]
    response = {"id": "r1", "output": [call, {"type": "message", "content": said}], "tools": tools}
    event = json.dumps({"type": "response.completed", "response": response}).encode()
    assert ids_in_event("openai_responses", event) == {("responses", "r1"), ("containers", "c1")}
    made = {"type": "bash_code_execution_output", "file_id": "f1"}
    used = {"type": "tool_use", "input": {"type": "x_output", "file_id": "f2"}}
    answer = json.dumps({"container": {"id": "c1"}, "content": [{"content": [made]}, used]}).encode()
    assert ids_in_event("anthropic_messages", answer) == {StoredId("containers", "c1"), StoredId("files", "f1")}


def test_a_path_is_read_as_the_upstreams_vendor_reads_it() -> None:
    def read(path: str, family: FamilyName) -> tuple[str, str, str] | None:
        found = place_of(path, family)
        return None if found is None else (found.collection.kind, found.id, found.beneath)

    assert read("/v1/batches/b1/cancel", "openai_chat") == ("batches", "b1", "cancel")
    assert read("/v1/messages/batches/b1/results", "anthropic_messages") == ("batches", "b1", "results")
    assert read("/v1beta/batches/b1:cancel", "gemini") == ("batches", "b1", "cancel")
    assert read("/v1/models/m:batchGenerateContent", "gemini") == ("batches", "", "")
    assert read("/upload/v1beta/files", "gemini") == ("files", "", "")
    others: list[tuple[str, FamilyName]] = [
        ("/v1/evals", RESPONSES),
        ("/v1/responses", "gemini"),
        ("/v1/filesx/a", RESPONSES),
    ]
    for path, family in others:
        assert read(path, family) is None


def test_a_file_at_google_is_found_where_others_have_any_address() -> None:
    """Google has an API for Chat Completions, too."""
    picture = {"type": "image_url", "image_url": {"url": f"{GOOGLES}f1"}}
    asked = body(messages=[{"role": "user", "content": [picture]}])
    place = AskedPath(family="openai_chat", kind="generate")
    assert ids_of_files(read_client_request(place, asked, one_client=True).request) == {("files", "f1")}
    with pytest.raises(RequestRefused, match="at Google"):
        read_client_request(place, asked)
    image = {"type": "image", "source": {"type": "url", "url": f"{GOOGLES}f1"}}
    result = {"type": "tool_result", "tool_use_id": "t", "content": [image]}
    call = {"type": "tool_use", "id": "t", "name": "f", "input": {}}
    messages = [("user", "x"), ("assistant", [call]), ("user", [result])]
    asked = body(max_tokens=1, messages=[{"role": role, "content": content} for role, content in messages])
    with pytest.raises(RequestRefused, match="at Google"):
        read_client_request(AskedPath(family="anthropic_messages", kind="generate"), asked)
