"""What the library sends to servers with rules of their own: what is taken today stays taken."""

from lab.dialect_cells import cells, printed
from turnwise.lab.strict.dialects import builtin_dialects

TAKING_ALL = {"groq", "ollama", "ollama-cloud", "openrouter", "gemini-openai", "alibaba", "lmstudio"}
NEVER_REFUSED = {"plain turn", "structured output"}
REFUSED_CELLS = 30  # of 160; to go down as requests are made to fit


async def test_what_servers_take_today_they_go_on_taking() -> None:
    """Proves: no plain turn and no structured output is refused anywhere, seven servers take all ten kinds of request, no run is
    refused by the family's own judge, and no more cells are refused than are known. `python -m lab.dialect_cells` prints them."""
    found = await cells()
    bad = [one for one in found if one.refused]
    assert not [one for one in bad if one.row in TAKING_ALL or one.kind in NEVER_REFUSED], printed(found)
    assert len(bad) <= REFUSED_CELLS, printed(found)
    assert all(one.requests for one in found)
    words = {
        name: [rule.message.partition("{")[0] for rule in dialect.rules] for name, dialect in builtin_dialects().items()
    }
    known = [(one, said) for one in bad for said in one.refused if any(map(said.startswith, words[one.row]))]
    assert len(known) == sum(len(one.refused) for one in bad), printed(found)
