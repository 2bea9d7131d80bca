"""Which proxy stands before an address, by the usual variables.

Sources: curl(1), "ENVIRONMENT" and `--noproxy` (names, networks); the documentation of Go's golang.org/x/net/http/httpproxy,
`Config.NoProxy` (ports).
"""

import ipaddress
import re
from collections.abc import Mapping
from urllib.parse import urlsplit

import msgspec

from turnwise.vocab import Fault

_SEPARATOR = re.compile(r"[,\s]+")
_ENTRY = re.compile(r"(?:\[(?P<six>[^\]]*)\]|(?P<name>[^:]*))(?::(?P<port>.*))?")
_PORTS = {"http": 80, "https": 443}

_Address = ipaddress.IPv4Address | ipaddress.IPv6Address


def proxy_for(url: str, *, env: Mapping[str, str]) -> str | None:
    """The URL of the proxy; None if the address is reached directly."""
    parts = urlsplit(url)
    proxy = _variable(env, f"{parts.scheme}_proxy") or _variable(env, "all_proxy")
    try:
        port = parts.port or _PORTS.get(parts.scheme, 0)
    except ValueError:
        return None  # no request can be sent to such an address
    if not proxy or goes_directly(parts.hostname or "", port=port, no_proxy=_variable(env, "no_proxy")):
        return None
    return proxy if "://" in proxy else f"http://{proxy}"


def shown_proxy(proxy: str) -> str:
    """Its host and port, without a user and a password."""
    return urlsplit(proxy).netloc.rpartition("@")[2]


def naming_proxy(fault: Fault, sending: object, *, url: str) -> Fault:
    """The fault of a request to `url`, with the proxy on its way (see `Transport`). A status that comes through TLS is the
    server's own."""
    proxy: object = getattr(sending, "proxy", None)
    if not isinstance(proxy, str) or (fault.status is not None and url.startswith("https:")):
        return fault
    return msgspec.structs.replace(fault, message=f"{fault.message} (through the proxy `{proxy}`)".lstrip())


def goes_directly(host: str, *, port: int, no_proxy: str) -> bool:
    """Whether NO_PROXY has the host: by `*`, by its name or that of a domain above it, with a leading dot or without, or by its
    address or a network (`10.0.0.0/8`). An entry with a port (`host:8080`) is for that port alone."""
    host = host.lower().rstrip(".")
    address = _address(host)
    entries = _SEPARATOR.split(no_proxy.lower())
    return any(_has(entry, host=host, address=address, port=port) for entry in entries if entry)


def _has(entry: str, *, host: str, address: _Address | None, port: int) -> bool:
    if entry == "*":
        return True
    name, own_port = entry, ""
    if entry.count(":") == 1 or entry.startswith("["):  # else an IPv6 address, or no port
        if (found := _ENTRY.fullmatch(entry)) is None:
            return False
        name, own_port = found["six"] or found["name"] or "", found["port"] or ""
    if own_port and own_port != str(port):
        return False
    if address is not None:
        try:
            return address in ipaddress.ip_network(name, strict=False)
        except ValueError:
            return False  # the end of an address is no domain
    name = name.removeprefix("*").strip(".")
    return bool(name) and (host == name or host.endswith(f".{name}"))


def _address(host: str) -> _Address | None:
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return None
    mapped = address.ipv4_mapped if isinstance(address, ipaddress.IPv6Address) else None
    return mapped or address


def _variable(env: Mapping[str, str], name: str) -> str:
    """The lower-case name wins, as in curl."""
    return env.get(name) or env.get(name.upper()) or ""
