"""What `turnwise run` does: one prompt, one turn, in one folder."""

import contextlib
import os
import sys
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import msgspec

from turnwise.drivers.clock import SystemClock
from turnwise.drivers.journal.journal import Journal, journal_path
from turnwise.drivers.own_loop import quickest_loop, run_to_end
from turnwise.errors import CallerError
from turnwise.faces.cli.attendance import is_attended, why_nobody
from turnwise.faces.cli.choice import NoModel
from turnwise.faces.cli.events import DeniedCall, JsonLines
from turnwise.faces.cli.lines import say
from turnwise.faces.cli.options import Given
from turnwise.faces.cli.pending import NOTHING, decide, pending_of
from turnwise.faces.cli.prompts import MAX_INPUT_BYTES, CliPrompt, Input, beyond_window, read_prompt
from turnwise.faces.cli.remedies import FailedModel
from turnwise.faces.cli.running import Face, run_turn, what_was_sent
from turnwise.faces.cli.screen import Screen, outcome_line
from turnwise.faces.cli.spending import model_limits_of
from turnwise.faces.cli.terminal import Terminal
from turnwise.faces.cli.text import clean, shortened, style
from turnwise.faces.cli.workplace import Workplace, furnish
from turnwise.faces.results import RunResult
from turnwise.faces.run_options import RunOptions
from turnwise.faces.saying import many
from turnwise.rules.stop import exit_code
from turnwise.turn.approvals import OneAsk
from turnwise.vocab import StopReason, ToolCall


class Answers(msgspec.Struct, frozen=True, kw_only=True):
    """What is said on the command line to calls that wait: their ids, or `all`."""

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
    """Run it to its end and show it; the exit code. Raises CallerError."""
    goes_on = given["go_on"] or given["session"] is not None
    if answers and not goes_on:
        raise CallerError("--approve and --deny answer calls of a session: add --continue or --session")
    if answers and words:
        raise CallerError("give either a PROMPT or --approve and --deny: the model goes on with what it wanted to do")
    asked = None if answers else read_prompt(words, goes_on=goes_on, tell=note, wanted=standard_input)
    output_type = read_schema(output_schema)
    attended = not unattended and is_attended()
    clock = SystemClock()
    with Journal.open(journal_path(os.environ), clock=clock) as journal:
        try:
            place = furnish(given, journal=journal, clock=clock, attended=attended, output_type=output_type)
        except NoModel:
            from turnwise.faces.cli.first_start import first_choice

            given = first_choice(given, asks=attended and not as_json)
            place = furnish(given, journal=journal, clock=clock, attended=attended, output_type=output_type)
        options: RunOptions = {}
        pending = NOTHING
        if place.before is not None:
            options = {"session": place.before.row.id}
            pending = NOTHING if words else pending_of(journal, place.before)
        asks = pending.asks
        if answers:
            approvals = decide(asks, approve=answers.approve, deny=answers.deny)
            answered = {approval.call_id for approval in approvals}
            asks = tuple([ask for ask in asks if ask.call.id not in answered])
            options = {**options, "approvals": approvals}
        elif asks and not attended:
            raise CallerError(waiting_line(asks))
        elif pending.results and not asks:
            raise CallerError(results_line(pending.results))
        face = JsonLines() if as_json else Screen(plain=given["plain"], clock=clock)
        for line in place.notes:
            face.tell(line)
        if place.before is not None:
            from turnwise.faces.cli.last_exchange import exchange_line, last_exchange

            exchange = last_exchange(journal, place.before)
            if exchange is not None:
                face.tell(exchange_line(exchange, now_s=clock.now()))
        if asked is not None and (line := _too_much(asked, place=place)):
            face.tell(line)
        began = clock.monotonic()
        prompt = None if asks else asked
        terminal = terminal_for(face) if attended else None
        try:
            turn = run_turn(place, prompt, asks=asks, options=options, face=face, terminal=terminal)
            ran = run_to_end(turn, new_loop=quickest_loop)
        finally:
            face.close()
        result = ran.result
        with what_was_sent(result):
            if isinstance(face, JsonLines):
                face.finish(result, denied=ran.denied)
            else:
                misfit = output_type is not None and result.output is None and not result.pending
                seconds = clock.monotonic() - began
                show_end(result, seconds=seconds, misfit=misfit, asked=FailedModel(choice=place.choice))
            if not attended:
                note_denied(ran.denied, why=why_nobody(unattended=unattended))
    return exit_code(result.stop_reason, complete=result.complete)


def _too_much(prompt: CliPrompt, *, place: Workplace) -> str | None:
    model = place.choice.model
    limits = model_limits_of(model, settings=place.settings, last=None)
    return beyond_window(prompt, model=model, limits=limits)


def terminal_for(face: Face) -> Terminal:
    return Terminal(screen=face if isinstance(face, Screen) else None)


def show_end(result: RunResult, *, seconds: float, misfit: bool, asked: FailedModel) -> None:
    for repair in result.repairs:
        word = style("repaired", "yellow", stream=sys.stderr)
        note(f"{word} {clean(repair.kind)} at {clean(repair.where)}: {shortened(repair.what, limit=160)}")
    if misfit and result.stop_reason is StopReason.ANSWERED:
        note(style("the answer does not fit --output-schema", "yellow", stream=sys.stderr))
    note(outcome_line(result, seconds=seconds, asked=asked))
    if result.asks:
        note(waiting_line(result.asks, session=result.session))


def waiting_line(asks: Sequence[OneAsk], *, session: str = "") -> str:
    """What waits for an approval, and how it is given."""
    calls = ", ".join([f"{clean(ask.call.name)} ({clean(ask.call.id)})" for ask in asks])
    which = f"--session {session[-8:]}" if session else "--continue"
    return (
        f"{many(len(asks), 'call')} left for later: {calls}; `turnwise run {which} --approve all`, or an id, or --deny"
    )


def results_line(calls: Sequence[ToolCall]) -> str:
    """What waits for results that only a program can hand in."""
    names = ", ".join([f"{clean(call.name)} ({clean(call.id)})" for call in calls])
    return (
        f"the session waits for results of client-side tools: {names}; hand them in with the library "
        "(`agent.run(results=..., session=...)`), or give a PROMPT to go on without them"
    )


def note_denied(denied: Sequence[DeniedCall], *, why: str) -> None:
    if denied:
        names = Counter([" › ".join([*one.path, one.name]) for one in denied])
        calls = ", ".join(
            [clean(name) if count == 1 else f"{clean(name)} ({count} times)" for name, count in names.items()]
        )
        note(style(f"not run, as {why}: {calls}", "yellow", stream=sys.stderr))


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
    """On standard error. Where that cannot be written, the exit code says enough."""
    with contextlib.suppress(OSError):
        say(line)
