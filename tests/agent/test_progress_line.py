"""Answering a part of what waits keeps the rest: asks and client-side calls, over one and several resumes (issue 14, 1)."""

import asyncio
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from flat_agents import flat_agent
from turnwise import Approval, Asking, Journal, Policy, Run, StopReason, ToolSpec, tool
from turnwise.agent.results import RunResult
from turnwise.base.clock import SystemClock
from turnwise.errors import CallerError
from turnwise.journal.turn_writer import ToolsStarted
from turnwise.rules.permissions import PermissionRule
from turnwise.testing import ScriptedModel, call
from turnwise.turn.events import TurnStarted
from turnwise.vocab import Fault, FaultKind, Message, Text, ToolResult

ATTENDED = Policy(attended=True)
PHONE = ToolSpec(name="phone")
published: list[str] = []


@tool(effect="write")
def publish(page: str) -> str:
    """Put a page on the web site."""
    published.append(page)
    return f"{page} is published"


@tool(effect="read")
def look(page: str) -> str:
    """Look at a page."""
    return f"{page} is empty"


async def later(asking: Asking) -> Sequence[Approval]:
    return [Approval(call_id=ask.call.id, verdict="later") for ask in asking.asks]


@pytest.fixture(autouse=True)
def _nothing_published() -> None:
    published.clear()


class House:
    """An agent, and its runs by `session=` or by `history=`. A second agent (another process) may take over."""

    def __init__(
        self,
        script: Sequence[Any],
        *,
        by: str,
        folder: Path,
        seen: Callable[[Run], object] = id,
        **options: Any,
    ) -> None:
        self.seen = seen
        self.model = ScriptedModel(script)
        self.by = by
        self.journal = Journal(folder / "journal.db", clock=SystemClock()) if by == "session" else None
        self.options: dict[str, Any] = {
            "tools": [publish, look, PHONE],
            "policy": ATTENDED,
            "approver": later,
            **options,
        }
        self.last: RunResult | None = None

    def run(
        self, prompt: str | Message | None = None, *, changed: dict[str, Any] | None = None, **options: Any
    ) -> RunResult:
        agent = flat_agent(
            "openai_chat:scripted",
            base_url=self.model.endpoint.base_url,
            transport=self.model,
            journal=self.journal,
            **{**self.options, **(changed or {})},
        )
        if self.last is not None:
            before: dict[str, Any] = (
                {"session": self.last.session, "drop_left": True}
                if self.by == "session"
                else {"history": self.last.history}
            )
            options = {**before, **options}

        async def to_end() -> RunResult:
            run = agent.start(prompt, **options)
            self.seen(run)
            return await run

        self.last = asyncio.run(to_end())
        return self.last

    @property
    def requests(self) -> int:
        return len(self.model.asked)

    def ids(self) -> list[str]:
        assert self.last is not None
        return [call.id for call in self.last.pending]


by_either = pytest.mark.parametrize("by", ["session", "history"])


def yes(*ids: str) -> list[Approval]:
    return [Approval(call_id=id, verdict="allow") for id in ids]


def no(*ids: str) -> list[Approval]:
    return [Approval(call_id=id, verdict="deny") for id in ids]


def said(messages: Sequence[Message]) -> dict[str, str]:
    """Call id -> the words of its one result."""
    found: dict[str, str] = {}
    for message in messages:
        for part in message.parts:
            if isinstance(part, ToolResult):
                assert part.call_id not in found, "two results for one call"
                found[part.call_id] = "".join([one.text for one in part.content if isinstance(one, Text)])
    return found


@by_either
@pytest.mark.promise("wait:ask")
def test_the_ask_that_nobody_answered_waits_on(by: str, tmp_path: Path) -> None:
    """One of two is approved: it runs at once, no request leaves, and the other is listed and answered by the next run."""
    house = House([[call("publish", page="a"), call("publish", page="b")], "Both."], by=by, folder=tmp_path)
    first = house.run("Publish.")
    a, b = house.ids()
    second = house.run(approvals=yes(a))
    assert second.stop_reason is StopReason.WAITING and not second.complete
    assert house.ids() == [b] and [ask.call.id for ask in second.asks] == [b]
    assert second.asks[0] == first.asks[1]
    assert published == ["a"] and house.requests == 1
    third = house.run(approvals=no(b))
    assert (third.text, third.complete, published) == ("Both.", True, ["a"])
    words = said(third.messages)
    assert words[a] == "a is published" and "the user denied it" in words[b]
    assert house.requests == 2


