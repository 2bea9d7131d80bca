"""A history for the answer alone: what gives way where no request is left but the answer's, and the prompt is too long for it.

No summary can be asked for any more, so this goes further than `compaction`: in order of what is lost, old tool results are
shortened, then the user's long messages, then the last results; older steps are left out; last of all the steps are left out,
and one text quotes the last results. The message that the model is to answer stays whole. Linear, the same on replay.
"""

from collections.abc import Collection, Iterator, Sequence
from typing import Literal

import msgspec

from turnwise.rules.compaction import (
    LEFT_OUT,
    LONG_USER_PERCENT,
    MIN_RESULT_BYTES,
    NO_CALL,
    OLD_RESULT_BYTES,
    SUMMARY_HEAD,
    USER_PERCENT,
    Variant,
    behind_first_user,
    is_summary,
    last_step,
    shorten_results,
    shorten_users,
    users_that_stay,
)
from turnwise.rules.prompt_room import message_bytes
from turnwise.rules.schema import shorten
from turnwise.vocab import FamilyTraits, File, Message, StopReason, Text, ToolChoice, ToolResult, ToolSpec, calls_of
from turnwise.vocab.hidden_characters import says_something

# What the last results may take of the room together, ever less of it.
RESULT_PERCENTS = (50, 25, 10)
# Less of a result says nothing; the note about what is left out of it comes on top.
LEAST_RESULT_BYTES = 64
# Of one of the user's messages, where nothing else fits; the one that the model is to answer stays whole.
LEAST_USER_BYTES = 256
# Of the room, for the text that quotes results whose steps are left out; no more of them than anybody reads.
QUOTED_PERCENTS = (50, 25, 10)
MAX_QUOTED = 20
LEAST_QUOTED = 3
QUOTED = "The steps of this turn are left out here, as there is no room for them. What the tools returned last:"
NOTHING_QUOTED = "The steps of this turn are left out here, as there is no room for them."


def fit_answer(messages: Sequence[Message], *, sizes: Sequence[int], limit_bytes: int) -> Variant | None:
    """The messages within `limit_bytes`; None where what has to stay is larger.

    `sizes` are the bytes of each message (`message_bytes`).
    """
    for variant in _variants(messages, sizes=sizes, limit_bytes=limit_bytes):
        if sum(variant.sizes) <= limit_bytes:
            return variant
    return None


