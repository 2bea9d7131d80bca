"""Limits of every kind over turns of every kind: none is overshot, and the last request that one allows is the model's answer."""

from decimal import Decimal

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from turn.limited_world import BY_REQUEST, BY_TOKEN, LIMITED, Move, World, spent
from turn.playing import Played
from turn.test_output import OUTPUT
from turnwise.rules.budget import ModelLimits
from turnwise.rules.limits import Limit, MaxCost, MaxRequests, MaxSteps, MaxTokens, MaxWallTime, is_over

KINDS = ("reads", "program", "child", "busy", "empty", "cut text", "cut call", "lost", "pause")
REQUEST_S = 2.0
MOVES = st.lists(
    st.builds(
        Move,
        st.sampled_from(KINDS),
        count=st.sampled_from([1, 1, 2, 5, 20]),
        size=st.sampled_from([50, 400, 3_000, 20_000, 100_000]),
        seconds=st.sampled_from([0.0, 1.0, 30.0, 500.0]),
    ),
    max_size=10,
)
WINDOWS = st.sampled_from([8_000, 16_000, 100_000])
SUMMARIES = st.sampled_from(["SUMMARY: parts were read.", ""])
SIZES: dict[str, st.SearchStrategy[Limit]] = {
    "steps": st.builds(MaxSteps, st.integers(1, 12)),
    "requests": st.builds(MaxRequests, st.integers(1, 14)),
    "tokens": st.builds(MaxTokens, st.integers(3_000, 200_000)),
    "input": st.builds(MaxTokens, st.integers(3_000, 200_000), st.just("input")),
    "time": st.builds(MaxWallTime, st.floats(5 * REQUEST_S, 300.0)),
    "money": st.builds(MaxCost, st.integers(3, 60).map(lambda cents: cents * Decimal("0.01"))),
}


def played(
    moves: list[Move], *, limits: Limit | None, window: int, summary: str, by_request: bool = False
) -> tuple[Played, World]:
    if limits is not None and "MaxWallTime" in repr(limits):  # a failure takes time, and the time may be the answer's
        moves = [move for move in moves if move.kind != "busy"]
    world = World(moves, window=window, request_s=REQUEST_S, summary=summary)
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
@settings(max_examples=150, deadline=None)
@given(
    moves=MOVES,
    limits=st.lists(st.one_of(*SIZES.values()), min_size=1, max_size=3),
    both=st.booleans(),
    window=WINDOWS,
    summary=SUMMARIES,
    by_request=st.booleans(),
)
def test_no_limit_is_overshot_and_the_answer_is_the_models(
    moves: list[Move], limits: list[Limit], both: bool, window: int, summary: str, by_request: bool
) -> None:
    """Proves: steps, retries, overflows, summaries, continuations, sub-agents and programs together stay within every limit, and
    what the last request brings is the answer (issue 14, done when 2)."""
    limit = limits[0]
    for one in limits[1:]:
        limit = limit & one if both else limit | one
    game, world = played(moves, limits=limit, window=window, summary=summary, by_request=by_request)
    assert not is_over(limit, spent=spent(game.result, elapsed_s=world.now_s)), game.result
    assert game.result.origin == "model", game.result.text


@pytest.mark.promise("end:budget")
@settings(max_examples=60, deadline=None)
@given(
    kind=st.sampled_from(sorted(SIZES)),
    draw=st.data(),
    moves=st.lists(
        st.builds(
            Move,
            st.sampled_from([*KINDS, "unfit"]),
            count=st.sampled_from([1, 3, 20]),
            size=st.sampled_from([50, 9_000]),
        ),
        max_size=8,
    ),
    window=WINDOWS,
    summary=SUMMARIES,
)
def test_a_larger_limit_is_answered_with_no_less(
    kind: str, draw: st.DataObject, moves: list[Move], window: int, summary: str
) -> None:
    """Proves: of limits of one kind a larger one is never answered by us, or in part, where a smaller one was not."""
    sizes = draw.draw(st.lists(SIZES[kind], min_size=2, max_size=5))
    ranks: list[tuple[object, int]] = []
    typed = any(move.kind == "unfit" for move in moves)
    for limit in sorted(sizes, key=lambda one: next(iter(_amounts(one)))):
        result = played(moves, limits=limit, window=window, summary=summary)[0].result
        is_whole = (
            result.complete and not typed
        )  # a corrected answer is whole, and tools that run after it make it partial
        ranks.append((limit, 0 if result.origin == "local" else 2 if is_whole else 1))
    assert [rank for _, rank in ranks] == sorted([rank for _, rank in ranks]), ranks


def _amounts(limit: Limit) -> list[Decimal]:
    return [Decimal(str(getattr(limit, name))) for name in limit.__struct_fields__ if name != "counts"]
