"""One turn as an editor sees it: text and thinking as they come, calls with their states, plans, and what it used."""

import asyncio
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Literal, NamedTuple

import msgspec
from acp.helpers import (
    plan_entry,
    start_tool_call,
    text_block,
    tool_content,
    tool_diff_content,
    tool_terminal_ref,
    update_agent_message_text,
    update_agent_thought_text,
    update_plan,
    update_tool_call,
)
from acp.schema import (
    AgentMessageChunk,
    AgentPlanUpdate,
    AgentThoughtChunk,
    AvailableCommandsUpdate,
    ConfigOptionUpdate,
    ContentToolCallContent,
    CurrentModeUpdate,
    FileEditToolCallContent,
    SessionInfoUpdate,
    TerminalToolCallContent,
    ToolCallLocation,
    ToolCallProgress,
    ToolCallStart,
    ToolKind,
    UsageUpdate,
    UserMessageChunk,
)
from acp.schema import Cost as AcpCost

from turnwise.coding_agent.asked_calls import NotWhole, arguments_in, title_of
from turnwise.coding_agent.interruptible_run import ShownTurn, unseen
from turnwise.coding_agent.plan import PlanArguments, Plans
from turnwise.coding_agent.run_events import describe_fault
from turnwise.coding_agent.text import clean, clean_answer, visible
from turnwise.errors import ToolFault
from turnwise.rules.advice import for_people
from turnwise.running.run_context import judged_paths
from turnwise.running.watcher_events import (
    AskOpened,
    AttemptDiscarded,
    CallAnswered,
    ChildSeen,
    FrameSeen,
    RequestFinished,
    RequestStarted,
    RunNoted,
    ToolFinished,
    ToolProgress,
    ToolStarted,
    TurnFinished,
    WatcherEvent,
)
from turnwise.tools.workspace.paths import WorkspacePaths
from turnwise.tools.workspace.previews import CHANGING, changes_of_call, paths_of_call
from turnwise.tools.workspace.staged_changes import FileChange
from turnwise.turn.config import TurnResult
from turnwise.vocab import ReasoningDelta, RefusalDelta, Text, TextDelta, ToolCall, ToolResult, Usage
from turnwise.vocab.file_names import shown_name
from turnwise.vocab.hidden_characters import visible_line

if TYPE_CHECKING:
    from acp.agent.connection import AgentSideConnection

# How an editor shows a call: its title, its kind, the files that it is about, and what it changes as a diff.


Content = ContentToolCallContent | FileEditToolCallContent | TerminalToolCallContent

KINDS: Mapping[str, ToolKind] = {
    "read": "read",
    "list": "search",
    "search": "search",
    "bash": "execute",
    "script": "execute",
    "task": "think",
    "ask_user": "think",
    **dict.fromkeys(CHANGING, "edit"),
}
MAX_SHOWN = 64 * 1024  # characters of a result, or of a text that is asked about: a person reads no more
MAX_DIFF = 512 * 1024  # of both sides of a file; a larger one is told by its size
MAX_DIFFS = 20  # files of one call
MAX_LOCATIONS = 50


def arguments_of(call: ToolCall) -> Mapping[str, object]:
    """Empty for those that are no JSON object."""
    return arguments_in(call.arguments)


def kind_of(call: ToolCall) -> ToolKind:
    return KINDS.get(call.name, "other")


def locations_of(call: ToolCall, *, workspace: WorkspacePaths) -> list[ToolCallLocation]:
    """The files that it names, where they lead."""
    found: list[ToolCallLocation] = []
    for name in paths_of_call(call.name, arguments_of(call))[:MAX_LOCATIONS]:
        try:
            found.append(ToolCallLocation(path=shown_name(str(workspace.real_path(name)))))
        except ToolFault:
            continue
    return found


