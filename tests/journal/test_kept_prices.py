"""Rows of the price table that are kept for the next run: right for as long as they hold, and never believed from elsewhere."""

import hashlib
import stat
import subprocess
import sys
from contextlib import AsyncExitStack
from decimal import Decimal
from pathlib import Path

import pytest

from turnwise.endpoints.transport import HttpRequest, WithFirstReply
from turnwise.journal.kept_prices import (
    MAX_NAME,
    MAX_ROWS,
    KeptPrices,
    KeptRow,
    kept_prices_path,
    package_edition,
)
from turnwise.journal.price_table import PriceTable
from turnwise.journal.prices import Prices
from turnwise.rules.pricing import PriceRow, TokenPrices
from turnwise.testing import Reply, ScriptedTransport
from waits import HANG_S

NOW = 1_795_305_600.0  # 2026-11-22
ROW = PriceRow(
    plan="tokens",
    source="a table",
    tokens=(
        TokenPrices(input=Decimal("1.250000000001"), output=Decimal("10")),
        TokenPrices(input=Decimal("2.5"), output=Decimal("15"), cache_read=Decimal("0.1"), above_tokens=200_000),
    ),
    request_usd=Decimal("0.005"),
)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "cache" / "turnwise" / "prices.json"


def opened(path: Path, *, edition: str = "1") -> KeptPrices:
    return KeptPrices(path, edition=lambda: edition)


def found(path: Path, model: str = "m", *, edition: str = "1", at_s: float = NOW) -> KeptRow | None:
    return opened(path, edition=edition).find(model, provider="p", at_s=at_s)


def names(folder: Path) -> list[str]:
    return sorted([place.name for place in folder.iterdir()])


def test_a_row_is_found_again_as_it_was(path: Path) -> None:
    """Exactly, by the provider and the model that it belongs to; that nobody knows a model is kept as well."""
    kept, unknown = KeptRow(row=ROW), KeptRow()
    opened(path).keep("m", kept, provider="p")
    opened(path).keep("strange", unknown, provider="p")
    assert (found(path), found(path, "strange")) == (kept, unknown)
    assert opened(path).find("m", provider="q", at_s=NOW) is None


def test_a_row_holds_within_its_time_only(path: Path) -> None:
    """From its first second until before its end."""
    opened(path).keep("m", KeptRow(row=ROW, since_s=10.0, until_s=20.0), provider="p")
    assert [found(path, at_s=at) is not None for at in (9.9, 10.0, 19.9, 20.0)] == [False, True, True, False]


def test_another_edition_of_the_package_has_other_rows(path: Path) -> None:
    """An upgrade is seen at once; without an edition nothing is kept."""
    opened(path).keep("m", KeptRow(row=ROW), provider="p")
    assert found(path, edition="2") is None
    opened(path, edition="2").keep("other", KeptRow(), provider="p")
    assert found(path) is None and found(path, "m", edition="2") is None
    before = path.read_bytes()
    opened(path, edition="").keep("m", KeptRow(row=ROW), provider="p")
    assert path.read_bytes() == before


def test_the_edition_is_of_the_packages_files() -> None:
    """The same in each process; there is one, as the package is a dependency."""
    assert package_edition() == package_edition() != ""


def test_a_damaged_file_is_as_if_it_were_not_there(path: Path) -> None:
    """Cut anywhere, or any byte changed: a figure that lost a digit is never believed. It is written anew."""
    opened(path).keep("m", KeptRow(row=ROW), provider="p")
    whole = path.read_bytes()
    cuts = [whole[:size] for size in range(len(whole))]
    changes = [whole[:at] + bytes([whole[at] ^ 1]) + whole[at + 1 :] for at in range(len(whole))]
    for content in (*cuts, *changes, whole + b"\n", b"\n{}", b"\xff" * 100, whole * 4000):
        path.write_bytes(content)
        assert found(path) is None
    opened(path).keep("m", KeptRow(row=ROW), provider="p")
    assert path.read_bytes() == whole


def test_a_file_that_is_nested_without_end_is_as_if_it_were_not_there(path: Path) -> None:
    """Its digest is right."""
    opened(path).keep("m", KeptRow(row=ROW), provider="p")
    text = b'{"edition":' + b"[" * 100_000
    path.write_bytes(hashlib.sha256(text).hexdigest().encode() + b"\n" + text)
    assert found(path) is None


def test_the_file_is_the_users_own(path: Path) -> None:
    """Private when written; one that others may write or read, a link, or a folder in its place is not believed."""
    opened(path).keep("m", KeptRow(row=ROW), provider="p")
    modes = [stat.S_IMODE(place.stat().st_mode) for place in (path, path.parent)]
    assert modes == [0o600, 0o700] and names(path.parent) == ["prices.json"]
    for mode in (0o602, 0o620, 0o644):
        path.chmod(mode)
        assert found(path) is None
    path.chmod(0o600)
    assert found(path) is not None
    path.rename(path.with_name("elsewhere"))
    path.symlink_to("elsewhere")
    assert found(path) is None
    path.unlink()
    path.mkdir()
    opened(path).keep("m", KeptRow(row=ROW), provider="p")
    assert found(path) is None and names(path.parent) == ["elsewhere", "prices.json"]


