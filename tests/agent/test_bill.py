"""A run's bill as rows and as a drawing: what they say is what the ledger says."""

import subprocess
import sys
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path

import matplotlib
import pytest

from turnwise import Agent
from turnwise.agent.bill_drawing import KINDS, drawn, recovery_shares, token_kinds
from turnwise.agent.results import Bill, BillRow
from turnwise.journal.ledger import LedgerEntry
from turnwise.testing import ScriptedModel, call
from turnwise.vocab import Usage

matplotlib.use("Agg")

FIRST = LedgerEntry(
    session="s",
    turn="t",
    root_session="s",
    root_turn="t",
    number=1,
    step=1,
    purpose="step",
    provider="openai",
    model="gpt-5",
    started=1_700_000_000.0,
    first_event=1_700_000_000.5,
    ended=1_700_000_002.0,
    sent_bytes=100,
    received_bytes=50,
    outcome="overloaded",
    discarded=True,
    usd=Decimal(0),
)
SECOND = LedgerEntry(
    session="s",
    turn="t",
    root_session="s",
    root_turn="t",
    number=2,
    step=1,
    purpose="retry",
    retry_of="step",
    provider="openai",
    model="gpt-5",
    started=1_700_000_003.0,
    ended=1_700_000_004.25,
    sent_bytes=100,
    received_bytes=70,
    outcome="ok",
    calls=1,
    usage=Usage(
        input_tokens=100, output_tokens=30, reasoning_tokens=10, cache_read_tokens=60, untold=("cache_write_tokens",)
    ),
    usd=Decimal("0.02"),
)
BELOW = LedgerEntry(
    session="c",
    turn="u",
    root_session="s",
    root_turn="t",
    number=1,
    step=1,
    purpose="step",
    path=("editor", "reader"),
    provider="openai",
    model="gpt-5",
    started=1_700_000_005.0,
    sent_bytes=10,
)
BILL = Bill((FIRST, SECOND, BELOW))


def test_each_request_is_a_row_of_plain_values() -> None:
    """What nobody knows is None: no count that the provider did not tell, no end, no price. A retry counts its attempts."""
    rows = BILL.to_rows()
    wanted: list[BillRow] = [
        {
            "number": 1,
            "path": "",
            "step": 1,
            "purpose": "step",
            "attempt": 1,
            "provider": "openai",
            "model": "gpt-5",
            "outcome": "overloaded",
            "discarded": True,
            "started": datetime(2023, 11, 14, 22, 13, 20, tzinfo=UTC),
            "seconds": 2.0,
            "first_event_seconds": 0.5,
            "input_tokens": None,
            "output_tokens": None,
            "reasoning_tokens": None,
            "cache_read_tokens": None,
            "cache_write_tokens": None,
            "calls": 0,
            "sent_bytes": 100,
            "received_bytes": 50,
            "cost_usd": Decimal(0),
        },
        {
            "number": 2,
            "path": "",
            "step": 1,
            "purpose": "retry",
            "attempt": 2,
            "provider": "openai",
            "model": "gpt-5",
            "outcome": "ok",
            "discarded": False,
            "started": datetime(2023, 11, 14, 22, 13, 23, tzinfo=UTC),
            "seconds": 1.25,
            "first_event_seconds": None,
            "input_tokens": 100,
            "output_tokens": 30,
            "reasoning_tokens": 10,
            "cache_read_tokens": 60,
            "cache_write_tokens": None,
            "calls": 1,
            "sent_bytes": 100,
            "received_bytes": 70,
            "cost_usd": Decimal("0.02"),
        },
    ]
    assert rows[:2] == wanted
    assert [type(row) for row in rows] == [dict] * 3
    last = rows[2]
    assert (last["path"], last["attempt"], last["seconds"], last["outcome"], last["cost_usd"]) == (
        "editor/reader",
        1,
        None,
        None,
        None,
    )
    assert Bill().to_rows() == []


def test_a_bill_is_a_sequence_equal_by_content() -> None:
    """As the tuple that it was: it can be counted, indexed, sliced, walked, hashed and compared."""
    assert (len(BILL), BILL[1], list(BILL), BILL[1:]) == (3, SECOND, [FIRST, SECOND, BELOW], (SECOND, BELOW))
    assert BILL == Bill((FIRST, SECOND, BELOW)) == (FIRST, SECOND, BELOW)
    assert hash(BILL) == hash(Bill((FIRST, SECOND, BELOW)))
    assert Bill((FIRST,)) != BILL


def scripted_run() -> tuple[Agent, ScriptedModel]:
    def add(a: int, b: int) -> int:
        return a + b

    model = ScriptedModel([call("add", a=1, b=2), "It is 3."])
    return Agent(model, tools=[add]), model


@pytest.mark.costly
def test_a_run_has_a_row_and_a_mark_for_each_of_its_requests() -> None:
    """Proves: the rows of a real run are its ledger, and its figure can be written without a warning."""
    agent, model = scripted_run()
    result = agent.run_sync("How much is 1 and 2?")
    assert [row["number"] for row in result.ledger.to_rows()] == [1, 2] == list(range(1, len(model.asked) + 1))
    titles = [axes.get_title() for axes in result.plot().axes]
    assert [title.partition(":")[0] for title in titles] == [
        "Requests over time",
        "Tokens by kind",
        "What recovery cost",
    ]


@pytest.mark.parametrize("entries", [BILL, Bill(), Bill((BELOW,)), Bill([SECOND] * 2_000)], ids=len)
def test_any_bill_can_be_drawn(entries: Bill, tmp_path: Path) -> None:
    """Also none, one without an end, and a long one. Warnings are errors here."""
    figure = drawn(entries)
    figure.savefig(tmp_path / "bill.png")
    assert (tmp_path / "bill.png").stat().st_size > 1_000
    assert figure.get_suptitle().startswith(f"{len(entries):d} request")


def test_tokens_apart_add_up_to_the_request() -> None:
    """Cached input is part of the input, reasoning of the output: neither is drawn twice."""
    kinds = token_kinds(Usage(input_tokens=100, output_tokens=30, reasoning_tokens=10, cache_read_tokens=60))
    assert dict(zip(KINDS, kinds, strict=True)) == {
        "input": 40,
        "read from cache": 60,
        "written to cache": 0,
        "output": 20,
        "reasoning": 10,
    }


def test_recovery_is_told_in_dollars_where_every_price_is_known_and_else_in_tokens() -> None:
    """A sum with an unknown part would look cheap."""
    assert recovery_shares((FIRST, SECOND)) == ("US dollars", {"given up": 0.0, "retry": 0.02})
    assert recovery_shares(BILL) == ("tokens", {"given up": 0, "retry": 130, "step": 0})


def test_without_matplotlib_the_error_says_what_to_install() -> None:
    """In a process that cannot import it; nothing but `plot` asks for it."""
    program = (
        "import sys\nsys.modules['matplotlib'] = None\nsys.modules['matplotlib.figure'] = None\n"
        "from turnwise import CallerError\nfrom turnwise.agent.results import Bill\n"
        "from turnwise.agent.bill_drawing import drawn\n"
        "try:\n    drawn(Bill())\nexcept CallerError as error:\n    print(error)\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "`plot` draws with matplotlib, which is not installed: `pip install matplotlib`"


def test_a_run_imports_no_matplotlib() -> None:
    """Only `plot` does."""
    program = "from turnwise import Agent, RunResult, messages_from\nimport sys\nprint('matplotlib' in sys.modules)\n"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"
