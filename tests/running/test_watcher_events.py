"""Those who watch a turn: what came together is told together, nobody harms the turn or another, nothing is lost."""

import asyncio
from collections.abc import Sequence

import pytest

from turnwise.running.watcher_events import Backlog, FrameSeen, StepStarted, WatcherEvent, Watchers
from turnwise.vocab import Frame, TextDelta
from waits import HANG_S

FRAMES: list[Frame] = [TextDelta("a"), TextDelta("b")]
SEEN: list[WatcherEvent] = [FrameSeen(1, frame) for frame in FRAMES]


def test_frames_of_one_read_are_fed_together_and_watched_one_by_one() -> None:
    """Everything else comes alone; a read that brought nothing tells nothing."""
    fed: list[Sequence[WatcherEvent]] = []
    watched: list[WatcherEvent] = []
    watchers = Watchers(watched.append, feed=fed.append)
    watchers.tell(StepStarted(1))
    watchers.tell_frames(FRAMES, number=1)
    watchers.tell_frames([], number=1)
    assert [list(batch) for batch in fed] == [[StepStarted(1)], SEEN]
    assert watched == [StepStarted(1), *SEEN]
    assert watchers.are_there and not Watchers(None, feed=None).are_there


def test_watcher_that_raises_is_left_out_and_silences_no_other(caplog: pytest.LogCaptureFixture) -> None:
    """In the middle of a batch: it sees nothing more, while the other sees all."""

    def broken(_: object) -> None:
        told.append(1)
        raise RuntimeError("broken screen")

    told: list[int] = []
    fed: list[WatcherEvent] = []
    watchers = Watchers(broken, feed=fed.extend)
    watchers.tell_frames(FRAMES, number=1)
    watchers.tell(StepStarted(2))
    assert told == [1] and fed == [*SEEN, StepStarted(2)]

    watched: list[WatcherEvent] = []
    watchers = Watchers(watched.append, feed=broken)
    watchers.tell_frames(FRAMES, number=1)
    watchers.tell(StepStarted(2))
    assert told == [1, 1] and watched == [*SEEN, StepStarted(2)]
    assert [record.message for record in caplog.records].count(
        "the watcher of a turn raised and is not called again in this turn"
    ) == 2


async def test_backlog_gives_what_is_there_at_once_and_ends_when_it_is_closed() -> None:
    """A consumer that was away takes all in order; one that waits is woken by the next batch, and by the end."""
    backlog = Backlog()
    backlog.put(SEEN[:1])
    backlog.put(SEEN[1:])
    assert await asyncio.wait_for(backlog.take(), timeout=HANG_S) == SEEN

    waiting = asyncio.create_task(backlog.take())
    await asyncio.sleep(0)
    assert not waiting.done()
    backlog.put([StepStarted(1)])
    backlog.put([StepStarted(2)])
    backlog.close()
    assert await asyncio.wait_for(waiting, timeout=HANG_S) == [StepStarted(1), StepStarted(2)]
    assert await asyncio.wait_for(backlog.take(), timeout=HANG_S) == []
