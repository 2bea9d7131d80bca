"""Asking the person at the editor: what will run and what it would change, within the ask's deadline."""

import asyncio
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import msgspec
from acp.exceptions import RequestError
from acp.schema import (
    AcceptElicitationResponse,
    AllowedOutcome,
    ElicitationFormSessionMode,
    ElicitationSchema,
    ElicitationStringPropertySchema,
    PermissionOption,
    ToolCallUpdate,
)
from pydantic import ValidationError

from turnwise.coding_agent.asked_calls import (
    MAX_TITLE,
    AskSurroundings,
    NotWhole,
    answer_to,
    answered_in_order,
    as_it_is_now,
    confusables_in,
    decoded_texts,
    ends_of,
    in_own_time,
    is_allowed,
    refusal_of,
    scope_named,
    steps_question,
    title_of,
    why_of,
    widenings,
)
from turnwise.coding_agent.text import visible, visible_line
from turnwise.editors.acp.editor_updates import (
    Content,
    EditorTeller,
    Updates,
    arguments_of,
    diffs_of,
    kind_of,
    locations_of,
    told,
)
from turnwise.rules.permission_facts import CallFacts
from turnwise.rules.permissions import Policy, RememberedScope
from turnwise.running.approvals import Asking
from turnwise.turn.config import Approval, OneAsk
from turnwise.vocab import ToolCall

if TYPE_CHECKING:
    from acp.agent.connection import AgentSideConnection

ONCE, NO = "allow-once", "reject-once"
ALWAYS: dict[RememberedScope, str] = {
    "call": "allow-always",
    "prefix": "allow-always-prefix",
    "edits": "allow-always-edits",
}
MAX_OPTIONS = 20  # of a question
MAX_WRITTEN = 64 * 1024  # characters of an answer, as at a terminal
ANSWER = "answer"
WITHOUT_SANDBOX = "without sandbox: it runs in the editor's terminal"


class AskMeans(msgspec.Struct, frozen=True, kw_only=True):
    """The editor's session, and what its asks are judged and shown by."""

    client: "AgentSideConnection"
    session: str
    around: AskSurroundings
    runs_commands: bool  # the editor does, without a sandbox
    has_forms: bool  # the editor can ask for a text


