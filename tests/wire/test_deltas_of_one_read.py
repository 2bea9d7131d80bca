"""Deltas that come in one read are decoded at once; the frames are those that each of them gives alone."""

import json

from tables import each
from turnwise.testing.wire_conformance import decode_stream
from turnwise.wire import anthropic_messages, openai_responses
from turnwise.wire.family import Family
from turnwise.wire.sse import SseEvent, SseParser
from wire.gemini_streams import PROFILE


def anthropic(index: int, kind: str, key: str, piece: object) -> bytes:
    return json.dumps({"type": "content_block_delta", "index": index, "delta": {"type": kind, key: piece}}).encode()


def responses(kind: str, index: object, piece: object, number: int) -> bytes:
    event = {"type": kind, "sequence_number": number, "output_index": index, "delta": piece}
    return json.dumps(event, ensure_ascii=number % 2 == 0).encode()


ARGUMENTS = "response.function_call_arguments.delta"
TEXT = "response.output_text.delta"
PIECES = ['{"a":', ' "b\n', "é\U0001f600", '\\"}{', "}"]
CALL = b'{"type":"tool_use","id":"call_1","name":"write","input":{}}'
BEGUN = [
    b'{"type":"message_start","message":{"id":"m","model":"m","usage":{"input_tokens":1}}}',
    b'{"type":"content_block_start","index":0,"content_block":' + CALL + b"}",
]
OF_CALL = [anthropic(0, "input_json_delta", "partial_json", piece) for piece in PIECES]
OF_TEXT = [anthropic(1, "text_delta", "text", piece) for piece in PIECES]
ITEM = {"type": "function_call", "id": "fc", "call_id": "call_1", "name": "write", "arguments": ""}
CREATED = [
    b'{"type":"response.created","response":{"id":"r","model":"m"}}',
    json.dumps({"type": "response.output_item.added", "output_index": 0, "item": ITEM}).encode(),
]
OF_ITEM = [responses(ARGUMENTS, 0, piece, number) for number, piece in enumerate(PIECES)]

# What stands among deltas that are all alike: lost, or taken for one of them, where only the first is looked at.
ODD_ANTHROPIC = [
    anthropic(1, "text_delta", "text", "another block"),
    anthropic(0, "input_json_delta", "partial_json", ""),
    anthropic(0, "input_json_delta", "partial_json", None),
    anthropic(0, "a_new_delta", "partial_json", "of a kind to come"),
    b'{"type":"content_block_delta","delta":{"type":"input_json_delta","partial_json":"no index"}}',
    b'{"type":"content_block_delta","index":"0","delta":{"type":"input_json_delta","partial_json":"a text"}}',
    b'{"type":"content_block_delta","index":0,"delta":{"type":"input_json_delta","partial_json":"\xff"}}',
    b'{"type":"content_block_stop","index":0}',
    OF_CALL[0] + OF_CALL[1],
    OF_CALL[0] + b"," + OF_CALL[1],
    b'{"type":"content_block_delta","index":0,"delta":{"partial_json":"no kind"}}',
    b'{"index":0,"delta":{"type":"input_json_delta","partial_json":"no type"}}',
    b'{"type":"content_block_delta","index":0,"delta":{"type":"input_json_delta","partial_json":"and","text":1}}',
    b'{"type":"content_block_delta","index":0,"delta":{"type":"input_json_delta","partial_json":"and","signature":[]}}',
    b'{"type":"content_block_delta","index":0,"delta":{"type":"input_json_delta","partial_json":"and","content":1}}',
    b"no json",
]
ODD_RESPONSES = [
    responses(ARGUMENTS, 1, "another item", 6),
    responses(ARGUMENTS, 0, "", 6),
    responses(ARGUMENTS, 0, None, 6),
    responses(ARGUMENTS, None, "no index", 6),
    responses(ARGUMENTS, "0", "a text", 6),
    responses(TEXT, 0, "a text in place of a call", 6),
    b'{"type":"response.function_call_arguments.delta","output_index":0,"delta":"\\ud800"}',
    json.dumps({"type": "response.function_call_arguments.done", "output_index": 0, "arguments": "{}"}).encode(),
    json.dumps({"type": "response.output_item.done", "output_index": 0, "item": {**ITEM, "arguments": "{}"}}).encode(),
    b'{"type":"response.in_progress","response":{"id":"r"},"said":"\xff"}',
    OF_ITEM[0] + OF_ITEM[1],
    OF_ITEM[0] + b"," + OF_ITEM[1],
    b"no json",
]


def halves(text: bytes, *, at: bytes) -> list[bytes]:
    """An event that came as two, and two that came as one: as many as if all were well."""
    head, found, tail = text.partition(at)
    assert found
    return [head, tail, text + b"," + text]


CASES = [
    *[
        (anthropic_messages.FAMILY, [*BEGUN, *OF_CALL, *halves(OF_CALL[0], at=at), *OF_CALL])
        for at in (b",", b'"partial_json', b", ")
    ],
    *[
        (openai_responses.FAMILY, [*CREATED, *OF_ITEM, *halves(OF_ITEM[1], at=at), *OF_ITEM])
        for at in (b",", b" \\", b', "delta')
    ],
    *[(anthropic_messages.FAMILY, [*BEGUN, *OF_CALL, odd, *OF_CALL]) for odd in ODD_ANTHROPIC],
    (anthropic_messages.FAMILY, [*BEGUN, *OF_CALL, *OF_TEXT]),
    *[(openai_responses.FAMILY, [*CREATED, *OF_ITEM, odd, *OF_ITEM]) for odd in ODD_RESPONSES],
]


@each("names", [True, False], ids=["named", "unnamed"])
@each(("family", "texts"), CASES)
def test_a_read_of_many_deltas_says_what_each_says_alone(family: Family, texts: list[bytes], names: bool) -> None:
    """Whatever stands among them, with the names of events and without."""
    kinds = [kind_of(text, otherwise=kind_of(texts[-1])) for text in texts]
    events = [
        (b"event: " + kind + b"\n" if names else b"") + b"data: " + text + b"\n\n"
        for kind, text in zip(kinds, texts, strict=True)
    ]
    begun = len(BEGUN)
    together = decode_stream(family, [b"".join(events)], profile=PROFILE)
    later = decode_stream(family, [*events[:begun], b"".join(events[begun:])], profile=PROFILE)
    assert together == later == decode_stream(family, events, profile=PROFILE)


def kind_of(text: bytes, *, otherwise: bytes = b"") -> bytes:
    try:
        return str(json.loads(text)["type"]).encode()
    except (ValueError, KeyError):
        return otherwise


def test_named_events_of_one_read_are_those_that_are_read_byte_by_byte() -> None:
    """The usual two lines, and whatever else a server may put between blank ones."""
    stream = (
        b"event: one\ndata: 1\n\nevent: two\ndata: 2\n\nevent: two\ndata: 3\ndata: more\n\n\n\n: a comment\n\ndata: 4\n\n"
        b"event: \xff \ndata: 5\n\nevent: x\nid: 7\ndata: 6\n\nevent: y\ndata:7\n\nevent: z\n\nevent: one\ndata: \n\n"
        b"event: last\ndata: cut"
    )
    whole, bit_by_bit = SseParser(), SseParser()
    expected: list[SseEvent] = [event for at in range(len(stream)) for event in bit_by_bit.feed(stream[at : at + 1])]
    assert [*whole.feed(stream), *whole.finish()] == [*expected, *bit_by_bit.finish()]
    assert len(expected) == 9
