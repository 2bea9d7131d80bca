"""What ends the program from outside, as a cancellation: what is shown is put in order, and what was found is told."""

import asyncio
import contextlib
import signal
from collections.abc import Generator


@contextlib.contextmanager
def cancelling() -> Generator[None]:
    """SIGTERM and the end of the terminal cancel what is awaited here, so that the terminal is left as it was."""
    loop, task = asyncio.get_running_loop(), asyncio.current_task()
    assert task is not None
    numbers = [signal.SIGTERM]
    if signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:  # `nohup` wants it ignored
        numbers.append(signal.SIGHUP)
    for number in numbers:
        loop.add_signal_handler(number, task.cancel)
    try:
        yield
    finally:
        for number in numbers:
            loop.remove_signal_handler(number)
