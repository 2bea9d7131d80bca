"""The models that an endpoint offers, and the model servers of this machine: at which ports they usually listen, and which of
them answer now."""

import asyncio
import functools
import ipaddress
import re
from collections.abc import Mapping, Sequence
from typing import Literal
from urllib.parse import urlsplit

import msgspec

from turnwise.endpoints.endpoints import Endpoint, build_http_request
from turnwise.endpoints.transport import HttpReply, Transport, read_bounded
from turnwise.errors import CallerError, ProviderFault
from turnwise.vocab import Fault, FaultKind
from turnwise.vocab.wording import in_ticks
from turnwise.wire.family import where_asked
from turnwise.wire.model_lists import OfferedModel, list_call, read_model_list
from turnwise.wire.profiles import Profile, builtin_profiles

ASK_S = 10.0
MAX_BYTES = 8 * 1024 * 1024  # the longest list that is known, OpenRouter's, has less than 1 MB
NOT_FOUND = 404


async def ask_for_models(
    endpoint: Endpoint, *, transport: Transport, within_s: float = ASK_S, max_bytes: int = MAX_BYTES
) -> tuple[OfferedModel, ...]:
    """The models that the endpoint offers now. It is asked once, with its key if it has one.

    Raises CallerError where its API has no list, ProviderFault where it gave none.
    """
    call = list_call(endpoint.profile)
    if call is None:
        raise CallerError(f"`{endpoint.profile.name}` has no list of models to ask for")
    request = build_http_request(endpoint, call, connect_s=within_s)
    try:
        async with asyncio.timeout(within_s), transport.send(request) as reply:
            body = await _read(reply, max_bytes=max_bytes)
    except TimeoutError:
        raise ProviderFault(Fault(kind=FaultKind.TIMEOUT, message=f"no list of models within {within_s:g} s")) from None
    if not 200 <= reply.status < 300:
        raise ProviderFault(_refusal(reply, body, endpoint=endpoint, url=request.url))
    try:
        return read_model_list(body)
    except ValueError:
        message = f"no list of models came from `{endpoint.scrub(request.url.partition('?')[0])}`"
        raise ProviderFault(Fault(kind=FaultKind.PROTOCOL, message=message, status=reply.status)) from None


async def _read(reply: HttpReply, *, max_bytes: int) -> bytes:
    body = await read_bounded(reply.chunks, most_bytes=max_bytes)
    if len(body) > max_bytes:
        message = f"the list of models has more than {max_bytes} bytes"
        raise ProviderFault(Fault(kind=FaultKind.TOO_LARGE, message=message))
    return body


def _refusal(reply: HttpReply, body: bytes, *, endpoint: Endpoint, url: str) -> Fault:
    fault = endpoint.family.decode_fault(reply.status, reply.headers, body)
    status = f"HTTP {reply.status}"
    message = endpoint.scrub(fault.message if fault.message.startswith(status) else f"{status}: {fault.message}")
    if reply.status == NOT_FOUND:
        asked = where_asked(endpoint.scrub(url), base_url=endpoint.scrub(endpoint.base_url), family=endpoint.family)
        message = f"{message} ({asked})"
    return msgspec.structs.replace(fault, message=message)


VARIABLE = "TURNWISE_LOCAL_PORTS"
WITHIN_S = 1.0  # a server that is there lists its models in milliseconds
LOCAL_LIST_BYTES = 1024 * 1024
_ENTRY = re.compile(r"([a-z]+)=(\d{1,5})")


class LocalServer(msgspec.Struct, frozen=True, kw_only=True):
    """`moved`: it was said to listen at this port, which is not its usual one."""

    profile: Profile
    port: int
    moved: bool = False


class ServerAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """What became of asking one. `silent`: something listens and says nothing; `wants_key`: it refuses to list without one."""

    server: LocalServer
    state: Literal["lists", "wants_key", "silent"]
    models: tuple[OfferedModel, ...] = ()


@functools.cache
def usual_servers() -> tuple[LocalServer, ...]:
    """The profiles of servers on one's own machine. Of two that share a port, the plain name."""
    found: dict[int, Profile] = {}
    for profile in builtin_profiles().values():
        parts = urlsplit(profile.base_url or "")
        if profile.billing == "free" and parts.hostname == "localhost" and parts.port is not None:
            before = found.get(parts.port)
            if before is None or len(profile.name) < len(before.name):
                found[parts.port] = profile
    return tuple([LocalServer(profile=profile, port=port) for port, profile in found.items()])


def local_servers(env: Mapping[str, str]) -> tuple[LocalServer, ...]:
    """Those to look for: the ones that TURNWISE_LOCAL_PORTS names (`ollama=11435,vllm=8001`; empty: none), else the usual ones
    at their usual ports. Raises CallerError where the variable cannot be read."""
    said = env.get(VARIABLE)
    if said is None:
        return usual_servers()
    usual = {server.profile.name: server for server in usual_servers()}
    found: list[LocalServer] = []
    for entry in filter(None, [part.strip() for part in said.split(",")]):
        match = _ENTRY.fullmatch(entry)
        if match is None or match[1] not in usual or not 0 < int(match[2]) < 65_536:
            names = in_ticks(usual)
            raise CallerError(f"{VARIABLE}: `{entry}` is no server and port: write `ollama=11434`; servers are {names}")
        server = usual[match[1]]
        found.append(LocalServer(profile=server.profile, port=int(match[2]), moved=int(match[2]) != server.port))
    return tuple(found)


def moved_address(profile: str, *, env: Mapping[str, str]) -> str | None:
    """The base URL of a server that TURNWISE_LOCAL_PORTS moves to another port; else None. Raises CallerError as above."""
    if VARIABLE not in env:
        return None
    moved = [server for server in local_servers(env) if server.profile.name == profile and server.moved]
    return _address(moved[0]) if moved else None


async def find_servers(servers: Sequence[LocalServer], *, within_s: float = WITHIN_S) -> tuple[ServerAnswer, ...]:
    """Those at whose ports something answers, asked at the same time: on the loopback address, without a key, past all proxies.
    What is no list of models is somebody else's server, and left out."""
    from turnwise.endpoints.aiohttp_transport import AiohttpTransport

    async with AiohttpTransport(env={}) as transport:
        answers = await asyncio.gather(*[_ask(server, transport=transport, within_s=within_s) for server in servers])
    return tuple([answer for answer in answers if answer is not None])


async def _ask(server: LocalServer, *, transport: Transport, within_s: float) -> ServerAnswer | None:
    endpoint = Endpoint(profile=server.profile, base_url=_address(server))
    try:
        models = await ask_for_models(endpoint, transport=transport, within_s=within_s, max_bytes=LOCAL_LIST_BYTES)
    except ProviderFault as error:
        match error.fault.kind:
            case FaultKind.TIMEOUT:
                return ServerAnswer(server=server, state="silent")
            case FaultKind.AUTH:
                return ServerAnswer(server=server, state="wants_key")
            case _:
                return None
    return ServerAnswer(server=server, state="lists", models=models)


def is_own_machine(base_url: str) -> bool:
    """The address is a loopback one: no network and no proxy lies in between."""
    host = urlsplit(base_url).hostname or ""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost" or host.endswith(".localhost")


def _address(server: LocalServer) -> str:
    path = urlsplit(server.profile.base_url or "").path
    return f"http://127.0.0.1:{server.port}{path}"
