"""Every fault at every place, in every family, streamed and not: the right outcome, and what it cost (promise wait:retry)."""

from email.utils import formatdate

import msgspec
import pytest

from lab.failing import DEADLINES, FAMILIES, WAYS, Ended, turn
from tables import each
from turnwise.lab import Lab
from turnwise.lab.script import FaultName, FaultPoint, Script, ScriptedCall, ScriptedFault, ScriptedStep
from turnwise.rules.limits import MaxRequests, MaxWallTime
from turnwise.rules.retries import RetryPolicy
from turnwise.running.watcher_events import AttemptDiscarded, RequestStarted
from turnwise.testing import FakeClock
from turnwise.turn.config import Fallback
from turnwise.vocab import FaultKind, StopReason

RETRIED = (408, 409, 429, 500, 502, 503, 504, 529)
FINAL = (400, 401, 403, 404, 413, 422)
BROKEN: tuple[FaultName, ...] = ("error-in-stream", "reset", "eof", "stall", "pings")
PLACES: tuple[FaultPoint, ...] = ("headers", "start", "text", "arguments", "finish")
# Nothing can end in good order, or be an event, before there are headers.
CELLS = [(kind, at) for kind in BROKEN for at in PLACES if at != "headers" or kind in ("reset", "stall")]
LOST = "LOST and discarded words of an attempt that did not come to its end, " * 3
KEPT = "The words of the attempt that was accepted, from the first to the last."


def fails(*faults: ScriptedFault, in_call: bool = False, name: str = "fails") -> Script:
    """Its first step meets these faults, the failing attempts say LOST; the accepted one says KEPT, in a call or as text."""
    lost = tuple(
        [
            msgspec.structs.replace(fault, calls=(ScriptedCall(name="note", arguments={"text": LOST}),))
            if in_call
            else msgspec.structs.replace(fault, text=LOST)
            for fault in faults
        ]
    )
    if not in_call:
        return Script(name=name, title="", steps=(ScriptedStep(text=KEPT, faults=lost),))
    call = ScriptedCall(name="note", arguments={"text": KEPT})
    return Script(name=name, title="", steps=(ScriptedStep(calls=(call,), faults=lost), ScriptedStep(text=KEPT)))


def agrees(ended: Ended, *, requests: int, discarded: int) -> None:
    """The lab's count is the result's, and nothing of what was given up is in it."""
    assert (ended.result.requests, ended.received) == (requests, requests)
    given_up = [seen.number for seen in ended.seen if isinstance(seen, AttemptDiscarded)]
    retries = [seen.number for seen in ended.seen if isinstance(seen, RequestStarted) and seen.purpose == "retry"]
    assert (len(given_up), retries) == (discarded, [number + 1 for number in given_up])


@pytest.mark.promise("wait:retry", "wait:stream", "cut:not-blamed")
@each(("family", "stream"), WAYS)
@each(("kind", "at"), CELLS, meeting="each")
async def test_a_response_that_breaks_off_anywhere_is_asked_for_again(
    kind: FaultName, at: FaultPoint, family: str, stream: bool
) -> None:
    """Two requests, the second one's words only, no word of blame to the model; what was whole is not asked for again."""
    in_call = at == "arguments"
    fault = ScriptedFault(kind=kind, at=at, status=500)
    script = fails(fault, in_call=in_call)
    lab = Lab([script])
    ended = await turn(lab, script, family=family, stream=stream)
    # A finish reason, or a whole body, is a whole response whatever comes after it.
    whole = at == "finish" and kind in ("eof", "reset", "stall", "pings")
    # What follows the end mark is no part of the response; Gemini has no end mark.
    whole = whole or (at == "finish" and kind == "error-in-stream" and stream and family != "gemini")
    agrees(ended, requests=(1 if whole else 2) + in_call, discarded=0 if whole else 1)
    assert (ended.result.text, ended.result.stop_reason, ended.result.complete) == (
        LOST if whole else KEPT,
        StopReason.ANSWERED,
        True,
    )
    assert ended.noted == ([KEPT] if in_call else [])
    asked = b"".join([received.body for received in lab.requests])
    if not whole:
        assert b"LOST" not in asked + msgspec.json.encode(ended.result)
    assert b"mistake" not in asked
    assert ended.took_s <= DEADLINES.total_s + 1


@pytest.mark.promise("wait:retry")
@each(("family", "stream"), WAYS)
async def test_statuses_that_pass_are_retried_and_others_are_not(family: str, stream: bool) -> None:
    """By the lab's count: two requests and the answer, or one and the reason."""
    for status in (*RETRIED, *FINAL):
        script = fails(ScriptedFault(kind="status", status=status, message="no"))
        ended = await turn(Lab([script]), script, family=family, stream=stream)
        if status in RETRIED:
            agrees(ended, requests=2, discarded=1)
            assert (ended.result.text, ended.result.complete) == (KEPT, True), status
        else:
            agrees(ended, requests=1, discarded=0)
            assert (ended.result.stop_reason, ended.took_s) == (StopReason.PROVIDER_FAILED, 0), status


