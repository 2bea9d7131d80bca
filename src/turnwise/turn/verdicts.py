"""What becomes of calls before they run: rules judge them, and a person answers questions."""

import json
import re
from collections.abc import Collection, Mapping, Sequence

import msgspec

from turnwise.rules.advice import DECIDE_YOURSELF, GO_ON_WITHOUT, LOOK_AGAIN, allowed_by
from turnwise.rules.allowances import allowing_options
from turnwise.rules.arguments import Sound, Unsound, judge_call
from turnwise.rules.history import error_result, fit_result
from turnwise.rules.permission_facts import CallFacts
from turnwise.rules.permissions import (
    PLAN_ONLY,
    PermissionVerdict,
    Policy,
    allowed_by_default,
    asked_parts,
    hides_something,
    judge_permission,
    kept_for,
    names_match,
    rules_in_scope,
)
from turnwise.rules.read_only_commands import judged_programs
from turnwise.rules.recovery import Cut, CutCall
from turnwise.turn.config import Approval, OneAsk, ToolOffer, TurnConfig, digest_of, holds, settled
from turnwise.turn.events import HookOutcome, PlannedCall
from turnwise.turn.request_plan import RequestTerms
from turnwise.vocab import ArgumentsState, FinishReason, Message, Text, ToolCall, ToolResult, ToolSpec, text_of


# What the user's hooks do to calls before they run, and to their results.
class Sifted(msgspec.Struct, frozen=True, kw_only=True):
    """Calls that may continue, and the results of those that may not."""

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
    """The calls as the hooks left them. Changed arguments are validated like those of a model."""
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
                verdict = _changed(call, arguments=outcome.arguments, tools=tools)
                if isinstance(verdict, Unsound):
                    words = f"Not run: the hook `{outcome.by}` changed the arguments, and they are not usable now. "
                    results[call.id] = error_result(call, text=words + verdict.text)
                else:
                    arguments = verdict.arguments
        if call.id not in results:
            kept.append(plan if arguments == plan.arguments else msgspec.structs.replace(plan, arguments=arguments))
    return Sifted(planned=tuple(kept), results=results)


def _changed(call: ToolCall, *, arguments: str, tools: Mapping[str, ToolSpec]) -> Sound | Unsound:
    """The verdict on the call with other arguments than the model's."""
    changed = msgspec.structs.replace(
        call, arguments=arguments, state=ArgumentsState.COMPLETE, reason=None, alternatives=()
    )
    return judge_call(changed, tools=tools, finish=FinishReason.TOOL_CALLS, limit_tokens=None)


def edited_by_person(
    planned: Sequence[PlannedCall],
    *,
    answers: Mapping[str, Approval],
    asks: Sequence[OneAsk],
    tools: Mapping[str, ToolSpec],
) -> Sifted | None:
    """The calls as the person has changed them; they are judged again. None: no call was changed."""
    kept, results = list[PlannedCall](), dict[str, ToolResult]()
    asked = {ask.call.id for ask in asks}
    for plan in planned:
        answer = answers.get(plan.call.id)
        if answer is None or answer.arguments is None or plan.call.id not in asked:
            kept.append(plan)
            continue
        verdict = _changed(plan.call, arguments=answer.arguments, tools=tools)
        if isinstance(verdict, Unsound):
            text = f"Not run: the user changed the arguments, and they are not usable now. {verdict.text}"
            results[plan.call.id] = error_result(plan.call, text=text)
        else:
            kept.append(msgspec.structs.replace(plan, arguments=verdict.arguments, edited=True, shown=""))
    return Sifted(planned=tuple(kept), results=results) if results or tuple(kept) != tuple(planned) else None


def told_of_edits(results: Sequence[ToolResult], *, edited: Mapping[str, str]) -> list[ToolResult]:
    """The results; each of a call that the person has changed says first what it is a result of."""
    told = {id: (Text(EDITED.format(arguments=arguments)),) for id, arguments in edited.items()}
    return [msgspec.structs.replace(one, content=told.get(one.call_id, ()) + one.content) for one in results]


