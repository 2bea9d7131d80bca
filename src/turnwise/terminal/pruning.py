"""`turnwise sessions prune`: old sessions are shown, and deleted once you say so. Their bill stays."""

import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Literal

import msgspec

from turnwise.agent.formatting import many
from turnwise.agent.resume_lookup import goes_on
from turnwise.base.clock import SystemClock
from turnwise.base.threads import run_to_end
from turnwise.coding_agent.asked_calls import is_attended
from turnwise.coding_agent.left_turns import MOST_SESSIONS
from turnwise.coding_agent.text import clean, short_id, shortened, style, visible_line
from turnwise.coding_agent.times import when_said
from turnwise.errors import CallerError
from turnwise.journal.journal import Journal, journal_path
from turnwise.journal.session_rows import Deleted, KeptSession
from turnwise.settings.settings import KeepRule, read_keep_rule, read_layers, read_span
from turnwise.terminal.exit_codes import CANCELLED
from turnwise.terminal.failures import FAILED, USAGE, complain
from turnwise.terminal.rows import say
from turnwise.terminal.terminal import Terminal

StaysFor = Literal["running", "interrupted", "waiting"]
STATES: dict[StaysFor, str] = {
    "running": "running",
    "interrupted": "interrupted",
    "waiting": "waiting for an answer",
}
GO_ON: dict[StaysFor, str] = {
    "running": "",
    "interrupted": ": `turnwise resume {}` goes on with it",
    "waiting": ": `turnwise run --session {} --approve all` shows it and how to allow it, or --deny",
}
NEEDS_YES = "nothing was deleted, as nobody can be asked here: add --yes"
NO_RULE = (
    "say what goes: --older-than 90d, --keep 100, or both; or write `[sessions]` with `older_than` or `keep` into your "
    "turnwise.toml"
)


class OldSessions(msgspec.Struct, frozen=True, kw_only=True):
    """The sessions that go, and those that are old and stay all the same, each with why."""

    go: list[KeptSession]
    stay: list[tuple[KeptSession, StaysFor]]


def prune(*, older_than: str | None, keep: int | None, unfinished: bool, yes: bool, as_json: bool) -> int:
    """The exit code. Raises CallerError."""
    try:
        given = KeepRule(older_than_s=None if older_than is None else read_span(older_than), keep=keep)
    except ValueError as error:
        raise CallerError(f"--older-than: {error}") from None
    rule = read_keep_rule(read_layers(Path.cwd(), env=os.environ)) if given == KeepRule() else given
    if rule == KeepRule():
        raise CallerError(NO_RULE)
    clock = SystemClock()
    with Journal(journal_path(os.environ), clock=clock) as journal:
        open_ends = unfinished_sessions(journal)
        old = choose_old(
            journal.retention.sessions(), rule=rule, now_s=clock.now(), kept={} if unfinished else open_ends
        )
        shown = _lines_of(old, open_ends=open_ends, now_s=clock.now(), whole=bool(old.go) and not yes)
        if not as_json or (old.go and not yes):
            for line in shown:
                say(line)
        if old.go and not yes and (code := _not_agreed(old, shown=shown, as_json=as_json)):
            return code
        deleted = journal.retention.delete(old.go)
    return _tell(old, deleted, as_json=as_json)


def unfinished_sessions(journal: Journal) -> dict[str, StaysFor]:
    """Those whose last turn can go on, by their ids: it was interrupted, or its calls wait for an answer."""
    rows = journal.sessions(limit=MOST_SESSIONS)
    waiting: dict[str, StaysFor] = {row.id: "waiting" for row in rows if row.status in ("waiting", "queued")}
    return {**waiting, **{row.id: "interrupted" for row in rows if goes_on(row)}}


def choose_old(
    sessions: Sequence[KeptSession], *, rule: KeepRule, now_s: float, kept: Mapping[str, StaysFor] | None = None
) -> OldSessions:
    """`sessions` are in order, the latest first; `kept` are those that stay unless somebody wants them gone."""
    behind = sessions[rule.keep :] if rule.keep is not None else sessions
    old = [one for one in behind if rule.older_than_s is None or one.updated < now_s - rule.older_than_s]
    stays: dict[str, StaysFor] = {**(kept or {}), **{one.id: "running" for one in old if one.is_running}}
    return OldSessions(
        go=[one for one in old if one.id not in stays], stay=[(one, stays[one.id]) for one in old if one.id in stays]
    )


def _not_agreed(old: OldSessions, *, shown: Sequence[str], as_json: bool) -> int:
    """The exit code, where nobody can be asked or the answer is no; else 0."""
    if not is_attended():
        if not as_json:
            raise CallerError(NEEDS_YES)
        complain(NEEDS_YES)
        _write_json(old, gone=(), error=NEEDS_YES, exit_code=USAGE)
        return USAGE
    question = f"delete {many(len(old.go), 'session')} for good? [y/N] "
    if not run_to_end(Terminal().says_yes(lambda: question, shown=shown)):
        say("nothing was deleted")
        if as_json:
            _write_json(old, gone=(), exit_code=CANCELLED)
        return CANCELLED
    return 0


def _tell(old: OldSessions, deleted: Deleted, *, as_json: bool) -> int:
    """What is gone, and the exit code. Raises JournalFailed where nothing could be deleted."""
    gone, failed = deleted.gone, deleted.failed
    left = len(old.go) - len(gone)
    if failed is not None and not gone:
        raise failed
    if failed is not None:
        complain(f"{failed}; {many(left, 'session')} not deleted" if left else str(failed))
    if as_json:
        more: dict[str, object] = {} if failed is None else {"error": str(failed), "exit_code": FAILED}
        _write_json(old, gone=gone, **more)
    elif old.go:
        why = f"; {many(left, 'session')} stayed, used in the meantime" if left and failed is None else ""
        say(f"deleted {many(len(gone), 'session')}; `turnwise usage` counts them as before{why}", stream=sys.stdout)
    return 0 if failed is None else FAILED


def _lines_of(old: OldSessions, *, open_ends: Mapping[str, StaysFor], now_s: float, whole: bool) -> list[str]:
    """With `whole` titles where somebody is asked."""
    lines: list[str] = []
    for one in old.go:
        below = f", {many(one.subagents, 'sub-agent')}" if one.subagents else ""
        state = f"{style(STATES[open_ends[one.id]], 'bold', stream=sys.stderr)}  " if one.id in open_ends else ""
        title = shortened(one.title, limit=len(clean(one.title)) if whole else 60)
        lines.append(
            f"{style(short_id(one.id), 'bold', stream=sys.stderr)}  {when_said(one.updated, now_s=now_s)}  "
            f"{many(one.turns, 'turn')}{below}  {state}{title}  {visible_line(one.folder)}"
        )
    for one, why in old.stay:
        lines.append(f"{short_id(one.id)} is {STATES[why]}, and stays{GO_ON[why].format(short_id(one.id))}")
    if any(why != "running" for _, why in old.stay):
        lines.append("--unfinished deletes those that are interrupted or wait, too")
    if not old.go:
        lines.append("nothing to delete" if old.stay else "no session is that old: nothing to delete")
    return lines


def _write_json(old: OldSessions, *, gone: Sequence[KeptSession], **more: object) -> None:
    stayed = [{"id": one.id, "why": why} for one, why in old.stay]
    told = {"sessions": old.go, "deleted": [one.id for one in gone], "stayed": stayed, **more}
    sys.stdout.buffer.write(msgspec.json.encode(told) + b"\n")
