"""The clients of a gateway as several processes share them: keys, users and teams with their terms, and what was done to them.

All of it is rows of one table, each with a kind, a name and JSON. A row of the kind `change` is never written again. Every
change counts up the row `version` in its transaction, so a gateway sees by one small row whether its copy is the latest.
"""

import hashlib
import re
import secrets
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from decimal import Decimal
from typing import Literal, get_args

import msgspec
from msgspec import UNSET, UnsetType

from turnwise.errors import CallerError, JournalFailed
from turnwise.journal.ledger_queries import Total, sum_of_totals
from turnwise.journal.stores import JournalConnection, JournalStore

OwnerKind = Literal["key", "user", "team"]
Period = Literal["minute", "day", "week", "month"]
PERIODS: tuple[Period, ...] = get_args(Period)
COUNTED = ("requests", "tokens", "usd")
STREAMS = "streams"
LIMITS = (*[f"{what}/{period}" for period in PERIODS for what in COUNTED], STREAMS)
MOST_LIMIT = Decimal(10**15)

PREFIX = "tw-"
RANDOM_BYTES = 32
NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}", re.ASCII)
# Also of providers: people write one where a name belongs.
_KEY = re.compile(r"(?:\b(?:tw|sk|xai)-|\bgsk_|\bAIza)[A-Za-z0-9_-]{24,}", re.ASCII)
_RATE = re.compile(r"refuse|\d{1,6}(?:\.\d{1,6})?/\d{1,6}(?:\.\d{1,6})?", re.ASCII)


