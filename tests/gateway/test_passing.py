"""What a path of `pass` may be, how a form is read, what opens an upload, and when a client gets an id."""

import asyncio
import json
from collections.abc import Iterable
from typing import Any

import pytest
from msgspec.structs import replace

from gateway.calling import upstream_at
from gateway.relayed import Gathered
from turnwise.gateway.client_bounds import ClientKey
from turnwise.gateway.config import GatewayRoute
from turnwise.gateway.doors import ClientCall, ClientGone
from turnwise.gateway.passing import (
    PassedReply,
    passes,
    read_form,
    read_passed,
    reply_headers,
    ticket_holder,
    ticket_of,
)
from turnwise.gateway.stored_objects import OwningOutlet, StoredObjects
from turnwise.gateway.upstreams import OpenUpstream, open_upstream, upstream_of
from turnwise.relay.client_request import RequestRefused
from turnwise.relay.stored_ids import StoredId, place_of
from turnwise.testing import FakeClock
from turnwise.wire.profiles import FamilyName

FORM = "multipart/form-data; boundary=abc"


@pytest.mark.parametrize(
    ("rule", "good", "bad"),
    [
        (
            "/v1/embeddings",
            ["POST /v1/embeddings"],
            ["GET /v1/embeddings", "POST /v1/embeddings/x", "POST /v1/Embeddings"],
        ),
        ("/v1/files", ["GET /v1/files", "POST /v1/files"], ["GET /v1/files/a", "PUT /v1/files", "GET /v1/files/"]),
        (
            "/v1/files/*",
            ["GET /v1/files/file-1", "DELETE /v1/files/a.b"],
            [
                "GET /v1/files",
                "GET /v1/files/a/content",
                "GET /v1/files/..",
                "GET /v1/files/.",
                "GET /v1/files/a%2fb",
                "GET /v1/files/a:b",
            ],
        ),
        ("GET /v1/files/*", ["GET /v1/files/a"], ["DELETE /v1/files/a", "POST /v1/files/a"]),
        (
            "/v1beta/batches/*:cancel",
            ["POST /v1beta/batches/1:cancel"],
            ["POST /v1beta/batches/1", "POST /v1beta/batches/..:cancel"],
        ),
    ],
)
def test_an_entry_of_pass_has_these_paths_and_no_others(rule: str, good: list[str], bad: list[str]) -> None:
    def passed(every: Iterable[str]) -> list[bool]:
        return [passes([rule], *one.split(" ")) for one in every]

    assert (passed(good), passed(bad)) == ([True] * len(good), [False] * len(bad))


@pytest.mark.parametrize(
    ("family", "path", "stored", "said"),
    [
        ("openai_chat", "/v1/files/*", "refused", 'say whose that is, `stored = "team"`'),
        ("openai_chat", "GET /v1/chat/completions", "refused", "say whose that is"),
        ("openai_chat", "GET /v1/things", "refused", "say whose that is"),
        ("openai_chat", "/v1/evals", "refused", "`evals` is stored at the provider"),
        ("openai_chat", "/v1/evals/*", "team", "does not know whose objects"),
        ("openai_chat", "/v1/*/*", "team", "does not know whose objects"),
        ("openai_chat", "/v1/files/file-1", "team", "does not know whose objects"),
        ("openai_chat", "GET /v1/things", "team", "does not know whose objects"),
        ("openai_chat", "POST /upload/v1beta/files", "team", "`files` is stored"),
        ("gemini", "/v1/responses/*", "team", "does not know whose objects"),
        ("openai_chat", "/v1/responses", "team", "serves it already"),
        ("openai_chat", "/v1/files/../x", "shared", "a plain path"),
        ("openai_chat", "PUT /v1/files", "shared", "a plain path"),
    ],
)
def test_a_path_whose_objects_are_nobodys_is_refused_by_the_file(
    family: FamilyName, path: str, stored: Any, said: str
) -> None:
    with pytest.raises(ValueError, match=said):
        GatewayRoute(upstream=upstream_at(family), passes=(path,), stored=stored)


