"""Several gateways as processes of their own, one journal, one budget."""

import http.client
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path

import msgspec
import pytest

from gateway.budgeted import add_key, limits
from gateway.served_gateway import CONTENT, served_gateway
from terminal.running import running_lab
from turnwise import Journal
from turnwise.journal.request_budgets import bill_dead, held_rows, is_gone
from waits import HANG_S

TEN = 10
BODY = {"model": "plain-answer", "messages": [{"role": "user", "content": CONTENT}], "max_tokens": 50}


def status_from(port: int, key: str) -> int:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=HANG_S)
    headers = {"content-type": "application/json", "connection": "close", "authorization": f"Bearer {key}"}
    connection.request("POST", "/v1/chat/completions", msgspec.json.encode(BODY), headers)
    with connection.getresponse() as answer:
        answer.read()
        return answer.status


@pytest.fixture(params=["sqlite", "postgres"])
def database(request: pytest.FixtureRequest) -> Iterator[str]:
    yield "" if request.param == "sqlite" else request.getfixturevalue("postgres_dsn")


@pytest.mark.costly
@pytest.mark.promise("serve:budget")
@pytest.mark.parametrize("number", [60, pytest.param(1000, marks=pytest.mark.wide)])
def test_many_at_once_on_a_budget_for_ten_send_ten_from_three_processes(
    tmp_path: Path, database: str, number: int
) -> None:
    """Proves: of so many at once three gateways send ten, by the upstream's own count; one is killed with kill -9 first, and
    what it had not reserved is still there for the others."""
    target: Path | str = database or tmp_path / "state" / "journal.db"
    key = add_key(target, limits(requests_month=TEN))
    words = ("--database", database) if database else ()
    with running_lab() as lab, ExitStack() as stack:
        gateways = [
            stack.enter_context(served_gateway(tmp_path, "--quiet", *words, upstream=f"{lab.url}/v1")) for _ in range(4)
        ]
        first = gateways.pop()
        assert status_from(first.port, key) == 200
        first.process.kill()
        first.process.wait(HANG_S)
        ports = [gateways[at % 3].port for at in range(number)]
        with ThreadPoolExecutor(min(number, 120)) as pool:
            found = Counter(pool.map(lambda port: status_from(port, key), ports))
        received = len(lab.requests)
        for gateway in gateways:
            gateway.end()
    assert (found, received) == (Counter({200: TEN - 1, 429: number - TEN + 1}), TEN)
    with Journal(target) as journal:
        store = journal.gateway.store
        (row,) = held_rows(store)
        # The one that was killed may not have settled: what it had reserved is spent once a living one looks after the dead.
        bill_dead(store, [part.holder for part in row.state.parts.values() if is_gone(part.holder)], now=time.time())
        (row,) = held_rows(store)
    assert (row.state.parts, row.state.used[0]) == ({}, TEN)
