"""`cache` from the command line and a file: one row of the table of options (issue 17)."""

from turnwise.settings.options import rows
from turnwise.turn.config import TurnConfig


def test_a_session_of_before_is_asked_for_again() -> None:
    """Proves: a journal that knows nothing of caches is not one that has them off; a session keeps what it was given."""
    (row,) = [row for row in rows() if row.name == "cache"]
    before = TurnConfig(session_id="s", turn_id="t", model="m")
    off = TurnConfig(session_id="s", turn_id="t", model="m", cache="off", marks_cache=True)
    hour = TurnConfig(session_id="s", turn_id="t", model="m", cache="1h")
    assert row.option.kept is not None
    assert [row.option.kept(one) for one in (before, off, hour)] == [None, "off", "1h"]
