"""What a run gives back, and its bill."""

from datetime import UTC, datetime
from decimal import Decimal
from typing import TYPE_CHECKING, Any, Generic, Self, TypedDict, cast

import msgspec
from typing_extensions import TypeVar

from turnwise.agent.formatting import cost_said, many
from turnwise.agent.schemas import OutputType, problems_of
from turnwise.errors import (
    LimitReached,
    OutputMismatch,
    ProviderFault,
    RunCancelled,
    RunFailed,
    RunRefused,
    RunStopped,
)
from turnwise.journal.ledger import CacheMissed, CacheSums, Ledger, LedgerEntry, caches_of, usage_of
from turnwise.rules.pricing import Cost
from turnwise.running.watcher_events import WatcherEvent
from turnwise.turn.config import ChildReport, OneAsk, TurnResult
from turnwise.turn.machine import SessionSoFar
from turnwise.turn.outcomes import NO_OUTPUT, is_unknown
from turnwise.turn.programs import asks_of, with_asks
from turnwise.vocab import Fault, FaultKind, Message, Repair, StopReason, ToolCall, ToolResult, Untold, Usage, calls_of
from turnwise.vocab.hidden_characters import shown, shown_answer

if TYPE_CHECKING:
    from matplotlib.figure import Figure

# A run's bill, request by request: a sequence of its entries that also gives rows for a data frame.


class BillRow(TypedDict):
    """One request of the bill. None means that a value is not known.

    Input tokens include those of the cache; output tokens include reasoning.
    """

    number: int  # of its turn, from 1
    path: str  # the sub-agents that lead to it, "editor/researcher"; empty for the run itself
    step: int
    purpose: str  # what `RunResult.requests_by_purpose` counts
    attempt: int  # 1, or more where the request was sent again
    provider: str
    model: str
    outcome: str | None
    discarded: bool
    started: datetime  # UTC
    seconds: float | None
    first_event_seconds: float | None
    input_tokens: int | None
    output_tokens: int | None
    reasoning_tokens: int | None
    cache_read_tokens: int | None
    cache_write_tokens: int | None
    calls: int
    sent_bytes: int
    received_bytes: int
    cost_usd: Decimal | None


class Bill(tuple[LedgerEntry, ...]):
    """The ledger of a run: an entry for each request, in the order in which the requests were sent. Sub-agents' requests are
    included.

    It is a tuple, and equal to a tuple with the same entries.
    """

    __slots__ = ()

    def to_rows(self) -> list[BillRow]:
        """A plain dict for each request (`BillRow`), for `pandas.DataFrame(...)` or `csv.DictWriter`."""
        attempts: dict[str, int] = {}  # of each turn's last request
        rows: list[BillRow] = []
        for entry in self:
            attempts[entry.turn] = attempts.get(entry.turn, 0) + 1 if entry.retry_of is not None else 1
            rows.append(_row(entry, attempt=attempts[entry.turn]))
        return rows


def _row(entry: LedgerEntry, *, attempt: int) -> BillRow:
    return {
        "number": entry.number,
        "path": "/".join(entry.path),
        "step": entry.step,
        "purpose": entry.purpose,
        "attempt": attempt,
        "provider": entry.provider,
        "model": entry.model,
        "outcome": entry.outcome,
        "discarded": entry.discarded,
        "started": datetime.fromtimestamp(entry.started, UTC),
        "seconds": _since(entry.started, entry.ended),
        "first_event_seconds": _since(entry.started, entry.first_event),
        "input_tokens": _told(entry.usage, "input_tokens"),
        "output_tokens": _told(entry.usage, "output_tokens"),
        "reasoning_tokens": _told(entry.usage, "reasoning_tokens"),
        "cache_read_tokens": _told(entry.usage, "cache_read_tokens"),
        "cache_write_tokens": _told(entry.usage, "cache_write_tokens"),
        "calls": entry.calls,
        "sent_bytes": entry.sent_bytes,
        "received_bytes": entry.received_bytes,
        "cost_usd": entry.usd,
    }


