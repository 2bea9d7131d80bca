"""Stop sequences that the gateway serves: what a client gets of an answer, however it comes."""

import itertools
import json
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from relay.asking_relay import body_of, plain, send
from turnwise.assembly.response_reading import read_body
from turnwise.assembly.text_calls.frames import CallFinder
from turnwise.relay.client_exchange import ClientSide, Relay, RelayEnd, RelayRules, Send, SoughtInText, UpstreamSide
from turnwise.relay.event_reader import EventReader
from turnwise.relay.stops import StopWatch, cut_at_stop
from turnwise.vocab import (
    BlockEnded,
    Finished,
    FinishReason,
    Frame,
    Message,
    Reasoning,
    ReasoningDelta,
    Request,
    Response,
    Started,
    Text,
    TextDelta,
    ToolCallDelta,
    ToolSpec,
    calls_of,
    text_of,
)
from turnwise.wire.family import family
from turnwise.wire.profiles import builtin_profiles
from whole_streams import read_stream

ROWS = {
    "openai_chat": "openai-chat",
    "openai_responses": "openai",
    "anthropic_messages": "anthropic",
    "gemini": "google",
}
CLIENTS = ("openai_chat", "anthropic_messages", "gemini")
WORDS = {"openai_chat": '"stop"', "anthropic_messages": '"stop_sequence"', "gemini": '"STOP"'}
TOOL = ToolSpec(name="look", parameters='{"type":"object","properties":{}}')

dense = st.text(alphabet="ab\n", max_size=30)
sequences = st.lists(st.text(alphabet="ab\n", min_size=1, max_size=5), min_size=1, max_size=4).map(tuple)


def wanted(text: str, stops: Sequence[str]) -> tuple[str, str | None]:
    """By `str.find`: the sequence that is whole first, and of those that are whole at once the longest."""
    found = [(at + len(stop), -len(stop), stop) for stop in stops if (at := text.find(stop)) >= 0]
    if not found:
        return text, None
    end, length, stop = min(found)
    return text[: end + length], stop


def split(text: str, cuts: Sequence[int]) -> list[str]:
    places = [0, *sorted({cut % (len(text) + 1) for cut in cuts}), len(text)]
    return [text[a:b] for a, b in itertools.pairwise(places) if a < b]


@pytest.mark.promise("heal:every-case")
@given(dense, sequences, st.lists(st.integers(0, 100), max_size=30))
def test_a_text_ends_at_its_first_stop_sequence_however_it_comes(
    text: str, stops: tuple[str, ...], cuts: list[int]
) -> None:
    """Proves: for each text, list of sequences and split, all that goes out is the text before the first sequence, and each piece
    of it goes out once; what goes out holds no sequence at all."""
    said, sequence = wanted(text, stops)
    watch, passed = StopWatch(stops), ""
    for piece in split(text, cuts):
        passed += watch.feed(piece)
        assert said.startswith(passed)
        if watch.sequence is not None:
            break
    assert (passed if watch.sequence else passed + watch.rest(), watch.sequence) == (said, sequence)
    assert not any(stop in said for stop in stops)
    whole = Response(message=Message("assistant", (Text(text),)), finish=FinishReason.LENGTH)
    cut = cut_at_stop(whole, stops)
    assert (text_of(cut.message), cut.stop_sequence) == (said, sequence) and (cut is whole) is (sequence is None)


def test_what_waits_is_no_more_than_could_still_be_a_sequence() -> None:
    """Proves: a text without the beginning of a sequence flows at once, and a false beginning as soon as it is known for one. The
    table of a sequence is as long as the sequence, so 16,384 characters cost no more than a request may."""
    watch = StopWatch(("\nObservation:",))
    assert [watch.feed(piece) for piece in ("Look", ". \n", "Obs", "cure", "\n")] == ["Look", ". ", "", "\nObscure", ""]
    assert watch.rest() == "\n"
    long = StopWatch(("a" * 16_383 + "b",))
    assert sum(len(long.feed("a")) for _ in range(100_000)) == 100_000 - 16_383


