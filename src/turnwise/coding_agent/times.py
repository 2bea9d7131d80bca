"""When something was, as people say it."""

from datetime import datetime, timedelta, tzinfo

from turnwise.agent.formatting import many

MINUTE_S, HOUR_S, DAY_S = 60, 3600, 86_400


def when_said(at_s: float, *, now_s: float, zone: tzinfo | None = None) -> str:
    """`2 hours ago, 14:05`; with the date where it was not today. Seconds since 1970; `zone` is the machine's unless given."""
    at, now = (datetime.fromtimestamp(seconds, zone) for seconds in (at_s, now_s))
    if at.date() == now.date():
        day = ""
    elif at.date() == (now - timedelta(days=1)).date():
        day = "yesterday "
    else:
        day = f"{at:%Y-%m-%d} "
    return f"{_ago(now_s - at_s)}, {day}{at:%H:%M}"


def _ago(seconds: float) -> str:
    """A clock that was set back makes nothing lie in the future."""
    if seconds < MINUTE_S:
        return "just now"
    if seconds < HOUR_S:
        return f"{many(int(seconds // MINUTE_S), 'minute')} ago"
    if seconds < DAY_S:
        return f"{many(int(seconds // HOUR_S), 'hour')} ago"
    return f"{many(int(seconds // DAY_S), 'day')} ago"
