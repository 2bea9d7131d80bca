"""One turn under a face (the screen or JSON lines); and `turnwise run`: one prompt, one turn, in one folder."""

import asyncio
import contextlib
import os
import signal
import sys
from collections import Counter
from collections.abc import Coroutine, Generator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Literal

import msgspec

from turnwise.agent.formatting import many
from turnwise.agent.results import RunResult
from turnwise.agent.resume_lookup import LeftRun, is_left
from turnwise.agent.run_setup import ResumeOptions, RunOptions, options_of
from turnwise.base.clock import Clock, SystemClock
from turnwise.base.threads import quickest_loop, run_to_end
from turnwise.coding_agent.asked_calls import NOBODY, NOTHING, decide, dropped_line, is_attended, pending_of, why_nobody
from turnwise.coding_agent.choice import NoModel
from turnwise.coding_agent.interruptible_run import InterruptibleRun, Seeing, typed_parts
from turnwise.coding_agent.left_turns import find_left, furnish_left, left_line, open_asks
from turnwise.coding_agent.options import Given
from turnwise.coding_agent.permissions import model_limits_of
from turnwise.coding_agent.prompts import (
    GOES_ON,
    MAX_INPUT_BYTES,
    CliPrompt,
    Input,
    PromptPart,
    beyond_window,
    read_prompt,
)
from turnwise.coding_agent.run_events import DeniedCall, FailedModel
from turnwise.coding_agent.run_servers import servers_of_run
from turnwise.coding_agent.text import clean_line, short_id, shortened, style
from turnwise.coding_agent.turn_notes import runs_before
from turnwise.coding_agent.workplace import Workplace, furnish, session_key, with_whole_id
from turnwise.errors import CallerError
from turnwise.journal.journal import Journal, Session, journal_path
from turnwise.rules.answer_room import FAILED, exit_code
from turnwise.rules.permissions import Policy
from turnwise.running.approvals import Asking
from turnwise.terminal.events import JsonLines
from turnwise.terminal.exit_codes import NOTHING_CHANGED
from turnwise.terminal.rows import say
from turnwise.terminal.screen import Screen, outcome_line
from turnwise.terminal.terminal import Terminal, confirm_at_terminal
from turnwise.terminal.terminal_asks import TerminalApprover
from turnwise.tools.workspace.read_tool import begin_telling
from turnwise.turn.config import Approval, OneAsk
from turnwise.vocab import StopReason, ToolCall

# One turn on the screen or as JSON lines: what ends it early, the person at the terminal, and the exit code.


Face = JsonLines | Screen


class Stop:
    """Handles Ctrl-C, SIGTERM and the end of the terminal: the first signal ends the turn with what it has; the second is handled
    by Python and ends the process."""

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
        """Use this in the event loop's thread, which is the main thread."""
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
    """A turn that has ended, and the calls that were not allowed to run in it. `changed`: somebody else may have changed
    something."""

    result: RunResult
    denied: tuple[DeniedCall, ...]
    changed: bool
    policy: Policy  # with the rules that were allowed always

    @property
    def exit_code(self) -> int:
        """The exit code of a command that did nothing else."""
        code = exit_code(self.result.stop_reason, complete=self.result.complete)
        return NOTHING_CHANGED if code == 0 and self.denied and not self.changed else code


class LeftApprover:
    """Asks the person; if nobody is there, the question stays for later. Nothing else is allowed, because nobody has seen it."""

    def __init__(self, otherwise: TerminalApprover | None) -> None:
        self._otherwise = otherwise

    async def __call__(self, asking: Asking) -> Sequence[Approval]:
        if self._otherwise is not None:
            return await self._otherwise(asking)
        # A sub-agent's ask cannot wait: it is answered in its own turn.
        return [] if asking.path else [Approval(call_id=ask.call.id, verdict="later") for ask in asking.asks]


