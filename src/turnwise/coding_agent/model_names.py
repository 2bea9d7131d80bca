"""Names of models to choose from and to complete by Tab: what turnwise's tables know of a provider, and what a server offers."""

import asyncio
import difflib
import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence

import msgspec

from turnwise.agent.formatting import many
from turnwise.agent.models import ON_THE_COMMAND_LINE, find_profile, maker_of, open_endpoint, read_model
from turnwise.base.threads import run_to_end
from turnwise.coding_agent.choice import Choice, choose
from turnwise.coding_agent.options import Given
from turnwise.coding_agent.text import visible_line
from turnwise.endpoints.endpoints import Endpoint
from turnwise.endpoints.local_servers import (
    ASK_S,
    LocalServer,
    ServerAnswer,
    ask_for_models,
    find_servers,
    local_servers,
)
from turnwise.errors import CallerError, MissingKey, ProviderFault
from turnwise.settings.catalogue import builtin_catalogue, suggested_models
from turnwise.settings.endpoint_rows import known_profiles
from turnwise.settings.kept_keys import kept_keys
from turnwise.settings.settings import RunSettings
from turnwise.wire.model_lists import OfferedModel
from turnwise.wire.profiles import Profile, builtin_profiles, key_owner

# What a first run finds: keys in the environment (their names), and model servers on this machine.


MOST_OF_A_SERVER = 5  # models that are offered to choose from
MOST_NAMED = 3  # in one line
# Models that a server lists and that answer nobody.
_NO_CHAT = ("embed", "rerank", "whisper")


class KeyAtHand(msgspec.Struct, frozen=True, kw_only=True):
    """A variable that is set, or where a stored key is, and whose key it is. Never the key."""

    variable: str = ""
    kept_in: str = ""
    profile: Profile


class FoundEndpoints(msgspec.Struct, frozen=True, kw_only=True):
    keys: tuple[KeyAtHand, ...]
    servers: tuple[ServerAnswer, ...]
    looked_for: tuple[LocalServer, ...]

    @property
    def options(self) -> tuple[str, ...]:
        """Models to choose from: the suggested one of each provider whose key is there, then those of the servers."""
        names = {key.profile.name for key in self.keys}
        suggested = [f"{name}:{models[0]}" for name, models in suggested_models().items() if name in names]
        served = [
            f"{answer.server.profile.name}:{name}"
            for answer in self.servers
            for name in [model.name for model in answer.models if may_be_chosen(model.name)][:MOST_OF_A_SERVER]
        ]
        return (*suggested, *served)


def look_around(env: Mapping[str, str]) -> FoundEndpoints:
    """At the environment and at this machine's ports, which takes a second at most. Raises CallerError for a variable that
    cannot be read."""
    servers = local_servers(env)
    answers = run_to_end(find_servers(servers), new_loop=asyncio.new_event_loop) if servers else ()
    return FoundEndpoints(keys=keys_at_hand(env), servers=answers, looked_for=servers)


def shown_url(endpoint: Endpoint) -> str:
    """Its address without the query, which may hold a key."""
    return endpoint.scrub(endpoint.base_url.partition("?")[0])


async def offered_by(endpoint: Endpoint, *, within_s: float = ASK_S) -> tuple[OfferedModel, ...]:
    """The models that it offers now. Raises CallerError where it has no list, ProviderFault where it gives none."""
    from turnwise.endpoints.aiohttp_transport import AiohttpTransport

    async with AiohttpTransport() as transport:
        return await ask_for_models(endpoint, transport=transport, within_s=within_s)


def keys_in(env: Mapping[str, str]) -> tuple[KeyAtHand, ...]:
    """One for each variable that is set. Where several profiles read it, the provider's plain name; where a provider reads
    several, the first."""
    found: dict[str, KeyAtHand] = {}
    for profile in builtin_profiles().values():
        variable = next((name for name in profile.api_key_env if env.get(name, "").strip()), None)
        if variable is None or not profile.key_required:
            continue
        before = found.get(variable)
        if before is None or len(profile.name) < len(before.profile.name):
            found[variable] = KeyAtHand(variable=variable, profile=profile)
    return tuple(found.values())


