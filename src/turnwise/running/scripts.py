"""Scripted steps: the interpreter runs a program until it needs tools, and continues with their results.

The interpreter is pydantic-monty: Python without files, network or processes of its own, in a worker process with limits on
computing and memory. Its state belongs to the runner alone, under the id of the program's call; the turn machine knows what was
called and what came of it. One program runs at a time; its worker ends with it.
"""

import asyncio
import contextlib
import importlib
import math
import re
import sys
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime, tzinfo
from typing import TYPE_CHECKING, Protocol, cast

import msgspec

from turnwise.base.clock import Clock, sleep, wait_for_task
from turnwise.running.resumption import ProgramSoFar, call_said, unknown_said
from turnwise.running.script_values import awaited_calls, json_problem, line_at, normal_lines, shown
from turnwise.running.tool_output import cut_middle, journalable
from turnwise.turn.events import RunScript, ScriptCalled, ScriptFinished, ScriptFunction, ScriptResult
from turnwise.turn.outcomes import TURNS_TIME, UNKNOWN_OUTCOME
from turnwise.turn.programs import PRELUDE, counted
from turnwise.vocab import ToolCall

if TYPE_CHECKING:
    import pydantic_monty as monty


# The time that a program sees. It is the same if the program runs again after a crash, so that it makes the same calls.
class ProgramTime:
    """What a program's clock says: when it began, plus the time that has passed since by the journal, its own sleeps included. It
    stands still while the program computes, and while no process works on the turn."""

    def __init__(self, began: float, *, ordered_s: float) -> None:
        """`began` is UTC, seconds since 1970; `ordered_s`, here and below, is in seconds of the turn."""
        self._began = began - ordered_s
        self.now = began

    def go_on(self, *, ordered_s: float) -> None:
        """The program got results then. The clock never goes back."""
        self.now = max(self.now, self._began + ordered_s)

    def pass_by(self, seconds: float) -> None:
        self.now += seconds

    def read(self, function: str, args: tuple[object, ...]) -> object:
        """What the interpreter's function of that name returns; None for a function that tells no time."""
        zone = next((one for one in args if isinstance(one, tzinfo)), None)
        match function:
            case "time.time":
                return self.now
            case "datetime.now":
                here = datetime.fromtimestamp(self.now, tz=zone or UTC)
                return here if zone is not None else here.replace(tzinfo=None)
            case "date.today":
                return datetime.fromtimestamp(self.now, tz=UTC).date()
            case _:
                return None


if sys.platform == "linux":
    import resource

ERROR_CHARACTERS = 2 * 1024
MAX_FRAMES = 4  # of a traceback: the way to the innermost one
NOTHING = "(The program ended without printing or returning anything.)"
# Computing time beyond a program's own limit. The interpreter checks its limit between operations. A second later turnwise kills
# the worker; after that the kernel does, in case turnwise is gone.
KERNEL_SLACK_S = 3
# What the interpreter (pydantic-monty 1.4) cannot do, in its own words, and what to do instead.
INSTEAD = {
    "cannot suspend in this synchronous context": "; `map`, `filter`, `sorted`, `min`, `max` and methods such as `__str__` "
    "cannot call a tool: call it in a loop or a comprehension",
    "gather() does not yet support keyword arguments": "; without `return_exceptions`, catch RuntimeError around each "
    "call in an `async def`, and gather those",
    "exceptions can only be called with zero or one string argument": "; raise it with one text or none (not "
    "`SystemExit(3)`); a program ends with its last line",
}
LOST_PROGRAM = "The program was lost while its calls ran."
OTHER_CALLS = (
    "The process died while the program ran. Run again with the results that its calls had, it asked for other calls, so it was "
    "ended. What its calls did stands: look at it, and write a program for the rest."
)
SETTLE_S = 0.5  # for a program that is stopped in the middle of its work, before its worker is killed
SLEEP, ASYNC_SLEEP = "time.sleep", "asyncio.sleep"


