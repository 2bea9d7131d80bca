"""Words that go out before they are assembled: the client, the response and the evidence are those of a plain reading."""

import json
from collections.abc import Sequence
from typing import NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from turnwise.relay.client_exchange import (
    ClientSide,
    EventReader,
    Relay,
    RelayEnd,
    RelayRules,
    SoughtInText,
    UpstreamSide,
)
from turnwise.relay.event_reader import FEWEST_EVENTS, MOST_EVENT_BYTES, MOST_EVENTS, SHARE
from turnwise.rules.retries import NO_RETRY
from turnwise.testing.frames import random_splits
from turnwise.vocab import Message, Repair, Request, Text, ToolSpec, text_of
from turnwise.wire.family import family
from turnwise.wire.profiles import DEFAULT_LIMITS, Limits, builtin_profiles

FAMILY_PROFILES = {
    "openai_chat": "openai-chat",
    "openai_responses": "openai",
    "anthropic_messages": "anthropic",
    "gemini": "gemini",
}
TOOLS = (ToolSpec(name="look", parameters='{"type":"object"}'),)


class Told(NamedTuple):
    out: bytes  # all that the client got
    early: int  # words that went out early
    end: object
    repairs: tuple[Repair, ...]
    evidence: object


def relay_for(name: str, *, seeks: bool = False, bounds: Limits = DEFAULT_LIMITS, spread: float = 0.0) -> Relay:
    there, profile = family(name), builtin_profiles()[FAMILY_PROFILES[name]]
    request = Request(
        model="m", messages=(Message("user", (Text("Please."),)),), tools=TOOLS if seeks else (), stream=True
    )
    return Relay(
        upstream=UpstreamSide(
            request=request,
            call=there.encode_request(request, profile),
            family=there,
            profile=profile,
            in_text=SoughtInText(unmarked=False) if seeks else None,
        ),
        client=ClientSide(request=request, family=there),
        rules=RelayRules(continues="off", retries=NO_RETRY, bounds=bounds),
        spread=spread,
    )


def told(name: str, pieces: Sequence[bytes], *, early: bool, **more: object) -> Told:
    """What comes of a stream that arrives in these pieces."""
    relay = relay_for(name, **more)  # pyright: ignore[reportArgumentType]
    reader = relay.reader()
    assert isinstance(reader, EventReader)
    out: list[bytes] = []
    taken = 0
    for piece in pieces:
        if early and reader.early_words.take(piece):
            reader.hold_word(piece)
            taken += 1
        else:
            reader.feed(piece)
        out.append(reader.take_out())
    response = reader.finish()
    evidence = reader.witness.events("x")
    out.append(reader.take_out())
    step = relay.ended(response, response.fault, waited_s=0, jitter=0.5)
    assert isinstance(step.next, RelayEnd)
    return Told(b"".join([*out, step.out]), taken, step.next, step.next.repairs, evidence)


def same(name: str, pieces: Sequence[bytes], **more: object) -> Told:
    """Both ways give the same; returned as the early one has it."""
    early, plain = told(name, pieces, early=True, **more), told(name, pieces, early=False, **more)
    assert early._replace(early=0) == plain
    return early


def chat(delta: object, *, finish: str | None = None, **more: object) -> bytes:
    choice = {"index": 0, "delta": delta, "finish_reason": finish}
    return b"data: " + json.dumps({"id": "c1", "model": "m", "choices": [choice], **more}).encode() + b"\n\n"


def anthropic(kind: str, **more: object) -> bytes:
    return f"event: {kind}\ndata: ".encode() + json.dumps({"type": kind, **more}).encode() + b"\n\n"


def block(number: int, text: str) -> bytes:
    return anthropic("content_block_delta", index=number, delta={"type": "text_delta", "text": text})


BEGIN = chat({"role": "assistant", "content": ""})
END = [chat({}, finish="stop"), b"data: [DONE]\n\n"]
MESSAGE = {"id": "m1", "type": "message", "role": "assistant", "model": "m", "content": [], "stop_reason": None}
ANTHROPIC_BEGIN = [
    anthropic("message_start", message={**MESSAGE, "usage": {"input_tokens": 1, "output_tokens": 1}}),
    anthropic("content_block_start", index=0, content_block={"type": "text", "text": ""}),
]
ANTHROPIC_END = [
    anthropic("content_block_stop", index=0),
    anthropic("message_delta", delta={"stop_reason": "end_turn", "stop_sequence": None}, usage={"output_tokens": 9}),
    anthropic("message_stop"),
]

