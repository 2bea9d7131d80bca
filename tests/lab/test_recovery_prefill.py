"""Native prefill: where a profile says that an assistant's message may stand last, a cut text is gone on with without a word."""

from pathlib import Path

import msgspec
import pytest

from families import of_family
from lab.cut_cells import LIMITS, MODELS, RAW, WAYS
from turnwise.agent.tools import ToolLike, read_tools
from turnwise.endpoints.endpoints import Endpoint
from turnwise.lab import Lab
from turnwise.lab.families import FAMILIES
from turnwise.lab.provider import Received
from turnwise.lab.raw import parse, table
from turnwise.lab.script import Habit, Script, Writer
from turnwise.lab.writer import file_text
from turnwise.running.runner import Runner
from turnwise.running.runner_config import RunnerMeans
from turnwise.tools.workspace import workspace_tools
from turnwise.turn.config import TurnConfig
from turnwise.turn.events import TurnResult, TurnStarted
from turnwise.vocab import Message, Settings, Text, calls_of
from turnwise.wire.profiles import Profile, builtin_profiles

SIZE = 40_000


def accepting(way: str) -> Profile:
    """The profile of that way, said to accept a prefill."""
    name = MODELS[way].partition(":")[0]
    return msgspec.structs.replace(builtin_profiles()[name], accepts_prefill=True)


async def run(
    writer: Writer, *, profile: Profile, model: str, stream: bool, limit: int, tools: tuple[ToolLike, ...]
) -> tuple[TurnResult, tuple[Received, ...]]:
    """One turn against a lab whose model takes a prefill."""
    lab = Lab([Script(name=model, title="writes", writer=writer, prefill=True)])
    ready = read_tools(tools)
    config = TurnConfig(
        session_id="s",
        turn_id="t",
        model=model,
        tools=tuple([tool.offer for tool in ready]),
        settings=Settings(max_output_tokens=limit),
        stream=stream,
        recover="continue",
        **of_family(profile.family),
        profile=profile.name,
        accepts_prefill=profile.accepts_prefill,
        default_max_tokens=profile.sent_max_tokens,
        tool_choice_none=profile.tool_choice_none,
    )
    endpoint = Endpoint(profile=profile, base_url="http://lab/v1")
    runner = Runner(RunnerMeans(endpoint=endpoint, transport=lab.transport(), tools=ready))
    result = await runner.run(TurnStarted(config=config, input=(Message("user", (Text("Write it, please."),)),)))
    assert [one.refused for one in lab.requests if one.refused] == []
    return result, lab.requests


def ends_with_assistant(one: Received) -> bool:
    return FAMILIES[one.family].read(table(parse(one.body))).said[-1].role == "assistant"


@pytest.mark.promise("cut:continued", "end:no-prefill")
@pytest.mark.parametrize(("way", "stream"), RAW)
@pytest.mark.parametrize("limit", LIMITS)
async def test_a_cut_call_is_gone_on_with_behind_a_prefill(way: str, stream: bool, limit: int, tmp_path: Path) -> None:
    """Proves: the wanted file, one run of the tool, and each continuation ends with the assistant's own text."""
    result, received = await run(
        Writer(size=SIZE),
        profile=accepting(way),
        model=MODELS[way].partition(":")[2],
        stream=stream,
        limit=limit,
        tools=tuple(workspace_tools(tmp_path)),
    )
    assert (tmp_path / "big.txt").read_bytes() == file_text(SIZE).encode()
    assert [call.name for message in result.messages for call in calls_of(message)] == ["write"]
    first, *continued, last = received
    assert (result.complete, ends_with_assistant(first), ends_with_assistant(last)) == (True, False, False)
    assert continued and all(ends_with_assistant(one) for one in continued)


@pytest.mark.promise("cut:continued", "cut:split")
@pytest.mark.parametrize(("way", "stream"), RAW)
@pytest.mark.parametrize("habits", [("repeats",), ("fences",), ("apologises",), ("restarts",), ("ignores",)])
async def test_a_model_that_does_not_go_on_from_its_prefill_makes_no_wrong_file(
    habits: tuple[Habit, ...], way: str, stream: bool, tmp_path: Path
) -> None:
    """Proves: the seam is looked for here too."""
    result, _ = await run(
        Writer(size=SIZE, habits=habits),
        profile=accepting(way),
        model=MODELS[way].partition(":")[2],
        stream=stream,
        limit=4000,
        tools=tuple(workspace_tools(tmp_path)),
    )
    assert (tmp_path / "big.txt").read_bytes() == file_text(SIZE).encode()
    assert result.complete


@pytest.mark.promise("cut:text-continued")
@pytest.mark.parametrize(("way", "stream"), WAYS)
async def test_a_cut_answer_is_gone_on_with_behind_a_prefill(way: str, stream: bool) -> None:
    """Proves: 30,000 tokens under a limit of 4,000 come out as one answer equal to the wanted text."""
    writer = Writer(size=120_000, writes="answer")
    result, received = await run(
        writer, profile=accepting(way), model=MODELS[way].partition(":")[2], stream=stream, limit=4000, tools=()
    )
    assert result.text == file_text(120_000).strip()
    assert (result.complete, result.steps) == (True, 1)
    assert all(ends_with_assistant(one) for one in received[1:])
