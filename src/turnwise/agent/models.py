"""`PROVIDER:NAME` or `FAMILY:NAME` -> an endpoint. One place for the library and the command line."""

import difflib
import os
import re
from collections.abc import Mapping

import msgspec

from turnwise.endpoints.endpoints import Endpoint, Secret, find_key
from turnwise.errors import CallerError, MissingKey, UnknownModel
from turnwise.settings.endpoint_rows import own_profiles
from turnwise.wire.profiles import Profile, builtin_profiles

# How people call a provider by its models: the beginning of a model's name, and the profile that serves it.
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


class ModelName(msgspec.Struct, frozen=True):
    """A model as the user names it: whose, and what it is called there."""

    profile: Profile
    name: str


def read_model(text: str, *, profiles: Mapping[str, Profile] | None = None) -> ModelName:
    """`openai:gpt-6.1-sol` -> the profile `openai` and the model `gpt-6.1-sol`. The name may hold colons (`ollama:qwen3:8b`).

    Raises UnknownModel with what is near.
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
    return ModelName(find_profile(provider, profiles=profiles), name)


def find_profile(name: str, *, profiles: Mapping[str, Profile] | None = None) -> Profile:
    """The profile of a provider or API family, or the user's own of that name. Raises UnknownModel with what is near."""
    known = builtin_profiles() if profiles is None else profiles
    if name not in known and profiles is None:
        known = {**known, **own_profiles()}
    if name in known:
        return known[name]
    near = difflib.get_close_matches(name, known, n=3)
    if (maker := maker_of(name)) in known:
        near = [f"{maker}:"]
    hint = f"did you mean {' or '.join(f'`{word}`' for word in near)}?" if near else "`turnwise models` lists them"
    raise UnknownModel(f"`{name}` is no provider or API family that turnwise knows; {hint}")


def _with_provider(text: str, *, known: Mapping[str, Profile]) -> str:
    """The same model in our words; empty if the provider is unknown. Other programs write PROVIDER/NAME. A word alone
    (`opus`) is no model's whole name."""
    before, slash, name = text.partition("/")
    if slash and name:
        whose = before if before in known else maker_of(before)
        return f"{whose}:{name}" if whose in known else ""
    name = text if re.search(r"[-\d]", text) else "NAME"
    return f"{maker}:{name}" if (maker := maker_of(text)) in known else ""


def maker_of(text: str) -> str:
    """The profile that serves models of such a name, with its number right behind it or not (`o3`, `gpt5`); empty where nobody
    knows."""
    beginning = re.split(r"[^a-z0-9]", text.lower(), maxsplit=1)[0]
    return _KNOWN_BY.get(beginning) or _KNOWN_BY.get(re.split(r"\d", beginning, maxsplit=1)[0], "")


class Ways(msgspec.Struct, frozen=True):
    """How the caller of a face gives an address and a key, for messages."""

    base_url: str
    key: str


IN_PYTHON = Ways(
    base_url='give `endpoint={"base_url": ...}`',
    key='give `endpoint={"api_key": ...}`, or the name of a variable, `endpoint={"api_key_env": ...}`',
)
ON_THE_COMMAND_LINE = Ways(
    base_url="give --base-url", key="give the name of the variable that holds it with --api-key-env"
)


def open_endpoint(
    model: ModelName,
    *,
    base_url: str | None = None,
    api_key: str | None = None,
    api_key_env: str | None = None,
    env: Mapping[str, str] | None = None,
    ways: Ways = IN_PYTHON,
    transport: object = None,
) -> Endpoint:
    """Address and key for the model. The key is `api_key`, else the variable `api_key_env`, else the profile's own.

    There may be none if the transport has a property `needs_key` that is False.

    Raises CallerError where an address is missing or no http(s) URL, MissingKey where the provider wants a key.
    """
    profile = model.profile
    address = base_url or profile.base_url
    if not address:
        raise CallerError(f"`{profile.name}` has no address of its own: {ways.base_url}")
    if not address.startswith(("http://", "https://")):
        raise CallerError(f"the base URL `{address}` must begin with http:// or https://")
    if "{" in address:
        raise CallerError(f"`{profile.name}` needs its address filled in: {ways.base_url} (a template: {address})")
    return Endpoint(
        profile=profile,
        base_url=address.rstrip("/"),
        key=_key_for(
            profile,
            env=os.environ if env is None else env,
            api_key=api_key,
            api_key_env=api_key_env,
            way=ways.key,
            is_needed=getattr(transport, "needs_key", True),
        ),
    )


def _key_for(
    profile: Profile,
    *,
    env: Mapping[str, str],
    api_key: str | None,
    api_key_env: str | None,
    way: str,
    is_needed: bool,
) -> Secret | None:
    try:
        return find_key(profile, env=env, api_key=api_key, api_key_env=api_key_env, way=way)
    except MissingKey:
        if is_needed:
            raise
        return None
