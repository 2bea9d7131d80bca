"""What two teams of a company store at one provider with the gateway's one key: each has its own, in each API."""

import http.client
import json
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any, NamedTuple

import anthropic
import openai
import pytest
from google import genai
from google.genai import errors as google_errors
from google.genai import types
from google.genai._interactions_errors import NotFoundError

from gateway.budgeted import BY
from gateway.object_store import KEY, ObjectStore, object_store
from gateway.served_gateway import ServedGateway, served_gateway
from turnwise import Journal
from turnwise.journal.gateway_rows import GatewayOwner
from waits import HANG_S

PASSES = """pass = ["/v1/files", "/v1/files/*", "/v1/files/*/content", "/v1/batches", "/v1/batches/*", "/v1/batches/*/cancel",
"/v1/responses/*", "/v1/responses/*/cancel", "/v1/responses/*/input_items", "/v1/conversations", "/v1/conversations/*",
"/v1/conversations/*/items", "/v1/containers", "/v1/containers/*", "/v1/containers/*/files", "/v1/vector_stores",
"/v1/vector_stores/*", "/v1/vector_stores/*/files", "/v1/uploads",
"/v1/uploads/*/cancel", "/v1/uploads/*/parts", "/v1/uploads/*/complete",
"GET /v1/chat/completions",
"/v1/chat/completions/*", "/v1/chat/completions/*/messages", "/v1/audio/transcriptions"]"""
CONFIG = """
[[route]]
models = ["gpt-*", "whisper-1"]
aliases = {{ ear-of-clients = "whisper-1" }}
stored = "team"
upstream = {{ url = "{url}/v1", family = "openai_responses", key_env = "STORE_KEY" }}
{passes}

[[route]]
models = ["chat-*"]
stored = "team"
upstream = {{ url = "{url}/v1", family = "openai_chat", key_env = "STORE_KEY" }}

[[route]]
models = ["claude-*"]
stored = "team"
upstream = {{ url = "{url}", family = "anthropic_messages", key_env = "STORE_KEY" }}
pass = ["/v1/files", "/v1/files/*", "/v1/files/*/content", "/v1/messages/batches", "/v1/messages/batches/*",
"/v1/messages/batches/*/cancel", "/v1/messages/batches/*/results"]

[[route]]
models = ["gemini-*"]
stored = "team"
upstream = {{ url = "{url}/v1beta", family = "gemini", key_env = "STORE_KEY" }}
pass = ["/upload/v1/files", "/upload/v1beta/files", "/v1/files", "/v1/files/*", "/v1/files/*:download", "/v1/cachedContents",
"/v1/cachedContents/*", "/v1/models/*:batchGenerateContent", "/v1/batches", "/v1/batches/*", "/v1/batches/*:cancel",
"/v1/interactions", "/v1/interactions/*", "/v1/interactions/*/cancel", "/v1beta/batches"]

[[route]]
models = ["picture-*"]
upstream = {{ url = "{url}/v1", family = "openai_responses", key_env = "STORE_KEY" }}
pass = ["/v1/images/edits"]
"""


class Company(NamedTuple):
    """`a` and `b` are keys of two teams, `a2` another one of the first, `lone` one without a team."""

    store: ObjectStore
    gateway: ServedGateway
    keys: dict[str, str]
    open: ExitStack  # closes the clients

    def openai(self, who: str) -> openai.OpenAI:
        made = openai.OpenAI(api_key=self.keys[who], base_url=f"{self.url}/v1", max_retries=0, timeout=HANG_S)
        return self.open.enter_context(made)

    def anthropic(self, who: str) -> anthropic.Anthropic:
        made = anthropic.Anthropic(api_key=self.keys[who], base_url=self.url, max_retries=0, timeout=HANG_S)
        return self.open.enter_context(made)

    def google(self, who: str) -> genai.Client:
        options = types.HttpOptions(base_url=self.url, timeout=int(HANG_S * 1000))
        return self.open.enter_context(genai.Client(api_key=self.keys[who], http_options=options, vertexai=False))

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.gateway.port}"

    def ask(self, who: str, method: str, path: str, body: object = None) -> tuple[int, Any]:
        data = None if body is None else json.dumps(body).encode()
        headers = {"authorization": f"Bearer {self.keys[who]}", "content-type": "application/json"}
        asked = urllib.request.Request(f"{self.url}{path}", data, headers, method=method)
        try:
            with urllib.request.urlopen(asked, timeout=HANG_S) as answer:
                return answer.status, json.loads(answer.read() or b"null")
        except urllib.error.HTTPError as error:
            with error:
                return error.code, json.loads(error.read())


