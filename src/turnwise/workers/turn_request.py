"""What a submitted turn may have at most: a column of its row, as text. A worker's agent has the last word."""

from decimal import Decimal
from typing import Annotated

import msgspec

from turnwise.errors import TurnRefused
from turnwise.rules.limits import Limit
from turnwise.settings.options import Count, CountOrNone, RunSettings, Seconds, Steps, limits_in
from turnwise.turn.config import Effect

WishedName = Annotated[str, msgspec.Meta(max_length=500)]
WishedText = Annotated[str, msgspec.Meta(max_length=1_000_000)]


class TurnWishes(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """Limits, and the effects of tools that may run, only narrow what the agent has. A worker says which models it allows beside
    the agent's own, and whether it takes instructions. "" and None: nothing is said."""

    model: WishedName = ""
    instructions: WishedText = ""
    effects: tuple[Effect, ...] | None = None
    max_steps: Steps | None = None
    max_requests: Count | None = None
    max_tokens: Count | None = None
    max_cost: Decimal | None = None
    max_time: Seconds | None = None
    max_tool_calls: CountOrNone | None = None

    def limits(self) -> list[Limit]:
        """Each stops the turn by itself."""
        return limits_in(
            RunSettings(
                max_requests=self.max_requests,
                max_tokens=self.max_tokens,
                max_cost=self.max_cost,
                max_time=self.max_time,
                max_tool_calls=self.max_tool_calls,
            )
        )


NO_WISHES = TurnWishes()


def write_wishes(wishes: TurnWishes) -> str:
    return msgspec.json.encode(wishes).decode()


def read_wishes(text: str) -> TurnWishes:
    """Raises TurnRefused where the text is nothing that this version knows: what it cannot read it must not leave out."""
    if not text:
        return NO_WISHES
    try:
        found = msgspec.json.decode(text, type=TurnWishes)
    except (msgspec.DecodeError, UnicodeError, RecursionError) as error:
        raise TurnRefused(
            f"what the turn may have at most cannot be read: {error}; a newer turnwise may know it"
        ) from None
    if found.max_cost is not None and not (found.max_cost.is_finite() and found.max_cost > 0):
        raise TurnRefused("what the turn may have at most cannot be read: `max_cost` is no amount of money")
    return found
