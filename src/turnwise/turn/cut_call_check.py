"""Cut calls that the rules will deny: they are asked before more of such a call is bought.

What arrived of a call may decide it: the tool alone, or a parameter that is whole (`path` before a long `content`). More
parameters only add paths and commands to judge, and one that is denied denies the call. What does not decide it yet is bought.
"""

import json
from collections.abc import Mapping, Sequence

import msgspec

from turnwise.rules.permission_facts import CallFacts
from turnwise.rules.permissions import Policy, names_match
from turnwise.rules.truncation import Cut, CutCall
from turnwise.turn.commands import PlannedCall
from turnwise.turn.config import ToolOffer, TurnConfig
from turnwise.turn.request_plan import RequestTerms
from turnwise.turn.verdicts import judge_calls
from turnwise.vocab import ArgumentsState, Message, ToolCall, text_of

CUT = " (The output limit had cut the call after {count:,} characters of its arguments. They decide this, whatever comes after.)"
NOT_LOOKED_AT = "it was cut before that could be looked at"
_DECODER = json.JSONDecoder()
_SPACE = " \t\n\r"


class Barred(msgspec.Struct, frozen=True, kw_only=True):
    """A cut call that the rules deny, as the model wrote it, and the words of its result."""

    name: str
    arguments: str
    text: str

    def is_of(self, call: ToolCall) -> bool:
        return call.state is not ArgumentsState.COMPLETE and (call.name, call.arguments) == (self.name, self.arguments)


def may_be_barred(
    cut: Cut, *, asking: RequestTerms, offers: Mapping[str, ToolOffer], config: TurnConfig
) -> list[CutCall]:
    """The cut calls that more would be bought of and that there are rules for."""
    if not config.judges_cut or config.policy is None or config.recover == "off" or asking.forced:
        return []
    return [
        one
        for one in cut.calls
        if one.call.name in asking.tools
        and not (offers[one.call.name].client_side or offers[one.call.name].asks_user)
        and offers[one.call.name].effect in config.allowed
    ]


def to_inspect(
    calls: Sequence[CutCall], *, offers: Mapping[str, ToolOffer], config: TurnConfig
) -> tuple[PlannedCall, ...]:
    """What of these calls can be looked at: their whole parameters. Hooks may change them yet, so with hooks nothing is."""
    if "before_tool" in config.hooks:
        return ()
    plans: list[PlannedCall] = []
    for place, one in enumerate(calls):
        arguments = "" if one.call.free_form else whole_parameters(one.call.arguments)
        if arguments and offers[one.call.name].inspected:
            plans.append(_plan(one.call, place=place, arguments=arguments))
    return tuple(plans)


def barred_by(
    calls: Sequence[CutCall],
    *,
    facts: Sequence[CallFacts],
    offers: Mapping[str, ToolOffer],
    config: TurnConfig,
) -> tuple[Barred, ...]:
    """Those of these calls that the rules deny whatever would still come of them."""
    policy = config.policy
    if policy is None:
        return ()
    known = {found.call_id: found for found in facts}
    attended = msgspec.structs.replace(policy, attended=True)
    found: list[Barred] = []
    for place, one in enumerate(calls):
        call, offer = one.call, offers[one.call.name]
        plan = _plan(call, place=place, arguments="{}")
        unseen = CallFacts(call_id=plan.call.id, tool=call.name, effect=offer.effect, unknown=NOT_LOOKED_AT)
        text = ""
        if not offer.inspected:
            text = _denial(plan, facts=None, policy=policy, offers=offers, config=config)
        elif not _has_exceptions(call.name, policy=policy):
            text = _denial(plan, facts=unseen, policy=attended, offers=offers, config=config)
        seen = known.get(plan.call.id)
        if not text and seen is not None and _is_telling(seen):
            text = _denial(plan, facts=seen, policy=policy, offers=offers, config=config)
        if text:
            text += CUT.format(count=len(call.arguments))
            found.append(Barred(name=call.name, arguments=call.arguments, text=text))
    return tuple(found)


def without(cut: Cut, *, barred: Sequence[Barred]) -> tuple[Cut, Cut]:
    """The cut with no prefix for the barred calls (none is continued), and the cut without these calls (none is asked for
    again)."""
    texts = {(one.name, one.arguments) for one in barred}
    kept = [one for one in cut.calls if (one.call.name, one.call.arguments) not in texts]
    spared = [one if one in kept else msgspec.structs.replace(one, prefix=None) for one in cut.calls]
    return msgspec.structs.replace(cut, calls=tuple(spared)), msgspec.structs.replace(cut, calls=tuple(kept))


def whole_parameters(arguments: str) -> str:
    """The JSON object of the parameters that arrived whole; empty where there is none. A number at the very end may be cut."""
    members: dict[str, object] = {}
    at = _skip(arguments, at=0)
    if arguments[at : at + 1] != "{":
        return ""
    try:
        while arguments[at] in "{,":
            key, at = _DECODER.raw_decode(arguments, _skip(arguments, at=at + 1))
            at = _skip(arguments, at=at)
            if not isinstance(key, str) or arguments[at] != ":":
                break
            value, at = _DECODER.raw_decode(arguments, _skip(arguments, at=at + 1))
            at = _skip(arguments, at=at)
            if at < len(arguments) or isinstance(value, str | dict | list):
                members[key] = value
    except (ValueError, IndexError, RecursionError):
        pass
    return json.dumps(members) if members else ""


def _skip(text: str, *, at: int) -> int:
    while at < len(text) and text[at] in _SPACE:
        at += 1
    return at


def _plan(call: ToolCall, *, place: int, arguments: str) -> PlannedCall:
    """Under an id of its own: those of a response may be missing or doubled before it is taken in."""
    return PlannedCall(call=msgspec.structs.replace(call, id=f"cut {place}"), arguments=arguments, timeout_s=0.0)


def _denial(
    plan: PlannedCall,
    *,
    facts: CallFacts | None,
    policy: Policy,
    offers: Mapping[str, ToolOffer],
    config: TurnConfig,
) -> str:
    known = {} if facts is None else {facts.call_id: facts}
    judged = judge_calls((plan,), facts=known, policy=policy, offers=offers, hint=config.allow_hint)
    result = judged.results.get(plan.call.id)
    return "" if result is None else text_of(Message("user", result.content))


def _has_exceptions(tool: str, *, policy: Policy) -> bool:
    """Whether a rule about paths or commands may let a call of the tool run that a rule about the tool denies."""
    return any(
        rule.verdict != "deny"
        and (rule.path is not None or rule.command is not None)
        and names_match(rule.tool, name=tool)
        for rule in policy.rules
    )


def _is_telling(facts: CallFacts) -> bool:
    """Whether a denial that rests on these facts holds for any more of them too."""
    if facts.unknown:
        return False
    if facts.effect == "execute":
        return facts.shell is not None and facts.shell.parsed
    return bool(facts.paths)