def add_keys(target: Path | str) -> dict[str, str]:
    with Journal(target) as journal:
        return {
            name: journal.gateway.add_key(GatewayOwner(name=name, team=team), by=BY)
            for name, team in (("a", "red"), ("a2", "red"), ("b", "blue"), ("lone", ""))
        }


@pytest.fixture(scope="module")
def company(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Company]:
    folder = tmp_path_factory.mktemp("company")
    keys = add_keys(folder / "state" / "journal.db")
    with object_store() as store, ExitStack() as stack:
        config = folder / "gateway.toml"
        config.write_text(CONFIG.format(url=store.url, passes=PASSES))
        words = ("--config", str(config))
        with served_gateway(folder, *words, upstream=None, env={"STORE_KEY": KEY}) as gateway:
            yield Company(store, gateway, keys, stack)


Try = Callable[[], object]


def missing(*tries: Try) -> None:
    """Each of them is 404, in the words of the client's own SDK."""
    for number, one in enumerate(tries):
        try:
            one()
        except (openai.NotFoundError, anthropic.NotFoundError, google_errors.ClientError, NotFoundError) as error:
            assert "404" in str(error) and "no object `" in str(error), (number, error)
        else:
            pytest.fail(f"try {number} was answered")


def test_no_form_and_no_header_hides_an_id(company: Company) -> None:
    """Proves: a form where the vendor takes JSON, names of fields within fields, and a header that claims to come from another
    vendor's client let no id of the other team through to the provider."""
    theirs = company.openai("lone").files.create(file=("f", b"theirs"), purpose="user_data").id
    line = json.dumps(
        {"custom_id": "1", "url": "/v1/responses", "body": {"model": "m", "input": [{"file_id": theirs}]}}
    )
    edit = json.dumps({"model": "picture-1", "images": [{"file_id": theirs}]}).encode()
    tries: list[tuple[str, list[tuple[str, str]] | bytes]] = [
        ("/v1/batches", [("input_file_id", theirs), ("endpoint", "/v1/responses")]),
        ("/v1/conversations", [("items[0][content][0][file_id]", theirs)]),
        ("/v1/files", [("purpose", "user_data"), ('file"; filename="f', line)]),
        ("/v1/images/edits", [("model", "picture-1"), ("mask[file_id]", theirs)]),
        ("/v1/images/edits", edit),
    ]
    for number, (path, told) in enumerate(tries):
        headers = {"authorization": f"Bearer {company.keys['a']}", "content-type": "application/json"}
        body = told if isinstance(told, bytes) else b""
        if isinstance(told, list):
            headers["content-type"] = "multipart/form-data; boundary=abc"
            parts = [
                f'--abc\r\ncontent-disposition: form-data; name="{name}"\r\n\r\n{value}\r\n' for name, value in told
            ]
            body = ("".join(parts) + "--abc--\r\n").encode()
        for more in ({}, {"x-goog-api-key": company.keys["a"]}, {"anthropic-version": "2023-06-01"}):
            before = len(company.store.received)
            asked = http.client.HTTPConnection("127.0.0.1", company.gateway.port, timeout=HANG_S)
            asked.request("POST", path, body, headers | more)
            assert asked.getresponse().status in (400, 404), (number, more)
            asked.close()
            assert company.store.received[before:] == [], (number, more)


