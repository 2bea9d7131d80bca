"""Which route serves a request, and which can never serve any."""

import fnmatch
from collections.abc import Iterable, Sequence
from typing import Protocol

from turnwise.errors import CallerError
from turnwise.gateway.keys import ClientKey


class Routed(Protocol):
    """What of a route says which requests are its own."""

    @property
    def models(self) -> tuple[str, ...]: ...

    @property
    def aliases(self) -> dict[str, str]: ...

    @property
    def passes(self) -> tuple[str, ...]: ...

    @property
    def one_client(self) -> bool | str: ...


def why_unreachable(routes: Sequence[Routed]) -> str:
    """Why a route of these serves no request, with its number; empty if each can serve some."""
    for place, route in enumerate(routes):
        names = (*route.models, *route.aliases)
        if route.passes:
            continue  # a body without a model goes to the first route that lists its path
        if not names:
            return f"`route` {place + 1} serves no model: give it `models` or `aliases`"
        before = [earlier for earlier in routes[:place] if _serves_as_many(earlier, route)]
        if all(_is_taken(name, before) for name in names):
            return f"`route` {place + 1} is never reached: routes before it serve all of its models; move it up"
    return ""


def _serves_as_many(earlier: Routed, later: Routed) -> bool:
    """Whether the earlier route is open to every client of the later one."""
    return not isinstance(earlier.one_client, str) or earlier.one_client == later.one_client


def _is_taken(name: str, before: Iterable[Routed]) -> bool:
    """Whether routes before serve the name, or every name that the pattern fits. A pattern with `?` or `[` is not compared
    with other patterns."""
    is_pattern = bool(set(name) & set("*?["))
    for route in before:
        if name in route.models or (name in route.aliases and not is_pattern):
            return True
        patterns = [one for one in route.models if not (is_pattern and set(one) & set("?["))]
        if any(fnmatch.fnmatchcase(name, pattern) for pattern in patterns):
            return True
    return False


SHARED = (
    "its route is for one client (`one_client = true`), and the gateway has keys of several: name the client's key there, "
    '`one_client = "NAME"`'
)
"""Why a request is refused after a second key was added."""


def check_clients(routes: Iterable[Routed], *, keys: Iterable[ClientKey] | None) -> None:
    """Raises CallerError where a route for one client is open to several, or to none. What is stored under the gateway's key at
    the provider would be open to each of them."""
    names = [key.name for key in keys or ()]
    for place, route in enumerate(routes):
        if route.one_client is True and len(names) > 1:
            raise CallerError(
                f"`route` {place + 1} has `one_client = true`, and there are keys of {len(names)} clients: name one of them, "
                f'`one_client = "{names[0]}"`'
            )
        if isinstance(route.one_client, str) and route.one_client not in names:
            raise CallerError(
                f"`route` {place + 1} is for the client `{route.one_client}`, and there is no such key: "
                f"`turnwise gateway keys add {route.one_client}`, or name one that `turnwise gateway keys list` shows"
            )
