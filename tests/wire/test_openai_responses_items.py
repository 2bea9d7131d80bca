"""Which item an event of a Responses stream belongs to, what wins where two say the same, and where a response is over."""

import json
from collections.abc import Sequence

import pytest

from tables import each
from turnwise.vocab import ArgumentsState, FaultKind, FinishReason, Response, Text, calls_of, reasoning_of, text_of
from turnwise.wire.openai_responses.items import MAX_ITEMS
from wire.openai_responses_streams import begin, call_events, end, event, read

ADDED, DONE = "response.output_item.added", "response.output_item.done"
ARGUMENTS, TEXT = "response.function_call_arguments", "response.output_text"


def called(id: str, arguments: str = "", *, call_id: str = "") -> dict[str, object]:
    call_id = call_id or f"call_{id}"
    return {"id": id, "type": "function_call", "call_id": call_id, "name": "read", "arguments": arguments}


def said(id: str, text: str = "") -> dict[str, object]:
    content = [{"type": "output_text", "text": text, "annotations": []}] if text else []
    return {"id": id, "type": "message", "role": "assistant", "content": content}


def argue(id: str, piece: str, *, index: int = 0) -> bytes:
    return event(f"{ARGUMENTS}.delta", item_id=id, output_index=index, delta=piece)


def speak(id: str, piece: str, *, index: int = 0) -> bytes:
    return event(f"{TEXT}.delta", item_id=id, output_index=index, content_index=0, delta=piece)


def add(item: dict[str, object], *, index: int = 0, **fields: object) -> bytes:
    return event(ADDED, output_index=index, item=item, **fields)


def done(item: dict[str, object], *, index: int = 0) -> bytes:
    return event(DONE, output_index=index, item=item)


def calls(response: Response) -> list[tuple[str, str, ArgumentsState]]:
    return [(call.id, call.arguments, call.state) for call in calls_of(response.message)]


def complete(*calls: tuple[str, str]) -> list[tuple[str, str, ArgumentsState]]:
    return [(id, arguments, ArgumentsState.COMPLETE) for id, arguments in calls]


BOTH = complete(("call_a", '{"a":1}'), ("call_b", '{"b":2}'))


@pytest.mark.parametrize("ending", ["items", "output", "arguments", "nothing"])
def test_calls_on_one_index_are_told_apart_by_their_ids(ending: str) -> None:
    """Two calls, in pieces that take turns, on `output_index` 0, as gateways in use send them (issue 12, line 2)."""
    events = [
        add(called("a")),
        add(called("b")),
        argue("a", '{"a"'),
        argue("b", '{"b"'),
        argue("a", ":1}"),
        argue("b", ":2}"),
    ]
    listed: list[object] = []
    match ending:
        case "items":
            events += [done(called("a", '{"a":1}')), done(called("b", '{"b":2}'))]
        case "output":
            listed = [called("a", '{"a":1}'), called("b", '{"b":2}')]
        case "arguments":
            events += [
                event(f"{ARGUMENTS}.done", item_id=id, output_index=0, arguments=whole)
                for id, whole in (("b", '{"b":2}'), ("a", '{"a":1}'))
            ]
        case _:
            pass
    assert calls(read(begin(), *events, end(output=listed))) == BOTH


def test_the_id_wins_over_the_index() -> None:
    """`added` counts its items, the pieces all stand on index 0."""
    events = [add(called("a")), add(called("b"), index=1), argue("a", '{"a":1}'), argue("b", '{"b":2}')]
    assert calls(read(begin(), *events, end())) == BOTH


def test_items_on_one_index_follow_each_other() -> None:
    """Text, call, text: nothing is dropped, doubled or turned round."""
    events = [
        add(said("m")),
        speak("m", "First."),
        done(said("m", "First.")),
        add(called("a")),
        argue("a", '{"a":1}'),
        done(called("a", '{"a":1}')),
        add(said("n")),
        speak("n", "Second."),
        done(said("n", "Second.")),
    ]
    for output in ([], [said("m", "First."), called("a", '{"a":1}'), said("n", "Second.")]):
        response = read(begin(), *events, end(output=output))
        kinds = [part.text if isinstance(part, Text) else "call" for part in response.message.parts]
        assert kinds == ["First.", "call", "Second."]


