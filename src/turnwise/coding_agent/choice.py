"""Which model, where, and whose key: the command line's word, else the session's, else the environment's, else the files'."""

from collections.abc import Mapping

import msgspec

from turnwise.agent.models import ON_THE_COMMAND_LINE, ModelName, open_endpoint, read_model
from turnwise.endpoints.endpoints import Secret
from turnwise.errors import CallerError, UnknownModel
from turnwise.settings.catalogue import find_end
from turnwise.settings.endpoint_rows import known_profiles
from turnwise.settings.settings import RunSettings
from turnwise.turn.config import TurnConfig
from turnwise.wire.profiles import builtin_profiles

ANY_FAMILY = "openai_chat"  # what most servers speak that people run themselves


class NoModel(CallerError):
    """Nobody has named a model: neither the command line nor a session, a variable or a file."""


class Choice(msgspec.Struct, frozen=True, kw_only=True):
    """`base_url` and `api_key_env` are None where the provider's own are meant. `key` is the stored key, where it is what the
    endpoint gets."""

    model: str
    base_url: str | None = None
    api_key_env: str | None = None
    key: Secret | None = None

    def ending(self, *, now_s: float) -> str:
        """`MODEL ends on DAY; use ANOTHER`, or that it has ended; empty where our table knows of no end."""
        named = read_model(self.model)
        end = find_end(named.name, profile=named.profile, base_url=self.base_url)
        return "" if end is None else f"{self.model} {end.said(now_s=now_s)}"


def choose(
    given: str | None,
    *,
    base_url: str | None,
    api_key_env: str | None,
    last: TurnConfig | None,
    env: Mapping[str, str],
    settings: RunSettings,
) -> Choice:
    """Model, address and key variable of a session go together: with a different `--model`, the session's address and key
    variable are dropped.

    Raises NoModel where none is named, CallerError where it has no address or key, or the session's address cannot be told.
    """
    if given is None and last is not None:
        if base_url is None and last.base_url.endswith("?"):
            raise CallerError(
                f"the session ran at `{last.base_url}...`; what follows the `?` is not kept: give --base-url again"
            )
        chosen = Choice(
            model=f"{last.profile}:{last.model}",
            base_url=base_url or last.base_url or None,
            api_key_env=api_key_env or last.api_key_env or None,
        )
    else:
        model = given or env.get("TURNWISE_MODEL") or settings.model
        if not model:
            raise NoModel(
                "no model: give --model PROVIDER:NAME (for example openai:gpt-6.1-sol), or set TURNWISE_MODEL"
            )
        provider = model.partition(":")[0]
        remembered = settings.base_url if model == settings.model else address_of_family(settings, provider=provider)
        address = base_url or env.get("TURNWISE_BASE_URL") or remembered or address_in(env, provider=provider)
        chosen = Choice(model=model, base_url=address, api_key_env=api_key_env)
    endpoint = open_endpoint(  # what is wrong is said in the words of the command line
        _named(chosen.model, base_url=base_url, env=env, settings=settings),
        base_url=chosen.base_url,
        api_key_env=chosen.api_key_env,
        env=env,
        ways=ON_THE_COMMAND_LINE,
    )
    is_kept = endpoint.key is not None and endpoint.key.origin
    return msgspec.structs.replace(chosen, key=endpoint.key) if is_kept else chosen


def _named(model: str, *, base_url: str | None, env: Mapping[str, str], settings: RunSettings) -> ModelName:
    """Raises UnknownModel; of a name alone with the provider that is usual here, or speaks at the address that was given."""
    try:
        return read_model(model)
    except UnknownModel as error:
        usual = env.get("TURNWISE_MODEL") or settings.model or ""
        provider = ANY_FAMILY if base_url else usual.partition(":")[0]
        meant = f"`{provider}:{model}`"
        if ":" in model or model == usual or provider not in builtin_profiles() or meant in str(error):
            raise
        where = "the given address" if base_url else f"the endpoint of your usual model `{usual}`"
        said = (
            f"{str(error).removesuffix('?')}, or "
            if str(error).endswith("?")
            else f"`{model}` names no provider: did you mean "
        )
        raise UnknownModel(f"{said}{meant} at {where}?") from None


def address_of_family(settings: RunSettings, *, provider: str) -> str | None:
    """The address beside the remembered model, where `provider` is its API family (`openai_chat`) and so has no address and no
    key of its own."""
    if not settings.model or settings.model.partition(":")[0] != provider:
        return None
    family = builtin_profiles().get(provider)
    return None if family is None or family.base_url or family.api_key_env else settings.base_url


def address_in(env: Mapping[str, str], *, provider: str) -> str | None:
    """Where the environment sends requests to the provider; None: to its own address. Raises CallerError."""
    if said := env.get("TURNWISE_BASE_URL"):
        return said
    if "TURNWISE_LOCAL_PORTS" not in env:
        return None
    from turnwise.endpoints.local_servers import moved_address  # most runs have no need of it

    return moved_address(provider, env=env)


def key_variables(choice: Choice) -> frozenset[str]:
    """What a command that the model runs must not see: every variable in which turnwise would look for a key."""
    named = {name for profile in known_profiles().values() for name in profile.api_key_env}
    return frozenset(named | ({choice.api_key_env} if choice.api_key_env else set()))
