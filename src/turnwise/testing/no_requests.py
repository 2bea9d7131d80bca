"""A switch that forbids turnwise's real requests in tests, and what counts as this machine."""

import contextlib
import ipaddress
import socket
from typing import Self
from urllib.parse import urlsplit

from turnwise.endpoints.transport import guarding
from turnwise.errors import RequestForbidden

_kept: list[contextlib.ExitStack] = []  # a guard holds until the program ends, unless somebody leaves its block


def forbid_requests() -> "ForbiddenRequests":
    """Forbid requests to models on other machines, from now on and in every thread of this process.

    Call it where your tests begin, in a `conftest.py` or `setUpModule`. A run that sends a request raises RequestForbidden
    before a name is looked up; so do its sub-agents. Requests to this machine go on, to `turnwise lab` for example. As a
    `with` block it holds until the end of the block. The plugin for pytest (`turnwise.testing.plugin`) forbids more.
    """
    return ForbiddenRequests()


class ForbiddenRequests:
    """What `forbid_requests` began. Leaving it as a block ends it."""

    def __init__(self) -> None:
        self._stack = contextlib.ExitStack()
        self._stack.enter_context(guarding(_refuse))
        _kept.append(self._stack)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        _kept.remove(self._stack)
        self._stack.close()


def _refuse(url: str) -> None:
    if not is_here(urlsplit(url).hostname or ""):
        raise RequestForbidden(
            f"a run asked for `{url.partition('?')[0]}`, and `turnwise.testing.forbid_requests` forbids real requests. Let the "
            "test play the model: `Agent(ScriptedModel([...]))`, or `with agent.override(model=ScriptedModel([...])):`"
        )


def is_here(host: str) -> bool:
    """Whether a name or an address is this machine."""
    name = host.lower().removesuffix(".")
    if name in ("", "localhost", socket.gethostname().lower()) or name.endswith(".localhost"):
        return True
    found = ip_of(name)
    if isinstance(found, ipaddress.IPv6Address) and found.ipv4_mapped is not None:
        found = found.ipv4_mapped
    return found is not None and (found.is_loopback or found.is_unspecified)


def ip_of(text: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    """The address that the text is; None if it is a name."""
    try:
        return ipaddress.ip_address(text.partition("%")[0])
    except ValueError:
        return None
