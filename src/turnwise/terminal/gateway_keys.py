"""`turnwise gateway keys`, `teams`, `users` and `audit`: who may use the gateway, and how much."""

import os
import re
import sys
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from decimal import Decimal, InvalidOperation
from typing import TYPE_CHECKING, Any

import click
import msgspec

from turnwise.coding_agent.text import clean_line, style
from turnwise.errors import CallerError
from turnwise.terminal.command_options import json_option
from turnwise.terminal.failures import as_one_line
from turnwise.terminal.last_line import EndsWithLine
from turnwise.terminal.rows import say

if TYPE_CHECKING:
    from turnwise.journal.gateway_rows import (
        Actor,
        GatewayBook,
        GatewayOwner,
        OwnerChange,
        OwnerKind,
        OwnerSet,
        OwnerShown,
    )
    from turnwise.journal.journal import Journal
    from turnwise.journal.ledger_queries import Total

KEYS_EPILOG = """\b
Examples:
  turnwise gateway keys add laptop
  turnwise gateway keys add ann-laptop --user ann --team web --expires 90d
  turnwise gateway keys add ci --limit requests/minute=60 --limit usd/month=50 --model 'gpt-*'
  turnwise gateway keys add --metrics prometheus
  turnwise gateway keys set ci --limit usd/month=80 --limit requests/minute=none
  turnwise gateway keys list --json
  turnwise gateway keys rotate ci
  turnwise gateway keys revoke laptop

A change counts within a second, also in running gateways. The journal keeps keys as hashes. Once there was a key, every client
needs one. Keys of the older gateway-keys.json still work; `set` and `rotate` move one into the journal."""

SET_EPILOG = """\b
Limits (--limit NAME=NUMBER, or NAME=none):
  requests/PERIOD  requests to providers, retries and continuations included
  tokens/PERIOD    tokens of prompts and answers
  usd/PERIOD       US dollars
  streams          requests at once
PERIOD is minute, day, week or month. A request needs room for the most that it may cost before it leaves."""

OWNERS_EPILOG = """\b
Examples:
  turnwise gateway {group} set {name} --limit usd/month=500 --limit tokens/minute=2000000
  turnwise gateway {group} set {name} --limit usd/month=none
  turnwise gateway {group} list --json

What a {kind} may do bounds all of its keys together; `keys add --{kind} {name}` says whose a key is."""

AUDIT_EPILOG = """\b
Examples:
  turnwise gateway audit
  turnwise gateway audit --last 20 --json

Nothing changes a row of this log. It holds no key."""

VARIABLE = "TURNWISE_GATEWAY_DATABASE"
database_option = click.option(
    "--database",
    metavar="DSN",
    envvar=VARIABLE,
    help="Keys, budgets and ledger in this database: `postgresql://USER@HOST/DATABASE`. "
    f"[default: {VARIABLE}, else the journal of this user]",
)
OWNERS_OF_KEYS: "tuple[OwnerKind, ...]" = ("team", "user")
AHEAD = re.compile(r"(\d{1,5})([hdw])", re.ASCII)
HOURS = {"h": 1, "d": 24, "w": 168}


@contextmanager
def _book(database: str | None) -> Generator["GatewayBook"]:
    """The owners in the user's journal, or in a database. Raises CallerError."""
    from turnwise.journal.journal import Journal, journal_path
    from turnwise.terminal.databases import checked_dsn

    with Journal(journal_path(os.environ) if database is None else checked_dsn(database)) as journal:
        yield journal.gateway


@contextmanager
def _book_to_read(database: str | None) -> Generator["GatewayBook | None"]:
    """The same, without a change to a file; None if there is no journal yet."""
    with _journal_to_read(database) as journal:
        yield None if journal is None else journal.gateway


@contextmanager
def _journal_to_read(database: str | None) -> "Generator[Journal | None]":
    from turnwise.base.clock import SystemClock
    from turnwise.journal.journal import Journal, journal_path
    from turnwise.terminal.databases import checked_dsn

    path = journal_path(os.environ)
    if database is not None:
        with Journal(checked_dsn(database)) as journal:
            yield journal
    elif path.exists():
        with Journal.open_to_read(path, clock=SystemClock()) as journal:
            yield journal
    else:
        yield None


def _now() -> float:
    from turnwise.base.clock import SystemClock

    return SystemClock().now()


