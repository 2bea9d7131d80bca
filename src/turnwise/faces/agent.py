"""The library's face: an agent is a model, its tools and its rules; a run is one turn."""

import asyncio
import contextlib
import copy
from collections.abc import AsyncGenerator, Callable, Collection, Coroutine, Mapping, Sequence
from decimal import Decimal
from functools import partial
from pathlib import Path
from typing import Literal, Unpack, get_args

import msgspec

from turnwise.drivers.clock import Clock, SystemClock
from turnwise.drivers.endpoints.circuits import Circuits
from turnwise.drivers.endpoints.first_reply import WithFirstReply
from turnwise.drivers.endpoints.transport import Transport
from turnwise.drivers.ids import TimeOrderedIds
from turnwise.drivers.journal.journal import Journal, Session
from turnwise.drivers.journal.prices import NO_PRICES, Prices
from turnwise.drivers.own_loop import run_to_end
from turnwise.drivers.running.approvals import Approver
from turnwise.drivers.running.children import Minder, as_child, idle_s_of
from turnwise.drivers.running.hooks import Hook, Hooks
from turnwise.drivers.running.means import (
    SETTLE_S,
    EndpointRecovery,
    Observation,
    RunnerMeans,
    Safety,
    StepPreparer,
)
from turnwise.drivers.running.run_context import RunAtHand
from turnwise.drivers.running.runner import InterruptKind, Runner
from turnwise.drivers.running.watching import Backlog, Feed, TurnFinished
from turnwise.drivers.settings.catalogue import find_limits, limits_over
from turnwise.drivers.tools.fact_finding import Inspector
from turnwise.drivers.tools.grants import working_for
from turnwise.drivers.tools.tools import ChildOrder, Tool
from turnwise.errors import CallerError
from turnwise.faces.agent_options import check_names, checking_options
from turnwise.faces.children import MAX_DEPTH, Child, task_tool
from turnwise.faces.deps import DepsWanted
from turnwise.faces.given import OpeningSource, Prompt, check_text, input_of, json_of, message_of, opened, title_of
from turnwise.faces.instructions import Instruction, Instructions
from turnwise.faces.interrupted import interrupted
from turnwise.faces.model_facts import at_endpoint, fallback_of, with_model, within
from turnwise.faces.model_prices import ModelPrices, with_prices
from turnwise.faces.models import ModelName, open_endpoint, read_model
from turnwise.faces.output_checks import checker_of, output_over, read_output
from turnwise.faces.plain import check_plain
from turnwise.faces.policies import check_approver, check_tools_of_hooks, check_tools_of_rules, known_tools, read_policy
from turnwise.faces.results import RunEvent, RunFinished, RunResult, run_result
from turnwise.faces.run_options import (
    ResumeOptions,
    RunOptions,
    check_choice,
    check_options,
    read_settings,
    settings_over,
    terms_of,
    turn_over,
)
from turnwise.faces.schemas import OutputCheck, OutputType
from turnwise.faces.scripts import check_script_limits, with_script
from turnwise.faces.taking_up import check_endpoint, folded, left_child, left_run
from turnwise.faces.tools import BATCH_HINT, ToolLike, read_tools
from turnwise.rules.budget import ModelLimits
from turnwise.rules.history import check_input
from turnwise.rules.limits import Limit, counts_cost
from turnwise.rules.permissions import Policy
from turnwise.rules.recovery import Recover
from turnwise.rules.retries import RetryPolicy
from turnwise.rules.shares import least_of
from turnwise.rules.subagents import MAX_SUBAGENT_REQUESTS, MAX_SUBAGENTS
from turnwise.turn.approvals import listed
from turnwise.turn.carrying import Carried
from turnwise.turn.config import (
    MAX_STEPS,
    CallsInText,
    Deadlines,
    Effect,
    RoomPolicy,
    ScriptLimits,
    TurnConfig,
    TurnResult,
)
from turnwise.turn.events import TurnStarted
from turnwise.turn.resuming import asked_ids, listed_digests
from turnwise.turn.snapshot import SessionSoFar
from turnwise.vocab import Cache, File, Message, Settings, StopReason, Text, ToolChoice

ALL_EFFECTS: tuple[Effect, ...] = get_args(Effect)


