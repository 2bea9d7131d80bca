"""A pytest plugin that forbids real requests: `pytest -p turnwise.testing.plugin`. It never loads by itself.

While it is on, every request of turnwise's own transport fails, also one to this machine: a model server on loopback is a real
model. Every connection, datagram and name lookup of this process that leaves the machine fails too, from any library. The error
is RequestForbidden; a test whose program caught it fails all the same. `@pytest.mark.real_requests` exempts one test.

Not seen: other processes that a test starts, and libraries that open sockets without Python's own (uvloop, extensions in C).
"""

import contextlib
import socket
import sys
from collections.abc import Generator
from typing import Any, cast

import pytest

from turnwise.endpoints.transport import guarding
from turnwise.errors import RequestForbidden
from turnwise.testing.no_requests import ip_of, is_here

MARK = "real_requests"
_watches: list["NetworkWatch"] = []  # of this process; pytest may run in pytest
_hooked: list[bool] = []  # an audit hook cannot be taken away again, so there is one


class NetworkWatch:
    """Knows which test runs and what it was refused. Hooks of pytest, as a plugin of one session."""

    def __init__(self) -> None:
        self._who = "a module that pytest loads, outside of any test,"
        self._is_exempt = False
        self._refused: list[RequestForbidden] = []

    def refuse(self, address: str) -> None:
        """Raise RequestForbidden, unless the test that runs is exempt."""
        __tracebackhide__ = True
        if self._is_exempt:
            return
        error = RequestForbidden(
            f"{self._who} asked for `{address}`, and real requests are forbidden while tests run. Answer with "
            f"`turnwise.testing.ScriptedModel`, or record the run once with `turnwise.testing.Recording`. If the test is meant "
            f"to ask, mark it: `@pytest.mark.{MARK}`"
        )
        self._refused.append(error)
        raise error

    def refuse_request(self, url: str) -> None:
        """For `request_guard`: the URL without its query, which may hold a key."""
        __tracebackhide__ = True
        self.refuse(url.partition("?")[0])

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Generator[None, object, object]:
        self._who, self._is_exempt = f"`{item.nodeid}`", item.get_closest_marker(MARK) is not None
        try:
            return (yield)
        finally:
            self._who, self._is_exempt = f"something that `{item.nodeid}` left running", False

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_setup(self) -> Generator[None, object, object]:
        return (yield from self._told())

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_call(self) -> Generator[None, object, object]:
        return (yield from self._told())

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_teardown(self) -> Generator[None, object, object]:
        return (yield from self._told())

    def _told(self) -> Generator[None, object, object]:
        """The phase fails if something was refused, also where the program caught that."""
        try:
            result = yield
        except BaseException as error:
            refused, self._refused = self._refused, []
            if refused and not isinstance(error, RequestForbidden):
                error.add_note(str(refused[0]))  # it may well be why
            raise
        refused, self._refused = self._refused, []
        if refused:
            raise refused[0]
        return result


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", f"{MARK}: this test may make real requests (turnwise.testing.plugin)")
    watch = NetworkWatch()
    config.pluginmanager.register(watch, "turnwise-network-watch")
    stack = contextlib.ExitStack()
    stack.enter_context(guarding(watch.refuse_request))
    config.add_cleanup(stack.close)
    _watches.append(watch)
    config.add_cleanup(lambda: _watches.remove(watch))
    if not _hooked:
        _hooked.append(True)
        sys.addaudithook(_look)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        mark = item.get_closest_marker(MARK)
        if mark is not None and (mark.args or mark.kwargs):
            raise pytest.UsageError(f"{item.nodeid}: `@pytest.mark.{MARK}` takes no arguments: it allows every address")


def _look(event: str, args: tuple[object, ...]) -> None:
    """Python's own report of what is about to happen (PEP 578); what is raised here stops it."""
    if not _watches or not event.startswith("socket."):
        return
    if event in ("socket.connect", "socket.sendto", "socket.sendmsg"):
        address = _address_of(args[0], args[1])
    elif event in ("socket.getaddrinfo", "socket.gethostbyname"):
        address = _name_of(args[0])
    elif event in ("socket.gethostbyaddr", "socket.getnameinfo"):  # a server is asked whose address it is
        address = _looked_up(args[0])
    else:
        return
    if address:
        for watch in _watches:
            watch.refuse(address)


def _address_of(sock: object, address: object) -> str:
    """Host and port of another machine; empty for this one, and for what is no internet address."""
    family = getattr(sock, "family", None)
    if family not in (socket.AF_INET, socket.AF_INET6) or not isinstance(address, tuple):
        return ""
    host, port, *_ = map(str, cast("tuple[Any, ...]", address))
    return "" if is_here(host) else f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def _name_of(host: object) -> str:
    """A name that another machine would be asked about; empty for an address, and for a name of this machine."""
    name = host.decode(errors="replace") if isinstance(host, bytes) else host
    if not isinstance(name, str) or is_here(name) or ip_of(name) is not None:
        return ""
    return name


def _looked_up(address: object) -> str:
    """An address or a name that another machine would be asked about; empty for those of this machine. `getnameinfo` has host and
    port. With `NI_NUMERICHOST` it asks nobody, but Python does not tell the flags."""
    host: object = cast("tuple[object, ...]", address)[0] if isinstance(address, tuple) else address
    name = host.decode(errors="replace") if isinstance(host, bytes) else host
    return name if isinstance(name, str) and not is_here(name) else ""