def test_files_and_batches_of_openai(company: Company) -> None:
    """Proves: every method on a file or batch of the other team is 404, in a body, too; lists have one's own alone; the file
    that the provider makes for a batch belongs to the team of the batch; content comes as it is."""
    a, a2, b = company.openai("a"), company.openai("a2"), company.openai("b")
    line = {"custom_id": "1", "method": "POST", "url": "/v1/responses", "body": {"model": "gpt-x", "input": "hi"}}
    mine = a.files.create(file=("in.jsonl", json.dumps(line).encode()), purpose="batch")
    theirs = b.files.create(file=("in.jsonl", json.dumps(line).encode()), purpose="batch")
    batch = a.batches.create(input_file_id=mine.id, endpoint="/v1/responses", completion_window="24h")
    assert batch.output_file_id is not None
    missing(
        lambda: b.files.retrieve(mine.id),
        lambda: b.files.content(mine.id),
        lambda: b.files.delete(mine.id),
        lambda: b.batches.create(input_file_id=mine.id, endpoint="/v1/responses", completion_window="24h"),
        lambda: b.batches.retrieve(batch.id),
        lambda: b.batches.cancel(batch.id),
        lambda: b.files.content(batch.output_file_id or ""),
        lambda: b.files.list(after=mine.id),
        lambda: company.openai("lone").files.retrieve(mine.id),
        lambda: a.files.retrieve(company.store.add("/v1/files")["id"]),  # made before, or elsewhere: nobody's
        lambda: a.files.create(
            file=("in.jsonl", json.dumps({**line, "body": {"input": [{"file_id": theirs.id}]}}).encode()),
            purpose="batch",
        ),
    )
    assert a2.files.retrieve(mine.id).id == mine.id
    assert a2.files.content(batch.output_file_id).content == b"<html>of a file</html>\x00\xff"
    assert {one.id for one in a.files.list()} == {mine.id, batch.output_file_id}
    assert [one.id for one in b.files.list()] == [theirs.id]
    assert [one.id for one in a2.batches.list()] == [batch.id]
    assert list(b.batches.list()) == []
    assert a.batches.cancel(batch.id).id == batch.id
    assert a2.files.delete(mine.id).deleted
    missing(lambda: a.files.retrieve(mine.id))


def test_a_list_goes_on_behind_the_objects_of_others(company: Company) -> None:
    """Proves: the clients' own paging finds all of one's own among several pages of others', each once, in order."""
    a, lone = company.openai("a"), company.openai("lone")
    own: list[str] = []
    for number in range(260):
        if number % 60 == 0:
            own.append(lone.vector_stores.create(name="mine").id)
        company.store.add("/v1/vector_stores")
    assert [one.id for one in lone.vector_stores.list(limit=2)] == own
    page = lone.vector_stores.list(limit=2)
    assert ([one.id for one in page.data], page.has_more) == (own[:2], True)
    assert list(a.vector_stores.list()) == []