class OwnerTerms(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What a key, a user or a team may do.

    - `limits` by name: `usd/month`, `tokens/minute`, `requests/day`, `streams` (requests at once). None of a name: no limit.
    - `zone`: where days, weeks and months begin.
    - `models`: patterns of the models that may be named; none: every model.
    - `expires`: from then on nothing is let in (UTC, seconds since 1970).
    - `unknown_price`: `refuse` what has no price while money is limited, or count it at dollars per million tokens, `IN/OUT`.
    """

    limits: dict[str, Decimal] = {}
    zone: str = "UTC"
    models: tuple[str, ...] = ()
    expires: float | None = None
    unknown_price: str = "refuse"


class GatewayOwner(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A key, a user or a team. `sha256`, `user`, `team` and `rights` are of keys: `rights` is empty, `metrics` or `admin`.
    A revoked key stays, so that nobody else gets its name and its spending."""

    name: str
    terms: OwnerTerms = OwnerTerms()
    sha256: str = ""
    user: str = ""
    team: str = ""
    rights: str = ""
    added: float = 0.0
    revoked: float | None = None


class Actor(msgspec.Struct, frozen=True, kw_only=True):
    """Who changes something, and from where."""

    who: str
    place: str


class AuditRow(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What was done, or tried. `changes` are the fields that differ, each with its value before and after; never a secret."""

    at: float
    who: str
    place: str
    action: str
    kind: str
    name: str
    changes: dict[str, tuple[str, str]] = {}
    refused: str = ""


class OwnerSet(msgspec.Struct, frozen=True, kw_only=True):
    """All owners as they stood at `version`. `version` 0: nobody has ever made a key."""

    version: int = 0
    keys: Mapping[str, GatewayOwner] = {}
    users: Mapping[str, GatewayOwner] = {}
    teams: Mapping[str, GatewayOwner] = {}

    def of(self, kind: OwnerKind) -> Mapping[str, GatewayOwner]:
        return {"key": self.keys, "user": self.users, "team": self.teams}[kind]


def digest_of(key: str) -> str:
    return hashlib.sha256(key.encode(errors="surrogatepass")).hexdigest()


def new_key() -> str:
    return PREFIX + secrets.token_urlsafe(RANDOM_BYTES)


def without_keys(text: str) -> str:
    """The text without what looks like a key."""
    return _KEY.sub("(a key)", text)


def check_name(name: str, *, of: str) -> None:
    """Raises CallerError."""
    if not NAME.fullmatch(name):
        raise CallerError(
            f"`{name}` is no name of a {of}: 1 to 64 letters, digits, `.`, `_` and `-`, a letter or digit first"
        )


def check_terms(terms: OwnerTerms) -> None:
    """Raises CallerError for terms that cannot hold."""
    for name, amount in terms.limits.items():
        if name not in LIMITS:
            raise CallerError(f"there is no limit `{name}`: give one of {', '.join(LIMITS)}")
        is_whole = name.startswith("usd/") or amount == amount.to_integral_value()
        if not amount.is_finite() or amount < 0 or amount > MOST_LIMIT or not is_whole:
            raise CallerError(f"`{name}` cannot be {amount}: give a number from 0 on, and a whole one of all but `usd`")
    if not _RATE.fullmatch(terms.unknown_price):
        raise CallerError(
            "the rule for unknown prices is `refuse`, or dollars per million tokens of prompt and answer, `3/15`"
        )
    if terms.zone != "UTC":
        from zoneinfo import ZoneInfo  # loaded only where a zone is named

        try:
            ZoneInfo(terms.zone)
        except (ValueError, OSError):  # ZoneInfoNotFoundError is a KeyError
            _refuse_zone(terms.zone)
        except KeyError:
            _refuse_zone(terms.zone)


def _refuse_zone(zone: str) -> None:
    raise CallerError(f"`{zone}` is no time zone that this machine knows: give one such as `Europe/Berlin`")


class GatewayBook:
    """Reads and writes the owners of one journal. What fails raises JournalFailed; what cannot be done, CallerError, and then it
    stands in the audit log as refused."""

    def __init__(self, store: JournalStore, *, now: Callable[[], float]) -> None:
        self._store, self._now = store, now

    @property
    def store(self) -> JournalStore:
        return self._store

    # -- reading

    def version(self) -> int:
        return int(self._body("version", "") or 0)

    def owners(self) -> OwnerSet:
        """All owners; the version is read first, so a change in between is seen by the next look."""
        version = self.version()
        with self._store.statement() as connection:
            rows = connection.execute(
                "select kind, name, body from gateway where kind in ('key', 'user', 'team') order by kind, name"
            ).fetchall()
        found: dict[str, dict[str, GatewayOwner]] = {"key": {}, "user": {}, "team": {}}
        for kind, name, body in rows:
            found[kind][name] = _owner_in(body, kind=kind, name=name)
        return OwnerSet(version=version, keys=found["key"], users=found["user"], teams=found["team"])

    def last_used(self) -> dict[str, float]:
        """When each key was used last, by its name."""
        with self._store.statement() as connection:
            rows = connection.execute("select name, body from gateway where kind = 'used'").fetchall()
        return {name: float(body) for name, body in rows}

    def audit(self, *, last: int = 1000) -> list[AuditRow]:
        """The latest rows, oldest first."""
        with self._store.statement() as connection:
            rows = connection.execute(
                "select body from gateway where kind = 'change' order by name desc limit ?", (last,)
            ).fetchall()
        return [msgspec.json.decode(body, type=AuditRow) for (body,) in reversed(rows)]

    # -- changing

    def add_key(
        self, owner: GatewayOwner, *, by: Actor, change: Callable[[GatewayOwner], GatewayOwner] = lambda owner: owner
    ) -> str:
        """The new key, which is stored nowhere, of the owner after `change`."""
        key = new_key()
        now = self._now()

        def add(connection: JournalConnection, before: GatewayOwner | None) -> GatewayOwner:
            check_name(owner.name, of="key")
            added = msgspec.structs.replace(change(owner), sha256=digest_of(key), added=now)
            if before is not None and before.sha256 != added.sha256:  # else an attempt of before stands
                raise CallerError(
                    f"there is a key `{owner.name}` already, or was: choose another name, or give it a new key with "
                    f"`turnwise gateway keys rotate {owner.name}`"
                )
            return added

        self._change("key", owner.name, add, action="add", by=by)
        return key

    def rotate_key(self, name: str, *, by: Actor, moved: GatewayOwner | None = None) -> str:
        """A new key with the old one's terms; the old one opens nothing from now on. A revoked key opens again. `moved` is a
        key of the file that becomes one of these."""
        key = new_key()

        def rotate(_: JournalConnection, before: GatewayOwner | None) -> GatewayOwner:
            known = before or moved
            if known is None:
                raise CallerError(f"there is no key `{name}`: `turnwise gateway keys list` shows the names")
            return msgspec.structs.replace(known, sha256=digest_of(key), revoked=None)

        self._change("key", name, rotate, action="rotate", by=by)
        return key

    def revoke_key(self, name: str, *, by: Actor) -> None:
        """From now on the key opens nothing. Raises CallerError if there is no such key."""
        now = self._now()

        def revoke(_: JournalConnection, before: GatewayOwner | None) -> GatewayOwner:
            if before is None or before.revoked not in (None, now):
                raise CallerError(f"there is no key `{name}`: `turnwise gateway keys list` shows the names")
            return msgspec.structs.replace(before, revoked=now)

        self._change("key", name, revoke, action="revoke", by=by)

    def set_owner(
        self,
        kind: OwnerKind,
        name: str,
        change: Callable[[GatewayOwner], GatewayOwner],
        *,
        by: Actor,
        moved: GatewayOwner | None = None,
    ) -> GatewayOwner:
        """The owner after `change`. A user or team that is not there is made; a key is not, unless it is `moved` here."""

        def changed(_: JournalConnection, before: GatewayOwner | None) -> GatewayOwner:
            check_name(name, of=kind)
            known = before or moved
            if known is None:
                if kind == "key":
                    raise CallerError(f"there is no key `{name}`: `turnwise gateway keys list` shows the names")
                known = GatewayOwner(name=name, added=self._now())
            return change(known)

        return self._change(kind, name, changed, action="set", by=by)

    def note_refused(self, action: str, *, kind: str, name: str, why: str, by: Actor) -> None:
        """A try that was refused before it got here: by somebody without the right."""
        row = AuditRow(at=self._now(), who=by.who, place=by.place, action=action, kind=kind, name=name, refused=why)
        self._store.attempt(lambda connection: _note(connection, row, self._store.dialect.locked))

    def note_used(self, used: Mapping[str, float]) -> None:
        """Keys that were used, by name."""

        def note(connection: JournalConnection) -> None:
            for name, at in sorted(used.items()):
                _put(connection, "used", name, str(at))

        self._store.attempt(note)

    def _change(
        self,
        kind: OwnerKind,
        name: str,
        work: Callable[[JournalConnection, GatewayOwner | None], GatewayOwner],
        *,
        action: str,
        by: Actor,
    ) -> GatewayOwner:
        locked = self._store.dialect.locked

        def attempted(connection: JournalConnection) -> GatewayOwner:
            self._store.check_version(connection)
            _hold_version(connection, locked)
            body = _read(connection, kind, name)
            before = None if body is None else _owner_in(body, kind=kind, name=name)
            after = work(connection, before)
            if after == before:
                return after
            check_terms(after.terms)
            row = AuditRow(
                at=self._now(),
                who=by.who,
                place=by.place,
                action=action,
                kind=kind,
                name=name,
                changes=_changes(before, after),
            )
            _put(connection, kind, name, msgspec.json.encode(after).decode())
            _note(connection, row, locked)
            return after

        try:
            return self._store.attempt(attempted)
        except CallerError as error:
            if not isinstance(error, JournalFailed):
                self.note_refused(action, kind=kind, name=name[:64], why=str(error), by=by)
            raise

    def _body(self, kind: str, name: str) -> str | None:
        with self._store.statement() as connection:
            return _read(connection, kind, name)

    # -- the processes that serve

    def beat(self, holder: str, beats: int) -> None:
        """The gateway lives."""
        self._store.attempt(lambda connection: _put(connection, "process", holder, str(beats)))

    def beats(self) -> dict[str, str]:
        with self._store.statement() as connection:
            return dict(connection.execute("select name, body from gateway where kind = 'process'").fetchall())

    def forget_process(self, holder: str) -> None:
        self._store.execute_all([("delete from gateway where kind = 'process' and name = ?", (holder,))])


def _read(connection: JournalConnection, kind: str, name: str) -> str | None:
    row = connection.execute("select body from gateway where kind = ? and name = ?", (kind, name)).fetchone()
    return None if row is None else row[0]


def _put(connection: JournalConnection, kind: str, name: str, body: str) -> None:
    connection.execute(
        "insert into gateway (kind, name, body) values (?, ?, ?) on conflict (kind, name) do update set body = excluded.body",
        (kind, name, body),
    )


def _hold_version(connection: JournalConnection, locked: str) -> int:
    """Who changes something waits here for who does so, too."""
    connection.execute("insert into gateway (kind, name, body) values ('version', '', '0') on conflict do nothing")
    (body,) = connection.execute(f"select body from gateway where kind = 'version' and name = ''{locked}").fetchone()
    return int(body)


def _note(connection: JournalConnection, row: AuditRow, locked: str) -> None:
    """Append to the audit log: the number of the row is the version that it makes."""
    number = _hold_version(connection, locked) + 1
    connection.execute("update gateway set body = ? where kind = 'version' and name = ''", (str(number),))
    connection.execute(
        "insert into gateway (kind, name, body) values ('change', ?, ?)",
        (f"{number:012}", without_keys(msgspec.json.encode(row).decode())),
    )


SECRET_FIELDS = frozenset({"sha256"})


def shown_fields(owner: GatewayOwner | None) -> dict[str, str]:
    """Its fields as text, the limits one by one; those that say nothing are left out."""
    if owner is None:
        return {}
    terms = owner.terms
    told = {
        "sha256": owner.sha256,
        "user": owner.user,
        "team": owner.team,
        "rights": owner.rights,
        "revoked": _time_said(owner.revoked),
        "models": " ".join(terms.models),
        "expires": _time_said(terms.expires),
        "zone": terms.zone if terms.zone != "UTC" else "",
        "unknown_price": terms.unknown_price if terms.unknown_price != "refuse" else "",
        **{name: str(amount) for name, amount in terms.limits.items()},
    }
    return {name: value for name, value in told.items() if value}


def _time_said(at: float | None) -> str:
    return "" if at is None else datetime.fromtimestamp(at, UTC).isoformat(timespec="seconds").replace("+00:00", "Z")


def _changes(before: GatewayOwner | None, after: GatewayOwner) -> dict[str, tuple[str, str]]:
    old, new = shown_fields(before), shown_fields(after)
    found: dict[str, tuple[str, str]] = {}
    for name in dict.fromkeys([*old, *new]):
        was, now = old.get(name, ""), new.get(name, "")
        if was != now:
            found[name] = ("(a key)" if was else "", "(a new key)") if name in SECRET_FIELDS else (was, now)
    return found


def _owner_in(body: str, *, kind: str, name: str) -> GatewayOwner:
    try:
        return msgspec.json.decode(body, type=GatewayOwner)
    except msgspec.DecodeError as error:
        raise JournalFailed(
            f"the {kind} `{name}` cannot be read from the journal ({error}): it is damaged, or from a newer turnwise"
        ) from None


class OwnerChange(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What a person or a program wants changed; what is not named stays. A limit of None is taken away; `expires` is a time
    (`2026-12-31T18:00:00Z`), None: never."""

    user: str | UnsetType = UNSET
    team: str | UnsetType = UNSET
    rights: Literal["", "metrics", "admin"] | UnsetType = UNSET
    models: tuple[str, ...] | UnsetType = UNSET
    limits: dict[str, Decimal | None] = {}
    zone: str | UnsetType = UNSET
    unknown_price: str | UnsetType = UNSET
    expires: datetime | UnsetType | None = UNSET

    def over(self, owner: GatewayOwner) -> GatewayOwner:
        """Raises CallerError."""
        terms = owner.terms
        limits = {name: amount for name, amount in terms.limits.items() if name not in self.limits}
        limits |= {name: amount for name, amount in self.limits.items() if amount is not None}
        if unknown := [name for name in self.limits if name not in LIMITS]:
            raise CallerError(f"there is no limit `{unknown[0]}`: give one of {', '.join(LIMITS)}")
        for kind, name in (("user", self.user), ("team", self.team)):
            if name and name is not UNSET:
                check_name(name, of=kind)
        if isinstance(self.expires, datetime):
            if self.expires.tzinfo is None:
                raise CallerError("`expires` needs a zone: `2026-12-31T18:00:00Z`")
            ends: float | None = self.expires.timestamp()
        else:
            ends = terms.expires if self.expires is UNSET else None
        own = {name: told for name in ("user", "team", "rights") if (told := getattr(self, name)) is not UNSET}
        named = ("models", "zone", "unknown_price")
        changed = {name: told for name in named if (told := getattr(self, name)) is not UNSET}
        terms = msgspec.structs.replace(terms, limits=limits, expires=ends, **changed)
        return msgspec.structs.replace(owner, terms=terms, **own)


class OwnerShown(msgspec.Struct, frozen=True, kw_only=True):
    """An owner as lists show it: times are UTC (`2026-12-31T18:00:00Z`), amounts texts; "" and null say nothing."""

    name: str
    added: str
    user: str = ""
    team: str = ""
    admin: bool = False
    rights: str = ""
    models: tuple[str, ...] = ()
    limits: dict[str, str] = {}
    zone: str = "UTC"
    unknown_price: str = "refuse"
    expires: str = ""
    revoked: str = ""
    last_used: str = ""
    in_file: bool = False


def by_owner(totals: Sequence[Total], owners: OwnerSet, *, kind: OwnerKind) -> list[Total]:
    """Sums of sessions of the gateway by whose keys they were; "" for keys that have no user or team, and for no key."""
    found: dict[str, list[Total]] = {}
    for total in totals:
        name = total.key.partition(":")[2]
        key = owners.keys.get(name)
        owner = {"key": name, "user": key.user if key else "", "team": key.team if key else ""}[kind]
        found.setdefault(owner, []).append(total)
    sums = [(name, sum_of_totals(rows)) for name, rows in sorted(found.items())]
    return [msgspec.structs.replace(total, key=name) for name, total in sums if total is not None]


def shown_owner(owner: GatewayOwner, *, last_used: float | None = None, in_file: bool = False) -> OwnerShown:
    terms = owner.terms
    return OwnerShown(
        name=owner.name,
        added=_time_said(owner.added),
        user=owner.user,
        team=owner.team,
        admin=owner.rights in ("metrics", "admin") if in_file else owner.rights == "admin",
        rights=owner.rights,
        models=terms.models,
        limits={name: str(amount) for name, amount in sorted(terms.limits.items())},
        zone=terms.zone,
        unknown_price=terms.unknown_price,
        expires=_time_said(terms.expires),
        revoked=_time_said(owner.revoked),
        last_used=_time_said(last_used),
        in_file=in_file,
    )
