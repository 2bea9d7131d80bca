"""What a run in a folder works with: the agent and its sub-agents, the tools, the rules, and what the person is told of them."""

import contextlib
import functools
import hashlib
import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import msgspec

from turnwise.agent.agent import Agent
from turnwise.agent.agent_options import Model, OpeningSource
from turnwise.agent.agent_setup import ASK_USER, check_tools_of_rules
from turnwise.agent.children import MAX_DEPTH, Subagents
from turnwise.agent.formatting import cost_said
from turnwise.agent.models import read_model
from turnwise.agent.run_setup import groups_of
from turnwise.agent.tools import BATCH_HINT
from turnwise.base.clock import Clock
from turnwise.base.extras import require_extras
from turnwise.base.unasked_files import LeftOut
from turnwise.coding_agent.asked_calls import AskSurroundings, allow_hint
from turnwise.coding_agent.choice import Choice, choose, key_variables
from turnwise.coding_agent.hook_commands import read_hooks
from turnwise.coding_agent.modes import SessionMode, first_mode, why_no_sandbox_mode
from turnwise.coding_agent.options import Given
from turnwise.coding_agent.permissions import (
    allowed_rules,
    is_same_model,
    limits_of,
    model_limits_of,
    policy_of_run,
    remembered_rules,
    request_settings,
    retry_of,
)
from turnwise.coding_agent.plan import plan_tool
from turnwise.coding_agent.progress_line import WaitBounds
from turnwise.coding_agent.repository import (
    AGENTS_HEAD,
    agents_md_in,
    read_agents_md,
    reading_said,
    reread_agents_md,
    settings_of_run,
)
from turnwise.coding_agent.run_servers import NO_SERVERS, RunServers
from turnwise.coding_agent.text import clean_line
from turnwise.coding_agent.turn_notes import FolderInstructions, opening_of
from turnwise.errors import CallerError
from turnwise.journal.journal import Journal, Session
from turnwise.journal.ledger import cost_of
from turnwise.journal.ledger_queries import LedgerSpan
from turnwise.journal.prices import Prices, prices_of_layers
from turnwise.rules.limits import Limit, MaxSteps
from turnwise.rules.permission_facts import Mode, tightest
from turnwise.rules.permissions import PermissionRule, Policy
from turnwise.running.hooks import Hook
from turnwise.running.run_context import Inspector
from turnwise.running.tools import Tool
from turnwise.settings.settings import Layer, RunSettings, read_layers, state_folder
from turnwise.telemetry.telemetry import telemetry_of
from turnwise.tools.sandbox import Wrapped, find_sandbox
from turnwise.tools.workspace import workspace_tools
from turnwise.tools.workspace.changes import FileChanges, recover_changes
from turnwise.tools.workspace.paths import WorkspacePaths
from turnwise.tools.workspace.shell import Shell
from turnwise.turn.config import MAX_STEPS, AskOrigin, Deadlines, ToolOffer, TurnConfig
from turnwise.turn.events import TurnStarted
from turnwise.vocab import ToolSpec
from turnwise.vocab.file_names import marked, shown_name

CHILD = "general"
CHILD_DESCRIPTION = (
    "an agent like you, with the same tools, in the same folder: for work that can be told in one prompt and whose details "
    "you do not need to see"
)

INSTRUCTIONS = """You work in a folder on the user's machine, with tools that read, write, edit, list and search its files \
and run commands. Look before you answer: read what the question is about. Make changes with the tools, not in your answer. \
A tool that is denied is denied for this run. When you are done, say briefly what you found or did."""

_QUESTION = ToolSpec(
    name=ASK_USER,
    description="Ask the user a question and get their answer. For what only they can know or decide, and what would cost "
    "much to guess wrongly; not for leave to call a tool, which is asked for by itself.",
    parameters=msgspec.json.encode(
        {
            "type": "object",
            "properties": {
                "question": {"type": "string", "description": "The question, whole and by itself."},
                "options": {
                    "type": "array",
                    "items": {"type": "string"},
                    "description": "Answers to choose from, if there are a few; the user may say something else.",
                },
            },
            "required": ["question"],
            "additionalProperties": False,
        }
    ).decode(),
)


class FaceTerms(msgspec.Struct, frozen=True, kw_only=True):
    """What a face brings of its own. `rules` come after those of the command line. `fit` gives what stands in place of a tool
    that works in the folder. `runs_commands`: the face runs them, without a sandbox. `allow_hint` tells the model how a person
    allows what was denied, in place of the command line's words. `mode` is the session's, of a face that changes it."""

    rules: tuple[PermissionRule, ...] = ()
    fit: Callable[[Tool, WorkspacePaths], Tool] | None = None
    runs_commands: bool = False
    allow_hint: str = ""
    mode: SessionMode | None = None