def test_what_cannot_be_written_is_still_known_here(tmp_path: Path) -> None:
    """A file where the folder should be: the process goes on with the row that it has."""
    (tmp_path / "file").write_text("")
    kept = opened(tmp_path / "file" / "prices.json")
    kept.keep("m", KeptRow(row=ROW), provider="p")
    assert kept.find("m", provider="p", at_s=NOW) == KeptRow(row=ROW)


def test_the_file_stays_small(path: Path) -> None:
    """The oldest rows go first; a name of any length does not come in."""
    kept = opened(path)
    kept.keep("x" * (MAX_NAME + 1), KeptRow(), provider="p")
    assert not path.exists()
    opened(path).keep("0", KeptRow(), provider="p")
    for number in range(1, MAX_ROWS + 1):
        kept.keep(str(number), KeptRow(), provider="p")
    assert [found(path, str(number)) is None for number in (0, 1, MAX_ROWS)] == [True, False, False]


def test_it_lies_in_the_cache_folder() -> None:
    """XDG_CACHE_HOME where it is absolute, else ~/.cache."""
    assert kept_prices_path({"XDG_CACHE_HOME": "/c"}) == Path("/c/turnwise/prices.json")
    home = Path.home() / ".cache" / "turnwise" / "prices.json"
    assert kept_prices_path({"XDG_CACHE_HOME": "c"}) == kept_prices_path({}) == home


def test_a_row_of_the_table_holds_as_long_as_it_says() -> None:
    """Proves: no kept row outlives its price. Prices by the hour, by date and for ever, asked within and at their edges."""
    table = PriceTable()
    for model in ("deepseek-reasoner", "deepseek-v4-pro", "deepseek-v4-flash", "deepseek-flash"):
        rows: set[str] = set()
        for hour in range(0, 24 * 400, 97):
            at_s = NOW - hour * 3600.0
            kept = table.find(model, provider="deepseek", at_s=at_s)
            assert kept.since_s is not None and kept.until_s is not None and kept.holds_at(at_s)
            for inner in (kept.since_s, kept.until_s - 1, (kept.since_s + kept.until_s) / 2):
                assert PriceTable().find(model, provider="deepseek", at_s=inner).row == kept.row, (
                    "by one that knows none yet"
                )
            rows.add(repr(kept.row))
        assert len(rows) > 1, f"{model}: its price changes with the hour"
    always = table.find("gpt-5", provider="openai", at_s=NOW)
    assert (always.since_s, always.until_s) == (None, None) and always.row is not None
    assert table.find("gpt-99-imaginary", provider="openai", at_s=NOW) == KeptRow()


def test_the_next_process_does_not_read_the_table(path: Path) -> None:
    """Proves: the same rows, own costs included, without `genai-prices`; a kept row of another time is looked up anew."""
    asked = [
        ("gpt-5", "openai"),
        ("gpt-99-imaginary", "openai"),
        ("grok-4.3", "xai"),
        ("deepseek-reasoner", "deepseek"),
    ]
    first = Prices(kept=KeptPrices(path))
    rows = [first.find(model, profile=profile, at_s=NOW) for model, profile in asked]
    assert rows == [Prices().find(model, profile=profile, at_s=NOW) for model, profile in asked]
    code = (
        "import sys; from pathlib import Path; from turnwise.journal.prices import Prices\n"
        "from turnwise.journal.kept_prices import KeptPrices\n"
        f"prices = Prices(kept=KeptPrices(Path({str(path)!r})))\n"
        f"for model, profile in {asked!r}:\n"
        f"    prices.warm(model, profile=profile, at_s={NOW})\n"
        f"    print(repr(prices.find(model, profile=profile, at_s={NOW})))\n"
        "print('genai_prices' in sys.modules)\n"
        f"prices.find('deepseek-reasoner', profile='deepseek', at_s={NOW} + 86400 / 2)\n"
        "print('genai_prices' in sys.modules)"
    )
    ran = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True, timeout=HANG_S)
    assert ran.stdout.splitlines() == [*map(repr, rows), "False", "True"]


async def test_what_takes_its_time_begins_with_the_first_reply() -> None:
    """Once, when the head of the first answer has come; never before the request has left."""
    request = HttpRequest(url="http://127.0.0.1/v1", headers=(), body=b"{}")
    inner = ScriptedTransport([Reply(pieces=(b"data: 1\n\n",)), Reply(pieces=(b"data: 2\n\n",))])
    seen: list[int] = []
    transport = WithFirstReply(inner, then=lambda: seen.append(len(inner.requests)))
    for _ in range(2):
        async with AsyncExitStack() as stack:
            reply = await stack.enter_async_context(transport.send(request))
            assert reply.status == 200 and [chunk async for chunk in reply.chunks]
    assert seen == [1] and len(inner.requests) == 2


def test_a_system_without_user_ids_keeps_nothing(path: Path) -> None:
    """Proves: on Windows, where `os.geteuid` is not, a file that lies there is read over, and prices are found anew."""
    program = (
        "import os; del os.geteuid\n"
        "from pathlib import Path\n"
        "from turnwise.journal.kept_prices import KeptPrices, KeptRow\n"
        f"kept = KeptPrices(Path({str(path)!r}), edition=lambda: 'e')\n"
        "kept.keep('m', KeptRow(), provider='p')\n"
        f"print(KeptPrices(Path({str(path)!r}), edition=lambda: 'e').find('m', provider='p', at_s=0))\n"
    )
    ran = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=HANG_S, check=False)
    assert (ran.returncode, ran.stdout, ran.stderr) == (0, "None\n", "")
