"""How much a server may send and ask: each bound at its edge."""

import asyncio
from collections.abc import Sequence
from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st
from mcp_types import ElicitRequestFormParams, ElicitRequestURLParams, ElicitResult

from turnwise import Approval, Asking, Policy
from turnwise.editors.mcp.client_asks import MAX_SHOWN, AskSurroundings, ClientApprover, Questions
from turnwise.rules.reservations import Place
from turnwise.running.approvals import ask as ask_all
from turnwise.running.working_call import ModelAnswer, ModelQuestion, NoAnswer, OwnModel
from turnwise.testing import FakeClock
from turnwise.tools.mcp.elicitation import MAX_FIELDS, MAX_QUESTION, elicit
from turnwise.tools.mcp.server_bounds import (
    FIRST_PAUSE_S,
    MAX_STDERR,
    RESTARTS,
    RESTARTS_WITHIN_S,
    UNASKED,
    UNASKED_BYTES,
    WITHIN_S,
    LineCutter,
    McpFailure,
    RestartBudget,
    Tail,
    UnaskedMeter,
)
from turnwise.turn.config import OneAsk
from turnwise.turn.events import Ask
from turnwise.vocab import ToolCall


@pytest.mark.promise("safe:bounded")
@pytest.mark.parametrize(("messages", "size"), [(UNASKED, 0), (1, UNASKED_BYTES)], ids=["messages", "bytes"])
async def test_a_flood_is_as_much_as_is_allowed_and_one_more(messages: int, size: int) -> None:
    """Messages and bytes each, within ten seconds; after these, all is counted anew."""
    clock = FakeClock()
    meter = UnaskedMeter(clock)
    meter.count(size, messages=messages)
    with pytest.raises(McpFailure, match=r"that nobody had asked for within 10 s, so it was ended"):
        meter.count(1)
    await clock.advance(WITHIN_S + 1)
    meter.count(size, messages=messages)


@given(st.lists(st.binary(max_size=8), max_size=12))
def test_lines_are_the_same_however_their_bytes_come(pieces: list[bytes]) -> None:
    """What stands behind the last line break waits for more."""
    cutter = LineCutter()
    lines = [line for piece in pieces for line in cutter.take(piece)]
    assert lines == b"".join(pieces).split(b"\n")[:-1]


@pytest.mark.promise("safe:bounded")
@pytest.mark.parametrize("pieces", [[b"123456\n"], [b"1\n123", b"456"], [b"123", b"45", b"6"]])
def test_a_line_that_is_too_long_is_refused_before_it_ends(pieces: list[bytes]) -> None:
    """One byte less is a line."""
    cutter = LineCutter(limit=5)
    assert [line for piece in (b"12345\n", b"12345\n") for line in cutter.take(piece)] == [b"12345"] * 2
    with pytest.raises(McpFailure, match="a message of more than 5 bytes"):
        for piece in pieces:
            cutter.take(piece)


def test_only_the_end_of_what_a_server_writes_for_people_is_kept() -> None:
    """However much it writes."""
    tail = Tail()
    for _ in range(3):
        tail.take(b"x" * MAX_STDERR)
    tail.take(b"last words")
    assert len(tail.bytes) == MAX_STDERR and tail.bytes.endswith(b"xlast words")


async def test_a_server_is_started_again_so_often_within_a_while() -> None:
    """Each pause is twice the one before; after the while, it begins anew."""
    clock = FakeClock()
    budget = RestartBudget(clock)
    assert [budget.next_pause() for _ in range(RESTARTS + 1)] == [FIRST_PAUSE_S * 2**n for n in range(RESTARTS)] + [
        None
    ]
    assert not budget.is_left
    await clock.advance(RESTARTS_WITHIN_S)
    assert budget.is_left and budget.next_pause() == FIRST_PAUSE_S


class Nodding:
    """A person who allows everything, with the same words."""

    def __init__(self) -> None:
        self.asked: list[str] = []

    async def ask(self, question: str, *, options: Sequence[str] = (), why: str = "") -> Approval:
        self.asked.append(question)
        return Approval(call_id="", verdict="allow", text="x")


@pytest.mark.promise("safe:bounded")
@pytest.mark.parametrize("fields", [MAX_FIELDS, MAX_FIELDS + 1])
async def test_nobody_is_asked_about_a_form_that_is_too_long(fields: int) -> None:
    """The server is told that nobody answered."""
    properties = {f"f{nth}": {"type": "string"} for nth in range(fields)}
    form = ElicitRequestFormParams(message="Hi", requested_schema={"type": "object", "properties": properties})
    person = Nodding()
    result = await elicit(form, server="s", asker=person)
    assert (result.action, len(person.asked)) == (("accept", fields) if fields == MAX_FIELDS else ("cancel", 0))


