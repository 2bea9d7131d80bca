"""Which addresses a proxy stands before: NO_PROXY as curl reads it, its ports as Go. curl is the judge."""

import http.server
import os
import shutil
import subprocess
import threading
from collections.abc import Iterator

import pytest

from tables import each
from turnwise.endpoints.transport import goes_directly, naming_proxy, proxy_for
from turnwise.gateway.delivery import without_address
from turnwise.vocab import Fault, FaultKind
from waits import HANG_S

# NO_PROXY, the host of a request to port 80, and whether it goes directly: as curl 7.88 and later have it.
AS_CURL = [
    ("*", "api.example.com", True),
    ("example.com", "example.com", True),
    ("example.com", "api.example.com", True),
    (".example.com", "api.example.com", True),
    (".example.com", "example.com", True),
    ("example.com", "badexample.com", False),
    ("api.example.com", "example.com", False),
    ("EXAMPLE.com", "Api.Example.COM", True),
    ("example.com", "api.example.com.", True),
    ("example.com.", "api.example.com", True),
    ("other.example, example.com", "api.example.com", True),
    ("other.example example.com", "api.example.com", True),
    (",, ,", "example.com", False),
    ("10.0.0.0/8", "10.200.3.4", True),
    ("10.0.0.0/8", "11.0.0.1", False),
    ("192.168.1.77/16", "192.168.250.1", True),
    ("192.168.0.0/30", "192.168.0.4", False),
    ("10.1.2.3/32", "10.1.2.3", True),
    ("10.0.0.0/99", "10.0.0.0", False),
    ("10/8", "10.0.0.1", False),
    ("10.0.0.0/8", "10.example.com", False),
    ("10.1.2.3", "10.1.2.3", True),
    ("10.1.2.3", "110.1.2.3", False),
    (".2.3", "10.1.2.3", False),
    ("2.3", "10.1.2.3", False),
    ("::1", "[::1]", True),
    ("fd00::/8", "10.0.0.1", False),
]
# As Go's httpproxy: an entry with a port is for that port alone. curl 7.88 knows no ports, and no IPv6 networks.
AS_GO = [
    ("fd00::/8", "fd12:3456::1", 80, True),
    ("fd00::/8", "fe80::1", 80, False),
    ("example.com:8080", "api.example.com", 8080, True),
    ("example.com:8080", "api.example.com", 80, False),
    ("example.com:443", "example.com", 443, True),
    ("10.1.2.3:80", "10.1.2.3", 80, True),
    ("10.1.2.3:81", "10.1.2.3", 80, False),
    ("[::1]:80", "::1", 80, True),
    ("[::1]:81", "::1", 80, False),
    ("[::1]", "::1", 81, True),
    ("0.0.0.0/0", "10.1.2.3", 80, True),
    ("10.0.0.0/8", "::ffff:10.1.2.3", 80, True),
    ("[", "example.com", 80, False),
    ("[x", "::1", 80, False),
    ("example.com:x", "example.com", 80, False),
    (":80", "example.com", 80, False),
]


@each(("no_proxy", "host", "port", "is_direct"), AS_GO)
def test_an_entry_with_a_port_is_for_that_port(no_proxy: str, host: str, port: int, is_direct: bool) -> None:
    """Issue 40: ports were left aside, so `host:8080` took every port out."""
    assert goes_directly(host, port=port, no_proxy=no_proxy) is is_direct


def test_the_port_of_a_url_without_one_is_its_schemes() -> None:
    """And an address that is none has no proxy: whoever sends says what is wrong."""
    env = {"HTTPS_PROXY": "proxy.example:3128", "http_proxy": "http://proxy.example:3129", "NO_PROXY": "a.example:443"}
    urls = ("https://a.example/v1", "http://a.example/v1", "https://a.example:444/v1", "http://a.example:99999/v1")
    found = [proxy_for(url, env=env) for url in urls]
    assert found == [None, "http://proxy.example:3129", "http://proxy.example:3128", None]


@pytest.fixture(scope="module")
def listening() -> Iterator[tuple[int, list[str]]]:
    """A server that is proxy and provider in one: the line of a request tells which of the two was asked."""
    lines: list[str] = []

    class Both(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            lines.append(self.requestline)
            self.send_response(204)
            self.end_headers()

        do_CONNECT = do_GET  # noqa: N815 (the library's own)

        def log_message(self, format: str, *args: object) -> None: ...

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Both)
    serving = threading.Thread(target=server.serve_forever, daemon=True)
    serving.start()
    yield server.server_address[1], lines
    server.shutdown()
    serving.join(HANG_S)
    server.server_close()


def test_names_and_networks_are_read_as_curl_reads_them(listening: tuple[int, list[str]]) -> None:
    """Issue 40: networks were no entries, and the end of an address was taken for a domain. Each row is asked of curl, too."""
    ours = [goes_directly(host.strip("[]"), port=80, no_proxy=no_proxy) for no_proxy, host, _ in AS_CURL]
    assert ours == [is_direct for _, _, is_direct in AS_CURL]
    curl = shutil.which("curl")
    if curl is None:
        pytest.skip("the table holds, and there is no curl to ask")
    port, lines = listening
    words = [
        "--proxy",
        f"http://127.0.0.1:{port}",
        "--connect-to",
        f"::127.0.0.1:{port}",
        "--silent",
        "--max-time",
        "9",
    ]
    theirs: list[bool] = []
    for no_proxy, host, _ in AS_CURL:
        lines.clear()
        env = {"PATH": os.environ["PATH"]}
        line = [curl, "-q", *words, "--noproxy", no_proxy, f"http://{host}/asked"]
        subprocess.run(line, env=env, check=False, timeout=HANG_S, capture_output=True)
        assert len(lines) >= 1, (no_proxy, host)
        theirs.append(lines[0].startswith("GET /asked"))
    assert theirs == ours


def test_a_failure_names_the_proxy_and_never_its_password() -> None:
    """Issue 40: 'HTTP 502' of a proxy looked like the provider's. A client of the gateway is not told where its proxy is."""

    class Sending:
        proxy = "proxy.example:3128"

    failed = Fault(kind=FaultKind.SERVER, message="HTTP 502", status=502)
    named = naming_proxy(failed, Sending(), url="http://provider.example/v1")
    assert named.message == "HTTP 502 (through the proxy `proxy.example:3128`)"
    assert naming_proxy(failed, Sending(), url="https://provider.example/v1") == failed, (
        "the provider's own, through TLS"
    )
    assert naming_proxy(failed, object(), url="http://provider.example/v1") == failed
    told = without_address(named, base_url="http://provider.example/v1")
    assert (told.fault, told.log) == (failed, "(through the proxy `proxy.example:3128`)")
