"""The figures that the pages name are those that the code has, and those that no other test shows are kept."""

import re
from decimal import Decimal
from importlib.metadata import version
from pathlib import Path

import pytest

from turnwise.agent.children import MAX_DEPTH
from turnwise.agent.formatting import cost_said
from turnwise.assembly.response import Assembler
from turnwise.coding_agent.prompts import MAX_INPUT_BYTES
from turnwise.coding_agent.repository import MAX_AGENTS_BYTES
from turnwise.endpoints.bounded_connector import MAX_HEADS
from turnwise.journal.prices import Prices
from turnwise.rules import loops, prompt_room, recovery
from turnwise.rules import reservations as subagents
from turnwise.rules.pricing import Cost
from turnwise.rules.retries import RetryPolicy
from turnwise.running.run_context import INSPECT_S
from turnwise.running.scripts import KERNEL_SLACK_S
from turnwise.tools.sandbox import sandbox_types as bounds
from turnwise.tools.workspace import (
    changes,
    output,
    paths,
    shell,
)
from turnwise.tools.workspace import read_tool as listing
from turnwise.tools.workspace import (
    read_tool as reading,
)
from turnwise.tools.workspace import read_tool as searching
from turnwise.tools.workspace.paths import WorkspacePaths
from turnwise.tools.workspace.read_tool import SearchArguments, search
from turnwise.turn import settled_response as calls
from turnwise.turn import step_request as lessons
from turnwise.turn.config import ScriptLimits, TurnConfig
from turnwise.vocab import schema_bounds
from turnwise.vocab.schema_bounds import MAX_VALUES
from turnwise.wire import endings
from turnwise.wire import json_fields as healing
from turnwise.wire.profiles import Limits

DOCS = Path(__file__).resolve().parents[1] / "docs"
NOW = 1_795_305_600.0  # 2026-11-22
KiB, MiB, GiB = 1024, 1024 * 1024, 1024**3
LIMITS = Limits()
SCRIPTS = ScriptLimits()
ROUNDS = [loops.RUNS * period + loops.REMEMBERED_STEPS + 1 for period in loops.PERIODS]

