"""Where prices come from: the user's file, plans, the table of genai-prices, and who wins."""

import os
import subprocess
import sys
from decimal import Decimal
from pathlib import Path

import msgspec
import pytest

from tables import each
from turnwise.errors import CallerError
from turnwise.journal.price_table import SOURCE
from turnwise.journal.prices import Prices, prices_of_layers, read_prices, read_prices_file
from turnwise.rules.pricing import OwnCost, PriceRow, TokenPrices
from turnwise.settings.settings import Layer
from turnwise.wire.profiles import builtin_profiles
from waits import HANG_S

NOW = 1_795_305_600.0  # 2026-11-22
NOTHING = Prices()


def tokens(*figures: str, above: int = 0, write_1h: str | None = None) -> TokenPrices:
    known = [Decimal(figure) for figure in figures]
    return TokenPrices(
        input=known[0],
        output=known[1],
        cache_read=known[2] if len(known) > 2 else None,
        cache_write=known[3] if len(known) > 3 else None,
        cache_write_1h=None if write_1h is None else Decimal(write_1h),
        above_tokens=above,
    )


def plain(row: PriceRow | None) -> PriceRow | None:
    """Its list prices alone, without those of other ways to be served."""
    return None if row is None else msgspec.structs.replace(row, terms=(), kin_terms=())


@pytest.mark.promise("bill:plans")
@pytest.mark.parametrize(
    ("profile", "model", "expected"),
    [
        # Published prices, as in tests/rules/test_pricing.py; read on 2026-11-22.
        ("openai", "gpt-5", (tokens("1.25", "10", "0.125"),)),
        ("openai", "gpt-5-2025-08-07", (tokens("1.25", "10", "0.125"),)),
        ("openai-chat", "gpt-5-mini", (tokens("0.25", "2", "0.025"),)),
        ("anthropic", "claude-haiku-4-5", (tokens("1", "5", "0.1", "1.25", write_1h="2"),)),
        ("anthropic", "claude-opus-4-5-20251101", (tokens("5", "25", "0.5", "6.25", write_1h="10"),)),
        (
            "anthropic",
            "claude-sonnet-4-5",
            (
                tokens("3", "15", "0.3", "3.75", write_1h="6"),
                tokens("6", "22.5", "0.6", "7.5", above=200_000, write_1h="12"),
            ),
        ),
        (
            "google",
            "gemini-2.5-pro",
            (tokens("1.25", "10", "0.125"), tokens("2.5", "15", "0.25", above=200_000)),
        ),
    ],
)
def test_the_table_of_the_package_becomes_rows(profile: str, model: str, expected: tuple[TokenPrices, ...]) -> None:
    """Proves: prices, cache tiers and long prompts of well-known models, in our words."""
    row = plain(NOTHING.find(model, profile=profile, at_s=NOW))
    assert row == PriceRow(plan="tokens", source=SOURCE, tokens=expected)


@pytest.mark.promise("bill:plans")
@pytest.mark.parametrize(
    ("profile", "model"),
    [
        ("openai", "gpt-99-imaginary"),
        ("openai_chat", "gpt-5"),
        ("litellm", "gpt-5"),
        ("chutes", "gpt-5"),
        ("zai-coding", "glm-4.6"),
    ],
)
def test_what_nobody_knows_has_no_price(profile: str, model: str) -> None:
    """A model costs at another endpoint what that one says, not what its maker does."""
    assert NOTHING.find(model, profile=profile, at_s=NOW) is None


def test_models_on_ones_own_machine_are_free() -> None:
    """And that is said by a row, not by the lack of one."""
    row = NOTHING.find("qwen3:8b", profile="ollama", at_s=NOW)
    assert row is not None and row.plan == "free"


def test_providers_that_name_the_cost_are_believed_beside_their_table() -> None:
    """Where the table does not know the model, the provider's word is all there is."""
    known = NOTHING.find("grok-4.3", profile="xai", at_s=NOW)
    unknown = NOTHING.find("vendor/brand-new", profile="openrouter", at_s=NOW)
    assert known is not None and known.tokens and known.own_cost is not None
    assert known.own_cost == OwnCost(path=("cost_in_usd_ticks",), unit_usd=Decimal("1E-10"))
    assert unknown is not None and not unknown.tokens and unknown.own_cost is not None


def test_every_profile_of_the_plans_exists() -> None:
    """Proves: no row of price_plans.toml is for a profile that nobody has."""
    from turnwise.journal.prices import _plans  # pyright: ignore[reportPrivateUsage]

    named = {*_plans().tables, *_plans().own_cost, *[key.partition(":")[0] for key in _plans().plans]}
    assert named <= set(builtin_profiles())


def layer(source: str, prices: object) -> Layer:
    return Layer(source=source, table={"prices": prices}, path=Path(f"/{source}/turnwise.toml"))  # pyright: ignore[reportArgumentType]


