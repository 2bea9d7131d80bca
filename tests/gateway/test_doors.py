"""What the doors judge, function by function: hosts, origins, content, keys, and the lists of what goes up."""

import msgspec
import pytest

from tables import each
from turnwise.gateway import doors
from turnwise.gateway.doors import DoorRefusal, OwnAddress, encode_refusal, family_of
from turnwise.wire.family import MODULES, family
from turnwise.wire.profiles import FamilyName

LOCAL = OwnAddress("127.0.0.1", 8484)


@each(
    ("host", "own", "listed", "is_let_in"),
    [
        ("127.0.0.1:8484", LOCAL, (), True),
        ("localhost:8484", LOCAL, (), True),
        ("LOCALHOST:8484", LOCAL, (), True),
        ("[::1]:8484", OwnAddress("::1", 8484), (), True),
        ("127.0.0.1:8484", OwnAddress("::ffff:127.0.0.1", 8484), (), True),
        ("localhost", OwnAddress("127.0.0.1", 80), (), True),
        ("localhost", LOCAL, (), False),
        ("localhost:8485", LOCAL, (), False),
        ("10.0.0.5:8484", OwnAddress("10.0.0.5", 8484), (), True),
        ("localhost:8484", OwnAddress("10.0.0.5", 8484), (), False),
        ("10.0.0.6:8484", OwnAddress("10.0.0.5", 8484), (), False),
        ("evil.example:8484", LOCAL, (), False),
        ("127.0.0.1.evil.example:8484", LOCAL, (), False),
        ("evil.example", LOCAL, ("gate.example",), False),
        ("gate.example", LOCAL, ("gate.example",), True),
        ("Gate.Example:9000", LOCAL, ("gate.example",), True),
        ("gate.example:9000", LOCAL, ("gate.example:9000",), True),
        ("gate.example:9001", LOCAL, ("gate.example:9000",), False),
        ("api.gate.example:1", LOCAL, ("*.gate.example",), True),
        ("a.b.gate.example", LOCAL, ("*.gate.example:80", "*.gate.example"), True),
        ("api.gate.example:1", LOCAL, ("*.gate.example:2",), False),
        ("api.gate.example:2", LOCAL, ("*.gate.example:2",), True),
        ("gate.example", LOCAL, ("*.gate.example",), False),
        ("evilgate.example", LOCAL, ("*.gate.example",), False),
        ("10.1.2.3:8484", LOCAL, ("10.0.0.0/8",), True),
        ("[fd00::7]:8484", LOCAL, ("fd00::/8", "10.0.0.0/8"), True),
        ("11.1.2.3:8484", LOCAL, ("10.0.0.0/8",), False),
        ("10.evil.example", LOCAL, ("10.0.0.0/8",), False),
        ("gate.example@127.0.0.1:8484", LOCAL, ("gate.example",), False),
        ("127.0.0.1:8484/", LOCAL, (), False),
        ("127.0.0.1:99999", LOCAL, (), False),
        ("", LOCAL, (), False),
    ],
)
def test_only_own_addresses_and_listed_names_are_hosts(
    host: str, own: OwnAddress, listed: tuple[str, ...], is_let_in: bool
) -> None:
    """A page that has its own name lead here (DNS rebinding) sends that name. Issue 19, Doors."""
    refusal = doors.refuse_host([host], own=own, listed=listed)
    assert (refusal is None, refusal and refusal.status) == (is_let_in, None if is_let_in else 403)


@pytest.mark.parametrize(
    "text", ["*", "*.", "*.*", "*.a.*", "a.*", "0.0.0.0/0", "::/0", "10.0.0.5/8", "10.0.0.0/99", "a/8", "*a.b"]
)
def test_nothing_that_stands_for_everybody_is_a_host(text: str) -> None:
    """With it a page under any name would be let in."""
    assert not doors.is_host(text)


def test_a_request_has_one_host() -> None:
    """RFC 9112 section 3.2: none or two is 400."""
    found = [doors.refuse_host(given, own=LOCAL, listed=()) for given in ([], ["localhost:8484", "localhost:8484"])]
    assert [refusal and refusal.status for refusal in found] == [400, 400]


