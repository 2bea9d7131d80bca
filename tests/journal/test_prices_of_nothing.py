"""What an answer costs that says nothing (docs/billing.md, "Five ways to be billed")."""

from decimal import Decimal

import pytest

from turnwise.journal.ledger import LedgerEntry, ReceivedResponse, ended_entry
from turnwise.rules.pricing import PriceRow, TokenPrices
from turnwise.wire import family as registry
from turnwise.wire.profiles import builtin_profiles
from whole_streams import read_stream

USAGE = b'"usage":{"prompt_tokens":1000000,"completion_tokens":0}'
EMPTY = (
    b'{"object":"chat.completion","choices":[{"index":0,"message":{"content":""},"finish_reason":"stop"}],'
    + USAGE
    + b"}"
)
NO_CHOICE = b'{"object":"chat.completion","choices":[],' + USAGE + b"}"
ROWS = {
    "tokens": PriceRow(plan="tokens", source="", tokens=(TokenPrices(input=Decimal(3), output=Decimal(15)),)),
    "request": PriceRow(plan="request", source="", request_usd=Decimal("0.01")),
    "step": PriceRow(plan="step", source="", step_usd=Decimal("0.02")),
}
NO_ENTRY = LedgerEntry(
    session="s",
    turn="t",
    root_session="s",
    root_turn="t",
    number=1,
    step=1,
    purpose="step",
    provider="p",
    model="m",
    started=0.0,
    sent_bytes=1,
)


@pytest.mark.parametrize(
    ("body", "prices"),
    [
        (EMPTY, {"tokens": Decimal(3), "request": Decimal("0.01"), "step": Decimal("0.02")}),
        (NO_CHOICE, {"tokens": None, "request": None, "step": None}),
        (b"", {"tokens": None, "request": None, "step": Decimal(0)}),
    ],
    ids=["an empty message", "no choice", "an empty body"],
)
def test_what_says_nothing_costs_what_the_page_says(body: bytes, prices: dict[str, Decimal | None]) -> None:
    """Proves: a whole answer is billed though it is empty, one without a finish reason has an unknown price, and an empty body is
    no answer. The page said of all three what holds for the last."""
    family, profile = registry.family("openai_chat"), builtin_profiles()["openai-chat"]
    response = read_stream([body], family=family, profile=profile, tool_names=frozenset())
    received = (
        ReceivedResponse(response=response)
        if response.fault is None
        else ReceivedResponse(fault=response.fault, is_answer=True)
    )
    for plan, usd in prices.items():
        entry = ended_entry(NO_ENTRY, received, ended=1.0, row=ROWS[plan], billed_in_step=0)
        assert entry.usd == usd, plan
