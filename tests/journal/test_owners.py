"""Whether the process that runs a turn still lives."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from turnwise.journal.owners import is_alive, is_here, our_name, presume_gone, shown_owner
from waits import HANG_S

HOST, _, _, BOOT, SPACES = our_name().rsplit(":", 4)
NAMES_ITSELF = (
    "import sys; from turnwise.journal.owners import our_name; print(our_name(), flush=True); sys.stdin.read()"
)


def name_of(pid: int) -> str:
    started = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[19]
    return f"{HOST}:{pid}:{started}:{BOOT}:{SPACES}"


def test_we_live_and_a_later_process_with_our_number_is_another() -> None:
    """Proves: the number alone is no name."""
    assert is_alive(our_name())
    assert not is_alive(f"{HOST}:{os.getpid()}:1:{BOOT}:{SPACES}") or not Path("/proc").exists()
    assert shown_owner(our_name()) == f"{HOST}:{os.getpid()}"


@pytest.mark.promise("keep:crash")
@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="only Linux says what state a process is in")
def test_a_process_that_nobody_has_waited_for_is_gone() -> None:
    """Proves: after `kill -9` its turn can be resumed at once, also in a container whose first process waits for nobody."""
    process = subprocess.Popen([sys.executable, "-c", "import sys; sys.stdin.read()"], stdin=subprocess.PIPE)
    name = name_of(process.pid)
    assert is_alive(name)
    process.kill()
    os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)  # it has ended, and is still there
    assert not is_alive(name)
    process.wait()
    assert process.stdin is not None
    process.stdin.close()
    assert not is_alive(name)


@pytest.mark.promise("keep:crash", "run:own-state")
@pytest.mark.skipif(not BOOT, reason="this system has no id of its boot")
@pytest.mark.parametrize("other", ["boot", "namespace", "both"])
def test_a_process_of_another_machine_with_our_host_name_is_not_taken_for_dead(other: str) -> None:
    """Proves: a number that nobody has here says nothing of another boot or container, though the host name is ours."""
    process = subprocess.Popen([sys.executable, "-c", ""])
    name = name_of(process.pid)
    process.wait()
    assert not is_alive(name)
    boot = BOOT if other == "namespace" else "0" * 36
    spaces = SPACES if other == "boot" else "1.1"
    elsewhere = f"{name.rsplit(':', 2)[0]}:{boot}:{spaces}"
    assert is_alive(elsewhere) and not is_here(elsewhere)
    presume_gone(elsewhere, session="s")
    assert not is_alive(elsewhere, session="s")
    assert is_alive(elsewhere) and is_alive(elsewhere, session="s2")


@pytest.mark.promise("keep:crash", "run:own-state")
@pytest.mark.skipif(shutil.which("unshare") is None, reason="there is no `unshare`, which makes namespaces")
@pytest.mark.parametrize("proc", ["--mount-proc", ""])
def test_a_living_process_of_another_pid_namespace_is_not_taken_for_dead(proc: str) -> None:
    """Proves: neither side takes the other for dead, with the namespace's own `/proc` and with the outer one. A real process in a
    real namespace judges this one, and is judged."""
    apart = [part for part in ("unshare", "--pid", "--fork", "--kill-child", proc) if part]
    if subprocess.run([*apart, "true"], capture_output=True, check=False).returncode:
        pytest.skip("this machine makes no pid namespace")
    judges = NAMES_ITSELF.replace(
        "sys.stdin.read()",
        "from turnwise.journal.owners import is_alive\n"
        "print(*[is_alive(line.strip()) for line in sys.stdin], is_alive(our_name()))",
    )
    own = subprocess.Popen(
        [sys.executable, "-c", NAMES_ITSELF], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    inner = subprocess.Popen(
        [*apart, sys.executable, "-c", judges], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    try:
        assert own.stdout is not None and inner.stdout is not None
        name, outer_name = inner.stdout.readline().strip(), own.stdout.readline().strip()
        assert name.split(":")[0] == HOST and name.rsplit(":", 1)[1] != SPACES
        assert is_alive(outer_name) and is_alive(name) and not is_here(name)
        said, _ = inner.communicate(f"{outer_name}\n", timeout=HANG_S)
        assert said.split() == ["True", "True"]
        assert is_alive(name), "it has ended, and nobody can see that from here"
    finally:
        for process in (own, inner):
            process.kill()
            process.communicate(timeout=HANG_S)


@pytest.mark.promise("keep:crash", "run:own-state")
@pytest.mark.skipif(shutil.which("unshare") is None, reason="there is no `unshare`, which makes namespaces")
def test_processes_of_two_containers_whose_proc_names_no_namespace_are_not_taken_for_dead(tmp_path: Path) -> None:
    """Proves: where `/proc` shows the id of the boot and no process, two containers have no namespace that tells them apart; what
    one cannot see of the other is unknown there, not gone."""
    hides = (
        f"mount --bind /proc/sys {tmp_path} && mount -t tmpfs none /proc && mkdir /proc/sys && "
        f'mount --bind {tmp_path} /proc/sys && exec "$@"'
    )
    apart = ["unshare", "--mount", "--pid", "--fork", "--kill-child", "sh", "-c", hides, "sh"]
    if subprocess.run([*apart, "true"], capture_output=True, check=False).returncode:
        pytest.skip("this machine makes no pid namespace, or lets nobody mount")
    # numbered apart from the judge, so that nobody has its number there
    later = [*apart, "sh", "-c", 'for n in 1 2 3 4 5; do true & wait; done; "$@"; true', "sh", sys.executable, "-c"]
    judges = (
        "import sys; from turnwise.journal.owners import is_alive, is_here\n"
        "name = sys.argv[1]; print(is_alive(name), is_here(name))"
    )
    named = subprocess.Popen([*later, NAMES_ITSELF], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    try:
        assert named.stdout is not None
        name = named.stdout.readline().strip()
        assert name.rsplit(":", 2)[1:] == [BOOT, "."]
        judge = [*apart, sys.executable, "-c", judges, name]
        said = subprocess.run(judge, capture_output=True, text=True, timeout=HANG_S, check=True).stdout
        assert said.split() == ["True", "False"]
    finally:
        named.kill()
        named.communicate(timeout=HANG_S)


@pytest.mark.parametrize(
    "name",
    ["", "x", "a:b", *[f"{HOST}:{pid}:1:{BOOT}:{SPACES}" for pid in ("one", 10**30, -1)], f"{HOST}:1:1"],
)
def test_of_a_name_that_is_none_of_ours_nothing_is_known(name: str) -> None:
    """Proves: whatever stands in a journal as the owner of a turn, nobody takes the turn over, and nothing breaks."""
    assert is_alive(name)
