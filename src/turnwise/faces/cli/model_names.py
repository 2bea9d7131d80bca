"""Names of models to choose from and to complete by Tab: what turnwise's tables know of a provider, and what a server offers."""

from collections.abc import Callable, Collection, Iterable, Sequence

from turnwise.drivers.catalogue import builtin_catalogue
from turnwise.errors import CallerError, ProviderFault
from turnwise.faces.cli.choice import Choice
from turnwise.faces.cli.options import Given
from turnwise.faces.models import ON_THE_COMMAND_LINE, maker_of, open_endpoint, read_model
from turnwise.faces.saying import many
from turnwise.wire.profiles import builtin_profiles

WITHIN_S = 3.0  # a person waits for it at their prompt
MOST_SHOWN = 30


def known_names(provider: str) -> list[str]:
    """Those that its limits are known of: a provider's own models, and what a host is known to serve."""
    profiles = builtin_profiles()
    if provider not in profiles:
        return []
    catalogue, keys = builtin_catalogue(), profiles[provider].api_key_env
    own = [
        name
        for name in catalogue.makers
        if (maker := maker_of(name)) in profiles and keys and profiles[maker].api_key_env == keys
    ]
    return sorted({*catalogue.hosts.get(provider, {}), *own})


def models_begun(begun: str) -> list[str]:
    """`PROVIDER:` for each that begins so; behind the colon its models, or every maker's where nobody says what it serves."""
    provider, colon, name = begun.partition(":")
    if not colon:
        return [f"{one}:" for one in builtin_profiles() if one.startswith(provider)]
    if provider not in builtin_profiles():
        return []
    names = known_names(provider) or sorted(builtin_catalogue().makers)
    return [f"{provider}:{one}" for one in names if one.startswith(name)]


def beginning_with(begun: str, *, offered: Iterable[str]) -> list[str]:
    """What Tab offers where a model is typed: of these names, then every provider's."""
    return list(dict.fromkeys([*[name for name in offered if name.startswith(begun)], *models_begun(begun)]))


class Offers:
    """What the servers of a session's models offer, each asked when it is wanted; of a list the names, of none why."""

    def __init__(self) -> None:
        self._said: dict[tuple[str, str | None], tuple[str, ...] | str] = {}

    async def ask(self, choice: Choice, *, again: bool = False) -> None:
        """Ask its server, unless that has been done, and is not to be done `again`."""
        place = _place_of(choice)
        if again or place not in self._said:
            self._said[place] = await _offered_at(choice)

    def names(self, choice: Choice) -> tuple[str, ...]:
        """Those that its server offered, else those that are known of its provider."""
        said = self._said.get(_place_of(choice), "")
        return tuple(known_names(_provider_of(choice))) if isinstance(said, str) else said

    def begun(self, begun: str, *, choice: Choice) -> list[str]:
        """What Tab offers behind `/model`."""
        return beginning_with(begun, offered=self.names(choice))

    def lines(self, choice: Choice) -> list[str]:
        """What `/model` alone says: the model at hand, and what there is beside it."""
        said, names, provider = self._said.get(_place_of(choice), ""), self.names(choice), _provider_of(choice)
        where = f" at {choice.base_url.partition('?')[0]}" if choice.base_url else ""
        lines = [f"{choice.model}{where}"]
        if isinstance(said, str):
            lines += [f"`{provider}` gave no list: {said}"] if said else []
            lines += [f"known of `{provider}`: {_few(names)}"] if names else []
        else:
            lines.append(f"offered there: {_few(names)}" if names else "no model is offered there")
        return [
            *lines,
            "`/model NAME` goes on with another one, `/model PROVIDER:NAME` with another provider's; Tab completes",
        ]

    def unchecked(self, choice: Choice) -> str:
        """What is said of a model that was named and not asked for; empty where it is known."""
        name = choice.model.partition(":")[2]
        said = self._said.get(_place_of(choice), "")
        if isinstance(said, str):
            return "" if name in known_names(_provider_of(choice)) else "; the name was not checked"
        return (
            ""
            if {name, f"{name}:latest"} & set(said)
            else f"; it is not among the {many(len(said), 'model')} offered there"
        )


class ModelsAtHand:
    """Those of the model at hand, for the prompt's Tab."""

    def __init__(self, offers: Offers, *, choice: Callable[[], Choice]) -> None:
        self._offers = offers
        self._choice = choice

    async def ask(self) -> None:
        await self._offers.ask(self._choice())

    def begun(self, begun: str) -> list[str]:
        return self._offers.begun(begun, choice=self._choice())


def another_model(name: str, *, given: Given, choice: Choice, offered: Collection[str]) -> Given:
    """The options with the model that `/model` names. Address and key variable are kept with the same provider alone: no other
    provider's key goes there."""
    provider = _provider_of(choice)
    is_whole = ":" in name and name not in offered
    model = name if is_whole else f"{provider}:{name}"
    is_same = model.partition(":")[0] == provider
    return {
        **given,
        "model": model,
        "base_url": choice.base_url if is_same else None,
        "api_key_env": choice.api_key_env if is_same else None,
    }


async def _offered_at(choice: Choice) -> tuple[str, ...] | str:
    from turnwise.faces.cli.found import may_be_chosen, offered_by  # a shell's Tab asks no server

    try:
        endpoint = open_endpoint(
            read_model(choice.model),
            base_url=choice.base_url,
            api_key_env=choice.api_key_env,
            ways=ON_THE_COMMAND_LINE,
        )
        offered = await offered_by(endpoint, within_s=WITHIN_S)
    except (CallerError, ProviderFault) as error:
        return str(error)
    return tuple([model.name for model in offered if may_be_chosen(model.name)])


def _provider_of(choice: Choice) -> str:
    return choice.model.partition(":")[0]


def _place_of(choice: Choice) -> tuple[str, str | None]:
    return _provider_of(choice), choice.base_url


def _few(names: Sequence[str]) -> str:
    more = f" and {len(names) - MOST_SHOWN} more" if len(names) > MOST_SHOWN else ""
    return f"{', '.join(names[:MOST_SHOWN])}{more}"
