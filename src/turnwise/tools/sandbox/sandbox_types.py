"""What is asked of a sandbox, and what it makes of it."""

from pathlib import Path
from typing import Literal

import msgspec

from turnwise.base import keeper
from turnwise.base.programs import compiled_script
from turnwise.tools.sandbox.git_folders import GitFolder
from turnwise.tools.sandbox.resource_limits import KERNELS_SHARE, CommandBounds

_KEEPER = Path(keeper.__file__)

SandboxKind = Literal["bubblewrap", "landlock", "none"]


class SandboxOrder(msgspec.Struct, frozen=True, kw_only=True):
    """A command and what it may do. All paths are absolute and have no link in them.

    It may write in `workspace`, in `writable` and in the temporary folder; `hidden` paths it may not even read.
    `shown` it may read although they lie inside something hidden. `git` are folders of git's elsewhere that it may write in, but
    for what git executes. `given` is the descriptor of its standard input, where a
    keeper has to hand it on. `bounds` are what it may take up, `report` the descriptor to which its keeper says which of them it
    reached. `fresh`: its temporary folders are empty file systems of a fixed size, gone with it.
    """

    argv: tuple[str, ...]
    env: dict[str, str]
    workspace: Path
    temporary: Path
    empty: Path
    writable: tuple[Path, ...] = ()
    hidden: tuple[Path, ...] = ()
    shown: tuple[Path, ...] = ()
    git: tuple[GitFolder, ...] = ()
    network: bool = False
    given: int | None = None
    bounds: CommandBounds | None = None
    report: int | None = None
    fresh: bool = False


class Wrapped(msgspec.Struct, frozen=True, kw_only=True):
    """What to start instead of the command.

    `descriptors` are to be passed on to it, and closed here once it has started. `layers` is how many processes stand around
    the command, the started one among them: they end with it, so a polite signal goes to those below them only. `watches`: it
    ends all that it started when its standard input closes, so no other guard is needed. `report` is the one of the descriptors
    to which it says, in words, which bound the command reached.
    """

    argv: tuple[str, ...]
    env: dict[str, str]
    descriptors: tuple[int, ...] = ()
    layers: int = 0
    watches: bool = False
    report: int | None = None


def in_keeper(
    order: SandboxOrder,
    *,
    argv: tuple[str, ...] = (),
    rules: int | None = None,
    program: str = "-",
    asked: bool = False,
    folder: str = "-",
    handed: tuple[int, ...] = (),
) -> Wrapped:
    """The keeper with the command, which is confined by the Landlock `rules` and the filter `program`, or with the bubblewrap
    `argv` around it, which gets the descriptors `handed`. `asked`: the filter lets the keeper judge signals. New files in
    `folder` count as scratch."""
    bounds = "-"
    if order.bounds is not None:
        one = order.bounds
        bounds = f"{one.memory}:{one.processes}:{one.scratch or '-'}:{KERNELS_SHARE}"
    kept = ":".join(["apart", *map(str, handed)]) if argv else "-"
    rules_text, report, given = ("-" if one is None else str(one) for one in (rules, order.report, order.given))
    how = (rules_text, program, "asked" if asked else "-", bounds, folder, report, kept, given)
    words, script = compiled_script(str(_KEEPER))
    return Wrapped(
        argv=(*words, *how, *(argv or order.argv)),
        env=order.env,
        descriptors=tuple([one for one in (script, rules, order.report, *handed) if one is not None]),
        layers=2 if argv else 1,
        watches=True,
        report=order.report,
    )