class Workplace(msgspec.Struct, frozen=True, kw_only=True):
    """`notes` are lines to tell before the run; `commands_note` before the first command."""

    folder: Path
    agent: Agent
    choice: Choice
    settings: RunSettings
    before: Session | None
    workspace: WorkspacePaths
    changes: FileChanges
    policy: Policy
    offers: Mapping[str, ToolOffer]
    inspect: Inspector
    clock: Clock
    notes: tuple[str, ...]
    commands_note: str
    ask_s: float
    spent: Callable[[AskOrigin], str]
    bounds: WaitBounds
    reads_agents_md: bool
    mode: SessionMode

    @property
    def around_asks(self) -> AskSurroundings:
        return AskSurroundings(
            offers=self.offers, inspect=self.inspect, workspace=self.workspace, clock=self.clock, spent=self.spent
        )


def furnish(
    given: Given,
    *,
    journal: Journal,
    clock: Clock,
    attended: bool,
    output_type: object = None,
    left: TurnConfig | None = None,
    servers: RunServers = NO_SERVERS,
    face: FaceTerms = FaceTerms(),  # noqa: B008 (frozen)
) -> Workplace:
    """Everything that a run of these options needs. `attended`: somebody can be asked. `left` is the configuration of a turn that
    goes on: its rules, deadlines and instructions hold, for its sub-agents too. `servers` offer their tools to all of them, and
    `face` is what the face brings. Raises CallerError."""
    require_extras("workspace")
    folder = (given["cwd"] or Path.cwd()).resolve()
    before = find_session(journal, folder=folder, go_on=given["go_on"], session=given["session"])
    last = None if before is None else last_config(journal, before)
    is_read = not given["no_agents_md"] and left is None
    agents_md = (read_agents_md if last is None else reread_agents_md)(folder) if is_read else None
    layers = read_layers(folder, env=os.environ)
    settings, choice = _chosen(given, layers=layers, last=last)
    journal.keep(settings.durability or "normal")
    policy = _policy_of(
        given,
        before=before,
        left=left,
        layers=layers,
        folder=folder,
        journal=journal,
        attended=attended,
        face=face,
        steps=settings.max_steps or MAX_STEPS,
    )
    deadlines, streams = _pace_of(given, left=left)
    began = _began_with(agents_md, last=last) if is_read else None
    system = instructions(given["system"], agents_md=began) if left is None else instructions_in(left)
    store, finished, changes = _changes_in(folder)
    kept = state_folder(os.environ) / "agents_md" / f"{store.name}.json"  # what is known of its AGENTS.md
    told = FolderInstructions(folder, began=began, before=before, changes=changes, kept=kept) if is_read else None
    workspace = WorkspacePaths(folder, changes=changes)
    mode, mode_note = (face.mode, "") if face.mode is not None else first_mode(given.get("mode"), last=last)
    shell = _shell_of(given, folder=folder, choice=choice, face=face, mode=mode)
    policy = _in_mode(policy, left=left, mode=mode, shell=shell)
    agents = _Agents(
        given=given,
        choice=choice,
        settings=settings,
        last=last,
        journal=journal,
        folder=folder,
        clock=clock,
        shell=shell,
        changes=changes,
        policy=policy,
        face=face,
        hooks=_hooks_in(layers, folder=folder, shell=shell, ceiling=policy.mode, mode=mode),
        system=system,
        deadlines=deadlines,
        streams=streams,
        output_type=output_type,
        servers=servers,
        limits=limits_of(settings, last=last.limits if last else None),
        prices=prices_of_layers(layers, env=os.environ),
        opening=opening_of(
            shell,
            folder=folder,
            clock=clock,
            tells=settings.environment is not False,
            reads_agents_md=not given["no_agents_md"],
            instructions=told,
            mode=mode.note,
        ),
    )
    tools = [*agents.tools(workspace), plan_tool()]
    inspect = mode.stamped(shell.inspector(tools, clock=clock, foresees=face.fit is None))
    return Workplace(
        folder=folder,
        agent=agents.root(tools, inspect=inspect),
        choice=choice,
        settings=settings,
        before=before,
        workspace=workspace,
        changes=changes,
        policy=policy,
        offers={tool.name: tool.offer for tool in tools},
        inspect=inspect,
        clock=clock,
        notes=(
            *_led_elsewhere(given, layers=layers, last=last),
            *_notes_of(agents_md, before, layers=layers, agents=agents),
            *[note for note in (*finished, *servers.notes, mode_note) if note],
        ),
        commands_note=shell.said,
        ask_s=deadlines.ask_s,
        spent=functools.partial(spent_said, journal=journal),
        bounds=_bounds_of(choice.model, settings=settings, deadlines=deadlines, streams=streams),
        reads_agents_md=not given["no_agents_md"],
        mode=mode,
    )


