"""The user's hooks: functions or commands that see calls, results and requests before they take effect, and may change or deny
them. Each has its own deadline. The `HooksRan` event in the journal records what they did.

If a guarding hook fails (raises, is late, returns nonsense), it denies: a guard that a crash could open would be no guard. If a
hook that only reads a result fails, the result stays as it is.
"""

import asyncio
import difflib
import inspect
import logging
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from fnmatch import fnmatchcase
from typing import Any, Literal, assert_never, cast, get_args

import msgspec

from turnwise.base.clock import Clock, Overdue, ends_in_time
from turnwise.base.exact_json import NotExact, exact_json
from turnwise.base.threads import in_thread, is_async
from turnwise.errors import CallerError, ToolFault
from turnwise.running.run_context import RunAtHand, RunContext, context_of, wants_context
from turnwise.running.tool_output import class_name, fault_words, journalable, result_of, traceback_of
from turnwise.turn.config import Deadlines, HookPoint, TurnResult
from turnwise.turn.events import HookOutcome, PlannedCall, Purpose, RunHooks
from turnwise.vocab import Message, ToolResult, text_of

# How turnwise calls the user's own functions, plain or async, within a time.


SETTLE_S = 0.5


class FunctionAnswer(msgspec.Struct, frozen=True):
    """What a function returned, or raised."""

    value: object = None
    error: BaseException | None = None


async def said_by(
    function: Callable[..., object], *arguments: object, clock: Clock, timeout_s: float, name: str, thread: str
) -> FunctionAnswer:
    """What the function returned or raised; an awaitable is awaited, a plain function runs in a thread of its own. Raises Overdue
    if it takes longer; its thread is then left behind. `name` is the name of its task, `thread` of its thread."""

    def call() -> FunctionAnswer:
        try:
            return FunctionAnswer(function(*arguments))
        except BaseException as error:  # noqa: BLE001 (a stranger's: `sys.exit()` in it must not end the program)
            return FunctionAnswer(error=error)

    async def work() -> FunctionAnswer:
        said = call() if is_async(function) else await in_thread(call, name=thread)
        if said.error is not None or not inspect.isawaitable(said.value):
            return said
        try:
            return FunctionAnswer(await cast("Awaitable[object]", said.value))
        except asyncio.CancelledError:
            raise
        except BaseException as error:  # noqa: BLE001 (as above)
            return FunctionAnswer(error=error)

    task = asyncio.create_task(work(), name=name)
    if not await ends_in_time(task, clock=clock, timeout_s=timeout_s, settle_s=SETTLE_S):
        raise Overdue("answer", timeout_s)
    if task.cancelled():
        return FunctionAnswer(error=asyncio.CancelledError())
    return task.result()


THREAD = "turnwise-hook"

_log = logging.getLogger("turnwise")


class ToolAboutToRun(msgspec.Struct, frozen=True, kw_only=True):
    """What a `before_tool` hook gets. `arguments` is JSON text, or plain text for a free-form tool."""

    call_id: str
    tool: str
    arguments: str
    step: int


class ToolRan(msgspec.Struct, frozen=True, kw_only=True):
    """What an `after_tool` hook gets. `text` is the result as the model would read it."""

    call_id: str
    tool: str
    arguments: str
    text: str
    is_error: bool
    step: int


class RequestAboutToLeave(msgspec.Struct, frozen=True, kw_only=True):
    """What a `before_request` hook gets. `number` counts the turn's requests from 1."""

    number: int
    step: int
    purpose: Purpose
    model: str
    messages: tuple[Message, ...]


class TurnEnded(msgspec.Struct, frozen=True, kw_only=True):
    """What `turn_ended` and `turn_cancelled` hooks get."""

    result: TurnResult


class Deny(msgspec.Struct, frozen=True):
    """A hook's answer: no.

    Before a tool, the call does not run and its result gives the reason. Before a request, the turn ends. After a tool,
    the model does not see the result.
    """

    reason: str


class ChangeArguments(msgspec.Struct, frozen=True):
    """A hook's answer: run the call with these arguments.

    They are validated and judged by the permission rules, as a model's arguments are.
    """

    arguments: Mapping[str, object]


class ChangeResult(msgspec.Struct, frozen=True):
    """A hook's answer: give the model this result.

    `value` is what a tool may return: text, a value that JSON can carry, or parts. `is_error` marks it as a failure.
    """

    value: object
    is_error: bool = False


Says = Deny | ChangeArguments | ChangeResult | None
Looks = ToolAboutToRun | ToolRan | RequestAboutToLeave | TurnEnded
HookStage = Literal["before_tool", "after_tool", "before_request", "turn_ended", "turn_cancelled"]

# What a hook may answer at each point, besides None. Another answer there is an error, and a guard with an error denies.
ANSWERS: dict[HookStage, tuple[type[Deny] | type[ChangeArguments] | type[ChangeResult], ...]] = {
    "before_tool": (Deny, ChangeArguments, ChangeResult),
    "after_tool": (Deny, ChangeResult),
    "before_request": (Deny,),
    "turn_ended": (),
    "turn_cancelled": (),
}


