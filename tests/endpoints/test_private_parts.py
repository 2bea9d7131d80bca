"""The private parts of aiohttp and uvicorn that turnwise uses: each is there, behaves as it did, and stands behind one module.

If a test here fails after an update, look at the named module first: other tests may then fail with less plain words.
"""

import ast
import asyncio
import inspect
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path

from aiohttp import TCPConnector
from aiohttp.client_proto import ResponseHandler
from aiohttp.streams import StreamReader
from uvicorn.config import Config
from uvicorn.protocols.http import httptools_impl
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle
from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol
from uvicorn.server import Server, ServerState

from turnwise.endpoints.bounded_connector import BoundedConnector, BoundedHandler, held_bytes

SOURCE = Path(__file__).resolve().parents[2] / "src" / "turnwise"
BEHIND = {"aiohttp": "endpoints/bounded_connector.py", "uvicorn": "gateway/protocol.py"}
# What is not documented, though its name has no `_`.
INNER = (
    "aiohttp.client_proto",
    "aiohttp.connector",
    "aiohttp.client_reqrep",
    "aiohttp.streams",
    "aiohttp.http",
    "uvicorn.protocols",
)
# A method that is overridden or called, and the parameters that it takes.
METHODS: tuple[tuple[str, Callable[..., object], str], ...] = (
    ("aiohttp", TCPConnector._release, "self key protocol should_close"),  # pyright: ignore[reportPrivateUsage]
    ("aiohttp", TCPConnector.connect, "self req traces timeout"),
    ("aiohttp", StreamReader._read_nowait, "self n"),  # pyright: ignore[reportPrivateUsage]
    ("aiohttp", StreamReader.read_nowait, "self n"),
    ("aiohttp", ResponseHandler.__init__, "self loop"),
    ("aiohttp", ResponseHandler.data_received, "self data"),
    ("aiohttp", ResponseHandler.feed_data, "self data size"),
    ("aiohttp", ResponseHandler.resume_reading, "self resume_parser"),
    ("aiohttp", ResponseHandler.set_exception, "self exc exc_cause"),
    ("aiohttp", ResponseHandler.force_close, "self"),
    ("uvicorn", HttpToolsProtocol.__init__, "self config server_state app_state _loop"),
    ("uvicorn", HttpToolsProtocol.on_message_begin, "self"),
    ("uvicorn", HttpToolsProtocol.on_header, "self name value"),
    ("uvicorn", HttpToolsProtocol.on_headers_complete, "self"),
    ("uvicorn", HttpToolsProtocol.on_body, "self body"),
    ("uvicorn", HttpToolsProtocol.on_message_complete, "self"),
    ("uvicorn", HttpToolsProtocol.send_400_response, "self msg"),
    ("uvicorn", HttpToolsProtocol._should_upgrade, "self"),  # pyright: ignore[reportPrivateUsage]
    ("uvicorn", HttpToolsProtocol.handle_websocket_upgrade, "self"),
    ("uvicorn", WebSocketsSansIOProtocol.__init__, "self config server_state app_state _loop"),
    ("uvicorn", WebSocketsSansIOProtocol.data_received, "self data"),
    ("uvicorn", WebSocketsSansIOProtocol.handle_ping, "self"),
    ("uvicorn", WebSocketsSansIOProtocol.handle_cont, "self event"),
    ("uvicorn", WebSocketsSansIOProtocol.handle_parser_exception, "self"),
    ("uvicorn", WebSocketsSansIOProtocol.send_keepalive_ping, "self"),
    ("uvicorn", WebSocketsSansIOProtocol.shutdown, "self"),
    ("uvicorn", Server.startup, "self sockets"),
)
FIELDS = {
    HttpToolsProtocol: "scope cycle parser pipeline flow transport loop connections url headers".split(),
    WebSocketsSansIOProtocol: (
        "conn frames queue writable transport loop handshake_initiated handshake_complete close_sent close_timer".split()
    ),
    RequestResponseCycle: "response_complete response_started disconnected message_event".split(),
}