def relay(
    client: str,
    upstream: str,
    *,
    stops: tuple[str, ...],
    stream: bool = True,
    rules: RelayRules | None = None,
    in_text: SoughtInText | None = None,
    tools: tuple[ToolSpec, ...] = (TOOL,),
) -> Relay:
    there, profile = family(upstream), builtin_profiles()[ROWS[upstream]]
    request = Request(model="m", messages=(Message("user", (Text("Go."),)),), tools=tools, stream=stream)
    side = UpstreamSide(
        request=request,
        call=there.encode_request(request, profile),
        family=there,
        profile=profile,
        stops=stops,
        in_text=in_text,
    )
    return Relay(upstream=side, client=ClientSide(request=request, family=family(client)), rules=rules or RelayRules())


def written(upstream: str, frames: Sequence[Frame]) -> list[bytes]:
    encoder = family(upstream).stream_encoder(Request(model="m", messages=(), stream=True))
    return [*map(encoder.encode, frames), encoder.finish()]


def streamed(one: Relay, pieces: Sequence[bytes]) -> tuple[bytes, RelayEnd | Send, bool]:
    """The client's bytes, what comes next, and whether the upstream was left before its end."""
    reader, out = one.reader(), b""
    assert isinstance(reader, EventReader)
    for piece in pieces:
        reader.feed(piece)
        out += reader.take_out()
        if reader.faulted:
            break
    reader.flush()
    step = one.ended(reader.finish(), None, waited_s=0, jitter=0.5)
    return out + reader.take_out() + step.out, step.next, reader.faulted


def texts(*pieces: str) -> list[Frame]:
    return [TextDelta(piece) for piece in pieces]


@pytest.mark.promise("heal:every-case")
@pytest.mark.parametrize("upstream", ["openai_responses", "openai_chat"])
@pytest.mark.parametrize("client", CLIENTS)
def test_a_stream_ends_at_the_sequence_in_the_clients_own_words(client: str, upstream: str) -> None:
    """Proves: reasoning is not searched; the sequence is found across pieces; the upstream is left, nothing is continued or asked
    for again, and the client reads a whole answer with the word of its API, Anthropic's with the sequence."""
    frames = [
        Started("r1", "m"),
        ReasoningDelta("Think of STOP first."),
        *texts("The answer ", "is 42.S", "TO", "P And more.", " And more."),
        Finished(FinishReason.LENGTH),
    ]
    out, end, was_left = streamed(relay(client, upstream, stops=("STOP", "nothing")), written(upstream, frames))
    assert isinstance(end, RelayEnd) and end.fault is None and end.repairs == () and was_left
    response = read_stream([out], family=family(client), profile=builtin_profiles()[ROWS[client]])
    assert (text_of(response.message), response.finish, response.repairs) == (
        "The answer is 42.",
        FinishReason.STOP,
        (),
    )
    assert WORDS[client].encode() in out and b"And more" not in out
    assert (b'"stop_sequence":"STOP"' in out) is (client == "anthropic_messages")


@given(dense, sequences, st.lists(st.integers(0, 100), max_size=12), st.sampled_from(CLIENTS))
def test_any_stream_of_words_ends_as_the_text_of_it_would(
    text: str, stops: tuple[str, ...], cuts: list[int], client: str
) -> None:
    """Proves: however a text comes and whatever the sequences are, the client's stream is the text before the first of them."""
    said, _ = wanted(text, stops)
    frames = [Started("r1", "m"), *texts(*split(text, cuts)), Finished(FinishReason.STOP)]
    out, end, _ = streamed(relay(client, "openai_responses", stops=stops), written("openai_responses", frames))
    assert isinstance(end, RelayEnd) and end.fault is None
    response = read_stream([out], family=family(client), profile=builtin_profiles()[ROWS[client]])
    assert (text_of(response.message), response.finish) == (said, FinishReason.STOP)


