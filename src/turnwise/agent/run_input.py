"""The input of a run: the prompt, results for waiting calls, instructions. It is checked here and becomes messages."""

from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from typing import Any, cast

import msgspec

from turnwise.agent.agent_options import OpeningSource
from turnwise.agent.deps import name_of
from turnwise.base.clock import Clock, Overdue
from turnwise.base.exact_json import NotExact, exact_json
from turnwise.errors import CallerError
from turnwise.rules.history import open_calls
from turnwise.running.hooks import said_by
from turnwise.running.run_context import RunAtHand, RunContext, check_takes_context, context_of
from turnwise.turn.config import TurnConfig
from turnwise.vocab import File, Message, Text, ToolResult, own_text_of

Prompt = str | Sequence[str | Text | File] | Message
"""What a run begins with: a text, texts and files in order, or a whole message."""

TITLE_CHARACTERS = 80


def input_of(
    prompt: Prompt | None, *, results: Mapping[str, object] | None, earlier: Sequence[Message]
) -> tuple[Message, ...]:
    messages: list[Message] = []
    if results is not None:
        messages.append(_results_message(results, earlier=earlier))
    match prompt:
        case None:
            pass
        case Message():
            messages += _results_apart(_checked_message(prompt, what="the prompt"))
        case _:
            messages.append(message_of(prompt, what="the prompt"))
    if not messages:
        raise CallerError(
            "there is nothing to send: give a prompt, `results` for pending calls, or `approvals` for asks that wait"
        )
    if not any(not isinstance(part, Text) or part.text.strip() for message in messages for part in message.parts):
        raise CallerError("the prompt is empty: give the model something to answer")
    return tuple(messages)


def message_of(said: str | Sequence[str | Text | File], *, what: str) -> Message:
    given = cast("object", said)
    if not isinstance(given, str | Sequence) or isinstance(given, bytes | bytearray):
        hint = ": `messages_from(...)` reads a vendor's dicts" if isinstance(given, Mapping) else ""
        kind = type(cast("object", said)).__name__
        raise CallerError(f"{what} must be a text, or a list of texts, `Text` and `File`, not {kind}{hint}")
    parts = (said,) if isinstance(said, str) else tuple(said)
    for part in cast("tuple[object, ...]", parts):
        if not isinstance(part, str | Text | File):
            earlier = "earlier messages go in `history=`, and `messages_from(...)` reads a vendor's dicts"
            hint = f": {earlier}" if isinstance(part, Mapping) else ""
            kind = type(cast("object", part)).__name__
            raise CallerError(f"{what} must be a text, or a list of texts, `Text` and `File`; it holds a {kind}{hint}")
    return _checked_message(
        Message("user", tuple([Text(part) if isinstance(part, str) else part for part in parts])), what=what
    )


def _checked_message(message: Message, *, what: str) -> Message:
    for part in message.parts:
        if isinstance(part, Text):
            check_text(part.text, what=what)
    return message


async def opened(
    given: tuple[Message, ...], *, opening: OpeningSource | None, earlier: Sequence[Message]
) -> tuple[Message, ...]:
    """A turn's input, with the `opening` texts in front of its user message."""
    texts = () if opening is None else tuple(await opening(earlier))
    if not texts or not given or given[-1].role != "user":
        return given
    return (*given[:-1], Message("user", (*texts, *given[-1].parts)))


def json_of(extra: Mapping[str, object]) -> str:
    try:
        return exact_json(extra)
    except NotExact as error:
        raise CallerError(f"`extra` holds what JSON cannot carry: {error}") from error


def check_history(history: object, *, what: str) -> None:
    """Raise CallerError for the first item that is not a `Message`."""
    if isinstance(history, str | bytes | Mapping) or not isinstance(history, Iterable):
        raise CallerError(f"{what} must be a list of `Message`, not {type(cast('object', history)).__name__}")
    messages = tuple(cast("Iterable[object]", history))
    if set(map(type, messages)) <= {Message}:
        return
    place, strange = next((at, one) for at, one in enumerate(messages) if type(one) is not Message)
    raise CallerError(
        f"{what} must hold `Message`, and number {place} (counted from 0) is a {type(strange).__name__}: "
        "`messages_from(...).messages` is the history that a vendor's messages mean"
    )


