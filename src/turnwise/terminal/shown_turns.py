"""One turn on the screen or as JSON lines: what ends it early, who is asked at the terminal, and the exit code."""

import asyncio
import signal
from collections.abc import Generator, Sequence
from contextlib import contextmanager

import msgspec

from turnwise.agent.formatting import many
from turnwise.agent.results import RunResult
from turnwise.agent.resume_lookup import LeftRun
from turnwise.agent.run_options import ResumeOptions, RunOptions, options_of
from turnwise.coding_agent.interruptible_run import InterruptibleRun, Seeing, typed_parts
from turnwise.coding_agent.mentions import PromptPart
from turnwise.coding_agent.prompts import CliPrompt
from turnwise.coding_agent.run_events import DeniedCall
from turnwise.coding_agent.turn_notes import runs_before
from turnwise.coding_agent.workplace import Workplace
from turnwise.rules.last_step import exit_code
from turnwise.rules.permissions import Policy
from turnwise.running.approvals import Asking
from turnwise.terminal.events import JsonLines
from turnwise.terminal.exit_codes import NOTHING_CHANGED
from turnwise.terminal.screen import Screen
from turnwise.terminal.terminal import Terminal
from turnwise.terminal.terminal_asks import TerminalApprover
from turnwise.tools.workspace.instructions import begin_telling
from turnwise.turn.approvals import Approval, OneAsk

Face = JsonLines | Screen


class Stop:
    """What Ctrl-C and SIGTERM do, and the end of the terminal: the first ends the turn with what is there; the second is
    Python's own, and ends the process."""

    def __init__(self, run: InterruptibleRun, *, face: Face | None) -> None:
        self._run = run
        self._face = face
        self._heeds = False

    def __call__(self) -> None:
        self._run.interrupt()
        self._leave_alone()
        if isinstance(self._face, Screen):
            self._face.stopping()

    @contextmanager
    def heeded(self) -> Generator[None]:
        """To be used in the event loop's thread, which is the main one."""
        loop = asyncio.get_running_loop()
        before = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGHUP)}
        if before[signal.SIGHUP] is signal.SIG_IGN:  # `nohup` wants that
            del before[signal.SIGHUP]
        for number in (signal.SIGINT, *before):
            loop.add_signal_handler(number, self)
        self._heeds = True
        try:
            yield
        finally:
            self._leave_alone()
            for number, was in before.items():
                loop.remove_signal_handler(number)
                signal.signal(number, was)

    def _leave_alone(self) -> None:
        if self._heeds:
            self._heeds = False
            asyncio.get_running_loop().remove_signal_handler(signal.SIGINT)


class Ran(msgspec.Struct, frozen=True, kw_only=True):
    """A turn that has ended, and the calls that were not allowed to run in it. `changed`: others may have changed something."""

    result: RunResult
    denied: tuple[DeniedCall, ...]
    changed: bool
    policy: Policy  # with what was allowed always

    @property
    def exit_code(self) -> int:
        """Of a command that did nothing else."""
        code = exit_code(self.result.stop_reason, complete=self.result.complete)
        return NOTHING_CHANGED if code == 0 and self.denied and not self.changed else code


async def run_turn(
    place: Workplace,
    prompt: CliPrompt | None,
    *,
    options: RunOptions,
    face: Face,
    terminal: Terminal | None,
    policy: Policy | None = None,
    asks: Sequence[OneAsk] = (),
    later: bool = True,
    run: InterruptibleRun | None = None,
) -> Ran:
    """Run one turn to its end; with a `terminal` the person at it is asked. `policy` holds what they allowed before.

    `asks` are those of an earlier turn, which come first: those that nobody answers stay for later. `later`: an ask may be
    left for it. `run` is what else speaks to the turn. Raises what the face raised."""
    run = run or InterruptibleRun()
    shown = _Shown(place, face=face, terminal=terminal, policy=policy, later=later, run=run)
    if shown.approver is not None:
        options = {**options, "safety": {"approver": shown.approver}}
    if asks:
        answers = await _ask_again(asks, approver=shown.approver, within_s=place.ask_s)
        options = {**options, "approvals": [*options.get("approvals", ()), *answers]}
        run.forget_interrupt()  # Ctrl-C at these asks leaves them for later, and the turn ends by that
    before = runs_before(face.tell, approver=shown.approver, ask_s=place.ask_s, clock=place.clock)
    with before, shown.stop.heeded():
        parts = None if prompt is None else await _parts_of(prompt, place=place, policy=policy, face=face)
        result = await run.to_end(place.agent.start(parts, **{**options, "watch": shown.seeing}))
    return await shown.ran(result)