def diffs_of(
    call: ToolCall, *, workspace: WorkspacePaths, judged: Iterable[str] | None = None, whole: bool = False
) -> list[Content]:
    """What it would change now; a sentence where it would fail, or is too large to show. `judged` are resolved paths beyond the
    folder that it may be looked at for. Raises NotWhole where it is too large, if the `whole` is wanted."""
    if call.name not in CHANGING:
        return []
    try:
        with judged_paths(judged):
            changes = changes_of_call(workspace, call.name, arguments_of(call))
    except (ToolFault, msgspec.ValidationError) as fault:
        return [told(f"(the call would fail: {fault})"), *([told(call.arguments, whole=True)] if whole else [])]
    if whole and len(changes) > MAX_DIFFS:
        raise NotWhole(f"it changes {len(changes):,} files, and {MAX_DIFFS} can be shown")
    more = [told(f"({len(changes) - MAX_DIFFS} more files)")] if len(changes) > MAX_DIFFS else []
    return [*[_diff_of(change, whole=whole) for change in changes[:MAX_DIFFS]], *more]


def _diff_of(change: FileChange, *, whole: bool) -> Content:
    before, after = change.before or b"", change.after or b""
    if len(before) + len(after) > MAX_DIFF:
        if whole:
            raise NotWhole(f"both sides of `{change.shown}` have more than {MAX_DIFF:,} bytes")
        return told(f"{change.shown}: {len(before):,} bytes become {len(after):,}")
    try:
        old = None if change.before is None else change.before.decode()
        new = after.decode()
    except UnicodeDecodeError:
        return told(f"{change.shown}: no UTF-8; {len(before):,} bytes become {len(after):,}")
    return tool_diff_content(shown_name(str(change.path)), new, old)


def told(text: str, *, whole: bool = False) -> Content:
    """A text of which nothing is hidden, cut where nobody reads on. Raises NotWhole there, if the `whole` is wanted."""
    shown = visible(text)
    if len(shown) > MAX_SHOWN:
        if whole:
            raise NotWhole(f"it has {len(shown):,} characters, and {MAX_SHOWN:,} can be shown")
        shown = f"{shown[:MAX_SHOWN]}\n[{len(shown) - MAX_SHOWN:,} MORE CHARACTERS ARE NOT SHOWN]"
    return tool_content(text_block(shown))


def result_said(result: ToolResult) -> Sequence[Content]:
    """What the model reads of it, without what only the model is told."""
    text = for_people("".join([part.text for part in result.content if isinstance(part, Text)]))
    return [told(clean(text))] if text.strip() else []


# What an editor is told of a session, in order: put at once, sent by a task, pieces of text joined while it waits.


WholeUpdate = (
    UserMessageChunk
    | ToolCallStart
    | ToolCallProgress
    | AgentPlanUpdate
    | AvailableCommandsUpdate
    | CurrentModeUpdate
    | ConfigOptionUpdate
    | SessionInfoUpdate
    | UsageUpdate
)
PieceKind = Literal["text", "thought"]


class SaidPiece(NamedTuple):
    """Some more of what the model says, or thinks."""

    kind: PieceKind
    text: str


class Updates:
    """The updates of one session. `flush` returns once all that was put has been written, or the editor is gone."""

    def __init__(self, client: "AgentSideConnection", *, session: str) -> None:
        self._client = client
        self._session = session
        self._waiting: list[SaidPiece | WholeUpdate] = []
        self._task: asyncio.Task[None] | None = None

    def put(self, update: SaidPiece | WholeUpdate) -> None:
        """In the event loop's thread."""
        last = self._waiting[-1] if self._waiting else None
        if isinstance(update, SaidPiece) and isinstance(last, SaidPiece) and last.kind == update.kind:
            self._waiting[-1] = SaidPiece(update.kind, last.text + update.text)
        else:
            self._waiting.append(update)
        if self._task is None:
            self._task = asyncio.create_task(self._send_all())

    async def flush(self) -> None:
        while self._task is not None:
            await asyncio.wait((self._task,))

    async def _send_all(self) -> None:
        try:
            while self._waiting:
                update = self._waiting.pop(0)
                await self._client.session_update(session_id=self._session, update=_of(update))
        except ConnectionError:
            self._waiting.clear()
        finally:
            self._task = None