def _variants(messages: Sequence[Message], *, sizes: Sequence[int], limit_bytes: int) -> Iterator[Variant]:
    """The history with ever less of it."""
    whole = Variant(messages=tuple(messages), sizes=sizes)
    yield whole
    tail = last_step(messages)
    excess = sum(sizes) - limit_bytes
    old = shorten_results(whole, places=range(tail), excess=excess, limit_bytes=OLD_RESULT_BYTES, handle=NO_CALL)
    yield old
    most = max(MIN_RESULT_BYTES, limit_bytes * LONG_USER_PERCENT // 100)
    newest = max([index for index, message in enumerate(messages) if message.role == "user"], default=0)
    users = shorten_users(old, limit_bytes=most, whole=newest)
    yield users
    yield _squeezed(users, percent=RESULT_PERCENTS[0], limit_bytes=limit_bytes)
    left = _without_middle(users, tail=tail, limit_bytes=limit_bytes)
    for shorter in (left, shorten_users(left, limit_bytes=most, whole=len(left.messages) - 1)):
        yield shorter
        for percent in RESULT_PERCENTS:
            yield _squeezed(shorter, percent=percent, limit_bytes=limit_bytes)
    for percent in QUOTED_PERCENTS:
        quoted = _quoted(left, quoted_bytes=limit_bytes * percent // 100)
        yield shorten_users(quoted, limit_bytes=most, whole=len(quoted.messages) - 1)
    least = _quoted(left, quoted_bytes=0, most=LEAST_QUOTED)
    yield shorten_users(least, limit_bytes=LEAST_USER_BYTES, whole=len(least.messages) - 1)


def _squeezed(variant: Variant, *, percent: int, limit_bytes: int) -> Variant:
    """All results within their even share of so much of the room."""
    results = sum([isinstance(part, ToolResult) for message in variant.messages for part in message.parts])
    return shorten_results(
        variant,
        places=range(len(variant.messages)),
        excess=sum(variant.sizes),
        limit_bytes=max(LEAST_RESULT_BYTES, limit_bytes * percent // 100 // max(1, results)),
        handle=NO_CALL,
        worth_bytes=0,
    )


def _without_middle(variant: Variant, *, tail: int, limit_bytes: int) -> Variant:
    """The first of the user's messages, as many of the newest as there is room for, the newest summary, and the last step."""
    messages, sizes = variant.messages, variant.sizes
    first = behind_first_user(messages)
    if first >= tail:
        return variant
    room = limit_bytes * USER_PERCENT // 100
    kept = {*users_that_stay(messages, sizes=sizes, first=first, end=tail, room=room)}
    summary = max([index for index in range(first, tail) if is_summary(messages[index])], default=None)
    if summary is not None and sizes[summary] <= room:
        kept.add(summary)
    if len(kept) == tail - first:
        return variant
    note = Message("user", (Text(f"{SUMMARY_HEAD}\n{LEFT_OUT}"),))
    stay = [*range(first), *sorted(kept)]
    return Variant(
        messages=(*[messages[index] for index in stay], note, *messages[tail:]),
        sizes=[*[sizes[index] for index in stay], message_bytes(note), *sizes[tail:]],
    )


def _quoted(variant: Variant, *, quoted_bytes: int, most: int = MAX_QUOTED) -> Variant:
    """The messages without a step: its last results are quoted in a text, before the message that the model is to answer."""
    messages, sizes = variant.messages, variant.sizes
    results = [part for message in messages for part in message.parts if isinstance(part, ToolResult)][-most:]
    ends_open = messages[-1].role not in ("user", "system")
    stay = [index for index, message in enumerate(messages) if message.role in ("user", "system")]
    last = [] if ends_open or not stay else [stay.pop()]
    each = quoted_bytes // max(1, len(results))
    lines = [f"- {result.name}: {_shown(result, limit_bytes=each)}" for result in results]
    note = Message("user", (Text("\n".join([QUOTED, *lines]) if lines else NOTHING_QUOTED),))
    return Variant(
        messages=(*[messages[index] for index in stay], note, *[messages[index] for index in last]),
        sizes=[*[sizes[index] for index in stay], message_bytes(note), *[sizes[index] for index in last]],
        users=True,
    )


def _shown(result: ToolResult, *, limit_bytes: int) -> str:
    text = _text_of(result)
    characters = limit_bytes * len(text) // len(text.encode("utf-8", "replace"))
    return shorten(text, limit=max(LEAST_RESULT_BYTES, characters))


def _text_of(result: ToolResult) -> str:
    texts = [f"({part.media_type})" if isinstance(part, File) else part.text for part in result.content]
    return " ".join(texts).strip() or "(nothing)"


# The forced answer, and what is said when no answer can be had from the model.


# Stands after the results, as the last user-role text: a changed system prompt or tool list would throw the provider's
# prompt cache away (measured, gitmost follow-up; promise end:forced-answer).
SYNTHESIS = (
    "This is the last step of this turn: no tool can be called any more. Answer now, from what you have: give the best "
    "answer that the results so far allow, and say plainly what is unfinished or not known."
)
EMPTY_AGAIN = "Your last response was empty. Go on: answer in text, or call a tool if you still need one."
CALL_NOT_MADE_AGAIN = (
    "Your last response wrote a tool call into its reasoning, so it was not made. Call the tool outside of your reasoning, or "
    "answer in text."
)
CALL_NOT_READ_AGAIN = (
    "Your last response called a tool in a form that could not be read, so the call was not made. Call the tool again, with "
    "arguments that are one valid JSON object, or answer in text."
)
GO_ON = "Go on."
NOT_RUN_LAST_STEP = "Not run: this was the last step of the turn, in which no tool may be called."

# What a local answer shows: enough to be of use, short enough to read.
MAX_RESULTS_SHOWN = 10
MAX_RESULT_CHARACTERS = 500
HAD_SAID = "\n\nThe model had said:\n"
HAD_RETURNED = "\n\nWhat the tools had returned:\n"


class Forbidden(msgspec.Struct, frozen=True):
    """Tools and tool choice of a request in which no tool may be called."""

    tools: tuple[ToolSpec, ...]
    tool_choice: ToolChoice


def forbid_tools(
    tools: tuple[ToolSpec, ...], *, means: Literal["send", "drop_tools"], disobeyed: bool, traits: FamilyTraits
) -> Forbidden:
    """Keep the tools with tool choice none; drop them where the endpoint's profile says so, or once the model disobeyed and the
    family does not want the called ones."""
    drops = means == "drop_tools" or (disobeyed and not traits.wants_called_tools)
    return Forbidden((), "auto") if drops or not tools else Forbidden(tools, "none")


def tools_of_history(messages: Sequence[Message]) -> tuple[ToolSpec, ...]:
    """The tools that were called, by name only, in the order of their first call: for an API that wants them declared
    although none is on offer any more (tool choice none goes with them)."""
    called = {call.name: call.free_form for message in messages for call in calls_of(message)}
    return tuple(
        [ToolSpec(name=name, description="Not available any more.", free_form=kind) for name, kind in called.items()]
    )


class LocalAnswer(msgspec.Struct, frozen=True):
    """An answer of ours in its parts: why there is none from the model, what it had said, and the results of this turn."""

    why: str
    said: str = ""
    results: tuple[ToolResult, ...] = ()

    @property
    def text(self) -> str:
        said = f"{HAD_SAID}{self.said.strip()}" if says_something(self.said) else ""
        return f"{self.why}{said}{results_said(self.results)}"


def local_answer(why: str, *, said: str, messages: Sequence[Message], left_out: Collection[str] = ()) -> str:
    """An answer of ours: why there is none from the model, what it had said, and the last results of this turn, but for
    those whose whole text is `left_out`."""
    return LocalAnswer(why, said, _results_of(messages, left_out=left_out)).text


def read_local_answer(text: str, *, messages: Sequence[Message], left_out: Collection[str] = ()) -> LocalAnswer:
    """The parts of what `local_answer` has made out of the same messages."""
    results = _results_of(messages, left_out=left_out)
    why, _, said = text.removesuffix(results_said(results)).partition(HAD_SAID)
    return LocalAnswer(why, said, results)


def results_said(results: Sequence[ToolResult]) -> str:
    """The last of them, with a heading; empty where there are none."""
    if not results:
        return ""
    lines = [
        f"- {result.name}: {shorten(_text_of(result), limit=MAX_RESULT_CHARACTERS)}"
        for result in results[-MAX_RESULTS_SHOWN:]
    ]
    if len(results) > MAX_RESULTS_SHOWN:
        lines.append(f"(the last {MAX_RESULTS_SHOWN} of {len(results)} results)")
    return HAD_RETURNED + "\n".join(lines)


def _results_of(messages: Sequence[Message], *, left_out: Collection[str]) -> tuple[ToolResult, ...]:
    return tuple(
        [
            part
            for message in messages
            for part in message.parts
            if isinstance(part, ToolResult)
            and "".join([one.text for one in part.content if isinstance(one, Text)]) not in left_out
        ]
    )


# When a turn stops, and what its stop means for the caller.


class Outcome(msgspec.Struct, frozen=True):
    stop_reason: StopReason
    complete: bool
    exit_code: int


# Every way in which a turn can end. A pair that is not here cannot occur (promise end:reason).
OUTCOMES = (
    Outcome(StopReason.ANSWERED, True, 0),
    Outcome(StopReason.ANSWERED, False, 3),
    Outcome(StopReason.STEP_LIMIT, False, 3),
    Outcome(StopReason.BUDGET, False, 3),
    Outcome(StopReason.TIME_LIMIT, False, 3),
    Outcome(StopReason.LOOP, False, 3),
    Outcome(StopReason.WAITING, False, 4),
    Outcome(StopReason.REFUSED, False, 5),
    Outcome(StopReason.PROVIDER_FAILED, False, 6),
    Outcome(StopReason.JOURNAL_FAILED, False, 7),
    Outcome(StopReason.GIVEN_UP, False, 9),
    Outcome(StopReason.TOOL_FAILED, False, 10),
    Outcome(StopReason.CANCELLED, False, 130),
)


FAILED = frozenset(
    {
        StopReason.PROVIDER_FAILED,
        StopReason.JOURNAL_FAILED,
        StopReason.GIVEN_UP,
        StopReason.TOOL_FAILED,
        StopReason.CANCELLED,
    }
)
"""The turn came to no answer, as something went wrong or somebody ended it. Any other reason is an end of its own."""


def exit_code(stop_reason: StopReason, *, complete: bool) -> int:
    """The command line's exit code. Raises KeyError for a pair that cannot occur."""
    return _EXIT_CODES[stop_reason, complete]


_EXIT_CODES = {(outcome.stop_reason, outcome.complete): outcome.exit_code for outcome in OUTCOMES}
