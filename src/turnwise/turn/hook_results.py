"""What the user's hooks make of calls before they run, and of their results."""

from collections.abc import Mapping, Sequence

import msgspec

from turnwise.rules.advice import GO_ON_WITHOUT
from turnwise.rules.arguments import Unsound, judge_call
from turnwise.rules.history import error_result, fit_result
from turnwise.turn.approvals import OneAsk
from turnwise.turn.commands import PlannedCall
from turnwise.turn.events import HookOutcome
from turnwise.vocab import ArgumentsState, FinishReason, ToolCall, ToolResult, ToolSpec


class Sifted(msgspec.Struct, frozen=True, kw_only=True):
    """Calls that may go on, and the results of those that may not."""

    planned: tuple[PlannedCall, ...]
    results: dict[str, ToolResult]
    asks: tuple[OneAsk, ...] = ()
    pending: tuple[ToolCall, ...] = ()


def after_hooks(
    planned: Sequence[PlannedCall],
    *,
    outcomes: Sequence[HookOutcome],
    tools: Mapping[str, ToolSpec],
) -> Sifted:
    """The calls as the hooks left them. Changed arguments are validated as those of a model are."""
    kept: list[PlannedCall] = []
    results: dict[str, ToolResult] = {}
    for plan in planned:
        call, arguments = plan.call, plan.arguments
        for outcome in outcomes:
            if outcome.call_id != call.id or call.id in results:
                continue
            if outcome.denied is not None:
                text = f"Denied by the hook `{outcome.by}`: {outcome.denied or 'no reason was given'}. {GO_ON_WITHOUT}"
                results[call.id] = error_result(call, text=text)
            elif outcome.result is not None:
                results[call.id] = fit_result(outcome.result, call=call)
            elif outcome.arguments is not None:
                changed = msgspec.structs.replace(
                    call, arguments=outcome.arguments, state=ArgumentsState.COMPLETE, reason=None, alternatives=()
                )
                verdict = judge_call(changed, tools=tools, finish=FinishReason.TOOL_CALLS, limit_tokens=None)
                if isinstance(verdict, Unsound):
                    words = f"Not run: the hook `{outcome.by}` changed the arguments, and they are not usable now. "
                    results[call.id] = error_result(call, text=words + verdict.text)
                else:
                    arguments = verdict.arguments
        if call.id not in results:
            kept.append(plan if arguments == plan.arguments else msgspec.structs.replace(plan, arguments=arguments))
    return Sifted(planned=tuple(kept), results=results)


def changed_results(planned: Sequence[PlannedCall], *, outcomes: Sequence[HookOutcome]) -> dict[str, ToolResult]:
    """The results that the hooks after the tools put in place of those that the tools gave, by call id."""
    calls = {plan.call.id: plan.call for plan in planned}
    changed: dict[str, ToolResult] = {}
    for outcome in outcomes:
        call = calls.get(outcome.call_id)
        if call is None:
            continue
        if outcome.denied is not None:
            text = f"The tool ran, but the hook `{outcome.by}` withholds its result: {outcome.denied}"
            changed[call.id] = error_result(call, text=text)
        elif outcome.result is not None:
            changed[call.id] = fit_result(outcome.result, call=call)
    return changed
