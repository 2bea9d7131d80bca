"""How much the tests try, by TURNWISE_TESTS:

`check`  what each change has to pass, and what `pytest` does by itself: a quarter of the drawn examples, large tables in pairs.
         A run of all tests leaves out those that are marked as `costly`; a run of named files, as by `--changed`, does not.
`ci`     what `.ci/run` does: half of the examples and of the cases of each costly test, and of each large table a tenth of what
         `check` leaves out, drawn by a seed (TURNWISE_TESTS_SEED; without it by chance). pytest prints the seed.
`all`    everything, for `bash scripts/check --all`.

Nothing is drawn by chance but what `ci` adds.
"""

import itertools
import os
import random
from collections.abc import Iterable, Iterator, Sequence
from typing import Literal, TypeVar, get_args

T = TypeVar("T")
Profile = Literal["check", "ci", "all"]
Meeting = Literal["all", "pairs", "each"]
PARTS: dict[Profile, int] = {"check": 4, "ci": 2, "all": 1}  # one of so many drawn examples
FEWEST_EXAMPLES = 3
USUAL_EXAMPLES = 100  # of a property that says nothing: Hypothesis' own number
ONE_OF = 10  # that `ci` draws of what `check` leaves out
OF_COSTLY = 2  # cases of a costly test: `ci` draws one


def profile() -> Profile:
    named = os.environ.get("TURNWISE_TESTS", "check")
    found = [one for one in get_args(Profile) if one == named]
    assert found, f"TURNWISE_TESTS is `{named}`; it may be {', '.join(get_args(Profile))}"
    return found[0]


def seed() -> str:
    """What `ci` draws by. It is kept in the environment, so that all processes of the tests have the same."""
    return os.environ.setdefault("TURNWISE_TESTS_SEED", str(random.SystemRandom().randrange(1_000_000)))


def told() -> str:
    """How to do the same again."""
    return f"TURNWISE_TESTS={profile()}" + (f" TURNWISE_TESTS_SEED={seed()}" if profile() == "ci" else "")


def examples(whole: int) -> int:
    """How many of so many drawn examples the profile wants."""
    return min(whole, max(FEWEST_EXAMPLES, whole // PARTS[profile()]))


def rounds(whole: int, *, check: int) -> range:
    """The seeds of a test that draws by itself: `check` of them, in `ci` half of all or more, or all."""
    return range({"check": check, "ci": max(check, whole // PARTS["ci"]), "all": whole}[profile()])


def drawn(cases: Sequence[T], *, name: str, one_of: int = ONE_OF) -> list[T]:
    """Drawn by the seed, another one of each table: `name` is the table's. One at least, if there is one."""
    return random.Random(f"{seed()} {name}").sample(cases, -(-len(cases) // one_of))


def spread(cases: Iterable[T], *, one_of: int, name: str) -> list[T]:
    """Each `one_of`-th case of a table, in `ci` a tenth of the others, too; or all."""
    whole = list(cases)
    if profile() == "all":
        return whole
    places = set(range(0, len(whole), one_of))
    if profile() == "ci":
        places |= set(drawn([at for at in range(len(whole)) if at not in places], name=name))
    return [whole[at] for at in sorted(places)]


def cells(sizes: Sequence[int], *, meeting: Meeting, name: str) -> Iterator[tuple[int, ...]]:
    """The places in a table of these sizes that are tried, in their order. `check` takes all of them, those in which any two
    values of two axes meet (`pairs`), or those in which each value stands (`each`); `ci` takes a tenth of the others, too."""
    whole = itertools.product(*[range(size) for size in sizes])
    if profile() == "all" or meeting == "all":
        return whole
    wanted = set(
        pairs(sizes) if meeting == "pairs" else [tuple([n % size for size in sizes]) for n in range(max(sizes))]
    )
    if profile() == "ci":
        wanted |= set(drawn([place for place in whole if place not in wanted], name=name))
    return iter(sorted(wanted))


def pairs(sizes: Sequence[int]) -> list[tuple[int, ...]]:
    """Places in a table of these sizes, few, in which each value of an axis meets each value of each other axis.

    Each place begins with the first pair that is left and takes on each other axis the value that meets most of what is left.
    """
    axes = range(len(sizes))
    left = dict.fromkeys(
        [
            ((one, a), (other, b))
            for one, other in itertools.combinations(axes, 2)
            for a in range(sizes[one])
            for b in range(sizes[other])
        ]
    )
    if len(sizes) < 2:
        return [(at,) for size in sizes for at in range(size)]
    chosen: list[tuple[int, ...]] = []
    while left:
        place: dict[int, int] = dict(next(iter(left)))
        for axis in axes:
            if axis not in place:
                gains = [
                    sum([tuple(sorted([(axis, at), met])) in left for met in place.items()])
                    for at in range(sizes[axis])
                ]
                place[axis] = gains.index(max(gains))
        for pair in itertools.combinations(sorted(place.items()), 2):
            left.pop(pair, None)
        chosen.append(tuple([place[axis] for axis in axes]))
    return chosen
