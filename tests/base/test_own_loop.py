"""A loop that ends: what ignores its cancellation is left behind, everything else is tidied up."""

import asyncio
import gc
import os
import subprocess
import sys
import threading
import warnings
from collections.abc import AsyncGenerator, Callable
from pathlib import Path

import pytest

from turnwise.base.threads import quickest_loop, run_to_end
from waits import HANG_S

kept: list[object] = []  # what is left behind must not be collected, and loudly closed, in another test


async def stubborn() -> None:
    while True:
        try:
            await asyncio.get_running_loop().create_future()
        except asyncio.CancelledError:
            continue


def test_what_ignores_its_cancellation_is_left_behind() -> None:
    """A task, a thread that somebody waits for, and an async generator that does not close."""
    release = threading.Event()

    async def numbers() -> AsyncGenerator[int]:
        try:
            yield 1
        finally:
            await stubborn()

    async def main() -> str:
        generator = numbers()
        kept.extend(
            [generator, asyncio.create_task(stubborn()), asyncio.create_task(asyncio.to_thread(release.wait, HANG_S))]
        )
        await anext(generator)
        return "the answer"

    try:
        assert run_to_end(main(), settle_s=0.01) == "the answer"
    finally:
        release.set()


def test_what_can_be_tidied_up_is() -> None:
    """Tasks are cancelled and awaited, async generators closed, as `asyncio.run` does."""
    said: list[str] = []

    async def polite() -> None:
        try:
            await asyncio.get_running_loop().create_future()
        finally:
            await asyncio.sleep(0)
            said.append("task")

    async def numbers() -> AsyncGenerator[int]:
        try:
            yield 1
        finally:
            said.append("generator")

    async def main() -> None:
        kept.extend([generator := numbers(), asyncio.create_task(polite())])
        await anext(generator)

    run_to_end(main())
    assert said == ["task", "generator"]


def test_exceptions_go_through() -> None:
    """Those of the coroutine itself."""

    async def main() -> None:
        raise KeyError("x")

    with pytest.raises(KeyError):
        run_to_end(main())


@pytest.mark.parametrize("new_loop", [asyncio.new_event_loop, quickest_loop])
def test_ctrl_c_in_the_middle_of_a_task_shows_no_traceback(
    new_loop: Callable[[], asyncio.AbstractEventLoop], caplog: pytest.LogCaptureFixture
) -> None:
    """Python raises the second Ctrl-C wherever it is: the caller gets it, and the task that it went through says nothing more.
    Other exceptions that nobody caught are logged as ever."""

    async def interrupted() -> None:
        raise KeyboardInterrupt

    async def broken() -> None:
        raise ValueError("nobody caught me")

    async def main() -> None:
        tasks = [asyncio.create_task(broken()), asyncio.create_task(interrupted())]
        await asyncio.get_running_loop().create_future()
        del tasks

    with pytest.raises(KeyboardInterrupt):
        run_to_end(main(), new_loop=new_loop)
    gc.collect()
    assert [str(record.exc_info[1]) for record in caplog.records if record.exc_info] == ["nobody caught me"]


def test_our_own_programs_use_uvloop_where_it_is() -> None:
    """`turnwise run` and `compare`; a library's caller chooses."""
    uvloop = pytest.importorskip("uvloop", reason="the extra `uvloop` is not installed")

    async def loop() -> type[asyncio.AbstractEventLoop]:
        return type(asyncio.get_running_loop())

    assert run_to_end(loop(), new_loop=quickest_loop) is uvloop.Loop
    assert run_to_end(loop()) is not uvloop.Loop


def test_without_uvloop_there_is_asyncio(tmp_path: Path) -> None:
    """The extra is not needed."""
    (tmp_path / "uvloop.py").write_text("raise ImportError('hidden')")
    program = (
        "from turnwise.base.threads import quickest_loop as q; loop = q(); print(type(loop).__module__); loop.close()"
    )
    env = {**os.environ, "PYTHONPATH": str(tmp_path)}
    said = subprocess.run([sys.executable, "-c", program], env=env, capture_output=True, text=True, check=True).stdout
    assert said.startswith("asyncio.")


def test_ctrl_c_before_the_coroutine_begins_leaves_no_warning_behind() -> None:
    """Proves: what was never begun is closed, so Python does not say in front of a person that it was never awaited."""

    async def never() -> None:
        raise AssertionError("it has begun")

    def pressed() -> asyncio.AbstractEventLoop:
        raise KeyboardInterrupt

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises(KeyboardInterrupt):
            run_to_end(never(), new_loop=pressed)
        gc.collect()
