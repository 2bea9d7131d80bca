"""The library's face: an agent is a model, its tools and its rules; a run is one turn."""

import asyncio
import contextlib
import contextvars
import copy
from collections.abc import Awaitable, Callable, Collection, Coroutine, Generator, Sequence
from decimal import Decimal
from functools import partial
from typing import TYPE_CHECKING, Any, Generic, Unpack, cast, overload

import msgspec
from typing_extensions import TypeVar

from turnwise.agent.agent_options import (
    ModelLike,
    ObservationOptions,
    RecoveryOptions,
    SafetyOptions,
    StepOptions,
    as_model,
    check_names,
    check_plain,
    check_values,
    checking_options,
)
from turnwise.agent.agent_setup import AgentOptions, AgentSetup, over, set_up
from turnwise.agent.budgets import Budget
from turnwise.agent.children import MAX_DEPTH, AgentTool, Delegate
from turnwise.agent.deps import DepsFactory, DepsWanted
from turnwise.agent.results import Output, RunResult, run_result
from turnwise.agent.resume_lookup import asks_in, check_endpoint, left_child, left_run, run_before
from turnwise.agent.run_input import Instruction, Prompt, input_of, message_of, opened, title_of
from turnwise.agent.run_setup import (
    KeptOpen,
    Override,
    ResumeOptions,
    RunOptions,
    TypedRunOptions,
    asked_below,
    check_choice,
    check_options,
    furnished,
    open_transport,
    override_of,
    overriding,
    priced,
    reserved,
    run_below,
    terms_of,
)
from turnwise.agent.runs import REMOVED, OnLeave, Run, RunControl, RunStream, carrying, interrupted, keep_so_far
from turnwise.agent.schemas import OutputType, checker_of, output_over
from turnwise.agent.tools import BATCH_HINT, ToolLike, Toolset
from turnwise.base.clock import TimeOrderedIds
from turnwise.base.threads import run_to_end
from turnwise.endpoints.transport import Circuits, Transport, WithFirstReply
from turnwise.errors import CallerError, JournalFailed, NothingToResume
from turnwise.journal.journal import Journal
from turnwise.journal.turn_keys import TurnKey
from turnwise.journal.turn_writer import TurnJournal
from turnwise.rules.history import check_input
from turnwise.rules.limits import Limit
from turnwise.rules.permissions import Policy
from turnwise.rules.reservations import least_of
from turnwise.running.approvals import Approver
from turnwise.running.children import Minder, as_child, idle_s_of
from turnwise.running.run_context import RunAtHand, working_for
from turnwise.running.runner import Runner
from turnwise.running.runner_config import SETTLE_S, EndpointRecovery, Observation, RunnerMeans, StepPreparer
from turnwise.running.tools import ChildOrder, Tool
from turnwise.running.working_call import ModelAnswer, ModelQuestion
from turnwise.turn.config import Effect, OneAsk, ToolErrors, TurnConfig, TurnResult, listed
from turnwise.turn.events import TurnStarted
from turnwise.turn.programs import asked_ids, listed_digests
from turnwise.vocab import File, Message, StopReason, Text

Deps = TypeVar("Deps", default=None)
Given = TypeVar("Given")


