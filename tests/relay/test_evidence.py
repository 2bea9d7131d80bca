"""An example shows how a stream was built, and nothing that anybody wrote."""

import json
from collections.abc import Sequence

from hypothesis import given, settings
from hypothesis import strategies as st

from gateway.relayed import ask, profile_of
from tables import each
from turnwise.assembly.evidence import EXAMPLE_BYTES, MOST_EVENT_BYTES, KeptEvent, Witness, example_of, kept_event
from turnwise.relay.client_exchange import ClientSide, EventReader, Relay, RelayRules, UpstreamSide
from turnwise.wire.family import family

# Words that cannot be a part of anything an example says by itself.
SECRETS = st.text(alphabet="QZXÄ7", min_size=4, max_size=12)
SHOWN = frozenset("QZX")  # letters of them that no key and no word of an API has side by side


def chunk(**delta: object) -> bytes:
    return b"data: " + json.dumps({"id": "chatcmpl-1", "choices": [{"index": 0, "delta": delta}]}).encode() + b"\n\n"


def test_an_example_keeps_the_structure_of_a_call_and_which_ids_are_the_same() -> None:
    """Proves: a vendor sees keys, indices, lengths and repetitions; of ids and names only which are equal."""
    events = [
        chunk(tool_calls=[{"index": 0, "id": "call_a", "function": {"name": "read", "arguments": '{"path"'}}]),
        chunk(tool_calls=[{"index": 1, "id": "call_b", "function": {"name": "read", "arguments": '{"path": "x"'}}]),
        chunk(tool_calls=[{"index": None, "id": "call_a", "function": {"arguments": '{"path"', "odd": "y"}}]),
        b"data: [DONE]\n\n",
    ]
    assert example_of([kept_event(number, raw) for number, raw in enumerate(events, 3)]).split("\n") == [
        'data: {"id": "id-1", "choices": [{"index": 0, "delta": {"tool_calls": [{"index": 0, "id": "id-2", '
        '"function": {"name": "name-1", "arguments": "<7 characters>"}}]}}]}',
        'data: {"id": "id-1", "choices": [{"index": 0, "delta": {"tool_calls": [{"index": 1, "id": "id-3", '
        '"function": {"name": "name-1", "arguments": "<12 characters that begin with the 7 before>"}}]}}]}',
        'data: {"id": "id-1", "choices": [{"index": 0, "delta": {"tool_calls": [{"index": null, "id": "id-2", '
        '"function": {"arguments": "<the same 7 characters again>", "key-1": "<1 character>"}}]}}]}',
        "data: [DONE]",
    ]


@each(
    ("raw", "shown"),
    [
        (
            b'event: content_block_delta\ndata: {"type":"content_block_delta","index":1,"delta":'
            b'{"type":"input_json_delta","partial_json":"{}"}}\n\n',
            'event: content_block_delta\ndata: {"type": "content_block_delta", "index": 1, "delta": '
            '{"type": "input_json_delta", "partial_json": "{}"}}',
        ),
        (
            b'data: {"candidates":[{"content":{"parts":[{"functionCall":{"name":"f","args":{"a":1,"b":2}}}]},'
            b'"finishReason":"STOP"}]}\n\n',
            'data: {"candidates": [{"content": {"parts": [{"functionCall": {"name": "name-1", "args": '
            '"<object with 2 keys>"}}]}, "finishReason": "STOP"}]}',
        ),
        (b'data: {"error":{"mess', "data: <15 characters that are no JSON>"),
        (b'data: {"id":"a"}{"id":"a"}tail\n\n', 'data: {"id": "id-1"} {"id": "id-1"} <4 characters that are no JSON>'),
        (b": keep-alive\n\n", ": <10 characters>"),
        (
            b"event: mine\nid: 7\nwords\n\n",
            "event: <4 characters>\nid: <1 character>\n<a line of 5 characters that is no field>",
        ),
        (b'data: {"index": 123456789012, "created": 17}', 'data: {"index": "<number>", "created": "<number>"}'),
        (b'data: {"arguments": "{}", "input": {}, "output": [1,2,3,4,5,6,7,8]}',
         'data: {"arguments": "{}", "input": {}, "output": ["<number>", "<number>", "<number>", "<number>", "<number>", '
         '"<number>", "<and 2 more>"]}'),
        (b'data: {"text": "\xff\\ud800"}', 'data: {"text": "<2 characters>"}'),
    ],
)  # fmt: skip
def test_each_shape_has_its_words(raw: bytes, shown: str) -> None:
    """Proves: events of every family, torn ones and such that are none."""
    assert example_of([kept_event(1, raw)]) == shown


def test_events_that_are_left_out_and_long_ones_are_told_by_number_and_size() -> None:
    """Proves: neither is kept in memory as it came."""
    long = kept_event(9, b"data: " + b"x" * MOST_EVENT_BYTES)
    assert long.raw == b""
    events = [kept_event(1, b"data: {}"), long, kept_event(0, b'{"object": "list"}')]
    assert example_of(events).split("\n") == [
        "data: {}",
        "... 7 events",
        f"<event of {MOST_EVENT_BYTES + 6} bytes>",
        '{"object": "list"}',
    ]


