"""Asking the person at the client: each ask as a form of one field, answered within the ask's deadline."""

import asyncio
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import count

import msgspec
from mcp_types import ElicitRequestFormParams, ElicitResult

from turnwise.base.clock import Clock
from turnwise.coding_agent.asked_calls import (
    AskSurroundings,
    NotWhole,
    Widened,
    answer_to,
    answered_in_order,
    as_it_is_now,
    confusables_in,
    in_own_time,
    is_allowed,
    path_said,
    question_of,
    refusal_of,
    scope_named,
    steps_question,
    why_of,
    widenings,
)
from turnwise.coding_agent.text import visible, visible_line
from turnwise.rules.permission_facts import CallFacts
from turnwise.rules.permissions import Policy, RememberedScope
from turnwise.running.approvals import Asking
from turnwise.turn.config import Approval, OneAsk

FIELD = "answer"
ONCE, NO = "allow once", "do not run it"
ALWAYS: dict[RememberedScope, str] = {
    "call": "always allow in this run",
    "prefix": "always allow commands that begin so",
    "edits": "allow all file changes in this run",
}
MAX_SHOWN = 16 * 1024  # characters of a question: a person reads no more
MAX_OPTIONS = 20
MAX_WRITTEN = 64 * 1024  # characters of an answer, as at a terminal


class Question:
    """A form that the client is to show, when it does, and what came of it."""

    def __init__(self, key: str, form: ElicitRequestFormParams) -> None:
        self.key, self.form = key, form
        self.result: asyncio.Future[ElicitResult] = asyncio.get_running_loop().create_future()
        self.shown_s: asyncio.Future[float] = asyncio.get_running_loop().create_future()

    @property
    def is_open(self) -> bool:
        return not self.result.done()

    def answer(self, result: ElicitResult) -> None:
        if self.is_open:
            self.result.set_result(result)

    def withdraw(self) -> None:
        self.result.cancel()


class Questions:
    """Those of one run that wait for the client, one behind the other. `changed` is set by each new one."""

    def __init__(self, clock: Clock) -> None:
        self.changed = asyncio.Event()
        self._clock = clock
        self._numbers = count(1)
        self._asked: list[Question] = []

    @property
    def open(self) -> Sequence[Question]:
        self._asked = [one for one in self._asked if one.is_open]
        return tuple(self._asked)

    def ask(self, message: str, field: Mapping[str, object]) -> Question:
        schema = {"type": "object", "properties": {FIELD: {"type": "string", **field}}, "required": [FIELD]}
        form = ElicitRequestFormParams(message=message, requested_schema=schema)
        question = Question(f"ask-{next(self._numbers)}", form)
        self._asked.append(question)
        question.result.add_done_callback(lambda _: self.show(self.open[:1]))
        self.show(self.open[:1])
        self.changed.set()
        return question

    def show(self, questions: Sequence[Question]) -> None:
        """Their time begins, if it has not yet: the client shows them, or none is before them any more."""
        for one in questions:
            if not one.shown_s.done():
                one.shown_s.set_result(self._clock.monotonic())


class _Put(msgspec.Struct, frozen=True, kw_only=True):
    """An ask that was put to the client, and what more than one call a person may allow."""

    ask: OneAsk
    question: Question
    wider: Mapping[RememberedScope, Widened] = {}


