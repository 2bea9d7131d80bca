"""Our own turns against the lab, on real HTTP with real files: what the lab counted is what the result says."""

import json
from pathlib import Path
from typing import Any

import msgspec
import pytest

from families import of_family
from thoroughness import spread
from turnwise.endpoints.aiohttp_transport import AiohttpTransport
from turnwise.endpoints.endpoints import Endpoint
from turnwise.lab import Lab, builtin_scripts, numbered_lines
from turnwise.running.runner import Runner
from turnwise.running.runner_config import RunnerMeans
from turnwise.tools.workspace import workspace_tools
from turnwise.turn.config import Deadlines, TurnConfig, TurnResult
from turnwise.turn.events import TurnStarted
from turnwise.vocab import Message, OutputSchema, StopReason, Text
from turnwise.wire.profiles import builtin_profiles
from waits import HANG_S

FAMILIES = ("openai_chat", "openai_responses", "anthropic_messages", "gemini")
WAYS = [(family, stream) for family in FAMILIES for stream in (True, False)]
SHAPES = [name for name, script in builtin_scripts().items() if script.steps and script.steps[0].wire]
MAX_STEPS = 5


async def turn(lab: Lab, model: str, *, family: str, stream: bool, folder: Path, **more: Any) -> TurnResult:
    """One turn of the workspace's tools in `folder`."""
    (folder / "notes.txt").write_text("title: lab\nstatus: draft\n")
    (folder / "todo.txt").write_text("nothing\n")
    tools = workspace_tools(folder)
    profile = builtin_profiles()[family]
    config = TurnConfig(
        session_id="s",
        turn_id="t",
        model=model,
        tools=tuple([tool.offer for tool in tools]),
        stream=stream,
        max_steps=MAX_STEPS,
        deadlines=Deadlines(first_event_s=HANG_S, idle_s=HANG_S, total_s=HANG_S),
        **of_family(family),
        profile=profile.name,
    )
    config = msgspec.structs.replace(config, **more)
    prefix = "" if family in ("anthropic_messages", "gemini") else "/v1"
    async with AiohttpTransport() as transport:
        runner = Runner(
            RunnerMeans(endpoint=Endpoint(profile=profile, base_url=lab.url + prefix), transport=transport, tools=tools)
        )
        return await runner.run(TurnStarted(config=config, input=(Message("user", (Text("Please."),)),)))


def agrees(lab: Lab, result: TurnResult) -> None:
    """The lab refused nothing, and its own counts of requests and tokens are the result's."""
    assert [one.refused for one in lab.requests if one.refused] == []
    assert lab.count() == result.requests
    counted = [one.usage for one in lab.requests if one.usage is not None]
    assert sum(usage.input_tokens for usage in counted) == result.usage.input_tokens
    assert sum(usage.output_tokens for usage in counted) == result.usage.output_tokens


@pytest.mark.promise("step:one-request", "step:sequential", "step:parallel-together", "end:early")
@pytest.mark.parametrize(("family", "stream"), WAYS)
async def test_read_edit_answer_takes_three_requests_and_parallel_calls_two(
    family: str, stream: bool, tmp_path: Path
) -> None:
    """Proves: one request a step on a real file, all calls of a step in one follow-up, by the lab's own count."""
    async with Lab() as lab:
        result = await turn(lab, "read-edit-answer", family=family, stream=stream, folder=tmp_path)
        agrees(lab, result)
        assert (result.requests, result.stop_reason, result.complete) == (3, StopReason.ANSWERED, True)
        assert result.text == "Done: notes.txt now says 'status: done'."
        assert (tmp_path / "notes.txt").read_text() == "title: lab\nstatus: done\n"
        lab.reset()
        result = await turn(lab, "parallel-calls", family=family, stream=stream, folder=tmp_path)
        agrees(lab, result)
        assert (result.requests, result.complete) == (2, True)


@pytest.mark.costly
@pytest.mark.promise("end:cap", "end:forced-answer", "end:never-empty")
@pytest.mark.parametrize(("family", "stream"), spread(WAYS, one_of=3, name="scripts that go on"))
async def test_every_script_that_goes_on_ends_with_an_answer(family: str, stream: bool, tmp_path: Path) -> None:
    """Proves: the cap makes exactly so many requests, one more after a disobedient last step, and never an empty end."""
    async with Lab() as lab:
        for model, requests in (
            ("never-stops", (MAX_STEPS,)),
            ("research", (MAX_STEPS,)),
            ("never-stops-disobeys", (MAX_STEPS, MAX_STEPS + 1)),
            ("never-stops-at-all", (MAX_STEPS, MAX_STEPS + 1)),
            ("disobeys-none", (MAX_STEPS, MAX_STEPS + 1)),
            ("empty-answer", (2, 3)),
        ):
            lab.reset()
            result = await turn(lab, model, family=family, stream=stream, folder=tmp_path)
            agrees(lab, result)
            assert result.requests in requests, model
            assert (bool(result.text.strip()), result.complete) == (True, False), model
        for model in ("empty-once", "empty-after-calls"):
            lab.reset()
            result = await turn(lab, model, family=family, stream=stream, folder=tmp_path)
            agrees(lab, result)
            assert (result.requests, result.complete) == (lab.provider.scripts[model].requests, True), model


