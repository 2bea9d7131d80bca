"""Frames -> one response: what belongs together, what replaces what, what is dropped, and what watchers are shown."""

from collections.abc import Callable, Sequence

import pytest

from tables import each
from turnwise.assembly.json_text import KINDS
from turnwise.assembly.response import MAX_PARTS, Assembler
from turnwise.vocab import (
    ArgumentsState,
    BlockData,
    BlockEnded,
    Citation,
    CitationAdded,
    Fault,
    Faulted,
    FaultKind,
    Finished,
    FinishReason,
    Frame,
    Mended,
    Message,
    Opaque,
    Part,
    PartDone,
    ProviderItem,
    Reasoning,
    ReasoningDelta,
    Refusal,
    RefusalDelta,
    Repair,
    Response,
    Started,
    Text,
    TextDelta,
    ToolCall,
    ToolCallDelta,
    Usage,
    UsageReported,
)

STOP = Finished(FinishReason.STOP, "stop")
CALLS = Finished(FinishReason.TOOL_CALLS, "tool_calls")
LENGTH = Finished(FinishReason.LENGTH, "length")


def assemble(*frames: Frame, assembler: Assembler | None = None) -> Response:
    assembler = assembler or Assembler()
    for frame in frames:
        assembler.receive(frame)
    return assembler.finish()


def shown(*frames: Frame, assembler: Assembler | None = None) -> list[Frame]:
    assembler = assembler or Assembler()
    return [healed for frame in frames for healed in assembler.receive(frame)]


def parts(*frames: Frame) -> tuple[Part, ...]:
    return assemble(*frames).message.parts


def kinds(response: Response) -> list[str]:
    return [repair.kind for repair in response.repairs]


@pytest.mark.promise("assembly:kinds")
def test_every_kind_of_part_survives_in_its_place() -> None:
    """Reasoning with opaque data, text with citations, refusal, a free-form call, a server-side item: all kept, in order."""
    signature = Opaque("anthropic_messages", '{"signature":"EqQB"}')
    source = Citation(family="anthropic_messages", raw='{"url":"https://a"}', url="https://a")
    item = ProviderItem("anthropic_messages", "server_tool_use", '{"id":"srv_1"}')
    assert parts(
        ReasoningDelta("Let me ", "0"),
        ReasoningDelta("see.", "0"),
        BlockData("0", signature),
        BlockEnded("0"),
        PartDone("1", item),
        TextDelta("It is", "2"),
        CitationAdded("2", source),
        TextDelta(" so.", "2"),
        RefusalDelta("But no.", "3"),
        ToolCallDelta(block="4", id="c1", name="patch", arguments="*** Be", free_form=True),
        ToolCallDelta(block="4", arguments="gin", free_form=True),
        CALLS,
    ) == (
        Reasoning("Let me see.", signature),
        item,
        Text("It is so.", (source,)),
        Refusal("But no."),
        ToolCall(id="c1", name="patch", arguments="*** Begin", free_form=True),
    )


@pytest.mark.promise("assembly:kinds")
def test_reasoning_with_opaque_data_alone_is_kept_and_empty_parts_are_dropped() -> None:
    encrypted = Opaque("openai_responses", '{"encrypted_content":"gAAA"}')
    assert parts(
        TextDelta(""), ReasoningDelta("", "r0"), ReasoningDelta("", "r1"), BlockData("r1", encrypted), STOP
    ) == (Reasoning("", encrypted),)


@pytest.mark.promise("assembly:kinds")
def test_opaque_data_that_comes_in_pieces_is_merged_key_by_key() -> None:
    """Values are not read: the number that no double holds stays as it came."""
    assert parts(
        TextDelta("a", "t"),
        BlockData("t", Opaque("gemini", '{"id":1.00000000000000000001,"x":1}')),
        BlockData("t", Opaque("gemini", '{"x":2}')),
        STOP,
    ) == (Text("a", (), Opaque("gemini", '{"id":1.00000000000000000001,"x":2}')),)


@pytest.mark.promise("assembly:kinds")
def test_opaque_data_of_a_call_is_kept() -> None:
    thought = Opaque("gemini", '{"thoughtSignature":"Ab"}')
    call = ToolCall(id="", name="read", arguments='{"path":"a"}', opaque=thought)
    assert parts(PartDone("0", call), STOP) == (
        ToolCall(id="call_0", name="read", arguments='{"path":"a"}', opaque=thought),
    )