FIGURES = {
    "billing.md": [
        f"from 0 to 2^{endings.MAX_COUNT.bit_length() - 1};",
        f"at most {('none', 'one', 'two', 'three')[RetryPolicy().attempts - 1]} by default",
    ],
    "limits.md": [
        f"leaves the answer {prompt_room.MIN_ANSWER_TOKENS:,} tokens at least",
        f"at most a {('', '', 'half', 'third')[prompt_room.OUTPUT_SHARE]} of the window",
        f"assumes a window of {prompt_room.UNKNOWN_WINDOW_TOKENS:,} tokens",
        f"names a limit only up to {prompt_room.UNKNOWN_OUTPUT_TOKENS:,} tokens",
        f"if the prompt has {lessons.UNSAID_TOKENS:,} tokens or more",
        f"(HTTP {', '.join(str(one) for one in sorted(lessons.UNSAID_STATUSES))})",
        f"{('', '', '', '', '', '', 'six')[lessons.MAX_CORRECTIONS]} times at most without an answer in between",
        f"at most {subagents.MAX_SUBAGENTS} sub-agents",
        f"at most {subagents.MAX_SUBAGENT_REQUESTS} requests",
        f"The first {calls.MAX_CALLS} calls of a response",
        f"may hold {MAX_VALUES:,} JSON values",
        f"The arguments may take {LIMITS.call_bytes // MiB} MiB.",
        f"mends an event or a body of at most {healing.MAX_MENDED_BYTES // KiB} KiB",
        f"with at most {healing.MAX_MENDED_VALUES:,} JSON values",
        f"may have {schema_bounds.MAX_SCHEMA_BYTES:,} bytes, {schema_bounds.MAX_SUBSCHEMAS:,} subschemas",
        f"At most {schema_bounds.MAX_LEVELS} levels of subschemas",
        f"{schema_bounds.MAX_REFERENCES:,} uses of subschemas",
        f"may have {schema_bounds.MAX_REFERENCES_OF_A_REQUEST:,} uses",
        f"may take {schema_bounds.MAX_CHECKS_OF_A_VALUE:,} checks",
        f"may have {schema_bounds.MAX_PATTERN_SIZE:,} steps",
        f"`\\p{{L}}` has {schema_bounds.PROPERTY_SIZE:,}",
        f"counts as {schema_bounds.MAX_BACKTRACKS:,} checks",
        f"may take {schema_bounds.MAX_CHECKS:,} checks",
        f"for each {schema_bounds.BYTES_A_READ} characters of text",
        f"more than {schema_bounds.MAX_CHECKS // schema_bounds.MAX_BACKTRACKS * schema_bounds.BYTES_A_READ:,}",
        f"could take more than {schema_bounds.MAX_CHECKS_FOR_ERRORS:,} checks",
    ],
    "deadlines.md": [f"After {MAX_HEADS:,} of them", f"| inspector (`inspect=`) | | {INSPECT_S:g} |"],
    "tools.md": [
        f"At most {reading.MAX_LINES:,} lines, {reading.MAX_LINE_CHARACTERS:,} characters a line",
        f"{reading.MAX_CHARACTERS // KiB} KiB are shown at a time",
        f"up to {reading.MAX_IMAGE_BYTES / 1_000_000:g} MB",
        f"Files of more than {paths.MAX_READ_BYTES // MiB} MiB are refused",
        f"`list` ends after {listing.LIST_S:g} s and shows at most {listing.MAX_ENTRIES:,} entries",
        f"`search` ends after {searching.SEARCH_S:g} s and shows at most {searching.MAX_MATCHES} matches",
        f"takes a file of up to {paths.MAX_READ_BYTES // MiB} MiB",
        f"skips files of more than {searching.MAX_FILE_BYTES // MiB} MiB",
        f"({changes.KEPT_BYTES // MiB} MiB and {changes.KEPT_CHANGES} changes; the oldest give way)",
    ],
    "sandbox.md": [
        f"{shell.DEFAULT_S} s, at most {shell.MAX_S:,} s",
        f"the first and last {shell.KEPT_BYTES // KiB} KiB",
        f"| memory | {bounds.UNASKED_MEMORY // GiB} GiB, at most half",
        f"| processes and threads | {bounds.UNASKED_PROCESSES} | {bounds.ALLOWED_PROCESSES:,} |",
        f"| temporary files | {bounds.UNASKED_SCRATCH // MiB} MiB, at most an eighth",
        f"The kernel's limits are {('', '', 'twice')[bounds.KERNELS_SHARE]} these figures, and"
        f" {('', '', '', '', 'four')[bounds.FILES_SHARE]} times that of files",
        f"the first {output.MAX_FILE_BYTES // MiB} MiB, of the last {output.MAX_FILES} commands",
    ],
    "cli.md": [
        f"Unless set: {TurnConfig(session_id='', turn_id='', model='').max_steps} |",
        f"UTF-8, {MAX_INPUT_BYTES // MiB} MiB at most)",
        f"({MAX_AGENTS_BYTES // KiB} KiB at most)",
        f"({changes.KEPT_BYTES // MiB} MiB at most a folder)",
        f"Unless set: {RetryPolicy().attempts - 1} |",
    ],
    "library.md": [
        f"`max_depth` deep, {MAX_DEPTH} unless you set it",
        f"`max_subagents` ({subagents.MAX_SUBAGENTS})",
        f"`max_subagent_requests` ({subagents.MAX_SUBAGENT_REQUESTS})",
        f"takes longer than {INSPECT_S:g} s",
        f"request {ROUNDS[0]}, {ROUNDS[1]} or {ROUNDS[2]} at the latest",
        f"left alone for {loops.POLLS} rounds",
    ],
    "scripted-steps.md": [
        f"| `cpu_s` | {SCRIPTS.cpu_s:g} |",
        f"| `wall_s` | {SCRIPTS.wall_s:g} |",
        f"| `sleep_s` | {SCRIPTS.sleep_s:g} |",
        f"| `memory_bytes` | {SCRIPTS.memory_bytes:,} |",
        f"| `calls` | {SCRIPTS.calls} |",
        f"| `call_bytes` | {SCRIPTS.call_bytes:,} |",
        f"| `exchanged_bytes` | {SCRIPTS.exchanged_bytes:,} |",
        f"| `output_characters` | {SCRIPTS.output_characters:,} |",
        f"| `program_characters` | {SCRIPTS.program_characters:,} |",
        f"within {KERNEL_SLACK_S} s more",
    ],
    "cut-turn.md": [f"continues it, at most {recovery.MAX_TEXT_CONTINUATIONS} times"],
    "decisions.md": [f"on its bytes ({LIMITS.response_bytes // MiB} MiB)"],
}