class EditorApprover:
    """Puts one ask after the other to the editor. What was allowed always is not asked again: `policy` holds it, for further
    turns. An answer that was not offered is a no."""

    def __init__(
        self,
        means: AskMeans,
        *,
        policy: Policy,
        updates: Updates,
        teller: EditorTeller,
        note: Callable[[str], object],
    ) -> None:
        self._means = means
        self.policy = policy
        self._updates = updates
        self._teller = teller
        self._note = note

    async def __call__(self, asking: Asking) -> Sequence[Approval]:
        """The answers that came in time; the others take their default, and the person is told."""
        return await answered_in_order(
            asking, answered=lambda ask: self._one(ask, asking=asking), clock=self._means.around.clock, note=self._note
        )

    async def _one(self, ask: OneAsk, *, asking: Asking) -> Approval:
        """Raises NotInTime."""
        if ask.kind == "question":
            return await self._question(ask, asking=asking)
        if ask.kind == "steps":
            return await self._steps(ask, asking=asking)
        facts = await self._means.around.facts(ask)
        if is_allowed(facts, policy=self.policy):
            return answer_to(ask, verdict="allow")
        ask = as_it_is_now(ask, facts=facts)
        wider = widenings(facts, policy=self.policy)
        options = [PermissionOption(option_id=ONCE, name="Allow once", kind="allow_once")]
        more: list[str] = []
        for scope, one in wider.items():
            said = ends_of(one.said)
            more += [] if said == one.said else [f"always would allow: {one.said}"]
            name = f"Always allow in this session: {said}"
            options.append(PermissionOption(option_id=ALWAYS[scope], name=name, kind="allow_always"))
        options.append(PermissionOption(option_id=NO, name="Do not run it", kind="reject_once"))
        try:
            content = await self._shown(ask, facts=facts, more=more)
        except NotWhole as fault:
            return self._refused(ask, fault=fault)
        chosen = await self._chosen(ask, asking=asking, content=content, options=options)
        if (scope := scope_named(chosen, names=ALWAYS, offered=wider)) is not None:
            rules = (*self.policy.rules, *wider[scope].rules)
            self.policy = msgspec.structs.replace(self.policy, rules=rules)
            return answer_to(ask, verdict="allow", scope=scope)
        return answer_to(ask, verdict="allow" if chosen == ONCE else "deny")

    async def _steps(self, ask: OneAsk, *, asking: Asking) -> Approval:
        """Whether the turn may take more steps than its limit."""
        question = steps_question(ask, asking=asking, around=self._means.around)
        options = [
            PermissionOption(option_id=ONCE, name="Go on", kind="allow_once"),
            PermissionOption(option_id=NO, name="Answer now", kind="reject_once"),
        ]
        chosen = await self._chosen(ask, asking=asking, content=[told(question, whole=True)], options=options)
        return answer_to(ask, verdict="allow" if chosen == ONCE else "deny")

    async def _question(self, ask: OneAsk, *, asking: Asking) -> Approval:
        """One with answers to choose from is put as a choice, any other as a form, if the editor has forms."""
        choices = [f"{number}. {option}" for number, option in enumerate(ask.options, 1)]
        marks = confusables_in([ask.subject, *ask.options], folder=lambda: self._means.around.workspace.root)
        try:
            content = [
                told(one, whole=True) for one in [ask.subject, *(["\n".join(choices)] if choices else []), *marks.lines]
            ]
        except NotWhole as fault:
            return self._refused(ask, fault=fault)
        if not ask.options:
            text = await self._written(ask, asking=asking) if self._means.has_forms else ""
            return answer_to(ask, verdict="allow" if text else "deny", text=text)
        names = [visible_line(option)[:MAX_TITLE] for option in ask.options[:MAX_OPTIONS]]
        options = [
            PermissionOption(option_id=f"answer-{number}", name=name, kind="allow_once")
            for number, name in enumerate(names)
        ]
        options.append(PermissionOption(option_id=NO, name="No answer", kind="reject_once"))
        chosen = await self._chosen(ask, asking=asking, content=content, options=options)
        number = next((at for at, one in enumerate(options[:-1]) if one.option_id == chosen), None)
        if number is None:
            return answer_to(ask, verdict="deny")
        return answer_to(ask, verdict="allow", text=ask.options[number])

    def _refused(self, ask: OneAsk, *, fault: NotWhole) -> Approval:
        self._note(f"not asked about, and denied: {visible_line(ask.call.name)}: {fault}")
        return refusal_of(ask, fault=fault)

    async def _written(self, ask: OneAsk, *, asking: Asking) -> str:
        """What the person writes into a form; empty where they do not."""
        field = ElicitationStringPropertySchema(type="string", title="Answer", max_length=MAX_WRITTEN)
        form = ElicitationSchema(type="object", properties={ANSWER: field}, required=[ANSWER])
        mode = ElicitationFormSessionMode(session_id=self._means.session, requested_schema=form)
        await self._updates.flush()
        try:
            form = self._means.client.create_elicitation(visible(ask.subject), mode)
            said = await in_own_time(form, asking=asking, clock=self._means.around.clock)
        except (RequestError, ValidationError, ConnectionError):
            return ""
        content = said.content if isinstance(said, AcceptElicitationResponse) else None
        text = (content or {}).get(ANSWER)
        return text.strip()[:MAX_WRITTEN] if isinstance(text, str) else ""

    async def _chosen(
        self, ask: OneAsk, *, asking: Asking, content: Sequence[Content], options: list[PermissionOption]
    ) -> str:
        """The id of the option that was chosen, which is one of them; empty where none was."""
        means, path, call = self._means, asking.path, _as_it_runs(ask)
        # a sub-agent's call is shown under the ask alone: the editor knows it by another id once it runs
        id = self._teller.ask(call) if not path else f"{self._teller.id_of(call)}-{'-'.join(path)}-ask"
        title = title_of(call, path=path)
        if means.runs_commands and means.around.is_command(ask):
            title = f"{title[: MAX_TITLE - 20]} (without sandbox)"
        shown = ToolCallUpdate(
            tool_call_id=id,
            title=title,
            kind=kind_of(call),
            status="pending",
            content=list(content),
            locations=locations_of(call, workspace=means.around.workspace) or None,
        )
        await self._updates.flush()
        try:
            asked = means.client.request_permission(session_id=means.session, tool_call=shown, options=options)
            said = await in_own_time(asked, asking=asking, clock=means.around.clock)
        except (RequestError, ValidationError, ConnectionError):
            return ""
        outcome = said.outcome
        known = {option.option_id for option in options}
        return outcome.option_id if isinstance(outcome, AllowedOutcome) and outcome.option_id in known else ""

    async def _shown(self, ask: OneAsk, *, facts: CallFacts, more: Sequence[str]) -> list[Content]:
        """What the person decides: the diff of a change, else the command or all arguments; and the reason for the question.

        Raises NotWhole."""
        judged = [path.resolved for path in facts.paths if path.resolved]
        diffs = await asyncio.to_thread(
            diffs_of, _as_it_runs(ask), workspace=self._means.around.workspace, judged=judged, whole=True
        )
        what = diffs or [told(_command_of(ask), whole=True)]
        marks = await asyncio.to_thread(
            confusables_in,
            [ask.call.name, *decoded_texts(ask.arguments)],
            folder=lambda: self._means.around.workspace.root,
        )
        notes = [*([f"asked because: {visible_line(why_of(ask))}"] if why_of(ask) else []), *more, *marks.lines]
        if self._means.runs_commands and self._means.around.is_command(ask):
            notes.append(WITHOUT_SANDBOX)
        return [*what, *[told(note, whole=True) for note in notes]]


def _as_it_runs(ask: OneAsk) -> ToolCall:
    """The call with the arguments that a yes is for: a hook may have changed those of the model."""
    return msgspec.structs.replace(ask.call, arguments=ask.arguments)


def _command_of(ask: OneAsk) -> str:
    """The command as it would run, and nothing beside it; every argument of any other call."""
    arguments = arguments_of(_as_it_runs(ask))
    command = arguments.get("command")
    return command if isinstance(command, str) and len(arguments) == 1 else ask.arguments
