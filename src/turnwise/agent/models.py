"""`PROVIDER:NAME` or `FAMILY:NAME` -> an endpoint. The library and the command line share this."""

import asyncio
import dataclasses
import difflib
import inspect
import os
import re
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from decimal import Decimal
from functools import partial
from typing import cast

import msgspec

from turnwise.agent.agent_options import Model, address_of, check_plain
from turnwise.base.clock import Clock
from turnwise.endpoints.endpoints import Endpoint, Secret, find_key
from turnwise.endpoints.transport import proxy_for, shown_proxy
from turnwise.errors import CallerError, MissingKey, UnknownModel
from turnwise.journal.prices import Prices
from turnwise.rules.limits import counts_cost, no_price
from turnwise.rules.pricing import PriceRow, can_project
from turnwise.rules.provider_tool_costs import models_named, terms_asked
from turnwise.running.runner_config import StepPreparer
from turnwise.settings.catalogue import find_limits, limits_over
from turnwise.settings.endpoint_rows import own_profiles
from turnwise.turn.config import Effect, Fallback, TurnConfig
from turnwise.turn.events import PrepareStep, StepPrepared
from turnwise.wire.generations import moves_text, tells_behind
from turnwise.wire.profiles import MARK_WAYS, Profile, builtin_profiles, key_owner, origin_of

# Providers as people call them by their models: the beginning of a model's name, and the profile that serves it.
_KNOWN_BY = {
    "claude": "anthropic",
    "fable": "anthropic",
    "haiku": "anthropic",
    "opus": "anthropic",
    "sonnet": "anthropic",
    "gpt": "openai",
    "chatgpt": "openai",
    "codex": "openai",
    "o1": "openai",
    "o3": "openai",
    "o4": "openai",
    "gemini": "google",
    "grok": "xai",
    "codestral": "mistral",
    "devstral": "mistral",
    "magistral": "mistral",
    "ministral": "mistral",
    "mistral": "mistral",
    "deepseek": "deepseek",
    "kimi": "moonshot",
    "glm": "zai",
    "minimax": "minimax",
}
# Providers as pydantic-ai spells them.
_SPELLED = {
    "openai-responses": "openai",
    "google-gla": "google",
    "google-vertex": "vertex-gemini",
    "moonshotai": "moonshot",
}


class ModelName(msgspec.Struct, frozen=True):
    """A model as the user names it: the provider, and its name there."""

    profile: Profile
    name: str


def read_model(text: str, *, profiles: Mapping[str, Profile] | None = None) -> ModelName:
    """`openai:gpt-6.1-sol` -> the profile `openai` and the model `gpt-6.1-sol`. The name may hold colons (`ollama:qwen3:8b`).

    Raises UnknownModel with a similar name.
    """
    known = builtin_profiles() if profiles is None else profiles
    provider, colon, name = text.partition(":")
    if not colon and (meant := _with_provider(text, known=known)):
        raise UnknownModel(f"`{text}` names no provider: did you mean `{meant}`?")
    if not colon or not provider or not name:
        raise UnknownModel(
            f"`{text}` is no model: write PROVIDER:NAME, for example `openai:gpt-6.1-sol` or `ollama:qwen3:8b` "
            f"(or FAMILY:NAME with a base URL)"
        )
    return ModelName(find_profile(provider, profiles=profiles, model=name), name)


def find_profile(name: str, *, profiles: Mapping[str, Profile] | None = None, model: str = "") -> Profile:
    """The profile of a provider or API family, or the user's own profile of that name. Raises UnknownModel with a similar
    name, also for the `model` that was asked for there."""
    known = builtin_profiles() if profiles is None else profiles
    if name not in known and profiles is None:
        known = {**known, **own_profiles()}
    if name in known:
        return known[name]
    near = difflib.get_close_matches(name, known, n=3)
    if (maker := maker_of(name)) in known:
        near = [f"{maker}:"]
    if (here := _SPELLED.get(name)) is not None:
        near = [f"{here}:{model}"]
    hint = f"did you mean {' or '.join(f'`{word}`' for word in near)}?" if near else "`turnwise models` lists them"
    raise UnknownModel(f"`{name}` is no provider or API family that turnwise knows; {hint}")


