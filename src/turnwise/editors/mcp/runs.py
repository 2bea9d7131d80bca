"""One run that a client asked for: from its wish to its result, whoever listens meanwhile."""

import asyncio
import secrets
from collections.abc import Mapping, Sequence
from pathlib import Path

import msgspec

from turnwise.agent.results import RunResult
from turnwise.agent.run_options import RunOptions
from turnwise.agent.runs import Run
from turnwise.base.clock import Clock
from turnwise.coding_agent.asks import AskSurroundings
from turnwise.coding_agent.folder import settings_of_run
from turnwise.coding_agent.model_names import another_model
from turnwise.coding_agent.options import Given
from turnwise.coding_agent.remedies import FailedModel, describe_end
from turnwise.coding_agent.run_events import DeniedCall, denied_in
from turnwise.coding_agent.run_servers import servers_of_run
from turnwise.coding_agent.text import clean_line, visible_line
from turnwise.coding_agent.workplace import FaceTerms, Workplace, furnish
from turnwise.editors.mcp.arguments import AS_STARTED, PERMISSIONS, READ_ONLY, RunWish, lowered
from turnwise.editors.mcp.client_asks import ClientApprover, Questions
from turnwise.editors.mcp.progress import Progress
from turnwise.errors import CallerError
from turnwise.journal.journal import Journal
from turnwise.running.watcher_events import ToolsetNoted, WatcherEvent
from turnwise.settings.options import RunSettings
from turnwise.settings.settings import Layer, read_layers

AGAIN = "turnwise mcp serve"
ALLOW_HINT = (
    "start `turnwise mcp serve` [with `{options}`, or ]for a client that can ask its user (elicitation); what is said here "
    "cannot allow it"
)
READ_ONLY_HINT = f"the client leaves `permissions` out, or gives `{AS_STARTED}`; what is said here cannot allow it"


class ServeMeans(msgspec.Struct, frozen=True, kw_only=True):
    """What all runs of a server have in common. `given` are the options of its start; `root` is a resolved folder, and `models`
    are those that a client may choose."""

    given: Given
    root: Path
    models: tuple[str, ...]
    journal: Journal
    clock: Clock
    env: Mapping[str, str]


class Served(msgspec.Struct, frozen=True, kw_only=True):
    """A run that has ended. `said` is how it ended, in words; `notes` are lines about the run itself."""

    result: RunResult
    said: str
    denied: Sequence[DeniedCall]
    notes: Sequence[str]


class ServedRun:
    """`token` names it to its client alone. `start` begins it; its task then goes on whether or not a call listens."""

    def __init__(self, wish: RunWish, *, means: ServeMeans, asks: bool) -> None:
        self.token = secrets.token_urlsafe(24)
        self.questions = Questions(means.clock)
        self.progress = Progress()
        self.is_attended_to = False  # a call listens
        self.wish = wish
        self._means = means
        self._asks = asks
        self._denied: list[DeniedCall] = []
        self._notes: list[str] = []
        self._has_begun = False  # a step of the turn; before that, MCP servers are started
        self._is_cancelled = False
        self._run: Run | None = None
        self._task: asyncio.Task[Served] | None = None

    @property
    def task(self) -> asyncio.Task[Served]:
        assert self._task is not None, "it has been started"
        return self._task

    def start(self) -> None:
        """Raises CallerError where there is nothing to run with; then nothing was sent."""
        place = self._furnished()
        self._notes += place.notes
        self._task = asyncio.create_task(self._serve(place))

    def cancel(self) -> None:
        """It ends soon, with what there is; where nothing has begun, without a result."""
        self._is_cancelled = True
        if self._run is not None:
            self._run.interrupt()
            if not self._has_begun:
                self._run.cancel()

    async def _serve(self, place: Workplace) -> Served:
        options: RunOptions = {"watch": self._see}
        if self._asks:
            around = AskSurroundings(
                offers=place.offers, inspect=place.inspect, workspace=place.workspace, clock=self._means.clock
            )
            approver = ClientApprover(around, policy=place.policy, questions=self.questions, note=self._notes.append)
            options["safety"] = {"approver": approver}
        self._run = place.agent.start(self.wish.prompt, **options)
        if self._is_cancelled:
            self._run.cancel()
        result = await self._run
        said = "answered" if result.complete else describe_end(result, asked=FailedModel(choice=place.choice))
        return Served(
            result=result, said=clean_line(said), denied=tuple(self._denied), notes=(*self._notes, *result.notes)
        )

    def _see(self, seen: WatcherEvent) -> None:
        if (denied := denied_in(seen)) is not None:
            self._denied.append(denied)
        self._has_begun = self._has_begun or not isinstance(seen, ToolsetNoted)
        self.progress.see(seen)

    def _furnished(self) -> Workplace:
        means, wish = self._means, self.wish
        given: Given = {**means.given, "cwd": wish.folder, "go_on": False, "session": None}
        layers = read_layers(wish.folder, env=means.env)
        most = settings_of_run(layers, last=None, given=given["settings"]).settings
        if given["model"] is None and not means.env.get("TURNWISE_MODEL"):
            given = self._with_own_model(given, layers=layers, named=most.model)
        given["settings"] = msgspec.structs.replace(given["settings"], **lowered(most, wish=wish.limits))
        place = self._place(given)
        if wish.model is not None and wish.model != place.choice.model:
            given = another_model(wish.model, given=given, choice=place.choice, offered=(), again=AGAIN)
            place = self._place(given)
        return place

    def _with_own_model(self, given: Given, *, layers: Sequence[Layer], named: str | None) -> Given:
        """With the model of the user's own file: a project's file cannot choose another one, nor can a client by writing it.
        `named` is the model of all files. Raises CallerError where the project alone names one."""
        own = settings_of_run([one for one in layers if one.source == "user"], last=None, given=RunSettings()).settings
        if own.model == named:
            return given
        if own.model is None:
            raise CallerError(
                f"only the folder's file names a model, `{visible_line(str(named))}`, and it cannot choose: name one where the "
                "server starts (`-m`)"
            )
        self._notes.append(f"the folder's file names the model `{named}`, which is left out: the server's own is used")
        address = given["base_url"] or self._means.env.get("TURNWISE_BASE_URL") or own.base_url
        return {**given, "model": own.model, "base_url": address}

    def _place(self, given: Given) -> Workplace:
        means, permissions = self._means, self.wish.permissions
        hint = READ_ONLY_HINT if permissions == READ_ONLY else ALLOW_HINT
        return furnish(
            given,
            journal=means.journal,
            clock=means.clock,
            attended=self._asks,
            servers=servers_of_run(given, asks=None, clock=means.clock),
            face=FaceTerms(rules=PERMISSIONS[permissions], allow_hint=hint),
        )
