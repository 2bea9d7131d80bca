"""Who is let in, and what of a request goes further: pure functions over its headers and its query.

The tables say what may pass. Everything else stays outside, so a field that turns out to carry a key tomorrow does not leak.
"""

import ipaddress
import re
import secrets
from collections.abc import Collection, Iterable, Sequence

import msgspec

from turnwise.endpoints.key_hiding import HEADERS_UP, QUERY_UP
from turnwise.gateway.passed_calls import DoorRefusal

HeaderFields = Sequence[tuple[str, str]]  # names in lower case

KEY_HEADERS = ("x-api-key", "api-key", "x-goog-api-key")  # and `authorization: Bearer ...`
KEY_QUERY = "key"

EXPOSED = "turnwise-repairs, turnwise-not-carried, turnwise-estimated, x-request-id, retry-after"
PREFLIGHT_S = "600"  # Chrome keeps no answer longer than 2 hours
LONGEST_KEY = 4096  # characters; Google's access tokens have up to 2,048

_LOOPBACK_NAMES = frozenset({"localhost", "127.0.0.1", "::1"})
_HOST = re.compile(r"(?:\[(?P<six>[0-9a-f:.]+)\]|(?P<name>[a-z0-9._-]+))(?::(?P<port>\d{1,5}))?", re.ASCII)
_ID = re.compile(r"[A-Za-z0-9._-]{1,64}", re.ASCII)
_ORIGIN = re.compile(r"[a-z][a-z0-9+.-]*://(?:\[[0-9a-f:.]+\]|[a-z0-9._-]+)(?::\d{1,5})?", re.ASCII)
_TOKENS = re.compile(r"[A-Za-z0-9_.-]+(?:\s*,\s*[A-Za-z0-9_.-]+)*", re.ASCII)


class OwnAddress(msgspec.Struct, frozen=True):
    """The address of this machine at which the connection arrived."""

    ip: str
    port: int


def values_of(headers: HeaderFields, name: str) -> list[str]:
    return [value for key, value in headers if key == name]


def is_host(text: str) -> bool:
    """Whether `hosts` of the configuration may have it: a name or an address, with a port or for any."""
    return _HOST.fullmatch(text.lower()) is not None


def is_origin(text: str) -> bool:
    """Whether `origins` of the configuration may have it. Neither `*` nor `null` is one: any web page can be that."""
    return _ORIGIN.fullmatch(text) is not None


def is_loopback(ip: str) -> bool:
    try:
        return _plain(ip).is_loopback
    except ValueError:
        return False


