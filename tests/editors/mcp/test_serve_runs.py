"""`run` of `turnwise mcp serve`: answer and bill, asks, what a client may not have, progress and cancel."""

import asyncio
import contextlib
import json
import os
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from mcp import Client
from mcp_types import CallToolResult, ElicitResult, InputRequiredResult

from editors.acp.editor import written
from editors.mcp.serving import ERAS, Era, Person, call, is_at_work, saying, serving, text_of
from terminal.test_processes import wait_until
from turnwise.editors.mcp.runs import MAX_PROMPT, SET_AT_START
from turnwise.editors.mcp.service import MAX_RUNS, MAX_WAITING
from turnwise.lab import Lab
from turnwise.running.approvals import BEHIND_S
from turnwise.settings.options import RunSettings
from turnwise.testing import FakeClock
from waits import HANG_S

DONE = "Done: notes.txt now says 'status: done'."
SET = {"prompt": "Set it."}


def user_settings(text: str) -> None:
    settings = Path(os.environ["XDG_CONFIG_HOME"]) / "turnwise" / "turnwise.toml"
    settings.parent.mkdir(parents=True, exist_ok=True)
    settings.write_text(text)


@pytest.mark.promise("bill:wire")
async def test_a_run_gives_its_answer_and_its_bill(lab: Lab, folder: Path) -> None:
    """The requests are those that the server counted, the session is in the journal, and the data fit the schema."""
    user_settings("[prices]\n'read-edit-answer' = { request = 0.01 }\n")
    async with serving(lab, "read-edit-answer", root=folder.parent, allow=("write",)) as client:
        tools = {tool.name: tool for tool in (await client.list_tools()).tools}
        result = await call(client, "run", {**SET, "folder": folder.name})
    assert sorted(tools) == ["decode", "run"] and not result.is_error
    told = result.structured_content
    assert (told["answer"], told["outcome"], told["stop_reason"], told["complete"]) == (
        DONE,
        "answered",
        "answered",
        True,
    )
    assert (told["requests"], told["exit_code"], told["denied"]) == (lab.count(), 0, [])
    assert "[turnwise] answered; 3 requests, 0.03 US dollars; session " in text_of(result)
    assert Decimal(told["cost_usd"]) == Decimal(told["known_cost_usd"]) == Decimal("0.03")
    sent = [one.usage for one in lab.requests if one.usage is not None]
    assert told["usage"]["output_tokens"] == sum(one.output_tokens for one in sent) > 0
    assert text_of(result).startswith(DONE) and f"session {told['session']}" in text_of(result)
    assert (folder / "notes.txt").read_text() == "status: done\n"


async def test_a_run_is_kept_like_one_of_the_command_line(lab: Lab, folder: Path) -> None:
    """With its folder, so that `turnwise sessions` and `turnwise run --session` find it."""
    from turnwise.base.clock import SystemClock
    from turnwise.journal.journal import Journal, journal_path

    async with serving(lab, "read-edit-answer", root=folder, allow=("write",)) as client:
        session = (await call(client, "run", SET)).structured_content["session"]
    with Journal(journal_path(os.environ), clock=SystemClock()) as journal:
        row = journal.find_session(session).row
    assert (row.folder, row.title) == (str(folder), "Set it.")


async def test_a_run_that_failed_is_an_error_with_its_bill(lab: Lab, folder: Path) -> None:
    """The provider refused the key: one request, and the remedy."""
    async with serving(lab, "fault-401", root=folder) as client:
        result = await call(client, "run", SET)
    told = result.structured_content
    assert result.is_error and (told["stop_reason"], told["requests"]) == ("provider_failed", 1)
    assert told["fault"]["status"] == 401 and "check the key" in text_of(result)
    assert "; 1 request, " in text_of(result)


async def test_a_run_that_was_cut_is_no_error_and_says_so(lab: Lab, folder: Path) -> None:
    """By the client's own lower limit."""
    async with serving(lab, "never-stops", root=folder) as client:
        result = await call(client, "run", {**SET, "max_steps": 2})
    told = result.structured_content
    assert not result.is_error and (told["complete"], told["requests"]) == (False, lab.count())
    assert told["stop_reason"] in ("step_limit", "loop") and "not complete" in text_of(result)


