"""kill -9 in the middle of a program, with real processes: nothing runs twice, the result is readable, no worker stays."""

import os
import resource
import select
import signal
import subprocess
import sys
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

import pytest

from terminal.forking import Process
from terminal.running import WAIT_S, Cli, at, begin, end, running_lab, script
from terminal.test_processes import wait_until
from turnwise.base.clock import SystemClock
from turnwise.base.keeper import descendants
from turnwise.journal.journal import Journal, journal_path
from turnwise.journal.ledger_queries import LedgerSpan
from turnwise.lab import Lab
from turnwise.running.scripts import KERNEL_SLACK_S
from turnwise.turn.events import ScriptCalled, ToolsFinished

IN_THE_MIDDLE = script(
    "in-the-middle",
    """
[[steps]]
[[steps.calls]]
name = "script"
[steps.calls.arguments]
program = '''
write(path="first.txt", content="1")
bash(command="echo once >> ran.txt")
bash(command="echo begun > begun.txt; exec sleep 60")
write(path="never.txt", content="1")
'''
[[steps]]
text = "It said: {result}"
""",
)
COMPUTES = script(
    "computes",
    """
[[steps]]
[[steps.calls]]
name = "script"
[steps.calls.arguments]
program = '''
write(path="first.txt", content="1")
while True:
    pass
'''
[[steps]]
text = "It said: {result}"
""",
)
CPU_S = 600  # longer than any wait of the test, so that a busy machine cannot end the program before it is looked at
LOWERED_S = 2
# A program of the library with a limit of its own; `turnwise run` gives 10 s.
LIMITED = """
import os, sys
from turnwise import Agent, Journal, Model, ScriptLimits
from turnwise.base.clock import SystemClock
from turnwise.journal.journal import journal_path
from turnwise.tools.workspace import workspace_tools
with Journal(journal_path(os.environ), clock=SystemClock()) as journal:
    limits = ScriptLimits(cpu_s=float(sys.argv[3]))
    tools = workspace_tools(os.getcwd())
    agent = Agent(
        Model(sys.argv[1], base_url=sys.argv[2]),
        tools=tools,
        safety={"script": True, "script_limits": limits},
        journal=journal,
    )
    agent.run_sync("Go.")
"""


COMMAND = ("sleep", "sh", "bash")
COMPUTING_TICKS = 10  # to start takes the interpreter one


@pytest.fixture(scope="module")
def killing_lab() -> Generator[Lab]:
    with running_lab([IN_THE_MIDDLE, COMPUTES]) as lab:
        yield lab


def name_of(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/comm").read_text().strip()
    except OSError:
        return ""


def ticks_of(pid: int) -> int:
    """Of computing, a hundredth of a second each."""
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2].split()[11])


def worker_of(process: Process) -> int:
    (found,) = [pid for pid in descendants(process.pid) if name_of(pid) == "monty"]
    return found


@contextmanager
def waiting_for_the_end_of(pid: int) -> Generator[None]:
    """On leaving, the process has ended; it is ours to end if it has not in time."""
    handle = os.pidfd_open(pid)
    try:
        yield
        ended, _, _ = select.select([handle], [], [], WAIT_S)
        if not ended:
            signal.pidfd_send_signal(handle, signal.SIGKILL)
        assert ended, f"worker {pid} outlived turnwise"
    finally:
        os.close(handle)


@pytest.mark.promise("step:every-call-answered", "bill:saved")
def test_killed_while_a_call_of_a_program_runs_nothing_runs_twice(killing_lab: Lab, folder: Path, cli: Cli) -> None:
    """Proves (Done when 5): the interpreter ends with its parent; the turn goes on, its program runs again with the results that
    its calls had, and the call that may have run raises in it; the lab accepts the history, the ledger has what was made."""
    killing_lab.reset()
    where = at(killing_lab, "in-the-middle")
    process = begin("run", "Go.", "--script", "--allow", "write", "--allow", "bash", *where, cwd=folder)
    wait_until((folder / "begun.txt").is_file)
    command = [pid for pid in descendants(process.pid) if name_of(pid) in COMMAND]
    with waiting_for_the_end_of(worker_of(process)):
        process.kill()
        assert end(process).code == -signal.SIGKILL
    (id,) = [one["id"] for one in cli("sessions", "list", "--json").events()]
    ran = cli("run", "--session", id, "--script", "--allow", "write", "--allow", "bash", *where)
    assert ran.code == 0, ran
    assert ran.out.startswith("It said: line 3: The program failed: RuntimeError: The process was interrupted")
    assert "2 calls had run (`write`, `bash`); what was done stands." in ran.out
    assert (folder / "ran.txt").read_text() == "once\n" and not (folder / "never.txt").exists()
    assert killing_lab.count() == killing_lab.count(status=200) == 2
    with Journal(journal_path(os.environ), clock=SystemClock()) as journal:
        turns = [journal.events(turn.id) for turn in journal.find_session(id).turns]
        entries = journal.ledger.entries(LedgerSpan())
    assert [sum(isinstance(event, ScriptCalled) for event in events) for events in turns] == [3]
    assert [sum(isinstance(event, ToolsFinished) for event in events) for events in turns] == [3]
    assert [(one.programs, one.program_calls) for one in entries] == [(1, 3), (0, 0)]
    for pid in command:  # what the killed run could not stop
        if name_of(pid) in COMMAND:
            os.kill(pid, signal.SIGKILL)


def test_killed_while_a_program_computes_the_interpreter_ends_by_its_own_limit(
    killing_lab: Lab, folder: Path, cli: Cli
) -> None:
    """Proves (Done when 5): nobody is left to end an endless loop, and it ends by the limit that the system keeps for it (lowered
    here, not to wait for it); the session goes on and knows what had run."""
    killing_lab.reset()
    model, url = at(killing_lab, "computes")[1::2]
    process = subprocess.Popen([sys.executable, "-c", LIMITED, model, url, str(CPU_S)], cwd=folder, text=True)
    try:
        wait_until((folder / "first.txt").is_file)
        worker = worker_of(process)
        wait_until(lambda: ticks_of(worker) >= COMPUTING_TICKS)
        with waiting_for_the_end_of(worker):
            most = resource.prlimit(worker, resource.RLIMIT_CPU)
            process.kill()
            process.wait(WAIT_S)
            resource.prlimit(worker, resource.RLIMIT_CPU, (LOWERED_S, LOWERED_S))
    finally:
        process.kill()
        process.wait(WAIT_S)
    assert most == (CPU_S + KERNEL_SLACK_S, CPU_S + KERNEL_SLACK_S)
    shown = cli("sessions", "show", cli("sessions", "list").out.split()[0]).out
    assert "The run was interrupted in the middle of this program." in shown
    assert killing_lab.count() == 1