class ClientApprover:
    """Puts all asks of a step to the client at once. What was allowed always is not asked again in the run: `policy` holds it. An
    answer that was not offered is a no."""

    def __init__(
        self, around: AskSurroundings, *, policy: Policy, questions: Questions, note: Callable[[str], object]
    ) -> None:
        self._around = around
        self.policy = policy
        self._questions = questions
        self._note = note

    async def __call__(self, asking: Asking) -> Sequence[Approval]:
        """The answers that came in time; the others take their default, and the result tells of them."""
        put: dict[str, _Put] = {}
        refused: dict[str, Approval] = {}
        try:
            for ask in asking.asks:
                try:
                    one = await self._put(ask, asking=asking)
                except NotWhole as fault:
                    self._note(f"not asked about, and denied: {visible_line(ask.call.name)}: {fault}")
                    refused[ask.call.id] = refusal_of(ask, fault=fault)
                    continue
                if one is not None:
                    put[ask.call.id] = one
            return await answered_in_order(
                asking,
                answered=lambda ask: self._answered(
                    ask, put=put.get(ask.call.id), refused=refused.get(ask.call.id), asking=asking
                ),
                clock=self._around.clock,
                note=self._note,
            )
        finally:
            for one in put.values():
                one.question.withdraw()

    async def _put(self, ask: OneAsk, *, asking: Asking) -> _Put | None:
        """None for what was allowed always. Raises NotWhole for what cannot be shown whole."""
        path = asking.path
        if ask.kind == "question":
            return _Put(ask=ask, question=self._questions.ask(*self._question_of(ask, path=path)))
        if ask.kind == "steps":
            question = steps_question(ask, asking=asking, around=self._around)
            return _Put(ask=ask, question=self._questions.ask(question, {"title": "Go on?", "enum": [ONCE, NO]}))
        facts = await self._around.facts(ask)
        if is_allowed(facts, policy=self.policy):
            return None
        ask = as_it_is_now(ask, facts=facts)
        wider = widenings(facts, policy=self.policy)
        message = await self._shown(ask, facts=facts, path=path, wider=wider)
        field = {"title": "Run it?", "enum": [ONCE, *[ALWAYS[scope] for scope in wider], NO]}
        return _Put(ask=ask, question=self._questions.ask(message, field), wider=wider)

    async def _answered(self, ask: OneAsk, *, put: _Put | None, refused: Approval | None, asking: Asking) -> Approval:
        """Raises NotInTime."""
        if refused is not None:
            return refused
        if put is None:
            return answer_to(ask, verdict="allow")
        shown_s = await put.question.shown_s
        if ask.kind == "approval" and is_allowed(
            await self._around.facts(ask), policy=self.policy
        ):  # since the answer to another
            put.question.withdraw()
            return answer_to(put.ask, verdict="allow")
        result = put.question.result
        said = _said(await in_own_time(result, asking=asking, clock=self._around.clock, shown_s=shown_s))
        if ask.kind == "question":
            text = _options_of(ask).get(said, "" if ask.options else said)
            return answer_to(ask, verdict="allow" if text else "deny", text=text)
        if (scope := scope_named(said, names=ALWAYS, offered=put.wider)) is not None:
            rules = (*self.policy.rules, *put.wider[scope].rules)
            self.policy = msgspec.structs.replace(self.policy, rules=rules)
            return answer_to(put.ask, verdict="allow", scope=scope)
        return answer_to(put.ask, verdict="allow" if said == ONCE else "deny")

    async def _shown(
        self, ask: OneAsk, *, facts: CallFacts, path: tuple[str, ...], wider: Mapping[RememberedScope, Widened]
    ) -> str:
        """What would run, and what a file tool would change; why it is asked."""
        workspace = self._around.workspace
        runs, changes = await self._around.would_do(ask, facts=facts)
        what = [*runs, *changes]
        marks = await asyncio.to_thread(confusables_in, [ask.call.name, *what], folder=lambda: workspace.root)
        below = [
            *([f"asked because: {visible_line(why_of(ask))}"] if why_of(ask) else []),
            *[f"`{ALWAYS[scope]}` would allow: {one.said}" for scope, one in wider.items()],
            *marks.lines,
        ]
        who = f" (asked by {path_said(path)})" if path else ""
        return _whole(map(marks.mark, [f"{question_of(ask, changes=changes)}{who}", *what]), below=below)

    def _question_of(self, ask: OneAsk, *, path: tuple[str, ...]) -> tuple[str, dict[str, object]]:
        """A question's message and its field. Raises NotWhole."""
        name = visible_line(ask.call.name)
        who = " › ".join([*[visible_line(one) for one in path], "the model" if ask.by == "model" else name])
        why = [f"asked because: {visible_line(ask.why)}"] if ask.why else []
        marks = confusables_in([ask.subject, *ask.options], folder=lambda: self._around.workspace.root)
        message = _whole([f"{who} asks:", *visible(ask.subject).split("\n")], below=[*why, *marks.lines])
        options = list(_options_of(ask))
        field: dict[str, object] = {"enum": options} if options else {"maxLength": MAX_WRITTEN}
        return message, {"title": "Answer", **field}


def _options_of(ask: OneAsk) -> Mapping[str, str]:
    """The answers to choose from, by what is shown of each."""
    return {visible_line(option)[:MAX_WRITTEN]: option for option in ask.options[:MAX_OPTIONS]}


def _whole(lines: Iterable[str], *, below: Sequence[str]) -> str:
    """All of it. Raises NotWhole where it is longer than a person reads."""
    text = "\n".join([*lines, *below])
    if len(text) > MAX_SHOWN:
        raise NotWhole(f"it has {len(text):,} characters, and {MAX_SHOWN:,} can be shown")
    return text


def _said(result: ElicitResult) -> str:
    """Empty where the person gave no answer."""
    text = (result.content or {}).get(FIELD) if result.action == "accept" else None
    return text.strip()[:MAX_WRITTEN] if isinstance(text, str) else ""
