"""deep-chat on a page in Chromium, whose tool writes files into the current folder.

`python PROGRAM CHROMIUM BUNDLE SOCKET BASE_URL MODEL PROMPT IS_GATEWAY`. SOCKET is the number of a listening socket: so the
page's origin is known before. If BASE_URL is no gateway, the page asks its own server, which hands on what comes: a browser may
ask other origins only if they allow it.
"""

import asyncio
import json
import os
import socket
import sys
from pathlib import Path

import aiohttp
from aiohttp import web

CHAT = "/v1/chat/completions"
FLAGS = """--headless=new --no-sandbox --disable-gpu --disable-dev-shm-usage --no-first-run
--disable-background-networking --disable-component-update --disable-default-apps --disable-sync
--disable-extensions --disable-domain-reliability --disable-client-side-phishing-detection
--disable-component-extensions-with-background-pages --disable-search-engine-choice-screen
--metrics-recording-only --no-pings --no-default-browser-check
--disable-features=OptimizationHints,MediaRouter,Translate,AutofillServerCommunication,CertificateTransparencyComponentUpdater""".split()
chromium, bundle, listening, base_url, model, prompt, is_gateway = sys.argv[1:]


class Page:
    def __init__(self) -> None:
        self.ended: asyncio.Future[dict[str, str]] = asyncio.get_running_loop().create_future()

    async def settings(self, _: web.Request) -> web.Response:
        return web.json_response({"url": base_url if is_gateway == "yes" else "", "model": model, "prompt": prompt})

    async def write(self, request: web.Request) -> web.Response:
        content = await request.read()
        await asyncio.to_thread(Path(request.match_info["name"]).write_bytes, content)
        return web.Response()

    async def end(self, request: web.Request) -> web.Response:
        if not self.ended.done():
            self.ended.set_result(json.loads(await request.text()))
        return web.Response()

    async def hand_on(self, request: web.Request) -> web.StreamResponse:
        async with aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=None)) as session:
            headers = {"content-type": "application/json"}
            async with session.post(base_url + CHAT, data=await request.read(), headers=headers) as reply:
                response = web.StreamResponse(status=reply.status)
                response.content_type = reply.content_type
                await response.prepare(request)
                try:
                    async for piece in reply.content.iter_any():
                        await response.write(piece)
                except aiohttp.ClientError:
                    assert request.transport is not None
                    request.transport.abort()
                return response


async def main() -> int:
    page = Page()
    app = web.Application(client_max_size=2**26)
    here = Path(__file__).parent
    app.router.add_get("/", lambda _: web.FileResponse(here / "deep_chat.html"))
    app.router.add_get("/deepChat.bundle.js", lambda _: web.FileResponse(bundle))
    app.router.add_get("/settings", page.settings)
    app.router.add_put("/files/{name}", page.write)
    app.router.add_post("/ended", page.end)
    app.router.add_post(CHAT, page.hand_on)
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=0)
    await runner.setup()
    own = socket.socket(fileno=int(listening))
    await web.SockSite(runner, own).start()
    address = f"http://127.0.0.1:{own.getsockname()[1]}/"
    # Chromium looks after itself in ways that no flag ends: it finds no name but these.
    env = {name: value for name, value in os.environ.items() if not name.lower().endswith("_proxy")}
    near = "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1"
    browser = await asyncio.create_subprocess_exec(
        chromium, *FLAGS, near, f"--user-data-dir={os.environ['HOME']}/chromium", address, env=env
    )
    gone = asyncio.ensure_future(browser.wait())
    await asyncio.wait([gone, page.ended], return_when=asyncio.FIRST_COMPLETED)
    if gone.done():
        sys.stdout.write("the browser ended\n")
        return 1
    browser.kill()
    await gone
    await runner.cleanup()
    ended = page.ended.result()
    sys.stdout.write(f"{ended['how']}: {ended['said']}\n")
    return 0 if ended["how"] == "answer" else 1


sys.exit(asyncio.run(main()))
