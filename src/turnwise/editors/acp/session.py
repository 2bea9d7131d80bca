"""One session of an editor: the place it works in, its mode and model, and its turns, one at a time."""

import asyncio
import base64
import binascii
import contextlib
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import unquote, urlsplit

import msgspec
from acp.schema import (
    BlobResourceContents,
    ClientCapabilities,
    CurrentModeUpdate,
    EmbeddedResourceContentBlock,
    ImageContentBlock,
    PromptResponse,
    ResourceContentBlock,
    SessionConfigOptionBoolean,
    SessionConfigOptionSelect,
    SessionConfigSelectOption,
    SessionModeState,
    TextContentBlock,
    TextResourceContents,
)
from acp.schema import SessionMode as AcpMode
from acp.schema import StopReason as AcpStop
from acp.schema import Usage as AcpUsage

from turnwise.agent.agent import inside
from turnwise.agent.results import RunResult
from turnwise.agent.run_setup import RunOptions
from turnwise.agent.runs import Run
from turnwise.base.clock import Clock
from turnwise.coding_agent.asked_calls import dropped_line, pending_of
from turnwise.coding_agent.interruptible_run import typed_parts
from turnwise.coding_agent.last_exchange import SessionSpent
from turnwise.coding_agent.model_names import Offers, another_model, choice_of
from turnwise.coding_agent.modes import TABLE, ModeRow, SessionMode
from turnwise.coding_agent.options import Given
from turnwise.coding_agent.permissions import model_limits_of
from turnwise.coding_agent.prompts import PromptPart
from turnwise.coding_agent.run_events import FailedModel, describe_end
from turnwise.coding_agent.text import clean_line, clean_row, visible_line
from turnwise.coding_agent.turn_notes import runs_before
from turnwise.coding_agent.workplace import FaceTerms, Workplace, furnish
from turnwise.editors.acp.editor_asks import AskMeans, EditorApprover
from turnwise.editors.acp.editor_updates import EditorTeller, SaidPiece, Updates, usage_update
from turnwise.editors.acp.terminals import in_terminal, runs_in_editor, with_unsaved
from turnwise.errors import CallerError
from turnwise.journal.journal import Journal
from turnwise.rules.permission_facts import Mode, tightest
from turnwise.rules.permissions import Policy
from turnwise.running.run_context import is_planning
from turnwise.running.tools import Tool
from turnwise.settings.settings import read_layers
from turnwise.tools.workspace.paths import WorkspacePaths
from turnwise.tools.workspace.read_tool import MAX_IMAGE_BYTES
from turnwise.vocab import File, StopReason, Text, ToolCall
from turnwise.vocab.file_names import is_text, shown_name

if TYPE_CHECKING:
    from acp.schema import AudioContentBlock

    PromptBlock = (
        TextContentBlock | ImageContentBlock | AudioContentBlock | ResourceContentBlock | EmbeddedResourceContentBlock
    )
    from collections.abc import Coroutine

    from acp.agent.connection import AgentSideConnection

# What a person chooses at the editor: what may run without asking (the mode), and the model.


EditorOption = SessionConfigOptionSelect | SessionConfigOptionBoolean
MODE, MODEL = "mode", "model"  # ids of the two options
MAX_MODELS = 200


OLD_NAMES: Mapping[object, Mode] = {"read-only": "plan"}  # which editors may have kept


def modes_of(mode: SessionMode) -> dict[str, ModeRow]:
    """The modes to choose from. Sandbox mode is among them where commands can be kept in."""
    return {name: row for name, row in TABLE.items() if name != "sandbox" or not mode.why_no_sandbox()}


def mode_state(mode: SessionMode) -> SessionModeState:
    modes = [AcpMode(id=id, name=one.name, description=one.meaning) for id, one in modes_of(mode).items()]
    return SessionModeState(current_mode_id=mode.chosen, available_modes=modes)