@pytest.mark.parametrize("era", ERAS)
async def test_an_ask_goes_to_the_clients_person(lab: Lab, folder: Path, era: Era) -> None:
    """With what would change. In the newer protocol the question is a result, and the answer comes with a second call."""
    person = saying("allow once")
    async with serving(lab, "read-edit-answer", root=folder, era=era, person=person) as client:
        result = await call(client, "run", SET)
    (asked,) = person.asked
    assert "Edit notes.txt?\nnotes.txt\n" in asked.message and "-status: draft\n+status: done" in asked.message
    assert "asked because" in asked.message and "edit(notes.txt)" in asked.message
    assert asked.requested_schema["properties"]["answer"]["enum"] == [  # pyright: ignore[reportAttributeAccessIssue]
        "allow once",
        "always allow in this run",
        "allow all file changes in this run",
        "do not run it",
    ]
    assert (folder / "notes.txt").read_text() == "status: done\n" and result.structured_content["denied"] == []


@pytest.mark.parametrize("era", ERAS)
async def test_a_declined_ask_is_a_no(lab: Lab, folder: Path, era: Era) -> None:
    """The result says what was not run."""
    async with serving(lab, "read-edit-answer", root=folder, era=era, person=saying(None)) as client:
        result = await call(client, "run", SET)
    (denied,) = result.structured_content["denied"]
    assert denied["name"] == "edit" and "the user denied it" in denied["why"]
    assert "denied, and not run: edit" in text_of(result)
    assert (folder / "notes.txt").read_text() == "status: draft\n"


async def test_an_answer_that_was_not_offered_is_a_no(lab: Lab, folder: Path) -> None:
    """Empty, or in other words."""
    answers = iter(["", "yes", "allow", "Allow once"])

    async def said(_: str) -> str | None:
        return next(answers)

    async with serving(lab, "read-edit-answer", root=folder, person=Person(said)) as client:
        for _ in range(4):
            result = await call(client, "run", SET)
            assert [one["name"] for one in result.structured_content["denied"]] == ["edit"]
    assert (folder / "notes.txt").read_text() == "status: draft\n"


@pytest.mark.promise("wait:ask")
async def test_an_ask_that_nobody_answers_is_denied_by_its_deadline(lab: Lab, folder: Path) -> None:
    """On a clock of the test's own; the client is told that the question is withdrawn."""
    clock, left = FakeClock(), asyncio.Event()

    async def nobody(_: str) -> str | None:
        try:
            await asyncio.Event().wait()
        finally:
            left.set()
        return None

    person = Person(nobody)
    async with serving(lab, "read-edit-answer", root=folder, person=person, clock=clock, ask_timeout=45.0) as client:
        running = asyncio.create_task(call(client, "run", SET))
        await asyncio.wait_for(person.opened.wait(), HANG_S)
        await asyncio.wait_for(clock.until_waiting(45.0 + BEHIND_S), HANG_S)
        await clock.advance(46.0)
        result = await running
        await asyncio.wait_for(left.wait(), HANG_S)
    assert "not answered within 45 s: edit: denied" in result.structured_content["notes"]
    assert [one["name"] for one in result.structured_content["denied"]] == ["edit"]
    assert (folder / "notes.txt").read_text() == "status: draft\n"


@pytest.mark.promise("wait:ask")
async def test_a_client_that_cannot_ask_has_asks_denied_at_once(lab: Lab, folder: Path) -> None:
    """And the result says how it would be allowed."""
    async with serving(lab, "read-edit-answer", root=folder) as client:
        result = await call(client, "run", SET)
    (denied,) = result.structured_content["denied"]
    assert denied["name"] == "edit" and "turnwise mcp serve" in denied["why"] and "elicitation" in denied["why"]
    assert (folder / "notes.txt").read_text() == "status: draft\n"


