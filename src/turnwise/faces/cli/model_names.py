"""Names of models to choose from and to complete by Tab: what turnwise's tables know of a provider, without asking anybody."""

from collections.abc import Iterable

from turnwise.drivers.catalogue import builtin_catalogue
from turnwise.faces.models import maker_of
from turnwise.wire.profiles import builtin_profiles


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
