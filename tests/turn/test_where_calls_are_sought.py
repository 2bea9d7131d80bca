"""In which responses the text may hold calls (issue 18: a mutant that no test noticed). Events in, commands out."""

import pytest
from msgspec.structs import replace

from turn.playing import CONFIG, play, says
from turnwise.turn.config import CallsInText
from turnwise.turn.events import SoughtCalls

TOOLS = tuple([offer.spec for offer in CONFIG.tools])
MARKED, ANY = SoughtCalls(tools=TOOLS, unmarked=False), SoughtCalls(tools=TOOLS, unmarked=True)


@pytest.mark.parametrize(
    ("wanted", "leaves", "sought"),
    [
        ("auto", False, None),
        ("auto", True, MARKED),
        ("on", False, ANY),
        ("on", True, ANY),
        ("off", False, None),
        ("off", True, None),
    ],
)
def test_calls_are_sought_in_text_where_the_user_or_the_endpoint_says_so(
    wanted: CallsInText, leaves: bool, sought: SoughtCalls | None
) -> None:
    """Proves: what the user says goes before what the endpoint may do, and `off` is never."""
    played = play([says("Done.")], config=replace(CONFIG, calls_in_text=wanted, leaves_calls_in_text=leaves))
    assert played.requests[0].calls_in_text == sought