def test_ids_that_nobody_announced_say_nothing() -> None:
    """Copilot changes the ids in every event; the index tells, and on one index the kind of the event."""
    events = [
        add(said("x1")),
        add(called("x2", call_id="c")),
        speak("x3", "Hi "),
        argue("x4", '{"a":'),
        speak("x5", "you"),
    ]
    response = read(begin(), *events, argue("x6", "1}"), done(called("x7", '{"a":1}', call_id="c")), end())
    assert (text_of(response.message), calls(response)) == ("Hi you", complete(("c", '{"a":1}')))


def test_an_id_that_two_items_share_says_nothing() -> None:
    """A server's constant: the index tells."""
    first, second = called("x", call_id="call_a"), called("x", call_id="call_b")
    events = [add(first), add(second, index=1), argue("x", '{"a":1}'), argue("x", '{"b":2}', index=1)]
    assert calls(read(begin(), *events, end())) == BOTH


def test_an_announcement_that_comes_again_begins_nothing() -> None:
    """Byte for byte but for the sequence number; one byte more is another item."""
    events = [add(called("a"), sequence_number=1), add(called("a"), sequence_number=2), argue("a", '{"a":1}')]
    again = [done(called("a", '{"a":1}')), add(called("a"), sequence_number=9), done(called("a", '{"a":1}'))]
    assert calls(read(begin(), *events, *again, end())) == BOTH[:1]
    other = [add(called("a")), argue("a", '{"a":1}'), add(called("b")), argue("b", '{"b":2}')]
    assert calls(read(begin(), *other, end())) == BOTH


def test_a_call_whose_pieces_come_before_it_gets_its_name() -> None:
    """The id in the pieces is the one that `added` announces later."""
    assert calls(read(begin(), argue("a", '{"a":'), add(called("a")), argue("a", "1}"), end())) == BOTH[:1]


def test_an_empty_output_takes_nothing_away() -> None:
    """The Codex backend lists no items at the end."""
    response = read(begin(), *call_events(0, arguments='{"a":1}'), end(output=[]))
    assert (calls(response), response.lost) == (complete(("call_0", '{"a":1}')), False)


def test_texts_on_one_content_index_stay_two() -> None:
    """A gateway that counts its content parts no better than its items."""
    part = {"type": "output_text", "text": ""}
    opened = event("response.content_part.added", item_id="m", output_index=0, content_index=0, part=part)
    whole = [
        event(f"{TEXT}.done", item_id="m", output_index=0, content_index=0, text=text) for text in ("One.", "Two.")
    ]
    events = [opened, speak("m", "One."), whole[0], opened, speak("m", "Two."), whole[1]]
    response = read(begin(), add(said("m")), *events, end())
    assert [part.text for part in response.message.parts if isinstance(part, Text)] == ["One.", "Two."]


WHOLES: list[tuple[Sequence[bytes], str, str]] = [
    (
        [add(called("a")), argue("a", '{"path":"/srv/'), argue("a", 'x"}')],
        '{"path":"/srv/old/x"}',
        f"{ARGUMENTS}.done",
    ),
    (
        [
            add({"id": "a", "type": "custom_tool_call", "call_id": "call_a", "name": "sql", "input": ""}),
            event("response.custom_tool_call_input.delta", item_id="a", output_index=0, delta="drop "),
        ],
        "select 1",
        "response.custom_tool_call_input.done",
    ),
    ([add(said("a")), speak("a", "Hello "), speak("a", "you")], "Hello to you", f"{TEXT}.done"),
    ([add(said("a")), speak("a", "Hello "), speak("a", "you")], "Hello to you", "response.content_part.done"),
]


@pytest.mark.parametrize(("pieces", "whole", "kind"), WHOLES)
def test_a_whole_wins_over_the_pieces(pieces: Sequence[bytes], whole: str, kind: str) -> None:
    """A piece is missing without a trace; the event that says everything mends it (issue 12, line 5)."""
    key = {ARGUMENTS: "arguments", TEXT: "text"}.get(kind.removesuffix(".done"), "input")
    fields: dict[str, object] = {key: whole}
    if kind == "response.content_part.done":
        fields = {"part": {"type": "output_text", "text": whole}}
    response = read(begin(), *pieces, event(kind, item_id="a", output_index=0, content_index=0, **fields), end())
    found = [call.arguments for call in calls_of(response.message)] or [text_of(response.message)]
    assert (found, [repair.kind for repair in response.repairs]) == ([whole], ["final_item_wins"])


