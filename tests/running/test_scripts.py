"""Programs in the real interpreter: every way to misuse it ends with a readable result, and no tool runs twice."""

import asyncio
import os
import signal
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec
import pytest

from turnwise.agent.agent_setup import script_tool
from turnwise.base.clock import Clock, SystemClock
from turnwise.journal.journal import Journal
from turnwise.rules.permissions import PermissionRule, Policy
from turnwise.running.approvals import Approver, Asking
from turnwise.running.runner import Runner
from turnwise.running.runner_config import RunnerMeans, Safety
from turnwise.running.script_values import awaited_calls
from turnwise.running.tool_output import TOOL_FAILED
from turnwise.running.tools import Arguments, Tool
from turnwise.testing import FakeClock, ScriptedModel, call
from turnwise.turn.config import Approval, Effect, ScriptLimits, ToolOffer, TurnConfig, TurnResult
from turnwise.turn.events import Event, ScriptCalled, TurnStarted
from turnwise.turn.machine import fold_session, replay
from turnwise.vocab import Message, Part, StopReason, Text, ToolResult, ToolSpec, text_of
from waits import HANG_S

BIG = "".join([f"line {number:>6} of a large file\n" for number in range(10_000)])  # 280,000 characters


class Bench:
    """Tools that write down what they did, and a turn with one program."""

    def __init__(self, **more: object) -> None:
        self.ran: list[str] = []
        self.more = more
        self.events: tuple[Event, ...] = ()
        self.asked: list[Asking] = []
        self.pids: set[int] = set()
        self.inside: Callable[[], None] = lambda: None
        self.clock: Clock = SystemClock()
        self.others: tuple[Tool, ...] = ()

    def tool(self, name: str, function: Callable[[Arguments], object], *, effect: Effect = "none") -> Tool:
        spec = ToolSpec(
            name=name,
            parameters='{"type":"object","properties":{"path":{"type":"string"}},"additionalProperties":false}',
        )
        return Tool(offer=ToolOffer(spec=spec, effect=effect), function=function)

    @property
    def tools(self) -> tuple[Tool, ...]:
        def read(arguments: Arguments) -> str:
            self.ran.append(f"read {arguments.get('path', '')}")
            self.inside()
            return f"text of {arguments.get('path', '')}"

        def write(arguments: Arguments) -> str:
            self.ran.append(f"write {arguments.get('path', '')}")
            return "written"

        def fail(_: Arguments) -> str:
            self.ran.append("fail")
            raise ValueError("it is broken")

        def big(arguments: Arguments) -> str:
            self.ran.append(f"big {len(str(arguments.get('path', '')))}")
            return BIG

        own = (
            self.tool("read", read),
            self.tool("write", write, effect="write"),
            self.tool("fail", fail),
            self.tool("big", big),
            *self.others,
        )
        made = script_tool(own)
        assert made is not None
        return (*own, made)

    async def run(self, *said: Part, approver: Approver | None = None, journal: Journal | None = None) -> TurnResult:
        model = ScriptedModel([list(said), "Done."])
        tools = self.tools
        config = TurnConfig(session_id="s", turn_id="t", model="m", tools=tuple([tool.offer for tool in tools]))
        config = msgspec.structs.replace(config, **self.more)
        runner = self.runner = Runner(
            RunnerMeans(
                endpoint=model.endpoint,
                transport=model,
                tools=tools,
                clock=self.clock,
                safety=Safety(approver=approver),
            )
        )
        with Journal(None, clock=FakeClock()) as own:
            pen = (journal or own).begin_turn(turn_id="t", session_id="s", folder="/here", title="go")
            started = TurnStarted(config=config, input=(Message("user", (Text("go"),)),))
            async with asyncio.timeout(HANG_S):
                result = await runner.run(started, journal=pen)
            self.events = tuple((journal or own).events("t"))
        return result

    async def program(self, text: str) -> ToolResult:
        """The one result of a program; the turn went on and ended with its answer."""
        result = await self.run(call("script", program=text))
        assert (result.stop_reason, result.requests, result.text) == (StopReason.ANSWERED, 2, "Done.")
        return only_result(result)


