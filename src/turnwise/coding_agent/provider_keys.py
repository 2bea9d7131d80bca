"""A provider's key that a person gives: whose it is, whether the provider refuses it, and where it is kept."""

import contextlib
import ipaddress
import os
import re
from collections.abc import Mapping
from pathlib import Path
from urllib.parse import urlsplit

import msgspec

from turnwise.agent.formatting import many
from turnwise.agent.models import ON_THE_COMMAND_LINE, ModelName, find_profile, open_endpoint
from turnwise.base.threads import run_to_end
from turnwise.coding_agent.choice import ANY_FAMILY
from turnwise.coding_agent.model_names import URL, keys_in, may_be_chosen, offered_by
from turnwise.endpoints.endpoints import Secret
from turnwise.errors import CallerError, ProviderFault
from turnwise.settings.kept_keys import KeptKey, clean_key, keep_key, keys_file
from turnwise.vocab import FaultKind
from turnwise.wire.profiles import Profile, key_owner, origin_of, owner_by_key, profile_at

_ASSIGNMENT = re.compile(r"\s*(?:export\s+)?([A-Za-z_][A-Za-z0-9_]*(?:KEY|TOKEN))=(.+)", re.DOTALL)
_NO_RIGHT = 403  # a key without the right to list models may still have the right to ask one


class TriedKey(msgspec.Struct, frozen=True, kw_only=True):
    """What became of asking its provider for the list of models. `why` it did not come; `refused`: it said no to the key."""

    models: tuple[str, ...] = ()
    why: str = ""
    refused: bool = False

    def said(self, profile: Profile) -> str:
        if not self.why:
            return f"{title_of(profile)} did not refuse the key: it lists {many(len(self.models), 'model')}"
        return (
            f"{title_of(profile)} refused the key: {self.why}" if self.refused else f"the key was not tried: {self.why}"
        )


def title_of(profile: Profile) -> str:
    return profile.title or profile.name


def is_like_key(text: str) -> bool:
    """Whether a typed text is a key, by its beginning or by the variable before it, and so must not stand on a screen."""
    return (
        text.lstrip().startswith("sk-") or owner_by_key(text.strip()) is not None or _ASSIGNMENT.match(text) is not None
    )


def read_key(text: str) -> tuple[Profile | None, str]:
    """The key in a typed text (a line of a shell that sets a variable, too), and whose it is, if that is certain. Raises
    CallerError, without the text."""
    if (assigned := _ASSIGNMENT.match(text)) is not None:
        key = clean_key(assigned[2])
        named = keys_in({assigned[1]: key})
        return (named[0].profile if named else owner_by_key(key)), key
    key = clean_key(text)
    return owner_by_key(key), key


def owner_named(name: str) -> Profile:
    """The provider of that name, whose key can be kept; for the URL of a server, that server under the name of its origin. Raises
    CallerError: an address that the user has to fill in has no origin that a key could be bound to."""
    if URL.match(name):
        return _server_at(name)
    owner = key_owner(find_profile(name))
    if not origin_of(owner.base_url or "") or owner.auth == "none":
        variable = f" in {owner.api_key_env[0]}" if owner.api_key_env else ", and name its variable with --api-key-env"
        raise CallerError(
            f"a key of `{owner.name}` cannot be stored: its address is yours to fill in, and a stored key goes to one address "
            f"alone: `turnwise auth add URL` stores the key of an address; or set it{variable}"
        )
    return owner


def _server_at(url: str) -> Profile:
    """Raises CallerError for a URL with more than an address in it: a password or a query may be a key."""
    if not (origin := origin_of(url)) or "@" in url or "?" in url:
        raise CallerError("that is no URL of a server: give `http://HOST:PORT/v1`, without a password or a query")
    if (known := profile_at(url)) is not None:
        return key_owner(known)
    return msgspec.structs.replace(find_profile(ANY_FAMILY), name=origin, title=origin, base_url=url.rstrip("/"))


def unencrypted_line(profile: Profile) -> str:
    """What to say before a key is sent by `http` to another machine; else empty."""
    parts = urlsplit(profile.base_url or "")
    host = parts.hostname or ""
    with contextlib.suppress(ValueError):
        if parts.scheme == "https" or host == "localhost" or ipaddress.ip_address(host).is_loopback:
            return ""
    return f"`http` encrypts nothing: the key can be read on the way to {host}"


def try_key(profile: Profile, key: str) -> TriedKey:
    """Ask the provider for its models, once and at its own address, with the key. No tokens are used."""
    secret = Secret(key, origin=origin_of(profile.base_url or ""))
    try:
        endpoint = open_endpoint(ModelName(profile, "*"), api_key=secret, ways=ON_THE_COMMAND_LINE)
        models = run_to_end(offered_by(endpoint))
    except ProviderFault as error:
        fault, base = error.fault, profile.base_url or ""
        if fault.kind is FaultKind.NOT_FOUND and base.count("/") == 2:  # most servers answer below `/v1`
            return try_key(msgspec.structs.replace(profile, base_url=f"{base}/v1"), key)
        refused = fault.kind is FaultKind.AUTH and fault.status != _NO_RIGHT
        return TriedKey(why=str(error).replace(key, "***"), refused=refused)
    except CallerError as error:
        return TriedKey(why=str(error))
    return TriedKey(models=tuple([model.name for model in models if may_be_chosen(model.name)]))


def store_key(
    profile: Profile, key: str, *, env: Mapping[str, str], in_file: bool = False
) -> tuple[KeptKey, list[str]]:
    """Keep it, in place of one that was there; with it the lines that say where it is, and where it goes. Raises CallerError."""
    origin = origin_of(profile.base_url or "")
    kept, why = keep_key(profile.name, key, origin=origin, env=env, in_file=in_file)
    lines = [f"kept in {place_said(kept, env=env)}{f' ({why})' if why else ''}; it goes to {origin} alone"]
    if set_now := variables_set(profile, env=env):
        lines.append(f"{set_now} is set, and comes before the stored key")
    return kept, lines


def place_said(kept: KeptKey, *, env: Mapping[str, str]) -> str:
    if kept.place == "keyring":
        return "the system's keyring"
    return f"{from_home(str(keys_file(env)))}, which only you can read"


def variables_set(profile: Profile, *, env: Mapping[str, str]) -> str:
    """The variable of the provider that is set, and so comes before a stored key; else empty."""
    return next((name for name in profile.api_key_env if env.get(name, "").strip()), "")


def from_home(path: str) -> str:
    """With `~` for the home folder."""
    home = str(Path(os.path.expanduser("~")))  # noqa: PTH111
    return f"~{path.removeprefix(home)}" if home != "/" and path.startswith(f"{home}/") else path
