"""Who opens a connection, and whose the address is."""

import ast
from pathlib import Path

SOURCE = Path(__file__).resolve().parents[1] / "src" / "turnwise"
OPENERS = frozenset(
    """AsyncClient AsyncHTTPTransport HTTPTransport ClientSession TCPConnector open_connection open_unix_connection
    create_connection create_datagram_endpoint urlopen urlretrieve HTTPConnection HTTPSConnection PoolManager sock_connect
    ws_connect connect_ex getaddrinfo gethostbyname""".split()
)
# Each place that opens one or looks up a name, and whose address it is. Where somebody else names it (a server, a model, a
# client, an answer), `base/outgoing.py` judges it.
WHOSE = {
    "base/outgoing.py": "judges them",
    "endpoints/aiohttp_transport.py": "the user's endpoint and proxy; a redirect is not followed",
    "gateway/serve.py": "its own, to listen at",
    "lab/demo.py": "its own server's",
    "tools/mcp/logins.py": "named by a server's documents: judged, and connected to as it was resolved",
    "tools/mcp/transports.py": "the server's, from an entry that the user wrote or agreed to; no redirect leaves its origin",
}


def test_every_place_that_opens_a_connection_says_whose_the_address_is() -> None:
    """A new one needs a line here. What others name goes through the one function that judges."""
    found: dict[str, set[str]] = {}
    for path in SOURCE.rglob("*.py"):
        place = path.relative_to(SOURCE).as_posix()
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Call):
                name = getattr(node.func, "attr", getattr(node.func, "id", ""))
                if name in OPENERS:
                    found.setdefault(place, set()).add(name)
    assert found.keys() == WHOSE.keys(), found


def test_what_a_servers_documents_name_goes_through_the_judge() -> None:
    """No client of a login is made without its transport."""
    text = (SOURCE / "tools" / "mcp" / "logins.py").read_text(encoding="utf-8")
    assert text.count("AsyncClient(transport=_JudgedTransport(") == text.count("AsyncClient(") == 1
    assert text.count("judged_addresses(") == 2  # of what is fetched, and of what the browser opens
