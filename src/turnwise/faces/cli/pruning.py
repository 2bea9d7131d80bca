"""`turnwise sessions prune`: old sessions are shown, and deleted once you say so. Their bill stays."""

import os
import sys
from collections.abc import Sequence
from pathlib import Path

import msgspec

from turnwise.drivers.clock import SystemClock
from turnwise.drivers.journal.journal import Journal, journal_path
from turnwise.drivers.journal.retention import KeptSession
from turnwise.drivers.own_loop import run_to_end
from turnwise.drivers.settings.retention_files import KeepRule, read_keep_rule, read_span
from turnwise.drivers.settings.settings import read_layers
from turnwise.errors import CallerError
from turnwise.faces.cli.attendance import is_attended
from turnwise.faces.cli.failures import USAGE, complain
from turnwise.faces.cli.lines import say
from turnwise.faces.cli.main import CANCELLED
from turnwise.faces.cli.terminal import Terminal, says_yes
from turnwise.faces.cli.text import clean, short_id, shortened, style
from turnwise.faces.cli.times import when_said
from turnwise.faces.saying import many

SHOWN = 20
NEEDS_YES = "nothing was deleted, as nobody can be asked here: add --yes"
NO_RULE = (
    "say what goes: --older-than 90d, --keep 100, or both; or write `[sessions]` with `older_than` or `keep` into your "
    "turnwise.toml"
)


def prune(*, older_than: str | None, keep: int | None, yes: bool, as_json: bool) -> int:
    """The exit code. Raises CallerError."""
    try:
        given = KeepRule(older_than_s=None if older_than is None else read_span(older_than), keep=keep)
    except ValueError as error:
        raise CallerError(f"--older-than: {error}") from None
    rule = read_keep_rule(read_layers(Path.cwd(), env=os.environ)) if given == KeepRule() else given
    if rule == KeepRule():
        raise CallerError(NO_RULE)
    clock = SystemClock()
    with Journal.open(journal_path(os.environ), clock=clock) as journal:
        retention = journal.retention
        chosen, running = choose_old(retention.sessions(), rule=rule, now_s=clock.now())
        if not as_json or (chosen and not yes):
            _show(chosen, running=running, now_s=clock.now())
        if chosen and not yes:
            if not is_attended():
                if not as_json:
                    raise CallerError(NEEDS_YES)
                complain(NEEDS_YES)
                _write_json(chosen, gone=(), error=NEEDS_YES, exit_code=USAGE)
                return USAGE
            if not run_to_end(says_yes(Terminal(), lambda: f"delete {many(len(chosen), 'session')} for good? [y/N] ")):
                say("nothing was deleted")
                if as_json:
                    _write_json(chosen, gone=(), exit_code=CANCELLED)
                return CANCELLED
        gone = retention.delete(chosen)
    if as_json:
        _write_json(chosen, gone=gone)
    elif chosen:
        left = len(chosen) - len(gone)
        why = f"; {many(left, 'session')} stayed, used in the meantime" if left else ""
        say(f"deleted {many(len(gone), 'session')}; `turnwise usage` counts them as before{why}", stream=sys.stdout)
    return 0


def choose_old(
    sessions: Sequence[KeptSession], *, rule: KeepRule, now_s: float
) -> tuple[list[KeptSession], list[KeptSession]]:
    """Those that go, and those that would, but are running. `sessions` are in order, the latest first."""
    behind = sessions[rule.keep :] if rule.keep is not None else sessions
    old = [one for one in behind if rule.older_than_s is None or one.updated < now_s - rule.older_than_s]
    return [one for one in old if not one.is_running], [one for one in old if one.is_running]


def _show(chosen: Sequence[KeptSession], *, running: Sequence[KeptSession], now_s: float) -> None:
    for one in chosen[:SHOWN]:
        below = f", {many(one.subagents, 'sub-agent')}" if one.subagents else ""
        say(
            f"{style(short_id(one.id), 'bold', stream=sys.stderr)}  {when_said(one.updated, now_s=now_s)}  "
            f"{many(one.turns, 'turn')}{below}  {shortened(one.title, limit=60)}  {clean(one.folder)}"
        )
    if len(chosen) > SHOWN:
        say(f"and {many(len(chosen) - SHOWN, 'more session')}")
    for one in running:
        say(f"{short_id(one.id)} is running, and stays")
    if not chosen:
        say("no session is that old: nothing to delete")


def _write_json(chosen: Sequence[KeptSession], *, gone: Sequence[KeptSession], **more: object) -> None:
    told = {"sessions": chosen, "deleted": [one.id for one in gone], **more}
    sys.stdout.buffer.write(msgspec.json.encode(told) + b"\n")
