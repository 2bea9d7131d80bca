"""What a turn has asked for and spent: its requests, their tokens and cost, what its limits allow, and the last request."""

from collections.abc import Mapping, Sequence
from decimal import Decimal
from math import floor

import msgspec
from msgspec.structs import replace

from turnwise.rules.limits import (
    ANSWER_TOKENS,
    BYTES_A_TOKEN,
    LEAST_ANSWER_TOKENS,
    RESULT_TOKENS,
    Forecast,
    Leaf,
    Limit,
    MaxSteps,
    Pace,
    Spent,
    binding,
    forecast,
    is_over,
    kept_s,
    most_tool_calls,
    most_usd,
    output_tokens_left,
    pace,
    pace_of_steps,
    prompt_tokens_of,
)
from turnwise.rules.pricing import (
    ZERO,
    Fate,
    Priced,
    PriceRow,
    add,
    fate_of_failure,
    kept_tokens,
    price_of,
    projected_usd,
)
from turnwise.rules.prompt_room import message_bytes
from turnwise.rules.provider_tool_costs import billed_apart, searches_asked
from turnwise.rules.reservations import Used, paid
from turnwise.turn.config import ChildReport, TurnConfig
from turnwise.turn.events import (
    RECOVERY,
    Asked,
    Event,
    Interrupted,
    MessageArrived,
    PlannedCall,
    Purpose,
    RequestFailed,
    ResponseReceived,
    RulesAdded,
    StepPrepared,
    ToolsFinished,
    TurnStarted,
)
from turnwise.turn.history import History
from turnwise.turn.request_plan import RequestTerms, Sent, is_aside, prefix_changes, sent_as
from turnwise.vocab import NO_USAGE, FinishReason, Message, Request, Response, Usage

# What the limits still allow: one more step, only the answer, or nothing (promise end:budget).


class NextRequest(msgspec.Struct, frozen=True, kw_only=True):
    """The next request as the limits see it: what will be spent before its step ends, the size of its prompt, the price row of
    its model if a limit of cost needs it, and whether a plan that bills by step has already billed this step."""

    spent: Spent
    prompt_tokens: int
    price: PriceRow | None = None
    is_billed: bool = False


