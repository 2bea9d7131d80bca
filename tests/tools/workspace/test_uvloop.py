"""Programs may run turnwise in uvloop's event loop, whose transports and processes are not asyncio's own."""

import asyncio
import os
from collections.abc import Coroutine
from pathlib import Path
from typing import TypeVar

import pytest

from turnwise.base.processes import run_group
from waits import HANG_S

uvloop = pytest.importorskip("uvloop", reason="the extra `uvloop` is not installed")
Outcome = TypeVar("Outcome")


def in_uvloop(main: Coroutine[object, object, Outcome]) -> Outcome:
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(asyncio.wait_for(main, HANG_S))


def test_a_command_gets_its_input_and_gives_its_output(tmp_path: Path) -> None:
    """As hooks are run."""
    said: list[bytes] = []
    command = ["/bin/sh", "-c", "tr a-z A-Z; exit 3"]
    running = run_group(command, cwd=tmp_path, env={}, timeout_s=HANG_S, on_output=said.append, given=b"hello")
    assert (in_uvloop(running), b"".join(said)) == (3, b"HELLO")


def test_a_command_out_of_time_is_ended(tmp_path: Path) -> None:
    """One that ends by itself when its input closes, and one that does not."""
    for watches in (True, False):
        running = run_group(
            ["/bin/sh", "-c", "cat"] if watches else ["/bin/sh", "-c", "trap '' TERM; while :; do sleep 1; done"],
            cwd=tmp_path,
            env={},
            timeout_s=0.05,
            on_output=lambda _: None,
            watches=watches,
        )
        with pytest.raises(TimeoutError):
            in_uvloop(running)


def test_a_command_holds_no_descriptor_of_ours(tmp_path: Path) -> None:
    """Not even one that is inheritable; uvloop's own processes have them all. Those that it is given are there."""
    reader, writer = os.pipe()
    os.set_inheritable(reader, True)
    os.set_inheritable(writer, True)
    said: list[bytes] = []
    running = run_group(
        ["/bin/sh", "-c", "for n in /proc/self/fd/*; do echo ${n##*/}; done"],
        cwd=tmp_path,
        env={},
        timeout_s=HANG_S,
        on_output=said.append,
        descriptors=[reader],
    )
    try:
        assert in_uvloop(running) == 0
    finally:
        os.close(reader)
        os.close(writer)
    numbers = {int(word) for word in b"".join(said).split()}
    assert reader in numbers
    assert len(numbers - {0, 1, 2, reader}) <= 1  # the folder that is being listed