def _changes_in(folder: Path) -> tuple[Path, list[str], FileChanges]:
    """Where the changes of the folder are kept, what was finished of those that a crash has left, and those to come."""
    store = changes_folder(folder, env=os.environ)
    return store, [*recovered_changes(store)], FileChanges(store)


def _in_mode(policy: Policy, *, left: TurnConfig | None, mode: SessionMode, shell: Shell) -> Policy:
    """A turn that goes on keeps its own mode where that is the tighter one."""
    ceiling = mode.chosen if left is None else tightest(policy.mode, mode.chosen)
    return msgspec.structs.replace(policy, mode=ceiling, confines=shell.sandbox.confines)


def _shell_of(given: Given, *, folder: Path, choice: Choice, face: FaceTerms, mode: SessionMode) -> Shell:
    """The commands of the run. The mode is told how they are kept in."""
    shell = Shell(
        folder,
        sandbox=find_sandbox(wanted="none") if given["no_sandbox"] or face.runs_commands else None,
        network=given["network"],
        hidden_env=key_variables(choice),
        lost=mode.lose,
    )
    mode.why_no_sandbox = lambda: why_no_sandbox_mode(shell, folder=folder, home=Path.home())
    mode.check()
    return shell


def _hooks_in(
    layers: Sequence[Layer], *, folder: Path, shell: Shell, ceiling: Mode, mode: SessionMode
) -> Sequence[Hook]:
    """In plan mode they find the folder read-only, as commands do."""

    def confined(command: Sequence[str], given: bytes) -> Wrapped | None:
        return shell.confined(command, env=os.environ, given=given) if tightest(ceiling, mode.now()) == "plan" else None

    return read_hooks(layers, folder=folder, env=os.environ, confined=confined)


def _pace_of(given: Given, *, left: TurnConfig | None) -> tuple[Deadlines, bool]:
    """The deadlines, and whether answers are streamed."""
    return (deadlines_of(given), not given["no_stream"]) if left is None else (left.deadlines, left.stream)


def _began_with(agents_md: str | LeftOut | None, *, last: TurnConfig | None) -> str | None:
    """A session keeps the text of AGENTS.md that it began with: a changed one is told behind it, so what was thought and cached
    still holds."""
    if last is not None:
        return agents_md_in(last)
    return agents_md if isinstance(agents_md, str) else None


def _policy_of(
    given: Given,
    *,
    before: Session | None,
    left: TurnConfig | None,
    layers: Sequence[Layer],
    folder: Path,
    journal: Journal,
    attended: bool,
    face: FaceTerms,
    steps: int,
) -> Policy:
    """What may run: by the files and the options, or as it was for the turn that goes on; and what the session was allowed."""
    remembered = () if before is None else remembered_rules(journal, before, workspace=marked(os.path.realpath(folder)))
    if left is not None and left.policy is not None:
        allowed = [rule for text in given["allow"] for rule in allowed_rules(text)]
        rules = tuple(dict.fromkeys((*left.policy.rules, *remembered, *allowed)))
        return msgspec.structs.replace(left.policy, rules=rules)
    policy = policy_of_run(
        layers,
        folder=folder,
        home=Path.home(),
        attended=attended,
        allow=given["allow"],
        remembered=remembered,
    )
    policy = msgspec.structs.replace(policy, rules=(*policy.rules, *face.rules), more_steps=steps if attended else 0)
    check_tools_of_rules(policy, tools={})
    return policy