class Agent(Generic[Deps, Output]):
    """A model with tools and rules, ready to run. It keeps nothing of a run: pass `history=`, or use a journal. Any number of
    runs may go on at once.

    - `model` is the name of a model, `PROVIDER:NAME` (`openai:gpt-6.1-sol`, `ollama:qwen3:8b`), or a `Model` with a URL, a
      key or settings of your own: `Agent(Model("openai_chat:NAME", base_url=...))`. In tests it is a `ScriptedModel` or a
      `Recording`.
    - `tools` are typed functions, tools made by `@tool`, other agents (`agent.as_tool(...)`, `Subagents`),
      toolsets (`Workspace(".")`), or a `ToolSpec` for each tool that your program runs itself.
    - `instructions` is the system prompt: texts, and functions that take the `RunContext` and write a text for each
      run.
    - `output_type` is the type of the answer: a pydantic model, another type, or a JSON Schema. `RunResult.output` has
      this type. Without it the output is the text.
    - `deps_type` is the type of the `deps=` that a run gets for its tools, or a `DepsFactory` that makes them.
    - `limits` bound a run. `MaxSteps(8) | MaxTokens(20_000)`: either limit stops it. With `&`, only both together stop
      it. Every limit reserves one request for the answer. Without a `MaxSteps` a run has at most 20 steps.
      A `Budget` bounds many runs together.
    - `tool_errors`: what an exception of a tool does. The words of a `ToolFault` always go to the model. Of any other
      exception, with `told`, the model reads only the class and that the tool failed, and the run goes on. With `raise`
      the run ends, and raises the exception (`run_so_far(error)` gives the run until then). Sub-agents' tools are included.
    - `policy` holds permission rules: they allow a call, deny it, or ask the `approver` (`SafetyOptions`).
    - `journal` keeps every turn, so that you can continue a session or resume a crashed turn: `Journal("turns.db")`.
    - `steps`, `recovery`, `safety` and `observation` are dicts of further options: `StepOptions`, `RecoveryOptions`,
      `SafetyOptions`, `ObservationOptions`.

    `async with Agent(...)` keeps connections open between runs.

    The provider's key is looked for when a run begins: without one the run raises MissingKey, and sends nothing. Raises
    UnknownModel, BadTool, UnknownOption, or another CallerError if a value cannot work.
    """

    @overload
    def __init__(
        self,
        model: ModelLike,
        *,
        tools: Sequence[ToolLike] = (),
        instructions: Instruction | Sequence[Instruction] = (),
        output_type: type[Output] | None = None,
        deps_type: type[Deps] | DepsFactory[Deps] | None = None,
        limits: Limit | Budget | None = None,
        tool_errors: ToolErrors = "told",
        policy: Policy | None = None,
        journal: Journal | None = None,
        steps: StepOptions = ...,
        recovery: RecoveryOptions = ...,
        safety: SafetyOptions = ...,
        observation: ObservationOptions = ...,
    ) -> None: ...
    @overload
    def __init__(
        self: "Agent[Any, Any]",
        model: ModelLike,
        *,
        tools: Sequence[ToolLike] = (),
        instructions: Instruction | Sequence[Instruction] = (),
        output_type: object,
        deps_type: Any = None,
        limits: Limit | Budget | None = None,
        tool_errors: ToolErrors = "told",
        policy: Policy | None = None,
        journal: Journal | None = None,
        steps: StepOptions = ...,
        recovery: RecoveryOptions = ...,
        safety: SafetyOptions = ...,
        observation: ObservationOptions = ...,
    ) -> None: ...
    @checking_options
    def __init__(
        self,
        model: ModelLike,
        *,
        tools: Sequence[ToolLike] = (),
        instructions: Instruction | Sequence[Instruction] = (),
        output_type: object = None,
        deps_type: type[Deps] | DepsFactory[Deps] | None = None,
        limits: Limit | Budget | None = None,
        tool_errors: ToolErrors = "told",
        policy: Policy | None = None,
        journal: Journal | None = None,
        steps: StepOptions = {},  # noqa: B006 (never changed)
        recovery: RecoveryOptions = {},  # noqa: B006 (never changed)
        safety: SafetyOptions = {},  # noqa: B006 (never changed)
        observation: ObservationOptions = {},  # noqa: B006 (never changed)
    ) -> None:
        self._options: AgentOptions = {
            "model": model,
            "tools": tools,
            "instructions": instructions,
            "output_type": output_type,
            "limits": limits,
            "tool_errors": tool_errors,
            "policy": policy,
            "journal": journal,
            "steps": steps,
            "recovery": recovery,
            "safety": safety,
            "observation": observation,
        }
        self._setup = set_up(self._options, deps_type=deps_type)
        self._recovery = EndpointRecovery(circuits=Circuits(clock=self._setup.clock))
        self._ids = TimeOrderedIds(self._setup.clock)
        self._identity = object()  # also of its narrowed copies
        self._is_narrowed = False
        self._opens = ""
        self._open = KeptOpen()

    if not TYPE_CHECKING:  # type checkers do not see these names

        def __getattr__(self, name: str) -> object:
            raise AttributeError(REMOVED.get(name) or f"`Agent` has no attribute `{name}`")

    async def __aenter__(self) -> "Agent[Deps, Output]":
        await self._open.enter(self._setup)
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._open.leave()

    def __inside__(self) -> "AgentInside[Deps, Output]":
        return AgentInside(
            self._setup,
            swapped=lambda: override_of(self._identity).over(self._setup),
            with_setup=self._with_setup,
            opening=self._opening,
            run_child=self._run_child,
        )

    def _opening(self, session: str) -> "Agent[Deps, Output]":
        other = copy.copy(self)
        other._opens = session
        return other

    def _with_setup(self, setup: AgentSetup) -> "Agent[Deps, Output]":
        other = copy.copy(self)
        other._is_narrowed = True  # options of a run would set it up again from the wider options
        other._setup = setup
        return other

    def as_tool(self, name: str, description: str, *, max_depth: int = MAX_DEPTH) -> AgentTool:
        """Make this agent a tool of another agent. Each call is a turn of its own, on a share of the other agent's
        limits.

        The tool's result is the answer: text, or the JSON of the output type. Agents nest at most `max_depth` levels
        deep. Raises BadTool if providers do not accept the name, or if the description is empty.
        """
        return AgentTool(name, description, self, max_depth)

    @contextlib.contextmanager
    def override(
        self,
        *,
        model: ModelLike | None = None,
        deps: Deps | None = None,
        tools: Sequence[ToolLike] | None = None,
        toolsets: Sequence[Toolset] | None = None,
        tool_errors: ToolErrors | None = None,
    ) -> Generator[None]:
        """Swap parts of this agent inside a `with` block, for tests of a program that has the agent.

            with agent.override(model=ScriptedModel(["Hello."])):
                answer = program.greet()

        Every run that begins in the block has what you give, also in tasks that begin there; other tasks do not see it.
        `model` is asked by the agent and all of its sub-agents. `deps`, `tools` and `toolsets` are the agent's own: `tools`
        replaces all of its tools, `toolsets` its toolsets alone. `tool_errors="raise"` makes a broken tool fail the test. An
        inner block replaces what an outer one gave. Raises CallerError if a value is of the wrong kind.
        """
        if tool_errors is not None:
            check_values({"tool_errors": tool_errors})
        asked = None if model is None else as_model(model)
        given = Override(model=asked, deps=deps, tools=tools, toolsets=toolsets, tool_errors=tool_errors)
        given.over(self._setup)
        with overriding(self._identity, given):
            yield

    @overload
    def start(
        self, prompt: Prompt | None = None, *, deps: Deps = ..., **options: Unpack[RunOptions]
    ) -> Run[Output]: ...
    @overload
    def start(
        self, prompt: Prompt | None = None, *, deps: Deps = ..., output_type: type[Given], **options: Unpack[RunOptions]
    ) -> Run[Given]: ...
    @overload
    def start(
        self, prompt: Prompt | None = None, *, deps: Deps = ..., output_type: object, **options: Unpack[RunOptions]
    ) -> Run[Any]: ...
    def start(self, prompt: Prompt | None = None, **options: Unpack[TypedRunOptions]) -> Run[Any]:
        """Start one turn and return its `Run` at once. Options are those of `run`; `await run` gives the result.

            run = agent.start("How long is the room?")
            run.say("In feet, please.")
            result = await run

        Needs a running event loop. Raises CallerError if none runs, or for an option that a run does not have; `await run`
        raises what `run` raises.
        """
        return self._start(prompt, options=options)

    @overload
    async def run(
        self, prompt: Prompt | None = None, *, deps: Deps = ..., **options: Unpack[RunOptions]
    ) -> RunResult[Output]: ...
    @overload
    async def run(
        self, prompt: Prompt | None = None, *, deps: Deps = ..., output_type: type[Given], **options: Unpack[RunOptions]
    ) -> RunResult[Given]: ...
    @overload
    async def run(
        self, prompt: Prompt | None = None, *, deps: Deps = ..., output_type: object, **options: Unpack[RunOptions]
    ) -> RunResult[Any]: ...
    async def run(self, prompt: Prompt | None = None, **options: Unpack[TypedRunOptions]) -> RunResult[Any]:
        """Run one turn to its end and return its result.

        `options` (`RunOptions`) hold for this run alone. `deps` is what its tools find in their `RunContext`;
        `output_type` replaces the agent's. A failed provider, a reached limit or a refusal is in the result and is
        never raised. Raises CallerError for options that cannot work, whatever `prepare_step` raises, and with
        `tool_errors="raise"` whatever a tool raises.
        """
        return await self._start(prompt, options=options)

    @overload
    def run_sync(
        self, prompt: Prompt | None = None, *, deps: Deps = ..., **options: Unpack[RunOptions]
    ) -> RunResult[Output]: ...
    @overload
    def run_sync(
        self, prompt: Prompt | None = None, *, deps: Deps = ..., output_type: type[Given], **options: Unpack[RunOptions]
    ) -> RunResult[Given]: ...
    @overload
    def run_sync(
        self, prompt: Prompt | None = None, *, deps: Deps = ..., output_type: object, **options: Unpack[RunOptions]
    ) -> RunResult[Any]: ...
    def run_sync(self, prompt: Prompt | None = None, **options: Unpack[TypedRunOptions]) -> RunResult[Any]:
        """Run one turn to its end, in a program without an event loop. Options and result are those of `run`.

        Raises CallerError if an event loop is running. Ctrl-C raises RunInterrupted, a KeyboardInterrupt that holds the
        `result` so far. If a tool ignores that it was cancelled, `run_sync` ends without waiting for it.
        """
        try:
            asyncio.get_running_loop()
        except RuntimeError:
            pass
        else:
            raise CallerError("an event loop is running here: use `await agent.run(...)` instead of `run_sync`")
        control = RunControl(is_ended=True)  # Ctrl-C ends the turn, also if it has a key

        async def run() -> RunResult[Any]:
            return await self._start(prompt, options=options, control=control)

        try:
            return run_to_end(run())
        except KeyboardInterrupt:
            if control.so_far is None:
                raise
            raise interrupted(control.so_far) from None

    @overload
    def stream(
        self, prompt: Prompt | None = None, *, on_leave: OnLeave = ..., deps: Deps = ..., **options: Unpack[RunOptions]
    ) -> RunStream[Output]: ...
    @overload
    def stream(
        self,
        prompt: Prompt | None = None,
        *,
        on_leave: OnLeave = ...,
        deps: Deps = ...,
        output_type: type[Given],
        **options: Unpack[RunOptions],
    ) -> RunStream[Given]: ...
    @overload
    def stream(
        self,
        prompt: Prompt | None = None,
        *,
        on_leave: OnLeave = ...,
        deps: Deps = ...,
        output_type: object,
        **options: Unpack[RunOptions],
    ) -> RunStream[Any]: ...
    def stream(
        self, prompt: Prompt | None = None, *, on_leave: OnLeave = "end", **options: Unpack[TypedRunOptions]
    ) -> RunStream[Any]:
        """Run one turn and read its text and events as they arrive. Options are those of `run`.

            async with agent.stream("Tell me a story.") as run:
                async for text in run.text():
                    print(text, end="")
            print(run.result.complete)

        `run.text()` gives the text, `run.partial()` the value of the output type as it grows, `run.events()` every event.
        `run.say(...)` and `run.interrupt()` are those of a `Run`. If you leave the block early, the turn is cancelled; with
        `on_leave="go_on"` it goes on to its end. If the task is cancelled and the run has a `key`, the turn is left: another run
        with this key resumes it.
        """
        here = contextvars.copy_context()  # what is overridden here holds for the run, whenever the stream is entered
        return RunStream(partial(here.run, self._start, prompt, options=options), on_leave=on_leave)

    def open_asks(self, session: str) -> tuple[OneAsk, ...]:
        """The asks that a session of the journal waits for, also in another process. If nothing waits, the tuple is empty. The
        calling thread waits for the journal: in an event loop, use `asyncio.to_thread`.

        Answer them with `agent.run(session=..., approvals=[Approval(call_id=ask.call.id, verdict="allow", digest=ask.digest)])`.
        Raises CallerError if the agent has no journal, or if the session does not exist.
        """
        return asks_in(self._setup.journal, session)

    def _start(self, prompt: Prompt | None, *, options: TypedRunOptions, control: RunControl | None = None) -> Run[Any]:
        check_options(options)
        control = control or RunControl()
        control.output = partial(output_over, self._setup.output, options)
        return Run(partial(self._run, prompt, options=options), control=control)

    async def _run(self, prompt: Prompt | None, control: RunControl, *, options: TypedRunOptions) -> RunResult[Any]:
        said = cast(
            "AgentOptions", {name: one for name, one in options.items() if name in AgentOptions.__annotations__}
        )
        if said and self._is_narrowed:
            raise CallerError(f"this agent is narrowed for one turn: its runs cannot replace `{next(iter(said))}`")
        setup = set_up(over(self._options, said), deps_type=self._setup.deps_type) if said else self._setup
        begin = partial(self._begin, setup=setup, options=options, control=control)
        if "key" not in options:
            return await begin(prompt, key=None, turn_id=self._ids.new())
        from turnwise.agent.keyed_runs import KeyedRun  # only runs with a key need it

        keyed = KeyedRun(prompt, setup=setup, options=options, new_id=self._ids.new, control=control)
        control.is_kept = True
        return await keyed.run(begin=begin, resume=partial(self._resume, keyed.session, control, own=setup))

    async def _begin(
        self,
        prompt: Prompt | None,
        *,
        key: TurnKey | None,
        turn_id: str,
        setup: AgentSetup,
        options: TypedRunOptions,
        control: RunControl,
    ) -> RunResult[Any]:
        setup, override = self._as_overridden(setup)
        if override.deps is not None:
            options = {**options, "deps": override.deps}
        async with contextlib.AsyncExitStack() as stack:
            stack.enter_context(working_for(turn_id))
            stack.enter_context(asked_below(override.model))
            transport = await self._transport_of(setup, stack=stack)
            if setup.is_unfurnished:
                setup = await furnished(setup, stack=stack, has_approver=setup.safety.approver is not None)
            return await self._run_over(
                transport, prompt, setup, turn_id=turn_id, options=options, stack=stack, control=control, key=key
            )

    def _as_overridden(self, setup: AgentSetup) -> tuple[AgentSetup, Override]:
        """What a run begins with: the setup with what is swapped here, and with its key. Raises MissingKey."""
        override = override_of(self._identity)
        return override.over(setup).with_key(), override

    async def _transport_of(self, setup: AgentSetup, *, stack: contextlib.AsyncExitStack) -> Transport:
        """The transport that is kept open, unless the run brings its own."""
        kept = self._open.transport()
        if kept is not None and setup.given.transport is self._setup.given.transport:
            return kept
        return await open_transport(stack, given=setup.given.transport)

    async def _run_over(
        self,
        transport: Transport,
        prompt: Prompt | None,
        setup: AgentSetup,
        *,
        turn_id: str,
        stack: contextlib.AsyncExitStack,
        options: TypedRunOptions,
        control: RunControl,
        key: TurnKey | None,
    ) -> RunResult[Any]:
        tools = setup.offered
        setup.check_rules()
        new_id = self._ids.new if not self._opens else lambda: self._opens
        find = partial(run_before, options, journal=setup.journal, new_id=new_id)
        begun = find() if setup.journal is None else await setup.journal.beside(find)
        before, session_id = begun.so_far, begun.session_id
        earlier = tuple(before.carried.messages)
        run = await stack.enter_async_context(
            setup.deps_wanted().opened(options, session=session_id, labels=begun.labels)
        )
        config = self._config_of_run(setup, tools=tools, session_id=session_id, turn_id=turn_id)
        only_decides = prompt is None and options.get("approvals") and not options.get("results")
        given = () if only_decides else input_of(prompt, results=options.get("results") or None, earlier=earlier)
        config, given = await priced(setup, config), await opened(given, opening=setup.opening, earlier=earlier)
        config = await setup.instructions.written(config, run=run, clock=setup.clock)
        config, reservation = await reserved(setup, config, stack=stack, journal=setup.journal)
        started = TurnStarted(
            config=config,
            input=(*given, *control.words()),
            approvals=tuple(options.get("approvals", ())),
            keeps_waiting=True,
            history=() if begun.goes_on else earlier,  # of a session, the journal keeps the messages
        )
        check_plain(started, what="the run's options")
        if started.approvals:
            shown = listed_digests(earlier, asks=before.asks)
            started = msgspec.structs.replace(started, approvals=listed(started.approvals, digests=shown))
        check_input(
            started.input,
            history=earlier,
            approved=[approval.call_id for approval in started.approvals],
            client_side=[tool.name for tool in tools if tool.offer.client_side],
            asked=asked_ids(earlier, asks=before.asks),
        )
        runner = self._runner(
            setup,
            WithFirstReply(transport, then=setup.prices.warm),
            config=started.config,
            journal=setup.journal,
            run=run,
            tools=tools,
            output=setup.output,
            prepare_step=setup.prepare_step,
            approver=setup.safety.approver,
            observation=Observation(watch=options.get("watch"), feed=control.feed),
            leaves=control.leaves,
        )
        pen = None
        if setup.journal is not None:
            pen = await setup.journal.beside(
                partial(
                    setup.journal.begin_turn,
                    turn_id=started.config.turn_id,
                    session_id=session_id,
                    folder=setup.folder,
                    title=title_of(started.input),
                    started=started,
                    labels=run.labels,
                    key=key,
                    drop_left=options.get("drop_left", False),
                )
            )
            stack.push_async_callback(_let_go, setup.journal, pen)
        if reservation is not None:
            await reservation.begins(runner)
        kept = session_id if setup.journal is not None else ""
        carried = () if started.history else before.carried
        turn = runner.run(started, earlier=carried, journal=pen, ends=control.ends)
        ended = partial(run_result, output=setup.output, before=before, session=kept)
        return await self._to_end(setup, runner, turn, config=started.config, run=run, ended=ended, control=control)

    async def resume(self, session: str, **options: Unpack[ResumeOptions]) -> RunResult[Output]:
        """Finish the last turn of a session whose process died. `session` is its whole id.

        - Finished requests and finished tool calls are not repeated. A request that was under way counts as lost and is
          sent again.
        - A call that may have run is repeated only if its tool is `idempotent`, or if the tool's `reconcile` says that it did not
          happen. Otherwise the model is told that the outcome is unknown.
        - The turn keeps its model, limits and rules. Tools, keys and the approver come from this agent; `rules` are
          added after the turn's own.
        - If `approvals` does not answer an open ask, the approver is asked again. It has `ask_s` seconds, or else the time
          that was left. If no time is left, a call is denied, and a question stays without an answer.

        Raises CallerError if there is nothing to resume, if the turn may still run (see `take_over`), if the agent has no
        journal, and in all cases in which `run` raises it.
        """
        return await self.start_resume(session, **options)

    def start_resume(self, session: str, **options: Unpack[ResumeOptions]) -> Run[Output]:
        """Start what `resume` does and return its `Run` at once. Raises CallerError as `start` does."""
        check_names(options, known=ResumeOptions.__annotations__, what="`resume`")
        check_values(options, of=" of `resume`")
        return Run(partial(self._resume, session, options=options))

    async def _resume(
        self,
        session: str,
        control: RunControl,
        *,
        options: ResumeOptions,
        own: AgentSetup | None = None,
        turn_id: str = "",
    ) -> RunResult[Any]:
        """`own` is the setup of the run that resumes. With a `turn_id`, that turn is the one that must be left."""
        setup, override = self._as_overridden(own or self._setup)
        if (journal := setup.journal) is None:
            raise CallerError("`resume` needs a journal: Agent(..., journal=Journal(PATH))")
        find = journal.take_over if options.get("take_over") else journal.find_session
        found = await journal.beside(lambda: left_run(journal, find(session)))
        found.left.terms = terms_of(options)
        if turn_id and found.turn_id != turn_id:
            raise NothingToResume(f"session `{session}` has continued without that turn")
        control.is_kept = found.has_key
        config = found.left.config
        check_endpoint(config, own=setup.config)
        if "tools" in options:
            setup = setup.with_tools(options["tools"])
        approver = options.get("approver", setup.safety.approver)
        prepare_step = options.get("prepare_step", setup.prepare_step)
        output = output_over(setup.output, options)
        async with contextlib.AsyncExitStack() as stack:
            stack.enter_context(working_for(found.turn_id))
            stack.enter_context(asked_below(override.model))
            if setup.is_unfurnished:
                setup = await furnished(setup, stack=stack, has_approver=approver is not None)
            row = found.session.row
            deps = options if override.deps is None else {**options, "deps": override.deps}
            opened_deps = setup.deps_wanted().opened(deps, session=row.id, labels=row.labels)
            run = await stack.enter_async_context(opened_deps)
            runner = self._runner(
                setup,
                await self._transport_of(setup, stack=stack),
                config=config,
                journal=journal,
                run=run,
                tools=setup.offered,
                output=output,
                prepare_step=prepare_step if config.prepares_steps else None,
                approver=approver,
                observation=Observation(watch=options.get("watch"), ledger=found.ledger, feed=control.feed),
                leaves=control.leaves,
            )
            _, reservation = await reserved(setup, config, stack=stack, whole=True, journal=journal)
            pen = await journal.beside(partial(journal.resume_turn, found.turn_id))
            stack.push_async_callback(_let_go, journal, pen)
            if reservation is not None:
                await reservation.begins(runner)
            turn = runner.resume(found.left, journal=pen, ends=control.ends, said=control.words())
            kept, before = found.session.row.id, found.before
            ended = partial(run_result, output=output, before=before, session=kept)
            return await self._to_end(setup, runner, turn, config=config, run=run, ended=ended, control=control)

    async def _to_end(
        self,
        setup: AgentSetup,
        runner: Runner,
        turn: Coroutine[None, None, TurnResult],
        *,
        config: TurnConfig,
        run: RunAtHand,
        ended: Callable[..., RunResult[Any]],
        control: RunControl,
    ) -> RunResult[Any]:
        control.begin(runner)
        try:
            result = await turn
        except BaseException as error:
            if runner.so_far is not None:
                control.so_far = ended(runner.so_far, ledger=runner.ledger)
                keep_so_far(error, control.so_far)
            raise
        finally:
            if runner.result is not None:
                was_cancelled = runner.result.stop_reason is StopReason.CANCELLED
                await setup.hooks.ended(runner.result, cancelled=was_cancelled, deadlines=config.deadlines, run=run)
        so_far = ended(result, ledger=runner.ledger)
        if runner.raised is not None:
            control.so_far = so_far
            raise carrying(runner.raised, so_far)
        return (
            so_far.raise_for_stop() if so_far.stop_reason is StopReason.TOOL_FAILED else so_far
        )  # it raised before a crash

    async def _run_child(self, order: ChildOrder, prompt: str | Sequence[Text | File], *, name: str) -> str:
        said = message_of(prompt, what="the prompt")
        setup, override = self._as_overridden(self._setup)
        journal = (
            setup.journal or order.journal
        )  # a reader of the parent's journal finds there what the sub-agent spent
        found = None
        if journal is not None and order.resumes:
            found = await journal.beside(partial(left_child, journal, order))
        session_id = self._ids.new() if found is None else found.session_id
        minder = Minder(
            order,
            name=name,
            session_id=session_id,
            clock=setup.clock,
            left=None if found is None else found.left,
            idle_s=idle_s_of(setup.config.deadlines, profile=setup.model.profile, stream=setup.config.stream),
        )
        if found is not None and found.left.turn.result is not None:
            return minder.ended(found.left.turn.result)
        started, config = None, None if found is None else found.left.config
        async with contextlib.AsyncExitStack() as stack:
            stack.enter_context(asked_below(override.model))
            if setup.is_unfurnished:
                setup = await furnished(setup, stack=stack, has_approver=order.approver is not None)
                setup.check_rules()  # its parent could not check them
            tools, wanted = setup.offered, setup.deps_wanted()
            run = await stack.enter_async_context(
                wanted.opened(
                    {} if override.deps is None else {"deps": override.deps},
                    session=session_id,
                    path=minder.path,
                    above=order.above,
                )
            )
            if config is None:
                started = await self._child_started(setup, said, order=order, tools=tools, run=run)
                config = started.config
            # what a run above has reserved in the same budget counts for this run, too
            is_held = setup.budget is not None and setup.budget.is_held_above()
            reservation, spends = None, run_below(config, order=order, path=minder.path)
            if not is_held:
                config, reservation = await reserved(
                    setup, config, stack=stack, whole=started is None, journal=journal, run=spends
                )
            if started is not None:
                started = msgspec.structs.replace(started, config=config)
            runner = self._runner(
                setup,
                await self._transport_of(setup, stack=stack),
                config=config,
                journal=journal,
                run=run,
                tools=tools,
                output=setup.output,
                prepare_step=setup.prepare_step,
                approver=minder.approver,
                observation=Observation(watch=minder.watch, ledger=order.ledger, observe=order.observe),
                path=minder.path,
                settle_s=minder.settle_s,
                leaves=order.leaves,
            )
            if found is not None and journal is not None:
                found.left.terms = order.terms
                pen = await journal.beside(partial(journal.resume_turn, found.turn_id))
                stack.push_async_callback(_let_go, journal, pen)
                if reservation is not None:
                    await reservation.begins(runner)
                return await minder.run(runner, runner.resume(found.left, journal=pen))
            assert started is not None, "a child that was not left begins"
            pen = None
            if journal is not None:
                title = f"{'/'.join(minder.path)}: {title_of(started.input)}"
                pen = await journal.beside(
                    partial(
                        journal.begin_turn,
                        turn_id=config.turn_id,
                        session_id=session_id,
                        folder=setup.folder,
                        title=title,
                        parent=(order.parent_turn, order.call.id),
                        started=started,
                        labels=run.labels,
                    )
                )
                stack.push_async_callback(_let_go, journal, pen)
            if reservation is not None:
                await reservation.begins(runner)
            return await minder.run(runner, runner.run(started, journal=pen))

    async def _child_started(
        self, setup: AgentSetup, said: Message, *, order: ChildOrder, tools: tuple[Tool, ...], run: RunAtHand
    ) -> TurnStarted:
        config = self._config_of_run(setup, tools=tools, session_id=run.session, turn_id=self._ids.new())
        config = await priced(setup, as_child(config, order=order))
        config = await setup.instructions.written(config, run=run, clock=setup.clock)
        given = await opened((said,), opening=setup.opening, earlier=())
        return TurnStarted(config=config, input=given, keeps_waiting=True)

    def _runner(
        self,
        setup: AgentSetup,
        transport: Transport,
        *,
        config: TurnConfig,
        journal: Journal | None,
        run: RunAtHand,
        tools: Sequence[Tool],
        output: OutputType | None,
        prepare_step: StepPreparer | None,
        approver: Approver | None,
        observation: Observation,
        path: tuple[str, ...] = (),
        settle_s: float = SETTLE_S,
        leaves: Callable[[], bool] = lambda: False,
    ) -> Runner:
        """A runner for one turn of this agent, also as a sub-agent. It is the only place that makes a runner: the other faces run
        agents."""
        return Runner(
            RunnerMeans(
                endpoint=setup.endpoint,
                transport=transport,
                tools=tools,
                clock=setup.clock,
                safety=msgspec.structs.replace(
                    setup.safety, approver=approver, run_hooks=partial(setup.hooks.run, run=run)
                ),
                recovery=self._recovery,
                observation=msgspec.structs.replace(
                    observation,
                    find_price=setup.prices.find,
                    begins=None if setup.notes is None else setup.notes.begin,
                    observe=observation.observe if setup.telemetry is None else setup.telemetry.observe,
                ),
                prepare_step=None if prepare_step is None else setup.prices.prepares(prepare_step, config=config),
                check_output=checker_of(output, run=run, clock=setup.clock, timeout_s=config.deadlines.hook_s),
                journal=journal,
                path=path,
                settle_s=settle_s,
                run=run,
                answers=partial(self._answer_to_server, setup),
                leaves=leaves,
            )
        )

    async def _answer_to_server(self, setup: AgentSetup, order: ChildOrder, question: ModelQuestion) -> ModelAnswer:
        from turnwise.agent.sampling_agent import answered

        def agent_of(bare: AgentSetup) -> Delegate:
            other = self._with_setup(bare)
            other._identity = object()  # what is swapped is in its setup
            return inside(other)

        return await answered(setup, order, question, agent_of=agent_of)

    def _config_of_run(self, setup: AgentSetup, *, tools: Sequence[Tool], session_id: str, turn_id: str) -> TurnConfig:
        config, output = setup.config, setup.output
        hints = setup.batch_hint and bool(tools) and config.parallel_tool_calls is not False
        check_choice(config.tool_choice, tools=tools)
        return msgspec.structs.replace(
            config,
            system=(*config.system, Text(BATCH_HINT)) if hints else config.system,
            session_id=session_id,
            turn_id=turn_id,
            tools=tuple([tool.offer for tool in tools]),
            output=None if output is None else output.schema,
            checks_output=output is not None and output.checks,
            judges_cut=True,
            prepares_steps=setup.prepare_step is not None,
        )


