"""Which upstream is asked next: properties over drawn courses of outcomes and times, and the table of what leaves one alone."""

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from turnwise.relay.upstream_choice import (
    COOL_S,
    DEAD_FAILURES,
    LONGEST_ASKED_S,
    LONGEST_S,
    WELL,
    AllDead,
    Health,
    Pick,
    UpstreamDoor,
    after_answer,
    after_failure,
    in_order,
    pick,
    probed,
    state_of,
)
from turnwise.vocab import Fault, FaultKind

DOORS = (UpstreamDoor(name="a", weight=3), UpstreamDoor(name="b"), UpstreamDoor(name="c", group=1))
REFUSED = Fault(kind=FaultKind.UNREACHABLE, message="no connection")


def failed(kind: FaultKind = FaultKind.SERVER, *, times: int = 1, retry_after_s: float | None = None) -> Health:
    """So often in a row, each time as soon as it was asked again, from 0 s on."""
    health, now_s = WELL, 0.0
    for _ in range(times):
        fault = Fault(kind=kind, message="no", retry_after_s=retry_after_s)
        health = after_failure(health, fault, began_s=now_s, now_s=now_s)
        now_s = health.until_s
    return health


@pytest.mark.parametrize("kind", FaultKind)
def test_a_door_is_left_alone_for_longer_each_time(kind: FaultKind) -> None:
    """By the kind of its failure; what is the request's own fault says that the door is well."""
    if kind not in COOL_S:
        assert failed(kind) == WELL
        return
    waits = [failed(kind, times=n).until_s - failed(kind, times=n).failed_s for n in (1, 2, 3, 20)]
    assert waits == [min(LONGEST_S, COOL_S[kind] * factor) for factor in (1, 2, 4, 2**19)]
    asked = [failed(kind, times=3, retry_after_s=said) for said in (7.0, 86_400.0)]
    assert [one.until_s - one.failed_s for one in asked] == [7.0, LONGEST_ASKED_S]


def test_requests_that_were_on_their_way_begin_one_round() -> None:
    """A hundred that fail together; and an answer to one of them says nothing."""
    first = after_failure(WELL, REFUSED, began_s=0, now_s=10)
    many = first
    for _ in range(99):
        many = after_failure(many, REFUSED, began_s=5, now_s=11)
    assert (many.rounds, many.until_s, many.failures) == (1, first.until_s, 100)
    assert after_answer(many, began_s=9) == many
    assert after_answer(many, began_s=10) == WELL
    limited = Fault(kind=FaultKind.RATE_LIMITED, message="slower", retry_after_s=60)
    assert after_failure(many, limited, began_s=5, now_s=11).until_s == 71


course = st.lists(
    st.tuples(
        st.sampled_from(["ask", "end", "wait"]),
        st.floats(0, 100),
        st.sampled_from([None, *FaultKind]),
        st.sampled_from([None, 0.0, 3.0, 500.0]),
    ),
    max_size=60,
)


