"""The ledger: one entry for each HTTP request that left, whatever became of it (promise bill:wire).

An entry is written before the first byte leaves and completed when the request has ended; it is struck out where no byte can
have left (no connection, cancelled before). An entry without an end is a request of unknown outcome: its process died, and
the provider may have billed it. Entries of a turn and of its sub-agents stand in one ledger, each with the path that leads
to it.
"""

from collections.abc import Callable, Mapping, Sequence
from decimal import Decimal
from typing import Literal

import msgspec

from turnwise.rules.pricing import (
    CacheCounts,
    Cost,
    Fate,
    Plan,
    Priced,
    PriceRow,
    RowFinder,
    Unknown,
    fate_of_failure,
    kept_tokens,
    price_of,
    sum_of,
    unread_tokens,
    unread_usd,
)
from turnwise.rules.prompt_room import message_bytes
from turnwise.rules.provider_tool_costs import billed_apart
from turnwise.turn.events import Purpose, SendRequest
from turnwise.vocab import NO_USAGE, Fault, FinishReason, Request, Response, ToolCall, Untold, Usage, messages_in_common
from turnwise.wire.family import HttpCall

# Sees whether the provider's cache gave what it had kept of a prompt, and why not.


# The least size that any provider keeps: less is lost by its rounding (OpenAI: 128 tokens) or is not worth a word.
LEAST_LOST_TOKENS = 1024
LEAST_LOST_SHARE = 0.1