@each(
    ("given", "is_let_in"),
    [
        ([], True),
        (["https://chat.example"], True),
        (["https://chat.example:443"], False),
        (["https://evil.example"], False),
        (["http://127.0.0.1:8484"], False),
        (["null"], False),
        ([""], False),
        (["https://chat.example", "https://chat.example"], False),
    ],
)
def test_an_origin_is_let_in_if_it_is_listed(given: list[str], is_let_in: bool) -> None:
    """Programs send none; a browser sends that of the page, letter by letter."""
    assert (doors.refuse_origin(given, listed={"https://chat.example"}) is None) is is_let_in


@each(
    ("headers", "is_taken"),
    [
        ([("content-type", "application/json")], True),
        ([("content-type", "application/json; charset=utf-8")], True),
        ([("content-type", 'Application/JSON;charset="UTF-8"')], True),
        ([("content-type", "application/json"), ("content-encoding", "identity")], True),
        ([], False),
        ([("content-type", "text/plain")], False),
        ([("content-type", "application/json-seq")], False),
        ([("content-type", "application/json; charset=utf-16")], False),
        ([("content-type", "application/x-www-form-urlencoded")], False),
        ([("content-type", "application/json"), ("content-type", "text/plain")], False),
        ([("content-type", "application/json"), ("content-encoding", "gzip")], False),
        ([("content-type", "application/json"), ("content-encoding", "br, identity")], False),
    ],
)
def test_json_alone_is_taken_and_not_compressed(headers: list[tuple[str, str]], is_taken: bool) -> None:
    """Other types come from any page without the browser asking first; a compressed body may be a bomb."""
    refusal = doors.refuse_content(headers)
    assert (refusal is None, refusal and refusal.status) == (is_taken, None if is_taken else 415)


def test_keys_are_found_wherever_a_client_puts_them() -> None:
    """Once each, in a fixed order; what is no bearer token is no key. A place that is there twice holds none (issue 40): one
    request with 1,200 keys was 1,200 guesses."""
    headers = [
        ("authorization", "Bearer  one "),
        ("x-api-key", "two"),
        ("api-key", "three"),
        ("x-goog-api-key", "two"),
        ("authorization", "Basic c2VjcmV0"),
    ]
    query = [("key", "four"), ("alt", "sse")]
    assert doors.keys_in(headers, query) == ("two", "three", "one", "four")
    assert doors.keys_in([("x-api-key", ""), ("api-key", "k" * 5000)], []) == ()
    twice = [("x-api-key", "more"), ("api-key", "more"), ("x-goog-api-key", "more"), ("authorization", "bearer more")]
    assert doors.keys_in([*headers, *twice], [*query, ("key", "more")]) == ()
    assert doors.keys_in([*headers, ("x-api-key", "")], query) == ("three", "two", "one", "four")


def test_only_listed_headers_and_query_fields_go_up() -> None:
    """Nothing that can carry a key, name an account or steer the transport is on the lists."""
    headers = [
        ("anthropic-beta", "context-1m"),
        ("anthropic-version", "2023-06-01"),
        ("openai-beta", "responses=v1"),
        *[(name, "no") for name in ("authorization", *doors.KEY_HEADERS, "cookie", "openai-organization", "host")],
        *[(name, "no") for name in ("x-forwarded-for", "user-agent", "transfer-encoding", "te", "x-stainless-os")],
    ]
    query = [("alt", "sse"), ("beta", "true"), ("key", "secret"), ("api-version", "1"), ("access_token", "secret")]
    assert doors.listed_headers(headers) == tuple(headers[:3])
    assert doors.listed_query(query) == (("alt", "sse"), ("beta", "true"), ("api-version", "1"))


@each(
    ("given", "id"),
    [
        (["req-1.a_B"], "req-1.a_B"),
        ([], None),
        (["a", "b"], None),
        (["a" * 65], None),
        (["a\nb"], None),
        (["ü"], None),
        (["a b"], None),
        ([""], None),
    ],
)
def test_a_request_id_of_the_client_is_kept_if_it_is_harmless(given: list[str], id: str | None) -> None:
    """It goes into headers, logs and tables."""
    assert doors.harmless_id(given) == id