def options_of(mode: SessionMode, *, model: str, offered: Sequence[str]) -> list[EditorOption]:
    """The same mode, and the model, as options. `offered` are names of the model's own provider."""
    provider = model.partition(":")[0]
    models = list(dict.fromkeys([model, *[f"{provider}:{name}" for name in offered[:MAX_MODELS]]]))
    return [
        SessionConfigOptionSelect(
            type="select",
            id=MODE,
            name="Permissions",
            category="mode",
            current_value=mode.chosen,
            options=[
                SessionConfigSelectOption(value=id, name=one.name, description=one.meaning)
                for id, one in modes_of(mode).items()
            ],
        ),
        SessionConfigOptionSelect(
            type="select",
            id=MODEL,
            name="Model",
            category="model",
            current_value=model,
            options=[SessionConfigSelectOption(value=one, name=visible_line(one)) for one in models],
        ),
    ]


# What an editor sends as a prompt, as parts for the model: the person's words, the files that they name, images.


MAX_PROMPT_CHARACTERS = 4 * 1024 * 1024  # as much as `turnwise run` takes on standard input
MAX_BLOCKS = 200
MAX_SHOWN = 200
MAX_URI = 8192
IMAGES = frozenset({"image/png", "image/jpeg", "image/gif", "image/webp"})
NOTE = "editor"  # what the message says of such a text, which is not the person's own words


class EditorPrompt(msgspec.Struct, frozen=True, kw_only=True):
    """`typed` are the person's words, in which `@name` stands for a file that they link; `given` is what came beside them."""

    typed: str
    given: tuple[Text | File, ...] = ()


def read_blocks(blocks: "Sequence[PromptBlock]", *, workspace: WorkspacePaths) -> EditorPrompt:
    """Raises CallerError for what is too much, or no content that turnwise takes."""
    if len(blocks) > MAX_BLOCKS:
        raise CallerError(f"the prompt has {len(blocks)} parts, more than {MAX_BLOCKS}")
    typed: list[str] = []
    given: list[Text | File] = []
    for block in blocks:
        match block:
            case TextContentBlock(text=text):
                typed.append(text)
            case ResourceContentBlock(uri=uri):
                typed.append(_link_of(uri, workspace=workspace))
            case EmbeddedResourceContentBlock(resource=TextResourceContents(uri=uri, text=text)):
                name = visible_line(uri)[:MAX_SHOWN]
                given.append(Text(f"\n\n`{name}`, as the editor has it:\n\n{text}", note=NOTE))
            case EmbeddedResourceContentBlock(resource=BlobResourceContents(blob=blob, mime_type=kind)):
                given.append(_image(blob, kind=kind or ""))
            case ImageContentBlock(data=data, mime_type=kind):
                given.append(_image(data, kind=kind))
            case _:
                raise CallerError("turnwise takes text, images, links to files and embedded texts, and no audio")
    prompt = EditorPrompt(typed="".join(typed), given=tuple(given))
    size = len(prompt.typed) + sum(len(part.text) for part in given if isinstance(part, Text))
    if size > MAX_PROMPT_CHARACTERS:
        raise CallerError(
            f"the prompt has {size:,} characters, more than {MAX_PROMPT_CHARACTERS:,}: link the file instead"
        )
    if not prompt.typed.strip() and not prompt.given:
        raise CallerError("the prompt is empty: write what the model shall do")
    return prompt


def _link_of(uri: str, *, workspace: WorkspacePaths) -> str:
    """A link to a file as a mention of it, which is judged and put in like one that was typed; any other as it stands."""
    try:
        parts = urlsplit(uri) if len(uri) <= MAX_URI else None
    except ValueError:
        parts = None
    if parts is None or parts.scheme != "file" or parts.netloc not in ("", "localhost"):
        return f" {visible_line(uri)[:MAX_URI]} "
    path = unquote(parts.path, errors="surrogateescape")
    if any(char in path for char in '"\n\0') or not path.startswith("/"):
        return f" {visible_line(shown_name(path))} "
    root = str(workspace.root)
    name = Path(path).relative_to(root).as_posix() if Path(path).is_relative_to(root) else path
    return f' @"{shown_name(name)}" '


def _image(data: str, *, kind: str) -> File:
    if kind not in IMAGES:
        raise CallerError(f"`{visible_line(kind)[:MAX_SHOWN]}` is no image that turnwise takes: PNG, JPEG, GIF or WebP")
    if len(data) > MAX_IMAGE_BYTES * 4 // 3 + 4:
        raise CallerError(f"the image has more than {MAX_IMAGE_BYTES:,} bytes: make a smaller one")
    try:
        return File(media_type=kind, data=base64.b64decode(data, validate=True))
    except (binascii.Error, ValueError):
        raise CallerError("the image is no base64") from None


