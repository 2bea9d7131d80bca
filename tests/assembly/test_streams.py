"""Malformed Chat Completions streams, written by hand, each beside what it must become (`tests/streams/`)."""

import tomllib
from collections.abc import Iterable
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from requirements import PROMISES
from tables import each
from turnwise.testing.frames import byte_by_byte, every_split, random_splits
from turnwise.vocab import Response, ToolCall, calls_of, reasoning_of, refusal_of, text_of
from turnwise.wire import family as registry
from turnwise.wire.profiles import builtin_profiles
from whole_streams import read_stream

FOLDER = Path(__file__).resolve().parents[1] / "streams" / "openai_chat"


class Written(NamedTuple):
    name: str
    expected: dict[str, Any]

    @property
    def content(self) -> bytes:
        return (FOLDER / f"{self.name}.sse").read_bytes()

    def decode(self, pieces: Iterable[bytes]) -> Response:
        return read_stream(
            pieces,
            family=registry.family("openai_chat"),
            profile=builtin_profiles()["openai_chat"],
            tool_names=frozenset(self.expected.get("tool_names", ())),
        )


STREAMS = [Written(name, expected) for name, expected in tomllib.loads((FOLDER / "expected.toml").read_text()).items()]


def of(promise: str) -> Any:
    found = [stream for stream in STREAMS if promise in stream.expected["promises"]]
    assert found, f"no stream for {promise}"
    return pytest.mark.parametrize("stream", found, ids=lambda stream: stream.name)


def call_as_written(call: ToolCall) -> dict[str, Any]:
    written: dict[str, Any] = {
        "id": call.id,
        "name": call.name,
        "arguments": call.arguments,
        "state": call.state.value,
    }
    if call.reason:
        written["reason"] = call.reason
    if call.alternatives:
        written["alternatives"] = list(call.alternatives)
    return written


def check(stream: Written) -> None:
    expected = stream.expected
    response = stream.decode([stream.content])
    assert [call_as_written(call) for call in calls_of(response.message)] == expected["calls"]
    assert text_of(response.message) == expected.get("text", "")
    assert reasoning_of(response.message) == expected.get("reasoning", "")
    assert refusal_of(response.message) == expected.get("refusal", "")
    assert response.finish == expected["finish"]
    assert (response.provider_finish or "") == expected.get("provider_finish", expected["finish"])
    assert [repair.kind for repair in response.repairs] == expected.get("repairs", [])
    usage = response.usage
    assert (usage and [usage.input_tokens, usage.output_tokens]) == expected.get("usage")
    assert response.fault is None


def test_every_written_stream_is_expected_and_every_expectation_has_a_stream() -> None:
    assert sorted(stream.name for stream in STREAMS) == sorted(path.stem for path in FOLDER.glob("*.sse"))
    named = {promise for stream in STREAMS for promise in stream.expected["promises"]}
    assert named <= set(PROMISES)


@pytest.mark.promise("assembly:id-every-chunk")
@of("assembly:id-every-chunk")
def test_an_id_in_every_chunk_is_one_call(stream: Written) -> None:
    check(stream)


@pytest.mark.promise("assembly:id-first-only")
@of("assembly:id-first-only")
def test_an_id_in_the_first_chunk_only_is_one_call(stream: Written) -> None:
    check(stream)


@pytest.mark.promise("assembly:no-index")
@of("assembly:no-index")
def test_calls_without_an_index_are_told_apart_by_id(stream: Written) -> None:
    check(stream)


@pytest.mark.promise("assembly:shared-index")
@of("assembly:shared-index")
def test_calls_on_one_index_are_told_apart_by_id(stream: Written) -> None:
    check(stream)


@pytest.mark.promise("assembly:id-churn")
@of("assembly:id-churn")
def test_a_new_id_in_every_chunk_is_one_call_with_the_first_id(stream: Written) -> None:
    check(stream)


@pytest.mark.promise("assembly:interleaved")
@of("assembly:interleaved")
def test_interleaved_pieces_never_mix(stream: Written) -> None:
    check(stream)


@pytest.mark.promise("assembly:name-repeated")
@of("assembly:name-repeated")
def test_a_name_repeated_or_split_is_that_name_once(stream: Written) -> None:
    check(stream)


