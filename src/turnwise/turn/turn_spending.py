"""What a turn has asked for and spent: its requests, their tokens and cost, what its limits allow, and what was last sent."""

from collections.abc import Mapping, Sequence

import msgspec

from turnwise.rules.cache_losses import kept_tokens
from turnwise.rules.limits import Spent, most_tool_calls, most_usd
from turnwise.rules.pricing import add
from turnwise.rules.provider_tool_costs import searches_asked
from turnwise.rules.subagents import Used, paid
from turnwise.turn.commands import RECOVERY, PlannedCall, Purpose
from turnwise.turn.config import ChildReport, TurnConfig
from turnwise.turn.cost_so_far import AtStake, Purse
from turnwise.turn.events import Event, StepPrepared
from turnwise.turn.history import History
from turnwise.turn.limit_pace import Pacing
from turnwise.turn.request_plan import RequestTerms, Sent, is_aside, prefix_changes, sent_as
from turnwise.vocab import NO_USAGE, Request, Usage

NOTHING_PREPARED = StepPrepared()


class Spending(msgspec.Struct, kw_only=True):
    """`step` is the number of the step at hand; `prepared` what was asked for in the last request, `asking` what that allowed."""

    step: int = 0
    requests: int = 0
    excused: int = 0  # of these, refusals that were mended: no limit counts them
    purposes: dict[str, int] = {}  # of these, how many of each
    usage: Usage = NO_USAGE
    recovery_usage: Usage = NO_USAGE  # the part of it that went into requests of RECOVERY
    children: tuple[ChildReport, ...] = ()
    used: Used = Used()  # of the bounds on the tree
    also_spent: Spent = Spent()  # what limits count that stands in no other book
    pacing: Pacing = Pacing()
    purse: Purse = Purse()
    prepared: StepPrepared = NOTHING_PREPARED
    asking: RequestTerms | None = None

    # the last request
    ordered: Purpose = "step"
    sent: Sent | None = None
    has_left: bool = True  # it did, or may yet
    left_before: Sent | None = None  # the last request before it that did
    purse_before: Purse = Purse()
    changes_before: int = 0  # of `prefix_changes`
    changed_before: bool = False  # it is the first one since room was made
    prefix_changes: list[str] = []
    kept_tokens: int = 0  # of the prompt of the last request that was answered, in the provider's cache
    has_hit: bool = False  # something of a prompt has been read from there

    @classmethod
    def behind(cls, sent: Sent | None, *, changed: bool) -> "Spending":
        """Of a turn before which the session's last request was this one; `changed` as `Carried` has it."""
        return cls(left_before=sent, has_left=False, changed_before=changed)

    @property
    def last_sent(self) -> Sent | None:
        """The session's last request that left."""
        return self.sent if self.has_left else self.left_before

    def spent_in(self, steps: int) -> Spent:
        """What so many steps have spent, those of their children included."""
        usage, requests, usd = self.usage, self.requests - self.excused, self.purse.usd
        for child in self.children:
            usage, requests = usage + child.usage, requests + child.requests
            usd = usd if child.charged_usd is None else add(usd, child.charged_usd)
        spent = self.pacing.spent(usage, steps=steps, requests=requests)
        return msgspec.structs.replace(spent, cost_usd=usd) + self.purse.guessed + self.also_spent

    def see(self, event: Event, *, config: TurnConfig, messages: int) -> None:
        """What an event tells of time, tokens and the price of the request at hand; a response is one to so many `messages`."""
        self.pacing = self.pacing.saw(event, messages=messages)
        if self.purse.at_stake is not None:
            asks = searches_asked(config.extra, family=config.family)
            self.purse = self.purse.saw(event, searches=asks, rows=config.prices)

    # steps

    def begin_step(self, pacing: Pacing) -> None:
        self.step += 1
        self.pacing = pacing

    def take_back_step(self) -> None:
        """The limits do not allow the step that has just begun."""
        self.step -= 1

    def pace(self, pacing: Pacing) -> None:
        self.pacing = pacing

    def prepare(self, prepared: StepPrepared) -> None:
        self.prepared = prepared

    def ask(self, asking: RequestTerms) -> None:
        self.asking = asking

    # requests

    def send(
        self,
        request: Request,
        *,
        purpose: Purpose,
        own: int,
        stake: AtStake | None,
        history: History,
        config: TurnConfig,
    ) -> None:
        """A request leaves; its last `own` messages are no part of the history."""
        self.requests += 1
        self.purse_before = self.purse
        if stake is not None:
            self.purse = self.purse.stakes(stake)
        if config.limits is not None:
            self.pacing = self.pacing.weigh_less(history)
        before = self.last_sent
        compacted = history.changed or (self.changed_before and not self.has_left)
        self.left_before, self.has_left, self.changes_before = before, True, len(self.prefix_changes)
        self.changed_before, self.ordered = compacted, purpose
        self.sent = sent_as(request, own=own, config=config)
        marks_cache = config.marks_cache and request.cache is not None
        changes = prefix_changes(
            before, now=self.sent, compacted=compacted, family=config.family, marks_cache=marks_cache
        )
        if changes:
            self.prefix_changes += [f"request {self.requests}: {change}" for change in changes]
        self.purposes[purpose] = self.purposes.get(purpose, 0) + 1

    def take_back(self) -> None:
        """The request at hand never left: there was no connection, or its endpoint is left alone for a while."""
        self.requests -= 1
        self.purse = self.purse_before
        self.purposes[self.ordered] -= 1
        if not self.purposes[self.ordered]:
            del self.purposes[self.ordered]
        self.has_left = False
        del self.prefix_changes[self.changes_before :]

    def excuse(self) -> None:
        """The request at hand was refused for something that the next one does without."""
        self.excused += 1

    def count(self, usage: Usage, *, config: TurnConfig) -> None:
        """Tokens of the request at hand."""
        self.usage += usage
        if usage.cache_read_tokens or usage.cache_write_tokens or self.kept_tokens:
            self._count_cached(usage, config=config)
        asked = None if self.asking is None else self.asking.purpose
        if asked in RECOVERY or self.ordered == "retry":
            self.recovery_usage += usage

    def _count_cached(self, usage: Usage, *, config: TurnConfig) -> None:
        """Say what a break of the prefix cost, where the provider has kept something of it."""
        usage = usage.last_sampling
        lost = min(self.kept_tokens, usage.input_tokens) - usage.cache_read_tokens
        if lost > 0 and len(self.prefix_changes) > self.changes_before:
            self.prefix_changes[self.changes_before] += f": {lost:,} tokens read anew"
        self.has_hit = self.has_hit or usage.cache_read_tokens > 0
        is_asked = config.marks_cache and config.cache != "off"
        kept = kept_tokens(usage, is_asked=is_asked, has_hit=self.has_hit)
        # What was kept before a request that writes nothing of its messages is still there after it.
        is_apart = is_asked and self._stands_apart(config)
        self.kept_tokens = max(kept, self.kept_tokens) if is_apart else kept

    def _stands_apart(self, config: TurnConfig) -> bool:
        """The request at hand is one that no later request reads of what is kept of it: a summary's, a forced answer's, a
        continuation's."""
        if self.sent is None or self.asking is None:
            return False
        return is_aside(self.sent.request, purpose=self.asking.purpose, before=None, plain=config.tool_choice)

    # tools and children

    def count_calls(self, number: int) -> None:
        """So many calls have been given to their tools; fewer where they did not start."""
        self.also_spent += Spent(tool_calls=number)

    def take_children(self, children: Sequence[ChildReport]) -> None:
        """Children that were at work when the turn was interrupted."""
        self.children += tuple(children)

    def pay_for(self, children: Sequence[ChildReport], *, plans: Mapping[str, PlannedCall]) -> None:
        """Children that their calls, by id, have brought to their end."""
        self.children = (*self.children, *children)
        for child in children:
            plan = plans.get(child.call_id)
            self.used = paid(
                self.used,
                subagents=child.subagents,
                requests=child.requests,
                place=None if plan is None else plan.place,
                has_ended=child.stop_reason is not None,
            )
            self.also_spent += child.also_spent
            if child.stop_reason is None and plan is not None:  # it may have made as many as it might
                self.also_spent += Spent(tool_calls=most_tool_calls(plan.grant) or 0)
            share_usd = most_usd(None if plan is None else plan.grant)
            if child.charged_usd is None and share_usd:
                self.purse = self.purse.pays_unknown(share_usd)
