"""The page of a gateway, at an address of its own, and `/admin` beside it.

| request | who | answer |
|---|---|---|
| `GET /`, `/page.js`, `/page.css` | anybody whose `Host` is right | the page's own bytes, without data |
| `POST /page/session` | an admin key in the body | a cookie, and the word that goes with each change |
| `GET`, `DELETE /page/session` | the cookie | whose it is; the end of it |
| `GET /page/now`, `spend`, `repairs`, `errors`, `owners` | the cookie | JSON |
| `GET /page/tail` | the cookie | server-sent events |
| `/admin/*` | the cookie, or an admin key as on the clients' port | as in `admin.py` |

A page of another site gets nothing: `Host`, `Origin` and `Sec-Fetch-Site` are judged, the cookie is `SameSite=Strict`, and each
change by cookie carries a word that only this page knows.
"""

import asyncio
import contextlib
import hmac
import logging
import time
import urllib.parse
from collections.abc import Callable, Collection, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from importlib import resources
from math import ceil
from typing import Any, TypeVar

import msgspec

from turnwise.errors import CallerError
from turnwise.gateway import doors
from turnwise.gateway.admin import AdminApi
from turnwise.gateway.app import MOST_ADMIN_BODY, AsgiReceive, AsgiSend, Visit, read_visit_body
from turnwise.gateway.client_bounds import Bounds
from turnwise.gateway.doors import ClientGone, DoorRefusal
from turnwise.gateway.page_access import SESSION_S, KeyAccess, OnceAccess, PageUser, WrongKeys, csrf_of
from turnwise.gateway.page_tail import LiveTail
from turnwise.gateway.page_views import PageViews
from turnwise.wire.family import USUAL

_log = logging.getLogger("turnwise")

FILES: Mapping[str, tuple[str, str]] = {
    "/": ("index.html", "text/html; charset=utf-8"),
    "/page.js": ("page.js", "text/javascript; charset=utf-8"),
    "/page.css": ("page.css", "text/css; charset=utf-8"),
    "/icon.svg": ("icon.svg", "image/svg+xml"),
}
FOLDER = "web"
CSRF_HEADER = "x-turnwise-page"
RECHECK_S = 5.0  # a running tail looks so often whether its session still holds

# No script, style or picture but the page's own files, nothing framed, no form sent anywhere, and no text becomes a script.
CONTENT_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; base-uri 'none'; "
    "form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'; trusted-types 'none'"
)
SAFE: tuple[tuple[str, str], ...] = (
    ("content-security-policy", CONTENT_POLICY),
    ("x-content-type-options", "nosniff"),
    ("x-frame-options", "DENY"),
    ("referrer-policy", "no-referrer"),
    ("cross-origin-resource-policy", "same-origin"),
    ("cross-origin-opener-policy", "same-origin"),
    ("cache-control", "no-store"),
)

UNREADABLE = DoorRefusal(
    reason="busy", status=503, message="the journal cannot be read; the gateway's log says why", retry_after_s=5
)
BUG = DoorRefusal(reason="bug", status=500, message="the gateway failed; its log names the bug")
MANY_WRONG = "too many wrong keys came from this address; wait a minute"
THREADS = 2  # that wait for the journal: a long sum holds up neither the gateway nor who signs in

Answered = DoorRefusal | None
T = TypeVar("T")


