"""Endpoints: addresses and headers as the profile says, the key in no text, nothing smuggled in."""

import pickle

import msgspec
import pytest

from tables import each
from turnwise.endpoints.endpoints import Addressing, Endpoint, Secret, build_http_request, find_key
from turnwise.errors import CallerError, MissingKey
from turnwise.wire.family import HttpCall
from turnwise.wire.profiles import Profile

KEY = "sk-secret-0123456789"
CALL = HttpCall(path="/chat/completions", body=b"{}", headers=(("X-Call", "1"),))


def profile(**more: object) -> Profile:
    return msgspec.convert({"name": "p", "family": "openai_chat", **more}, Profile)


def test_secret_is_shown_by_reveal_only() -> None:
    """Not by repr, str, format, JSON or pickle, alone or inside an endpoint."""
    secret = Secret(KEY)
    endpoint = Endpoint(profile=profile(), base_url="https://x/v1", key=secret)
    assert KEY not in f"{secret} {secret!r} {endpoint} {endpoint!r} {[secret]}"
    assert secret.reveal() == KEY and secret == Secret(KEY) and len({secret, Secret(KEY)}) == 1
    with pytest.raises(TypeError):
        pickle.dumps(secret)
    with pytest.raises(TypeError):
        msgspec.json.encode(endpoint)
    assert endpoint.scrub(f"bad key {KEY}!") == "bad key ***!"
    assert endpoint.scrub(f"{KEY}, {KEY} and, cut short, {KEY[:-1]}") == "***, *** and, cut short, ***"
    assert endpoint.scrub(f"begins with {KEY[:8]}") == f"begins with {KEY[:8]}"
    assert Endpoint(profile=profile(), base_url="https://x", key=Secret("no")).scrub("no, not now") == "no, not now"


@pytest.mark.parametrize(
    ("auth", "header"),
    [
        ("bearer", ("authorization", f"Bearer {KEY}")),
        ("x-api-key", ("x-api-key", KEY)),
        ("api-key", ("api-key", KEY)),
        ("x-goog-api-key", ("x-goog-api-key", KEY)),
        ("none", None),
    ],
)
def test_key_goes_where_the_profile_says(auth: str, header: tuple[str, str] | None) -> None:
    """One header, or none."""
    endpoint = Endpoint(profile=profile(auth=auth), base_url="https://x/v1", key=Secret(KEY))
    sent = build_http_request(endpoint, CALL, connect_s=3)
    assert [pair for pair in sent.headers if KEY in pair[1]] == ([header] if header else [])
    assert (sent.body, sent.method, sent.connect_s) == (b"{}", "POST", 3)


def test_later_headers_win_whatever_their_case() -> None:
    """The profile's over ours, the call's over those, the user's over all but the key."""
    endpoint = Endpoint(
        profile=profile(headers={"User-Agent": "row", "x-call": "row"}),
        base_url="https://x/v1",
        headers=(("X-TITLE", "mine"),),
    )
    headers = dict(build_http_request(endpoint, CALL, connect_s=3).headers)
    assert headers == {"content-type": "application/json", "user-agent": "row", "x-call": "1", "x-title": "mine"}


def test_betas_are_joined() -> None:
    """Every other header replaces the one before it; of betas the row's, the call's and the user's hold together."""
    endpoint = Endpoint(
        profile=profile(headers={"anthropic-beta": "row-1"}),
        base_url="https://x/v1",
        headers=(("Anthropic-Beta", "own-1"),),
    )
    call = HttpCall(path="/", body=b"{}", headers=(("anthropic-beta", "call-1"),))
    headers = dict(build_http_request(endpoint, call, connect_s=3).headers)
    assert headers["anthropic-beta"] == "row-1,call-1,own-1"