def test_the_final_item_wins_over_its_deltas() -> None:
    """Two recorded Responses streams' deltas differ from their final items; the final item is what the API keeps."""
    response = assemble(
        TextDelta("Helo", "0"),
        PartDone("0", Text("Hello")),
        ToolCallDelta(block="1", id="c1", name="read", arguments='{"path":"a'),
        PartDone("1", ToolCall(id="c1", name="read", arguments='{"path":"b"}')),
        STOP,
    )
    assert response.message.parts == (Text("Hello"), ToolCall(id="c1", name="read", arguments='{"path":"b"}'))
    assert response.repairs == (
        Repair("final_item_wins", "0", KINDS["final_item_wins"]),
        Repair("final_item_wins", "1", KINDS["final_item_wins"]),
    )


def test_a_final_item_that_agrees_is_no_repair() -> None:
    response = assemble(
        TextDelta("Hello", "0"),
        PartDone("0", Text("Hello")),
        ToolCallDelta(block="1", id="c1", name="read", arguments='{"path":"a"}'),
        PartDone("1", ToolCall(id="c1", name="read", arguments='{"path":"a"}')),
        STOP,
    )
    assert response.repairs == ()


def test_a_final_item_without_arguments_does_not_lose_those_that_came() -> None:
    response = assemble(
        ToolCallDelta(block="1", id="c1", name="read", arguments='{"path":"a"}'),
        PartDone("1", ToolCall(id="c1", name="read", arguments="")),
        STOP,
    )
    assert response.message.parts == (ToolCall(id="c1", name="read", arguments='{"path":"a"}'),)


def test_pieces_after_the_final_form_are_dropped_and_recorded() -> None:
    response = assemble(
        PartDone("0", Text("Hello")), TextDelta("Hello", "0"), PartDone("1", ToolCall(id="c", name="f")),
        ToolCallDelta(block="1", arguments="{}"), STOP,
    )  # fmt: skip
    assert response.message.parts == (Text("Hello"), ToolCall(id="c", name="f"))
    assert kinds(response) == ["after_final", "after_final"]


def test_a_second_beginning_discards_everything_before() -> None:
    """A gateway fell back to another model: the last started message counts (corpus README, 10)."""
    response = assemble(
        Started("m1", "a"),
        TextDelta("lost"),
        ToolCallDelta(index=0, id="c1", name="read", arguments='{"path":'),
        UsageReported(Usage(input_tokens=1)),
        Started("m2", "b"),
        ToolCallDelta(index=0, id="c1", name="read", arguments='{"path":"a"}'),
        CALLS,
    )
    assert response == Response(
        message=Message("assistant", (ToolCall(id="c1", name="read", arguments='{"path":"a"}'),)),
        finish=FinishReason.TOOL_CALLS,
        provider_finish="tool_calls",
        id="m2",
        model="b",
        repairs=(Repair("started_again", "response", KINDS["started_again"]),),
    )


@pytest.mark.promise("assembly:no-done")
def test_the_last_usage_counts_and_is_not_summed() -> None:
    first, last = Usage(input_tokens=5, output_tokens=1), Usage(input_tokens=5, output_tokens=7)
    assert assemble(UsageReported(first), STOP, UsageReported(last), UsageReported(last)).usage == last


@pytest.mark.promise("assembly:no-done")
@pytest.mark.parametrize(
    ("reasons", "finish"),
    [
        ([FinishReason.STOP, FinishReason.STOP], FinishReason.STOP),
        ([FinishReason.LENGTH, FinishReason.STOP], FinishReason.LENGTH),
        ([FinishReason.STOP, FinishReason.CONTENT_FILTER], FinishReason.CONTENT_FILTER),
        ([FinishReason.ERROR, FinishReason.STOP], FinishReason.ERROR),
        ([], FinishReason.CUT),
    ],
)
def test_of_several_finish_reasons_the_gravest_counts(reasons: list[FinishReason], finish: FinishReason) -> None:
    response = assemble(TextDelta("a"), *[Finished(reason, reason.value) for reason in reasons])
    assert response.finish is finish
    assert response.provider_finish == (finish.value if reasons else None)
    assert kinds(response) == (["finish_differs"] if len(set(reasons)) > 1 else [])


