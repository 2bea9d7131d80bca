"""The facts that a permission verdict rests on: where paths lead, and which commands a shell script would run."""

from typing import TYPE_CHECKING

from turnwise.tools.shell_judge.inspector import INSPECT_S, inspector

if TYPE_CHECKING:
    from turnwise.tools.shell_judge.call_facts import inspect_call

__all__ = ["INSPECT_S", "inspect_call", "inspector"]


def __getattr__(name: str) -> object:
    """`inspect_call` comes with the reader of shell scripts, which a run without calls does not need."""
    if name != "inspect_call":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from turnwise.tools.shell_judge.call_facts import inspect_call

    return inspect_call