@pytest.mark.parametrize(
    ("base", "path", "url"),
    [
        ("https://x/v1", "/chat", "https://x/v1/chat"),
        ("https://x/v1/", "chat", "https://x/v1/chat"),
        ("https://x/v1?api-version=2", "/chat", "https://x/v1/chat?api-version=2"),
        ("https://x/v1?a=1", "/m:stream?alt=sse", "https://x/v1/m:stream?a=1&alt=sse"),
        ("http://127.0.0.1:11434", "/v1/chat", "http://127.0.0.1:11434/v1/chat"),
    ],
)
def test_address_and_path_are_joined(base: str, path: str, url: str) -> None:
    """With one slash, and with both queries."""
    endpoint = Endpoint(profile=profile(), base_url=base)
    assert build_http_request(endpoint, HttpCall(path=path, body=b""), connect_s=1).url == url


@each(
    "address",
    [
        "",
        "x/v1",
        "ftp://x",
        "https://",
        "https://u:p@x/v1",
        "https://x/ v1",
        "https://x\r\ny: z",
        "https://x:99999",
        "https://x#a",
    ],
)
def test_address_that_cannot_be_one_is_refused(address: str) -> None:
    """Before anything is sent, and without showing a password in it."""
    with pytest.raises(CallerError) as caught:
        Endpoint(profile=profile(), base_url=address)
    assert ":p@" not in str(caught.value)


def test_header_cannot_smuggle_another() -> None:
    """Line breaks in the key, the user's or a call's header are refused, and the value is not shown."""
    with pytest.raises(CallerError) as caught:
        Endpoint(profile=profile(), base_url="https://x", key=Secret(f"{KEY}\r\nx-evil: 1"))
    assert KEY not in str(caught.value)
    for bad in (("x-a", "1\n2"), ("x a", "1"), ("x-a", "ключ"), ("", "1")):
        with pytest.raises(CallerError):
            Endpoint(profile=profile(), base_url="https://x", headers=(bad,))
        with pytest.raises(CallerError):
            call = HttpCall(path="/", body=b"", headers=(bad,))
            build_http_request(Endpoint(profile=profile(), base_url="https://x"), call, connect_s=1)


def test_key_is_found_in_order_or_missed_with_a_clear_text() -> None:
    """The given key, the named variable alone, else the profile's variables."""
    row = profile(api_key_env=["A_KEY", "B_KEY"])
    env = {"B_KEY": f" {KEY}\n", "OTHER": "o"}
    assert find_key(row, env=env) == Secret(KEY)
    assert find_key(row, env=env, api_key_env="OTHER") == Secret("o")
    assert find_key(row, env=env, api_key=" given ") == Secret("given")
    assert find_key(profile(key_required=False), env={}) is None
    assert find_key(profile(auth="none"), env={}) is None
    for given, text in (
        ({}, "`p` wants a key: set `A_KEY` or `B_KEY`, or give `api_key=` or `api_key_env=`"),
        ({"api_key_env": "NOPE"}, "the variable `NOPE` is not set: put the key for `p` in it"),
    ):
        with pytest.raises(MissingKey) as caught:
            find_key(row, env={}, **given)
        assert str(caught.value) == text


def test_the_requests_of_a_turn_are_those_that_would_be_built_alone() -> None:
    """What is kept of the one before is never another's: paths, headers, methods and bodies change between them. The address
    for the journal shows neither query nor key."""
    key = "sk-0123456789abcdef"
    endpoint = Endpoint(profile=profile(), base_url=f"https://x.example/{key}?api-version=1", key=Secret(key))
    addressing = Addressing(endpoint)
    calls = [
        HttpCall(path="/chat", body=b"1"),
        HttpCall(path="/chat", body=b"2"),
        HttpCall(path="/chat", body=b"2", headers=(("x-beta", "a"),)),
        HttpCall(path="/chat", body=b"2", headers=(("x-beta", "b"),), method="PUT"),
        HttpCall(path="/other", body=b"3", headers=(("x-beta", "b"),)),
        HttpCall(path="/chat", body=b"1"),
    ]
    for connect_s, call in enumerate(calls, start=1):
        assert addressing.build(call, connect_s=connect_s) == build_http_request(endpoint, call, connect_s=connect_s)
        assert addressing.shown_url == f"https://x.example/***{call.path}"