@pytest.mark.parametrize("client", CLIENTS)
def test_arguments_of_calls_are_not_searched_and_a_text_before_a_call_is_shown_before_it(client: str) -> None:
    """Proves: a call keeps its arguments with the sequence in them, and what waited of the text stands before the call."""
    frames = [
        Started("r1", "m"),
        *texts("I look. ST"),
        BlockEnded("text"),
        ToolCallDelta(block="c", index=0, id="c1", name="look", arguments='{"at":"STOP"}'),
        BlockEnded("c"),
        Finished(FinishReason.TOOL_CALLS),
    ]
    out, end, was_left = streamed(
        relay(client, "openai_responses", stops=("STOP",)), written("openai_responses", frames)
    )
    assert isinstance(end, RelayEnd) and end.fault is None and not was_left
    response = read_stream([out], family=family(client), profile=builtin_profiles()[ROWS[client]])
    (call,) = calls_of(response.message)
    assert (text_of(response.message), json.loads(call.arguments), response.finish) == (
        "I look. ST",
        {"at": "STOP"},
        FinishReason.TOOL_CALLS,
    )


WRITTEN_CALL = '<tool_call>\n{"name":"look","arguments":{"at":"STOP"}}\n</tool_call>'


@pytest.mark.parametrize("stream", [True, False])
@pytest.mark.parametrize("client", CLIENTS)
@pytest.mark.parametrize(
    ("text", "said", "calls", "tools"),
    [
        (f"I look. {WRITTEN_CALL}", "I look. ", 1, (TOOL,)),
        (WRITTEN_CALL, "", 1, (TOOL,)),
        (f"{WRITTEN_CALL}\nThen STOP it.", "Then", 1, (TOOL,)),
        (f"Done. STOP {WRITTEN_CALL}", "Done. ", 0, (TOOL,)),
        ("<think>Perhaps STOP</think>The answer. STOP More.", "The answer. ", 0, (TOOL,)),
        ("<think>Perhaps STOP</think>The answer. STOP More.", "The answer. ", 0, ()),
    ],
)
def test_calls_and_reasoning_that_are_written_as_text_are_not_searched(
    text: str, said: str, calls: int, tools: tuple[ToolSpec, ...], client: str, stream: bool
) -> None:
    """Proves: a sequence in the arguments of a call that the model wrote as text, in its marks or in reasoning between marks
    ends nothing; one in the words around them does, and a whole call before it stays."""
    stops, there = ("STOP", "\n</tool"), family("openai_chat")
    one = relay(client, "openai_chat", stops=stops, stream=stream, in_text=SoughtInText(unmarked=False), tools=tools)
    profile = builtin_profiles()[ROWS[client]]
    if stream:
        pieces = [text[at : at + 5] for at in range(0, len(text), 5)]
        frames = [Started("r1", "m"), *texts(*pieces), Finished(FinishReason.STOP)]
        out, end, _ = streamed(one, written("openai_chat", frames))
        found = read_stream([out], family=family(client), profile=profile)
    else:
        whole = Response(message=Message("assistant", (Text(text),)), finish=FinishReason.STOP, id="r1", model="m")
        body = there.encode_body(whole, Request(model="m", messages=(), stream=False))
        sent = one.first()
        assert sent.in_text is not None
        one.saw_body(body)
        finder = CallFinder(tools=tools, earlier=sent.request.messages)
        reply, _ = read_body(body, family=there, profile=builtin_profiles()["openai-chat"], in_text=finder)
        step = one.ended(reply, None, waited_s=0, jitter=0.5)
        end, (found, _) = step.next, read_body(step.out, family=family(client), profile=profile)
    assert isinstance(end, RelayEnd) and end.fault is None
    assert text_of(found.message).strip() == said.strip()
    assert [json.loads(call.arguments) for call in calls_of(found.message)] == [{"at": "STOP"}] * calls
    assert found.finish is (FinishReason.TOOL_CALLS if calls else FinishReason.STOP)


