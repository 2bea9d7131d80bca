"""One turn of a person's: what may interrupt it, what is noted of it while a face watches, and the files that a prompt names."""

from collections.abc import Callable, Collection, Sequence

import msgspec

from turnwise.agent.agent_setup import own_tools
from turnwise.agent.results import RunResult
from turnwise.agent.runs import Run
from turnwise.coding_agent.prompts import PromptPart, with_files
from turnwise.coding_agent.run_events import DeniedCall, denied_in
from turnwise.coding_agent.workplace import Workplace
from turnwise.rules.advice import for_people
from turnwise.rules.answer_room import read_local_answer, results_said
from turnwise.rules.permissions import Policy, judge_permission
from turnwise.running.run_context import is_planning
from turnwise.running.watcher_events import ChildSeen, ToolFinished, ToolStarted, WatcherEvent
from turnwise.turn.config import TurnResult
from turnwise.turn.events import PlannedCall
from turnwise.turn.outcomes import ENDED, HAD_ARRIVED, SAY_NOTHING
from turnwise.vocab import StopReason, ToolCall

WRITERS = frozenset({"write", "edit", "apply_patch"})  # one that failed has changed nothing


class InterruptibleRun:
    """The run of a turn under a face, once there is one. An interrupt before that ends it as it begins."""

    def __init__(self) -> None:
        self._run: Run | None = None
        self._is_interrupted = False

    async def to_end(self, run: Run) -> RunResult:
        """The result of `run`, which is this turn's from now on."""
        self._run = run
        if self._is_interrupted:
            run.interrupt()
        return await run

    def interrupt(self) -> None:
        self._is_interrupted = True
        if self._run is not None:
            self._run.interrupt()

    def forget_interrupt(self) -> None:
        """What was interrupted before the run was something else."""
        self._is_interrupted = False

    def say(self, parts: Sequence[PromptPart]) -> bool:
        """False: nothing runs that could hear it. Raises CallerError for what is no message."""
        return self._run is not None and self._run.say(parts)


class Seeing:
    """Lets a face watch: `show` is given each event, `tell` lines about the run. What they raise (a closed pipe) ends the run,
    as nobody would see the rest, and is kept in `error`.

    `denied` are the calls that were not allowed to run, with the path of the sub-agent and the reason."""

    def __init__(
        self,
        show: Callable[[WatcherEvent], object],
        *,
        tell: Callable[[str], object],
        run: InterruptibleRun,
        commands_note: str,
    ) -> None:
        self._show, self._tell = show, tell
        self._run = run
        self._commands_note = commands_note
        self.denied: list[DeniedCall] = []
        self._at_work: dict[tuple[str, str], ToolCall] = {}  # every call that ran and did not fail, or may have
        self.error: Exception | None = None

    def __call__(self, seen: WatcherEvent) -> None:
        parent, inner = _innermost(seen)
        match inner:
            case ToolStarted(call=call):
                self._at_work[parent, call.id] = call
                if call.name == "bash":
                    self.before_command()
            case ToolFinished(result=result) if result.is_error and result.name in WRITERS:
                self._at_work.pop((parent, result.call_id), None)
            case _:
                pass
        if (denied := denied_in(seen)) is not None:
            self.denied.append(denied)
        self._guarded(lambda: self._show(seen))

    async def may_have_changed(self, place: Workplace) -> bool:
        """Whether a call ran that does more than read: one that the rules' defaults would have asked about."""
        known = {name: tool.effect for name, tool in own_tools().items()}
        known |= {name: offer.effect for name, offer in place.offers.items()}
        calls = [call for call in self._at_work.values() if known.get(call.name, "execute") not in ("none", "read")]
        if any(known.get(call.name) != "execute" for call in calls):
            return True
        planned = [PlannedCall(call=call, arguments=call.arguments, timeout_s=0) for call in calls]
        facts = await place.inspect(planned) if planned else ()
        bare = msgspec.structs.replace(place.policy, rules=(), attended=True, mode="ask")
        reading = [one for one in facts if judge_permission(one, policy=bare).kind == "allow"]
        return len(reading) < len(calls)

    def before_command(self) -> None:
        """Say once how commands run here, before the first outside plan mode, which has said itself what they find."""
        if self._commands_note and not is_planning():
            note, self._commands_note = self._commands_note, ""
            self._guarded(lambda: self._tell(note))

    def _guarded(self, show: Callable[[], object]) -> None:
        if self.error is None:
            try:
                show()
            except Exception as error:  # noqa: BLE001 (kept, and raised after the turn has ended in good order)
                self.error = error
                self._run.interrupt()


