"""The tool `plan`: the model writes down what it is going to do, and the editor shows it."""

from typing import Annotated, Literal

import msgspec
from acp.helpers import plan_entry, update_plan
from acp.schema import AgentPlanUpdate
from msgspec import Meta

from turnwise.editors.acp.editor_updates import Updates
from turnwise.running.tools import Tool
from turnwise.tools.workspace.offers import make_tool
from turnwise.vocab import ToolCall
from turnwise.vocab.hidden_characters import visible_line

PLAN = "plan"
MAX_ENTRIES = 50
MAX_ENTRY = 500

_DESCRIPTION = """Show the user your plan, whole, each time it changes: one entry for each step, with its status. For work \
of three steps or more; it changes nothing else."""


class PlanStep(msgspec.Struct, frozen=True, kw_only=True):
    content: Annotated[str, Meta(description="What is done, in one line", max_length=MAX_ENTRY)]
    status: Literal["pending", "in_progress", "completed"] = "pending"
    priority: Literal["high", "medium", "low"] = "medium"


class PlanArguments(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    entries: Annotated[list[PlanStep], Meta(description="All steps, in order", max_length=MAX_ENTRIES)]


def plan_tool(updates: Updates) -> Tool:
    """Each call shows its plan in place of the one before."""

    async def plan(given: PlanArguments) -> str:
        updates.put(shown_plan(given))
        return "The user sees the plan."

    made = make_tool(PLAN, description=_DESCRIPTION, takes=PlanArguments, function=plan, effect="none", idempotent=True)
    # it names no path and runs no command: there is nothing to look at before it runs
    return msgspec.structs.replace(made, offer=msgspec.structs.replace(made.offer, inspected=False))


def shown_plan(given: PlanArguments) -> AgentPlanUpdate:
    return update_plan(
        [plan_entry(visible_line(step.content), priority=step.priority, status=step.status) for step in given.entries]
    )


def plan_in(call: ToolCall) -> AgentPlanUpdate | None:
    """The plan of an earlier call; None where it showed none."""
    try:
        return shown_plan(msgspec.json.decode(call.arguments, type=PlanArguments))
    except msgspec.MsgspecError:
        return None
