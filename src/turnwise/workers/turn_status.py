"""How a turn that was submitted stands, and what it waits for."""

from collections.abc import Sequence
from typing import Annotated, Any

import msgspec

from turnwise.errors import CallerError, TurnRefused
from turnwise.journal.session_rows import NO_LABELS, Labels
from turnwise.settings.options import RunSettings, rows_of_limits
from turnwise.turn.config import Effect
from turnwise.workers.open_asks import ShownAsk, read_answers, read_asked, shown_asks, shown_below


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


ENDED = "ended"
STATES = ("queued", "running", "waiting", ENDED)  # by which turns are chosen


class TurnFilter(msgspec.Struct, frozen=True, kw_only=True):
    """Turns of that agent, in that state, and of sessions with these labels; "" and no labels: all of them."""

    state: str = ""
    agent: str = ""
    labels: Labels = NO_LABELS


ALL_TURNS = TurnFilter()


FAILURES = ("provider_failed", "given_up", "tool_failed")  # stop reasons after which a turn can run again


class RetriedTurn(msgspec.Struct, frozen=True, kw_only=True):
    """A failed turn that runs again, and how it had ended: `stop_reason`, or else the `problem`."""

    session: str
    agent: str
    stop_reason: str | None
    problem: str | None


class OpenTurns(msgspec.Struct, frozen=True):
    """How many turns of an agent are in a state. `oldest_s`: the seconds since the oldest of them was submitted."""

    agent: str
    state: str
    turns: int
    oldest_s: float


class RunningWorker(msgspec.Struct, frozen=True):
    """A worker with a lease, and the sessions whose turns it runs."""

    name: str
    agents: tuple[str, ...]
    offers: tuple[str, ...]
    sessions: tuple[str, ...]


class QueueTotals(msgspec.Struct, frozen=True, kw_only=True):
    """The turns that have not ended, and the workers.

    `depth` is, by agent, how many sessions a worker serves or could serve now: as many turns can run at once. A session runs one
    turn at a time, and none while it waits for a person. It is what an autoscaler compares with the workers' concurrency.
    """

    turns: tuple[OpenTurns, ...]
    depth: dict[str, int]
    workers: tuple[RunningWorker, ...]


def totals_of(turns: Sequence[Sequence[Any]], *, workers: Sequence[Sequence[Any]]) -> QueueTotals:
    """The totals in these rows. As in `status_of`, a row may hold anything."""
    return QueueTotals(
        turns=tuple(
            [
                OpenTurns(_shown(agent), _shown(state), count, oldest_s)
                for agent, state, count, oldest_s, _ in turns
                if state is not None
            ]
        ),
        depth={_shown(agent): depth for agent, state, _, _, depth in turns if state is None},
        workers=tuple(
            [RunningWorker(_shown(name), *[tuple(map(_shown, one)) for one in more]) for name, *more in workers]
        ),
    )


def retried_turn(row: Sequence[Any] | None, *, session: str) -> RetriedTurn:
    """Raises CallerError, with the reason, if the turn of this row (`LAST_BEGUN`) cannot run again."""
    if row is None:
        raise CallerError(f"no turn of a session `{session}` has ended")
    _, status, stop_reason, problem, agent, is_queued = row
    has_failed = (status == "done" and stop_reason in FAILURES) or (status == "lost" and problem is not None)
    if agent is None or not has_failed:
        said = "was not submitted" if agent is None else f"has not failed (`{_shown(stop_reason or status)}`)"
        raise CallerError(f"the last turn of session `{session}` {said}: submit a new turn")
    if is_queued:
        raise CallerError(f"the failed turn of session `{session}` waits already to run again")
    return RetriedTurn(
        session=session, agent=_shown(agent), stop_reason=_shown_or_none(stop_reason), problem=_shown_or_none(problem)
    )


A_PERSON = "a person's answer"
A_PERSON_BELOW = "a person's answer to a sub-agent"
LATEST_S = 200_000_000_000.0  # in the year 8307: later ones cannot be shown in every time zone
TOO_OFTEN = 2_000_000_000  # claims: no worker takes such a turn (`statements.py`)


def status_of(row: Sequence[Any]) -> TurnStatus:
    """The turn in this row. A row may hold anything, because others can write there: an unreadable row is shown as unreadable,
    and hides no other turn."""
    try:
        return _read(row)
    except (ValueError, TypeError, OverflowError) as error:
        return TurnStatus(
            session=_shown(row[0]),
            status=_shown(row[1]),
            agent=_shown(row[2]),
            priority=0,
            needs=(),
            worker="",
            created=0.0,
            finished=None,
            stop_reason=None,
            complete=None,
            cancel=False,
            problem=f"its row cannot be read ({type(error).__name__})",
            waits_for="",
        )