def _innermost(seen: WatcherEvent) -> tuple[str, WatcherEvent]:
    """What was seen, and the id of the call of the sub-agent that it is of."""
    parent = ""
    while isinstance(seen, ChildSeen):
        parent, seen = f"{parent}/{seen.call_id}", seen.seen
    return parent, seen


async def typed_parts(
    typed: str, *, place: Workplace, policy: Policy, tell: Callable[[str], object]
) -> list[PromptPart]:
    """What a person typed, with the files that it names. `tell` is given what was put in, what not, and why."""
    return await with_files(typed, workspace=place.workspace, inspect=place.inspect, policy=policy, tell=tell)


# What of a turn's end a person at a terminal has not seen yet: text that was streamed is not shown a second time.


_CANCELLED = ENDED["cancel"][1]  # the line below the answer says so too


class ShownTurn(msgspec.Struct, frozen=True, kw_only=True):
    """What stands on the screen of this turn: `at_hand` of the last response, `before` of those before it, `results` the ids
    of calls whose result stands there whole. `notes`: the line that says how the turn ended comes there too."""

    at_hand: str = ""
    before: str = ""
    results: Collection[str] = ()
    notes: bool = True

    def has(self, text: str) -> bool:
        wanted = text.strip()
        return wanted in self.at_hand or wanted in self.before or wanted in self.before + self.at_hand

    def ends_with(self, text: str) -> bool:
        return self.at_hand.strip() == text.strip() or (
            not self.at_hand and self.before.rstrip().endswith(text.strip())
        )


class Unseen(msgspec.Struct, frozen=True):
    """`rest` continues the current response directly, `answer` is another text of the model's; `own` is turnwise's."""

    rest: str = ""
    answer: str = ""
    own: str = ""


def unseen(result: TurnResult, *, shown: ShownTurn) -> Unseen:
    if result.origin == "local":
        return _of_local_answer(result, shown=shown)
    if shown.ends_with(result.text):
        return Unseen()
    if result.stop_reason is StopReason.REFUSED and _has_lines(result.text, shown=shown):
        return Unseen()
    return Unseen(answer=result.text)


def _of_local_answer(result: TurnResult, *, shown: ShownTurn) -> Unseen:
    if result.stop_reason is StopReason.REFUSED:
        own, _, arrived = result.text.partition(HAD_ARRIVED)
        return Unseen(own=own if _has_lines(arrived, shown=shown) else result.text)
    parts = read_local_answer(result.text, messages=result.messages, left_out=SAY_NOTHING)
    rest, said = _rest_of(parts.said, shown=shown)
    why = "" if parts.why == _CANCELLED and shown.notes else parts.why
    results = tuple([one for one in parts.results if one.call_id not in shown.results])
    own = msgspec.structs.replace(parts, why=why, said=said, results=()).text
    return Unseen(rest=rest, own=for_people(f"{own}{results_said(results)}".strip()))


def _rest_of(said: str, *, shown: ShownTurn) -> tuple[str, str]:
    """Of what the model had said: the rest of the current response, or all of it if nothing of it is on the screen."""
    if shown.has(said):
        return "", ""
    begun = shown.at_hand.lstrip()
    return (said[len(begun) :], "") if begun and said.startswith(begun) else ("", said)


def _has_lines(text: str, *, shown: ShownTurn) -> bool:
    return shown.has(text) or all(shown.has(line) for line in text.splitlines())
