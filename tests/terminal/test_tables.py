"""Tables at a narrow terminal: names and figures stay whole (from a newcomer's trial at 40 columns)."""

import io

from hypothesis import given
from hypothesis import strategies as st

from turnwise.terminal.model_listing import provider_lines
from turnwise.terminal.usage import Column, fitting, lines_of_table
from turnwise.wire.profiles import builtin_profiles

NAMES = ("openai:ada", "openai:babbage-002", "openai:gpt-5-chat-latest")


def table(names: tuple[str, ...], *, width: int, window: tuple[str, ...]) -> list[str]:
    name = Column(name="model", cells=names)
    columns = [Column(name="window", cells=window), Column(name="$ in", cells=["0.4"] * len(names))]
    return list(lines_of_table(name, fitting(name, columns, width=width), width=width, stream=io.StringIO()))


def test_a_name_without_room_stands_whole_above_its_figures() -> None:
    """It was cut inside words, and the table was a column too wide. Cells that are empty are room for a name."""
    assert table(NAMES, width=28, window=("", "", "400,000")) == [
        "model           window  $ in",
        "openai:ada               0.4",
        "openai:babbage-002       0.4",
        "openai:gpt-5-chat-latest",
        "               400,000   0.4",
    ]


@given(
    names=st.lists(st.from_regex(r"[a-z0-9:/-]{1,50}", fullmatch=True), min_size=1, max_size=6),
    width=st.integers(min_value=24, max_value=120),
)
def test_no_line_is_wider_than_the_terminal_and_no_name_is_broken_that_fits(names: list[str], width: int) -> None:
    """Property, at every width from 24 columns on."""
    lines = table(tuple(names), width=width, window=("128,000",) * len(names))
    assert max(map(len, lines)) <= width
    assert {name for name in names if len(name) <= width} <= {line.split("  ")[0] for line in lines}


def test_providers_and_the_variables_of_their_keys_stay_whole() -> None:
    shown = list(provider_lines(width=40))
    assert max(map(len, shown)) <= 40
    assert {*builtin_profiles()} <= {*" ".join(shown).split()}
    assert "AWS_BEARER_TOKEN_BEDROCK" in "\n".join(shown)