@pytest.mark.parametrize(("pieces", "whole", "kind"), WHOLES)
def test_an_empty_whole_takes_nothing_away(pieces: Sequence[bytes], whole: str, kind: str) -> None:
    """Some gateways leave it empty."""
    empty = {"arguments": "", "input": "", "text": "", "part": {"type": "output_text", "text": ""}}
    response = read(begin(), *pieces, event(kind, item_id="a", output_index=0, content_index=0, **empty), end())
    assert response.message == read(begin(), *pieces, end()).message
    assert whole


def test_thoughts_without_a_final_item_are_taken_whole() -> None:
    """All parts of a summary were said as a whole; while a part is still growing, the pieces count."""
    kind = "response.reasoning_summary_text"
    events = [add({"id": "r", "type": "reasoning", "summary": []})]
    for place, text in enumerate(["Think.", "Again."]):
        events += [
            event(f"{kind}.delta", item_id="r", output_index=0, summary_index=place, delta=text[:3]),
            event(f"{kind}.done", item_id="r", output_index=0, summary_index=place, text=text),
        ]
    assert reasoning_of(read(begin(), *events, end()).message) == "Think.Again."
    growing = event(f"{kind}.delta", item_id="r", output_index=0, summary_index=2, delta="More")
    assert reasoning_of(read(begin(), *events, growing, end()).message) == "ThiAgaMore"


ONCE = [begin(), add(said("m")), speak("m", "Hi"), *call_events(1, arguments='{"a":1}'), end()]
BEHIND = {
    "the stream again": ONCE,
    "another response": [piece.replace(b"resp_1", b"resp_2") for piece in ONCE],
    "a piece": [speak("m", " there")],
    "a call": list(call_events(2, arguments='{"b":2}')),
    "an error": [event("error", error={"code": "server_error", "message": "late"})],
    "what is no JSON": [b'data: {"type":"response.output_te\n\n'],
    "a second end": [end("incomplete")],
}


@each("behind", BEHIND)
@each("is_named", [True, False])
def test_what_follows_the_terminal_event_is_no_part_of_the_response(behind: str, *, is_named: bool) -> None:
    """A proxy sends the stream twice; a gateway goes on (issue 12, line 4)."""
    events = [*ONCE, *BEHIND[behind]]
    if not is_named:
        events = [piece[piece.find(b"data:") :] for piece in events]
    whole, at_once = read(*ONCE), read(*events)
    assert at_once == whole
    assert (text_of(whole.message), len(calls_of(whole.message)), whole.lost) == ("Hi", 1, False)


def test_what_is_glued_to_the_terminal_event_is_no_part_of_the_response() -> None:
    """Two objects in one event."""
    glued = (
        end().rstrip() + json.dumps({"type": f"{TEXT}.delta", "output_index": 0, "delta": " more"}).encode() + b"\n\n"
    )
    assert text_of(read(*ONCE[:-1], glued).message) == "Hi"


def test_a_response_that_breaks_off_is_closed_once_everything_has_its_end() -> None:
    """The `.done` of a text or call is its own end, without its item's (issue 12, line 7)."""
    whole = event(f"{TEXT}.done", item_id="m", output_index=0, content_index=0, text="Hi")
    events = [begin(), add(said("m")), speak("m", "Hi")]
    assert [read(*events).is_closed, read(*events, whole).is_closed] == [False, True]
    arguments = list(call_events(1, arguments='{"a":1}'))
    assert [read(begin(), *arguments[:-2]).is_closed, read(begin(), *arguments[:-1]).is_closed] == [False, True]


@pytest.mark.promise("assembly:bounded")
def test_a_response_of_endless_items_is_refused() -> None:
    """Each item costs memory, also one that nothing is said of."""
    events = [add(said(f"m{number}"), index=number) for number in range(MAX_ITEMS + 1)]
    response = read(begin(), speak("x", "Hi"), *events, end())
    assert response.fault is not None
    assert (response.fault.kind, response.finish, text_of(response.message)) == (
        FaultKind.TOO_LARGE,
        FinishReason.ERROR,
        "Hi",
    )
