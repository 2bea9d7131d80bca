"""What a call was judged on, carried to the hand that opens the paths."""

from collections.abc import Generator, Iterable
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path

_judged: ContextVar[frozenset[Path] | None] = ContextVar("turnwise_judged_paths", default=None)


@contextmanager
def judged_paths(paths: Iterable[Path | str]) -> Generator[None]:
    """Within it, the file tools touch these resolved paths only, inside the workspace or outside of it; what lies below a
    folder goes with the folder. A path that leads elsewhere by now is refused. Holds for the tasks and threads begun in it.
    """
    token = _judged.set(frozenset(Path(path) for path in paths))
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