class AgentInside(Generic[Deps, Output]):
    """An agent as the rest of turnwise sees it: its parent (`Delegate`), a worker, an editor."""

    def __init__(
        self,
        setup: AgentSetup,
        *,
        swapped: Callable[[], AgentSetup],
        with_setup: Callable[[AgentSetup], Agent[Deps, Output]],
        opening: Callable[[str], Agent[Deps, Output]],
        run_child: Callable[..., Awaitable[str]],
    ) -> None:
        self._setup = setup
        self._swapped, self._with_setup, self._opening, self._run_child = swapped, with_setup, opening, run_child

    def __inside__(self) -> "AgentInside[Deps, Output]":
        return self

    @property
    def config(self) -> TurnConfig:
        """The configuration with which its turns begin. A run may change it."""
        return self._setup.config

    def check_key(self) -> None:
        """Raise MissingKey if its runs would."""
        self._setup.with_key()

    def keeping(
        self, journal: Journal | None, *, config: TurnConfig, effects: Collection[Effect]
    ) -> Agent[Deps, Output]:
        """The same agent with this journal and this configuration.

        Its tools and its sub-agents' tools run only if their effect is in `effects`.
        """
        return self._with_setup(self._setup.keeping(journal, config=config, effects=effects))

    def opening(self, session: str) -> Agent[Deps, Output]:
        """The same agent. A run that continues no session begins the session with this id."""
        return self._opening(session)

    def lacks_approver(self) -> bool:
        """Whether a policy asks a person, and the agent brings nobody who answers."""
        asks = any(policy is not None and policy.attended for policy in self._setup.policies())
        return asks and self._setup.safety.approver is None

    def policies(self) -> list[Policy | None]:
        """The permission rules of this agent and of all its sub-agents. Without any, MCP servers have rules that ask."""
        return self._setup.policies()

    def known_below(self) -> tuple[Tool, ...]:
        """The tools of this agent and of all its sub-agents."""
        return self._setup.known_below()

    def knows_tools(self) -> bool:
        """Whether all tools of this agent and of its sub-agents are known. False if a toolset must be asked first."""
        return self._setup.knows_tools()

    def check_rules(self) -> None:
        """Raise CallerError if a rule or a hook is about a tool that neither this agent nor a sub-agent has."""
        self._setup.check_rules()

    def within_effects(self, effects: Collection[Effect]) -> Delegate:
        """The same agent, limited to tools of these effects."""
        return inside(self.keeping(self._setup.journal, config=self._setup.config, effects=effects))

    def deps_wanted(self) -> DepsWanted:
        """The deps that its runs need, and a check whether given deps fit."""
        return self._setup.deps_wanted()

    async def least_usd(self, limits: Limit | None) -> Decimal:
        """The least that one request costs, in US dollars. Raises CallerError if no price is known."""
        setup = self._swapped()
        config = await priced(setup, msgspec.structs.replace(setup.config, limits=limits))
        return least_of(config.prices[config.model])

    async def run_child(self, order: ChildOrder, prompt: str | Sequence[Text | File], *, name: str) -> str:
        """Run one turn as a sub-agent, and return the text that the parent's model reads.

        A turn that a dead process left is continued. Raises ToolFault if there is no answer.
        """
        return await self._run_child(order, prompt, name=name)


async def _let_go(journal: Journal, pen: TurnJournal) -> None:
    """A turn that was cut off before its runner began is left, so that it can be resumed."""
    if not pen.has_ended:
        with contextlib.suppress(JournalFailed):
            await journal.beside(pen.abandon)


def inside(agent: Agent[Deps, Output]) -> AgentInside[Deps, Output]:
    """What the rest of turnwise calls on an agent and a program does not."""
    return agent.__inside__()