@given(course=course, sticks=st.binary(max_size=8))
def test_one_request_at_most_looks_at_a_door_and_a_well_one_is_always_preferred(
    course: list[tuple[str, float, FaultKind | None, float | None]], sticks: bytes
) -> None:
    """Property: whatever came before. A request that is lost (its client left) leaves the door to the next one."""
    healths = [WELL] * len(DOORS)
    order = in_order(DOORS, sticks=sticks)
    open_asks: list[tuple[Pick, float]] = []
    now_s = 0.0
    for what, number, kind, retry_after_s in course:
        if what == "wait":
            now_s += number
        elif what == "ask":
            states = [state_of([one], now_s=now_s) for one in healths]
            found = pick(DOORS, order=order, healths=[[one] for one in healths], tried=(), now_s=now_s)
            if isinstance(found, AllDead):
                assert set(states) == {"dead"} and found.wait_s >= 0
                continue
            assert found is not None
            if {"well", "due"} & {*states}:
                assert found.place == next(place for place in order if states[place] in ("well", "due"))
            assert found.is_probe == (states[found.place] == "due")
            assert states[found.place] != "dead"
            if found.is_probe:
                assert not any(one.is_probe and one.place == found.place for one, _ in open_asks)
                healths[found.place] = probed(healths[found.place], is_probed=True)
            open_asks.append((found, now_s))
        elif open_asks:
            ended, began_s = open_asks.pop(int(number) % len(open_asks))
            before = healths[ended.place]
            if kind is not None:
                fault = Fault(kind=kind, message="no", retry_after_s=retry_after_s)
                after = after_failure(before, fault, began_s=began_s, now_s=now_s)
                if ended.is_probe:
                    assert (
                        after == WELL or after.until_s > now_s or retry_after_s is not None or began_s < after.failed_s
                    )
            else:
                after = after_answer(before, began_s=began_s)
            healths[ended.place] = probed(after, is_probed=False) if ended.is_probe else after
    later_s = now_s + LONGEST_ASKED_S + LONGEST_S
    free = [probed(one, is_probed=False) for one in healths]
    assert {state_of([one], now_s=later_s) for one in free} <= {"well", "due"}


@given(asked=st.permutations([0, 1, 2]), kinds=st.lists(st.sampled_from(sorted(COOL_S)), min_size=3, max_size=3))
def test_a_request_asks_each_door_once_and_none_that_is_dead(asked: list[int], kinds: list[FaultKind]) -> None:
    """Property: the doors run out; a door that is left alone is better than no answer."""
    healths = [[failed(kind, times=DEAD_FAILURES)] for kind in kinds]
    tried: set[int] = set()
    while isinstance(found := pick(DOORS, order=asked, healths=healths, tried=tried, now_s=0), Pick):
        assert found.place not in tried
        tried.add(found.place)
    dead = {place for place, (one,) in enumerate(healths) if one.is_dead}
    assert tried == {0, 1, 2} - dead
    assert (found is None) == (len(dead) < 3)


def test_the_next_door_of_a_group_is_asked_at_once_and_one_of_last_resort_behind_the_retries() -> None:
    """`hands_over`. A request that only looks never waits where anybody else can answer."""
    well: list[list[Health]] = [[WELL]] * 3
    order = [0, 1, 2]
    assert pick(DOORS, order=order, healths=well, tried=(), now_s=0) == Pick(place=0, hands_over=True)
    assert pick(DOORS, order=order, healths=well, tried={0}, now_s=0) == Pick(place=1)
    ill = [[failed()], [WELL], [WELL]]
    assert pick(DOORS, order=order, healths=ill, tried=(), now_s=1) == Pick(place=1)
    looks = Pick(place=0, is_probe=True, hands_over=True)
    assert pick(DOORS, order=order, healths=ill, tried=(), now_s=3) == looks
    assert pick(DOORS, order=order, healths=ill, tried={1}, now_s=3) == looks


def test_conversations_are_shared_by_weight_and_stay() -> None:
    """By 4,000 drawn ones: a door's share is its weight's; a conversation moves only if its own door is left out."""
    doors = [
        UpstreamDoor(name="a", weight=3),
        UpstreamDoor(name="b"),
        UpstreamDoor(name="c"),
        UpstreamDoor(name="last", group=1, weight=900),
    ]
    orders = {n: in_order(doors, sticks=n.to_bytes(4, "big")) for n in range(4000)}
    first = Counter(doors[order[0]].name for order in orders.values())
    assert {name: round(times / 400) for name, times in first.items()} == {"a": 6, "b": 2, "c": 2}
    without_a = {n: in_order(doors[1:], sticks=n.to_bytes(4, "big")) for n in orders}
    assert all(doors[1:][without_a[n][0]] == doors[order[0]] for n, order in orders.items() if order[0] != 0)
    assert {order[-1] for order in orders.values()} == {3}