def changed_results(planned: Sequence[PlannedCall], *, outcomes: Sequence[HookOutcome]) -> dict[str, ToolResult]:
    """The results by which the hooks after the tools replaced the tools' own results, by call id."""
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


# A question without an answer is not asked again in other words.
NOBODY_THERE = f"There is nobody to ask in this run. {DECIDE_YOURSELF}"
NO_ANSWER = f"The user gave no answer. {DECIDE_YOURSELF}"
NOT_ASKED = f"The question did not reach the user, because the program that asks them failed. {DECIDE_YOURSELF}"
WILL_NOT_SAY = f"The user does not want to answer this. {DECIDE_YOURSELF}"
CHANGED_SINCE = (
    "Denied: this call would no longer do what the user was shown and allowed, so it was not run. " + LOOK_AGAIN
)
WOULD_FAIL = "Not run: `{tool}` would fail as things are, so the user was not asked about it: {why}"
EDITED = "[The user changed this call before it ran. What follows is about: {arguments}]\n"
MAX_WHYS = 20  # for the parts of one command; the whole command is shown above them
ASKED_BEFORE = "it was asked about before, and waits for an answer"
ASKED_AGAIN = "the call would now do something else than the user was shown and allowed, so the user is asked again"


def questions(
    planned: Sequence[PlannedCall],
    *,
    offers: Mapping[str, ToolOffer],
    attended: bool,
    decided: Collection[str] = (),
) -> Sifted:
    """Take the model's questions out of the calls. If nobody is there, they are answered at once (promise wait:ask), except those
    that are `decided` (see `judge_calls`)."""
    asks: list[OneAsk] = []
    kept: list[PlannedCall] = []
    results: dict[str, ToolResult] = {}
    for plan in planned:
        if not offers[plan.call.name].asks_user:
            kept.append(plan)
        elif attended or plan.call.id in decided:
            kept.append(plan)
            asks.append(_question(plan))
        else:
            results[plan.call.id] = _said(plan.call, NOBODY_THERE)
    return Sifted(planned=tuple(kept), results=results, asks=tuple(asks))


def judge_calls(
    planned: Sequence[PlannedCall],
    *,
    facts: Mapping[str, CallFacts],
    policy: Policy,
    offers: Mapping[str, ToolOffer],
    hint: str,
    decided: Collection[str] = (),
) -> Sifted:
    """The verdict of the rules on each call; questions have been taken out. For calls that are `decided` (ids of calls that an
    earlier run left pending) somebody was there, even if nobody is now."""
    kept: list[PlannedCall] = []
    results: dict[str, ToolResult] = {}
    asks: list[OneAsk] = []
    attended = msgspec.structs.replace(policy, attended=True)
    for plan in planned:
        call = plan.call
        if offers[call.name].asks_user:
            kept.append(plan)
            continue
        known = facts_of(plan, facts=facts, offers=offers)
        verdict = judge_permission(known, policy=attended if call.id in decided else policy)
        if verdict.kind == "deny":
            results[call.id] = error_result(call, text=_denied(known, why=verdict.why, hint=hint, policy=policy))
            continue
        if verdict.kind == "ask" and (
            fails := _known_to_fail(known, verdict=verdict, policy=policy, before=kept, facts=facts)
        ):
            results[call.id] = error_result(call, text=WOULD_FAIL.format(tool=call.name, why=fails))
            continue
        if verdict.kind == "ask":
            asks.append(
                OneAsk(
                    call=call,
                    arguments=plan.arguments,
                    subject=verdict.subject,
                    why=_why_asked(known, policy=attended, first=verdict.why),
                    digest=digest_of(call.name, arguments=plan.arguments, facts=known),
                )
            )
        judged = tuple(dict.fromkeys([path.resolved for path in known.paths if path.resolved]))
        programs = judged_programs(known.shell)
        unasked = verdict.kind == "allow" and known.shell is not None and allowed_by_default(known, policy=policy)
        keeps = kept_for(known, policy=policy, is_answered=unasked or verdict.kind == "ask")
        if judged or programs is not None or unasked or keeps:
            plan = msgspec.structs.replace(plan, paths=judged, programs=programs, unasked=unasked, keeps=keeps)
        kept.append(plan)
    return Sifted(planned=tuple(kept), results=results, asks=tuple(asks))


