"""What is told of one client's request: to the ledger before anything leaves, and of everything that came of it."""

import contextlib
from collections.abc import Generator, Mapping
from functools import partial
from pathlib import Path

import msgspec

from turnwise.drivers.clock import Clock, SystemClock
from turnwise.drivers.journal.direct_ledger import LedgerLine, gateway_session
from turnwise.drivers.journal.journal import journal_path
from turnwise.drivers.journal.ledger import Ledger, LedgerEntry, ReceivedResponse, ended_entry
from turnwise.drivers.journal.ledger_thread import LedgerThread
from turnwise.drivers.journal.prices import NO_PRICES, Prices, prices_of_layers
from turnwise.drivers.settings.settings import read_layers
from turnwise.errors import JournalFailed
from turnwise.faces.gateway.calls import ClientCall
from turnwise.turn.commands import Purpose
from turnwise.vocab import Fault, FaultKind, FinishReason, Message, Response, Usage
from turnwise.wire.json_fields import UNREADABLE, is_object, read_fields
from turnwise.wire.openai_chat.usage import counted

# Nothing leaves that the ledger does not know: the provider would bill what nobody can find again.
NO_LEDGER = Fault(
    kind=FaultKind.SERVER,
    message="the gateway cannot write its ledger, so it sent nothing; its log says why",
    status=503,
    should_retry=False,
)


class AccountMeans(msgspec.Struct, frozen=True, kw_only=True):
    """Where accounts are written. Without a `ledger` nothing is kept: for services that are tried out."""

    ledger: LedgerThread | None = None
    prices: Prices = NO_PRICES
    clock: Clock = msgspec.field(default_factory=SystemClock)


class SentRequest:
    """One request that goes upstream. `ended` is called once, whatever became of it."""

    def __init__(self, account: "Account", *, entry: LedgerEntry, line: LedgerLine | None, asked_hour: bool) -> None:
        self._account = account
        self._entry = entry
        self._line = line
        self._asked_hour = asked_hour

    def ended(self, received: ReceivedResponse | None) -> None:
        """None: no byte of it has left."""
        self._account.note(self._entry, received, line=self._line, asked_hour=self._asked_hour)


class Account:
    """Of one request of a client, with all that goes upstream for it."""

    def __init__(self, call: ClientCall, *, means: AccountMeans) -> None:
        self._call = call
        self._means = means
        self._books = Ledger(root_session=gateway_session(call.client), root_turn=call.id)
        self._number = 0

    async def sends(
        self, purpose: Purpose, *, provider: str, model: str, sent_bytes: int, asked_hour: bool = False
    ) -> SentRequest | Fault:
        """On return the request stands in the ledger, and may leave; or it must not."""
        number = self._number + 1
        if number > 1 and purpose == "step":
            purpose = "retry"  # another upstream's turn
        entry = LedgerEntry(
            session=self._books.root_session,
            turn=self._books.root_turn,
            root_session=self._books.root_session,
            root_turn=self._books.root_turn,
            number=number,
            step=1,
            purpose=purpose,
            retry_of="step" if purpose == "retry" else None,
            provider=provider,
            model=model,
            started=self._means.clock.now(),
            sent_bytes=sent_bytes,
        )
        line = None
        if self._means.ledger is not None:
            try:
                line = await self._means.ledger.leaves(entry)
            except JournalFailed:
                return NO_LEDGER
        self._number = number
        return SentRequest(self, entry=entry, line=line, asked_hour=asked_hour)

    def note(
        self, entry: LedgerEntry, received: ReceivedResponse | None, *, line: LedgerLine | None, asked_hour: bool
    ) -> None:
        """What came of a request; None if it never left."""
        if received is None:
            self._number -= 1
        if (ledger := self._means.ledger) is None or line is None:
            return
        if received is None:
            ledger.stayed(line)
        else:
            now = self._means.clock.now()
            ledger.became(line, partial(self._completed, entry, received, ended=now, asked_hour=asked_hour))

    def _completed(
        self, entry: LedgerEntry, received: ReceivedResponse, *, ended: float, asked_hour: bool
    ) -> LedgerEntry:
        """In the ledger's thread, for one request after the other."""
        found = ended_entry(
            entry,
            received,
            ended=ended,
            row=self._means.prices.find(entry.model, profile=entry.provider, at_s=entry.started),
            billed_in_step=self._books.billed_in_step(entry),
            asked_hour=asked_hour,
        )
        self._books.put(found)
        return found


@contextlib.contextmanager
def open_accounts(env: Mapping[str, str], *, clock: Clock) -> Generator[AccountMeans]:
    """Accounts in the user's journal, with the user's prices. Raises CallerError for files that cannot be used."""
    # A project's file may say what a model costs for runs in its folder: a server has none.
    layers = [layer for layer in read_layers(Path.home(), env=env) if layer.source == "user"]
    ledger = LedgerThread(journal_path(env), clock=clock)
    try:
        yield AccountMeans(ledger=ledger, prices=prices_of_layers(layers, env=env), clock=clock)
    finally:
        ledger.close()


class _OnlyInput(msgspec.Struct, forbid_unknown_fields=True):
    """Usage as embeddings have it: nothing is written. Source: OpenAI's reference, "Create embeddings"."""

    prompt_tokens: int
    total_tokens: int


def received_body(body: bytes | Fault) -> ReceivedResponse | None:
    """What came back of a request whose answer is passed on unread; None if it never left."""
    if isinstance(body, Fault):
        if body.kind is FaultKind.UNREACHABLE:
            return None
        return ReceivedResponse(fault=body, answered=body.status is not None, is_answer=body.status is not None)
    response = Response(message=Message("assistant", ()), finish=FinishReason.STOP, usage=_usage_in(body))
    return ReceivedResponse(response=response, received_bytes=len(body))


def _usage_in(body: bytes) -> Usage | None:
    with contextlib.suppress(*UNREADABLE):
        said = read_fields(body).get("usage")
        if said is not None and is_object(said):
            with contextlib.suppress(msgspec.ValidationError):
                only = msgspec.json.decode(said, type=_OnlyInput)
                if only.prompt_tokens == only.total_tokens >= 0:
                    return Usage(input_tokens=only.prompt_tokens, provider=bytes(said).decode())
            return counted(bytes(said))
    return None
