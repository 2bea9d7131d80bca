"""What a turn has asked for and spent: its requests, their tokens and cost, what its limits allow, and the last request."""

from collections.abc import Mapping, Sequence
from decimal import Decimal

import msgspec

from turnwise.rules.limits import Spent, most_tool_calls, most_usd
from turnwise.rules.pricing import ZERO, Fate, Priced, PriceRow, add, fate_of_failure, kept_tokens, price_of
from turnwise.rules.provider_tool_costs import billed_apart, searches_asked
from turnwise.rules.reservations import Used, paid
from turnwise.turn.commands import RECOVERY, PlannedCall, Purpose
from turnwise.turn.config import ChildReport, TurnConfig
from turnwise.turn.events import Event, Interrupted, RequestFailed, ResponseReceived, StepPrepared
from turnwise.turn.history import History
from turnwise.turn.limit_pace import Pacing
from turnwise.turn.request_plan import RequestTerms, Sent, is_aside, prefix_changes, sent_as
from turnwise.vocab import NO_USAGE, FinishReason, Request, Response, Usage

# The cost of a turn's requests, as its limits of cost count it.
#
# Some requests have no known price: they broke off, the provider counts nothing, or they have parts that are billed apart. Such a
# request counts at its projection from before it left, or at the cost of its tokens if that is more: unknown is never 0 (promise
# bill:plans). A request whose price is known in part counts at the highest known price. The runner keeps the ledger, which says
# what is known.
NO_ROWS: Mapping[str, PriceRow] = {}


class AtStake(msgspec.Struct, frozen=True, kw_only=True):
    """The current request: its model with its price row, and its projected cost."""

    row: PriceRow
    model: str = ""
    step: int
    projected_usd: Decimal


class Purse(msgspec.Struct, frozen=True, kw_only=True):
    """`projected` counts the requests of unknown price in `usd`, `at_dearest` those with an unknown part. `billed` counts the
    requests of `step` that a plan by step has billed."""

    usd: Decimal = ZERO
    projected: int = 0
    at_dearest: int = 0
    step: int = 0
    billed: int = 0
    at_stake: AtStake | None = None

    @property
    def guessed(self) -> Spent:
        """How many of the requests in `usd` have no price that somebody told."""
        return Spent(projected=self.projected, at_dearest=self.at_dearest)

    def is_billed(self, step: int) -> bool:
        """Whether a plan by step has billed that step."""
        return self.step == step and self.billed > 0

    def stakes(self, at_stake: AtStake) -> "Purse":
        """A request leaves."""
        same = self.step == at_stake.step
        return msgspec.structs.replace(self, at_stake=at_stake, step=at_stake.step, billed=self.billed if same else 0)

    def saw(self, event: Event, *, searches: bool, rows: Mapping[str, PriceRow] = NO_ROWS) -> "Purse":
        """Take what an event tells about the price of the current request, which asked for `searches` or not. `rows` are those of
        other models, which may have done a part of it."""
        if self.at_stake is None:
            return self
        stake = self.at_stake
        match event:
            case ResponseReceived(response=response):
                is_whole = response.fault is None and response.finish is not FinishReason.CUT
                fate = "whole" if is_whole else "broken"
                apart = billed_apart(response, model=stake.model, searches=searches)
                return self._pays(stake, response.usage, fate=fate, apart=apart, rows=rows)
            case RequestFailed(sent=False):
                return msgspec.structs.replace(self, at_stake=None)
            case RequestFailed(partial=partial, fault=fault, is_answer=is_answer):
                usage = _usage_of(partial)
                fate = fate_of_failure(fault, is_answer=is_answer, has_content=partial is not None, usage=usage)
                return self._pays(stake, usage, fate=fate, rows=rows)
            case Interrupted(partial=partial):
                return self._pays(stake, _usage_of(partial), fate="broken", rows=rows)
            case _:
                return self

    def pays_unknown(self, usd: Decimal) -> "Purse":
        """A sub-agent of unknown cost is charged its full share."""
        return msgspec.structs.replace(self, usd=add(self.usd, usd), projected=self.projected + 1)

    def _pays(
        self, stake: AtStake, usage: Usage | None, *, fate: Fate, rows: Mapping[str, PriceRow], apart: str = ""
    ) -> "Purse":
        price = price_of(usage, row=stake.row, fate=fate, billed_in_step=self.billed, apart=apart, row_of=rows.get)
        guessed, dearest = 0, 0
        if isinstance(price, Priced) and price.most_usd is not None:
            usd, dearest = max(price.most_usd, price.usd), 1
        elif isinstance(price, Priced):
            usd = price.usd
        else:
            counted = (
                None if usage is None else price_of(usage, row=stake.row, billed_in_step=self.billed, row_of=rows.get)
            )
            known = (counted.most_usd or counted.usd) if isinstance(counted, Priced) else ZERO
            usd, guessed = max(stake.projected_usd, known), 1
        return msgspec.structs.replace(
            self,
            usd=add(self.usd, usd),
            projected=self.projected + guessed,
            at_dearest=self.at_dearest + dearest,
            billed=self.billed + (stake.row.plan == "step" and usd > 0),
            at_stake=None,
        )


def _usage_of(partial: Response | None) -> Usage | None:
    return None if partial is None else partial.usage


NOTHING_PREPARED = StepPrepared()