def check_text(text: object, *, what: str) -> None:
    """Raise CallerError if this is not a text, or if it holds half a surrogate pair. Python makes those of arguments on the
    command line that are not UTF-8."""
    if not isinstance(text, str):
        raise CallerError(f"{what} must be a text, not {type(text).__name__}")
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise CallerError(
            f"{what} holds something that is no character, at position {error.start}: send UTF-8"
        ) from None


def _results_message(results: Mapping[str, object], *, earlier: Sequence[Message]) -> Message:
    """The given values as results, in the order of the calls. The rules say which are missing or unknown."""
    from turnwise.running.tool_output import result_of

    pending = {call.id: call for call in open_calls(earlier)}
    known = [result_of(pending[id], results[id]) for id in pending if id in results]
    unknown = [ToolResult(call_id=id, name="") for id in results if id not in pending]
    return Message("tool", (*known, *unknown))


def _results_apart(message: Message) -> tuple[Message, ...]:
    """Split a user's message that holds results: the message with the results, and the rest."""
    results = tuple([part for part in message.parts if isinstance(part, ToolResult)])
    if message.role != "user" or not results:
        return (message,)
    others = tuple([part for part in message.parts if not isinstance(part, ToolResult)])
    return (Message("tool", results), *([Message("user", others)] if others else []))


def title_of(input: Sequence[Message]) -> str:
    text = " ".join("".join(map(own_text_of, input)).split())
    return text[:TITLE_CHARACTERS]


# An agent's instructions: texts, and functions that write a text for each run.


InstructionWriter = Callable[[RunContext[Any]], str | Awaitable[str | None] | None]
"""Writes a piece of the system prompt for one run. None or an empty text adds nothing."""
Instruction = str | InstructionWriter

THREAD = "turnwise-instructions"


class Instructions:
    """`texts` are the constant ones. The texts of functions go between them, at the places of the functions."""

    def __init__(self, given: Instruction | Sequence[Instruction]) -> None:
        texts: list[Text] = []
        self._writers: list[tuple[int, InstructionWriter]] = []  # how many texts come before it
        for one in (given,) if isinstance(given, str) or callable(given) else given:
            if isinstance(one, str):
                check_text(one, what="`instructions`")
                texts += [Text(one)] if one.strip() else []
            elif callable(one):
                check_takes_context(one, what=f"`instructions`: `{name_of(one)}`")
                self._writers.append((len(texts), one))
            else:
                raise CallerError(
                    f"`instructions` holds a {type(one).__name__}: give texts, and functions that write one"
                )
        self.texts = tuple(texts)

    async def written(self, config: TurnConfig, *, run: RunAtHand, clock: Clock) -> TurnConfig:
        """The configuration of one run, whose `system` begins with `texts` and has the texts of the functions. Raises what a
        function raises, and CallerError for a function that is late or writes no text."""
        if not self._writers:
            return config
        found, placed = list(config.system), 0
        for place, writer in self._writers:
            text = await _written_by(writer, run=run, clock=clock, timeout_s=config.deadlines.hook_s)
            if text.strip():
                found.insert(place + placed, Text(text))
                placed += 1
        return msgspec.structs.replace(config, system=tuple(found))


async def _written_by(writer: InstructionWriter, *, run: RunAtHand, clock: Clock, timeout_s: float) -> str:
    what = f"`instructions`: `{name_of(writer)}`"
    try:
        said = await said_by(
            writer, context_of(run), clock=clock, timeout_s=timeout_s, name="instructions", thread=THREAD
        )
    except Overdue:
        raise CallerError(f"{what} did not answer within {timeout_s:g} s: raise `Deadlines(hook_s=...)`") from None
    if said.error is not None:
        raise said.error
    if said.value is None:
        return ""
    if not isinstance(said.value, str):
        raise CallerError(f"{what} returned a {type(said.value).__name__}: it must return a text, or None")
    check_text(said.value, what=what)
    return said.value