@pytest.mark.parametrize("client", CLIENTS)
def test_a_whole_answer_is_cut_as_well(client: str) -> None:
    """Proves: what follows the sequence is in no part of the body, and its end has the word of the API."""
    there = family("openai_responses")
    parts = (Reasoning("STOP?"), Text("Before. STOP After."), Text("Later."))
    whole = Response(message=Message("assistant", parts), finish=FinishReason.STOP, id="r1", model="m")
    one = relay(client, "openai_responses", stops=("STOP",), stream=False)
    body = there.encode_body(whole, Request(model="m", messages=(), stream=False))
    one.saw_body(body)
    reply, _ = read_body(body, family=there, profile=builtin_profiles()["openai"])
    step = one.ended(reply, None, waited_s=0, jitter=0.5)
    assert isinstance(step.next, RelayEnd) and step.next.fault is None
    found, _ = read_body(step.out, family=family(client), profile=builtin_profiles()[ROWS[client]])
    assert (text_of(found.message), found.finish, WORDS[client].encode() in step.out) == (
        "Before. ",
        FinishReason.STOP,
        True,
    )
    assert b"After" not in step.out and b"Later" not in step.out


@pytest.mark.parametrize("stream", [True, False])
def test_a_sequence_that_a_continuation_completes_ends_the_answer(stream: bool) -> None:
    """Proves: a limit in the middle of a sequence takes nothing back, and no further continuation follows the sequence."""
    one = relay("openai_chat", "openai_chat", stops=("STOP",), stream=stream)
    story = "The quick brown fox jumps over the lazy dog, again and again. "
    if stream:
        frames = [Started("r1", "m"), *texts(story, "ST"), Finished(FinishReason.LENGTH)]
        out, following, _ = streamed(one, written("openai_chat", frames))
        assert b'"ST"' not in out
    else:
        cut = Response(message=Message("assistant", (Text(f"{story}ST"),)), finish=FinishReason.LENGTH)
        out, following = b"", one.ended(cut, None, waited_s=0, jitter=0.5).next
    assert isinstance(following, Send) and following.purpose == "continue"
    more = Response(
        message=Message("assistant", (Text(f"{story[20:]}STOP and on, as long as it goes"),)),
        finish=FinishReason.LENGTH,
    )
    step = one.ended(more, None, waited_s=0, jitter=0.5)
    assert isinstance(step.next, RelayEnd) and step.next.fault is None and step.next.response is not None
    assert (text_of(step.next.response.message), step.next.response.finish) == (story, FinishReason.STOP)
    if stream:
        heard = read_stream([out + step.out], family=family("openai_chat"), profile=builtin_profiles()["openai-chat"])
        assert (text_of(heard.message), heard.finish) == (story, FinishReason.STOP)


ASKED: list[tuple[str, dict[str, Any], str, dict[str, Any]]] = [
    ("openai_chat", {"stop": "X"}, "openai_responses", {}),
    ("openai_chat", {"stop": ["X", ""]}, "openai_responses", {}),
    ("openai_chat", {"stop": ["X"]}, "openai_chat", {}),  # GPT-5
    ("openai_chat", {"stop": list("Xabcde")}, "gemini", {}),
    ("anthropic_messages", {"stop_sequences": ["X"]}, "openai_responses", {}),
    ("gemini", {"generationConfig": {"stopSequences": ["X"]}}, "openai_responses", {}),
]


@pytest.mark.promise("heal:told")
@pytest.mark.parametrize(("source", "fields", "target", "more"), ASKED)
def test_sequences_that_the_upstream_does_not_take_stay_here_and_are_told(
    source: str, fields: dict[str, Any], target: str, more: dict[str, Any]
) -> None:
    """Proves: the body has none of them, the gateway watches for them, and a repair says so."""
    found = send(source, plain(source, **fields, **more), to=target)
    assert found.stops[:1] == ("X",) and "" not in found.stops and found.request.settings.stop == ()
    assert not {"stop", "stop_sequences", "stopSequences"} & body_of(found).keys()
    assert [one.kind for one in found.told].count("stop_served") == 1
