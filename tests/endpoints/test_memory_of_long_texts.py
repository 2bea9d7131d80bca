"""What a text in one piece takes in memory: three times its bytes at most, in every family, whatever it is written in.

From issue 12, line 13. A text with an escape took 3.5 times its bytes, a text with characters outside of ASCII four to six times,
arguments up to seven times, and the first event of a Messages stream and a body in place of a stream once more.
"""

import json
from collections.abc import Iterator

import pytest

from peak_memory import FAMILIES, READ_BYTES, START_BYTES, TIMES, MiB, end_events, taken
from turnwise.assembly.response_reading import read_body
from turnwise.vocab import calls_of, reasoning_of, text_of
from turnwise.wire.family import family
from turnwise.wire.profiles import builtin_profiles
from whole_streams import read_stream

pytestmark = pytest.mark.wide

SIZE = MiB
WRITINGS = {
    "an escape at its beginning": "\\n" + "x" * SIZE,
    "an escape at its end": "x" * SIZE + "\\n",
    "escapes": 'some words\\n\\"' * (SIZE // 14),
    "pairs of escapes": "\\ud83d\\ude00" * (SIZE // 12),
    "Latin": "é\\n" * (SIZE // 4),
    "Cyrillic": "ж" * (SIZE // 2),
    "Chinese": "中" * (SIZE // 3),
    "emoji": "😀" * (SIZE // 4),
    "English with dashes": ("—" + "x" * 80 + "\\n") * (SIZE // 85),
}
"""As they stand in JSON."""

BODIES = {
    ("openai_chat", "text"): '{"choices":[{"message":{"content":"%s"},"finish_reason":"stop"}]}',
    ("openai_chat", "reasoning"): '{"choices":[{"message":{"reasoning":"%s","content":"a"},"finish_reason":"stop"}]}',
    ("openai_chat", "arguments"): (
        '{"choices":[{"message":{"tool_calls":[{"id":"c","function":{"name":"put","arguments":"%s"}}]},'
        '"finish_reason":"tool_calls"}]}'
    ),
    ("openai_responses", "text"): (
        '{"status":"completed","output":[{"type":"message","content":[{"type":"output_text","text":"%s"}]}]}'
    ),
    ("openai_responses", "reasoning"): (
        '{"status":"completed","output":[{"type":"reasoning","summary":[{"type":"summary_text","text":"%s"}]}]}'
    ),
    ("openai_responses", "arguments"): (
        '{"status":"completed","output":[{"type":"function_call","call_id":"c","name":"put","arguments":"%s"}]}'
    ),
    ("anthropic_messages", "text"): (
        '{"type":"message","content":[{"type":"text","text":"%s"}],"stop_reason":"end_turn"}'
    ),
    ("anthropic_messages", "reasoning"): (
        '{"type":"message","content":[{"type":"thinking","thinking":"%s","signature":"s"}],"stop_reason":"end_turn"}'
    ),
    ("anthropic_messages", "arguments"): (
        '{"type":"message","content":[{"type":"tool_use","id":"c","name":"put","input":%s}],"stop_reason":"tool_use"}'
    ),
    ("gemini", "text"): '{"candidates":[{"content":{"parts":[{"text":"%s"}]},"finishReason":"STOP"}]}',
    ("gemini", "reasoning"): (
        '{"candidates":[{"content":{"parts":[{"text":"%s","thought":true}]},"finishReason":"STOP"}]}'
    ),
    ("gemini", "arguments"): (
        '{"candidates":[{"content":{"parts":[{"functionCall":{"name":"put","args":%s}}]},"finishReason":"STOP"}]}'
    ),
}
EVENTS = {
    ("openai_chat", "text"): ['{"id":"r","choices":[{"delta":{"content":"%s"}}]}'],
    ("openai_chat", "reasoning"): ['{"id":"r","choices":[{"delta":{"reasoning_content":"%s"}}]}'],
    ("openai_chat", "arguments"): [
        '{"id":"r","choices":[{"delta":{"tool_calls":[{"index":0,"id":"c","function":{"name":"put","arguments":"%s"}}]}}]}'
    ],
    ("openai_responses", "text"): ['{"type":"response.output_text.delta","output_index":0,"delta":"%s"}'],
    ("openai_responses", "reasoning"): ['{"type":"response.reasoning_text.delta","output_index":0,"delta":"%s"}'],
    ("openai_responses", "arguments"): [
        '{"type":"response.output_item.done","output_index":0,'
        '"item":{"type":"function_call","call_id":"c","name":"put","arguments":"%s"}}'
    ],
    ("anthropic_messages", "text"): [
        '{"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":"%s"}}'
    ],
    ("anthropic_messages", "reasoning"): [
        '{"type":"content_block_delta","index":0,"delta":{"type":"thinking_delta","thinking":"%s"}}'
    ],
    ("anthropic_messages", "arguments"): [
        '{"type":"content_block_start","index":0,"content_block":{"type":"tool_use","id":"c","name":"put","input":{}}}',
        '{"type":"content_block_delta","index":0,"delta":{"type":"input_json_delta","partial_json":"%s"}}',
        '{"type":"content_block_stop","index":0}',
    ],
}
EVENTS |= {place: [BODIES[place].replace(',"finishReason":"STOP"', "")] for place in BODIES if place[0] == "gemini"}
PLACES = ["text", "reasoning", "arguments"]


def written(template: str, name: str, place: str, said: str) -> bytes:
    """Arguments are an object, or the text of one."""
    if place == "arguments" and '"%s"' in template:
        inner = said.replace("\\", "\\\\").replace('"', '\\"')
        said = f'{{\\"z\\":\\"{inner}\\"}}'
    elif place == "arguments":
        said = f'{{"z":"{said}"}}'
    return template.replace("%s", said).encode()


def as_events(jsons: list[bytes]) -> bytes:
    return b"".join([b"data: " + one + b"\n\n" for one in jsons])


def fresh(whole: bytes) -> Iterator[bytes]:
    """In the pieces that a socket gives: each is made when it is read, so that whoever holds it is counted."""
    for at in range(0, len(whole), READ_BYTES):
        yield whole[at : at + READ_BYTES]


Sent = tuple[bytes, bool, bool]


def ways(name: str, place: str, said: str) -> dict[str, Sent]:
    """What is sent, whether a stream was asked for, and whether it arrives whole."""
    body = written(BODIES[name, place], name, place, said)
    jsons = [written(template, name, place, said) for template in EVENTS[name, place]]
    end = b"".join(end_events(name))
    longest = max(range(len(jsons)), key=lambda number: len(jsons[number]))
    torn = [json[:-1] if number == longest else json for number, json in enumerate(jsons)]
    return {
        "a body": (body, False, True),
        "a broken body": (body[:-1], False, False),
        "a body in place of a stream": (body, True, True),
        "an event": (as_events(jsons) + end, True, True),
        "a broken event": (as_events(torn) + end, True, False),
        "an event without its end": (as_events(jsons).rstrip(), True, True),
    }


@pytest.mark.promise("assembly:bounded")
@pytest.mark.parametrize("writing", WRITINGS)
@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("name", FAMILIES)
async def test_text_in_one_piece_takes_three_times_its_bytes(name: str, place: str, writing: str) -> None:
    """As a body, as one event, as a body in place of a stream; whole, broken, and broken off."""
    for way, (sent, streamed, is_whole) in ways(name, place, WRITINGS[writing]).items():
        peak, came, fault = await taken(name, fresh(sent), stream=streamed)
        assert came == len(sent)
        assert peak <= TIMES * came + START_BYTES, (way, peak / came)
        assert fault is None or not is_whole, way


WIDENED = {
    "a dash in the first two thirds": ("x" * (SIZE * 3 // 5) + "—" + "x" * (SIZE * 2 // 5), 3),
    "a dash at the end": ("x" * SIZE + "—", 4),
    "an emoji at the beginning": ("😀" + "x" * SIZE, 5),
    "an emoji at the end": ("x" * SIZE + "😀", 6),
}


@pytest.mark.promise("assembly:bounded")
@pytest.mark.parametrize("writing", WIDENED)
@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("name", FAMILIES)
async def test_ascii_with_a_wider_character_takes_more(name: str, place: str, writing: str) -> None:
    """Python keeps all of such a text as wide as its widest character: docs/limits.md says how much that is."""
    said, times = WIDENED[writing]
    for way, (sent, streamed, _) in ways(name, place, said).items():
        peak, came, _ = await taken(name, fresh(sent), stream=streamed)
        assert peak <= times * came + START_BYTES, (way, peak / came)


@pytest.mark.parametrize("writing", WRITINGS)
@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("name", FAMILIES)
def test_long_text_arrives_as_it_was_written(name: str, place: str, writing: str) -> None:
    """Each way that brings it whole; Python's own decoder says what it is."""
    said = json.loads(f'"{WRITINGS[writing]}"')
    family_, profile = family(name), builtin_profiles()[name]
    for way, (sent, streamed, is_whole) in ways(name, place, WRITINGS[writing]).items():
        if not is_whole:
            continue
        if streamed:
            response = read_stream(fresh(sent), family=family_, profile=profile)
        else:
            response, _ = read_body(sent, family=family_, profile=profile)
        match place:
            case "text":
                arrived: object = text_of(response.message)
            case "reasoning":
                arrived = reasoning_of(response.message)
            case _:
                arrived = json.loads(calls_of(response.message)[0].arguments)["z"]
        assert arrived == said, way
