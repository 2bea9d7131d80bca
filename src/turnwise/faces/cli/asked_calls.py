"""What every face does with the asks of a turn: the facts of a call, the answer, and one ask after the other in time."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from typing import Literal, cast

import msgspec

from turnwise.drivers.clock import Clock
from turnwise.drivers.running.approvals import Asking
from turnwise.drivers.tools.fact_finding import Inspector
from turnwise.faces.cli.text import visible_line
from turnwise.rules.mcp_names import server_of
from turnwise.rules.permission_facts import CallFacts
from turnwise.turn.approvals import Approval, OneAsk
from turnwise.turn.commands import PlannedCall
from turnwise.turn.config import ToolOffer
from turnwise.vocab import ToolCall
from turnwise.wire.json_fields import UNREADABLE

MAX_TITLE = 200
SPARE_S = 0.1  # before the deadline: what was answered by then has to arrive


async def facts_of(ask: OneAsk, *, offers: Mapping[str, ToolOffer], inspect: Inspector) -> CallFacts:
    """What the call would do now."""
    offer = offers.get(ask.call.name)
    if offer is not None and not offer.inspected:
        return CallFacts(call_id=ask.call.id, tool=ask.call.name, effect=offer.effect)
    if offer is None and server_of(ask.call.name):  # it is known once its server has said so
        return CallFacts(call_id=ask.call.id, tool=ask.call.name, effect="execute")
    (facts,) = await inspect((PlannedCall(call=ask.call, arguments=ask.arguments, timeout_s=0.0),))
    return facts


def answer_to(
    ask: OneAsk, *, verdict: Literal["allow", "deny", "later"], text: str = "", always: bool = False
) -> Approval:
    return Approval(
        call_id=ask.call.id, verdict=verdict, text=text, always=always, subject=ask.subject, digest=ask.digest
    )


def arguments_in(text: str) -> Mapping[str, object]:
    """Empty for those that are no JSON object: a free-form tool's text."""
    try:
        decoded: object = msgspec.json.decode(text)
    except UNREADABLE:
        return {}
    return cast("dict[str, object]", decoded) if isinstance(decoded, dict) else {}


def title_of(call: ToolCall, *, path: tuple[str, ...] = ()) -> str:
    """`read notes.txt` on one line, nothing of it hidden; behind the sub-agents that lead to it."""
    arguments = arguments_in(call.arguments)
    first = next((one for key in ("command", "path", "question") if isinstance(one := arguments.get(key), str)), None)
    told = first if first is not None else "" if not arguments else call.arguments
    line = visible_line(" › ".join([*path, f"{call.name} {told}".rstrip()]))
    return line if len(line) <= MAX_TITLE else f"{line[: MAX_TITLE - 1]}…"


async def answered_in_order(
    asking: Asking, *, answered: Callable[[OneAsk], Awaitable[Approval]], clock: Clock, note: Callable[[str], object]
) -> list[Approval]:
    """The answers that came in time. `note` is told of each of the others, which take their default."""
    until = clock.monotonic() + asking.deadline_s - min(SPARE_S, asking.deadline_s / 10)
    approvals: list[Approval] = []
    try:
        for ask in asking.asks:
            answer = await answered(ask)
            approvals.append(answer)
            if ask is not asking.asks[-1]:
                asking.keep(answer)
    except asyncio.CancelledError:
        if clock.monotonic() >= until:
            for ask in asking.asks[len(approvals) :]:
                note(_not_answered(ask, asking=asking))
        raise
    return approvals


def _not_answered(ask: OneAsk, *, asking: Asking) -> str:
    then = "the model decides" if ask.kind == "question" and ask.by == "model" else "denied"
    name = visible_line(" › ".join([*asking.path, ask.call.name]))
    return f"not answered within {asking.deadline_s:g} s: {name}: {then}"
