"""Structured output: does the answer hold JSON that fits, and what to say if not."""

import re
from collections.abc import Sequence

import msgspec

from turnwise.rules.schema import decode_strictly, schema_errors
from turnwise.vocab import FinishReason, OutputSchema, Repair


class OutputFits(msgspec.Struct, frozen=True):
    """`json` is the answer's JSON text; `repairs` say if a code fence was taken off."""

    json: str
    repairs: tuple[Repair, ...] = ()


class Misfits(msgspec.Struct, frozen=True):
    """`correction` is the user-role text that asks for a corrected answer."""

    correction: str


# One fence around the whole answer; never one found somewhere inside it, which would be a guess.
_FENCE = re.compile(r"\A\s*```[A-Za-z0-9_-]*[ \t]*\n(.*?)\n?[ \t]*```\s*\Z", re.DOTALL)


def judge_output(text: str, *, output: OutputSchema, finish: FinishReason) -> OutputFits | Misfits:
    """Take off one code fence at most, parse strictly, validate."""
    fenced = _FENCE.match(text)
    repairs = (Repair("output_fence", "answer", "took one code fence off the JSON"),) if fenced else ()
    body = (fenced.group(1) if fenced else text).strip()
    try:
        value = decode_strictly(body)
    except ValueError as error:
        return Misfits(_correction([f"it is not valid JSON: {error}"], finish=finish))
    errors = schema_errors(output.schema, value=value)
    return Misfits(_correction(list(errors), finish=finish)) if errors else OutputFits(body, repairs)


def refused_output(problems: Sequence[str]) -> str:
    """The user-role text that asks for another answer than one that fits the schema, but not the type behind it."""
    lines = "\n".join([f"- {problem}" for problem in problems])
    return (
        "Your answer fits the JSON Schema, but it was refused. Answer again with the corrected JSON only, without a code fence "
        f"or any other text:\n{lines}"
    )


def _correction(errors: list[str], *, finish: FinishReason) -> str:
    lines = "\n".join([f"- {error}" for error in errors])
    shorter = " It was cut by the output limit: be shorter." if finish is FinishReason.LENGTH else ""
    return (
        f"Your answer does not fit the JSON Schema that it has to fit.{shorter} Answer again with the corrected JSON only, "
        f"without a code fence or any other text:\n{lines}"
    )