@pytest.mark.parametrize("page", FIGURES)
def test_the_figures_of_the_pages_are_those_of_the_code(page: str) -> None:
    """A constant that changes changes its page; a page whose words change changes this table."""
    text = " ".join((DOCS / page).read_text(encoding="utf-8").split())
    assert [said for said in FIGURES[page] if said not in text] == []


def test_the_assembler_keeps_what_the_decoders_let_through() -> None:
    """The page names one limit, and two rooms have it."""
    kept = Assembler.__init__.__kwdefaults__ or {}
    assert (kept.get("call_bytes"), kept.get("response_bytes")) == (LIMITS.call_bytes, LIMITS.response_bytes)


@pytest.mark.costly
async def test_a_large_file_is_searched_where_it_is_named_and_passed_over_in_a_folder(tmp_path: Path) -> None:
    """As the page about tools says of files of more than 8 MiB; past 32 MiB the file is refused by name too."""
    large = tmp_path / "large.txt"
    large.write_bytes(b"hay\n" * (searching.MAX_FILE_BYTES // 4) + b"needle\n")
    workspace = WorkspacePaths(tmp_path)
    assert await search(workspace, SearchArguments(pattern="needle")) == "no match"
    assert "needle" in await search(workspace, SearchArguments(pattern="needle", path="large.txt"))
    with large.open("r+b") as file:
        file.truncate(paths.MAX_READ_BYTES + 1)
    with pytest.raises(Exception, match=re.escape(f"more than {paths.MAX_READ_BYTES:,}")):
        await search(workspace, SearchArguments(pattern="needle", path="large.txt"))


def test_a_sum_that_nobody_knows_whole_is_said_as_the_page_says() -> None:
    """`at least $0.0123, 2 requests unknown`, and no exact sum."""
    cost = Cost(usd=Decimal("0.0123"), requests=5, unknown=2)
    page = (DOCS / "billing.md").read_text(encoding="utf-8")
    assert f"`{cost_said(cost)}`" in page
    assert cost.exact_usd is None


def test_the_package_of_prices_is_behind_as_the_page_says() -> None:
    """The example of the page about billing, for the edition that it names; a newer one needs another sentence."""

    def figures(hour: float) -> tuple[Decimal, ...]:
        row = Prices().find("deepseek-chat", profile="deepseek", at_s=NOW + hour * 3600)
        assert row is not None
        (amounts,) = row.tokens
        return amounts.input, amounts.output, amounts.cache_read or Decimal(0)

    assert [figures(hour) == figures(10) for hour in (0.4, 0.6, 16.4, 16.6)] == [False, True, True, False]
    assert all(abs(2 * night - day) < Decimal("0.02") for day, night in zip(figures(10), figures(20), strict=True))
    said = f"that of {version('genai-prices')} has `deepseek-chat` at "
    by_day = "/".join([f"{amount:.2f}" for amount in figures(10)])
    page = " ".join((DOCS / "billing.md").read_text(encoding="utf-8").split())
    assert f"{said}{by_day} by day and at half of that from 16:30 to 0:30 UTC" in page
