"""`turnwise sessions`: what was said and done, from the journal; `prune` deletes old sessions."""

import os
import sys
import textwrap
from collections import Counter
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Literal

import click
import msgspec

from turnwise.agent.formatting import many, purposes_said
from turnwise.agent.resume_lookup import goes_on, read_session
from turnwise.base.clock import SystemClock, TimeOrderedIds
from turnwise.base.threads import run_to_end
from turnwise.coding_agent.asked_calls import is_attended
from turnwise.coding_agent.last_exchange import when_said
from turnwise.coding_agent.left_turns import MOST_SESSIONS, how_they_go_on
from turnwise.coding_agent.text import clean, clean_answer, clean_line, short_id, shortened, style, visible_line
from turnwise.errors import CallerError
from turnwise.journal.journal import Journal, Session, SessionRow, journal_path
from turnwise.journal.read_only import replace_damaged
from turnwise.journal.session_rows import Deleted, KeptSession
from turnwise.settings.settings import KeepRule, read_keep_rule, read_layers, read_span
from turnwise.terminal.command_options import complete_sessions, json_option
from turnwise.terminal.databases import read_journal
from turnwise.terminal.exit_codes import CANCELLED
from turnwise.terminal.failures import FAILED, USAGE, as_one_line, complain, write_json
from turnwise.terminal.last_line import EndsWithLine
from turnwise.terminal.rows import say
from turnwise.terminal.screen import describe_call, describe_result
from turnwise.terminal.terminal import Terminal
from turnwise.vocab import File, Message, Reasoning, Refusal, Text, ToolCall, ToolResult

# `turnwise sessions prune`: old sessions are shown, and deleted if the person agrees. Their bill stays.


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
    """The sessions to delete, and the old sessions that stay, each with the reason."""

    go: list[KeptSession]
    stay: list[tuple[KeptSession, StaysFor]]


def prune(*, older_than: str | None, keep: int | None, unfinished: bool, yes: bool, as_json: bool) -> int:
    """Delete them; return the exit code. Raises CallerError."""
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
    """The sessions whose last turn can continue, by their ids: it was interrupted, or its calls wait for an answer."""
    rows = journal.sessions(limit=MOST_SESSIONS)
    waiting: dict[str, StaysFor] = {
        row.id: "waiting" for row in rows if row.status in ("waiting", "queued", "accepted")
    }
    return {**waiting, **{row.id: "interrupted" for row in rows if goes_on(row)}}


def choose_old(
    sessions: Sequence[KeptSession], *, rule: KeepRule, now_s: float, kept: Mapping[str, StaysFor] | None = None
) -> OldSessions:
    """`sessions` are in order, the latest first. `kept` are the sessions that stay unless the person wants them deleted."""
    behind = sessions[rule.keep :] if rule.keep is not None else sessions
    old = [one for one in behind if rule.older_than_s is None or one.updated < now_s - rule.older_than_s]
    stays: dict[str, StaysFor] = {**(kept or {}), **{one.id: "running" for one in old if one.is_running}}
    return OldSessions(
        go=[one for one in old if one.id not in stays], stay=[(one, stays[one.id]) for one in old if one.id in stays]
    )


def _not_agreed(old: OldSessions, *, shown: Sequence[str], as_json: bool) -> int:
    """The exit code if nobody can be asked or the answer is no; otherwise 0."""
    if not is_attended():
        if not as_json:
            raise CallerError(NEEDS_YES)
        complain(NEEDS_YES)
        _write_pruned(old, gone=(), error=NEEDS_YES, exit_code=USAGE)
        return USAGE
    question = f"delete {many(len(old.go), 'session')} for good? [y/N] "
    if not run_to_end(Terminal().says_yes(lambda: question, shown=shown)):
        say("nothing was deleted")
        if as_json:
            _write_pruned(old, gone=(), exit_code=CANCELLED)
        return CANCELLED
    return 0


def _tell(old: OldSessions, deleted: Deleted, *, as_json: bool) -> int:
    """Tell what is deleted; return the exit code. Raises JournalFailed if nothing could be deleted."""
    gone, failed = deleted.gone, deleted.failed
    left = len(old.go) - len(gone)
    if failed is not None and not gone:
        raise failed
    if failed is not None:
        complain(f"{failed}; {many(left, 'session')} not deleted" if left else str(failed))
    if as_json:
        more: dict[str, object] = {} if failed is None else {"error": str(failed), "exit_code": FAILED}
        _write_pruned(old, gone=gone, **more)
    elif old.go:
        why = f"; {many(left, 'session')} stayed, used in the meantime" if left and failed is None else ""
        say(f"deleted {many(len(gone), 'session')}; `turnwise usage` counts them as before{why}", stream=sys.stdout)
    return 0 if failed is None else FAILED


def _lines_of(old: OldSessions, *, open_ends: Mapping[str, StaysFor], now_s: float, whole: bool) -> list[str]:
    """The lines, with `whole` titles if somebody is asked."""
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


