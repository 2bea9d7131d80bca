"""`turnwise answer`: answer what a turn asks that a worker runs."""

import sys
from collections.abc import Sequence
from functools import partial

import click
import msgspec

from turnwise.agent.formatting import many
from turnwise.base.clock import SystemClock
from turnwise.coding_agent.pending_calls import ALL, check_shown, decide, marked
from turnwise.terminal.databases import database_option, open_queue
from turnwise.terminal.failures import Failure, as_one_line
from turnwise.terminal.last_line import EndsWithLine
from turnwise.terminal.rows import say
from turnwise.turn.approvals import Approval, OneAsk

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
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
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
    """One approval for each ask that is named. Raises CallerError where one is named twice, or is of another kind."""
    known = {ask.call.id for ask in asks}
    questions = {ask.call.id: ask for ask in asks if ask.kind == "question"}
    replies = [(*marked(id, known=known), text) for id, text in reply]
    replied = {id for id, _, _ in replies}
    approved = {marked(one, known=known)[0] for one in approve}
    if strange := [id for id, _, _ in replies if id not in questions]:
        raise Failure(f"--reply `{strange[0]}`: no such question waits" + _there(questions))
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


def _there(questions: dict[str, OneAsk]) -> str:
    return f"; there are {', '.join(questions)}" if questions else ""