def test_responses_conversations_and_containers_of_openai(company: Company) -> None:
    """Proves: a response that is stored is its team's from the first event of its stream on, and so is a container that it has
    made; without `store` nothing is stored; ids in a body are looked at wherever they stand."""
    a, a2, b = company.openai("a"), company.openai("a2"), company.openai("b")
    first = a.responses.create(model="gpt-x", input="hi", store=True)
    with a.responses.create(
        model="gpt-x", input="hi", store=True, stream=True, previous_response_id=first.id
    ) as stream:
        created = next(iter(stream))
        assert created.type == "response.created"
        second = created.response.id
        assert a2.responses.retrieve(second).id == second
        assert [event.type for event in stream][-1] == "response.completed"
    tool: Any = {"type": "code_interpreter", "container": {"type": "auto"}}
    made = a.responses.create(model="gpt-x", input="hi", tools=[tool])
    container = next(item.container_id for item in made.output if item.type == "code_interpreter_call")
    conversation = a.conversations.create()
    store = a.vector_stores.create(name="s")
    own = a.containers.create(name="c")
    used: Any = {"type": "code_interpreter", "container": container}
    search: Any = {"type": "file_search", "vector_store_ids": [store.id]}
    missing(
        *[lambda one=one: b.responses.retrieve(one) for one in (first.id, second)],
        lambda: b.responses.delete(first.id),
        lambda: b.responses.cancel(first.id),
        lambda: b.responses.input_items.list(first.id),
        lambda: b.responses.create(model="gpt-x", input="hi", previous_response_id=second),
        lambda: b.responses.create(model="gpt-x", input="hi", stream=True, previous_response_id=second),
        lambda: b.responses.create(model="gpt-x", input="hi", conversation=conversation.id),
        lambda: b.responses.create(model="gpt-x", input="hi", conversation={"id": conversation.id}),
        lambda: b.responses.create(model="gpt-x", input="hi", tools=[used]),
        lambda: b.responses.create(model="gpt-x", input="hi", tools=[search]),
        lambda: b.responses.input_tokens.count(model="gpt-x", input="hi", previous_response_id=second),
        lambda: b.conversations.retrieve(conversation.id),
        lambda: b.conversations.update(conversation.id, metadata={}),
        lambda: b.conversations.delete(conversation.id),
        lambda: b.conversations.items.list(conversation.id),
        lambda: b.containers.retrieve(container),
        lambda: b.containers.delete(own.id),
        lambda: b.containers.files.list(container),
        lambda: b.vector_stores.retrieve(store.id),
        lambda: b.vector_stores.delete(store.id),
        lambda: b.vector_stores.files.list(store.id),
        lambda: b.vector_stores.files.create(store.id, file_id="file-1"),
    )
    assert a2.responses.create(model="gpt-x", input="hi", previous_response_id=second, tools=[used, search]).status
    assert a2.conversations.retrieve(conversation.id).id == conversation.id
    assert {one.id for one in a.containers.list()} == {container, own.id}
    assert list(b.containers.list()) == []
    # What `store` does not say stays nobody's: it went up as false.
    loose = a.responses.create(model="gpt-x", input="hi")
    missing(lambda: a.responses.retrieve(loose.id))
    for body in ({"input": [{"type": "item_reference", "id": "msg_1"}]}, {"input": "hi", "prompt": {"id": "pmpt_1"}}):
        assert company.ask("a", "POST", "/v1/responses", {"model": "gpt-x", **body})[0] == 400


def test_stored_chat_completions_and_uploads(company: Company) -> None:
    """Proves: an upload is its team's, and so are its parts: none goes into the upload of another team."""
    a, a2, b = company.openai("a"), company.openai("a2"), company.openai("b")
    hi: Any = [{"role": "user", "content": "hi"}]
    kept = a.chat.completions.create(model="chat-x", messages=hi, store=True)
    upload = a.uploads.create(bytes=1, filename="f", mime_type="text/plain", purpose="assistants")
    part = a.uploads.parts.create(upload.id, data=b"x")
    theirs = b.uploads.create(bytes=1, filename="f", mime_type="text/plain", purpose="assistants")
    missing(
        lambda: b.chat.completions.retrieve(kept.id),
        lambda: b.chat.completions.update(kept.id, metadata={}),
        lambda: b.chat.completions.delete(kept.id),
        lambda: b.chat.completions.messages.list(kept.id),
        lambda: b.uploads.cancel(upload.id),
        lambda: b.uploads.parts.create(upload.id, data=b"x"),
        lambda: b.uploads.complete(upload.id, part_ids=[]),
        lambda: b.uploads.complete(theirs.id, part_ids=[part.id]),
    )
    assert a2.uploads.complete(upload.id, part_ids=[part.id]).id == upload.id
    assert a.chat.completions.retrieve(kept.id).id == kept.id
    assert [one.id for one in a.chat.completions.list()] == [kept.id]
    assert list(b.chat.completions.list()) == []
    with pytest.raises(openai.BadRequestError, match="sent to `/v1/files`"):
        a.uploads.create(bytes=1, filename="f", mime_type="text/plain", purpose="batch")