def _with_provider(text: str, *, known: Mapping[str, Profile]) -> str:
    """The same model in turnwise's spelling; empty if the provider is unknown. Other programs write PROVIDER/NAME. A single word
    (`opus`) is not a whole model name."""
    before, slash, name = text.partition("/")
    if slash and name:
        whose = before if before in known else maker_of(before)
        return f"{whose}:{name}" if whose in known else ""
    name = text if re.search(r"[-\d]", text) else "NAME"
    return f"{maker}:{name}" if (maker := maker_of(text)) in known else ""


def maker_of(text: str) -> str:
    """The profile that serves models with such a name, also if a number follows at once (`o3`, `gpt5`). Empty if it is
    unknown."""
    beginning = re.split(r"[^a-z0-9]", text.lower(), maxsplit=1)[0]
    return _KNOWN_BY.get(beginning) or _KNOWN_BY.get(re.split(r"\d", beginning, maxsplit=1)[0], "")


class Ways(msgspec.Struct, frozen=True):
    """How the caller gives an address and a key (library or command line), for messages. `kept`: the user's stored keys are
    looked at, too; the library alone reads none."""

    base_url: str
    key: str
    kept: bool = False


IN_PYTHON = Ways(
    base_url='give `Model("...", base_url=...)`',
    key='give `Model("...", api_key=...)`, or the name of a variable, `Model("...", api_key_env=...)`',
)
ON_THE_COMMAND_LINE = Ways(
    base_url="give --base-url",
    key="store it with `turnwise auth add`, or give the name of the variable that holds it with --api-key-env",
    kept=True,
)


def open_endpoint(
    model: ModelName,
    *,
    base_url: str | None = None,
    api_key: str | Secret | None = None,
    api_key_env: str | None = None,
    env: Mapping[str, str] | None = None,
    ways: Ways = IN_PYTHON,
    is_key_needed: bool = True,
    websocket: bool | None = None,
) -> Endpoint:
    """Address and key for the model. The key is `api_key`, else the variable `api_key_env`, else the profile's own variable, else
    the stored one, which goes to its provider's own address alone.

    Raises CallerError if the address is missing or not an http(s) URL, MissingKey if the provider wants a key and it is needed.
    """
    profile, seen = model.profile, os.environ if env is None else env
    address = base_url or profile.base_url
    if not address:
        raise CallerError(f"`{profile.name}` has no address of its own: {ways.base_url}")
    if not address.startswith(("http://", "https://")):
        raise CallerError(f"the base URL `{address}` must begin with http:// or https://")
    if "{" in address:
        raise CallerError(f"`{profile.name}` needs its address filled in: {ways.base_url} (a template: {address})")
    key = _key_for(
        profile,
        env=seen,
        api_key=api_key,
        api_key_env=api_key_env,
        kept=partial(_kept_key, profile, address=address, env=seen) if ways.kept else lambda: None,
        way=ways.key,
        is_needed=is_key_needed,
    )
    if key is not None and key.origin and address.startswith("http:") and (proxy := proxy_for(address, env=seen)):
        raise CallerError(
            f"the stored key for `{key.origin}` does not go through the proxy `{shown_proxy(proxy)}`, which could read it: "
            "put the host into NO_PROXY"
        )
    return Endpoint(profile=profile.over_websocket(websocket), base_url=address.rstrip("/"), key=key)