@pytest.mark.promise("cut:never-run")
def test_a_last_call_handed_out_as_an_object_at_the_limit_counts_as_cut() -> None:
    """It may hold just the keys that happened to arrive, whatever text follows; the call before it is whole."""
    one = ToolCall(id="c1", name="read", arguments='{"path":"a"}')
    two = ToolCall(id="c2", name="write", arguments='{"path":"b"}')
    cut = ToolCall(
        id="c2",
        name="write",
        arguments='{"path":"b"}',
        state=ArgumentsState.TRUNCATED,
        reason="the response ended by its limit while this call was being written; keys may be missing",
    )
    assert parts(PartDone("0", one), PartDone("1", two), LENGTH) == (one, cut)
    assert parts(PartDone("0", one), PartDone("1", two), TextDelta("so", "2"), LENGTH) == (one, cut, Text("so"))
    assert parts(PartDone("0", one), PartDone("1", two), STOP) == (one, two)
    assert parts(PartDone("0", one), PartDone("1", two)) == (one, two)  # the connection broke after whole calls


@pytest.mark.promise("cut:never-run")
def test_a_call_whose_raw_text_is_whole_stays_complete_at_the_limit() -> None:
    call = ToolCall(id="c1", name="read", arguments='{"path":"a"}')
    pieces = [
        ToolCallDelta(block="0", id="c1", name="read", arguments='{"path":'),
        ToolCallDelta(block="0", arguments='"a"}'),
    ]
    assert parts(*pieces, LENGTH) == (call,)
    assert parts(*pieces, PartDone("0", call), LENGTH) == (call,)


@pytest.mark.promise("cut:never-run")
def test_a_second_witness_of_the_limit_overrules_the_finish_reason() -> None:
    """OpenRouter says `tool_calls` and `native_finish_reason: length` (corpus README, 1)."""
    response = assemble(
        ToolCallDelta(index=0, id="c1", name="f", arguments=""), Finished(FinishReason.TOOL_CALLS, "tool_calls", True)
    )
    assert (response.finish, response.provider_finish) == (FinishReason.LENGTH, "tool_calls")
    assert kinds(response) == ["finish_hides_limit"]
    assert response.message.parts == (
        ToolCall(
            id="c1",
            name="f",
            arguments="",
            state=ArgumentsState.TRUNCATED,
            reason="cut before its arguments began",
        ),
    )


@pytest.mark.promise("cut:never-run")
@pytest.mark.parametrize("ending", [[], [LENGTH], [Faulted(Fault(kind=FaultKind.SERVER, message="boom"))]])
def test_a_free_form_call_is_cut_where_the_response_was(ending: list[Frame]) -> None:
    """Free-form text has no grammar that would show a cut; only a proper end proves it whole."""
    call = assemble(
        ToolCallDelta(block="0", id="c", name="patch", arguments="*** Be", free_form=True), *ending
    ).message.parts[0]
    assert call == ToolCall(
        id="c",
        name="patch",
        arguments="*** Be",
        free_form=True,
        state=ArgumentsState.TRUNCATED,
        reason="cut after 6 characters",
    )


@pytest.mark.promise("step:incomplete-response")
def test_a_fault_in_mid_stream_keeps_what_had_arrived() -> None:
    fault = Fault(kind=FaultKind.OVERLOADED, message="Overloaded")
    response = assemble(
        ToolCallDelta(block="0", id="c1", name="read", arguments='{"path":"a"}'),
        ToolCallDelta(block="1", id="c2", name="read", arguments='{"pa'),
        Faulted(fault),
    )
    assert response == Response(
        message=Message(
            "assistant",
            (
                ToolCall(id="c1", name="read", arguments='{"path":"a"}'),
                ToolCall(
                    id="c2",
                    name="read",
                    arguments='{"pa',
                    state=ArgumentsState.TRUNCATED,
                    reason="cut inside the object at `$` after 4 characters",
                ),
            ),
        ),
        finish=FinishReason.ERROR,
        fault=fault,
    )


@pytest.mark.promise("assembly:id-missing", "assembly:id-twice")
def test_generated_ids_avoid_those_of_the_session() -> None:
    """An id that an earlier step used, a missing one, and a generated one that is taken already."""
    frames = [
        ToolCallDelta(index=0, id="call_1", name="read", arguments="{}"),
        ToolCallDelta(index=1, name="read", arguments='{"a":1}'),
        CALLS,
    ]
    taken = frozenset({"call_1", "s2_0"})

    def calls() -> Sequence[Part]:
        return assemble(*frames, assembler=Assembler(taken_ids=taken, id_prefix="s2")).message.parts

    assert calls() == (
        ToolCall(id="s2_1", name="read"),
        ToolCall(id="s2_2", name="read", arguments='{"a":1}'),
    )
    assert calls() == calls()  # the same on replay
    response = assemble(*frames, assembler=Assembler(taken_ids=taken, id_prefix="s2"))
    assert response.repairs == (
        Repair("id_twice", "call:0", "the id `call_1` was taken already; the call got `s2_1`"),
        Repair("id_missing", "call:1", KINDS["id_missing"]),
    )


