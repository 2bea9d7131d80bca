"""What is known of models' limits, and how a name finds it."""

import subprocess
import sys
from datetime import date, datetime
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tables import each
from turnwise.errors import CallerError
from turnwise.rules.prompt_room import UNKNOWN_LIMITS, ModelLimits, output_reserve, prompt_capacity
from turnwise.settings.catalogue import (
    Catalogue,
    LimitRow,
    builtin_catalogue,
    builtin_ends,
    find_end,
    find_limits,
    limits_over,
    parse_catalogue,
    read_rows,
    suggested_models,
)
from turnwise.vocab import Settings
from turnwise.wire.profiles import builtin_profiles

SCRIPT = Path(__file__).resolve().parents[2] / "scripts" / "model_limits.py"


def known(window: int, output: int | None = None, *, input: int | None = None) -> ModelLimits:
    return ModelLimits(context_window_tokens=window, max_input_tokens=input, max_output_tokens=output)


@pytest.mark.promise("cut:budget")
@each(
    ("profile", "model", "expected"),
    [
        ("anthropic", "claude-sonnet-4-5-20250929", known(200_000, 64_000)),
        ("anthropic", "claude-opus-4-1", known(200_000, 32_000)),
        ("bedrock-anthropic", "us.anthropic.claude-sonnet-4-5-20250929-v1:0", known(200_000, 64_000)),
        ("vertex-anthropic", "claude-3-5-haiku@20241022", known(200_000, 8_192)),
        ("openrouter", "anthropic/claude-3.7-sonnet:thinking", known(200_000, 64_000)),
        ("openai", "gpt-4o-mini-2024-07-18", known(128_000, 16_384)),
        ("openai", "gpt-4o-2024-05-13", known(128_000, 4_096)),
        ("openai", "gpt-4", known(8_192, 4_096)),
        ("openai", "gpt-5-nano", known(400_000, 128_000, input=272_000)),
        ("openai", "gpt-5-chat-latest", known(128_000, 16_384)),
        ("openai", "ft:gpt-4o-2024-08-06:someone::abc", known(128_000, 16_384)),
        ("mistral", "ministral-8b-2512", known(262_144)),
        ("groq", "openai/gpt-oss-120b", known(131_072, 65_536)),
        ("cerebras", "gpt-oss-120b", known(131_072, 32_768)),
        ("fireworks", "accounts/fireworks/models/kimi-k2p5", known(262_144, 32_768)),
        ("together", "Qwen/Qwen3-Coder-480B-A35B-Instruct-FP8", known(262_144)),
    ],
)
def test_a_name_finds_the_row_that_begins_it_longest(profile: str, model: str, expected: ModelLimits) -> None:
    """Dates, vendors in front and spellings change nothing; a host's own row goes before the maker's."""
    assert find_limits(model, profile=profile) == expected


@pytest.mark.parametrize("model", ["my-deployment", "gpt4", "gpt-4omni", "o10", "claudette", "", "deepseek"])
def test_what_nobody_knows_is_none(model: str) -> None:
    """A row ends at a boundary of the name; unknown is unknown, and the rules have safe defaults."""
    assert find_limits(model, profile="openai") is None


@pytest.mark.parametrize("profile", ["ollama", "vllm", "llamacpp", "lmstudio"])
def test_a_server_of_ones_own_is_never_looked_up(profile: str) -> None:
    """Its window is what it was started with, which may be a thirtieth of what the model could do."""
    assert find_limits("qwen3-coder", profile=profile) is None


