"""Slash commands are answered by turnwise, and no model is asked."""

import asyncio
import os
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import TYPE_CHECKING, cast

from acp.exceptions import RequestError
from acp.schema import AllowedOutcome, PermissionOption, ToolCallUpdate
from pydantic import ValidationError

from turnwise.base.clock import ends_in_time
from turnwise.coding_agent.asked_calls import NotWhole
from turnwise.coding_agent.model_names import Offers
from turnwise.coding_agent.permissions import rule_said
from turnwise.coding_agent.undo_changes import find_turn_back, lines_of, results_of, take_back
from turnwise.editors.acp.editor_updates import Content, told
from turnwise.errors import CallerError, ToolFault

if TYPE_CHECKING:
    from turnwise.editors.acp.session import EditorSession

TAKE_BACK, LEAVE = "take-back", "leave"
SETTLE_S = 0.5


class SlashCommands:
    """Obeys the commands of one session. `changed` is called when the model is another one."""

    def __init__(self, session: "EditorSession", *, offers: Offers, changed: Callable[[], object]) -> None:
        self._session = session
        self._offers = offers
        self._changed = changed

    async def obey(self, name: str, rest: str) -> Sequence[str]:
        """The lines that are said to the person. Raises CallerError."""
        commands: Mapping[str, Callable[[str], Awaitable[Sequence[str]]]] = {
            "usage": self._usage,
            "undo": self._undo,
            "model": self._model,
            "permissions": self._permissions,
        }
        return await commands[name](rest)

    async def _usage(self, _: str) -> Sequence[str]:
        return self._session.spent.lines()

    async def _permissions(self, _: str) -> Sequence[str]:
        policy = self._session.policy
        lines = ["Reading inside the folder is allowed; writing, commands and everything outside are asked about."]
        for rule in policy.rules:
            effect = f" that can {rule.effect}" if rule.effect else ""
            said = rule_said(rule, workspace=policy.workspace)
            lines.append(f"{rule.verdict} {said}{effect} [{rule.where or rule.source}]")
        return [*lines, *(["The last rule that fits a call decides."] if policy.rules else [])]

    async def _model(self, name: str) -> Sequence[str]:
        session = self._session
        choice = session.place.choice
        await self._offers.ask(choice, again=not name)
        if not name:
            self._changed()
            return self._offers.lines(choice)
        session.change_model(name, offers=self._offers)
        self._changed()
        now = session.place.choice
        return [f"going on with {now.model}{self._offers.unchecked(now)}"]

    async def _undo(self, rest: str) -> Sequence[str]:
        session, means = self._session, self._session.means
        if rest:
            raise CallerError("`/undo` takes back the last turn, and again the turn before; it takes no number or name")
        if not session.begun:
            raise CallerError("nothing to take back: this session has had no turn yet")
        found = means.journal.find_session(session.id)
        now_s = means.clock.now()
        back = find_turn_back(means.journal, found, folder=session.folder, env=means.env, now_s=now_s)
        try:
            shown = told("\n".join(lines_of(back, now_s=now_s, whole=True)), whole=True)
        except NotWhole as fault:
            raise CallerError(
                f"nothing was taken back: the editor cannot show all of what would happen: {fault}; at a terminal, "
                f"`turnwise undo {session.id[-8:]}` shows it page by page"
            ) from None
        if not back.is_done and not await self._is_confirmed(shown):
            return ["nothing was taken back"]
        try:
            take_back(back)
        except ToolFault as fault:
            raise CallerError(str(fault)) from None
        return results_of(back)

    async def _is_confirmed(self, shown: Content) -> bool:
        """Whether the person says so in time; everything else is a no."""
        session, means = self._session, self._session.means
        asking = means.client.request_permission(
            session_id=session.id,
            tool_call=ToolCallUpdate(
                tool_call_id=f"undo-{os.urandom(4).hex()}",
                title="Take back the last turn's changes",
                kind="edit",
                status="pending",
                content=[shown],
            ),
            options=[
                PermissionOption(option_id=TAKE_BACK, name="Take back", kind="allow_once"),
                PermissionOption(option_id=LEAVE, name="Leave as it is", kind="reject_once"),
            ],
        )
        task = asyncio.ensure_future(asking)
        within_s = session.place.ask_s
        if not await ends_in_time(
            cast("asyncio.Task[object]", task), clock=means.clock, timeout_s=within_s, settle_s=SETTLE_S
        ):
            return False
        try:
            outcome = task.result().outcome
        except (RequestError, ValidationError, ConnectionError):
            return False
        return isinstance(outcome, AllowedOutcome) and outcome.option_id == TAKE_BACK