def _actor() -> "Actor":
    """The user of this process, whatever variables such as `LOGNAME` say."""
    import getpass
    import socket

    from turnwise.journal.gateway_rows import Actor

    try:
        import pwd

        who = pwd.getpwuid(os.getuid()).pw_name
    except ImportError:  # no such table on this system
        who = getpass.getuser()
    except KeyError:
        who = f"user {os.getuid()}"
    return Actor(who=who, place=f"command line on {socket.gethostname()}")


def _limit(_: click.Context, __: click.Parameter, given: Sequence[str]) -> dict[str, Decimal | None]:
    found: dict[str, Decimal | None] = {}
    for text in given:
        name, _sign, number = text.partition("=")
        try:
            found[name.strip()] = None if number.strip() == "none" else Decimal(number.strip())
        except InvalidOperation:
            raise click.BadParameter(f"`{text}`: write NAME=NUMBER, `usd/month=50`, or NAME=none") from None
    return found


def _expires(_: click.Context, __: click.Parameter, text: str | None) -> object:
    if text is None:
        return msgspec.UNSET
    if text == "never":
        return None
    now = datetime.fromtimestamp(_now(), UTC)
    if ahead := AHEAD.fullmatch(text):
        return now + timedelta(hours=int(ahead[1]) * HOURS[ahead[2]])
    try:
        found = datetime.fromisoformat(text)
    except ValueError:
        raise click.BadParameter(
            f"`{text}` is no time: write a date (2026-12-31), a time (2026-12-31T18:00:00Z), a while (12h, 90d, 4w) or `never`"
        ) from None
    return found if found.tzinfo is not None else found.replace(tzinfo=UTC)


def _terms(command: Callable[..., Any]) -> Callable[..., Any]:
    """The options that keys, users and teams share."""
    for option in reversed(
        [
            click.option(
                "--limit",
                "limits",
                multiple=True,
                callback=_limit,
                metavar="NAME=NUMBER",
                help="A limit, see below. Repeatable; `none` removes it.",
            ),
            click.option(
                "--model",
                "models",
                multiple=True,
                metavar="PATTERN",
                help="A model that may be named: `gpt-*`. Repeatable; `*` allows all again. [default: all]",
            ),
            click.option(
                "--expires",
                callback=_expires,
                metavar="TIME",
                help="From then on it opens nothing: a date, a time, a while (90d), or `never`. [default: never]",
            ),
            click.option(
                "--zone", metavar="ZONE", help="Where days, weeks and months begin: `Europe/Berlin`. [default: UTC]"
            ),
            click.option(
                "--unknown-price",
                metavar="RULE",
                help="With a limit in dollars, what a model without a known price does: `refuse`, or count at dollars a million "
                "tokens of prompt and answer, `3/15`. [default: refuse]",
            ),
        ]
    ):
        command = option(command)
    return command


def _of_key(command: Callable[..., Any]) -> Callable[..., Any]:
    for option in reversed(
        [
            click.option("--user", metavar="NAME", help="Whose key it is."),
            click.option("--team", metavar="NAME", help="The team whose limits hold for it, too."),
            click.option("--metrics", "rights", flag_value="metrics", help="The key opens /metrics, too."),
            click.option(
                "--admin", "rights", flag_value="admin", help="The key opens /metrics and /admin, where keys are made."
            ),
            click.option("--no-rights", "rights", flag_value="none", help="The key opens neither of them. [default]"),
        ]
    ):
        command = option(command)
    return command


def change_of(
    *, limits: dict[str, Decimal | None], models: Sequence[str], rights: str | None = None, **told: object
) -> "OwnerChange":
    """What the options say."""
    from turnwise.journal.gateway_rows import OwnerChange

    fields = {name: value for name, value in told.items() if value is not None or name == "expires"}
    if models:
        fields["models"] = () if "*" in models else tuple(models)
    if rights is not None:
        fields["rights"] = "" if rights == "none" else rights
    return OwnerChange(limits=limits, **fields)  # pyright: ignore[reportArgumentType] (as the options are named)


def _in_file(name: str) -> "GatewayOwner | None":
    """A key of the older file, as the journal would have it."""
    from turnwise.gateway.client_bounds import key_file, read_keys
    from turnwise.journal.gateway_rows import GatewayOwner

    for key in read_keys(key_file(os.environ)) or ():
        if key.name == name:
            added = datetime.fromisoformat(key.added).replace(tzinfo=UTC).timestamp()
            return GatewayOwner(name=name, sha256=key.sha256, rights="metrics" if key.admin else "", added=added)
    return None


