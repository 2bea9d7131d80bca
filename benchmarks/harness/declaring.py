"""What a benchmark declares: which processes to run in turn, what each of them measures, and what ought to come out."""

from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path

import msgspec

FOLDER = Path(__file__).resolve().parents[1]
PEERS_PYTHON = str(FOLDER / ".venv" / "peers" / "bin" / "python")
LITELLM_PYTHON = str(FOLDER / ".venv" / "litellm" / "bin" / "python")
PROCRASTINATE_PYTHON = str(FOLDER / ".venv" / "procrastinate" / "bin" / "python")
NODE_FOLDER = FOLDER / "node"
OTHER_API = " (its own API)"
"""Ends the name of a system that stands in a family's table with a request of another API: it does not do the same work there,
so it is no peer of that family's."""


class Measure(msgspec.Struct, frozen=True, kw_only=True):
    """One figure that a part finds. `group` is the table it stands in, `case` its column, `x` its place in a line plot."""

    key: str  # of the JSON object that the process prints
    group: str
    case: str
    name: str  # what is measured: "CPU a chunk"
    unit: str
    scale: float = 1.0  # what was printed times this is the figure
    x: float | None = None
    at_most: float | None = None  # the target, where there is one
    at_least: float | None = None


class Part(msgspec.Struct, frozen=True, kw_only=True):
    """One system's share of a benchmark: a command that runs once a round, in a process of its own.

    The last line that it prints is a JSON object with a number for each measure's key, and with `version`. What it says
    on standard error is shown where it fails. `per_round` is how often it runs in a round: small parts more than once.
    """

    system: str
    argv: tuple[str, ...]
    measures: tuple[Measure, ...]
    env: Mapping[str, str] = {}
    timeout_s: float = 180.0
    per_round: int = 1
    is_peer: bool = False


class Ratio(msgspec.Struct, frozen=True, kw_only=True):
    """How many times less `ours` takes than the best of `against` in the same run, and how many times were aimed at."""

    name: str  # "the openai SDK"
    group: str
    case: str
    measure: str
    against: tuple[str, ...]
    at_least: float | None = None
    ours: str = "turnwise"


class Bars(msgspec.Struct, frozen=True, kw_only=True, tag="bars"):
    """A plot with a bar for each system and case of one group; logarithmic, since systems differ by orders of magnitude."""

    file: str
    title: str
    group: str
    measure: str
    cases: tuple[str, ...] = ()  # all of the group where empty


class Lines(msgspec.Struct, frozen=True, kw_only=True, tag="lines"):
    """A plot of one group's measure over `x`, a line for each system, both axes logarithmic."""

    file: str
    title: str
    group: str
    measure: str
    x_label: str


class Headline(msgspec.Struct, frozen=True, kw_only=True):
    """A figure that stands at the top of the page, beside the best Python peer and the AI SDK; `system` is a way of ours."""

    what: str
    group: str
    case: str
    measure: str
    system: str = "turnwise"


class Options(msgspec.Struct, frozen=True, kw_only=True):
    """What the command line asked for. `quick` is for sizes that prove that it runs, not for figures to show."""

    quick: bool
    with_peers: bool
    long: bool  # sizes at which a peer takes minutes, too
    rounds: int
    folder: Path  # for prepared files; it is gone afterwards


class Benchmark(msgspec.Struct, frozen=True, kw_only=True):
    """A benchmark: `build` prepares everything (servers enter the stack) and returns its parts, in the order of a round."""

    name: str  # also that of its module
    title: str
    about: str  # what is measured and how, for the page
    build: Callable[[Options, ExitStack], Sequence[Part]]
    rounds: int = 5
    peer_rounds: int | None = None  # fewer for the peers, where a round of them takes a minute
    ratios: Sequence[Ratio] = ()
    plots: Sequence[Bars | Lines] = ()
    headlines: Sequence[Headline] = ()
    unmeasured: Mapping[tuple[str, str, str], str] = {}  # (group, case, system) that is no part -> what its cell says
    derive: Callable[[Mapping[tuple[str, str, str, str], float]], Sequence[tuple[str, Measure, float]]] | None = None
    """Figures that follow from the medians, by (group, case, name, system): each is a system, a measure and its value."""
