"""Limits of every kind over turns of every kind: none is overshot, and the last request that one allows is the model's answer."""

from collections.abc import Sequence
from decimal import Decimal
from itertools import pairwise
from typing import get_args

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from tables import each
from thoroughness import examples
from turn.limited_world import BY_REQUEST, BY_TOKEN, LIMITED, Move, Trouble, World, spent
from turn.playing import Played
from turn.test_output import OUTPUT
from turnwise.rules.limits import (
    ANSWER_WORDS_TOKENS,
    LEAST_ANSWER_TOKENS,
    AllOf,
    Limit,
    MaxCost,
    MaxRequests,
    MaxSteps,
    MaxTokens,
    MaxToolCalls,
    MaxWallTime,
    Spent,
    counts_tool_calls,
    is_over,
)
from turnwise.rules.prompt_room import ModelLimits
from turnwise.turn.config import TurnResult

KINDS = ("reads", "program", "child", "busy", "empty", "cut text", "cut call", "lost", "pause")
REQUEST_S = 2.0
MOVES = st.lists(
    st.builds(
        Move,
        st.sampled_from(KINDS),
        calls=st.sampled_from([1, 1, 2, 5, 20]),
        size=st.sampled_from([50, 400, 3_000, 20_000, 100_000]),
        seconds=st.sampled_from([0.0, 1.0, 30.0, 500.0]),
    ),
    max_size=10,
)
TROUBLE = st.lists(st.sampled_from(get_args(Trouble)), max_size=4)
WINDOWS = st.sampled_from([8_000, 16_000, 100_000])
SUMMARIES = st.sampled_from(["SUMMARY: parts were read.", ""])
SIZES: dict[str, st.SearchStrategy[Limit]] = {
    "steps": st.builds(MaxSteps, st.integers(1, 12)),
    "requests": st.builds(MaxRequests, st.integers(1, 14)),
    "tokens": st.builds(MaxTokens, st.integers(3_000, 200_000)),
    "input": st.builds(MaxTokens, st.integers(3_000, 200_000), st.just("input")),
    "time": st.builds(MaxWallTime, st.floats(5 * REQUEST_S, 300.0)),
    "calls": st.builds(MaxToolCalls, st.integers(1, 30)),
    "money": st.builds(MaxCost, st.integers(3, 60).map(lambda cents: cents * Decimal("0.01"))),
}


