"""One request of a path that a route passes on: its answer as it came, and of lists the client's own objects alone."""

from collections.abc import Awaitable, Collection
from typing import Protocol

import msgspec

from turnwise.gateway.config import ChosenRoute
from turnwise.gateway.delivery import write_found
from turnwise.gateway.doors import ClientCall, HeaderFields, Outlet
from turnwise.gateway.passing import PassedBody, PassedCall, passed_call, reply_headers, upload_ids
from turnwise.gateway.stored_objects import StoredObjects, owner_of
from turnwise.gateway.upstreams import OpenUpstream
from turnwise.relay.client_request import RequestRefused
from turnwise.relay.stored_ids import (
    PAGING,
    USUAL_PAGING,
    ListPage,
    StoredId,
    StoredPlace,
    ids_made,
    ids_made_by,
    read_page,
    write_page,
)
from turnwise.vocab import Fault

MOST_PAGES = 50  # of others' objects before the first one of the client's own
PAGE = "100"
BACKWARDS = ("before", "before_id")


class AsksUpstreams(Protocol):
    """The whole answer and who gave it. None: the client was told already."""

    def __call__(self, up: PassedCall, /) -> Awaitable[tuple[bytes | Fault, OpenUpstream | None] | None]: ...


class Passing:
    """`run` it once. `at` are the upstreams of the route."""

    def __init__(
        self,
        call: ClientCall,
        read: PassedBody,
        *,
        ask: AsksUpstreams,
        stored: StoredObjects,
        at: Collection[OpenUpstream],
        chosen: ChosenRoute,
        place: StoredPlace | None,
    ) -> None:
        self._call, self._ask, self._stored, self._at = call, ask, stored, at
        self._owns = chosen.route.stored_is == "team"
        self._owner, self._place = owner_of(call), place
        self._path, self._body = read.renamed(call, model=chosen.model)

    async def run(self, outlet: Outlet) -> None:
        """Raises RequestRefused and ClientGone."""
        call, place = self._call, self._place
        if self._owns and place is not None and not place.id and call.method != "POST":
            await self._list(place, outlet)
            return
        up = passed_call(call, path=self._path, body=self._body, query=call.query)
        if (found := await self._ask(up)) is None:
            return
        told, opened = found
        if isinstance(told, Fault) or opened is None:
            await write_found(told, client=call.family, outlet=outlet)
            return
        if self._owns:
            await self._keep(up, place, told, opened=opened)
        await outlet.start(up.reply.status, reply_headers(up.reply, size=len(told), call=call, now=self._stored.now()))
        if told:
            await outlet.send(told)

    async def _keep(self, up: PassedCall, place: StoredPlace | None, told: bytes, *, opened: OpenUpstream) -> None:
        """Remember what the answer gives to the client, before the client has it."""
        made = upload_ids(up.reply)
        if place is not None:
            made |= ids_made(place, told, is_new=up.method == "POST" and not place.id)
            if up.method == "DELETE" and not place.beneath:
                await self._stored.forget(StoredId(place.collection.kind, place.id), opened=opened)
        if made:
            await self._stored.remember(made, owner=self._owner, opened=opened)

    # -- lists

    async def _list(self, place: StoredPlace, outlet: Outlet) -> None:
        """A page with objects of the client's own: as many of the upstream's pages are read as it takes to find some."""
        collection, call = place.collection, self._call
        if call.method != "GET" or not collection.items:
            raise RequestRefused(
                f"`{call.method} {call.path}` would be about all teams: name an object by its id", status=403
            )
        is_google = collection.id_field == "name"
        size, after = PAGING.get(next(iter(self._at)).endpoint.profile.family, USUAL_PAGING)
        query = [(name, value) for name, value in call.query if name != size or is_google]
        asked = dict(call.query).get(size, PAGE)
        wanted = max(1, int(asked[:5])) if asked.isascii() and asked.isdigit() else int(PAGE)
        query += [] if is_google else [(size, PAGE)]
        items: list[msgspec.Raw] = []
        ids: list[StoredId] = []
        page = None
        for _ in range(MOST_PAGES):
            if (page := await self._page(place, query, outlet, items=items, ids=ids)) is None:
                return
            is_enough = bool(items) if is_google else len(items) >= wanted
            if not page.after or is_enough or any(name in BACKWARDS for name, _ in query):
                break
            query = [*[pair for pair in query if pair[0] != after], (after, page.after)]
        else:
            if not items:
                raise RequestRefused("too many objects of others come first: name an object by its id", status=403)
        assert page is not None, "one page at least was read"
        most = len(items) if is_google else wanted
        more = bool(page.after) or len(items) > most
        body = write_page(collection, page, items[:most], ids[:most], more=more)
        await write_found(body, client=call.family, outlet=outlet)

    async def _page(
        self, place: StoredPlace, query: HeaderFields, outlet: Outlet, *, items: list[msgspec.Raw], ids: list[StoredId]
    ) -> ListPage | None:
        """One page of the upstream's; what of it is the client's is added to `items` and `ids`. None: the client was told."""
        call, collection = self._call, place.collection
        if (found := await self._ask(passed_call(call, path=self._path, body=b"", query=query))) is None:
            return None
        told, opened = found
        if isinstance(told, Fault) or opened is None:
            await write_found(told, client=call.family, outlet=outlet)
            return None
        page = read_page(collection, told)
        if page is None:
            raise RequestRefused("the upstream's list cannot be read", status=502)
        owned = await self._stored.owned(page.ids, owner=self._owner, at=self._at)
        made: set[StoredId] = set()
        for item, one in zip(page.items, page.ids, strict=True):
            if one in owned:
                items.append(item)
                ids.append(one)
                made |= ids_made_by(collection, item)
        if made:
            await self._stored.remember(made, owner=self._owner, opened=opened)
        return page
