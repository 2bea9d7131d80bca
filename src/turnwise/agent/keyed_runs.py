"""A run whose turn has a key of the caller's: it begins once, goes on where it was left, is followed while it runs, and is read
from the journal once it has ended."""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any, Protocol, cast

from turnwise.agent.agent_setup import AgentSetup
from turnwise.agent.results import RunResult, run_result
from turnwise.agent.resume_lookup import begun_with, folded, ledger_of
from turnwise.agent.run_input import Prompt, message_of
from turnwise.agent.run_setup import ResumeOptions, TypedRunOptions
from turnwise.agent.runs import RunControl
from turnwise.agent.schemas import output_over
from turnwise.base.clock import sleep
from turnwise.errors import CallerError, NothingToResume, SessionBusy, UnreadableTurn
from turnwise.journal.journal import Journal
from turnwise.journal.turn_keys import KeyedTurn, KeyTaken, TurnKey, asked_digest, check_asked, check_new_id
from turnwise.vocab import Message, StopReason

LONGEST_WAIT_S = 3600.0  # for a turn that somebody else runs
LOOKS_AT_ONCE = 4
FIRST_LOOK_S, LAST_LOOK_S = 0.02, 0.5  # between two looks at the journal

# The tasks of this process that wait for a turn with a key; its end wakes them. By the journal's address, session and key.
_here: dict[tuple[str, str, str], set[tuple[asyncio.AbstractEventLoop, asyncio.Event]]] = {}


class TurnBeginner(Protocol):
    def __call__(self, prompt: Prompt | None, *, key: TurnKey | None, turn_id: str) -> Awaitable[RunResult[Any]]: ...