@pytest.mark.promise("wait:retry")
@pytest.mark.parametrize("family", FAMILIES)
async def test_a_spent_quota_is_not_waited_for(family: str) -> None:
    """It comes as a 429, as a limit of rates does, and says that it is none."""
    message = "You have run out of credits: insufficient balance."
    script = fails(ScriptedFault(kind="status", status=429, message=message, code="insufficient_quota"))
    ended = await turn(Lab([script]), script, family=family, stream=True)
    agrees(ended, requests=1, discarded=0)
    assert ended.result.fault is not None and ended.result.fault.kind is FaultKind.QUOTA


NOW = 1_800_000_000.0
# How a provider says when to ask again -> seconds. Half a base wait of jitter (0.25 s) comes on top.
FORMS: dict[str, tuple[dict[str, str], str, float]] = {
    "seconds": ({"retry-after": "7"}, "no", 7.0),
    "fraction": ({"retry-after": "2.5"}, "no", 2.5),
    "milliseconds": ({"retry-after-ms": "1500", "retry-after": "9"}, "no", 1.5),
    "date": ({"retry-after": formatdate(NOW + 20, usegmt=True)}, "no", 20.0),
    "date by its own clock": (
        {"retry-after": formatdate(NOW + 1020, usegmt=True), "date": formatdate(NOW + 1000, usegmt=True)},
        "no",
        20.0,
    ),
    "words": ({}, "Rate limit reached. Please try again in 1.2s.", 1.2),
    "words in ms": ({}, "Rate limit reached. Please try again in 250ms.", 0.25),
    "openai's reset": (
        {
            "x-ratelimit-remaining-requests": "0",
            "x-ratelimit-reset-requests": "1m2s",
            "x-ratelimit-remaining-tokens": "9",
            "x-ratelimit-reset-tokens": "6m0s",
        },
        "no",
        62.0,
    ),
    "anthropic's reset": (
        {
            "anthropic-ratelimit-requests-remaining": "0",
            "anthropic-ratelimit-requests-reset": "2027-01-15T08:00:30Z",
            "anthropic-ratelimit-tokens-remaining": "5",
            "anthropic-ratelimit-tokens-reset": "2027-01-15T09:00:00Z",
        },
        "no",
        30.0,
    ),
}


@pytest.mark.promise("wait:retry")
@each("family", FAMILIES)
@each("form", FORMS)
async def test_every_form_of_retry_after_is_waited_for_exactly(form: str, family: str) -> None:
    """Never sooner than was asked for, and a little spread."""
    headers, message, seconds = FORMS[form]
    script = fails(ScriptedFault(kind="status", status=429, message=message, headers=headers))
    ended = await turn(Lab([script]), script, family=family, stream=True, clock=FakeClock(now=NOW))
    agrees(ended, requests=2, discarded=1)
    assert ended.took_s == pytest.approx(seconds + 0.25, abs=0.002)  # pyright: ignore[reportUnknownMemberType]
    assert ended.result.text == KEPT


@pytest.mark.promise("wait:retry")
async def test_googles_retry_info_is_waited_for() -> None:
    """It stands in the body: `"retryDelay": "37s"`."""
    script = fails(ScriptedFault(kind="status", status=429, message="no", retry_delay="37s"))
    ended = await turn(Lab([script]), script, family="gemini", stream=True)
    assert (ended.took_s, ended.result.text) == (37.25, KEPT)


@pytest.mark.promise("wait:retry")
@pytest.mark.parametrize("family", FAMILIES)
async def test_a_wait_beyond_the_bound_is_given_up_at_once(family: str) -> None:
    """And the result says why."""
    script = fails(ScriptedFault(kind="status", status=429, message="Slow down.", headers={"retry-after": "3600"}))
    ended = await turn(Lab([script]), script, family=family, stream=True)
    agrees(ended, requests=1, discarded=0)
    assert (ended.took_s, ended.result.stop_reason) == (0, StopReason.PROVIDER_FAILED)
    assert "Slow down. It asks to wait 3600 s, and the bound for retries is 180 s." in ended.result.text


@pytest.mark.promise("wait:retry", "end:reason")
@each(("family", "stream"), WAYS)
async def test_attempts_are_capped_and_the_end_says_so(family: str, stream: bool) -> None:
    """Four by default, each one in the count; the waits double."""
    script = fails(*[ScriptedFault(kind="status", status=503, message="Overloaded.")] * 9)
    ended = await turn(Lab([script]), script, family=family, stream=stream)
    agrees(ended, requests=4, discarded=3)
    assert (ended.result.stop_reason, ended.took_s) == (StopReason.PROVIDER_FAILED, 0.375 + 0.75 + 1.5)
    assert "Overloaded. Tried 4 times over 2.6 s." in ended.result.text