def _kept_key(profile: Profile, *, address: str, env: Mapping[str, str]) -> Secret | None:
    """The stored key, if the address is the provider's own and the one that it was stored for; else the key that is stored for
    this address. Raises MissingKey that says where the provider's goes, CallerError if it cannot be read."""
    from turnwise.settings.kept_keys import kept_keys, kept_text  # the library has no need of it

    owner, there, keys = key_owner(profile), origin_of(address), kept_keys(env)
    kept = keys.get(owner.name)
    own = owner.name if kept is not None and origin_of(owner.base_url or "") == there else there
    if (found := keys.get(own)) is not None and found.origin == there:
        return Secret(kept_text(found, provider=own), origin=there)
    if kept is None or not profile.key_required:
        return None
    raise MissingKey(
        f"the stored key of `{owner.name}` goes to {kept.origin} alone, not to {there}: store the key of that address with "
        f"`turnwise auth add {there}`, or name the variable that holds it with --api-key-env"
    )


def endpoint_of(model: Model, *, is_key_needed: bool) -> Endpoint:
    """Address and key of a model in a program. Raises UnknownModel or another CallerError; MissingKey only if the key is needed
    now."""
    return open_endpoint(
        read_model(model.name),
        base_url=address_of(model),
        api_key=model.api_key,
        api_key_env=model.api_key_env,
        is_key_needed=is_key_needed and getattr(model.transport, "needs_key", True),
        websocket=model.websocket or None,
    )


def _key_for(
    profile: Profile,
    *,
    env: Mapping[str, str],
    api_key: str | Secret | None,
    api_key_env: str | None,
    kept: Callable[[], Secret | None],
    way: str,
    is_needed: bool,
) -> Secret | None:
    try:
        return find_key(profile, env=env, api_key=api_key, api_key_env=api_key_env, kept=kept, way=way)
    except MissingKey:
        if is_needed:
            raise
        return None


# What a turn's configuration says about its model and endpoint; and the user's `prepare_step`, whose answer is checked.


def at_endpoint(config: TurnConfig, *, endpoint: Endpoint) -> TurnConfig:
    """The configuration with the facts of the endpoint that rules need."""
    profile = endpoint.profile
    told_behind = profile.leads_input(config.model) or (profile.told_behind and tells_behind(config.model))
    return msgspec.structs.replace(
        config,
        family=profile.family,
        traits=endpoint.family.traits,
        profile=profile.name,
        accepts_prefill=profile.accepts_prefill,
        default_max_tokens=profile.sent_max_tokens,
        tool_choice_none=profile.tool_choice_none,
        leaves_calls_in_text=endpoint.leaves_calls_in_text,
        system_in_input=told_behind,
        appends_tools=told_behind,
        shows_thinking=endpoint.family.shows_thinking and moves_text(config.model),
        marks_cache=profile.cache_way(config.model) in MARK_WAYS,
    )


def with_model(config: TurnConfig, *, model: ModelName, endpoint: Endpoint) -> tuple[ModelName, TurnConfig]:
    """The model that the configuration names, at the same provider, and the configuration with the facts that are known of it."""
    limits = limits_over(find_limits(config.model, profile=model.profile.name), None)
    config = at_endpoint(msgspec.structs.replace(config, model_limits=limits), endpoint=endpoint)
    return ModelName(model.profile, config.model), config


def within(config: TurnConfig, *, effects: Collection[Effect]) -> TurnConfig:
    """The configuration, limited to these effects."""
    return msgspec.structs.replace(config, allowed=tuple([one for one in config.allowed if one in effects]))


def checked(prepare_step: StepPreparer) -> Callable[[PrepareStep], Awaitable[StepPrepared | None]]:
    """The user's `prepare_step` with a check of its answer: a wrong answer is a CallerError."""

    async def prepare(view: PrepareStep) -> StepPrepared | None:
        given = prepare_step(view)
        answer = cast(
            "object", await given if inspect.isawaitable(given) else given
        )  # the user's function may not keep its type
        if answer is None:
            return None
        if not isinstance(answer, StepPrepared):
            raise CallerError(f"`prepare_step` must return StepChanges or None, not {type(answer).__name__}")
        check_plain(answer, what="`prepare_step`: StepChanges")
        return answer

    return prepare


