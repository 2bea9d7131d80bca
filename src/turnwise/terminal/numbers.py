"""Numbers of the command line."""

import math
from typing import Any

import click


class FiniteRange(click.FloatRange):
    """A finite number within bounds. click lets `nan` through, as it is neither below a bound nor above it."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        number = super().convert(value, param, ctx)
        if not math.isfinite(number):
            self.fail(f"{value} is not a finite number", param, ctx)
        return number
