"""Truncation is seen whatever the finish reason claims, and what has a prefix is told from what has none."""

import msgspec
import pytest

from turnwise.rules.truncation import Cut, CutCall, find_cut, hands_out_objects
from turnwise.vocab import (
    ArgumentsState,
    Fault,
    FaultKind,
    FinishReason,
    Message,
    Part,
    Reasoning,
    Response,
    Text,
    ToolCall,
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
@pytest.mark.parametrize(
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
    assert [mode for mode in modes if hands_out_objects(mode[0], streamed=mode[1])] == [
        ("anthropic_messages", False),
        ("gemini", True),
        ("gemini", False),
    ]
