"""A cut call that the rules will deny is denied before the rest of it is paid for (issue 14, 7)."""

from pathlib import Path

import pytest

from terminal.running import Cli, at
from turnwise.lab import Lab


@pytest.mark.promise("cut:continued")
@pytest.mark.parametrize("allow", [(), ("--allow", "write")], ids=["denied", "allowed"])
def test_a_cut_call_that_will_be_denied_is_not_paid_for(
    lab: Lab, folder: Path, cli: Cli, allow: tuple[str, ...]
) -> None:
    """A file of 40 KB under a limit of 4,000 tokens where nobody is there: the denial comes after one response, not after all
    pieces. If it is allowed the pieces are bought and the file is written."""
    ran = cli("run", "Write it.", "--json", "--max-output-tokens", "4000", *allow, *at(lab, "writer-file"))
    last = ran.events()[-1]
    written = [path for path in folder.rglob("*") if path.is_file() and path.stat().st_size > 30_000]
    if allow:
        assert last["requests_by_purpose"]["continue"] == 2 and len(written) == 1
        return
    assert "continue" not in last["requests_by_purpose"] and lab.count() == 2 and written == []
    assert [one["name"] for one in last["denied"]] == ["write"]
