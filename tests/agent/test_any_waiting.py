"""Whatever waits, in whatever order it is answered: each call ends with one true result (issue 14, done-when 3)."""

import asyncio
import tempfile
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from flat_agents import flat_agent
from thoroughness import examples
from turnwise import Agent, Approval, Asking, Hook, Journal, Policy, Run, StopReason, ToolSpec, tool
from turnwise.agent.results import RunResult
from turnwise.base.clock import SystemClock
from turnwise.errors import CallerError
from turnwise.rules.permissions import PermissionRule
from turnwise.testing import ScriptedModel, call
from turnwise.vocab import Message, Request, Text, ToolCall, ToolResult

PROGRAM = "try:\n    publish(page='inside')\nexcept RuntimeError as error:\n    print(error)\n"
# Where a first run is cancelled, if at all: in a tool, the tool of a sub-agent or of a program, or in a hook after tools. There
# the asks were left for later; in a hook before tools nothing was.
PLACES = ("", "", "", "tool", "child", "program", "after_tool", "before_tool")
KINDS = ("publish", "publish", "phone", "phone", "look", "task", "script")
# How a waiting call may be answered. After `stale` and `later` it waits on; the wrong ones are refused as a whole.
ANSWERS = ("none", "none", "allow", "allow", "deny", "both", "later", "stale")
POLICIES: tuple[Policy | None, ...] = (
    Policy(attended=True),
    Policy(attended=True),
    Policy(attended=True, rules=(PermissionRule(verdict="allow", tool="publish"),)),
    Policy(attended=False),
    Policy(attended=False, unattended="allow"),
    None,
)
published: list[str] = []
running: list[Run] = []


@tool(effect="write")
def publish(page: str) -> str:
    """Put a page on the web site."""
    published.append(page)
    return f"{page} is published"


@tool(effect="read")
def look(page: str) -> str:
    """Look at a page."""
    return f"{page} is empty"


async def cancel(_: object = None) -> None:
    """End the run at hand, and never end by itself."""
    running[-1].interrupt()
    await asyncio.Event().wait()


@tool(effect="read")
async def stop() -> str:
    """Stop."""
    await cancel()
    return "stopped"


async def to_end(agent: Agent, prompt: str | None = None, **options: Any) -> RunResult:
    """The result of a run that `cancel` can end."""
    running[:] = [agent.start(prompt, **options)]
    return await running[-1]


async def later(asking: Asking) -> Sequence[Approval]:
    return [Approval(call_id=ask.call.id, verdict="later") for ask in asking.asks]


def as_a_child(request: Request) -> Any:
    """What the model says to a sub-agent: it, too, asks and calls the client."""
    if request.messages[-1] == Message("user", (Text("Stop."),)):
        return call("stop")
    return [call("publish", page="of a child"), call("phone")]


def one_call(kind: str, number: int) -> ToolCall:
    match kind:
        case "phone":
            return call("phone")
        case "task":
            return call("task", agent="writer", prompt="Publish it.")
        case "script":
            return call("script", program=PROGRAM)
        case _:
            return call(kind, page=f"p{number}")


