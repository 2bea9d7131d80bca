"""What commands that run unasked may take up: each bound, in each sandbox, reached by the real thing.

The bounds are small, and what multiplies has a fuse: were a bound not to hold, the machine would still stand it.
"""

import asyncio
import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Generator
from pathlib import Path

import msgspec
import pytest

from sandboxes import CONFINING, EVERY, PYTHON, Held, sandbox_called, script
from turnwise.errors import ToolFault
from turnwise.rules.permissions import PermissionRule, Policy
from turnwise.running.run_context import judged_programs
from turnwise.running.tools import ToolRun
from turnwise.testing import FakeClock
from turnwise.tools.sandbox import Scratch
from turnwise.tools.sandbox.sandbox_types import CommandBounds, allowed_bounds, unasked_bounds
from turnwise.tools.shell_judge import inspector
from turnwise.tools.workspace import workspace_tools
from turnwise.tools.workspace.shell import BashArguments, Shell
from turnwise.turn.events import PlannedCall
from turnwise.turn.verdicts import judge_calls
from turnwise.vocab import Text, ToolCall
from waits import HANG_S

MiB = 1 << 20
USER = 65534
SMALL = CommandBounds(memory=64 * MiB, processes=40, scratch=16 * MiB)
MEMORY, PROCESSES, FILES = "64 MiB of memory", "40 processes and threads", "16 MiB of temporary files"

NAMES_IT = PermissionRule(verdict="allow", tool="bash", command=("tac", "*"), source="user")

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="there is no keeper")

LASTS_S = 20  # what the table of mutants has end by itself; else nobody waits for it
# As a fork bomb of bash, but for the fuse: each takes a byte from a pipe before it multiplies.
BOMB = "exec 8< <(head -c 1500 /dev/zero | tr '\\0' x); :(){ read -rn1 _ <&8 && { :|:& } ; sleep 300; }; :; wait"
LEAVING = """
import os, time
fuse, tokens = os.pipe()
os.write(tokens, b"x" * 1500)
os.close(tokens)
while os.read(fuse, 1):  # both go on, each in a session of its own
    if not os.fork():
        os.setsid()
time.sleep(300)
"""
GROWING = """
kept = []
while True:
    kept.append(bytearray(os.urandom(4096)) * 256)
"""
MANY = """
for _ in range(30):
    if not os.fork():
        kept = bytearray(b"x") * (4 << 20)
        time.sleep(LASTS_S)
time.sleep(LASTS_S)
"""
THREADS = """
import threading
for _ in range(60):
    threading.Thread(target=time.sleep, args=(300,), daemon=True).start()
time.sleep(300)
"""
SHARED = """
import mmap
kept = mmap.mmap(-1, 100 << 20)
for at in range(0, 100 << 20, 4096):
    kept[at] = 1
time.sleep(300)
"""
NAMELESS = """
for number in range(8):
    os.write(os.memfd_create("kept"), bytes(4 << 20))
time.sleep(LASTS_S)
"""
UNLINKED = """
for number in range(8):
    kept = os.open(f"{os.environ['TMPDIR']}/x{number}", os.O_CREAT | os.O_WRONLY, 0o600)
    os.unlink(f"{os.environ['TMPDIR']}/x{number}")
    os.write(kept, bytes(4 << 20))
time.sleep(300)
"""
CLOSED = """
for number in range(8):
    with open(f"{os.environ['TMPDIR']}/x{number}", "wb") as file:
        file.write(bytes(4 << 20))
time.sleep(300)
"""
PROGRAMS = {
    "leaving": LEAVING, "growing": GROWING, "many": MANY, "threads": THREADS, "shared": SHARED, "nameless": NAMELESS,
    "unlinked": UNLINKED, "closed": CLOSED,
}  # fmt: skip
ATTACKS = [
    (BOMB, PROCESSES),
    ("leaving", PROCESSES),
    ("threads", PROCESSES),
    ("growing", MEMORY),
    ("many", MEMORY),
    ("shared", MEMORY),
    ("jq -n '[range(1e12)]'", MEMORY),
    ("nameless", FILES),
    ("unlinked", FILES),
    ("seq inf | tac", FILES),
    ("seq inf | sort -S 1M", FILES),
    ("dd if=/dev/zero of=here bs=64k", FILES),
    ("dd if=/dev/zero of=$TMPDIR/x bs=64k", FILES),
]


