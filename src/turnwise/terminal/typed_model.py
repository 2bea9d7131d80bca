"""What a person types where a model is asked for: a model, an address, both, or a whole line that they have pasted."""

import re
import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path

import click
import msgspec
from click.core import ParameterSource

from turnwise.agent.models import Ways, find_profile, open_endpoint, read_model
from turnwise.base.threads import run_to_end
from turnwise.coding_agent.choice import ANY_FAMILY, address_in
from turnwise.coding_agent.model_names import PLACE, URL, is_listed, may_be_chosen, meant_said, near_name, offered_by
from turnwise.coding_agent.options import Given, given_over
from turnwise.errors import CallerError, MissingKey, ProviderFault
from turnwise.terminal.command_options import shared_options
from turnwise.terminal.hints import TakesPrompts
from turnwise.vocab import FaultKind
from turnwise.wire.profiles import Profile, builtin_profiles, profile_at

AT_THE_PROMPT = Ways(
    base_url=f"type the address, too: `{ANY_FAMILY}:NAME --base-url URL`",
    key="name its variable: `MODEL --api-key-env NAME`",
)
_ASSIGNMENT = re.compile(r"[A-Za-z_][A-Za-z0-9_]*=")


class ServerModels(msgspec.Struct, frozen=True, kw_only=True):
    """What a server at `base_url` offers to choose from; `why` it has no list. `provider` stands in front of the names."""

    base_url: str
    provider: str
    names: tuple[str, ...] = ()
    why: str = ""


def read_typed(text: str, *, given: Given) -> Given:
    """The options with those that were typed: `MODEL`, `URL`, `MODEL --base-url URL`, or a line of a shell that begins with
    `turnwise`. Raises CallerError."""
    try:
        words = shlex.split(text)
    except ValueError:
        raise CallerError("a quote in it is not closed") from None
    words = _without_program(words)
    if words and (place := PLACE.fullmatch(words[0])) and place[1] not in builtin_profiles():
        raise CallerError(f"`{words[0]}` names no provider: if it is an address, type `http://{words[0]}`")
    if words and URL.match(words[0]):
        words = ["--base-url", *words]
    elif words and not words[0].startswith("-"):
        words = ["--model", *words]
    typed = _options_in(words)
    model, base_url = typed.get("model"), typed.get("base_url")
    if not model and not base_url:
        raise CallerError("it names no model: type PROVIDER:NAME, or the URL of a server")
    if model and base_url and ":" not in str(model):
        typed["model"] = f"{provider_at(str(base_url)).name}:{model}"
    return given_over(given, typed)


def _without_program(words: Sequence[str]) -> list[str]:
    from turnwise.terminal.group import COMMANDS

    said = list(words[1:] if words[:1] == ["$"] else words)
    if said and (said[0] == "export" or _ASSIGNMENT.match(said[0])):  # its value may be a key, and is not shown
        raise CallerError("a variable is set in the shell: leave with q, set it, and start turnwise again")
    if not said or Path(said[0]).name != "turnwise":
        return said
    del said[0]
    if said[:1] == ["chat"]:
        del said[0]
    if said and said[0] in COMMANDS:
        raise CallerError(f"`turnwise {said[0]}` is for the shell: leave with q, and run it there")
    return said


@click.command(cls=TakesPrompts)
@shared_options
def _options(**_given: object) -> None:
    """Those that may be typed with a model: as behind `turnwise chat`."""


def _options_in(words: Sequence[str]) -> dict[str, object]:
    try:
        context = _options.make_context("turnwise", list(words), help_option_names=["-h", "--help"])
    except click.exceptions.Exit:  # --help has been shown
        raise CallerError("here MODEL, URL or `MODEL --base-url URL` is read") from None
    except click.ClickException as error:
        raise CallerError(error.format_message().rstrip(".")) from None
    return {
        name: value
        for name, value in context.params.items()
        if context.get_parameter_source(name) is ParameterSource.COMMANDLINE
    }