async def resume_turn(
    place: Workplace,
    found: LeftRun,
    *,
    face: Face,
    terminal: Terminal | None,
    policy: Policy | None = None,
    later: bool = True,
    run: InterruptibleRun | None = None,
) -> Ran:
    """Go on with a turn that a dead process has left, to its end, on the terms in `found.left`. What they do not answer is put to
    the person at the `terminal`, for what is left of its time; without one it is left for later.

    Raises CallerError where there is nothing to go on with, and what the face raised."""
    run = run or InterruptibleRun()
    shown = _Shown(place, face=face, terminal=terminal, policy=policy, later=later, run=run)
    approver = LeftApprover(shown.approver)
    if place.reads_agents_md:
        begin_telling(found.left.turn.known.history.messages)
    with shown.stop.heeded():
        session = found.session.row.id
        options: ResumeOptions = {**options_of(found.left.terms), "approver": approver, "watch": shown.seeing}
        result = await run.to_end(place.agent.start_resume(session, **options))
    return await shown.ran(result)


class LeftApprover:
    """Asks the person; if nobody is there, the question stays for later. Nothing else is allowed: nobody has seen it."""

    def __init__(self, otherwise: TerminalApprover | None) -> None:
        self._otherwise = otherwise

    async def __call__(self, asking: Asking) -> Sequence[Approval]:
        if self._otherwise is not None:
            return await self._otherwise(asking)
        # A sub-agent's ask cannot wait: it is answered in its own turn.
        return [] if asking.path else [Approval(call_id=ask.call.id, verdict="later") for ask in asking.asks]


class _Shown:
    """A turn under a face: what watches it, what ends it early, and the person who is asked, if there is one."""

    def __init__(
        self,
        place: Workplace,
        *,
        face: Face,
        terminal: Terminal | None,
        policy: Policy | None,
        later: bool,
        run: InterruptibleRun,
    ) -> None:
        if isinstance(face, Screen):
            face.begin(place.bounds)
        self.seeing = Seeing(face, tell=face.tell, run=run, commands_note=place.commands_note)
        self.stop = Stop(run, face=face)
        self._place = place
        self._policy = place.policy if policy is None else policy
        self.approver: TerminalApprover | None = None
        if terminal is not None:
            self.approver = TerminalApprover(
                terminal,
                policy=self._policy,
                offers=place.offers,
                inspect=place.inspect,
                workspace=place.workspace,
                clock=place.clock,
                stop=self.stop,
                before_command=self.seeing.before_command,
                later=later,
            )

    async def ran(self, result: RunResult) -> "Ran":
        """What came of it. Raises what the face raised."""
        with what_was_sent(result):
            if self.seeing.error is not None:
                raise self.seeing.error
        policy = self._policy if self.approver is None else self.approver.policy
        denied = tuple(self.seeing.denied)
        changed = not denied or await self.seeing.may_have_changed(self._place)
        return Ran(result=result, denied=denied, changed=changed, policy=policy)


async def _parts_of(prompt: CliPrompt, *, place: Workplace, policy: Policy | None, face: Face) -> list[PromptPart]:
    """The prompt with the files that it names, then what was piped in."""
    judge = place.policy if policy is None else policy
    typed = await typed_parts(prompt.typed, place=place, policy=judge, tell=face.tell) if prompt.typed else []
    return [*typed, *prompt.given]


@contextmanager
def what_was_sent(result: RunResult) -> Generator[None]:
    """An output that cannot be written (a full disk) hides the result: the complaint says what had been sent. Raises OSError."""
    try:
        yield
    except BrokenPipeError:  # the reader has gone, and wants to know no more
        raise
    except OSError as error:
        kept = f" (session {result.session[-8:]})" if result.session else ""
        why = f"{error.strerror or error}; {many(result.requests, 'request')} had been sent{kept}"
        raise OSError(error.errno, why, error.filename) from None


async def _ask_again(asks: Sequence[OneAsk], *, approver: TerminalApprover | None, within_s: float) -> list[Approval]:
    answers = () if approver is None else await approver(Asking(asks=tuple(asks), deadline_s=within_s))
    answered = {answer.call_id for answer in answers}
    left = [Approval(call_id=ask.call.id, verdict="later") for ask in asks if ask.call.id not in answered]
    return [*answers, *left]
