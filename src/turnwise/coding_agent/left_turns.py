"""How the command line resumes a turn that a dead process left: where it works, what is said about it, what it asks."""

import math
from collections.abc import Iterator, Sequence
from pathlib import Path

import msgspec

from turnwise.agent.formatting import many
from turnwise.agent.resume_lookup import LeftRun, goes_on, left_run
from turnwise.base.clock import Clock
from turnwise.coding_agent.asked_calls import call_names
from turnwise.coding_agent.modes import SessionMode
from turnwise.coding_agent.options import Given
from turnwise.coding_agent.permissions import allowed_rules, is_same_model
from turnwise.coding_agent.run_servers import NO_SERVERS, RunServers, servers_in
from turnwise.coding_agent.text import short_id
from turnwise.coding_agent.workplace import FaceTerms, Workplace, furnish
from turnwise.errors import CallerError
from turnwise.journal.journal import Journal, Session, SessionRow
from turnwise.running.resumption import STUCK, LeftTurn, left_turn
from turnwise.settings.options import RunSettings
from turnwise.turn.config import OneAsk, ResumeTerms, TurnConfig
from turnwise.turn.events import Ask, RunScript, RunTools, SendRequest
from turnwise.vocab import ToolCall
from turnwise.vocab.file_names import given_name, unmarked


class FolderGone(CallerError):
    """The folder that a turn worked in is not there any more."""


def find_left(journal: Journal, session: Session) -> LeftRun:
    """The turn to go on with. Raises CallerError where there is none, or the session is a sub-agent's."""
    if (parent := journal.parent_of(session.row.id)) is not None:
        raise CallerError(
            f"session `{session.row.id}` is a sub-agent's, and goes on with the turn that started it: `turnwise resume {parent}`"
        )
    return left_run(journal, session)


def furnish_left(
    found: LeftRun,
    *,
    given: Given,
    journal: Journal,
    clock: Clock,
    servers: RunServers = NO_SERVERS,
    mode: SessionMode | None = None,
) -> Workplace:
    """What the resumed turn works with: its own model, limits, rules and folder. Of the `given` options, only those apply that no
    journal holds; `--allow` and `--ask-timeout` are its terms from now on. `mode` is that of a session at a face; the turn's own
    mode holds where it is tighter. Raises CallerError."""
    config = found.left.config
    own = is_same_model(given["model"], last=config)
    options: Given = {
        **given,
        "model": None,
        "base_url": given["base_url"] if own else None,
        "api_key_env": given["api_key_env"] if own else None,
        "settings": RunSettings(),
        "cwd": folder_of(config, row=found.session.row),
        "go_on": False,
        "session": found.session.row.id,
        "system": None,
    }
    rules = tuple([rule for text in given["allow"] for rule in allowed_rules(text)])
    found.left.terms = ResumeTerms(ask_s=given["ask_timeout"], rules=rules)
    schema = None if config.output is None else msgspec.json.decode(config.output.schema)
    attended = config.policy is not None and config.policy.attended
    known = msgspec.structs.replace(config, policy=found.left.turn.known.config.policy)
    return furnish(
        options,
        journal=journal,
        clock=clock,
        attended=attended,
        output_type=schema,
        left=known,
        servers=servers_in(folder_of(config, row=found.session.row), servers=servers),
        face=FaceTerms(mode=mode),
    )


def folder_of(config: TurnConfig, *, row: SessionRow) -> Path:
    """Where the turn worked. Raises FolderGone."""
    workspace = "" if config.policy is None else config.policy.workspace
    folder = Path(unmarked(workspace) or given_name(row.folder))
    if not folder.is_dir():
        raise FolderGone(f"the folder of session `{row.id}` is gone: `{folder}`")
    return folder


def left_line(found: LeftRun, *, journal: Journal, now_s: float) -> str:
    """What the resumed turn starts from, and what became of the open calls and the open request."""
    left, requests = found.left, len(found.ledger.entries)
    if left.is_stuck:
        return f"the interrupted turn is ended: {STUCK}"
    said = [f"going on with the interrupted turn after {many(requests, 'request')}", *_under_way(left, now_s=now_s)]
    if below := _perhaps_below(journal, turn_id=found.turn_id, left=left):
        said.append(f"{many(len(below), 'call')} of sub-agents may have run: {call_names(below)}")
    said += found.ledger.notes
    return "; ".join(said)