def test_files_and_batches_of_anthropic(company: Company) -> None:
    a, a2, b = company.anthropic("a"), company.anthropic("a2"), company.anthropic("b")
    mine = a.beta.files.upload(file=("f.txt", b"words", "text/plain"))
    params: Any = {"model": "claude-x", "max_tokens": 9, "messages": [{"role": "user", "content": "hi"}]}
    batch = a.messages.batches.create(requests=[{"custom_id": "1", "params": params}])
    document: Any = {"type": "document", "source": {"type": "file", "file_id": mine.id}}
    uses: Any = {**params, "messages": [{"role": "user", "content": [document]}]}
    missing(
        lambda: b.beta.files.retrieve_metadata(mine.id),
        lambda: b.beta.files.download(mine.id),
        lambda: b.beta.files.delete(mine.id),
        lambda: b.messages.create(**uses),
        lambda: b.messages.create(**params, extra_body={"container": "container_1"}),
        lambda: b.messages.batches.create(requests=[{"custom_id": "1", "params": uses}]),
        lambda: b.messages.batches.retrieve(batch.id),
        lambda: b.messages.batches.cancel(batch.id),
        lambda: b.messages.batches.delete(batch.id),
        lambda: b.messages.batches.list(after_id=batch.id),
    )
    assert a2.beta.files.download(mine.id).read().count(b"words") == 1
    assert [one.id for one in a2.beta.files.list()] == [mine.id]
    assert list(b.beta.files.list()) == []
    assert [one.id for one in a2.messages.batches.list()] == [batch.id]
    assert a2.messages.batches.cancel(batch.id).id == batch.id
    assert company.openai("a").files.list().data != []  # another vendor's, by the same path
    assert mine.id not in [one.id for one in company.openai("b").files.list()]


def test_files_caches_batches_and_interactions_of_google(company: Company, tmp_path: Path) -> None:
    """Proves: an upload in pieces goes on at the gateway, with the team's key alone; the rest as for the others."""
    a, a2, b = company.google("a"), company.google("a2"), company.google("b")
    path = tmp_path / "f.txt"
    path.write_bytes(b"words")
    began = len(company.store.received)
    mine = a.files.upload(file=path)
    assert mine.name is not None and mine.uri is not None
    sent = company.store.received[began:]
    assert [one.headers["x-goog-upload-command"] for one in sent] == ["start", "upload, finalize"]
    assert sent[1].body == b"words"
    (upload_id,) = sent[1].query["upload_id"]
    assert company.ask("b", "POST", f"/upload/v1beta/files?upload_id={upload_id}", {})[0] == 404
    use = types.Part.from_uri(file_uri=mine.uri, mime_type="text/plain")
    cache = a.caches.create(model="gemini-x", config={"contents": "long"})
    batch = a.batches.create(model="gemini-x", src=[{"contents": "hi"}])
    talk = a.interactions.create(model="gemini-x", input="hi")
    assert cache.name is not None and batch.name is not None
    missing(
        lambda: b.files.get(name=mine.name or ""),
        lambda: b.files.delete(name=mine.name or ""),
        lambda: b.files.download(file=mine.name or ""),
        lambda: b.models.generate_content(model="gemini-x", contents=[use]),
        lambda: b.models.generate_content(model="gemini-x", contents="hi", config={"cached_content": cache.name}),
        lambda: b.models.embed_content(model="gemini-x", contents=[use]),
        lambda: b.caches.get(name=cache.name or ""),
        lambda: b.caches.update(name=cache.name or "", config={"ttl": "60s"}),
        lambda: b.caches.delete(name=cache.name or ""),
        lambda: b.batches.create(model="gemini-x", src=[{"contents": [use]}]),
        lambda: b.batches.get(name=batch.name or ""),
        lambda: b.batches.cancel(name=batch.name or ""),
        lambda: b.batches.delete(name=batch.name or ""),
        lambda: b.interactions.get(talk.id),
        lambda: b.interactions.delete(talk.id),
        lambda: b.interactions.create(model="gemini-x", input="hi", previous_interaction_id=talk.id),
        lambda: b.interactions.create(
            model="gemini-x", input=[{"type": "document", "uri": mine.uri, "mime_type": "a/b"}]
        ),
    )
    assert a2.files.get(name=mine.name).name == mine.name
    assert a2.files.download(file=mine.name) == b"words"
    assert (
        a2.models.generate_content(model="gemini-x", contents=[use], config={"cached_content": cache.name}).text == "hi"
    )
    for listed, name in ((a2.files.list(), mine.name), (a2.caches.list(), cache.name), (a2.batches.list(), batch.name)):
        assert [one.name for one in listed] == [name]
    for empty in (b.files.list(), b.caches.list(), b.batches.list()):
        assert list(empty) == []
    assert a2.interactions.get(talk.id).id == talk.id
    assert a2.interactions.create(model="gemini-x", input="hi", previous_interaction_id=talk.id).id
    assert company.ask("b", "POST", "/v1beta/batches", {"batch": {"inputConfig": {"fileName": mine.name}}})[0] == 400


