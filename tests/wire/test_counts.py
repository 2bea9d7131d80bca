"""Counts of tokens, as four families report them: what is a count, and which of several stands."""

import json
from collections.abc import Callable
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from recordings import five_counts
from tables import each
from thoroughness import examples
from turnwise.assembly.response_reading import read_body
from turnwise.vocab import Usage
from turnwise.wire import anthropic_messages, gemini, openai_chat, openai_responses
from turnwise.wire.anthropic_messages.endings import UsageTally
from turnwise.wire.endings import MAX_BYTES, MAX_COUNT, MergedUsage
from turnwise.wire.gemini.endings import UsageReader as GeminiUsage
from turnwise.wire.openai_chat.endings import UsageReader as ChatUsage
from turnwise.wire.openai_responses.open_response import UsageReader as ResponsesUsage
from turnwise.wire.profiles import builtin_profiles
from whole_streams import read_stream

FAMILIES = {
    family.name: family
    for family in (openai_chat.FAMILY, openai_responses.FAMILY, anthropic_messages.FAMILY, gemini.FAMILY)
}
each_family = pytest.mark.parametrize("name", FAMILIES)

REAL: dict[str, dict[str, Any]] = {
    "openai_chat": {
        "prompt_tokens": 20,
        "completion_tokens": 9,
        "total_tokens": 29,
        "prompt_tokens_details": {"cached_tokens": 5, "cache_write_tokens": 4},
        "completion_tokens_details": {"reasoning_tokens": 3},
    },
    "openai_responses": {
        "input_tokens": 20,
        "output_tokens": 9,
        "total_tokens": 29,
        "input_tokens_details": {"cached_tokens": 5, "cache_write_tokens": 4},
        "output_tokens_details": {"reasoning_tokens": 3},
    },
    "anthropic_messages": {
        "input_tokens": 11,
        "cache_read_input_tokens": 5,
        "cache_creation_input_tokens": 4,
        "output_tokens": 9,
        "output_tokens_details": {"thinking_tokens": 3},
    },
    "gemini": {
        "promptTokenCount": 20,
        "candidatesTokenCount": 6,
        "thoughtsTokenCount": 3,
        "cachedContentTokenCount": 5,
        "totalTokenCount": 29,
    },
}
COUNTED = {name: (20, 9, 3, 5, 0 if name == "gemini" else 4) for name in FAMILIES}  # Gemini tells no cache writes


def replaced(value: object, *, by: object) -> Any:
    """The object with another value in place of every count."""
    if isinstance(value, dict):
        return {key: replaced(below, by=by) for key, below in value.items()}
    return by


def events(name: str, *usages: object) -> bytes:
    """A stream that reports these usage objects one after the other."""
    match name:
        case "openai_chat":
            chunks: list[dict[str, Any]] = [{"id": "c", "choices": [], "usage": usage} for usage in usages]
            chunks.insert(
                0, {"id": "c", "choices": [{"index": 0, "delta": {"content": "hi"}, "finish_reason": "stop"}]}
            )
        case "anthropic_messages":
            chunks = [{"type": "message_delta", "delta": {"stop_reason": "end_turn"}, "usage": each} for each in usages]
            chunks.insert(0, {"type": "message_start", "message": {"id": "m", "content": []}})
        case "gemini":
            chunks = [
                {"candidates": [{"content": {"parts": [{"text": "hi"}]}}], "usageMetadata": each} for each in usages
            ]
        case _:
            end = {"type": "response.completed", "response": {"id": "r", "status": "completed", "usage": usages[-1]}}
            chunks = [{"type": "response.created", "response": {"id": "r"}}, end]
    return b"".join([b"data: " + json.dumps(chunk).encode() + b"\n\n" for chunk in chunks])


def counts_in(name: str, *usages: object) -> tuple[int, int, int, int, int] | None:
    stream = events(name, *usages)
    return five_counts(read_stream([stream], family=FAMILIES[name], profile=builtin_profiles()[name]).usage)


def body(name: str, usage: object) -> bytes:
    bodies: dict[str, dict[str, Any]] = {
        "openai_chat": {
            "id": "r",
            "choices": [{"message": {"content": "hi"}, "finish_reason": "stop"}],
            "usage": usage,
        },
        "openai_responses": {"id": "r", "status": "completed", "output": [], "usage": usage},
        "anthropic_messages": {"id": "r", "content": [], "stop_reason": "end_turn", "usage": usage},
        "gemini": {"candidates": [{"content": {"parts": [{"text": "hi"}]}}], "usageMetadata": usage},
    }
    return json.dumps(bodies[name]).encode()


