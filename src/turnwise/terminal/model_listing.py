"""What `turnwise models` does: it reads files and tables, asks the server, and shows the results together."""

import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from decimal import Decimal
from pathlib import Path

import click
import msgspec

from turnwise.agent.formatting import many
from turnwise.agent.models import ON_THE_COMMAND_LINE, ModelName, find_profile, open_endpoint
from turnwise.base.clock import SystemClock
from turnwise.base.threads import run_to_end
from turnwise.coding_agent.choice import address_in, address_of_family
from turnwise.coding_agent.model_names import offered_by, shown_url
from turnwise.coding_agent.repository import settings_of_run
from turnwise.coding_agent.text import clean_line, visible_line
from turnwise.errors import CallerError, ProviderFault
from turnwise.journal.prices import Prices, prices_of_layers
from turnwise.rules.pricing import PriceRow
from turnwise.rules.prompt_room import ModelLimits
from turnwise.settings.catalogue import LimitRow, ModelEnd, builtin_catalogue, find_end, find_limits
from turnwise.settings.kept_keys import kept_keys
from turnwise.settings.settings import FILE, RunSettings, read_layers
from turnwise.terminal.failures import FAILED, complain, write_ascii_json
from turnwise.terminal.rows import say
from turnwise.terminal.usage import Column, fitting, lines_of_table, width_of
from turnwise.wire.model_lists import OfferedModel
from turnwise.wire.profiles import Profile, builtin_profiles, key_owner


class Server(msgspec.Struct, frozen=True, kw_only=True):
    """The server's answer: `models` is None if there is no list, and `why` says so; `failed` if it was asked."""

    url: str
    models: tuple[OfferedModel, ...] | None = None
    why: str = ""
    failed: bool = False


class KnownModel(msgspec.Struct, frozen=True, kw_only=True):
    """One model. `offered` is None if no server has answered."""

    name: str
    offered: bool | None
    limits: ModelLimits | None
    limits_from: str
    price: PriceRow | None
    end: ModelEnd | None = None


def list_models(
    provider: str, *, base_url: str | None, api_key_env: str | None, offline: bool, as_json: bool, folder: Path
) -> int:
    """List them; return the exit code. Raises CallerError for an unknown provider, a bad file or a missing variable."""
    whose, _, begun = provider.partition(":")
    profile = find_profile(whose)
    layers = read_layers(folder, env=os.environ)
    settings = settings_of_run(layers, last=None, given=RunSettings()).settings
    # It reads all prices of a provider, which the next run does not need.
    prices = msgspec.structs.replace(prices_of_layers(layers, env=os.environ), kept=None)
    of_family = address_of_family(settings, provider=profile.name)
    server = _ask(profile, base_url=base_url, of_family=of_family, api_key_env=api_key_env, offline=offline)
    known = [
        model
        for model in _known(profile, server=server, prices=prices, own_limits=settings.model_limits)
        if model.name.startswith(begun)
    ]
    if as_json:
        write_json(profile, server=server, known=known)
    else:
        show(profile, server=server, known=known, begun=begun)
    if server.failed:
        complain(f"`{profile.name}` was asked for its models: {server.why}")
    return FAILED if server.failed else 0


def _ask(
    profile: Profile, *, base_url: str | None, of_family: str | None, api_key_env: str | None, offline: bool
) -> Server:
    if offline:
        return Server(url=profile.base_url or "", why="--offline")
    address = base_url or address_in(os.environ, provider=profile.name) or of_family
    try:
        endpoint = open_endpoint(
            ModelName(profile, "*"), base_url=address, api_key_env=api_key_env, ways=ON_THE_COMMAND_LINE
        )
    except CallerError as error:
        if base_url or api_key_env:
            raise
        return Server(url=profile.base_url or "", why=str(error))
    url = shown_url(endpoint)
    try:
        return Server(url=url, models=run_to_end(offered_by(endpoint)))
    except CallerError as error:
        return Server(url=url, why=str(error))
    except ProviderFault as error:
        return Server(url=url, why=str(error), failed=True)


def _known(profile: Profile, *, server: Server, prices: Prices, own_limits: Mapping[str, LimitRow]) -> list[KnownModel]:
    """The models that the server offers, in its order, then the other known models, by name."""
    offered = {model.name: model for model in server.models or ()}
    hosted = builtin_catalogue().hosts.get(profile.name, {})
    front = f"{profile.name}:"
    said = [name.removeprefix(front) for name in own_limits if name.startswith(front) and not name.endswith("*")]
    others = {*hosted, *prices.names(profile=profile.name), *said} - offered.keys()
    at_s = SystemClock().now()
    found: list[KnownModel] = []
    for name in (*offered, *sorted(others)):
        limits, source = _limits(name, profile=profile, own=own_limits, offered=offered.get(name))
        price = prices.find(name, profile=profile.name, at_s=at_s)
        end = find_end(name, profile=profile, base_url=server.url)
        if name in offered and (day := offered[name].ends) is not None and (end is None or end.on != day):
            end = ModelEnd(on=day)
        if name not in offered and limits is None and price is None:
            continue  # the table lists it for something else than text
        found.append(
            KnownModel(
                name=name,
                offered=None if server.models is None else name in offered,
                limits=limits,
                limits_from=source,
                price=price,
                end=end,
            )
        )
    return found