def check(given: Given, *, env: Mapping[str, str]) -> None:
    """Raises CallerError where its model is none, or its address or key is missing."""
    named = read_model(given["model"] or "")
    address = given["base_url"] or address_in(env, provider=named.profile.name)
    try:
        open_endpoint(named, base_url=address, api_key_env=given["api_key_env"], env=env, ways=AT_THE_PROMPT)
    except MissingKey:
        names = [given["api_key_env"]] if given["api_key_env"] else named.profile.api_key_env
        wanted = " or ".join([f"`{name}`" for name in names])
        set_it = f"leave with q, set {wanted}, and start again; or " if names else ""
        raise CallerError(f"`{named.profile.name}` wants a key: {set_it}{AT_THE_PROMPT.key}") from None


def provider_at(base_url: str) -> Profile:
    """The provider whose own address it is; else any endpoint of the usual family."""
    return profile_at(base_url) or find_profile(ANY_FAMILY)


def list_at(
    base_url: str, *, api_key_env: str | None, env: Mapping[str, str], profile: Profile | None = None
) -> ServerModels:
    """Ask the server there which models it has; where it knows no such path, below `/v1`. Without a `profile` it is the one of
    the address. Raises CallerError for what is no address, and for a missing key."""
    profile = profile or provider_at(base_url)
    first = _list_at(base_url, profile=profile, api_key_env=api_key_env, env=env)
    if isinstance(first, ServerModels):
        return first
    if first.fault.kind is FaultKind.NOT_FOUND and re.fullmatch(r"https?://[^/?]+/?", base_url):
        below = _list_at(f"{base_url.rstrip('/')}/v1", profile=profile, api_key_env=api_key_env, env=env)
        if isinstance(below, ServerModels):
            return below
    needs_key = first.fault.kind is FaultKind.AUTH and not api_key_env
    way = "; for a key: `URL --api-key-env NAME`, with the name of its variable" if needs_key else ""
    return ServerModels(base_url=base_url, provider=profile.name, why=f"{first}{way}")


def _list_at(
    base_url: str, *, profile: Profile, api_key_env: str | None, env: Mapping[str, str]
) -> ServerModels | ProviderFault:
    named = read_model(f"{profile.name}:*")
    endpoint = open_endpoint(named, base_url=base_url, api_key_env=api_key_env, env=env, ways=AT_THE_PROMPT)
    try:
        offered = run_to_end(offered_by(endpoint))
    except ProviderFault as error:
        return error
    names = tuple([model.name for model in offered if may_be_chosen(model.name)])
    why = "" if names else "it lists no model to talk with"
    return ServerModels(base_url=endpoint.base_url, provider=profile.name, names=names, why=why)


def unlisted(given: Given, *, listed: ServerModels) -> str:
    """What to say of a name that the server's list does not have; empty where it has it or is no list of it."""
    provider, _, name = (given["model"] or "").partition(":")
    is_there = provider == listed.provider and given["base_url"] in (None, listed.base_url)
    if not is_there or not listed.names or is_listed(name, names=listed.names):
        return ""
    return f"`{name}` is not in its list{meant_said(near_name(name, names=listed.names))}"


def check_address(given: Given, *, env: Mapping[str, str]) -> tuple[Given, str]:
    """The options with the address where the server answers (`http://host` -> `http://host/v1`), and what speaks against them:
    the server gives no list, or the model is not in it. An API without lists is not asked. Raises CallerError as `check`."""
    check(given, env=env)
    profile = read_model(given["model"] or "").profile
    try:
        listed = list_at(given["base_url"] or "", api_key_env=given["api_key_env"], env=env, profile=profile)
    except CallerError:
        return given, ""
    there: Given = {**given, "base_url": listed.base_url}
    where = listed.base_url.partition("?")[0]
    return there, f"{where}: {listed.why}" if listed.why else unlisted(there, listed=listed)


def at_listed(given: Given, *, listed: ServerModels) -> Given:
    """A name that was typed while a server's list was asked for is one of its models; another provider's name is itself."""
    model = given["model"] or ""
    provider = model.partition(":")[0]
    if given["base_url"] or (model not in listed.names and ":" in model and provider in builtin_profiles()):
        return given
    is_own = listed.base_url == find_profile(listed.provider).base_url
    return {**given, "model": f"{listed.provider}:{model}", "base_url": None if is_own else listed.base_url}