def _plain(ip: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address:
    """An IPv4 address that arrives at a socket of both versions stands in an IPv6 address."""
    address = ipaddress.ip_address(ip)
    mapped = address.ipv4_mapped if isinstance(address, ipaddress.IPv6Address) else None
    return mapped or address


def refuse_host(given: Sequence[str], *, own: OwnAddress, listed: Collection[str]) -> DoorRefusal | None:
    """A page whose name leads to this machine (DNS rebinding) sends its own name as `Host`; that one is refused."""
    if len(given) != 1:
        return DoorRefusal(
            reason="host",
            status=400,
            message=f"a request has one `Host` header; this one has {len(given)}",
            code="bad_host",
        )
    found = _HOST.fullmatch(given[0].lower())
    if found is not None:
        name, port = found["six"] or found["name"], found["port"]
        shown = f"[{name}]" if found["six"] else name
        if shown in listed or f"{shown}:{port}" in listed:
            return None
        if _is_own(name, own=own) and int(port or 80) == own.port:
            return None
    return DoorRefusal(
        reason="host",
        status=403,
        message="the `Host` of this request is not an address of this gateway: list its name in `hosts` of gateway.toml",
        code="host_refused",
    )


def _is_own(name: str, *, own: OwnAddress) -> bool:
    if name in _LOOPBACK_NAMES:
        return is_loopback(own.ip)
    try:
        return _plain(name) == _plain(own.ip)
    except ValueError:
        return False


def refuse_origin(given: Sequence[str], *, listed: Collection[str]) -> DoorRefusal | None:
    """A browser sends `Origin` with whatever a page asks for in another's name; programs send none."""
    if not given or (len(given) == 1 and given[0] in listed):
        return None
    return DoorRefusal(
        reason="origin",
        status=403,
        message="this gateway does not serve pages of this `Origin`: list it in `origins` of gateway.toml",
        code="origin_refused",
    )


def refuse_content(headers: HeaderFields) -> DoorRefusal | None:
    """JSON alone, and not compressed. A page of any site may send other types without asking the browser's leave, and a
    compressed body may be a thousand times as long as it says."""
    types = values_of(headers, "content-type")
    kind, _, parameter = (types[0] if len(types) == 1 else "").lower().partition(";")
    charset = parameter.strip().replace('"', "")
    if kind.strip() != "application/json" or charset not in ("", "charset=utf-8", "charset=utf8"):
        return DoorRefusal(
            reason="content",
            status=415,
            message="the `Content-Type` must be `application/json`, in UTF-8",
            code="unsupported_media_type",
        )
    if any(value.strip().lower() not in ("", "identity") for value in values_of(headers, "content-encoding")):
        return DoorRefusal(
            reason="content",
            status=415,
            message="the body must not have a `Content-Encoding`",
            code="unsupported_content_encoding",
        )
    return None


def refuse_length(headers: HeaderFields, *, most: int) -> DoorRefusal | None:
    """A body that says itself that it is too long is not read."""
    return next((too_long(most) for value in values_of(headers, "content-length") if int(value) > most), None)


def too_long(most: int) -> DoorRefusal:
    return DoorRefusal(
        reason="length",
        status=413,
        message=f"the body has more than {most:,} bytes, the bound of this gateway",
        code="request_too_large",
    )


def keys_in(headers: HeaderFields, query: HeaderFields) -> tuple[str, ...]:
    """Every key that the client shows, one for each place that a client of the four families uses. A place that is there twice
    holds none: no client sends that, and one request would be as many guesses."""
    bearers = [value.strip().partition(" ") for value in values_of(headers, "authorization")]
    places = (
        *[[value.strip() for value in values_of(headers, name)] for name in KEY_HEADERS],
        [key.strip() for scheme, _, key in bearers if scheme.lower() == "bearer"],
        [value.strip() for value in values_of(query, KEY_QUERY)],
    )
    shown = dict.fromkeys([place[0] for place in places if len(place) == 1])
    return tuple([key for key in shown if 0 < len(key) <= LONGEST_KEY])


def listed_headers(headers: HeaderFields) -> tuple[tuple[str, str], ...]:
    return tuple([(key, value) for key, value in headers if key in HEADERS_UP])


def listed_query(query: HeaderFields) -> tuple[tuple[str, str], ...]:
    return tuple([(key, value) for key, value in query if key in QUERY_UP])


def harmless_id(given: Sequence[str]) -> str | None:
    """The client's request id, if it can stand in a header, a log and a table."""
    return given[0] if len(given) == 1 and _ID.fullmatch(given[0]) else None


def request_id(headers: HeaderFields) -> str:
    """The client's own, or a new one."""
    return harmless_id(values_of(headers, "x-request-id")) or f"tw-{secrets.token_hex(12)}"


def cors_headers(origin: str | None) -> tuple[tuple[str, str], ...]:
    """On each answer for a listed origin."""
    if origin is None:
        return ()
    return (("access-control-allow-origin", origin), ("access-control-expose-headers", EXPOSED), ("vary", "origin"))


def preflight_headers(headers: HeaderFields) -> tuple[tuple[str, str], ...]:
    """What a browser is told that asks before a page of a listed origin may send. The clients' SDKs send many headers of their
    own (`x-stainless-*`): all that are asked for may come, and stay here."""
    asked = next((value for value in values_of(headers, "access-control-request-headers")), "")
    names = asked if _TOKENS.fullmatch(asked) else "content-type"
    found = [
        ("access-control-allow-methods", "GET, POST"),
        ("access-control-allow-headers", names),
        ("access-control-max-age", PREFLIGHT_S),
    ]
    if "true" in values_of(headers, "access-control-request-private-network"):
        found.append(("access-control-allow-private-network", "true"))
    return tuple(found)


def has_body(headers: Iterable[tuple[str, str]]) -> bool:
    """Whether a body follows the headers (RFC 9112 section 6.3)."""
    return any(key == "transfer-encoding" or (key == "content-length" and value != "0") for key, value in headers)