@pytest.mark.parametrize("name", [name for name in FAMILIES if name != "openai_responses"])
def test_zeros_in_a_later_chunk_take_nothing_away(name: str) -> None:
    """Gateways that count nothing themselves send zeros behind the provider's own usage (issue 12, line 6)."""
    zeros = replaced(REAL[name], by=0)
    assert counts_in(name, REAL[name], zeros) == COUNTED[name]
    assert counts_in(name, zeros, REAL[name]) == COUNTED[name]
    assert counts_in(name, REAL[name], replaced(REAL[name], by=None)) == COUNTED[name]
    smaller = counts_in(name, REAL[name], replaced(REAL[name], by=7))
    assert smaller is not None
    assert smaller[1] in (7, 14)  # another count is one, even a smaller one


def test_zeros_under_groqs_own_name_take_nothing_away() -> None:
    """`x_groq.usage` is read where `usage` says nothing."""
    real = json.dumps({"id": "c", "choices": [], "x_groq": {"usage": REAL["openai_chat"]}}).encode()
    zeros = json.dumps({"id": "c", "choices": [], "x_groq": {"usage": replaced(REAL["openai_chat"], by=0)}}).encode()
    start = b'data: {"id":"c","choices":[{"index":0,"delta":{"content":"hi"}}]}\n\n'
    stream = start + b"data: " + real + b"\n\ndata: " + zeros + b"\n\n"
    response = read_stream([stream], family=openai_chat.FAMILY, profile=builtin_profiles()["openai_chat"])
    assert five_counts(response.usage) == COUNTED["openai_chat"]


@each_family
@each("absurd", [1e30, -5, 1.5, 2**40 + 1, 10**30, "many", "-1", True, [], {}])
def test_what_is_no_count_is_not_booked(name: str, absurd: object) -> None:
    """A count is an integer from 0 to 2**40; in a stream, in a body, and in place of a real one."""
    nonsense = replaced(REAL[name], by=absurd)
    for usage in (
        read_stream([events(name, nonsense)], family=FAMILIES[name], profile=builtin_profiles()[name]).usage,
        read_body(body(name, nonsense), family=FAMILIES[name], profile=builtin_profiles()[name])[0].usage,
    ):
        assert usage is None or five_counts(usage) == (0, 0, 0, 0, 0)
    if name != "openai_responses":
        assert counts_in(name, REAL[name], nonsense) == COUNTED[name]


@each_family
def test_one_absurd_count_does_not_hide_the_others(name: str) -> None:
    """Each count is judged by itself, those in the details too."""
    for key, value in REAL[name].items():
        broken = REAL[name] | {key: replaced(value, by=1e30)}
        usage = read_body(body(name, broken), family=FAMILIES[name], profile=builtin_profiles()[name])[0].usage
        got, whole = five_counts(usage), COUNTED[name]
        assert got is not None
        assert sum(one != other for one, other in zip(got, whole, strict=True)) <= 2, (key, got)
        assert any(got)


@each_family
@each("written", [str, float])
def test_counts_of_loose_gateways_are_read(name: str, written: Callable[[int], object]) -> None:
    """Languages with one number type write 1.0, some write "1"."""

    def rewritten(value: Any) -> Any:
        return {key: rewritten(one) for key, one in value.items()} if isinstance(value, dict) else written(value)

    assert counts_in(name, rewritten(REAL[name])) == COUNTED[name]


def test_a_number_that_no_machine_holds_is_no_count() -> None:
    """`1e400` is valid JSON; a decoder of numbers refuses it."""
    stream = events("openai_chat", REAL["openai_chat"]).replace(b'"total_tokens": 29', b'"total_tokens": 1e400')
    response = read_stream([stream], family=openai_chat.FAMILY, profile=builtin_profiles()["openai_chat"])
    assert five_counts(response.usage) == COUNTED["openai_chat"]


def test_a_count_that_gemini_leaves_out_later_stands() -> None:
    """ProtoJSON leaves zeros out, so what is missing is a zero."""
    later = {"promptTokenCount": 20, "candidatesTokenCount": 6}
    assert counts_in("gemini", REAL["gemini"], later) == COUNTED["gemini"]
    assert counts_in("gemini", REAL["gemini"], {"trafficType": "ON_DEMAND"}) == COUNTED["gemini"]


def anthropic_stream(start: dict[str, int], *deltas: dict[str, int]) -> bytes:
    first = {"type": "message_start", "message": {"id": "m", "content": [], "usage": start}}
    rest = [{"type": "message_delta", "delta": {"stop_reason": "refusal"}, "usage": usage} for usage in deltas]
    return b"".join([b"data: " + json.dumps(each).encode() + b"\n\n" for each in (first, *rest)])