async def test_no_folder_outside_of_the_root_is_worked_in(lab: Lab, folder: Path) -> None:
    """By `..`, by an absolute path, by a link; nothing is sent, and the error names the argument."""
    elsewhere = folder.parent / "elsewhere"
    (elsewhere / "below").mkdir(parents=True)
    (folder / "link").symlink_to(elsewhere)
    async with serving(lab, "read-edit-answer", root=folder, allow=("write",)) as client:
        for given in ("..", "../elsewhere", str(elsewhere), "link", "link/below", "nothing", "notes.txt", "a\0b", "/"):
            result = await call(client, "run", {**SET, "folder": given})
            assert result.is_error and text_of(result).startswith("`folder` is `")
    assert lab.count() == 0


async def test_a_folder_below_the_root_is_worked_in(lab: Lab, folder: Path) -> None:
    """Relative or absolute, also by a link that stays inside."""
    (folder / "sub").mkdir()
    (folder / "link").symlink_to(folder / "sub")
    async with serving(lab, "plain-answer", root=folder) as client:
        for given in ("sub", str(folder / "sub"), "link", ".", str(folder)):
            assert not (await call(client, "run", {**SET, "folder": given})).is_error
    assert lab.count() == 5


REFUSED: list[tuple[dict[str, Any], str]] = [
    *[({name: True}, f"`{name}` is set where the server starts") for name in sorted(SET_AT_START)],
    ({"max_steps": 21}, "`max_steps` is 21, more than the 20 that this server allows"),
    ({"max_requests": 11}, "`max_requests` is 11, more than the 10 that this server allows"),
    ({"max_cost": 0.6}, "`max_cost` is 0.6, more than the 0.5 that this server allows"),
    ({"max_time": 1e9}, "`max_time` is 1,000,000,000.0, more than the 60.0 that this server allows"),
    ({"max_subagents": 10**30}, "`max_subagents` is a whole number"),
    ({"max_steps": 0}, "`max_steps` is a whole number, from 1 to 10,000"),
    ({"max_tokens": "many"}, "`max_tokens` is a whole number"),
    ({"max_tokens": True}, "`max_tokens` is a whole number"),
    ({"permissions": "edits"}, "`permissions` is `edits`: a client can only lower them"),
    ({"model": "openai:gpt-5"}, "`model` is `openai:gpt-5`, which a client may not choose"),
    ({"prompt": ""}, "`prompt` is empty"),
    ({"prompt": None}, "`prompt` is missing"),
    ({"prompt": 5}, "`prompt` is no text"),
    ({"prompt": "x" * (MAX_PROMPT + 1)}, "`prompt` has 1,048,577 characters, more than 1,048,576"),
    ({"folder": "x" * 5000}, "`folder` has 5,000 characters"),
    ({"promt": "x"}, "`promt` is no argument of `run`: there are folder, max_cost"),
]


async def test_what_is_wrong_or_too_much_is_refused_by_name(lab: Lab, folder: Path) -> None:
    """An error result that says what to do; nothing is sent."""
    limits = RunSettings(max_requests=10, max_cost=Decimal("0.5"), max_time=60.0)
    async with serving(lab, "read-edit-answer", root=folder, settings=limits) as client:
        for arguments, said in REFUSED:
            result = await call(client, "run", {**SET, **arguments})
            assert result.is_error and text_of(result).startswith(said)
    assert lab.count() == 0


async def test_a_project_widens_nothing(lab: Lab, folder: Path) -> None:
    """Its rules and limits lower what the server allows; what they would loosen is left out, as on the command line."""
    (folder / "turnwise.toml").write_text(
        "max_steps = 500\n[permissions]\nrules = [{ allow = 'edit', path = '**' }]\n[mcp.own]\ncommand = ['true']\n"
    )
    async with serving(lab, "read-edit-answer", root=folder) as client:
        refused = await call(client, "run", {**SET, "max_steps": 21})
        result = await call(client, "run", SET)
    assert "more than the 20 that this server allows" in text_of(refused)
    assert [one["name"] for one in result.structured_content["denied"]] == ["edit"]
    assert any("`own` is left out" in note for note in result.structured_content["notes"])