def _since(started: float, then: float | None) -> float | None:
    return None if then is None else round(max(then - started, 0.0), 6)


def _told(usage: Usage | None, count: Untold) -> int | None:
    return None if usage is None or count in usage.untold else getattr(usage, count)


REPR_CHARACTERS = 80  # shown of a result's text


Output = TypeVar("Output", default=str, covariant=True)
NO_TEXT = (StopReason.WAITING, StopReason.PROVIDER_FAILED)  # there is no answer that could be the output
# What `raise_for_stop` raises; ProviderFault has its own fields.
STOPS: dict[StopReason, type[RunStopped]] = {
    **dict.fromkeys((StopReason.STEP_LIMIT, StopReason.BUDGET, StopReason.TIME_LIMIT, StopReason.LOOP), LimitReached),
    StopReason.REFUSED: RunRefused,
    StopReason.CANCELLED: RunCancelled,
    **dict.fromkeys((StopReason.JOURNAL_FAILED, StopReason.GIVEN_UP, StopReason.TOOL_FAILED), RunFailed),
}
# Names of other libraries' results: what to write.
ELSEWHERE = {
    "all_messages": "Pass `result.history` to the next run; `result.messages` has all messages",
    "all_messages_json": "Write `result.history_json()`",
    "data": "Read `result.output`",
    "final_output": "Read `result.output`",
    "final_output_as": "Read `result.output`: it has the `output_type` of the agent",
    "new_items": "Read `result.new_messages`",
    "new_messages_json": "Write `result.new_history_json()`",
    "response": "Read `result.messages`, or `result.ledger` for each request",
    "to_input_list": "Pass `result.history` to the next run",
}
WAITS = (
    "calls wait: answer `result.asks` with `approvals=`, other calls of `result.pending` with `results=`, in another run with "
    "`history=result.history`"
)


class OwnSpending(msgspec.Struct, frozen=True, kw_only=True):
    """What a run spent itself, without its sub-agents: model steps, HTTP requests, and tokens."""

    steps: int
    requests: int
    usage: Usage