@pytest.mark.promise("assembly:empty-later")
@of("assembly:empty-later")
def test_empty_ids_and_names_mean_nothing(stream: Written) -> None:
    check(stream)


@pytest.mark.promise("assembly:id-missing")
@of("assembly:id-missing")
def test_a_call_without_an_id_gets_one(stream: Written) -> None:
    check(stream)


@pytest.mark.promise("assembly:id-twice")
@of("assembly:id-twice")
def test_calls_with_one_id_are_made_unique(stream: Written) -> None:
    check(stream)


@pytest.mark.promise("assembly:object-args")
@of("assembly:object-args")
def test_arguments_of_every_shape_are_read_or_named(stream: Written) -> None:
    check(stream)


@pytest.mark.promise("assembly:cumulative")
@of("assembly:cumulative")
def test_arguments_that_come_again_are_taken_once(stream: Written) -> None:
    check(stream)


@pytest.mark.promise("assembly:empty-then-real")
@of("assembly:empty-then-real")
def test_an_empty_object_before_the_real_one_is_dropped(stream: Written) -> None:
    check(stream)


@pytest.mark.promise("assembly:whole-in-one")
@of("assembly:whole-in-one")
def test_a_whole_call_in_one_chunk_is_a_call(stream: Written) -> None:
    check(stream)


@pytest.mark.promise("assembly:late-args")
@of("assembly:late-args")
def test_what_comes_after_the_finish_reason_still_counts(stream: Written) -> None:
    check(stream)


@pytest.mark.promise("assembly:no-done")
@of("assembly:no-done")
def test_how_the_stream_ends_changes_nothing(stream: Written) -> None:
    check(stream)


@pytest.mark.promise("cut:never-run")
@of("cut:never-run")
def test_what_may_be_cut_is_never_complete(stream: Written) -> None:
    check(stream)


@pytest.mark.promise("assembly:kinds")
@of("assembly:kinds")
def test_refusals_and_reasoning_survive(stream: Written) -> None:
    check(stream)


@pytest.mark.promise("assembly:order")
@of("assembly:order")
def test_calls_come_out_as_they_began(stream: Written) -> None:
    check(stream)


@pytest.mark.promise("assembly:split-anywhere")
@of("assembly:split-anywhere")
def test_framing_changes_nothing(stream: Written) -> None:
    check(stream)


@pytest.mark.costly
@pytest.mark.promise("assembly:split-anywhere")
@each("stream", STREAMS, ids=lambda stream: stream.name)
def test_any_split_of_the_bytes_gives_the_same_response(stream: Written) -> None:
    """One byte at a time and 20 random ways; every single cut is tried on two streams below."""
    whole = stream.decode([stream.content])
    assert stream.decode(byte_by_byte(stream.content)) == whole
    for pieces in random_splits(stream.content, seed=len(stream.content)):
        assert stream.decode(pieces) == whole


@pytest.mark.promise("assembly:split-anywhere")
@pytest.mark.parametrize("name", ["framing", "reasoning-text-call"])
def test_every_single_cut_gives_the_same_response(name: str) -> None:
    """Inside UTF-8, CRLF, the BOM, a field's name: two pieces, cut at every byte."""
    stream = next(stream for stream in STREAMS if stream.name == name)
    whole = stream.decode([stream.content])
    for pieces in every_split(stream.content):
        assert stream.decode(pieces) == whole


@pytest.mark.promise("assembly:split-anywhere")
@each("stream", STREAMS, ids=lambda stream: stream.name)
def test_line_ends_comments_and_a_bom_change_nothing(stream: Written) -> None:
    """CR, CRLF and LF, a BOM, a comment and a keep-alive before every event."""
    plain = stream.content.removeprefix(b"\xef\xbb\xbf").replace(b"\r\n", b"\n")
    whole = stream.decode([plain])
    chatty = plain.replace(b"data: ", b": OPENROUTER PROCESSING\n\nid: 1\nevent: message\ndata:")
    for disguise in (
        plain.replace(b"\n", b"\r\n"),
        plain.replace(b"\n", b"\r"),
        b"\xef\xbb\xbf" + plain,
        chatty,
        plain.rstrip(b"\n"),
    ):
        assert stream.decode([disguise]) == whole
