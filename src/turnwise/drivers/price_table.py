"""The token prices that come with the package `genai-prices`, as rows. Importing this module reads them all."""

from collections.abc import Mapping
from datetime import UTC, datetime
from decimal import Decimal
from typing import cast

import genai_prices
from genai_prices.data_snapshot import DataSnapshot
from genai_prices.types import TieredPrices

from turnwise.rules.pricing import PriceRow, TokenPrices

SOURCE = f"genai-prices {genai_prices.__version__}"
THOUSAND = Decimal(1000)
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
        from genai_prices.data import providers

        self._snapshot = DataSnapshot(providers=providers, from_auto_update=False)

    def find(self, model: str, *, provider: str, at_s: float) -> PriceRow | None:
        """What the table says of that time: some prices change on a date, some with the hour."""
        try:
            _, found = self._snapshot.find_provider_model(model, None, provider, None)
        except LookupError:
            return None
        prices = found.get_prices(datetime.fromtimestamp(at_s, UTC))
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
