"""Which addresses turnwise connects to when somebody else named them: a server's metadata, an answer, a file of a project.

Such an address could lead to what only this machine or its network reaches: a service on loopback, a router, the metadata of a
cloud with its keys. The name is resolved once, and the connection goes to what was judged: a second look-up could have another
answer (DNS rebinding).
"""

import asyncio
import ipaddress
import re
import socket
from urllib.parse import urlsplit

_Address = ipaddress.IPv4Address | ipaddress.IPv6Address
# What parsers of the system and of browsers read as an IPv4 address in another spelling: `2130706433`, `0177.1`, `0x7f.1`.
_ENDS_IN_NUMBER = re.compile(r"(?:^|\.)(?:[0-9]+|0[xX][0-9a-fA-F]*)\.?$")
_NAT64 = ipaddress.IPv6Network("64:ff9b::/96")  # how a network with IPv6 alone reaches IPv4 (RFC 6052)
# Beside what `ipaddress` knows, which Python 3.11 knows less of. Of IPv6: what carries an IPv4 address for a gateway on the way
# (6to4, local NAT64, IPv4-compatible, Teredo), old site-local addresses, examples, segments (RFC 9602). Of IPv4: protocols, the
# relay of 6to4, and the inside of Azure, whose number is a public one.
_REFUSED = tuple(
    map(
        ipaddress.ip_network,
        """2002::/16 64:ff9b:1::/48 ::/96 2001::/32 fec0::/10 3fff::/20 5f00::/16
        192.0.0.0/24 192.88.99.0/24 168.63.129.16/32""".split(),
    )
)


class RefusedAddress(Exception):
    """turnwise does not connect there; the text says why, in words that follow the address."""


def is_public(address: _Address) -> bool:
    """Whether everybody on the internet reaches the same machine there. An address within another one is judged itself."""
    if isinstance(address, ipaddress.IPv6Address):
        if (mapped := address.ipv4_mapped) is not None:
            return is_public(mapped)
        if address in _NAT64:
            return is_public(ipaddress.IPv4Address(int(address) & 0xFFFF_FFFF))
        if address.scope_id is not None:
            return False
    if any(address in network for network in _REFUSED):
        return False
    return address.is_global and not (address.is_multicast or address.is_reserved or address.is_unspecified)


def is_loopback(host: str) -> bool:
    """Whether the host is this machine by its spelling: nothing is resolved."""
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return host == "localhost" or host.endswith(".localhost")


async def judged_addresses(url: str, *, loopback: bool = False) -> tuple[str, ...]:
    """The addresses of the URL's host, of which each may be connected to, as they are. `loopback`: this machine is allowed, too,
    and needs no https. Raises RefusedAddress; OSError if the name is not known."""
    try:
        parts = urlsplit(url)
        host, port = parts.hostname or "", parts.port
    except ValueError:
        raise RefusedAddress("is no address") from None
    is_own = loopback and is_loopback(host)
    if not host or parts.scheme not in ("https", "http") or parts.username is not None:
        raise RefusedAddress("is no plain web address")
    if parts.scheme != "https" and not is_own:
        raise RefusedAddress("has no https")
    try:
        found: tuple[_Address, ...] = (ipaddress.ip_address(host),)
    except ValueError:
        if _ENDS_IN_NUMBER.search(host):
            raise RefusedAddress("spells an IP address in an unusual way") from None
        answers = await asyncio.get_running_loop().getaddrinfo(host, port or 443, type=socket.SOCK_STREAM)
        found = tuple(dict.fromkeys([ipaddress.ip_address(answer[4][0]) for answer in answers]))
    for address in found:
        if not (is_public(address) or (is_own and address.is_loopback)):
            raise RefusedAddress("is no public address: it leads into a network or a machine of its own")
    return tuple(map(str, found))
