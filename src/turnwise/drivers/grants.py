"""What a call was judged on, carried to the hand that opens the paths."""

from collections.abc import Generator, Iterable
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path

from turnwise.rules.known_programs import JudgedPrograms

_judged: ContextVar[frozenset[Path] | None] = ContextVar("turnwise_judged_paths", default=None)

_programs: ContextVar[JudgedPrograms | None] = ContextVar("turnwise_judged_programs", default=None)


@contextmanager
def judged_paths(paths: Iterable[Path | str] | None) -> Generator[None]:
    """Within it, the file tools touch these resolved paths only, inside the workspace or outside of it; what lies below a
    folder goes with the folder. A path that leads elsewhere by now is refused. None is no judgement. Holds for the tasks and
    threads begun in it.
    """
    token = _judged.set(None if paths is None else frozenset(Path(path) for path in paths))
    try:
        yield
    finally:
        _judged.reset(token)


def was_judged(path: Path) -> bool | None:
    """Whether the call at hand was judged on the resolved `path`; None where no judgement was handed down."""
    judged = _judged.get()
    if judged is None:
        return None
    return path in judged or not judged.isdisjoint(path.parents)


@contextmanager
def judged_programs(programs: JudgedPrograms | None) -> Generator[None]:
    """Within it, a command runs these programs under their names. Holds for the tasks and threads begun in it."""
    token = _programs.set(programs)
    try:
        yield
    finally:
        _programs.reset(token)


def programs_at_hand() -> JudgedPrograms | None:
    """What the command at hand was judged on; None where that was not handed down, or PATH leaves no doubt."""
    return _programs.get()
