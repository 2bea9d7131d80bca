"""A plugin of pytest that records which test runs which line, or tries mutants with the tests that pytest has collected.

`MUTANTS_RECORD` names the file to record into. `MUTANTS_SERVE` gives two file descriptors: orders arrive at the first, one JSON
line each, and the outcome goes to the second. For each order a fork of this process takes the mutant's code and runs the tests:
nothing is imported or collected again. Started by `scripts/mutants.py`; it needs nothing that `mutmut` brings.
"""

import contextlib
import gc
import json
import os
import resource
import select
import signal
import time
from collections.abc import Generator, Iterator
from pathlib import Path
from types import CodeType, FunctionType

import pytest
from hypothesis import HealthCheck, Phase, settings

MEMORY_BYTES = 6 << 30  # of addresses, for a mutant that collects without end
TEST_S = 5.0  # for one test at least
SLOWER = 10  # times what it took when it was recorded, at most
AT_IMPORT = "at import"


@pytest.hookimpl(tryfirst=True)
def pytest_collection() -> None:
    """No search for a smaller example: the first that fails is enough."""
    kept = [Phase.explicit, Phase.generate]
    mutants = settings(settings.default, phases=kept, database=None, suppress_health_check=list(HealthCheck))
    settings.register_profile("mutants", mutants)
    settings.load_profile("mutants")


def pytest_configure(config: pytest.Config) -> None:
    if path := os.environ.get("MUTANTS_RECORD"):
        config.pluginmanager.register(Recorder(Path(path)))
    if fds := os.environ.get("MUTANTS_SERVE"):
        orders, outcomes = fds.split(",")
        config.pluginmanager.register(Server(int(orders), outcomes=int(outcomes)))


class Recorder:
    """Writes which tests passed, how long each took, and which lines each of them ran."""

    def __init__(self, path: Path) -> None:
        import coverage  # only here: who tries mutants has no need of it

        self.path = path
        self.root = Path(os.environ["MUTANTS_ROOT"])
        self.seconds: dict[str, float] = {}
        self.failed: set[str] = set()
        self.coverage = coverage.Coverage(
            data_file=None, source=[os.environ["MUTANTS_SOURCE"]], config_file=False, messages=False
        )
        self.coverage.start()

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Generator[None, object, object]:
        self.coverage.switch_context(item.nodeid)
        began = time.perf_counter()
        try:
            return (yield)
        finally:
            self.seconds[item.nodeid] = round(time.perf_counter() - began, 4)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if not report.passed:
            self.failed.add(report.nodeid)  # one that is left out for a reason judges nothing either

    def pytest_sessionfinish(self) -> None:
        self.coverage.stop()
        found = self.coverage.get_data()
        tests = list(self.seconds)
        numbers = {test: number for number, test in enumerate(tests)} | {"": -1}
        lines: dict[str, dict[int, list[int]]] = {}
        for file in sorted(found.measured_files()):
            contexts = found.contexts_by_lineno(file)
            lines[str(Path(file).relative_to(self.root))] = {
                line: sorted([numbers[one] for one in names]) for line, names in contexts.items()
            }
        recorded = {
            "tests": [[test, self.seconds[test]] for test in tests],
            "failed": sorted(self.failed),
            "lines": lines,
        }
        self.path.write_text(json.dumps(recorded))