def keys_at_hand(env: Mapping[str, str]) -> tuple[KeyAtHand, ...]:
    """Those of the environment, then the stored keys of other providers. Raises CallerError where the file of stored keys cannot
    be read."""
    found, profiles = keys_in(env), known_profiles(env)
    owners = {key_owner(key.profile).name for key in found}
    kept = [
        KeyAtHand(
            kept_in="the system's keyring" if one.place == "keyring" else "turnwise's file", profile=profiles[name]
        )
        for name, one in kept_keys(env).items()
        if name in profiles and name not in owners
    ]
    return (*found, *kept)


def key_line(key: KeyAtHand) -> str:
    """`OPENAI_API_KEY is set: OpenAI`."""
    base = key.profile.base_url
    needs = "" if base and "{" not in base else "; it needs --base-url"
    where = f"{key.variable} is set" if key.variable else f"a key is stored in {key.kept_in}"
    return f"{where}: {key.profile.title or key.profile.name} (`{key.profile.name}`){needs}"


def server_line(answer: ServerAnswer) -> str:
    """What one of this machine's servers says, with the names of a few models."""
    server = answer.server
    where = f"{server.profile.title} on port {server.port}"
    match answer.state:
        case "silent":
            return f"{where}: something listens there and does not answer"
        case "wants_key":
            return f"{where}: it wants a key, {' or '.join(server.profile.api_key_env)}"
        case "lists" if not answer.models:
            return f"{where}: it has no model yet"
        case "lists":
            names = [visible_line(model.name) for model in answer.models]
            more = f" and {len(names) - MOST_NAMED} more" if len(names) > MOST_NAMED else ""
            return f"{where}: {many(len(names), 'model')}, {', '.join(names[:MOST_NAMED])}{more}"


def absent_line(found: FoundEndpoints) -> str:
    """Where nothing answers; empty where all do, or none was looked for."""
    there = {answer.server.profile.name for answer in found.servers}
    absent = [
        f"{server.profile.title} ({server.port})" for server in found.looked_for if server.profile.name not in there
    ]
    return f"no server on the ports of {', '.join(absent)}" if absent else ""


def may_be_chosen(name: str) -> bool:
    """It looks as it is, so that the person takes what they see, and is no model for something else than words."""
    return visible_line(name) == name and name == name.strip() and not any(word in name.lower() for word in _NO_CHAT)


WITHIN_S = 3.0  # a person waits for it at their prompt
MOST_SHOWN = 30
URL = re.compile(r"https?://", re.IGNORECASE)
_HOST = re.compile(r"localhost:|[\d.]+:|\[|[^:]*\.[^:]*:\d{4}")
PLACE = re.compile(r"([\w.-]+|\[[0-9a-fA-F:]+\]):\d{1,5}(?:/.*)?")  # HOST:PORT, and perhaps a path


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


def near_name(name: str, *, names: Iterable[str]) -> str:
    """The one that was meant, perhaps; else empty."""
    return next(iter(difflib.get_close_matches(name, list(names), n=1)), "")


def is_listed(name: str, *, names: Collection[str]) -> bool:
    return name in names or f"{name}:latest" in names  # Ollama's name for one without a tag


def meant_said(near: str) -> str:
    return f": did you mean `{near}`?" if near else ""