def _known_to_fail(
    known: CallFacts,
    *,
    verdict: PermissionVerdict,
    policy: Policy,
    before: Sequence[PlannedCall],
    facts: Mapping[str, CallFacts],
) -> str:
    """Why nobody is asked about this call: it would fail, whatever the calls `before` it do. Empty where that is not sure, or not
    for the model to know."""
    is_ruled = verdict.rule is not None and verdict.rule.path is not None
    if not known.fails or is_ruled or hides_something(known, home=policy.home):
        return ""
    touched = {path.resolved for path in known.paths}
    for plan in before:
        other = facts.get(plan.call.id)
        if other is not None and other.effect in ("none", "read"):
            continue
        if other is None or other.effect == "execute" or known.effect == "execute" or other.unknown:
            return ""
        if touched & {path.resolved for path in other.paths}:
            return ""
    return known.fails


def left_asks(
    planned: Sequence[PlannedCall],
    *,
    asks: Sequence[OneAsk],
    approvals: Sequence[Approval],
    facts: Mapping[str, CallFacts],
    offers: Mapping[str, ToolOffer],
) -> tuple[OneAsk, ...]:
    """The asks of calls that a person was asked about before, but that no rule asks about now. The person's answer counts, even
    if a rule (or the lack of rules) would let the calls run."""
    answers = settled(approvals)
    asked = {ask.call.id for ask in asks}
    found: list[OneAsk] = []
    for plan in planned:
        call = plan.call
        if call.id in answers and call.id not in asked:
            digest = digest_of(call.name, arguments=plan.arguments, facts=facts_of(plan, facts=facts, offers=offers))
            subject = answers[call.id].subject or call.name
            ask = OneAsk(call=call, arguments=plan.arguments, subject=subject, why=ASKED_BEFORE, digest=digest)
            found.append(ask)
    return tuple(found)


def facts_of(plan: PlannedCall, *, facts: Mapping[str, CallFacts], offers: Mapping[str, ToolOffer]) -> CallFacts:
    """The facts that were found, or those that are known without looking. If a tool works on paths or commands, the latter say
    that these are unknown."""
    name = plan.call.name
    offer = offers[name]
    unknown = "turnwise could not look at what the call touches" if offer.inspected else ""
    return facts.get(plan.call.id) or CallFacts(call_id=plan.call.id, tool=name, effect=offer.effect, unknown=unknown)


class Recalled(msgspec.Struct, frozen=True, kw_only=True):
    """The answers of an earlier run, matched with the current asks. `left` are the asks that somebody must answer now."""

    asks: tuple[OneAsk, ...]
    approvals: tuple[Approval, ...]
    left: tuple[OneAsk, ...]


def recalled(approvals: Sequence[Approval], *, asks: Sequence[OneAsk]) -> Recalled:
    """What an earlier run was answered. An answer to something else does not count: its ask is put again, says so, and leaves its
    call waiting if nobody answers. Answers in older journals have no digest; they are kept as they are."""
    answers = settled(approvals)
    told: list[OneAsk] = []
    kept: list[Approval] = []
    left: list[OneAsk] = []
    for ask in asks:
        approval = answers.get(ask.call.id)
        if approval is None:
            left.append(ask)
        elif approval.digest and not holds(approval, ask=ask):
            why = f"{ask.why}; {ASKED_AGAIN}" if ask.why else ASKED_AGAIN
            ask = msgspec.structs.replace(ask, why=why)
            kept.append(Approval(call_id=ask.call.id, verdict="later", by="default"))
            left.append(ask)
        else:
            kept.append(approval)
        told.append(ask)
    return Recalled(asks=tuple(told), approvals=tuple(kept), left=tuple(left))