def moved(library: str, part: str) -> str:
    return f"{library} {version(library)} has moved `{part}`, which {BEHIND[library]} uses: see what took its place"


def test_methods_take_what_they_are_given() -> None:
    """An update that renames one, or a parameter, fails here with its name."""
    found = [
        moved(library, f"{method.__qualname__}({parameters})")
        for library, method, parameters in METHODS
        if " ".join(inspect.signature(method).parameters) != parameters
    ]
    assert found == []


async def test_a_connection_of_uvicorn_has_the_fields() -> None:
    """Made as uvicorn makes it for each connection, and the status lines that an error is written with."""
    made = HttpToolsProtocol(Config(app=lambda: None), ServerState(), {})  # pyright: ignore[reportArgumentType]
    names = FIELDS[HttpToolsProtocol]
    fields = inspect.getsource(HttpToolsProtocol)
    found = [moved("uvicorn", name) for name in names if not hasattr(made, name) and f"self.{name} = " not in fields]
    cycle = inspect.getsource(RequestResponseCycle.__init__)
    socket = inspect.getsource(WebSocketsSansIOProtocol.__init__)
    found += [moved("uvicorn", name) for name in FIELDS[WebSocketsSansIOProtocol] if f"self.{name}" not in socket]
    found += [moved("uvicorn", name) for name in FIELDS[RequestResponseCycle] if f"self.{name} = " not in cycle]
    assert found == []
    assert httptools_impl.STATUS_LINE[503] == b"HTTP/1.1 503 Service Unavailable\r\n", moved("uvicorn", "STATUS_LINE")


async def test_a_connection_of_aiohttp_is_made_by_the_factory() -> None:
    """`_factory` makes the protocol of each connection, and `_reading_paused` says whether its parser waits."""
    connector = BoundedConnector(keepalive_s=1)
    plain = TCPConnector()
    try:
        assert vars(plain)["_factory"].func is ResponseHandler, moved("aiohttp", "TCPConnector._factory")
        assert isinstance(vars(connector)["_factory"](), BoundedHandler)
        made = inspect.getsource(TCPConnector)
        assert "self._factory" in made, moved("aiohttp", "TCPConnector._factory")
        handler = BoundedHandler(asyncio.get_running_loop())
        assert handler._reading_paused is False, moved("aiohttp", "ResponseHandler._reading_paused")  # pyright: ignore[reportPrivateUsage]
    finally:
        await connector.close()
        await plain.close()


async def test_a_body_that_failed_still_holds_what_came() -> None:
    """Without it the last words before a fault would be lost."""
    handler = ResponseHandler(asyncio.get_running_loop())
    body = StreamReader(handler, 1024, loop=asyncio.get_running_loop())
    body.feed_data(b"the last words")
    body.set_exception(ConnectionResetError())
    assert held_bytes(body) == b"the last words", moved("aiohttp", "StreamReader._read_nowait")


def test_private_parts_stand_behind_one_module_each() -> None:
    """Any other module that imports from aiohttp's or uvicorn's inside, or looks at their `_fields`, is named."""
    found: list[str] = []
    for path in sorted(SOURCE.rglob("*.py")):
        place = path.relative_to(SOURCE).as_posix()
        text = path.read_text(encoding="utf-8")
        if place in BEHIND.values() or not ("aiohttp" in text or "uvicorn" in text):
            continue
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.ImportFrom) and (node.module or "").startswith(INNER):
                found.append(f"{place}:{node.lineno}: from {node.module}")
            own = isinstance(node, ast.Attribute) and ast.unparse(node.value) in ("self", "cls")
            if (
                isinstance(node, ast.Attribute)
                and node.attr.startswith("_")
                and not node.attr.startswith("__")
                and not own
            ):
                found.append(f"{place}:{node.lineno}: {ast.unparse(node)}")
    assert found == []
