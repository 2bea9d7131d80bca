"""The bill of what served: a hand-made table of bills, one for each field of usage and each level of a model."""

import json
import sqlite3
import tomllib
from datetime import date
from decimal import Decimal
from importlib.resources import files
from pathlib import Path

import msgspec
import pytest

import recordings
from journal.test_ledger import written
from journal.test_prices import NOW
from tables import each
from turnwise import Journal
from turnwise.agent.formatting import cost_said
from turnwise.journal.ledger import LedgerEntry, ReceivedResponse, cost_of, ended_entry
from turnwise.journal.ledger_queries import LedgerSpan
from turnwise.journal.prices import NO_PRICES, Prices, read_prices
from turnwise.rules.limits import MaxCost, Spent
from turnwise.rules.pricing import (
    Cost,
    Priced,
    PriceRow,
    TokenPrices,
    asked_times,
    dearest_times,
    is_ordinary,
    price_of,
    projected_usd,
)
from turnwise.rules.prompt_room import ModelLimits, PromptSize, measured, witnessed
from turnwise.rules.provider_tool_costs import models_named, terms_asked
from turnwise.testing import FakeClock
from turnwise.turn.events import ResponseReceived
from turnwise.turn.turn_spending import AtStake, Purse
from turnwise.vocab import Response, Usage
from turnwise.wire import family as registry
from turnwise.wire.anthropic_messages.endings import USAGE as CLAUDE_USAGE
from turnwise.wire.gemini.endings import USAGE as GEMINI_USAGE
from turnwise.wire.openai_chat.endings import USAGE as CHAT_USAGE
from turnwise.wire.openai_responses.open_response import USAGE as RESPONSES_USAGE
from turnwise.wire.profiles import builtin_profiles
from whole_streams import read_stream