class CacheMissed(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Request `number` of a turn should have read `expected_tokens` from the provider's cache, and read `read_tokens`.

    `changed_at` is the first byte of its body, cache marks left out, at which it is another one than the request before it; None
    where it began with all of that one. Then `since_hit_s` tells for how long nothing of it had been read: the provider keeps a
    prompt for a time only. `path` names the sub-agents that lead to its turn.
    """

    turn: str
    number: int
    model: str
    expected_tokens: int
    read_tokens: int
    changed_at: int | None = None
    since_hit_s: float | None = None
    path: tuple[str, ...] = ()


class CacheSums(msgspec.Struct, frozen=True, kw_only=True):
    """What prompt caches did for several requests, in tokens and US dollars.

    - `saved_usd` is negative if writing cost more than reading saved. None: no price is known.
    - `unread_tokens` were written, and no request has read them yet. `unread_usd` is what writing them cost beyond
      plain input: a loss, unless a later request reads them.
    """

    read_tokens: int = 0
    written_tokens: int = 0
    unread_tokens: int = 0
    saved_usd: Decimal | None = None
    unread_usd: Decimal | None = None


class CacheWatch:
    """Of one turn's requests, in the order in which they were encoded with one history."""

    def __init__(self, *, turn: str, path: tuple[str, ...]) -> None:
        self._turn = turn
        self._path = path
        self._before: Request | None = None
        self._kept_tokens = 0  # of the last prompt that was answered
        self._kept_at_s: float | None = None  # when that was read or written
        self._has_hit = False  # this endpoint keeps prompts, asked or not
        self.read_anew = (
            0  # tokens that were kept before the last request, and not read by it, as its prompt begins otherwise
        )

    def saw(self, order: SendRequest, call: HttpCall, *, usage: Usage | None, left_s: float) -> CacheMissed | None:
        """Take in what was counted of a request that left at this time; what is missing, if anything is."""
        request, before = order.request, self._before
        is_aside = bool(call.marks) and request.cache is not None and request.cache.shared_only
        if not is_aside:  # else what was kept of the messages stays as it was
            self._before = request
        if usage is None or not (self._kept_tokens or usage.cache_read_tokens or usage.cache_write_tokens):
            return None
        if "cache_read_tokens" in usage.untold:
            return None
        usage = usage.last_sampling
        if call.changed_at is not None:
            self.read_anew = max(0, min(self._kept_tokens, usage.input_tokens) - usage.cache_read_tokens)
        same_model = before is not None and before.model == request.model
        expected = 0
        if before is not None and same_model:
            expected = min(self._kept_tokens, _still_there(call, before=before, now=request, tokens=usage.input_tokens))
        since_s = None if self._kept_at_s is None else left_s - self._kept_at_s
        if not is_aside:
            self._take(call, usage=usage, left_s=left_s)
        lost = expected - usage.cache_read_tokens
        if before is None or lost < max(LEAST_LOST_TOKENS, expected * LEAST_LOST_SHARE):
            return None
        changed_at = _changed_at(call, before=before, now=request)
        return CacheMissed(
            turn=self._turn,
            number=order.number,
            model=request.model,
            expected_tokens=expected,
            read_tokens=usage.cache_read_tokens,
            changed_at=changed_at,
            since_hit_s=round(since_s, 3) if since_s is not None and changed_at is None else None,
            path=self._path,
        )

    def _take(self, call: HttpCall, *, usage: Usage, left_s: float) -> None:
        self._has_hit = self._has_hit or usage.cache_read_tokens > 0
        self._kept_tokens = kept_tokens(usage, is_asked=bool(call.marks), has_hit=self._has_hit)
        if self._kept_tokens:
            self._kept_at_s = left_s


def _still_there(call: HttpCall, *, before: Request, now: Request, tokens: int) -> int:
    """How much of a prompt of so many tokens the request before it may have left: where a part of the history gave way (to a
    summary, say), what stands behind that is new, and is counted by its share of the body."""
    own = 0 if before.cache is None else before.cache.passing
    common = messages_in_common(before.messages, now.messages)
    if common >= len(before.messages) - max(own, 1):
        return tokens
    new = sum([message_bytes(message) for message in now.messages[common:]])
    whole = max(1, len(call.body) - sum([end - start for start, end in call.marks]))
    return tokens * max(0, whole - new) // whole


def _changed_at(call: HttpCall, *, before: Request, now: Request) -> int | None:
    """Of what is kept where marks ask for it, messages rest on fields behind them, too (Anthropic docs, "Prompt caching", "What
    invalidates the cache")."""
    if call.changed_at is not None or not call.marks:
        return call.changed_at
    names: list[str] = []
    if (before.tool_choice, before.parallel_tool_calls) != (now.tool_choice, now.parallel_tool_calls):
        names += CHOICE
    if _thinks(before) != _thinks(now):
        names += THINKING
    return _place_of(names, call=call) if names else None


CHOICE = ("tool_choice", "parallel_tool_calls")
THINKING = ("thinking", "output_config", "reasoning", "reasoning_effort")


def _thinks(request: Request) -> object:
    return request.settings.reasoning_effort, request.settings.reasoning_tokens


def _place_of(names: Sequence[str], *, call: HttpCall) -> int:
    """Where the first of these fields stands behind the messages, marks left out; where none does, it is gone from there, and
    that is where the messages end."""
    fields = msgspec.json.decode(call.body, type=dict[str, msgspec.Raw])
    keys = list(fields)
    behind = keys[keys.index("messages") + 1 :]
    first = next((key for key in behind if key in names), next(iter(behind), None))
    at = len(call.body) - 1
    for key in reversed(behind):
        at -= len(b'"%b":' % key.encode()) + len(bytes(fields[key]))
        if key == first:
            break
        at -= 1  # the comma
    return at - sum([end - start for start, end in call.marks if end <= at])


# `sent` in version 2 was a record of the journal alone, without model and outcome: what left before version 3 is not here.
LEDGER_SCHEMA = """
create table request (
    id integer primary key, session text not null, turn text not null, root_session text not null, root_turn text not null,
    path text not null, number integer not null, step integer not null, purpose text not null, retry_of text,
    provider text not null, model text not null, started real not null, first_event real, ended real,
    sent_bytes integer not null, received_bytes integer not null default 0, outcome text, discarded integer not null default 0,
    calls integer not null default 0, input_tokens integer, output_tokens integer, reasoning_tokens integer,
    cache_read_tokens integer, cache_write_tokens integer, provider_usage text,
    plan text, usd text, usd_pico integer, priced_by text, price_note text not null default '', cache_saved_usd text,
    cache_saved_pico integer
) strict;
create index request_by_time on request (started);
create index request_by_session on request (root_session, started)
"""
# Version 4 knows what programs called. Files of version 3 have the table above already.
LEDGER_PROGRAMS = (
    "alter table request add column programs integer not null default 0",
    "alter table request add column program_calls integer not null default 0",
)
# Version 6 knows what caches did not give, and what writing them cost.
LEDGER_CACHES = (
    "alter table request add column cache_missed_tokens integer not null default 0",
    "alter table request add column cache_write_usd text",
)

_CUT = FinishReason.CUT  # until Python 3.12, a member that is looked up in its class costs a call
OK = "ok"
LEAST = "least"  # `priced_by` of an amount of which a part is not known
CANCELLED = "cancelled"
LOST = "lost"  # our process died before the response was recorded: the provider may have billed it
JOINED = "joined"  # nothing was sent for it: its client got the answer to an equal request
DISCARDED = (
    "discarded"  # it ended without any output and was sent again; a failure that was sent again keeps its fault's name
)


class LedgerEntry(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """One request. Times are UTC, seconds since 1970; bytes are those of the bodies.

    `number` counts the requests of its turn from 1, further attempts included; `purpose` is the turn's own, `retry_of` what
    a retry is a further attempt at. `path` names the sub-agents that lead to its turn, outermost first; `root_turn` and
    `root_session` are those of the turn that the user began. `outcome` is `ok`, `cancelled`, `discarded`, `lost`, `joined`,
    or the kind of the fault; None if it is unknown. `discarded`: it was given up and sent again. `calls` are the tool calls that
    it brought; `programs` are those of them that ran as programs, and `program_calls` the calls that these have made. `usage`
    is None where the provider did not say (its `untold` counts are 0, and null in the table), `usd` where the price is not
    known: `price_note` says why, or whose price it is, and behind that what a changed prompt cost in cache and thinking. Where
    `priced_by` is `least`, the request cost at least `usd`, and `price_note` says what is not known. `cache_missed_tokens` are
    those that the provider had kept and did not give; `cache_write_usd` is what the tokens that were written to its cache cost
    more than others, and is in `usd`.
    """

    session: str
    turn: str
    root_session: str
    root_turn: str
    number: int
    step: int
    purpose: Purpose
    provider: str
    model: str
    started: float
    sent_bytes: int
    path: tuple[str, ...] = ()
    retry_of: Purpose | None = None
    first_event: float | None = None
    ended: float | None = None
    received_bytes: int = 0
    outcome: str | None = None
    discarded: bool = False
    calls: int = 0
    programs: int = 0
    program_calls: int = 0
    usage: Usage | None = None
    plan: Plan | None = None
    usd: Decimal | None = None
    priced_by: Literal["provider", "table", "least"] | None = None
    price_note: str = ""
    cache_saved_usd: Decimal | None = None
    cache_write_usd: Decimal | None = None
    cache_missed_tokens: int = 0

    @property
    def is_at_least(self) -> bool:
        """Whether the request may have cost more than `usd`."""
        return self.priced_by == LEAST

    @property
    def saved_requests(self) -> int:
        """How many more it would have taken with one for each call, a program counting as the calls that it made. Below 0
        where a program made none: the request for it was one too many."""
        together = self.calls - 1 if self.calls and self.outcome == OK and not self.discarded else 0
        return together + self.program_calls - self.programs


class ReceivedResponse(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """What came back of a request: its `response`, or a part of it (`partial`)."""

    response: Response | None = None
    partial: Response | None = None
    fault: Fault | None = None
    cancelled: bool = False
    answered: bool = True  # the head of an answer came
    is_answer: bool = False  # the fault is all of it
    first_event: float | None = None
    received_bytes: int = 0


MAX_NOTES = 50  # a tool that fails at each call shall not fill a result


class Ledger:
    """The entries of a run and of its sub-agents, in the order in which they left. `cache_missed` are those that should have
    read from the provider's cache, and did not. `notes` are what a person should know of what was asked and answered."""

    def __init__(self, *, root_session: str, root_turn: str) -> None:
        self.root_session = root_session
        self.root_turn = root_turn
        self.cache_missed: list[CacheMissed] = []
        self.notes: list[str] = []
        self._unkept: list[str] = []
        self._keep_note: Callable[[str], object] = self._unkept.append
        self._entries: dict[tuple[str, int], LedgerEntry] = {}
        self._parents: dict[str, str] = {}  # of the sub-agents' turns
        # Turn and step -> those of its requests that billed the step.
        self._billed: dict[tuple[str, int], set[int]] = {}

    @property
    def entries(self) -> tuple[LedgerEntry, ...]:
        return tuple(self._entries.values())

    def note(self, text: str) -> bool:
        """Add one note, if it is not there yet and there is room."""
        if text in self.notes or len(self.notes) >= MAX_NOTES:
            return False
        self.notes.append(text)
        self._keep_note(text)
        return True

    def keep_notes(self, keep: Callable[[str], object]) -> None:
        """`keep` gets each note that is not in the root's records yet."""
        self._keep_note = keep
        for text in self._unkept:
            keep(text)

    def put(self, entry: LedgerEntry) -> None:
        """Enter it, or what has become of it."""
        if entry.plan == "step" and entry.usd:
            self._billed.setdefault((entry.turn, entry.step), set()).add(entry.number)
        self._entries[entry.turn, entry.number] = entry

    def strike_out(self, entry: LedgerEntry) -> None:
        """It never left."""
        self._entries.pop((entry.turn, entry.number), None)

    def begin_below(self, turn: str, *, parent: str) -> None:
        """A sub-agent's turn belongs to the turn that started it."""
        self._parents[turn] = parent

    def entries_below(self, turn: str) -> list[LedgerEntry]:
        """The entries of one turn and of the sub-agents' turns below it."""
        return [one for one in self._entries.values() if self._is_below(one.turn, turn)]

    def _is_below(self, turn: str | None, root: str) -> bool:
        while turn is not None and turn != root:
            turn = self._parents.get(turn)
        return turn == root

    def get(self, turn: str, number: int) -> LedgerEntry | None:
        return self._entries.get((turn, number))

    def billed_in_step(self, entry: LedgerEntry) -> int:
        """The requests of its turn's step before it that a plan by step has billed."""
        return sum([number < entry.number for number in self._billed.get((entry.turn, entry.step), ())])

    def cost(self, *, turn: str | None = None) -> Cost:
        """Of all, or of one turn without its sub-agents."""
        return cost_of([one for one in self._entries.values() if turn is None or one.turn == turn])


def caches_of(entries: Sequence[LedgerEntry]) -> CacheSums:
    """What the providers' caches did to these requests."""
    told = [(one, one.usage) for one in entries if one.usage is not None]
    saved = [one.cache_saved_usd for one in entries if one.cache_saved_usd is not None]
    counts = [
        CacheCounts(one.session, f"{one.provider}:{one.model}", usage.cache_read_tokens, usage.cache_write_tokens)
        for one, usage in told
    ]
    unread = unread_tokens(counts)
    lost = [
        unread_usd(one.cache_write_usd, unread=tokens, written=count.written)
        for (one, _), count, tokens in zip(told, counts, unread, strict=True)
        if tokens and one.cache_write_usd is not None
    ]
    return CacheSums(
        read_tokens=sum([one.read for one in counts]),
        written_tokens=sum([one.written for one in counts]),
        unread_tokens=sum(unread),
        saved_usd=sum_of(saved).usd if saved else None,
        unread_usd=sum_of(lost).usd if lost else None,
    )


def usage_of(entries: Sequence[LedgerEntry]) -> Usage:
    """The tokens of all these requests, as far as the providers told them."""
    return sum([one.usage for one in entries if one.usage is not None], NO_USAGE)


def tells_tokens(entry: LedgerEntry) -> bool:
    """Whether it is known how many tokens the request took. One that was refused before it got any answer took none."""
    if entry.usage is not None:
        return tells_usage(entry.usage)
    return entry.ended is not None and entry.outcome != "ok" and entry.first_event is None


def tells_usage(usage: Usage | None) -> bool:
    """Whether the provider told how many tokens there were, in and out."""
    return usage is not None and not {"input_tokens", "output_tokens"} & set(usage.untold)


def cost_of(entries: Sequence[LedgerEntry]) -> Cost:
    return sum_of([one.usd for one in entries], at_least=sum([one.is_at_least for one in entries]))


def entry_of(
    order: SendRequest,
    *,
    session: str,
    turn: str,
    ledger: Ledger,
    path: tuple[str, ...],
    provider: str,
    started: float,
    sent_bytes: int,
    programs: tuple[int, int] = (0, 0),
) -> LedgerEntry:
    """The entry of a request that is about to leave. `programs` have run before it, with so many calls."""
    return LedgerEntry(
        session=session,
        turn=turn,
        root_session=ledger.root_session,
        root_turn=ledger.root_turn,
        path=path,
        number=order.number,
        step=order.step,
        purpose=order.purpose,
        retry_of=order.retry_of,
        provider=provider,
        model=order.request.model,
        started=started,
        sent_bytes=sent_bytes,
        programs=programs[0],
        program_calls=programs[1],
    )


def ended_entry(
    entry: LedgerEntry,
    received: ReceivedResponse,
    *,
    ended: float,
    row: PriceRow | None,
    billed_in_step: int,
    searches: bool = False,
    asked_hour: bool = False,
    asked: tuple[str, ...] = (),
    row_of: RowFinder | None = None,
) -> LedgerEntry:
    """The entry with what came of the request, and its price. `searches`: the request asked for them; `asked_hour`: it asked for
    a cache that is kept for an hour; `asked`: the terms that it asked for (`apart.terms_asked`). `row_of` knows the rows of
    other models, which may have done a part of it."""
    response = received.response or received.partial
    fault = received.fault
    usage = None if response is None else response.usage
    by_tokens = response is not None and row is not None and row.plan == "tokens"
    apart = ""
    if response is not None and by_tokens:
        apart = billed_apart(response, model=entry.model, searches=searches)
    price = price_of(
        usage,
        row=row,
        fate=_fate_of(received, usage=usage),
        billed_in_step=billed_in_step,
        apart=apart,
        asked_hour=asked_hour,
        asked=asked,
        row_of=row_of,
    )
    known = price if isinstance(price, Priced) else None
    return msgspec.structs.replace(
        entry,
        first_event=received.first_event,
        ended=ended,
        received_bytes=received.received_bytes,
        outcome=CANCELLED if received.cancelled else OK if fault is None else str(fault.kind),
        calls=0 if response is None else sum([type(part) is ToolCall for part in response.message.parts]),
        usage=None if usage is None else _only_told(usage),
        plan=None if row is None else row.plan,
        usd=None if known is None else known.usd,
        priced_by=None if known is None else LEAST if known.at_least else known.by,
        price_note=_note_of(price, row=row),
        cache_saved_usd=None if known is None else known.cache_saved_usd,
        cache_write_usd=None if known is None else known.cache_write_usd,
    )


def _note_of(price: Priced | Unknown, *, row: PriceRow | None) -> str:
    """Whose price it is; before that, what is not known of it."""
    if isinstance(price, Unknown):
        return price.why
    source = "" if row is None else row.source
    return f"at least: {price.at_least}; {source}" if price.at_least else source


def _fate_of(received: ReceivedResponse, *, usage: Usage | None) -> Fate:
    response, fault = received.response, received.fault
    if response is not None and fault is None and response.finish is not _CUT:
        return "whole"
    if not received.answered:
        return "unheard"
    if fault is None:
        return "broken"
    has_content = response is not None or received.partial is not None
    return fate_of_failure(fault, is_answer=received.is_answer, has_content=has_content, usage=usage)


def _only_told(usage: Usage) -> Usage:
    """With 0 for each count that nobody told: the columns hold nothing for it. How it was served stands in the price."""
    if usage.parts or usage.terms or usage.unread:
        usage = msgspec.structs.replace(usage, parts=(), terms=(), unread=())
    untold = [name for name in COUNTS if name in usage.untold]
    if not usage.untold:
        return usage
    return msgspec.structs.replace(usage, untold=tuple(untold), **dict.fromkeys(untold, 0))


def lost_entry(
    entry: LedgerEntry, *, fault: Fault, ended: float, row: PriceRow | None, billed_in_step: int
) -> LedgerEntry:
    """The entry of a request whose response was lost in a crash: its tokens and its price are unknown."""
    received = ReceivedResponse(fault=fault, answered=False)
    lost = ended_entry(entry, received, ended=ended, row=row, billed_in_step=billed_in_step)
    return msgspec.structs.replace(lost, outcome=LOST)


def programmed_entry(entry: LedgerEntry, *, programs: int, calls: int) -> LedgerEntry:
    """With so many more programs of its response that have run, and calls that they have made."""
    return msgspec.structs.replace(entry, programs=entry.programs + programs, program_calls=entry.program_calls + calls)


def joined_entry(entry: LedgerEntry, *, other: str) -> LedgerEntry:
    """Its client got the answer to the request `other` of a client, which has its own entries."""
    return msgspec.structs.replace(
        entry, outcome=JOINED, ended=entry.started, usd=Decimal(0), price_note=f"joined {other}"
    )


def discarded_entry(entry: LedgerEntry) -> LedgerEntry:
    """Given up, and sent again."""
    outcome = DISCARDED if entry.outcome == OK else entry.outcome
    return msgspec.structs.replace(entry, discarded=True, outcome=outcome)


# What an entry is in the table: what is known when its request leaves, and what comes of it.
_BEFORE = (
    "session turn root_session root_turn path number step purpose retry_of provider model started sent_bytes"
).split()
_EARLY = "programs program_calls".split()  # an approval may have begun them before the request leaves; more may come
_AFTERWARDS = (
    "first_event ended received_bytes outcome discarded calls input_tokens output_tokens reasoning_tokens "
    "cache_read_tokens cache_write_tokens provider_usage price_note cache_missed_tokens"
).split()
COUNTS: tuple[Untold, ...] = (
    "input_tokens",
    "output_tokens",
    "reasoning_tokens",
    "cache_read_tokens",
    "cache_write_tokens",
)
_MONEY = "plan usd usd_pico priced_by cache_saved_usd cache_saved_pico cache_write_usd".split()
COLUMNS = (*_BEFORE, *_EARLY, *_AFTERWARDS, *_MONEY)
# Values go by place: with names, SQLite looks for each of 34 among all of them.
_LEAVING = (*_BEFORE, *_EARLY)
LEAVES = f"insert into request ({', '.join(_LEAVING)}) values ({', '.join('?' * len(_LEAVING))})"
STAYED = "delete from request where id = ?"
BECAME = f"update request set {', '.join([f'{name} = ?' for name in (*_EARLY, *_AFTERWARDS)])} where id = ?"
BECAME_WITH_PRICE = BECAME.replace(" where", f", {', '.join([f'{name} = ?' for name in _MONEY])} where")

Value = str | int | float | None
NO_COUNTS = (None, None, None, None, None, None)

# Beside the exact text of an amount stands the same in millionths of a millionth of a dollar, where it is a whole number of
# them: the sum of 100,000 takes SQLite 10 ms, and Python 100. A price by the token is one (six places, by the million).
PICO = Decimal("1E-12")
MOST_PICO_USD = 1000  # as much as fits into 64 bits 9,000 times


def values_before(entry: LedgerEntry) -> tuple[Value, ...]:
    """The columns that an entry has when its request leaves (`LEAVES`)."""
    return (
        entry.session,
        entry.turn,
        entry.root_session,
        entry.root_turn,
        msgspec.json.encode(entry.path).decode() if entry.path else "[]",
        entry.number,
        entry.step,
        entry.purpose,
        entry.retry_of,
        entry.provider,
        entry.model,
        entry.started,
        entry.sent_bytes,
        entry.programs,
        entry.program_calls,
    )


def update_of(entry: LedgerEntry, *, row_id: int) -> tuple[str, tuple[Value, ...]]:
    """The statement that completes its row, and the values. Where nothing is known of a price its columns are not named: they are
    null already, and `sqlite3` takes as long for one None as for ten numbers."""
    if entry.plan is None and entry.usd is None and entry.priced_by is None and entry.cache_saved_usd is None:
        return BECAME, (*_values_afterwards(entry), row_id)
    return BECAME_WITH_PRICE, (*_values_afterwards(entry), *_values_of_money(entry), row_id)


def _values_afterwards(entry: LedgerEntry) -> tuple[Value, ...]:
    """Those that come of its request."""
    usage = entry.usage
    counts = NO_COUNTS
    if usage is not None:
        told = [getattr(usage, name) for name in COUNTS]
        if usage.untold:
            told = [None if name in usage.untold else count for name, count in zip(COUNTS, told, strict=True)]
        counts = (*told, usage.provider)
    return (
        entry.programs,
        entry.program_calls,
        entry.first_event,
        entry.ended,
        entry.received_bytes,
        entry.outcome,
        int(entry.discarded),
        entry.calls,
        *counts,
        entry.price_note,
        entry.cache_missed_tokens,
    )


def _values_of_money(entry: LedgerEntry) -> tuple[Value, ...]:
    usd, saved = entry.usd, entry.cache_saved_usd
    writing = _text(entry.cache_write_usd)
    return entry.plan, _text(usd), pico(usd), entry.priced_by, _text(saved), pico(saved), writing


def entry_from(columns: Mapping[str, Value]) -> LedgerEntry:
    """The entry that a row holds. Raises msgspec.ValidationError where the row is damaged."""
    usage = None
    if columns["provider_usage"] is not None:
        told = {name: columns[name] for name in COUNTS if columns[name] is not None}
        untold = [name for name in COUNTS if name not in told]
        usage = msgspec.convert({**told, "provider": columns["provider_usage"], "untold": untold}, Usage)
    path = msgspec.json.decode(str(columns["path"]), type=tuple[str, ...])
    plain = {name: value for name, value in columns.items() if name in LedgerEntry.__struct_fields__}
    return msgspec.convert({**plain, "path": path, "usage": usage}, LedgerEntry, strict=False)


def pico(amount: Decimal | None) -> int | None:
    """The amount in millionths of a millionth of a dollar; None where that is no whole number, or too large a one."""
    if amount is None or abs(amount) > MOST_PICO_USD or amount != amount.quantize(PICO):
        return None
    return int(amount / PICO)


def _text(amount: Decimal | None) -> str | None:
    return None if amount is None else str(amount)
