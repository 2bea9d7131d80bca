"""The calls of a response: which run, and what comes after them.

A call goes one way: the hooks before tools, the facts that a verdict needs, the verdict, the person, the tool, the hooks
after tools. Each stop is a command only where there is something to do at it.
"""

from collections.abc import Sequence
from decimal import Decimal

import msgspec

from turnwise.rules.advice import FINISH, SEND_THE_REST
from turnwise.rules.history import error_result, fit_result
from turnwise.rules.limits import (
    Limit,
    MaxRequests,
    Spent,
    counts_tool_calls,
    most_tool_calls,
    most_usd,
    wall_time_s,
)
from turnwise.rules.permission_facts import CallFacts
from turnwise.rules.pricing import ZERO
from turnwise.rules.shares import NOTHING_LEFT, Share, shares_of
from turnwise.rules.subagents import Bounds, Place, no_place, paid, places_of
from turnwise.turn.approvals import Approval, OneAsk, settled
from turnwise.turn.asking import Asking
from turnwise.turn.calls import MAX_CALLS, Adopted, sort_calls, unfit
from turnwise.turn.commands import Ask, Command, InspectCalls, PlannedCall, RunHooks, RunTools
from turnwise.turn.config import ChildReport, ToolOffer
from turnwise.turn.endings import NOT_REPORTED, NOTHING_LEFT_FOR_CHILD
from turnwise.turn.events import HookOutcome
from turnwise.turn.resuming import left_alone, with_undecided
from turnwise.turn.retrying import Retrying
from turnwise.turn.verdicts import (
    Sifted,
    after_hooks,
    answered,
    changed_results,
    judge_calls,
    left_asks,
    questions,
    recalled,
    remembered,
)
from turnwise.vocab import FinishReason, Response, StopReason, ToolCall, ToolResult, calls_of, text_of

NO_MORE_CALLS = "Not run: the turn's limit of tool calls is reached. " + FINISH
NOT_IN_LINE = (
    "Not run, and nobody was asked about it: the turn's limit of tool calls leaves room only for calls before it. "
    + SEND_THE_REST
)