def _write_pruned(old: OldSessions, *, gone: Sequence[KeptSession], **more: object) -> None:
    stayed = [{"id": one.id, "why": why} for one, why in old.stay]
    told = {"sessions": old.go, "deleted": [one.id for one in gone], "stayed": stayed, **more}
    write_json(told)


SHOWN = 20  # sessions in the list, by default
MOST = 100_000

SESSIONS_EPILOG = """\b
Examples:
  turnwise sessions list
  turnwise sessions show 3f2a9c1e
  turnwise sessions show 3f2a9c1e --json | jq .
  turnwise run --session 3f2a9c1e "and then?"
  turnwise sessions rescue
  turnwise sessions fork 3f2a9c1e --turn 2 --step 3
  turnwise sessions prune --older-than 90d

An id may be given by its first or last letters. The journal is in TURNWISE_STATE_DIR, or in ~/.local/state/turnwise."""


@click.group(epilog=SESSIONS_EPILOG)
def sessions_command() -> None:
    """List, show, fork and delete the sessions kept so far."""


@sessions_command.command("list", cls=EndsWithLine)
@click.option(
    "-n",
    "--limit",
    type=click.IntRange(1, MOST),
    help=f"How many, latest first. Default: {SHOWN}, and all with --json.",
)
@json_option("One JSON object a session, on one line each.")
def list_sessions(limit: int | None, as_json: bool) -> None:
    """List sessions, the latest first."""
    with as_one_line():

        def read(journal: Journal) -> tuple[list[SessionRow], int]:
            return journal.sessions(limit=limit or (MOST if as_json else SHOWN)), journal.count_sessions()

        (rows, count), code = read_journal(read)
        if as_json:
            for row in rows:
                write_json(row)
            sys.exit(code)
        if not rows:
            say("no sessions yet: `turnwise run` makes one")
        widest = max([len(_state(row)) for row in rows], default=0)
        for row in rows:
            say(
                f"{style(short_id(row.id), 'bold')}  {_time(row.updated)}  {many(row.turns, 'turn'):<9} {_state(row):<{widest}}  "
                f"{shortened(row.title, limit=60)}  {style(visible_line(row.folder), 'dim')}",
                stream=sys.stdout,
            )
        if count > len(rows):
            click.echo(style(f"{len(rows)} of {many(count, 'session')}; --limit N shows more", "dim"))
        if left := [row for row in rows if goes_on(row)]:
            say(style(how_they_go_on(left), "dim"), stream=sys.stdout)
    sys.exit(code)


@sessions_command.command("show", cls=EndsWithLine)
@click.argument("session", shell_complete=complete_sessions)
@json_option("The session as one JSON object.")
def show_session(session: str, as_json: bool) -> None:
    """Show what was said and done in SESSION (an id, or its first or last letters)."""
    with as_one_line():
        (tree, is_left), code = read_journal(lambda journal: _read_shown(journal, session))
        if as_json:
            write_json(_json_of(tree))
        else:
            _show(tree)
            if is_left:
                say(style(how_they_go_on([tree.session.row]), "dim"), stream=sys.stdout)
    sys.exit(code)


@sessions_command.command("rescue", cls=EndsWithLine)
@json_option("What was done as one JSON object.")
def rescue_sessions(as_json: bool) -> None:
    """Copy what is readable in a damaged journal to a new file, and keep the damaged file beside it."""
    with as_one_line():
        path = journal_path(os.environ)
        rescued, kept = replace_damaged(path, clock=SystemClock())
        if as_json:
            write_json({"journal": str(path), "kept": str(kept), **msgspec.structs.asdict(rescued)})
            return
        say(f"{clean_line(str(path))} is new; {rescued.said()}", stream=sys.stdout)
        say(f"the damaged file is {clean_line(str(kept))}", stream=sys.stdout)


@sessions_command.command("fork", cls=EndsWithLine)
@click.argument("session", shell_complete=complete_sessions)
@click.option("--turn", type=click.IntRange(min=1), help="Begin after this turn; 1 is the first. Default: the last.")
@click.option("--step", type=click.IntRange(min=1), help="Begin after this step of the turn. Default: its end.")
@json_option("One JSON object: the new session, and where it begins.")
def fork_session(session: str, turn: int | None, step: int | None, as_json: bool) -> None:
    """Begin a new session from a step of SESSION. SESSION stays as it is.

    The new session's id goes to standard output. Nothing is sent and nothing costs anything until you continue it.
    """
    with as_one_line():
        from turnwise.replay.session_fork import fork

        clock = SystemClock()
        with Journal(journal_path(os.environ), clock=clock) as journal:
            found = journal.find_session_by_part(session)
            new = fork(journal, found, new_id=TimeOrderedIds(clock).new, turn=turn, step=step)
        if as_json:
            told = {"session": new.session, "of": found.row.id, "turn": new.turn, "step": new.step}
            write_json({**told, "folder": found.row.folder})
            return
        say(new.session, stream=sys.stdout)
        say(
            f"a new session with all up to step {new.step} of turn {new.turn} of {found.row.id[-8:]}, in"
            f" {visible_line(found.row.folder)}; "
            f'go on there with `turnwise run --session {new.session[-8:]} "..."`'
        )


