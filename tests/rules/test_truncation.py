"""Truncation is seen whatever the finish reason claims, and what has a prefix is told from what has none."""

from pathlib import Path

import msgspec
import pytest

from families import traits_of
from recordings import decode, rows
from tables import each
from turnwise.rules.recovery import Cut, CutCall, find_cut, limit_hit, spent_unseen
from turnwise.vocab import (
    ArgumentsState,
    Fault,
    FaultKind,
    File,
    FinishReason,
    Message,
    Opaque,
    Part,
    ProviderItem,
    Reasoning,
    Request,
    Response,
    Settings,
    Text,
    ToolCall,
    ToolSpec,
    Usage,
)

WHOLE = ToolCall(id="1", name="read", arguments='{"path":"a"}')
CUT = ToolCall(id="2", name="write", arguments='{"path":"a","cont', state=ArgumentsState.TRUNCATED)
EMPTY = ToolCall(id="3", name="write", arguments="", state=ArgumentsState.TRUNCATED)
HANDED_OUT = ToolCall(id="4", name="write", arguments='{"path":"a"}', state=ArgumentsState.TRUNCATED)
FREE = ToolCall(id="5", name="patch", arguments="*** Begin", free_form=True, state=ArgumentsState.TRUNCATED)
NOTHING = ToolCall(id="6", name="list", arguments="{}")
FREE_WHOLE = ToolCall(id="7", name="patch", arguments="*** Begin", free_form=True)
LENGTH, STOP, CALLS, NONE = FinishReason.LENGTH, FinishReason.STOP, FinishReason.TOOL_CALLS, FinishReason.CUT


def response(*parts: Part, finish: FinishReason, output_tokens: int = 10, fault: Fault | None = None) -> Response:
    usage = Usage(input_tokens=5, output_tokens=output_tokens)
    return Response(message=Message("assistant", parts), finish=finish, usage=usage, fault=fault)


def cut_calls(call: ToolCall, prefix: str | None, *, limited: bool) -> Cut:
    return Cut(limited=limited, calls=(CutCall(call=call, prefix=prefix),))


@pytest.mark.promise("cut:never-run")
@each(
    ("parts", "finish", "output_tokens", "objects", "cut"),
    [
        ((WHOLE, CUT), LENGTH, 10, False, cut_calls(CUT, CUT.arguments, limited=True)),
        ((CUT,), CALLS, 10, False, cut_calls(CUT, CUT.arguments, limited=False)),
        ((CUT,), CALLS, 100, False, cut_calls(CUT, CUT.arguments, limited=True)),
        ((CUT,), STOP, 10, False, cut_calls(CUT, CUT.arguments, limited=False)),
        ((CUT,), NONE, 10, False, cut_calls(CUT, CUT.arguments, limited=False)),
        ((EMPTY,), LENGTH, 10, False, cut_calls(EMPTY, None, limited=True)),
        ((HANDED_OUT,), LENGTH, 10, True, cut_calls(HANDED_OUT, None, limited=True)),
        ((FREE,), LENGTH, 10, False, cut_calls(FREE, FREE.arguments, limited=True)),
        (
            (WHOLE,),
            CALLS,
            100,
            True,
            cut_calls(WHOLE, None, limited=True),
        ),  # the tokens tell on an object that looks whole
        ((WHOLE, Text(" ")), CALLS, 100, True, cut_calls(WHOLE, None, limited=True)),
        ((WHOLE, Text("said after it")), CALLS, 100, True, None),
        ((WHOLE,), CALLS, 99, True, None),
        ((WHOLE,), CALLS, 100, False, None),  # raw text that closes is whole
        ((WHOLE,), LENGTH, 100, False, None),
        ((Text("words"),), LENGTH, 10, False, Cut(limited=True, text="words")),
        ((Text("words"),), STOP, 100, False, Cut(limited=True, text="words")),
        ((Text("words"),), NONE, 10, False, Cut(limited=False, text="words")),
        ((Text("words"),), STOP, 99, False, None),
        ((Reasoning("thoughts"),), LENGTH, 10, False, Cut(limited=True)),
        ((Reasoning("thoughts"),), STOP, 100, False, Cut(limited=True)),
        ((Reasoning("thoughts"),), STOP, 10, False, None),
    ],
)
def test_every_witness(
    parts: tuple[Part, ...], finish: FinishReason, output_tokens: int, objects: bool, cut: Cut | None
) -> None:
    """Proves: each witness by itself shows the cut, and nothing else does."""
    given = response(*parts, finish=finish, output_tokens=output_tokens)
    assert find_cut(given, limit_tokens=100, hands_out_objects=objects) == cut


