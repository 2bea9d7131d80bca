"""What a run gives back."""

from decimal import Decimal
from typing import TYPE_CHECKING, Any, Generic

import msgspec
from typing_extensions import TypeVar

from turnwise.drivers.journal.cache_watch import CacheMissed, CacheSums
from turnwise.drivers.journal.ledger import Ledger, caches_of
from turnwise.drivers.running.watching import WatcherEvent
from turnwise.errors import OutputMismatch
from turnwise.faces.bill import Bill
from turnwise.faces.saying import cost_said, many
from turnwise.faces.schemas import OutputType, problems_of
from turnwise.rules.pricing import Cost
from turnwise.turn.approvals import OneAsk
from turnwise.turn.config import ChildReport, TurnResult
from turnwise.turn.endings import NO_OUTPUT
from turnwise.turn.resuming import asks_of, with_asks
from turnwise.turn.snapshot import SessionSoFar
from turnwise.vocab import Fault, Message, Repair, StopReason, ToolCall, Usage

if TYPE_CHECKING:
    from matplotlib.figure import Figure

REPR_CHARACTERS = 80  # of a result's text


Output = TypeVar("Output", default=str, covariant=True)
WAITS = (
    "calls wait: answer `result.asks` with `approvals=`, other calls of `result.pending` with `results=`, in another run with "
    "`history=result.history`"
)


class RunResult(msgspec.Struct, Generic[Output], frozen=True, kw_only=True):
    """How a run ended. `text` is never empty (unless it waits); `complete` is false where the answer rests on less than the
    model wanted to know, and `why_incomplete` says why in words. `fault` is how the provider failed: `kind`, `status`, `message`.

    `output` is the answer as a value of the `output_type`, or the text without one. It raises OutputMismatch where there is none;
    `output_or_none` is None then. `history` is what the next run goes
    on from: pass it on. It is all that was said, until a run makes room: then summaries and shortened results stand in it
    for what they replaced. `messages` are all of the session, whole, as far as this run was given them (a journal gives all
    of them), `new_messages` those of this run. `pending` are the calls that wait: those of `asks` for an approval
    (run again with `approvals`), the others, of client-side tools, for results (run again with `results={call.id: value}`). A
    run that answers only some of them lists the others again. `unread` are words of the user that came too late, or while
    calls still waited; the history does not hold them. `children` are what sub-agents spent, which is not in `usage` and
    `requests`.
    `prefix_changes` are the requests that began otherwise than the one before, so that the provider's prompt cache missed, why,
    and what that cost; `cache_missed` are those that read less from the cache than it had kept, whatever the reason, and
    `caches` is what all of them read, wrote and saved. `requests` counts HTTP requests, `requests_by_purpose` of each purpose
    ("compact": for a summary);
    `recovery_usage` is the part of `usage` that went into going on with what the output limit had cut, or asking for it once
    more. `ledger` has an entry for each request, those of sub-agents (with a `path`) among them: `ledger.to_rows()` gives plain
    dicts for a data frame, `plot()` draws them; `cost` is their sum in US dollars, with the number of requests whose price nobody
    knows.
    """

    text: str
    stop_reason: StopReason
    complete: bool
    why_incomplete: str = ""
    output_or_none: Output | None
    steps: int
    requests: int
    requests_by_purpose: dict[str, int]
    usage: Usage
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
    messages: tuple[Message, ...]
    new_messages: tuple[Message, ...]
    session: str
    prefix_changes: tuple[str, ...]
    ledger: Bill = Bill()
    cost: Cost = Cost()
    cache_missed: tuple[CacheMissed, ...] = ()

    @property
    def output(self) -> Output:
        """The answer as a value of the run's output type; the text where none was asked for. Raises OutputMismatch where the
        answer does not fit, and where the run waits."""
        if self.output_or_none is None:
            why = WAITS if self.pending else self.why_incomplete or "there is no answer"
            raise OutputMismatch(
                f"the run has no output ({self.stop_reason.value}): {why}. Its text is {_shortened(self.text)!r}",
                text=self.text,
                stop_reason=self.stop_reason,
                requests=self.requests,
                usage=self.usage,
                cost_usd=self.cost_usd,
            )
        return self.output_or_none

    @property
    def caches(self) -> CacheSums:
        """What the providers' caches did, sub-agents' requests included."""
        return caches_of(self.ledger)

    @property
    def cost_usd(self) -> Decimal | None:
        """The whole cost; None where the price of a part of it is not known."""
        return self.cost.exact_usd

    def plot(self) -> "Figure":
        """The bill drawn: requests over time, tokens by kind, what recovery cost. Raises CallerError where matplotlib is not
        installed."""
        from turnwise.faces.bill_drawing import drawn

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
            f"RunResult(text={_shortened(self.text)!r}, stop_reason={self.stop_reason.value!r}, complete={self.complete}{said}, "
            f"requests={self.requests}, cost={self.cost!r})"
        )

    def _repr_markdown_(self) -> str:
        """How a notebook shows it: the answer, what it took, and the repairs folded away."""
        from turnwise.faces.notebook import markdown_of

        return markdown_of(self)


def _shortened(text: str) -> str:
    return text if len(text) <= REPR_CHARACTERS else f"{text[:REPR_CHARACTERS]}…"


class RunFinished(msgspec.Struct, Generic[Output], frozen=True, tag="run_finished"):
    """The last event of `Agent.stream`."""

    result: RunResult[Output]


RunEvent = WatcherEvent | RunFinished[Output]


class RunInterrupted(KeyboardInterrupt):
    """Ctrl-C during `Agent.run_sync`. `result` is what there is: the text so far, the calls that ran, the bill."""

    def __init__(self, result: RunResult[Any]) -> None:
        super().__init__(f"{many(result.requests, 'request')} made, cost {cost_said(result.cost)}")
        self.result = result


def run_result(
    result: TurnResult, *, output: OutputType | None, before: SessionSoFar, session: str, ledger: Ledger | None = None
) -> RunResult[Any]:
    """The turn's result with the answer as a value. One that fits the schema, and that the type's own validators refused
    each time, leaves no output and the result incomplete; a repair says why."""
    value: object = result.text if output is None and result.stop_reason is not StopReason.WAITING else None
    repairs, complete, why = result.repairs, result.complete, result.why_incomplete
    if output is not None and result.output is not None:
        try:
            value = output.parse(result.output)
        except Exception as error:  # noqa: BLE001 (a validator of the user's may raise anything; the turn is over)
            repairs = (*repairs, Repair("output_refused", "answer", "; ".join(problems_of(error))))
            complete, why = False, NO_OUTPUT
    asks = asks_of(result.pending, asks=(*before.asks, *result.asks), messages=before.carried.messages)
    return RunResult(
        text=result.text,
        stop_reason=result.stop_reason,
        complete=complete,
        why_incomplete=why,
        output_or_none=value,
        steps=result.steps,
        requests=result.requests,
        requests_by_purpose=result.requests_by_purpose,
        usage=result.usage,
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
        messages=(*before.messages, *result.messages),
        new_messages=result.messages,
        session=session,
        prefix_changes=result.prefix_changes,
        ledger=Bill() if ledger is None else Bill(ledger.entries),
        cost=Cost() if ledger is None else ledger.cost(),
        cache_missed=() if ledger is None else tuple(ledger.cache_missed),
    )
