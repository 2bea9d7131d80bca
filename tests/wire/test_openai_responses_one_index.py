"""One `output_index` for all items, and events that do not arrive: no call runs with another call's arguments or name.

Found by a tester of issue 12, line 2: the final form of a call whose `added` was torn went to the call that was still open.
"""

import json
from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import combinations
from typing import Any

import pytest

from tables import each
from turnwise.testing.wire_conformance import assemble, decode_stream
from turnwise.vocab import ArgumentsState, Response, calls_of, text_of
from turnwise.wire.openai_responses import FAMILY
from turnwise.wire.profiles import Profile

PROFILE = Profile(name="openai_responses", family="openai_responses")
CALLS = [("delete", '{"path":"/a"}'), ("now", "{}"), ("delete", '{"path":"/b"}')]
TORN = b'data: {"type":"resp\n\n'
Event = dict[str, Any]


def events(*, ids: str, lists: bool, numbered: bool) -> list[Event]:
    """Calls one after the other, all on index 0. `ids`: those of items stay (`same`) or change in every event (`new`)."""
    made = iter(range(1000))

    def id_of(number: int) -> str:
        return f"f{number}" if ids == "same" else f"x{next(made)}"

    def item(number: int, arguments: str) -> Event:
        name = CALLS[number][0]
        return {
            "type": "function_call",
            "id": id_of(number),
            "call_id": f"c{number}",
            "name": name,
            "arguments": arguments,
        }

    told: list[Event] = [{"type": "response.created", "response": {"id": "r"}}]
    for number, (_, arguments) in enumerate(CALLS):
        place = {"output_index": 0}
        told.append({"type": "response.output_item.added", **place, "item": item(number, "")})
        for piece in (arguments[:4], arguments[4:]):
            if piece:
                kind = "response.function_call_arguments.delta"
                told.append({"type": kind, **place, "item_id": id_of(number), "delta": piece})
        kind = "response.function_call_arguments.done"
        told.append({"type": kind, **place, "item_id": id_of(number), "arguments": arguments})
        told.append({"type": "response.output_item.done", **place, "item": item(number, arguments)})
    output = [item(number, arguments) for number, (_, arguments) in enumerate(CALLS)] if lists else []
    told.append({"type": "response.completed", "response": {"id": "r", "status": "completed", "output": output}})
    if numbered:
        for number, event in enumerate(told):
            event["sequence_number"] = number
    return told


def written(told: Sequence[Event | None]) -> bytes:
    """None stands for an event that nobody can read."""
    lines = [TORN if one is None else b"data: " + json.dumps(one).encode() + b"\n\n" for one in told]
    return b"".join(lines)


def read(told: Sequence[Event | None]) -> Response:
    return assemble(decode_stream(FAMILY, [written(told)], profile=PROFILE))


def complete(response: Response) -> Counter[tuple[str, str]]:
    whole = [call for call in calls_of(response.message) if call.state is ArgumentsState.COMPLETE]
    return Counter((call.name, call.arguments) for call in whole)


def damaged(told: list[Event], *, numbered: bool) -> Iterator[list[Event | None]]:
    """Any two events torn; where the numbers tell, also dropped, and one swapped with any of the four behind it."""
    for first, second in combinations(range(1, len(told)), 2):
        yield [None if at in (first, second) else event for at, event in enumerate(told)]
        if numbered:
            yield [event for at, event in enumerate(told) if at not in (first, second)]
    for at in range(1, len(told) - 1):
        for behind in range(at + 1, min(at + 5, len(told) - 1)) if numbered else ():
            moved: list[Event | None] = [*told[:at], *told[at + 1 : behind + 1], told[at], *told[behind + 1 :]]
            yield moved
            yield [*told[: behind + 1], told[at], *told[behind + 1 :]]


@pytest.mark.promise("assembly:lost-piece")
@each("ids", ["same", "new"])
@each("lists", [True, False], ids=["listed at the end", "not listed"])
@each("numbered", [True, False], ids=["numbered", "not numbered"])
def test_no_call_takes_what_another_one_lost(ids: str, lists: bool, numbered: bool) -> None:
    """Proves: whatever two events are torn, missing or out of place, what runs was said, and once each."""
    told = events(ids=ids, lists=lists, numbered=numbered)
    want = Counter(CALLS)
    healthy = read(told)
    assert (complete(healthy), healthy.lost) == (want, False)
    for damage in damaged(told, numbered=numbered):
        response = read(damage)
        assert complete(response) <= want, written(damage)
        assert response.lost or complete(response) == want, written(damage)


@pytest.mark.promise("assembly:same-call-once")
def test_an_announcement_that_comes_again_with_another_status_is_the_same_call() -> None:
    """The status of a call is no part of what it is."""
    told = events(ids="same", lists=False, numbered=False)
    again = {**told[1], "item": {**told[1]["item"], "status": "in_progress"}}
    assert complete(read([told[0], told[1], again, *told[2:]])) == Counter(CALLS)


@pytest.mark.promise("assembly:lost-piece")
def test_a_stretch_that_is_sent_again_is_taken_once() -> None:
    """A proxy that resumes a stream sends numbers that came before, from an event that is no piece."""
    message = {"type": "message", "id": "m", "role": "assistant", "content": []}
    part = {"type": "output_text", "text": "Hi"}
    place = {"output_index": 0, "item_id": "m", "content_index": 0}
    told: list[Event] = [
        {"type": "response.created", "response": {"id": "r"}},
        {"type": "response.output_item.added", "output_index": 0, "item": message},
        {"type": "response.content_part.added", **place, "part": {"type": "output_text", "text": ""}},
        {"type": "response.output_text.delta", **place, "delta": "H"},
        {"type": "response.output_text.delta", **place, "delta": "i"},
        {"type": "response.output_text.done", **place, "text": "Hi"},
        {"type": "response.output_item.done", "output_index": 0, "item": {**message, "content": [part]}},
        {"type": "response.completed", "response": {"status": "completed", "output": []}},
    ]
    for number, event in enumerate(told):
        event["sequence_number"] = number
    for end in range(3, len(told)):
        for start in (1, 2):
            response = read([*told[:end], *told[start:]])
            assert (text_of(response.message), response.lost) == ("Hi", False), (end, start)
