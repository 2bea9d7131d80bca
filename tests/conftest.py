"""Rules for every test: loopback only, and the recorded streams, or those that stand in for them."""

import asyncio
import gc
import os
import signal
import socket
import sys
from collections.abc import Generator, Iterator
from pathlib import Path
from types import FrameType

import pytest
from hypothesis import settings

from postgres_server import own_postgres as own_postgres
from postgres_server import postgres_dsn as postgres_dsn
from postgres_server import postgres_server_dsn as postgres_server_dsn
from temporal_server import temporal_address as temporal_address
from thoroughness import OF_COSTLY, ONE_OF, USUAL_EXAMPLES, drawn, examples, profile, told
from waits import TEST_S

# The same examples every time, and no clock: a slow machine is not a failure.
settings.register_profile("turnwise", deadline=None, derandomize=True, max_examples=examples(USUAL_EXAMPLES))
settings.load_profile("turnwise")

# Whoever starts the tests in the background (`nohup`, `&`) has signals ignored, and each process that a test starts would
# inherit that: what a test says about signals holds for a process started as usual.
for _number, _usual in (
    (signal.SIGHUP, signal.SIG_DFL),
    (signal.SIGINT, signal.default_int_handler),
    (signal.SIGQUIT, signal.SIG_DFL),
    (signal.SIGTERM, signal.SIG_DFL),
):
    if signal.getsignal(_number) is signal.SIG_IGN:
        signal.signal(_number, _usual)

LOOPBACK = ("127.", "::1", "localhost")


def _refuse_other_machines(event: str, args: tuple[object, ...]) -> None:
    if event != "socket.connect":
        return
    address = args[1]
    if isinstance(address, tuple) and not str(address[0]).startswith(LOOPBACK):
        raise OSError(f"a test tried to reach {address[0]!r}; tests talk to loopback only")


sys.addaudithook(_refuse_other_machines)

CORPUS = Path(os.environ.get("TURNWISE_CORPUS") or Path(__file__).resolve().parents[2] / "shared" / "corpus")


@pytest.fixture(scope="session")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of recorded provider streams (TURNWISE_CORPUS, else ../shared/corpus); where there is none, our stand-ins."""
    from stand_ins import make_stand_ins  # it imports the lab, which most tests do without

    return CORPUS if CORPUS.is_dir() else make_stand_ins(tmp_path_factory.mktemp("stand-ins"))


@pytest.fixture
def closed_port() -> Iterator[int]:
    """A port at which nothing listens. It is kept meanwhile, so that no other process gets it; a server may be given it."""
    with socket.socket() as kept:
        kept.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        kept.bind(("127.0.0.1", 0))
        yield int(kept.getsockname()[1])


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol() -> Generator[None, object, object]:
    """A test whose own waits have no bound fails after `TEST_S`, with what its tasks wait for. One that no signal reaches is
    ended by `faulthandler_timeout` (pyproject.toml), with its process."""
    signal.signal(signal.SIGALRM, _end_test)
    signal.setitimer(signal.ITIMER_REAL, TEST_S)
    try:
        return (yield)
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)


def _end_test(_number: int, _frame: FrameType | None) -> None:
    waits = list[str]()
    for task in [one for one in gc.get_objects() if isinstance(one, asyncio.Task) and not one.done()]:
        waits.append(task.get_name())
        inner: object = task.get_coro()
        while (frame := getattr(inner, "cr_frame", getattr(inner, "ag_frame", None))) is not None:
            waits.append(f"  {frame.f_code.co_filename}:{frame.f_lineno} in {frame.f_code.co_qualname}")
            inner = getattr(inner, "cr_await", getattr(inner, "ag_await", None))
    pytest.fail("\n".join([f"the test has not ended after {TEST_S:g} seconds; its tasks:", *waits]))


# What was collected stays until the end: 12,000 tests, and all that they import. Nothing of it is garbage, and Python would
# look through it again and again.
gc.disable()


ALL_TESTS = "TURNWISE_TESTS_ARE_ALL"  # set where nobody named files, tests or words; the workers of xdist inherit it


def pytest_configure(config: pytest.Config) -> None:
    if not hasattr(config, "workerinput"):
        names_some = config.args_source is pytest.Config.ArgsSource.ARGS or config.option.keyword
        os.environ[ALL_TESTS] = "" if names_some else "1"


def pytest_report_header() -> str:
    """How to try as much again. The controller says it before its workers start, so they draw by the same seed."""
    return f"tests: {told()}"


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """In `ci` each wide test has a tenth of its cases, and each costly one half, drawn by the seed. In `check` a run of all is
    without costly ones."""
    left_out = list[pytest.Item]()
    if profile() == "ci":
        cases: dict[tuple[str, int], list[pytest.Item]] = {}
        for item in items:
            marks = {mark.name for mark in item.iter_markers()}
            if marks & {"wide", "costly"} and not marks & {"live", "agents", "engines"}:
                one_of = ONE_OF if "wide" in marks else OF_COSTLY
                cases.setdefault((item.nodeid.partition("[")[0], one_of), []).append(item)
        kept = {
            item.nodeid
            for (name, one_of), of_test in cases.items()
            for item in drawn(of_test, name=name, one_of=one_of)
        }
        left_out = [item for of_test in cases.values() for item in of_test if item.nodeid not in kept]
    elif profile() == "check" and os.environ[ALL_TESTS]:
        left_out = [item for item in items if item.get_closest_marker("costly") and not item.get_closest_marker("wide")]
    if left_out:
        config.hook.pytest_deselected(items=left_out)
        items[:] = [item for item in items if item not in set(left_out)]


def pytest_collection_finish() -> None:
    """What the tests make is collected as usual."""
    gc.collect()
    gc.freeze()
    gc.enable()


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Say how many recorded streams were compared: `.ci/run` looks for this line."""
    for report in terminalreporter.stats.get("passed", []):
        for name, value in getattr(report, "user_properties", ()):
            if name == "compared":
                terminalreporter.write_line(f"compared {value}")
