"""The paths that a command has no business with: what the table of secret names calls so, and turnwise's own journal."""

import os
from collections.abc import Iterable, Iterator
from pathlib import Path

from turnwise.rules.guarded_names import SECRET_IN_HOME, SECRET_OF_SYSTEM, SECRET_PLACES, is_secret


def secret_paths(*, home: Path | None, own: Iterable[Path] = ()) -> tuple[Path, ...]:
    """Those that exist, with links resolved and none inside another. `own` are turnwise's folders and files."""
    named = [*map(Path, SECRET_OF_SYSTEM), *own]
    if home is not None:
        named += _secrets_in(home)
    found = sorted({path for path in map(_real, named) if path is not None})
    kept: list[Path] = []
    for path in found:  # sorted: an outer one comes before those in it
        if not kept or not path.is_relative_to(kept[-1]):
            kept.append(path)
    return tuple(kept)


def _secrets_in(home: Path) -> Iterator[Path]:
    """What the table names below it, whether it is there or not, and what right in it has a secret name."""
    yield from (home / name for name in (*SECRET_PLACES, *SECRET_IN_HOME))
    try:
        names = os.listdir(home)  # noqa: PTH208 (names are all that is needed)
    except OSError:
        return
    yield from (home / name for name in names if is_secret(name))


def _real(path: Path) -> Path | None:
    try:
        return path.resolve(strict=True)
    except (OSError, RuntimeError):  # absent, unreadable, or a loop of links (RuntimeError before Python 3.13)
        return None