def answered(planned: Sequence[PlannedCall], *, asks: Sequence[OneAsk], answers: Mapping[str, Approval]) -> Sifted:
    """The calls after the asks were answered. An ask without an answer gets its default."""
    asked = {ask.call.id: ask for ask in asks}
    kept: list[PlannedCall] = []
    results: dict[str, ToolResult] = {}
    pending: list[ToolCall] = []
    for plan in planned:
        ask = asked.get(plan.call.id)
        if ask is None:
            kept.append(plan)
            continue
        approval = answers.get(plan.call.id) or Approval(call_id=plan.call.id, verdict="deny", by="default")
        if approval.verdict == "later":
            pending.append(plan.call)
        elif ask.kind == "question":
            results[plan.call.id] = _said(plan.call, _answer(approval))
        elif approval.verdict == "deny":
            results[plan.call.id] = error_result(plan.call, text=_not_allowed(approval, ask=ask))
        elif not holds(approval, ask=ask):
            results[plan.call.id] = error_result(plan.call, text=CHANGED_SINCE)
        else:
            kept.append(msgspec.structs.replace(plan, shown=ask.digest))
    return Sifted(planned=tuple(kept), results=results, pending=tuple(pending))


def changed_since(
    planned: Sequence[PlannedCall], *, facts: Mapping[str, CallFacts], offers: Mapping[str, ToolOffer]
) -> dict[str, ToolResult]:
    """The results of calls that a person allowed and that would now do something else, by call id."""
    results: dict[str, ToolResult] = {}
    for plan in planned:
        known = facts_of(plan, facts=facts, offers=offers)
        if plan.shown and plan.shown != digest_of(plan.call.name, arguments=plan.arguments, facts=known):
            results[plan.call.id] = error_result(plan.call, text=CHANGED_SINCE)
    return results


def remembered(
    policy: Policy,
    *,
    asks: Sequence[OneAsk],
    answers: Mapping[str, Approval],
    planned: Sequence[PlannedCall],
    facts: Mapping[str, CallFacts],
    offers: Mapping[str, ToolOffer],
) -> Policy:
    """The policy with what was allowed always; it never allows more than what was shown."""
    plans = {plan.call.id: plan for plan in planned}
    rules = policy.rules
    for ask in asks:
        plan, approval = plans.get(ask.call.id), answers.get(ask.call.id)
        if plan is None or approval is None or not approval.always or approval.verdict != "allow":
            continue
        if approval.arguments is not None:
            continue  # it was about another call than the one that was shown
        if not holds(approval, ask=ask):
            continue
        known = facts_of(plan, facts=facts, offers=offers)
        rules += rules_in_scope(known, policy=msgspec.structs.replace(policy, rules=rules), scope=approval.scope)
    return policy if rules == policy.rules else msgspec.structs.replace(policy, rules=rules)


class _Asked(msgspec.Struct):
    question: str = ""
    options: list[str] = []


def _question(plan: PlannedCall) -> OneAsk:
    try:
        asked = msgspec.json.decode(plan.arguments, type=_Asked)
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        asked = _Asked(question=plan.arguments)
    return OneAsk(
        call=plan.call,
        arguments=plan.arguments,
        subject=asked.question,
        kind="question",
        options=tuple(asked.options),
        digest=digest_of(
            plan.call.name,
            arguments=plan.arguments,
            facts=CallFacts(call_id=plan.call.id, tool=plan.call.name, effect="none"),
        ),
    )


def _answer(approval: Approval) -> str:
    if approval.verdict == "allow" and approval.text.strip():
        return approval.text
    match approval.by:
        case "default":
            return NO_ANSWER
        case "failed":
            return NOT_ASKED
        case _:
            return WILL_NOT_SAY


def _said(call: ToolCall, text: str) -> ToolResult:
    return ToolResult(call_id=call.id, name=call.name, content=(Text(text),), free_form=call.free_form)


def _why_asked(known: CallFacts, *, policy: Policy, first: str) -> str:
    """All parts that need an answer, so that nothing hides behind the first part."""
    whys = [first, *[why for why in asked_parts(known, policy=policy) if why != first]] if first else []
    more = f"; and {len(whys) - MAX_WHYS:,} more" if len(whys) > MAX_WHYS else ""
    return "; ".join(whys[:MAX_WHYS]) + more


