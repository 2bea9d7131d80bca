"""The facts that a permission verdict rests on: where paths lead, and which commands a shell script would run."""

from turnwise.drivers.inspection.calls import inspect_call

__all__ = ["inspect_call"]
