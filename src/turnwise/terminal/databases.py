"""Turns in a database: its options, and the commands `submit`, `answer`, `cancel` and `retry`. And reading the user's journal for
commands that only show it."""

import os
import sys
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, TypeVar, cast, get_args

import click
import msgspec

from turnwise.agent.formatting import many
from turnwise.base.clock import SystemClock
from turnwise.base.extras import require_extras
from turnwise.coding_agent.asked_calls import ALL, check_shown, decide, marked, whole_id
from turnwise.coding_agent.text import visible_line
from turnwise.errors import CallerError, JournalDamaged, JournalFailed
from turnwise.journal.journal import DATABASES, Journal, journal_path
from turnwise.settings.options import RunSettings, rows_of_limits
from turnwise.terminal.command_options import json_option, options_of_limits
from turnwise.terminal.engines import OF_SUBMIT, EngineOptions, engine_options, refuse_for_engine, submit_to_engine
from turnwise.terminal.failures import FAILED, Failure, as_one_line, complain
from turnwise.terminal.last_line import EndsWithLine
from turnwise.terminal.rows import say
from turnwise.turn.config import Approval, Effect, OneAsk
from turnwise.vocab.file_names import is_text

if TYPE_CHECKING:
    from turnwise.workers.queue import TurnQueue

VARIABLE = "TURNWISE_DATABASE"

database_option = click.option(
    "--database",
    metavar="DSN",
    envvar=VARIABLE,
    help=f"`postgresql://USER@HOST/DATABASE`. [default: {VARIABLE}]",
)


def checked_dsn(database: str | None) -> str:
    """The address of the database. Raises CallerError if it is invalid, without quoting it: it may hold a password."""
    if not database:
        raise CallerError(f"no database: give `--database postgresql://USER@HOST/DATABASE`, or set {VARIABLE}")
    if not database.startswith(DATABASES):
        raise CallerError("`--database` is no address of PostgreSQL: give `postgresql://USER@HOST/DATABASE`")
    os.environ.pop(VARIABLE, None)  # programs that tools start do not inherit the address
    return database


@contextmanager
def as_database_failure() -> Generator[None]:
    """Turn a failing database into a Failure: it is no wrong use."""
    try:
        yield
    except JournalFailed as error:
        raise Failure(str(error), exit_code=FAILED) from error


@contextmanager
def open_queue(database: str | None) -> Generator["TurnQueue"]:
    """The turns of that database; its tables are created if they are missing. Raises CallerError if a word of the command line is
    not text, and Failure if the database fails."""
    with as_database_failure():
        dsn = checked_dsn(database)
        _check_texts(click.get_current_context())
        require_extras("postgres")
        from turnwise.workers.queue import TurnQueue

        queue = TurnQueue(dsn, clock=SystemClock())
        try:
            queue.open()
            yield queue
        finally:
            queue.close()


def _check_texts(context: click.Context) -> None:
    """Raise for bytes that are not UTF-8: Python makes half a surrogate pair of each, which cannot be written back."""
    for parameter in context.command.params:
        value: object = context.params.get(parameter.name or "")
        if not is_text(_joined(value)):
            raise CallerError(f"{parameter.get_error_hint(context)} is no UTF-8 text")


def _joined(value: object) -> str:
    """All texts of a repeatable option, joined into one."""
    if isinstance(value, tuple):
        return "".join([_joined(part) for part in cast("tuple[object, ...]", value)])
    return value if isinstance(value, str) else ""


# Reading the user's journal, for commands that only show it.


Read = TypeVar("Read")


def read_journal(read: Callable[[Journal], Read]) -> tuple[Read, int]:
    """The result of `read` on the journal, and the exit code. Notes go to standard error.

    If `read` finds damage, it is called again with the readable part of the file, and the code is FAILED: a part may be missing.
    Raises CallerError.
    """
    path, clock = journal_path(os.environ), SystemClock()
    try:
        with Journal.open_to_read(path, clock=clock) as journal:
            for note in journal.notes:
                complain(note)
            return read(journal), 0
    except JournalDamaged as error:
        damage = str(error)
    with Journal.open_rescued(path, clock=clock) as journal:
        for note in (damage, *journal.notes):
            complain(note)
        return read(journal), FAILED