class Scripts:
    """Runs the programs of a turn."""

    def __init__(self, clock: Clock, *, so_far: ProgramSoFar | None = None) -> None:
        """`so_far` is the program of a process that has died."""
        self._clock = clock
        self._so_far = so_far
        self._at_hand: _Program | None = None
        self._over: asyncio.Future[None] | None = None  # the time of the running program

    def end_in_time(self) -> bool:
        """The turn's time is up, and the program's time was up before: stop the program. False: no program runs."""
        if self._over is None:
            return False
        if not self._over.done():
            self._over.set_result(None)
        return True

    async def run(
        self, command: RunScript, *, ordered_s: float = 0.0, now_s: float = 0.0
    ) -> ScriptCalled | ScriptFinished:
        """Do the command, which was ordered `ordered_s` seconds after the turn began. A new program takes its time from `now_s`
        (UTC, seconds since 1970). If a program fails in any way, it has finished, with words for the model."""
        program = self._at_hand
        if program is None or program.call_id != command.call.id:
            await self.close()
            so_far, self._so_far = self._so_far, None
            if not command.results:
                so_far = None
            elif so_far is None or so_far.begun.call.id != command.call.id:
                return ScriptFinished(call_id=command.call.id, text=LOST_PROGRAM, is_error=True)
            began_s = ordered_s
            if so_far is not None:
                now_s, began_s = (now_s if so_far.time is None else so_far.time), so_far.ordered_s[0]
            time = ProgramTime(now_s, ordered_s=began_s)
            program = self._at_hand = _Program(command, clock=self._clock, time=time)
        else:
            so_far = None
            program.time.go_on(ordered_s=ordered_s)
        try:
            if so_far is None:
                event = await self._advance(program, command)
            else:
                event = await self._run_again(program, command, so_far=so_far, ordered_s=ordered_s)
        except BaseException:
            await self.close()
            raise
        if isinstance(event, ScriptFinished):
            await self.close()
        return event

    async def _run_again(
        self, program: "_Program", command: RunScript, *, so_far: ProgramSoFar, ordered_s: float
    ) -> ScriptCalled | ScriptFinished:
        """Run it again from its beginning, with the results that its calls had. As long as it makes the same calls, no call runs
        again, and earlier sleeps take no time."""
        program.sleeps = False
        event = await self._advance(program, so_far.begun)
        answers = (*so_far.given[: len(so_far.asked) - 1], command.results)
        for place, (asked, given) in enumerate(zip(so_far.asked, answers, strict=True), start=1):
            if not isinstance(event, ScriptCalled) or event.calls != asked:
                unknown = [
                    said
                    for calls, results in zip(so_far.asked, answers, strict=True)
                    for said in _unknown_of(calls, results)
                ]
                text = f"{OTHER_CALLS}\n\n{unknown_said(unknown)}" if unknown else OTHER_CALLS
                return ScriptFinished(call_id=command.call.id, text=text, is_error=True)
            program.sleeps = is_last = place == len(so_far.asked)
            program.time.go_on(ordered_s=ordered_s if is_last else so_far.ordered_s[place])
            event = await self._advance(program, msgspec.structs.replace(command, results=given))
        return event

    async def _advance(self, program: "_Program", command: RunScript) -> ScriptCalled | ScriptFinished:
        """Run it as far as it gets within `most_s`. Its computing and its waits end then, too."""
        if command.most_s is None:
            return await program.advance(command)
        if command.most_s <= 0.0:
            return program.stopped(command)
        self._over = asyncio.get_running_loop().create_future()
        advancing = asyncio.create_task(program.advance(command))
        try:
            ended = await wait_for_task(advancing, clock=self._clock, timeout_s=command.most_s, over=self._over)
            if not ended:
                advancing.cancel()
                await wait_for_task(advancing, clock=self._clock, timeout_s=SETTLE_S)
                return program.stopped(command)
            return advancing.result()
        finally:
            self._over = None
            advancing.cancel()

    async def close(self) -> None:
        """End the current interpreter, whatever it does."""
        program, self._at_hand = self._at_hand, None
        if program is not None:
            await program.close()