@pytest.mark.promise("cut:budget")
def test_the_users_rows_win_field_by_field() -> None:
    """For a model anywhere, or at one endpoint only; whatever is not set stays."""
    own = read_rows({"ollama:qwen3": {"window": 16_000}, "claude-opus-4-1": {"output": 8_000}}, named="`f`")
    assert find_limits("qwen3:8b", profile="ollama", overrides=own) == known(16_000)
    assert find_limits("qwen3:8b", profile="vllm", overrides=own) is None
    assert find_limits("claude-opus-4-1", profile="anthropic", overrides=own) == known(200_000, 8_000)
    both = {"qwen3": LimitRow(window=1), "ollama:qwen3": LimitRow(window=2)}
    assert find_limits("qwen3", profile="ollama", overrides=both) == known(2)
    assert find_limits("qwen3", profile="vllm", overrides=both) == known(1)


def test_a_star_at_the_end_leaves_the_rest_of_the_name_open() -> None:
    """Without it a name ends at a boundary; the longest row still decides."""
    own = read_rows({"qwen*": {"window": 1}, "qwen3": {"window": 2}, "ollama:*": {"window": 3}}, named="`f`")
    found = {
        (profile, name): find_limits(name, profile=profile, overrides=own)
        for profile, name in [("vllm", "qwen2.5"), ("vllm", "qwen3:8b"), ("vllm", "other"), ("ollama", "any")]
    }
    assert found == {
        ("vllm", "qwen2.5"): known(1),
        ("vllm", "qwen3:8b"): known(2),
        ("vllm", "other"): None,
        ("ollama", "any"): known(3),
    }


@pytest.mark.parametrize(
    ("table", "said"),
    [
        ({"a": {"window": 0}}, "`f`, `a`: a limit is a number of tokens above 0; a row has `window`, `input`"),
        (
            {"a": {"widow": 1}},
            "`f`, `a`: Object contains unknown field `widow` (did you mean `window`?); a row has `window`, `input`, `output`",
        ),
        ({"a": {"window": "1"}}, "`f`, `a`: Expected `int | null`, got `str` - at `$.window`; a row has"),
        ({"a": 1}, "`f`, `a`: Expected `object`, got `int`; a row has"),
        ({"a*b": {"window": 1}}, "`f`, `a*b`: `*` may stand at the end of a name only"),
        (["a"], '`f`: write a table for each model, `"qwen3" = { window = 40_960 }`'),
    ],
)
def test_a_row_of_the_user_that_cannot_be_read_is_told(table: object, said: str) -> None:
    """Which model, what is wrong, and what a row may say."""
    with pytest.raises(CallerError) as raised:
        read_rows(table, named="`f`")
    assert said in str(raised.value)


def test_known_limits_stand_over_others_figure_by_figure() -> None:
    """What is unknown above stays as it was below."""
    assert limits_over(None, None) == UNKNOWN_LIMITS
    assert limits_over(known(9, 5), None) == known(9, 5)
    assert limits_over(None, known(9, 5)) == known(9, 5)
    assert limits_over(known(9, 5), known(7)) == known(7, 5)