class RunResult(msgspec.Struct, Generic[Output], frozen=True, kw_only=True):
    """How a run ended: its answer, what is still open, and its bill.

    The answer:

    - `text` is the answer. It is never empty, unless the run waits for calls. It raises ProviderFault if the provider
      failed: there is no answer then, and no text that a program may take for one. `shown_text` is always there, for a
      person to read: the answer, or why there is none and what was found by then. `written_locally`: turnwise wrote it,
      because the model gave no answer.
    - `raise_for_stop()` raises an error by name if the run ended without the answer that it was asked for.
    - `output` is the answer as a value of the `output_type`; without that type it is the text. It raises ProviderFault
      as `text` does, and OutputMismatch if there is no such value; `output_or_none` is None then. If None itself is a
      value of the type, `has_output` tells an answer of None from no answer.
    - `stop_reason` says why the run ended. `complete` is False if the answer rests on less than the model wanted to
      know, and `why_incomplete` gives the reason.
    - `fault` says how the provider failed: `kind`, `status`, `message`.
    - `reasoning` is the model's reasoning. `repairs` are the faults that turnwise mended in what it received.

    What is open:

    - `asks` are calls that wait for an approval: run again with `approvals=`. `pending` are all waiting calls. Those
      without an ask wait for results: run again with `results={call.id: value}`. You may answer some of them; the next
      result lists the rest.
    - `notes` are what toolsets told: an MCP server whose tools the run went without, or that died. Also a setting that the
      model does not take (once in a session), and a call that `tool_choice` asked for and the model did not make. Of a
      resumed run also that the journal may have lost its last records.
    - `unknown_calls` are calls that may have run, in part or as a whole: the process died, or the turn was left, while they
      ran. Those of sub-agents stand in `children`.
    - `unread` are messages of the user that came too late, or while calls were waiting. The history does not contain
      them.

    The conversation:

    - `history` is what the next run needs: pass it on. It is everything that was said, until a run makes room. From
      then on it contains summaries and shortened results.
    - `earlier` is the history that the run began with. `history_json()` is the history as text that later versions read,
      `new_history_json()` the text to append to those of the runs before.
    - `messages` are all messages of the session that this run knows, unshortened. `new_messages` are those of this run.
    - `session` is the id of the session.

    The bill:

    - `requests` (HTTP requests) and `usage` (tokens) are those of the run and of all its sub-agents, as in `ledger`. `own`
      has `steps`, `requests` and `usage` of this run alone. `children` says what each sub-agent spent.
    - `steps` are this run's. `requests_by_purpose` counts its own requests by purpose (`compact`: for a summary).
    - `recovery_usage` is the part of `usage` that was spent to recover what the output limit cut.
    - `ledger` has an entry for each request, sub-agents' included. `ledger.to_rows()` gives plain dicts for a data
      frame.
    - `cost` is the sum in US dollars, and the number of requests whose price is unknown.
    - `prefix_changes` are requests that begin differently from the request before, so that the provider could not use its
      prompt cache. Each entry says why, and what this cost. `cache_missed` are requests that read less from the cache than
      it held.
    """

    shown_text: str
    stop_reason: StopReason
    complete: bool
    why_incomplete: str = ""
    output_or_none: Output | None
    has_output: bool = False
    steps: int
    requests: int
    requests_by_purpose: dict[str, int]
    usage: Usage
    own: OwnSpending
    recovery_usage: Usage
    reasoning: str
    repairs: tuple[Repair, ...]
    pending: tuple[ToolCall, ...]
    asks: tuple[OneAsk, ...]
    unread: tuple[Message, ...]
    children: tuple[ChildReport, ...]
    fault: Fault | None
    written_locally: bool
    history: tuple[Message, ...]
    earlier: tuple[Message, ...] = ()
    messages: tuple[Message, ...]
    new_messages: tuple[Message, ...]
    session: str
    prefix_changes: tuple[str, ...]
    ledger: Bill = Bill()
    cost: Cost = Cost()
    cache_missed: tuple[CacheMissed, ...] = ()
    notes: tuple[str, ...] = ()

    if not TYPE_CHECKING:  # type checkers do not see these names

        def __getattr__(self, name: str) -> object:
            fix = f". {ELSEWHERE[name]}" if name in ELSEWHERE else ""
            raise AttributeError(f"`RunResult` has no attribute `{name}`{fix}")

    @property
    def text(self) -> str:
        """The answer's text; empty only if the run waits for calls.

        Raises ProviderFault if the provider failed. Programs print, store and send this text, so it must not be an error's
        words: a prefix before them would be stored and sent like any other text. `shown_text` has them.
        """
        if self.stop_reason is StopReason.PROVIDER_FAILED:
            raise self._provider_fault()
        return self.shown_text

    @property
    def unknown_calls(self) -> tuple[ToolCall, ...]:
        """The calls of this run whose outcome is unknown: the process died, or the turn was left, while they ran.

        The model was told so, too. The calls of sub-agents are in `children`, as texts: `ChildReport.unknown`.
        """
        results = [part for message in self.new_messages for part in message.parts if isinstance(part, ToolResult)]
        unknown = {result.call_id for result in results if is_unknown(result)}
        return tuple([call for message in self.new_messages for call in calls_of(message) if call.id in unknown])

    def raise_for_stop(self) -> Self:
        """Return the result itself if the run ended `answered` or `waiting`; otherwise raise.

            answer = agent.run_sync("How long is the room?").raise_for_stop().text

        - ProviderFault: `provider_failed`.
        - LimitReached: `step_limit`, `budget`, `time_limit`, `loop`. The error's `run.text` is the answer that the model
          had to give.
        - RunRefused: `refused`. RunCancelled: `cancelled`.
        - RunFailed: `journal_failed`, `given_up`, `tool_failed`.

        A run that waits for calls has not failed: it goes on as soon as your program answers them (`asks`, `pending`). An
        answer may still be incomplete, for example cut by the output limit: `complete` says so.
        """
        if self.stop_reason is StopReason.PROVIDER_FAILED:
            raise self._provider_fault()
        if (kind := STOPS.get(self.stop_reason)) is not None:
            said = f"the run ended as `{self.stop_reason}`: {self.why_incomplete}"
            if self.stop_reason is StopReason.TOOL_FAILED and self.notes:
                said += f" ({'; '.join(self.notes)})"
            raise kind(said, stop_reason=self.stop_reason, run=self)
        return self

    def _provider_fault(self) -> ProviderFault:
        fault = self.fault or Fault(kind=FaultKind.SERVER, message=self.why_incomplete)
        said = f"{self.why_incomplete.rstrip('.')}. There is no answer; `shown_text` of the result has what was found by then"
        return ProviderFault(fault, said=said, run=self)

    @property
    def output(self) -> Output:
        """The answer as a value of the run's output type. Without an output type it is the text.

        Raises ProviderFault if the provider failed, and OutputMismatch if there is no such value for another reason: the
        answer does not fit, the run waits for calls, or a limit ended the run without an answer.
        """
        if self.stop_reason is StopReason.PROVIDER_FAILED:
            raise self._provider_fault()
        if self.output_or_none is None and not self.has_output:
            why = WAITS if self.pending else self.why_incomplete or "there is no answer"
            text = "" if why in self.text else f". Its text is {_shortened(self.text)!r}"
            raise OutputMismatch(
                f"the run has no output ({self.stop_reason.value}): {why.rstrip('.')}{text}",
                text=self.text,
                stop_reason=self.stop_reason,
                requests=self.requests,
                usage=self.usage,
                cost_usd=self.cost_usd,
            )
        return cast("Output", self.output_or_none)  # None only if None is the answer

    def history_json(self) -> str:
        """`history` as JSON text, for a database column or a file. `messages_from_json` reads it, in every later version."""
        from turnwise.agent.history_json import row_of  # only programs that keep histories need it

        return row_of(self.history)

    def new_history_json(self) -> str:
        """What this run adds to the history that it began with, as JSON text: append it as a row.

        `messages_from_json` joins the rows to the `history` of the last run. If the run made room, or took up calls that
        waited, its row also says which of the earlier messages it replaces.
        """
        from turnwise.agent.history_json import row_of

        return row_of(self.history, before=self.earlier)

    @property
    def caches(self) -> CacheSums:
        """What the providers' prompt caches read, wrote and saved, in tokens and US dollars. Sub-agents are included."""
        return caches_of(self.ledger)

    @property
    def cost_usd(self) -> Decimal | None:
        """The whole cost in US dollars. None: the price of some request is not known."""
        return self.cost.exact_usd

    def plot(self) -> "Figure":
        """Draw the bill as a matplotlib figure: requests over time, tokens by kind, and what recovery cost.

        Raises CallerError if matplotlib is not installed.
        """
        from turnwise.agent.bill_drawing import drawn

        return drawn(self.ledger)

    def __repr__(self) -> str:
        """One short line: a whole history is no answer to `print(result)`. The fields have it all."""
        more = {
            "why_incomplete": _shortened(self.why_incomplete),
            "pending": len(self.pending),
            "repairs": len(self.repairs),
        }
        said = "".join([f", {name}={value!r}" for name, value in more.items() if value])
        return (
            f"RunResult(shown_text={_shortened(self.shown_text)!r}, stop_reason={self.stop_reason.value!r}, "
            f"complete={self.complete}{said}, requests={self.requests}, cost={self.cost!r})"
        )

    def _repr_markdown_(self) -> str:
        """A notebook's view of it: the answer, its cost, and the repairs folded away."""
        return _markdown_of(self)