# `turnwise submit`: let a worker run a turn.


HIGHEST = 1_000_000

SUBMIT_EPILOG = """\b
Examples:
  turnwise submit --agent helper "sum up the report"
  turnwise submit --agent helper --session "$SESSION" "and in French?"
  turnwise submit --agent coder --needs folder:/srv/x --priority 5 "fix the tests"
  turnwise submit --agent helper --label user=42 "what did I order?"
  turnwise submit --agent coder --effect read --max-cost 0.20 "what is slow here?"
  turnwise submit --engine temporal --agent helper --session customer-42 --key message-1 "what did I order?"

These options can only narrow what the agent may do. If no worker accepts the turn, it waits, and `turnwise status` says why.

\b

It prints the session's id and does not wait: `turnwise status SESSION --follow` does.
Exit codes: 0 submitted; 1 the database failed; 2 wrong use, or no such session."""


@click.command(cls=EndsWithLine, epilog=SUBMIT_EPILOG)
@click.argument("prompt")
@database_option
@click.option("--agent", required=True, metavar="NAME", help="The agent, as workers call it.")
@click.option("--session", default="", metavar="ID", help="Continue this session. [default: a new one]")
@click.option(
    "--priority",
    type=click.IntRange(-HIGHEST, HIGHEST),
    default=0,
    metavar="N",
    help="Turns with a higher priority begin first. [default: 0]",
)
@click.option(
    "--needs", multiple=True, metavar="WHAT", help="Only workers that offer this run the turn. May be repeated."
)
@click.option(
    "--model", default="", metavar="NAME", help="Another model of the agent's provider, if a worker allows it."
)
@click.option(
    "--instructions",
    default="",
    metavar="TEXT",
    help="Instructions to add after the agent's own, if a worker allows it.",
)
@click.option(
    "--effect",
    "effects",
    multiple=True,
    type=click.Choice(get_args(Effect)),
    help="Only tools with this effect, or with none, may run. May be repeated.",
)
@click.option(
    "--label",
    "labels",
    multiple=True,
    metavar="NAME=TEXT",
    help="A label that a new session keeps; the agent's `DepsFactory` gets it. May be repeated.",
)
@options_of_limits
@engine_options(*OF_SUBMIT)
@json_option("Print one JSON object.")
def submit_command(
    prompt: str,
    database: str | None,
    agent: str,
    session: str,
    priority: int,
    needs: tuple[str, ...],
    model: str,
    instructions: str,
    effects: tuple[Effect, ...],
    labels: tuple[str, ...],
    settings: RunSettings,
    engine: EngineOptions,
    as_json: bool,
) -> None:
    """Submit PROMPT as a turn that a worker runs, and print its session."""
    if not prompt.strip():
        raise Failure("the prompt is empty")
    if engine.engine == "temporal":
        limits = {row.name: getattr(settings, row.name) for row in rows_of_limits()}
        refuse_for_engine(
            priority=priority, needs=needs, model=model, instructions=instructions, effect=effects, **limits
        )
        with as_one_line(), as_database_failure():
            _check_texts(click.get_current_context())
            dsn, read = checked_dsn(database), labels_given(labels)
            found, key = submit_to_engine(engine, dsn=dsn, agent=agent, session=session, prompt=prompt, labels=read)
        sys.stdout.write(f"{msgspec.json.encode({'session': found, 'key': key}).decode() if as_json else found}\n")
        return
    with as_one_line(), open_queue(database) as queue:
        from turnwise.workers.turn_status import TurnWishes

        wishes = TurnWishes(model=model, instructions=instructions, effects=effects or None, most=settings)
        found = queue.submit(
            prompt,
            agent=agent,
            session=session,
            priority=priority,
            needs=needs,
            wishes=wishes,
            labels=labels_given(labels),
        )
        text = msgspec.json.encode({"session": found}).decode() if as_json else found
        sys.stdout.write(f"{text}\n")


