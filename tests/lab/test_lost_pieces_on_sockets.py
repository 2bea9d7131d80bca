"""A gateway that breaks events, over real sockets in all families: what it costs, and that nothing damaged runs.

The server answers by what the request holds, counts the requests, and has each of them looked at by the lab's strict judge.
"""

from collections.abc import Callable, Sequence
from typing import Literal

import pytest

from lab.raw_server import Body, serving
from lab.test_closed_responses import CALLS, ENDS, FAMILIES, TEXTS, turn
from tables import each
from turnwise.lab import strict
from turnwise.lab.raw import parse
from turnwise.rules.arguments import LOST_CALL
from turnwise.running.watcher_events import AttemptDiscarded, WatcherEvent
from turnwise.testing.scripted_model import call, response_of
from turnwise.turn.config import TurnResult
from turnwise.vocab import FaultKind, Message, Request, Response, Text, ToolResult
from turnwise.wire.family import family as family_named

DONE = "It is done."
Rest = Literal["gone", "torn"]
RESTS: tuple[Rest, ...] = ("gone", "torn")


def broken(events: Sequence[bytes], *, at: int, rest: Rest) -> tuple[bytes, ...]:
    """The stream with one event broken off in its middle: what is left of it stands in a line of its own, or nowhere."""
    event = events[at]
    middle = event.index(b"{") + (len(event) - event.index(b"{")) // 2
    return (*events[:at], event[:middle] + b"\n" + (event[middle:] if rest == "torn" else b"\n"), *events[at + 1 :])


def of_step(events: Sequence[bytes], *, step: int) -> tuple[bytes, ...]:
    """The call under an id and with arguments of its own."""
    renamed = [
        event.replace(b"call_1", b"call_%d" % step)
        .replace(b"toolu_1", b"toolu_%d" % step)
        .replace(b"fc_1", b"fc_%d" % step)
        for event in events
    ]
    plain, escaped = b'"path": "a"', b'\\"a\\"'
    return tuple(
        [event.replace(plain, b'"path": "a%d"' % step).replace(escaped, b'\\"a%d\\"' % step) for event in renamed]
    )


def results_in(body: bytes) -> int:
    """How many steps a request has behind it."""
    return max(
        body.count(mark)
        for mark in (b'"tool_call_id"', b'"function_call_output"', b'"tool_result"', b'"functionResponse"')
    )


def results_of(result: TurnResult) -> list[str]:
    parts = [part for message in result.messages for part in message.parts if isinstance(part, ToolResult)]
    return ["".join([one.text for one in part.content if isinstance(one, Text)]) for part in parts]


def gateway(
    family: str, *, steps: int, breaks: Callable[[int, tuple[bytes, ...]], tuple[bytes, ...]]
) -> Callable[[bytes], Body]:
    """A model that makes one call in each of so many steps and then answers; `breaks` gets each response, numbered from 1."""
    sent: list[int] = []

    def answer(asked: bytes) -> Body:
        strict.check(family, body=parse(asked))
        sent.append(1)
        step = results_in(asked) + 1
        said = of_step(CALLS[family], step=step) if step <= steps else TEXTS[family]
        return Body(pieces=breaks(len(sent), (*said, *ENDS[family])))

    return answer


@pytest.mark.promise("assembly:lost-piece", "cut:never-run")
@each("rest", RESTS)
@each("family", FAMILIES)
async def test_each_event_broken_once_costs_one_request_more_at_most_and_the_whole_call_runs(
    family: str, rest: Rest
) -> None:
    """Proves: of each event of the response in turn. A torn event may be read by joining its lines."""
    costs: list[int] = []
    size = len(CALLS[family]) + len([event for event in ENDS[family] if b"{" in event])
    for at in range(size):
        breaks = gateway(
            family, steps=1, breaks=lambda number, said, at=at: broken(said, at=at, rest=rest) if number == 1 else said
        )
        async with serving(breaks) as served:
            result, ran = await turn(served, family=family)
        arguments = [{"path": "a1"}]
        assert (ran, result.text, result.complete) == (arguments, DONE, True), at
        costs.append(served.requests)
        assert served.requests == result.requests <= 3, at
    assert 3 in costs or rest == "torn"