def _denied(known: CallFacts, *, why: str, hint: str, policy: Policy) -> str:
    """The result of a denied call. `hint` is that of TurnConfig.allow_hint; its part in brackets about `{options}` needs some."""
    if why == PLAN_ONLY:
        return f"Denied: `{known.tool}` was not run: {why}."
    options = allowing_options(known, policy=policy)
    how = re.sub(r"\[([^][]*\{options\}[^][]*)\]", r"\1" if options else "", hint)
    how = how.replace("{tool}", known.tool).replace("{effect}", known.effect).replace("{options}", options)
    why = why[:1].upper() + why[1:]
    return f"Denied: `{known.tool}` was not run. {why}. {allowed_by(how)} {GO_ON_WITHOUT}"


def _not_allowed(approval: Approval, *, ask: OneAsk) -> str:
    said = f" They said: {approval.text}" if approval.text.strip() and approval.by != "failed" else ""
    match approval.by:
        case "failed":
            who = f"the program that asks the user failed ({approval.text}), so the call is denied"
        case "default":
            who = "nobody answered, so the call is denied"
        case "program":
            who = "the program that runs this turn denied it"
        case "person":
            who = "the user denied it"
    return f"Denied: `{ask.call.name}` was not run, because {who}.{said} {GO_ON_WITHOUT}"


# Cut calls that the rules will deny: the rules judge them before turnwise pays for more of such a call.
#
# What arrived of a call may decide it: the tool alone, or a parameter that is whole (`path` before a long `content`). More
# parameters only add paths and commands to judge, and one denied path or command denies the call. If it is not decided yet,
# turnwise asks for the rest.


CUT = " (The output limit had cut the call after {count:,} characters of its arguments. They decide this, whatever comes after.)"
NOT_LOOKED_AT = "it was cut before that could be looked at"
_DECODER = json.JSONDecoder()
_SPACE = " \t\n\r"


class Barred(msgspec.Struct, frozen=True, kw_only=True):
    """A cut call that the rules deny, as the model wrote it, and the text of its result."""

    name: str
    arguments: str
    text: str

    def is_of(self, call: ToolCall) -> bool:
        return call.state is not ArgumentsState.COMPLETE and (call.name, call.arguments) == (self.name, self.arguments)


def may_be_barred(
    cut: Cut, *, asking: RequestTerms, offers: Mapping[str, ToolOffer], config: TurnConfig
) -> list[CutCall]:
    """The cut calls that would be continued and for which there are rules."""
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
    """The parts of these calls that can be judged: their whole parameters. Hooks may still change them, so with hooks nothing is
    judged here."""
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
    """The calls that the rules deny, whatever would still come of them."""
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
    """The cut with no prefix for the barred calls (they are not continued), and the cut without these calls (the model is not
    asked for them again)."""
    texts = {(one.name, one.arguments) for one in barred}
    kept = [one for one in cut.calls if (one.call.name, one.call.arguments) not in texts]
    spared = [one if one in kept else msgspec.structs.replace(one, prefix=None) for one in cut.calls]
    return msgspec.structs.replace(cut, calls=tuple(spared)), msgspec.structs.replace(cut, calls=tuple(kept))


def whole_parameters(arguments: str) -> str:
    """The JSON object of the parameters that arrived whole; empty if there are none. A number at the very end may be cut."""
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
    """The plan of the call under an id of its own: the ids of a response may be missing or doubled before it is taken in."""
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
    """Whether a rule about paths or commands may allow a call of the tool although a rule about the tool denies it."""
    return any(
        rule.verdict != "deny"
        and (rule.path is not None or rule.command is not None)
        and names_match(rule.tool, name=tool)
        for rule in policy.rules
    )


def _is_telling(facts: CallFacts) -> bool:
    """Whether a denial from these facts also holds for any further facts."""
    if facts.unknown:
        return False
    if facts.effect == "execute":
        return facts.shell is not None and facts.shell.parsed
    return bool(facts.paths)