def labels_given(given: Sequence[str]) -> dict[str, str]:
    """Labels of the form `user=42`. Raises Failure for a label without a name, and for a name that occurs twice."""
    labels = dict[str, str]()
    for one in given:
        name, equals, value = one.partition("=")
        if not name or not equals:
            raise Failure(f"`--label {one}` names no text: write `--label NAME=TEXT`, `--label user=42`")
        if name in labels:
            raise Failure(f"`--label {name}=...` was given twice")
        labels[name] = value
    return labels


# `turnwise answer`: answer the asks of a turn that a worker runs.


ANSWER_EPILOG = """\b
Examples:
  turnwise status 019aa1b2c3d4e5f60718293a4b
  turnwise answer 019aa1b2c3d4e5f60718293a4b --approve call_1@3f9a0c27be51
  turnwise answer 019aa1b2c3d4e5f60718293a4b --deny all --because "not on a Friday"
  turnwise answer 019aa1b2c3d4e5f60718293a4b --reply call_2@5b11f08c93d2 "the red one"
  turnwise answer 019aa1b2c3d4e5f60718293a4b --approve helper/call_1@80d2be0f6a14

`turnwise status SESSION` shows the asks. Behind each id stands a mark of all that would run or is asked: --approve and --reply
take it with this mark only, and show the asks otherwise. The turn continues once all are answered, on any worker that has its
agent. A sub-agent continues once its own questions are answered; its path stands before the call.

\b
Exit codes:
  0  the answers are recorded
  1  the database failed
  2  wrong use, nothing of the session waits, or it was answered before"""


@click.command(cls=EndsWithLine, epilog=ANSWER_EPILOG)
@click.argument("session")
@database_option
@click.option(
    "--approve", multiple=True, metavar="ID", help="Let this call run, or `all`: ID@MARK, as shown. May be repeated."
)
@click.option("--deny", multiple=True, metavar="ID", help="Do not let this call run, or `all`. May be repeated.")
@click.option("--because", default="", metavar="TEXT", help="What the model is told with a denial.")
@click.option(
    "--reply",
    nargs=2,
    multiple=True,
    metavar="ID TEXT",
    help="Answer this question: ID@MARK, as shown. May be repeated.",
)
@json_option("Print one JSON object.")
def answer_command(
    session: str,
    database: str | None,
    approve: tuple[str, ...],
    deny: tuple[str, ...],
    because: str,
    reply: tuple[tuple[str, str], ...],
    as_json: bool,
) -> None:
    """Answer what a turn of SESSION asks. The first answer to a call counts."""
    if not (approve or deny or reply):
        raise Failure(
            f"say what the answer is: `--approve`, `--deny` or `--reply`; `turnwise status {session}` shows the asks"
        )
    with as_one_line(), open_queue(database) as queue:
        from turnwise.workers.ask_answers import answer, check_asked, open_asks

        found = open_asks(queue, session)
        answered = {one.approval.call_id for one in found.answers}
        known = {ask.call.id for ask in found.asked.asks}
        deny = tuple([whole_id(one, known=known) for one in deny])
        named = {*[marked(one, known=known)[0] for one in (*approve, *[id for id, _ in reply])], *deny}
        check_asked(named, found=found)
        approvals = answers_of(found.asked.asks, approve=approve, deny=deny, because=because, reply=reply)
        approvals = [one for one in approvals if one.call_id in named or one.call_id not in answered]
        left = answer(queue, session, approvals, clock=SystemClock())
    said = {"session": session, "answered": [one.call_id for one in approvals], "open": left}
    then = "the turn goes on" if left <= 0 else f"{many(left, 'ask')} still open"
    text = f"{many(len(approvals), 'answer')}; {then}"
    sys.stdout.write(f"{msgspec.json.encode(said).decode() if as_json else text}\n")