def _limits(
    name: str, *, profile: Profile, own: Mapping[str, LimitRow], offered: OfferedModel | None
) -> tuple[ModelLimits | None, str]:
    """The limits that a run would use, or else those that the server tells; and their source."""
    ours = find_limits(name, profile=profile.name)
    held = find_limits(name, profile=profile.name, overrides=own)
    if held is not None:
        return held, f"turnwise, {builtin_catalogue().date}" if held == ours else FILE
    if offered is None or not (offered.window or offered.input or offered.output):
        return None, ""
    said = ModelLimits(
        context_window_tokens=offered.window, max_input_tokens=offered.input, max_output_tokens=offered.output
    )
    return said, "the server"


def show(profile: Profile, *, server: Server, known: Sequence[KnownModel], begun: str) -> None:
    say(f"{profile.title or profile.name}{f', {clean_line(server.url)}' if server.url else ''}", stream=sys.stdout)
    if server.models is None:
        if not server.failed:
            say(f"not asked what it offers: {clean_line(server.why)}")
    else:
        click.echo(f"{many(len(server.models), 'model')} offered now")
    if not known:
        click.echo(f"no model is known{f' that begins with `{visible_line(begun)}`' if begun else ''}")
        return
    name = Column(name="model", cells=[visible_line(f"{profile.name}:{model.name}") for model in known])
    columns = [
        Column(name="window", cells=[_tokens(model.limits, "context_window_tokens") for model in known]),
        Column(name="output", cells=[_tokens(model.limits, "max_output_tokens") for model in known], rank=1),
        Column(name="$ in", cells=[_usd(model.price, "input") for model in known]),
        Column(name="$ out", cells=[_usd(model.price, "output") for model in known]),
        Column(name="limits from", cells=[model.limits_from for model in known], rank=3, align="left"),
        Column(
            name="price from",
            cells=["" if model.price is None else visible_line(model.price.source) for model in known],
            rank=2,
            align="left",
        ),
    ]
    if server.models is not None:
        columns.insert(0, Column(name="offered", cells=["yes" if model.offered else "no" for model in known]))
    width = width_of(sys.stdout)
    for line in lines_of_table(name, fitting(name, columns, width=width), width=width, stream=sys.stdout):
        click.echo(line)
    now_s = SystemClock().now()
    for model in known:
        if model.end is not None:
            click.echo(f"{visible_line(f'{profile.name}:{model.name}')} {model.end.said(now_s=now_s)}")


def _tokens(limits: ModelLimits | None, field: str) -> str:
    count: int | None = None if limits is None else getattr(limits, field)
    return "" if count is None else f"{count:,}"


def _usd(price: PriceRow | None, field: str) -> str:
    match price:
        case None:
            return ""
        case PriceRow(plan="free"):
            return "free"
        case PriceRow(plan="tokens", tokens=(first, *more)):
            return f"{_plain(getattr(first, field))}{'+' if more else ''}"
        case PriceRow(plan="request", request_usd=Decimal() as usd):
            return f"{_plain(usd)}/request" if field == "input" else ""
        case PriceRow(plan="step", step_usd=Decimal() as usd):
            return f"{_plain(usd)}/step" if field == "input" else ""
        case _:
            return ""


def _plain(usd: Decimal) -> str:
    return f"{usd.normalize():f}"


def write_json(profile: Profile, *, server: Server, known: Sequence[KnownModel]) -> None:
    asked = server.models is not None or server.failed
    told: dict[str, object] = {
        **_provider_told(profile),
        "server": {"url": server.url, "asked": asked, "why": server.why or None},
        "models": [
            {
                "model": f"{profile.name}:{model.name}",
                "offered": model.offered,
                "limits": None
                if model.limits is None
                else {**msgspec.structs.asdict(model.limits), "source": model.limits_from},
                "price": model.price,
                "end": None if model.end is None else {"on": model.end.on, "use": model.end.use},
            }
            for model in known
        ],
    }
    write_ascii_json(told)


def _provider_told(profile: Profile) -> dict[str, object]:
    return {
        "provider": profile.name,
        "title": profile.title,
        "family": profile.family,
        "base_url": profile.base_url,
        "key": {
            "variables": profile.api_key_env,
            "required": profile.key_required,
            "set": [name for name in profile.api_key_env if os.environ.get(name, "").strip()],
            "stored": _stored(profile),
        },
    }


def list_providers(*, as_json: bool) -> int:
    """The providers, and whose key is set; always 0."""
    if as_json:
        write_ascii_json({"providers": [_provider_told(profile) for profile in builtin_profiles().values()]})
        return 0
    for line in provider_lines(width=width_of(sys.stdout)):
        click.echo(line)
    say("\n`turnwise models PROVIDER` lists models, their limits and prices", stream=sys.stdout)
    return 0


def provider_lines(*, width: int) -> Iterator[str]:
    profiles = list(builtin_profiles().values())
    name = Column(name="provider", cells=[profile.name for profile in profiles])
    columns = [
        Column(name="key", cells=[_key_said(profile) for profile in profiles], align="left"),
        Column(name="", cells=[profile.title for profile in profiles], rank=1, align="left"),
    ]
    return lines_of_table(name, fitting(name, columns, width=width), width=width, stream=sys.stdout)


def _stored(profile: Profile) -> bool:
    """Whether a key for it is stored. Raises CallerError."""
    return key_owner(profile).name in kept_keys(os.environ)


def _key_said(profile: Profile) -> str:
    found = next((name for name in profile.api_key_env if os.environ.get(name, "").strip()), None)
    if found:
        return f"{found} is set"
    if _stored(profile):
        return "stored"
    if not profile.key_required:
        return "none needed"
    return f"set {profile.api_key_env[0]}" if profile.api_key_env else "give --api-key-env"
