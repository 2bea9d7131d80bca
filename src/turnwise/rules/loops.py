"""Does the model repeat its calls? It is warned first, then given the stored result, then made to answer (promises `loop:`).

The unit is the step: the set of its calls with their results, so equal calls side by side are one. A loop is a run of steps that
each equal the one 1, 2 or 3 steps before. It is measured in rounds: each step of a cycle runs as often as a step that is repeated
alone, and the word comes as late, because a model that looks after three jobs in turn has looked at each only once in three
steps. One result that changes, within a round or from one round to the next, starts the count again.

The guard keeps the last three steps as hashes (what is shorter than one costs stands for itself), six counters, and the tools
of the cut attempts in a row: its state does not grow, and a step costs one hash of its arguments and results.

Two calls are the same if tool and arguments are (as JSON, whatever the order of keys and the spaces). A call that did
not arrive whole (cut, or no JSON) has words that vary from attempt to attempt, so two of them are the same if the tool is and
either one's text begins with the other's (up to HEAD_CHARS), or the same whole keys stand before the place where they stop.
A whole call is never the same as a cut one: the retry after a split notice is new whatever it repeats, and a piece that ran
starts the count of cut attempts again. How much a cut call would have said cannot be seen: it fills the limit, whether the model
halved it or not. So the guard leaves room for halving (BROKEN_STEPS) before it takes a model for one that changes nothing.

Every step with a call that the output limit cut is an attempt of its own too, whatever varies in its arguments and whatever its
tool: each costs a whole output limit. BROKEN_STEPS of them in a row are a loop. Progress ends the row: a call that ran and
changed something, or a call that ran of a tool whose calls were cut. What only reads, fails, or got lost in between does not.

A call that lost a piece on the way is made again because the connection failed, so its result equals no other: only the cap of
calls that are made on and on (POLLS) and the turn's own steps bound it.
"""

import hashlib
import math
import re
from collections.abc import Collection, Iterable, Sequence
from typing import Literal

import msgspec

from turnwise.rules.advice import DO_SOMETHING_ELSE
from turnwise.rules.schema import shorten
from turnwise.vocab import ArgumentsState, Text, ToolCall, ToolResult

PERIODS = (1, 2, 3)
# Rounds of a loop that run, the first included, and the rounds after which the model is told.
RUNS = 4
TOLD_RUNS = 3
# Steps that are answered from memory, whatever the period: a model that changes nothing after the word and two stored results
# does not listen. So the answer is forced with request 7, 11 or 15 at the latest, for a loop of one, two or three steps.
REMEMBERED_STEPS = 2
# Cut attempts in a row. Each costs a whole output limit, but who halves a call of 32 times the limit has to be cut five times,
# though the notice names a size that fits; and a model that changes nothing has its answer forced with request 7, as in any loop.
BROKEN_STEPS = 6
# Rounds of a call whose results change. Status tools are asked some thirty times; nobody waits through fifty in one turn.
POLLS_TOLD = 40
POLLS = 50
# Enough to tell calls apart that were cut, wherever the cut fell; bounded, as arguments may have megabytes.
HEAD_CHARS = 512

_TOKEN = re.compile(r'"(?:[^"\\]|\\.)*+"?|[{}\[\],:]|[^"{}\[\],:\s]++', re.DOTALL)


# Past this, floats do not tell neighbouring integers apart.
MAX_EXACT = 2**53


def _number(spelt: str) -> int | float | str:
    """`1.0` and `1e0` are 1; what is too large for a float is told apart by its spelling."""
    value = float(spelt)
    if value.is_integer() and abs(value) < MAX_EXACT:
        return int(value)
    return value if math.isfinite(value) else spelt


_DECODER = msgspec.json.Decoder(float_hook=_number)
_PACKER = msgspec.msgpack.Encoder()
# What stands for itself: a hash of so little costs more than to keep and compare it.
SHORT_BYTES = 128


