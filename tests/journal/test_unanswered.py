"""What a request costs that was not answered, or answered by an error: what billing.md's table says (issue 14, done-when 4).

Every family, streamed or not, every way not to answer, every plan: equal, or unknown, never wrong.
"""

import json
from decimal import Decimal

import pytest

from flat_agents import flat_agent
from journal.ledgered import FAMILIES
from lab.failing import settled
from tables import each
from turnwise import MaxCost, Prices, RetryPolicy, RunResult, read_prices
from turnwise.testing import FakeClock, Reply, ScriptedTransport
from turnwise.testing.scripted_model import STREAM, Piece
from turnwise.vocab import Fault, FaultKind

JSON = {"content-type": "application/json"}
HTML = {"content-type": "text/html"}
RESET = Fault(kind=FaultKind.DISCONNECTED, message="reset")
PLANS: dict[str, dict[str, object]] = {
    "step": {"step": "0.02"},
    "request": {"request": "0.01"},
    "errors are free": {"request": "0.01", "bills_errors": False},
    "errors are billed": {"request": "0.01", "bills_errors": True},
    "tokens": {"input": "3", "output": "15"},
    "free": {"free": True},
}
# What one of them costs under each plan of PLANS; None: nobody knows.
CENT, NOTHING = Decimal("0.01"), Decimal(0)
ERROR = (NOTHING, None, NOTHING, CENT, NOTHING, NOTHING)
NO_ANSWER = (NOTHING, None, None, CENT, None, NOTHING)  # no status of an error says that nothing was generated
BROKEN = (None, None, None, None, None, NOTHING)


def error_of(family: str) -> dict[str, object]:
    match family:
        case "anthropic_messages":
            return {"type": "error", "error": {"type": "api_error", "message": "no"}}
        case "gemini":
            return {"error": {"code": 500, "message": "no", "status": "INTERNAL"}}
        case _:
            return {"error": {"message": "no", "type": "server_error"}}


def error_event(family: str) -> bytes:
    told = error_of(family)
    if family == "openai_responses":
        told = {"type": "error", "code": "server_error", "message": "no", "param": None}
    name = f"event: {told['type']}\n" if "type" in told else ""
    return f"{name}data: {json.dumps(told)}\n\n".encode()


def beginning(family: str) -> bytes:
    """Of a stream: its first text."""
    match family:
        case "anthropic_messages":
            events: list[dict[str, object]] = [
                {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}},
                {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": "hel"}},
            ]
        case "openai_responses":
            events = [
                {"type": "response.output_item.added", "output_index": 0, "item": {"type": "message", "id": "m"}},
                {
                    "type": "response.output_text.delta",
                    "output_index": 0,
                    "item_id": "m",
                    "content_index": 0,
                    "delta": "hel",
                },
            ]
        case "gemini":
            events = [{"candidates": [{"index": 0, "content": {"role": "model", "parts": [{"text": "hel"}]}}]}]
        case _:
            events = [{"choices": [{"index": 0, "delta": {"role": "assistant", "content": "hel"}}]}]
    return b"".join([f"data: {json.dumps(one)}\n\n".encode() for one in events])


def opening(family: str) -> bytes:
    """The first event of a stream, which has nothing of the response but its name: the model is at work."""
    match family:
        case "anthropic_messages":
            usage = {"input_tokens": 10, "output_tokens": 1}
            message = {"id": "m", "type": "message", "role": "assistant", "content": [], "model": "m", "usage": usage}
            event: dict[str, object] = {"type": "message_start", "message": message}
        case "openai_responses":
            event = {"type": "response.created", "response": {"id": "r", "status": "in_progress", "model": "m"}}
        case "gemini":
            content = {"role": "model", "parts": [{"text": ""}]}
            event = {"candidates": [{"index": 0, "content": content}], "modelVersion": "m", "responseId": "r"}
        case _:
            delta = {"role": "assistant", "content": ""}
            event = {"id": "x", "model": "m", "choices": [{"index": 0, "delta": delta}]}
    return f"data: {json.dumps(event)}\n\n".encode()