@pytest.mark.promise("wait:retry", "end:budget")
async def test_the_last_request_of_a_limit_is_kept_for_the_answer() -> None:
    """Three are allowed: two attempts fail, the third is the forced answer."""
    script = fails(*[ScriptedFault(kind="status", status=503)] * 2, in_call=True)
    script = msgspec.structs.replace(script, forced="What I can say without it.")
    ended = await turn(Lab([script]), script, family="openai_chat", stream=True, limits=MaxRequests(3))
    agrees(ended, requests=3, discarded=2)
    assert (ended.result.text, ended.result.complete) == ("What I can say without it.", False)
    assert ended.noted == []


@pytest.mark.promise("wait:retry")
async def test_no_retry_begins_that_the_turns_time_would_not_see() -> None:
    """A wait of 30 s in a turn of 20."""
    script = fails(ScriptedFault(kind="status", status=429, message="no", headers={"retry-after": "30"}))
    ended = await turn(Lab([script]), script, family="openai_chat", stream=True, limits=MaxWallTime(20))
    agrees(ended, requests=1, discarded=0)
    assert (ended.took_s, ended.result.stop_reason) == (0, StopReason.PROVIDER_FAILED)
    assert "would come after the turn's time is up" in ended.result.text


@pytest.mark.promise("wait:stream")
@pytest.mark.parametrize("family", FAMILIES)
async def test_each_deadline_ends_its_own_silence(family: str) -> None:
    """First event, between events (keep-alives renew neither), the end after a finish reason, and the whole."""
    once = RetryPolicy(attempts=1)
    silences: tuple[tuple[FaultName, FaultPoint, int], ...] = (
        ("stall", "headers", 20),
        ("pings", "start", 20),
        ("stall", "text", 10),
        ("pings", "text", 10),
        ("pings", "arguments", 20 if family == "gemini" else 10),  # its call is one event, and a torn one is none
        ("stall", "finish", 5),
        ("pings", "finish", 5),
    )
    for kind, at, seconds in silences:
        script = fails(ScriptedFault(kind=kind, at=at), in_call=at == "arguments")
        ended = await turn(Lab([script]), script, family=family, stream=True, retry=once)
        assert (ended.took_s, ended.result.requests) == (seconds, 1), (kind, at)
    script = fails(ScriptedFault(kind="pings", at="text"))
    ended = await turn(Lab([script]), script, family=family, stream=False, retry=once)
    assert ended.took_s == DEADLINES.total_s


@pytest.mark.promise("wait:retry")
@pytest.mark.parametrize("family", FAMILIES)
async def test_fallback_models_are_asked_in_order(family: str) -> None:
    """The first has failed for good, the second is unknown, the third answers; it stays for the rest of the turn."""
    first = fails(*[ScriptedFault(kind="status", status=529)] * 9, name="first")
    third = fails(in_call=True, name="third")
    lab = Lab([first, third])
    models = (Fallback(model="nowhere"), Fallback(model="third"))
    ended = await turn(lab, first, family=family, stream=True, fallbacks=models, retry=RetryPolicy(attempts=2))
    agrees(ended, requests=5, discarded=3)
    assert [received.model for received in lab.requests if received.model] == ["first"] * 2 + ["nowhere"] + [
        "third"
    ] * 2
    assert (ended.result.text, ended.result.complete, ended.noted) == (KEPT, True, [KEPT])


async def test_a_wrong_key_does_not_go_to_a_fallback() -> None:
    """It is as wrong there."""
    first = fails(ScriptedFault(kind="status", status=401, message="no"), name="first")
    second = fails(name="second")
    models = (Fallback(model="second"),)
    ended = await turn(Lab([first, second]), first, family="openai_chat", stream=True, fallbacks=models)
    assert (ended.result.requests, ended.result.stop_reason) == (1, StopReason.PROVIDER_FAILED)


@each(("family", "stream"), WAYS)
async def test_a_call_with_bytes_that_are_no_utf8_stays_a_response(family: str, stream: bool) -> None:
    """The byte hits the call's first argument where there is no text: it stood between all bytes of such a response, which was
    no JSON then and no response, though the script says that a byte of it is broken."""
    fault = ScriptedFault(kind="invalid-utf8", calls=(ScriptedCall(name="note", arguments={"text": LOST}),))
    script = Script(name="fails", title="", steps=(ScriptedStep(text=KEPT, faults=(fault,)),))
    lab = Lab([script])
    ended = await turn(lab, script, family=family, stream=stream)
    assert (ended.result.stop_reason, ended.received) == (StopReason.ANSWERED, 2)
    assert ended.noted == [], "a call with a damaged argument does not run"
    assert (lab.requests[0].fault, lab.requests[0].fault_at) == ("invalid-utf8", None)
