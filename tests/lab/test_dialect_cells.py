"""What the library sends to servers with rules of their own: every kind of request to every server, and none is refused."""

import pytest

from lab.dialect_cells import KINDS, cells, printed
from turnwise.lab.strict.dialects import builtin_dialects

REFUSED: frozenset[tuple[str, str]] = frozenset()  # rows and kinds that are known to be refused, each with its reason


@pytest.mark.costly
@pytest.mark.promise("heal:dialect")
async def test_no_server_refuses_what_the_library_sends() -> None:
    """Proves: all ten kinds of request pass the judge of each server and the family's own. `python -m lab.dialect_cells` prints
    what is refused."""
    found = await cells()
    assert {(one.row, one.kind) for one in found if one.refused} == REFUSED, printed(found)
    assert len(found) == len(KINDS) * len(builtin_dialects()) and all(one.requests for one in found)