async def test_a_client_can_lower_permissions(lab: Lab, folder: Path) -> None:
    """`read-only` denies what the start allows."""
    async with serving(lab, "read-edit-answer", root=folder, allow=("write",), person=saying("allow once")) as client:
        result = await call(client, "run", {**SET, "permissions": "read-only"})
    (denied,) = result.structured_content["denied"]
    assert denied["name"] == "edit" and "(the client's `permissions` says `deny`). " in denied["why"]
    assert "the client leaves `permissions` out" in denied["why"] and "--allow" not in denied["why"]
    assert (folder / "notes.txt").read_text() == "status: draft\n"


async def test_a_model_that_the_start_offers_can_be_chosen(lab: Lab, folder: Path) -> None:
    """And no other one."""
    async with serving(lab, "read-edit-answer", root=folder, models=("openai_chat:plain-answer",)) as client:
        result = await call(client, "run", {**SET, "model": "openai_chat:plain-answer"})
        refused = await call(client, "run", {**SET, "model": "openai_chat:never-stops"})
    assert not result.is_error and {one.model for one in lab.requests} == {"plain-answer"}
    assert "answered; 1 request, cost" in text_of(result)
    assert "there are openai_chat:plain-answer" in text_of(refused)


@pytest.mark.parametrize("era", ERAS)
async def test_progress_is_told_to_a_client_that_wants_it(lab: Lab, folder: Path, era: Era) -> None:
    """Growing numbers, with what is at hand; before the result."""
    seen: list[tuple[float, str | None]] = []

    async def told(progress: float, total: float | None, message: str | None) -> None:
        assert total is None
        seen.append((progress, message))

    async with serving(lab, "read-edit-answer", root=folder, era=era, allow=("write",)) as client:
        await call(client, "run", SET, progress_callback=told)
    numbers = [number for number, _ in seen]
    assert numbers == sorted(set(numbers)) and "step 1: request 1" in [line for _, line in seen]


@pytest.mark.parametrize("era", ERAS)
async def test_cancel_ends_a_command_and_the_run(lab: Lab, folder: Path, era: Era) -> None:
    """The client's cancelled notification: the command is gone, and the server works on."""
    async with serving(lab, "slow-bash", root=folder, era=era, allow=("bash",), no_sandbox=True) as client:
        running = asyncio.create_task(call(client, "run", SET))
        await written(folder / "begun.txt")
        running.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await running
        await asyncio.to_thread(wait_until, lambda: not _is_there(int((folder / "begun.txt").read_text())))
        decoded = await call(client, "decode", {"stream": "data: [DONE]\n\n", "family": "openai_chat"})
    assert decoded.structured_content is not None


async def test_cancel_ends_a_request(lab: Lab, folder: Path) -> None:
    """That nothing comes back for; the turn is recorded as cancelled."""
    from turnwise.base.clock import SystemClock
    from turnwise.journal.journal import Journal, journal_path

    async with serving(lab, "fault-silence", root=folder) as client:
        running = asyncio.create_task(call(client, "run", SET))
        await asyncio.to_thread(wait_until, lambda: lab.count() == 1)
        running.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await running
    with Journal(journal_path(os.environ), clock=SystemClock()) as journal:
        (row,) = journal.sessions(limit=5)
        assert journal.find_session(row.id).turns[-1].stop_reason == "cancelled"


async def test_a_client_that_leaves_an_open_question_ends_the_run(lab: Lab, folder: Path) -> None:
    """In the newer protocol no call is open then: the run waits for the second one, and ends with its client."""
    from turnwise.base.clock import SystemClock
    from turnwise.journal.journal import Journal, journal_path

    person = saying("allow once")
    async with serving(lab, "read-edit-answer", root=folder, era="2026-07-28", person=person) as client:
        asked = await asyncio.wait_for(client.session.call_tool("run", dict(SET), allow_input_required=True), HANG_S)
        assert isinstance(asked, InputRequiredResult) and asked.request_state
    assert (folder / "notes.txt").read_text() == "status: draft\n" and person.asked == []
    with Journal(journal_path(os.environ), clock=SystemClock()) as journal:
        (row,) = journal.sessions(limit=5)
        assert journal.find_session(row.id).turns[-1].stop_reason == "cancelled"