SPELLINGS = (
    "GET /v1/files/{id}/",
    "GET //v1/files/{id}",
    "GET /v1/./files/{id}",
    "GET /v1/files/x/../{id}",
    "GET /v1/files/%66{id}",
    "GET /v1/files/{id}%00",
    "GET /v1/files/{id};x=1",
    "GET /v1/files/{id}:x",
    "GET /v1/FILES/{id}",
    "GET /v1/files/own%2F..%2F{id}",
    "GET /v1/files?after={id}",
    "GET /v1/files?after=x&after={id}",
    "GET /v1/files?before={id}",
    "HEAD /v1/files/{id}",
    "PUT /v1/files/{id}",
    "DELETE /v1/files",
    "PATCH /v1/files",
    "POST /v1/files/{id}",
    "GET /v1beta/files/{id}",
    "GET /upload/v1beta/files?upload_id={id}",
    "POST /upload/v1beta/files?upload_id={id}",
)
HEADERS: tuple[dict[str, str], ...] = (
    {},
    {"x-goog-api-client": "x"},
    {"anthropic-version": "2023-06-01", "anthropic-beta": "files-api-2025-04-14"},
    {"x-http-method-override": "GET", "x-goog-upload-command": "upload, finalize"},
)


def test_no_spelling_of_a_path_and_no_header_leads_to_anothers_object(company: Company) -> None:
    """Proves: of all that the other team sends, nothing with the id reaches the provider, and no list has it."""
    id = company.openai("a").files.create(file=("f", b"words"), purpose="assistants").id
    began = len(company.store.received)
    for spelled in SPELLINGS:
        method, _, path = spelled.format(id=id).partition(" ")
        for headers in HEADERS:
            connection = http.client.HTTPConnection("127.0.0.1", company.gateway.port, timeout=HANG_S)
            every = {"authorization": f"Bearer {company.keys['b']}", "content-type": "application/json", **headers}
            connection.request(method, path, b"{}" if method in ("POST", "PUT", "PATCH") else None, every)
            with connection.getresponse() as answer:
                told = answer.read()
            connection.close()
            assert answer.status >= 400 or (b'"data":[' in told and id.encode() not in told), (spelled, headers, told)
    assert not [one for one in company.store.received[began:] if id in repr(one)]
    assert company.openai("a").files.retrieve(id).id == id