class _Agents(msgspec.Struct, frozen=True, kw_only=True):
    """The agent of a run, and those that it may hand tasks to: the same model, tools, rules and folder."""

    given: Given
    choice: Choice
    settings: RunSettings
    last: TurnConfig | None
    journal: Journal
    folder: Path
    clock: Clock
    shell: Shell
    changes: FileChanges
    policy: Policy
    face: FaceTerms
    hooks: Sequence[Hook]
    system: Sequence[str]
    deadlines: Deadlines
    streams: bool
    output_type: object
    servers: RunServers
    limits: Limit | None
    prices: Prices
    opening: OpeningSource

    def tools(self, workspace: WorkspacePaths) -> list[Tool]:
        """Those of the folder, and one for questions where somebody is there to answer."""
        tools = [inspected(tool) for tool in workspace_tools(workspace, shell=self.shell)]
        if (fit := self.face.fit) is not None:
            tools = [fit(tool, workspace) for tool in tools]
        if self.policy.attended:
            tools.append(Tool(offer=ToolOffer(spec=_QUESTION, asks_user=True)))
        return tools

    def root(self, tools: Sequence[Tool], *, inspect: Inspector) -> Agent:
        child: Agent | None = None
        for _ in range(MAX_DEPTH):
            # each has a memory of its own of what it has read; what they change is kept in one place
            own = self.tools(WorkspacePaths(self.folder, changes=self.changes))
            child = self._agent(own, inspect=inspect, child=child, is_root=False)
        return self._agent(tools, inspect=inspect, child=child, is_root=True)

    def _agent(
        self, tools: Sequence[Tool], *, inspect: Inspector, child: Agent | None, is_root: bool
    ) -> Agent[None, Any]:
        given, settings, last = self.given, self.settings, self.last
        below = [] if child is None else [Subagents({CHILD: child}, {CHILD: CHILD_DESCRIPTION})]
        steps, own = MaxSteps(settings.max_steps or MAX_STEPS), groups_of(settings)
        limits = steps if self.limits is None or not is_root else steps | self.limits
        return Agent(
            Model(
                self.choice.model,
                base_url=self.choice.base_url,
                api_key=self.choice.key,
                api_key_env=self.choice.api_key_env,
                settings=request_settings(settings, last=last, model=given["model"]),
                limits=model_limits_of(self.choice.model, settings=settings, last=last),
                stream=self.streams,
                cache=settings.cache or "auto",
                websocket=settings.websocket or False,
            ),
            tools=[*tools, *self.servers.toolsets, *below],
            instructions=self.system,
            output_type=self.output_type if is_root else None,
            limits=limits,
            policy=self.policy if is_root else msgspec.structs.replace(self.policy, more_steps=0),
            journal=self.journal,
            steps={**own.get("steps", {}), "opening": self.opening},
            recovery={
                **own.get("recovery", {}),
                "retry": retry_of(settings.retries, last=last),
                "fallbacks": settings.fallback or (),
                "deadlines": self.deadlines,
            },
            safety={
                **own.get("safety", {}),
                "allow_hint": self.face.allow_hint or allow_hint(),
                "inspect": inspect,
                "hooks": self.hooks,
                "script": "auto" if settings.script is None else settings.script,
            },
            observation={
                "folder": self.folder,
                "prices": self.prices,
                "clock": self.clock,
                "telemetry": telemetry_of(os.environ),
            },
        )


def deadlines_of(given: Given) -> Deadlines:
    """With `--ask-timeout`; a sub-agent that asks does not lose the time that a person may take."""
    usual, ask_s = Deadlines(), given["ask_timeout"]
    if ask_s is None:
        return usual
    longer_s = max(0.0, ask_s - usual.ask_s)
    return msgspec.structs.replace(usual, ask_s=ask_s, child_s=usual.child_s + longer_s)


def _bounds_of(model: str, *, settings: RunSettings, deadlines: Deadlines, streams: bool) -> WaitBounds:
    """What is said of a wait: how many steps there are, and when a request is given up."""
    first_s = deadlines.first_event_s or read_model(model).profile.first_event_s
    limits = model_limits_of(model, settings=settings, last=None)
    return WaitBounds(
        window=limits.context_window_tokens or limits.max_input_tokens,
        max_steps=settings.max_steps or MAX_STEPS,
        first_event_s=first_s if streams else deadlines.total_s,
        idle_s=deadlines.idle_s,
    )


def inspected(tool: Tool) -> Tool:
    """With the mark that a verdict on its calls needs facts: they all work on paths, or run commands."""
    return msgspec.structs.replace(tool, offer=msgspec.structs.replace(tool.offer, inspected=True))


def changes_folder(folder: Path, *, env: Mapping[str, str]) -> Path:
    """Where the old contents of a folder's files are kept, so that changes can be taken back, and finished after a kill."""
    return state_folder(env) / "changes" / hashlib.sha256(os.fsencode(folder)).hexdigest()[:16]


def recovered_changes(store: Path) -> tuple[str, ...]:
    with contextlib.suppress(OSError):  # it is tried again by the next run
        return recover_changes(store)
    return ()


def spent_said(origin: AskOrigin, *, journal: Journal) -> str:
    """What the turn has cost so far, with its sub-agents; empty where that is not recorded."""
    entries = journal.ledger.entries(LedgerSpan(session=origin.session_id)) if origin.session_id else []
    own = [one for one in entries if one.turn == origin.turn_id]
    below = [one for one in entries if own and one.path and one.started >= own[0].started]
    return cost_said(cost_of([*own, *below])) if own else ""


