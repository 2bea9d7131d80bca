"""What limits, prices, circuits and retries say where two of their reasons meet.

Mutants that no test noticed.
"""

from decimal import Decimal
from itertools import product
from typing import Literal

import pytest
from msgspec.structs import replace

from tables import each
from turnwise.rules.compaction import Variant, shorten_results, tail_start
from turnwise.rules.limits import (
    ANSWER_TOKENS,
    AllOf,
    AnyOf,
    Leaf,
    Limit,
    MaxCost,
    MaxRequests,
    MaxSteps,
    MaxTokens,
    MaxToolCalls,
    MaxWallTime,
    Spent,
    is_over,
)
from turnwise.rules.pricing import ERRORS_UNSURE, Priced, PriceRow, TokenPrices, Unknown, price_of
from turnwise.rules.prompt_room import PromptSize, message_bytes
from turnwise.rules.provider_tool_costs import billed_apart, searches_asked
from turnwise.rules.reservations import NOTHING_LEFT, share_of, shares_of
from turnwise.rules.retries import (
    CLOSED,
    CircuitPolicy,
    GiveUp,
    RetryPolicy,
    WaitThenRetry,
    after_response,
    judge_retry,
    let_through,
)
from turnwise.vocab import Fault, FaultKind, FinishReason, Message, Response, Text, ToolResult, Usage

LEAVES: tuple[Leaf, ...] = (
    MaxSteps(3),
    MaxRequests(3),
    MaxTokens(3),
    MaxWallTime(3),
    MaxCost(Decimal(3)),
    MaxToolCalls(3),
)


@pytest.mark.promise("end:budget")
@each(("one", "other"), list(product(LEAVES, LEAVES)))
def test_any_two_limits_compose_in_both_ways(one: Leaf, other: Leaf) -> None:
    """Proves: with `|` and with `&`, from either side, and a third one joins them."""
    assert one | other == AnyOf((one, other))
    assert one & other == AllOf((one, other))
    assert one | other | MaxSteps(9) == AnyOf((one, other, MaxSteps(9)))
    assert MaxSteps(9) & (one & other) == AllOf((MaxSteps(9), one, other))


@pytest.mark.promise("end:budget")
@pytest.mark.parametrize(("left", "enough"), [(ANSWER_TOKENS, True), (ANSWER_TOKENS - 1, False)])
def test_a_share_of_tokens_is_enough_from_one_answer_on(left: int, enough: bool) -> None:
    """Proves: a sub-agent begins with room for an answer, to the token."""
    share, count = shares_of(MaxTokens(5_000), spent=Spent(input_tokens=5_000 - left), among=1)
    assert (share.limit, count) == ((MaxTokens(left), 1) if enough else (NOTHING_LEFT.limit, 0))


@pytest.mark.promise("end:budget")
@each("among", [1, 2, 3])
@each(
    "limit",
    [
        MaxRequests(6) & MaxToolCalls(6),
        MaxRequests(6) | MaxToolCalls(6),
        (MaxRequests(6) | MaxTokens(6_000)) & MaxToolCalls(6),
        MaxToolCalls(9) | MaxRequests(6) & MaxTokens(6_000),
    ],
)
def test_sub_agents_together_stay_within_a_limit_of_both(limit: Limit, among: int) -> None:
    """Proves: each may go beyond one side of `&`, and together they are not beyond both: they hold the same side. Of two under
    `MaxRequests(6) & MaxToolCalls(6)` one made a hundred requests, the other a hundred calls (issue 40)."""
    share = share_of(limit, spent=Spent(), among=among)
    assert share.limit is not None
    ways = product((0, 2, 3, 6, 100), (0, 2, 3, 6, 100), (0, 2_000, 3_000, 6_000, 100_000))
    spends = [Spent(requests=requests, tool_calls=calls, input_tokens=tokens) for requests, calls, tokens in ways]
    within = [spent for spent in spends if not is_over(share.limit, spent=spent)]
    edges = [one for one in within if not any(one != other and _is_less(one, than=other) for other in within)]
    for chosen in product(edges, repeat=among):
        assert not is_over(limit, spent=sum(chosen, Spent())), chosen


def _is_less(one: Spent, *, than: Spent) -> bool:
    return one.requests <= than.requests and one.tool_calls <= than.tool_calls and one.input_tokens <= than.input_tokens


@pytest.mark.promise("wait:retry")
@pytest.mark.parametrize(("attempts", "waits"), [(1, False), (2, True), (3, True)])
def test_a_model_that_is_loading_is_waited_for_wherever_anything_is_tried_twice(attempts: int, waits: bool) -> None:
    """Proves: only the time counts then, not the number of attempts; with one attempt nothing is tried again."""
    loading = Fault(kind=FaultKind.OVERLOADED, message="Loading model", status=503)
    verdict = judge_retry(loading, policy=RetryPolicy(attempts=attempts), attempt=7, waited_s=20.0, jitter=0.0)
    assert isinstance(verdict, WaitThenRetry) is waits


@pytest.mark.parametrize(("asked_s", "said"), [(7_199.0, "7199 s"), (7_200.0, "2.0 hours"), (172_800.0, "2 days")])
def test_a_long_wait_is_told_in_hours_and_days(asked_s: float, said: str) -> None:
    """Proves: nobody counts the seconds of a day."""
    fault = Fault(kind=FaultKind.RATE_LIMITED, message="later", retry_after_s=asked_s)
    verdict = judge_retry(fault, policy=RetryPolicy(), attempt=1, waited_s=0.0, jitter=0.0)
    assert verdict == GiveUp(why=f"It asks to wait {said}, and the bound for retries is 180 s.")