class PageApp:
    """`await app(scope, receive, send)` answers one request."""

    def __init__(
        self,
        views: PageViews,
        *,
        access: KeyAccess | OnceAccess,
        hosts: Callable[[], Collection[str]] = frozenset,
        admin: AdminApi | None = None,
        tail: LiveTail | None = None,
        is_tls: bool = False,
        bounds: Bounds,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._access, self._hosts, self._admin = access, hosts, admin
        self._tail, self._is_tls = tail, is_tls
        self._small = msgspec.structs.replace(bounds, body_bytes=MOST_ADMIN_BODY)
        self._wrong, self._wrong_of_programs = WrongKeys(monotonic=monotonic), WrongKeys(monotonic=monotonic)
        self._monotonic, self._threads = monotonic, ThreadPoolExecutor(THREADS, thread_name_prefix="turnwise page")
        self._views = {
            f"/page/{view.__name__}": view
            for view in (views.now, views.spend, views.repairs, views.errors, views.owners)
        }
        folder = resources.files("turnwise.gateway") / FOLDER
        self._files = {path: ((folder / name).read_bytes(), kind) for path, (name, kind) in FILES.items()}

    async def __call__(self, scope: Mapping[str, Any], receive: AsgiReceive, send: AsgiSend) -> None:
        if scope["type"] != "http":
            return
        visit = Visit(scope, receive, send)
        try:
            refusal = await self._answer(visit)
        except ClientGone:
            return
        except CallerError as error:
            _log.error("gateway: page: the journal cannot be read: %s", error)
            refusal = UNREADABLE
        except Exception as error:  # noqa: BLE001 (one request's bug must not end the others; its text may hold a secret)
            _log.error("gateway: bug in the page [%s]: %s", visit.id, type(error).__name__)
            refusal = BUG
        if refusal is not None and not visit.has_started:
            await self._refuse(visit, refusal)

    async def _refuse(self, visit: Visit, refusal: DoorRefusal) -> None:
        path = visit.path[:200] if visit.path.isprintable() else "(a path that cannot be shown)"
        _log.warning("gateway: page: %d for %s %s [%s]", refusal.status, visit.method, path, visit.id)
        headers, body = doors.encode_refusal(refusal, family=USUAL)
        with contextlib.suppress(ClientGone):
            await visit.reply(refusal.status, (*headers, *SAFE), body)

    async def _answer(self, visit: Visit) -> Answered:
        if (refusal := self._refuse_sender(visit)) is not None:
            return refusal
        if visit.method in ("GET", "HEAD") and (file := self._files.get(visit.path)) is not None:
            body, kind = file
            await self._reply(visit, 200, b"" if visit.method == "HEAD" else body, kind=kind)
            return None
        if (refusal := _refuse_site(visit)) is not None:
            return refusal
        if (visit.method, visit.path) == ("POST", "/page/session"):
            return await self._sign_in(visit)
        return await self._answer_known(visit)

    def _refuse_sender(self, visit: Visit) -> Answered:
        """As for clients; a page may come from the address that its request names, and from no other."""
        hosts = doors.values_of(visit.headers, "host")
        if (found := doors.refuse_host(hosts, own=visit.own, listed=self._hosts())) is not None:
            return found
        origins = doors.values_of(visit.headers, "origin")
        own = [origin for origin in origins if origin.partition("://")[2].lower() == hosts[0].lower()]
        return doors.refuse_origin(origins, listed=own)

    # -- who it is ---------------------------------------------------------------------------------------------------

    async def _sign_in(self, visit: Visit) -> Answered:
        ip = visit.client[0] if visit.client else ""
        if (refusal := _refuse_guess(ip, self._wrong)) is not None:
            return refusal
        body = await self._body(visit)
        if isinstance(body, DoorRefusal):
            return body
        try:
            key = msgspec.json.decode(body, type=dict[str, str]).get("key", "")
        except (msgspec.DecodeError, UnicodeDecodeError):
            return DoorRefusal(reason="body", status=400, message='the body must be `{"key": ...}`', code="bad_body")
        if (refusal := _refuse_guess(ip, self._wrong)) is not None:  # others were tried while the body came
            return refusal
        self._wrong.note(ip)  # until it is known to be right, so that many at once are no more than these few
        opened = await self._beside(lambda: self._access.open(key[: doors.LONGEST_KEY], place=f"{ip}, page"))
        if opened is None:
            return DoorRefusal(
                reason="key", status=401, message="this is not a key that opens the page", code="wrong_key"
            )
        self._wrong.take_back(ip)
        user, token = opened
        _log.info("gateway: page: the key `%s` was exchanged for a session from %s", user.name or "of one use", ip)
        return await self._tell_session(visit, user, token, cookie=self._cookie(visit, token, seconds=int(SESSION_S)))

    async def _tell_session(self, visit: Visit, user: PageUser, token: str, *, cookie: str | None = None) -> None:
        can_change = user.client is not None and self._admin is not None
        told = {"name": user.name, "csrf": csrf_of(token), "can_change": can_change, "has_tail": self._tail is not None}
        extra = () if cookie is None else (("set-cookie", cookie),)
        await self._reply(visit, 200, msgspec.json.encode(told), extra=extra)

    def _cookie_name(self, visit: Visit) -> str:
        """Two gateways of one host have their own; under TLS a browser takes it from this host alone."""
        front = "__Host-" if self._is_secure(visit) else ""
        return f"{front}turnwise-page-{visit.own.port}"

    def _is_secure(self, visit: Visit) -> bool:
        """By TLS of our own, or before a proxy by what the browser itself says."""
        return self._is_tls or any(one.startswith("https:") for one in doors.values_of(visit.headers, "origin"))

    def _cookie(self, visit: Visit, token: str, *, seconds: int) -> str:
        secure = "; Secure" if self._is_secure(visit) else ""
        return f"{self._cookie_name(visit)}={token}; Path=/; Max-Age={seconds}; HttpOnly; SameSite=Strict{secure}"

    def _token_of(self, visit: Visit) -> str:
        """Of its cookie; empty if there is none, or several."""
        names = {f"turnwise-page-{visit.own.port}", f"__Host-turnwise-page-{visit.own.port}"}
        pairs = [
            pair.strip().partition("=")
            for value in doors.values_of(visit.headers, "cookie")
            for pair in value.split(";")
        ]
        found = [token for name, _, token in pairs if name in names]
        return found[0] if len(found) == 1 else ""

    async def _user_of(self, visit: Visit) -> tuple[PageUser, str] | DoorRefusal:
        """Who asks, and the token of a session, which is empty for a program with a key."""
        ip = visit.client[0] if visit.client else ""
        keys = doors.keys_in(visit.headers, ())
        if keys and visit.path.startswith("/admin/"):
            if (refusal := _refuse_guess(ip, self._wrong_of_programs)) is not None:
                return refusal
            if len(keys) == 1 and (user := self._access.user_of_key(keys[0])) is not None:
                return user, ""
            self._wrong_of_programs.note(ip)
        elif token := self._token_of(visit):
            user = await self._beside(lambda: self._access.user_of(token))
            if user is not None:
                return user, token
        return DoorRefusal(reason="key", status=401, message="sign in with an admin key first", code="no_session")

    # -- what is known of the session's user -------------------------------------------------------------------------

    async def _answer_known(self, visit: Visit) -> Answered:
        found = await self._user_of(visit)
        if isinstance(found, DoorRefusal):
            return found
        user, token = found
        if token and visit.method not in ("GET", "HEAD"):
            told = doors.values_of(visit.headers, CSRF_HEADER)
            if len(told) != 1 or not hmac.compare_digest(told[0].encode(), csrf_of(token).encode()):
                message = "a change needs the word of this session, which only its page knows"
                return DoorRefusal(reason="origin", status=403, message=message, code="csrf")
        match visit.method, visit.path:
            case "GET", "/page/session":
                await self._tell_session(visit, user, token)
            case "DELETE", "/page/session":
                await self._beside(lambda: self._access.end(token))
                ended = (("set-cookie", self._cookie(visit, "", seconds=0)),)
                await self._reply(visit, 200, b"{}", extra=ended)
            case "GET", "/page/tail" if self._tail is not None:
                return await self._follow(visit, token, tail=self._tail)
            case "GET", path if (view := self._views.get(path)) is not None:
                told = await self._beside(lambda: view(dict(_query(visit))))
                await self._reply(visit, 200, msgspec.json.encode(told))
            case _, path if path.startswith("/admin/") and self._admin is not None:
                return await self._administer(visit, user, admin=self._admin, by_page=bool(token))
            case _:
                return DoorRefusal(reason="path", status=404, message="there is no such path here", code="unknown_path")
        return None

    async def _administer(self, visit: Visit, user: PageUser, *, admin: AdminApi, by_page: bool) -> Answered:
        assert user.client is not None, "only keys open `/admin`"
        body = await self._body(visit)
        if isinstance(body, DoorRefusal):
            return body
        place = f"{visit.client[0] if visit.client else 'unknown'}{', page' if by_page else ''}"
        call = admin.call(visit.method, visit.path, query=_query(visit), body=body, client=user.client, place=place)
        found = await admin.answer(call)
        if isinstance(found, DoorRefusal):
            return found
        await self._reply(visit, *found)
        return None

    async def _follow(self, visit: Visit, token: str, *, tail: LiveTail) -> Answered:
        """Send each request that ends, until the watcher leaves or the session ends."""
        if tail.is_full:
            return DoorRefusal(reason="busy", status=503, message="too many watch already", retry_after_s=60)
        watching = asyncio.create_task(visit.watch())
        try:
            with tail.watched() as (recent, queue):
                await visit.start(200, (("content-type", "text/event-stream"), *SAFE))
                await visit.send(b": live\n\n" + b"".join(recent))
                look_s = self._monotonic() + RECHECK_S
                while not visit.left.is_set():
                    try:
                        async with asyncio.timeout(look_s - self._monotonic()):
                            piece = await queue.get()
                    except TimeoutError:
                        if await self._beside(lambda: self._access.user_of(token)) is None:
                            break
                        look_s, piece = self._monotonic() + RECHECK_S, b": live\n\n"
                    await visit.send(piece)
            await visit.finish()
        finally:
            watching.cancel()
        return None

    async def _beside(self, work: Callable[[], T]) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._threads, work)

    async def _body(self, visit: Visit) -> bytes | DoorRefusal:
        """Raises ClientGone."""
        if not visit.is_unread:
            return b""
        return doors.refuse_content(visit.headers) or await read_visit_body(visit, bounds=self._small)

    async def _reply(
        self,
        visit: Visit,
        status: int,
        body: bytes,
        *,
        kind: str = "application/json",
        extra: Sequence[tuple[str, str]] = (),
    ) -> None:
        await visit.reply(status, (("content-type", kind), ("content-length", str(len(body))), *SAFE, *extra), body)


def _refuse_guess(ip: str, wrong: WrongKeys) -> Answered:
    if (wait_s := wrong.wait_s(ip)) <= 0:
        return None
    return DoorRefusal(reason="key", status=429, message=MANY_WRONG, code="wrong_keys", retry_after_s=ceil(wait_s))


def _query(visit: Visit) -> list[tuple[str, str]]:
    try:
        return urllib.parse.parse_qsl(visit.raw_query.decode("ascii"), max_num_fields=16)
    except ValueError:
        return []


def _refuse_site(visit: Visit) -> Answered:
    """A browser says itself whether another page asks, also one of another port of this host."""
    sites = doors.values_of(visit.headers, "sec-fetch-site")
    if all(site in ("same-origin", "none") for site in sites):
        return None
    return DoorRefusal(reason="origin", status=403, message="another page asks for this", code="origin_refused")
