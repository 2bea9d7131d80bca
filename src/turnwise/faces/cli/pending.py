"""Calls that were left for later: which they are, and what the command line says to them."""

from collections.abc import Sequence

from turnwise.drivers.journal import Journal, Session
from turnwise.errors import CallerError
from turnwise.turn.approvals import Approval, OneAsk
from turnwise.turn.snapshot import fold_session

ALL = "all"


def pending_asks(journal: Journal, session: Session) -> tuple[OneAsk, ...]:
    """What the session's last turn left to be decided; () where it waits for nothing of that kind."""
    if not session.turns or session.turns[-1].status != "waiting":
        return ()
    return fold_session([journal.events(turn.id) for turn in session.turns]).asks


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
            for id, ask in known.items()
            if id in allowed | denied
        ]
    )


def _named(ids: Sequence[str], *, known: dict[str, OneAsk], option: str) -> set[str]:
    if ALL in ids:
        return set(known)
    if strange := [id for id in ids if id not in known]:
        raise CallerError(f"{option} `{strange[0]}`: no such call waits; there are {', '.join(known)}, or `all`")
    return set(ids)
