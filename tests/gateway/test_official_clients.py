"""The vendors' own clients at a real `turnwise gateway`, before the lab's malformed streams in every pair of families.

docs/gateway-cases.md has the whole table, beside the same clients without the gateway.
"""

from collections.abc import Iterator
from functools import cache

import pytest

from gateway.judged import (
    FAILING,
    FAMILIES,
    HEALTHY,
    HOPELESS,
    MALFORMED,
    SCRIPTS,
    UPSTREAMS,
    Cell,
    Stage,
    cells,
    stage,
)
from gateway.official_clients import Heard
from gateway.tool_loops import answer_after_results
from thoroughness import spread

SAMPLE = 7  # every so manieth cell that is no stream of Chat Completions, where nearly all cases are malformed


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stage]:
    with stage(tmp_path_factory.mktemp("gateway")) as found:
        yield found


@pytest.fixture(scope="module")
def wanted(served: Stage) -> dict[str, Heard | None]:
    return {case: served.wanted(case) for case in (*MALFORMED, *HEALTHY)}


@cache
def everything() -> tuple[Cell, ...]:
    return tuple([cell for case in (*MALFORMED, *HEALTHY) for cell in cells(case)])


def sampled() -> list[Cell]:
    """Streams of Chat Completions to each client (one of three in the check), and a fixed share of all else."""
    others = everything()[::SAMPLE]
    of_chat = [
        cell
        for cell in everything()
        if cell.upstream == "openai_chat" and cell.streamed and cell.case in MALFORMED and cell not in others
    ]
    return [*others, *spread(of_chat, one_of=3, name="official clients")]


def wrong(chosen: list[Cell], *, served: Stage, wanted: dict[str, Heard | None]) -> dict[Cell, object]:
    found = {cell: served.through(cell) for cell in chosen}
    return {cell: judged for cell, judged in found.items() if judged.verdict(wanted[cell.case]) != "right"}


@pytest.mark.costly
@pytest.mark.promise("heal:every-case")
@pytest.mark.parametrize("client", FAMILIES)
def test_official_clients_get_the_right_answer(client: str, served: Stage, wanted: dict[str, Heard | None]) -> None:
    """Text, calls and finish of a sample: all streams of Chat Completions, and a part of the rest."""
    chosen = [cell for cell in sampled() if cell.client == client]
    assert {cell.upstream for cell in chosen} == set(FAMILIES)
    assert wrong(chosen, served=served, wanted=wanted) == {}


@pytest.mark.costly
@pytest.mark.parametrize("upstream", UPSTREAMS)
@pytest.mark.parametrize("client", ["openai_chat", "anthropic_messages"])
def test_upstreams_that_no_client_speaks_answer_official_clients(
    upstream: str, client: str, served: Stage, wanted: dict[str, Heard | None]
) -> None:
    """Each healthy answer, streamed and not: text, parallel calls with ids, and the end."""
    spoken = [case for case in HEALTHY if SCRIPTS[case].speaks(upstream) and case != "refusal"]
    chosen = [Cell(case, upstream, client, streamed) for case in spoken for streamed in (True, False)]
    assert wrong(chosen, served=served, wanted=wanted) == {}


@pytest.mark.wide
@pytest.mark.promise("heal:every-case")
@pytest.mark.parametrize("case", [*MALFORMED, *HEALTHY])
def test_official_clients_get_the_right_answer_in_every_case(
    case: str, served: Stage, wanted: dict[str, Heard | None]
) -> None:
    """Every pair of families, streamed and not."""
    assert wanted[case] is not None
    assert wrong(list(cells(case)), served=served, wanted=wanted) == {}


@pytest.mark.wide
@pytest.mark.promise("heal:every-case")
@pytest.mark.parametrize("case", FAILING)
def test_official_clients_get_the_right_answer_or_one_error(case: str, served: Stage) -> None:
    """Where the upstream fails, no client gets an answer that only looks whole, or an exception that is not its own error."""
    meant = served.wanted(case)
    verdicts: dict[str, list[Cell]] = {}
    for cell in cells(case):
        served.forget()
        judged = served.through(cell)
        verdicts.setdefault(judged.verdict(meant), []).append(cell)
    assert set(verdicts) <= ({"error"} if case in HOPELESS else {"right", "error"}), verdicts


LOOPS = [(upstream, client) for upstream in FAMILIES for client in FAMILIES]


@pytest.mark.promise("heal:every-case")
@pytest.mark.parametrize("streamed", [True, False])
@pytest.mark.parametrize(("upstream", "client"), LOOPS)
def test_official_clients_get_the_answer_to_their_results(
    served: Stage, upstream: str, client: str, streamed: bool
) -> None:
    """The second request of a tool loop, with the first answer as the client has it: thoughts of another family are gone, and
    what an upstream asks for in their place is there."""
    model = Cell("reasoning-and-calls", upstream, client, streamed).model
    heard = answer_after_results(client, at=served.gateway, model=model, streamed=streamed)
    assert (heard.text, heard.calls, heard.finish) == ("I have read notes.txt.", (), "stop")


@pytest.mark.costly
def test_few_cases_are_hopeless() -> None:
    """Six at most, each with a reason and a script."""
    assert len(HOPELESS) <= 6
    assert all(HOPELESS.values())
    assert set(HOPELESS) <= set(FAILING) <= set(SCRIPTS)