def _markdown_of(result: RunResult[Any]) -> str:
    """The answer, then one line that says how it ended and what it cost, then its repairs, folded away.

    The answer is the model's own Markdown, with hidden characters made visible; everything else is plain text.
    """
    parts = [shown_answer(result.shown_text), f"<small>{_plain(_line_of(result))}</small>"]
    if result.repairs:
        rows = [f"<li>{_plain(repair.where)}: {_plain(repair.what)}</li>" for repair in result.repairs]
        head = many(len(result.repairs), "repair")
        parts.append(f"<details><summary>{head}</summary><ul>{''.join(rows)}</ul></details>")
    return "\n\n".join([part for part in parts if part])


def _line_of(result: RunResult[Any]) -> str:
    whole = "" if result.complete or result.stop_reason is StopReason.WAITING else "not complete"
    return " · ".join(
        [
            *[part for part in (result.stop_reason.value, whole, result.why_incomplete) if part],
            *[f"waits for {call.name}" for call in result.pending],
            many(result.steps, "step"),
            many(len(result.ledger), "request"),
            f"cost {cost_said(result.cost)}",
        ]
    )


def _plain(text: str) -> str:
    """HTML that shows exactly this text."""
    import html  # only notebooks need it

    return html.escape(" ".join(shown(text).split()))