@each(
    ("text", "is_one"),
    [
        ("https://chat.example", True),
        ("http://localhost:3000", True),
        ("chrome-extension://abcdef", True),
        ("*", False),
        ("null", False),
        ("https://chat.example/", False),
        ("https://*.example", False),
        ("https://Chat.example", False),
        ("chat.example", False),
    ],
)
def test_origins_are_written_as_browsers_send_them(text: str, is_one: bool) -> None:
    """`*` and `null` would be every page, and are none."""
    assert doors.is_origin(text) is is_one


def test_a_preflight_allows_the_headers_that_were_asked_for() -> None:
    """SDKs in a page send headers of their own; none of them goes further. What is no list of names allows one header."""
    asked = [("access-control-request-headers", "content-type, x-stainless-os,authorization")]
    local = [("access-control-request-private-network", "true"), ("access-control-request-headers", "a\rb: c")]
    assert doors.preflight_headers(asked) == (
        ("access-control-allow-methods", "GET, POST"),
        ("access-control-allow-headers", "content-type, x-stainless-os,authorization"),
        ("access-control-max-age", "600"),
    )
    assert doors.preflight_headers(local)[1:] == (
        ("access-control-allow-headers", "content-type"),
        ("access-control-max-age", "600"),
        ("access-control-allow-private-network", "true"),
    )


@each("name", MODULES)
@each("status", [400, 401, 403, 404, 405, 408, 413, 414, 415, 431, 500, 503])
def test_a_refusal_is_an_error_of_the_clients_family(name: FamilyName, status: int) -> None:
    """The family's own decoder reads the message and the wait back from status, headers and body."""
    wait_s = 1 if status == 503 else None
    headers, body = encode_refusal(
        DoorRefusal(reason="path", status=status, message="Not here.", retry_after_s=wait_s), family=name
    )
    fault = family(name).decode_fault(status, dict(headers), body)
    assert (fault.message, fault.status, fault.retry_after_s) == ("Not here.", status, wait_s)
    assert dict(headers)["content-length"] == str(len(body))


@pytest.mark.parametrize(
    ("path", "header", "name"),
    [
        ("/v1/models/some", "x-goog-api-key", "gemini"),
        ("/v1/models/some", "anthropic-version", "anthropic_messages"),
        ("/v1/models/some", "authorization", "openai_chat"),
        ("/v1/files", "x-goog-api-client", "gemini"),
        ("/v1/chat/completions", "x-goog-api-key", "openai_chat"),
        ("/v1/messages/batches", "x-goog-api-key", "anthropic_messages"),
    ],
)
def test_a_header_tells_whose_errors_a_client_reads_at_a_shared_path(path: str, header: str, name: str) -> None:
    """A path of one family says more than a header."""
    assert family_of(path, header_names={header}) == name


@each(
    ("path", "name"),
    [
        ("/v1/messages", "anthropic_messages"),
        ("/v1/messages/batches", "anthropic_messages"),
        ("/v1beta/models/gemini-3:generateContent", "gemini"),
        ("/v1beta/files", "gemini"),
        ("/v1/models/gemini-3:generateContent", "gemini"),
        ("/v1/responses", "openai_responses"),
        ("/v1/embeddings", "openai_chat"),
        ("/", "openai_chat"),
    ],
)
def test_the_path_tells_whose_errors_a_client_reads(path: str, name: str) -> None:
    """Also of paths that the gateway does not have."""
    assert family_of(path) == name


@pytest.mark.parametrize(
    ("status", "body", "type"),
    [
        (529, b'{"error":{"message":"Overloaded","type":"invalid_request_error"}}', "overloaded_error"),
        (403, b'{"error":{"message":"No","type":"invalid_request_error"}}', "permission_error"),
        (400, b'{"error":{"message":"No","type":"invalid_request_error"}}', "invalid_request_error"),
    ],
)
def test_a_fault_of_another_family_has_anthropics_type_for_its_status(status: int, body: bytes, type: str) -> None:
    """Whatever word stood beside the status."""
    fault = family("openai_chat").decode_fault(status, {}, body)
    told = msgspec.json.decode(family("anthropic_messages").encode_fault(fault)[1])
    assert told["error"]["type"] == type


def test_a_refusal_of_the_doors_is_a_permission_error_for_anthropics_clients() -> None:
    """A wrong `Host` is no question of keys."""
    _, body = encode_refusal(DoorRefusal(reason="host", status=403, message="no"), family="anthropic_messages")
    assert msgspec.json.decode(body)["error"]["type"] == "permission_error"