def test_what_is_shared_may_be_anything() -> None:
    """Proves: of a route that says so, or that belongs to one client; audio is nobody's and needs neither."""
    several: tuple[dict[str, Any], ...] = ({"stored": "shared"}, {"one_client": True})
    for more in several:
        GatewayRoute(upstream=upstream_at("openai_chat"), passes=("/v1/evals/*", "/v1/*/*", "/v1/files"), **more)
    for stored in ("refused", "team"):
        GatewayRoute(upstream=upstream_at("openai_chat"), passes=("/v1/audio/transcriptions",), stored=stored)


def part(name: str, value: str, more: str = "", head: str = "") -> str:
    return f'--abc\r\nContent-Disposition: form-data; name="{name}"{more}\r\n{head}\r\n{value}\r\n'


def test_a_form_is_read_as_any_reader_would_or_not_at_all() -> None:
    file = part("file", "1", "; filename=\"é.mp3\"; filename*=UTF-8''x", "Content-Type: audio/mpeg\r\n")
    _, parts = read_form((part("model", "m") + file + "--abc--\r\n").encode(), FORM)
    assert [(one.name, one.value, one.is_file) for one in parts] == [("model", b"m", False), ("file", b"1", True)]
    for body in (
        part("model", "m"),  # no end
        "preamble\r\n" + part("model", "m") + "--abc--",
        part("file", "1\n--abc\nContent-Disposition: form-data; name=x\n\n2") + "--abc--",
        part("model", "m", head="Content-Transfer-Encoding: base64\r\n") + "--abc--",
        part("model", "m", head='Content-Disposition: form-data; name="x"\r\n') + "--abc--",
        part("model", "m", head=" folded\r\n") + "--abc--",
        part("mod\\", "m") + "--abc--",
        part("model", "m", "; name=x") + "--abc--",
        "--abc  \r\n" + part("model", "m")[7:] + "--abc--",
    ):
        with pytest.raises(RequestRefused, match="form"):
            read_form(body.encode(), FORM)


def called(body: str, *, path: str = "/v1/files") -> ClientCall:
    headers = (("content-type", FORM),)
    return ClientCall(id="x", path=path, headers=headers, body=body.encode(), family="openai_chat", kind="passed")


def test_a_form_names_one_model_and_hides_no_id() -> None:
    """Proves: an id is found in a field that is said to be a file, and in each line of a batch, however it is named."""
    with pytest.raises(RequestRefused, match="two models"):
        read_passed(called(part("model", "a") + part("model", "b") + "--abc--"))
    line = json.dumps({"body": {"file_id": "f2"}})
    call = called(part("purpose", "batch") + part("file", line, '; filename="f"') + "--abc--")
    assert read_passed(call).ids(call, None) == [StoredId("files", "f2")]
    call = called(part("file_id", "f1", '; filename="x"') + "--abc--")
    assert read_passed(call).ids(call, None) == [StoredId("files", "f1")]
    with pytest.raises(RequestRefused, match="`file_id` is not served here"):
        read_passed(call).refuse_stored("openai_chat")
    call = called(part("body", ' {"file_ids": ["f1"]}') + "--abc--")
    assert read_passed(call).ids(call, None) == [StoredId("files", "f1")]
    hidden = part("other", "f1").replace(
        "Content", 'X: y\nContent-Disposition: form-data; name="file_id"\r\nContent', 1
    )
    assert hidden != part("other", "f1")
    with pytest.raises(RequestRefused, match="ends in another way"):
        read_passed(called(hidden + "--abc--"))


def test_a_batch_goes_to_no_object_by_its_address() -> None:
    place = place_of("/v1/batches", "openai_responses")
    for told in ({"endpoint": "/v1/responses/r1/cancel"}, {"endpoint": 1}):
        call = replace(called(json.dumps(told), path="/v1/batches"), headers=(("content-type", "application/json"),))
        with pytest.raises(RequestRefused, match="`endpoint`"):
            read_passed(call).ids(call, place)
    call = called(part("endpoint", "/v1/files/f1") + "--abc--", path="/v1/batches")
    with pytest.raises(RequestRefused, match="`endpoint`"):
        read_passed(call).ids(call, place)