def _drop_from_file(name: str) -> None:
    from turnwise.gateway.client_bounds import key_file, revoke_key

    revoke_key(key_file(os.environ), name)


def _say_key(key: str, *, as_json: bool, name: str) -> None:
    if as_json:
        say(msgspec.json.encode({"name": name, "key": key}).decode(), stream=sys.stdout, as_it_is=True)
        return
    say(key, stream=sys.stdout, as_it_is=True)
    say("this key is shown only now; the gateway keeps its hash")


def _say_new_owners(owners: "OwnerSet", *, told: Mapping[str, object]) -> None:
    """A name that was mistyped would be free of the limits that were meant."""
    for kind in OWNERS_OF_KEYS:
        name, known = told[kind], owners.of(kind)
        if name and known and name not in known:
            say(
                f"no {kind} `{name}` was set, so it has no limits of its own: `turnwise gateway {kind}s list` shows the names"
            )


@click.group("keys", epilog=KEYS_EPILOG)
def keys_group() -> None:
    """Add, list, change, rotate and revoke the keys of clients."""


@keys_group.command("add", cls=EndsWithLine, epilog=SET_EPILOG)
@_of_key
@_terms
@database_option
@json_option("The name and the key as one JSON object.")
@click.argument("name")
def add(name: str, database: str | None, as_json: bool, **told: Any) -> None:
    """Make a key and print it, this once."""
    from turnwise.gateway.client_bounds import close_doors, key_file
    from turnwise.journal.gateway_rows import GatewayOwner

    with as_one_line():
        with _book(database) as book:
            if database is None and _in_file(name) is not None:
                why = f"there is a key `{name}` already: revoke it first, or choose another name"
                book.note_refused("add", kind="key", name=name, why=why, by=_actor())
                raise CallerError(why)
            key = book.add_key(GatewayOwner(name=name), by=_actor(), change=change_of(**told).over)
            _say_new_owners(book.owners(), told=told)
        if database is None:
            close_doors(key_file(os.environ))  # also if the journal is lost
    _say_key(key, as_json=as_json, name=name)


@keys_group.command("set", cls=EndsWithLine, epilog=SET_EPILOG)
@_of_key
@_terms
@database_option
@json_option("The key as it stands now, as one JSON object.")
@click.argument("name")
def set_key(name: str, database: str | None, as_json: bool, **told: Any) -> None:
    """Change what a key may do. What is not named stays."""
    from turnwise.journal.gateway_rows import shown_owner

    with as_one_line():
        moved = _in_file(name) if database is None else None
        with _book(database) as book:
            owner = book.set_owner("key", name, change_of(**told).over, by=_actor(), moved=moved)
            _say_new_owners(book.owners(), told=told)
        if moved is not None:
            _drop_from_file(name)
    _say_owner(shown_owner(owner), as_json=as_json)


@keys_group.command("rotate", cls=EndsWithLine)
@database_option
@json_option("The name and the key as one JSON object.")
@click.argument("name")
def rotate(name: str, database: str | None, as_json: bool) -> None:
    """Give a key's name and terms to a new key; the old one opens nothing from now on."""
    with as_one_line():
        moved = _in_file(name) if database is None else None
        with _book(database) as book:
            key = book.rotate_key(name, by=_actor(), moved=moved)
        if moved is not None:
            _drop_from_file(name)
    _say_key(key, as_json=as_json, name=name)


@keys_group.command("revoke")
@database_option
@click.argument("name")
def revoke(name: str, database: str | None) -> None:
    """Revoke a key. Its name stays taken, with what it has spent."""
    from turnwise.gateway.client_bounds import key_file

    with as_one_line():
        in_file = database is None and _in_file(name) is not None
        with _book(database) as book:
            if in_file:
                _drop_from_file(name)
            if not in_file or name in book.owners().keys:
                book.revoke_key(name, by=_actor())
        is_last = not [one for one in _keys(database) if not one.revoked]
    say(f"`{name}` is revoked")
    if is_last:
        say(f"no key is left, so no client is let in; add one (`{key_file(os.environ)}` keeps the doors closed)")


