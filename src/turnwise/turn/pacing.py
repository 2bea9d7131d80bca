"""What the limits still allow: one more step, only the answer, or nothing (promise end:budget)."""

from collections.abc import Sequence

import msgspec

from turnwise.rules.budget import message_bytes, request_bytes
from turnwise.rules.limits import (
    ANSWER_TOKENS,
    BYTES_A_TOKEN,
    LEAST_ANSWER_TOKENS,
    Forecast,
    Leaf,
    Limit,
    MaxSteps,
    Pace,
    Spent,
    binding,
    forecast,
    is_over,
    output_tokens_left,
    pace,
    prompt_tokens_of,
)
from turnwise.turn.config import TurnConfig
from turnwise.turn.events import (
    Asked,
    CallsInspected,
    Event,
    HooksRan,
    Interrupted,
    MessageArrived,
    RequestFailed,
    ResponseReceived,
    StepPrepared,
    ToolsFinished,
    TurnStarted,
    WaitOver,
)
from turnwise.vocab import NO_USAGE, Message, Usage


class Pacing(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What was seen of the turn's costs, and what that allowed the step at hand. Times are seconds since the turn began, as
    the driver reports them; a journal without them has none, and no limit of time then holds.
    """

    pace: Pace = "go"
    bound: Leaf | None = None  # the limit that stands against a step that is not a `go`
    at_s: float = 0.0
    step_s: float = 0.0  # when the step at hand began
    longest_step_s: float = 0.0
    longest_request_s: float = 0.0
    longest_output_tokens: int = 0
    last: Usage = NO_USAGE  # of the last response that had one
    weighed: int = 0  # messages that its prompt held

    def saw(self, event: Event, *, messages: int) -> "Pacing":
        """What an event tells of time and tokens. A response is one to a prompt of so many `messages`."""
        match event:
            case TurnStarted() | Interrupted():
                return self
            case (
                StepPrepared(at_s=at_s)
                | HooksRan(at_s=at_s)
                | CallsInspected(at_s=at_s)
                | Asked(at_s=at_s)
                | MessageArrived(at_s=at_s)
                | WaitOver(at_s=at_s)
                | ToolsFinished(at_s=at_s)
            ):
                return msgspec.structs.replace(self, at_s=max(self.at_s, at_s))
            case ResponseReceived(response=response, at_s=at_s):
                return self._took_in(response.usage, at_s=at_s, messages=messages)
            case RequestFailed(partial=partial, at_s=at_s):
                usage = None if partial is None else partial.usage
                return self._took_in(usage, at_s=at_s, messages=messages)

    def _took_in(self, usage: Usage | None, *, at_s: float, messages: int) -> "Pacing":
        took_s = max(at_s - self.at_s, 0.0)
        seen = msgspec.structs.replace(
            self, at_s=max(self.at_s, at_s), longest_request_s=max(self.longest_request_s, took_s)
        )
        if usage is None or not usage.input_tokens:
            return seen
        longest = max(self.longest_output_tokens, usage.output_tokens)
        return msgspec.structs.replace(seen, last=usage, weighed=messages, longest_output_tokens=longest)

    def spent(self, usage: Usage, *, steps: int, requests: int) -> Spent:
        return Spent(
            steps=steps,
            requests=requests,
            input_tokens=usage.input_tokens,
            output_tokens=usage.output_tokens,
            elapsed_s=self.at_s,
        )

    def begin_step(self, config: TurnConfig, *, spent: Spent, messages: Sequence[Message]) -> "Pacing":
        """Judge the step that would come next."""
        limit = _limit_of(config)
        longest = max(self.longest_step_s, self.at_s - self.step_s) if spent.steps else 0.0
        begun = msgspec.structs.replace(self, step_s=self.at_s, longest_step_s=longest)
        coming = begun._forecast(config, messages=messages)
        allowed = pace(limit, spent=spent, forecast=coming)
        untimed = msgspec.structs.replace(coming.answer, elapsed_s=0.0)
        if allowed == "stop" and not is_over(limit, spent=spent + untimed):
            # Only its time is too long by the guess, and the driver ends it when the time is up: it may be in time.
            allowed = "answer"
        bound = None if allowed == "go" else binding(limit, spent=spent, forecast=coming)
        return msgspec.structs.replace(begun, pace=allowed, bound=bound)

    def affords(self, config: TurnConfig, *, spent: Spent, messages: Sequence[Message], answers: bool) -> bool:
        """Whether one request more within the step is possible: one that `answers`, or one that leaves an answer."""
        if config.limits is None:
            return True
        coming = self._forecast(config, messages=messages)
        more = coming.answer if answers else coming.step + coming.answer_after
        # It is part of the step at hand, and its time is bounded by the driver.
        more = msgspec.structs.replace(more, steps=0, elapsed_s=0.0)
        return not is_over(config.limits, spent=spent + more)

    def output_left(
        self, config: TurnConfig, *, spent: Spent, messages: Sequence[Message], own: Sequence[Message], answers: bool
    ) -> int | None:
        """The tokens that the response to the next request may hold: one that `answers` has all that is left, another one
        leaves the answer after it; `own` are messages of that request alone. None where nothing limits it.

        Never less than the least answer, or a step of that length: `pace` and `affords` have found room for them, but for
        what guesses differ by.
        """
        if config.limits is None:
            return None
        added = sum([message_bytes(one) for one in own])
        left = output_tokens_left(
            config.limits,
            spent=spent,
            prompt_tokens=self._prompt_tokens(config, messages=messages) + -(-added // BYTES_A_TOKEN),
            keep_tokens=None if answers else ANSWER_TOKENS,
        )
        return None if left is None else max(left, LEAST_ANSWER_TOKENS if answers else ANSWER_TOKENS)

    def answer(self, config: TurnConfig, *, messages: Sequence[Message]) -> Spent:
        """What the answer after the calls at hand is likely to cost."""
        return msgspec.structs.replace(self._forecast(config, messages=messages).answer, output_tokens=ANSWER_TOKENS)

    def _forecast(self, config: TurnConfig, *, messages: Sequence[Message]) -> Forecast:
        return forecast(
            prompt_tokens=0 if config.limits is None else self._prompt_tokens(config, messages=messages),
            longest_output_tokens=self.longest_output_tokens,
            longest_step_s=self.longest_step_s,
            longest_request_s=self.longest_request_s,
        )

    def _prompt_tokens(self, config: TurnConfig, *, messages: Sequence[Message]) -> int:
        if not self.last.input_tokens:
            before = request_bytes(system=config.system, tools=[offer.spec for offer in config.tools])
            return prompt_tokens_of(NO_USAGE, added_bytes=before + sum([message_bytes(one) for one in messages]))
        # The response itself is counted in the last request's usage.
        since = [message_bytes(one) for one in messages[self.weighed :] if one.role != "assistant"]
        return prompt_tokens_of(self.last, added_bytes=sum(since))


def _limit_of(config: TurnConfig) -> Limit:
    return MaxSteps(config.max_steps) if config.limits is None else MaxSteps(config.max_steps) | config.limits
