"""The page in Debian's Chromium, driven through playwright-core and judged by axe-core (tests/web/page.mjs)."""

import contextlib
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from gateway.paged import HOSTILE, entry, fill, write
from gateway.served_gateway import BODY, served_gateway
from real_agents.places import chromium, node
from turnwise import Journal
from turnwise.base.clock import SystemClock
from turnwise.journal.direct_ledger import RepairSeen
from turnwise.journal.gateway_rows import GatewayOwner, OwnerTerms
from waits import HANG_S

ROOT = Path(__file__).parents[2]
WEB = ROOT / "web"
WHOLE_S = 600.0  # a busy machine takes three minutes for what a quiet one does in half of one
LISTS = ("axe", "unreached", "unseen", "wide", "console", "foreign", "keys", "stored")

pytestmark = [
    pytest.mark.costly,
    pytest.mark.skipif(chromium() is None, reason="needs Debian's chromium"),
    pytest.mark.skipif(
        not (WEB / "node_modules" / "playwright-core").exists(), reason="needs `python scripts/build_web.py --check`"
    ),
]


def hostile_rows(journal: Journal, *, now: float) -> None:
    """Names that no door lets in, as if another program had written them into the journal."""
    owner = GatewayOwner(name=HOSTILE, team=HOSTILE, user=HOSTILE, sha256="0" * 64, terms=OwnerTerms(models=(HOSTILE,)))
    rows = [
        ("key", msgspec.json.encode(owner).decode()),
        ("team", msgspec.json.encode(GatewayOwner(name=HOSTILE)).decode()),
    ]
    journal.gateway.store.execute_all(
        [("insert into gateway (kind, name, body) values (?, ?, ?)", (kind, HOSTILE, body)) for kind, body in rows]
    )
    told = entry(990, at=now - 90, client=HOSTILE, model=HOSTILE)
    write(journal, msgspec.structs.replace(told, root_turn=HOSTILE))
    failed = entry(991, at=now - 80, client=HOSTILE, outcome=HOSTILE, model=HOSTILE)
    write(journal, msgspec.structs.replace(failed, provider=HOSTILE, root_turn=HOSTILE))
    seen = RepairSeen(day="2099-01-01", provider=HOSTILE, family=HOSTILE, model=HOSTILE, kind=HOSTILE, times=1)
    journal.repairs.write([seen])


@contextlib.contextmanager
def looking(env: dict[str, str]) -> Iterator[str]:
    """`turnwise look --usage`: the address that it tells."""
    line = [sys.executable, "-m", "turnwise", "look", "--usage", "--json"]
    with subprocess.Popen(line, stdout=subprocess.PIPE, text=True, env=env) as process:
        try:
            assert process.stdout is not None
            yield msgspec.json.decode(process.stdout.readline(), type=dict[str, str])["url"]
        finally:
            process.terminate()
        assert process.wait(HANG_S) == 0


def drive(**told: Any) -> dict[str, Any]:
    line = [str(node()), str(ROOT / "tests" / "web" / "page.mjs")]
    asked = msgspec.json.encode({"chromium": chromium(), "modules": str(WEB / "node_modules"), **told})
    ran = subprocess.run(line, input=asked, capture_output=True, timeout=WHOLE_S, check=False)
    assert ran.returncode == 0, ran.stderr.decode()[-3000:]
    return msgspec.json.decode(ran.stdout, type=dict[str, Any])


def test_the_page_in_a_browser(tmp_path: Path) -> None:
    """Proves, at 375 and 1440 px, light and dark: axe-core finds nothing in any view or dialog; each control is reached by Tab
    and shows the focus; keys are made, changed, exchanged and revoked without a mouse, each shown once; hostile names of models,
    keys, teams, providers and errors stay text; another page of this host reads and changes nothing; the admin key is in no
    address, in no storage and not on the page; and `turnwise look --usage` shows the same for one's own machine, once."""
    now, state = SystemClock().now(), tmp_path / "state"
    state.mkdir()
    with Journal(state / "journal.db") as journal:
        fill(journal, now=now, days=10)
        hostile_rows(journal, now=now)
    with served_gateway(tmp_path, "--admin", "127.0.0.1:0", "--quiet", upstream="http://127.0.0.1:9/v1") as gateway:
        key = gateway.run("gateway", "keys", "add", "--admin", "boss").splitlines()[0].strip()
        gateway.wait_until_open(key)
        told = gateway.ask("/v1/chat/completions", {**BODY, "model": HOSTILE}, authorization=f"Bearer {key}")
        assert told.status >= 400 and told.read()
        with looking(gateway.env) as once:
            seen = drive(url=gateway.admin, key=key, once=once, hostile=HOSTILE)
        assert "boss" in gateway.run("gateway", "audit")
        keys = gateway.run("gateway", "keys", "list", "--json")
    assert "broke" not in seen, seen
    wrong = {name: seen[name] for name in LISTS if seen[name]}
    assert wrong == {}
    assert seen["hacked"] is False
    shown = {view["name"] for view in seen["views"] if view["hostile"]}
    assert shown == {"Now", "Spend", "Repairs", "Keys and budgets", "Errors", "Live"}
    assert {name: seen["csrf"][name] for name in ("read", "change", "revoke", "frame")} == {
        "read": "refused",
        "change": "refused",
        "revoke": "refused",
        "frame": "closed",
    }
    assert seen["csrf"]["form"] == 403
    assert "csrf-" not in keys and seen["out"] == 401
    for width in (375, 1440):
        made = seen[f"made {width}"]
        assert made["made"].startswith("tw-") and made["made"] != made["rotated"] and not made["again"]
    assert "#once" not in seen["once"]["address"] and "not a key" in seen["once"]["again"]
    assert seen["once"]["links"] == ["Now", "Spend", "Repairs", "Errors"]
