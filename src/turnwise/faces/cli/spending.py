"""What a run may spend, out of the command line, the session and the folder."""

from turnwise.faces.cli.folder import FolderSettings
from turnwise.rules.limits import AnyOf, Limit, MaxRequests, MaxTokens, MaxWallTime


def limits_of(
    *,
    requests: int | None,
    tokens: int | None,
    seconds: float | None,
    last: Limit | None,
    settings: FolderSettings,
) -> Limit | None:
    """Each kind of limit by itself: the command line's, else the session's, else the folder's. Whichever is reached first
    ends the turn."""
    named = _limits(requests=requests, tokens=tokens, seconds=seconds)
    folder = _limits(requests=settings.max_requests, tokens=settings.max_tokens, seconds=settings.max_time)
    before = last.limits if isinstance(last, AnyOf) else () if last is None else (last,)
    chosen = list(named)
    for source in (before, folder):
        kinds = {type(one) for one in chosen}
        chosen += [one for one in source if type(one) not in kinds]
    if len(chosen) < 2:
        return chosen[0] if chosen else None
    return AnyOf(tuple(chosen))


def _limits(*, requests: int | None, tokens: int | None, seconds: float | None) -> tuple[Limit, ...]:
    limits: list[Limit] = []
    if requests is not None:
        limits.append(MaxRequests(requests))
    if tokens is not None:
        limits.append(MaxTokens(tokens))
    if seconds is not None:
        limits.append(MaxWallTime(seconds))
    return tuple(limits)