def _shown(text: Any) -> str:
    """Without halves of surrogate pairs, which no output can write."""
    return str(text).encode(errors="replace").decode()


def _shown_or_none(text: Any) -> str | None:
    return None if text is None else _shown(text)


def _read(row: Sequence[Any]) -> TurnStatus:
    session, status, agent, priority, needs, owner, created, finished, stop_reason, complete, cancel, problem, *more = (
        row
    )
    now_s, wake_at, asks, answers, refusal, epoch, *why = more
    agent, needs = _shown(agent), [_shown(need) for need in needs]
    shown: tuple[ShownAsk, ...] = ()
    if status == "waiting":
        shown = shown_asks(read_asked(asks), answers=read_answers(answers), until=wake_at)
    elif status == "running":
        shown = shown_below(read_asked(asks).open_below(now_s=now_s), answers=read_answers(answers))
    shown = tuple([one if _is_time(one.until) else msgspec.structs.replace(one, until=None) for one in shown])
    return TurnStatus(
        session=_shown(session),
        status=_shown(status),
        agent=agent,
        priority=priority,
        needs=tuple(needs),
        worker=_shown(owner) if status == "running" else "",
        created=created,
        finished=finished,
        stop_reason=_shown_or_none(stop_reason),
        complete=None if complete is None else bool(complete),
        cancel=cancel,
        problem=_shown_or_none(problem),
        waits_for=_waits_for(
            status,
            agent=agent,
            needs=needs,
            refusal=_shown(refusal or ""),
            asks=any(not ask.answer for ask in shown),
            is_worn_out=epoch >= TOO_OFTEN,
            why=why,
        ),
        asks=shown,
        asks_folder=shown[0].folder if shown else "",
        asks_until=shown[0].until if shown else None,
    )


def _is_time(at_s: float | None) -> bool:
    """Whether a clock can show it."""
    return at_s is not None and 0 <= at_s <= LATEST_S


def _waits_for(
    status: str,
    *,
    agent: str,
    needs: Sequence[str],
    refusal: str,
    asks: bool,
    is_worn_out: bool,
    why: Sequence[bool],
) -> str:
    has_lapsed, is_behind, is_asked, has_agent, has_worker = why
    if status == "waiting" and not has_lapsed:
        return A_PERSON if asks else "results of calls that run elsewhere, which no worker can be given"
    if status != "queued" and not has_lapsed:
        return A_PERSON_BELOW if asks else ""
    if is_worn_out:
        return f"nothing: no worker takes a turn that was claimed {TOO_OFTEN:,} times; cancel it, and submit it again"
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


# What a submitted turn may have at most: a column of its row, as text. A worker's agent has the last word.


WishedName = Annotated[str, msgspec.Meta(max_length=500)]
WishedText = Annotated[str, msgspec.Meta(max_length=1_000_000)]


class TurnWishes(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """Limits, and the effects of tools that may run, only narrow what the agent has. A worker says which models it allows beside
    the agent's own, and whether it takes instructions. "" and None: nothing is said."""

    model: WishedName = ""
    instructions: WishedText = ""
    effects: tuple[Effect, ...] | None = None
    most: RunSettings = RunSettings()  # of it the limits, and the steps


NO_WISHES = TurnWishes()


def write_wishes(wishes: TurnWishes) -> str:
    """All in one object. Each limit stands under the name of its option."""
    said = msgspec.to_builtins(wishes)
    return msgspec.json.encode({**said.pop("most", {}), **said}).decode()


def read_wishes(text: str) -> TurnWishes:
    """Raises TurnRefused where the text is nothing that this version knows: what it cannot read it must not leave out."""
    if not text:
        return NO_WISHES
    try:
        said = msgspec.json.decode(text, type=dict[str, Any])
        most = {row.name: said.pop(row.name) for row in rows_of_limits() if row.name in said}
        if "most" in said:
            raise msgspec.ValidationError("`most` is no limit")
        found = msgspec.convert({**said, "most": most}, type=TurnWishes)
    except (msgspec.DecodeError, UnicodeError, RecursionError) as error:
        raise TurnRefused(
            f"what the turn may have at most cannot be read: {error}; a newer turnwise may know it"
        ) from None
    usd = found.most.max_cost
    if usd is not None and not (usd.is_finite() and usd > 0):
        raise TurnRefused("what the turn may have at most cannot be read: `max_cost` is no amount of money")
    return found
