"""Without keys, `/metrics` is for the user who started the gateway (issue 40)."""

import asyncio
import os
import shutil
import socket
import subprocess
from pathlib import Path

import pytest

from gateway.serving import gateway, status_of
from turnwise.gateway.app import is_own_user, owner_of
from turnwise.gateway.doors import OwnAddress
from waits import HANG_S

HEAD = "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode"
NOBODY = 65534


def row(client: str, own: str, *, uid: int, inode: int = 7) -> str:
    return f"   0: {client} {own} 01 00000000:00000000 00:00000000 00000000 {uid:5} 0 {inode} 1 0000000000000000 20 4 30 10 -1"


def test_the_owner_of_a_connection_is_read_from_the_table(tmp_path: Path) -> None:
    """The client's row, not the gateway's own; of both versions of IP; and of no socket that is closed by now."""
    client, own = "0100007F:D431", "0100007F:2124"
    rows = [HEAD, row(own, client, uid=1), row(client, own, uid=0, inode=0), row("0100007F:D432", own, uid=2)]
    (tmp_path / "tcp").write_text("\n".join([*rows, row(client, own, uid=3), ""]))
    mapped = "0000000000000000FFFF0000"
    six = "00000000000000000000000001000000"
    rows = [HEAD, row(f"{mapped}0100007F:D433", f"{mapped}{own}", uid=4), row(f"{six}:D431", f"{six}:2124", uid=5)]
    (tmp_path / "tcp6").write_text("\n".join(rows))
    asked = [("127.0.0.1", 0xD431), ("127.0.0.1", 0xD432), ("127.0.0.1", 0xD433), ("127.0.0.1", 0xD434)]
    four, own_six = OwnAddress("127.0.0.1", 0x2124), OwnAddress("::1", 0x2124)
    assert [owner_of(one, four, sockets=tmp_path) for one in asked] == [3, 2, 4, None]
    assert owner_of(("::1", 0xD431), own_six, sockets=tmp_path) == 5
    assert not is_own_user(asked[3], four, sockets=tmp_path) and not is_own_user(None, four, sockets=tmp_path)
    assert owner_of(asked[0], four, sockets=tmp_path / "nowhere") is None, "as on other systems"


@pytest.mark.skipif(not Path("/proc/net/tcp").exists(), reason="only Linux tells whose a connection is")
async def test_metrics_are_refused_to_another_user_and_said_why() -> None:
    """A program of this user reads them. One of another user of the machine does not, and is told of admin keys."""
    async with gateway() as there:
        ask = there.head("/metrics", method="GET", connection="close") + b"\r\n"
        assert status_of(await there.said(ask)) == 200
        with socket.create_connection(("127.0.0.1", there.port)) as ours:
            name = ours.getsockname()
            assert owner_of((name[0], name[1]), OwnAddress("127.0.0.1", there.port)) == os.geteuid()
        bash = shutil.which("bash")
        if os.geteuid() != 0 or bash is None:
            pytest.skip("only root can be somebody else")
        line = f"exec 3<>/dev/tcp/127.0.0.1/{there.port}; cat >&3; cat <&3"
        done = await asyncio.to_thread(
            subprocess.run, [bash, "-c", line], input=ask, user=NOBODY, cwd="/", capture_output=True, timeout=HANG_S
        )
        assert status_of(done.stdout) == 403 and b"keys add --admin NAME" in done.stdout
        assert there.service.refusals[-1][0] == "admin_key"