class Doubts:
    """A model that is not known is taken if it is typed twice. One person's, at one prompt."""

    def __init__(self) -> None:
        self._doubted = ""  # typed once

    def raise_once(self, model: str, *, doubt: str, more: str = "") -> None:
        """Raises CallerError with the doubt, unless there is none, or the same model was doubted just before. `more` is what else
        can be done."""
        before, self._doubted = self._doubted, model if doubt else ""
        if doubt and before != model:
            again = " To" if doubt.endswith("?") else "; to"
            raise CallerError(f"{doubt}{again} take it all the same, type it again{more}")


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
        """What `/model` alone says: the current model, and the others of the same provider."""
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

    def doubt(self, choice: Choice) -> str:
        """What speaks against a model that was named: it is not in its server's list, or, where there is none, it is nearly the
        name of a known one. Empty where nothing does."""
        name, provider = choice.model.partition(":")[2], _provider_of(choice)
        said, names = self._said.get(_place_of(choice), ""), self.names(choice)
        if is_listed(name, names=names):
            return ""
        near = near_name(name, names=names)
        if isinstance(said, str):
            return f"`{name}` is not among the models that are known of `{provider}`{meant_said(near)}" if near else ""
        return f"`{name}` is not among the {many(len(said), 'model')} offered there{meant_said(near)}"

    def unchecked(self, choice: Choice) -> str:
        """What is said of a model that is taken all the same; empty where it is known."""
        name = choice.model.partition(":")[2]
        said = self._said.get(_place_of(choice), "")
        if is_listed(name, names=self.names(choice)):
            return ""
        if isinstance(said, str):
            return "; the name was not checked"
        return f"; it is not among the {many(len(said), 'model')} offered there"


class ModelsAtHand:
    """The names for the current model's provider, for the prompt's Tab."""

    def __init__(self, offers: Offers, *, choice: Callable[[], Choice]) -> None:
        self._offers = offers
        self._choice = choice

    async def ask(self) -> None:
        await self._offers.ask(self._choice())

    def begun(self, begun: str) -> list[str]:
        return self._offers.begun(begun, choice=self._choice())


def another_model(
    name: str, *, given: Given, choice: Choice, offered: Collection[str], again: str = "turnwise --continue"
) -> Given:
    """The options with the model that `/model` names. Address and key variable are kept with the same provider alone: no other
    provider's key goes there. `again` starts turnwise with the same session. Raises CallerError for what names none."""
    if name not in offered and (URL.match(name) or _is_place(name)):
        url = (name if URL.match(name) else f"http://{name}").partition("?")[0]
        raise CallerError(
            "`/model` takes the name of a model: for another address leave, then "
            f"`{again} -m openai_chat:NAME --base-url {url}`"
        )
    provider, named = _provider_of(choice), name.partition(":")[0]
    is_whole = ":" in name and name not in offered
    if is_whole and named not in builtin_profiles():
        if near := near_name(name, names=offered):
            raise CallerError(f"`{named}` is no provider, and `{name}` no model that is offered{meant_said(near)}")
        find_profile(named)
    model = name if is_whole else f"{provider}:{name}"
    is_same = model.partition(":")[0] == provider
    return {
        **given,
        "model": model,
        "base_url": choice.base_url if is_same else None,
        "api_key_env": choice.api_key_env if is_same else None,
    }


def _is_place(name: str) -> bool:
    """It is HOST:PORT, and no model with a tag (`llama3.2:3`)."""
    return PLACE.fullmatch(name) is not None and _HOST.match(name) is not None


def choice_of(
    given: Given, *, at_hand: Choice, env: Mapping[str, str], settings: RunSettings, again: str = "turnwise --continue"
) -> Choice:
    """The choice that these options of a session make. Raises CallerError, of a missing key with what to do about it."""
    model = given["model"]
    assert model is not None, "a session has a model"
    try:
        return choose(
            model,
            base_url=given["base_url"],
            api_key_env=given["api_key_env"],
            last=None,
            env=env,
            settings=settings,
        )
    except MissingKey:
        profile, name = read_model(model).profile, read_model(model).name
        known = known_names(profile.name)
        near = "" if is_listed(name, names=known) else near_name(name, names=known)
        meant = f" (did you mean `{near}`?)" if near else ""
        names = [given["api_key_env"]] if given["api_key_env"] else profile.api_key_env
        wanted = " or ".join([f"`{name}`" for name in names])
        way = (
            f"leave, set {wanted} or `turnwise auth add`, then"
            if wanted
            else "leave, then with the name of its variable"
        )
        line = f"{again} -m {model}{'' if wanted else ' --api-key-env NAME'}"
        raise CallerError(
            f"`{profile.name}` wants a key: {way} `{line}`{meant}; the session stays with {at_hand.model}"
        ) from None


async def _offered_at(choice: Choice) -> tuple[str, ...] | str:

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
