"""How a turn that was submitted stands, and what it waits for."""

from collections.abc import Sequence
from typing import Any

import msgspec

from turnwise.drivers.dispatch.open_asks import ShownAsk, read_answers, read_asked, shown_asks, shown_below


class TurnStatus(msgspec.Struct, frozen=True, kw_only=True):
    """One turn that was submitted. `waits_for` says what a turn waits for that does not run, or whose sub-agents ask; "" where
    it has ended. `asks` is what a person is asked, by a turn that waits or by the sub-agents of one that runs; the first of them
    is about a call that would run in `asks_folder`, and is denied from `asks_until` on."""

    session: str
    status: str
    agent: str
    priority: int
    needs: tuple[str, ...]
    worker: str
    created: float
    finished: float | None
    stop_reason: str | None
    complete: bool | None
    cancel: bool
    problem: str | None
    waits_for: str
    asks: tuple[ShownAsk, ...] = ()
    asks_folder: str = ""
    asks_until: float | None = None


def status_of(row: Sequence[Any]) -> TurnStatus:
    session, status, agent, priority, needs, owner, created, finished, stop_reason, complete, cancel, problem, *more = (
        row
    )
    now_s, wake_at, asks, answers, refusal, *why = more
    shown: tuple[ShownAsk, ...] = ()
    if status == "waiting":
        shown = shown_asks(read_asked(asks), answers=read_answers(answers), until=wake_at)
    elif status == "running":
        shown = shown_below(read_asked(asks).open_below(now_s=now_s), answers=read_answers(answers))
    return TurnStatus(
        session=session,
        status=status,
        agent=agent,
        priority=priority,
        needs=tuple(needs),
        worker=owner if status == "running" else "",
        created=created,
        finished=finished,
        stop_reason=stop_reason,
        complete=None if complete is None else bool(complete),
        cancel=cancel,
        problem=problem,
        waits_for=_waits_for(
            status,
            agent=agent,
            needs=needs,
            refusal=refusal or "",
            asks=any(not ask.answer for ask in shown),
            why=why,
        ),
        asks=shown,
        asks_folder=shown[0].folder if shown else "",
        asks_until=shown[0].until if shown else None,
    )


def _waits_for(status: str, *, agent: str, needs: Sequence[str], refusal: str, asks: bool, why: Sequence[bool]) -> str:
    has_lapsed, is_behind, is_asked, has_agent, has_worker = why
    if status == "waiting" and not has_lapsed:
        return "a person's answer" if asks else "results of calls that run elsewhere, which no worker can be given"
    if status != "queued" and not has_lapsed:
        return "a person's answer to a sub-agent" if asks else ""
    if status == "queued" and is_behind:
        return "the turn before it"
    if status == "queued" and is_asked:
        return "an answer to the turn before it"
    if refusal:
        return f"another worker: {refusal}"
    if not has_agent:
        return f"a worker with the agent `{agent}`"
    if not has_worker:
        return f"a worker with the agent `{agent}` that offers {', '.join([f'`{need}`' for need in needs])}"
    return "a free worker"
