"""What a worker tells Prometheus of the queue."""

import urllib.error
import urllib.request
from pathlib import Path

import psycopg
import pytest

from turnwise.errors import CallerError
from turnwise.workers.metrics import LONGEST_LABEL, MOST_AGENTS, QueueMetrics, metrics_text
from turnwise.workers.queue import TurnQueue, WorkerTerms
from turnwise.workers.turn_status import OpenTurns, QueueTotals, RunningWorker
from workers.farm import Farm, WorkerProcess


def read(url: str) -> tuple[int, list[str]]:
    try:
        with urllib.request.urlopen(url) as answer:
            return answer.status, answer.read().decode().splitlines()
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode().splitlines()


def test_the_gauges_are_those_of_the_whole_queue(queue: TurnQueue, postgres_dsn: str) -> None:
    """Proves: turns by agent and state, the oldest age, the workers, and a depth that counts a session once and is 0 for an agent
    without turns; a second look within a moment asks the database nothing; where it is gone, the status says so."""
    session = queue.submit("Go.", agent="plain")
    queue.submit("Then.", agent="plain", session=session)
    queue.renew((), terms=WorkerTerms(name="w", agents=("plain", "idle")))
    with psycopg.connect(postgres_dsn, autocommit=True) as connection:
        connection.execute("update turnwise.turn set created = created - 100")
        with QueueMetrics(postgres_dsn, host="127.0.0.1", port=0, kept_s=3600) as metrics:
            status, lines = read(metrics.url)
            connection.execute("update turnwise.turn set agent = 'changed'")
            assert read(metrics.url) == (status, lines)
            assert read(f"{metrics.url}/no")[0] == 404
            with pytest.raises(CallerError, match=r"`--metrics`: .* cannot be used"):
                QueueMetrics(postgres_dsn, host="127.0.0.1", port=int(metrics.url.split(":")[2].split("/")[0]))
    values = dict([line.rsplit(" ", 1) for line in lines if not line.startswith("#")])
    assert (
        status == 200
        and 100 <= float(values.pop('turnwise_queue_oldest_seconds{agent="plain",state="queued"}')) < 10**6
    )
    assert values == {
        'turnwise_queue_turns{agent="plain",state="queued"}': "2",
        'turnwise_queue_depth{agent="plain"}': "1",
        'turnwise_queue_depth{agent="idle"}': "0",
        "turnwise_queue_workers": "1",
    }
    with QueueMetrics("postgresql:///nosuch?host=/nosuch", host="127.0.0.1", port=0) as metrics:
        assert read(metrics.url)[0] == 503


@pytest.mark.costly
def test_a_worker_serves_them(postgres_dsn: str, queue: TurnQueue, tmp_path: Path) -> None:
    """Proves: `worker --metrics` serves the gauges while it runs, its log has the address, and a wrong address is wrong use."""
    farm = Farm(tmp_path / "farm", dsn=postgres_dsn, url="http://127.0.0.1:9")
    for words in ("nosuch", "127.0.0.1:99999"):
        done = farm.run("worker", "--agent", "plain=farm_agents:plain", "--metrics", words)
        assert done.returncode == 2 and "give a port" in done.stderr
    worker = WorkerProcess(farm, "--metrics", "0")
    try:
        said = worker.until_all("metrics", "ready")
        _, lines = read(said["metrics"]["text"])
        assert "turnwise_queue_workers 1" in lines
    finally:
        worker.end()


def test_names_of_agents_are_bounded() -> None:
    """Proves: whoever submits cannot fill Prometheus with names, nor write lines of their own."""
    turns = tuple([OpenTurns(f"a{number}", "queued", 2, 1.0) for number in range(MOST_AGENTS + 5)])
    depth = {one.agent: 2 for one in turns}
    text = metrics_text(QueueTotals(turns=turns, depth=depth, workers=()))
    assert 'turnwise_queue_turns{agent="(other)",state="queued"} 10' in text.splitlines()
    assert 'turnwise_queue_depth{agent="(other)"} 10' in text.splitlines()
    assert text.count("turnwise_queue_depth{") == MOST_AGENTS + 1
    idle = RunningWorker("w", ("idle",), (), ())
    long = tuple([OpenTurns("a" * LONGEST_LABEL + end, "queued", 1, 1.0) for end in "xy"])
    text = metrics_text(
        QueueTotals(turns=(*turns, *long), depth={**depth, **{one.agent: 9 for one in long}}, workers=(idle,))
    )
    assert 'turnwise_queue_depth{agent="idle"} 0' in text.splitlines()  # other names do not crowd out those of workers
    assert f'turnwise_queue_depth{{agent="{"a" * LONGEST_LABEL}"}} 18' in text.splitlines()
    series = [line.rsplit(" ", 1)[0] for line in text.splitlines()]
    assert len(series) == len(set(series)), "Prometheus takes no series twice"
    one = OpenTurns('a"\n\\', "queued", 1, 1.0)
    said = metrics_text(QueueTotals(turns=(one,), depth={one.agent: 1}, workers=()))
    assert 'turnwise_queue_depth{agent="a\\"\\n\\\\"} 1' in said.splitlines()
