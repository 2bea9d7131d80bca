"""The command line that all benchmarks share, and what it does with a declared benchmark."""

import argparse
import sys
import tempfile
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path

import msgspec

from harness.declaring import Benchmark, Options
from harness.measuring import derived, measure, ratios_of, records_of, say
from harness.pages import draw_page, tables_of
from harness.records import RESULTS, Section, keep, now, read_results, revision, this_machine
from harness.starting import PeersMissing, refuse_to_lose


def run(benchmark: Benchmark, argv: Sequence[str] | None = None) -> int:
    """Measure, print the tables, and keep the results where they are to be shown."""
    options = _parser(benchmark).parse_args(argv)
    # A part of the systems or sizes for trying out is no run to show, unless a file is named for it.
    path: Path | None = options.results or (None if options.quick or options.only else RESULTS)
    try:
        section = take(
            benchmark,
            quick=options.quick,
            with_peers=options.only is None,
            long=options.long,
            rounds=options.rounds,
            replacing=path,
        )
    except PeersMissing as error:
        say(f"{benchmark.name}: {error}")
        return 2
    if path is not None:
        keep(benchmark.name, section, path=path)
    if options.json:
        sys.stdout.buffer.write(msgspec.json.format(msgspec.json.encode(section), indent=1) + b"\n")
    else:
        print("\n".join(tables_of(section, unmeasured=benchmark.unmeasured)))
    if path == RESULTS and not options.no_page:
        draw_page()
    return 1 if any(record.failed for record in section.records if record.system == "turnwise") else 0


def take(
    benchmark: Benchmark,
    *,
    quick: bool,
    with_peers: bool,
    long: bool,
    rounds: int | None,
    replacing: Path | None = None,
) -> Section:
    """One run of the benchmark, with its own numbers of rounds where none is given.

    Raises PeersMissing, before anything is measured, where the results in `replacing` have figures of peers that are not set
    up here.
    """
    own = 1 if quick else benchmark.rounds
    peers_own = 1 if quick else benchmark.peer_rounds or benchmark.rounds
    rounds, peer_rounds = (own, peers_own) if rounds is None else (rounds, rounds)
    say(f"== {benchmark.title}")
    with tempfile.TemporaryDirectory(prefix="turnwise-benchmark-") as folder, ExitStack() as stack:
        options = Options(quick=quick, with_peers=with_peers, long=long, rounds=rounds, folder=Path(folder))
        parts = [part for part in benchmark.build(options, stack) if with_peers or not part.is_peer]
        if replacing is not None:
            refuse_to_lose(parts, earlier=read_results(replacing).get(benchmark.name))
        records = records_of(measure(parts, rounds=rounds, peer_rounds=peer_rounds, quick=quick))
    records += derived(benchmark, records)
    return Section(
        machine=this_machine(),
        measured_at=now(),
        revision=revision(),
        quick=quick,
        records=tuple(records),
        ratios=tuple(ratios_of(benchmark, records)) if with_peers else (),
    )


def round_count(text: str) -> int:
    """What `--rounds` takes: a median of no rounds is none."""
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"`{text}` is no number of rounds: it has to be 1 or more")
    return int(text)


def _parser(benchmark: Benchmark) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=f"{benchmark.title}. {benchmark.about}")
    parser.add_argument(
        "--rounds", type=round_count, metavar="N", help=f"rounds to take the median of ({benchmark.rounds})"
    )
    parser.add_argument("--quick", action="store_true", help="tiny sizes, one round: proves that it runs")
    parser.add_argument("--long", action="store_true", help="sizes at which a peer takes minutes, too")
    parser.add_argument("--only", choices=["turnwise"], help="leave out the peers")
    parser.add_argument("--json", action="store_true", help="print the records as JSON in place of tables")
    parser.add_argument(
        "--results", type=Path, metavar="FILE", help="keep the results there (with the page only in results.json)"
    )
    parser.add_argument("--no-page", action="store_true", help="leave docs/performance.md as it is")
    return parser