@pytest.mark.promise("cut:never-run")
@pytest.mark.parametrize(
    ("call", "finish", "output_tokens", "cut"),
    [
        (WHOLE, STOP, 100, cut_calls(WHOLE, None, limited=True)),
        (WHOLE, CALLS, 100, cut_calls(WHOLE, None, limited=True)),
        (WHOLE, NONE, 100, cut_calls(WHOLE, None, limited=True)),
        (WHOLE, CALLS, 99, None),
        (FREE_WHOLE, CALLS, 100, cut_calls(FREE_WHOLE, FREE_WHOLE.arguments, limited=True)),
        (FREE_WHOLE, CALLS, 99, None),
    ],
)
def test_a_call_that_may_hide_a_cut_counts_as_cut_at_the_limit(
    call: ToolCall, finish: FinishReason, output_tokens: int, cut: Cut | None
) -> None:
    """Proves: assembly's label counts in families whose arguments come as text, whatever the finish reason claims."""
    given = msgspec.structs.replace(
        response(NOTHING, call, finish=finish, output_tokens=output_tokens), may_hide_cut=(call.id,)
    )
    assert find_cut(given, limit_tokens=100, hands_out_objects=False) == cut


@pytest.mark.promise("cut:never-run")
def test_a_last_call_that_says_nothing_is_cut_at_the_limit() -> None:
    """Proves: `{}` is what servers make of a call that had not got to its arguments; before another call it is whole."""
    for finish, output_tokens in ((LENGTH, 10), (CALLS, 100), (STOP, 100)):
        for arguments in ("{}", " { } ", "", "null"):
            call = msgspec.structs.replace(NOTHING, arguments=arguments)
            given = response(NOTHING, call, finish=finish, output_tokens=output_tokens)
            assert find_cut(given, limit_tokens=100, hands_out_objects=False) == cut_calls(call, None, limited=True)
    assert find_cut(response(NOTHING, finish=CALLS), limit_tokens=100, hands_out_objects=False) is None
    assert find_cut(response(NOTHING, WHOLE, finish=LENGTH), limit_tokens=100, hands_out_objects=False) is None


@pytest.mark.promise("cut:not-blamed")
@pytest.mark.parametrize(
    "finish", [FinishReason.ERROR, FinishReason.REFUSAL, FinishReason.CONTENT_FILTER, FinishReason.PAUSE]
)
def test_other_ends_are_no_cut(finish: FinishReason) -> None:
    """Proves: a failure of the provider, a refusal and a pause are not gone on from."""
    assert find_cut(response(CUT, finish=finish), limit_tokens=1, hands_out_objects=False) is None
    fault = Fault(kind=FaultKind.DISCONNECTED, message="gone")
    assert find_cut(response(CUT, finish=NONE, fault=fault), limit_tokens=1, hands_out_objects=False) is None


def test_without_a_limit_or_usage_the_words_count_alone() -> None:
    """Proves: what was not asked for, or not reported, is no witness."""
    assert (
        find_cut(response(Text("x"), finish=STOP, output_tokens=999), limit_tokens=None, hands_out_objects=True) is None
    )
    silent = Response(message=Message("assistant", (Text("x"),)), finish=STOP)
    assert find_cut(silent, limit_tokens=1, hands_out_objects=True) is None


def test_who_hands_out_objects() -> None:
    """Proves: bodies of Anthropic and Gemini, and Gemini's streams."""
    modes = [
        (family, streamed)
        for family in ("openai_chat", "openai_responses", "anthropic_messages", "gemini")
        for streamed in (True, False)
    ]
    assert [mode for mode in modes if traits_of(mode[0]).gives_objects(streamed=mode[1])] == [
        ("anthropic_messages", False),
        ("gemini", True),
        ("gemini", False),
    ]


NEEDS_PATH = '{"type":"object","properties":{"path":{"type":"string"}},"required":["path"]}'
OFFERED = Request(model="m", messages=(), tools=(ToolSpec(name="write", parameters=NEEDS_PATH), ToolSpec(name="read")))
MISSES = ToolCall(id="8", name="write", arguments='{"content":"abcdef"}')  # the 20 characters that arrived
SEALED = Opaque("anthropic_messages", '{"signature":"s"}')


def spent(*parts: Part, output: int = 8_000, reasoning: int = 0, finish: FinishReason = CALLS) -> Response:
    usage = Usage(input_tokens=5, output_tokens=output, reasoning_tokens=reasoning)
    return Response(message=Message("assistant", parts), finish=finish, usage=usage)


def found(response: Response, request: Request = OFFERED) -> Cut | None:
    return find_cut(response, limit_tokens=32_000, hands_out_objects=False, request=request)


