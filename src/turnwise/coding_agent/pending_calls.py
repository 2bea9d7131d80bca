"""Calls that were left for later: which they are, and what the command line says to them."""

import re
from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path

import msgspec

from turnwise.agent.formatting import many
from turnwise.coding_agent.asked_calls import confusables_in, decoded_texts
from turnwise.coding_agent.text import visible_line
from turnwise.errors import CallerError
from turnwise.journal.journal import Journal, Session
from turnwise.journal.session_folding import session_so_far
from turnwise.rules.history import waiting_calls
from turnwise.turn.approvals import MARK_LENGTH, Approval, OneAsk, mark_of
from turnwise.vocab import ToolCall

ALL = "all"
_MARKED = re.compile(rf"(.+)@([0-9a-f]{{{MARK_LENGTH}}})", re.DOTALL)


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
    names = ", ".join([f"{visible_line(call.name)} ({visible_line(call.id)})" for call in calls])
    one = len(calls) == 1
    said = f"{many(len(calls), 'call')} waited for {'an answer' if one else 'answers'}"
    return (
        f"{said}; the session goes on with your prompt, so {'it is' if one else 'they are'} not run: {names}"
        if calls
        else ""
    )


def decide(
    asks: Sequence[OneAsk], *, approve: Sequence[str], deny: Sequence[str], show: Callable[[str], object]
) -> tuple[Approval, ...]:
    """One approval for each ask that `--approve` and `--deny` name, by its call's id or as `all`. What is allowed is named with
    the mark of what was shown: without it `show` is given the calls, line by line, and nothing is allowed. Raises CallerError for
    that, for what waits for nothing, or was answered twice."""
    known = {ask.call.id: ask for ask in asks}
    if not known:
        raise CallerError("nothing of this session waits for an approval; leave --approve and --deny out")
    marks = dict([marked(one, known=known) for one in approve])
    approve = list(marks)
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
    check_shown([ask for ask in asks if ask.kind == "approval"], allowed=allowed, marks=marks, show=show)
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


def marked(given: str, *, known: Collection[str]) -> tuple[str, str]:
    """The id that a value of `--approve` or `--reply` is for, or `all`, and the mark behind it; empty where there is none."""
    found = None if given in known else _MARKED.fullmatch(given)
    return (given, "") if found is None else (found[1], found[2])


def check_shown(
    asks: Sequence[OneAsk],
    *,
    allowed: Collection[str],
    marks: Mapping[str, str],
    show: Callable[[str], object],
    option: str = "--approve",
) -> None:
    """Show what is allowed or replied to without having been shown, and raise CallerError."""
    if ALL in marks and marks[ALL] == mark_of(asks):
        return
    unseen = [ask for ask in asks if ask.call.id in allowed and marks.get(ask.call.id) != mark_of([ask])]
    if not unseen:
        return
    for ask in unseen:
        confusables = confusables_in([ask.call.name, *decoded_texts(ask.arguments)], folder=Path.cwd)
        line = (
            f"{visible_line(ask.call.id)}@{mark_of([ask])}  {visible_line(ask.call.name)} {visible_line(ask.arguments)}"
        )
        for shown in (confusables.mark(line), *confusables.lines):
            show(shown)
    changed = "changed since it was shown" if any(marks.values()) else "has to be shown first"
    how = f"`{option} {ALL}@{mark_of(asks)}`" if ALL in marks else f"`{option}` with the id and the mark behind it"
    what = "nothing was allowed: what would run" if option == "--approve" else "nothing was answered: the question"
    raise CallerError(f"{what} {changed}; it stands above, and {how} is taken")