@pytest.mark.promise("assembly:lost-piece", "cut:never-run", "step:every-call-answered")
@each("rest", RESTS)
@each("family", FAMILIES)
async def test_a_gateway_that_breaks_one_event_in_every_response_costs_two_requests_more(
    family: str, rest: Rest
) -> None:
    """Proves: in a turn of five requests, whichever event it is; nothing runs but what arrived whole, each other call is told so,
    and the answer is not complete unless all of it came."""
    size = len(CALLS[family]) + len([event for event in ENDS[family] if b"{" in event])
    for at in range(size):
        answer = gateway(
            family, steps=4, breaks=lambda _, said, at=at: broken(said, at=min(at, len(said) - 2), rest=rest)
        )
        async with serving(answer) as served:
            result, ran = await turn(served, family=family)
        assert served.requests == result.requests <= 5 + 2, at
        assert all(one in [{"path": f"a{step}"} for step in range(1, 5)] for one in ran), at
        told = results_of(result)
        assert [text for text in told if text not in ("a note", LOST_CALL)] == [], at
        assert told.count("a note") == len(ran), at
        # All of it was lost.
        assert len(told) == 4 or (result.origin, result.complete, told) == ("local", False, []), at
        assert result.text == DONE or not result.complete, at


@pytest.mark.promise("assembly:lost-piece")
@pytest.mark.parametrize("family", FAMILIES)
async def test_a_text_that_lost_an_event_each_time_is_an_incomplete_answer(family: str) -> None:
    """Proves: two requests, and the piece that came; watchers hear that the first attempt is given up, and why."""
    # The event of the text itself. What the provider says again behind it would make the text whole, so that is left out.
    at = next(place for place, event in enumerate(TEXTS[family]) if b"done." in event)
    said = tuple([event for event in TEXTS[family] if b"output_item.done" not in event])
    seen: list[WatcherEvent] = []
    async with serving([Body(pieces=broken((*said, *ENDS[family]), at=at, rest="gone"))]) as served:
        result, _ = await turn(served, family=family, watch=seen.append)
    assert result.requests == served.requests <= 3
    assert not result.complete and DONE not in result.text
    (given_up, *_) = [one for one in seen if isinstance(one, AttemptDiscarded)]
    assert given_up.number == 1 and given_up.fault is not None
    assert (given_up.fault.kind, "could not be read" in given_up.fault.message) == (FaultKind.DISCONNECTED, True)


@pytest.mark.promise("assembly:lost-piece", "cut:never-run")
@each("family", FAMILIES)
@each("each_time", [False, True])
async def test_a_body_with_bytes_that_are_no_text_is_asked_for_again(family: str, each_time: bool) -> None:
    """Proves: the same without streaming; a path with a replacement character in it is no path that the model wrote."""
    request = Request(model="m", messages=(Message("user", (Text("Please."),)),), stream=False)
    encode = family_named(family).encode_body

    def body(response: Response) -> bytes:
        return encode(response, request)

    whole = body(response_of(call("read", id="c1", path="note-a.txt")))
    damaged = whole.replace(b"note-a", b"note-\xffa")
    answer = body(response_of(DONE))
    json = "application/json"
    sent = 0

    def reply(asked: bytes) -> Body:
        nonlocal sent
        sent += 1
        strict.check(family, body=parse(asked))
        said = answer if results_in(asked) else damaged if each_time or sent == 1 else whole
        return Body(pieces=(said,), ending="length", content_type=json)

    async with serving(reply) as served:
        result, ran = await turn(served, family=family, stream=False)
    assert damaged != whole and served.requests == result.requests == 3
    assert (ran, results_of(result)) == (([], [LOST_CALL]) if each_time else ([{"path": "note-a.txt"}], ["a note"]))
    assert (result.text, result.complete) == (DONE, True)