@by_either
@pytest.mark.promise("wait:ask", "step:client-tools")
@pytest.mark.parametrize("first_answer", ["ask", "phone"])
def test_an_ask_and_a_client_side_call_are_answered_one_after_the_other(
    by: str, first_answer: str, tmp_path: Path
) -> None:
    """In either order each run lists what is still open; the request carries both results, in the order of the calls."""
    house = House(
        [["Two things.", call("publish", page="a"), call("phone"), call("look", page="x")], "Done."],
        by=by,
        folder=tmp_path,
    )
    house.run("Go.")
    a, phone = house.ids()
    answers: dict[str, dict[str, Any]] = {"ask": {"approvals": yes(a)}, "phone": {"results": {phone: "they agree"}}}
    second = house.run(**answers.pop(first_answer))
    assert second.stop_reason is StopReason.WAITING and house.requests == 1
    assert house.ids() == [phone if first_answer == "ask" else a]
    assert [ask.call.id for ask in second.asks] == ([] if first_answer == "ask" else [a])
    (rest,) = answers.values()
    third = house.run(**rest)
    assert third.text == "Done." and third.complete and published == ["a"] and house.requests == 2
    results = [part for part in house.model.asked[-1].messages[-1].parts if isinstance(part, ToolResult)]
    assert [part.call_id for part in results][:2] == [a, phone] and len(results) == 3
    assert said([Message("tool", tuple(results))])[phone] == "they agree"


@by_either
@pytest.mark.promise("step:client-tools")
def test_client_side_results_may_come_one_by_one(by: str, tmp_path: Path) -> None:
    """Two calls, two runs: the first ends as `waiting` with the other, and no request leaves before both are there."""
    house = House([[call("phone"), call("phone")], "Done."], by=by, folder=tmp_path)
    house.run("Go.")
    one, two = house.ids()
    second = house.run(results={two: "two"})
    assert second.stop_reason is StopReason.WAITING and house.ids() == [one] and house.requests == 1
    assert house.run(results={one: "one"}).text == "Done."
    assert said(house.model.asked[-1].messages) == {one: "one", two: "two"}


@by_either
@pytest.mark.promise("wait:ask", "step:client-tools")
def test_an_answer_of_the_wrong_kind_is_the_callers_mistake_and_loses_nothing(by: str, tmp_path: Path) -> None:
    """An approval for a client-side call, a result for an ask, an unknown id, an answer that came before: named, and everything
    waits as before."""
    house = House(
        [[call("publish", page="a"), call("phone"), call("publish", page="b")], "Done."], by=by, folder=tmp_path
    )
    house.run("Go.")
    a, phone, b = house.ids()
    wrong: list[tuple[dict[str, Any], str]] = [
        ({"approvals": yes(phone)}, "waits for a result .* `results`"),
        ({"approvals": [*yes(a), *no(phone)]}, "waits for a result .* `results`"),
        ({"results": {a: "it is out"}}, "waits for an approval .* `approvals`"),
        ({"results": {phone: "ok", "nobody": 1}}, "no pending call has the id `nobody`"),
        ({"approvals": yes("nobody", a)}, "no pending call has the id `nobody`"),
        ({}, "nothing to send"),
        ({"results": {}}, "nothing to send"),
    ]
    for options, words in wrong:
        with pytest.raises(CallerError, match=words):
            house.run(**options)
    house.run(approvals=yes(a))
    with pytest.raises(CallerError, match=f"no pending call has the id `{a}`"):
        house.run(approvals=yes(a, b))
    assert published == ["a"]
    assert house.run(approvals=yes(b), results={phone: "ok"}).text == "Done."
    assert published == ["a", "b"]


