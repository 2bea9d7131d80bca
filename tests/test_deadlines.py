"""docs/deadlines.md names every deadline of a request with the default that the code has."""

import re
from pathlib import Path

import msgspec

from turnwise.endpoints.exchange import AFTER_FINISH_S, ERROR_S
from turnwise.rules.retries import CircuitPolicy, RetryPolicy
from turnwise.running.children import IDLE_S
from turnwise.turn.config import Deadlines
from turnwise.wire.profiles import Profile, builtin_profiles

PAGE = (Path(__file__).resolve().parents[1] / "docs" / "deadlines.md").read_text(encoding="utf-8")


def test_every_default_stands_in_the_tables() -> None:
    """A field without a row, or with another figure, fails."""
    rows = re.findall(r"^\| [^|]+ \| `(\w+)` \| ([\d.]+)[^|]* \|", PAGE, re.MULTILINE)
    of_endpoint = {"first_event_s": Profile(name="p", family="openai_chat").first_event_s, "child_idle_s": IDLE_S}
    named = [
        (field, f"{of_endpoint.get(field, value):g}")
        for defaults in (Deadlines(), RetryPolicy())
        for field, value in msgspec.structs.asdict(defaults).items()
    ]
    assert sorted(rows) == sorted(named)
    assert f"after the finish reason | | {AFTER_FINISH_S:g} |" in PAGE and f"an error's body | | {ERROR_S:g} |" in PAGE
    circuit = CircuitPolicy()
    assert f"last {circuit.failures} requests all failed" in PAGE and f"left alone for {circuit.open_s:g} s" in PAGE


def test_the_time_of_a_slow_endpoint_stands_on_the_page() -> None:
    """The one other value that a profile has; each endpoint's own is in docs/providers.md."""
    found = {profile.first_event_s for profile in builtin_profiles().values()}
    assert found == {120.0, 900.0}
    assert "120; 900 at servers" in PAGE