anything = st.text(max_size=12) | st.sampled_from(
    ["<", '"', "\\", "\n\n", "content", '"content":', "data: ", "{}", "\ud83d"]
)
other_events = st.sampled_from(
    [
        b": ping\n\n",
        chat({"content": ""}),
        chat({"reasoning_content": "Hm."}),
        chat({"content": "x"}, usage={"prompt_tokens": 1, "completion_tokens": 2, "total_tokens": 3}),
        chat(
            {
                "tool_calls": [
                    {"index": 0, "id": "a", "type": "function", "function": {"name": "look", "arguments": "{}"}}
                ]
            }
        ),
        chat({"tool_calls": [{"index": 0, "function": {"arguments": ""}}]}),
        b'data: {"id":"c1","model":"m","choices":[{"index":0,"delta":{"content":"lo',
        b'st"},"finish_reason":null}]}\n\n',
        b"data: {broken\n\n",
        b'data: {"error":{"message":"no"}}\n\n',
    ]
)


@pytest.mark.promise("heal:transparent", "heal:every-case")
@given(st.lists(anything.map(lambda text: chat({"content": text})) | other_events, max_size=40), st.booleans())
def test_any_stream_of_words_is_told_as_without_it(pieces: list[bytes], seeks: bool) -> None:
    """Proves: whatever stands between the words, and whatever the words are, both ways give one result."""
    same("openai_chat", [BEGIN, *pieces, *END], seeks=seeks)


@given(st.lists(anything, min_size=6, max_size=30), st.integers(0, 999))
def test_events_cut_anywhere_are_told_as_without_it(words: list[str], seed: int) -> None:
    """Proves: an event in two reads, and two in one, are read whole."""
    stream = b"".join([BEGIN, *[chat({"content": word}) for word in words], *END])
    for pieces in random_splits(stream, count=3, seed=seed):
        same("openai_chat", pieces)


@pytest.mark.promise("heal:transparent")
@pytest.mark.parametrize("spread", [0.0, 0.999])
def test_most_words_of_a_plain_stream_go_out_early(spread: float) -> None:
    """Proves: the way is taken, over several rounds of catching up, and the bytes are the upstream's."""
    pieces = [BEGIN, *[chat({"content": f"word {number} "}) for number in range(300)], *END]
    found = same("openai_chat", pieces, spread=spread)
    assert found.out == b"".join(pieces)
    # But for the first, before which the client knew nothing, and the one that it learned from.
    assert found.early == 298
    assert FEWEST_EVENTS < MOST_EVENTS < 150, "several rounds"


def test_words_of_two_blocks_do_not_mix() -> None:
    """Proves: a word of another block, or of another kind, is read whole first."""
    pieces = [
        *ANTHROPIC_BEGIN,
        *[block(0, f"one {number}") for number in range(5)],
        anthropic("content_block_stop", index=0),
        anthropic("content_block_start", index=1, content_block={"type": "text", "text": ""}),
        *[block(1, f"two {number}") for number in range(5)],
        anthropic("content_block_stop", index=1),
        *ANTHROPIC_END[1:],
    ]
    found = same("anthropic_messages", pieces)
    assert found.out == b"".join(pieces)
    assert found.early == 7  # of each block all but the first, and of the first block the one that it learned from

    thought = [chat({"reasoning_content": f"hm {number}"}) for number in range(4)]
    said = [chat({"content": f"so {number}"}) for number in range(4)]
    assert same("openai_chat", [BEGIN, *thought, *said, *thought, *END]).early >= 6


def test_a_word_that_may_begin_a_call_is_read_whole() -> None:
    """Proves: where calls are looked for in texts, a mark of one ends the early words."""
    words = [
        chat({"content": word}) for word in ("Let ", "me ", "look: ", "<tool_call>", '{"name": "look", "arguments": ')
    ]
    found = same("openai_chat", [BEGIN, *words, chat({"content": "{}}</tool_call>"}), *END], seeks=True)
    assert found.early == 1
    assert b'"look"' in found.out and b"tool_call>" not in found.out