@pytest.mark.promise("cut:never-run", "cut:named")
@pytest.mark.parametrize("finish", [STOP, CALLS, NONE])
def test_8_000_tokens_are_not_the_20_characters_that_arrived(finish: FinishReason) -> None:
    """Proves: a cut that an object, a false finish word and a server's own cap hide is told by the usage; reasoning that is
    counted, or that arrived, explains as many tokens as it has."""
    cut = cut_calls(MISSES, None, limited=True)
    assert found(spent(MISSES, finish=finish)) == cut
    assert found(spent(Text("I write it."), WHOLE, MISSES, finish=finish)) == cut
    assert found(spent(MISSES, reasoning=4_000, finish=finish)) == cut
    assert found(spent(MISSES, reasoning=7_500, finish=finish)) is None
    assert found(spent(Reasoning("x" * 12_000), MISSES, finish=finish)) == cut
    assert found(spent(Reasoning("x" * 20_000), MISSES, finish=finish)) is None
    assert found(spent(MISSES, output=900, finish=finish)) is None
    assert limit_hit(spent(MISSES), limit_tokens=32_000) == 8_000


@pytest.mark.promise("cut:never-run")
@pytest.mark.parametrize(
    "parts",
    [
        (Reasoning("", SEALED), MISSES),
        (Reasoning("I shall write. " * 20, SEALED), MISSES),  # a summary
        (msgspec.structs.replace(MISSES, opaque=Opaque("gemini", '{"thoughtSignature":"s"}')),),
        (ProviderItem("anthropic_messages", "server_tool_use", "{}"), MISSES),
        (File(media_type="image/png", data=b"x"), MISSES),
    ],
)
def test_usage_proves_nothing_where_reasoning_or_other_output_may_be_hidden(parts: tuple[Part, ...]) -> None:
    """Proves: sealed and summarised reasoning, and what tools of the server made, are tokens that nobody sees. Counted apart,
    the reasoning is no riddle any more."""
    assert found(spent(*parts)) is None
    if not any(isinstance(part, ProviderItem | File) for part in parts):
        assert found(spent(*parts, reasoning=500)) == cut_calls(spent_call(parts), None, limited=True)


def spent_call(parts: tuple[Part, ...]) -> ToolCall:
    (call,) = [part for part in parts if isinstance(part, ToolCall)]
    return call


@pytest.mark.promise("cut:never-run")
def test_usage_proves_nothing_of_a_model_that_was_asked_to_reason_and_shows_nothing_of_it() -> None:
    """Proves: by the settings or by a field of the body. Responses names each item, which seals nothing."""
    for settings in (Settings(reasoning_effort="high"), Settings(reasoning_tokens=4_000)):
        assert found(spent(MISSES), msgspec.structs.replace(OFFERED, settings=settings)) is None
    thinks = msgspec.structs.replace(OFFERED, extra=Opaque("openai_chat", '{"enable_thinking":true}'))
    assert found(spent(MISSES), thinks) is None
    plain = msgspec.structs.replace(OFFERED, settings=Settings(reasoning_effort="none"))
    named = msgspec.structs.replace(MISSES, opaque=Opaque("openai_responses", '{"id":"fc_1"}'))
    assert found(spent(named), plain) == cut_calls(named, None, limited=True)


@pytest.mark.promise("cut:never-run")
def test_usage_tells_of_no_call_that_fits_and_of_no_text() -> None:
    """Proves: what was hidden is a guess; a call that is sound as it came runs, and words that ended stay whole."""
    fits = msgspec.structs.replace(MISSES, arguments='{"path":"a"}')
    assert found(spent(fits)) is None
    assert found(spent(Text("Done."), finish=STOP)) is None
    assert found(spent(MISSES, Text("That is written."))) is None
    assert found(spent(msgspec.structs.replace(MISSES, state=ArgumentsState.LOST))) is None


@pytest.mark.costly
def test_no_recorded_response_has_spent_tokens_that_nobody_sees(corpus: Path) -> None:
    """Proves: of all recorded streams, sealed reasoning included."""
    assert [row.file for row in rows(corpus) if spent_unseen(decode(row))] == []


@pytest.mark.parametrize(
    ("output", "text", "asked", "hit"),
    [
        (8_000, "x" * 20, 32_000, 8_000),
        (31_900, "x" * 20, 32_000, 32_000),
        (40_000, "x" * 20, 32_000, 32_000),
        (4_096, "x" * 16_000, None, 4_096),
        (1, "x" * 2_000, 32_000, 32_000),  # Anthropic's first count, where the last did not come
        (0, "x", 32_000, 32_000),
    ],
)
def test_the_limit_that_was_met_is_the_servers_own(output: int, text: str, asked: int | None, hit: int) -> None:
    """Proves: the tokens that were used, where they are fewer than were asked for, and what arrived can have them."""
    assert limit_hit(spent(Text(text), output=output, finish=LENGTH), limit_tokens=asked) == hit
