"""The forced answer, and what is said when no answer can be had from the model."""

from collections.abc import Collection, Sequence
from typing import Literal

import msgspec

from turnwise.rules.schema import shorten
from turnwise.vocab import File, Message, StopReason, Text, ToolChoice, ToolResult, ToolSpec, calls_of
from turnwise.vocab.hidden_characters import says_something

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

# Anthropic refuses tool calls and results in the history of a request without `tools`
# (LiteLLM and Bedrock refuse it before it leaves), so even the extra request keeps them there, tool choice none.
NEEDS_TOOLS_FOR_HISTORY = frozenset({"anthropic_messages"})

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
    tools: tuple[ToolSpec, ...], *, means: Literal["send", "drop_tools"], disobeyed: bool, family: str
) -> Forbidden:
    """Keep the tools with tool choice none; drop them where the endpoint's profile says so, or once the model disobeyed."""
    drops = means == "drop_tools" or (disobeyed and family not in NEEDS_TOOLS_FOR_HISTORY)
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
    lines = [f"- {result.name}: {_show(result)}" for result in results[-MAX_RESULTS_SHOWN:]]
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


def _show(result: ToolResult) -> str:
    texts = [f"({part.media_type})" if isinstance(part, File) else part.text for part in result.content]
    return shorten(" ".join(texts).strip() or "(nothing)", limit=MAX_RESULT_CHARACTERS)


# When a turn stops, and what its stop means for whoever waits for it.


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
    Outcome(StopReason.CANCELLED, False, 130),
)


FAILED = frozenset({StopReason.PROVIDER_FAILED, StopReason.JOURNAL_FAILED, StopReason.GIVEN_UP, StopReason.CANCELLED})
"""The turn came to no answer, as something went wrong or somebody ended it. Any other reason is an end of its own."""


def exit_code(stop_reason: StopReason, *, complete: bool) -> int:
    """The command line's exit code. Raises KeyError for a pair that cannot occur."""
    return _EXIT_CODES[stop_reason, complete]


_EXIT_CODES = {(outcome.stop_reason, outcome.complete): outcome.exit_code for outcome in OUTCOMES}