@pytest.mark.promise("assembly:kinds")
def test_opaque_data_that_comes_with_a_piece_of_a_call_is_kept() -> None:
    """Gemini's compatible endpoint sends its thought signature inside the Chat call."""
    thought = Opaque("openai_chat", '{"extra_content":{"google":{"thought_signature":"Ab"}}}')
    assert parts(
        ToolCallDelta(index=0, id="c", name="f", arguments='{"a":'),
        ToolCallDelta(index=0, arguments="1}", opaque=thought),
        CALLS,
    ) == (ToolCall(id="c", name="f", arguments='{"a":1}', opaque=thought),)


def test_what_the_decoder_mended_is_recorded_first() -> None:
    mended = Repair("chunk", "event 3", "two JSON texts in one event")
    response = assemble(Mended(mended), ToolCallDelta(index=0, name="f", arguments="{}"), CALLS)
    assert response.repairs == (mended, Repair("id_missing", "call:0", KINDS["id_missing"]))


def test_a_character_that_came_in_halves_is_joined() -> None:
    """A surrogate pair split over two pieces; a lone half becomes U+FFFD, because nothing can encode it."""
    response = assemble(
        TextDelta("a\ud83d"),
        TextDelta("\ude00b\ude00"),
        ToolCallDelta(index=0, id="c", name="say", arguments='{"t":"\ud83d'),
        ToolCallDelta(index=0, arguments='\ude00"}'),
        CALLS,
    )
    assert response.message.parts == (Text("a😀b�"), ToolCall(id="c", name="say", arguments='{"t":"😀"}'))
    assert kinds(response) == ["half_surrogates", "half_surrogates"]
    assert shown(TextDelta("a\ud83d"), TextDelta("\ude00b")) == [TextDelta("a"), TextDelta("😀b")]


@pytest.mark.promise("assembly:interleaved")
def test_watchers_see_a_call_begin_once_its_name_is_sure_and_only_new_text() -> None:
    frames = shown(
        TextDelta("Hm. "),
        ToolCallDelta(index=0, id="c1", name="read", arguments=""),
        ToolCallDelta(index=0, id="c1", name="_file", arguments=""),
        ToolCallDelta(index=0, id="c1", arguments='{"path":'),
        ToolCallDelta(index=0, id="c1", arguments='{"path":"a"'),
        ToolCallDelta(index=1, id="", name="list", arguments="{}"),
        ToolCallDelta(index=0, id="c1", arguments='{"path":"a"}'),
        ToolCallDelta(index=1, arguments='{"path":"b"}'),
        CALLS,
    )
    assert frames == [
        TextDelta("Hm. "),
        ToolCallDelta(block="call:0", index=0, id="c1", name="read_file", arguments='{"path":'),
        ToolCallDelta(block="call:0", arguments='"a"}'),  # `{"path":{"path":"a"` could have gone on until now
        ToolCallDelta(block="call:1", index=1, id="call_1", name="list", arguments='{"path":"b"}'),
        CALLS,
    ]


def test_watchers_get_the_true_form_of_a_call_that_was_shown_otherwise() -> None:
    frames = shown(
        ToolCallDelta(index=0, name="read", arguments='"{\\"path\\":'),
        ToolCallDelta(index=0, arguments='\\"a\\"}"'),
        ToolCallDelta(index=0, id="late"),
        CALLS,
    )
    assert frames == [
        ToolCallDelta(block="call:0", index=0, id="call_0", name="read", arguments='"{\\"path\\":'),
        ToolCallDelta(block="call:0", arguments='\\"a\\"}"'),
        PartDone("call:0", ToolCall(id="late", name="read", arguments='{"path":"a"}')),
        CALLS,
    ]


@pytest.mark.promise("assembly:bounded")
def test_a_call_past_its_limit_is_a_named_fault_and_nothing_more_is_kept() -> None:
    assembler = Assembler(call_bytes=1000)
    frames = shown(
        ToolCallDelta(index=0, id="c1", name="write", arguments='{"content":"'),
        *[ToolCallDelta(index=0, arguments="x" * 100)] * 50,
        assembler=assembler,
    )
    fault = Fault(kind=FaultKind.TOO_LARGE, message="the arguments of the call `write` are longer than 1000 bytes")
    assert frames[-1] == Faulted(fault)
    assert sum(isinstance(frame, Faulted) for frame in frames) == 1
    response = assembler.finish()
    assert (response.fault, response.finish) == (fault, FinishReason.ERROR)
    call = response.message.parts[0]
    assert isinstance(call, ToolCall)
    assert len(call.arguments) <= 1100
    assert call.state is ArgumentsState.TRUNCATED


