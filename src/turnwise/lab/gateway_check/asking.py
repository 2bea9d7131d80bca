"""The two ends of a check: the gateway that is asked, and the lab that answers behind it."""

import asyncio

import msgspec

from turnwise.agent.models import find_profile
from turnwise.endpoints.endpoints import Endpoint, Secret, build_http_request
from turnwise.endpoints.transport import HttpRequest, Transport, read_bounded
from turnwise.errors import CallerError, ProviderFault
from turnwise.lab.cases import QUESTION, TOOL_NAMES
from turnwise.vocab import Message, Request, Settings, Text, ToolSpec
from turnwise.wire.profiles import FamilyName

CASE = "{case}"  # in the name of a model
CONNECT_S = 10.0
MOST_BYTES = 32 * 1024 * 1024
LIMIT_TOKENS = 6_000
_ANY = '{"type":"object","properties":{}}'
_VERSIONS = ("/v1", "/v1beta")


class GatewayAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """All that came back for one question. `failure`: the connection failed, or no end came in time."""

    status: int = 0
    content_type: str = ""
    body: bytes = b""
    failure: str = ""


class GatewayAsked(msgspec.Struct, frozen=True, kw_only=True):
    """A gateway, and how it is asked. `model` may hold `{case}`, for the name of the lab's script."""

    url: str
    key: Secret | None
    model: str
    timeout_s: float

    def endpoint(self, family: FamilyName) -> Endpoint:
        """Raises CallerError for an address that is none."""
        base = self.url.rstrip("/")
        for version in _VERSIONS:
            base = base.removesuffix(version)
        versioned = f"{base}/v1" if family in ("openai_chat", "openai_responses") else base
        return Endpoint(profile=find_profile(family), base_url=versioned, key=self.key)

    async def ask(self, case: str, *, family: FamilyName, transport: Transport) -> GatewayAnswer:
        """One question with tools, as a client of this family sends it; the answer is a stream."""
        endpoint = self.endpoint(family)
        request = Request(
            model=self.model.replace(CASE, case),
            messages=(Message("user", (Text(QUESTION),)),),
            tools=tuple([ToolSpec(name=name, parameters=_ANY) for name in TOOL_NAMES]),
            stream=True,
            settings=Settings(max_output_tokens=LIMIT_TOKENS),
        )
        call = endpoint.family.encode_request(request, endpoint.profile)
        sent = build_http_request(endpoint, call, connect_s=min(CONNECT_S, self.timeout_s))
        try:
            async with asyncio.timeout(self.timeout_s), transport.send(sent) as reply:
                body = await read_bounded(reply.chunks, most_bytes=MOST_BYTES)
                return GatewayAnswer(status=reply.status, content_type=reply.headers.get("content-type", ""), body=body)
        except ProviderFault as error:
            return GatewayAnswer(failure=endpoint.scrub(error.fault.message))
        except TimeoutError:
            return GatewayAnswer(failure=f"no end within {self.timeout_s:g} s")


class LabAsked:
    """A lab that runs, told by its own paths what to play. Raises CallerError where there is no lab."""

    def __init__(self, url: str, *, transport: Transport) -> None:
        self._url = url.rstrip("/")
        self._transport = transport

    async def forget(self) -> None:
        """Steps that fail at first do so again."""
        await self._send("DELETE", "/_lab/requests")

    async def play(self, case: str | None) -> None:
        """This script for every request, whatever model it names; None: the model's name chooses."""
        await self._send("PUT", "/_lab/playing", body=msgspec.json.encode({"script": case}))

    async def heard_in(self) -> FamilyName | None:
        """The family of the last request since `forget`."""
        listed = msgspec.json.decode(await self._send("GET", "/_lab/requests"), type=_Listed)
        return listed.requests[-1].family if listed.requests else None

    async def _send(self, method: str, path: str, *, body: bytes = b"") -> bytes:
        request = HttpRequest(url=f"{self._url}{path}", headers=(), body=body, method=method, connect_s=CONNECT_S)
        try:
            async with asyncio.timeout(CONNECT_S), self._transport.send(request) as reply:
                answer = await read_bounded(reply.chunks, most_bytes=MOST_BYTES)
        except (ProviderFault, TimeoutError) as error:
            raise CallerError(f"no lab at `{self._url}`: {error or 'no answer'}") from None
        if reply.status >= 300:
            raise CallerError(f"no lab of this version at `{self._url}`: status {reply.status} for {method} {path}")
        return answer


class _Heard(msgspec.Struct, frozen=True):
    family: FamilyName


class _Listed(msgspec.Struct, frozen=True):
    requests: list[_Heard]
