"""The counts of several workers as one: each writes its own into a file once a second, and the worker that is asked adds all up.

What a worker had counted stays when it dies, so a sum never falls. Its gauges go with it.
"""

import asyncio
import contextlib
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Literal

import msgspec

TELL_S = 1.0

CountLabels = tuple[str, ...]
Joined = Literal["sum", "min", "max"]
_JOIN: dict[Joined, Callable[[float, float], float]] = {"sum": lambda one, other: one + other, "min": min, "max": max}


class CountsState(msgspec.Struct, frozen=True, array_like=True):
    """Values by metric and labels; and of each histogram how many were in each bucket, then the sum of seconds."""

    values: dict[str, dict[CountLabels, int | float]] = {}
    seconds: dict[str, dict[CountLabels, list[float]]] = {}


def added(states: Iterable[CountsState], *, joined: dict[str, Joined]) -> CountsState:
    """All of them as one. `joined` says how a metric's values become one, if not as their sum."""
    values: dict[str, dict[CountLabels, int | float]] = {}
    seconds: dict[str, dict[CountLabels, list[float]]] = {}
    for state in states:
        for name, found in state.values.items():
            join, own = _JOIN[joined.get(name, "sum")], values.setdefault(name, {})
            for labels, value in found.items():
                own[labels] = join(own[labels], value) if labels in own else value
        for name, lists in state.seconds.items():
            mine = seconds.setdefault(name, {})
            for labels, numbers in lists.items():
                before = mine.get(labels, [0.0] * len(numbers))
                mine[labels] = [one + other for one, other in zip(before, numbers, strict=True)]
    return CountsState(values, seconds)


class CountsFile:
    """Where one worker tells its counts, in the folder of all. It goes on from what a dead one has left there."""

    def __init__(self, path: Path, *, gauges: frozenset[str]) -> None:
        self._path, self._gauges = path, gauges
        self._before = _read(path)[:1]

    def told(self, state: CountsState) -> CountsState:
        """With the counts of those who had this place before."""
        return added([*self._before, state], joined={})

    def tell(self, state: CountsState) -> None:
        """Nobody depends on it: what cannot be written now is told a second later."""
        told = self.told(state)
        lasting = {name: found for name, found in told.values.items() if name not in self._gauges}
        gauges = {name: found for name, found in told.values.items() if name in self._gauges}
        _write(self._path, CountsState(lasting, told.seconds), CountsState(gauges))

    def others(self) -> list[CountsState]:
        found: list[CountsState] = []
        with contextlib.suppress(OSError):
            for path in self._path.parent.iterdir():
                if path != self._path and not path.suffix:
                    found += _read(path)
        return found


def _read(path: Path) -> tuple[CountsState, ...]:
    """What lasts, then the gauges; nothing where nobody has told anything."""
    with contextlib.suppress(OSError, msgspec.DecodeError):
        return msgspec.msgpack.decode(path.read_bytes(), type=tuple[CountsState, ...])
    return ()


def _write(path: Path, *states: CountsState) -> None:
    beside = path.with_suffix(".new")
    with contextlib.suppress(OSError):
        beside.write_bytes(msgspec.msgpack.encode(states))
        beside.replace(path)


def without_gauges(path: Path) -> None:
    """The worker is dead: nothing of it is under way."""
    if states := _read(path):
        _write(path, states[0])


async def tell_often(tell: Callable[[], None]) -> None:
    """Until it is cancelled."""
    while True:
        await asyncio.sleep(TELL_S)
        tell()