HookFunction = Callable[[Looks], Says | Awaitable[Says]] | Callable[[RunContext[Any], Looks], Says | Awaitable[Says]]


class Hook(msgspec.Struct, frozen=True, kw_only=True):
    """A function of yours that runs at one point of a turn, and may deny or change what happens there.

    - `point`: `before_tool`, `after_tool`, `before_request`, `turn_ended` or `turn_cancelled`.
    - `function` gets what the point looks at (`ToolAboutToRun` and so on). With two parameters it gets the `RunContext`
      first. It returns None, `Deny`, `ChangeArguments` or `ChangeResult`. A plain function runs in a thread of its own,
      so it may block.
    - `name` is for messages and the journal.
    - `tools` is a glob of tool names.
    - `timeout_s` is its deadline in seconds. None: `Deadlines.hook_s`.

    Raises CallerError for a point that does not exist.
    """

    point: HookStage
    function: HookFunction
    name: str
    tools: str = "*"
    timeout_s: float | None = None

    def __post_init__(self) -> None:
        points: tuple[str, ...] = get_args(HookStage)
        given = cast("object", self.point)
        if given not in points:
            near = difflib.get_close_matches(str(given), points, n=1)
            hint = f"did you mean `{near[0]}`? " if near else ""
            raise CallerError(
                f"the hook `{self.name}` is for the point `{given}`, which does not exist: {hint}Points are {', '.join(points)}"
            )


