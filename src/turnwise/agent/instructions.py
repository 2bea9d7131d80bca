"""An agent's instructions: texts, and functions that write theirs for each run."""

from collections.abc import Awaitable, Callable, Sequence
from typing import Any

import msgspec

from turnwise.agent.deps import name_of
from turnwise.agent.run_input import check_text
from turnwise.base.clock import Clock, Overdue
from turnwise.errors import CallerError
from turnwise.running.run_context import RunAtHand, RunContext, check_takes_context, context_of
from turnwise.running.user_functions import said_by
from turnwise.turn.config import TurnConfig
from turnwise.vocab import Text

InstructionWriter = Callable[[RunContext[Any]], str | Awaitable[str | None] | None]
"""Writes a piece of the system prompt for one run; None or an empty text: nothing."""
Instruction = str | InstructionWriter

THREAD = "turnwise-instructions"


class Instructions:
    """`texts` are those that stay the same; what functions write goes between them, where the functions stood."""

    def __init__(self, given: Instruction | Sequence[Instruction]) -> None:
        texts: list[Text] = []
        self._writers: list[tuple[int, InstructionWriter]] = []  # how many texts stand before it
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
        """The configuration of one run: its `system`, which begins with `texts`, has what the functions write. Raises what a
        function raises, and CallerError for one that is late, or writes no text."""
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
