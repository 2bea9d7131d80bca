"""Answers of the run's own model for what a tool works with: bounded for each call, and paid out of the call's share."""

import asyncio
from collections.abc import Awaitable, Callable, Generator
from contextlib import contextmanager
from contextvars import ContextVar

import msgspec

from turnwise.base.clock import Clock
from turnwise.rules.limits import Limit, Spent, most_usd
from turnwise.rules.shares import share_of
from turnwise.rules.subagents import Place
from turnwise.running.grants import variable_of_run
from turnwise.turn.config import ChildReport
from turnwise.vocab import File, Text

NOTHING_LEFT = "the limits of the run leave no request for it"


class NoAnswer(Exception):
    """The model gives no answer; the text says why."""


class ModelQuestion(msgspec.Struct, frozen=True, kw_only=True):
    """What `server` asks the model. `parts` are its words, which anybody may have written; `max_tokens` bounds the answer.
    `ask` puts a question to a person and says whether the answer was yes."""

    server: str
    parts: tuple[Text | File, ...]
    max_tokens: int
    ask: Callable[[str], Awaitable[bool]]


class ModelAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """`is_cut`: the answer ended at its bound."""

    text: str
    model: str
    is_cut: bool = False


StartAnswer = Callable[[ModelQuestion, Limit | None, Callable[[ChildReport], None]], Awaitable[ModelAnswer]]
"""Starts the sub-agent that answers, within the limit, and has it report what it spent. Raises NoAnswer."""


class OwnModel:
    """The model, for one call: at most `most` answers, one after the other, within `grant`. Without a `place` there are none."""

    def __init__(
        self, start: StartAnswer | None, *, grant: Limit | None, place: Place | None, most: int, clock: Clock
    ) -> None:
        self._start, self._grant, self._place, self._clock = start, grant, place, clock
        below = None if place is None else place.subagents
        self.most = most if below is None else min(most, 1 + below)
        self._asked = 0
        self._spent = Spent()
        self._began_s = clock.monotonic()
        self._one_by_one = asyncio.Lock()

    async def answer(self, question: ModelQuestion, *, tell: Callable[[str], object]) -> ModelAnswer:
        """`tell` is told which of how many answers it is. Raises NoAnswer."""
        if self._start is None or self._place is None:
            raise NoAnswer(NOTHING_LEFT)
        if self._asked >= self.most:
            raise NoAnswer(f"a call may ask the model {self.most} times, and this one has")
        self._asked += 1
        tell(f"the MCP server `{question.server}` asks the model ({self._asked} of at most {self.most})")
        async with self._one_by_one:
            limit = self._left()
            return await self._start(question, limit, lambda report: self._pay(report, limit=limit))

    def _left(self) -> Limit | None:
        if self._grant is None:
            return None
        elapsed_s = self._clock.monotonic() - self._began_s
        share = share_of(self._grant, spent=self._spent + Spent(elapsed_s=elapsed_s), among=1)
        if not share.enough:
            raise NoAnswer(NOTHING_LEFT)
        return share.limit

    def _pay(self, report: ChildReport, *, limit: Limit | None) -> None:
        usd = most_usd(limit) if report.charged_usd is None else report.charged_usd
        usage = report.usage
        self._spent += report.also_spent + Spent(
            requests=report.requests, input_tokens=usage.input_tokens, output_tokens=usage.output_tokens
        )
        self._spent = msgspec.structs.replace(self._spent, cost_usd=self._spent.cost_usd + (usd or 0))


_at_hand: ContextVar[OwnModel | None] = variable_of_run("own_model", default=None)


@contextmanager
def giving_model(model: OwnModel) -> Generator[None]:
    """Within it, a call finds the model. Holds for the tasks begun in it."""
    token = _at_hand.set(model)
    try:
        yield
    finally:
        _at_hand.reset(token)


def model_at_hand() -> OwnModel | None:
    """The model for the call at hand; None where it may not ask."""
    return _at_hand.get()