class KeyedRun:
    """One caller's way to the turn. `run` does whatever the journal says is left to do."""

    def __init__(
        self,
        prompt: Prompt | None,
        *,
        setup: AgentSetup,
        options: TypedRunOptions,
        new_id: Callable[[], str],
        control: RunControl,
    ) -> None:
        if setup.journal is None:
            raise CallerError("`key` needs a journal, which keeps the turn: give the agent `Journal(PATH)`")
        if not (session := options.get("session")):
            raise CallerError("`key` needs `session`: a key belongs to a session, and an unknown id begins one")
        self.session = check_new_id(session, what="the session's id")
        self._key = check_new_id(options.get("key"), what="the key")
        self._journal: Journal = setup.journal
        self._setup, self._options, self._new_id = setup, options, new_id
        self._prompt = prompt
        self._control = control
        message = prompt if isinstance(prompt, Message) or prompt is None else message_of(prompt, what="the prompt")
        self._asked = asked_digest(
            message, results=options.get("results"), approvals=tuple(options.get("approvals", ()))
        )
        self._look_s = FIRST_LOOK_S
        self._failed = ""  # the turn of this key that its provider had failed when we looked first

    async def run(self, *, begin: TurnBeginner, resume: Callable[..., Awaitable[RunResult[Any]]]) -> RunResult[Any]:
        """The result of the turn. Raises SessionBusy if it still runs after `wait` seconds, and KeyReused."""
        clock = self._setup.clock
        ends_s = clock.monotonic() + self._options.get("wait", LONGEST_WAIT_S)
        busy = SessionBusy(f"the turn `{self._key}` of session `{self.session}` still runs: ask again later")
        changes = 0
        while True:
            found = await self._journal.beside(partial(self._journal.find_key, self.session, self._key))
            if found is not None and found.state == "dropped":
                raise NothingToResume(
                    f"the turn `{self._key}` of session `{self.session}` was left, and the session has continued without it: "
                    "give the message a new key"
                )
            self._failed = self._failed or (found.turn_id if found is not None and self._has_failed(found) else "")
            try:
                if found is None or found.state == "accepted" or self._is_tried_again(found):
                    return await self._begin(found, begin=begin)
                check_asked(self._named(), kept=found.asked)
                if found.state == "left":
                    resumed = resume(options=self._resume_options(), turn_id=found.turn_id)
                    return await self._with_news(resumed)
                if found.state == "ended":
                    recorded = await self._journal.beside(partial(self._recorded, found))
                    self._control.untold = recorded.shown_text
                    return recorded
            except (KeyTaken, NothingToResume):
                changes += 1  # somebody was faster: look again, at first at once
                if changes < LOOKS_AT_ONCE:
                    continue
            except SessionBusy as error:
                busy = error
            left_s = ends_s - clock.monotonic()
            if left_s <= 0.0:
                raise busy
            await self._wait(left_s)
            if self._control.ends:
                raise SessionBusy(
                    f"the waiting was ended; the turn `{self._key}` of session `{self.session}` runs elsewhere"
                )

    def _named(self) -> TurnKey:
        return TurnKey(text=self._key, asked=self._asked, again=self._failed if self._options.get("again") else "")

    def _has_failed(self, found: KeyedTurn) -> bool:
        return found.state == "ended" and found.stop_reason is StopReason.PROVIDER_FAILED

    def _is_tried_again(self, found: KeyedTurn) -> bool:
        """Whether it is the failed turn that this run found first: of several who try again, one begins, and all get its end."""
        return bool(self._options.get("again")) and self._has_failed(found) and found.turn_id == self._failed

    async def _begin(self, found: KeyedTurn | None, *, begin: TurnBeginner) -> RunResult[Any]:
        named, prompt = self._named(), self._prompt
        if found is not None:
            check_asked(named, kept=found.asked)
        if not named.asked:
            if found is not None and found.prompt is None:
                raise CallerError(f"to try the turn `{self._key}` again, give its prompt again")
            if found is None or found.prompt is None:
                raise CallerError(
                    f"session `{self.session}` has no turn with the key `{self._key}`: give the run a prompt, or keep one with "
                    "`journal.accept(session, key, prompt)`"
                )
            prompt, named = found.prompt, TurnKey(text=self._key, asked=found.asked)
        return await self._with_news(begin(prompt, key=named, turn_id=self._new_id()))

    async def _with_news(self, turn: Awaitable[RunResult[Any]]) -> RunResult[Any]:
        """The tasks of this process that wait hear of its end at once."""
        try:
            return await turn
        finally:
            for loop, waiter in tuple(_here.get(self._place, ())):
                with contextlib.suppress(RuntimeError):  # its loop is closed, and nobody waits any more
                    loop.call_soon_threadsafe(waiter.set)

    @property
    def _place(self) -> tuple[str, str, str]:
        return self._journal.address() or str(id(self._journal)), self.session, self._key

    async def _wait(self, left_s: float) -> None:
        """Until the turn ends here, or until it is time to look again."""
        news = asyncio.Event()
        place = (asyncio.get_running_loop(), news)
        waiters = _here.setdefault(self._place, set())
        waiters.add(place)
        look = asyncio.ensure_future(sleep(self._setup.clock, seconds=min(self._look_s, left_s)))
        hear = asyncio.ensure_future(news.wait())
        self._control.follows = True
        try:
            await asyncio.wait([look, hear], return_when=asyncio.FIRST_COMPLETED)
        finally:
            self._control.follows = False
            look.cancel()
            hear.cancel()
            waiters.discard(place)
            if not waiters:
                _here.pop(self._place, None)
        self._look_s = min(self._look_s * 2, LAST_LOOK_S)

    def _resume_options(self) -> ResumeOptions:
        """Those of the run's options that a turn which goes on can take."""
        taken = {name: one for name, one in self._options.items() if name in _FOR_RESUME}
        if (approver := self._setup.safety.approver) is not None:
            taken["approver"] = approver
        return cast("ResumeOptions", taken)

    def _recorded(self, found: KeyedTurn) -> RunResult[Any]:
        """The result as the journal has it. Tools and checks do not run again; the output is parsed from the record."""
        journal = self._journal
        turns = journal.find_session(self.session).turns
        place = next((at for at, turn in enumerate(turns) if turn.id == found.turn_id), len(turns))
        entries = journal.entries(found.turn_id)
        before = begun_with(entries, before=folded(journal, turns[:place]))
        result = journal.result_of(found.turn_id, carried=before.carried)
        if result is None:
            raise UnreadableTurn(
                f"the turn `{self._key}` of session `{self.session}` has ended, and its records do not say how"
            )
        ledger = ledger_of(journal, session=self.session, turn_id=found.turn_id, entries=entries)
        output = output_over(self._setup.output, self._options)
        ended = run_result(result, output=output, before=before, session=self.session, ledger=ledger)
        if ended.stop_reason is StopReason.TOOL_FAILED:  # the exception itself was raised where the turn ran
            ended.raise_for_stop()
        return ended


_FOR_RESUME = frozenset({"tools", "deps", "output_type", "watch"})
