"""What a turn knows: its history, its counts, the request and the calls at hand."""

from collections.abc import Sequence

import msgspec

from turnwise.rules.cache_losses import kept_tokens
from turnwise.rules.history import error_result
from turnwise.rules.limits import Spent
from turnwise.rules.permission_facts import CallFacts
from turnwise.rules.recovery import Continuing, Settled
from turnwise.rules.subagents import Used
from turnwise.turn.approvals import Approval, OneAsk
from turnwise.turn.asking import Asking, Sent, is_aside
from turnwise.turn.calls import Adopted
from turnwise.turn.commands import RECOVERY, Command, PlannedCall, Purpose, SendRequest
from turnwise.turn.config import ChildReport, ToolOffer, TurnConfig, TurnResult
from turnwise.turn.endings import Checking, in_call_order
from turnwise.turn.events import StepPrepared
from turnwise.turn.guarding import Guarding
from turnwise.turn.pacing import Pacing
from turnwise.turn.programs import Programs
from turnwise.turn.purse import Purse
from turnwise.turn.resuming import joined_results, undecided, under_known_ids, with_asks
from turnwise.turn.room import Room
from turnwise.turn.transitions import State
from turnwise.turn.weighing import Barred, Weighing
from turnwise.vocab import (
    NO_USAGE,
    Message,
    Repair,
    Request,
    Response,
    Text,
    ToolCall,
    ToolResult,
    ToolSpec,
    Usage,
    calls_of,
)
from turnwise.vocab.hidden_characters import says_something