def only_result(result: TurnResult) -> ToolResult:
    (found,) = [part for message in result.messages for part in message.parts if isinstance(part, ToolResult)]
    return found


def said(result: ToolResult) -> str:
    return text_of(Message("user", result.content))


def workers() -> Iterator[int]:
    """The interpreters that this process has started."""
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            state, parent = (folder / "stat").read_text().rpartition(") ")[2].split()[:2]
            name = (folder / "comm").read_text().strip()
        except OSError:
            continue
        if name == "monty" and int(parent) == os.getpid() and state != "Z":
            yield int(folder.name)


def kill_workers() -> None:
    for pid in workers():
        os.kill(pid, signal.SIGKILL)


async def computing(bench: Bench) -> None:
    """Returns once the program has written and its interpreter is at work again."""
    async with asyncio.timeout(HANG_S):
        while True:
            await asyncio.sleep(0)
            if bench.ran == ["write a"] and list(workers()):
                return


@pytest.mark.parametrize(
    ("program", "expected", "ran"),
    [
        ('print(read(path="a"))', "text of a\n", ["read a"]),
        ('read("a") + read("b")', "text of atext of b", ["read a", "read b"]),
        ('await read(path="a")', "text of a", ["read a"]),
        ('async def f(p):\n    return await read(path=p)\nawait f("a")', "text of a", ["read a"]),
        ('f = read\nf("a")', "text of a", ["read a"]),
        ('[len(read(p)) for p in ["a", "b"]]', "[9,9]", ["read a", "read b"]),
        ("x = 1", "(The program ended without printing or returning anything.)", []),
        ('{"a": 1, "b": [None, True]}', '{"a":1,"b":[null,true]}', []),
        ("try:\n    fail()\nexcept RuntimeError as error:\n    print(error)", f"ValueError: {TOOL_FAILED}\n", ["fail"]),
        ('if "text" in read("a"):\n    write(path="b")\nprint("ok")', "ok\n", ["read a", "write b"]),
        ("print(json.dumps([1]), re.sub('a', 'b', 'aa'), math.pi > 3)", "[1] bb True\n", []),
        ('x = read(path="a")\r\nprint(x)\r\n', "text of a\n", ["read a"]),
    ],
)
async def test_a_program_calls_tools_as_functions(program: str, expected: str, ran: list[str]) -> None:
    """Proves: with and without `await`, by position and by name, in loops and conditions; what it prints or returns is the
    result."""
    bench = Bench()
    result = await bench.program(program)
    assert (said(result), result.is_error, bench.ran) == (expected, False, ran)


@pytest.mark.parametrize(
    ("program", "expected"),
    [
        ("x = []\nfor i in range(5000):\n    x = [x]\nx", "[" * 21 + "..." + "]" * 21),
        ("x = {}\nfor i in range(5000):\n    x = {1: x}\nx", "{1: " * 20 + "{...}" + "}" * 20),
        ("x = [1]\nfor i in range(60):\n    x = [x, x]\nx", "[" * 21 + "...], [...]], [[...], [...]]], "),
        ("class A:\n    pass\na = A()\na.x = [1]\nfor i in range(60):\n    a.x = [a.x, a.x]\na", "A(x=[[[[[[[[["),
        ("x = []\nx.append(x)\nx", '["[...]"]'),
        ("10**5000", "<int, too long to write>"),
    ],
)
async def test_any_value_can_be_what_a_program_ends_with(program: str, expected: str) -> None:
    """Proves: one that nests 5,000 deep, that holds itself, or that is 2 ** 60 lists when written out, is shown within the
    limit of output; the turn goes on."""
    bench = Bench(script_limits=ScriptLimits(output_characters=2000))
    result = await bench.program(program)
    assert (said(result)[: len(expected)], result.is_error) == (expected, False)
    assert len(said(result)) < 2100


