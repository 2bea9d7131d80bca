"""Compaction: what gives way, what stays, and that it shrinks or says that it cannot."""

from collections.abc import Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pairing import pairing_faults
from thoroughness import examples
from turnwise.rules.compaction import (
    BEGINNING_LEFT_OUT,
    LEFT_OUT,
    MIN_GAIN_PERCENT,
    MORE_FOLLOWS,
    SUMMARY_HEAD,
    CannotShrink,
    CompactionVerdict,
    PromptFits,
    Shorten,
    Summarise,
    apply_summary,
    is_summary,
    judge_summary,
    plan,
    resized,
    users_that_stay,
    weighed,
)
from turnwise.rules.prompt_room import PromptSize, measured, message_bytes
from turnwise.vocab import (
    FinishReason,
    Message,
    Part,
    Request,
    Text,
    ToolCall,
    ToolResult,
    ToolSpec,
    Usage,
    calls_of,
    text_of,
)

CAPACITY = 20_000
WINDOW = 30_000
TOOLS = (ToolSpec(name="read"),)


def user(text: str) -> Message:
    return Message("user", (Text(text),))


def said(text: str) -> Message:
    return Message("assistant", (Text(text),))


def step(number: int, *sizes: int) -> list[Message]:
    ids = [f"call_{number}_{place}" for place in range(len(sizes))]
    calls: list[Part] = [Text(f"step {number}"), *[ToolCall(id=id, name="read") for id in ids]]
    line = f"{number} is the number of this step\n"
    results = [
        ToolResult(call_id=id, name="read", content=(Text("begin\n" + line * (size // len(line)) + "end"),))
        for id, size in zip(ids, sizes, strict=True)
    ]
    return [Message("assistant", tuple(calls)), Message("tool", tuple(results))]


def sized(messages: Sequence[Message]) -> tuple[list[int], PromptSize]:
    sizes = [message_bytes(message) for message in messages]
    return sizes, PromptSize(measured_tokens=-(-sum(sizes) // 4), measured_bytes=sum(sizes))


def planned_for(
    messages: Sequence[Message], *, capacity: int = CAPACITY, window: int = WINDOW, **more: bool
) -> CompactionVerdict:
    sizes, prompt = sized(messages)
    return plan(
        messages,
        sizes=sizes,
        prompt=prompt,
        capacity_tokens=capacity,
        window_tokens=window,
        handle="read_result",
        **more,
    )


def faults(messages: Sequence[Message], *, family: str = "anthropic_messages") -> tuple[str, ...]:
    request = Request(model="m", messages=tuple(messages), tools=TOOLS, tool_choice="none")
    return pairing_faults(request, family=family, may_end_with_assistant=True)


def users(messages: Sequence[Message]) -> list[Message]:
    return [message for message in messages if message.role == "user" and not is_summary(message)]


LONG_RESULTS = [user("what is in these files?"), *[m for n in range(12) for m in step(n, 8_000)]]
LONG_TALK = [user("first"), *[m for n in range(200) for m in (said(f"answer {n} " * 60), user(f"question {n}"))]]


@pytest.mark.promise("cut:budget", "step:prefix-stable")
def test_a_prompt_that_fits_is_left_alone() -> None:
    """Between two compactions nothing of the history changes, so the provider's cache holds."""
    assert planned_for(LONG_RESULTS, capacity=30_000) == PromptFits()


@pytest.mark.promise("cut:budget")
def test_old_results_are_shortened_first_and_the_newest_steps_stay() -> None:
    """Oldest first, until half of the room is free; messages that do not change are the very same ones."""
    planned = planned_for(LONG_RESULTS)
    assert isinstance(planned, Shorten)
    assert planned.size.tokens <= CAPACITY * 0.55
    assert planned.shortened == tuple([f"call_{number}_0" for number in range(len(planned.shortened))])
    changed = [at for at, (old, new) in enumerate(zip(LONG_RESULTS, planned.messages, strict=True)) if old is not new]
    assert changed == [2 + 2 * number for number in range(len(planned.shortened))]
    first = planned.messages[2].parts[0]
    assert isinstance(first, ToolResult)
    (text,) = first.content
    assert isinstance(text, Text)
    assert text.text.startswith("begin\n0 is the number of this step\n")
    assert text.text.endswith("0 is the number of this step\nend")
    assert 'call `read_result` with {"call_id": "call_0_0", "offset": ' in text.text
    assert planned_for(planned.messages) == PromptFits()


@pytest.mark.promise("cut:budget")
def test_where_that_is_not_enough_the_middle_is_summarised() -> None:
    """The first message, every message of the user and the last steps stay; the request asks with the very history of the
    last request, so that its cache is hit."""
    talk = [user("first"), *[m for n in range(60) for m in (said(f"answer {n} " * 150), user(f"question {n}"))]]
    planned = planned_for(talk)
    assert isinstance(planned, Summarise)
    assert planned.asks == tuple(talk)
    after = apply_summary(planned=planned, summary="We talked.")
    assert users(after) == users(talk)
    assert after[-5:] == tuple(talk[-5:])
    assert [message for message in after if is_summary(message)] == [user(f"{SUMMARY_HEAD}\nWe talked.")]
    sizes, prompt = sized(talk)
    now = weighed(prompt, sizes=sizes, sizes_now=resized(sizes, before=talk, after=after))
    assert now.tokens <= CAPACITY * (100 - MIN_GAIN_PERCENT) // 100
    assert resized(sizes, before=talk, after=after) == [message_bytes(message) for message in after]


@pytest.mark.promise("cut:budget")
def test_an_older_summary_goes_into_the_newer_one() -> None:
    """Else summaries would pile up."""
    first = planned_for(LONG_TALK)
    assert isinstance(first, Summarise)
    after = apply_summary(planned=first, summary="The first two hundred.")
    longer = [*after, *[m for n in range(200) for m in (said(f"more {n} " * 60), user(f"and {n}"))]]
    second = planned_for(longer)
    assert isinstance(second, Summarise)
    again = apply_summary(planned=second, summary="All four hundred.")
    assert [message for message in again if is_summary(message)] == [user(f"{SUMMARY_HEAD}\nAll four hundred.")]
    assert again[0] is LONG_TALK[0]


def test_users_messages_that_fill_the_room_themselves_give_way_from_the_middle() -> None:
    """The first and the newest stay; the others are in what the summary is made of."""
    talk = [user("first"), *[m for n in range(100) for m in (user(f"{n} " * 400), said("yes"))], user("last")]
    planned = planned_for(talk)
    assert isinstance(planned, Summarise)
    after = apply_summary(planned=planned, summary="Much was said.")
    assert (after[0], after[-1]) == (talk[0], talk[-1])
    assert 2 < len(users(after)) < len(users(talk))


def test_instructions_that_hold_stay_and_older_ones_give_way() -> None:
    """Proves: those that were told last behind the messages stay whatever room there is, and nothing older stays with them where
    there is none. Before, a summary could leave out what the model had been told to do from then on."""

    def told(text: str) -> Message:
        return Message("system", (Text("From now on:", note="instructions"), Text(text * 500)))

    messages = [user("a"), told("old"), user("b" * 900), told("new"), said("c"), user("d" * 1200), user("e")]
    sizes, _ = sized(messages)
    assert users_that_stay(messages, sizes=sizes, first=0, end=7, room=1000) == (3, 6)
    assert users_that_stay(messages, sizes=sizes, first=0, end=7, room=100_000) == (0, 1, 2, 3, 5, 6)


def test_what_has_to_stay_and_is_too_large_is_told() -> None:
    """Then the answer is forced, or written locally."""
    assert isinstance(planned_for([user("x" * 200_000)]), CannotShrink)
    assert isinstance(planned_for([user("hello"), said("x" * 200_000)]), CannotShrink)
    assert isinstance(planned_for(LONG_TALK, may_summarise=False), CannotShrink)


def test_long_messages_of_the_user_keep_beginning_and_end_where_nothing_else_makes_room() -> None:
    """The older one first; the newest only where it is the only way; what the model is to answer now never."""
    old, new = user("old " * 10_000 + "end"), user("new " * 10_000 + "end")
    planned = planned_for([old, said("yes"), new, *step(1, 6_000)])
    assert isinstance(planned, Shorten)
    first, _, second, *rest = planned.messages
    text = text_of(first)
    assert (text.startswith("old old "), text.endswith("old end"), "of 40003 characters" in text) == (True, True, True)
    assert (message_bytes(first) < 10_000, second, rest) == (True, new, step(1, 6_000))
    only = planned_for([user("x" * 80_000), *step(1, 2_000)])
    assert isinstance(only, Shorten)
    assert only.size.tokens < 5_000
    asks = user("x" * 80_000)
    most = planned_for([old, said("yes"), asks])  # too little for another step, but an answer may fit now
    assert isinstance(most, Shorten)
    assert (most.messages[2], 20_000 < most.size.tokens < 23_000) == (asks, True)


def test_long_messages_of_the_user_give_way_beside_a_summary_where_neither_is_enough() -> None:
    """Neither alone brings the prompt below its capacity: the beginning and end of each long one stay, the newest is whole."""
    first, newest = user("first " * 8_000), user("newest " * 4_500)
    talk = [first, *[m for n in range(40) for m in (said(f"answer {n} " * 80), user(f"question {n}"))], newest]
    planned = planned_for(talk, window=60_000)
    assert isinstance(planned, Summarise)
    assert planned.asks == tuple(talk)  # the summary is made of all that was said
    after = apply_summary(planned=planned, summary="We talked.")
    assert (after[-1], text_of(after[0])[:12], message_bytes(after[0]) < 10_000) == (newest, "first first ", True)
    sizes, prompt = sized(talk)
    now = weighed(prompt, sizes=sizes, sizes_now=[message_bytes(message) for message in after])
    assert now.tokens <= CAPACITY * (100 - MIN_GAIN_PERCENT) // 100


def test_the_newest_results_are_shortened_where_the_turn_would_end_otherwise() -> None:
    """They share what the last steps may have, and each can be read back; older results went before."""
    talk = [user("hello"), *step(1, 9_000), *step(2, 40_000, 40_000, 40_000)]
    planned = planned_for(talk)
    assert isinstance(planned, Shorten)
    assert planned.shortened == ("call_1_0", "call_2_0", "call_2_1", "call_2_2")
    assert planned.size.tokens < CAPACITY * 0.5
    assert faults(planned.messages) == ()


def test_a_refused_prompt_is_compacted_whatever_its_size_seems() -> None:
    """The provider counts, not we."""
    assert isinstance(planned_for(LONG_RESULTS, capacity=40_000, overflowed=True), Shorten)
    talk = LONG_TALK[:100]
    planned = planned_for(talk, capacity=40_000, overflowed=True)
    assert isinstance(planned, Summarise)
    assert sum([message_bytes(message) for message in planned.asks]) <= sum([message_bytes(m) for m in talk])


def test_a_history_far_beyond_the_window_is_summarised_in_several() -> None:
    """A session that goes on with a smaller model. The oldest part first, as much as one request holds; nothing is left out."""
    talk = [*LONG_TALK, *LONG_TALK[1:], *step(1, 10_000)]
    seen: list[Message] = []
    number, planned = 0, planned_for(talk, capacity=8_000, window=12_000)
    while isinstance(planned, Summarise):
        number += 1
        assert sum([message_bytes(message) for message in planned.asks]) // 4 + planned.max_tokens < 12_000
        assert faults([*planned.asks, user(planned.instruction)]) == ()
        seen += [message for message in planned.asks if message not in seen and not is_summary(message)]
        talk = list(apply_summary(planned=planned, summary=f"Part {number}."))
        planned = planned_for(talk, capacity=8_000, window=12_000)
    assert 3 < number < 20
    assert planned == PromptFits()
    assert seen[: len(LONG_TALK)] == LONG_TALK
    assert [text_of(message) for message in talk if is_summary(message)] == [f"{SUMMARY_HEAD}\nPart {number}."]


def test_what_no_request_for_a_summary_can_hold_is_left_out_of_it() -> None:
    """A single message of the model's that is larger than the window; the request says that something is missing."""
    talk = [user("first"), said("x" * 300_000), *LONG_TALK[1:60], *step(1, 1_000)]
    planned = planned_for(talk, capacity=8_000, window=12_000)
    assert isinstance(planned, Summarise)
    assert planned.asks[:2] == (talk[0], user(BEGINNING_LEFT_OUT))
    assert faults([*planned.asks, user(planned.instruction)]) == ()


@pytest.mark.parametrize(
    ("text", "finish", "expected"),
    [
        ("What was done.", FinishReason.STOP, "What was done."),
        ("  ", FinishReason.STOP, None),
        ("", FinishReason.TOOL_CALLS, None),
        ("I cannot.", FinishReason.REFUSAL, None),
        ("x" * 10_000_000, FinishReason.STOP, None),
        ("What was", FinishReason.LENGTH, "What was\n[The summary was cut here by its limit.]"),
    ],
)
def test_a_summary_is_used_only_if_it_shrinks(text: str, finish: FinishReason, expected: str | None) -> None:
    """By a tenth of what it replaces at least; else the answer is forced with a note in its place."""
    planned = planned_for(LONG_TALK)
    assert isinstance(planned, Summarise)
    assert judge_summary(text, finish=finish, planned=planned) == expected
    assert judge_summary(LEFT_OUT, finish=FinishReason.STOP, planned=planned) == LEFT_OUT


# properties

SHORTENING_ROUNDS = 5  # one for each kind of thing that gives way
texts = st.integers(0, 12_000).map(lambda size: "word " * (size // 5))
steps = st.tuples(st.just("step"), st.lists(st.integers(0, 20_000), min_size=1, max_size=3))
turns = st.one_of(
    steps,
    steps,
    st.tuples(st.just("user"), texts),
    st.tuples(st.just("said"), texts),
    st.tuples(st.just("system"), texts),
)


@st.composite
def histories(draw: st.DrawFn) -> list[Message]:
    messages = [user("The first message: " + draw(texts)[:2_000])]
    for number, (kind, content) in enumerate(draw(st.lists(turns, min_size=1, max_size=40))):
        match kind, content:
            case "step", list():
                messages += step(number, *content)
            case "user", str():
                messages.append(user(f"u{number} {content}"))
            case "said", str():
                messages.append(said(f"a{number} {content}"))
            case _, text:
                messages.append(Message("system", (Text(f"s{number} {text}"),)))
    return messages


@pytest.mark.promise("cut:budget", "step:history-healed")
@given(histories(), st.integers(2_000, 60_000), st.booleans())
@settings(max_examples=examples(300), deadline=None)
def test_whatever_the_history_pairs_stay_pairs_and_it_shrinks_or_says_so(
    messages: list[Message], capacity: int, overflowed: bool
) -> None:
    """The first message, the newest of the user and the last message stay, or, where nothing else makes room, the beginning of
    what the user said; every request that comes of it is accepted by a
    strict server; the same history gives the same plan; what a plan brings is a tenth of the capacity at least."""
    window = capacity * 3 // 2
    _, prompt = sized(messages)
    planned = planned_for(messages, capacity=capacity, window=window, overflowed=overflowed)
    assert planned == planned_for(messages, capacity=capacity, window=window, overflowed=overflowed)
    before = faults(messages)
    cut_users = 0
    match planned:
        case PromptFits():
            assert prompt.tokens <= capacity
            return
        case CannotShrink():
            return
        case Shorten(messages=after):
            size = sum([message_bytes(message) for message in after])
            assert planned.size.bytes == size
            for old, new in zip(users(messages), users(after), strict=True):
                assert new == old or (
                    message_bytes(new) < message_bytes(old) and text_of(new)[:100] == text_of(old)[:100]
                )
                cut_users += new != old
        case Summarise():
            assert faults([*planned.asks, user(planned.instruction)]) == before
            summary = "s" * (planned.max_tokens * 3)
            after = apply_summary(planned=planned, summary=summary)
            size = sum([message_bytes(message) for message in after])
            cut_users += after[0] is not messages[0] or users(after)[-1] is not users(messages)[-1]
    if after[-1] is not messages[-1]:  # results of the last steps give way too, late
        assert after[-1].role == "tool" and message_bytes(after[-1]) < message_bytes(messages[-1])
    if not cut_users:
        assert after[0] is messages[0]
        assert users(after)[-1] is users(messages)[-1]
    assert faults(after) == before
    assert faults(after, family="openai_chat") == faults(messages, family="openai_chat")
    if isinstance(planned, Summarise) and planned.instruction.endswith(MORE_FOLLOWS):
        assert size < prompt.bytes  # the rest of it follows
    else:  # enough, or as much as can be had
        assert size <= prompt.bytes * (100 - MIN_GAIN_PERCENT) // 100 + 400
    kept_calls = [call.id for message in after for call in calls_of(message)]
    assert kept_calls == [call.id for message in messages for call in calls_of(message)][
        -len(kept_calls) or None :
    ] or (not kept_calls)


@pytest.mark.promise("cut:budget")
@given(histories(), st.integers(2_000, 60_000))
@settings(max_examples=examples(150), deadline=None)
def test_compacting_ends(messages: list[Message], capacity: int) -> None:
    """Applied again and again it fits, or says that it cannot: every round shrinks, and each summary takes up a message at
    least, so there are no more of them than messages (many under a window that is small for them: docs/limits.md)."""
    sizes, prompt = sized(messages)
    for _ in range(len(messages) + SHORTENING_ROUNDS):
        planned = plan(
            messages,
            sizes=sizes,
            prompt=prompt,
            capacity_tokens=capacity,
            window_tokens=capacity * 3 // 2,
            handle="read_result",
        )
        match planned:
            case PromptFits() | CannotShrink():
                return
            case Shorten(messages=after):
                after = list(after)
            case Summarise():
                after = list(apply_summary(planned=planned, summary="short"))
        sizes_now = resized(sizes, before=messages, after=after)
        now = weighed(prompt, sizes=sizes, sizes_now=sizes_now)
        assert now.tokens < prompt.tokens
        messages, sizes, prompt = after, sizes_now, now
    raise AssertionError("it went on and on")


def test_a_session_of_three_hundred_steps_never_outgrows_its_window() -> None:
    """Done when 6, in the rules alone: 300 steps of 3 KB under 32,000 tokens; the first message is there to the end."""
    messages: list[Message] = [user("The password is tangerine.")]
    sizes, prompt = [message_bytes(messages[0])], PromptSize(added_bytes=message_bytes(messages[0]))
    capacity, compactions = 24_000, 0
    for number in range(300):
        new = step(number, 3_000)
        messages += new
        sizes += [message_bytes(message) for message in new]
        prompt = PromptSize(
            measured_tokens=prompt.measured_tokens,
            measured_bytes=prompt.measured_bytes,
            added_bytes=prompt.added_bytes + sum(sizes[-2:]),
        )
        planned = plan(
            messages, sizes=sizes, prompt=prompt, capacity_tokens=capacity, window_tokens=32_000, handle="read_result"
        )
        match planned:
            case PromptFits():
                pass
            case Shorten(messages=after):
                compactions += 1
                sizes_now = resized(sizes, before=messages, after=after)
                messages, sizes, prompt = list(after), sizes_now, planned.size
            case Summarise():
                compactions += 1
                after = apply_summary(planned=planned, summary="summary " * 200)
                sizes_now = resized(sizes, before=messages, after=after)
                prompt = weighed(prompt, sizes=sizes, sizes_now=sizes_now)
                messages, sizes = list(after), sizes_now
            case CannotShrink(why=why):
                raise AssertionError(why)
        assert prompt.tokens <= capacity
        prompt = measured(prompt, usage=Usage(input_tokens=-(-prompt.bytes // 4)))
    assert messages[0] == user("The password is tangerine.")
    assert faults(messages) == ()
    assert compactions < 40