@by_either
@pytest.mark.parametrize("answers", ["approved", "denied", "some", "both kinds"])
@pytest.mark.promise("wait:ask", "step:client-tools")
def test_no_repair_tells_of_a_result_that_an_answered_call_did_get(answers: str, by: str, tmp_path: Path) -> None:
    """Issue 15: `orphan_call` said that a call has no result, and the provider received the one that it gave. Also where an
    answer is missing still: such a call waits, and nothing says that it has no result."""
    house = House(
        [[call("publish", page="a"), call("phone"), call("publish", page="b")], "Done."], by=by, folder=tmp_path
    )
    house.run("Go.")
    a, phone, b = house.ids()
    runs: dict[str, list[dict[str, Any]]] = {
        "approved": [{"approvals": yes(a, b), "results": {phone: "ok"}}],
        "denied": [{"approvals": no(a, b), "results": {phone: "ok"}}],
        "some": [{"approvals": yes(b)}, {"approvals": no(a)}, {"results": {phone: "ok"}}],
        "both kinds": [{"results": {phone: "ok"}}, {"approvals": [*yes(a), *no(b)]}],
    }
    repairs = [repair for options in runs[answers] for repair in house.run(**options).repairs]
    assert [repair for repair in repairs if repair.kind == "orphan_call"] == []
    assert house.last is not None and house.last.text == "Done."
    assert "There is no result" not in str(said(house.model.asked[-1].messages))


@by_either
@pytest.mark.promise("wait:ask", "step:history-healed")
def test_the_repair_is_told_where_a_call_stays_without_a_result(by: str, tmp_path: Path) -> None:
    """Whoever goes on with a word instead of an answer reads of each call that got no result."""
    house = House([[call("publish", page="a"), call("phone")], "As you like."], by=by, folder=tmp_path)
    house.run("Go.")
    waiting = house.ids()
    repairs = house.run("Never mind.").repairs
    assert [(repair.kind, repair.where) for repair in repairs] == [("orphan_call", f"call {id}") for id in waiting]


@by_either
@pytest.mark.promise("wait:ask")
def test_of_two_answers_for_one_ask_the_denial_counts(by: str, tmp_path: Path) -> None:
    """Doubled answers, equal or not, decide one call and leave the others."""
    house = House([[call("publish", page="a"), call("publish", page="b")], "Done."], by=by, folder=tmp_path)
    house.run("Go.")
    a, b = house.ids()
    second = house.run(approvals=[*yes(a, a), *no(a)])
    assert second.stop_reason is StopReason.WAITING and house.ids() == [b] and published == []
    third = house.run(approvals=[Approval(call_id=b, verdict="later"), *yes(b)])
    assert third.stop_reason is StopReason.WAITING and house.ids() == [b] and published == []
    assert house.run(approvals=yes(b, b)).complete and published == ["b"]


@by_either
@pytest.mark.promise("wait:ask")
def test_a_message_alone_goes_on_without_and_the_model_is_told_what_is_true(by: str, tmp_path: Path) -> None:
    """What waited for a person has not run; of a client-side call nobody knows."""
    house = House([[call("publish", page="a"), call("phone")], "As you like."], by=by, folder=tmp_path)
    house.run("Go.")
    a, phone = house.ids()
    assert house.run("Never mind.").complete and published == []
    words = said(house.model.asked[-1].messages)
    assert words[a].startswith("Not run") and "may or may not have run" in words[phone]


@by_either
@pytest.mark.parametrize("role", ["tool", "user"])
@pytest.mark.promise("step:client-tools")
def test_a_message_that_holds_a_result_is_an_answer_like_any_other(role: Any, by: str, tmp_path: Path) -> None:
    """Beside a call that waits on: the result is kept, and nothing is sent before the other is there."""
    house = House([[call("phone"), call("phone")], "Done."], by=by, folder=tmp_path)
    house.run("Go.")
    one, two = house.ids()
    result = ToolResult(call_id=one, name="phone", content=(Text("first"),))
    second = house.run(prompt=Message(role, (Text("Here."), result)))
    assert second.stop_reason is StopReason.WAITING and house.ids() == [two] and house.requests == 1
    assert house.run(results={two: "second"}).text == "Done."
    assert said(house.model.asked[-1].messages) == {one: "first", two: "second"}