def _under_way(left: LeftTurn, *, now_s: float) -> list[str]:
    match left.turn.at_hand:
        case SendRequest() if left.was_sent:
            return ["1 request was lost (it may be billed) and is sent anew"]
        case RunTools(calls=planned):
            return _calls_said([one.call for one in planned], left=left)
        case RunScript():
            return ["its program runs again, with the results that its calls had"]
        case Ask() as ask:
            return _asks_said(left, left_s=left.ask_s(ask, now_s=now_s))
        case _:
            return []


def _asks_said(left: LeftTurn, *, left_s: float) -> list[str]:
    asks, answered = left.open_asks, len(left.answers)
    before = [f"{many(answered, 'call')} had an answer"] if answered else []
    if not asks:
        return before
    names, one = call_names([ask.call for ask in asks]), len(asks) == 1
    if left_s > 0.0:
        waits = f"{many(len(asks), 'call')} {'waits' if one else 'wait'} for an answer ({math.ceil(left_s)} s left)"
        return [*before, f"{waits}: {names}"]
    default = "the model decides" if all(ask.kind == "question" for ask in asks) else "denied"
    default += " unless --allow says otherwise" if left.terms.rules else ""
    return [
        *before,
        f"{many(len(asks), 'call')} waited for an answer, and the time for it is over ({default}): {names}",
    ]


def _calls_said(calls: Sequence[ToolCall], *, left: LeftTurn) -> list[str]:
    open = [call for call in calls if call.id not in left.ended]
    unknown = _perhaps(calls, left=left)
    repeated = [call for call in open if call.id in left.begun and call not in unknown]
    planned = [call for call in open if call.id not in left.begun]
    groups = [
        ("had ended", [call for call in calls if call.id in left.ended]),
        ("may have run", unknown),
        ("went on or can run again", repeated),
        ("had not begun and runs now" if len(planned) == 1 else "had not begun and run now", planned),
    ]
    return [f"{many(len(some), 'call')} {what}: {call_names(some)}" for what, some in groups if some]


def _perhaps_below(journal: Journal, *, turn_id: str, left: LeftTurn) -> list[ToolCall]:
    """The calls of sub-agents at work that had started and that nobody can tell of, at any depth."""
    found: list[ToolCall] = []
    for turn, own in _left_below(journal, turn_id=turn_id, left=left):
        if isinstance(command := own.turn.at_hand, RunTools):
            found += _perhaps([one.call for one in command.calls], left=own)
        found += _perhaps_below(journal, turn_id=turn, left=own)
    return found


def _left_below(journal: Journal, *, turn_id: str, left: LeftTurn) -> Iterator[tuple[str, LeftTurn]]:
    """The turns of sub-agents that the turn waits for, and that were left with it."""
    for call_id, child in journal.children(turn_id):
        last = child.turns[-1]
        if last.status == "lost" and call_id in left.begun - left.ended:
            yield last.id, left_turn(journal.entries(last.id), earlier=())


def _perhaps(calls: Sequence[ToolCall], *, left: LeftTurn) -> list[ToolCall]:
    again = {offer.spec.name for offer in left.config.tools if offer.idempotent or offer.child}
    return [call for call in calls if call.id in left.begun - left.ended and call.name not in again]


def open_asks(journal: Journal, *, turn_id: str, left: LeftTurn) -> tuple[OneAsk, ...]:
    """What a person had been asked and had not answered: by the turn, and by sub-agents that it waits for."""
    if isinstance(left.turn.at_hand, Ask):
        return left.open_asks
    asks: tuple[OneAsk, ...] = ()
    for turn, own in _left_below(journal, turn_id=turn_id, left=left):
        asks += open_asks(journal, turn_id=turn, left=own)
    return asks


# Sessions whose last turn was left by a process that died: which there are, and how they go on.


MOST_SESSIONS = 100_000  # more than a journal holds


def interrupted_rows(journal: Journal) -> list[SessionRow]:
    """The oldest first; those of sub-agents go on with their parents."""
    return [row for row in reversed(journal.sessions(limit=MOST_SESSIONS)) if goes_on(row)]


def how_they_go_on(rows: Sequence[SessionRow]) -> str:
    """A line for at least one of them."""
    if len(rows) == 1:
        return f"1 session was interrupted: `turnwise resume {short_id(rows[0].id)}` goes on with it"
    many_were = f"{many(len(rows), 'session')} were interrupted"
    return f"{many_were}: `turnwise resume ID` goes on with one of them, `turnwise resume --all` with all"