@pytest.mark.promise("bill:plans")
def test_the_users_prices_win_and_a_projects_only_fill_gaps(tmp_path: Path) -> None:
    """Done when 2: file over settings over tables; a project cannot make a model look cheap."""
    mine, file = tmp_path / "turnwise", tmp_path / "turnwise" / "prices.toml"
    mine.mkdir()
    env = {"XDG_CONFIG_HOME": str(tmp_path), "XDG_CACHE_HOME": str(tmp_path)}
    cheap = {"gpt-5": {"free": True}, "openai:gpt-5": {"free": True}, "chutes:*": {"request": 0.003}}
    layers = [
        layer("user", {"openai:gpt-5": {"input": 1.0, "output": 2}, "gpt-5-mini": {"step": "0.5"}}),
        layer("project", cheap),
    ]
    found = prices_of_layers(layers, env=env)
    row = found.find("gpt-5", profile="openai", at_s=NOW)
    assert plain(row) == PriceRow(plan="tokens", source="/user/turnwise.toml", tokens=(tokens("1.0", "2"),))
    project = prices_of_layers(layers[1:], env=env)
    table = project.find("gpt-5", profile="openai", at_s=NOW)
    assert table is not None and table.source == SOURCE
    chutes = project.find("deepseek-ai/DeepSeek-V3", profile="chutes", at_s=NOW)
    assert chutes == PriceRow(
        plan="request", source="/project/turnwise.toml", request_usd=Decimal("0.003"), is_from_project=True
    )
    file.write_text('"openai:gpt-5" = { input = 0.1, output = 0.30000000000000004e-4 }\n')
    with pytest.raises(CallerError, match="places"):
        prices_of_layers(layers, env=env)
    file.write_text('"openai:gpt-5" = { input = 0.1, output = 0.000000125 }\n')
    row = prices_of_layers(layers, env=env).find("gpt-5", profile="openai", at_s=NOW)
    assert plain(row) == PriceRow(plan="tokens", source=str(file), tokens=(tokens("0.1", "0.000000125"),))


@pytest.mark.promise("bill:plans")
def test_the_first_place_that_has_a_row_holds_however_wide_its_name(tmp_path: Path) -> None:
    """Proves what docs/billing.md says: the prices file over the settings, those over a plan of ours, whole rows; a name that
    says more wins within one place only."""
    (tmp_path / "p.toml").write_text('"gpt-*" = { request = 1 }\n')
    env = {
        "XDG_CONFIG_HOME": str(tmp_path),
        "XDG_CACHE_HOME": str(tmp_path),
        "TURNWISE_PRICES": str(tmp_path / "p.toml"),
    }
    settings = {"openai:gpt-5": {"request": 2}, "gpt-5": {"request": 3}, "*": {"request": 4}}
    prices = prices_of_layers([layer("user", settings)], env=env)
    asked = [("gpt-5", "openai"), ("gpt-5", "azure"), ("o3", "openai"), ("qwen3", "ollama")]
    rows = [prices.find(model, profile=profile, at_s=NOW) for model, profile in asked]
    assert [row and row.request_usd for row in rows] == [1, 1, 4, 4]
    assert [prices.bills_requests(model, profile=profile) for model, profile in asked] == [True] * 4
    prices = prices_of_layers([layer("user", settings)], env={**env, "TURNWISE_PRICES": ""})
    rows = [prices.find(model, profile=profile, at_s=NOW) for model, profile in asked]
    assert [row and row.request_usd for row in rows] == [2, 3, 4, 4]


def test_a_prices_file_may_begin_with_a_byte_order_mark_and_has_to_exist(tmp_path: Path) -> None:
    """Editors on Windows write the mark; what TURNWISE_PRICES names and is missing is said with what to do."""
    file = tmp_path / "p.toml"
    file.write_bytes(b'\xef\xbb\xbf"*" = { request = 1 }')
    assert read_prices_file({"TURNWISE_PRICES": str(file)}).keys() == {"*"}
    with pytest.raises(CallerError, match="does not exist: write the file, or unset the variable"):
        read_prices_file({"TURNWISE_PRICES": str(tmp_path / "other.toml")})


def test_a_name_is_the_whole_one_unless_it_ends_in_a_star() -> None:
    """The price of `gpt-5` is not that of `gpt-5-mini`; the longest name wins, the provider's own before everybody's."""
    rows = read_prices(
        {
            "gpt-5": {"request": 1},
            "gpt-5*": {"request": 2},
            "gpt-5-m*": {"request": 3},
            "azure:*": {"request": 4},
            "azure:gpt-5": {"request": 5},
            "qwen3:8b": {"request": 6},
        },
        named="x",
        source="x",
    )
    prices = Prices(user=rows)

    def usd(model: str, profile: str) -> Decimal | None:
        row = prices.find(model, profile=profile, at_s=NOW)
        return None if row is None else row.request_usd

    asked = [("gpt-5", "openai"), ("openai/GPT-5", "openrouter"), ("gpt-5.1", "openai"), ("gpt-5-mini", "openai")]
    assert [usd(*each) for each in asked] == [1, 1, 2, 3]
    assert [usd("o3", "azure"), usd("gpt-5", "azure"), usd("qwen3:8b", "vllm")] == [4, 5, 6]