def test_a_ticket_opens_one_upload_for_an_hour_for_the_holder_of_the_key() -> None:
    clients = {"d1": ClientKey(name="a.b", sha256="d1", added=""), "d2": ClientKey(name="c", sha256="d2", added="")}
    ticket = ticket_of("a.b", digest="d1", upload="up-1", now=100.0)
    query = [("upload_id", "up-1"), ("ticket", ticket)]
    assert ticket_holder(query, clients, now=3699.0) is clients["d1"]
    assert ticket_holder(query, clients, now=3700.0) is None
    assert ticket_holder(query, {"d2": clients["d2"]}, now=100.0) is None  # the key was revoked
    for other in ("up-2", ""):
        assert ticket_holder([("upload_id", other), ("ticket", ticket)], clients, now=100.0) is None
    for forged in (
        ticket.replace("a.b", "c"),
        ticket.replace("3700", "9999"),
        ticket[:-1],
        "",
        "..",
        "a.b.3700.",
        "a.b.é.x",
    ):
        assert ticket_holder([("upload_id", "up-1"), ("ticket", forged)], clients, now=100.0) is None
    assert ticket_holder([*query, ("upload_id", "up-2")], clients, now=100.0) is None
    call = ClientCall(
        id="x",
        path="/",
        body=b"",
        family="gemini",
        kind="passed",
        client="c",
        place="http://here",
        upload_secret="signs-uploads",
    )
    away = PassedReply(upload={"x-goog-upload-url": "https://google.invalid/upload/v1beta/files?upload_id=up-1"})
    told = dict(reply_headers(away, size=0, call=call, now=100.0))["x-goog-upload-url"]
    assert told.startswith("http://here/upload/v1beta/files?upload_id=up-1&ticket=c.3700.")
    assert "signs-uploads" not in repr(call)


class Book(StoredObjects):
    """Keeps in `known` what it is told, unless it `fails`; `sent` is what the client has by then."""

    def __init__(self, outlet: Gathered) -> None:
        super().__init__(None, clock=FakeClock())
        self.outlet, self.fails = outlet, False
        self.known: list[tuple[set[StoredId], bytes]] = []

    async def remember(self, ids: Iterable[StoredId], *, owner: str, opened: OpenUpstream) -> None:
        if self.fails:
            raise RequestRefused("no journal", status=503)
        self.known.append((set(ids), b"".join(self.outlet.pieces)))


def event(**fields: Any) -> bytes:
    return b"event: e\ndata: " + json.dumps(fields).encode() + b"\n\n"


CREATED = event(type="response.created", response={"id": "resp_1"})
DELTA = event(type="response.output_text.delta", delta='"response":{"id":"resp_9"}')
ITEM = event(type="response.output_item.done", item={"type": "code_interpreter_call", "container_id": "cntr_1"})


def test_an_id_is_remembered_before_its_event_is_sent() -> None:
    """Proves: however the stream is cut, and as it came; comments wait for nothing; without a journal no id leaves."""

    async def run() -> None:
        stream = CREATED + DELTA + ITEM + b"data: [DONE]"
        (opened,) = open_upstream(upstream_of(upstream_at("openai_responses")), env={"LAB_KEY": "k"}, forward_key=False)
        for size in (1, 7, 50, len(stream)):
            outlet = Gathered()
            book = Book(outlet)
            out = OwningOutlet(outlet, stored=book, owner="team/a", family="openai_responses", streams=True)
            out.opened = opened
            assert out.direct is None
            await out.start(200, [("content-type", "text/event-stream")])
            await out.send(b": keep-alive\n\n")
            assert outlet.pieces == [b": keep-alive\n\n"]
            for at in range(0, len(stream), size):
                await out.send(stream[at : at + size])
            await out.flush()
            assert b"".join(outlet.pieces) == b": keep-alive\n\n" + stream
            for ids, before in book.known:
                assert not any(one.id.encode() in before for one in ids)
            found = {one for ids, _ in book.known for one in ids}
            assert found == {StoredId("responses", "resp_1"), StoredId("containers", "cntr_1")}
            book.fails = True
            with pytest.raises(ClientGone):
                await out.send(CREATED.replace(b"resp_1", b"resp_2"))
        outlet = Gathered()
        book = Book(outlet)
        book.fails = True
        out = OwningOutlet(outlet, stored=book, owner="team/a", family="openai_responses", streams=False)
        out.opened = opened
        await out.start(200, [])
        with pytest.raises(RequestRefused, match="no journal"):
            await out.send(json.dumps({"object": "response", "id": "resp_1"}).encode())
        assert (outlet.status, outlet.pieces) == (0, [])

    asyncio.run(run())
