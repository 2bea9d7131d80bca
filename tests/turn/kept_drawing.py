"""Sessions drawn from a seed: by the strategies of the property tests, with a source of chance that never changes.

hypothesis chooses by what it has seen and by what stands in the modules at hand. Here each choice is a number of
`random.Random(seed)`, so a seed gives the same session as long as the strategies and the machine are the same.
"""

import math
from collections.abc import Callable
from functools import partial
from random import Random
from typing import Any, NamedTuple

import msgspec
from hypothesis import strategies as st
from hypothesis.control import BuildContext
from hypothesis.errors import StopTest
from hypothesis.internal.conjecture.data import ConjectureData
from hypothesis.internal.conjecture.providers import PrimitiveProvider

from turn.drawn import policies, starts
from turn.drawn_events import next_event
from turn.kept_starts import WIDE_OFFERS, wide_starts
from turn.kept_told import HABITS, next_told
from turn.test_any_session import at_work, next_turn
from turn.test_limits_hold import MOVES, SIZES, SUMMARIES, TROUBLE, WINDOWS, played
from turnwise.errors import CallerError
from turnwise.turn.events import Command, Event, FinishTurn, MessageArrived, TurnStarted
from turnwise.turn.machine import Turn, fold_session

TURNS = 4
MOST_EVENTS = 120
WIDEST = 1_000_000


class Chance(PrimitiveProvider):
    """Every choice of a strategy, evenly, from one source."""

    def __init__(self, random: Random) -> None:
        super().__init__(None)
        self._random = random

    def draw_boolean(self, p: float = 0.5) -> bool:
        return self._random.random() < p

    def draw_integer(self, min_value: int | None = None, max_value: int | None = None, **_: Any) -> int:
        least = (-WIDEST if max_value is None else max_value - WIDEST) if min_value is None else min_value
        return self._random.randint(least, least + WIDEST if max_value is None else max_value)

    def draw_float(self, *, min_value: float = -math.inf, max_value: float = math.inf, **_: Any) -> float:
        return round(self._random.uniform(max(min_value, -WIDEST), min(max_value, WIDEST)), 3)

    def draw_string(self, intervals: Any, *, min_size: int = 0, max_size: int = 20) -> str:
        size = self._random.randint(min_size, min(max_size, 20))
        return "".join([intervals.char_in_shrink_order(self._random.randrange(len(intervals))) for _ in range(size)])

    def draw_bytes(self, min_size: int = 0, max_size: int = 20) -> bytes:
        return self._random.randbytes(self._random.randint(min_size, min(max_size, 20)))


class Draws:
    """What the functions of the property tests take as `data`."""

    def __init__(self, seed: str) -> None:
        self._chance = Chance(Random(seed))  # of a text, by its SHA-512
        self.habits: tuple[str, ...] = ()  # what the model of this session says over and over

    def draw(self, strategy: st.SearchStrategy[Any]) -> Any:
        while True:
            try:
                data = ConjectureData(random=None, provider=self._chance)
                with BuildContext(data, is_final=False, wrapped_test=len):
                    return data.draw(strategy)
            except StopTest:  # a filter found nothing
                continue

    def draw_kept(self, make: Callable[[], Any]) -> Any:
        """The first draw that a journal can hold, as it gives it back: half of a surrogate pair has no place in one."""
        while True:
            made = make()
            try:
                return msgspec.json.decode(msgspec.json.encode(made), type=type(made))
            except UnicodeEncodeError:
                continue


class Before(NamedTuple):
    """The turn before, as the drawing of the next one looks at it."""

    started: TurnStarted
    has_ended: bool


Tell = Callable[[Any, Command, int], Event]


def tell_anything(data: Any, command: Command, said: int) -> Event:
    return next_event(data, command, said=said)


def tell_of_work(data: Any, command: Command, said: int) -> Event:
    return next_event(data, command, said=said, busy=True)


class Way(NamedTuple):
    """A kind of session: how it begins, and what is told."""

    start: Callable[[Any], TurnStarted]
    tell: Tell


def _start_of_anything(data: Any) -> TurnStarted:
    started = data.draw(starts)
    return msgspec.structs.replace(started, keeps_waiting=data.draw(st.booleans()))


def _start_at_work(data: Any) -> TurnStarted:
    started = data.draw(starts)
    config = at_work(started.config, policy=data.draw(policies))
    return msgspec.structs.replace(started, config=config, keeps_waiting=data.draw(st.integers(0, 4)) > 0)


def _start_wide(data: Any) -> TurnStarted:
    return data.draw(wide_starts)


def _start_stubborn(data: Draws) -> TurnStarted:
    data.habits = tuple(data.draw(st.lists(st.sampled_from(HABITS), min_size=1, max_size=2)))
    started = data.draw(wide_starts)
    config = msgspec.structs.replace(
        started.config, tools=WIDE_OFFERS, tool_choice="auto", max_steps=20, limits=None, prices={}, output=None
    )
    return msgspec.structs.replace(started, config=config)


WAYS = {
    "any": Way(_start_of_anything, tell_anything),
    "work": Way(_start_at_work, tell_of_work),
    "wide": Way(_start_wide, next_told),
    "stubborn": Way(_start_stubborn, next_told),
}


def draw_session(way: str, *, seed: int) -> tuple[tuple[Event, ...], ...]:
    """The journals of a session of up to TURNS turns. One that cannot start is drawn anew."""
    data = Draws(f"{way} {seed}")
    while True:
        started = data.draw_kept(partial(WAYS[way].start, data))
        try:
            Turn.start(started)
        except CallerError:
            continue
        return _played(started, data=data, tell=WAYS[way].tell)


def _played(started: TurnStarted, *, data: Draws, tell: Tell) -> tuple[tuple[Event, ...], ...]:
    journals: list[tuple[Event, ...]] = []
    said = 0
    for number in range(data.draw(st.integers(1, TURNS))):
        earlier = fold_session(journals).carried
        turn, command = Turn.start(started, earlier=earlier)
        events: list[Event] = [started]
        now_s = 0.0
        is_killed = data.draw(st.integers(0, 4)) == 0
        while not isinstance(command, FinishTurn) and len(events) < MOST_EVENTS:
            if is_killed and data.draw(st.integers(0, 9)) == 0:
                break
            event = data.draw_kept(partial(tell, data, command, said))
            if tell is next_told and "at_s" in event.__struct_fields__:  # its clock goes on, as a driver's does
                now_s += event.at_s
                event = msgspec.structs.replace(event, at_s=now_s)
            said += isinstance(event, MessageArrived)
            events.append(event)
            command = turn.receive(event)
        journals.append(tuple(events))
        before = Before(started, has_ended=isinstance(command, FinishTurn))
        so_far = fold_session(journals)
        config = started.config
        started = data.draw_kept(partial(next_turn, data, before=before, so_far=so_far, config=config, number=number))
    return tuple(journals)


def draw_world(seed: int) -> tuple[tuple[Event, ...], ...]:
    """One turn under limits, in a world that spends of them by its own count (`limited_world`)."""
    data = Draws(f"world {seed}")
    limits = data.draw(st.lists(st.one_of(*SIZES.values()), min_size=1, max_size=3))
    limit = limits[0]
    both = data.draw(st.booleans())
    for one in limits[1:]:
        limit = limit & one if both else limit | one
    game, _ = played(
        data.draw(MOVES),
        limits=limit,
        window=data.draw(WINDOWS),
        summary=data.draw(SUMMARIES),
        by_request=data.draw(st.booleans()),
        trouble=data.draw(TROUBLE),
    )
    return (tuple(game.events),)