VALUES = st.recursive(
    st.none() | st.booleans() | SECRETS | st.floats(allow_nan=False),
    lambda inner: st.lists(inner, max_size=8) | st.dictionaries(SECRETS, inner, max_size=8),
    max_leaves=12,
)
KNOWN = "id name type arguments content text index args input choices delta tool_calls functionCall error item".split()


@st.composite
def events(draw: st.DrawFn) -> list[KeptEvent]:
    found: list[KeptEvent] = []
    for number in range(draw(st.integers(1, 6))):
        value = draw(st.dictionaries(st.sampled_from(KNOWN) | SECRETS, VALUES, max_size=6))
        text = json.dumps(value, ensure_ascii=draw(st.booleans()))
        text = text[: draw(st.integers(0, len(text)))] if draw(st.booleans()) else text
        before = draw(st.sampled_from(["data: ", "data:", "", ": ", "event: ", "id: ", "{", "retry: "]))
        end = draw(st.sampled_from(["\n\n", "\r\n\r\n", "", "\ndata: " + draw(SECRETS)]))
        found.append(kept_event(number, f"{before}{text}{end}".encode()))
    return found


@settings(deadline=None)
@given(events())
def test_nothing_that_was_written_is_in_an_example(drawn: list[KeptEvent]) -> None:
    """Proves: no text, name, id, argument or unknown key of the input, whole or torn, and never more than the bound."""
    shown = example_of(drawn)
    assert SHOWN.isdisjoint(shown) and shown.isascii() and len(shown) <= EXAMPLE_BYTES


@settings(deadline=None)
@given(st.binary(max_size=400))
def test_any_bytes_have_an_example(raw: bytes) -> None:
    """Proves: no input makes it raise, and what comes out fits one page of a terminal."""
    shown = example_of([kept_event(1, raw), kept_event(0, raw)])
    assert shown.isascii() and shown.replace("\n", "").isprintable()


def test_a_deep_and_a_wide_value_have_a_short_example() -> None:
    """Proves: the bound holds for values that are built to break it."""
    deep = b'data: {"content":' * 1 + b'{"content":' * 900 + b"1" + b"}" * 901
    wide = b"data: " + json.dumps({"content": [{"text": "x" * n, "id": str(n)} for n in range(400)]}).encode()
    for raw in (deep, wide, b"data: " + b"[" * 5_000):
        assert len(example_of([KeptEvent(1, raw, len(raw))])) <= EXAMPLE_BYTES


def watched(pieces: Sequence[bytes]) -> tuple[EventReader, Witness]:
    """What reads them for a client of Chat Completions, and what it keeps of them."""
    there, profile = family("openai_chat"), profile_of("openai_chat")
    request = ask("any")
    relay = Relay(
        upstream=UpstreamSide(
            request=request, call=there.encode_request(request, profile), family=there, profile=profile
        ),
        client=ClientSide(request=request, family=there),
        rules=RelayRules(),
    )
    reader = relay.reader()
    assert isinstance(reader, EventReader)
    for piece in pieces:
        reader.feed(piece)
    reader.finish()
    assert relay.witness is reader.witness
    return reader, reader.witness


def call(**piece: object) -> bytes:
    return chunk(tool_calls=[piece])


WORDS = [chunk(content=f"word {number}") for number in range(8)]
END = b'data: {"id": "1", "choices": [{"index": 0, "delta": {}, "finish_reason": "tool_calls"}]}\n\n'
FIRST = call(index=0, id="a", function={"name": "read", "arguments": ""})


def test_a_repair_in_mid_stream_is_shown_by_the_events_before_it() -> None:
    """Proves: the event in which it was found and the two before; a later one of the same kind changes nothing."""
    again = call(index=0, id="other", function={"arguments": "{}"})
    _, witness = watched([*WORDS, FIRST, again, *WORDS, call(index=0, id="third", function={"arguments": ""}), END])
    assert witness.events("id_churn") == (
        kept_event(8, WORDS[7]),
        kept_event(9, FIRST),
        kept_event(10, again),
    )


def test_a_repair_that_is_found_at_the_end_is_shown_by_the_calls_and_the_end() -> None:
    """Proves: that arguments are cut is known when all is there; the example has where the call began."""
    pieces = [FIRST, call(index=0, function={"arguments": '{"path": "'}), *WORDS, END]
    _, witness = watched(pieces)
    assert [event.number for event in witness.events("finish_hides_cut")] == [1, 2, 9, 10, 11]


def test_a_body_is_its_own_witness() -> None:
    """Proves: for an answer that is no stream the whole body is looked at."""
    witness = Witness()
    witness.saw_body(b'{"choices": []}')
    assert witness.events("id_missing") == (KeptEvent(0, b'{"choices": []}', 15),)


def test_a_response_without_events_has_no_example() -> None:
    """Proves: nothing is made up where nothing came."""
    assert (Witness().events("asked_again"), example_of(())) == ((), "")