async def test_gathered_calls_are_one_step() -> None:
    """Proves: calls that are awaited together are ordered together, however they were put down."""
    for program in (
        'a, b = await asyncio.gather(read("a"), read("b"))\nprint(a, b)',
        'tasks = []\nfor p in "ab":\n    tasks.append(read(p))\nprint(*await asyncio.gather(*tasks))',
        'async def f(p):\n    return await read(p)\nprint(*await asyncio.gather(*[f(p) for p in "ab"]))',
        'tasks = [read(p) for p in "ab"]\nprint(*[await task for task in tasks])',
    ):
        bench = Bench()
        assert said(await bench.program(program)) == "text of a text of b\n", program
        batches = [len(event.calls) for event in bench.events if isinstance(event, ScriptCalled)]
        assert batches == [2], program


@pytest.mark.parametrize(
    ("program", "words", "ran"),
    [
        ("while True:\n    pass", ["it computed for longer than 0.2 s"], 0),
        ('x = "a" * 1_000_000_000', ["line 1: ", "it needed more than 16 MB of memory"], 0),
        (
            'for n in range(100_000):\n    write(path="p%d" % n)',
            ["line 2: ", "it may make 20 calls", "20 calls had run (`write` x20); what was done stands."],
            20,
        ),
        (
            "await asyncio.gather(*[read(str(n)) for n in range(100_000)])",
            ["it may make 20 calls", "No call had run."],
            0,
        ),
        ('read("a")\n\nprint("so far")\nboom()', ["line 4: ", "'boom' is not defined", "1 call had run", "so far"], 1),
        ('write("a")\nfail()', ["line 2: ", "RuntimeError: ValueError: the tool failed", "(`write`, `fail`)"], 2),
        ("def f(n):\n    return [][n]\nf(1)", ["line 2: ", "IndexError", "line 3: f(1)"], 0),
        ("x = []\nwhile True:\n    x.append('a' * 1_000_000)", ["line 3: ", "it needed more than 16 MB of memory"], 0),
        (
            'def f():\n    fail()\ntry:\n    read("a")\n    f()\nexcept ValueError:\n    print("no")',
            ["line 2: ", "RuntimeError: ValueError: the tool failed", "line 2: fail()"],
            2,
        ),
        ('try:\n    boom()\nexcept RuntimeError:\n    print("no")', ["line 2: ", "'boom'", "line 2: boom()"], 0),
        ("x = [\n", ["SyntaxError"], 0),
        ('open("/etc/passwd").read()', ["line 1: ", "/etc/passwd"], 0),
        ("import subprocess", ["line 1: ", "subprocess"], 0),
        ('read(pth="a")\n', ["line 1: ", "unexpected: `pth`", "No call had run."], 0),
        (
            "read(1, 2)",
            ["do not fit the parameters of `read`: read() takes 1 argument by position, and 2 were given."],
            0,
        ),
        ('read("a", path="b")', ["read() got the argument `path` twice, by position and by name."], 0),
        ("read(path=print)", ["JSON cannot carry the argument `path`: a value of type"], 0),
        (
            "x = []\nfor i in range(5000):\n    x = [x]\nread(path=x)",
            ["line 4: ", "`path`: nested more than 100 deep"],
            0,
        ),
        ("x = [1]\nfor i in range(60):\n    x = [x, x]\nread(path=x)", ["line 4: ", "`path`: more than 100,000"], 0),
        ('read(path=[float("nan")])', ["line 1: ", "the argument `path`: nan, which is no number of JSON"], 0),
        ('read(path=b"x")', ["the argument `path`: bytes: decode them to text"], 0),
        ('read(path={1: 2, "1": 3})', ["the argument `path`: the key 1 twice, as a number and as text"], 0),
        ("read(path=10**5000)", ["the argument `path`: a whole number of 16610 bits"], 0),
        ('script(program="1")', ["'script' is not defined"], 0),
        ("import time\nwhile True:\n    time.sleep(50)", ["line 3: ", "slept for more than 0.1 s"], 0),
        ("await asyncio.sleep(1e9)", ["line 1: ", "slept for more than 0.1 s"], 0),
        (
            "import time\nwhile True:\n    try:\n        time.sleep(1)\n    except BaseException:\n        pass",
            ["slept"],
            0,
        ),
        ("raise SystemExit(3)", ["raise it with one text or none (not `SystemExit(3)`)", "No call had run."], 0),
        ('list(map(read, ["a"]))', ["line 1: ", "`map`, `filter`, `sorted`", "in a loop or a comprehension"], 0),
        ('sorted(["a"], key=read)', ["line 1: ", "in a loop or a comprehension"], 0),
        (
            'await asyncio.gather(read("a"), return_exceptions=True)',
            ["line 1: ", "catch RuntimeError around each call"],
            0,
        ),
        ("x" * 5000, ["it has 5,000 characters, and 4,000 is the limit"], 0),
        ("-" * 3900 + "1", ["The program failed"], 0),
    ],
)
async def test_what_a_program_may_not_do_ends_it_with_words(program: str, words: list[str], ran: int) -> None:
    """Proves (Done when 5): endless loop, a gigabyte, 100,000 calls and all other misuse end readably, with the line and
    with what had run."""
    limits = ScriptLimits(
        cpu_s=0.2 if "computed" in words[0] else 20.0,  # a busy machine must not end what something else is to end
        memory_bytes=16 * 1024**2,
        calls=20,
        sleep_s=0.1,
        program_characters=4000,
        output_characters=2000,
    )
    bench = Bench(script_limits=limits)
    result = await bench.program(program)
    assert result.is_error
    assert [word for word in words if word not in said(result)] == [], said(result)
    assert (len(bench.ran), len(set(bench.ran))) == (ran, ran)
    assert list(workers()) == []