def late_answers(a: str, phone: str) -> dict[str, dict[str, Any]]:
    """Every way to answer what a session has gone on without."""
    result = ToolResult(call_id=phone, name="phone", content=(Text("late"),))
    return {
        "a result": {"results": {phone: "late"}},
        "a result and a word": {"prompt": "And now?", "results": {phone: "late"}},
        "a message of a result": {"prompt": Message("tool", (result,))},
        "a result in a message of the user's": {"prompt": Message("user", (Text("Here."), result))},
        "an approval": {"approvals": yes(a)},
        "a denial and a word": {"prompt": "And now?", "approvals": no(a)},
        "both": {"approvals": yes(a), "results": {phone: "late"}},
        "a result for the ask": {"results": {a: "late"}},
    }


@by_either
@pytest.mark.parametrize("ends", ["answers", "fails", "calls", "waits"])
@pytest.mark.parametrize("answer", list(late_answers("a", "b")))
@pytest.mark.promise("wait:ask", "step:client-tools", "step:every-call-answered")
def test_an_answer_to_what_the_session_has_gone_on_without_is_refused(
    answer: str, ends: str, by: str, tmp_path: Path
) -> None:
    """Also where the run that went on failed or made calls of its own. Nothing is sent, and no call gets a second result."""
    gone_on: dict[str, list[Any]] = {
        "answers": ["As you like."],
        "fails": [Fault(kind=FaultKind.AUTH, message="no", status=401)],
        "calls": [call("look", page="x"), "As you like."],
        "waits": [call("publish", page="b")],
    }
    house = House([[call("publish", page="a"), call("phone")], *gone_on[ends], "more"], by=by, folder=tmp_path)
    house.run("Go.")
    a, phone = house.ids()
    last = house.run("Never mind.")
    before = house.requests
    with pytest.raises(CallerError, match="no pending call has the id"):
        house.run(**late_answers(a, phone)[answer])
    assert house.requests == before and published == [] and house.last is last


@by_either
@pytest.mark.promise("wait:ask")
def test_a_word_beside_some_of_the_answers_does_not_go_on_without_the_rest(by: str, tmp_path: Path) -> None:
    """The run waits on; the word is `unread`, and the session does not hold it."""
    house = House([[call("publish", page="a"), call("publish", page="b")], "Done."], by=by, folder=tmp_path)
    house.run("Go.")
    a, b = house.ids()
    second = house.run("and hurry", approvals=yes(a))
    assert second.stop_reason is StopReason.WAITING and house.ids() == [b]
    assert second.unread == (Message("user", (Text("and hurry"),)),) and house.requests == 1
    third = house.run("and hurry", approvals=yes(b))
    assert third.text == "Done." and published == ["a", "b"]
    assert house.model.asked[-1].messages[-1] == Message("user", (Text("and hurry"),))


@by_either
@pytest.mark.promise("wait:ask")
@pytest.mark.parametrize(
    "policy",
    [
        None,
        Policy(attended=False),
        Policy(attended=False, unattended="allow"),
        Policy(attended=True, rules=(PermissionRule(verdict="allow", tool="publish"),)),
    ],
    ids=["no policy", "unattended", "unattended allows", "a rule allows"],
)
def test_what_a_person_was_asked_about_runs_only_if_they_allow_it(
    by: str, policy: Policy | None, tmp_path: Path
) -> None:
    """Whatever the policy says by now: the undecided call waits, the denied one is denied, the approved one runs."""
    house = House(
        [[call("publish", page="a"), call("publish", page="b"), call("publish", page="c")], "Done."],
        by=by,
        folder=tmp_path,
    )
    house.run("Go.")
    a, b, c = house.ids()
    changed: dict[str, Any] = {"policy": policy}
    if policy is None or not policy.attended:
        changed["approver"] = None
    second = house.run(approvals=[*no(a), *yes(b)], changed=changed)
    assert published == ["b"] and house.ids() == [c] and [ask.call.id for ask in second.asks] == [c]
    third = house.run(approvals=yes(c), changed=changed)
    assert third.complete and published == ["b", "c"]
    assert "the user denied it" in said(third.messages)[a]


