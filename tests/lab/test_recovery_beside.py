"""What stands beside a cut call: a whole one, another cut one, reasoning; and arrays that would close well."""

import json
from pathlib import Path
from typing import Annotated

import pytest

from lab.cut_cells import LIMITS, RAW, WAYS, ask_writer, calls_made
from thoroughness import spread
from turnwise import Settings
from turnwise.lab.script import Writer
from turnwise.lab.writer import file_text
from turnwise.vocab import Reasoning, ToolResult, calls_of

SIZE = 40_000
BOTH = {"big.txt": file_text(SIZE), "second-big.txt": file_text(SIZE, seed=2)}


@pytest.mark.promise("cut:complete-sibling", "cut:continued", "step:every-call-answered")
@pytest.mark.parametrize(("family", "stream"), WAYS)
@pytest.mark.parametrize("limit", LIMITS)
async def test_a_whole_call_beside_a_cut_one_runs_once_and_both_have_results(
    limit: int, family: str, stream: bool, tmp_path: Path
) -> None:
    """Proves: the whole one is not lost, each call has one result, and one follow-up carries both."""
    (tmp_path / "notes.txt").write_text("a note\n")
    writer = Writer(size=SIZE, writes="beside-read")
    result, received = await ask_writer(writer, family=family, stream=stream, folder=tmp_path, limit=limit)
    assert (tmp_path / "big.txt").read_bytes() == file_text(SIZE).encode()
    assert result.complete and calls_made(result).count("read") == 1
    first, results = result.new_messages[1:3]
    assert [call.name for call in calls_of(first)] == ["read", "write"]
    assert [part.call_id for part in results.parts if isinstance(part, ToolResult)] == [
        call.id for call in calls_of(first)
    ]
    if (family, stream) in RAW:
        assert (calls_made(result), result.steps) == (["read", "write"], 2)
        assert len(received) == result.requests


@pytest.mark.promise("cut:continued", "cut:never-run")
@pytest.mark.parametrize("family", ["openai_chat", "openai_responses"])
@pytest.mark.parametrize("stream", [True, False])
@pytest.mark.parametrize("limit", LIMITS)
async def test_two_cut_calls_are_gone_on_with_one_after_the_other(
    limit: int, stream: bool, family: str, tmp_path: Path
) -> None:
    """Proves: calls that were written side by side, both cut, run once each with their own text. Only these two APIs have
    calls in pieces that may come in turn; the others end one before they begin the next."""
    writer = Writer(size=SIZE, writes="two-files", together=True)
    result, _ = await ask_writer(writer, family=family, stream=stream, folder=tmp_path, limit=limit)
    assert {path: (tmp_path / path).read_bytes().decode() for path in BOTH} == BOTH
    assert (result.complete, calls_made(result), result.steps) == (True, ["write", "write"], 2)
    joined = [repair.where for repair in result.repairs if repair.kind == "continued_call"]
    assert joined == ["call call_1_1", "call call_1_2"]
    whole = sum([len(call.arguments.encode()) for call in calls_of(result.new_messages[1])]) / 4
    assert result.usage.output_tokens <= (1.10 if limit == 2000 else 1.05) * whole


@pytest.mark.promise("cut:continued", "cut:split")
@pytest.mark.parametrize(("family", "stream"), spread(WAYS, one_of=3, name="two files in one response"))
@pytest.mark.parametrize("limit", [*LIMITS, 11_000, 16_000])
async def test_two_files_in_one_response_are_both_written(
    limit: int, family: str, stream: bool, tmp_path: Path
) -> None:
    """Proves: wherever the limit falls, in the first call or in the second."""
    writer = Writer(size=SIZE, writes="two-files")
    result, _ = await ask_writer(writer, family=family, stream=stream, folder=tmp_path, limit=limit)
    assert {path: (tmp_path / path).read_bytes().decode() for path in BOTH} == BOTH
    assert result.complete


@pytest.mark.promise("cut:continued", "cut:never-run")
@pytest.mark.parametrize(("family", "stream"), WAYS)
@pytest.mark.parametrize("limit", LIMITS)
async def test_an_array_that_would_close_well_is_not_closed(
    limit: int, family: str, stream: bool, tmp_path: Path
) -> None:
    """Proves: every hunk of a cut `apply_patch` arrives, each once, and none twice."""
    applied: list[str] = []

    def apply_patch(edits: Annotated[list[dict[str, str | int]], "The hunks, in order."]) -> str:
        """Apply hunks."""
        applied.extend([str(edit["new"]) for edit in edits])
        return f"{len(edits)} applied"

    writer = Writer(size=SIZE, writes="patch")
    result, _ = await ask_writer(
        writer, family=family, stream=stream, folder=tmp_path, limit=limit, tools=(apply_patch,)
    )
    assert "".join(applied) == file_text(SIZE)
    assert result.complete
    if (family, stream) in RAW:
        assert calls_made(result) == ["apply_patch"]


@pytest.mark.promise("cut:continued", "cut:split", "step:history-healed")
@pytest.mark.parametrize(("family", "stream"), WAYS)
async def test_reasoning_before_a_cut_call_stays_in_the_history(family: str, stream: bool, tmp_path: Path) -> None:
    """Proves: its signature goes back as it came, which the lab checks, and the call behind it is recovered."""
    writer = Writer(size=SIZE, thinks=300)
    result, received = await ask_writer(writer, family=family, stream=stream, folder=tmp_path, limit=4000)
    assert (tmp_path / "big.txt").read_bytes() == file_text(SIZE).encode()
    assert result.complete
    assert any(isinstance(part, Reasoning) for part in result.new_messages[1].parts)
    if (family, stream) in RAW:
        assert calls_made(result) == ["write"]
    if family == "anthropic_messages":
        last = json.loads(received[-1].body)["messages"]
        assert [block["type"] for block in last[1]["content"]][:1] == ["thinking"]


@pytest.mark.promise("cut:thinking-ate-all")
@pytest.mark.parametrize(("family", "stream"), WAYS)
@pytest.mark.parametrize("settings", [Settings(), Settings(reasoning_effort="high")], ids=["unasked", "high"])
async def test_a_cut_inside_the_reasoning_before_a_call_never_ends_silently(
    settings: Settings, family: str, stream: bool, tmp_path: Path
) -> None:
    """Proves: the turn goes on with less reasoning and writes the file. Plain Chat Completions has no word for less: it ends
    with words, in three requests, and says that it is not all."""
    writer = Writer(size=SIZE, thinks=3000)
    result, received = await ask_writer(
        writer, family=family, stream=stream, folder=tmp_path, limit=2000, settings=settings
    )
    assert len(received) == result.requests and result.recovery_usage.output_tokens > 0
    assert result.text.strip()
    if family == "openai_chat":
        assert (result.complete, result.requests, (tmp_path / "big.txt").exists()) == (False, 3, False)
    else:
        assert result.complete
        assert (tmp_path / "big.txt").read_bytes() == file_text(SIZE).encode()