class TurnUnderFace:
    """A turn under a face: what watches it, what ends it early, and with a `terminal` the person who is asked. `policy` has the
    rules that the person allowed before. `later`: an ask may be left for later. `run` is the way for others to speak to the
    turn."""

    def __init__(
        self,
        place: Workplace,
        *,
        face: Face,
        terminal: Terminal | None,
        policy: Policy | None = None,
        later: bool = True,
        run: InterruptibleRun | None = None,
    ) -> None:
        if isinstance(face, Screen):
            face.begin(place.bounds)
        self._run = run = run or InterruptibleRun()
        self._face = face
        self.seeing = Seeing(face, tell=face.tell, run=run, commands_note=place.commands_note)
        self.stop = Stop(run, face=face)
        self._place = place
        self._policy = place.policy if policy is None else policy
        self.approver: TerminalApprover | None = None
        if terminal is not None:
            self.approver = TerminalApprover(
                terminal,
                policy=self._policy,
                around=place.around_asks,
                stop=self.stop,
                before_command=self.seeing.before_command,
                later=later,
            )

    async def to_end(self, prompt: CliPrompt | None, *, options: RunOptions, asks: Sequence[OneAsk] = ()) -> Ran:
        """Run it. `asks` are those of an earlier turn, which come first: asks without an answer stay for later. Raises what the
        face raised."""
        place, approver = self._place, self.approver
        if approver is not None:
            options = {**options, "safety": {"approver": approver}}
        if asks:
            answers = () if approver is None else await approver(Asking(asks=tuple(asks), deadline_s=place.ask_s))
            answered = {answer.call_id for answer in answers}
            left = [Approval(call_id=ask.call.id, verdict="later") for ask in asks if ask.call.id not in answered]
            options = {**options, "approvals": [*options.get("approvals", ()), *answers, *left]}
            self._run.forget_interrupt()  # Ctrl-C at these asks leaves them for later, which already ends the turn
        tell = self._face.tell
        in_mode = place.mode.of_turn(place.policy.mode)
        with runs_before(tell, approver=approver, ask_s=place.ask_s, clock=place.clock), self.stop.heeded(), in_mode:
            parts: list[PromptPart] | None = None
            if prompt is not None:
                parts = [*prompt.given]
                if prompt.typed:
                    typed = await typed_parts(prompt.typed, place=place, policy=self._policy, tell=tell)
                    parts = [*typed, *parts]
            result = await self._run.to_end(place.agent.start(parts, **{**options, "watch": self.seeing}))
        return await self._ran(result)

    async def resumed_to_end(self, found: LeftRun) -> Ran:
        """Resume a turn that a dead process has left, on the terms in `found.left`. Asks that the terms do not answer go to the
        person, for the rest of their time; without a person they are left for later.

        Raises CallerError if there is nothing to resume, and what the face raised.
        """
        if self._place.reads_agents_md:
            begin_telling(found.left.turn.known.history.messages)
        with self.stop.heeded(), self._place.mode.of_turn(self._place.policy.mode):
            options: ResumeOptions = {
                **options_of(found.left.terms),
                "approver": LeftApprover(self.approver),
                "watch": self.seeing,
            }
            result = await self._run.to_end(self._place.agent.start_resume(found.session.row.id, **options))
        return await self._ran(result)

    async def _ran(self, result: RunResult) -> Ran:
        """The outcome of the turn. Raises what the face raised."""
        with what_was_sent(result):
            if self.seeing.error is not None:
                raise self.seeing.error
        policy = self._policy if self.approver is None else self.approver.policy
        denied = tuple(self.seeing.denied)
        changed = not denied or await self.seeing.may_have_changed(self._place)
        return Ran(result=result, denied=denied, changed=changed, policy=policy)


@contextmanager
def what_was_sent(result: RunResult) -> Generator[None]:
    """If output cannot be written (a full disk), the result is lost: the error says what had been sent. Raises OSError."""
    try:
        yield
    except BrokenPipeError:  # the reader has gone, and wants no more
        raise
    except OSError as error:
        kept = f" (session {result.session[-8:]})" if result.session else ""
        why = f"{error.strerror or error}; {many(result.requests, 'request')} had been sent{kept}"
        raise OSError(error.errno, why, error.filename) from None