async def test_a_result_reaches_the_program_whole() -> None:
    """Proves: a program computes with all of a result (promise of `write(content=read(...))`), where a model would read its head
    and tail; what goes back to the model is cut."""
    bench = Bench()
    program = (
        'text = big()\nprint(len(text), text.count("\\n"), "left out" in text)\nawait asyncio.gather(big(), big())'
    )
    shown = said(await bench.program(program))
    assert shown.startswith(f"{len(BIG)} 10000 False\n") and len(shown) < 70_000
    assert bench.ran == ["big 0"] * 3


@pytest.mark.parametrize(
    ("limits", "program", "words", "is_error"),
    [
        (
            ScriptLimits(call_bytes=100_000),
            'try:\n    big()\nexcept RuntimeError as error:\n    print(error)\nprint(read("a"))',
            "`big` ran, but its result has 280,000 bytes, and a program can take 100,000 of this call: ask for less of it, or "
            "for fewer at once\ntext of a\n",
            False,
        ),
        (
            ScriptLimits(exchanged_bytes=900_000),
            "await asyncio.gather(*[big() for n in range(4)])",
            "its result has 280,000 bytes, and a program can take 225,000 of this call",
            True,
        ),
        (
            ScriptLimits(exchanged_bytes=500_000),
            "big()\nbig()\nbig()",
            "line 2: The program failed: its arguments and results together have more than 500,000 bytes, which is the limit\n"
            "2 calls had run (`big` x2)",
            True,
        ),
        (
            ScriptLimits(exchanged_bytes=500_000),
            'text = "x" * 100_000\nawait asyncio.gather(*[read(path=text) for n in range(60)])',
            "line 2: The program failed: its arguments and results together have more than 500,000 bytes, which is the limit\n"
            "No call had run.",
            True,
        ),
        (
            ScriptLimits(call_bytes=1000),
            'try:\n    read(path="x" * 2000)\nexcept TypeError as error:\n    print(error)',
            "read(): JSON cannot carry the argument `path`: more than 1,000 bytes\n",
            False,
        ),
    ],
)
async def test_what_goes_between_a_program_and_its_tools_is_bounded(
    limits: ScriptLimits, program: str, words: str, is_error: bool
) -> None:
    """Proves: nothing is cut in silence; too much of one call raises in the program, too much in all ends it."""
    bench = Bench(script_limits=limits)
    result = await bench.program(program)
    assert (words in said(result), result.is_error) == (True, is_error), said(result)