@pytest.fixture(params=EVERY)
def shell(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Shell:
    root = tmp_path / "root"
    root.mkdir()
    sandbox = sandbox_called(request.param)
    if not sandbox.files:  # what a killed command leaves goes with the test
        (tmp_path / "tmp").mkdir()
        monkeypatch.setenv("TMPDIR", str(tmp_path / "tmp"))
    return Shell(root, sandbox=sandbox, unasked=SMALL, also_env=frozenset({"TMPDIR"}))


@pytest.fixture
def held(shell: Shell) -> Generator[Held]:
    held = Held(shell.root)
    yield held
    held.close()


async def run(shell: Shell, command: str, *, unasked: bool = True) -> str:
    given = BashArguments(command=command, timeout_s=int(HANG_S))
    with judged_programs(None, unasked=unasked):
        return await asyncio.wait_for(shell.run(given), HANG_S)


def command_of(attack: str, *, root: Path) -> str:
    text = PROGRAMS.get(attack)
    return attack if text is None else script(root / "attack.py", f"import os, time\nLASTS_S = {LASTS_S}\n{text}")


@pytest.mark.costly
@pytest.mark.promise("safe:bounded")
@pytest.mark.parametrize(("attack", "said"), ATTACKS, ids=[attack.split("(")[0][:12] for attack, _ in ATTACKS])
async def test_what_takes_too_much_is_ended_with_its_tree_and_told_so(
    shell: Shell, held: Held, attack: str, said: str
) -> None:
    """Whether the keeper saw it or a limit of the kernel came first: the bound is named with its size, and what to do."""
    if attack.startswith("jq") and shutil.which("jq") is None:
        pytest.skip("there is no jq")
    with pytest.raises(ToolFault) as caught:
        await run(shell, f"exec 9>held; {command_of(attack, root=shell.root)}")
    told = str(caught.value)
    assert said in told and told.endswith("it may have more then]") and "timed out" not in told, told
    held.assert_ended()


@pytest.mark.promise("safe:bounded")
@pytest.mark.parametrize("shell", CONFINING, indirect=True)  # without one, it may share the user's temporary folder
async def test_files_that_it_has_closed_count_too(shell: Shell, held: Held) -> None:
    """The keeper sums the temporary folder where no file system of a fixed size can be had."""
    with pytest.raises(ToolFault, match=FILES):
        await run(shell, f"exec 9>held; {command_of('closed', root=shell.root)}")
    held.assert_ended()


@pytest.mark.promise("safe:bounded")
@pytest.mark.parametrize("shell", CONFINING, indirect=True)
async def test_what_is_cut_in_the_middle_of_a_pipe_is_told(shell: Shell, held: Held) -> None:
    """The pipe as a whole ends well, with an answer that is wrong: it is not given for right. With a bound of a real size: from
    a small one to the kernel's limit a program writes in less time than a busy machine takes to let anybody look."""
    roomy = Shell(shell.root, sandbox=shell.sandbox, unasked=msgspec.structs.replace(SMALL, scratch=128 * MiB))
    with pytest.raises(ToolFault, match="128 MiB of temporary files"):
        await run(roomy, "exec 9>held; seq inf | tac | { read -r first; sleep 300; echo $first; }")
    held.assert_ended()


@pytest.mark.promise("safe:bounded")
@pytest.mark.parametrize(("rules", "reached"), [((), True), ((NAMES_IT,), False)], ids=["unasked", "named by a rule"])
async def test_what_the_judge_says_reaches_the_command(
    shell: Shell, rules: tuple[PermissionRule, ...], reached: bool
) -> None:
    """From the verdict on a call to the bounds of its processes, by the way of every call."""
    tools = {tool.name: tool for tool in workspace_tools(shell.root, shell=shell)}
    arguments = json.dumps({"command": "seq inf | tac" if reached else "seq 3000000 | tac | wc -l"})
    plan = PlannedCall(call=ToolCall(id="1", name="bash", arguments=arguments), arguments=arguments, timeout_s=HANG_S)
    inspect = inspector(tools.values(), workspace=shell.root, home=shell.root.parent, environment={"PATH": os.defpath})
    (facts,) = await inspect([plan])
    policy = Policy(workspace=str(shell.root), home=str(shell.root.parent), rules=rules)
    offers = {name: tool.offer for name, tool in tools.items()}
    judged = judge_calls([plan], facts={"1": facts}, policy=policy, offers=offers, hint="")
    (kept,) = judged.planned
    assert kept.unasked is reached and not judged.asks
    run = ToolRun((kept,), tools=tools, clock=FakeClock(), on_start=lambda _: None)
    (result,) = await asyncio.wait_for(run.run(), HANG_S)
    said = "".join([part.text for part in result.content if isinstance(part, Text)])
    assert FILES in said if reached else said == "3000000\n", said


@pytest.mark.costly
async def test_what_was_allowed_has_more(shell: Shell) -> None:
    """Of memory, processes and files, each more than an unasked command has; and what fails by itself is told as before."""
    text = "kept = bytearray(b'x') * (100 << 20); open('here', 'wb').write(kept); print('done')"
    assert await run(shell, script(shell.root / "a.py", text), unasked=False) == "done\n"
    assert await run(shell, "for i in $(seq 60); do sleep 0.2 & done; wait; echo done", unasked=False) == "done\n"
    with pytest.raises(ToolFault) as caught:
        await run(shell, "echo 'No space left on device'; exit 3", unasked=False)
    assert str(caught.value) == "No space left on device\n[exit code 3]"
    with pytest.raises(ToolFault) as caught:
        await run(shell, "exit 3")
    assert str(caught.value) == "[exit code 3]"


REFUSALS = ("No space left on device", "MemoryError", "fork: retry: Resource temporarily unavailable", "File too large")


@pytest.mark.promise("safe:bounded")
async def test_what_a_program_says_of_others_is_no_bound(shell: Shell) -> None:
    """A log that speaks of a full disk, read by a command that fails: none of its bounds was near."""
    far = CommandBounds(
        memory=1 << 50, processes=1 << 30, scratch=1 << 40
    )  # processes of others count, as nobody can tell
    for said in REFUSALS:
        with pytest.raises(ToolFault) as caught:
            await run(Shell(shell.root, sandbox=shell.sandbox, unasked=far), f"echo '{said}'; exit 3")
        assert str(caught.value) == f"{said}\n[exit code 3]"


@pytest.mark.promise("safe:bounded")
@pytest.mark.parametrize(
    ("near", "said", "is_told"),
    [
        ("near memory", REFUSALS[1], True),
        ("near files", REFUSALS[1], False),
        ("near processes", REFUSALS[2], True),
        ("near memory files", REFUSALS[3], True),
        ("", REFUSALS[0], False),
    ],
)
def test_a_bound_is_named_where_program_and_keeper_agree(near: str, said: str, is_told: bool) -> None:
    """Of what the kernel refused between two looks, both know a part."""
    told = SMALL.likely_hit(said.encode(), near=near)
    assert ("64 MiB of memory" in told and told.endswith("it may have more then")) is is_told


FLEETING = """
kept = bytearray(40 << 20)
for at in range(0, 40 << 20, 4096):
    kept[at] = 1
del kept
print("MemoryError", flush=True)
os._exit(3)
"""


@pytest.mark.promise("safe:bounded")
async def test_what_was_near_a_bound_and_is_gone_is_known(shell: Shell) -> None:
    """The kernel tells how much memory a process that has ended had at most, however fast it was."""
    with pytest.raises(ToolFault) as caught:
        await run(shell, script(shell.root / "a.py", f"import os\n{FLEETING}"))
    assert "64 MiB of memory" in str(caught.value) and "exit code 3" in str(caught.value)


@pytest.mark.promise("safe:bounded")
@pytest.mark.parametrize(
    "program", ["node --version", "node -e 'console.log(1)'", "java -version", "{python} -c 'print(1)'"]
)
async def test_what_reserves_much_memory_and_uses_little_runs(shell: Shell, program: str) -> None:
    """With the usual bounds: V8 and Java reserve a gigabyte and more before they begin."""
    if "{" not in program and shutil.which(program.split()[0]) is None:
        pytest.skip(f"there is no {program.split()[0]}")
    usual = Shell(shell.root, sandbox=shell.sandbox)
    assert await run(usual, program.replace("{python}", PYTHON) + " 2>&1")


def a_large_repository(root: Path) -> None:
    for folder in range(1000):
        (root / f"d{folder // 100}" / f"e{folder}").mkdir(parents=True)
        for number in range(100):
            (root / f"d{folder // 100}" / f"e{folder}" / f"f{number}.py").write_text(f"return {folder * number}\n" * 9)
    who = ("-c", "user.name=a", "-c", "user.email=a@b")
    for words in (["init", "-q"], ["add", "-A"], [*who, "commit", "-qm", "all"]):
        subprocess.run(["git", "-C", str(root), *words], check=True, timeout=HANG_S)


@pytest.mark.wide
@pytest.mark.promise("safe:bounded")
async def test_readers_work_on_a_hundred_thousand_files(tmp_path: Path) -> None:
    """Each that goes through all of a repository, with the usual bounds; none comes near one."""
    a_large_repository(tmp_path)
    usual = Shell(tmp_path)
    for command in (
        "git log --stat", "git status", "git grep -n return", "git diff HEAD", "git ls-files", "git blame d0/e0/f0.py",
        "rg return", "rg --files", "find . -name '*.py'", "find . -type f | xargs cat | sort | uniq -c", "grep -r return .",
        "ls -R", "du -a", "find . -type f | xargs wc -l", "find . | tac", "find . | sort -R", "find . | awk '{a[$1]=1}'",
    ):  # fmt: skip
        if shutil.which(command.split()[0]) is not None:
            await run(usual, f"{command} | tail -n 1")


async def test_an_unasked_command_finds_the_files_that_it_names(shell: Shell) -> None:
    """In bubblewrap it has empty folders of a fixed size for what it throws away; those that it names are the usual ones, with
    what earlier commands put there. A command in /dev writes nowhere."""
    await run(shell, "echo kept > $TMPDIR/x", unasked=False)
    assert await run(shell, "cat $TMPDIR/x; echo more >> $TMPDIR/x; cat ${TMPDIR}/x") == "kept\nkept\nmore\n"
    assert await run(shell, "cat $TMPDIR/x", unasked=False) == "kept\nmore\n"
    if shell.sandbox.kind == "bubblewrap" and shell.sandbox.sizes:
        size = "import os; print(*[os.statvfs(os.sep + one).f_blocks * 4096 >> 20 for one in ('tm' + 'p', 'dev/shm')])"
        (shell.root / "size.py").write_text(size)
        (shell.root / "shm.py").write_text(SYSTEM_V)
        assert await run(shell, f"{PYTHON} size.py; {PYTHON} shm.py") == "64 64\nno System V\n"
    if shell.sandbox.files:
        assert await run(shell, "(echo > /dev/x) 2>/dev/null || echo no") == "no\n"


SYSTEM_V = """
import ctypes
print("no System V" if ctypes.CDLL(None).shmget(0, 4096, 0o1600) < 0 else "one was made")
"""


@pytest.mark.costly
@pytest.mark.parametrize("name", EVERY)
def test_who_takes_no_report_reads_it_on_standard_error(name: str, tmp_path: Path) -> None:
    """As of an MCP server, whose last words are shown."""
    scratch = Scratch()
    argv = ["/bin/sh", "-c", f"for i in $(seq 60); do sleep {LASTS_S} & done; wait"]
    wrapped = sandbox_called(name).wrap(argv, workspace=tmp_path, scratch=scratch, bounds=SMALL)
    process = subprocess.Popen(
        wrapped.argv, env=wrapped.env, stdin=subprocess.PIPE, stderr=subprocess.PIPE, pass_fds=wrapped.descriptors
    )
    for descriptor in wrapped.descriptors:
        os.close(descriptor)
    with process:
        assert process.wait(HANG_S) == 126 and process.stderr is not None
        assert (
            process.stderr.read() == b"\nturnwise ended it, because it had more than 40 processes and threads at once\n"
        )


AS_USER = """
import asyncio, os, sys
from pathlib import Path
from turnwise.running.run_context import judged_programs
from turnwise.tools.sandbox import find_sandbox
from turnwise.tools.sandbox.sandbox_types import CommandBounds
from turnwise.tools.workspace import shell as shells
shell = shells.Shell(
    Path.cwd(), sandbox=find_sandbox(wanted=sys.argv[1]), also_env=frozenset({"TMPDIR"}),
    unasked=CommandBounds(memory=64 << 20, processes=40, scratch=16 << 20),
)
async def main():
    with judged_programs(None, unasked=True):
        for command in sys.argv[2:]:
            try:
                print(await shell.run(shells.BashArguments(command=command)))
            except Exception as error:
                print(error)
assert os.getuid() == 65534
asyncio.run(main())
"""


# Without our interpreter, which a user cannot reach wherever it lies. Were `sleep` the last command of its shell, bash would
# become it and so keep nothing.
MANY_SHELLS = "for i in $(seq 14); do (printf -v kept %12000000s; sleep 300; :) & done; wait"


@pytest.fixture
def users_folder() -> Generator[Path]:
    """One that a user can reach, as the folders of pytest are root's alone."""
    with tempfile.TemporaryDirectory() as name:
        os.chown(name, USER, USER)
        yield Path(name)


@pytest.mark.costly
@pytest.mark.promise("safe:bounded")
@pytest.mark.skipif(os.geteuid() != 0, reason="all other tests run as a user")
@pytest.mark.parametrize("name", ["landlock", "none"])  # bubblewrap refuses the right to read our interpreter
def test_a_user_has_the_same_bounds(name: str, users_folder: Path) -> None:
    """The kernel counts a user's processes, and not root's; the keeper may do less as a user than as root."""
    if shutil.which("setpriv") is None:
        pytest.skip("there is no setpriv (util-linux)")
    sandbox_called(name)
    held = Held(users_folder)
    os.chown(users_folder / "held", USER, USER)
    reads = "+dac_read_search"
    user = [f"--reuid={USER}", f"--regid={USER}", "--clear-groups", f"--inh-caps={reads}", f"--ambient-caps={reads}"]
    commands = [f"exec 9>held; {one}" for one in (BOMB, "seq inf | tac", MANY_SHELLS)]
    told = subprocess.run(
        ["setpriv", *user, sys.executable, "-c", AS_USER, name, *commands],
        cwd=users_folder,
        env={**os.environ, "TMPDIR": str(users_folder), "HOME": str(users_folder)},
        capture_output=True,
        text=True,
        timeout=HANG_S,
        check=False,
    )
    assert told.returncode == 0, told.stderr
    assert [one in told.stdout for one in (PROCESSES, FILES, MEMORY)] == [True, True, True], told.stdout
    held.assert_ended()
    held.close()


def test_the_usual_bounds_fit_the_machine() -> None:
    """An unasked command gets no more than half of its memory, an allowed one never all of it."""
    machine = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    unasked, allowed = unasked_bounds(), allowed_bounds()
    assert unasked.scratch is not None and unasked.memory <= machine // 2 and unasked.scratch <= machine // 8
    assert unasked.memory < allowed.memory < machine and unasked.processes < allowed.processes


@pytest.mark.costly
def test_where_nothing_bounds_commands_that_is_said(tmp_path: Path) -> None:
    """In the line before the first command, and by `doctor`, which is run where there is no /proc."""
    unbounded = "nothing bounds the MEMORY, PROCESSES AND FILES of a command here"
    for name in EVERY:
        sandbox = sandbox_called(name)
        assert sandbox.bounded and unbounded not in sandbox.said(workspace=tmp_path)
        assert unbounded in msgspec.structs.replace(sandbox, bounded=False).said(workspace=tmp_path)
    program = sandbox_called("bubblewrap").program
    doctor = [sys.executable, "-m", "turnwise", "doctor", "--offline", "--json"]
    told = subprocess.run(
        [program, "--dev-bind", "/", "/", "--tmpfs", "/proc", "--", *doctor],
        cwd=tmp_path, capture_output=True, timeout=HANG_S, check=False,
    )  # fmt: skip
    (found,) = [one for one in msgspec.json.decode(told.stdout)["checks"] if one["name"] == "sandbox"]
    assert unbounded in found["found"] and found["status"] == "note" and found["advice"]
