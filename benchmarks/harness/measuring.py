"""Run the parts of a benchmark in turn, each in a fresh process, round after round, and make records of what they print.

A round runs every system once before the next begins, so that a busy minute of the machine falls on all of them. A part
that fails is tried no further: its record says why, and the others go on.
"""

import json
import os
import signal
import statistics
import subprocess
import sys
from collections.abc import Mapping, Sequence

import msgspec

from harness.declaring import FOLDER, Benchmark, Measure, Part
from harness.records import RatioRecord, Record

QUIET = {
    "PYTHONWARNINGS": "ignore",
    "PYTHONHASHSEED": "0",
    "PYTHONDONTWRITEBYTECODE": "",  # compiled files have to be there from the second start on, as for anybody
    "NO_PROXY": "127.0.0.1",
    "no_proxy": "127.0.0.1",
    "OPENAI_API_KEY": "sk-nothing",
    "ANTHROPIC_API_KEY": "sk-nothing",
    "GEMINI_API_KEY": "nothing",
    "OPENAI_AGENTS_DISABLE_TRACING": "1",
    "LANGSMITH_TRACING": "false",
    "LANGCHAIN_TRACING_V2": "false",
    "LITELLM_LOCAL_MODEL_COST_MAP": "True",
    "LITELLM_TELEMETRY": "False",
    "DO_NOT_TRACK": "1",
    "NODE_ENV": "production",
}
UNWANTED = ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY")  # the provider is on loopback; nobody goes anywhere else
REASON_CHARACTERS = 300


class Found(msgspec.Struct):
    """What one part has printed so far."""

    part: Part
    version: str = ""
    values: dict[str, list[float]] = msgspec.field(default_factory=dict)
    failed: str = ""


def measure(parts: Sequence[Part], *, rounds: int, peer_rounds: int, quick: bool = False) -> list[Found]:
    """Everything that the parts print in so many rounds; the peers sit out the last ones where they have fewer."""
    found = [Found(part) for part in parts]
    for number in range(1, rounds + 1):
        for place, one in enumerate(found, start=1):
            if one.failed or (one.part.is_peer and number > peer_rounds):
                continue
            say(f"round {number}/{rounds}, {place}/{len(found)}: {one.part.system}")
            for _ in range(1 if quick else one.part.per_round):
                _run(one)
                if one.failed:
                    say(f"  failed: {one.part.system}: {one.failed}")
                    break
    return found


def records_of(found: Sequence[Found]) -> list[Record]:
    return [_record(one, measure) for one in found for measure in one.part.measures]


def derived(benchmark: Benchmark, records: Sequence[Record]) -> list[Record]:
    """The records that the benchmark works out from the medians of others."""
    if benchmark.derive is None:
        return []
    medians = {(r.group, r.case, r.measure, r.system): r.median for r in records if r.median is not None}
    versions = {record.system: record.version for record in records}
    return [
        _valued(measure, system=system, version=versions.get(system, ""), rounds=(value,))
        for system, measure, value in benchmark.derive(medians)
    ]


def ratios_of(benchmark: Benchmark, records: Sequence[Record]) -> list[RatioRecord]:
    """How turnwise stands to the systems that the benchmark wants it held against."""
    medians = {(r.group, r.case, r.measure, r.system): r.median for r in records if r.median}
    measured = {(record.group, record.case, record.measure) for record in records}
    found: list[RatioRecord] = []
    for ratio in benchmark.ratios:
        where = (ratio.group, ratio.case, ratio.measure)
        if where not in measured:
            continue  # a size that only longer runs have
        ours = medians.get((*where, ratio.ours))
        theirs = [(medians[(*where, system)], system) for system in ratio.against if (*where, system) in medians]
        best, system = min(theirs, default=(None, ""))
        times = best / ours if best and ours else None
        met = None if times is None or ratio.at_least is None else times >= ratio.at_least
        found.append(
            RatioRecord(
                name=ratio.name,
                group=ratio.group,
                case=ratio.case,
                measure=ratio.measure,
                system=system,
                times=_rounded(times) if times else None,
                at_least=ratio.at_least,
                met=met,
            )
        )
    return found


def say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def _run(one: Found) -> None:
    part = one.part
    kept = {name: value for name, value in os.environ.items() if name.upper() not in UNWANTED}
    try:
        done = _ended(part.argv, env=kept | QUIET | dict(part.env), timeout_s=part.timeout_s)
    except subprocess.TimeoutExpired:
        one.failed = f"took longer than {part.timeout_s:g} s"
        return
    except OSError as error:
        hint = "; `benchmarks/setup` installs the peers" if part.is_peer else ""
        one.failed = f"could not be started: {error.strerror}{hint}"
        return
    printed = _last_line(done.stdout)
    if done.returncode != 0 or printed is None:
        one.failed = f"exit {done.returncode}: {_last_words(done.stderr or done.stdout)}"
        return
    missing = [measure.key for measure in part.measures if not isinstance(printed.get(measure.key), int | float)]
    if missing:
        one.failed = f"printed no number for {', '.join(missing)}"
        return
    one.version = str(printed.get("version", one.version))
    for measure in part.measures:
        one.values.setdefault(measure.key, []).append(float(printed[measure.key]) * measure.scale)


def _ended(argv: Sequence[str], *, env: Mapping[str, str], timeout_s: float) -> "subprocess.CompletedProcess[str]":
    """What the program printed. The servers that it started end with it where it takes too long, and at Ctrl-C."""
    pipe = subprocess.PIPE
    with subprocess.Popen(
        argv, cwd=FOLDER, env=env, stdout=pipe, stderr=pipe, text=True, start_new_session=True
    ) as process:
        try:
            out, errors = process.communicate(timeout=timeout_s)
        except BaseException:
            os.killpg(process.pid, signal.SIGKILL)
            raise
    return subprocess.CompletedProcess(argv, process.returncode, out, errors)


def _last_line(text: str) -> dict[str, object] | None:
    lines = text.strip().splitlines()
    try:
        printed = json.loads(lines[-1]) if lines else None
    except ValueError:
        return None
    return printed if isinstance(printed, dict) else None


def _last_words(text: str) -> str:
    lines = [line.strip() for line in text.strip().splitlines() if line.strip()]
    return " ".join(lines[-2:])[-REASON_CHARACTERS:] or "it said nothing"


def _record(one: Found, measure: Measure) -> Record:
    values = one.values.get(measure.key, ())
    return _valued(measure, system=one.part.system, version=one.version, rounds=values, failed=one.failed)


def _valued(measure: Measure, *, system: str, version: str, rounds: Sequence[float], failed: str = "") -> Record:
    median = None if failed or not rounds else statistics.median(rounds)
    met = None
    if median is not None and measure.at_most is not None:
        met = median <= measure.at_most
    elif median is not None and measure.at_least is not None:
        met = median >= measure.at_least
    return Record(
        group=measure.group,
        case=measure.case,
        system=system,
        version=version,
        measure=measure.name,
        unit=measure.unit,
        median=None if median is None else _rounded(median),
        rounds=tuple([_rounded(value) for value in rounds]) if not failed else (),
        x=measure.x,
        at_most=measure.at_most,
        at_least=measure.at_least,
        met=met,
        failed=failed,
    )


def _rounded(value: float) -> float:
    """Four digits: more is noise."""
    return float(f"{value:.4g}")
