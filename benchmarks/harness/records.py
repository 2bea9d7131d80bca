"""What was found, as data: `results.json` holds one section a benchmark, each from one run."""

import os
import platform
import subprocess
from datetime import UTC, datetime
from pathlib import Path

import msgspec

from harness.declaring import FOLDER

RESULTS = FOLDER / "results.json"


class Machine(msgspec.Struct, frozen=True, kw_only=True):
    cpu: str
    cores: int
    kernel: str
    python: str
    node: str


class Record(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One figure of one system. `failed` says why there is none. `met` is None where there is no target."""

    group: str
    case: str
    system: str
    version: str
    measure: str
    unit: str
    median: float | None = None
    rounds: tuple[float, ...] = ()
    x: float | None = None
    at_most: float | None = None
    at_least: float | None = None
    met: bool | None = None
    failed: str = ""

    @property
    def spread(self) -> float | None:
        """From the lowest to the highest round, as a share of the median."""
        return (max(self.rounds) - min(self.rounds)) / self.median if self.median and len(self.rounds) > 1 else None


class RatioRecord(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """`times` less than `system`, the best of those that it was held against; None where none of them has a figure."""

    name: str
    group: str
    case: str
    measure: str
    system: str = ""
    times: float | None = None
    at_least: float | None = None
    met: bool | None = None


class Section(msgspec.Struct, frozen=True, kw_only=True):
    """One run of one benchmark."""

    machine: Machine
    measured_at: str  # UTC
    revision: str
    quick: bool
    records: tuple[Record, ...]
    ratios: tuple[RatioRecord, ...] = ()


def read_results(path: Path = RESULTS) -> dict[str, Section]:
    return msgspec.json.decode(path.read_bytes(), type=dict[str, Section]) if path.exists() else {}


def keep(name: str, section: Section, *, path: Path = RESULTS) -> None:
    """Put the section in place of the benchmark's earlier one; the others stay."""
    results = read_results(path)
    results[name] = section
    spare = path.with_suffix(".new")
    spare.write_text(_spelt(results))
    spare.replace(path)


def _spelt(results: dict[str, Section]) -> str:
    """JSON with a line for each record, so that a change of one figure is a change of one line."""
    sections: list[str] = []
    for name, section in sorted(results.items()):
        fields = msgspec.to_builtins(section)
        lines: list[str] = []
        for field, value in fields.items():
            if isinstance(value, tuple | list):
                rows = ",\n".join([f"   {_json(row)}" for row in value])
                lines.append(f"  {_json(field)}: [\n{rows}\n  ]" if value else f"  {_json(field)}: []")
            else:
                lines.append(f"  {_json(field)}: {_json(value)}")
        sections.append(f" {_json(name)}: {{\n" + ",\n".join(lines) + "\n }")
    return "{\n" + ",\n".join(sections) + "\n}\n"


def _json(value: object) -> str:
    return msgspec.json.encode(value).decode()


def this_machine() -> Machine:
    return Machine(
        cpu=_cpu(), cores=os.cpu_count() or 0, kernel=platform.release(), python=platform.python_version(), node=_node()
    )


def now() -> str:
    return datetime.now(UTC).strftime("%Y-%m-%d %H:%M")


def revision() -> str:
    """The commit that was measured, with a `+` where turnwise itself has been changed since."""
    try:
        head = _said("git", "rev-parse", "--short=10", "HEAD")
        return head + ("+" if _said("git", "status", "--porcelain", "--", "../src") else "")
    except (OSError, subprocess.CalledProcessError):
        return "unknown"


def _said(*argv: str) -> str:
    return subprocess.run(argv, cwd=FOLDER, capture_output=True, text=True, check=True).stdout.strip()


def _cpu() -> str:
    """Vendor's name, with family and model: virtual machines often say no more than `AMD EPYC`."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor() or platform.machine()
    said = {key.strip(): value.strip() for key, _, value in (line.partition(":") for line in reversed(lines))}
    return f"{said.get('model name', '?')} (family {said.get('cpu family', '?')}, model {said.get('model', '?')})"


def _node() -> str:
    try:
        return _said("node", "--version").removeprefix("v")
    except (OSError, subprocess.CalledProcessError):
        return ""
