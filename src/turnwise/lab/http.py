"""The lab on the network: HTTP in, the provider's pieces out."""

import asyncio
import contextlib
import hmac

from aiohttp import WSCloseCode, WSMessage, WSMsgType, web
from msgspec.structs import replace

from turnwise.lab.families import FAMILIES, Route, has_doubled_version, is_strict_path, openai_chat, route
from turnwise.lab.families.family import LabFamily
from turnwise.lab.faults import JSON, Outgoing, refusal
from turnwise.lab.provider import Provider, Received, listing, model_list, script_list
from turnwise.lab.raw import dig, parse, text
from turnwise.lab.sockets import BUSY, Messages, SocketTalk, check_upgrade, error_message, events_in
from turnwise.lab.strict import Rejected

# Tests send long histories with files in them. A program that reaches loopback can fill the memory anyway.
MAX_REQUEST_BYTES = 256 * 1024 * 1024
SHUTDOWN_S = 1.0
PING_EVERY_S = 0.02
KEY_HEADERS = ("x-api-key", "api-key", "x-goog-api-key")


class Site:
    """One running server. `requests` grows before a reply's first byte leaves, so a client that has read a reply finds it."""

    def __init__(
        self,
        provider: Provider,
        *,
        requests: list[Received],
        chunk_delay_s: float,
        key: str | None,
        strict_paths: bool = False,
        socket_responses: int | None = None,
    ) -> None:
        self.port = 0
        self._socket_responses = socket_responses
        self._talks: set[Messages] = set()
        self._connections = 0  # WebSockets so far
        self._provider = provider
        self._requests = requests
        self._chunk_delay_s = chunk_delay_s
        self._key = key
        self._strict_paths = strict_paths
        self._closing = asyncio.Event()
        app = web.Application(client_max_size=MAX_REQUEST_BYTES)
        app.router.add_get("/_lab/requests", self._list_requests)
        app.router.add_delete("/_lab/requests", self._forget_requests)
        app.router.add_get("/_lab/scripts", self._list_scripts)
        app.router.add_put("/_lab/playing", self._play)
        app.router.add_get("/{path:.*}", self._list_models)
        app.router.add_post("/{path:.*}", self._answer)
        self._runner = web.AppRunner(app, handler_cancellation=True, shutdown_timeout=SHUTDOWN_S, access_log=None)

    async def open(self, host: str, *, port: int) -> None:
        """Raises OSError if the port is taken."""
        await self._runner.setup()
        await web.TCPSite(self._runner, host, port).start()
        self.port = int(self._runner.addresses[0][1])

    async def close(self) -> None:
        self._closing.set()
        for messages in self._talks:
            messages.end()
        await self._runner.cleanup()

    async def _answer(self, request: web.Request) -> web.StreamResponse:
        found = route(request.path)
        if self._strict_paths and not is_strict_path(request.path):
            raise web.HTTPNotFound(text='{"detail":"Not Found"}', content_type=JSON)  # as FastAPI's servers say it
        if found is None:
            raise web.HTTPNotFound(text=f"the lab has no endpoint {request.path}; see GET /_lab/scripts\n")
        body = await request.read()
        outgoing, kept = self._reply(request, found=found, body=body)
        self._requests.append(kept)
        try:
            return await self._send(request, outgoing=outgoing, number=kept.number)
        except ConnectionResetError:  # the client has left: aiohttp would print a traceback
            return web.Response()

    def _reply(self, request: web.Request, *, found: Route, body: bytes) -> tuple[Outgoing, Received]:
        number = len(self._requests) + 1
        family = FAMILIES[found.family]
        refused = self._refuse_key(request, family=family)
        if refused is None:
            betas = request.headers.get("anthropic-beta", "")
            return self._provider.answer(found, target=request.path_qs, body=body, number=number, betas=betas)
        kept = Received(
            number=number,
            family=found.family,
            path=request.path_qs,
            model=found.model or "",
            streamed=found.streams,
            status=refused.status,
            body=body,
            refused=refused.message,
        )
        return refusal(family, rejected=refused), kept

    def _refuse_key(self, request: web.Request, *, family: LabFamily) -> Rejected | None:
        if self._key is None:
            return None
        bearer = request.headers.get("authorization", "").removeprefix("Bearer ").strip()
        given = [bearer, *(request.headers.get(name, "") for name in KEY_HEADERS), request.query.get("key", "")]
        if any(hmac.compare_digest(one.encode(), self._key.encode()) for one in given):
            return None
        return family.judge.wrong_key.of()

    async def _send(self, request: web.Request, *, outgoing: Outgoing, number: int) -> web.StreamResponse:
        response = web.StreamResponse(status=outgoing.status, headers=dict(outgoing.headers))
        response.headers["content-type"] = outgoing.content_type
        if outgoing.ending != "close" and not outgoing.pieces:
            await self._end(request, outgoing=outgoing)
            return response
        if len(outgoing.pieces) == 1 and outgoing.ending == "close":
            response.content_length = len(outgoing.pieces[0])
        self._provider.began(number, status=outgoing.status)
        await response.prepare(request)
        for place, piece in enumerate(outgoing.pieces):
            if place and self._chunk_delay_s:
                await asyncio.sleep(self._chunk_delay_s)
            await response.write(piece)
        if outgoing.ending == "pings":
            await self._ping(response, ping=outgoing.ping)
        if outgoing.ending == "close":
            await response.write_eof()
        else:
            await self._end(request, outgoing=outgoing)
        return response

    async def _ping(self, response: web.StreamResponse, *, ping: bytes) -> None:
        """Keep-alives until the client goes (which cancels this) or the lab closes."""
        while not self._closing.is_set():
            await response.write(ping)
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(PING_EVERY_S):
                    await self._closing.wait()

    async def _end(self, request: web.Request, *, outgoing: Outgoing) -> None:
        """Break the connection, or hold it until the client closes it (which cancels this) or the lab does."""
        if outgoing.ending == "stall":
            await self._closing.wait()
        if request.transport is not None:
            request.transport.abort()

    async def _list_requests(self, _: web.Request) -> web.Response:
        return web.Response(body=listing(self._requests), content_type=JSON)

    async def _forget_requests(self, _: web.Request) -> web.Response:
        self._requests.clear()
        self._provider.forget()
        return web.Response(status=204)

    async def _list_scripts(self, _: web.Request) -> web.Response:
        return web.Response(body=script_list(self._provider.scripts), content_type=JSON)

    async def _play(self, request: web.Request) -> web.Response:
        name = text(dig(parse(await request.read()), "script"))
        if name and name not in self._provider.scripts:
            raise web.HTTPNotFound(text=f"there is no script `{name}`; see GET /_lab/scripts\n")
        self._provider.playing = name or None
        return web.Response(status=204)

    async def _converse(self, request: web.Request, *, found: Route) -> web.StreamResponse:
        """One WebSocket. Each of its messages is answered as the same request would be over HTTP."""
        family = FAMILIES[found.family]
        if (refused := self._refuse_key(request, family=family) or check_upgrade(request)) is not None:
            outgoing = refusal(family, rejected=refused)
            return web.Response(status=outgoing.status, body=b"".join(outgoing.pieces), content_type=JSON)
        socket = web.WebSocketResponse(compress=False, timeout=SHUTDOWN_S, max_msg_size=MAX_REQUEST_BYTES)
        await socket.prepare(request)
        self._connections += 1
        talk = SocketTalk(connection=self._connections, most_responses=self._socket_responses)
        messages = Messages(socket)
        self._talks.add(messages)
        reading = asyncio.create_task(messages.read())
        try:
            while (message := await messages.next()) is not None:
                await self._say(request, socket, talk=talk, message=message, messages=messages, found=found)
        except ConnectionResetError:  # the client has left
            pass
        finally:
            self._talks.discard(messages)
            reading.cancel()
            await asyncio.wait([reading])
            await socket.close(code=WSCloseCode.GOING_AWAY)
        return socket

    async def _say(
        self,
        request: web.Request,
        socket: web.WebSocketResponse,
        *,
        talk: SocketTalk,
        message: WSMessage,
        messages: Messages,
        found: Route,
    ) -> None:
        family = FAMILIES[found.family]
        try:
            body = talk.whole(message)
        except Rejected as rejected:
            await socket.send_frame(error_message(rejected, error=family.judge.error(rejected)), WSMsgType.TEXT)
            return
        number = len(self._requests) + 1
        outgoing, kept = self._provider.answer(found, target=request.path_qs, body=body, number=number)
        self._requests.append(replace(kept, message=message.data.encode()))
        self._provider.began(number, status=outgoing.status)
        for place, event in enumerate(events_in(outgoing)):
            if place and self._chunk_delay_s:
                await asyncio.sleep(self._chunk_delay_s)
            if messages.early():
                await socket.send_frame(error_message(BUSY, error=family.judge.error(BUSY)), WSMsgType.TEXT)
            await socket.send_frame(talk.answered(event), WSMsgType.TEXT)
        if outgoing.ending in ("stall", "pings"):
            await messages.left.wait()
        elif outgoing.ending == "reset" and request.transport is not None:
            request.transport.abort()
        elif not talk.has_ended and outgoing.status == 200:
            await socket.close(code=WSCloseCode.INTERNAL_ERROR)

    async def _list_models(self, request: web.Request) -> web.StreamResponse:
        found = route(request.path)
        if found is not None and FAMILIES[found.family].has_socket and "upgrade" in request.headers:
            return await self._converse(request, found=found)
        is_there = is_strict_path(request.path) if self._strict_paths else not has_doubled_version(request.path)
        if not request.path.endswith("/models") or not is_there:
            raise web.HTTPNotFound(text=f"the lab has no endpoint {request.path}; see GET /_lab/scripts\n")
        # All ask at a path of the same name.
        owns = [
            one
            for one in FAMILIES.values()
            if one.is_own_list(frozenset(map(str.lower, request.headers)), request.path)
        ]
        family = owns[0] if owns else openai_chat.FAMILY
        refused = self._refuse_key(request, family=family)
        if refused is not None:
            outgoing = refusal(family, rejected=refused)
            return web.Response(status=outgoing.status, body=b"".join(outgoing.pieces), content_type=JSON)
        return web.Response(body=model_list(self._provider.scripts), content_type=JSON)