@pytest.mark.promise("assembly:lost-piece")
def test_a_word_that_stood_elsewhere_is_found_out() -> None:
    """Proves: an event whose word is written with escapes, while the same word stands beside it, teaches nothing; what was told
    of such a stream is what it says."""

    def odd(text: str, beside: str) -> bytes:
        escaped = "".join([f"\\u{ord(one):04x}" for one in text])
        return (
            b'data: {"id":"c1","model":"%s","choices":[{"index":0,"delta":{"content":"%s"},"finish_reason":null}]}\n\n'
            % (beside.encode(), escaped.encode())
        )

    pieces = [BEGIN, odd("aa", "aa"), odd("aa", "bb"), odd("aa", "cc"), odd("aa", "dd"), *END]
    early = told("openai_chat", pieces, early=True)
    assert b'"error"' in early.out or early.out == told("openai_chat", pieces, early=False).out


def test_long_words_and_long_responses_are_read_whole() -> None:
    """Proves: nothing goes out early that a limit could still refuse."""
    long = [chat({"content": "x" * MOST_EVENT_BYTES}) for _ in range(4)]
    assert same("openai_chat", [BEGIN, *long, *END]).early == 0

    small = Limits(response_bytes=4_000, stream_bytes=4_000)
    words = [chat({"content": "word "}) for _ in range(60)]
    found = same("openai_chat", [BEGIN, *words, *END], bounds=small)
    assert 0 < found.early < 4_000 // SHARE // len(words[0])
    assert b'"error"' in found.out


@pytest.mark.promise("safe:bounded")
def test_what_was_read_in_the_usual_way_leaves_less_room_for_words() -> None:
    """Proves: a limit that a response has nearly used up is not overrun by words that go out early."""
    small = Limits(response_bytes=4_000, stream_bytes=40_000)
    pairs = [chat({"content": "x" * 100}) + chat({"content": "y" * 100}) for _ in range(19)]
    found = same("openai_chat", [BEGIN, *pairs, *[chat({"content": "word "}) for _ in range(60)], *END], bounds=small)
    assert found.early == 0 and b'"error"' in found.out


def test_silence_is_judged_with_all_words() -> None:
    """Proves: what waits is read before anybody asks whether the response is closed."""
    relay = relay_for("openai_chat")
    reader = relay.reader()
    assert isinstance(reader, EventReader)
    for piece in [BEGIN, *[chat({"content": f"w{number}"}) for number in range(5)]]:
        if not reader.early_words.take(piece):
            reader.feed(piece)
    heard = reader.heard
    assert heard == 6 and not reader.finished  # the beginning, then each word
    closed = reader.is_closed()
    plain = relay_for("openai_chat").reader()
    for piece in [BEGIN, *[chat({"content": f"w{number}"}) for number in range(5)]]:
        plain.feed(piece)
    assert closed == plain.is_closed()
    assert reader.heard >= heard


@pytest.mark.promise("safe:bounded")
@pytest.mark.parametrize("line_bytes", [MOST_EVENT_BYTES // 4, MOST_EVENT_BYTES + 200, MOST_EVENT_BYTES * 2])
def test_words_that_wait_are_together_no_longer_than_a_line(line_bytes: int) -> None:
    """Proves: they are read as one event, and no limit is met by that, however little it allows."""
    pieces = ["plain", "words", *[f'"{number}" é\u2028\\ ' * (1 + number % 9) for number in range(98)]]
    words = [chat({"content": piece}) for piece in pieces]
    found = same("openai_chat", [BEGIN, *words, *END], bounds=Limits(line_bytes=line_bytes))
    assert found.early == 98 and found.out == b"".join([BEGIN, *words, *END])


@pytest.mark.promise("heal:every-case")
def test_a_response_that_a_proxy_sent_twice_is_known_by_its_words() -> None:
    """Proves: where a family compares its events, each word that went out early is one of them, as if it was read at once."""

    def chunk(text: str, **more: object) -> bytes:
        candidate = {"content": {"parts": [{"text": text}], "role": "model"}, "index": 0, **more}
        return b"data: " + json.dumps({"candidates": [candidate]}).encode() + b"\n\n"

    once = [*[chunk(f"word {number} ") for number in range(80)], chunk("end", finishReason="STOP")]
    found = same("gemini", [*once, *once])
    assert found.early > 70
    assert isinstance(found.end, RelayEnd) and found.end.response is not None
    assert text_of(found.end.response.message).count("word 7 ") == 1