@sessions_command.command("prune", cls=EndsWithLine)
@click.option("--older-than", metavar="TIME", help="Delete sessions that were not used for this time: 24h, 90d, 12w.")
@click.option("--keep", type=click.IntRange(min=0), metavar="N", help="Keep the N latest sessions in any case.")
@click.option("--unfinished", is_flag=True, help="Also delete sessions that were interrupted or wait for an answer.")
@click.option("-y", "--yes", is_flag=True, help="Do not ask. Needed where there is no terminal.")
@json_option("One JSON object: the sessions, and which were deleted.")
def prune_sessions(older_than: str | None, keep: int | None, unfinished: bool, yes: bool, as_json: bool) -> None:
    """Delete old sessions with their sub-agents. turnwise shows them first, and asks you.

    Running sessions stay, and so does every row of the bill. Sessions that were interrupted or wait for an answer stay unless
    you use --unfinished. Without options, `[sessions]` of your turnwise.toml decides.
    """
    with as_one_line():
        code = prune(older_than=older_than, keep=keep, unfinished=unfinished, yes=yes, as_json=as_json)
    sys.exit(code)


class _Tree(msgspec.Struct, frozen=True, kw_only=True):
    """A session with the sessions of its sub-agents, by the call that started each."""

    session: Session
    messages: Sequence[Message]
    requests: dict[str, dict[str, int]]  # turn -> purpose -> count
    children: dict[str, "_Tree"]


def _read_shown(journal: Journal, session: str) -> "tuple[_Tree, bool]":
    """The session, and whether its last turn was left and can be resumed."""
    found = journal.find_session_by_part(session)
    return _read_tree(journal, found), goes_on(found.row) and journal.parent_of(found.row.id) is None


def _read_tree(journal: Journal, session: Session) -> _Tree:
    return _Tree(
        session=session,
        messages=read_session(journal, session).messages,
        requests={turn.id: journal.requests_by_purpose(turn.id) for turn in session.turns},
        children={
            call_id: _read_tree(journal, child)
            for turn in session.turns
            for call_id, child in journal.children(turn.id)
        },
    )


def _json_of(tree: _Tree) -> dict[str, object]:
    turns = [{**msgspec.structs.asdict(turn), "requests": tree.requests[turn.id]} for turn in tree.session.turns]
    children = {call_id: _json_of(child) for call_id, child in tree.children.items()}
    return {"session": tree.session.row, "turns": turns, "messages": tree.messages, "children": children}


def _show(tree: _Tree, *, indent: str = "") -> None:
    row = tree.session.row
    requests = sum([Counter(each) for each in tree.requests.values()], Counter[str]())

    def echo(text: str, *, as_it_is: bool = False) -> None:
        indented = textwrap.indent(text, indent, lambda _: True) if indent else text
        say(indented, stream=sys.stdout, as_it_is=as_it_is)

    echo(style(f"session {visible_line(row.id)}", "bold"))
    echo(
        f"{visible_line(row.folder)}, {_time(row.created)} to {_time(row.updated)}, {many(row.turns, 'turn')}, {_state(row)}"
    )
    if requests:
        echo(f"{many(sum(requests.values()), 'request')}: {purposes_said(requests)}")
    for message in tree.messages:
        for part in message.parts:
            line = _line(message, part)
            if line:
                echo(line, as_it_is=isinstance(part, Text | Refusal))
            for child in _started_by(part, tree=tree):
                _show(child, indent=indent + "    ")


def _started_by(part: object, *, tree: _Tree) -> list[_Tree]:
    """The sub-agents of a call; those that a program started are under the program."""
    if not isinstance(part, ToolCall):
        return []
    return [
        child for call_id, child in tree.children.items() if call_id == part.id or call_id.startswith(f"{part.id}/")
    ]


def _line(message: Message, part: object) -> str:
    match part:
        case Text(note=note) if note:  # turnwise's own words; `--json` has them
            return ""
        case Text(text=text) | Refusal(text=text):
            return f"\n{style(message.role, 'cyan', 'bold')}\n{clean_answer(text)}" if text.strip() else ""
        case Reasoning(text=text):
            return style(f"  (reasoning: {shortened(text, limit=100)})", "dim") if text else ""
        case ToolCall():
            return f"  {style('→', 'cyan')} {describe_call(part)}"
        case ToolResult():
            mark = style("✗", "red") if part.is_error else style("✓", "green")
            return f"  {mark} {visible_line(part.name)}: {describe_result(part)}"
        case File():
            return f"  (file {visible_line(part.name or part.media_type)})"
        case _:
            return ""


def _state(row: SessionRow) -> str:
    if row.status == "lost":
        return "interrupted"
    if row.status is None or row.stop_reason is None:
        return row.status or "empty"
    return str(row.stop_reason) if row.complete else f"{row.stop_reason}, incomplete"


def _time(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).astimezone().strftime("%Y-%m-%d %H:%M")
