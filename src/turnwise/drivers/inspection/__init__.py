"""The facts that a permission verdict rests on: where paths lead, and which commands a shell script would run."""

from turnwise.drivers.inspection.calls import inspect_call
from turnwise.drivers.inspection.inspector import INSPECT_S, inspector

__all__ = ["INSPECT_S", "inspect_call", "inspector"]
