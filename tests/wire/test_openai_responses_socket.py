"""Requests as messages of a WebSocket: what goes whole, what goes on, and events of any shape."""

import json
from typing import Any

import pytest

from turnwise.testing import random_splits
from turnwise.wire.openai_responses.socket import SOCKET, WarmContext, read_request

HI = {"role": "user", "content": "hi"}
CALL = {"type": "function_call", "call_id": "call_1", "name": "read", "arguments": '{"path":"a"}'}
RESULT = {"type": "function_call_output", "call_id": "call_1", "output": "text"}
THOUGHT = {"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": "x"}
TEXT = {"type": "output_text", "text": "Hello.", "annotations": []}
SAID = {"type": "message", "id": "msg_1", "role": "assistant", "status": "completed", "content": [TEXT]}


def message(context: WarmContext, *items: object, **fields: object) -> dict[str, Any] | None:
    """What would be sent of a request that goes on; None: it goes whole."""
    request = read_request(json.dumps({"model": "m", "stream": True, **fields, "input": items}).encode())
    assert request is not None
    sent = context.next_message(request)
    return None if sent is None else json.loads(sent)


def answered(*items: object, asked: tuple[object, ...] = (HI,), end: str = "response.completed") -> WarmContext:
    context = WarmContext()
    request = read_request(json.dumps({"model": "m", "stream": True, "input": asked}).encode())
    assert request is not None
    context.begin(request)
    for index, item in enumerate(items):
        event = {"type": "response.output_item.done", "output_index": index, "item": item}
        assert not context.saw(json.dumps(event).encode()).is_end
    assert context.saw(json.dumps({"type": end, "response": {"id": "resp_1"}}).encode()).is_end
    return context


@pytest.mark.parametrize(
    ("came", "back"),
    [
        ([{**CALL, "id": "fc_1", "status": "completed"}], [CALL]),
        ([THOUGHT, CALL], [{**THOUGHT, "id": "rs_1"}, CALL]),
        ([SAID], [{"type": "message", "role": "assistant", "content": "Hello."}]),
        ([SAID], [{**SAID, "content": [{"type": "output_text", "text": "Hello.", "logprobs": []}]}]),
        ([], []),
    ],
)
def test_request_that_begins_with_what_came_back_sends_the_rest(came: list[Any], back: list[Any]) -> None:
    """Ids, states and empty fields are nothing that a model reads."""
    sent = message(answered(*came), HI, *back, RESULT, tools=[], instructions="new ones")
    assert sent == {
        "type": "response.create",
        "model": "m",
        "tools": [],
        "instructions": "new ones",
        "previous_response_id": "resp_1",
        "input": [RESULT],
    }


@pytest.mark.parametrize(
    ("items", "fields"),
    [
        ((HI, {**CALL, "arguments": '{"path": "a"}'}, RESULT), {}),
        ((HI, {**CALL, "name": "write"}, RESULT), {}),
        ((HI, RESULT), {}),
        ((HI, CALL), {}),
        ((HI,), {}),
        (({**HI, "content": "ho"}, CALL, RESULT), {}),
        ((HI, CALL, RESULT), {"model": "other"}),
        ((HI, CALL, RESULT), {"store": True}),
        ((HI, CALL, RESULT), {"conversation": "conv_1"}),
        ((RESULT,), {"previous_response_id": "resp_0"}),
        ((HI, "words", RESULT), {}),
    ],
)
def test_any_other_request_goes_whole(items: tuple[Any, ...], fields: dict[str, Any]) -> None:
    assert message(answered(CALL), *items, **fields) is None


@pytest.mark.parametrize("end", ["response.incomplete", "response.failed", "error"])
def test_response_that_is_not_whole_is_no_beginning(end: str) -> None:
    assert message(answered(CALL, end=end), HI, CALL, RESULT) is None


def test_client_that_names_the_response_itself_gets_its_connection() -> None:
    sent = message(answered(CALL), RESULT, previous_response_id="resp_1")
    assert sent is not None and (sent["previous_response_id"], sent["input"]) == ("resp_1", [RESULT])


@pytest.mark.parametrize(
    "body", [b"{", b"[]", b'{"input":[]}', b'{"stream":false}', b'{"stream":true,"background":true}', b"\xff"]
)
def test_what_is_no_request_for_a_stream_goes_over_http(body: bytes) -> None:
    assert SOCKET.read(body) is None


ODD = [
    b"",
    b"null",
    b"[]",
    b'"text"',
    b"\xff\xfe",
    b'{"type":1}',
    b'{"type":"error","error":"words","status":"429"}',
    b'{"type":"error","error":{"code":7},"status":99999}',
    b'{"type":"response.completed"}',
    b'{"type":"response.completed","response":[]}',
    b'{"type":"response.output_item.done"}',
    b'{"type":"response.output_item.done","output_index":"a","item":{}}',
    b'{"type":"response.output_item.done","item":{"type":"message","content":"\xff"}}',
    b'{"a":' * 5000,
]


@pytest.mark.parametrize("event", ODD)
def test_event_of_any_shape_is_no_error(event: bytes) -> None:
    """Nor is the request that follows it."""
    context = answered()
    assert context.saw(event).status == 0
    message(context, HI, RESULT)


def test_damaged_events_are_no_error() -> None:
    """Every event of a response, cut anywhere."""
    whole = json.dumps({"type": "error", "status": 429, "error": {"code": "x"}, "headers": {"Retry-After": 7}}).encode()
    sign = WarmContext().saw(whole)
    assert (sign.is_end, sign.status, sign.headers, sign.asks_anew) == (True, 429, {"retry-after": "7"}, False)
    for pieces in random_splits(whole, seed=1, count=50):
        for piece in pieces:
            assert WarmContext().saw(piece).is_end == (piece == whole)