@pytest.mark.parametrize(
    "misfit",
    ['read("a", "b")', 'read("a", path="b")', 'read("a", "b", path="c")', "read(path=1)", 'read(pth="a")', "read(1)"],
)
async def test_every_misfit_raises_the_same_error_in_a_program(misfit: str) -> None:
    """Proves: a program that catches RuntimeError, as its description says, catches each call that does not fit its tool,
    with the words that a model would read. From a tester: too many arguments and doubled ones raised TypeError."""
    bench = Bench()
    result = await bench.program(f"try:\n    {misfit}\nexcept RuntimeError as error:\n    print(error)")
    assert said(result).startswith("Not run: the arguments do not fit the parameters of `read`"), said(result)
    assert (result.is_error, bench.ran) == (False, [])


@pytest.mark.parametrize(
    "misfit", ["note()", 'note("a", "b")', 'note("a", input="b")', 'note("a", more="b")', "note(1)"]
)
async def test_a_tool_that_takes_text_takes_one_text_and_nothing_else(misfit: str) -> None:
    """Proves: no argument is dropped in silence."""
    noted: list[str] = []
    spec = ToolSpec(name="note", free_form=True)
    note = Tool(offer=ToolOffer(spec=spec, effect="none"), function=lambda text: noted.append(str(text)))
    bench = Bench()
    bench.others = (note,)
    result = await bench.program(f"try:\n    {misfit}\nexcept RuntimeError as error:\n    print(error)")
    assert said(result).startswith("Not run: the arguments do not fit the parameters of `note`: note() "), said(result)
    assert (result.is_error, noted) == (False, [])


@pytest.mark.parametrize(
    ("program", "seconds"),
    [
        ("import time\ntime.sleep(15)\nprint('slept')", [15.0]),
        ("await asyncio.sleep(40)\nprint('slept')", [40.0]),
        ("await asyncio.gather(asyncio.sleep(30), asyncio.sleep(20), asyncio.sleep(20))\nprint('slept')", [20.0, 10.0]),
    ],
)
async def test_a_program_sleeps_as_long_as_it_says(program: str, seconds: list[float]) -> None:
    """Proves: a sleep within the limit is whole (the interpreter's own end after ten seconds), by the turn's clock; sleeps that
    are awaited together pass together."""
    bench = Bench()
    bench.clock = clock = FakeClock()
    running = asyncio.create_task(bench.program(program))
    async with asyncio.timeout(HANG_S):
        for one in seconds:
            await clock.until_waiting(one)
            await clock.advance(one)
        assert said(await running) == "slept\n"
    assert clock.monotonic() == sum(seconds)


async def test_only_the_head_and_the_tail_of_much_output_come_back() -> None:
    """Proves: what is printed and returned is bounded, and says how much was left out."""
    bench = Bench(script_limits=ScriptLimits(output_characters=40))
    printed = said(await bench.program('for n in range(1000):\n    print("line", n)'))
    assert printed.startswith("line 0\nline 1\nline 2") and printed.endswith("line 998\nline 999\n")
    assert "characters left out" in printed and len(printed) < 100
    returned = said(await bench.program('"x" * 1000'))
    assert returned == f"{'x' * 20}\n[... 960 characters left out ...]\n{'x' * 20}"