class Waiting:
    """A session as its user sees it, beside what must be true of it. `truth` is the outcome of each call, by id: None while
    it waits."""

    def __init__(self, kinds: Sequence[str], *, by: str, folder: Path, stops: str = "") -> None:
        self.by = by
        self.kinds = kinds
        calls = [one_call(kind, number) for number, kind in enumerate(kinds)]
        stopping = {
            "tool": [call("stop")],
            "child": [call("task", agent="writer", prompt="Stop.")],
            "program": [call("script", program="stop()")],
            "after_tool": [call("look", page="p")],
        }
        self.model = ScriptedModel([[*calls, *stopping.get(stops, [])], "Done."])
        self.child = ScriptedModel([as_a_child] * (len(kinds) + 1))
        self.cancelled = bool(stops)
        self.journal = Journal(folder / "journal.db", clock=SystemClock()) if by == "session" else None
        self.result = asyncio.run(to_end(self._agent(POLICIES[0], stops=stops), "Go."))
        calls = [part for part in self.model_calls() if part.name != ""]
        self.page = {one.id: f"p{number}" for number, one in enumerate(calls)}
        self.kind = {one.id: one.name for one in calls}
        open_kinds = ("phone",) if stops == "before_tool" else ("publish", "phone")
        ran = "cut short {}" if stops else "ran {}"
        self.truth: dict[str, str | None] = {
            one.id: None if one.name in open_kinds else ran.format(one.name) for one in calls
        }

    def model_calls(self) -> list[ToolCall]:
        return [part for message in self.result.messages for part in message.parts if isinstance(part, ToolCall)]

    def _agent(self, policy: Policy | None, *, stops: str = "") -> Agent:
        attended = policy is not None and policy.attended
        common: dict[str, Any] = {"tools": [publish, look, stop, ToolSpec(name="phone")], "journal": self.journal}
        child = flat_agent(
            "openai_chat:small",
            base_url=self.child.endpoint.base_url,
            transport=self.child,
            policy=Policy(attended=True),
            **common,
        )
        return flat_agent(
            "openai_chat:scripted",
            base_url=self.model.endpoint.base_url,
            transport=self.model,
            policy=policy,
            approver=later if attended else None,
            agents={"writer": child},
            script=True,
            hooks=[Hook(point=stops, function=cancel, name="cancel")] if stops in ("before_tool", "after_tool") else [],
            **common,
        )

    @property
    def open(self) -> list[str]:
        return [id for id, outcome in self.truth.items() if outcome is None]

    def answer(self, options: dict[str, Any], *, policy: Policy | None, stops: str = "") -> RunResult:
        before: dict[str, Any] = (
            {"session": self.result.session} if self.by == "session" else {"history": self.result.history}
        )
        self.result = asyncio.run(to_end(self._agent(policy, stops=stops), **before, **options))
        self.cancelled = bool(stops)
        return self.result

    def check(self) -> None:
        """What the run says of what waits is true, and only what a person allowed has run."""
        allowed = [self.page[id] for id, outcome in self.truth.items() if outcome == "allowed"]
        assert Counter(published) == Counter(allowed)
        asks = [id for id in self.open if self.kind[id] == "publish"]
        assert [call.id for call in self.result.pending] == self.open
        assert [ask.call.id for ask in self.result.asks] == asks
        self.check_results(self.result.messages)
        if self.cancelled:
            assert self.result.stop_reason is StopReason.CANCELLED and len(self.model.asked) == 1
            return
        assert (self.result.stop_reason is StopReason.WAITING) == bool(self.open)
        assert len(self.model.asked) == (1 if self.open else 2)
        if not self.open:
            self.check_results(self.model.asked[-1].messages)
            assert self.result.text == "Done." and self.result.complete

    def check_results(self, messages: Sequence[Message]) -> None:
        results = [part for message in messages for part in message.parts if isinstance(part, ToolResult)]
        assert sorted([one.call_id for one in results]) == sorted([id for id in self.truth if id not in self.open])
        for one in results:
            words = "".join([part.text for part in one.content if isinstance(part, Text)])
            match self.truth[one.call_id]:
                case "allowed":
                    assert words == f"{self.page[one.call_id]} is published"
                case "denied":
                    assert "the user denied it" in words
                case "stopped":
                    assert words == "Not run: cancelled by the user before this call had started."
                case "cut short look":
                    assert "is empty" in words or "ancelled by the user" in words or "may or may not have run" in words
                case "cut short task" | "cut short script" | "cut short stop":
                    assert "ancelled" in words or "did not finish" in words or "a program cannot wait" in words
                case "cut short publish":
                    assert words == "Not run: cancelled by the user before this call had started."
                case "ran look":
                    assert words == f"{self.page[one.call_id]} is empty"
                case "ran task":
                    assert "did not finish (it waits for `phone`, `publish`, which nobody can answer for it)" in words
                case "ran script":
                    assert "a program cannot wait that long" in words
                case given:
                    assert words == given