@pytest.mark.parametrize(
    ("start", "deltas", "expected"),
    [
        ({"input_tokens": 20, "output_tokens": 1}, [{"output_tokens": 0}], (20, 0, 0, 0, 0)),
        ({"input_tokens": 20, "output_tokens": 1}, [{"output_tokens": 9}, {"output_tokens": 0}], (20, 9, 0, 0, 0)),
        ({"input_tokens": 20, "output_tokens": 1}, [{"input_tokens": 0, "output_tokens": 0}], (20, 1, 0, 0, 0)),
        (
            {"input_tokens": 100, "cache_read_input_tokens": 50},
            [{"input_tokens": 181, "cache_read_input_tokens": 0, "output_tokens": 8}],
            (181, 8, 0, 0, 0),
        ),
        (
            {"input_tokens": 100, "cache_read_input_tokens": 50},
            [{"input_tokens": 100, "cache_read_input_tokens": 0, "output_tokens": 8}],
            (150, 8, 0, 50, 0),
        ),
    ],
)
def test_anthropics_real_zeros_are_told_from_those_of_gateways(
    start: dict[str, int], deltas: list[dict[str, int]], expected: tuple[int, int, int, int, int]
) -> None:
    """The first and the fourth are recorded: a refusal that is not billed, and compaction, which counts another prompt."""
    stream = anthropic_stream(start, *deltas)
    response = read_stream([stream], family=anthropic_messages.FAMILY, profile=builtin_profiles()["anthropic_messages"])
    assert five_counts(response.usage) == expected


def test_a_response_that_begins_again_is_counted_anew() -> None:
    """A gateway that fell back to another model: what the first one read from its cache is not the second one's."""
    stream = anthropic_stream({"input_tokens": 9, "cache_read_input_tokens": 50}) + anthropic_stream(
        {"input_tokens": 9, "cache_read_input_tokens": 0}, {"output_tokens": 3}
    )
    response = read_stream([stream], family=anthropic_messages.FAMILY, profile=builtin_profiles()["anthropic_messages"])
    assert five_counts(response.usage) == (9, 3, 0, 0, 0)


# Whatever comes

LITERALS = ["0", "-0.0", "1e30", "1e400", "-5", "1.0", "1.5", '"7"', '"many"', "true", "null", "[]", "[1]", "9" * 40]
VALUES = st.sampled_from(LITERALS) | st.integers(0, 30).map(str) | st.just(str(MAX_COUNT))


def texts(real: dict[str, Any], *, without: tuple[str, ...] = ()) -> st.SearchStrategy[bytes]:
    """Usage objects with the family's own keys, some of them, and any values."""
    keys = [key for key in real if key not in without]
    details = {key for key in keys if isinstance(real[key], dict)}
    inner = sorted({name for key in details for name in real[key]})

    def written(fields: dict[str, str]) -> str:
        return "{" + ",".join([f'"{key}":{value}' for key, value in fields.items()]) + "}"

    nested = st.dictionaries(st.sampled_from(inner), VALUES).map(written) if inner else VALUES
    fields = {key: VALUES | nested if key in details else VALUES for key in keys}
    return st.fixed_dictionaries({}, optional=fields).map(written).map(str.encode)


def gemini_reader() -> Callable[[msgspec.Raw], Usage | None]:
    reader = GeminiUsage()
    return lambda raw: reader.report() if reader.add(raw) else None


def anthropic_reader() -> Callable[[msgspec.Raw], Usage | None]:
    return UsageTally().add


READERS: dict[str, Callable[[], Callable[[msgspec.Raw], Usage | None]]] = {
    "openai_chat": lambda: ChatUsage(builtin_profiles()["openai_chat"]).read,
    "openai_responses": lambda: ResponsesUsage().read,
    "anthropic_messages": anthropic_reader,
    "gemini": gemini_reader,
}


@each_family
def test_whatever_the_usage_says_counts_are_counts(name: str) -> None:
    """Each of the five is an integer from 0 to 2**40, and no later object lowers one to 0. Anthropic's input, which tells
    whether a zero is real, stays the same here."""
    anthropic = name == "anthropic_messages"

    @settings(max_examples=examples(60))
    @given(st.lists(texts(REAL[name], without=("input_tokens",) if anthropic else ()), max_size=5))
    def holds(objects: list[bytes]) -> None:
        read = READERS[name]()
        before = (0, 0, 0, 0, 0)
        for one in [b'{"input_tokens":3}', *objects] if anthropic else objects:
            counts = five_counts(read(msgspec.Raw(one)))
            if counts is None:
                continue
            assert all(type(count) is int and 0 <= count <= MAX_COUNT for count in counts)
            assert not any(was and not now for was, now in zip(before, counts, strict=True)), (before, counts)
            before = counts

    holds()


@pytest.mark.promise("assembly:bounded")
def test_usage_objects_that_grow_without_end_are_kept_small() -> None:
    """New keys in each of 3,000 objects, and one object that is larger than the limit."""
    merged = MergedUsage()
    for number in range(3_000):
        merged.add(b'{"key%d":"%s"}' % (number, b"x" * 600))
    assert len(merged.text) <= MAX_BYTES
    assert not MergedUsage().add(b'{"a":"' + b"x" * MAX_BYTES + b'"}')
