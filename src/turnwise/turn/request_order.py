"""The order to send a request: what it is asked of the provider's cache, how long it may take, which calls its text may hold."""

import msgspec
from msgspec.structs import replace

from turnwise.rules.bound_thinking import NOTHING_STALE, fitted
from turnwise.turn.changes import Sending
from turnwise.turn.commands import Purpose, SendRequest, SoughtCalls
from turnwise.turn.cost_so_far import AtStake
from turnwise.turn.request_limits import left_s
from turnwise.turn.request_plan import caching_of
from turnwise.turn.turn_state import Known
from turnwise.vocab import Request, new_tools_in


class Allowed(msgspec.Struct, frozen=True, kw_only=True):
    """What the holder of a request allows. `plain`: it is the step's own, neither for more of a cut response nor for a summary,
    so it may be built anew or go to another model. `answers`: it may bring the answer; after another one the answer has to be
    asked for. `within`: that comes in the same step."""

    plain: bool
    answers: bool
    within: bool = False


def order_of(known: Known, request: Request, *, purpose: Purpose, own: int, allowed: Allowed) -> SendRequest:
    """The order for the next request, whose last `own` messages are no part of the history."""
    if (caching := caching_of(known.config, own=own)) is not None:
        request = replace(request, cache=caching)
    if (stale := known.config.stale_thinking) is not NOTHING_STALE:
        request = fitted(request, known=stale, family=known.config.family)
    if known.config.lessons and (lessons := known.config.lessons.get(known.config.lessons_key(request.model))):
        request = replace(request, lessons=lessons)
    if known.config.system_in_input:
        request = replace(request, system_in_input=True)
    if known.config.appends_tools and (told := new_tools_in(*request.messages)):
        offered = {tool.name for tool in request.tools}
        request = replace(request, appended_tools=tuple([name for name in dict.fromkeys(told) if name in offered]))
    if known.config.shows_thinking:
        request = replace(request, shows_thinking=True)
    number = known.spending.requests + 1
    return SendRequest(
        number=number,
        step=known.step,
        purpose=purpose,
        request=request,
        deadlines=known.config.deadlines,
        most_s=None if allowed.answers else known.spending.pacing.most_s(left_s(known)),
        taken_ids=frozenset(known.history.call_ids),
        id_prefix=f"call_{number}",
        calls_in_text=_sought_calls(known, request),
    )


def sending(known: Known, request: Request, *, purpose: Purpose, own: int) -> Sending:
    """The request leaves."""
    stake = None
    if (price := known.config.prices.get(request.model)) is not None:
        now = replace(known.coming(), price=price)
        projected = known.spending.pacing.at_stake(request, own=own, coming=now)
        stake = AtStake(row=price, model=request.model, step=known.step, projected_usd=projected)
    return Sending(request=request, purpose=purpose, own=own, stake=stake)


def _sought_calls(known: Known, request: Request) -> SoughtCalls | None:
    """Which calls count in the text of the response. Where no tool may be called they are told from the answer all the same,
    so that the model is seen to disobey; what a continuation or a summary quotes is theirs. Without a tool there is no call,
    but reasoning may still stand at the text's beginning."""
    config, asking = known.config, known.asking
    if config.calls_in_text == "off" or (config.calls_in_text == "auto" and not config.leaves_calls_in_text):
        return None
    leading = asking is not None and asking.purpose in ("continue", "compact")
    is_forced = leading or (asking is not None and asking.forced)
    tools = known.specs if is_forced else request.tools
    if request.output is not None or (request.tool_choice == "none" and not is_forced):
        tools = ()
    return SoughtCalls(
        tools=tools,
        unmarked=bool(tools) and config.calls_in_text == "on",
        leading=leading,
        earlier=known.history.left_out if tools else (),
    )
