"""What rules and the turn know of a family, for tests that make a configuration themselves."""

from typing import Any

from turnwise.vocab import FamilyTraits
from turnwise.wire.family import family


def traits_of(name: str) -> FamilyTraits:
    return family(name).traits


def of_family(name: str) -> dict[str, Any]:
    """The fields of a turn's configuration that say which API it asks, as an agent fills them in."""
    return {"family": name, "traits": traits_of(name)}
