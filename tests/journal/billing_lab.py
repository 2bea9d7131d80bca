"""A lab that keeps its own bill: what it truly counted of each request, whatever it tells of that.

Nothing here uses the runtime's prices. Money is a whole number of nanodollars, by a list of the lab's own.
"""

import json
import random
from collections.abc import Sequence
from decimal import Decimal
from typing import Any, Literal, NamedTuple

import msgspec

from turnwise.lab.families import Route
from turnwise.lab.faults import Outgoing
from turnwise.lab.provider import Provider, Received
from turnwise.lab.script import Script
from turnwise.lab.server import MemoryTransport

Plan = Literal["tokens", "request", "step"]
Shape = Literal["whole", "null", "empty", "nulls", "zeros", "no prompt", "no response", "a null", "a zero", "a misfit"]
# As the rows of the runtime have them, in dollars for a million tokens, and as this lab bills, in nanodollars for one.
ROWS: dict[Plan, dict[str, object]] = {
    "tokens": {"input": 2, "output": 8, "cache_read": "0.5", "cache_write": "2.5", "cache_write_1h": 4},
    "request": {"request": "0.01", "bills_errors": True},
    "step": {"step": "0.02"},
}
NANO_INPUT, NANO_READ, NANO_WRITE, NANO_WRITE_1H, NANO_OUTPUT = 2_000, 500, 2_500, 4_000, 8_000
NANO_REQUEST = NANO_SEARCH = 10_000_000
NANO_STEP = 20_000_000
USAGE_KEYS = {"gemini": "usageMetadata"}


class Counted(NamedTuple):
    """The tokens of one request. `read`, `written` and `written_1h` are parts of the prompt, `thought` of the response."""

    prompt: int
    read: int
    written: int
    written_1h: int
    response: int
    thought: int
    searches: int


class Billed(NamedTuple):
    """`step` is by the lab's own count of the model's responses in the conversation that it was sent."""

    model: str
    sent_bytes: int
    usd: Decimal
    shape: Shape
    counted: Counted
    status: int
    step: object


