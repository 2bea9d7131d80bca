"""What the limits still allow: one more step, only the answer, or nothing (promise end:budget)."""

from collections.abc import Sequence
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
    output_tokens_left,
    pace,
    pace_of_steps,
    prompt_tokens_of,
)
from turnwise.rules.pricing import ZERO, PriceRow, projected_usd
from turnwise.rules.prompt_room import message_bytes
from turnwise.turn.config import TurnConfig
from turnwise.turn.events import (
    Asked,
    Event,
    Interrupted,
    MessageArrived,
    RequestFailed,
    ResponseReceived,
    RulesAdded,
    ToolsFinished,
    TurnStarted,
)
from turnwise.turn.history import History
from turnwise.vocab import NO_USAGE, Message, Request, Usage


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