def find_session(journal: Journal, *, folder: Path, go_on: bool, session: str | None) -> Session | None:
    if go_on and session:
        raise CallerError("give either --continue or --session, not both")
    if session:
        return journal.find_session(session)
    if not go_on:
        return None
    found = journal.last_session(folder)
    if found is None:
        raise CallerError(f"there is no session of `{folder}` to continue; `turnwise sessions list` shows all")
    return found


def with_whole_id(given: Given, *, journal: Journal) -> Given:
    """The options with the whole id of `--session`, of which a person may type a part. Raises CallerError."""
    part = given["session"]
    return given if part is None or given["go_on"] else {**given, "session": journal.find_session_by_part(part).row.id}


def last_config(journal: Journal, session: Session) -> TurnConfig | None:
    """How the session's last turn was set up."""
    for turn in reversed(session.turns):
        for event in journal.events(turn.id):
            if isinstance(event, TurnStarted):
                return event.config
    return None


def session_key(given: Given, *, journal: Journal) -> str | None:
    """The name of the variable with the key of the session that goes on, where it has one of its own. Raises CallerError."""
    folder = (given["cwd"] or Path.cwd()).resolve()
    before = find_session(journal, folder=folder, go_on=given["go_on"], session=given["session"])
    last = None if before is None else last_config(journal, before)
    return None if last is None else last.api_key_env or None


def instructions(system: str | None, *, agents_md: str | None) -> list[str]:
    texts = [INSTRUCTIONS if system is None else system]
    if agents_md is not None:
        texts.append(f"{AGENTS_HEAD}{agents_md}")
    return texts


def instructions_in(config: TurnConfig) -> list[str]:
    """Those that a turn was given, without the sentence that its agent adds by itself."""
    return [text.text for text in config.system if text.text != BATCH_HINT]


def _chosen(given: Given, *, layers: Sequence[Layer], last: TurnConfig | None) -> tuple[RunSettings, Choice]:
    """The settings of the run, and its model. Raises CallerError."""
    said = given["settings"]
    said = msgspec.structs.replace(said, environment=False) if given["no_environment"] else said
    is_same = is_same_model(given["model"], last=last)
    settings = settings_of_run(layers, last=last, given=said, is_same_model=is_same).settings
    choice = choose(
        given["model"],
        base_url=given["base_url"],
        api_key_env=given["api_key_env"],
        last=last,
        env=os.environ,
        settings=settings,
    )
    return settings, choice


def _led_elsewhere(given: Given, *, layers: Sequence[Layer], last: TurnConfig | None) -> list[str]:
    """A line where a project's file has another model or address asked than would be without it: what is said and shown
    goes there."""
    files = [str(layer.path) for layer in layers if layer.source == "project" and not layer.left_out]
    if not files:
        return []
    choice = _chosen(given, layers=layers, last=last)[1]
    try:
        usual = _chosen(given, layers=[layer for layer in layers if layer.source != "project"], last=last)[1]
    except CallerError:  # without the file there is no model, or none that could be used
        usual = None
    if choice == usual:
        return []
    instead = "" if usual is None else f", in place of {_named_with_address(usual)}"
    return [f"{files[-1]}, a file of the project, chooses the model: {_named_with_address(choice)}{instead}"]


def _named_with_address(choice: Choice) -> str:
    """Without what an address may hold of a key."""
    if choice.base_url is None:
        return clean_line(choice.model)
    parts = urlsplit(choice.base_url)
    return clean_line(f"{choice.model} at {parts.scheme}://{parts.netloc.rpartition('@')[2]}{parts.path}")


def _notes_of(
    agents_md: str | LeftOut | None, before: Session | None, *, layers: Sequence[Layer], agents: "_Agents"
) -> list[str]:
    notes = [f"left out {layer.path}: it {layer.left_out}" for layer in layers if layer.left_out]
    if agents_md is not None and before is None:  # of a session that goes on, the start of its turn says it
        is_out = isinstance(agents_md, LeftOut)
        notes.append(f"left out AGENTS.md: it {agents_md.why}" if is_out else reading_said(agents_md))
    if before is not None and before.row.folder != shown_name(
        str(agents.folder)
    ):  # what it said of files was about its own
        notes.append(
            f"this session began in {before.row.folder}; the tools now work in {shown_name(str(agents.folder))}"
        )
    if ending := agents.choice.ending(now_s=agents.clock.now()):
        notes.append(ending)
    return notes