def test_a_form_goes_up_as_it_is_under_the_upstreams_name_of_the_model(company: Company) -> None:
    """Proves: audio with its boundary, the alias in its field replaced; a model that no route has is refused."""
    audio = bytes(range(256)) * 20
    a = company.openai("a")
    assert a.audio.transcriptions.create(model="ear-of-clients", file=("a.mp3", audio)).text == "heard"
    sent = company.store.received[-1]
    assert sent.headers["content-type"].startswith("multipart/form-data; boundary=")
    assert sent.headers["content-type"].rpartition("=")[2].encode() in sent.body
    assert audio in sent.body and b"whisper-1" in sent.body and b"ear-of-clients" not in sent.body
    with pytest.raises(openai.NotFoundError):
        a.audio.transcriptions.create(model="nobody", file=("a.mp3", audio))


def test_no_key_of_a_client_went_up_and_no_header_of_the_upstream_came_back(company: Company) -> None:
    """Of all that the tests before have sent."""
    company.openai("a").files.list()
    for one in company.store.received:
        told = repr(one)
        assert not any(key in told for key in company.keys.values())
        assert KEY in told
    answer = company.openai("a").files.with_raw_response.list()
    assert "x-of-the-upstream" not in answer.headers
    company.gateway.log.seek(0)
    log = company.gateway.log.read().decode()
    assert KEY not in log and not any(key in log for key in company.keys.values())


@pytest.mark.parametrize("database", ["sqlite", "postgres"])
def test_another_process_knows_whose_a_response_is(
    tmp_path: Path, database: str, request: pytest.FixtureRequest
) -> None:
    """Proves: two gateways with one journal, in a file or a database: made at one, 404 for the other team at both."""
    dsn = request.getfixturevalue("postgres_dsn") if database == "postgres" else ""
    keys = add_keys(dsn or tmp_path / "state" / "journal.db")
    config = tmp_path / "gateway.toml"
    words = ("--config", str(config), *(("--database", dsn) if dsn else ()))
    with ExitStack() as stack:
        store = stack.enter_context(object_store())
        config.write_text(CONFIG.format(url=store.url, passes=PASSES))
        env = {"STORE_KEY": KEY}
        gateways = [stack.enter_context(served_gateway(tmp_path, *words, upstream=None, env=env)) for _ in range(2)]
        one, two = [Company(store, gateway, keys, stack) for gateway in gateways]
        id = one.openai("a").responses.create(model="gpt-x", input="hi", store=True).id
        missing(*[lambda at=at: at.openai("b").responses.retrieve(id) for at in (one, two)])
        assert two.openai("a2").responses.retrieve(id).id == id
        assert two.openai("a").responses.create(model="gpt-x", input="hi", previous_response_id=id).status


def test_a_request_goes_to_the_upstream_that_has_its_object(tmp_path: Path) -> None:
    """Proves: of two upstreams that share the conversations; each response is found, and continued, where it was made."""
    keys = add_keys(tmp_path / "state" / "journal.db")
    config = tmp_path / "gateway.toml"
    with ExitStack() as stack:
        stores = [stack.enter_context(object_store()) for _ in range(2)]
        upstreams = [f'{{ url = "{at.url}/v1", family = "openai_responses", key_env = "STORE_KEY" }}' for at in stores]
        config.write_text(
            f'[[route]]\nstored = "team"\nupstream = [{", ".join(upstreams)}]\npass = ["/v1/responses/*"]\n'
        )
        words = ("--config", str(config))
        gateway = stack.enter_context(served_gateway(tmp_path, *words, upstream=None, env={"STORE_KEY": KEY}))
        there = Company(stores[0], gateway, keys, stack)
        a, b = there.openai("a"), there.openai("b")
        made = [a.responses.create(model="m", input=f"{number}", store=True) for number in range(12)]
        assert all(store.objects["/v1/responses"] for store in stores)
        for one in made:
            assert a.responses.retrieve(one.id).id == one.id
            assert a.responses.create(model="m", input="on", previous_response_id=one.id).id
        missing(*[lambda one=one: b.responses.retrieve(one.id) for one in made])
        for store in stores:
            own = set(store.objects["/v1/responses"])
            told = [json.loads(one.body) for one in store.received if one.method == "POST"]
            assert {one["previous_response_id"] for one in told if "previous_response_id" in one} <= own