async def test_only_so_many_runs_work_at_once(lab: Lab, folder: Path) -> None:
    """One more is refused, and says so."""
    async with serving(lab, "fault-silence", root=folder) as client:
        running = [asyncio.create_task(call(client, "run", SET)) for _ in range(MAX_RUNS)]
        await asyncio.to_thread(wait_until, lambda: lab.count() == MAX_RUNS)
        result = await call(client, "run", SET)
        for one in running:
            one.cancel()
        await asyncio.gather(*running, return_exceptions=True)
    assert result.is_error and text_of(result) == f"{MAX_RUNS} runs are at work: wait for one of them"


async def test_a_strangers_request_state_is_none(lab: Lab, folder: Path) -> None:
    """A run is taken up by its own token alone."""
    async with serving(lab, "read-edit-answer", root=folder, era="2026-07-28") as client:
        result = await asyncio.wait_for(client.session.call_tool("run", dict(SET), request_state="guessed"), HANG_S)
    assert result.is_error and "not known any more" in text_of(result) and lab.count() == 0  # pyright: ignore[reportArgumentType, reportAttributeAccessIssue]


async def _asked(client: Client) -> InputRequiredResult:
    """A run in the newer protocol, up to its first question."""
    asked = await asyncio.wait_for(client.session.call_tool("run", dict(SET), allow_input_required=True), HANG_S)
    assert isinstance(asked, InputRequiredResult) and asked.request_state
    return asked


async def _taken_up(client: Client, asked: InputRequiredResult, *, answer: str = "") -> CallToolResult:
    """The result of that run, to a second call."""
    answers: dict[str, Any] = {}
    if answer:
        answers = {key: ElicitResult(action="accept", content={"answer": answer}) for key in asked.input_requests or {}}
    result = await asyncio.wait_for(
        client.session.call_tool(
            "run", dict(SET), request_state=asked.request_state, input_responses=answers, allow_input_required=True
        ),
        HANG_S,
    )
    assert isinstance(result, CallToolResult)
    return result


async def test_only_one_call_listens_to_a_run(lab: Lab, folder: Path) -> None:
    """Both would take its result away, and one that leaves would end the run of the other."""
    person = saying(None)
    async with serving(lab, "slow-bash", root=folder, era="2026-07-28", person=person, no_sandbox=True) as client:
        asked = await _asked(client)
        listening = asyncio.create_task(_taken_up(client, asked, answer="allow once"))
        await written(folder / "begun.txt")
        second = await _taken_up(client, asked)
        assert not listening.done()
        listening.cancel()
        await asyncio.gather(listening, return_exceptions=True)
    assert second.is_error and text_of(second) == "another call listens to this run: wait for its result"


@pytest.mark.costly
async def test_results_that_no_client_comes_back_for_are_bounded(lab: Lab, folder: Path) -> None:
    """Of runs that ended while nobody listened the first two are forgotten at most; the later ones can be taken up."""
    clock = FakeClock()
    async with serving(
        lab,
        "read-edit-answer",
        root=folder,
        era="2026-07-28",
        person=saying(None),
        clock=clock,
        ask_timeout=45.0,
    ) as client:
        asked: list[InputRequiredResult] = []
        for _ in range(MAX_WAITING + 2):
            asked.append(await _asked(client))
            await asyncio.wait_for(clock.until_waiting(45.0 + BEHIND_S), HANG_S)
            await clock.advance(46.0)
            await asyncio.to_thread(wait_until, lambda: not is_at_work())
        forgotten = await _taken_up(client, asked[0])
        kept = [await _taken_up(client, asked[number]) for number in (2, -1)]
    assert forgotten.is_error and "not known any more" in text_of(forgotten)
    assert [[one["name"] for one in result.structured_content["denied"]] for result in kept] == [["edit"]] * 2


def _is_there(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def test_the_schemas_are_json() -> None:
    """With bounds that a client can check before it asks."""
    from turnwise.editors.mcp.runs import run_schema

    schema = json.loads(json.dumps(run_schema(["a:b"])))
    assert schema["properties"]["max_steps"]["minimum"] == 1 and schema["properties"]["model"]["enum"] == ["a:b"]
    assert schema["additionalProperties"] is False and "model" not in run_schema([])["properties"]  # pyright: ignore[reportOperatorIssue]
