"""A slip in the name of a field is told with the field that was meant, in each table of rows that a file may have."""

from pathlib import Path

import pytest

from turnwise.coding_agent.hook_commands import read_hooks
from turnwise.errors import CallerError
from turnwise.journal.prices import read_prices
from turnwise.settings.catalogue import read_rows
from turnwise.settings.settings import Layer


def test_a_price(tmp_path: Path) -> None:
    with pytest.raises(CallerError, match=r"unknown field `inptu` \(did you mean `input`\?\); a row has"):
        read_prices({"p:m": {"inptu": 1, "output": 2}}, named="f", source="f")
    with pytest.raises(CallerError, match=r"`tokes` \(did you mean `tokens`\?\) - at `\$.above"):
        read_prices({"p:m": {"input": 1, "output": 2, "above": [{"tokes": 1}]}}, named="f", source="f")
    with pytest.raises(CallerError, match=r"unknown field `xyzzy`; a row has"):
        read_prices({"p:m": {"xyzzy": 1}}, named="f", source="f")


def test_a_limit() -> None:
    with pytest.raises(CallerError, match=r"\(did you mean `"):
        read_rows({"p:m": {"ouput": 1}}, named="f")


def test_a_hook(tmp_path: Path) -> None:
    layer = Layer(source="user", table={"hooks": [{"point": "before_tool", "comand": ["x"]}]})
    with pytest.raises(CallerError, match=r"`comand` \(did you mean `command`\?\)"):
        read_hooks([layer], folder=tmp_path, env={})
