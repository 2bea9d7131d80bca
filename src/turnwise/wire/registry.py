"""The families by name. A family's module is imported when it is first asked for, so that a run pays for one of them."""

import functools
import importlib

from turnwise.wire.family import Family
from turnwise.wire.profiles import FamilyName

MODULES = {
    "openai_chat": "turnwise.wire.openai_chat",
    "openai_responses": "turnwise.wire.openai_responses",
    "anthropic_messages": "turnwise.wire.anthropic_messages",
    "gemini": "turnwise.wire.gemini",
}

USUAL: FamilyName = "openai_chat"
"""What most servers and clients speak: meant where nothing says which."""


@functools.cache
def family(name: str) -> Family:
    """Raises KeyError for a name that is none of MODULES."""
    found = importlib.import_module(MODULES[name]).FAMILY
    assert isinstance(found, Family)
    return found
