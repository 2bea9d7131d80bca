"""The gateway's log goes to whoever reads it, and holds up nothing where nobody does (wait:)."""

import contextlib
import io
import json
import logging
import os
import re
import threading
from pathlib import Path

import pytest

from gateway.served_gateway import served_gateway
from terminal.running import running_lab
from turnwise.agent.written_lines import LINES_KEPT
from turnwise.gateway.accounts import logging_to
from waits import HANG_S

LOG = logging.getLogger("turnwise")
DROPPED = re.compile(r"(\d[\d,]*) lines of this log were dropped")


def read_to_end(number: int, *, into: list[bytes], told: threading.Event) -> threading.Thread:
    """`told` is set once the log has said what it dropped."""

    def read() -> None:
        end = b""
        while piece := os.read(number, 1 << 16):
            into.append(piece)
            end = (end + piece)[-1000:]
            if b"were dropped" in end:
                told.set()

    thread = threading.Thread(target=read, daemon=True)
    thread.start()
    return thread


@pytest.mark.parametrize("blocking", [True, False])
def test_a_log_that_nobody_reads_holds_up_nothing_and_says_what_it_dropped(blocking: bool) -> None:
    """Proves: three times what may wait is logged into a full pipe without waiting; read later, each line is whole and in
    order, and those written and those said to be dropped are all."""
    reading, writing = os.pipe()
    os.set_blocking(writing, blocking)
    logged, found = 3 * LINES_KEPT, list[bytes]()
    with os.fdopen(writing, "w") as stream, logging_to(stream, as_json=True, quiet=False):
        for number in range(logged):
            LOG.info("line %d %s", number, "x" * 60)
        has_told = threading.Event()
        reader = read_to_end(reading, into=found, told=has_told)
        assert has_told.wait(HANG_S)
    reader.join(HANG_S)
    assert not reader.is_alive()
    os.close(reading)
    told = [json.loads(line)["message"] for line in b"".join(found).splitlines()]
    said = [int(match[1].replace(",", "")) for line in told if (match := DROPPED.search(line))]
    kept = [int(line.split()[1]) for line in told if line.startswith("line ")]
    assert kept == sorted(kept) and kept[:100] == list(range(100))
    assert said and sum(said) + len(kept) == logged


def test_a_log_whose_reader_has_gone_ends_nothing() -> None:
    """Proves: a closed pipe raises nowhere, and the block ends."""
    reading, writing = os.pipe()
    os.close(reading)
    with os.fdopen(writing, "w") as stream, logging_to(stream, as_json=False, quiet=False):
        for number in range(100):
            LOG.info("line %d", number)


def test_all_lines_are_there_when_the_block_ends() -> None:
    """Proves: what was logged last is not lost, without a file as well; `quiet` leaves errors alone."""
    for quiet, expected in ((False, ["one", "two"]), (True, ["two"])):
        stream = io.StringIO()
        with logging_to(stream, as_json=False, quiet=quiet):
            LOG.info("one")
            LOG.error("two")
        assert [line.split(" ", 1)[1] for line in stream.getvalue().splitlines()] == expected


@pytest.mark.costly
def test_a_gateway_whose_log_nobody_reads_answers_and_ends(tmp_path: Path) -> None:
    """Proves: with a pipe for standard error that is full from the first line on, requests are answered and SIGTERM ends it."""
    reading, writing = os.pipe()
    os.set_blocking(writing, False)
    with contextlib.suppress(BlockingIOError):
        while True:
            os.write(writing, b"x" * 4096)
    os.set_blocking(writing, True)
    with (
        running_lab() as lab,
        served_gateway(tmp_path, upstream=f"{lab.url}/v1", log_to=writing) as gateway,
    ):
        answers = [gateway.chat("read-edit-answer") for _ in range(5)]
        assert all(b"data: [DONE]" in answer for answer in answers)
        gateway.process.terminate()
        assert gateway.process.wait(HANG_S) == 0
    os.close(reading)
    os.close(writing)