class Agent:
    """A model with tools, ready to run turns. It keeps no state between runs: histories are handed in, or kept in a journal.

    `model` is `PROVIDER:NAME` (`openai:gpt-5`, `ollama:qwen3:8b`) or `FAMILY:NAME` with `base_url` (`openai_chat:...`,
    `openai_responses:...`, `anthropic_messages:...`, `gemini:...`). The key comes from `api_key`, the variable
    `api_key_env`, or the provider's usual variable. `instructions` is the system prompt: texts, and functions of the
    `RunContext` that write one for each run. `output_type` is a pydantic model,
    another type, or a JSON Schema that the answer must fit; `output_checks` are functions that may refuse a value of it.
    `deps_type` is the type of what a run is given as `deps=` for its tools, or a `DepsFactory` that makes it.
    `max_steps` caps the model steps of a turn; the last allowed one forbids tools and asks for an answer. `limits` are
    further ones, `MaxRequests(5) | MaxTokens(20_000)` (either stops) or with
    `&` (only both together): the last request that they allow is kept for the answer; for `MaxCost(Decimal("0.50"))` the price
    of every model has to be known. `allowed` are the effects of tools that
    may run; a call of another effect gets a result that says so. `recover` says what is done about a response that the output
    limit cut: `continue` goes on where it was cut, `split` has the model write smaller pieces in place of a cut call, `off`
    makes no request for it. `calls_in_text` says whether a call that the model wrote into its text counts: `auto` where the
    endpoint's server may have left it there, `on` always, and also an answer that is only a fence or a JSON object, `off` never.
    `opening` is asked at the start of each turn for texts to put in front of its user message (those
    with a `note` are in no title). `retry` says how often a request that failed is sent again, and how long that may take;
    `fallbacks` name other models of the same endpoint, asked in order once one has failed. `extra` are further body fields for
    the provider. `room` says what is done so that a prompt and its
    answer fit the model: `compact` bounds tool results (a tool `read_result` gives the model the rest), shortens old ones and
    has older messages summarised where room runs out; `budget` only asks for as much output as there is room for; `off` does
    neither. `cache` says whether the provider is asked to keep the prompt in its cache: `auto` for as long as it usually does,
    `1h` for an hour (OpenAI: up to a day), `off` not at all. `policy` are permission rules: they allow, deny, or ask
    `approver` about a call, whose paths and commands `inspect` finds out; what nobody answers in time is denied. An approver
    needs a policy that is `attended`, here or below. `hooks` see calls, results and requests, and may change or deny them.
    `agents` are those that the model may hand tasks to (a tool `task`), by name and with their `description`; they draw on this
    agent's limits and nest `max_depth` deep. A run starts at most `max_subagents` of them, theirs included, and all of them
    together make at most `max_subagent_requests` requests; None lifts a bound. `batch_hint` adds
    a sentence to the instructions: that calls which do not depend on each other are asked for together. `script` offers a tool
    in which the model writes a small program that calls the other tools, within `script_limits`: one request then runs many
    calls; `auto` offers it where the plan bills by the request.
    `model_limits` stand over what is known of the model, figure by figure, `prices`
    over what is known of its price.

    `async with Agent(...)` keeps connections open between runs. Raises UnknownModel, MissingKey, BadTool or another
    CallerError where it is set up wrongly.
    """

    @checking_options
    def __init__(
        self,
        model: str,
        *,
        tools: Sequence[ToolLike] = (),
        instructions: Instruction | Sequence[Instruction] = (),
        output_type: object = None,
        output_checks: Sequence[OutputCheck] = (),
        deps_type: object = None,
        settings: Settings = Settings(),  # noqa: B008 (frozen)
        max_steps: int = MAX_STEPS,
        limits: Limit | None = None,
        max_subagents: int | None = MAX_SUBAGENTS,
        max_subagent_requests: int | None = MAX_SUBAGENT_REQUESTS,
        recover: Recover = "continue",
        calls_in_text: CallsInText = "auto",
        retry: RetryPolicy = RetryPolicy(),  # noqa: B008 (frozen)
        fallbacks: Sequence[str] = (),
        room: RoomPolicy = "compact",
        cache: Cache = "auto",
        model_limits: ModelLimits | None = None,
        tool_choice: ToolChoice = "auto",
        parallel_tool_calls: bool | None = None,
        batch_hint: bool = False,
        prepare_step: StepPreparer | None = None,
        opening: OpeningSource | None = None,
        allowed: Sequence[Effect] = ALL_EFFECTS,
        allow_hint: str | None = None,
        stream: bool = True,
        deadlines: Deadlines = Deadlines(),  # noqa: B008 (frozen)
        policy: Policy | None = None,
        approver: Approver | None = None,
        inspect: Inspector | None = None,
        hooks: Sequence[Hook] = (),
        agents: "Mapping[str, Agent] | None" = None,
        description: str = "",
        max_depth: int = MAX_DEPTH,
        script: Literal["auto"] | bool = "auto",
        script_limits: ScriptLimits = ScriptLimits(),  # noqa: B008 (frozen)
        extra: Mapping[str, object] | None = None,
        base_url: str | None = None,
        api_key: str | None = None,
        api_key_env: str | None = None,
        journal: Journal | None = None,
        folder: Path | str | None = None,
        prices: Prices = NO_PRICES,
        transport: Transport | None = None,
        clock: Clock | None = None,
    ) -> None:
        self._model: ModelName = read_model(model)
        self._endpoint = open_endpoint(self._model, base_url=base_url, api_key=api_key, api_key_env=api_key_env)
        check_script_limits(script_limits)
        self._tools = (*read_tools(tools), *([task_tool(_children(agents), max_depth=max_depth)] if agents else ()))
        self._agents, self._max_depth = dict(agents or {}), max_depth
        self.description, self._output = description, read_output(output_type, checks=output_checks)
        self._deps_type, self._instructions = deps_type, Instructions(instructions)
        self._script: Literal["auto"] | bool = script
        self._prepare_step, self._opening, self._batch_hint = prepare_step, opening, batch_hint
        self._journal, self._folder, self._clock = journal, folder or Path.cwd(), clock or SystemClock()
        self._prices = ModelPrices(prices, model=self._model, clock=self._clock)
        self._hooks = Hooks(hooks, clock=self._clock, scrub=self._endpoint.scrub)
        self._safety = Safety(inspect=inspect, approver=approver, run_hooks=self._hooks.run)
        self._recovery = EndpointRecovery(circuits=Circuits(clock=self._clock))
        self._ids, self._given_transport = TimeOrderedIds(self._clock), transport
        self._transport: Transport | None = None
        self._open = contextlib.AsyncExitStack()
        self._running, self._beginning = set[Runner](), set[_Beginning]()
        profile = self._model.profile
        config = TurnConfig(
            session_id="",
            turn_id="",
            model=self._model.name,
            system=self._instructions.texts,
            tool_choice=tool_choice,
            parallel_tool_calls=parallel_tool_calls,
            settings=read_settings(settings),
            extra=json_of(extra) if extra else "",
            stream=stream,
            max_steps=max_steps,
            limits=limits,
            max_subagents=max_subagents,
            max_subagent_requests=max_subagent_requests,
            recover=recover,
            calls_in_text=calls_in_text,
            retry=retry,
            fallbacks=tuple([fallback_of(name, profile=profile.name) for name in fallbacks]),
            room=room,
            cache=cache,
            model_limits=limits_over(find_limits(self._model.name, profile=profile.name), model_limits),
            allowed=tuple(allowed),
            deadlines=deadlines,
            script_limits=script_limits,
            policy=read_policy(policy),
            hooks=self._hooks.points,
            base_url="".join((base_url or "").partition("?")[:2]),
            api_key_env=api_key_env or "",
        )
        config = at_endpoint(config, endpoint=self._endpoint)
        self._config = config if allow_hint is None else msgspec.structs.replace(config, allow_hint=allow_hint)
        check_approver(approver, policies=self._policies(), tools=self._tools)

    def _policies(self) -> list[Policy | None]:
        """Its own, and those of the agents that it may hand tasks to."""
        return [self._config.policy, *[policy for agent in self._agents.values() for policy in agent._policies()]]

    def _check_rules(self, tools: Sequence[Tool]) -> None:
        """Raise CallerError for a rule or a hook about no tool that there is, here or below."""
        known = known_tools((*[tool for agent in self._agents.values() for tool in agent._tools], *tools))
        check_tools_of_rules(self._config.policy, tools=known)
        check_tools_of_hooks(self._hooks.all, tools=known)
        for agent in self._agents.values():
            agent._check_rules(agent._tools)

    async def __aenter__(self) -> "Agent":
        self._transport = await self._open_transport(self._open)
        return self

    async def __aexit__(self, *_: object) -> None:
        self._transport = None
        await self._open.aclose()

    @property
    def config(self) -> TurnConfig:
        """What its turns begin with, before a run says something else."""
        return self._config

    def keeping(self, journal: Journal | None, *, config: TurnConfig, effects: Collection[Effect]) -> "Agent":
        """The same agent, with that journal, that configuration, and runs of its own. Nothing of other effects runs, nor do its
        sub-agents run any."""
        other = copy.copy(self)
        other._journal, other._running, other._beginning = journal, set[Runner](), set[_Beginning]()
        if config.model != self._model.name:
            other._model, config = with_model(config, model=self._model, endpoint=self._endpoint)
            other._prices = self._prices.of_model(other._model)
        other._config = within(config, effects=effects)
        if self._agents and set(effects) < set(ALL_EFFECTS):
            other._agents = {
                name: agent.keeping(agent._journal, config=agent._config, effects=effects)
                for name, agent in self._agents.items()
            }
            other._tools = (*self._tools[:-1], task_tool(_children(other._agents), max_depth=self._max_depth))
        return other

    async def run(self, prompt: Prompt | None = None, **options: Unpack[RunOptions]) -> RunResult:
        """Run one turn to its end.

        A provider's failure, a cap that was reached or a refusal is in the result, never raised. Raises CallerError for
        options that cannot work, and what `prepare_step` raises.
        """
        return await self._run(prompt, options=options)

    def run_sync(self, prompt: Prompt | None = None, **options: Unpack[RunOptions]) -> RunResult:
        """`run`, for programs without an event loop. Raises CallerError inside one, and RunInterrupted after Ctrl-C: a
        KeyboardInterrupt with the `result` so far.

        Tasks of tools that ignore their cancellation are left behind.
        """
        try:
            asyncio.get_running_loop()
        except RuntimeError:
            pass
        else:
            raise CallerError("an event loop is running here: use `await agent.run(...)` instead of `run_sync`")
        cancelled: list[RunResult] = []
        try:
            return run_to_end(self._run(prompt, options=options, cancelled=cancelled.append))
        except KeyboardInterrupt:
            if not cancelled:
                raise
            raise interrupted(cancelled[0]) from None

    async def stream(self, prompt: Prompt | None = None, **options: Unpack[RunOptions]) -> AsyncGenerator[RunEvent]:
        """Run one turn and give every event as it comes; the last is `RunFinished` with the result.

        Leaving the loop early cancels the turn.
        """
        backlog = Backlog()
        task = asyncio.create_task(self._run(prompt, options=options, feed=backlog.put), name="turnwise run")
        task.add_done_callback(lambda _: backlog.close())
        try:
            while batch := await backlog.take():
                if isinstance(batch[-1], TurnFinished):  # nothing comes behind it, and `RunFinished` says more
                    batch = batch[:-1]
                for event in batch:
                    yield event
            yield RunFinished(await task)
        finally:
            if not task.done():
                task.cancel()
                with contextlib.suppress(asyncio.CancelledError):
                    await task

    def interrupt(self, kind: InterruptKind = "cancel") -> None:
        """End the runs at hand soon; their results say so. To be called in the event loop's thread."""
        for runner in tuple(self._running):
            runner.interrupt(kind)
        for run in self._beginning:
            run.ends = run.ends or kind

    def say(self, text: str | Sequence[str | Text | File]) -> bool:
        """Give the runs at hand a word in between: their next request carries it. False: none is running any more.

        To be called in the event loop's thread.
        """
        message = message_of(text, what="the message")
        said = [runner.say(message) for runner in tuple(self._running)]
        return any(said)

    async def _run(
        self,
        prompt: Prompt | None,
        *,
        options: RunOptions,
        feed: Feed | None = None,
        cancelled: Callable[[RunResult], None] | None = None,
    ) -> RunResult:
        """`cancelled` is told what there is where the run's task is cancelled."""
        check_options(options)
        async with contextlib.AsyncExitStack() as stack:
            transport = self._transport or await self._open_transport(stack)
            return await self._run_over(transport, prompt, stack=stack, options=options, feed=feed, cancelled=cancelled)

    async def _run_over(
        self,
        transport: Transport,
        prompt: Prompt | None,
        *,
        stack: contextlib.AsyncExitStack,
        options: RunOptions,
        feed: Feed | None,
        cancelled: Callable[[RunResult], None] | None,
    ) -> RunResult:
        tools = self._with_script(read_tools(options["tools"]) if "tools" in options else self._tools)
        self._check_rules(tools)
        check_approver(options.get("approver"), policies=self._policies(), tools=tools)
        output = output_over(self._output, options)
        prepare_step = options.get("prepare_step", self._prepare_step)
        before, session_id = self._before(options)
        earlier = tuple(before.carried.messages)
        run = await stack.enter_async_context(self.deps_wanted(tools).opened(options, session=session_id))
        config = self._config_of_run(
            options, tools=tools, output=output, prepares=prepare_step is not None, session_id=session_id
        )
        only_decides = prompt is None and options.get("approvals") and not options.get("results")
        given = () if only_decides else input_of(prompt, results=options.get("results") or None, earlier=earlier)
        config, given, ends = await self._begun(config, given=given, earlier=earlier, run=run)
        started = TurnStarted(
            config=config,
            input=given,
            approvals=tuple(options.get("approvals", ())),
            keeps_waiting=True,
            # with a journal, messages that came from elsewhere are kept in it
            history=() if self._journal is not None and options.get("session") else earlier,
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
            WithFirstReply(transport, then=self._prices.warm),
            config=started.config,
            run=run,
            tools=tools,
            output=output,
            prepare_step=prepare_step,
            approver=options.get("approver", self._safety.approver),
            observation=Observation(watch=options.get("watch"), feed=feed),
        )
        pen = None
        if self._journal is not None:
            pen = self._journal.begin_turn(
                turn_id=started.config.turn_id,
                session_id=session_id,
                folder=self._folder,
                title=title_of(started.input),
                started=started,
            )
        kept = session_id if self._journal is not None else ""
        carried = () if started.history else before.carried
        turn = runner.run(started, earlier=carried, journal=pen, ends=ends)
        ended = partial(run_result, output=output, before=before, session=kept)
        return await self._to_end(runner, turn, config=started.config, run=run, ended=ended, cancelled=cancelled)

    async def resume(self, session: str, **options: Unpack[ResumeOptions]) -> RunResult:
        """Go on with the last turn of a session that a dead process has left, to its end.

        A finished request is not sent again, a finished tool not run again. A request that was under way is counted as lost and
        sent anew. A call that may have run is told to the model as unknown, unless its tool is `idempotent`. The turn keeps its
        own model, limits and rules; tools, keys and the approver are this agent's, and `rules` hold behind its own. An ask that
        was open and that nobody has answered, by `approvals` or before, is put again for what is left of its time, or for
        `ask_s` seconds; where nothing is left its default stands. Raises CallerError where there is nothing to resume, and as
        `run` does.
        """
        check_names(options, known=ResumeOptions.__annotations__, what="`resume`")
        if self._journal is None:
            raise CallerError("`resume` needs a journal: Agent(..., journal=Journal.open(...))")
        found = left_run(self._journal, self._journal.find_session(session))
        found.left.terms = terms_of(options)
        config = found.left.config
        check_endpoint(config, own=self._config)
        tools = self._with_script(read_tools(options["tools"]) if "tools" in options else self._tools)
        prepare_step = options.get("prepare_step", self._prepare_step)
        output = output_over(self._output, options)
        async with contextlib.AsyncExitStack() as stack:
            opened = self.deps_wanted(tools).opened(options, session=found.session.row.id)
            run = await stack.enter_async_context(opened)
            runner = self._runner(
                self._transport or await self._open_transport(stack),
                config=config,
                run=run,
                tools=tools,
                output=output,
                prepare_step=prepare_step if config.prepares_steps else None,
                approver=options.get("approver", self._safety.approver),
                observation=Observation(watch=options.get("watch"), ledger=found.ledger),
            )
            pen = self._journal.resume_turn(found.turn_id)
            turn = runner.resume(found.left, journal=pen)
            ended = partial(run_result, output=output, before=found.before, session=found.session.row.id)
            return await self._to_end(runner, turn, config=config, run=run, ended=ended)

    async def _to_end(
        self,
        runner: Runner,
        turn: Coroutine[None, None, TurnResult],
        *,
        config: TurnConfig,
        run: RunAtHand,
        ended: Callable[..., RunResult],
        cancelled: Callable[[RunResult], None] | None = None,
    ) -> RunResult:
        self._running.add(runner)
        try:
            with working_for(config.turn_id):
                result = await turn
        except asyncio.CancelledError:
            if cancelled is not None and runner.result is not None:
                cancelled(ended(runner.result, ledger=runner.ledger))
            raise
        finally:
            self._running.discard(runner)
            if runner.result is not None:
                was_cancelled = runner.result.stop_reason is StopReason.CANCELLED
                await self._hooks.ended(runner.result, cancelled=was_cancelled, deadlines=config.deadlines, run=run)
        return ended(result, ledger=runner.ledger)

    async def run_child(self, order: ChildOrder, prompt: str, *, name: str) -> str:
        """Run one turn as a child of another: the tool `task` does. One that a dead process has left goes on. Raises ToolFault
        where there is no answer."""
        check_text(prompt, what="the prompt")
        journal = self._journal or order.journal  # whoever reads the parent's journal finds what was spent there
        found = left_child(journal, order) if journal is not None and order.resumes else None
        session_id = self._ids.new() if found is None else found.session_id
        minder = Minder(
            order,
            name=name,
            session_id=session_id,
            clock=self._clock,
            left=None if found is None else found.left,
            idle_s=idle_s_of(self._config.deadlines, profile=self._model.profile, stream=self._config.stream),
        )
        if found is not None and found.left.turn.result is not None:
            return minder.ended(found.left.turn.result)
        tools = self._with_script(self._tools)
        started, config = None, None if found is None else found.left.config
        async with contextlib.AsyncExitStack() as stack:
            opened = self.deps_wanted(tools).opened({}, session=session_id, path=minder.path, above=order.above)
            run = await stack.enter_async_context(opened)
            if config is None:
                started = await self._child_started(prompt, order=order, tools=tools, run=run)
                config = started.config
            runner = self._runner(
                self._transport or await self._open_transport(stack),
                config=config,
                run=run,
                tools=tools,
                output=self._output,
                prepare_step=self._prepare_step,
                approver=minder.approver,
                observation=Observation(watch=minder.watch, ledger=order.ledger),
                path=minder.path,
                settle_s=minder.settle_s,
            )
            if found is not None and journal is not None:
                found.left.terms = order.terms
                return await minder.run(runner, runner.resume(found.left, journal=journal.resume_turn(found.turn_id)))
            assert started is not None, "a child that was not left begins"
            pen = None
            if journal is not None:
                title = f"{'/'.join(minder.path)}: {title_of(started.input)}"
                pen = journal.begin_turn(
                    turn_id=config.turn_id,
                    session_id=session_id,
                    folder=self._folder,
                    title=title,
                    parent=(order.parent_turn, order.call.id),
                    started=started,
                )
            return await minder.run(runner, runner.run(started, journal=pen))

    async def _child_started(
        self, prompt: str, *, order: ChildOrder, tools: tuple[Tool, ...], run: RunAtHand
    ) -> TurnStarted:
        config = self._config_of_run(
            {}, tools=tools, output=self._output, prepares=self._prepare_step is not None, session_id=run.session
        )
        config = await self._priced(as_child(config, order=order))
        config = await self._instructions.written(config, run=run, clock=self._clock)
        given = await opened((Message("user", (Text(prompt),)),), opening=self._opening, earlier=())
        return TurnStarted(config=config, input=given, keeps_waiting=True)

    def _runner(
        self,
        transport: Transport,
        *,
        config: TurnConfig,
        run: RunAtHand,
        tools: Sequence[Tool],
        output: OutputType | None,
        prepare_step: StepPreparer | None,
        approver: Approver | None,
        observation: Observation,
        path: tuple[str, ...] = (),
        settle_s: float = SETTLE_S,
    ) -> Runner:
        """For one turn of this agent, a sub-agent's too. The other faces run agents: no other place makes a runner."""
        return Runner(
            RunnerMeans(
                endpoint=self._endpoint,
                transport=transport,
                tools=tools,
                clock=self._clock,
                safety=msgspec.structs.replace(
                    self._safety, approver=approver, run_hooks=partial(self._hooks.run, run=run)
                ),
                recovery=self._recovery,
                observation=msgspec.structs.replace(observation, find_price=self._prices.find),
                prepare_step=None if prepare_step is None else self._prices.prepares(prepare_step, config=config),
                check_output=checker_of(output, run=run, clock=self._clock, timeout_s=config.deadlines.hook_s),
                path=path,
                settle_s=settle_s,
                run=run,
            )
        )

    def deps_wanted(self, tools: Sequence[Tool] | None = None) -> DepsWanted:
        """What its runs need as deps, and whether they fit; with `tools` in place of its own."""
        return DepsWanted(
            wanted=self._deps_type,
            tools=self._tools if tools is None else tools,
            below={name: agent.deps_wanted() for name, agent in self._agents.items()},
            clock=self._clock,
            timeout_s=self._config.deadlines.hook_s,
        )

    async def _begun(
        self, config: TurnConfig, *, given: tuple[Message, ...], earlier: Sequence[Message], run: RunAtHand
    ) -> tuple[TurnConfig, tuple[Message, ...], InterruptKind | None]:
        """The configuration with its prices, the input with its opening, and the interrupt that came meanwhile."""
        beginning = _Beginning()
        self._beginning.add(beginning)
        try:
            config, given = await self._priced(config), await opened(given, opening=self._opening, earlier=earlier)
            config = await self._instructions.written(config, run=run, clock=self._clock)
        finally:
            self._beginning.discard(beginning)
        return config, given, beginning.ends

    def _config_of_run(
        self,
        options: RunOptions,
        *,
        tools: Sequence[Tool],
        output: OutputType | None,
        prepares: bool,
        session_id: str,
    ) -> TurnConfig:
        config = turn_over(self._config, options)
        hints = self._batch_hint and bool(tools) and config.parallel_tool_calls is not False
        check_choice(config.tool_choice, tools=tools)
        return msgspec.structs.replace(
            config,
            system=(*config.system, Text(BATCH_HINT)) if hints else config.system,
            session_id=session_id,
            turn_id=self._ids.new(),
            tools=tuple(tool.offer for tool in tools),
            output=None if output is None else output.schema,
            checks_output=output is not None and output.checks,
            settings=settings_over(config.settings, options["settings"]) if "settings" in options else config.settings,
            judges_cut=True,
            prepares_steps=prepares,
        )

    def _with_script(self, tools: tuple[Tool, ...]) -> tuple[Tool, ...]:
        wanted = self._prices.bills_requests if self._script == "auto" else self._script
        return with_script(tools, scripted=wanted)

    async def _priced(self, config: TurnConfig) -> TurnConfig:
        """The configuration with the prices that a limit of cost needs, those of its sub-agents looked at as well.

        Raises CallerError where one is not known: a limit that cannot hold is none.
        """
        if not counts_cost(config.limits):
            return config
        prices = await self._prices.of_turn(config)
        least_usd: dict[str, Decimal] = {}
        for name, agent in self._agents.items():
            child = await agent._priced(msgspec.structs.replace(agent._config, limits=config.limits))
            least_usd[name] = least_of(child.prices[child.model])
        return with_prices(config, prices=prices, least_usd=least_usd)

    def _before(self, options: RunOptions) -> tuple[SessionSoFar, str]:
        """The session before this turn, and its id."""
        history, session = tuple(options.get("history", ())), options.get("session")
        if not session:
            return SessionSoFar(messages=history, carried=Carried(messages=history)), self._ids.new()
        if self._journal is None:
            raise CallerError("`session` needs a journal: Agent(..., journal=Journal.open(...)), or pass `history`")
        if history:
            raise CallerError("give either `session` or `history`, not both: the session has its own messages")
        found = self._journal.find_session(session)
        return read_session(self._journal, found), found.row.id

    async def _open_transport(self, stack: contextlib.AsyncExitStack) -> Transport:
        if self._given_transport is not None:
            return self._given_transport
        from turnwise.drivers.endpoints.aiohttp_transport import AiohttpTransport

        return await stack.enter_async_context(AiohttpTransport())


class _Beginning:
    """A run whose turn has not begun: its prices are read, its opening is written. An interrupt meanwhile is kept for it."""

    ends: InterruptKind | None = None


def _children(agents: Mapping[str, Agent]) -> dict[str, Child]:
    return {
        name: Child(description=agent.description or "an agent", run=partial(agent.run_child, name=name))
        for name, agent in agents.items()
    }


def read_session(journal: Journal, session: Session) -> SessionSoFar:
    """What was said in a session, and what its next turn starts from; a turn that was killed has its open calls answered."""
    return folded(journal, session.turns)