@each(
    ("rows", "said"),
    [
        ([], "write a table for each model"),
        ({"m": 5}, "`m`: Expected `object`"),
        ({"m": {}}, "it says no price"),
        ({"": {"request": 1}}, "that names no model"),
        ({" ": {"request": 1}}, "that names no model"),
        ({"openai:": {"request": 1}}, "that names no model"),
        ({":gpt-5": {"request": 1}}, "that names no model"),
        ({"m": {"step": 1, "bills_errors": True}}, "`bills_errors` is for plans by `request` alone"),
        ({"m": {"input": 1, "output": 1, "request": 1, "bills_errors": True}}, "`bills_errors` is for plans"),
        ({"m": {"free": True, "cache_read": 1}}, "`cache_read` is for plans by token"),
        ({"m": {"request": 1, "reasoning": 1}}, "`reasoning` is for plans by token"),
        ({"m": {"step": 1, "above": [{"tokens": 5, "input": 1, "output": 1}]}}, "`above` is for plans by token"),
        ({"m": {"input": 1, "output": 1, "above": [{"tokens": 0, "input": 1, "output": 1}]}}, "more than 0"),
        ({"m": {"input": 1, "output": 1, "above": [{"tokens": -5, "input": 1, "output": 1}]}}, "more than 0"),
        ({"m": {"input": 1, "output": 1, "above": [{"tokens": 9, "input": 1, "output": 1}] * 2}}, "same `tokens`"),
        ({"m": {"input": 1}}, "of `input` and `output` one is missing"),
        ({"m": {"input": 1, "output": 2, "free": True}}, "more than one plan"),
        ({"m": {"request": 1, "step": 1}}, "more than one plan"),
        ({"m": {"request": -1}}, "`-1` is no price"),
        ({"m": {"request": "free"}}, "`free` is no number"),
        ({"m": {"request": "nan"}}, "`nan` is no price"),
        ({"m": {"request": 1e9}}, "is no price"),
        ({"m": {"reqest": 1}}, "`reqest`"),
        ({"a*b": {"free": True}}, "`*` may stand at the end"),
    ],
)
def test_a_row_that_says_nothing_usable_is_refused_with_its_model(rows: object, said: str) -> None:
    """One line: where, what, and how it is written."""
    with pytest.raises(CallerError) as caught:
        read_prices(rows, named="`/x/turnwise.toml`: `prices`", source="x")
    assert str(caught.value).startswith("`/x/turnwise.toml`: `prices`") and said in str(caught.value)


def test_a_row_may_have_tiers_and_every_cache_price() -> None:
    """All fields of a file's row, in order of their thresholds."""
    row = {
        "input": 1,
        "output": 2,
        "cache_read": "0.1",
        "cache_write": 1.25,
        "cache_write_1h": 2,
        "reasoning": 3,
        "above": [{"tokens": 400_000, "input": 5, "output": 6}, {"tokens": 200_000, "input": 3, "output": 4}],
    }
    (found,) = read_prices({"m": row}, named="x", source="x").values()
    assert [tier.above_tokens for tier in found.tokens] == [0, 200_000, 400_000]
    assert found.tokens[0] == TokenPrices(
        input=Decimal(1),
        output=Decimal(2),
        cache_read=Decimal("0.1"),
        cache_write=Decimal("1.25"),
        cache_write_1h=Decimal(2),
        reasoning=Decimal(3),
    )


@pytest.mark.parametrize(("content", "said"), [(b"\xff", "utf-8"), (b"a = [", "correct it there"), (b"a = 1", "`a`")])
def test_a_prices_file_that_cannot_be_used_is_named(content: bytes, said: str, tmp_path: Path) -> None:
    """One line with the file; one that TURNWISE_PRICES names must be there."""
    file = tmp_path / "p.toml"
    with pytest.raises(CallerError, match="does not exist"):
        read_prices_file({"TURNWISE_PRICES": str(file)})
    file.write_bytes(content)
    with pytest.raises(CallerError) as caught:
        read_prices_file({"TURNWISE_PRICES": str(file)})
    assert str(file) in str(caught.value) and said in str(caught.value)


@pytest.mark.costly
def test_the_package_is_imported_when_a_price_is_asked_for() -> None:
    """0.3 s and 50 MB are not paid by who needs no price: not at import, and not for a model with a price of the user's."""
    code = (
        "import sys; from turnwise.journal.prices import Prices, read_prices; import turnwise.agent.agent\n"
        "prices = Prices(user=read_prices({'gpt-5': {'free': True}}, named='', source=''))\n"
        "prices.warm('gpt-5', profile='openai', at_s=0); prices.find('gpt-5', profile='openai', at_s=0)\n"
        "Prices().warm('x', profile='openai_chat', at_s=0); Prices().find('x', profile='openai_chat', at_s=0)\n"
        "assert 'genai_prices' not in sys.modules\n"
        "Prices().find('gpt-5', profile='openai', at_s=0); assert 'genai_prices' in sys.modules"
    )
    ran = subprocess.run(
        [sys.executable, "-c", code], check=False, env=os.environ, capture_output=True, text=True, timeout=HANG_S
    )
    assert (ran.returncode, ran.stderr) == (0, "")
