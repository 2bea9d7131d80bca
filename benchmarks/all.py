"""Every benchmark, one after another, each with its peers; writes `results.json` and `docs/performance.md`."""

import argparse
import time
import traceback
from datetime import UTC, datetime, timedelta
from importlib.util import find_spec
from pathlib import Path

from harness.command import round_count, take
from harness.measuring import say
from harness.names import NAMES, benchmark_of
from harness.pages import PAGE, draw_page
from harness.records import RESULTS, keep, read_results
from harness.starting import PeersMissing


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", help=f"which of {', '.join(NAMES)}; all where none is named")
    parser.add_argument("--rounds", type=round_count, metavar="N", help="rounds of each, in place of its own number")
    parser.add_argument(
        "--quick", action="store_true", help="tiny sizes, one round: proves that it runs; needs --results"
    )
    parser.add_argument("--long", action="store_true", help="sizes at which a peer takes minutes, too")
    parser.add_argument("--only", choices=["turnwise"], help="leave out the peers; needs --results")
    parser.add_argument(
        "--results", type=Path, metavar="FILE", help="keep the results there, and leave the page as it is"
    )
    parser.add_argument("--resume", action="store_true", help="leave out what was measured in the last two hours")
    parser.add_argument("--page", action="store_true", help="measure nothing: write the page from the results")
    parser.add_argument("--to", type=Path, default=PAGE.parent, metavar="FOLDER", help="with --page: write it there")
    options = parser.parse_args()
    if options.page:
        draw_page(results=options.results or RESULTS, folder=options.to)
        return 0
    if (options.quick or options.only) and options.results is None:
        parser.error("--quick and --only make no results to show: name a file with --results")
    if unknown := [name for name in options.names if name not in NAMES]:
        parser.error(f"there is no benchmark {', '.join(unknown)}")
    path = options.results or RESULTS
    failed = [
        name
        for name in options.names or NAMES
        if find_spec(name) is not None
        and not (options.resume and is_fresh(name, path=path))
        and not measured(name, options=options, path=path)
    ]
    if options.results is None:
        draw_page()
    if failed:
        say(f"failed: {', '.join(failed)}")
    return 1 if failed else 0


def measured(name: str, *, options: argparse.Namespace, path: Path) -> bool:
    """Whether turnwise has all its figures; the others' failures stand in the results."""
    began = time.monotonic()
    try:
        benchmark = benchmark_of(name)
        section = take(
            benchmark,
            quick=options.quick,
            with_peers=options.only is None,
            long=options.long,
            rounds=options.rounds,
            replacing=path,
        )
    except PeersMissing as error:
        say(f"{name}: {error}")
        return False
    except Exception:  # noqa: BLE001 (the other benchmarks are still worth their run)
        say(f"{name} broke:\n{traceback.format_exc()}")
        return False
    keep(name, section, path=path)
    say(f"{name}: {time.monotonic() - began:.0f} s")
    return not any(record.failed for record in section.records if record.system == "turnwise")


def is_fresh(name: str, *, path: Path) -> bool:
    section = read_results(path).get(name)
    if section is None:
        return False
    at = datetime.strptime(section.measured_at, "%Y-%m-%d %H:%M").replace(tzinfo=UTC)
    return datetime.now(UTC) - at < timedelta(hours=2)


if __name__ == "__main__":
    raise SystemExit(main())