class Books(msgspec.Struct, kw_only=True):
    """The plain data of a turn, and how its history is kept. The floors above decide."""

    config: TurnConfig
    messages: list[Message]
    added: list[Message]
    call_ids: set[str]
    offers: dict[str, ToolOffer]
    specs: tuple[ToolSpec, ...]  # of these, the very same in each request
    repairs: list[Repair]
    room: Room
    state: State = State.READY
    step: int = 0
    requests: int = 0
    purposes: dict[str, int] = {}  # of these, how many of each
    usage: Usage = NO_USAGE
    recovery_usage: Usage = NO_USAGE  # the part of it that went into requests of RECOVERY
    reasonings: list[str] = []

    # the request at hand, and the next one
    asking: Asking | None = None
    request: Request | None = None
    prepared: StepPrepared = StepPrepared()
    purpose: Purpose = "step"
    note: str = ""  # a user-role text for the next request only
    noted: str = ""  # that of the request at hand
    sent: Sent | None = None
    has_left: bool = True  # it did, or may yet
    left_before: Sent | None = None  # the last request before it that did
    changes_before: int = 0  # of `prefix_changes`
    changed_before: bool = False  # it is the first one since room was made
    prefix_changes: list[str] = []
    kept_tokens: int = 0  # of the prompt of the last request that was answered, in the provider's cache
    has_hit: bool = False  # something of a prompt has been read from there
    paused: bool = False  # the last message is the provider's paused content
    said: str = ""  # the text of paused responses, to which the next one belongs
    said_lost: bool = False  # a piece of it did not arrive

    # the calls of the response at hand, as they stand in history
    has_called: bool = False  # a step of this turn had calls
    calls: tuple[ToolCall, ...] = ()
    planned: tuple[PlannedCall, ...] = ()  # those on their way to run
    facts: dict[str, CallFacts] = {}
    asks: tuple[OneAsk, ...] = ()  # that wait for an answer, or were left for later
    approved: tuple[Approval, ...] = ()  # answers that the turn was started with
    pending: tuple[ToolCall, ...] = ()
    keeps_waiting: bool = False
    known_as: dict[str, str] = {}  # of these, the ids that the session knows, where healing changed them
    results: dict[str, ToolResult] = {}
    last_text: str = ""  # what the model said beside its last calls
    guarding: Guarding = Guarding()
    pacing: Pacing = Pacing()
    purse: Purse = Purse()
    purse_before: Purse = Purse()  # the request at hand
    due: tuple[PlannedCall, ...] = ()  # programs that run after the plain calls at hand
    programs: Programs | None = None  # those at hand; then `calls` and what belongs to them are a program's

    children: tuple[ChildReport, ...] = ()
    used: Used = Used()  # of the bounds on the tree
    also_spent: Spent = Spent()  # what limits count that stands in no other book
    inbox: tuple[Message, ...] = ()  # words in mid-turn that no request carries yet
    at_hand: Command | None = None  # the command at hand
    held: SendRequest | None = None  # a request that waits for the hooks before it

    weighing: Weighing | None = None  # a cut response whose calls the rules are asked about
    barred: tuple[Barred, ...] = ()  # its calls that they deny
    continuing: Continuing | None = None  # a cut response that is not taken in yet
    cut_asking: Asking | None = None  # what gave it
    asked_again: Settled | None = None  # one that is asked for once more, with more room
    eaten: int = 0  # responses in a row of which reasoning left nothing
    empties: int = 0  # empty responses in a row
    checking: Checking | None = None  # an answer that the wanted type looks at
    corrections: int = 0
    correcting: bool = False
    unfit: str = ""  # the model's last answer, which a correction was asked for
    extra_used: bool = False  # the one request beyond the cap
    result: TurnResult | None = None

    @property
    def _is_forced(self) -> bool:
        return self.asking is not None and self.asking.forced

    def _count(self, response: Response | None) -> None:
        if response is None or response.usage is None:
            return
        self.usage += response.usage
        if response.usage.cache_read_tokens or response.usage.cache_write_tokens or self.kept_tokens:
            self._count_cached(response.usage)
        if self.asking is not None and self.asking.purpose in RECOVERY:
            self.recovery_usage += response.usage
        self.config = self.room.counted(response.usage, asking=self.asking, config=self.config)

    def _count_cached(self, usage: Usage) -> None:
        """Say what a break of the prefix cost, where the provider has kept something of it."""
        lost = min(self.kept_tokens, usage.input_tokens) - usage.cache_read_tokens
        if lost > 0 and len(self.prefix_changes) > self.changes_before:
            self.prefix_changes[self.changes_before] += f": {lost:,} tokens read anew"
        self.has_hit = self.has_hit or usage.cache_read_tokens > 0
        is_asked = self.config.marks_cache and self.config.cache != "off"
        kept = kept_tokens(usage, is_asked=is_asked, has_hit=self.has_hit)
        # What was kept before a request that writes nothing of its messages is still there after it.
        is_apart = is_asked and self._stands_apart
        self.kept_tokens = max(kept, self.kept_tokens) if is_apart else kept

    @property
    def _stands_apart(self) -> bool:
        """The request at hand is one that no later request reads of what is kept of it: a summary's, a forced answer's, a
        continuation's."""
        if self.sent is None or self.asking is None:
            return False
        plain = self.config.tool_choice
        return is_aside(self.sent.request, purpose=self.asking.purpose, before=None, plain=plain)

    # history

    def _append(self, message: Message) -> None:
        self.messages.append(message)
        self.added.append(message)
        self.paused = False

    def _record(self, adopted: Adopted, *, calls_answer: str) -> None:
        """Keep a response whose calls, if any, do not run."""
        if adopted.message.parts:
            self._append(adopted.message)
        if adopted.calls:
            results = [error_result(call, text=calls_answer) for call in calls_of(adopted.message)]
            self._append(Message("tool", tuple(results)))

    def _close_calls(self, reported: Sequence[ToolResult], *, missing: str) -> None:
        """Give each call its one result, in call order; those of pending calls are handed in later."""
        calls: Sequence[ToolCall] = self.calls
        if self.pending:
            waiting = {call.id for call in self.pending}
            calls = [call for call in calls if call.id not in waiting]
        results, repairs = in_call_order(calls, own=self.results, reported=reported, missing=missing)
        self.repairs += repairs
        self.calls, self.results = (), {}
        self.guarding, told = self.guarding.close(results, offers=self.offers)
        if told:
            self._append_results(Message("tool", tuple(self.room.enter(results, told=told, config=self.config))))

    def _left_waiting(self) -> tuple[ToolCall, ...]:
        """The calls at hand that wait on, whatever ends the turn: those that are the client's, those that a person left for
        later, and those that an earlier run left and nobody has decided. Their time is not the turn's, so no end of it answers
        them. An ask that is before the approver is not left: it ends with the turn."""
        if not self.keeps_waiting:
            return ()
        left = undecided(self.approved) | {call.id for call in self.pending}
        return tuple([call for call in self.calls if call.id in left and call.id not in self.results])

    def _known(self, call: ToolCall) -> ToolCall:
        """The call as the session knows it."""
        return msgspec.structs.replace(call, id=self.known_as[call.id]) if call.id in self.known_as else call

    def _mark_asked(self) -> None:
        """Let the history say what was shown of the calls that wait for a person (promise wait:ask): nobody else can tell that
        they have not run."""
        waiting = {call.id for call in self.pending}
        self.asks = tuple([ask for ask in self.asks if ask.call.id in waiting])
        if self.asks and self.keeps_waiting:
            self.messages[:] = with_asks(self.messages, asks=self.asks)
            self.added[:] = with_asks(self.added, asks=self.asks)

    def _append_results(self, message: Message) -> None:
        """Behind those that were handed in for other calls of the same response they are one message with them."""
        if self.messages[-1].role != "tool":
            self._append(message)
            self.added[-1] = under_known_ids(message, known_as=self.known_as)
            return
        self.added.append(under_known_ids(message, known_as=self.known_as))
        handed_in = self.messages.pop()
        self.room.forget_last(self.messages)
        self.messages.append(joined_results(handed_in, message, asked=self.messages[-1]))

    def _settle_pause(self) -> None:
        """A paused response that nothing will continue keeps its text only: what the provider had begun cannot be ended."""
        if not self.paused:
            return
        self.paused = False
        parts = self.messages[-1].parts
        kept = tuple([part for part in parts if isinstance(part, Text) and says_something(part.text)])
        if kept == parts:
            return
        self.messages.pop()
        self.added.pop()
        self.room.forget_last(self.messages)
        if kept:
            self._append(Message("assistant", kept))

    def _repair(self, kind: str, where: str, what: str) -> None:
        self.repairs.append(Repair(kind, where, what))
