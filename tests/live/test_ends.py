"""What a real server does when a client leaves, and what turnwise does when a real server leaves or is not there yet."""

import contextlib
import fcntl
import os
import shutil
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from live.asking import bench, each_endpoint, written
from live.serving import LiveServer, model_file, serving, starting
from turnwise import FrameSeen, RetryPolicy, RunFinished, RunResult, Settings, StopReason
from turnwise.running.watcher_events import AttemptDiscarded
from turnwise.vocab import FaultKind, TextDelta

LONG = Settings(max_output_tokens=2000, temperature=0)
ON_AND_ON = {"ignore_eos": True}  # the model does not end by itself


@pytest.mark.promise("wait:cancel")
@each_endpoint
async def test_a_cancelled_turn_frees_the_slot_for_the_next(live: LiveServer, family: str) -> None:
    """Proves: the server has one slot, and an answer of 2,000 tokens under way in it. The next request is answered before these
    could have been written: the server has noticed that nobody reads any more."""
    before = live.decoded()
    async with bench(family, server=live) as at:
        agent = at.agent(settings=LONG, extra=ON_AND_ON, recover="off")
        result: RunResult | None = None
        story = agent.stream("Tell me a long story.")
        async for event in story:
            if isinstance(event, FrameSeen) and isinstance(event.frame, TextDelta):
                assert not live.is_idle()
                story.interrupt()
            if isinstance(event, RunFinished):
                result = event.result
        assert result is not None and result.stop_reason is StopReason.CANCELLED and result.text
        second = await at.agent().run("Say hello.")
        assert second.fault is None and second.text and live.is_idle()
    assert live.decoded() - before < LONG.max_output_tokens  # pyright: ignore[reportOperatorIssue]


@pytest.mark.promise("wait:retry", "cut:not-blamed")
@each_endpoint
async def test_a_server_killed_in_mid_stream_is_asked_again_when_it_is_back(tmp_path: Path, family: str) -> None:
    """Proves: the broken attempt is named and counts for nothing, and the answer is that of the new server alone."""
    faults: list[tuple[FaultKind, int | None]] = []
    with contextlib.ExitStack() as servers:
        server = servers.enter_context(serving(tmp_path))
        async with bench(family, server=server) as at:
            agent = at.agent(retry=RetryPolicy(base_s=0.01), recover="off")
            result: RunResult | None = None
            async for event in agent.stream("Tell me a long story."):
                if isinstance(event, FrameSeen) and isinstance(event.frame, TextDelta) and not faults:
                    server.kill()
                if isinstance(event, AttemptDiscarded):
                    assert event.fault is not None
                    if not faults:  # the next attempt is made once this is over
                        servers.enter_context(serving(tmp_path, port=server.port))
                    faults.append((event.fault.kind, event.fault.status))
                if isinstance(event, RunFinished):
                    result = event.result
            assert result is not None and result.fault is None and result.stop_reason is StopReason.ANSWERED
            assert faults == [(FaultKind.DISCONNECTED, None)] and result.requests_by_purpose == {"step": 1, "retry": 1}
            assert [one.status for one in at.exchanges] == [200, 200]
            assert result.text == written(at.exchanges[1]).strip()
            assert [entry.outcome for entry in result.ledger] == ["disconnected", "ok"]


@pytest.mark.promise("wait:retry", "end:reason")
async def test_a_server_that_is_killed_and_stays_away_is_named(tmp_path: Path) -> None:
    """Proves: the turn ends as a failure of the provider that says what it could not reach."""
    with serving(tmp_path) as server:
        async with bench("openai_chat", server=server) as at:
            agent = at.agent(retry=RetryPolicy(attempts=2, base_s=0.01))
            result: RunResult | None = None
            async for event in agent.stream("Tell me a long story."):
                if isinstance(event, FrameSeen) and isinstance(event.frame, TextDelta):
                    server.kill()
                if isinstance(event, RunFinished):
                    result = event.result
        assert result is not None and result.stop_reason is StopReason.PROVIDER_FAILED and not result.complete
        assert result.fault is not None and result.fault.kind is FaultKind.UNREACHABLE
        assert server.url.removeprefix("http://") in result.fault.message and result.why_incomplete


@contextlib.contextmanager
def held(file: Path) -> Iterator[int]:
    """A file that another process cannot open: the kernel makes it wait until `let_go`, 45 s at most (fcntl(2), F_SETLEASE)."""
    descriptor = os.open(file, os.O_RDWR)
    try:
        fcntl.fcntl(descriptor, fcntl.F_SETSIG, signal.SIGURG)  # who waits is told by a signal: this one is ignored
        fcntl.fcntl(descriptor, fcntl.F_SETLEASE, fcntl.F_WRLCK)
        yield descriptor
    finally:
        os.close(descriptor)


def let_go(descriptor: int) -> None:
    fcntl.fcntl(descriptor, fcntl.F_SETLEASE, fcntl.F_UNLCK)


@pytest.mark.promise("wait:retry")
@pytest.mark.skipif(
    not hasattr(fcntl, "F_SETLEASE"), reason="no leases on files here: nothing holds the model's file back"
)
async def test_a_model_that_still_loads_is_waited_for(tmp_path: Path) -> None:
    """Proves: `503 Loading model` is asked again past the usual four attempts, and the answer comes once the model is there. The
    model's file is held back until the server has said so six times."""
    model = tmp_path / "model.gguf"
    shutil.copyfile(model_file(), model)
    seen: list[tuple[FaultKind, int | None]] = []
    with held(model) as descriptor, starting(tmp_path, model=model) as server:
        server.wait_until_it_listens()
        async with bench("openai_chat", server=server, is_loaded=False) as at:
            agent = at.agent(retry=RetryPolicy(base_s=0.02))
            result: RunResult | None = None
            async for event in agent.stream("Say hello."):
                if isinstance(event, AttemptDiscarded) and event.fault is not None:
                    seen.append((event.fault.kind, event.fault.status))
                    if len(seen) == 6:
                        let_go(descriptor)
                if isinstance(event, RunFinished):
                    result = event.result
        assert result is not None and result.fault is None and result.text and result.stop_reason is StopReason.ANSWERED
        assert len(seen) >= 6 and set(seen) == {(FaultKind.OVERLOADED, 503)}