def answers_of(
    asks: Sequence[OneAsk],
    *,
    approve: Sequence[str],
    deny: Sequence[str],
    because: str,
    reply: Sequence[tuple[str, str]],
) -> list[Approval]:
    """One approval for each named ask. Raises CallerError for an ask that is named twice, or of another kind."""
    known = {ask.call.id for ask in asks}
    questions = {ask.call.id: ask for ask in asks if ask.kind == "question"}
    replies = [(*marked(id, known=known), text) for id, text in reply]
    replied = {id for id, _, _ in replies}
    approved = {marked(one, known=known)[0] for one in approve}
    if strange := [id for id, _, _ in replies if id not in questions]:
        there = f"; there are {', '.join(questions)}" if questions else ""
        raise Failure(f"--reply `{strange[0]}`: no such question waits{there}")
    if len(replied) < len(reply) or replied & {*approved, *deny}:
        raise Failure("a question takes one answer: leave the others out")
    show = partial(say, as_it_is=True)
    marks = {id: mark for id, mark, _ in replies}
    check_shown([*questions.values()], allowed=replied, marks=marks, show=show, option="--reply")
    rest = [ask for ask in asks if ask.call.id not in replied]
    if ALL in approved:
        rest = [ask for ask in rest if ask.kind == "approval" or ask.call.id in deny]
    decided = decide(rest, approve=approve, deny=deny, show=show) if approve or deny else ()
    told = [msgspec.structs.replace(one, text=because) if one.verdict == "deny" else one for one in decided]
    return told + [
        Approval(call_id=id, verdict="allow", text=text, digest=questions[id].digest) for id, _, text in replies
    ]


# `turnwise cancel`: end the turns of a session, wherever they run.


CANCEL_EPILOG = """\b
Examples:
  turnwise cancel 019aa1b2c3d4e5f60718293a4b

Waiting turns end at once. A running turn is ended by its worker. Exit codes: 0 done; 1 no turn of the session was open, or the
database failed; 2 wrong use."""


@click.command(cls=EndsWithLine, epilog=CANCEL_EPILOG)
@click.argument("session")
@database_option
@json_option("Print one JSON object.")
def cancel_command(session: str, database: str | None, as_json: bool) -> None:
    """Cancel the turns of SESSION that wait or run."""
    with as_one_line(), open_queue(database) as queue:
        count = queue.cancel(session)
        said = {"session": session, "cancelled": count}
        sys.stdout.write(f"{msgspec.json.encode(said).decode() if as_json else many(count, 'turn')}\n")
    if not count:
        sys.exit(FAILED)


# `turnwise retry`: run the failed turn of a session again.


RETRY_EPILOG = """\b
Examples:
  turnwise retry 019aa1b2c3d4e5f60718293a4b

A turn has failed if its provider failed, if five workers in a row died of it, or if its agent or a tool raised an exception. It
runs with the same prompt and limits, before the later turns of its session. Exit codes: 0 it is queued; 1 the database failed; 2
wrong use, or no such turn."""


@click.command(cls=EndsWithLine, epilog=RETRY_EPILOG)
@click.argument("session")
@database_option
@json_option("Print one JSON object.")
def retry_command(session: str, database: str | None, as_json: bool) -> None:
    """Run the last turn of SESSION again, if it failed."""
    with as_one_line(), open_queue(database) as queue:
        retried = queue.retry(session)
    why = retried.stop_reason or retried.problem or ""
    text = f"a worker with the agent `{retried.agent}` runs the turn again; it had ended: {why}"
    sys.stdout.write(f"{msgspec.json.encode(retried).decode() if as_json else visible_line(text)}\n")