@keys_group.command("list", cls=EndsWithLine)
@click.option("--revoked", is_flag=True, help="Also those that were revoked.")
@database_option
@json_option("One JSON object a key, on one line each.")
def list_keys(revoked: bool, database: str | None, as_json: bool) -> None:
    """List names, owners, limits and last use. No key can be shown again."""
    with as_one_line():
        found = [one for one in _keys(database) if revoked or not one.revoked]
        if not found and not as_json:
            say("no keys: `turnwise gateway keys add NAME` makes one")
        _say_owners(found, as_json=as_json)


def _keys(database: str | None) -> "list[OwnerShown]":
    """Those of the file and of the journal, by name."""
    from turnwise.gateway.client_bounds import key_file, read_keys
    from turnwise.journal.gateway_rows import shown_owner

    found: list[OwnerShown] = []
    if database is None:
        for key in read_keys(key_file(os.environ)) or ():
            owner = _in_file(key.name)
            assert owner is not None, "it was read"
            found.append(shown_owner(owner, in_file=True))
    with _book_to_read(database) as book:
        if book is not None:
            used = book.last_used()
            found += [shown_owner(one, last_used=used.get(name)) for name, one in book.owners().keys.items()]
    return sorted(found, key=lambda one: one.name)


def _say_owners(found: "Sequence[OwnerShown]", *, as_json: bool) -> None:
    widest = max([len(one.name) for one in found], default=0)
    for one in found:
        _say_owner(one, as_json=as_json, widest=widest)


def _say_owner(one: "OwnerShown", *, as_json: bool, widest: int = 0) -> None:
    if as_json:
        say(msgspec.json.encode(one).decode(), stream=sys.stdout, as_it_is=True)
        return
    say("  ".join([style(one.name.ljust(widest), "bold"), one.added[:10], *_words_of(one)]), stream=sys.stdout)


def _words_of(one: "OwnerShown") -> Iterable[str]:
    told = {"user": one.user, "team": one.team, "expires": one.expires, "used": one.last_used, "revoked": one.revoked}
    yield from [one.rights] if one.rights else []
    yield from [f"{name} {value}" for name, value in told.items() if value]
    yield from [f"{name}={amount}" for name, amount in one.limits.items()]
    yield from [f"models {' '.join(one.models)}"] if one.models else []
    yield from [f"zone {one.zone}"] if one.zone != "UTC" else []
    yield from [f"unknown price {one.unknown_price}"] if one.unknown_price != "refuse" else []
    yield from ["(gateway-keys.json)"] if one.in_file else []


def _owners_group(kind: "OwnerKind", *, example: str) -> click.Group:
    """`teams` or `users`."""
    group = f"{kind}s"

    @click.group(
        group,
        epilog=OWNERS_EPILOG.format(group=group, kind=kind, name=example),
        help=f"Limit what {group} may use, and list them.",
    )
    def owners() -> None:
        pass

    @owners.command(
        "set",
        cls=EndsWithLine,
        epilog=SET_EPILOG,
        help=f"Make a {kind}, or change what it may do. What is not named stays.",
    )
    @_terms
    @database_option
    @json_option(f"The {kind} as it stands now, as one JSON object.")
    @click.argument("name")
    def set_owner(name: str, database: str | None, as_json: bool, **told: Any) -> None:
        from turnwise.journal.gateway_rows import shown_owner

        with as_one_line(), _book(database) as book:
            owner = book.set_owner(kind, name, change_of(**told).over, by=_actor())
        _say_owner(shown_owner(owner), as_json=as_json)

    @owners.command("list", cls=EndsWithLine, help=f"List {group} and their limits.")
    @database_option
    @json_option(f"One JSON object a {kind}, on one line each.")
    def list_owners(database: str | None, as_json: bool) -> None:
        from turnwise.journal.gateway_rows import shown_owner

        with as_one_line(), _book_to_read(database) as book:
            found = [] if book is None else [shown_owner(one) for one in book.owners().of(kind).values()]
        if not found and not as_json:
            say(f"no {group}: `turnwise gateway {group} set NAME` makes one")
        _say_owners(found, as_json=as_json)

    return owners