class _Printed:
    """The output of a program: its head and its tail, within a limit."""

    def __init__(self, limit_characters: int) -> None:
        self._half = max(1, limit_characters // 2)
        self._head = ""
        self._tail = deque[str]()
        self._tail_characters = 0
        self._left_out = 0

    def take(self, _stream: str, text: str) -> None:
        room = self._half - len(self._head)
        if room > 0:
            self._head += text[:room]
            text = text[room:]
        if not text:
            return
        self._tail.append(text)
        self._tail_characters += len(text)
        while self._tail_characters - len(self._tail[0]) >= self._half:
            dropped = len(self._tail.popleft())
            self._tail_characters -= dropped
            self._left_out += dropped

    def text(self) -> str:
        tail = "".join(self._tail)
        left_out = self._left_out + max(0, len(tail) - self._half)
        tail = tail[-self._half :]
        return f"{self._head}\n[... {left_out:,} characters left out ...]\n{tail}" if left_out else self._head + tail


class _Session(Protocol):
    """The parts of an interpreter's session that are used here, with types: the library's own types return `Any`."""

    @property
    def worker_pid(self) -> int | None: ...
    async def feed_run(self, code: str, /) -> object: ...
    async def feed_start(self, code: str, /, *, print_callback: Callable[[str, str], None]) -> object: ...


class _Wanted(msgspec.Struct, frozen=True):
    """A call of the program that waits for its result. `number` is the interpreter's own number."""

    number: int
    call: ToolCall


class _Stopped(Exception):
    """The program cannot continue, for this reason."""


class _Misfit(Exception):
    """The arguments of a call do not fit its tool; the turn machine would find the same."""


class _Program:
    """One running program."""

    def __init__(self, command: RunScript, *, clock: Clock, time: ProgramTime) -> None:
        self.call_id = command.call.id
        self.time = time
        self.sleeps = True  # False: its sleeps have passed already
        self._clock = clock
        self._text = normal_lines(command.program)
        self._limits = command.limits
        self._functions = {function.name: function for function in command.functions}
        self._awaited = awaited_calls(self._text) if len(self._text) <= command.limits.program_characters else None
        self._printed = _Printed(command.limits.output_characters)
        self._open = contextlib.AsyncExitStack()
        self._snapshot: object = None
        self._line = 0  # of its last call
        self._raised = ""  # what that call raises, in the interpreter's words
        self._count = 0
        self._slept_s = 0.0
        self._exchanged_bytes = 0
        self._sleeping: dict[int, float] = {}  # the interpreter's numbers of sleeps, and when each ends
        self._futures: dict[int, _Wanted] = {}
        self._called: list[ToolCall] = []  # calls that it waits for
        self._waiting: dict[str, int] = {}  # the interpreter's numbers, by the ids of those calls
        self._ran: tuple[str, ...] = ()
        self._unknown: list[str] = []  # its calls of unknown outcome, whatever the program did with the result

    async def close(self) -> None:
        # A worker that computes is killed; errors of closing it help nobody.
        with contextlib.suppress(Exception):
            await self._open.aclose()

    async def advance(self, command: RunScript) -> ScriptCalled | ScriptFinished:
        try:
            module = await asyncio.to_thread(_load)
        except ImportError as error:
            return self._finished(f"Programs cannot run here: {error}. Call the tools one by one.", is_error=True)
        try:
            self._ran = command.ran
            if command.stop:
                raise _Stopped(command.stop)
            if self._snapshot is None:
                await self._begin(module)
            else:
                await self._resume_with(command.results)
            while not isinstance(self._snapshot, module.MontyComplete):
                called = await self._step(module)
                if called:
                    return ScriptCalled(call_id=self.call_id, calls=tuple([one.call for one in called]))
            return self._finished(self._output(self._snapshot))
        except _Stopped as stopped:
            return self._failed(str(stopped), line=self._line)
        except module.MontyError as error:
            return self._explain(error, module=module)
        except (OSError, TimeoutError) as error:  # the worker could not be started
            return self._failed(f"the interpreter could not be started ({error})", line=0)

    def stopped(self, command: RunScript) -> ScriptFinished:
        """The program stops, because the turn's time leaves it no more."""
        self._ran = command.ran
        return self._failed(f"it was stopped: {TURNS_TIME}", line=self._line)

    async def _begin(self, module: "_Monty") -> None:
        limits = self._limits
        if len(self._text) > limits.program_characters:
            raise _Stopped(f"it has {len(self._text):,} characters, and {limits.program_characters:,} is the limit")
        pool = module.AsyncMonty(min_processes=1, max_processes=1)
        await self._open.enter_async_context(pool)
        checkout = pool.checkout(
            limits={
                "max_feed_duration_secs": limits.cpu_s,
                "max_memory": limits.memory_bytes,
                # calls, waits for them, names of functions, sleeps: turnwise keeps the limit of calls itself, to say it in its
                # own words
                "max_suspensions": 20 * limits.calls + 10_000,
            },
            os_policy={
                "sleep": "call_host",  # the interpreter's own sleeps end after ten seconds, whatever the program asked for
                # After a crash it runs again, and must make the same calls.
                "random_start": {"seed": self.call_id},
                "datetime": "call_host",
                "process_time": "zero",
            },
        )
        session = cast("_Session", await self._open.enter_async_context(checkout))
        _let_the_kernel_end(session.worker_pid, cpu_s=limits.cpu_s)
        await session.feed_run(f"import {', '.join(PRELUDE)}")
        self._snapshot = await session.feed_start(self._text, print_callback=self._printed.take)

    async def _resume_with(self, results: tuple[ScriptResult, ...]) -> None:
        self._exchange(sum([len(result.text.encode()) for result in results]))
        answers = {
            self._waiting.pop(result.call_id): _raised("RuntimeError", result.text)
            if result.is_error
            else {"return_value": result.text}
            for result in results
            if result.call_id in self._waiting
        }
        self._unknown += _unknown_of(self._called, results)
        snapshot = self._snapshot
        if isinstance(snapshot, _load().AsyncFutureSnapshot):
            for number in answers:
                self._futures.pop(number, None)
            self._snapshot = await snapshot.resume(cast("dict[int, monty.ExternalSettledResult]", answers))
        else:
            called = cast("monty.AsyncFunctionSnapshot", snapshot)
            self._snapshot = await self._answer(called, answers[called.call_id])

    async def _step(self, module: "_Monty") -> list[_Wanted]:
        """Run to the next stop. Returns the calls to make first, if the stop is one for calls."""
        snapshot = self._snapshot
        if isinstance(snapshot, module.AsyncNameLookupSnapshot):
            function = self._functions.get(snapshot.variable_name) if snapshot.object_id is None else None
            self._snapshot = await (snapshot.resume(value=_stand_in(function)) if function else snapshot.resume())
            return []
        if isinstance(snapshot, module.AsyncFutureSnapshot):
            # the interpreter names them in any order
            numbers = sorted(snapshot.pending_call_ids)
            wanted = [self._futures[number] for number in numbers if number in self._futures]
            sleeps = {number: self._sleeping[number] for number in numbers if number in self._sleeping}
            if not wanted and sleeps:
                self._snapshot = await snapshot.resume(await self._sleep_until_first(sleeps))
                return []
            if not wanted:
                raise _Stopped("it waits for something that will never come")
            return self._wait_for(wanted)
        called = cast("monty.AsyncFunctionSnapshot", snapshot)
        if called.is_os_function:
            self._snapshot = await self._on_system(called)
            return []
        self._line = self._line_of(called)
        found = self._call_of(called)
        if not isinstance(found, _Wanted):
            self._snapshot = await self._answer(called, found)
            return []
        if self._is_awaited(called):
            self._futures[found.number] = found
            self._snapshot = await called.resume({"future": ...})
            return []
        return self._wait_for([found])

    async def _answer(self, called: "monty.AsyncFunctionSnapshot", result: Mapping[str, object]) -> object:
        self._raised = f"{result['exc_type']}: {result['message']}" if "exc_type" in result else ""
        return await called.resume(cast("monty.ExternalResult", result))

    def _wait_for(self, wanted: list[_Wanted]) -> list[_Wanted]:
        self._waiting = {one.call.id: one.number for one in wanted}
        self._called = [one.call for one in wanted]
        return wanted

    def _is_awaited(self, called: "monty.AsyncFunctionSnapshot") -> bool:
        if self._awaited is None or called.position.filename.startswith("<string"):
            return called.allow_eager_await
        return (called.position.start, called.position.end) in self._awaited

    def _line_of(self, called: "monty.AsyncFunctionSnapshot") -> int:
        is_ours = called.position.filename.startswith("<python-input")
        return line_at(self._text, byte=called.position.start) if is_ours else self._line

    async def _on_system(self, called: "monty.AsyncFunctionSnapshot") -> object:
        """Sleep on turnwise's clock, within the limit; no other system function exists. Sleeps that are awaited together pass
        together, once the calls that are awaited with them have their results."""
        if called.function_name not in (SLEEP, ASYNC_SLEEP):
            told = self.time.read(str(called.function_name), called.args)
            return await (called.resume_not_handled() if told is None else called.resume({"return_value": told}))
        self._line = self._line_of(called)
        seconds = max(0.0, float(called.args[0]))
        self._slept_s += seconds
        if self._slept_s > self._limits.sleep_s:
            raise _Stopped(f"it would have slept for more than {self._limits.sleep_s:g} s in all")
        if called.function_name == ASYNC_SLEEP:
            self._sleeping[called.call_id] = self.time.now + seconds
            return await called.resume({"future": ...})
        await self._sleep(seconds)
        return await called.resume({"return_value": None})

    async def _sleep_until_first(self, sleeps: dict[int, float]) -> "dict[int, monty.ExternalSettledResult]":
        first_s = min(sleeps.values())
        await self._sleep(max(0.0, first_s - self.time.now))
        over = [number for number, over_s in sleeps.items() if over_s <= first_s]
        for number in over:
            del self._sleeping[number]
        return {number: {"return_value": None} for number in over}

    async def _sleep(self, seconds: float) -> None:
        if self.sleeps:
            await sleep(self._clock, seconds=seconds)
        self.time.pass_by(seconds)

    def _call_of(self, called: "monty.AsyncFunctionSnapshot") -> "_Wanted | dict[str, object]":
        """The call of a tool, or the error that the function raises instead: the error that Python would raise, in Python's
        words."""
        name = str(called.function_name)
        function = self._functions.get(name)
        if function is None or called.object_id is not None:
            known = ", ".join(self._functions) or "none"
            return _raised("NameError", f"name '{name}' is not defined; the functions for tools are: {known}")
        if self._count >= self._limits.calls:
            raise _Stopped(f"it may make {self._limits.calls:,} calls, and this would have been one more")
        try:
            given = called.args, called.kwargs
        except ValueError as error:
            return _raised("ValueError", f"{name}(): an argument cannot be handed over: {error}")
        arguments = _arguments(function, *given, limit_bytes=self._limits.call_bytes)
        if isinstance(arguments, TypeError | _Misfit):
            return _raised("TypeError" if isinstance(arguments, TypeError) else "RuntimeError", str(arguments))
        self._exchange(len(arguments.encode()))
        self._count += 1
        call = ToolCall(
            id=f"{self.call_id}/{self._count}",
            name=function.tool,
            arguments=arguments,
            free_form=function.free_form,
        )
        return _Wanted(called.call_id, call)

    def _exchange(self, size: int) -> None:
        """Count bytes that pass between the program and its tools."""
        self._exchanged_bytes += size
        if self._exchanged_bytes > self._limits.exchanged_bytes:
            raise _Stopped(
                f"its arguments and results together have more than {self._limits.exchanged_bytes:,} bytes, which is the limit"
            )

    # The words for the model.

    def _output(self, complete: "monty.MontyComplete") -> str:
        limit = self._limits.output_characters
        try:
            value: object = complete.output
        except ValueError as error:
            value = f"(The value of the last expression cannot be handed over: {error})"
        returned = "" if value is None else cut_middle(journalable(shown(value, limit=limit)), limit=limit)
        printed = journalable(self._printed.text())
        if printed and returned and not printed.endswith("\n"):
            printed += "\n"
        return printed + returned or NOTHING

    def _finished(self, text: str, *, is_error: bool = False) -> ScriptFinished:
        if self._unknown:
            text = f"{text.rstrip()}\n\n{unknown_said(self._unknown)}"
        return ScriptFinished(call_id=self.call_id, text=text, is_error=is_error)

    def _failed(self, why: str, *, line: int, source: str = "") -> ScriptFinished:
        where = f"line {line}: " if line else ""
        made = "1 call" if len(self._ran) == 1 else f"{len(self._ran)} calls"
        printed = journalable(self._printed.text())
        pieces = [
            f"{where}The program failed: {cut_middle(journalable(why), limit=ERROR_CHARACTERS)}",
            source,
            *self._called_otherwise(),
            f"{made} had run ({counted(self._ran)}); what was done stands." if self._ran else "No call had run.",
            f"It had printed:\n{printed}" if printed else "",
        ]
        return self._finished("\n".join([piece for piece in pieces if piece]), is_error=True)

    def _called_otherwise(self) -> list[str]:
        """A hint for a program that calls tools under names of Python's own: it may have called something else."""
        return [
            f"In a program the tool `{function.tool}` is called `{function.name}`."
            for function in self._functions.values()
            if function.name != function.tool
            and re.search(rf"(?<![\w.]){re.escape(function.tool)}\s*\(", self._text[: self._limits.program_characters])
        ]

    def _explain(self, error: "monty.MontyError", *, module: "_Monty") -> ScriptFinished:
        limits = self._limits
        if isinstance(error, module.MontyCrashedError):
            timed_out = error.timed_out
            why = (
                f"it computed for longer than {limits.cpu_s:g} s" if timed_out else "the interpreter died while it ran"
            )
            return self._failed(why, line=self._line)
        said = str(error)
        if "feed time limit exceeded" in said:
            return self._failed(f"it computed for longer than {limits.cpu_s:g} s, which is the limit", line=self._line)
        frames = error.traceback() if isinstance(error, module.MontyRuntimeError | module.MontySyntaxError) else []
        ours = [frame for frame in frames if frame.filename.startswith("<python-input")]
        line = ours[-1].line if ours else self._line
        if "memory limit exceeded" in said:
            return self._failed(
                f"it needed more than {limits.memory_bytes // 1024**2} MB of memory, which is the limit", line=line
            )
        lines = [(frame.line, frame.source_line or "") for frame in ours[-MAX_FRAMES:]]
        if lines and said == self._raised:
            # If no `except` catches an error, pydantic-monty 1.4 names the line of the last of these.
            line = self._line
            lines[-1] = line, self._text.split("\n")[line - 1]
        kind = "SyntaxError: " if isinstance(error, module.MontySyntaxError) else ""
        way = [f"    line {number}: {text.strip()[:200]}" for number, text in lines]
        return self._failed(kind + _with_advice(said), line=line, source="\n".join(way))


class _Monty(Protocol):
    """The parts of the module that are used. It is imported when the first program runs (0.08 s)."""

    AsyncMonty: "type[monty.AsyncMonty]"
    AsyncFutureSnapshot: "type[monty.AsyncFutureSnapshot]"
    AsyncNameLookupSnapshot: "type[monty.AsyncNameLookupSnapshot]"
    MontyComplete: "type[monty.MontyComplete]"
    MontyError: "type[monty.MontyError]"
    MontyCrashedError: "type[monty.MontyCrashedError]"
    MontyRuntimeError: "type[monty.MontyRuntimeError]"
    MontySyntaxError: "type[monty.MontySyntaxError]"


def _let_the_kernel_end(pid: int | None, *, cpu_s: float) -> None:
    """Limit a worker's computing by the kernel, in case turnwise is killed: a single operation does not check the worker's own
    limit."""
    if sys.platform == "linux" and pid is not None:
        most_s = math.ceil(cpu_s) + KERNEL_SLACK_S
        with contextlib.suppress(OSError, ValueError):  # it has ended already
            resource.prlimit(pid, resource.RLIMIT_CPU, (most_s, most_s))


def _load() -> _Monty:
    return cast("_Monty", importlib.import_module("pydantic_monty"))


def _with_advice(said: str) -> str:
    advice = [instead for words, instead in INSTEAD.items() if words in said]
    return said.replace("Internal error in monty: ", "") + "".join(advice)


def _raised(kind: str, message: str) -> dict[str, object]:
    return {"exc_type": kind, "message": message}


def _stand_in(function: ScriptFunction) -> Callable[[], None]:
    """What the interpreter uses for a function that the program names without calling it."""

    def stand_in() -> None: ...

    stand_in.__name__ = function.name
    return stand_in


def _misfit(function: ScriptFunction, why: str) -> _Misfit:
    return _Misfit(f"Not run: the arguments do not fit the parameters of `{function.tool}`: {function.name}() {why}.")


def _counted(number: int) -> str:
    return "1 argument" if number == 1 else f"{number or 'no'} arguments"


def _unknown_of(calls: Sequence[ToolCall], results: Sequence[ScriptResult]) -> list[str]:
    """The calls of unknown outcome."""
    unknown = {result.call_id for result in results if result.is_error and result.text == UNKNOWN_OUTCOME}
    return [call_said(call) for call in calls if call.id in unknown]


def _arguments(
    function: ScriptFunction, positional: tuple[object, ...], named: dict[str, object], *, limit_bytes: int
) -> "str | TypeError | _Misfit":
    """The arguments as JSON text (as plain text, if the tool takes that), or what is wrong with them: a TypeError for values that
    JSON cannot carry, otherwise a misfit. The program catches a misfit like every other error that the tool's schema finds."""
    if len(positional) > len(function.parameters):
        takes = f"takes {_counted(len(function.parameters))} by position, and {len(positional)} were given"
        return _misfit(function, takes)
    given = dict(zip(function.parameters, positional, strict=False))
    if twice := sorted(given.keys() & named.keys()):
        return _misfit(function, f"got the argument `{twice[0]}` twice, by position and by name")
    given |= named
    if function.free_form:
        text = given.get("input")
        if not isinstance(text, str) or len(given) > 1:
            return _misfit(function, "takes one text and nothing else")
        problem = json_problem(text, limit_bytes=limit_bytes)
        return TypeError(f"{function.name}(): its text has {problem}") if problem else text
    for name, value in given.items():
        if problem := json_problem(value, limit_bytes=limit_bytes):
            return TypeError(f"{function.name}(): JSON cannot carry the argument `{name}`: {problem}")
    try:
        arguments = msgspec.json.encode(given)
    except (TypeError, ValueError, OverflowError) as error:
        return TypeError(f"{function.name}(): JSON cannot carry the arguments: {error}")
    if len(arguments) > limit_bytes:
        return TypeError(f"{function.name}(): arguments of {len(arguments):,} bytes; the limit is {limit_bytes:,}")
    return arguments.decode()