class Bill(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One of the table: a usage object and what it costs."""

    model: str
    usage: str
    usd: str
    tier: str = ""
    asked: str = ""
    least: str = ""


TABLE = Path(__file__).with_name("served_bills.toml")
BILLS = msgspec.convert(tomllib.loads(TABLE.read_text(encoding="utf-8")), dict[str, dict[str, Bill]])
NAMES = [(profile, name) for profile, bills in BILLS.items() for name in bills]

LISTED = {
    "fallback_credit.status.type=redeemed": "a retry after a refusal, whose cache writes are billed as reads",
    "service_tier=priority": "Anthropic's is paid for beforehand; OpenAI's has no published price for some models",
    "service_tier=scale": "paid for beforehand",
    "trafficType=PROVISIONED_THROUGHPUT": "paid for beforehand",
    "serviceTier=priority": "a range is published",
    "search_context_size": "the fee of a search depends on it",
    "completion_tokens_details.image_tokens": "images that a model writes cost more than its words",
    "input_tokens_details.cache_write_tokens_details.ttl_12h_tokens": "no price is published",
    "responseTokenCount": "the Live API's own count",
    "responseTokensDetails.AUDIO": "the Live API's own count",
}
"""The fields of the vendors' that make an amount 'at least', and why. At most ten."""


def body_of(bill: Bill, *, family: str) -> bytes:
    """A response of that family with the usage."""
    usage, tier = json.loads(bill.usage), {"service_tier": bill.tier} if bill.tier else {}
    match family:
        case "anthropic_messages":
            content = [{"type": "text", "text": "Done."}]
            own: object = {
                "content": content,
                "stop_reason": "end_turn",
                "usage": usage,
                "type": "message",
                "role": "assistant",
            }
        case "openai_chat":
            choice = {"index": 0, "message": {"role": "assistant", "content": "Done."}, "finish_reason": "stop"}
            own = {"object": "chat.completion", "choices": [choice], "usage": usage, **tier}
        case "openai_responses":
            said = {"type": "output_text", "text": "Done.", "annotations": []}
            item = {"type": "message", "id": "m", "role": "assistant", "status": "completed", "content": [said]}
            own = {"object": "response", "status": "completed", "output": [item], "usage": usage, **tier}
        case _:
            candidate = {"content": {"role": "model", "parts": [{"text": "Done."}]}, "finishReason": "STOP"}
            own = {"candidates": [candidate], "usageMetadata": usage}
    return json.dumps({"id": "r", "model": bill.model, **own} if family != "gemini" else own).encode()  # type: ignore[dict-item]


def response_of(bill: Bill, *, profile: str) -> Response:
    known = builtin_profiles()[profile]
    return read_stream([body_of(bill, family=known.family)], family=registry.family(known.family), profile=known)


def entry_of(bill: Bill, *, profile: str, number: int = 1) -> LedgerEntry:
    """The ledger's entry of it."""
    entry = LedgerEntry(
        session="s",
        turn="t",
        root_session="s",
        root_turn="t",
        number=number,
        step=number,
        purpose="step",
        provider=profile,
        model=bill.model,
        started=NOW,
        sent_bytes=1,
    )

    def row_of(model: str) -> PriceRow | None:
        return NO_PRICES.find(model, profile=profile, at_s=NOW)

    return ended_entry(
        entry,
        ReceivedResponse(response=response_of(bill, profile=profile)),
        ended=NOW + 1,
        row=row_of(bill.model),
        billed_in_step=0,
        asked=(bill.asked,) if bill.asked else (),
        row_of=row_of,
    )


@pytest.mark.promise("bill:served")
@each(("profile", "name"), NAMES)
def test_each_bill_is_what_the_lists_say_by_hand(profile: str, name: str) -> None:
    """Issue 41, done when 2. What is not known is said, and never left out in silence."""
    bill = BILLS[profile][name]
    entry = entry_of(bill, profile=profile)
    assert (entry.usd, entry.priced_by) == (Decimal(bill.usd), "least" if bill.least else "table"), entry.price_note
    assert bill.least in entry.price_note
    assert entry.is_at_least == entry.price_note.startswith("at least: ") == bool(bill.least)


@pytest.mark.promise("bill:served")
def test_the_table_has_each_field_that_costs() -> None:
    """Every count, part and word of the families' tables that vendors' own packages have stands in a bill."""
    seen = " ".join([bill.usage for bills in BILLS.values() for bill in bills.values()])
    compatible = {
        "reasoning_tokens",
        "prompt_cache_hit_tokens",
        "cached_tokens",
        "total_tokens",
        "toolUsePromptTokenCount",
    }
    for table in (CLAUDE_USAGE, RESPONSES_USAGE, CHAT_USAGE, GEMINI_USAGE):
        for path, field in table.fields.items():
            last = path.rpartition(".")[2]
            if field.meaning in ("count", "part", "term") and last not in compatible:
                told = "service_tier" if last == "service_tier" else f'"{last}"'
                assert told in seen or last == "cachedContentTokenCount", path


@pytest.mark.promise("bill:served")
def test_each_way_to_be_served_has_its_source_and_holds_for_own_rows() -> None:
    """A page and a date for each figure; a user's row is a price of the standard service."""
    text = files("turnwise.journal").joinpath("price_terms.toml").read_text(encoding="utf-8")
    terms = tomllib.loads(text)["terms"]
    assert all(date.fromisoformat(one["date"]) and "https://" in one["source"] for one in terms)
    own = Prices(user=read_prices({"claude-opus-5-5": {"input": 1, "output": 2}}, named="mine", source="mine"))
    row = own.find("claude-opus-5-5", profile="anthropic", at_s=NOW)
    assert row is not None and {term.term: term.times for term in row.terms}["speed=fast"] == 2
    elsewhere = own.find("claude-opus-5-5", profile="openai_chat", at_s=NOW)
    assert elsewhere is not None and elsewhere.terms == ()


@pytest.mark.costly
@pytest.mark.promise("bill:served")
def test_at_most_ten_fields_make_an_amount_at_least(corpus: Path) -> None:
    """Over all recordings only those that are listed do, each with its reason."""
    assert len(LISTED) <= 10
    plain = PriceRow(plan="tokens", source="test", tokens=(TokenPrices(input=Decimal(1), output=Decimal(1)),))
    looked_at, found = 0, set[str]()
    for row in recordings.rows(corpus):
        response = recordings.decode(row)
        if response.usage is None:
            continue
        looked_at += 1
        known = NO_PRICES.find(response.model or "", profile=recordings.profile_of(row).name, at_s=NOW)
        terms = () if known is None else known.terms
        price = price_of(response.usage, row=msgspec.structs.replace(plain, terms=terms), row_of=lambda _: plain)
        if isinstance(price, Priced) and price.at_least:
            why = price.at_least
            found.add(why)
            exact = {term.term for term in terms if term.at_most is None}
            doubts = {*response.usage.unread, *[one for one in response.usage.terms if not is_ordinary(one)]} - exact
            assert doubts <= LISTED.keys(), (row.file, why)
    assert looked_at > 1_000
    assert all(any(name in why for name in LISTED) for why in found), found


@pytest.mark.promise("bill:served")
def test_the_window_is_read_from_the_last_prompt_that_the_model_saw() -> None:
    """A summary of 55,196 tokens fills no window: the 181 that stand there after it do. An advisor's prompt is its own."""
    usage = response_of(BILLS["anthropic"]["compaction"], profile="anthropic").usage
    assert usage is not None and (usage.input_tokens, usage.output_tokens) == (55_377, 91)
    assert measured(PromptSize(added_bytes=600), usage=usage).measured_tokens == 181
    limits = ModelLimits(context_window_tokens=50_000, max_input_tokens=50_000, max_output_tokens=64)
    assert witnessed(limits, usage=usage) == limits
    advised = response_of(BILLS["anthropic"]["advisor"], profile="anthropic").usage
    assert advised is not None and advised.last_sampling.input_tokens == 3_676
    unseen = Bill(
        model="m",
        usd="0",
        usage='{"iterations":[{"type":"compaction","input_tokens":9,"output_tokens":1}],"input_tokens":0,"output_tokens":0}',
    )
    paused = response_of(unseen, profile="anthropic").usage
    assert measured(PromptSize(added_bytes=600), usage=paused) == PromptSize(added_bytes=600)


def stake_of(name: str, *, profile: str = "anthropic") -> tuple[AtStake, Response]:
    bill = BILLS[profile][name]
    row = NO_PRICES.find(bill.model, profile=profile, at_s=NOW)
    assert row is not None
    return AtStake(row=row, model=bill.model, step=1, projected_usd=Decimal(1)), response_of(bill, profile=profile)


@pytest.mark.promise("bill:served")
@pytest.mark.parametrize(
    ("name", "usd", "at_dearest"),
    [
        ("plain", "0.014", 0),
        ("fast", "0.028", 0),
        ("new-field", "0.0308", 1),  # 0.014, twice for `speed=fast`, 1.1 times for `inference_geo=us`
        ("priority", "0.0308", 1),
    ],
)
def test_a_limit_of_cost_reckons_with_the_dearest_known_price(name: str, usd: str, at_dearest: int) -> None:
    """And says so. A price that is known whole counts as it is."""
    stake, response = stake_of(name)
    event = ResponseReceived(number=1, response=response, at_s=1.0)
    purse = Purse().stakes(stake).saw(event, searches=False, rows={})
    assert (purse.usd, purse.at_dearest, purse.projected) == (Decimal(usd), at_dearest, 0)
    said = MaxCost(Decimal(1)).said(Spent(cost_usd=purse.usd) + purse.guessed)
    assert ("1 request at the dearest known price, as a part is unknown" in said) == bool(at_dearest)


@pytest.mark.promise("bill:served")
def test_a_limit_of_cost_knows_the_advisors_price() -> None:
    """A model that is named beside the one that is asked has its row; one without makes the sum the dearest that is known."""
    stake, response = stake_of("advisor")
    event = ResponseReceived(number=1, response=response, at_s=1.0)
    advisor = NO_PRICES.find("claude-opus-4-8", profile="anthropic", at_s=NOW)
    assert advisor is not None
    known = Purse().stakes(stake).saw(event, searches=False, rows={"claude-opus-4-8": advisor})
    assert (known.usd, known.at_dearest) == (Decimal("0.154004"), 0)
    unknown = Purse().stakes(stake).saw(event, searches=False, rows={})
    assert (unknown.usd, unknown.at_dearest) == (Decimal("0.0477004"), 1)  # 0.043364 times 1.1
    extra = {
        "tools": [{"type": "advisor_20260301", "model": "claude-opus-4-8"}, {"type": "web"}],
        "fallbacks": [{"model": "b"}],
    }
    assert models_named(json.dumps(extra)) == ("claude-opus-4-8", "b")


@pytest.mark.promise("bill:served")
def test_what_is_asked_for_is_in_the_projection() -> None:
    """Fast service is projected at its own price; a cheaper one may not be given; one of unknown price at the dearest."""
    row = NO_PRICES.find("claude-opus-5-5", profile="anthropic", at_s=NOW)
    assert row is not None and dearest_times(row) == Decimal("2.2")
    asked = {
        "speed=fast": "2",
        "service_tier=batch": "1",
        "service_tier=auto": "1",
        "speed=warp": "2.2",
        "service_tier=priority": "1",
    }
    for term, times in asked.items():
        one = msgspec.structs.replace(row, asked_terms=(term,))
        assert asked_times(one) == Decimal(times), term
        plain = projected_usd(row, input_tokens=1_000, output_tokens=500)
        assert projected_usd(one, input_tokens=1_000, output_tokens=500) == plain * Decimal(times)
    for model, profile, term, most in (
        ("claude-sonnet-5-5", "anthropic", "speed=fast", "6.6"),  # Opus 4.7's, in the region
        ("gpt-4o", "openai", "service_tier=priority", "2.5"),  # GPT-5.5's
        ("gpt-4o", "openai", "service_tier=warp", "6"),
        ("gpt-4o", "openai", "service_tier=flex", "1"),
    ):
        unlisted = NO_PRICES.find(model, profile=profile, at_s=NOW)
        assert unlisted is not None
        assert asked_times(msgspec.structs.replace(unlisted, asked_terms=(term,))) == Decimal(most), (model, term)
    answered = price_of(
        Usage(input_tokens=1_000, terms=("speed=fast",)),
        row=NO_PRICES.find("claude-sonnet-5-5", profile="anthropic", at_s=NOW),
    )
    assert isinstance(answered, Priced) and "`speed=fast` is not known" in answered.at_least
    assert (answered.usd, answered.most_usd) == (Decimal("0.002"), Decimal("0.0132"))
    body = '{"model":"m","speed":"fast","serviceTier":"SERVICE_TIER_FLEX","inference_geo":null,"x":1}'
    assert terms_asked(body) == terms_asked(body.encode()) == ("serviceTier=FLEX", "speed=fast")
    assert terms_asked('{"note":"a \\"speed\\" that is no field"}') == terms_asked("[1]") == ()


@pytest.mark.promise("bill:served")
def test_a_sum_with_a_part_that_is_at_least_says_so(tmp_path: Path) -> None:
    """In memory, in the file and in words."""
    entries = [
        entry_of(BILLS["anthropic"][name], profile="anthropic", number=i)
        for i, name in enumerate(("plain", "new-field"), 1)
    ]
    cost = cost_of(entries)
    assert cost == Cost(usd=Decimal("0.028"), requests=2, at_least=1)
    assert (cost.exact_usd, cost.is_unknown, cost_said(cost)) == (None, False, "at least $0.0280, 1 request in part")
    assert repr(cost) == "Cost(usd=at least 0.028, requests=2, unknown=0, at_least=1)"
    mixed = cost + Cost(requests=2, unknown=2)
    assert cost_said(mixed) == "at least $0.0280, 2 requests unknown, 1 request in part"
    with Journal(tmp_path / "j.db", clock=FakeClock()) as journal:
        written(journal, *entries)
        (total,) = journal.ledger.totals(LedgerSpan(), by="model")
        assert (total.cost, total.again) == (cost, Cost())
        assert journal.ledger.entries(LedgerSpan()) == entries


PLANS = (
    PriceRow(plan="tokens", source="t", tokens=(TokenPrices(input=Decimal(1), output=Decimal(2)),)),
    PriceRow(plan="request", source="t", request_usd=Decimal(1)),
    PriceRow(plan="step", source="t", step_usd=Decimal(1)),
)


@pytest.mark.promise("bill:plans")
@pytest.mark.parametrize("is_stream", [False, True])
@pytest.mark.parametrize(
    ("choices", "usd"),
    [
        ([], (None, None, None)),
        ([{"index": 0, "message": {"role": "assistant", "content": ""}, "finish_reason": "stop"}], ("0.001", "1", "1")),
    ],
)
def test_an_empty_message_is_an_answer_and_no_choices_broke_off(
    choices: list[dict[str, object]], usd: tuple[str | None, ...], is_stream: bool
) -> None:
    """Issue 40: what docs/billing.md says of both, by token, by request and by step."""
    usage = {"prompt_tokens": 1_000, "completion_tokens": 0, "total_tokens": 1_000}
    said = [
        {"delta" if is_stream and key == "message" else key: one for key, one in choice.items()} for choice in choices
    ]
    body = json.dumps({"id": "r", "model": "m", "choices": said, "usage": usage}).encode()
    profile = builtin_profiles()["openai_chat"]
    pieces = [b"data: " + body + b"\n\ndata: [DONE]\n\n"] if is_stream else [body]
    response = read_stream(pieces, family=registry.family("openai_chat"), profile=profile)
    entry = msgspec.structs.replace(entry_of(BILLS["openai-chat"]["priority"], profile="openai-chat"), usd=None)
    found = [
        ended_entry(entry, ReceivedResponse(response=response), ended=NOW, row=row, billed_in_step=0).usd
        for row in PLANS
    ]
    assert found == [None if one is None else Decimal(one) for one in usd]


# What turnwise before this wrote into its ledger (version 9 of the file), to the letter.
OLD_LEDGER = (
    """INSERT INTO "session" VALUES('s1','/','go',1800000000.0,1800000000.0,NULL,NULL,'{}')""",
    """INSERT INTO "request" VALUES(1,'s1','t1','s1','t1','[]',1,1,'step',NULL,'anthropic','claude-opus-5-5',1700000000.0,NULL,
    1700000001.0,10,9,'ok',0,0,1000,500,0,0,0,'{"input_tokens":1000,"output_tokens":500,"service_tier":"standard","speed":"fast",
    "iterations":[{"type":"message","input_tokens":1000,"output_tokens":500,"cache_read_input_tokens":0,
    "cache_creation_input_tokens":0}]}','tokens','0.014',14000000000,'table','genai-prices 0.2.3','0',0,0,0,0,'0')""",
    """INSERT INTO "request" VALUES(2,'s1','t1','s1','t1','[]',2,2,'retry',NULL,'anthropic','claude-opus-5-5',1700000000.0,NULL,
    1700000002.0,10,0,'overloaded',0,0,NULL,NULL,NULL,NULL,NULL,NULL,'tokens',NULL,NULL,NULL,
    'it broke off before the provider said what it had used',NULL,NULL,0,0,0,NULL)""",
    """INSERT INTO "request" VALUES(3,'s1','t1','s1','t1','[]',3,3,'step',NULL,'anthropic','claude-opus-5-5',1700000000.0,NULL,
    1700000003.0,10,0,'ok',0,0,7,2,0,0,0,'{"cost":0.25}','tokens','0.25',250000000000,'provider','openrouter itself',NULL,NULL,
    0,0,0,NULL)""",
)


@pytest.mark.promise("bill:served")
def test_an_old_ledger_keeps_its_meaning(tmp_path: Path) -> None:
    """What was priced stays priced so: nothing of it is reckoned anew, though its usage says `fast`."""
    path = tmp_path / "journal.db"
    Journal(path, clock=FakeClock()).close()
    with sqlite3.connect(path) as connection:
        for statement in OLD_LEDGER:
            connection.execute(statement)
    connection.close()
    with Journal(path, clock=FakeClock()) as journal:
        entries = journal.ledger.entries(LedgerSpan())
        (total,) = journal.ledger.totals(LedgerSpan(), by="model")
    assert [(one.usd, one.priced_by, one.is_at_least) for one in entries] == [
        (Decimal("0.014"), "table", False),
        (None, None, False),
        (Decimal("0.25"), "provider", False),
    ]
    assert total.cost == Cost(usd=Decimal("0.264"), requests=3, unknown=1)
    assert entries[0].usage is not None and entries[0].usage.parts == ()
    assert isinstance(entries[0].usage, Usage)