@pytest.mark.promise("safe:bounded", "safe:seen")
@pytest.mark.parametrize("beyond", [0, 1])
async def test_nobody_is_asked_a_servers_question_that_is_too_long(beyond: int) -> None:
    """Nor sees a part of it: of a form's message, of what a field is for, of its choices, and of an address."""
    long = "x" * (MAX_QUESTION + beyond)
    url = f"https://h.example/{long}"[: MAX_QUESTION - 2 + beyond]
    choices = [long[: MAX_QUESTION // 2], long[MAX_QUESTION // 2 :]]
    fields = [{"type": "string"}, {"type": "string", "description": long[3:]}, {"type": "string", "enum": choices}]
    forms = [
        ElicitRequestFormParams(message=said, requested_schema={"type": "object", "properties": {"f": field}})
        for said, field in zip([long, "Hi", "Hi"], fields, strict=True)
    ]
    address = ElicitRequestURLParams(message="Hi", url=url, elicitation_id="e")
    for params in (*forms, address):
        person = Nodding()
        result = await elicit(params, server="s", asker=person)
        assert bool(person.asked) == (beyond == 0) and (beyond == 0 or result.action == "cancel"), params


async def test_the_model_answers_one_question_of_a_call_after_the_other() -> None:
    """What the first one has spent is known when the second one gets its share."""
    told: list[str] = []

    async def start(question: ModelQuestion, *_: object) -> ModelAnswer:
        told.append("began")
        for _turn in range(3):
            await asyncio.sleep(0)
        told.append("ended")
        return ModelAnswer(text="", model="m")

    async def yes(_: str) -> bool:
        return True

    model = OwnModel(start, grant=None, place=Place(), most=2, clock=FakeClock())
    question = ModelQuestion(server="s", parts=(), max_tokens=1, ask=yes)
    await asyncio.gather(*[model.answer(question, tell=lambda _: None) for _ in range(2)])
    assert told == ["began", "ended"] * 2
    with pytest.raises(NoAnswer, match="a call may ask the model 2 times"):
        await model.answer(question, tell=lambda _: None)


@pytest.mark.promise("safe:bounded")
@pytest.mark.parametrize("beyond", [0, 5])
async def test_a_question_that_is_too_long_for_a_client_is_denied(beyond: int) -> None:
    """Nobody says yes to what they were not shown: the client gets the whole of a question, or nothing of it."""
    subject = "x" * (MAX_SHOWN - len("the model asks:\n") + beyond)
    notes: list[str] = []
    questions, never = Questions(FakeClock()), cast("Any", None)
    around = AskSurroundings(offers={}, inspect=never, workspace=never, clock=FakeClock())
    approver = ClientApprover(around, policy=Policy(), questions=questions, note=notes.append)
    ask = OneAsk(
        call=ToolCall(id="c", name="ask_user", arguments="{}"), arguments="{}", subject=subject, kind="question"
    )
    asking = asyncio.create_task(approver(Asking(asks=(ask,), deadline_s=10.0)))
    if beyond:
        (answer,) = await asking
        assert (answer.verdict, answer.by) == ("deny", "program") and "16,389 characters" in answer.text
        assert not questions.open and "not asked about, and denied: ask_user" in notes[0]
        return
    await questions.changed.wait()
    (question,) = questions.open
    assert question.form.message == f"the model asks:\n{subject}"
    question.answer(ElicitResult(action="decline"))
    assert [one.verdict for one in await asking] == ["deny"]


@pytest.mark.promise("wait:ask")
@pytest.mark.parametrize("together", [False, True], ids=["one by one", "all at once"])
async def test_each_question_has_its_own_time_from_when_it_is_shown(together: bool) -> None:
    """Proves (issue 39, 3): one that waited behind another had what was left of its time. Where a client shows all at once, the
    time of each begins then."""
    clock, notes, never = FakeClock(), list[str](), cast("Any", None)
    questions = Questions(clock)
    around = AskSurroundings(offers={}, inspect=never, workspace=never, clock=clock)
    approver = ClientApprover(around, policy=Policy(), questions=questions, note=notes.append)
    asks = tuple(
        [
            OneAsk(call=ToolCall(id=id, name="ask_user", arguments="{}"), arguments="{}", subject=id, kind="question")
            for id in "abc"
        ]
    )
    asking = asyncio.create_task(ask_all(Ask(step=1, asks=asks, deadline_s=10.0), approver=approver, clock=clock))
    await questions.changed.wait()
    first, second, third = questions.open
    if together:
        questions.show(questions.open)
    await clock.advance(9)
    first.answer(ElicitResult(action="accept", content={"answer": "yes"}))
    await clock.advance(1)
    assert second.is_open is not together and third.is_open is not together
    if not together:
        await clock.advance(8)
        assert second.is_open
        await clock.advance(2)
        assert not second.is_open and third.is_open  # nobody answered the second one
        await clock.advance(8)
        third.answer(ElicitResult(action="accept", content={"answer": "yes"}))
    answers = (await asking).approvals
    assert [one.call_id for one in answers] == (["a"] if together else ["a", "c"])
    assert [note.rpartition(": ")[2] for note in notes] == ["the model decides"] * (2 if together else 1)
