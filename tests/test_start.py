"""The README's first command, as far as it goes without a network: what it says where it cannot begin (issue 15, line 1)."""

import subprocess
from pathlib import Path

import pytest

from waits import HANG_S

ROOT = Path(__file__).resolve().parents[1]


def started(shell: str, *, folder: Path, python: Path) -> "subprocess.CompletedProcess[str]":
    """What the README's line does, read by the shell in that folder; what comes after it shows that the shell lives on."""
    return subprocess.run(
        [shell, "-c", f". {ROOT}/scripts/start; echo code $?"],
        cwd=folder,
        env={"PATH": "/usr/bin:/bin", "PYTHON": str(python)},
        capture_output=True,
        text=True,
        timeout=HANG_S,
        check=False,
    )


@pytest.mark.parametrize("shell", ["bash", "sh"])
def test_an_old_python_is_named_in_the_first_line_and_nothing_is_made(tmp_path: Path, shell: str) -> None:
    old = tmp_path / "python3.9"
    old.write_text('#!/bin/sh\ncase "$2" in *platform*) echo 3.9.18 ;; *) exit 1 ;; esac\n')
    old.chmod(0o755)
    ran = started(shell, folder=tmp_path, python=old)
    assert ran.stderr == f"turnwise needs Python 3.11 or later; `{old}` is 3.9.18 (set PYTHON to another)\n"
    assert ran.stdout == "code 2\n" and [path.name for path in tmp_path.iterdir()] == ["python3.9"]


def test_no_python_at_all_is_said(tmp_path: Path) -> None:
    ran = started("bash", folder=tmp_path, python=tmp_path / "none")
    assert "is not there (set PYTHON to another)" in ran.stderr and ran.stdout == "code 2\n"


def test_another_folder_is_told_where_to_go(tmp_path: Path) -> None:
    new = tmp_path / "python3"
    new.write_text("#!/bin/sh\nexit 0\n")
    new.chmod(0o755)
    ran = started("bash", folder=tmp_path, python=new)
    assert "go into the folder of the checkout first" in ran.stderr and ran.stdout == "code 2\n"
