"""What an interactive session has used, over all its turns."""

from collections import Counter
from collections.abc import Sequence

import msgspec

from turnwise.agent.formatting import PRICE_WANTED, cost_said, many, purposes_said
from turnwise.agent.results import RunResult
from turnwise.rules.pricing import Cost
from turnwise.turn.config import ChildReport
from turnwise.vocab import NO_USAGE, Usage


class SessionSpent(msgspec.Struct, kw_only=True):
    """Sums of the turns that this process ran. `purposes` are the requests by purpose, sub-agents' under `child`."""

    turns: int = 0
    usage: Usage = NO_USAGE
    cost: Cost = Cost()
    purposes: Counter[str] = msgspec.field(default_factory=Counter[str])

    def add(self, result: RunResult) -> None:
        self.turns += 1
        self.usage += result.usage
        self.cost += result.cost
        self.purposes.update(result.requests_by_purpose)
        self._add_children(result.children)

    def _add_children(self, children: Sequence[ChildReport]) -> None:
        for child in children:
            self.usage += child.usage
            if child.requests:
                self.purposes["child"] += child.requests

    def lines(self) -> list[str]:
        usage, requests = self.usage, sum(self.purposes.values())
        parts = purposes_said(self.purposes)
        return [
            f"{many(self.turns, 'turn')}, {many(requests, 'request')}{f': {parts}' if parts else ''}",
            f"{usage.input_tokens:,} tokens in ({usage.cache_read_tokens:,} of them from the cache), "
            f"{usage.output_tokens:,} out ({usage.reasoning_tokens:,} of them reasoning)",
            *([f"cost {cost_said(self.cost)}"] if self.cost.requests else []),
            *([PRICE_WANTED] if self.cost.unknown else []),
        ]