@pytest.mark.promise("cut:never-run", "cut:split", "cut:complete-sibling")
@pytest.mark.parametrize(("family", "stream"), WAYS)
async def test_a_cut_write_never_runs_and_smaller_pieces_do(family: str, stream: bool, tmp_path: Path) -> None:
    """Proves: the file holds what the whole calls wrote, whatever of the cut one had arrived, in each family's own way."""
    async with Lab() as lab:
        result = await turn(lab, "cut-call", family=family, stream=stream, folder=tmp_path)
        agrees(lab, result)
        assert (result.requests, result.complete) == (4, True)
        assert (tmp_path / "big.txt").read_text() == numbered_lines(1, 200)
        lab.reset()
        (tmp_path / "big.txt").unlink()  # `write` does not replace what was not read
        result = await turn(lab, "cut-call-with-sibling", family=family, stream=stream, folder=tmp_path)
        agrees(lab, result)
        assert (tmp_path / "big.txt").read_text() == numbered_lines(1, 10)


@pytest.mark.parametrize("name", [name for name in SHAPES if name != "cut-call-unsaid"])
async def test_each_malformed_shape_is_answered_in_the_requests_of_a_healthy_one(name: str, tmp_path: Path) -> None:
    """Proves: every malformed shape, from bytes to results and back: a strict server accepts what is made of it."""
    async with Lab() as lab:
        result = await turn(lab, name, family="openai_chat", stream=True, folder=tmp_path)
        agrees(lab, result)
        assert (result.requests, result.stop_reason, result.complete) == (
            lab.provider.scripts[name].requests,
            StopReason.ANSWERED,
            True,
        )
        assert result.text == (lab.provider.scripts[name].steps[-1].text)


@pytest.mark.parametrize(("family", "stream"), WAYS)
async def test_kinds_of_answers(family: str, stream: bool, tmp_path: Path) -> None:
    """Proves: reasoning goes back as its family wants it, refusals end the turn as such, structured output is corrected."""
    properties = {"city": {"type": "string"}}
    schema = json.dumps(
        {"type": "object", "properties": properties, "required": ["city"], "additionalProperties": False}
    )
    async with Lab() as lab:
        result = await turn(lab, "reasoning-and-calls", family=family, stream=stream, folder=tmp_path)
        agrees(lab, result)
        assert (result.requests, result.text, result.complete) == (2, "I have read notes.txt.", True)
        lab.reset()
        result = await turn(lab, "refusal", family=family, stream=stream, folder=tmp_path)
        agrees(lab, result)
        assert result.stop_reason is StopReason.REFUSED and result.requests == 1
        lab.reset()
        output = OutputSchema(schema=schema)
        result = await turn(lab, "structured-output", family=family, stream=stream, folder=tmp_path, output=output)
        agrees(lab, result)
        assert (result.requests, json.loads(result.output or "null")) == (2, {"city": "text"})


@pytest.mark.parametrize("stream", [True, False])
async def test_a_pause_is_sent_back_to_go_on(stream: bool, tmp_path: Path) -> None:
    """Proves: Anthropic's paused content comes back and the turn goes on (promise end:never-empty)."""
    async with Lab() as lab:
        result = await turn(lab, "pause", family="anthropic_messages", stream=stream, folder=tmp_path)
        agrees(lab, result)
        assert (result.requests, result.complete) == (2, True)
        assert result.text.endswith("I have searched, and this is the answer.")


SILENT = {"fault-stall", "fault-silence"}
ANSWERED = {"fault-torn-event", "fault-once-torn-event", "fault-sent-twice"}  # tests/lab/test_damaged_wires.py
FAULTS = [name for name in builtin_scripts() if name.startswith("fault-") and name not in SILENT | ANSWERED]


@pytest.mark.parametrize(("family", "stream"), WAYS)
async def test_every_fault_ends_the_turn_with_a_reason_and_a_text(family: str, stream: bool, tmp_path: Path) -> None:
    """Proves: no fault hangs, raises or passes for an answer."""
    async with Lab() as lab:
        for name in FAULTS:
            result = await turn(lab, name, family=family, stream=stream, folder=tmp_path)
            if name == "fault-invalid-utf8":  # the text is mended where the bytes allow it
                assert result.text, name
                continue
            assert (result.stop_reason, result.complete) == (StopReason.PROVIDER_FAILED, False), name
            assert result.fault is not None and result.text.strip(), name
            assert not (tmp_path / "big.txt").exists()


async def test_a_stall_ends_by_our_own_deadline(tmp_path: Path) -> None:
    """Proves: a stream that goes silent, and one that never speaks, end the turn (promise wait:stream)."""
    async with Lab() as lab:
        soon = Deadlines(first_event_s=0.2, idle_s=0.2, total_s=HANG_S)
        for name in ("fault-stall", "fault-silence"):
            result = await turn(lab, name, family="openai_chat", stream=True, folder=tmp_path, deadlines=soon)
            assert result.stop_reason is StopReason.PROVIDER_FAILED and result.fault is not None
            assert str(result.fault.kind) == "timeout"
