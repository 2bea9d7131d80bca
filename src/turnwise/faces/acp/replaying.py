"""An earlier session, told to the editor that loads it: what was said, and the calls with how they ended."""

from collections.abc import Iterator, Sequence

from acp.helpers import start_tool_call, update_tool_call, update_user_message_text

from turnwise.drivers.tools.workspace.paths import WorkspacePaths
from turnwise.faces.acp.calls import kind_of, locations_of, result_said
from turnwise.faces.acp.plans import PLAN, plan_in
from turnwise.faces.acp.updates import SaidPiece, Updates, WholeUpdate
from turnwise.faces.cli.asked_calls import title_of
from turnwise.faces.cli.text import clean, clean_answer
from turnwise.vocab import Message, Reasoning, Refusal, Text, ToolCall, ToolResult


def tell_history(messages: Sequence[Message], *, updates: Updates, workspace: WorkspacePaths) -> None:
    """Texts that turnwise put beside a person's words are left out, as they were when the turn ran."""
    for message in messages:
        for update in _updates_of(message, workspace=workspace):
            updates.put(update)


def _updates_of(message: Message, *, workspace: WorkspacePaths) -> Iterator[SaidPiece | WholeUpdate]:
    for part in message.parts:
        match part:
            case Text(note=note) if note:
                pass
            case Text(text=text) | Refusal(text=text) if not text.strip():
                pass
            case Text(text=text) if message.role == "user":
                yield update_user_message_text(clean(text))
            case Text(text=text) | Refusal(text=text) if message.role == "assistant":
                yield SaidPiece("text", f"{clean_answer(text)}\n\n")
            case Reasoning(text=text) if text:
                yield SaidPiece("thought", clean(text))
            case ToolCall(name=name) if name == PLAN:
                if (plan := plan_in(part)) is not None:
                    yield plan
            case ToolCall():
                yield start_tool_call(
                    f"h.{part.id}",
                    title_of(part),
                    kind=kind_of(part),
                    status="pending",
                    locations=locations_of(part, workspace=workspace) or None,
                )
            case ToolResult(name=name) if name != PLAN:
                yield update_tool_call(
                    f"h.{part.call_id}",
                    status="failed" if part.is_error else "completed",
                    content=list(result_said(part)) or None,
                )
            case _:
                pass
