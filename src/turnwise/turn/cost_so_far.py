"""What the requests of a turn have cost, as its limits of cost count it.

A request whose price nobody said (it broke off, the provider counts nothing, it has parts that are billed apart) counts as it
was projected before it left, or as its tokens cost where that is more: unknown is never 0 (promise bill:plans). One whose price
is known in part counts at the dearest price that is known. The ledger, which says what is known, is kept by the drivers.
"""

from collections.abc import Mapping
from decimal import Decimal

import msgspec

from turnwise.rules.limits import Spent
from turnwise.rules.pricing import ZERO, Fate, Priced, PriceRow, add, fate_of_failure, price_of
from turnwise.rules.provider_tool_costs import billed_apart
from turnwise.turn.events import Event, Interrupted, RequestFailed, ResponseReceived
from turnwise.vocab import FinishReason, Response, Usage

NO_ROWS: Mapping[str, PriceRow] = {}


class AtStake(msgspec.Struct, frozen=True, kw_only=True):
    """The request at hand: its model and the row of that, and what it was projected to cost."""

    row: PriceRow
    model: str = ""
    step: int
    projected_usd: Decimal


class Purse(msgspec.Struct, frozen=True, kw_only=True):
    """`projected` are the requests of unknown price in `usd`, `at_dearest` those of which a part is unknown; `billed` those of
    `step` that a plan by step has billed."""

    usd: Decimal = ZERO
    projected: int = 0
    at_dearest: int = 0
    step: int = 0
    billed: int = 0
    at_stake: AtStake | None = None

    @property
    def guessed(self) -> Spent:
        """How many of the requests in `usd` are not there at a price that somebody said."""
        return Spent(projected=self.projected, at_dearest=self.at_dearest)

    def is_billed(self, step: int) -> bool:
        """Whether a plan by step has billed that step."""
        return self.step == step and self.billed > 0

    def stakes(self, at_stake: AtStake) -> "Purse":
        """A request leaves."""
        same = self.step == at_stake.step
        return msgspec.structs.replace(self, at_stake=at_stake, step=at_stake.step, billed=self.billed if same else 0)

    def saw(self, event: Event, *, searches: bool, rows: Mapping[str, PriceRow] = NO_ROWS) -> "Purse":
        """What an event tells of the price of the request at hand, which asked for `searches` or not. `rows` are those of other
        models, which may have done a part of it."""
        if self.at_stake is None:
            return self
        stake = self.at_stake
        match event:
            case ResponseReceived(response=response):
                is_whole = response.fault is None and response.finish is not FinishReason.CUT
                fate = "whole" if is_whole else "broken"
                apart = billed_apart(response, model=stake.model, searches=searches)
                return self._pays(stake, response.usage, fate=fate, apart=apart, rows=rows)
            case RequestFailed(sent=False):
                return msgspec.structs.replace(self, at_stake=None)
            case RequestFailed(partial=partial, fault=fault, is_answer=is_answer):
                usage = _usage_of(partial)
                fate = fate_of_failure(fault, is_answer=is_answer, has_content=partial is not None, usage=usage)
                return self._pays(stake, usage, fate=fate, rows=rows)
            case Interrupted(partial=partial):
                return self._pays(stake, _usage_of(partial), fate="broken", rows=rows)
            case _:
                return self

    def pays_unknown(self, usd: Decimal) -> "Purse":
        """A sub-agent of unknown cost is charged its full share."""
        return msgspec.structs.replace(self, usd=add(self.usd, usd), projected=self.projected + 1)

    def _pays(
        self, stake: AtStake, usage: Usage | None, *, fate: Fate, rows: Mapping[str, PriceRow], apart: str = ""
    ) -> "Purse":
        price = price_of(usage, row=stake.row, fate=fate, billed_in_step=self.billed, apart=apart, row_of=rows.get)
        guessed, dearest = 0, 0
        if isinstance(price, Priced) and price.most_usd is not None:
            usd, dearest = max(price.most_usd, price.usd), 1
        elif isinstance(price, Priced):
            usd = price.usd
        else:
            counted = (
                None if usage is None else price_of(usage, row=stake.row, billed_in_step=self.billed, row_of=rows.get)
            )
            known = (counted.most_usd or counted.usd) if isinstance(counted, Priced) else ZERO
            usd, guessed = max(stake.projected_usd, known), 1
        return msgspec.structs.replace(
            self,
            usd=add(self.usd, usd),
            projected=self.projected + guessed,
            at_dearest=self.at_dearest + dearest,
            billed=self.billed + (stake.row.plan == "step" and usd > 0),
            at_stake=None,
        )


def _usage_of(partial: Response | None) -> Usage | None:
    return None if partial is None else partial.usage
