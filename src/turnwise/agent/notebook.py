"""A run's result as Markdown, for notebooks."""

import html
from typing import TYPE_CHECKING, Any

from turnwise.agent.formatting import cost_said, many
from turnwise.vocab import StopReason
from turnwise.vocab.hidden_characters import shown, shown_answer

if TYPE_CHECKING:
    from turnwise.agent.results import RunResult


def markdown_of(result: "RunResult[Any]") -> str:
    """The answer, then one line with how it ended and what it took, then its repairs, folded away.

    The answer is the model's own Markdown, with hidden characters made visible; everything else is shown as plain text.
    """
    parts = [shown_answer(result.text), f"<small>{_plain(_line_of(result))}</small>"]
    if result.repairs:
        rows = [f"<li>{_plain(repair.where)}: {_plain(repair.what)}</li>" for repair in result.repairs]
        head = many(len(result.repairs), "repair")
        parts.append(f"<details><summary>{head}</summary><ul>{''.join(rows)}</ul></details>")
    return "\n\n".join([part for part in parts if part])


def _line_of(result: "RunResult[Any]") -> str:
    whole = "" if result.complete or result.stop_reason is StopReason.WAITING else "not complete"
    return " · ".join(
        [
            *[part for part in (result.stop_reason.value, whole, result.why_incomplete) if part],
            *[f"waits for {call.name}" for call in result.pending],
            many(result.steps, "step"),
            many(len(result.ledger), "request"),
            f"cost {cost_said(result.cost)}",
        ]
    )


def _plain(text: str) -> str:
    """As HTML that shows exactly this text."""
    return html.escape(" ".join(shown(text).split()))
