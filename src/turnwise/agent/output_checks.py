"""The type that an answer has to have, with the user's own checks of it."""

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from turnwise.agent.deps import name_of
from turnwise.agent.schemas import OutputCheck, OutputType, problems_of, read_output_type
from turnwise.base.clock import Clock, Overdue
from turnwise.errors import CallerError
from turnwise.running.run_context import RunAtHand, context_of, wants_context
from turnwise.running.runner_config import OutputChecker
from turnwise.running.user_functions import said_by

THREAD = "turnwise-output-check"


def read_output(wanted: object, *, checks: Sequence[OutputCheck]) -> OutputType | None:
    """An agent's output type. Raises CallerError for one that cannot be described, and for checks without a type."""
    output = None if wanted is None else read_output_type(wanted)
    return _with_checks(output, checks)


def output_over(output: OutputType | None, options: Mapping[str, Any]) -> OutputType | None:
    """What a resumed run says in place of its agent's `output`. The agent's checks go with the agent's type."""
    if "output_type" in options:
        return _with_checks(read_output_type(options["output_type"]), options.get("output_checks", ()))
    return _with_checks(output, options["output_checks"]) if "output_checks" in options else output


def _with_checks(output: OutputType | None, checks: Sequence[OutputCheck]) -> OutputType | None:
    if output is None:
        if checks:
            raise CallerError("`output_checks` look at the value of an `output_type`, and there is none: give one")
        return None
    return msgspec.structs.replace(output, further=tuple(checks), checks=output.checks or bool(checks))


def checker_of(output: OutputType | None, *, run: RunAtHand, clock: Clock, timeout_s: float) -> OutputChecker | None:
    """What the type has against an answer, and, where it has nothing, what the user's checks have: one after the other, up to the
    first that refuses it. One that does not answer within `timeout_s` refuses it."""
    if output is None or not output.further:
        return None if output is None else output.problems

    async def check(text: str) -> Sequence[str]:
        if problems := output.problems(text):
            return problems
        for one in output.further:
            given = (context_of(run), output.parse(text)) if wants_context(one, beside=1) else (output.parse(text),)
            name = name_of(one)
            try:
                said = await said_by(
                    one, *given, clock=clock, timeout_s=timeout_s, name=f"output check {name}", thread=THREAD
                )
            except Overdue:
                return (f"the check `{name}` did not answer within {timeout_s:g} s",)
            if isinstance(said.error, ValueError | AssertionError):
                return (str(said.error) or f"the check `{name}` refuses it",)
            if said.error is not None:
                return problems_of(said.error)
        return ()

    return check
