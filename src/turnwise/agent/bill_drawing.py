"""A bill drawn with matplotlib: requests over time, tokens by kind, and what recovery cost. matplotlib is imported on use."""

# matplotlib's own types leave `**kwargs` open in every method; this can go once they do not.
# pyright: reportUnknownMemberType=false

from collections.abc import Sequence
from typing import TYPE_CHECKING

from turnwise.agent.formatting import PURPOSES, cost_said, many
from turnwise.errors import CallerError
from turnwise.journal.ledger import OK, LedgerEntry, cost_of
from turnwise.turn.events import RECOVERY
from turnwise.vocab import NO_USAGE, Usage

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

COLOURS = {
    "step": "tab:blue",
    "retry": "tab:red",
    "continue": "tab:orange",
    "compact": "tab:purple",
    "title": "tab:gray",
    "child": "tab:cyan",
    "answer": "tab:green",
}
GIVEN_UP = "given up"
KINDS = {
    "input": "tab:blue",
    "read from cache": "tab:cyan",
    "written to cache": "tab:purple",
    "output": "tab:orange",
    "reasoning": "tab:brown",
}


def drawn(entries: Sequence[LedgerEntry]) -> "Figure":
    """Three charts, one below the other. Raises CallerError if matplotlib is not installed."""
    try:
        from matplotlib.figure import Figure
    except ImportError:
        raise CallerError("`plot` draws with matplotlib, which is not installed: `pip install matplotlib`") from None
    figure = Figure(figsize=(8, 9), layout="constrained")
    figure.suptitle(f"{many(len(entries), 'request')}, cost {cost_said(cost_of(entries))}")
    over_time, tokens, recovery = (figure.add_subplot(3, 1, place) for place in (1, 2, 3))
    _draw_times(over_time, entries)
    _draw_tokens(tokens, entries)
    _draw_recovery(recovery, entries)
    return figure


def group_of(entry: LedgerEntry) -> str:
    """The group of a request in the chart: its purpose, or that it was given up and sent again."""
    return GIVEN_UP if entry.discarded else PURPOSES.get(entry.purpose, (entry.purpose,))[0]


def token_kinds(usage: Usage) -> tuple[int, ...]:
    """The tokens of a request by kind, in the order of `KINDS`. Their sum is its input and output."""
    cached = usage.cache_read_tokens + usage.cache_write_tokens
    return (
        max(usage.input_tokens - cached, 0),
        usage.cache_read_tokens,
        usage.cache_write_tokens,
        max(usage.output_tokens - usage.reasoning_tokens, 0),
        usage.reasoning_tokens,
    )


def recovery_shares(entries: Sequence[LedgerEntry]) -> tuple[str, dict[str, float]]:
    """The unit, and the amount of each group of requests: US dollars if every price is known, otherwise tokens."""
    cost = cost_of(entries)
    in_usd = not cost.is_partial and cost.usd > 0
    shares: dict[str, float] = {}
    for entry in entries:
        usage = entry.usage or NO_USAGE
        amount = float(entry.usd or 0) if in_usd else usage.input_tokens + usage.output_tokens
        shares[group_of(entry)] = shares.get(group_of(entry), 0) + amount
    return ("US dollars" if in_usd else "tokens"), shares


def _draw_times(axes: "Axes", entries: Sequence[LedgerEntry]) -> None:
    """One line for each request, from when it left to its end. A failed request is dotted, an open one is a dot."""
    axes.set_title("Requests over time")
    axes.set_xlabel("seconds since the first request")
    axes.set_ylabel("request")
    first = min([entry.started for entry in entries], default=0.0)
    for purpose, colour in COLOURS.items():
        label = PURPOSES[purpose][1]
        for is_well in (True, False):
            lines = [
                (number, entry.started - first, (entry.ended or entry.started) - first)
                for number, entry in enumerate(entries, 1)
                if entry.purpose == purpose and (entry.outcome == OK and not entry.discarded) == is_well
            ]
            if lines:
                numbers, begins, ends = zip(*lines, strict=True)
                text = label if is_well else f"{label}, failed or given up"
                axes.hlines(
                    numbers,
                    begins,
                    ends,
                    colors=colour,
                    linestyles="solid" if is_well else "dotted",
                    linewidth=3,
                    label=text,
                )
                axes.plot(begins, numbers, ".", color=colour)
    axes.margins(0.05)
    axes.invert_yaxis()
    if entries:
        axes.legend(loc="upper right", fontsize="small")


def _draw_tokens(axes: "Axes", entries: Sequence[LedgerEntry]) -> None:
    """Stacked bars, request by request."""
    axes.set_title("Tokens by kind")
    axes.set_xlabel("request")
    axes.set_ylabel("tokens")
    if not entries:
        return
    heights = [token_kinds(entry.usage or NO_USAGE) for entry in entries]
    heights.append(heights[-1])  # the last step needs an end
    edges = [number + 0.5 for number in range(len(heights))]
    axes.stackplot(edges, *zip(*heights, strict=True), labels=list(KINDS), colors=list(KINDS.values()), step="post")
    axes.set_xlim(edges[0], edges[-1])
    axes.legend(loc="upper left", fontsize="small")


def _draw_recovery(axes: "Axes", entries: Sequence[LedgerEntry]) -> None:
    """One bar for each group. The title says how much went into recovery and into requests that were given up."""
    unit, shares = recovery_shares(entries)
    lost = {PURPOSES[purpose][0] for purpose in RECOVERY} | {GIVEN_UP}
    spent = sum([amount for group, amount in shares.items() if group in lost])
    total = sum(shares.values())
    said = f"{spent:,.4f} of {total:,.4f}" if unit == "US dollars" else f"{spent:,.0f} of {total:,.0f}"
    axes.set_title(f"What recovery cost: {said} {unit}")
    axes.set_xlabel(unit)
    if shares:
        colours = ["tab:red" if group in lost else "tab:blue" for group in shares]
        axes.barh(list(shares), list(shares.values()), color=colours)
        axes.invert_yaxis()
