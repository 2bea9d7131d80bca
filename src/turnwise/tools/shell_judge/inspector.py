"""The inspector of a session: the facts of the calls of a step, found in a thread, within a time bound."""

import asyncio
import os
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path

import msgspec

from turnwise.base.clock import Clock, Overdue, SystemClock, Watchdog
from turnwise.base.programs import ProgramSearch
from turnwise.rules.permission_facts import CallFacts
from turnwise.running.run_context import Inspector
from turnwise.running.tools import Tool
from turnwise.tools.sandbox.environment import PrivateFolder
from turnwise.turn.config import Effect
from turnwise.turn.events import PlannedCall

INSPECT_S = 5.0  # a file system that answers later hangs; a call of it takes milliseconds

_decode = msgspec.json.Decoder(dict[str, object]).decode


def inspector(
    tools: Iterable[Tool],
    *,
    workspace: os.PathLike[str],
    home: Path | None = None,
    environment: Mapping[str, str] | None = None,
    programs: ProgramSearch | None = None,
    private: Callable[[], PrivateFolder | None] = lambda: None,
    is_confined: Callable[[], bool] = bool,
    foresees: bool = False,
    clock: Clock | None = None,
    timeout_s: float = INSPECT_S,
) -> Inspector:
    """Finds the facts of calls of `tools` in `workspace`, all of a step within `timeout_s` seconds.

    `home` is what `~` stands for, `environment` what a command would see (default: this process's, both). `programs` says where
    names of programs lead, `private` which folder commands have for themselves; give those of the `Shell`. `is_confined`: whether
    a sandbox keeps commands from all else now. `foresees`: it also says which calls would fail; the tools work on the files and
    programs of this process. A call whose facts cannot be had (out of time, arguments that are no object) has `unknown` facts,
    and is asked about.
    """
    tools = tuple(tools)
    offers = {tool.name: tool.offer for tool in tools}
    own = {tool.name: tool for tool in tools}
    seen = dict(os.environ if environment is None else environment)
    known: list[ProgramSearch] = [] if programs is None else [programs]
    watch = clock or SystemClock()

    def effect_of(plan: PlannedCall) -> Effect:
        offer = offers.get(plan.call.name)
        return offer.effect if offer is not None else "execute"

    def facts_of(plan: PlannedCall) -> CallFacts:
        # in the thread, with the first call
        from turnwise.tools.shell_judge.call_facts import inspect_call, missing_program

        try:
            if not known:  # found here, as the file system of the workspace may not answer
                known.append(ProgramSearch(seen.get("PATH"), workspace=os.path.realpath(workspace)))
            arguments = {"input": plan.arguments} if plan.call.free_form else _decode(plan.arguments)
            found = inspect_call(
                plan.call.id,
                tool=plan.call.name,
                effect=effect_of(plan),
                arguments=arguments,
                workspace=workspace,
                home=home,
                environment=seen,
                kept=[kept for tool in tools if tool.keeps is not None and (kept := tool.keeps()) is not None],
                programs=known[0],
                private=private() if effect_of(plan) == "execute" else None,
                is_confined=is_confined(),
            )
            if not foresees or plan.call.name not in own:
                return found
            from turnwise.tools.workspace.previews import why_it_would_fail  # the workspace imports this package

            root = Path(os.path.realpath(workspace))
            fails = missing_program(found.shell, programs=known[0], workspace=str(root))
            fails = fails or why_it_would_fail(own[plan.call.name], arguments, root=root)
            return msgspec.structs.replace(found, fails=fails) if fails else found
        except (msgspec.DecodeError, OSError, ValueError, RecursionError) as error:
            return _unknown(
                plan, effect=effect_of(plan), why=f"its arguments cannot be judged ({type(error).__name__})"
            )

    async def inspect(calls: Sequence[PlannedCall]) -> tuple[CallFacts, ...]:
        found: dict[str, CallFacts] = {}
        loop = asyncio.get_running_loop()
        finished = asyncio.Event()

        def work() -> None:
            for plan in calls:
                found[plan.call.id] = facts_of(plan)
            try:
                loop.call_soon_threadsafe(finished.set)
            except RuntimeError:
                return  # the loop is closed: nobody waits for it any more

        # A daemon of its own: a pool's threads are joined at exit, and a dead network file system never answers.
        threading.Thread(target=work, name="turnwise-inspection", daemon=True).start()
        try:
            async with Watchdog(watch, total_s=timeout_s):
                await finished.wait()
        except Overdue:
            pass
        late = f"what it touches was not found out within {timeout_s:g} s"
        return tuple([found.get(plan.call.id) or _unknown(plan, effect=effect_of(plan), why=late) for plan in calls])

    return inspect


def _unknown(plan: PlannedCall, *, effect: Effect, why: str) -> CallFacts:
    return CallFacts(call_id=plan.call.id, tool=plan.call.name, effect=effect, unknown=why)
