"""Which addresses turnwise connects to when somebody else named them."""

import asyncio
import ipaddress
import socket

import pytest

from tables import each
from turnwise.base.outgoing import RefusedAddress, is_public, judged_addresses

PUBLIC = "8.8.8.8 2606:4700::1111 ::ffff:8.8.8.8 64:ff9b::808:808 1.1.1.1"
OWN = """127.0.0.1 127.9.9.9 0.0.0.0 10.1.2.3 172.16.0.1 192.168.1.1 169.254.169.254 169.254.170.2 100.64.0.1 100.100.100.200
    168.63.129.16 192.0.0.192 192.0.2.1 192.88.99.1 198.18.0.1 224.0.0.1 240.0.0.1 255.255.255.255
    :: ::1 ::7f00:1 ::ffff:127.0.0.1 ::ffff:169.254.169.254 64:ff9b::a9fe:a9fe 64:ff9b:1::1 2002:a9fe:a9fe::1 2001:0:1::
    fd00:ec2::254 fc00::1 fe80::1 fe80::1%eth0 fec0::1 ff02::1 2001:db8::1 3fff::1"""


@each(("address", "public"), [*[(one, True) for one in PUBLIC.split()], *[(one, False) for one in OWN.split()]])
def test_an_address_is_public_if_everybody_reaches_the_same_machine_there(address: str, public: bool) -> None:
    """What is written into another address counts: mapped, behind NAT64, 6to4, Teredo."""
    assert is_public(ipaddress.ip_address(address)) is public


@each(
    ("url", "why"),
    [
        ("https://2852039166/", "in an unusual way"),
        ("https://0251.0376.0251.0376/", "in an unusual way"),
        ("https://0xa9fea9fe/", "in an unusual way"),
        ("https://127.1/", "in an unusual way"),
        ("https://[::ffff:a9fe:a9fe]/", "no public address"),
        ("https://169.254.169.254./", "in an unusual way"),
        ("http://8.8.8.8/", "no https"),
        ("ftp://8.8.8.8/", "no plain web address"),
        ("https://user@8.8.8.8/", "no plain web address"),
        ("https:///", "no plain web address"),
        ("https://8.8.8.8:99999/", "no address"),
        ("https://localhost/", "no public address"),
        ("http://127.0.0.1/", "no https"),
    ],
)
async def test_an_address_is_refused_before_anything_is_sent(url: str, why: str) -> None:
    """Names of this machine are resolved, and no other name is here."""
    with pytest.raises(RefusedAddress, match=why):
        await judged_addresses(url)


async def test_a_name_is_resolved_once_and_each_of_its_addresses_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    """One private address among public ones is enough: a server of names chooses which of them comes first."""
    answers = [["8.8.8.8", "2606:4700::1111"], ["8.8.8.8", "10.0.0.1"]]

    async def looked_up(*_: object, **__: object) -> list[object]:
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (one, 443)) for one in answers.pop(0)]

    monkeypatch.setattr(asyncio.get_running_loop(), "getaddrinfo", looked_up)
    assert await judged_addresses("https://docs.example/") == ("8.8.8.8", "2606:4700::1111")
    with pytest.raises(RefusedAddress, match="no public address"):
        await judged_addresses("https://docs.example/")
    assert answers == []


async def test_this_machine_is_allowed_to_what_runs_here_itself() -> None:
    """Then without https, too; other private addresses stay refused."""
    assert await judged_addresses("http://127.0.0.1:3000/", loopback=True) == ("127.0.0.1",)
    for url in ("https://10.0.0.1/", "http://8.8.8.8/", "http://169.254.169.254/"):
        with pytest.raises(RefusedAddress):
            await judged_addresses(url, loopback=True)