class Beginning(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """How the arguments of a call begin: enough to know it again when it comes cut."""

    tool: str
    head: str
    stem: str = ""


class RememberedCall(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A call as the guard remembers it. `key` is equal for equal calls. `result` is the hash of its result; None while
    there is none, or where no result counts as the same. `answered_by` is the id of the call whose result that was.
    `broken` is the beginning of a call that the model did not write whole, `cut` if the limit cut it, `lost` a call that did
    not arrive whole."""

    id: str
    tool: str
    key: str
    answered_by: str
    broken: Beginning | None = None
    cut: bool = False
    lost: bool = False
    result: str | None = None


class StepSeen(msgspec.Struct, frozen=True):
    calls: tuple[RememberedCall, ...]
    asked: str  # hash of the calls
    answered: str | None  # hash of calls and results; None equals nothing


class Loop(msgspec.Struct, frozen=True, kw_only=True):
    """What the guard saw: `steps` steps, the last of which repeat what came `period` steps before."""

    kind: Literal["repeat", "polling", "broken"]
    steps: int
    period: int
    tools: tuple[str, ...]


class LoopVerdict(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What to do with the calls of a step. `remembered` maps those that do not run to the call whose result is theirs.
    With `ends` the next request is the forced answer, and `ends` is why."""

    calls: tuple[RememberedCall, ...]
    remembered: dict[str, str] = {}
    ends: Loop | None = None


class LoopGuard(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """`before` each step's calls run, `after` when each has its result. The guard itself never changes.

    `same[p - 1]` counts the steps in a row that equal the one `p` before, `alike[p - 1]` those with equal calls.
    """

    recent: tuple[StepSeen, ...] = ()  # the newest last
    same: tuple[int, int, int] = (0, 0, 0)
    alike: tuple[int, int, int] = (0, 0, 0)
    cut: tuple[str, ...] = ()  # the tools of the cut attempts in a row, one for each

    def before(self, calls: Sequence[ToolCall], *, joined: Collection[str] = ()) -> LoopVerdict:
        """Judge the calls of one response, assuming that their results would be the same as before. `joined` are the ids of cut
        calls that were continued and do not fit their tool: they count as failed attempts, like the cut ones."""
        seen = tuple([self._see(call, is_joined=call.id in joined) for call in calls])
        asked = _set_key([call.key for call in seen])
        if asked not in [step.asked for step in self.recent]:
            return LoopVerdict(calls=seen, ends=self._cut_again(seen))
        loops = [
            _loop(self.same[period - 1] + 1, period=period, calls=seen)
            for period in PERIODS
            if self._may_turn(period)
            and self.recent[-period].asked == asked
            and self.recent[-period].answered is not None
        ]
        # Of the periods that fit, the one with the most rounds; the shortest says it best.
        loop = max(loops, key=lambda one: (one.steps / one.period, -one.period), default=None)
        ends = loop if loop is not None and loop.steps >= last_step_of(loop) else self._polling(asked, calls=seen)
        ends = ends or self._cut_again(seen)
        if loop is None or loop.steps <= RUNS * loop.period:
            return LoopVerdict(calls=seen, ends=ends)
        earlier = {call.key: call.answered_by for call in self.recent[-loop.period].calls}
        remembered = {call.id: earlier[call.key] for call in seen if call.broken is None}
        return LoopVerdict(calls=seen, remembered=remembered, ends=ends)

    def after(
        self,
        verdict: LoopVerdict,
        *,
        results: Iterable[ToolResult],
        spared: Collection[str] = (),
        idle: Collection[str] = (),
    ) -> "tuple[LoopGuard, Loop | None]":
        """The guard that knows this step too, and what to tell the model about it (`word`), if anything.

        `results` are those of the calls that ran or were answered at once, without words of ours; `spared` are tools
        that are meant to be repeated, which only the cap of polling holds for; `idle` are tools that change nothing.
        """
        results = tuple(results)
        done = self._answer(verdict, results=results, spared=spared)
        step = StepSeen(done, _set_key([call.key for call in done]), _answered(done))
        recent = (*self.recent, step)[-max(PERIODS) :]
        cut = self._cut_with(done, results=results, idle=idle)
        if step.asked not in [one.asked for one in self.recent]:  # so the results cannot be those of another, either
            guard = LoopGuard(recent=recent, cut=cut)
            return guard, guard._to_tell(step)
        same, alike = list(self.same), list(self.alike)
        for period in PERIODS:
            before = self.recent[-period] if len(self.recent) >= period else None
            equal = (
                before is not None
                and step.answered is not None
                and before.answered == step.answered
                and self._may_turn(period)
            )
            same[period - 1] = same[period - 1] + 1 if equal else 0
            alike[period - 1] = alike[period - 1] + 1 if before is not None and before.asked == step.asked else 0
        guard = LoopGuard(
            recent=recent,
            same=(same[0], same[1], same[2]),
            alike=(alike[0], alike[1], alike[2]),
            cut=cut,
        )
        return guard, None if verdict.remembered else guard._to_tell(step)

    def _answer(
        self, verdict: LoopVerdict, *, results: Iterable[ToolResult], spared: Collection[str]
    ) -> tuple[RememberedCall, ...]:
        """The judged calls with what became of them."""
        by_id = {result.call_id: result for result in results}
        done: list[RememberedCall] = []
        for call in verdict.calls:
            if call.id in verdict.remembered:
                known = {one.key: one for step in self.recent for one in step.calls}
                earlier = known[call.key]
                call = msgspec.structs.replace(call, result=earlier.result, answered_by=earlier.answered_by)
            elif call.broken is not None:
                call = msgspec.structs.replace(call, result="")  # its notice counts characters, so it varies
            elif call.id in by_id and call.tool not in spared and not call.lost:
                call = msgspec.structs.replace(call, result=result_key(by_id[call.id]))
            done.append(call)
        return tuple(done)

    def _may_turn(self, period: int) -> bool:
        """Whether the steps so far can be a round of so many. Calls whose answers come back in turn (`pending`, `retrying`,
        `pending`) are asked again and again, but are no cycle."""
        round_ = self.recent[-period:]
        if period == 1 or len(round_) < period:
            return len(round_) == period
        results: dict[str, str | None] = {}
        unchanged = all(
            results.setdefault(call.key, call.result) == call.result for step in round_ for call in step.calls
        )
        return unchanged and any(step.asked != round_[0].asked for step in round_)

    def _see(self, call: ToolCall, *, is_joined: bool) -> RememberedCall:
        if call.state is ArgumentsState.COMPLETE:
            return RememberedCall(id=call.id, tool=call.name, key=call_key(call), answered_by=call.id, cut=is_joined)
        if call.state is ArgumentsState.LOST:
            return RememberedCall(
                id=call.id, tool=call.name, key=_hash(["lost", call.name]), answered_by=call.id, lost=True
            )
        begun, is_cut = beginning_of(call), call.state is ArgumentsState.TRUNCATED
        others = [other for step in reversed(self.recent) for other in step.calls if other.broken is not None]
        key = next(
            (other.key for other in others if other.broken is not None and begins_alike(begun, other=other.broken)),
            _hash(["broken", call.name, begun.head]),
        )
        return RememberedCall(id=call.id, tool=call.name, key=key, answered_by=call.id, broken=begun, cut=is_cut)

    def _cut_with(
        self, calls: tuple[RememberedCall, ...], *, results: tuple[ToolResult, ...], idle: Collection[str]
    ) -> tuple[str, ...]:
        """The row of cut attempts behind a step."""
        worked = {result.call_id for result in results if not result.is_error}
        ran = [call.tool for call in calls if call.broken is None and call.id in worked]
        if any(tool not in idle or tool in self.cut for tool in ran):
            return ()
        tool = next((call.tool for call in calls if call.cut), None)
        return self.cut if tool is None else (*self.cut, tool)[-BROKEN_STEPS:]

    def _cut_again(self, calls: tuple[RememberedCall, ...]) -> Loop | None:
        """The end of the row of cut attempts. A step in which something may still run is not it."""
        if len(self.cut) + 1 < BROKEN_STEPS or not all(call.cut for call in calls):
            return None
        tools = tuple(dict.fromkeys([*self.cut, *[call.tool for call in calls]]))
        return Loop(kind="broken", steps=BROKEN_STEPS, period=1, tools=tools)

    def _polling(self, asked: str, *, calls: tuple[RememberedCall, ...]) -> Loop | None:
        """The cap of calls that are made on and on, whatever they return."""
        for period in PERIODS:
            if len(self.recent) >= period and self.recent[-period].asked == asked:
                loop = _loop(self.alike[period - 1] + 1, period=period, calls=calls, kind="polling")
                if loop.steps >= POLLS * period:
                    return loop
        return None

    def _to_tell(self, step: StepSeen) -> Loop | None:
        loops = [
            _loop(repeats, period=period, calls=step.calls)
            for period, repeats in zip(PERIODS, self.same, strict=True)
            if period + repeats >= TOLD_RUNS * period
        ]
        if loops:
            return min(loops, key=lambda one: one.period)
        for period, repeats in zip(PERIODS, self.alike, strict=True):
            if period + repeats == POLLS_TOLD * period:
                return _loop(repeats, period=period, calls=step.calls, kind="polling")
        if len(self.cut) >= RUNS and all(call.cut for call in step.calls):
            return Loop(kind="broken", steps=len(self.cut), period=1, tools=tuple(dict.fromkeys(self.cut)))
        return None


def call_key(call: ToolCall) -> str:
    """Equal for calls of one tool with equal arguments, however these are spelled. Linear in the arguments."""
    if call.free_form:
        return _hash(["text", call.name, call.arguments])
    try:
        value = _DECODER.decode(call.arguments)
        return _hash(["json", call.name, msgspec.json.encode(value, order="sorted")])
    except (msgspec.MsgspecError, ValueError, RecursionError, OverflowError):
        return _hash(["raw", call.name, call.arguments])


def result_key(result: ToolResult) -> str:
    """Equal for results that say the same. Linear in their content."""
    pieces: list[str | bytes] = ["error" if result.is_error else "result"]
    for part in result.content:
        if isinstance(part, Text):
            pieces += ["text", part.text]
        else:
            pieces += [part.media_type, part.data or b"", part.url or "", part.file_id or ""]
    return _hash(pieces)


def stem_of(arguments: str) -> str:
    """The whole keys with their values that stand before the place where a JSON object stops, and the key that it stops
    in: `{"path":"a","content":"x` -> `{"path":"a"} content`. Empty where none is whole. Looks at the first HEAD_CHARS."""
    if not arguments.lstrip().startswith("{"):
        return ""
    depth = 0
    whole, key, key_before = 0, "", ""
    for found in _TOKEN.finditer(arguments, 0, HEAD_CHARS):
        token = found.group()
        if token in "{[":
            depth += 1
        elif token in "}]":
            depth -= 1
            if not depth:
                return arguments[: found.end()]
        elif depth == 1 and token == ",":
            whole, key = found.start(), ""
        elif depth == 1 and token == ":" and not key:
            key = key_before
        key_before = token
    return f"{arguments[:whole]}}} {key}" if whole else ""


def beginning_of(call: ToolCall) -> Beginning:
    """What the call is known by when it comes again and is cut."""
    return Beginning(tool=call.name, head=call.arguments[:HEAD_CHARS], stem=stem_of(call.arguments))


def begins_alike(one: Beginning, *, other: Beginning) -> bool:
    """Whether both can be attempts at one call: one text begins with the other, or stops behind the same whole keys."""
    if one.tool != other.tool:
        return False
    return (
        one.head.startswith(other.head) or other.head.startswith(one.head) or bool(one.stem and one.stem == other.stem)
    )


def word(loop: Loop) -> str:
    """What stands behind the result of a step that repeats earlier ones."""
    return f"(Note: {_seen(loop)} {_ADVICE[loop.kind]})"


_ADVICE = {
    "repeat": f"It will not change by being repeated. {DO_SOMETHING_ELSE}",
    "polling": "If you are waiting for something, say so in your answer instead of asking on.",
    "broken": "Sending it again as it is cannot work. Make it much smaller, or answer without it.",
}


def remembered_result(call: ToolCall, *, earlier: ToolResult, changes: bool) -> ToolResult:
    """The result of a call that was not run because it has run before. Where the tool `changes` something it is an error,
    as the change was not made once more."""
    said = "and what it does was not done again. " if changes else ""
    text = (
        f"Not run again: this same call of `{call.name}` has been made over and over in this turn and gave the same result each "
        f"time, {said or 'so this is that result. '}{DO_SOMETHING_ELSE} The result was:"
    )
    return ToolResult(
        call_id=call.id,
        name=call.name,
        content=(Text(text), *earlier.content),
        is_error=changes or earlier.is_error,
        free_form=call.free_form,
    )


def why_it_ends(loop: Loop) -> str:
    """What the model is told with the forced answer, and what stands in an answer of ours."""
    return f"The turn was going in circles: {_seen(loop)}"


def _seen(loop: Loop) -> str:
    names = ", ".join([f"`{shorten(name)}`" for name in loop.tools])
    what = f"the call of {names}" if len(loop.tools) == 1 else f"the calls of {names}"
    match loop.kind:
        case "broken":
            return f"{what} did not arrive whole {loop.steps} times in a row."
        case "polling":
            return f"{what} came again and again for {loop.steps} steps."
        case "repeat":
            pass
    if loop.period == 1:
        return f"{what} came {loop.steps} times in a row, with the same result each time."
    repeats = loop.steps - loop.period
    return f"the last {repeats} steps each repeated the step {loop.period} before, with the same result."


def _loop(
    repeats: int,
    *,
    period: int,
    calls: tuple[RememberedCall, ...],
    kind: Literal["repeat", "polling"] = "repeat",
) -> Loop:
    broken = period == 1 and kind == "repeat" and all(call.broken is not None for call in calls)
    tools = tuple(dict.fromkeys([call.tool for call in calls]))
    return Loop(kind="broken" if broken else kind, steps=period + repeats, period=period, tools=tools)


def last_step_of(loop: Loop) -> int:
    """The number of the step, counted from the loop's first, with which it ends the turn."""
    return BROKEN_STEPS if loop.kind == "broken" else RUNS * loop.period + REMEMBERED_STEPS


def _answered(calls: Sequence[RememberedCall]) -> str | None:
    if None in [call.result for call in calls]:
        return None
    return _set_key([f"{call.key} {call.result}" for call in calls])


def _set_key(keys: Sequence[str]) -> str:
    """Calls side by side have no order, and equal ones are one."""
    if len(keys) == 1:
        return keys[0]
    unique = set(keys)
    return unique.pop() if len(unique) == 1 else _hash(sorted(unique))


def _hash(pieces: Sequence[str | bytes]) -> str:
    """Of the pieces in order; their lengths keep neighbours apart."""
    try:
        packed = _PACKER.encode(pieces)
    except UnicodeEncodeError:
        whole = [piece if isinstance(piece, bytes) else piece.encode("utf-8", "surrogatepass") for piece in pieces]
        packed = _PACKER.encode(whole)
    if len(packed) <= SHORT_BYTES:
        return packed.decode("latin-1")
    return hashlib.blake2b(packed, digest_size=16).hexdigest()
