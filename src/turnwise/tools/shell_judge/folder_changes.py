"""Where `cd` leads what comes after it.

bash takes `..` off the path that it came by, a program off the path that is there: behind a link `cd ..` leads to where the link
stands, `cat ../x` to where it leads (bash manual, `cd -L`).
"""

import os
from collections.abc import Callable, Collection

import msgspec

from turnwise.rules.permission_facts import PathFact
from turnwise.tools.shell_judge.script_limits import MAX_PLACES
from turnwise.tools.shell_judge.wrappers import CommandWords

Places = tuple[str, ...] | None
"""The folders in which a command may run; None: any."""


class Stand(msgspec.Struct, frozen=True):
    """`places`, and whether one of them may have been reached by a link. `arrived` are those where one stands if the move
    succeeds. `doubt` says why it is not known where one stands."""

    places: Places
    linked: bool = False
    doubt: str = ""
    arrived: Places = None


def joined(places: Collection[str] | None, others: Collection[str] | None) -> Places:
    """The folders of both; None where those are too many."""
    if places is None or others is None:
        return None
    found = tuple(sorted({*places, *others}))
    return found if len(found) <= MAX_PLACES else None


def moved(
    words: CommandWords,
    *,
    stand: Stand,
    surely: bool,
    look_up: Callable[[str, str, bool], PathFact],
    may_enter: Callable[[str], bool],
) -> Stand:
    """Where one stands after `cd` with these words. `surely`: it runs in any case. `look_up` takes a path, the folder that it is
    relative to, and whether its `~` counts; `may_enter` tells of a path whether `cd` to it succeeds."""
    nowhere = Stand(None, linked=stand.linked, doubt="where it leads is known only when it runs")
    operands = [word for word in words if not (word.literal and word.text in ("-L", "-P", "--"))]
    if stand.places is None or len(operands) != 1:
        return nowhere
    (target,) = operands
    if not target.literal or target.is_glob or target.text.startswith("-") or not target.text:
        return nowhere
    facts = [look_up(target.text, place, target.has_tilde) for place in stand.places]
    if not all(fact.resolved and "//" not in fact.resolved for fact in facts):
        return nowhere
    if ".." in target.text.split("/"):
        apart = any(look_up(fact.lexical, "/", False).resolved != fact.resolved for fact in facts)
        if apart or (stand.linked and not target.text.startswith("/")):
            return nowhere
    linked = stand.linked or any(fact.lexical != fact.resolved for fact in facts)
    arrived = joined((), [fact.resolved for fact in facts])
    # as it is spelled: `no_such/..` is no folder, though what it comes to is one
    sure = surely and all(may_enter(os.path.join(place, target.text)) for place in stand.places)  # noqa: PTH118
    return Stand(arrived if sure else joined(arrived, stand.places), linked=linked, arrived=arrived)