def reply_of(shape: str, *, family: str, stream: bool) -> tuple[Reply, tuple[Decimal | None, ...]]:
    usual = STREAM if stream else JSON
    match shape:
        case "error 500":
            body = json.dumps(error_of(family)).encode()
            return Reply(pieces=(body,), status=500, headers=JSON), ERROR
        case "error in a body":
            expected = ERROR if family == "gemini" else NO_ANSWER  # Gemini's error names its own status
            return Reply(pieces=(json.dumps(error_of(family)).encode(),), headers=JSON), expected
        case "error in a stream":
            return Reply(pieces=(error_event(family),), headers=STREAM), ERROR if family == "gemini" else NO_ANSWER
        case "redirect":
            return Reply(status=307, headers={"location": "http://elsewhere.invalid/"}), ERROR
        case "moved":
            return Reply(pieces=(b"<html>",), status=301, headers={**HTML, "location": "http://x.invalid/"}), ERROR
        case "not modified":
            return Reply(status=304, headers={}), ERROR
        case "error behind an opening":
            return Reply(pieces=(opening(family), error_event(family)), headers=STREAM), BROKEN
        case "html":
            return Reply(pieces=(b"<html><body>hi</body></html>",), headers=HTML), NO_ANSWER
        case "html said to be ours":
            return Reply(pieces=(b"<html><body>hi</body></html>",), headers=usual), NO_ANSWER
        case "no content":
            return Reply(status=204, headers={}), NO_ANSWER
        case "empty":
            return Reply(headers=usual), NO_ANSWER
        case "silence behind the head":
            return Reply(pieces=(RESET,), headers=usual), BROKEN
        case "broken off":
            pieces: tuple[Piece, ...] = (beginning(family), RESET) if stream else (b'{"id": "x", "cho', RESET)
            return Reply(pieces=pieces, headers=usual), BROKEN
        case "ended in the middle":
            return Reply(pieces=(b'data: {"id": "x", "cho' if stream else b'{"id": "x", "cho',), headers=usual), BROKEN
        case _:
            assert shape == "error behind text"
            return Reply(pieces=(beginning(family), error_event(family)), headers=STREAM), BROKEN


STREAMED_ONLY = ("error in a stream", "error behind text", "error behind an opening")
SHAPES = (
    "error 500",
    "error in a body",
    "redirect",
    "moved",
    "not modified",
    "html",
    "html said to be ours",
    "no content",
    "empty",
    "silence behind the head",
    "broken off",
    "ended in the middle",
    *STREAMED_ONLY,
)


async def ran(reply: Reply, *, family: str, stream: bool, plan: str, **options: object) -> RunResult:
    clock = FakeClock(now=1_700_000_000)
    given: dict[str, object] = {"retry": RetryPolicy(attempts=1), **options}
    agent = flat_agent(
        f"{family}:m",
        base_url="http://lab.invalid",
        transport=ScriptedTransport([reply] * 8),
        stream=stream,
        prices=Prices(user=read_prices({f"{family}:m": PLANS[plan]}, named="the test", source="the test")),
        clock=clock,
        **given,  # pyright: ignore[reportArgumentType]
    )
    return await settled(agent.run("Hi."), clock=clock)


@each("family", FAMILIES)
@each("shape", SHAPES, meeting="each")
@pytest.mark.promise("bill:plans", "bill:wire")
async def test_what_was_not_answered_costs_what_the_table_says(shape: str, family: str) -> None:
    """By every plan, streamed and not. Whatever is not known is not in the sum, which says that it is not all."""
    for stream in (True,) if shape in STREAMED_ONLY else (True, False):
        reply, expected = reply_of(shape, family=family, stream=stream)
        for plan, usd in zip(PLANS, expected, strict=True):
            result = await ran(reply, family=family, stream=stream, plan=plan)
            assert len(result.ledger) == result.requests == 1
            told = result.ledger[0]
            assert told.usd == usd, (plan, stream, told.outcome, told.price_note, told.usd)
            assert (result.cost_usd, result.cost.unknown) == (usd, int(usd is None))


@pytest.mark.promise("bill:plans", "end:budget")
async def test_a_step_that_nobody_answered_is_not_billed_and_costs_no_limit() -> None:
    """Four attempts that an error answers under status 200: by step nothing, by request four unknown prices. A limit of cost
    counts these as they were projected."""
    reply, _ = reply_of("error in a body", family="openai_chat", stream=True)
    patient = RetryPolicy(attempts=4)
    by_step = await ran(reply, family="openai_chat", stream=True, plan="step", retry=patient)
    assert (by_step.requests, by_step.cost_usd) == (4, Decimal(0))
    by_request = await ran(reply, family="openai_chat", stream=True, plan="request", retry=patient)
    assert (by_request.requests, by_request.cost_usd, by_request.cost.unknown) == (4, None, 4)
    limited = await ran(
        reply, family="openai_chat", stream=True, plan="request", retry=patient, limits=MaxCost(Decimal("0.02"))
    )
    assert limited.requests == 2