def fallback_of(given: object, *, at: Model, model: ModelName) -> Fallback:
    """Another model of the endpoint that serves `at`: its name there, or a `Model` of the same provider with nothing but limits
    of its own. Raises CallerError."""
    profile = model.profile.name
    if not isinstance(given, str | Model):
        raise CallerError(f"`fallbacks` in `recovery` must hold a text or `Model(...)`, not {type(given).__name__}")
    name, limits = (given, None) if isinstance(given, str) else (given.name, given.limits)
    of_provider = f"{at.name.partition(':')[0]}:"
    if isinstance(given, Model):
        if given not in (Model(name, limits=limits), dataclasses.replace(at, name=name, limits=limits)):
            raise CallerError(
                f"`fallbacks` are asked as the agent's model is: give `Model({name!r})` with `limits` alone, or as a text"
            )
        if not name.startswith(of_provider):
            raise CallerError(f"`{name}` in `fallbacks` must be a model of the same endpoint: `{of_provider}NAME`")
    name = name.removeprefix(of_provider)
    return Fallback(model=name, limits=limits_over(find_limits(name, profile=profile), limits))


def asks_hour(config: TurnConfig) -> bool:
    """Whether its requests ask the provider to cache for an hour, by the option or by a mark in `extra`."""
    return (config.cache == "1h" and config.marks_cache) or '"1h"' in config.extra


# The prices that an agent's turns need: of its own models, and of the models that `prepare_step` names.


class ModelPrices:
    """The known prices at one agent's endpoint."""

    def __init__(self, prices: Prices, *, model: ModelName, clock: Clock) -> None:
        self._prices, self._model, self._clock = prices, model, clock

    def of_model(self, model: ModelName) -> "ModelPrices":
        """The prices for another model of the same endpoint."""
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
        """The prices of the turn's models. Raises CallerError if one is unknown: a limit of cost could not hold."""
        models = (config.model, *[fallback.model for fallback in config.fallbacks])
        # reading the table takes most of a second
        prices = await asyncio.to_thread(self._rows_of, models, named=models_named(config.extra))
        return {model: _as_asked(row, config=config) for model, row in prices.items()}

    def prepares(self, prepare_step: StepPreparer, *, config: TurnConfig) -> StepPreparer:
        """The user's `prepare_step` with a check of its answer: a wrong answer is a CallerError. If a limit of cost needs the
        price of a model that it names, the answer carries it."""
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
        """The prices of `models`. Also those of the `named` models, which may do a part of a request, as far as they are
        known."""
        found = {model: self.find(model, self._clock.now()) for model in named}
        rows = {model: row for model, row in found.items() if row is not None and can_project(row)}
        for model in models:
            row = self.find(model, self._clock.now())
            if row is None or not can_project(row):
                raise CallerError(no_price(model, profile=self._model.profile.name, row=row))
            rows[model] = row
        return rows


def _as_asked(row: PriceRow, *, config: TurnConfig) -> PriceRow:
    """The row with what the turn's requests ask for, if that changes the price."""
    hour, terms = asks_hour(config), terms_asked(config.extra)
    return msgspec.structs.replace(row, asks_hour=hour, asked_terms=terms) if hour or terms else row


def with_prices(
    config: TurnConfig, *, prices: dict[str, PriceRow], least_usd: Mapping[str, dict[str, Decimal]]
) -> TurnConfig:
    """The configuration with its prices. `least_usd`: by tool, the least that a sub-agent of that name costs."""
    tools = [
        msgspec.structs.replace(offer, child_usd=least_usd.get(offer.spec.name, {})) if offer.child else offer
        for offer in config.tools
    ]
    return msgspec.structs.replace(config, prices=prices, tools=tuple(tools))
