"""What commands try against the rest of the machine, against the table in docs/sandbox.md; and what they do every day."""

import asyncio
import re
import shutil
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

from sandbox_probes import PROBES, Probe, gets_through
from sandboxes import CONFINING, PYTHON, WALLS, sandbox_called
from turnwise.errors import ToolFault
from turnwise.tools.sandbox.landlock_rules import SCOPES_ABI
from turnwise.tools.sandbox.seccomp import NUMBERS, can_filter
from turnwise.tools.workspace.shell import BashArguments, Shell
from waits import HANG_S

pytestmark = pytest.mark.wide

PROBED = (*WALLS, "none")
PAGE = Path(__file__).resolve().parents[3] / "docs" / "sandbox.md"
HEADER = Path("/usr/include/x86_64-linux-gnu/asm/unistd_64.h"), Path("/usr/include/asm-generic/unistd.h")


def documented() -> Mapping[str, Mapping[str, str]]:
    """The cells of the table, by the text of the row and the name of the sandbox."""
    table = PAGE.read_text().partition("drawn by scripts/draw_probes.py")[2].partition("<!-- end of")[0]
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in table.splitlines() if line[:1] == "|"]
    return {row[0]: dict(zip(PROBED, row[1:], strict=True)) for row in rows if row[1] in ("yes", "no")}


def test_the_table_has_a_row_for_each_probe() -> None:
    """And no other, in the order of the list."""
    assert list(documented()) == [probe.text for probe in PROBES]


@pytest.mark.promise("safe:walked")
@pytest.mark.parametrize("name", PROBED)
@pytest.mark.parametrize("probe", PROBES, ids=lambda probe: re.sub(r"\W+", "-", probe.text))
async def test_each_sandbox_stops_what_the_page_says(probe: Probe, name: str, tmp_path: Path) -> None:
    """Run as a command, looked at from outside (issue 13, line 5). Without a sandbox all of it works, so each probe is able to
    get through; a machine may refuse some of that by itself."""
    sandbox = sandbox_called(name)
    if not can_filter() and name != "none":
        pytest.skip("system calls of this machine are not filtered: the page says what is open there")
    if name == "bubblewrap" and not sandbox.pipes:
        pytest.skip("Landlock does not work beside bubblewrap here; the page says what it stops")
    if name == "landlock" and sandbox.landlock < SCOPES_ABI:
        pytest.skip(f"this kernel has version {sandbox.landlock} of Landlock; the page says what version 7 stops")
    through = await asyncio.wait_for(gets_through(probe, sandbox=sandbox, root=tmp_path), HANG_S)
    expected = documented()[probe.text][name]
    if name == "none" and not through:
        pytest.skip(f"this machine refuses it without a sandbox, too: {probe.text}")
    assert ("yes" if through else "no") == expected


@pytest.mark.parametrize(("machine", "header"), [("x86_64", HEADER[0]), ("aarch64", HEADER[1])])
def test_numbers_of_system_calls_are_those_of_the_kernel(machine: str, header: Path) -> None:
    """Against the headers of this machine; calls that are newer than these are not in them."""
    if not header.exists():
        pytest.skip(f"`{header}` is not installed (linux-libc-dev)")
    known = {
        found[1]: int(found[2])
        for found in re.finditer(r"^#define __NR(?:3264)?_(\w+) (\d+)", header.read_text(), re.M)
    }
    ours = {name: number for name, number in NUMBERS[machine].items() if number <= max(known.values())}
    assert ours == {name: known.get(name) for name in ours}