UNANSWERED = ("left this for later", "nobody answered")  # by a program or a sub-agent, which cannot wait
NOT_SENT = (
    "your prompt was not sent, because calls of the interrupted turn wait for an answer: answer them, or give the prompt again "
    "to go on without them"
)


class Answers(msgspec.Struct, frozen=True, kw_only=True):
    """The answers on the command line to waiting calls: their ids, or `all`."""

    approve: tuple[str, ...] = ()
    deny: tuple[str, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.approve or self.deny)


def run_prompt(
    words: Sequence[str],
    *,
    given: Given,
    answers: Answers,
    standard_input: Input,
    output_schema: str | None,
    unattended: bool,
    as_json: bool,
) -> int:
    """Run it to its end and show it; return the exit code. Raises CallerError."""
    goes_on = given["go_on"] or given["session"] is not None
    if answers and not goes_on:
        raise CallerError("--approve and --deny answer calls of a session: add --continue or --session")
    if answers and words:
        raise CallerError("give either a PROMPT or --approve and --deny: the model goes on with what it wanted to do")
    asked = None if answers else read_prompt(words, goes_on=goes_on, tell=note, wanted=standard_input)
    output_type = read_schema(output_schema)
    attended = not unattended and is_attended()
    clock = SystemClock()
    with Journal(journal_path(os.environ), clock=clock) as journal:
        given = with_whole_id(given, journal=journal)
        run = SingleRun(journal, given=given, clock=clock, attended=attended, output_type=output_type, as_json=as_json)
        code = run.to_end(asked, has_words=bool(words), answers=answers)
        note_denied(run.denied, why_nobody=None if attended else why_nobody(unattended=unattended))
    return code


