"""What there is to begin with: keys in the environment (their names), and model servers on this machine."""

import asyncio
from collections.abc import Mapping

import msgspec

from turnwise.agent.formatting import many
from turnwise.base.own_loop import run_to_end
from turnwise.coding_agent.text import visible_line
from turnwise.endpoints.aiohttp_transport import AiohttpTransport
from turnwise.endpoints.endpoints import Endpoint
from turnwise.endpoints.local_servers import LocalServer, ServerAnswer, find_servers, local_servers
from turnwise.endpoints.model_lists import ASK_S, ask_for_models
from turnwise.settings.catalogue import builtin_ends
from turnwise.wire.model_lists import OfferedModel
from turnwise.wire.profiles import Profile, builtin_profiles

MOST_OF_A_SERVER = 5  # models that are offered to choose from
MOST_NAMED = 3  # in one line
# Models that a server lists and that answer nobody.
_NO_CHAT = ("embed", "rerank", "whisper")


class Key(msgspec.Struct, frozen=True, kw_only=True):
    """A variable that is set, and whose key it holds. Never the key."""

    variable: str
    profile: Profile


class FoundEndpoints(msgspec.Struct, frozen=True, kw_only=True):
    keys: tuple[Key, ...]
    servers: tuple[ServerAnswer, ...]
    looked_for: tuple[LocalServer, ...]

    @property
    def options(self) -> tuple[str, ...]:
        """Models to choose from: the suggested one of each provider whose key is there, then those of the servers."""
        names = {key.profile.name for key in self.keys}
        suggested = [f"{name}:{models[0]}" for name, models in builtin_ends().examples.items() if name in names]
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
    return FoundEndpoints(keys=keys_in(env), servers=answers, looked_for=servers)


async def offered_by(endpoint: Endpoint, *, within_s: float = ASK_S) -> tuple[OfferedModel, ...]:
    """The models that it offers now. Raises CallerError where it has no list, ProviderFault where it gives none."""
    async with AiohttpTransport() as transport:
        return await ask_for_models(endpoint, transport=transport, within_s=within_s)


def keys_in(env: Mapping[str, str]) -> tuple[Key, ...]:
    """One for each variable that is set. Where several profiles read it, the provider's plain name; where a provider reads
    several, the first."""
    found: dict[str, Key] = {}
    for profile in builtin_profiles().values():
        variable = next((name for name in profile.api_key_env if env.get(name, "").strip()), None)
        if variable is None or not profile.key_required:
            continue
        before = found.get(variable)
        if before is None or len(profile.name) < len(before.profile.name):
            found[variable] = Key(variable=variable, profile=profile)
    return tuple(found.values())


def key_line(key: Key) -> str:
    """`OPENAI_API_KEY is set: OpenAI`."""
    base = key.profile.base_url
    needs = "" if base and "{" not in base else "; it needs --base-url"
    return f"{key.variable} is set: {key.profile.title or key.profile.name} (`{key.profile.name}`){needs}"


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
