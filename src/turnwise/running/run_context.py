"""What a user's function learns about the run that it works for: a `RunContext`, as its first argument."""

import inspect
import typing
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from types import MappingProxyType
from typing import Any, Generic, Protocol, cast

from typing_extensions import TypeVar

from turnwise.errors import CallerError
from turnwise.running.grants import variable_of_run
from turnwise.turn.approvals import Approval
from turnwise.vocab import NO_USAGE, ToolCall, Usage

_NO_LABELS: Mapping[str, str] = MappingProxyType({})
Deps_co = TypeVar("Deps_co", covariant=True, default=Any)


class RunAtHand:
    """One run, as the contexts of its functions see it. The runner sets `so_far`, which gives the current step and the usage.

    No text that is made of it shows the deps: they may hold a password.
    """

    __slots__ = ("deps", "labels", "path", "session", "so_far")

    def __init__(
        self,
        *,
        deps: object = None,
        session: str = "",
        path: tuple[str, ...] = (),
        labels: Mapping[str, str] = _NO_LABELS,
    ) -> None:
        self.deps = deps
        self.session = session
        self.path = path
        self.labels = labels
        self.so_far: Callable[[], tuple[int, Usage]] = _nothing_yet


class WorkingCall(Protocol):
    """The call that a tool's context belongs to."""

    def report(self, text: str) -> None: ...

    async def ask(self, question: str, *, options: Sequence[str], why: str) -> Approval: ...

    def ask_sync(self, question: str, *, options: Sequence[str], why: str) -> Approval: ...


class RunContext(Generic[Deps_co]):
    """What a tool, a hook, an instruction or an output check knows about its run. It is their first parameter; the
    model does not see it.

    - `deps` is what the run got as `deps=`, or what its `DepsFactory` made.
    - `call` is the call that a tool answers. It is None outside of tools.
    - `step` counts from 1. It is 0 before the first step.
    - `usage` is what the run had used (in tokens) when the function was called, without its sub-agents.
    - `session` is the id of the session. `path` names the sub-agents that lead to this run, outermost first.

    Make one yourself to call a tool in a test: `find(RunContext(deps=fake), "pear")`.
    """

    __slots__ = ("_work", "call", "deps", "path", "session", "step", "usage")

    def __init__(
        self,
        deps: Deps_co,
        *,
        call: ToolCall | None = None,
        step: int = 0,
        usage: Usage = NO_USAGE,
        session: str = "",
        path: tuple[str, ...] = (),
        work: WorkingCall | None = None,
    ) -> None:
        self._work = work
        self.deps = deps
        self.call = call
        self.step = step
        self.usage = usage
        self.session = session
        self.path = path

    def __repr__(self) -> str:
        called = "" if self.call is None else f" call={self.call.name!r}"
        return f"<RunContext session={self.session!r} step={self.step}{called}>"

    def report(self, text: str) -> None:
        """Show the progress of a tool: watchers get the last line of `text` as a `ToolProgress` event.

        A line has at most 200 characters. The first report is shown at once, and the last report is always shown. Of the
        reports between them, a few are shown each second. You may call it from any thread. Outside of a tool it does
        nothing. Raises CallerError if `text` is no text.
        """
        given = cast("object", text)
        if not isinstance(given, str):
            raise CallerError(f"`context.report(...)` must be given a text, not {type(given).__name__}")
        if self._work is not None:
            self._work.report(text)

    async def ask(self, question: str, *, options: Sequence[str] = (), why: str = "") -> Approval:
        """Ask a person a question while the tool runs, and wait for the answer. Until then the tool's own time stands still,
        but the turn's time goes on.

        The run's approver gets an ask with `kind="question"` and `by="tool"`, and has `Deadlines.ask_s` seconds.
        `options` are answers to offer; `why` says why the tool asks. The returned `Approval` has a `verdict` (`allow`
        or `deny`) and a `text`.

        Without an approver, or if the policy is not attended, the verdict is the policy's `unattended`, with
        `by="default"`. If nobody answers in time, it is `deny`. Raises CallerError outside of a tool.
        """
        return await self._asker().ask(question, options=options, why=why)

    def ask_sync(self, question: str, *, options: Sequence[str] = (), why: str = "") -> Approval:
        """The same as `ask`, for a plain function. Such a tool runs in a thread of its own."""
        return self._asker().ask_sync(question, options=options, why=why)

    def _asker(self) -> WorkingCall:
        if self._work is None:
            raise CallerError("only a tool at work can ask: this `RunContext` belongs to no call")
        return self._work


def context_of(
    run: RunAtHand | None, *, call: ToolCall | None = None, work: WorkingCall | None = None
) -> RunContext[Any]:
    """A context of the run in its current state. Without a run, the context is empty."""
    if run is None:
        return RunContext(None, call=call, work=work)
    step, usage = run.so_far()
    return RunContext(run.deps, call=call, step=step, usage=usage, session=run.session, path=run.path, work=work)


_given: ContextVar["Callable[[], RunContext[Any]] | None"] = variable_of_run("context_given", default=None)


@contextmanager
def giving(make: Callable[[], RunContext[Any]]) -> Generator[None]:
    """Inside this block, a tool that takes a context gets what `make` makes. Also holds for tasks and threads that begin
    inside."""
    token = _given.set(make)
    try:
        yield
    finally:
        _given.reset(token)


def context_at_hand() -> RunContext[Any]:
    """The context of the current call; outside of any run an empty one."""
    make = _given.get()
    return context_of(None) if make is None else make()


def is_context(hint: object) -> bool:
    return hint is RunContext or typing.get_origin(hint) is RunContext


def holds_context(hint: object) -> bool:
    """Whether a context occurs anywhere in the hint: `RunContext[Db] | None`."""
    return is_context(hint) or any(holds_context(inner) for inner in typing.get_args(hint))


def deps_class_of(hint: object) -> type | None:
    """The class that a context's deps must have, if its hint names a class that can be checked."""
    (wanted,) = typing.get_args(hint) or (Any,)
    return class_of(wanted)


def class_of(wanted: object) -> type | None:
    """What `isinstance` can check: for `dict[str, int]` the class `dict`. None for None, a union, `Any`, or a protocol that
    cannot be checked at run time."""
    kind: object = typing.get_origin(wanted) or wanted
    if not isinstance(kind, type) or kind is type(None):
        return None
    try:
        isinstance(None, kind)
    except TypeError:
        return None
    return kind


def wants_context(function: Callable[..., object], *, beside: int) -> bool:
    """Whether a function that takes `beside` other arguments wants a context before them."""
    try:
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):  # a function of an extension has no signature
        return False
    positional = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    needed = [one for one in parameters if one.kind in positional and one.default is one.empty]
    return len(needed) == beside + 1


def check_takes_context(function: Callable[..., object], *, what: str) -> None:
    """Raise CallerError for a function that cannot be called with a context alone."""
    try:
        inspect.signature(function).bind(None)
    except TypeError:
        raise CallerError(f"{what}: it must take one argument, the `RunContext`") from None
    except ValueError:  # a function of an extension has no signature
        return


def _nothing_yet() -> tuple[int, Usage]:
    return 0, NO_USAGE