# What the protocol has a word for; every other way to end has an answer, and a note that says which limit it was.
STOPS: "Mapping[StopReason, AcpStop]" = {
    StopReason.CANCELLED: "cancelled",
    StopReason.REFUSED: "refusal",
    StopReason.STEP_LIMIT: "max_turn_requests",
    StopReason.LOOP: "max_turn_requests",
    StopReason.BUDGET: "max_turn_requests",
    StopReason.TIME_LIMIT: "max_turn_requests",
}
FAILED = frozenset({StopReason.PROVIDER_FAILED, StopReason.JOURNAL_FAILED, StopReason.GIVEN_UP, StopReason.TOOL_FAILED})


class TurnFailed(Exception):
    """The turn ended without an answer. The text says why, and what to do."""


class _Turn:
    """A turn or a slash command, from its request on."""

    def __init__(self) -> None:
        self.is_cancelled = False


class EditorMeans(msgspec.Struct, frozen=True, kw_only=True):
    """What all sessions of an editor have in common. `given` are the options of `turnwise acp`."""

    given: Given
    journal: Journal
    clock: Clock
    env: Mapping[str, str]
    client: "AgentSideConnection"
    can: ClientCapabilities


class EditorSession:
    """`begun`: the journal has it. Raises CallerError where it cannot be furnished."""

    def __init__(self, means: EditorMeans, *, id: str, folder: Path, begun: bool, given: Given | None = None) -> None:
        self.id, self.folder = id, folder
        self.updates = Updates(means.client, session=id)
        self.spent = SessionSpent()
        self._means = means
        self._given = given or means.given
        self._begun = begun
        self.options_changed: Callable[[], object] = str  # the service tells them
        self._turns = 0
        self._is_closed = False
        self._busy = asyncio.Lock()  # a turn, a slash command or a change of the place: never two of them
        self._mode: SessionMode | None = None
        self._asked: list[_Turn] = []  # the current one, and those that wait for the end of cancelled ones
        self._command: asyncio.Task[Sequence[str]] | None = None
        self._run: Run | None = None  # of the current turn
        self._notes: list[str] = []
        self._teller: EditorTeller | None = None
        self.place = self._furnished()
        self._mode = self.mode
        self.mode.tell = self._tell_left

    @property
    def means(self) -> EditorMeans:
        return self._means

    @property
    def mode(self) -> SessionMode:
        return self.place.mode

    @property
    def given(self) -> Given:
        """The options of the session: those of the start, with its own model."""
        return self._given

    @property
    def policy(self) -> Policy:
        """With what was allowed always."""
        return self._policy

    @property
    def begun(self) -> bool:
        return self._begun

    def note(self, *lines: str) -> None:
        """Something about the run itself, between the model's words. No text from outside makes a line of its own."""
        said = "\n".join([clean_row(line) for line in lines])
        self.updates.put(SaidPiece("text", f"\n\n[turnwise] {said}\n\n"))

    def _tell_left(self, line: str) -> None:
        """The session has left sandbox mode by itself: the editor shows the mode that holds now."""
        self.note(line)
        self.updates.put(CurrentModeUpdate(session_update="current_mode_update", current_mode_id=self.mode.chosen))
        self.options_changed()

    def tightens(self, mode: Mode) -> bool:
        """Whether the mode allows no more than the current one; then it holds at once, also for a turn that runs."""
        if tightest(mode, self.mode.chosen) != mode:
            return False
        self.mode.chosen = mode
        return True

    def note_later(self, line: str) -> None:
        """With the next prompt: the editor does not know the session yet."""
        self._notes.append(line)

    def choose(self, *, mode: Mode | None = None, given: Given | None = None) -> None:
        """Another mode, or another model, from the next turn on. Raises CallerError; then nothing has changed."""
        before = self.mode.chosen, self._given
        if mode is not None:
            self.mode.choose(mode)
        self._given = given or self._given
        try:
            self.place = self._furnished()
        except CallerError:
            self.mode.chosen, self._given = before
            raise

    def change_model(self, name: str, *, offers: Offers) -> None:
        """From the next turn on. Raises CallerError; then the model is the same as before."""
        choice = self.place.choice
        offered, again = offers.names(choice), "turnwise acp"
        given = another_model(name, given=self._given, choice=choice, offered=offered, again=again)
        choice_of(given, at_hand=choice, env=self._means.env, settings=self.place.settings, again=again)
        self.choose(given=given)

    def cancel(self) -> None:
        """The current turn ends with what it has. A slash command ends before it does anything more. Prompts that wait for the
        end of either do not begin."""
        for turn in self._asked:
            turn.is_cancelled = True
        if self._run is not None:
            self._run.interrupt()
        if self._command is not None:
            self._command.cancel()

    def close(self) -> None:
        """The current work is cancelled, and nothing further begins."""
        self._is_closed = True
        self.cancel()

    @property
    def is_busy(self) -> bool:
        """Whether a turn or a slash command runs that was not cancelled."""
        return not all(turn.is_cancelled for turn in self._asked)

    @contextlib.asynccontextmanager
    async def alone(self) -> AsyncGenerator[None]:
        """Within it no turn and no slash command runs. Raises CallerError while one does that was not cancelled, and once the
        session is closed; the end of a cancelled one is waited for."""
        self._refuse_if_busy()
        async with self._busy:
            yield

    def _refuse_if_busy(self) -> None:
        if self._is_closed:
            raise CallerError("this session was closed: load it, or begin another one")
        if self.is_busy:
            raise CallerError("a turn of this session is running: wait for its end, or cancel it")

    @contextlib.asynccontextmanager
    async def _one_more(self) -> AsyncGenerator[_Turn]:
        """What an editor sends is served in order: a prompt may come before the turn that it cancelled has ended."""
        self._refuse_if_busy()
        turn = _Turn()
        self._asked.append(turn)
        try:
            async with self._busy:
                yield turn
        finally:
            self._asked.remove(turn)

    async def obey(self, command: "Callable[[], Coroutine[None, None, Sequence[str]]]") -> PromptResponse:
        """Carry out a slash command; what it says goes to the person. It has the session for itself, as a turn has."""
        async with self._one_more() as turn:
            if turn.is_cancelled:
                return PromptResponse(stop_reason="cancelled")
            self._command = asyncio.create_task(command())
            try:
                self.note(*await self._command)
            except CallerError as error:
                self.note(clean_line(str(error)))
            except asyncio.CancelledError:
                if not turn.is_cancelled:
                    raise
            finally:
                self._command = None
            await self.updates.flush()
            return PromptResponse(stop_reason="cancelled" if turn.is_cancelled else "end_turn")

    async def settled(self) -> None:
        """No turn is running any more, and everything is told."""
        async with self._busy:
            await self.updates.flush()

    async def prompt(self, prompt: EditorPrompt) -> PromptResponse:
        """Run one turn. Raises CallerError for what cannot be asked, and TurnFailed where there is no answer."""
        async with self._one_more() as turn:
            if turn.is_cancelled:
                return PromptResponse(stop_reason="cancelled")
            for line in self._notes:
                self.note(line)
            self._notes.clear()
            return await self._turn(prompt, turn=turn)

    async def _turn(self, prompt: EditorPrompt, *, turn: _Turn) -> PromptResponse:
        self.mode.check()
        if self.mode.chosen != self.place.policy.mode:
            self.place = self._furnished()
        place = self.place
        self._tell_dropped()
        teller = EditorTeller(
            self.updates,
            workspace=place.workspace,
            prefix=f"{self._turns}.",
            note=self.note,
            before_command=self._before_command,
        )
        self._teller = teller
        self._turns += 1
        approver = EditorApprover(
            AskMeans(
                client=self._means.client,
                session=self.id,
                around=place.around_asks,
                runs_commands=self._runs_commands,
                has_forms=self._means.can.elicitation is not None and self._means.can.elicitation.form is not None,
            ),
            policy=self._policy,
            updates=self.updates,
            teller=teller,
            note=self.note,
        )
        typed: Sequence[PromptPart] = ()
        if prompt.typed.strip():
            typed = await typed_parts(prompt.typed, place=place, policy=self._policy, tell=self.note)
        options: RunOptions = {"safety": {"approver": approver}, "watch": teller}
        if self._begun:
            options |= {"session": self.id, "drop_left": True}
        if turn.is_cancelled:
            return PromptResponse(stop_reason="cancelled")
        try:
            with (
                runs_before(self.note, approver=approver, ask_s=place.ask_s, clock=place.clock),
                place.mode.of_turn(place.policy.mode),
            ):
                self._run = place.agent.start([*typed, *prompt.given], **options)
                result = await self._run
        finally:
            self._run = None
            teller.has_ended()
            self._begun = self._begun or self._is_kept()
            await self.updates.flush()
        self._policy = approver.policy
        self.spent.add(result)
        return await self._ended(result, teller=teller)

    async def _ended(self, result: RunResult, *, teller: EditorTeller) -> PromptResponse:
        self._tell_usage(teller)
        said = describe_end(result, asked=FailedModel(choice=self.place.choice, in_session=True))
        if result.stop_reason in FAILED:
            await self.updates.flush()
            raise TurnFailed(clean_line(said))
        if not result.complete and result.stop_reason is not StopReason.CANCELLED:
            self.note(said)
        await self.updates.flush()
        usage, cost = result.usage, result.cost_usd
        return PromptResponse(
            stop_reason=STOPS.get(result.stop_reason, "end_turn"),
            usage=AcpUsage(
                total_tokens=usage.input_tokens + usage.output_tokens,
                input_tokens=usage.input_tokens,
                output_tokens=usage.output_tokens,
                thought_tokens=usage.reasoning_tokens,
                cached_read_tokens=usage.cache_read_tokens,
                cached_write_tokens=usage.cache_write_tokens,
            ),
            field_meta={
                "turnwise": {
                    "stop_reason": result.stop_reason.value,
                    "complete": result.complete,
                    "cost_usd": None if cost is None else str(cost),
                    "requests": result.requests,
                }
            },
        )

    def _tell_usage(self, teller: EditorTeller) -> None:
        """An editor draws the usage as a share of the window. If the window is unknown, only the result has the numbers."""
        place = self.place
        limits = model_limits_of(place.choice.model, settings=place.settings, last=None)
        window = limits.context_window_tokens or limits.max_input_tokens
        usd = self.spent.cost.exact_usd
        if window:
            cost_usd = None if usd is None else float(usd)
            self.updates.put(usage_update(teller.last, window=window, cost_usd=cost_usd))

    def _tell_dropped(self) -> None:
        if self._begun:
            journal = self._means.journal
            if line := dropped_line(pending_of(journal, journal.find_session(self.id))):
                self.note(line)

    def _before_command(self) -> None:
        """How commands run here is said once, outside plan mode."""
        if self._commands_note and not is_planning():
            self.note(self._commands_note)
            self._commands_note = ""

    def _is_kept(self) -> bool:
        try:
            self._means.journal.find_session(self.id)
        except CallerError:
            return False
        return True

    def _furnished(self) -> Workplace:
        means = self._means
        given: Given = {
            **self._given,
            "cwd": self.folder,
            "go_on": False,
            "session": self.id if self._begun else None,
        }
        in_editor = runs_in_editor(read_layers(self.folder, env=means.env), can=means.can)
        self._runs_commands = in_editor and is_text(str(self.folder))  # the protocol has no word for other names
        terms = FaceTerms(
            fit=self._fit if self._replaces_tools else None,
            runs_commands=self._runs_commands,
            mode=self._mode,
        )
        place = furnish(given, journal=means.journal, clock=means.clock, attended=True, face=terms)
        self._policy = place.policy
        self._commands_note = place.commands_note
        if self._begun:
            return place
        return msgspec.structs.replace(place, agent=inside(place.agent).opening(self.id))

    def _show_terminal(self, call: ToolCall, terminal: str) -> None:
        if self._teller is not None:
            self._teller.show_terminal(call, terminal)

    @property
    def _replaces_tools(self) -> bool:
        fs = self._means.can.fs
        return self._runs_commands or bool(fs is not None and fs.read_text_file)

    def _fit(self, tool: Tool, workspace: WorkspacePaths) -> Tool:
        """The tool with the editor's unsaved texts, and its terminal where the user wants that."""
        means = self._means
        if self._runs_commands and tool.name == "bash":
            return in_terminal(
                tool,
                client=means.client,
                session=self.id,
                folder=self.folder,
                clock=means.clock,
                shows=self._show_terminal,
            )
        if means.can.fs is not None and means.can.fs.read_text_file:
            return with_unsaved(tool, client=means.client, session=self.id, workspace=workspace, clock=means.clock)
        return tool
