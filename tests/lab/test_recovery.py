"""Cut turns over real HTTP: the lab's writer, an agent with real tools, the file. More in `test_recovery_*`."""

import json
from pathlib import Path
from typing import Any, Literal

import pytest

from flat_agents import flat_agent
from lab.cut_cells import MODELS, OBJECTS, RAW, WAYS, file_tools
from thoroughness import spread
from turnwise import RunResult, Settings
from turnwise.agent.tools import ToolLike
from turnwise.lab import Lab
from turnwise.lab.script import Script, Writer
from turnwise.lab.writer import file_text
from turnwise.rules.recovery import Recover
from turnwise.vocab import calls_of

SIZE = 40_000


async def run(
    writer: Writer,
    *,
    family: str,
    stream: bool,
    limit: int | None,
    folder: Path,
    recover: Recover = "continue",
    tools: tuple[ToolLike, ...] | None = None,
    **options: Any,
) -> tuple[RunResult, Lab]:
    """One turn; what the lab refused or counted otherwise than the result is an error."""
    name = MODELS[family].partition(":")[2]
    async with Lab([Script(name=name, title="writes", writer=writer, prefill=False)]) as lab:
        prefix = "" if family in ("anthropic_messages", "gemini", "gemini on Vertex AI") else "/v1"
        (folder / "notes.txt").write_text("a note\n")
        agent = flat_agent(
            MODELS[family],
            base_url=lab.url + prefix,
            api_key="lab",
            tools=file_tools(folder) if tools is None else tools,
            settings=Settings(max_output_tokens=limit, **options),
            stream=stream,
            recover=recover,
            max_steps=60,
        )
        result = await agent.run("Write it, please.")
        assert [one.refused for one in lab.requests if one.refused] == []
        assert lab.count() == result.requests
        assert sum(one.usage.output_tokens for one in lab.requests if one.usage) == result.usage.output_tokens
        return result, lab


def ran(result: RunResult) -> list[str]:
    return [call.name for message in result.new_messages for call in calls_of(message)]


@pytest.mark.promise("cut:continued", "cut:never-run")
@pytest.mark.parametrize(("family", "stream"), RAW)
@pytest.mark.parametrize("limit", [2000, 4000, 8000])
async def test_a_cut_file_is_continued_and_written_once(family: str, stream: bool, limit: int, tmp_path: Path) -> None:
    """Proves: byte for byte the wanted file, one run of the tool, at 1.05 x the arguments' tokens (1.10 x at 2,000)."""
    writer = Writer(size=SIZE)
    result, _ = await run(writer, family=family, stream=stream, limit=limit, folder=tmp_path)
    assert (tmp_path / "big.txt").read_bytes() == file_text(SIZE).encode()
    assert (result.complete, ran(result), result.steps) == (True, ["write"], 2)
    arguments = calls_of(result.new_messages[1])[0].arguments
    assert result.usage.output_tokens <= (1.10 if limit == 2000 else 1.05) * len(arguments.encode()) / 4
    assert result.recovery_usage.output_tokens > 0


@pytest.mark.promise("cut:split", "cut:never-run")
@pytest.mark.parametrize(("family", "stream"), OBJECTS)
@pytest.mark.parametrize("limit", [2000, 4000, 8000])
async def test_where_no_prefix_can_be_had_the_file_is_written_in_pieces(
    family: str, stream: bool, limit: int, tmp_path: Path
) -> None:
    """Proves: the wanted file at 2.0 x the tokens of one whole call, whatever the finish reason claims."""
    result, _ = await run(Writer(size=SIZE), family=family, stream=stream, limit=limit, folder=tmp_path)
    assert (tmp_path / "big.txt").read_bytes() == file_text(SIZE).encode()
    assert result.complete
    assert result.usage.output_tokens <= 2.0 * len(json.dumps(file_text(SIZE), ensure_ascii=False).encode()) / 4


@pytest.mark.promise("cut:split")
@pytest.mark.parametrize(("family", "stream"), WAYS)
async def test_who_chose_split_gets_the_same_file(family: str, stream: bool, tmp_path: Path) -> None:
    """Proves: without any continuation the model is told to write pieces, and does."""
    result, lab = await run(
        Writer(size=SIZE), family=family, stream=stream, limit=4000, folder=tmp_path, recover="split"
    )
    assert (tmp_path / "big.txt").read_bytes() == file_text(SIZE).encode()
    assert (result.complete, result.recovery_usage.output_tokens) == (True, 0)
    assert lab.count() == result.steps


