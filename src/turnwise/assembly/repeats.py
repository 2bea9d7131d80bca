"""One call that a response says twice (promise assembly:same-call-once).

Gateways send an item again, or a stream's call and then the final item under another index. Same id, name and arguments are one
call. Arguments are compared as JSON values: a server that says a call again may write it with other spaces. The reading is safe
in both directions: whatever compares equal would do the same, and whatever differs, be it `1` and `1.0`, stays two calls.
"""

from collections.abc import Mapping

from turnwise.assembly.argument_text import SettledArguments, same_value
from turnwise.assembly.tool_calls import OpenCall
from turnwise.vocab import ArgumentsState


def repeated_calls(judged: Mapping[OpenCall, SettledArguments]) -> set[OpenCall]:
    """The calls that say only what another call of the same id says.

    A different call under the same id means that the id is a server's constant: then equal calls may be two, and all stay. A
    call without an id of its own is never one of these. A call that lost a piece says nothing about the others, and stays.
    """
    by_id: dict[str, list[OpenCall]] = {}
    for call, settled in judged.items():
        if call.wire_id is not None and settled.state is not ArgumentsState.LOST:
            by_id.setdefault(call.wire_id, []).append(call)
    found: set[OpenCall] = set()
    for calls in by_id.values():
        if len(calls) > 1:
            whole = max(calls, key=lambda call: _worth(judged[call]))  # the first one of those that are worth the same
            others = [call for call in calls if call is not whole]
            if all(_is_repeated(call, by=whole, judged=judged) for call in others):
                found.update(others)
    return found


def _is_repeated(call: OpenCall, *, by: OpenCall, judged: Mapping[OpenCall, SettledArguments]) -> bool:
    """Whether `call` says what the call `by` says, or was cut while it said that."""
    here, there = judged[call], judged[by]
    if call.name != by.name or call.free_form is not by.free_form:
        return False
    if here.state is ArgumentsState.TRUNCATED:
        return there.arguments.startswith(here.arguments)
    if here.state is not there.state:
        return False
    return here.arguments == there.arguments or (not call.free_form and same_value(here.arguments, there.arguments))


def _worth(settled: SettledArguments) -> tuple[bool, int]:
    is_cut = settled.state is ArgumentsState.TRUNCATED
    return settled.state is ArgumentsState.COMPLETE, len(settled.arguments) if is_cut else 0