class BillingProvider(Provider):
    """Tells each answer's usage in a shape that it draws, and bills what it counted. `turns` says whether all that comes is one
    turn, or each model's requests are (sub-agents)."""

    def __init__(
        self,
        *,
        scripts: Sequence[Script],
        plan: Plan,
        shapes: Sequence[Shape],
        chance: random.Random,
        turns: Literal["one", "each model"] = "one",
    ) -> None:
        super().__init__(scripts={one.name: one for one in scripts})
        self._turns = turns
        self._billed_steps: set[object] = set()
        self._before: dict[str, tuple[Received, object]] = {}  # the last request of each turn, and its step
        self._steps = 0
        self._plan: Plan = plan
        self._shapes = shapes
        self._chance = chance
        self.bill: list[Billed] = []

    def answer(
        self, route: Route, *, target: str, body: bytes, number: int, betas: str = ""
    ) -> tuple[Outgoing, Received]:
        outgoing, kept = super().answer(route, target=target, body=body, number=number, betas=betas)
        counted = self._count(body, family=route.family, streamed=kept.streamed)
        if is_silent(kept):
            counted = counted._replace(response=0, thought=0)  # it said nothing
        shape = self._chance.choice(self._shapes)
        if outgoing.status == 200:
            outgoing = told(outgoing, counted=counted, shape=shape, family=route.family)
        is_answer = outgoing.status == 200 and not _is_error(outgoing)  # an error in place of an answer costs nothing
        nano = nanodollars(counted, plan=self._plan, answered=is_answer)
        step = self._step_of(kept)
        if self._plan == "step":
            nano = NANO_STEP if self._bills_step(kept, is_answer=is_answer) and step not in self._billed_steps else 0
            self._billed_steps |= {step} if nano else set()
        usd = Decimal(nano) / 1_000_000_000
        self.bill.append(Billed(kept.model, len(body), usd, shape, counted, outgoing.status, step))
        return outgoing, kept

    def _step_of(self, kept: Received) -> object:
        """By the conversation that was sent, which begins with the only words of the user's.

        It is the step before where a new message follows an answer (what a limit cut goes on), and where no call was allowed and
        the turn goes on all the same (the model had called a tool). It is the next one where it shows one response more, and
        where the one before said nothing."""
        turn = kept.model if self._turns == "each model" else ""
        before, step = self._before.get(turn, (None, None))
        goes_on = kept.turn != 1
        was_last = before is not None and before.turn == 1 and not allows_calls(before)
        is_next = before is None or (before.turn, before.step) != (1, kept.step) or is_silent(before)
        if is_next and not goes_on and not was_last:
            self._steps += 1
            step = (turn, self._steps)
        self._before[turn] = (kept, step)
        return step

    def _bills_step(self, kept: Received, *, is_answer: bool) -> bool:
        """Whether this one bills its step, if none did before. Of an answer that breaks off providers say both."""
        is_empty = kept.fault == "eof" and kept.fault_at in ("headers", "start")
        if not is_answer or is_empty or kept.fault in ("html", "random-bytes"):
            return False
        is_whole = kept.fault in (None, "invalid-utf8", "sent-twice", "torn-event") or kept.fault_at == "finish"
        return is_whole or self._chance.random() < 0.5

    def _count(self, body: bytes, *, family: str, streamed: bool) -> Counted:
        chance, prompt = self._chance, len(body) // 4
        read = chance.choice((0, prompt // 3))
        written = chance.choice((0, prompt // 5)) if family == "anthropic_messages" else 0
        written_1h = chance.choice((0, written // 2))
        response = chance.randint(1, 400)
        thought = chance.choice((0, response // 2))
        can_search = not (family == "openai_responses" and streamed)
        searches = chance.choice((0, 0, 0, 1, 2)) if can_search else 0
        return Counted(prompt, read, written, written_1h, response, thought, searches)


def allows_calls(one: Received) -> bool:
    return one.request is None or (one.request.tool_choice != "none" and bool(one.request.tools))


def is_silent(one: Received) -> bool:
    """Whether it was answered whole, with nothing."""
    return one.usage is not None and not one.usage.output_tokens


def _is_error(outgoing: Outgoing) -> bool:
    """Whether the provider's whole answer under status 200 is an error: a body, or the only event of a stream."""
    events = [line for line in b"".join(outgoing.pieces).splitlines() if line.strip() and not line.startswith(b":")]
    said = [line.removeprefix(b"data:").strip() for line in events if not line.startswith(b"event:")]
    return bool(said) and said[0][:160].startswith((b'{"error"', b'[{"error"', b'{"type":"error"'))


def billing_lab(
    scripts: Sequence[Script],
    *,
    plan: Plan,
    shapes: Sequence[Shape],
    chance: random.Random,
    turns: Literal["one", "each model"] = "one",
) -> tuple[MemoryTransport, BillingProvider, list[Received]]:
    """The transport to a lab, its bill, and what it received."""
    provider = BillingProvider(scripts=scripts, plan=plan, shapes=shapes, chance=chance, turns=turns)
    received = list[Received]()
    return MemoryTransport(provider, requests=received), provider, received


def nanodollars(counted: Counted, *, plan: Plan, answered: bool) -> int:
    """By request each one that came costs the same, searches included; by token an error costs nothing."""
    searches = counted.searches * NANO_SEARCH
    if plan == "request":
        return NANO_REQUEST
    if not answered:
        return 0
    plain = counted.prompt - counted.read - counted.written
    return (
        plain * NANO_INPUT
        + counted.read * NANO_READ
        + (counted.written - counted.written_1h) * NANO_WRITE
        + counted.written_1h * NANO_WRITE_1H
        + counted.response * NANO_OUTPUT
        + searches
    )


def told(outgoing: Outgoing, *, counted: Counted, shape: Shape, family: str) -> Outgoing:
    """The answer with the usage of that shape; what is no JSON stays as it is."""
    whole = b"".join(outgoing.pieces)
    if not outgoing.pieces:
        return outgoing
    if b"data:" not in whole:
        return msgspec.structs.replace(outgoing, pieces=(_told_in(whole, counted=counted, shape=shape, family=family),))
    lines: list[bytes] = []
    for line in whole.splitlines(keepends=True):
        data = line.removeprefix(b"data: ")
        if data != line and data.startswith(b"{"):
            line = b"data: " + _told_in(data.strip(), counted=counted, shape=shape, family=family) + b"\n"
        lines.append(line)
    return msgspec.structs.replace(outgoing, pieces=tuple(lines))


def _told_in(text: bytes, *, counted: Counted, shape: Shape, family: str) -> bytes:
    try:
        found: Any = json.loads(text.decode("utf-8", "surrogateescape"))
    except ValueError:
        return text
    if isinstance(found, list):
        values: list[Any] = found  # Google's stream without `alt=sse`
    else:
        values = [found]
    changed = False
    for value in values:
        if not isinstance(value, dict):
            continue
        for place in (value, value.get("response"), value.get("message")):
            changed = _told_at(place, counted=counted, shape=shape, family=family, event=value) or changed
    return json.dumps(found, ensure_ascii=False).encode("utf-8", "surrogateescape") if changed else text


def _told_at(place: Any, *, counted: Counted, shape: Shape, family: str, event: Any) -> bool:
    key = USAGE_KEYS.get(family, "usage")
    if not isinstance(place, dict) or not isinstance(place.get(key), dict):
        return False
    if event.get("type") == "message_start":  # an estimate of the response, which the end corrects or does not
        place[key] = {**usage_of(counted, family=family), "output_tokens": 1}
        return True
    place[key] = shaped(usage_of(counted, family=family), shape=shape, family=family)
    if counted.searches:
        _tell_searches(place, counted=counted, family=family)
    return True


def _tell_searches(place: Any, *, counted: Counted, family: str) -> None:
    match family:
        case "gemini":
            for candidate in place.get("candidates", []):
                candidate["groundingMetadata"] = {"webSearchQueries": ["a"] * counted.searches}
        case "anthropic_messages":
            place["usage"] = {**(place["usage"] or {}), "server_tool_use": {"web_search_requests": counted.searches}}
        case "openai_chat":
            place["usage"] = {**(place["usage"] or {}), "num_search_queries": counted.searches}
        case _:
            place["output"] = [{"id": "s", "type": "web_search_call", "status": "completed"}, *place["output"]]


def usage_of(counted: Counted, *, family: str) -> dict[str, Any]:
    match family:
        case "openai_chat":
            return {
                "prompt_tokens": counted.prompt,
                "completion_tokens": counted.response,
                "total_tokens": counted.prompt + counted.response,
                "prompt_tokens_details": {"cached_tokens": counted.read},
                "completion_tokens_details": {"reasoning_tokens": counted.thought},
            }
        case "openai_responses":
            return {
                "input_tokens": counted.prompt,
                "input_tokens_details": {"cached_tokens": counted.read},
                "output_tokens": counted.response,
                "output_tokens_details": {"reasoning_tokens": counted.thought},
                "total_tokens": counted.prompt + counted.response,
            }
        case "anthropic_messages":
            five_minutes = counted.written - counted.written_1h
            kept = {"ephemeral_5m_input_tokens": five_minutes, "ephemeral_1h_input_tokens": counted.written_1h}
            return {
                "input_tokens": counted.prompt - counted.read - counted.written,
                "cache_read_input_tokens": counted.read,
                "cache_creation_input_tokens": counted.written,
                "cache_creation": kept,
                "output_tokens": counted.response,
            }
        case _:
            found = {
                "promptTokenCount": counted.prompt,
                "cachedContentTokenCount": counted.read,
                "candidatesTokenCount": counted.response - counted.thought,
                "thoughtsTokenCount": counted.thought,
                "totalTokenCount": counted.prompt + counted.response,
            }
            return {key: value for key, value in found.items() if value}  # zeros are left out


def shaped(usage: dict[str, Any], *, shape: Shape, family: str) -> dict[str, Any] | None:
    prompt = {"openai_chat": "prompt_tokens", "gemini": "promptTokenCount"}.get(family, "input_tokens")
    response = {"openai_chat": "completion_tokens", "gemini": "candidatesTokenCount"}.get(family, "output_tokens")
    match shape:
        case "whole":
            return usage
        case "null":
            return None
        case "empty":
            return {}
        case "nulls":
            return dict.fromkeys(usage)
        case "zeros":
            return dict.fromkeys(usage, 0)
        case "no prompt":
            return {key: value for key, value in usage.items() if key != prompt}
        case "no response":
            return {key: value for key, value in usage.items() if key != response}
        case "a null":
            return {**usage, response: None}
        case "a zero":
            return {**usage, response: 0}
        case "a misfit":
            return {**usage, response: "many"}
