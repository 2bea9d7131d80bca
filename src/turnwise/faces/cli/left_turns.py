"""A turn that a dead process has left, as the command line goes on with it: where it works, what is said of it, what it asks."""

from collections.abc import Sequence
from pathlib import Path

import msgspec

from turnwise.drivers.clock import Clock
from turnwise.drivers.journal.journal import Journal, Session, SessionRow
from turnwise.drivers.running.resumption import STUCK, LeftTurn, left_turn
from turnwise.drivers.settings.options import RunSettings
from turnwise.errors import CallerError
from turnwise.faces.cli.options import Given
from turnwise.faces.cli.spending import is_same_model
from turnwise.faces.cli.text import clean
from turnwise.faces.cli.workplace import Workplace, furnish
from turnwise.faces.saying import many
from turnwise.faces.taking_up import LeftRun, left_run
from turnwise.turn.approvals import OneAsk
from turnwise.turn.commands import Ask, RunScript, RunTools, SendRequest
from turnwise.turn.config import TurnConfig
from turnwise.vocab import ToolCall


class FolderGone(CallerError):
    """The folder that a turn worked in is not there any more."""


def find_left(journal: Journal, session: Session) -> LeftRun:
    """The turn to go on with. Raises CallerError where there is none, or the session is a sub-agent's."""
    if (parent := journal.parent_of(session.row.id)) is not None:
        raise CallerError(
            f"session `{session.row.id}` is a sub-agent's, and goes on with the turn that started it: `turnwise resume {parent}`"
        )
    return left_run(journal, session)


def furnish_left(found: LeftRun, *, given: Given, journal: Journal, clock: Clock) -> Workplace:
    """What the turn goes on with: its own model, limits, rules and folder. Of the options that were `given` hold those that no
    journal has. Raises CallerError."""
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
        "allow": (),
    }
    schema = None if config.output is None else msgspec.json.decode(config.output.schema)
    attended = config.policy is not None and config.policy.attended
    return furnish(options, journal=journal, clock=clock, attended=attended, output_type=schema, left=config)


def folder_of(config: TurnConfig, *, row: SessionRow) -> Path:
    """Where the turn worked. Raises FolderGone."""
    workspace = "" if config.policy is None else config.policy.workspace
    folder = Path(workspace or row.folder)
    if not folder.is_dir():
        raise FolderGone(f"the folder of session `{row.id}` is gone: `{folder}`")
    return folder


def left_line(found: LeftRun) -> str:
    """What it goes on with, and what became of the calls and the request that were under way."""
    left, requests = found.left, len(found.ledger.entries)
    if left.is_stuck:
        return f"the interrupted turn is ended: {STUCK}"
    said = [f"going on with the interrupted turn after {many(requests, 'request')}", *_under_way(left)]
    return "; ".join(said)


def _under_way(left: LeftTurn) -> list[str]:
    match left.turn.at_hand:
        case SendRequest() if left.was_sent:
            return ["1 request was lost (it may be billed) and is sent anew"]
        case RunTools(calls=planned):
            return _calls_said([one.call for one in planned], left=left)
        case RunScript():
            return ["its program runs again, with the results that its calls had"]
        case Ask(asks=asks):
            return [f"{many(len(asks), 'call')} {'waits' if len(asks) == 1 else 'wait'} for an answer: {_names(asks)}"]
        case _:
            return []


def _calls_said(calls: Sequence[ToolCall], *, left: LeftTurn) -> list[str]:
    again = {offer.spec.name for offer in left.config.tools if offer.idempotent or offer.child}
    open = [call for call in calls if call.id not in left.ended]
    unknown = [call for call in open if call.id in left.begun and call.name not in again]
    repeated = [call for call in open if call.id in left.begun and call.name in again]
    planned = [call for call in open if call.id not in left.begun]
    groups = [
        ("had ended", [call for call in calls if call.id in left.ended]),
        ("may have run", unknown),
        ("went on or can run again", repeated),
        ("had not begun and runs now" if len(planned) == 1 else "had not begun and run now", planned),
    ]
    return [f"{many(len(some), 'call')} {what}: {_call_names(some)}" for what, some in groups if some]


def _names(asks: Sequence[OneAsk]) -> str:
    return _call_names([ask.call for ask in asks])


def _call_names(calls: Sequence[ToolCall]) -> str:
    return ", ".join([f"{clean(call.name)} ({clean(call.id)})" for call in calls])


def open_asks(journal: Journal, found: LeftRun) -> tuple[OneAsk, ...]:
    """What a person had been asked and had not answered: by the turn, and by sub-agents that it waits for."""
    return _open_asks(journal, turn_id=found.turn_id, left=found.left)


def _open_asks(journal: Journal, *, turn_id: str, left: LeftTurn) -> tuple[OneAsk, ...]:
    if isinstance(command := left.turn.at_hand, Ask):
        return command.asks
    asks: tuple[OneAsk, ...] = ()
    for call_id, child in journal.children(turn_id):
        last = child.turns[-1]
        if last.status == "lost" and call_id in left.begun - left.ended:
            own = left_turn(journal.entries(last.id), earlier=())
            asks += _open_asks(journal, turn_id=last.id, left=own)
    return asks