@click.command("audit", cls=EndsWithLine, epilog=AUDIT_EPILOG)
@click.option(
    "--last", type=click.IntRange(1, 100_000), default=1000, metavar="N", help="So many rows at most. [default: 1000]"
)
@database_option
@json_option("One JSON object a row, on one line each.")
def audit(last: int, database: str | None, as_json: bool) -> None:
    """Show who changed keys, teams and users, when and from where; refused tries, too."""
    with as_one_line(), _book_to_read(database) as book:
        for row in () if book is None else book.audit(last=last):
            if as_json:
                say(msgspec.json.encode(row).decode(), stream=sys.stdout, as_it_is=True)
                continue
            when = datetime.fromtimestamp(row.at, UTC).isoformat(timespec="seconds").replace("+00:00", "Z")
            changes = [f"{name}: {was or '-'} -> {now or '-'}" for name, (was, now) in row.changes.items()]
            said = [f"refused: {row.refused}"] if row.refused else changes
            line = f"{when}  {row.who}, {row.place}  {row.action} {row.kind} {row.name}  {'; '.join(said)}"
            say(line.rstrip(), stream=sys.stdout)


USAGE_BY = ("key", "user", "team", "model", "day")

USAGE_EPILOG = """\b
Examples:
  turnwise gateway usage
  turnwise gateway usage --by team --since 30d
  turnwise gateway usage --by day --since all --csv > usage.csv
  turnwise gateway usage --by key --json | jq '.rows[].cost'

Money is in US dollars, from the ledger. A key counts for the user and the team that it has now. No cell of the CSV runs in a
spreadsheet."""


@click.command("usage", cls=EndsWithLine, epilog=USAGE_EPILOG)
@click.option("--by", type=click.Choice(USAGE_BY), default="key", show_default=True, help="One line for each.")
@click.option(
    "--since",
    metavar="WHEN",
    help="A date (2026-11-01), a time ago (12h, 7d, 4w), or `all`. Default: today; 14d with --by day.",
)
@database_option
@json_option("Everything as one JSON object.")
@click.option("--csv", "as_csv", is_flag=True, help="The lines as CSV.")
def usage(by: str, since: str | None, database: str | None, as_json: bool, as_csv: bool) -> None:
    """Show what keys, users and teams have used."""
    from turnwise.agent.formatting import PRICE_WANTED
    from turnwise.terminal.usage import json_of, known, since_of, tokens_said, write_csv

    with as_one_line():
        if as_json and as_csv:
            raise CallerError("give either --json or --csv, not both")
        now = datetime.fromtimestamp(_now())
        began = since_of(since, by="day" if by == "day" else "model", has_session=False, now=now)
        with _journal_to_read(database) as journal:
            rows = [] if journal is None else usage_rows(journal, by=by, since=began)
        if as_csv:
            write_csv(rows, by=by, stream=sys.stdout)
            return
        if as_json:
            say(
                msgspec.json.encode(json_of({"since": began, "by": by, "rows": rows})).decode(),
                stream=sys.stdout,
                as_it_is=True,
            )
            return
        if not rows:
            say("no requests; `turnwise gateway usage --since all` shows all that there were")
        table = [(by, "requests", "usd", "tokens in", "out")]
        for row in rows:
            tokens = [tokens_said(one, row=row) for one in (row.input_tokens, row.output_tokens)]
            usd = known(row.cost) + "+" * row.cost.is_partial if known(row.cost) else "unknown"
            table.append((clean_line(row.key) or "-", f"{row.cost.requests:,}", usd, tokens[0], tokens[1]))
        widths = [max(map(len, column)) for column in zip(*table, strict=True)]
        for cells in table if rows else ():
            first, *others = [
                cell.ljust(widths[0]) if at == 0 else cell.rjust(widths[at]) for at, cell in enumerate(cells)
            ]
            say("  ".join([first, *others]), stream=sys.stdout)
        if any(row.cost.unknown for row in rows):
            say(f"+: at least so much. {PRICE_WANTED}")


def usage_rows(journal: "Journal", *, by: str, since: float) -> "list[Total]":
    """What the gateway's clients have used, one row for each."""
    from turnwise.journal.gateway_rows import by_owner
    from turnwise.journal.ledger_queries import LedgerSpan

    span = LedgerSpan(since=since, gateway=True)
    match by:
        case "day" | "model":
            return journal.ledger.totals(span, by=by)
        case "key" | "user" | "team":
            return by_owner(journal.ledger.totals(span, by="session"), journal.gateway.owners(), kind=by)
        case _:
            raise CallerError(f"usage is told by {', '.join(USAGE_BY)}")


def add_key_commands(gateway: click.Group) -> None:
    """Below `turnwise gateway`."""
    for command in (
        keys_group,
        _owners_group("team", example="web"),
        _owners_group("user", example="ann"),
        audit,
        usage,
    ):
        gateway.add_command(command)