@pytest.mark.promise("wait:retry")
@pytest.mark.parametrize(
    ("kind", "failures", "opened"),
    [
        (FaultKind.SERVER, 2, True),
        (FaultKind.RATE_LIMITED, 1, False),
        (FaultKind.BAD_REQUEST, 0, False),
        (FaultKind.AUTH, 0, False),
        (None, 0, False),
    ],
)
def test_only_failures_of_the_endpoint_open_its_circuit(kind: FaultKind | None, failures: int, opened: bool) -> None:
    """Proves: an error that is ours shows that the endpoint is well, as an answer does. A limit of rates opens nothing, and
    forgets nothing."""
    policy = CircuitPolicy(failures=2)
    busy = Fault(kind=FaultKind.SERVER, message="busy", status=500)
    once = after_response(CLOSED, fault=busy, policy=policy, now_s=1.0)
    fault = None if kind is None else Fault(kind=kind, message="no")
    then = after_response(once, fault=fault, policy=policy, now_s=2.0)
    assert (then.failures, then.opened_at_s is not None) == (failures, opened)
    assert isinstance(let_through(then, policy=policy, now_s=3.0), Fault) is opened


@pytest.mark.promise("bill:plans")
@pytest.mark.parametrize(
    ("extra", "searches"),
    [
        ('{"plugins":[{"id":"web"}]}', True),
        ('{"plugins":[{"id":"web","enabled":false}]}', False),
        ('{"plugins":[{"id":"file-parser"}]}', False),
        ('{"tools":[{"type":"function"}]}', False),
        ('{"tools":[{"type":"web_search"}]}', True),
    ],
)
def test_a_plugin_searches_if_it_is_the_one_for_the_web_and_is_on(extra: str, searches: bool) -> None:
    """Proves: a search costs beside the tokens, and other plugins and our own tools do not."""
    assert searches_asked(extra, family="openai_chat") is searches


@pytest.mark.promise("bill:plans")
@pytest.mark.parametrize(("count", "apart"), [(0, ""), (40, "searches")])
def test_tokens_of_a_tool_that_nothing_else_tells_of_are_a_search(count: int, apart: str) -> None:
    """Proves: Gemini counts them where a search found nothing, and bills it."""
    usage = Usage(input_tokens=9, output_tokens=9, provider=f'{{"toolUsePromptTokenCount":{count}}}')
    response = Response(message=Message("assistant", (Text("Nothing."),)), finish=FinishReason.STOP, usage=usage)
    assert billed_apart(response, model="gemini-3") == apart


@pytest.mark.promise("bill:plans")
def test_an_empty_answer_is_not_free_though_refused_requests_are() -> None:
    """Proves: a plan that bills no refused request may bill a response without content, so its price is unknown and not 0."""
    row = PriceRow(plan="request", source="", request_usd=Decimal("0.01"), bills_refused=False)
    assert price_of(None, row=row, fate="empty") == ERRORS_UNSURE
    refused = price_of(None, row=row, fate="refused")
    assert refused != ERRORS_UNSURE


@pytest.mark.promise("bill:plans")
def test_tokens_of_reasoning_that_nobody_counted_make_a_price_unknown_if_they_have_their_own() -> None:
    """Proves: as part of the output they cost what that costs, and with another price the sum is not known."""
    usage = Usage(input_tokens=10, output_tokens=10, untold=("reasoning_tokens",))
    same = TokenPrices(input=Decimal(1), output=Decimal(2))
    dearer = replace(same, reasoning=Decimal(3))
    known, unknown = [price_of(usage, row=PriceRow(plan="tokens", source="", tokens=(one,))) for one in (same, dearer)]
    assert isinstance(known, Priced) and known.usd == Decimal("0.00003")
    assert unknown == Unknown("the provider did not count the tokens of reasoning")


def said(role: Literal["user", "assistant"], nth: int) -> Message:
    return Message(role, (Text(f"{role} {nth}"),))


@pytest.mark.promise("cut:budget")
@pytest.mark.parametrize(("steps", "start"), [(1, 1), (2, 1), (3, 1), (4, 3), (6, 7)])
def test_the_last_steps_stay_however_few_or_many_there_are(steps: int, start: int) -> None:
    """Proves: three of them where there is room, the newest one counted, and never what stands before the first."""
    messages = [said(role, nth) for nth in range(steps) for role in ("user", "assistant")]
    sizes = [message_bytes(one) for one in messages]
    prompt = PromptSize(added_bytes=sum(sizes))
    assert tail_start(messages, sizes=sizes, prompt=prompt, capacity_tokens=100_000) == start


@pytest.mark.promise("cut:budget")
@pytest.mark.parametrize(("excess", "shortened"), [(1, 1), (4_000, 1), (9_000, 2), (90_000, 3)])
def test_of_old_results_as_many_are_shortened_as_are_needed(excess: int, shortened: int) -> None:
    """Proves: the oldest first, each frees about 5,000 bytes, and what is enough is enough. A short result beside a long one
    stays, and is not kept aside."""
    long, short = Text("word " * 1_200), Text("short")
    messages = tuple(
        [
            Message(
                "tool",
                (
                    ToolResult(call_id=f"l{nth}", name="read", content=(long,)),
                    ToolResult(call_id=f"s{nth}", name="read", content=(short,)),
                ),
            )
            for nth in range(3)
        ]
    )
    whole = Variant(messages=messages, sizes=[message_bytes(one) for one in messages])
    found = shorten_results(whole, places=range(3), excess=excess, limit_bytes=1_000, handle=None)
    assert found.ids == tuple([f"l{nth}" for nth in range(shortened)])
    assert found.messages[shortened:] == messages[shortened:]
    assert list(found.sizes) == [message_bytes(one) for one in found.messages]
    assert replace(found, messages=messages, sizes=whole.sizes, ids=()) == whole