def played(
    moves: list[Move],
    *,
    limits: Limit | None,
    window: int,
    summary: str,
    by_request: bool = False,
    trouble: Sequence[Trouble] = (),
) -> tuple[Played, World]:
    world = World(moves, window=window, request_s=REQUEST_S, summary=summary, trouble=trouble)
    typed = any(move.kind == "unfit" for move in moves)
    config = replace(
        LIMITED,
        limits=limits,
        model_limits=ModelLimits(context_window_tokens=window, max_output_tokens=window // 4),
        output=OUTPUT if typed else None,
        prices={"m": BY_REQUEST if by_request else BY_TOKEN},
    )
    return world.play(config), world


@pytest.mark.promise("end:budget")
@settings(max_examples=examples(150), deadline=None)
@given(
    moves=MOVES,
    limits=st.lists(st.one_of(*SIZES.values()), min_size=1, max_size=3),
    both=st.booleans(),
    window=WINDOWS,
    summary=SUMMARIES,
    by_request=st.booleans(),
    trouble=TROUBLE,
)
def test_no_limit_is_overshot_and_the_answer_is_the_models(
    moves: list[Move],
    limits: list[Limit],
    both: bool,
    window: int,
    summary: str,
    by_request: bool,
    trouble: list[Trouble],
) -> None:
    """Proves: steps, retries, overflows, summaries, continuations, sub-agents and programs together stay within every limit, and
    what the last request brings is the answer (issue 14, done when 2)."""
    limit = limits[0]
    for one in limits[1:]:
        limit = limit & one if both else limit | one
    game, world = played(moves, limits=limit, window=window, summary=summary, by_request=by_request, trouble=trouble)
    late_s = REQUEST_S if isinstance(limit, AllOf) else 0.0  # under `&` time ends no request that is under way
    assert not is_over(limit, spent=spent(game.result, elapsed_s=world.now_s - late_s)), game.result
    assert not counts_tool_calls(limit) or world.tool_calls == game.result.also_spent.tool_calls
    assert game.result.origin == "model" or was_silent(game, world=world, limit=limit), game.result.text


@pytest.mark.promise("end:budget")
@each("seconds", [0.0, 30.0])
@each("trouble", [("busy",), ("busy", "busy"), ("busy",) * 4])
@each("limit_s", [10.0, 10.3, 12.0, 14.5])
def test_a_cut_call_leaves_the_answer_its_time_under_a_limit_of_both(
    limit_s: float, trouble: tuple[Trouble, ...], seconds: float
) -> None:
    """Proves: its continuation is sent again only while the step and the answer after it fit, the waits counted. The answer was
    counted as part of the step, so `MaxSteps(1) & MaxWallTime(10)` ended with ours (a draw of the test above)."""
    moves = [Move("reads", size=50), Move("cut call", size=50, seconds=seconds)]
    limit = MaxSteps(1) & MaxWallTime(limit_s)
    game, world = played(moves, limits=limit, window=8_000, summary="", trouble=trouble)
    assert not is_over(limit, spent=spent(game.result, elapsed_s=world.now_s - REQUEST_S)), game.result
    assert game.result.origin == "model" or was_silent(game, world=world, limit=limit), game.result.text


def was_silent(game: Played, *, world: World, limit: Limit) -> bool:
    """Whether no request could have carried an answer: the last one failed or brought nothing, and either it was the second
    in a row that did so, or the limit has no room for another one like it, with our words and the result of a call that may
    not run."""
    if not world.silent:
        return False
    more = Spent(
        requests=1,
        input_tokens=world.last_prompt_tokens + 2 * ANSWER_WORDS_TOKENS,
        output_tokens=LEAST_ANSWER_TOKENS,
        elapsed_s=REQUEST_S,
        cost_usd=(game.result.charged_usd or Decimal(0)) / max(1, game.result.requests),
    )
    return world.silent > 1 or is_over(limit, spent=spent(game.result, elapsed_s=world.now_s) + more)


@pytest.mark.promise("end:budget")
@settings(max_examples=examples(60), deadline=None)
@given(
    kind=st.sampled_from(sorted(SIZES)),
    draw=st.data(),
    moves=st.lists(
        st.builds(
            Move,
            st.sampled_from([*KINDS, "unfit"]),
            calls=st.sampled_from([1, 3, 20]),
            size=st.sampled_from([50, 9_000]),
            seconds=st.sampled_from([0.0, 1.0, 30.0, 500.0]),
        ),
        max_size=8,
    ),
    window=WINDOWS,
    summary=SUMMARIES,
    trouble=TROUBLE,
)
def test_a_larger_limit_is_answered_with_no_less(
    kind: str, draw: st.DataObject, moves: list[Move], window: int, summary: str, trouble: list[Trouble]
) -> None:
    """Proves: of limits of one kind a larger one is never answered by us, or in part, where a smaller one was not."""
    sizes = draw.draw(st.lists(SIZES[kind], min_size=2, max_size=5))
    typed = any(move.kind == "unfit" for move in moves)
    turns = [
        (limit, *played(moves, limits=limit, window=window, summary=summary, trouble=trouble))
        for limit in sorted(sizes, key=lambda one: next(iter(_amounts(one))))
    ]
    for (smaller, before, _), (larger, after, world) in pairwise(turns):
        if is_less(after.result, than=before.result, typed=typed):
            said = (smaller, larger, before.result.text, after.result.text)
            assert was_silent(after, world=world, limit=larger), said


def is_less(result: TurnResult, *, than: TurnResult, typed: bool) -> bool:
    """Whether a turn under a larger limit is answered with less. A turn that was made to answer has brought more where its
    sub-agents spent more: they may have all that is left beside the answer (docs/limits.md, "What money allows")."""
    if result.origin == "local":
        return than.origin == "model"
    if typed:  # a corrected answer is whole, and tools that run after it make it partial
        return False
    return than.complete and not result.complete and children_spent(result) <= children_spent(than)


def children_spent(result: TurnResult) -> tuple[int, int]:
    return (
        sum([child.requests for child in result.children]),
        sum([child.usage.input_tokens for child in result.children]),
    )


def _amounts(limit: Limit) -> list[Decimal]:
    return [Decimal(str(getattr(limit, name))) for name in limit.__struct_fields__ if name != "counts"]