async def test_a_denied_call_raises_in_the_program_and_did_not_run() -> None:
    """Proves: the rules hold inside as outside, and the program may go on without the call."""
    rules = (PermissionRule(verdict="deny", tool="write"), PermissionRule(verdict="allow", tool="r*"))
    bench = Bench(policy=Policy(rules=rules))
    caught = 'try:\n    write(path="a")\nexcept RuntimeError as error:\n    print(str(error)[:28])\nprint(read("b"))'
    assert said(await bench.program(caught)) == "Denied: `write` was not run.\ntext of b\n"
    assert bench.ran == ["read b"]
    result = await bench.program('read("c")\nwrite(path="a")')
    assert result.is_error and "line 2: " in said(result) and "Denied: `write`" in said(result)
    assert bench.ran == ["read b", "read c"]


@pytest.mark.parametrize(("verdict", "expected"), [("allow", "written\n"), ("later", "Denied: the user left this\n")])
async def test_an_ask_pauses_the_program(verdict: str, expected: str) -> None:
    """Proves: the person is asked about the call inside, and the program goes on with the answer, once."""
    bench = Bench(policy=Policy(rules=(PermissionRule(verdict="ask", tool="write"),), attended=True))

    async def approve(asking: Asking) -> list[Approval]:
        bench.asked.append(asking)
        return [msgspec.convert({"call_id": asking.asks[0].call.id, "verdict": verdict}, Approval)]

    program = 'read("a")\ntry:\n    print(write(path="b"))\nexcept RuntimeError as error:\n    print(str(error)[:26])'
    result = await bench.run(call("script", id="c1", program=program), approver=approve)
    assert (said(only_result(result)), result.stop_reason) == (expected, StopReason.ANSWERED)
    assert [[one.call.id for one in asking.asks] for asking in bench.asked] == [["c1/2"]]
    assert bench.ran == (["read a", "write b"] if verdict == "allow" else ["read a"])


async def test_the_interpreter_dies_in_the_middle() -> None:
    """Proves (Done when 5): a worker that is killed is a readable result; what had run is named and not run again."""
    bench = Bench()
    bench.inside = kill_workers
    result = await bench.program('write(path="a")\nread("b")\nwrite(path="c")')
    assert said(result) == (
        "line 2: The program failed: the interpreter died while it ran\n"
        "2 calls had run (`write`, `read`); what was done stands."
    )
    assert (result.is_error, bench.ran) == (True, ["write a", "read b"])
    assert list(workers()) == []


async def test_cancel_in_the_middle_of_a_call_says_what_had_run() -> None:
    """Proves (Done when 5): the turn ends, the program's result tells the calls that had run from the one that may have, a
    program that had not begun did not, and the worker is gone."""
    bench = Bench()
    loop = asyncio.get_running_loop()

    def cancel() -> None:
        loop.call_soon_threadsafe(bench.runner.interrupt)
        waiting.wait(HANG_S)

    waiting, bench.inside = threading.Event(), cancel
    programs = ['write(path="a")\nread("b")\nwrite(path="c")', 'write(path="d")']
    result = await bench.run(*[call("script", program=program) for program in programs])
    waiting.set()
    first, second = [part for message in result.messages for part in message.parts if isinstance(part, ToolResult)]
    assert result.stop_reason is StopReason.CANCELLED
    assert said(first) == (
        "Cancelled by the user in the middle of this program. 1 call had run (`write`), and `read` may have run in part. "
        "What they did stands: look before you repeat any of it."
    )
    assert said(second) == "Not run: cancelled by the user before this call had started."
    assert bench.ran == ["write a", "read b"]
    assert list(workers()) == []