class Calling(Retrying, kw_only=True):
    """The tool calls of a turn."""

    def _run(self, adopted: Adopted, *, response: Response, asking: Asking) -> Command:
        """Run what may run; everything else has its result at once."""
        self._append(adopted.message)
        sorted_ = sort_calls(
            adopted.calls,
            finish=response.finish,
            names=asking.tools,
            limit_tokens=asking.limit_tokens,
            offers=self.offers,
            config=self.config,
            guarding=self.guarding,
            most=MAX_CALLS,
        )
        self.calls, self.has_called = calls_of(adopted.message), True
        self.pacing = self.pacing.begin_calls(self._left_s_for_calls)
        self.guarding = self.guarding.rejected(sorted_.misfits).judge(adopted.calls)
        read = self.room.read(sorted_.planned, config=self.config)
        known = read | self.guarding.answers(sorted_.planned, messages=self.messages, offers=self.offers)
        known |= {
            call.id: error_result(call, text=one.text)
            for one in self.barred
            for call in adopted.calls
            if call.id in sorted_.results and one.is_of(call)
        }
        self.barred = ()
        self.planned, self.pending, self.results = sorted_.planned, sorted_.pending, sorted_.results
        if known:
            self.planned = tuple([plan for plan in sorted_.planned if plan.call.id not in known])
            self.results = sorted_.results | known
        self.last_text, self.said, self.said_lost = text_of(response.message), "", False
        self.empties, self.eaten, self.correcting = 0, 0, False
        return self._hook_before()

    def _resume(self, calls: tuple[ToolCall, ...]) -> Command:
        """Take up the calls that an earlier run left pending, now that they are answered, or some of them."""
        left: frozenset[str] = frozenset()
        if self.keeps_waiting:
            left = left_alone(calls, offers=self.offers)
            self.approved = with_undecided(self.approved, calls=[call for call in calls if call.id not in left])
        sorted_ = sort_calls(
            tuple([call for call in calls if call.id not in left]),
            finish=FinishReason.TOOL_CALLS,
            names=tuple(self.offers),
            limit_tokens=None,
            offers=self.offers,
            config=self.config,
        )
        self.calls, self.has_called = calls, True
        self.pacing = self.pacing.begin_calls(self._left_s_for_calls)
        self.planned, self.results = sorted_.planned, sorted_.results
        if self.keeps_waiting:
            left |= unfit(sorted_.results, calls=calls, approvals=self.approved, offers=self.offers, config=self.config)
            self.results = {id: result for id, result in sorted_.results.items() if id not in left}
        left |= {call.id for call in sorted_.pending}
        self.pending = tuple([call for call in calls if call.id in left])
        return self._hook_before()

    @property
    def _left_s_for_calls(self) -> float | None:
        """Of the turn's time, if nothing else holds a limit back once the answer is asked for; None where nothing limits it."""
        if self.config.limits is None:
            return None
        answer = self.pacing.answer(prompt_tokens=self._prompt_tokens, price=self._price)
        spent = self._spent_in(self.step) + msgspec.structs.replace(answer, elapsed_s=0.0)
        total_s = wall_time_s(self.config.limits, spent=spent)
        return None if total_s is None else max(total_s - self.pacing.at_s, 0.0)

    # before they run

    def _hook_before(self) -> Command:
        if self.planned and "before_tool" in self.config.hooks:
            return RunHooks(step=self.step, point="before_tool", deadlines=self.config.deadlines, calls=self.planned)
        return self._inspect()

    @property
    def _calls_left(self) -> int | None:
        """So many more calls may be given to their tools; None where no limit counts them."""
        if not counts_tool_calls(self.config.limits):
            return None
        spent = self._spent_in(self.step)
        most = most_tool_calls(self.config.limits, spent=spent)
        return None if most is None else max(most - spent.tool_calls, 0)

    def _count_calls(self, number: int) -> None:
        if counts_tool_calls(self.config.limits):
            self.also_spent += Spent(tool_calls=number)

    def _hooked_before(self, outcomes: Sequence[HookOutcome]) -> Command:
        specs = {name: offer.spec for name, offer in self.offers.items()}
        self._sift(after_hooks(self.planned, outcomes=outcomes, tools=specs))
        return self._inspect()

    def _inspect(self) -> Command:
        if self.config.policy is None and not self._is_resuming:
            return self._judge(())
        inspected = tuple([plan for plan in self.planned if self.offers[plan.call.name].inspected])
        return InspectCalls(step=self.step, calls=inspected) if inspected else self._judge(())

    @property
    def _is_resuming(self) -> bool:
        """The calls at hand were left to a person before: their word decides, beside the rules."""
        return self.keeps_waiting and bool(self.approved)

    def _judge(self, facts: Sequence[CallFacts]) -> Command:
        policy = self.config.policy
        self.facts = {found.call_id: found for found in facts}
        asks_user = [plan for plan in self.planned if self.offers[plan.call.name].asks_user]
        if policy is None and not asks_user and not self._is_resuming:
            return self._start_tools()
        decided = [approval.call_id for approval in self.approved]
        asked = questions(
            self.planned,
            offers=self.offers,
            attended=policy is not None and policy.attended,
            decided=decided if self._is_resuming else (),
        )
        self._sift(asked)
        asks = asked.asks
        if policy is not None:
            judged = judge_calls(
                self.planned,
                facts=self.facts,
                policy=policy,
                offers=self.offers,
                hint=self.config.allow_hint,
                decided=decided,
            )
            self._sift(judged)
            asks += judged.asks
        if self._is_resuming:
            asks += left_asks(self.planned, asks=asks, approvals=self.approved, facts=self.facts, offers=self.offers)
        if not asks:
            return self._start_tools()
        before = recalled(self.approved, asks=asks)
        self.approved, self.asks = before.approvals, before.asks
        left = self._worth_asking(before.left)
        if not left:
            return self._asked(())
        return Ask(step=self.step, asks=left, deadline_s=self._before_answer(self.config.deadlines.ask_s))

    def _worth_asking(self, asks: tuple[OneAsk, ...]) -> tuple[OneAsk, ...]:
        """Those of these asks whose calls have a place under the limits if they are allowed: nobody is asked in vain. A call
        without a place has its result; one that an earlier run left waiting waits on."""
        left = self._calls_left
        if left is None:
            return asks
        asked = {ask.call.id for ask in asks}
        out = {id for id, answer in settled(self.approved).items() if answer.verdict != "allow"} - asked
        takers = [plan.call for plan in self.planned if self._takes_place(plan) and plan.call.id not in out]
        beyond = {call.id: call for call in takers[left:] if call.id in asked}
        if self._is_resuming:
            later = [Approval(call_id=id, verdict="later", by="default") for id in beyond]
            self.approved = (*self.approved, *later)
        elif beyond:
            text = NOT_IN_LINE if left else NO_MORE_CALLS
            kept = tuple([plan for plan in self.planned if plan.call.id not in beyond])
            results = {id: error_result(call, text=text) for id, call in beyond.items()}
            self._sift(Sifted(planned=kept, results=results))
            self.asks = tuple([ask for ask in self.asks if ask.call.id not in beyond])
        return tuple([ask for ask in asks if ask.call.id not in beyond])

    def _takes_place(self, plan: PlannedCall) -> bool:
        """Whether it counts as a call of a tool: a program's calls do, in its place, and a question has no tool."""
        offer = self.offers[plan.call.name]
        return not offer.script and not offer.asks_user

    def _before_answer(self, seconds: float) -> float:
        """So many, or fewer where the turn's time would be up: one deadline comes before the other, with the answer between."""
        most_s = self.pacing.calls_s
        return seconds if most_s is None else min(seconds, most_s)

    def _asked(self, approvals: Sequence[Approval]) -> Command:
        answers = settled((*self.approved, *approvals))
        if self.config.policy is not None:
            policy = remembered(
                self.config.policy,
                asks=self.asks,
                answers=answers,
                planned=self.planned,
                facts=self.facts,
                offers=self.offers,
            )
            self.config = msgspec.structs.replace(self.config, policy=policy)
        found = answered(self.planned, asks=self.asks, answers=answers)
        later = {call.id for call in found.pending}
        self.asks = tuple([ask for ask in self.asks if ask.call.id in later])
        self._sift(found)
        return self._start_tools()

    def _start_tools(self) -> Command:
        self.approved = ()
        beyond = self._give_places()
        children = [plan.call.id for plan in self.planned if self.offers[plan.call.name].child]
        if children:
            before = len(self.planned)
            self._grant(children)
            beyond = self._give_places_back(before - len(self.planned), waiting=beyond)
        self._sift(
            Sifted(
                planned=self.planned,
                results={plan.call.id: error_result(plan.call, text=NO_MORE_CALLS) for plan in beyond},
            )
        )
        if self.planned:
            return RunTools(step=self.step, calls=self.planned, most_s=self.pacing.calls_s)
        return self._after_tools(())

    def _give_places(self) -> tuple[PlannedCall, ...]:
        """Count the calls that the limits leave room for, the first ones; those beyond are not planned any more."""
        left = self._calls_left
        beyond = () if left is None else self.planned[left:]
        self.planned = self.planned[: len(self.planned) - len(beyond)]
        self._count_calls(len(self.planned))
        return beyond

    def _give_places_back(self, freed: int, *, waiting: tuple[PlannedCall, ...]) -> tuple[PlannedCall, ...]:
        """Give the places of sub-agents that do not start to calls that have none; what is still without one. A further
        sub-agent has no share either."""
        if not freed:
            return waiting
        children = [plan for plan in waiting if self.offers[plan.call.name].child]
        others = [plan for plan in waiting if not self.offers[plan.call.name].child]
        now = others[:freed]
        self._count_calls(len(now) - freed)
        self._sift(
            Sifted(
                planned=(*self.planned, *now),
                results={plan.call.id: error_result(plan.call, text=NOTHING_LEFT_FOR_CHILD) for plan in children},
            )
        )
        return tuple(others[freed:])

    def _grant(self, children: Sequence[str]) -> None:
        """Give each child its place in the tree and its share of what the limits leave, before anything is spent (promises
        safe:bounded, end:budget); where that is too little for all of them, the first ones."""
        bounds = Bounds(subagents=self.config.max_subagents, requests=self.config.max_subagent_requests)
        most = len(places_of(bounds, used=self.used, among=len(children)))
        share, count = self._shares(children[:most])
        places = dict(zip(children[:count], places_of(bounds, used=self.used, among=count), strict=True))
        full = no_place(bounds, used=self.used, started=count)
        texts = {id: full if nth >= most else NOTHING_LEFT_FOR_CHILD for nth, id in enumerate(children) if nth >= count}
        self._sift(
            Sifted(
                planned=tuple(
                    [
                        self._placed(plan, place=places.get(plan.call.id), limit=share.limit)
                        for plan in self.planned
                        if plan.call.id not in texts
                    ]
                ),
                results={
                    plan.call.id: error_result(plan.call, text=texts[plan.call.id])
                    for plan in self.planned
                    if plan.call.id in texts
                },
            )
        )

    def _shares(self, children: Sequence[str]) -> tuple[Share, int]:
        """The share of the turn's limits that each of the first so many of these children has."""
        if self.config.limits is None or not children:
            return Share(None), len(children)
        most_s = self.pacing.most_s(self._left_s)
        if most_s is not None and min(most_s, self._before_answer(1.0)) <= 0.0:
            return NOTHING_LEFT, 0
        spent = self._spent_in(self.step) + self.pacing.answer(prompt_tokens=self._prompt_tokens, price=self._price)
        plans = [plan for plan in self.planned if plan.call.id in children]
        least_usd = [_least_usd(plan, offer=self.offers[plan.call.name]) for plan in plans]
        return shares_of(self.config.limits, spent=spent, among=len(children), least_usd=least_usd)

    def _placed(self, plan: PlannedCall, *, place: Place | None, limit: Limit | None) -> PlannedCall:
        """The call with what its sub-agent may spend; another call as it is."""
        if place is None:
            return plan
        if place.requests is not None:
            own = MaxRequests(place.requests)
            limit = own if limit is None else limit | own
        timeout_s = self._before_answer(plan.timeout_s)
        return msgspec.structs.replace(plan, place=place, grant=limit, timeout_s=timeout_s)

    # after they ran

    def _ran(self, results: Sequence[ToolResult], *, children: Sequence[ChildReport]) -> Command:
        if children:
            self._pay_for(children)
        if self.planned and "after_tool" in self.config.hooks:
            calls = {plan.call.id: plan.call for plan in self.planned}
            reported = {id: error_result(call, text=NOT_REPORTED) for id, call in calls.items()}
            for one in reversed(results):  # the first one counts
                if one.call_id in calls:
                    reported[one.call_id] = fit_result(one, call=calls[one.call_id])
            self.results = {**self.results, **reported}
            return RunHooks(
                step=self.step,
                point="after_tool",
                deadlines=self.config.deadlines,
                calls=self.planned,
                results=tuple(reported.values()),
            )
        return self._after_tools(results)

    def _pay_for(self, children: Sequence[ChildReport]) -> None:
        self.children = (*self.children, *children)
        plans = {plan.call.id: plan for plan in self.planned}
        for child in children:
            plan = plans.get(child.call_id)
            self.used = paid(
                self.used,
                subagents=child.subagents,
                requests=child.requests,
                place=None if plan is None else plan.place,
                has_ended=child.stop_reason is not None,
            )
            self.also_spent += child.also_spent
            if child.stop_reason is None and plan is not None:  # it may have made as many as it might
                self.also_spent += Spent(tool_calls=most_tool_calls(plan.grant) or 0)
            share_usd = most_usd(None if plan is None else plan.grant)
            if child.charged_usd is None and share_usd:
                self.purse = self.purse.pays_unknown(share_usd)

    def _hooked_after(self, outcomes: Sequence[HookOutcome]) -> Command:
        results = [self.results[plan.call.id] for plan in self.planned if plan.call.id in self.results]
        self.results = {**self.results, **changed_results(self.planned, results=results, outcomes=outcomes)}
        return self._after_tools(())

    def _after_tools(self, reported: Sequence[ToolResult]) -> Command:
        self._close_calls(reported, missing=NOT_REPORTED)
        self.planned, self.facts = (), {}
        if not self.pending:
            return self._begin_step()
        self._mark_asked()
        return self._finish(StopReason.WAITING, text=self.last_text, pending=self.pending)

    def _sift(self, sifted: Sifted) -> None:
        self.planned = sifted.planned
        self.results = self.results | sifted.results
        if sifted.pending:
            waiting = {call.id for call in (*self.pending, *sifted.pending)}
            self.pending = tuple([call for call in self.calls if call.id in waiting])


class _Task(msgspec.Struct):
    agent: str = ""


def _least_usd(plan: PlannedCall, *, offer: ToolOffer) -> Decimal:
    """What a request of the agent that is called costs at the least; where none is named, the dearest may be meant."""
    try:
        agent = msgspec.json.decode(plan.arguments, type=_Task).agent
    except msgspec.MsgspecError:  # a tool of another shape
        agent = ""
    return offer.child_usd.get(agent, max(offer.child_usd.values(), default=ZERO))