class Spending(msgspec.Struct, kw_only=True):
    """`step` is the number of the current step. `prepared` is what the last request asked for, `asking` what it allowed."""

    step: int = 0
    requests: int = 0
    excused: int = 0  # refusals among them that were corrected: no limit counts them
    purposes: dict[str, int] = {}  # how many of them for each purpose
    usage: Usage = NO_USAGE
    recovery_usage: Usage = NO_USAGE  # the part of it that went into requests of RECOVERY
    children: tuple[ChildReport, ...] = ()
    used: Used = Used()  # of the bounds on the tree
    also_spent: Spent = Spent()  # what limits count that no other field has
    pacing: Pacing = Pacing()
    purse: Purse = Purse()
    prepared: StepPrepared = NOTHING_PREPARED
    asking: RequestTerms | None = None

    # the last request
    ordered: Purpose = "step"
    sent: Sent | None = None
    has_left: bool = True  # it left, or may still leave
    left_before: Sent | None = None  # the last request before it that left
    purse_before: Purse = Purse()
    changes_before: int = 0  # of `prefix_changes`
    changed_before: bool = False  # it is the first one since room was made
    prefix_changes: list[str] = []
    kept_tokens: int = 0  # of the prompt of the last answered request, in the provider's cache
    has_hit: bool = False  # some part of a prompt has been read from there

    @classmethod
    def behind(cls, sent: Sent | None, *, changed: bool) -> "Spending":
        """For a turn after this request, the session's last; `changed` as in `Carried`."""
        return cls(left_before=sent, has_left=False, changed_before=changed)

    @property
    def last_sent(self) -> Sent | None:
        """The session's last request that left."""
        return self.sent if self.has_left else self.left_before

    def spent_in(self, steps: int) -> Spent:
        """What so many steps have spent, including their children."""
        usage, requests, usd = self.usage, self.requests - self.excused, self.purse.usd
        for child in self.children:
            usage, requests = usage + child.usage, requests + child.requests
            usd = usd if child.charged_usd is None else add(usd, child.charged_usd)
        spent = self.pacing.spent(usage, steps=steps, requests=requests)
        return msgspec.structs.replace(spent, cost_usd=usd) + self.purse.guessed + self.also_spent

    def see(self, event: Event, *, config: TurnConfig, messages: int) -> None:
        """Take what an event tells about time, tokens and the price of the current request. A response belongs to a prompt of so
        many `messages`."""
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
        """A request leaves; its last `own` messages are not part of the history."""
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
            before, now=self.sent, compacted=compacted, traits=config.traits, marks_cache=marks_cache
        )
        if changes:
            self.prefix_changes += [f"request {self.requests}: {change}" for change in changes]
        self.purposes[purpose] = self.purposes.get(purpose, 0) + 1

    def take_back(self) -> None:
        """The current request never left: there was no connection, or its endpoint is left alone for a while."""
        self.requests -= 1
        self.purse = self.purse_before
        self.purposes[self.ordered] -= 1
        if not self.purposes[self.ordered]:
            del self.purposes[self.ordered]
        self.has_left = False
        del self.prefix_changes[self.changes_before :]

    def excuse(self) -> None:
        """The current request was refused for something that the next one leaves out."""
        self.excused += 1

    def count(self, usage: Usage, *, config: TurnConfig) -> None:
        """Count the tokens of the current request."""
        self.usage += usage
        if usage.cache_read_tokens or usage.cache_write_tokens or self.kept_tokens:
            self._count_cached(usage, config=config)
        asked = None if self.asking is None else self.asking.purpose
        if asked in RECOVERY or self.ordered == "retry":
            self.recovery_usage += usage

    def _count_cached(self, usage: Usage, *, config: TurnConfig) -> None:
        """Say what a break of the prefix cost, if the provider has cached a part of it."""
        usage = usage.last_sampling
        lost = min(self.kept_tokens, usage.input_tokens) - usage.cache_read_tokens
        if lost > 0 and len(self.prefix_changes) > self.changes_before:
            self.prefix_changes[self.changes_before] += f": {lost:,} tokens read anew"
        self.has_hit = self.has_hit or usage.cache_read_tokens > 0
        is_asked = config.marks_cache and config.cache != "off"
        kept = kept_tokens(usage, is_asked=is_asked, has_hit=self.has_hit)
        # Cached content from before a request that caches none of its own messages is still there after it.
        is_apart = is_asked and self._stands_apart(config)
        self.kept_tokens = max(kept, self.kept_tokens) if is_apart else kept

    def _stands_apart(self, config: TurnConfig) -> bool:
        """No later request reads what is cached of the current request: it is a summary's, a forced answer's, or a
        continuation's."""
        if self.sent is None or self.asking is None:
            return False
        return is_aside(self.sent.request, purpose=self.asking.purpose, before=None, plain=config.tool_choice)

    # tools and children

    def count_calls(self, number: int) -> None:
        """So many calls have been given to their tools; fewer if some did not start."""
        self.also_spent += Spent(tool_calls=number)

    def take_children(self, children: Sequence[ChildReport]) -> None:
        """Count children that were running when the turn was interrupted."""
        self.children += tuple(children)

    def pay_for(self, children: Sequence[ChildReport], *, plans: Mapping[str, PlannedCall]) -> None:
        """Count children whose calls (by id) have ended."""
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
            if child.stop_reason is None and plan is not None:  # it may have made as many as it was allowed
                self.also_spent += Spent(tool_calls=most_tool_calls(plan.grant) or 0)
            share_usd = most_usd(None if plan is None else plan.grant)
            if child.charged_usd is None and share_usd:
                self.purse = self.purse.pays_unknown(share_usd)
