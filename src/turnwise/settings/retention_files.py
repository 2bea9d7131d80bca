"""The `[sessions]` table of the user's file: what `turnwise sessions prune` keeps unless it is told otherwise."""

import re
from collections.abc import Iterable

import msgspec

from turnwise.errors import CallerError
from turnwise.settings.settings import Layer, is_table

KEY = "sessions"
_SPAN = re.compile(r"([0-9]{1,6})([hdw])")
_SECONDS = {"h": 3600.0, "d": 86_400.0, "w": 604_800.0}


class KeepRule(msgspec.Struct, frozen=True, kw_only=True):
    """A session goes if it was not used for `older_than_s` seconds, and is none of the `keep` latest. None says nothing."""

    older_than_s: float | None = None
    keep: int | None = None


def read_span(text: str) -> float:
    """The seconds of `90d`, `12w`, `24h`. Raises ValueError for other text."""
    found = _SPAN.fullmatch(text)
    if found is None:
        raise ValueError(f"`{text}` is no time: write a number and h, d or w (24h, 90d, 12w)")
    return int(found[1]) * _SECONDS[found[2]]


def read_keep_rule(layers: Iterable[Layer]) -> KeepRule:
    """What the user's file says. Raises CallerError for a key that is none, a value that cannot be, and a project's table: a
    folder from elsewhere must not choose which of your sessions are deleted."""
    rule = KeepRule()
    for layer in layers:
        if KEY not in layer.table:
            continue
        table, named = layer.table[KEY], layer.named(KEY)
        if layer.source != "user":
            raise CallerError(f"{named}: which sessions are kept is the user's to say: put it into your own file")
        if not is_table(table):
            raise CallerError(f"{named} is no table: write `[{KEY}]`, and its keys below")
        if unknown := sorted(table.keys() - {"older_than", "keep"}):
            raise CallerError(f"{named}.{unknown[0]}: no such setting; there are `older_than` and `keep`")
        keep, older = table.get("keep"), table.get("older_than")
        if keep is not None and (type(keep) is not int or keep < 0):
            raise CallerError(f"{layer.named(f'{KEY}.keep')} is `{keep}`: write a number of sessions, 0 or more")
        try:
            older_s = None if older is None else read_span(str(older))
        except ValueError as error:
            raise CallerError(f"{layer.named(f'{KEY}.older_than')}: {error}") from None
        rule = KeepRule(older_than_s=older_s, keep=keep if isinstance(keep, int) else None)
    return rule
