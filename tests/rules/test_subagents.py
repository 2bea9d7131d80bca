"""The bounds on a turn's tree: every place is given before it is used, and all of them together stay within."""

from hypothesis import given
from hypothesis import strategies as st

from turnwise.rules.reservations import Place, SubagentBounds, Used, no_place, paid, places_of

amounts = st.none() | st.integers(0, 400)
used_ones = st.builds(Used, subagents=st.integers(0, 40), requests=st.integers(0, 400))


@given(bounds=st.builds(SubagentBounds, subagents=amounts, requests=amounts), used=used_ones, among=st.integers(0, 200))
def test_all_places_together_are_what_is_left(bounds: SubagentBounds, used: Used, among: int) -> None:
    """Proves: no bound is exceeded by what is given out, nothing is left unspent, and as many run as there is room for."""
    places = places_of(bounds, used=used, among=among)
    room = [among]
    if bounds.subagents is not None:
        left = bounds.subagents - used.subagents
        room.append(max(left, 0))
        given_out = len(places) + sum([place.subagents or 0 for place in places])
        assert given_out == (left if places else 0)
    if bounds.requests is not None:
        left = bounds.requests - used.requests
        room.append(max(left, 0))
        assert sum([place.requests or 0 for place in places]) == (left if places else 0)
        assert all(place.requests is not None and place.requests > 0 for place in places)
    assert len(places) == min(room)
    if bounds == SubagentBounds():
        assert set(places) <= {Place()}


@given(place=st.builds(Place, subagents=amounts, requests=amounts), below=st.integers(0, 9), made=st.integers(0, 9))
def test_what_nobody_knows_the_end_of_has_used_its_whole_place(place: Place, below: int, made: int) -> None:
    """Proves: a sub-agent that ended counts as it was; one that was left behind may go on, so its place is gone."""
    ended = paid(Used(subagents=1, requests=2), subagents=below, requests=made, place=place, has_ended=True)
    assert ended == Used(subagents=2 + below, requests=2 + made)
    lost = paid(Used(), subagents=below, requests=made, place=place, has_ended=False)
    assert lost == Used(subagents=1 + max(below, place.subagents or 0), requests=max(made, place.requests or 0))


def test_the_word_names_the_bound_that_was_reached() -> None:
    """Proves: the model reads which limit, how many there may be, and how many there are."""
    bounds = SubagentBounds(subagents=32, requests=300)
    assert "the limit of 32 sub-agents is reached (32 started" in no_place(bounds, used=Used(subagents=30), started=2)
    full = no_place(bounds, used=Used(subagents=3, requests=300), started=0)
    assert "the limit of 300 requests by sub-agents leaves none for this one (300 made)" in full
    beside = no_place(bounds, used=Used(subagents=3, requests=299), started=1)
    assert "(299 made, the rest is for 1 sub-agent beside it)" in beside
