"""Calls that were left for later: which they are, and what the command line says to them."""

from collections.abc import Sequence

import msgspec

from turnwise.drivers.journal.folding import session_so_far
from turnwise.drivers.journal.journal import Journal, Session
from turnwise.errors import CallerError
from turnwise.faces.cli.text import clean
from turnwise.faces.saying import many
from turnwise.rules.history import waiting_calls
from turnwise.turn.approvals import Approval, OneAsk
from turnwise.vocab import ToolCall

ALL = "all"


class Pending(msgspec.Struct, frozen=True, kw_only=True):
    """What a session waits for: a person's answers, and `results` of client-side tools."""

    asks: tuple[OneAsk, ...] = ()
    results: tuple[ToolCall, ...] = ()


NOTHING = Pending()


def pending_of(journal: Journal, session: Session) -> Pending:
    """What the session's turns left open. A turn that was killed leaves open what it had not begun to answer."""
    if not session.turns or session.turns[-1].status not in ("waiting", "lost"):
        return NOTHING
    folded = session_so_far(journal, session.turns)
    asked = {ask.call.id for ask in folded.asks}
    calls = [call for call in waiting_calls(folded.messages) if call.id not in asked and not call.asked]
    return Pending(asks=folded.asks, results=tuple(calls))


def dropped_line(pending: Pending) -> str:
    """What is said where a prompt goes on without the answers that calls wait for; empty where none does."""
    calls = [*[ask.call for ask in pending.asks], *pending.results]
    names = ", ".join([f"{clean(call.name)} ({clean(call.id)})" for call in calls])
    one = len(calls) == 1
    said = f"{many(len(calls), 'call')} waited for {'an answer' if one else 'answers'}"
    return (
        f"{said}; the session goes on with your prompt, so {'it is' if one else 'they are'} not run: {names}"
        if calls
        else ""
    )


def decide(asks: Sequence[OneAsk], *, approve: Sequence[str], deny: Sequence[str]) -> tuple[Approval, ...]:
    """One approval for each ask that `--approve` and `--deny` name, by its call's id or as `all`. Raises CallerError for what
    waits for nothing, or was answered twice."""
    known = {ask.call.id: ask for ask in asks}
    if not known:
        raise CallerError("nothing of this session waits for an approval; leave --approve and --deny out")
    allowed, denied = _named(approve, known=known, option="--approve"), _named(deny, known=known, option="--deny")
    if ALL in approve:
        allowed -= denied
    elif ALL in deny:
        denied -= allowed
    if both := allowed & denied:
        raise CallerError(f"`{min(both)}` is approved and denied: say one of it")
    if questions := [id for id in allowed if known[id].kind == "question"]:
        raise CallerError(
            f"`{questions[0]}` is a question, which needs an answer: go on with the session at a terminal, or --deny it"
        )
    return tuple(
        [
            Approval(call_id=id, verdict="allow" if id in allowed else "deny", subject=ask.subject, digest=ask.digest)
            for ask in asks  # those of two sub-agents may have one id
            if (id := ask.call.id) in allowed | denied
        ]
    )


def _named(ids: Sequence[str], *, known: dict[str, OneAsk], option: str) -> set[str]:
    if ALL in ids:
        return set(known)
    if strange := [id for id in ids if id not in known]:
        raise CallerError(f"{option} `{strange[0]}`: no such call waits; there are {', '.join(known)}, or `all`")
    return set(ids)