def _of(update: SaidPiece | WholeUpdate) -> WholeUpdate | AgentMessageChunk | AgentThoughtChunk:
    if not isinstance(update, SaidPiece):
        return update
    return update_agent_message_text(update.text) if update.kind == "text" else update_agent_thought_text(update.text)


MAX_CALLS = 10_000  # of a turn that are remembered: limits end it long before


class EditorTeller:
    """Watches a turn. `prefix` makes the ids of its calls unlike those of the session's other turns."""

    def __init__(
        self,
        updates: Updates,
        *,
        workspace: WorkspacePaths,
        prefix: str,
        note: Callable[[str], object],
        before_command: Callable[[], object],
    ) -> None:
        self._updates = updates
        self._workspace = workspace
        self._prefix = prefix
        self._note = note
        self._before_command = before_command
        self._open: dict[str, str] = {}  # the editor's ids of current calls, by their names
        self._shown: list[str] = []  # of the current response
        self._before: list[str] = []  # of the responses before it
        self._goes_on = False  # the current response is the rest of a cut one
        self._plans = Plans()
        self.last = Usage()  # of the last request

    def __call__(self, seen: WatcherEvent) -> None:
        self._see(seen, path=(), above="")

    def id_of(self, call: ToolCall, *, above: str = "") -> str:
        """How the editor knows the call; `above` is the call that started its sub-agent."""
        return f"{self._prefix}{above}{call.id}"

    def ask(self, call: ToolCall) -> str:
        """The editor shows the call as one that waits; its id."""
        id = self.id_of(call)
        if id not in self._open:
            self._begin(call, id=id, path=(), status="pending")
        return id

    def show_terminal(self, call: ToolCall, terminal: str) -> None:
        """The call runs in that terminal of the editor; of a sub-agent's call the editor is not told which."""
        if (id := self.id_of(call)) in self._open:
            self._updates.put(update_tool_call(id, content=[tool_terminal_ref(terminal)]))

    def has_ended(self) -> None:
        """Calls that the turn left are shown as failed."""
        for id in self._open:
            self._updates.put(update_tool_call(id, status="failed", content=[told("the turn ended before it did")]))
        self._open.clear()

    def _see(self, seen: WatcherEvent, *, path: tuple[str, ...], above: str) -> None:
        match seen:
            case ChildSeen(call_id=call_id, path=names, seen=inner):
                self._see(inner, path=names, above=f"{above}{call_id}/")
            case ToolStarted(call=call):
                if not path:
                    self._plans.of_event(seen)
                self._start(call, id=self.id_of(call, above=above), path=path)
            case ToolProgress(call=call, line=line):
                self._updates.put(
                    update_tool_call(
                        self.id_of(call, above=above), content=[told(clean("\n".join(seen.lines) or line))]
                    )
                )
            case ToolFinished(result=result):
                self._finish(result, id=f"{self._prefix}{above}{result.call_id}")
                if not path and (plan := self._plans.of_event(seen)) is not None:
                    self._updates.put(shown_plan(plan))
            case CallAnswered(call=call, result=result):
                id = self.id_of(call, above=above)
                if id not in self._open:
                    self._begin(call, id=id, path=path, status="pending")
                self._finish(result, id=id)
            case AskOpened(call=call, question=question):
                self._note(f"{call.name} asks: {question}")
            case _ if not path:
                self._see_own(seen)
            case _:
                pass  # of sub-agents the calls are shown

    def _see_own(self, seen: WatcherEvent) -> None:
        match seen:
            case RequestStarted(purpose="continue") | RequestStarted(retry_of="continue"):
                self._goes_on = True
            case RequestStarted():
                self._goes_on = False
                self._before += self._shown
                self._shown.clear()
            case FrameSeen(frame=ReasoningDelta(text=text)) if text:
                self._updates.put(SaidPiece("thought", clean(text)))
            case FrameSeen(frame=TextDelta(text=text) | RefusalDelta(text=text)) if text and not self._goes_on:
                self._say(text)
            case RequestFinished(response=response) if response is not None:
                self.last = response.usage or self.last
            case AttemptDiscarded(fault=fault) if not self._goes_on:
                why = "the stream broke off" if fault is None else describe_fault(fault)
                lost = "what stands above is discarded, " if self._shown else ""
                self._shown.clear()
                self._note(f"{why}: {lost}trying again")
            case RunNoted(text=text):
                self._note(clean(text))
            case TurnFinished(result=result):
                self._end(result)
            case _:
                pass

    def _say(self, text: str) -> None:
        if not self._shown and self._before:
            self._updates.put(SaidPiece("text", "\n\n"))  # the words before the last calls were another response
        before = self._shown[-1][-1:] if self._shown else ""
        self._shown.append(text)
        self._updates.put(SaidPiece("text", clean_answer(text, before=before)))

    def _begin(self, call: ToolCall, *, id: str, path: tuple[str, ...], status: str) -> None:
        if len(self._open) < MAX_CALLS:
            self._open[id] = call.name
        self._updates.put(
            start_tool_call(
                id,
                title_of(call, path=path),
                kind=kind_of(call),
                status="in_progress" if status == "in_progress" else "pending",
                content=self._diffs(call) if status == "in_progress" else None,
                locations=locations_of(call, workspace=self._workspace) or None,
            )
        )

    def _start(self, call: ToolCall, *, id: str, path: tuple[str, ...]) -> None:
        if call.name == "bash":
            self._before_command()
        if id in self._open:
            self._updates.put(update_tool_call(id, status="in_progress", content=self._diffs(call) or None))
        else:
            self._begin(call, id=id, path=path, status="in_progress")

    def _diffs(self, call: ToolCall) -> list[Content]:
        return diffs_of(call, workspace=self._workspace)

    def _finish(self, result: ToolResult, *, id: str) -> None:
        name = self._open.pop(id, result.name)
        said = result_said(result)
        # a diff that the editor shows stays: a change that was made says no more than that
        keeps = kind_of(ToolCall(id="", name=name)) == "edit" and not result.is_error
        self._updates.put(
            update_tool_call(
                id, status="failed" if result.is_error else "completed", content=None if keeps else said or None
            )
        )

    def _end(self, result: TurnResult) -> None:
        shown = "".join(self._shown)
        if shown == result.text:
            return
        if self._goes_on and shown and result.text.startswith(shown):
            self._updates.put(SaidPiece("text", clean_answer(result.text[len(shown) :], before=shown[-1:])))
            return
        left = unseen(result, shown=ShownTurn(at_hand=shown, before="".join(self._before)))
        for text in (left.rest, f"\n\n{left.answer}" if left.answer and shown else left.answer):
            if text:
                self._updates.put(SaidPiece("text", clean_answer(text, before=shown[-1:])))
        if left.own:
            self._note(left.own)


def usage_update(last: Usage, *, window: int, cost_usd: float | None) -> UsageUpdate:
    """How full the model's window is after the last request, and what the session has cost."""
    cost = None if cost_usd is None else AcpCost(amount=cost_usd, currency="USD")
    seen = last.last_sampling
    used = seen.input_tokens + seen.output_tokens
    return UsageUpdate(session_update="usage_update", used=used, size=window, cost=cost)


def shown_plan(plan: PlanArguments) -> AgentPlanUpdate:
    return update_plan(
        [plan_entry(visible_line(step.content), priority="medium", status=step.status) for step in plan.entries]
    )