class Hooks:
    """All hooks of an agent, in the order in which they run. `scrub` removes the endpoint's key from what is logged of them."""

    def __init__(self, hooks: Sequence[Hook], *, clock: Clock, scrub: Callable[[str], str] = str) -> None:
        self._hooks = tuple(hooks)
        self._with_context = [hook for hook in self._hooks if wants_context(hook.function, beside=1)]
        self._clock = clock
        self._scrub = scrub

    @property
    def all(self) -> tuple[Hook, ...]:
        return self._hooks

    @property
    def points(self) -> tuple[HookPoint, ...]:
        """The points at which the turn must wait for a hook."""
        given = {hook.point for hook in self._hooks}
        waited: tuple[HookPoint, ...] = ("before_tool", "after_tool", "before_request")
        return tuple([point for point in waited if point in given])

    async def run(self, order: RunHooks, *, run: RunAtHand | None = None) -> tuple[HookOutcome, ...]:
        """The answers of the hooks at one point; `run` is for their contexts. Several calls are looked at together, the hooks of
        one call one after the other."""
        match order.point:
            case "before_tool":
                found = await asyncio.gather(*[self._before(plan, order=order, run=run) for plan in order.calls])
                return tuple([outcome for outcomes in found for outcome in outcomes])
            case "after_tool":
                plans = {plan.call.id: plan for plan in order.calls}
                ran = [(plans[one.call_id], one) for one in order.results if one.call_id in plans]
                found = await asyncio.gather(
                    *[self._after(plan, result=one, order=order, run=run) for plan, one in ran]
                )
                return tuple([outcome for outcomes in found for outcome in outcomes])
            case "before_request":
                return await self._request(order, run=run)
            case _:
                assert_never(order.point)

    async def ended(
        self, result: TurnResult, *, cancelled: bool, deadlines: Deadlines, run: RunAtHand | None = None
    ) -> None:
        """Tell the hooks for a turn's end that the turn is over. Their answers change nothing."""
        points: tuple[HookStage, ...] = ("turn_cancelled", "turn_ended") if cancelled else ("turn_ended",)
        for point in points:
            for hook in self._at(point):
                await self._call(hook, TurnEnded(result=result), deadlines=deadlines, run=run)

    def _at(self, point: HookStage, *, tool: str | None = None) -> list[Hook]:
        return [hook for hook in self._hooks if hook.point == point and (tool is None or fnmatchcase(tool, hook.tools))]

    async def _before(self, plan: PlannedCall, *, order: RunHooks, run: RunAtHand | None) -> list[HookOutcome]:
        outcomes: list[HookOutcome] = []
        arguments = plan.arguments
        for hook in self._at("before_tool", tool=plan.call.name):
            looks = ToolAboutToRun(call_id=plan.call.id, tool=plan.call.name, arguments=arguments, step=order.step)
            said, fault = await self._call(hook, looks, deadlines=order.deadlines, run=run)
            outcome = HookOutcome(by=hook.name, call_id=plan.call.id)
            match said:
                case _ if fault:
                    outcomes.append(msgspec.structs.replace(outcome, denied=fault))
                    break
                case Deny(reason=reason):
                    outcomes.append(msgspec.structs.replace(outcome, denied=journalable(reason)))
                    break
                case ChangeArguments(arguments=changed):
                    try:
                        arguments = exact_json(dict(changed))
                    except NotExact as error:
                        fault = f"the changed arguments are no JSON: {error}"
                        outcomes.append(msgspec.structs.replace(outcome, denied=journalable(fault)))
                        break
                    except Exception as error:  # noqa: BLE001 (values of the user's, which may be anything)
                        fault = f"the changed arguments are no JSON: {type(error).__name__}"
                        outcomes.append(msgspec.structs.replace(outcome, denied=fault))
                        break
                    outcomes.append(msgspec.structs.replace(outcome, arguments=arguments))
                case ChangeResult():
                    outcomes.append(msgspec.structs.replace(outcome, result=_result(plan, said)))
                    break
                case None:
                    continue
        return outcomes

    async def _after(
        self, plan: PlannedCall, *, result: ToolResult, order: RunHooks, run: RunAtHand | None
    ) -> list[HookOutcome]:
        outcomes: list[HookOutcome] = []
        for hook in self._at("after_tool", tool=plan.call.name):
            looks = ToolRan(
                call_id=plan.call.id,
                tool=plan.call.name,
                arguments=plan.arguments,
                text=text_of(Message("user", result.content)),
                is_error=result.is_error,
                step=order.step,
            )
            said, _ = await self._call(hook, looks, deadlines=order.deadlines, run=run)
            outcome = HookOutcome(by=hook.name, call_id=plan.call.id)
            match said:
                case Deny(reason=reason):
                    outcomes.append(msgspec.structs.replace(outcome, denied=journalable(reason)))
                    break
                case ChangeResult():
                    result = _result(plan, said)
                    outcomes.append(msgspec.structs.replace(outcome, result=result))
                case ChangeArguments() | None:
                    continue
        return outcomes

    async def _request(self, order: RunHooks, *, run: RunAtHand | None) -> tuple[HookOutcome, ...]:
        assert order.request is not None
        send = order.request
        looks = RequestAboutToLeave(
            number=send.number,
            step=send.step,
            purpose=send.purpose,
            model=send.request.model,
            messages=send.request.messages,
        )
        for hook in self._at("before_request"):
            said, fault = await self._call(hook, looks, deadlines=order.deadlines, run=run)
            if fault or isinstance(said, Deny):
                reason = journalable(said.reason) if isinstance(said, Deny) else fault
                return (HookOutcome(by=hook.name, denied=reason),)
        return ()

    async def _call(self, hook: Hook, looks: Looks, *, deadlines: Deadlines, run: RunAtHand | None) -> tuple[Says, str]:
        """The hook's answer, and what went wrong with it (then there is no answer)."""

        timeout_s = deadlines.hook_s if hook.timeout_s is None else hook.timeout_s
        given = (context_of(run), looks) if hook in self._with_context else (looks,)
        try:
            answer = await said_by(
                hook.function, *given, clock=self._clock, timeout_s=timeout_s, name=f"hook {hook.name}", thread=THREAD
            )
        except Overdue:
            return None, self._told(hook, f"it did not answer within {timeout_s:g} s")
        if isinstance(answer.error, asyncio.CancelledError):
            return None, self._told(hook, "it cancelled itself")
        if isinstance(answer.error, ToolFault):  # the hook's own word to the model
            return None, self._told(hook, self._scrub(fault_words(answer.error)))
        if answer.error is not None:
            return None, self._told(hook, f"it raised {class_name(answer.error)}", error=answer.error)
        said = answer.value
        if said is None or isinstance(said, ANSWERS[hook.point]):
            return said, ""
        # A foreign function may return anything, whatever its type says.
        return None, self._told(hook, f"it returned `{type(said).__name__}`, and {may_answer(hook.point)}")

    def _told(self, hook: Hook, fault: str, *, error: BaseException | None = None) -> str:
        """What the model reads if the hook denies by it. An exception's own text is for the log alone."""
        logged = fault if error is None else traceback_of(error, scrub=self._scrub)
        _log.warning("the hook `%s` (%s) failed: %s", hook.name, hook.point, logged)
        return f"the hook failed ({fault})"


def may_answer(point: HookStage) -> str:
    """The answers that a hook of this point may return, in words for its author."""
    *names, last = [*[kind.__name__ for kind in ANSWERS[point]], "None"]
    known = f"{', '.join(names)} or {last}" if names else last
    return f"at `{point}` a hook returns {known}"


def check_hooks(hooks: Sequence[Hook], *, tools: Collection[str]) -> None:
    """Raise CallerError for a hook about an unknown tool: a guard with a typing error in its `tools` would guard nothing."""
    for hook in hooks:
        if hook.point not in ("before_tool", "after_tool") or any(fnmatchcase(name, hook.tools) for name in tools):
            continue
        near = difflib.get_close_matches(hook.tools, tools, n=1)
        hint = f"did you mean `{near[0]}`?" if near else f"there are {', '.join([f'`{name}`' for name in tools])}"
        raise CallerError(f"the hook `{hook.name}` is for the tool `{hook.tools}`, which does not exist; {hint}")


def _result(plan: PlannedCall, said: ChangeResult) -> ToolResult:
    made = result_of(plan.call, said.value)
    return msgspec.structs.replace(made, is_error=made.is_error or said.is_error)