@pytest.mark.promise("cut:text-continued")
@pytest.mark.parametrize(("family", "stream"), spread(WAYS, one_of=3, name="long answers"))
@pytest.mark.parametrize("finish", ["true", "stop"])
async def test_an_answer_of_30_000_tokens_comes_out_whole(
    family: str, stream: bool, finish: Literal["true", "stop"], tmp_path: Path
) -> None:
    """Proves: under a cap of 4,000 one answer equal to the wanted text, one message in the history."""
    writer = Writer(size=120_000, writes="answer", finish=finish)
    result, _ = await run(writer, family=family, stream=stream, limit=4000, folder=tmp_path, tools=())
    assert result.text == file_text(120_000).strip()
    assert (result.complete, result.steps, len(result.new_messages)) == (True, 1, 2)
    assert result.usage.output_tokens <= 1.05 * 30_000


@pytest.mark.promise("cut:text-continued")
async def test_an_answer_without_end_is_flagged_at_the_cap(tmp_path: Path) -> None:
    """Proves: after 16 continuations the text is what came, in order, and the result says that it is not all."""
    writer = Writer(size=120_000, writes="answer")
    result, _ = await run(writer, family="openai_chat", stream=True, limit=1000, folder=tmp_path, tools=())
    assert result.requests == 17
    assert file_text(120_000).startswith(result.text) and len(result.text.encode()) > 60_000
    assert not result.complete
    (why,) = [repair.what for repair in result.repairs if repair.kind == "continuation_refused"]
    assert why == "it was still cut after 16 continuations"


@pytest.mark.promise("cut:thinking-ate-all")
@pytest.mark.parametrize(("family", "stream"), WAYS)
async def test_reasoning_that_ate_all_is_asked_for_less(family: str, stream: bool, tmp_path: Path) -> None:
    """Proves: a cut inside the reasoning leads to an answer, or to words of ours, in three requests at most."""
    writer = Writer(size=2000, writes="answer", thinks=3000)
    result, lab = await run(writer, family=family, stream=stream, limit=2000, folder=tmp_path, tools=())
    assert result.requests <= 3
    assert result.recovery_usage.output_tokens > 0
    assert result.text.strip()
    if family != "openai_chat":  # plain Chat Completions has no word for less reasoning
        assert (result.text, result.complete, lab.count()) == (file_text(2000).strip(), True, 2)


def drawn(result: RunResult, *, lab: Lab) -> str:
    """The requests of a Chat Completions turn as rows of docs/cut-turn.md."""
    rows: list[str] = []
    for one in lab.requests:
        assert one.usage is not None and one.request is not None
        messages = json.loads(one.body)["messages"]
        shown = [
            f"{message['role']} ({len(message['content']):,} characters)"
            if message["content"]
            else f"{message['role']} (one call, {len(message['tool_calls'][0]['function']['arguments']):,} characters)"
            for message in messages
        ]
        purpose = "continue" if one.request.tool_choice == "none" else "step"
        rows.append(
            f"| {one.number} | `{purpose}` | {', '.join(shown)} | {one.request.tool_choice} | {one.usage.input_tokens:,} | "
            f"{one.usage.output_tokens:,} |\n"
        )
    usage, again = result.usage, result.recovery_usage
    rows.append(
        f"| | | all, of that for going on: {again.input_tokens:,} in, {again.output_tokens:,} out | | "
        f"{usage.input_tokens:,} | {usage.output_tokens:,} |\n"
    )
    return "".join(rows)


async def test_the_page_about_a_cut_turn_shows_a_real_one(tmp_path: Path) -> None:
    """Proves: the table of docs/cut-turn.md is what the lab received."""
    result, lab = await run(Writer(size=SIZE), family="openai_chat", stream=True, limit=4000, folder=tmp_path)
    page = Path(__file__).resolve().parents[2] / "docs" / "cut-turn.md"  # noqa: ASYNC240 (one read after the run)
    assert drawn(result, lab=lab) in page.read_text(encoding="utf-8"), drawn(result, lab=lab)
