"""Whose program is at the other end of a connection on this machine.

TCP does not tell it. Linux lists the sockets of this machine with their owners in /proc/net (proc(5)); elsewhere nobody does.
"""

import ipaddress
import os
import sys
from pathlib import Path

from turnwise.gateway.doors import OwnAddress

SOCKETS = Path("/proc/net")
_UID, _INODE = 7, 9  # of a row's fields


def is_own_user(client: tuple[str, int] | None, own: OwnAddress, *, sockets: Path = SOCKETS) -> bool:
    """Whether the user of this process opened the connection from `client` to `own`. False where that cannot be known."""
    uid = getattr(os, "geteuid", lambda: None)()
    return client is not None and uid is not None and owner_of(client, own, sockets=sockets) == uid


def owner_of(client: tuple[str, int], own: OwnAddress, *, sockets: Path = SOCKETS) -> int | None:
    """The id of the user whose socket it is. A socket of both versions of IP is in the table of IPv6."""
    try:
        here, there = ipaddress.ip_address(client[0]), ipaddress.ip_address(own.ip)
    except ValueError:
        return None
    forms = [("tcp" if here.version == 4 else "tcp6", here.packed, there.packed)]
    if here.version == 4:
        mapped = bytes(10) + b"\xff\xff"
        forms.append(("tcp6", mapped + here.packed, mapped + there.packed))
    for table, client_ip, own_ip in forms:
        wanted = [_written(client_ip, client[1]), _written(own_ip, own.port)]
        try:
            rows = (sockets / table).read_text(encoding="ascii").splitlines()[1:]
        except (OSError, UnicodeDecodeError):
            continue
        for row in rows:
            fields = row.split()
            # One that its program has closed belongs to nobody any more: its row says user 0 and inode 0.
            if fields[1:3] == wanted and fields[_INODE] != "0":
                return int(fields[_UID])
    return None


def _written(packed: bytes, port: int) -> str:
    words = [packed[at : at + 4] for at in range(0, len(packed), 4)]
    return "".join([f"{int.from_bytes(word, sys.byteorder):08X}" for word in words]) + f":{port:04X}"
