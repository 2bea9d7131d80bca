"""`turnwise gateway --workers`: several processes on one address, and the parent that keeps their number."""

import contextlib
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from gateway.served_gateway import ServedGateway, served_gateway
from terminal.running import running_lab
from turnwise.gateway.accounts import GatewayCounts
from turnwise.gateway.worker_counts import CountsFile, CountsState, added, without_gauges
from waits import HANG_S

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="looks at the parent's children in /proc")
ANSWERED = re.compile(rb'requests_total\{family="openai_chat",kind="generate",status="200",end="whole"\} (\d+)')


def workers_of(gateway: ServedGateway) -> list[int]:
    own = gateway.process.pid
    return [int(pid) for pid in Path(f"/proc/{own}/task/{own}/children").read_text().split()]


def until(is_so: Callable[[], bool]) -> None:
    """Asked again and again: nobody tells a test what happens in other processes."""
    ends_s = time.monotonic() + HANG_S
    while not is_so():
        assert time.monotonic() < ends_s, "it never came to be"


def answered(gateway: ServedGateway) -> int:
    """By the counts, whichever worker is asked."""
    found = ANSWERED.search(gateway.get("/metrics"))
    return 0 if found is None else int(found[1])


def serves(gateway: ServedGateway, model: str) -> bool:
    with contextlib.suppress(OSError):
        return b"[DONE]" in gateway.chat(model)
    return False


def is_gone(pid: int) -> bool:
    with contextlib.suppress(OSError):
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    return True


@pytest.mark.promise("serve:budget")
def test_workers_serve_one_address_and_one_that_dies_is_replaced(tmp_path: Path) -> None:
    """Proves: one scrape has the counts of all workers, and no count falls when one is killed with kill -9; another one takes its
    place and says so; SIGHUP reaches all, and the new one has the new file; SIGTERM lets an open answer end, with exit code 0."""
    with running_lab() as lab:
        config = tmp_path / "gateway.toml"
        route = f'[[route]]\nmodels = ["%s"]\nupstream = {{ url = "{lab.url}/v1", model = "plain-answer" }}\n'
        config.write_text(route % "one")
        with served_gateway(tmp_path, "--config", str(config), "--workers", "2", upstream=None) as gateway:
            until(lambda: len(workers_of(gateway)) == 2)
            assert all(serves(gateway, "one") for _ in range(12))
            until(lambda: answered(gateway) == 12)
            killed = workers_of(gateway)[0]
            config.write_text(route % "two")
            gateway.process.send_signal(signal.SIGHUP)
            until(lambda: [serves(gateway, "two") for _ in range(8)] == [True] * 8)
            counted = answered(gateway)
            os.kill(killed, signal.SIGKILL)
            until(lambda: killed not in (now := workers_of(gateway)) and len(now) == 2)
            assert counted > 12
            until(lambda: [serves(gateway, "two") for _ in range(8)] == [True] * 8)
            until(lambda: answered(gateway) >= counted + 8)
            log = gateway.end()
    assert gateway.process.returncode == 0
    assert f"(process {killed}) was killed by signal 9; this one takes its place" in log


def test_workers_end_with_their_parent(tmp_path: Path) -> None:
    """Proves: a parent that is killed with kill -9 leaves nobody behind."""
    with running_lab() as lab, served_gateway(tmp_path, "--workers", "2", upstream=f"{lab.url}/v1") as gateway:
        until(lambda: len(workers_of(gateway)) == 2)
        workers = workers_of(gateway)
        until(lambda: serves(gateway, "plain-answer"))
        gateway.process.kill()
        gateway.process.wait(HANG_S)
        until(lambda: all(is_gone(pid) for pid in workers))


def test_the_parent_gives_up_where_no_worker_can_live(tmp_path: Path) -> None:
    """Proves: workers that die at once are tried again some times, and then the parent ends and says so; one that cannot even
    begin says why once, and the exit code is its own."""
    with running_lab() as lab, served_gateway(tmp_path, "--workers", "2", upstream=f"{lab.url}/v1") as gateway:
        until(lambda: len(workers_of(gateway)) == 2)
        shutil.rmtree(tmp_path / "state")
        (tmp_path / "state").write_text("no folder")
        for pid in workers_of(gateway):
            os.kill(pid, signal.SIGKILL)
        assert gateway.process.wait(HANG_S) == 2
        gateway.log.seek(0)
        assert "died at once 5 times" in gateway.log.read().decode()
    line = [sys.executable, "-m", "turnwise", "gateway", "--upstream", "openai:*", "--port", "0", "--workers", "3"]
    env = {name: value for name, value in gateway.env.items() if name != "OPENAI_API_KEY"}
    done = subprocess.run(line, env=env, capture_output=True, text=True, timeout=HANG_S, check=False)
    assert (done.returncode, done.stdout, len(done.stderr.splitlines())) == (2, "", 1)


def test_counts_of_the_dead_stay_and_their_gauges_go(tmp_path: Path) -> None:
    """Proves: who takes the place of a dead worker goes on from its counts; a gauge counts the living, by its own rule."""
    gauges = frozenset({"open", "good"})
    first, second = CountsFile(tmp_path / "0", gauges=gauges), CountsFile(tmp_path / "1", gauges=gauges)
    one = CountsState({"n": {("a",): 3.0}, "open": {(): 2.0}, "good": {(): 1.0}}, {"t": {("a",): [1.0, 0.0, 0.5]}})
    other = CountsState({"n": {("a",): 1.0, ("b",): 1.0}, "open": {(): 5.0}, "good": {(): 0.0}}, {"t": {}})
    first.tell(one)
    found = added([second.told(other), *second.others()], joined={"good": "min"})
    assert found.values == {"n": {("a",): 4.0, ("b",): 1.0}, "open": {(): 7.0}, "good": {(): 0.0}}
    without_gauges(tmp_path / "0")
    assert added(second.others(), joined={}).values == {"n": {("a",): 3.0}}
    again = CountsFile(tmp_path / "0", gauges=gauges)
    again.tell(one)
    found = added(second.others(), joined={})
    assert (found.values["n"], found.values["open"]) == ({("a",): 6.0}, {(): 2.0})
    assert found.seconds == {"t": {("a",): [2.0, 0.0, 1.0]}}


async def test_a_gauge_is_told_to_the_others_as_it_is_now(tmp_path: Path) -> None:
    """Proves: what one worker knows of its upstreams and budgets reaches the scrape of another one though nobody has ever scraped
    the first, and ends there, too, when it has ended. A scraper that keeps its connection asks one worker alone."""
    left_alone, fullness = {"a": 1}, {("team", "data", "requests/day"): 1.0}
    first = GatewayCounts(file=tmp_path / "0", fullness=lambda: fullness)
    first.measure = lambda: first.set_each("turnwise_gateway_upstream_left_alone", left_alone)
    scraped = GatewayCounts(file=tmp_path / "1")
    budget = b'budget_used_ratio{kind="team",owner="data",limit="requests/day"}'
    async with first.told():
        pass
    assert b'left_alone{upstream="a"} 1\n' in scraped.text() and budget in scraped.text()
    left_alone["a"] = 0
    fullness.clear()
    async with first.told():
        pass
    assert b'left_alone{upstream="a"} 0\n' in scraped.text() and budget not in scraped.text()