class Pacing(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The turn's costs so far, and what they allow the current step. Times are seconds since the turn began, as the runner
    reports them. A journal without times has none, and then no limit of time holds."""

    pace: Pace = "go"
    bound: Leaf | None = None  # the limit because of which a step is not a `go`
    at_s: float = 0.0
    step_s: float = 0.0  # when the current step began
    longest_step_s: float = 0.0
    longest_request_s: float = 0.0
    longest_output_tokens: int = 0
    last: Usage = NO_USAGE  # of the last response with a usage
    weighed: int = 0  # messages in its prompt
    calls_end_s: float | None = None  # when the current calls must be over, because the answer comes after them

    def saw(self, event: Event, *, messages: int) -> "Pacing":
        """Take what an event tells about time and tokens. A response belongs to a prompt of so many `messages`."""
        if type(event) is ResponseReceived:
            return self._took_in(event.response.usage, at_s=event.at_s, messages=messages)
        if type(event) is ToolsFinished:
            return self if event.at_s <= self.at_s else replace(self, at_s=event.at_s)
        match event:
            case RequestFailed(partial=partial):
                usage = None if partial is None else partial.usage
                return self._took_in(usage, at_s=event.at_s, messages=messages)
            case TurnStarted() | Interrupted() | MessageArrived() | RulesAdded():
                return self  # the current command continues, and so does its time
            case Asked(at_s=at_s) if at_s > self.at_s:
                # A person's time says nothing about the length of the next step.
                return replace(self, at_s=at_s, step_s=self.step_s + at_s - self.at_s)
            case _:
                return self if event.at_s <= self.at_s else replace(self, at_s=event.at_s)

    def _took_in(self, usage: Usage | None, *, at_s: float, messages: int) -> "Pacing":
        longest_s = max(self.longest_request_s, at_s - self.at_s)
        at_s = max(self.at_s, at_s)
        if usage is None or not usage.input_tokens or "output_tokens" in usage.untold:
            return replace(self, at_s=at_s, longest_request_s=longest_s)
        return replace(
            self,
            at_s=at_s,
            longest_request_s=longest_s,
            last=usage.last_sampling,
            weighed=messages,
            longest_output_tokens=max(self.longest_output_tokens, usage.output_tokens),
        )

    def weigh_less(self, history: History) -> "Pacing":
        """The prompt's size after old messages gave way: the provider's count of the last prompt no longer applies."""
        if not history.changed:
            return self
        last = Usage(input_tokens=self.prompt_tokens(history))
        return replace(self, last=last, weighed=len(history.messages))

    def spent(self, usage: Usage, *, steps: int, requests: int) -> Spent:
        return Spent(
            steps=steps,
            requests=requests,
            input_tokens=usage.input_tokens,
            output_tokens=usage.output_tokens,
            elapsed_s=self.at_s,
        )

    def begin_plain_step(self, most: int, *, steps: int) -> "Pacing":
        """Judge the next step after so many steps, if the only limit is that there may be `most` steps."""
        longest = max(self.longest_step_s, self.at_s - self.step_s) if steps else 0.0
        allowed = pace_of_steps(most, steps=steps)
        bound = None if allowed == "go" else MaxSteps(most)
        return replace(self, step_s=self.at_s, longest_step_s=longest, pace=allowed, bound=bound)

    def begin_step(self, config: TurnConfig, *, coming: NextRequest) -> "Pacing":
        """Judge the next step."""
        longest = max(self.longest_step_s, self.at_s - self.step_s) if coming.spent.steps else 0.0
        begun = replace(self, step_s=self.at_s, longest_step_s=longest)
        return begun.judge(config, coming=coming)

    def judge(self, config: TurnConfig, *, coming: NextRequest) -> "Pacing":
        """Judge the step that has begun."""
        limit = _limit_of(config)
        ahead = self._forecast(coming)
        allowed = pace(limit, spent=coming.spent, forecast=ahead)
        untimed = replace(ahead.answer, elapsed_s=0.0)
        if allowed == "stop" and not is_over(limit, spent=coming.spent + untimed):
            # Only its estimated time is too long, and the runner ends it when the time is up: it may finish in time.
            allowed = "answer"
        bound = None if allowed == "go" else binding(limit, spent=coming.spent, forecast=ahead)
        return replace(self, pace=allowed, bound=bound)

    def answering(self, bound: Leaf | None) -> "Pacing":
        """Under this limit, only the answer's request has room."""
        return replace(self, pace="answer", bound=bound)

    def wanted(self, coming: NextRequest) -> Spent:
        """What the turn would have spent after one more step and an answer."""
        ahead = self._forecast(coming)
        return coming.spent + ahead.step + ahead.answer_after

    def affords(self, limits: Limit, *, coming: NextRequest, answers: bool, within: bool, after_s: float) -> bool:
        """Whether one more request within the step is possible after so long a wait: a request that `answers`, or one that leaves
        an answer, `within` the step or in the next one (after calls)."""
        ahead = self._forecast(coming)
        more = ahead.answer if answers else ahead.request + ahead.answer_after
        # The request is part of the current step. The runner bounds the time of an answer. Another request and the answer after
        # it may take as long as the longest so far, otherwise that answer would be cut off.
        elapsed_s = after_s + (0.0 if answers else 2 * self.longest_request_s)
        more = replace(more, steps=1 if answers or within else 2, elapsed_s=elapsed_s)
        return not is_over(limits, spent=coming.spent + more)

    def most_prompt_tokens(self, config: TurnConfig, *, coming: NextRequest) -> int | None:
        """The largest prompt, not larger than the coming one, with which the limits allow an answer and turnwise's own texts in
        its request. None if there is no such prompt."""

        def allows(tokens: int) -> bool:
            return self.judge(config, coming=replace(coming, prompt_tokens=tokens)).pace != "stop"

        if not allows(0):
            return None
        least, most = 0, coming.prompt_tokens
        while least < most:
            middle = (least + most + 1) // 2
            least, most = (middle, most) if allows(middle) else (least, middle - 1)
        return least

    def is_last(self, config: TurnConfig, *, coming: NextRequest) -> bool:
        """Whether the limits allow no answer after the next request even if that is refused. A refusal costs a request and its
        time, but no token."""
        if config.limits is None:
            return False
        refused = Spent(
            requests=1,
            elapsed_s=self.longest_request_s,
            cost_usd=ZERO if coming.price is None else coming.price.request_usd or ZERO,
        )
        return is_over(config.limits, spent=coming.spent + refused + self._forecast(coming).answer)

    def output_left(
        self, config: TurnConfig, *, coming: NextRequest, own: Sequence[Message], answers: bool
    ) -> int | None:
        """The tokens that the response to the next request may hold. A request that `answers` has all that is left; any other
        leaves the answer after it. `own` are messages of that request alone. None if nothing limits it.

        Never less than the shortest answer, or a step of that length: `pace` and `affords` have found room for them, apart from
        differences between estimates.
        """
        if config.limits is None:
            return None
        left = output_tokens_left(
            config.limits,
            spent=coming.spent,
            prompt_tokens=coming.prompt_tokens + _tokens_of(own),
            keep_tokens=None if answers else ANSWER_TOKENS,
            price=coming.price,
            is_billed=coming.is_billed,
        )
        return None if left is None else max(left, LEAST_ANSWER_TOKENS if answers else ANSWER_TOKENS)

    def answer(self, coming: NextRequest) -> Spent:
        """The likely cost of the answer after the current calls. Its prompt holds some of their results."""
        prompt_tokens = coming.prompt_tokens + RESULT_TOKENS
        usd = ZERO
        if coming.price is not None:
            usd = projected_usd(coming.price, input_tokens=prompt_tokens, output_tokens=ANSWER_TOKENS)
        answer = self._forecast(replace(coming, prompt_tokens=prompt_tokens, price=None)).answer
        return replace(answer, output_tokens=ANSWER_TOKENS, cost_usd=usd)

    def most_s(self, left_s: float | None) -> float | None:
        """How long work before the answer may take, if the turn has `left_s`; None if nothing limits it."""
        return None if left_s is None else max(left_s - kept_s(left_s, longest_request_s=self.longest_request_s), 0.0)

    def begin_calls(self, left_s: float | None) -> "Pacing":
        """The calls of a step begin, with `left_s` of the turn's time. One deadline ends all work on them; otherwise each part
        would take its share of what the part before has left.

        If less time is left than the longest request took, the calls have half of it: a tool may be quick, and the answer
        quicker.
        """
        most_s = self.most_s(left_s)
        if left_s is None or most_s is None:
            return self if self.calls_end_s is None else replace(self, calls_end_s=None)
        return replace(self, calls_end_s=self.at_s + (most_s if most_s > 0.0 else left_s / 2))

    @property
    def calls_s(self) -> float | None:
        """The seconds that the current calls still have; None if nothing limits them."""
        return None if self.calls_end_s is None else floor(max(self.calls_end_s - self.at_s, 0.0) * 1000) / 1000

    def at_stake(self, request: Request, *, own: int, coming: NextRequest) -> Decimal:
        """The projected cost of a request at the coming price, with an output as long as the longest so far within its own limit.
        Its last `own` messages are not part of the history."""
        if coming.price is None:
            return ZERO
        extra = request.messages[len(request.messages) - own :]
        output_tokens = self.longest_output_tokens or ANSWER_TOKENS
        if request.settings.max_output_tokens is not None:
            output_tokens = min(output_tokens, request.settings.max_output_tokens)
        return projected_usd(
            coming.price,
            input_tokens=coming.prompt_tokens + _tokens_of(extra),
            output_tokens=output_tokens,
            is_billed=coming.is_billed,
        )

    def prompt_tokens(self, history: History) -> int:
        """The size of the next prompt: the provider's count of the last one, and what came since. If the provider does not count,
        it is estimated from the bytes. If old messages gave way, it is the history's own count of the rest. Looks at new messages
        only, because this is called several times a step."""
        if history.changed:
            history.weigh()
            return history.prompt.tokens
        if not self.last.input_tokens:
            return prompt_tokens_of(NO_USAGE, added_bytes=history.before_bytes + history.bytes_from(0))
        # The usage of the last request already counts the response itself.
        messages = history.messages
        is_reply = (
            self.last.output_tokens > 0 and self.weighed < len(messages) and messages[self.weighed].role == "assistant"
        )
        return prompt_tokens_of(self.last, added_bytes=history.bytes_from(self.weighed + is_reply))

    def _forecast(self, coming: NextRequest) -> Forecast:
        return forecast(
            prompt_tokens=coming.prompt_tokens,
            longest_output_tokens=self.longest_output_tokens,
            longest_step_s=self.longest_step_s,
            longest_request_s=self.longest_request_s,
            price=coming.price,
            is_billed=coming.is_billed,
        )


def _tokens_of(messages: Sequence[Message]) -> int:
    return -(-sum([message_bytes(one) for one in messages]) // BYTES_A_TOKEN)


def _limit_of(config: TurnConfig) -> Limit:
    assert config.limits is not None
    return MaxSteps(config.max_steps) | config.limits


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