PARALLEL = """
import multiprocessing, os, subprocess, threading
def work(end):
    end.send(os.getpid() != 0)
if __name__ == "__main__":
    ours, theirs = multiprocessing.Pipe()
    process = multiprocessing.get_context("fork").Process(target=work, args=(theirs,))
    process.start()
    print(ours.recv(), process.join(), process.exitcode)
    process = multiprocessing.get_context("spawn").Process(target=work, args=(theirs,))
    process.start()
    process.terminate()
    process.join()
    print(process.exitcode in (-15, 0))
    child = subprocess.Popen(["sleep", "60"])
    child.kill()
    print(child.wait(), os.nice(1) > 0, sorted(os.sched_getaffinity(0)) != [])
    os.sched_setaffinity(0, os.sched_getaffinity(0))
"""
GIT = "git -c user.name=a -c user.email=a@b"
# Commands, the program that they need, and the end of what they say.
EVERYDAY = (
    ("python3", f"{PYTHON} parallel.py", "True None 0\nTrue\n-9 True True\n"),
    ("git", f"git init -q r && cd r && echo a > a && git add a && {GIT} commit -qm one && git log --format=%s", "one\n"),
    ("git", f"git init -q s && cd s && {GIT} commit -q --allow-empty -m x && git gc -q && echo $(ls -a)", ". .. .git\n"),
    ("make", r"printf 'all: a b\na b:\n\t@echo $@ > $@\n' > Makefile && make -j2 -s && cat a b", "a\nb\n"),
    ("gcc", "echo 'int main(void){return 7;}' > c.c && gcc -O1 c.c -o c && { ./c; echo $?; }", "7\n"),
    ("node", "node -e 'new (require(`worker_threads`).Worker)(`1`, {eval: true}).on(`exit`, c => console.log(c))'", "0\n"),
    ("tar", "mkdir -p d && touch d/x && tar czf d.tgz d && tar xzf d.tgz -C . && cp -a d e && ls e", "x\n"),
    ("timeout", "timeout -s KILL 0.05 sleep 60; echo $?", "137\n"),
    ("bash", "sleep 60 & kill $!; wait $!; echo $?; kill -0 $$ && echo there", "143\nthere\n"),
    ("bash", "set -m; (sleep 60; true) & kill -- -$!; wait $!; echo $?", "143\n"),
    ("xargs", "printf '%s\\n' 1 2 3 4 | xargs -P4 -n1 nice -n 3 echo | sort | tr -d '\\n'; echo", "1234\n"),
    ("bash", "ulimit -n 256 && ulimit -n; mkfifo p && (echo through > p &) && cat p", "256\nthrough\n"),
    ("bash", "echo kept > $TMPDIR/x && cat $TMPDIR/x && mktemp > /dev/null && echo made", "kept\nmade\n"),
    ("ionice", "ionice -c3 true; chrt -o 0 true && taskset -c 0 true; echo $?", "0\n"),
    ("rsync", "mkdir -p d && touch d/y && rsync -aX d/ f/ && ls f/y", "f/y\n"),
)  # fmt: skip


@pytest.mark.parametrize("name", CONFINING)
@pytest.mark.parametrize(
    ("needs", "command", "ends"), EVERYDAY, ids=[f"{row[0]}-{at}" for at, row in enumerate(EVERYDAY)]
)
async def test_everyday_programs_work(name: str, needs: str, command: str, ends: str, tmp_path: Path) -> None:
    """A sandbox in which a build fails is switched off, and then stops nothing."""
    if shutil.which(needs) is None:
        pytest.skip(f"`{needs}` is not installed")
    (tmp_path / "parallel.py").write_text(PARALLEL)
    shell = Shell(tmp_path, sandbox=sandbox_called(name))
    try:
        said = await asyncio.wait_for(shell.run(BashArguments(command=command, timeout_s=60)), HANG_S)
    except ToolFault as fault:
        said = str(fault)
    assert said.endswith(ends), said


@pytest.mark.parametrize("name", CONFINING)
async def test_tests_run_side_by_side(name: str, tmp_path: Path) -> None:
    """`pytest -n` starts workers that talk over pipes."""
    (tmp_path / "test_it.py").write_text("def test_a(): pass\ndef test_b(): pass\n")
    if sys.prefix.startswith("/tmp/"):
        pytest.skip("the virtual environment lies in a folder that a sandbox has a private one in place of")
    shell = Shell(tmp_path, sandbox=sandbox_called(name))
    only_xdist = "PYTEST_DISABLE_PLUGIN_AUTOLOAD=1"  # loading what else is installed takes most of the time
    command = f"{only_xdist} {sys.executable} -m pytest -q -n 2 -p xdist -p no:cacheprovider test_it.py"
    said = await asyncio.wait_for(shell.run(BashArguments(command=command, timeout_s=120)), HANG_S)
    assert "2 passed" in said
