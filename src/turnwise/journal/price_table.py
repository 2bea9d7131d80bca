"""The token prices that come with the package `genai-prices`, as rows. Importing this module reads them all."""

from collections.abc import Mapping
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from importlib import import_module
from typing import cast

import genai_prices
from genai_prices.data_snapshot import DataSnapshot
from genai_prices.types import ModelPrice, Provider, StartDateConstraint, TieredPrices, TimeOfDateConstraint

from turnwise.journal.kept_prices import KeptRow
from turnwise.rules.pricing import PriceRow, TokenPrices

SOURCE = f"genai-prices {genai_prices.__version__}"
THOUSAND = Decimal(1000)
MOST_REMEMBERED = 1000  # models; a gateway may be asked for any name
# Ours and theirs.
FIELDS = {
    "input": "input_mtok",
    "output": "output_mtok",
    "cache_read": "cache_read_mtok",
    "cache_write": "cache_write_mtok",
    "cache_write_1h": "cache_write_1h_mtok",
    "reasoning": "output_reasoning_mtok",
}


class PriceTable:
    """The table as the package brought it: what somebody sets to download newer prices does not change ours."""

    def __init__(self) -> None:
        # By its name: the module is one literal of 1.6 MB, of which pyright would infer every value for 70 s of CPU.
        providers = cast("list[Provider]", import_module("genai_prices.data").providers)
        self._snapshot = DataSnapshot(providers=providers, from_auto_update=False)
        self._found: dict[tuple[str, str], KeptRow] = {}

    def names(self, provider: str) -> list[str]:
        """The models that the table knows of a provider."""
        return [model.id for one in self._snapshot.providers if one.id == provider for model in one.models]

    def find(self, model: str, *, provider: str, at_s: float) -> KeptRow:
        """What the table says of that time, and how long that holds. Each request asks: what was found is remembered, as going
        through the names of a provider that does not know the model takes 0.4 ms."""
        found = self._found.get((provider, model))
        if found is None or not found.holds_at(at_s):
            if len(self._found) >= MOST_REMEMBERED:
                self._found.clear()
            found = self._found[provider, model] = self._look_up(model, provider=provider, at_s=at_s)
        return found

    def _look_up(self, model: str, *, provider: str, at_s: float) -> KeptRow:
        try:
            _, found = self._snapshot.find_provider_model(model, None, provider, None)
        except LookupError:
            return KeptRow()
        at = datetime.fromtimestamp(at_s, UTC)
        constraints = [] if isinstance(found.prices, ModelPrice) else [price.constraint for price in found.prices]
        edges = sorted({edge for constraint in constraints for edge in _edges(constraint, near=at)})
        return KeptRow(
            row=_row_of(found.get_prices(at)),
            since_s=max([edge.timestamp() for edge in edges if edge <= at], default=None),
            until_s=min([edge.timestamp() for edge in edges if edge > at], default=None),
        )


def _edges(constraint: object, *, near: datetime) -> list[datetime]:
    """The times around `near` at which the constraint may begin or cease to hold."""
    match constraint:
        case None:
            return []
        case StartDateConstraint():
            return [_at_utc(constraint.start_date, time())]
        case TimeOfDateConstraint():
            days = [near.date() + timedelta(days=days) for days in (-2, -1, 0, 1, 2)]  # an offset may cross midnight
            return [_at_utc(day, edge) for day in days for edge in (constraint.start_time, constraint.end_time)]
        case _:  # of a newer package: it is asked again a moment later
            return [near, near + timedelta(seconds=1)]


def _at_utc(day: date, at: time) -> datetime:
    moment = datetime.combine(day, at)
    return moment.replace(tzinfo=UTC) if moment.tzinfo is None else moment.astimezone(UTC)


def _row_of(prices: ModelPrice) -> PriceRow | None:
    said = {key: value for key, value in cast("Mapping[str, object]", vars(prices)).items() if value is not None}
    figures = {name: _steps(said[key]) for name, key in FIELDS.items() if key in said}
    if "input" not in figures or "output" not in figures:
        return None
    starts = sorted({start for steps in figures.values() for start in steps})
    tokens = [_at(figures, start=start) for start in starts]
    requests = said.get("requests_kcount")
    per_request = requests / THOUSAND if isinstance(requests, Decimal) else None
    return PriceRow(plan="tokens", source=SOURCE, tokens=tuple(tokens), request_usd=per_request)


def _steps(price: object) -> dict[int, Decimal]:
    """A price by the size of prompt above which it holds."""
    if isinstance(price, TieredPrices):
        return {0: price.base, **{tier.start: tier.price for tier in price.tiers}}
    assert isinstance(price, Decimal), "prices of the package are decimals"
    return {0: price}


def _at(figures: Mapping[str, Mapping[int, Decimal]], *, start: int) -> TokenPrices:
    prices = {name: steps[max([at for at in steps if at <= start])] for name, steps in figures.items()}
    return TokenPrices(
        input=prices["input"],
        output=prices["output"],
        cache_read=prices.get("cache_read"),
        cache_write=prices.get("cache_write"),
        cache_write_1h=prices.get("cache_write_1h"),
        reasoning=prices.get("reasoning"),
        above_tokens=start,
    )
