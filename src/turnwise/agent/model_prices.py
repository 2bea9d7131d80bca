"""The prices that an agent's turns need: of its own models, and of those that `prepare_step` names."""

import asyncio
from collections.abc import Mapping, Sequence
from decimal import Decimal

import msgspec

from turnwise.agent.model_facts import asks_hour, checked
from turnwise.agent.models import ModelName
from turnwise.base.clock import Clock
from turnwise.errors import CallerError
from turnwise.journal.prices import Prices
from turnwise.rules.limits import counts_cost, no_price
from turnwise.rules.pricing import PriceRow
from turnwise.rules.projection import can_project
from turnwise.rules.provider_tool_costs import models_named, terms_asked
from turnwise.running.runner_config import StepPreparer
from turnwise.turn.commands import PrepareStep
from turnwise.turn.config import TurnConfig
from turnwise.turn.events import StepPrepared


class ModelPrices:
    """What is known of the prices at one agent's endpoint."""

    def __init__(self, prices: Prices, *, model: ModelName, clock: Clock) -> None:
        self._prices, self._model, self._clock = prices, model, clock

    def of_model(self, model: ModelName) -> "ModelPrices":
        """Those of another model of the same endpoint."""
        return ModelPrices(self._prices, model=model, clock=self._clock)

    @property
    def bills_requests(self) -> bool:
        """Whether the plan of the agent's model bills by the request."""
        return self._prices.bills_requests(self._model.name, profile=self._model.profile.name)

    def find(self, model: str, at_s: float) -> PriceRow | None:
        return self._prices.find(model, profile=self._model.profile.name, at_s=at_s)

    def warm(self) -> None:
        self._prices.warm(self._model.name, profile=self._model.profile.name, at_s=self._clock.now())

    async def of_turn(self, config: TurnConfig) -> dict[str, PriceRow]:
        """Those of the turn's models. Raises CallerError where one is not known: a limit that cannot hold is none."""
        models = (config.model, *[fallback.model for fallback in config.fallbacks])
        # the table takes most of a second to be read
        prices = await asyncio.to_thread(self._rows_of, models, named=models_named(config.extra))
        return {model: _as_asked(row, config=config) for model, row in prices.items()}

    def prepares(self, prepare_step: StepPreparer, *, config: TurnConfig) -> StepPreparer:
        """The user's `prepare_step`, its answer checked, with the price of a model that it names where a limit of cost needs
        it: what it got wrong is a CallerError."""
        prepares = checked(prepare_step)
        if not counts_cost(config.limits):
            return prepares

        async def prepare(view: PrepareStep) -> StepPrepared | None:
            answer = await prepares(view)
            if answer is None or answer.model is None:
                return answer
            rows = await asyncio.to_thread(self._rows_of, (answer.model,))
            row = _as_asked(rows[answer.model], config=config)
            return msgspec.structs.replace(answer, price=row)

        return prepare

    def _rows_of(self, models: Sequence[str], *, named: Sequence[str] = ()) -> dict[str, PriceRow]:
        """Those of `models`; and of those that are `named`, which may do a part of a request, as far as they are known."""
        found = {model: self.find(model, self._clock.now()) for model in named}
        rows = {model: row for model, row in found.items() if row is not None and can_project(row)}
        for model in models:
            row = self.find(model, self._clock.now())
            if row is None or not can_project(row):
                raise CallerError(no_price(model, profile=self._model.profile.name, row=row))
            rows[model] = row
        return rows


def _as_asked(row: PriceRow, *, config: TurnConfig) -> PriceRow:
    """The row, with what the turn's requests ask for that costs more or less."""
    hour, terms = asks_hour(config), terms_asked(config.extra)
    return msgspec.structs.replace(row, asks_hour=hour, asked_terms=terms) if hour or terms else row


def with_prices(
    config: TurnConfig, *, prices: dict[str, PriceRow], least_usd: Mapping[str, dict[str, Decimal]]
) -> TurnConfig:
    """The configuration that knows them; `least_usd`: by tool, what a sub-agent of that name costs at least."""
    tools = [
        msgspec.structs.replace(offer, child_usd=least_usd.get(offer.spec.name, {})) if offer.child else offer
        for offer in config.tools
    ]
    return msgspec.structs.replace(config, prices=prices, tools=tuple(tools))