async def test_cancel_while_it_computes_kills_the_interpreter() -> None:
    """Proves: an endless program does not outlive a cancelled turn."""
    bench = Bench()
    task = asyncio.create_task(bench.run(call("script", program='write(path="a")\nwhile True: pass')))
    await computing(bench)
    bench.runner.interrupt()
    result = await task
    text = said(only_result(result))
    assert result.stop_reason is StopReason.CANCELLED
    assert text.startswith("Cancelled by the user in the middle of this program."), text
    assert "`write`" in text
    assert list(workers()) == []


async def test_a_task_that_is_cancelled_takes_the_interpreter_along() -> None:
    """Proves: a caller that cancels `run` itself leaves no process either."""
    bench = Bench()
    task = asyncio.create_task(bench.run(call("script", program='write(path="a")\nwhile True: pass')))
    await computing(bench)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert list(workers()) == []


@pytest.mark.promise("keep:replay")
async def test_a_journal_replays_without_the_interpreter_and_a_killed_turn_says_what_ran() -> None:
    """Proves (Done when 5): every prefix of the journal gives the same commands; a turn killed anywhere in the program has one
    result for it, that names the tools that had run, and nothing of it is in the history twice."""
    bench = Bench()
    await bench.program('read("a")\na, b = await asyncio.gather(write("b"), read("c"))\nprint(a, b)')
    events = bench.events
    whole = replay(events)
    for cut in range(1, len(events) + 1):
        assert replay(events[:cut]) == whole[:cut]
    script_at = [at for at, event in enumerate(events, start=1) if isinstance(event, ScriptCalled)]
    for cut, words in zip(
        [script_at[0], script_at[0] + 1, script_at[1], script_at[1] + 2],
        [
            "No call had run, and `read` may have run in part.",
            "1 call had run (`read`).",
            "1 call had run (`read`), and `write`, `read` may have run in part.",
            "3 calls had run (`read` x2, `write`).",
        ],
        strict=True,
    ):
        session = fold_session([events[:cut]])
        (found,) = [part for message in session.messages for part in message.parts if isinstance(part, ToolResult)]
        assert said(found).startswith(f"The run was interrupted in the middle of this program. {words}"), said(found)
        assert "look before you repeat" in said(found)


async def test_plain_calls_run_first_and_programs_after_one_another() -> None:
    """Proves: one follow-up request carries the results of all, in call order."""
    bench = Bench()
    result = await bench.run(
        call("script", program='write("1")\nprint(1)'),
        call("read", path="p"),
        call("script", program='write("2")\nprint(2)'),
    )
    results = [part for message in result.messages for part in message.parts if isinstance(part, ToolResult)]
    assert [said(one) for one in results] == ["1\n", "text of p", "2\n"]
    assert (bench.ran, result.requests) == (["read p", "write 1", "write 2"], 2)


def test_awaited_calls_are_told_from_the_others() -> None:
    """Proves: by the program's tree; and a text that Python gives up on decides nothing."""

    def awaited(program: str) -> list[str]:
        spans = awaited_calls(program)
        assert spans is not None
        return sorted(
            [program.encode()[start:end].decode() for start, end in spans if program[start:].startswith("t(")]
        )

    assert awaited("x = t(1)\nawait t(2)") == ["t(2)"]
    assert awaited("x = t(1)\nawait x") == ["t(1)"]
    assert awaited("await t(t(1))") == ["t(t(1))"]
    assert awaited("def f():\n  return t(1)\nawait f()") == ["t(1)"]
    assert awaited("async def f():\n  return t(1)\nawait f()") == []
    assert awaited("a = b = t(1)\nfor x in [a]:\n  await x") == ["t(1)"]
    assert awaited("x = {'k': t(1)}\nawait asyncio.gather(*x.values())") == ["t(1)"]
    assert awaited("g = asyncio.gather(t(1), *[t(2)])") == ["t(1)", "t(2)"]
    assert awaited("print(t(1))\nt(2) + 'é'\nt(3)") == []
    assert awaited_calls("x = [") is None
    assert awaited_calls("~" * 30000 + "1") is None