class SingleRun:
    """One prompt in one folder. If the session's last turn was left, that turn comes first."""

    def __init__(
        self,
        journal: Journal,
        *,
        given: Given,
        clock: Clock,
        attended: bool,
        output_type: object,
        as_json: bool,
    ) -> None:
        self._journal, self._clock = journal, clock
        self._servers = servers_of_run(
            given,
            asks=confirm_at_terminal if attended and not as_json else None,
            clock=clock,
            session_key=lambda: session_key(given, journal=journal),
        )
        self._attended, self._output_type = attended, output_type
        try:
            self._place = self._furnished(given)
        except NoModel:
            from turnwise.terminal.first_start import first_choice

            given = first_choice(given, asks=attended and not as_json)
            self._place = self._furnished(given)
        self._given = given
        self._face: Face = JsonLines() if as_json else Screen(plain=given["plain"], clock=clock)
        self._has_told = False
        self.denied: list[DeniedCall] = []

    def _furnished(self, given: Given) -> Workplace:
        return furnish(
            given,
            journal=self._journal,
            clock=self._clock,
            attended=self._attended,
            output_type=self._output_type,
            servers=self._servers,
        )

    def to_end(self, asked: CliPrompt | None, *, has_words: bool, answers: Answers) -> int:
        """The exit code of the last turn. Raises CallerError."""
        before = self._place.before
        if before is not None and is_left(before):
            code = self._left_first(before, asked, has_words=has_words, answers=answers)
            if code is not None:
                return code
            before = self._journal.find_session(before.row.id)
        return self._prompt(before, asked, has_words=has_words, answers=answers)

    def _tell_beginning(self) -> None:
        """Once."""
        if self._has_told:
            return
        self._has_told = True
        for line in self._place.notes:
            self._face.tell(line)
        if waiting := self._servers.waiting_line:
            self._face.tell(waiting)
        if self._place.before is not None:
            from turnwise.coding_agent.last_exchange import exchange_line, last_exchange

            exchange = last_exchange(self._journal, self._place.before)
            if exchange is not None:
                self._face.tell(exchange_line(exchange, now_s=self._clock.now()))

    def _left_first(
        self, session: Session, asked: CliPrompt | None, *, has_words: bool, answers: Answers
    ) -> int | None:
        """Resume the turn that was left. Returns its exit code if there is nothing else to do."""
        try:
            found = find_left(self._journal, session)
            place = furnish_left(
                found, given=self._given, journal=self._journal, clock=self._clock, servers=self._servers
            )
        except CallerError as error:
            self._tell_beginning()
            self._face.tell(cannot_go_on(error))
            return None
        if answers:
            given = answers_of(open_asks(self._journal, turn_id=found.turn_id, left=found.left), answers=answers)
            found.left.terms = msgspec.structs.replace(found.left.terms, answers=given)
        self._tell_beginning()
        self._face.tell(left_line(found, journal=self._journal, now_s=self._clock.now()))
        began = self._clock.monotonic()
        turn = TurnUnderFace(place, face=self._face, terminal=self._terminal())
        try:
            ran = self._ran(turn.resumed_to_end(found))
        except CallerError as error:
            if self._journal.find_session(session.row.id).turns[-1].status == "running":
                raise
            self._face.tell(cannot_go_on(error))
            return None
        result = ran.result
        has_more = asked is not None and (has_words or asked != GOES_ON)
        if has_more and result.pending:
            self._face.tell(NOT_SENT)
        ends = result.stop_reason in FAILED - {StopReason.PROVIDER_FAILED}
        is_last = not has_more or bool(result.pending) or ends
        self._show(ran, place=place, began=began, expects_output=found.left.config.output is not None, is_last=is_last)
        if is_last:
            return ran.exit_code
        self._place = self._furnished(self._given)  # with what was allowed always meanwhile
        return None

    def _prompt(self, before: Session | None, asked: CliPrompt | None, *, has_words: bool, answers: Answers) -> int:
        options: RunOptions = {}
        pending, dropped = NOTHING, ""
        if before is not None:
            options = {"session": before.row.id, "drop_left": True}
            pending = pending_of(self._journal, before)
            if has_words:
                dropped, pending = dropped_line(pending), NOTHING
        asks = pending.asks
        if answers:
            approvals = answers_of(asks, answers=answers)
            answered = {approval.call_id for approval in approvals}
            asks = tuple([ask for ask in asks if ask.call.id not in answered])
            options = {**options, "approvals": approvals}
        elif asks and not self._attended:
            raise CallerError(waiting_line(asks))
        elif pending.results and not asks:
            raise CallerError(results_line(pending.results))
        self._tell_beginning()
        if dropped:
            self._face.tell(dropped)
        if asked is not None and (line := _too_much(asked, place=self._place)):
            self._face.tell(line)
        began = self._clock.monotonic()
        prompt = None if asks else asked
        turn = TurnUnderFace(self._place, face=self._face, terminal=self._terminal())
        ran = self._ran(turn.to_end(prompt, asks=asks, options=options))
        self._show(ran, place=self._place, began=began, expects_output=self._output_type is not None, is_last=True)
        return ran.exit_code

    def _terminal(self) -> Terminal | None:
        return terminal_for(self._face) if self._attended else None

    def _ran(self, turn: Coroutine[object, object, Ran]) -> Ran:
        ran = run_shown(turn, face=self._face)
        self.denied += ran.denied
        return ran

    def _show(self, ran: Ran, *, place: Workplace, began: float, expects_output: bool, is_last: bool) -> None:
        """Show how a turn ended."""
        seconds, asked = self._clock.monotonic() - began, FailedModel(choice=place.choice)
        event = "result" if is_last else "resumed"
        show_ran(ran, face=self._face, seconds=seconds, expects_output=expects_output, asked=asked, event=event)


def cannot_go_on(error: CallerError) -> str:
    """The message if a left turn cannot be resumed, and the session continues without it."""
    return f"its last turn was interrupted and cannot go on ({error}); calls that had begun are told as unknown"


def answers_of(asks: Sequence[OneAsk], *, answers: Answers) -> tuple[Approval, ...]:
    return decide(asks, approve=answers.approve, deny=answers.deny, show=partial(say, as_it_is=True))


def _too_much(prompt: CliPrompt, *, place: Workplace) -> str | None:
    model = place.choice.model
    limits = model_limits_of(model, settings=place.settings, last=None)
    return beyond_window(prompt, model=model, limits=limits)


def terminal_for(face: Face) -> Terminal:
    return Terminal(screen=face if isinstance(face, Screen) else None)