@pytest.mark.promise("assembly:bounded")
@each(
    "frame",
    [
        lambda i: TextDelta("é" * 50),
        lambda i: ReasoningDelta("x" * 100),
        lambda i: RefusalDelta("x" * 100),
        lambda i: ToolCallDelta(index=0, id="c", name="f", arguments=f"{i}" + "x" * 99),
        lambda i: ToolCallDelta(index=0, id="c", name="f" * 100),
        lambda i: ToolCallDelta(index=i, id=f"c{i}", name="f", arguments='{"a":"' + "x" * 92 + '"}', whole=True),
        lambda i: ToolCallDelta(block="0", free_form=True, arguments="x" * 100),
        lambda i: PartDone("0", ProviderItem("gemini", "k", "x" * 100)),
        lambda i: PartDone(f"{i}", ToolCall(id="c", name="f", arguments="x" * 100)),
        lambda i: PartDone("0", Text("x" * 100)),
        lambda i: BlockData("0", Opaque("gemini", '{"a":"' + "x" * 92 + '"}')),
        lambda i: CitationAdded("0", Citation(family="gemini", raw="x" * 100)),
    ],
)
def test_a_response_past_its_limit_is_a_named_fault(frame: Callable[[int], Frame]) -> None:
    """Whatever the pieces are: the same fault, said once, at the limit."""
    frames = shown(*[frame(i) for i in range(30)], assembler=Assembler(response_bytes=1000))
    fault = Fault(kind=FaultKind.TOO_LARGE, message="the response is longer than 1000 bytes")
    assert [frame for frame in frames if isinstance(frame, Faulted)] == [Faulted(fault)]


@pytest.mark.promise("assembly:bounded")
def test_parts_without_end_are_a_named_fault() -> None:
    frames = shown(*[ToolCallDelta(index=i, id=f"c{i}", name="f") for i in range(MAX_PARTS + 10)])
    fault = Fault(kind=FaultKind.TOO_LARGE, message=f"the response has more than {MAX_PARTS} parts")
    assert [frame for frame in frames if isinstance(frame, Faulted)] == [Faulted(fault)]


def test_a_call_of_nothing_is_dropped_and_recorded() -> None:
    response = assemble(TextDelta("a"), ToolCallDelta(index=0, id="c1"), STOP)
    assert response.message.parts == (Text("a"),)
    assert (response.finish, kinds(response)) == (FinishReason.STOP, ["empty_call"])


def test_space_alone_begins_no_call_for_those_who_watch() -> None:
    frames: list[Frame] = [ToolCallDelta(index=0, arguments=" "), ToolCallDelta(index=1, id="c", arguments="\n"), CALLS]
    assert shown(*frames) == [CALLS]
    assert parts(*frames) == ()


def test_watchers_are_told_an_id_once_though_it_repeats_in_every_piece() -> None:
    frames = shown(
        ToolCallDelta(block="1", id="c", name="read", arguments='{"a":'),
        ToolCallDelta(block="1", id="c", arguments="1}"),
    )
    assert frames == [
        ToolCallDelta(block="1", id="c", name="read", arguments='{"a":'),
        ToolCallDelta(block="1", arguments="1}"),
    ]


@pytest.mark.promise("assembly:no-index")
def test_a_bare_piece_on_an_unknown_index_goes_on_with_the_call_at_hand() -> None:
    """It has no id, no name and no beginning of its own, so it cannot be a call."""
    response = assemble(
        ToolCallDelta(index=0, id="c", name="read", arguments='{"path":'),
        ToolCallDelta(index=1, arguments='"a"}'),
        CALLS,
    )
    assert response.message.parts == (ToolCall(id="c", name="read", arguments='{"path":"a"}'),)
    assert kinds(response) == ["index_strayed"]


@pytest.mark.promise("assembly:name-repeated")
def test_a_second_name_for_a_call_that_its_id_names_is_dropped() -> None:
    response = assemble(
        ToolCallDelta(index=0, id="c", name="read", arguments='{"path":'),
        ToolCallDelta(index=0, id="c", name="list", arguments='"a"}'),
        CALLS,
        assembler=Assembler(tool_names=frozenset({"read", "list"})),
    )
    assert response.message.parts == (ToolCall(id="c", name="read", arguments='{"path":"a"}'),)
    assert kinds(response) == ["name_conflict"]