def _shortened(text: str) -> str:
    return text if len(text) <= REPR_CHARACTERS else f"{text[:REPR_CHARACTERS]}…"


class RunFinished(msgspec.Struct, Generic[Output], frozen=True, tag="run_finished"):
    """The last event of `Agent.stream`: the run is over, and this is its result."""

    result: RunResult[Output]


RunEvent = WatcherEvent | RunFinished[Output]


class RunInterrupted(KeyboardInterrupt):
    """Ctrl-C was pressed during `Agent.run_sync`. It is a KeyboardInterrupt.

    `result` is the run's result so far: the text, the calls that ran, and the bill.
    """

    def __init__(self, result: RunResult[Any]) -> None:
        super().__init__(f"{many(result.requests, 'request')} made, cost {cost_said(result.cost)}")
        self.result = result


def run_result(
    result: TurnResult,
    *,
    output: OutputType | None,
    before: SessionSoFar,
    session: str,
    ledger: Ledger | None = None,
) -> RunResult[Any]:
    """The turn's result with the answer as a value. If the answer fits the schema, but the type's own validators refused it each
    time, there is no output and the result is incomplete; a repair says why."""
    has_output = output is None and result.stop_reason not in NO_TEXT
    value: object = result.text if has_output else None
    repairs, complete, why = result.repairs, result.complete, result.why_incomplete
    if output is not None and result.output is not None:
        try:
            value, has_output = output.parse(result.output), True
        except Exception as error:  # noqa: BLE001 (a validator of the user's may raise anything; the turn is over)
            repairs = (*repairs, Repair("output_refused", "answer", "; ".join(problems_of(error))))
            complete, why = False, NO_OUTPUT
    own = OwnSpending(steps=result.steps, requests=result.requests, usage=result.usage)
    asks = asks_of(result.pending, asks=(*before.asks, *result.asks), messages=before.carried.messages)
    return RunResult(
        shown_text=result.text,
        stop_reason=result.stop_reason,
        complete=complete,
        why_incomplete=why,
        output_or_none=value,
        has_output=has_output,
        steps=result.steps,
        requests=own.requests if ledger is None else len(ledger.entries),
        requests_by_purpose=result.requests_by_purpose,
        usage=own.usage if ledger is None else usage_of(ledger.entries),
        own=own,
        recovery_usage=result.recovery_usage,
        reasoning=result.reasoning,
        repairs=repairs,
        pending=result.pending,
        asks=asks,
        unread=result.unread,
        children=result.children,
        fault=result.fault,
        written_locally=result.origin == "local",
        history=with_asks(
            (*before.carried.messages, *result.messages) if result.history is None else result.history, asks=asks
        ),
        earlier=tuple(before.carried.messages),
        messages=(*before.messages, *result.messages),
        new_messages=result.messages,
        session=session,
        prefix_changes=result.prefix_changes,
        ledger=Bill() if ledger is None else Bill(ledger.entries),
        cost=Cost() if ledger is None else ledger.cost(),
        cache_missed=() if ledger is None else tuple(ledger.cache_missed),
        notes=() if ledger is None else tuple(ledger.notes),
    )
