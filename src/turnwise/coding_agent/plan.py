"""The tool `plan`: the model writes down what it is going to do, whole, and each face shows it. It belongs to the turn's own
agent: what a face shows comes from the calls of the session, and nothing else keeps it."""

from collections.abc import Iterable
from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from turnwise.coding_agent.text import shortened, visible_line
from turnwise.running.tools import Tool
from turnwise.running.watcher_events import ToolFinished, ToolStarted, WatcherEvent
from turnwise.tools.workspace.previews import make_tool
from turnwise.vocab import Message, ToolCall, ToolResult

PLAN = "plan"
MAX_ENTRIES = 50
MAX_ENTRY = 500
SHOWN_STEPS = 6
MARKS = {"completed": "✓", "in_progress": "▸", "pending": "·"}
_DESCRIPTION = "Show the user your task list, whole, each time it changes. For work of three steps or more."


class PlanStep(msgspec.Struct, frozen=True, kw_only=True):
    content: Annotated[str, Meta(max_length=MAX_ENTRY)]
    status: Literal["pending", "in_progress", "completed"] = "pending"


class PlanArguments(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    entries: Annotated[list[PlanStep], Meta(description="All steps, in order", max_length=MAX_ENTRIES)]

    @property
    def is_done(self) -> bool:
        return all(step.status == "completed" for step in self.entries)

    @property
    def said(self) -> str:
        """`plan: 1 of 3 done; now: change it`."""
        done = sum(step.status == "completed" for step in self.entries)
        now = next((step.content for step in self.entries if step.status == "in_progress"), "")
        return f"plan: {done} of {len(self.entries)} done{f'; now: {shortened(now, limit=60)}' if now else ''}"


def plan_tool() -> Tool:
    """Each call stands for the plan before it."""

    async def plan(_: PlanArguments) -> str:
        return "The user sees it."

    made = make_tool(PLAN, description=_DESCRIPTION, takes=PlanArguments, function=plan, effect="none", idempotent=True)
    # it names no path and runs no command: there is nothing to look at before it runs
    return msgspec.structs.replace(made, offer=msgspec.structs.replace(made.offer, inspected=False))


def plan_in(call: ToolCall) -> PlanArguments | None:
    """What a call of the tool says; None where it says nothing that could be shown."""
    try:
        return msgspec.json.decode(call.arguments, type=PlanArguments)
    except msgspec.MsgspecError:
        return None


class Plans:
    """Finds the plans among the events of one agent: a call counts once it has ended well."""

    def __init__(self) -> None:
        self._open: dict[str, ToolCall] = {}

    def of_event(self, seen: WatcherEvent) -> PlanArguments | None:
        match seen:
            case ToolStarted(call=call) if call.name == PLAN:
                self._open[call.id] = call
            case ToolFinished(result=result) if call := self._open.pop(result.call_id, None):
                return None if result.is_error else plan_in(call)
            case _:
                pass
        return None


def last_plan(messages: Iterable[Message]) -> PlanArguments | None:
    """The plan that a session's messages have told last."""
    parts = [part for message in messages for part in message.parts]
    failed = {part.call_id for part in parts if isinstance(part, ToolResult) and part.is_error}
    calls = [part for part in parts if isinstance(part, ToolCall) and part.name == PLAN and part.id not in failed]
    return next((plan for call in reversed(calls) if (plan := plan_in(call)) is not None), None)


def plan_rows(plan: PlanArguments | None, *, most: int = SHOWN_STEPS) -> list[str]:
    """A row for each step, clean; of a long plan those around the first step that is not done. Nothing once all are done."""
    if plan is None or plan.is_done or most < 3:
        return []
    rows = [f"{MARKS[step.status]} {visible_line(step.content)}" for step in plan.entries]
    if len(rows) <= most:
        return rows
    done = next(number for number, step in enumerate(plan.entries) if step.status != "completed")
    first = max(0, min(done - 1, len(rows) - most + 1))
    before = [f"  … {first} before"] if first else []
    shown = rows[first : first + most - len(before) - (first + most - len(before) < len(rows))]
    after = len(rows) - first - len(shown)
    return [*before, *shown, *([f"  … {after} more"] if after else [])]