@by_either
@pytest.mark.promise("wait:ask")
def test_a_rule_that_denies_by_now_decides_what_nobody_did(by: str, tmp_path: Path) -> None:
    """The calls are judged anew; the other tool's call waits on."""
    house = House([[call("publish", page="a"), call("phone")], "Done."], by=by, folder=tmp_path)
    house.run("Go.")
    a, phone = house.ids()
    denies = Policy(attended=True, rules=(PermissionRule(verdict="deny", tool="publish"),))
    third = house.run(results={phone: "ok"}, changed={"policy": denies})
    assert third.text == "Done." and published == []
    assert said(third.messages)[a].startswith("Denied: `publish` was not run")


@by_either
@pytest.mark.promise("wait:ask", "step:client-tools")
def test_an_agent_without_the_tool_leaves_its_calls_waiting(by: str, tmp_path: Path) -> None:
    """Another agent (the command line, say) answers what it can; the client-side call is none of its business."""
    house = House([[call("publish", page="a"), call("phone"), call("look", page="x")], "Done."], by=by, folder=tmp_path)
    house.run("Go.")
    a, phone = house.ids()
    second = house.run(approvals=yes(a), changed={"tools": [publish]})
    assert second.stop_reason is StopReason.WAITING and house.ids() == [phone] and published == ["a"]
    assert house.run(results={phone: "ok"}).text == "Done."


@by_either
@pytest.mark.promise("wait:ask", "wait:cancel")
def test_a_run_that_is_cancelled_in_the_middle_keeps_what_nobody_decided(by: str, tmp_path: Path) -> None:
    """The approved call ends with the word that it was cut short; the ask and the client-side call wait on."""
    runs: list[Run] = []

    @tool(effect="write")
    async def stick(page: str) -> str:
        """Never ends by itself."""
        runs[-1].interrupt()
        await asyncio.Event().wait()
        return page

    house = House(
        [[call("stick", page="a"), call("publish", page="b"), call("phone")], "Done."],
        by=by,
        folder=tmp_path,
        tools=[publish, stick, PHONE],
        seen=runs.append,
    )
    house.run("Go.")
    a, b, phone = house.ids()
    second = house.run(approvals=yes(a))
    assert second.stop_reason is StopReason.CANCELLED and house.ids() == [b, phone]
    assert [ask.call.id for ask in second.asks] == [b]
    third = house.run(approvals=yes(b), results={phone: "ok"})
    assert third.text == "Done." and published == ["b"]
    words = said(house.model.asked[-1].messages)
    assert words[a].startswith("Cancelled by the user") and words[phone] == "ok"


@pytest.mark.promise("wait:ask", "keep:replay")
@pytest.mark.parametrize("begun", [True, False], ids=["in the tool", "before the tool"])
def test_a_process_that_dies_in_the_middle_keeps_what_nobody_decided(begun: bool, tmp_path: Path) -> None:
    """Only of the call that was at hand nobody knows; the others are listed and answered as before."""
    house = House(
        [[call("publish", page="a"), call("publish", page="b"), call("phone")], "Done."], by="session", folder=tmp_path
    )
    first = house.run("Go.")
    a, b, phone = house.ids()
    assert house.journal is not None
    ((turn,), session) = (house.journal.find_session(first.session).turns, first.session)
    config = replace(house.journal.events(turn.id)[0].config, turn_id="killed")  # type: ignore[union-attr]
    pen = house.journal.begin_turn(turn_id="killed", session_id=session, folder=tmp_path, title="")
    approved = (Approval(call_id=a, verdict="allow", digest=first.asks[0].digest),)
    hurry = Message("user", (Text("and hurry"),))
    pen.append(TurnStarted(config=config, input=(hurry,), approvals=approved, keeps_waiting=True))
    if begun:
        pen.append(ToolsStarted(step=0, call_ids=(a,)))
    pen.abandon()
    house.run(results={phone: "ok"})
    assert house.last is not None and house.last.stop_reason is StopReason.WAITING
    assert [ask.call.id for ask in house.last.asks] == [b] and house.last.unread == (hurry,)
    done = house.run(approvals=yes(b))
    words = said(house.model.asked[-1].messages)
    assert done.text == "Done." and published == ["b"] and words[phone] == "ok"
    known = "The run was interrupted before a result was recorded." if begun else "Not run: the run was interrupted"
    assert words[a].startswith(known)