class Server:
    """Tries one mutant after the other, each in a fork of this process."""

    def __init__(self, orders: int, *, outcomes: int) -> None:
        self.orders = os.fdopen(orders, "rb")
        self.outcomes = os.fdopen(outcomes, "wb")
        self.judge: int | None = None  # in a fork: where it says what becomes of its tests

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if self.judge is not None and report.failed:
            os.write(self.judge, f"!{report.nodeid}\n".encode())
            os._exit(0)

    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        items = {item.nodeid: item for item in session.items}
        gc.unfreeze()  # else those that are kept from the collector would not be found
        functions = functions_by_place()
        gc.collect()
        gc.freeze()
        self._say({"ready": len(items)})
        for line in self.orders:
            self._say(self._try(json.loads(line), items=items, functions=functions))
        return True

    def _say(self, outcome: dict[str, object]) -> None:
        self.outcomes.write(json.dumps(outcome).encode() + b"\n")
        self.outcomes.flush()

    def _try(
        self,
        order: dict[str, object],
        *,
        items: dict[str, pytest.Item],
        functions: "dict[Place, list[FunctionType]]",
    ) -> dict[str, object]:
        code: CodeType | None = None
        changed: list[FunctionType] = []
        if order["source"]:
            place = (str(order["file"]), str(order["function"]), int(str(order["line"])))
            changed = functions.get(place, [])
            code = code_at(compile(str(order["source"]), place[0], "exec"), place=place)
            if (
                code is None
                or not changed
                or any(len(code.co_freevars) != len(one.__code__.co_freevars) for one in changed)
            ):
                return {"outcome": "apart"}
        tests: list[tuple[str, float]] = [(str(name), float(seconds)) for name, seconds in order["tests"]]  # type: ignore[attr-defined]
        reading, writing = os.pipe()
        child = os.fork()
        if child == 0:
            os.close(reading)
            self._run(writing, code=code, changed=changed, chosen=[items[name] for name, _ in tests])
        os.close(writing)
        try:
            return watched(reading, seconds=dict(tests))
        finally:
            os.close(reading)
            with contextlib.suppress(ProcessLookupError):
                os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)

    def _run(
        self, writing: int, *, code: CodeType | None, changed: list[FunctionType], chosen: list[pytest.Item]
    ) -> None:
        """In the fork: take the code, run the tests, and end."""
        self.judge = writing
        at = ""
        try:
            resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES, MEMORY_BYTES))
            resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
            for function in changed:
                assert code is not None
                function.__code__ = code
            for item, following in zip(chosen, [*chosen[1:], None], strict=True):
                at = item.nodeid
                os.write(writing, f"?{at}\n".encode())
                item.config.hook.pytest_runtest_protocol(item=item, nextitem=following)
            os.write(writing, b".\n")
        except BaseException:  # noqa: BLE001 - whatever a mutant raises through pytest itself
            os.write(writing, f"!{at}\n".encode())
        finally:
            os._exit(0)


Place = tuple[str, str, int]  # file, qualified name, first line


def functions_by_place() -> dict[Place, list[FunctionType]]:
    found: dict[Place, list[FunctionType]] = {}
    for one in gc.get_objects():
        if type(one) is FunctionType:
            code = one.__code__
            found.setdefault((code.co_filename, code.co_qualname, code.co_firstlineno), []).append(one)
    return found


def code_at(code: CodeType, *, place: Place) -> CodeType | None:
    """The code of the function that stands there."""
    return next((one for one in all_codes(code) if (one.co_qualname, one.co_firstlineno) == place[1:]), None)


def all_codes(code: CodeType) -> Iterator[CodeType]:
    for one in code.co_consts:
        if isinstance(one, CodeType):
            yield one
            yield from all_codes(one)


def watched(reading: int, *, seconds: dict[str, float]) -> dict[str, object]:
    """What became of a fork's tests. Each has a time of its own."""
    at, limit, rest = "", TEST_S, b""
    while True:
        ready, _, _ = select.select([reading], [], [], limit)
        if not ready:
            return {"outcome": "timed out", "by": at}
        arrived = os.read(reading, 65536)
        if not arrived:  # the fork died without a word: a mutant that took all memory, or broke the interpreter
            return {"outcome": "killed", "by": at}
        *lines, rest = (rest + arrived).split(b"\n")
        for line in lines:
            mark, name = line[:1], line[1:].decode()
            if mark == b"!":
                return {"outcome": "killed", "by": name}
            if mark == b".":
                return {"outcome": "survived"}
            at, limit = name, TEST_S + SLOWER * seconds.get(name, 0.0)
