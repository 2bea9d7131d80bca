"""Draw the pictures of docs/gateway-page.md: the gateway's page before a journal with made-up figures, in Debian's Chromium.

    python scripts/draw_page.py

Needs chromium, and the packages of `python scripts/build_web.py`. Bytes differ from machine to machine: fonts do.
"""

import random
import sys
import tempfile
from decimal import Decimal
from pathlib import Path

import msgspec

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "tests"))

from gateway.paged import entry, fill, write  # noqa: E402
from gateway.served_gateway import served_gateway  # noqa: E402
from gateway.test_page_in_browser import drive  # noqa: E402
from turnwise import Journal  # noqa: E402
from turnwise.base.clock import SystemClock  # noqa: E402
from turnwise.gateway.client_limits import span_of  # noqa: E402
from turnwise.journal.gateway_rows import Period  # noqa: E402
from turnwise.journal.ledger import LedgerEntry  # noqa: E402
from turnwise.journal.request_budgets import UNSPENT  # noqa: E402

PICTURES = ROOT / "docs" / "pictures"
CLIENTS = ("ci", "ann-laptop", "batch")
MODELS = ("gpt-6.1-sol", "claude-sonnet-5", "gpt-6.1-terra")


# Owner, period, and what is used: requests, tokens, dollars.
SPENT: tuple[tuple[str, Period, tuple[int, int, Decimal]], ...] = (
    ("key/ci", "month", (2104, 4_100_000, Decimal("41.30"))),
    ("key/ci", "minute", (14, 31_000, Decimal("0.31"))),
    ("team/web", "month", (8120, 19_400_000, Decimal("212.75"))),
)


def _at_price(told: LedgerEntry, usd: Decimal) -> LedgerEntry:
    return told if told.usd is None else msgspec.structs.replace(told, usd=usd)


def main() -> int:
    drawn = random.Random(47)
    with tempfile.TemporaryDirectory() as folder:
        state = Path(folder) / "state"
        state.mkdir()
        now = SystemClock().now()
        with Journal(state / "journal.db") as journal:
            fill(journal, now=now, days=1, a_day=1)
            for number in range(21 * 24):
                told = entry(number, at=now - 3600 * number, client=CLIENTS[number % 3], model=MODELS[number % 3])
                usd = Decimal(drawn.randrange(200, 1200)) / 1000
                write(journal, _at_price(told, usd if number % 168 < 120 else usd / 8))
            for number in range(420):
                minute = drawn.randrange(60)
                if drawn.random() < 0.35 + 0.3 * ((minute // 8) % 2):
                    outcome = "rate_limited" if drawn.random() < 0.04 else "ok"
                    told = entry(
                        1000 + number,
                        at=now - 60 * minute - drawn.randrange(60),
                        client=drawn.choice(CLIENTS),
                        outcome=outcome,
                        model=drawn.choice(MODELS),
                    )
                    write(journal, _at_price(told, Decimal(drawn.randrange(2, 90)) / 1000))
            for owner, period, used in SPENT:
                name = f"gateway/{owner}/{period}/{span_of(period, at=now).name}"
                state = msgspec.json.encode(msgspec.structs.replace(UNSPENT, used=used)).decode()
                values = (name, state, now)
                journal.gateway.store.execute_all(
                    [("insert into budget (name, state, updated) values (?, ?, ?)", values)]
                )
        words = ("--admin", "127.0.0.1:0", "--quiet")
        with served_gateway(Path(folder), *words, upstream="http://127.0.0.1:9/v1") as gateway:
            key = gateway.run("gateway", "keys", "add", "--admin", "operator").splitlines()[0].strip()
            gateway.wait_until_open(key)
            pictures = [
                {"view": view, "width": width, "scheme": scheme, "path": str(PICTURES / f"gateway-page-{view}.png")}
                for view, width, scheme in (("now", 1440, "light"), ("keys", 1440, "dark"), ("spend", 375, "light"))
            ]
            told = drive(url=gateway.admin, key=key, pictures=pictures)
    print(told.get("broke") or f"drawn: {len(pictures)} pictures")
    return int("broke" in told)


if __name__ == "__main__":
    sys.exit(main())
