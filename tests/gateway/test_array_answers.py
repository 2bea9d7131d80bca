"""Gemini's clients that do not ask for `alt=sse`: one JSON array in place of events."""

import json

import pytest

from gateway.relayed import FAMILIES, Gathered, naively, profile_of
from gateway.test_service import asked, lab_at
from turnwise.gateway.config import GatewayRoute
from turnwise.gateway.doors import ClientCall
from turnwise.relay.event_reader import ArrayAnswer
from turnwise.vocab import Response
from turnwise.wire.family import family
from turnwise.wire.json_fields import encode
from turnwise.wire.profiles import FamilyName
from whole_streams import read_stream

EVENTS = b': one\n\ndata: {"a": 1}\r\n\r\ndata: {"b":\ndata: 2}\n\n'


def call(model: str, *query: tuple[str, str]) -> ClientCall:
    return ClientCall(
        id="tw-1",
        path=f"/v1beta/models/{model}:streamGenerateContent",
        query=query,
        body=encode({"contents": [{"role": "user", "parts": [{"text": "Look."}]}]}),
        family="gemini",
        kind="generate",
        model=model,
        streams=True,
    )


def read(outlet: Gathered) -> Response:
    return read_stream([b"".join(outlet.pieces)], family=family("gemini"), profile=profile_of("gemini"))


@pytest.mark.parametrize("upstream", FAMILIES)
def test_without_alt_sse_the_events_are_elements_of_an_array(upstream: FamilyName) -> None:
    """A JSON reader gets the same objects as a reader of events, and our decoder the same response."""
    route = GatewayRoute(upstream=lab_at(upstream))
    events, _ = asked(call("plain-answer", ("alt", "sse")), route)
    array, _ = asked(call("plain-answer"), route)
    assert (events.headers["content-type"][:17], array.headers["content-type"]) == (
        "text/event-stream",
        "application/json",
    )
    elements = json.loads(b"".join(array.pieces))
    text = "".join([f"data: {json.dumps(element)}\n\n" for element in elements])
    assert naively(text.encode(), client="gemini") == naively(b"".join(events.pieces), client="gemini")
    assert (read(array).message, read(array).repairs) == (read(events).message, ())


def test_an_array_that_fails_late_ends_with_the_error() -> None:
    """The last element is the error as Gemini's API writes it, so it is no end of an answer."""
    outlet, _ = asked(call("fault-stall"), GatewayRoute(upstream=lab_at(), retry=0))
    assert outlet.status == 200
    assert "error" in json.loads(b"".join(outlet.pieces))[-1]


def test_whole_events_are_one_array() -> None:
    """A comment is a line end, which JSON ignores. Data in two lines is one element."""
    answer = ArrayAnswer()
    found = b"".join([answer.take(EVENTS[:7]), answer.take(EVENTS[7:]), answer.end()])
    assert json.loads(found) == [{"a": 1}, {"b": 2}]
    assert json.loads(ArrayAnswer().end()) == []