def drawn(data: st.DataObject, waiting: Waiting) -> tuple[dict[str, Any], dict[str, str], bool]:
    """The options of one run, what they decide, and whether something of them is wrong."""
    approvals: list[Approval] = []
    results: dict[str, str] = {}
    decided: dict[str, str] = {}
    for id in data.draw(st.permutations(waiting.open)):
        given_ = data.draw(st.sampled_from(ANSWERS))
        if given_ == "none":
            continue
        if waiting.kind[id] == "phone":
            results[id] = decided[id] = f"said {id}"
            continue
        digest = "of something else" if given_ == "stale" else ""
        verdicts: dict[str, Any] = {"deny": ["deny"], "later": ["later"], "both": ["allow", "deny"]}
        approvals += [
            Approval(call_id=id, verdict=one, digest=digest) for one in verdicts.get(given_, ["allow", "allow"])
        ]
        if given_ in ("allow", "deny", "both"):
            decided[id] = "allowed" if given_ == "allow" else "denied"
    match data.draw(st.sampled_from(["right"] * 5 + ["unknown", "kind", "again"])):
        case "unknown":
            approvals.append(Approval(call_id="call_9_9", verdict="allow"))
        case "kind" if phones := [id for id in waiting.open if waiting.kind[id] == "phone"]:
            approvals.append(Approval(call_id=data.draw(st.sampled_from(phones)), verdict="allow"))
        case "kind" if waiting.open:
            results[data.draw(st.sampled_from(waiting.open))] = "it is out"
        case "again" if done := [id for id in waiting.truth if id not in waiting.open]:
            results[data.draw(st.sampled_from(done))] = "once more"
        case _:
            options = {"approvals": approvals} if approvals else {}
            return {**options, **({"results": results} if results else {})}, decided, False
    return {"approvals": approvals, "results": results}, {}, True


def the_rest(waiting: Waiting, *, allows: bool) -> tuple[dict[str, Any], dict[str, str]]:
    asks = [id for id in waiting.open if waiting.kind[id] == "publish"]
    results = {id: f"said {id}" for id in waiting.open if id not in asks}
    verdict = "allow" if allows else "deny"
    decided = {**results, **dict.fromkeys(asks, "allowed" if allows else "denied")}
    approvals = [Approval(call_id=id, verdict=verdict) for id in asks]
    options = {**({"approvals": approvals} if approvals else {}), **({"results": results} if results else {})}
    return options, decided


@pytest.mark.promise("wait:ask", "step:client-tools", "step:every-call-answered")
@settings(max_examples=examples(60), deadline=None, derandomize=True)
@given(data=st.data())
def test_any_answers_in_any_runs_end_with_one_true_result_for_each_call(data: st.DataObject) -> None:
    """Asks and client-side calls beside plain ones, sub-agents and programs, by `session=` and `history=`, under policies that
    change, in runs that are cancelled: nothing runs that nobody allowed, nothing that waits is lost, and no request leaves
    before all is there."""
    published.clear()
    kinds = ["publish", *data.draw(st.lists(st.sampled_from(KINDS), min_size=1, max_size=4))]
    with tempfile.TemporaryDirectory() as folder:
        by, stops = data.draw(st.sampled_from(["session", "history"])), data.draw(st.sampled_from(PLACES))
        waiting = Waiting(kinds, by=by, folder=Path(folder), stops=stops)
        waiting.check()
        for _ in range(data.draw(st.integers(0, 4))):
            if not waiting.open:
                break
            options, decided, is_wrong = drawn(data, waiting)
            policy = data.draw(st.sampled_from(POLICIES))
            if is_wrong or not options:
                with pytest.raises(CallerError):
                    waiting.answer(options, policy=policy)
            else:
                # A hook sees the calls that wait for a person before their answers count.
                stops = any(waiting.kind[id] == "publish" for id in waiting.open) and data.draw(st.booleans())
                waiting.answer(options, policy=policy, stops="before_tool" if stops else "")
                answered = [one.call_id for one in options.get("approvals", ()) if one.verdict != "later"]
                waiting.truth |= {**decided, **(dict.fromkeys(answered, "stopped") if stops else {})}
            waiting.check()
        if not waiting.open and waiting.cancelled:
            waiting.answer({"prompt": "Go on."}, policy=POLICIES[0])
            waiting.check()
        if waiting.open:
            options, decided = the_rest(waiting, allows=data.draw(st.booleans()))
            waiting.answer(options, policy=POLICIES[0])
            waiting.truth |= decided
            waiting.check()
        if waiting.journal is not None:
            waiting.journal.close()