def run_shown(turn: Coroutine[object, object, Ran], *, face: Face) -> Ran:
    """Run it in its own event loop."""
    try:
        return run_to_end(turn, new_loop=quickest_loop)
    finally:
        face.close()


def show_ran(
    ran: Ran,
    *,
    face: Face,
    seconds: float,
    expects_output: bool,
    asked: FailedModel,
    event: Literal["result", "resumed"] = "result",
) -> None:
    """Show how the turn ended. Raises OSError."""
    result = ran.result
    with what_was_sent(result):
        if isinstance(face, JsonLines):
            face.finish(result, code=ran.exit_code, denied=ran.denied, event=event)
        else:
            misfit = expects_output and not result.has_output and not result.pending
            show_end(result, seconds=seconds, misfit=misfit, asked=asked)


def show_end(result: RunResult, *, seconds: float, misfit: bool, asked: FailedModel) -> None:
    for repair in result.repairs:
        word = style("repaired", "yellow", stream=sys.stderr)
        note(f"{word} {clean_line(repair.kind)} at {clean_line(repair.where)}: {shortened(repair.what, limit=160)}")
    if misfit and result.stop_reason is StopReason.ANSWERED:
        note(style("the answer does not fit --output-schema", "yellow", stream=sys.stderr))
    note(outcome_line(result, seconds=seconds, asked=asked))
    if result.asks:
        note(waiting_line(result.asks, session=result.session))


def waiting_line(asks: Sequence[OneAsk], *, session: str = "") -> str:
    """The calls that wait for an approval, and how to give it."""
    calls = ", ".join([f"{clean_line(ask.call.name)} ({clean_line(ask.call.id)})" for ask in asks])
    which = f"--session {short_id(session)}" if session else "--continue"
    return (
        f"{many(len(asks), 'call')} left for later: {calls}; `turnwise run {which} --approve all`, or an id, shows them whole "
        "and how to allow them; or --deny"
    )


def results_line(calls: Sequence[ToolCall]) -> str:
    """The calls that wait for results that only a program can hand in."""
    names = ", ".join([f"{clean_line(call.name)} ({clean_line(call.id)})" for call in calls])
    return (
        f"the session waits for results of client-side tools: {names}; hand them in with the library "
        "(`agent.run(results=..., session=...)`), or give a PROMPT to go on without them"
    )


def note_denied(denied: Sequence[DeniedCall], *, why_nobody: str | None) -> None:
    """The last line: the calls that nobody could be asked about, and those that a person, a rule or a hook denied."""
    marks = () if why_nobody is None else (NOBODY, why_nobody, *UNANSWERED)
    unasked = [one for one in denied if any(mark in one.why for mark in marks)]
    said = [
        f"{why}: {_counted(calls)}"
        for why, calls in (
            (f"not run, as {why_nobody}", unasked),
            ("denied", [one for one in denied if one not in unasked]),
        )
        if calls
    ]
    if said:
        note(style("; ".join(said), "yellow", stream=sys.stderr))


def _counted(calls: Sequence[DeniedCall]) -> str:
    names = Counter([" › ".join([*one.path, one.name]) for one in calls])
    return ", ".join(
        [clean_line(name) if count == 1 else f"{clean_line(name)} ({count} times)" for name, count in names.items()]
    )


def read_schema(file: str | None) -> object:
    """Raises CallerError for a file that cannot be read or holds no JSON object."""
    if file is None:
        return None
    try:
        schema: object = msgspec.json.decode(Path(file).read_bytes()[:MAX_INPUT_BYTES])
    except OSError as error:
        raise CallerError(f"--output-schema: `{file}`: {error.strerror}") from error
    except msgspec.DecodeError as error:
        raise CallerError(f"--output-schema: `{file}` is no JSON: {error}") from error
    if not isinstance(schema, dict):
        raise CallerError(f"--output-schema: `{file}` holds no JSON object")
    return schema  # pyright: ignore[reportUnknownVariableType]


def note(line: str) -> None:
    """Print it on standard error. If that cannot be written, the exit code says enough."""
    with contextlib.suppress(OSError):
        say(line)