def test_the_file_is_sound_and_in_its_normal_form() -> None:
    """Date and sources named, no name twice, nothing larger than its window: what the script checks."""
    done = subprocess.run([sys.executable, str(SCRIPT), "--check"], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_hosts_are_profiles() -> None:
    catalogue = builtin_catalogue()
    assert {*catalogue.hosts, *catalogue.own_machine} <= set(builtin_profiles())
    assert catalogue.date


@pytest.mark.promise("cut:budget")
def test_every_known_model_keeps_room_for_prompt_and_answer() -> None:
    """Whatever a row says, the reserve is a third of the window at most, and most of it is left for the prompt."""
    catalogue = builtin_catalogue()
    for rows in (catalogue.makers, *catalogue.hosts.values()):
        for name, row in rows.items():
            limits = row.limits()
            assert 0 < output_reserve(limits, settings=Settings()) <= (row.window or 0) // 3, name
            assert prompt_capacity(limits, settings=Settings()) >= (row.window or 0) // 2, name


@given(st.dictionaries(st.text("ab-.:", min_size=1, max_size=6), st.integers(1, 99)), st.text("ab-.:/", max_size=8))
def test_the_longest_of_all_rows_decides(rows: dict[str, int], name: str) -> None:
    """Against a plain search over all of them."""
    catalogue = Catalogue(
        date="2026-01-01", sources=("x",), makers={key: LimitRow(window=window) for key, window in rows.items()}
    )
    found = find_limits(name, profile="p", catalogue=catalogue)
    plain = name.rpartition("/")[2].replace(".", "-")
    fitting = [
        (len(key), window)
        for key, window in rows.items()
        for prefix in [key.replace(".", "-")]
        if plain.startswith(prefix) and not plain[len(prefix) : len(prefix) + 1].isalnum()
    ]
    if not fitting:
        assert found is None
    else:
        assert found is not None
        assert found.context_window_tokens in [window for size, window in fitting if size == max(fitting)[0]]


def test_a_catalogue_of_ones_own_can_be_read() -> None:
    text = (
        'date = "2026-01-01"\nsources = ["me"]\n[makers]\nm = { window = 10, input = 8, output = 4, reasoning = 2 }\n'
    )
    assert find_limits("m", profile="x", catalogue=parse_catalogue(text)) == ModelLimits(
        context_window_tokens=10, max_input_tokens=8, max_output_tokens=4, max_reasoning_tokens=2
    )


@pytest.mark.parametrize(
    ("profile", "model", "on", "use"),
    [
        ("openai", "gpt-5", "2026-12-11", "gpt-6.1-sol"),
        ("openai-chat", "gpt-5-2025-08-07", "2026-12-11", "gpt-6.1-sol"),
        ("openai", "gpt-4o-2024-05-13", "2026-10-23", "gpt-5.6-sol"),
        ("openai", "ft:gpt-4o-2024-08-06:someone::abc", "2027-01-14", "gpt-6-luna"),
        ("anthropic", "claude-sonnet-4-5-20250929", "2026-11-30", "claude-sonnet-5-5"),
        ("google", "gemini-2.5-pro", "2026-12-01", "gemini-3.8-flash"),
        ("groq", "llama-3.3-70b-versatile", "2026-08-16", "openai/gpt-oss-120b"),
    ],
)
def test_a_model_and_its_snapshots_end_when_their_maker_says(profile: str, model: str, on: str, use: str) -> None:
    end = find_end(model, profile=builtin_profiles()[profile])
    assert end is not None and (end.on, end.use) == (on, use)
    day_s = datetime.fromisoformat(f"{on}T00:00:00+00:00").timestamp()
    assert end.said(now_s=day_s - 1) == f"ends on {on}; use {use}"
    assert end.said(now_s=day_s) == f"ended on {on}; use {use}"


@pytest.mark.parametrize(
    ("profile", "model"),
    [("openai", "gpt-5.6-sol"), ("openai", "gpt-5-search-api"), ("azure", "gpt-5"), ("openrouter", "openai/gpt-5")],
)
def test_no_end_is_made_up(profile: str, model: str) -> None:
    """Another model, another version, another server: each partner has dates of its own."""
    assert find_end(model, profile=builtin_profiles()[profile]) is None
    assert find_end("gpt-5", profile=builtin_profiles()["openai"], base_url="http://127.0.0.1:1/v1") is None


def test_the_table_of_ends_holds_together() -> None:
    """Profiles that are, days that are, no replacement that ends itself, the page of each maker."""
    ends, profiles = builtin_ends(), builtin_profiles()
    assert date.fromisoformat(ends.date) and set(suggested_models()) <= set(profiles)
    for maker in ends.makers.values():
        assert maker.page.startswith("https://") and set(maker.profiles) <= set(profiles)
        assert list(maker.ends) == sorted(maker.ends)
        for row, end in maker.ends.items():
            assert date.fromisoformat(end.on).isoformat() == end.on
            assert find_end(end.use, profile=profiles[maker.profiles[0]]) is None, f"{row}: {end.use} ends, too"
