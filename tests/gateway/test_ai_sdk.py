"""The AI SDK from npm at a real `turnwise gateway`, before the lab's malformed streams of Chat Completions."""

from collections.abc import Iterator

import pytest

from gateway.ai_sdk import SETUP, AiSdk, ai_sdk, missing
from gateway.judged import FAILING, FAMILIES, HEALTHY, HOPELESS, MALFORMED, Cell, Stage, stage

pytestmark = [
    pytest.mark.wide,
    pytest.mark.skipif(bool(missing()), reason=f"{missing()}: {SETUP}"),
    pytest.mark.promise("heal:every-case"),
]


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stage]:
    with stage(tmp_path_factory.mktemp("gateway")) as found:
        yield found


@pytest.fixture(scope="module")
def sdk() -> Iterator[AiSdk]:
    with ai_sdk() as found:
        yield found


def verdicts(case: str, *, served: Stage, sdk: AiSdk) -> dict[Cell, str]:
    meant = None if case in HOPELESS else served.wanted(case)
    found: dict[Cell, str] = {}
    for client in FAMILIES:
        for streamed in (True, False):
            served.forget()
            cell = Cell(case, "openai_chat", client, streamed)
            found[cell] = sdk.judge(cell, at=served.gateway, model=cell.model).verdict(meant)
    return found


@pytest.mark.parametrize("case", [*MALFORMED, *HEALTHY])
def test_the_ai_sdk_gets_the_right_answer_in_every_case(case: str, served: Stage, sdk: AiSdk) -> None:
    """With its providers for each family, streamed and not."""
    found = verdicts(case, served=served, sdk=sdk)
    assert {cell: verdict for cell, verdict in found.items() if verdict != "right"} == {}


@pytest.mark.parametrize("case", FAILING)
def test_the_ai_sdk_gets_the_right_answer_or_one_error(case: str, served: Stage, sdk: AiSdk) -> None:
    """Where the upstream fails, it gets no answer that only looks whole, and no exception but the server's error."""
    found = verdicts(case, served=served, sdk=sdk)
    allowed = {"error"} if case in HOPELESS else {"right", "error"}
    assert {cell: verdict for cell, verdict in found.items() if verdict not in allowed} == {}
